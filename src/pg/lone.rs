//! `jobs.insert` where it is all that a statement has in FROM: its one row is read without the store that Postgres keeps the
//! rows of a function in. To make one, and to find out the row type, was an eighth of what a session did for a unique insert.
//!
//! A scan of our own (Postgres' custom scans) takes the place of the function scan and does what that does: the function is
//! called once, with the caller's rights, and not before its row is asked for.

use std::ffi::CStr;
use std::sync::OnceLock;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::versions;

/// What EXPLAIN calls it.
const NAME: &CStr = c"jobs.insert";

/// The hook that was there before, to be called first.
static BEFORE: OnceLock<pg_sys::set_rel_pathlist_hook_type> = OnceLock::new();
/// Where the function is that is looked for.
static FUNCTION: OnceLock<usize> = OnceLock::new();

/// Has Postgres read `jobs.insert`, whose code this is, so from now on.
pub fn register(function: pg_sys::PGFunction) {
    // SAFETY: called once, when the library is loaded.
    unsafe {
        if let Some(function) = function {
            let _ = FUNCTION.set(function as usize);
        }
        let _ = BEFORE.set(pg_sys::set_rel_pathlist_hook);
        pg_sys::set_rel_pathlist_hook = Some(choose);
        pg_sys::RegisterCustomScanMethods(&PLAN.0);
    }
}

/// Tables of callbacks, which Postgres only reads.
struct Methods<T>(T);
// SAFETY: constant.
unsafe impl<T> Sync for Methods<T> {}

static PATH: Methods<pg_sys::CustomPathMethods> = Methods(pg_sys::CustomPathMethods {
    CustomName: NAME.as_ptr(),
    PlanCustomPath: Some(plan),
    ReparameterizeCustomPathByChild: None,
});
static PLAN: Methods<pg_sys::CustomScanMethods> = Methods(pg_sys::CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(create),
});
static EXECUTION: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(execute),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(rewind),
    MarkPosCustomScan: None,
    RestrPosCustomScan: None,
    EstimateDSMCustomScan: None,
    InitializeDSMCustomScan: None,
    ReInitializeDSMCustomScan: None,
    InitializeWorkerCustomScan: None,
    ShutdownCustomScan: None,
    ExplainCustomScan: Some(explain),
});

// --- planning --------------------------------------------------------------------------------------------------------

/// Puts our path in the place of Postgres', where that is the only one. An error of the hook before jumps over it.
#[pg_guard]
unsafe extern "C-unwind" fn choose(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    index: pg_sys::Index,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: nodes as the planner hands them over, read as what their tags say.
    unsafe {
        if let Some(before) = BEFORE.get().copied().flatten() {
            before(root, rel, index, entry);
        }
        let [path] = elements((*rel).pathlist) else {
            return;
        };
        let scan: *mut pg_sys::Path = path.ptr_value.cast();
        if (*scan).pathtype != pg_sys::NodeTag::T_FunctionScan
            || !is_alone(root, rel)
            || uses_whole_row(rel, scan)
            || !is_ours(entry)
        {
            return;
        }
        let path: *mut pg_sys::CustomPath = new_node(pg_sys::NodeTag::T_CustomPath);
        (*path).path = *scan;
        (*path).path.type_ = pg_sys::NodeTag::T_CustomPath;
        (*path).path.pathtype = pg_sys::NodeTag::T_CustomScan;
        (*path).flags =
            pg_sys::CUSTOMPATH_SUPPORT_PROJECTION | pg_sys::CUSTOMPATH_SUPPORT_BACKWARD_SCAN;
        (*path).methods = &PATH.0;
        (*rel).pathlist = std::ptr::null_mut();
        pg_sys::add_path(rel, path.cast());
    }
}

/// Whether nothing else is in FROM, and no statement is around it: then nobody joins it, locks its row or calls it again with
/// other arguments.
unsafe fn is_alone(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo) -> bool {
    // SAFETY: nodes of the planner's.
    unsafe { (*root).query_level == 1 && pg_sys::bms_equal((*rel).relids, (*root).all_baserels) }
}

/// The columns that a scan is asked for, and those that its conditions look at.
unsafe fn columns(rel: *mut pg_sys::RelOptInfo, scan: *mut pg_sys::Path) -> *mut pg_sys::List {
    // SAFETY: nodes of the planner's.
    unsafe {
        let conditions = pg_sys::extract_actual_clauses((*rel).baserestrictinfo, false);
        let mut columns = std::ptr::null_mut();
        // What is asked of the scan is the path's to say: the relation's own target is another once joins are planned.
        for used in [(*(*scan).pathtarget).exprs, conditions] {
            let deep = pg_sys::PVC_RECURSE_PLACEHOLDERS as i32;
            let found = pg_sys::pull_var_clause(used.cast(), deep);
            columns = pg_sys::add_to_flat_tlist(columns, found);
        }
        columns
    }
}

