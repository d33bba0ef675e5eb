//! Detects signals to the thread that waits for an answer.
//!
//! The kernel sends FUSE_INTERRUPT, but fuser does not pass it on and answers that it is not
//! supported: then not even SIGKILL would end a wait. A pending signal stays with the thread until
//! its request is answered, and /proc shows it.

use crate::limits::{KILL_CHECK_INTERVAL, SIGNAL_CHECK_INTERVAL};

/// The bit of SIGKILL in a signal mask. A fatal signal without a core dump sends SIGKILL to every
/// thread.
const KILL: u64 = 1 << (libc::SIGKILL - 1);
/// PF_EXITING of a thread's flags.
const EXITING: u64 = 0x4;

/// The thread that waits for an answer.
#[derive(Debug)]
pub(crate) struct Caller {
    thread: u32,
    /// True if the last check found a pending signal of the process, which any of its threads may
    /// take.
    shared: bool,
}

impl Caller {
    /// Returns the caller with this thread number; 0 means a thread that this process cannot see.
    pub(crate) const fn new(thread: u32) -> Self {
        Self { thread, shared: false }
    }

    /// Completes when the thread has a signal that it does not block.
    pub(crate) async fn signalled(&mut self) {
        loop {
            tokio::time::sleep(SIGNAL_CHECK_INTERVAL).await;
            if self.thread != 0 && self.look() {
                return;
            }
        }
    }

    /// Completes when the thread was killed, or closes its files because of that.
    pub(crate) async fn killed(&mut self) {
        loop {
            tokio::time::sleep(KILL_CHECK_INTERVAL).await;
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

    /// Another thread may take a signal of the process at once: only one that is pending in two
    /// checks counts.
    fn look(&mut self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread));
        let Some(pending) = status.ok().and_then(|status| Pending::parse(&status)) else {
            return false;
        };
        let was_shared = std::mem::replace(&mut self.shared, pending.shared);
        pending.own || (pending.shared && was_shared)
    }
}

/// The pending signals of a thread that it does not block.
#[derive(Debug, PartialEq, Eq)]
struct Pending {
    own: bool,
    shared: bool,
    /// True if the thread ends as soon as it is answered.
    kills: bool,
}

/// Returns true if a signal ends the thread. Reads /proc/PID/stat, proc_pid_stat(5); fields are
/// counted after the name.
fn ends_by_signal(stat: &str) -> Option<bool> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let flags: u64 = fields.nth(6)?.parse().ok()?;
    let code: u32 = fields.nth(42)?.parse().ok()?;
    Some(flags & EXITING != 0 && code & 0x7f != 0)
}

impl Pending {
    /// Parses /proc/PID/status, proc_pid_status(5).
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
        // /proc of a killed child shows the signal that ended it until its parent waits for it.
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
