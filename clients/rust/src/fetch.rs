//! The connection that fetches jobs, and waits for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::select;

use crate::connection::{Link, array, back_off};
use crate::handler::work;
use crate::job::{Attempt, JobInfo};
use crate::worker::{Command, Core};

pub(crate) const FETCH: &str = "
select to_json(f)::text from (
    select id, token, kind, queue, args, meta, tags, priority, attempt, max_attempts,
        extract(epoch from created_at) as created_at,
        extract(epoch from scheduled_at) as scheduled_at,
        extract(epoch from attempted_at) as attempted_at,
        extract(epoch from deadline_at - clock_timestamp()) as left
    from jobs.fetch_any(queues => $1::text::text[], max_jobs => $2::text::integer, worker => $3,
        lease => $4::text::interval, kinds => nullif($5, '')::text[])) f";
const WAIT: &str = "call jobs.wait_any($1::text::text[], timeout => '30 s', worker => $2)";

/// Fetches and starts jobs until the worker is to end.
pub(crate) async fn run(core: Arc<Core>) {
    let mut link = Link::new(core.config(), core.is_draining.clone());
    let mut running = core.running.subscribe();
    let mut command = core.command.subscribe();
    let lease = format!("{} s", core.worker.lease.as_secs_f64());
    let kinds = core.worker.fetched_kinds();
    // How often in a row there was nothing, though a wait had said that there might be.
    let mut disappointments = 0;
    loop {
        select! {
            biased;
            () = core.is_draining.cancelled() => break,
            // Guards of watched values are not to be held.
            () = async {
                let _ = command.wait_for(|command| *command == Some(Command::Run)).await;
                let _ = running.wait_for(|running| running.len() < core.worker.concurrency).await;
            } => {}
        }
        // Handlers that are ready to end make room for one fetch together.
        tokio::task::yield_now().await;
        let (queues, most) = core.next_fetch();
        let (names, most_text) = (array(&queues), most.to_string());
        let parameters = [&*names, &most_text, &core.worker.name, &lease, &kinds];
        let rows = match link.rows(FETCH, &parameters).await {
            Ok(rows) => rows,
            Err(error) => {
                disappointments += 1;
                tracing::error!(%error, "cannot fetch");
                pause(&core, back_off(disappointments)).await;
                continue;
            }
        };
        for row in &rows {
            match serde_json::from_str::<JobInfo>(row) {
                Ok(job) => start(&core, job),
                Err(error) => tracing::error!(%error, "a job that cannot be read"),
            }
        }
        if !rows.is_empty() {
            disappointments = 0;
        }
        if rows.len() == most {
            continue;
        }
        if disappointments > 2 {
            // The queues have jobs, but none that we may have.
            let longest = Duration::from_secs(1);
            pause(&core, back_off(disappointments - 3).min(longest)).await;
        }
        let began = Instant::now();
        let of = [&*names, &core.worker.name];
        select! {
            waited = link.wait(WAIT, &of) => match waited {
                Err(error) => {
                    tracing::error!(%error, "cannot wait");
                    pause(&core, Duration::from_secs(1)).await;
                }
                Ok(_) if began.elapsed() > Duration::from_millis(100) => disappointments = 0,
                Ok(_) => disappointments += 1,
            },
            () = core.is_draining.cancelled() => {}
        }
    }
    link.cancel().await;
}

fn start(core: &Arc<Core>, job: JobInfo) {
    let worker = &core.worker;
    let Some(handler) = worker.handler(&job.kind) else {
        tracing::error!(
            id = job.id,
            kind = job.kind,
            "fetched a kind without a handler"
        );
        return;
    };
    let timeout = worker.timeouts.get(&job.kind).unwrap_or(&worker.timeout);
    let attempt = Attempt::new(job, *timeout, core.requests.clone());
    let begin =
        |running: &mut HashMap<_, _>| drop(running.insert(attempt.job.token, attempt.clone()));
    core.running.send_modify(begin);
    tokio::spawn(work(core.clone(), attempt, handler.clone()));
}

async fn pause(core: &Core, pause: Duration) {
    select! { () = tokio::time::sleep(pause) => {}, () = core.is_draining.cancelled() => {} }
}

impl Core {
    /// The queues in the order of the next fetch, and the most jobs that it asks for: what the
    /// first queue lacks of its share.
    fn next_fetch(&self) -> (Vec<&str>, usize) {
        let running = self.running.borrow();
        let queues = &self.worker.queues;
        let used = |name: &str| {
            running
                .values()
                .filter(|attempt| attempt.job.queue == name)
                .count()
        };
        let mut loads: Vec<_> = queues
            .iter()
            .map(|queue| (used(&queue.name), queue))
            .collect();
        loads.sort_by(|(a, of_a), (b, of_b)| {
            (*a as f64 / of_a.weight).total_cmp(&(*b as f64 / of_b.weight))
        });
        let all: f64 = queues.iter().map(|queue| queue.weight).sum();
        let (used, first) = loads[0];
        let share = (self.worker.concurrency as f64 * first.weight / all) as usize;
        let free = self.worker.concurrency.saturating_sub(running.len()).max(1);
        let most = share.saturating_sub(used).clamp(1, free.min(10_000));
        (loads.iter().map(|(_, queue)| &*queue.name).collect(), most)
    }
}
