//! The CSRF token of the login. It needs no state per visitor, so many requests cannot exhaust it.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::session::secret;

/// How many seconds a login form is valid.
const LASTS: u64 = 12 * 3600;

/// A token is the HMAC of a cookie, which has its expiry.
pub(crate) struct Tokens(Hmac<Sha256>);

impl Default for Tokens {
    fn default() -> Self {
        Self(Hmac::new_from_slice(secret().as_bytes()).expect("a key has any length"))
    }
}

impl Tokens {
    /// A value for the cookie of a browser.
    pub(crate) fn cookie() -> String {
        format!("{}.{}", now() + LASTS, secret())
    }

    /// The token of a cookie, unless it has expired.
    pub(crate) fn of(&self, cookie: &str) -> Option<String> {
        let (until, _) = cookie.split_once('.')?;
        let until: u64 = until.parse().ok()?;
        let is_good = (now()..=now() + LASTS).contains(&until);
        let code = || self.0.clone().chain_update(cookie).finalize().into_bytes();
        is_good.then(|| code().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_cookie_and_process_and_expires() {
        let (tokens, cookie) = (Tokens::default(), Tokens::cookie());
        let token = tokens.of(&cookie);
        assert!(token.is_some());
        assert_eq!(token, tokens.of(&cookie));
        assert_ne!(token, tokens.of(&Tokens::cookie()));
        assert_ne!(token, Tokens::default().of(&cookie));
        for until in [0, now() - 1, now() + LASTS + 60] {
            assert_eq!(tokens.of(&format!("{until}.x")), None);
        }
    }
}
