//! Commands of the administrator.

use alloc::vec;
use alloc::vec::Vec;

use frevo_etcd::types::{Fault, Keys, LeaseId, Op, Revision, Txn, TxnAnswer};

use super::Machine;
use super::progress::{Asked, Telling};
use super::requests::{Attempt, Purpose};
use super::share::Share;
use crate::Epoch;
use crate::interface::{Command, CommandFault, CommandId, Output};
use crate::keys::ControlKey;
use crate::limits::{COMMAND_PATIENCE, COMMANDS, SHARES};
use crate::records::is_owner;
use crate::settings::ShareSettings;
use crate::time::after;
use crate::values::{DrainedValue, MoveValue};

impl Machine {
    pub(super) fn end_command(&mut self, id: CommandId, end: Result<(), CommandFault>) {
        self.commands.remove(&id);
        self.outputs.push_back(Output::CommandDone(id, end));
    }

    pub(super) fn on_command(&mut self, id: CommandId, command: Command) {
        self.is_changed = true;
        if self.commands.len() >= COMMANDS || self.commands.contains_key(&id) {
            self.outputs.push_back(Output::CommandDone(id, Err(CommandFault::Busy)));
            return;
        }
        match command {
            Command::Share(settings) => {
                let end = self.add_share(settings);
                self.end_command(id, end);
            }
            Command::Leave => {
                self.is_leaving = true;
                self.await_command(id, &Command::Leave);
            }
            _ if !self.is_inside() || self.view.is_none() => {
                self.end_command(id, Err(CommandFault::NotConnected));
            }
            Command::NewGeneration => self.on_new_generation(id),
            Command::Move { .. } => self.on_move(id, command),
            Command::Raise(to) => self.on_raise(id, to),
            Command::Drain(ref node) => {
                let key = self.layout.control(&ControlKey::Drained(node.clone()));
                let value = DrainedValue.to_bytes();
                let put = Op::Put { key, value, lease: LeaseId(0) };
                let txn = Txn { success: vec![put], ..Txn::default() };
                self.tell(id, command, txn, Epoch(0));
            }
            Command::Undrain(ref node) => {
                let key = self.layout.control(&ControlKey::Drained(node.clone()));
                let txn = Txn { success: vec![Op::Delete(Keys::One(key))], ..Txn::default() };
                self.tell(id, command, txn, Epoch(0));
            }
        }
    }

    fn add_share(&mut self, settings: ShareSettings) -> Result<(), CommandFault> {
        if let Some(share) = self.shares.get_mut(&settings.name) {
            share.weight = settings.weight;
            return Ok(());
        }
        if self.shares.len() >= SHARES {
            return Err(CommandFault::TooManyShares);
        }
        let mut share = Share::new(settings.weight);
        let view = self.view.as_ref().filter(|view| !view.owners.contains_key(&settings.name));
        share.free = view.map(|view| super::share::Free {
            since: self.now,
            last: view.last.get(&settings.name).map_or(Revision(0), |last| last.revision),
        });
        self.shares.insert(settings.name, share);
        Ok(())
    }

    fn on_move(&mut self, id: CommandId, command: Command) {
        let Command::Move { share, to } = &command else { return };
        let Some(view) = &self.view else { return };
        let Some(owner) = view.owners.get(share) else {
            self.end_command(id, Err(CommandFault::NoOwner));
            return;
        };
        if view.owner(share) == Some(to) {
            self.end_command(id, Ok(()));
            return;
        }
        if !view.can_take(to, share) {
            self.end_command(id, Err(CommandFault::NodeCannot));
            return;
        }
        let epoch = owner.epoch;
        let key = self.layout.control(&ControlKey::Move(share.clone()));
        let value = MoveValue { to: to.clone(), epoch }.to_bytes();
        let put = Op::Put { key, value, lease: LeaseId(0) };
        let txn = Txn {
            compares: vec![is_owner(&self.layout, share, epoch)],
            success: vec![put],
            failure: Vec::new(),
        };
        self.tell(id, command, txn, epoch);
    }

