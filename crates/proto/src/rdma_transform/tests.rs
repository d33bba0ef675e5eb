use super::*;
use frevo_crypto::Sender;
use frevo_wire::command::read::Channel;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const CIPHERS: [Cipher; 4] =
    [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];
const ENCRYPTION: RdmaTransformType = RdmaTransformType::ENCRYPTION;
const SIGNING: RdmaTransformType = RdmaTransformType::SIGNING;

fn signer() -> SigningKey {
    SigningKey::new(SigningAlgorithm::AesGmac, &[7; 16])
}

#[test]
fn only_what_the_algorithms_allow_is_common() {
    use RdmaTransformId as Id;
    let both = [Id(9), Id::SIGNING, Id::ENCRYPTION];
    let common = |ids: &[Id], cipher, signing| RdmaTransforms::common(ids, cipher, signing);
    let (gcm, gmac) = (Some(Cipher::Aes128Gcm), SigningAlgorithm::AesGmac);
    assert_eq!(common(&both, gcm, gmac), RdmaTransforms::ALL);
    assert_eq!(
        common(&both, gcm, SigningAlgorithm::AesCmac),
        RdmaTransforms { encryption: true, signing: false }
    );
    assert_eq!(common(&both, None, gmac), RdmaTransforms { encryption: false, signing: true });
    assert_eq!(common(&[Id::NONE, Id(9)], gcm, gmac), RdmaTransforms::default());
    assert_eq!(RdmaTransforms::ALL.ids(), [Id::ENCRYPTION, Id::SIGNING]);
    assert_eq!(RdmaTransforms::default().ids(), [Id::NONE]);
}

/// The protection of the data is never less than that of its message.
#[test]
fn protected_data_never_moves_in_the_clear() {
    let none = RdmaTransforms::default();
    for transforms in [none, RdmaTransforms::ALL] {
        assert_eq!(transforms.needed(Protection::None), Ok(None));
    }
    for protection in [Protection::Signed, Protection::Sealed] {
        assert_eq!(none.needed(protection), Err(Unprotected));
    }
    assert_eq!(RdmaTransforms::ALL.needed(Protection::Sealed), Ok(Some(ENCRYPTION)));
    assert_eq!(RdmaTransforms::ALL.needed(Protection::Signed), Ok(Some(SIGNING)));
    // An encrypted session must not send its data with a signing transform, because that does not
    // encrypt.
    let signing = RdmaTransforms { signing: true, ..none };
    assert_eq!(signing.needed(Protection::Sealed), Err(Unprotected));
    let encryption = RdmaTransforms { encryption: true, ..none };
    assert_eq!(encryption.needed(Protection::Signed), Err(Unprotected));
}

/// The bytes by RFC 5288's algorithm directly: the nonce of the sequence, no additional data.
#[test]
fn encrypted_data_by_its_bytes() {
    for cipher in CIPHERS {
        let mut data = *b"sixteen bytes...";
        let proof = DataProof::encrypt(&mut data, &SealingKey::new(cipher, &[7; 32])).unwrap();
        assert_ne!(&data, b"sixteen bytes...");
        let transform = proof.transform();
        assert_eq!(transform.transform_type, ENCRYPTION);
        assert_eq!(transform.nonce, &[0; 16][..cipher.nonce_len()]);
        let tag = transform.signature.try_into().unwrap();
        OpeningKey::new(cipher, &[7; 32]).open(&[0; 16], &[], &mut data, &tag).unwrap();
        assert_eq!(&data, b"sixteen bytes...");
    }
}

/// Messages and data take their nonces from one sequence.
#[test]
fn nonces_are_never_shared_with_messages() {
    let key = SealingKey::new(Cipher::Aes128Gcm, &[7; 32]);
    let message = key.next_nonce().unwrap();
    let data = DataProof::encrypt(&mut [0], &key).unwrap();
    let next = key.next_nonce().unwrap();
    assert_ne!(data.nonce, *message.field());
    assert_ne!(data.nonce, *next.field());
}

