//! Any engine as a [`Subject`] of the table of cases.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use std::sync::mpsc::{Receiver, channel};

use frevo_etcd::engine::{Done, Engine};
use frevo_etcd::types::{Fault, Revision, WatchAnswer};

use super::table::Subject;
use crate::interface::{Answer, Request};

/// The longest time for which an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// An engine, with what the table needs besides it.
pub struct EngineSubject<'a> {
    /// The engine. It may answer in other threads.
    pub engine: &'a dyn Engine,
    /// The beginning of the keys of the case under way.
    pub prefix: Vec<u8>,
    /// Lets time pass.
    pub wait: Box<dyn FnMut(Duration) + 'a>,
    /// Forgets all states of keys before the present one.
    pub compact: Box<dyn FnMut() + 'a>,
}

impl fmt::Debug for EngineSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineSubject").field("engine", &self.engine).finish_non_exhaustive()
    }
}

fn silent() -> Fault {
    Fault::Unavailable("the engine does not call back".to_string())
}

/// Makes a request and waits for its end.
fn ask<T: Send + 'static>(request: impl FnOnce(Done<T>)) -> Result<T, Fault> {
    let (send, end) = channel();
    // The send fails if the receiver below has timed out.
    request(Box::new(move |end| drop(send.send(end))));
    end.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(silent()))
}

impl Subject for EngineSubject<'_> {
    fn prefix(&self) -> Vec<u8> {
        self.prefix.clone()
    }

    fn call(&mut self, request: Request) -> Result<Answer, Fault> {
        let engine = self.engine;
        match request {
            Request::Grant(ttl) => ask(|done| engine.grant(ttl, done)).map(Answer::Confirmed),
            Request::KeepAlive(lease) => {
                ask(|done| engine.keep_alive(lease, done)).map(Answer::Confirmed)
            }
            Request::Revoke(lease) => {
                ask(|done| engine.revoke(lease, done)).map(|()| Answer::Revoked)
            }
            Request::Txn(txn) => ask(|done| engine.txn(txn, done)).map(Answer::Txn),
            Request::Watch { .. } => {
                Err(Fault::Refused("a watch has no single answer".to_string()))
            }
        }
    }

    fn changes(
        &mut self,
        prefix: &[u8],
        told: Revision,
        count: usize,
    ) -> Result<WatchAnswer, Fault> {
        let (send, answers) = channel();
        let tell = Box::new(move |answer| drop(send.send(answer)));
        let watching = self.engine.watch(prefix.to_vec(), told, tell);
        let all = collect(&answers, told, count);
        drop(watching);
        all
    }

    fn wait(&mut self, time: Duration) {
        (self.wait)(time);
    }

    fn compact(&mut self) {
        (self.compact)();
    }
}

fn collect(
    answers: &Receiver<Result<WatchAnswer, Fault>>,
    told: Revision,
    count: usize,
) -> Result<WatchAnswer, Fault> {
    let (mut newest, mut all) = (told, Vec::new());
    while all.len() < count {
        match answers.recv_timeout(PATIENCE).map_err(|_| silent())? {
            Ok(WatchAnswer::Changes { revision, changes }) => {
                newest = revision;
                all.extend(changes);
            }
            Ok(compacted) => return Ok(compacted),
            // The watch goes on by itself.
            Err(Fault::Unavailable(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(WatchAnswer::Changes { revision: newest, changes: all })
}
