//! Memory that is lent to the server for one request, where there is RDMA: MS-SMB2 3.2.5.11.

use std::sync::Arc;

use frevo_crypto::{OpeningKey, SigningKey};
use frevo_net::buffer::Buf;
use frevo_proto::rdma_transform::{DataProof, sole};
use frevo_wire::command::read::{self, ReadResponseFlags};
use frevo_wire::rdma_transform::{RdmaTransform, RdmaTransformType};

use crate::error::Cause;

/// The proof that data in lent memory is the server's: the protection of the answer.
pub(crate) enum Proof {
    /// The session has no protection.
    None,
    /// The data is signed with this key.
    Signed(Arc<SigningKey>),
    /// The data is encrypted for this key.
    Sealed(Arc<OpeningKey>),
}

/// Memory that is lent to the server for one request.
pub(crate) struct Loan {
    pub(super) lent: frevo_net::rdma::Loan,
    pub(super) proof: Proof,
}

impl Loan {
    /// Returns true if the server has the memory with this key.
    pub(super) const fn is_of(&self, key: u32) -> bool {
        self.lent.remote().key == key
    }

    /// Takes the memory back, so that the server can no longer change it, and returns the data that
    /// the answer to a READ says is there.
    pub(crate) async fn data(self, response: &read::Response<'_>) -> Result<Buf, Cause> {
        let lost = || Cause::Transport(Arc::new(std::io::ErrorKind::ConnectionReset.into()));
        let data = self.lent.take_back().await.ok_or_else(lost)?;
        proved(data, response, &self.proof)
    }
}

/// A planted fault: leaves the memory of a WRITE with the server for a while after the answer.
#[cfg(feature = "plant")]
pub(super) fn kept(loan: Option<Loan>, command: frevo_wire::Command) -> Option<Loan> {
    if !planted!(LentTooLong) || command != frevo_wire::Command::WRITE {
        return loan;
    }
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        drop(loan);
    });
    None
}

/// Returns the data in the clear, if it has the protection of the answer.
fn proved(mut data: Buf, response: &read::Response<'_>, proof: &Proof) -> Result<Buf, Cause> {
    const ALTERED: Cause = Cause::Security(
        "data that came by RDMA does not match its signature; someone may tamper with it",
    );
    data.truncate(response.data_remaining as usize);
    let is_transformed = response.flags.contains(ReadResponseFlags::RDMA_TRANSFORM);
    let kind = match proof {
        Proof::None if is_transformed => {
            return Err(Cause::Protocol("it protected data that was asked for without protection"));
        }
        Proof::None => return Ok(data),
        Proof::Signed(_) => RdmaTransformType::SIGNING,
        Proof::Sealed(_) => RdmaTransformType::ENCRYPTION,
    };
    if !is_transformed {
        return Err(Cause::Security(
            "the server sent data by RDMA without the protection of its message",
        ));
    }
    let wrong = || Cause::Protocol("it described data that came by RDMA wrongly");
    let transform = RdmaTransform::parse(response.data)?;
    let only = sole(&transform, kind).ok_or_else(wrong)?;
    let cipher = match proof {
        Proof::Sealed(key) => Some(key.cipher()),
        _ => None,
    };
    let received = DataProof::received(&only, cipher).map_err(|_| wrong())?;
    let is_good = match proof {
        Proof::None => false,
        Proof::Signed(key) => received.is_of(&data, key),
        Proof::Sealed(key) => received.decrypt(&mut data, key).is_ok(),
    };
    if is_good { Ok(data) } else { Err(ALTERED) }
}

#[cfg(test)]
mod tests {
    use frevo_crypto::{Cipher, DataNonce, SealingKey, Sender, SigningAlgorithm};
    use frevo_wire::codec::Writer;
    use frevo_wire::command::read::Channel;
    use frevo_wire::rdma_transform::RdmaCryptoTransform;

    use super::*;

    const CONTENT: &[u8] = b"the content of a file";

    fn signing() -> SigningKey {
        SigningKey::new(SigningAlgorithm::AesGmac, &[7; 16])
    }

    fn keys() -> [Proof; 3] {
        let opening = OpeningKey::new(Cipher::Aes128Gcm, &[7; 32]);
        [Proof::None, Proof::Signed(Arc::new(signing())), Proof::Sealed(Arc::new(opening))]
    }

    /// The buffer of a READ response.
    fn described(transforms: Vec<RdmaCryptoTransform<'_>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let transform = RdmaTransform { channel: Channel::NONE, transforms, descriptors: &[] };
        transform.encode(&mut Writer::new(&mut bytes));
        bytes
    }

