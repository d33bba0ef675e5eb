//! The keeper of the snapshots as the admin interface and reloads see it.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use frevo_admin::{Keeping, KnownSnapshot, NotKept, ShareSnapshots, SnapshotAct, SnapshotKeeper};
use frevo_snapshots::Schedule;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::listed::Listed;

/// A wish for the thread that makes snapshots.
pub(super) enum Asked {
    /// An act of an administrator.
    Act {
        act: SnapshotAct,
        by: &'static str,
        answer: oneshot::Sender<Result<Vec<KnownSnapshot>, NotKept>>,
    },
    /// The rules of a new configuration for the shares that have snapshots.
    Rules(Vec<KeepingRules>),
    /// An act for a client of MS-FSRVP.
    ShadowCopy { copy: ShadowCopy, answer: oneshot::Sender<Result<u64, String>> },
}

/// The rules of a configuration for a share.
pub(super) struct KeepingRules {
    /// The name of the share.
    pub(super) share: String,
    pub(super) schedule: Schedule,
}

/// A shadow copy that is made, removed, released, or too old after its release. It is known by the second since 1970.
pub(super) enum ShadowCopy {
    Create { share: String, by: String },
    Remove { share: String, taken: u64, by: String },
    Release { share: String, taken: u64 },
    Expire { share: String, taken: u64 },
}

/// The end of those who ask.
pub(super) struct ForAdmin {
    wishes: SyncSender<Asked>,
    views: Arc<Mutex<Vec<ShareSnapshots>>>,
    listed: Listed,
}

impl ForAdmin {
    pub(super) fn new(wishes: SyncSender<Asked>, views: Arc<Mutex<Vec<ShareSnapshots>>>) -> Self {
        Self { wishes, views, listed: Listed::default() }
    }

    /// The shadow copies that it shows.
    pub(super) fn listed(&self) -> Listed {
        self.listed.clone()
    }

    /// The way to the thread for another one.
    pub(super) fn wishes(&self) -> SyncSender<Asked> {
        self.wishes.clone()
    }

    /// Tells the thread the rules of a new configuration.
    pub(super) fn set_rules(&self, rules: Vec<KeepingRules>) {
        if self.wishes.try_send(Asked::Rules(rules)).is_err() {
            tracing::error!(target: "frevo::snapshot",
                "the new schedules of snapshots are not in force; reload the configuration again");
        }
    }
}

impl SnapshotKeeper for ForAdmin {
    fn view(&self) -> Vec<ShareSnapshots> {
        let mut shares = self.views.lock().clone();
        for share in &mut shares {
            share.shadow_copies = self.listed.of(&share.share);
        }
        shares
    }

    fn act(&self, act: SnapshotAct, by: &'static str) -> Keeping<'_> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.wishes.try_send(Asked::Act { act, by, answer }).map_err(|error| match error {
                TrySendError::Full(_) => String::from("too many wishes wait; try again later"),
                TrySendError::Disconnected(_) => String::from("the server stops"),
            })?;
            answered.await.unwrap_or_else(|_| Err(String::from("the server stops").into()))
        })
    }
}
