//! The progress of a copy: a bar on a terminal, nothing in a pipe.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

/// The bar on the terminal, if there is one.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn drawn() -> Option<ProgressBar> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Writes something to the terminal without the bar in it.
pub(crate) fn beside<T>(write: impl FnOnce() -> T) -> T {
    match drawn() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Takes away the bar of a command that has failed.
pub(crate) fn clear() {
    if let Some(bar) = drawn() {
        bar.finish_and_clear();
    }
}

/// Counts bytes and files.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    bytes: AtomicU64,
    files: AtomicU64,
    /// Bytes of them that a server copied by itself.
    by_server: AtomicU64,
    started: std::time::Instant,
}

impl Progress {
    /// The progress of a copy of `total` bytes, if the number is known.
    pub(crate) fn new(total: Option<u64>, quiet: bool) -> Self {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            total.map_or_else(ProgressBar::new_spinner, ProgressBar::new)
        };
        let with_total = "{bytes}/{total_bytes} {wide_bar} {binary_bytes_per_sec} {eta}";
        let without = "{bytes} {binary_bytes_per_sec} {msg}";
        let template = if total.is_some() { with_total } else { without };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        }
        let (bytes, files, by_server) = Default::default();
        Self { bar, bytes, files, by_server, started: std::time::Instant::now() }
    }

    /// Adds `bytes` to the total.
    pub(crate) fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Counts `bytes` as copied.
    pub(crate) fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    /// Counts `bytes`, among those copied, as copied by the server.
    pub(crate) fn by_server(&self, bytes: u64) {
        self.by_server.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were copied by the server so far.
    pub(crate) fn bytes_by_server(&self) -> u64 {
        self.by_server.load(Ordering::Relaxed)
    }

    /// Counts a file as copied completely.
    pub(crate) fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that were copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files that were copied completely so far.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
