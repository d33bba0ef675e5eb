//! One end of a connection in memory, as a device has it: queues, completions and keys.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::super::cm::{Fate, Stage};
use super::super::link::Slot;
use super::super::quota::{Counted, Holder};
use super::super::region::Access;
use super::super::values::RemoteBuffer;
use crate::buffer::Buf;

/// `enum ibv_wc_status`: a message is longer than the receive.
const LOC_LEN_ERR: i32 = 1;
/// All requests after one that has failed.
const WR_FLUSH_ERR: i32 = 5;
/// The peer refuses a message.
const REM_INV_REQ_ERR: i32 = 9;
/// The peer's memory is not there, or not to be used so.
const REM_ACCESS_ERR: i32 = 10;
/// The peer does not answer.
const RETRY_EXC_ERR: i32 = 12;
/// The peer has no receive posted.
const RNR_RETRY_EXC_ERR: i32 = 13;

/// A packet: a request, the answer to the oldest one, or the end.
#[derive(Debug)]
pub(in crate::rdma) enum Content {
    Send { bytes: Vec<u8>, invalidate: Option<u32> },
    Write { remote: RemoteBuffer, bytes: Vec<u8> },
    Read { remote: RemoteBuffer },
    Done,
    Data(Vec<u8>),
    Refused(i32),
    End,
}

/// A request that is not completed.
#[derive(Debug, Clone, Copy)]
pub(in crate::rdma) enum Posted {
    Receive(Slot),
    Send(Slot),
    /// A part of a transfer, and the place of its bytes there.
    Move {
        transfer: usize,
        offset: usize,
    },
}

/// A completed request.
pub(in crate::rdma) enum Completed {
    Received {
        slot: Slot,
        bytes: Vec<u8>,
        invalidated: Option<u32>,
    },
    Sent(Slot),
    /// With the bytes of an RDMA read.
    Moved {
        transfer: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Failed(Posted, i32),
}

/// A buffer that the peer may use by its key.
pub(in crate::rdma) struct Lent {
    pub(in crate::rdma) buf: Buf,
    pub(in crate::rdma) access: Access,
    pub(in crate::rdma) len: usize,
    pub(in crate::rdma) counted: Counted,
    /// The peer may invalidate the key.
    pub(in crate::rdma) is_window: bool,
    /// The peer has invalidated the key.
    pub(in crate::rdma) is_invalid: bool,
}

/// See the module's text.
pub(in crate::rdma) struct Port {
    fate: Arc<Fate>,
    /// Sends and transfers in the order of their posting.
    posted: VecDeque<Posted>,
    receives: VecDeque<(Slot, usize)>,
    completed: VecDeque<Completed>,
    lent: BTreeMap<u32, Lent>,
    packets: VecDeque<Content>,
    is_over: bool,
    has_left: bool,
}

impl Port {
    pub(in crate::rdma) fn new() -> Self {
        let fate = Fate::new();
        fate.reach(Stage::Established);
        Self {
            fate,
            posted: VecDeque::new(),
            receives: VecDeque::new(),
            completed: VecDeque::new(),
            lent: BTreeMap::new(),
            packets: VecDeque::new(),
            is_over: false,
            has_left: false,
        }
    }

    pub(in crate::rdma) const fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    pub(in crate::rdma) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(in crate::rdma) fn lent(&self) -> usize {
        self.lent.len()
    }

    pub(in crate::rdma) fn has_packets(&self) -> bool {
        !self.packets.is_empty()
    }

    pub(in crate::rdma) fn next_packet(&mut self) -> Option<Content> {
        self.packets.pop_front()
    }

    pub(in crate::rdma) fn next_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    fn complete(&mut self, completed: Completed) {
        self.completed.push_back(completed);
        self.fate.changed.notify_waiters();
    }

    pub(in crate::rdma) fn receive(&mut self, slot: Slot, room: usize) {
        if self.is_over {
            return self.complete(Completed::Failed(Posted::Receive(slot), WR_FLUSH_ERR));
        }
        self.receives.push_back((slot, room));
    }

    /// Posts a request, which leaves as a packet.
    pub(in crate::rdma) fn request(&mut self, posted: Posted, packet: Content) {
        if self.is_over {
            return self.complete(Completed::Failed(posted, WR_FLUSH_ERR));
        }
        self.posted.push_back(posted);
        self.packets.push_back(packet);
    }

    pub(in crate::rdma) fn lend(&mut self, key: u32, lent: Lent) {
        self.lent.insert(key, lent);
    }

    /// Ends the peer's use of a buffer, and returns it.
    pub(in crate::rdma) fn take_back(&mut self, key: u32) -> Option<Buf> {
        let Lent { mut buf, access, len, .. } = self.lent.remove(&key)?;
        if let Access::PeerWrites(_) = access {
            buf.set_filled(len);
        }
        Some(buf)
    }

    pub(in crate::rdma) fn lent_bytes(&self) -> usize {
        self.lent.values().map(|lent| lent.len).sum()
    }

    pub(in crate::rdma) fn move_lent_to(&mut self, holder: &Arc<Holder>) {
        self.lent.values_mut().for_each(|lent| lent.counted.move_to(holder));
    }

