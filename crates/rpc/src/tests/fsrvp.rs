//! The calls of MS-FSRVP: bytes, and hostile requests. `sets` has the state of a server.

mod sets;

use super::hex;
use crate::fsrvp::*;
use crate::{FaultStatus, SyntaxId, WinError};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use frevo_wire::dtyp::{FileTime, Guid};
use proptest::prelude::*;

fn guid(byte: u8) -> Guid {
    Guid([byte; 16])
}

#[test]
fn the_interface_has_the_uuid_of_the_specification() {
    let uuid = hex("3c65e0a8 4427 8943 a61d 7373df8b2292");
    assert_eq!(SyntaxId::FSRVP.uuid.0[..], uuid);
    assert_eq!(SyntaxId::FSRVP_3.uuid.0[..], uuid);
    assert_eq!((SyntaxId::FSRVP.version, SyntaxId::FSRVP_3.version), (1, 3));
    assert!(INTERFACE != INTERFACE_3 && INTERFACE.pipes == INTERFACE_3.pipes);
    assert_eq!(WinError::SUCCESS.0, HResult::ZERO.0);
}

/// The layout of NDR by hand: references as arguments have no referent, pointers in them have one.
#[test]
fn calls_have_the_bytes_of_the_idl() {
    let share = r"\\b\s".to_string();
    let text = "06000000 00000000 06000000 5c005c0062005c0073000000";
    let set = "05050505 05050505 05050505 05050505";
    let copy = "06060606 06060606 06060606 06060606";
    let mapping =
        Request::GetShareMapping { copy: guid(6), set: guid(5), share: share.clone(), level: 1 };
    let rows = [
        (Request::SetContext(Context(0x0040_0010)), "10004000".to_string()),
        (Request::Start { client_set: guid(5) }, set.to_string()),
        (
            Request::Add { client_copy: guid(6), set: guid(5), share: share.clone() },
            [copy, set, text].concat(),
        ),
        (Request::Commit { set: guid(5), timeout_ms: 180_000 }, [set, "20bf0200"].concat()),
        (Request::IsPathSupported { share: share.clone() }, text.to_string()),
        (mapping.clone(), [copy, set, text, "01000000"].concat()),
        (
            Request::DeleteShareMapping { set: guid(5), copy: guid(6), share },
            [set, copy, text].concat(),
        ),
    ];
    for (request, bytes) in rows {
        assert_eq!(request.encode(), hex(&bytes), "{request:?}");
        assert_eq!(Request::parse(request.opnum(), &hex(&bytes)), Ok(request));
    }
    let reply = Ok(Reply::Mapping(ShareMapping {
        set: guid(5),
        copy: guid(6),
        share_unc: r"\\b\s".to_string(),
        shadow_copy_share: Some("s".to_string()),
        created: FileTime(0x0102_0304_0506_0708),
    }));
    let bytes = [
        "01000000 00000200",
        set,
        copy,
        "04000200 08000200 0807060504030201",
        text,
        "02000000 00000000 02000000 73000000",
        "00000000",
    ];
    assert_eq!(Reply::encode(&mapping, &reply), hex(&bytes.concat()));
}

/// Samba's clients send further bytes with two of the calls.
#[test]
fn bytes_after_the_arguments_are_ignored() {
    for request in [
        Request::GetSupportedVersion,
        Request::IsPathSupported { share: r"\\box\files".to_string() },
    ] {
        let mut stub = request.encode();
        stub.extend([0x5A; 52]);
        assert_eq!(Request::parse(request.opnum(), &stub), Ok(request));
    }
    assert_eq!(Request::parse(13, &[]), Err(FaultStatus::OP_RNG_ERROR));
    assert_eq!(Request::parse(SET_CONTEXT, &[1, 2]), Err(FaultStatus::NDR));
}

#[test]
fn contexts_are_those_of_the_specification() {
    for valid in [0, 0x10, 0x19, 0x09] {
        for recovery in [0, 0x2, 0x0040_0000] {
            assert!(Context(valid | recovery).is_valid(), "{valid:#x} {recovery:#x}");
        }
        assert!(!Context(valid | 0x0040_0002).is_valid());
    }
    for invalid in [0x1, 0x8, 0x11, 0x18, 0x0400_0000, u32::MAX] {
        assert!(!Context(invalid).is_valid(), "{invalid:#x}");
    }
}

