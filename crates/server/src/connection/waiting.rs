//! Requests that are answered later: Connection.AsyncCommandList and CANCEL.

use std::cell::Cell;
use std::rc::Rc;

use frevo_wire::{Header, Route, Status};
use tokio::sync::Notify;

use crate::base::limits::WAITING_PER_CONNECTION;
use crate::command::Row;

/// The way to end a request that waits.
#[derive(Debug)]
pub(super) struct Cancel {
    told: Notify,
    status: Cell<Status>,
}

impl Cancel {
    /// Waits until the request is to end. Returns what it is answered with.
    pub(super) async fn told(&self) -> Status {
        self.told.notified().await;
        self.status.get()
    }

    fn tell(&self, status: Status) {
        self.status.set(status);
        self.told.notify_one();
    }
}

#[derive(Debug)]
struct Entry {
    session_id: u64,
    message_id: u64,
    async_id: u64,
    outlives_connection: bool,
    cancel: Rc<Cancel>,
}

/// Requests under way that can be cancelled or have an AsyncId.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: Vec<Entry>,
    last_async_id: u64,
}

impl Waiting {
    /// Returns the number of waiting requests.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Enters a request. None when too many wait already.
    pub(super) fn enter(
        &mut self,
        header: &Header,
        row: &'static Row,
    ) -> Option<(u64, Rc<Cancel>)> {
        if self.entries.len() >= WAITING_PER_CONNECTION {
            return None;
        }
        self.last_async_id = self.last_async_id.wrapping_add(1).max(1);
        let status = Cell::new(Status::CANCELLED);
        let cancel = Rc::new(Cancel { told: Notify::new(), status });
        let async_id = self.last_async_id;
        let &Header { session_id, message_id, .. } = header;
        let outlives_connection = row.outlives_connection;
        let cancelled = Rc::clone(&cancel);
        let entry =
            Entry { session_id, message_id, async_id, outlives_connection, cancel: cancelled };
        self.entries.push(entry);
        Some((async_id, cancel))
    }

    /// The request has been answered.
    pub(super) fn leave(&mut self, async_id: u64) {
        self.entries.retain(|e| e.async_id != async_id);
    }

    /// MS-SMB2 3.3.5.16: by AsyncId if the header has one, else by MessageId.
    /// An id that is not there, or is another session's, is ignored. Returns true if a request
    /// was cancelled.
    pub(super) fn cancel(&self, header: &Header) -> bool {
        let mut own = self.entries.iter().filter(|e| e.session_id == header.session_id);
        let found = own.find(|e| match header.route {
            Route::Async { async_id } => e.async_id == async_id,
            Route::Sync { .. } => e.message_id == header.message_id,
        });
        found.inspect(|entry| entry.cancel.tell(Status::CANCELLED)).is_some()
    }

    /// The connection has ended. A CREATE of a session that lives on another
    /// channel goes on: its client will ask for it there.
    ///
    /// Deviation: MS-SMB2 3.3.7.1 cancels all. Then the replay of a CREATE that
    /// waits for a break would find nothing and wait for the break anew.
    pub(super) fn cancel_all(&self, lives: impl Fn(u64) -> bool) {
        let goes_on = |e: &&Entry| e.outlives_connection && lives(e.session_id);
        self.entries.iter().filter(|e| !goes_on(e)).for_each(|e| e.cancel.tell(Status::CANCELLED));
    }

    /// There is no memory for requests that wait.
    pub(super) fn give_up(&self) {
        self.entries.iter().for_each(|e| e.cancel.tell(Status::INSUFFICIENT_RESOURCES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::{Command, HeaderFlags};

    use crate::command::row;

    #[test]
    fn waiting_requests_are_bounded() {
        let mut waiting = Waiting::default();
        let header = |message_id| Header {
            credit_charge: 1,
            status: Status::SUCCESS,
            command: Command::LOCK,
            credits: 1,
            flags: HeaderFlags::EMPTY,
            next_command: 0,
            message_id,
            route: Route::Sync { process_id: 0, tree_id: 0 },
            session_id: 1,
            signature: [0; 16],
        };
        let row = row(Command::LOCK).unwrap();
        let ids: Vec<_> = (0..WAITING_PER_CONNECTION as u64)
            .map(|m| waiting.enter(&header(m), row).unwrap().0)
            .collect();
        assert!(waiting.enter(&header(9), row).is_none());
        waiting.leave(ids[0]);
        assert!(waiting.enter(&header(9), row).is_some());
    }
}
