//! Closing an Open: MS-SMB2 3.2.4.5.

use std::sync::Arc;

use frevo_wire::Command;
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::file_id::FileId;
use parking_lot::Mutex;

use super::{Open, Phase, State};
use crate::Status;
use crate::connection::Call;
use crate::error::{Cause, Result};
use crate::limits::ATTEMPTS;
use crate::open::create::Durability;
use crate::sequences::Sequences;
use crate::session::Failure;
use crate::share::Replay;

/// The time at which a CLOSE is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    AtOnce,
    /// With the next request, or after a moment.
    WithNext,
}

impl Open {
    /// Closes it, even if the caller gives up waiting. Later requests fail with FILE_CLOSED.
    pub(crate) async fn close(self: &Arc<Self>, haste: Haste) -> Result<()> {
        self.close_asking(haste, CloseFlags::EMPTY).await.map(drop)
    }

    /// As [`Self::close`], with flags. Returns the attributes of the file if they were asked for
    /// and the server sent them.
    pub(crate) async fn close_asking(
        self: &Arc<Self>,
        haste: Haste,
        flags: CloseFlags,
    ) -> Result<Option<close::Response>> {
        if !self.begin_closing() {
            return Ok(None);
        }
        let mut closing = Closing { open: self, is_done: false };
        let done = self.finish_closing(haste, flags).await;
        closing.is_done = true;
        done
    }

    /// Moves on to [`Phase::Closing`]. Returns false if another caller closes it.
    fn begin_closing(&self) -> bool {
        let mut state = self.state.lock();
        let is_first = state.phase == Phase::InUse;
        if is_first {
            state.phase = Phase::Closing;
        }
        is_first
    }

    /// Moves on to [`Phase::Closed`]. It may be begun again after it was given up.
    async fn finish_closing(
        &self,
        haste: Haste,
        flags: CloseFlags,
    ) -> Result<Option<close::Response>> {
        // The lease is left before the CLOSE, so that a lease granted after the CLOSE counts as a
        // new one.
        self.leave_lease();
        let done = self.send_close(haste, flags).await;
        self.state.lock().phase = Phase::Closed;
        done
    }

    /// Takes it out of its lease, however closing ends.
    fn leave_lease(&self) {
        if std::mem::take(&mut self.state.lock().is_in_lease) {
            self.lease.left();
        }
    }

    async fn send_close(&self, haste: Haste, flags: CloseFlags) -> Result<Option<close::Response>> {
        let binding = self.state.lock().binding;
        let live = self.share.session().inner.current();
        let is_here = live.is_some_and(|live| live.generation == binding.bound.generation);
        // Handles end with their session, so nothing is left to close, unless the handle is
        // durable. Then it is reconnected and closed.
        if !is_here && binding.durability == Durability::None {
            return Ok(None);
        }
        let mut was_sent = false;
        let closed = self.ask(Replay::Idempotent, "close", &[Status::FILE_CLOSED], |id| {
            was_sent = true;
            Ok(Call { is_unhurried: haste == Haste::WithNext, ..close_with(id, flags) })
        });
        match closed.await {
            // An earlier CLOSE was sent and its answer lost. The handle does not exist any more, so
            // that CLOSE was carried out.
            Err(error) if was_sent && matches!(error.cause(), Cause::HandleLost) => Ok(None),
            Err(error) => Err(error),
            // The handle is closed, even if the answer has no attributes to return.
            Ok(answer) => {
                let response = close::Response::parse(answer.bytes()).ok();
                Ok(response.filter(|r| r.flags.contains(CloseFlags::POSTQUERY_ATTRIB)))
            }
        }
    }

    /// A copy of the Open, which closes it after all others have let go.
    fn taken_over(&mut self) -> Self {
        let old = self.state.get_mut();
        let state = State {
            // Another object owns the handle now and closes it; dropping this one must send
            // nothing.
            phase: Phase::Closing,
            binding: old.binding,
            is_lost: false,
            is_leased: old.is_leased,
            is_in_lease: std::mem::take(&mut old.is_in_lease),
            asked_resiliency: false,
            locks: old.locks,
            reconnect_sent_in: old.reconnect_sent_in,
        };
        Self {
            share: self.share.clone(),
            url: std::mem::take(&mut self.url),
            path: std::mem::take(&mut self.path),
            ask: self.ask.clone(),
            create_guid: self.create_guid,
            lease: Arc::clone(&self.lease),
            identity: self.identity,
            is_posix: self.is_posix,
            state: Mutex::new(state),
            reconnecting: tokio::sync::Mutex::new(()),
            sequences: Sequences::default(),
            thrift: Arc::default(),
            counted: Arc::clone(&self.counted),
        }
    }
}

impl Drop for Open {
    /// Closes it in the background.
    fn drop(&mut self) {
        let (phase, is_lost, binding) = {
            let state = self.state.get_mut();
            (state.phase, state.is_lost, state.binding)
        };
        if phase != Phase::InUse {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.leave_lease();
        };
        let is_closed = self.share.session().inner.is_closed();
        if binding.durability != Durability::None && !is_lost && !is_closed {
            // The handle was dropped without a CLOSE. The server would keep it, and it could block
            // other clients. So a task closes it.
            let left = self.taken_over();
            runtime
                .spawn(async move { left.finish_closing(Haste::AtOnce, CloseFlags::EMPTY).await });
            return;
        }
        self.leave_lease();
        let live = self.share.session().inner.current();
        let Some(live) = live.filter(|live| live.generation == binding.bound.generation) else {
            return;
        };
        // The task holds a copy of `share`, which keeps the session alive until the CLOSE is sent.
        let share = self.share.clone();
        runtime.spawn(async move {
            // A CLOSE whose channel is lost is repeated, because the server keeps the Open and its
            // locks as long as the session has another channel.
            for _ in 0..ATTEMPTS {
                let call = Call { tree_id: binding.bound.tree_id, ..close_call(binding.file_id) };
                let closed = live.ask(call, binding.bound.seal, &[]).await;
                live.prune();
                if !matches!(closed, Err(Failure::Gone | Failure::Unsent)) || !live.is_alive() {
                    break;
                }
            }
            drop(share);
        });
    }
}

/// An Open that is being closed. Dropping it unfinished finishes in the background.
struct Closing<'a> {
    open: &'a Arc<Open>,
    is_done: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let open = Arc::clone(self.open);
        runtime.spawn(async move { open.finish_closing(Haste::AtOnce, CloseFlags::EMPTY).await });
    }
}

/// Makes a CLOSE of a handle.
pub(super) fn close_call(file_id: FileId) -> Call<'static> {
    close_with(file_id, CloseFlags::EMPTY)
}

fn close_with(file_id: FileId, flags: CloseFlags) -> Call<'static> {
    let request = close::Request { flags, file_id };
    Call::new(Command::CLOSE, |w| request.encode(w))
}
