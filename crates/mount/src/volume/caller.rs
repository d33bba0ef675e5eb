//! Whether who waits was told to stop.
//!
//! The kernel says so with FUSE_INTERRUPT, which fuser keeps to itself, and answers
//! as if nobody knew it: then not even SIGKILL ends a wait. What a thread was sent
//! stays with it until the request is answered, and /proc tells of it.

use crate::limits::{KILLED_EVERY, SIGNALS_EVERY};

/// The bit of SIGKILL in a mask of signals; what ends a program without a core is that to
/// each of its threads.
const KILL: u64 = 1 << (libc::SIGKILL - 1);
/// PF_EXITING of a thread's flags.
const EXITING: u64 = 0x4;

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

    /// Ends when it was killed, or closes its files since it was.
    pub(crate) async fn killed(&mut self) {
        loop {
            tokio::time::sleep(KILLED_EVERY).await;
            if self.thread != 0 && self.is_killed() {
                return;
            }
        }
    }

    fn is_killed(&self) -> bool {
        let read = |name| std::fs::read_to_string(format!("/proc/{}/{name}", self.thread)).ok();
        let pending = read("status").and_then(|status| Pending::parse(&status));
        pending.is_some_and(|pending| pending.kills)
            || read("stat").is_some_and(|stat| ends_by_signal(&stat).unwrap_or(false))
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
    /// It ends as soon as it is answered.
    kills: bool,
}

/// Whether a thread is ending by a signal: from /proc/PID/stat, proc_pid_stat(5), of which
/// the fields behind the name are counted.
fn ends_by_signal(stat: &str) -> Option<bool> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let flags: u64 = fields.nth(6)?.parse().ok()?;
    let code: u32 = fields.nth(42)?.parse().ok()?;
    Some(flags & EXITING != 0 && code & 0x7f != 0)
}

impl Pending {
    /// From /proc/PID/status, proc_pid_status(5).
    fn parse(status: &str) -> Option<Self> {
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.strip_prefix(':')?.trim(), 16).ok()
        };
        let delivered = !mask("SigBlk")?;
        let (own, shared) = (mask("SigPnd")?, mask("ShdPnd")?);
        let kills = own & KILL != 0;
        Some(Self { own: own & delivered != 0, shared: shared & delivered != 0, kills })
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
        assert!(!Pending::parse(&status).unwrap().kills);
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert_eq!(ends_by_signal(&stat), Some(false));
    }

    #[test]
    fn who_is_killed_is_told_from_who_ends() {
        // A child that was killed and not waited for has nothing left but how it ended.
        for (signal, is_killed) in [(Some("-KILL"), true), (Some("-TERM"), true), (None, false)] {
            let wait = if signal.is_some() { "60" } else { "0" };
            let mut child = std::process::Command::new("sleep").arg(wait).spawn().unwrap();
            if let Some(signal) = signal {
                let pid = child.id().to_string();
                std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
            }
            let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            while !stat().contains(") Z ") {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert_eq!(ends_by_signal(&stat()), Some(is_killed), "{signal:?}");
            child.wait().unwrap();
        }
    }
}
