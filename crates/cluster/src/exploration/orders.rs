//! The server's work: orders, records and storage.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use super::server::{Stopped, Use, Waiting};
use super::world::{Event, Process, Running, World};
use crate::fence::Fence;
use crate::ids::IdSpace;
use crate::interface::{
    Input, LoadPart, Order, Record, RecordChange, RecordEnd, Statement, Ticket,
};
use crate::limits::STOP_TIME;
use crate::names::ShareName;
use crate::settings::Storage;
use crate::{Epoch, RecordId};

impl World {
    pub(super) fn follow(&mut self, process: Process, order: Order) {
        let now = self.now;
        match order {
            Order::ServeUntil(until) | Order::Resume(until) => {
                let Some(running) = self.running(process) else { return };
                running.server.until = Some(until);
                for share in self.shares.clone() {
                    self.judge_service(process, &share);
                }
            }
            Order::Pause => self.judge.pauses += 1,
            // No client of these servers speaks a dialect.
            Order::Dialect(_) => {}
            Order::Generation(generation) => {
                self.judge.generation(generation.0);
                let secret = self.dice.next() as u32;
                if let Some(running) = self.running(process) {
                    running.ids = Some(IdSpace::new(generation, secret));
                }
            }
            Order::Fence { share, lease, fence, .. } => {
                let Fence::Fuse { connection, .. } = fence else {
                    self.judge.violation(format!("{share}: {fence:?} was ordered"));
                    return;
                };
                let is_good = !self.dice.chance(10);
                let delay = self.dice.micros(200, 40_000);
                let fence = Event::Fence { by: process, share, lease, connection, is_good };
                self.later(delay, fence);
            }
            Order::Renew { share } => {
                let delay = self.dice.micros(100, 500_000);
                self.later(delay, Event::Ready { by: process, share });
            }
            Order::Start { share, epoch, .. } => {
                self.judge.start(&share, epoch);
                let Some(running) = self.running(process) else { return };
                let ticket = running.server.ticket();
                running.server.loads.insert(ticket, share.clone());
                let loading = Use::Loading { epoch, records: Vec::new() };
                running.server.uses.insert(share.clone(), loading);
                self.later(
                    Duration::ZERO,
                    Event::Input { to: process, input: Input::Load { share, epoch, ticket } },
                );
            }
            Order::Serve { share, epoch, .. } => self.serve(process, &share, epoch),
            Order::Drain { share, epoch, .. } => {
                self.judge.moves += 1;
                if let Some(running) = self.running(process) {
                    running.server.uses.insert(share.clone(), Use::Draining { epoch });
                }
                let delay = self.dice.micros(500, 100_000);
                self.later(delay, Event::Drained { by: process, share, epoch });
            }
            Order::Left { share, .. } => {
                if let Some(running) = self.running(process) {
                    running.server.uses.insert(share, Use::None);
                }
            }
            Order::Stop { share, epoch, .. } => {
                self.judge.stops += 1;
                let clock = self.clock(process.node);
                if let Some(running) = self.running(process) {
                    let was_used = running.server.uses.insert(share.clone(), Use::None);
                    let is_in_time = running.server.until.is_some_and(|until| clock < until);
                    // Answers that the node began before it stopped may still be sent.
                    if is_in_time && was_used.is_some_and(|used| used.served().is_some()) {
                        running.server.stopped.insert(share.clone(), Stopped { at: now });
                    }
                }
                let delay = self.dice.micros(100, 30_000);
                let stopped = Input::Statement(Statement::Stopped { share: share.clone(), epoch });
                self.later(delay, Event::Input { to: process, input: stopped });
                let ready = delay + self.dice.micros(100, 500_000);
                self.later(ready, Event::Ready { by: process, share });
            }
        }
    }

