//! Known answers of RFC 3961, RFC 3962, RFC 8009 and RFC 4757, and bytes that MIT Kerberos made.

use super::derive::{Derived, Hash, Purpose};
use super::*;
use alloc::string::String;
use alloc::vec::Vec;
use std::format;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key(number: i32, bytes: &str) -> KerberosKey {
    KerberosKey::new(EncryptionType::from_number(number).unwrap(), &hex(bytes)).unwrap()
}

/// Ciphertexts of MIT Kerberos's known-answer tests: encryption type, usage, key, plain text,
/// ciphertext.
const SEALED: [(i32, u32, &str, &str, &str); 23] = [
    (
        17,
        0,
        "5a5c0f0ba54f3828b2195e66ca24a289",
        "",
        "49ff8e11c173d9583a3254fbe7b1f1df36c538e8416784a1672e6676",
    ),
    (
        17,
        1,
        "98450e3f3baa13f5c99beb936981b06f",
        "31",
        "f86742f537b35dc2174a4dbaa920faf9042090b065e1ebb1cad9a65394",
    ),
    (
        17,
        2,
        "9062430c8cda3388922e6d6a509f5b7a",
        "392062797465737373",
        "68fb9679601f45c78857b2bf820fd6e53eca8d42fd4b1d7024a09205abb7cd2ec26c35\
         5d2f",
    ),
    (
        17,
        3,
        "033ee6502c54fd23e27791e987983827",
        "31332062797465732062797465",
        "ec366d0327a933bf49330e650e49bc6b974637fe80bf532fe51795b4809718e6194724\
         db948d1fd637",
    ),
    (
        17,
        4,
        "dceeb70b3de76562e689226c76429148",
        "333020627974657320627974657320627974657320627974657320627974",
        "c96081032d5d8eeb7e32b4089f789d0faa481dea74c0f97cbf3146ddfcf8e800156ecb\
         532fc203e30ff600b63b350939fece510f02d7ff1e7bac",
    ),
    (
        18,
        0,
        "17f275f2954f2ed1f90c377ba7f4d6a369aa0136e0bf0c927ad6133c693759a9",
        "",
        "e5094c55ee7b38262e2b044280b069379a95bf95bd8376fb3281b435",
    ),
    (
        18,
        1,
        "b9477e1ff0329c0050e20ce6c72d2dff27e8fe541ab0954429a9cb5b4f7b1e2a",
        "31",
        "406150b97aeb76d43b36b62cc1ecdfbe6f40e95755e0beb5c27825f3a4",
    ),
    (
        18,
        2,
        "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
        "392062797465737373",
        "09957aa25fcaf88f7b39e4406e633012d5fea21853f6478da7065caef41fd454a40824\
         eec5",
    ),
    (
        18,
        3,
        "e5a72be9b7926c1225bafef9c1872e7ba4cdb2b17893d84abd90acdd8764d966",
        "31332062797465732062797465",
        "d8f1aafeec84587cc3e700a774e56651a6d693e174ec4473b5e6d96f80297a653fb818\
         ad893e719f96",
    ),
    (
        18,
        4,
        "f1c795e9248a09338d82c3f8d5b567040b0110736845041347235b1404231398",
        "333020627974657320627974657320627974657320627974657320627974",
        "d1137a4d634cfece924dbc3bf6790648bd5cff7de0e7b99460211d0daef3d79a295c68\
         8858f3b34b9cbd6eebae81daf6b734d4d498b6714f1c1d",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "",
        "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "000102030405",
        "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfd\
         f8976c",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "000102030405060708090a0b0c0d0e0f",
        "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc295fb48\
         52e7d83e1e7c48c37eebe6b0d3",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "000102030405060708090a0b0c0d0e0f1011121314",
        "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bce1e6d0\
         72c186b39a413c2f92ca9b8334a287ffcbfc",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "",
        "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbf\
         be7eb4ce3c",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "000102030405",
        "4ed7b37c2bcac8f74f23c1cf07e62bc7b75fb3f637b9f559c7f664f69eab7b60922375\
         26ea0d1f61cb20d69d10f2",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "000102030405060708090a0b0c0d0e0f",
        "bc47ffec7998eb91e8115cf8d19dac4bbbe2e163e87dd37f49beca92027764f68cf51f\
         14d798c2273f35df574d1f932e40c4ff255b36a266",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "000102030405060708090a0b0c0d0e0f1011121314",
        "40013e2df58e8751957d2878bcd2d6fe101ccfd556cb1eae79db3c3ee86429f2b2a602\
         ac86fef6ecb647d6295fae077a1feb517508d2c16b4192e01f62",
    ),
    (
        23,
        0,
        "f81fec39255f5784e850c4377c88bd85",
        "",
        "02c1eb15586144122ec717763dd348bf00434ddc6585954c",
    ),
    (
        23,
        1,
        "67d1300d281223867f9647ff48721273",
        "31",
        "6156e0cc04e0a0874f9fda008f498a7adbbc80b70b14dddbc0",
    ),
    (
        23,
        2,
        "3e40ab6093695281b3ac1a9304224d98",
        "392062797465737373",
        "0f9ad121d99d4a09448e4f1f718c4f5cbe6096262c66f29df232a87c9f98755d55",
    ),
    (
        23,
        3,
        "4ba2fbf0379faed87a254d3b353d5a7e",
        "31332062797465732062797465",
        "612c57568b17a70352bae8cf26fb9459a6f3353cd35fd439db3107cbec765d326dfc04\
         c1dd",
    ),
    (
        23,
        4,
        "68f263db3fce15d031c9eab02d67107a",
        "333020627974657320627974657320627974657320627974657320627974",
        "95f9047c3ad75891c2e9b04b16566dc8b6eb9ce4231afb2542ef87a7b5a0f260a99f04\
         60508de0cecc632d07c354124e46c5d2234eb8",
    ),
];

