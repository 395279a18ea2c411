//! The unique key: the fingerprint by which a new job finds the jobs that it may be a duplicate of.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::Invalid;
use crate::canonical::{Events, Writer, absent, write, write_members};
use crate::interrupt;
use crate::period;
use crate::policy::{Part, Policy};

/// What a key is made of, beside args and meta.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The job's kind.
    pub kind: &'a str,
    /// The queue that the job goes to.
    pub queue: &'a str,
    /// The moment that decides the period, in microseconds since 2000-01-01 00:00 UTC, as Postgres
    /// counts: the job's `scheduled_at` when it was given, else the clock.
    pub at_micros: i64,
}

/// The text that the key is the hash of: a canonical JSON object with those of the members `args`,
/// `key`, `meta`, `period`, `queue` and `type` (the kind) that the policy asks for.
///
/// `args` and `meta` are called only if they belong to the key, and once more to say what is not
/// there. Refused are two names in them that are the same, numbers that Postgres could not hold,
/// and a value that lacks what the policy asks for ([`Part::Paths`], [`Part::Members`]).
pub fn canonical<A: Events, M: Events>(
    policy: &Policy,
    parts: &Parts,
    args: impl Fn() -> A,
    meta: impl Fn() -> M,
) -> Result<String, Invalid> {
    let mut out = Writer::new();
    out.begin_object();
    write_part("args", &policy.by_args, args, &mut out)?;
    if let Some(key) = &policy.key {
        out.name("key");
        out.string(key);
    }
    write_part("meta", &policy.by_meta, meta, &mut out)?;
    if let Some(period) = policy.by_period {
        out.name("period");
        out.string(&period::start_of(parts.at_micros, period));
    }
    if policy.by_queue {
        out.name("queue");
        out.string(parts.queue);
    }
    if !policy.exclude_kind {
        out.name("type");
        out.string(parts.kind);
    }
    out.end_object().expect("its members have different names");
    Ok(out.finish())
}

/// Writes the member `name` of the canonical text, if any of the value belongs to the key.
fn write_part<E: Events>(
    name: &str,
    part: &Part,
    value: impl Fn() -> E,
    out: &mut Writer,
) -> Result<(), Invalid> {
    if let Part::None = part {
        return Ok(());
    }
    out.name(name);
    let is_there = match part {
        Part::None => Ok(true),
        Part::All => write(&mut value(), None, out),
        Part::Optional(paths) => write(&mut value(), Some(paths), out).map(|_| true),
        Part::Paths(paths) => write(&mut value(), Some(paths), out),
        Part::Members(members) => write_members(&mut value(), members, out),
    };
    match is_there.map_err(|flaw| flaw.of(name))? {
        true => Ok(()),
        false => Err(absent::refused(name, part, &mut value())),
    }
}

/// A unique key: the SHA-256 of the canonical text. Derived from args, so it is never logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// The key of a canonical text.
    pub fn of(canonical: &str) -> Key {
        let mut hash = Sha256::new();
        for (n, chunk) in canonical.as_bytes().chunks(interrupt::CHUNK).enumerate() {
            if n > 0 {
                interrupt::check();
            }
            hash.update(chunk);
        }
        Key(hash.finalize().into())
    }

    /// The key of these bytes; nothing if there are not exactly 32.
    pub fn from_bytes(bytes: &[u8]) -> Option<Key> {
        bytes.try_into().ok().map(Key)
    }

    /// The key as 64 lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a String takes everything");
            hex
        })
    }

    /// The id of the advisory lock on the key: its first 8 bytes, big-endian, or, if `prefix` (the
    /// setting `jobs.advisory_lock_prefix`) is not 0, the prefix in the high and the key's first 4
    /// bytes in the low half.
    pub fn lock_id(&self, prefix: i32) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        let [p, q, r, s] = prefix.to_be_bytes();
        if prefix == 0 {
            i64::from_be_bytes([a, b, c, d, e, f, g, h])
        } else {
            i64::from_be_bytes([p, q, r, s, a, b, c, d])
        }
    }
}

impl std::fmt::Debug for Key {
    /// Says nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes 0x80, 0x81, 0x82, ...
    fn key() -> Key {
        Key(std::array::from_fn(|i| 0x80 + i as u8))
    }

    #[test]
    fn a_key_is_the_sha_256_of_the_text() {
        // FIPS 180-4's first example.
        assert_eq!(
            Key::of("abc").hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn bytes_make_a_key_only_if_there_are_32() {
        assert_eq!(Key::from_bytes(&key().0), Some(key()));
        assert_eq!(Key::from_bytes(&key().0[1..]), None);
        assert_eq!(Key::from_bytes(&[0; 33]), None);
    }

    #[test]
    fn lock_ids_are_the_first_bytes() {
        assert_eq!(key().lock_id(0), 0x8081_8283_8485_8687_u64 as i64);
        assert_eq!(key().lock_id(7), 0x0000_0007_8081_8283);
        assert_eq!(key().lock_id(-1), 0xffff_ffff_8081_8283_u64 as i64);
    }

    #[test]
    fn a_key_is_not_shown_by_accident() {
        assert_eq!(format!("{:?}", key()), "Key(..)");
    }
}
