//! What SQL functions return: a state, one record, or rows, in the types that the
//! function was declared with.

use std::cell::RefCell;
use std::collections::HashMap;

use jobs_core::state::State;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use smallvec::SmallVec;

use super::memory::Scratch;
use super::name::label_of;
use super::versions;

/// One column of an answer.
#[derive(Clone, Debug)]
pub enum Cell {
    /// NULL
    Null,
    /// boolean
    Bool(bool),
    /// integer
    Int(i32),
    /// bigint
    Big(i64),
    /// timestamptz
    At(i64),
    /// text
    Text(String),
    /// jobs.state
    State(State),
    /// jobs.state[]
    States(Vec<State>),
    /// interval of this many microseconds
    Span(i64),
    /// jsonb
    Json(String),
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

impl From<State> for Cell {
    fn from(state: State) -> Cell {
        Cell::State(state)
    }
}

/// The labels of jobs.state as datums, each looked up at most once an answer.
struct StateType {
    oid: Oid,
    labels: [Option<Datum>; State::ALL.len()],
}

impl StateType {
    fn new(oid: Oid) -> StateType {
        StateType {
            oid,
            labels: [None; State::ALL.len()],
        }
    }

    fn datum(&mut self, state: State) -> Datum {
        let oid = self.oid;
        *self.labels[state as usize].get_or_insert_with(|| label_of(oid, state.as_str()))
    }
}

/// Most rows are not wider.
type Values = SmallVec<[Datum; 16]>;
type Nulls = SmallVec<[bool; 16]>;

/// Builds tuples of the declared row type.
struct Builder {
    desc: pg_sys::TupleDesc,
    state: StateType,
}

impl Builder {
    fn new(desc: pg_sys::TupleDesc) -> Builder {
        // SAFETY: a valid descriptor; every answer with a state has that column's type.
        let oid = unsafe {
            let columns = versions::columns(desc);
            let of_states = |a: &&pg_sys::FormData_pg_attribute| {
                let name = pgrx::name_data_to_str(&a.attname);
                name.ends_with("state") || name == "estimated"
            };
            let oid = columns
                .iter()
                .find(of_states)
                .map_or(pg_sys::InvalidOid, |a| a.atttypid);
            match pg_sys::get_element_type(oid) {
                pg_sys::InvalidOid => oid,
                element => element,
            }
        };
        Builder {
            desc,
            state: StateType::new(oid),
        }
    }

    fn cell(&mut self, cell: Cell) -> Option<Datum> {
        use pgrx::IntoDatum;
        Some(match cell {
            Cell::Null => return None,
            Cell::Bool(b) => Datum::from(b),
            Cell::Int(n) => Datum::from(n),
            Cell::Big(n) | Cell::At(n) => Datum::from(n),
            Cell::Text(text) => return text.into_datum(),
            Cell::State(state) => self.state.datum(state),
            Cell::States(states) => {
                let labels: Vec<Option<Datum>> = states
                    .into_iter()
                    .map(|s| Some(self.state.datum(s)))
                    .collect();
                super::array::build(self.state.oid, &labels)
            }
            Cell::Json(text) => super::jsonb::Jsonb::from_text(&text).datum(),
            Cell::Span(micros) => super::time::interval_datum(jobs_core::interval::Interval {
                months: 0,
                days: 0,
                micros,
            }),
        })
    }

    fn tuple(&mut self, cells: Vec<Cell>) -> pg_sys::HeapTuple {
        let (mut values, mut nulls) = (Values::new(), Nulls::new());
        for cell in cells {
            let value = self.cell(cell);
            values.push(value.unwrap_or(Datum::null()));
            nulls.push(value.is_none());
        }
        // SAFETY: the callers give a cell a column, in the column's type.
        unsafe {
            assert_eq!(values.len(), (*self.desc).natts as usize);
            pg_sys::heap_form_tuple(self.desc, values.as_mut_ptr(), nulls.as_mut_ptr())
        }
    }
}

/// The answer of a function that RETURNS jobs.state.
pub struct StateAnswer(pub State);

// SAFETY: the datum has the function's declared type.
unsafe impl BoxRet for StateAnswer {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: the function's call, while it is made.
        unsafe {
            let function = (*(*fcinfo.as_mut_ptr()).flinfo).fn_oid;
            let mut state = StateType::new(pg_sys::get_func_rettype(function));
            fcinfo.return_raw_datum(state.datum(self.0))
        }
    }
}

