//! The seam at which requests wait for limits of rate: READ, WRITE, copies and RDMA pass it alike.
//!
//! A request passes it before it takes memory for its answer, a place in a pool or a lock. Over its limit it waits
//! in the line of the rule, and keeps its message alone. Meanwhile its connection gives few credits, and pauses
//! reading when much waits. Requests that give something back (CLOSE, LOGOFF, acknowledgments, unlocks) do not
//! come here, nor do ECHO, CANCEL and logons.

use std::cell::OnceCell;
use std::pin::pin;
use std::sync::Arc;

use frevo_wire::command::{read, write};
use frevo_wire::{Command, Status};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::ioctl::{self, Copying};
use crate::access::access_rules::Caller;
use crate::base::limits::{INTERIM_AFTER, RATE_WEIGHT};
use crate::base::rates::{Clock, Flow, HeldRequest, Moved};
use crate::command::Row;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::rates::{At, Demand, RateFlow, Work, Worker};
use crate::objects::refusal::Outcome;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::brake::Braked;
use crate::shares::share::Target;

/// The price that a request has paid at the limits.
/// A request that is given up gets nothing back: the disk reads on for it.
pub(crate) struct Paid {
    work: Work,
    clock: Clock,
}

impl Paid {
    /// Gives back what a READ has paid for beyond the data that it has read, and the bytes of another request that
    /// has failed. Its operation stays paid.
    pub(crate) fn settle(self, rq: &Request<'_>, out: &Response, outcome: &Outcome) {
        let has_failed = outcome.is_err();
        let (used, read) = match rq.header.command {
            // It has read data, of which its client wants none.
            Command::READ if has_failed && wants_least(rq) => return self.keep(),
            Command::READ => (Demand { read: out.data_bytes() as u64, ..Demand::default() }, 0),
            Command::IOCTL => {
                let Moved { read, written } = out.moved();
                (Demand { write: written, ..Demand::default() }, read)
            }
            _ if has_failed => (Demand::default(), 0),
            _ => return self.keep(),
        };
        self.work.settle(used, read, self.clock.now());
    }

    /// Gives nothing back.
    pub(crate) fn keep(self) {
        drop(self);
    }
}

/// True for a READ that fails if there is less than it says.
fn wants_least(rq: &Request<'_>) -> bool {
    read::Request::parse(rq.message).is_ok_and(|request| request.minimum_count > 0)
}

/// The gates that a request has passed. What they have taken is given back unless it passes all.
struct Passed<'a> {
    work: &'a Work,
    until: At,
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.work.give_back(self.until);
    }
}

/// Waits until all limits of rate have room for a request. None where there are none for it, or it has passed
/// them already.
///
/// The future is boxed by its caller: requests without limits need no memory for its state.
///
/// # Errors
/// CANCELLED when the client cancels or has gone.
pub(crate) async fn admit(rq: &Request<'_>, row: &'static Row) -> Result<Option<Paid>, Status> {
    if !row.is_paced || rq.pace.is_admitted.replace(true) {
        return Ok(None);
    }
    let demanded = OnceCell::new();
    loop {
        let work = work(rq, &demanded);
        if work.is_free() {
            return Ok(None);
        }
        if pass(rq, &work).await? {
            let clock = rq.server().rates.clock;
            return Ok(Some(Paid { work, clock }));
        }
        // Other rules are in force now. Others of the core have their turns before it tries again.
        yield_now().await;
    }
}

/// Waits for the turn of a request whose client the brake of its share slows down.
///
/// # Errors
/// CANCELLED when the client cancels or has gone.
pub(crate) async fn slow_down(rq: &Request<'_>, braked: &Braked) -> Result<(), Status> {
    let (Some(gate), clock) = (braked.gate(), braked.clock()) else { return Ok(()) };
    if gate.try_pass(1, clock.now()) {
        return Ok(());
    }
    let flow = Flow { id: rq.session()?.id, weight: RATE_WEIGHT };
    let _closed = held_back(rq, gate.pass(flow, 1, clock)).await?;
    rq.still_served()
}

/// The outcome of a wait for a limit. Meanwhile the connection of the request gives few credits.
///
/// # Errors
/// CANCELLED when the client cancels or has gone.
async fn held_back<T>(rq: &Request<'_>, wait: impl Future<Output = T>) -> Result<T, Status> {
    let clock = rq.server().rates.clock;
    let held = rq.owner.map(|owner| HeldRequest::new(owner.held_back(), rq.message.len()));
    let since = clock.now();
    rq.pace.is_held.set(true);
    let passed = unless_over(rq, wait).await;
    rq.pace.is_held.set(false);
    let waited = clock.now().saturating_sub(since);
    rq.pace.held.set(rq.pace.held.get().saturating_add(waited));
    drop(held);
    passed.ok_or(Status::CANCELLED)
}

/// The demands of a request.
struct Demanded {
    /// Those of its own tree connect.
    own: Demand,
    /// Those of a copy's source.
    source: Option<Source>,
}

/// The tree connect that a copy reads from.
struct Source {
    tree: Arc<TreeConnect>,
    read: u64,
}

