//! What sessions do: insert, work, and change jobs by their ids.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{NoTls, Row};

use super::rules::{QUEUE, QUEUES, Who, key_sql};
use super::{Inserted, MOMENT, Scene, Span, Start};
use crate::{Client, Cluster, seconds};

/// Different values of each member of args.
const TENANTS: i64 = 5;
const OTHERS: i64 = 3;
/// So many more jobs are inserted than attempts were started.
const MOST_AHEAD: usize = 300;
/// Different keys that make jobs unique.
const UNIQUE: i64 = 12;
pub const LEASE: Duration = Duration::from_secs(1);
const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

pub fn seeded(rng: &mut StdRng) -> StdRng {
    StdRng::seed_from_u64(rng.random())
}

fn someone(rng: &mut StdRng) -> Who {
    Who { t: rng.random_range(0..TENANTS), u: rng.random_range(0..OTHERS) }
}

fn somewhere(rng: &mut StdRng) -> &'static str {
    QUEUES[usize::from(rng.random_bool(0.2))]
}

/// A session, as soon as the server takes one.
pub async fn connected(cluster: &Cluster, database: &str) -> Client {
    let mut config = cluster.config();
    config.dbname(database).application_name("keyed");
    loop {
        if let Ok((client, connection)) = config.connect(NoTls).await {
            tokio::spawn(async move {
                let _ = connection.await; // how it ended is what the client's calls return
            });
            return client;
        }
        seconds(0.02).await;
    }
}

/// A session that goes on after crashes, and in copies of its database.
struct Session {
    client: Option<(String, Client)>,
    level: &'static str,
}

impl Session {
    fn new(n: usize) -> Session {
        Session { client: None, level: LEVELS[n % LEVELS.len()] }
    }

    async fn client(&mut self, cluster: &Cluster, database: &str) -> &Client {
        let is_good = |(of, client): &(String, Client)| of == database && !client.is_closed();
        if !self.client.as_ref().is_some_and(is_good) {
            let client = connected(cluster, database).await;
            let set = format!("set default_transaction_isolation = '{}'", self.level);
            let _ = client.batch_execute(&set).await;
            self.client = Some((database.into(), client));
        }
        &self.client.as_ref().expect("it is there").1
    }
}

// --- inserting -----------------------------------------------------------------------------------

pub async fn insert(scene: Arc<Scene>, mut rng: StdRng, n: usize) {
    let mut session = Session::new(n);
    while !scene.is_over() {
        let ahead =
            scene.journal(|journal| journal.inserted.len().saturating_sub(journal.starts.len()));
        if ahead < MOST_AHEAD {
            let database = scene.database.read().await;
            let client = session.client(&scene.cluster, &database).await;
            insert_some(&scene, client, &mut rng).await;
        }
        seconds(rng.random_range(0.0..0.02)).await;
    }
}

/// How a job is to wait, or to be unique.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Due,
    Expires,
    Replace(i64),
    Update(i64),
}

