//! The work in a mounted folder: each piece returns its amount and its seconds, and fails if it
//! finds wrong data.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::share;

/// The large file, with the requested length.
pub(super) const BIG: &str = "big.bin";
/// A file that fits into any cache.
pub(super) const MIDDLE: &str = "middle.bin";
/// Size of the middle file, MiB.
pub(super) const MIDDLE_MEBIBYTES: u64 = 64;
/// Directories with small files.
pub(super) const TREE: &str = "tree";
/// Number of directories in the tree.
pub(super) const DIRECTORIES: usize = 100;
pub(super) const FILES: usize = 10_000;
/// The folder for files that are made and removed again.
pub(super) const NEW: &str = "new";
/// Number of files that are made, 4 KiB each.
const MADE_FILES: usize = 2_000;
const MADE_DIRECTORIES: usize = 20;
/// Reads and writes at random places, and their length.
const RANDOM_CACHED: usize = 20_000;
const RANDOM: usize = 4_000;
const SMALL: usize = 4096;
/// Time after which the entries of caches without leases have expired.
const LATER: Duration = Duration::from_millis(2_500);

/// An amount of work (bytes or files) and its seconds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Done {
    pub(super) count: f64,
    pub(super) seconds: f64,
}

/// The unit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Megabytes,
    Requests,
    Files,
}

impl Unit {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Megabytes => "MB/s",
            Self::Requests => "requests/s",
            Self::Files => "files/s",
        }
    }
}

/// The pieces of work, in their order after a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    RandomReadUncached,
    Read,
    ReadAgain,
    RandomReadCached,
    Write,
    RandomWrite,
    List,
    ListAgain,
    ListLater,
    Status,
    StatusLater,
    Create,
    Delete,
}

impl Work {
    pub(super) const ALL: [Self; 13] = [
        Self::RandomReadUncached,
        Self::Read,
        Self::ReadAgain,
        Self::RandomReadCached,
        Self::Write,
        Self::RandomWrite,
        Self::List,
        Self::ListAgain,
        Self::ListLater,
        Self::Status,
        Self::StatusLater,
        Self::Create,
        Self::Delete,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RandomReadUncached => "random-read-uncached",
            Self::Read => "read",
            Self::ReadAgain => "read-again",
            Self::RandomReadCached => "random-read-cached",
            Self::Write => "write",
            Self::RandomWrite => "random-write",
            Self::List => "list",
            Self::ListAgain => "list-again",
            Self::ListLater => "list-later",
            Self::Status => "status",
            Self::StatusLater => "status-later",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::RandomReadUncached => {
                "4 KiB at random places of the large file, never read before"
            }
            Self::Read => "the whole large file, in parts of 1 MiB",
            Self::ReadAgain => "a file of 64 MiB that was just read",
            Self::RandomReadCached => "4 KiB at random places of that file",
            Self::Write => "a new large file, in parts of 1 MiB, and its close",
            Self::RandomWrite => "4 KiB at random places of a file of 64 MiB, and its close",
            Self::List => "ls -lR of 10,000 files in 100 directories, the first time",
            Self::ListAgain => "that listing again at once",
            Self::ListLater => "that listing 2.5 s later",
            Self::Status => "lstat of all these files by name, and of an absent .gitignore",
            Self::StatusLater => "that lstat 2.5 s later",
            Self::Create => "make and close 2,000 files of 4 KiB in 20 directories",
            Self::Delete => "remove these files",
        }
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::Read | Self::ReadAgain | Self::Write => Unit::Megabytes,
            Self::RandomReadCached | Self::RandomReadUncached | Self::RandomWrite => Unit::Requests,
            _ => Unit::Files,
        }
    }

    /// Does the work in `folder`, with the files of [`prepare`].
    pub(super) fn run(self, folder: &Path, mebibytes: u64) -> Result<Done> {
        let work = || match self {
            Self::RandomReadUncached => random_read(&folder.join(BIG), mebibytes, RANDOM),
            Self::Read => read(&folder.join(BIG), mebibytes),
            Self::ReadAgain => read(&folder.join(MIDDLE), MIDDLE_MEBIBYTES),
            Self::RandomReadCached => {
                random_read(&folder.join(MIDDLE), MIDDLE_MEBIBYTES, RANDOM_CACHED)
            }
            Self::Write => write(&folder.join(NEW).join(BIG), mebibytes),
            Self::RandomWrite => random_write(&folder.join(NEW).join(MIDDLE)),
            Self::List | Self::ListAgain | Self::ListLater => list(&folder.join(TREE)),
            Self::Status | Self::StatusLater => status(&folder.join(TREE)),
            Self::Create => create(&folder.join(NEW)),
            Self::Delete => delete(&folder.join(NEW)),
        };
        match self {
            Self::ReadAgain => drop(read(&folder.join(MIDDLE), MIDDLE_MEBIBYTES)?),
            Self::ListLater | Self::StatusLater => std::thread::sleep(LATER),
            Self::Write => drop(fs::remove_file(folder.join(NEW).join(BIG))),
            Self::RandomWrite => drop(write(&folder.join(NEW).join(MIDDLE), MIDDLE_MEBIBYTES)?),
            _ => {}
        }
        let start = Instant::now();
        let count = work().with_context(|| self.name())?;
        Ok(Done { count, seconds: start.elapsed().as_secs_f64() })
    }
}

