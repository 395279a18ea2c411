//! Kept plans, run through SPI.
//!
//! pgrx' own client is not used here: until the transaction has an id it reads with
//! the outer statement's snapshot (a look after a lock would miss what the lock
//! waited for), and it gives every transaction an id, so that a mere duplicate would
//! write a commit record. Here every statement sees a fresh snapshot under READ
//! COMMITTED, and reading stays reading. And none runs with a caller's search_path.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

use jobs_core::interval::Interval;
use jobs_core::key::Key;
use jobs_core::state::State;
use pgrx::datum::Uuid;
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{FromDatum, IntoDatum};

use crate::fault;
use crate::pg::jsonb::{Jsonb, OwnedJsonb};
use crate::pg::{array, extension, path, planner, report, time, transaction, versions};

/// A parameter; `None` is null.
pub type Arg = Option<Datum>;

pub fn text(value: &str) -> Arg {
    value.into_datum()
}

/// A bigint or timestamptz parameter.
pub fn big(value: i64) -> Arg {
    Some(Datum::from(value))
}

pub fn bigs(values: &[i64]) -> Arg {
    column(pg_sys::INT8OID, values, |value| big(*value))
}

pub fn texts(values: &[impl AsRef<str>]) -> Arg {
    column(pg_sys::TEXTOID, values, |value| text(value.as_ref()))
}

/// An array parameter: of each of some things a value, of this type.
pub fn column<T>(of: Oid, things: &[T], value: impl Fn(&T) -> Arg) -> Arg {
    let values: Vec<Arg> = things.iter().map(value).collect();
    Some(array::build(of, &values))
}

/// A type of columns and parameters.
pub trait Value: Sized {
    /// What Postgres calls it.
    const TYPE: Oid;

    /// A copy of what a row has; `None` where that is no such value.
    fn read(datum: Datum) -> Option<Self>;

    /// As a parameter.
    fn arg(&self) -> Arg;
}

/// A field of a struct that a row is read into: an `Option`, if the column may be null.
pub trait Field: Sized {
    /// What the column has; `None` where that is no such value.
    fn of(datum: Option<Datum>) -> Option<Self>;
}

impl<T: Value> Field for Option<T> {
    fn of(datum: Option<Datum>) -> Option<Option<T>> {
        Some(datum.and_then(T::read))
    }
}

/// A struct that has a field for each column, by its name.
pub trait Row: Sized {
    fn read(rows: &Tuples, row: usize) -> Self;
}

/// Structs that rows are read into.
macro_rules! rows {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$what:meta])* pub $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        pub struct $name {
            $($(#[$what])* pub $field: $type,)*
        }

        impl $crate::pg::spi::Row for $name {
            fn read(rows: &$crate::pg::spi::Tuples, row: usize) -> $name {
                $name { $($field: rows.given(row, stringify!($field)),)* }
            }
        }
    )*};
}
pub(crate) use rows;

macro_rules! values {
    ($($type:ty: $oid:ident, $read:expr, $arg:expr;)*) => {$(
        impl Value for $type {
            const TYPE: Oid = pg_sys::$oid;

            fn read(datum: Datum) -> Option<$type> {
                $read(datum)
            }

            fn arg(&self) -> Arg {
                $arg(self)
            }
        }

        impl Field for $type {
            fn of(datum: Option<Datum>) -> Option<$type> {
                Value::read(datum?)
            }
        }
    )*};
}
values! {
    bool: BOOLOID, plain, plain_arg;
    i8: CHAROID, plain, plain_arg;
    i16: INT2OID, plain, plain_arg;
    i32: INT4OID, plain, plain_arg;
    i64: INT8OID, plain, plain_arg;
    Oid: OIDOID, plain, plain_arg;
    Uuid: UUIDOID, plain, plain_arg;
    String: TEXTOID, plain, plain_arg;
    Vec<u8>: BYTEAOID, plain, plain_arg;
    Vec<i64>: INT8ARRAYOID, plain, plain_arg;
    Vec<String>: TEXTARRAYOID, plain, plain_arg;
    Interval: INTERVALOID, |datum| Some(time::read_datum(datum)), |span: &Interval| Some(time::interval_datum(*span));
    Jsonb: JSONBOID, copied, |value: &Jsonb| Some(value.datum());
    OwnedJsonb: JSONBOID, |datum| Some(OwnedJsonb::new(Jsonb::from_datum(datum))), |value: &OwnedJsonb| Some(value.get().datum());
    Key: BYTEAOID, |datum| Key::from_bytes(&Vec::read(datum)?), |key: &Key| key.0.as_slice().into_datum();
    State: TEXTOID, named, |state: &State| text(state.as_str());
}

