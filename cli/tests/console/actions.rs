//! What is done from the console is done, said once, and in the audit.

use serde_json::{Value, json};

use crate::support::{Answer, Console, Visitor, run, sql, value};

fn insert(queue: &str, options: &str) -> String {
    let sql = format!(
        "select id from jobs.insert('acted.on', '{{\"n\": 1}}', queue => '{queue}', {options})"
    );
    value(&sql).to_string()
}

const LATER: &str = "scheduled_at => now() + interval '1 day'";

fn state(id: &str) -> Value {
    value(&format!("select state from jobs.jobs where id = {id}"))
}

/// Does what a form of the page at this path does, and returns the page that follows.
fn act(person: &mut Visitor, path: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
    let page = person.page(path);
    let done = person.send(&page, action, fields);
    person.follow(&done)
}

/// The newest row of the audit about a target.
fn audited(target: &str) -> Value {
    let of = format!(
        "select action, role, application_name, reason from jobs.audit where target = '{target}' order by at desc limit 1"
    );
    sql(&of).pop().unwrap_or_default()
}

#[test]
fn a_job_is_cancelled_retried_and_deleted() {
    let console = Console::start(&[]);
    let id = insert("acted on", LATER);
    let path = format!("/jobs/{id}");
    let mut person = console.person("application");
    let page = act(
        &mut person,
        &path,
        &format!("{path}/cancel"),
        &[("reason", "the <b>customer</b> left")],
    );
    assert_eq!(state(&id), "cancelled");
    assert_eq!(
        audited(&id),
        json!({ "action": "cancel", "role": "application", "application_name": "jobs console", "reason": "the <b>customer</b> left" })
    );
    let said = format!("Job {id} is cancelled.");
    assert!(page.text().contains(&said), "{}", page.text());
    assert!(!person.page(&path).text().contains(&said), "it is said once");

    act(&mut person, &path, &format!("{path}/retry"), &[]);
    assert_eq!(state(&id), "available");
    let page = act(&mut person, &path, &format!("{path}/delete"), &[]);
    assert!(page.text().contains(&format!("Job {id} is deleted.")));
    assert_eq!(person.get(&path).status, 404);
}

#[test]
fn a_job_is_changed_where_somebody_has_typed() {
    let console = Console::start(&[]);
    let exact = "{\"id\": 9007199254740993, \"part\": 0.10000000000000000555}";
    let id = value(&format!("select id from jobs.insert('edited', '{exact}', queue => 'edited', tags => '{{a}}', {LATER})")).to_string();
    let mut person = console.person("admin");
    act(
        &mut person,
        &format!("/jobs/{id}/edit"),
        &format!("/jobs/{id}/edit"),
        &[("priority", "7"), ("tags", "a\nb")],
    );
    let job =
        sql(&format!("select args::text, priority, tags, queue from jobs.jobs where id = {id}"))
            .remove(0);
    assert_eq!(job, json!({ "args": exact, "priority": 7, "tags": ["a", "b"], "queue": "edited" }));

    let page = person.page(&format!("/jobs/{id}/edit"));
    let wrong = person.send(
        &page,
        &format!("/jobs/{id}/edit"),
        &[("args", "{not json"), ("priority", "8")],
    );
    assert_eq!(wrong.status, 422);
    assert!(wrong.text().contains("{not json"), "what was typed is kept");
    assert_eq!(value(&format!("select priority from jobs.jobs where id = {id}")), 7);
}

#[test]
fn who_was_too_late_is_told() {
    let console = Console::start(&[]);
    let id = insert("too late", LATER);
    let path = format!("/jobs/{id}");
    let mut person = console.person("operator");
    let page = person.page(&path);
    run(&format!("select jobs.delete({id})"));
    let answer = person.send(&page, &format!("{path}/cancel"), &[]);
    let said = person.follow(&answer).text();
    assert!(said.contains(&format!("Job {id} no longer exists")), "{said}");

    let id = insert("too late", "pending => true");
    let path = format!("/jobs/{id}");
    let page = person.page(&path);
    run(&format!("select jobs.activate({id})"));
    let answer = person.send(&page, &format!("{path}/activate"), &[]);
    let said = person.follow(&answer).text();
    assert!(said.contains("Nothing changed"), "{said}");
}

