//! A share in a directory of its own, and short ways to use it.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "each test binary is a crate")]

use std::path::PathBuf;
use std::sync::Arc;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::{Existence, KindWanted, Node, OpenHow, Opened, VfsResult};
use frevo_store::{Name, Vfs};
use tempfile::TempDir;

pub struct Share {
    pub dir: TempDir,
    pub vfs: PosixVfs,
}

pub fn share() -> Share {
    share_with(PosixOptions::default())
}

pub fn share_with(options: PosixOptions) -> Share {
    let dir = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(dir.path(), options).unwrap();
    Share { dir, vfs }
}

pub fn name(text: &str) -> Name {
    Name::from_stored(text.into())
}

pub fn how() -> OpenHow {
    OpenHow::LOOK
}

pub fn read() -> OpenHow {
    OpenHow { read: true, ..how() }
}

pub fn write() -> OpenHow {
    OpenHow { read: true, write: true, ..how() }
}

pub fn create() -> OpenHow {
    OpenHow { existence: Existence::MustNotExist, ..write() }
}

pub fn either() -> OpenHow {
    OpenHow { existence: Existence::Either, ..write() }
}

pub fn create_dir() -> OpenHow {
    OpenHow { existence: Existence::MustNotExist, kind: KindWanted::Directory, ..how() }
}

impl Share {
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub fn file(&self, below: &str, content: &str) -> PathBuf {
        std::fs::write(self.path(below), content).unwrap();
        self.path(below)
    }

    pub fn mkdir(&self, below: &str) -> PathBuf {
        std::fs::create_dir_all(self.path(below)).unwrap();
        self.path(below)
    }

    pub fn open(&self, text: &str, how: &OpenHow) -> VfsResult<Opened> {
        self.vfs.open(&name(text), how)
    }

    /// Returns the content under a name.
    pub fn content(&self, text: &str) -> VfsResult<String> {
        self.open(text, &read()).map(|opened| content(&opened.node))
    }

    /// The names in a directory, sorted.
    pub fn list(&self, text: &str) -> Vec<String> {
        let opened = self.open(text, &read()).unwrap();
        let mut listing = opened.node.directory().unwrap();
        let mut names = Vec::new();
        while let Some(name) = listing.next_name().unwrap() {
            names.push(name.to_owned());
        }
        names.sort();
        names
    }
}

pub fn content(node: &Arc<dyn Node>) -> String {
    let mut buffer = vec![0; 4096];
    let len = node.read_at(0, &mut buffer).unwrap();
    buffer.truncate(len);
    String::from_utf8(buffer).unwrap()
}
