//! Compressed answers: MS-SMB2 3.2.5.1.1.2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_crypto::Sender;
use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::file_io;
use frevo_proto::Disconnect;
use frevo_proto::protection::{Algorithm, Check, Expanding, Form, Incoming, Received, Work};

use super::Connection;
use super::crypto_offload::{hand_over, measured};
use crate::error::Cause;
use crate::limits::{EXPANDED_HERE_MAX, PAYLOAD_MAX};

/// A received frame whose compression was looked at.
pub(super) enum Looked {
    /// It is not compressed, and is decrypted if that was needed to see it.
    Plain(Received<Buf>),
    /// It is, and its headers are right.
    Compressed(Box<Expanding<Buf>>),
}

impl Connection {
    /// Looks for compression in a frame: a sealed one is decrypted for this, if it was not before.
    pub(super) fn look(&self, received: Received<Buf>) -> Result<Looked, Cause> {
        let Some(compression) = self.agreed.get().and_then(|agreed| agreed.terms.compression)
        else {
            return Ok(Looked::Plain(received));
        };
        let received = self.decrypted(received);
        let is_sealed = matches!(Form::of(&received.frame), Form::Sealed(_));
        if is_sealed && received.verdict.and_then(|verdict| verdict.seal()) != Some(true) {
            return Ok(Looked::Plain(received));
        }
        // No answer is larger than this client asks for, whatever sizes the server has.
        let most = self.agreed().terms.max_payload().min(PAYLOAD_MAX);
        let Some(found) = compression.look(&received.frame, most).map_err(refused)? else {
            return Ok(Looked::Plain(received));
        };
        if !self.asks_compressed.load(Ordering::Acquire) {
            return Err(Cause::Protocol("it sent a compressed message that nobody asked for"));
        }
        let room: fn(usize) -> Buf = |len| Buf::zeroed(HEADROOM, len);
        Ok(Looked::Compressed(Box::new(Expanding::new(received, found, room, Sender::Server))))
    }

    /// Expands a frame and hands its messages out; on another core if that may take long.
    pub(super) fn expand(
        self: &Arc<Self>,
        work: Box<Expanding<Buf>>,
        invalidated: Option<u32>,
    ) -> Result<(), Cause> {
        // In a simulation other threads must not influence the order of events.
        let is_long = takes_long(&*work) && !file_io::stays();
        let place = if is_long { self.expansions.begin() } else { None };
        let Some(place) = place else {
            return self.on_expanded(expanded(*work)?, invalidated);
        };
        let connection = Arc::clone(self);
        hand_over(move || {
            let expanded = expanded(*work);
            drop(place);
            let handed_out = expanded.and_then(|one| connection.on_expanded(one, invalidated));
            if let Err(why) = handed_out {
                connection.fail(why);
            }
        });
        Ok(())
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

fn expanded(work: Expanding<Buf>) -> Result<Received<Buf>, Cause> {
    let mut received = work.run().map_err(refused)?;
    if planted!(AnswerCut) {
        clear_end(&mut received.frame);
    }
    Ok(received)
}

/// Clears the end of a long message: see `AnswerCut`.
fn clear_end(frame: &mut [u8]) {
    if frame.len() > 2048
        && let Some(end) = frame.last_chunk_mut::<8>()
    {
        *end = [0; 8];
    }
}

fn refused(why: Disconnect) -> Cause {
    match why {
        Disconnect::Malformed(malformed) => malformed.into(),
        _ => Cause::Protocol("it sent a compressed answer that does not hold what its headers say"),
    }
}

/// Returns true for work that would hold up the task that reads.
fn takes_long(work: &impl Work) -> bool {
    let longest = |algorithm: Algorithm| algorithm.longest_for(work.bytes());
    work.algorithm().map_or(Duration::ZERO, longest) > EXPANDED_HERE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_proto::protection::Codec;

    /// Work of so many bytes.
    struct Told(usize, Option<Codec>);

    impl Work for Told {
        type Done = ();

        fn bytes(&self) -> usize {
            self.0
        }

        fn algorithm(&self) -> Option<Algorithm> {
            self.1.map(Algorithm::Expanding)
        }

        fn run(self) {}
    }

    #[test]
    fn what_a_frame_expands_to_decides_on_its_core() {
        for codec in Codec::ALL {
            assert!(!takes_long(&Told(64 << 10, Some(codec))), "{codec:?}");
            assert!(takes_long(&Told(1 << 20, Some(codec))), "{codec:?}");
        }
        assert!(!takes_long(&Told(1 << 20, None)), "runs alone");
    }
}
