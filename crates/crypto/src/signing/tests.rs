use super::*;
use crate::vectors::{SESSION_SETUP_RESPONSE_2, hex, hex_array};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const NONCE: SignatureNonce =
    SignatureNonce { message_id: 7, sender: Sender::Client, is_cancel: false };
const ALL: [SigningAlgorithm; 3] =
    [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac];

#[test]
fn hmac_sha256_rfc_4231() {
    // RFC 4231 test case 2: HMAC pads its short key with zeros, so the key of 16 bytes gives the
    // same result.
    let key = SigningKey::new(SigningAlgorithm::HmacSha256, b"Jefe\0\0\0\0\0\0\0\0\0\0\0\0");
    let message = b"what do ya want for nothing?";
    let half = hex("5bdcc146bf60754e6a042426089575c7");
    assert_eq!(key.signature(&[message], NONCE)[..], half);
    assert_eq!(key.signature(&[b"what do ya want ", b"for nothing?"], NONCE)[..], half);
}

#[test]
fn aes_cmac_rfc_4493() {
    let key = hex_array("2b7e151628aed2a6abf7158809cf4f3c");
    let key = SigningKey::new(SigningAlgorithm::AesCmac, &key);
    let message = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
    for (len, mac) in [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ] {
        assert_eq!(key.signature(&[&message[..len]], NONCE)[..], hex(mac));
        let (a, b) = message[..len].split_at(len / 3);
        assert_eq!(key.signature(&[a, b], NONCE)[..], hex(mac));
    }
}

#[test]
fn aes_gmac_known_answers() {
    // The first test case in the specification of GCM: key, nonce and message are zero or empty.
    let key = SigningKey::new(SigningAlgorithm::AesGmac, &[0; 16]);
    let zero = SignatureNonce { message_id: 0, ..NONCE };
    assert_eq!(key.signature(&[], zero)[..], hex("58e2fccefa7e3061367f1d57a4e7455a"));
    // Test 4 of aes_gcm in Wycheproof, with the test's own nonce, because a header cannot produce
    // it.
    let key = hex_array("bedcfb5a011ebc84600fcb296c15af0d");
    let Key::Gmac(key) = SigningKey::new(SigningAlgorithm::AesGmac, &key).0 else { panic!() };
    let nonce = aead::Nonce::assume_unique_for_key(hex_array("438a547a94ea88dce46c6c85"));
    let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::empty(), &mut []).unwrap();
    assert_eq!(tag.as_ref(), hex("960247ba5cde02e41a313c4c0136edc3"));
}

#[test]
fn gmac_nonce_layout() {
    // MS-SMB2 3.1.4.1: the nonce is the MessageId and four bytes of flags: bit 0 if the server
    // sends, bit 1 for CANCEL.
    let nonce = |sender, is_cancel| {
        SignatureNonce { message_id: 0x0102_0304_0506_0708, sender, is_cancel }.to_bytes()
    };
    assert_eq!(nonce(Sender::Client, false)[..], hex("0807060504030201 00000000"));
    assert_eq!(nonce(Sender::Server, false)[..], hex("0807060504030201 01000000"));
    assert_eq!(nonce(Sender::Client, true)[..], hex("0807060504030201 02000000"));
}

/// No message has a nonce of data, and the two sides have none in common.
#[test]
fn data_has_nonces_of_its_own() {
    let client = DataNonce::new(0x0102_0304_0506_0708, Sender::Client);
    assert_eq!(client.field()[..], hex("0807060504030201 04000000"));
    let server = DataNonce::new(0x0102_0304_0506_0708, Sender::Server);
    assert_eq!(server.field()[..], hex("0807060504030201 05000000"));
}

#[test]
fn data_is_signed_with_gmac_alone() {
    let data = b"the content of a file";
    let nonce = || DataNonce::new(9, Sender::Client);
    for algorithm in ALL {
        let key = SigningKey::new(algorithm, &[7; 16]);
        let Some(signature) = key.data_signature(data, nonce()) else {
            assert_ne!(algorithm, SigningAlgorithm::AesGmac);
            assert!(!key.verifies_data(data, nonce().field(), &key.signature(&[data], NONCE)));
            continue;
        };
        assert_eq!(algorithm, SigningAlgorithm::AesGmac);
        assert!(key.verifies_data(data, nonce().field(), &signature));
        assert!(!key.verifies_data(&data[1..], nonce().field(), &signature));
        let other = DataNonce::new(9, Sender::Server);
        assert!(!key.verifies_data(data, other.field(), &signature));
        let mut altered = signature;
        altered[15] ^= 1;
        assert!(!key.verifies_data(data, nonce().field(), &altered));
        // The nonce has the MessageId, so the same bytes have another signature in another message.
        let message = SignatureNonce { message_id: 9, ..NONCE };
        assert_ne!(key.signature(&[data], message), signature);
    }
}

#[test]
fn published_session_setup_response() {
    let signed = hex(SESSION_SETUP_RESPONSE_2);
    let key = hex_array("73FE7A9A77BEF0BDE49C650D8CCB5F76");
    let key = SigningKey::new(SigningAlgorithm::AesCmac, &key);
    let nonce = SignatureNonce { message_id: 3, sender: Sender::Server, is_cancel: false };
    assert!(key.verify(&mut signed.clone(), nonce));
    let mut again = signed.clone();
    again[SIGNATURE_RANGE].fill(0xAA);
    key.sign(&mut again, nonce).unwrap();
    assert_eq!(again, signed);
}

