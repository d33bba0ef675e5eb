//! The keys of this node's registrations, on its own disk.
//!
//! A process that starts learns from them that a disk refuses this node: its key is there no longer, and the
//! file system has pages of that time still. A change is one line more at the end of the file, which a loss of
//! power leaves whole or without its end.
//!
//! The server, which is confined and may be an attacker's, writes the folder of the file too. So no link there
//! is followed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Registered;
use crate::fault::FenceFault;
use crate::host::{Boot, Life};
use crate::keys_file::KeysFile;
use crate::limits::KEYS_FILE_BYTES;

/// The first byte of a file that is written anew in its place: no line begins with it.
const UNFINISHED: &[u8] = b"!";
/// Words for the state of a registration.
const REGISTERED: &str = "registered";
const JOINING: &str = "joining";

/// The file, open since before the confinement.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    /// The names of the cluster and of this node.
    owner: String,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    kept: Kept,
}

/// The last line of each disk.
#[derive(Debug, Default)]
struct Kept {
    /// Those of this node, by the names of the disks.
    own: BTreeMap<String, Registered>,
    /// Those of nodes with other names, which stay for them.
    others: BTreeMap<String, BTreeMap<String, Registered>>,
}

/// A line of the file.
struct Line {
    owner: String,
    disk: String,
    registered: Registered,
}

impl Record {
    /// Opens the file, and makes it if there is none.
    pub(super) fn open(keys: &KeysFile) -> Result<Self, FenceFault> {
        let KeysFile { path, owner } = keys.clone();
        let kept = match read(&path)? {
            Some(text) => Kept::parse(&text, &owner).ok_or_else(|| damaged(&path))?,
            None => Kept::default(),
        };
        let text = kept.to_text(&owner);
        let file = replace(&path, &text).map_err(|error| FenceFault::of(path.display(), error))?;
        Ok(Self { path, owner, file, length: bytes(&text), kept })
    }

    /// The registrations of this node by the process before.
    pub(super) const fn kept(&self) -> &BTreeMap<String, Registered> {
        &self.kept.own
    }

    /// A sentence for each other name of a node in the file.
    pub(super) fn warnings(&self) -> Vec<String> {
        let sentence = |name: &String| {
            format!(
                "{} has registrations with disks of another cluster and node, {name:?}, which this one \
                 ({:?}) does not use; if this node had that name before, unmount its file systems with \
                 `fence = \"scsi-pr\"` and mount them again before it starts",
                self.path.display(),
                self.owner
            )
        };
        self.kept.others.keys().map(sentence).collect()
    }

    /// Keeps a registration. It is on the disk when this returns.
    pub(super) fn keep(&mut self, disk: &str, own: &Registered) -> Result<(), FenceFault> {
        if self.kept.own.get(disk) == Some(own) {
            return Ok(());
        }
        let before = self.kept.own.insert(disk.to_owned(), own.clone());
        let line = line(&self.owner, disk, own);
        let is_full = self.length.saturating_add(bytes(&line)) > KEYS_FILE_BYTES;
        let kept = if is_full { self.write_anew() } else { self.append(&line) };
        kept.map_err(|error| {
            match before {
                Some(before) => self.kept.own.insert(disk.to_owned(), before),
                None => self.kept.own.remove(disk),
            };
            FenceFault::of(self.path.display(), error)
        })
    }

    /// Writes a line after the whole ones: an attempt that failed may have left a part of one there.
    fn append(&mut self, line: &str) -> std::io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.write_all_at(line.as_bytes(), self.length)?;
        self.file.sync_data()?;
        self.length = self.length.saturating_add(bytes(line));
        Ok(())
    }

    /// Writes one line for each disk, in place: the process is confined, and makes no files. A file whose
    /// writing was not ended counts as damaged.
    fn write_anew(&mut self) -> std::io::Result<()> {
        let text = self.kept.to_text(&self.owner);
        if bytes(&text) > KEYS_FILE_BYTES {
            return Err(std::io::Error::other("it has registrations with too many disks"));
        }
        let (first, rest) = text.as_bytes().split_at_checked(1).unwrap_or_default();
        self.file.write_all_at(UNFINISHED, 0)?;
        self.file.sync_data()?;
        // If this fails, the next change writes all lines again.
        self.length = KEYS_FILE_BYTES;
        self.file.set_len(bytes(&text))?;
        self.file.write_all_at(rest, 1)?;
        self.file.sync_data()?;
        self.file.write_all_at(first, 0)?;
        self.file.sync_data()?;
        self.length = bytes(&text);
        Ok(())
    }
}

