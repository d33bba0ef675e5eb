//! Files that their handles take along: each has one maker, who shares it with nobody
//! and has it removed on close.
//!
//! While a persistent Open has one, the file is there and nobody else has it, whatever
//! becomes of the server; when the Open has ended, the file has gone.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::machine::Fall;
use crate::trace::Trace;
use crate::violation;

/// A persistent Open that its client has not used for so long may have been given up,
/// which happens after two minutes.
const FORGOTTEN: Duration = Duration::from_secs(110);

#[derive(Debug)]
struct One {
    /// Whether the server said that the Open outlives it.
    persistent: bool,
    /// Its maker has it open.
    held: bool,
    /// When the Open did something last.
    seen: Instant,
    /// It is on the medium for good.
    stable: bool,
    /// The server has fallen since it was made.
    fell: bool,
    /// Its machine has.
    crashed: bool,
    /// A crash came before it was stable.
    excused: bool,
}

impl One {
    /// Whether the Open has to be there.
    fn is_kept(&self) -> bool {
        self.held && self.persistent && !self.excused && self.seen.elapsed() < FORGOTTEN
    }
}

/// All such files.
#[derive(Debug, Default)]
pub struct Passing(BTreeMap<String, One>);

impl Passing {
    /// `name` was made.
    pub fn made(&mut self, name: &str, persistent: bool) {
        let one = One {
            persistent,
            held: true,
            seen: Instant::now(),
            stable: false,
            fell: false,
            crashed: false,
            excused: false,
        };
        self.0.insert(name.to_owned(), one);
    }

    /// Something was done with the handle; `is_written`: and is on the medium.
    pub fn used(&mut self, name: &str, is_written: bool) {
        if let Some(one) = self.0.get_mut(name) {
            one.seen = Instant::now();
            one.stable |= is_written;
        }
    }

    /// Its maker closes it, or has lost it.
    pub fn left(&mut self, name: &str) {
        if let Some(one) = self.0.get_mut(name) {
            one.held = false;
        }
    }

    /// Whether the server has fallen since it was made.
    pub fn has_fallen(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|one| one.fell)
    }

    /// Whether nobody but its maker can have it.
    pub fn is_kept(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(One::is_kept)
    }

    /// Those that somebody has open now.
    pub fn held(&self) -> Vec<String> {
        self.0.iter().filter(|(_, one)| one.held).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn on_fall(&mut self, how: Fall, contents: &[(String, Vec<u8>)], trace: &Trace) {
        for (name, one) in &mut self.0 {
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

    /// Nobody is left: none of them is, but where a crash brought it back, or a handle
    /// that was not kept took the wish with it.
    pub(super) fn at_the_end(&self, contents: &[(String, Vec<u8>)], trace: &Trace) {
        for (name, one) in &self.0 {
            let goes = !one.crashed && (one.persistent || !one.fell);
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
        passing.made("kept", true);
        passing.made("not", false);
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
    }
}
