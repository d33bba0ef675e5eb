//! The memory of each thread that the kernel has refused a call: EACCES or EPERM.
//!
//! A fault does not say if the kernel refused or a rule of the share, which an audit log tells apart.

use std::cell::Cell;

thread_local! {
    static DENIED: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the kernel refuses, or would.
pub fn note() {
    DENIED.set(true);
}

/// Forgets refusals, before a new request or for one that something else refuses.
pub fn forget() {
    DENIED.set(false);
}

/// True if the kernel has refused a call of this thread since [`forget`].
pub fn is_noted() -> bool {
    DENIED.get()
}
