//! The files to copy, and the checks of the copies.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Errand;
use crate::share;

pub(super) const BIG: &str = "big.bin";
pub(super) const MANY: &str = "many";
pub(super) const FLAT: &str = "flat";
pub(super) const LIST: &str = "long-list";
/// The directory of the share for uploads.
pub(super) const PUT: &str = "put";
/// Number of small files, 4 KiB each.
pub(super) const MANY_FILES: usize = 10_000;
/// The number of directories that hold the files, except the flat ones.
pub(super) const DIRECTORIES: usize = 100;
pub(super) const LISTED_FILES: usize = 100_000;
const SMALL_LEN: usize = 4096;

pub(super) struct Files {
    pub(super) share: PathBuf,
    /// The source of uploads.
    pub(super) local: PathBuf,
    /// The target of downloads.
    target: PathBuf,
    /// The second target of the large file, for `--local`.
    big_target: PathBuf,
    pub(super) big_len: u64,
}

impl Files {
    pub(super) fn prepare(scratch: &Path, big: Option<&Path>, mebibytes: u64) -> Result<Self> {
        let [share, local, target] = ["share", "local", "got"].map(|name| scratch.join(name));
        for dir in [&share, &local, &target, &share.join(PUT), &share.join(LIST)] {
            fs::create_dir(dir)?;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
        }
        for dir in [&share, &local] {
            let mut file = File::create(dir.join(BIG))?;
            for n in 0..mebibytes {
                file.write_all(&share::block(n, 3))?;
            }
            fs::set_permissions(dir.join(BIG), fs::Permissions::from_mode(0o666))?;
        }
        small_files(&share.join(MANY), false)?;
        small_files(&local.join(MANY), false)?;
        small_files(&local.join(FLAT), true)?;
        for n in 0..LISTED_FILES {
            File::create(share.join(LIST).join(format!("file-{n:06}.dat")))?;
        }
        let big_target = big.unwrap_or(&target).to_owned();
        Ok(Self { share, local, target, big_target, big_len: mebibytes << 20 })
    }

    /// Returns the target path of a download.
    pub(super) fn got(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }

    /// Returns the path of the large file on the local disk.
    pub(super) fn got_local(&self) -> PathBuf {
        self.big_target.join(BIG)
    }

    /// Returns the path of the errand's result.
    fn result(&self, errand: Errand) -> Option<PathBuf> {
        match errand {
            Errand::Get => Some(self.got(BIG)),
            Errand::GetLocal => Some(self.got_local()),
            Errand::Put => Some(self.share.join(PUT).join(BIG)),
            Errand::GetMany => Some(self.got(MANY)),
            Errand::PutMany => Some(self.share.join(PUT).join(MANY)),
            Errand::PutFlat => Some(self.share.join(PUT).join(FLAT)),
            Errand::List => None,
        }
    }

    /// Removes the result of a run.
    pub(super) fn clear(&self, errand: Errand) -> Result<()> {
        let Some(path) = self.result(errand) else { return Ok(()) };
        match errand {
            Errand::Get | Errand::GetLocal | Errand::Put if path.exists() => fs::remove_file(path)?,
            Errand::GetMany | Errand::PutMany | Errand::PutFlat if path.exists() => {
                fs::remove_dir_all(path)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the result of an errand: every byte, every file, every entry.
    pub(super) fn check(&self, errand: Errand, output: &Path) -> Result<()> {
        match (errand, self.result(errand)) {
            (Errand::Get | Errand::GetLocal, Some(path)) => same(&self.share.join(BIG), &path),
            (Errand::Put, Some(path)) => same(&self.local.join(BIG), &path),
            (Errand::GetMany | Errand::PutMany | Errand::PutFlat, Some(path)) => {
                let content = share::block(1, 4);
                for n in 0..MANY_FILES {
                    let name = small_name(n, errand == Errand::PutFlat);
                    let found =
                        fs::read(path.join(name)).with_context(|| format!("file {n} of many"))?;
                    ensure!(found == small(&content, n), "file {n} of many differs");
                }
                Ok(())
            }
            _ => {
                let mut found = 0;
                for line in BufReader::new(File::open(output)?).split(b'\n') {
                    found += usize::from(line?.windows(5).any(|w| w == b"file-"));
                }
                ensure!(found == LISTED_FILES, "the listing has {found} entries");
                Ok(())
            }
        }
    }
}

fn small_name(n: usize, flat: bool) -> String {
    let file = format!("small-{n:05}.bin");
    if flat { file } else { format!("folder-{:02}/{file}", n % DIRECTORIES) }
}

fn small_files(dir: &Path, flat: bool) -> Result<()> {
    fs::create_dir(dir)?;
    for n in 0..if flat { 0 } else { DIRECTORIES } {
        fs::create_dir(dir.join(format!("folder-{n:02}")))?;
    }
    let content = share::block(1, 4);
    for n in 0..MANY_FILES {
        fs::write(dir.join(small_name(n, flat)), small(&content, n))?;
    }
    Ok(())
}

/// Returns the content of small file `n`; each is different.
fn small(content: &[u8], n: usize) -> &[u8] {
    &content[n * 8..n * 8 + SMALL_LEN]
}

fn same(source: &Path, copy: &Path) -> Result<()> {
    let mut files = [BufReader::new(File::open(source)?), BufReader::new(File::open(copy)?)];
    let lens = [fs::metadata(source)?.len(), fs::metadata(copy)?.len()];
    ensure!(lens[0] == lens[1], "{} of {} bytes arrived", lens[1], lens[0]);
    let mut buffers = [vec![0; 1 << 20], vec![0; 1 << 20]];
    let mut left = lens[0];
    while left > 0 {
        let count = usize::try_from(left.min(1 << 20))?;
        for (file, buffer) in files.iter_mut().zip(&mut buffers) {
            file.read_exact(&mut buffer[..count])?;
        }
        ensure!(buffers[0][..count] == buffers[1][..count], "{} differs", copy.display());
        left -= count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_wrong_bytes_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let mut content = share::block(0, 0);
        content.push(1);
        fs::write(&a, &content).unwrap();
        fs::write(&b, &content).unwrap();
        same(&a, &b).unwrap();
        *content.last_mut().unwrap() ^= 1;
        fs::write(&b, &content).unwrap();
        same(&a, &b).unwrap_err();
        content.pop();
        fs::write(&b, &content).unwrap();
        same(&a, &b).unwrap_err();
    }

    #[test]
    fn small_files_differ_from_each_other() {
        let content = share::block(1, 4);
        assert_eq!(small(&content, MANY_FILES - 1).len(), SMALL_LEN);
        assert_ne!(small(&content, 0), small(&content, 1));
    }
}
