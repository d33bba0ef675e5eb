//! The calls, from request to answer.

use super::call;
use super::*;
use crate::client::RpcError;
use crate::srvsvc::*;
use crate::wkssvc::{WKSTA_GET_INFO, WKSTA_USER_ENUM, WkstaGetInfo};
use crate::{FaultStatus, WinError};
use alloc::string::String;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use proptest::prelude::*;

const SERVER: &str = r"\\frevo";

fn enumerate(
    services: &Fixture,
    level: u32,
    max_len: u32,
    resume: Option<u32>,
) -> ShareEnumReply<Vec<ShareInfo>> {
    let mut ends = bound(&INTERFACE, services);
    let stub = ShareEnum { level, max_len, resume }.encode(SERVER);
    let answer = call(&mut ends, SHARE_ENUM, &stub, services, usize::MAX).unwrap();
    ShareEnumReply::parse(&answer, level).unwrap()
}

#[test]
fn share_enum_at_every_level() {
    let mut services = fixture();
    services.shares[0].security_descriptor = Some(vec![1, 2, 3]);
    services.shares[0].current_uses = 7;
    for level in [0, 1, 2, 501, 502, 503] {
        let reply = enumerate(&services, level, MAX_PREFERRED_LENGTH, Some(0));
        assert_eq!(
            (reply.status, reply.total, reply.resume),
            (WinError::SUCCESS, 2, Some(0)),
            "{level}"
        );
        for (told, share) in reply.shares.iter().zip(&services.shares) {
            let has = |levels: &[u32]| levels.contains(&level);
            let expected = ShareInfo {
                name: share.name.clone(),
                kind: if has(&[0]) { ShareType::DISKTREE } else { share.kind },
                remark: if has(&[0]) { String::new() } else { share.remark.clone() },
                max_uses: u32::MAX,
                current_uses: if has(&[2, 502, 503]) { share.current_uses } else { 0 },
                path: if has(&[2, 502, 503]) { share.path.clone() } else { String::new() },
                flags: if has(&[501]) { share.flags } else { 0 },
                security_descriptor: share.security_descriptor.clone().filter(|_| has(&[502, 503])),
            };
            assert_eq!(*told, expected, "level {level}");
        }
        assert_eq!(reply.shares.len(), 2);
    }
}

#[test]
fn sticky_shares_are_those_that_are_configured() {
    let services = fixture();
    let mut ends = bound(&INTERFACE, &services);
    let stub = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None }.encode(SERVER);
    let answer = call(&mut ends, SHARE_ENUM_STICKY, &stub, &services, 1000).unwrap();
    let reply = ShareEnumReply::parse(&answer, 1).unwrap();
    assert_eq!((reply.shares.len(), reply.shares[0].name.as_str()), (1, "data"));
}

#[test]
fn levels_that_are_not_for_everyone() {
    let services = Fixture { is_administrator: false, ..fixture() };
    for (level, status) in [
        (1, WinError::SUCCESS),
        (501, WinError::SUCCESS),
        (2, WinError::ACCESS_DENIED),
        (502, WinError::ACCESS_DENIED),
        (503, WinError::ACCESS_DENIED),
        (7, WinError::INVALID_LEVEL),
    ] {
        let reply = enumerate(&services, level, MAX_PREFERRED_LENGTH, None);
        assert_eq!((reply.status, reply.resume), (status, None), "level {level}");
        assert_eq!(reply.shares.is_empty(), status != WinError::SUCCESS);
    }
}

#[test]
fn enumeration_resumes_where_the_preferred_length_stopped() {
    let services = Fixture {
        shares: (0..10)
            .map(|n| share(&alloc::format!("share{n}"), ShareType::DISKTREE, ""))
            .collect(),
        is_administrator: false,
        hides_accounts: false,
        manages: false,
    };
    // An entry of level 0 takes 18 bytes: a pointer of 4 and "shareN" in 14. So four entries fit
    // into each reply.
    let (mut names, mut resume) = (Vec::new(), 0);
    loop {
        let reply = enumerate(&services, 0, 18 * 4 + 17, Some(resume));
        assert_eq!(reply.total as usize, 10 - names.len());
        names.extend(reply.shares.into_iter().map(|share| share.name));
        if reply.status == WinError::SUCCESS {
            break;
        }
        assert_eq!((reply.status, reply.resume), (WinError::MORE_DATA, Some(names.len() as u32)));
        resume = names.len() as u32;
    }
    assert_eq!(names, services.shares.iter().map(|share| share.name.clone()).collect::<Vec<_>>());
    for (length, status, told) in [
        (17, WinError::BUF_TOO_SMALL, 0),
        (18, WinError::MORE_DATA, 1),
        (180, WinError::SUCCESS, 10),
    ] {
        let reply = enumerate(&services, 0, length, None);
        assert_eq!((reply.status, reply.shares.len()), (status, told), "{length} bytes");
    }
    let beyond = enumerate(&services, 0, MAX_PREFERRED_LENGTH, Some(10));
    assert_eq!((beyond.status, beyond.shares.len(), beyond.total), (WinError::SUCCESS, 0, 0));
}

