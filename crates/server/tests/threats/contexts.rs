//! P3 and P4: negotiate contexts and create contexts.

use crate::client::draft::pack;
use crate::client::*;
use frevo_wire::create_context::{CreateContexts, name};
use frevo_wire::negotiate_context::{HashAlgorithm, NegotiateContext, NegotiateContextType};

const PREAUTH: NegotiateContextType = NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES;

fn raw(kind: u16, data: &[u8]) -> NegotiateContext<'_> {
    NegotiateContext::Unknown { kind: NegotiateContextType(kind), data }
}

fn preauth() -> NegotiateContext<'static> {
    NegotiateContext::PreauthIntegrity {
        hash_algorithms: vec![HashAlgorithm::SHA_512],
        salt: &[1; 32],
    }
}

/// Refused with `status`, and nothing settled: a right request may follow.
async fn refused(world: &World, make: impl FnOnce(&Peer) -> Draft, status: Status) {
    let mut peer = world.connect();
    let draft = make(&peer);
    peer.ask(draft, Via::Plain).await.expect(status);
    peer.negotiate(&Offer::default()).await;
    peer.log_on("ann").await;
}

#[test]
fn p3_lists_that_lie_are_invalid() {
    in_world(async |world| {
        let offer = Offer::default();
        let lists: Vec<Vec<NegotiateContext<'_>>> = vec![
            vec![],
            vec![raw(2, &[1, 0, 2, 0])],
            vec![preauth(), preauth()],
            vec![preauth(), raw(2, &[1, 0, 2, 0]), raw(2, &[1, 0, 2, 0])],
            vec![
                preauth(),
                raw(3, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
                raw(3, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
            ],
            vec![
                preauth(),
                raw(7, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
                raw(7, &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
            ],
            vec![preauth(), raw(8, &[1, 0, 1, 0]), raw(8, &[1, 0, 1, 0])],
            // HashAlgorithmCount exceeds the data, or is zero.
            vec![raw(PREAUTH.0, &[2, 0, 0, 0, 1, 0])],
            vec![raw(PREAUTH.0, &[0xFF, 0xFF, 0, 0, 1, 0])],
            vec![raw(PREAUTH.0, &[0, 0, 4, 0, 1, 2, 3, 4])],
            // SaltLength exceeds the data.
            vec![raw(PREAUTH.0, &[1, 0, 0xFF, 0xFF, 1, 0, 7, 7])],
            // The data of the context is missing, or is cut off.
            vec![raw(PREAUTH.0, &[])],
            vec![preauth(), raw(2, &[])],
            vec![preauth(), raw(2, &[3, 0, 1, 0, 2, 0])],
            vec![preauth(), raw(2, &[0xFF, 0xFF, 1, 0])],
            vec![preauth(), raw(8, &[0, 0])],
            vec![preauth(), raw(8, &[2, 0, 1, 0])],
            vec![preauth(), raw(3, &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0])],
            vec![preauth(), raw(5, b"a")],
            vec![preauth(), raw(6, &[1, 0])],
        ];
        for list in lists {
            refused(world, |peer| offer.draft_with(peer.guid, list), Status::INVALID_PARAMETER)
                .await;
        }
    });
}

#[test]
fn p3_offsets_and_counts_that_lie_are_invalid() {
    in_world(async |world| {
        let offer = Offer::default();
        let draft = |peer: &Peer| offer.draft(peer.guid);
        // NegotiateContextOffset (at 92) points to wrong places. The dialects begin at 100 and the
        // contexts at 112.
        for offset in [0_u32, 64, 100, 108, 113, 0x1000, u32::MAX - 7, u32::MAX] {
            refused(
                world,
                |p| draft(p).patch(92, &offset.to_le_bytes()),
                Status::INVALID_PARAMETER,
            )
            .await;
        }
        for count in [4_u16, 65, 65_535] {
            refused(world, |p| draft(p).patch(96, &count.to_le_bytes()), Status::INVALID_PARAMETER)
                .await;
        }
        // DataLength of the first context (at 114) is wrong.
        for length in [0_u16, 5, 0x7FFF, 0xFFFF] {
            refused(
                world,
                |p| draft(p).patch(114, &length.to_le_bytes()),
                Status::INVALID_PARAMETER,
            )
            .await;
        }
        // DialectCount is zero, or too large for the message.
        for count in [0_u16, 0x4000, 0xFFFF] {
            refused(world, |p| draft(p).patch(66, &count.to_le_bytes()), Status::INVALID_PARAMETER)
                .await;
        }
        // Each message that is cut off before its end is refused; every third length is tested.
        let whole = pack(&[offer.draft(world.connect().guid)], Via::Plain).len();
        for length in (64..whole).step_by(3) {
            let mut peer = world.connect();
            let mut request = pack(&[offer.draft(peer.guid)], Via::Plain);
            request.truncate(length);
            peer.send_frame(&request).await;
            peer.reply().await.expect(Status::INVALID_PARAMETER);
        }
    });
}

#[test]
fn p3_unknown_contexts_are_ignored() {
    in_world(async |world| {
        let data = [0xAA; 100];
        let mut list = vec![raw(0, &[]), raw(4, &data), raw(0xFFFF, &data), raw(0x101, &data)];
        list.push(preauth());
        list.resize_with(64, || raw(0x1234, &[7]));
        let mut peer = world.connect();
        let draft = Offer::default().draft_with(peer.guid, list.clone());
        peer.ask(draft, Via::Plain).await.ok();
        // The list has one context more than the limit, so it is refused.
        list.push(raw(9, &[]));
        let mut peer = world.connect();
        let draft = Offer::default().draft_with(peer.guid, list);
        peer.ask(draft, Via::Plain).await.expect(Status::INVALID_PARAMETER);
    });
}

#[test]
fn p3_no_common_hash_has_its_own_status() {
    in_world(async |world| {
        let list = vec![raw(PREAUTH.0, &[1, 0, 1, 0, 2, 0, 7])];
        let make = |peer: &Peer| Offer::default().draft_with(peer.guid, list);
        refused(world, make, Status::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP).await;
    });
}

/// A list of create contexts with bytes overwritten.
fn patched(contexts: &[(&[u8], &[u8])], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut list = CreateContexts::build(contexts).as_bytes().to_vec();
    list[at..at + bytes.len()].copy_from_slice(bytes);
    list
}

#[test]
fn p4_lists_that_lie_are_invalid() {
    in_world(async |world| {
        let two: &[(&[u8], &[u8])] = &[(name::MXAC, &[]), (name::ALSI, &[0; 8])];
        let one: &[(&[u8], &[u8])] = &[(name::ALSI, &[0; 8])];
        let mut lists = Vec::new();
        // The field Next of a context is not aligned, points into the context's own header, or
        // exceeds the list.
        for next in [1_u32, 4, 8, 20, 28, 0x100, 0x8000_0000, u32::MAX - 7, u32::MAX] {
            lists.push(patched(two, 0, &next.to_le_bytes()));
        }
        for offset in [0_u16, 8, 15, 0x50, 0xFFFF] {
            lists.push(patched(one, 4, &offset.to_le_bytes()));
        }
        for length in [0_u16, 3, 0x40, 0xFFFF] {
            lists.push(patched(one, 6, &length.to_le_bytes()));
        }
        for offset in [4_u16, 15, 0x28, 0xFFFF] {
            lists.push(patched(one, 10, &offset.to_le_bytes()));
        }
        for length in [9_u32, 0x100, 0x7FFF_FFFF, u32::MAX] {
            lists.push(patched(one, 12, &length.to_le_bytes()));
        }
        // Each context gets data of lengths that it cannot have, so the CREATE is refused.
        for (name, lengths) in [
            (name::DHNC, &[0, 15, 17][..]),
            (name::RQLS, &[0, 31, 33, 51, 53]),
            (name::DH2Q, &[31, 33]),
            (name::DH2C, &[35, 37]),
            (name::ALSI, &[0, 7, 9]),
            (name::TWRP, &[7, 9]),
            (name::MXAC, &[1, 7, 9]),
            (name::APP_INSTANCE_ID, &[0, 19, 21]),
        ] {
            for length in lengths {
                lists.push(CreateContexts::build(&[(name, &vec![0; *length])]).as_bytes().to_vec());
            }
        }
        // Two contexts with the same name are refused, even if the name is unknown.
        lists.push(CreateContexts::build(&[one[0], one[0]]).as_bytes().to_vec());
        lists.push(CreateContexts::build(&[(b"abcd", &[]), (b"abcd", &[])]).as_bytes().to_vec());
        // The list has one context more than the limit.
        let names: Vec<_> = (0..65_u32).map(|i| (0x6161_0000 + i).to_be_bytes()).collect();
        let many: Vec<(&[u8], &[u8])> = names.iter().map(|n| (&n[..], &[][..])).collect();
        lists.push(CreateContexts::build(&many).as_bytes().to_vec());
        // The list is shorter than the header of a context.
        lists.extend((1..16).map(|length| vec![0; length]));

        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for contexts in lists {
            let want = Want { contexts: contexts.clone(), ..Want::file("p4") };
            let reply = peer.create(&mount, &want).await;
            assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{contexts:02x?}");
            assert!(!world.path("p4").exists(), "made for {contexts:02x?}");
        }
    });
}

#[test]
fn p4_the_lists_place_is_checked() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let contexts = CreateContexts::build(&[(name::ALSI, &[0; 8])]).as_bytes().to_vec();
        let draft = Want { contexts, ..Want::file("p4") }.draft();
        let end = u32::try_from(64 + draft.body.len()).unwrap();
        for offset in [0_u32, 63, 119, end - 8, end, u32::MAX] {
            let draft = draft.clone().patch(112, &offset.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        for length in [1_u32, 33, u32::MAX] {
            let draft = draft.clone().patch(116, &length.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        // NameOffset (at 108) or NameLength (at 110) is wrong, so the CREATE is refused and makes
        // no file.
        for (at, value) in [(108, 0_u16), (108, 119), (108, 0xFFFF), (110, 3), (110, 0xFFFE)] {
            let draft = draft.clone().patch(at, &value.to_le_bytes());
            peer.on(&mount, draft).await.expect(Status::INVALID_PARAMETER);
        }
        assert!(!world.path("p4").exists());
    });
}

#[test]
fn p4_unknown_names_are_ignored() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let names: Vec<_> = (0..64_u32).map(|i| (0x6161_0000 + i).to_be_bytes()).collect();
        let many: Vec<(&[u8], &[u8])> = names.iter().map(|n| (&n[..], &[0xAA; 33][..])).collect();
        let contexts = CreateContexts::build(&many).as_bytes().to_vec();
        let file = peer.open_file(&mount, &Want { contexts, ..Want::file("p4") }).await;
        peer.close(&mount, file).await;
        let long = [b'n'; 300];
        let contexts = CreateContexts::build(&[(&long, &[])]).as_bytes().to_vec();
        peer.open_file(&mount, &Want { contexts, ..Want::file("p4") }).await;
    });
}

