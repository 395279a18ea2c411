//! The connection that fetches jobs and waits for them.

use std::sync::Arc;

use tokio::select;
use tokio::time::sleep;

use crate::engine::{Engine, Stage, State};
use crate::job::JobInfo;
use crate::link::{Link, PATIENCE, random};
use crate::options::{Queue, names};
use crate::{Result, Worker, finish};

/// Jobs as rows of columns, which cost the server less than JSON.
pub(crate) const FETCH: &str = "
select id, token, kind, queue, args, meta, tags, priority, attempt, max_attempts,
        created_at, scheduled_at, attempted_at,
        date_part('epoch', deadline_at - clock_timestamp()) as deadline
    from jobs.fetch_any(string_to_array($1, e'\n'), $2::int, worker => $3,
        lease => make_interval(secs => $4::float8),
        kinds => string_to_array(nullif($5, e'\n'), e'\n'))";
const WAIT: &str = "
call jobs.wait_any(string_to_array($1, e'\n'), worker => $2)";

/// Fetches jobs until the worker stops.
pub(crate) async fn run(engine: Arc<Engine>, cell: usize) {
    let fetches = engine.worker.fetches();
    let mut link = engine.worker.link(cell, PATIENCE);
    let is_idle = |is_idle| engine.change(|state| state.cells[cell].is_idle = is_idle);
    let has_room = async || {
        is_idle(true);
        engine.until(|state| engine.has_room(state, cell) && engine.is_next(state, cell)).await;
        is_idle(false);
    };
    while engine.before(Stage::Stop, has_room()).await.is_some() {
        engine.gather(|state| engine.room(state)).await;
        let queues = engine.queues(cell);
        match engine.fetch(cell, &mut link, &fetches).await {
            Ok(true) => link.failures = 0,
            Ok(false) => engine.wait(cell, &mut link, queues).await,
            Err(error) => {
                let error = engine.hinted(cell, error);
                if error.has_hint() && !link.has_worked {
                    return engine.fail(error);
                }
                engine.before(Stage::Stop, link.pause("fetch", &error)).await;
            }
        }
    }
}

impl Worker {
    /// The parameters of a fetch: the queues and the kinds, one per line, and the maximum number of
    /// jobs.
    pub(crate) fn asking(&self, queues: String, most: usize, kinds: &str) -> [String; 5] {
        let lease = self.options.lease.as_secs_f64().to_string();
        [queues, most.to_string(), self.options.name.clone(), lease, kinds.into()]
    }
}

impl Engine {
    /// Waits for jobs of queues, at most until the worker stops or others live in the cell.
    /// Meanwhile the other connection fetches kinds with a concurrency as their jobs end.
    async fn wait(&self, cell: usize, link: &mut Link, queues: String) {
        let of = [&*queues, &self.worker.options.name];
        let mut waiting = Box::pin(self.before(Stage::Stop, link.wait(WAIT, &of)));
        let next = |state: &State| -> Vec<String> {
            let has_room =
                |kind: &&String| self.has_room(state, cell) && self.room_of(state, kind) > 0;
            state.cells[cell].abundant.iter().filter(has_room).cloned().collect()
        };
        loop {
            select! {
                biased;
                _ = &mut waiting => return,
                () = self.until(|state| names(&state.cells[cell].queues) != queues) => break,
                () = self.until(|state| !next(state).is_empty()) => {}
            }
            let mut link = self.links[cell].lock().await;
            let kinds = next(&self.state.borrow());
            if let Err(error) = self.fetch(cell, &mut link, &kinds).await {
                let pause = link.failed("fetch", &error);
                drop(link);
                self.before(Stage::Stop, sleep(pause)).await;
            } else {
                link.failures = 0;
            }
        }
        drop(waiting);
        link.opened = None;
    }

