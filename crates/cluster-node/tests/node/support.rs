//! Nodes for tests: a server that keeps the state of its shares, hands that keep addresses and fences.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_cluster::ClusterDialect;
use frevo_cluster::fence::Fence;
use frevo_cluster::model::engine::{ModelEngine, SharedEtcd};
use frevo_cluster::names::{ClusterName, NodeName, ShareName};
use frevo_cluster::settings::{Settings, Timing};
use frevo_cluster::values::RecordForm;
use frevo_cluster_node::{Call, Chair, Clock, Hands, Happening, Node, Served, Unit};
use frevo_etcd::engine::{Confirmed, Done, Engine, Moment, RangeAnswer, Tell, Watching};
use frevo_etcd::types::{Fault, LeaseId, Range, Revision, Txn, TxnAnswer};
use frevo_server::ClusterState;
use frevo_store::StateStore;
use frevo_store::state::{Loaded, Ownership, RecordId, ServeLimit, StateFault};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

pub(crate) type Shares = Arc<[Arc<str>]>;

/// The state of a share at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Life {
    Elsewhere,
    Started(Loaded),
    Served(Loaded, Option<Duration>),
    Drained(Loaded),
}

/// A server that does at once what it is told.
pub(crate) struct Small {
    pub(crate) shares: Mutex<BTreeMap<Arc<str>, Life>>,
    store: Mutex<Option<Arc<dyn StateStore>>>,
    pub(crate) told: Mutex<Vec<SocketAddr>>,
    /// The largest dialect of clients.
    pub(crate) dialect: Mutex<Option<ClusterDialect>>,
    /// The addresses of other nodes that own shares.
    pub(crate) owners: Mutex<BTreeMap<Arc<str>, Vec<SocketAddr>>>,
    /// The forms of records that it was told, one after the other.
    pub(crate) forms: Mutex<Vec<RecordForm>>,
    /// The fault of the next start.
    pub(crate) start_fault: Mutex<Option<String>>,
    pub(crate) drain_fault: Mutex<Option<String>>,
    /// Ends the drain that is to fail, if it does not end by itself.
    pub(crate) drain_end: Mutex<Option<Arc<Notify>>>,
    /// The number of stops that fail next.
    pub(crate) stops_that_fail: Mutex<u32>,
    /// The states of the cluster that it was told, with the times.
    pub(crate) states: Mutex<Vec<(Instant, ClusterState)>>,
}

impl Small {
    pub(crate) fn life(&self, share: &str) -> Life {
        self.shares.lock().get(share).cloned().unwrap_or(Life::Elsewhere)
    }

    /// The ownership of a share that is served.
    pub(crate) fn owner(&self, share: &str) -> Option<Ownership> {
        match self.life(share) {
            Life::Served(loaded, _) => Some(loaded.ownership),
            _ => None,
        }
    }

    fn set(&self, share: &Arc<str>, life: Life) {
        self.shares.lock().insert(Arc::clone(share), life);
    }
}

async fn load(store: &dyn StateStore, share: &str) -> Result<Loaded, String> {
    let (done, loaded) = oneshot::channel();
    store.load(share, Box::new(|end| _ = done.send(end)));
    loaded.await.unwrap().map_err(|fault| fault.to_string())
}

/// A small server that several nodes' parts use.
pub(crate) struct Shared(pub(crate) Arc<Small>);

