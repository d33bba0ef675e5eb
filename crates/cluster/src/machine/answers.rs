//! The ends of requests, and what they mean.

use alloc::string::ToString;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{Fault, Txn, TxnAnswer};

use super::Machine;
use super::requests::{Attempt, Pending, Purpose, SILENCE};
use crate::interface::{Answer, Event, Output, Request, RequestId};
use crate::time::after;

impl Machine {
    /// Sends a request.
    pub(super) fn send(&mut self, purpose: Purpose, request: Request) {
        let id = self.requests.number();
        self.requests.pending.insert(id, Pending { purpose, sent: self.now });
        self.outputs.push_back(Output::Request(id, request));
    }

    /// Sends a transaction.
    pub(super) fn send_txn(&mut self, purpose: Purpose, txn: Txn) {
        self.send(purpose, Request::Txn(txn));
    }

    /// Gives up requests whose answers are late: etcd may have carried them out, or may do so later.
    pub(super) fn expire(&mut self) {
        let patience = self.settings.timing.patience();
        while let Some((&id, pending)) = self.requests.pending.first_key_value() {
            if after(pending.sent, patience) > self.now {
                return;
            }
            let fault = Fault::Unavailable("the answer is late".to_string());
            self.on_answer(id, Err(fault));
        }
    }

    pub(super) fn on_answer(&mut self, id: RequestId, answer: Result<Answer, Fault>) {
        // A late answer to a request that was given up is ignored.
        let Some(Pending { purpose, sent }) = self.requests.pending.remove(&id) else { return };
        if !matches!(purpose, Purpose::Batch(_) | Purpose::Load(_)) {
            self.is_changed = true;
        }
        let fault = match answer {
            Ok(answer) => match self.on_success(purpose.clone(), sent, answer) {
                Ok(()) => {
                    self.note_answer();
                    self.requests.end_refusals(&purpose);
                    return;
                }
                Err(what) => Fault::Malformed(what),
            },
            Err(fault) => fault,
        };
        match &fault {
            Fault::Unavailable(_) | Fault::Malformed(_) => self.note_silence(&fault),
            Fault::LeaseNotFound | Fault::Compacted | Fault::Refused(_) | Fault::NoSpace(_) => {
                self.note_answer();
            }
        }
        self.on_fault(purpose, fault);
    }

    fn note_answer(&mut self) {
        if self.requests.is_silent() {
            self.note(Event::EtcdAnswers);
        }
        self.requests.failures = 0;
    }

    fn note_silence(&mut self, fault: &Fault) {
        self.requests.failures = self.requests.failures.saturating_add(1);
        if self.requests.failures == SILENCE {
            self.note(Event::EtcdSilent(fault.to_string()));
        }
    }

    /// Counts a refusal, and tells the first one of requests of this kind. Returns their number.
    fn note_refusal(&mut self, purpose: &Purpose, fault: &Fault) -> u32 {
        let why = match fault {
            Fault::Refused(why) | Fault::NoSpace(why) => why,
            _ => return 0,
        };
        let refusals = self.requests.refuse(purpose);
        // Callers of these requests get the reason themselves, so no event is needed.
        let is_told = matches!(purpose, Purpose::Batch(_) | Purpose::Load(_) | Purpose::Command(_))
            && matches!(fault, Fault::Refused(_));
        if refusals == 1 && !is_told {
            self.note(Event::EtcdRefuses(why.clone()));
        }
        refusals
    }

    /// # Errors
    /// If the answer is not one to the request.
    fn on_success(
        &mut self,
        purpose: Purpose,
        sent: Moment,
        answer: Answer,
    ) -> Result<(), &'static str> {
        match (purpose, answer) {
            (Purpose::Grant, Answer::Confirmed(lease)) => self.on_granted(sent, &lease),
            (Purpose::KeepAlive, Answer::Confirmed(lease)) => self.on_kept_alive(sent, &lease),
            (Purpose::Revoke, Answer::Revoked) => self.on_revoked(),
            (Purpose::RevokePredecessor, Answer::Revoked) => self.settings.predecessor = None,
            (purpose, Answer::Txn(answer)) => return self.on_txn(purpose, sent, &answer),
            _ => return Err("the answer is to another kind of request"),
        }
        Ok(())
    }

    fn on_txn(
        &mut self,
        purpose: Purpose,
        sent: Moment,
        answer: &TxnAnswer,
    ) -> Result<(), &'static str> {
        match purpose {
            Purpose::Number => return self.on_numbered(answer),
            Purpose::Register => return self.on_registered(answer),
            Purpose::Advertise => self.on_advertised(answer),
            Purpose::Verify(held) => return self.on_verified(&held, sent, answer),
            Purpose::Inherit(held) => self.on_inherited(&held),
            Purpose::ReadView => return self.on_view_part(answer),
            Purpose::Take(share) => return self.on_taken(&share, sent, answer),
            Purpose::Release(held) => self.on_released(&held),
            // The answer is not needed, because the watch will report the deleted key.
            Purpose::Resign(share) => self.retry_resign(&share, self.again()),
            Purpose::DropMove(share) => self.on_move_dropped(&share, answer),
            Purpose::Batch(held) => self.on_batch(&held, answer),
            Purpose::Load(ticket) => self.on_load_part(ticket, answer),
            Purpose::Command(id) => self.on_command_txn(id, answer),
            _ => return Err("a transaction was not asked for"),
        }
        Ok(())
    }

    fn on_fault(&mut self, purpose: Purpose, fault: Fault) {
        if fault == Fault::LeaseNotFound && purpose.is_of_lease() {
            self.on_lease_ended();
            return;
        }
        let refusals = self.note_refusal(&purpose, &fault);
        let again = Attempt::Due(after(self.now, self.requests.pause(refusals)));
        match purpose {
            Purpose::Grant | Purpose::Register | Purpose::Revoke => self.retry_membership(again),
            Purpose::Number => self.numbering = Some(again),
            Purpose::Advertise => {
                // etcd may have the present registration or the one before.
                self.advertised = None;
                self.advertising = again;
            }
            Purpose::KeepAlive | Purpose::Verify(_) => {
                if let Attempt::Due(at) = again {
                    self.round_at = self.round_at.min(at);
                }
            }
            Purpose::RevokePredecessor | Purpose::Inherit(_) => self.inheriting = again,
            Purpose::ReadView => self.on_view_fault(again),
            Purpose::Take(share) => self.retry_take(&share, again),
            Purpose::Release(held) => self.retry_release(&held, again),
            Purpose::Resign(share) => self.retry_resign(&share, again),
            Purpose::DropMove(share) => self.retry_move_drop(&share, again),
            Purpose::Batch(held) => self.on_batch_fault(&held, &fault, again),
            Purpose::Load(ticket) => self.on_load_fault(ticket, fault, again),
            Purpose::Command(id) => self.on_command_fault(id, fault, again),
        }
    }
}
