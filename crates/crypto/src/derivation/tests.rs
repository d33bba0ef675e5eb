use super::*;
use crate::vectors::{
    NEGOTIATE_REQUEST, NEGOTIATE_RESPONSE, SESSION_SETUP_REQUEST_1, SESSION_SETUP_REQUEST_2,
    SESSION_SETUP_RESPONSE_1, hex, hex_array,
};

fn secret16(text: &str) -> Secret<16> {
    Secret::new(hex_array(text))
}

fn cipher_key(cipher: Cipher, text: &str) -> Option<(Cipher, Secret<32>)> {
    Some((cipher, Secret::new(hex_array(text))))
}

#[test]
fn sp800_108_validation_vector() {
    // The values are from NIST's CAVP vectors: KDF in counter mode, HMAC-SHA256, the counter before
    // the fixed data, a counter of 32 bits, an output of 128 bits, COUNT=0.
    let key = hex("dd1d91b7d90b2bd3138533ce92b272fbf8a369316aefe242e659cc0ae238afe0");
    let fixed = hex("01322b96b30acd197979444e468e1c5c6859bf1b1cf951b7e725303e237e46b8
         64a145fab25e517b08f8683d0315bb2911d80a0e8aba17f3b413faac");
    let mut out = [0; 16];
    kbkdf_fixed(&key, &fixed, &mut out);
    assert_eq!(out[..], hex("10621342bfb0fd40046c0e29f2cfdbf0"));
}

#[test]
fn published_3_0_keys() {
    // The keys are those of the two channels in the SMB 3.0 example of Microsoft's article "SMB 2
    // and SMB 3 security in Windows 10: the anatomy of signing and cryptographic keys".
    let key = hex("7CD451825D0450D235424E44BA6E78CC");
    let keys = SessionKeys::derive(Derivation::Smb30, &key, Some(Cipher::Aes128Ccm)).unwrap();
    assert_eq!(keys.signing, secret16("0B7E9C5CAC36C0F6EA9AB275298CEDCE"));
    assert_eq!(keys.application, secret16("BB23A4575AA26C721AF525AF15A87B4F"));
    let client = cipher_key(Cipher::Aes128Ccm, "FAD27796665B313EBB578F388632B4F7");
    assert_eq!(keys.client_to_server, client);
    let server = cipher_key(Cipher::Aes128Ccm, "B0F0427F7CEB416D1D9DCC0CD4F99447");
    assert_eq!(keys.server_to_client, server);

    let key = hex("4E01A2B313BCF660CC250BEF021AEDE6");
    let bound = SessionKeys::derive(Derivation::Smb30, &key, None).unwrap();
    assert_eq!(bound.signing, secret16("BA1A17DBBFEC349BCA105563D598952F"));
    assert_eq!(bound.client_to_server, None);
}

#[test]
fn published_3_0_encryption_keys() {
    // The keys are from Microsoft's article "Encryption in SMB 3.0: A protocol perspective".
    let key = hex("B4546771B515F766A86735532DD6C4F0");
    let keys = SessionKeys::derive(Derivation::Smb30, &key, Some(Cipher::Aes128Ccm)).unwrap();
    assert_eq!(keys.signing, secret16("F773CD23C18FD1E08EE510CADA7CF852"));
    assert_eq!(keys.application, secret16("77432F808CE99156B5BC6A3676D730D1"));
    let client = cipher_key(Cipher::Aes128Ccm, "261B72350558F2E9DCF613070383EDBF");
    assert_eq!(keys.client_to_server, client);
    let server = cipher_key(Cipher::Aes128Ccm, "8FE2B57EC34D2DB5B1A9727F526BBDB5");
    assert_eq!(keys.server_to_client, server);
}

#[test]
fn published_3_1_1_keys() {
    let mut hash = PreauthHash::new();
    for message in [
        NEGOTIATE_REQUEST,
        NEGOTIATE_RESPONSE,
        SESSION_SETUP_REQUEST_1,
        SESSION_SETUP_RESPONSE_1,
        SESSION_SETUP_REQUEST_2,
    ] {
        hash.update(&[&hex(message)]);
    }
    let key = hex("270E1BA896585EEB7AF3472D3B4C75A7");
    let keys =
        SessionKeys::derive(Derivation::Smb311(&hash), &key, Some(Cipher::Aes128Gcm)).unwrap();
    assert_eq!(keys.signing, secret16("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    assert_eq!(keys.application, secret16("6D7AD7954E9EC61E907B4D473DC178FF"));
    let client = cipher_key(Cipher::Aes128Gcm, "629BCBC54422A0F572B97F45989B6073");
    assert_eq!(keys.client_to_server, client);
    let server = cipher_key(Cipher::Aes128Gcm, "E2AF0DCEFAC68DA71A0DFBD0D1350D74");
    assert_eq!(keys.server_to_client, server);
}

#[test]
fn aes_256_keys_come_from_the_full_key_and_the_others_do_not() {
    let hash = PreauthHash::new();
    let derive = |key: &[u8], cipher| {
        SessionKeys::derive(Derivation::Smb311(&hash), key, Some(cipher)).unwrap()
    };
    let full: Vec<u8> = (0..32).collect();
    let short = derive(&full[..16], Cipher::Aes128Gcm);
    let with_128 = derive(&full, Cipher::Aes128Gcm);
    assert_eq!(short, with_128);
    let with_256 = derive(&full, Cipher::Aes256Gcm);
    assert_eq!(with_256.signing, short.signing);
    assert_eq!(with_256.application, short.application);
    // Python computed the expected value: HMAC-SHA256 with the full key over 1, label, 0, 64 zeros
    // and 256 (the number of bits).
    let expected = "1e63f9cbd3a0f6859efddca3bb4812fdf7c9a01907bd15e549b6641ffd9c4854";
    assert_eq!(with_256.client_to_server, cipher_key(Cipher::Aes256Gcm, expected));
    // NTLM's session key of 16 bytes is the full key, too. The cipher key still has 256 bits (L),
    // so it differs from the 128-bit key even in its first half.
    let ntlm = derive(&full[..16], Cipher::Aes256Gcm).client_to_server.unwrap().1;
    assert_ne!(ntlm.expose()[..16], short.client_to_server.unwrap().1.expose()[..16]);
}

#[test]
fn smb2_signs_with_the_session_key() {
    let keys = SessionKeys::derive(Derivation::Smb2, &[7; 24], Some(Cipher::Aes128Gcm)).unwrap();
    assert_eq!(keys.signing, Secret::new([7; 16]));
    assert!(keys.sealing_key(Sender::Server).is_none());
    assert!(keys.opening_key(Sender::Server).is_none());
}

#[test]
fn no_key_no_keys() {
    assert_eq!(SessionKeys::derive(Derivation::Smb30, &[], None), Err(NoSessionKey));
    assert!(SessionKeys::derive(Derivation::Smb30, &[1], None).is_ok());
}

#[test]
fn each_side_opens_what_the_other_sealed() {
    for cipher in [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm] {
        let hash = PreauthHash::new();
        let keys = SessionKeys::derive(Derivation::Smb311(&hash), &[5; 32], Some(cipher)).unwrap();
        for (us, peer) in [(Sender::Client, Sender::Server), (Sender::Server, Sender::Client)] {
            let sealing = keys.sealing_key(us).unwrap();
            let nonce = sealing.next_nonce().unwrap();
            let field = *nonce.field();
            let mut message = *b"the payload";
            let tag = sealing.seal(nonce, b"aad", &mut message);
            let own = keys.opening_key(us).unwrap();
            assert!(own.open(&field, b"aad", &mut message.clone(), &tag).is_err());
            let opening = keys.opening_key(peer).unwrap();
            opening.open(&field, b"aad", &mut message, &tag).unwrap();
            assert_eq!(&message, b"the payload");
        }
    }
}