#[test]
fn shortest_message() {
    for algorithm in ALL {
        let key = SigningKey::new(algorithm, &[1; 16]);
        for len in [0, 47, 48, 63] {
            assert_eq!(key.sign(&mut vec![0; len], NONCE), Err(TooShort));
            assert_eq!(key.sign_all(&mut [(&mut vec![0; len], NONCE)]), Err(TooShort));
            assert!(!key.verify(&mut vec![0; len], NONCE));
        }
        for len in [64, 65] {
            let mut message = vec![0; len];
            assert_eq!(key.sign(&mut message, NONCE), Ok(()));
            assert!(key.verify(&mut message, NONCE));
        }
    }
}

#[test]
fn gmac_signature_depends_on_its_nonce_and_the_others_do_not() {
    for algorithm in ALL {
        let key = SigningKey::new(algorithm, &[1; 16]);
        let mut message = vec![5; 100];
        key.sign(&mut message, NONCE).unwrap();
        let other_id = SignatureNonce { message_id: 8, ..NONCE };
        let other_side = SignatureNonce { sender: Sender::Server, ..NONCE };
        let cancel = SignatureNonce { is_cancel: true, ..NONCE };
        for nonce in [other_id, other_side, cancel] {
            let accepted = key.verify(&mut message.clone(), nonce);
            assert_eq!(accepted, algorithm != SigningAlgorithm::AesGmac);
        }
    }
}

#[test]
fn ids_and_printing() {
    for algorithm in ALL {
        assert_eq!(SigningAlgorithm::from_id(algorithm.id()), Some(algorithm));
        let printed = std::format!("{:?}", SigningKey::new(algorithm, &[0x41; 16]));
        assert!(!printed.contains("41") && !printed.contains("65"), "{printed}");
    }
    assert_eq!(SigningAlgorithm::from_id(3), None);
}

proptest! {
    #[test]
    fn several_at_once_are_each_alone(
        messages in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 65..300), 1..11),
        which in 0..3_usize,
        wrong in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let key = SigningKey::new(ALL[which], &[9; 16]);
        let nonce = |at: usize| SignatureNonce { message_id: at as u64, ..NONCE };
        let mut alone = messages.clone();
        for (at, message) in alone.iter_mut().enumerate() {
            key.sign(message, nonce(at)).unwrap();
        }
        let mut together = messages;
        let mut all: Vec<(&mut [u8], SignatureNonce)> = together
            .iter_mut()
            .enumerate()
            .map(|(at, message)| (&mut message[..], nonce(at)))
            .collect();
        key.sign_all(&mut all).unwrap();
        prop_assert_eq!(&together, &alone);

        // One message is changed, and one that is too short for a header is added. Both fail, and
        // the others are not affected.
        let wrong = wrong.map(|wrong| wrong.index(together.len()));
        if let Some(at) = wrong {
            let last = together[at].len() - 1;
            together[at][last] ^= 0x40;
        }
        together.insert(0, vec![0; 63]);
        let sent = together.clone();
        let mut all: Vec<(&mut [u8], SignatureNonce)> = together
            .iter_mut()
            .enumerate()
            .map(|(at, message)| (&mut message[..], nonce(at.saturating_sub(1))))
            .collect();
        let verdicts = key.verify_all(&mut all);
        prop_assert_eq!(verdicts.len(), sent.len());
        for (at, is_right) in verdicts.into_iter().enumerate() {
            prop_assert_eq!(is_right, at > 0 && wrong != Some(at - 1), "message {}", at);
        }
        prop_assert_eq!(together, sent, "the messages are as they were");
    }

    #[test]
    fn any_flipped_bit_is_found(
        mut message in proptest::collection::vec(any::<u8>(), 64..400),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u8,
        which in 0..3_usize,
    ) {
        let key = SigningKey::new(ALL[which], &[9; 16]);
        key.sign(&mut message, NONCE).unwrap();
        let sent = message.clone();
        prop_assert!(key.verify(&mut message, NONCE));
        prop_assert_eq!(&message, &sent);
        let at = at.index(message.len());
        message[at] ^= 1 << bit;
        prop_assert!(!key.verify(&mut message, NONCE));
    }

    #[test]
    fn parts_are_the_whole(
        message in proptest::collection::vec(any::<u8>(), 0..300),
        cuts in (any::<proptest::sample::Index>(), any::<proptest::sample::Index>()),
        which in 0..3_usize,
    ) {
        let key = SigningKey::new(ALL[which], &[9; 16]);
        let mut cuts: Vec<usize> =
            [cuts.0, cuts.1].map(|i| i.index(message.len() + 1)).to_vec();
        cuts.sort_unstable();
        let parts = [&message[..cuts[0]], &message[cuts[0]..cuts[1]], &message[cuts[1]..]];
        prop_assert_eq!(key.signature(&parts, NONCE), key.signature(&[&message], NONCE));
    }
}
