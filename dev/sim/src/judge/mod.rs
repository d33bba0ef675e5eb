//! The judge: computes from requests and acknowledgements what every read may return and what must
//! be on the disk.
//!
//! Events are numbered in their order; all run on one thread. A call without a known result may
//! have happened or not, and until the server has fallen it may still happen; any other outcome is
//! a violation.

mod dialects;
mod log;
mod mutex;
mod names;
mod passing;
mod registers;

pub use dialects::{Dialects, TreeConnect};
pub use log::{Log, record};
pub use mutex::{Hold, LockFile};
pub use names::{Did, Names, Step, number};
pub use passing::Passing;
pub use registers::{Registers, SLOT, SLOTS, content};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::machine::Fall;
use crate::trace::Trace;
use crate::violation;

/// The number of an event.
pub type Moment = u64;

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The call happened. `again`: perhaps more than once before its acknowledgement, because a
    /// connection was disturbed.
    Done {
        /// True if the call may still happen again; see [`Unknown`](Self::Unknown).
        again: bool,
    },
    /// The call did not happen.
    Not,
    /// The result is unknown.
    Unknown,
}

/// The known state of all files.
pub struct Judge {
    trace: Arc<Trace>,
    now: Moment,
    /// The time of each moment.
    times: Vec<Instant>,
    /// The files of slots, by name.
    pub registers: BTreeMap<String, Registers>,
    /// The file to which all actors append.
    pub log: Log,
    /// The file with the lock and the counter.
    pub lock: LockFile,
    /// Names in each actor's folder.
    pub names: BTreeMap<String, Names>,
    /// Files with delete-on-close.
    pub passing: Passing,
    /// The dialects of clients, in a race of a cluster.
    pub dialects: Dialects,
}

impl Judge {
    /// Returns a judge without events.
    pub fn new(trace: Arc<Trace>) -> Self {
        Self {
            log: Log::new(Arc::clone(&trace)),
            lock: LockFile::new(Arc::clone(&trace)),
            dialects: Dialects::new(Arc::clone(&trace)),
            trace,
            now: 0,
            times: vec![Instant::now()],
            registers: BTreeMap::new(),
            names: BTreeMap::new(),
            passing: Passing::default(),
        }
    }

    /// Returns the number of the next event.
    pub fn moment(&mut self) -> Moment {
        self.now += 1;
        self.times.push(Instant::now());
        self.now
    }

    /// Returns the last moment that is at least `ago` ago.
    pub fn moment_before(&self, ago: Duration) -> Moment {
        let count = self.times.partition_point(|time| time.elapsed() >= ago);
        count.saturating_sub(1) as Moment
    }

    /// Records that a request at `asked` made all earlier changes of names stable.
    pub fn names_are_stable(&mut self, asked: Moment) {
        self.names.values_mut().for_each(|names| names.stable(asked));
    }

    /// Records a fall of the server, and compares the content of its disk.
    pub fn on_fall(&mut self, how: Fall, contents: &[(String, Vec<u8>)]) {
        let now = self.moment();
        self.look(contents, how == Fall::Crash, now);
        self.passing.on_fall(how, contents, &self.trace);
        for (name, registers) in &mut self.registers {
            if let Some((_, content)) = contents.iter().find(|(found, _)| found == name) {
                registers.begin_anew(content, now);
            }
        }
        if how == Fall::Crash {
            self.names.values_mut().for_each(Names::crash);
        }
    }

    /// Records that the shares have gone to another server process, and compares the content of the
    /// disk. Data that was not synced is still not: a later crash may lose it.
    pub fn on_move(&mut self, contents: &[(String, Vec<u8>)]) {
        let now = self.moment();
        self.look(contents, false, now);
        self.passing.on_fall(Fall::Kill, contents, &self.trace);
    }

    /// Compares the disk with the possible contents after all actors have stopped.
    pub fn at_the_end(&mut self, contents: &[(String, Vec<u8>)]) {
        let now = self.moment();
        self.look(contents, false, now);
        self.passing.at_the_end(contents, &self.trace);
        for (folder, names) in &mut self.names {
            let prefix = format!("{folder}\\");
            let found = contents
                .iter()
                .filter_map(|(name, content)| Some((name.strip_prefix(&prefix)?, &**content)));
            names.see(&found.collect(), &self.trace, folder);
        }
    }

    fn look(&mut self, contents: &[(String, Vec<u8>)], is_crash: bool, now: Moment) {
        let content = |wanted: &str| {
            contents.iter().find(|(name, _)| name == wanted).map(|(_, content)| &**content)
        };
        for (name, registers) in &mut self.registers {
            match content(name) {
                Some(found) => registers.on_disk(found, is_crash, now, &self.trace, name),
                None => violation!(self.trace, "{name} has gone"),
            }
        }
        self.log.on_disk(content(log::NAME).unwrap_or_default(), is_crash);
        self.lock.on_disk(content(mutex::NAME).unwrap_or_default(), is_crash);
    }
}
