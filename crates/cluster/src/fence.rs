//! Fences: the ways by which storage refuses a node that was an owner.
//!
//! etcd keeps a former owner from writing records, but not from writing files: a process that is stopped
//! (SIGSTOP, a paused virtual machine) between its last look at the clock and its write goes on with the
//! write when it continues. Only the storage can refuse that. This module has values alone; the server
//! runs fences when the machine orders it ([`Order::Fence`](crate::Order::Fence)).
//!
//! # Order
//!
//! A share is fenced against its former owner after the owner's key has gone and before the new owner
//! makes its key. So the records that the new owner reads, and the files that they are about, are changed
//! by nobody else. A fence that was carried out twice, or by a node that did not become the owner in the
//! end, does no harm: a node that lives finds that out, and gets a new identity.
//!
//! A node whose storage was fenced gets a new identity before it says again that it can serve the share
//! ([`Statement::Ready`](crate::Statement::Ready)): a new mount, a new connection or a new key of
//! reservation. The identity of an ownership stands in etcd, so that the next owner knows it.

use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::limits::FENCE_TEXT_BYTES;

/// The identity of a node at the storage of a share, by which the storage can refuse it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Fence {
    /// Storage refuses nobody. A share is taken after the former owner's lease and its margin have passed
    /// once more, and a former owner that was stopped for longer can still write.
    #[default]
    None,
    /// CephFS: the client's address with its nonce, as `ceph tell mds.* client ls` shows it, such as
    /// `192.0.2.1:0/3710147553`. The fence puts it on the blocklist of the OSDs.
    Ceph {
        /// The address with its nonce.
        client: String,
    },
    /// NFS: the client's number in the server's `/proc/fs/nfsd/clients`. The fence writes `expire` to its
    /// file `ctl`.
    Nfs {
        /// The host of the NFS server.
        server: String,
        /// The number of the client.
        client: u64,
    },
    /// A disk that several machines reach: the node's key of a persistent reservation. The fence preempts
    /// and aborts it (SPC-4 PREEMPT AND ABORT).
    ScsiPr {
        /// The path of the disk, the same at all nodes.
        device: String,
        /// The key of reservation.
        key: u64,
    },
    /// FUSE: the number of the connection in `/sys/fs/fuse/connections`. The fence aborts it. It reaches
    /// file systems of this host alone: for tests, and for nodes on one machine.
    Fuse {
        /// The number of the connection.
        connection: u32,
        /// The name of the kernel's run that counts it: another kernel has other connections with the
        /// same numbers. Empty in values of earlier versions, which had no name: a host that is not known.
        host: String,
    },
}

/// The text of a fence is not one of [`Fence`]'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAFence;

impl fmt::Display for NotAFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fence must be none, ceph, nfs, scsi-pr or fuse, with its values")
    }
}

impl core::error::Error for NotAFence {}

impl Fence {
    /// The word for the kind in the configuration, in status and in logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ceph { .. } => "ceph",
            Self::Nfs { .. } => "nfs",
            Self::ScsiPr { .. } => "scsi-pr",
            Self::Fuse { .. } => "fuse",
        }
    }

    /// True if storage can refuse the node.
    pub const fn can_refuse(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// The text of the fence in values.
    pub fn to_text(&self) -> String {
        match self {
            Self::None => String::from("none"),
            Self::Ceph { client } => format!("ceph {client}"),
            Self::Nfs { server, client } => format!("nfs {client} {server}"),
            Self::ScsiPr { device, key } => format!("scsi-pr {key:016x} {device}"),
            Self::Fuse { connection, host } if host.is_empty() => format!("fuse {connection}"),
            Self::Fuse { connection, host } => format!("fuse {connection} {host}"),
        }
    }

    /// Reads the text of a fence.
    ///
    /// # Errors
    /// For a text that [`Fence::to_text`] never makes.
    pub fn from_text(text: &str) -> Result<Self, NotAFence> {
        let word = |word: &str| {
            let is_word = !word.is_empty() && word.len() <= FENCE_TEXT_BYTES;
            let is_printable = word.chars().all(|c| !c.is_control());
            if is_word && is_printable { Ok(String::from(word)) } else { Err(NotAFence) }
        };
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let fence = match kind {
            "none" => Self::None,
            "ceph" => Self::Ceph { client: word(rest)? },
            "nfs" => {
                let (client, server) = rest.split_once(' ').ok_or(NotAFence)?;
                let client = client.parse().map_err(|_| NotAFence)?;
                Self::Nfs { server: word(server)?, client }
            }
            "scsi-pr" => {
                let (key, device) = rest.split_once(' ').ok_or(NotAFence)?;
                let key = u64::from_str_radix(key, 16).map_err(|_| NotAFence)?;
                Self::ScsiPr { device: word(device)?, key }
            }
            "fuse" => {
                let (connection, host) = match rest.split_once(' ') {
                    Some((connection, host)) => (connection, word(host)?),
                    None => (rest, String::new()),
                };
                let connection = connection.parse().map_err(|_| NotAFence)?;
                Self::Fuse { connection, host }
            }
            _ => return Err(NotAFence),
        };
        if fence.to_text() == text { Ok(fence) } else { Err(NotAFence) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn fences_have_one_text() {
        let all = vec![
            (Fence::None, "none"),
            (Fence::Ceph { client: "192.0.2.1:0/371".into() }, "ceph 192.0.2.1:0/371"),
            (Fence::Nfs { server: "nas".into(), client: 7 }, "nfs 7 nas"),
            (
                Fence::ScsiPr { device: "/dev/disk/by-id/x y".into(), key: 0x2a },
                "scsi-pr 000000000000002a /dev/disk/by-id/x y",
            ),
            (Fence::Fuse { connection: 51, host: "a-b".into() }, "fuse 51 a-b"),
            (Fence::Fuse { connection: 51, host: String::new() }, "fuse 51"),
        ];
        for (fence, text) in all {
            assert_eq!(fence.to_text(), text);
            assert_eq!(Fence::from_text(text), Ok(fence.clone()));
            assert_eq!(fence.can_refuse(), fence.kind() != "none");
        }
        for wrong in [
            "",
            "none ",
            "ceph ",
            "ceph",
            "nfs 7",
            "nfs x nas",
            "scsi-pr 2a /dev/x",
            "fuse +5 a",
            "fuse",
            "fuse 5 ",
        ] {
            assert_eq!(Fence::from_text(wrong), Err(NotAFence), "{wrong}");
        }
        let long = |bytes| Fence::Ceph { client: "c".repeat(bytes) }.to_text();
        assert!(Fence::from_text(&long(FENCE_TEXT_BYTES)).is_ok());
        assert!(Fence::from_text(&long(FENCE_TEXT_BYTES + 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(ceph|nfs|scsi-pr|fuse|none)?[ 0-9a-f]{0,4}\\PC{0,20}") {
            if let Ok(fence) = Fence::from_text(&text) {
                prop_assert_eq!(fence.to_text(), text);
            }
        }
    }
}
