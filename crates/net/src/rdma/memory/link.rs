//! The queue pair of one end of a connection in memory, with the memory that it uses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use super::super::cm::Fate;
use super::super::lent::{Back, LentKey, NewlyLent};
use super::super::link::{Completion, Direction, Slot, TransferKey};
use super::super::quota::{Bound, Counted, Holder};
use super::super::region::Access;
use super::super::values::RemoteBuffer;
use super::Cable;
use super::port::{Completed, Content, Lent, Posted, address_of};
use crate::buffer::Buf;
use crate::limits::{RDMA_COMPLETIONS_AT_ONCE, RDMA_TRANSFER_BYTES_MAX, RDMA_TRANSFERS_MAX};

/// Equal slots.
struct Slots {
    memory: Vec<u8>,
    bytes: usize,
    /// True while the slot is posted.
    posted: Vec<bool>,
    counted: Counted,
}

/// Data that moves by RDMA.
struct Transfer {
    buf: Buf,
    len: usize,
    direction: Direction,
    outstanding: u32,
    is_growing: bool,
    is_abandoned: bool,
    counted: Counted,
}

/// See the module's text. The calls are those of a device's link.
pub(in crate::rdma) struct MemoryLink {
    cable: Arc<Cable>,
    /// The number of this end.
    end: usize,
    fate: Arc<Fate>,
    local: SocketAddr,
    peer: SocketAddr,
    slots: Vec<Slots>,
    transfers: Slab<Transfer>,
    holder: Arc<Holder>,
    /// RDMA requests that are not completed.
    moving: usize,
    has_failed: bool,
}

impl MemoryLink {
    pub(in crate::rdma) fn new(
        cable: Arc<Cable>,
        end: usize,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        let fate = cable.at(end, |port| Arc::clone(port.fate()));
        Self {
            cable,
            end,
            fate,
            local,
            peer,
            slots: Vec::new(),
            transfers: Slab::new(),
            holder: Arc::default(),
            moving: 0,
            has_failed: false,
        }
    }

    pub(in crate::rdma) const fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    pub(in crate::rdma) const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    pub(in crate::rdma) const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(in crate::rdma) fn disconnect(&self) {
        self.cable.at(self.end, super::Port::disconnect);
    }

    pub(in crate::rdma) fn bound(&self) -> Arc<Bound> {
        Arc::clone(&self.cable.common.bound)
    }

