//! The keys of this node's registrations, on its own disk.
//!
//! A process that starts learns from them that a disk refuses this node: its key is there no longer, and the
//! file system has pages of that time still. A change is one line more at the end of the file, which a loss of
//! power leaves whole or without its end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::Registered;
use crate::fault::FenceFault;
use crate::host::{Boot, Life};
use crate::limits::TEXT_BYTES;

/// The file, open since before the confinement.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    kept: BTreeMap<String, Registered>,
}

impl Record {
    /// Opens the file at `path`, and makes it if there is none.
    pub(super) fn open(path: &Path) -> Result<Self, FenceFault> {
        let failed = |error| FenceFault::of(path.display(), error);
        let kept = match File::open(path) {
            Ok(file) => {
                let mut text = String::new();
                file.take(TEXT_BYTES).read_to_string(&mut text).map_err(failed)?;
                parse(&text).ok_or_else(|| damaged(path))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed(error)),
        };
        let file = replace(path, &kept).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(Self { path: path.to_owned(), file, length, kept })
    }

    /// The registrations of the process before.
    pub(super) const fn kept(&self) -> &BTreeMap<String, Registered> {
        &self.kept
    }

    /// Keeps a registration. It is on the disk when this returns.
    pub(super) fn keep(&mut self, disk: &str, own: &Registered) -> Result<(), FenceFault> {
        if self.kept.get(disk) == Some(own) {
            return Ok(());
        }
        self.append(&line(disk, own))
            .map_err(|error| FenceFault::of(self.path.display(), error))?;
        self.kept.insert(disk.to_owned(), own.clone());
        Ok(())
    }

    /// Writes a line after the whole ones: an attempt that failed may have left a part of one there.
    fn append(&mut self, line: &str) -> std::io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.write_all_at(line.as_bytes(), self.length)?;
        self.file.sync_data()?;
        self.length = self.length.saturating_add(u64::try_from(line.len()).unwrap_or_default());
        Ok(())
    }
}

/// Writes the file anew, with one line for each disk. Returns it for more lines.
fn replace(path: &Path, kept: &BTreeMap<String, Registered>) -> std::io::Result<File> {
    let new = path.with_extension("new");
    let text: String = kept.iter().map(|(disk, own)| line(disk, own)).collect();
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

fn damaged(path: &Path) -> FenceFault {
    FenceFault(format!(
        "{} is damaged, so it is not known whether a disk refuses this node; unmount the file systems \
         with `fence = \"scsi-pr\"`, remove that file, mount them again, and start frevo",
        path.display()
    ))
}

/// `KEY BOOT FOLDER DISK`
fn line(disk: &str, own: &Registered) -> String {
    let Registered { key, life } = own;
    format!("{key:016x} {} {} {disk}\n", life.boot.0, life.folder)
}

/// The last line of each disk. An end without a line feed was never kept. None for another text.
fn parse(text: &str) -> Option<BTreeMap<String, Registered>> {
    let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
    whole.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(String, Registered)> {
    let mut words = line.splitn(4, ' ');
    let key = u64::from_str_radix(words.next()?, 16).ok()?;
    let boot = Boot::parse(words.next()?)?;
    let folder = words.next()?.parse().ok()?;
    Some((words.next()?.to_owned(), Registered { key, life: Life { boot, folder } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(key: u64) -> Registered {
        let boot = Boot("119afa99-d96f-4299-a6f5-3f50e2b0fb57".into());
        Registered { key, life: Life { boot, folder: 305_863 } }
    }

    #[test]
    fn the_next_process_knows_the_keys_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.keys");
        let mut record = Record::open(&path).unwrap();
        assert!(record.kept().is_empty());
        for key in [7, 8, 8] {
            record.keep("/dev/disk/by-id/wwn-0x1", &registered(key)).unwrap();
        }
        record.keep("/dev/disk/by-id/wwn-0x2", &registered(9)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        // The power goes in the middle of a line.
        let torn = [std::fs::read(&path).unwrap(), b"00000000000000".to_vec()].concat();
        std::fs::write(&path, torn).unwrap();
        for _ in 0..2 {
            let record = Record::open(&path).unwrap();
            assert_eq!(record.kept().get("/dev/disk/by-id/wwn-0x1"), Some(&registered(8)));
            assert_eq!(record.kept().get("/dev/disk/by-id/wwn-0x2"), Some(&registered(9)));
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_damaged_file_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.keys");
        for text in ["nonsense\n", "07 119afa99 1 disk\n", "\n"] {
            std::fs::write(&path, text).unwrap();
            let fault = Record::open(&path).unwrap_err().to_string();
            assert!(fault.contains("is damaged") && fault.contains("remove that file"), "{fault}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it stays for people");
        }
    }
}
