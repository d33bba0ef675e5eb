//! The acts of a cluster's node that need rights.
//!
//! A server that is confined can neither have storage refuse another node nor give its machine an
//! address. A process of its own does that ([`Fences`], [`addresses::Floating`]): it is asked for shares
//! and addresses of the configuration alone.
//!
//! docs/cluster-fences.md says what each kind of fence needs, and what was tried on which storage.
#![forbid(unsafe_code)]

pub mod addresses;
mod ceph;
mod fault;
mod fuse;
pub mod hands;
mod host;
mod keys_file;
mod kind;
pub mod limits;
mod mounts;
mod nfs;
mod scsi;

use std::path::Path;

use frevo_cluster::fence::Fence;

use self::host::Boot;

pub use fault::FenceFault;
pub use keys_file::KeysFile;
pub use kind::{Kind, NotAKind};

/// The fences of a node: its identities, and the refusal of other nodes.
#[derive(Debug)]
pub struct Fences {
    /// None where no kind of fence needs it.
    boot: Option<Boot>,
    keys: scsi::Keys,
}

impl Fences {
    /// Makes the fences of a node which uses the kinds for which `uses` is true. Its registrations with disks
    /// are kept in `keys`; None where no disk is fenced.
    ///
    /// # Errors
    /// A sentence: the file cannot be used.
    pub fn open(uses: impl Fn(Kind) -> bool, keys: Option<&KeysFile>) -> Result<Self, FenceFault> {
        let needs_boot = uses(Kind::Fuse) || uses(Kind::ScsiPr);
        let boot = needs_boot.then(Boot::of_this_host).transpose()?;
        Ok(Self { boot, keys: scsi::Keys::open(keys)? })
    }

    /// Sentences about the file of registrations, for the log.
    pub fn warnings(&self) -> Vec<String> {
        self.keys.warnings()
    }

    fn boot(&self) -> Result<&Boot, FenceFault> {
        let lacks = || FenceFault("no share of this node has such a `fence`".into());
        self.boot.as_ref().ok_or_else(lacks)
    }

    /// Returns the identity of this node at the storage below `folder`. For [`Kind::ScsiPr`] it
    /// registers with the disk if it has not.
    ///
    /// # Errors
    /// A sentence, also if the storage of this machine knows that this node is refused.
    pub fn identity(&self, folder: &Path, kind: Kind) -> Result<Fence, FenceFault> {
        match kind {
            Kind::None => Ok(Fence::None),
            Kind::Fuse => fuse::identity(folder, self.boot()?),
            Kind::Nfs => nfs::identity(folder),
            Kind::Ceph => ceph::identity(folder),
            Kind::ScsiPr => self.keys.identity(folder, self.boot()?),
        }
    }

    /// Asks far parts of the storage whether they refuse this identity of this node: once for all folders
    /// that have it.
    ///
    /// # Errors
    /// A sentence: they do, or do not answer.
    pub fn check(&self, fence: &Fence) -> Result<(), FenceFault> {
        match fence {
            Fence::Ceph { client } => ceph::check(client),
            Fence::None | Fence::Fuse { .. } | Fence::Nfs { .. } | Fence::ScsiPr { .. } => Ok(()),
        }
    }

    /// Returns a sentence about storage that can be used, and that keeps less than it should.
    pub fn warning(&self, folder: &Path, kind: Kind) -> Option<String> {
        match kind {
            Kind::Ceph => ceph::warning(folder),
            Kind::None | Kind::Fuse | Kind::Nfs | Kind::ScsiPr => None,
        }
    }

    /// Has the storage below `folder` refuse the node with this identity. It returns when the storage
    /// does. A node that is refused already is no fault.
    ///
    /// # Errors
    /// A sentence. The node may be refused or not.
    pub fn fence(&self, folder: &Path, fence: &Fence) -> Result<(), FenceFault> {
        match fence {
            Fence::None => Ok(()),
            Fence::Fuse { connection, host } => fuse::fence(*connection, host, self.boot()?),
            Fence::Nfs { server, client } => nfs::fence(server, *client),
            Fence::Ceph { client } => ceph::fence(client),
            Fence::ScsiPr { device, key } => self.keys.fence(folder, device, *key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_of_the_kernel_is_read_where_it_is_needed() {
        let of = |used: Kind| Fences::open(|kind| kind == used, None).unwrap();
        for (kind, needs) in [(Kind::Fuse, true), (Kind::ScsiPr, true), (Kind::Nfs, false)] {
            assert_eq!(of(kind).boot.is_some(), needs, "{kind}");
        }
        let fault = of(Kind::None).identity(Path::new("/"), Kind::Fuse).unwrap_err().to_string();
        assert_eq!(fault, "no share of this node has such a `fence`");
    }
}
