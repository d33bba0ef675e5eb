//! The state that all tasks of a responder share, and what they have in common.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::budget;
use crate::announcement::{Announcement, METADATA_PORT};
use crate::interfaces::{Interface, interfaces};
use crate::limits::REMEMBERED;

/// The port of WS-Discovery.
pub(super) const UDP_PORT: u16 = 3702;
/// The port of the metadata.
pub(super) const HTTP_PORT: u16 = METADATA_PORT;

/// The state of a responder.
#[derive(Debug)]
pub(super) struct Shared {
    announcement: Announcement,
    /// The identifier of the server as text.
    pub(super) id: String,
    /// The time of the start, by which others see that message numbers begin anew.
    pub(super) instance: u64,
    messages: AtomicU64,
    interfaces: Mutex<Vec<Interface>>,
    /// Identifiers of the latest messages that were answered.
    answered: Mutex<VecDeque<String>>,
    budget: Mutex<budget::Budget>,
}

impl Shared {
    pub(super) fn new(announcement: Announcement) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            id: uuid(announcement.id),
            instance: since.as_secs() & u64::from(u32::MAX),
            messages: AtomicU64::new(0),
            interfaces: Mutex::new(interfaces(&announcement)),
            answered: Mutex::default(),
            budget: Mutex::default(),
            announcement,
        }
    }

    pub(super) fn interfaces(&self) -> Vec<Interface> {
        self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the interfaces, and returns those before.
    pub(super) fn replace_interfaces(&self, now: Vec<Interface>) -> Vec<Interface> {
        let mut known = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, now)
    }

    pub(super) const fn announcement(&self) -> &Announcement {
        &self.announcement
    }

    /// The interface whose neighbour `peer` is, if it is one.
    pub(super) fn interface_of(&self, peer: &SocketAddr) -> Option<Interface> {
        let peer = unmapped(*peer);
        self.interfaces().into_iter().find(|one| one.is_neighbour(&peer))
    }

    /// True for a message that was answered before: clients send each of them twice.
    pub(super) fn is_answered(&self, message_id: &str) -> bool {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.iter().any(|other| other == message_id) {
            return true;
        }
        if answered.len() >= REMEMBERED {
            answered.pop_front();
        }
        answered.push_back(message_id.to_owned());
        false
    }

    /// The number of the next message.
    pub(super) fn next_message(&self) -> u64 {
        self.messages.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True when `bytes` more may be sent to `peer` now.
    pub(super) fn may_answer(&self, peer: IpAddr, bytes: usize) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.take(std::time::Instant::now(), peer, bytes)
    }
}

/// An IPv4 address in its IPv6 form as itself.
pub(super) fn unmapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(address.ip().to_canonical(), v6.port())
        }
        other => other,
    }
}

/// The text form of an identifier.
fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    let parts = parts.map(|(from, to)| hex.get(from..to).unwrap_or_default());
    parts.join("-")
}

/// A new random identifier, for a message.
pub(super) fn random_uuid() -> String {
    let mut bytes = [0; 16];
    // If there are no random bytes, the identifier repeats, and peers may ignore the message.
    let _ = getrandom::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    uuid(bytes)
}

/// A random delay of at most `most`.
pub(super) fn random_delay(most: Duration) -> Duration {
    let mut bytes = [0; 2];
    let _ = getrandom::fill(&mut bytes);
    most.mul_f64(f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_as_others_write_them() {
        assert_eq!(uuid([0xAB; 16]), "abababab-abab-abab-abab-abababababab");
        let one = random_uuid();
        assert!(one.len() == 36 && one.as_bytes().get(14) == Some(&b'4') && one != random_uuid());
        let mapped = "[::ffff:192.0.2.1]:7".parse().unwrap();
        assert_eq!(unmapped(mapped), "192.0.2.1:7".parse().unwrap());
    }
}
