//! The connection manager: identifiers of connections, and the channel of their events. All calls of
//! librdmacm are made on the threads of [`threads`].

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::device::{self, Device};
use super::ffi::{
    ADDRESS_LEN, Address, CmEvent, CmId, ConnParam, EVENT_ADDR_CHANGE, EVENT_ADDR_RESOLVED,
    EVENT_CONNECT_REQUEST, EVENT_DEVICE_REMOVAL, EVENT_ESTABLISHED, EVENT_ROUTE_RESOLVED,
    EVENT_TIMEWAIT_EXIT, EventChannel, PS_TCP, Pd, QpInitAttr, TRANSPORT_IWARP,
};
use super::library::{Library, library};
use super::threads;
use crate::limits::{RDMA_BACKLOG, RDMA_RESOLVE_TIMEOUT, RDMA_RETRIES, RDMA_RNR_RETRIES};

/// The state of an identifier, as its events have told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Stage {
    Begun,
    AddressResolved,
    RouteResolved,
    Established,
    /// It has ended, or its device was removed.
    Over,
}

/// The present stage of an identifier. The reader of the channel writes it.
pub(super) struct Fate {
    stage: AtomicU8,
    pub(super) changed: Notify,
}

impl Fate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { stage: AtomicU8::new(Stage::Begun as u8), changed: Notify::new() })
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Begun,
            1 => Stage::AddressResolved,
            2 => Stage::RouteResolved,
            3 => Stage::Established,
            _ => Stage::Over,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage() == Stage::Over
    }

    pub(super) fn reach(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.changed.notify_waiters();
    }
}

/// A channel of events: `struct rdma_event_channel`, non-blocking.
pub(super) struct Channel {
    library: &'static Library,
    raw: NonNull<EventChannel>,
    /// By the address of the identifier. An identifier is removed before it is destroyed.
    fates: Mutex<HashMap<usize, Arc<Fate>>>,
}

// SAFETY: librdmacm locks its own structures; the channel is bound to no thread.
unsafe impl Send for Channel {}
// SAFETY: librdmacm locks its own structures; all calls may be made from several threads at once.
unsafe impl Sync for Channel {}

impl Channel {
    /// Opens a channel. The first one starts the threads of librdmacm.
    ///
    /// # Errors
    /// rdma-core is missing, or the kernel has no RDMA.
    pub(super) fn open() -> io::Result<Arc<Self>> {
        let library =
            library().map_err(|missing| io::Error::new(io::ErrorKind::Unsupported, missing))?;
        threads::start()?;
        // SAFETY: the function takes no argument.
        let raw = unsafe { threads::call(|| create_channel(library)) }?;
        let channel = Self { library, raw, fates: Mutex::default() };
        let flags = rustix::fs::fcntl_getfl(channel.fd())?;
        rustix::fs::fcntl_setfl(channel.fd(), flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Arc::new(channel))
    }

    /// Tries to open a channel, on this thread.
    ///
    /// # Errors
    /// The kernel has no RDMA, or not for this process.
    pub(super) fn probe(library: &'static Library) -> io::Result<()> {
        let raw = create_channel(library)?;
        // SAFETY: the channel is new, and has no identifiers.
        unsafe { (library.rdma_destroy_event_channel)(raw.as_ptr()) };
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor, and is open while it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// A descriptor that is readable when there is an event.
    pub(super) fn watched(&self) -> io::Result<OwnedFd> {
        self.fd().try_clone_to_owned()
    }

    /// Takes the next event. None if there is no event.
    pub(super) fn next(self: &Arc<Self>) -> io::Result<Option<Event>> {
        // SAFETY: any thread may use an event channel, and the connection identifiers in its events.
        unsafe { threads::call(|| self.next_here()) }
    }

    fn next_here(self: &Arc<Self>) -> io::Result<Option<Event>> {
        let mut event = null_mut();
        // SAFETY: the channel is open, and the event is written to a variable that outlives the
        // call.
        let outcome = unsafe { (self.library.rdma_get_cm_event)(self.raw.as_ptr(), &mut event) };
        let Some(event) = NonNull::new(event).filter(|_| outcome == 0) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        };
        // SAFETY: the library has filled the event, which stays valid until it is acknowledged.
        let seen = unsafe { self.see(event.as_ref()) };
        // SAFETY: the event is acknowledged once, and not used afterwards.
        unsafe { (self.library.rdma_ack_cm_event)(event.as_ptr()) };
        Ok(Some(seen))
    }

