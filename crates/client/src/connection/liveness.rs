//! The watch over a connection whose server falls silent.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Connection;
use crate::error::Cause;
use crate::limits::{
    DEAD_AFTER, DEAD_AFTER_CONTINUOUS, ECHO_AFTER, ECHO_AFTER_CONTINUOUS, ECHO_WAITING, HELD_UP,
    TARGET_LOOK, UNACKNOWLEDGED_CONTINUOUS, UNACKNOWLEDGED_TARGET,
};

/// Degrees of attention to a silent server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Vigilance {
    /// Nobody else has its files.
    Usual,
    /// Another node may serve its shares.
    Node,
    /// The link that leads to it has other targets.
    Target,
}

/// Ends a connection whose server is silent although answers are due. A server that has
/// answered every request with an interim response gets an ECHO from time to time.
pub(super) async fn keep_watch(connection: Weak<Connection>) {
    let mut echoed = false;
    let mut asked = Instant::now();
    loop {
        let asleep = Instant::now();
        let look = match connection.upgrade().map(|connection| connection.vigilance()) {
            Some(Vigilance::Target) => TARGET_LOOK,
            Some(_) => Duration::from_secs(1),
            None => return,
        };
        sleep(look).await;
        let Some(connection) = connection.upgrade() else { return };
        if connection.is_gone() {
            return;
        }
        // MS-SMB2 3.3.5.2.2: before the negotiation an ECHO ends the connection. The time limit of the
        // attempt counts.
        if connection.agreed.get().is_none() {
            *connection.heard.lock() = Instant::now();
            continue;
        }
        if asleep.elapsed() >= HELD_UP {
            // The sleep took much longer than a second, so this program was suspended. Answers may
            // still wait in the socket, so the server must not count as silent.
            *connection.heard.lock() = Instant::now();
        }
        if connection.waiters.overdue(Instant::now()) {
            connection.fail(Cause::Protocol(
                "it sent an interim response and then no answer for 10 minutes",
            ));
            return;
        }
        let silent = connection.heard.lock().elapsed();
        let is_vigilant = connection.vigilance() != Vigilance::Usual;
        let due = connection.waiters.due(is_vigilant);
        let echo_after = if is_vigilant { ECHO_AFTER_CONTINUOUS } else { ECHO_AFTER };
        if !due || silent < echo_after {
            echoed = false;
            if !due {
                *connection.heard.lock() = Instant::now();
                if connection.waiters.len() == 0 {
                    asked = Instant::now();
                } else if asked.elapsed() >= ECHO_WAITING {
                    asked = Instant::now();
                    let connection = Arc::clone(&connection);
                    tokio::spawn(async move { connection.echo().await });
                }
            }
        } else if silent >= DEAD_AFTER || is_vigilant && is_lost(&connection, silent) {
            connection.fail(io::Error::from(io::ErrorKind::TimedOut).into());
        } else if !echoed {
            echoed = true;
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                let _ = connection.echo().await;
            });
        }
    }
}

/// Returns true if a server whose shares another node can serve counts as lost after this silence.
fn is_lost(connection: &Connection, silent: Duration) -> bool {
    // Without measurements of the path, as over a network in memory, the silence alone counts.
    let measured = connection.facts().filter(|facts| !facts.rtt.is_zero());
    let Some(facts) = measured else { return silent >= DEAD_AFTER_CONTINUOUS };
    // The machine of a slow server takes what is sent: only the server is silent. A machine without
    // power takes nothing.
    let round_trip = facts.rtt + facts.rtt_deviation * 4;
    let patience = match connection.vigilance() {
        Vigilance::Target => UNACKNOWLEDGED_TARGET,
        _ => UNACKNOWLEDGED_CONTINUOUS,
    };
    let patience = patience.max(round_trip * 16);
    if facts.unacknowledged_bytes > 0 && silent.min(facts.since_acknowledged) >= patience {
        return true;
    }
    // A target whose machine takes what is sent is only slow, and no other server has its open files.
    connection.vigilance() != Vigilance::Target
        && silent >= DEAD_AFTER_CONTINUOUS
        && facts.since_acknowledged >= ECHO_AFTER_CONTINUOUS
}
