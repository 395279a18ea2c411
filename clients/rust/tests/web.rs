//! The web application of the examples, in the database at DATABASE_URL, which has the extension.
//! Without one there is nothing to see.
#![cfg(feature = "sqlx")]

#[allow(dead_code, reason = "the test places orders without HTTP")]
#[path = "../examples/web.rs"]
mod web;

use postgres_jobs::testing;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

async fn confirms(pool: &PgPool) -> i64 {
    let count = "select count(*) from jobs.jobs where kind = 'order.confirm'";
    sqlx::query_scalar(count).fetch_one(pool).await.unwrap()
}

/// The second order is refused as late as can be, at its commit: after its job's insert.
#[tokio::test]
async fn an_order_has_its_job_in_its_transaction() {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        return;
    };
    let one = PgPoolOptions::new().max_connections(1);
    let pool = one.connect(&url).await.unwrap();
    let table = "create temporary table orders (id bigint generated always as identity,
        customer text unique deferrable initially deferred)";
    sqlx::raw_sql(table).execute(&pool).await.unwrap();
    let before = confirms(&pool).await;
    assert_eq!(web::place(&pool, "Ada").await.unwrap(), "order 1\n");
    let mut connection = pool.acquire().await.unwrap();
    let inserted =
        testing::assert_inserted(&mut *connection, "order.confirm", json!({ "order": 1 }));
    inserted.await.unwrap();
    drop(connection);
    let refused = web::place(&pool, "Ada").await.unwrap_err().to_string();
    assert!(refused.contains("orders_customer_key"), "{refused}");
    assert_eq!(confirms(&pool).await, before + 1);
}
