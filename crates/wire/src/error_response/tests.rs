use super::{
    ErrorContext, ErrorId, ErrorResponse, ShareRedirect, SymlinkError, Wrapping,
    encode_buffer_too_small,
};
use crate::codec::Writer;
use crate::command::tests::message;
use crate::header::HEADER_LEN;
use crate::limits::{MAX_ERROR_CONTEXTS, MAX_REDIRECT_ADDRESSES};
use crate::utf16::Utf16;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn plain_is_nine_bytes() {
    let bytes = message(|w| ErrorResponse::PLAIN.encode(w));
    assert_eq!(bytes[HEADER_LEN..], [9, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ErrorResponse::parse(&bytes), Ok(ErrorResponse::PLAIN));
    // Some servers leave out the byte of ErrorData, so the response is accepted without it.
    assert_eq!(ErrorResponse::parse(&bytes[..72]), Ok(ErrorResponse::PLAIN));
    assert!(ErrorResponse::parse(&bytes[..71]).is_err());
}

/// MS-SMB2 3.3.5.20.3: ByteCount 12 with a context, 4 without.
#[test]
fn buffer_too_small() {
    let bytes = message(|w| encode_buffer_too_small(Wrapping::Bare, 0x0102, w));
    assert_eq!(bytes[HEADER_LEN..], [9, 0, 0, 0, 4, 0, 0, 0, 2, 1, 0, 0]);
    assert_eq!(ErrorResponse::parse(&bytes).unwrap().required_length(), Some(0x0102));
    let bytes = message(|w| encode_buffer_too_small(Wrapping::Context, 0x0102, w));
    assert_eq!(bytes[HEADER_LEN..], [9, 0, 1, 0, 12, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0]);
    assert_eq!(ErrorResponse::parse(&bytes).unwrap().required_length(), Some(0x0102));
    assert_eq!(ErrorResponse::PLAIN.required_length(), None);
}

/// MS-SMB2 3.3.5.7: ByteCount 10 for the dialect of the cluster.
#[test]
fn bad_cluster_dialect() {
    let dialect = 0x0302u16.to_le_bytes();
    let response = ErrorResponse::new(Wrapping::Context, ErrorId::DEFAULT, &dialect);
    let bytes = message(|w| response.encode(w));
    assert_eq!(bytes[HEADER_LEN..], [9, 0, 1, 0, 10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 3]);
}

/// MS-SMB2 3.3.5.20.1: ByteCount 8 for a context without data.
#[test]
fn info_length_mismatch() {
    let response = ErrorResponse::new(Wrapping::Context, ErrorId::DEFAULT, &[]);
    let bytes = message(|w| response.encode(w));
    assert_eq!(bytes[HEADER_LEN..], [9, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn contexts_are_aligned_found_and_limited() {
    let context = |error_id, data| ErrorContext { error_id, data };
    let response = ErrorResponse::Contexts(vec![
        context(ErrorId(7), &[1, 2, 3][..]),
        context(ErrorId::SHARE_REDIRECT, &[4][..]),
    ]);
    let bytes = message(|w| response.encode(w));
    assert_eq!(bytes.len(), 72 + 16 + 9);
    let parsed = ErrorResponse::parse(&bytes).unwrap();
    assert_eq!(parsed.data(ErrorId::SHARE_REDIRECT), Some(&[4][..]));
    assert_eq!(parsed.data(ErrorId::DEFAULT), None);
    assert_eq!(parsed, response);
    // Each case changes one byte: in ErrorContextCount (offset 66), in ByteCount (68), or in the
    // first (72) or second context's ErrorDataLength (88).
    for (at, value) in [(66, 3), (68, 26), (72, 18), (75, 0xFF), (88, 2)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(ErrorResponse::parse(&bytes).is_err(), "{at} {value}");
    }
    for (count, good) in [
        (MAX_ERROR_CONTEXTS - 1, true),
        (MAX_ERROR_CONTEXTS, true),
        (MAX_ERROR_CONTEXTS + 1, false),
    ] {
        let mut bytes = vec![0; 72 + 8 * count];
        bytes[64] = 9;
        bytes[66] = u8::try_from(count).unwrap();
        bytes[68..72].copy_from_slice(&u32::try_from(8 * count).unwrap().to_le_bytes());
        assert_eq!(ErrorResponse::parse(&bytes).is_ok(), good, "{count}");
    }
}

/// The example of MS-SMB2 2.2.2.2.1.1.
#[test]
fn symlink() {
    let error = SymlinkError {
        unparsed_path_length: 0x2E,
        substitute_name: Utf16::from_str(r"\??\D:\DonHall\MiscDocuments\PDocs"),
        print_name: Utf16::from_str(r"D:\DonHall\MiscDocuments\PDocs"),
        relative: false,
    };
    let bytes = encoded(|w| error.encode(w));
    assert_eq!(SymlinkError::parse(&bytes).unwrap(), error);
    assert_eq!(usize::from(bytes[0]), bytes.len() - 4);
    assert_eq!(&bytes[4..8], b"SYML");
    // SubstituteNameLength is at 18 and PrintNameOffset at 20. Each case changes one byte: in
    // SymLinkLength (offset 0), SymLinkErrorTag (4), ReparseTag (8), or in a name's offset or
    // length (16 to 22).
    assert_eq!((bytes[18], bytes[20]), (0x44, 0x44));
    for (at, value) in
        [(0, 0xFF), (3, 1), (4, 0), (8, 0), (16, 0xFF), (18, 0x43), (19, 1), (22, 0xFF)]
    {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(SymlinkError::parse(&bytes).is_err(), "{at} {value}");
    }
}

#[test]
fn redirect_faults() {
    let redirect = ShareRedirect {
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST); 2],
        resource_name: Utf16::from_str("share"),
    };
    let bytes = encoded(|w| redirect.encode(w));
    assert_eq!(bytes.len(), 24 + 48 + 10);
    for (at, value) in [
        (0, 47),
        (4, 2),
        (8, 23),
        (8, 73),
        (12, 11),
        (12, 9),
        (20, 3),
        (21, 1),
        (23, 0xFF),
        (24, 3),
    ] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(ShareRedirect::parse(&bytes).is_err(), "{at} {value}");
    }
    for (count, good) in [
        (MAX_REDIRECT_ADDRESSES - 1, true),
        (MAX_REDIRECT_ADDRESSES, true),
        (MAX_REDIRECT_ADDRESSES + 1, false),
    ] {
        let redirect = ShareRedirect {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST); count],
            resource_name: Utf16::EMPTY,
        };
        let bytes = encoded(|w| redirect.encode(w));
        assert_eq!(ShareRedirect::parse(&bytes).is_ok(), good, "{count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn survives(list in vec((any::<u32>(), vec(any::<u8>(), 0..30)), 1..5)) {
        let contexts = list.iter().map(|(id, data)| ErrorContext { error_id: ErrorId(*id), data });
        let response = ErrorResponse::Contexts(contexts.collect());
        let bytes = message(|w| response.encode(w));
        prop_assert_eq!(ErrorResponse::parse(&bytes), Ok(response));
        let response = ErrorResponse::Data(&list[0].1);
        let bytes = message(|w| response.encode(w));
        prop_assert_eq!(ErrorResponse::parse(&bytes), Ok(response));
    }

    #[test]
    fn redirects_and_symlinks_survive(
        list in vec(any::<([u8; 16], bool)>(), 0..5), name in vec(any::<u16>(), 0..10),
        print in vec(any::<u16>(), 0..10), unparsed: u16, relative: bool,
    ) {
        let addresses = list.into_iter().map(|(a, v4)| if v4 {
            IpAddr::V4(Ipv4Addr::new(a[0], a[1], a[2], a[3]))
        } else {
            IpAddr::V6(Ipv6Addr::from(a))
        }).collect();
        let name = Utf16::from_units(name);
        let redirect = ShareRedirect { addresses, resource_name: name.clone() };
        let bytes = encoded(|w| redirect.encode(w));
        prop_assert_eq!(ShareRedirect::parse(&bytes), Ok(redirect));
        let symlink = SymlinkError {
            unparsed_path_length: unparsed,
            substitute_name: name,
            print_name: Utf16::from_units(print),
            relative,
        };
        let bytes = encoded(|w| symlink.encode(w));
        prop_assert_eq!(SymlinkError::parse(&bytes), Ok(symlink));
    }
}
