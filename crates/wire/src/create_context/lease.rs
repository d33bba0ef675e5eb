//! Leases, MS-SMB2 2.2.13.2.8, 2.2.13.2.10, 2.2.14.2.10 and 2.2.14.2.11.

use crate::bit_set;
use crate::codec::{Parsed, Reader, Writer};
use core::fmt;

/// The key of a client's lease, which the client chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LeaseKey(pub [u8; 16]);

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseKey(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

bit_set! {
    /// The caching rights of a lease.
    LeaseState(u32) {
        /// The client may cache reads.
        READ = 0x0000_0001,
        /// The client may keep the handle after the application has closed it.
        HANDLE = 0x0000_0002,
        /// The client may cache writes.
        WRITE = 0x0000_0004,
    }
}

bit_set! {
    /// Flags of a lease.
    LeaseFlags(u32) {
        /// A break is under way (response).
        BREAK_IN_PROGRESS = 0x0000_0002,
        /// ParentLeaseKey is valid (version 2).
        PARENT_LEASE_KEY_SET = 0x0000_0004,
    }
}

/// Version 1, in requests and responses. LeaseDuration is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// LeaseKey of the lease.
    pub lease_key: LeaseKey,
    /// The requested or granted rights.
    pub lease_state: LeaseState,
    /// The bits of [`LeaseFlags`].
    pub flags: LeaseFlags,
}

impl Lease {
    /// Bytes on the wire; the length tells the versions apart.
    pub const LEN: usize = 32;

    pub(super) fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let lease = Self::read(r)?;
        r.end("lease length")?;
        Ok(lease)
    }

    fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        let lease_key = LeaseKey(r.array("LeaseKey")?);
        let lease_state = LeaseState(r.u32("LeaseState")?);
        let flags = LeaseFlags(r.u32("LeaseFlags")?);
        r.skip(8, "LeaseDuration")?;
        Ok(Self { lease_key, lease_state, flags })
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.lease_key.0).u32(self.lease_state.0).u32(self.flags.0).u64(0);
    }
}

/// Version 2 (3.x), in requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseV2 {
    /// The fields of version 1.
    pub lease: Lease,
    /// The lease on the directory; meaningful with PARENT_LEASE_KEY_SET.
    pub parent_lease_key: LeaseKey,
    /// Counts changes of the state.
    pub epoch: u16,
}

impl LeaseV2 {
    /// Bytes on the wire; the length tells the versions apart.
    pub const LEN: usize = 52;

    pub(super) fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let lease = Lease::read(r)?;
        let parent_lease_key = LeaseKey(r.array("ParentLeaseKey")?);
        let epoch = r.u16("Epoch")?;
        r.skip(2, "Reserved")?;
        r.end("lease length")?;
        Ok(Self { lease, parent_lease_key, epoch })
    }

    /// Returns the parent's key, if it is valid.
    pub fn parent(&self) -> Option<LeaseKey> {
        self.lease.flags.contains(LeaseFlags::PARENT_LEASE_KEY_SET).then_some(self.parent_lease_key)
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.lease.encode(w);
        w.bytes(&self.parent_lease_key.0).u16(self.epoch).u16(0);
    }
}
