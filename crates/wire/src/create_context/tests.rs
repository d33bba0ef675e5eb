use super::{
    AaplQuery, AaplQueryResponse, AaplRequested, AaplServerCapabilities, AaplVolumeCapabilities,
    AppInstanceVersion, CreateContext, CreateContexts, DurableHandleFlags, DurableReconnectV2,
    DurableRequestV2, DurableResponseV2, Lease, LeaseFlags, LeaseKey, LeaseState, LeaseV2,
    MaximalAccess, OnDiskId, PosixResponse, ResponseContext, name,
};
use crate::codec::Writer;
use crate::command::ioctl::operation::OperationId;
use crate::dtyp::{AccessMask, FileTime, Guid};
use crate::file_id::FileId;
use crate::limits::MAX_CREATE_CONTEXTS;
use crate::status::Status;
use crate::utf16::Utf16;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const LEASE: Lease = Lease {
    lease_key: LeaseKey([0x11; 16]),
    lease_state: LeaseState(7),
    flags: LeaseFlags::PARENT_LEASE_KEY_SET,
};

const LEASE_V2: LeaseV2 =
    LeaseV2 { lease: LEASE, parent_lease_key: LeaseKey([0x22; 16]), epoch: 0x1234 };

const FILE_ID: FileId = FileId { persistent: 1, volatile: 2 };

fn requests() -> Vec<CreateContext<'static>> {
    vec![
        CreateContext::ExtendedAttributes(&[1, 2, 3]),
        CreateContext::SecurityDescriptor(&[4; 20]),
        CreateContext::DurableRequest,
        CreateContext::DurableReconnect(FILE_ID),
        CreateContext::AllocationSize(0x1_0000_0001),
        CreateContext::QueryMaximalAccess(None),
        CreateContext::QueryMaximalAccess(Some(FileTime(5))),
        CreateContext::Timewarp(FileTime(6)),
        CreateContext::QueryOnDiskId,
        CreateContext::Lease(LEASE),
        CreateContext::LeaseV2(LEASE_V2),
        CreateContext::DurableRequestV2(DurableRequestV2 {
            timeout: 60_000,
            flags: DurableHandleFlags::PERSISTENT,
            create_guid: Guid([7; 16]),
        }),
        CreateContext::DurableReconnectV2(DurableReconnectV2 {
            file_id: FILE_ID,
            create_guid: Guid([8; 16]),
            flags: DurableHandleFlags::EMPTY,
        }),
        CreateContext::AppInstanceId(Guid([9; 16])),
        CreateContext::AppInstanceVersion(AppInstanceVersion { high: 1, low: 2 }),
        CreateContext::Svhdx(&[10; 36]),
        CreateContext::Posix { mode: 0o644 },
        CreateContext::Operation(OperationId { slot: 1, sequence: 2 }),
        CreateContext::Aapl(&[11; 24]),
        CreateContext::Unknown { name: b"what", data: &[12] },
    ]
}

fn responses() -> Vec<ResponseContext<'static>> {
    vec![
        ResponseContext::Durable,
        ResponseContext::MaximalAccess(MaximalAccess {
            query_status: Status(0),
            maximal_access: AccessMask::FILE_ALL,
        }),
        ResponseContext::OnDiskId(OnDiskId { disk_file_id: 1, volume_id: 2 }),
        ResponseContext::Lease(LEASE),
        ResponseContext::LeaseV2(LEASE_V2),
        ResponseContext::DurableV2(DurableResponseV2 {
            timeout: 60_000,
            flags: DurableHandleFlags::PERSISTENT,
        }),
        ResponseContext::Svhdx(&[3; 40]),
        ResponseContext::Posix(PosixResponse {
            nlink: 1,
            reparse_tag: 0,
            mode: 0o755,
            owner_sid: &[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 0xE8, 3, 0, 0],
            group_sid: &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0],
        }),
        ResponseContext::Aapl(&[4; 16]),
        ResponseContext::Unknown { name: b"what", data: &[] },
    ]
}

