//! The world as the server sees it, besides bytes: the time of day and random bytes. A
//! simulator brings its own.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frevo_wire::dtyp::FileTime;

use crate::base::host::{self, HostNames, HostUser, Said};

/// Where a message is signed, verified, sealed or unsealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CryptoPlace {
    /// On another thread if it would hold its core for too long, or would be faster there.
    Measured,
    /// On its core.
    Core,
    /// On another thread.
    Thread,
    /// On its core, after a time in which the core does other work: another thread, as a simulator
    /// has it.
    After(Duration),
}

/// Wall clock, randomness, users of the host. Timers do not come from here but from tokio's
/// clock, which a simulator can pause.
pub trait Ambient: Send + Sync + fmt::Debug {
    /// The time of day.
    fn now(&self) -> FileTime;

    /// Fills `bytes` with random ones fit for keys.
    fn random(&self, bytes: &mut [u8]);

    /// The host's user called like an account. It may wait.
    ///
    /// # Errors
    /// When the host does not say.
    fn host_user(&self, name: &str) -> Said<HostUser> {
        HostUser::look_up(self.names(), name)
    }

    /// The users and groups of the host. Looking at them may wait.
    fn names(&self) -> &dyn HostNames {
        host::names()
    }

    /// Where a message of `bytes` is signed, verified, sealed or unsealed.
    fn crypto_place(&self, bytes: usize) -> CryptoPlace {
        let _ = bytes;
        CryptoPlace::Measured
    }

    /// Eight random bytes as a number.
    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.random(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The host's clock and random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Ambient for Host {
    fn now(&self) -> FileTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        FileTime::from_unix(seconds, since.subsec_nanos())
    }

    fn random(&self, bytes: &mut [u8]) {
        POOL.with_borrow_mut(|pool| pool.take(bytes));
    }
}

// Each thread has a pool of random bytes of its own, so that no byte is used twice and no lock is
// needed.
thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL_LEN], left: 0 }) };
}

const POOL_LEN: usize = 512;

/// Random bytes fetched in one system call for many small wants: a CREATE needs
/// eight. Each is handed out once and forgotten.
struct Pool {
    bytes: [u8; POOL_LEN],
    left: usize,
}

impl Pool {
    fn take(&mut self, into: &mut [u8]) {
        if into.len() > self.left && into.len() <= POOL_LEN {
            fill(&mut self.bytes);
            self.left = POOL_LEN;
        }
        let rest = self.left.checked_sub(into.len());
        let from = rest.and_then(|rest| self.bytes.get_mut(rest..self.left));
        let (Some(rest), Some(from)) = (rest, from) else { return fill(into) };
        into.copy_from_slice(from);
        from.fill(0);
        self.left = rest;
    }
}

/// # Panics
/// When the kernel has no randomness to give: going on would mean guessable keys.
#[allow(clippy::expect_used)]
fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel's random source works");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_handed_out_once() {
        let seen: std::collections::HashSet<u64> = (0..1_000).map(|_| Host.random_u64()).collect();
        assert_eq!(seen.len(), 1_000);
        let mut large = [0; POOL_LEN + 1];
        Host.random(&mut large);
        assert!(large.iter().any(|b| *b != 0));
    }
}
