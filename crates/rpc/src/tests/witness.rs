//! The bytes of the service witness protocol. Samba's ndrdump reads the golden ones as they are written
//! here.

use super::hex;
use crate::handles::encode_handle;
use crate::limits::{MAX_WITNESS_INTERFACES, MAX_WITNESS_MESSAGES};
use crate::witness::*;
use crate::{SyntaxId, WinError};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use frevo_wire::ndr::{ContextHandle, NdrWriter};
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

#[test]
fn the_interface_has_the_uuid_of_the_specification() {
    let uuid = hex("74c0d8cc e5d0 404a 92b4 d074faa6ba28");
    assert_eq!(SyntaxId::WITNESS.uuid.0[..], uuid);
    assert_eq!(SyntaxId::WITNESS.version, 0x0001_0001);
}

/// The example of MS-SWN 4.1.
#[test]
fn a_registration_has_the_bytes_of_the_specification() {
    let call = Register {
        version: Version::V1,
        net_name: some("generalfs"),
        ip_address: some("192.168.1.200"),
        client_name: some("C1"),
    };
    let bytes = hex("01000100 00000200 0a000000 00000000 0a000000 \
         670065006e006500720061006c00660073000000 \
         04000200 0e000000 00000000 0e000000 \
         3100390032002e003100360038002e0031002e003200300030000000 \
         08000200 03000000 00000000 03000000 430031000000");
    assert_eq!(call.encode(), bytes);
    assert_eq!(Register::parse(&bytes), Ok(call));
}

#[test]
fn a_registration_of_version_2_keeps_its_fields() {
    let call = RegisterEx {
        version: Version::V2,
        net_name: some("nas"),
        share_name: None,
        ip_address: some("2001:db8::1"),
        client_name: some("client.example.org"),
        flags: RegisterFlags::IP_NOTIFICATION,
        keep_alive_seconds: 120,
    };
    let bytes = call.encode();
    assert_eq!(bytes[..4], hex("00000200"));
    assert_eq!(bytes[bytes.len() - 8..], hex("01000000 78000000"));
    assert_eq!(RegisterEx::parse(&bytes), Ok(call.clone()));
    let named = RegisterEx { share_name: some("data"), ..call };
    assert_eq!(RegisterEx::parse(&named.encode()), Ok(named));
}

/// The interfaces of MS-SWN 4.1, whose service has another version here.
#[test]
fn interfaces_have_their_places() {
    let of = |name, address: &str, is_witness| {
        InterfaceInfo::of(name, InterfaceState::AVAILABLE, ip(address), is_witness)
    };
    let interfaces = vec![of("NODE02", "192.168.1.22", true), of("NODE01", "2001:db8::12", false)];
    let reply = InterfaceListReply { interfaces, status: WinError::SUCCESS };
    let bytes = reply.encode();
    assert_eq!(bytes[..16], hex("00000200 02000000 04000200 02000000"));
    let (first, second) = (&bytes[16..16 + 552], &bytes[16 + 552..16 + 1104]);
    assert_eq!(first[..14], hex("4e004f0044004500300032000000"));
    assert_eq!(
        first[520..],
        hex("00000200 0100 0000 c0a80116 00000000000000000000000000000000 05000000")
    );
    assert_eq!(
        second[520..],
        hex("00000200 0100 0000 00000000 20010db8000000000000000000000012 02000000")
    );
    assert_eq!(bytes[16 + 1104..], hex("00000000"));
    assert_eq!(InterfaceListReply::parse(&bytes), Ok(reply.clone()));
    let addresses: Vec<_> = reply.interfaces.iter().flat_map(InterfaceInfo::addresses).collect();
    assert_eq!(addresses, [ip("192.168.1.22"), ip("2001:db8::12")]);
    let refused = InterfaceListReply { interfaces: Vec::new(), status: WinError::NO_MORE_ITEMS };
    assert_eq!(refused.encode(), hex("00000000 03010000"));
    assert_eq!(InterfaceListReply::parse(&refused.encode()), Ok(refused));
}

#[test]
fn names_of_groups_are_cut_to_their_field() {
    let long = "n".repeat(400);
    let interface = InterfaceInfo::of(&long, InterfaceState::UNKNOWN, ip("192.0.2.1"), false);
    let reply = InterfaceListReply { interfaces: vec![interface], status: WinError::SUCCESS };
    let read = InterfaceListReply::parse(&reply.encode()).unwrap();
    assert_eq!(read.interfaces[0].group_name, long[..259]);
}

#[test]
fn notifications_have_their_bytes() {
    let change = |state, name: &str| ResourceChange { state, name: name.to_string() };
    let notification = Notification::ResourceChange(vec![
        change(ResourceState::UNAVAILABLE, "n1"),
        change(ResourceState::AVAILABLE, "nas"),
    ]);
    let reply = NotifyReply { notification: Some(notification), status: WinError::SUCCESS };
    let bytes = hex("00000200 01000000 1e000000 02000000 04000200 1e000000 \
         0e000000 ff000000 6e0031000000 10000000 01000000 6e00610073000000 0000 00000000");
    assert_eq!(reply.encode(), bytes);
    assert_eq!(NotifyReply::parse(&bytes), Ok(reply));
    let addresses = vec![
        AddressInfo::of(ip("192.0.2.7"), AddressFlags::ONLINE),
        AddressInfo::of(ip("2001:db8::7"), AddressFlags::OFFLINE),
    ];
    let reply = NotifyReply {
        notification: Some(Notification::ShareMove(addresses.clone())),
        status: WinError::SUCCESS,
    };
    let bytes = hex("00000200 03000000 3c000000 01000000 04000200 3c000000 \
         3c000000 00000000 02000000 \
         09000000 c0000207 00000000000000000000000000000000 \
         12000000 00000000 20010db8000000000000000000000007 00000000");
    assert_eq!(reply.encode(), bytes);
    assert_eq!(NotifyReply::parse(&bytes), Ok(reply));
    let told: Vec<_> = addresses.iter().filter_map(AddressInfo::address).collect();
    assert_eq!(told, [ip("192.0.2.7"), ip("2001:db8::7")]);
    let timed_out = NotifyReply { notification: None, status: WinError::TIMEOUT };
    assert_eq!(timed_out.encode(), hex("00000000 b4050000"));
    assert_eq!(NotifyReply::parse(&timed_out.encode()), Ok(timed_out));
}

