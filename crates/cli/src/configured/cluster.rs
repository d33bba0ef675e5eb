//! The parts of a node of a cluster, made of `[cluster]` and its shares.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::names::{ClusterName, NodeName, ShareName};
use frevo_cluster::settings::Timing;
use frevo_cluster::values::RecordForm;
use frevo_cluster::{ClusterDialect, Settings};
use frevo_cluster_node::Unit;
use frevo_config::{ClusterAddress, Config, FenceChoice, ShareSection};
use frevo_etcd::client::{BadOptions, Endpoint};
use frevo_fences::Kind;
use frevo_fences::addresses::FloatingAddress;
use frevo_fences::hands::{SetUp, UnitSetUp};
use frevo_proto::Dialect;
use frevo_server::ClusterNames;
use frevo_wire::fscc::fold_name;
use sha2::{Digest, Sha256};

/// Seconds after a takeover in which clients that had handles come first.
const GRACE: u32 = 20;

/// Seconds that a node's lease lives.
const TTL: u32 = 2;

/// A unit, with the sections of its shares.
struct Group<'a> {
    shares: Vec<&'a ShareSection>,
    addresses: Vec<&'a ClusterAddress>,
}

/// The name of this node, on a host of this name.
///
/// # Errors
/// A sentence, if the host's name cannot be one.
fn node_name(config: &Config, host: &str) -> Result<NodeName, String> {
    let name = match &config.cluster.node {
        Some(name) => name.0.clone(),
        None => host.to_ascii_lowercase(),
    };
    NodeName::new(&name)
        .map_err(|why| format!("the host's name {name:?}: {why}; set node of [cluster]"))
}

/// The units of a configuration, by their names.
fn groups(config: &Config) -> BTreeMap<String, Group<'_>> {
    let mut groups: BTreeMap<String, Group<'_>> = BTreeMap::new();
    for share in config.shares.iter().filter(|share| share.cluster) {
        let group = groups
            .entry(share.unit())
            .or_insert_with(|| Group { shares: Vec::new(), addresses: Vec::new() });
        group.shares.push(share);
        group.addresses.extend(&share.addresses);
    }
    for address in &config.cluster.addresses {
        let group = Group { shares: Vec::new(), addresses: vec![address] };
        groups.insert(format!("address {}", address.address), group);
    }
    groups
}

/// The units that the node may have.
///
/// # Errors
/// A sentence, if a name cannot be used.
pub(crate) fn units(config: &Config) -> Result<Vec<Unit>, String> {
    let unit = |(name, group): (String, Group<'_>)| {
        let folded =
            |share: &&ShareSection| Arc::from(fold_name(share.name.get_ref().as_str()).as_str());
        Ok(Unit {
            name: ShareName::new(&name).map_err(|why| format!("{name:?}: {why}"))?,
            shares: group.shares.iter().map(folded).collect(),
            addresses: group.addresses.iter().map(|address| address.address).collect(),
            weight: group.shares.iter().find_map(|share| share.weight).unwrap_or(1),
        })
    };
    groups(config).into_iter().map(unit).collect()
}

/// The settings of the node, on a host of this name, which serves at these addresses.
///
/// # Errors
/// A sentence, if a name cannot be used.
pub(crate) fn settings(
    config: &Config,
    host: &str,
    addresses: Vec<SocketAddr>,
) -> Result<Settings, String> {
    let section = &config.cluster;
    let name = section.name.as_ref().map_or("", |name| &name.0);
    Ok(Settings {
        cluster: ClusterName::new(name).map_err(|why| format!("name of [cluster]: {why}"))?,
        node: node_name(config, host)?,
        timing: Timing::new(section.ttl.unwrap_or(TTL)).map_err(|why| why.to_string())?,
        addresses,
        weight: section.weight.unwrap_or(1),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        dialect: largest_dialect(config),
        shares: Vec::new(),
        predecessor: None,
        grace: Duration::from_secs(u64::from(section.grace_seconds.unwrap_or(GRACE))),
        records: RecordForm(frevo_store::state::RecordForm::newest().0),
    })
}

/// The largest dialect that the node speaks.
fn largest_dialect(config: &Config) -> ClusterDialect {
    let largest = config.server.max_dialect.map(Dialect::from);
    largest.map_or(ClusterDialect::LARGEST, |largest| ClusterDialect(largest.0))
}