    pub(super) fn tell(&mut self, id: CommandId, command: Command, txn: Txn, epoch: Epoch) {
        let telling = Some(Telling { txn, attempt: Attempt::Due(self.now) });
        let deadline = after(self.now, COMMAND_PATIENCE);
        let asked = Asked { command, epoch, deadline, telling, told: Revision(0) };
        self.commands.insert(id, asked);
    }

    /// Waits for the effect of a command that no other node needs to know.
    pub(super) fn await_command(&mut self, id: CommandId, command: &Command) {
        let deadline = after(self.now, COMMAND_PATIENCE);
        let command = command.clone();
        let (epoch, telling, told) = (Epoch(0), None, Revision(0));
        self.commands.insert(id, Asked { command, epoch, deadline, telling, told });
    }

    pub(super) fn act_on_commands(&mut self) {
        let ids: Vec<_> = self.commands.keys().copied().collect();
        for id in ids {
            let Some(asked) = self.commands.get(&id) else { continue };
            let (deadline, attempt) = (asked.deadline, asked.telling.as_ref().map(|t| t.attempt));
            if let Some(end) = self.effect(asked) {
                self.end_command(id, end);
            } else if deadline <= self.now {
                self.end_command(id, Err(CommandFault::TimedOut));
            } else {
                self.wake(deadline);
                if attempt.is_some_and(|attempt| self.is_due(attempt)) {
                    self.send_command(id);
                } else {
                    self.raise_again(id);
                }
            }
        }
    }

    fn send_command(&mut self, id: CommandId) {
        let Some(asked) = self.commands.get_mut(&id) else { return };
        let Some(telling) = &mut asked.telling else { return };
        telling.attempt = Attempt::Pending;
        let txn = telling.txn.clone();
        self.send_txn(Purpose::Command(id), txn);
    }

    pub(super) fn on_command_txn(&mut self, id: CommandId, answer: &TxnAnswer) {
        let Some(asked) = self.commands.get_mut(&id) else { return };
        asked.telling = None;
        asked.told = answer.revision;
        // The keys of another moment are looked at again when the watch has told them.
        let is_raise = matches!(asked.command, Command::Raise(_));
        if !answer.succeeded && !is_raise {
            self.end_command(id, Err(CommandFault::NoOwner));
        }
    }

    pub(super) fn on_command_fault(&mut self, id: CommandId, fault: Fault, again: Attempt) {
        let Some(asked) = self.commands.get_mut(&id) else { return };
        if let Fault::Refused(why) = fault {
            self.end_command(id, Err(CommandFault::Refused(why)));
        } else if let Some(telling) = &mut asked.telling {
            telling.attempt = again;
        }
    }

    /// The end of a command, if its effect can be seen, or if it can have none any more.
    fn effect(&self, asked: &Asked) -> Option<Result<(), CommandFault>> {
        if asked.telling.is_some() {
            return None;
        }
        let view = self.view.as_ref().filter(|view| view.revision >= asked.told);
        match &asked.command {
            Command::Move { share, to } => {
                let view = view?;
                if view.owner(share) == Some(to) {
                    return Some(Ok(()));
                }
                let is_as_before =
                    view.owners.get(share).is_some_and(|owner| owner.epoch == asked.epoch);
                let is_over = is_as_before && !view.moves.contains_key(share);
                is_over.then_some(Err(CommandFault::NotGiven))
            }
            Command::Drain(node) => {
                let view = view?;
                let has_shares = view.owners.keys().any(|share| view.owner(share) == Some(node));
                (!has_shares).then_some(Ok(()))
            }
            Command::Raise(to) => {
                let max = view?.dialect.as_ref().and_then(|entry| entry.max);
                max.is_some_and(|max| max >= *to).then_some(Ok(()))
            }
            Command::Undrain(_) | Command::Share(_) => Some(Ok(())),
            Command::Leave => self.has_left().then_some(Ok(())),
            Command::NewGeneration => self.numbering.is_none().then_some(Ok(())),
        }
    }
}
