//! Opens without a session: from the loss of their session until their client reconnects, or
//! until they are given up.

use std::collections::hash_map::Entry as Slot;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;
use tokio::time::Instant;

use super::{Attachment, Durables, Entry, Id, Table, key_of};
use crate::base::limits::{
    DISCONNECTED_OPENS, DISCONNECTED_OPENS_PER_OWNER, RECONNECT_PATIENCE, REMOVE_AGAIN,
};
use crate::objects::durable::reconnect::{Kept, Reconnect, Version, is_early, verdict};
use crate::objects::durable::{Caching, Survival};
use crate::objects::open::Open;

/// Opens whose deadlines are moved while others wait for the table.
const WAITING_AT_ONCE: usize = 256;

/// The Open that a reconnect meets.
#[derive(Debug)]
enum Met {
    /// Its Open, which is now the asking session's.
    Taken(Arc<Open>),
    /// Its Open, whose old session has not ended yet.
    Early,
}

/// The fate of an Open that waits for its client when others want its file.
pub(in crate::objects::durable) enum Broken {
    /// It is nobody's any more, and the caller closes it.
    Closed(Arc<Open>),
    /// It keeps what it caches until its client comes or does not.
    Kept,
    /// It stays open, and caches nothing any more.
    Stays,
}

impl Durables {
    /// MS-SMB2 3.3.7.1: the Open has lost its session. True when it is kept for
    /// its client; otherwise it is to be closed.
    pub(crate) fn disconnect(&self, open: &Arc<Open>) -> bool {
        let Some(survival) = open.survival() else { return false };
        let Some(time) = survival.kept_for(Caching::of(open)) else { return false };
        // Another server owns the share, so the client finds the Open only at that server. The Open
        // is not kept here. An Open of a paused share is.
        if !open.tree().share.life.is_owned() {
            return false;
        }
        let outlives_lease = survival.is_persistent() || survival.is_resilient();
        if !outlives_lease && Caching::locks_for_others(open) {
            return false;
        }
        let id = open.file_id.persistent;
        let deadline = Instant::now() + time;
        let mut table = self.table.lock();
        if open.is_closed() || table.deadlines.len() >= DISCONNECTED_OPENS {
            return false;
        }
        let of_owner = table.waiting.get(&survival.owner).copied().unwrap_or(0);
        if of_owner >= DISCONNECTED_OPENS_PER_OWNER {
            tracing::warn!(target: "frevo::durable", owner = survival.owner,
                "closed a durable handle early: too many handles wait for their clients");
            return false;
        }
        let Some(entry) = table.opens.get_mut(&id) else { return false };
        entry.place = Attachment::Disconnected(deadline);
        self.enter_waiting(&mut table, open, survival, deadline);
        drop(table);
        self.detached.notify_waiters();
        true
    }

    /// Takes in an Open of an earlier run: its client may come until
    /// `deadline`.
    pub fn restore(&self, open: &Arc<Open>, deadline: Instant) -> bool {
        let Some(survival) = open.survival() else { return false };
        if !self.insert(open, Attachment::Disconnected(deadline)) {
            return false;
        }
        let mut table = self.table.lock();
        self.enter_waiting(&mut table, open, survival, deadline);
        true
    }

    fn enter_waiting(
        &self,
        table: &mut Table,
        open: &Open,
        survival: &Survival,
        deadline: Instant,
    ) {
        let id = open.file_id.persistent;
        if table.deadlines.first().is_none_or(|(first, _)| deadline < *first) {
            self.earlier.notify_one();
        }
        table.deadlines.insert((deadline, id));
        *table.waiting.entry(survival.owner.clone()).or_default() += 1;
        if survival.is_persistent() {
            self.orphans.fetch_add(1, Ordering::AcqRel);
            table.by_file.orphan(key_of(open));
        }
    }

