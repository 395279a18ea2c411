//! A web application that inserts a job in the transaction of the row that it is about.
//!
//! ```text
//! DATABASE_URL=postgresql://postgres@localhost/app cargo run --example web
//! curl -d Ada localhost:8080
//! ```
//!
//! It needs `create table orders (id bigint generated always as identity, customer text)`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use postgres_jobs::{NewJob, insert};
use serde_json::json;
use sqlx::PgPool;

async fn order(State(pool): State<PgPool>, customer: String) -> Result<String, StatusCode> {
    place(&pool, &customer).await.map_err(|error| {
        eprintln!("no order: {error}");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

/// The order and its job are there together, or neither is.
pub async fn place(pool: &PgPool, customer: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut transaction = pool.begin().await?;
    let order: i64 = sqlx::query_scalar("insert into orders (customer) values ($1) returning id")
        .bind(customer)
        .fetch_one(&mut *transaction)
        .await?;
    let confirm = NewJob::new("order.confirm", json!({ "order": order }))?;
    insert(&mut *transaction, confirm).await?;
    transaction.commit().await?;
    Ok(format!("order {order}\n"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    let application = axum::Router::new().route("/", post(order)).with_state(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    Ok(axum::serve(listener, application).await?)
}
