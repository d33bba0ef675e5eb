//! The model as an [`Engine`]: one etcd for any number of engines. A request is carried out by the call
//! itself, and its callback is called before the call returns.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frevo_etcd::engine::{Confirmed, Done, Engine, Moment, RangeAnswer, Tell, Watching};
use frevo_etcd::types::{
    Fault, LeaseId, Op, OpAnswer, Range, Revision, Txn, TxnAnswer, WatchAnswer,
};

use super::Etcd;
use crate::interface::{Answer, Request};

/// The fault of an answer that the model does not make.
const OTHER: Fault = Fault::Malformed("the answer is to another kind of request");

/// A model of etcd that several engines use.
#[derive(Debug, Clone, Default)]
pub struct SharedEtcd {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    etcd: Etcd,
    last_watch: u64,
    watches: BTreeMap<u64, Watch>,
}

struct Watch {
    prefix: Vec<u8>,
    /// All changes up to this revision are told.
    told: Revision,
    /// True after [`Fault::Unavailable`] was told.
    is_broken: bool,
    /// None while it is called.
    tell: Option<Tell>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("told", &self.told).finish_non_exhaustive()
    }
}

/// A call of a watch's callback.
struct Call {
    watch: u64,
    tell: Tell,
    answer: Result<WatchAnswer, Fault>,
}

impl State {
    /// The next call of a callback. One that is called at the moment waits for its turn.
    fn next_call(&mut self) -> Option<Call> {
        let Self { etcd, watches, .. } = self;
        let waiting = watches.iter_mut().filter(|(_, watch)| watch.tell.is_some());
        let (number, answer) =
            waiting.filter_map(|(number, watch)| Some((*number, watch.next(etcd)?))).next()?;
        let tell = watches.get_mut(&number)?.tell.take()?;
        if matches!(answer, Ok(WatchAnswer::Compacted { .. })) {
            watches.remove(&number);
        }
        Some(Call { watch: number, tell, answer })
    }
}

impl Watch {
    fn next(&mut self, etcd: &mut Etcd) -> Option<Result<WatchAnswer, Fault>> {
        match etcd.watch(&self.prefix, self.told) {
            Ok(WatchAnswer::Changes { revision, changes }) => {
                let is_mended = core::mem::take(&mut self.is_broken);
                if changes.is_empty() {
                    let revision = self.told;
                    return is_mended.then_some(Ok(WatchAnswer::Changes { revision, changes }));
                }
                self.told = revision;
                Some(Ok(WatchAnswer::Changes { revision, changes }))
            }
            Ok(compacted) => Some(Ok(compacted)),
            Err(fault) => {
                let is_known = core::mem::replace(&mut self.is_broken, true);
                (!is_known).then_some(Err(fault))
            }
        }
    }
}

impl SharedEtcd {
    fn lock(&self) -> MutexGuard<'_, State> {
        // If a test fails in a callback, its message must not be replaced by that of a poisoned
        // lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an engine, whose node has this clock.
    pub fn engine(&self, clock: impl Fn() -> Moment + Send + Sync + 'static) -> ModelEngine {
        ModelEngine { etcd: self.clone(), clock: Box::new(clock) }
    }

    /// Changes the model - its clock, its majority, its history - and has watches told of that.
    pub fn change<T>(&self, change: impl FnOnce(&mut Etcd) -> T) -> T {
        let result = change(&mut self.lock().etcd);
        self.tell();
        result
    }

    /// Tells watches what has changed. Callbacks may call engines and drop watches: no lock is held.
    fn tell(&self) {
        loop {
            let call = self.lock().next_call();
            let Some(Call { watch, mut tell, answer }) = call else { return };
            tell(answer);
            let mut state = self.lock();
            let unwanted = match state.watches.get_mut(&watch) {
                Some(watch) => watch.tell.replace(tell),
                None => Some(tell),
            };
            drop(state);
            drop(unwanted);
        }
    }
}

/// An engine of a model.
pub struct ModelEngine {
    etcd: SharedEtcd,
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
}

impl fmt::Debug for ModelEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelEngine").finish_non_exhaustive()
    }
}

impl ModelEngine {
    fn call(&self, request: &Request) -> Result<Answer, Fault> {
        self.etcd.lock().etcd.call(request)
    }

    /// Answers a request, then tells watches what it has changed.
    fn answer<T>(&self, done: Done<T>, end: Result<T, Fault>) {
        done(end);
        self.etcd.tell();
    }

    fn confirmed(&self, request: &Request) -> Result<Confirmed, Fault> {
        let sent = (self.clock)();
        match self.call(request)? {
            Answer::Confirmed(confirmed) => Ok(Confirmed { sent, ..confirmed }),
            _ => Err(OTHER),
        }
    }

    fn carry_out(&self, txn: Txn) -> Result<TxnAnswer, Fault> {
        match self.call(&Request::Txn(txn))? {
            Answer::Txn(answer) => Ok(answer),
            _ => Err(OTHER),
        }
    }

    fn read(&self, range: Range) -> Result<RangeAnswer, Fault> {
        let txn = Txn { success: vec![Op::Range(range)], ..Txn::default() };
        let answer = self.carry_out(txn)?;
        let revision = answer.revision;
        match answer.answers.into_iter().next() {
            Some(OpAnswer::Range { values, more }) => Ok(RangeAnswer { revision, values, more }),
            _ => Err(OTHER),
        }
    }
}

impl Engine for ModelEngine {
    fn txn(&self, txn: Txn, done: Done<TxnAnswer>) {
        self.answer(done, self.carry_out(txn));
    }

    fn range(&self, range: Range, done: Done<RangeAnswer>) {
        self.answer(done, self.read(range));
    }

