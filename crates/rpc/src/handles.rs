//! The context handles of an interface, by which a client names an object of the server, C706
//! 14.2.16.6.
//!
//! A handle is valid only on its association, and random, so that nobody finds a closed handle or
//! another client's handle by chance.

use crate::FaultStatus;
use crate::interface::Answer;
use crate::limits::MAX_HANDLES;
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::codec::Parsed;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor};
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};

/// An object with the rights that its client was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted<O> {
    pub(crate) object: O,
    pub(crate) access: AccessMask,
}

/// The handles of one interface on one association.
#[derive(Debug)]
pub(crate) struct Handles<O>(Vec<(ContextHandle, Granted<O>)>);

impl<O: Copy> Handles<O> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes a handle for an object. None when there are too many.
    pub(crate) fn open(&mut self, random: [u8; 16], held: Granted<O>) -> Option<ContextHandle> {
        let mut handle = ContextHandle::NULL;
        if let Some(uuid) = handle.0.get_mut(4..) {
            uuid.copy_from_slice(&random);
        }
        // The null handle means "no handle", and each new handle must be unique.
        if self.0.len() >= MAX_HANDLES || handle == ContextHandle::NULL {
            return None;
        }
        if self.find(&handle).is_some() {
            return None;
        }
        self.0.push((handle, held));
        Some(handle)
    }

    pub(crate) fn find(&self, handle: &ContextHandle) -> Option<Granted<O>> {
        self.0.iter().find(|(known, _)| known == handle).map(|(_, held)| *held)
    }

    /// Closes a handle. Returns false if there is no such handle.
    pub(crate) fn close(&mut self, handle: &ContextHandle) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known != handle);
        self.0.len() < before
    }

    /// Answers a call that closes a handle, MS-LSAD 3.1.4.9.4 and MS-SAMR 3.1.5.13.1.
    pub(crate) fn answer_close(&mut self, stub: &[u8]) -> Answer {
        let handle = NdrReader::new(stub).handle("RPC handle to close")?;
        if self.close(&handle) {
            Ok(encode_handle_reply(None, Status::SUCCESS))
        } else {
            Err(FaultStatus::CONTEXT_MISMATCH)
        }
    }

    /// Bytes that the handles take.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.capacity().saturating_mul(size_of::<(ContextHandle, Granted<O>)>())
    }
}

/// Returns the granted part of `desired` for a caller with the rights `all`.
pub(crate) fn granted(desired: AccessMask, all: AccessMask) -> Result<AccessMask, Status> {
    let mut asked = desired;
    for (bit, meaning) in [(AccessMask::MAXIMUM_ALLOWED, all), (AccessMask::GENERIC_EXECUTE, all)] {
        if asked.contains(bit) {
            asked = asked.without(bit) | meaning;
        }
    }
    if asked.without(all).is_empty() { Ok(asked) } else { Err(Status::ACCESS_DENIED) }
}

/// Parses a handle and the status of the call: the answer to opening and closing.
///
/// # Errors
/// Malformed if the answer is shorter or longer.
pub fn parse_handle_reply(stub: &[u8]) -> Parsed<(ContextHandle, Status)> {
    let mut r = NdrReader::new(stub);
    let handle = r.handle("RPC handle")?;
    Ok((handle, Status(r.u32("RPC status")?)))
}

/// See [`parse_handle_reply`].
pub fn encode_handle_reply(handle: Option<ContextHandle>, status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(&handle.unwrap_or(ContextHandle::NULL)).u32(status.0);
    w.into_stub()
}

/// Stub data of a call whose argument is a handle, such as LsarClose.
pub fn encode_handle(handle: &ContextHandle) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(handle);
    w.into_stub()
}

/// Stub data of the reply of SamrQuerySecurityObject, MS-SAMR 3.1.5.12.2, and of
/// LsarQuerySecurityObject, MS-LSAD 3.1.4.9.1.
pub(crate) fn encode_descriptor(descriptor: Result<&SecurityDescriptor, Status>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = descriptor.and_then(|descriptor| {
        descriptor.encode(&mut bytes).map_err(|_| Status::INSUFFICIENT_RESOURCES)
    });
    let mut w = NdrWriter::new();
    w.pointer(encoded.is_ok());
    if encoded.is_ok() {
        w.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).pointer(true).bytes(&bytes);
    }
    w.u32(encoded.err().unwrap_or(Status::SUCCESS).0);
    w.into_stub()
}
