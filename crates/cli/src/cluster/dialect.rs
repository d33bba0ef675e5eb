//! The dialect that the cluster demands, and the nodes that do not speak it, by the keys in etcd.

use frevo_cluster::keys::{ControlKey, Layout};
use frevo_cluster::names::NodeName;
use frevo_cluster::values::{DialectValue, NodeValue};
use frevo_cluster::{ClusterDialect, Settings};
use frevo_etcd::client::Client;
use frevo_etcd::types::KeyValue;

use super::judged::{Judged, fault, warning};
use super::report::read;

/// A node that is up, with the largest dialect that it speaks.
struct Speaker {
    node: NodeName,
    largest: ClusterDialect,
}

/// Finds nodes that do not speak what the cluster demands. Without an answer of etcd other findings say so.
pub(super) async fn of_dialect(client: &Client, settings: &Settings) -> Vec<Judged> {
    let layout = Layout::new(&settings.cluster);
    let key = layout.control(&ControlKey::Dialect);
    let Some(value) = read(client, key).await.unwrap_or_default().into_iter().next() else {
        return Vec::new();
    };
    let prefix = [&layout.control_prefix()[..], b"node/"].concat();
    let nodes = read(client, prefix).await.unwrap_or_default();
    let own = Speaker { node: settings.node.clone(), largest: settings.dialect };
    judge(&value.value, own, speakers(&layout, &nodes))
}

fn speakers(layout: &Layout, values: &[KeyValue]) -> Vec<Speaker> {
    let speaker = |key: &KeyValue| match layout.parse_control(&key.key)? {
        ControlKey::Node(node) => {
            let largest = NodeValue::from_bytes(&key.value).ok()?.dialect;
            Some(Speaker { node, largest })
        }
        _ => None,
    };
    values.iter().filter_map(speaker).collect()
}

/// Judges the nodes that are up, and the configuration of this one, which may not be up.
fn judge(value: &[u8], own: Speaker, mut up: Vec<Speaker>) -> Vec<Judged> {
    let max = match DialectValue::from_bytes(value) {
        Ok(value) => value.max,
        Err(why) => {
            return vec![fault(format!(
                "no node can read the dialect that the cluster demands, so none has shares: {why}; set it \
                 again with frevo cluster raise"
            ))];
        }
    };
    if up.iter().all(|one| one.node != own.node) {
        up.push(own);
    }
    let behind: Vec<_> = up.iter().filter(|one| one.largest < max).collect();
    let text = |one: &&Speaker| {
        fault(format!(
            "node {} speaks SMB {} at most, and the cluster demands {max}: it can have no shares; upgrade \
             Frevo there, or raise its max_dialect",
            one.node, one.largest
        ))
    };
    let mut found: Vec<_> = behind.iter().map(text).collect();
    let least = up.iter().map(|one| one.largest).min();
    if let Some(least) = least.filter(|least| *least > max) {
        found.push(warning(format!(
            "clients use SMB {max} at most, and all nodes speak {least}: frevo cluster raise lets them use it"
        )));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ClusterDialect = ClusterDialect::SMB_3_0_2;
    const NEW: ClusterDialect = ClusterDialect::SMB_3_1_1;

    fn speaker(node: &str, largest: ClusterDialect) -> Speaker {
        Speaker { node: NodeName::new(node).unwrap(), largest }
    }

    fn texts(max: ClusterDialect, own: Speaker, up: Vec<Speaker>) -> Vec<(bool, String)> {
        let found = judge(&DialectValue { max }.to_bytes(), own, up);
        found.into_iter().map(|one| (one.is_fault, one.text)).collect()
    }

    #[test]
    fn nodes_that_do_not_speak_the_demand_are_named() {
        let up = || vec![speaker("n1", NEW), speaker("n2", OLD)];
        assert!(texts(OLD, speaker("n1", NEW), up()).is_empty());
        let found = texts(NEW, speaker("n1", NEW), up());
        let [(true, text)] = &found[..] else { panic!("{found:?}") };
        assert!(text.starts_with("node n2 speaks SMB 3.0.2 at most"), "{text}");
        // This machine's own configuration counts while its server does not run.
        let found = texts(NEW, speaker("n3", OLD), vec![speaker("n1", NEW)]);
        assert!(found[0].1.starts_with("node n3 speaks"), "{found:?}");
    }

    #[test]
    fn a_limit_that_is_not_needed_is_told() {
        let found = texts(OLD, speaker("n1", NEW), vec![speaker("n1", NEW), speaker("n2", NEW)]);
        let [(false, text)] = &found[..] else { panic!("{found:?}") };
        assert!(text.contains("all nodes speak 3.1.1"), "{text}");
        let broken = judge(b"frevo-dialect 9\n", speaker("n1", NEW), Vec::new());
        assert!(broken[0].is_fault && broken[0].text.contains("version 9"), "{broken:?}");
    }
}
