//! Who knows the truth: what every read may return and what must be on the
//! disk, from what was asked and acknowledged.
//!
//! Events have numbers in the order of their happening; everything is on one
//! thread. A call whose end is not known may have happened or not, and until
//! the server has fallen it may still happen; a third outcome is a violation.

mod log;
mod mutex;
mod names;
mod passing;
mod registers;

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

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It happened. `again`: perhaps more than once before it was acknowledged,
    /// because a connection was disturbed meanwhile.
    Done {
        /// See above.
        again: bool,
    },
    /// It did not happen.
    Not,
    /// Nobody knows.
    Unknown,
}

/// Everything that is known.
pub struct Judge {
    trace: Arc<Trace>,
    now: Moment,
    /// When each moment was.
    times: Vec<Instant>,
    /// Files of slots.
    pub registers: BTreeMap<String, Registers>,
    /// The file that all append to.
    pub log: Log,
    /// The file that all lock and count in.
    pub lock: LockFile,
    /// Names below each actor's folder.
    pub names: BTreeMap<String, Names>,
    /// Files that go with their handles.
    pub passing: Passing,
}

impl Judge {
    /// Nothing is known yet.
    pub fn new(trace: Arc<Trace>) -> Self {
        Self {
            log: Log::new(Arc::clone(&trace)),
            lock: LockFile::new(Arc::clone(&trace)),
            trace,
            now: 0,
            times: vec![Instant::now()],
            registers: BTreeMap::new(),
            names: BTreeMap::new(),
            passing: Passing::default(),
        }
    }

    /// The next moment.
    pub fn moment(&mut self) -> Moment {
        self.now += 1;
        self.times.push(Instant::now());
        self.now
    }

    /// The last moment that is at least `ago` ago.
    pub fn moment_before(&self, ago: Duration) -> Moment {
        let count = self.times.partition_point(|time| time.elapsed() >= ago);
        count.saturating_sub(1) as Moment
    }

    /// Something that was asked for at `asked` made stable what had been done
    /// to names before.
    pub fn names_are_stable(&mut self, asked: Moment) {
        self.names.values_mut().for_each(|names| names.stable(asked));
    }

    /// The server has fallen, and this is what its disk holds.
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

    /// What is on the disk when nobody does anything any more.
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
