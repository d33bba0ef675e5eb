//! The settings of a node, and the arithmetic of its times.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::LeaseId;

use crate::dialect::ClusterDialect;
use crate::fence::Fence;
use crate::limits::{CLOCK_ERROR_PART, STOP_TIME, TTL_MAX, TTL_MIN};
use crate::names::{ClusterName, NodeName, ShareName};
use crate::time::after;
use crate::values::RecordForm;

/// A lease's time that is out of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TtlOutOfRange;

impl fmt::Display for TtlOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (TTL_MIN.as_secs(), TTL_MAX.as_secs());
        write!(f, "the time of a lease must be {min} to {max} seconds")
    }
}

impl core::error::Error for TtlOutOfRange {}

/// The times that follow from the time of a lease (TTL).
///
/// etcd ends a lease no earlier than the TTL after the last keep-alive that it has seen, by a clock of
/// its own. The node sent that keep-alive at the moment *confirmed*, which is earlier. It serves until
/// *confirmed* + TTL - margin, by its own clock. The margin has two parts: the time by which two clocks
/// that are each wrong by a hundredth drift apart during the TTL, and [`STOP_TIME`], which the node takes
/// until the last answer that it had begun has left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    ttl: Duration,
}

impl Timing {
    /// The times for leases of so many seconds.
    ///
    /// # Errors
    /// For a time below [`TTL_MIN`] or above [`TTL_MAX`].
    pub fn new(ttl_seconds: u32) -> Result<Self, TtlOutOfRange> {
        Self::of(Duration::from_secs(u64::from(ttl_seconds)))
    }

    /// The times for leases of `ttl`.
    ///
    /// # Errors
    /// For a time below [`TTL_MIN`] or above [`TTL_MAX`].
    pub fn of(ttl: Duration) -> Result<Self, TtlOutOfRange> {
        if (TTL_MIN..=TTL_MAX).contains(&ttl) { Ok(Self { ttl }) } else { Err(TtlOutOfRange) }
    }

    /// The time of a lease.
    pub const fn ttl(self) -> Duration {
        self.ttl
    }

    /// The margin.
    pub fn margin(self) -> Duration {
        if planted!(MarginLeftOut) {
            return Duration::ZERO;
        }
        let drift = self.ttl.checked_div(CLOCK_ERROR_PART).unwrap_or(self.ttl);
        drift.saturating_add(STOP_TIME)
    }

    /// The end of the time for which a node may serve that is confirmed since `confirmed`.
    pub fn limit(self, confirmed: Moment) -> Moment {
        after(confirmed, self.ttl.saturating_sub(self.margin()))
    }

    /// The time for which a new owner waits that cannot fence the former one.
    pub fn wait(self) -> Duration {
        let drift = self.ttl.checked_div(CLOCK_ERROR_PART).unwrap_or(self.ttl);
        self.ttl.saturating_add(drift).saturating_add(STOP_TIME)
    }

    /// The time from one confirmation to the next.
    pub fn round(self) -> Duration {
        self.ttl.checked_div(4).unwrap_or(self.ttl)
    }

    /// The time for which a request to etcd is waited for.
    pub const fn patience(self) -> Duration {
        self.ttl
    }

    /// The time for which a node that has just come waits for others before it takes shares without an
    /// owner: nodes that are started together share them.
    pub fn settle(self) -> Duration {
        self.ttl.checked_div(2).unwrap_or(self.ttl)
    }

    /// The time for which a node waits before it takes a share that another node should take.
    pub const fn turn(self) -> Duration {
        self.ttl.saturating_mul(2)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self { ttl: TTL_MIN }
    }
}

/// A share that this node may serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSettings {
    /// Its name.
    pub name: ShareName,
    /// Its part of a node's load: 1 for most shares. All nodes should have the same.
    pub weight: u32,
}

/// The settings of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The cluster.
    pub cluster: ClusterName,
    /// This node.
    pub node: NodeName,
    /// The times.
    pub timing: Timing,
    /// The addresses at which it serves.
    pub addresses: Vec<SocketAddr>,
    /// Its part of the shares in relation to other nodes, 1 to 1,000.
    pub weight: u32,
    /// The version of the program, for people: at most 64 bytes.
    pub software: String,
    /// The largest dialect of SMB that it speaks.
    pub dialect: ClusterDialect,
    /// The shares. None is served before [`Statement::Ready`](crate::Statement::Ready) names it.
    pub shares: Vec<ShareSettings>,
    /// The lease of this node's earlier process, where the caller *knows* that the process has ended (it
    /// holds a lock that the process had). Its shares are then taken without a fence and without
    /// waiting. None if it is not known; the earlier process's lease ends by itself then.
    pub predecessor: Option<LeaseId>,
    /// The time after a takeover in which clients that had handles come first.
    pub grace: Duration,
    /// The newest form of records that its server reads.
    pub records: RecordForm,
}

/// A share's storage that can be used: see [`Statement::Ready`](crate::Statement::Ready).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// This node's identity there.
    pub fence: Fence,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded() {
        assert_eq!(Timing::new(1), Err(TtlOutOfRange));
        assert!(Timing::new(2).is_ok() && Timing::new(60).is_ok());
        assert_eq!(Timing::new(61), Err(TtlOutOfRange));
        assert_eq!(TtlOutOfRange.to_string(), "the time of a lease must be 2 to 60 seconds");
    }

    /// With clocks that are wrong by a hundredth, slow at the node and fast in etcd, the node has sent its
    /// last answer before its lease can end.
    #[test]
    fn the_margin_is_enough_for_clocks_that_are_wrong_by_a_hundredth() {
        for seconds in 2..=60 {
            let timing = Timing::new(seconds).unwrap();
            let sent = Moment(Duration::from_secs(1000));
            let served = (timing.limit(sent).0 - sent.0).as_secs_f64() / 0.99;
            let stopped = served + STOP_TIME.as_secs_f64();
            let ended = timing.ttl().as_secs_f64() / 1.01;
            assert!(stopped <= ended, "{seconds}: {stopped} {ended}");
            // A new owner without a fence waits long enough even with a fast clock.
            assert!(timing.wait().as_secs_f64() / 1.01 > stopped);
        }
    }

    use alloc::string::ToString;
}