#[test]
fn a_queue_is_paused_and_goes_on() {
    let console = Console::start(&[]);
    insert("paused / here", LATER);
    let mut person = console.person("operator");
    let path = "/queue?name=paused+%2F+here";
    let page = act(&mut person, path, "/queue/pause", &[("reason", "a new server")]);
    let paused =
        "select paused, paused_by, pause_reason from jobs.queues where queue = 'paused / here'";
    assert_eq!(
        sql(paused)[0],
        json!({ "paused": true, "paused_by": "operator", "pause_reason": "a new server" })
    );
    assert!(
        page.text().contains("a new server") && page.text().contains("operator"),
        "{}",
        page.text()
    );
    act(&mut person, path, "/queue/resume", &[]);
    assert_eq!(sql(paused)[0]["paused"], false);
}

#[test]
fn limits_are_set_and_wrong_ones_are_kept_in_the_form() {
    let console = Console::start(&[]);
    insert("limited", LATER);
    let mut person = console.person("admin");
    let path = "/queue?name=limited";
    act(
        &mut person,
        path,
        "/queue/limits",
        &[
            ("concurrency", "7"),
            ("rate", "60"),
            ("rate_period", "1 minute"),
            ("retention_completed", "2 hours"),
        ],
    );
    let limits = "select concurrency, rate, rate_period::text, retention_completed::text, max_waiting from jobs.queues where queue = 'limited'";
    let set = json!({ "concurrency": 7, "rate": 60, "rate_period": "00:01:00", "retention_completed": "02:00:00", "max_waiting": null });
    assert_eq!(sql(limits)[0], set);
    let page = person.page(path);
    let wrong = person.send(&page, "/queue/limits", &[("concurrency", "none at all")]);
    assert_eq!(wrong.status, 422);
    assert!(wrong.body.contains("none at all"), "what was typed is kept");
    // Postgres quotes what is no interval, and names no field.
    let wrong = person.send(&page, "/queue/limits", &[("retention_cancelled", "soon")]);
    assert_eq!(wrong.status, 422);
    assert!(wrong.body.contains("id=\"retention_cancelled-wrong\""), "{}", wrong.body);
    let wrong = person.send(&page, "/queue/limits", &[("concurrency", "0")]);
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    assert_eq!(sql(limits)[0], set);
    act(&mut person, path, "/queue/reset", &[]);
    assert_eq!(sql(limits)[0]["concurrency"], Value::Null);
}

#[test]
fn limits_that_somebody_else_has_set_meanwhile_are_not_replaced_unseen() {
    let console = Console::start(&[]);
    run("select jobs.configure_queue('limited twice', concurrency => 3)");
    let mut person = console.person("admin");
    let page = person.page("/queue?name=limited+twice");
    run("select jobs.configure_queue('limited twice', concurrency => 5, max_waiting => 100)");
    let late = person.send(&page, "/queue/limits", &[("concurrency", "4")]);
    assert_eq!(late.status, 422);
    let limits = "select concurrency, max_waiting from jobs.queues where queue = 'limited twice'";
    let others = json!({ "concurrency": 5, "max_waiting": 100 });
    assert_eq!(sql(limits)[0], others);
    assert!(late.text().contains("is now 5"), "{}", late.text());
    assert!(late.body.contains("id=\"concurrency-wrong\""));
    // After reading it a person can replace it, and fields left alone keep what others have set.
    let done = person.send(&late, "/queue/limits", &[]);
    person.follow(&done);
    let own = json!({ "concurrency": 4, "max_waiting": 100 });
    assert_eq!(sql(limits)[0], own);
}

