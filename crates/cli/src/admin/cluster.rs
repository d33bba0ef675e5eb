//! `frevo cluster`.

use std::path::Path;

use frevo_admin::{ClusterAct, ClusterUnit, ClusterView};
use frevo_cluster::ClusterDialect;

use super::arguments::{ClusterArguments, ClusterVerb, ServerPlace};
use super::figures::span;
use super::socket::ask;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::printable::printable;
use crate::text_table::{Align, Table};
use crate::{accounts, cluster, config_checks, state};

use Align::{Left, Right};

/// The state of a unit that the node serves.
const OWNED: &str = "owned";
/// The state of a node that does not speak the dialect that the cluster demands.
const BEHIND: &str = "behind";
/// Happenings that are shown.
const HAPPENINGS_SHOWN: usize = 10;

/// The way to a first cluster, on Debian.
const BEGIN: &str = "\
A cluster needs an etcd and a file system that all nodes have. On each of three Debian machines, here
10.0.0.1 to 10.0.0.3:

  apt install etcd-server
  cat >> /etc/default/etcd <<END
  ETCD_NAME=n1
  ETCD_DATA_DIR=/var/lib/etcd/nas
  ETCD_INITIAL_CLUSTER=n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380
  ETCD_INITIAL_ADVERTISE_PEER_URLS=http://10.0.0.1:2380
  ETCD_LISTEN_PEER_URLS=http://10.0.0.1:2380
  ETCD_LISTEN_CLIENT_URLS=http://10.0.0.1:2379
  ETCD_ADVERTISE_CLIENT_URLS=http://10.0.0.1:2379
  ETCD_AUTO_COMPACTION_RETENTION=5m
  END
  systemctl restart etcd

