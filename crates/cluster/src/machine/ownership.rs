//! The shares that this node has: served, and lost.

use alloc::vec::Vec;

use super::Machine;
use super::requests::{Attempt, Holding};
use super::share::{Share, Stage};
use crate::Epoch;
use crate::interface::{Order, Output, RecordEnd, StopReason};
use crate::names::ShareName;
use crate::time::after;
use crate::values::Reason;

impl Machine {
    /// Looks at the owners' keys of the shares that this node has, and serves those that are restored.
    pub(super) fn act_on_ownerships(&mut self) {
        let lost: Vec<_> =
            self.shares.iter().filter_map(|(name, share)| self.loss(name, share)).collect();
        for (held, why) in lost {
            self.lose(&held, why);
        }
        self.renew_storage();
        if self.is_paused || self.until.is_none() {
            return;
        }
        // A client that the former owner has let in by a dialect is not refused here: all demands from before the
        // taking are known, and the server was told the last one (MS-SMB2 3.3.5.7).
        let known = self.view.as_ref().map_or(Epoch(0), |view| Epoch(view.revision.0));
        let ready = self.shares.iter_mut();
        let ready = ready.filter_map(|(name, share)| begin_serving(name, share, known));
        let ready: Vec<_> = ready.collect();
        for Started { held, has_clients } in ready {
            let grace = has_clients.then(|| after(self.now, self.settings.grace));
            self.order(Order::Serve { share: held.share, epoch: held.epoch, grace });
        }
    }

    /// Has the server look at the storage of shares anew that another node has taken from this one without
    /// being given them: it may have had storage refuse this node.
    fn renew_storage(&mut self) {
        let Some(view) = &self.view else { return };
        let node = &self.settings.node;
        let mut refused = Vec::new();
        for (name, share) in &mut self.shares {
            let Some(owner) = view.owners.get(name) else { continue };
            let is_from_here = owner.value.as_ref().is_some_and(|value| {
                value.node != *node && value.reason == Reason::Failover(node.clone())
            });
            let can_refuse =
                share.storage.as_ref().is_none_or(|storage| storage.fence.can_refuse());
            let is_known = share.renewed >= owner.epoch || share.stage.is_held();
            if is_from_here && can_refuse && !is_known {
                share.renewed = owner.epoch;
                share.storage = None;
                refused.push(name.clone());
            }
        }
        for share in refused {
            self.is_changed = true;
            self.order(Order::Renew { share });
        }
    }

    /// The reason why a share is lost, by the keys.
    fn loss(&self, name: &ShareName, share: &Share) -> Option<(Holding, StopReason)> {
        let epoch = share.stage.owned()?;
        let view = self.view.as_ref()?;
        let owner = view.owners.get(name);
        if view.revision.0 < epoch.0 || owner.is_some_and(|owner| owner.epoch == epoch) {
            return None;
        }
        let why = match view.owner(name) {
            Some(node) => StopReason::Taken(node.clone()),
            None => StopReason::KeyGone,
        };
        Some((Holding { share: name.clone(), epoch }, why))
    }

    /// Stops a share that is lost.
    pub(super) fn lose(&mut self, held: &Holding, why: StopReason) {
        let Some(share) = self.shares.get_mut(&held.share) else { return };
        if share.stage.epoch() != Some(held.epoch) || matches!(share.stage, Stage::Stopping { .. })
        {
            return;
        }
        self.is_changed = true;
        // The owner's key may still be this node's, and would keep all nodes from taking the share. Its
        // deletion compares the ownership.
        let has_key = matches!(why, StopReason::StorageLost | StopReason::RecordRefused);
        share.stage = Stage::Stopping { epoch: held.epoch, has_key };
        share.verified = None;
        // The storage may refuse this node by now, so the server examines it again.
        share.storage = None;
        self.fence_records(&held.share);
        self.order(Order::Stop { share: held.share.clone(), epoch: held.epoch, why });
    }

    /// Ends the records of an ownership.
    pub(super) fn fence_records(&mut self, name: &ShareName) {
        let queue = self.shares.get_mut(name).and_then(|share| share.queue.take());
        for ticket in queue.map(|mut queue| queue.fence()).unwrap_or_default() {
            self.outputs.push_back(Output::RecordDone(ticket, RecordEnd::Fenced));
        }
    }

    pub(super) fn on_storage_lost(&mut self, name: &ShareName, epoch: Epoch) {
        self.lose(&Holding { share: name.clone(), epoch }, StopReason::StorageLost);
    }

    pub(super) fn on_stopped(&mut self, name: &ShareName, epoch: Epoch) {
        let Some(share) = self.shares.get_mut(name) else { return };
        let Stage::Stopping { epoch: of, has_key } = share.stage else { return };
        if of == epoch {
            let attempt = Attempt::Due(self.now);
            share.stage =
                if has_key { Stage::Releasing { epoch, to: None, attempt } } else { Stage::Away };
        }
    }

    pub(super) fn on_not_restored(&mut self, name: &ShareName, epoch: Epoch) {
        let Some(share) = self.shares.get_mut(name) else { return };
        if matches!(&share.stage, Stage::Starting { epoch: of, .. } if *of == epoch) {
            share.storage = None;
            let attempt = Attempt::Due(self.now);
            share.stage = Stage::Releasing { epoch, to: None, attempt };
            self.fence_records(name);
        }
    }
}

/// A share that is served from now on.
struct Started {
    held: Holding,
    /// True if it had an owner before, with clients that may come back.
    has_clients: bool,
}

/// Begins to serve a share that is restored, if the keys are known as they were when it was taken.
fn begin_serving(name: &ShareName, share: &mut Share, known: Epoch) -> Option<Started> {
    let Stage::Starting { epoch, is_restored: true, reason } = &share.stage else { return None };
    if *epoch > known {
        return None;
    }
    share.verified?;
    let (epoch, has_clients) = (*epoch, *reason != Reason::First);
    share.stage = Stage::Serving { epoch };
    Some(Started { held: Holding { share: name.clone(), epoch }, has_clients })
}
