//! Compressed answers: MS-SMB2 3.2.5.1.1.2.

use std::sync::atomic::Ordering;

use frevo_crypto::Sender;
use frevo_net::buffer::{Buf, HEADROOM};
use frevo_proto::Disconnect;
use frevo_proto::protection::{Check, Expanding, Form, Incoming, Received, Work};

use super::Connection;
use super::crypto_offload::measured;
use crate::error::Cause;
use crate::limits::PAYLOAD_MAX;

impl Connection {
    /// Returns the frame that the server would have sent without compression: a sealed one is decrypted
    /// for this, if it was not before.
    pub(super) fn expanded(&self, received: Received<Buf>) -> Result<Received<Buf>, Cause> {
        let Some(compression) = self.agreed().terms.compression else { return Ok(received) };
        let received = self.decrypted(received);
        let is_sealed = matches!(Form::of(&received.frame), Form::Sealed(_));
        if is_sealed && received.verdict.and_then(|verdict| verdict.seal()) != Some(true) {
            return Ok(received);
        }
        // No answer is larger than this client asks for, whatever sizes the server has.
        let most = self.agreed().terms.max_payload().min(PAYLOAD_MAX);
        let Some(found) = compression.look(&received.frame, most).map_err(refused)? else {
            return Ok(received);
        };
        if !self.asks_compressed.load(Ordering::Acquire) {
            return Err(Cause::Protocol("it sent a compressed message that nobody asked for"));
        }
        let room = Buf::zeroed(HEADROOM, found.frame_len());
        let work: Expanding<Buf> = Expanding::new(received, found, room, Sender::Server);
        let bytes = work.bytes();
        measured(&self.expanding_pace, bytes, || work.run()).map_err(refused)
    }

    /// Decrypts a sealed frame, with the session's key.
    fn decrypted(&self, received: Received<Buf>) -> Received<Buf> {
        let Form::Sealed(session_id) = Form::of(&received.frame) else { return received };
        let opening = self.opening.read().clone().filter(|(of, _)| *of == session_id);
        let Some((session_id, key)) = opening.filter(|_| received.verdict.is_none()) else {
            return received;
        };
        let (len, check) = (received.frame.len(), Check::Seal { key, session_id });
        let work: Incoming<Buf> = Incoming::new([received.frame], check, Sender::Server);
        let done = measured(&self.opening_pace, len, || work.run()).pop();
        done.unwrap_or(Received { frame: Buf::new(), verdict: None })
    }
}

fn refused(why: Disconnect) -> Cause {
    match why {
        Disconnect::Malformed(malformed) => malformed.into(),
        _ => Cause::Protocol("it sent a compressed answer that does not hold what its headers say"),
    }
}
