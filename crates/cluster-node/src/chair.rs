//! The parts of a node that the server is made with, before the node starts.

use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::{Machine, Settings};
use frevo_etcd::engine::Engine;
use frevo_server::Seat;
use frevo_store::state::ServeLimit;
use frevo_store::{IdSource, StateStore};

use crate::driver::{Driver, State};
use crate::hands::Hands;
use crate::happening::Observer;
use crate::ids::NodeIds;
use crate::inbox::{Inbox, Message};
use crate::limits::DRAIN_PATIENCE;
use crate::node::Node;
use crate::notes::Notes;
use crate::served::Served;
use crate::shared::{Clock, Shared};
use crate::store::NodeStore;
use crate::table::Table;
use crate::telling::{Teller, Telling};
use crate::unit::Unit;
use crate::work::Tools;

/// A node that has not started yet: the parts that its server is made with.
pub struct Chair {
    settings: Settings,
    table: Arc<Table>,
    clock: Clock,
    inbox: Arc<Inbox>,
    limit: Arc<ServeLimit>,
    ids: Arc<NodeIds>,
    local: Option<Arc<dyn StateStore>>,
    observer: Option<Observer>,
    drain_patience: Duration,
}

impl Chair {
    /// A node with these settings and units. [`Settings::shares`] is made of the units.
    pub fn new(mut settings: Settings, units: Vec<Unit>, clock: Clock) -> Self {
        settings.shares = units.iter().map(Unit::settings).collect();
        let inbox = Arc::default();
        let ids = Arc::new(NodeIds::new(None, &inbox));
        Self {
            settings,
            table: Arc::new(Table::new(units)),
            clock,
            inbox,
            limit: Arc::default(),
            ids,
            local: None,
            observer: None,
            drain_patience: DRAIN_PATIENCE,
        }
    }

    /// Mixes the numbers of [`Chair::ids`] by a number that is not random, so that a simulator repeats a
    /// run. To be called before [`Chair::ids`].
    #[must_use]
    pub fn with_secret(mut self, secret: u32) -> Self {
        self.ids = Arc::new(NodeIds::new(Some(secret), &self.inbox));
        self
    }

    /// Keeps the records of shares that are in no unit in this store. To be called before
    /// [`Chair::store`].
    #[must_use]
    pub fn with_local(mut self, store: Arc<dyn StateStore>) -> Self {
        self.local = Some(store);
        self
    }

    /// Calls `observer` for each happening.
    #[must_use]
    pub fn with_observer(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets the time for which requests may go on when a unit is given away.
    #[must_use]
    pub const fn with_drain_patience(mut self, patience: Duration) -> Self {
        self.drain_patience = patience;
        self
    }

    /// The store of the records of persistent handles.
    pub fn store(&self) -> Arc<dyn StateStore> {
        Arc::new(NodeStore {
            inbox: Arc::clone(&self.inbox),
            table: Arc::clone(&self.table),
            local: self.local.clone(),
        })
    }

    /// The moment until which the units are served.
    pub fn limit(&self) -> Arc<ServeLimit> {
        Arc::clone(&self.limit)
    }

    /// The numbers of handles and sessions.
    pub fn ids(&self) -> Arc<dyn IdSource> {
        Arc::clone(&self.ids) as Arc<dyn IdSource>
    }

    /// The parts for [`frevo_server::ServerBuilder::cluster`].
    pub fn seat(&self) -> Seat {
        let clock = Arc::clone(&self.clock);
        Seat { limit: self.limit(), clock: Arc::new(move || clock().0), ids: self.ids() }
    }

    /// The callback of a server whose storage refuses it, with the name of a share in lower case.
    pub fn storage_lost(&self) -> Arc<dyn Fn(&str) + Send + Sync> {
        let (table, inbox) = (Arc::clone(&self.table), Arc::clone(&self.inbox));
        Arc::new(move |share| {
            if let Some(unit) = table.unit_of(share) {
                inbox.push(Message::StorageLost(unit));
            }
        })
    }

    /// Starts the node on the present runtime of tokio. It ends when the last clone of the returned value
    /// is dropped.
    pub fn start(
        self,
        engine: Arc<dyn Engine>,
        server: Arc<dyn Served>,
        hands: Arc<dyn Hands>,
    ) -> Node {
        let (cluster, node) = (self.settings.cluster.clone(), self.settings.node.clone());
        let machine = Machine::new(self.settings, (self.clock)());
        let notes = Arc::new(Notes::new(Arc::clone(&self.clock), self.observer));
        let shared = Arc::new(Shared::new(machine, self.clock));
        let telling = Telling::start(Teller {
            cluster,
            node,
            shared: Arc::clone(&shared),
            table: Arc::clone(&self.table),
            served: Arc::clone(&server),
        });
        let tools = Arc::new(Tools {
            inbox: Arc::clone(&self.inbox),
            served: server,
            hands,
            notes: Arc::clone(&notes),
            drain_patience: self.drain_patience,
        });
        let driver = Driver {
            shared: Arc::clone(&shared),
            inbox: Arc::clone(&self.inbox),
            table: Arc::clone(&self.table),
            limit: self.limit,
            ids: self.ids,
            engine,
            tools,
            telling,
            state: State::default(),
        };
        let task = tokio::spawn(driver.run());
        Node::new(shared, notes, self.inbox, self.table, task)
    }
}
