//! Context handles, by which a client names an object of the server, C706 14.2.16.6.
//!
//! A handle is valid only on its pipe, and random, so that nobody finds a closed handle or another
//! client's handle by chance.

use super::SidNameUse;
use super::limits::MAX_HANDLES;
use alloc::vec::Vec;
use frevo_wire::dtyp::{AccessMask, Sid};
use frevo_wire::ndr::ContextHandle;

/// The object of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// The policy of LSA.
    Policy,
    /// The server of SAM.
    Server,
    /// A domain of accounts.
    Domain(Sid),
    /// A user, group or alias.
    Account(SidNameUse, Sid),
}

/// An object with the rights that its client was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrantedObject {
    pub(super) object: Object,
    pub(super) granted: AccessMask,
}

/// The handles of one pipe.
#[derive(Debug)]
pub(super) struct Handles(Vec<(ContextHandle, GrantedObject)>);

impl Handles {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// A handle for an object; none when the pipe has too many.
    pub(super) fn open(&mut self, random: [u8; 16], held: GrantedObject) -> Option<ContextHandle> {
        let mut handle = ContextHandle::NULL;
        if let Some(uuid) = handle.0.get_mut(4..) {
            uuid.copy_from_slice(&random);
        }
        // Zeros are no handle, and two must not be one.
        if self.0.len() >= MAX_HANDLES || handle == ContextHandle::NULL {
            return None;
        }
        if self.find(&handle).is_some() {
            return None;
        }
        self.0.push((handle, held));
        Some(handle)
    }

    pub(super) fn find(&self, handle: &ContextHandle) -> Option<GrantedObject> {
        self.0.iter().find(|(known, _)| known == handle).map(|(_, held)| *held)
    }

    /// Closes a handle. Returns false if there is no such handle.
    pub(super) fn close(&mut self, handle: &ContextHandle) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known != handle);
        self.0.len() < before
    }
}
