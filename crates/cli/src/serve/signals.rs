//! Signals that stop or reload the server.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// The action that a signal asks for.
pub(super) enum Cause {
    Stop,
    Reload,
}

pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    has_terminal: bool,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        let on = |kind| signal(kind).map_err(Failure::failed("cannot wait for signals"));
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
            has_terminal: rustix::termios::isatty(std::io::stdin()),
        })
    }

    pub(super) async fn next(&mut self) -> Cause {
        tokio::select! {
            _ = self.terminate.recv() => Cause::Stop,
            _ = self.interrupt.recv() => Cause::Stop,
            // SIGHUP also means that the terminal was closed. Then the server stops instead of
            // reloading.
            _ = self.hangup.recv() => {
                let is_closed = self.has_terminal && !rustix::termios::isatty(std::io::stdin());
                if is_closed { Cause::Stop } else { Cause::Reload }
            }
        }
    }
}