#[test]
fn ciphertexts_of_mit_kerberos() {
    for (etype, usage, bytes, plain, sealed) in SEALED {
        let (key, usage, sealed) = (key(etype, bytes), KeyUsage(usage), hex(sealed));
        let opened = key.decrypt(usage, &sealed).unwrap();
        assert_eq!(text(&opened), plain, "{etype} {usage:?}");
        assert_eq!(sealed.len(), opened.len() + key.etype().overhead());
        assert!(key.decrypt(KeyUsage(usage.0 + 1), &sealed).is_none());
    }
}

/// Tests that a ciphertext with a changed bit, or cut anywhere, is not decrypted.
#[test]
fn a_changed_ciphertext_does_not_open() {
    for (etype, usage, bytes, _, sealed) in SEALED {
        let (key, usage, sealed) = (key(etype, bytes), KeyUsage(usage), hex(sealed));
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(key.decrypt(usage, &changed).is_none(), "{etype} bit {bit}");
        }
        for cut in 0..sealed.len() {
            assert!(key.decrypt(usage, &sealed[..cut]).is_none(), "{etype} cut at {cut}");
        }
    }
}

#[test]
fn encrypted_data_is_decrypted() {
    let confounder = core::array::from_fn(|at| at as u8);
    for etype in EncryptionType::ALL {
        let bytes: Vec<u8> = (0..etype.key_len()).map(|at| at as u8).collect();
        let key = KerberosKey::new(etype, &bytes).unwrap();
        for length in (0..100).chain([1_000, 4_096, 65_535]) {
            let plain: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let sealed = key.encrypt(KeyUsage::TICKET, &confounder, &plain);
            assert_eq!(sealed.len(), length + etype.overhead(), "{etype}");
            assert_eq!(*key.decrypt(KeyUsage::TICKET, &sealed).unwrap(), plain, "{etype}");
        }
    }
}

/// RFC 3962 appendix B: CBC with ciphertext stealing.
#[test]
fn stealing_of_rfc_3962() {
    let key = Derived::of(b"chicken teriyaki");
    let message = b"I would like the General Gau's Chicken, please, and wonton soup.";
    let rows = [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
    ];
    for (length, expected) in rows {
        let sealed = cts::encrypt(&key, &message[..length]);
        assert_eq!(text(&sealed), expected);
        assert_eq!(*cts::decrypt(&key, &sealed).unwrap(), message[..length]);
    }
}