    pub(in crate::rdma) fn add_slots(&mut self, count: u16, bytes: usize) -> io::Result<Vec<Slot>> {
        let slab = u16::try_from(self.slots.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let bytes = bytes.next_multiple_of(64);
        let all = bytes * usize::from(count);
        let counted = self.cable.common.bound.take(&self.holder, all);
        let counted = counted.ok_or(io::ErrorKind::OutOfMemory)?;
        let posted = vec![false; count.into()];
        self.slots.push(Slots { memory: vec![0; all], bytes, posted, counted });
        Ok((0..count).map(|index| Slot { slab, index }).collect())
    }

    /// The bytes of a slot. None while it is posted.
    pub(in crate::rdma) fn slot(&self, slot: Slot) -> Option<&[u8]> {
        let slots = self.slots.get(usize::from(slot.slab))?;
        let at = usize::from(slot.index);
        let is_posted = *slots.posted.get(at)?;
        if is_posted { None } else { slots.memory.chunks_exact(slots.bytes).nth(at) }
    }

    /// The bytes of a slot, to be written. None while it is posted.
    pub(in crate::rdma) fn slot_mut(&mut self, slot: Slot) -> Option<&mut [u8]> {
        let slots = self.slots.get_mut(usize::from(slot.slab))?;
        let at = usize::from(slot.index);
        let is_posted = *slots.posted.get(at)?;
        if is_posted { None } else { slots.memory.chunks_exact_mut(slots.bytes).nth(at) }
    }

    /// Marks a slot as posted, or not; returns its size.
    fn mark(&mut self, slot: Slot, is_posted: bool) -> io::Result<usize> {
        let slots = self.slots.get_mut(usize::from(slot.slab)).ok_or(io::ErrorKind::NotFound)?;
        let posted = slots.posted.get_mut(usize::from(slot.index));
        let posted = posted.ok_or(io::ErrorKind::NotFound)?;
        if std::mem::replace(posted, is_posted) && is_posted {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(slots.bytes)
    }

    pub(in crate::rdma) fn post_receive(&mut self, slot: Slot) -> io::Result<()> {
        let room = self.mark(slot, true)?;
        self.cable.at(self.end, |port| port.receive(slot, room));
        Ok(())
    }

    pub(in crate::rdma) fn post_send(
        &mut self,
        slot: Slot,
        len: usize,
        invalidate: Option<u32>,
    ) -> io::Result<()> {
        let bytes = self.slot(slot).ok_or(io::ErrorKind::ResourceBusy)?;
        let bytes = bytes.get(..len.min(bytes.len())).unwrap_or_default().to_vec();
        self.mark(slot, true)?;
        let packet = Content::Send { bytes, invalidate };
        self.cable.at(self.end, |port| port.request(Posted::Send(slot), packet));
        Ok(())
    }

    pub(in crate::rdma) fn registered_bytes(&self) -> usize {
        let slots: usize = self.slots.iter().map(|slots| slots.memory.len()).sum();
        slots.saturating_add(self.transfer_bytes())
    }

    fn transfer_bytes(&self) -> usize {
        let moving: usize = self.transfers.iter().map(|(_, one)| one.len).sum();
        moving.saturating_add(self.cable.at(self.end, |port| port.lent_bytes()))
    }

    pub(in crate::rdma) fn belong_to(&mut self, holder: &Arc<Holder>) {
        self.holder = Arc::clone(holder);
        self.slots.iter_mut().for_each(|slots| slots.counted.move_to(holder));
        self.transfers.iter_mut().for_each(|(_, transfer)| transfer.counted.move_to(holder));
        self.cable.at(self.end, |port| port.move_lent_to(holder));
    }

    pub(in crate::rdma) fn reserve(&self, bytes: usize) -> Option<Counted> {
        let own = self.transfer_bytes();
        let is_within = own == 0 || own.saturating_add(bytes) <= RDMA_TRANSFER_BYTES_MAX;
        if is_within { self.cable.common.bound.take(&self.holder, bytes) } else { None }
    }

    pub(in crate::rdma) const fn room_for_transfers(&self) -> usize {
        RDMA_TRANSFERS_MAX.saturating_sub(self.moving)
    }

    pub(in crate::rdma) fn begin_write(
        &mut self,
        buf: Buf,
        counted: Counted,
    ) -> io::Result<TransferKey> {
        let len = buf.len();
        Ok(self.begin(buf, len, Direction::ToPeer, counted))
    }

    pub(in crate::rdma) fn begin_read(
        &mut self,
        mut buf: Buf,
        length: usize,
        counted: Counted,
    ) -> io::Result<TransferKey> {
        if buf.memory_mut().len() < length {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.begin(buf, length, Direction::FromPeer, counted))
    }

    fn begin(
        &mut self,
        buf: Buf,
        len: usize,
        direction: Direction,
        counted: Counted,
    ) -> TransferKey {
        TransferKey(self.transfers.insert(Transfer {
            buf,
            len,
            direction,
            outstanding: 0,
            is_growing: true,
            is_abandoned: false,
            counted,
        }))
    }

    pub(in crate::rdma) fn post_transfer(
        &mut self,
        key: TransferKey,
        offset: usize,
        remote: RemoteBuffer,
    ) -> io::Result<()> {
        let transfer = self.transfers.get_mut(key.0).ok_or(io::ErrorKind::NotFound)?;
        let end = offset.checked_add(remote.length as usize).filter(|end| *end <= transfer.len);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let packet = match transfer.direction {
            Direction::ToPeer => {
                let bytes = transfer.buf.get(offset..end).unwrap_or_default().to_vec();
                Content::Write { remote, bytes }
            }
            Direction::FromPeer => Content::Read { remote },
        };
        transfer.outstanding += 1;
        self.moving += 1;
        let posted = Posted::Move { transfer: key.0, offset };
        self.cable.at(self.end, |port| port.request(posted, packet));
        Ok(())
    }

    pub(in crate::rdma) fn end_posting(&mut self, key: TransferKey, is_abandoned: bool) {
        if let Some(transfer) = self.transfers.get_mut(key.0) {
            transfer.is_growing = false;
            transfer.is_abandoned = is_abandoned;
        }
        self.free_if_done(key.0);
    }

    pub(in crate::rdma) fn is_complete(&self, key: TransferKey) -> bool {
        let is_done = |one: &Transfer| one.outstanding == 0 && !one.is_growing;
        self.transfers.get(key.0).is_some_and(is_done) && !self.has_failed
    }

    pub(in crate::rdma) fn finish(&mut self, key: TransferKey) -> Option<Buf> {
        if !self.is_complete(key) {
            return None;
        }
        let Transfer { mut buf, len, direction, .. } = self.transfers.try_remove(key.0)?;
        if direction == Direction::FromPeer {
            buf.set_filled(len);
        }
        Some(buf)
    }

    fn free_if_done(&mut self, number: usize) {
        let is_free = self.transfers.get(number).is_some_and(|transfer| {
            transfer.is_abandoned && !transfer.is_growing && transfer.outstanding == 0
        });
        if is_free {
            drop(self.transfers.try_remove(number));
        }
    }

    pub(in crate::rdma) fn transfers(&self) -> usize {
        self.transfers.len() + self.cable.at(self.end, |port| port.lent())
    }

    pub(in crate::rdma) fn lend(
        &mut self,
        buf: &mut Option<Buf>,
        access: Access,
        by_window: bool,
    ) -> Option<io::Result<NewlyLent>> {
        let room = buf.as_mut()?;
        let len = match access {
            Access::PeerWrites(len) if len <= room.memory_mut().len() => len,
            Access::PeerReads => room.len(),
            _ => return Some(Err(io::ErrorKind::InvalidInput.into())),
        };
        let counted = self.reserve(len)?;
        let Ok(length) = u32::try_from(len) else {
            return Some(Err(io::ErrorKind::InvalidInput.into()));
        };
        let buf = buf.take()?;
        let key = self.cable.common.next_key.fetch_add(1, Ordering::Relaxed);
        let lent = Lent { buf, access, len, counted, is_window: by_window, is_invalid: false };
        self.cable.at(self.end, |port| port.lend(key, lent));
        let remote = RemoteBuffer { address: address_of(key), key, length };
        Some(Ok((LentKey(key as usize), remote, by_window)))
    }

    pub(in crate::rdma) fn take_back(&mut self, key: LentKey) -> Back {
        let key = u32::try_from(key.0).unwrap_or(0);
        let buf = self.cable.at(self.end, |port| port.take_back(key));
        buf.map_or(Back::Gone, Back::Buf)
    }

    pub(in crate::rdma) fn poll(&mut self) -> Vec<Completion> {
        let mut found = Vec::new();
        while found.len() < RDMA_COMPLETIONS_AT_ONCE
            && let Some(completed) = self.cable.at(self.end, super::Port::next_completed)
        {
            found.push(self.complete(completed));
        }
        found
    }

    fn complete(&mut self, completed: Completed) -> Completion {
        match completed {
            Completed::Received { slot, bytes, invalidated } => {
                let _ = self.mark(slot, false);
                let room = self.slot_mut(slot).and_then(|room| room.get_mut(..bytes.len()));
                if let Some(room) = room {
                    room.copy_from_slice(&bytes);
                }
                Completion::Received { slot, len: bytes.len(), invalidated }
            }
            Completed::Sent(slot) => {
                let _ = self.mark(slot, false);
                Completion::Sent(slot)
            }
            Completed::Moved { transfer, offset, bytes } => {
                self.moved(transfer, offset, &bytes);
                Completion::Moved
            }
            Completed::Failed(posted, status) => {
                self.has_failed = true;
                match posted {
                    Posted::Receive(slot) | Posted::Send(slot) => {
                        let _ = self.mark(slot, false);
                    }
                    Posted::Move { transfer, offset } => self.moved(transfer, offset, &[]),
                }
                Completion::Failed(status)
            }
        }
    }

    fn moved(&mut self, number: usize, offset: usize, bytes: &[u8]) {
        self.moving = self.moving.saturating_sub(1);
        if let Some(transfer) = self.transfers.get_mut(number) {
            transfer.outstanding = transfer.outstanding.saturating_sub(1);
            let room = transfer.buf.memory_mut().get_mut(offset..offset + bytes.len());
            if let Some(room) = room {
                room.copy_from_slice(bytes);
            }
        }
        self.free_if_done(number);
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.cable.at(self.end, super::Port::clear);
    }
}
