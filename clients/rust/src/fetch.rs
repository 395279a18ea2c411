//! The connection that fetches jobs and waits for them.

use std::sync::Arc;

use crate::engine::{Engine, Stage, State};
use crate::job::JobInfo;
use crate::link::{Link, PATIENCE};
use crate::worker::{Queue, names};
use crate::{ClientError, Error, Worker, finish};

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
    let free = |state: &State| options.concurrency.saturating_sub(state.places().count());
    let has_room = |state: &State| {
        state.stage == Stage::Run && state.unsent.len() < finish::MOST && free(state) > 0
    };
    let of = [&*names(&options.queues), &options.name];
    let mut link = engine.worker.link(PATIENCE);
    while let Some(()) = engine.before(Stage::Stop, engine.until(has_room)).await {
        engine.gather(free).await;
        match engine.fetch(&mut link).await {
            Ok(true) => {}
            Ok(false) => _ = engine.before(Stage::Stop, link.wait(WAIT, &of)).await,
            Err(error) => _ = engine.before(Stage::Stop, link.pause(&error)).await,
        }
    }
}

impl Worker {
    /// The parameters of a fetch: the queues, one per line, and the maximum number of jobs.
    pub(crate) fn asking(&self, queues: String, most: usize) -> [String; 5] {
        let lease = self.options.lease.as_secs_f64().to_string();
        let name = self.options.name.clone();
        [queues, most.to_string(), name, lease, self.kinds()]
    }
}

impl Engine {
    /// Fetches jobs and starts them. Returns whether to fetch again at once.
    async fn fetch(self: &Arc<Self>, link: &mut Link) -> Result<bool, ClientError> {
        // A command abandons connecting, but not a fetch under way: its jobs may be ours.
        let opened = self.before(Stage::Quiet, link.open()).await.transpose()?;
        let Some(()) = opened else { return Ok(true) };
        let (queues, most) = self.next_fetch();
        let of = self.worker.asking(queues, most);
        let rows = link.run(FETCH, &of.each_ref().map(String::as_str)).await?;
        let jobs: Vec<_> = rows.iter().map(JobInfo::of).collect::<Result<_, _>>()?;
        self.change(|state| {
            for job in jobs.into_iter().map(Arc::new) {
                if state.stage < Stage::Stop {
                    state.running.insert(job.token, job.clone());
                    self.part(self.clone().attend(job)).detach();
                } else {
                    state.settle(&job, &Err(Error::release()));
                }
            }
        });
        Ok(rows.len() == most)
    }

    /// The queues in the order of the next fetch, and the number of jobs to ask for: what the first
    /// queue lacks of its share.
    fn next_fetch(&self) -> (String, usize) {
        let state = self.state.borrow();
        let options = &self.worker.options;
        let places = |queue: &Queue| {
            let places = state.places();
            places.filter(|job| job.queue == queue.name).count()
        };
        let load = |queue: &Queue| places(queue) as f64 / queue.weight;
        let mut queues: Vec<_> = options.queues.iter().collect();
        queues.sort_by(|a, b| load(a).total_cmp(&load(b)));
        let all: f64 = queues.iter().map(|queue| queue.weight).sum();
        let share = (options.concurrency as f64 * queues[0].weight / all).ceil() as usize;
        let free = options.concurrency.saturating_sub(state.places().count());
        let lacks = share.saturating_sub(places(queues[0]));
        (names(queues), lacks.clamp(1, free.clamp(1, 10_000)))
    }
}
