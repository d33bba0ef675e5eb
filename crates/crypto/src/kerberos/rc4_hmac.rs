//! RC4-HMAC of RFC 4757, for old controllers. Its key is the NT hash of a password.

use alloc::vec::Vec;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};
use zeroize::Zeroizing;

use super::derive::same;
use super::etype::{CONFOUNDER_LEN, KeyUsage};

const TAG: usize = 16;
const CONFOUNDER: usize = 8;

/// Returns the number that RC4-HMAC uses for a usage, RFC 4757 section 3.
const fn number(usage: KeyUsage) -> u32 {
    match usage.0 {
        // Windows uses the number of an AS-REP (8) also for a TGS-REP that is encrypted with a
        // subkey (9).
        3 | 9 => 8,
        23 => 13,
        other => other,
    }
}

fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> Zeroizing<[u8; 16]> {
    // HMAC accepts a key of any length, so the `else` is never reached.
    let Ok(mut mac) = Hmac::<Md5>::new_from_slice(key) else { return Zeroizing::default() };
    parts.iter().for_each(|part| mac.update(part));
    Zeroizing::new(mac.finalize().into_bytes().into())
}

fn apply(key: &[u8; 16], data: &mut [u8]) {
    if let Ok(mut cipher) = Rc4::new_from_slice(key) {
        cipher.apply_keystream(data);
    }
}

pub(super) fn encrypt(
    key: &[u8],
    usage: KeyUsage,
    confounder: &[u8; CONFOUNDER_LEN],
    plain: &[u8],
) -> Vec<u8> {
    let usage_key = hmac_md5(key, &[&number(usage).to_le_bytes()]);
    let confounder = confounder.first_chunk::<CONFOUNDER>().copied().unwrap_or_default();
    let tag = hmac_md5(&*usage_key, &[&confounder, plain]);
    let mut sealed = Vec::with_capacity(plain.len().saturating_add(TAG).saturating_add(CONFOUNDER));
    sealed.extend_from_slice(&*tag);
    sealed.extend_from_slice(&confounder);
    sealed.extend_from_slice(plain);
    apply(&hmac_md5(&*usage_key, &[&*tag]), sealed.get_mut(TAG..).unwrap_or_default());
    sealed
}

pub(super) fn decrypt(key: &[u8], usage: KeyUsage, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (tag, cipher_text) = sealed.split_first_chunk::<TAG>()?;
    if cipher_text.len() < CONFOUNDER {
        return None;
    }
    let usage_key = hmac_md5(key, &[&number(usage).to_le_bytes()]);
    let mut plain = Zeroizing::new(cipher_text.to_vec());
    apply(&hmac_md5(&*usage_key, &[tag]), &mut plain);
    same(&*hmac_md5(&*usage_key, &[&plain]), tag)?;
    Some(Zeroizing::new(plain.get(CONFOUNDER..)?.to_vec()))
}

/// Computes the checksum of type -138, RFC 4757 section 4.
pub(super) fn checksum(key: &[u8], usage: KeyUsage, data: &[u8]) -> [u8; 16] {
    let sign_key = hmac_md5(key, &[b"signaturekey\0"]);
    let digest = Md5::new().chain_update(number(usage).to_le_bytes()).chain_update(data).finalize();
    *hmac_md5(&*sign_key, &[&digest])
}
