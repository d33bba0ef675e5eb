//! Signing and verifying SMB2 messages with facts from their headers, MS-SMB2 3.1.4.1 and 3.1.5.1.
//! The session chooses the key (3.2.4.1.1, 3.3.4.1.1).

use alloc::vec::Vec;

use frevo_crypto::{Sender, SignatureNonce, SigningKey, TooShort};
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
    let header = Header::parse(message).map_err(|_| TooShort)?;
    debug_assert!(is_signable(&header), "{header:?} is not to be signed");
    let flags = header.flags | HeaderFlags::SIGNED;
    message.get_mut(FLAGS).ok_or(TooShort)?.copy_from_slice(&flags.0.to_le_bytes());
    Ok(nonce(&header, sender))
}

/// True if `message` from `sender` has the right signature. The message is changed meanwhile and
/// then restored. A message without SMB2_FLAGS_SIGNED never has one.
pub fn verify(message: &mut [u8], key: &SigningKey, sender: Sender) -> bool {
    Header::parse(message).is_ok_and(|header| {
        header.flags.contains(HeaderFlags::SIGNED) && key.verify(message, nonce(&header, sender))
    })
}

/// Verifies several messages like [`verify`]; some algorithms are faster for several at once.
pub fn verify_all(messages: &mut [&mut [u8]], key: &SigningKey, sender: Sender) -> Vec<bool> {
    let mut signed = Vec::with_capacity(messages.len());
    let mut prepared = Vec::with_capacity(messages.len());
    for message in messages {
        let header = Header::parse(message).ok();
        let header = header.filter(|header| header.flags.contains(HeaderFlags::SIGNED));
        signed.push(header.is_some());
        if let Some(header) = header {
            prepared.push((&mut **message, nonce(&header, sender)));
        }
    }
    let mut verdicts = key.verify_all(&mut prepared).into_iter();
    signed.into_iter().map(|signed| signed && verdicts.next().unwrap_or(false)).collect()
}

fn nonce(header: &Header, sender: Sender) -> SignatureNonce {
    SignatureNonce {
        message_id: header.message_id,
        sender,
        is_cancel: sender == Sender::Client && header.command == Command::CANCEL,
    }
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
