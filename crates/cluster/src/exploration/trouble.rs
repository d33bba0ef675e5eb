//! Things that go wrong, and the administrator.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::types::{Keys, LeaseId, Op, Txn};

use super::server::Server;
use super::world::{Event, LateWrite, Node, Process, Running, Trouble, World};
use crate::dialect::ClusterDialect;
use crate::interface::{Command, CommandId, Input, Request};
use crate::keys::ControlKey;
use crate::machine::Machine;
use crate::names::{ClusterName, ShareName};
use crate::settings::{Settings, ShareSettings, Timing};
use crate::values::RecordForm;

/// A share, and the node that answers its requests.
#[derive(Debug, Clone)]
struct Served {
    share: ShareName,
    node: usize,
}

impl World {
    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].running.is_some() {
            return;
        }
        self.nodes[node].start += 1;
        let process = Process { node, start: self.nodes[node].start };
        let knows = self.dice.chance(50);
        let settings = Settings {
            cluster: ClusterName::new("sim").unwrap(),
            node: self.nodes[node].name.clone(),
            timing: Timing::default(),
            addresses: Vec::new(),
            weight: 1,
            software: String::from("test"),
            dialect: ClusterDialect::LARGEST,
            shares: self
                .shares
                .iter()
                .map(|name| ShareSettings { name: name.clone(), weight: 1 })
                .collect(),
            predecessor: self.nodes[node].predecessor.take().filter(|_| knows),
            grace: Duration::from_secs(1),
            records: RecordForm::TOLD_BY_NONE,
        };
        let machine = Machine::new(settings, self.clock(node));
        self.nodes[node].running = Some(Running {
            machine,
            server: Server::default(),
            ids: None,
            watch: None,
            is_watch_due: false,
            lease: LeaseId(0),
            is_stopped: false,
            deferred: VecDeque::new(),
            late_writes: Vec::new(),
            is_leaving: false,
        });
        self.carry_out(process);
        for share in self.shares.clone() {
            let delay = self.dice.micros(100, 100_000);
            self.later(delay, Event::Ready { by: process, share });
        }
        self.later(Duration::from_millis(100), Event::Work { by: process });
    }

    /// Ends a process. It is started again later.
    pub(super) fn kill(&mut self, node: usize, is_hard: bool) {
        let Some(running) = self.nodes[node].running.take() else { return };
        self.nodes[node].predecessor = Some(running.lease).filter(|_| is_hard);
        let pause = self.dice.micros(10_000, 4_000_000);
        let at = (self.now + pause).min(self.calm.max(self.now));
        self.at(at, Event::Start { node });
    }

    /// Stops a process, which has looked at the clock for a write to each share that it serves.
    pub(super) fn stop(&mut self, node: usize) {
        let clock = self.clock(node);
        let process = Process { node, start: self.nodes[node].start };
        let connections = self.nodes[node].connections.clone();
        let Some(running) = self.running(process) else { return };
        if running.is_stopped {
            return;
        }
        running.is_stopped = true;
        if running.server.until.is_some_and(|until| clock < until) {
            for (share, used) in &running.server.uses {
                if let (Some(epoch), Some(&connection)) = (used.served(), connections.get(share)) {
                    let write = LateWrite { share: share.clone(), epoch, connection };
                    running.late_writes.push(write);
                }
            }
        }
        let pause = self.dice.micros(50_000, 8_000_000);
        let at = (self.now + pause).min(self.calm);
        self.at(at, Event::Continue { process });
    }

    /// A stopped process goes on with its writes, then with all that has come.
    pub(super) fn go_on(&mut self, process: Process) {
        let Some(running) = self.running(process) else { return };
        running.is_stopped = false;
        let writes = core::mem::take(&mut running.late_writes);
        let events = core::mem::take(&mut running.deferred);
        for LateWrite { share, epoch, connection } in writes {
            let is_late = self.judge.started.get(&share).is_some_and(|started| *started > epoch);
            if is_late && !self.refused_connections.contains(&connection) {
                let what = format!("{share}: {process:?} has written as {epoch}, which has ended");
                self.judge.violation(what);
            }
        }
        for event in events {
            self.later(Duration::ZERO, event);
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        let running: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].running.is_some()).collect();
        if running.is_empty() {
            return;
        }
        let node = self.dice.pick(&running);
        self.command_at(node, command);
    }

    pub(super) fn command_at(&mut self, node: usize, command: Command) {
        self.last_command += 1;
        let id = CommandId(self.last_command);
        let to = Process { node, start: self.nodes[node].start };
        self.later(Duration::ZERO, Event::Input { to, input: Input::Command { id, command } });
    }

    pub(super) fn begin(&mut self, trouble: Trouble) {
        self.note(|| format!("{trouble:?}"));
        let node = self.dice.below(self.nodes.len() as u64) as usize;
        let pause = self.dice.micros(50_000, 6_000_000);
        let end = (self.now + pause).min(self.calm);
        match trouble {
            Trouble::Kill => self.kill(node, true),
            Trouble::Pause => self.stop(node),
            Trouble::CutBoth | Trouble::CutRequests | Trouble::CutAnswers => {
                self.nodes[node].loses_requests = trouble != Trouble::CutAnswers;
                self.nodes[node].loses_answers = trouble != Trouble::CutRequests;
                self.at(end, Event::Mend { node });
            }
            Trouble::NoMajority => {
                self.etcd.set_majority(false);
                self.at(end, Event::Majority);
            }
            Trouble::Slow => self.nodes[node].slow_until = end,
            Trouble::Fading => {
                self.nodes[node].has_slow_answers = true;
                let cut = self.dice.micros(300_000, 2_500_000);
                self.at((self.now + cut).min(self.calm), Event::Fade { node });
                let end = (self.now + cut + Duration::from_secs(4)).min(self.calm);
                self.at(end, Event::Mend { node });
            }
            Trouble::Compaction => self.etcd.compact(),
            Trouble::DeletedOwner => {
                let share = self.dice.pick(&self.shares.clone());
                self.delete_owner(share);
            }
            Trouble::RevokedLease => {
                let lease = self.nodes[node].running.as_ref().map(|running| running.lease);
                // With a fence the next owner does not wait, and the former one may answer until it hears of
                // the end of its lease: docs/adr/0006 names that.
                if let Some(lease) = lease.filter(|_| !self.has_fence) {
                    let _ = self.etcd.call(&Request::Revoke(lease));
                    self.wake_watches();
                }
            }
            Trouble::StorageLost => self.lose_storage(node),
            Trouble::ClockJump => self.nodes[node].offset += self.dice.micros(1_000, 3_000_000),
            Trouble::Move => {
                let (share, to) =
                    (self.dice.pick(&self.shares.clone()), self.nodes[node].name.clone());
                self.command(Command::Move { share, to });
            }
            Trouble::Drain => {
                let name = self.nodes[node].name.clone();
                self.command(Command::Drain(name));
                self.at(end, Event::Undrain { node });
            }
            Trouble::Restart => {
                if let Some(running) = &mut self.nodes[node].running {
                    running.is_leaving = true;
                    self.command_at(node, Command::Leave);
                }
            }
        }
    }

    /// All nodes may have shares again.
    pub(super) fn end_drains(&mut self) {
        self.etcd.set_majority(true);
        self.pass_etcd();
        let name = |node: &Node| ControlKey::Drained(node.name.clone());
        let keys: Vec<_> = self.nodes.iter().map(|node| self.layout.control(&name(node))).collect();
        let success = keys.into_iter().map(|key| Op::Delete(Keys::One(key))).collect();
        let txn = Txn { success, ..Txn::default() };
        let _ = self.etcd.call(&Request::Txn(txn));
        self.wake_watches();
    }

    /// Somebody deletes the owner's key of a share by hand.
    pub(super) fn delete_owner(&mut self, share: ShareName) {
        let key = self.layout.control(&ControlKey::Owner(share));
        let delete = Op::Delete(Keys::One(key));
        let txn = Txn { success: [delete].into(), ..Default::default() };
        let _ = self.etcd.call(&Request::Txn(txn));
        self.wake_watches();
    }

    /// Stops the process of an owner, and deletes the owner's key before it hears of that.
    pub(super) fn stop_owner(&mut self) {
        let served: Vec<_> = self.shares.iter().filter_map(|share| self.server_of(share)).collect();
        if !served.is_empty() {
            let Served { share, node } = self.dice.pick(&served);
            self.stop(node);
            self.delete_owner(share);
        }
    }

    /// A share with the node that answers its requests. None if no process does that.
    fn server_of(&self, share: &ShareName) -> Option<Served> {
        let serves = |node: &Node| {
            let running = node.running.as_ref().filter(|running| !running.is_stopped);
            running.is_some_and(|running| running.server.used(share).served().is_some())
        };
        let node = self.nodes.iter().position(serves)?;
        Some(Served { share: share.clone(), node })
    }

    /// The storage refuses a node from now on, for a reason that the cluster does not know.
    pub(super) fn lose_storage(&mut self, node: usize) {
        let share = self.dice.pick(&self.shares.clone());
        if let Some(connection) = self.nodes[node].connections.get(&share).copied() {
            self.refuse(connection);
        }
    }
}
