//! `pgjobs forward`.

mod cells;
mod fault;
mod outbox;
mod queue;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use postgres_jobs::CancellationToken;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::Config;

use crate::database::{Database, address};
use crate::failed::{Failed, REFUSED};
use crate::hang_up;
use crate::table::table;
use crate::terminal::{log, plain, plural, print};
use crate::visible;
use cells::Cells;
use fault::{Fault, PATIENCE, answer_within};
use outbox::{Outbox, Refused, Row};
use queue::{Cause, Queue, Refusal, Rejected};

const EXAMPLES: &str = "Exits with 1 if --once or --status finds refused rows.

Examples:
  pgjobs forward --from postgresql://forwarder@hosted/shop --to postgresql://producer@queue/jobs
  pgjobs forward --from service=shop --to service=queue --once
  pgjobs forward --from service=shop --to service=one --to service=two
  pgjobs forward --from service=shop --status --json | jq .refused";

/// Carry jobs from an outbox in another database to the queue
///
/// For databases that cannot have the extension: outbox.sql gives them jobs.insert, which writes to
/// the table jobs.outbox as part of your transaction. This program inserts each of its jobs into
/// the queue exactly once, in order for each queue, and deletes the row. Several programs can run;
/// one at a time moves rows.
///
/// A row that the queue refuses stays in the outbox with its error; the others continue. A full
/// queue and other passing causes are tried again.
///
/// Runs until SIGTERM, SIGINT or SIGHUP, and then finishes the batch. When one of the databases
/// goes away, it reconnects.
///
/// With several --to, each a cell, it sends each job to the cell where its queue lives. A cell that
/// is down holds up only its own jobs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Forward {
    /// Database with the outbox: name, URL or connection string
    #[arg(long, value_name = "DATABASE")]
    from: String,
    /// Database with the queue; repeat it for each of several cells
    #[arg(long, value_name = "DATABASE", required_unless_present = "status")]
    to: Vec<String>,
    /// Exit when the outbox is empty, except for refused rows
    #[arg(long)]
    once: bool,
    /// Show waiting and refused rows, and exit
    #[arg(long, conflicts_with = "once")]
    status: bool,
}

impl Forward {
    pub(crate) async fn run(self, json: bool) -> Result<(), Failed> {
        if self.status {
            return status(&Side::outbox(&self.from)?, json).await;
        }
        let stop = stopped()?;
        match &self.to[..] {
            [to] => self.forwarder(Duty::Alone, &[to], &stop)?.run().await?,
            _ => self.to_cells(&stop).await?,
        }
        if self.once && !stop.is_cancelled() {
            self.refused().await?;
        }
        Ok(())
    }

    /// A forwarder of a duty to these databases.
    fn forwarder(
        &self,
        duty: Duty,
        to: &[&String],
        stop: &CancellationToken,
    ) -> Result<Forwarder, Failed> {
        let is_alone = matches!(duty, Duty::Alone);
        let side = |text: &&String| Side::queue(text, is_alone);
        let wake = match &duty {
            Duty::Cell(place, cells) => cells.wake(*place),
            _ => Arc::default(),
        };
        Ok(Forwarder {
            duty,
            from: Side::outbox(&self.from)?,
            to: to.iter().map(side).collect::<Result<_, _>>()?,
            place: 0,
            once: self.once,
            stop: stop.clone(),
            wake,
            cell: None,
            deleted: Vec::new(),
            full: HashMap::new(),
            reported: None,
            has_worked: false,
            told: None,
        })
    }