/// The number of a column that is one of [`columns`].
unsafe fn number_of(column: &pg_sys::ListCell) -> i16 {
    // SAFETY: a list of target entries, each of a column.
    unsafe {
        let entry: *mut pg_sys::TargetEntry = column.ptr_value.cast();
        (*(*entry).expr.cast::<pg_sys::Var>()).varattno
    }
}

/// Whether the row as a whole is used: its columns have the names that FROM gives them, which the function's row does not know.
unsafe fn uses_whole_row(rel: *mut pg_sys::RelOptInfo, scan: *mut pg_sys::Path) -> bool {
    // SAFETY: nodes of the planner's.
    unsafe {
        let columns = columns(rel, scan);
        elements(columns).iter().any(|c| number_of(c) == 0)
    }
}

/// Whether this is a call of our function, as it was declared.
unsafe fn is_ours(entry: *mut pg_sys::RangeTblEntry) -> bool {
    // SAFETY: nodes of the planner's, of the types that they say.
    unsafe {
        let [function] = elements((*entry).functions) else {
            return false;
        };
        let function: *mut pg_sys::RangeTblFunction = function.ptr_value.cast();
        let call: *mut pg_sys::FuncExpr = (*function).funcexpr.cast();
        if (*call.cast::<pg_sys::Node>()).type_ != pg_sys::NodeTag::T_FuncExpr
            || (*call).funcretset
            || (*call).funcresulttype != pg_sys::RECORDOID
            || !(*function).funccolnames.is_null()
            || (*entry).funcordinality
        {
            return false;
        }
        // Who may not call it is told so when the plan is executed, and has no library loaded by asking for one.
        if !versions::may_call((*call).funcid, pg_sys::GetUserId()) {
            return false;
        }
        // Last, since it loads the function's library.
        let mut code = pg_sys::FmgrInfo::default();
        pg_sys::fmgr_info((*call).funcid, &mut code);
        let address = code.fn_addr.map(|address| address as usize);
        !code.fn_strict && address.is_some() && address.as_ref() == FUNCTION.get()
    }
}

/// Makes a plan of the path.
#[pg_guard]
unsafe extern "C-unwind" fn plan(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    targets: *mut pg_sys::List,
    conditions: *mut pg_sys::List,
    _plans: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: the relation is one of `choose`, with one function.
    unsafe {
        let entry = *(*root).simple_rte_array.add((*rel).relid as usize);
        let function = elements((*entry).functions)[0].ptr_value;
        let function: *mut pg_sys::RangeTblFunction = function.cast();
        let scan: *mut pg_sys::CustomScan = new_node(pg_sys::NodeTag::T_CustomScan);
        (*scan).scan.plan.targetlist = targets;
        (*scan).scan.plan.qual = pg_sys::extract_actual_clauses(conditions, false);
        (*scan).flags = (*path).flags;
        (*scan).custom_exprs = pg_sys::lappend(std::ptr::null_mut(), (*function).funcexpr.cast());
        (*scan).custom_scan_tlist = columns(rel, path.cast());
        (*scan).methods = &PLAN.0;
        scan.cast()
    }
}

/// A node of this kind, all zero but for that.
unsafe fn new_node<T>(tag: pg_sys::NodeTag) -> *mut T {
    // SAFETY: new memory of that size.
    unsafe {
        let node = pg_sys::palloc0(size_of::<T>());
        (*node.cast::<pg_sys::Node>()).type_ = tag;
        node.cast()
    }
}

/// The elements of a list of pointers.
unsafe fn elements<'a>(list: *mut pg_sys::List) -> &'a [pg_sys::ListCell] {
    // SAFETY: a list has as many elements as it says.
    unsafe {
        match list.is_null() {
            true => &[],
            false => std::slice::from_raw_parts((*list).elements, (*list).length as usize),
        }
    }
}

// --- execution -------------------------------------------------------------------------------------------------------

/// A scan under way.
#[repr(C)]
struct Scan {
    custom: pg_sys::CustomScanState,
    expression: *mut pg_sys::ExprState,
    /// where the scan is: before the row, at it, behind it
    place: i32,
    called: bool,
    /// what the function returned; it lives as long as the statement, to be read again
    row: pg_sys::NullableDatum,
}

#[pg_guard]
unsafe extern "C-unwind" fn create(_plan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: a node that begins with the state that Postgres fills.
    unsafe {
        let scan: *mut Scan = new_node(pg_sys::NodeTag::T_CustomScanState);
        (*scan).custom.methods = &EXECUTION.0;
        scan.cast()
    }
}

