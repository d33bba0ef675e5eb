//! The checks on the mount.

use crate::check::{Check, Outcome, ensure};
use crate::left::{self, content};
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The checks in their order; each uses a directory or a name of its own.
pub(crate) const ALL: &[Check] = &[
    ("write-read-back", write_read_back),
    ("large-file", large_file),
    ("odd-offsets", odd_offsets),
    ("append", append),
    ("truncate-and-extend", truncate_and_extend),
    ("hole", hole),
    ("create-modes", create_modes),
    ("rename-file", rename_file),
    ("rename-over", rename_over),
    ("rename-directory", rename_directory),
    ("unlink", unlink),
    ("unlink-open", unlink_open),
    ("directories", directories),
    ("read-many-entries", read_many_entries),
    ("deep-path", deep_path),
    ("times", times),
    ("read-only-mode", read_only_mode),
    ("hard-link", hard_link),
    ("hard-link-both-names", hard_link_both_names),
    ("locks", locks),
    ("names", names),
    ("case", case),
    ("errors", errors),
    ("many-open-files", many_open_files),
    ("left-tree", left::make),
];

/// Makes a fresh directory for one check.
fn room(dir: &Path, name: &str) -> Result<PathBuf, std::io::Error> {
    let room = dir.join(name);
    fs::create_dir(&room)?;
    Ok(room)
}