#[test]
fn names_in_unc_format_have_a_share() {
    for (unc, share) in [(r"\\box\files", "files"), (r"\\box\files\", "files"), (r"\\a\b$", "b$")] {
        assert_eq!(share_of(unc), Some(share));
    }
    for bad in
        ["", "files", r"\\box", r"\\box\", r"\\\files", r"\\box\a\b", r"\\box\files\\", r"\box\a"]
    {
        assert_eq!(share_of(bad), None, "{bad}");
    }
    let name = |length: usize| [r"\\box\", &"x".repeat(length - 6)].concat();
    let most = crate::limits::MAX_SHADOW_COPY_NAME;
    assert!(share_of(&name(most)).is_some() && share_of(&name(most + 1)).is_none());
}

fn guids() -> impl Strategy<Value = Guid> {
    any::<[u8; 16]>().prop_map(Guid)
}

fn requests() -> impl Strategy<Value = Request> {
    (0..13_u16, guids(), guids(), "[^\0]{0,20}", any::<u32>()).prop_map(
        |(opnum, set, other, share, number)| match opnum {
            0 => Request::GetSupportedVersion,
            1 => Request::SetContext(Context(number)),
            2 => Request::Start { client_set: set },
            3 => Request::Add { client_copy: other, set, share },
            4 => Request::Commit { set, timeout_ms: number },
            5 => Request::Expose { set, timeout_ms: number },
            6 => Request::RecoveryComplete { set },
            7 => Request::Abort { set },
            8 => Request::IsPathSupported { share },
            9 => Request::IsPathShadowCopied { share },
            10 => Request::GetShareMapping { copy: other, set, share, level: number },
            11 => Request::DeleteShareMapping { set, copy: other, share },
            _ => Request::Prepare { set, timeout_ms: number },
        },
    )
}

fn reply_to(request: &Request, number: u32) -> Reply {
    let text = |number: u32| number.to_string();
    match request.opnum() {
        GET_SUPPORTED_VERSION => Reply::Version(number),
        START_SHADOW_COPY_SET | ADD_TO_SHADOW_COPY_SET => Reply::Id(guid(7)),
        IS_PATH_SUPPORTED => Reply::Supported { owner: text(number) },
        IS_PATH_SHADOW_COPIED => {
            Reply::ShadowCopied { is_present: number.is_multiple_of(2), compatibility: number }
        }
        GET_SHARE_MAPPING => Reply::Mapping(ShareMapping {
            set: guid(1),
            copy: guid(2),
            share_unc: text(number),
            shadow_copy_share: number.is_multiple_of(2).then(|| text(number)),
            created: FileTime(u64::from(number)),
        }),
        _ => Reply::Done,
    }
}

proptest! {
    #[test]
    fn calls_come_back(request in requests(), number: u32, failure in 1..u32::MAX) {
        prop_assert_eq!(&Request::parse(request.opnum(), &request.encode()).unwrap(), &request);
        let request = match request {
            Request::GetShareMapping { copy, set, share, .. } => {
                Request::GetShareMapping { copy, set, share, level: 1 }
            }
            other => other,
        };
        for reply in [Ok(reply_to(&request, number)), Err(HResult(failure))] {
            let stub = Reply::encode(&request, &reply);
            prop_assert_eq!(Reply::parse(&request, &stub).unwrap(), reply);
        }
    }

    #[test]
    fn any_bytes_are_a_call_or_a_fault(opnum in 0..16_u16, stub in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(request) = Request::parse(opnum, &stub) {
            prop_assert_eq!(request.opnum(), opnum);
            let _ = Reply::parse(&request, &stub);
        }
    }
}

/// A level that there is not has no pointer in its reply.
#[test]
fn a_reply_of_another_level_is_the_level_and_the_status() {
    let share = String::new();
    let request = Request::GetShareMapping { copy: guid(1), set: guid(2), share, level: 7 };
    let stub = Reply::encode(&request, &Err(HResult::INVALID_ARGUMENT));
    let mut expected: Vec<u8> = vec![7, 0, 0, 0];
    expected.extend(0x8007_0057_u32.to_le_bytes());
    assert_eq!(stub, expected);
}
