//! The folder that holds the bins of all users, as one account sees it.

use std::sync::Arc;

use frevo_store::FileKey;
use frevo_store::vfs::{Directory, HostAccess, Node, Security, Stat, VfsResult};
use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::eq_ignore_case;

/// The folder of all bins: it lists the account's own one, and takes no change.
#[derive(Debug)]
pub(super) struct Top {
    inner: Arc<dyn Node>,
    own: String,
}

impl Top {
    pub(super) fn new(inner: Arc<dyn Node>, own: &str) -> Self {
        Self { inner, own: own.to_owned() }
    }

    /// The node of the file system beneath.
    pub(super) fn inner(&self) -> &dyn Node {
        &*self.inner
    }
}

impl Node for Top {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn stat(&self) -> VfsResult<Stat> {
        self.inner.stat()
    }

    fn is_hidden_by_name(&self) -> bool {
        self.inner.is_hidden_by_name()
    }

    fn birth(&self) -> Option<FileTime> {
        self.inner.birth()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        self.inner.read_at(offset, into)
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Ok(Box::new(OwnEntry { inner: self.inner.directory()?, own: self.own.clone() }))
    }

    fn security(&self) -> VfsResult<Security> {
        self.inner.security()
    }

    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        self.inner.stored_security()
    }

    fn host_access(&self) -> HostAccess {
        HostAccess { write: false, owner: false, ..self.inner.host_access() }
    }
}

/// A listing that leaves out what is not the account's.
#[derive(Debug)]
struct OwnEntry {
    inner: Box<dyn Directory>,
    own: String,
}

impl Directory for OwnEntry {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        loop {
            match self.inner.next_name()? {
                None => return Ok(None),
                Some(name) if eq_ignore_case(name, &self.own) => break,
                Some(_) => {}
            }
        }
        Ok(Some(&self.own))
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        self.inner.entry_stat()
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.inner.rewind()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
