//! SIGHUP: the terminal or the session that started the program is gone.

use std::io::Result;
use std::mem::MaybeUninit;
use std::ptr::null;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// Makes the first one a SIGTERM, unless they are ignored, as under nohup.
pub(crate) fn terminates() -> Result<()> {
    if is_ignored() {
        return Ok(());
    }
    let mut hang_ups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        // Both the shell and the kernel may send one, which is no wish to skip the grace period.
        hang_ups.recv().await;
        let _ = kill_process(getpid(), Signal::TERM);
    });
    Ok(())
}

fn is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action it does no more than to fill in the one that is there.
    let action = unsafe {
        libc::sigaction(libc::SIGHUP, null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}
