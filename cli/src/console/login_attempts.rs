//! Login attempts. After too many failures the next attempt must wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::connection::locked;
use super::http::network;

/// Failures of a role from an address, and of all roles from it. Failures from another address lock
/// no one out.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<HashMap<Key, Failures>>);

type Key = (IpAddr, Option<String>);

/// How many failures are remembered. The oldest are forgotten.
const KNOWN: usize = 10_000;

impl Attempts {
    /// Counts an attempt before it is made, so that concurrent attempts do not evade the limit.
    /// Returns how long to wait if too many have failed.
    pub(crate) fn begin(&self, address: IpAddr, role: &str) -> Result<(), Duration> {
        let mut attempts = locked(&self.0);
        let now = Instant::now();
        let keys = keys(address, role);
        let known = keys.iter().filter_map(|key| Some((key, attempts.get(key)?)));
        let until = known.map(|(key, failures)| failures.last + failures.wait(free(key)));
        let wait = until.max().map(|until| until.saturating_duration_since(now));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        for key in keys {
            if attempts.len() >= KNOWN && !attempts.contains_key(&key) {
                let oldest = attempts.iter().min_by_key(|(_, failures)| failures.last);
                let oldest = oldest.expect("there are some").0.clone();
                attempts.remove(&oldest);
            }
            let failures = attempts.entry(key).or_insert(Failures { count: 0, last: now });
            failures.fail(now);
        }
        Ok(())
    }

    /// Uncounts an attempt that failed for another reason than a wrong password.
    pub(crate) fn take_back(&self, address: IpAddr, role: &str) {
        let mut attempts = locked(&self.0);
        for key in keys(address, role) {
            if let Some(failures) = attempts.get_mut(&key) {
                failures.count = failures.count.saturating_sub(1);
            }
        }
    }

    /// Forgets the failures of the role. Those of others from its address stay.
    pub(crate) fn succeeded(&self, address: IpAddr, role: &str) {
        self.take_back(address, role);
        let [of_role, _] = keys(address, role);
        locked(&self.0).remove(&of_role);
    }

    /// Forgets old failures.
    pub(crate) fn tidy(&self) {
        locked(&self.0).retain(|_, failures| failures.last.elapsed() < FORGOTTEN);
    }
}

fn keys(address: IpAddr, role: &str) -> [Key; 2] {
    let network = network(address);
    [(network, Some(role.into())), (network, None)]
}

/// Attempts that have failed.
struct Failures {
    count: u32,
    last: Instant,
}

/// How many attempts may fail before a wait: few per role, more per address, which many may share.
fn free((_, role): &Key) -> u32 {
    if role.is_some() { 5 } else { 50 }
}

const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// After how long without any attempt they are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(900);

impl Failures {
    fn fail(&mut self, now: Instant) {
        if self.last + FORGOTTEN < now {
            self.count = 0;
        }
        self.count += 1;
        self.last = now;
    }

    /// How long no other attempt is made.
    fn wait(&self, free: u32) -> Duration {
        match self.count.checked_sub(free) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(9)).min(LONGEST_WAIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn waits_double_from_the_fifth_failure_on() {
        let attempts = Attempts::default();
        for _ in 0..5 {
            assert_eq!(attempts.begin(HERE, "app"), Ok(()));
        }
        assert!(attempts.begin(HERE, "app").is_err());
        assert_eq!(attempts.begin(HERE, "other"), Ok(()));
        let last = Instant::now();
        let waits = (1..=15).map(|count| Failures { count, last }.wait(5).as_secs());
        assert_eq!(
            waits.collect::<Vec<_>>(),
            [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
        );
    }

    #[test]
    fn an_address_has_more_of_them() {
        let attempts = Attempts::default();
        for number in 0..50 {
            assert_eq!(attempts.begin(HERE, &number.to_string()), Ok(()));
        }
        assert!(attempts.begin(HERE, "app").is_err());
        let elsewhere = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(attempts.begin(elsewhere, "app"), Ok(()));
    }

    #[test]
    fn a_network_is_one_address() {
        let attempts = Attempts::default();
        let at = |address: &str| attempts.begin(address.parse().expect("an address"), "app");
        for number in 0..5 {
            assert_eq!(at(&format!("2001:db8::{number}")), Ok(()));
        }
        assert!(at("2001:db8::ffff:1").is_err());
        assert_eq!(at("2001:db8:0:1::"), Ok(()));
    }

    #[test]
    fn what_did_not_fail_is_not_counted() {
        let attempts = Attempts::default();
        for _ in 0..100 {
            assert_eq!(attempts.begin(HERE, "app"), Ok(()));
            attempts.succeeded(HERE, "app");
            assert_eq!(attempts.begin(HERE, "other"), Ok(()));
            attempts.take_back(HERE, "other");
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let attempts = Attempts::default();
        for number in 0..6000 {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(number));
            let _ = attempts.begin(address, "app");
        }
        assert_eq!(locked(&attempts.0).len(), KNOWN);
    }
}
