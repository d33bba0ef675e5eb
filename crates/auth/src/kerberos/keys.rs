//! The keys of a service, and the search for the one that a ticket was encrypted with.

use super::message::Ticket;
use super::{EncryptionType, Fault, Key, KeyUsage, SealedTicket, ServiceKey};
use crate::limits::{MAX_SERVICE_KEY_COUNT, MAX_SERVICE_KEYS_TRIED};
use alloc::boxed::Box;
use alloc::vec::Vec;
use zeroize::Zeroizing;

/// The keys of one server, as a keytab holds them. They are replaced as a whole.
#[derive(Debug, Clone, Default)]
pub struct ServiceKeys {
    /// Sorted by version, the newest first.
    keys: Vec<ServiceKey>,
}

impl ServiceKeys {
    /// Takes the entries of a keytab. Names that share a key, as all of a machine's account do,
    /// count once. None for more than [`MAX_SERVICE_KEY_COUNT`] keys.
    pub fn new(entries: Vec<ServiceKey>) -> Option<Self> {
        let mut keys: Vec<ServiceKey> = Vec::new();
        for entry in entries {
            if keys.iter().any(|known| known.kvno == entry.kvno && known.key == entry.key) {
                continue;
            }
            if keys.len() == MAX_SERVICE_KEY_COUNT {
                return None;
            }
            keys.push(entry);
        }
        keys.sort_by_key(|key| core::cmp::Reverse(key.kvno));
        Some(Self { keys })
    }

    /// True if there is no key.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &ServiceKey> {
        self.keys.iter()
    }

    /// Returns the realm of the newest key.
    pub fn realm(&self) -> Option<&str> {
        self.keys.first().map(|key| &*key.principal.realm)
    }

    /// Decrypts a ticket with any key of its encryption type, whatever service its client asked for
    /// (MS-KILE 3.4.5: older keys are tried too). The key of the version that the ticket names comes
    /// first.
    pub(super) fn open(
        &self,
        ticket: &Ticket<'_>,
        etype: EncryptionType,
    ) -> Result<(&ServiceKey, Zeroizing<Vec<u8>>), Fault> {
        let named = |key: &&ServiceKey| Some(key.kvno) == ticket.sealed.kvno;
        let of_type = || self.keys.iter().filter(|known| known.key.etype() == etype);
        let others = of_type().filter(|key| !named(key));
        let tried = of_type().filter(named).chain(others).take(MAX_SERVICE_KEYS_TRIED);
        for known in tried {
            if let Some(part) = known.key.decrypt(KeyUsage::TICKET, ticket.sealed.cipher) {
                return Ok((known, part));
            }
        }
        let ticket = Box::new(SealedTicket::of(ticket));
        let newest = of_type().map(|key| key.kvno).next();
        Err(match (newest, ticket.kvno) {
            (None, _) => Fault::NoKey(ticket),
            (Some(newest), Some(kvno)) if !of_type().any(|key| key.kvno == kvno) => {
                Fault::NoKeyVersion { ticket, kvno, newest }
            }
            (Some(_), _) => Fault::WrongKey(ticket),
        })
    }
}

/// Returns the key that a message contains. None for a type that is unknown or not allowed.
pub(super) fn allowed_key(
    number: i32,
    bytes: &[u8],
    allowed: &[EncryptionType],
) -> Result<Option<Key>, Fault> {
    let Some(etype) = EncryptionType::from_number(number).filter(|etype| allowed.contains(etype))
    else {
        return Ok(None);
    };
    Key::new(etype, bytes).map(Some).ok_or(Fault::Malformed("key length"))
}
