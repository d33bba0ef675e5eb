//! The progress of a split on the terminal.

use super::tree::Size;
use crate::exit::is_json;
use crate::remote::progress::{Count, Progress};

/// The progress of one walk through the tree.
#[derive(Debug)]
pub(super) struct Told {
    /// The bar of a copy.
    bar: Option<Progress>,
    /// The count of another walk.
    count: Count,
    files: usize,
    all: usize,
}

impl Told {
    pub(super) fn copying(size: Size) -> Self {
        let bar = Progress::new(Some(size.bytes), is_json());
        bar.expect_files(size.files);
        let mut told = Self::walking("copied", size);
        told.bar = Some(bar);
        told
    }

    /// A walk by which files are `done`, such as "compared".
    pub(super) fn walking(done: &'static str, size: Size) -> Self {
        let all = usize::try_from(size.files).unwrap_or(usize::MAX);
        Self { bar: None, count: Count::new(done), files: 0, all }
    }

    pub(super) fn bytes(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.advance(bytes);
        }
    }

    pub(super) fn file(&mut self) {
        self.files += 1;
        match &self.bar {
            Some(bar) => bar.file(),
            None => self.count.show(self.files, Some(self.all)),
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}
