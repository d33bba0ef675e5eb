//! A queue pair of a device, or one in memory: both have the same calls, and all code above is the
//! same.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::cm::Fate;
use super::lent::{Back, LentKey, NewlyLent};
use super::link::{Completion, Link, Slot, TransferKey};
use super::memory::MemoryLink;
use super::quota::{self, Bound, Counted, Holder};
use super::region::Access;
use super::values::RemoteBuffer;
use crate::buffer::Buf;

/// See the module's text. [`Link`] has the meaning of each call.
pub(super) enum QueuePair {
    /// The queue pair of a device.
    Device(Link),
    /// One end of a connection in memory.
    Memory(MemoryLink),
}

/// Makes the call of either kind.
macro_rules! either {
    ($self:expr, $link:ident => $call:expr) => {
        match $self {
            Self::Device($link) => $call,
            Self::Memory($link) => $call,
        }
    };
}

impl QueuePair {
    /// The stage of the connection.
    pub(super) fn fate(&self) -> &Arc<Fate> {
        match self {
            Self::Device(link) => &link.id().fate,
            Self::Memory(link) => link.fate(),
        }
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Device(link) => link.id().peer_addr(),
            Self::Memory(link) => Ok(link.peer_addr()),
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Device(link) => link.id().local_addr(),
            Self::Memory(link) => Ok(link.local_addr()),
        }
    }

    /// Begins to connect. A connection in memory is connected from the beginning.
    pub(super) fn connect(&self, reads: u8) -> io::Result<()> {
        match self {
            Self::Device(link) => link.id().connect(reads),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Accepts the connection.
    pub(super) fn accept(&self, reads: u8, private: Option<[u32; 2]>) -> io::Result<()> {
        match self {
            Self::Device(link) => link.id().accept(reads, private),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Ends the connection at once.
    pub(super) fn disconnect(&self) {
        match self {
            Self::Device(link) => link.id().disconnect(),
            Self::Memory(link) => link.disconnect(),
        }
    }

    /// The number of RDMA reads that may be under way.
    pub(super) fn reads_max(&self) -> u8 {
        match self {
            Self::Device(link) => link.reads_max(),
            Self::Memory(_) => u8::MAX,
        }
    }

    /// The descriptor that tells of completions; None for a connection in memory, whose
    /// [`Fate::changed`] tells of them.
    pub(super) fn watched(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Device(link) => link.watched().map(Some),
            Self::Memory(_) => Ok(None),
        }
    }

    pub(super) fn arm(&self) -> io::Result<()> {
        match self {
            Self::Device(link) => link.arm(),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(super) fn take_event(&mut self) -> bool {
        match self {
            Self::Device(link) => link.take_event(),
            Self::Memory(_) => false,
        }
    }

    /// The bound that its registered memory counts against.
    pub(super) fn bound(&self) -> Arc<Bound> {
        match self {
            Self::Device(_) => quota::of_process(),
            Self::Memory(link) => link.bound(),
        }
    }

    pub(super) fn add_slots(&mut self, count: u16, bytes: usize) -> io::Result<Vec<Slot>> {
        either!(self, link => link.add_slots(count, bytes))
    }

    pub(super) fn slot(&self, slot: Slot) -> Option<&[u8]> {
        either!(self, link => link.slot(slot))
    }

    pub(super) fn slot_mut(&mut self, slot: Slot) -> Option<&mut [u8]> {
        either!(self, link => link.slot_mut(slot))
    }

    pub(super) fn post_receive(&mut self, slot: Slot) -> io::Result<()> {
        either!(self, link => link.post_receive(slot))
    }

    pub(super) fn post_send(
        &mut self,
        slot: Slot,
        len: usize,
        invalidate: Option<u32>,
    ) -> io::Result<()> {
        either!(self, link => link.post_send(slot, len, invalidate))
    }

    /// Gives the device what was queued; true if there was something. In memory nothing waits.
    pub(super) fn ring(&mut self) -> io::Result<bool> {
        match self {
            Self::Device(link) => link.ring(),
            Self::Memory(_) => Ok(false),
        }
    }

    pub(super) fn poll(&mut self) -> Vec<Completion> {
        either!(self, link => link.poll())
    }

    pub(super) fn registered_bytes(&self) -> usize {
        either!(self, link => link.registered_bytes())
    }

    pub(super) fn belong_to(&mut self, holder: &Arc<Holder>) {
        either!(self, link => link.belong_to(holder));
    }

    pub(super) fn reserve(&mut self, bytes: usize) -> Option<Counted> {
        either!(self, link => link.reserve(bytes))
    }

    pub(super) fn room_for_transfers(&self) -> usize {
        either!(self, link => link.room_for_transfers())
    }

    pub(super) fn begin_write(&mut self, buf: Buf, counted: Counted) -> io::Result<TransferKey> {
        either!(self, link => link.begin_write(buf, counted))
    }

    pub(super) fn begin_read(
        &mut self,
        buf: Buf,
        length: usize,
        counted: Counted,
    ) -> io::Result<TransferKey> {
        either!(self, link => link.begin_read(buf, length, counted))
    }

    pub(super) fn post_transfer(
        &mut self,
        key: TransferKey,
        offset: usize,
        remote: RemoteBuffer,
    ) -> io::Result<()> {
        either!(self, link => link.post_transfer(key, offset, remote))
    }

    pub(super) fn end_posting(&mut self, key: TransferKey, is_abandoned: bool) {
        either!(self, link => link.end_posting(key, is_abandoned));
    }

    pub(super) fn is_complete(&self, key: TransferKey) -> bool {
        either!(self, link => link.is_complete(key))
    }

    pub(super) fn finish(&mut self, key: TransferKey) -> Option<Buf> {
        either!(self, link => link.finish(key))
    }

    pub(super) fn transfers(&self) -> usize {
        either!(self, link => link.transfers())
    }

    pub(super) fn lend(
        &mut self,
        buf: &mut Option<Buf>,
        access: Access,
        by_window: bool,
    ) -> Option<io::Result<NewlyLent>> {
        either!(self, link => link.lend(buf, access, by_window))
    }

    pub(super) fn is_invalidated(&mut self, key: u32) -> bool {
        match self {
            Self::Device(link) => link.is_invalidated(key),
            // The link in memory accepts only the right key, so this check is always true.
            Self::Memory(_) => true,
        }
    }

    pub(super) fn take_back(&mut self, key: LentKey) -> Back {
        either!(self, link => link.take_back(key))
    }

    pub(super) fn abandon(&mut self, key: LentKey) {
        match self {
            Self::Device(link) => link.abandon(key),
            Self::Memory(link) => drop(link.take_back(key)),
        }
    }

    /// Ends what is registered for no request.
    pub(super) fn rest(&mut self) {
        if let Self::Device(link) = self {
            link.rest();
        }
    }

    /// True if dropping it, or [`Self::close`], may wait for a device.
    pub(super) const fn may_block(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// Ends the connection after its last messages have left.
    pub(super) fn close(self, at_most: Duration) {
        match self {
            Self::Device(link) => link.close(at_most),
            Self::Memory(link) => drop(link),
        }
    }
}
