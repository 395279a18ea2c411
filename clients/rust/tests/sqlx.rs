//! Jobs by sqlx, in the database at DATABASE_URL, which has the extension. Without one there is
//! nothing to see.
#![cfg(feature = "sqlx")]

use std::sync::Arc;
use std::time::Duration;

use postgres_jobs::{
    By, Error, Job, Kind, KindOptions, NewJob, Options, State, Unique, Want, Worker, insert,
    insert_many, testing, wait_for,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;

async fn connect() -> Option<PgConnection> {
    let url = std::env::var("DATABASE_URL").ok()?;
    Some(PgConnection::connect(&url).await.unwrap())
}

fn worker(queue: &str) -> Worker {
    let url = std::env::var("DATABASE_URL").unwrap();
    let options = Options { queues: vec![queue.into()], ..Options::default() };
    Worker::new(url.parse().unwrap(), options).unwrap()
}

#[tokio::test]
async fn a_transaction_has_its_jobs() {
    let Some(mut connection) = connect().await else {
        return;
    };
    let queue = format!("sqlx {}", std::process::id());
    let job = |n: i32, unique_opts| NewJob {
        queue: Some(queue.clone()),
        unique_opts,
        ..NewJob::new(&queue, json!({ "n": n })).unwrap()
    };
    let mut transaction = connection.begin().await.unwrap();
    let unique = Some(Unique { by_args: Some(By::ALL), by_queue: true, ..Unique::default() });
    let first = insert(&mut *transaction, job(1, unique.clone())).await.unwrap();
    let again = insert(&mut *transaction, job(1, unique)).await.unwrap();
    assert_eq!((first.id, first.is_duplicate), (again.id, false));
    assert!(again.is_duplicate);
    let many = insert_many(&mut *transaction, vec![job(2, None), job(3, None)]).await.unwrap();
    assert_eq!(many.len(), 2);
    let three = testing::assert_inserted(&mut *transaction, &queue, json!({ "n": 3 })).await;
    assert_eq!(Some(three.unwrap().id), many[1].id);
    let handler = async |job: Job<Value>| match job.args["n"].as_i64() {
        Some(1) => Ok(job.args["n"].clone()),
        _ => Err(Error::new("no").discard()),
    };
    let worker = worker(&queue).kind(&queue, handler);
    let ran = testing::work_all(&mut *transaction, &worker).await.unwrap();
    let states: Vec<State> = ran.iter().map(|one| one.state).collect();
    assert_eq!(states, [State::Completed, State::Discarded, State::Discarded]);
    transaction.rollback().await.unwrap();
    let gone = testing::assert_inserted(&mut connection, &queue, json!({ "n": 1 })).await;
    let gone = gone.unwrap_err().to_string();
    assert_eq!(
        gone,
        format!(
            "no job of kind \"{queue}\" has args {{\"n\":1}}; the newest of that kind have:\n[]"
        )
    );
}

#[tokio::test]
async fn a_refusal_keeps_its_sqlstate() {
    let Some(mut connection) = connect().await else {
        return;
    };
    let job = NewJob::new("", ()).unwrap();
    let refused = insert(&mut connection, job).await.unwrap_err();
    assert_eq!(refused.code().as_deref(), Some("22023"));
    let text = refused.to_string();
    assert!(text.contains("kind must not be empty"), "{text}");
}

#[tokio::test]
async fn a_handler_completes_its_job_in_its_transaction() {
    let Some(mut connection) = connect().await else {
        return;
    };
    let queue = format!("sqlx in transaction {}", std::process::id());
    let worker = worker(&queue).kind("k", async |job: Job<Value>| {
        let mut connection = connect().await.ok_or_else(|| Error::new("no database"))?;
        let mut transaction = connection.begin().await?;
        job.complete(&mut *transaction, "in the transaction").await?;
        transaction.commit().await?;
        Ok("by the worker")
    });
    let running = worker.start().unwrap();
    let job = NewJob { queue: Some(queue), ..NewJob::new("k", ()).unwrap() };
    let id = insert(&mut connection, job).await.unwrap().id.unwrap();
    let results =
        wait_for(&mut connection, &[id], Duration::from_secs(60), Want::All).await.unwrap();
    assert_eq!(results[0].state, Some(State::Completed));
    assert_eq!(results[0].output::<String>().unwrap(), "in the transaction");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_uses_the_connection_of_the_test() {
    let Some(mut connection) = connect().await else {
        return;
    };
    let queue = format!("sqlx in test {}", std::process::id());
    let begin = "begin; create temporary table done (n bigint)";
    sqlx::raw_sql(begin).execute(&mut connection).await.unwrap();
    let db = Arc::new(Mutex::new(connection));
    let job = |n: i64| NewJob { queue: Some(queue.clone()), ..NewJob::new(&queue, n).unwrap() };
    let jobs = vec![job(1), job(2), job(3)];
    insert_many(db.clone(), jobs).await.unwrap();
    let in_handler = db.clone();
    let worker = worker(&queue).kind(&queue, move |job: Job<i64>| {
        let db = in_handler.clone();
        async move {
            let mut db = db.lock().await;
            let done = sqlx::query("insert into done values ($1)").bind(job.args);
            done.execute(&mut *db).await?;
            match job.args {
                1 => Ok("by the worker"),
                2 => Err(Error::new("no").discard()),
                _ => Ok(job.complete(&mut *db, "in the test").await.map(|()| "unsaid")?),
            }
        }
    });
    let ran = testing::work_all(db.clone(), &worker).await.unwrap();
    let outputs: Vec<_> = ran.iter().map(|one| one.output.clone()).collect();
    let expected = [Some(json!("by the worker")), None, Some(json!("in the test"))];
    assert_eq!(outputs, expected);
    let done = sqlx::query_scalar("select n from done order by n");
    let done: Vec<i64> = done.fetch_all(&mut *db.lock().await).await.unwrap();
    assert_eq!(done, [1, 3]);
}

#[tokio::test]
async fn outside_a_transaction_no_job_is_taken() {
    let Some(mut connection) = connect().await else {
        return;
    };
    let queue = format!("sqlx outside {}", std::process::id());
    let job = NewJob { queue: Some(queue.clone()), ..NewJob::new(&queue, ()).unwrap() };
    insert(&mut connection, job).await.unwrap();
    let worker = worker(&queue).kind(&queue, async |_: Job<Value>| Ok(()));
    let refused = testing::work_all(&mut connection, &worker).await.unwrap_err();
    assert!(refused.to_string().contains("transaction block"), "{refused}");
    let job = testing::assert_inserted(&mut connection, &queue, ()).await.unwrap();
    assert_eq!(job.state, State::Available);
}

#[tokio::test]
async fn what_is_synced_is_unchanged_in_every_normal_form() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Named;

    impl Kind for Named {
        const NAME: &str = "sqlx cafe\u{301}";

        fn options() -> KindOptions {
            KindOptions { queue: Some(Self::NAME.into()), ..KindOptions::default() }
        }
    }

    let Some(mut connection) = connect().await else {
        return;
    };
    let mut transaction = connection.begin().await.unwrap();
    let worker = worker("q").handle(async |_: Job<Named>| Ok(()));
    for outcome in ["created", "unchanged"] {
        let changes = worker.sync(&mut *transaction).await.unwrap();
        assert_eq!(changes[0].outcome, outcome);
    }
}

#[tokio::test]
async fn tests_see_every_digit_and_survive_values_that_they_cannot_read() {
    let Some(mut connection) = connect().await else {
        return;
    };
    let queue = format!("sqlx odd {}", std::process::id());
    let mut transaction = connection.begin().await.unwrap();
    let job = NewJob { queue: Some(queue.clone()), ..NewJob::new(&queue, u128::MAX).unwrap() };
    insert(&mut *transaction, job).await.unwrap();
    testing::assert_inserted(&mut *transaction, &queue, u128::MAX).await.unwrap();
    let absent = testing::assert_inserted(&mut *transaction, &queue, u128::MAX - 1).await;
    assert!(absent.unwrap_err().to_string().contains("no job of kind"));
    let sql = "select jobs.insert($1, '1e400', queue => $1, meta => '{\"m\": 1e400}')";
    sqlx::query(sql).bind(&queue).execute(&mut *transaction).await.unwrap();
    let huge = RawValue::from_string("1e400".into()).unwrap();
    let inserted = testing::assert_inserted(&mut *transaction, &queue, &huge).await.unwrap();
    assert_eq!(inserted.args, Value::Null);
    let handler = async |job: Job<Box<RawValue>>| Ok(job.args);
    let worker = worker(&queue).kind(&queue, handler);
    let ran = testing::work_all(&mut *transaction, &worker).await.unwrap();
    assert!(ran.iter().all(|one| one.state == State::Completed), "{ran:?}");
    assert_eq!(ran[1].output, None);
}
