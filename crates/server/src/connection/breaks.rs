//! Break notifications: messages that no request asked for, MS-SMB2 3.3.4.6
//! and 3.3.4.7.

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::send_queue::OutFrame;
use frevo_wire::codec::Writer;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};

use super::{Connection, assemble};
use crate::lease::Parcel;

impl Connection {
    /// Queues a break notification, which is not signed, and sealed where what
    /// it tells of is. A connection that cannot send it drops it, and so it goes
    /// to the next.
    pub(super) fn send_break(&self, parcel: Parcel) {
        let Some((session, sealed)) = parcel.session() else { return };
        let Some(channel) = self.channel(session.id).filter(|_| !self.is_doomed()) else { return };
        let header = Header {
            credit_charge: 0,
            status: Status::SUCCESS,
            command: Command::OPLOCK_BREAK,
            credits: 0,
            flags: HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            message_id: u64::MAX,
            route: Route::Sync { process_id: 0, tree_id: 0 },
            session_id: parcel.session_id(),
            signature: [0; 16],
        };
        let mut bytes = header.to_bytes().to_vec();
        parcel.notification().encode(&mut Writer::from(&mut bytes, 0));
        let mut frame = Buf::with_headroom(HEADROOM, bytes.len());
        frame.extend_from_slice(&bytes);
        if sealed
            && self.is_smb3()
            && let Err(why) = assemble::seal_frame(&mut frame, &channel)
        {
            self.disconnect(why);
            return;
        }
        self.queue.push(OutFrame::new(frame));
        parcel.delivered();
    }
}