/// The names by which clients see one part of the shares each. None if they see all by each name.
pub(crate) fn names(config: &Config, settings: &Settings) -> Option<ClusterNames> {
    let names =
        || ClusterNames { cluster: settings.cluster.to_string(), node: settings.node.to_string() };
    config.cluster.separate_names.unwrap_or(true).then(names)
}

/// The members of etcd.
///
/// # Errors
/// The text that is no member.
pub(crate) fn endpoints(config: &Config) -> Result<Vec<Endpoint>, BadOptions> {
    config.cluster.endpoints.iter().map(|url| Endpoint::parse(&url.0)).collect()
}

const fn kind(fence: FenceChoice) -> Kind {
    match fence {
        FenceChoice::None => Kind::None,
        FenceChoice::Fuse => Kind::Fuse,
        FenceChoice::Nfs => Kind::Nfs,
        FenceChoice::Ceph => Kind::Ceph,
        FenceChoice::ScsiPr => Kind::ScsiPr,
    }
}

/// The things that the process with rights may be asked for.
///
/// # Errors
/// A sentence, if an endpoint or an address cannot be used.
pub(crate) fn set_up(config: &Config) -> Result<SetUp, String> {
    let endpoints = endpoints(config).map_err(|bad| bad.to_string())?;
    let place = |endpoint: &Endpoint| match endpoint.host.contains(':') {
        true => format!("[{}]:{}", endpoint.host, endpoint.port),
        false => format!("{}:{}", endpoint.host, endpoint.port),
    };
    let unit = |(name, group): (String, Group<'_>)| {
        let fence = group.shares.iter().find_map(|share| config.fence_of(share));
        let address = |address: &&ClusterAddress| {
            let parsed = address.to_string().parse::<FloatingAddress>();
            parsed.map_err(|why| format!("{address}: {why}"))
        };
        Ok(UnitSetUp {
            name,
            folders: group.shares.iter().map(|share| share.shared_folder()).collect(),
            kind: fence.map_or(Kind::None, kind),
            addresses: group.addresses.iter().map(address).collect::<Result<_, String>>()?,
        })
    };
    let units = groups(config).into_iter().map(unit).collect::<Result<_, String>>()?;
    Ok(SetUp { endpoints: endpoints.iter().map(place).collect(), units, keys: None })
}

/// A part of a configuration that must be equal at all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// `[cluster]`, or the name of a share in lower case.
    pub(crate) part: String,
    /// The digest of its values.
    pub(crate) digest: String,
}

