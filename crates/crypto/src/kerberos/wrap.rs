//! Encryption of the middle of a message whose ends are signed only, MS-KILE 3.4.5.4.1.

use alloc::vec::Vec;

use zeroize::Zeroizing;

use super::derive::{Hash, Purpose, same};
use super::etype::{CONFOUNDER_LEN, KeyUsage};
use super::{KerberosKey, cts};

/// The parts of a message around its encrypted body.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// Signed bytes before the body.
    pub head: &'a [u8],
    /// Signed bytes behind the body.
    pub tail: &'a [u8],
}

impl KerberosKey {
    /// Encrypts `confounder`, `body` and `end`, and signs them with the bytes around the body.
    /// Returns the cipher text and the checksum behind it. None for RC4, which has another form.
    pub fn wrap(
        &self,
        usage: KeyUsage,
        confounder: &[u8; CONFOUNDER_LEN],
        around: Surroundings<'_>,
        body: &[u8],
        end: &[u8],
    ) -> Option<Vec<u8>> {
        let hash = Hash::of(self.etype())?;
        let plain = Zeroizing::new([&confounder[..], body, end].concat());
        let mut sealed = cts::encrypt(&self.cipher_key(hash, usage), &plain);
        let tag = self.tag(hash, usage, around, &plain, &sealed, body.len())?;
        sealed.extend_from_slice(&tag);
        Some(sealed)
    }

    /// Decrypts a message of [`Self::wrap`] with a body of `body_len` bytes. Returns the body and
    /// the bytes behind it. None if it was made with another key or for another usage, or was
    /// changed.
    pub fn unwrap(
        &self,
        usage: KeyUsage,
        around: Surroundings<'_>,
        sealed: &[u8],
        body_len: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let hash = Hash::of(self.etype())?;
        let length = sealed.len().checked_sub(self.etype().checksum_len())?;
        let (cipher_text, tag) = sealed.split_at_checked(length)?;
        if cipher_text.len() < CONFOUNDER_LEN.checked_add(body_len)? {
            return None;
        }
        let mut plain = cts::decrypt(&self.cipher_key(hash, usage), cipher_text)?;
        same(&self.tag(hash, usage, around, &plain, cipher_text, body_len)?, tag)?;
        plain.copy_within(CONFOUNDER_LEN.., 0);
        let length = plain.len().checked_sub(CONFOUNDER_LEN)?;
        plain.truncate(length);
        Some(plain)
    }

    fn cipher_key(&self, hash: Hash, usage: KeyUsage) -> super::derive::Derived {
        hash.derive(self.expose(), usage, Purpose::Encryption)
    }

    /// Returns the checksum. RFC 3962 signs the plain text, RFC 8009 section 5 the cipher text
    /// after its IV; the bytes that are signed only are in their places.
    fn tag(
        &self,
        hash: Hash,
        usage: KeyUsage,
        around: Surroundings<'_>,
        plain: &[u8],
        sealed: &[u8],
        body_len: usize,
    ) -> Option<Vec<u8>> {
        let (iv, signed) = match hash {
            Hash::Sha1 => (&[][..], plain),
            Hash::Sha256 | Hash::Sha384 => (&cts::IV[..], sealed),
        };
        let (confounder, rest) = signed.split_at_checked(CONFOUNDER_LEN)?;
        let (body, end) = rest.split_at_checked(body_len)?;
        let key = hash.derive(self.expose(), usage, Purpose::Integrity);
        let tag = hash.sign(&key, &[iv, confounder, around.head, body, around.tail, end]);
        tag.as_ref().get(..self.etype().checksum_len()).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::super::EncryptionType;
    use super::*;

    const USAGE: KeyUsage = KeyUsage(24);

    /// Without signed ends, the form is that of a plain encryption.
    #[test]
    fn without_surroundings_it_is_an_encryption() {
        for etype in EncryptionType::ALL {
            let key = KerberosKey::filled(etype, 9);
            let none = Surroundings { head: &[], tail: &[] };
            let wrapped = key.wrap(USAGE, &[7; 16], none, b"a body of bytes", b"end");
            let plain = b"a body of bytesend";
            let expected = key.encrypt(USAGE, &[7; 16], plain);
            match etype {
                EncryptionType::Rc4Hmac => assert!(wrapped.is_none()),
                _ => assert_eq!(wrapped.unwrap(), expected, "{etype}"),
            }
        }
    }

    #[test]
    fn every_byte_counts_and_so_does_its_place() {
        for etype in EncryptionType::ALL.into_iter().filter(|e| *e != EncryptionType::Rc4Hmac) {
            let key = KerberosKey::filled(etype, 9);
            let around = Surroundings { head: b"head", tail: b"tail" };
            for body in [&b""[..], b"b", b"sixteen bytes ok", &[5; 100]] {
                let sealed = key.wrap(USAGE, &[1; 16], around, body, &[0; 16]).unwrap();
                let open = |around, sealed: &[u8], len| key.unwrap(USAGE, around, sealed, len);
                let plain = open(around, &sealed, body.len()).unwrap();
                assert_eq!(plain.split_at(body.len()), (body, &[0; 16][..]));
                let others = [
                    Surroundings { head: b"hea", tail: b"ltail" },
                    Surroundings { head: b"", tail: b"tail" },
                    Surroundings { head: b"head", tail: b"taiL" },
                ];
                assert!(others.into_iter().all(|other| open(other, &sealed, body.len()).is_none()));
                assert!(open(around, &sealed, body.len() + 1).is_none());
                assert!(key.unwrap(KeyUsage(22), around, &sealed, body.len()).is_none());
                for at in 0..sealed.len() {
                    let mut changed = sealed.clone();
                    changed[at] ^= 1;
                    assert!(open(around, &changed, body.len()).is_none(), "{etype} {at}");
                    assert!(open(around, &sealed[..at], body.len()).is_none(), "{etype} {at}");
                }
            }
        }
    }
}
