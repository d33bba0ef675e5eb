use super::*;
use crate::limits::SEALED_MESSAGES_MAX;
use crate::vectors::{hex, hex_array};
use proptest::prelude::*;
use std::vec;

const ALL: [Cipher; 4] =
    [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];

/// Cipher, key, nonce, additional data, plaintext, ciphertext, tag.
type KnownAnswer = (Cipher, [&'static str; 6]);

/// Wycheproof aes_ccm 259..264 and 331..336 in part (11-byte nonces, 16-byte
/// tags, which SP800-38C's own examples do not have), aes_gcm 2, 3, 9, 92, 98, 105.
const WYCHEPROOF: [KnownAnswer; 12] = [
    (
        Cipher::Aes128Ccm,
        [
            "9d2fa75929612e1213460f998946dcec",
            "0e948a03dbfa10817e8826",
            "",
            "",
            "",
            "2f1fa3585b9a11ff47bd486f95572246",
        ],
    ),
    (
        Cipher::Aes128Ccm,
        [
            "acab31483d9de4ad77f4e63fe41b57ae",
            "5c0939e71bae1a9de167d4",
            "",
            "e4d72b2f7cb69bc54a49f4d5cea4f23a",
            "0c506843ba7bd2dc4578e6bb83fd0c8d",
            "c275373037635bae294f99c8e46964b3",
        ],
    ),
    (
        Cipher::Aes128Ccm,
        [
            "1d286e525ec2864d9ea6e7adfbdc4970",
            "1ad44879f1947abd503dce",
            "1db0eaaaa1e2c848",
            "7b40e6c987692d0202cb6f44b423c267dd",
            "84f91f9d35b998598e50feb34dcaa0d260",
            "ae4e38cc4b730944bc459df85a536f4e",
        ],
    ),
    (
        Cipher::Aes256Ccm,
        [
            "e689eb77a578399fa17a75083d25018ffbb68f24d77a029757541d6539bffbdf",
            "4a419618b2832de7a4f99b",
            "ecf46eaca841769f",
            "",
            "",
            "4a2615d2d5f8e97b92743b0ef2f486ab",
        ],
    ),
    (
        Cipher::Aes256Ccm,
        [
            "60d6841e9e6218a2c8605a7794e74fb215dcf3a70a0015d497ed16564f2a83a0",
            "4c93f591af92f16596554e",
            "7cb0eb9aa21fe859",
            "c0d1e635586b0ef835c01479a32175a3",
            "0c266113544d7a901ce721e1ead6d8f9",
            "8a149eaa05c8722b2663c345a6a5418c",
        ],
    ),
    (
        Cipher::Aes256Ccm,
        [
            "b3a06e00100ffc42dbdd5317f43d2b48f8c11e4bd6e9e3edab58e9944c559278",
            "f3d24b362bf12b84b8a66a",
            "0242b5e804a79188",
            "03b03b45f6f320b99d8158ff8b00f0ad92",
            "d127fd42b2ca4beca9f9ac86b63a1622ef",
            "8a499aab9e8f4096da603c6ccfb9ac4a",
        ],
    ),
    (
        Cipher::Aes128Gcm,
        [
            "5b9604fe14eadba931b0ccf34843dab9",
            "921d2507fa8007b7bd067d34",
            "00112233445566778899aabbccddeeff",
            "001d0c231287c1182784554ca3a21908",
            "49d8b9783e911913d87094d1f63cc765",
            "1e348ba07cca2cf04c618cb4d43a5b92",
        ],
    ),
    (
        Cipher::Aes128Gcm,
        [
            "aa023d0478dcb2b2312498293d9a9129",
            "0432bc49ac34412081288127",
            "aac39231129872a2",
            "2035af313d1346ab00154fea78322105",
            "eea945f3d0f98cc0fbab472a0cf24e87",
            "4bb9b4812519dadf9e1232016d068133",
        ],
    ),
    (
        Cipher::Aes128Gcm,
        [
            "c15ed227dd2e237ecd087eaaaad19ea4",
            "965ff6643116ac1443a2dec7",
            "",
            "fee62fde973fe025ad6b322dcdf3c63fc7",
            "0de51fe4f7f2d1f0f917569f5c6d1b009c",
            "6cd8521422c0177e83ef1b7a845d97db",
        ],
    ),
    (
        Cipher::Aes256Gcm,
        [
            "29d3a44f8723dc640239100c365423a312934ac80239212ac3df3421a2098123",
            "00112233445566778899aabb",
            "aabbccddeeff",
            "",
            "",
            "2a7d77fa526b8250cb296078926b5020",
        ],
    ),
    (
        Cipher::Aes256Gcm,
        [
            "3b2458d8176e1621c0cc24c0c0e24c1e80d72f7ee9149a4b166176629616d011",
            "45aaa3e5d16d2d42dc03445d",
            "",
            "3ff1514b1c503915918f0c0c31094a6e1f",
            "73a6b6f45f6ccc5131e07f2caa1f2e2f56",
            "2d7379ec1db5952d4e95d30c340b1b1d",
        ],
    ),
    (
        Cipher::Aes256Gcm,
        [
            "5b1d1035c0b17ee0b0444767f80a25b8c1b741f4b50a4d3052226baa1c6fb701",
            "d61040a313ed492823cc065b",
            "",
            "d096803181beef9e008ff85d5ddc38ddacf0f09ee5f7e07f1e4079cb64d0dc8f\
             5e6711cd4921a7887de76e2678fdc67618f1185586bfea9d4c685d50e4bb9a82",
            "c7d191b601f86c28b6a1bdef6a57b4f6ee3ae417bc125c381cdf1c4dac184ed1\
             d84f1196206d62cad112b038845720e02c061179a8836f02b93fa7008379a6bf",
            "f15612f6c40f2e0db6dc76fc4822fcfe",
        ],
    ),
];

/// The transformed messages of Microsoft's articles "Encryption in SMB 3.0: A
/// protocol perspective" (client's WRITE) and "SMB 3.1.1 Encryption in
/// Windows 10" (client's WRITE). The unused nonce bytes of the first are not
/// zero, as Windows leaves them.
const PUBLISHED: [KnownAnswer; 2] = [
    (
        Cipher::Aes128Ccm,
        [
            "261B72350558F2E9DCF613070383EDBF",
            "66E69A111892584FB5ED524A744DA3EE",
            "66E69A111892584FB5ED524A744DA3EE87000000000001001100001400E40800",
            "FE534D4240000100000000000900400008000000000000000400000000000000\
             FFFE0000010000001100001400E4080000000000000000000000000000000000\
             3100700017000000000000000000000015010000390000020100000039020000\
             00000000000000007000000000000000536D623320656E6372797074696F6E20\
             74657374696E67",
            "25C8FEE16605A437832D1CD52DA9F4645333482A175FE5384563F45FCDAFAEF3\
             8BC62BA4D5C62897996625A44C29BE5658DE2E6117585779E7B59FFD971278D0\
             8580D7FA899E410E910EABF5AA1DB43050B33B49182637759AC15D84BFCDF5B6\
             B238993C0F4CF4D6012023F6C627297075D84B7803912D0A9639634453595EF3\
             E33FFE4E7AC2AB",
            "81A286535415445DAE393921E44FA42E",
        ],
    ),
    (
        Cipher::Aes128Gcm,
        [
            "A2F5E80E5D59103034F32E52F698E5EC",
            "C7D6822D269CAF48904C664C00000000",
            "C7D6822D269CAF48904C664C0000000087000000000001002500000000100000",
            "FE534D4240000100000000000900010008000000000000000500000000000000\
             FFFE000001000000250000000010000000000000000000000000000000000000\
             3100700017000000000000000000000006000000040000000100000004000000\
             00000000000000007000000000000000536D623320656E6372797074696F6E20\
             74657374696E67",
            "6ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02D14EF247\
             F8BDE38ACF6256F8B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A\
             4A394BB44576545567C24D4C014D47C9FBDFDAFD2C4F9B72F8D256452620A299\
             F48E29E53D6B61D1C13A19E91AF013F00D17E3ABC2FC3D36C8C1B6B93973253852DBD442E46EE8",
            "BD73D97D2BC9001BCAFAC0FDFF5FEEBC",
        ],
    ),
];

#[test]
fn known_answers() {
    for (cipher, [key, nonce, aad, plain, sealed, tag]) in WYCHEPROOF.into_iter().chain(PUBLISHED) {
        let (key, nonce) = (hex_array(key), hex_array(nonce));
        let mut buffer = hex(plain);
        let made =
            SealingKey::new(cipher, &key).seal(Nonce::from_field(nonce), &hex(aad), &mut buffer);
        assert_eq!(buffer, hex(sealed), "{cipher:?}");
        assert_eq!(made[..], hex(tag), "{cipher:?}");
        let opened = OpeningKey::new(cipher, &key).open(&nonce, &hex(aad), &mut buffer, &made);
        assert_eq!(opened, Ok(()));
        assert_eq!(buffer, hex(plain), "{cipher:?}");
    }
}

/// Each known answer among messages that differ from it, at each place of the row.
#[test]
fn known_answers_among_others() {
    for (cipher, [key, nonce, aad, plain, sealed, tag]) in WYCHEPROOF.into_iter().chain(PUBLISHED) {
        let (key, nonce): ([u8; 32], [u8; 16]) = (hex_array(key), hex_array(nonce));
        let (aad, plain, sealed) = (hex(aad), hex(plain), hex(sealed));
        let (sealing, opening) = (SealingKey::new(cipher, &key), OpeningKey::new(cipher, &key));
        for count in 1..=10 {
            for place in 0..count {
                let mut all: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; 40 * at]).collect();
                all[place] = plain.clone();
                let messages = all.iter_mut().enumerate().map(|(at, in_out)| {
                    let mut field = nonce;
                    field[0] ^= if at == place { 0 } else { at as u8 + 1 };
                    ToSeal { nonce: Nonce::from_field(field), aad: &aad, in_out }
                });
                let mut tags = sealing.seal_all(messages.collect());
                assert_eq!(all[place], sealed, "{cipher:?}, {place} of {count}");
                assert_eq!(tags[place][..], hex(tag), "{cipher:?}, {place} of {count}");

                // Each message gets a wrong nonce and tag, except the one under test.
                tags.resize(count, [0; TAG_LEN]);
                let messages = all.iter_mut().zip(&tags);
                let messages =
                    messages.map(|(in_out, tag)| ToOpen { nonce: &nonce, aad: &aad, in_out, tag });
                let opened = opening.open_all(messages.collect());
                for (at, result) in opened.into_iter().enumerate() {
                    assert_eq!(result.is_ok(), at == place, "{cipher:?}, {at} of {count}");
                }
                assert_eq!(all[place], plain, "{cipher:?}, {place} of {count}");
            }
        }
    }
}