#[test]
fn an_answer_longer_than_a_fragment_comes_whole() {
    let shares: Vec<_> =
        (0..2000).map(|n| share(&alloc::format!("s{n}"), ShareType::DISKTREE, "remark")).collect();
    let services =
        Fixture { shares, is_administrator: true, hides_accounts: false, manages: false };
    let mut ends = bound(&INTERFACE, &services);
    let stub = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: None }.encode(SERVER);
    for piece in [usize::MAX, 1024, 4281, 17] {
        let answer = call(&mut ends, SHARE_ENUM, &stub, &services, piece).unwrap();
        let reply = ShareEnumReply::parse(&answer, 1).unwrap();
        assert_eq!(reply.shares.len(), 2000);
        assert_eq!(reply.shares[1999].name, "s1999");
    }
}

fn get_info(services: &Fixture, name: &str, level: u32) -> Result<ShareInfo, WinError> {
    let mut ends = bound(&INTERFACE, services);
    let stub = ShareGetInfo { name, level }.encode(SERVER);
    let answer = call(&mut ends, SHARE_GET_INFO, &stub, services, 100).unwrap();
    parse_share_info(&answer, level).unwrap()
}

#[test]
fn share_get_info() {
    let services = fixture();
    for level in [0, 1, 2, 501, 502, 503] {
        assert_eq!(get_info(&services, "DATA", level).unwrap().name, "data", "level {level}");
    }
    assert_eq!(get_info(&services, "data", 1005).unwrap().flags, 0x30);
    assert_eq!(get_info(&services, "nothing", 1), Err(WinError::NET_NAME_NOT_FOUND));
    assert_eq!(get_info(&services, "data", 1004), Err(WinError::INVALID_LEVEL));
    let guest = Fixture { is_administrator: false, ..services };
    assert_eq!(get_info(&guest, "data", 502), Err(WinError::ACCESS_DENIED));
    assert_eq!(
        get_info(&guest, "absent", 502),
        Err(WinError::ACCESS_DENIED),
        "absent and forbidden are alike"
    );
}

#[test]
fn server_get_info() {
    let services = fixture();
    let mut ends = bound(&INTERFACE, &services);
    let mut ask = |level| {
        let request = ServerGetInfo { level };
        let answer =
            call(&mut ends, SERVER_GET_INFO, &request.encode(SERVER), &services, 1000).unwrap();
        request.parse_reply(&answer).unwrap()
    };
    let told = ask(102).unwrap();
    assert_eq!(
        (told.name.as_str(), told.comment.as_str(), told.max_users),
        ("FREVO", "files", 100)
    );
    assert_eq!((told.version_major, told.kind), (10, services.server().kind));
    assert_eq!(ask(101).unwrap().comment, "files");
    assert_eq!(ask(100).unwrap().name, "FREVO");
    assert_eq!(ask(103), Err(WinError::INVALID_LEVEL));
}

