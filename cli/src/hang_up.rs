//! SIGHUP: the terminal or session that started the program has ended.

use std::io::Result;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::ptr::null;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// Signals that are sent together may arrive in any order, but no later than this.
const TOGETHER: Duration = Duration::from_millis(200);

/// Turns the first SIGHUP into a SIGTERM, unless the program was told to end before, or SIGHUP is
/// ignored, as under nohup.
pub(crate) fn terminates() -> Result<()> {
    if is_ignored() {
        return Ok(());
    }
    let mut hang_ups = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        // The shell, the kernel and systemd each may send one, alone or with a SIGTERM. A second
        // SIGTERM would skip the grace period unintentionally.
        let mut told = pin!(async {
            select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        });
        select! { biased; () = &mut told => return, _ = hang_ups.recv() => {} }
        if timeout(TOGETHER, told).await.is_err() {
            let _ = kill_process(getpid(), Signal::TERM);
        }
    });
    Ok(())
}

fn is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action it only fills in the present one.
    let action = unsafe {
        libc::sigaction(libc::SIGHUP, null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}
