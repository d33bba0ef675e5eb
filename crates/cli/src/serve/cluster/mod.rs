//! A server that is a node of a cluster.
//!
//! Before the confinement its secrets are read and the process with rights is started. The node's driver
//! and the client of etcd have a thread of their own, so that nothing else keeps them from confirming the
//! lease; the moves of shares have another one, because file systems can make them wait.

mod domain_keys;
mod for_admin;
mod lease;
mod namespaces;
mod reach;
mod reload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_admin::ClusterNode;
use frevo_cluster::Settings;
use frevo_cluster::names::ShareName;
use frevo_cluster_node::{Apart, Call, Chair, Hands, Node, Noted, Unit};
use frevo_config::Config;
use frevo_etcd::client::{Client, Options};
use frevo_etcd::engine::Moment;
use frevo_fences::hands::{Hands as HandsProcess, HandsDialer, Started};
use frevo_fences::{KeysFile, Kind};
use frevo_net::socket::interfaces;
use frevo_server::{ClusterNames, Server, ServerBuilder};
use frevo_store::StateStore;
use tokio::runtime::{Builder, Handle, Runtime};

pub(super) use self::domain_keys::fetch as fetch_domain_keys;
use self::lease::LeaseFile;
pub(super) use self::namespaces::{Made, Namespaces, State, Wanted};
use self::reach::Folders;
pub(super) use self::reload::{needs_restart, refusal};
use super::plan::Plan;
use super::share_edits::Asking;
use crate::arguments::Serve;
use crate::cluster::{NamespaceStore, Report, Vault};
use crate::configured::cluster as configured;
use crate::exit::{Exit, Failure};
use crate::{accounts, cluster, state};

/// The file of this node's registrations with disks, in its state directory.
const KEYS: &str = "cluster.keys";
/// Time between two looks at the lease that is kept on the disk.
const LEASE_LOOKS: Duration = Duration::from_millis(500);

/// A node before the process is confined.
pub(super) struct Prepared {
    settings: Settings,
    units: Vec<Unit>,
    options: Options,
    lease: LeaseFile,
    started: Started,
    folders: Folders,
    drain: Duration,
    report: Report,
    names: Option<ClusterNames>,
    state_dir: PathBuf,
}

/// A node whose server is made next.
pub(super) struct Ready {
    chair: Chair,
    options: Options,
    lease: LeaseFile,
    hands: Acting,
    drain: Duration,
    report: Report,
    cluster: String,
    names: Option<ClusterNames>,
    /// The settings of the node and its state directory, for the accounts in domains.
    settings: Settings,
    state_dir: PathBuf,
}

/// A node that runs.
#[derive(Debug, Clone)]
pub(super) struct Running {
    node: Node,
    server: Server,
    cluster: String,
    /// The namespaces that were made over the network for shares of the cluster.
    pub(super) namespaces: Namespaces,
    /// The moment of those that are served.
    pub(super) kept: namespaces::Turn,
    /// True if the copy of the namespaces is not served: a reload has failed.
    pub(super) is_behind: bool,
    /// The time for the end of the process: until shares are given away and all requests are answered.
    patience: Duration,
}

fn wrong(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Config, format!("[cluster]: {why}"))
}

/// Reads what the node needs, and starts the process with rights. None without `[cluster]`. `listening` are
/// the addresses of the server's sockets.
pub(super) fn prepare(plan: &Plan, listening: &[SocketAddr]) -> Result<Option<Prepared>, Failure> {
    let config = &plan.config;
    if !config.cluster.is_on() {
        return Ok(None);
    }
    let host = accounts::host_name();
    let settings = configured::settings(config, host.as_str(), reachable(listening));
    let mut settings = settings.map_err(wrong)?;
    let units = configured::units(config).map_err(wrong)?;
    let options = cluster::options(config, &settings)?;
    let dir = state::dir_of(config);
    state::make_dir(&dir)?;
    let (lease, before) = LeaseFile::open(&dir, &settings)?;
    settings.predecessor = before;
    let mut set_up = configured::set_up(config).map_err(wrong)?;
    set_up.keys = set_up.uses(Kind::ScsiPr).then(|| KeysFile {
        path: dir.join(KEYS),
        owner: format!("{} {}", settings.cluster, settings.node),
    });
    let folders = Folders::of(&set_up);
    let started = Started::begin(&set_up, &log_options(config))
        .map_err(Failure::failed("cannot start the process with rights of the cluster"))?;
    let drain = crate::configured::limits(&config.limits).drain;
    let report = Report::of(config);
    let names = configured::names(config, &settings);
    Ok(Some(Prepared {
        settings,
        units,
        options,
        lease,
        started,
        folders,
        drain,
        report,
        names,
        state_dir: dir,
    }))
}

