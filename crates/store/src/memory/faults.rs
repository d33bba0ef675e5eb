//! Injected failures of calls.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use parking_lot::Mutex;

use crate::vfs::{Fault, VfsResult};

/// A kind of call that can be made to fail. A failing call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `Vfs::open`, whether or not it would create.
    Open,
    /// The part of `Vfs::open` that creates.
    Create,
    /// `Vfs::remove`
    Remove,
    /// `Vfs::rename`
    Rename,
    /// `Vfs::link`
    Link,
    /// `Vfs::stat`, `Node::stat` and `Directory::entry_stat`
    Stat,
    /// `Vfs::space`
    Space,
    /// `Node::read_at`
    Read,
    /// `Node::write_at`
    Write,
    /// `Node::sync`
    Sync,
    /// `Node::set_end_of_file`
    SetEndOfFile,
    /// `Node::set_allocation`
    SetAllocation,
    /// `Node::set_basic`
    SetBasic,
    /// `Node::directory` and `Directory::next_name`
    List,
    /// `Node::eas`
    Eas,
    /// `Node::set_ea`
    SetEa,
}

/// Number of operations.
const OPERATIONS: usize = Operation::SetEa as usize + 1;

#[derive(Debug, Clone, Copy)]
struct Rule {
    operation: Operation,
    /// Calls that succeed first.
    after: u64,
    /// Calls that fail after that.
    times: u64,
    fault: Fault,
}

/// A callback of a test, run before each call. It may panic.
pub type AtCall = Arc<dyn Fn(Operation) + Send + Sync>;

/// A write that a process has begun when it was stopped.
pub struct BegunWrite(Box<dyn FnOnce() -> VfsResult<()> + Send>);

impl BegunWrite {
    pub(super) fn new(write: impl FnOnce() -> VfsResult<()> + Send + 'static) -> Self {
        Self(Box::new(write))
    }

    /// Carries it out, as far as the file system still takes writes of this mount.
    ///
    /// # Errors
    /// As any write.
    pub fn finish(self) -> VfsResult<()> {
        (self.0)()
    }
}

impl core::fmt::Debug for BegunWrite {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("BegunWrite")
    }
}

/// A callback that gets the write within which its process is stopped.
pub type Stop = Box<dyn FnOnce(BegunWrite) + Send>;

struct Plan {
    rules: Vec<Rule>,
    calls: [u64; OPERATIONS],
    capacity: u64,
    at_call: Option<AtCall>,
    /// The fault of all calls.
    refusal: Option<Fault>,
    stop: Option<Stop>,
}

/// The failures of one [`MemoryVfs`](super::MemoryVfs). Clones control that same file system.
#[derive(Clone)]
pub struct Faults(Arc<Mutex<Plan>>);

impl core::fmt::Debug for Faults {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Faults").field("rules", &self.0.lock().rules).finish_non_exhaustive()
    }
}

impl Faults {
    pub(super) fn new(capacity: u64) -> Self {
        let plan = Plan {
            rules: Vec::new(),
            calls: [0; OPERATIONS],
            capacity,
            at_call: None,
            refusal: None,
            stop: None,
        };
        Self(Arc::new(Mutex::new(plan)))
    }

    /// Makes the next call of this kind fail.
    pub fn fail_next(&self, operation: Operation, fault: Fault) {
        self.fail(operation, 0, 1, fault);
    }

    /// Makes every call of this kind fail, until [`Self::heal`].
    pub fn fail_always(&self, operation: Operation, fault: Fault) {
        self.fail(operation, 0, u64::MAX, fault);
    }

    /// Makes `times` calls of this kind fail, after `after` more. Several rules for one kind count
    /// independently; if two would fail one call, the older rule does.
    pub fn fail(&self, operation: Operation, after: u64, times: u64, fault: Fault) {
        self.0.lock().rules.push(Rule { operation, after, times, fault });
    }

    /// Sets the callback that runs at each call; None removes it.
    pub fn at_call(&self, at_call: Option<AtCall>) {
        self.0.lock().at_call = at_call;
    }

    /// Has all calls fail with this fault from now on, those of open nodes too: the storage refuses
    /// this machine. None ends that.
    pub fn refuse(&self, fault: Option<Fault>) {
        self.0.lock().refusal = fault;
    }

    /// Returns the fault of all calls.
    pub fn refusal(&self) -> Option<Fault> {
        self.0.lock().refusal
    }

    /// Has the next write only begin: its call returns as if it were done, and `stop` gets the write.
    /// So a process can be stopped (SIGSTOP) within the call, as far as its files can tell. None ends
    /// that.
    pub fn stop_in_write(&self, stop: Option<Stop>) {
        self.0.lock().stop = stop;
    }

    pub(super) fn take_stop(&self) -> Option<Stop> {
        self.0.lock().stop.take()
    }

    /// Removes all rules: no operation fails any more.
    pub fn heal(&self) {
        self.0.lock().rules.clear();
    }

    /// True if a rule has not been used up: a test planned a fault that never happened.
    pub fn is_pending(&self) -> bool {
        !self.0.lock().rules.is_empty()
    }

    /// Returns the number of calls of this kind so far, failed ones included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.0.lock().calls.get(operation as usize).copied().unwrap_or(0)
    }

    /// Sets the capacity of the volume in bytes. Present content stays, even if it is more.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = bytes;
    }

    pub(super) fn capacity(&self) -> u64 {
        self.0.lock().capacity
    }

    /// Counts a call, and returns its injected fault if there is one.
    pub(super) fn pass(&self, operation: Operation) -> VfsResult<()> {
        let at_call = self.0.lock().at_call.clone();
        if let Some(at_call) = at_call {
            at_call(operation);
        }
        let mut plan = self.0.lock();
        if let Some(calls) = plan.calls.get_mut(operation as usize) {
            *calls = calls.saturating_add(1);
        }
        if let Some(fault) = plan.refusal {
            return Err(fault);
        }
        let mut outcome = Ok(());
        plan.rules.retain_mut(|rule| {
            if rule.operation != operation {
                return true;
            }
            if rule.after > 0 {
                rule.after = rule.after.saturating_sub(1);
            } else if outcome.is_ok() {
                outcome = Err(rule.fault);
                if rule.times != u64::MAX {
                    rule.times = rule.times.saturating_sub(1);
                }
            }
            rule.times > 0
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_calls_fail() {
        let faults = Faults::new(0);
        faults.fail(Operation::Write, 1, 2, Fault::Io(5));
        faults.fail(Operation::Write, 2, 1, Fault::DiskFull);
        faults.fail_next(Operation::Read, Fault::NoMemory);
        let write = || faults.pass(Operation::Write);
        assert_eq!(write(), Ok(()));
        assert_eq!(faults.pass(Operation::Sync), Ok(()));
        assert_eq!(write(), Err(Fault::Io(5)));
        assert_eq!(write(), Err(Fault::Io(5)), "the older rule");
        assert_eq!(write(), Err(Fault::DiskFull));
        assert_eq!(write(), Ok(()));
        assert!(faults.is_pending());
        assert_eq!(faults.clone().pass(Operation::Read), Err(Fault::NoMemory));
        assert!(!faults.is_pending());
        assert_eq!(faults.calls(Operation::Write), 5);
        faults.fail_always(Operation::Write, Fault::Busy);
        assert_eq!([write(), write()], [Err(Fault::Busy); 2]);
        faults.heal();
        assert_eq!(write(), Ok(()));
    }
}