/// RFC 8009 appendix A: a confounder, a plain text and what they become under usage 2.
#[test]
fn encryption_of_rfc_8009() {
    let short = "3705d96080c17728a0e800eab6e0d23c";
    let long = "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52";
    let rows = [
        (
            19,
            short,
            "7e5895eaf2672435bad817f545a37148",
            "",
            "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
        ),
        (
            20,
            long,
            "f764e9fa15c276478b2c7d0c4e5f58e4",
            "",
            "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c",
        ),
    ];
    for (etype, bytes, confounder, plain, sealed) in rows {
        let confounder = hex(confounder).try_into().unwrap();
        let made = key(etype, bytes).encrypt(KeyUsage(2), &confounder, &hex(plain));
        assert_eq!(text(&made), sealed);
    }
}

/// Derived keys of RFC 3961's method and RFC 8009's: encryption type, base key, constant, key.
#[test]
fn derived_keys() {
    let rows = [
        (17, "42263c6e89f4fc28b8df68ee09799f15", "0000000299", "34280a382bc92769b2da2f9ef066854b"),
        (17, "42263c6e89f4fc28b8df68ee09799f15", "00000002aa", "5b14fc4e250e14ddf9dccf1af6674f53"),
        (17, "42263c6e89f4fc28b8df68ee09799f15", "0000000255", "4ed31063621684f09ae8d89991af3e8f"),
        (
            18,
            "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
            "0000000299",
            "bfab388bdcb238e9f9c98d6a878304f04d30c82556375ac507a7a852790f4674",
        ),
        (
            18,
            "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
            "00000002aa",
            "c7cfd9cd75fe793a586a542d87e0d1396f1134a104bb1a9190b8c90ada3ddf37",
        ),
        (
            18,
            "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
            "0000000255",
            "97151b4c76945063e2eb0529dc067d97d7bba90776d8126d91f34f3101aea8ba",
        ),
        (19, "3705d96080c17728a0e800eab6e0d23c", "0000000299", "b31a018a48f54776f403e9a396325dc3"),
        (19, "3705d96080c17728a0e800eab6e0d23c", "00000002aa", "9b197dd1e8c5609d6e67c3e37c62c72e"),
        (19, "3705d96080c17728a0e800eab6e0d23c", "0000000255", "9fda0e56ab2d85e1569a688696c26a6c"),
        (
            20,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            "0000000299",
            "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
        ),
        (
            20,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            "00000002aa",
            "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
        ),
        (
            20,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            "0000000255",
            "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
        ),
    ];
    for (etype, base, constant, expected) in rows {
        let constant = hex(constant);
        let usage = KeyUsage(u32::from_be_bytes(*constant.first_chunk().unwrap()));
        let purpose = match constant[4] {
            0x99 => Purpose::Checksum,
            0xaa => Purpose::Encryption,
            _ => Purpose::Integrity,
        };
        let hash = Hash::of(EncryptionType::from_number(etype).unwrap()).unwrap();
        assert_eq!(text(hash.derive(&hex(base), usage, purpose).as_bytes()), expected);
    }
}