impl Served for Shared {
    fn start(&self, shares: Shares) -> Call<'static, Result<usize, String>> {
        let small = Arc::clone(&self.0);
        Box::pin(async move {
            if let Some(fault) = small.start_fault.lock().take() {
                return Err(fault);
            }
            let store = small.store.lock().clone().unwrap();
            let loads = shares.iter().map(|share| load(&*store, share));
            // All loads are under way at once, as a server has them.
            let loads: Vec<_> = loads.map(Box::pin).collect();
            let mut count = 0;
            for (share, loading) in shares.iter().zip(loads) {
                let loaded = loading.await?;
                count += loaded.records.len();
                small.set(share, Life::Started(loaded));
            }
            Ok(count)
        })
    }

    fn serve(&self, shares: Shares, grace: Option<Duration>) -> Call<'static, Result<(), String>> {
        for share in &*shares {
            let Life::Started(loaded) = self.0.life(share) else { panic!("it is not started") };
            self.0.set(share, Life::Served(loaded, grace));
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn drain(
        &self,
        shares: Shares,
        _: Duration,
        leave: Call<'static, ()>,
    ) -> Call<'static, Result<(), String>> {
        if let Some(fault) = self.0.drain_fault.lock().take() {
            // The time runs out after the addresses have left.
            let end = self.0.drain_end.lock().clone();
            return Box::pin(async move {
                leave.await;
                if let Some(end) = end {
                    end.notified().await;
                }
                Err(fault)
            });
        }
        for share in &*shares {
            let Life::Served(loaded, _) = self.0.life(share) else { panic!("it is not served") };
            self.0.set(share, Life::Drained(loaded));
        }
        Box::pin(async move {
            leave.await;
            Ok(())
        })
    }

    fn leave(
        &self,
        shares: Shares,
        addresses: Vec<SocketAddr>,
    ) -> Call<'static, Result<(), String>> {
        *self.0.told.lock() = addresses;
        for share in &*shares {
            assert!(matches!(self.0.life(share), Life::Drained(_) | Life::Elsewhere));
            self.0.set(share, Life::Elsewhere);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop(&self, shares: Shares) -> Call<'static, Result<(), String>> {
        let mut failing = self.0.stops_that_fail.lock();
        if let Some(less) = failing.checked_sub(1) {
            *failing = less;
            return Box::pin(std::future::ready(Err("it does not stop".to_owned())));
        }
        shares.iter().for_each(|share| self.0.set(share, Life::Elsewhere));
        Box::pin(std::future::ready(Ok(())))
    }

    fn set_dialect(&self, max: Option<ClusterDialect>) {
        *self.0.dialect.lock() = max;
    }

    fn set_owner(&self, shares: &[Arc<str>], addresses: &[SocketAddr]) {
        for share in shares {
            self.0.owners.lock().insert(Arc::clone(share), addresses.to_vec());
        }
    }

    fn set_record_form(&self, form: RecordForm) {
        self.0.forms.lock().push(form);
    }

    fn tell_cluster(&self, state: &ClusterState) {
        self.0.states.lock().push((Instant::now(), state.clone()));
    }
}

/// The storage and the network that all nodes have in common.
#[derive(Default)]
pub(crate) struct World {
    last: Mutex<u32>,
    pub(crate) refused: Mutex<BTreeSet<u32>>,
    pub(crate) fences: Mutex<Vec<Fence>>,
    /// The nodes at which the addresses of units are.
    pub(crate) addresses: Mutex<BTreeMap<ShareName, BTreeSet<usize>>>,
}

/// The hands of a node.
pub(crate) struct SmallHands {
    pub(crate) world: Arc<World>,
    pub(crate) node: usize,
    identity: Mutex<u32>,
    pub(crate) has_fence: bool,
}

impl Hands for SmallHands {
    fn look<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<Fence, String>> {
        let mut identity = self.identity.lock();
        if *identity == 0 || self.world.refused.lock().contains(&identity) {
            let mut last = self.world.last.lock();
            *last += 1;
            *identity = *last;
        }
        let connection = *identity;
        let fuse = Fence::Fuse { connection, host: "host".into() };
        let fence = if self.has_fence { fuse } else { Fence::None };
        Box::pin(std::future::ready(Ok(fence)))
    }

