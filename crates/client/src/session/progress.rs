//! The step of a connection that is being made, for the message when its server falls silent.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::dial::ServerName;

/// The steps in order: each begins when the one before has succeeded.
#[derive(Debug, Default)]
pub(super) struct Progress {
    step: AtomicU8,
    /// The address of the server that has answered a NEGOTIATE.
    address: Mutex<Option<ServerName>>,
}

const REACHED: u8 = 1;
const NEGOTIATED: u8 = 2;

impl Progress {
    /// Notes that the transport is connected: the server has to answer a NEGOTIATE.
    pub(super) fn note_reached(&self) {
        self.step.fetch_max(REACHED, Ordering::Relaxed);
    }

    /// Notes that the server has answered a NEGOTIATE: it has to answer SESSION_SETUPs.
    pub(super) fn note_negotiated(&self) {
        self.step.fetch_max(NEGOTIATED, Ordering::Relaxed);
    }

    /// Notes the address of the server where the user is being logged on.
    pub(super) fn note_address(&self, address: &ServerName) {
        *self.address.lock() = Some(address.clone());
    }

    /// Returns the address of the server where the user is being logged on.
    pub(super) fn address(&self) -> Option<ServerName> {
        self.address.lock().clone()
    }

    /// Returns the error of a connection that was not made within `limit`.
    pub(super) fn silence(&self, limit: Duration) -> io::Error {
        let seconds = limit.as_secs_f32();
        let text = match self.step.load(Ordering::Relaxed) {
            REACHED => format!(
                "the server was reached, but did not answer the negotiation (NEGOTIATE) within \
                 {seconds} s; check that it is an SMB server, and whether it hangs"
            ),
            NEGOTIATED => format!(
                "the server was reached and has negotiated, but did not answer the logon \
                 (SESSION_SETUP) within {seconds} s; it may wait for its domain controller, or hang"
            ),
            // Nothing has answered: the operating system's own words.
            _ => return io::ErrorKind::TimedOut.into(),
        };
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_its_words() {
        let (progress, limit) = (Progress::default(), Duration::from_millis(1_500));
        assert!(progress.silence(limit).get_ref().is_none());
        progress.note_reached();
        let text = progress.silence(limit).to_string();
        assert!(text.contains("NEGOTIATE") && text.contains("within 1.5 s"), "{text}");
        progress.note_negotiated();
        let silence = progress.silence(limit);
        assert!(silence.to_string().contains("SESSION_SETUP"), "{silence}");
        assert_eq!(silence.kind(), io::ErrorKind::TimedOut);
    }
}
