//! Reconnecting an Open in a new session: MS-SMB2 3.2.4.4.

use std::sync::Arc;

use frevo_wire::HeaderFlags;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::create_context::{CreateContext, DurableHandleFlags, DurableReconnectV2};
use frevo_wire::file_id::FileId;

use super::closing::close_call;
use super::contexts::{contexts_of, lease_context, oplock_of};
use super::{Binding, Open, Phase, is_of_tree};
use crate::Status;
use crate::connection::Call;
use crate::error::Cause;
use crate::open::create::{Ask, Durability, Opened};
use crate::session::bound::Bound;
use crate::session::lease::Granted;
use crate::session::{Failure, Live};

type Outcome<T> = Result<T, Failure>;

impl Open {
    /// Returns the FileId in `live`, after reconnecting the Open if that is a new session.
    pub(super) async fn place(&self, live: &Arc<Live>, bound: Bound) -> Outcome<FileId> {
        if let Some(file_id) = self.file_id_in(live)? {
            return Ok(file_id);
        }
        let _turn = self.reconnecting.lock().await;
        if let Some(file_id) = self.file_id_in(live)? {
            return Ok(file_id);
        }
        if self.state.lock().is_lost {
            return Err(Cause::HandleLost.into());
        }
        let opened = match self.reconnect(live, bound).await {
            // Only the tree connect was lost. The Open may still exist, so the caller connects to
            // the share and tries again.
            Err(gone) if is_of_tree(&gone) => return Err(gone),
            Err(Failure::Final(_)) => {
                // The new handle is not resilient until the client has asked for it again.
                self.state.lock().asked_resiliency = false;
                let opened = self.reopen(live, bound).await.inspect_err(|why| {
                    if matches!(why, Failure::Final(_)) && !is_of_tree(why) {
                        self.state.lock().is_lost = true;
                    }
                })?;
                // The file was opened with a new CREATE. Another client may have changed it
                // meanwhile, so the lease counts as a new one.
                self.lease.granted(bound, opened.lease.unwrap_or(Granted::NOTHING));
                opened
            }
            other => {
                let opened = other?;
                if let Some(granted) = self.granted(&opened) {
                    self.lease.kept(bound, granted);
                }
                opened
            }
        };
        let (file_id, durability) = (opened.file_id, opened.durability);
        let mut state = self.state.lock();
        state.is_leased = opened.lease.is_some();
        state.binding = Binding { bound, file_id, durability };
        Ok(file_id)
    }

    /// The FileId if the Open is in the session `live`.
    fn file_id_in(&self, live: &Live) -> Outcome<Option<FileId>> {
        let state = self.state.lock();
        if state.phase == Phase::Closed {
            return Err(Failure::Final(Status::FILE_CLOSED.into()));
        }
        let is_here = state.binding.bound.generation == live.generation;
        Ok(is_here.then_some(state.binding.file_id))
    }

    /// MS-SMB2 3.2.4.4: reconnects a durable Open.
    async fn reconnect(&self, live: &Arc<Live>, bound: Bound) -> Outcome<Opened> {
        let (old, is_leased, is_repetition) = {
            let mut state = self.state.lock();
            // The third value is true for a repetition in the same session. The answer to the first
            // attempt may have been lost with a channel.
            let sent_in = state.reconnect_sent_in.replace(live.generation);
            (state.binding, state.is_leased, sent_in == Some(live.generation))
        };
        let context = match old.durability {
            Durability::None => return Err(Cause::HandleLost.into()),
            Durability::V1 => CreateContext::DurableReconnect(old.file_id),
            Durability::V2 { persistent } => {
                CreateContext::DurableReconnectV2(DurableReconnectV2 {
                    file_id: old.file_id,
                    create_guid: self.create_guid,
                    flags: if persistent {
                        DurableHandleFlags::PERSISTENT
                    } else {
                        DurableHandleFlags::EMPTY
                    },
                })
            }
        };
        // MS-SMB2 3.3.5.9.12: the lease context is required as long as the Open has a lease, even
        // one without rights.
        let lease = is_leased.then(|| lease_context(live, &self.lease, self.lease.wire_state()));
        let contexts: Vec<_> = [context].into_iter().chain(lease.flatten()).collect();
        // MS-SMB2 3.3.5.9.13: a reconnect takes nothing over.
        let disposition = CreateDisposition::OPEN;
        let ask = Ask { disposition, app_instance: None, ..self.ask.clone() };
        let flags = if is_repetition && live.knows_replay() {
            HeaderFlags::REPLAY_OPERATION
        } else {
            HeaderFlags::EMPTY
        };
        let mut opened = self.send_create(live, bound, &ask, &contexts, flags).await?;
        // The answer need not repeat the durability, so the old value is kept.
        opened.durability = old.durability;
        Ok(opened)
    }

    /// Opens the file again by its name, if nothing is lost by that.
    async fn reopen(&self, live: &Arc<Live>, bound: Bound) -> Outcome<Opened> {
        let lost = || Failure::Final(Cause::HandleLost);
        let identity = self.identity.ok_or_else(lost)?;
        let has_locks = self.state.lock().locks > 0 && !planted!(LostLock);
        // A handle of an application that fails over may be lost because a later instance has taken the
        // file over, and has closed it since.
        if self.ask.app_instance.is_some() {
            return Err(lost());
        }
        if has_locks || self.ask.options.contains(CreateOptions::DELETE_ON_CLOSE) {
            return Err(lost());
        }
        let ask = Ask { disposition: CreateDisposition::OPEN, ..self.ask.clone() };
        let contexts = contexts_of(&ask, live, bound, self.create_guid, &self.lease);
        let flags = HeaderFlags::EMPTY;
        let opened = match self.send_create(live, bound, &ask, &contexts, flags).await {
            Err(failure @ Failure::Final(_)) if !is_of_tree(&failure) => return Err(lost()),
            other => other?,
        };
        if opened.identity != Some(identity) {
            // The name leads to another file now. The wrong file is closed, and this handle is
            // lost.
            let call = Call { tree_id: bound.tree_id, ..close_call(opened.file_id) };
            let _ = live.ask(call, bound.seal, &[]).await;
            return Err(lost());
        }
        Ok(opened)
    }

    async fn send_create(
        &self,
        live: &Arc<Live>,
        bound: Bound,
        ask: &Ask,
        contexts: &[CreateContext<'_>],
        flags: HeaderFlags,
    ) -> Outcome<Opened> {
        self.lease.asked(bound);
        let oplock = oplock_of(contexts);
        let posix = self.share.is_posix_in(live);
        let name = self.share.named(&self.path, bound, posix);
        let mut call = ask.call(live, &name, oplock, contexts, posix);
        call.tree_id = bound.tree_id;
        call.flags |= flags;
        let message = live.ask(call, bound.seal, &[]).await?;
        Ok(Opened::parse(&message)?)
    }
}
