//! Events of the audit log as a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_wire::dtyp::FileTime;
use tokio::sync::mpsc;

use super::Event;

/// The events of a server, in their order: logons, refusals, changes.
///
/// The server never waits for the reader. Events that find the stream full are counted
/// ([`Self::take_lost`]) and left out.
#[derive(Debug)]
pub struct Events {
    received: mpsc::Receiver<(FileTime, Event)>,
    lost: Arc<AtomicU64>,
}

/// The server's end of [`Events`].
#[derive(Debug)]
pub(crate) struct EventSender {
    sender: mpsc::Sender<(FileTime, Event)>,
    lost: Arc<AtomicU64>,
}

/// Returns the two ends of a stream that holds `capacity` events.
pub(crate) fn channel(capacity: usize) -> (EventSender, Events) {
    let (sender, received) = mpsc::channel(capacity.max(1));
    let lost = Arc::new(AtomicU64::new(0));
    (EventSender { sender, lost: Arc::clone(&lost) }, Events { received, lost })
}

impl EventSender {
    /// Adds an event, or counts it as lost.
    pub(crate) fn send(&self, time: FileTime, event: &Event) {
        if self.sender.try_send((time, event.clone())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Events {
    /// Waits for the next event and returns it with the time at which it happened. None
    /// when the server is gone.
    pub async fn next(&mut self) -> Option<(FileTime, Event)> {
        self.received.recv().await
    }

    /// Returns the number of events that were left out since the last call.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Kind;

    #[tokio::test]
    async fn a_full_stream_counts_what_it_leaves_out() {
        let (sender, mut events) = channel(1);
        for kind in [Kind::Logon, Kind::Logoff, Kind::Stop] {
            sender.send(FileTime(7), &Event::new(kind));
        }
        let (time, event) = events.next().await.unwrap();
        assert_eq!((time, event.kind()), (FileTime(7), Kind::Logon));
        assert_eq!((events.take_lost(), events.take_lost()), (2, 0));
        drop(sender);
        assert!(events.next().await.is_none());
    }
}
