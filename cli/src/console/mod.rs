//! `pgjobs console`: pages that show the queue and manage it, as a role of the database may.
//!
//! A request passes `serve`, `guard` and `attach` to the handler of a screen. The handler takes a
//! `Visit`, which has the session, or a `Change`, which also has a form. It reads and calls as the
//! `Role` of that visit. A failure is a `Problem`, which `page::framed` turns into a page.

mod app;
mod assets;
mod attach;
mod connection;
mod edited;
mod fields;
mod filter;
mod guard;
mod http;
mod interval;
mod json;
mod links;
mod live;
mod login;
mod login_attempts;
mod login_token;
mod monitor;
mod page;
mod paging;
mod parts;
mod problem;
mod role;
mod room;
mod screens;
mod serve;
mod session;
mod stream;
mod theme;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use clap::{Args, value_parser};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::Config;

use self::app::{App, Cells};
use self::connection::Pool;
use self::live::Live;
use self::login_attempts::Attempts;
use self::login_token::Tokens;
use self::problem::Problem;
use self::role::Role;
use self::screens::{
    audit, bulk, cells, failures, job, job_actions, job_carried, job_edit, jobs_list, limit,
    limits, maintenance, order, overview, periodic, periodic_job, queue, queue_limits, queues,
    unique, unique_try, worker, workers,
};
use self::session::Sessions;
use crate::database::{self, Database};
use crate::failed::{Failed, REFUSED, WRONG};
use crate::seconds::seconds;
use crate::terminal::{log, print};
use crate::visible;

/// The largest form: a megabyte of args takes three in a form.
const LARGEST_FORM: usize = 8 << 20;
/// How long a connection to the server may take.
const CONNECT: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Console {
    /// Database of a cell: name, URL or connection string. Repeat it for each cell
    #[arg(long = "database", value_name = "DATABASE")]
    databases: Vec<String>,
    /// Address and port to listen on; any but loopback needs --login or --allow-unauthenticated
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8088")]
    listen: String,
    /// Path under which a proxy serves the console
    #[arg(long, value_name = "PATH", default_value = "", value_parser = prefix)]
    prefix: String,
    /// Disable all actions
    #[arg(long)]
    read_only: bool,
    /// Require a database role and its password. Without --login, everyone acts as the role that
    /// the console connects as, and the console is read-only on any address but loopback
    #[arg(long)]
    login: bool,
    /// Serve other machines without --login, read-only: anyone who reaches the address sees what
    /// the role sees
    #[arg(long)]
    allow_unauthenticated: bool,
    /// Host name that browsers may use without --login, besides localhost and IP addresses; can be
    /// repeated
    #[arg(long = "allow-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Maximum number of connections to each database, for all roles together
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u16).range(2..=1000))]
    max_connections: u16,
    /// Maximum number of browser connections per address; a proxy may need more
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..=1000))]
    max_per_address: u16,
    /// Seconds after which a connection that reads nothing of an answer is closed
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, hide = true)]
    write_timeout: Duration,
}

fn prefix(text: &str) -> Result<String, String> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "/-_.~".contains(one);
    let text = text.trim_end_matches('/');
    match text.is_empty()
        || text.starts_with('/') && !text.contains("//") && text.chars().all(is_plain)
    {
        true => Ok(text.into()),
        false => Err("must be a path such as /jobs".into()),
    }
}

