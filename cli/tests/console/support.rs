//! A console as a process of its own, and what speaks HTTP with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net;
use serde_json::Value;

/// Nothing takes so long, on whatever machine.
pub const SOON: Duration = Duration::from_secs(60);

/// The screens that show no single thing.
pub const SCREENS: [&str; 10] = [
    "/",
    "/jobs",
    "/failures",
    "/queues",
    "/limits",
    "/workers",
    "/periodic",
    "/unique",
    "/audit",
    "/maintenance",
];

/// The database of the company, as a role whose password is its name.
pub fn url_as(role: &str) -> String {
    as_role(&url(), role)
}

pub fn as_role(url: &str, role: &str) -> String {
    url.replacen("//", &format!("//{role}:{role}@"), 1)
}

pub fn url() -> String {
    std::env::var("JOBS_COMPANY_URL").expect("./dev test console sets JOBS_COMPANY_URL")
}

/// What a statement answers to a superuser, as `to_jsonb` has its rows.
pub fn sql(statement: &str) -> Vec<Value> {
    sql_at(&url(), statement)
}

fn sql_at(url: &str, statement: &str) -> Vec<Value> {
    let statement =
        format!("with answer as ({statement}) select to_jsonb(answer)::text from answer");
    let rows = connected(url, async |client| client.query(&statement, &[]).await.unwrap());
    rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
}

fn connected<T>(url: &str, ask: impl AsyncFnOnce(tokio_postgres::Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = as_role(url, "postgres").parse().unwrap();
        ask(postgres_jobs::connect(&config).await.unwrap()).await
    })
}

/// Runs statements as a superuser.
pub fn run(statements: &str) {
    run_at(&url(), statements);
}

pub fn run_at(url: &str, statements: &str) {
    connected(url, async |client| client.batch_execute(statements).await.unwrap());
}

/// The only value of the only row.
pub fn value(statement: &str) -> Value {
    value_at(&url(), statement)
}

pub fn value_at(url: &str, statement: &str) -> Value {
    let rows = sql_at(url, statement);
    assert_eq!(rows.len(), 1, "{statement}");
    rows[0].as_object().unwrap().values().next().unwrap().clone()
}

pub fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub struct Console {
    process: Child,
    /// Host and port.
    pub address: String,
}

impl Console {
    /// Where each person logs in.
    pub fn start(options: &[&str]) -> Self {
        Self::start_at(&url(), &[&["--login"], options].concat())
    }

    /// Where every client acts as the role of the process.
    pub fn start_as(role: &str, options: &[&str]) -> Self {
        Self::start_at(&url_as(role), options)
    }

    pub fn start_at(url: &str, options: &[&str]) -> Self {
        Self::started(Self::command(url, options))
    }

    /// With several databases.
    pub fn start_of(urls: &[&str], options: &[&str]) -> Self {
        let mut all: Vec<_> = urls.iter().flat_map(|url| ["--database", url]).collect();
        all.extend(options);
        Self::started(Self::command("", &all))
    }

    /// One whose log is in a file.
    pub fn logged(url: &str, options: &[&str]) -> (Self, TempPath) {
        let log = TempPath::new();
        let mut command = Self::command(url, options);
        command.stderr(File::create(&*log).unwrap());
        (Self::started(command), log)
    }

    fn started(mut command: Command) -> Self {
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("http://").unwrap_or_else(|| panic!("it says {line:?}"));
        let address = rest.split(['/', ' ', '\n']).next().unwrap().to_owned();
        Self { process, address }
    }

    pub fn command(url: &str, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgjobs"));
        command.arg("console");
        if !url.is_empty() {
            command.args(["-d", url]);
        }
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(options).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.raw(&request(method, path, headers, body))
    }

    /// What the console answers to these bytes.
    pub fn raw(&self, bytes: &str) -> Answer {
        let mut stream = self.stream();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Answer::parse(&String::from_utf8(answer).unwrap())
    }

    pub fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// A connection of another address of this machine.
    pub fn stream_from(&self, address: [u8; 4]) -> TcpStream {
        let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from((address, 0))).unwrap();
        net::connect(&socket, &self.address.parse::<SocketAddr>().unwrap()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Somebody who has a browser, and nothing else yet.
    pub fn visitor(&self) -> Visitor<'_> {
        Visitor { console: self, cookies: Vec::new() }
    }

    /// Somebody who has logged in; the password is the role's name.
    pub fn person(&self, role: &str) -> Visitor<'_> {
        let mut visitor = self.visitor();
        let answer = visitor.log_in(role, role);
        assert_eq!(answer.status, 303, "{role}: {}", answer.body);
        visitor
    }

    /// The exit code after a signal.
    pub fn end(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal)
            .unwrap();
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end");
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A file that goes with it.
pub struct TempPath(PathBuf);

impl TempPath {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("jobs-console-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Deref for TempPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    // HTTP/1.0 asks for no chunks, and for the end of the connection.
    format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        Self {
            status: status.parse().unwrap(),
            headers: lines
                .map(|line| line.split_once(": ").unwrap_or((line, "")))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        }
    }

