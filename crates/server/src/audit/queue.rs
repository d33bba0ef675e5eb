//! The queue between those who cause events and the thread that writes them.

use std::collections::vec_deque::Iter;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use frevo_wire::dtyp::FileTime;
use parking_lot::{Condvar, Mutex};

use super::Sink;
use super::event::Event;
use super::json;
use crate::base::host;
use crate::base::limits::{
    AUDIT_BATCH, AUDIT_COMPLAINTS, AUDIT_PAUSE, AUDIT_QUEUE, AUDIT_QUEUE_BYTES, AUDIT_WRITE_BYTES,
};

/// Events that wait to be written.
#[derive(Clone, Default)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    events: VecDeque<(FileTime, Event)>,
    bytes: usize,
    /// The parts of the accounts that the events are of.
    parts: HashMap<String, Part>,
    /// Events that found no room since one was taken out last.
    lost: u64,
    /// Sinks are opened anew after so many of the events.
    reopen: Option<usize>,
    ended: bool,
}

/// The events of one account that wait.
#[derive(Debug, Default, Clone, Copy)]
struct Part {
    events: usize,
    bytes: usize,
}

impl State {
    /// True if there is room for an event of so many bytes. The last quarter is for accounts that have
    /// less than a quarter, and for events of no account, whose number is limited by network.
    fn has_room(&self, event: &Event, bytes: usize) -> bool {
        let own = event.user().map(|user| self.parts.get(user).copied().unwrap_or_default());
        let own = own.unwrap_or_default();
        let fits = |all: usize, own: usize, more: usize, most: usize| {
            let all = all.saturating_add(more);
            all <= most - most / 4 || (all <= most && own.saturating_add(more) <= most / 4)
        };
        fits(self.events.len(), own.events, 1, AUDIT_QUEUE)
            && fits(self.bytes, own.bytes, bytes, AUDIT_QUEUE_BYTES)
    }

    /// Counts an event for its account.
    fn charge(&mut self, event: &Event, bytes: usize) {
        let Some(user) = event.user() else { return };
        if !self.parts.contains_key(user) {
            self.parts.insert(user.to_owned(), Part::default());
        }
        if let Some(part) = self.parts.get_mut(user) {
            part.events += 1;
            part.bytes = part.bytes.saturating_add(bytes);
        }
    }
}

/// The events that the writer takes at one time.
struct Batch {
    events: VecDeque<(FileTime, Event)>,
    lost: u64,
    /// Sinks are opened anew after so many of the events.
    reopen: Option<usize>,
    ended: bool,
}

impl Queue {
    /// Puts an event in, or counts it as lost.
    pub(super) fn push(&self, time: FileTime, event: Event) {
        let weight = event.weight();
        let mut state = self.0.state.lock();
        if state.ended || !state.has_room(&event, weight) {
            state.lost = state.lost.saturating_add(1);
            return;
        }
        state.charge(&event, weight);
        state.bytes += weight;
        state.events.push_back((time, event));
        // Only the first event in an empty queue wakes the writer, which then waits a moment and
        // takes all queued events.
        if state.events.len() == 1 {
            drop(state);
            self.0.filled.notify_one();
        }
    }

    pub(super) fn reopen(&self) {
        let mut state = self.0.state.lock();
        state.reopen = Some(state.events.len());
        drop(state);
        self.0.filled.notify_one();
    }

    pub(super) fn end(&self) {
        self.0.state.lock().ended = true;
        self.0.filled.notify_one();
    }

    /// Waits for something to do.
    fn take(&self) -> Batch {
        let mut state = self.0.state.lock();
        while state.events.is_empty() && state.reopen.is_none() && !state.ended {
            self.0.filled.wait(&mut state);
        }
        if !state.ended && state.events.len() < AUDIT_BATCH {
            // Waits a moment for further events, so that all are written in one system call.
            self.0.filled.wait_for(&mut state, AUDIT_PAUSE);
        }
        state.bytes = 0;
        state.parts = HashMap::new();
        Batch {
            events: std::mem::take(&mut state.events),
            lost: std::mem::take(&mut state.lost),
            reopen: std::mem::take(&mut state.reopen),
            ended: state.ended,
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("events", &self.0.state.lock().events.len()).finish()
    }
}

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer(JoinHandle<()>);

impl Writer {
    pub(super) fn start(queue: Queue, sinks: Vec<Box<dyn Sink>>) -> io::Result<Self> {
        let named = thread::Builder::new().name(String::from("audit"));
        let handle = named.spawn(move || {
            host::begin_thread();
            write(&queue, sinks);
        })?;
        Ok(Self(handle))
    }

