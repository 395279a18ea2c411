//! TLS, with the server at DATABASE_URL, whose certificate is in the file JOBS_CERTIFICATE. It is
//! for the address of the URL, and of no authority that a system trusts. Without one there is
//! nothing to see.
#![cfg(feature = "tls")]

use postgres_jobs::{connect, trust};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode::{self, Disable, Prefer, Require};

/// Whether a connection is encrypted; none: there is none.
async fn is_encrypted(config: &Config, mode: SslMode) -> Option<bool> {
    let client = connect(config.clone().ssl_mode(mode)).await.ok()?;
    let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    Some(client.query_one(ssl, &[]).await.unwrap().get(0))
}

#[tokio::test]
async fn a_connection_is_encrypted_if_the_certificate_is_trusted_and_of_the_server() {
    let (Ok(url), Ok(certificate)) =
        (std::env::var("DATABASE_URL"), std::env::var("JOBS_CERTIFICATE"))
    else {
        return;
    };
    let config: Config = url.parse().unwrap();
    assert_eq!(is_encrypted(&config, Require).await, None, "not trusted");
    assert_eq!(is_encrypted(&config, Prefer).await, Some(false));
    trust(certificate.as_ref()).unwrap();
    assert_eq!(is_encrypted(&config, Require).await, Some(true));
    assert_eq!(is_encrypted(&config, Prefer).await, Some(true));
    assert_eq!(is_encrypted(&config, Disable).await, Some(false));
    let named: Config = url.replace("127.0.0.1", "localhost").parse().unwrap();
    assert_eq!(is_encrypted(&named, Require).await, None, "of another name");
    assert_eq!(is_encrypted(&named, Disable).await, Some(false));
}
