//! Machines of a test: network namespaces on a bridge, with links that can be cut.

use std::fs;
use std::path::Path;
use std::process::Command;

use jobs_tests::checks::{Outcome, output};

/// A bridge, and the namespaces on it; gone with all their processes when dropped.
pub struct Network {
    name: String,
    subnet: String,
}

impl Network {
    /// Named after this process, so that runs do not meet. The error is what the machine refused.
    pub fn make() -> Result<Network, String> {
        remove_abandoned();
        let pid = std::process::id();
        // RFC 2544 keeps 198.18.0.0/15 for tests of networks.
        let subnet = format!("198.{}.{}", 18 + pid / 256 % 2, pid % 256);
        let network = Network { name: format!("jobs{pid}"), subnet };
        let bridge = &network.name;
        ip(&["link", "add", bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", network.address(CLIENTS)), "dev", bridge])?;
        ip(&["link", "set", bridge, "up"])?;
        ip(&["netns", "add", &network.namespace(0)])?; // where none can be made, this says so
        Ok(network)
    }

    /// Makes a machine, of an address that ends in this number.
    pub fn add(&self, number: u8) -> Outcome {
        let (namespace, link) = (self.namespace(number), self.link(number));
        let address = format!("{}/24", self.address(number));
        ip(&["netns", "add", &namespace])?;
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", &namespace];
        ip(&[&["link", "add", &link][..], &pair].concat())?;
        ip(&["link", "set", &link, "master", &self.name, "up"])?;
        ip(&["-n", &namespace, "address", "add", &address, "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// The address of a machine; of [`CLIENTS`], where the tests are themselves.
    pub fn address(&self, number: u8) -> String {
        format!("{}.{number}", self.subnet)
    }

    /// A program on a machine, as user postgres. `/var/run/postgresql` is this directory there.
    pub fn command(&self, number: u8, sockets: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(number), "bash", "-c"]);
        command
            .arg("mount --bind \"$0\" /var/run/postgresql && exec runuser -u postgres -- \"$@\"");
        command.arg(sockets).current_dir("/");
        command
    }

    /// Cuts a machine off, or connects it again.
    pub fn connect(&self, number: u8, connected: bool) -> Outcome {
        ip(&["link", "set", &self.link(number), if connected { "up" } else { "down" }])
    }

    /// From now on, or no longer, one machine reaches another one not at all.
    pub fn block(&self, from: u8, to: u8, blocked: bool) -> Outcome {
        let what = if blocked { "add" } else { "delete" };
        ip(&["-n", &self.namespace(from), "route", what, "blackhole", &self.address(to)])
    }

    /// Sends a signal to all processes of a machine.
    pub fn signal(&self, number: u8, signal: &str) -> Outcome {
        signal_all(&self.namespace(number), signal)
    }

    fn namespace(&self, number: u8) -> String {
        format!("{}-{number}", self.name)
    }

    /// Its end at the bridge. Names of links have 15 characters at most.
    fn link(&self, number: u8) -> String {
        format!("{}v{number}", self.name)
    }
}

/// The number of the address where the tests are themselves.
pub const CLIENTS: u8 = 254;

impl Drop for Network {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

fn ip(arguments: &[&str]) -> Outcome {
    output(Command::new("ip").args(arguments)).map(|_| ()).map_err(|said| {
        let arguments = arguments.join(" ");
        format!("ip {arguments}: {said}")
    })
}

fn signal_all(namespace: &str, signal: &str) -> Outcome {
    let pids = output(Command::new("ip").args(["netns", "pids", namespace]))?;
    // Those that have ended meanwhile are no error.
    let _ = Command::new("kill").arg(format!("-{signal}")).args(pids.split_whitespace()).output();
    Ok(())
}

fn namespaces() -> Vec<String> {
    let list = output(Command::new("ip").args(["netns", "list"])).unwrap_or_default();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

/// Removes the networks of runs that were killed.
fn remove_abandoned() {
    let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    for name in links.filter_map(|link| link.file_name().into_string().ok()) {
        let pid = name.strip_prefix("jobs").filter(|pid| pid.parse::<u32>().is_ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&name);
        }
    }
}

fn remove(network: &str) {
    let prefix = format!("{network}-");
    for namespace in namespaces().iter().filter(|name| name.starts_with(&prefix)) {
        let _ = signal_all(namespace, "KILL");
        let _ = ip(&["netns", "delete", namespace]);
    }
    let _ = ip(&["link", "delete", network]);
}
