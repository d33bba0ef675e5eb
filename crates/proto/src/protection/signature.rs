//! Signing and verifying SMB2 messages with facts from their headers, MS-SMB2 3.1.4.1 and 3.1.5.1.
//! The session chooses the key (3.2.4.1.1, 3.3.4.1.1).

use alloc::vec::Vec;

use frevo_crypto::{Sender, SignatureNonce, SigningKey, TooShort};
use frevo_wire::header::{HEADER_LEN, PROTOCOL_ID};
use frevo_wire::{Command, Header, HeaderFlags, Status};

/// Position of Flags in the header.
const FLAGS: core::ops::Range<usize> = 16..20;

/// True if the message can be signed. Interim responses and notifications (with a MessageId of all
/// ones) cannot: another message has their MessageId too, and GMAC must not use a nonce twice.
pub fn is_signable(header: &Header) -> bool {
    let is_interim = header.is_response()
        && header.flags.contains(HeaderFlags::ASYNC_COMMAND)
        && header.status == Status::PENDING;
    !is_interim && header.message_id != u64::MAX
}

/// Sets SMB2_FLAGS_SIGNED in `message` and signs it. `message` begins with its header and ends with
/// the padding before the next one of its compound.
pub fn sign(message: &mut [u8], key: &SigningKey, sender: Sender) -> Result<(), TooShort> {
    let nonce = prepare(message, sender)?;
    key.sign(message, nonce)
}

/// Signs several messages like [`sign`]; some algorithms are faster for several at once.
pub fn sign_all(
    messages: &mut [&mut [u8]],
    key: &SigningKey,
    sender: Sender,
) -> Result<(), TooShort> {
    let mut prepared = Vec::with_capacity(messages.len());
    for message in messages {
        let nonce = prepare(message, sender)?;
        prepared.push((&mut **message, nonce));
    }
    key.sign_all(&mut prepared)
}

fn prepare(message: &mut [u8], sender: Sender) -> Result<SignatureNonce, TooShort> {
    let facts = Facts::of(message).ok_or(TooShort)?;
    debug_assert!(
        Header::parse(message).is_ok_and(|header| is_signable(&header)),
        "not to be signed"
    );
    let flags = facts.flags | HeaderFlags::SIGNED;
    message.get_mut(FLAGS).ok_or(TooShort)?.copy_from_slice(&flags.0.to_le_bytes());
    Ok(facts.nonce(sender))
}

/// True if `message` from `sender` has the right signature. The message is changed meanwhile and
/// then restored. A message without SMB2_FLAGS_SIGNED never has one.
pub fn verify(message: &mut [u8], key: &SigningKey, sender: Sender) -> bool {
    Facts::of(message).is_some_and(|facts| {
        facts.flags.contains(HeaderFlags::SIGNED) && key.verify(message, facts.nonce(sender))
    })
}

/// Verifies several messages like [`verify`]; some algorithms are faster for several at once.
pub fn verify_all(messages: &mut [&mut [u8]], key: &SigningKey, sender: Sender) -> Vec<bool> {
    let mut signed = Vec::with_capacity(messages.len());
    let mut prepared = Vec::with_capacity(messages.len());
    for message in messages {
        let facts = Facts::of(message);
        let facts = facts.filter(|facts| facts.flags.contains(HeaderFlags::SIGNED));
        signed.push(facts.is_some());
        if let Some(facts) = facts {
            prepared.push((&mut **message, facts.nonce(sender)));
        }
    }
    let mut verdicts = key.verify_all(&mut prepared).into_iter();
    signed.into_iter().map(|signed| signed && verdicts.next().unwrap_or(false)).collect()
}

/// The fields of a header that a signature is made with. Each message has its header parsed elsewhere,
/// and is not parsed again for them.
struct Facts {
    command: Command,
    flags: HeaderFlags,
    message_id: u64,
}

impl Facts {
    /// Returns the facts of a message; None where [`Header::parse`] fails.
    fn of(message: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = message.first_chunk()?;
        let is_header = field::<4>(header, 0)? == PROTOCOL_ID
            && usize::from(u16::from_le_bytes(field(header, 4)?)) == HEADER_LEN;
        is_header.then_some(Self {
            command: Command(u16::from_le_bytes(field(header, 12)?)),
            flags: HeaderFlags(u32::from_le_bytes(field(header, FLAGS.start)?)),
            message_id: u64::from_le_bytes(field(header, 24)?),
        })
    }

    fn nonce(&self, sender: Sender) -> SignatureNonce {
        SignatureNonce {
            message_id: self.message_id,
            sender,
            is_cancel: sender == Sender::Client && self.command == Command::CANCEL,
        }
    }
}