    fn grant(&self, ttl: Duration, done: Done<Confirmed>) {
        let end = if ttl < Duration::from_secs(1) || ttl.subsec_nanos() > 0 {
            Err(Fault::Refused("a lease lives for a whole number of seconds".to_string()))
        } else {
            self.confirmed(&Request::Grant(ttl))
        };
        self.answer(done, end);
    }

    fn revoke(&self, lease: LeaseId, done: Done<()>) {
        self.answer(done, self.call(&Request::Revoke(lease)).map(|_| ()));
    }

    fn keep_alive(&self, lease: LeaseId, done: Done<Confirmed>) {
        self.answer(done, self.confirmed(&Request::KeepAlive(lease)));
    }

    fn watch(&self, prefix: Vec<u8>, after: Revision, tell: Tell) -> Watching {
        let mut state = self.etcd.lock();
        state.last_watch = state.last_watch.saturating_add(1);
        let number = state.last_watch;
        let watch = Watch { prefix, told: after, is_broken: false, tell: Some(tell) };
        state.watches.insert(number, watch);
        drop(state);
        self.etcd.tell();
        let etcd = self.etcd.clone();
        Watching::new(move || {
            let watch = etcd.lock().watches.remove(&number);
            drop(watch);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_etcd::types::Change;
    use std::sync::mpsc::{Receiver, channel};

    const PREFIX: &[u8] = b"w/";

    fn put(name: &str) -> Txn {
        let key = [PREFIX, name.as_bytes()].concat();
        let success = vec![Op::Put { key, value: Vec::new(), lease: LeaseId(0) }];
        Txn { success, ..Txn::default() }
    }

    type Told = Receiver<Result<WatchAnswer, Fault>>;

    fn watch(engine: &ModelEngine, after: Revision) -> (Told, Watching) {
        let (send, told) = channel();
        let tell = Box::new(move |answer| send.send(answer).unwrap());
        (told, engine.watch(PREFIX.to_vec(), after, tell))
    }

    fn names(told: &Told) -> Vec<Vec<u8>> {
        let changes = told.try_iter().flat_map(|answer| match answer {
            Ok(WatchAnswer::Changes { changes, .. }) => changes,
            other => panic!("{other:?}"),
        });
        let name = |change| match change {
            Change::Put(entry) => entry.key,
            Change::Delete { key, .. } => key,
        };
        changes.map(name).collect()
    }

    #[test]
    fn a_watch_is_told_by_the_call_and_ends_when_it_is_dropped() {
        let etcd = SharedEtcd::default();
        let (one, two) = (etcd.engine(Moment::default), etcd.engine(Moment::default));
        let (told, watching) = watch(&one, Revision(0));
        two.txn(put("a"), Box::new(|end| assert!(end.unwrap().succeeded)));
        assert_eq!(names(&told), [b"w/a"]);
        drop(watching);
        two.txn(put("b"), Box::new(drop));
        assert_eq!(names(&told), Vec::<Vec<u8>>::new());
        assert!(etcd.lock().watches.is_empty());
    }

    /// A callback of a watch makes the next change, and is told it after its own end.
    #[test]
    fn a_callback_may_use_the_engine() {
        let etcd = SharedEtcd::default();
        let (send, told) = channel();
        let inner = etcd.engine(Moment::default);
        let mut left = 3;
        let tell = Box::new(move |answer| {
            send.send(answer).unwrap();
            if left > 0 {
                left -= 1;
                inner.txn(put(&left.to_string()), Box::new(|end| assert!(end.is_ok())));
            }
        });
        let engine = etcd.engine(Moment::default);
        let _watching = engine.watch(PREFIX.to_vec(), Revision(0), tell);
        engine.txn(put("x"), Box::new(drop));
        assert_eq!(names(&told), [b"w/x", b"w/2", b"w/1", b"w/0"]);
    }

    #[test]
    fn a_lost_majority_is_told_once_and_a_compaction_ends_the_watch() {
        let etcd = SharedEtcd::default();
        let engine = etcd.engine(Moment::default);
        let (told, _watching) = watch(&engine, Revision(1));
        etcd.change(|etcd| etcd.set_majority(false));
        etcd.change(|etcd| etcd.pass(Moment(Duration::from_secs(1))));
        assert!(matches!(told.try_iter().collect::<Vec<_>>()[..], [Err(Fault::Unavailable(_))]));
        engine.txn(put("a"), Box::new(|end| assert!(matches!(end, Err(Fault::Unavailable(_))))));
        etcd.change(|etcd| etcd.set_majority(true));
        let mended = WatchAnswer::Changes { revision: Revision(1), changes: Vec::new() };
        assert_eq!(told.try_recv(), Ok(Ok(mended)));
        engine.txn(put("a"), Box::new(drop));
        engine.txn(put("b"), Box::new(drop));
        etcd.change(Etcd::compact);
        assert_eq!(names(&told), [b"w/a", b"w/b"]);
        let (told, _watching) = watch(&engine, Revision(1));
        let compacted = WatchAnswer::Compacted { oldest: Revision(3) };
        assert_eq!(told.recv(), Ok(Ok(compacted)));
        assert!(told.recv().is_err(), "the callback is gone");
    }

    #[test]
    fn a_confirmation_has_the_clock_of_its_node() {
        let etcd = SharedEtcd::default();
        let moment = Moment(Duration::from_secs(77));
        let engine = etcd.engine(move || moment);
        let ttl = Duration::from_secs(2);
        let granted = Box::new(move |end: Result<Confirmed, Fault>| {
            let confirmed = end.unwrap();
            assert_eq!((confirmed.ttl, confirmed.sent), (ttl, moment));
        });
        engine.grant(ttl, granted);
        engine.grant(ttl / 4, Box::new(|end| assert!(matches!(end, Err(Fault::Refused(_))))));
    }
}
