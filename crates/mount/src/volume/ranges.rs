//! Operations on ranges of files: copies on the server, allocation, holes, SEEK_DATA.

use std::sync::Arc;

use frevo_client::{Error, File, FileAttributes, Metadata};
use fuser::Errno;

use super::Volume;
use crate::errno::{Outcome, errno};

/// The supported FALLOC_FL_ values.
const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE;
/// Most bytes of one copy_file_range, whose answer has 32 bits.
const COPY_MAX: u64 = 1 << 30;

impl Volume {
    /// Copies on the server. Fails with EOPNOTSUPP if the server cannot: the caller then reads and
    /// writes.
    pub(crate) async fn copy_range(
        &self,
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
    ) -> Outcome<u32> {
        let (source, target) = (self.handle(from.0)?, self.handle(to.0)?);
        if !source.can_read || !target.can_write {
            return Err(Errno::EBADF);
        }
        let reader = self.reader(&source.node).ok_or(Errno::EBADF)?;
        let writer = self.writer(&target.node).ok_or(Errno::EBADF)?;
        self.send(&source.node).await?;
        let end = reader.metadata().await.map_err(|error| errno(&error))?.len();
        let len = len.min(COPY_MAX).min(end.saturating_sub(from.1));
        if len == 0 {
            return Ok(0);
        }
        let same = Arc::ptr_eq(&source.node, &target.node);
        if same && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(Errno::EINVAL);
        }
        let content = self.content(&target.node).await?;
        let copied =
            content.change(async || reader.copy_range_to(&writer, from.1, to.1, len).await).await;
        target.node.invalidate();
        match copied? {
            Some(_) => Ok(u32::try_from(len).unwrap_or(u32::MAX)),
            None => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Allocates or frees a range.
    pub(crate) async fn fallocate(
        &self,
        number: u64,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Outcome<()> {
        let handle = self.handle(number)?;
        if !handle.can_write {
            return Err(Errno::EBADF);
        }
        let node = &handle.node;
        let file = self.writer(node).ok_or(Errno::EBADF)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let content = self.content(node).await?;
        let done = content.change(async || {
            let now = file.metadata().await?;
            if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                file.punch_hole(offset, len).await?;
            } else if !reserve(&file, &now, offset, end).await? {
                return Ok(false);
            }
            if mode & KEEP_SIZE == 0 && end > now.len() {
                file.set_len(end).await?;
            }
            Ok(true)
        });
        let done = match mode & !KEEP_SIZE {
            0 | PUNCH_HOLE | ZERO_RANGE => done.await,
            _ => Err(Errno::EOPNOTSUPP),
        };
        node.invalidate();
        if done? { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// Carries out SEEK_DATA and SEEK_HOLE.
    pub(crate) async fn lseek(&self, number: u64, offset: u64, whence: i32) -> Outcome<u64> {
        let handle = self.handle(number)?;
        let file = self.reader(&handle.node).ok_or(Errno::EBADF)?;
        let _ = self.send(&handle.node).await;
        let end = file.metadata().await.map_err(|error| errno(&error))?.len();
        if offset >= end {
            return Err(Errno::ENXIO);
        }
        let ranges = match file.allocated(offset, end - offset).await {
            Ok(ranges) => ranges,
            // The server cannot report holes, so the whole range counts as data.
            Err(error) if errno(&error) == Errno::EOPNOTSUPP => vec![(offset, end - offset)],
            Err(error) => return Err(errno(&error)),
        };
        match whence {
            libc::SEEK_DATA => data_from(&ranges, offset).ok_or(Errno::ENXIO),
            libc::SEEK_HOLE => Ok(hole_from(&ranges, offset).min(end)),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Allocates the bytes from `offset` to `end`; returns false if that is not possible. SMB has only
/// one allocation size for the whole file: a size below the file's length would truncate it, a
/// larger one fills all of its holes. With holes, a range can only be allocated by writing to it.
async fn reserve(file: &File, now: &Metadata, offset: u64, end: u64) -> Result<bool, Error> {
    let (from, to) = if end > now.len() { (0, now.len()) } else { (offset, end) };
    if now.allocation() < now.len() {
        // MS-FSA 2.1.5.10.22: a server reports holes only for files with SPARSE_FILE.
        if !now.attributes().contains(FileAttributes::SPARSE_FILE) {
            return Ok(false);
        }
        if hole_from(&file.allocated(from, to - from).await?, from) < to {
            return Ok(false);
        }
    }
    if end > now.len() && end > now.allocation() {
        file.reserve(end).await?;
    }
    Ok(true)
}

/// Returns the first byte at or after `offset` inside one of the ordered ranges.
fn data_from(ranges: &[(u64, u64)], offset: u64) -> Option<u64> {
    let behind = ranges.iter().find(|(at, len)| at.saturating_add(*len) > offset);
    behind.map(|(at, _)| offset.max(*at))
}

/// Returns the first byte at or after `offset` outside all ordered ranges.
fn hole_from(ranges: &[(u64, u64)], offset: u64) -> u64 {
    ranges.iter().fold(offset, |hole, (at, len)| {
        let end = at.saturating_add(*len);
        if *at <= hole && hole < end { end } else { hole }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_data() {
        let ranges = [(0, 10), (10, 10), (50, 10)];
        assert_eq!(hole_from(&ranges, 0), 20);
        assert_eq!(hole_from(&ranges, 30), 30);
        assert_eq!(hole_from(&ranges, 55), 60);
        assert_eq!(data_from(&ranges, 30), Some(50));
        assert_eq!(data_from(&ranges, 5), Some(5));
        assert_eq!(data_from(&ranges, 60), None);
        assert_eq!(hole_from(&[], 7), 7);
    }
}