    /// Takes a packet of the peer. Fails if the peer breaks the rules of RDMA, which it is told.
    pub(in crate::rdma) fn arrive(&mut self, packet: Content) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        let answer = match packet {
            Content::Send { bytes, invalidate } => self.take_message(bytes, invalidate),
            Content::Write { remote, bytes } => {
                let written = self.reach(&remote, false).map(|room| room.copy_from_slice(&bytes));
                written.map(|()| Content::Done).map_err(|why| (REM_ACCESS_ERR, why))
            }
            Content::Read { remote } => {
                let read = self.reach(&remote, true).map(|bytes| Content::Data(bytes.to_vec()));
                read.map_err(|why| (REM_ACCESS_ERR, why))
            }
            Content::Done => return self.answered(Ok(Vec::new())),
            Content::Data(bytes) => return self.answered(Ok(bytes)),
            Content::Refused(status) => return self.answered(Err(status)),
            Content::End => {
                self.fail(WR_FLUSH_ERR);
                self.fate.reach(Stage::Over);
                return Ok(());
            }
        };
        match answer {
            Ok(answer) => self.packets.push_back(answer),
            Err((status, why)) => {
                // A device ends the connection on both sides after an error, except if the receiver
                // had no receive posted (RNR). This link does the same.
                if status != RNR_RETRY_EXC_ERR {
                    self.fail(WR_FLUSH_ERR);
                }
                self.packets.push_back(Content::Refused(status));
                return Err(why);
            }
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        bytes: Vec<u8>,
        invalidate: Option<u32>,
    ) -> Result<Content, (i32, String)> {
        let len = bytes.len();
        let Some((slot, room)) = self.receives.pop_front() else {
            return Err((RNR_RETRY_EXC_ERR, "a message came and no receive is posted".into()));
        };
        if len > room {
            self.receives.push_front((slot, room));
            self.fail(LOC_LEN_ERR);
            let why = format!("a message of {len} bytes came for a receive of {room}");
            return Err((REM_INV_REQ_ERR, why));
        }
        if let Some(key) = invalidate {
            match self.lent.get_mut(&key).filter(|lent| lent.is_window && !lent.is_invalid) {
                Some(lent) => lent.is_invalid = true,
                None => {
                    self.receives.push_front((slot, room));
                    let why = format!("key {key:#x}, which does not count, was invalidated");
                    return Err((REM_ACCESS_ERR, why));
                }
            }
        }
        self.complete(Completed::Received { slot, bytes, invalidated: invalidate });
        Ok(Content::Done)
    }

    /// The memory that the peer names, if it may use it so.
    fn reach(&mut self, remote: &RemoteBuffer, reads: bool) -> Result<&mut [u8], String> {
        let how = if reads { "read" } else { "write" };
        let told = |why| {
            let RemoteBuffer { address, key, length } = remote;
            format!("RDMA {how} of {length} bytes at {address:#x} with key {key:#x}: {why}")
        };
        let Some(lent) = self.lent.get_mut(&remote.key).filter(|lent| !lent.is_invalid) else {
            return Err(told("the key does not count"));
        };
        let at = remote.address.checked_sub(address_of(remote.key));
        let at = at.and_then(|at| usize::try_from(at).ok());
        let end = at.and_then(|at| at.checked_add(remote.length as usize));
        let (Some(at), Some(end)) = (at, end.filter(|end| *end <= lent.len)) else {
            return Err(told("it is not inside the memory"));
        };
        let bytes = match (lent.access, reads) {
            (Access::PeerReads, true) => lent.buf.get_mut(at..end),
            (Access::PeerWrites(_), false) => lent.buf.memory_mut().get_mut(at..end),
            _ => return Err(told("the memory is not lent for that")),
        };
        bytes.ok_or_else(|| told("the memory is not there"))
    }

    /// Completes the oldest request.
    fn answered(&mut self, answer: Result<Vec<u8>, i32>) -> Result<(), String> {
        let Some(posted) = self.posted.pop_front() else { return Ok(()) };
        let bytes = match answer {
            Ok(bytes) => bytes,
            Err(status) => {
                self.posted.push_front(posted);
                self.fail(status);
                return Ok(());
            }
        };
        self.complete(match posted {
            Posted::Move { transfer, offset } => Completed::Moved { transfer, offset, bytes },
            Posted::Send(slot) | Posted::Receive(slot) => Completed::Sent(slot),
        });
        Ok(())
    }

    /// Fails the oldest request with this status, and all others behind it.
    fn fail(&mut self, status: i32) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let receives = self.receives.drain(..).map(|(slot, _)| Posted::Receive(slot));
        let all: Vec<_> = self.posted.drain(..).chain(receives).collect();
        for (at, posted) in all.into_iter().enumerate() {
            let status = if at == 0 { status } else { WR_FLUSH_ERR };
            self.completed.push_back(Completed::Failed(posted, status));
        }
        // Requests that were not sent yet are dropped, but responses to the peer are still sent.
        self.packets.retain(|packet| {
            matches!(packet, Content::Done | Content::Data(_) | Content::Refused(_))
        });
        self.fate.changed.notify_waiters();
    }

    /// The device gives up: nobody answers it.
    pub(in crate::rdma) fn give_up(&mut self) {
        self.fail(RETRY_EXC_ERR);
    }

    /// Ends the connection. All requests that are not completed fail.
    pub(in crate::rdma) fn disconnect(&mut self) {
        self.fail(WR_FLUSH_ERR);
        self.leave();
        self.fate.reach(Stage::Over);
    }

    /// Leaves the connection behind the last messages, and frees what the peer might use.
    pub(in crate::rdma) fn leave(&mut self) {
        self.is_over = true;
        if !std::mem::replace(&mut self.has_left, true) {
            self.packets.push_back(Content::End);
        }
    }

    /// Frees all memory: its owner has gone.
    pub(in crate::rdma) fn clear(&mut self) {
        self.leave();
        self.posted.clear();
        self.receives.clear();
        self.completed.clear();
        self.lent.clear();
    }
}

/// The address of the first byte of the memory with a key.
pub(in crate::rdma) fn address_of(key: u32) -> u64 {
    u64::from(key) << 32
}
