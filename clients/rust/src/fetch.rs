//! The connection that fetches jobs, and waits for them.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use crate::attempt::Attempt;
use crate::error::Ending;
use crate::finish;
use crate::job::JobInfo;
use crate::link::{Link, Parameter};
use crate::run::{Attempts, Command, Core, Held};
use crate::worker::Queue;

const FETCH: &str = "
select id, token, kind, queue, args, meta, tags, priority, attempt, max_attempts,
        created_at, scheduled_at, attempted_at,
        date_part('epoch', deadline_at - clock_timestamp()) as left
    from jobs.fetch_any(queues => $1, max_jobs => $2, worker => $3,
        lease => make_interval(secs => $4), kinds => $5)";
const WAIT: &str = "call jobs.wait_any($1, timeout => '30 s', worker => $2)";

/// Fetches and starts jobs until the worker is to end.
pub(crate) async fn run(core: Arc<Core>) {
    let mut fetcher = Fetcher {
        link: core.worker.link(),
        held: core.held.subscribe(),
        command: core.command.subscribe(),
        core: core.clone(),
        latest: Ok(true),
        in_vain: 0,
    };
    // A fetch under way is never abandoned: its jobs may be ours. A wait may be.
    let draining = &core.is_draining;
    while let Some(()) = draining.run_until_cancelled(fetcher.prepare()).await {
        fetcher.latest = fetcher.fetch().await;
    }
}

struct Fetcher {
    core: Arc<Core>,
    link: Link,
    held: watch::Receiver<Attempts>,
    command: watch::Receiver<Option<Command>>,
    /// Whether the latest fetch got all that it asked for.
    latest: Result<bool, Error>,
    /// How often in a row there was nothing, though a wait had said that there might be.
    in_vain: u32,
}

impl Fetcher {
    /// Waits until there is reason to fetch: a place, and perhaps a job.
    async fn prepare(&mut self) {
        match std::mem::replace(&mut self.latest, Ok(true)) {
            Ok(true) => {}
            Ok(false) => self.wait().await,
            Err(error) => self.link.pause(&error).await,
        }
        while let Err(error) = self.link.open().await {
            self.link.pause(&error).await;
        }
        let runs = |command: &Option<Command>| *command == Some(Command::Run);
        // Guards of watched values are not to be held.
        drop(self.command.wait_for(runs).await);
        let core = &self.core;
        let mut used = core.worker.options.concurrency;
        let has_room =
            |held: &Attempts| core.places(held).count() < used && held.len() < used + finish::MOST;
        drop(self.held.wait_for(has_room).await);
        // What other handlers leave now goes with it.
        loop {
            tokio::task::yield_now().await;
            let known = std::mem::replace(&mut used, core.places(&core.held.borrow()).count());
            if used >= known {
                break;
            }
        }
    }

    async fn wait(&mut self) {
        let began = Instant::now();
        let (queues, name) = (self.core.worker.queues(), &self.core.worker.options.name);
        let of: [Parameter<'_>; 2] = [(&queues, Type::TEXT_ARRAY), (name, Type::TEXT)];
        self.link.wait(WAIT, &of).await;
        let is_short = began.elapsed() < Duration::from_millis(20);
        self.in_vain = (self.in_vain + 1).min(10) * u32::from(is_short);
        if self.in_vain > 2 {
            // The queues have jobs, but none that we may have.
            sleep(Duration::from_millis(1 << self.in_vain)).await;
        }
    }

    async fn fetch(&mut self) -> Result<bool, Error> {
        let (queues, most) = self.core.next_fetch();
        let (worker, options) = (&self.core.worker, &self.core.worker.options);
        let (lease, kinds) = (options.lease.as_secs_f64(), worker.kinds());
        let of: [Parameter<'_>; 5] = [
            (&queues, Type::TEXT_ARRAY),
            (&most, Type::INT4),
            (&options.name, Type::TEXT),
            (&lease, Type::FLOAT8),
            (&kinds, Type::TEXT_ARRAY),
        ];
        let rows = self.link.rows(FETCH, &of).await?;
        if !rows.is_empty() {
            self.in_vain = 0;
        }
        let jobs: Result<_, _> = rows.iter().map(JobInfo::of).collect();
        self.core.start(jobs?);
        Ok(rows.len() == most as usize)
    }
}

impl Core {
    /// The attempts that count for the concurrency.
    fn places<'a>(&self, held: &'a Attempts) -> impl Iterator<Item = &'a Arc<Attempt>> {
        let is_stuck = self.finisher.is_stuck.load(SeqCst);
        let attempts = held.values().map(|held| &held.attempt);
        attempts.filter(move |attempt| {
            let state = attempt.state();
            state.runs || is_stuck && state.is_unsent()
        })
    }

    fn start(self: &Arc<Self>, jobs: Vec<JobInfo>) {
        let options = &self.worker.options;
        self.held.send_modify(|held| {
            for job in jobs {
                let handler = self.worker.handler(&job.kind);
                let timeout = options.kind_timeouts.get(&job.kind).copied();
                let finisher = Some(self.finisher.clone());
                let attempt = Attempt::new(job, timeout.or(options.timeout), finisher);
                let token = attempt.job.token;
                let mut task = None;
                if self.is_draining.is_cancelled() {
                    attempt.state().runs = false;
                    attempt.finish(Ending::Release {});
                } else {
                    let work = tokio::spawn(self.clone().work(attempt.clone()));
                    task = (!handler.is_blocking).then(|| work.abort_handle());
                }
                held.insert(token, Held { attempt, task });
            }
        });
        self.finisher.look.notify_one();
    }

    /// The queues in the order of the next fetch, and the most jobs that it asks for: what the
    /// first queue lacks of its share.
    fn next_fetch(&self) -> (Vec<&str>, i32) {
        let held = self.held.borrow();
        let options = &self.worker.options;
        let used = |name: &str| {
            self.places(&held)
                .filter(|one| one.job.queue == name)
                .count()
        };
        let load = |queue: &Queue| used(&queue.name) as f64 / queue.weight;
        let mut queues: Vec<_> = options.queues.iter().collect();
        queues.sort_by(|a, b| load(a).total_cmp(&load(b)));
        let all: f64 = queues.iter().map(|queue| queue.weight).sum();
        let share = (options.concurrency as f64 * queues[0].weight / all).ceil() as usize;
        let free = options
            .concurrency
            .saturating_sub(self.places(&held).count());
        let lacks = share.saturating_sub(used(&queues[0].name));
        let most = lacks.clamp(1, free.clamp(1, 10_000));
        let names = queues.iter().map(|queue| &*queue.name).collect();
        (names, most as i32)
    }
}