/// Checksums of MIT Kerberos's known-answer tests.
#[test]
fn checksums() {
    let rows = [
        (
            17,
            3,
            "9062430c8cda3388922e6d6a509f5b7a",
            "6569676874206e696e652074656e20656c6576656e207477656c766520746869727465\
         656e",
            "01a4b088d45628f6946614e3",
        ),
        (
            18,
            4,
            "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
            "666f75727465656e",
            "e08739e3279e2903ec8e3836",
        ),
        (
            19,
            2,
            "3705d96080c17728a0e800eab6e0d23c",
            "000102030405060708090a0b0c0d0e0f1011121314",
            "d78367186643d67b411cba9139fc1dee",
        ),
        (
            20,
            2,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            "000102030405060708090a0b0c0d0e0f1011121314",
            "45ee791567eefca37f4ac1e0222de80d43c3bfa06699672a",
        ),
        (
            23,
            6,
            "f7d3a155af5e238a0b7a871a96ba2ab2",
            "736576656e7465656e20656967687465656e206e696e657465656e207477656e7479",
            "eb38cc97e2230f59da4117dc5859d7ec",
        ),
    ];
    for (etype, usage, bytes, data, expected) in rows {
        let (key, usage, data) = (key(etype, bytes), KeyUsage(usage), hex(data));
        let made = key.checksum(usage, &data);
        assert_eq!(text(&made), expected);
        assert_eq!(made.len(), key.etype().checksum_len());
        assert!(key.verify(usage, &data, &made));
        assert!(!key.verify(usage, &data, &made[1..]));
        assert!(!key.verify(usage, &data[1..], &made));
        assert!(!key.verify(KeyUsage(usage.0 + 1), &data, &made));
    }
}

/// RFC 8009 appendix A, and the NT hash of MS-NLMP 4.2.2.1.2.
#[test]
fn keys_of_passwords() {
    let mut salt = hex("10df9dd783e5bc8acea1730e74355f61");
    salt.extend(b"ATHENA.MIT.EDUraeburn");
    let count = 32_768_u32.to_be_bytes();
    let rows = [
        (EncryptionType::Aes128Sha2, "password", "089bca48b105ea6ea77ca5d2f39dc5e7"),
        (
            EncryptionType::Aes256Sha2,
            "password",
            "45bd806dbf6a833a9cffc1c94589a222367a79bc21c413718906e9f578a78467",
        ),
        (EncryptionType::Rc4Hmac, "Password", "a4f49c406510bdcab6824ee7c30fd852"),
    ];
    for (etype, password, expected) in rows {
        for parameters in [None, Some(&count[..])] {
            let key = KerberosKey::from_password(etype, password, &salt, parameters).unwrap();
            assert_eq!(text(key.expose()), expected);
        }
    }
    let key = KerberosKey::from_password(
        EncryptionType::Aes256Sha1,
        "password",
        b"ATHENA.MIT.EDUraeburn",
        None,
    );
    let same = kerberos_aes256("password", b"ATHENA.MIT.EDUraeburn", KERBEROS_ITERATIONS);
    assert_eq!(key.unwrap().expose(), *same);
}

#[test]
fn iterations_of_a_kdc_are_bounded() {
    let most = crate::limits::KERBEROS_ITERATIONS_MAX;
    for (etype, own) in [(EncryptionType::Aes128Sha1, 4_096), (EncryptionType::Aes256Sha2, 32_768)]
    {
        for (count, fits) in
            [(0, false), (own - 1, false), (own, true), (most, true), (most + 1, false)]
        {
            let asked = string_to_key::iterations(etype, Some(&count.to_be_bytes()));
            assert_eq!(asked.is_some(), fits, "{etype} {count}");
        }
        assert_eq!(string_to_key::iterations(etype, None).unwrap().get(), own);
        assert!(string_to_key::iterations(etype, Some(&[0, 0, 16])).is_none());
    }
}

#[test]
fn keys_have_one_length_and_do_not_print() {
    for etype in EncryptionType::ALL {
        let length = etype.key_len();
        for (length, fits) in [(0, false), (length - 1, false), (length, true), (length + 1, false)]
        {
            let bytes = std::vec![0x41; length];
            assert_eq!(KerberosKey::new(etype, &bytes).is_some(), fits, "{etype} {length}");
        }
        let key = KerberosKey::new(etype, &std::vec![0x41; length]).unwrap();
        assert_eq!(format!("{key:?}"), format!("KerberosKey({}, ..)", etype.name()));
        assert_eq!(EncryptionType::from_number(etype.number()), Some(etype));
        let mut other = std::vec![0x41; length];
        other[length - 1] ^= 1;
        assert_ne!(key, KerberosKey::new(etype, &other).unwrap());
    }
    assert_eq!(EncryptionType::from_number(3), None);
}