fn plain<T: FromDatum>(datum: Datum) -> Option<T> {
    // SAFETY: the column has this type, and none of the above points into the row.
    unsafe { T::from_datum(datum, false) }
}

fn plain_arg<T: IntoDatum + Clone>(value: &T) -> Arg {
    value.clone().into_datum()
}

/// A copy in the memory of the caller.
fn copied(datum: Datum) -> Option<Jsonb> {
    let value = Jsonb::from_datum(datum);
    // SAFETY: a varlena, copied into the memory that was current before SPI_connect.
    let copy = unsafe { pg_sys::SPI_datumTransfer(value.datum(), false, -1) };
    Some(Jsonb::from_datum(copy))
}

fn named(datum: Datum) -> Option<State> {
    let name = String::read(datum)?;
    Some(State::from_str(&name).unwrap_or_else(|| panic!("unknown state {name}")))
}

/// What a statement sees.
#[derive(Clone, Copy)]
pub enum Snapshot {
    /// Rows committed when the statement begins, and this transaction's own.
    Own,
    /// The snapshot of the calling statement, so that several statements see the same moment.
    /// Read-only.
    Callers,
    /// Rows committed now, whatever the isolation level, and this transaction's own. Read-only.
    Latest,
}

impl Snapshot {
    /// [`Latest`](Snapshot::Latest) where Postgres allows it: not in a parallel query.
    pub fn latest() -> Snapshot {
        match transaction::is_parallel() {
            true => Snapshot::Own,
            false => Snapshot::Latest,
        }
    }
}

/// A statement that is planned once a session, generically.
pub struct Plan {
    /// Makes its text.
    sql: fn() -> String,
    types: &'static [Oid],
    /// Whether it reads catalogs only.
    is_of_catalogs: bool,
    /// Cursor options, which say how it is planned.
    options: i32,
    handle: AtomicPtr<pg_sys::_SPI_plan>,
}

