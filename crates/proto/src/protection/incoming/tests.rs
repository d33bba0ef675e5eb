use super::*;
use crate::protection::{Guard, Outgoing};
use frevo_crypto::{Cipher, SealingKey, SigningAlgorithm};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use proptest::prelude::*;
use std::vec;

const SESSION: u64 = 0x1234;
const CIPHERS: [Cipher; 4] =
    [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];
const SIGNATURES: [SigningAlgorithm; 3] =
    [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac];

fn message(session_id: u64, message_id: u64, len: usize, next_command: u32) -> Vec<u8> {
    let header = Header {
        credit_charge: 1,
        status: Status::SUCCESS,
        command: Command::WRITE,
        credits: 1,
        flags: HeaderFlags::EMPTY,
        next_command,
        message_id,
        route: Route::Sync { process_id: 0, tree_id: 1 },
        session_id,
        signature: [0; 16],
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(64 + len, message_id as u8);
    bytes
}

fn sent(message: &[u8], guard: Guard) -> Vec<u8> {
    let buffer = [&[0; transform::HEADROOM], message].concat();
    let framed = Outgoing::new(buffer, guard, Sender::Client, None).unwrap().run().unwrap();
    framed.buffer[framed.range].split_off_prefix()
}

trait Unprefixed {
    fn split_off_prefix(&self) -> Vec<u8>;
}

impl Unprefixed for [u8] {
    fn split_off_prefix(&self) -> Vec<u8> {
        self[crate::frame::PREFIX_LEN..].to_vec()
    }
}

fn signing(algorithm: SigningAlgorithm) -> Arc<SigningKey> {
    Arc::new(SigningKey::new(algorithm, &[3; 16]))
}

fn opening(cipher: Cipher) -> Arc<OpeningKey> {
    Arc::new(OpeningKey::new(cipher, &[1; 32]))
}

/// Writes of a session, each sealed, of which the third is changed.
fn sealed(cipher: Cipher, count: u64) -> Vec<Vec<u8>> {
    let key = Arc::new(SealingKey::new(cipher, &[1; 32]));
    let guard = || Guard::Sealed { key: Arc::clone(&key), session_id: SESSION };
    let mut frames: Vec<_> =
        (0..count).map(|id| sent(&message(SESSION, id, 9_000, 0), guard())).collect();
    if let Some(third) = frames.get_mut(2) {
        third[100] ^= 1;
    }
    frames
}

fn check(frames: &[Vec<u8>], check: Check) -> Vec<Received<Vec<u8>>> {
    Incoming::new(frames.iter().cloned(), check, Sender::Client).run().into_vec()
}

#[test]
fn the_form_of_a_frame_is_its_protocol_id() {
    assert_eq!(Form::of(&message(1, 2, 10, 0)), Form::Message);
    assert_eq!(Form::of(b"\xFCSMB"), Form::Compressed);
    assert_eq!(Form::of(&sealed(Cipher::Aes128Gcm, 1)[0]), Form::Sealed(SESSION));
    assert_eq!(Form::of(b"\xFDSMB and no session"), Form::Sealed(0));
    for other in [&b"\xFFSMB"[..], b"", b"\xFES", b"GET / HTTP/1.1"] {
        assert_eq!(Form::of(other), Form::Unknown);
    }
}

/// Several frames at once have the results, and become the messages, of each alone.
#[test]
fn sealed_frames_that_are_checked_together_are_as_alone() {
    for cipher in CIPHERS {
        let mut frames = sealed(cipher, 4);
        let key = opening(cipher);
        // One frame belongs to another session and one has a malformed transform header. All other
        // frames must be opened nevertheless.
        let other = Arc::new(SealingKey::new(cipher, &[1; 32]));
        let guard = Guard::Sealed { key: other, session_id: 9 };
        frames.push(sent(&message(9, 1, 9_000, 0), guard));
        let mut malformed = frames[0].clone();
        malformed[42] = 2;
        frames.push(malformed);
        let by = || Check::Seal { key: Arc::clone(&key), session_id: SESSION };
        assert_eq!(by().algorithm(), Algorithm::Sealing(cipher));
        let together = check(&frames, by());
        let seals: Vec<_> = together.iter().map(|r| r.verdict.and_then(|v| v.seal())).collect();
        assert_eq!(seals, [Some(true), Some(true), Some(false), Some(true), None, None]);
        assert_eq!(together[4].frame, frames[4], "it was left alone");
        for (at, (frame, received)) in frames.iter().zip(&together).enumerate() {
            let alone = check(&frames[at..=at], by());
            assert_eq!(alone[0].verdict, received.verdict);
            let key_of = |id| (id == SESSION).then_some(&key);
            let (mut ahead, mut in_turn) = (received.frame.clone(), frame.clone());
            let opened = open(&mut ahead, received.verdict, Sender::Client, key_of);
            let expected = open(&mut in_turn, None, Sender::Client, key_of);
            assert_eq!(opened, expected, "{cipher:?}, {at}");
            assert_eq!(opened.is_ok(), [0, 1, 3].contains(&at));
            if let Ok(opened) = opened {
                assert_eq!(opened.sealed_for, Some(SESSION));
                assert_eq!(ahead[opened.message], message(SESSION, at as u64, 9_000, 0));
            }
        }
    }
}

#[test]
fn signed_frames_that_are_checked_together_are_as_alone() {
    for algorithm in SIGNATURES {
        let key = signing(algorithm);
        let signed = |id| {
            let plain = message(SESSION, id, 9_000, 0);
            let len = plain.len();
            sent(&plain, Guard::signed(Arc::clone(&key), len))
        };
        let mut frames: Vec<_> = (0..3).map(signed).collect();
        frames[1][100] ^= 1;
        frames.push(message(SESSION, 9, 9_000, 0));
        frames.push(vec![0xFE; 20]);
        let by = || Check::Signature(Arc::clone(&key));
        assert_eq!(by().algorithm(), Algorithm::Signing(algorithm));
        assert_eq!(by().gains_by_batches(), key.gains_by_batches());
        let together = check(&frames, by());
        let right: Vec<_> =
            together.iter().map(|r| r.verdict.and_then(|v| v.signature(0))).collect();
        assert_eq!(right, [true, false, true, false, false].map(Some), "{algorithm:?}");
        assert!(together.iter().zip(&frames).all(|(received, frame)| received.frame == *frame));
        for (at, received) in together.iter().enumerate() {
            let alone = &check(&frames[at..=at], by())[0];
            assert_eq!(alone.verdict.and_then(|v| v.signature(0)), right[at]);
            assert_eq!(received.verdict.and_then(|verdict| verdict.seal()), None);
        }
    }
}

/// Each message of a compound has its own result, alone and among other frames.
#[test]
fn the_messages_of_a_compound_have_a_result_each() {
    let key = signing(SigningAlgorithm::AesCmac);
    let mut parts = [0, 1, 2].map(|id| message(SESSION, id, 40, if id < 2 { 104 } else { 0 }));
    for at in [0, 2] {
        signature::sign(&mut parts[at], &key, Sender::Client).unwrap();
    }
    let compound = parts.concat();
    for frames in [vec![compound.clone()], vec![compound.clone(), compound]] {
        for received in check(&frames, Check::Signature(Arc::clone(&key))) {
            let verdict = received.verdict.unwrap();
            let results = [0, 1, 2, 3, 200].map(|at| verdict.signature(at).unwrap());
            assert_eq!(results, [true, false, true, false, false]);
        }
    }
}

#[test]
fn a_compressed_message_is_refused_where_nothing_was_negotiated() {
    let mut plain = message(SESSION, 1, 100, 0);
    plain[0] = 0xFC;
    let key_of = |_| Some(opening(Cipher::Aes128Gcm));
    let open = |frame: &mut [u8]| open(frame, None, Sender::Client, key_of);
    assert_eq!(open(&mut plain.clone()), Err(Disconnect::Compressed));
    let key = Arc::new(SealingKey::new(Cipher::Aes128Gcm, &[1; 32]));
    let mut sealed = sent(&plain, Guard::Sealed { key, session_id: SESSION });
    let refused = Disconnect::Sealed("it is compressed, which was not negotiated");
    assert_eq!(open(&mut sealed), Err(refused));
}

/// A result of signatures says nothing of a seal.
#[test]
fn a_verdict_of_signatures_opens_no_seal() {
    let mut frame = sealed(Cipher::Aes128Gcm, 1).remove(0);
    let right = Verdict { proof: Proof::Signature, right: u128::MAX };
    let none = |_| None::<Arc<OpeningKey>>;
    let refused = open(&mut frame, Some(right), Sender::Client, none);
    assert_eq!(refused, Err(Disconnect::Sealed("its session has ended or has no keys")));
}

proptest! {
    /// All lengths and roles: what was sent arrives, and no changed byte does.
    #[test]
    fn what_was_sent_arrives_and_nothing_else(
        len in 0..20_000_usize,
        cipher in 0..4_usize,
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let cipher = CIPHERS[cipher];
        let plain = message(SESSION, 1, len, 0);
        let key = Arc::new(SealingKey::new(cipher, &[1; 32]));
        let frame = sent(&plain, Guard::Sealed { key, session_id: SESSION });
        let key_of = |id| (id == SESSION).then(|| opening(cipher));
        let mut whole = frame.clone();
        let opened = open(&mut whole, None, Sender::Client, key_of).unwrap();
        prop_assert_eq!(&whole[opened.message], &plain[..]);
        let mut changed = frame.clone();
        changed[at.index(frame.len())] ^= 1 << bit;
        let opened = open(&mut changed, None, Sender::Client, key_of);
        // With a changed ProtocolId the frame is not taken as encrypted; it may only be refused, or
        // passed on as not encrypted.
        prop_assert!(opened.map_or(true, |opened| opened.sealed_for.is_none()));
    }
}