impl Console {
    pub(crate) async fn run(self, database: &Database, json: bool) -> Result<(), Failed> {
        let databases = match &self.databases[..] {
            [] => vec![database.clone()],
            several => several.iter().map(|one| database.at(one)).collect::<Result<_, _>>()?,
        };
        let configs =
            databases.iter().map(|one| self.config(one)).collect::<Result<Vec<_>, _>>()?;
        let listener = TcpListener::bind(&self.listen).await;
        let listener = listener.map_err(|error| {
            Failed::new(REFUSED, format!("cannot listen on {}: {error}", self.listen))
        })?;
        let address = listener.local_addr()?;
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !self.login && !is_loopback && !self.allow_unauthenticated {
            let message = format!(
                "anyone who reaches {address} could read the queue\n\
                 HINT: Use --login to require a role and its password, or \
                 --allow-unauthenticated to serve everyone read-only."
            );
            return Err(Failed::new(WRONG, message));
        }
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let is_read_only = self.read_only || !self.login && !is_loopback;
        let are_several = configs.len() > 1;
        let app = |(place, config): (usize, Config)| {
            let pool = Pool::new(self.max_connections.into());
            let place = if are_several { format!("/db{}", place + 1) } else { String::new() };
            Arc::new(App {
                prefix: format!("{}{place}", self.prefix),
                root: self.prefix.clone(),
                address: database::address(&config),
                is_read_only,
                has_login: self.login,
                is_loopback,
                allowed_hosts: self.allowed_hosts.clone(),
                process: (!self.login).then(|| Arc::new(Role::new(&config, &pool))),
                database: config,
                pool,
                sessions: Sessions::default(),
                attempts: Attempts::default(),
                tokens: Tokens::default(),
                health: tokio::sync::Mutex::default(),
                live: Live::default(),
            })
        };
        let cells: Cells = configs.into_iter().enumerate().map(app).collect();
        let mut names: Vec<_> = cells.iter().filter_map(|cell| cell.process.as_ref()).collect();
        names.dedup_by_key(|role| &*role.name);
        let names: Vec<_> = names.iter().map(|role| &*role.name).collect();
        let url = format!("http://{address}{}", cells[0].home());
        if json {
            let login = self.login;
            print(json!({ "url": url, "login": login, "roles": names, "read_only": is_read_only }));
        } else {
            let who = if self.login {
                "with login".into()
            } else {
                format!("as role {}", names.join(", "))
            };
            let read_only = if is_read_only { ", read-only" } else { "" };
            print(format_args!("{url} {}{read_only}", visible::line(&who)));
        }
        if self.login && !is_loopback {
            log("passwords and pages are sent unencrypted unless a proxy in front uses https");
        }
        for cell in &*cells {
            tokio::spawn(tell(cell.clone()));
            tokio::spawn(tidy(cell.clone()));
        }
        let stop = async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        };
        let limits =
            serve::Limits { per_address: self.max_per_address.into(), write: self.write_timeout };
        serve::until(stop, listener, &router(&cells), limits).await;
        Ok(())
    }

    fn config(&self, database: &Database) -> Result<Config, Failed> {
        let mut config = match self.login {
            true => without_credentials(database)?,
            false => database.config()?,
        };
        config.application_name("jobs console");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        Ok(config)
    }
}

/// With --login, the console has no credentials of its own.
fn without_credentials(database: &Database) -> Result<Config, Failed> {
    let config = database.place()?;
    if config.get_password().is_some() {
        return Err(Failed::new(REFUSED, "--login does not accept a password for the database"));
    }
    match config.get_dbname() {
        Some(_) => Ok(config),
        None => Err(Failed::new(REFUSED, "--login requires --dbname")),
    }
}

/// Tells open pages to refresh.
async fn tell(app: Arc<App>) {
    let process = app.process.as_ref();
    app.live.run(process, &app.sessions, &app.pool).await;
}

/// Closes unused sessions and connections.
async fn tidy(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(15)).await;
        app.sessions.tidy();
        app.attempts.tidy();
        app.pool.tidy();
    }
}

