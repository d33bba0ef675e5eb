//! Durable, persistent and reconnected Opens: MS-SMB2 3.3.5.9.6, .7, .10, .12.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_store::lease::{Granted, OplockLevel};
use frevo_wire::command::create::{self, CreateAction, CreateOptions};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::create_context::{
    CreateContext, DurableHandleFlags, DurableRequestV2, DurableResponseV2, ResponseContext,
};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::{HeaderFlags, Status};

use super::creation::Create;
use super::wanted::DurableWanted;
use crate::base::limits::{
    DURABLE_TIMEOUT, DURABLE_TIMEOUT_MAX, DURABLE_TIMEOUT_V2, PERSISTENT_TIMEOUT,
};
use crate::command::request::Request;
use crate::objects::durable::{Asked, Caching, Reconnect, Survival, Version, record};
use crate::objects::open::{FileOpen, Open};
use crate::objects::review;

/// True for a request that takes up an Open after its connection was lost.
pub(super) fn is_reconnect(request: &create::Request<'_>) -> bool {
    let is_one = |context: CreateContext<'_>| {
        matches!(context, CreateContext::DurableReconnect(_) | CreateContext::DurableReconnectV2(_))
    };
    request.contexts.requests().any(|context| context.is_ok_and(is_one))
}

/// True where persistent Opens are possible: TreeConnect.Share.IsCA and
/// SMB2_GLOBAL_CAP_PERSISTENT_HANDLES.
pub(super) fn is_continuous(rq: &Request<'_>) -> Result<bool, Status> {
    let capabilities = rq.connection.negotiated()?.server_capabilities;
    Ok(rq.tree()?.share.continuous && capabilities.contains(GlobalCapabilities::PERSISTENT_HANDLES))
}

/// Takes up the Open that DHnC or DH2C names.
pub(super) async fn reconnect(
    rq: &Request<'_>,
    request: &create::Request<'_>,
    wanted: &DurableWanted,
) -> Result<Arc<Open>, Status> {
    let (file_id, version) = match (wanted.reconnect, wanted.reconnect_v2) {
        (Some(file_id), _) => (file_id, Version::One),
        (None, Some(asked)) => {
            let version = Version::Two {
                create_guid: asked.create_guid,
                persistent: asked.flags.contains(DurableHandleFlags::PERSISTENT),
                continuous: is_continuous(rq)?,
            };
            (asked.file_id, version)
        }
        (None, None) => return Err(Status::OBJECT_NAME_NOT_FOUND),
    };
    let session = rq.session()?;
    let identity = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let file_name = request.name.to_string().map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let asked = Reconnect {
        file_id,
        version,
        lease: wanted.lease,
        client_guid: rq.connection.negotiated()?.client_guid,
        user: &identity.user,
        file_name: &file_name,
        share: &rq.tree()?.share.name,
        is_replay: rq.header.flags.contains(HeaderFlags::REPLAY_OPERATION),
    };
    let open = rq.server().durables.reconnect(&asked, session.id).await?;
    attach(rq, &open)?;
    Ok(open)
}

/// Puts an Open that the table has attached to this session into it. When the session ends
/// meanwhile, or the share allows less now than the Open may do, the Open waits for its client again.
pub(super) fn attach(rq: &Request<'_>, open: &Arc<Open>) -> Result<(), Status> {
    open.set_tree(Arc::clone(rq.tree()?));
    open.channel_sequence.lock().reconnect(rq.header.channel_sequence());
    let attached = if review::is_within(open.granted_access, rq.tree()?) {
        rq.session()?.attach_open(open)
    } else {
        Err(Status::ACCESS_DENIED)
    };
    attached.inspect_err(|_| {
        if !open.disconnect() {
            rq.server().close_here(open);
        }
        rq.server().start_scavenger();
    })
}

