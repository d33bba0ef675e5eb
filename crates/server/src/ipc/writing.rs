//! WRITEs into a pipe: its calls, the tokens in them, and the work that they leave.

use std::sync::Arc;

use frevo_rpc::{Answer, PipeError, Token};
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use super::authentication::Exchange;
use super::peer::Peer;
use super::services::{CallEnds, Caller};
use super::table::{Association, Unfinished, Work};
use super::waits::Event;
use super::{authentication, manage, password, waits};
use crate::base::limits::HOST_LOOKUP_TIMEOUT;
use crate::command::request::Request;
use crate::objects::open::Open;
use crate::objects::pipe::{Pipe, PipeEnd};
use crate::objects::refusal::Refusal;
use crate::objects::session::Identity;

/// Writes; until the turn that comes back ends, nothing else is answered elsewhere.
pub(super) async fn put(
    rq: &Request<'_>,
    open: &Arc<Open>,
    data: &[u8],
) -> Result<(u32, Option<OwnedSemaphorePermit>), Refusal> {
    open.require_any(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)?;
    let count = u32::try_from(data.len()).map_err(|_| Status::INVALID_PARAMETER)?;
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let ends = CallEnds::of(rq);
    let (kind, is_work) = {
        let pipe = open.pipe()?.lock();
        (pipe.kind, pipe.is_work(data))
    };
    let manages = kind.is_managed && manage::is_administrator(rq.server(), &identity);
    let (mut turn, mut rest) = (None, data.to_vec());
    loop {
        if is_work || manages {
            let (data, by) = (std::mem::take(&mut rest), Arc::clone(&identity));
            let (written, held) = write_elsewhere(rq, open, data, by, manages, turn.take()).await?;
            (rest, turn) = (written?, Some(held));
        } else {
            let mut pipe = open.pipe()?.lock();
            pipe.reserve(rest.len())?;
            let caller = Caller::new(rq.server(), &identity, ends);
            let mut association = taken(&mut pipe)?;
            let written = association.write(&rest, &caller).map(<[u8]>::to_vec).map_err(status);
            rest = pipe.put_back(association, written)?;
        }
        let asked = asked(open)?;
        let has_judged = match asked {
            Some(asked) => settle(rq, open, &identity, asked).await?,
            None => false,
        };
        if rest.is_empty() {
            return Ok((count, turn));
        }
        if !has_judged {
            // An earlier WRITE still waits for the verdict on its security token, so the pipe is
            // busy.
            return Err(Status::PIPE_BUSY.into());
        }
    }
}

/// Takes the association out of its pipe, which gets it back.
fn taken(pipe: &mut Pipe) -> Result<Box<Association>, Status> {
    let end: Option<Box<dyn PipeEnd>> = pipe.end.take();
    end.and_then(Association::of).ok_or(Status::PIPE_DISCONNECTED)
}

const fn status(error: PipeError) -> Status {
    match error {
        PipeError::Disconnected => Status::PIPE_DISCONNECTED,
        PipeError::Unread => Status::PIPE_BUSY,
    }
}

/// The steps of an association that wait for the server.
struct Asked {
    token: Option<Token>,
    exchange: Option<Box<Exchange>>,
    unfinished: Vec<Unfinished>,
}

/// Takes the steps that wait for the server; None if there are none.
fn asked(open: &Open) -> Result<Option<Asked>, Status> {
    let mut pipe = open.pipe()?.lock();
    let Ok(mut association) = taken(&mut pipe) else { return Ok(None) };
    let token = association.endpoint.token();
    let exchange = if token.is_some() { association.exchange.take() } else { None };
    let unfinished = std::mem::take(&mut association.unfinished);
    pipe.put_back(association, Ok(()))?;
    let has_none = token.is_none() && unfinished.is_empty();
    Ok((!has_none).then_some(Asked { token, exchange, unfinished }))
}

