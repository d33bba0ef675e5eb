//! `[cluster]`: several servers that have shares in turn, with an etcd.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::cluster_words::{ClusterAddress, ClusterWord, EtcdUrl};
use super::fault::Fault;
use super::parsed;
use super::schema::Config;
use super::share::ShareSection;
use super::values::FenceChoice;

/// The largest weight of a node or a share.
const WEIGHT_MAX: u32 = 1_000;

/// `[cluster]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// The name of the cluster: its keys in etcd begin with it.
    pub name: Option<ClusterWord>,
    /// The name of this node; the name of the host when left out.
    pub node: Option<ClusterWord>,
    /// The members of etcd: `https://HOST:PORT`.
    pub endpoints: Vec<EtcdUrl>,
    /// The file with the certificates of the authorities that sign those of etcd.
    pub ca: Option<PathBuf>,
    /// The file with the certificate of this node for etcd.
    pub certificate: Option<PathBuf>,
    /// The file with the key of the certificate.
    pub key: Option<PathBuf>,
    /// The account of etcd.
    pub user: Option<String>,
    /// The file with the password of the account.
    pub password_file: Option<PathBuf>,
    /// Seconds that the lease of a node lives without a keep-alive.
    pub ttl: Option<u32>,
    /// This node's part of the shares.
    pub weight: Option<u32>,
    /// Addresses of which each is at one node that is up.
    #[serde(deserialize_with = "parsed::list")]
    pub addresses: Vec<ClusterAddress>,
    /// Seconds after a takeover in which clients that had handles come first.
    pub grace_seconds: Option<u32>,
    /// The fence of shares that do not name one.
    pub fence: Option<FenceChoice>,
    /// False to show all shares by each name of the server.
    pub separate_names: Option<bool>,
}

impl ClusterSection {
    /// True if this server is one of a cluster.
    pub fn is_on(&self) -> bool {
        self.name.is_some()
    }

    /// Keys of the section that contradict each other.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut when = |holds: bool, what: &str, hint: &str| {
            if holds {
                faults.push(Fault::new(what.to_owned()).hint(hint));
            }
        };
        let is_empty = *self == Self::default();
        when(
            !is_empty && self.name.is_none(),
            "[cluster] has no name",
            "write the same name at all nodes",
        );
        when(
            self.name.is_some() && self.endpoints.is_empty(),
            "[cluster] has no endpoints",
            "list the members of etcd: endpoints = [\"https://HOST:2379\"]",
        );
        when(
            self.endpoints.iter().any(EtcdUrl::is_secure) && self.ca.is_none(),
            "[cluster] has endpoints with https and no ca",
            "name the file with the certificate of etcd's authority",
        );
        when(
            self.certificate.is_some() != self.key.is_some(),
            "[cluster] has only one of certificate and key",
            "name both files",
        );
        when(
            self.user.is_some() != self.password_file.is_some(),
            "[cluster] has only one of user and password_file",
            "name the account and the file with its password",
        );
        let is_read_by_all = |url: &EtcdUrl| !url.is_secure() && !url.is_local();
        when(
            self.user.is_some() && self.endpoints.iter().any(is_read_by_all),
            "[cluster] would send the password of user without TLS",
            "write endpoints with https",
        );
        when(
            self.ttl.is_some_and(|ttl| !(2..=60).contains(&ttl)),
            "ttl of [cluster] must be 2 to 60 seconds",
            "etcd grants no shorter lease",
        );
        when(
            self.weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)),
            "weight of [cluster] must be 1 to 1000",
            "a node without shares is drained: frevo cluster drain NODE",
        );
        faults
    }
}

impl Config {
    /// The fence of a share. None if none was written.
    pub fn fence_of(&self, share: &ShareSection) -> Option<FenceChoice> {
        share.fence.or(self.cluster.fence)
    }

    /// True if addresses move with a share, or with another one of its group.
    pub fn moves_addresses(&self, share: &ShareSection) -> bool {
        let of_unit = |other: &&ShareSection| other.cluster && other.unit() == share.unit();
        share.cluster && self.shares.iter().filter(of_unit).any(|other| !other.addresses.is_empty())
    }

