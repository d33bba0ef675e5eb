//! CREATEs that come again, and applications that come back elsewhere: MS-SMB2
//! 3.3.5.9, 3.3.5.9.10, 3.3.5.9.13.

use std::pin::Pin;
use std::sync::Arc;

use frevo_store::{Fault, FileKey, Node};
use frevo_wire::create_context::DurableHandleFlags;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::fold_name;
use frevo_wire::{HeaderFlags, Status};

use super::creation::Create;
use super::{access, durable};
use crate::base::host;
use crate::base::limits::OPENS_OF_INSTANCE_COMPARED;
use crate::base::pools::blocking_pool;
use crate::objects::durable::{AppInstance, Caching, Creating, Hold, Replay, Survival};
use crate::objects::open::Open;
use crate::shares::protection;
use crate::shares::share::Share;

/// A CREATE by its CreateGuid.
pub(super) enum Entry {
    /// One that was carried out before: its Open.
    Same(Arc<Open>),
    /// A new one, whose CreateGuid is taken meanwhile.
    New(#[allow(dead_code, reason = "held until the CREATE ends")] Option<Creating>),
}

impl Create<'_> {
    /// Tells a CREATE that comes again from a new one.
    pub(super) fn enter(&self) -> Result<Entry, Status> {
        let Some(asked) = self.wanted.durable.request_v2 else { return Ok(Entry::New(None)) };
        if planted!(CreateTwice) {
            return Ok(Entry::New(None));
        }
        let rq = self.rq;
        let durables = &rq.server().durables;
        let is_replay = rq.header.flags.contains(HeaderFlags::REPLAY_OPERATION);
        let session = rq.session()?;
        let persistent = asked.flags.contains(DurableHandleFlags::PERSISTENT);
        let identity = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
        let (client, create) = (session.client_guid, asked.create_guid);
        match durables.enter(&identity.user, client, create, is_replay)? {
            Replay::Attached(..) | Replay::Disconnected(_) if !is_replay => {
                Err(Status::DUPLICATE_OBJECTID)
            }
            Replay::Attached(open, owner) => {
                self.check_replay(&open)?;
                // MS-SMB2 3.3.5.9: the session is compared before SMB2_DHANDLE_FLAG_PERSISTENT.
                if owner != session.id {
                    return Err(Status::DUPLICATE_OBJECTID);
                }
                check_persistent(&open, persistent)?;
                Ok(Entry::Same(open))
            }
            Replay::Disconnected(open) => {
                self.check_replay(&open)?;
                check_persistent(&open, persistent)?;
                let is_persistent = open.survival().is_some_and(Survival::is_persistent);
                if is_persistent && !durable::is_continuous(rq)? {
                    return Err(Status::DUPLICATE_OBJECTID);
                }
                // MS-SMB2 3.3.5.9.10: a disconnected Open belongs to no session, so the replay
                // attaches it to its own connection.
                self.take_up(open)
            }
            Replay::New(creating) => {
                if is_replay
                    && persistent
                    && durable::is_continuous(rq)?
                    && let Some((open, is_attached)) =
                        durables.persistent(&identity.user, asked.create_guid)
                {
                    if is_attached {
                        return Err(Status::FILE_NOT_AVAILABLE);
                    }
                    return self.take_up(open);
                }
                Ok(Entry::New(Some(creating)))
            }
        }
    }

    /// Fails unless the Open is the replaying client's own, and asked for as before.
    fn check_replay(&self, open: &Open) -> Result<(), Status> {
        let survival = open.survival().ok_or(Status::DUPLICATE_OBJECTID)?;
        self.check_owner(survival)?;
        let asked = self.wanted.durable.lease.map(|lease| lease.key);
        let has = match Caching::of(open) {
            Caching::Lease { key, .. } => Some(key),
            _ => None,
        };
        // As on Windows, a replay must ask for a lease exactly if the Open has one.
        if asked != has {
            return Err(Status::ACCESS_DENIED);
        }
        Ok(())
    }

    fn check_owner(&self, survival: &Survival) -> Result<(), Status> {
        let identity = self.rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
        if survival.is_owned_by(&identity.user) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
    }