#[test]
fn typed_contexts_survive() {
    let list = CreateContexts::from_requests(&requests());
    let parsed = CreateContexts::parse(list.as_bytes()).unwrap();
    assert_eq!(parsed.requests().map(Result::unwrap).collect::<Vec<_>>(), requests());
    let list = CreateContexts::from_responses(&responses());
    let parsed = CreateContexts::parse(list.as_bytes()).unwrap();
    assert_eq!(parsed.responses().map(Result::unwrap).collect::<Vec<_>>(), responses());
}

/// Lengths of the specification: one byte less and one more are refused.
#[test]
fn lengths_are_exact() {
    let lengths = [
        (name::DHNQ, 16),
        (name::DHNC, 16),
        (name::ALSI, 8),
        (name::MXAC, 8),
        (name::TWRP, 8),
        (name::RQLS, 32),
        (name::RQLS, 52),
        (name::DH2Q, 32),
        (name::DH2C, 36),
        (name::POSIX, 4),
    ];
    for (name, length) in lengths {
        let data = vec![0; length + 1];
        assert!(CreateContext::parse_typed(name, &data[..length]).is_ok(), "{name:?}");
        assert!(CreateContext::parse_typed(name, &data[..length - 1]).is_err(), "{name:?}");
        assert!(CreateContext::parse_typed(name, &data).is_err(), "{name:?}");
    }
    // The data of these contexts begins with its StructureSize, which must be right.
    for (name, length) in [(name::APP_INSTANCE_ID, 20), (name::APP_INSTANCE_VERSION, 24)] {
        let mut data = vec![0; length + 1];
        assert!(CreateContext::parse_typed(name, &data[..length]).is_err(), "{name:?}");
        data[0] = u8::try_from(length).unwrap();
        assert!(CreateContext::parse_typed(name, &data[..length]).is_ok(), "{name:?}");
        assert!(CreateContext::parse_typed(name, &data[..length - 1]).is_err(), "{name:?}");
        assert!(CreateContext::parse_typed(name, &data).is_err(), "{name:?}");
    }
}

/// The layout of 2.2.13.2, by its bytes.
#[test]
fn layout() {
    let list = CreateContexts::build(&[(b"MxAc", &[]), (b"QFid", &[0xAB])]);
    let expected = [
        24, 0, 0, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'M', b'x', b'A', b'c', 0, 0, 0,
        0, //
        0, 0, 0, 0, 16, 0, 4, 0, 0, 0, 24, 0, 1, 0, 0, 0, b'Q', b'F', b'i', b'd', 0, 0, 0, 0, 0xAB,
    ];
    assert_eq!(list.as_bytes(), expected);
    assert_eq!(list.find(b"QFid"), Some(&[0xAB][..]));
    assert_eq!(list.find(b"ExtA"), None);
    assert_eq!(list.duplicate(), None);
}

#[test]
fn duplicates_are_found() {
    let list = CreateContexts::build(&[(b"MxAc", &[]), (b"QFid", &[]), (b"MxAc", &[1])]);
    assert_eq!(list.duplicate(), Some(&b"MxAc"[..]));
    assert_eq!(list.find(b"MxAc"), Some(&[][..]));
}

#[test]
fn chains_cannot_loop_leave_or_overlap() {
    let list = CreateContexts::build(&[(b"MxAc", &[]), (b"QFid", &[0xAB; 8])]);
    let good = list.as_bytes();
    // Each pair is an offset and the byte written there: in the first context's Next (0),
    // NameOffset (4) or NameLength (6), or in the second one's Next (24), DataOffset (34) or
    // DataLength (36). With this byte the field points back, to an unaligned place, to its own
    // header or out of its context.
    let faults = [
        (0, 8),
        (0, 4),
        (0, 25),
        (0, 16),
        (0, 56),
        (3, 0xFF),
        (4, 0),
        (4, 8),
        (4, 17),
        (4, 24),
        (6, 3),
        (6, 0),
        (6, 9),
        (7, 0x80),
        (24, 40),
        (34, 0),
        (34, 16),
        (34, 25),
        (34, 32),
        (36, 9),
        (39, 0xFF),
    ];
    for (at, value) in faults {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        assert!(CreateContexts::parse(&bytes).is_err(), "{at} {value}");
    }
    for cut in 1..good.len() {
        // The first context's Next points to the second one, so the list is refused wherever it is
        // cut.
        assert!(CreateContexts::parse(&good[..cut]).is_err(), "{cut}");
    }
    assert!(CreateContexts::parse(&[]).unwrap().is_empty());
    // The first context has no data, so its DataOffset has no meaning.
    let mut bytes = good.to_vec();
    bytes[10..12].fill(0xFF);
    assert!(CreateContexts::parse(&bytes).is_ok());
}