/// The work of a request under the rules of now. What it demands is found out once, and only if there is a rule.
fn work(rq: &Request<'_>, known: &OnceCell<Demanded>) -> Work {
    let mut work = Work::default();
    let Some(tree) = &rq.tree else { return work };
    let own = flow(rq, tree);
    let logical = rq.open.as_ref().and_then(|open| open.logical_flow());
    // Another share may have limits for what a copy reads.
    if own.is_none() && logical.is_none() && rq.header.command != Command::IOCTL {
        return work;
    }
    let demanded = known.get_or_init(|| demanded(rq));
    if let (Some(logical), Some(session)) = (logical, &rq.session) {
        work.add_flow(logical, session.id, demanded.own);
    }
    if let Some(flow) = own {
        work.add(flow, demanded.own);
    }
    if let Some(Source { tree, read }) = &demanded.source
        && let Some(flow) = flow(rq, tree)
    {
        work.add_source(flow, *read);
    }
    work
}

/// The rules for a request in the share of `tree`. None for one without an account, or about pipes.
fn flow(rq: &Request<'_>, tree: &TreeConnect) -> Option<Arc<RateFlow>> {
    let session = rq.session.as_ref()?;
    if matches!(tree.share.target, Target::Pipes) {
        return None;
    }
    let (rates, address) = (&rq.server().rates, rq.connection.peer.ip());
    tree.rates.flow(rates.version(), address, || {
        let identity = session.identity_for_rates()?;
        let domain_sids = rq.server().domain_names.sids();
        let caller = Caller {
            user: &identity.user,
            groups: &identity.groups,
            groups_are_known: identity.host.is_known(),
            token: &identity.token,
            domain_sids: &domain_sids,
            address,
        };
        let worker = Worker {
            caller: &caller,
            session: session.id,
            lives: &session.under_way,
            holder: session.holder(),
        };
        Some(rates.pick(worker, tree.share.name_for_rates()))
    })
}

/// Passes all gates. False when a rule was ended; then nothing stays paid, nor does it after a failure.
async fn pass(rq: &Request<'_>, work: &Work) -> Result<bool, Status> {
    let clock = rq.server().rates.clock;
    let mut gates = Passed { work, until: At::FIRST };
    while let Some(at) = work.try_pass(gates.until, clock.now()) {
        gates.until = at;
        let passed = held_back(rq, work.wait(at, clock)).await?;
        let Ok(next) = passed else { return Ok(false) };
        gates.until = next;
        rq.still_served()?;
    }
    gates.until = At::FIRST;
    Ok(true)
}

/// The outcome of a wait for a limit. None when the client cancels or goes before, or the session, the tree connect
/// or the Open of the request ends: these wait for their requests, also in the middle of a compound.
async fn unless_over<T>(rq: &Request<'_>, wait: impl Future<Output = T>) -> Option<T> {
    let mut wait = pin!(wait);
    // A short wait is not announced. A longer one is, like each wait for other clients.
    let passed = async {
        tokio::select! {
            biased;
            passed = &mut wait => return Some(passed),
            () = sleep(INTERIM_AFTER) => {}
        }
        match rq.owner.filter(|_| rq.pace.is_unannounced.get()) {
            None => rq.cancellation.unless_told(wait).await,
            Some(owner) => tokio::select! {
                biased;
                passed = wait => Some(passed),
                () = owner.ended() => None,
            },
        }
    };
    tokio::select! {
        biased;
        passed = passed => passed,
        () = rq.given_up() => None,
    }
}

/// The work that a request asks for.
fn demanded(rq: &Request<'_>) -> Demanded {
    if rq.header.command == Command::IOCTL {
        return demanded_by_ioctl(rq);
    }
    Demanded { own: demanded_by_data(rq), source: None }
}

/// The work of a copy on the server, or of another IOCTL. A copy counts as read in the share that it reads from,
/// and as written in its own.
fn demanded_by_ioctl(rq: &Request<'_>) -> Demanded {
    let Copying { read, write, source } = ioctl::copying(rq);
    let source = source.map(|open| Source { tree: open.tree(), read });
    Demanded { own: Demand { read: 0, write, operations: 1 }, source }
}

/// The work of a READ, a WRITE, or of a command without data.
fn demanded_by_data(rq: &Request<'_>) -> Demand {
    let most = rq.connection.negotiated().map_or(0, |n| n.terms.max_payload());
    let one = Demand { operations: 1, ..Demand::default() };
    match rq.header.command {
        Command::READ => {
            let length = read::Request::parse(rq.message).map_or(0, |request| request.length);
            Demand { read: u64::from(length.min(most)), ..one }
        }
        Command::WRITE => {
            let Ok(request) = write::Request::parse(rq.message) else { return one };
            // Data that comes by RDMA is not in the message, and has not been fetched.
            let remote =
                if rq.connection.moves_data() { request.remaining_bytes.min(most) } else { 0 };
            Demand { write: (request.data.len() as u64).max(u64::from(remote)), ..one }
        }
        _ => one,
    }
}
