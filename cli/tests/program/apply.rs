//! `pgjobs apply`, with two cells.

use std::fs;

use serde_json::{Value, json};

use crate::{Program, block_on};

/// Two databases with the extension, which are cells 1 and 2, and a file.
struct Pair {
    program: Program,
    urls: [String; 2],
    file: String,
}

const SETTINGS: &str = r#"
[placements]
"*" = 1
mail = 2
sync = { by = { by_args = ["tenant"] }, cells = [1, 2] }

[kinds."email.send"]
queue = "mail"
max_attempts = 5
timeout = "30 s"
unique_opts = { by_args = true, by_queue = true }

[queues.mail]
concurrency = 10
retention_completed = 3600

[limits.tenants]
by = { by_args = ["tenant"] }
queues = ["sync"]
concurrency = 2
overrides = [{ key = "acme", concurrency = 5 }, { key = { args = { tenant = "globex" } }, rate = 3, rate_period = 60 }]

[orders.mail]
by = { by_args = ["to"] }
strict = true
on_discard = "block"

[orders.sync]
by = { by_args = ["tenant"] }
fair = true
weights = { acme = 3 }

[periodic.nightly]
cron = "0 3 * * *"
kind = "email.send"
args = { to = "all" }
"#;

impl Pair {
    fn new(test: &str) -> Self {
        let program = Program::new(test);
        let (server, _) = program.url.rsplit_once('/').unwrap();
        let name = |cell: i32| format!("{test}_{cell}_{}", std::process::id());
        let urls = [1, 2].map(|cell| format!("{server}/{}", name(cell)));
        for cell in [1, 2] {
            program.change(&format!("create database {}", name(cell)));
        }
        let file = std::env::temp_dir().join(format!("{}.toml", name(0)));
        let pair = Self { program, urls, file: file.to_str().unwrap().into() };
        for (index, cell) in [1, 2].into_iter().enumerate() {
            pair.run(index, &format!("create extension jobs; select jobs.set_cell({cell})"));
        }
        pair.write(SETTINGS);
        pair
    }

    /// The file with the addresses of the cells and these settings.
    fn write(&self, settings: &str) {
        let cells = self.urls.iter().zip([1, 2]);
        let cells =
            cells.map(|(url, cell)| format!("[[cells]]\ncell = {cell}\naddress = \"{url}\"\n"));
        fs::write(&self.file, cells.collect::<String>() + settings).unwrap();
    }

    fn run(&self, index: usize, statement: &str) {
        block_on(async {
            let client = postgres_jobs::connect(&self.urls[index].parse().unwrap()).await?;
            client.batch_execute(statement).await
        });
    }

    fn is(&self, index: usize, condition: &str) -> bool {
        block_on(async {
            let client = postgres_jobs::connect(&self.urls[index].parse().unwrap()).await?;
            client.query_one(&format!("select {condition}"), &[]).await?.try_get(0)
        })
    }

    /// The cells as it prints them, and the exit code.
    fn apply(&self, options: &[&str]) -> (Vec<Value>, i32) {
        self.program.lines(&[&["apply", &self.file], options].concat())
    }

    /// What it says when it fails.
    fn refused(&self, options: &[&str], code: i32, words: &str) {
        let (ended, said) = self.program.said(&[&["apply", &self.file, "--yes"], options].concat());
        assert!(ended == code && said.contains(words), "{ended} {said}");
    }

    fn cells(&self) -> i32 {
        self.program.lines(&["cells", &self.urls[0], &self.urls[1]]).1
    }
}

/// The objects of a cell that change, and how.
fn changes(cell: &Value) -> Vec<String> {
    let changes = cell["changes"].as_array().unwrap().iter();
    let text = |change: &Value| {
        ["object", "name", "outcome"].map(|field| change[field].as_str().unwrap()).join(" ")
    };
    changes.map(text).collect()
}

const BOTH: [&str; 7] = [
    "kind email.send created",
    "limit tenants created",
    "order sync created",
    "placement * created",
    "placement mail created",
    "placement sync created",
    "cell 1 changed",
];