    /// A node begins to serve a share.
    pub(super) fn serve(&mut self, process: Process, share: &ShareName, epoch: Epoch) {
        self.judge.serve(share, epoch);
        if let Some(running) = self.running(process) {
            running.server.uses.insert(share.clone(), Use::Serving { epoch });
        }
        self.judge_service(process, share);
        self.look_at_storage(process, share);
    }

    /// Nobody else may answer for a share that a node serves.
    pub(super) fn judge_service(&mut self, process: Process, share: &ShareName) {
        let clock = self.clock(process.node);
        let serves = |running: &mut Running| {
            let is_in_time = running.server.until.is_some_and(|until| clock < until);
            is_in_time && running.server.used(share).served().is_some()
        };
        if !self.running(process).is_some_and(serves) {
            return;
        }
        for node in 0..self.nodes.len() {
            let other = Process { node, start: self.nodes[node].start };
            if other == process {
                continue;
            }
            let Some(running) = self.nodes[node].running.as_ref() else { continue };
            // A stopped process answers nothing. Writes that it makes when it continues are judged
            // in `go_on`.
            if running.is_stopped {
                continue;
            }
            let until = running.server.until.map(|until| self.true_time(node, until) + STOP_TIME);
            let may_answer = running.server.used(share).served().is_some()
                && until.is_some_and(|until| until > self.now);
            let stopped = running.server.stopped.get(share);
            let has_just_stopped = stopped.is_some_and(|stopped| stopped.at + STOP_TIME > self.now);
            if may_answer || has_just_stopped {
                let what = format!("{share} is served by {process:?}, and still by {other:?}");
                self.judge.violation(what);
            }
        }
    }

    pub(super) fn record_done(&mut self, process: Process, ticket: Ticket, end: &RecordEnd) {
        let Some(running) = self.running(process) else { return };
        let Some(Waiting { share, sent }) = running.server.waiting.remove(&ticket) else {
            self.judge.violation(format!("{ticket:?} has ended twice"));
            return;
        };
        match end {
            RecordEnd::Done => self.judge.acknowledged(&share, sent),
            RecordEnd::Fenced => {}
            RecordEnd::Failed(why) => self.judge.violation(format!("a record failed: {why}")),
        }
    }

    pub(super) fn loaded(&mut self, process: Process, ticket: Ticket, part: LoadPart) {
        let Some(running) = self.running(process) else { return };
        let Some(share) = running.server.loads.get(&ticket).cloned() else { return };
        let is_last = !matches!(part, LoadPart::Records(_) | LoadPart::Again);
        if is_last {
            running.server.loads.remove(&ticket);
        }
        let Some(Use::Loading { epoch, records }) = running.server.uses.get_mut(&share) else {
            return;
        };
        let epoch = *epoch;
        match part {
            LoadPart::Records(part) => records.extend(part),
            LoadPart::Again => records.clear(),
            LoadPart::End => {
                let records: Vec<Record> = core::mem::take(records);
                let ids = records.iter().map(|record| record.id.0).collect();
                running.server.records.insert(share.clone(), ids);
                self.judge.loaded(&share, epoch, &records);
                let delay = self.dice.micros(500, 60_000);
                self.later(delay, Event::Restored { by: process, share, epoch });
            }
            LoadPart::Fenced => {}
            LoadPart::Failed(why) => self.judge.violation(format!("a load failed: {why}")),
        }
    }

    pub(super) fn look_if_drained(&mut self, process: Process, share: ShareName, epoch: Epoch) {
        let is_stubborn = self.dice.chance(4);
        let Some(running) = self.running(process) else { return };
        if *running.server.used(&share) != (Use::Draining { epoch }) {
            return;
        }
        if running.server.has_waiting(&share) {
            let again = Event::Drained { by: process, share, epoch };
            self.later(Duration::from_millis(5), again);
            return;
        }
        let served = share.clone();
        let statement = if is_stubborn {
            running.server.uses.insert(share.clone(), Use::Serving { epoch });
            Statement::NotDrained { share, epoch }
        } else {
            running.server.uses.insert(share.clone(), Use::None);
            Statement::Drained { share, epoch }
        };
        self.input(process, Input::Statement(statement));
        self.judge_service(process, &served);
    }