    fn sealed() -> (Vec<u8>, DataProof) {
        let mut data = CONTENT.to_vec();
        let key = SealingKey::new(Cipher::Aes128Gcm, &[7; 32]);
        let proof = DataProof::encrypt(&mut data, &key).unwrap();
        (data, proof)
    }

    fn signed() -> DataProof {
        DataProof::sign(CONTENT, &signing(), DataNonce::new(3, Sender::Server)).unwrap()
    }

    /// Judges lent memory, in which more bytes than those of the file are.
    fn judge(memory: &[u8], response: &[u8], flags: ReadResponseFlags, proof: &Proof) -> Outcome {
        let buf = Buf::copy_of(&[memory, b"old bytes"].concat());
        let data_remaining = u32::try_from(memory.len()).unwrap();
        let response = read::Response { data_remaining, flags, data: response, data_range: 0..0 };
        match proved(buf, &response, proof) {
            Ok(data) => Outcome::Data(data.to_vec()),
            Err(Cause::Security(_)) => Outcome::Unsafe,
            Err(_) => Outcome::Broken,
        }
    }

    #[derive(Debug, PartialEq)]
    enum Outcome {
        Data(Vec<u8>),
        Unsafe,
        Broken,
    }

    const FLAG: ReadResponseFlags = ReadResponseFlags::RDMA_TRANSFORM;
    const NO_FLAG: ReadResponseFlags = ReadResponseFlags::EMPTY;

    #[test]
    fn data_is_as_protected_as_its_message() {
        let [plain, signing, sealing] = &keys();
        let good = || Outcome::Data(CONTENT.to_vec());
        assert_eq!(judge(CONTENT, &[], NO_FLAG, plain), good());
        let (data, sealed) = sealed();
        let (sealed, signed) =
            (described(vec![sealed.transform()]), described(vec![signed().transform()]));
        assert_eq!(judge(CONTENT, &signed, FLAG, signing), good());
        assert_eq!(judge(&data, &sealed, FLAG, sealing), good());
        // Each answer is refused, because its data is unprotected, or is not protected in the same
        // way as its message.
        assert_eq!(judge(CONTENT, &[], NO_FLAG, signing), Outcome::Unsafe);
        assert_eq!(judge(CONTENT, &[], NO_FLAG, sealing), Outcome::Unsafe);
        assert_eq!(judge(CONTENT, &signed, FLAG, sealing), Outcome::Broken);
        assert_eq!(judge(&data, &sealed, FLAG, signing), Outcome::Broken);
        assert_eq!(judge(CONTENT, &signed, FLAG, plain), Outcome::Broken);
    }

    #[test]
    fn altered_data_is_refused() {
        let [_, signing, sealing] = &keys();
        let (data, sealed) = sealed();
        let (sealed, signed) =
            (described(vec![sealed.transform()]), described(vec![signed().transform()]));
        for at in 0..CONTENT.len() {
            let mut altered = CONTENT.to_vec();
            altered[at] ^= 1;
            assert_eq!(judge(&altered, &signed, FLAG, signing), Outcome::Unsafe);
            let mut altered = data.clone();
            altered[at] ^= 1;
            assert_eq!(judge(&altered, &sealed, FLAG, sealing), Outcome::Unsafe);
        }
        // Each answer is refused, because it has fewer bytes than were written.
        assert_eq!(judge(&CONTENT[1..], &signed, FLAG, signing), Outcome::Unsafe);
        assert_eq!(judge(&data[1..], &sealed, FLAG, sealing), Outcome::Unsafe);
        assert_eq!(judge(CONTENT, &sealed, FLAG, sealing), Outcome::Unsafe);
    }

    /// MS-SMB2 3.2.5.11, condition for condition.
    #[test]
    fn there_is_one_transform_with_the_right_lengths() {
        let sealing = &keys()[2];
        let (data, sealed) = sealed();
        let (sealed, signed) = (sealed.transform(), signed());
        let signed = signed.transform();
        let other =
            |kind| RdmaCryptoTransform { transform_type: RdmaTransformType(kind), ..sealed };
        let long = RdmaCryptoTransform { signature: &[1; 17], ..sealed };
        let short = RdmaCryptoTransform { signature: &sealed.signature[..15], ..sealed };
        let nonce = RdmaCryptoTransform { nonce: &sealed.nonce[..11], ..sealed };
        for wrong in [
            vec![sealed, sealed],
            vec![sealed, signed],
            vec![signed, sealed],
            vec![sealed, other(3)],
            vec![other(3)],
            vec![long],
            vec![short],
            vec![nonce],
            vec![],
        ] {
            let text = format!("{wrong:?}");
            assert_eq!(judge(&data, &described(wrong), FLAG, sealing), Outcome::Broken, "{text}");
        }
        assert_eq!(judge(&data, &[], FLAG, sealing), Outcome::Broken);
    }
}
