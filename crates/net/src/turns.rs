//! Turns of accounts on the cores.
//!
//! The runtime of a core polls the tasks that are ready one after the other. Tasks of one account,
//! such as a thousand connections that each list a large folder, would all be polled before a task
//! of another account. So an account has a time on each core, a slice. When its tasks have used the
//! slice, further ones of it wait in the account's row on that core, and the account waits in the
//! core's line. The core gives the account at the head of the line its next slice each time that it
//! has looked for new events. With `k` accounts in line, each waits for at most `k` slices, and one
//! that has used less than its part of the core waits for nobody but the poll that is under way.
//!
//! - An account is whatever the layer above charges: an account of a user, or for clients that have
//!   not logged on their network. A [`Seat`] is the place of one task, and belongs to an account.
//! - A slice is [`TURN_SLICE`] while several accounts use the core, and [`POLL_SLICE`](crate::limits::POLL_SLICE) for one that
//!   has it alone; [`crate::watchdog::is_due`] tells long work when to yield.
//! - The time of an account that is not in line comes back as time passes: all of it where nobody
//!   else waits, else its part. Cheap requests of a client that is seldom busy never wait in line.
//! - Cores share one number for each account, its time on all of them. An account that is busy on
//!   other cores too lets others pass in a line, [`TURNS_PASSED_MAX`] times at most.
//! - An account alone has the whole machine: its line is empty but for itself, and it goes on after
//!   each look for events.
//!
//! A simulator gives turns too ([`simulate`]): a look at the clock counts as work there.
//!
//! A poll takes two looks at the account's cells and no look at the clock: the watchdog has made
//! both. The atomic is written once in a slice.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

pub use crate::accounts::Account;
use crate::accounts::{OfThread, work_for};
use crate::file_io;
use crate::limits::{TURN_SLICE, TURNS_PASSED_MAX};
use crate::watchdog::{self, Moment, nanoseconds};

/// The accounts of one core.
#[derive(Default)]
struct Core {
    /// True on the threads of cores, where somebody gives turns.
    gives: Cell<bool>,
    lanes: RefCell<HashMap<*const Account, Weak<Lane>>>,
    /// Accounts with tasks that wait for their next slice.
    line: RefCell<VecDeque<Rc<Lane>>>,
    /// Wakes the task that gives turns.
    giver: RefCell<Option<Waker>>,
    /// The account of the last poll.
    last: Cell<*const Account>,
}

thread_local! {
    static CORE: Core = Core::default();
}

/// An account on one core.
struct Lane {
    account: OfThread,
    /// Nanoseconds left of its slice.
    left: Cell<i64>,
    /// The time at which `left` was brought up to date.
    since: Cell<Moment>,
    /// Tasks that wait for the account's turn.
    row: RefCell<VecDeque<Rc<Waiter>>>,
    /// True while a task of the row has been called and was not polled yet.
    has_called: Cell<bool>,
    is_in_line: Cell<bool>,
    /// Nanoseconds on this core that `account` does not have yet, and those that it has.
    unreported: Cell<u64>,
    reported: Cell<u64>,
    /// Nanoseconds on other cores that were taken into account here.
    elsewhere: Cell<u64>,
    /// Others that it let pass since its last slice.
    passed: Cell<u32>,
}

/// The state of a task among those of its account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It may ask to be polled.
    Free,
    /// It waits in the row.
    Waits,
    /// It has been called from the row and will be polled next.
    Called,
    /// It has ended.
    Gone,
}

/// A task as the row of its account knows it.
struct Waiter {
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

/// The place of one task on its core, in the name of an account.
pub struct Seat {
    place: Rc<Waiter>,
    lane: RefCell<Rc<Lane>>,
}

impl Seat {
    /// Returns a place for a task of `account` on the core of the calling thread.
    #[must_use]
    pub fn of(account: &Arc<Account>) -> Self {
        let place = Waiter { state: Cell::new(State::Free), waker: RefCell::default() };
        Self { place: Rc::new(place), lane: RefCell::new(Lane::of(account)) }
    }

    /// Makes the place another account's: a client has logged on. To be called by the task itself.
    pub fn move_to(&self, account: &Arc<Account>) {
        if !Arc::ptr_eq(&self.lane.borrow().account, account) {
            self.lane.replace(Lane::of(account));
        }
    }

