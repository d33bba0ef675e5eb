//! The things that a server may ask its hands for, as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Kind;
use crate::addresses::FloatingAddress;
use crate::keys_file::KeysFile;
use crate::scsi::disks_below;

/// The things that can be asked for: told once, before the first request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetUp {
    /// The endpoints of etcd, as `HOST:PORT`, in their order.
    pub endpoints: Vec<String>,
    /// The units.
    pub units: Vec<UnitSetUp>,
    /// The file in which registrations with disks are kept, for [`Kind::ScsiPr`].
    pub keys: Option<KeysFile>,
}

/// A unit: shares that are owned together, and the addresses that go with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitSetUp {
    /// Its name.
    pub name: String,
    /// The folders of its shares. All are on one file system, or `kind` is [`Kind::None`].
    pub folders: Vec<PathBuf>,
    /// The fence of its storage.
    pub kind: Kind,
    /// Its addresses.
    pub addresses: Vec<FloatingAddress>,
}

impl SetUp {
    /// All addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &FloatingAddress> {
        self.units.iter().flat_map(|unit| &unit.addresses)
    }

    /// True if a unit has this kind of fence.
    pub fn uses(&self, kind: Kind) -> bool {
        self.units.iter().any(|unit| unit.kind == kind)
    }

    /// The devices of the disks below folders with [`Kind::ScsiPr`], as far as they are known now.
    pub fn disks(&self) -> Vec<PathBuf> {
        let units = self.units.iter().filter(|unit| unit.kind == Kind::ScsiPr);
        let disks =
            units.flat_map(|unit| &unit.folders).filter_map(|folder| disks_below(folder).ok());
        disks.flatten().collect()
    }

    pub(super) fn unit(&self, name: &str) -> Option<&UnitSetUp> {
        self.units.iter().find(|unit| unit.name == name)
    }

    /// The text for the process. None if a folder's name is not UTF-8.
    pub fn to_text(&self) -> Option<String> {
        let units: Option<Vec<Value>> = self.units.iter().map(UnitSetUp::object).collect();
        let keys = match &self.keys {
            Some(keys) => json!({ "path": keys.path.to_str()?, "owner": keys.owner }),
            None => Value::Null,
        };
        Some(json!({ "endpoints": self.endpoints, "units": units?, "keys": keys }).to_string())
    }

    /// Reads the text of a server. None for another text.
    pub fn from_text(text: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(text).ok()?;
        let units = object.get("units")?.as_array()?.iter().map(UnitSetUp::parse);
        Some(Self {
            endpoints: texts(object.get("endpoints")?)?,
            units: units.collect::<Option<_>>()?,
            keys: match object.get("keys")? {
                Value::Null => None,
                keys => Some(keys_file(keys)?),
            },
        })
    }
}

impl UnitSetUp {
    fn object(&self) -> Option<Value> {
        let folders: Option<Vec<&str>> =
            self.folders.iter().map(|folder| folder.to_str()).collect();
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        Some(json!({
            "name": self.name, "folders": folders?, "kind": self.kind.word(), "addresses": addresses,
        }))
    }

    fn parse(object: &Value) -> Option<Self> {
        let addresses = texts(object.get("addresses")?)?;
        let addresses: Result<_, _> = addresses.iter().map(|address| address.parse()).collect();
        Some(Self {
            name: object.get("name")?.as_str()?.to_owned(),
            folders: texts(object.get("folders")?)?.into_iter().map(PathBuf::from).collect(),
            kind: object.get("kind")?.as_str()?.parse().ok()?,
            addresses: addresses.ok()?,
        })
    }
}

fn keys_file(object: &Value) -> Option<KeysFile> {
    let text = |name| object.get(name)?.as_str();
    Some(KeysFile { path: text("path")?.into(), owner: text("owner")?.to_owned() })
}

fn texts(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|text| text.as_str().map(String::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_up_has_a_text() {
        let unit = UnitSetUp {
            name: "projects".into(),
            folders: vec!["/srv/a b".into(), "/srv/ü".into()],
            kind: Kind::ScsiPr,
            addresses: vec!["192.0.2.20/24%eth0".parse().unwrap()],
        };
        let endpoints = vec!["192.0.2.1:2379".into(), "[2001:db8::1]:2379".into()];
        let units = vec![unit, UnitSetUp::default()];
        let mut all = SetUp { endpoints, units, keys: None };
        assert_eq!(SetUp::from_text(&all.to_text().unwrap()), Some(all.clone()));
        let path = "/var/lib/frevo/cluster.keys".into();
        all.keys = Some(KeysFile { path, owner: "nas n1".into() });
        assert_eq!(SetUp::from_text(&all.to_text().unwrap()), Some(all.clone()));
        assert!(all.uses(Kind::ScsiPr) && all.uses(Kind::None) && !all.uses(Kind::Fuse));
        assert_eq!(all.addresses().count(), 1);
        for wrong in [
            "",
            "{}",
            r#"{"endpoints":[1],"units":[],"keys":null}"#,
            r#"{"endpoints":[],"units":[{}],"keys":null}"#,
            r#"{"endpoints":[],"units":[],"keys":{}}"#,
        ] {
            assert_eq!(SetUp::from_text(wrong), None, "{wrong}");
        }
    }
}
