//! The shortest way through the extension, and that it leaves nothing behind.

use jobs_tests::{Client, Cluster, row_of, rows_of, run, with};
use serde_json::{Value, json};

#[tokio::test]
async fn insert_fetch_complete() {
    let (_cluster, db) = with("smoke", &[]).await;

    let args = json!({"user_id": 42});
    let row = db
        .query_one(
            "select id, state::text, unique_skipped_as_duplicate from jobs.insert(kind => 'email.send', args => $1)",
            &[&args],
        )
        .await
        .unwrap();
    let id: i64 = row.get(0);
    assert_eq!(row.get::<_, &str>(1), "available");
    assert!(!row.get::<_, bool>(2));

    let job = row_of(&db, "select id, token, attempt, kind, args from jobs.fetch()").await;
    assert_eq!(job.get::<_, i64>(0), id);
    assert_eq!(job.get::<_, i32>(2), 1);
    assert_eq!(job.get::<_, &str>(3), "email.send");
    assert_eq!(job.get::<_, Value>(4), args);
    assert!(rows_of(&db, "select id from jobs.fetch()").await.is_empty());

    let token: i64 = job.get(1);
    let state = db.query_one("select jobs.complete($1, $2)::text", &[&id, &token]).await.unwrap();
    assert_eq!(state.get::<_, &str>(0), "completed");
    let state =
        db.query_one("select state::text from jobs.jobs where id = $1", &[&id]).await.unwrap();
    assert_eq!(state.get::<_, &str>(0), "completed");
}

#[tokio::test]
async fn drop_leaves_nothing_behind() {
    let cluster = Cluster::start();
    let db = cluster.connect("postgres").await;
    let before = objects(&db).await;
    for _ in 0..2 {
        run(&db, "create extension jobs").await;
        run(&db, "select jobs.insert('email.send', unique_opts => '{\"by_args\": true}')").await;
        assert_ne!(objects(&db).await, before);
        run(&db, "drop extension jobs").await;
        assert_eq!(objects(&db).await, before);
    }
}

/// Every object of the database by name: what pg_depend knows about and what only its own catalog
/// does.
async fn objects(db: &Client) -> Vec<String> {
    let rows = rows_of(db, "select 'schema ' || nspname from pg_namespace where nspname !~ '^pg_(toast_)?temp_'
             union all select 'relation ' || oid::regclass::text from pg_class where relnamespace <> 'pg_toast'::regnamespace
             union all select 'toast ' || oid::regclass::text from pg_class where relnamespace = 'pg_toast'::regnamespace
             union all select 'function ' || oid::regprocedure::text from pg_proc
             union all select 'type ' || oid::regtype::text from pg_type
             union all select 'operator ' || oid::regoperator::text from pg_operator
             union all select 'cast ' || castsource::regtype || ' as ' || casttarget::regtype from pg_cast
             union all select 'trigger ' || tgname from pg_trigger
             union all select 'event trigger ' || evtname from pg_event_trigger
             union all select 'extension ' || extname from pg_extension
             union all select 'role ' || rolname from pg_roles
             union all select 'default privileges ' || oid from pg_default_acl
             union all select 'comment ' || classoid::regclass || ' ' || objoid from pg_description
             order by 1").await;
    rows.iter().map(|row| row.get(0)).collect()
}
