//! The state machine of a pipe.

use super::call;
use super::*;
use crate::client::RpcError;
use crate::limits::*;
use crate::pdu::*;
use crate::srvsvc::*;
use crate::{FaultStatus, PipeError, PipeRead, interface};
use proptest::prelude::*;

fn context(id: u16, interface: SyntaxId, transfer: &[SyntaxId]) -> ContextElement {
    ContextElement { id, interface, transfer: transfer.to_vec() }
}

fn features(bits: u8) -> SyntaxId {
    let mut syntax = SyntaxId::ZERO;
    syntax.uuid.0[..9].copy_from_slice(&[0x2C, 0x1C, 0xB7, 0x6C, 0x12, 0x98, 0x40, 0x45, bits]);
    SyntaxId { version: 1, ..syntax }
}

fn bind(contexts: Vec<ContextElement>) -> Bind {
    Bind { max_xmit_frag: 4280, max_recv_frag: 4280, assoc_group_id: 0, contexts }
}

fn next(endpoint: &mut End) -> (Header, Vec<u8>) {
    let read = endpoint.read(usize::MAX).unwrap();
    let (header, body, rest) = split_first(&read.data, MAX_FRAG).unwrap().unwrap();
    assert!(rest.is_empty());
    (header, body.to_vec())
}

fn answer_to(bytes: &[u8]) -> (End, Header, Vec<u8>) {
    let mut endpoint = End::new(&INTERFACE, 0x53F0);
    endpoint.write(bytes, &fixture()).unwrap();
    let (header, body) = next(&mut endpoint);
    (endpoint, header, body)
}

/// Tests the bind of Windows: NDR, NDR64 and the features of the connection.
#[test]
fn bind_of_windows() {
    let bind = bind(vec![
        context(0, SyntaxId::SRVSVC, &[SyntaxId::NDR]),
        context(1, SyntaxId::SRVSVC, &[SyntaxId::NDR64]),
        context(2, SyntaxId::SRVSVC, &[features(3)]),
        context(3, SyntaxId::WKSSVC, &[SyntaxId::NDR]),
    ]);
    let (endpoint, header, body) = answer_to(&bind.encode(PduKind::BIND, 9));
    assert_eq!(
        (header.kind, header.call_id, header.flags),
        (PduKind::BIND_ACK, 9, PduFlags::WHOLE)
    );
    let ack = BindAck::parse(&body).unwrap();
    assert_eq!((ack.assoc_group_id, ack.secondary_address), (0x53F0, &br"\PIPE\srvsvc"[..]));
    let results: Vec<_> = ack.results.iter().map(|r| (r.code, r.reason, r.transfer)).collect();
    assert_eq!(
        results,
        [
            (ContextResultCode::ACCEPTANCE, 0, SyntaxId::NDR),
            (ContextResultCode::PROVIDER_REJECTION, REASON_TRANSFER_SYNTAXES, SyntaxId::ZERO),
            (ContextResultCode::NEGOTIATE_ACK, 2, SyntaxId::ZERO),
            (ContextResultCode::PROVIDER_REJECTION, REASON_ABSTRACT_SYNTAX, SyntaxId::ZERO),
        ]
    );
    assert!(!endpoint.is_closed());
}

/// The lengths of MS-SMB2 4.4: a bind of 0x74 bytes answered with 0x5C.
#[test]
fn lengths_of_ms_smb2_4_4() {
    let bind = bind(vec![
        context(0, SyntaxId::SRVSVC, &[SyntaxId::NDR]),
        context(1, SyntaxId::SRVSVC, &[features(3)]),
    ]);
    let bytes = bind.encode(PduKind::BIND, 1);
    assert_eq!(bytes.len(), 0x74);
    let mut endpoint = End::new(&INTERFACE, 1);
    endpoint.write(&bytes, &fixture()).unwrap();
    assert_eq!(endpoint.read(0x400).unwrap().data.len(), 0x5C);
}