impl Plan {
    /// Declares a statement by what makes its text, once a session; see [`plans!`]. Its names are
    /// schema-qualified.
    pub const fn built(sql: fn() -> String, types: &'static [Oid]) -> Plan {
        Plan {
            sql,
            types,
            is_of_catalogs: false,
            options: planner::PINNED,
            handle: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// It may also be run where the extension is not in its place.
    pub const fn of_catalogs(self) -> Plan {
        Plan { is_of_catalogs: true, ..self }
    }

    /// It reads along an index of ranges of pages (BRIN).
    pub const fn of_ranges(self) -> Plan {
        Plan { options: planner::PINNED | planner::BITMAPS, ..self }
    }

    /// Runs the statement and reads its rows. Values that `read` returns must not
    /// point into the rows: they are gone afterwards.
    pub fn run<T>(&self, args: &[Arg], read: impl FnOnce(&Tuples) -> T) -> T {
        self.run_with(args, fault::reads_outer_snapshot(), read)
    }

    /// [`Plan::run`], by what this snapshot shows.
    pub fn run_as_of<T>(
        &self,
        snapshot: Snapshot,
        args: &[Arg],
        read: impl FnOnce(&Tuples) -> T,
    ) -> T {
        match snapshot {
            Snapshot::Own => self.run(args, read),
            Snapshot::Callers => self.run_with(args, true, read),
            Snapshot::Latest => {
                transaction::with_latest_snapshot(|| self.run_with(args, true, read))
            }
        }
    }

    fn run_with<T>(&self, args: &[Arg], read_only: bool, read: impl FnOnce(&Tuples) -> T) -> T {
        assert_eq!(args.len(), self.types.len(), "{}", (self.sql)());
        if !self.is_of_catalogs {
            extension::schema();
        }
        let mut values: Vec<Datum> = args.iter().map(|a| a.unwrap_or(Datum::null())).collect();
        let nulls: Vec<c_char> =
            args.iter().map(|a| if a.is_some() { b' ' } else { b'n' } as c_char).collect();
        // SAFETY: the SPI protocol; an error unwinds through here and Postgres
        // cleans up the connection when it rolls back.
        let run = || unsafe {
            pg_sys::SPI_connect();
            let code = pg_sys::SPI_execute_plan(
                self.prepared(),
                values.as_mut_ptr(),
                nulls.as_ptr(),
                read_only,
                0,
            );
            assert!(code >= 0, "{} failed: {code}", (self.sql)());
            let answer = read(&Tuples {
                table: pg_sys::SPI_tuptable,
                processed: pg_sys::SPI_processed as usize,
                next: Cell::new(0),
            });
            pg_sys::SPI_finish();
            answer
        };
        report::kept(|| path::pinned(run))
    }

    /// Runs the statement and reads each of its rows; what comes of them but `None`.
    pub fn list<T>(&self, args: &[Arg], read: impl FnMut(&Tuples, usize) -> Option<T>) -> Vec<T> {
        self.list_as_of(Snapshot::Own, args, read)
    }

    /// [`Plan::list`], by what this snapshot shows.
    pub fn list_as_of<T>(
        &self,
        snapshot: Snapshot,
        args: &[Arg],
        mut read: impl FnMut(&Tuples, usize) -> Option<T>,
    ) -> Vec<T> {
        self.run_as_of(snapshot, args, |rows| {
            (0..rows.len()).filter_map(|row| read(rows, row)).collect()
        })
    }

    /// Runs the statement and reads its rows.
    pub fn rows<T: Row>(&self, args: &[Arg]) -> Vec<T> {
        self.rows_as_of(Snapshot::Own, args)
    }

    /// [`Plan::rows`], by what this snapshot shows.
    pub fn rows_as_of<T: Row>(&self, snapshot: Snapshot, args: &[Arg]) -> Vec<T> {
        self.list_as_of(snapshot, args, |rows, row| Some(T::read(rows, row)))
    }

    /// Runs the statement and reads its first row, if there is one.
    pub fn row<T: Row>(&self, args: &[Arg]) -> Option<T> {
        self.row_as_of(Snapshot::Own, args)
    }

    /// [`Plan::row`], by what this snapshot shows.
    pub fn row_as_of<T: Row>(&self, snapshot: Snapshot, args: &[Arg]) -> Option<T> {
        self.first_as_of(snapshot, args, |rows| T::read(rows, 0))
    }

    /// Runs the statement and reads its first row, if there is one.
    pub fn first<T>(&self, args: &[Arg], read: impl FnOnce(&Tuples) -> T) -> Option<T> {
        self.first_as_of(Snapshot::Own, args, read)
    }

    /// [`Plan::first`], by what this snapshot shows.
    pub fn first_as_of<T>(
        &self,
        snapshot: Snapshot,
        args: &[Arg],
        read: impl FnOnce(&Tuples) -> T,
    ) -> Option<T> {
        self.run_as_of(snapshot, args, |rows| (!rows.is_empty()).then(|| read(rows)))
    }

    /// Runs the statement and reads the only column of its first row; `None`: there is no row, or
    /// it is null.
    pub fn value<T: Value>(&self, args: &[Arg]) -> Option<T> {
        self.value_as_of(Snapshot::Own, args)
    }

    /// [`Plan::value`], by what this snapshot shows.
    pub fn value_as_of<T: Value>(&self, snapshot: Snapshot, args: &[Arg]) -> Option<T> {
        let value = self.first_as_of(snapshot, args, |rows| rows.at(0, ONLY));
        value.flatten()
    }

    /// Runs the statement and reads its only column, but for nulls.
    pub fn values<T: Value>(&self, args: &[Arg]) -> Vec<T> {
        self.list(args, |rows, row| rows.at(row, ONLY))
    }

    /// Runs the statement for its effect; how many rows it touched or returned.
    pub fn execute(&self, args: &[Arg]) -> usize {
        self.run(args, |rows| rows.processed)
    }

    unsafe fn prepared(&self) -> pg_sys::SPIPlanPtr {
        let kept = self.handle.load(Ordering::Relaxed);
        if !kept.is_null() {
            return kept;
        }
        let sql = CString::new((self.sql)());
        let sql = sql.expect("statements have no zero byte");
        // SAFETY: within SPI; the text and the types live through the call.
        unsafe {
            let plan = pg_sys::SPI_prepare_cursor(
                sql.as_ptr(),
                self.types.len() as i32,
                self.types.as_ptr().cast_mut(),
                self.options | pg_sys::CURSOR_OPT_GENERIC_PLAN as i32,
            );
            assert!(!plan.is_null(), "{} was not prepared", (self.sql)());
            pg_sys::SPI_keepplan(plan);
            self.handle.store(plan, Ordering::Relaxed);
            plan
        }
    }
}

/// Declares statements: name, types of the parameters (in brackets a list of them), and the text as
/// [`format!`] takes it, or after `=>` what makes it. Names in it are schema-qualified.
macro_rules! plans {
    ($($visible:vis $name:ident $types:tt $($how:ident)?
        $(= $format:literal $(, $key:ident = $value:expr)*)? $(=> $text:expr)?;)*) => {$(
        #[allow(clippy::useless_format)]
        $visible static $name: $crate::pg::spi::Plan = $crate::pg::spi::Plan::built(
            || { $(format!($format $(, $key = $value)*))? $($text)? },
            $crate::pg::spi::types!($types),
        )$(.$how())?;
    )*};
}
pub(crate) use plans;

macro_rules! types {
    (($($type:ident),*)) => { &[$($type),*] };
    ([$types:expr]) => { $types };
}
pub(crate) use types;

pub fn run_text(statement: &str) {
    let statement = CString::new(statement).expect("names have no zero byte");
    // SAFETY: the SPI protocol; an error unwinds through here and Postgres cleans up.
    path::pinned(|| unsafe {
        pg_sys::SPI_connect();
        let code = pg_sys::SPI_execute(statement.as_ptr(), false, 0);
        assert!(code >= 0, "{statement:?} failed: {code}");
        pg_sys::SPI_finish();
    });
}

/// Rows of a statement, while it is being read.
pub struct Tuples {
    table: *mut pg_sys::SPITupleTable,
    processed: usize,
    /// Where the next name is looked up first: behind the column that was named last.
    next: Cell<usize>,
}

/// The column of a statement that has one.
const ONLY: i32 = 1;

impl Tuples {
    pub fn len(&self) -> usize {
        self.processed
    }

    pub fn is_empty(&self) -> bool {
        self.processed == 0
    }

    fn tuple(&self, row: usize) -> pg_sys::HeapTuple {
        assert!(row < self.processed);
        // SAFETY: the table has that many rows.
        unsafe { *(*self.table).vals.add(row) }
    }

    /// A row's columns as they are, and which of them are null; valid only while the rows are.
    pub fn datums(&self, row: usize) -> (Vec<Datum>, Vec<bool>) {
        // SAFETY: the buffers have room for a row of that descriptor.
        unsafe {
            let desc = (*self.table).tupdesc;
            let columns = (*desc).natts as usize;
            let (mut values, mut nulls) = (vec![Datum::null(); columns], vec![false; columns]);
            let tuple = self.tuple(row);
            pg_sys::heap_deform_tuple(tuple, desc, values.as_mut_ptr(), nulls.as_mut_ptr());
            (values, nulls)
        }
    }

    /// A column (from 1) as it is; valid only while the rows are.
    fn datum(&self, row: usize, column: i32) -> Option<Datum> {
        let mut is_null = false;
        // SAFETY: SPI checks the column's number and answers null for a wrong one.
        let datum = unsafe {
            pg_sys::SPI_getbinval(self.tuple(row), (*self.table).tupdesc, column, &mut is_null)
        };
        (!is_null).then_some(datum)
    }

    /// A column's value, by the number of the column, which has a name in `columns!`.
    pub fn at<T: Value>(&self, row: usize, column: i32) -> Option<T> {
        T::read(self.datum(row, column)?)
    }

    /// A column as it is; valid only while the rows are.
    pub fn raw(&self, row: usize, column: &str) -> Option<Datum> {
        let number = self.number(column);
        let number = number.unwrap_or_else(|| panic!("there is no column {column}"));
        self.datum(row, number)
    }

    /// A column's value; `None`: it is null.
    pub fn get<T: Value>(&self, row: usize, column: &str) -> Option<T> {
        T::read(self.raw(row, column)?)
    }

    /// The value of a column that is never null, or an `Option`.
    pub fn given<T: Field>(&self, row: usize, column: &str) -> T {
        let value = T::of(self.raw(row, column));
        value.unwrap_or_else(|| panic!("{column} is null"))
    }

    /// A column's value; `None`: it is null, or there is no such column.
    pub fn find<T: Value>(&self, row: usize, column: &str) -> Option<T> {
        self.at(row, self.number(column)?)
    }

    /// The number of a column. Rows are mostly read in the order of their columns: the first look
    /// finds it.
    fn number(&self, column: &str) -> Option<i32> {
        let next = self.next.get();
        // SAFETY: rows have a description, and names end with a zero byte.
        let found = unsafe {
            let columns = versions::columns((*self.table).tupdesc);
            let name = |n: usize| CStr::from_ptr(columns[n].attname.data.as_ptr());
            let mut all = (next..columns.len()).chain(0..next);
            all.find(|n| name(*n).to_bytes() == column.as_bytes())
        };
        self.next.set(found? + 1);
        found.map(|n| n as i32 + 1)
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::pg_sys::{INT4OID, TEXTOID};
    use pgrx::prelude::*;

    use super::text;
    use crate::pg::subxact;

    #[pg_test]
    fn statements_run_with_the_sessions_own_switches_once_planned() {
        plans! { SHOW() = "SELECT current_setting('enable_seqscan') || current_setting('jit')"; }
        for _ in 0..2 {
            assert_eq!(SHOW.value::<String>(&[]).as_deref(), Some("onon"));
        }
    }

    /// A table that is read from end to end in every session but for our statements.
    fn make_table() {
        Spi::run(
            "CREATE TABLE jobs.numbers (n integer PRIMARY KEY); INSERT INTO jobs.numbers SELECT generate_series(1, 3); ANALYZE jobs.numbers;
             SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off",
        )
        .expect("a table");
    }

    /// How often it was read from end to end so far.
    fn scans() -> i64 {
        let scans =
            "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relid = 'jobs.numbers'::regclass";
        Spi::get_one(scans).expect(scans).expect(scans)
    }

    #[pg_test]
    fn statements_are_planned_in_one_way_whatever_is_set() {
        plans! { FIND(INT4OID) = "SELECT n FROM jobs.numbers WHERE n = $1"; }
        make_table();
        let find = || FIND.value::<i32>(&[Some(2.into())]);
        let before = scans();
        Spi::run("SELECT n FROM jobs.numbers WHERE n = 2").expect("a query");
        assert_eq!(scans(), before + 1, "what others ask is planned as ever");
        for mode in ["auto", "force_custom_plan", "force_generic_plan", "auto"] {
            Spi::run(&format!("SET LOCAL plan_cache_mode = {mode}")).expect("set");
            for _ in 0..7 {
                assert_eq!(find(), Some(2));
            }
            // Planned anew.
            Spi::run("ALTER TABLE jobs.numbers ADD CHECK (n > 0)").expect("alter");
            let before = scans();
            assert_eq!(find(), Some(2));
            assert_eq!(scans(), before, "{mode}");
        }
    }

    #[pg_test]
    fn a_plan_that_fails_to_be_made_leaves_the_switches_alone() {
        plans! { FAIL() = "SELECT n FROM jobs.numbers WHERE n = 1 / 0"; }
        make_table();
        let failed = subxact::attempt(|| FAIL.execute(&[]));
        assert_eq!(
            subxact::describe(&failed.expect_err("division by zero")).0,
            PgSqlErrorCode::ERRCODE_DIVISION_BY_ZERO
        );
        assert_eq!(
            Spi::get_one::<String>(
                "SELECT current_setting('enable_seqscan') || current_setting('enable_indexscan')"
            ),
            Ok(Some("onoff".into()))
        );
    }

    #[pg_test]
    fn no_statement_runs_with_a_callers_search_path() {
        plans! { SHOW() = "SELECT current_setting('search_path')"; }
        plans! { FAIL(TEXTOID) = "SELECT 1 / length($1)"; }
        let callers = || Spi::get_one::<String>("SHOW search_path").expect("path");
        Spi::run("SET search_path = evil, pg_catalog").expect("set");
        for _ in 0..2 {
            assert_eq!(SHOW.value::<String>(&[]).as_deref(), Some("pg_catalog, pg_temp"));
            assert_eq!(callers().as_deref(), Some("evil, pg_catalog"));
        }
        assert!(subxact::attempt(|| FAIL.execute(&[text("")])).is_err());
        assert_eq!(callers().as_deref(), Some("evil, pg_catalog"));
    }

    #[pg_test]
    fn reading_takes_no_transaction_id() {
        plans! { READ() = "SELECT count(*) FROM jobs.job"; }
        plans! { ID() = "SELECT pg_current_xact_id_if_assigned()::text"; }
        READ.execute(&[]);
        assert_eq!(ID.value::<String>(&[]), None);
    }
}