impl Kept {
    /// Reads the lines. An end without a line feed was never kept. None for another text.
    fn parse(text: &str, owner: &str) -> Option<Self> {
        let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
        let mut kept = Self::default();
        for line in whole.lines() {
            let line = parse_line(line)?;
            let disks = match line.owner == owner {
                true => &mut kept.own,
                false => kept.others.entry(line.owner).or_default(),
            };
            disks.insert(line.disk, line.registered);
        }
        Some(kept)
    }

    fn to_text(&self, owner: &str) -> String {
        let own = self.own.iter().map(|(disk, own)| line(owner, disk, own));
        let others = self.others.iter().flat_map(|(owner, disks)| {
            disks.iter().map(move |(disk, registered)| line(owner, disk, registered))
        });
        own.chain(others).collect()
    }
}

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// Reads the file. None if there is none. One of another type, or a link, counts as damaged.
fn read(path: &Path) -> Result<Option<String>, FenceFault> {
    let failed = |error| FenceFault::of(path.display(), error);
    // A pipe would hold up the open.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(damaged(path)),
        Err(errno) => return Err(failed(errno.into())),
    };
    let there = file.metadata().map_err(failed)?;
    if !there.is_file() || there.len() > KEYS_FILE_BYTES {
        return Err(damaged(path));
    }
    let mut text = String::new();
    file.take(KEYS_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// Writes the file anew. Returns it for more lines.
fn replace(path: &Path, text: &str) -> std::io::Result<File> {
    let new = path.with_extension("new");
    // A start that was killed may have left a file of this name.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(0o600).open(&new)?;
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
        "{} is damaged or of another version, so it is not known whether a disk refuses this node; unmount \
         the file systems with `fence = \"scsi-pr\"`, remove that file, mount them again, and start frevo",
        path.display()
    ))
}

/// `KEY STATE BOOT DEVICE TYPE FOLDER CLUSTER NODE DISK`
fn line(owner: &str, disk: &str, own: &Registered) -> String {
    let Registered { key, life, is_joining } = own;
    let Life { boot, device, kind, folder } = life;
    let state = if *is_joining { JOINING } else { REGISTERED };
    format!("{key:016x} {state} {} {device} {kind} {folder} {owner} {disk}\n", boot.0)
}