#[test]
fn lengths_are_those_of_the_algorithm() {
    let (long, short) = ([1; 17], [1; 15]);
    for (kind, cipher, nonce) in [
        (ENCRYPTION, Some(Cipher::Aes128Gcm), 12),
        (ENCRYPTION, Some(Cipher::Aes256Ccm), 11),
        (SIGNING, None, 12),
    ] {
        let of = |signature, nonce_len: usize| {
            let nonce = &[2; 40][..nonce_len];
            DataProof::received(
                &RdmaCryptoTransform { transform_type: kind, signature, nonce },
                cipher,
            )
        };
        let proof = of(&long[..16], nonce).unwrap();
        assert_eq!(proof.kind(), kind);
        assert_eq!(proof.transform().nonce, &[2; 40][..nonce]);
        for (signature, nonce) in [
            (&long[..], nonce),
            (&short[..], nonce),
            (&[][..], nonce),
            (&long[..16], nonce - 1),
            (&long[..16], nonce + 1),
            (&long[..16], 0),
            (&long[..16], 40),
        ] {
            assert_eq!(of(signature, nonce), Err(WrongLength));
        }
    }
    let encrypted =
        RdmaCryptoTransform { transform_type: ENCRYPTION, signature: &[1; 16], nonce: &[2; 12] };
    assert_eq!(DataProof::received(&encrypted, None), Err(WrongLength));
}

#[test]
fn there_is_one_transform_of_the_right_kind() {
    let proof = DataProof::sign(b"data", &signer(), DataNonce::new(1, Sender::Client)).unwrap();
    let other = RdmaCryptoTransform { transform_type: ENCRYPTION, ..proof.transform() };
    let strange = RdmaCryptoTransform { transform_type: RdmaTransformType(3), ..proof.transform() };
    let of = |transforms: &[RdmaCryptoTransform<'static>]| RdmaTransform {
        channel: Channel::NONE,
        transforms: transforms.to_vec(),
        descriptors: &[],
    };
    let leak = |transform: RdmaCryptoTransform<'_>| RdmaCryptoTransform {
        transform_type: transform.transform_type,
        signature: Vec::leak(transform.signature.to_vec()),
        nonce: Vec::leak(transform.nonce.to_vec()),
    };
    let (own, other, strange) = (leak(proof.transform()), leak(other), leak(strange));
    assert_eq!(sole(&of(&[own]), SIGNING), Some(own));
    assert_eq!(sole(&of(&[own]), ENCRYPTION), None);
    assert_eq!(sole(&of(&[strange]), SIGNING), None);
    for two in [[own, own], [own, other], [other, own], [own, strange], [strange, own]] {
        assert_eq!(sole(&of(&two), SIGNING), None);
    }
    assert_eq!(sole(&of(&[]), SIGNING), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One side decrypts the data that the other side has encrypted, and no other.
    #[test]
    fn altered_data_is_refused(
        which in 0..4usize, content in proptest::collection::vec(any::<u8>(), 1..300),
        at in any::<prop::sample::Index>(), change in 1u8..,
    ) {
        let cipher = CIPHERS[which];
        let (sealing, opening) =
            (SealingKey::new(cipher, &[7; 32]), OpeningKey::new(cipher, &[7; 32]));
        let mut data = content.clone();
        let proof = DataProof::encrypt(&mut data, &sealing).unwrap();
        let received = DataProof::received(&proof.transform(), Some(cipher)).unwrap();
        prop_assert_eq!(received, proof);
        let mut altered = data.clone();
        altered[at.index(data.len())] ^= change;
        prop_assert!(received.decrypt(&mut altered, &opening).is_err());
        // The proof of other data, made with the same key, must not fit this data.
        let mut again = content.clone();
        let later = DataProof::encrypt(&mut again, &sealing).unwrap();
        prop_assert!(later.decrypt(&mut data.clone(), &opening).is_err());
        prop_assert!(received.decrypt(&mut vec![0; data.len()], &opening).is_err());
        prop_assert!(!received.is_of(&data, &signer()));
        received.decrypt(&mut data, &opening).unwrap();
        prop_assert_eq!(data, content);
    }

    #[test]
    fn altered_data_has_another_signature(
        content in proptest::collection::vec(any::<u8>(), 1..300), number: u64,
        at in any::<prop::sample::Index>(), change in 1u8..,
    ) {
        let key = signer();
        let proof =
            DataProof::sign(&content, &key, DataNonce::new(number, Sender::Server)).unwrap();
        let received = DataProof::received(&proof.transform(), None).unwrap();
        prop_assert_eq!(received, proof);
        prop_assert!(received.is_of(&content, &key));
        let mut altered = content.clone();
        altered[at.index(content.len())] ^= change;
        prop_assert!(!received.is_of(&altered, &key));
        let opening = OpeningKey::new(Cipher::Aes128Gcm, &[7; 32]);
        prop_assert!(received.decrypt(&mut altered, &opening).is_err());
    }
}