/// Returns the bytes of a field of a header.
fn field<const N: usize>(header: &[u8; HEADER_LEN], at: usize) -> Option<[u8; N]> {
    header.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_crypto::SigningAlgorithm;
    use frevo_wire::Route;
    use std::vec::Vec;

    const ALL: [SigningAlgorithm; 3] =
        [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac];

    fn header(command: Command, flags: HeaderFlags) -> Header {
        Header {
            credit_charge: 1,
            status: Status::SUCCESS,
            command,
            credits: 1,
            flags,
            next_command: 0,
            message_id: 5,
            route: Route::Sync { process_id: 0, tree_id: 1 },
            session_id: 9,
            signature: [0; 16],
        }
    }

    fn message(command: Command, flags: HeaderFlags) -> Vec<u8> {
        let mut bytes = header(command, flags).to_bytes().to_vec();
        bytes.extend_from_slice(b"a body of some bytes");
        bytes
    }

    #[test]
    fn signs_by_header() {
        for algorithm in ALL {
            let key = SigningKey::new(algorithm, &[3; 16]);
            for (command, sender) in [
                (Command::READ, Sender::Client),
                (Command::READ, Sender::Server),
                (Command::CANCEL, Sender::Client),
            ] {
                let mut signed = message(command, HeaderFlags::EMPTY);
                sign(&mut signed, &key, sender).unwrap();
                assert!(Header::parse(&signed).unwrap().flags.contains(HeaderFlags::SIGNED));
                assert!(verify(&mut signed.clone(), &key, sender));
                signed[70] ^= 1;
                assert!(!verify(&mut signed, &key, sender));
            }
        }
    }

    #[test]
    fn a_reflected_message_does_not_verify_with_gmac() {
        let key = SigningKey::new(SigningAlgorithm::AesGmac, &[3; 16]);
        let mut signed = message(Command::READ, HeaderFlags::EMPTY);
        sign(&mut signed, &key, Sender::Client).unwrap();
        assert!(!verify(&mut signed, &key, Sender::Server));
    }

    fn nonce(header: &Header, sender: Sender) -> SignatureNonce {
        Facts::of(&header.to_bytes()).unwrap().nonce(sender)
    }

    #[test]
    fn what_is_no_header_has_no_facts() {
        let header = header(Command::READ, HeaderFlags::SIGNED).to_bytes();
        let facts = Facts::of(&header).unwrap();
        let expected = (Command::READ, HeaderFlags::SIGNED, 5);
        assert_eq!((facts.command, facts.flags, facts.message_id), expected);
        assert!(Facts::of(&header[..63]).is_none());
        for at in [0, 3, 4, 5] {
            let mut wrong = header;
            wrong[at] ^= 1;
            assert!(Facts::of(&wrong).is_none() && Header::parse(&wrong).is_err(), "{at}");
        }
    }

    #[test]
    fn cancel_and_what_it_cancels_differ_in_nonce() {
        let request = header(Command::READ, HeaderFlags::EMPTY);
        let cancel = header(Command::CANCEL, HeaderFlags::EMPTY);
        assert_ne!(nonce(&request, Sender::Client), nonce(&cancel, Sender::Client));
    }

    #[test]
    fn unsigned_flag_or_short_message_never_verifies() {
        let key = SigningKey::new(SigningAlgorithm::AesCmac, &[3; 16]);
        let mut signed = message(Command::READ, HeaderFlags::EMPTY);
        // The flag SIGNED was set after the signature was computed, so the signature is wrong.
        let nonce = nonce(&header(Command::READ, HeaderFlags::EMPTY), Sender::Client);
        key.sign(&mut signed, nonce).unwrap();
        assert!(!verify(&mut signed, &key, Sender::Client));
        assert!(!verify(&mut signed[..63], &key, Sender::Client));
        assert_eq!(sign(&mut signed[..63], &key, Sender::Client), Err(TooShort));
    }

    #[test]
    fn several_are_verified_each_with_its_own_verdict() {
        for algorithm in ALL {
            let key = SigningKey::new(algorithm, &[3; 16]);
            let mut good = message(Command::WRITE, HeaderFlags::EMPTY);
            sign(&mut good, &key, Sender::Client).unwrap();
            let mut changed = good.clone();
            changed[70] ^= 1;
            let unsigned = message(Command::WRITE, HeaderFlags::EMPTY);
            let mut cancel = message(Command::CANCEL, HeaderFlags::EMPTY);
            sign(&mut cancel, &key, Sender::Client).unwrap();
            let short = good[..63].to_vec();
            let mut all = [good.clone(), changed, unsigned, cancel, short, good];
            let sent = all.clone();
            let mut messages: Vec<&mut [u8]> = all.iter_mut().map(|m| &mut m[..]).collect();
            let verdicts = verify_all(&mut messages, &key, Sender::Client);
            assert_eq!(verdicts, [true, false, false, true, false, true], "{algorithm:?}");
            assert_eq!(all, sent);
        }
    }

    #[test]
    fn interim_responses_and_notifications_are_not_signable() {
        let response = HeaderFlags::SERVER_TO_REDIR;
        let mut interim = header(Command::READ, response | HeaderFlags::ASYNC_COMMAND);
        interim.status = Status::PENDING;
        assert!(!is_signable(&interim));
        interim.status = Status::SUCCESS;
        assert!(is_signable(&interim));
        let mut notification = header(Command::OPLOCK_BREAK, response);
        assert!(is_signable(&notification));
        notification.message_id = u64::MAX;
        assert!(!is_signable(&notification));
    }
}