/// Tests that each level is answered as the union has it: an arm is a pointer, also without data.
#[test]
fn server_get_info_has_the_form_of_its_level() {
    let mut services = fixture();
    let ask = |services: &Fixture, level| {
        let stub = ServerGetInfo { level }.encode(SERVER);
        call(&mut bound(&INTERFACE, services), SERVER_GET_INFO, &stub, services, 1000).unwrap()
    };
    let words = |answer: &[u8]| -> Vec<u32> {
        answer.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    };
    for (level, status) in [(502, 5), (503, 5), (103, 124), (599, 124), (1005, 124), (1556, 124)] {
        assert_eq!(words(&ask(&services, level)), [level, 0, status], "{level}");
    }
    for level in [0, 104, 504, 1017 + 2, 1537, 1551, 1557] {
        assert_eq!(words(&ask(&services, level)), [level, 124], "{level}");
    }
    services.manages = true;
    let told = words(&ask(&services, 502));
    // The reply consists of level, pointer, 18 fields and the status.
    assert_eq!((told.len(), told[0], told.last()), (21, 502, Some(&0)));
    assert_eq!(told[2..6], [16_384, 1, 2_048, 65_535]);
    assert_eq!(told[11..13], [64, 1_024]);
    let answer = ask(&services, 503);
    let mut r = NdrReader::new(&answer);
    assert_eq!(r.u32("").unwrap(), 503);
    assert!(r.pointer("").unwrap());
    // SERVER_INFO_503 has 42 fields, and the text of the 19th field follows them.
    let fields: Vec<u32> = (0..42).map(|_| r.u32("").unwrap()).collect();
    assert_eq!(fields[..18], told[2..20]);
    assert_eq!(fields[32..35], [8_192, 35, 35]);
    assert!(r.string("").unwrap().is("WORKGROUP"));
    assert_eq!((r.u32("").unwrap(), r.remaining()), (0, 0));
}

#[test]
fn the_drive_is_told_to_administrators() {
    let mut services = fixture();
    let ask = |services: &Fixture, level: u32, with_array: bool| {
        let mut w = NdrWriter::new();
        w.unique_string(None).u32(level).u32(0).pointer(with_array);
        if with_array {
            w.u32(0).u32(0).u32(0);
        }
        w.u32(MAX_PREFERRED_LENGTH).pointer(true).u32(0);
        let stub = w.into_stub();
        let answer =
            call(&mut bound(&INTERFACE, services), SERVER_DISK_ENUM, &stub, services, 1000);
        parse_disks(&answer.unwrap()).unwrap()
    };
    assert_eq!(ask(&services, 0, false), Err(WinError::ACCESS_DENIED));
    services.manages = true;
    assert_eq!(ask(&services, 0, false), Ok(vec!["C:".to_string()]));
    assert_eq!(ask(&services, 0, true), Ok(vec!["C:".to_string()]));
    assert_eq!(ask(&services, 1, false), Err(WinError::INVALID_LEVEL));
}

/// The stub data of impacket's hNetrFileEnum and hNetrConnectionEnum, whose container points to an
/// array without entries.
#[test]
fn an_empty_array_on_the_way_in_is_nothing() {
    let services = Fixture { manages: true, ..fixture() };
    for (opnum, stub) in [
        (
            FILE_ENUM,
            "000000002aa200000100000000000000010000000000aaaada6400000100000000000000010000000000 \
             abab0300000003000000732400000000000037ad000000000000ffffffff4869000000000000",
        ),
        (
            CONNECTION_ENUM,
            "000000003629000005000000000000000500000064006100740061000000000001000000 \
             01000000b271000000000000421e000000000000ffffffff8eab000000000000",
        ),
    ] {
        let mut ends = bound(&INTERFACE, &services);
        let answer = call(&mut ends, opnum, &hex(stub), &services, 1 << 20).unwrap();
        assert_eq!(answer[answer.len() - 4..], [0; 4], "{opnum}");
        assert!(!ends.1.is_closed(), "{opnum}");
    }
    // A request with an entry in its array is malformed.
    let mut stub = usage_stub(2, None, 3, None);
    let at = stub.len() - 12;
    stub[at] = 1;
    let mut ends = bound(&INTERFACE, &services);
    assert!(call(&mut ends, FILE_ENUM, &stub, &services, 1000).is_err());
}

/// Tests that a level which a list does not have is answered without an arm of its union.
#[test]
fn levels_of_other_lists_have_no_arm() {
    let services = Fixture { manages: true, ..fixture() };
    for (opnum, names, level) in
        [(SESSION_ENUM, 2, 3), (FILE_ENUM, 2, 10), (FILE_ENUM, 2, 0), (CONNECTION_ENUM, 1, 502)]
    {
        let mut ends = bound(&INTERFACE, &services);
        let first = (opnum == CONNECTION_ENUM).then_some("data");
        let stub = usage_stub(names, first, level, None);
        let answer = call(&mut ends, opnum, &stub, &services, 1000).unwrap();
        // The reply has the level twice, a total of 0, no resume handle and the status.
        let numbers: [u32; 5] = [level, level, 0, 0, WinError::INVALID_LEVEL.0];
        let expected: Vec<u8> = numbers.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(answer, expected, "{opnum} {level}");
    }
}

