//! Sealed, signed and compressed messages, through the pipeline of both roles.

use std::sync::Arc;

use frevo_crypto::{Cipher, OpeningKey, SealingKey, Sender, SigningAlgorithm, SigningKey};
use frevo_proto::Disconnect;
use frevo_proto::protection::transform::{HEADROOM, check_unsealed, unseal_frame};
use frevo_proto::protection::{
    Batch, Check, Form, Guard, Incoming, Opened, Outgoing, Verdict, Work, open,
};
use frevo_proto::rdma_transform::{DataProof, sole};
use frevo_wire::codec::Writer;
use frevo_wire::compression::Compressed;
use frevo_wire::rdma_transform::{RdmaTransform, RdmaTransformType};
use frevo_wire::transform::TransformHeader;

const SESSION: u64 = 0x1122_3344_5566_7788;

/// Longest message that is protected and checked beside others too, bytes: an input has a second.
const SIDE_BY_SIDE_MAX: usize = 64 << 10;

/// The first byte selects a raw frame, or a correctly sealed message that the next two bytes
/// damage.
pub fn transforms(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Aes128Ccm, Cipher::Aes256Ccm];
    let cipher = ciphers[usize::from(kind >> 1) % 4];
    let peer = Peer::new(cipher, kind >> 3);
    let _ = TransformHeader::parse(data);
    rdma_transforms(data, cipher);
    if let Ok(compressed) = Compressed::parse(data) {
        let _ = compressed.decompressed_len();
    }
    for from in [Sender::Client, Sender::Server] {
        let _ = check_unsealed(data, SESSION, from);
    }
    if kind % 2 == 0 {
        let key = |id| (id == SESSION).then_some(&*peer.opening);
        let forged = unseal_frame(&mut data.to_vec(), Sender::Client, key);
        assert!(forged.is_err(), "a forgery");
        let opened = peer.open(data);
        assert!(opened.is_none_or(|(opened, _)| opened.sealed_for.is_none()), "a forgery");
        peer.verify(data);
        return;
    }
    let Some((damage, message)) = data.split_first_chunk::<2>() else { return };
    peer.sign(message);
    let mut frame = peer.seal(message);
    if let (Some(byte), true) = (frame.get_mut(usize::from(damage[0])), damage[1] != 0) {
        // The receiver must notice the changed byte, because even reserved bytes are protected by
        // the tag.
        *byte ^= damage[1];
        let opened = peer.open(&frame);
        assert!(opened.is_none_or(|(opened, _)| opened.sealed_for.is_none()), "damaged");
        return;
    }
    if let Some((opened, frame)) = peer.open(&frame) {
        assert_eq!(opened.sealed_for, Some(SESSION));
        assert_eq!(&frame[opened.message], message);
        assert_eq!(check_unsealed(message, SESSION, Sender::Client), Ok(()));
    }
}

/// Both ends of a session: the client sends, the server receives.
struct Peer {
    sealing: [Arc<SealingKey>; 2],
    opening: Arc<OpeningKey>,
    signing: Arc<SigningKey>,
}

impl Peer {
    fn new(cipher: Cipher, kind: u8) -> Self {
        let algorithm = SigningAlgorithm::from_id(u16::from(kind % 3)).expect("one of three");
        Self {
            sealing: [(); 2].map(|()| Arc::new(SealingKey::new(cipher, &[7; 32]))),
            opening: Arc::new(OpeningKey::new(cipher, &[7; 32])),
            signing: Arc::new(SigningKey::new(algorithm, &[7; 16])),
        }
    }

    /// Seals a message alone and among others: it has the same bytes, for it has the same nonce.
    fn seal(&self, message: &[u8]) -> Vec<u8> {
        let outgoing = |key: &Arc<SealingKey>| {
            let guard: Guard = Guard::Sealed { key: Arc::clone(key), session_id: SESSION };
            let buffer = [&[0; HEADROOM], message].concat();
            Outgoing::new(buffer, guard, Sender::Client, None).expect("it has headroom")
        };
        let alone = outgoing(&self.sealing[0]).run().expect("it is short enough");
        if message.len() <= SIDE_BY_SIDE_MAX {
            let mut batch = Batch::default();
            for _ in 0..3 {
                batch.push(outgoing(&self.sealing[1]));
            }
            let together = batch.run().expect("they are short enough");
            assert_eq!(together[0], alone);
        }
        alone.buffer[alone.range][4..].to_vec()
    }

    /// Opens a frame in its turn, and after it was decrypted before: the results are the same.
    fn open(&self, frame: &[u8]) -> Option<(Opened, Vec<u8>)> {
        let (mut in_turn, direct) = self.opened(frame.to_vec(), None);
        let check = || Check::Seal { key: Arc::clone(&self.opening), session_id: SESSION };
        let frames = [frame.to_vec(), frame.to_vec()];
        for count in if frame.len() <= SIDE_BY_SIDE_MAX { 1..=2 } else { 1..=1 } {
            let frames = frames.iter().take(count).cloned();
            let work: Incoming<Vec<u8>> = Incoming::new(frames, check(), Sender::Client);
            for received in work.run() {
                let (ahead, opened) = self.opened(received.frame, received.verdict);
                assert_eq!(opened, direct);
                if direct.is_ok() {
                    assert_eq!(ahead, in_turn);
                }
            }
        }
        direct.ok().map(|opened| (opened, std::mem::take(&mut in_turn)))
    }

    fn opened(
        &self,
        mut frame: Vec<u8>,
        verdict: Option<Verdict>,
    ) -> (Vec<u8>, Result<Opened, Disconnect>) {
        let key = |id| (id == SESSION).then_some(&self.opening);
        let opened = open(&mut frame, verdict, Sender::Client, key);
        (frame, opened)
    }

    /// Signs a message, which then verifies alone and beside one that does not.
    fn sign(&self, message: &[u8]) {
        let guard: Guard = Guard::signed(Arc::clone(&self.signing), message.len());
        let buffer = [&[0; HEADROOM], message].concat();
        let is_message = Form::of(message) == Form::Message
            && frevo_wire::Header::parse(message).is_ok_and(|header| {
                frevo_proto::protection::signature::is_signable(&header) && header.next_command == 0
            });
        if !is_message {
            return;
        }
        let work = Outgoing::new(buffer, guard, Sender::Client, None).expect("it has headroom");
        let framed = work.run().expect("it has a header");
        let signed = framed.buffer[framed.range][4..].to_vec();
        let mut changed = signed.clone();
        changed[50] ^= 1;
        let check = Check::Signature(Arc::clone(&self.signing));
        let work: Incoming<Vec<u8>> = Incoming::new([signed, changed], check, Sender::Client);
        let right = work.run().into_iter().map(|received| received.verdict?.signature(0));
        assert_eq!(right.collect::<Vec<_>>(), [Some(true), Some(false)]);
    }

    /// Noise has no right signature.
    fn verify(&self, frame: &[u8]) {
        let check = Check::Signature(Arc::clone(&self.signing));
        let work: Incoming<Vec<u8>> = Incoming::new([frame.to_vec()], check, Sender::Client);
        for received in work.run() {
            let verdict = received.verdict.expect("signatures were checked");
            assert!((0..128).all(|at| verdict.signature(at) == Some(false)), "a forgery");
            assert_eq!(received.frame, frame, "it is as it was");
        }
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