/// Only chains gain, and only with instructions for AES.
#[test]
fn ccm_and_cmac_gain_by_batches() {
    use crate::signing::{SigningAlgorithm, SigningKey};
    for cipher in ALL {
        let gains = matches!(cipher, Cipher::Aes128Ccm | Cipher::Aes256Ccm);
        let gains = gains && aes::hardware_accelerated();
        assert_eq!(SealingKey::new(cipher, &[1; 32]).gains_by_batches(), gains);
        assert_eq!(OpeningKey::new(cipher, &[1; 32]).gains_by_batches(), gains);
    }
    for algorithm in
        [SigningAlgorithm::HmacSha256, SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac]
    {
        let gains = algorithm == SigningAlgorithm::AesCmac && aes::hardware_accelerated();
        assert_eq!(SigningKey::new(algorithm, &[1; 16]).gains_by_batches(), gains);
    }
}

#[test]
fn short_keys_ignore_the_second_half() {
    for cipher in ALL {
        let mut long = [1; 32];
        let tag = |key: &[u8; 32]| {
            SealingKey::new(cipher, key).seal(Nonce::from_field([0; 16]), b"", &mut [])
        };
        let before = tag(&long);
        long[16..].fill(2);
        assert_eq!(tag(&long) == before, cipher.key_len() == 16);
    }
}

