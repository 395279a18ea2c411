//! Time zones, from the server's own data.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{FromRawFd, OwnedFd};

use pgrx::pg_sys;

use super::text;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// From 1970-01-01, where the zones' data counts from, to 2000-01-01.
const UNIX_TO_POSTGRES_EPOCH: i64 = 946_684_800;

/// A time zone of the server. The server keeps it for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct TimeZone(*mut pg_sys::pg_tz);

impl TimeZone {
    /// The zone in `pg_timezone_names` of this name, in upper or lower case. `SET timezone` also
    /// takes POSIX time zones such as `UTC+3`, whose signs are reversed: those are not found.
    pub fn find(name: &str) -> Option<TimeZone> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is copied. Zones that count leap seconds are none that Postgres can use.
        let zone = unsafe {
            let zone = pg_sys::pg_tzset(name.as_ptr());
            (!zone.is_null() && pg_sys::pg_tz_acceptable(zone)).then_some(TimeZone(zone))
        };
        zone.filter(|_| has_file(&name))
    }

    /// The names of all that there are. The server reads each from its file.
    pub fn names() -> Vec<String> {
        let mut names = Vec::new();
        // SAFETY: the walk is begun and ended here, and what it hands over is read before it goes
        // on.
        unsafe {
            let walk = pg_sys::pg_tzenumerate_start();
            loop {
                let zone = pg_sys::pg_tzenumerate_next(walk);
                if zone.is_null() {
                    break;
                }
                names.push(TimeZone(zone).name());
            }
            pg_sys::pg_tzenumerate_end(walk);
        }
        names
    }

    /// Its name as the server writes it.
    pub fn name(self) -> String {
        // SAFETY: the name is part of the zone.
        unsafe { text::copied(pg_sys::pg_get_timezone_name(self.0)) }
    }

    /// What its clocks show at a moment, both in microseconds since 2000-01-01 00:00, of UTC and of
    /// the clock.
    pub fn show(self, at: i64) -> i64 {
        let seconds = at.div_euclid(MICROS_PER_SECOND) + UNIX_TO_POSTGRES_EPOCH;
        // SAFETY: the answer is a static buffer, read at once; null where the year does not fit.
        let offset = unsafe {
            let parts = pg_sys::pg_localtime(&seconds, self.0);
            assert!(!parts.is_null(), "no local time at {at}");
            (*parts).tm_gmtoff
        };
        at + offset * MICROS_PER_SECOND
    }
}

unsafe extern "C-unwind" {
    /// Opens the file of a zone and writes its name as the directory has it; negative: there is no
    /// such file.
    fn pg_open_tzfile(name: *const c_char, canonical: *mut c_char) -> c_int;
}

/// Whether the server's data has a file of this name, which `pg_tzset` has taken.
fn has_file(name: &CStr) -> bool {
    let mut canonical = [0; pg_sys::TZ_STRLEN_MAX as usize + 1];
    // SAFETY: `pg_tzset` takes no longer names than the buffer holds. The file is ours to close.
    unsafe {
        let file = pg_open_tzfile(name.as_ptr(), canonical.as_mut_ptr());
        (file >= 0).then(|| OwnedFd::from_raw_fd(file)).is_some()
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use super::TimeZone;
    use crate::pg::time;

    #[pg_test]
    fn zones_show_what_the_server_shows() {
        let names = "UTC Europe/Berlin America/New_York Australia/Lord_Howe Asia/Kathmandu America/St_Johns Etc/GMT+5 EST5EDT";
        for name in names.split(' ') {
            let zone = TimeZone::find(name).expect(name);
            for at in [
                "1883-11-18 12:00Z",
                "1970-01-01 00:00Z",
                "1999-12-31 23:59:59.999999Z",
                "2000-01-01 00:00Z",
                "2027-03-28 00:59:59.999999Z",
                "2027-03-28 01:00Z",
                "2027-10-31 01:00Z",
                "4000-07-01 00:00Z",
            ] {
                let shown = Spi::get_one_with_args::<String>(
                    "SELECT ($1::timestamptz AT TIME ZONE $2)::text || 'Z'",
                    &[at.into(), name.into()],
                )
                .expect(at)
                .expect(at);
                let at = time::read_timestamp(at).expect(at);
                let expected = time::read_timestamp(&shown).expect(&shown);
                assert_eq!(zone.show(at), expected, "{name} at {shown}");
            }
        }
    }

    #[pg_test]
    fn names_are_found_as_the_server_finds_them() {
        let name = |name| TimeZone::find(name).map(TimeZone::name);
        assert_eq!(name("europe/BERLIN").as_deref(), Some("Europe/Berlin"));
        assert_eq!(name("utc").as_deref(), Some("UTC"));
        assert_eq!(name("etc/gmt-3").as_deref(), Some("Etc/GMT-3"));
        assert_eq!(name("est5edt").as_deref(), Some("EST5EDT"));
        let unknown = " Mars/Olympus UTC+3 +03:00 3 GMT+5:30 UTC+100 Etc/GMT+99 CET-1CEST <+03>-3 EST5EDT,M3.2.0,M11.1.0 BST \
            ../../../etc/passwd /etc/localtime Europe/Berlin\0 right/Europe/Berlin";
        for unknown in unknown.split(' ').chain([&*"x".repeat(10_000)]) {
            assert!(name(unknown).is_none(), "{unknown:?}");
        }
    }
}
