//! A queue pair with the memory that it uses.
//!
//! The device reads and writes memory beside the program. So a [`Link`] owns all memory that it has
//! posted: a slot or a region is given out again only once the device has completed every request
//! for it, or the queue pair is gone.

mod doorbell;
mod lend;
mod transfers;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

pub(super) use transfers::{Direction, TransferKey};

use self::transfers::{Memory, Transfer};
use super::cm::Id;
use super::ffi::{
    Bind, CompletionChannel, Cq, DeviceAttr, Pd, QPT_RC, QpCap, QpInitAttr, ReceiveRequest,
    SEND_SIGNALED, SendRequest, Sge, WC_WITH_INV, WC_WITH_INV_KERNEL, WR_SEND, WR_SEND_WITH_INV,
    WorkCompletion,
};
use super::lent::LentMemory;
use super::quota::{self, Counted, Holder};
use super::region::{Access, Region};
use crate::buffer::Buf;
use crate::limits::{
    RDMA_COMPLETIONS_AT_ONCE, RDMA_RECEIVES_MAX, RDMA_SENDS_MAX, RDMA_TRANSFERS_MAX,
};

/// The place of one message in the memory of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) slab: u16,
    pub(super) index: u16,
}

impl Slot {
    /// True for a slot of the negotiation, which came first.
    pub(super) const fn is_early(self) -> bool {
        self.slab == 0
    }
}

/// Equal slots in one registered region.
struct Slots {
    region: Region,
    bytes: usize,
    /// True while the device may use the slot.
    posted: Vec<bool>,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// A message has come.
    Received { slot: Slot, len: usize, invalidated: Option<u32> },
    /// A message has left.
    Sent(Slot),
    /// A part of a transfer is done, or a window is bound.
    Moved,
    /// The connection has failed, with `enum ibv_wc_status`.
    Failed(i32),
}

/// Memory of the peer in a request; all zeros for a request that moves nothing to or from it.
#[derive(Clone, Copy)]
struct RemoteAddress {
    address: u64,
    key: u32,
}

impl RemoteAddress {
    const NONE: Self = Self { address: 0, key: 0 };
}

/// A queue pair, its completion queue, its protection domain and all memory of it. No other
/// connection's keys count in the domain.
pub(super) struct Link {
    id: Id,
    pd: NonNull<Pd>,
    events: NonNull<CompletionChannel>,
    cq: NonNull<Cq>,
    has_qp: bool,
    /// The device is told of requests with write(2).
    is_soft: bool,
    slots: Vec<Slots>,
    transfers: Slab<Transfer>,
    /// Slots for small transfers, in all and free.
    staged: usize,
    staged_free: Vec<Slot>,
    /// Memory that the peer may use at present.
    lent: LentMemory,
    /// The device has memory windows that can be used. Known when the first is wanted.
    has_windows: Option<bool>,
    /// Its registered memory counts there.
    holder: Arc<Holder>,
    /// RDMA requests, and binds of windows, that the device has not completed.
    moving: usize,
    /// Sends that the device has not completed.
    sending: usize,
    /// Requests that the device does not have yet, each with its memory's place.
    queued: Vec<(SendRequest, Sge)>,
    failed: bool,
    unacknowledged: u32,
}

// SAFETY: libibverbs' objects are bound to no thread, and only the owner of the link uses them.
unsafe impl Send for Link {}

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const MOVE: u64 = 3 << 32;
const BIND: u64 = 4 << 32;

impl Link {
    /// Makes a queue pair for a connection that is not established yet.
    ///
    /// # Errors
    /// The device has too little of something, or `ulimit -l` is too small.
    pub(super) fn new(id: Id) -> io::Result<Self> {
        let library = id.library();
        // SAFETY: the identifier is valid.
        let context = unsafe { id.raw().as_ref() }.verbs;
        let context = NonNull::new(context).ok_or(io::ErrorKind::NotConnected)?.as_ptr();
        // SAFETY: a context stays valid as long as the library is loaded. Each object is made from
        // an earlier one and destroyed before it, below or in `drop`.
        unsafe {
            let pd = (library.ibv_alloc_pd)(context);
            let pd = NonNull::new(pd).ok_or_else(io::Error::last_os_error)?;
            let Some(events) = NonNull::new((library.ibv_create_comp_channel)(context)) else {
                let error = io::Error::last_os_error();
                (library.ibv_dealloc_pd)(pd.as_ptr());
                return Err(error);
            };
            let depth = RDMA_RECEIVES_MAX + RDMA_SENDS_MAX + RDMA_TRANSFERS_MAX;
            let depth = i32::try_from(depth).unwrap_or(i32::MAX);
            let cq = (library.ibv_create_cq)(context, depth, null_mut(), events.as_ptr(), 0);
            let Some(cq) = NonNull::new(cq) else {
                let error = io::Error::last_os_error();
                (library.ibv_destroy_comp_channel)(events.as_ptr());
                (library.ibv_dealloc_pd)(pd.as_ptr());
                return Err(error);
            };
            let mut link = Self {
                id,
                pd,
                events,
                cq,
                has_qp: false,
                is_soft: false,
                slots: Vec::new(),
                transfers: Slab::new(),
                staged: 0,
                staged_free: Vec::new(),
                lent: LentMemory::default(),
                has_windows: None,
                holder: Arc::default(),
                moving: 0,
                sending: 0,
                queued: Vec::new(),
                failed: false,
                unacknowledged: 0,
            };
            // The channel is made non-blocking, because dropping the link reads the remaining
            // events and must not wait for more.
            link.set_nonblocking()?;
            link.make_queue_pair()?;
            Ok(link)
        }
    }

