//! Structures of rdma-core's stable interface, `infiniband/verbs.h` and `rdma/rdma_cma.h`.
//!
//! Structures that rdma-core makes are declared only up to the last field that is used here: they
//! are read in place and never copied. Offsets and sizes are checked at compile time against those
//! of the C headers (rdma-core 44), which have not changed since 2010.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// `struct ibv_device`
#[repr(C)]
pub(super) struct Device {
    ops: [*mut c_void; 2],
    node_type: c_int,
    /// One of `TRANSPORT_*`.
    pub(super) transport_type: c_int,
    name: [c_char; 64],
}

/// `enum ibv_transport_type`: iWARP.
pub(super) const TRANSPORT_IWARP: c_int = 1;

/// `struct ibv_context`
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut Device,
    unused_before: [*mut c_void; 7],
    // SAFETY: the caller must keep the rules of verbs.h for these functions of the device.
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    bind_mw: *mut c_void,
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    unused_create_cq: *mut c_void,
    // SAFETY: the caller must keep the rules of verbs.h for these functions of the device.
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    unused_between: [*mut c_void; 12],
    pub(super) post_send:
        unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut Qp, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int,
    unused_behind: [*mut c_void; 5],
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// `struct ibv_pd`, opaque.
#[repr(C)]
pub(super) struct Pd {
    context: *mut Context,
}

/// `struct ibv_cq`, opaque.
#[repr(C)]
pub(super) struct Cq {
    context: *mut Context,
}

/// `struct ibv_qp`
#[repr(C)]
pub(super) struct Qp {
    context: *mut Context,
    unused: [*mut c_void; 5],
    handle: u32,
}

impl Qp {
    /// The kernel's number of the queue pair.
    pub(super) const fn handle(&self) -> u32 {
        self.handle
    }
}

/// `struct ibv_mr`
#[repr(C)]
pub(super) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct ibv_mw`
#[repr(C)]
pub(super) struct Mw {
    context: *mut Context,
    pd: *mut Pd,
    pub(super) rkey: u32,
    handle: u32,
    kind: c_int,
}

#[cfg(test)]
impl Mw {
    pub(super) const fn fake(rkey: u32) -> Self {
        Self { context: null_mut(), pd: null_mut(), rkey, handle: 0, kind: MW_TYPE_2 }
    }
}

#[cfg(test)]
impl Mr {
    pub(super) const fn fake(length: usize) -> Self {
        let (context, pd, addr) = (null_mut(), null_mut(), null_mut());
        Self { context, pd, addr, length, handle: 0, lkey: 0, rkey: 0 }
    }
}

/// `enum ibv_mw_type`: a window that a work request binds.
pub(super) const MW_TYPE_2: c_int = 2;

/// `struct ibv_comp_channel`
#[repr(C)]
pub(super) struct CompletionChannel {
    context: *mut Context,
    pub(super) fd: c_int,
}

/// `struct ibv_qp_cap`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// `enum ibv_qp_type`: a reliable connection.
pub(super) const QPT_RC: c_int = 2;

/// `struct ibv_sge`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`, with the fields of an RDMA operation and of a bind in place of its unions.
#[repr(C)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    pub(super) invalidate_rkey: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) rest: [u32; 7],
    pub(super) bind: Bind,
}

/// The union's `bind_mw`, with `struct ibv_mw_bind_info`.
#[repr(C)]
pub(super) struct Bind {
    pub(super) mw: *mut Mw,
    pub(super) rkey: u32,
    pub(super) mr: *mut Mr,
    pub(super) addr: u64,
    pub(super) length: u64,
    pub(super) access: c_uint,
}

impl Bind {
    /// The fields of a request that binds nothing.
    pub(super) const NONE: Self =
        Self { mw: null_mut(), rkey: 0, mr: null_mut(), addr: 0, length: 0, access: 0 };
}

