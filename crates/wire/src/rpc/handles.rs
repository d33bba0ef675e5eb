//! Context handles: what a client holds of the server's, C706 14.2.16.6.
//!
//! A handle is good on the pipe that it was given on, and random, so that what
//! was closed or belongs to another is not met by chance.

use super::SidNameUse;
use super::limits::MAX_HANDLES;
use crate::dtyp::{AccessMask, Sid};
use alloc::vec::Vec;

/// A context handle on the wire: attributes, and a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextHandle(pub [u8; 20]);

impl ContextHandle {
    /// None: what is answered after closing, and when opening failed.
    pub const NULL: Self = Self([0; 20]);
}

/// What a handle stands for.
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

/// An object and what its client may do with it.
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

    /// Whether there was such a handle.
    pub(super) fn close(&mut self, handle: &ContextHandle) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known != handle);
        self.0.len() < before
    }
}
