use super::*;
use ::ccm::aead::AeadInOut;
use ::ccm::consts::{U11, U16};
use aes::cipher::KeyInit;
use aes::{Aes128, Aes128Enc, Aes256, Aes256Enc};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

type Reference<C> = ::ccm::Ccm<C, U16, U11>;

/// The result of either implementation for a message: ciphertext and tag.
type Made = (Vec<u8>, [u8; TAG_LEN]);

fn ours(key: &[u8; 32], long: bool, nonce: &[u8; 11], aad: &[u8], plain: &[u8]) -> Made {
    let mut bytes = plain.to_vec();
    let tag = if long {
        Ccm::<Aes256Enc>::new(key.into()).seal(nonce, aad, &mut bytes)
    } else {
        short(key).seal(nonce, aad, &mut bytes)
    };
    (bytes, tag.unwrap())
}

fn short(key: &[u8; 32]) -> Ccm<Aes128Enc> {
    Ccm::new(key.first_chunk::<16>().unwrap().into())
}

fn theirs(key: &[u8; 32], long: bool, nonce: &[u8; 11], aad: &[u8], plain: &[u8]) -> Made {
    let mut bytes = plain.to_vec();
    let in_out = (&mut bytes[..]).into();
    let tag = if long {
        let key = Reference::<Aes256>::new(key.into());
        key.encrypt_inout_detached(nonce.into(), aad, in_out)
    } else {
        let key = Reference::<Aes128>::new_from_slice(&key[..16]).unwrap();
        key.encrypt_inout_detached(nonce.into(), aad, in_out)
    };
    (bytes, tag.unwrap().into())
}

/// Tests lengths around every end of a block and of a batch of the widest processor, and around the
/// length at which the additional data gets a longer prefix.
#[test]
fn every_length_is_as_another_implementation_has_it() {
    let (key, nonce) = ([0x5A; 32], [0xC3; 11]);
    let data: Vec<u8> = (0..=0xFF_u8).cycle().take(0x1_0010).collect();
    let seen = |len: usize, aad_len: usize| {
        for long in [false, true] {
            let (plain, aad) = (&data[..len], &data[..aad_len]);
            let made = ours(&key, long, &nonce, aad, plain);
            assert_eq!(made, theirs(&key, long, &nonce, aad, plain), "{len} bytes, {aad_len}");
        }
    };
    (0..140).for_each(|len| seen(len, 32));
    [255, 256, 257, 479, 480, 481, 1023, 1024, 1025, 1040, 2047, 2048, 2049, 65_536]
        .into_iter()
        .for_each(|len| seen(len, 32));
    (0..70).for_each(|aad_len| seen(20, aad_len));
    (LONG_AAD - 2..LONG_AAD + 20).for_each(|aad_len| seen(20, aad_len));
}

