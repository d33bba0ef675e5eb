//! The nodes that cannot use the storage of a unit, by the keys that they have in etcd.

use frevo_cluster::Settings;
use frevo_cluster::keys::{ControlKey, Layout};
use frevo_cluster::names::NodeName;
use frevo_cluster::values::NodeValue;
use frevo_cluster_node::Unit;
use frevo_etcd::client::Client;
use frevo_etcd::types::KeyValue;

use super::judged::{Judged, fault, warning};
use super::report::read;

const WHY: &str = "`frevo cluster status` there says why";

/// Finds the units that not all nodes can serve. Without an answer of etcd other findings say so.
pub(super) async fn of_storage(
    client: &Client,
    settings: &Settings,
    units: &[Unit],
) -> Vec<Judged> {
    let layout = Layout::new(&settings.cluster);
    let prefix = [&layout.control_prefix()[..], b"node/"].concat();
    let values = read(client, prefix).await.unwrap_or_default();
    judge(&nodes(&layout, &values), units)
}

fn nodes(layout: &Layout, values: &[KeyValue]) -> Vec<(NodeName, NodeValue)> {
    let node = |key: &KeyValue| match layout.parse_control(&key.key)? {
        ControlKey::Node(name) => Some((name, NodeValue::from_bytes(&key.value).ok()?)),
        _ => None,
    };
    values.iter().filter_map(node).collect()
}

fn judge(nodes: &[(NodeName, NodeValue)], units: &[Unit]) -> Vec<Judged> {
    let mut found = Vec::new();
    for unit in units.iter().filter(|unit| !unit.shares.is_empty()) {
        let unable = nodes.iter().filter(|(_, node)| node.unable.has(&unit.name));
        let names: Vec<_> = unable.map(|(name, _)| name.as_str()).collect();
        let unit = &unit.name;
        if names.is_empty() {
            continue;
        }
        found.push(match names.len() == nodes.len() {
            true => fault(format!("no node can use the storage of {unit}; {WHY}")),
            false => {
                warning(format!("{} cannot use the storage of {unit}; {WHY}", names.join(", ")))
            }
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use frevo_cluster::ClusterDialect;
    use frevo_cluster::ids::Generation;
    use frevo_cluster::names::{ClusterName, ShareName};
    use frevo_cluster::values::{RecordForm, Unable};
    use frevo_config::Config;
    use frevo_etcd::types::{LeaseId, Revision};

    use super::*;
    use crate::configured::cluster as configured;

    fn key(node: &str, unable: &[&str]) -> KeyValue {
        let layout = Layout::new(&ClusterName::new("c").unwrap());
        let unable: BTreeSet<_> = unable.iter().map(|name| ShareName::new(name).unwrap()).collect();
        let value = NodeValue {
            addresses: Vec::new(),
            weight: 1,
            software: "test".into(),
            generation: Generation(1),
            dialect: ClusterDialect::LARGEST,
            leaving: false,
            unable: Unable::Named(unable),
            records: RecordForm::TOLD_BY_NONE,
        };
        let key = layout.control(&ControlKey::Node(NodeName::new(node).unwrap()));
        KeyValue {
            key,
            value: value.to_bytes(),
            create_revision: Revision(2),
            mod_revision: Revision(2),
            version: 1,
            lease: LeaseId(1),
        }
    }

    fn texts(keys: &[KeyValue]) -> Vec<(bool, String)> {
        let text = "[cluster]\nname = \"c\"\nendpoints = [\"http://127.0.0.1\"]\n\
                    addresses = [\"192.0.2.20/24\"]\n\
                    [[share]]\nname = \"docs\"\npath = \"/srv/docs\"\ncluster = true\n";
        let units = configured::units(&Config::parse(text).unwrap()).unwrap();
        let layout = Layout::new(&ClusterName::new("c").unwrap());
        let found = judge(&nodes(&layout, keys), &units);
        found.into_iter().map(|one| (one.is_fault, one.text)).collect()
    }

    #[test]
    fn storage_that_no_node_can_use_is_a_fault() {
        let (good, bad) = (key("n1", &[]), key("n2", &["docs"]));
        assert!(texts(&[]).is_empty() && texts(std::slice::from_ref(&good)).is_empty());
        let some = format!("n2 cannot use the storage of docs; {WHY}");
        assert_eq!(texts(&[good, bad.clone()]), [(false, some)]);
        let none = format!("no node can use the storage of docs; {WHY}");
        assert_eq!(texts(&[bad]), [(true, none)]);
    }
}