    /// Waits for its end.
    pub(super) fn join(self) {
        let _ = self.0.join();
    }
}

/// A sink with the events that did not get to it.
struct Outlet {
    sink: Box<dyn Sink>,
    lost: u64,
    complained: Option<Instant>,
}

fn write(queue: &Queue, sinks: Vec<Box<dyn Sink>>) {
    let outlet = |sink| Outlet { sink, lost: 0, complained: None };
    let mut outlets: Vec<Outlet> = sinks.into_iter().map(outlet).collect();
    loop {
        let batch = queue.take();
        for outlet in &mut outlets {
            outlet.write(&batch);
        }
        if batch.ended {
            return;
        }
    }
}

impl Outlet {
    fn write(&mut self, batch: &Batch) {
        self.lost = self.lost.saturating_add(batch.lost);
        let before = batch.reopen.unwrap_or(batch.events.len());
        self.write_events(batch.events.range(..before), batch.ended);
        if batch.reopen.is_some()
            && let Err(error) = self.sink.reopen()
        {
            self.complain(&error);
        }
        self.write_events(batch.events.range(before..), batch.ended);
    }

    fn write_events(&mut self, events: Iter<'_, (FileTime, Event)>, ended: bool) {
        let mut lines = String::new();
        let mut events = events.peekable();
        while events.peek().is_some() {
            lines.clear();
            let mut count = 0;
            while count < AUDIT_BATCH
                && lines.len() < AUDIT_WRITE_BYTES
                && let Some((time, event)) = events.next()
            {
                json::line(&mut lines, *time, event, if count == 0 { self.lost } else { 0 });
                count += 1;
            }
            match self.sink.write(&lines) {
                Ok(()) => self.lost = 0,
                Err(error) => {
                    let count = u64::try_from(count).unwrap_or(u64::MAX);
                    self.lost = self.lost.saturating_add(count);
                    self.complain(&error);
                    // When the server ends, the writer stops at the first failure of the sink,
                    // because each further batch would wait for the sink again.
                    if ended {
                        return;
                    }
                }
            }
        }
    }

    fn complain(&mut self, error: &io::Error) {
        let due = self.complained.is_none_or(|when| when.elapsed() >= AUDIT_COMPLAINTS);
        if due {
            self.complained = Some(Instant::now());
            tracing::error!(target: "frevo::audit", %error, lost = self.lost, to = self.sink.name(),
                "audit events are lost; clients are served all the same. Make room or repair what \
                 they are written to");
        }
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::security::{Privileges, Token};

    use super::*;
    use crate::access::host_users::OnHost;
    use crate::access::identity::Identity;
    use crate::audit::event::Kind;

    fn event(user: &str) -> Event {
        let sid = "S-1-5-21-1-2-3-1105".parse().unwrap();
        let identity = Identity {
            user: user.into(),
            domain: String::new(),
            workstation: String::new(),
            token: Arc::new(Token::new(sid, sid, [], Privileges::EMPTY)),
            groups: Arc::default(),
            host: OnHost::Unknown,
            administers_by: None,
            is_local: true,
            is_guest: false,
        };
        Event::new(Kind::Open).by(Some(Arc::new(identity)))
    }

    #[test]
    fn an_account_leaves_room_for_the_events_of_others() {
        let queue = Queue::default();
        let push = |event| {
            queue.push(FileTime(0), event);
            queue.0.state.lock().lost
        };
        let most = AUDIT_QUEUE - AUDIT_QUEUE / 4;
        for _ in 0..most {
            assert_eq!(push(event("ann")), 0);
        }
        assert_eq!(push(event("ann")), 1, "the last quarter");
        assert_eq!((push(event("bob")), push(Event::new(Kind::Stop))), (1, 1));
        for _ in 2..AUDIT_QUEUE / 4 {
            assert_eq!(push(event("bob")), 1);
        }
        assert_eq!(push(event("bob")), 2, "all is taken");
        assert_eq!(queue.take().events.len(), AUDIT_QUEUE);
        assert_eq!(push(event("ann")), 0, "what is written leaves room");
    }

    #[test]
    fn long_events_of_an_account_leave_bytes_to_others() {
        let queue = Queue::default();
        let path = "x".repeat(AUDIT_QUEUE_BYTES / 16);
        let count = || queue.0.state.lock().events.len();
        for _ in 0..16 {
            queue.push(FileTime(0), event("ann").with("path", &*path));
        }
        assert_eq!(count(), 11);
        queue.push(FileTime(0), event("bob").with("path", &*path));
        assert_eq!(count(), 12);
    }
}
