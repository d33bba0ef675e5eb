//! The acts on a file in which a virus was found.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, FileKey, Name, Node, Vfs};

use super::FoundAct;
use crate::base::limits::{QUARANTINE_BYTES, QUARANTINE_FILES};

/// Attempts at a name that is not taken.
const NAMES: u32 = 100;
/// Bytes that are copied at once.
const BLOCK_BYTES: usize = 64 << 10;

/// The place of a file in which a virus was found.
pub(super) struct InfectedFile<'a> {
    /// The files of the share as the server's own user sees them.
    pub(super) files: &'a Arc<dyn Vfs>,
    pub(super) name: &'a Name,
    pub(super) key: FileKey,
    pub(super) node: &'a dyn Node,
}

/// The fate of the file, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// `denied`, `quarantined`, `renamed`, or `failed`.
    pub(super) action: &'static str,
    /// Where it went, or why it did not.
    pub(super) to: Option<String>,
}

/// Carries out the act of a share.
pub(super) fn carry_out(act: &FoundAct, place: &InfectedFile<'_>) -> Fate {
    let denied = Fate { action: "denied", to: None };
    if place.name.stream().is_some() {
        // The stream of a file has no name of its own.
        return denied;
    }
    let done = match act {
        FoundAct::Deny => return denied,
        FoundAct::Quarantine(folder) => quarantine(folder, place).map(|to| ("quarantined", to)),
        FoundAct::Rename(suffix) if place.name.last().ends_with(&**suffix) => return denied,
        FoundAct::Rename(suffix) => rename(suffix, place).map(|to| ("renamed", to)),
    };
    match done {
        Ok((action, to)) => Fate { action, to: Some(to) },
        Err(why) => Fate { action: "failed", to: Some(why) },
    }
}

fn rename(suffix: &str, place: &InfectedFile<'_>) -> Result<String, String> {
    for number in 0..NAMES {
        let number = if number == 0 { String::new() } else { format!(".{number}") };
        let last = format!("{}{number}{suffix}", place.name.last());
        let to = place.name.parent().child(&last);
        match place.files.rename(place.name, place.key, &to, false) {
            Ok(to) => return Ok(to.path().replace('\\', "/")),
            Err(Fault::Exists) => {}
            Err(fault) => return Err(fault.to_string()),
        }
    }
    Err(Fault::Exists.to_string())
}

/// Copies the file into the folder, which may be on another file system, and removes it from the share.
fn quarantine(folder: &Path, place: &InfectedFile<'_>) -> Result<String, String> {
    if is_full(folder).map_err(|error| error.to_string())? {
        return Err(format!("the folder {} is full", folder.display()));
    }
    let (path, file) = new_file(folder, place).map_err(|error| error.to_string())?;
    let copied = copy(place.node, file).map_err(|error| error.to_string());
    let removed = copied.and_then(|()| {
        place.files.remove(place.name, place.key).map_err(|fault| fault.to_string())
    });
    match removed {
        Ok(()) => Ok(path.display().to_string()),
        Err(why) => {
            let _ = std::fs::remove_file(&path);
            Err(why)
        }
    }
}

/// True if a folder has as many files or bytes as a quarantine may have.
fn is_full(folder: &Path) -> io::Result<bool> {
    let (mut files, mut bytes) = (0_usize, 0_u64);
    for entry in std::fs::read_dir(folder)? {
        // One that has gone meanwhile counts no more.
        bytes = bytes.saturating_add(entry?.metadata().map_or(0, |there| there.len()));
        files += 1;
        if files >= QUARANTINE_FILES || bytes >= QUARANTINE_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes a file that nobody but the server's user can read, with the inode's number and a part of the name.
fn new_file(folder: &Path, place: &InfectedFile<'_>) -> io::Result<(PathBuf, std::fs::File)> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let last: String = place.name.last().chars().map(plain).take(64).collect();
    for number in 0..NAMES {
        let path = folder.join(format!("{:x}-{number}-{last}", place.key.inode));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (path, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn copy(node: &dyn Node, mut to: std::fs::File) -> io::Result<()> {
    let (mut block, mut at) = (vec![0; BLOCK_BYTES], 0_u64);
    loop {
        let read: VfsResult<usize> = node.read_at(at, &mut block);
        let read = read.map_err(|fault| io::Error::other(fault.to_string()))?;
        if read == 0 {
            return to.sync_all();
        }
        to.write_all(block.get(..read).unwrap_or_default())?;
        at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
}
