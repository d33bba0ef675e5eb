//! The progress of a command: a bar or a count on a terminal, nothing in a pipe.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::exit;
use crate::plural::counted;

/// A count is shown when the work takes longer than that.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The bar or the count on the terminal, if there is one.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn drawn() -> Option<ProgressBar> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn draw(bar: Option<ProgressBar>) {
    *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = bar;
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

/// Writes `text` in place of the current file. False when no bar is on the terminal.
pub(crate) fn say(text: &str) -> bool {
    let Some(bar) = drawn() else { return false };
    bar.set_message(crate::printable::printable(text));
    true
}

/// A count of files of work whose end is not known, or is known as a number of files: the scan of a
/// tree, or its removal. Dropping it removes its line from the terminal.
#[derive(Debug)]
pub(crate) struct Count {
    /// The work, such as "listed".
    done: &'static str,
    started: Instant,
    /// The count that this one draws; None while none is drawn, or beside the bar of a copy.
    own: Option<ProgressBar>,
}

impl Count {
    /// A count of files that are `done`, such as "listed".
    pub(crate) fn new(done: &'static str) -> Self {
        Self { done, started: Instant::now(), own: None }
    }

    /// Shows that `count` files are done, of `all` if that is known.
    pub(crate) fn show(&mut self, count: usize, all: Option<usize>) {
        if self.started.elapsed() < SHOWN_AFTER || exit::is_json() {
            return;
        }
        if drawn().is_none() && std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            draw(Some(bar.clone()));
            self.own = Some(bar);
        }
        let text = match all {
            Some(all) => format!("{count} of {} {}", counted(all, "file"), self.done),
            None => format!("{} {}", counted(count, "file"), self.done),
        };
        say(&text);
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if let Some(bar) = self.own.take() {
            bar.finish_and_clear();
            draw(None);
        } else if self.started.elapsed() >= SHOWN_AFTER {
            say("");
        }
    }
}

/// Counts bytes and files.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    bytes: AtomicU64,
    files: AtomicU64,
    /// Files to copy, as far as they are known.
    expected: AtomicU64,
    /// Files that were not copied because their targets are up to date.
    up_to_date: AtomicU64,
    /// Bytes of them that a server copied by itself.
    by_server: AtomicU64,
    started: Instant,
}

impl Progress {
    /// The progress of a copy of `total` bytes, if the number is known.
    pub(crate) fn new(total: Option<u64>, quiet: bool) -> Self {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            total.map_or_else(ProgressBar::new_spinner, ProgressBar::new)
        };
        let with_total =
            "{prefix}{bytes}/{total_bytes} {wide_bar} {binary_bytes_per_sec} {eta}\n{wide_msg}";
        let without = "{bytes} {binary_bytes_per_sec} {wide_msg}";
        let template = if total.is_some() { with_total } else { without };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            draw(Some(bar.clone()));
        }
        let (bytes, files, by_server) = Default::default();
        let (expected, up_to_date) = Default::default();
        Self { bar, bytes, files, expected, up_to_date, by_server, started: Instant::now() }
    }

    /// Adds a file of `bytes` to the total.
    pub(crate) fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
        self.expect_files(1);
    }

    /// Adds files whose bytes are in the total already.
    pub(crate) fn expect_files(&self, count: u64) {
        self.expected.fetch_add(count, Ordering::Relaxed);
    }

    /// Shows `name` as the file that is copied now.
    pub(crate) fn begin(&self, name: &str) {
        if !self.bar.is_hidden() {
            self.bar.set_message(crate::printable::printable(name));
        }
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
        let done = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        let expected = self.expected.load(Ordering::Relaxed);
        if expected > 1 && !self.bar.is_hidden() {
            self.bar.set_prefix(format!("{done} of {expected} files, "));
        }
    }

    /// Counts a file as up to date in the target.
    pub(crate) fn is_up_to_date(&self) {
        self.up_to_date.fetch_add(1, Ordering::Relaxed);
    }

    /// Files that were up to date in the target.
    pub(crate) fn up_to_date(&self) -> u64 {
        self.up_to_date.load(Ordering::Relaxed)
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
        draw(None);
    }
}
