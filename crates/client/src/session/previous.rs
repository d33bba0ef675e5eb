//! The logon that another one follows: MS-SMB2 2.2.5, PreviousSessionId.

use std::sync::Arc;

use frevo_wire::dtyp::Guid;

use super::channel::Live;

/// The session that another one takes the place of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Previous {
    /// The SessionId; 0 for none.
    session_id: u64,
    /// The ServerGuid of its node.
    server_guid: Guid,
    /// True for the first logon of a session.
    pub(super) is_first: bool,
}

impl Previous {
    pub(super) const NONE: Self =
        Self { session_id: 0, server_guid: Guid([0; 16]), is_first: true };

    pub(super) fn of(live: Option<&Arc<Live>>) -> Self {
        live.map_or(Self { is_first: false, ..Self::NONE }, |live| Self {
            session_id: live.session_id,
            server_guid: live.server_guid,
            is_first: false,
        })
    }

    /// Returns the PreviousSessionId at a node. Another node does not know the session, and may have
    /// another one under its number.
    pub(super) fn at(&self, server_guid: Guid) -> u64 {
        if self.server_guid == server_guid { self.session_id } else { 0 }
    }
}
