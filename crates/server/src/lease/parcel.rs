//! A break on its way to its client, over one channel after another until one
//! of them takes it.

use std::fmt;
use std::sync::{Arc, Weak};

use frevo_store::lease::{Break, LeaseState, OplockLevel, Owner, Route};
use frevo_store::{FileCell, OpenId};
use frevo_wire::command::oplock_break::{
    LeaseBreakFlags, LeaseBreakNotification, Notification, OplockBreak,
};
use frevo_wire::file_id::FileId;

use super::break_without_owner;
use crate::connection::Notice;
use crate::server::ServerState;
use crate::session::Session;

/// One break notification. Dropped before it was delivered it goes to the next
/// channel, and after the last one the break ends.
pub struct Parcel {
    server: Weak<ServerState>,
    cell: Arc<FileCell>,
    broken: Break,
    /// The session by which it travels, and whether sealed.
    session: Option<(Arc<Session>, bool)>,
    /// Connections that did not take it.
    tried: Vec<u64>,
    is_delivered: bool,
}

impl Parcel {
    /// A break that nobody has been told of.
    pub fn new(server: &Arc<ServerState>, cell: &Arc<FileCell>, broken: Break) -> Self {
        let (server, cell) = (Arc::downgrade(server), Arc::clone(cell));
        Self { server, cell, broken, session: None, tried: Vec::new(), is_delivered: false }
    }

    /// Hands it to the next channel of the client: MS-SMB2 3.3.4.6 and 3.3.4.7
    /// have any one that lives, and another when that one fails.
    pub fn send(mut self) {
        let is_over = |number| !self.cell.lock().oplocks.is_breaking(self.broken.owner, number);
        if !self.tried.is_empty() && self.broken.number.is_some_and(is_over) {
            // Acknowledged, closed or given up meanwhile.
            self.is_delivered = true;
            return;
        }
        let server = self.server.upgrade();
        while let Some((id, handle)) = server.as_ref().and_then(|server| self.next(server)) {
            self.tried.push(id);
            match handle.send(Notice::Break(Box::new(self))) {
                Ok(()) => return,
                Err(failed) => match failed.0 {
                    Notice::Break(parcel) => self = *parcel,
                    _ => return,
                },
            }
        }
        self.is_delivered = true;
        break_without_owner(server.as_ref(), &self.cell, &self.broken);
    }

    /// The next channel of any session that has an Open of it.
    fn next(&mut self, server: &ServerState) -> Option<(u64, crate::session::ConnectionHandle)> {
        self.broken.routes.iter().find_map(|(_, route)| {
            let session = server.session(route.session)?;
            let channel = session.channel_besides(&self.tried)?;
            self.session = Some((session, route.sealed));
            Some(channel)
        })
    }

    /// The session of the channel that it was handed to, and whether it must be
    /// sealed: what an encrypted session or share does is told to nobody else.
    pub fn session(&self) -> Option<(&Arc<Session>, bool)> {
        let (session, sealed) = self.session.as_ref()?;
        let encrypts = session.security().is_some_and(|s| s.encrypt_data);
        Some((session, *sealed || encrypts))
    }

    /// SessionId of the notification, MS-SMB2 3.3.4.6 and 3.3.4.7.
    pub fn session_id(&self) -> u64 {
        match (self.broken.owner, &self.session) {
            (Owner::Open(_), Some((session, _))) => session.id,
            _ => 0,
        }
    }

    /// What the client is told.
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

    /// Whether another channel is left.
    pub fn could_go_elsewhere(&self) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        self.broken.routes.iter().any(|(_, route)| {
            let session = server.session(route.session);
            session.is_some_and(|session| session.channel_besides(&self.tried).is_some())
        })
    }

    /// The client has it.
    pub fn delivered(mut self) {
        self.is_delivered = true;
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if !self.is_delivered {
            let broken = Break { routes: std::mem::take(&mut self.broken.routes), ..self.broken };
            let rest = Self {
                server: Weak::clone(&self.server),
                cell: Arc::clone(&self.cell),
                broken,
                session: None,
                tried: std::mem::take(&mut self.tried),
                is_delivered: false,
            };
            rest.send();
        }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("broken", &self.broken).finish_non_exhaustive()
    }
}
