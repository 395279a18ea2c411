//! The connection that fetches jobs, and waits for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::engine::{Engine, Stage, State};
use crate::error::Ending;
use crate::executor::query;
use crate::job::{FETCH, JobInfo};
use crate::link::Link;
use crate::worker::{Queue, names};
use crate::{Result, finish};

const WAIT: &str = "
call jobs.wait_any(string_to_array($1::jsonb->>0, e'\n'), worker => $1::jsonb->>1)";

/// Fetches and starts jobs until the worker is to end.
pub(crate) async fn run(engine: &Arc<Engine>) {
    let options = &engine.worker.options;
    let most = options.concurrency;
    let has_room = |state: &State| {
        let is_full = state.places().count() >= most || state.unsent.len() >= finish::MOST;
        state.stage == Stage::Run && !is_full
    };
    let mut link = engine.worker.link();
    // How often in a row there was nothing, though a wait had said that there might be.
    let mut in_vain = 0;
    while let Some(()) = engine.before(Stage::Stop, engine.until(has_room)).await {
        let free = |state: &State| most.saturating_sub(state.places().count());
        engine.gather(free).await;
        // A fetch under way is never abandoned: its jobs may be ours. A wait may be.
        let fetched = engine.fetch(&mut link).await;
        let pause = async {
            match fetched {
                Ok((jobs, asked)) if jobs == asked => in_vain = 0,
                Ok((jobs, _)) => {
                    let began = Instant::now();
                    link.wait(WAIT, (names(&options.queues), &options.name))
                        .await;
                    let is_vain = jobs == 0 && began.elapsed() < Duration::from_millis(20);
                    in_vain = (in_vain + 1).min(10) * u32::from(is_vain);
                    if in_vain > 2 {
                        // The queues have jobs, but none that we may have.
                        sleep(Duration::from_millis(1 << in_vain)).await;
                    }
                }
                Err(error) => link.pause(&error).await,
            }
        };
        engine.before(Stage::Stop, pause).await;
    }
}

impl Engine {
    /// Fetches jobs, and starts them. Returns how many there are, and how many it has asked for.
    async fn fetch(self: &Arc<Self>, link: &mut Link) -> Result<(usize, usize)> {
        let (options, kinds) = (&self.worker.options, self.worker.kinds());
        let (queues, most) = self.next_fetch();
        let lease = options.lease.as_secs_f64();
        let of = (queues, most, &options.name, lease, kinds);
        let jobs: Vec<JobInfo> = query(link, FETCH, of).await?;
        let count = jobs.len();
        self.change(|state| {
            for job in jobs.into_iter().map(Arc::new) {
                if state.stage < Stage::Stop {
                    state.running.insert(job.token, job.clone());
                    tokio::spawn(self.clone().attend(job));
                } else {
                    state.settle(&job, Ending::Release {});
                }
            }
        });
        Ok((count, most))
    }

    /// The queues in the order of the next fetch, and the most jobs that it asks for: what the
    /// first queue lacks of its share.
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