    fn make_queue_pair(&mut self) -> io::Result<()> {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut wanted = QpInitAttr {
            qp_context: null_mut(),
            send_cq: self.cq.as_ptr(),
            recv_cq: self.cq.as_ptr(),
            srq: null_mut(),
            cap: QpCap {
                max_send_wr: count(RDMA_SENDS_MAX + RDMA_TRANSFERS_MAX),
                max_recv_wr: count(RDMA_RECEIVES_MAX),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: all objects are of one device, and outlive the queue pair.
        unsafe { self.id.create_qp(self.pd.as_ptr(), &mut wanted) }?;
        self.has_qp = true;
        self.is_soft = self.attributes().is_none_or(|device| device.is_soft());
        // Most devices (not rxe) report a completion only after they were asked to.
        self.arm()
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(self.fd())?;
        Ok(rustix::fs::fcntl_setfl(self.fd(), flags | rustix::fs::OFlags::NONBLOCK)?)
    }

    pub(super) fn id(&self) -> &Id {
        &self.id
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor, and is open while it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.events.as_ref().fd) }
    }

    /// A descriptor that is readable when there are completions, once [`Self::arm`] was called.
    pub(super) fn watched(&self) -> io::Result<OwnedFd> {
        self.fd().try_clone_to_owned()
    }

    /// The number of RDMA reads that the device can have under way for one queue pair.
    pub(super) fn reads_max(&self) -> u8 {
        self.attributes().map_or(1, |all| u8::try_from(all.max_qp_init_rd_atom).unwrap_or(u8::MAX))
    }

    fn attributes(&self) -> Option<DeviceAttr> {
        let mut attributes = DeviceAttr::zeroed();
        // SAFETY: the context is valid, and the structure is at least as large as the library's.
        let outcome = unsafe {
            (self.id.library().ibv_query_device)(self.id.raw().as_ref().verbs, &mut attributes)
        };
        (outcome == 0).then_some(attributes)
    }

