//! The transfers of a link: data that moves by RDMA.

use std::io;

use super::super::values::RemoteBuffer;
use super::{Link, RemoteAddress, Slot};
use crate::buffer::Buf;
use crate::limits::{
    RDMA_SLOTS_AT_ONCE, RDMA_STAGED_BYTES, RDMA_TRANSFER_BYTES_MAX, RDMA_TRANSFERS_MAX,
};
use crate::rdma::ffi::{Sge, WR_RDMA_READ, WR_RDMA_WRITE};
use crate::rdma::quota::{self, Counted};
use crate::rdma::region::{Access, Region};

/// Memory from or to which data moves by RDMA.
pub(super) enum Memory {
    /// Registered for one transfer.
    Own(Region),
    /// A slot that stays registered: to register memory takes longer than to copy so few bytes.
    Staged {
        slot: Slot,
        len: usize,
        /// The bytes of the peer are appended there.
        buf: Buf,
    },
}

impl Memory {
    /// Bytes that are registered for this transfer alone.
    pub(super) const fn own_bytes(&self) -> usize {
        match self {
            Self::Own(region) => region.len(),
            Self::Staged { .. } => 0,
        }
    }
}

/// Data that moves by RDMA.
pub(super) struct Transfer {
    pub(super) memory: Memory,
    direction: Direction,
    /// Requests that the device has not completed.
    pub(super) outstanding: u32,
    /// True until the last request was posted.
    is_growing: bool,
    /// Nobody wants the region back.
    is_abandoned: bool,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Direction {
    /// RDMA write: to the peer's memory.
    ToPeer,
    /// RDMA read: from the peer's memory.
    FromPeer,
}

/// The number of a transfer in its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct TransferKey(pub(in crate::rdma) usize);

impl Link {
    /// Takes room for a transfer of `bytes`; None while there is none. Registrations that are kept
    /// make room.
    pub(in crate::rdma) fn reserve(&mut self, bytes: usize) -> Option<Counted> {
        loop {
            let own = self.transfer_bytes();
            let is_within = own == 0 || own.saturating_add(bytes) <= RDMA_TRANSFER_BYTES_MAX;
            let counted = is_within.then(|| quota::take(&self.holder, bytes).ok()).flatten();
            if counted.is_some() || !self.lent.forget_one() {
                return counted;
            }
        }
    }

    /// Number of RDMA requests that may be posted now.
    pub(in crate::rdma) fn room_for_transfers(&self) -> usize {
        RDMA_TRANSFERS_MAX.saturating_sub(self.moving)
    }

    /// Begins to move all bytes of `buf` to the peer.
    pub(in crate::rdma) fn begin_write(
        &mut self,
        buf: Buf,
        counted: Counted,
    ) -> io::Result<TransferKey> {
        if let Some(slot) = self.staged_slot(buf.len()) {
            let room = self.slot_mut(slot).and_then(|room| room.get_mut(..buf.len()));
            room.ok_or(io::ErrorKind::Other)?.copy_from_slice(&buf);
            return Ok(self.begin_staged(slot, buf.len(), Buf::new(), Direction::ToPeer));
        }
        let region = self.register(buf, Access::Source, counted)?;
        Ok(self.begin(Memory::Own(region), Direction::ToPeer))
    }

    /// Begins to append `length` bytes of the peer to `buf`, which has room for them.
    pub(in crate::rdma) fn begin_read(
        &mut self,
        buf: Buf,
        length: usize,
        counted: Counted,
    ) -> io::Result<TransferKey> {
        // With iWARP the data of a read arrives like a write by the peer. Its memory may contain
        // nothing else, so the shared slots are not used.
        if !self.id.is_iwarp()
            && let Some(slot) = self.staged_slot(length)
        {
            return Ok(self.begin_staged(slot, length, buf, Direction::FromPeer));
        }
        let access =
            if self.id.is_iwarp() { Access::SinkIwarp(length) } else { Access::Sink(length) };
        let region = self.register(buf, access, counted)?;
        Ok(self.begin(Memory::Own(region), Direction::FromPeer))
    }

    /// A free slot for a small transfer; None for a large one, or if no more memory may be registered.
    fn staged_slot(&mut self, len: usize) -> Option<Slot> {
        if len > RDMA_STAGED_BYTES {
            return None;
        }
        if self.staged_free.is_empty() && self.staged < RDMA_TRANSFERS_MAX {
            let count = RDMA_SLOTS_AT_ONCE.min(RDMA_TRANSFERS_MAX - self.staged);
            self.staged_free =
                self.add_slots(u16::try_from(count).unwrap_or(1), RDMA_STAGED_BYTES).ok()?;
            self.staged += self.staged_free.len();
        }
        self.staged_free.pop()
    }