    /// Faults of `[cluster]` and of the shares with `cluster = true`.
    pub(super) fn faults_of_cluster(&self, text: &str) -> Vec<Fault> {
        let mut faults = self.cluster.faults();
        for share in &self.shares {
            faults.extend(self.fault_of_share(share).map(|fault| fault.of(share, text)));
        }
        faults.extend(self.fault_of_addresses());
        let clustered = self.shares.iter().filter(|share| share.cluster);
        for share in clustered {
            let overlaps = |other: &&ShareSection| {
                let (a, b) = (share.shared_folder(), other.shared_folder());
                let is_other = other.name.get_ref() != share.name.get_ref();
                is_other && (a.starts_with(&b) || b.starts_with(&a))
            };
            let apart = |other: &&ShareSection| !other.cluster || other.unit() != share.unit();
            let other = self.shares.iter().filter(overlaps).find(apart);
            faults.extend(other.map(|other| {
                let (name, other) = (share.name.get_ref(), other.name.get_ref());
                let what = format!("the folders of the shares {name} and {other} overlap");
                let hint = "give both cluster = true and the same group";
                Wrong { what, hint }.of(share, text)
            }));
        }
        faults
    }

    fn fault_of_share(&self, share: &ShareSection) -> Option<Wrong> {
        let name = share.name.get_ref();
        let wrong = |what: &str, hint| Some(Wrong { what: format!("share {name}: {what}"), hint });
        let has_keys = share.group.is_some()
            || share.fence.is_some()
            || share.weight.is_some()
            || !share.addresses.is_empty();
        if !share.cluster && has_keys {
            return wrong(
                "group, addresses, fence and weight need cluster = true",
                "add it, or remove them",
            );
        }
        if !share.cluster {
            return None;
        }
        if !self.cluster.is_on() {
            return wrong(
                "cluster = true needs [cluster]",
                "add the section with name and endpoints",
            );
        }
        if share.continuous && self.fence_of(share).is_none() {
            return wrong(
                "continuous in a cluster needs a fence: a server that was stopped could still write",
                "set fence, or accept that with fence = \"none\"",
            );
        }
        if share.weight.is_some_and(|weight| !(1..=WEIGHT_MAX).contains(&weight)) {
            return wrong("weight must be 1 to 1000", "leave it out for 1");
        }
        let state_dir = self.server.state_dir.as_ref();
        if state_dir.is_some_and(|dir| dir.starts_with(share.shared_folder())) {
            return wrong(
                "state_dir is in its folder, which all nodes have",
                "keep the state of each node on a disk of its own",
            );
        }
        let other = self.shares.iter().find(|other| {
            other.cluster
                && other.unit() == share.unit()
                && (self.fence_of(other) != self.fence_of(share) || other.weight != share.weight)
        });
        let what = "its group has shares with another fence or weight";
        other.and_then(|_| wrong(what, "write the same at all shares of a group"))
    }

    /// The fault of an address that two have, or that has no cluster.
    fn fault_of_addresses(&self) -> Option<Fault> {
        let of_shares = self.shares.iter().flat_map(|share| &share.addresses);
        let all: Vec<_> =
            self.cluster.addresses.iter().chain(of_shares).map(|one| one.address).collect();
        let is_second =
            |(at, address): &(usize, &IpAddr)| all.iter().take(*at).any(|other| other == *address);
        let (_, address) = all.iter().enumerate().find(is_second)?;
        let what = format!("two addresses lists have the address {address}");
        Some(Fault::new(what).hint("an address goes with one share, or is in [cluster]"))
    }
}

/// A fault of a share.
struct Wrong {
    what: String,
    hint: &'static str,
}

impl Wrong {
    fn of(self, share: &ShareSection, text: &str) -> Fault {
        Fault::at(text, &share.name.span(), self.what).hint(self.hint)
    }
}

