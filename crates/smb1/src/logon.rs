//! Proofs of a password without extended security: NTLMv2, and the weak forms for devices that know nothing
//! else. MS-CIFS 3.1.5.2.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use frevo_auth::ntlm::bare;
use frevo_auth::{Credentials, NtHash, Secret};
use md4::{Digest, Md4};
use zeroize::Zeroizing;

use crate::charset::{Charset, Unmappable};
use crate::signing::Signer;

/// The passwords of SESSION_SETUP_ANDX, and the keys that follow from them.
pub struct Proof {
    /// OEMPassword
    pub(crate) oem: Zeroizing<Vec<u8>>,
    /// UnicodePassword
    pub(crate) unicode: Zeroizing<Vec<u8>>,
    /// The keys of signatures; None where there are none.
    signer: Option<Signer>,
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

/// The reason why there is no proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoProof {
    /// The password itself is needed, and only its hash is known.
    NeedsPassword,
    /// The code page lacks a character of the password.
    Unmappable(Unmappable),
}

impl Proof {
    /// Returns the proof of a user by NTLMv2. `client_challenge` are random bytes, `now` is the time as
    /// FILETIME ticks.
    pub fn v2(
        credentials: &Credentials,
        challenge: &[u8; 8],
        client_challenge: &[u8; 8],
        now: u64,
    ) -> Self {
        let found = bare::responses(credentials, challenge, client_challenge, now);
        Self {
            signer: Some(Signer::new(found.session_key.as_slice(), &found.nt)),
            oem: Zeroizing::new(found.lm.to_vec()),
            unicode: Zeroizing::new(found.nt),
        }
    }

    /// Returns the proof by NTLMv1, which a listener can turn into the password's hash. With the strings'
    /// form in `lm` it has the LM response, too, by which a listener finds the password in minutes: for
    /// servers that know nothing else.
    ///
    /// # Errors
    /// With `lm`, if only the hash of the password is known, or a character of it has no byte.
    pub fn v1(
        credentials: &Credentials,
        challenge: &[u8; 8],
        lm: Option<Charset>,
    ) -> Result<Self, NoProof> {
        let hash = match &credentials.secret {
            Secret::Password(password) => NtHash::from_password(password),
            Secret::NtHash(hash) => hash.clone(),
        };
        let response = desl(hash.as_bytes(), challenge);
        let oem = match lm {
            Some(charset) => {
                let password = password_of(credentials)?.to_uppercase();
                let bytes = Zeroizing::new(oem(charset, &password)?);
                desl(&lm_hash(&bytes), challenge)
            }
            None => response,
        };
        let session_key = Zeroizing::new(<[u8; 16]>::from(Md4::digest(hash.as_bytes())));
        Ok(Self {
            signer: Some(Signer::new(session_key.as_slice(), &response)),
            oem: Zeroizing::new(oem.to_vec()),
            unicode: Zeroizing::new(response.to_vec()),
        })
    }

    /// Returns the password itself.
    ///
    /// # Errors
    /// If only its hash is known, or a character of it has no byte.
    pub fn plain_text(credentials: &Credentials, charset: Charset) -> Result<Self, NoProof> {
        let password = password_of(credentials)?;
        let end = charset.end();
        let bytes = charset.encode(password).map_err(NoProof::Unmappable)?;
        let bytes = Zeroizing::new([&*bytes, end].concat());
        let nothing = Zeroizing::new(Vec::new());
        let (oem, unicode) = match charset {
            Charset::Unicode => (nothing, bytes),
            Charset::Oem(_) => (bytes, nothing),
        };
        Ok(Self { oem, unicode, signer: None })
    }

    /// Returns the password for a share that has one: the response, or the plain text.
    pub fn for_share(&self) -> &[u8] {
        if self.oem.is_empty() { &self.unicode } else { &self.oem }
    }

    /// Returns the keys of signatures; None where there are none.
    pub const fn signer(&self) -> Option<&Signer> {
        self.signer.as_ref()
    }
}

fn password_of(credentials: &Credentials) -> Result<&String, NoProof> {
    match &credentials.secret {
        Secret::Password(password) => Ok(password),
        Secret::NtHash(_) => Err(NoProof::NeedsPassword),
    }
}

fn oem(charset: Charset, text: &str) -> Result<Vec<u8>, NoProof> {
    let page = match charset {
        Charset::Oem(page) => page,
        Charset::Unicode => crate::CodePage::default(),
    };
    Charset::Oem(page).encode(text).map_err(NoProof::Unmappable)
}

