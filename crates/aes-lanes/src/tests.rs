//! Each number of lanes against the crate `aes`, block by block.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

use super::*;

/// One message: its chain, its counter block, its blocks.
type Message = (Block, Block, Vec<Block>);

/// Does both passes one block after the other.
fn expected(key: Key<'_>, direction: Direction, message: &Message, count: usize) -> Message {
    let encrypt = |block: Block| -> Block {
        let mut block = block.into();
        match key {
            Key::Aes128(key) => Aes128::new(key.into()).encrypt_block(&mut block),
            Key::Aes256(key) => Aes256::new(key.into()).encrypt_block(&mut block),
        }
        block.into()
    };
    let xor = |a: Block, b: Block| (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes();
    let (mut chain, mut counter, mut blocks) = message.clone();
    for block in blocks.iter_mut().take(count) {
        let number = u32::from_be_bytes(*counter.last_chunk().unwrap()).wrapping_add(1);
        *counter.last_chunk_mut().unwrap() = number.to_be_bytes();
        let out = xor(*block, encrypt(counter));
        let plain = if direction == Direction::Seal { *block } else { out };
        chain = encrypt(xor(chain, plain));
        *block = out;
    }
    (chain, counter, blocks)
}

/// Runs all lanes to the end of the shortest one, and compares.
fn check(key: Key<'_>, direction: Direction, messages: &[Message]) {
    let Some(detected) = Lanes::detect() else { return };
    let mut got = messages.to_vec();
    let mut lanes: Vec<Lane<'_>> = got
        .iter_mut()
        .map(|(chain, counter, blocks)| Lane { chain: *chain, counter: *counter, blocks })
        .collect();
    let count = detected.ccm(key, direction, &mut lanes);
    let states: Vec<_> = lanes.iter().map(|lane| (lane.chain, lane.counter)).collect();
    let handled = messages.len().min(LANES);
    let shortest = messages[..handled].iter().map(|(_, _, blocks)| blocks.len()).min();
    assert_eq!(count, shortest.unwrap_or(0));
    for (at, (message, (chain, counter))) in messages.iter().zip(states).enumerate() {
        let count = if at < LANES { count } else { 0 };
        let blocks = got[at].2.clone();
        assert_eq!((chain, counter, blocks), expected(key, direction, message, count), "lane {at}");
    }
}

/// Handles one message alone, by both passes and by the chain, and compares.
fn check_alone(key: Key<'_>, direction: Direction, message: &Message) {
    let Some(alone) = Alone::detect() else { return };
    let expected = expected(key, direction, message, message.2.len());
    let (chain, counter, mut blocks) = message.clone();
    let mut lane = Lane { chain, counter, blocks: &mut blocks };
    alone.ccm(key, direction, &mut lane);
    let (chain, counter) = (lane.chain, lane.counter);
    let plain = if direction == Direction::Seal { &message.2 } else { &blocks };
    let mut mac = message.0;
    alone.mac(key, &mut mac, plain);
    assert_eq!(mac, expected.0);
    assert_eq!((chain, counter, blocks), expected);
}

/// Makes messages of these numbers of blocks.
fn messages(lengths: impl IntoIterator<Item = usize>) -> Vec<Message> {
    let block = |seed: usize| -> Block {
        let number = (seed as u128 + 1).wrapping_mul(0x0123_4567_89AB_CDEF_1122_3344_5566_7789);
        number.to_le_bytes()
    };
    let message = |(lane, len): (usize, usize)| {
        let blocks = (0..len).map(|at| block(lane * 1000 + at)).collect();
        (block(lane + 7), block(lane + 77), blocks)
    };
    lengths.into_iter().enumerate().map(message).collect()
}

#[test]
fn each_number_of_lanes_and_each_length() {
    let keys = [Key::Aes128(&[0x5A; 16]), Key::Aes256(&[0xA5; 32])];
    for key in keys {
        for direction in [Direction::Seal, Direction::Open] {
            for count in 0..=LANES + 1 {
                for len in [0, 1, 2, 63, 64, 65, 130] {
                    check(key, direction, &messages((0..count).map(|lane| len + lane % 3)));
                }
            }
            for len in 0..20 {
                check_alone(key, direction, &messages([len])[0]);
            }
        }
    }
}

proptest! {
    #[test]
    fn another_implementation_agrees(
        short: [u8; 16],
        long: [u8; 32],
        seals: bool,
        messages in vec((any::<Block>(), any::<Block>(), vec(any::<Block>(), 0..90)), 0..10),
    ) {
        let direction = if seals { Direction::Seal } else { Direction::Open };
        check(Key::Aes128(&short), direction, &messages);
        check(Key::Aes256(&long), direction, &messages);
        for message in &messages {
            check_alone(Key::Aes128(&short), direction, message);
            check_alone(Key::Aes256(&long), direction, message);
        }
    }
}

#[test]
fn numbers_of_counter_blocks_carry_and_wrap_within_their_four_bytes() {
    let mut messages = messages([3; 4]);
    for (number, message) in
        [0xFE, 0xFFFE, 0x00FF_FFFE, u32::MAX - 1].into_iter().zip(&mut messages)
    {
        *message.1.last_chunk_mut().unwrap() = u32::to_be_bytes(number);
    }
    check(Key::Aes128(&[1; 16]), Direction::Seal, &messages);
    messages.iter().for_each(|m| check_alone(Key::Aes128(&[1; 16]), Direction::Seal, m));
}