#[test]
fn data_with_a_wrong_tag_is_wiped() {
    let cipher = Ccm::<Aes128Enc>::new(&[1; 16].into());
    for len in [1, 16, 17, 1024, 3000] {
        let mut bytes = vec![0x77; len];
        let mut tag = cipher.seal(&[2; 11], b"with", &mut bytes).unwrap();
        let sealed = bytes.clone();
        assert_eq!(cipher.open(&[2; 11], b"with", &mut bytes, &tag), Ok(()));
        assert_eq!(bytes, vec![0x77; len]);
        let refused = |nonce: &[u8; 11], aad: &[u8], tag: &[u8; 16]| {
            let mut bytes = sealed.clone();
            assert_eq!(cipher.open(nonce, aad, &mut bytes, tag), Err(BadSeal));
            assert_eq!(bytes, vec![0; len], "nothing of the plaintext is given out");
        };
        refused(&[3; 11], b"with", &tag);
        refused(&[2; 11], b"without", &tag);
        for at in 0..TAG_LEN {
            tag[at] ^= 0x80;
            refused(&[2; 11], b"with", &tag);
            tag[at] ^= 0x80;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn both_implementations_agree(
        key: [u8; 32],
        long: bool,
        nonce: [u8; 11],
        aad in vec(any::<u8>(), 0..200),
        plain in vec(any::<u8>(), 0..9000),
        at in any::<proptest::sample::Index>(),
    ) {
        let (sealed, tag) = theirs(&key, long, &nonce, &aad, &plain);
        prop_assert_eq!(&ours(&key, long, &nonce, &aad, &plain), &(sealed.clone(), tag));
        let open = |bytes: &mut Vec<u8>| if long {
            Ccm::<Aes256Enc>::new((&key).into()).open(&nonce, &aad, bytes, &tag)
        } else {
            short(&key).open(&nonce, &aad, bytes, &tag)
        };
        let mut bytes = sealed.clone();
        prop_assert_eq!(open(&mut bytes), Ok(()));
        prop_assert_eq!(&bytes, &plain);
        if !sealed.is_empty() {
            let mut bytes = sealed;
            let at = at.index(bytes.len());
            bytes[at] ^= 1;
            prop_assert_eq!(open(&mut bytes), Err(BadSeal));
            prop_assert!(bytes.iter().all(|byte| *byte == 0));
        }
    }
}

/// One message of a group: nonce, additional data and plaintext.
type Plain = ([u8; 11], Vec<u8>, Vec<u8>);

fn messages<'a>(group: &'a [Plain], bytes: &'a mut [Vec<u8>]) -> Vec<Message<'a>> {
    let all = group.iter().zip(bytes);
    all.map(|((nonce, aad, _), bytes)| Message::new(*nonce, aad, bytes).unwrap()).collect()
}

/// Seals all together and compares with the other implementation; opens all together, one of them
/// with a wrong tag. Once with and once without AVX-512.
fn check_group(key: &[u8; 32], long: bool, group: &[Plain], wrong: Option<usize>) {
    let (mut short, mut long_key) = (short(key), Ccm::<Aes256Enc>::new(key.into()));
    for is_wide in [true, false] {
        if !is_wide {
            (short.lanes, long_key.lanes) = (None, None);
        }
        let run = |direction, messages: &mut [Message<'_>]| match long {
            true => long_key.run(direction, messages),
            false => short.run(direction, messages),
        };
        let mut bytes: Vec<Vec<u8>> = group.iter().map(|(_, _, plain)| plain.clone()).collect();
        let mut all = messages(group, &mut bytes);
        run(Direction::Seal, &mut all);
        let mut tags: Vec<_> = all.into_iter().map(|message| message.tag).collect();
        for ((nonce, aad, plain), made) in group.iter().zip(bytes.iter().cloned().zip(tags.clone()))
        {
            assert_eq!(made, theirs(key, long, nonce, aad, plain));
        }
        if let Some(at) = wrong {
            tags[at][at % TAG_LEN] ^= 4;
        }
        let mut all = messages(group, &mut bytes);
        run(Direction::Open, &mut all);
        for (at, (message, tag)) in all.into_iter().zip(&tags).enumerate() {
            assert_eq!(message.verify(tag).is_err(), wrong == Some(at), "{at}");
        }
        for (at, (bytes, (_, _, plain))) in bytes.iter().zip(group).enumerate() {
            if wrong == Some(at) {
                assert!(bytes.iter().all(|byte| *byte == 0), "no plaintext is given out");
            } else {
                assert_eq!(bytes, plain, "{at}");
            }
        }
    }
}

/// Every combination of four lengths, for groups of two to four; and one longer row.
#[test]
fn every_combination_of_lengths_in_a_group() {
    const LENGTHS: [usize; 6] = [0, 15, 16, 17, 100, 1040];
    let message = |(at, len): (usize, usize)| -> Plain {
        ([at as u8 + 1; 11], vec![at as u8; 32], (0..len).map(|n| (n * (at + 3)) as u8).collect())
    };
    for count in 1..=4 {
        for number in 0..LENGTHS.len().pow(count) {
            let length = |at: u32| LENGTHS[number / LENGTHS.len().pow(at) % LENGTHS.len()];
            let group: Vec<Plain> = (0..count).map(length).enumerate().map(message).collect();
            check_group(&[0x3C; 32], number % 2 == 0, &group, Some(number % group.len()));
        }
    }
    for count in 5..=19 {
        for turn in 0..LENGTHS.len() {
            let length = |at: usize| LENGTHS[(at + turn) % LENGTHS.len()];
            let group: Vec<Plain> = (0..count).map(length).enumerate().map(message).collect();
            check_group(&[0x3C; 32], turn % 2 == 0, &group, Some(turn % count));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn groups_agree_with_another_implementation(
        key: [u8; 32],
        long: bool,
        group in vec((any::<[u8; 11]>(), vec(any::<u8>(), 0..60), vec(any::<u8>(), 0..3000)), 1..18),
        wrong in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        check_group(&key, long, &group, wrong.map(|wrong| wrong.index(group.len())));
    }
}
