//! What SQL functions return: a state, one record, or rows, in the types that the
//! function was declared with.

use std::ffi::CStr;

use jobs_core::interval::Interval;
use jobs_core::state::State;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::pgrx_sql_entity_graph::impl_sql_translatable;
use pgrx::{IntoDatum, PgLogLevel, PgSqlErrorCode};
use smallvec::SmallVec;

use super::jsonb::Jsonb;
use super::memory::Scratch;
use super::name::label_of;
use super::row::Value;
use super::{array, time, versions};

#[derive(Clone, Debug)]
pub enum Cell {
    Null,
    Bool(bool),
    Int(i32),
    Big(i64),
    /// A timestamptz.
    At(i64),
    Text(String),
    State(State),
    States(Vec<State>),
    Bigs(Vec<i64>),
    /// An interval of this many microseconds.
    Span(i64),
    /// The text of a jsonb.
    Json(String),
    Jsonb(Jsonb),
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, Into::into)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<Jsonb> for Cell {
    fn from(value: Jsonb) -> Cell {
        Cell::Jsonb(value)
    }
}

impl From<State> for Cell {
    fn from(state: State) -> Cell {
        Cell::State(state)
    }
}

/// Most rows are not wider.
type Values = SmallVec<[Datum; 16]>;
type Nulls = SmallVec<[bool; 16]>;

impl Cell {
    /// The value for a column of this type; `None`: it does not fit.
    fn value(self, of: Oid) -> Option<Value> {
        let (fits, value) = match self {
            Cell::Null => return Some(None),
            Cell::Bool(b) => (pg_sys::BOOLOID, Datum::from(b)),
            Cell::Int(n) => (pg_sys::INT4OID, Datum::from(n)),
            Cell::Big(n) => (pg_sys::INT8OID, Datum::from(n)),
            Cell::Bigs(list) => (pg_sys::INT8ARRAYOID, list.into_datum()?),
            Cell::At(n) => (pg_sys::TIMESTAMPTZOID, Datum::from(n)),
            Cell::Text(text) => (pg_sys::TEXTOID, text.into_datum()?),
            Cell::Json(text) => (pg_sys::JSONBOID, Jsonb::from_text(&text).datum()),
            Cell::Jsonb(value) => (pg_sys::JSONBOID, value.datum()),
            Cell::Span(micros) => {
                (pg_sys::INTERVALOID, time::interval_datum(Interval::of_micros(micros)))
            }
            Cell::State(state) => {
                let label = label_of(of, state.as_str());
                return (label != Datum::null()).then_some(Some(label));
            }
            Cell::States(states) => {
                // SAFETY: a catalog look-up.
                let of = unsafe { pg_sys::get_element_type(of) };
                let label = |state: State| Some(label_of(of, state.as_str()));
                let labels: Vec<_> = states.into_iter().map(label).collect();
                return (of != pg_sys::InvalidOid).then(|| Some(array::build(of, &labels)));
            }
        };
        (fits == of).then_some(Some(value))
    }
}

/// A row of this type, of a cell for each of its columns.
unsafe fn tuple(desc: pg_sys::TupleDesc, cells: Vec<Cell>) -> pg_sys::HeapTuple {
    // SAFETY: the callers give a valid descriptor; cells are of the columns' types.
    unsafe {
        let columns = versions::columns(desc);
        check(desc, cells.len() == columns.len());
        let (mut values, mut nulls) = (Values::new(), Nulls::new());
        for (cell, column) in cells.into_iter().zip(columns) {
            let value = cell.value(column.atttypid);
            check(desc, value.is_some());
            let value = value.flatten();
            values.push(value.unwrap_or(Datum::null()));
            nulls.push(value.is_none());
        }
        pg_sys::heap_form_tuple(desc, values.as_mut_ptr(), nulls.as_mut_ptr())
    }
}

/// An error unless a row type is as the install script makes it. Its owner need not be a
/// superuser and can alter it: a number in a column of text would be read as an address.
unsafe fn check(desc: pg_sys::TupleDesc, is_so: bool) {
    if is_so {
        return;
    }
    // SAFETY: the callers give a valid descriptor.
    let name = unsafe { CStr::from_ptr(pg_sys::format_type_be((*desc).tdtypeid)) };
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("type {} was altered", name.to_string_lossy()),
        "jobs",
    )
    .set_detail("The extension's types must have the columns with which they were created.")
    .set_hint("Restore the columns that docs/reference.md lists.")
    .report(PgLogLevel::ERROR);
}

