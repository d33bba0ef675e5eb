//! The capture of messages that an administrator has asked for, and which messages it has.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frevo_capture::live::Capture;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use crate::objects::session::Session;

/// The messages that a capture has: those for which everything that is set here is true.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaptureTarget {
    /// They belong to this session, by its SessionId.
    pub session: Option<u64>,
    /// They belong to sessions of this account. Its logons are not yet of the account, and left out.
    pub user: Option<String>,
    /// The client has this address.
    pub address: Option<IpAddr>,
    /// They belong to tree connects of this share.
    pub share: Option<String>,
}

impl fmt::Display for CaptureTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.session.map(|id| format!("session {id:#x}")),
            self.user.as_ref().map(|user| format!("user {user}")),
            self.address.map(|address| format!("address {address}")),
            self.share.as_ref().map(|share| format!("share {share}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "everything" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// The capture of a server, if there is one.
#[derive(Default)]
pub(crate) struct Captures {
    /// Looked at for each message.
    is_on: AtomicBool,
    running: Mutex<Option<Arc<Running>>>,
    next: AtomicU64,
}

/// A capture under way.
pub(crate) struct Running {
    /// Its number, which no other capture of the server has.
    pub(crate) number: u64,
    pub(crate) capture: Capture,
    pub(crate) target: CaptureTarget,
}

/// A share by its name, without case.
pub(crate) struct ShareName<'a>(&'a str);

impl ShareName<'_> {
    /// True if the share is called `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        fold_name(self.0) == fold_name(name)
    }
}

impl Captures {
    /// True while there is a capture.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the capture.
    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        if self.is_on() { self.running.lock().clone() } else { None }
    }

    /// Begins a capture with what `make` makes of its number. None while there is another one.
    pub(crate) fn begin<E>(
        &self,
        make: impl FnOnce(u64) -> Result<Running, E>,
    ) -> Option<Result<u64, E>> {
        let mut running = self.running.lock();
        if running.is_some() {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Some(make(number).map(|made| {
            *running = Some(Arc::new(made));
            self.is_on.store(true, Ordering::Relaxed);
            number
        }))
    }

    /// Ends the capture under way: its stream has what waits, and the end of the file. Returns false if there is
    /// none.
    pub(crate) fn end_any(&self) -> bool {
        let Some(running) = self.running() else { return false };
        self.end(running.number);
        running.capture.end();
        true
    }

    /// Ends the capture of this number.
    pub(crate) fn end(&self, number: u64) {
        let mut running = self.running.lock();
        if running.take_if(|running| running.number == number).is_some() {
            self.is_on.store(false, Ordering::Relaxed);
        }
    }
}

impl Running {
    /// True for a message of this client and session. `is_of_share` tells if it belongs to a share.
    pub(crate) fn wants(
        &self,
        address: IpAddr,
        session: Option<&Session>,
        is_of_share: impl FnOnce(&ShareName<'_>) -> bool,
    ) -> bool {
        let CaptureTarget { session: id, user, address: client, share } = &self.target;
        let is_of_session = |id: u64| session.is_some_and(|session| session.id == id);
        let is_of_user = |name: &str| {
            let identity = session.and_then(Session::identity);
            identity.is_some_and(|identity| fold_name(&identity.user) == fold_name(name))
        };
        id.is_none_or(is_of_session)
            && user.as_deref().is_none_or(is_of_user)
            && client.is_none_or(|client| client.to_canonical() == address.to_canonical())
            && share.as_deref().is_none_or(|share| is_of_share(&ShareName(share)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_target_is_told_in_words() {
        let all = CaptureTarget::default();
        assert_eq!(all.to_string(), "everything");
        let one = CaptureTarget {
            session: Some(0x1f),
            user: Some(String::from("ann")),
            address: Some(Ipv4Addr::LOCALHOST.into()),
            share: Some(String::from("data")),
        };
        assert_eq!(one.to_string(), "session 0x1f, user ann, address 127.0.0.1, share data");
    }
}