#[test]
fn a_limit_and_its_keys_are_changed_and_dropped() {
    let console = Console::start(&[]);
    run("select jobs.define_limit('by tenant', '{\"by_args\": [\"t\"]}', '{by tenant}', concurrency => 1),
                jobs.insert('k', '{\"t\": \"swordfish\"}', queue => 'by tenant'), jobs.insert('k', '{\"t\": \"swordfish\"}', queue => 'by tenant');
         select jobs.fetch('by tenant', 2, lease => '1 hour')");
    let (path, mut person) = ("/limit?name=by+tenant", console.person("application"));
    let page = person.page(path);
    assert!(page.text().contains("swordfish"), "{}", page.text());
    let hidden = console.person("viewer").page(path);
    assert!(!hidden.text().contains("swordfish") && hidden.text().contains("Not visible"));
    assert!(hidden.text().contains("At most 1 running"), "{}", hidden.text());
    assert!(!hidden.has_form("/limit/set") && !hidden.has_form("/limit/pause"));

    let rate = [("rate", "60"), ("rate_period", "1 minute")];
    act(&mut person, path, "/limit/set", &rate);
    let limit = "select concurrency, rate, rate_period::text, queues, held, paused_by, pause_reason from jobs.limits where name = 'by tenant'";
    let set = json!({ "concurrency": 1, "rate": 60, "rate_period": "00:01:00", "queues": ["by tenant"], "held": 1, "paused_by": null, "pause_reason": null });
    assert_eq!(sql(limit)[0], set);
    let page = person.page(path);
    let wrong = person.send(&page, "/limit/set", &[("concurrency", "0")]);
    assert!(
        wrong.status == 422 && wrong.body.contains("id=\"concurrency-wrong\""),
        "{}",
        wrong.text()
    );
    assert_eq!(sql(limit)[0], set);

    let key = "/limit/key?name=by+tenant&key=%7B%22args%22%3A+%7B%22t%22%3A+%22swordfish%22%7D%7D";
    act(&mut person, key, "/limit/override", &[("concurrency", "5"), ("reason", "larger")]);
    act(&mut person, key, "/limit/pause", &[("reason", "unpaid")]);
    let keys = "select concurrency, rate, overridden, paused_at is not null as paused from jobs.limit_keys where name = 'by tenant'";
    let own = json!({ "concurrency": 5, "rate": null, "overridden": true, "paused": true });
    assert_eq!(sql(keys)[0], own);
    act(&mut person, key, "/limit/override", &[("concurrency", "")]);
    act(&mut person, key, "/limit/resume", &[]);
    let others = json!({ "concurrency": 1, "rate": 60, "overridden": false, "paused": false });
    assert_eq!(sql(keys)[0], others);
    let page = person.page("/limit/key?name=by+tenant");
    let wrong = person.send(&page, "/limit/override", &[("key", "acme"), ("rate", "1")]);
    assert_eq!(wrong.status, 422, "{}", wrong.text());

    let mut operator = console.person("operator");
    let page = act(&mut operator, path, "/limit/pause", &[("reason", "an outage")]);
    assert!(page.text().contains("an outage") && !page.has_form("/limit/set"), "{}", page.text());
    act(&mut operator, path, "/limit/resume", &[]);
    act(&mut person, path, "/limit/drop", &[("reason", "not needed")]);
    assert!(sql(limit).is_empty());
    assert_eq!(person.get(path).status, 404);
}

#[test]
fn an_order_is_set_changed_and_removed_and_its_keys_are_unblocked() {
    let console = Console::start(&[]);
    run(
        "select count(jobs.insert('k', '{\"t\": \"swordfish\"}', queue => 'in order', max_attempts => 1)) from generate_series(1, 3)",
    );
    let (path, mut person) = ("/order?name=in+order", console.person("application"));
    let page = person.page("/queue?name=in+order");
    assert!(page.text().contains("Set an order"), "{}", page.text());
    let strict = [
        ("by", "{\"by_args\": [\"t\"]}"),
        ("strict", "true"),
        ("on_discard", "block"),
        ("reason", "sync"),
    ];
    act(&mut person, path, "/order/set", &strict);
    assert_eq!(audited("in order")["action"], "order_queue");
    let order = "select strict, on_discard, fair, weights, waiting_keys, blocked_keys from jobs.orders where queue = 'in order'";
    let set = json!({ "strict": true, "on_discard": "block", "fair": false, "weights": null, "waiting_keys": 1, "blocked_keys": 0 });
    assert_eq!(sql(order)[0], set);

    // What is wrong is said beside its field, and nothing changes.
    let page = person.page(path);
    for (field, value) in [("weights", "{\"swordfish\": 0}"), ("by", "{}")] {
        let fields = [("fair", "true"), (field, value)];
        let wrong = person.send(&page, "/order/set", &fields);
        let is_beside = wrong.body.contains(&format!("id=\"{field}-wrong\""));
        assert!(wrong.status == 422 && is_beside, "{}", wrong.text());
    }
    run(
        "select jobs.order_queue('in order', '{\"by_args\": [\"t\"]}', strict => true, on_discard => 'block', fair => true)",
    );
    let late = person.send(&page, "/order/set", &[("fair", "true"), ("strict", "false")]);
    assert!(
        late.status == 422 && late.text().contains("changed by someone else"),
        "{}",
        late.text()
    );
    act(&mut person, path, "/order/set", &[("weights", "{\"swordfish\": 3}")]);

    run("select jobs.fail(id, token, 'no') from jobs.fetch('in order')");
    let page = person.page(path);
    assert!(
        page.text().contains("swordfish") && page.text().contains("blocked by"),
        "{}",
        page.text()
    );
    for list in ["/limits", "/queue?name=in+order"] {
        let text = person.page(list).text();
        assert!(text.contains("Strict and fair by"), "{list}: {text}");
    }
    let hidden = console.person("viewer").page(path);
    assert!(!hidden.text().contains("swordfish") && hidden.text().contains("Not visible"));
    assert!(!hidden.has_form("/order/set") && !hidden.has_form("/order/unblock"));
    assert!(!hidden.has_form("/order/remove"));
    let mut operator = console.person("operator");
    assert!(!operator.page(path).has_form("/order/set"));
    let page = act(&mut operator, path, "/order/unblock", &[("reason", "corrected")]);
    assert!(page.text().contains("is unblocked.") && !page.has_form("/order/unblock"));
    assert_eq!(audited("in order")["action"], "unblock");

    act(&mut person, path, "/order/remove", &[("reason", "not needed")]);
    assert!(sql(order).is_empty());
    assert!(person.page(path).has_form("/order/set"), "it can be set again");
}

#[test]
fn a_worker_is_quiet_until_it_is_resumed() {
    let console = Console::start(&[]);
    run("select jobs.worker_beat('commanded', '{limited}', 3)");
    let mut person = console.person("operator");
    let path = "/worker?name=commanded";
    let command = || value("select command from jobs.workers where worker = 'commanded'");
    act(&mut person, path, "/worker/quiet", &[("reason", "its disk")]);
    assert_eq!(command(), "quiet");
    act(&mut person, path, "/worker/stop", &[]);
    assert_eq!(command(), "stop");
    act(&mut person, path, "/worker/resume", &[]);
    assert_eq!(command(), Value::Null);
}

#[test]
fn a_periodic_job_is_paused_and_run_now() {
    let console = Console::start(&[]);
    run("select from jobs.schedule('by hand', '@yearly', 'by.hand', queue => 'by hand')");
    let path = "/periodic/job?name=by+hand";
    let mut operator = console.person("operator");
    act(&mut operator, path, "/periodic/pause", &[("reason", "holidays")]);
    let page = operator.page(path);
    assert!(page.text().contains("holidays"), "{}", page.text());
    assert!(!page.has_form("/periodic/run"), "an operator inserts no jobs");
    act(&mut operator, path, "/periodic/resume", &[]);
    act(&mut console.person("application"), path, "/periodic/run", &[]);
    assert_eq!(value("select count(*) from jobs.jobs where kind = 'by.hand'"), 1);
}

#[test]
fn many_jobs_are_those_of_the_preview() {
    let console = Console::start(&[]);
    run(&format!(
        "select jobs.insert('in.bulk', queue => 'in bulk', {LATER}) from generate_series(1, 25);
         select jobs.insert('another', queue => 'in bulk', {LATER}) from generate_series(1, 3)"
    ));
    let mut person = console.person("admin");
    for (action, state) in [("cancel", "cancelled"), ("retry", "available"), ("delete", "")] {
        let path = format!("/bulk?do={action}&whole=yes&queue=in+bulk&kind=in.bulk");
        let preview = person.page(&path);
        assert!(preview.text().contains("25"), "{action}: {}", preview.text());
        let done = person.send(&preview, "/bulk", &[]);
        let page = person.follow(&done);
        assert!(page.text().contains("25 jobs"), "{action}: {}", page.text());
        let count = value(&format!(
            "select count(*) from jobs.jobs where kind = 'in.bulk' and state::text = '{state}'"
        ));
        assert_eq!(count, if action == "delete" { 0 } else { 25 }, "{action}");
    }
    assert_eq!(
        value("select count(*) from jobs.jobs where kind = 'another' and state = 'scheduled'"),
        3
    );
    for path in ["/bulk?do=delete", "/bulk?do=retry", "/bulk?do=cancel&queue="] {
        let page = person.get(path);
        assert!(
            !page.has_form("/bulk") || page.status == 422,
            "{path}: no filter means no jobs, not all"
        );
    }
}
