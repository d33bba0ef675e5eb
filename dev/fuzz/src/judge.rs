//! The limits that every input is held to: one second of the processor, and eight
//! bytes of memory for each byte of input besides a target's own allowance.

use std::borrow::Cow;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::allocation;

/// Processor time that one input may take.
const TIME: Duration = Duration::from_secs(1);
/// Bytes that one byte of input may make a target allocate.
const BYTES_PER_BYTE: usize = 8;
/// The longest input that [`grown`] makes: the longest frame.
const GROWN: usize = 8 << 20;

/// The allowance of a parser.
pub const PARSER: usize = 1 << 20;
/// The allowance of a whole server: its tables, a file system in memory, the
/// largest replies to two clients at a time and the client's copies of them.
pub const SERVER: usize = 64 << 20;

fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanoseconds)
}

/// Runs a target on one input.
///
/// # Panics
/// When the input takes more than its time or memory.
pub fn judge(allowance: usize, data: &[u8], target: fn(&[u8])) {
    allocation::limit(allowance.saturating_add(data.len().saturating_mul(BYTES_PER_BYTE)));
    let begun = processor_time();
    target(data);
    let took = processor_time().saturating_sub(begun);
    allocation::no_limit();
    assert!(took < TIME, "one input of {} bytes took {took:?}", data.len());
}

/// The input without its first byte, which says how often the rest is repeated:
/// lists as long as the longest frame need no long inputs.
pub(crate) fn grown(data: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (first, data) = data.split_first()?;
    // One of sixteen inputs is repeated, which makes it long.
    let times = if *first >= 0xF0 { 8_usize << (first & 0xF) } else { 1 };
    let times = times.min(GROWN / data.len().max(1)).max(1);
    if times == 1 {
        return Some(Cow::Borrowed(data));
    }
    allocation::raise(data.len().saturating_mul(times).saturating_mul(BYTES_PER_BYTE));
    Some(Cow::Owned(data.repeat(times)))
}

/// A target: a function of this crate, and its allowance where it is no parser's.
#[macro_export]
macro_rules! target {
    ($function:ident) => {
        $crate::target!($function, $crate::PARSER);
    };
    ($function:ident, $allowance:expr) => {
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $crate::judge($allowance, data, $crate::$function);
        });
    };
}