#[test]
fn binds_that_are_refused() {
    let good = bind(vec![context(0, SyntaxId::SRVSVC, &[SyntaxId::NDR])]);
    let refused = |bytes: &[u8]| {
        let (endpoint, header, body) = answer_to(bytes);
        assert_eq!(header.kind, PduKind::BIND_NAK);
        (parse_bind_nak(&body).unwrap(), endpoint.is_closed())
    };
    let mut auth = good.encode(PduKind::BIND, 1);
    auth[10] = 16;
    assert_eq!(refused(&auth), (RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED, false));
    for (xmit, recv) in [(MIN_FRAG - 1, MIN_FRAG), (MIN_FRAG, MIN_FRAG - 1), (0, 0)] {
        let small = Bind { max_xmit_frag: xmit, max_recv_frag: recv, ..good.clone() };
        let nak = refused(&small.encode(PduKind::BIND, 1));
        assert_eq!(nak, (RejectReason::PROTOCOL_VERSION_NOT_SPECIFIED, true));
    }
    let many = |count| {
        let one = context(0, SyntaxId::SRVSVC, &[SyntaxId::NDR]);
        bind(vec![one; count]).encode(PduKind::BIND, 1)
    };
    assert_eq!(refused(&many(MAX_CONTEXTS + 1)), (RejectReason::LOCAL_LIMIT_EXCEEDED, true));
    assert_eq!(answer_to(&many(MAX_CONTEXTS)).1.kind, PduKind::BIND_ACK);
    let mut lie = good.encode(PduKind::BIND, 1);
    lie[24] = 2;
    assert_eq!(refused(&lie), (RejectReason::PROTOCOL_VERSION_NOT_SPECIFIED, true));
    // A second bind on the same association is refused and ends it.
    let twice = [good.encode(PduKind::BIND, 1), good.encode(PduKind::BIND, 2)].concat();
    let (mut endpoint, header, _) = answer_to(&twice);
    assert_eq!((header.kind, next(&mut endpoint).0.kind), (PduKind::BIND_ACK, PduKind::BIND_NAK));
    assert!(endpoint.is_closed());
}

#[test]
fn fragments_are_as_long_as_the_client_takes() {
    let services =
        Fixture { shares: vec![share("s", ShareType::DISKTREE, &"r".repeat(3000))], ..fixture() };
    for max_recv_frag in [MIN_FRAG, MIN_FRAG + 1, 4280, 0xFFFF] {
        let mut endpoint = End::new(&INTERFACE, 1);
        let contexts = vec![context(5, SyntaxId::SRVSVC, &[SyntaxId::NDR])];
        let bind = Bind { max_recv_frag, ..bind(contexts) };
        endpoint.write(&bind.encode(PduKind::BIND, 1), &services).unwrap();
        next(&mut endpoint);
        let stub = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None }.encode("");
        let request = Request { alloc_hint: 0, context_id: 5, opnum: SHARE_ENUM, stub: &stub };
        endpoint.write(&request.encode(PduFlags::WHOLE, 2), &services).unwrap();
        let (mut whole, mut fragments) = (Vec::new(), 0);
        while endpoint.unread_messages() > 0 {
            assert!(endpoint.first_message_len() <= usize::from(max_recv_frag.min(MAX_FRAG)));
            let (header, body) = next(&mut endpoint);
            let response = Response::parse(&body).unwrap();
            assert_eq!(header.flags.contains(PduFlags::FIRST_FRAG), fragments == 0);
            assert_eq!(header.flags.contains(PduFlags::LAST_FRAG), endpoint.unread() == 0);
            let left = response.alloc_hint as usize - response.stub.len();
            assert_eq!(left == 0, endpoint.unread() == 0, "alloc_hint counts what is left");
            assert_eq!(response.context_id, 5);
            whole.extend_from_slice(response.stub);
            fragments += 1;
        }
        assert!(fragments > 1);
        assert_eq!(ShareEnumReply::parse(&whole, 1).unwrap().shares[0].remark.len(), 3000);
    }
}