    /// Takes from an event all that is of use.
    ///
    /// # Safety
    /// The library has filled the event, and it is not acknowledged yet.
    unsafe fn see(self: &Arc<Self>, event: &CmEvent) -> Event {
        if event.event == EVENT_CONNECT_REQUEST
            && let Some(raw) = NonNull::new(event.id)
        {
            // SAFETY: the identifier of a request is new, and belongs to the event; the pointer
            // leads to private data of the given length.
            let (id, private) = unsafe {
                (
                    Id::from_raw(self, raw),
                    first_words(event.param.private_data.cast(), &event.param),
                )
            };
            id.note_device();
            return Event::Request(Request {
                id,
                reads_there: event.param.initiator_depth,
                private,
            });
        }
        if event.event == EVENT_DEVICE_REMOVAL
            && let Some(id) = NonNull::new(event.id)
        {
            // SAFETY: the library keeps an identifier until its events are acknowledged.
            let context = NonNull::new(unsafe { id.as_ref() }.verbs);
            context.into_iter().for_each(device::note_removal);
        }
        let stage = match event.event {
            EVENT_ADDR_RESOLVED => Stage::AddressResolved,
            EVENT_ROUTE_RESOLVED => Stage::RouteResolved,
            EVENT_ESTABLISHED => Stage::Established,
            EVENT_ADDR_CHANGE | EVENT_TIMEWAIT_EXIT => return Event::Noted,
            _ => Stage::Over,
        };
        let fate = self.fates.lock().get(&event.id.addr()).cloned();
        fate.iter().for_each(|fate| fate.reach(stage));
        Event::Noted
    }
}

fn create_channel(library: &'static Library) -> io::Result<NonNull<EventChannel>> {
    // SAFETY: the function takes no argument.
    let raw = unsafe { (library.rdma_create_event_channel)() };
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// The IRD/ORD negotiate header, MS-SMBD 6.1: two words in network order.
///
/// # Safety
/// `data` points to as many bytes as the parameters say, or is null.
unsafe fn first_words(data: *const [u8; 8], param: &ConnParam) -> Option<[u32; 2]> {
    if data.is_null() || param.private_data_len < 8 {
        return None;
    }
    // SAFETY: `data` points to at least eight bytes, and `read_unaligned` needs no alignment.
    let [a, b, c, d, e, f, g, h] = unsafe { data.read_unaligned() };
    Some([u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])])
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: each identifier keeps its channel alive, so none is left when the channel is
        // dropped. The channel is bound to no thread.
        unsafe {
            threads::call(|| (self.library.rdma_destroy_event_channel)(self.raw.as_ptr()));
        }
    }
}

/// The use of an event.
pub(super) enum Event {
    /// A peer wants to connect.
    Request(Request),
    /// The event has changed the stage of its identifier, or nothing.
    Noted,
}

/// A connection that a peer asks for. Dropping it refuses the connection.
pub(super) struct Request {
    pub(super) id: Id,
    /// RDMA reads of this side that the peer can serve at a time.
    pub(super) reads_there: u8,
    /// The IRD/ORD negotiate header, if it sent one.
    pub(super) private: Option<[u32; 2]>,
}

/// An identifier of a connection or a listener: `struct rdma_cm_id`.
pub(super) struct Id {
    raw: NonNull<CmId>,
    channel: Arc<Channel>,
    pub(super) fate: Arc<Fate>,
    /// Its device, once it has one; dropped when the identifier has been destroyed.
    device: OnceLock<Device>,
}

// SAFETY: librdmacm locks its own structures; the identifier is bound to no thread.
unsafe impl Send for Id {}

impl Id {
    /// Makes an identifier whose events come on `channel`.
    pub(super) fn new(channel: &Arc<Channel>) -> io::Result<Self> {
        let mut raw = null_mut();
        let library = channel.library;
        // SAFETY: the channel is open; the identifier is written to a variable that outlives the
        // call, and is bound to no thread.
        unsafe {
            threads::call(|| {
                let channel = channel.raw.as_ptr();
                outcome((library.rdma_create_id)(channel, &mut raw, null_mut(), PS_TCP))
            })
        }?;
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the identifier is new.
        Ok(unsafe { Self::from_raw(channel, raw) })
    }

