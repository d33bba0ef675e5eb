use super::*;
use crate::protection::{Batch, Form, is_batched};
use frevo_crypto::{Cipher, OpeningKey, SigningAlgorithm};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use std::vec;
use std::vec::Vec;

const SESSION: u64 = 0x1234;
const CIPHERS: [Cipher; 4] =
    [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];
const SIGNATURES: [SigningAlgorithm; 3] =
    [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac];

fn signing(algorithm: SigningAlgorithm) -> Arc<SigningKey> {
    Arc::new(SigningKey::new(algorithm, &[3; 16]))
}

fn sealing(cipher: Cipher) -> Arc<SealingKey> {
    Arc::new(SealingKey::new(cipher, &[1; 32]))
}

fn message(message_id: u64, len: usize) -> Vec<u8> {
    let header = Header {
        credit_charge: 1,
        status: Status::SUCCESS,
        command: Command::READ,
        credits: 1,
        flags: HeaderFlags::SERVER_TO_REDIR,
        next_command: 0,
        message_id,
        route: Route::Sync { process_id: 0, tree_id: 1 },
        session_id: SESSION,
        signature: [0; 16],
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.resize(64 + len, message_id as u8);
    bytes
}

fn buffer(message: &[u8]) -> Vec<u8> {
    [&[0xEE; HEADROOM], message].concat()
}

fn outgoing(message: &[u8], guard: Guard) -> Outgoing<Vec<u8>> {
    Outgoing::new(buffer(message), guard, Sender::Server, None).unwrap()
}

/// Returns the frame without its prefix, which tells its length.
fn frame(framed: &Framed<Vec<u8>>) -> Vec<u8> {
    let whole = &framed.buffer[framed.range.clone()];
    let (prefix, frame) = whole.split_at(PREFIX_LEN);
    assert_eq!(FrameLength::parse(prefix.try_into().unwrap(), 1 << 24), Ok(frame.len()));
    frame.to_vec()
}

fn run(message: &[u8], guard: Guard) -> Vec<u8> {
    let work = outgoing(message, guard);
    let bytes = work.frame_bytes();
    let framed = work.run().unwrap();
    assert_eq!(framed.range.len(), bytes);
    frame(&framed)
}

#[test]
fn a_message_without_protection_gets_its_prefix() {
    let message = message(5, 100);
    let work = outgoing(&message, Guard::None);
    assert_eq!((work.bytes(), work.algorithm()), (164, None));
    assert_eq!(frame(&work.run().unwrap()), message);
    assert_eq!(Guard::<()>::None.protection(), Protection::None);
}

#[test]
fn a_signed_message_is_signed_as_it_is() {
    for algorithm in SIGNATURES {
        let (key, plain) = (signing(algorithm), message(5, 100));
        let guard: Guard = Guard::signed(Arc::clone(&key), plain.len());
        assert_eq!(guard.protection(), Protection::Signed);
        let work = outgoing(&plain, guard);
        assert_eq!(work.algorithm(), Some(Algorithm::Signing(algorithm)));
        let sent = frame(&work.run().unwrap());
        let mut alone = plain.clone();
        signature::sign(&mut alone, &key, Sender::Server).unwrap();
        assert_eq!(sent, alone);
        assert!(signature::verify(&mut sent.clone(), &key, Sender::Server));
        assert!(!signature::verify(&mut plain.clone(), &key, Sender::Server));
    }
}

/// In a compound each message has a signature of its own, or none.
#[test]
fn a_compound_is_signed_message_by_message() {
    let parts = [message(5, 40), message(6, 40), message(7, 40)];
    let whole = parts.concat();
    let keys = [signing(SigningAlgorithm::AesGmac), signing(SigningAlgorithm::AesCmac)];
    let part = |at: usize, key: &Arc<SigningKey>| Signature {
        range: at * 104..(at + 1) * 104,
        key: Arc::clone(key),
    };
    let guard = Guard::Signed(smallvec![part(0, &keys[0]), part(2, &keys[1])]);
    let mut sent = run(&whole, guard);
    assert_eq!(sent[104..208], parts[1]);
    assert!(signature::verify(&mut sent[..104], &keys[0], Sender::Server));
    assert!(signature::verify(&mut sent[208..], &keys[1], Sender::Server));
}

#[test]
fn a_sealed_message_can_be_opened_by_the_peer() {
    for cipher in CIPHERS {
        let plain = message(5, 100);
        let guard: Guard = Guard::Sealed { key: sealing(cipher), session_id: SESSION };
        assert_eq!(guard.protection(), Protection::Sealed);
        let work = outgoing(&plain, guard);
        assert_eq!(work.algorithm(), Some(Algorithm::Sealing(cipher)));
        let mut sent = frame(&work.run().unwrap());
        assert_eq!(Form::of(&sent), Form::Sealed(SESSION));
        let key = Arc::new(OpeningKey::new(cipher, &[1; 32]));
        let key_of = |id| (id == SESSION).then_some(&key);
        let opened = crate::protection::open(&mut sent, None, Sender::Server, key_of).unwrap();
        assert_eq!(opened.sealed_for, Some(SESSION));
        assert_eq!(sent[opened.message], plain);
    }
}

/// Each frame has a nonce of its own, in the order of their making, whichever is sealed first.
#[test]
fn no_nonce_is_used_twice() {
    let nonce = |frame: &[u8]| u64::from_le_bytes(frame[20..28].try_into().unwrap());
    for cipher in CIPHERS {
        let key = sealing(cipher);
        let guard = || Guard::Sealed { key: Arc::clone(&key), session_id: SESSION };
        let works: Vec<_> = (0..20).map(|id| outgoing(&message(id, 9_000), guard())).collect();
        let mut batch = Batch::default();
        let mut alone = Vec::new();
        for (at, work) in works.into_iter().enumerate() {
            if at % 3 == 1 {
                batch.push(work);
            } else {
                alone.push(work);
            }
        }
        let batched = batch.run().unwrap();
        let others = alone.into_iter().rev().map(|work| work.run().unwrap());
        let mut nonces: Vec<u64> =
            batched.into_iter().chain(others).map(|framed| nonce(&frame(&framed))).collect();
        nonces.sort_unstable();
        assert_eq!(nonces, (0..20).collect::<Vec<_>>());
    }
}

/// A batch makes the bytes that each frame would have alone.
#[test]
fn frames_that_are_protected_together_are_as_alone() {
    let plain = |id: u64| message(id, 8_200 + 64 * id as usize);
    for algorithm in SIGNATURES {
        let key = signing(algorithm);
        let guard = |len| Guard::signed(Arc::clone(&key), len);
        let mut batch = Batch::default();
        for id in 0..5 {
            let work = outgoing(&plain(id), guard(plain(id).len()));
            assert_eq!(work.gains_by_batches(), key.gains_by_batches());
            assert!(batch.accepts(&work));
            assert!(!batch.push(work));
        }
        assert_eq!((batch.len(), batch.buffers().count()), (5, 5));
        let together: Vec<_> = batch.run().unwrap().iter().map(frame).collect();
        let alone: Vec<_> = (0..5).map(|id| run(&plain(id), guard(plain(id).len()))).collect();
        assert_eq!(together, alone, "{algorithm:?}");
    }
    for cipher in CIPHERS {
        let (one, other) = (sealing(cipher), sealing(cipher));
        let guard =
            |key: &Arc<SealingKey>| Guard::Sealed { key: Arc::clone(key), session_id: SESSION };
        let mut batch = Batch::default();
        for id in 0..5 {
            let work = outgoing(&plain(id), guard(&one));
            assert_eq!(work.gains_by_batches(), one.gains_by_batches());
            batch.push(work);
        }
        let together: Vec<_> = batch.run().unwrap().iter().map(frame).collect();
        let alone: Vec<_> = (0..5).map(|id| run(&plain(id), guard(&other))).collect();
        assert_eq!(together, alone, "{cipher:?}");
    }
    assert!(Batch::<Vec<u8>>::default().run().unwrap().is_empty());
}

#[test]
fn a_batch_has_one_key_and_a_limit() {
    use crate::limits::{CRYPTO_GAINS_BYTES_MIN, PROTECTED_TOGETHER, TOGETHER_BYTES_MIN};
    let (cmac, other) = (signing(SigningAlgorithm::AesCmac), signing(SigningAlgorithm::AesCmac));
    let ccm = sealing(Cipher::Aes128Ccm);
    let signed = |key: &Arc<SigningKey>| {
        let plain = message(1, 9_000);
        outgoing(&plain, Guard::signed(Arc::clone(key), plain.len()))
    };
    let sealed = || {
        outgoing(&message(1, 9_000), Guard::Sealed { key: Arc::clone(&ccm), session_id: SESSION })
    };
    let mut batch = Batch::default();
    assert!(batch.accepts(&signed(&cmac)) && batch.accepts(&sealed()) && batch.is_empty());
    batch.push(signed(&cmac));
    assert!(batch.accepts(&signed(&cmac)));
    assert!(!batch.accepts(&signed(&other)) && !batch.accepts(&sealed()));
    assert!(!batch.accepts(&outgoing(&message(1, 9_000), Guard::None)));
    for n in 2..=PROTECTED_TOGETHER {
        assert_eq!(batch.push(signed(&cmac)), n == PROTECTED_TOGETHER);
    }
    let mut large = Batch::default();
    let plain = message(1, (8 << 20) - 64);
    assert!(large.push(outgoing(&plain, Guard::signed(Arc::clone(&cmac), plain.len()))));
    for (bytes, is_taken) in [
        (TOGETHER_BYTES_MIN - 1, false),
        (TOGETHER_BYTES_MIN, true),
        (CRYPTO_GAINS_BYTES_MIN - 1, true),
        (CRYPTO_GAINS_BYTES_MIN, false),
    ] {
        assert_eq!(is_batched(bytes), is_taken, "{bytes}");
    }
    // A compound has one signature for each message, so it cannot be signed in a batch with others.
    let two = Guard::Signed(smallvec![
        Signature { range: 0..9_064, key: Arc::clone(&cmac) },
        Signature { range: 9_064..18_128, key: Arc::clone(&cmac) },
    ]);
    let compound = outgoing(&[message(1, 9_000), message(2, 9_000)].concat(), two);
    assert!(!compound.gains_by_batches());
}

/// Borrowed keys do for work that stays; work for other threads has its own.
#[test]
fn shared_work_outlives_the_session() {
    for cipher in CIPHERS {
        let (key, same) = (sealing(cipher), sealing(cipher));
        let plain = message(5, 100);
        let guard = Guard::<&Arc<SigningKey>, _>::Sealed { key: &key, session_id: SESSION };
        let borrowed = Outgoing::new(buffer(&plain), guard, Sender::Server, None).unwrap();
        let shared = borrowed.shared();
        drop(key);
        let sent = std::thread::spawn(move || shared.run()).join().unwrap().unwrap();
        assert_eq!(frame(&sent), run(&plain, Guard::Sealed { key: same, session_id: SESSION }));
    }
    let key = signing(SigningAlgorithm::AesGmac);
    let plain = message(5, 100);
    let guard = Guard::<_, &Arc<SealingKey>>::signed(&key, plain.len());
    let borrowed = Outgoing::new(buffer(&plain), guard, Sender::Server, None).unwrap();
    let sent = frame(&borrowed.shared().run().unwrap());
    assert_eq!(sent, run(&plain, Guard::signed(Arc::clone(&key), plain.len())));
}

#[test]
fn a_buffer_without_room_or_header_is_refused() {
    let seal = || Guard::Sealed { key: sealing(Cipher::Aes128Gcm), session_id: SESSION };
    let new = |buffer: Vec<u8>, guard: Guard| Outgoing::new(buffer, guard, Sender::Client, None);
    for len in [0, 3, HEADROOM - 1] {
        let refused = new(vec![0; len], seal()).map(drop);
        assert_eq!(refused, Err(ProtectError::Length(len)));
    }
    let short = new(buffer(&[0; 63]), Guard::signed(signing(SigningAlgorithm::AesCmac), 63));
    assert_eq!(short.unwrap().run(), Err(ProtectError::TooShort));
    let beyond = new(buffer(&[0; 63]), Guard::signed(signing(SigningAlgorithm::AesCmac), 64));
    assert_eq!(beyond.unwrap().run(), Err(ProtectError::TooShort));
    let most = crate::limits::FRAME_MAX;
    let framed = |len: usize| new(vec![0; HEADROOM + len], Guard::None).unwrap().run();
    assert_eq!(framed(most).unwrap().range, HEADROOM - PREFIX_LEN..HEADROOM + most);
    assert_eq!(framed(most + 1), Err(ProtectError::Length(HEADROOM + most + 1)));
}