    /// One that no console gave.
    pub fn of(status: u16, body: &str) -> Self {
        Self { status, headers: Vec::new(), body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The text that a reader sees, with the entities that maud writes decoded.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut is_tag = false;
        for character in self.body.chars() {
            match character {
                '<' => is_tag = true,
                '>' if is_tag => {
                    is_tag = false;
                    text.push(' ');
                }
                _ if is_tag => {}
                _ => text.push(character),
            }
        }
        unescaped(&text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// What a browser sends of the form whose action ends so, if nobody fills in anything.
    pub fn form(&self, action: &str) -> Vec<(String, String)> {
        let form = self.find_form(action);
        let form = form.unwrap_or_else(|| panic!("no form for {action} in {}", self.body));
        let inputs = form.split("<input").skip(1).filter(|input| {
            let kind = attribute(input, "type").unwrap_or_default();
            !["submit", "checkbox", "radio"].contains(&&*kind)
                || input.split('>').next().unwrap().contains(" checked")
        });
        let inputs = inputs.filter_map(|input| {
            Some((attribute(input, "name")?, attribute(input, "value").unwrap_or_default()))
        });
        let areas = form.split("<textarea").skip(1).filter_map(|area| {
            let text = area.split_once('>')?.1.split("</textarea>").next()?;
            Some((attribute(area, "name")?, unescaped(text.strip_prefix('\n').unwrap_or(text))))
        });
        let choices = form.split("<select").skip(1).filter_map(|select| {
            let options = select.split("</select>").next()?.split("<option").skip(1);
            let chosen = options
                .clone()
                .find(|option| option.split('>').next().unwrap().contains(" selected"));
            let chosen = chosen.or_else(|| options.clone().next())?;
            Some((attribute(select, "name")?, attribute(chosen, "value")?))
        });
        inputs.chain(areas).chain(choices).collect()
    }

    /// Where a list goes on: at its next page, or where the time for the search was over.
    pub fn next(&self) -> Option<String> {
        let mut links = self.body.split("<a").skip(1);
        let is_next =
            |link: &&str| link.contains(" rel=\"next\"") || link.contains(">Search further<");
        attribute(links.find(is_next)?, "href")
    }

    pub fn has_form(&self, action: &str) -> bool {
        self.find_form(action).is_some()
    }

    /// From its first attribute to its end.
    fn find_form(&self, action: &str) -> Option<&str> {
        let forms = self.body.split("<form").skip(1);
        let mut forms = forms.map(|form| form.split("</form>").next().unwrap());
        forms.find(|form| {
            attribute(form, "action")
                .is_some_and(|found| without_fragment(&found).ends_with(action))
        })
    }
}

/// What a browser asks for.
fn without_fragment(url: &str) -> &str {
    url.split('#').next().unwrap()
}

/// An attribute of the tag that a text begins with, unescaped.
fn attribute(text: &str, name: &str) -> Option<String> {
    let tag = text.split('>').next()?;
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    Some(unescaped(rest.split('"').next()?))
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// A browser that keeps cookies and follows nothing.
pub struct Visitor<'a> {
    pub console: &'a Console,
    pub cookies: Vec<(String, String)>,
}

impl Visitor<'_> {
    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    /// The page, which is there.
    pub fn page(&mut self, path: &str) -> Answer {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer
    }

    /// All pages of a list.
    pub fn list(&mut self, path: &str) -> Vec<Answer> {
        let mut pages = vec![self.page(path)];
        while let Some(next) = pages.last().and_then(Answer::next) {
            pages.push(self.page(&next));
        }
        pages
    }

    pub fn post(&mut self, path: &str, fields: &[(String, String)]) -> Answer {
        let body: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
            .collect();
        self.request(
            "POST",
            path,
            &[("Content-Type", "application/x-www-form-urlencoded")],
            &body.join("&"),
        )
    }

    /// Sends the form of a page that has this action, with these fields filled in.
    pub fn send(&mut self, page: &Answer, action: &str, fields: &[(&str, &str)]) -> Answer {
        let mut all = page.form(action);
        all.retain(|(name, _)| fields.iter().all(|(filled, _)| filled != name));
        all.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let path = attribute(page.find_form(action).unwrap(), "action").unwrap();
        self.post(without_fragment(&path), &all)
    }

    /// Follows a redirect.
    pub fn follow(&mut self, answer: &Answer) -> Answer {
        assert_eq!(answer.status, 303, "{}", answer.text());
        let to = answer.header("location").to_owned();
        self.page(&to)
    }

    pub fn log_in(&mut self, role: &str, password: &str) -> Answer {
        let page = self.page("/login");
        self.send(&page, "/login", &[("role", role), ("password", password)])
    }

    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let cookies: Vec<_> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let mut headers = headers.to_vec();
        headers.push(("Cookie", &cookies));
        let answer = self.console.request(method, path, &headers, body);
        for (_, set) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !set.to_ascii_lowercase().contains("max-age=0") {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        answer
    }
}

/// As in a URL or a form.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
