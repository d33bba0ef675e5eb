//! The names of all keys of a cluster in etcd.
//!
//! ```text
//! frevo/<cluster>/etcd                     tells this etcd from others: stays
//! frevo/<cluster>/generation               counts the starts of nodes (`ids`)
//! frevo/<cluster>/control/node/<node>      a node that is up; lives as long as its lease
//! frevo/<cluster>/control/owner/<share>    the owner of a share; lives as long as the owner's lease
//! frevo/<cluster>/control/last/<share>     its latest owner, and its end: stays
//! frevo/<cluster>/control/move/<share>     a planned move, until the owner has given the share away
//! frevo/<cluster>/control/drained/<node>   a node that is to have no shares
//! frevo/<cluster>/control/dialect/max      the largest dialect of clients on shares of the cluster
//! frevo/<cluster>/domain/<REALM>           the account of the cluster in a domain: sealed by the server
//! frevo/<cluster>/namespaces               the namespaces made over the network: the folder of their entries
//! frevo/<cluster>/namespace/<folder>/<entry>  a root or a link of one: text of the server's
//! frevo/<cluster>/batch/<share>            the number of the last transaction with records
//! frevo/<cluster>/record/<share>/<id>      a record: bytes of the server's
//! ```
//!
//! All nodes watch `control/`. Records change often and are read by a new owner alone: they stand beside
//! it, so that no watch tells them.
//!
//! `<share>` is escaped: bytes other than letters, digits, `-`, `_` and `.` are written as `%XX`. `<id>`
//! has sixteen hexadecimal digits.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::RecordId;
use crate::names::{ClusterName, NodeName, ShareName, escape, unescape};

/// A key that all nodes watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ControlKey {
    /// A node that is up: [`NodeValue`](crate::values::NodeValue).
    Node(NodeName),
    /// The owner of a share: [`OwnerValue`](crate::values::OwnerValue).
    Owner(ShareName),
    /// The latest owner of a share: [`LastValue`](crate::values::LastValue).
    Last(ShareName),
    /// A planned move: [`MoveValue`](crate::values::MoveValue).
    Move(ShareName),
    /// A node that is to have no shares: [`DrainedValue`](crate::values::DrainedValue).
    Drained(NodeName),
    /// The largest dialect of clients: [`DialectValue`](crate::values::DialectValue).
    Dialect,
}

/// The keys of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// `frevo/<cluster>/`.
    root: Vec<u8>,
}

impl Layout {
    /// The keys of `cluster`.
    pub fn new(cluster: &ClusterName) -> Self {
        Self { root: format!("frevo/{cluster}/").into_bytes() }
    }

    fn key(&self, folder: &str, name: &str) -> Vec<u8> {
        let mut key = self.root.clone();
        key.extend_from_slice(folder.as_bytes());
        escape(name, &mut key);
        key
    }

    /// The beginning of all keys of the cluster.
    pub fn root(&self) -> &[u8] {
        &self.root
    }

    /// The beginning of the keys that all nodes watch.
    pub fn control_prefix(&self) -> Vec<u8> {
        self.key("control/", "")
    }

    /// The name of a key that all nodes watch.
    pub fn control(&self, key: &ControlKey) -> Vec<u8> {
        match key {
            ControlKey::Node(node) => self.key("control/node/", node.as_str()),
            ControlKey::Owner(share) => self.key("control/owner/", share.as_str()),
            ControlKey::Last(share) => self.key("control/last/", share.as_str()),
            ControlKey::Move(share) => self.key("control/move/", share.as_str()),
            ControlKey::Drained(node) => self.key("control/drained/", node.as_str()),
            ControlKey::Dialect => self.key("control/dialect/", "max"),
        }
    }

    /// The key of a name. None for a name that [`Layout::control`] never makes.
    pub fn parse_control(&self, key: &[u8]) -> Option<ControlKey> {
        let key = key.strip_prefix(&*self.root)?.strip_prefix(b"control/")?;
        let at = key.iter().position(|&byte| byte == b'/')?;
        let (kind, name) = key.split_at_checked(at)?;
        let name = unescape(name.strip_prefix(b"/")?)?;
        let node = || NodeName::new(&name).ok();
        let share = || ShareName::new(&name).ok();
        match kind {
            b"node" => node().map(ControlKey::Node),
            b"owner" => share().map(ControlKey::Owner),
            b"last" => share().map(ControlKey::Last),
            b"move" => share().map(ControlKey::Move),
            b"drained" => node().map(ControlKey::Drained),
            b"dialect" => (name == "max").then_some(ControlKey::Dialect),
            _ => None,
        }
    }

    /// The key whose value no other etcd has.
    pub fn etcd(&self) -> Vec<u8> {
        self.key("etcd", "")
    }

    /// The key whose changes count the starts of nodes.
    pub fn generation(&self) -> Vec<u8> {
        self.key("generation", "")
    }

    /// The beginning of the keys of the cluster's accounts in domains.
    pub fn domains(&self) -> Vec<u8> {
        self.key("domain/", "")
    }

    /// The key of the cluster's account in a domain.
    pub fn domain(&self, realm: &str) -> Vec<u8> {
        self.key("domain/", realm)
    }