    /// Runs a forwarder for each cell, and one that chooses the cells, until one fails or, with
    /// --once, all have ended.
    async fn to_cells(&self, stop: &CancellationToken) -> Result<(), Failed> {
        let all: Vec<&String> = self.to.iter().collect();
        let cells = Cells::new(all.len());
        loop {
            cells.begin();
            let mut parts = JoinSet::new();
            for (place, to) in self.to.iter().enumerate() {
                let duty = Duty::Cell(place, cells.clone());
                parts.spawn(self.forwarder(duty, &[to], stop)?.run());
            }
            parts.spawn(self.forwarder(Duty::Aim(cells.clone()), &all, stop)?.run());
            let mut first = None;
            while let Some(ended) = parts.join_next().await {
                match ended? {
                    Ok(()) => {}
                    Err(failed) if !self.once => return Err(failed),
                    Err(failed) if first.is_some() => log(failed),
                    Err(failed) => first = Some(failed),
                }
            }
            match first {
                Some(failed) => return Err(failed),
                None if self.once && Cells::is(&cells.is_moved) => {}
                None => return Ok(()),
            }
        }
    }

    /// Fails if rows are refused.
    async fn refused(&self) -> Result<(), Failed> {
        let from = Side::outbox(&self.from)?;
        let asked = async { Outbox::open(&from.config, Arc::default()).await?.status(None).await };
        match asked.await.map_err(|fault| from.fault(fault).failed)?.refused {
            0 => Ok(()),
            refused => {
                let hint = Some("pgjobs forward --status shows the errors.".into());
                let message = format!("{} refused", plural(refused, "row"));
                Err(Failed { hint, ..Failed::new(REFUSED, message) })
            }
        }
    }
}

/// Cancelled by the first signal; the second one exits at once, since nothing can be lost.
fn stopped() -> Result<CancellationToken, Failed> {
    hang_up::terminates()?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let told = stop.clone();
    tokio::spawn(async move {
        loop {
            select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            if told.is_cancelled() {
                exit(0);
            }
            told.cancel();
        }
    });
    Ok(stop)
}

/// One of the databases.
struct Side {
    name: String,
    database: Database,
    config: Config,
    /// Where it is, without user and password.
    address: String,
    /// The function that grants what its role needs.
    grant: &'static str,
}

impl Side {
    fn outbox(text: &str) -> Result<Self, Failed> {
        Self::new("outbox", text, "grant_forwarder")
    }

    fn queue(text: &str, is_alone: bool) -> Result<Self, Failed> {
        let mut side = Self::new("queue", text, "grant_producer")?;
        if !is_alone {
            side.name = format!("queue at {}", side.address);
        }
        Ok(side)
    }

    fn new(name: &str, text: &str, grant: &'static str) -> Result<Self, Failed> {
        let database = Database::named(text);
        let mut config = database.config()?;
        if config.get_application_name().is_none() {
            config.application_name("pgjobs forward");
        }
        let address = address(&config);
        Ok(Self { name: name.into(), database, config, address, grant })
    }

    fn fault(&self, fault: Fault) -> Fault {
        fault.of(&self.name, &self.database, self.grant)
    }
}

/// The first pause after a look that found nothing; a transaction may commit without a notification
/// if it began before.
const FIRST: Duration = Duration::from_millis(5);
/// The longest pause between two looks.
const POLL: Duration = Duration::from_secs(1);
/// How often the queue is told of the outbox.
const REPORT: Duration = Duration::from_secs(15);
/// After this long another cell is asked where rows belong.
const SOON: Duration = Duration::from_secs(5);
/// After this long no further part of a batch is begun: the outbox keeps its rows locked meanwhile.
const LONGEST: Duration = Duration::from_secs(20);
/// The longest pause before a full queue is tried again.
const FULL: Duration = Duration::from_secs(10);
/// The longest address of an outbox, in characters.
const ADDRESS: usize = 1000;

/// Which rows a forwarder is for.
enum Duty {
    /// All: there is only one database.
    Alone,
    /// Those of the cell at a place.
    Cell(usize, Arc<Cells>),
    /// Rows without a cell: it chooses one, by what any of the databases says.
    Aim(Arc<Cells>),
}