    /// Polls the task, if its account has time left on this core. Otherwise the task waits, and is
    /// woken when its turn has come.
    pub fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let lane = Rc::clone(&self.lane.borrow());
        if !lane.begins(&self.place, cx) {
            return Poll::Pending;
        }
        let _working = work_for(Some(Rc::clone(&lane.account)));
        // The time of the poll is charged even if the poll panics, because `_turn` is dropped then.
        let _turn = Turn(&lane);
        watchdog::measured(|| poll(cx)).0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let lane = self.lane.borrow();
        self.place.waker.take();
        if self.place.state.replace(State::Gone) == State::Called {
            lane.has_called.set(false);
            lane.pass_on();
        }
    }
}

/// One poll of a task of an account.
struct Turn<'a>(&'a Rc<Lane>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let lane = self.0;
        let took = watchdog::spent();
        lane.left.set(lane.left.get().saturating_sub_unsigned(took));
        lane.since.set(watchdog::mark());
        let unreported = lane.unreported.get() + took;
        lane.unreported.set(unreported);
        if unreported >= nanoseconds(TURN_SLICE) {
            lane.report();
        }
        lane.pass_on();
    }
}

impl Lane {
    /// Returns the account's lane on this core.
    fn of(account: &Arc<Account>) -> Rc<Self> {
        CORE.with(|core| {
            let mut lanes = core.lanes.borrow_mut();
            if let Some(lane) = lanes.get(&Arc::as_ptr(account)).and_then(Weak::upgrade) {
                return lane;
            }
            let lane = Rc::new(Self {
                account: Rc::new(Arc::clone(account)),
                left: Cell::new(signed(nanoseconds(TURN_SLICE))),
                since: Cell::new(watchdog::mark()),
                row: RefCell::default(),
                has_called: Cell::new(false),
                is_in_line: Cell::new(false),
                unreported: Cell::new(0),
                reported: Cell::new(0),
                elsewhere: Cell::new(account.used.load(Ordering::Relaxed)),
                passed: Cell::new(0),
            });
            lanes.insert(Arc::as_ptr(account), Rc::downgrade(&lane));
            lane
        })
    }

    /// True if the task at `place` is polled now; else it has joined the row.
    fn begins(self: &Rc<Self>, place: &Rc<Waiter>, cx: &Context<'_>) -> bool {
        CORE.with(|core| {
            if !core.gives.get() || (file_io::stays() && !watchdog::is_simulated()) {
                return true;
            }
            match place.state.get() {
                State::Called => {
                    place.state.set(State::Free);
                    self.has_called.set(false);
                    core.note(self);
                    return true;
                }
                State::Free | State::Gone => {}
                State::Waits => {
                    place.await_turn(cx);
                    return false;
                }
            }
            let is_first = !self.has_called.get() && self.row.borrow().is_empty();
            if is_first && self.has_time(core) {
                core.note(self);
                return true;
            }
            place.await_turn(cx);
            self.row.borrow_mut().push_back(Rc::clone(place));
            if !self.has_called.get() {
                core.join(self);
            }
            false
        })
    }

    /// True if some of the slice is left, with what has come back since the last poll.
    fn has_time(&self, core: &Core) -> bool {
        let now = watchdog::mark();
        let waited = now.nanoseconds_since(self.since.replace(now));
        let users = core.line.borrow().len() as u64 + 1;
        let most = signed(nanoseconds(watchdog::slice()));
        let left = self.left.get().saturating_add_unsigned(waited / users).min(most);
        self.left.set(left);
        left > 0
    }

    /// Calls the next task of the row while time is left; else the account joins the line.
    fn pass_on(self: &Rc<Self>) {
        if self.has_called.get() || self.is_in_line.get() {
            return;
        }
        if self.left.get() > 0 {
            self.call_next();
        } else if !self.row.borrow().is_empty() {
            // While the thread ends, its thread-local `CORE` may be dropped already.
            let _ = CORE.try_with(|core| core.join(self));
        }
    }

