//! AFP_AfpInfo: 60 bytes with a file's Finder information, kept as the stream of
//! that name.

use std::any::Any;
use std::sync::Arc;

use frevo_store::vfs::{
    BasicChange, Directory, EaChange, HostAccess, Node, ObjectId, ObjectIdChange, Security,
    SecurityChange, StreamStat, VfsResult,
};
use frevo_store::{Fault, FileKey, Stat};
use frevo_wire::dtyp::FileTime;

/// The record, big endian: signature "AFP\0", version 0x00010000, four bytes that
/// are zero, the time of the last backup, 32 bytes of Finder information, 12 for
/// ProDOS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record([u8; Self::SIZE]);

impl Record {
    /// Bytes of a record.
    pub const SIZE: usize = 60;
    /// Bytes of signature that a write has to begin with; what comes behind them
    /// may be cut off.
    const MARK: [u8; 3] = *b"AFP";
    /// Signature and version.
    const HEAD: [u8; 8] = *b"AFP\0\0\x01\0\0";

    /// The record of a file without one: no backup, no Finder information.
    pub const NONE: Self = {
        let mut bytes = [0; Self::SIZE];
        let (head, rest) = bytes.split_at_mut(Self::HEAD.len());
        head.copy_from_slice(&Self::HEAD);
        // The bytes are four zeros and then the backup date 0x80000000, which means "no backup".
        if let [_, _, _, _, date, ..] = rest {
            *date = 0x80;
        }
        Self(bytes)
    };

    /// Type, creator, flags and the rest of what Finder knows.
    pub fn finder_info(&self) -> [u8; 32] {
        let info = self.0.get(16..).and_then(<[u8]>::first_chunk);
        info.copied().unwrap_or_default()
    }

    fn is_blank(&self) -> bool {
        self.finder_info() == [0; 32]
    }

    /// The record that a write makes, whose status is INVALID_PARAMETER
    /// otherwise. macOS takes any offset for 0, but a part of a record only at 0;
    /// what is missing there is zero, what is too much is dropped.
    fn written(offset: u64, data: &[u8]) -> VfsResult<Self> {
        if !data.starts_with(&Self::MARK) || (offset != 0 && data.len() < Self::SIZE) {
            return Err(Fault::Invalid);
        }
        let mut bytes = [0; Self::SIZE];
        for (to, from) in bytes.iter_mut().zip(data) {
            *to = *from;
        }
        Ok(Self(bytes))
    }

    /// The record in the stream; none for a stream that is empty or no record, or whose record
    /// says nothing of the file.
    pub fn read(stream: &dyn Node) -> Option<Self> {
        let mut bytes = [0; Self::SIZE];
        let count = stream.read_at(0, &mut bytes).ok()?;
        let record = Self(bytes);
        let is_one = count == Self::SIZE && bytes.starts_with(&Self::MARK) && !record.is_blank();
        is_one.then_some(record)
    }
}

/// The stream as it is used: always one record long, and kept only while it says
/// something.
#[derive(Debug)]
pub struct AfpInfoNode(Arc<dyn Node>);

impl AfpInfoNode {
    /// The stream that is stored in `inner`.
    pub const fn new(inner: Arc<dyn Node>) -> Self {
        Self(inner)
    }

    /// True when nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.0.stat().is_ok_and(|stat| stat.end_of_file == 0)
    }
}

impl Node for AfpInfoNode {
    fn key(&self) -> FileKey {
        self.0.key()
    }

    /// Its data is not moved past the rules here.
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn stat(&self) -> VfsResult<Stat> {
        let size = Record::SIZE as u64;
        let stat = self.0.stat()?;
        Ok(Stat { end_of_file: size, allocation: stat.allocation.max(size), ..stat })
    }

    fn birth(&self) -> Option<FileTime> {
        self.0.birth()
    }

    fn takes_changes(&self) -> VfsResult<()> {
        self.0.takes_changes()
    }

    fn takes_data(&self) -> VfsResult<()> {
        self.0.takes_data()
    }

    /// macOS: from any offset within it a record is read from its beginning.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        if offset > Record::SIZE as u64 {
            return Ok(0);
        }
        let record = Record::read(&*self.0).unwrap_or(Record::NONE);
        for (to, from) in into.iter_mut().zip(record.0) {
            *to = from;
        }
        Ok(into.len().min(Record::SIZE))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        let record = Record::written(offset, data)?;
        if record.is_blank() {
            return self.0.set_end_of_file(0);
        }
        self.0.write_at(0, &record.0)?;
        if self.0.stat()?.end_of_file > Record::SIZE as u64 {
            self.0.set_end_of_file(Record::SIZE as u64)?;
        }
        Ok(())
    }

    fn sync(&self) -> VfsResult<()> {
        self.0.sync()
    }

    fn sync_all(&self) -> VfsResult<()> {
        self.0.sync_all()
    }

    /// Succeeds without effect, as on macOS; what is too long the caller refuses.
    fn set_end_of_file(&self, _end: u64) -> VfsResult<()> {
        Ok(())
    }

    fn set_allocation(&self, _bytes: u64) -> VfsResult<()> {
        Ok(())
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.0.set_basic(change)
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        self.0.streams()
    }

    fn clear_streams(&self) -> VfsResult<()> {
        self.0.clear_streams()
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        self.0.directory()
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        self.0.eas()
    }

    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        self.0.set_ea(name, value)
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        self.0.needed_eas()
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        self.0.set_ea_needed(name, needed)
    }

    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        self.0.set_eas(changes)
    }

    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        self.0.object_id()
    }

    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        self.0.change_object_id(change)
    }

    fn link_target(&self) -> VfsResult<String> {
        self.0.link_target()
    }

    fn security(&self) -> VfsResult<Security> {
        self.0.security()
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
        self.0.set_security(change)
    }

    fn host_access(&self) -> HostAccess {
        self.0.host_access()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_a_record_or_the_beginning_of_one() {
        let mut whole = Record::NONE.0;
        whole[16..24].copy_from_slice(b"TYPECREA");
        assert_eq!(Record::written(0, &whole), Ok(Record(whole)));
        assert_eq!(Record::written(61, &whole), Ok(Record(whole)));
        let long = [&whole[..], &[7; 4]].concat();
        assert_eq!(Record::written(0, &long), Ok(Record(whole)));
        for (offset, len) in [(0, 0), (0, 2), (1, 59), (60, 3)] {
            assert_eq!(Record::written(offset, &whole[..len]), Err(Fault::Invalid));
        }
        assert_eq!(Record::written(0, &[0; 60]), Err(Fault::Invalid));
        let part = Record::written(0, &whole[..20]).unwrap();
        assert_eq!(part.finder_info()[..5], *b"TYPE\0");
        assert!(Record::written(0, &whole[..16]).unwrap().is_blank());
    }
}
