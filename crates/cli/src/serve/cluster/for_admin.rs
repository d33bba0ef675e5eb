//! The node as the admin interface sees it.

use frevo_admin::{
    Acting, ClusterAct, ClusterHappening, ClusterMember, ClusterNode, ClusterUnit, ClusterView,
};
use frevo_cluster::interface::Command;
use frevo_cluster::machine::{NodeStatus, ShareStatus};
use frevo_cluster::names::{NodeName, ShareName};
use frevo_cluster_node::{Happening, Node, Noted, UnitStatus};
use frevo_etcd::engine::Moment;
use frevo_server::Server;
use frevo_server::audit::{Event, Kind};

/// Happenings that are shown.
const SHOWN: usize = 50;

/// A node for the admin interface.
pub(super) struct ForAdmin {
    pub(super) cluster: String,
    pub(super) node: Node,
    pub(super) server: Server,
}

impl ClusterNode for ForAdmin {
    fn view(&self) -> ClusterView {
        let status = self.node.status();
        let now = self.node.now();
        let units = self.node.units();
        let unit = |share: &ShareStatus| {
            let known = units.iter().find(|unit| unit.name == share.name);
            unit_of(share, known, now)
        };
        let events = self.node.events();
        let happening = |noted: &Noted| ClusterHappening {
            seconds_ago: now.0.saturating_sub(noted.at.0).as_secs(),
            is_warning: noted.what.is_warning(),
            what: noted.what.to_string(),
        };
        ClusterView {
            cluster: self.cluster.clone(),
            node: status.node.to_string(),
            is_registered: status.is_registered,
            etcd_answers: status.etcd_answers,
            is_serving: status.until.is_some_and(|until| until > now),
            max_dialect: status.dialect.map(|dialect| dialect.to_string()),
            nodes: status.nodes.iter().map(member).collect(),
            units: status.shares.iter().map(unit).collect(),
            happenings: events.iter().rev().take(SHOWN).map(happening).collect(),
        }
    }

    fn act(&self, act: ClusterAct) -> Acting<'_> {
        let node = |name: &str| NodeName::new(name).map_err(|why| format!("{name:?}: {why}"));
        let command = match &act {
            ClusterAct::Move { share, node: to } => self.unit(share).and_then(|share| {
                let to = node(to)?;
                Ok(Command::Move { share, to })
            }),
            ClusterAct::Drain { node: name } => node(name).map(Command::Drain),
            ClusterAct::Undrain { node: name } => node(name).map(Command::Undrain),
            ClusterAct::Raise { dialect } => {
                let dialect = dialect.parse().map_err(|why| format!("{dialect:?}: {why}"));
                dialect.map(Command::Raise)
            }
            ClusterAct::MoveClient { client, node } => {
                let moved = self.server.move_client(client, node).map(|_| ());
                return Box::pin(std::future::ready(moved));
            }
        };
        Box::pin(
            async move { self.node.command(command?).await.map_err(|fault| fault.to_string()) },
        )
    }
}

impl ForAdmin {
    /// The unit with a name, or with a share of that name.
    fn unit(&self, name: &str) -> Result<ShareName, String> {
        let units = self.node.units();
        let is_meant = |unit: &&UnitStatus| {
            unit.name.as_str() == name || unit.shares.iter().any(|share| &**share == name)
        };
        let unit = units.iter().find(is_meant).map(|unit| unit.name.clone());
        unit.ok_or_else(|| format!("this node has no share {name} with cluster = true"))
    }
}

fn member(node: &NodeStatus) -> ClusterMember {
    let state = match node {
        NodeStatus { is_leaving: true, .. } => "leaving",
        NodeStatus { is_behind: true, .. } => "behind",
        NodeStatus { is_drained: true, .. } => "drained",
        _ => "up",
    };
    ClusterMember {
        name: node.name.to_string(),
        addresses: node.addresses.iter().map(ToString::to_string).collect(),
        weight: node.weight,
        units: node.shares,
        state: state.to_owned(),
        dialect: node.dialect.map(|dialect| dialect.to_string()),
    }
}

fn unit_of(share: &ShareStatus, known: Option<&UnitStatus>, now: Moment) -> ClusterUnit {
    let since = known.and_then(|known| known.since);
    ClusterUnit {
        name: share.name.to_string(),
        shares: known
            .into_iter()
            .flat_map(|known| &known.shares)
            .map(ToString::to_string)
            .collect(),
        owner: share.owner.as_ref().map(ToString::to_string),
        state: share.stage.to_owned(),
        epoch: share.epoch.0,
        owned_seconds: since.map(|since| now.0.saturating_sub(since.0).as_secs()),
        because: known.and_then(|known| known.because.clone()),
        fence: share.fence.map(str::to_owned),
    }
}

/// The event of the audit log for a happening. None for one that the log of the server tells.
pub(super) fn event(what: &Happening) -> Option<Event> {
    let (change, node) = match what {
        Happening::Taken { reason, .. } => ("taken", former(reason)),
        Happening::Given { to, .. } => ("given", to.as_ref().map(ToString::to_string)),
        Happening::Stopped { .. } => ("stopped", None),
        Happening::Paused => ("paused", None),
        Happening::Resumed => ("resumed", None),
        Happening::Fenced { node, .. } => ("fenced", Some(node.to_string())),
        _ => return None,
    };
    let mut event = Event::new(Kind::Cluster).with("change", change);
    if let Some(unit) = what.unit() {
        event = event.with("unit", unit.to_string());
    }
    if let Some(node) = node {
        event = event.with("node", node);
    }
    Some(event.with("reason", what.to_string()))
}

fn former(reason: &frevo_cluster::values::Reason) -> Option<String> {
    use frevo_cluster::values::Reason;
    match reason {
        Reason::First => None,
        Reason::Given(node) | Reason::Failover(node) => Some(node.to_string()),
    }
}
