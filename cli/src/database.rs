//! The database to connect to, given as for psql.

use std::collections::BTreeMap;
use std::env::var;
use std::path::Path;

use clap::Args;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config};

use crate::failed::{Failed, NOT_CONNECTED, WRONG};

#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Connection, as in psql; PGHOST, PGPASSWORD and others apply")]
pub(crate) struct Database {
    /// Database name, URL or connection string
    #[arg(short, long, global = true, value_name = "DATABASE")]
    dbname: Option<String>,
    /// Server host or socket directory
    #[arg(long, global = true)]
    host: Option<String>,
    /// Server port
    #[arg(short, long, global = true)]
    port: Option<String>,
    /// User name
    #[arg(short = 'U', long, global = true)]
    username: Option<String>,
}

/// The settings of a connection by libpq's names. An empty value counts as unset.
type Settings = BTreeMap<String, String>;
/// Looks up environment variables.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How a setting is used.
enum Use {
    /// Passed to tokio-postgres unchanged.
    Passed,
    /// Handled in this file.
    Own,
    /// Has no effect here.
    Ignored,
    /// Not supported, and unsafe to ignore.
    Refused,
}
use Use::{Ignored, Own, Passed, Refused};

/// Settings of libpq with their environment variables.
const SETTINGS: &[(&str, &str, Use)] = &[
    ("host", "PGHOST", Passed),
    ("hostaddr", "PGHOSTADDR", Passed),
    ("port", "PGPORT", Passed),
    ("dbname", "PGDATABASE", Passed),
    ("user", "PGUSER", Passed),
    ("password", "PGPASSWORD", Passed),
    ("passfile", "PGPASSFILE", Own),
    ("service", "PGSERVICE", Own),
    ("connect_timeout", "PGCONNECT_TIMEOUT", Passed),
    ("options", "PGOPTIONS", Passed),
    ("application_name", "PGAPPNAME", Passed),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", Own),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", Passed),
    ("tcp_user_timeout", "", Passed),
    ("keepalives", "", Passed),
    ("keepalives_idle", "", Passed),
    ("keepalives_interval", "", Passed),
    ("keepalives_count", "", Own),
    ("sslmode", "PGSSLMODE", Own),
    ("sslrootcert", "PGSSLROOTCERT", Own),
    ("sslnegotiation", "PGSSLNEGOTIATION", Passed),
    ("channel_binding", "PGCHANNELBINDING", Passed),
    ("client_encoding", "PGCLIENTENCODING", Ignored),
    ("fallback_application_name", "", Ignored),
    ("gssdelegation", "PGGSSDELEGATION", Ignored),
    ("gssencmode", "PGGSSENCMODE", Ignored),
    ("gsslib", "PGGSSLIB", Ignored),
    ("krbsrvname", "PGKRBSRVNAME", Ignored),
    ("sslcompression", "PGSSLCOMPRESSION", Ignored),
    ("sslsni", "PGSSLSNI", Ignored),
    ("replication", "", Refused),
    ("require_auth", "PGREQUIREAUTH", Refused),
    ("requirepeer", "PGREQUIREPEER", Refused),
    ("sslcert", "PGSSLCERT", Refused),
    ("sslcertmode", "PGSSLCERTMODE", Refused),
    ("sslcrl", "PGSSLCRL", Refused),
    ("sslcrldir", "PGSSLCRLDIR", Refused),
    ("sslkey", "PGSSLKEY", Refused),
    ("sslpassword", "", Refused),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", Refused),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Refused),
];