(with its own name and address on each; the data of the etcd that the package has started stays behind), then in frevo.toml on each:

  [cluster]
  name = \"nas\"
  endpoints = [\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\", \"http://10.0.0.3:2379\"]

  [[share]]
  name = \"projects\"
  path = \"/mnt/shared/projects\"
  cluster = true

and `systemctl restart frevo`. `frevo cluster check` looks at it all, `frevo cluster status` shows it.
TLS, fences and addresses that move: docs/cluster.md.
";

pub(super) async fn run(arguments: &ClusterArguments) -> Done {
    match &arguments.verb {
        None => print(BEGIN.as_bytes()),
        Some(ClusterVerb::Status { here, place }) => status(place, *here).await,
        Some(ClusterVerb::Move { share, node, place }) => {
            let share = frevo_wire::fscc::fold_name(share);
            let act = ClusterAct::Move { share, node: node.clone() };
            act_on(place, &act, "moved").await
        }
        Some(ClusterVerb::Drain { node, place }) => {
            act_on(place, &ClusterAct::Drain { node: node.clone() }, "drained").await
        }
        Some(ClusterVerb::Undrain { node, place }) => {
            act_on(place, &ClusterAct::Undrain { node: node.clone() }, "undrained").await
        }
        Some(ClusterVerb::Raise { to, place }) => {
            let newest = || ClusterDialect::LARGEST.to_string();
            let dialect = to.clone().unwrap_or_else(newest);
            let done = "is the newest dialect of clients on shares of the cluster";
            act_on(place, &ClusterAct::Raise { dialect }, done).await
        }
        Some(ClusterVerb::MoveClient { client, node, place }) => {
            let (client, node) = (client.clone(), node.clone());
            act_on(place, &ClusterAct::MoveClient { client, node }, "told to move").await
        }
        Some(ClusterVerb::Check { config, json }) => {
            let path = config.as_deref().unwrap_or_else(|| Path::new(state::DEFAULT_CONFIG));
            let config = config_checks::read(path)?;
            let host = accounts::host_name();
            cluster::check(&config, host.as_str(), *json).await
        }
    }
}

fn parsed(answer: &[u8]) -> Result<ClusterView, Failure> {
    serde_json::from_slice(answer).map_err(Failure::failed("the server's answer makes no sense"))
}

async fn status(place: &ServerPlace, must_be_here: bool) -> Done {
    let answer = ask(place, "/cluster", None).await?;
    let view = parsed(&answer)?;
    match place.json {
        true => print(&[&answer[..], b"\n"].concat())?,
        false => print(shown(&view).as_bytes())?,
    }
    if must_be_here { all_here(&view) } else { Ok(()) }
}

/// Fails unless the node serves all shares, for load balancers that send clients to the node that does.
fn all_here(view: &ClusterView) -> Done {
    let mut units = view.units.iter().filter(|unit| !unit.shares.is_empty());
    let away = units.find(|unit| unit.state != OWNED || !view.is_serving);
    away.map_or(Ok(()), |unit| {
        let why = format!("{} does not serve {}", view.node, printable(&unit.name));
        Err(Failure::new(Exit::Failed, why))
    })
}

async fn act_on(place: &ServerPlace, act: &ClusterAct, done: &str) -> Done {
    let body = serde_json::to_string(act).map_err(Failure::failed("cannot ask the server"))?;
    let answer = ask(place, "/cluster", Some(&body)).await?;
    if place.json {
        return print(&[&answer[..], b"\n"].concat());
    }
    let line = match act {
        ClusterAct::Move { share, node } => format!("{share}: {done} to {node}"),
        ClusterAct::Drain { node } | ClusterAct::Undrain { node } => format!("{node}: {done}"),
        ClusterAct::Raise { dialect } => format!("SMB {dialect} {done}"),
        ClusterAct::MoveClient { client, node } => format!("{client}: {done} to {node}"),
    };
    print(format!("{}\n", printable(&line)).as_bytes())
}

/// The state of a cluster for people.
fn shown(view: &ClusterView) -> String {
    let state = match (view.is_registered, view.etcd_answers, view.is_serving) {
        (_, false, _) => "etcd does not answer",
        (false, true, _) => "not registered yet",
        (true, true, false) => "paused: etcd has not confirmed this node in time",
        (true, true, true) => "serving",
    };
    let mut out = format!("cluster {}, node {}: {state}\n", view.cluster, view.node);
    if let Some(max) = &view.max_dialect {
        out.push_str(&format!("clients use SMB {max} at most\n"));
    }
    let mut nodes = Table::new(&[
        ("NODE", Left),
        ("STATE", Left),
        ("UNITS", Right),
        ("WEIGHT", Right),
        ("SMB", Left),
        ("ADDRESSES", Left),
    ]);
    for node in &view.nodes {
        nodes.row(&[
            node.name.clone(),
            node.state.clone(),
            node.units.to_string(),
            node.weight.to_string(),
            node.dialect.clone().unwrap_or_else(|| "-".to_owned()),
            node.addresses.join(" "),
        ]);
    }
    add(&mut out, &nodes);
    out.push_str(&behind(view));
    let heads =
        ["UNIT", "OWNER", "HERE", "FOR", "FENCE", "BECAUSE", "SHARES"].map(|head| (head, Left));
    let mut units = Table::new(&heads);
    for unit in &view.units {
        units.row(&cells(unit));
    }
    add(&mut out, &units);
    let without = view.units.iter().filter(|unit| unit.fence.as_deref() == Some("none")).count();
    if without > 0 {
        let units = if without == 1 { "1 unit has" } else { "some units have" };
        out.push_str(&format!(
            "\n{units} no fence: a node that was stopped in the middle of a write can still write\n"
        ));
    }
    if !view.happenings.is_empty() {
        out.push_str("\nlast at this node:\n");
    }
    for one in view.happenings.iter().take(HAPPENINGS_SHOWN) {
        let mark = if one.is_warning { "!" } else { " " };
        out.push_str(&format!("{mark} {} ago: {}\n", span(one.seconds_ago), printable(&one.what)));
    }
    out
}

/// The sentence for nodes that do not speak the dialect that the cluster demands.
fn behind(view: &ClusterView) -> String {
    let nodes = view.nodes.iter().filter(|node| node.state == BEHIND);
    let names: Vec<_> = nodes.map(|node| node.name.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    let verb = if names.len() == 1 { "does" } else { "do" };
    let dialect = match &view.max_dialect {
        Some(max) => format!("SMB {max}, which the cluster demands"),
        None => "the dialect that the cluster demands".to_owned(),
    };
    let names = names.join(", ");
    format!("\n{names} {verb} not speak {dialect}, and can have no shares; upgrade Frevo there\n")
}

fn cells(unit: &ClusterUnit) -> [String; 7] {
    let others = unit.shares.iter().filter(|share| **share != unit.name).cloned();
    [
        unit.name.clone(),
        unit.owner.clone().unwrap_or_else(|| "none".to_owned()),
        unit.state.clone(),
        unit.owned_seconds.map_or_else(|| "-".to_owned(), span),
        unit.fence.clone().unwrap_or_else(|| "no storage".to_owned()),
        unit.because.clone().unwrap_or_default(),
        others.collect::<Vec<_>>().join(" "),
    ]
}

fn add(out: &mut String, table: &Table) {
    if table.is_empty() {
        return;
    }
    out.push('\n');
    for line in table.lines() {
        out.push_str(&line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_admin::{ClusterHappening, ClusterMember};

    #[test]
    fn a_status_names_owners_and_reasons() {
        let unit = ClusterUnit {
            name: "docs".into(),
            shares: vec!["docs".into()],
            owner: Some("n2".into()),
            state: "elsewhere".into(),
            epoch: 7,
            owned_seconds: Some(61),
            because: Some("n1 did not answer any more".into()),
            fence: Some("none".into()),
        };
        let happening =
            ClusterHappening { seconds_ago: 5, is_warning: true, what: "stopped\u{1b}".into() };
        let view = ClusterView {
            cluster: "nas".into(),
            node: "n1".into(),
            is_registered: true,
            etcd_answers: true,
            is_serving: true,
            max_dialect: Some("3.0.2".into()),
            nodes: vec![
                ClusterMember { name: "n2".into(), ..ClusterMember::default() },
                ClusterMember {
                    name: "n3".into(),
                    state: BEHIND.into(),
                    dialect: Some("3.0".into()),
                    ..ClusterMember::default()
                },
            ],
            units: vec![unit],
            happenings: vec![happening],
        };
        let text = shown(&view);
        let head = "cluster nas, node n1: serving\nclients use SMB 3.0.2 at most\n";
        assert!(text.starts_with(head), "{text}");
        let behind =
            "n3 does not speak SMB 3.0.2, which the cluster demands, and can have no shares";
        assert!(text.contains(behind) && text.contains("0  3.0\n"), "{text}");
        let row = "docs  n2     elsewhere  1 min  none   n1 did not answer any more";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("1 unit has no fence") && text.contains("! 5 s ago: stopped?"));
        assert_eq!(all_here(&view).unwrap_err().to_string(), "n1 does not serve docs");
        let mut here = ClusterView { node: "n2".into(), ..view.clone() };
        here.units[0].state = OWNED.into();
        // An address of the cluster that is elsewhere does not matter.
        here.units.push(ClusterUnit { state: "elsewhere".into(), ..ClusterUnit::default() });
        assert!(all_here(&here).is_ok());
        here.is_serving = false;
        assert!(all_here(&here).is_err());
        let silent = ClusterView { etcd_answers: false, ..view };
        assert!(shown(&silent).contains("etcd does not answer"));
    }
}