    fn fence<'a>(&'a self, fence: &'a Fence) -> Call<'a, Result<(), String>> {
        let Fence::Fuse { connection, .. } = fence else { panic!("a fence of another kind") };
        self.world.refused.lock().insert(*connection);
        self.world.fences.lock().push(fence.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn raise<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>> {
        self.world.addresses.lock().entry(unit.clone()).or_default().insert(self.node);
        Box::pin(std::future::ready(Ok(())))
    }

    fn lower<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>> {
        self.world.addresses.lock().entry(unit.clone()).or_default().remove(&self.node);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// An engine that etcd cannot be reached by while it is cut.
#[derive(Debug)]
pub(crate) struct Cut {
    engine: ModelEngine,
    is_cut: Arc<AtomicBool>,
}

impl Cut {
    /// Ends a request without etcd. Returns the callback if etcd is reached.
    fn through<T>(&self, done: Done<T>) -> Option<Done<T>> {
        if !self.is_cut.load(Ordering::Relaxed) {
            return Some(done);
        }
        done(Err(Fault::Unavailable("cut".to_owned())));
        None
    }
}

impl Engine for Cut {
    fn txn(&self, txn: Txn, done: Done<TxnAnswer>) {
        self.through(done).into_iter().for_each(|done| self.engine.txn(txn.clone(), done));
    }

    fn range(&self, range: Range, done: Done<RangeAnswer>) {
        self.through(done).into_iter().for_each(|done| self.engine.range(range.clone(), done));
    }

    fn grant(&self, ttl: Duration, done: Done<Confirmed>) {
        self.through(done).into_iter().for_each(|done| self.engine.grant(ttl, done));
    }

    fn revoke(&self, lease: LeaseId, done: Done<()>) {
        self.through(done).into_iter().for_each(|done| self.engine.revoke(lease, done));
    }

    fn keep_alive(&self, lease: LeaseId, done: Done<Confirmed>) {
        self.through(done).into_iter().for_each(|done| self.engine.keep_alive(lease, done));
    }

    fn watch(&self, prefix: Vec<u8>, after: Revision, mut tell: Tell) -> Watching {
        let is_cut = Arc::clone(&self.is_cut);
        // The changes of a cut are told after it, as a watch of a real etcd does.
        let kept = Arc::new(Mutex::new(Vec::new()));
        let tell = move |answer| {
            kept.lock().push(answer);
            if !is_cut.load(Ordering::Relaxed) {
                let told: Vec<_> = kept.lock().drain(..).collect();
                told.into_iter().for_each(&mut tell);
            }
        };
        self.engine.watch(prefix, after, Box::new(tell))
    }
}

/// A node with its parts.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) server: Arc<Small>,
    pub(crate) store: Arc<dyn StateStore>,
    pub(crate) limit: Arc<ServeLimit>,
    pub(crate) is_cut: Arc<AtomicBool>,
    pub(crate) storage_lost: Arc<dyn Fn(&str) + Send + Sync>,
    pub(crate) ids: Arc<dyn frevo_store::IdSource>,
}

/// Nodes with an etcd.
pub(crate) struct Nodes {
    pub(crate) etcd: SharedEtcd,
    pub(crate) world: Arc<World>,
    clock: Clock,
    pub(crate) members: BTreeMap<usize, Member>,
    /// The newest form of records that the servers of further nodes read.
    pub(crate) records: RecordForm,
}

pub(crate) fn unit_name(name: &str) -> ShareName {
    ShareName::new(name).unwrap()
}

pub(crate) fn node_name(node: usize) -> NodeName {
    NodeName::new(&format!("n{node}")).unwrap()
}

/// Units of one share each.
pub(crate) fn units(count: usize) -> Vec<Unit> {
    (0..count).map(|n| Unit::of_share(unit_name(&format!("share{n}")))).collect()
}

impl Nodes {
    pub(crate) async fn start(count: usize, units: &[Unit]) -> Self {
        let start = Instant::now();
        let clock: Clock = Arc::new(move || Moment(Duration::from_secs(1_000) + start.elapsed()));
        let etcd = SharedEtcd::default();
        let (ticks, time) = (etcd.clone(), Arc::clone(&clock));
        tokio::spawn(async move {
            loop {
                ticks.change(|etcd| etcd.pass(time()));
                sleep(Duration::from_millis(10)).await;
            }
        });
        let members = BTreeMap::new();
        let records = RecordForm::TOLD_BY_NONE;
        let mut nodes = Self { etcd, world: Arc::default(), clock, members, records };
        for node in 0..count {
            nodes.join(node, units.to_vec(), None);
        }
        sleep(Duration::from_secs(3)).await;
        nodes
    }

    pub(crate) fn join(&mut self, node: usize, units: Vec<Unit>, predecessor: Option<LeaseId>) {
        self.join_with(node, units, predecessor, true);
    }

    /// A node that speaks no larger dialect than this one.
    pub(crate) fn join_speaking(&mut self, node: usize, units: Vec<Unit>, most: ClusterDialect) {
        let settings = Settings { dialect: most, ..self.settings(node) };
        self.join_as(settings, node, units, true);
    }

    pub(crate) fn join_with(
        &mut self,
        node: usize,
        units: Vec<Unit>,
        predecessor: Option<LeaseId>,
        has_fence: bool,
    ) {
        let settings = Settings { predecessor, ..self.settings(node) };
        self.join_as(settings, node, units, has_fence);
    }

    fn settings(&self, node: usize) -> Settings {
        let port = u16::try_from(node).unwrap();
        Settings {
            cluster: ClusterName::new("c").unwrap(),
            node: node_name(node),
            timing: Timing::default(),
            addresses: vec![SocketAddr::from(([192, 0, 2, 1], port))],
            weight: 1,
            software: "test".to_owned(),
            dialect: ClusterDialect::LARGEST,
            shares: Vec::new(),
            predecessor: None,
            grace: Duration::from_secs(10),
            records: self.records,
        }
    }

    fn join_as(&mut self, settings: Settings, node: usize, units: Vec<Unit>, has_fence: bool) {
        let chair = Chair::new(settings, units, Arc::clone(&self.clock)).with_secret(7);
        let server = Arc::new(Small {
            shares: Mutex::default(),
            store: Mutex::new(Some(chair.store())),
            told: Mutex::default(),
            dialect: Mutex::default(),
            owners: Mutex::default(),
            forms: Mutex::default(),
            start_fault: Mutex::default(),
            drain_fault: Mutex::default(),
            drain_end: Mutex::default(),
            stops_that_fail: Mutex::default(),
            states: Mutex::default(),
        });
        let (identity, world) = (Mutex::default(), Arc::clone(&self.world));
        let hands = Arc::new(SmallHands { world, node, identity, has_fence });
        let is_cut = Arc::new(AtomicBool::default());
        let time = Arc::clone(&self.clock);
        let engine = Cut { engine: self.etcd.engine(move || time()), is_cut: Arc::clone(&is_cut) };
        let (store, limit, ids) = (chair.store(), chair.limit(), chair.ids());
        let storage_lost = chair.storage_lost();
        let served = Arc::new(Shared(Arc::clone(&server)));
        let node_handle = chair.start(Arc::new(engine), served, hands);
        let member = Member { node: node_handle, server, store, limit, is_cut, storage_lost, ids };
        self.members.insert(node, member);
    }

    pub(crate) fn now(&self) -> Moment {
        (self.clock)()
    }

    pub(crate) fn member(&self, node: usize) -> &Member {
        &self.members[&node]
    }

    /// The nodes that serve a share: their servers say so, and their limits allow it.
    pub(crate) fn serving(&self, share: &str) -> Vec<usize> {
        let now = self.now().0;
        let serves = |(_, member): &(&usize, &Member)| {
            matches!(member.server.life(share), Life::Served(..)) && member.limit.allows(now)
        };
        self.members.iter().filter(serves).map(|(node, _)| *node).collect()
    }

    /// Waits until one node other than `not` serves a share. Returns it and the time.
    pub(crate) async fn taken(&self, share: &str, not: Option<usize>) -> (usize, Duration) {
        let begin = Instant::now();
        loop {
            let serving = self.serving(share);
            assert!(serving.len() < 2, "{serving:?} serve {share}");
            match serving.first() {
                Some(&node) if Some(node) != not => return (node, begin.elapsed()),
                _ => sleep(Duration::from_millis(5)).await,
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "nobody serves {share}");
        }
    }

    pub(crate) fn owner(&self, share: &str) -> usize {
        match self.serving(share)[..] {
            [owner] => owner,
            ref other => panic!("{other:?} serve {share}"),
        }
    }

    pub(crate) fn addresses(&self, unit: &str) -> Vec<usize> {
        let addresses = self.world.addresses.lock();
        addresses.get(&unit_name(unit)).into_iter().flatten().copied().collect()
    }
}

impl Member {
    pub(crate) async fn put(&self, share: &str, id: u64, bytes: &[u8]) -> Result<(), StateFault> {
        let owner = self.server.owner(share).expect("it is served");
        self.put_as(&owner, id, bytes).await
    }

    pub(crate) async fn put_as(
        &self,
        owner: &Ownership,
        id: u64,
        bytes: &[u8],
    ) -> Result<(), StateFault> {
        let (done, end) = oneshot::channel();
        self.store.put(owner, RecordId(id), bytes.to_vec(), Box::new(|end| _ = done.send(end)));
        end.await.unwrap()
    }

    pub(crate) async fn remove(&self, share: &str, id: u64) -> Result<(), StateFault> {
        let owner = self.server.owner(share).expect("it is served");
        let (done, end) = oneshot::channel();
        self.store.remove(&owner, RecordId(id), Box::new(|end| _ = done.send(end)));
        end.await.unwrap()
    }

    pub(crate) fn has_noted(&self, wanted: impl Fn(&Happening) -> bool) -> bool {
        self.node.events().iter().any(|noted| wanted(&noted.what))
    }
}
