//! The machine of a node.

mod admin;
mod answers;
mod dialect;
mod giving;
mod lease;
mod ownership;
mod progress;
mod requests;
mod share;
mod status;
mod storing;
mod taking;
mod turns;
mod viewing;

use alloc::collections::{BTreeMap, VecDeque};

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{LeaseId, Revision};

use crate::ids::Generation;
use crate::interface::{CommandId, Event, Input, Order, Output, Statement, Ticket};
use crate::keys::Layout;
use crate::limits::SHARES;
use crate::names::ShareName;
use crate::records::Load;
use crate::settings::Settings;
use crate::time::after;
use crate::values::NodeValue;
use crate::view::View;

use progress::{Asked, Membership, Watching};
use requests::{Attempt, Requests};
use share::{Share, Stage};
pub use status::{NodeStatus, ShareStatus, Status};

/// The machine of a node: see the documentation of the crate.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    layout: Layout,
    /// The latest moment that an input has brought.
    now: Moment,
    /// The moment at which something is to be done.
    timer: Option<Moment>,
    /// True if something other than records has changed since all was looked at.
    is_changed: bool,
    requests: Requests,
    outputs: VecDeque<Output>,
    membership: Membership,
    /// The lease of this node, or zero.
    lease: LeaseId,
    /// The moment before the last confirmed keep-alive was sent.
    alive: Moment,
    /// The moment of the next keep-alive.
    round_at: Moment,
    /// The limit that the server was told last. None before the first.
    until: Option<Moment>,
    /// True while the limit has passed.
    is_paused: bool,
    /// A wanted number of a start. None if there is one.
    numbering: Option<Attempt>,
    generation: Generation,
    registered_at: Moment,
    /// True if this node is to end.
    is_leaving: bool,
    /// The registration that etcd has.
    advertised: Option<NodeValue>,
    /// The revision by which it is there.
    advertised_at: Revision,
    advertising: Attempt,
    /// The release of the shares of this node's earlier process.
    inheriting: Attempt,
    watching: Watching,
    /// The keys, once they were read.
    view: Option<View>,
    shares: BTreeMap<ShareName, Share>,
    /// The number of the last attempt to take a share.
    takes: u64,
    loads: BTreeMap<Ticket, Load>,
    load_retries: BTreeMap<Ticket, Moment>,
    commands: BTreeMap<CommandId, Asked>,
    told_dialect: dialect::Told,
}

impl Machine {
    /// A node that does not know anything yet. It has its first requests at once.
    pub fn new(settings: Settings, now: Moment) -> Self {
        let layout = Layout::new(&settings.cluster);
        let of =
            |share: &crate::settings::ShareSettings| (share.name.clone(), Share::new(share.weight));
        let shares = settings.shares.iter().take(SHARES).map(of).collect();
        let mut machine = Self {
            settings,
            layout,
            now,
            timer: None,
            is_changed: true,
            requests: Requests::default(),
            outputs: VecDeque::new(),
            membership: Membership::Outside(Attempt::Due(now)),
            lease: LeaseId(0),
            alive: now,
            round_at: now,
            until: None,
            is_paused: false,
            numbering: None,
            generation: Generation(0),
            registered_at: now,
            is_leaving: false,
            advertised: None,
            advertised_at: Revision(0),
            advertising: Attempt::Due(now),
            inheriting: Attempt::Due(now),
            watching: Watching::reading(now),
            view: None,
            shares,
            takes: 0,
            loads: BTreeMap::new(),
            load_retries: BTreeMap::new(),
            commands: BTreeMap::new(),
            told_dialect: dialect::Told::default(),
        };
        machine.handle(now, Input::Time);
        machine
    }