    /// A server says that the storage of a share can be used, with a new identity where the old one is
    /// refused.
    pub(super) fn ready(&mut self, process: Process, share: ShareName) {
        let fence = if self.has_fence {
            let connection = self.connection(process.node, &share);
            Fence::Fuse { connection, host: "host".into() }
        } else {
            Fence::None
        };
        let storage = Storage { fence };
        self.input(process, Input::Statement(Statement::Ready { share, storage }));
    }

    /// The storage refuses a connection from now on. A server that uses it finds that out.
    pub(super) fn refuse(&mut self, connection: u32) {
        self.refused_connections.insert(connection);
        for node in 0..self.nodes.len() {
            let process = Process { node, start: self.nodes[node].start };
            for share in self.shares.clone() {
                self.look_at_storage(process, &share);
            }
        }
    }

    /// A server that serves a share whose storage refuses it finds that out soon.
    pub(super) fn look_at_storage(&mut self, process: Process, share: &ShareName) {
        let connection = self.nodes[process.node].connections.get(share);
        let is_refused = connection.is_some_and(|c| self.refused_connections.contains(c));
        let delay = self.dice.micros(100, 50_000);
        let Some(running) = self.running(process) else { return };
        if let Some(epoch) = running.server.used(share).served()
            && is_refused
        {
            let lost = Input::Statement(Statement::StorageLost { share: share.clone(), epoch });
            self.later(delay, Event::Input { to: process, input: lost });
        }
    }

    pub(super) fn connection(&mut self, node: usize, share: &ShareName) -> u32 {
        let present = self.nodes[node].connections.get(share).copied();
        match present.filter(|connection| !self.refused_connections.contains(connection)) {
            Some(connection) => connection,
            None => {
                self.last_connection += 1;
                self.nodes[node].connections.insert(share.clone(), self.last_connection);
                self.last_connection
            }
        }
    }

    /// Clients of a node open and close files with persistent handles.
    pub(super) fn work(&mut self, process: Process) {
        let clock = self.clock(process.node);
        let shares = self.shares.clone();
        for share in shares {
            let Some(running) = self.running(process) else { return };
            let is_in_time = running.server.until.is_some_and(|until| clock < until);
            let Use::Serving { epoch } = *running.server.used(&share) else { continue };
            if !is_in_time || !self.dice.chance(60) {
                continue;
            }
            for _ in 0..=self.dice.below(3) {
                self.change_record(process, &share, epoch);
            }
        }
        let pause = self.dice.micros(20_000, 300_000);
        self.later(pause, Event::Work { by: process });
    }

    pub(super) fn change_record(&mut self, process: Process, share: &ShareName, epoch: Epoch) {
        let value = self.dice.next().to_be_bytes().to_vec();
        let (roll, at) = (self.dice.below(4), self.dice.next());
        let Some(running) = self.running(process) else { return };
        let ids = running.server.records.entry(share.clone()).or_default();
        let known = (!ids.is_empty()).then(|| usize::try_from(at % ids.len() as u64).unwrap());
        let change = match (roll, known) {
            (0, Some(at)) => RecordChange::Remove(RecordId(ids.swap_remove(at))),
            (1 | 2, Some(at)) => RecordChange::Put(RecordId(ids[at]), value),
            _ => {
                let Some(id) = running.ids.as_mut().and_then(IdSpace::take) else { return };
                ids.push(id);
                RecordChange::Put(RecordId(id), value)
            }
        };
        let ticket = running.server.ticket();
        let sent = self.judge.sent(share, &change);
        let Some(running) = self.running(process) else { return };
        running.server.waiting.insert(ticket, Waiting { share: share.clone(), sent });
        self.input(process, Input::Record { share: share.clone(), epoch, change, ticket });
    }
}
