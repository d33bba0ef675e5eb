//! The watch over a connection whose server falls silent.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Connection;
use crate::error::Cause;
use crate::limits::{DEAD_AFTER, ECHO_AFTER, ECHO_WAITING, HELD_UP};

/// Ends a connection whose server is silent although answers are due. A server that has
/// answered every request with an interim response gets an ECHO from time to time.
pub(super) async fn keep_watch(connection: Weak<Connection>) {
    let mut echoed = false;
    let mut asked = Instant::now();
    loop {
        let asleep = Instant::now();
        sleep(Duration::from_secs(1)).await;
        let Some(connection) = connection.upgrade() else { return };
        if connection.is_gone() {
            return;
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
        let due = connection.waiters.due();
        if !due || silent < ECHO_AFTER {
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
        } else if silent >= DEAD_AFTER {
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