/// `enum ibv_wr_opcode`
pub(super) const WR_RDMA_WRITE: c_int = 0;
pub(super) const WR_SEND: c_int = 2;
pub(super) const WR_RDMA_READ: c_int = 4;
pub(super) const WR_BIND_MW: c_int = 8;
pub(super) const WR_SEND_WITH_INV: c_int = 9;

/// `enum ibv_send_flags`: the request has a completion.
pub(super) const SEND_SIGNALED: c_uint = 2;

/// `enum ibv_access_flags`
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(super) const ACCESS_REMOTE_READ: c_int = 4;
pub(super) const ACCESS_MW_BIND: c_int = 16;

/// The doorbell of a soft device, as its library writes it: a command of rdma/ib_user_verbs.h that
/// posts no request (`struct ib_uverbs_cmd_hdr`, `struct ib_uverbs_post_send`).
#[repr(C)]
pub(super) struct Doorbell {
    command: u32,
    /// The sizes of the command and of its answer in words of four bytes.
    in_words: u16,
    out_words: u16,
    /// The address of the answer, one word.
    response: u64,
    handle: u32,
    requests: u32,
    places: u32,
    request_bytes: u32,
}

impl Doorbell {
    pub(super) const fn new(handle: u32) -> Self {
        Self {
            // The write to the device is IB_USER_VERBS_CMD_POST_SEND, which has the command number
            // 28.
            command: 28,
            in_words: 8,
            out_words: 1,
            response: 0,
            handle,
            requests: 0,
            places: 0,
            request_bytes: 128,
        }
    }

    /// Writes it to the device.
    pub(super) fn ring(mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        let mut answer = 0_u32;
        self.response = u64::try_from((&raw mut answer).expose_provenance()).unwrap_or(0);
        let bytes = (&raw const self).cast::<u8>();
        // SAFETY: the structure has no padding, so all of its bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, size_of::<Self>()) };
        rustix::io::write(device, bytes)?;
        Ok(())
    }
}

/// `struct ibv_recv_wr`
#[repr(C)]
pub(super) struct ReceiveRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct WorkCompletion {
    pub(super) wr_id: u64,
    /// `enum ibv_wc_status`; 0 is success. The fields behind it count only then.
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) invalidated_rkey: u32,
    qp_num: u32,
    src_qp: u32,
    pub(super) wc_flags: c_uint,
    rest: [u32; 2],
}

/// `enum ibv_wc_flags`: the message invalidated a key.
pub(super) const WC_WITH_INV: c_uint = 8;
/// The same flag as the kernel numbers it: rxe and siw pass it on unchanged.
pub(super) const WC_WITH_INV_KERNEL: c_uint = 4;

/// `struct ibv_device_attr`: a part of it, the rest is room.
#[repr(C)]
pub(super) struct DeviceAttr {
    before: [u64; 12],
    pub(super) vendor_id: u32,
    between: [u32; 3],
    pub(super) max_qp_wr: c_int,
    /// `enum ibv_device_cap_flags`
    pub(super) flags: c_uint,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    rest: [u64; 32],
}

/// `enum ibv_device_cap_flags`: memory windows of type 2A or 2B, of which a device has one.
pub(super) const DEVICE_WINDOWS: c_uint = 1 << 23 | 1 << 24;

/// Vendors of Linux's rxe: the older kernels have none.
pub(super) const VENDORS_RXE: [u32; 2] = [0, 0xff_ffff];

/// Vendor of Linux's siw.
const VENDOR_SIW: u32 = 0x62_6d74;

impl DeviceAttr {
    /// True for the devices that the kernel makes of a network card, whose libraries tell it of
    /// requests with write(2).
    pub(super) fn is_soft(&self) -> bool {
        VENDORS_RXE.contains(&self.vendor_id) || self.vendor_id == VENDOR_SIW
    }