#[test]
fn requests_come_in_any_pieces() {
    let services = fixture();
    let stub =
        ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None }.encode(r"\\server");
    let mut expected = None;
    for cut in [1, 7, 16, 40, stub.len()] {
        for piece in [1, 15, 16, 17, 4096] {
            let (_, mut endpoint) = bound(&INTERFACE, &services);
            let parts: Vec<_> = stub.chunks(cut).collect();
            let mut bytes = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                let mut flags = PduFlags::EMPTY;
                if index == 0 {
                    flags |= PduFlags::FIRST_FRAG;
                }
                if index == parts.len() - 1 {
                    flags |= PduFlags::LAST_FRAG;
                }
                let request =
                    Request { alloc_hint: 0, context_id: 0, opnum: SHARE_ENUM, stub: part };
                bytes.extend(request.encode(flags, 2));
            }
            bytes.chunks(piece).for_each(|bytes| endpoint.write(bytes, &services).unwrap());
            let answer = endpoint.read(usize::MAX).unwrap().data;
            assert_eq!(*expected.get_or_insert(answer.clone()), answer, "cut {cut}, piece {piece}");
        }
    }
}

/// Tests that a violation of the protocol gets nca_proto_error and closes the pipe.
#[test]
fn protocol_errors() {
    let request = |flags, call_id| {
        let request = Request { alloc_hint: 0, context_id: 0, opnum: SHARE_ENUM, stub: &[0; 8] };
        request.encode(flags, call_id)
    };
    let first = request(PduFlags::FIRST_FRAG, 2);
    let edit = |at: usize, value: u8| {
        let mut bytes = request(PduFlags::WHOLE, 2);
        bytes[at] = value;
        bytes
    };
    let cases = [
        ("a fragment of no call", request(PduFlags::LAST_FRAG, 2)),
        ("two first fragments", [first.clone(), first.clone()].concat()),
        ("a fragment of another call", [first, request(PduFlags::LAST_FRAG, 3)].concat()),
        ("a version", edit(0, 4)),
        ("big-endian integers", edit(4, 0)),
        ("a length of less than the header", edit(8, 15)),
        ("a length beyond our limit", edit(9, 0xFF)),
        ("an authentication token", edit(10, 8)),
        ("a kind that servers send", edit(2, PduKind::RESPONSE.0)),
        ("an unknown kind", edit(2, 99)),
        ("a request without its fields", {
            let mut bytes = edit(8, 20);
            bytes.truncate(20);
            bytes
        }),
    ];
    for (what, bytes) in cases {
        let services = fixture();
        let (_, mut endpoint) = bound(&INTERFACE, &services);
        endpoint.write(&bytes, &services).unwrap();
        let (header, body) = next(&mut endpoint);
        assert_eq!(header.kind, PduKind::FAULT, "{what}");
        assert_eq!(parse_fault(&body), Ok(FaultStatus::PROTO_ERROR), "{what}");
        assert_eq!(endpoint.write(&[0], &services), Err(PipeError::Disconnected), "{what}");
        assert_eq!(endpoint.read(100), None);
    }
    let (endpoint, header, _) = answer_to(&request(PduFlags::WHOLE, 2));
    assert_eq!(
        (header.kind, endpoint.is_closed()),
        (PduKind::FAULT, true),
        "a request before the bind"
    );
}

#[test]
fn a_context_that_was_not_accepted() {
    let services = fixture();
    let (_, mut endpoint) = bound(&INTERFACE, &services);
    let request = Request { alloc_hint: 0, context_id: 1, opnum: SHARE_ENUM, stub: &[] };
    endpoint.write(&request.encode(PduFlags::WHOLE, 2), &services).unwrap();
    assert_eq!(parse_fault(&next(&mut endpoint).1), Ok(FaultStatus::UNK_IF));
    assert!(!endpoint.is_closed());
    // A refused context does not end the association, so the client may negotiate another one.
    let more = bind(vec![context(1, SyntaxId::SRVSVC, &[SyntaxId::NDR])]);
    endpoint.write(&more.encode(PduKind::ALTER_CONTEXT, 3), &services).unwrap();
    let (header, body) = next(&mut endpoint);
    assert_eq!(header.kind, PduKind::ALTER_CONTEXT_RESP);
    let ack = BindAck::parse(&body).unwrap();
    assert_eq!(
        (ack.secondary_address, ack.results[0].code),
        (&b""[..], ContextResultCode::ACCEPTANCE)
    );
    endpoint.write(&request.encode(PduFlags::WHOLE, 4), &services).unwrap();
    assert_eq!(parse_fault(&next(&mut endpoint).1), Ok(FaultStatus::NDR));
}