#[test]
fn handles_and_statuses_are_read_back() {
    let handle = Key([7; 16]).handle();
    assert_eq!(Key::of(&handle), Key([7; 16]));
    assert_eq!(encode_handle(&handle)[..4], [0; 4]);
    let reply = HandleReply { handle, status: WinError::SUCCESS };
    assert_eq!(HandleReply::parse(&reply.encode()), Ok(reply));
    let refused = HandleReply { handle: ContextHandle::NULL, status: WinError::REVISION_MISMATCH };
    assert_eq!(refused.encode()[20..], hex("1a050000"));
    let reply = StatusReply { status: WinError::INVALID_PARAMETER };
    assert_eq!(reply.encode(), hex("57000000"));
    assert_eq!(StatusReply::parse(&reply.encode()), Ok(reply));
}

/// A notification with this buffer, as a server may send it.
fn notification(kind: u32, length: u32, count: u32, buffer: &[u8]) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.pointer(true).u32(kind).u32(length).u32(count).pointer(true).bytes(buffer).u32(0);
    w.into_stub()
}

#[test]
fn lengths_that_lie_are_malformed() {
    let change = hex("0e000000 ff000000 6e0031000000");
    let of = |length: u32, count, buffer: &[u8]| {
        NotifyReply::parse(&notification(1, length, count, buffer)).is_ok()
    };
    assert!(of(14, 1, &change));
    // RESP_ASYNC_NOTIFY with another length, or with more messages than there are.
    assert!(!of(13, 1, &change) && !of(14, 2, &change) && !of(14, u32::MAX, &change));
    // RESOURCE_CHANGE that is longer than the buffer, shorter than its head, or has no NUL.
    for length in [0_u32, 7, 8, 9, 12, 16, u32::MAX] {
        let mut lie = change.clone();
        lie[..4].copy_from_slice(&length.to_le_bytes());
        assert!(!of(14, 1, &lie), "{length}");
    }
    let list = |length: u32, count: u32| {
        let mut buffer = Vec::new();
        for word in [length, 0, count] {
            buffer.extend(word.to_le_bytes());
        }
        buffer.extend([0; 24]);
        NotifyReply::parse(&notification(2, 36, 1, &buffer)).is_ok()
    };
    assert!(list(36, 1) && list(36, 0));
    assert!(!list(36, 2) && !list(12, 1) && !list(3, 1) && !list(37, 1) && !list(36, u32::MAX));
    let mut lie = InterfaceListReply {
        interfaces: vec![InterfaceInfo::of("n", InterfaceState::AVAILABLE, ip("::1"), true)],
        status: WinError::SUCCESS,
    }
    .encode();
    lie[4] = 2;
    assert!(InterfaceListReply::parse(&lie).is_err());
}

/// A client takes no list that is longer than its limits, however it is announced.
#[test]
fn lists_beyond_the_limits_are_malformed() {
    let one = InterfaceInfo::of("n", InterfaceState::AVAILABLE, ip("192.0.2.1"), true);
    let reply = |count| {
        let interfaces = vec![one.clone(); count];
        InterfaceListReply { interfaces, status: WinError::SUCCESS }.encode()
    };
    assert!(InterfaceListReply::parse(&reply(MAX_WITNESS_INTERFACES)).is_ok());
    assert!(InterfaceListReply::parse(&reply(MAX_WITNESS_INTERFACES + 1)).is_err());
    let reply = |count| {
        let addresses = vec![AddressInfo::of(ip("192.0.2.1"), AddressFlags::ONLINE); count];
        let notification = Some(Notification::ClientMove(addresses));
        NotifyReply { notification, status: WinError::SUCCESS }.encode()
    };
    assert!(NotifyReply::parse(&reply(MAX_WITNESS_MESSAGES)).is_ok());
    assert!(NotifyReply::parse(&reply(MAX_WITNESS_MESSAGES + 1)).is_err());
}

#[test]
fn a_type_that_is_not_known_is_told_as_such() {
    let reply = NotifyReply::parse(&notification(9, 3, 5, b"new")).unwrap();
    assert_eq!(reply.notification, Some(Notification::Other(MessageType(9))));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Register::parse(&bytes);
        let _ = RegisterEx::parse(&bytes);
        let _ = HandleReply::parse(&bytes);
        let _ = InterfaceListReply::parse(&bytes);
        let _ = NotifyReply::parse(&bytes);
    }

    #[test]
    fn what_is_read_has_the_same_meaning_when_it_is_written(
        kind in 1_u32..5,
        buffer in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let length = buffer.len() as u32;
        if let Ok(reply) = NotifyReply::parse(&notification(kind, length, 1, &buffer)) {
            let again = NotifyReply::parse(&reply.encode());
            prop_assert_eq!(again, Ok(reply));
        }
    }
}
