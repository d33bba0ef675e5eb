//! OPLOCK_BREAK, MS-SMB2 2.2.23 to 2.2.25, for oplocks and for leases; StructureSize tells them
//! apart. The server notifies, the client acknowledges, the server responds.

pub use super::create::OplockLevel;
use crate::bit_set;
use crate::codec::{Malformed, Parsed, Reader, Writer};
pub use crate::create_context::{LeaseKey, LeaseState};
use crate::file_id::FileId;
use crate::header::HEADER_LEN;

/// StructureSize of all three oplock messages.
const OPLOCK_SIZE: u16 = 24;
/// StructureSize of the lease notification.
const LEASE_NOTIFICATION_SIZE: u16 = 44;
/// StructureSize of the lease acknowledgment and its response.
const LEASE_SIZE: u16 = 36;

bit_set! {
    /// Flags of a lease break notification.
    LeaseBreakFlags(u32) {
        /// The server expects an acknowledgment.
        ACK_REQUIRED = 0x0000_0001,
    }
}

/// The body of all three oplock messages, 2.2.23.1, 2.2.24.1, 2.2.25.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OplockBreak {
    /// In the notification: the highest level left. In the acknowledgment: the level that the
    /// client keeps. In the response: the granted level.
    pub oplock_level: OplockLevel,
    /// FileId of the Open.
    pub file_id: FileId,
}

impl OplockBreak {
    fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        let oplock_level = OplockLevel(r.u8("OplockLevel")?);
        r.skip(5, "Reserved")?;
        Ok(Self { oplock_level, file_id: FileId::read(r)? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u16(OPLOCK_SIZE).u8(self.oplock_level.0).u8(0).u32(0);
        self.file_id.encode(w);
    }
}

/// 2.2.23.2. BreakReason and the hints are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseBreakNotification {
    /// The epoch of the new state (3.x).
    pub new_epoch: u16,
    /// ACK_REQUIRED if an acknowledgment is expected.
    pub flags: LeaseBreakFlags,
    /// LeaseKey of the lease.
    pub lease_key: LeaseKey,
    /// The state before the break.
    pub current_lease_state: LeaseState,
    /// The state after the break.
    pub new_lease_state: LeaseState,
}

/// The body of the lease acknowledgment and its response, 2.2.24.2, 2.2.25.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseBreak {
    /// LeaseKey of the lease.
    pub lease_key: LeaseKey,
    /// In the acknowledgment: the state that the client keeps. In the response: the granted state.
    pub lease_state: LeaseState,
}

impl LeaseBreak {
    fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        r.skip(6, "Reserved and Flags")?;
        let lease_key = LeaseKey(r.array("LeaseKey")?);
        let lease_state = LeaseState(r.u32("LeaseState")?);
        r.skip(8, "LeaseDuration")?;
        Ok(Self { lease_key, lease_state })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u16(LEASE_SIZE).u16(0).u32(0).bytes(&self.lease_key.0);
        w.u32(self.lease_state.0).u64(0);
    }
}

/// Message of the server without a request, with a MessageId of all ones, 2.2.23.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification {
    /// 2.2.23.1
    Oplock(OplockBreak),
    /// 2.2.23.2
    Lease(LeaseBreakNotification),
}

/// The client's acknowledgment, 2.2.24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// 2.2.24.1
    Oplock(OplockBreak),
    /// 2.2.24.2
    Lease(LeaseBreak),
}

/// The specification's name of [`Request`].
pub type Acknowledgment = Request;

/// The server's answer to the acknowledgment, 2.2.25.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// 2.2.25.1
    Oplock(OplockBreak),
    /// 2.2.25.2
    Lease(LeaseBreak),
}

fn sized(message: &[u8]) -> Parsed<(u16, Reader<'_>)> {
    let mut r = Reader::new(message);
    r.skip(HEADER_LEN, "OPLOCK_BREAK header")?;
    Ok((r.u16("OPLOCK_BREAK StructureSize")?, r))
}

const WRONG_SIZE: Malformed = Malformed::new("OPLOCK_BREAK StructureSize");

impl Notification {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let (size, mut r) = sized(message)?;
        let r = &mut r;
        match size {
            OPLOCK_SIZE => OplockBreak::read(r).map(Self::Oplock),
            LEASE_NOTIFICATION_SIZE => {
                let new_epoch = r.u16("NewEpoch")?;
                let flags = LeaseBreakFlags(r.u32("Flags")?);
                let lease_key = LeaseKey(r.array("LeaseKey")?);
                let current_lease_state = LeaseState(r.u32("CurrentLeaseState")?);
                let new_lease_state = LeaseState(r.u32("NewLeaseState")?);
                r.skip(12, "BreakReason and hints")?;
                Ok(Self::Lease(LeaseBreakNotification {
                    new_epoch,
                    flags,
                    lease_key,
                    current_lease_state,
                    new_lease_state,
                }))
            }
            _ => Err(WRONG_SIZE),
        }
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Oplock(oplock) => oplock.encode(w),
            Self::Lease(lease) => {
                w.u16(LEASE_NOTIFICATION_SIZE).u16(lease.new_epoch).u32(lease.flags.0);
                w.bytes(&lease.lease_key.0);
                w.u32(lease.current_lease_state.0).u32(lease.new_lease_state.0).zeros(12);
            }
        }
    }
}

impl Request {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let (size, mut r) = sized(message)?;
        match size {
            OPLOCK_SIZE => OplockBreak::read(&mut r).map(Self::Oplock),
            LEASE_SIZE => LeaseBreak::read(&mut r).map(Self::Lease),
            _ => Err(WRONG_SIZE),
        }
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Oplock(oplock) => oplock.encode(w),
            Self::Lease(lease) => lease.encode(w),
        }
    }
}

impl Response {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        match Request::parse(message)? {
            Request::Oplock(oplock) => Ok(Self::Oplock(oplock)),
            Request::Lease(lease) => Ok(Self::Lease(lease)),
        }
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Oplock(oplock) => oplock.encode(w),
            Self::Lease(lease) => lease.encode(w),
        }
    }
}
