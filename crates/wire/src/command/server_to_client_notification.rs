//! SERVER_TO_CLIENT_NOTIFICATION, MS-SMB2 2.2.44 (3.1.1): a message of the server without a request
//! (MessageId all ones) and without an answer.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::header::HEADER_LEN;
use crate::open_enum;

open_enum! {
    /// NotificationType.
    NotificationType(u32) {
        /// SmbNotifySessionClosed: the session of the header has ended.
        SESSION_CLOSED = 0,
    }
}

/// StructureSize as this crate writes it: the whole structure with the four-byte
/// SMB2_NOTIFY_SESSION_CLOSED.
const STRUCTURE_SIZE: u16 = 12;
/// Bytes before Notification.
const FIXED: u16 = 8;

/// MS-SMB2 2.2.44.1. The one notification defined, 2.2.44.2, has no contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// The kind of notification.
    pub notification_type: NotificationType,
}

impl Notification {
    /// Parses a whole message. The specification's text gives StructureSize 12 and its example
    /// (4.11) 0x12, so any size that covers the fixed part is accepted.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        r.skip(HEADER_LEN, "notification header")?;
        if r.u16("notification StructureSize")? < FIXED {
            return Err(Malformed::new("notification StructureSize"));
        }
        r.skip(2, "notification Reserved")?;
        Ok(Self { notification_type: NotificationType(r.u32("NotificationType")?) })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(STRUCTURE_SIZE).u16(0).u32(self.notification_type.0).u32(0);
    }
}
