use super::*;
use frevo_crypto::Cipher;
use frevo_wire::{Command, Route, Status};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const SESSION: u64 = 0x1234;
const ALL: [Cipher; 4] =
    [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];

fn message(session_id: u64, flags: HeaderFlags, next_command: u32) -> Vec<u8> {
    let header = Header {
        credit_charge: 1,
        status: Status::SUCCESS,
        command: Command::ECHO,
        credits: 1,
        flags,
        next_command,
        message_id: 3,
        route: Route::Sync { process_id: 0, tree_id: 0 },
        session_id,
        signature: [0; 16],
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// Returns `message` sealed by the client of `SESSION`, as a frame without its prefix.
fn sealed(message: &[u8]) -> Vec<u8> {
    let key = SealingKey::new(Cipher::Aes128Gcm, &[1; 32]);
    let mut buffer = vec![0; HEADROOM];
    buffer.extend_from_slice(message);
    seal_frame(&mut buffer, &key, SESSION).unwrap();
    assert_eq!(FrameLength::parse(buffer[..4].try_into().unwrap(), 1 << 20), Ok(buffer.len() - 4));
    buffer.split_off(PREFIX_LEN)
}

fn open(frame: &mut [u8], from: Sender) -> Result<Unsealed, Disconnect> {
    let key = OpeningKey::new(Cipher::Aes128Gcm, &[1; 32]);
    unseal_frame(frame, from, |id| (id == SESSION).then_some(&key))
}

fn opens(message: &[u8], from: Sender) -> bool {
    open(&mut sealed(message), from).is_ok()
}

/// Nonces belong to the order in which sealing was begun, not ended.
#[test]
fn sealing_may_end_later_than_it_begins() {
    for cipher in ALL {
        let keys = [(); 2].map(|()| SealingKey::new(cipher, &[1; 32]));
        let frames = [10, 20].map(|len| [vec![0; HEADROOM], vec![len as u8; len]].concat());
        let (mut begun, mut whole) = (frames.clone(), frames.clone());
        for frame in &mut whole {
            seal_frame(frame, &keys[0], SESSION).unwrap();
        }
        let [first, second] =
            begun.each_mut().map(|frame| Sealing::begin(frame, &keys[1], SESSION).unwrap());
        second.finish(&mut begun[1], &keys[1]).unwrap();
        first.finish(&mut begun[0], &keys[1]).unwrap();
        assert_eq!(begun, whole, "{cipher:?}");
        assert!(begun.iter().zip(&frames).all(|(sealed, plain)| sealed != plain));
        let short = Sealing::begin(&begun[0], &keys[1], SESSION).unwrap();
        let wrong = Err(SealError::Length(HEADROOM - 1));
        assert_eq!(short.finish(&mut [0; HEADROOM - 1], &keys[1]), wrong);
    }
}

#[test]
fn published_3_0_and_3_1_1_messages() {
    // The frames are the server's WRITE responses in Microsoft's articles "Encryption in SMB 3.0: A
    // protocol perspective" and "SMB 3.1.1 Encryption in Windows 10".
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    };
    for (cipher, key, session_id, frame, plain) in [
        (
            Cipher::Aes128Ccm,
            "8FE2B57EC34D2DB5B1A9727F526BBDB5",
            0x0008_e400_1400_0011,
            "FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014\
             00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079\
             E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787\
             1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1\
             77309E5B",
            "FE534D4240000100000000000900210009000000000000000400000000000000\
             FFFE0000010000001100001400E4080000000000000000000000000000000000\
             11000000170000000000000000000000",
        ),
        (
            Cipher::Aes128Gcm,
            "748C50868C90F302962A5C35F5F9A8BF",
            0x1000_0000_0025,
            "FD534D42ACBE1CB7ED343ADF1725EF144D90D4B0E06831DD2E8EB7B400000000\
             0000000050000000000001002500000000100000\
             26BBBF949983A6C1C796559D0F2C510CB651D1F7B6AC8DED32A2A0B8\
             F2D793A815C6F6B848D69767A215841A42D400AE6DDB5F0B44173A014973321F\
             DD7950DA6179159B82E03C9E18A050FF0EA1C967",
            "FE534D4240000100000000000900010001000000000000000500000000000000\
             FFFE000001000000250000000010000000000000000000000000000000000000\
             11000000170000000000000000000000",
        ),
    ] {
        let mut key_bytes = [0; 32];
        key_bytes[..16].copy_from_slice(&hex(key));
        let key = OpeningKey::new(cipher, &key_bytes);
        let mut frame = hex(frame);
        let unsealed = unseal_frame(&mut frame, Sender::Server, |id| {
            assert_eq!(id, session_id);
            Some(&key)
        })
        .unwrap();
        assert_eq!(unsealed.session_id, session_id);
        assert_eq!(frame[unsealed.message], hex(plain));
    }
}

/// Frames that are sealed together and opened one by one, and the reverse: the bytes are those of
/// one alone. Among them are a changed one and malformed ones.
#[test]
fn several_at_once_are_each_alone() {
    for cipher in ALL {
        let plain = |at: u8| {
            let mut plain = message(SESSION, HeaderFlags::EMPTY, 0);
            plain.resize(200 + 64 * usize::from(at), at);
            plain
        };
        let buffer = |at| [vec![0xEE; HEADROOM], plain(at)].concat();
        let (one, other) = (SealingKey::new(cipher, &[1; 32]), SealingKey::new(cipher, &[1; 32]));
        let mut together: Vec<Vec<u8>> = (0..5).map(buffer).collect();
        let mut alone = together.clone();
        let mut all: Vec<&mut [u8]> = together.iter_mut().map(|buffer| &mut buffer[..]).collect();
        seal_frames(&mut all, &one, SESSION).unwrap();
        alone.iter_mut().for_each(|buffer| seal_frame(buffer, &other, SESSION).unwrap());
        assert_eq!(together, alone, "{cipher:?}");

        let mut frames: Vec<Vec<u8>> =
            together.into_iter().map(|mut buffer| buffer.split_off(PREFIX_LEN)).collect();
        *frames[1].last_mut().unwrap() ^= 1;
        // One frame has a changed byte, one has wrong flags in its transform header, and one is too
        // short. Only these three are refused.
        frames[3][42] = 2;
        frames.push(vec![0xFD; 20]);
        let sent = frames.clone();
        let key = OpeningKey::new(cipher, &[1; 32]);
        let mut all: Vec<&mut [u8]> = frames.iter_mut().map(|frame| &mut frame[..]).collect();
        let verdicts = decrypt_frames(&mut all, &key);
        assert_eq!(verdicts, [Some(true), Some(false), Some(true), None, Some(true), None]);
        for (at, (frame, verdict)) in frames.iter_mut().zip(verdicts).enumerate() {
            let mut again = sent[at].clone();
            let expected = unseal_frame(&mut again, Sender::Client, |_| Some(&key));
            let Some(is_right) = verdict else {
                assert_eq!(*frame, sent[at], "a malformed frame is left alone");
                assert!(expected.is_err());
                continue;
            };
            let unsealed = conclude_frame(frame, is_right, Sender::Client);
            assert_eq!(unsealed, expected, "{cipher:?}, {at}");
            if let Ok(unsealed) = unsealed {
                assert_eq!(frame[unsealed.message], plain(at as u8));
            }
        }
    }
}

#[test]
fn round_trip_with_every_cipher() {
    let plain = message(SESSION, HeaderFlags::EMPTY, 0);
    for cipher in ALL {
        let key = SealingKey::new(cipher, &[1; 32]);
        let mut buffer = vec![0xEE; HEADROOM];
        buffer.extend_from_slice(&plain);
        seal_frame(&mut buffer, &key, SESSION).unwrap();
        assert!(is_sealed(&buffer[4..]));
        let opening = OpeningKey::new(cipher, &[1; 32]);
        let unsealed = unseal_frame(&mut buffer[4..], Sender::Client, |_| Some(&opening)).unwrap();
        assert_eq!(buffer[4..][unsealed.message], plain);
    }
}

#[test]
fn seals_need_headroom_and_a_frame_that_can_be_named() {
    let key = SealingKey::new(Cipher::Aes128Gcm, &[1; 32]);
    for len in [0, 3, HEADROOM - 1] {
        assert_eq!(seal_frame(&mut vec![0; len], &key, 1), Err(SealError::Length(len)));
    }
    let most = crate::limits::FRAME_MAX + PREFIX_LEN;
    let mut buffer = vec![0; most + 1];
    assert_eq!(seal_frame(&mut buffer, &key, 1), Err(SealError::Length(most + 1)));
    assert_eq!(seal_frame(&mut buffer[..most], &key, 1), Ok(()));
    assert_eq!(seal_frame(&mut buffer[..most - 1], &key, 1), Ok(()));
}

#[test]
fn lengths_around_the_header() {
    for len in 0..=TRANSFORM_HEADER_LEN {
        let mut frame = sealed(&message(SESSION, HeaderFlags::EMPTY, 0));
        frame.truncate(len);
        assert!(open(&mut frame, Sender::Client).is_err(), "{len}");
    }
    // A message shorter than the SMB2 header can be encrypted, but must be refused after
    // decryption.
    for len in [0, 1, 63] {
        assert!(!opens(&message(SESSION, HeaderFlags::EMPTY, 0)[..len], Sender::Client));
    }
    assert!(opens(&message(SESSION, HeaderFlags::EMPTY, 0)[..64], Sender::Client));
}

#[test]
fn header_fields_are_checked_before_the_key_is_asked_for() {
    for (at, rule) in [(42, "Flags"), (36, "OriginalMessageSize")] {
        let mut frame = sealed(&message(SESSION, HeaderFlags::EMPTY, 0));
        frame[at] ^= 2;
        let key = OpeningKey::new(Cipher::Aes128Gcm, &[1; 32]);
        let mut asked = false;
        let result = unseal_frame(&mut frame, Sender::Client, |_| {
            asked = true;
            Some(&key)
        });
        assert_eq!(result, Err(Disconnect::Sealed(rule)));
        assert!(!asked);
    }
    let mut frame = sealed(&message(SESSION, HeaderFlags::EMPTY, 0));
    frame[44] ^= 1;
    let no_session = Disconnect::Sealed("its session has ended or has no keys");
    assert_eq!(open(&mut frame, Sender::Client), Err(no_session));
}

#[test]
fn nested_and_foreign_protocols() {
    let mut inner = message(SESSION, HeaderFlags::EMPTY, 0);
    for first in [0xFD, 0xFC, 0xFF, 0x00] {
        inner[0] = first;
        assert!(!opens(&inner, Sender::Client));
        assert!(!opens(&inner, Sender::Server));
    }
}

#[test]
fn session_of_every_element() {
    let none = HeaderFlags::EMPTY;
    let related = HeaderFlags::RELATED_OPERATIONS;
    let pair = |first: (u64, HeaderFlags), second: (u64, HeaderFlags)| {
        let mut chain = message(first.0, first.1, 72);
        chain.extend(message(second.0, second.1, 0));
        chain
    };
    for (chain, by_client, by_server) in [
        (message(SESSION, none, 0), true, true),
        (message(SESSION + 1, none, 0), false, false),
        (message(SESSION, related, 0), false, true),
        (pair((SESSION, none), (SESSION, none)), true, true),
        (pair((SESSION, none), (SESSION, related)), true, true),
        (pair((SESSION, none), (u64::MAX, related)), true, false),
        (pair((SESSION, none), (SESSION + 1, none)), false, false),
        (pair((SESSION + 1, none), (SESSION, none)), false, false),
    ] {
        assert_eq!(opens(&chain, Sender::Client), by_client, "{chain:?}");
        assert_eq!(opens(&chain, Sender::Server), by_server, "{chain:?}");
    }
}

#[test]
fn notifications_have_no_session() {
    let mut notification = message(0, HeaderFlags::SERVER_TO_REDIR, 0);
    assert!(!opens(&notification, Sender::Server));
    notification[24..32].fill(0xFF);
    assert!(opens(&notification, Sender::Server));
    assert!(!opens(&notification, Sender::Client));
}

#[test]
fn next_command_has_to_lead_to_a_header() {
    for next in [1, 8, 56, 63, 65, 68, 76, 80, 136, 144, 0x8000_0000, 0xFFFF_FFF8] {
        let mut chain = message(SESSION, HeaderFlags::EMPTY, next);
        chain.extend(message(SESSION, HeaderFlags::EMPTY, 0));
        assert!(!opens(&chain, Sender::Client), "{next}");
    }
}

proptest! {
    #[test]
    fn any_flipped_bit_is_found(at in 0..124_usize, bit in 0..8_u8) {
        let mut frame = sealed(&message(SESSION, HeaderFlags::EMPTY, 0));
        prop_assert_eq!(frame.len(), 124);
        prop_assert!(open(&mut frame.clone(), Sender::Client).is_ok());
        frame[at] ^= 1 << bit;
        prop_assert!(open(&mut frame, Sender::Client).is_err());
    }

    #[test]
    fn noise_is_survived(
        mut frame in proptest::collection::vec(any::<u8>(), 0..200),
        inner in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = open(&mut frame, Sender::Server);
        let mut with_id = PROTOCOL_ID.to_vec();
        with_id.extend(inner);
        let _ = check_unsealed(&with_id, SESSION, Sender::Client);
        let _ = opens(&with_id, Sender::Server);
    }
}
