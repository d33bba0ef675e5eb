//! The snapshots that a server makes of its shares: their state, and acts on them.

use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// The keeper of a server's snapshots, which the interface shows and gives commands.
pub trait SnapshotKeeper: Send + Sync {
    /// Returns the state of the snapshots of each share that has some.
    fn view(&self) -> Vec<ShareSnapshots>;

    /// Carries out an act. `by` is the word for the way by which the administrator came.
    fn act(&self, act: SnapshotAct, by: &'static str) -> Keeping<'_>;
}

/// The end of an act: the snapshots that were listed, made, removed, kept or released.
pub type Keeping<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<KnownSnapshot>, NotKept>> + Send + 'a>>;

/// A snapshot that the server has made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownSnapshot {
    /// Its time, in seconds since 1970.
    pub snapshot: u64,
    /// Its name.
    pub name: String,
    /// True if it stays whatever the schedule says.
    pub kept: bool,
    /// True if a client has had it made over MS-FSRVP, and has not deleted it.
    pub shadow_copy: bool,
}

/// The reason why an act was not carried out, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotKept {
    /// The server makes no snapshots of the share, or does not have the one that was named.
    NoSuch(String),
    /// The act failed.
    Failed(String),
}

impl From<String> for NotKept {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// An act of an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum SnapshotAct {
    /// Lists the server's own snapshots of a share.
    List {
        /// The share.
        share: String,
    },
    /// Makes a snapshot of a share.
    Create {
        /// The share.
        share: String,
    },
    /// Removes one snapshot.
    Remove {
        /// The share.
        share: String,
        /// The snapshot, in seconds since 1970.
        snapshot: u64,
    },
    /// Removes the snapshots that the schedule of a share does not keep.
    Prune {
        /// The share.
        share: String,
        /// True to list them alone.
        #[serde(default)]
        dry_run: bool,
    },
    /// Has one snapshot stay whatever the schedule says.
    Keep {
        /// The share.
        share: String,
        /// The snapshot, in seconds since 1970.
        snapshot: u64,
    },
    /// Gives a snapshot that stays back to the schedule.
    Release {
        /// The share.
        share: String,
        /// The snapshot, in seconds since 1970.
        snapshot: u64,
    },
}

impl SnapshotAct {
    /// Returns the name of the share.
    pub fn share(&self) -> &str {
        let (Self::List { share }
        | Self::Create { share }
        | Self::Remove { share, .. }
        | Self::Prune { share, .. }
        | Self::Keep { share, .. }
        | Self::Release { share, .. }) = self;
        share
    }
}

/// A shadow copy that a client has had made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShadowCopy {
    /// The name of the share that serves it.
    pub share: String,
    /// Its set, without which it cannot be deleted.
    pub set: String,
    /// The name of the account that has it.
    pub owner: String,
    /// The snapshot, in seconds since 1970.
    pub taken: u64,
}

/// The snapshots that the server makes of a share. Times are seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareSnapshots {
    /// The name of the share.
    pub share: String,
    /// The way by which they are made: `btrfs`, `zfs` or `lvm`. None if there is none.
    pub provider: Option<String>,
    /// The schedule.
    pub schedule: String,
    /// The number of snapshots.
    pub count: usize,
    /// The oldest one.
    pub oldest: Option<u64>,
    /// The newest one.
    pub newest: Option<u64>,
    /// The number of those that have a time to come, which a wrong clock has left.
    pub ahead: usize,
    /// The next one that is due. None while none can be made.
    pub next: Option<u64>,
    /// Snapshots that were made since the server's start.
    pub made: u64,
    /// Snapshots that were removed since the server's start.
    pub removed: u64,
    /// Acts that failed since the server's start.
    pub failures: u64,
    /// A sentence about a part of the share that snapshots lack, as it was when the server started.
    pub lacks: Option<String>,
    /// Those of the snapshots that clients have had made over MS-FSRVP.
    pub shadow_copies: Vec<ShadowCopy>,
    /// The reason why the last act failed. None after one that did not.
    pub last_error: Option<String>,
}