/// Environment variables of libpq with the settings of the session that they set.
const SESSION: [(&str, &str); 3] =
    [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

impl Database {
    /// A name, URL or connection string. The environment supplies the rest.
    pub(crate) fn named(text: &str) -> Self {
        Self { dbname: Some(text.into()), ..Self::default() }
    }

    /// As [`Self::named`], but the other options apply as well.
    pub(crate) fn at(&self, text: &str) -> Result<Self, Failed> {
        match self.dbname {
            None => Ok(Self { dbname: Some(text.into()), ..self.clone() }),
            Some(_) => Err(Failed::new(WRONG, "--dbname and --database exclude each other")),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failed> {
        let connected = postgres_jobs::connect(&self.config()?).await;
        connected.map_err(|error| Failed { code: NOT_CONNECTED, ..error.into() })
    }

    pub(crate) fn config(&self) -> Result<Config, Failed> {
        let mut settings = self.settings(true, &variable)?;
        if !settings.contains_key("user") {
            let user = whoami::username();
            let user = user.map_err(|_| wrong("no user name: use --username"))?;
            settings.insert("user".into(), user);
        }
        if !settings.contains_key("dbname") {
            settings.insert("dbname".into(), settings["user"].clone());
        }
        let mut config = configured(&settings)?;
        if config.get_password().is_none()
            && let Some(password) = password_of_file(&config, settings.get("passfile"))
        {
            config.password(password);
        }
        Ok(config)
    }

    /// Adds which function grants the connection's role what it lacks.
    pub(crate) fn hinted(&self, mut failed: Failed, grant: &str) -> Failed {
        if failed.lacks_right {
            let config = self.config();
            let role = config.ok().and_then(|config| config.get_user().map(str::to_owned));
            let role = role.unwrap_or("ROLE".into()).replace('\'', "''");
            let hint = format!("Ask an administrator to run SELECT jobs.{grant}('{role}').");
            failed.hint = Some(hint);
        }
        failed
    }

    /// The connection without a user and password, unless the text has them.
    pub(crate) fn place(&self) -> Result<Config, Failed> {
        configured(&self.settings(false, &variable)?)
    }

    /// The text takes precedence, then the options, a service, and the environment.
    fn settings(&self, has_role: bool, variable: Variables) -> Result<Settings, Failed> {
        let text = self.dbname.clone().or_else(|| variable("PGDATABASE"));
        let mut settings = match text.unwrap_or_default() {
            text if is_url(&text) => of_url(&text)?,
            text if text.contains('=') => of_text(&text)?,
            name => Settings::from([("dbname".into(), name)]),
        };
        settings.retain(|_, value| !value.is_empty());
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                settings.entry(key.into()).or_insert(value);
            }
        };
        add("host", self.host.clone());
        add("port", self.port.clone());
        if has_role {
            add("user", self.username.clone());
        }
        add("service", variable("PGSERVICE"));
        if let Some(service) = settings.get("service") {
            let told = of_service(service, variable)?;
            settings = told.into_iter().chain(settings).collect();
        }
        for (key, name, _) in SETTINGS {
            let is_told = match *key {
                "user" | "password" => has_role,
                // A connection string was read above, or is overridden.
                "dbname" => !variable(name).is_some_and(|name| is_url(&name) || name.contains('=')),
                _ => true,
            };
            if let (true, Some(value)) = (is_told, variable(name)) {
                settings.entry((*key).into()).or_insert(value);
            }
        }
        // The server applies them after the options.
        for (name, setting) in SESSION {
            let value = variable(name).filter(|value| !value.eq_ignore_ascii_case("default"));
            if let Some(value) = value {
                let value = value.replace('\\', r"\\").replace(' ', r"\ ");
                let options = settings.entry("options".into()).or_default();
                *options += &format!(" -c {setting}={value}");
            }
        }
        if !["host", "hostaddr"].iter().any(|key| settings.contains_key(*key)) {
            settings.insert("host".into(), default_host());
        }
        Ok(settings)
    }
}

/// Hosts, ports and the name of the database, for people.
pub(crate) fn address(config: &Config) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => directory.display().to_string(),
    });
    let mut places: Vec<String> = hosts.collect();
    if places.is_empty() {
        places = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    let ports = config.get_ports();
    for (index, place) in places.iter_mut().enumerate() {
        match ports.get(index).or(ports.first()) {
            None | Some(5432) => {}
            Some(port) => *place += &format!(":{port}"),
        }
    }
    format!("{}/{}", places.join(","), config.get_dbname().unwrap_or_default())
}

