//! Whether who waits was told to stop.
//!
//! The kernel says so with FUSE_INTERRUPT, which fuser keeps to itself, and answers
//! as if nobody knew it: then not even SIGKILL ends a wait. What a thread was sent
//! stays with it until the request is answered, and /proc tells of it.

use crate::limits::SIGNALS_EVERY;

/// The thread that waits for an answer.
#[derive(Debug)]
pub(crate) struct Caller {
    thread: u32,
    /// The process had been sent one that any of its threads may take.
    shared: bool,
}

impl Caller {
    /// The thread of that number; 0 is one that this process cannot see.
    pub(crate) const fn new(thread: u32) -> Self {
        Self { thread, shared: false }
    }

    /// Ends when it was sent a signal that it does not block.
    pub(crate) async fn signalled(&mut self) {
        loop {
            tokio::time::sleep(SIGNALS_EVERY).await;
            if self.thread != 0 && self.look() {
                return;
            }
        }
    }

    /// A signal of the process may be another thread's, who takes it at once: it has
    /// to be there twice.
    fn look(&mut self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread));
        let Some(pending) = status.ok().and_then(|status| Pending::parse(&status)) else {
            return false;
        };
        let was_shared = std::mem::replace(&mut self.shared, pending.shared);
        pending.own || (pending.shared && was_shared)
    }
}

/// What of a thread's signals are to be delivered.
#[derive(Debug, PartialEq, Eq)]
struct Pending {
    own: bool,
    shared: bool,
}

impl Pending {
    /// From /proc/PID/status, proc_pid_status(5).
    fn parse(status: &str) -> Option<Self> {
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.strip_prefix(':')?.trim(), 16).ok()
        };
        let delivered = !mask("SigBlk")?;
        let (own, shared) = (mask("SigPnd")? & delivered, mask("ShdPnd")? & delivered);
        Some(Self { own: own != 0, shared: shared != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_wait_too() {
        let status = |own: u64, shared: u64, blocked: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        let pending = |own, shared, blocked| {
            let found = Pending::parse(&status(own, shared, blocked)).unwrap();
            (found.own, found.shared)
        };
        assert_eq!(pending(0, 0, 0), (false, false));
        assert_eq!(pending(1 << 8, 0, 0), (true, false));
        assert_eq!(pending(0, 1 << 1, 0), (false, true));
        assert_eq!(pending(1 << 1, 1 << 1, 1 << 1), (false, false));
        assert_eq!(Pending::parse("SigPnd:\tx"), None);
    }

    #[test]
    fn the_kernel_writes_it_so() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(Pending::parse(&status).is_some());
    }
}