    /// # Safety
    /// The identifier belongs to the channel, and nobody else owns it.
    unsafe fn from_raw(channel: &Arc<Channel>, raw: NonNull<CmId>) -> Self {
        let fate = Fate::new();
        channel.fates.lock().insert(raw.as_ptr().addr(), Arc::clone(&fate));
        Self { raw, channel: Arc::clone(channel), fate, device: OnceLock::new() }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.channel.library
    }

    pub(super) fn raw(&self) -> NonNull<CmId> {
        self.raw
    }

    /// Makes a call of librdmacm for this identifier, and returns its result.
    ///
    /// # Safety
    /// The call obeys the library's rules, and is bound to no thread.
    ///
    /// # Errors
    /// The call's.
    unsafe fn ask(&self, call: impl FnOnce(&Library, *mut CmId) -> c_int) -> io::Result<()> {
        // SAFETY: the caller guarantees the rules of the call; an identifier is not bound to a
        // thread.
        unsafe { threads::call(|| outcome(call(self.library(), self.raw.as_ptr()))) }
    }

    /// Makes the queue pair of the identifier.
    ///
    /// # Safety
    /// The domain, and the queues that the attributes name, are of the identifier's device and live
    /// longer than the queue pair.
    ///
    /// # Errors
    /// The device has too little of something.
    pub(super) unsafe fn create_qp(&self, pd: *mut Pd, wanted: &mut QpInitAttr) -> io::Result<()> {
        // SAFETY: the caller guarantees that the domain and its queues are valid; the attributes
        // are valid during the call.
        unsafe { self.ask(|library, id| (library.rdma_create_qp)(id, pd, wanted)) }
    }

    /// Destroys the queue pair of the identifier.
    ///
    /// # Safety
    /// The identifier has one, which is not used afterwards.
    pub(super) unsafe fn destroy_qp(&self) {
        // SAFETY: the caller guarantees that the queue pair is not used afterwards.
        let _ = unsafe {
            self.ask(|library, id| {
                (library.rdma_destroy_qp)(id);
                0
            })
        };
    }

    /// Binds the identifier to a local address, and so to the device that has it.
    pub(super) fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = to_raw(address);
        // SAFETY: the identifier is valid, and the library reads the address during the call.
        unsafe { self.ask(|library, id| (library.rdma_bind_addr)(id, &mut address)) }?;
        self.note_device();
        Ok(())
    }

    /// Counts the use of the device that the identifier has by now.
    pub(super) fn note_device(&self) {
        // SAFETY: the identifier is valid, and the library writes the field only while it is bound.
        if let Some(context) = NonNull::new(unsafe { self.raw.as_ref() }.verbs) {
            self.device.get_or_init(|| Device::new(context));
        }
    }

    /// Listens at the bound address.
    pub(super) fn listen(&self) -> io::Result<()> {
        // SAFETY: the identifier is valid.
        unsafe { self.ask(|library, id| (library.rdma_listen)(id, RDMA_BACKLOG)) }
    }

    /// Begins to look for the device through which `peer` is reached.
    pub(super) fn resolve_address(&self, peer: SocketAddr, limit: Duration) -> io::Result<()> {
        let mut peer = to_raw(peer);
        let millis = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is valid, and the library reads the address during the call.
        unsafe {
            self.ask(|library, id| (library.rdma_resolve_addr)(id, null_mut(), &mut peer, millis))
        }
    }

    /// Begins to look for the way to the resolved address.
    pub(super) fn resolve_route(&self) -> io::Result<()> {
        let millis = c_int::try_from(RDMA_RESOLVE_TIMEOUT.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is valid.
        unsafe { self.ask(|library, id| (library.rdma_resolve_route)(id, millis)) }
    }

    /// Begins to connect. `reads` is the number of RDMA reads that the peer may have under way.
    pub(super) fn connect(&self, reads: u8) -> io::Result<()> {
        let mut param = parameters(reads, 0);
        // SAFETY: the identifier is valid and has a queue pair; the parameters are valid during the
        // call.
        unsafe { self.ask(|library, id| (library.rdma_connect)(id, &mut param)) }
    }

    /// Accepts the connection. `reads` is the number of RDMA reads that this side may have under
    /// way, `private` the IRD/ORD negotiate header for a peer that sent one.
    pub(super) fn accept(&self, reads: u8, private: Option<[u32; 2]>) -> io::Result<()> {
        let words: Vec<u8> = private.iter().flatten().flat_map(|word| word.to_be_bytes()).collect();
        let mut param = parameters(0, reads);
        if !words.is_empty() {
            param.private_data = words.as_ptr().cast();
            param.private_data_len = u8::try_from(words.len()).unwrap_or(0);
        }
        // SAFETY: the identifier is valid and has a queue pair; the parameters are valid during the
        // call.
        unsafe { self.ask(|library, id| (library.rdma_accept)(id, &mut param)) }
    }

    /// Ends the connection: all requests of its queue pair complete.
    pub(super) fn disconnect(&self) {
        // The call fails only if the connection has already ended.
        // SAFETY: the identifier is valid.
        let _ = unsafe { self.ask(|library, id| (library.rdma_disconnect)(id)) };
    }

    /// True if a device belongs to the address that it is bound to.
    pub(super) fn has_device(&self) -> bool {
        // SAFETY: the identifier is valid, and the library writes the field only while it is bound.
        !unsafe { self.raw.as_ref() }.verbs.is_null()
    }

    /// True if its device speaks iWARP.
    pub(super) fn is_iwarp(&self) -> bool {
        // SAFETY: the identifier is valid; a context and its device stay valid as long as the
        // library is loaded.
        let device = unsafe { self.raw.as_ref().verbs.as_ref().and_then(|v| v.device.as_ref()) };
        device.is_some_and(|device| device.transport_type == TRANSPORT_IWARP)
    }

    /// The address of this side.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        // SAFETY: the identifier is valid; the library writes addresses only while it is bound.
        from_raw(unsafe { &self.raw.as_ref().source }).ok_or(io::ErrorKind::NotConnected.into())
    }

    /// The address of the peer.
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        // SAFETY: the identifier is valid; the library writes addresses only while it is bound.
        from_raw(unsafe { &self.raw.as_ref().destination })
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.channel.fates.lock().remove(&self.raw.as_ptr().addr());
        // SAFETY: the identifier is owned here, has no queue pair, and is not used again. The call
        // waits for the acknowledgment of an event that another thread has taken.
        let _ = unsafe { self.ask(|library, id| (library.rdma_destroy_id)(id)) };
    }
}