// Not by pgrx' bindings: those take each error that comes along, here the caller's own, apart and leave out half of it when they put
// it together again. So errors jump over begin, execute, next and call, which have nothing to clean up and cannot panic.
unsafe extern "C-unwind" {
    fn ExecInitExpr(
        expression: *mut pg_sys::Expr,
        parent: *mut pg_sys::PlanState,
    ) -> *mut pg_sys::ExprState;
    fn ExecScan(
        node: *mut pg_sys::ScanState,
        next: pg_sys::ExecScanAccessMtd,
        is_current: pg_sys::ExecScanRecheckMtd,
    ) -> *mut pg_sys::TupleTableSlot;
}

/// Looks also whether the caller may call the function.
unsafe extern "C-unwind" fn begin(
    state: *mut pg_sys::CustomScanState,
    _estate: *mut pg_sys::EState,
    _flags: i32,
) {
    // SAFETY: the state is one of `create`, the plan one of `plan`.
    unsafe {
        let plan: *mut pg_sys::CustomScan = (*state).ss.ps.plan.cast();
        let expression = (*(*(*plan).custom_exprs).elements).ptr_value.cast();
        (*state.cast::<Scan>()).expression = ExecInitExpr(expression, &mut (*state).ss.ps);
    }
}

unsafe extern "C-unwind" fn execute(
    state: *mut pg_sys::CustomScanState,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: Postgres' own loop over a scan.
    unsafe { ExecScan(&mut (*state).ss, Some(next), Some(is_current)) }
}

/// The next row in the direction that is asked for, or an empty slot.
unsafe extern "C-unwind" fn next(state: *mut pg_sys::ScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: the state is one of `create`.
    unsafe {
        let scan: *mut Scan = state.cast();
        let step = (*(*state).ps.state).es_direction;
        (*scan).place = ((*scan).place + step).clamp(0, 2);
        if (*scan).place == 1 && !(*scan).called {
            call(scan);
        }
        fill(state)
    }
}

unsafe fn call(scan: *mut Scan) {
    // SAFETY: as Postgres evaluates an expression, but in memory that lives as long as the statement.
    unsafe {
        let (expression, node) = ((*scan).expression, &(*scan).custom.ss.ps);
        if let Some(evaluate) = (*expression).evalfunc {
            let before = pg_sys::MemoryContextSwitchTo((*node.state).es_query_cxt);
            let null = &mut (*scan).row.isnull;
            (*scan).row.value = evaluate(expression, node.ps_ExprContext, null);
            (*scan).called = true;
            pg_sys::MemoryContextSwitchTo(before);
        }
    }
}

/// Fills the slot with the row if the scan is there.
#[pg_guard]
unsafe extern "C-unwind" fn fill(state: *mut pg_sys::ScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: the slot has a column for each of the plan's.
    unsafe {
        let scan: *mut Scan = state.cast();
        let slot = pg_sys::ExecClearTuple((*state).ss_ScanTupleSlot);
        if (*scan).place != 1 {
            return slot;
        }
        let plan: *mut pg_sys::CustomScan = (*state).ps.plan.cast();
        for (index, column) in elements((*plan).custom_scan_tlist).iter().enumerate() {
            let mut value = (*scan).row;
            if !value.isnull {
                let row = value.value.cast_mut_ptr();
                value.value = pg_sys::GetAttributeByNum(row, number_of(column), &mut value.isnull);
            }
            *(*slot).tts_values.add(index) = value.value;
            *(*slot).tts_isnull.add(index) = value.isnull;
        }
        pg_sys::ExecStoreVirtualTuple(slot)
    }
}

/// Whether a row that was locked is still what it was: asked only where something else is in FROM.
#[pg_guard]
unsafe extern "C-unwind" fn is_current(
    _state: *mut pg_sys::ScanState,
    _slot: *mut pg_sys::TupleTableSlot,
) -> bool {
    true
}

#[pg_guard]
unsafe extern "C-unwind" fn rewind(state: *mut pg_sys::CustomScanState) {
    // SAFETY: the state is one of `create`.
    unsafe {
        (*state.cast::<Scan>()).place = 0;
        pg_sys::ExecScanReScan(&mut (*state).ss);
    }
}

/// All that a scan has is the statement's memory.
#[pg_guard]
unsafe extern "C-unwind" fn end(_state: *mut pg_sys::CustomScanState) {}

/// Says with VERBOSE what a function scan would say.
#[pg_guard]
unsafe extern "C-unwind" fn explain(
    state: *mut pg_sys::CustomScanState,
    ancestors: *mut pg_sys::List,
    output: *mut pg_sys::ExplainState,
) {
    // SAFETY: as Postgres shows the expressions of a plan.
    unsafe {
        if !(*output).verbose {
            return;
        }
        let plan = (*state).ss.ps.plan;
        let names = pg_sys::set_deparse_context_plan((*output).deparse_cxt, plan, ancestors);
        let expression = (*plan.cast::<pg_sys::CustomScan>()).custom_exprs.cast();
        let text = pg_sys::deparse_expression(expression, names, true, false);
        pg_sys::ExplainPropertyText(c"Function Call".as_ptr(), text, output);
    }
}