    /// Wakes the next task of the row that has not ended.
    fn call_next(&self) {
        loop {
            let next = self.row.borrow_mut().pop_front();
            let Some(place) = next else {
                // An empty row gives back the memory that a long row has needed.
                self.row.take();
                return;
            };
            if place.state.get() != State::Waits {
                continue;
            }
            place.state.set(State::Called);
            self.has_called.set(true);
            let waker = place.waker.take();
            waker.into_iter().for_each(Waker::wake);
            return;
        }
    }

    /// Adds the time on this core to that of the account.
    fn report(&self) {
        let unreported = self.unreported.take();
        self.account.used.fetch_add(unreported, Ordering::Relaxed);
        self.reported.set(self.reported.get() + unreported);
    }

    /// True if the account has used another core for a slice since it was asked last, and has
    /// not let too many pass.
    fn lets_pass(&self) -> bool {
        let used = self.account.used.load(Ordering::Relaxed);
        let elsewhere = used.saturating_sub(self.reported.get());
        let is_busy = elsewhere.saturating_sub(self.elsewhere.get()) >= nanoseconds(TURN_SLICE);
        if is_busy && self.passed.get() < TURNS_PASSED_MAX {
            self.passed.set(self.passed.get() + 1);
            return true;
        }
        self.passed.set(0);
        self.elsewhere.set(elsewhere);
        false
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.report();
        // While the thread ends, its thread-local `CORE` may be dropped already.
        let _ = CORE.try_with(|core| {
            let mut lanes = core.lanes.borrow_mut();
            let key = Arc::as_ptr(&*self.account);
            if lanes.get(&key).is_some_and(|lane| lane.strong_count() == 0) {
                lanes.remove(&key);
            }
            if lanes.is_empty() {
                lanes.shrink_to_fit();
            }
        });
    }
}

impl Waiter {
    /// Waits to be called.
    fn await_turn(&self, cx: &Context<'_>) {
        self.state.set(State::Waits);
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

impl Core {
    /// Notes whose task is polled.
    fn note(&self, lane: &Lane) {
        let account = Arc::as_ptr(&*lane.account);
        if self.last.replace(account) != account {
            watchdog::share_core();
        }
    }

    /// Puts an account at the end of the line.
    fn join(&self, lane: &Rc<Lane>) {
        if lane.is_in_line.replace(true) {
            return;
        }
        self.line.borrow_mut().push_back(Rc::clone(lane));
        self.giver.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Takes the account that has the next slice out of the line.
    fn next(&self) -> Option<Rc<Lane>> {
        let mut line = self.line.borrow_mut();
        for _ in 1..line.len() {
            if !line.front().is_some_and(|lane| lane.lets_pass()) {
                break;
            }
            line.rotate_left(1);
        }
        let lane = line.pop_front()?;
        if line.is_empty() {
            line.shrink_to(ROOM);
        }
        Some(lane)
    }
}

/// Accounts for which a line has room while it is empty.
const ROOM: usize = 16;

/// Gives the account at the head of this core's line its next slice. To be polled by the core after
/// each look for events; it never ends.
pub fn poll_give(cx: &Context<'_>) -> Poll<std::convert::Infallible> {
    CORE.with(|core| {
        core.gives.set(true);
        let is_known =
            core.giver.borrow().as_ref().is_some_and(|giver| giver.will_wake(cx.waker()));
        if !is_known {
            core.giver.replace(Some(cx.waker().clone()));
        }
        let Some(lane) = core.next() else { return };
        lane.is_in_line.set(false);
        lane.left.set(signed(nanoseconds(watchdog::slice())));
        lane.since.set(watchdog::now());
        lane.pass_on();
        if !core.line.borrow().is_empty() {
            cx.waker().wake_by_ref();
        }
    });
    Poll::Pending
}

/// Has a simulator give turns on this thread, or ends that. Work is counted instead of time, so that
/// the turns depend on nothing but what is done.
pub fn simulate(simulates: bool) {
    watchdog::simulate(simulates);
    CORE.with(|core| {
        core.gives.set(false);
        core.last.set(std::ptr::null());
        core.giver.take();
        // A lane that is dropped looks at the core again.
        drop(core.line.take());
    });
}

/// Returns the time at which the processor of a simulator has done the work so far.
#[must_use]
pub fn simulated_time() -> tokio::time::Instant {
    watchdog::simulated_time()
}

fn signed(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