/// Inserts a few jobs.
async fn insert_some(scene: &Scene, client: &Client, rng: &mut StdRng) {
    let some = rng.random_range(1..6);
    let (who, queue) = (someone(rng), somewhere(rng));
    let kind = if rng.random_bool(0.3) { "r" } else { "k" };
    let unique = rng.random_range(0..UNIQUE);
    let way = match rng.random_range(0..100) {
        0..8 => Way::Due,
        8..14 => Way::Expires,
        14..20 => Way::Replace(unique),
        20..26 => Way::Update(unique),
        _ => Way::Plain,
    };
    let delay = Duration::from_millis(rng.random_range(1..200));
    let policy = |on_conflict: &str| {
        format!(
            r#", unique_opts => '{{"key": "{unique}", "exclude_kind": true, "by_state": ["available", "scheduled", "retryable", "running"], "on_conflict": {on_conflict}}}'"#
        )
    };
    let (more, member) = match way {
        Way::Plain => (String::new(), String::new()),
        Way::Due => (
            format!(", scheduled_at => clock_timestamp() + '{} ms'", delay.as_millis()),
            String::new(),
        ),
        Way::Expires => (
            format!(", expires_at => clock_timestamp() + '{} ms'", 3 * delay.as_millis()),
            r#", "x": true"#.into(),
        ),
        Way::Replace(unique) => (policy(r#""replace""#), format!(r#", "w": {unique}"#)),
        Way::Update(unique) => (
            policy(r#"{"update": {"*": ["args", "queue", "kind", "priority"]}}"#),
            format!(r#", "w": {unique}"#),
        ),
    };
    let Who { t, u } = who;
    let priority = rng.random_range(1..4);
    let call = format!(
        r#"select id, unique_skipped_as_duplicate from jobs.insert_batch('{kind}', array_fill('{{"t": {t}, "u": {u}{member}}}'::jsonb, array[{some}]), queue => '{queue}', priority => {priority}, max_attempts => 1000, retry => '{{"strategy": "constant", "initial": 0.02}}'{more})"#
    );
    let span = Span::begin();
    let touches = matches!(way, Way::Replace(_) | Way::Update(_));
    let note = |span: Span| {
        scene.journal(|journal| {
            let all = journal.touched_by_key.entry(unique).or_default();
            all.retain(|other| other.sent != span.sent);
            all.push(span);
        });
    };
    if touches {
        note(span);
    }
    let rows = client.query(&call, &[]).await;
    let span = span.ended(client);
    if touches {
        note(span);
    }
    let Ok(rows) = rows else {
        return;
    };
    let not_before = match way {
        Way::Due => span.sent + delay,
        _ => span.sent,
    };
    let available = matches!(way, Way::Plain).then_some(span);
    scene.journal(|journal| {
        for (ord, row) in rows.iter().enumerate().filter(|(_, row)| !row.get::<_, bool>(1)) {
            let job = Inserted { who, queue, available, not_before, ord };
            journal.inserted.insert(row.get(0), job);
        }
    });
}

// --- working -------------------------------------------------------------------------------------

const FETCHED: &str = "id, token, (args->>'t')::bigint, (args->>'u')::bigint, queue, kind, (args->>'w')::bigint, args ? 'x', (extract(epoch from attempted_at) * 1000000)::bigint";

pub async fn work(scene: Arc<Scene>, mut rng: StdRng, n: usize) {
    let mut session = Session::new(n);
    while !scene.is_over() {
        let database = scene.database.read().await;
        let client = session.client(&scene.cluster, &database).await;
        let most = rng.random_range(1..4);
        let done = fetch_and_end(&scene, client, &mut rng, most, false).await;
        drop(database);
        if done == 0 {
            seconds(MOMENT).await;
        }
    }
}

/// Fetches up to so many jobs, and ends their attempts in all ways, or completes them; how many
/// there were.
pub async fn fetch_and_end(
    scene: &Scene,
    client: &Client,
    rng: &mut StdRng,
    most: usize,
    completes: bool,
) -> usize {
    let kinds = if !completes && rng.random_bool(0.1) { "'{k}'" } else { "null" };
    let fetch = format!(
        "select {FETCHED} from jobs.fetch_any('{{a,b}}', max_jobs => {most}, lease => '{} s', kinds => {kinds})",
        LEASE.as_secs()
    );
    let is_one = !completes && rng.random_bool(0.1);
    if is_one {
        let undone = format!("begin; select * from ({fetch}) f; rollback");
        if client.batch_execute(&undone).await.is_err() {
            let _ = client.batch_execute("rollback").await;
        }
        return 1;
    }
    let span = Span::begin();
    let Ok(rows) = client.query(&fetch, &[]).await else {
        return 0;
    };
    let span = Span { done: Some(Instant::now()), ..span };
    let first = scene.journal(|journal| {
        let first = journal.starts.len();
        journal.starts.extend(rows.iter().map(|row| start(row, span)));
        first
    });
    for (n, row) in rows.iter().enumerate() {
        if !completes {
            seconds(rng.random_range(0.0..0.004)).await;
        }
        let end = if completes { End::Complete } else { End::any(rng) };
        // Whatever fails, the lease of the job ends.
        end.done(scene, client, first + n, row.get(0), row.get(1)).await;
    }
    rows.len()
}

fn start(row: &Row, fetch: Span) -> Start {
    Start {
        id: row.get(0),
        who: Who { t: row.get(2), u: row.get(3) },
        queue: row.get(4),
        kind: row.get(5),
        unique: row.get(6),
        expires: row.get(7),
        fetch,
        at: row.get(8),
        ended: None,
        is_final: None,
        discarded: None,
    }
}

/// How an attempt ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    CompleteTwice,
    Fail,
    FailAtOnce,
    Discard,
    Snooze,
    Release,
    Cancel,
    /// Its lease ends later.
    Lose,
    Terminate,
}

impl End {
    fn any(rng: &mut StdRng) -> End {
        match rng.random_range(0..100) {
            0..5 => End::Fail,
            5..10 => End::FailAtOnce,
            10..14 => End::Discard,
            14..18 => End::Snooze,
            18..22 => End::Release,
            22..26 => End::Cancel,
            26..27 => End::Lose,
            27..28 => End::Terminate,
            28..33 => End::CompleteTwice,
            _ => End::Complete,
        }
    }

    async fn done(self, scene: &Scene, client: &Client, n: usize, id: i64, token: i64) {
        let complete = format!("select jobs.complete({id}, {token})::text");
        let call = match self {
            End::Complete => complete,
            End::CompleteTwice => format!("begin; {complete}; rollback; {complete}"),
            End::Fail => format!("select jobs.fail({id}, {token}, 'no', retry_in => '20 ms')"),
            End::FailAtOnce => format!("select jobs.fail({id}, {token}, 'no', retry_in => '0 s')"),
            End::Discard => {
                format!(
                    "select state::text from jobs.fail({id}, {token}, 'no', retryable => false)"
                )
            }
            End::Snooze => format!("select jobs.snooze({id}, {token}, '20 ms')"),
            End::Release => format!("select jobs.release({id}, {token})"),
            End::Cancel => format!("select jobs.cancel({id}, force => true)"),
            End::Lose => return,
            End::Terminate => "select pg_terminate_backend(pg_backend_pid())".into(),
        };
        let span = Span::begin();
        let ends = self != End::Terminate;
        let is_final =
            matches!(self, End::Complete | End::CompleteTwice | End::Discard | End::Cancel);
        scene.journal(|journal| {
            journal.starts[n].ended = ends.then_some(span.sent);
            journal.starts[n].is_final = is_final.then_some(span.sent);
        });
        if self != End::Discard {
            if client.batch_execute(&call).await.is_err() {
                let _ = client.batch_execute("rollback").await;
            }
            return;
        }
        let became = client.query_opt(&call, &[]).await;
        if became.is_ok_and(|row| row.is_some_and(|row| row.get::<_, &str>(0) == "discarded")) {
            let span = Span { done: Some(Instant::now()), ..span };
            scene.journal(|journal| journal.starts[n].discarded = Some(span));
        }
    }
}

// --- changing jobs by their ids ------------------------------------------------------------------

pub async fn manage(scene: Arc<Scene>, mut rng: StdRng) {
    let mut session = Session::new(0);
    while !scene.is_over() {
        seconds(rng.random_range(0.0..0.03)).await;
        let database = scene.database.read().await;
        let client = session.client(&scene.cluster, &database).await;
        if rng.random_bool(0.3) {
            unblock(&scene, client, someone(&mut rng)).await;
            check(&scene, client).await;
            continue;
        }
        let nth = rng.random_range(0..100);
        let id = scene.journal(|journal| journal.inserted.keys().rev().nth(nth).copied());
        let Some(id) = id else {
            continue;
        };
        let Who { t, u } = someone(&mut rng);
        let call = match rng.random_range(0..8) {
            0 => format!(
                r#"select jobs.update({id}, args => (select args || '{{"t": {t}, "u": {u}}}' from jobs.jobs where id = {id}))"#
            ),
            1 => format!("select jobs.update({id}, queue => '{}')", somewhere(&mut rng)),
            2 => format!("select jobs.update({id}, priority => {})", rng.random_range(1..4)),
            3 => format!("select jobs.cancel({id})"),
            4 => format!("select jobs.cancel({id}, force => true)"),
            5 => format!("select jobs.delete({id})"),
            _ => format!("select jobs.retry({id})"),
        };
        let span = Span::begin();
        scene.journal(|journal| journal.touched.entry(id).or_default().push(span));
        let _ = client.batch_execute(&call).await;
        scene.journal(|journal| {
            let all = journal.touched.entry(id).or_default();
            let own = all.iter_mut().find(|other| other.sent == span.sent);
            *own.expect("it was noted") = span.ended(client);
        });
    }
}

/// Unblocks the key of somebody, in whatever order there is.
async fn unblock(scene: &Scene, client: &Client, who: Who) {
    let order = scene.rules.lock().unwrap().order.latest().copied().flatten();
    let Some(order) = order.filter(|order| order.is_strict) else {
        return;
    };
    let key = order.by.key(who);
    let span = Span::begin();
    scene.journal(|journal| journal.unblocked.push((key, span)));
    let _ =
        client.batch_execute(&format!("select jobs.unblock('{QUEUE}', {})", key_sql(key))).await;
    scene.journal(|journal| {
        let own = journal.unblocked.iter_mut().find(|(_, other)| other.sent == span.sent);
        own.expect("it was noted").1 = span.ended(client);
    });
}

/// Every invariant holds at any time, except that maintenance releases held jobs shortly after a
/// change of their limit or order.
async fn check(scene: &Scene, client: &Client) {
    let check = "select c.invariant || ': ' || c.job_ids::text || (select coalesce(string_agg(p::text, '; '), '') from (
          select 'ready' as place, to_jsonb(r) as row from jobs.ready r where r.job_id = c.job_ids[1]
          union all select 'scheduled', to_jsonb(r) from jobs.scheduled r where r.job_id = c.job_ids[1]
          union all select 'running', to_jsonb(r) from jobs.running r where r.job_id = c.job_ids[1]
          union all select 'finished', to_jsonb(r) from jobs.finished r where r.job_id = c.job_ids[1]
          union all select 'job', to_jsonb(r) from jobs.job r where r.id = c.job_ids[1]
          union all select 'audit', to_jsonb(r) from jobs.audit r where r.target = c.job_ids[1]::text) p) from jobs.check() c where c.invariant <> 'held'";
    if let Ok(rows) = client.query(check, &[]).await {
        let found = rows.iter().map(|row| row.get::<_, String>(0));
        scene.journal(|journal| {
            for one in found {
                if !journal.broken.contains(&one) {
                    journal.broken.push(one);
                }
            }
        });
    }
}