/// A variable of the environment. An empty one counts as not set.
fn variable(name: &str) -> Option<String> {
    var(name).ok().filter(|value| !value.is_empty())
}

fn wrong(message: impl Into<String>) -> Failed {
    Failed::new(NOT_CONNECTED, message)
}

/// The configuration of these settings. Also sets the trusted certificates.
fn configured(settings: &Settings) -> Result<Config, Failed> {
    let (settings, certificates) = translated(settings)?;
    if let Some(file) = certificates {
        let trusted = postgres_jobs::trust(Path::new(&file));
        trusted.map_err(|error| wrong(format!("sslrootcert {file}: {error}")))?;
    }
    parsed(&settings)
}

/// The configuration of settings that are tokio-postgres' own.
fn parsed(settings: &Settings) -> Result<Config, Failed> {
    let quoted = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
    let texts = settings.iter().map(|(key, value)| format!("{key}='{}'", quoted(value)));
    let config = texts.collect::<Vec<_>>().join(" ").parse();
    config.map_err(|error| wrong(Failed::from(error).message))
}

/// The settings for tokio-postgres, and the file of the trusted certificates unless the system's
/// are used.
fn translated(settings: &Settings) -> Result<(Settings, Option<String>), Failed> {
    let get = |key| settings.get(key).map(String::as_str);
    let mut own = Settings::new();
    for (key, value) in settings {
        match SETTINGS.iter().find(|(name, _, _)| name == key) {
            Some((_, _, Passed)) => {
                own.insert(key.clone(), value.clone());
            }
            Some((_, _, Own | Ignored)) => {}
            Some((_, _, Refused)) => return Err(wrong(format!("{key} is not supported"))),
            None => return Err(wrong(format!("unknown connection option \"{key}\""))),
        }
    }
    if get("gssencmode") == Some("require") {
        return Err(wrong("gssencmode=require is not supported"));
    }
    let certificates = get("sslrootcert");
    // Verification must not be weaker than requested.
    let mode = match (get("sslmode"), certificates) {
        (Some(mode @ ("disable" | "allow" | "prefer")), Some("system")) => {
            return Err(wrong(format!(
                "weak sslmode \"{mode}\" may not be used with sslrootcert=system"
            )));
        }
        (None, Some("system")) | (Some("require" | "verify-ca" | "verify-full"), _) => "require",
        (None | Some("allow" | "prefer"), _) => "prefer",
        (Some("disable"), _) => "disable",
        (Some(mode), _) => return Err(wrong(format!("invalid sslmode \"{mode}\""))),
    };
    own.insert("sslmode".into(), mode.into());
    let attributes = match get("target_session_attrs").unwrap_or("any") {
        "primary" => "read-write",
        "standby" => "read-only",
        "prefer-standby" => "any",
        attributes => attributes,
    };
    own.insert("target_session_attrs".into(), attributes.into());
    if let Some(count) = get("keepalives_count") {
        own.insert("keepalives_retries".into(), count.into());
    }
    let certificates = certificates.filter(|file| *file != "system" && mode != "disable");
    Ok((own, certificates.map(str::to_owned)))
}

fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://");
    scheme.is_some_and(|(scheme, _)| scheme.chars().all(|one| one.is_ascii_alphabetic()))
}

