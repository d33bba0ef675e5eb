//! {setup, bind, I/O, logoff, disconnect} in every order that loom can think
//! of, over the code that decides it (`under_way.rs` itself).

use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::under_way::UnderWay;

/// As much of a session as the order matters for.
struct Session {
    under_way: Arc<UnderWay>,
    channels: Mutex<usize>,
    /// Times that its one Open was closed.
    closed: AtomicUsize,
    /// The answer to LOGOFF has left.
    answered: AtomicBool,
}

impl Session {
    /// Setup, on the first channel.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            under_way: Arc::new(UnderWay::default()),
            channels: Mutex::new(1),
            closed: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
        })
    }

    /// True when the file system was touched.
    fn io(&self) -> bool {
        let Some(_operation) = self.under_way.begin() else { return false };
        assert!(!self.answered.load(Ordering::SeqCst), "touched after the answer");
        true
    }

    fn end(&self) -> bool {
        if !self.under_way.end() {
            return false;
        }
        self.closed.fetch_add(1, Ordering::SeqCst);
        self.under_way.give_up();
        true
    }

    fn logoff(&self) -> bool {
        let is_first = self.end();
        if is_first {
            loom::future::block_on(self.under_way.drained());
            self.answered.store(true, Ordering::SeqCst);
        }
        is_first
    }

    /// Another channel; it is refused when the session has ended.
    fn bind(&self) -> bool {
        let Some(_operation) = self.under_way.begin() else { return false };
        *self.channels.lock().unwrap() += 1;
        true
    }

    /// A channel is lost, and with the last one the session.
    fn disconnect(&self) {
        let left = {
            let mut channels = self.channels.lock().unwrap();
            *channels -= 1;
            *channels
        };
        if left == 0 {
            self.end();
        }
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn l1_after_the_answer_to_logoff_nothing_is_touched() {
    explore(|| {
        let session = Session::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let session = Arc::clone(&session);
                thread::spawn(move || session.io())
            })
            .collect();
        assert!(session.logoff());
        assert!(!session.io());
        others.into_iter().for_each(|other| _ = other.join().unwrap());
        assert_eq!(session.closed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn l1_of_two_logoffs_one_succeeds_and_every_open_is_closed_once() {
    explore(|| {
        let session = Session::new();
        let other = {
            let session = Arc::clone(&session);
            thread::spawn(move || session.logoff())
        };
        let io = {
            let session = Arc::clone(&session);
            thread::spawn(move || session.io())
        };
        let own = session.logoff();
        assert_ne!(own, other.join().unwrap(), "exactly one");
        io.join().unwrap();
        assert_eq!(session.closed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn l2_bind_disconnect_and_logoff_in_any_order() {
    explore(|| {
        let session = Session::new();
        let binding = {
            let session = Arc::clone(&session);
            thread::spawn(move || {
                if session.bind() {
                    session.io();
                    session.disconnect();
                }
            })
        };
        let losing = {
            let session = Arc::clone(&session);
            thread::spawn(move || session.disconnect())
        };
        session.logoff();
        binding.join().unwrap();
        losing.join().unwrap();
        assert!(!session.io());
        assert_eq!(session.closed.load(Ordering::SeqCst), 1);
        assert_eq!(*session.channels.lock().unwrap(), 0);
    });
}

/// All of them at once: a channel is bound, used and lost, another is lost, and the
/// session ends twice.
#[test]
fn l1_setup_bind_io_logoff_and_disconnect_in_any_order() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let session = Session::new();
        let run = |what: fn(&Session)| {
            let session = Arc::clone(&session);
            thread::spawn(move || what(&session))
        };
        let others = [
            run(|session| {
                if session.bind() {
                    session.io();
                    session.disconnect();
                }
            }),
            run(|session| session.disconnect()),
            run(|session| _ = session.logoff()),
        ];
        session.logoff();
        assert!(!session.io());
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(session.closed.load(Ordering::SeqCst), 1);
        assert_eq!(*session.channels.lock().unwrap(), 0);
    });
}

/// A request that waits by nature learns of the end whenever it comes.
#[test]
fn a_wait_ends_with_its_session() {
    explore(|| {
        let session = Session::new();
        let waiting = {
            let session = Arc::clone(&session);
            thread::spawn(move || {
                let Some(operation) = session.under_way.begin() else { return };
                loom::future::block_on(session.under_way.given_up());
                drop(operation);
            })
        };
        assert!(session.logoff());
        waiting.join().unwrap();
    });
}

/// A move of a share tells requests to change nothing more, then looks for those under way, also in uses of
/// the share that it does not know any more: a request that it has missed changes nothing.
#[test]
fn a_move_misses_no_request() {
    explore(|| {
        let whole = Arc::new(UnderWay::default());
        let (ends, is_left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let request = {
            let one = Arc::new(UnderWay::within(Some(Arc::clone(&whole))));
            let (ends, is_left) = (Arc::clone(&ends), Arc::clone(&is_left));
            thread::spawn(move || {
                let operation = one.begin();
                assert!(operation.is_some());
                if !ends.load(Ordering::Acquire) {
                    assert!(!is_left.load(Ordering::SeqCst), "a change after the move");
                }
                drop(operation);
            })
        };
        ends.store(true, Ordering::Release);
        if !whole.has_any() {
            is_left.store(true, Ordering::SeqCst);
        }
        request.join().unwrap();
        assert!(!whole.has_any());
    });
}