/// MS-SMB2 3.3.5.9.6 to .12: which contexts of durable handles go together, and
/// that nothing is there to come back to.
#[test]
fn p4_versions_of_durable_handles_are_not_mixed() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let request: (&[u8], &[u8]) = (name::DHNQ, &[0; 16]);
        let reconnect: (&[u8], &[u8]) = (name::DHNC, &[1; 16]);
        let request_v2: (&[u8], &[u8]) = (name::DH2Q, &[0; 32]);
        let reconnect_v2: (&[u8], &[u8]) = (name::DH2C, &[0; 36]);
        for (contexts, status) in [
            (vec![request, request_v2], Status::INVALID_PARAMETER),
            (vec![request, reconnect_v2], Status::INVALID_PARAMETER),
            (vec![reconnect, request_v2], Status::INVALID_PARAMETER),
            (vec![reconnect, reconnect_v2], Status::INVALID_PARAMETER),
            (vec![request_v2, reconnect_v2], Status::INVALID_PARAMETER),
            (vec![request, reconnect], Status::OBJECT_NAME_NOT_FOUND),
            (vec![reconnect], Status::OBJECT_NAME_NOT_FOUND),
            (vec![reconnect_v2], Status::OBJECT_NAME_NOT_FOUND),
        ] {
            let contexts = CreateContexts::build(&contexts).as_bytes().to_vec();
            let reply = peer.create(&mount, &Want { contexts, ..Want::file("p4") }).await;
            assert_eq!(reply.status(), status);
            assert!(!world.path("p4").exists());
        }
        for context in [request, request_v2] {
            let contexts = CreateContexts::build(&[context]).as_bytes().to_vec();
            peer.create(&mount, &Want { contexts, ..Want::file("p4") }).await.ok();
        }
    });
}