struct Forwarder {
    duty: Duty,
    from: Side,
    /// Several of a forwarder that chooses cells, which needs one of them.
    to: Vec<Side>,
    place: usize,
    once: bool,
    stop: CancellationToken,
    /// Told of new rows.
    wake: Arc<Notify>,
    /// The number of the cell, if there are several.
    cell: Option<i32>,
    /// Keys of rows that the outbox has deleted, which the queue is yet to be told.
    deleted: Vec<String>,
    /// Lanes whose queue is full.
    full: HashMap<String, Full>,
    /// When the queue was told of the outbox.
    reported: Option<Instant>,
    has_worked: bool,
    /// The fault that was logged.
    told: Option<String>,
}

struct Full {
    pause: Duration,
    until: Instant,
}

/// What the queue has done with rows.
#[derive(Default)]
struct Batch {
    taken: Vec<i64>,
    keys: Vec<String>,
    refused: Vec<Refused>,
    /// Rows that belong to another cell.
    aimed: BTreeMap<i32, Vec<i64>>,
    /// Lanes whose queue is full: the rest of their rows stays behind.
    full: HashSet<String>,
}

impl Forwarder {
    async fn run(mut self) -> Result<(), Failed> {
        let ended = self.sessions().await;
        match &self.duty {
            Duty::Aim(cells) => {
                Cells::set(&cells.is_aimed);
                cells.wake_all();
            }
            Duty::Cell(_, cells) if ended.is_err() => Cells::set(&cells.is_lost),
            _ => {}
        }
        ended
    }

