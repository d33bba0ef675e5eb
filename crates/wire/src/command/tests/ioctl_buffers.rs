//! The FSCTL buffers of MS-SMB2: round trips, lengths and counts that lie.

use crate::codec::Writer;
use crate::command::ioctl::copychunk::{Chunk, CopyRequest, CopyResponse, ResumeKeyResponse};
use crate::command::ioctl::network_interface::{
    self, ENTRY_LEN, InterfaceCapabilities, NetworkInterface,
};
use crate::command::ioctl::read_hash::{HashRetrievalType, HashType, HashVersion};
use crate::command::ioctl::snapshots::SnapshotArray;
use crate::command::ioctl::{CtlCode, pipe_wait, read_hash, resiliency, validate_negotiate};
use crate::command::negotiate::{Dialect, GlobalCapabilities, SecurityMode};
use crate::dtyp::Guid;
use crate::limits::MAX_NETWORK_INTERFACES;
use crate::utf16::Utf16;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;
use std::format;
use std::vec;
use std::vec::Vec;

fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn copychunk(key: [u8; 24], chunks in vec(any::<(u64, u64, u32)>(), 0..8), words: [u32; 3]) {
        let chunks = chunks.into_iter().map(|(source_offset, target_offset, length)| {
            Chunk { source_offset, target_offset, length }
        });
        let request = CopyRequest { source_key: key, chunks: chunks.collect() };
        let bytes = encoded(|w| request.encode(w));
        prop_assert_eq!(CopyRequest::parse(&bytes), Ok(request));
        prop_assert!(CopyRequest::parse(&bytes[..bytes.len() - 1]).is_err());
        let response = CopyResponse {
            chunks_written: words[0],
            chunk_bytes_written: words[1],
            total_bytes_written: words[2],
        };
        prop_assert_eq!(CopyResponse::parse(&encoded(|w| response.encode(w))), Ok(response));
        let response = ResumeKeyResponse { resume_key: key };
        let bytes = encoded(|w| response.encode(w));
        prop_assert_eq!(bytes.len(), 32);
        prop_assert_eq!(ResumeKeyResponse::parse(&bytes), Ok(response));
    }

    #[test]
    fn interfaces(list in vec(any::<(u32, u32, u64, [u8; 16], bool)>(), 0..6)) {
        let list: Vec<_> = list.into_iter().map(|(if_index, caps, link_speed, a, v4)| {
            let address = if v4 {
                IpAddr::V4(Ipv4Addr::new(a[0], a[1], a[2], a[3]))
            } else {
                IpAddr::V6(Ipv6Addr::from(a))
            };
            let capability = InterfaceCapabilities(caps);
            NetworkInterface { if_index, capability, link_speed, address }
        }).collect();
        let bytes = encoded(|w| network_interface::encode_list(&list, w));
        prop_assert_eq!(bytes.len(), list.len() * ENTRY_LEN);
        prop_assert_eq!(network_interface::parse_list(&bytes), Ok(list));
    }

    #[test]
    fn validate_negotiate(
        caps: u32, guid: [u8; 16], mode: u16, dialects in vec(any::<u16>(), 1..9),
    ) {
        let capabilities = GlobalCapabilities(caps);
        let security_mode = SecurityMode(mode);
        let guid = Guid(guid);
        let dialects: Vec<_> = dialects.into_iter().map(Dialect).collect();
        let dialect = dialects[0];
        let request = validate_negotiate::Request { capabilities, guid, security_mode, dialects };
        let bytes = encoded(|w| request.encode(w));
        prop_assert_eq!(validate_negotiate::Request::parse(&bytes), Ok(request));
        prop_assert!(validate_negotiate::Request::parse(&bytes[..bytes.len() - 1]).is_err());
        let response = validate_negotiate::Response { capabilities, guid, security_mode, dialect };
        let bytes = encoded(|w| response.encode(w));
        prop_assert_eq!(bytes.len(), 24);
        prop_assert_eq!(validate_negotiate::Response::parse(&bytes), Ok(response));
    }

    #[test]
    fn small_ones(words: [u32; 4], offset: u64, timeout: Option<i64>, name in "[a-z\\\\]{0,20}") {
        let request = resiliency::Request { timeout: words[0] };
        prop_assert_eq!(resiliency::Request::parse(&encoded(|w| request.encode(w))), Ok(request));
        let request = read_hash::Request {
            hash_type: HashType(words[0]),
            hash_version: HashVersion(words[1]),
            hash_retrieval_type: HashRetrievalType(words[2]),
            length: words[3],
            offset,
        };
        prop_assert_eq!(read_hash::Request::parse(&encoded(|w| request.encode(w))), Ok(request));
        let request = pipe_wait::Request { timeout, name: Utf16::from_str(&name) };
        let bytes = encoded(|w| request.encode(w));
        prop_assert_eq!(pipe_wait::Request::parse(&bytes), Ok(request));
    }

    #[test]
    fn no_buffer_panics(bytes in vec(any::<u8>(), 0..400), small in vec(0u8..3, 0..400)) {
        for bytes in [&bytes, &small] {
            let _ = CopyRequest::parse(bytes);
            let _ = CopyResponse::parse(bytes);
            let _ = ResumeKeyResponse::parse(bytes);
            let _ = network_interface::parse_list(bytes);
            let _ = validate_negotiate::Request::parse(bytes);
            let _ = validate_negotiate::Response::parse(bytes);
            let _ = resiliency::Request::parse(bytes);
            let _ = read_hash::Request::parse(bytes);
            let _ = pipe_wait::Request::parse(bytes);
            let _ = SnapshotArray::parse(bytes);
        }
    }
}

