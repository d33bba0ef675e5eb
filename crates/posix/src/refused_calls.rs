//! System calls that a seccomp filter refuses, each reported once.
//!
//! The filter makes the kernel send SIGSYS instead of the call. The handler gives the caller EPERM,
//! or for calls newer than this list ENOSYS, after which C libraries try an older call. It records
//! the number and wakes the thread that writes the log.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::IntoRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The highest number of a system call at the time of writing.
const NEWEST: usize = 467;
/// Number of calls that are told apart.
const NUMBERS: usize = 512;

/// Calls that were refused, one bit each.
static REFUSED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// Calls that have been reported.
static TOLD: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// One end of a stream; a byte written to it wakes the reader.
static BELL: AtomicI32 = AtomicI32::new(-1);

/// Begins to handle refused calls. The stream gets a byte when there are calls that [`take`] has
/// not returned.
///
/// # Errors
/// If the kernel refuses the stream or the handler.
pub fn handle() -> io::Result<UnixStream> {
    let (bell, ours) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    ours.set_nonblocking(true)?;
    // The signal handler may use the descriptor at any time, so it stays open for ever.
    BELL.store(bell.into_raw_fd(), Ordering::Release);
    // SAFETY: all zeros is a valid sigaction; the needed fields are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_refused as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler has the form that SA_SIGINFO asks for, and does only what a signal
    // handler may do; the old action is not read (null pointer).
    let done = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if done == 0 { Ok(ours) } else { Err(io::Error::last_os_error()) }
}

/// Returns the numbers of calls refused since the last time; each number only once in the life of
/// the process.
pub fn take() -> Vec<usize> {
    let mut numbers = Vec::new();
    for (word, (refused, told)) in REFUSED.iter().zip(&TOLD).enumerate() {
        let now = refused.load(Ordering::Acquire);
        let new = now & !told.fetch_or(now, Ordering::AcqRel);
        numbers.extend((0..64).filter(|bit| new >> bit & 1 == 1).map(|bit| word * 64 + bit));
    }
    numbers
}

/// The part of siginfo_t that SIGSYS fills (asm-generic/siginfo.h, 64 bits).
#[repr(C)]
struct Refusal {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    address: usize,
    number: c_int,
    architecture: u32,
}

/// SYS_SECCOMP of asm-generic/siginfo.h.
const BY_FILTER: c_int = 1;

extern "C" fn on_refused(_signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a siginfo_t of SIGSYS, which is larger than `Refusal` and begins
    // with its fields.
    let refusal = unsafe { &*info.cast::<Refusal>() };
    if refusal.code != BY_FILTER {
        // Another process has sent SIGSYS, so no call was refused and nothing is changed.
        return;
    }
    let number = usize::try_from(refusal.number).unwrap_or(NUMBERS);
    let answer = if number > NEWEST { libc::ENOSYS } else { libc::EPERM };
    // SAFETY: with SA_SIGINFO the third argument is the context with which the thread continues
    // after the handler.
    unsafe { answer_call(context.cast(), -i64::from(answer)) };
    let Some(word) = REFUSED.get(number / 64) else { return };
    let bit = 1 << (number % 64);
    if word.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
        let (bell, one) = (BELL.load(Ordering::Acquire), 1_u8);
        // SAFETY: errno belongs to this thread and is restored; write(2) is allowed in a signal
        // handler, and reads one byte, `one`.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::write(bell, (&raw const one).cast(), 1);
            *errno = before;
        }
    }
}

/// Puts the result of the refused call where the kernel would have put it.
///
/// # Safety
/// `context` must be the context of a thread that is stopped in a system call.
#[cfg(target_arch = "x86_64")]
unsafe fn answer_call(context: *mut libc::ucontext_t, result: i64) {
    // SAFETY: the caller guarantees a complete context; REG_RAX is one of its registers.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = result };
}

/// Puts the result of the refused call where the kernel would have put it.
///
/// # Safety
/// `context` must be the context of a thread that is stopped in a system call.
#[cfg(target_arch = "aarch64")]
unsafe fn answer_call(context: *mut libc::ucontext_t, result: i64) {
    // SAFETY: the caller guarantees a complete context; x0 is one of its registers.
    unsafe { (*context).uc_mcontext.regs[0] = result.cast_unsigned() };
}

/// Other architectures have no filter.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn answer_call(_context: *mut libc::ucontext_t, _result: i64) {}