#[test]
fn a_file_is_applied_to_each_cell_and_again_changes_nothing() {
    let pair = Pair::new("apply_file");
    let none = "not exists (select from jobs.kinds) and not exists (select from jobs.placements)";
    let (cells, code) = pair.apply(&["--dry-run"]);
    assert_eq!((code, cells.len()), (0, 2), "{cells:?}");
    let (first, second) = (changes(&cells[0]), changes(&cells[1]));
    assert!(BOTH.iter().all(|change| first.contains(&(*change).into())), "{first:?}");
    for owned in ["queue mail created", "order mail created", "periodic job nightly created"] {
        assert!(!first.contains(&owned.into()) && second.contains(&owned.into()), "{second:?}");
    }
    assert_eq!(cells[1]["applied"], false);
    assert!(pair.is(0, none) && pair.is(1, none));
    // Without a terminal it asks nobody, and changes nothing.
    assert_eq!(pair.apply(&[]).1, 2);
    assert!(pair.is(0, none) && pair.is(1, none));

    let (cells, code) = pair.apply(&["--yes", "--reason", "first"]);
    assert_eq!((code, cells.len(), &cells[1]["applied"]), (0, 2, &json!(true)), "{cells:?}");
    let kind = r#"(max_attempts, timeout, unique_opts) = (5, interval '30 s', '{"by_args": true, "by_queue": true}') from jobs.kinds"#;
    assert!(pair.is(0, kind) && pair.is(1, kind));
    assert!(pair.is(1, "cron = '0 3 * * *' and queue = 'mail' from jobs.periodic"));
    assert!(pair.is(1, "(concurrency, retention_completed) = (10, interval '1 h') from jobs.queues where queue = 'mail'"));
    let overrides = "string_agg(concat_ws(' ', key->'args'->>'tenant', concurrency, rate), ', ' order by key) = 'acme 5, globex 3' from jobs.limit_keys where overridden";
    assert!(pair.is(0, overrides) && pair.is(1, overrides));
    let order = r#"(by, strict, on_discard, fair, weights) = ('{"by_args": ["tenant"]}', false, 'continue', true, '{"acme": 3}') from jobs.orders where queue = 'sync'"#;
    assert!(pair.is(0, order) && pair.is(1, order));
    assert!(pair.is(1, "strict and on_discard = 'block' and not fair and weights is null from jobs.orders where queue = 'mail'"));
    let known = "count(*) = 2 and bool_and(address ~ 'apply_file' and identity is not null) from jobs.cells";
    assert!(pair.is(0, known) && pair.is(1, known));
    assert!(pair.is(0, "bool_and(reason = 'first') from jobs.audit where action = 'place_queue'"));
    assert_eq!(pair.cells(), 0, "the settings are the same");

    let (cells, code) = pair.apply(&["--yes"]);
    assert_eq!((code, cells.len()), (0, 2), "{cells:?}");
    assert!(cells.iter().all(|cell| cell["changes"] == json!([]) && cell["unnamed"] == json!([])));
    fs::remove_file(&pair.file).unwrap();
}

#[test]
fn what_the_file_does_not_name_is_left_alone_or_pruned() {
    let pair = Pair::new("apply_prune");
    assert_eq!(pair.apply(&["--yes"]).1, 0);
    // Control: settings that differ are seen.
    pair.run(0, "select jobs.define_kind('other', priority => 2), jobs.place_queue('other', 1)");
    pair.run(0, "select jobs.configure_queue('other', rate => 1, rate_period => '1 s')");
    pair.run(0, "select jobs.define_limit('other', queues => '{other}', concurrency => 1)");
    pair.run(0, "select jobs.order_queue('other', '{\"by_kind\": true}', fair => true)");
    pair.run(0, "select jobs.schedule('other', '@daily', 'k', queue => 'other')");
    pair.run(1, "select jobs.define_kind('email.send', max_attempts => 6)");
    pair.run(1, "select jobs.override_limit('tenants', '\"acme\"', 6), jobs.override_limit('tenants', '\"other\"', 1), jobs.order_queue('sync', '{\"by_args\": [\"tenant\"]}', fair => true)");
    assert_eq!(pair.cells(), 1);
    let (cells, code) = pair.apply(&["--yes"]);
    assert_eq!((code, changes(&cells[0])), (0, vec![]));
    let changed = ["kind email.send changed", "limit tenants changed", "order sync changed"];
    assert_eq!(changes(&cells[1])[..3], changed);
    assert_eq!(cells[1]["changes"][0]["after"]["max_attempts"], 5);
    let unnamed: Vec<_> =
        cells[0]["unnamed"].as_array().unwrap().iter().map(|one| &one["object"]).collect();
    assert_eq!(unnamed, ["placement", "kind", "queue", "limit", "order", "periodic job"]);
    assert!(pair.is(0, "count(*) = 1 from jobs.periodic"));

    // Its jobs would be nowhere.
    pair.run(0, "select jobs.unplace_queue('*'), jobs.insert('k', queue => 'other')");
    pair.write(&SETTINGS.replace("\"*\" = 1", ""));
    pair.refused(&["--prune"], 1, "placement \"other\": ");
    pair.run(0, "select jobs.delete(id) from jobs.jobs");
    pair.write(SETTINGS);
    let (cells, code) = pair.apply(&["--prune", "--yes"]);
    assert_eq!((code, changes(&cells[0]).len()), (0, 7), "{cells:?}");
    assert!(pair.is(0, "count(*) = 0 from jobs.periodic"));
    assert_eq!(pair.cells(), 0);
    fs::remove_file(&pair.file).unwrap();
}

