//! Keys and values of a cluster in etcd, which a node trusts no more than a peer's bytes.

use std::fmt::Debug;

use frevo_cluster::keys::{ControlKey, Layout};
use frevo_cluster::names::{ClusterName, ShareName};
use frevo_cluster::text::NotAValue;
use frevo_cluster::values::{LastValue, MoveValue, NodeValue, OwnerValue};
use frevo_cluster::view::View;
use frevo_etcd::types::{KeyValue, LeaseId, Revision};

/// A key or a value of the kind that the first byte names, or a key with its value for the view of a node.
pub fn cluster_values(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let layout = Layout::new(&ClusterName::new("c").expect("a name"));
    match kind % 7 {
        0 => drop(key_of(&layout, data)),
        1 => record_of(&layout, data),
        2 => value(data, NodeValue::from_bytes, NodeValue::to_bytes),
        3 => value(data, OwnerValue::from_bytes, OwnerValue::to_bytes),
        4 => value(data, LastValue::from_bytes, LastValue::to_bytes),
        5 => value(data, MoveValue::from_bytes, MoveValue::to_bytes),
        _ => view(&layout, data),
    }
}

/// A key that is read is the only spelling of its name.
fn key_of(layout: &Layout, tail: &[u8]) -> Vec<u8> {
    let key = [&layout.control_prefix(), tail].concat();
    if let Some(read) = layout.parse_control(&key) {
        assert_eq!(layout.control(&read), key);
    }
    // The key belongs to another cluster, or is not one of Frevo's keys.
    assert!(layout.parse_control(tail).is_none() || tail.starts_with(&layout.control_prefix()));
    key
}

fn record_of(layout: &Layout, tail: &[u8]) {
    let share = ShareName::new("data").expect("a name");
    let key = [&layout.records(&share), tail].concat();
    if let Some(id) = layout.parse_record(&share, &key) {
        assert_eq!(layout.record(&share, id), key);
    }
}

/// A value that is read, written and read again is the same.
fn value<T: Debug + PartialEq>(
    data: &[u8],
    read: impl Fn(&[u8]) -> Result<T, NotAValue>,
    write: impl Fn(&T) -> Vec<u8>,
) {
    match read(data) {
        Ok(value) => assert_eq!(read(&write(&value)), Ok(value)),
        Err(fault) => drop(fault.to_string()),
    }
}

/// Lines of key and value, divided by a zero: an owner whose value cannot be read is an owner.
fn view(layout: &Layout, data: &[u8]) {
    let mut view = View::default();
    for (number, line) in data.split(|&byte| byte == 0).take(1_000).enumerate() {
        let at = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
        let (tail, rest) = line.split_at(at);
        let key = key_of(layout, tail);
        let revision = Revision(number as u64 + 1);
        let entry = KeyValue {
            value: rest.get(1..).unwrap_or_default().to_vec(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: LeaseId(1),
            key,
        };
        let ignored = view.ignored;
        view.put(layout, &entry);
        match layout.parse_control(&entry.key) {
            Some(ControlKey::Owner(share)) => assert!(view.owners.contains_key(&share)),
            Some(ControlKey::Last(share)) => assert_eq!(view.last[&share].revision, revision),
            Some(_) => {}
            None => assert_eq!(view.ignored, ignored + 1),
        }
        if number % 3 == 2 {
            view.delete(layout, &entry.key);
        }
    }
}
