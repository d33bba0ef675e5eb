//! The way between a node and etcd: requests and answers are slow, or get lost.

use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::model::engine::ModelEngine;
use frevo_etcd::engine::{Confirmed, Done, Engine, Moment, RangeAnswer, Tell, Watching};
use frevo_etcd::types::{Fault, LeaseId, Range, Revision, Txn, TxnAnswer, WatchAnswer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::process::Process;
use super::world::World;
use crate::event;

/// Time after which a request has no answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time from one look at a way that is cut to the next one.
const LOOK: Duration = Duration::from_millis(100);

/// The state of the way between a node and etcd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Road {
    /// Requests do not come to etcd.
    pub(super) loses_requests: bool,
    /// Answers do not come back.
    pub(super) loses_answers: bool,
    /// Some of both take long.
    pub(super) is_slow: bool,
}

/// The etcd of one process.
#[derive(Debug, Clone)]
pub(super) struct Way {
    world: Arc<World>,
    process: Arc<Process>,
    engine: Arc<ModelEngine>,
}

fn silence() -> Fault {
    Fault::Unavailable(String::from("no answer"))
}

impl Way {
    /// The way of a process.
    pub(super) fn new(world: &Arc<World>, process: &Arc<Process>) -> Self {
        // The moment of a confirmation is put in by `send`.
        let engine = Arc::new(world.etcd.engine(Moment::default));
        Self { world: Arc::clone(world), process: Arc::clone(process), engine }
    }

    fn road(&self) -> Road {
        self.world.road(self.process.node)
    }

    /// Makes a request after a while, and tells its end after another one.
    fn send<T: Send + 'static>(
        &self,
        request: impl FnOnce(&ModelEngine, Done<T>) + Send + 'static,
        done: Done<T>,
    ) {
        let way = self.clone();
        tokio::spawn(async move {
            if !way.process.gate.opened().await {
                return;
            }
            let end = way.carry_out(request).await;
            if way.process.gate.opened().await {
                done(end);
            }
        });
    }

    async fn carry_out<T: Send + 'static>(
        &self,
        request: impl FnOnce(&ModelEngine, Done<T>) + Send + 'static,
    ) -> Result<T, Fault> {
        let deadline = Instant::now() + PATIENCE;
        let there = self.world.delay(self.road());
        sleep(there.min(PATIENCE)).await;
        if self.road().loses_requests {
            sleep_until(deadline).await;
            return Err(silence());
        }
        if there >= PATIENCE {
            // Nobody waits for it any more, and it happens all the same.
            let way = self.clone();
            tokio::spawn(async move {
                sleep(there.saturating_sub(PATIENCE)).await;
                way.arrive(request, Box::new(drop));
            });
            return Err(silence());
        }
        let (send, end) = oneshot::channel();
        self.arrive(request, Box::new(|end| _ = send.send(end)));
        let back = self.world.delay(self.road());
        sleep_until((Instant::now() + back).min(deadline)).await;
        if self.road().loses_answers || there + back >= PATIENCE {
            sleep_until(deadline).await;
            return Err(silence());
        }
        end.await.unwrap_or_else(|_| Err(silence()))
    }

    /// The request is at etcd.
    fn arrive<T>(&self, request: impl FnOnce(&ModelEngine, Done<T>), done: Done<T>) {
        if self.process.gate.is_ended() && self.world.dice.lock().percent(50) {
            // A process that has ended may have sent it, or not.
            return;
        }
        self.world.pass();
        request(&self.engine, done);
        self.world.look_at_owners();
        self.world.etcd_is_used();
    }

    /// Requests a confirmation of the lease: its moment is that before the request.
    fn confirm(
        &self,
        request: impl FnOnce(&ModelEngine, Done<Confirmed>) + Send + 'static,
        done: Done<Confirmed>,
    ) {
        let sent = Moment(self.process.clock.seen());
        let done = move |end: Result<Confirmed, Fault>| {
            done(end.map(|confirmed| Confirmed { sent, ..confirmed }));
        };
        self.send(request, Box::new(done));
    }
}

impl Engine for Way {
    fn txn(&self, txn: Txn, done: Done<TxnAnswer>) {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        let request = move |engine: &ModelEngine, done: Done<TxnAnswer>| {
            let claim = world.claim(&txn);
            let judged = move |end: Result<TxnAnswer, Fault>| {
                if let (Some(claim), Ok(answer)) = (claim, &end)
                    && answer.succeeded
                {
                    world.judge_claim(&process, &claim);
                }
                done(end);
            };
            engine.txn(txn, Box::new(judged));
        };
        self.send(request, done);
    }

    fn range(&self, range: Range, done: Done<RangeAnswer>) {
        self.send(move |engine, done| engine.range(range, done), done);
    }

    fn grant(&self, ttl: Duration, done: Done<Confirmed>) {
        let process = Arc::clone(&self.process);
        let request = move |engine: &ModelEngine, done: Done<Confirmed>| {
            let granted = move |end: Result<Confirmed, Fault>| {
                if let Ok(confirmed) = &end {
                    process.is_granted(confirmed.lease);
                }
                done(end);
            };
            engine.grant(ttl, Box::new(granted));
        };
        self.confirm(request, done);
    }

    fn revoke(&self, lease: LeaseId, done: Done<()>) {
        self.send(move |engine, done| engine.revoke(lease, done), done);
    }

    fn keep_alive(&self, lease: LeaseId, done: Done<Confirmed>) {
        self.confirm(move |engine, done| engine.keep_alive(lease, done), done);
    }

    fn watch(&self, prefix: Vec<u8>, after: Revision, tell: Tell) -> Watching {
        let (send, told) = mpsc::unbounded_channel();
        let tells = Box::new(move |answer| _ = send.send(answer));
        let watching = self.engine.watch(prefix, after, tells);
        let task = tokio::spawn(self.clone().tell(told, tell));
        Watching::new(move || {
            drop(watching);
            task.abort();
        })
    }
}

type Told = mpsc::UnboundedReceiver<Result<WatchAnswer, Fault>>;

impl Way {
    /// Tells what a watch has told, a while later and in its order.
    async fn tell(self, mut told: Told, mut tell: Tell) {
        while let Some(answer) = told.recv().await {
            sleep(self.world.delay(self.road())).await;
            if !self.process.gate.opened().await {
                return;
            }
            let is_cut = || self.road().loses_answers || self.road().loses_requests;
            if is_cut() {
                tell(Err(silence()));
                while is_cut() {
                    sleep(LOOK).await;
                }
                if self.world.dice.lock().percent(30) {
                    // etcd has forgotten the changes meanwhile.
                    while told.try_recv().is_ok() {}
                    let oldest = self.world.etcd.change(|etcd| etcd.revision());
                    event!(self.world.trace, "n{}: changes are compacted", self.process.node);
                    if self.process.gate.opened().await {
                        tell(Ok(WatchAnswer::Compacted { oldest }));
                    }
                    return;
                }
                if !self.process.gate.opened().await {
                    return;
                }
            }
            let is_last = matches!(answer, Ok(WatchAnswer::Compacted { .. }));
            tell(answer);
            if is_last {
                return;
            }
        }
    }
}
