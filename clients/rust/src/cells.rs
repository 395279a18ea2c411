//! Several databases that share queues, in place of one.

use std::collections::{BTreeMap, HashMap};
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

/// A job of an insert, and its number.
type Numbered<'a> = (usize, &'a RawValue);

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
    let pairs = all.clone().flat_map(|one| all.clone().map(move |other| (one, other)));
    let mut others = pairs.filter(|(one, other)| !std::ptr::eq(*one, *other));
    others.find_map(|(one, other)| one.fault(other)).map_or(Ok(()), Err)
}

impl Seen {
    /// Why it cannot be a cell beside the other one.
    fn fault(&self, other: &Seen) -> Option<ClientError> {
        let name = &self.database;
        let Some(cell) = self.cell else {
            let fault = format!("the database \"{name}\" has no cell number");
            let hint = "Run jobs.set_cell in it, or remove it from the list.";
            return Some(ClientError::Option(fault).with_hint(hint));
        };
        let knows = other.cell?;
        if cell == knows {
            let other = &other.database;
            let fault = format!("the databases \"{name}\" and \"{other}\" are both cell {cell}");
            return Some(ClientError::Option(fault).with_hint("Remove one of them from the list."));
        }
        other.known.get(&cell).filter(|known| self.identity.as_ref() != Some(known))?;
        let fault =
            format!("the database \"{name}\" is not the cell {cell} that cell {knows} knows");
        let hint = format!(
            "Check its URL. If cell {cell} was reinstated, call jobs.set_cell_address with its new \
             identity in cell {knows}."
        );
        Some(ClientError::Option(fault).with_hint(hint))
    }

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
        let job: HashMap<&str, &RawValue> = serde_json::from_str(job.get()).ok()?;
        let queue: Option<String> = serde_json::from_str(job["queue"].get()).ok()?;
        let placement = self.placement(&as_kept(&queue?))?;
        let Some((field, path)) = placement.by.as_ref().and_then(|by| by.iter().next()) else {
            return placement.cells.first().copied();
        };
        let value = job[field.trim_start_matches("by_")];
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
        require(sql == INSERT, "Cells can only insert: pass a connection to the cell")?;
        require(!self.links.is_empty(), "Cells must have at least one database")?;
        if let [only] = &*self.links {
            return only.lock().await.rows(sql, of).await;
        }
        let jobs: Vec<_> = serde_json::from_str(of[0])?;
        let jobs = (0..).zip(jobs).collect();
        let parts = self.map.lock().await.place(jobs, None).await?;
        let mut rows = BTreeMap::new();
        for (home, part) in parts {
            match self.insert(home, &part).await {
                Err(refusal) if refusal.is(&["JB001"]) => {
                    let parts = self.map.lock().await.place(part, Some(home)).await;
                    let parts = parts.unwrap_or_default();
                    if parts.is_empty() || parts.iter().any(|(again, _)| *again == home) {
                        return Err(refusal);
                    }
                    for (home, part) in parts {
                        rows.extend(self.insert(home, &part).await?);
                    }
                }
                inserted => rows.extend(inserted?),
            }
        }
        Ok(rows.into_values().collect())
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

    /// Inserts jobs into a database. Returns their rows by number.
    async fn insert(&self, home: usize, part: &[Numbered<'_>]) -> Result<Vec<(usize, String)>> {
        let inserted = self.links[home].lock().await.rows(INSERT, &[list(part)?.get()]).await?;
        Ok(part.iter().map(|(number, _)| *number).zip(inserted).collect())
    }
}

impl Map {
    /// The databases of the jobs, in the order of their first jobs. The map is read again if it may
    /// be old.
    async fn place<'a>(
        &mut self,
        jobs: Vec<Numbered<'a>>,
        refused: Option<usize>,
    ) -> Result<Vec<(usize, Vec<Numbered<'a>>)>> {
        let is_new = self.databases.is_empty() || refused.is_some();
        if is_new {
            self.read().await?;
        }
        let mut homes = self.homes(&jobs, refused).await;
        if homes.is_err() && !is_new {
            self.read().await?;
            homes = self.homes(&jobs, refused).await;
        }
        let mut parts = Vec::<(_, Vec<_>)>::new();
        for (home, job) in homes?.into_iter().zip(jobs) {
            match parts.iter_mut().find(|(one, _)| *one == home) {
                Some((_, part)) => part.push(job),
                None => parts.push((home, vec![job])),
            }
        }
        Ok(parts)
    }

    /// The database of each job. Asks the first one about cells that are not computed, or the one
    /// that has refused the jobs about all.
    async fn homes(&mut self, jobs: &[Numbered<'_>], refused: Option<usize>) -> Result<Vec<usize>> {
        let first = &self.databases[0];
        let asks = refused.unwrap_or(first.at);
        let cell =
            |(_, job): &Numbered<'_>| if refused.is_none() { first.cell_of(job) } else { None };
        let mut cells: Vec<_> = jobs.iter().map(cell).collect();
        let asked = jobs.iter().zip(&cells).filter(|(_, cell)| cell.is_none());
        let asked: Vec<_> = asked.map(|(job, _)| *job).collect();
        if !asked.is_empty() {
            let answers = query(&mut self.links[asks], ASK, &[list(&asked)?.get()]).await;
            let unknown = cells.iter_mut().filter(|cell| cell.is_none());
            unknown.zip(answers.map_err(hinted)?).for_each(|(cell, answer)| *cell = answer);
        }
        let home = |cell: Option<i64>| {
            // It refuses what lives nowhere.
            let Some(number) = cell else { return Ok(asks) };
            let home = self.databases.iter().find(|one| one.cell == cell);
            home.map(|one| one.at).ok_or_else(|| {
                let fault = format!("cell {number} is none of the databases");
                let fault = ClientError::Option(fault).with_hint("Add it to the list.");
                self.down.take().unwrap_or(fault)
            })
        };
        cells.into_iter().map(home).collect()
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

fn list(jobs: &[Numbered<'_>]) -> serde_json::Result<Box<RawValue>> {
    json(&jobs.iter().map(|(_, job)| job).collect::<Vec<_>>())
}