/// The parts of a configuration that must be equal at all nodes.
pub(crate) fn fingerprints(config: &Config) -> Vec<Fingerprint> {
    let digest = |text: &str| {
        let bytes = Sha256::digest(text.as_bytes());
        bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let section = &config.cluster;
    let addresses = |list: &[ClusterAddress]| {
        // The interface may have another name at each node.
        let mut texts: Vec<_> =
            list.iter().map(|one| format!("{}/{}", one.address, one.prefix)).collect();
        texts.sort_unstable();
        texts.join(" ")
    };
    let (ttl, grace) = (section.ttl.unwrap_or(TTL), section.grace_seconds.unwrap_or(GRACE));
    let mut whole = format!("{ttl} {grace} {}", addresses(&section.addresses));
    // Earlier versions of Frevo do not have this key, and have the same digest without it.
    if section.separate_names == Some(false) {
        whole.push_str(" one name");
    }
    let mut parts = vec![Fingerprint { part: "[cluster]".to_owned(), digest: digest(&whole) }];
    for share in config.shares.iter().filter(|share| share.cluster) {
        let mut values = vec![
            format!("{} {:?}", share.unit(), share.weight),
            format!("{:?} {}", config.fence_of(share), addresses(&share.addresses)),
            format!("{} {} {}", share.continuous, share.read_only, share.encrypt),
            format!("{} {} {:?}", share.case_sensitive, share.posix, share.streams),
            format!("{:?} {:?} {}", share.nt_acls, share.dos_attributes, share.follow_symlinks),
            format!("{:?} {:?} {}", share.veto, share.hide_files, share.short_names),
            format!("{:?} {:?} {:?}", share.run_as, share.file_mode, share.directory_mode),
            format!("{:?} {:?}", share.allow, share.deny),
        ];
        // Earlier versions of Frevo do not have these keys, and have the same digest without them.
        let forced = [share.force_file_mode, share.force_directory_mode];
        let chosen = [
            share.inherit_modes,
            share.inherit_owner,
            share.inherit_acls,
            share.map_archive,
            share.map_system,
            share.map_hidden,
        ];
        if forced.iter().any(Option::is_some) || chosen.contains(&true) {
            values.push(format!("{forced:?} {chosen:?}"));
        }
        if share.map_readonly || share.dos_filemode {
            values.push(format!("{} {}", share.map_readonly, share.dos_filemode));
        }
        let part = fold_name(share.name.get_ref().as_str());
        parts.push(Fingerprint { part, digest: digest(&values.join("\n")) });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[cluster]\nname = \"nas\"\nnode = \"n1\"\nfence = \"fuse\"\nttl = 3\n\
        endpoints = [\"http://192.0.2.1\", \"http://[2001:db8::1]:4001\"]\n\
        addresses = [\"192.0.2.30/24\"]\n\
        [[share]]\nname = \"Docs\"\npath = \"/srv/docs\"\ncluster = true\n\
        [[share]]\nname = \"a\"\npath = \"/srv/a\"\ncluster = true\ngroup = \"g\"\nweight = 3\n\
        addresses = [\"192.0.2.20/24\"]\n\
        [[share]]\nname = \"b\"\npath = \"/srv/a/b\"\ncluster = true\ngroup = \"g\"\nweight = 3\n\
        [[share]]\nname = \"local\"\npath = \"/var/local\"\n";

    #[test]
    fn a_configuration_has_units() {
        let config = Config::parse(TEXT).unwrap();
        let units = units(&config).unwrap();
        let facts: Vec<_> = units
            .iter()
            .map(|unit| (unit.name.as_str(), unit.shares.len(), unit.addresses.len(), unit.weight))
            .collect();
        assert_eq!(facts, [("address 192.0.2.30", 0, 1, 1), ("docs", 1, 0, 1), ("g", 2, 1, 3)]);
        assert_eq!(&*units[1].shares[0], "docs");
        let settings = settings(&config, "host", Vec::new()).unwrap();
        assert_eq!((settings.node.as_str(), settings.timing.ttl().as_secs()), ("n1", 3));
        assert_eq!(settings.dialect, ClusterDialect::SMB_3_1_1);
        let names = names(&config, &settings).unwrap();
        assert_eq!((names.cluster.as_str(), names.node.as_str()), ("nas", "n1"));
    }

    #[test]
    fn a_node_may_speak_less_and_have_one_name() {
        let text = TEXT.replace("[cluster]", "[server]\nmax_dialect = \"3.0.2\"\n[cluster]");
        let text = text.replace("ttl = 3", "separate_names = false");
        let config = Config::parse(&text).unwrap();
        let settings = settings(&config, "host", Vec::new()).unwrap();
        assert_eq!(settings.dialect, ClusterDialect::SMB_3_0_2);
        assert_eq!(names(&config, &settings), None);
    }

    #[test]
    fn the_process_with_rights_is_told_all_units() {
        let set_up = set_up(&Config::parse(TEXT).unwrap()).unwrap();
        assert_eq!(set_up.endpoints, ["192.0.2.1:2379", "[2001:db8::1]:4001"]);
        let kinds: Vec<_> = set_up.units.iter().map(|unit| unit.kind).collect();
        assert_eq!(kinds, [Kind::None, Kind::Fuse, Kind::Fuse]);
        assert_eq!(set_up.units[2].folders.len(), 2);
        assert_eq!(set_up.addresses().count(), 2);
    }

    #[test]
    fn other_values_have_other_fingerprints() {
        let digests = |text: &str| {
            let found = fingerprints(&Config::parse(text).unwrap()).into_iter();
            found.map(|one| (one.part, one.digest)).collect::<Vec<_>>()
        };
        let one = digests(TEXT);
        let parts: Vec<_> = one.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!(parts, ["[cluster]", "docs", "a", "b"]);
        assert_eq!(digests(&TEXT.replace("n1", "n2").replace("/srv/docs", "/mnt/docs")), one);
        assert_eq!(digests(&TEXT.replace("20/24\"", "20/24%eth1\"")), one);
        let other = digests(&TEXT.replace("name = \"b\"", "name = \"b\"\nencrypt = true"));
        assert!(other[..3] == one[..3] && other[3] != one[3]);
        assert_ne!(digests(&TEXT.replace("ttl = 3", "ttl = 4"))[0], one[0]);
        let names = |key: &str| digests(&TEXT.replace("ttl = 3", &format!("ttl = 3\n{key}")));
        assert_eq!(names("separate_names = true"), one);
        assert_ne!(names("separate_names = false")[0], one[0]);
    }
}