/// The settings in `postgresql://USER:PASSWORD@HOST:PORT,../DATABASE?KEY=VALUE&..`.
fn of_url(url: &str) -> Result<Settings, Failed> {
    let rest = url.strip_prefix("postgresql://").or(url.strip_prefix("postgres://"));
    let rest = rest.ok_or_else(|| wrong("a database URL must begin with postgresql://"))?;
    let (role, rest) = match rest.find(['@', '/']) {
        Some(end) if rest[end..].starts_with('@') => (&rest[..end], &rest[end + 1..]),
        _ => ("", rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (places, dbname) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, password) = role.split_once(':').unwrap_or((role, ""));
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for place in places.split(',') {
        let in_brackets = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match in_brackets {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or_default()),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        hosts.push(decoded(host)?);
        ports.push(port);
    }
    let has_ports = ports.iter().any(|port| !port.is_empty());
    let mut settings = Settings::from([
        ("user".into(), decoded(user)?),
        ("password".into(), decoded(password)?),
        ("host".into(), hosts.join(",")),
        ("port".into(), if has_ports { ports.join(",") } else { String::new() }),
        ("dbname".into(), decoded(dbname)?),
    ]);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let missing = || wrong(format!("missing value for \"{pair}\" in the URL"));
        let (key, value) = pair.split_once('=').ok_or_else(missing)?;
        let (key, value) = match (decoded(key)?, decoded(value)?) {
            (key, value) if (&*key, &*value) == ("ssl", "true") => {
                ("sslmode".into(), "require".into())
            }
            pair => pair,
        };
        settings.insert(key, value);
    }
    Ok(settings)
}

/// A part of a URL without its %XX.
fn decoded(text: &str) -> Result<String, Failed> {
    let fault = || wrong(format!("invalid percent-encoding in the URL: \"{text}\""));
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(fault)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| fault())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| fault())
}

/// The settings in `KEY=VALUE KEY='VALUE' ..`, where a backslash makes the next character plain.
fn of_text(text: &str) -> Result<Settings, Failed> {
    let mut settings = Settings::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let missing = || wrong(format!("missing = after \"{rest}\""));
        let (key, after) = rest.split_once('=').ok_or_else(missing)?;
        let after = after.trim_start();
        let is_quoted = after.starts_with('\'');
        let mut characters = after[usize::from(is_quoted)..].chars();
        let mut value = String::new();
        loop {
            match characters.next() {
                Some('\'') if is_quoted => break,
                Some(space) if !is_quoted && space.is_whitespace() => break,
                Some('\\') => value.extend(characters.next()),
                Some(character) => value.push(character),
                None if is_quoted => return Err(wrong(format!("missing closing quote for {key}"))),
                None => break,
            }
        }
        settings.insert(key.trim().into(), value);
        rest = characters.as_str().trim_start();
    }
    Ok(settings)
}

/// The settings of a service: of PGSERVICEFILE or ~/.pg_service.conf, or the system's file.
fn of_service(service: &str, variable: Variables) -> Result<Settings, Failed> {
    let own = variable("PGSERVICEFILE").or_else(|| Some(variable("HOME")? + "/.pg_service.conf"));
    let system = variable("PGSYSCONFDIR").unwrap_or("/etc/postgresql-common".into());
    for file in own.into_iter().chain([system + "/pg_service.conf"]) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let mut lines = lines.skip_while(|line| *line != format!("[{service}]"));
        if lines.next().is_some() {
            let lines = lines.take_while(|line| !line.starts_with('['));
            let pairs = lines.filter_map(|line| line.split_once('='));
            let trimmed = pairs.map(|(key, value)| (key.trim().into(), value.trim().into()));
            return Ok(trimmed.filter(|(_, value): &(_, String)| !value.is_empty()).collect());
        }
    }
    Err(wrong(format!("service \"{service}\" not found")))
}

/// The first directory that can have the server's socket.
fn default_host() -> String {
    let directories = ["/var/run/postgresql", "/run/postgresql", "/tmp"];
    let found = directories.into_iter().find(|directory| Path::new(directory).is_dir());
    found.unwrap_or("localhost").into()
}

