//! Kinds of fences, by their words in the configuration.

use std::fmt;
use std::str::FromStr;

use frevo_cluster::fence::Fence;

/// The way by which the storage of a share refuses a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// None.
    #[default]
    None,
    /// Ends the connection of a FUSE file system of this host.
    Fuse,
    /// Ends the state of a client of this host's NFS server.
    Nfs,
    /// Puts a client of CephFS on the blocklist.
    Ceph,
    /// Takes a node's persistent reservation of a disk away.
    ScsiPr,
}

impl Kind {
    /// All kinds, as the configuration lists them.
    pub const ALL: [Self; 5] = [Self::None, Self::Fuse, Self::Nfs, Self::Ceph, Self::ScsiPr];

    /// The word of the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fuse => "fuse",
            Self::Nfs => "nfs",
            Self::Ceph => "ceph",
            Self::ScsiPr => "scsi-pr",
        }
    }

    /// The kind of an identity.
    pub const fn of(fence: &Fence) -> Self {
        match fence {
            Fence::None => Self::None,
            Fence::Fuse { .. } => Self::Fuse,
            Fence::Nfs { .. } => Self::Nfs,
            Fence::Ceph { .. } => Self::Ceph,
            Fence::ScsiPr { .. } => Self::ScsiPr,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The word is not one of [`Kind`]'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAKind;

impl fmt::Display for NotAKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`fence` must be \"none\", \"fuse\", \"nfs\", \"ceph\" or \"scsi-pr\"")
    }
}

impl std::error::Error for NotAKind {}

impl FromStr for Kind {
    type Err = NotAKind;

    fn from_str(word: &str) -> Result<Self, NotAKind> {
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or(NotAKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_the_word_of_its_identities() {
        let identities = [
            Fence::None,
            Fence::Fuse { connection: 1, host: "host".into() },
            Fence::Nfs { server: "::1".into(), client: 1 },
            Fence::Ceph { client: "192.0.2.1:0/1".into() },
            Fence::ScsiPr { device: "/dev/disk/by-id/wwn-0x1".into(), key: 1 },
        ];
        for (kind, identity) in Kind::ALL.into_iter().zip(&identities) {
            assert_eq!(Kind::of(identity), kind);
            assert_eq!(kind.word(), identity.kind());
            assert_eq!(kind.word().parse(), Ok(kind));
        }
        assert_eq!("FUSE".parse::<Kind>(), Err(NotAKind));
    }
}