    /// Marks a slot as the device's, or as free.
    fn mark(&mut self, slot: Slot, is_posted: bool) {
        let slots = self.slots.get_mut(usize::from(slot.slab));
        if let Some(posted) = slots.and_then(|s| s.posted.get_mut(usize::from(slot.index))) {
            *posted = is_posted;
        }
    }

    fn begin_staged(
        &mut self,
        slot: Slot,
        len: usize,
        buf: Buf,
        direction: Direction,
    ) -> TransferKey {
        self.mark(slot, true);
        self.begin(Memory::Staged { slot, len, buf }, direction)
    }

    fn begin(&mut self, memory: Memory, direction: Direction) -> TransferKey {
        TransferKey(self.transfers.insert(Transfer {
            memory,
            direction,
            outstanding: 0,
            is_growing: true,
            is_abandoned: false,
        }))
    }

    /// Queues a request that moves the bytes from `offset` on to or from `remote`.
    pub(in crate::rdma) fn post_transfer(
        &mut self,
        key: TransferKey,
        offset: usize,
        remote: RemoteBuffer,
    ) -> io::Result<()> {
        let transfer = self.transfers.get(key.0).ok_or(io::ErrorKind::NotFound)?;
        let (region, first, len) = match &transfer.memory {
            Memory::Own(region) => (region, 0, region.len()),
            Memory::Staged { slot, len, .. } => {
                let slots = self.slots.get(usize::from(slot.slab));
                let slots = slots.ok_or(io::ErrorKind::NotFound)?;
                (&slots.region, usize::from(slot.index) * slots.bytes, *len)
            }
        };
        let end = offset.checked_add(remote.length as usize);
        if end.is_none_or(|end| end > len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let place =
            Sge { addr: region.address(first + offset), length: remote.length, lkey: region.key() };
        let opcode = match transfer.direction {
            Direction::ToPeer => WR_RDMA_WRITE,
            Direction::FromPeer => WR_RDMA_READ,
        };
        let number = super::MOVE | u64::try_from(key.0).unwrap_or(u64::MAX);
        let remote = RemoteAddress { address: remote.address, key: remote.key };
        self.queue(number, place, opcode, 0, remote);
        self.moving += 1;
        if let Some(transfer) = self.transfers.get_mut(key.0) {
            transfer.outstanding += 1;
        }
        Ok(())
    }

    /// All requests of the transfer have been posted. With `is_abandoned` its memory is freed when
    /// they are done; else [`Self::finish`] gives it back.
    pub(in crate::rdma) fn end_posting(&mut self, key: TransferKey, is_abandoned: bool) {
        if let Some(transfer) = self.transfers.get_mut(key.0) {
            transfer.is_growing = false;
            transfer.is_abandoned = is_abandoned;
        }
        self.free_if_done(key.0);
    }

    /// True if all requests of a transfer are done.
    pub(in crate::rdma) fn is_complete(&self, key: TransferKey) -> bool {
        let is_done = |one: &Transfer| one.outstanding == 0 && !one.is_growing;
        self.transfers.get(key.0).is_some_and(is_done) && !self.failed
    }

    /// Ends a transfer whose requests are all done: its keys are gone, and its buffer is returned.
    /// None while some are not done.
    pub(in crate::rdma) fn finish(&mut self, key: TransferKey) -> Option<Buf> {
        if !self.is_complete(key) {
            return None;
        }
        let transfer = self.transfers.try_remove(key.0)?;
        match transfer.memory {
            Memory::Own(region) => Some(region.into_buf()),
            Memory::Staged { slot, len, mut buf } => {
                self.mark(slot, false);
                buf.extend_from_slice(self.slot(slot)?.get(..len)?);
                self.staged_free.push(slot);
                Some(buf)
            }
        }
    }

    pub(super) fn free_if_done(&mut self, number: usize) {
        let is_free = self.transfers.get(number).is_some_and(|transfer| {
            transfer.is_abandoned && !transfer.is_growing && transfer.outstanding == 0
        });
        if !is_free {
            return;
        }
        let transfer = self.transfers.try_remove(number);
        if let Some(Transfer { memory: Memory::Staged { slot, .. }, .. }) = transfer {
            self.mark(slot, false);
            self.staged_free.push(slot);
        }
    }

    /// Number of transfers, and of lent buffers, that hold memory.
    pub(in crate::rdma) fn transfers(&self) -> usize {
        self.transfers.len() + self.lent.len()
    }
}