/// The type that the function was declared to return.
unsafe fn result_type(call: FunctionCallInfo) -> Oid {
    // SAFETY: a catalog look-up for the call under way.
    unsafe { pg_sys::get_func_rettype((*(*call).flinfo).fn_oid) }
}

/// The reply of a function that RETURNS jobs.state.
pub struct StateReply(pub State);

// SAFETY: the datum has the function's declared type.
unsafe impl BoxRet for StateReply {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: the function's call, while it is made.
        unsafe {
            let label = label_of(result_type(fcinfo.as_mut_ptr()), self.0.as_str());
            fcinfo.return_raw_datum(label)
        }
    }
}

/// The reply of a function that RETURNS a row type of ours.
pub struct Record(pub Vec<Cell>);

// SAFETY: the tuple has the function's declared row type.
unsafe impl BoxRet for Record {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        const ANY: i32 = -1;
        // SAFETY: the function's call, while it is made; its type is one of rows.
        unsafe {
            // Postgres keeps it for the session. Pinned, it stays while look-ups hear of changes.
            let desc = pg_sys::lookup_rowtype_tupdesc(result_type(fcinfo.as_mut_ptr()), ANY);
            let tuple = tuple(desc, self.0);
            pg_sys::DecrTupleDescRefCount(desc);
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

/// The reply of a set-returning function, collected row by row.
pub struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    desc: pg_sys::TupleDesc,
    /// Memory for one row, once there are many.
    scratch: Option<Scratch>,
    /// Its parent. Rows may be appended during a statement whose own memory goes earlier.
    memory: pg_sys::MemoryContext,
    pushed: usize,
}

/// So many rows do not fill the memory.
const FEW: usize = 100;

impl Rows {
    /// Prepares the call to return rows. An error if the caller does not take any.
    pub fn new(fcinfo: FunctionCallInfo) -> Rows {
        // SAFETY: fcinfo is the one of the call under way.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, 0);
            let info: *mut pg_sys::ReturnSetInfo = (*fcinfo).resultinfo.cast();
            Rows {
                store: (*info).setResult,
                desc: (*info).setDesc,
                scratch: None,
                memory: pg_sys::CurrentMemoryContext,
                pushed: 0,
            }
        }
    }

    pub fn push(&mut self, cells: Vec<Cell>) {
        pgrx::check_for_interrupts!();
        let (store, desc, memory) = (self.store, self.desc, self.memory);
        let push = || {
            // SAFETY: the store copies the tuple.
            unsafe { pg_sys::tuplestore_puttuple(store, tuple(desc, cells)) };
        };
        self.pushed += 1;
        match self.pushed > FEW {
            true => {
                // SAFETY: it is the call's.
                let scratch = || unsafe { Scratch::new_in(memory) };
                self.scratch.get_or_insert_with(scratch).within(push)
            }
            false => push(),
        }
    }

    /// Takes all rows back.
    pub fn clear(&mut self) {
        // SAFETY: the store is the call's.
        unsafe { pg_sys::tuplestore_clear(self.store) };
    }

    /// An error unless the rows have columns of these types. Who appends datums asks it first.
    pub fn expect(&self, types: &[Oid]) {
        // SAFETY: the descriptor is the call's.
        unsafe {
            let columns = versions::columns(self.desc).iter();
            check(self.desc, columns.map(|column| column.atttypid).eq(types.iter().copied()));
        }
    }

    /// Appends a row that a statement returned: its first columns are the declared ones.
    pub fn push_datums(&mut self, (mut values, mut nulls): (Vec<Datum>, Vec<bool>)) {
        let desc = self.desc;
        // SAFETY: there are as many columns as the store reads, and it copies them.
        unsafe {
            assert!(values.len() >= (*desc).natts as usize);
            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::tuplestore_putvalues(self.store, desc, values, nulls);
        }
    }
}

// SAFETY: the rows are in the call's result info already.
unsafe impl BoxRet for Rows {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        fcinfo.return_null()
    }
}

// They are declared by hand in sql/: pgrx asks for a name all the same.
impl_sql_translatable!(StateReply, "record");
impl_sql_translatable!(Record, "record");
impl_sql_translatable!(Rows, "record");