#[test]
fn request_stub_at_its_limit() {
    for (excess, status) in [(0, FaultStatus::NDR), (1, FaultStatus::ACCESS_DENIED)] {
        let services = fixture();
        let mut ends = bound(&INTERFACE, &services);
        // The stub has no terminator. At the largest allowed length it is parsed and malformed; one
        // byte more is refused without parsing.
        let stub = vec![0xFF; MAX_REQUEST_STUB + excess];
        let fault = call(&mut ends, SHARE_ENUM, &stub, &services, 4280);
        assert_eq!(fault, Err(RpcError::Fault(status)), "{excess} bytes too many");
    }
}

#[test]
fn who_does_not_read_may_not_write() {
    let shares =
        (0..3000).map(|n| share(&alloc::format!("{n}"), ShareType::DISKTREE, "")).collect();
    let services = Fixture { shares, ..fixture() };
    let (mut client, mut endpoint) = bound(&INTERFACE, &services);
    let stub = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None }.encode("");
    let request = client.call(SHARE_ENUM, &stub).concat();
    endpoint.write(&request, &services).unwrap();
    assert!(endpoint.unread() > MAX_UNREAD);
    assert_eq!(endpoint.write(&request, &services), Err(PipeError::Unread));
    while endpoint.unread() >= MAX_UNREAD {
        endpoint.read(4280).unwrap();
    }
    assert_eq!(endpoint.write(&request, &services), Ok(()));
}

#[test]
fn cancels_and_orphans() {
    let services = fixture();
    let (_, mut endpoint) = bound(&INTERFACE, &services);
    let request = Request { alloc_hint: 0, context_id: 0, opnum: 99, stub: &[0; 8] };
    endpoint.write(&request.encode(PduFlags::FIRST_FRAG, 2), &services).unwrap();
    for (kind, call_id) in [(PduKind::CO_CANCEL, 2), (PduKind::ORPHANED, 1), (PduKind::ORPHANED, 2)]
    {
        let mut pdu = request.encode(PduFlags::WHOLE, call_id);
        pdu[2] = kind.0;
        endpoint.write(&pdu, &services).unwrap();
        assert_eq!(endpoint.unread(), 0);
    }
    endpoint.write(&request.encode(PduFlags::WHOLE, 3), &services).unwrap();
    assert_eq!(parse_fault(&next(&mut endpoint).1), Ok(FaultStatus::OP_RNG_ERROR));
}

#[test]
fn messages_are_read_in_parts() {
    let services = fixture();
    let mut endpoint = End::new(&INTERFACE, 1);
    assert_eq!(endpoint.read(10), None);
    endpoint.write(&Client::new(SyntaxId::SRVSVC).bind(), &services).unwrap();
    let total = endpoint.unread();
    let first = endpoint.read(10).unwrap();
    assert_eq!((first.data.len(), first.remaining), (10, total - 10));
    assert_eq!((endpoint.unread(), endpoint.first_message_len()), (total - 10, total - 10));
    assert_eq!(endpoint.read(0), Some(PipeRead { data: Vec::new(), remaining: total - 10 }));
    assert_eq!(endpoint.read(total).unwrap().remaining, 0);
    assert_eq!(endpoint.read(10), None);
}

/// The interfaces of a table.
static ALL: [&Interface; 4] =
    [&INTERFACE, &wkssvc::INTERFACE, &crate::lsarpc::INTERFACE, &crate::samr::INTERFACE];