/// Makes the files for the work.
pub(super) fn prepare(share: &Path, mebibytes: u64) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let all = fs::Permissions::from_mode(0o777);
    for directory in [share.to_owned(), share.join(NEW), share.join(TREE)] {
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, all.clone())?;
    }
    write(&share.join(BIG), mebibytes)?;
    write(&share.join(MIDDLE), MIDDLE_MEBIBYTES)?;
    for at in 0..DIRECTORIES {
        fs::create_dir(share.join(TREE).join(format!("folder-{at:03}")))?;
    }
    for name in tree_names() {
        fs::write(share.join(TREE).join(name), b"some text")?;
    }
    Ok(())
}

fn tree_names() -> impl Iterator<Item = PathBuf> {
    (0..FILES).map(|at| {
        let (directory, file) = (at * DIRECTORIES / FILES, at);
        PathBuf::from(format!("folder-{directory:03}/file-{file:05}.txt"))
    })
}

fn read(path: &Path, mebibytes: u64) -> Result<f64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0_u64;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        // Each mebibyte of the file begins with its number, which shows that the right bytes were
        // read.
        if total.is_multiple_of(1 << 20) && count >= 8 {
            ensure!(buffer[..8] == mark(total >> 20), "wrong bytes at offset {total}");
        }
        total += count as u64;
    }
    ensure!(total == mebibytes << 20, "the file has {total} bytes");
    Ok(total as f64 / 1e6)
}

/// Returns the first bytes of MiB `at` of a file.
fn mark(at: u64) -> [u8; 8] {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn write(path: &Path, mebibytes: u64) -> Result<f64> {
    let mut file = File::create(path)?;
    let mut block = share::block(0, 3);
    for at in 0..mebibytes {
        block[..8].copy_from_slice(&mark(at));
        file.write_all(&block)?;
    }
    drop(file);
    Ok((mebibytes << 20) as f64 / 1e6)
}

/// Returns random offsets in a file, equal in each run.
fn places(mebibytes: u64, count: usize) -> impl Iterator<Item = u64> {
    let blocks = (mebibytes << 20) / SMALL as u64;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % blocks) * SMALL as u64
    })
}

fn random_read(path: &Path, mebibytes: u64, count: usize) -> Result<f64> {
    let file = File::open(path)?;
    let mut buffer = [0; SMALL];
    for place in places(mebibytes, count) {
        file.read_exact_at(&mut buffer, place)?;
    }
    Ok(count as f64)
}

fn random_write(path: &Path) -> Result<f64> {
    let file = OpenOptions::new().write(true).open(path)?;
    let data = [7; SMALL];
    for place in places(MIDDLE_MEBIBYTES, RANDOM) {
        file.write_all_at(&data, place)?;
    }
    drop(file);
    Ok(RANDOM as f64)
}

/// Does what ls -lR does: lists each directory and looks at each name.
fn list(top: &Path) -> Result<f64> {
    let mut directories = vec![top.to_owned()];
    let (mut files, mut bytes) = (0, 0);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let found = fs::symlink_metadata(&path)?;
            if found.is_dir() {
                directories.push(path);
            } else {
                files += 1;
                bytes += found.len();
            }
        }
    }
    ensure!((files, bytes) == (FILES, 9 * FILES as u64), "found {files} files with {bytes} bytes");
    Ok(FILES as f64)
}

/// Does what git status does: looks at every known name in order, and lists for unknown ones.
fn status(top: &Path) -> Result<f64> {
    let mut directory = PathBuf::new();
    for name in tree_names() {
        let path = top.join(name);
        if path.parent().is_some_and(|parent| parent != directory) {
            directory = path.parent().map(Path::to_owned).unwrap_or_default();
            ensure!(!directory.join(".gitignore").exists(), "unexpected .gitignore");
        }
        ensure!(fs::symlink_metadata(&path)?.len() == 9, "{} has a wrong size", path.display());
    }
    Ok(FILES as f64)
}

fn made(top: &Path) -> impl Iterator<Item = PathBuf> {
    let top = top.to_owned();
    (0..MADE_FILES).map(move |at| {
        top.join(format!("made-{:02}/small-{at:05}.bin", at * MADE_DIRECTORIES / MADE_FILES))
    })
}

fn create(top: &Path) -> Result<f64> {
    for at in 0..MADE_DIRECTORIES {
        fs::create_dir(top.join(format!("made-{at:02}")))?;
    }
    let content = [9; SMALL];
    for path in made(top) {
        fs::write(path, content)?;
    }
    Ok(MADE_FILES as f64)
}

fn delete(top: &Path) -> Result<f64> {
    for path in made(top) {
        fs::remove_file(path)?;
    }
    for at in 0..MADE_DIRECTORIES {
        fs::remove_dir(top.join(format!("made-{at:02}")))?;
    }
    Ok(MADE_FILES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_can_be_done_in_a_folder_and_notices_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), 2).unwrap();
        for work in Work::ALL {
            let done = work.run(folder.path(), 2).unwrap();
            assert!(done.count > 0.0 && done.seconds > 0.0, "{}", work.name());
        }
        fs::write(folder.path().join(TREE).join("folder-000/more"), b"").unwrap();
        Work::List.run(folder.path(), 2).unwrap_err();
        fs::write(folder.path().join(BIG), vec![0; 2 << 20]).unwrap();
        Work::Read.run(folder.path(), 2).unwrap_err();
    }
}