#[test]
fn a_key_seals_no_more_than_its_limit() {
    let mut key = SealingKey::new(Cipher::Aes128Gcm, &[0; 32]);
    key.nonces = NonceSequence::starting_at(SEALED_MESSAGES_MAX - 1);
    assert_eq!(key.remaining(), 1);
    assert!(key.next_nonce().is_ok());
    assert_eq!(key.next_nonce(), Err(KeyExhausted));
}

#[test]
fn ids_lengths_and_printing() {
    for cipher in ALL {
        assert_eq!(Cipher::from_id(cipher.id()), Some(cipher));
        let sealing = std::format!("{:?}", SealingKey::new(cipher, &[0x77; 32]));
        let opening = std::format!("{:?}", OpeningKey::new(cipher, &[0x77; 32]));
        assert_eq!(sealing, std::format!("SealingKey({cipher:?})"));
        assert_eq!(opening, std::format!("OpeningKey({cipher:?})"));
    }
    assert_eq!(Cipher::from_id(0), None);
    assert_eq!(Cipher::from_id(5), None);
    assert_eq!(ALL.map(Cipher::key_len), [16, 16, 32, 32]);
    assert_eq!(ALL.map(Cipher::nonce_len), [11, 12, 11, 12]);
}

proptest! {
    #[test]
    fn opens_what_it_sealed_and_nothing_else(
        plain in proptest::collection::vec(any::<u8>(), 0..200),
        aad in proptest::collection::vec(any::<u8>(), 0..40),
        flip in any::<proptest::sample::Index>(),
        which in 0..4_usize,
    ) {
        let sealing = SealingKey::new(ALL[which], &[3; 32]);
        let opening = OpeningKey::new(ALL[which], &[3; 32]);
        let nonce = sealing.next_nonce().unwrap();
        let field = *nonce.field();
        let mut sealed = plain.clone();
        let tag = sealing.seal(nonce, &aad, &mut sealed);

        let mut buffer = sealed.clone();
        prop_assert_eq!(opening.open(&field, &aad, &mut buffer, &tag), Ok(()));
        prop_assert_eq!(&buffer, &plain);

        // The test flips one bit of the ciphertext, the additional data, the tag or the nonce.
        let (mut sealed, mut aad, mut tag, mut field) = (sealed, aad, tag, field);
        let used = ALL[which].nonce_len();
        let all = sealed.iter_mut().chain(&mut aad).chain(&mut tag).chain(&mut field[..used]);
        let mut all: Vec<&mut u8> = all.collect();
        let at = flip.index(all.len());
        *all[at] ^= 0x10;
        prop_assert_eq!(opening.open(&field, &aad, &mut sealed, &tag), Err(BadSeal));
    }
}
