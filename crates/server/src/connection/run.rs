//! Running a handler: interim responses (MS-SMB2 3.3.4.2), CANCEL (3.3.5.16) and the end
//! of an operation's session, tree connect or Open.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use frevo_wire::{Command, Status};
use tokio::time::sleep;

use super::Connection;
use super::answer::FrameBytes;
use super::assemble::{Assembly, send_interim};
use super::receive::{Element, Opened};
use super::waiting::Cancel;
use crate::base::limits::{INTERIM_AFTER, WAITING_BYTES};
use crate::command::blocking_requests;
use crate::command::handled::handled;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::{Row, Waits};
use crate::objects::activity::Spent;
use crate::objects::ledger::Kind;
use crate::objects::refusal::{Outcome, Refusal};
use crate::protection::{Claim, check_session, verify};

impl Connection {
    /// Runs a handler, and returns the time that it took too.
    pub(super) async fn run(
        &self,
        rq: &Request<'_>,
        row: &'static Row,
        is_last: bool,
        frame_bytes: &FrameBytes<'_>,
        out: &mut Response,
        assembly: &mut Assembly,
    ) -> (Outcome, Option<u64>, Spent) {
        let handler = pin!(blocking_requests::dispatch(rq, row, out));
        let mut handler = pin!(handled(rq, handler));
        if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(handler.as_mut().poll(cx))).await {
            return (outcome, None, Spent { busy: rq.busy.get(), ..Spent::default() });
        }
        let began = Instant::now();
        // Most requests end at their first poll and do not come here. For the other requests the
        // state of this future is on the heap, so that it does not enlarge the state of every
        // request.
        let going_on = Box::pin(self.run_on(rq, row, is_last, frame_bytes, handler, assembly));
        let (outcome, async_id) = going_on.await;
        (outcome, async_id, spent(rq, row, began.elapsed()))
    }

    /// Goes on with a handler; one that takes long is announced by an interim response,
    /// one that waits by nature can be cancelled.
    async fn run_on(
        &self,
        rq: &Request<'_>,
        row: &'static Row,
        is_last: bool,
        frame_bytes: &FrameBytes<'_>,
        handler: Pin<&mut impl Future<Output = Outcome>>,
        assembly: &mut Assembly,
    ) -> (Outcome, Option<u64>) {
        debug_assert!(row.waits != Waits::Never, "{} waits", rq.header.command);
        if matches!(row.waits, Waits::Never | Waits::Silent) {
            return (handler.await, None);
        }
        // An interim response is sent for the last request of a compound. As on Windows, it is also
        // sent for a CREATE at the beginning (smbtorture's compound_async.getinfo_middle).
        let announces = is_last || (rq.header.command == Command::CREATE && assembly.is_empty());
        if !announces {
            // In the middle of a compound no interim response can be sent, so a request that would
            // have to wait fails, as on Windows.
            return match row.waits {
                Waits::Cancellable => (Err(Status::INTERNAL_ERROR.into()), None),
                // Any other handler may wait for other clients, but stops if the connection ends.
                _ => (until(rq, self.ended(), handler).await, None),
            };
        }
        let holder = match &rq.session {
            Some(session) => Arc::clone(session.holder()),
            None => self.tabs.holder(),
        };
        let bytes = self.incoming.request_bytes.get() + WAITING_BYTES + frame_bytes.held();
        let charge = holder.charge(Kind::Waiting, bytes).ok();
        let entered =
            charge.as_ref().and_then(|_| self.waiting.borrow_mut().enter(&rq.header, row));
        let Some((async_id, cancel)) = entered else {
            // A READ that a limit of rate holds back is from a file: it does not wait by nature.
            let is_held = rq.pace.is_held.get();
            rq.pace.is_unannounced.set(true);
            return match row.waits {
                // The memory limits allow no further waiting request. The handler continues without
                // an interim response, but fails as soon as it has to wait for other clients. For
                // limits of rate it waits.
                Waits::SlowCancellable if !is_held => {
                    (Err(Status::INSUFFICIENT_RESOURCES.into()), None)
                }
                Waits::Slow | Waits::SlowUnannounced | Waits::SlowCancellable => {
                    let outcome = match until(rq, rq.cancellation.awaited(), handler).await {
                        Err(Refusal::Status(Status::CANCELLED)) => {
                            Err(Status::INSUFFICIENT_RESOURCES.into())
                        }
                        outcome => outcome,
                    };
                    (outcome, None)
                }
                _ => (Err(Status::INSUFFICIENT_RESOURCES.into()), None),
            };
        };
        // The charge of the waiting request includes its frame, so the frame's own charge ends.
        frame_bytes.change(0);
        let answered = self.wait(rq, row, async_id, &cancel, handler, assembly).await;
        self.waiting.borrow_mut().leave(async_id);
        answered
    }

    async fn wait(
        &self,
        rq: &Request<'_>,
        row: &'static Row,
        async_id: u64,
        cancel: &Cancel,
        mut handler: Pin<&mut impl Future<Output = Outcome>>,
        assembly: &mut Assembly,
    ) -> (Outcome, Option<u64>) {
        let cancellable = !matches!(row.waits, Waits::Slow | Waits::SlowUnannounced);
        // The end of its session, tree connect or Open also ends the wait of this request.
        let mut over = pin!(rq.given_up());
        if row.waits == Waits::SlowUnannounced {
            tokio::select! {
                biased;
                outcome = handler.as_mut() => return (outcome, None),
                () = rq.cancellation.awaited() => {}
                () = sleep(INTERIM_AFTER) => {}
            }
            // One that waits for a limit of rate waits for no other client: as a slow one it is announced.
            if rq.cancellation.is_awaited() && !rq.pace.is_held.get() {
                let stopped = async {
                    tokio::select! {
                        biased;
                        _ = cancel.told() => {}
                        () = &mut over => {}
                    }
                };
                return (until(rq, stopped, handler).await, None);
            }
        } else if row.waits != Waits::Cancellable {
            tokio::select! {
                biased;
                outcome = handler.as_mut() => return (outcome, None),
                status = cancel.told(), if cancellable => {
                    return (Err(status.into()), None);
                }
                () = &mut over, if cancellable => {
                    return (Err(Status::CANCELLED.into()), None);
                }
                () = rq.cancellation.awaited() => {}
                () = sleep(INTERIM_AFTER) => {}
            }
        }
        // Responses to earlier requests of the compound precede the interim response.
        assembly.flush(self);
        send_interim(self, rq, async_id, assembly);
        let stopped = async {
            tokio::select! {
                biased;
                status = cancel.told() => status,
                () = &mut over => Status::CANCELLED,
            }
        };
        if !cancellable {
            // The handler must not be dropped in the middle, so `stopped` takes effect only while
            // it waits for other clients.
            return (until(rq, stopped, handler).await, Some(async_id));
        }
        let outcome = tokio::select! {
            biased;
            outcome = handler => outcome,
            status = stopped => Err(status.into()),
        };
        (outcome, Some(async_id))
    }

    /// MS-SMB2 3.3.5.16: no answer, whatever happens. It must come from the
    /// session of what it cancels, protected as that session demands.
    pub(super) fn cancel(&self, element: &Element, opened: &mut Opened) {
        let header = &element.header;
        let sealed = opened.sealed.is_some();
        let message = opened.frame.get_mut(element.range.clone()).unwrap_or_default();
        let Some(channel) = self.members.channel(header.session_id) else { return };
        if opened.sealed.as_ref().is_some_and(|seal| seal.session.id != channel.session.id) {
            // The message was encrypted by another session, so it does not prove that its sender
            // may use this session.
            return;
        }
        let row = element.row;
        let rule = row.signing;
        let claim = Claim { message, header, rule, is_sealed: sealed, checked: None, at: 0 };
        if verify(&self.keyring(), claim).is_ok()
            && check_session(&self.info, &channel.session, row.when_expired, sealed).is_ok()
        {
            let is_one_cancelled = self.waiting.borrow().cancel(header);
            self.has_cancelled.set(is_one_cancelled);
        }
    }
}

/// The time of a request that did not end at once but waited for `pending`.
fn spent(rq: &Request<'_>, row: &'static Row, pending: Duration) -> Spent {
    let others = match row.waits {
        Waits::Cancellable => pending,
        _ => rq.cancellation.waited().min(pending),
    };
    let held = rq.pace.held.get();
    // Time on the core thread between two waits counts in `busy` and in `medium`, but it is short.
    let medium = pending.saturating_sub(others).saturating_sub(held);
    Spent { busy: rq.busy.get(), medium, others, held }
}

/// Runs a handler to its end. Once `stopped` is over, the handler fails with CANCELLED as soon as
/// it waits for other clients.
async fn until<T>(
    rq: &Request<'_>,
    stopped: impl Future<Output = T>,
    mut handler: Pin<&mut impl Future<Output = Outcome>>,
) -> Outcome {
    tokio::select! {
        biased;
        outcome = handler.as_mut() => return outcome,
        _ = stopped => rq.cancellation.tell(),
    }
    handler.await
}