#[test]
fn only_the_pipes_that_there_are() {
    assert_eq!(interface::of_pipe(&ALL, "SRVSVC"), Some(&INTERFACE));
    assert_eq!(interface::of_pipe(&ALL, "wkssvc"), Some(&wkssvc::INTERFACE));
    for name in ["", "srvsvc/", r"\srvsvc", "../srvsvc", "srvsvc\0", "netlogon", "ſrvsvc"] {
        assert_eq!(interface::of_pipe(&ALL, name), None, "{name:?}");
    }
}

#[test]
fn a_client_does_not_believe_everything() {
    let services = fixture();
    let mut wrong = Client::new(SyntaxId::WKSSVC);
    let mut endpoint = End::new(&INTERFACE, 1);
    endpoint.write(&wrong.bind(), &services).unwrap();
    let reply = endpoint.read(usize::MAX).unwrap().data;
    assert_eq!(wrong.handle_bind_reply(&reply), Err(RpcError::NotAccepted));
    let respond = |flags, call_id| {
        Response { alloc_hint: 0, context_id: 0, stub: &[1; 8] }.encode(flags, call_id)
    };
    let cases = [
        ("another call", respond(PduFlags::WHOLE, 7)),
        ("no first fragment", respond(PduFlags::LAST_FRAG, 2)),
        ("two first fragments", respond(PduFlags::FIRST_FRAG, 2).repeat(2)),
        ("more after the last", respond(PduFlags::WHOLE, 2).repeat(2)),
        (
            "a request",
            Request { alloc_hint: 0, context_id: 0, opnum: 1, stub: &[] }
                .encode(PduFlags::WHOLE, 2),
        ),
    ];
    for (what, bytes) in cases {
        let (mut client, _) = bound(&INTERFACE, &services);
        client.call(SHARE_ENUM, &[]);
        assert!(matches!(client.handle_bytes(&bytes), Err(RpcError::Malformed(_))), "{what}");
    }
    let (mut client, _) = bound(&INTERFACE, &services);
    client.call(SHARE_ENUM, &[]);
    let mut flags = PduFlags::FIRST_FRAG;
    let endless = core::iter::repeat_with(|| {
        let fragment =
            Response { alloc_hint: 0, context_id: 0, stub: &[0; 60_000] }.encode(flags, 2);
        flags = PduFlags::EMPTY;
        client.handle_bytes(&fragment)
    });
    let end = endless.take(100).find_map(Result::err);
    assert_eq!(end, Some(RpcError::TooLarge));
}

proptest! {
    #[test]
    fn never_panics(writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..8), is_bound in any::<bool>()) {
        let services = fixture();
        let mut endpoint = if is_bound { bound(&INTERFACE, &services).1 } else { End::new(&wkssvc::INTERFACE, 1) };
        for bytes in writes {
            let _ = endpoint.write(&bytes, &services);
            let _ = endpoint.read(30);
        }
    }

    /// PDUs of good headers and arbitrary rest.
    #[test]
    fn never_panics_behind_the_header(
        pdus in prop::collection::vec((prop::sample::select(&[0u8, 11, 14, 16, 18, 19, 2][..]), 0u8..4, 0u32..3, prop::collection::vec(any::<u8>(), 0..120)), 1..6),
        is_bound in any::<bool>(),
    ) {
        let services = fixture();
        let (mut client, mut endpoint) = bound(&INTERFACE, &services);
        if !is_bound {
            endpoint = End::new(&INTERFACE, 1);
        }
        for (kind, flags, call_id, body) in pdus {
            let mut pdu = Response { alloc_hint: 0, context_id: 0, stub: &body }.encode(PduFlags(flags), call_id);
            pdu[2] = kind;
            let _ = endpoint.write(&pdu, &services);
            let _ = client.handle_bytes(&pdu);
            let _ = Client::new(SyntaxId::SRVSVC).handle_bind_reply(&pdu);
            let _ = endpoint.read(5000);
        }
    }
}
