//! The files that both servers share.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Bytes of one read or write of the sequential rows.
pub(crate) const BLOCK_LEN: usize = 1 << 20;
/// Bytes of one read over a longer way.
pub(crate) const PART_LEN: usize = 64 << 10;
/// Length of the read file, blocks; it stays in the page cache.
pub(crate) const READ_BLOCKS: u64 = 256;
/// Length of a file that is overwritten in place, blocks; small enough that write-back does not
/// throttle the writer.
pub(crate) const WRITE_BLOCKS: u64 = 64;
/// Blocks of a round's writes that are read back and compared.
const CHECKED_BLOCKS: u64 = 8;
/// Number of small files of [`SMALL_LEN`] bytes.
pub(crate) const SMALL_FILES: u64 = 64;
pub(crate) const SMALL_LEN: usize = 4096;
/// Number of files in the listed directory.
pub(crate) const LISTED_FILES: usize = 20_000;

/// Documents in the folder of each of the people of the office load, and their length.
pub(crate) const DOCUMENTS: usize = 24;
pub(crate) const DOCUMENT_BYTES: usize = 16 << 10;

pub(crate) const READ_NAME: &str = "read.bin";
pub(crate) const WRITE_NAME: &str = "write.bin";
pub(crate) const LIST_NAME: &str = "list";

pub(crate) fn small_name(n: u64) -> String {
    format!("small-{}.bin", n % SMALL_FILES)
}

/// Returns the name of the folder with this many entries.
pub(crate) fn folder_name(entries: usize) -> String {
    format!("list-{entries}")
}

/// Returns the name of the folder with this many entries that all may read, and others.
pub(crate) fn guarded_name(entries: usize) -> String {
    format!("guarded-{entries}")
}

/// Returns the path of a folder of the office load on the share.
pub(crate) fn office_name(user: usize) -> String {
    format!("office-{user}")
}

/// Returns the path of a document on the share.
pub(crate) fn document_name(user: usize, n: usize) -> String {
    format!("{}\\document-{n:02}.txt", office_name(user))
}

/// Makes a folder of empty files.
pub(crate) fn make_listed(share: &Path, entries: usize) -> Result<()> {
    let folder = share.join(folder_name(entries));
    fs::create_dir(&folder)?;
    for n in 0..entries {
        fs::File::create(folder.join(format!("file-{n:06}.dat")))?;
    }
    open_to_all(&folder)
}

/// Readable files in a guarded folder for each that is not.
const READABLE: usize = 10;

/// Makes a folder of empty files that all may read, and of others that only their owner may.
pub(crate) fn make_guarded(share: &Path, entries: usize) -> Result<()> {
    let folder = share.join(guarded_name(entries));
    fs::create_dir(&folder)?;
    for n in 0..entries {
        fs::File::create(folder.join(format!("file-{n:06}.dat")))?;
        if n.is_multiple_of(READABLE) {
            let path = folder.join(format!("secret-{n:06}.dat"));
            fs::File::create(&path)?.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
    }
    open_to_all(&folder)
}

/// Makes the folders of the office load.
pub(crate) fn make_offices(share: &Path, users: usize) -> Result<()> {
    for user in 0..users {
        let folder = share.join(office_name(user));
        if folder.exists() {
            continue;
        }
        fs::create_dir(&folder)?;
        open_to_all(&folder)?;
        for n in 0..DOCUMENTS {
            let path = share.join(document_name(user, n).replace('\\', "/"));
            fs::write(&path, &block(n as u64, 3)[..DOCUMENT_BYTES])?;
            open_to_all(&path)?;
        }
    }
    Ok(())
}

/// Removes what a round of the office load left in the middle of a day.
pub(crate) fn tidy_offices(share: &Path, users: usize) -> Result<()> {
    for user in 0..users {
        for name in ["copy.txt", "moved.txt"] {
            match fs::remove_file(share.join(office_name(user)).join(name)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the content of block `n`, which differs from block to block and within each.
pub(crate) fn block(n: u64, seed: u64) -> Vec<u8> {
    (0..BLOCK_LEN as u64 / 8)
        .flat_map(|i| {
            (n.wrapping_mul(0x1_0000_0000).wrapping_add(i).wrapping_add(seed))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes()
        })
        .collect()
}

/// Makes a directory that any account may write to, with the files for all rows.
pub(crate) fn prepare(scratch: &Path, listing: bool) -> Result<PathBuf> {
    let dir = scratch.join("share");
    fs::create_dir(&dir)?;
    open_to_all(&dir)?;
    let mut file = fs::File::create(dir.join(READ_NAME))?;
    for n in 0..READ_BLOCKS {
        file.write_all(&block(n, 0))?;
    }
    finish_file(&file, &dir.join(READ_NAME))?;
    let mut file = fs::File::create(dir.join(WRITE_NAME))?;
    for _ in 0..WRITE_BLOCKS {
        file.write_all(&vec![0; BLOCK_LEN])?;
    }
    finish_file(&file, &dir.join(WRITE_NAME))?;
    for n in 0..SMALL_FILES {
        let path = dir.join(small_name(n));
        fs::write(&path, &block(n, 1)[..SMALL_LEN])?;
        open_to_all(&path)?;
    }
    let list = dir.join(LIST_NAME);
    fs::create_dir(&list)?;
    open_to_all(&list)?;
    if listing {
        for n in 0..LISTED_FILES {
            fs::File::create(list.join(format!("file-{n:05}.dat")))?;
        }
    }
    Ok(dir)
}

/// Opens the permissions, since the servers may run under different accounts.
fn open_to_all(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
        .with_context(|| format!("permissions of {}", path.display()))
}

/// Writes the data back now, not during a measured round.
fn finish_file(file: &fs::File, path: &Path) -> Result<()> {
    file.sync_all()?;
    open_to_all(path)
}

/// Returns the block that the server `label` is given to write; it differs between servers.
pub(crate) fn written_block(label: &str) -> Vec<u8> {
    block(7, label.bytes().fold(2, |seed, b| seed * 31 + u64::from(b)))
}

/// Checks the last of `blocks` blocks, written in turn and around the file's end, against the block
/// of `label`.
pub(crate) fn check_written(dir: &Path, label: &str, blocks: u64) -> Result<()> {
    let file = fs::File::open(dir.join(WRITE_NAME))?;
    let content = written_block(label);
    let mut found = vec![0; BLOCK_LEN];
    for n in blocks.saturating_sub(CHECKED_BLOCKS)..blocks {
        file.read_exact_at(&mut found, (n % WRITE_BLOCKS) * BLOCK_LEN as u64)?;
        ensure!(found == content, "block {n} written through {label} differs from the sent data");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_not_written_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = written_block("a").repeat(2);
        fs::write(dir.path().join(WRITE_NAME), &content).unwrap();
        check_written(dir.path(), "a", 2).unwrap();
        check_written(dir.path(), "a", WRITE_BLOCKS + 1).unwrap_err();
        check_written(dir.path(), "b", 2).unwrap_err();
        content[BLOCK_LEN] ^= 1;
        fs::write(dir.path().join(WRITE_NAME), &content).unwrap();
        check_written(dir.path(), "a", 1).unwrap();
        check_written(dir.path(), "a", 2).unwrap_err();
    }
}