/// Spreads 56 bits of a key over eight bytes, as DES takes them.
fn spread(key: [u8; 7]) -> Zeroizing<[u8; 8]> {
    let [a, b, c, d, e, f, g] = key;
    let bits = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
    let mut spread = Zeroizing::new([0; 8]);
    for (place, at) in spread.iter_mut().zip((0u32..8).rev()) {
        let seven = bits.checked_shr(at.saturating_mul(7)).unwrap_or(0) & 0x7F;
        *place = u8::try_from(seven).unwrap_or(0) << 1;
    }
    spread
}

fn des(key: [u8; 7], data: [u8; 8]) -> [u8; 8] {
    let mut block = data.into();
    Des::new(&(*spread(key)).into()).encrypt_block(&mut block);
    block.into()
}

/// DESL, MS-NLMP 6: three parts of a key of 16 bytes encrypt the same data.
fn desl(key: &[u8; 16], data: &[u8; 8]) -> [u8; 24] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *key;
    let parts = [[a, b, c, d, e, f, g], [h, i, j, k, l, m, n], [o, p, 0, 0, 0, 0, 0]];
    let mut response = [0; 24];
    for (place, part) in response.as_chunks_mut::<8>().0.iter_mut().zip(parts) {
        *place = des(part, *data);
    }
    response
}

/// LMOWFv1, MS-NLMP 3.3.1, of a password in upper case.
fn lm_hash(password: &[u8]) -> [u8; 16] {
    let mut padded = Zeroizing::new([0; 14]);
    for (place, byte) in padded.iter_mut().zip(password) {
        *place = *byte;
    }
    let mut hash = [0; 16];
    for (place, part) in hash.as_chunks_mut::<8>().0.iter_mut().zip(padded.as_chunks::<7>().0) {
        *place = des(*part, *b"KGS!@#$%");
    }
    hash
}

#[cfg(test)]
mod tests {
    //! MS-NLMP 4.2.1 and 4.2.2.
    use super::*;
    use crate::CodePage;

    const CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];
    const OEM: Charset = Charset::Oem(CodePage::Cp850);

    fn user() -> Credentials {
        Credentials {
            user: "User".into(),
            domain: "Domain".into(),
            secret: Secret::Password(Zeroizing::new("Password".into())),
        }
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        let pairs = digits.as_chunks::<2>().0.iter();
        pairs
            .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn the_old_responses_of_the_specification() {
        let proof = Proof::v1(&user(), &CHALLENGE, Some(OEM)).unwrap();
        let nt = hex("67 c4 30 11 f3 02 98 a2 ad 35 ec e6 4f 16 33 1c 44 bd be d9 27 84 1f 94");
        let lm = hex("98 de f7 b8 7f 88 aa 5d af e2 df 77 96 88 a1 72 de f1 1c 7d 5c cd ef 13");
        assert_eq!((&*proof.unicode, &*proof.oem), (&nt, &lm));
        assert_eq!(lm_hash(b"PASSWORD").to_vec(), hex("e52cac67419a9a224a3b108f3fa6cb6d"));
        // Without LM the field for it has the same response.
        let proof = Proof::v1(&user(), &CHALLENGE, None).unwrap();
        assert_eq!((&*proof.unicode, &*proof.oem), (&nt, &nt));
        // SessionBaseKey, MS-NLMP 4.2.2.1.3.
        let key = Md4::digest(NtHash::from_password("Password").as_bytes());
        assert_eq!(key.to_vec(), hex("d8 72 62 b0 cd e4 b1 cb 74 99 be cc cd f1 07 84"));
    }

    #[test]
    fn plain_text_is_in_one_field() {
        let proof = Proof::plain_text(&user(), OEM).unwrap();
        assert_eq!((&**proof.oem, proof.unicode.len()), (&b"Password\0"[..], 0));
        assert!(proof.signer().is_none());
        let proof = Proof::plain_text(&user(), Charset::Unicode).unwrap();
        assert_eq!((proof.oem.len(), proof.unicode.len()), (0, 18));
        let hash = Secret::NtHash(NtHash::from_password("Password"));
        let by_hash = Credentials { secret: hash, ..user() };
        assert_eq!(Proof::plain_text(&by_hash, OEM).unwrap_err(), NoProof::NeedsPassword);
        assert!(Proof::v1(&by_hash, &CHALLENGE, None).is_ok());
        assert!(Proof::v1(&by_hash, &CHALLENGE, Some(OEM)).is_err());
    }

    #[test]
    fn nothing_is_printed() {
        let text = alloc::format!("{:?}", Proof::plain_text(&user(), OEM).unwrap());
        assert_eq!(text, "Proof(..)");
    }
}
