//! The audit log: who logged on, who was refused and why, who changed what.
//!
//! `docs/audit.md` has the schema. A handler only queues an event, and never waits for
//! that; a thread of its own writes the lines. What does not fit into the queue, or
//! cannot be written, is counted, and the next line says how many events were lost.
//!
//! It may touch `access` and `base`. The rooms above make the events: `objects::audited` those of
//! files, `command::audited` those of requests.

mod event;
mod json;
mod queue;
mod sink;
mod stream;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use frevo_wire::bit_set;
use parking_lot::{Mutex, RwLock};

use crate::base::ambient::{Ambient, Host};
use crate::base::lines::Lines;

pub use event::{Event, Kind, Source, Value};
pub(crate) use queue::Writer;
pub use sink::{File, Journal, Sink, Syslog};
pub use stream::Events;
pub(crate) use stream::{EventSender, channel};

bit_set! {
    /// The operations on files that a share records: its key `audit`.
    Operations(u8) {
        /// Opens, and opens that are refused.
        OPEN = 0x01,
        /// Files, folders and hard links that are made.
        CREATE = 0x02,
        /// Changes of data, once for each handle.
        WRITE = 0x04,
        /// Renames.
        RENAME = 0x08,
        /// Removals.
        DELETE = 0x10,
        /// Changes of owner, group, access list or mode.
        ACL = 0x20,
        /// Changes of times, attributes, extended attributes, reparse points and object IDs.
        ATTRIBUTES = 0x40,
    }
}

/// The events that an operation on a file causes when it succeeds. The tables of information classes
/// and control codes have a column of them, so that no change is without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Recorded {
    /// None: it changes nothing but the handle.
    Nothing,
    /// `attributes` with these parts, at once.
    Attributes(&'static str),
    /// `attributes` with those of times and attributes that it sets, at once.
    Basic,
    /// `write`, when the handle is closed.
    Data,
    /// `rename`, and `delete` of a file that is replaced.
    Rename,
    /// `create` of a hard link, and `delete` of a file that is replaced.
    Link,
    /// `delete`, when the last handle is closed.
    Removal,
}

/// Where events go. Clones share one queue.
#[derive(Clone)]
pub struct Audit(Arc<Inner>);

struct Inner {
    ambient: Arc<dyn Ambient>,
    /// None without a log.
    queue: Option<queue::Queue>,
    streams: RwLock<Vec<EventSender>>,
    refusals: Lines,
    writer: Mutex<Option<Writer>>,
}

impl Audit {
    /// Starts the thread that writes to `sinks`.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> io::Result<Self> {
        Self::start_with(Arc::new(Host), sinks)
    }

    /// As [`Self::start`], with another clock.
    pub fn start_with(ambient: Arc<dyn Ambient>, sinks: Vec<Box<dyn Sink>>) -> io::Result<Self> {
        let queue = queue::Queue::default();
        let writer = Writer::start(queue.clone(), sinks)?;
        Ok(Self::of(ambient, Some(queue), Some(writer)))
    }

    /// An audit log that writes no log: its events go to streams alone.
    pub(crate) fn without_log(ambient: Arc<dyn Ambient>) -> Self {
        Self::of(ambient, None, None)
    }

    fn of(ambient: Arc<dyn Ambient>, queue: Option<queue::Queue>, writer: Option<Writer>) -> Self {
        Self(Arc::new(Inner {
            ambient,
            queue,
            streams: RwLock::default(),
            refusals: Lines::default(),
            writer: Mutex::new(writer),
        }))
    }

    /// The audit log, whose events go to `streams` too.
    pub(crate) fn with_streams(self, streams: Vec<EventSender>) -> Self {
        self.0.streams.write().extend(streams);
        self
    }

    /// Queues an event. It never waits.
    pub fn emit(&self, event: Event) {
        let time = self.0.ambient.now();
        let streams = self.0.streams.read();
        streams.iter().for_each(|stream| stream.send(time, &event));
        drop(streams);
        if let Some(queue) = &self.0.queue {
            queue.push(time, event);
        }
    }

    /// Queues an event that a client can cause without limit, unless its network has
    /// caused too many. The next one says how many were left out.
    pub fn emit_limited(&self, peer: IpAddr, event: impl FnOnce() -> Event) {
        self.0.refusals.tell(peer, |left_out| {
            let event = event();
            self.emit(match left_out {
                Some(count) => event.with("left_out", count),
                None => event,
            });
        });
    }

    /// Opens files anew after what is queued has been written, for those who rotate them.
    pub fn reopen(&self) {
        if let Some(queue) = &self.0.queue {
            queue.reopen();
        }
    }

    /// Writes what is queued and ends the thread. Later events are lost.
    pub fn finish(&self) {
        let writer = self.0.writer.lock().take();
        if let (Some(queue), Some(writer)) = (&self.0.queue, writer) {
            queue.end();
            writer.join();
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("queue", &self.0.queue).finish_non_exhaustive()
    }
}

/// The server's audit log, if it has one. It is set once, before clients are served.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Slot(OnceLock<Audit>);

impl Slot {
    /// Sets the audit log. A second one is ignored.
    pub fn set(&self, audit: Audit) {
        let _ = self.0.set(audit);
    }

    /// Returns the audit log; None if there is none.
    pub fn get(&self) -> Option<&Audit> {
        self.0.get()
    }

    /// Queues the event that `event` makes, if there is an audit log.
    pub fn emit(&self, event: impl FnOnce() -> Event) {
        if let Some(audit) = self.0.get() {
            audit.emit(event());
        }
    }

    /// Like [`Audit::emit_limited`], if there is an audit log.
    pub fn emit_limited(&self, peer: IpAddr, event: impl FnOnce() -> Event) {
        if let Some(audit) = self.0.get() {
            audit.emit_limited(peer, event);
        }
    }
}

/// The operations that a share records.
#[derive(Debug, Clone)]
pub struct ShareAudit {
    /// The audit log that gets the events.
    pub audit: Audit,
    /// Operations on files that are recorded.
    pub operations: Operations,
}
