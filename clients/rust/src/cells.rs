//! Several databases that share queues, in place of one.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio_postgres::Config;

use crate::executor::{json, query};
use crate::insert::{INSERT, hinted};
use crate::link::{Link, PATIENCE, is_gone};
use crate::options::{as_kept, require};
use crate::worker::watchful;
use crate::{ClientError, Executor, Result};

/// The databases of a program whose queues live in several cells, in place of a connection in
/// [`insert`](crate::insert()), [`insert_many`](crate::insert_many) and
/// [`Producer`](crate::Producer).
///
/// Each job is inserted and committed in its cell. [`insert_many`](crate::insert_many) is atomic
/// only within a cell.
pub struct Cells {
    links: Vec<Mutex<Link>>,
    map: Mutex<Map>,
}

/// What the databases know of cells.
struct Map {
    /// Connections that read and ask.
    links: Vec<Link>,
    /// Those that were reached, the retired ones last.
    databases: Vec<Seen>,
    /// Why another one was not.
    down: Option<ClientError>,
}

/// What a database knows of cells.
#[derive(Default, Deserialize)]
pub(crate) struct Seen {
    database: String,
    /// Its number; without one it takes everything.
    cell: Option<i64>,
    identity: Option<String>,
    is_retired: bool,
    /// The identities of other cells.
    known: HashMap<i64, String>,
    placements: HashMap<String, Placement>,
    /// The number of its connection.
    #[serde(skip)]
    at: usize,
}

/// Where a queue lives, and the path that it is spread by.
#[derive(Deserialize)]
struct Placement {
    by: Option<HashMap<String, Vec<String>>>,
    cells: Vec<i64>,
}

/// What places a job.
#[derive(Deserialize)]
struct Placed {
    queue: Option<String>,
    #[serde(rename = "args")]
    by_args: Box<RawValue>,
    #[serde(rename = "meta")]
    by_meta: Box<RawValue>,
}

pub(crate) const SEE: &str = "
select json_build_object('database', current_database(), 'cell', c.cell, 'identity', c.identity,
    'is_retired', c.retired_at is not null, 'placements', coalesce(p.list, '{}'),
    'known', coalesce(k.list, '{}'))::text
from (select json_object_agg(queue, to_json(p)) as list from jobs.placements p) p,
    (select json_object_agg(cell, identity) as list from jobs.cells
        where not is_self and identity is not null) k
    left join jobs.cells c on c.is_self";
const ASK: &str = "
select coalesce(jobs.cell_for(job->>'kind', job->'args', nullif(job->'unique_opts', 'null'),
    job->>'queue', job->'meta')::text, 'null')
from jsonb_array_elements($1::jsonb) with ordinality t(job, n) order by n";

/// How long the answer to a question about cells may take.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// Fails unless the databases that take jobs are cells, each its own.
pub(crate) fn agree<'a>(all: impl Iterator<Item = &'a Seen> + Clone) -> Result<()> {
    let all = all.filter(|one| !one.is_retired);
    for (one, other) in all.clone().flat_map(|one| all.clone().map(move |other| (one, other))) {
        let name = &one.database;
        let (fault, hint) = match (one.cell, other.cell) {
            _ if std::ptr::eq(one, other) => continue,
            (None, _) => (
                format!("the database \"{name}\" has no cell number"),
                "Run jobs.set_cell in it, or remove it from the list.".into(),
            ),
            (Some(cell), Some(same)) if cell == same => (
                format!("the databases \"{name}\" and \"{}\" are both cell {cell}", other.database),
                "Remove one of them from the list.".into(),
            ),
            (Some(cell), Some(knows))
                if other
                    .known
                    .get(&cell)
                    .is_some_and(|known| one.identity.as_ref() != Some(known)) =>
            {
                (
                    format!(
                        "the database \"{name}\" is not the cell {cell} that cell {knows} knows"
                    ),
                    format!(
                        "Check its URL. If cell {cell} was reinstated, call jobs.set_cell_address with \
                     its new identity in cell {knows}."
                    ),
                )
            }
            _ => continue,
        };
        return Err(ClientError::Option(fault).with_hint(hint));
    }
    Ok(())
}

impl Seen {
    fn placement(&self, queue: &str) -> Option<&Placement> {
        self.placements.get(queue).or_else(|| self.placements.get("*"))
    }

    /// Whether jobs of the queue may live here.
    pub(crate) fn has(&self, queue: &str) -> bool {
        let lives = |cell| self.placement(queue).is_some_and(|one| one.cells.contains(&cell));
        self.cell.is_none_or(lives)
    }

    /// The cell of a job, unless the database must be asked.
    fn cell_of(&self, job: &RawValue) -> Option<i64> {
        let job: Placed = serde_json::from_str(job.get()).ok()?;
        let placement = self.placement(&as_kept(&job.queue?))?;
        let Some((field, path)) = placement.by.as_ref().and_then(|by| by.iter().next()) else {
            return placement.cells.first().copied();
        };
        let value = if field == "by_args" { job.by_args } else { job.by_meta };
        let value: Value = serde_json::from_str(value.get()).ok()?;
        let path = path.first().filter(|path| !path.contains('\\'))?;
        let text = match path.split('.').try_fold(&value, |value, name| value.get(name))? {
            Value::String(text) => Value::from(as_kept(text)).to_string(),
            number => number.as_i64().filter(|one| one.unsigned_abs() < 1 << 53)?.to_string(),
        };
        let hash = u64::from_be_bytes(*Sha256::digest(text).first_chunk().expect("32 bytes"));
        placement.cells.get((hash % placement.cells.len() as u64) as usize).copied()
    }
}

