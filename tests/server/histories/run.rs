//! Sessions that say what was generated, and write down what they are told and when.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jobs_tests::Client;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::answers::{cells, facts, refused, wrong_task};
use super::generate::{Lease, Plan, Pool, Say};
use super::model::*;

/// One session of a history.
struct Session<'a> {
    client: &'a Client,
    number: usize,
    plan: &'a Plan,
    rng: StdRng,
    pool: Arc<Mutex<Pool>>,
    began: Instant,
    transactions: Vec<Transaction>,
}

/// Runs a history with as many connections as it has sessions, and one to look in the end.
pub async fn run(plan: &Plan, clients: &[Client], gone: &[State]) -> History {
    let pool = Arc::new(Mutex::new(Pool::default()));
    let began = Instant::now();
    let session = |number: usize| Session {
        client: &clients[number],
        number,
        plan,
        rng: StdRng::seed_from_u64(plan.seed.wrapping_mul(31).wrapping_add(number as u64)),
        pool: pool.clone(),
        began,
        transactions: Vec::new(),
    };
    let mut running: Vec<_> =
        (0..plan.sessions).map(|number| Box::pin(session(number).run())).collect();
    let mut transactions = Vec::new();
    // All at once: each is polled as it wakes.
    let all = std::future::poll_fn(|context| {
        running.retain_mut(|session| match session.as_mut().poll(context) {
            std::task::Poll::Ready(done) => {
                transactions.extend(done);
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    all.await;
    drop(running);
    let mut last = session(plan.sessions);
    last.alone(Say::Look).await;
    transactions.extend(last.transactions);
    History { gone: gone.to_vec(), transactions }
}

impl Session<'_> {
    async fn run(mut self) -> Vec<Transaction> {
        // Maintenance is there all the time, in transactions that are short.
        let reaps = self.plan.is_reaper(self.number);
        let (mut left, alone) =
            if reaps { (2 * self.plan.calls, 0.85) } else { (self.plan.calls, 0.35) };
        while left > 0 {
            if self.rng.random_bool(alone) {
                let say = self.random_say();
                self.alone(say).await;
                left -= 1;
            } else {
                let calls = self.rng.random_range(1..=4.min(left));
                self.transaction(calls).await;
                left -= calls;
            }
            self.pause(0.2).await;
        }
        self.transactions
    }

    fn random_say(&mut self) -> Say {
        let mut pool = self.pool.lock().expect("the pool");
        Say::random(self.plan, self.number, &mut self.rng, &mut pool)
    }

    /// A call that is a transaction of its own.
    async fn alone(&mut self, say: Say) {
        let call = self.call(&say).await;
        let (span, committed) = (call.span, call.error.is_none());
        if may_try_again(&call) {
            self.give_back(&say.leases());
        }
        self.transactions.push(Transaction {
            session: self.number,
            level: "read committed",
            steps: vec![Step::Call(call), Step::End { span, committed }],
        });
    }

    async fn transaction(&mut self, calls: usize) {
        let level = ["read committed", "read committed", "repeatable read", "serializable"]
            [self.rng.random_range(0..4)];
        self.tell(&format!("begin isolation level {level}")).await.expect("begin");
        let mut steps = Vec::new();
        // Where each open savepoint was set, in steps and in leases.
        let mut saved: Vec<usize> = Vec::new();
        let mut leases: Vec<Lease> = Vec::new();
        let mut failed_at = None;
        for _ in 0..calls {
            if self.rng.random_bool(0.2) {
                steps.push(Step::Savepoint(self.tell("savepoint a").await.expect("savepoint")));
                saved.push(leases.len());
            }
            let say = self.random_say();
            let call = self.call(&say).await;
            let (begin, failed) = (call.span.begin, call.error.is_some());
            let again = may_try_again(&call);
            if again || !failed {
                leases.extend(say.leases());
            }
            steps.push(Step::Call(call));
            if failed && (saved.is_empty() || again) {
                failed_at = Some(begin);
                break;
            }
            if !saved.is_empty() && (failed || self.rng.random_bool(0.25)) {
                let mut span = self.tell("rollback to a").await.expect("rollback to");
                if failed {
                    span.begin = begin;
                }
                steps.push(Step::RollbackTo(span));
                let undone = leases.split_off(*saved.last().expect("one"));
                self.give_back(&undone);
            }
            if !saved.is_empty() && self.rng.random_bool(0.3) {
                steps.push(Step::Release(self.tell("release a").await.expect("release")));
                saved.pop();
            }
            self.pause(0.3).await;
        }
        let commits = failed_at.is_none() && self.rng.random_bool(0.8);
        let end = self.tell(if commits { "commit" } else { "rollback" }).await;
        let committed = commits && end.is_ok();
        let mut span = end.unwrap_or_else(|(span, code)| {
            assert_eq!((code.as_str(), level), ("40001", "serializable"), "a commit fails");
            span
        });
        span.begin = failed_at.unwrap_or(span.begin);
        if !committed {
            self.give_back(&leases);
        }
        steps.push(Step::End { span, committed });
        self.transactions.push(Transaction { session: self.number, level, steps });
    }

    fn give_back(&self, leases: &[Lease]) {
        self.pool.lock().expect("the pool").leases.extend(leases);
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Now and then a pause, so that others come in between.
    async fn pause(&mut self, probability: f64) {
        if self.rng.random_bool(probability) {
            tokio::time::sleep(Duration::from_micros(self.rng.random_range(0..2500))).await;
        }
    }

    async fn tell(&self, sql: &str) -> Result<Span, (Span, String)> {
        let begin = self.now();
        let answer = self.client.batch_execute(sql).await;
        let span = Span { begin, end: self.now() };
        answer.map(|()| span).map_err(|error| (span, jobs_tests::sqlstate::<()>(Err(error))))
    }

    async fn call(&mut self, say: &Say) -> Call {
        let begin = self.now();
        let answer = self.client.simple_query(&say.sql(self.plan)).await;
        let span = Span { begin, end: self.now() };
        let mut call = Call {
            span,
            text: String::new(),
            facts: Vec::new(),
            error: None,
            keys: say.keys(),
            maintains: matches!(say, Say::Maintain),
        };
        match answer {
            Ok(rows) => {
                let rows: Vec<Vec<Option<String>>> = rows.iter().filter_map(cells).collect();
                call.facts = facts(say, &rows);
                if call.maintains {
                    call.error = rows.iter().find_map(|row| wrong_task(row));
                }
                call.text = format!("{say:?} -> {rows:?}");
            }
            Err(error) => {
                let code = error.code().map_or("lost", |code| code.code()).to_string();
                let detail =
                    error.as_db_error().and_then(|error| error.detail()).unwrap_or_default();
                call.facts = refused(say, &code, detail);
                call.text = format!(
                    "{say:?} -> {code} {detail} {}",
                    error.as_db_error().map_or("", |e| e.message())
                );
                call.error = Some(code);
            }
        }
        self.learn(&call);
        call
    }

    /// Tells the other sessions of new jobs, and of leases that are new or not over.
    fn learn(&self, call: &Call) {
        let mut pool = self.pool.lock().expect("the pool");
        for fact in &call.facts {
            match fact {
                Fact::Insert { reply: Reply::Inserted { id, .. }, .. } => pool.jobs.push(*id),
                Fact::Fetch { job, token }
                | Fact::Finish { job, token, reply: Err(Refusal::Locked), .. } => {
                    pool.leases.push((*job, *token))
                }
                _ => {}
            }
        }
    }
}

/// Whether the call failed for a reason that says nothing of what it wanted.
fn may_try_again(call: &Call) -> bool {
    matches!(call.error.as_deref(), Some("40001" | "40P01"))
}
