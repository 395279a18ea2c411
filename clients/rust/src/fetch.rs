//! The connection that fetches jobs and waits for them.

use std::sync::Arc;

use tokio::time::sleep;

use crate::engine::{Engine, Stage, State};
use crate::job::JobInfo;
use crate::link::{Link, PATIENCE};
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

/// Fetches and starts jobs until the worker stops.
pub(crate) async fn run(engine: Arc<Engine>) {
    let options = &engine.worker.options;
    let fetches = engine.worker.fetches();
    let of = [&*names(&options.queues), &options.name];
    let mut link = engine.worker.link(PATIENCE);
    while let Some(()) =
        engine.before(Stage::Stop, engine.until(|state| engine.has_room(state))).await
    {
        engine.gather(|state| engine.room(state)).await;
        let turn = engine.turn.lock().await;
        let fetched = engine.fetch(&mut link, &fetches).await;
        drop(turn);
        match fetched {
            Ok(true) => {}
            Ok(false) => _ = engine.before(Stage::Stop, link.wait(WAIT, &of)).await,
            Err(error) => match engine.fatal(link.has_worked, error) {
                Some(error) => _ = engine.before(Stage::Stop, link.pause("fetch", &error)).await,
                None => return,
            },
        }
    }
}

/// Fetches kinds with a concurrency as their jobs end, while the other connection waits for jobs of
/// any kind.
pub(crate) async fn run_limited(engine: Arc<Engine>) {
    let next = |state: &State| -> Vec<String> {
        let has_room = |kind: &&String| engine.has_room(state) && engine.room_of(state, kind) > 0;
        state.abundant.iter().filter(has_room).cloned().collect()
    };
    let has_next = async || engine.until(|state| !next(state).is_empty()).await;
    while let Some(()) = engine.before(Stage::Stop, has_next()).await {
        let turn = engine.turn.lock().await;
        let mut link = engine.link.lock().await;
        let kinds = next(&engine.state.borrow());
        let fetched = engine.fetch(&mut link, &kinds).await;
        let pause = fetched.err().map(|error| link.failed("fetch", &error));
        drop((link, turn));
        if let Some(pause) = pause {
            engine.before(Stage::Stop, sleep(pause)).await;
        }
    }
}

impl Worker {
    /// The parameters of a fetch: the queues and the kinds, one per line, and the maximum number of
    /// jobs.
    pub(crate) fn asking(&self, queues: String, most: usize, kinds: &str) -> [String; 5] {
        let lease = self.options.lease.as_secs_f64().to_string();
        let name = self.options.name.clone();
        [queues, most.to_string(), name, lease, kinds.into()]
    }
}

impl Engine {
    /// Fetches jobs of these kinds and starts them. Returns whether to fetch again at once.
    async fn fetch(self: &Arc<Self>, link: &mut Link, fetches: &[String]) -> Result<bool> {
        // A command abandons connecting, but not a fetch under way: its jobs may be ours.
        let opened = self.before(Stage::Quiet, link.open()).await.transpose()?;
        let Some(()) = opened else { return Ok(true) };
        // They take turns to be the first.
        let first = self.change(|state| {
            state.fetches += 1;
            state.fetches % fetches.len().max(1)
        });
        let mut is_short = true;
        for kinds in fetches.iter().cycle().skip(first).take(fetches.len()) {
            let (queues, most) = self.next_fetch(kinds);
            let mut jobs = Vec::new();
            if most > 0 {
                let of = self.worker.asking(queues, most, kinds);
                let rows = link.run(FETCH, &of.each_ref().map(String::as_str)).await?;
                jobs = rows.iter().map(JobInfo::of).collect::<Result<_, _>>()?;
                is_short &= jobs.len() < most;
            }
            self.change(|state| {
                match jobs.len() == most && self.worker.limits(kinds).concurrency.is_some() {
                    true => _ = state.abundant.insert(kinds.clone()),
                    false => _ = state.abundant.remove(kinds),
                }
                state.waiting.extend(jobs.into_iter().map(Arc::new));
                state.release_waiting(state.stage > Stage::Run);
            });
            self.start();
        }
        Ok(!is_short)
    }

    /// How many jobs may be fetched.
    fn room(&self, state: &State) -> usize {
        self.worker.options.most().saturating_sub(state.held().count())
    }

    fn has_room(&self, state: &State) -> bool {
        state.stage == Stage::Run && state.unsent.len() < finish::MOST && self.room(state) > 0
    }

    /// How many jobs of these kinds may be fetched beside those that are here.
    fn room_of(&self, state: &State, kinds: &str) -> usize {
        let limit = self.worker.limits(kinds).concurrency.unwrap_or(usize::MAX);
        limit.saturating_sub(state.held().filter(|job| job.kind == kinds).count())
    }

    /// The queues in the order of the next fetch, and the number of jobs to ask for: what the first
    /// queue lacks of its share.
    fn next_fetch(&self, kinds: &str) -> (String, usize) {
        let state = self.state.borrow();
        let options = &self.worker.options;
        let places = |queue: &Queue| state.held().filter(|job| job.queue == queue.name).count();
        let load = |queue: &Queue| places(queue) as f64 / queue.weight;
        let mut queues: Vec<_> = options.queues.iter().collect();
        queues.sort_by(|a, b| load(a).total_cmp(&load(b)));
        let all: f64 = queues.iter().map(|queue| queue.weight).sum();
        let share = (options.most() as f64 * queues[0].weight / all).ceil() as usize;
        let lacks = share.saturating_sub(places(queues[0])).max(1);
        let room = self.room(&state).min(self.room_of(&state, kinds)).min(10_000);
        (names(queues), lacks.min(room))
    }
}
