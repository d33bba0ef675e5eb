//! Files with delete-on-close: each has one maker, which does not share it.
//!
//! While a persistent Open exists, the file must exist and no other client may open it, also across
//! restarts of the server; after the end of the Open the file must be gone.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::machine::Fall;
use crate::trace::Trace;
use crate::violation;

/// Time without use by its client after which a persistent Open may have expired; the limit is two
/// minutes.
const FORGOTTEN: Duration = Duration::from_secs(110);

#[derive(Debug)]
struct One {
    /// True if the server granted a persistent Open.
    persistent: bool,
    /// True while its maker has it open.
    held: bool,
    /// The last use of the Open.
    seen: Instant,
    /// True if the file is on stable storage.
    stable: bool,
    /// True if the server has fallen since the file was made.
    fell: bool,
    /// True if the server fell between the request to make the file and its answer.
    fell_before: bool,
    /// True if the server's machine has crashed.
    crashed: bool,
    /// True if a crash came before the file was stable.
    excused: bool,
}

impl One {
    /// Returns true if the Open must exist.
    fn is_kept(&self) -> bool {
        self.held && self.persistent && !self.excused && self.seen.elapsed() < FORGOTTEN
    }
}

/// All files with delete-on-close.
#[derive(Debug, Default)]
pub struct Passing {
    all: BTreeMap<String, One>,
    /// How often servers have fallen or given their shares away.
    falls: u64,
}

impl Passing {
    /// Returns how often servers have fallen: asked before a file is made, for [`Self::made`].
    pub fn falls(&self) -> u64 {
        self.falls
    }

    /// Records that `name` was made; the maker asked for it after `falls`. If the server has fallen
    /// between the request and its answer, the Open may be one of the server before.
    pub fn made(&mut self, name: &str, persistent: bool, falls: u64) {
        let one = One {
            persistent,
            held: true,
            seen: Instant::now(),
            stable: false,
            fell: false,
            fell_before: self.falls != falls,
            crashed: false,
            excused: false,
        };
        self.all.insert(name.to_owned(), one);
    }

    /// Records a use of the handle; `is_written`: with data on the disk.
    pub fn used(&mut self, name: &str, is_written: bool) {
        if let Some(one) = self.all.get_mut(name) {
            one.seen = Instant::now();
            one.stable |= is_written;
        }
    }

    /// Records that its maker closes it, or has lost it.
    pub fn left(&mut self, name: &str) {
        if let Some(one) = self.all.get_mut(name) {
            one.held = false;
        }
    }

    /// Returns true if the server has fallen since the file was made.
    pub fn has_fallen(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(|one| one.fell)
    }

    /// Returns true if no other client may open the file.
    pub fn is_kept(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(One::is_kept)
    }

    /// Returns the files that are open now.
    pub fn held(&self) -> Vec<String> {
        self.all.iter().filter(|(_, one)| one.held).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn on_fall(&mut self, how: Fall, contents: &[(String, Vec<u8>)], trace: &Trace) {
        self.falls += 1;
        for (name, one) in &mut self.all {
            one.fell = true;
            if how == Fall::Crash {
                one.crashed = true;
                one.excused |= !one.stable;
            }
            if one.is_kept() && !contents.iter().any(|(found, _)| found == name) {
                violation!(trace, "{name} has gone before its Open");
            }
        }
    }

    /// Checks at the end that all files are gone, except those that a crash brought back and those
    /// whose handle was lost with its disposition.
    pub(super) fn at_the_end(&self, contents: &[(String, Vec<u8>)], trace: &Trace) {
        for (name, one) in &self.all {
            let goes = !one.crashed && (one.persistent || !(one.fell || one.fell_before));
            if goes && contents.iter().any(|(found, _)| found == name) {
                violation!(trace, "{name} was to be removed on close and is there");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn judged(test: impl FnOnce(&mut Passing, &Trace)) -> bool {
        let trace = Arc::new(Trace::new(Instant::now(), false));
        let mut passing = Passing::default();
        passing.made("kept", true, 0);
        passing.made("not", false, 0);
        test(&mut passing, &trace);
        trace.is_violated()
    }

    fn there(names: &[&str]) -> Vec<(String, Vec<u8>)> {
        names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_there_as_long_as_its_open_and_no_longer() {
        assert!(judged(|all, trace| all.on_fall(Fall::Kill, &there(&["not"]), trace)));
        assert!(!judged(|all, trace| all.on_fall(Fall::Kill, &there(&["kept"]), trace)));
        assert!(!judged(|all, trace| all.on_fall(Fall::Crash, &there(&[]), trace)));
        assert!(judged(|all, trace| {
            all.used("kept", true);
            all.on_fall(Fall::Crash, &there(&[]), trace);
        }));
        assert!(judged(|all, trace| all.at_the_end(&there(&["kept"]), trace)));
        assert!(judged(|all, trace| all.at_the_end(&there(&["not"]), trace)));
        assert!(!judged(|all, trace| {
            all.on_fall(Fall::Kill, &there(&["kept", "not"]), trace);
            all.at_the_end(&there(&["not"]), trace);
        }));
        // The server fell while the answer was on its way.
        assert!(!judged(|all, trace| {
            let falls = all.falls();
            all.on_fall(Fall::Kill, &there(&["kept", "not"]), trace);
            all.made("late", false, falls);
            all.at_the_end(&there(&["late"]), trace);
        }));
        assert!(judged(|all, trace| {
            all.on_fall(Fall::Kill, &there(&["kept", "not"]), trace);
            all.made("late", false, all.falls());
            all.at_the_end(&there(&["late"]), trace);
        }));
    }
}