#[test]
fn who_is_connected_is_told_to_nobody() {
    let services = fixture();
    let mut ends = bound(&INTERFACE, &services);
    let mut w = NdrWriter::new();
    w.unique_string(None).unique_string(None).unique_string(None).u32(10).u32(10).pointer(true);
    w.u32(0).pointer(false).u32(MAX_PREFERRED_LENGTH).pointer(false);
    let answer = call(&mut ends, SESSION_ENUM, &w.into_stub(), &services, 1000).unwrap();
    assert_eq!(answer[answer.len() - 4..], 5u32.to_le_bytes());
}

/// The stub data of an enumeration of MS-SRVS.
fn usage_stub(names: usize, first: Option<&str>, level: u32, resume: Option<u32>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.unique_string(Some(SERVER)).unique_string(first);
    for _ in 1..names {
        w.unique_string(None);
    }
    w.u32(level).u32(level).pointer(true).u32(0).pointer(false).u32(MAX_PREFERRED_LENGTH);
    w.pointer(resume.is_some());
    if let Some(resume) = resume {
        w.u32(resume);
    }
    w.into_stub()
}

#[test]
fn administrators_see_sessions_files_and_connections() {
    let mut services = fixture();
    services.manages = true;
    let ends = || bound(&INTERFACE, &fixture());
    let ask = |opnum, stub: &[u8]| call(&mut ends(), opnum, stub, &services, 1 << 20).unwrap();
    let status = |answer: &[u8]| u32::from_le_bytes(answer[answer.len() - 4..].try_into().unwrap());
    for level in [0, 1, 2, 10, 502] {
        let answer = ask(SESSION_ENUM, &usage_stub(2, None, level, Some(0)));
        assert_eq!(status(&answer), 0, "{level}");
        assert_eq!(answer[..8], [level.to_le_bytes(), level.to_le_bytes()].concat(), "{level}");
        // The reply has the count of entries twice: in the container and in the array.
        assert_eq!(answer[12..16], 2_u32.to_le_bytes(), "{level}");
        assert_eq!(answer[20..24], 2_u32.to_le_bytes(), "{level}");
    }
    let answer = ask(SESSION_ENUM, &usage_stub(2, Some(r"\\192.0.2.2"), 10, None));
    assert_eq!((status(&answer), &answer[12..16]), (0, &1_u32.to_le_bytes()[..]));
    let answer = ask(SESSION_ENUM, &usage_stub(2, Some(r"\\192.0.2.9"), 10, None));
    assert_eq!(status(&answer), WinError::CLIENT_NAME_NOT_FOUND.0);
    assert_eq!(
        status(&ask(SESSION_ENUM, &usage_stub(2, None, 3, None))),
        WinError::INVALID_LEVEL.0
    );
    let answer = ask(FILE_ENUM, &usage_stub(2, Some("DATA\\"), 3, None));
    let mut r = NdrReader::new(&answer[16..]);
    assert!(r.pointer("").unwrap());
    let fixed: Vec<u32> = (0..6).map(|_| r.u32("").unwrap()).collect();
    assert_eq!(fixed[..4], [1, 7, 3, 1]);
    assert_eq!(r.string("").unwrap().to_string_lossy(), r"data\a");
    assert_eq!(r.string("").unwrap().to_string_lossy(), "ann");
    let answer = ask(CONNECTION_ENUM, &usage_stub(1, Some("data"), 1, None));
    assert_eq!((status(&answer), &answer[12..16]), (0, &1_u32.to_le_bytes()[..]));
    let answer = ask(CONNECTION_ENUM, &usage_stub(1, None, 1, None));
    assert_eq!(status(&answer), WinError::INVALID_PARAMETER.0);
    let close = |id: u32| {
        let mut w = NdrWriter::new();
        w.unique_string(Some(SERVER)).u32(id);
        status(&ask(FILE_CLOSE, &w.into_stub()))
    };
    assert_eq!([close(7), close(8)], [0, WinError::FILE_ID_NOT_FOUND.0]);
    let delete = |client: Option<&str>, user: Option<&str>| {
        let mut w = NdrWriter::new();
        w.unique_string(Some(SERVER)).unique_string(client).unique_string(user);
        status(&ask(SESSION_DEL, &w.into_stub()))
    };
    assert_eq!(delete(Some(r"\\192.0.2.1"), None), 0);
    assert_eq!(delete(None, None), WinError::INVALID_PARAMETER.0);
    assert_eq!(delete(Some("x"), Some("y")), WinError::CLIENT_NAME_NOT_FOUND.0);
}

