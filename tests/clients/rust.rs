//! The crate for Rust, and the program `pgjobs`, which is made of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use jobs_tests::checks::{Outcome, feed, holds, succeeds};
use jobs_tests::{ROOT, target_directory};

use crate::{Library, need_packages};

pub fn conforms(library: &mut Library) {
    let mut build = library.program("cargo");
    build.args(["build", "--quiet", "-p", "jobs-conformance"]);
    build.args(["-p", "postgres-jobs", "--example", "mail", "--bin", "rust_driver"]);
    if let Err(said) = succeeds(&mut build) {
        return library.check("its driver is built", Err(said));
    }
    let built = target_directory().join("debug");
    let driver = library.program(built.join("rust_driver"));
    library.every_case("every case", &[], &driver);
    let example = library.program(built.join("examples/mail"));
    library.example("clients/rust/examples/mail.rs", example);

    let all = ["test", "--quiet", "-p", "postgres-jobs", "--all-features"];
    let cargo =
        |library: &Library, arguments: &[&str]| succeeds(library.program("cargo").args(arguments));
    library.check("its own tests, with all features", cargo(library, &all));
    library.check("control: a block of README.md that is changed fails", changed_readme(library));
    let package = ["package", "--quiet", "-p", "postgres-jobs", "--allow-dirty", "--no-verify"];
    library.check("the crate is made", cargo(library, &package));
    let program = ["test", "--quiet", "-p", "postgres-jobs-cli", "--bins", "--test", "program"];
    library.check("the program pgjobs", cargo(library, &program));
    if !need_packages(library, &["openssl"]) {
        return;
    }
    certify(library);
    let with_tls = [&all[..], &["--test", "tls"]].concat();
    set_tls(library, "on");
    library.check("TLS", cargo(library, &with_tls));
    set_tls(library, "off");
    let without = cargo(library, &with_tls);
    library.checks.refuses("rust: control: without TLS that fails", without);
}

/// README.md is the documentation of the crate, and its blocks are tests. With another rustdoc they
/// are those of a README.md that was changed.
fn changed_readme(library: &Library) -> Outcome {
    let readme =
        fs::read_to_string(Path::new(ROOT).join("clients/rust/README.md")).expect("README.md");
    let end = readme.find("\n```\n").expect("a block") + 5;
    let changed = library.scratch.join("README.md");
    fs::write(&changed, readme[..end].replace(".kind(", ".knd(")).expect("README.md");
    let rustdoc = library.scratch.join("rustdoc");
    let script = format!(
        "#!/bin/bash\nexec rustdoc \"${{@/%*\\/lib.rs/{}}}\"\n",
        changed.display().to_string().replace('/', "\\/")
    );
    fs::write(&rustdoc, script).expect("rustdoc");
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755)).expect("rustdoc");
    let mut test = library.program("cargo");
    test.args(["test", "--quiet", "--doc", "-p", "postgres-jobs"]).env("RUSTDOC", rustdoc);
    let (passed, said) = feed(&mut test, "");
    holds(!passed && said.contains("no method named `knd`"), said)
}

/// Gives the server a certificate for its address.
fn certify(library: &mut Library) {
    let cluster = library.cluster;
    let configuration = cluster.directory().join("certificate.cnf");
    let text = "[req]\nprompt=no\ndistinguished_name=name\nx509_extensions=more\n[name]\nCN=jobs\n[more]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
    fs::write(&configuration, text).expect("a configuration");
    let certificate = cluster.data().join("server.crt");
    let mut openssl = cluster.program(Path::new("openssl"));
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-noenc", "-config"]).arg(configuration);
    openssl.arg("-keyout").arg(cluster.data().join("server.key")).arg("-out").arg(&certificate);
    succeeds(&mut openssl).expect("a certificate");
    let copy = cluster.directory().join("server.crt");
    fs::copy(certificate, &copy).expect("a copy");
    library.environment.push(("JOBS_CERTIFICATE", copy.display().to_string()));
}

fn set_tls(library: &Library, to: &str) {
    let sql = |script: &str| library.cluster.psql("clients", script);
    sql(&format!("alter system set ssl = {to}; select pg_reload_conf()"));
    let start = Instant::now();
    while sql("show ssl").trim() != to {
        assert!(start.elapsed() < Duration::from_secs(60), "ssl is not {to}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
