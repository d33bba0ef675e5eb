//! The commands: one table of what must hold before a handler runs, one place
//! that chooses the handler, one file for each handler.
//!
//! It may touch the objects and all below them, and `ipc` for requests to pipes. `request` and
//! `response` are what a handler gets and gives; `blocking_requests` runs handlers on other threads.

pub(crate) mod blocking_requests;
pub(crate) mod change_notify;
pub(crate) mod client_memory;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod echo;
pub(crate) mod flush;
pub(crate) mod ioctl;
pub(crate) mod lock;
pub(crate) mod logoff;
pub(crate) mod negotiate;
pub(crate) mod oplock_break;
pub(crate) mod paced;
pub(crate) mod query_directory;
pub(crate) mod query_info;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod session_setup;
pub(crate) mod set_info;
pub(crate) mod tree_connect;
pub(crate) mod tree_disconnect;
pub(crate) mod write;

pub(crate) mod again;
#[doc(hidden)]
pub(crate) mod audited;
pub(crate) mod braking;
pub(crate) mod handled;
mod host_lists;
mod refused;
mod spelling;
mod table;

pub use table::row;
pub(crate) use table::{Ends, FileIdAt, Handler, NEGOTIATE, OffCore, Refusals, Row, Waits};

use std::pin::pin;

use crate::base::host::denials;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::refusal::{Doom, Outcome, Refusal};

/// Runs the handler of a request whose row, of which `handler` is a column, holds.
pub(crate) async fn dispatch(rq: &Request<'_>, handler: Handler, out: &mut Response) -> Outcome {
    denials::forget();
    if let Err(refusal) = braking::check(rq) {
        return refused::outcome(rq, Err(refusal));
    }
    // The future is pinned before it is awaited, so that its state is not copied.
    refused::outcome(rq, pin!(handle(rq, handler, out)).await)
}

async fn handle(rq: &Request<'_>, handler: Handler, out: &mut Response) -> Outcome {
    match handler {
        Handler::Negotiate => negotiate::handle(rq, rq.owner()?, out),
        // The future is boxed, so that requests other than logons need no memory for its state.
        Handler::SessionSetup => Box::pin(session_setup::handle(rq, rq.owner()?, out)).await,
        Handler::Logoff => logoff::handle(rq, out).await,
        Handler::TreeConnect => tree_connect::handle(rq, out),
        Handler::TreeDisconnect => tree_disconnect::handle(rq, out).await,
        Handler::Create => pin!(create::handle(rq, out)).await,
        Handler::Close => close::handle(rq, out).await,
        Handler::Flush => flush::handle(rq, out).await,
        Handler::Read => read::handle(rq, out).await,
        Handler::Write => write::handle(rq, out).await,
        Handler::Lock => lock::handle(rq, out).await,
        Handler::Ioctl => ioctl::handle(rq, out).await,
        Handler::Echo => echo::handle(rq, out),
        Handler::QueryDirectory => query_directory::handle(rq, out).await,
        Handler::ChangeNotify => change_notify::handle(rq, out).await,
        Handler::QueryInfo => query_info::handle(rq, out).await,
        Handler::SetInfo => set_info::handle(rq, out).await,
        Handler::OplockBreak => oplock_break::handle(rq, out).await,
        Handler::Connection => Err(Refusal::Disconnect(Doom::Rule("a CANCEL has no answer"))),
    }
}
