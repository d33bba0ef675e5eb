//! A break notification on its way to its client.

use std::fmt;
use std::sync::Arc;

use frevo_store::lease::{Break, LeaseState, OplockLevel, Owner, Route};
use frevo_store::{FileCell, OpenId};
use frevo_wire::command::oplock_break::{
    LeaseBreakFlags, LeaseBreakNotification, Notification, OplockBreak,
};
use frevo_wire::file_id::FileId;

/// One break notification, with the channels that were tried. A connection that cannot
/// deliver it must hand it back to [`deliver`](super::delivery::deliver): dropping it
/// sends nothing.
#[must_use = "a break that is not delivered goes to the next channel"]
pub struct Parcel {
    pub(super) cell: Arc<FileCell>,
    pub(super) broken: Break,
    /// The channel that it was handed to last.
    pub(super) via: Option<Via>,
    /// Connections that it was handed to.
    pub(super) tried: Vec<u64>,
}

/// The session whose channel carries a notification.
#[derive(Debug, Clone, Copy)]
pub struct Via {
    /// Session.SessionId
    pub session: u64,
    /// True when the Open's share or session demands sealing.
    pub sealed: bool,
}

/// The end of an attempt to deliver a notification over one connection.
#[derive(Debug)]
#[must_use = "a break that is not delivered goes to the next channel"]
pub(crate) enum Attempt {
    /// The notification is in the connection's send queue.
    Queued,
    /// The connection cannot send it.
    Failed(Box<Parcel>),
}

impl Parcel {
    /// A break of which no client has been notified.
    pub fn new(cell: &Arc<FileCell>, broken: Break) -> Self {
        Self { cell: Arc::clone(cell), broken, via: None, tried: Vec::new() }
    }

    /// The session of the channel that carries it.
    pub const fn via(&self) -> Option<Via> {
        self.via
    }

    /// The Opens that the break is about.
    pub fn opens(&self) -> impl Iterator<Item = OpenId> {
        self.broken.routes.iter().map(|(open, _)| *open)
    }

    /// Returns true if no other channel was tried before the present one.
    pub const fn is_at_first_channel(&self) -> bool {
        self.tried.len() <= 1
    }

    /// SessionId of the notification, MS-SMB2 3.3.4.6 and 3.3.4.7.
    pub fn session_id(&self) -> u64 {
        match (self.broken.owner, self.via) {
            (Owner::Open(_), Some(via)) => via.session,
            _ => 0,
        }
    }

    /// Returns the notification for the client.
    pub fn notification(&self) -> Notification {
        let Break { from, to, epoch, number, .. } = self.broken;
        match self.broken.owner {
            Owner::Open(id) => {
                let reads = to.contains(LeaseState::READ);
                let oplock_level = if reads { OplockLevel::II } else { OplockLevel::NONE };
                Notification::Oplock(OplockBreak { oplock_level, file_id: self.file_id(id) })
            }
            Owner::Lease(owner) => Notification::Lease(LeaseBreakNotification {
                new_epoch: epoch,
                flags: match number {
                    Some(_) => LeaseBreakFlags::ACK_REQUIRED,
                    None => LeaseBreakFlags::EMPTY,
                },
                lease_key: owner.key,
                current_lease_state: from,
                new_lease_state: to,
            }),
        }
    }

    fn file_id(&self, OpenId(volatile): OpenId) -> FileId {
        let route = self.broken.routes.first().map(|(_, route)| route);
        FileId { persistent: route.map_or(0, |Route { persistent, .. }| *persistent), volatile }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("broken", &self.broken).finish_non_exhaustive()
    }
}