    /// The realm of the key of an account. None for a name that [`Layout::domain`] never makes.
    pub fn parse_domain(&self, key: &[u8]) -> Option<String> {
        let realm = unescape(key.strip_prefix(&*self.domains())?)?;
        (!realm.is_empty()).then_some(realm)
    }

    /// The key that changes with each change of the namespaces that were made over the network. Its value
    /// names the folder of their entries.
    pub fn namespaces(&self) -> Vec<u8> {
        self.key("namespaces", "")
    }

    /// The beginning of the keys of the entries in a folder.
    pub fn namespace_entries(&self, folder: &str) -> Vec<u8> {
        let mut key = self.key("namespace/", folder);
        key.push(b'/');
        key
    }

    /// The key with the number of the last transaction with records of a share.
    pub fn batch(&self, share: &ShareName) -> Vec<u8> {
        self.key("batch/", share.as_str())
    }

    /// The beginning of the keys of a share's records.
    pub fn records(&self, share: &ShareName) -> Vec<u8> {
        let mut key = self.key("record/", share.as_str());
        key.push(b'/');
        key
    }

    /// The key of a record.
    pub fn record(&self, share: &ShareName, id: RecordId) -> Vec<u8> {
        let mut key = self.records(share);
        key.extend_from_slice(format!("{:016x}", id.0).as_bytes());
        key
    }

    /// The record of a key of this share. None for a name that [`Layout::record`] never makes.
    pub fn parse_record(&self, share: &ShareName, key: &[u8]) -> Option<RecordId> {
        let digits = key.strip_prefix(&*self.records(share))?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 16 || !digits.iter().all(is_digit) {
            return None;
        }
        let digits = core::str::from_utf8(digits).ok()?;
        u64::from_str_radix(digits, 16).ok().map(RecordId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::new(&ClusterName::new("office").unwrap())
    }

    #[test]
    fn keys_have_these_names() {
        let layout = layout();
        let share = ShareName::new("größe/100%").unwrap();
        let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
        assert_eq!(
            text(layout.control(&ControlKey::Owner(share.clone()))),
            "frevo/office/control/owner/gr%C3%B6%C3%9Fe%2F100%25"
        );
        assert_eq!(
            text(layout.record(&share, RecordId(0x1_0000_002a))),
            "frevo/office/record/gr%C3%B6%C3%9Fe%2F100%25/000000010000002a"
        );
        assert!(!layout.records(&share).starts_with(&layout.control_prefix()));
        assert_eq!(text(layout.generation()), "frevo/office/generation");
        let domain = layout.domain("EXAMPLE.COM");
        assert_eq!(layout.parse_domain(&domain).unwrap(), "EXAMPLE.COM");
        assert_eq!(text(domain), "frevo/office/domain/EXAMPLE.COM");
        assert!(!layout.domains().starts_with(&layout.control_prefix()));
        assert_eq!(layout.parse_domain(&layout.domains()), None);
        assert_eq!(layout.parse_domain(&layout.generation()), None);
        assert_eq!(text(layout.namespaces()), "frevo/office/namespaces");
        assert_eq!(text(layout.namespace_entries("n1-2a")), "frevo/office/namespace/n1-2a/");
        // A watch of the one key is not told of entries.
        assert!(!layout.namespace_entries("x").starts_with(&layout.namespaces()));
    }

    #[test]
    fn a_share_has_no_records_of_another_one() {
        let layout = layout();
        let (data, data2) = (ShareName::new("data").unwrap(), ShareName::new("data2").unwrap());
        let key = layout.record(&data2, RecordId(1));
        assert!(!key.starts_with(&layout.records(&data)));
        assert_eq!(layout.parse_record(&data, &key), None);
        assert_eq!(layout.parse_record(&data2, &key), Some(RecordId(1)));
        for wrong in ["0000000000000001x", "00000000000001", "000000000000000A", "+000000000000001"]
        {
            let mut key = layout.records(&data);
            key.extend_from_slice(wrong.as_bytes());
            assert_eq!(layout.parse_record(&data, &key), None, "{wrong}");
        }
    }

    fn any_key() -> impl Strategy<Value = ControlKey> {
        let node = "[a-z0-9._-]{1,64}".prop_map(|name| NodeName::new(&name).unwrap());
        let share = "\\PC{1,80}".prop_map(|name| ShareName::new(&name).unwrap());
        (0..6, node, share).prop_map(|(kind, node, share)| match kind {
            0 => ControlKey::Node(node),
            1 => ControlKey::Owner(share),
            2 => ControlKey::Last(share),
            3 => ControlKey::Move(share),
            4 => ControlKey::Dialect,
            _ => ControlKey::Drained(node),
        })
    }

    proptest! {
        #[test]
        fn any_key_comes_back(key in any_key()) {
            let layout = layout();
            let name = layout.control(&key);
            prop_assert!(name.starts_with(&layout.control_prefix()));
            prop_assert_eq!(layout.parse_control(&name), Some(key));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>(), head in 0..7_usize) {
            let layout = layout();
            let heads = ["", "node/", "owner/", "last/", "move/", "drained/", "dialect/"];
            let mut key = layout.control_prefix();
            key.extend_from_slice(heads[head].as_bytes());
            key.extend_from_slice(&bytes);
            if let Some(read) = layout.parse_control(&key) {
                prop_assert_eq!(layout.control(&read), key);
            }
        }
    }
}