fn parameters(responder_resources: u8, initiator_depth: u8) -> ConnParam {
    ConnParam {
        private_data: null(),
        private_data_len: 0,
        responder_resources,
        initiator_depth,
        flow_control: 0,
        retry_count: RDMA_RETRIES,
        rnr_retry_count: RDMA_RNR_RETRIES,
        srq: 0,
        qp_num: 0,
    }
}

/// The result of a call that sets `errno`.
pub(super) fn outcome(returned: c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct sockaddr_in` or `sockaddr_in6`.
fn to_raw(address: SocketAddr) -> Address {
    let mut raw = Address([0; ADDRESS_LEN]);
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let family = u16::try_from(family).unwrap_or(0);
    raw.0[0..2].copy_from_slice(&family.to_ne_bytes());
    raw.0[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(four) => raw.0[4..8].copy_from_slice(&four.ip().octets()),
        SocketAddr::V6(six) => {
            raw.0[8..24].copy_from_slice(&six.ip().octets());
            raw.0[24..28].copy_from_slice(&six.scope_id().to_ne_bytes());
        }
    }
    raw
}

/// The address in a `struct sockaddr_storage`; None for another family.
fn from_raw(raw: &Address) -> Option<SocketAddr> {
    let family = c_int::from(u16::from_ne_bytes([raw.0[0], raw.0[1]]));
    let port = u16::from_be_bytes([raw.0[2], raw.0[3]]);
    match family {
        libc::AF_INET => {
            let octets: [u8; 4] = raw.0[4..8].try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(octets)), port))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = raw.0[8..24].try_into().ok()?;
            let scope = u32::from_ne_bytes(raw.0[24..28].try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_structure() {
        for text in ["192.0.2.7:445", "0.0.0.0:0", "[2001:db8::1]:5445"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_raw(&to_raw(address)), Some(address));
        }
        assert_eq!(from_raw(&Address([0; ADDRESS_LEN])), None);
    }

    #[test]
    fn a_stage_never_goes_back() {
        let fate = Fate::new();
        fate.reach(Stage::Over);
        fate.reach(Stage::Established);
        assert!(fate.is_over());
    }
}
