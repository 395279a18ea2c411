//! Many jobs in one call: their attempts end together, whoever else is at them, and fetches want
//! several jobs or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jobs_tests::{
    Client, Cluster, LEVELS, blocked, comes_true, count, is, number, quiet, rng, rows_of, run,
    sqlstate, state, with,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// What a worker holds of a job.
type Lease = (i64, i64);

async fn fetch(db: &Client, more: &str) -> Vec<Lease> {
    let sql = format!("select id, token from jobs.fetch({more})");
    let rows = rows_of(db, &sql).await;
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// A result, which has this beside id and token.
fn result((id, token): Lease, more: Value) -> Value {
    let mut result = more;
    (result["id"], result["token"]) = (json!(id), json!(token));
    result
}

/// What a call says of each job: its state, whether that is done, and why not.
async fn finish_many(
    db: &Client,
    results: &[Value],
) -> Result<Vec<(i64, String)>, tokio_postgres::Error> {
    let sql = "select id, concat_ws(' ', state, done, reason) from jobs.finish_many($1::text::jsonb) order by ord";
    let rows = db.query(sql, &[&json!(results).to_string()]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// The calls go to the tables themselves, then by statements, since something is attached to them.
async fn directly_and_by_statements(db: &Client, mut check: impl AsyncFnMut(&str)) {
    check("directly").await;
    run(db, "create function public.nothing() returns trigger language plpgsql as $$ begin return coalesce(new, old); end $$;
         create trigger nothing before insert or update or delete on jobs.running for each row execute function public.nothing();
         create trigger nothing before insert or update or delete on jobs.scheduled for each row execute function public.nothing()").await;
    check("by statements").await;
}

/// A server where results wait for as long as a session has their jobs locked.
fn patient() -> Cluster {
    Cluster::builder().faults("patient").set("jobs.enabled", "off").start()
}

/// Waits until a call waits for who has a job locked.
async fn waits(db: &Client) {
    let waits = "exists (select from pg_stat_activity where query like '%finish_many%' and wait_event_type = 'Extension')";
    comes_true(db, waits).await;
}

/// The token is of a fetch that commits while another one of the jobs is waited for.
#[tokio::test]
async fn attempts_end_whose_tokens_are_current_when_the_call_answers() {
    let cluster = patient();
    let db = cluster.database("late").await;
    let (worker, other) = (cluster.connect("late").await, cluster.connect("late").await);
    directly_and_by_statements(&db, async |way| {
        for (what, became) in [
            (json!({"do": "complete"}), "completed t"),
            (json!({"do": "fail", "error": "e", "retry_in": 3600}), "retryable t"),
            (json!({"do": "snooze", "delay": 3600}), "scheduled t"),
        ] {
            run(&db, "select jobs.insert_batch('k', '{1,2}')").await;
            let first = fetch(&worker, "").await[0];
            run(&worker, &format!("begin; select jobs.complete({}, {})", first.0, first.1)).await;
            let second = fetch(&worker, "").await[0];
            let results = [result(second, what.clone()), result(first, json!({"do": "complete"}))];
            let (told, ()) = tokio::join!(finish_many(&other, &results), async {
                waits(&db).await;
                run(&worker, "commit").await;
            });
            let expected = [(second.0, became.to_string()), (first.0, "completed t".to_string())];
            assert_eq!(told.unwrap(), expected, "{way}");
        }
    })
    .await;
}

/// Another transaction has two of five jobs locked, and stays open. All else is stored, and the two
/// are as they were: their results can be sent again.
#[tokio::test]
async fn a_result_whose_job_stays_locked_keeps_no_other_one_waiting() {
    let (cluster, db) = quiet("locked").await;
    let holder = cluster.connect("locked").await;
    let caller = cluster.connect("locked").await;
    directly_and_by_statements(&db, async |way| {
        for (n, level) in LEVELS.into_iter().enumerate() {
            let queue = format!("{way}, {level}");
            run(
                &db,
                &format!("select jobs.insert_batch('k', '{{1,2,3,4,5}}', queue => '{queue}')"),
            )
            .await;
            let held = fetch(&db, &format!("'{queue}', 5")).await;
            let becomes = [
                (json!({"do": "complete"}), "completed"),
                (json!({"do": "fail", "error": "e", "retry_in": 3600}), "retryable"),
                (json!({"do": "snooze", "delay": 3600}), "scheduled"),
                (json!({"do": "release"}), "available"),
                (json!({"do": "cancel"}), "cancelled"),
            ];
            let results = held.iter().zip(&becomes);
            let mut results: Vec<Value> =
                results.map(|(lease, (what, _))| result(*lease, what.clone())).collect();
            // One row is changed, the other one is deleted.
            let locked = [n, n + 2];
            let [changed, gone] = locked.map(|n| held[n]);
            run(
                &holder,
                &format!(
                    "begin; select jobs.cancel({}), jobs.complete({}, {})",
                    changed.0, gone.0, gone.1
                ),
            )
            .await;
            // Said twice: the second one does not count in place of the first.
            results.push(result(changed, json!({"do": "release"})));
            run(&caller, &format!("begin isolation level {level}")).await;
            let begun = Instant::now();
            let told = finish_many(&caller, &results).await.expect(&queue);
            let took = begun.elapsed();
            run(&caller, "commit").await;
            let mut expected = Vec::new();
            for (n, (lease, (_, became))) in held.iter().zip(&becomes).enumerate() {
                let (is, said) = match locked.contains(&n) {
                    true => ("running", "running f locked".to_string()),
                    false => (*became, format!("{became} t")),
                };
                assert_eq!(state(&db, lease.0).await.as_deref(), Some(is), "{queue}");
                expected.push((lease.0, said));
            }
            expected.push((changed.0, "running f locked".to_string()));
            assert_eq!(told, expected, "{queue}");
            // Who has a job locked for less is waited for.
            assert!(took >= Duration::from_secs(1), "{queue}: {took:?}");
            run(&holder, "rollback").await;
            let again = locked.map(|n| results[n].clone());
            let told = finish_many(&caller, &again).await.expect(&queue);
            let done = locked.map(|n| (held[n].0, format!("{} t", becomes[n].1)));
            assert_eq!(told, done, "{queue}");
        }
    })
    .await;
}

/// Its job stays locked, and the call would wait for longer than a statement may take.
#[tokio::test]
async fn a_result_whose_job_is_locked_is_told_within_the_statement_timeout() {
    let cluster = patient();
    let db = cluster.database("timeout").await;
    let holder = cluster.connect("timeout").await;
    let caller = cluster.connect("timeout").await;
    run(&caller, "set statement_timeout = '4s'").await;
    directly_and_by_statements(&db, async |way| {
        run(&db, "select jobs.insert_batch('k', '{1,2}')").await;
        let held = fetch(&db, "max_jobs => 2").await;
        let results = [0, 1].map(|n| result(held[n], json!({"do": "complete"})));
        run(&holder, &format!("begin; select jobs.cancel({})", held[0].0)).await;
        let told = finish_many(&caller, &results).await.expect(way);
        let expected =
            [(held[0].0, "running f locked".to_string()), (held[1].0, "completed t".to_string())];
        assert_eq!(told, expected, "{way}");
        run(&holder, "commit").await;
    })
    .await;
}

/// The other transaction ends while its job is waited for.
#[tokio::test]
async fn a_result_is_stored_whose_job_is_unlocked_in_time() {
    let cluster = patient();
    let db = cluster.database("in_time").await;
    let holder = cluster.connect("in_time").await;
    let caller = cluster.connect("in_time").await;
    directly_and_by_statements(&db, async |way| {
        for (n, level) in LEVELS.into_iter().enumerate() {
            for end in ["rollback", "commit"] {
                let what = format!("{way}, {level}, {end}");
                run(&db, "select jobs.insert_batch('k', '{1,2}')").await;
                let held = fetch(&db, "max_jobs => 2").await;
                let results =
                    [&held[0], &held[1]].map(|lease| result(*lease, json!({"do": "complete"})));
                run(&holder, &format!("begin; select jobs.cancel({})", held[0].0)).await;
                run(&caller, &format!("begin isolation level {level}")).await;
                let (told, ()) = tokio::join!(finish_many(&caller, &results), async {
                    waits(&db).await;
                    run(&holder, end).await;
                });
                if n > 0 && end == "commit" {
                    // The job has changed since the transaction began.
                    assert_eq!(sqlstate(told), "40001", "{what}");
                    run(&caller, "rollback").await;
                    finish_many(&caller, &results).await.expect(&what);
                } else {
                    let done = held.iter().map(|lease| (lease.0, "completed t".to_string()));
                    assert_eq!(told.expect(&what), done.collect::<Vec<_>>(), "{what}");
                    run(&caller, "commit").await;
                }
            }
        }
    })
    .await;
}

/// Locks a job in a transaction that stays open.
async fn lock(holder: &Client, lease: Lease) {
    let sql = format!("begin; select from jobs.running where job_id = {} for update", lease.0);
    run(holder, &sql).await;
}

/// A call that cancels many has the first of three jobs locked, and waits for the second, when
/// results for all of them come. Those do not lock the third one, which that call is yet to lock.
#[tokio::test]
async fn results_wait_for_a_job_before_they_lock_the_next_one() {
    let cluster = patient();
    let db = cluster.database("order").await;
    let holder = cluster.connect("order").await;
    let canceller = cluster.connect("order").await;
    let caller = cluster.connect("order").await;
    directly_and_by_statements(&db, async |way| {
        for (n, level) in LEVELS.into_iter().enumerate() {
            let queue = format!("{way}, {level}");
            run(&db, &format!("select jobs.insert_batch('k', '{{1,2,3}}', queue => '{queue}')")).await;
            let held = fetch(&db, &format!("'{queue}', 3")).await;
            let completes = held.iter().rev();
            let results: Vec<Value> = completes
                .map(|lease| result(*lease, json!({"do": "complete"})))
                .collect();
            lock(&holder, held[1]).await;
            run(&caller, &format!("begin isolation level {level}")).await;
            let cancel = format!("select jobs.cancel_many('{queue}')");
            let (cancelled, told, ()) = tokio::join!(
                number(&canceller, &cancel),
                async {
                    blocked(&db, 1).await;
                    finish_many(&caller, &results).await
                },
                async {
                    waits(&db).await;
                    run(&holder, "rollback").await;
                    let is_over = "not exists (select from pg_stat_activity where query like '%cancel_many%' and state = 'active' and pid <> pg_backend_pid())";
                    comes_true(&db, is_over).await;
                }
            );
            assert_eq!(cancelled, 3, "{queue}");
            if n > 0 {
                // The jobs have changed since the transaction began.
                assert_eq!(sqlstate(told), "40001", "{queue}");
                run(&caller, "rollback").await;
            } else {
                let done = held.iter().rev();
                let done = done.map(|lease| (lease.0, "completed t".to_string()));
                assert_eq!(told.expect(&queue), done.collect::<Vec<_>>(), "{queue}");
                run(&caller, "commit").await;
            }
        }
    })
    .await;
}

/// A call waits for who has the job locked, and who only then asks to cancel it.
#[tokio::test]
async fn a_job_is_final_no_earlier_than_its_cancel_request() {
    let cluster = patient();
    let db = cluster.database("clock").await;
    let holder = cluster.connect("clock").await;
    let caller = cluster.connect("clock").await;
    directly_and_by_statements(&db, async |way| {
        for call in [
            "complete(id, token)",
            "complete_many(array[id], array[token])",
            "finish_many(jsonb_build_array(jsonb_build_object('id', id, 'token', token, 'do', 'complete')))",
            "fail(id, token, 'e')",
            "release(id, token)",
        ] {
            run(&db, "select jobs.insert('k', '{}')").await;
            let (id, token) = fetch(&db, "").await[0];
            lock(&holder, (id, token)).await;
            let finish = format!("select jobs.{call} from (values ({id}, {token})) v (id, token)");
            tokio::join!(run(&caller, &finish), async {
                let waits = format!("exists (select from pg_stat_activity where query like '%({id}, {token})%' and wait_event_type in ('Lock', 'Extension'))");
                comes_true(&db, &waits).await;
                run(&holder, &format!("select jobs.cancel({id}); commit")).await;
            });
            let is_later = format!("(select cancel_requested_at <= finalized_at from jobs.jobs where id = {id})");
            assert!(is(&db, &is_later).await, "{way}: {call}");
        }
    })
    .await;
}

/// What a worker says of a job, and whether it is final then.
fn random_result(lease: Lease, rng: &mut StdRng) -> (Value, bool) {
    let (more, is_final) = match rng.random_range(0..8) {
        0..3 => (json!({"do": "complete", "output": {"of": lease.0}}), true),
        3 => (json!({"do": "fail", "error": "e", "retryable": false}), true),
        4 => (json!({"do": "fail", "error": "e", "retry_in": 0}), false),
        5 => (json!({"do": "fail", "error": "e", "retry_in": "1 ms"}), false),
        6 => (json!({"do": "snooze", "delay": 0.001}), false),
        _ => (json!({"do": "release"}), false),
    };
    (result(lease, more), is_final)
}

/// Ends attempts until no job is left, saying now and then what it has said before; what it has
/// finally said of which job.
async fn work(client: Client, mut rng: StdRng, over: Arc<AtomicBool>) -> BTreeMap<i64, String> {
    let mut said = BTreeMap::new();
    let mut before: Vec<Value> = Vec::new();
    let mut known = BTreeSet::new();
    while !over.load(Ordering::Relaxed) {
        let held = fetch(&client, "max_jobs => 10, lease => '1 hour'").await;
        let mut ends: BTreeMap<i64, bool> = BTreeMap::new();
        let mut results = Vec::new();
        for lease in held {
            let (result, is_final) = random_result(lease, &mut rng);
            results.push(result);
            ends.insert(lease.0, is_final);
        }
        let old = before.len().min(rng.random_range(0..3));
        let latest: Vec<Value> = before[before.len() - old..].to_vec();
        for result in latest {
            results.insert(rng.random_range(0..=results.len()), result);
        }
        // Heartbeats for them all, or a cancel request, may be in the way, and are waited for.
        let told = finish_many(&client, &results).await.expect("no deadlock");
        assert_eq!(told.len(), results.len());
        for ((id, told), result) in told.iter().zip(&results) {
            assert_eq!(result["id"], json!(id), "in order");
            // What was said before is answered as the first time.
            assert!(told.ends_with(" t"), "{result}: {told}");
            if !known.insert(result.to_string()) {
                continue;
            }
            let state = told.strip_suffix(" t").unwrap().to_string();
            let is_final = matches!(state.as_str(), "completed" | "discarded" | "cancelled");
            assert_eq!(is_final, ends[id] || state == "cancelled", "{result}: {told}");
            if is_final {
                assert_eq!(said.insert(*id, state), None, "twice: {result}");
            }
        }
        before.extend(results);
    }
    said
}

/// Eight workers end whatever they get in whichever way, while others send heartbeats for all jobs
/// and ask to cancel some. Each job ends once, as its worker was told, and there is no deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn each_job_ends_once_as_its_worker_was_told() {
    let cluster = patient();
    let db = cluster.database("workers").await;
    let mut rng = rng();
    run(&db, "select jobs.configure_queue('default', concurrency => 60);
         select from jobs.insert_batch('k', array(select to_jsonb(n) from generate_series(1, 1500) n), max_attempts => 1000)").await;
    let over = Arc::new(AtomicBool::new(false));
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let client = cluster.connect("workers").await;
        let rng = StdRng::seed_from_u64(rng.random());
        sessions.push(tokio::spawn(work(client, rng, over.clone())));
    }
    let left = "not exists (select from jobs.jobs where state not in ('completed', 'discarded', 'cancelled'))";
    let mut rounds = 0;
    while !is(&db, left).await {
        rounds += 1;
        for sql in [
            // In whatever order they are given: tokens are random.
            "select from (select array_agg(id order by token) as ids, array_agg(token order by token) as tokens from jobs.jobs where state = 'running') r, jobs.heartbeat_many(coalesce(ids, '{}'), coalesce(tokens, '{}'))",
            "select jobs.cancel(max(id)) from jobs.jobs where state = 'running' having count(*) > 0",
        ] {
            if sql.contains("cancel") && rounds % 10 > 0 {
                continue;
            }
            run(&db, sql).await;
        }
    }
    over.store(true, Ordering::Relaxed);
    let mut said = BTreeMap::new();
    for session in sessions {
        for (id, state) in session.await.expect("every call was told the truth") {
            assert_eq!(said.insert(id, state), None, "{id} ended twice");
        }
    }
    // Who asks may be the one that cancels a job, where that has just been given back.
    let rows = rows_of(&db, "select id, state::text from jobs.jobs").await;
    assert_eq!(rows.len(), 1500);
    for row in rows {
        let (id, state): (i64, String) = (row.get(0), row.get(1));
        match said.get(&id) {
            Some(told) => assert_eq!(*told, state, "{id}"),
            None => assert_eq!(state, "cancelled", "{id}"),
        }
    }
    assert!(said.len() > 1000);
    let wrong = "select count(*) from jobs.jobs where state = 'completed' and (output ->> 'of')::bigint is distinct from id";
    assert_eq!(number(&db, wrong).await, 0, "outputs are those of their jobs");
    assert_eq!(count(&db, "jobs.check()").await, 0);
    let slots = "select count(*) from jobs.queue_slot where job_id is not null";
    assert_eq!(number(&db, slots).await, 0, "every slot is free");
}

/// How many jobs fetches want at least.
const LEAST: usize = 10;
/// For how long the first one may wait for others, in microseconds.
const LINGER: i64 = 20_000;

/// A moment, in microseconds.
fn micros(at: &str) -> String {
    format!("(extract(epoch from {at}) * 1000000)::bigint")
}

/// What the server's clock says.
async fn clock(db: &Client) -> i64 {
    number(db, &format!("select {}", micros("clock_timestamp()"))).await
}

/// A fetch that got nothing.
#[derive(Debug)]
struct InVain {
    lingers: bool,
    /// A time at or before the start of the fetch.
    began: i64,
    /// A time at or after the end of the fetch.
    ended: i64,
}

/// A job that was fetched.
struct Fetched {
    id: i64,
    /// The time at which the job was due.
    since: i64,
    /// The job was scheduled, so its activation may not have been committed yet.
    was_due: bool,
    at: i64,
    /// The number of jobs in the fetch.
    among: usize,
    /// The earliest `since` of the jobs in the fetch.
    first: i64,
}

/// What fetches got, all times by the server's clock.
#[derive(Default)]
struct Record {
    in_vain: Vec<InVain>,
    fetched: Vec<Fetched>,
    /// The latest possible commit time per job.
    committed: BTreeMap<i64, i64>,
}

impl Record {
    /// How many jobs were fetched with fewer than wanted before one of those had waited for so
    /// long.
    fn early(&self, linger: i64) -> usize {
        let is_early = |job: &&Fetched| job.among < LEAST && job.first + linger > job.at;
        self.fetched.iter().filter(is_early).count()
    }

    /// The fetches that got nothing although enough jobs were there, from before they began until
    /// after they ended, or one that had waited for so long.
    fn late(&self, linger: i64) -> Vec<&InVain> {
        let is_late = |look: &&InVain| {
            let was_there = |job: &&Fetched| {
                let since = self.committed[&job.id].max(job.since);
                !job.was_due && since <= look.began && job.at > look.ended
            };
            let there = || self.fetched.iter().filter(was_there);
            let has_waited = |job: &Fetched| look.lingers && job.since + linger <= look.began;
            there().count() >= LEAST || there().any(has_waited)
        };
        self.in_vain.iter().filter(is_late).collect()
    }
}

/// Fetches and completes, until all is over.
async fn fetch_at_least(db: Client, most: usize, lingers: bool, over: Arc<AtomicBool>) -> Record {
    let linger = match lingers {
        true => format!(", linger => '{LINGER} us'"),
        false => String::new(),
    };
    let sql = format!(
        "select id, token, {}, {}, scheduled_at > created_at from jobs.fetch(max_jobs => {most}, min_jobs => {LEAST}{linger})",
        micros("greatest(created_at, scheduled_at)"),
        micros("attempted_at")
    );
    let mut record = Record::default();
    let mut began = clock(&db).await;
    while !over.load(Ordering::Relaxed) {
        let rows = rows_of(&db, &sql).await;
        let ended = clock(&db).await;
        let among = rows.len();
        assert!(among <= most, "{among} jobs");
        if among == 0 {
            record.in_vain.push(InVain { lingers, began, ended });
        } else {
            assert!(lingers || among >= LEAST, "{among} jobs");
            let first = rows.iter().map(|row| row.get(2)).min().unwrap();
            record.fetched.extend(rows.iter().map(|row| Fetched {
                id: row.get(0),
                since: row.get(2),
                at: row.get(3),
                was_due: row.get(4),
                among,
                first,
            }));
            let leases = rows.iter().map(|row| (row.get(0), row.get(1)));
            let results: Vec<Value> =
                leases.map(|lease| result(lease, json!({"do": "complete"}))).collect();
            finish_many(&db, &results).await.unwrap();
        }
        began = ended;
    }
    record
}

/// Sixteen workers want ten jobs or none. Half of them take fewer once one has waited for long
/// enough: not before, and then at once.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_fewer_jobs_than_he_asks_for_before_the_time_nor_none_after_it() {
    let (cluster, db) = quiet("fewer").await;
    let mut rng = rng();
    let mut record = Record::default();
    let insert = async |record: &mut Record, count: i64, when: &str| {
        let sql = format!(
            "select id from jobs.insert_batch('k', array_fill('{{}}'::jsonb, array[{count}]), scheduled_at => {when})"
        );
        let rows = rows_of(&db, &sql).await;
        let at = clock(&db).await;
        let committed = rows.iter().map(|row| (row.get(0), at));
        record.committed.extend(committed);
    };
    let all_are_completed = async || {
        let left = "not exists (select from jobs.jobs where state <> 'completed')";
        while !is(&db, left).await {}
    };
    // For the controls: few jobs, which nobody gets who wants to wait for longer, and then somebody
    // does.
    insert(&mut record, 3, "null").await;
    let began = clock(&db).await;
    let hour = format!("max_jobs => 10, min_jobs => {LEAST}, linger => '1 hour'");
    assert_eq!(fetch(&db, &hour).await, []);
    let waits_for_longer = InVain { lingers: true, began, ended: clock(&db).await };
    let over = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for n in 0..16 {
        let client = cluster.connect("fewer").await;
        // Some take more than they need.
        let most = if n % 4 < 2 { 25 } else { LEAST };
        workers.push(tokio::spawn(fetch_at_least(client, most, n % 2 == 0, over.clone())));
    }
    all_are_completed().await;
    for _ in 0..150 {
        let when = match rng.random_bool(0.3) {
            true => "clock_timestamp() + '1 ms'",
            false => "null",
        };
        insert(&mut record, rng.random_range(1..=12), when).await;
        let pause = rng.random_range(0..LINGER as u64 * 3 / 2);
        tokio::time::sleep(Duration::from_micros(pause)).await;
    }
    all_are_completed().await;
    over.store(true, Ordering::Relaxed);
    for worker in workers {
        let of_one = worker.await.expect("nobody got fewer");
        record.in_vain.extend(of_one.in_vain);
        record.fetched.extend(of_one.fetched);
    }
    assert_eq!(record.fetched.len(), record.committed.len());
    println!("{} in vain", record.in_vain.len());
    assert_eq!(record.early(LINGER), 0);
    let late = record.late(LINGER);
    assert!(late.is_empty(), "{late:?}");
    assert_ne!(record.early(3600 * 1_000_000), 0, "control: it was early");
    record.in_vain.push(waits_for_longer);
    assert_ne!(record.late(0).len(), 0, "control: it was late");
}

/// How often a fetch whose time has come got fewer jobs than may start, while others beside it take
/// what turns out to be too little for them: their queue may run seven jobs, and they want ten.
async fn late_fetches(fault: &str) -> i32 {
    let cluster = Cluster::builder().faults(fault).set("jobs.enabled", "off").start();
    let db = cluster.database("late").await;
    run(
        &db,
        "select jobs.configure_queue('default', concurrency => 7);
         select from jobs.insert_batch('k', array_fill('{}'::jsonb, array[100]))",
    )
    .await;
    let over = Arc::new(AtomicBool::new(false));
    let mut others = Vec::new();
    for _ in 0..15 {
        let client = cluster.connect("late").await;
        let over = over.clone();
        others.push(tokio::spawn(async move {
            let fetch_more = "max_jobs => 20, min_jobs => 10, linger => '1 hour'";
            while !over.load(Ordering::Relaxed) {
                assert_eq!(fetch(&client, fetch_more).await, []);
            }
        }));
    }
    let mut late = 0;
    for _ in 0..300 {
        let held = fetch(&db, "max_jobs => 20, min_jobs => 10, linger => '0'").await;
        late += i32::from(held.len() < 7);
        let results: Vec<Value> =
            held.into_iter().map(|lease| result(lease, json!({"do": "release"}))).collect();
        finish_many(&db, &results).await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for other in others {
        other.await.expect("nobody got fewer than ten");
    }
    late
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_time_has_come_gets_what_may_start() {
    assert_eq!(late_fetches("").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn control_out_of_turn_somebody_is_late() {
    assert!(late_fetches("out_of_turn").await > 0);
}

#[tokio::test]
async fn a_fetch_of_several_jobs_from_many_queues_takes_few_locks() {
    let (_cluster, db) = with(
        "queues",
        &[("jobs.enabled", "off"), ("max_connections", "10"), ("max_locks_per_transaction", "10")],
    )
    .await;
    run(&db, "select jobs.insert('k', queue => 'q' || n) from unnest('{1,9999}'::int[]) n").await;
    let fetch = "select count(*) from jobs.fetch_any((select array_agg('q' || n) from generate_series(1, 10000) n), 10, min_jobs => 2)";
    assert_eq!(number(&db, fetch).await, 2);
}
