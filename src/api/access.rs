//! Who may do what.

use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use crate::check;
use crate::error::{Error, Result, or_raise};
use crate::pg::role::{as_definer, called};
use crate::shmem::commit::{self, Work};
use crate::shmem::entries;
use crate::store::privileges::{self, Role};
use crate::store::{audit, members, run_log};

// Names, separated by spaces.
const PRODUCER: &str = "\
    insert insert_many insert_batch wait_for results unique_key ojs_manifest forward \
    forwarded_open forward_report cell_for";
const WORKER: &str = "\
    fetch fetch_any wait wait_any wait_for results heartbeat heartbeat_many complete \
    complete_many finish_many fail fail_many snooze release worker_beat worker_leave \
    ojs_manifest";
/// And those that the views call.
const VIEWER: &str = "\
    explain health metrics history top last_id show check wait_for results count_queues \
    idle_runs is_preloaded takes_queue order_key order_weight";
/// What the views of cells call.
const MAP: &str = "is_copy_of_cell settings_digest";
/// What a trusted program does beyond producing, working and looking: by id, and what it defines.
const APPLICATION: &str = "\
    explain_unique cancel retry activate update delete schedule unschedule run_periodic \
    define_kind undefine_kind configure_queue reset_queue define_limit override_limit \
    pause_limit resume_limit drop_limit order_queue unblock";
/// What people on call do beyond looking: nothing that inserts, changes or deletes a job.
const OPERATOR: &str = "\
    explain_unique cancel cancel_many retry retry_many activate pause_queue resume_queue \
    pause_periodic resume_periodic pause_limit resume_limit unblock quiet_worker \
    stop_worker resume_worker";
const NOBODY: &str = "\
    grant_producer grant_worker grant_viewer grant_application grant_operator grant_admin revoke \
    installed";

/// The views, with what jobs carry.
const LOOK_AT_ALL: [fn(&Role); 2] = [privileges::grant_views, privileges::grant_payload];

#[pg_extern(sql = false)]
fn grant_producer(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    grant(role, reason, fcinfo, &[PRODUCER, MAP], &[privileges::grant_map]);
}

#[pg_extern(sql = false)]
fn grant_worker(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    grant(role, reason, fcinfo, &[WORKER, MAP], &[privileges::grant_map]);
}

#[pg_extern(sql = false)]
fn grant_viewer(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    grant(role, reason, fcinfo, &[VIEWER, MAP], &[privileges::grant_views]);
}

#[pg_extern(sql = false)]
fn grant_application(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    let functions = [PRODUCER, WORKER, VIEWER, MAP, APPLICATION];
    grant(role, reason, fcinfo, &functions, &LOOK_AT_ALL);
}

#[pg_extern(sql = false)]
fn grant_operator(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    grant(role, reason, fcinfo, &[VIEWER, MAP, OPERATOR], &LOOK_AT_ALL);
}

#[pg_extern(sql = false)]
fn grant_admin(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    let others = |role: &Role| privileges::grant_functions_but(role, NOBODY);
    let [views, payload] = LOOK_AT_ALL;
    grant(role, reason, fcinfo, &[], &[others, views, payload]);
}

#[pg_extern(sql = false)]
fn revoke(role: Option<&str>, reason: Option<&str>, fcinfo: FunctionCallInfo) {
    change(role, reason, fcinfo, privileges::revoke);
}

/// The end of the script that installs the extension, and of each that upgrades it.
#[pg_extern(sql = false)]
fn installed() {
    or_raise(|| {
        check::encoding()?;
        check::owner("call jobs.installed")?;
        privileges::one_at_a_time();
        members::keep_to_the_owner();
        if !run_log::has_begun() {
            entries::forget();
        }
        commit::wake_worker(Work::MayBeDue);
        Ok(())
    })
}

fn grant(
    role: Option<&str>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
    functions: &[&str],
    more: &[fn(&Role)],
) {
    change(role, reason, fcinfo, |role| {
        privileges::grant_schema(role);
        for functions in functions {
            privileges::grant_functions(role, functions);
        }
        more.iter().for_each(|grant| grant(role));
    });
}

/// Changes the rights of a role with those of the owner, if the caller has them: these functions
/// are not SECURITY DEFINER, so that the caller is known, not only the session's role.
fn change(
    role: Option<&str>,
    reason: Option<&str>,
    fcinfo: FunctionCallInfo,
    what: impl Fn(&Role),
) {
    or_raise(|| {
        check::owner("grant and revoke")?;
        check::reason(reason)?;
        let role = known(role)?;
        as_definer(called(fcinfo), || {
            privileges::one_at_a_time();
            let before = privileges::rights(&role);
            what(&role);
            if privileges::rights(&role) != before {
                audit::note(fcinfo, None);
            }
        });
        Ok(())
    })
}

fn known(role: Option<&str>) -> Result<Role> {
    check::writable()?;
    let role = check::given("role", role)?;
    privileges::role(role).ok_or_else(|| Error::unknown_role(role, &privileges::roles()))
}
