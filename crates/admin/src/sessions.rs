//! Sessions of browsers: begun with a token, known by a random cookie, ended by time.

use std::time::Duration;

use tokio::time::Instant;

use crate::access::{Rights, Token};
use crate::connection_slots::Peer;
use crate::limits::{SESSION_IDLE, SESSION_TIME, SESSIONS};

/// The name of the cookie.
const COOKIE: &str = "frevo-session";

/// The sessions, the one that was used least lately first.
#[derive(Default)]
pub(crate) struct Sessions(Vec<Session>);

struct Session {
    /// The text of the cookie, which is kept nowhere here.
    key: Token,
    csrf: String,
    rights: Rights,
    /// The network that began it. Browsers send the cookie to all ports of a host: a server at another one
    /// cannot use it from there.
    network: Peer,
    made: Instant,
    used: Instant,
}

/// The secrets of a session that has begun.
pub(crate) struct Begun {
    /// The text of the cookie.
    pub(crate) key: String,
    pub(crate) csrf: String,
}

/// A session in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) rights: Rights,
    pub(crate) csrf: String,
}

impl Sessions {
    /// Begins a session.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(crate) fn begin(
        &mut self,
        rights: Rights,
        network: Peer,
        now: Instant,
    ) -> Result<Begun, String> {
        let (key, csrf) = (random()?, random()?);
        self.end_old(now);
        if self.0.len() >= SESSIONS {
            self.0.remove(0);
        }
        let session = Session {
            key: Token::of(&key),
            csrf: csrf.clone(),
            rights,
            network,
            made: now,
            used: now,
        };
        self.0.push(session);
        Ok(Begun { key, csrf })
    }

    /// The session of a cookie from a network, which is used now.
    pub(crate) fn find(&mut self, key: &str, network: Peer, now: Instant) -> Option<Current> {
        self.end_old(now);
        let at = self.0.iter().position(|one| one.key.is(key) && one.network == network)?;
        let mut session = self.0.remove(at);
        session.used = now;
        let found = Current { rights: session.rights, csrf: session.csrf.clone() };
        self.0.push(session);
        Some(found)
    }

    /// Ends the session of a cookie.
    pub(crate) fn end(&mut self, key: &str) {
        self.0.retain(|session| !session.key.is(key));
    }

    fn end_old(&mut self, now: Instant) {
        let is_within = |since: Instant, most: Duration| now.duration_since(since) < most;
        self.0.retain(|session| {
            is_within(session.used, SESSION_IDLE) && is_within(session.made, SESSION_TIME)
        });
    }
}

/// 256 random bits in hexadecimal digits.
fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("there are no random bytes: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The value of the field Set-Cookie for a session: scripts cannot read the cookie, requests that
/// other sites cause do not have it, and with TLS it is sent over TLS alone.
pub(crate) fn cookie_of(key: &str, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// The value of the field Set-Cookie that removes the cookie.
pub(crate) fn no_cookie() -> String {
    format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0")
}

/// The text of the session's cookie in the field Cookie.
pub(crate) fn key_in(cookies: &str) -> Option<&str> {
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Peer = Peer::Process(1);

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_by_idling_by_age_and_by_wish() {
        let mut sessions = Sessions::default();
        let begun = sessions.begin(Rights::Look, HERE, Instant::now()).unwrap();
        assert_eq!((begun.key.len(), begun.csrf.len()), (64, 64));
        assert_ne!(begun.key, begun.csrf);
        let step = SESSION_IDLE - Duration::from_secs(1);
        let steps = SESSION_TIME.as_secs() / step.as_secs();
        for _ in 0..steps {
            tokio::time::advance(step).await;
            assert_eq!(
                sessions.find(&begun.key, HERE, Instant::now()).unwrap().rights,
                Rights::Look
            );
        }
        tokio::time::advance(step).await;
        assert_eq!(sessions.find(&begun.key, HERE, Instant::now()), None, "it is too old");
        let begun = sessions.begin(Rights::Manage, HERE, Instant::now()).unwrap();
        assert_eq!(sessions.find(&begun.csrf, HERE, Instant::now()), None);
        let elsewhere = Peer::Process(2);
        assert_eq!(sessions.find(&begun.key, elsewhere, Instant::now()), None, "a stolen cookie");
        tokio::time::advance(SESSION_IDLE).await;
        assert_eq!(sessions.find(&begun.key, HERE, Instant::now()), None, "nobody used it");
        let begun = sessions.begin(Rights::Manage, HERE, Instant::now()).unwrap();
        sessions.end(&begun.key);
        assert_eq!(sessions.find(&begun.key, HERE, Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_sessions_are_kept() {
        let mut sessions = Sessions::default();
        let now = Instant::now();
        let keys: Vec<String> =
            (0..SESSIONS).map(|_| sessions.begin(Rights::Look, HERE, now).unwrap().key).collect();
        assert!(sessions.find(&keys[0], HERE, now).is_some());
        sessions.begin(Rights::Look, HERE, now).unwrap();
        assert_eq!(sessions.0.len(), SESSIONS);
        assert!(sessions.find(&keys[0], HERE, now).is_some(), "it was used just now");
        assert!(sessions.find(&keys[1], HERE, now).is_none());
    }

    #[test]
    fn the_cookie_is_found_and_kept_from_scripts() {
        assert_eq!(key_in("a=b; frevo-session=cd; e=f"), Some("cd"));
        assert_eq!(key_in("frevo-session=cd"), Some("cd"));
        for other in ["", "frevo-sessions=cd", "xfrevo-session=cd", "frevo-session"] {
            assert_eq!(key_in(other), None, "{other}");
        }
        let plain = cookie_of("cd", false);
        assert!(plain.contains("HttpOnly") && plain.contains("SameSite=Strict"), "{plain}");
        assert!(!plain.contains("Secure") && cookie_of("cd", true).ends_with("; Secure"));
    }
}
