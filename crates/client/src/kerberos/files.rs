//! Small files, read whole up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Returns the content of a file of at most `limit` bytes.
pub(super) fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}
