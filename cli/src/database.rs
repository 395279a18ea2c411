//! Which database it is, as psql is told it.

use std::env::var;
use std::path::Path;
use std::str::FromStr;

use clap::Args;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use crate::{Failed, NOT_CONNECTED};

#[derive(Args)]
#[command(next_help_heading = "Database, as psql has it; PGHOST, PGPASSWORD and others count")]
pub(crate) struct Database {
    /// Name, URL or key=value text of the database
    #[arg(short, long, global = true, value_name = "DATABASE")]
    dbname: Option<String>,
    /// Host, or directory of the socket
    #[arg(long, global = true)]
    host: Option<String>,
    /// Port
    #[arg(short, long, global = true)]
    port: Option<String>,
    /// User
    #[arg(short = 'U', long, global = true)]
    username: Option<String>,
}

impl Database {
    pub(crate) async fn connect(&self) -> Result<Client, Failed> {
        let connected = postgres_jobs::connect(&self.config()?).await;
        connected.map_err(|error| Failed {
            code: NOT_CONNECTED,
            ..error.into()
        })
    }

    /// What the text says goes first, then the options, then the environment.
    pub(crate) fn config(&self) -> Result<Config, Failed> {
        let mut config = self.place()?;
        if config.get_user().is_none() {
            let user = either(&self.username, "PGUSER").or_else(|| whoami::username().ok());
            config.user(user.ok_or_else(|| Failed::new(NOT_CONNECTED, "give a user: --username"))?);
        }
        if config.get_dbname().is_none() {
            let user = config.get_user().unwrap_or_default().to_owned();
            config.dbname(user);
        }
        if config.get_password().is_none()
            && let Some(password) = var("PGPASSWORD").ok().or_else(|| password_of_file(&config))
        {
            config.password(password);
        }
        Ok(config)
    }

    /// Where the database is, without a user and a password that the text does not have.
    pub(crate) fn place(&self) -> Result<Config, Failed> {
        let text = self.dbname.clone().or_else(|| var("PGDATABASE").ok());
        let (mut config, mut has_mode) = (Config::new(), false);
        match text {
            Some(text) if text.contains("://") || text.contains('=') => {
                has_mode = text.contains("sslmode=");
                // What is verified cannot be less than what these ask for.
                let text = ["verify-full", "verify-ca"]
                    .iter()
                    .fold(text, |text, mode| {
                        text.replace(&format!("sslmode={mode}"), "sslmode=require")
                    });
                config = text.replace("sslmode=allow", "sslmode=prefer").parse()?;
            }
            Some(name) => {
                config.dbname(name);
            }
            None => {}
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let hosts = either(&self.host, "PGHOST").unwrap_or_else(default_host);
            for host in hosts.split(',') {
                config.host(host);
            }
        }
        if config.get_ports().is_empty()
            && let Some(ports) = either(&self.port, "PGPORT")
        {
            for port in ports.split(',') {
                config.port(number(port, "port")?);
            }
        }
        if let (Ok(mode), false) = (var("PGSSLMODE"), has_mode) {
            config.ssl_mode(match mode.as_str() {
                "disable" => SslMode::Disable,
                "allow" | "prefer" => SslMode::Prefer,
                _ => SslMode::Require,
            });
        }
        if let (Ok(seconds), None) = (var("PGCONNECT_TIMEOUT"), config.get_connect_timeout()) {
            config.connect_timeout(std::time::Duration::from_secs(number(&seconds, "timeout")?));
        }
        if let (Ok(options), None) = (var("PGOPTIONS"), config.get_options()) {
            config.options(options);
        }
        if let (Ok(name), None) = (var("PGAPPNAME"), config.get_application_name()) {
            config.application_name(name);
        }
        if let ("read-write" | "primary", TargetSessionAttrs::Any) = (
            &*var("PGTARGETSESSIONATTRS").unwrap_or_default(),
            config.get_target_session_attrs(),
        ) {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(config)
    }
}

fn either(option: &Option<String>, name: &str) -> Option<String> {
    option.clone().or_else(|| var(name).ok())
}

fn number<T: FromStr>(text: &str, what: &str) -> Result<T, Failed> {
    text.parse()
        .map_err(|_| Failed::new(NOT_CONNECTED, format!("{text} is no {what}")))
}

/// The first directory that can have the server's socket.
fn default_host() -> String {
    let directories = ["/var/run/postgresql", "/run/postgresql", "/tmp"];
    let found = directories
        .into_iter()
        .find(|directory| Path::new(directory).is_dir());
    found.unwrap_or("localhost").into()
}

/// What PGPASSFILE or ~/.pgpass has for this host, port, database and user.
fn password_of_file(config: &Config) -> Option<String> {
    let file = var("PGPASSFILE")
        .or_else(|_| var("HOME").map(|home| home + "/.pgpass"))
        .ok()?;
    let text = std::fs::read_to_string(file).ok()?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.as_str(),
        _ => "localhost",
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let wanted = [host, &port, config.get_dbname()?, config.get_user()?];
    text.lines().find_map(|line| {
        let fields = fields(line);
        let is_it = |(field, wanted): (&String, &&str)| field == "*" || field == wanted;
        let fits = fields.len() == 5 && fields.iter().zip(&wanted).all(is_it);
        fits.then(|| fields[4].clone())
    })
}

/// The fields of a line of a password file, in which a backslash makes the next character plain.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == ':' && fields.len() < 5 {
            fields.push(String::new());
            continue;
        }
        let plain = if character == '\\' {
            characters.next()
        } else {
            Some(character)
        };
        fields.iter_mut().last().expect("a field").extend(plain);
    }
    fields
}
