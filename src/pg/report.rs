//! What pgrx leaves out of an error. It takes each apart that comes through it and raises it anew,
//! without the names of a column, constraint and so on, and with the SQLSTATE of an internal error
//! if it does not know the error's own: one that a user's trigger has made up. An error of ours
//! it cannot give the name of a column at all. Here they get what they lack.
//!
//! Some errors are put into words of ours, before they are sent: a duplicate in one of our
//! indexes, whose report has the key, and a table of ours that is gone. For an out-of-memory error
//! a reserve is freed first (docs/internals/memory.md).

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use pgrx::pg_sys::{self, ErrorContextCallback, ErrorData, MemoryContext};
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::memory;
use crate::fault::{self, Fault};

// Not by pgrx' bindings, which prepare for errors: these are called while a report is being made,
// and an error in them is Postgres' to deal with.
unsafe extern "C-unwind" {
    fn geterrcode() -> c_int;
    fn errcode(sqlstate: c_int) -> c_int;
    fn err_generic_string(field: c_int, value: *const c_char) -> c_int;
    fn errmsg(format: *const c_char, ...) -> c_int;
    fn errdetail(format: *const c_char, ...) -> c_int;
    fn errhint(format: *const c_char, ...) -> c_int;
    fn CopyErrorData() -> *mut ErrorData;
    fn AllocSetContextCreateInternal(
        parent: MemoryContext,
        name: *const c_char,
        least: usize,
        first: usize,
        most: usize,
    ) -> MemoryContext;
    fn MemoryContextDelete(context: MemoryContext);
    fn malloc(size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

const INTERNAL: c_int = PgSqlErrorCode::ERRCODE_INTERNAL_ERROR as c_int;
const UNIQUE_VIOLATION: c_int = PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION as c_int;
const SERIALIZATION_FAILURE: c_int = PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE as c_int;
const WRONG_STATE: c_int = PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as c_int;
const OUT_OF_MEMORY: c_int = PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as c_int;

/// A copy of a report takes less memory.
const ROOM_FOR_A_COPY: usize = 256 * 1024;

/// What is wrong where a rival has taken a key that the transaction cannot see, or not yet.
pub const UNSEEN_CLAIM: &CStr =
    c"could not serialize access: a job was inserted under the same unique key concurrently";
/// What to do about it.
pub const RETRY: &CStr = c"Retry the transaction.";

thread_local! {
    /// The latest error that pgrx would leave something out of; null: none. In Postgres' own memory
    /// and form, since an error while it is looked at would jump over what has to be dropped.
    static LATEST: Cell<Copied> = const { Cell::new(Copied::NONE) };
    /// Where the latest out-of-memory error was caught; null: there was none.
    static CAUGHT_AT: Cell<*mut pg_sys::sigjmp_buf> = const { Cell::new(null_mut()) };
}

/// A copy of an error, in memory of its own.
#[derive(Clone, Copy)]
struct Copied {
    error: *mut ErrorData,
    memory: MemoryContext,
}

impl Copied {
    const NONE: Copied = Copied { error: null_mut(), memory: null_mut() };

    /// What `copy` makes in new memory.
    unsafe fn by(copy: impl FnOnce() -> *mut ErrorData) -> Copied {
        // SAFETY: the memory is one of Postgres' own kinds, and what was current before is so
        // again.
        unsafe {
            let name = c"jobs error".as_ptr();
            let memory =
                AllocSetContextCreateInternal(pg_sys::TopMemoryContext, name, 0, 1024, 8192);
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = memory;
            let error = copy();
            pg_sys::CurrentMemoryContext = before;
            Copied { error, memory }
        }
    }

    unsafe fn free(self) {
        if !self.memory.is_null() {
            // SAFETY: it is ours alone.
            unsafe { MemoryContextDelete(self.memory) };
        }
    }
}

/// What Postgres calls with each report, before it is sent.
struct Callback(UnsafeCell<ErrorContextCallback>);
// SAFETY: a session has one thread.
unsafe impl Sync for Callback {}

static CALLBACK: Callback = Callback(UnsafeCell::new(ErrorContextCallback {
    previous: null_mut(),
    callback: Some(look),
    arg: null_mut(),
}));

/// Runs `work`: a statement, or what may take much memory. If it fails, Postgres keeps calling
/// back until the error is caught, since it is raised anew on the way: so what catches one
/// must end that ([`crate::pg::subxact::catch`]).
pub fn kept<T>(work: impl FnOnce() -> T) -> T {
    renew();
    // SAFETY: what is on the stack stays there as long as our callers do.
    unsafe {
        let before = pg_sys::error_context_stack;
        if call_back() {
            forget();
        }
        let done = work();
        pg_sys::error_context_stack = before;
        done
    }
}

/// The latest error has been handled: from now on there is a reserve for the next one, if memory
/// allows.
pub fn renew() {
    memory::reserve();
    CAUGHT_AT.set(null_mut());
}

/// The error that is raised next is about this parameter, which goes into its column name, or has
/// an SQLSTATE of ours.
pub fn complete(sqlstate: PgSqlErrorCode, own: Option<&CStr>, message: &str, column: Option<&str>) {
    // SAFETY: what is made here is what Postgres makes of a report.
    unsafe {
        forget();
        let text = |text: &str| {
            let text = CString::new(text.split('\0').next().unwrap_or_default());
            pg_sys::pstrdup(text.unwrap_or_default().as_ptr())
        };
        LATEST.set(Copied::by(|| {
            let error: *mut ErrorData = pg_sys::palloc0(size_of::<ErrorData>()).cast();
            (*error).sqlerrcode = own.map_or(sqlstate as c_int, packed);
            (*error).message = text(message);
            (*error).column_name = column.map_or(null_mut(), text);
            error
        }));
    }
    again();
}

/// An SQLSTATE as Postgres keeps it: six bits a character.
fn packed(sqlstate: &CStr) -> c_int {
    let bits = |(n, byte): (usize, &u8)| c_int::from((byte - b'0') & 0x3f) << (6 * n);
    sqlstate.to_bytes().iter().enumerate().map(bits).sum()
}

/// An error that was caught is going to be raised again.
pub fn again() {
    // SAFETY: the catcher of what is raised takes us off the stack.
    unsafe { call_back() };
}

/// Has Postgres call back; false: it does already, since a trigger of a statement of ours has
/// called us.
unsafe fn call_back() -> bool {
    // SAFETY: what is linked is static, and what it leads to belongs to those who called us.
    unsafe {
        let before = pg_sys::error_context_stack;
        let mut linked = before;
        while !linked.is_null() {
            if linked == CALLBACK.0.get() {
                return false;
            }
            linked = (*linked).previous;
        }
        (*CALLBACK.0.get()).previous = before;
        pg_sys::error_context_stack = CALLBACK.0.get();
        true
    }
}

unsafe fn forget() {
    // SAFETY: nothing points to it any more.
    unsafe { LATEST.replace(Copied::NONE).free() };
}

/// Remembers the report under way if pgrx would leave something out of it, or gives it back what it
/// lacks. There is nothing here to be dropped.
unsafe extern "C-unwind" fn look(_: *mut c_void) {
    // SAFETY: asks about the report that Postgres is making, and sets fields of it that are not
    // set.
    unsafe {
        if geterrcode() == OUT_OF_MEMORY && !is_harmless() {
            return out_of_memory();
        }
        let mut copied = Copied::by(|| CopyErrorData());
        if put_into_our_words(copied.error) {
            copied.free();
            copied = Copied::by(|| CopyErrorData());
        }
        let (report, latest) = (copied.error, LATEST.get().error);
        let is_error = (*report).elevel >= PgLogLevel::ERROR as c_int;
        if is_error && !latest.is_null() && is_raised_anew(report, latest) {
            errcode((*latest).sqlerrcode);
            for (field, name) in names(latest) {
                if !name.is_null() {
                    err_generic_string(field, name);
                }
            }
        } else if is_error && has_what_is_left_out(report) {
            forget();
            LATEST.set(copied);
            return;
        }
        copied.free();
    }
}

/// Whether the report under way is less than an error, although it has the code of one: that of
/// RAISE WARNING in a trigger. Only a copy has the level, and it is made if there is memory left.
unsafe fn is_harmless() -> bool {
    // SAFETY: the memory is freed at once, and so is the copy.
    unsafe {
        let room = malloc(ROOM_FOR_A_COPY);
        free(room);
        if room.is_null() {
            return false;
        }
        let copied = Copied::by(|| CopyErrorData());
        let is_harmless = (*copied.error).elevel < PgLogLevel::ERROR as c_int;
        copied.free();
        is_harmless
    }
}

/// Frees the reserve, so that pgrx can copy the error. An error that is raised again is caught
/// further out. One that is caught further in is from a copy that failed all the same.
unsafe fn out_of_memory() {
    // SAFETY: reads a variable of this process.
    let caught_at = unsafe { pg_sys::PG_exception_stack };
    if fault::is_on(Fault::NoReserve) {
        return;
    }
    // Who catches has the place on the stack, which grows downwards.
    if !caught_at.is_null() && caught_at <= CAUGHT_AT.replace(caught_at) {
        memory::end(None);
    }
    memory::release();
}

/// Puts what the report under way says into words of ours; whether it did. `report` is a copy.
unsafe fn put_into_our_words(report: *const ErrorData) -> bool {
    // SAFETY: texts of reports are null or end with a zero, and so do ours.
    unsafe {
        let is =
            |text: *const c_char, wanted: &CStr| !text.is_null() && CStr::from_ptr(text) == wanted;
        let is_error = (*report).elevel == PgLogLevel::ERROR as c_int;
        match (*report).sqlerrcode {
            UNIQUE_VIOLATION if is_error && is((*report).schema_name, c"jobs") => {
                let table = (*report).table_name;
                if is(table, c"unique_claim") || is(table, c"unique_note") {
                    errcode(SERIALIZATION_FAILURE);
                    errmsg(c"%s".as_ptr(), UNSEEN_CLAIM.as_ptr());
                    errdetail(c"The key was found in an index that is being rebuilt.".as_ptr());
                    errhint(c"%s".as_ptr(), RETRY.as_ptr());
                } else {
                    errdetail(c"The key is not shown.".as_ptr());
                }
                true
            }
            INTERNAL if is_error && is_gone((*report).message) => {
                errcode(WRONG_STATE);
                errmsg(c"extension jobs was dropped or recreated during the call".as_ptr());
                errdetail(c"Postgres: %s.".as_ptr(), (*report).message);
                errhint(c"Repeat the call if the extension is installed again.".as_ptr());
                true
            }
            _ => false,
        }
    }
}

/// Whether a message of Postgres says that a table or index is gone.
unsafe fn is_gone(message: *const c_char) -> bool {
    // SAFETY: a message is null or ends with a zero.
    let message = unsafe { message.as_ref().map(|message| CStr::from_ptr(message)) };
    message.is_some_and(|message| {
        let start = b"could not open relation with OID ";
        message.to_bytes().starts_with(start)
    })
}

/// Whether this is what pgrx has made of an error.
unsafe fn is_raised_anew(report: *const ErrorData, of: *const ErrorData) -> bool {
    // SAFETY: texts of reports are null or end with a zero.
    unsafe {
        let same_code = (*report).sqlerrcode == (*of).sqlerrcode
            || (*report).sqlerrcode == INTERNAL && !is_known((*of).sqlerrcode);
        let messages = [(*report).message, (*of).message];
        same_code
            && names(report).iter().all(|(_, name)| name.is_null())
            && messages.iter().all(|message| !message.is_null())
            && CStr::from_ptr(messages[0]) == CStr::from_ptr(messages[1])
    }
}

unsafe fn has_what_is_left_out(report: *const ErrorData) -> bool {
    // SAFETY: reads fields.
    unsafe {
        !is_known((*report).sqlerrcode) || names(report).iter().any(|(_, name)| !name.is_null())
    }
}

fn is_known(sqlstate: c_int) -> bool {
    PgSqlErrorCode::from(sqlstate) as c_int == sqlstate
}

/// The names that a report can have, each with Postgres' letter for it.
unsafe fn names(report: *const ErrorData) -> [(c_int, *const c_char); 5] {
    // SAFETY: reads fields.
    unsafe {
        [
            (pg_sys::PG_DIAG_SCHEMA_NAME, (*report).schema_name),
            (pg_sys::PG_DIAG_TABLE_NAME, (*report).table_name),
            (pg_sys::PG_DIAG_COLUMN_NAME, (*report).column_name),
            (pg_sys::PG_DIAG_DATATYPE_NAME, (*report).datatype_name),
            (pg_sys::PG_DIAG_CONSTRAINT_NAME, (*report).constraint_name),
        ]
    }
    .map(|(letter, name)| (letter as c_int, name.cast_const()))
}