impl Executor for &Cells {
    async fn rows(&mut self, sql: &'static str, of: &[&str]) -> Result<Vec<String>> {
        if sql != INSERT {
            let fault = "Cells can only insert: pass a connection to the cell";
            return Err(ClientError::Option(fault.into()));
        }
        require(!self.links.is_empty(), "Cells must have at least one database")?;
        if let [only] = &*self.links {
            return only.lock().await.rows(sql, of).await;
        }
        let jobs: Vec<&RawValue> = serde_json::from_str(of[0])?;
        let mut rows = vec![String::new(); jobs.len()];
        let homes = self.map.lock().await.place(&jobs, None).await?;
        for (home, part) in parts(&homes, (0..jobs.len()).collect()) {
            match self.insert(home, &jobs, &part, &mut rows).await {
                Err(refusal) if refusal.is(&["JB001"]) => {
                    let homes = self.map.lock().await.place(&pick(&jobs, &part), Some(home)).await;
                    let Some(homes) = homes.ok().filter(|homes| !homes.contains(&home)) else {
                        return Err(refusal);
                    };
                    for (home, part) in parts(&homes, part) {
                        self.insert(home, &jobs, &part, &mut rows).await?;
                    }
                }
                inserted => inserted?,
            }
        }
        Ok(rows)
    }
}

impl Cells {
    /// The cells with these configurations, which can be parsed URLs. A list of one can be a
    /// database without a number.
    pub fn new(configs: impl IntoIterator<Item = Config>) -> Self {
        let configs: Vec<_> = configs.into_iter().map(|one| watchful(&one, "jobs")).collect();
        let link = |patience| move |config: &Config| Link::new(config.clone(), false, patience);
        let map = Map {
            links: configs.iter().map(link(ASK_WITHIN)).collect(),
            databases: Vec::new(),
            down: None,
        };
        let links = configs.iter().map(link(PATIENCE)).map(Mutex::new).collect();
        Self { links, map: Mutex::new(map) }
    }

    async fn insert(
        &self,
        home: usize,
        jobs: &[&RawValue],
        part: &[usize],
        rows: &mut [String],
    ) -> Result<()> {
        let of = json(&pick(jobs, part))?;
        let inserted = self.links[home].lock().await.rows(INSERT, &[of.get()]).await?;
        part.iter().zip(inserted).for_each(|(job, row)| rows[*job] = row);
        Ok(())
    }
}

impl Map {
    /// The database of each job. The map is read again if it may be old.
    async fn place(&mut self, jobs: &[&RawValue], refused: Option<usize>) -> Result<Vec<usize>> {
        let is_new = self.databases.is_empty() || refused.is_some();
        if is_new {
            self.read().await?;
        }
        match self.homes(jobs, refused).await {
            Err(_) if !is_new => self.read().await?,
            homes => return homes,
        }
        self.homes(jobs, refused).await
    }

    /// The database of each job. Asks the first one about cells that are not computed, or the one
    /// that has refused the jobs about all.
    async fn homes(&mut self, jobs: &[&RawValue], refused: Option<usize>) -> Result<Vec<usize>> {
        let first = &self.databases[0];
        let asks = refused.unwrap_or(first.at);
        let cell = |job: &&RawValue| if refused.is_none() { first.cell_of(job) } else { None };
        let mut cells: Vec<_> = jobs.iter().map(cell).collect();
        let asked: Vec<_> = (0..jobs.len()).filter(|job| cells[*job].is_none()).collect();
        if !asked.is_empty() {
            let of = json(&pick(jobs, &asked))?;
            let answers = query(&mut self.links[asks], ASK, &[of.get()]).await;
            for (job, cell) in asked.into_iter().zip(answers.map_err(hinted)?) {
                cells[job] = cell;
            }
        }
        let mut homes = Vec::new();
        for cell in cells {
            homes.push(match (cell, self.databases.iter().find(|one| one.cell == cell)) {
                // It refuses what lives nowhere.
                (None, _) => asks,
                (_, Some(home)) => home.at,
                (Some(cell), None) => {
                    let fault = format!("cell {cell} is none of the databases");
                    let fault = ClientError::Option(fault).with_hint("Add it to the list.");
                    return Err(self.down.take().unwrap_or(fault));
                }
            });
        }
        Ok(homes)
    }

    async fn read(&mut self) -> Result<()> {
        let (mut databases, mut down) = (Vec::new(), None);
        for (at, link) in self.links.iter_mut().enumerate() {
            match query::<Seen>(link, SEE, &[]).await {
                Ok(seen) => databases.extend(seen.into_iter().map(|one| Seen { at, ..one })),
                Err(error) if is_gone(&error) => down = Some(error),
                Err(error) => return Err(hinted(error)),
            }
        }
        agree(databases.iter())?;
        databases.sort_by_key(|one| one.is_retired);
        match down.take_if(|_| databases.is_empty()) {
            Some(error) => return Err(error),
            None => (self.databases, self.down) = (databases, down),
        }
        Ok(())
    }
}

/// The jobs of each database, in the order of their first jobs.
fn parts(homes: &[usize], jobs: Vec<usize>) -> Vec<(usize, Vec<usize>)> {
    let mut parts = Vec::<(_, Vec<_>)>::new();
    for (home, job) in homes.iter().zip(jobs) {
        match parts.iter_mut().find(|(one, _)| one == home) {
            Some((_, part)) => part.push(job),
            None => parts.push((*home, vec![job])),
        }
    }
    parts
}

fn pick<'a>(jobs: &[&'a RawValue], numbers: &[usize]) -> Vec<&'a RawValue> {
    numbers.iter().map(|number| jobs[*number]).collect()
}
