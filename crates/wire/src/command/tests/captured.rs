//! Messages of an independent implementation. Each one parses, and encoding the result gives the
//! original bytes, except for the fields named here.

use super::{message, reencode_error, reencode_request, reencode_response};
use crate::command::create::{CreateDisposition, OplockLevel, ShareAccess};
use crate::command::negotiate::{Dialect, GlobalCapabilities, SecurityMode};
use crate::command::{create, negotiate, oplock_break, tree_connect};
use crate::create_context::{CreateContext, LeaseState, ResponseContext};
use crate::dtyp::AccessMask;
use crate::header::{Command, HEADER_LEN, Header};
use crate::negotiate_context::{
    Cipher, HashAlgorithm, NegotiateContext, NegotiateContextType, SigningAlgorithm,
};
use crate::status::Status;
use std::vec;
use std::vec::Vec;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The captured messages, requests or responses.
pub(super) fn captured(kind: &str) -> Vec<(Header, Vec<u8>)> {
    let mut messages = Vec::new();
    for line in include_str!("captured.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        if words.next() != Some(kind) {
            continue;
        }
        let bytes = unhex(words.next().unwrap());
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.command.name(), Some(name));
        messages.push((header, bytes));
    }
    messages
}

/// Returns the bodies to compare: without the padding of a compound, and with free choices of
/// senders replaced by the choices of this crate.
fn normalized(header: &Header, bytes: &[u8], len: usize) -> Vec<u8> {
    let (body, padding) = bytes.split_at(len.min(bytes.len()));
    assert!(padding.iter().all(|&byte| byte == 0), "{header:?}");
    let mut body = body.to_vec();
    match (header.command, header.is_response()) {
        // SmbCreateFlags is reserved, but smbtorture sometimes sets it, so it is cleared.
        (Command::CREATE, false) => body[72..80].fill(0),
        // An empty output buffer may have any offset, so it gets the offset that this crate writes.
        (Command::IOCTL, false) => {
            if body[92..96] == [0; 4] {
                body[88..92].copy_from_slice(&120u32.to_le_bytes());
            }
            body[100..104].fill(0);
        }
        // An interim response has one byte of ErrorData although ByteCount is zero. It may have any
        // value, so it is cleared.
        (_, true) if header.status == Status(0x103) => body[72] = 0,
        _ => {}
    }
    body
}

fn is_error(header: &Header) -> bool {
    const PENDING: u32 = 0x103;
    const NO_MORE_FILES: u32 = 0x8000_0006;
    const MORE_PROCESSING_REQUIRED: u32 = 0xC000_0016;
    match header.status.0 {
        PENDING | NO_MORE_FILES => true,
        MORE_PROCESSING_REQUIRED => false,
        status => status >> 30 == 3,
    }
}

#[test]
fn every_request_is_understood() {
    let messages = captured("request");
    assert!(messages.len() > 30);
    for (header, bytes) in messages {
        let ours = reencode_request(header.command, &bytes).unwrap();
        let theirs = normalized(&header, &bytes, ours.len());
        assert_eq!(ours[HEADER_LEN..], theirs[HEADER_LEN..], "{header:?}");
    }
}

#[test]
fn every_response_is_understood() {
    let messages = captured("response");
    assert!(messages.len() > 50);
    for (header, bytes) in messages {
        let ours = if is_error(&header) {
            reencode_error(&bytes)
        } else if header.command == Command::OPLOCK_BREAK && header.message_id == u64::MAX {
            oplock_break::Notification::parse(&bytes).map(|it| message(|w| it.encode(w)))
        } else {
            reencode_response(header.command, &bytes)
        };
        let ours = ours.unwrap();
        let theirs = normalized(&header, &bytes, ours.len());
        assert_eq!(ours[HEADER_LEN..], theirs[HEADER_LEN..], "{header:?}");
    }
}

fn only(kind: &str, command: Command) -> Vec<u8> {
    captured(kind).into_iter().find(|(header, _)| header.command == command).unwrap().1
}