fn listed(dir: &Path) -> Result<BTreeSet<String>, std::io::Error> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn kind<T>(outcome: std::io::Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

fn write_read_back(dir: &Path) -> Outcome {
    let room = room(dir, "sizes")?;
    for size in [0, 1, 4095, 4096, 4097, 16_384, 65_535, 65_536, 65_537, 1_048_577] {
        let path = room.join(format!("of {size}"));
        let bytes = content(size as u64, size);
        fs::write(&path, &bytes)?;
        ensure!(fs::metadata(&path)?.len() == size as u64, "size {size}: stat tells another");
        ensure!(fs::read(&path)? == bytes, "size {size}: other bytes came back");
    }
    Ok(())
}

fn large_file(dir: &Path) -> Outcome {
    const BLOCKS: u64 = 24;
    const BLOCK: usize = 1 << 20;
    let path = dir.join("large");
    let mut file = File::create(&path)?;
    for block in 0..BLOCKS {
        file.write_all(&content(block, BLOCK))?;
    }
    file.sync_all()?;
    drop(file);
    let file = File::open(&path)?;
    ensure!(
        file.metadata()?.len() == BLOCKS * BLOCK as u64,
        "stat tells {}",
        file.metadata()?.len()
    );
    let mut bytes = vec![0; BLOCK];
    // The blocks are read backwards, so that read-ahead has no data for the next read.
    for block in (0..BLOCKS).rev() {
        file.read_exact_at(&mut bytes, block * BLOCK as u64)?;
        ensure!(bytes == content(block, BLOCK), "block {block} differs");
    }
    fs::remove_file(&path)?;
    Ok(())
}

fn odd_offsets(dir: &Path) -> Outcome {
    let path = dir.join("offsets");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let mut model = vec![0; 300_000];
    for (turn, at) in [0, 1, 4095, 65_530, 131_072, 199_999, 77, 65_536].into_iter().enumerate() {
        let bytes = content(turn as u64 + 50, 10_007);
        file.write_all_at(&bytes, at as u64)?;
        model[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    model.truncate(199_999 + 10_007);
    file.sync_data()?;
    ensure!(fs::read(&path)? == model, "the file is not what was written to it");
    Ok(())
}

fn append(dir: &Path) -> Outcome {
    let path = dir.join("appended");
    let mut model = Vec::new();
    for turn in 0..20 {
        let bytes = content(turn, 1000 + turn as usize);
        OpenOptions::new().append(true).create(true).open(&path)?.write_all(&bytes)?;
        model.extend_from_slice(&bytes);
    }
    ensure!(fs::read(&path)? == model, "the appended parts are not in order");
    Ok(())
}

fn truncate_and_extend(dir: &Path) -> Outcome {
    let path = dir.join("truncated");
    let bytes = content(7, 100_000);
    fs::write(&path, &bytes)?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    for (size, kept) in [(65_537, 65_537), (3, 3), (50_000, 3), (0, 0), (10, 0)] {
        file.set_len(size as u64)?;
        let there = fs::read(&path)?;
        ensure!(there.len() == size, "asked for {size} bytes, found {}", there.len());
        ensure!(there[..kept] == bytes[..kept], "to {size}: the start is lost");
        ensure!(there[kept..].iter().all(|b| *b == 0), "to {size}: the new part is not zero");
    }
    let file = OpenOptions::new().write(true).truncate(true).open(&path)?;
    ensure!(file.metadata()?.len() == 0, "O_TRUNC left {} bytes", file.metadata()?.len());
    Ok(())
}

fn hole(dir: &Path) -> Outcome {
    const FAR: u64 = 5 * (1 << 30) + 11; // above 4 GiB: offsets are 64 bits wide
    let path = dir.join("hole");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    file.write_all(b"head")?;
    file.seek(SeekFrom::Start(FAR))?;
    file.write_all(b"tail")?;
    file.sync_all()?;
    ensure!(fs::metadata(&path)?.len() == FAR + 4, "stat tells {}", fs::metadata(&path)?.len());
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, FAR - 4)?;
    ensure!(&bytes == b"\0\0\0\0tail", "at the end {bytes:?}");
    file.read_exact_at(&mut bytes, 0)?;
    ensure!(&bytes == b"head\0\0\0\0", "at the start {bytes:?}");
    drop(file);
    fs::remove_file(&path)?;
    Ok(())
}

fn create_modes(dir: &Path) -> Outcome {
    let path = dir.join("created");
    drop(OpenOptions::new().write(true).create_new(true).open(&path)?);
    let again = kind(OpenOptions::new().write(true).create_new(true).open(&path));
    ensure!(again == Some(ErrorKind::AlreadyExists), "O_EXCL on what exists gave {again:?}");
    let missing = kind(OpenOptions::new().write(true).open(dir.join("never made")));
    ensure!(missing == Some(ErrorKind::NotFound), "open of nothing gave {missing:?}");
    let mut file = OpenOptions::new().write(true).open(&path)?;
    file.write_all(b"12345")?;
    drop(file);
    ensure!(fs::read(&path)? == b"12345", "a reopened file lost its bytes");
    Ok(())
}

fn rename_file(dir: &Path) -> Outcome {
    let room = room(dir, "rename")?;
    let (from, to) = (room.join("from"), room.join("to"));
    fs::write(&from, content(1, 30_000))?;
    fs::rename(&from, &to)?;
    ensure!(listed(&room)? == BTreeSet::from(["to".into()]), "listed {:?}", listed(&room)?);
    ensure!(fs::read(&to)? == content(1, 30_000), "other bytes under the new name");
    fs::create_dir(room.join("sub"))?;
    fs::rename(&to, room.join("sub/deep"))?;
    ensure!(fs::read(room.join("sub/deep"))? == content(1, 30_000), "other bytes in the directory");
    ensure!(!to.exists(), "the old name is still there");
    Ok(())
}

fn rename_over(dir: &Path) -> Outcome {
    let room = room(dir, "over")?;
    let (from, to) = (room.join("from"), room.join("to"));
    fs::write(&from, b"new")?;
    fs::write(&to, b"old and longer")?;
    fs::rename(&from, &to)?;
    ensure!(fs::read(&to)? == b"new" && !from.exists(), "the target was not replaced");
    Ok(())
}

fn rename_directory(dir: &Path) -> Outcome {
    let room = room(dir, "moving")?;
    fs::create_dir_all(room.join("a/b/c"))?;
    fs::write(room.join("a/b/c/file"), b"inside")?;
    fs::rename(room.join("a/b"), room.join("moved"))?;
    ensure!(fs::read(room.join("moved/c/file"))? == b"inside", "the content did not move along");
    ensure!(listed(&room.join("a"))?.is_empty(), "the old directory is not empty");
    Ok(())
}

fn unlink(dir: &Path) -> Outcome {
    let path = dir.join("unlinked");
    for turn in 0..3 {
        fs::write(&path, content(turn, 9_999))?;
        fs::remove_file(&path)?;
        ensure!(!path.exists(), "the name is still there");
        let again = kind(fs::remove_file(&path));
        ensure!(again == Some(ErrorKind::NotFound), "removed again: {again:?}");
    }
    Ok(())
}

/// POSIX keeps the file readable and frees the name; SMB keeps the name until the last close.
fn unlink_open(dir: &Path) -> Outcome {
    let path = dir.join("unlinked while open");
    fs::write(&path, content(3, 9_999))?;
    let mut file = File::open(&path)?;
    fs::remove_file(&path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    ensure!(bytes == content(3, 9_999), "the open file lost its bytes");
    drop(file);
    ensure!(!path.exists(), "closed, and the name is still there");
    fs::write(&path, b"again")?;
    fs::remove_file(&path)?;
    Ok(())
}

fn directories(dir: &Path) -> Outcome {
    let room = room(dir, "directories")?;
    fs::create_dir(room.join("one"))?;
    ensure!(kind(fs::create_dir(room.join("one"))) == Some(ErrorKind::AlreadyExists), "made twice");
    fs::write(room.join("one/file"), b"x")?;
    let full = kind(fs::remove_dir(room.join("one")));
    ensure!(full == Some(ErrorKind::DirectoryNotEmpty), "rmdir of a full directory gave {full:?}");
    fs::remove_file(room.join("one/file"))?;
    fs::remove_dir(room.join("one"))?;
    ensure!(listed(&room)?.is_empty(), "listed {:?}", listed(&room)?);
    Ok(())
}

fn read_many_entries(dir: &Path) -> Outcome {
    let room = room(dir, "many")?;
    let wanted: BTreeSet<String> =
        (0..1500).map(|i| format!("entry {i:05} of some length")).collect();
    for name in &wanted {
        File::create(room.join(name))?;
    }
    let found: Vec<String> = fs::read_dir(&room)?
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    ensure!(found.len() == wanted.len(), "{} entries, not {}", found.len(), wanted.len());
    ensure!(found.into_iter().collect::<BTreeSet<_>>() == wanted, "other names");
    for name in wanted.iter().step_by(2) {
        fs::remove_file(room.join(name))?;
    }
    ensure!(listed(&room)?.len() == 750, "{} left of 750", listed(&room)?.len());
    Ok(())
}

fn deep_path(dir: &Path) -> Outcome {
    let mut path = room(dir, "deep")?;
    for depth in 0..24 {
        path.push(format!("level {depth} {}", "x".repeat(20)));
        fs::create_dir(&path)?;
    }
    path.push("bottom");
    fs::write(&path, b"found")?;
    ensure!(fs::read(&path)? == b"found", "other bytes at the bottom");
    fs::remove_dir_all(dir.join("deep"))?;
    ensure!(!dir.join("deep").exists(), "the tree is still there");
    Ok(())
}

fn times(dir: &Path) -> Outcome {
    let path = dir.join("times");
    fs::write(&path, b"x")?;
    for (seconds, nanoseconds) in
        [(1_234_567_890, 123_456_700), (315_532_800, 0), (4_102_444_800, 999_999_900)]
    {
        let stamp = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        File::options()
            .write(true)
            .open(&path)?
            .set_times(FileTimes::new().set_modified(stamp).set_accessed(stamp))?;
        let there = fs::metadata(&path)?.modified()?;
        ensure!(there == stamp, "set {stamp:?}, found {there:?}");
    }
    fs::write(&path, b"changed")?;
    let age = SystemTime::now().duration_since(fs::metadata(&path)?.modified()?);
    ensure!(
        age.as_ref().map_or(true, |a| a.as_secs() < 60),
        "after a write the time is {age:?} old"
    );
    Ok(())
}

fn read_only_mode(dir: &Path) -> Outcome {
    let path = dir.join("read only");
    fs::write(&path, b"kept")?;
    let mut permissions = fs::metadata(&path)?.permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions)?;
    ensure!(fs::metadata(&path)?.permissions().readonly(), "the write bits are still there");
    // While cifs.ko 6.1 has old attributes cached it sends no SET_INFO, so the change may take
    // several attempts.
    for _ in 0..8 {
        fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        if fs::write(&path, b"changed").is_ok() {
            ensure!(fs::read(&path)? == b"changed", "other bytes");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(400));
    }
    Err("not writable again".into())
}

fn hard_link(dir: &Path) -> Outcome {
    let (one, two) = (dir.join("link one"), dir.join("link two"));
    fs::write(&one, b"shared")?;
    fs::hard_link(&one, &two)?;
    fs::remove_file(&one)?;
    ensure!(fs::read(&two)? == b"shared", "the second name died with the first");
    ensure!(fs::metadata(&two)?.nlink() == 1, "nlink is {}", fs::metadata(&two)?.nlink());
    Ok(())
}

fn hard_link_both_names(dir: &Path) -> Outcome {
    let (one, two) = (dir.join("name one"), dir.join("name two"));
    fs::write(&one, b"shared")?;
    fs::hard_link(&one, &two)?;
    ensure!(fs::read(&two)? == b"shared" && fs::read(&one)? == b"shared", "other bytes");
    Ok(())
}

/// POSIX locks between two processes: the client treats the locks of one process as one owner's.
fn locks(dir: &Path) -> Outcome {
    let path = dir.join("locked");
    fs::write(&path, b"x")?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    for (held, asked, wanted) in [
        ("lock", "lock", false),
        ("lock", "share", false),
        ("share", "share", true),
        ("share", "lock", false),
    ] {
        match held {
            "lock" => file.lock()?,
            _ => file.lock_shared()?,
        }
        let granted = try_lock_elsewhere(&path, asked)?;
        file.unlock()?;
        ensure!(granted == wanted, "{asked} under a held {held}: granted is {granted}");
    }
    ensure!(try_lock_elsewhere(&path, "lock")?, "the lock outlives its release");
    Ok(())
}

fn try_lock_elsewhere(path: &Path, verb: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let status = Command::new(std::env::current_exe()?).arg(verb).arg(path).arg("-").status()?;
    match status.code() {
        Some(0) => Ok(true),
        Some(WOULD_BLOCK) => Ok(false),
        other => Err(format!("the other process ended with {other:?}").into()),
    }
}

/// Runs in the second process: takes the lock, or reports that it would block.
pub(crate) fn try_lock(path: &Path, exclusive: bool) -> std::io::Result<u8> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    match if exclusive { file.try_lock() } else { file.try_lock_shared() } {
        Ok(()) => Ok(0),
        Err(TryLockError::WouldBlock) => Ok(WOULD_BLOCK as u8),
        // STATUS_LOCK_NOT_GRANTED becomes this error in cifs.ko, so it also means that the lock is
        // taken.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::PermissionDenied => {
            Ok(WOULD_BLOCK as u8)
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

const WOULD_BLOCK: i32 = 9;

fn names(dir: &Path) -> Outcome {
    let room = room(dir, "names")?;
    for (index, name) in left::names().iter().enumerate() {
        fs::write(room.join(name), content(index as u64, 100))?;
    }
    ensure!(listed(&room)? == left::names().into_iter().collect(), "listed {:?}", listed(&room)?);
    for (index, name) in left::names().iter().enumerate() {
        ensure!(fs::read(room.join(name))? == content(index as u64, 100), "{name:?}: other bytes");
        fs::rename(room.join(name), room.join("in between"))?;
        fs::rename(room.join("in between"), room.join(name))?;
    }
    let long = kind(File::create(room.join("n".repeat(256))));
    ensure!(long == Some(ErrorKind::InvalidFilename), "a name of 256 bytes gave {long:?}");
    Ok(())
}

fn case(dir: &Path) -> Outcome {
    let room = room(dir, "case")?;
    fs::write(room.join("Read Me ÄÖ.txt"), b"kept")?;
    ensure!(fs::read(room.join("READ ME äö.TXT"))? == b"kept", "the case of a name matters");
    ensure!(
        listed(&room)? == BTreeSet::from(["Read Me ÄÖ.txt".into()]),
        "listed {:?}",
        listed(&room)?
    );
    // For the Linux client the same name in another case is the same file, so the rename takes two
    // steps.
    fs::rename(room.join("Read Me ÄÖ.txt"), room.join("in between"))?;
    fs::rename(room.join("in between"), room.join("READ me äÖ.txt"))?;
    let wanted = BTreeSet::from(["READ me äÖ.txt".into()]);
    ensure!(listed(&room)? == wanted, "after a change of case {:?}", listed(&room)?);
    Ok(())
}

fn errors(dir: &Path) -> Outcome {
    let room = room(dir, "errors")?;
    fs::write(room.join("file"), b"x")?;
    let below = kind(File::open(room.join("file/below")));
    ensure!(
        below == Some(ErrorKind::NotADirectory) || below == Some(ErrorKind::NotFound),
        "below a file: {below:?}"
    );
    let missing = kind(File::create(room.join("no/such/place")));
    ensure!(missing == Some(ErrorKind::NotFound), "in no directory: {missing:?}");
    ensure!(
        kind(fs::read_dir(room.join("nowhere"))) == Some(ErrorKind::NotFound),
        "listed nowhere"
    );
    ensure!(fs::remove_file(&room).is_err(), "a directory was unlinked as a file");
    Ok(())
}

fn many_open_files(dir: &Path) -> Outcome {
    let room = room(dir, "open")?;
    let mut files = Vec::new();
    for index in 0..200_u64 {
        let path = room.join(index.to_string());
        files.push(OpenOptions::new().read(true).write(true).create_new(true).open(path)?);
    }
    for (index, file) in files.iter().enumerate() {
        file.write_all_at(&content(index as u64, 500), 0)?;
    }
    for (index, file) in files.iter().enumerate() {
        let mut bytes = [0; 500];
        file.read_exact_at(&mut bytes, 0)?;
        ensure!(bytes[..] == content(index as u64, 500), "file {index} differs");
    }
    Ok(())
}
