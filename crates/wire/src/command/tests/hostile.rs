//! Arbitrary bytes cause no panic and no more memory than their length explains, and a parsed
//! message can be encoded.

use super::captured::captured;
use super::{message, reencode_error, reencode_request, reencode_response};
use crate::codec::Parsed;
use crate::command::negotiate::Dialect;
use crate::command::{
    lock, negotiate, oplock_break, query_info, read, server_to_client_notification, set_info,
    tree_connect, write,
};
use crate::compound::Compound;
use crate::error_response::{ErrorResponse, ShareRedirect, SymlinkError};
use crate::header::{Command, HEADER_LEN, Header};
use crate::limits::MAX_NEGOTIATE_CONTEXTS;
use crate::negotiate_context::NegotiateContext;
use crate::rdma_transform::RdmaTransform;
use crate::transform::TransformHeader;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Bytes of memory that a parsed message may take for each byte of the message, and a constant. A
/// negotiate context of 8 bytes is the worst case: it takes 40.
const MEMORY_FACTOR: usize = 8;

/// StructureSize of requests and responses, by command.
const SIZES: [(u16, u16); 19] = [
    (36, 65),
    (25, 9),
    (4, 4),
    (9, 16),
    (4, 4),
    (57, 89),
    (24, 60),
    (24, 4),
    (49, 17),
    (49, 17),
    (48, 4),
    (57, 49),
    (4, 4),
    (4, 4),
    (33, 9),
    (32, 9),
    (41, 9),
    (33, 2),
    (24, 24),
];

type Reencode = fn(Command, &[u8]) -> Parsed<Vec<u8>>;

/// Parses `bytes` as `command`, and checks that the result can be encoded.
fn check(reencode: Reencode, command: Command, bytes: &[u8]) {
    if let Ok(once) = reencode(command, bytes) {
        assert_eq!(reencode(command, &once).as_deref(), Ok(&once[..]), "{command}");
    }
}

fn check_all(command: Command, bytes: &[u8]) {
    check(reencode_request, command, bytes);
    if command != Command::CANCEL {
        check(reencode_response, command, bytes);
    }
    check(|_, bytes| reencode_error(bytes), command, bytes);
    let _ = oplock_break::Notification::parse(bytes);
    let _ = server_to_client_notification::Notification::parse(bytes);
    check_memory(bytes);
}