/// Judges the token that the client has sent, if there is one, and does the work of its calls.
/// Returns true after a verdict: the bytes that were not taken are to be written again.
async fn settle(
    rq: &Request<'_>,
    open: &Arc<Open>,
    identity: &Arc<Identity>,
    asked: Asked,
) -> Result<bool, Status> {
    let Asked { token, mut exchange, unfinished } = asked;
    let peer = Peer::of(rq);
    let verdict = match &token {
        Some(token) => Some(authentication::judge(&peer, identity, token, &mut exchange).await),
        None => None,
    };
    let mut answers = Vec::with_capacity(unfinished.len());
    let mut begun = Vec::new();
    for Unfinished { call_id, level, work } in unfinished {
        match work {
            Work::ChangePassword(change) => {
                answers.push((call_id, password::answer(&peer, identity, level, change).await));
            }
            Work::Await(event) => match waits::charge(rq.session()?.holder()) {
                Ok(charge) => begun.push((call_id, event, charge)),
                Err(fault) => answers.push((call_id, Err(fault))),
            },
        }
    }
    let mut pipe = open.pipe()?.lock();
    let mut association = taken(&mut pipe)?;
    let has_judged = verdict.is_some();
    if let Some(verdict) = verdict {
        association.exchange = exchange;
        association.endpoint.judge(verdict);
    }
    for (call_id, answer) in answers {
        association.endpoint.complete(call_id, answer);
    }
    for (call_id, event, charge) in begun {
        let task = wait_for(open, call_id, event);
        association.waits.add(call_id, task, charge);
    }
    pipe.put_back(association, Ok(has_judged))
}

/// Waits for the answer to a call, in a task on the core of the connection whose WRITE began the call:
/// any connection of the session may read the answer.
fn wait_for(open: &Arc<Open>, call_id: u32, event: Event) -> AbortHandle {
    // The pipe owns the task. So the task must not own the pipe.
    let open = Arc::downgrade(open);
    let task = tokio::spawn(async move {
        let answer = event.await;
        if let Some(open) = open.upgrade() {
            // A pipe that was closed meanwhile needs no answer.
            let _ = complete(&open, call_id, answer).await;
        }
    });
    task.abort_handle()
}

/// Puts the answer to a call into its pipe.
async fn complete(open: &Open, call_id: u32, answer: Answer) -> Result<(), Status> {
    let turns = Arc::clone(&open.pipe()?.lock().turn);
    // A WRITE on another thread may have taken the association out of the pipe. It holds the turn
    // while it does so.
    let _turn = turns.acquire_owned().await.map_err(|_| Status::PIPE_DISCONNECTED)?;
    let mut pipe = open.pipe()?.lock();
    let mut association = taken(&mut pipe)?;
    association.endpoint.complete(call_id, answer);
    // Removing the call aborts the task that runs this function. The abort has no effect, because
    // the task awaits nothing after this line.
    association.waits.keep(|id| id != call_id);
    pipe.put_back(association, Ok(()))
}

/// A write on another thread: the bytes that were not taken, and the turn, until whose end nothing
/// else is answered elsewhere.
type WrittenElsewhere = (Result<Vec<u8>, Status>, OwnedSemaphorePermit);

/// Writes on a thread that may wait for the host's name service, or compute for long: several
/// messages, or calls of a user that `manages` the server. The pipe is not locked meanwhile, so
/// that other requests can use it. The answer is put into the pipe even when its request has ended.
async fn write_elsewhere(
    rq: &Request<'_>,
    open: &Arc<Open>,
    data: Vec<u8>,
    identity: Arc<Identity>,
    manages: bool,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<WrittenElsewhere, Status> {
    let (turns, asks_host) = {
        let pipe = open.pipe()?.lock();
        (Arc::clone(&pipe.turn), pipe.kind.asks_host)
    };
    let turn = match turn {
        Some(turn) => turn,
        None => {
            let turn = tokio::time::timeout(HOST_LOOKUP_TIMEOUT, turns.acquire_owned()).await;
            turn.map_err(|_| Status::IO_TIMEOUT)?.map_err(|_| Status::PIPE_DISCONNECTED)?
        }
    };
    let (server, open) = (Arc::clone(rq.server()), Arc::clone(open));
    let ends = CallEnds::of(rq);
    let manager = manages.then(Handle::current);
    let written = move || {
        let pipe = open.pipe()?;
        // This request holds the pipe's turn, so no other request has taken the association out of
        // the pipe.
        let mut association = {
            let mut pipe = pipe.lock();
            pipe.reserve(data.len())?;
            taken(&mut pipe)?
        };
        let caller = Caller { manager, ..Caller::new(&server, &identity, ends) };
        let written = association.write(&data, &caller).map(<[u8]>::to_vec).map_err(status);
        pipe.lock().put_back(association, written)
    };
    let written = move || (written(), turn);
    if asks_host { rq.naming(written).await } else { rq.beside_core(written).await }
}
