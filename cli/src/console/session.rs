//! Sessions of browsers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::Request;
use tokio::sync::Semaphore;

use super::connection::locked;
use super::role::Role;

pub(crate) const COOKIE: &str = "jobs_console";
/// How long a session lasts at most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long an unused session lasts.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// How many sessions without a login there are at most. The one idle for longest is removed.
const ANONYMOUS: usize = 1000;
/// How many pages of a session get live updates at once.
const STREAMS: usize = 20;

pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) csrf: String,
    /// Whose it is.
    pub(crate) role: Arc<Role>,
    is_logged_in: bool,
    begun: Instant,
    seen: Mutex<Instant>,
    flash: Mutex<Option<String>>,
    /// One for each page with live updates.
    pub(crate) streams: Arc<Semaphore>,
}

impl Session {
    /// Says it on the next page.
    pub(crate) fn say(&self, message: String) {
        *locked(&self.flash) = Some(message);
    }

    pub(crate) fn said(&self) -> Option<String> {
        locked(&self.flash).take()
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.is_logged_in
    }

    fn is_over(&self) -> bool {
        locked(&self.seen).elapsed() > IDLE || self.begun.elapsed() > LONGEST
    }
}

/// 256 random bits.
pub(crate) fn secret() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Default)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<String, Arc<Session>>>,
    /// The ids of sessions that ended because the database no longer accepts their role, with the
    /// time.
    refused: Mutex<HashMap<String, Instant>>,
}

impl Sessions {
    /// Finds a session. A page that refreshes itself does not count as use.
    pub(crate) fn find(&self, id: &str, is_use: bool) -> Option<Arc<Session>> {
        let session = locked(&self.all).get(id).cloned()?;
        if session.is_over() {
            return None;
        }
        if is_use {
            *locked(&session.seen) = Instant::now();
        }
        Some(session)
    }

    pub(crate) fn begin(&self, role: Arc<Role>, is_logged_in: bool) -> Arc<Session> {
        self.begun_at(Instant::now(), role, is_logged_in)
    }

    fn begun_at(&self, begun: Instant, role: Arc<Role>, is_logged_in: bool) -> Arc<Session> {
        let session = Arc::new(Session {
            id: secret(),
            csrf: secret(),
            role,
            is_logged_in,
            begun,
            seen: Mutex::new(Instant::now()),
            flash: Mutex::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
        });
        let mut all = locked(&self.all);
        let anonymous = || all.values().filter(|other| !other.is_logged_in);
        if !is_logged_in && anonymous().count() >= ANONYMOUS {
            let oldest = anonymous().min_by_key(|other| *locked(&other.seen));
            let oldest = oldest.expect("there are some").id.clone();
            all.remove(&oldest);
        }
        all.insert(session.id.clone(), session.clone());
        session
    }

    /// Whether a session has not ended.
    pub(crate) fn has(&self, session: &Session) -> bool {
        locked(&self.all).contains_key(&session.id) && !session.is_over()
    }

    pub(crate) fn end(&self, session: &Session) {
        locked(&self.all).remove(&session.id);
    }

    /// Ends the sessions of a role that the database no longer accepts.
    pub(crate) fn refuse(&self, role: &Arc<Role>) {
        let mut refused = locked(&self.refused);
        locked(&self.all).retain(|id, session| {
            let is_over = session.is_logged_in && Arc::ptr_eq(&session.role, role);
            if is_over {
                refused.insert(id.clone(), Instant::now());
            }
            !is_over
        });
    }

    /// Whether a session has ended like that.
    pub(crate) fn was_refused(&self, id: &str) -> bool {
        locked(&self.refused).contains_key(id)
    }

    /// Ends sessions that are unused or too old.
    pub(crate) fn tidy(&self) {
        locked(&self.all).retain(|_, session| !session.is_over());
        locked(&self.refused).retain(|_, since| since.elapsed() <= IDLE);
    }

    /// A role that is logged in with this name already, whose connections can be shared.
    pub(crate) fn role(&self, like: &Role) -> Option<Arc<Role>> {
        let is_it = |role: &Arc<Role>| {
            role.name == like.name && role.config.get_password() == like.config.get_password()
        };
        let all = locked(&self.all);
        all.values().map(|session| session.role.clone()).find(is_it)
    }

    /// All roles that are logged in.
    pub(crate) fn roles(&self) -> Vec<Arc<Role>> {
        let all = locked(&self.all);
        let mut roles: Vec<_> = all.values().map(|session| session.role.clone()).collect();
        roles.sort_by_key(Arc::as_ptr);
        roles.dedup_by(|one, other| Arc::ptr_eq(one, other));
        roles
    }
}

/// The session of a request.
pub(crate) fn session_of(request: &Request) -> Arc<Session> {
    let session = request.extensions().get::<Arc<Session>>();
    session.expect("the session is attached").clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::connection::Pool;

    #[test]
    fn sessions_without_a_login_are_bounded() {
        let sessions = Sessions::default();
        let role = Arc::new(Role::new(&tokio_postgres::Config::new(), &Pool::new(2)));
        let first = sessions.begin(role.clone(), false);
        for _ in 0..ANONYMOUS {
            sessions.begin(role.clone(), false);
        }
        assert!(sessions.find(&first.id, true).is_none());
        assert_eq!(locked(&sessions.all).len(), ANONYMOUS);
    }

    #[test]
    fn a_session_that_is_used_ends_after_a_day() {
        let sessions = Sessions::default();
        let role = Arc::new(Role::new(&tokio_postgres::Config::new(), &Pool::new(2)));
        let begun = Instant::now().checked_sub(LONGEST).expect("clocks go back so far");
        let session = sessions.begun_at(begun, role.clone(), true);
        assert!(sessions.find(&session.id, true).is_none() && !sessions.has(&session));
        let begun = begun + Duration::from_secs(3600);
        let session = sessions.begun_at(begun, role, true);
        assert!(sessions.find(&session.id, true).is_some() && sessions.has(&session));
        sessions.tidy();
        assert_eq!(locked(&sessions.all).len(), 1);
    }

    #[test]
    fn a_page_that_refreshes_itself_keeps_no_session() {
        let sessions = Sessions::default();
        let role = Arc::new(Role::new(&tokio_postgres::Config::new(), &Pool::new(2)));
        let session = sessions.begin(role, true);
        let begun = *locked(&session.seen);
        assert!(sessions.find(&session.id, false).is_some());
        assert_eq!(*locked(&session.seen), begun);
        std::thread::sleep(Duration::from_millis(1));
        assert!(sessions.find(&session.id, true).is_some());
        assert!(*locked(&session.seen) > begun);
    }
}
