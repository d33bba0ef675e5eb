//! The tree that a run leaves for the verification on the server's disk.

use crate::check::{Check, Outcome, ensure};
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The checks on the server's disk.
pub(crate) const VERIFY: &[Check] =
    &[("disk-names", disk_names), ("disk-bytes", disk_bytes), ("disk-times", disk_times)];

/// Returns names that must be kept unchanged; MS-FSCC 2.1.5 reserves none of their characters.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "plain",
        "two words",
        "MiXeD CaSe.TXT",
        "-dash",
        "comma, 'quote' & #hash %25 $dollar @at !bang",
        "[brackets] {braces} (round) +plus =equals ^caret `tick`",
        "äöüß ÄÖÜ",
        "cafe\u{301}",
        "日本語のファイル名",
        "Ελληνικά кириллица",
        "עברית العربية",
        "emoji 🦀",
    ]
    .map(String::from)
    .into();
    names.push("a".repeat(255));
    names.push("語".repeat(85));
    names
}

/// Returns the content of a name's file: `size` bytes that differ between files and between blocks.
pub(crate) fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        // xorshift64* makes the bytes, because they need only not repeat.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

fn size(index: usize) -> usize {
    [0, 1, 511, 4096, 4097, 65_535, 65_536, 70_001, 1_048_577][index % 9]
}

fn time(index: usize) -> SystemTime {
    // SMB stores times in units of 100 ns, so the time has no smaller part.
    SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + 86_400 * index as u64, 123_456_700)
}

/// Makes the tree through the mount.
pub(crate) fn make(dir: &Path) -> Outcome {
    let left = dir.join("left");
    fs::create_dir(&left)?;
    for (index, name) in names().iter().enumerate() {
        let folder = left.join(format!("folder {index}"));
        fs::create_dir(&folder)?;
        let mut file = File::create(folder.join(name))?;
        file.write_all(&content(index as u64, size(index)))?;
        let stamp = time(index);
        file.set_times(FileTimes::new().set_modified(stamp).set_accessed(stamp))?;
        file.sync_all()?;
    }
    Ok(())
}

fn disk_names(dir: &Path) -> Outcome {
    let left = dir.join("left");
    for (index, name) in names().iter().enumerate() {
        let there: BTreeSet<_> = fs::read_dir(left.join(format!("folder {index}")))?
            .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_, _>>()?;
        ensure!(there.len() == 1 && there.contains(name), "wanted {name:?} alone, found {there:?}");
    }
    let count = fs::read_dir(&left)?.count();
    ensure!(count == names().len(), "{count} folders, not {}", names().len());
    Ok(())
}

fn disk_bytes(dir: &Path) -> Outcome {
    for (index, name) in names().iter().enumerate() {
        let there = fs::read(dir.join("left").join(format!("folder {index}")).join(name))?;
        ensure!(
            there == content(index as u64, size(index)),
            "{name:?}: other bytes ({} of them)",
            there.len()
        );
    }
    Ok(())
}

fn disk_times(dir: &Path) -> Outcome {
    for (index, name) in names().iter().enumerate() {
        let path = dir.join("left").join(format!("folder {index}")).join(name);
        let there = fs::metadata(path)?.modified()?;
        ensure!(there == time(index), "{name:?}: {there:?}, not {:?}", time(index));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_verifies_and_what_is_harmed_does_not() {
        let dir = std::env::temp_dir().join(format!("frevo-guest-checks-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        make(&dir).unwrap();
        for (name, verify) in VERIFY {
            verify(&dir).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let victim = dir.join("left/folder 3").join(&names()[3]);
        let mut bytes = fs::read(&victim).unwrap();
        bytes[100] ^= 1;
        fs::write(&victim, bytes).unwrap();
        assert!(disk_bytes(&dir).is_err() && disk_times(&dir).is_err());
        fs::rename(&victim, victim.with_file_name("other")).unwrap();
        assert!(disk_names(&dir).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
