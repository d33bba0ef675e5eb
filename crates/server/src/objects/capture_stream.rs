//! A capture of messages as a pcapng file that goes out in blocks, by the admin interface. The server needs no
//! right to write a file for it.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::Waker;

use frevo_capture::cut::CaptureData;
use frevo_capture::live::{Capture, Source};
pub use frevo_capture::recorder::Outcome as Captured;
use frevo_capture::recorder::Settings;

use crate::audit::{Event, Kind};
use crate::base::limits::CAPTURE_QUEUED_BYTES;
use crate::objects::captures::{CaptureTarget, Running};
use crate::objects::ledger::{self, Charge};
use crate::objects::server::ServerState;

/// The reason why no capture begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCaptured {
    /// There is a capture already.
    UnderWay,
    /// There is no memory for its queue.
    NoMemory,
}

impl fmt::Display for NotCaptured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnderWay => "there is a capture already; a server makes one at a time",
            Self::NoMemory => {
                "there is no memory for a capture; try it later, or raise limits.memory"
            }
        })
    }
}

/// The blocks of a capture. Dropping it ends the capture.
pub struct CaptureStream {
    server: Arc<ServerState>,
    number: u64,
    source: Source,
    /// The memory of its queue.
    _charge: Charge,
    target: String,
    by: String,
}

impl fmt::Debug for CaptureStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureStream").field("target", &self.target).finish_non_exhaustive()
    }
}

impl CaptureStream {
    /// Puts the next blocks of the file into `out`, in place of what it holds; none if no message waits. Returns
    /// false after the last block.
    pub fn next(&mut self, out: &mut Vec<u8>) -> bool {
        self.source.next(out)
    }

    /// Has `waker` called once much waits, or the capture has ended. Little that waits wakes nobody: look
    /// again after a moment.
    pub fn wake_by(&self, waker: &Waker) {
        self.source.wake_by(waker);
    }

    /// Takes no more messages. [`Self::next`] returns those that wait, and the end of the file.
    pub fn end(&self) {
        self.server.captures.end(self.number);
        self.source.end();
    }

    /// Returns what the blocks had so far.
    pub const fn captured(&self) -> Captured {
        self.source.outcome()
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        self.end();
        let Captured { messages, dropped, .. } = self.source.outcome();
        let (target, by) = (std::mem::take(&mut self.target), std::mem::take(&mut self.by));
        tracing::info!(target: "frevo::admin", whom = target, by, frames = messages, dropped,
            "a capture has ended");
        self.server.audit.emit(|| {
            let event = Event::new(Kind::Capture).with("change", "end").with("target", target);
            event.with("by", by).with("frames", messages).with("dropped", dropped)
        });
    }
}

/// The form of a capture, and who asks for it.
pub(crate) struct Wanted<'a> {
    /// Largest size of the file, bytes.
    pub(crate) bytes: u64,
    /// The data of files that is kept.
    pub(crate) data: CaptureData,
    pub(crate) keeps_secrets: bool,
    /// The administrator, for the log.
    pub(crate) by: &'a str,
}

/// Begins a capture.
pub(crate) fn begin(
    server: &Arc<ServerState>,
    target: CaptureTarget,
    wanted: &Wanted<'_>,
) -> Result<CaptureStream, NotCaptured> {
    let &Wanted { bytes, data, keeps_secrets, by } = wanted;
    let shown = target.to_string();
    let settings = Settings {
        bytes,
        keeps_secrets,
        data,
        application: format!("frevo {}", env!("CARGO_PKG_VERSION")),
        comment: format!("a capture of a server of Frevo: {shown}"),
    };
    let mut made = None;
    let begun = server.captures.begin(|number| {
        // An administrator is on this machine, and no account.
        let holder = server.ledger.network(Ipv4Addr::LOCALHOST.into());
        let charge = holder.charge(ledger::Kind::Capture, CAPTURE_QUEUED_BYTES);
        let charge = charge.map_err(|_| NotCaptured::NoMemory)?;
        let (capture, source) = Capture::new(&settings, CAPTURE_QUEUED_BYTES);
        made = Some((source, charge));
        Ok(Running { number, capture, target })
    });
    let number = begun.unwrap_or(Err(NotCaptured::UnderWay))?;
    let (source, charge) = made.ok_or(NotCaptured::UnderWay)?;
    tracing::info!(target: "frevo::admin", whom = shown, by, secrets = keeps_secrets,
        "a capture begins");
    server.audit.emit(|| {
        let event = Event::new(Kind::Capture).with("change", "begin").with("target", shown.clone());
        let event = event.with("by", by).with("secrets", keeps_secrets);
        event.with("data", data.to_string())
    });
    let (server, by) = (Arc::clone(server), by.to_owned());
    Ok(CaptureStream { server, number, source, _charge: charge, target: shown, by })
}