#[test]
fn every_check_comes_before_the_first_change() {
    let pair = Pair::new("apply_check");
    let unchanged =
        || pair.is(0, "count(*) = 0 from jobs.kinds") && pair.is(1, "count(*) = 0 from jobs.kinds");
    let [one, two] = &pair.urls;
    for (settings, code, words) in [
        ("[kinds]\nk = 3", 2, "invalid type"),
        ("[kinds.k]\nmax_attempt = 3", 2, "unknown field `max_attempt`"),
        ("[orders.q]\nfair = true", 2, "missing field `by`"),
        (
            "[placements]\nq = 1\n[orders.q]\nby = { by_kind = true }",
            1,
            "order \"q\": strict and fair must not both be false",
        ),
        ("[kinds.k]\nmax_attempts = 0", 1, "kind \"k\": max_attempts 0 is too low"),
        (
            "[queues.nowhere]\nconcurrency = 3",
            1,
            "queue \"nowhere\": queue \"nowhere\" lives in no cell",
        ),
    ] {
        pair.write(settings);
        pair.refused(&[], code, words);
    }
    // One cell refuses what the other would take.
    pair.run(1, "select jobs.place_queue('*', 2), jobs.insert('k')");
    pair.write(SETTINGS);
    pair.refused(&[], 1, "1 job, final ones included");
    assert!(unchanged());
    pair.run(1, "select jobs.delete(id) from jobs.jobs");

    pair.refused(&[one], 1, "cell 2 of the file is none of the databases");
    pair.refused(&[one, one], 1, "are both cell 1");
    pair.refused(&[one, two, &pair.program.url], 1, "has no cell number");
    // A copy that was reinstated has another identity than the map says.
    let identity = "00000000-0000-0000-0000-000000000000";
    pair.run(0, &format!("select jobs.set_cell_address(2, 'x', '{identity}')"));
    pair.refused(&[], 1, "is not the cell 2 that");
    let (code, said) = pair.program.said(&["cells", one, two]);
    assert!(code == 1 && said.contains(" is not the cell 2 that \""), "{said}");
    pair.write(&format!("identity = \"{identity}\"\n{SETTINGS}"));
    pair.refused(&[], 1, "is not the cell 2 that the file knows");
    assert!(unchanged());
    fs::remove_file(&pair.file).unwrap();
}

#[test]
fn no_cell_changes_before_all_can_and_a_second_run_completes_what_fails_at_commit() {
    let pair = Pair::new("apply_half");
    // At the second insert, which is that after the checks, and at the first commit.
    pair.run(
        1,
        "create sequence inserts; create sequence commits;
        create function refuse() returns trigger language plpgsql as $$ begin
          if nextval(tg_argv[0]) = tg_argv[1]::int then raise 'not now'; end if; return new; end $$;
        create trigger refuse before insert on jobs.kind
        for each row execute function refuse('public.inserts', 2);
        create constraint trigger refuse_commit after insert on jobs.kind initially deferred
        for each row execute function refuse('public.commits', 1)",
    );
    pair.refused(&[], 1, "not now\nNothing was changed.");
    assert!(pair.is(0, "count(*) = 0 from jobs.placements"));
    pair.refused(
        &[],
        1,
        &format!(
            "not now\nApplied: {}. Not applied: {}.",
            place(&pair.urls[0]),
            place(&pair.urls[1])
        ),
    );
    assert_eq!(pair.cells(), 1);
    let (cells, code) = pair.apply(&["--yes"]);
    assert_eq!((code, changes(&cells[0])), (0, vec![]));
    assert!(changes(&cells[1]).contains(&"kind email.send created".into()));
    assert_eq!(pair.cells(), 0);
    fs::remove_file(&pair.file).unwrap();
}

/// A URL as the program shows it.
fn place(url: &str) -> &str {
    url.split_once('@').unwrap().1
}

#[test]
fn one_database_without_a_number_needs_no_cells() {
    let program = Program::new("apply one");
    let settings =
        format!("[queues.\"{}\"]\nrate = 5\nrate_period = \"1 minute\"\n", program.queue);
    let apply = |options: &[&str]| program.run(&[&["apply", "-"], options].concat(), &settings);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let output = apply(&["--yes"]);
    let said = text(output.stdout);
    let line =
        format!("queue \"{}\" created: rate - -> 5, rate_period - -> 00:01:00", program.queue);
    assert!(output.status.success() && said.contains(&line), "{said} {}", text(output.stderr));
    assert!(said.ends_with(": 1 change applied\n"), "{said}");
    assert!(program.ask::<bool>("select rate = 5 from jobs.queues where queue = $1"));
    assert!(text(apply(&["--yes"]).stdout).contains(": 0 changes\n"));
}