/// The status of an answer, and ParmErr before it.
fn outcome(answer: &[u8]) -> (WinError, Option<u32>) {
    let mut r = NdrReader::new(answer);
    let member = r.pointer("").unwrap().then(|| r.u32("").unwrap());
    (WinError(r.u32("").unwrap()), member)
}

#[test]
fn administrators_change_shares() {
    let mut services = fixture();
    let ask = |services: &Fixture, opnum, stub: &[u8]| {
        call(&mut bound(&INTERFACE, services), opnum, stub, services, 1000).unwrap()
    };
    let share = |name: &str| ShareInfo {
        name: name.to_string(),
        remark: "a comment".to_string(),
        path: r"C:\srv\new".to_string(),
        ..ShareInfo::default()
    };
    let change = |name: &str, level, info: ShareInfo| {
        let name = name.to_string();
        ShareChange { name, level, info: Some(info), has_parm_err: true }.encode(SERVER)
    };
    let add = |level, info| change("", level, info);
    let denied = (WinError::ACCESS_DENIED, Some(0));
    assert_eq!(outcome(&ask(&services, SHARE_ADD, &add(2, share("new")))), denied);
    assert_eq!(outcome(&ask(&services, SHARE_SET_INFO, &change("data", 1004, share("")))), denied);
    let mut w = NdrWriter::new();
    w.unique_string(Some(SERVER)).string("data").u32(0);
    let delete = w.into_stub();
    assert_eq!(ask(&services, SHARE_DEL, &delete), WinError::ACCESS_DENIED.0.to_le_bytes());
    services.manages = true;
    assert_eq!(ask(&services, SHARE_DEL, &delete), [0; 4]);
    let with = |make: &dyn Fn(&mut ShareInfo)| {
        let mut info = share("new");
        make(&mut info);
        info
    };
    for (level, info, wanted) in [
        (2, share("new"), (WinError::SUCCESS, 0)),
        (502, share("new"), (WinError::SUCCESS, 0)),
        (1, share("new"), (WinError::INVALID_LEVEL, 0)),
        (2, share("data"), (WinError::DUPLICATE_SHARE, 0)),
        (2, share(""), (WinError::INVALID_PARAMETER, 1)),
        (2, share(&"x".repeat(80)), (WinError::SUCCESS, 0)),
        (2, share(&"x".repeat(81)), (WinError::INVALID_PARAMETER, 1)),
        (2, share("PIPE"), (WinError::ACCESS_DENIED, 0)),
        (2, with(&|share| share.kind = ShareType::IPC), (WinError::INVALID_PARAMETER, 3)),
        (2, with(&|share| share.remark = "x".repeat(49)), (WinError::INVALID_PARAMETER, 4)),
        (2, with(&|share| share.path = "".to_string()), (WinError::INVALID_PARAMETER, 8)),
        (
            2,
            with(&|share| share.path = "/srv/../etc".to_string()),
            (WinError::INVALID_PARAMETER, 8),
        ),
        (502, with(&|share| share.security_descriptor = Some(vec![1])), (WinError::SUCCESS, 0)),
    ] {
        let told = outcome(&ask(&services, SHARE_ADD, &add(level, info.clone())));
        assert_eq!(told, (wanted.0, Some(wanted.1)), "{level} {info:?}");
    }
    for (name, level, wanted) in [
        ("data", 1, WinError::SUCCESS),
        ("data", 2, WinError::SUCCESS),
        ("data", 1004, WinError::SUCCESS),
        ("data", 1006, WinError::NET_NAME_NOT_FOUND),
        ("absent", 1004, WinError::NET_NAME_NOT_FOUND),
    ] {
        let told = outcome(&ask(&services, SHARE_SET_INFO, &change(name, level, share(""))));
        assert_eq!(told, (wanted, Some(0)), "{name} {level}");
    }
    // MS-SRVS 2.2.2.11: the missing descriptor is reported by its number, SHARE_FILE_SD_PARMNUM
    // (501).
    let told = outcome(&ask(&services, SHARE_SET_INFO, &change("data", 1501, share(""))));
    assert_eq!(told, (WinError::INVALID_PARAMETER, Some(501)));
    let described = with(&|share| share.security_descriptor = Some(vec![1]));
    let told = outcome(&ask(&services, SHARE_SET_INFO, &change("data", 1501, described)));
    assert_eq!(told, (WinError::SUCCESS, Some(0)));
    // An unknown level is reported even though its data cannot be parsed. With a known level, each
    // truncated request is malformed.
    let stub = change("data", 77, share(""));
    assert_eq!(outcome(&ask(&services, SHARE_SET_INFO, &stub)), (WinError::INVALID_LEVEL, None));
    let stub = add(502, share("new"));
    for length in 0..stub.len() {
        assert!(ShareChange::parse_add(&stub[..length]).is_err(), "{length}");
    }
}