fn parse_line(line: &str) -> Option<Line> {
    let mut words = line.splitn(9, ' ');
    let mut word = || words.next();
    let key = u64::from_str_radix(word()?, 16).ok()?;
    let is_joining = match word()? {
        REGISTERED => false,
        JOINING => true,
        _ => return None,
    };
    let boot = Boot::parse(word()?)?;
    let (device, kind) = (word()?.parse().ok()?, word()?.to_owned());
    let folder = word()?.parse().ok()?;
    let owner = format!("{} {}", word()?, word()?);
    let life = Life { boot, device, kind, folder };
    Some(Line { owner, disk: word()?.to_owned(), registered: Registered { key, life, is_joining } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: [&str; 2] = ["/dev/disk/by-id/wwn-0x1", "/dev/disk/by-id/wwn-0x2"];

    fn registered(key: u64) -> Registered {
        let boot = Boot("119afa99-d96f-4299-a6f5-3f50e2b0fb57".into());
        let device = "8:17".parse().unwrap();
        let life = Life { boot, device, kind: "gfs2".into(), folder: 305_863 };
        Registered { key, life, is_joining: key == 9 }
    }

    fn file(folder: &Path) -> KeysFile {
        KeysFile { path: folder.join("cluster.keys"), owner: "nas n1".into() }
    }

    #[test]
    fn the_next_process_knows_the_keys_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let keys = file(folder.path());
        let path = &keys.path;
        let mut record = Record::open(&keys).unwrap();
        assert!(record.kept().is_empty());
        for key in [7, 8, 8] {
            record.keep(DISKS[0], &registered(key)).unwrap();
        }
        record.keep(DISKS[1], &registered(9)).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 3);
        // The power goes in the middle of a line.
        let torn = [std::fs::read(path).unwrap(), b"00000000000000".to_vec()].concat();
        std::fs::write(path, torn).unwrap();
        for _ in 0..2 {
            let record = Record::open(&keys).unwrap();
            assert_eq!(record.kept().get(DISKS[0]), Some(&registered(8)));
            assert_eq!(record.kept().get(DISKS[1]), Some(&registered(9)));
            assert!(record.warnings().is_empty());
        }
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
    }

    /// A state directory that was copied has the keys of its original.
    #[test]
    fn keys_of_another_node_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let keys = file(folder.path());
        Record::open(&keys).unwrap().keep(DISKS[0], &registered(7)).unwrap();
        for owner in ["nas n2", "nas2 n1"] {
            let mut record =
                Record::open(&KeysFile { owner: owner.into(), ..keys.clone() }).unwrap();
            assert!(record.kept().is_empty(), "{owner}");
            let warnings = record.warnings();
            assert!(warnings[0].contains("\"nas n1\""), "{warnings:?}");
            record.keep(DISKS[0], &registered(8)).unwrap();
        }
        let record = Record::open(&keys).unwrap();
        assert_eq!(record.kept().get(DISKS[0]), Some(&registered(7)), "they stay for that node");
        assert_eq!(record.warnings().len(), 2);
    }

    #[test]
    fn the_file_does_not_grow() {
        let folder = tempfile::tempdir().unwrap();
        let keys = file(folder.path());
        let mut record = Record::open(&keys).unwrap();
        record.keep(DISKS[1], &registered(9)).unwrap();
        let length = || std::fs::metadata(&keys.path).unwrap().len();
        let mut was_short_again = false;
        for key in 10..1_000 {
            let before = length();
            record.keep(DISKS[0], &registered(key)).unwrap();
            assert!(length() <= KEYS_FILE_BYTES);
            if length() < before {
                was_short_again = true;
                let kept = Record::open(&keys).unwrap();
                assert_eq!(kept.kept().get(DISKS[0]), Some(&registered(key)));
                assert_eq!(kept.kept().get(DISKS[1]), Some(&registered(9)));
                break;
            }
        }
        assert!(was_short_again);
        let mut record = Record::open(&keys).unwrap();
        let long = "d".repeat(usize::try_from(KEYS_FILE_BYTES).unwrap());
        assert!(record.keep(&long, &registered(7)).unwrap_err().0.contains("too many disks"));
        assert_eq!(record.kept().len(), 2);
        record.keep(DISKS[0], &registered(7)).unwrap();
        assert_eq!(Record::open(&keys).unwrap().kept().get(DISKS[0]), Some(&registered(7)));
    }

    #[test]
    fn a_damaged_file_is_no_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let keys = file(folder.path());
        Record::open(&keys).unwrap().keep(DISKS[0], &registered(7)).unwrap();
        let mut unfinished = std::fs::read_to_string(&keys.path).unwrap();
        unfinished.replace_range(..1, "!");
        let long = "\n".repeat(usize::try_from(KEYS_FILE_BYTES).unwrap() + 1);
        for text in ["nonsense\n", "07 119afa99 1 disk\n", "\n", &unfinished, &long] {
            std::fs::write(&keys.path, text).unwrap();
            let fault = Record::open(&keys).unwrap_err().to_string();
            assert!(fault.contains("is damaged") && fault.contains("remove that file"), "{fault}");
            assert_eq!(std::fs::read_to_string(&keys.path).unwrap(), text, "it stays for people");
        }
    }

    /// The server writes the folder, and has links to files of root there.
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let keys = file(folder.path());
        let [other, made] = ["other", "made"].map(|name| folder.path().join(name));
        std::fs::write(&other, "precious").unwrap();
        let new = keys.path.with_extension("new");
        for target in [&other, &made] {
            std::os::unix::fs::symlink(target, &new).unwrap();
            Record::open(&keys).unwrap();
            std::fs::remove_file(&keys.path).unwrap();
            std::os::unix::fs::symlink(target, &keys.path).unwrap();
            let fault = Record::open(&keys).unwrap_err().to_string();
            assert!(fault.contains("is damaged"), "{fault}");
            std::fs::remove_file(&keys.path).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
        assert!(!made.exists());
        let pipe = rustix::fs::FileType::Fifo;
        let place = rustix::fs::CWD;
        rustix::fs::mknodat(place, &keys.path, pipe, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(Record::open(&keys).unwrap_err().to_string().contains("is damaged"));
    }
}