    /// Fetches jobs of these kinds. Returns whether to fetch again at once.
    async fn fetch(&self, cell: usize, link: &mut Link, fetches: &[String]) -> Result<bool> {
        // A stop abandons connecting, but not a fetch under way: its jobs may be ours.
        let opened = self.before(Stage::Stop, link.open()).await.transpose()?;
        let Some(()) = opened else { return Ok(true) };
        // Any of them may be the first.
        let first = random() as usize % fetches.len().max(1);
        let mut is_short = true;
        for kinds in fetches[first..].iter().chain(&fetches[..first]) {
            let (queues, most) = self.change(|state| {
                let (queues, most) = self.next_fetch(state, cell, kinds);
                is_short &= self.room(state) > 0;
                state.cells[cell].asked = Some((kinds.clone(), most));
                (queues, most)
            });
            let jobs: Result<Vec<_>> = async {
                if most == 0 {
                    return Ok(Vec::new());
                }
                let of = self.worker.asking(queues, most, kinds);
                let rows = link.run(FETCH, &of.each_ref().map(String::as_str)).await?;
                let jobs = rows.iter().map(|row| JobInfo::of(row, cell).map(Arc::new));
                Ok(jobs.collect::<Result<_, _>>()?)
            }
            .await;
            is_short &= jobs.as_ref().is_ok_and(|jobs| most == 0 || jobs.len() < most);
            self.change(|state| -> Result<()> {
                let here = &mut state.cells[cell];
                here.asked = None;
                let jobs = jobs?;
                match jobs.len() == most && self.worker.limit(kinds).is_some() {
                    true => _ = here.abundant.insert(kinds.clone()),
                    false => _ = here.abundant.remove(kinds),
                }
                state.waiting.extend(jobs);
                state.release_waiting(|_| false);
                Ok(())
            })?;
        }
        Ok(!is_short)
    }

    /// How many jobs may be fetched.
    fn room(&self, state: &State) -> usize {
        let asked = state.cells.iter().filter_map(|cell| Some(cell.asked.as_ref()?.1));
        let held = state.held().count() + asked.sum::<usize>();
        self.worker.options.most().saturating_sub(held)
    }

    fn has_room(&self, state: &State, cell: usize) -> bool {
        let has_room = state.unsent.len() < finish::MOST && self.room(state) > 0;
        state.stage == Stage::Run && state.cells[cell].fetches() && has_room
    }

    /// Whether no other cell that has fewer jobs here is about to fetch.
    fn is_next(&self, state: &State, cell: usize) -> bool {
        let load = |cell| state.held().filter(|job| job.cell == cell).count();
        let others = (0..).zip(&state.cells).filter(|(other, _)| *other != cell);
        let mut idle = others.filter(|(_, other)| other.is_idle && other.fetches());
        idle.all(|(other, _)| load(other) >= load(cell))
    }

    /// How many jobs of these kinds may be fetched beside those in this worker.
    fn room_of(&self, state: &State, kinds: &str) -> usize {
        let limit = self.worker.limit(kinds).unwrap_or(usize::MAX);
        let asked = state.cells.iter().filter_map(|cell| cell.asked.as_ref());
        let asked: usize = asked.filter(|(of, _)| of == kinds).map(|(_, most)| most).sum();
        limit.saturating_sub(state.held().filter(|job| job.kind == kinds).count() + asked)
    }

    /// The queues in the order of the next fetch, and the number of jobs to ask for: what the first
    /// queue lacks of its share.
    fn next_fetch(&self, state: &State, cell: usize, kinds: &str) -> (String, usize) {
        let here = &state.cells[cell];
        if !here.fetches() {
            return (String::new(), 0);
        }
        let options = &self.worker.options;
        let places = |queue: &Queue| state.held().filter(|job| job.queue == queue.name).count();
        let load = |queue: &Queue| places(queue) as f64 / queue.weight;
        let mut queues: Vec<_> = here.queues.iter().collect();
        queues.sort_by(|a, b| load(a).total_cmp(&load(b)));
        let all: f64 = options.queues.iter().map(|queue| queue.weight).sum();
        let share = (options.most() as f64 * queues[0].weight / all).ceil() as usize;
        let lacks = share.saturating_sub(places(queues[0])).max(1);
        // The rest is for other cells.
        let part = self.room(state).div_ceil(state.cells.len());
        let room = part.min(self.room_of(state, kinds)).min(10_000);
        (names(queues), lacks.min(room))
    }
}