/// The password in a file, or ~/.pgpass, for this host, port, database and user.
fn password_of_file(config: &Config, file: Option<&String>) -> Option<String> {
    let file = file.cloned().or_else(|| Some(variable("HOME")? + "/.pgpass"))?;
    let text = std::fs::read_to_string(file).ok()?;
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (None, Some(address)) => address.to_string(),
        _ => "localhost".into(),
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let wanted = [&*host, &port, config.get_dbname()?, config.get_user()?];
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
        let plain = if character == '\\' { characters.next() } else { Some(character) };
        fields.iter_mut().last().expect("a field").extend(plain);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables = &'static [(&'static str, &'static str)];

    /// The settings that tokio-postgres gets and the file of certificates; or what is wrong.
    fn told(text: &str, options: [&str; 2], variables: &[(&str, &str)]) -> Result<String, String> {
        let option = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let [host, username] = options.map(option);
        let dbname = option(text);
        let database = Database { dbname, host, username, port: None };
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned()).filter(|value| !value.is_empty())
        };
        let told = database.settings(true, &variable).and_then(|settings| {
            let (settings, certificates) = translated(&settings)?;
            let hidden = [("sslmode", "prefer"), ("target_session_attrs", "any")];
            let shown = settings.iter().filter(|(key, value)| {
                !hidden.contains(&(key, value)) && **value != default_host()
            });
            let shown = shown.map(|(key, value)| format!("{key}={value}"));
            let certificates = certificates.map(|file| format!("trusts {file}"));
            parsed(&settings)?; // tokio-postgres takes it
            Ok(shown.chain(certificates).collect::<Vec<_>>().join(" "))
        });
        told.map_err(|failed| failed.message)
    }

    #[test]
    fn a_database_is_told_as_to_psql() {
        const URL: &str = "postgresql://ada:p%40ss@db.example:6000/shop";
        let cases: &[(&str, [&str; 2], Variables, &str)] = &[
            ("", ["", ""], &[], ""),
            ("shop", ["db", "ada"], &[], "dbname=shop host=db user=ada"),
            (URL, ["", ""], &[], "dbname=shop host=db.example password=p@ss port=6000 user=ada"),
            ("postgres://[::1]:6000/", ["", ""], &[], "host=::1 port=6000"),
            ("postgres://a:1,b/d", ["", ""], &[], "dbname=d host=a,b port=1,"),
            ("postgres:///d?host=/run/x&user=u", ["", ""], &[], "dbname=d host=/run/x user=u"),
            ("postgres://%2Frun%2Fx/d", ["", ""], &[], "dbname=d host=/run/x"),
            ("postgres://h?ssl=true", ["", ""], &[], "host=h sslmode=require"),
            (
                r"host = h password='a b\'c\\' port=1",
                ["", ""],
                &[],
                r"host=h password=a b'c\ port=1",
            ),
            // The text goes first, then the options, then the environment.
            ("host=a", ["b", "u"], &[("PGHOST", "c"), ("PGUSER", "v")], "host=a user=u"),
            ("", ["b", ""], &[("PGHOST", "c"), ("PGUSER", "v")], "host=b user=v"),
            ("", ["", ""], &[("PGDATABASE", "d"), ("PGPORT", "1")], "dbname=d port=1"),
            (
                "",
                ["", ""],
                &[("PGDATABASE", URL), ("PGUSER", "v"), ("PGPASSWORD", "w")],
                "dbname=shop host=db.example password=p@ss port=6000 user=ada",
            ),
            ("host=h", ["", ""], &[("PGDATABASE", "postgres://x/y")], "host=h"),
            // An empty one counts as not set.
            (
                "host=h user=",
                ["", ""],
                &[("PGUSER", "u"), ("PGPORT", ""), ("PGSSLMODE", "")],
                "host=h user=u",
            ),
            ("host=h", ["", ""], &[("PGHOSTADDR", "10.0.0.1")], "host=h hostaddr=10.0.0.1"),
            ("", ["", ""], &[("PGHOSTADDR", "10.0.0.1")], "hostaddr=10.0.0.1"),
            (
                "host=h",
                ["", ""],
                &[("PGOPTIONS", "-c a=b"), ("PGAPPNAME", "n"), ("PGCONNECT_TIMEOUT", "3")],
                "application_name=n connect_timeout=3 host=h options=-c a=b",
            ),
            (
                "host=h options='-c timezone=UTC'",
                ["", ""],
                &[("PGTZ", "Europe/Paris"), ("PGDATESTYLE", "ISO, DMY"), ("PGGEQO", "default")],
                r"host=h options=-c timezone=UTC -c datestyle=ISO,\ DMY -c timezone=Europe/Paris",
            ),
            (
                "host=h",
                ["", ""],
                &[("PGTARGETSESSIONATTRS", "primary"), ("PGCHANNELBINDING", "require")],
                "channel_binding=require host=h target_session_attrs=read-write",
            ),
            (
                "host=h keepalives=1 keepalives_count=4 keepalives_idle=5",
                ["", ""],
                &[],
                "host=h keepalives=1 keepalives_idle=5 keepalives_retries=4",
            ),
            // What changes nothing.
            (
                "postgres://h/?gssencmode=prefer&client_encoding=UTF8&fallback_application_name=x",
                ["", ""],
                &[("PGKRBSRVNAME", "postgres")],
                "host=h",
            ),
            // What is verified is all or nothing.
            (
                "host=h sslmode=disable",
                ["", ""],
                &[("PGSSLROOTCERT", "/ca.pem")],
                "host=h sslmode=disable",
            ),
            ("host=h sslmode=allow", ["", ""], &[], "host=h"),
            ("host=h sslmode=require", ["", ""], &[], "host=h sslmode=require"),
            (
                "host=h sslmode=verify-ca",
                ["", ""],
                &[("PGSSLMODE", "disable")],
                "host=h sslmode=require",
            ),
            ("host=h sslrootcert=system", ["", ""], &[], "host=h sslmode=require"),
            (
                "host=h",
                ["", ""],
                &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", "/ca.pem")],
                "host=h sslmode=require trusts /ca.pem",
            ),
        ];
        for (text, options, variables, expected) in cases {
            assert_eq!(
                told(text, *options, variables).as_deref(),
                Ok(*expected),
                "{text} {variables:?}"
            );
        }
    }

    #[test]
    fn what_is_not_supported_is_said() {
        let cases: &[(&str, Variables, &str)] = &[
            ("host=h sslcert=a", &[], "sslcert is not supported"),
            ("host=h", &[("PGSSLKEY", "a")], "sslkey is not supported"),
            ("postgres://h?gssencmode=require", &[], "gssencmode=require is not supported"),
            ("host=h sslmode=full", &[], "invalid sslmode \"full\""),
            (
                "host=h sslmode=prefer sslrootcert=system",
                &[],
                "weak sslmode \"prefer\" may not be used with sslrootcert=system",
            ),
            ("hots=h", &[], "unknown connection option \"hots\""),
            ("host='h", &[], "missing closing quote for host"),
            ("host=h port", &[], "missing = after \"port\""),
            ("postgres://h%4/", &[], "invalid percent-encoding in the URL: \"h%4\""),
            ("mysql://h/", &[], "a database URL must begin with postgresql://"),
            (
                "host=h",
                &[("PGSERVICE", "none"), ("PGSYSCONFDIR", "/nowhere")],
                "service \"none\" not found",
            ),
        ];
        for (text, variables, expected) in cases {
            assert_eq!(
                told(text, ["", ""], variables),
                Err((*expected).into()),
                "{text} {variables:?}"
            );
        }
    }

    #[test]
    fn a_service_goes_before_the_environment() {
        let file = std::env::temp_dir().join(format!("jobs-service-{}", std::process::id()));
        let text =
            "# comment\n[other]\nhost=x\n\n[shop]\nhost = a\ndbname=d\n#user=no\n[last]\nport=1\n";
        std::fs::write(&file, text).unwrap();
        let place = [("PGSERVICEFILE", file.to_str().unwrap()), ("PGHOST", "c"), ("PGUSER", "v")];
        let service = [&place[..], &[("PGSERVICE", "shop")]].concat();
        assert_eq!(told("service=shop", ["", ""], &place).unwrap(), "dbname=d host=a user=v");
        assert_eq!(told("", ["b", ""], &service).unwrap(), "dbname=d host=b user=v");
        std::fs::remove_file(file).unwrap();
    }
}
