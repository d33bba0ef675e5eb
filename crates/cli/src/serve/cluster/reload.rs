//! The parts of a configuration that a reload of a node cannot change.

use std::path::PathBuf;

use frevo_config::{ClusterAddress, Config, FenceChoice, ShareSection};

use crate::configured::cluster as configured;

/// The place of a share in its cluster, which the node's driver and its process with rights know from
/// their start.
#[derive(PartialEq, Eq)]
struct Moving<'a> {
    unit: String,
    folder: PathBuf,
    fence: Option<FenceChoice>,
    addresses: &'a [ClusterAddress],
}

impl<'a> Moving<'a> {
    /// None for a share that is its server's alone.
    fn of(config: &Config, share: &'a ShareSection) -> Option<Self> {
        share.cluster.then(|| Self {
            unit: share.unit(),
            folder: share.shared_folder(),
            fence: config.fence_of(share),
            addresses: &share.addresses,
        })
    }
}

/// Returns the reason why a reload from one configuration to another is refused: it changes the shares that
/// move. The node would go on with the units that it knows. A share that had gone from them would be served
/// by two nodes, or by none.
pub(in crate::serve) fn refusal(before: &Config, after: &Config) -> Option<String> {
    let one = before.shares.iter().find_map(|share| changed(before, share, after));
    let is_new = |share: &&ShareSection| share.cluster && like(before, share).is_none();
    let name = |share: &ShareSection| share.name.get_ref().to_string();
    let (name, change) = one.or_else(|| {
        let new = after.shares.iter().find(is_new)?;
        Some((name(new), "is new in the cluster"))
    })?;
    Some(format!(
        "the share {name} {change}, which takes a restart of this node; take that change back, or run \
         `frevo cluster drain` for this node and restart frevo"
    ))
}

/// The name of a share whose place in the cluster changes, and the change.
fn changed(
    before: &Config,
    share: &ShareSection,
    after: &Config,
) -> Option<(String, &'static str)> {
    let now = like(after, share);
    let is_at = now.map(|now| Moving::of(after, now));
    let change = match (Moving::of(before, share), is_at) {
        (None, None | Some(None)) => return None,
        (Some(_), None) => "of the cluster is removed or has another name",
        (Some(_), Some(None)) => "leaves the cluster (`cluster`)",
        (None, Some(Some(_))) => "joins the cluster (`cluster`)",
        (Some(was), Some(Some(is))) if was == is => return None,
        (Some(was), Some(Some(is))) if was.unit != is.unit => "has another `group`",
        (Some(was), Some(Some(is))) if was.folder != is.folder => {
            "of the cluster has another `path`"
        }
        (Some(was), Some(Some(is))) if was.fence != is.fence => "has another `fence`",
        _ => "has other `addresses`",
    };
    Some((share.name.get_ref().to_string(), change))
}

/// The share of a configuration with the name of another one.
fn like<'a>(config: &'a Config, share: &ShareSection) -> Option<&'a ShareSection> {
    config.shares.iter().find(|other| other.name.get_ref().is_same(share.name.get_ref()))
}

/// True if the clusters of two configurations differ in more than weights of shares.
pub(in crate::serve) fn needs_restart(a: &Config, b: &Config) -> bool {
    let units = |config: &Config| {
        let units = configured::units(config).unwrap_or_default().into_iter();
        units.map(|unit| (unit.name, unit.shares)).collect::<Vec<_>>()
    };
    a.cluster != b.cluster
        || units(a) != units(b)
        || configured::set_up(a).ok() != configured::set_up(b).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "[cluster]\nname = \"c\"\nendpoints = [\"http://127.0.0.1\"]\n";

    fn config(shares: &[(&str, &str)]) -> Config {
        let each = shares.iter().map(|(name, keys)| {
            let path = if keys.contains("path") { "" } else { "path = \"/srv\"\n" };
            format!("[[share]]\nname = \"{name}\"\n{path}{keys}\n")
        });
        Config::parse(&each.fold(CLUSTER.to_owned(), |text, share| text + &share)).unwrap()
    }

    #[test]
    fn a_reload_changes_no_share_that_moves() {
        const GROUP: &str = "cluster = true\ngroup = \"g\"\n";
        let before = config(&[("a", GROUP), ("own", "path = \"/own\"")]);
        let with = |keys: &str| config(&[("a", keys), ("own", "path = \"/own\"")]);
        for (after, wanted) in [
            (config(&[("own", "path = \"/own\"")]), "share a of the cluster is removed"),
            (
                config(&[("b", GROUP), ("own", "path = \"/own\"")]),
                "share a of the cluster is removed",
            ),
            (with(""), "share a leaves the cluster"),
            (with("cluster = true\ngroup = \"h\""), "share a has another `group`"),
            (with("cluster = true"), "share a has another `group`"),
            (
                with(&format!("{GROUP}path = \"/other\"")),
                "share a of the cluster has another `path`",
            ),
            (with(&format!("{GROUP}fence = \"ceph\"")), "share a has another `fence`"),
            (
                with(&format!("{GROUP}addresses = [\"192.0.2.20/24\"]")),
                "share a has other `addresses`",
            ),
            (
                config(&[("a", GROUP), ("own", "path = \"/own\"\ncluster = true")]),
                "share own joins the cluster",
            ),
            (
                config(&[("a", GROUP), ("c", GROUP), ("own", "path = \"/own\"")]),
                "share c is new in the cluster",
            ),
        ] {
            let why = refusal(&before, &after).unwrap();
            assert!(why.contains(wanted) && why.contains("restart frevo"), "{why}");
        }
        for after in [
            with(&format!("{GROUP}weight = 7\nread_only = true")),
            config(&[("A", GROUP)]),
            config(&[("a", GROUP), ("own", "path = \"/elsewhere\""), ("more", "path = \"/more\"")]),
        ] {
            assert_eq!(refusal(&before, &after), None);
        }
    }
}
