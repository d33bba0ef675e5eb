//! Reparse points: stored buffers for kinds that the host does not have.
//!
//! A stored buffer is an extended attribute. FILE_ATTRIBUTE_REPARSE_POINT in DOSATTRIB tells that
//! it exists, so that the state of other files costs nothing more.

use frevo_store::Fault;
use frevo_store::vfs::{Kind, Node, STORED_ATTRIBUTES, VfsResult};
use frevo_wire::dtyp::FileAttributes;
use rustix::io::Errno;

use crate::dosattrib::DosAttrib;
use crate::errno::fault_of;
use crate::limits::REPARSE_BYTES;
use crate::node::PosixNode;
use crate::reparse_tag::ATTRIBUTE;
use crate::share::reparse_way;

impl PosixNode {
    pub(crate) fn kept_reparse(&self) -> VfsResult<Vec<u8>> {
        let marked = self.dos_attrib().map_or(0, |dos| dos.attributes);
        if marked & FileAttributes::REPARSE_POINT.0 == 0 {
            return Err(Fault::NotFound);
        }
        match self.handle().whole_value(ATTRIBUTE) {
            Ok(buffer) if buffer.len() <= REPARSE_BYTES => Ok(buffer),
            Ok(_) | Err(Errno::NODATA) => Err(Fault::NotFound),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    /// Stores the buffer before its mark, and removes it after the mark: a mark without a buffer
    /// has no effect.
    pub(crate) fn set_kept_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        let handle = self.handle();
        if let Some(buffer) = buffer {
            handle.set(ATTRIBUTE, buffer).map_err(fault_of)?;
        }
        let marked = self.mark_reparse(buffer.is_some());
        reparse_way::changed();
        marked?;
        if buffer.is_none() {
            match handle.remove(ATTRIBUTE) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(fault_of(errno)),
            }
        }
        Ok(())
    }

    fn mark_reparse(&self, marked: bool) -> VfsResult<()> {
        let old = self.handle().dos_attrib();
        let mut bits = old.map_or(0, |old| old.attributes) & STORED_ATTRIBUTES.0;
        // MS-FSA 2.1.5.10.37: a file (not a directory) that becomes a reparse point gets ARCHIVE.
        bits |= match self.kind() {
            Kind::Directory => FileAttributes::DIRECTORY.0,
            _ => FileAttributes::ARCHIVE.0,
        };
        if marked {
            bits |= FileAttributes::REPARSE_POINT.0;
        }
        let created = match old.and_then(|old| old.created) {
            Some(created) => created,
            None => self.stat()?.created,
        };
        let at_birth = old.is_some_and(|old| old.at_birth);
        let times = old.and_then(|old| old.times);
        let created = Some(created);
        let value = DosAttrib { attributes: bits, created, at_birth, changed: None, times };
        self.handle().set_dos_attrib(&value).map_err(fault_of)
    }
}