#[test]
fn chunk_counts_beyond_the_input_are_refused() {
    for count in [1u32, 2, 0x0AAA_AAAB, u32::MAX] {
        let mut bytes = vec![0; 32];
        bytes[24..28].copy_from_slice(&count.to_le_bytes());
        assert!(CopyRequest::parse(&bytes).is_err(), "{count}");
    }
    assert!(CopyRequest::parse(&[0; 31]).is_err());
    assert!(CopyRequest::parse(&[0; 32]).unwrap().chunks.is_empty());
}

#[test]
fn interface_chains_cannot_loop_or_leave() {
    let one = NetworkInterface {
        if_index: 1,
        capability: InterfaceCapabilities::RSS_CAPABLE,
        link_speed: 10_000_000_000,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let bytes = encoded(|w| network_interface::encode_list(&[one, one], w));
    for next in [1u32, 8, 144, 153, 156, 305, u32::MAX] {
        let mut bytes = bytes.clone();
        bytes[..4].copy_from_slice(&next.to_le_bytes());
        assert!(network_interface::parse_list(&bytes).is_err(), "{next}");
    }
    // The interface has an unknown address family, so it is skipped and not refused.
    let mut bytes = bytes;
    bytes[24] = 0x99;
    assert_eq!(network_interface::parse_list(&bytes).unwrap(), [one]);
}

#[test]
fn interface_limit() {
    let one = NetworkInterface {
        if_index: 1,
        capability: InterfaceCapabilities::EMPTY,
        link_speed: 1,
        address: IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    for (count, good) in [
        (MAX_NETWORK_INTERFACES - 1, true),
        (MAX_NETWORK_INTERFACES, true),
        (MAX_NETWORK_INTERFACES + 1, false),
    ] {
        let bytes = encoded(|w| network_interface::encode_list(&vec![one; count], w));
        assert_eq!(network_interface::parse_list(&bytes).is_ok(), good, "{count}");
    }
}

#[test]
fn snapshots_fit_or_say_how_long_they_are() {
    let token = |day: u32| Utf16::from_str(&format!("@GMT-2026.11.{day:02}-10.20.30"));
    let tokens = vec![token(1), token(2), token(3)];
    // The array has three tokens of 25 units (24 characters and a null) and one more null.
    let size = 3 * 50 + 2;
    let whole = SnapshotArray::new(tokens.clone(), 12 + size);
    assert_eq!(whole.snapshots, tokens);
    assert_eq!((whole.number_of_snapshots_returned, whole.snapshot_array_size), (3, size));
    let bytes = encoded(|w| whole.encode(w));
    assert_eq!(bytes.len(), 12 + size as usize);
    assert_eq!(SnapshotArray::parse(&bytes).unwrap(), whole);
    assert!(SnapshotArray::parse(&bytes[..bytes.len() - 1]).is_err());
    let short = SnapshotArray::new(tokens, 11 + size);
    assert!(short.snapshots.is_empty());
    assert_eq!((short.number_of_snapshots, short.number_of_snapshots_returned), (3, 0));
    assert_eq!(short.snapshot_array_size, size);
    let bytes = encoded(|w| short.encode(w));
    assert_eq!(bytes.len(), 16);
    assert_eq!(SnapshotArray::parse(&bytes).unwrap(), short);
    let none = SnapshotArray::new(Vec::new(), 16);
    assert_eq!((none.number_of_snapshots, none.snapshot_array_size), (0, 0));
}

#[test]
fn control_codes_have_names() {
    assert_eq!(format!("{}", CtlCode(0x0014_0204)), "VALIDATE_NEGOTIATE_INFO");
    assert_eq!(format!("{}", CtlCode(0x0009_9999)), "CtlCode(0x99999)");
}