    /// Adds `count` slots of `bytes` each.
    ///
    /// # Errors
    /// No more memory may be registered.
    pub(super) fn add_slots(&mut self, count: u16, bytes: usize) -> io::Result<Vec<Slot>> {
        let slab = u16::try_from(self.slots.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let bytes = bytes.next_multiple_of(64);
        let all = bytes * usize::from(count);
        let counted = quota::take(&self.holder, all)?;
        let region = self.register(Buf::with_capacity(all), Access::Slots(all), counted)?;
        self.slots.push(Slots { region, bytes, posted: vec![false; count.into()] });
        Ok((0..count).map(|index| Slot { slab, index }).collect())
    }

    fn register(&self, buf: Buf, access: Access, counted: Counted) -> io::Result<Region> {
        // SAFETY: the domain exists as long as the link, which owns the region.
        unsafe { Region::new(self.id.library(), self.pd, buf, access, counted) }
    }

    /// Bytes of memory that are registered, for messages and transfers.
    pub(super) fn registered_bytes(&self) -> usize {
        let slots: usize = self.slots.iter().map(|slots| slots.region.len()).sum();
        slots.saturating_add(self.transfer_bytes())
    }

    fn transfer_bytes(&self) -> usize {
        let moving: usize = self.transfers.iter().map(|(_, one)| one.memory.own_bytes()).sum();
        moving.saturating_add(self.lent.bytes())
    }

    /// Counts all registered memory for another holder from now on.
    pub(super) fn belong_to(&mut self, holder: &Arc<Holder>) {
        self.holder = Arc::clone(holder);
        let transfers = self.transfers.iter_mut().filter_map(|(_, transfer)| {
            if let Memory::Own(region) = &mut transfer.memory { Some(region) } else { None }
        });
        let slots = self.slots.iter_mut().map(|slots| &mut slots.region);
        slots.chain(transfers).for_each(|region| region.move_to(holder));
        self.lent.move_to(holder);
    }

    /// The bytes of a slot. None while the device may use it.
    pub(super) fn slot(&self, slot: Slot) -> Option<&[u8]> {
        let slots = self.slots.get(usize::from(slot.slab))?;
        let index = usize::from(slot.index);
        if *slots.posted.get(index)? {
            return None;
        }
        // SAFETY: the device does not use the slot, and the link is borrowed.
        Some(unsafe { slots.region.part(index * slots.bytes, slots.bytes) })
    }

    /// The bytes of a slot, to be written. None while the device may use it.
    pub(super) fn slot_mut(&mut self, slot: Slot) -> Option<&mut [u8]> {
        let slots = self.slots.get_mut(usize::from(slot.slab))?;
        let index = usize::from(slot.index);
        if *slots.posted.get(index)? {
            return None;
        }
        // SAFETY: the device does not use the slot, and the link is borrowed mutably.
        Some(unsafe { slots.region.part_mut(index * slots.bytes, slots.bytes) })
    }

    /// Marks the slot as the device's, and returns its place and size.
    fn take(&mut self, slot: Slot) -> io::Result<(u64, u32, u32)> {
        let index = usize::from(slot.index);
        let slots = self.slots.get_mut(usize::from(slot.slab)).ok_or(io::ErrorKind::NotFound)?;
        let posted = slots.posted.get_mut(index).ok_or(io::ErrorKind::NotFound)?;
        if std::mem::replace(posted, true) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let bytes = u32::try_from(slots.bytes).unwrap_or(0);
        Ok((slots.region.address(index * slots.bytes), bytes, slots.region.key()))
    }

    /// Gives a slot to the device for the next message that comes.
    pub(super) fn post_receive(&mut self, slot: Slot) -> io::Result<()> {
        let (addr, length, lkey) = self.take(slot)?;
        let mut place = Sge { addr, length, lkey };
        let mut request = ReceiveRequest {
            wr_id: RECEIVE | number_of(slot),
            next: null_mut(),
            sg_list: &mut place,
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY: the queue pair is valid; the request is copied during the call, and the slot
        // stays registered and unused until its completion.
        let errno = unsafe {
            let qp = self.id.raw().as_ref().qp;
            let context = self.id.raw().as_ref().verbs.as_ref();
            context.map_or(libc::ENOTCONN, |c| (c.post_recv)(qp, &mut request, &mut bad))
        };
        result_of(errno)
    }

    /// Queues the first `len` bytes of a slot to be sent, which invalidates a key of the peer.
    pub(super) fn post_send(
        &mut self,
        slot: Slot,
        len: usize,
        invalidate: Option<u32>,
    ) -> io::Result<()> {
        let (addr, room, lkey) = self.take(slot)?;
        let length = u32::try_from(len).unwrap_or(u32::MAX).min(room);
        let opcode = if invalidate.is_some() { WR_SEND_WITH_INV } else { WR_SEND };
        let place = Sge { addr, length, lkey };
        let key = invalidate.unwrap_or(0);
        // siw reads the key of an invalidation from the field for RDMA requests, so both fields get
        // the key.
        let remote = RemoteAddress { address: 0, key };
        self.queue(SEND | number_of(slot), place, opcode, key, remote);
        self.sending += 1;
        Ok(())
    }

    fn queue(
        &mut self,
        wr_id: u64,
        place: Sge,
        opcode: i32,
        invalidate_rkey: u32,
        remote: RemoteAddress,
    ) {
        self.queue_with(wr_id, Some(place), opcode, invalidate_rkey, remote, Bind::NONE);
    }

    fn queue_with(
        &mut self,
        wr_id: u64,
        place: Option<Sge>,
        opcode: i32,
        invalidate_rkey: u32,
        remote: RemoteAddress,
        bind: Bind,
    ) {
        let num_sge = i32::from(place.is_some());
        let request = SendRequest {
            wr_id,
            next: null_mut(),
            sg_list: null_mut(),
            num_sge,
            opcode,
            send_flags: SEND_SIGNALED,
            invalidate_rkey,
            remote_addr: remote.address,
            rkey: remote.key,
            rest: [0; 7],
            bind,
        };
        self.queued.push((request, place.unwrap_or_default()));
    }

    /// Asks the device to make the descriptor readable at the next completion.
    pub(super) fn arm(&self) -> io::Result<()> {
        // SAFETY: the completion queue and its context are valid.
        let errno = unsafe {
            let context = self.id.raw().as_ref().verbs.as_ref();
            context.map_or(libc::ENOTCONN, |c| (c.req_notify_cq)(self.cq.as_ptr(), 0))
        };
        result_of(errno)
    }

    /// Takes an event, which made the descriptor readable; false if there is none. There is one for
    /// each [`Self::arm`] at most.
    pub(super) fn take_event(&mut self) -> bool {
        let (mut cq, mut context) = (null_mut(), null_mut());
        let library = self.id.library();
        // SAFETY: the channel is open and non-blocking; both results are variables that outlive the
        // call.
        let outcome =
            unsafe { (library.ibv_get_cq_event)(self.events.as_ptr(), &mut cq, &mut context) };
        self.unacknowledged += u32::from(outcome == 0);
        outcome == 0
    }

    /// Takes completions, as many as there are up to a limit.
    pub(super) fn poll(&mut self) -> Vec<Completion> {
        let mut found = [WorkCompletion::default(); RDMA_COMPLETIONS_AT_ONCE];
        let room = i32::try_from(found.len()).unwrap_or(0);
        // SAFETY: the completion queue and its context are valid; at most `room` completions are
        // written.
        let count = unsafe {
            let context = self.id.raw().as_ref().verbs.as_ref();
            context.map_or(-1, |c| (c.poll_cq)(self.cq.as_ptr(), room, found.as_mut_ptr()))
        };
        let Ok(count) = usize::try_from(count) else {
            self.failed = true;
            return vec![Completion::Failed(-1)];
        };
        let found: Vec<_> = found.iter().take(count).map(|found| self.complete(found)).collect();
        found
    }

    fn complete(&mut self, found: &WorkCompletion) -> Completion {
        let number = usize::try_from(found.wr_id & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let kind = found.wr_id & !u64::from(u32::MAX);
        let slot = slot_of(number);
        match kind {
            MOVE => {
                self.moving = self.moving.saturating_sub(1);
                if let Some(transfer) = self.transfers.get_mut(number) {
                    transfer.outstanding = transfer.outstanding.saturating_sub(1);
                }
            }
            BIND => self.moving = self.moving.saturating_sub(1),
            _ => {
                self.sending -= usize::from(kind == SEND && self.sending > 0);
                let slots = self.slots.get_mut(usize::from(slot.slab));
                let posted = slots.and_then(|s| s.posted.get_mut(usize::from(slot.index)));
                if let Some(posted) = posted {
                    *posted = false;
                }
            }
        }
        if found.status != 0 {
            self.failed = true;
            return Completion::Failed(found.status);
        }
        match kind {
            MOVE => {
                self.free_if_done(number);
                Completion::Moved
            }
            BIND => {
                self.lent.is_bound(u32::try_from(number).unwrap_or(0));
                Completion::Moved
            }
            SEND => Completion::Sent(slot),
            _ => {
                let with = found.wc_flags & (WC_WITH_INV | WC_WITH_INV_KERNEL) != 0;
                let invalidated = with.then_some(found.invalidated_rkey);
                Completion::Received { slot, len: found.byte_len as usize, invalidated }
            }
        }
    }

    /// Waits a little until all messages have left: the peer still wants them.
    fn linger(&mut self, at_most: Duration) {
        if self.ring().is_err() {
            return;
        }
        let until = Instant::now() + at_most;
        while self.sending > 0 && !self.failed && !self.id.fate.is_over() {
            if self.poll().is_empty() {
                if Instant::now() >= until {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Ends the connection after its last messages have left. It may wait, and does not belong on a
    /// core.
    pub(super) fn close(mut self, at_most: Duration) {
        self.linger(at_most);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let library = self.id.library();
        if self.has_qp {
            self.id.disconnect();
            self.lent.free_windows();
            // SAFETY: the queue pair is the identifier's, and is not used afterwards.
            unsafe { self.id.destroy_qp() };
            while self.take_event() {}
        }
        // The queue pair is destroyed, so no transfer is in progress and all memory can be freed.
        self.transfers.clear();
        self.lent.clear();
        self.slots.clear();
        // SAFETY: no queue pair and no region is left that refers to these objects. Each object is
        // destroyed once, before the object that it was made from.
        unsafe {
            if self.unacknowledged > 0 {
                (library.ibv_ack_cq_events)(self.cq.as_ptr(), self.unacknowledged);
            }
            (library.ibv_destroy_cq)(self.cq.as_ptr());
            (library.ibv_destroy_comp_channel)(self.events.as_ptr());
            (library.ibv_dealloc_pd)(self.pd.as_ptr());
        }
    }
}

fn number_of(slot: Slot) -> u64 {
    u64::from(slot.slab) << 16 | u64::from(slot.index)
}

fn slot_of(number: usize) -> Slot {
    let part = |value: usize| u16::try_from(value & 0xffff).unwrap_or(0);
    Slot { slab: part(number >> 16), index: part(number) }
}

/// The result of a call that returns an error number.
fn result_of(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno.abs())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_survive_their_number() {
        for slot in [Slot { slab: 0, index: 0 }, Slot { slab: 3, index: 65_535 }] {
            assert_eq!(slot_of(usize::try_from(number_of(slot)).unwrap()), slot);
        }
    }
}