    pub(super) const fn zeroed() -> Self {
        Self {
            before: [0; 12],
            vendor_id: 0,
            between: [0; 3],
            max_qp_wr: 0,
            flags: 0,
            max_sge: 0,
            max_sge_rd: 0,
            max_cq: 0,
            max_cqe: 0,
            max_mr: 0,
            max_pd: 0,
            max_qp_rd_atom: 0,
            max_ee_rd_atom: 0,
            max_res_rd_atom: 0,
            max_qp_init_rd_atom: 0,
            rest: [0; 32],
        }
    }
}

/// `struct rdma_event_channel`
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// Bytes of a `struct sockaddr_storage`.
pub(super) const ADDRESS_LEN: usize = 128;

/// A `struct sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Address(pub(super) [u8; ADDRESS_LEN]);

/// `struct rdma_cm_id`
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    channel: *mut EventChannel,
    context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) source: Address,
    pub(super) destination: Address,
}

/// `enum rdma_port_space`: reliable connections.
pub(super) const PS_TCP: c_int = 0x0106;

/// `struct rdma_conn_param`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_cm_event`, of a connection.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) param: ConnParam,
}

/// `enum rdma_cm_event_type`
pub(super) const EVENT_ADDR_RESOLVED: c_int = 0;
pub(super) const EVENT_ROUTE_RESOLVED: c_int = 2;
pub(super) const EVENT_CONNECT_REQUEST: c_int = 4;
pub(super) const EVENT_ESTABLISHED: c_int = 9;
pub(super) const EVENT_DEVICE_REMOVAL: c_int = 11;
pub(super) const EVENT_ADDR_CHANGE: c_int = 14;
pub(super) const EVENT_TIMEWAIT_EXIT: c_int = 15;

const _: () = {
    assert!(offset_of!(Device, transport_type) == 20);
    assert!(offset_of!(Context, alloc_mw) == 64 && offset_of!(Context, dealloc_mw) == 80);
    assert!(offset_of!(Context, poll_cq) == 96 && offset_of!(Context, req_notify_cq) == 104);
    assert!(offset_of!(Context, post_send) == 208 && offset_of!(Context, post_recv) == 216);
    assert!(offset_of!(Context, cmd_fd) == 264 && offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(Mr, lkey) == 36 && offset_of!(Qp, handle) == 48);
    assert!(size_of::<Doorbell>() == 32 && offset_of!(Doorbell, handle) == 16);
    assert!(offset_of!(Mw, rkey) == 16);
    assert!(offset_of!(CompletionChannel, fd) == 8);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, cap) == 32);
    assert!(offset_of!(QpInitAttr, qp_type) == 52 && offset_of!(QpInitAttr, sq_sig_all) == 56);
    assert!(size_of::<Sge>() == 16);
    assert!(size_of::<SendRequest>() == 128 && offset_of!(SendRequest, invalidate_rkey) == 36);
    assert!(offset_of!(SendRequest, remote_addr) == 40 && offset_of!(SendRequest, rkey) == 48);
    assert!(offset_of!(SendRequest, bind) == 80 && offset_of!(Bind, mr) == 16);
    assert!(offset_of!(Bind, addr) == 24 && offset_of!(Bind, access) == 40);
    assert!(size_of::<ReceiveRequest>() == 32);
    assert!(size_of::<WorkCompletion>() == 48 && offset_of!(WorkCompletion, wc_flags) == 36);
    assert!(offset_of!(WorkCompletion, invalidated_rkey) == 24);
    assert!(size_of::<DeviceAttr>() >= 232 && offset_of!(DeviceAttr, max_qp_wr) == 112);
    assert!(offset_of!(DeviceAttr, vendor_id) == 96);
    assert!(offset_of!(DeviceAttr, flags) == 116 && offset_of!(DeviceAttr, max_cqe) == 132);
    assert!(offset_of!(DeviceAttr, max_qp_init_rd_atom) == 156);
    assert!(offset_of!(CmId, qp) == 24 && offset_of!(CmId, source) == 32);
    assert!(offset_of!(CmId, destination) == 160);
    assert!(size_of::<ConnParam>() == 24 && offset_of!(CmEvent, param) == 24);
};
