//! The lease of a node on its disk, for the next process of the node.
//!
//! A process that knows that the earlier one has ended takes its shares over without a fence and without
//! waiting. It knows that by a lock, which the kernel releases with the process.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use frevo_cluster::Settings;
use frevo_etcd::types::LeaseId;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::exit::{Exit, Failure};
use crate::secret_file;

/// The file that is locked while a process of the node runs.
const LOCK: &str = "cluster.lock";
/// The file with the last lease.
const LEASE: &str = "cluster.lease";
/// The longest text of a lease, bytes.
const TEXT_BYTES: usize = 256;

/// The place of a node's lease, locked by this process.
#[derive(Debug)]
pub(super) struct LeaseFile {
    path: PathBuf,
    /// The names of the cluster and the node: the lease of another one is not this node's.
    of: String,
    /// The lease that the file has.
    kept: Option<LeaseId>,
    _lock: File,
}

impl LeaseFile {
    /// Locks the state directory for this process of the node. Returns the lease of the one before.
    pub(super) fn open(
        dir: &Path,
        settings: &Settings,
    ) -> Result<(Self, Option<LeaseId>), Failure> {
        let path = dir.join(LOCK);
        let shown = path.display();
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&path).map_err(Failure::failed(format!("cannot open {shown}")))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let why = format!(
                    "another server uses the state directory {}: {shown} is locked; give this node \
                     a state_dir of its own",
                    dir.display()
                );
                return Err(Failure::new(Exit::Failed, why));
            }
            Err(errno) => return Err(Failure::failed(format!("cannot lock {shown}"))(errno)),
        }
        let path = dir.join(LEASE);
        let of = format!("{} {}", settings.cluster, settings.node);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let kept = parse(&text, &of);
        Ok((Self { path, of, kept, _lock: lock }, kept))
    }

    /// Keeps a lease. A fault costs the next process some seconds, and is logged.
    pub(super) fn keep(&mut self, lease: Option<LeaseId>) {
        if lease == self.kept {
            return;
        }
        self.kept = lease;
        let number = lease.map_or(0, |lease| lease.0);
        let text = format!("{} {number}\n", self.of);
        if let Err(failure) = secret_file::replace(&self.path, &text) {
            tracing::warn!(target: "frevo::cluster", "the lease of this node was not kept: {failure}");
        }
    }
}

/// The lease in the text of a file that was written for the same node.
fn parse(text: &str, of: &str) -> Option<LeaseId> {
    let text = text.get(..text.len().min(TEXT_BYTES))?;
    let number: i64 = text.trim_end().strip_prefix(of)?.strip_prefix(' ')?.parse().ok()?;
    (number != 0).then_some(LeaseId(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_config::Config;

    #[test]
    fn the_next_process_has_the_lease_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[cluster]\nname = \"c\"\nnode = \"n1\"\nendpoints = [\"http://127.0.0.1\"]\n";
        let config = Config::parse(text).unwrap();
        let mut settings =
            crate::configured::cluster::settings(&config, "host", Vec::new()).unwrap();
        let (mut file, before) = LeaseFile::open(dir.path(), &settings).unwrap();
        assert_eq!(before, None);
        let second = LeaseFile::open(dir.path(), &settings).unwrap_err();
        assert!(second.to_string().contains("another server uses"), "{second}");
        file.keep(Some(LeaseId(77)));
        drop(file);
        let (mut file, before) = LeaseFile::open(dir.path(), &settings).unwrap();
        assert_eq!(before, Some(LeaseId(77)));
        file.keep(None);
        drop(file);
        let (mut file, before) = LeaseFile::open(dir.path(), &settings).unwrap();
        assert_eq!(before, None);
        file.keep(Some(LeaseId(-5)));
        drop(file);
        settings.node = frevo_cluster::names::NodeName::new("n2").unwrap();
        let (_file, before) = LeaseFile::open(dir.path(), &settings).unwrap();
        assert_eq!(before, None, "of another node");
    }
}
