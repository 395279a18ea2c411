//! Times and durations: timestamps are microseconds since 2000-01-01 UTC, as the server counts.

use std::ffi::CString;

use jobs_core::interval::Interval;
use pgrx::pg_sys::{self, Datum};
use pgrx::{FromDatum, IntoDatum};

use super::{text, versions};

const FIELDS: usize = pg_sys::MAXDATEFIELDS as usize;
const WORK: usize = 256;

/// The clock, not the transaction's start.
pub fn now() -> i64 {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// The end of time, as the server has it.
const END: i64 = 9_223_371_331_200_000_000;
const MICROS_PER_DAY: i128 = 86_400_000_000;

/// A timestamp later by a duration that is not negative; days and months are calendar arithmetic in
/// the session's time zone. Infinity if that would be near the end of time. Never earlier, though a
/// month less 29 days is, in February.
pub fn add(at: i64, duration: Interval) -> i64 {
    if i128::from(at) + at_most(duration) > i128::from(END) {
        return i64::MAX;
    }
    shift(pg_sys::F_TIMESTAMPTZ_PL_INTERVAL, at, duration).max(at)
}

/// When what is kept for so many microseconds ends that began `at`; `None`: it does not.
pub fn end_of(at: i64, kept: Option<i64>) -> i64 {
    let end = kept.map_or(i64::MAX, |kept| at.saturating_add(kept));
    if end > END { i64::MAX } else { end }
}

/// From when on what happened `at` is not younger than a duration that is not negative: [`ago`]
/// leads back to `at` or behind it. Of months that may be some days after [`add`], to the day: in
/// February, a month goes from the 28th to the end.
pub fn end_of_window(at: i64, duration: Interval) -> i64 {
    let mut end = add(at, duration);
    while is_finite(end) && ago(end, duration).is_some_and(|begin| begin < at) {
        end = end.saturating_add(MICROS_PER_DAY as i64);
    }
    end
}

/// A timestamp earlier by a duration that is not negative, calendar arithmetic likewise; `None` if
/// that is before any time that a job can have.
pub fn ago(at: i64, duration: Interval) -> Option<i64> {
    const LONGEST: i128 = 2000 * 366 * MICROS_PER_DAY;
    if at_most(duration) > LONGEST {
        return None;
    }
    Some(shift(pg_sys::F_TIMESTAMPTZ_MI_INTERVAL, at, duration).min(at))
}

/// Adds or subtracts by a function of the server's.
fn shift(function: u32, at: i64, duration: Interval) -> i64 {
    let mut span = to_server(duration);
    // SAFETY: both arguments have the types of the function, and what it returns fits.
    let shifted = unsafe {
        pg_sys::OidFunctionCall2Coll(
            pg_sys::Oid::from(function),
            pg_sys::InvalidOid,
            Datum::from(at),
            Datum::from(&raw mut span),
        )
    };
    shifted.value() as i64
}

/// How far the parts of a duration lead before those of the other sign lead back, in microseconds:
/// every month is a long one, and a day more for what clocks are put forward and back.
fn at_most(duration: Interval) -> i128 {
    let days = i128::from(duration.months.max(0)) * 31 + i128::from(duration.days.max(0)) + 1;
    days * MICROS_PER_DAY + i128::from(duration.micros.max(0))
}

/// An interval datum to hand to a statement, allocated in the memory of the call.
pub fn interval_datum(duration: Interval) -> Datum {
    // SAFETY: palloc'd and fully written.
    unsafe {
        let span: *mut pg_sys::Interval =
            pg_sys::palloc(std::mem::size_of::<pg_sys::Interval>()).cast();
        *span = to_server(duration);
        Datum::from(span)
    }
}

/// A duration that a statement returned.
pub fn read_datum(datum: Datum) -> Interval {
    // SAFETY: the datum is an interval.
    from_server(unsafe { &*datum.cast_mut_ptr() })
}

fn from_server(span: &pg_sys::Interval) -> Interval {
    Interval { months: span.month, days: span.day, micros: span.time }
}

/// A duration as the session prints it.
pub fn show(duration: Interval) -> String {
    // SAFETY: the function of that type.
    unsafe { text::printed(pg_sys::F_INTERVAL_OUT, interval_datum(duration)) }
}

/// A timestamp as the session prints it.
pub fn show_at(at: i64) -> String {
    // SAFETY: the function of that type.
    unsafe { text::printed(pg_sys::F_TIMESTAMPTZ_OUT, Datum::from(at)) }
}

/// A timestamp to the millisecond, in the session's time zone, whatever its `DateStyle`.
pub fn shown(at: i64) -> String {
    if !is_finite(at) {
        return show_at(at);
    }
    let format = "YYYY-MM-DD HH24:MI:SS.MS OF".into_datum().expect("a text");
    // SAFETY: both arguments have the types of the function; of a finite time it makes a text.
    let shown = unsafe {
        let function = pg_sys::Oid::from(pg_sys::F_TO_CHAR_TIMESTAMPTZ_TEXT);
        let collation = pg_sys::DEFAULT_COLLATION_OID;
        let shown = pg_sys::OidFunctionCall2Coll(function, collation, Datum::from(at), format);
        String::from_datum(shown, false)
    };
    shown.expect("it is not null")
}

/// A timestamp as JSON has it, whatever the session's `DateStyle`, without quotes.
pub fn json_at(at: i64) -> String {
    const LONGEST: usize = pg_sys::MAXDATELEN as usize + 1;
    let mut text = [0; LONGEST];
    // SAFETY: the function writes no more than that, and ends it with a zero byte.
    unsafe {
        let (of, own_zone) = (pg_sys::TIMESTAMPTZOID, std::ptr::null());
        pg_sys::JsonEncodeDateTime(text.as_mut_ptr(), Datum::from(at), of, own_zone);
        text::copied(text.as_ptr())
    }
}

fn to_server(duration: Interval) -> pg_sys::Interval {
    pg_sys::Interval { time: duration.micros, day: duration.days, month: duration.months }
}

/// Reads ISO 8601 and Postgres interval text with the server's own reader, whatever the session's
/// `IntervalStyle`: one session stores a policy, another one reads it. Unlike `interval_in` it
/// answers bad text instead of raising an error.
pub fn read_interval(text: &str) -> Option<Interval> {
    let style = &raw mut pg_sys::IntervalStyle;
    // SAFETY: a setting of this process, which has one thread. The reader raises no error that
    // would keep it from coming back.
    unsafe {
        let before = style.replace(pg_sys::INTSTYLE_POSTGRES as i32);
        let read = decode_interval(text);
        style.write(before);
        read
    }
}

fn decode_interval(text: &str) -> Option<Interval> {
    let mut fields = Fields::parse(text)?;
    let mut found = pg_sys::pg_itm_in::default();
    let mut kind = 0;
    // SAFETY: the fields point into the buffers of `fields`.
    unsafe {
        let mut code = pg_sys::DecodeInterval(
            fields.start.as_mut_ptr(),
            fields.kind.as_mut_ptr(),
            fields.count,
            0x7FFF,
            &mut kind,
            &mut found,
        );
        if code == pg_sys::DTERR_BAD_FORMAT {
            let iso = CString::new(text).ok()?;
            code = pg_sys::DecodeISO8601Interval(iso.as_ptr().cast_mut(), &mut kind, &mut found);
        }
        let mut span = pg_sys::Interval::default();
        (code == 0
            && kind == pg_sys::DTK_DELTA as i32
            && pg_sys::itmin2interval(&mut found, &mut span) == 0)
            .then(|| from_server(&span))
    }
}

/// Reads a finite timestamp with the server's own reader, without raising an error on bad text.
pub fn read_timestamp(text: &str) -> Option<i64> {
    let mut fields = Fields::parse(text)?;
    let mut at = 0;
    // SAFETY: the fields point into the buffers of `fields`.
    unsafe {
        let (start, kind) = (fields.start.as_mut_ptr(), fields.kind.as_mut_ptr());
        let mut found = versions::decode_date_time(start, kind, fields.count)?;
        if found.kind == pg_sys::DTK_EPOCH as i32 {
            return Some(pg_sys::SetEpochTimestamp());
        }
        (found.kind == pg_sys::DTK_DATE as i32
            && pg_sys::tm2timestamp(&mut found.parts, found.fraction, &mut found.zone, &mut at)
                == 0)
            .then_some(at)
    }
}

pub fn is_finite(at: i64) -> bool {
    at != i64::MIN && at != i64::MAX
}

/// Text cut into the fields that the server's date and interval readers work on.
struct Fields {
    start: [*mut std::ffi::c_char; FIELDS],
    kind: [i32; FIELDS],
    count: i32,
    /// What `start` points into.
    _work: Box<[std::ffi::c_char; WORK]>,
}

impl Fields {
    fn parse(text: &str) -> Option<Fields> {
        let text = CString::new(text).ok()?;
        let mut fields = Fields {
            start: [std::ptr::null_mut(); FIELDS],
            kind: [0; FIELDS],
            count: 0,
            _work: Box::new([0; WORK]),
        };
        // SAFETY: the buffers have the sizes that are passed.
        let code = unsafe {
            pg_sys::ParseDateTime(
                text.as_ptr(),
                fields._work.as_mut_ptr(),
                WORK,
                fields.start.as_mut_ptr(),
                fields.kind.as_mut_ptr(),
                FIELDS as i32,
                &mut fields.count,
            )
        };
        (code == 0).then_some(fields)
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use jobs_core::interval::Interval;
    use pgrx::prelude::*;

    #[pg_test]
    fn intervals_are_read_as_the_server_casts_them() {
        for text in [
            "15 minutes",
            "PT15M",
            "P1Y2M3DT4H5M6.7S",
            "1 year 2 mons 3 days 04:05:06.789",
            "-1 day",
            "2 weeks ago",
            "@ 1 hour",
            "1.5 hours",
            "P1W",
            "00:00:01",
            "7",
            "PT",
        ] {
            let read = super::read_interval(text).expect(text);
            let cast = Spi::get_one_with_args::<pgrx::datum::Interval>(
                "SELECT $1::interval",
                &[text.into()],
            )
            .expect(text)
            .expect(text);
            assert_eq!(
                (read.months, read.days, read.micros),
                (cast.months(), cast.days(), cast.micros()),
                "{text}"
            );
        }
        for text in
            ["", "soon", "15 parsecs", "1 minute 1 minute 1 x", "\u{0}", "99999999999 years"]
        {
            assert!(super::read_interval(text).is_none(), "{text:?}");
        }
    }

    #[pg_test]
    fn intervals_are_read_whatever_the_style() {
        let read = |text| super::read_interval(text).expect(text).approximate_micros();
        Spi::run("SET LOCAL intervalstyle = sql_standard").expect("set");
        assert_eq!(read("-1 day 25:00:00"), 3_600_000_000);
        assert!(super::read_interval("soon").is_none());
        let style = Spi::get_one::<String>("SELECT pg_catalog.current_setting('intervalstyle')");
        assert_eq!(style.expect("show").expect("set"), "sql_standard");
    }

    #[pg_test]
    fn durations_are_added_and_taken_away_without_an_error() {
        let months_and_days = |months, days| Interval { months, days, micros: 0 };
        let at = |text| super::read_timestamp(text).expect(text);
        let from = at("2027-02-01Z");
        let day = 86_400_000_000;
        // 28 days less 29: not before it began.
        assert_eq!(super::add(from, months_and_days(1, -29)), from);
        assert_eq!(super::ago(at("2027-03-01Z"), months_and_days(1, -29)), Some(at("2027-03-01Z")));
        assert_eq!(super::add(from, months_and_days(1, -27)), from + day);
        // The end of time.
        assert_eq!(super::add(from, months_and_days(i32::MAX, 0)), i64::MAX);
        assert_eq!(super::ago(from, months_and_days(i32::MAX, 0)), None);
    }

    #[pg_test]
    fn timestamps_are_read_as_the_server_casts_them() {
        for text in [
            "2026-02-12T15:21:00Z",
            "2026-02-12 15:21:00.123456+02",
            "2026-02-12",
            "12 Feb 2026 15:21 Europe/Oslo",
            "0044-03-15 BC",
            "epoch",
            "today",
            "tomorrow",
        ] {
            let read = super::read_timestamp(text).expect(text);
            let cast = Spi::get_one_with_args::<TimestampWithTimeZone>(
                "SELECT $1::timestamptz",
                &[text.into()],
            )
            .expect(text)
            .expect(text);
            assert_eq!(read, i64::from(cast), "{text}");
        }
        for text in ["", "soon", "infinity", "2026-13-01", "2026-02-30", "294277-01-01"] {
            assert!(super::read_timestamp(text).is_none(), "{text:?}");
        }
    }
}
