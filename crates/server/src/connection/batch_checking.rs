//! Large requests that are verified or unsealed together.
//!
//! AES-CMAC and AES-CCM are chains: each block waits for the one before it. Eight messages at once
//! take little longer than one. The results for requests that have come together are computed when
//! the first of them begins, and used when each begins in its turn: all that is checked before a
//! signature is still checked before its result is looked at, and a request that ends a session ends
//! it for those behind it.

use std::rc::Rc;

use frevo_crypto::Sender;
use frevo_net::buffer::Buf;
use frevo_wire::{Command, Header, HeaderFlags};

use super::checked::{Checked, Proof};
use super::{Channel, Connection};
use crate::base::limits::{CHECKED_TOGETHER, CHECKED_TOGETHER_BYTES_MIN, CRYPTO_GAINS_BYTES_MIN};
use crate::command::{self, Signing};

impl Connection {
    /// True if `frame`, which is the next, is better checked together with those behind it.
    pub(super) fn gains_company(&self, frame: &[u8]) -> bool {
        frame.len() >= CHECKED_TOGETHER_BYTES_MIN
            && self.incoming.ahead.is_empty()
            && self.proof(frame).is_some()
    }

    /// Checks the first of `frames`, and those behind it that have the same key.
    pub(super) fn check_together<'a>(&self, frames: impl Iterator<Item = &'a mut Buf>) {
        let mut batch: Vec<&mut [u8]> = Vec::new();
        let mut by: Option<(Rc<Channel>, Proof)> = None;
        for frame in frames.take(CHECKED_TOGETHER) {
            let Some((channel, proof)) = self.proof(frame) else { break };
            let (first, same) = by.get_or_insert_with(|| (Rc::clone(&channel), proof));
            if !Rc::ptr_eq(first, &channel) || *same != proof {
                break;
            }
            batch.push(&mut **frame);
        }
        let Some((channel, proof)) = by.filter(|_| batch.len() > 1) else { return };
        tracing::trace!(target: "frevo::connection", frames = batch.len(), "checked together");
        let results: Vec<Option<bool>> = match proof {
            Proof::Seal => match channel.opening_key() {
                Some(key) => frevo_proto::protection::transform::decrypt_frames(&mut batch, key),
                None => return,
            },
            Proof::Signature => match channel.signing_key() {
                Some(key) => {
                    frevo_proto::protection::signature::verify_all(&mut batch, key, Sender::Client)
                        .into_iter()
                        .map(Some)
                        .collect()
                }
                None => return,
            },
        };
        let checked =
            |is_right| Checked { channel: Rc::clone(&channel), proof, right: u128::from(is_right) };
        let results = results.into_iter().map(|result: Option<bool>| result.map(checked));
        self.incoming.ahead.extend(results);
    }

    /// Returns the channel whose key `frame` is checked with, if a batch is faster. Left out are the
    /// longest messages, which may be checked elsewhere, messages that are not verified by the rule for
    /// most commands, and compounds, whose messages have a signature each.
    fn proof(&self, frame: &[u8]) -> Option<(Rc<Channel>, Proof)> {
        if !self.info.is_negotiated()
            || !self.members.is_authenticated()
            || frame.len() >= CRYPTO_GAINS_BYTES_MIN
        {
            return None;
        }
        if frevo_proto::protection::transform::is_sealed(frame) {
            let session_id = frame.get(44..52)?.try_into().ok()?;
            let channel = self.members.channel(u64::from_le_bytes(session_id))?;
            let gains = channel.opening_key()?.gains_by_batches();
            return gains.then_some((channel, Proof::Seal));
        }
        let header = Header::parse(frame).ok()?;
        let row = command::row(header.command)?;
        let is_plain = header.flags.contains(HeaderFlags::SIGNED)
            && !header.flags.contains(HeaderFlags::RELATED_OPERATIONS)
            && !header.is_response()
            && header.next_command == 0
            && header.command != Command::CANCEL
            && matches!(row.signing, Signing::BySession | Signing::Demanded);
        let channel = self.members.channel(header.session_id).filter(|_| is_plain)?;
        let gains = channel.signing_key()?.gains_by_batches();
        gains.then_some((channel, Proof::Signature))
    }
}