#[test]
fn time_of_day() {
    let services = fixture();
    let mut ends = bound(&INTERFACE, &services);
    let mut w = NdrWriter::new();
    w.unique_string(None);
    let answer = call(&mut ends, REMOTE_TOD, &w.into_stub(), &services, 1000).unwrap();
    let mut r = NdrReader::new(&answer);
    assert!(r.pointer("").unwrap());
    let told: Vec<u32> = (0..13).map(|_| r.u32("").unwrap()).collect();
    assert_eq!(told, [1_709_213_862, 5, 13, 37, 42, 56, 0, 310, 29, 2, 2024, 4, 0]);
    for (unix, expected) in [
        (0, (1970, 1, 1, 4)),
        (951_782_400, (2000, 2, 29, 2)),
        (4_107_542_400, (2100, 3, 1, 1)),
        (-1, (1969, 12, 31, 3)),
        (-11_644_473_600, (1601, 1, 1, 1)),
    ] {
        let day = TimeOfDay::new(FileTime::from_unix(unix, 0), 0);
        assert_eq!((day.year, day.month, day.day, day.weekday), expected, "{unix}");
    }
}

/// MS-SRVS 2.2.2.8 and 3.1.4.32.
#[test]
fn names_are_validated_by_their_type() {
    let services = fixture();
    let ask = |name: &str, kind: u32, flags: u32| {
        let stub = NameValidate { name: name.to_string(), kind, flags }.encode(SERVER);
        let mut ends = bound(&INTERFACE, &services);
        let answer = call(&mut ends, NAME_VALIDATE, &stub, &services, 1000).unwrap();
        WinError(u32::from_le_bytes(*answer.last_chunk().unwrap()))
    };
    let long = |length: usize| "x".repeat(length);
    for (name, kind, wanted) in [
        ("data", 9, WinError::SUCCESS),
        (&*long(80), 9, WinError::SUCCESS),
        (&*long(81), 9, WinError::INVALID_NAME),
        ("", 9, WinError::INVALID_NAME),
        ("a/b", 9, WinError::INVALID_NAME),
        ("a\u{1}b", 9, WinError::INVALID_NAME),
        ("a*b", 9, WinError::SUCCESS),
        (&*long(256), 1, WinError::SUCCESS),
        (&*long(257), 3, WinError::INVALID_NAME),
        ("", 2, WinError::SUCCESS),
        ("a/\u{1}", 2, WinError::SUCCESS),
        ("nas", 4, WinError::SUCCESS),
        ("nas ", 4, WinError::INVALID_NAME),
        ("n*s", 4, WinError::INVALID_NAME),
        ("A B", 6, WinError::INVALID_NAME),
        (&*long(15), 6, WinError::SUCCESS),
        (&*long(16), 13, WinError::INVALID_NAME),
        ("ann*", 11, WinError::SUCCESS),
        ("a*n", 11, WinError::INVALID_NAME),
        (&*long(260), 11, WinError::INVALID_NAME),
        (&*(long(259) + "*"), 11, WinError::SUCCESS),
        (&*long(9), 12, WinError::INVALID_NAME),
        ("data", 0, WinError::INVALID_PARAMETER),
        ("data", 14, WinError::INVALID_PARAMETER),
    ] {
        assert_eq!(ask(name, kind, 0), wanted, "{name} {kind}");
    }
    assert_eq!(ask("data", 9, 0x8000_0000), WinError::SUCCESS);
    assert_eq!(ask("data", 9, 1), WinError::INVALID_PARAMETER);
}

