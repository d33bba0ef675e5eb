//! rdma-core, loaded when it is first needed: the program runs without it.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::ffi::{
    Address, CmEvent, CmId, CompletionChannel, ConnParam, Context, Cq, DeviceAttr, EventChannel,
    Mr, Pd, QpInitAttr,
};

/// Declares the functions that are taken out of the two libraries.
macro_rules! functions {
    ($($library:ident: $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of rdma-core that are used.
        pub(super) struct Library {
            // SAFETY: the caller must keep the rules of verbs.h and rdma_cma.h.
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn find(libraries: &Libraries) -> Result<Self, Missing> {
                Ok(Self {
                    $(
                        // SAFETY: rdma-core's headers declare the function with this signature.
                        $name: unsafe {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(libraries.$library.symbol(concat!(stringify!($name), "\0"))?)
                        },
                    )*
                })
            }
        }
    };
}

functions! {
    cm: rdma_create_event_channel() -> *mut EventChannel;
    cm: rdma_destroy_event_channel(*mut EventChannel);
    cm: rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
    cm: rdma_destroy_id(*mut CmId) -> c_int;
    cm: rdma_bind_addr(*mut CmId, *mut Address) -> c_int;
    cm: rdma_listen(*mut CmId, c_int) -> c_int;
    cm: rdma_resolve_addr(*mut CmId, *mut Address, *mut Address, c_int) -> c_int;
    cm: rdma_resolve_route(*mut CmId, c_int) -> c_int;
    cm: rdma_connect(*mut CmId, *mut ConnParam) -> c_int;
    cm: rdma_accept(*mut CmId, *mut ConnParam) -> c_int;
    cm: rdma_disconnect(*mut CmId) -> c_int;
    cm: rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    cm: rdma_ack_cm_event(*mut CmEvent) -> c_int;
    cm: rdma_create_qp(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
    cm: rdma_destroy_qp(*mut CmId);
    verbs: ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
    verbs: ibv_alloc_pd(*mut Context) -> *mut Pd;
    verbs: ibv_dealloc_pd(*mut Pd) -> c_int;
    verbs: ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    verbs: ibv_dereg_mr(*mut Mr) -> c_int;
    verbs: ibv_create_comp_channel(*mut Context) -> *mut CompletionChannel;
    verbs: ibv_destroy_comp_channel(*mut CompletionChannel) -> c_int;
    verbs: ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    verbs: ibv_destroy_cq(*mut Cq) -> c_int;
    verbs: ibv_get_cq_event(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    verbs: ibv_ack_cq_events(*mut Cq, u32);
}

/// rdma-core, or a part of it, is not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing(&'static str);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RDMA needs rdma-core, and {} is not here; install it (Debian: librdmacm1 and \
             ibverbs-providers)",
            self.0
        )
    }
}

impl std::error::Error for Missing {}

/// The two libraries.
struct Libraries {
    cm: Handle,
    verbs: Handle,
}

/// A loaded library, which stays loaded.
struct Handle {
    handle: NonNull<c_void>,
    name: &'static str,
}

impl Handle {
    fn load(name: &'static CStr) -> Result<Self, Missing> {
        // SAFETY: the name ends in NUL; the initialisers of rdma-core's libraries need nothing from
        // their caller.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let name = name.to_str().unwrap_or_default();
        let handle = NonNull::new(handle).ok_or(Missing(name))?;
        Ok(Self { handle, name })
    }

    /// The address of a function, whose name ends in NUL.
    fn symbol(&self, name: &'static str) -> Result<NonNull<c_void>, Missing> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| Missing(self.name))?;
        // SAFETY: the library stays loaded, and the name ends in NUL.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        NonNull::new(found).ok_or(Missing(self.name))
    }
}

/// Returns rdma-core, which the first call loads.
///
/// # Errors
/// It is not installed, or older than 2010.
pub(super) fn library() -> Result<&'static Library, Missing> {
    static LIBRARY: OnceLock<Result<Library, Missing>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        let verbs = Handle::load(c"libibverbs.so.1")?;
        Library::find(&Libraries { cm: Handle::load(c"librdmacm.so.1")?, verbs })
    });
    loaded.as_ref().map_err(|missing| *missing)
}