/// The screens and their actions.
fn screens() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(overview::show))
        .route("/jobs", get(jobs_list::list))
        .route("/jobs/suggestions", get(jobs_list::suggestions))
        .route("/jobs/{id}", get(job::page))
        .route("/jobs/{id}/raw", get(job_carried::raw))
        .route("/jobs/{id}/edit", get(job_edit::page).post(job_edit::update))
        .route("/jobs/{id}/retry", post(job_actions::retry))
        .route("/jobs/{id}/cancel", post(job_actions::cancel))
        .route("/jobs/{id}/activate", post(job_actions::activate))
        .route("/jobs/{id}/delete", post(job_actions::delete))
        .route("/bulk", get(bulk::preview).post(bulk::act))
        .route("/failures", get(failures::failures))
        .route("/queues", get(queues::queues))
        .route("/queue", get(queue::queue))
        .route("/queue/pause", post(queue::pause))
        .route("/queue/resume", post(queue::resume))
        .route("/queue/limits", post(queue::set_limits))
        .route("/queue/reset", post(queue_limits::reset))
        .route("/limits", get(limits::limits))
        .route("/limit", get(limit::limit))
        .route("/limit/key", get(limit::key))
        .route("/limit/pause", post(limit::pause))
        .route("/limit/resume", post(limit::resume))
        .route("/limit/drop", post(limit::drop))
        .route("/limit/set", post(limit::set))
        .route("/limit/override", post(limit::override_key))
        .route("/order", get(order::order))
        .route("/order/set", post(order::set))
        .route("/order/remove", post(order::remove))
        .route("/order/unblock", post(order::unblock))
        .route("/workers", get(workers::workers))
        .route("/worker", get(worker::worker))
        .route("/worker/quiet", post(worker::quiet))
        .route("/worker/stop", post(worker::stop))
        .route("/worker/resume", post(worker::resume))
        .route("/periodic", get(periodic::periodic))
        .route("/periodic/job", get(periodic_job::periodic_job))
        .route("/periodic/pause", post(periodic_job::pause))
        .route("/periodic/resume", post(periodic_job::resume))
        .route("/periodic/run", post(periodic_job::run))
        .route("/unique", get(unique::unique))
        .route("/unique/explain", post(unique_try::explain))
        .route("/audit", get(audit::audit))
        .route("/maintenance", get(maintenance::maintenance))
        .route("/maintenance/pause", post(maintenance::pause))
        .route("/maintenance/resume", post(maintenance::resume))
        .route("/maintenance/run", post(maintenance::run))
        .route("/maintenance/check", post(maintenance::check))
}

/// Every address of a database.
fn pages(app: &Arc<App>) -> Router<Arc<App>> {
    // Unauthenticated requests must be small.
    let login = post(login::login).layer(DefaultBodyLimit::max(login::LARGEST));
    let framed = screens()
        .route("/login", get(login::ask).merge(login))
        .route("/logout", post(login::logout))
        .route("/theme", post(theme::keep))
        .route("/live", get(stream::stream))
        .fallback(no_page)
        .layer(middleware::from_fn_with_state(app.clone(), page::framed))
        .layer(middleware::from_fn_with_state(app.clone(), attach::attach));
    framed
        .route("/assets/{tag}/{name}", get(assets::serve))
        .route("/healthz", get(monitor::health))
        .route("/metrics", get(monitor::metrics))
}

/// Every address of several databases.
fn pages_of_cells(cells: &Cells) -> Router<Arc<App>> {
    let all = Router::new()
        .route("/", get(cells::cells))
        .route("/jobs", get(cells::to_job))
        .route("/cell/{number}/{*path}", get(cells::to_cell))
        .fallback(no_page)
        .layer(middleware::from_fn_with_state(cells[0].clone(), page::framed))
        .route("/healthz", get(monitor::health_of_cells))
        .route("/metrics", get(monitor::metrics_of_cells));
    cells.iter().fold(all, |all, app| {
        let overview = app.url("/");
        let to_overview = async move || http::see_other(&overview);
        all.route(app.place(), get(to_overview))
            .nest_service(&format!("{}/", app.place()), pages(app).with_state(app.clone()))
    })
}

/// Every address of the console.
fn router(cells: &Cells) -> Router {
    let app = &cells[0];
    let all = if app.is_cell() { pages_of_cells(cells) } else { pages(app) };
    let all = match &*app.root {
        "" => all,
        root => Router::new().nest(&format!("{root}/"), all).fallback(elsewhere),
    };
    all.layer(DefaultBodyLimit::max(LARGEST_FORM))
        .layer(Extension(cells.clone()))
        .layer(middleware::from_fn_with_state(app.clone(), guard::guarded))
        .with_state(app.clone())
}

async fn no_page() -> Problem {
    Problem::no_page()
}

/// Requests outside the prefix.
async fn elsewhere(State(app): State<Arc<App>>, request: Request) -> Response {
    match request.uri().path() {
        path if path == "/" || path == app.root => http::see_other(&app.home()),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_path() {
        let cases = [("", ""), ("/", ""), ("/jobs", "/jobs"), ("/a/b/", "/a/b")];
        for (given, kept) in cases {
            assert_eq!(prefix(given).as_deref(), Ok(kept));
        }
        for refused in ["jobs", "//elsewhere", "/a b", "/a\r\nb", "/{x}", "/a?b"] {
            assert!(prefix(refused).is_err(), "{refused}");
        }
    }
}