    /// Takes in a thing that happened. `now` is a moment of CLOCK_BOOTTIME, read after it happened; one
    /// that is earlier than that of another input counts as that one.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.now = self.now.max(now);
        self.look_at_limit();
        // Requests whose time has passed are given up before the input is handled, even if the
        // input is the answer to one of them.
        self.expire();
        match input {
            Input::Time => {}
            Input::Answer { id, answer } => self.on_answer(id, answer),
            Input::Watched { id, answer } => self.on_watched(id, answer),
            Input::Statement(statement) => self.on_statement(statement),
            Input::Command { id, command } => self.on_command(id, command),
            Input::Record { share, epoch, change, ticket } => {
                self.on_record(&share, epoch, change, ticket);
            }
            Input::Load { share, epoch, ticket } => self.on_load(share, epoch, ticket),
        }
        let is_due = self.timer.is_some_and(|timer| timer <= self.now);
        if is_due {
            self.is_changed = true;
        }
        // A step can make another step possible: when one share was given away, the next may be. So
        // steps are repeated, up to a limit.
        let mut steps = 0_u8;
        while self.is_changed && steps < 8 {
            steps = steps.saturating_add(1);
            self.is_changed = false;
            self.act();
        }
        if self.is_changed {
            self.wake(self.now);
        }
    }

    /// Returns the next thing to do, until there is none. To be called after each input.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The moment at which [`Input::Time`] is wanted, at the latest. None if nothing is waited for by the
    /// clock.
    pub fn timer(&self) -> Option<Moment> {
        match (self.timer, self.requests.deadline(self.settings.timing.patience())) {
            (Some(timer), Some(deadline)) => Some(timer.min(deadline)),
            (timer, deadline) => timer.or(deadline),
        }
    }

    /// Has [`Machine::act`] called again at `moment`.
    fn wake(&mut self, moment: Moment) {
        self.timer = Some(self.timer.map_or(moment, |timer| timer.min(moment)));
    }

    /// Does what is to be done by now.
    fn act(&mut self) {
        self.timer = None;
        self.act_on_view();
        self.act_on_dialect();
        self.act_on_lease();
        self.act_on_limit();
        self.act_on_ownerships();
        self.act_on_takes();
        self.act_on_gifts();
        self.act_on_records();
        self.act_on_commands();
    }

    fn order(&mut self, order: Order) {
        self.outputs.push_back(Output::Order(order));
    }

    fn note(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// True if the attempt is due; else its time is waited for.
    fn is_due(&mut self, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Pending => false,
            Attempt::Due(at) if at <= self.now => true,
            Attempt::Due(at) => {
                self.wake(at);
                false
            }
        }
    }

    /// The next attempt after one that had no answer.
    fn again(&self) -> Attempt {
        Attempt::Due(after(self.now, self.requests.pause(0)))
    }

    fn on_statement(&mut self, statement: Statement) {
        self.is_changed = true;
        match statement {
            Statement::Ready { share, storage } => {
                if let Some(share) = self.shares.get_mut(&share) {
                    share.storage = Some(storage);
                }
            }
            Statement::Unable { share } => {
                if let Some(share) = self.shares.get_mut(&share)
                    && !share.stage.is_held()
                {
                    share.storage = None;
                }
            }
            Statement::Fenced { share, lease } => self.on_fenced(&share, lease),
            Statement::FenceFailed { share, lease } => self.on_fence_failed(&share, lease),
            Statement::Restored { share, epoch } => {
                if let Some(share) = self.shares.get_mut(&share)
                    && let Stage::Starting { epoch: of, is_restored, .. } = &mut share.stage
                    && *of == epoch
                {
                    *is_restored = true;
                }
            }
            Statement::NotRestored { share, epoch } => self.on_not_restored(&share, epoch),
            Statement::Drained { share, epoch } => self.on_drained(&share, epoch),
            Statement::NotDrained { share, epoch } => self.on_not_drained(&share, epoch),
            Statement::Stopped { share, epoch } => self.on_stopped(&share, epoch),
            Statement::StorageLost { share, epoch } => self.on_storage_lost(&share, epoch),
        }
    }
}

#[cfg(test)]
mod tests;