    async fn sessions(&mut self) -> Result<(), Failed> {
        let mut failures = 0;
        loop {
            let Err(fault) = self.session(&mut failures).await else {
                return Ok(());
            };
            let is_last = self.place + 1 == self.to.len();
            if self.once && is_last || fault.is_wrong && !self.has_worked {
                return Err(fault.failed);
            }
            let message = fault.failed.to_string();
            if self.told.as_ref() != Some(&message) {
                log(format_args!("{message}; retrying"));
                self.told = Some(message);
            }
            self.place = (self.place + 1) % self.to.len();
            let pause = Duration::from_millis(100 << failures.min(7)).min(Duration::from_secs(10));
            failures += 1;
            select! {
                () = self.stop.cancelled() => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Carries over until the end, or until one of the databases fails.
    async fn session(&mut self, failures: &mut u32) -> Result<(), Fault> {
        let stop = self.stop.clone();
        let opened = stop.run_until_cancelled(self.open()).await;
        let Some(opened) = opened else { return Ok(()) };
        let (mut outbox, queue) = opened?;
        let mut pause = FIRST;
        while !stop.is_cancelled() {
            let found = match &self.duty {
                Duty::Aim(cells) => self.aim(cells, &mut outbox, &queue).await?,
                _ => self.carry(&outbox, &queue).await?,
            };
            if self.reported.is_none_or(|at| at.elapsed() >= REPORT) {
                self.report(&outbox, &queue).await?;
            }
            self.goes_on(&outbox, &queue);
            *failures = 0;
            if found {
                pause = FIRST;
                continue;
            }
            if self.once && self.is_over(&outbox).await? {
                break;
            }
            select! {
                () = stop.cancelled() => {}
                () = outbox.heard() => pause = FIRST,
                () = sleep(pause) => pause = POLL.min(pause * 2),
            }
        }
        self.report(&outbox, &queue).await
    }

    fn to(&self) -> &Side {
        &self.to[self.place]
    }

    /// Connects to both.
    async fn open(&mut self) -> Result<(Outbox, Queue), Fault> {
        let is_aimer = matches!(self.duty, Duty::Aim(_));
        let patience = if is_aimer { SOON } else { PATIENCE };
        let opened = answer_within(patience, Queue::open(&self.to().config)).await;
        let queue = opened.map_err(|fault| self.to().fault(fault))?;
        if !matches!(self.duty, Duty::Alone) {
            self.cell = Some(queue.number().await.map_err(|fault| self.to().fault(fault))?);
        }
        let from = |fault| self.from.fault(fault);
        let mut outbox = Outbox::open(&self.from.config, self.wake.clone()).await.map_err(from)?;
        match (&self.duty, self.cell) {
            (Duty::Cell(place, cells), Some(cell)) => cells.meet(*place, cell)?,
            _ => outbox.listen().await.map_err(from)?,
        }
        if is_aimer {
            return Ok((outbox, queue));
        }
        if matches!(self.duty, Duty::Alone) && outbox.has_cells {
            self.alone(&mut outbox).await.map_err(from)?;
        }
        if let (Duty::Cell(place, cells), Some(cell)) = (&self.duty, self.cell) {
            let (_, here) = self.untold(&outbox, &queue).await?;
            if !here.is_empty() {
                outbox.aim(&here, cell).await.map_err(from)?;
            }
            cells.has_told(*place);
        }
        (self.deleted, self.reported) = (Vec::new(), None);
        Ok((outbox, queue))
    }

    /// Of the keys that the queue has, and whose rows it was not told to be deleted: those without
    /// a row, and the rows of the others.
    async fn untold(
        &self,
        outbox: &Outbox,
        queue: &Queue,
    ) -> Result<(Vec<String>, Vec<i64>), Fault> {
        let open = queue.open_keys(outbox).await.map_err(|fault| self.to().fault(fault))?;
        outbox.rows(&open).await.map_err(|fault| self.from.fault(fault))
    }

    /// Has rows go to one database that went to several.
    async fn alone(&self, outbox: &mut Outbox) -> Result<(), Fault> {
        if outbox.is_on_the_way {
            let hint = "Give each cell a --to, as before, until the outbox is empty.";
            return Err(Fault::wrong("rows are on the way to several cells".into(), hint));
        }
        outbox.set_has_cells(false).await
    }

    /// Chooses the cell of some rows; whether there were any.
    async fn aim(&self, cells: &Cells, outbox: &mut Outbox, queue: &Queue) -> Result<bool, Fault> {
        let from = |fault| self.from.fault(fault);
        if !outbox.has_cells {
            // Rows may have been sent before they had a cell.
            if self.once && Cells::is(&cells.is_lost) {
                let hint = "Only the first run needs all of them.";
                return Err(Fault::wrong("not every cell was reached".into(), hint));
            }
            if !cells.have_all_told() {
                return Ok(false);
            }
            outbox.set_has_cells(true).await.map_err(from)?;
        }
        let rows = outbox.take(&[], None).await.map_err(from)?;
        let own = self.cell.expect("a cell");
        let rows: Vec<&Row> = rows.iter().collect();
        let answers = answer_within(SOON, queue.cells(&rows)).await;
        let mut batch = Batch::default();
        for (row, cell) in rows.iter().zip(answers.map_err(|fault| self.to().fault(fault))?) {
            // The cell that was asked says best why it takes no such row.
            let cell = cell.filter(|cell| cells.has(*cell)).unwrap_or(own);
            batch.aimed.entry(cell).or_default().push(row.id);
        }
        outbox.commit(&batch.taken, &batch.refused, &batch.aimed).await.map_err(from)?;
        if !rows.is_empty() {
            cells.wake_all();
        }
        Ok(!rows.is_empty())
    }

    /// Says that it works, or works again.
    fn goes_on(&mut self, outbox: &Outbox, queue: &Queue) {
        let was_told = self.told.take().is_some();
        let is_aimer = matches!(self.duty, Duty::Aim(_));
        if !is_aimer && (!self.has_worked || was_told) {
            let cell = self.cell.map_or(String::new(), |cell| format!("cell {cell} at "));
            log(format_args!(
                "forwarding from {} (PostgreSQL {}) to {cell}{} (jobs {}), pgjobs {}",
                self.from.address,
                outbox.version,
                self.to().address,
                queue.version,
                env!("CARGO_PKG_VERSION")
            ));
        }
        self.has_worked = true;
    }

    /// Carries some rows over; whether there were any.
    async fn carry(&mut self, outbox: &Outbox, queue: &Queue) -> Result<bool, Fault> {
        let now = Instant::now();
        let held = self.full.iter().filter(|(_, full)| full.until > now);
        let hold: Vec<String> = held.map(|(lane, _)| lane.clone()).collect();
        let rows = outbox.take(&hold, self.cell).await.map_err(|fault| self.from.fault(fault))?;
        let batch = self.insert(outbox, queue, &rows).await?;
        let committed = outbox.commit(&batch.taken, &batch.refused, &batch.aimed).await;
        committed.map_err(|fault| self.from.fault(fault))?;
        if let Duty::Cell(_, cells) = &self.duty {
            let refused = batch.refused.iter().map(|row| row.id);
            cells.forget(batch.taken.iter().copied().chain(refused));
            if !batch.aimed.is_empty() {
                Cells::set(&cells.is_moved);
                cells.wake_all();
            }
        }
        self.deleted.extend(batch.keys);
        Ok(!rows.is_empty())
    }

    /// Inserts rows in their order. Where the queue refuses them, it gets them without the row that
    /// it names, or else by halves until the row is alone.
    async fn insert(
        &mut self,
        outbox: &Outbox,
        queue: &Queue,
        rows: &[Row],
    ) -> Result<Batch, Fault> {
        let (began, mut batch) = (Instant::now(), Batch::default());
        let mut parts: Vec<Vec<&Row>> = vec![rows.iter().collect()];
        while let Some(mut part) = parts.pop()
            && began.elapsed() < LONGEST
        {
            part.retain(|row| !batch.full.contains(&row.lane));
            if part.is_empty() {
                continue;
            }
            let refusal = match queue.forward(outbox, &part, &self.deleted).await {
                Ok(()) => {
                    self.took(&part, &mut batch);
                    continue;
                }
                Err(Rejected::All(fault)) => return Err(self.to().fault(fault)),
                Err(Rejected::Rows(refusal)) => refusal,
            };
            if let (Duty::Cell(_, cells), Cause::OtherCell) = (&self.duty, refusal.cause) {
                let count = part.len();
                let sent_on = self.send_on(cells, outbox, queue, &mut part, &mut batch).await;
                sent_on.map_err(|fault| self.to().fault(fault))?;
                if part.len() < count {
                    parts.push(part);
                    continue;
                }
            }
            let place = if part.len() == 1 { Some(0) } else { refusal.place };
            match place.filter(|place| *place < part.len()) {
                Some(place) => {
                    let behind = part.split_off(place + 1);
                    let row = part.remove(place);
                    parts.extend([behind, part]);
                    self.refuse(row, refusal, &mut batch);
                }
                None => {
                    let behind = part.split_off(part.len() / 2);
                    parts.extend([behind, part]);
                }
            }
        }
        Ok(batch)
    }

    /// Takes out the rows that belong to another cell, by what this one says, and that were not
    /// sent on before. What it has taken stays, wherever it belongs by now: the call that was
    /// refused has waited for any that took the same rows.
    async fn send_on(
        &self,
        cells: &Cells,
        outbox: &Outbox,
        queue: &Queue,
        part: &mut Vec<&Row>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let taken: HashSet<String> = queue.open_keys(outbox).await?.into_iter().collect();
        let mut answers = queue.cells(part).await?.into_iter();
        part.retain(|row| {
            let cell = answers.next().flatten();
            let other = cell.filter(|cell| Some(*cell) != self.cell && cells.has(*cell));
            match other.filter(|_| !taken.contains(&row.key) && cells.sends_on(row.id)) {
                Some(cell) => batch.aimed.entry(cell).or_default().push(row.id),
                None => return true,
            }
            false
        });
        Ok(())
    }

    fn refuse(&mut self, row: &Row, refusal: Refusal, batch: &mut Batch) {
        let is_full = refusal.cause == Cause::FullQueue;
        if !is_full || self.fills(row) {
            log(format_args!("row {} of the outbox was refused: {}", row.id, refusal.error));
        }
        if is_full {
            batch.full.insert(row.lane.clone());
        }
        batch.refused.push(refusal.of(row));
    }

    fn took(&mut self, rows: &[&Row], batch: &mut Batch) {
        self.deleted.clear();
        for row in rows {
            batch.taken.push(row.id);
            batch.keys.push(row.key.clone());
            self.full.remove(&row.lane);
        }
    }

    /// Holds the lane of a row whose queue is full; whether it was not full before.
    fn fills(&mut self, row: &Row) -> bool {
        let before = self.full.get(&row.lane).map(|full| full.pause);
        let pause = before.map_or(Duration::from_millis(500), |pause| FULL.min(pause * 2));
        let until = Instant::now() + pause;
        self.full.insert(row.lane.clone(), Full { pause, until });
        before.is_none()
    }

    /// Whether every row that is left is refused, or waits for room in its queue.
    async fn is_over(&self, outbox: &Outbox) -> Result<bool, Fault> {
        let cell = match &self.duty {
            Duty::Cell(_, cells) if !Cells::is(&cells.is_aimed) => return Ok(false),
            Duty::Cell(..) => self.cell,
            _ => None,
        };
        let waiting = outbox.waiting(cell).await.map_err(|fault| self.from.fault(fault))?;
        Ok(waiting == 0 || !self.full.is_empty())
    }

    /// Tells the queue how the outbox is, and what it has deleted.
    async fn report(&mut self, outbox: &Outbox, queue: &Queue) -> Result<(), Fault> {
        if matches!(self.duty, Duty::Aim(_)) {
            return Ok(());
        }
        let status = outbox.status(self.cell).await.map_err(|fault| self.from.fault(fault))?;
        // Other forwarders may have ended before they told.
        (self.deleted, _) = self.untold(outbox, queue).await?;
        if !self.deleted.is_empty() {
            match queue.forward(outbox, &[], &self.deleted).await {
                Ok(()) => self.deleted.clear(),
                Err(Rejected::All(fault)) => return Err(self.to().fault(fault)),
                // The next call tries again.
                Err(Rejected::Rows(_)) => {}
            }
        }
        let address: String = visible::line(&self.from.address).chars().take(ADDRESS).collect();
        let reported = queue.report(outbox, &address, &status).await;
        reported.map_err(|fault| self.to().fault(fault))?;
        self.reported = Some(Instant::now());
        Ok(())
    }
}

/// Shows how the outbox is.
async fn status(from: &Side, json: bool) -> Result<(), Failed> {
    let shown = async {
        let outbox = Outbox::open(&from.config, Arc::default()).await?;
        Ok((outbox.status(None).await?, outbox.shown().await?))
    };
    let shown: Result<_, Fault> = shown.await;
    let (status, [queues, refused]) = shown.map_err(|fault| from.fault(fault).failed)?;
    let refused: Vec<Value> = parsed(&refused)?;
    if json {
        let queues: Vec<Value> = parsed(&queues)?;
        print(json!({
            "waiting": status.waiting, "oldest_at": status.oldest_at, "refused": status.refused,
            "queues": queues, "refused_rows": refused,
        }));
    } else if queues.is_empty() {
        print("the outbox is empty");
    } else {
        table(&["queue", "waiting", "oldest_at", "refused"], &parsed(&queues)?);
        for row in &refused {
            let (id, kind, error) = (&row["id"], plain(&row["kind"]), plain(&row["error"]));
            print(visible::line(&format!("row {id}, kind {kind}: {}", error.replace('\n', " "))));
        }
        if status.refused > refused.len() as i64 {
            print(format_args!("and {} more", status.refused - refused.len() as i64));
        }
    }
    match status.refused {
        0 => Ok(()),
        _ => Err(Failed::new(REFUSED, "")),
    }
}

fn parsed<T: DeserializeOwned>(rows: &[String]) -> Result<Vec<T>, serde_json::Error> {
    rows.iter().map(|row| serde_json::from_str(row)).collect()
}
