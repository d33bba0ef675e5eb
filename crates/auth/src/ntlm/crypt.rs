//! Responses, keys and signatures of NTLMv2 (MS-NLMP 3.3.2, 3.4).

use super::Flags;
use crate::NtHash;
use alloc::vec::Vec;
use frevo_wire::fscc::upcase;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};
use zeroize::Zeroizing;

/// A 128-bit key that is wiped when dropped.
pub type Key = Zeroizing<[u8; 16]>;

/// The computing end, which selects the constants of SIGNKEY and SEALKEY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Messages from the client.
    Client,
    /// Messages from the server.
    Server,
}

/// Returns HMAC-MD5 of the parts, one after the other.
pub(crate) fn hmac_md5(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
    // HMAC pads a short key with zeros. The padding is done here because the constructor for whole
    // blocks cannot fail, unlike the one for keys of any length.
    let mut block = Zeroizing::new([0u8; 64]);
    if let Some(start) = block.first_chunk_mut::<16>() {
        *start = *key;
    }
    let mut mac = Hmac::<Md5>::new((&*block).into());
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Returns NTOWFv2, the key of a response, from the account's hash and the client's names (MS-NLMP
/// 3.3.2).
pub(crate) fn response_key(hash: &NtHash, user: &str, domain: &str) -> Key {
    let mut names = Vec::with_capacity(64);
    names.extend(user.chars().flat_map(upper_case_units));
    names.extend(domain.encode_utf16());
    let bytes: Vec<u8> = names.into_iter().flat_map(u16::to_le_bytes).collect();
    Zeroizing::new(hmac_md5(hash.as_bytes(), &[&bytes]))
}

/// Returns the upper case as Windows has it: one UTF-16 unit to one, other characters unchanged.
fn upper_case_units(c: char) -> impl Iterator<Item = u16> {
    let mut units = [0u16; 2];
    let length = upcase(c).encode_utf16(&mut units).len();
    units.into_iter().take(length)
}

/// Returns NTProofStr, which proves the client's knowledge of the password.
pub(crate) fn proof(response_key: &Key, server_challenge: &[u8; 8], temp: &[u8]) -> [u8; 16] {
    hmac_md5(response_key, &[server_challenge, temp])
}

/// Returns the LMv2 response (MS-NLMP 2.2.2.4), for servers that send no timestamp.
pub(crate) fn lm_v2(
    response_key: &Key,
    server_challenge: &[u8; 8],
    client_challenge: &[u8; 8],
) -> [u8; 24] {
    let mut response = [0u8; 24];
    let mac = hmac_md5(response_key, &[server_challenge, client_challenge]);
    for (to, from) in response.iter_mut().zip(mac.iter().chain(client_challenge)) {
        *to = *from;
    }
    response
}

/// Returns SessionBaseKey, which for NTLMv2 is KeyExchangeKey (MS-NLMP 3.4.5.1).
pub(crate) fn session_base_key(response_key: &Key, proof: &[u8; 16]) -> Key {
    Zeroizing::new(hmac_md5(response_key, &[proof]))
}

/// RC4K: converts the session key to its form on the wire and back (MS-NLMP 6).
pub(crate) fn rc4_key(key_exchange_key: &Key, data: &[u8; 16]) -> Key {
    let mut out = Zeroizing::new(*data);
    rc4(key_exchange_key).apply_keystream(out.as_mut_slice());
    out
}

/// Makes RC4 with a 16-byte key. The cipher repeats its key over its state, so the doubled key is
/// equivalent, and its length has a constructor that cannot fail.
pub(crate) fn rc4(key: &Key) -> Rc4 {
    let mut twice = Zeroizing::new([0u8; 32]);
    for (to, from) in twice.iter_mut().zip(key.iter().cycle()) {
        *to = *from;
    }
    Rc4::new((&*twice).into())
}

/// Returns the MIC over the three messages; `authenticate` has zeros in its place (MS-NLMP
/// 3.1.5.1.2).
pub(crate) fn mic(
    exported: &Key,
    negotiate: &[u8],
    challenge: &[u8],
    authenticate: &[u8],
) -> [u8; 16] {
    hmac_md5(exported, &[negotiate, challenge, authenticate])
}

/// Signs one message with sequence number 0, as for mechListMIC (MS-NLMP 3.4.4.2, MS-SPNG 3.2.5.1:
/// a fresh RC4 state). `None` without extended session security, which has no signing keys.
pub(crate) fn first_signature(
    flags: Flags,
    exported: &Key,
    mode: Mode,
    message: &[u8],
) -> Option<[u8; 16]> {
    const SEQUENCE: [u8; 4] = [0; 4];
    let mac = hmac_md5(&*sign_key(flags, exported, mode)?, &[&SEQUENCE, message]);
    let mut checksum = *mac.first_chunk::<8>()?;
    if flags.contains(Flags::KEY_EXCH) {
        rc4(&seal_key(flags, exported, mode)).apply_keystream(&mut checksum);
    }
    let mut signature = [0u8; 16];
    let version = 1u32.to_le_bytes();
    let parts = version.iter().chain(&checksum).chain(&SEQUENCE);
    for (to, from) in signature.iter_mut().zip(parts) {
        *to = *from;
    }
    Some(signature)
}

pub(super) fn sign_key(flags: Flags, exported: &Key, mode: Mode) -> Option<Key> {
    let label: &[u8] = match mode {
        Mode::Client => b"session key to client-to-server signing key magic constant\0",
        Mode::Server => b"session key to server-to-client signing key magic constant\0",
    };
    let key = Md5::new().chain_update(exported.as_slice()).chain_update(label).finalize();
    flags.contains(Flags::EXTENDED_SESSIONSECURITY).then(|| Zeroizing::new(key.into()))
}

/// Returns SEALKEY with extended session security (MS-NLMP 3.4.5.3).
pub(super) fn seal_key(flags: Flags, exported: &Key, mode: Mode) -> Key {
    let strength = if flags.contains(Flags::KEY_128) {
        16
    } else if flags.contains(Flags::KEY_56) {
        7
    } else {
        5
    };
    let label: &[u8] = match mode {
        Mode::Client => b"session key to client-to-server sealing key magic constant\0",
        Mode::Server => b"session key to server-to-client sealing key magic constant\0",
    };
    let part = exported.get(..strength).unwrap_or_default();
    Zeroizing::new(Md5::new().chain_update(part).chain_update(label).finalize().into())
}

#[cfg(test)]
mod tests {
    //! MS-NLMP 4.2.1 and 4.2.4.
    use super::*;
    use alloc::vec;

    const SERVER_CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    const CLIENT_CHALLENGE: [u8; 8] = [0xaa; 8];
    const RANDOM_SESSION_KEY: [u8; 16] = [0x55; 16];
    const FLAGS: Flags = Flags(0xe28a_8233);

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b' ').collect();
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|p| u8::from_str_radix(core::str::from_utf8(p).unwrap(), 16).unwrap())
            .collect();
        bytes.try_into().unwrap()
    }

    fn key() -> Key {
        response_key(&NtHash::from_password("Password"), "User", "Domain")
    }

    fn temp() -> Vec<u8> {
        let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
        temp.extend([0; 8]);
        temp.extend(CLIENT_CHALLENGE);
        temp.extend([0; 4]);
        temp.extend([2, 0, 12, 0]);
        temp.extend(b"D\0o\0m\0a\0i\0n\0");
        temp.extend([1, 0, 12, 0]);
        temp.extend(b"S\0e\0r\0v\0e\0r\0");
        temp.extend([0; 8]);
        temp
    }

    #[test]
    fn ntowf_v2() {
        assert_eq!(*key(), hex("0c 86 8a 40 3b fd 7a 93 a3 00 1e f2 2e f0 2e 3f"));
    }

    #[test]
    fn lm_v2_response() {
        let expected: [u8; 24] = hex("86c35097ac9cec102554764a57cccc19 aaaaaaaaaaaaaaaa");
        assert_eq!(lm_v2(&key(), &SERVER_CHALLENGE, &CLIENT_CHALLENGE), expected);
    }

    #[test]
    fn nt_proof_and_session_base_key_and_key_exchange() {
        let proof = proof(&key(), &SERVER_CHALLENGE, &temp());
        assert_eq!(proof, hex("68 cd 0a b8 51 e5 1c 96 aa bc 92 7b eb ef 6a 1c"));
        let base = session_base_key(&key(), &proof);
        assert_eq!(*base, hex("8d e4 0c ca db c1 4a 82 f1 5c b0 ad 0d e9 5c a3"));
        let sent = rc4_key(&base, &RANDOM_SESSION_KEY);
        assert_eq!(*sent, hex("c5 da d2 54 4f c9 79 90 94 ce 1c e9 0b c9 d0 3e"));
        assert_eq!(*rc4_key(&base, &sent), RANDOM_SESSION_KEY);
    }

    #[test]
    fn signing_and_sealing_keys() {
        let exported = Zeroizing::new(RANDOM_SESSION_KEY);
        let seal = seal_key(FLAGS, &exported, Mode::Client);
        assert_eq!(*seal, hex("59 f6 00 97 3c c4 96 0a 25 48 0a 7c 19 6e 4c 58"));
        let sign = sign_key(FLAGS, &exported, Mode::Client).unwrap();
        assert_eq!(*sign, hex("47 88 dc 86 1b 47 82 f3 5d 43 fd 98 fe 1a 2d 39"));
    }

    #[test]
    fn the_checksum_of_the_wrap_example() {
        // MS-NLMP 4.2.4.4 encrypts the checksum too, after 18 bytes of data. Without KEY_EXCH the
        // checksum stays in the clear, so it can be compared.
        let exported = Zeroizing::new(RANDOM_SESSION_KEY);
        let message = b"P\0l\0a\0i\0n\0t\0e\0x\0t\0";
        let bare = FLAGS.without(Flags::KEY_EXCH);
        let signature = first_signature(bare, &exported, Mode::Client, message).unwrap();
        assert_eq!(signature, hex("01000000 70352851f2564309 00000000"));
        // A session that seals data and then computes a mechListMIC uses one RC4 state for both.
        // The example's data is sealed first, and then the checksum.
        let mut sealed = *message;
        let mut state = rc4(&seal_key(FLAGS, &exported, Mode::Client));
        state.apply_keystream(&mut sealed);
        assert_eq!(sealed, hex::<18>("54e50165bf1936dc996020c1811b0f06fb5f"));
        let mut checksum: [u8; 8] = hex("7035 2851 f256 4309");
        state.apply_keystream(&mut checksum);
        assert_eq!(checksum, hex("7fb38ec5c55d4976"));
    }

    #[test]
    fn without_extended_session_security_nothing_is_signed() {
        let exported = Zeroizing::new(RANDOM_SESSION_KEY);
        let flags = FLAGS.without(Flags::EXTENDED_SESSIONSECURITY);
        assert!(first_signature(flags, &exported, Mode::Server, b"").is_none());
    }

    #[test]
    fn weaker_sealing_keys_differ() {
        let exported = Zeroizing::new(*b"0123456789abcdef");
        let strong = seal_key(Flags::KEY_128 | Flags::KEY_56, &exported, Mode::Server);
        let middle = seal_key(Flags::KEY_56, &exported, Mode::Server);
        let weak = seal_key(Flags::EMPTY, &exported, Mode::Server);
        assert!(strong != middle && middle != weak && strong != weak);
        let mut other = exported;
        other[15] ^= 1;
        assert_eq!(middle, seal_key(Flags::KEY_56, &other, Mode::Server));
    }

    #[test]
    fn upper_case_maps_unit_to_unit() {
        let upper = |s: &str| -> alloc::string::String {
            let units: Vec<u16> = s.chars().flat_map(upper_case_units).collect();
            alloc::string::String::from_utf16(&units).unwrap()
        };
        assert_eq!(upper("Jörg.ß-ñ"), "JÖRG.ß-Ñ");
        assert_eq!(upper("\u{10428}ﬁ"), "\u{10428}ﬁ");
    }
}
