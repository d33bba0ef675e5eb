//! The memory that this process has, as the kernel counts it. A confined process cannot open the kernel's
//! file, so it stays open from before.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// The open file; None where there is no `/proc`.
static KEPT: OnceLock<Option<File>> = OnceLock::new();

fn file() -> Option<&'static File> {
    KEPT.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()
}

/// Opens the kernel's file for all later questions, before the process is confined. Where that fails, nobody
/// knows [`resident_bytes`].
pub fn keep_resident_file() {
    file();
}

/// Returns the bytes of memory that this process has, if the kernel tells them.
#[must_use]
pub fn resident_bytes() -> Option<usize> {
    let mut text = [0; 128];
    let count = file()?.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..count)?).ok()?;
    let pages: usize = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size()))
}