#[test]
fn count_limit() {
    for (count, good) in [
        (MAX_CREATE_CONTEXTS - 1, true),
        (MAX_CREATE_CONTEXTS, true),
        (MAX_CREATE_CONTEXTS + 1, false),
    ] {
        let list = CreateContexts::build(&vec![(&b"MxAc"[..], &[][..]); count]);
        assert_eq!(CreateContexts::parse(list.as_bytes()).is_ok(), good, "{count}");
    }
}

#[test]
fn sids_of_the_posix_answer_stay_inside() {
    let mut data = vec![0; 12];
    data.extend([1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]);
    assert!(ResponseContext::parse_typed(name::POSIX, &data).is_err());
    data.extend([1, 16]);
    data.extend([0; 70]);
    assert!(ResponseContext::parse_typed(name::POSIX, &data).is_err());
    data[25] = 15;
    assert!(ResponseContext::parse_typed(name::POSIX, &data).is_ok());
}

fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn aapl_query_by_its_bytes() {
    // The Finder of macOS asks for everything (7) and announces all client capabilities (7).
    let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    let query = AaplQuery::parse(&bytes).unwrap().unwrap();
    assert_eq!(query.requested, AaplRequested(7));
    assert_eq!(query.client_capabilities, AaplServerCapabilities(7));
    assert_eq!(encoded(|w| query.encode(w)), bytes);
    assert!(AaplQuery::parse(&bytes[..23]).is_err());
    assert_eq!(AaplQuery::parse(&[2, 0, 0, 0]), Ok(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn aapl_answers_survive(server: Option<u64>, volume: Option<u64>, model: Option<u16>) {
        let answer = AaplQueryResponse {
            server_capabilities: server.map(AaplServerCapabilities),
            volume_capabilities: volume.map(AaplVolumeCapabilities),
            model: model.map(|unit| Utf16::from_units([unit, unit])),
        };
        let bytes = encoded(|w| answer.encode(w));
        prop_assert_eq!(AaplQueryResponse::parse(&bytes), Ok(Some(answer)));
        prop_assert!(AaplQueryResponse::parse(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn lists_survive(
        list in vec((vec(any::<u8>(), 4..20), vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let list: Vec<_> = list.iter().map(|(name, data)| (&name[..], &data[..])).collect();
        let built = CreateContexts::build(&list);
        let parsed = CreateContexts::parse(built.as_bytes()).unwrap();
        prop_assert_eq!(parsed.iter().collect::<Vec<_>>(), list);
    }

    #[test]
    fn no_list_panics_and_checked_lists_iterate_in_full(
        mut bytes in vec(0u8..40, 0..200), names in vec(any::<u8>(), 0..100),
        edits in vec((any::<prop::sample::Index>(), 0u8..64), 0..4),
    ) {
        let mut good = CreateContexts::from_requests(&requests()).as_bytes().to_vec();
        for (at, value) in edits {
            let at = at.index(good.len());
            good[at] = value;
        }
        if let Some(next) = bytes.get_mut(..4) {
            next.copy_from_slice(&[32, 0, 0, 0]);
        }
        for bytes in [&bytes, &good] {
            if let Ok(list) = CreateContexts::parse(bytes) {
                let sum: usize = list.iter().map(|(name, data)| name.len() + data.len()).sum();
                prop_assert!(sum <= bytes.len());
                prop_assert_eq!(list.iter().count() == 0, bytes.is_empty());
                list.requests().for_each(|it| _ = it);
                list.responses().for_each(|it| _ = it);
            }
        }
        for name in [name::POSIX, name::AAPL, name::DH2C, name::RQLS, name::QFID, name::MXAC] {
            let _ = CreateContext::parse_typed(name, &names);
            let _ = ResponseContext::parse_typed(name, &names);
        }
        let _ = AaplQuery::parse(&names);
        let _ = AaplQueryResponse::parse(&names);
    }
}