/// An extended attribute list that lies makes no file either.
#[test]
fn p4_ea_lists_that_lie_make_nothing() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // The list has one extended attribute: NextEntryOffset (0 to 3), Flags (4), EaNameLength
        // (5), EaValueLength (6), then name, NUL and value.
        let good = [0, 0, 0, 0, 0, 1, 2, 0, b'a', 0, b'v', b'w'];
        let change = |at: usize, to: u8| {
            let mut list = good.to_vec();
            list[at] = to;
            list
        };
        for (list, status) in [
            (change(0, 1), Status::EA_LIST_INCONSISTENT),
            (change(0, 12), Status::EA_LIST_INCONSISTENT),
            (change(3, 0x80), Status::EA_LIST_INCONSISTENT),
            (change(5, 200), Status::EA_LIST_INCONSISTENT),
            (change(7, 0xFF), Status::EA_LIST_INCONSISTENT),
            (change(9, b'x'), Status::EA_LIST_INCONSISTENT),
            (good[..7].to_vec(), Status::EA_LIST_INCONSISTENT),
            (change(8, b'*'), Status::INVALID_EA_NAME),
        ] {
            let contexts = CreateContexts::build(&[(name::EXTA, &list)]).as_bytes().to_vec();
            let reply = peer.create(&mount, &Want { contexts, ..Want::file("p4") }).await;
            assert_eq!(reply.status(), status, "{list:02x?}");
            assert!(!world.path("p4").exists(), "made for {list:02x?}");
        }
    });
}
