//! Lending memory to the peer, through windows where the device has them.

use std::io;

use super::super::counters::{BINDS, count};
use super::super::ffi::{Bind, WR_BIND_MW};
use super::super::lent::{Back, LentKey, NewlyLent};
use super::super::region::{Access, Region, Registration};
use super::super::values::RemoteBuffer;
use super::super::window::{self, Window};
use super::{BIND, Link, RemoteAddress};
use crate::buffer::Buf;

impl Link {
    /// Lets the peer use a buffer until [`Self::take_back`], if `by_window` through a window of the
    /// device. Returns true with the buffer if it is one. None, and the buffer is left, while
    /// there is no room in the memory that may be registered.
    pub(in crate::rdma) fn lend(
        &mut self,
        buf: &mut Option<Buf>,
        access: Access,
        by_window: bool,
    ) -> Option<io::Result<NewlyLent>> {
        if by_window
            && self.room_for_transfers() > 0
            && let Some(window) = self.window()
        {
            return self.lend_window(buf, access, window);
        }
        let len = match access {
            Access::PeerWrites(len) => len,
            _ => buf.as_ref()?.len(),
        };
        let counted = self.reserve(len)?;
        Some(self.register(buf.take()?, access, counted).and_then(|region| {
            let length = u32::try_from(region.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            let (address, key) = (region.address(0), region.remote_key());
            let remote = RemoteBuffer { address, key, length };
            Ok((self.lent.insert(region, None), remote, false))
        }))
    }

    fn window(&mut self) -> Option<Window> {
        let has_windows = match self.has_windows {
            Some(has_windows) => has_windows,
            None => self.attributes().is_some_and(|device| window::is_safe(&device)),
        };
        self.has_windows = Some(has_windows);
        if !has_windows {
            return None;
        }
        let (id, pd) = (&self.id, self.pd);
        // SAFETY: the identifier is valid, and its context stays valid as long as the library is
        // loaded; the domain is of this device, and exists as long as the link, which owns the
        // window.
        self.lent.window(|| unsafe { Window::new(id.raw().as_ref().verbs.as_ref()?, pd) }.ok())
    }

    fn lend_window(
        &mut self,
        buf: &mut Option<Buf>,
        access: Access,
        mut window: Window,
    ) -> Option<io::Result<NewlyLent>> {
        let lent = self.registered_for_windows(buf, access);
        let lent = lent.map(|region| {
            let region = region?;
            let remote = self.bind(&mut window, &region, access)?;
            Ok((region, remote))
        });
        match lent {
            Some(Ok((region, remote))) => {
                Some(Ok((self.lent.insert(region, Some(window)), remote, true)))
            }
            other => {
                self.lent.is_free(window);
                other.map(|lent| Err(lent.err().unwrap_or(io::ErrorKind::Other.into())))
            }
        }
    }

    /// The region of a buffer whose block is registered for windows, perhaps since its last use.
    /// None, and the buffer is left, while there is no room.
    fn registered_for_windows(
        &mut self,
        buf: &mut Option<Buf>,
        access: Access,
    ) -> Option<io::Result<Region>> {
        let memory = buf.as_ref()?.memory();
        let registration = match self.lent.kept(memory) {
            Some(kept) => Ok(kept),
            None => {
                let counted = self.reserve(memory.len)?;
                let library = self.id.library();
                // SAFETY: the domain exists as long as the link, which owns the registration.
                unsafe { Registration::for_windows(library, self.pd, memory, counted) }
            }
        };
        let buf = buf.take()?;
        Some(registration.and_then(|registration| Region::within(registration, buf, access)))
    }

    /// Has the device bind a window to a region, before it sends what is posted afterwards.
    fn bind(
        &mut self,
        window: &mut Window,
        region: &Region,
        access: Access,
    ) -> io::Result<RemoteBuffer> {
        let length = u32::try_from(region.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let key = window.take_key();
        let remote = RemoteBuffer { address: region.address(0), key, length };
        let bind = Bind {
            mw: window.raw(),
            rkey: key,
            mr: region.raw(),
            addr: remote.address,
            length: remote.length.into(),
            access: access.remote_flags().unsigned_abs(),
        };
        self.queue_with(BIND | u64::from(key), None, WR_BIND_MW, 0, RemoteAddress::NONE, bind);
        self.moving += 1;
        count(&BINDS);
        Ok(remote)
    }

    /// Notes that the peer has invalidated a key. False if it had no such key.
    pub(in crate::rdma) fn is_invalidated(&mut self, key: u32) -> bool {
        self.lent.is_invalidated(key)
    }

    /// Ends the peer's use of a buffer, and returns it: afterwards the peer's key counts no more.
    pub(in crate::rdma) fn take_back(&mut self, key: LentKey) -> Back {
        self.lent.take_back(key)
    }

    /// Ends the peer's use of a buffer that nobody wants.
    pub(in crate::rdma) fn abandon(&mut self, key: LentKey) {
        self.lent.abandon(key);
    }

    /// Ends what is registered for no request.
    pub(in crate::rdma) fn rest(&mut self) {
        self.lent.forget_all();
    }
}
