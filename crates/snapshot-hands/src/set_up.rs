//! The shares for which the process may act, as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::place::Kind;

/// The shares: told once, before the first request. A request names the place of a share in the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetUp {
    /// The shares.
    pub shares: Vec<ShareSetUp>,
    /// The folder below which snapshots of LVM are mounted.
    pub mounts: PathBuf,
}

/// A share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSetUp {
    /// Its folder.
    pub folder: PathBuf,
    /// The way by which its snapshots are made.
    pub kind: Kind,
}

impl SetUp {
    /// True if a share has this kind of snapshots.
    pub fn uses(&self, kind: Kind) -> bool {
        self.shares.iter().any(|share| share.kind == kind)
    }

    /// The text for the process. None if a folder's name is not UTF-8.
    pub fn to_text(&self) -> Option<String> {
        let share = |share: &ShareSetUp| {
            Some(json!({ "folder": share.folder.to_str()?, "kind": share.kind.word() }))
        };
        let shares: Vec<Value> = self.shares.iter().map(share).collect::<Option<_>>()?;
        Some(json!({ "shares": shares, "mounts": self.mounts.to_str()? }).to_string())
    }

    /// Reads the text of a server. None for another text.
    pub fn from_text(text: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(text).ok()?;
        let share = |share: &Value| {
            let text = |name| share.get(name)?.as_str();
            Some(ShareSetUp { folder: text("folder")?.into(), kind: text("kind")?.parse().ok()? })
        };
        let shares = object.get("shares")?.as_array()?.iter().map(share);
        let mounts = object.get("mounts")?.as_str()?.into();
        Some(Self { shares: shares.collect::<Option<_>>()?, mounts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_up_has_a_text() {
        let share = |folder: &str, kind| ShareSetUp { folder: folder.into(), kind };
        let shares = vec![share("/srv/a \"b", Kind::Btrfs), share("/srv/ü", Kind::Lvm)];
        let set_up = SetUp { shares, mounts: "/var/lib/frevo/snapshots".into() };
        assert_eq!(SetUp::from_text(&set_up.to_text().unwrap()), Some(set_up.clone()));
        assert!(set_up.uses(Kind::Lvm) && !set_up.uses(Kind::Zfs));
        for wrong in ["", "{}", r#"{"shares":[{}],"mounts":""}"#, r#"{"shares":[]}"#] {
            assert_eq!(SetUp::from_text(wrong), None, "{wrong}");
        }
    }
}