impl Create<'_> {
    /// "Successful Open Initialization": makes the Open one that outlives its
    /// connection, as far as it was asked for and can be.
    pub(super) fn grant_survival(
        &self,
        open: &Arc<Open>,
        action: CreateAction,
    ) -> Result<(), Status> {
        let wanted = &self.wanted.durable;
        let app_instance = wanted.app_instance(self.rq);
        let durables = &self.rq.server().durables;
        let persistent =
            self.wants_persistent()? && durables.takes_persistent(open.file()?.cell.key());
        let durable = persistent || self.is_durable(open);
        if wanted.request_v2.is_none() && app_instance.is_none() && !durable {
            return Ok(());
        }
        let session = self.rq.session()?;
        let identity = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
        let survival = open.survival_or(durables, || {
            Survival::new(
                &identity.user,
                session.client_guid,
                wanted.request_v2.map(|request| request.create_guid),
                app_instance,
                self.asked(),
                action,
            )
        });
        let is_directory = open.file()?.is_directory;
        if durable && !is_directory {
            survival.set_durable(self.timeout(persistent));
            survival.set_persistent(persistent);
        }
        let works = AccessMask::READ_DATA
            | AccessMask::EXECUTE
            | AccessMask::WRITE_DATA
            | AccessMask::APPEND_DATA
            | AccessMask::DELETE;
        let replayable =
            survival.is_persistent() || (!is_directory && open.granted_access.intersects(works));
        survival.set_replay_eligible(wanted.request_v2.is_some() && replayable);
        durables.add(open, session.id)
    }

    /// MS-SMB2 3.3.5.9: on a continuously available share, what was acknowledged is there after a
    /// crash.
    pub(super) fn write_through(&self, open: &Open) -> Result<(), Status> {
        if is_continuous(self.rq)? && !planted!(WriteNotThrough) {
            let mode = &open.file()?.mode;
            mode.fetch_or(u64::from(CreateOptions::WRITE_THROUGH.0), Ordering::Relaxed);
        }
        Ok(())
    }

    /// A persistent Open is on stable storage before its client knows of it. One
    /// that cannot be kept there is not persistent, and its client is told so.
    pub(super) async fn keep(&self, open: &Open) -> Result<(), Status> {
        if !is_continuous(self.rq)? {
            return Ok(());
        }
        let file = open.file()?;
        if record::keep(self.rq.server(), open).await.is_err() {
            self.rq.server().durables.not_kept(open);
        }
        // The new Open may have changed the lease state of other Opens of the file, so their records are
        // written.
        let _ = record::keep_others(self.rq.server(), &file.cell, open).await;
        Ok(())
    }

    /// SMB2_DHANDLE_FLAG_PERSISTENT, where it can be had: not in a snapshot,
    /// which has nothing that a crash could take, nor of a stream, which needs more
    /// to be found again than a record has.
    fn wants_persistent(&self) -> Result<bool, Status> {
        let is_live = self.rq.tree()?.share.vfs().is_some_and(|live| Arc::ptr_eq(live, self.vfs));
        let is_plain = self.name.stream().is_none();
        let asked = self
            .wanted
            .durable
            .request_v2
            .is_some_and(|request| request.flags.contains(DurableHandleFlags::PERSISTENT));
        Ok(asked && is_live && is_plain && is_continuous(self.rq)?)
    }

    /// MS-SMB2 3.3.5.9.6, 3.3.5.9.10: durability goes with a handle that the
    /// client may keep by itself.
    fn is_durable(&self, open: &Open) -> bool {
        let wanted = &self.wanted.durable;
        (wanted.request || wanted.request_v2.is_some()) && Caching::of(open).keeps_handle()
    }

    /// Open.DurableOpenTimeout.
    fn timeout(&self, persistent: bool) -> Duration {
        match self.wanted.durable.request_v2 {
            None => DURABLE_TIMEOUT,
            Some(DurableRequestV2 { timeout: 0, .. }) if persistent => PERSISTENT_TIMEOUT,
            Some(DurableRequestV2 { timeout: 0, .. }) => DURABLE_TIMEOUT_V2,
            Some(request) => {
                Duration::from_millis(u64::from(request.timeout)).min(DURABLE_TIMEOUT_MAX)
            }
        }
    }

    pub(super) fn asked(&self) -> Asked {
        Asked {
            file_name: self.request.name.to_string().unwrap_or_default(),
            desired_access: self.request.desired_access,
            share_access: self.request.share_access,
            create_options: self.request.create_options,
        }
    }

    /// The oplock in the answer to a request for an existing Open.
    ///
    /// Windows: a replay that asks for another oplock is told that it has it,
    /// and the Open keeps the one it has; smbtorture's replay-dhv2-oplock2.
    pub(super) fn told(&self, file: &FileOpen) -> Granted {
        match (file.held(), self.request.requested_oplock_level) {
            (held @ Granted::Lease { .. }, _) => held,
            (held, _) if self.wanted.durable.is_reconnect() => held,
            (_, OplockLevel::NONE | OplockLevel::LEASE) => Granted::Nothing,
            (_, level) => Granted::Oplock(level),
        }
    }

    /// DHnQ or DH2Q of the response.
    pub(super) fn answer_survival(&self, open: &Open) -> Option<ResponseContext<'static>> {
        let wanted = &self.wanted.durable;
        let survival = open.survival().filter(|survival| survival.is_durable())?;
        let is_told = match Caching::of(open) {
            Caching::Lease { .. } => true,
            _ => self.request.requested_oplock_level == OplockLevel::BATCH,
        };
        if wanted.request_v2.is_some() && (is_told || survival.is_persistent()) {
            let persistent = survival.is_persistent();
            let flags =
                if persistent { DurableHandleFlags::PERSISTENT } else { DurableHandleFlags::EMPTY };
            let timeout = survival.durable_timeout().as_millis();
            let timeout = u32::try_from(timeout).unwrap_or(u32::MAX);
            return Some(ResponseContext::DurableV2(DurableResponseV2 { timeout, flags }));
        }
        // As on Windows 8 and later, the response to a reconnect has no durable-handle context.
        (wanted.request && !wanted.is_reconnect()).then_some(ResponseContext::Durable)
    }
}