impl ShareSection {
    /// The name of the unit that the share is in: shares of a unit have one owner together.
    pub fn unit(&self) -> String {
        match &self.group {
            Some(group) => group.0.clone(),
            None => frevo_wire::fscc::fold_name(self.name.get_ref().as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "[cluster]\nname = \"nas\"\nendpoints = [\"http://127.0.0.1:2379\"]\n";

    fn share(name: &str, path: &str, keys: &str) -> String {
        format!("[[share]]\nname = \"{name}\"\npath = \"{path}\"\ncluster = true\n{keys}\n")
    }

    fn fault(text: &str) -> String {
        Config::parse(text).unwrap_err()[0].to_string()
    }

    #[test]
    fn a_share_of_a_cluster_is_read() {
        let keys = "group = \"one\"\naddresses = [\"192.0.2.20/24%eth0\"]\nweight = 3";
        let text = CLUSTER.to_owned() + &share("Docs", "/a", keys) + &share("other", "/b", "");
        let config = Config::parse(&text).unwrap();
        assert!(config.cluster.is_on());
        let units: Vec<_> = config.shares.iter().map(ShareSection::unit).collect();
        assert_eq!(units, ["one", "other"]);
        assert_eq!(config.shares[0].addresses[0].to_string(), "192.0.2.20/24%eth0");
        assert_eq!(config.fence_of(&config.shares[0]), None);
        let third = share("third", "/c", "group = \"one\"\nweight = 3");
        let own = "[[share]]\nname = \"own\"\npath = \"/d\"\n";
        let config = Config::parse(&(text + &third + own)).unwrap();
        let moving: Vec<_> = config.shares.iter().map(|one| config.moves_addresses(one)).collect();
        assert_eq!(moving, [true, false, true, false]);
    }

    #[test]
    fn contradictions_are_named() {
        let section = |keys: &str| format!("{CLUSTER}{keys}\n");
        let shared = |keys: &str| CLUSTER.to_owned() + &share("a", "/a", keys);
        for (text, wanted) in [
            (share("a", "/a", ""), "cluster = true needs [cluster]"),
            ("[cluster]\nttl = 3\n".into(), "[cluster] has no name"),
            ("[cluster]\nname = \"a\"\n".into(), "[cluster] has no endpoints"),
            (CLUSTER.replace("http:", "https:"), "https and no ca"),
            (section("certificate = \"/c\""), "only one of certificate and key"),
            (section("user = \"frevo\""), "only one of user and password_file"),
            (
                section("user = \"u\"\npassword_file = \"/p\"").replace("127.0.0.1", "192.0.2.1"),
                "without TLS",
            ),
            (section("ttl = 1"), "2 to 60 seconds"),
            (section("ttl = 61"), "2 to 60 seconds"),
            (section("weight = 0"), "must be 1 to 1000"),
            (section("name2 = 0"), "unknown key `name2`"),
            (CLUSTER.replace("nas", "NAS"), "lower-case letters"),
            (CLUSTER.replace("http:", "ftp:"), "is not a member of etcd"),
            (section("addresses = [\"192.0.2.20\"]"), "is not an address with its network"),
            (section("addresses = [\"127.0.0.1/8\"]"), "is not an address with its network"),
            (
                section("addresses = [\"192.0.2.1/24\", \"192.0.2.1/25\"]"),
                "two addresses lists have the address 192.0.2.1",
            ),
            (shared("continuous = true"), "needs a fence"),
            (shared("weight = 1001"), "weight must be 1 to 1000"),
            (shared("").replace("cluster = true", "weight = 1"), "need cluster = true"),
            (shared("[server]\nstate_dir = \"/a/state\""), "state_dir is in its folder"),
            (shared("") + &share("b", "/a/b", ""), "the shares a and b overlap"),
            (
                shared("") + &share("b", "/a/b", "").replace("cluster = true\n", ""),
                "the shares a and b overlap",
            ),
            (
                shared("group = \"g\"\nfence = \"fuse\"") + &share("b", "/b", "group = \"g\""),
                "another fence or weight",
            ),
        ] {
            assert!(fault(&text).contains(wanted), "{wanted:?} not in {:?}", fault(&text));
        }
        for text in [
            shared("continuous = true\nfence = \"none\""),
            shared("group = \"g\"") + &share("b", "/a/b", "group = \"g\""),
            section("user = \"u\"\npassword_file = \"/p\""),
            shared("") + &share("b", "/ab", ""),
        ] {
            Config::parse(&text).unwrap_or_else(|faults| panic!("{faults:?} in {text}"));
        }
    }
}