#[test]
fn negotiate_request_of_smbclient() {
    let bytes = only("request", Command::NEGOTIATE);
    let request = negotiate::Request::parse(&bytes).unwrap();
    assert_eq!(
        request.dialects,
        [
            Dialect::SMB_2_0_2,
            Dialect::SMB_2_1,
            Dialect::SMB_3_0,
            Dialect::SMB_3_0_2,
            Dialect::SMB_3_1_1
        ]
    );
    assert_eq!(request.security_mode, SecurityMode::SIGNING_ENABLED);
    assert!(request.capabilities.contains(GlobalCapabilities::LEASING));
    let kinds: Vec<_> = request.negotiate_contexts.iter().map(NegotiateContext::kind).collect();
    assert_eq!(
        kinds,
        [
            NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES,
            NegotiateContextType::ENCRYPTION_CAPABILITIES,
            NegotiateContextType::SIGNING_CAPABILITIES,
            NegotiateContextType::NETNAME,
        ]
    );
    for context in &request.negotiate_contexts {
        match context {
            NegotiateContext::PreauthIntegrity { hash_algorithms, salt } => {
                assert_eq!(*hash_algorithms, [HashAlgorithm::SHA_512]);
                assert_eq!(salt.len(), 32);
            }
            NegotiateContext::Encryption(ciphers) => {
                assert_eq!(ciphers[..2], [Cipher::AES_128_GCM, Cipher::AES_128_CCM]);
            }
            NegotiateContext::Netname(name) => assert_eq!(name.to_string().unwrap(), "127.0.0.1"),
            NegotiateContext::Signing(algorithms) => {
                assert!(algorithms.contains(&SigningAlgorithm::AES_GMAC));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tree_connect_of_smbclient() {
    let bytes = only("request", Command::TREE_CONNECT);
    let request = tree_connect::Request::parse(&bytes).unwrap();
    assert!(request.path.to_string().unwrap().starts_with(r"\\127.0.0.1\"));
    assert_eq!(request.contexts, Ok(vec![]));
    let bytes = only("response", Command::TREE_CONNECT);
    let response = tree_connect::Response::parse(&bytes).unwrap();
    assert!(response.maximal_access.contains(AccessMask::READ_DATA));
}

#[test]
fn a_lease_is_asked_for_and_granted() {
    let mut asked = 0;
    for (_, bytes) in captured("request").iter().filter(|it| it.0.command == Command::CREATE) {
        let request = create::Request::parse(bytes).unwrap();
        for context in request.contexts.requests() {
            match context.unwrap() {
                CreateContext::Lease(lease) => {
                    assert_eq!(request.requested_oplock_level, OplockLevel::LEASE);
                    assert!(lease.lease_state.contains(LeaseState::READ));
                    asked += 1;
                }
                CreateContext::LeaseV2(lease) => {
                    assert!(lease.lease.lease_state.contains(LeaseState::READ));
                    asked += 1;
                }
                CreateContext::Unknown { name, .. } => panic!("{name:?}"),
                _ => {}
            }
        }
    }
    assert!(asked > 0);
    let mut granted = 0;
    for (header, bytes) in captured("response") {
        if header.command != Command::CREATE || header.status != Status(0) {
            continue;
        }
        let response = create::Response::parse(&bytes).unwrap();
        for context in response.contexts.responses() {
            match context.unwrap() {
                ResponseContext::Lease(_) | ResponseContext::LeaseV2(_) => {
                    assert_eq!(response.oplock_level, OplockLevel::LEASE);
                    granted += 1;
                }
                ResponseContext::Unknown { name, .. } => panic!("{name:?}"),
                _ => {}
            }
        }
    }
    assert!(granted > 0);
}

#[test]
fn a_create_request_by_its_bytes() {
    // These are the bytes of a CREATE request for a pipe from MS-SMB2 4.4, field by field as in
    // 2.2.13.
    let mut bytes = vec![0; HEADER_LEN];
    bytes.extend(unhex(concat!(
        "3900",
        "00",
        "00",
        "02000000",
        "0000000000000000",
        "0000000000000000",
        "9f011200",
        "00000000",
        "03000000",
        "01000000",
        "40000000",
        "7800",
        "0c00",
        "00000000",
        "00000000",
        "730072007600730076006300",
    )));
    let request = create::Request::parse(&bytes).unwrap();
    assert_eq!(request.name.to_string().unwrap(), "srvsvc");
    assert_eq!(request.share_access, ShareAccess::READ | ShareAccess::WRITE);
    assert_eq!(request.create_disposition, CreateDisposition::OPEN);
    assert_eq!(request.desired_access, AccessMask(0x0012_019F));
    assert!(request.contexts.is_empty());
    assert_eq!(message(|w| request.encode(w)), bytes);
}