#[test]
fn wkssvc() {
    let mut services = fixture();
    let ask = |services: &Fixture, level| {
        let mut ends = bound(&wkssvc::INTERFACE, services);
        call(&mut ends, WKSTA_GET_INFO, &WkstaGetInfo { level }.encode(SERVER), services, 1000)
            .unwrap()
    };
    // MS-WKST 2.2.5.1: level 100 has a platform (500), two pointers, two version numbers and two
    // strings.
    let answer = ask(&services, 100);
    let mut r = NdrReader::new(&answer);
    assert_eq!((r.u32("").unwrap(), r.pointer("").unwrap(), r.u32("").unwrap()), (100, true, 500));
    assert!(r.pointer("").unwrap() && r.pointer("").unwrap());
    assert_eq!((r.u32("").unwrap(), r.u32("").unwrap()), (10, 0));
    assert!(r.string("").unwrap().is("FREVO") && r.string("").unwrap().is("WORKGROUP"));
    assert_eq!((r.u32("").unwrap(), r.remaining()), (0, 0));
    let status = |answer: &[u8]| u32::from_le_bytes(*answer.last_chunk().unwrap());
    assert_eq!(status(&ask(&services, 101)), 0);
    assert_eq!(status(&ask(&services, 102)), 0);
    // The reply to an unknown level has a null pointer and status 124 (ERROR_INVALID_LEVEL).
    assert_eq!(status(&ask(&services, 502)), 124);
    assert_eq!([ask(&services, 502).len(), ask(&services, 500).len()], [12, 8]);
    services.is_administrator = false;
    assert_eq!(status(&ask(&services, 102)), 5);
    assert_eq!(status(&ask(&services, 100)), 0);
}

/// MS-WKST 3.2.4.3 and its note 35.
#[test]
fn administrators_see_who_is_logged_on() {
    let mut services = fixture();
    let ask = |services: &Fixture, level: u32, length: u32| {
        let mut w = NdrWriter::new();
        w.unique_string(Some(SERVER)).u32(level).u32(level).pointer(true).u32(0).pointer(false);
        w.u32(length).pointer(true).u32(0);
        let mut ends = bound(&wkssvc::INTERFACE, services);
        call(&mut ends, WKSTA_USER_ENUM, &w.into_stub(), services, 1000).unwrap()
    };
    let status = |answer: &[u8]| u32::from_le_bytes(*answer.last_chunk().unwrap());
    assert_eq!(status(&ask(&services, 0, u32::MAX)), 5);
    services.manages = true;
    for (level, texts) in [(0, 1), (1, 4)] {
        let answer = ask(&services, level, u32::MAX);
        let mut r = NdrReader::new(&answer);
        assert_eq!((r.u32("").unwrap(), r.u32("").unwrap()), (level, level));
        assert!(r.pointer("").unwrap());
        assert_eq!(r.u32("").unwrap(), 2);
        assert!(r.pointer("").unwrap());
        assert_eq!(r.u32("").unwrap(), 2);
        for _ in 0..2 * texts {
            assert!(r.pointer("").unwrap());
        }
        for text in 0..2 * texts {
            let name = ["ann", "bob"][text / texts];
            let is_name = text % texts == 0;
            assert!(r.string("").unwrap().is(if is_name { name } else { "" }));
        }
        assert_eq!((r.u32("").unwrap(), r.pointer("").unwrap()), (2, true));
        assert_eq!((r.u32("").unwrap(), r.u32("").unwrap(), r.remaining()), (0, 0, 0));
    }
    // A length for one of two, and a level that does not exist.
    assert_eq!(status(&ask(&services, 0, 30)), 234);
    assert_eq!(status(&ask(&services, 2, u32::MAX)), 124);
}

#[test]
fn operations_that_do_not_exist() {
    let services = fixture();
    let mut ends = bound(&INTERFACE, &services);
    for opnum in [0, 19, 57, 0xFFFF] {
        let fault = call(&mut ends, opnum, &[0; 40], &services, 1000);
        assert_eq!(fault, Err(RpcError::Fault(FaultStatus::OP_RNG_ERROR)), "{opnum}");
    }
    assert!(!ends.1.is_closed(), "asking for what there is not is no lie");
}

