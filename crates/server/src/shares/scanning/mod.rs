//! Scans of files for viruses by another program: before they are opened to be read, and after they were
//! changed.
//!
//! A [`Scanner`] is one service, for all shares that name it. It scans a file once however many requests wait
//! for it, on threads of its own, and remembers the result with the host's time of the file's last change
//! (`ctime`), which no client sets. No core waits for it: an open waits as a request that is pending.

mod acts;
mod exchange;
mod flight;
mod kept;
mod lines;
mod results;
mod scanner;
mod service;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frevo_store::{Name, Vfs};
use frevo_wire::fscc::Pattern;

pub(crate) use flight::{Find, Scanned, Wanted};
pub use kept::{remember, remembered};
pub(crate) use scanner::changed_of;
pub use scanner::{ScanCounts, Scanner};
pub use service::{Connect, Direct, ScanService, connect_by, connect_unix};

/// The act on a file in which a virus was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundAct {
    /// It stays, and is not opened to be read.
    Deny,
    /// It goes into this folder of the host, as a file that only the server's user can read.
    Quarantine(PathBuf),
    /// Its name gets this end.
    Rename(String),
}

/// The rules of a share for scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRules {
    /// True if a file that has changed is scanned when it is opened to be read.
    pub at_open: bool,
    /// True if a file is scanned after a handle has closed that changed it.
    pub at_close: bool,
    /// The act on a file with a virus.
    pub found: FoundAct,
    /// Larger files are not scanned, bytes.
    pub max_size: u64,
    /// True if files are opened although they could not be scanned.
    pub lets_unscanned: bool,
    /// Paths that are not scanned, from the root of the share with slashes.
    pub exclude: Vec<Pattern>,
}

impl Default for ScanRules {
    /// Scans at both moments, of files of up to 100 MiB; a find, and a scan that fails, refuse the open.
    fn default() -> Self {
        Self {
            at_open: true,
            at_close: true,
            found: FoundAct::Deny,
            max_size: 100 << 20,
            lets_unscanned: false,
            exclude: Vec::new(),
        }
    }
}

/// The scans of a share's files.
#[derive(Debug, Clone)]
pub struct Scanning {
    pub(crate) rules: Arc<ScanRules>,
    pub(crate) scanner: Arc<Scanner>,
    /// The files as the server's own user sees them. None where the share has no others.
    files: Option<Arc<dyn Vfs>>,
}

/// Equal for the same rules and the same service.
impl PartialEq for Scanning {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules && Arc::ptr_eq(&self.scanner, &other.scanner)
    }
}

impl Scanning {
    /// Files are scanned by `service` with these rules, `at_once` at a time, each for at most `timeout`.
    pub fn new(rules: ScanRules, service: ScanService, at_once: usize, timeout: Duration) -> Self {
        let scanner = Scanner::shared(service, at_once, timeout);
        Self { rules: Arc::new(rules), scanner, files: None }
    }

    /// The scans of a share whose users see other files than the server.
    pub(crate) fn of(&self, files: &Arc<dyn Vfs>) -> Self {
        Self { files: Some(Arc::clone(files)), ..self.clone() }
    }

    /// The files as the server's own user sees them; `shown` are those of a user.
    pub(crate) fn files<'a>(&'a self, shown: &'a Arc<dyn Vfs>) -> &'a Arc<dyn Vfs> {
        self.files.as_ref().unwrap_or(shown)
    }

    /// True for a file that is scanned, of this name and with so many bytes.
    pub(crate) fn covers(&self, name: &Name, bytes: u64) -> bool {
        if self.rules.exclude.is_empty() {
            return (1..=self.rules.max_size).contains(&bytes);
        }
        let path = name.path().replace('\\', "/");
        (1..=self.rules.max_size).contains(&bytes)
            && !self.rules.exclude.iter().any(|pattern| pattern.matches(&path))
    }
}
