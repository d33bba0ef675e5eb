//! Numbers that bound what a mount keeps and waits for.

use std::time::Duration;

/// How long names and attributes that no lease protects are believed, unless told.
pub const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// Threads that take requests from the kernel; the work is done by tasks.
pub const THREADS: usize = 2;
/// Requests that the kernel may have under way in the background (read-ahead,
/// written-back pages).
pub const BACKGROUND: u16 = 64;
/// Longest read and write that the kernel asks for, bytes.
pub const REQUEST_MAX: u32 = 1 << 20;
/// Tries at an operation whose outcome a lost connection left unknown.
pub const UNKNOWN_TRIES: usize = 4;
/// Longest name of a component, bytes, as NAME_MAX has it.
pub const NAME_MAX: u32 = 255;
/// Longest value of an extended attribute, bytes: what an EA's length can say.
pub const XATTR_MAX: usize = 65_535;
