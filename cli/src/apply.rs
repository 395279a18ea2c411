//! `pgjobs apply`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::stdin;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};

use crate::database::{Database, address};
use crate::failed::{Failed, REFUSED, WRONG};
use crate::manage::confirm;
use crate::terminal::{plain, plural, print, tell};
use crate::visible;

const EXAMPLES: &str = "\
A section has a table for each name, with the parameters of a function: [kinds] those of
jobs.define_kind, [queues] of jobs.configure_queue, [limits] of jobs.define_limit, with overrides
as of jobs.override_limit, [orders] of jobs.order_queue, [periodic] of jobs.schedule, [placements]
of jobs.place_queue and jobs.spread_queue. Durations are seconds, or texts such as '15 minutes'.

  [[cells]]
  cell = 1
  address = \"postgresql://one.example/jobs\"

  [placements]
  \"*\" = 1
  sync = { by = { by_args = [\"tenant\"] }, cells = [1, 2] }

  [kinds.\"email.send\"]
  queue = \"mail\"
  max_attempts = 5
  unique_opts = { by_args = true, by_queue = true }

  [queues.mail]
  concurrency = 10

  [limits.tenants]
  by = { by_args = [\"tenant\"] }
  concurrency = 2
  overrides = [{ key = \"acme\", concurrency = 5 }]

  [orders.sync]
  by = { by_args = [\"tenant\"] }
  strict = true
  on_discard = \"block\"

  [periodic.nightly]
  cron = \"0 3 * * *\"
  kind = \"report.build\"

Examples:
  pgjobs apply jobs.toml --dry-run
  pgjobs apply jobs.toml -d postgresql://postgres@localhost/app
  pgjobs apply jobs.toml service=one service=two --prune --yes";

/// Bring the settings in a file to a database, or to each of several cells
///
/// Shows first what would change, found out by a transaction that is rolled back, and asks. What
/// the database refuses, in any cell, is refused before anything is changed. Each cell is changed
/// in one transaction, and none of these commits before all cells are changed. A second run changes
/// nothing, or completes what a failure has left.
///
/// Queues are configured and ordered, and periodic jobs scheduled, in the cells where their queue
/// lives. What the file does not name is listed, and left alone without --prune.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// File with the settings, in TOML; - for stdin
    file: PathBuf,
    /// Database of each cell: name, URL or connection string. By default, the addresses in the
    /// file or, if it has no cells, the database of --dbname
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// Show what would change, and exit
    #[arg(long)]
    dry_run: bool,
    /// Remove kinds, settings of queues, limits, orders, periodic jobs and placements that the file
    /// does not name
    #[arg(long)]
    prune: bool,
    /// Do not ask for confirmation
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,
    /// Reason, for the audit
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    #[serde(skip_serializing)]
    cells: Vec<Known>,
    placements: BTreeMap<String, Placement>,
    kinds: BTreeMap<String, Kind>,
    queues: BTreeMap<String, Queue>,
    limits: BTreeMap<String, Limit>,
    orders: BTreeMap<String, Order>,
    periodic: BTreeMap<String, Periodic>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    cell: i32,
    address: String,
    identity: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, untagged)]
enum Placement {
    Cell(i32),
    Spread { by: Value, cells: Vec<i32> },
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    queue: Option<String>,
    priority: Option<i32>,
    max_attempts: Option<i32>,
    timeout: Option<Value>,
    retry: Option<Value>,
    unique_opts: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<Value>,
    max_waiting: Option<i32>,
    retention_completed: Option<Value>,
    retention_cancelled: Option<Value>,
    retention_discarded: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    by: Option<Value>,
    queues: Option<Vec<String>>,
    kinds: Option<Vec<String>>,
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<Value>,
    per_cell: Option<bool>,
    overrides: Option<Vec<Override>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Override {
    key: Value,
    concurrency: Option<i32>,
    rate: Option<i32>,
    rate_period: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Order {
    by: Value,
    strict: Option<bool>,
    on_discard: Option<String>,
    fair: Option<bool>,
    weights: Option<Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Periodic {
    cron: String,
    kind: String,
    args: Option<Value>,
    time_zone: Option<String>,
    missed: Option<String>,
    tags: Option<Vec<String>>,
    meta: Option<Value>,
    queue: Option<String>,
    priority: Option<i32>,
    max_attempts: Option<i32>,
    timeout: Option<Value>,
    retry: Option<Value>,
    unique_opts: Option<Value>,
}

/// What a section of the file is in the database.
struct Section {
    name: &'static str,
    noun: &'static str,
    /// What is there: a row with the name and what the file can say.
    rows: &'static str,
    /// Sets $1 as $2 says, because of $3.
    set: &'static str,
    /// The call that removes $1 because of $2.
    remove: &'static str,
    /// Whether $1 can be removed in this cell.
    is_own: &'static str,
}

macro_rules! of_own_queue {
    () => {
        "coalesce((select c.cell = any (p.cells) from jobs.cells c, jobs.placements p
                    where c.is_self and p.queue in ('*', normalize($1)) order by p.queue = '*' limit 1), true)"
    };
}

const PLACEMENTS: &str = "placements";

/// In the order in which they are set. Kinds decide the queue of a periodic job.
const SECTIONS: [Section; 6] = [
    Section {
        name: PLACEMENTS,
        noun: "placement",
        rows: "select queue as name, by, cells from jobs.placements",
        // Even a call that changes nothing makes inserts wait.
        set: "
            select case when s.by is null then jobs.place_queue($1, s.cells[1], $3)::text
                        else jobs.spread_queue($1, s.by, s.cells, $3)::text end
                from (select d->'by' as by, array(select jsonb_array_elements_text(coalesce(d->'cells', jsonb_build_array(d)))::int) as cells
                        from (select $2::text::jsonb) as given(d)) s
                where not exists (select from jobs.placements p
                                   where p.queue = normalize($1) and p.cells = s.cells and p.by is not distinct from s.by)",
        remove: "jobs.unplace_queue($1, $2)",
        is_own: "true",
    },
    Section {
        name: "kinds",
        noun: "kind",
        rows: "select kind as name, queue, priority, max_attempts, timeout, retry, unique_opts from jobs.kinds",
        set: "
            select jobs.define_kind($1, queue, priority, max_attempts, timeout, retry, unique_opts, $3)::text
                from jsonb_to_record($2::text::jsonb) as d(queue text, priority int, max_attempts int, timeout interval, retry jsonb,
                    unique_opts jsonb)",
        remove: "jobs.undefine_kind($1, $2)",
        is_own: "true",
    },
    Section {
        name: "queues",
        noun: "queue",
        rows: "
            select queue as name, concurrency, rate, rate_period, max_waiting, retention_completed, retention_cancelled, retention_discarded
                from jobs.queues
                where num_nonnulls(concurrency, rate, max_waiting, retention_completed, retention_cancelled, retention_discarded) > 0",
        set: concat!(
            "select jobs.configure_queue($1, concurrency, rate, rate_period, retention_completed, retention_cancelled, retention_discarded,
                    max_waiting, $3)::text
                from jsonb_to_record($2::text::jsonb) as d(concurrency int, rate int, rate_period interval, max_waiting int,
                    retention_completed interval, retention_cancelled interval, retention_discarded interval)
                where ",
            of_own_queue!()
        ),
        remove: "jobs.reset_queue($1, $2)",
        is_own: of_own_queue!(),
    },
    Section {
        name: "limits",
        noun: "limit",
        rows: "
            select l.name, l.by, l.queues, l.kinds, l.concurrency, l.rate, l.rate_period, nullif(l.per_cell, false) as per_cell,
                    (select jsonb_agg(jsonb_strip_nulls(to_jsonb(o)) order by o.key)
                        from (select k.key, k.concurrency, k.rate, k.rate_period from jobs.limit_keys k
                               where k.name = l.name and k.overridden) o) as overrides
                from jobs.limits l where l.name not like 'queue/%'",
        // Overrides that the file has are kept; one whose key is not recognized is set again.
        set: "
            with d as materialized (
              select * from jsonb_to_record($2::text::jsonb) as d(by jsonb, queues text[], kinds text[], concurrency int, rate int,
                rate_period interval, per_cell boolean, overrides jsonb)),
            cleared as materialized (
              select count(jobs.override_limit($1, k.key, reason => $3)::text) as n from d, jobs.limit_keys k
               where k.name = normalize($1) and k.overridden and not exists (
                 select from jsonb_array_elements(d.overrides) o
                  where o->'key' in (k.key, k.key #> ('{args}' || string_to_array(d.by->'by_args'->>0, '.')),
                                     k.key #> ('{meta}' || string_to_array(d.by->'by_meta'->>0, '.'))))),
            defined as materialized (
              select jobs.define_limit($1, d.by, d.queues, d.kinds, d.concurrency, d.rate, d.rate_period,
                coalesce(d.per_cell, false), $3)::text as done from d, cleared where cleared.n >= 0)
            select count(jobs.override_limit($1, o.key, o.concurrency, o.rate, o.rate_period, $3)::text)
                from d, defined, jsonb_to_recordset(d.overrides) as o(key jsonb, concurrency int, rate int, rate_period interval)
                where defined.done is not null",
        remove: "jobs.drop_limit($1, $2)",
        is_own: "true",
    },
    Section {
        name: "orders",
        noun: "order",
        rows: "
            select queue as name, by, nullif(strict, false) as strict, nullif(on_discard, 'continue') as on_discard,
                    nullif(fair, false) as fair, weights
                from jobs.orders",
        set: concat!(
            "select jobs.order_queue($1, by, coalesce(strict, false), coalesce(on_discard, 'continue'), coalesce(fair, false), weights,
                    $3)::text
                from jsonb_to_record($2::text::jsonb) as d(by jsonb, strict boolean, on_discard text, fair boolean, weights jsonb)
                where ",
            of_own_queue!()
        ),
        remove: "jobs.order_queue($1, null, reason => $2)",
        is_own: of_own_queue!(),
    },
    Section {
        name: "periodic",
        noun: "periodic job",
        rows: "
            select name, cron, time_zone, missed, kind, args, unique_opts, queue, priority, max_attempts, tags, meta, timeout, retry
                from jobs.periodic",
        // One that has moved to another cell is left in none but that.
        set: "
            select case when coalesce(jobs.cell_for(d.kind, coalesce(d.args, '{}'), d.unique_opts, d.queue, d.meta), own.cell) <> own.cell
                        then jobs.unschedule($1, $3)::text
                        else jobs.schedule($1, d.cron, d.kind, coalesce(d.args, '{}'), coalesce(d.time_zone, 'UTC'), d.unique_opts, d.queue,
                            d.priority, d.max_attempts, d.tags, d.meta, d.timeout, d.retry, coalesce(d.missed, 'once'), $3)::text end
                from jsonb_to_record($2::text::jsonb) as d(cron text, kind text, args jsonb, time_zone text, missed text, tags text[],
                    meta jsonb, queue text, priority int, max_attempts int, timeout interval, retry jsonb, unique_opts jsonb),
                (select coalesce(max(cell), 0) as cell from jobs.cells where is_self) own",
        remove: "jobs.unschedule($1, $2)",
        is_own: "true",
    },
];

/// Which settings the file, whose names are $1, does not name.
const UNNAMED: &str = "name <> all (select normalize(n) from unnest($1::text[]) n) order by 1";
const ADDRESS: &str = "select jobs.set_cell_address($1, $2, $3::text::uuid, $4)";
const CELLS: &str = "select cell, identity::text, is_self from jobs.cells";
/// A placement waits for transactions that insert jobs, and later inserts wait for it.
const BEGIN: &str = "set local lock_timeout = '10s'";

/// A database to which the file is brought.
struct Target {
    database: String,
    client: Client,
    /// `None` without a cell number.
    cell: Option<i32>,
    identity: String,
    /// The cells that it knows, with their identities.
    known: Vec<(i32, String)>,
}

/// What applying the file changes in a database.
struct Difference {
    changes: Vec<Change>,
    /// What the file does not name: the noun and the name.
    unnamed: Vec<(&'static str, String)>,
}

struct Change {
    noun: &'static str,
    name: String,
    before: Option<Map<String, Value>>,
    after: Option<Map<String, Value>>,
}

impl Apply {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let settings = self.settings()?;
        let mut targets = Vec::new();
        for database in self.databases(&settings, database) {
            targets.push(Target::new(&database).await?);
        }
        check(&targets, &settings.cells)?;
        let identity = |target: &Target| Some((target.cell?, target.identity.clone()));
        let identities: Vec<_> = targets.iter().filter_map(identity).collect();
        let (mut faults, mut differences, mut changes) = (Vec::new(), Vec::new(), 0);
        for target in &mut targets {
            match target.bring(&self, &settings, &identities).await {
                Ok(brought) => {
                    changes += brought.difference.changes.len() as i64;
                    brought.transaction.rollback().await?;
                    differences.push((brought.database, brought.cell, brought.difference));
                }
                Err(failed) => faults.push(failed),
            }
        }
        // With --yes, the JSON says what was applied.
        if !json || !self.yes || changes == 0 || !faults.is_empty() {
            for (database, cell, difference) in &differences {
                difference.print(database, *cell, false, json);
            }
        }
        if let Some(failed) = faults.pop() {
            faults.iter().for_each(tell);
            return Err(nothing_done(failed));
        }
        if self.dry_run || changes == 0 {
            return Ok(());
        }
        if !self.yes {
            confirm(&format!("Apply {}", plural(changes, "change"))).await?;
        }
        let names: Vec<String> = targets.iter().map(|target| target.database.clone()).collect();
        // All are changed before one commits, so that no cell takes a queue that another still has.
        let mut all = Vec::new();
        for target in &mut targets {
            let brought = target.bring(&self, &settings, &identities).await;
            all.push(brought.map_err(nothing_done)?);
        }
        for (index, brought) in all.into_iter().enumerate() {
            let committed = brought.commit(json).await;
            committed.map_err(|failed| half_done(failed, &names, index))?;
        }
        Ok(())
    }

    fn settings(&self) -> Result<Settings, Failed> {
        let wrong =
            |error: &dyn Display| Failed::new(WRONG, format!("{}: {error}", self.file.display()));
        let text = match self.file.to_str() {
            Some("-") => std::io::read_to_string(stdin()),
            _ => std::fs::read_to_string(&self.file),
        };
        toml::from_str(&text.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))
    }

    fn databases(&self, settings: &Settings, database: &Database) -> Vec<Database> {
        let named = |text: &String| Database::named(text);
        match (&self.urls[..], &settings.cells[..]) {
            ([], []) => vec![database.clone()],
            ([], cells) => cells.iter().map(|known| named(&known.address)).collect(),
            (urls, _) => urls.iter().map(named).collect(),
        }
    }
}

/// Refuses databases that are not the cells that the file or another cell knows.
fn check(targets: &[Target], cells: &[Known]) -> Result<(), Failed> {
    let refused = |message: String, hint: &str| {
        Err(Failed { hint: Some(hint.into()), ..Failed::new(REFUSED, message) })
    };
    for (index, target) in targets.iter().enumerate() {
        let Target { database, cell, .. } = target;
        let Some(cell) = *cell else {
            if targets.len() == 1 && cells.is_empty() {
                return Ok(());
            }
            let hint = "Check its address, or run jobs.set_cell in it.";
            return refused(format!("{database} has no cell number"), hint);
        };
        let known = cells.iter().find(|known| known.cell == cell);
        if !cells.is_empty() && known.is_none() {
            let hint = "Check its address, or add the cell to the file.";
            return refused(
                format!("{database} is cell {cell}, which the file does not name"),
                hint,
            );
        }
        if let Some(other) = targets[..index].iter().find(|other| other.cell == Some(cell)) {
            let hint = "Check their addresses.";
            return refused(
                format!("{} and {database} are both cell {cell}", other.database),
                hint,
            );
        }
        // The file takes precedence: it is how a new identity becomes known.
        let of_file = known.and_then(|known| Some(("the file".into(), known.identity.clone()?)));
        let mut of_cells = targets.iter().flat_map(|other| {
            let knows = other.known.iter().filter(|(known, _)| *known == cell);
            knows.map(|(_, identity)| (other.database.clone(), identity.clone()))
        });
        let differs = |identity: &String| !identity.eq_ignore_ascii_case(&target.identity);
        let differing = match of_file {
            Some(told) => Some(told).filter(|(_, identity)| differs(identity)),
            None => of_cells.find(|(_, identity)| differs(identity)),
        };
        if let Some((who, identity)) = differing {
            let message = format!(
                "{database} is not the cell {cell} that {who} knows: its identity is {}, not {identity}",
                target.identity
            );
            let hint =
                "Check its address. If the cell was reinstated, set its identity in the file.";
            return refused(message, hint);
        }
    }
    match cells.iter().find(|known| targets.iter().all(|one| one.cell != Some(known.cell))) {
        Some(Known { cell, .. }) => {
            refused(format!("cell {cell} of the file is none of the databases"), "Add its URL.")
        }
        None => Ok(()),
    }
}

fn nothing_done(mut failed: Failed) -> Failed {
    failed.message += "\nNothing was changed.";
    failed
}

fn half_done(mut failed: Failed, databases: &[String], index: usize) -> Failed {
    let (done, left) = databases.split_at(index);
    let done = if done.is_empty() { "none".into() } else { done.join(", ") };
    failed.message += &format!("\nApplied: {done}. Not applied: {}.", left.join(", "));
    failed.hint.get_or_insert("Run the command again to apply the rest.".into());
    failed
}

impl Target {
    async fn new(database: &Database) -> Result<Self, Failed> {
        let name = address(&database.config()?);
        let asked = async {
            let client = database.connect().await?;
            let rows = client.query(CELLS, &[]).await?;
            Ok::<_, Failed>((client, rows))
        };
        let (client, rows) = asked.await.map_err(|failed| of(&name, failed))?;
        let mut target =
            Self { database: name, client, cell: None, identity: String::new(), known: Vec::new() };
        for row in rows {
            let (cell, identity, is_self) =
                (row.try_get("cell")?, row.try_get("identity")?, row.try_get("is_self")?);
            match (identity, is_self) {
                (Some(identity), true) => (target.cell, target.identity) = (Some(cell), identity),
                (Some(identity), false) => target.known.push((cell, identity)),
                (None, _) => {}
            }
        }
        Ok(target)
    }

    /// Applies the file in a transaction.
    async fn bring(
        &mut self,
        apply: &Apply,
        settings: &Settings,
        identities: &[(i32, String)],
    ) -> Result<Brought<'_>, Failed> {
        let Self { database, client, cell, .. } = self;
        let brought = async {
            let transaction = client.transaction().await?;
            transaction.batch_execute(BEGIN).await?;
            let difference = apply.bring(settings, identities, &transaction).await?;
            Ok((transaction, difference))
        };
        let (transaction, difference) = brought.await.map_err(|failed| of(&*database, failed))?;
        Ok(Brought { database, cell: *cell, transaction, difference })
    }
}

/// A database to which the file was brought, by a transaction that is open.
struct Brought<'a> {
    database: &'a str,
    cell: Option<i32>,
    transaction: Transaction<'a>,
    difference: Difference,
}

/// A failure in a database, or of what the file names.
fn of(what: impl Display, failed: Failed) -> Failed {
    Failed { message: format!("{what}: {}", failed.message), ..failed }
}

impl Apply {
    /// Sets what the file names.
    async fn bring(
        &self,
        settings: &Settings,
        identities: &[(i32, String)],
        transaction: &Transaction<'_>,
    ) -> Result<Difference, Failed> {
        let before = everything(transaction).await?;
        let named = serde_json::to_value(settings)?;
        let named = |section: &Section| named[section.name].as_object().into_iter().flatten();
        let mut unnamed = Vec::new();
        for section in &SECTIONS {
            let names: Vec<&String> = named(section).map(|(name, _)| name).collect();
            let sql = format!("select name from ({}) r where {UNNAMED}", section.rows);
            for row in transaction.query(&sql, &[&names]).await? {
                unnamed.push((section, row.try_get::<_, String>(0)?));
            }
        }
        let pruned = unnamed.iter().filter(|_| self.prune);
        let (placements, others): (Vec<_>, Vec<_>) =
            pruned.partition(|(section, _)| section.name == PLACEMENTS);
        // While their queues may still be placed here.
        self.remove(&others, transaction).await?;
        for Known { cell, address, .. } in &settings.cells {
            let identity = identities.iter().find(|(number, _)| number == cell);
            let identity = identity.map(|(_, identity)| identity);
            transaction.execute(ADDRESS, &[cell, address, &identity, &self.reason]).await?;
        }
        for section in &SECTIONS {
            let mut named: Vec<_> = named(section).collect();
            // Last, so that it never stands for a queue that has a placement in the file.
            named.sort_by_key(|(name, _)| *name == "*");
            for (name, fields) in named {
                let of: [&(dyn ToSql + Sync); 3] = [name, &fields.to_string(), &self.reason];
                let set = transaction.query(section.set, &of).await;
                set.map_err(|error| section.failed(name, error))?;
            }
            if section.name == PLACEMENTS {
                self.remove(&placements, transaction).await?;
            }
        }
        let after = everything(transaction).await?;
        let unnamed = unnamed.into_iter().filter(|_| !self.prune);
        let unnamed = unnamed.map(|(section, name)| (section.noun, name)).collect();
        Ok(Difference { changes: changes(&before, &after), unnamed })
    }

    async fn remove(
        &self,
        all: &[&(&Section, String)],
        transaction: &Transaction<'_>,
    ) -> Result<(), Failed> {
        for (section, name) in all {
            let sql = format!("select {} where {}", section.remove, section.is_own);
            let removed = transaction.execute(&sql, &[name, &self.reason]).await;
            removed.map_err(|error| section.failed(name, error))?;
        }
        Ok(())
    }
}

impl Section {
    fn failed(&self, name: &str, error: tokio_postgres::Error) -> Failed {
        of(format_args!("{} \"{name}\"", self.noun), error.into())
    }
}

/// The settings of a database: by noun and name what each has that is not null.
type All = BTreeMap<(&'static str, String), Map<String, Value>>;

async fn everything(transaction: &Transaction<'_>) -> Result<All, Failed> {
    const ADDRESSES: &str = "select cell::text as name, address, identity from jobs.cells";
    let sections = SECTIONS.iter().map(|section| (section.noun, section.rows));
    let mut all = All::new();
    for (noun, rows) in [("cell", ADDRESSES)].into_iter().chain(sections) {
        let sql = format!("select name, (to_jsonb(r) - 'name')::text from ({rows}) r");
        for row in transaction.query(&sql, &[]).await? {
            let mut fields: Map<_, _> = serde_json::from_str(row.try_get(1)?)?;
            fields.retain(|_, value| !value.is_null());
            all.insert((noun, row.try_get(0)?), fields);
        }
    }
    Ok(all)
}

fn changes(before: &All, after: &All) -> Vec<Change> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let change = |key: &(&'static str, String)| {
        let (before, after) = (before.get(key).cloned(), after.get(key).cloned());
        let (noun, name) = key.clone();
        (before != after).then_some(Change { noun, name, before, after })
    };
    names.into_iter().filter_map(change).collect()
}

impl Brought<'_> {
    async fn commit(self, json: bool) -> Result<(), Failed> {
        let Self { database, cell, transaction, difference } = self;
        transaction.commit().await.map_err(|error| of(database, error.into()))?;
        difference.print(database, cell, true, json);
        Ok(())
    }
}

impl Difference {
    fn print(&self, database: &str, cell: Option<i32>, is_applied: bool, json: bool) {
        if json {
            let changes: Vec<_> = self.changes.iter().map(Change::json).collect();
            let unnamed = self.unnamed.iter();
            let unnamed: Vec<_> =
                unnamed.map(|(noun, name)| json!({ "object": noun, "name": name })).collect();
            return print(json!({
                "address": database, "cell": cell, "applied": is_applied, "changes": changes, "unnamed": unnamed,
            }));
        }
        let line = |text: String| print(visible::line(&text));
        let count = plural(self.changes.len() as i64, "change");
        if is_applied {
            return line(format!("{database}: {count} applied"));
        }
        line(format!("{database}: {count}"));
        self.changes.iter().for_each(|change| line(format!("  {}", change.text())));
        for (noun, name) in &self.unnamed {
            line(format!("  not in the file: {noun} \"{name}\""));
        }
    }
}

impl Change {
    fn outcome(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "created",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    fn json(&self) -> Value {
        let Self { noun, name, before, after } = self;
        json!({ "object": noun, "name": name, "outcome": self.outcome(), "before": before, "after": after })
    }

    fn text(&self) -> String {
        let Self { noun, name, .. } = self;
        let [before, after] =
            [&self.before, &self.after].map(|side| side.clone().unwrap_or_default());
        let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let shown = |value: Option<&Value>| value.map_or("-".into(), plain);
        let fields = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
        let fields: Vec<_> = fields
            .map(|name| format!("{name} {} -> {}", shown(before.get(name)), shown(after.get(name))))
            .collect();
        format!("{noun} \"{name}\" {}: {}", self.outcome(), fields.join(", "))
    }
}