/// The answer of a function with OUT parameters: one record.
pub struct Record(pub Vec<Cell>);

// SAFETY: the tuple has the function's declared row type.
unsafe impl BoxRet for Record {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> pgrx::datum::Datum<'fcx> {
        // SAFETY: the function's call, while it is made.
        unsafe {
            let call = fcinfo.as_mut_ptr();
            let function = (*(*call).flinfo).fn_oid;
            let tuple = BUILDERS.with_borrow_mut(|known| {
                let builder = known
                    .entry(function)
                    .or_insert_with(|| Builder::new(result_desc(call)));
                builder.tuple(self.0)
            });
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

thread_local! {
    /// What builds the rows of functions: finding out a row type takes as long as an insertion into an index. That of a
    /// function never changes as long as it has its object id, nor do the labels of a state.
    static BUILDERS: RefCell<HashMap<Oid, Builder>> = RefCell::new(HashMap::new());
}

/// The row type of the function that was called, to be kept.
unsafe fn result_desc(fcinfo: FunctionCallInfo) -> pg_sys::TupleDesc {
    // SAFETY: the function's call; the copy is kept for the life of the session.
    unsafe {
        let mut desc: pg_sys::TupleDesc = std::ptr::null_mut();
        let class = pg_sys::get_call_result_type(fcinfo, std::ptr::null_mut(), &mut desc);
        assert!(class == pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE);
        let before = pg_sys::MemoryContextSwitchTo(pg_sys::CacheMemoryContext);
        let kept = pg_sys::CreateTupleDescCopy(desc);
        pg_sys::MemoryContextSwitchTo(before);
        pg_sys::BlessTupleDesc(kept)
    }
}

/// The answer of a set-returning function, collected row by row.
pub struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    builder: Builder,
    /// what one row takes, once there are many
    scratch: Option<Scratch>,
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
                builder: Builder::new((*info).setDesc),
                scratch: None,
                pushed: 0,
            }
        }
    }

    /// Appends a row.
    pub fn push(&mut self, cells: Vec<Cell>) {
        pgrx::check_for_interrupts!();
        let push = || {
            let tuple = self.builder.tuple(cells);
            // SAFETY: the store copies the tuple.
            unsafe { pg_sys::tuplestore_puttuple(self.store, tuple) };
        };
        self.pushed += 1;
        match self.pushed > FEW {
            true => self.scratch.get_or_insert_with(Scratch::new).within(push),
            false => push(),
        }
    }

    /// Appends a row that a statement returned: its first columns are the declared ones.
    pub fn push_datums(&mut self, (mut values, mut nulls): (Vec<Datum>, Vec<bool>)) {
        let desc = self.builder.desc;
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

/// The functions are declared by hand in sql/: pgrx asks for a name all the same.
macro_rules! declared_in_sql {
    ($($type:ident),*) => {$(
        // SAFETY: used only by functions whose SQL is written by hand.
        unsafe impl SqlTranslatable for $type {
            const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!($type);
            const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
            const ARGUMENT_SQL: Result<
                SqlMappingRef,
                pgrx::pgrx_sql_entity_graph::metadata::ArgumentError,
            > = Ok(SqlMappingRef::literal("record"));
            const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
                Ok(ReturnsRef::One(SqlMappingRef::literal("record")));
        }
    )*};
}
declared_in_sql!(StateAnswer, Record, Rows);
