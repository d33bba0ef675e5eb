//! Spans of connections and requests, for a subscriber of [`tracing`] that collects them.
//!
//! Only with the feature `traces`. While no subscriber wants spans of [`TARGET`], a span costs one
//! test of a flag. A request is no child of its connection, which may last for days: each request
//! begins a trace of its own, with a link to the connection's span.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};

use frevo_wire::{Command, Status};
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::objects::activity::Spent;
use crate::objects::refusal::Outcome;

/// The target of all spans. No line of the log has it.
pub const TARGET: &str = "frevo::trace";

/// The facts of a request that its span has as attributes.
pub(crate) struct Facts<'a> {
    /// The address of the client.
    pub(crate) peer: IpAddr,
    /// The number of its connection.
    pub(crate) connection_id: u64,
    pub(crate) session_id: u64,
    pub(crate) message_id: u64,
    pub(crate) command: Command,
    /// The name of the account; None before the logon.
    pub(crate) user: Option<&'a str>,
    pub(crate) share: Option<&'a str>,
    /// The file of the request, shortened; None for a request without a file.
    pub(crate) file: Option<&'a str>,
    /// The length of the request.
    pub(crate) bytes: usize,
}

/// The span of a connection, which ends with it.
pub(crate) fn of_connection(id: u64, peer: SocketAddr) -> Span {
    // The level ERROR has no meaning for the span, except that no filter of log lines drops it.
    tracing::error_span!(target: TARGET, parent: None, "connection",
        otel.kind = "server",
        network.peer.address = %peer.ip(),
        network.peer.port = peer.port(),
        smb.connection_id = id)
}

/// A span for a request; disabled while nobody wants spans. Facts are added by [`tell`].
pub(crate) fn of_request() -> Span {
    tracing::error_span!(target: TARGET, parent: None, "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        network.peer.address = Empty,
        user.name = Empty,
        smb.connection_id = Empty,
        smb.session_id = Empty,
        smb.message_id = Empty,
        smb.async_id = Empty,
        smb.share = Empty,
        smb.file = Empty,
        smb.bytes = Empty,
        smb.status = Empty,
        smb.busy_us = Empty,
        smb.waited_medium_us = Empty,
        smb.waited_others_us = Empty)
}

/// Adds the facts of a request to its span.
pub(crate) fn tell(span: &Span, facts: &Facts<'_>) {
    span.record("otel.name", display(facts.command));
    span.record("network.peer.address", display(facts.peer));
    span.record("smb.connection_id", facts.connection_id);
    span.record("smb.session_id", display(format_args!("{:#x}", facts.session_id)));
    span.record("smb.message_id", facts.message_id);
    span.record("smb.bytes", facts.bytes);
    for (name, value) in
        [("user.name", facts.user), ("smb.share", facts.share), ("smb.file", facts.file)]
    {
        if let Some(value) = value {
            span.record(name, value);
        }
    }
}

/// Runs a request's handler in its span, linked to that of its connection.
pub(crate) async fn traced(
    span: Span,
    connection: &Span,
    running: impl Future<Output = (Outcome, Option<u64>, Spent)>,
) -> (Outcome, Option<u64>, Spent) {
    if span.is_disabled() {
        return running.await;
    }
    span.follows_from(connection);
    let done = running.instrument(span.clone()).await;
    let (outcome, async_id, spent) = &done;
    // MS-SMB2 3.3.4.2: the interim and the final response have the same AsyncId, by which a trace
    // can be matched with them.
    if let Some(async_id) = async_id {
        span.record("smb.async_id", *async_id);
    }
    span.record("smb.status", display(status(outcome)));
    span.record("smb.busy_us", micros(spent.busy));
    span.record("smb.waited_medium_us", micros(spent.medium));
    span.record("smb.waited_others_us", micros(spent.others));
    if is_fault(outcome) {
        span.record("otel.status_code", "ERROR");
    }
    done
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn status(outcome: &Outcome) -> String {
    match outcome {
        Ok(status) => status.to_string(),
        Err(refusal) => refusal.to_string(),
    }
}

/// True for an outcome that is the server's fault, not the client's. OpenTelemetry counts only such
/// outcomes as errors of a server.
fn is_fault(outcome: &Outcome) -> bool {
    const FAULTS: [Status; 5] = [
        Status::INTERNAL_ERROR,
        Status::UNEXPECTED_IO_ERROR,
        Status::INSUFFICIENT_RESOURCES,
        Status::DISK_FULL,
        Status::IO_TIMEOUT,
    ];
    let status = outcome.as_ref().err().and_then(|refusal| refusal.status());
    status.is_some_and(|status| FAULTS.contains(&status))
}