/// The options of the log, as the server has them.
pub(super) fn log_options(config: &Config) -> Vec<String> {
    let format = config.server.log.map(|log| ["--log".to_owned(), log.as_str().to_owned()]);
    let level = config.server.log_level.clone();
    let level = level.map(|level| ["--log-level".to_owned(), level]);
    format.into_iter().chain(level).flatten().collect()
}

/// The addresses at which other machines reach the server.
fn reachable(listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let own = || interfaces().unwrap_or_default().into_iter().flat_map(|one| one.addresses);
    let mut found = Vec::new();
    for address in listening {
        if !address.ip().is_unspecified() {
            found.push(*address);
            continue;
        }
        let is_wanted = |ip: &std::net::IpAddr| {
            let is_of_family = ip.is_ipv4() || address.is_ipv6();
            let is_local = match ip {
                std::net::IpAddr::V4(ip) => ip.is_link_local(),
                std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            is_of_family && !ip.is_loopback() && !is_local
        };
        found.extend(own().filter(is_wanted).map(|ip| SocketAddr::new(ip, address.port())));
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(frevo_cluster::limits::ADDRESSES);
    found
}

impl Prepared {
    /// Makes the parts of the server, after the confinement. `local` keeps the records of shares that are
    /// this server's alone.
    pub(super) fn ready(self, local: Option<Arc<dyn StateStore>>) -> Result<Ready, Failure> {
        let Self { settings, units, mut options, lease, started, folders, .. } = self;
        let Self { drain, report, names, state_dir, .. } = self;
        let cluster = settings.cluster.to_string();
        let report = report.by(&settings);
        let hands = started
            .attend(end_without_hands)
            .map_err(Failure::failed("cannot use the process with rights of the cluster"))?;
        options.dialer = Arc::new(HandsDialer(hands.clone()));
        let mut chair = Chair::new(settings.clone(), units, Arc::new(frevo_etcd::client::now));
        chair = chair.with_drain_patience(drain);
        if let Some(local) = local {
            chair = chair.with_local(local);
        }
        let hands = Acting { hands, folders };
        Ok(Ready {
            chair,
            options,
            lease,
            hands,
            drain,
            report,
            cluster,
            names,
            settings,
            state_dir,
        })
    }
}

/// Ends this process after the one with rights has ended: without that one the node's addresses have gone,
/// and it reaches neither etcd nor storage of others. The service manager starts both again.
fn end_without_hands() {
    tracing::error!(target: "frevo::cluster",
        "the process with rights (frevo-hands) has ended: without it this node sets no address, fences \
         nobody and does not reach etcd; frevo ends now, to be started again with a new one");
    std::process::exit(i32::from(Exit::Failed as u8));
}

impl Ready {
    /// Gives the server its place in the cluster.
    pub(super) fn seat(&self, parts: ServerBuilder) -> ServerBuilder {
        let parts = match &self.names {
            Some(names) => parts.cluster_names(names.clone()),
            None => parts,
        };
        parts
            .cluster(self.chair.seat())
            .storage_lost(self.chair.storage_lost())
            .state_store(self.chair.store())
    }

    /// Starts the node's threads. `asking` leads to the thread that reloads.
    pub(super) fn start(
        self,
        server: &Server,
        arguments: &Serve,
        asking: Asking,
    ) -> Result<Running, Failure> {
        let Self { mut chair, options, mut lease, hands, drain, report, cluster, .. } = self;
        let Self { settings, state_dir, .. } = self;
        let failed = || Failure::failed("cannot start the cluster's threads");
        let moves = thread("cluster-moves")?;
        let runtime = thread("cluster")?;
        let client = Client::new(options, runtime.clone()).map_err(wrong)?;
        drop(runtime.spawn(cluster::look_at_endpoints(client.clone())));
        let vault = Vault::new(client.clone(), &settings, &state_dir);
        drop(runtime.spawn(domain_keys::keep(vault)));
        let store = NamespaceStore::new(Arc::new(client.clone()), &settings);
        let namespaces = Namespaces::new(store, asking, arguments.config.clone());
        // Not in the thread that keeps the lease: namespaces are long texts.
        drop(tokio::spawn(namespaces.clone().keep()));
        if let Some(audit) = server.audit().cloned() {
            chair = chair.with_observer(Arc::new(move |noted: &Noted| {
                if let Some(event) = for_admin::event(&noted.what) {
                    audit.emit(event);
                }
            }));
        }
        let served = Arc::new(Apart::new(Arc::new(server.clone()), moves));
        let hands = Arc::new(hands);
        let (told, started) = std::sync::mpsc::channel();
        drop(runtime.spawn(async move {
            let node = chair.start(Arc::new(client.clone()), served, hands);
            // The receiver waits for it.
            _ = told.send(node.clone());
            drop(tokio::spawn(report.keep(client, node)));
        }));
        let node = started.recv().map_err(failed())?;
        // A disk that is slow holds up this thread alone.
        let kept = node.clone();
        let keeping = std::thread::Builder::new().name("cluster-lease".into());
        let keep = move || loop {
            std::thread::sleep(LEASE_LOOKS);
            lease.keep(kept.lease());
        };
        keeping.spawn(keep).map_err(Failure::failed("cannot start the cluster's threads"))?;
        let (server, kept) = (server.clone(), namespaces::Turn::default());
        Ok(Running { node, server, cluster, namespaces, kept, is_behind: false, patience: drain })
    }
}

/// Starts a thread with an event loop, which goes on until the process ends.
fn thread(name: &'static str) -> Result<Handle, Failure> {
    let failed = || Failure::failed("cannot start the cluster's threads");
    let runtime: Runtime = Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let handle = runtime.handle().clone();
    let forever = std::future::pending::<()>();
    let spawned = std::thread::Builder::new().name(name.into());
    spawned.spawn(move || runtime.block_on(forever)).map_err(failed())?;
    Ok(handle)
}

impl Running {
    /// The node for the admin interface.
    pub(super) fn for_admin(&self) -> Arc<dyn ClusterNode> {
        let (cluster, node) = (self.cluster.clone(), self.node.clone());
        Arc::new(for_admin::ForAdmin { cluster, node, server: self.server.clone() })
    }

    /// Gives all shares away, and ends the registration. Returns the rest of the time that the end of the
    /// process has.
    pub(super) async fn leave(self) -> Duration {
        let begun = Instant::now();
        tracing::info!(target: "frevo::cluster", "giving the shares to other nodes");
        match tokio::time::timeout(self.patience, self.node.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                tracing::warn!(target: "frevo::cluster", "this node did not leave the cluster: {fault}");
            }
            Err(_) => tracing::warn!(target: "frevo::cluster",
                "not all shares were given away in time; other nodes take them over"),
        }
        self.patience.saturating_sub(begun.elapsed())
    }

    /// Applies the weights of a new configuration. Other changes of the cluster need a restart.
    pub(super) fn reload(&self, config: &Config) {
        let known = self.node.units();
        for unit in configured::units(config).unwrap_or_default() {
            if known.iter().any(|known| known.name == unit.name && known.shares == unit.shares) {
                self.node.set_unit(unit);
            }
        }
    }
}

/// The process with rights as the node's hands.
struct Acting {
    hands: HandsProcess,
    folders: Folders,
}

impl Hands for Acting {
    fn look<'a>(
        &'a self,
        unit: &'a ShareName,
    ) -> Call<'a, Result<frevo_cluster::fence::Fence, String>> {
        Box::pin(async move {
            let fence = self.hands.look(unit.as_str()).await?;
            self.folders.reach(unit.as_str()).await?;
            Ok(fence)
        })
    }

    fn fence<'a>(&'a self, fence: &'a frevo_cluster::fence::Fence) -> Call<'a, Result<(), String>> {
        Box::pin(self.hands.fence(fence))
    }

    fn raise<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>> {
        Box::pin(self.hands.raise(unit.as_str()))
    }

    fn lower<'a>(&'a self, unit: &'a ShareName) -> Call<'a, Result<(), String>> {
        Box::pin(self.hands.lower(unit.as_str()))
    }

    fn serve_until(&self, limit: Moment) {
        self.hands.serve_until(limit.0);
    }
}