/// Tests the name of the server that impacket sends.
#[test]
fn a_name_of_nothing_but_nuls_is_empty() {
    let mut w = NdrWriter::new();
    w.unique_string(Some(&"\0".repeat(9)));
    let stub = w.into_stub();
    let name = NdrReader::new(&stub).unique_string("ServerName").unwrap().unwrap();
    assert_eq!(name.decode().unwrap(), "");
    let mut w = NdrWriter::new();
    w.string("data\0beyond");
    let stub = w.into_stub();
    assert_eq!(NdrReader::new(&stub).string("NetName").unwrap().decode().unwrap(), "data");
}

/// THREATS P15: lies in the arguments are told a fault and close the pipe.
#[test]
fn lies_in_arguments() {
    let services = fixture();
    let good =
        ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: Some(0) }.encode(SERVER);
    // The correct stub begins with ServerName: pointer, max_count 8, offset, count 8 and sixteen
    // bytes. Each case sets the word at a byte offset to a wrong value.
    let cases: [(&str, usize, u32); 8] = [
        ("string longer than the stub", 4, 0xFFFF_FFFF),
        ("count beyond max_count", 12, 9),
        ("count of nothing", 12, 0),
        ("count that cuts the terminator", 12, 7),
        ("offset", 8, 1),
        ("union of another level", 36, 2),
        ("entries without a buffer", 44, 1),
        ("buffer without entries", 48, 0x0002_0000),
    ];
    for (what, at, value) in cases {
        let mut stub = good.clone();
        stub[at..at + 4].copy_from_slice(&value.to_le_bytes());
        if what == "string longer than the stub" {
            stub[12..16].copy_from_slice(&value.to_le_bytes());
        }
        let mut ends = bound(&INTERFACE, &services);
        let fault = call(&mut ends, SHARE_ENUM, &stub, &services, 1000);
        assert_eq!(fault, Err(RpcError::Fault(FaultStatus::NDR)), "{what}");
        assert!(ends.1.is_closed(), "{what}");
    }
    for end in 0..good.len() {
        assert!(ShareEnum::parse(&good[..end]).is_err(), "cut at {end}");
    }
}

fn any_share() -> impl Strategy<Value = ShareInfo> {
    (
        ".{1,12}",
        any::<u32>(),
        "[^\0]{0,20}",
        "[^\0]{0,20}",
        any::<[u32; 3]>(),
        prop::option::of(prop::collection::vec(any::<u8>(), 0..30)),
    )
        .prop_map(
            |(name, kind, remark, path, [max_uses, current_uses, flags], security_descriptor)| {
                ShareInfo {
                    name: name.replace('\0', "x"),
                    kind: ShareType(kind),
                    remark,
                    max_uses,
                    current_uses,
                    path,
                    flags,
                    security_descriptor,
                }
            },
        )
}

proptest! {
    #[test]
    fn shares_survive_502(shares in prop::collection::vec(any_share(), 0..5), total in any::<u32>(), resume in any::<Option<u32>>()) {
        let reply = ShareEnumReply { level: 502, shares: &shares[..], total, resume, status: WinError::MORE_DATA };
        let read = ShareEnumReply::parse(&reply.encode(), 502).unwrap();
        prop_assert_eq!((read.total, read.resume, read.status), (total, resume, WinError::MORE_DATA));
        let told: Vec<_> = shares.into_iter().map(|share| ShareInfo { flags: 0, ..share }).collect();
        prop_assert_eq!(read.shares, told);
    }

    #[test]
    fn stubs_never_panic(stub in prop::collection::vec(any::<u8>(), 0..200), opnum in 0u16..60) {
        let services = fixture();
        let _ = srvsvc::call(opnum, &stub, &services);
        let _ = wkssvc::call(opnum, &stub, &services);
        for level in [0, 1, 2, 100, 101, 102, 501, 502, 1005] {
            let _ = ShareEnumReply::parse(&stub, level);
            let _ = parse_share_info(&stub, level);
            let _ = ServerGetInfo { level }.parse_reply(&stub);
        }
    }

    #[test]
    fn damaged_replies_never_panic(shares in prop::collection::vec(any_share(), 0..4), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let reply = ShareEnumReply { level: 502, shares: &shares[..], total: 1, resume: None, status: WinError::SUCCESS };
        let mut stub = reply.encode();
        for (index, value) in damage {
            let at = index.index(stub.len());
            stub[at] = value;
        }
        let _ = ShareEnumReply::parse(&stub, 502);
    }
}