    pub(super) fn leave_waiting(
        &self,
        table: &mut Table,
        open: &Open,
        survival: &Survival,
        deadline: Instant,
    ) {
        let id = open.file_id.persistent;
        table.deadlines.remove(&(deadline, id));
        if let Slot::Occupied(mut count) = table.waiting.entry(survival.owner.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if survival.is_persistent() {
            self.orphans.fetch_sub(1, Ordering::AcqRel);
            table.by_file.adopt(key_of(open));
            self.come.notify_waiters();
        }
    }

    /// Waits until `has_come`, which is asked when a client has come for its persistent Open, or an Open
    /// was given up. False when the time is up first.
    pub async fn clients_came(&self, until: Instant, has_come: impl Fn() -> bool) -> bool {
        loop {
            let mut come = pin!(self.come.notified());
            // The notification is registered before the question, so that no client is missed.
            come.as_mut().enable();
            if has_come() {
                return true;
            }
            if tokio::time::timeout_at(until, come).await.is_err() {
                return false;
            }
        }
    }

    /// Waits a moment until a persistent Open of a cluster's share that waits for this client has been taken up.
    /// False at once for any other one, and if the client does not come for it.
    pub(crate) async fn taken_up(&self, id: Id, user: &str, client: Guid) -> bool {
        let waits = || {
            let table = self.table.lock();
            let is_its = |entry: &Entry| {
                let is_waiting = matches!(entry.place, Attachment::Disconnected(_));
                is_waiting
                    && entry.open.tree().share.clustered
                    && entry.open.survival().is_some_and(|survival| {
                        let is_own = survival.is_owned_by(user) && survival.client_guid == client;
                        is_own && survival.is_persistent()
                    })
            };
            table.opens.get(&id).is_some_and(is_its)
        };
        if !self.has_orphans() || !waits() {
            return false;
        }
        self.clients_came(Instant::now() + RECONNECT_PATIENCE, || !waits()).await
    }

    /// MS-SMB2 3.3.5.9.7, 3.3.5.9.12: the Open that is asked for, now attached
    /// to `session`.
    ///
    /// Deviation: a client may be back before the end of its old connection has
    /// been seen, which another core may have to do. It is waited for a moment;
    /// the specification knows no such order of events. Nor does it know how a client
    /// gets an answer that was lost with one channel of its session: a replay in that
    /// session is answered again.
    pub async fn reconnect(
        &self,
        asked: &Reconnect<'_>,
        session: u64,
    ) -> Result<Arc<Open>, Status> {
        let deadline = Instant::now() + RECONNECT_PATIENCE;
        loop {
            let mut detached = pin!(self.detached.notified());
            // The notification is registered before the check, so that an Open that is detached in
            // between is not missed.
            detached.as_mut().enable();
            match self.try_reconnect(asked, session)? {
                Met::Taken(open) => return Ok(open),
                Met::Early => tokio::time::timeout_at(deadline, detached)
                    .await
                    .map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?,
            }
        }
    }

    fn try_reconnect(&self, asked: &Reconnect<'_>, session: u64) -> Result<Met, Status> {
        let mut table = self.table.lock();
        let mut id = asked.file_id.persistent;
        if let Version::Two { create_guid, persistent: true, continuous: true } = asked.version
            && !table.opens.contains_key(&id)
            && let Some(other) = table.by_persistent.get(&(fold_name(asked.user), create_guid))
        {
            id = *other;
        }
        let entry = table.opens.get(&id).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let survival = entry.open.survival().ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let is_again = asked.is_replay && entry.place == Attachment::Attached(session);
        let kept = Kept {
            survival,
            caching: Caching::of(&entry.open),
            is_attached: matches!(entry.place, Attachment::Attached(_)) && !is_again,
            share: &entry.open.tree().share.name,
        };
        if is_early(kept, asked) {
            return Ok(Met::Early);
        }
        verdict(kept, asked)?;
        if is_again {
            return Ok(Met::Taken(Arc::clone(&entry.open)));
        }
        let open = self.attach(&mut table, id, session);
        open.map(Met::Taken).ok_or(Status::OBJECT_NAME_NOT_FOUND)
    }

    /// Attaches an Open that waits for its client to `session`; false when it
    /// does not wait any more.
    pub fn take_up(&self, open: &Open, session: u64) -> bool {
        self.attach(&mut self.table.lock(), open.file_id.persistent, session).is_some()
    }

    fn attach(&self, table: &mut Table, id: Id, session: u64) -> Option<Arc<Open>> {
        let entry = table.opens.get_mut(&id)?;
        let Attachment::Disconnected(deadline) = entry.place else { return None };
        entry.place = Attachment::Attached(session);
        let open = Arc::clone(&entry.open);
        if let Some(survival) = open.survival() {
            self.leave_waiting(table, &open, survival, deadline);
        }
        Some(open)
    }

    /// Takes Opens out that wait for their client, if `which` says so. They are
    /// nobody's any more, and the caller closes them.
    pub fn give_up(&self, which: impl Fn(&Open) -> bool) -> Vec<Arc<Open>> {
        let mut table = self.table.lock();
        let waiting: Vec<Id> = table.deadlines.iter().map(|(_, id)| *id).collect();
        let chosen = |id: &Id| table.opens.get(id).is_some_and(|entry| which(&entry.open));
        let ids: Vec<Id> = waiting.into_iter().filter(chosen).collect();
        ids.into_iter().filter_map(|id| self.take_out(&mut table, id)).collect()
    }

    /// Takes out the one Open `id` if it waits for its client.
    pub fn give_up_one(&self, id: u64) -> Option<Arc<Open>> {
        let mut table = self.table.lock();
        let entry = table.opens.get(&id)?;
        if matches!(entry.place, Attachment::Attached(_)) {
            return None;
        }
        self.take_out(&mut table, id)
    }

    /// The caching of the Open `id` is in the way of another use of its file.
    pub(in crate::objects::durable) fn on_break(&self, id: u64) -> Broken {
        let mut table = self.table.lock();
        let Some(entry) = table.opens.get(&id) else { return Broken::Stays };
        let survival = entry.open.survival();
        match (survival, entry.place) {
            (Some(survival), Attachment::Disconnected(_)) if survival.is_persistent() => {
                Broken::Kept
            }
            (Some(survival), Attachment::Disconnected(_)) if survival.is_durable() => {
                self.take_out(&mut table, id).map_or(Broken::Stays, Broken::Closed)
            }
            _ => Broken::Stays,
        }
    }

    /// Takes out those whose time has come. An Open of a suspended share waits anew, because its client
    /// cannot come, and its close could change its file.
    pub(in crate::objects::durable) fn expired(&self, now: Instant) -> Vec<Arc<Open>> {
        let mut table = self.table.lock();
        let due: Vec<Id> =
            table.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        let mut expired = Vec::new();
        for id in due {
            let is_suspended = |entry: &Entry| entry.open.tree().share.life.is_suspended();
            if table.opens.get(&id).is_some_and(is_suspended) {
                Self::set_deadline(&mut table, id, now);
            } else {
                expired.extend(self.take_out(&mut table, id));
            }
        }
        expired
    }

    /// Lets Opens that wait for their clients wait for their whole time from now on, if `which` says so.
    pub(in crate::objects::durable) fn wait_anew(&self, which: impl Fn(&Open) -> bool) {
        let now = Instant::now();
        let mut after = Bound::Unbounded;
        loop {
            // Others have the table between two parts. Moved deadlines are the same when they are met
            // again, so this ends.
            let mut table = self.table.lock();
            let part = table.deadlines.range((after, Bound::Unbounded)).take(WAITING_AT_ONCE);
            let part: Vec<(Instant, Id)> = part.copied().collect();
            for (_, id) in &part {
                if table.opens.get(id).is_some_and(|entry| which(&entry.open)) {
                    Self::set_deadline(&mut table, *id, now);
                }
            }
            match part.last() {
                Some(last) => after = Bound::Excluded(*last),
                None => break,
            }
        }
        // The scavenger looks at the next deadline again.
        self.earlier.notify_one();
    }

    /// Moves the deadline of an Open that waits for its client to its whole time from `now` on.
    fn set_deadline(table: &mut Table, id: Id, now: Instant) {
        let Some(entry) = table.opens.get_mut(&id) else { return };
        let Attachment::Disconnected(before) = entry.place else { return };
        let time = entry.open.survival().map(Survival::time_to_come).unwrap_or_default();
        // An Open without a time of its own is looked at again in a moment.
        let deadline = now + time.max(REMOVE_AGAIN);
        entry.place = Attachment::Disconnected(deadline);
        table.deadlines.remove(&(before, id));
        table.deadlines.insert((deadline, id));
    }
}
