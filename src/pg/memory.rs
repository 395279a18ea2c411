//! What happens when memory runs out: the session ends with an error, as docs/internals/memory.md
//! says. What is as large as a caller likes is asked for with [`room`] or is Postgres' own memory;
//! both raise an ordinary error.
//!
//! A session can end wherever Rust code may allocate, which [`super::critical`] enforces. Callbacks
//! at the end of a process or transaction find what they look at as it was just then.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr};

use pgrx::pg_sys;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use super::critical::may_allocate;
use crate::error::{Error, Result};

/// To end a session takes memory, too, and so does to raise an error. It is never written, so
/// that it costs no more than addresses.
const RESERVE: Layout = Layout::new::<[u8; 1 << 20]>();
static RESERVED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The caller can do without.
static MAY_FAIL: AtomicBool = AtomicBool::new(false);

/// Takes the reserve, if it is not taken. Processes inherit that of the server.
pub fn reserve() {
    if RESERVED.load(Relaxed).is_null() {
        // SAFETY: of a size that is not 0.
        RESERVED.store(unsafe { System.alloc(RESERVE) }, Relaxed);
    }
}

/// Gives the reserve back.
pub fn release() {
    let reserved = RESERVED.swap(null_mut(), Relaxed);
    if !reserved.is_null() {
        // SAFETY: it is not used.
        unsafe { System.dealloc(reserved, RESERVE) };
    }
}

/// An empty list with room for so many; an error if there is none.
pub fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    MAY_FAIL.store(true, Relaxed);
    let reserved = list.try_reserve_exact(count);
    MAY_FAIL.store(false, Relaxed);
    match reserved {
        Ok(()) => Ok(list),
        Err(_) => Err(Error::out_of_memory(count.saturating_mul(size_of::<T>()))),
    }
}

/// Memory of Postgres' that is freed at once.
pub struct Scratch(pg_sys::MemoryContext);

impl Scratch {
    /// None yet; it goes with the call.
    pub fn new() -> Scratch {
        // SAFETY: whatever is current outlives the caller's work.
        unsafe { Scratch::new_in(pg_sys::CurrentMemoryContext) }
    }

    /// None yet, in a context that is to outlive it.
    pub unsafe fn new_in(context: pg_sys::MemoryContext) -> Scratch {
        // SAFETY: as any context is made; after an error it goes with the one that it is in.
        Scratch(unsafe {
            pg_sys::AllocSetContextCreateInternal(
                context,
                c"jobs scratch".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        })
    }

    /// Does some work in it, and then gives it back. What the work returns must not be in it, and
    /// nothing that the work opened may be open any more.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: after an error Postgres goes back to a context of its own.
        unsafe {
            let before = pg_sys::MemoryContextSwitchTo(self.0);
            let done = work();
            pg_sys::MemoryContextSwitchTo(before);
            pg_sys::MemoryContextReset(self.0);
            done
        }
    }
}

/// What Postgres takes for so many things at once does not fill the memory.
const PART: usize = 10_000;

/// Does some work for things in parts, in their order. What Postgres takes for one part is given
/// back before the next, so what the work keeps must not be in Postgres' memory.
pub fn in_parts<T>(things: &[T], work: impl FnMut(&[T])) {
    in_whole_parts(things, |_, _| false, work);
}

/// Works as [`in_parts`] does. Neighbours that belong `together` are in one part.
pub fn in_whole_parts<T>(
    things: &[T],
    together: impl Fn(&T, &T) -> bool,
    mut work: impl FnMut(&[T]),
) {
    if things.len() <= 1 {
        return things.chunks(1).for_each(work);
    }
    let scratch = Scratch::new();
    let mut rest = things;
    while !rest.is_empty() {
        let mut count = rest.len().min(PART);
        while count < rest.len() && together(&rest[count - 1], &rest[count]) {
            count += 1;
        }
        let (part, behind) = rest.split_at(count);
        scratch.within(|| work(part));
        rest = behind;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: it is not the current one.
            unsafe { pg_sys::MemoryContextDelete(self.0) };
        }
    }
}

// The tests' own program has no Postgres to end.
#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, expect(dead_code))]
static ALLOCATOR: OrEnd = OrEnd;

/// The system's allocator, or the end.
struct OrEnd;

// SAFETY: the system's; what else is returned is null.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        may_allocate(layout.size());
        // SAFETY: as the caller promises.
        or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        may_allocate(size);
        // SAFETY: as the caller promises.
        or_end(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[inline]
fn or_end(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() { without(size) } else { memory }
}

/// There is no memory. Returns only where it may, or where there is no session to end.
#[cold]
fn without(size: usize) -> *mut u8 {
    // SAFETY: reads variables.
    let is_session = unsafe { pg_sys::IsUnderPostmaster && !pg_sys::proc_exit_inprogress };
    if is_session && !MAY_FAIL.load(Relaxed) {
        end(Some(size));
    }
    null_mut()
}

// Not by pgrx' bindings, which allocate.
unsafe extern "C-unwind" {
    fn errstart(level: c_int, domain: *const c_char) -> bool;
    fn errcode(sqlstate: c_int) -> c_int;
    fn errmsg(format: *const c_char, ...) -> c_int;
    fn errdetail(format: *const c_char, ...) -> c_int;
    fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
}

/// Ends the session, which lacks this many bytes.
pub fn end(size: Option<usize>) {
    release();
    // SAFETY: Postgres ends the process in the last of these; without a catcher, any other
    // error on the way does so as well, so that nothing jumps over who called us.
    unsafe {
        pg_sys::PG_exception_stack = null_mut();
        pg_sys::error_context_stack = null_mut();
        if errstart(PgLogLevel::FATAL as c_int, std::ptr::null()) {
            errcode(PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as c_int);
            errmsg(c"out of memory".as_ptr());
            match size {
                Some(size) => {
                    errdetail(c"jobs asked for %zu bytes. The session ends.".as_ptr(), size)
                }
                None => errdetail(
                    c"There is no memory left to report the error. The session ends.".as_ptr(),
                ),
            };
            errfinish(c"memory.rs".as_ptr(), 0, c"jobs".as_ptr());
        }
    }
}