    /// An Open whose client has lost its connection and repeats the CREATE.
    fn take_up(&self, open: Arc<Open>) -> Result<Entry, Status> {
        let survival = open.survival().ok_or(Status::FILE_NOT_AVAILABLE)?;
        self.check_owner(survival)?;
        let (before, now) = (&survival.asked, self.asked());
        if before.create_options != now.create_options
            || before.desired_access != now.desired_access
            || before.share_access != now.share_access
        {
            return Err(Status::CONTEXT_MISMATCH);
        }
        if !self.is_of_share(&open) {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        if !self.rq.server().durables.take_up(&open, self.rq.session()?.id) {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        durable::attach(self.rq, &open)?;
        // The answer may be lost again: another replay gets it as well, as one of the first answer does.
        // An Open of an earlier run was not eligible so far.
        survival.set_replay_eligible(true);
        Ok(Entry::Same(open))
    }

    fn is_of_share(&self, open: &Open) -> bool {
        self.rq
            .tree()
            .is_ok_and(|tree| fold_name(&tree.share.name) == fold_name(&open.tree().share.name))
    }

    /// MS-SMB2 3.3.5.9: a file whose persistent Open waits for its client is
    /// not to be had by others meanwhile. Note 301: what such an Open caches is broken first, which
    /// [`Create::open`] waits for; its client may come back in that time.
    pub(super) fn check_held(&self) -> Result<(), Status> {
        match self.hold_by_name()? {
            Hold::Firm => Err(Status::FILE_NOT_AVAILABLE),
            Hold::None | Hold::Breakable => Ok(()),
        }
    }

    fn hold_by_name(&self) -> Result<Hold, Status> {
        if !self.rq.connection.is_smb3() || !self.rq.server().durables.has_orphans() {
            return Ok(Hold::None);
        }
        self.vfs.stat(&self.name).map_or(Ok(Hold::None), |stat| self.hold(stat.key))
    }

    /// True if this request is to wait for the client of a persistent Open, also of one whose cached data
    /// could be broken: it could not come before.
    pub(super) fn is_early(&self) -> bool {
        let is_in_grace = |share: &Share| share.clustered && share.life.grace().is_some();
        self.rq.tree().is_ok_and(|tree| is_in_grace(&tree.share))
            && self.hold_by_name() != Ok(Hold::None)
    }

    /// Like [`Self::check_held`], for a share that has come from another server just now: until its
    /// grace is over, the clients that had files open there come first, and this request waits for
    /// them.
    pub(super) fn await_holders(&self) -> Pin<Box<dyn Future<Output = Result<(), Status>> + '_>> {
        Box::pin(async {
            let is_free = || self.hold_by_name() == Ok(Hold::None);
            let share = &self.rq.tree()?.share;
            // A request on a thread of a pool keeps the thread while it waits. The clients that it waits
            // for need threads, too, so only a few wait, and others have what the grace would end with.
            let pool = share.pool().map_or(&self.rq.server().blocking_pool, |pool| pool);
            let place = blocking_pool::is_here().then(|| pool.grace_place());
            if !is_free()
                && place.as_ref().is_none_or(Option::is_some)
                && let Some(until) = share.life.grace()
            {
                let came = self.rq.server().durables.clients_came(until, is_free);
                self.rq.cancellation.unless_told(came).await.ok_or(Status::CANCELLED)?;
                self.rq.still_served()?;
            }
            self.check_held()
        })
    }

    /// Fails while an Open of the file `key`, which is about to be opened, waits for its client.
    pub(super) fn check_free(&self, key: FileKey) -> Result<(), Status> {
        let is_free = !self.rq.connection.is_smb3() || self.hold(key)? == Hold::None;
        if is_free { Ok(()) } else { Err(Status::FILE_NOT_AVAILABLE) }
    }

    fn hold(&self, key: FileKey) -> Result<Hold, Status> {
        let client = self.rq.connection.negotiated()?.client_guid;
        Ok(self.rq.server().durables.hold(key, client))
    }

    /// MS-SMB2 3.3.5.9.13: the application runs on another machine now; what it
    /// had open on the first is closed.
    pub(super) fn take_over(&self) -> Result<(), Status> {
        let Some(instance) = self.wanted.durable.app_instance(self.rq) else { return Ok(()) };
        let rq = self.rq;
        let many = rq.server().durables.count_of_app(instance.id) > OPENS_OF_INSTANCE_COMPARED;
        if many && host::gives_up(usize::MAX) {
            return Err(Fault::Busy.status());
        }
        let client = rq.connection.negotiated()?.client_guid;
        let opens: Vec<_> = rq
            .server()
            .durables
            .of_app(instance.id)
            .into_iter()
            .filter(|(open, _)| open.survival().is_some_and(|s| s.client_guid != client))
            .filter(|(open, _)| self.is_of_share(open) && self.is_of_file(open))
            .collect();
        for (open, _) in &opens {
            check_version(open.survival().and_then(|s| s.app_instance), instance)?;
        }
        if opens.is_empty() {
            return Ok(());
        }
        let may_read = self.may_read();
        let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
        for (open, session) in opens {
            // Deviation: MS-SMB2 3.3.5.9.13 closes an Open without a CreateGuid whatever access the
            // new Open has. The application instance id is no secret, so a user without access
            // could close files of others; this server requires the right to read or the same
            // owner.
            let is_plain = |s: &Survival| s.create_guid.is_none() && s.is_owned_by(&identity.user);
            let is_own_plain = open.survival().is_some_and(is_plain);
            if may_read || (is_own_plain && !rq.tree()?.share.continuous) {
                self.force_closed(&open, session);
            }
        }
        Ok(())
    }

    fn force_closed(&self, open: &Arc<Open>, session: Option<u64>) {
        let server = self.rq.server();
        match session.and_then(|id| server.session(id)) {
            // A concurrent CLOSE may have closed the Open, so errors are ignored.
            Some(session) => {
                for deletion in session.close_open(open, &server.files).unwrap_or_default() {
                    drop(server.finish_deletion(open, deletion));
                }
            }
            None => {
                if let Some(open) = server.durables.give_up_one(open.file_id.persistent) {
                    server.close_here(&open);
                }
            }
        }
    }

    fn is_of_file(&self, open: &Open) -> bool {
        open.file().is_ok_and(|file| {
            let name = file.name();
            let fold = |text: String| fold_name(&text);
            fold(name.to_string()) == fold(self.name.to_string())
        })
    }

    /// True when this user could read the file.
    fn may_read(&self) -> bool {
        let Ok(opened) = self.vfs.open(&self.name, &protection::LOOK) else { return false };
        let node: &dyn Node = &*opened.node;
        access::maximal(self, node, &opened.stat)
            .unwrap_or(AccessMask::EMPTY)
            .contains(AccessMask::FILE_GENERIC_READ)
    }
}

/// Fails unless a replay for a persistent Open asks for one, too.
fn check_persistent(open: &Open, persistent: bool) -> Result<(), Status> {
    let is_persistent = open.survival().is_some_and(Survival::is_persistent);
    if is_persistent && !persistent { Err(Status::INVALID_PARAMETER) } else { Ok(()) }
}

/// A later instance may close what an earlier one has open, none else.
fn check_version(before: Option<AppInstance>, now: AppInstance) -> Result<(), Status> {
    match (before.and_then(|before| before.version), now.version) {
        (None, _) => Ok(()),
        (Some(before), Some(now)) if before < now => Ok(()),
        (Some(_), _) => Err(Status::FILE_FORCED_CLOSED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::create_context::AppInstanceVersion;
    use frevo_wire::dtyp::Guid;

    fn instance(version: Option<(u64, u64)>) -> AppInstance {
        let version = version.map(|(high, low)| AppInstanceVersion { high, low });
        AppInstance { id: Guid([1; 16]), version }
    }

    /// MS-SMB2 3.3.5.9.13, row by row.
    #[test]
    fn only_a_later_instance_takes_over() {
        let closed = Err(Status::FILE_FORCED_CLOSED);
        let rows = [
            (None, None, Ok(())),
            (None, Some((1, 1)), Ok(())),
            (Some((1, 1)), None, closed),
            (Some((1, 1)), Some((1, 1)), closed),
            (Some((1, 2)), Some((1, 1)), closed),
            (Some((2, 0)), Some((1, 9)), closed),
            (Some((1, 1)), Some((1, 2)), Ok(())),
            (Some((1, 9)), Some((2, 0)), Ok(())),
        ];
        for (before, now, expected) in rows {
            let verdict = check_version(Some(instance(before)), instance(now));
            assert_eq!(verdict, expected, "{before:?} then {now:?}");
        }
    }
}
