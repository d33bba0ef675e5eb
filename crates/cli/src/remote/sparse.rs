//! Sparse files: finds the ranges of a file that hold data. Holes are neither sent nor stored.

use std::fs::File as LocalHandle;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use frevo_client::{File, FileAttributes, Metadata};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Offsets and lengths in bytes, by offset.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// Most ranges of one file. Behind the last one the file counts as data.
const PIECES_MAX: usize = 1 << 16;

/// Zeros that make a hole of a download.
const HOLE_BYTES: usize = 64 << 10;

/// Bytes of one block of `st_blocks`.
const BLOCK: u64 = 512;

/// The data ranges of a file on a server; the whole file, where the server does not tell.
///
/// # Errors
/// A lost connection.
pub(crate) async fn there(file: &File, metadata: &Metadata) -> frevo_client::Result<Ranges> {
    let whole = vec![(0, metadata.len())];
    // Some servers do not set SPARSE_FILE for files that programs on their host have made sparse,
    // so an allocation below the length also means holes.
    let may_have_holes = metadata.attributes().contains(FileAttributes::SPARSE_FILE)
        || metadata.allocation() < metadata.len();
    if !may_have_holes || metadata.len() == 0 {
        return Ok(whole);
    }
    match file.allocated(0, metadata.len()).await {
        Err(error) if error.status().is_some() => Ok(whole),
        ranges => ranges,
    }
}

/// The data ranges of a local file; the whole file, where its file system does not tell.
///
/// # Errors
/// An error of the host.
pub(crate) fn here(file: &LocalHandle) -> io::Result<Ranges> {
    let metadata = file.metadata()?;
    let len = metadata.len();
    let whole = vec![(0, len)];
    if metadata.blocks().saturating_mul(BLOCK) >= len {
        return Ok(whole);
    }
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No data follows this position, so the rest of the file is a hole.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(whole),
            Err(errno) => return Err(errno.into()),
        };
        let end = if found.len() < PIECES_MAX {
            seek(file, SeekFrom::Hole(start))?.min(len)
        } else {
            len
        };
        if start >= end {
            break;
        }
        found.push((start, end - start));
        at = end;
    }
    Ok(found)
}

/// True when `ranges` cover all `len` bytes.
pub(crate) fn is_whole(ranges: &[(u64, u64)], len: u64) -> bool {
    *ranges == [(0, len)]
}

/// The end of the last range, at most `len`; 0 without ranges.
pub(crate) fn end(ranges: &[(u64, u64)], len: u64) -> u64 {
    ranges.last().map_or(0, |(start, count)| start.saturating_add(*count).min(len))
}

/// Makes `file` sparse if `ranges` leave holes. Returns the ranges to write: the whole file,
/// where the server has no sparse files.
///
/// # Errors
/// A lost connection.
pub(crate) async fn allowed(file: &File, ranges: Ranges, len: u64) -> frevo_client::Result<Ranges> {
    if is_whole(&ranges, len) {
        return Ok(ranges);
    }
    match file.set_sparse().await {
        Err(error) if error.status().is_some() => Ok(vec![(0, len)]),
        done => done.map(|()| ranges),
    }
}

/// The parts of `data` to write where holes stay: all but the zeros of whole [`HOLE_BYTES`].
pub(crate) fn without_zeros(data: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let chunks = data.chunks(HOLE_BYTES).enumerate();
    let chunks = chunks.filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0));
    chunks.map(|(at, chunk)| at * HOLE_BYTES..at * HOLE_BYTES + chunk.len())
}

/// Writes data to a place of a local file that is a hole so far, and leaves holes where it is zero for
/// [`HOLE_BYTES`].
///
/// # Errors
/// An error of the host.
pub(crate) fn write_without_zeros(file: &LocalHandle, data: &[u8], at: u64) -> io::Result<()> {
    for range in without_zeros(data) {
        let part = data.get(range.clone()).unwrap_or_default();
        file.write_all_at(part, at + range.start as u64)?;
    }
    Ok(())
}

/// The part of a range from `at` on and before `len`: its start and length.
pub(crate) fn rest(range: (u64, u64), at: u64, len: u64) -> Option<(u64, u64)> {
    let (start, count) = range;
    let end = start.saturating_add(count).min(len);
    let from = start.max(at);
    (from < end).then(|| (from, end - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_between_holes_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = LocalHandle::create_new(dir.path().join("file")).unwrap();
        assert!(is_whole(&here(&file).unwrap(), 0));
        file.set_len(64 << 20).unwrap();
        if file.metadata().unwrap().blocks() > 0 {
            // The file system has no holes, so the rest of the test is skipped.
            return;
        }
        assert_eq!(here(&file).unwrap(), []);
        file.write_all_at(b"here", 16 << 20).unwrap();
        file.write_all_at(b"and here", (40 << 20) - 4).unwrap();
        let found = here(&file).unwrap();
        let is_data =
            |at: u64| found.iter().any(|(start, len)| (*start..start + len).contains(&at));
        assert!(is_data(16 << 20) && is_data((40 << 20) - 4) && is_data((40 << 20) + 3));
        assert!(!is_data(0) && !is_data(30 << 20) && !is_data((64 << 20) - 1));
        let mut at = 0;
        for (start, len) in found {
            assert!(start >= at && len > 0);
            at = start + len;
        }
    }

    #[test]
    fn zeros_leave_holes_and_everything_else_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = LocalHandle::create_new(&path).unwrap();
        let mut data = vec![0; 10 * HOLE_BYTES + 5];
        data[3 * HOLE_BYTES] = 1;
        data[5 * HOLE_BYTES - 1] = 2;
        write_without_zeros(&file, &data, 7).unwrap();
        file.set_len(7 + data.len() as u64).unwrap();
        assert!(std::fs::read(&path).unwrap()[7..] == data);
        assert!(file.metadata().unwrap().blocks() * BLOCK <= 4 * HOLE_BYTES as u64);
    }

    #[test]
    fn what_was_done_is_not_done_again() {
        assert_eq!(rest((10, 5), 0, 100), Some((10, 5)));
        assert_eq!(rest((10, 5), 12, 100), Some((12, 3)));
        assert_eq!(rest((10, 5), 15, 100), None);
        assert_eq!(rest((10, u64::MAX), 0, 100), Some((10, 90)));
        assert_eq!(rest((100, 5), 0, 100), None);
        assert_eq!((end(&[], 9), end(&[(0, 3), (5, 2)], 9), end(&[(0, u64::MAX)], 9)), (0, 7, 9));
    }
}
