//! Sealed and compressed messages.

use frevo_crypto::{Cipher, OpeningKey, SealingKey, Sender, SigningAlgorithm, SigningKey};
use frevo_proto::protection::transform::{HEADROOM, check_unsealed, seal_frame, unseal_frame};
use frevo_proto::rdma_transform::{DataProof, sole};
use frevo_wire::codec::Writer;
use frevo_wire::compression::Compressed;
use frevo_wire::rdma_transform::{RdmaTransform, RdmaTransformType};
use frevo_wire::transform::TransformHeader;

const SESSION: u64 = 0x1122_3344_5566_7788;

/// The first byte selects a raw frame, or a correctly sealed message that the next two bytes
/// damage.
pub fn transforms(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm, Cipher::Aes256Ccm];
    let cipher = ciphers[usize::from(kind >> 1) % 4];
    let opening = OpeningKey::new(cipher, &[7; 32]);
    let open = |frame: &mut [u8], may_be_compressed| {
        unseal_frame(frame, Sender::Client, may_be_compressed, |id| {
            (id == SESSION).then_some(&opening)
        })
    };
    let _ = TransformHeader::parse(data);
    rdma_transforms(data, cipher);
    if let Ok(compressed) = Compressed::parse(data) {
        let _ = compressed.decompressed_len();
    }
    for from in [Sender::Client, Sender::Server] {
        let _ = check_unsealed(data, SESSION, from);
    }
    if kind % 2 == 0 {
        for may_be_compressed in [false, true] {
            assert!(open(&mut data.to_vec(), may_be_compressed).is_err(), "a forgery");
        }
        return;
    }
    let Some((damage, message)) = data.split_first_chunk::<2>() else { return };
    let mut frame = vec![0; HEADROOM];
    frame.extend_from_slice(message);
    seal_frame(&mut frame, &SealingKey::new(cipher, &[7; 32]), SESSION).unwrap();
    let mut frame = frame.split_off(4);
    if let (Some(byte), true) = (frame.get_mut(usize::from(damage[0])), damage[1] != 0) {
        // The reserved bytes are the only ones that the tag alone protects.
        *byte ^= damage[1];
        assert!(open(&mut frame, false).is_err(), "damaged");
        return;
    }
    if let Ok(unsealed) = open(&mut frame, false) {
        assert_eq!(&frame[unsealed.message], message);
        assert_eq!(check_unsealed(message, SESSION, Sender::Client), Ok(()));
    }
}

/// Channel information of a peer: what is parsed survives, and proves nothing of data that the peer
/// has not protected.
fn rdma_transforms(data: &[u8], cipher: Cipher) {
    let Ok(transform) = RdmaTransform::parse(data) else { return };
    let mut bytes = Vec::new();
    transform.encode(&mut Writer::new(&mut bytes));
    assert_eq!(RdmaTransform::parse(&bytes), Ok(transform.clone()));
    for kind in [RdmaTransformType::ENCRYPTION, RdmaTransformType::SIGNING] {
        let Some(only) = sole(&transform, kind) else { continue };
        let Ok(proof) = DataProof::received(&only, Some(cipher)) else { continue };
        assert_eq!(proof.transform(), only);
        let mut content = transform.descriptors.to_vec();
        let signing = SigningKey::new(SigningAlgorithm::AesGmac, &[7; 16]);
        assert!(!proof.is_of(&content, &signing), "a forgery");
        let opening = OpeningKey::new(cipher, &[7; 32]);
        assert!(proof.decrypt(&mut content, &opening).is_err(), "a forgery");
    }
}