/// Parses with every parser that allocates.
fn check_memory(bytes: &[u8]) {
    let mut held = 0;
    let mut add = |count: usize, size: usize| held += count * size;
    let mut contexts = |list: &Vec<NegotiateContext<'_>>| {
        add(list.capacity(), size_of::<NegotiateContext<'_>>());
        for context in list {
            match context {
                NegotiateContext::PreauthIntegrity { hash_algorithms, .. } => {
                    add(hash_algorithms.capacity(), 2);
                }
                NegotiateContext::Encryption(list) => add(list.capacity(), 2),
                NegotiateContext::Compression { algorithms, .. } => add(algorithms.capacity(), 2),
                NegotiateContext::RdmaTransform(list) => add(list.capacity(), 2),
                NegotiateContext::Signing(list) => add(list.capacity(), 2),
                _ => {}
            }
        }
    };
    if let Ok(it) = negotiate::Request::parse(bytes) {
        contexts(&it.negotiate_contexts);
        add(it.dialects.capacity(), size_of::<Dialect>());
    }
    if let Ok(it) = negotiate::Response::parse(bytes) {
        let mut contexts = 0;
        contexts += it.negotiate_contexts.capacity();
        add(contexts, size_of::<NegotiateContext<'_>>());
    }
    if let Ok(it) = lock::Request::parse(bytes) {
        add(it.locks.capacity(), size_of::<lock::LockElement>());
    }
    if let Ok(Ok(list)) = tree_connect::Request::parse(bytes).map(|it| it.contexts) {
        add(list.capacity(), size_of::<tree_connect::TreeConnectContext<'_>>());
    }
    if let Ok(ErrorResponse::Contexts(list)) = ErrorResponse::parse(bytes) {
        add(list.capacity(), 24);
    }
    assert!(held <= MEMORY_FACTOR * bytes.len(), "{held} for {}", bytes.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300), small in vec(0u8..130, 64..300)) {
        for bytes in [&bytes, &small] {
            for command in 0..=18 {
                check_all(Command(command), bytes);
            }
            let _ = Header::parse(bytes);
            let _ = TransformHeader::parse(bytes);
            let _ = RdmaTransform::parse(bytes);
            let _ = SymlinkError::parse(bytes);
            let _ = ShareRedirect::parse(bytes);
            let _ = query_info::QueryQuotaInfo::parse(bytes);
            let offsets: Vec<_> = Compound::new(bytes).flatten().map(|(at, _)| at).collect();
            prop_assert!(offsets.is_sorted());
        }
    }

    #[test]
    fn any_body_with_the_right_size(
        command in 0u16..=18, response: bool, mut body in vec(0u8..=200, 2..300),
    ) {
        let (request, answer) = SIZES[usize::from(command)];
        let size = if response { answer } else { request };
        body[..2].copy_from_slice(&size.to_le_bytes());
        let mut bytes = vec![0; HEADER_LEN];
        bytes.append(&mut body);
        check_all(Command(command), &bytes);
    }

    #[test]
    fn mutated_messages(
        which: prop::sample::Index, edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut: Option<prop::sample::Index>, request: bool,
    ) {
        let messages = captured(if request { "request" } else { "response" });
        let (header, mut bytes) = messages[which.index(messages.len())].clone();
        for (at, value) in edits {
            let at = HEADER_LEN + at.index(bytes.len() - HEADER_LEN);
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        check_all(header.command, &bytes);
    }
}

/// Tests every byte of the fixed part of every captured message with the values at which bounds
/// fail.
#[test]
fn every_fixed_byte_at_its_extremes() {
    for kind in ["request", "response"] {
        for (header, bytes) in captured(kind) {
            let end = bytes.len().min(HEADER_LEN + 96);
            for at in HEADER_LEN..end {
                for value in [0x00, 0x01, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF] {
                    let mut bytes = bytes.clone();
                    bytes[at] = value;
                    check_all(header.command, &bytes);
                }
            }
            for cut in 0..bytes.len() {
                check_all(header.command, &bytes[..cut]);
            }
        }
    }
}

/// Tests one byte less than the data needs, and the first byte that is forbidden.
#[test]
fn payloads_stay_inside_the_message_and_behind_the_fixed_part() {
    let data = [0xAB; 10];
    let request = write::Request::new(crate::file_id::FileId::ALL_ONES, 0, &data);
    let bytes = message(|w| request.encode(w));
    let parse = |offset: u16, length: u32| {
        let mut bytes = bytes.clone();
        bytes[66..68].copy_from_slice(&offset.to_le_bytes());
        bytes[68..72].copy_from_slice(&length.to_le_bytes());
        write::Request::parse(&bytes).map(|it| it.data_range)
    };
    assert_eq!(parse(112, 10), Ok(112..122));
    assert_eq!(parse(121, 1), Ok(121..122));
    assert!(parse(112, 11).is_err());
    assert!(parse(122, 1).is_err());
    assert!(parse(111, 1).is_err());
    assert!(parse(0, 1).is_err());
    assert!(parse(0xFFFF, u32::MAX).is_err());
    // Without data, DataOffset has no meaning and may have any value.
    assert_eq!(parse(0xFFFF, 0), Ok(0..0));
    let bytes = message(|w| read::Response::new(&data).encode(w));
    for (offset, length, good) in [(80, 10, true), (80, 11, false), (79, 10, false)] {
        let mut bytes = bytes.clone();
        bytes[66] = offset;
        bytes[68] = length;
        assert_eq!(read::Response::parse(&bytes).is_ok(), good, "{offset} {length}");
    }
}

/// Tests that fields which the specification ignores do not make a message malformed.
#[test]
fn ignored_fields_are_ignored() {
    let file_id = crate::file_id::FileId::ALL_ONES;
    // MS-SMB2 2.2.19: a READ without a channel ignores its channel fields, so wrong values are
    // accepted.
    let mut bytes = message(|w| read::Request::new(file_id, 0, 1).encode(w));
    bytes[108..112].fill(0xFF);
    assert_eq!(read::Request::parse(&bytes).unwrap().channel_info, []);
    // MS-SMB2 2.2.21: a WRITE without a channel ignores its channel fields, so wrong values are
    // accepted.
    let mut bytes = message(|w| write::Request::new(file_id, 0, &[1]).encode(w));
    bytes[104..108].fill(0xFF);
    assert_eq!(write::Request::parse(&bytes).unwrap().channel_info, []);
    // MS-SMB2 2.2.37: this query has no input, so its input fields are ignored.
    let request = query_info::Request {
        info_type: query_info::InfoType::FILE,
        file_info_class: 4,
        output_buffer_length: 40,
        additional_information: 0,
        flags: query_info::QueryInfoFlags::EMPTY,
        file_id,
        input: &[],
    };
    let mut bytes = message(|w| request.encode(w));
    bytes[72..74].fill(0xFF);
    bytes[76..80].fill(0xFF);
    assert_eq!(query_info::Request::parse(&bytes), Ok(request));
    bytes[67] = 15;
    assert!(query_info::Request::parse(&bytes).is_err());
    // MS-SMB2 2.2.3: the request does not offer 3.1.1, so its context fields are ignored.
    let request = negotiate::Request {
        security_mode: negotiate::SecurityMode::EMPTY,
        capabilities: negotiate::GlobalCapabilities::EMPTY,
        client_guid: crate::dtyp::Guid::default(),
        dialects: vec![Dialect::SMB_3_0],
        negotiate_contexts: Vec::new(),
    };
    let mut bytes = message(|w| request.encode(w));
    bytes[92..100].fill(0xFF);
    assert_eq!(negotiate::Request::parse(&bytes), Ok(request));
    bytes[100..102].copy_from_slice(&0x0311u16.to_le_bytes());
    assert!(negotiate::Request::parse(&bytes).is_err());
}

#[test]
fn negotiate_context_counts() {
    let request = |count: usize| negotiate::Request {
        security_mode: negotiate::SecurityMode::EMPTY,
        capabilities: negotiate::GlobalCapabilities::EMPTY,
        client_guid: crate::dtyp::Guid::default(),
        dialects: vec![Dialect::SMB_3_1_1],
        negotiate_contexts: vec![NegotiateContext::Posix(&[]); count],
    };
    for (count, good) in [
        (MAX_NEGOTIATE_CONTEXTS - 1, true),
        (MAX_NEGOTIATE_CONTEXTS, true),
        (MAX_NEGOTIATE_CONTEXTS + 1, false),
    ] {
        let bytes = message(|w| request(count).encode(w));
        assert_eq!(negotiate::Request::parse(&bytes).is_ok(), good, "{count}");
    }
    // Each change makes the request invalid: NegotiateContextOffset (at 92) is unaligned, inside of
    // the fixed part or past the end, NegotiateContextCount (96) is 2, or DataLength (106) is too
    // large. The contexts begin at 104.
    let bytes = message(|w| request(1).encode(w));
    for (at, value) in [(92, 100), (92, 96), (92, 112), (93, 1), (96, 2), (106, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(negotiate::Request::parse(&bytes).is_err(), "{at} {value}");
    }
}

#[test]
fn set_info_of_one_byte_needs_no_padding() {
    let request = set_info::Request {
        info_type: set_info::InfoType::FILE,
        file_info_class: 13,
        additional_information: 0,
        file_id: crate::file_id::FileId::ALL_ONES,
        buffer: &[1],
    };
    assert_eq!(message(|w| request.encode(w)).len(), 97);
}
