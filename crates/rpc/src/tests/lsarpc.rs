//! LSA: bytes recorded from both ends of Samba 4.17, and facts that it must not tell.

use super::call;
use super::*;
use crate::FaultStatus;
use crate::client::RpcError;
use crate::handles::{encode_handle, parse_handle_reply};
use crate::limits::{MAX_HANDLES, MAX_LOOKUPS};
use crate::lsarpc::*;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor};
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};
use proptest::prelude::*;

/// LsarOpenPolicy of rpcclient, for lookups.
const OPEN_REQUEST: &str = "\
    000002005c0000001800000000000000000000000000000000000000040002000c0000000200010000080000";

/// The answer of smbd to LsarQueryInformationPolicy, class 3.
const PRIMARY_REPLY: &str = "\
    00000200030000001200140004000200000000000a000000000000000900000057004f0052004b0047005200 \
    4f0055005000000000000000";

/// LsarGetUserName of rpcclient.
const USER_REQUEST: &str = "\
    000002000a000000000000000a0000003100320037002e0030002e0030002e00310000000000000004000200 \
    00000000";

/// The answer of smbd.
const USER_REPLY: &str = "\
    080002000e000e000c00020007000000000000000700000073006d0062007500730065007200000010000200 \
    1400020012001200180002000900000000000000090000005200450046004500520045004e00430045000000 \
    00000000";

/// LsarLookupNames of rpcclient: a user, nobody, Everyone.
const NAMES_REQUEST: &str = "\
    01000000110a62bbe3f7d54d99293babf71a95f703000000030000000e000e00000002000c000c0004000200 \
    100010000800020007000000000000000700000073006d006200750073006500720000000600000000000000 \
    060000006e006f007300750063006800080000000000000008000000450076006500720079006f006e006500 \
    00000000000000000100000000000000";

/// The answer of smbd.
const NAMES_REPLY: &str = "\
    0c00020002000000100002002000000002000000120014001400020018000200000002001c00020020000200 \
    0a00000000000000090000005200450046004500520045004e00430045000000040000000104000000000005 \
    15000000dbe538b756cd2d0f4b752d9e01000000000000000000000000000000010000000000000103000000 \
    240002000300000001000000e9030000000000000800000000000000ffffffff050000000000000001000000 \
    0200000007010000";

/// LsarLookupSids of rpcclient: a user, Everyone, Administrators, nobody.
const SIDS_REQUEST: &str = "\
    01000000d22a4a0fad827f4d9a29dbd0a4c3095d04000000000002000400000004000200080002000c000200 \
    1000020005000000010500000000000515000000dbe538b756cd2d0f4b752d9ee90300000100000001010000 \
    0000000100000000020000000102000000000005200000002002000005000000010500000000000515000000 \
    0100000002000000030000000400000000000000000000000100000000000000";

/// The answer of smbd.
const SIDS_REPLY: &str = "\
    1400020004000000180002002000000004000000120014001c00020020000200000002002400020028000200 \
    0e0010002c000200300002000000020034000200380002000a00000000000000090000005200450046004500 \
    520045004e0043004500000004000000010400000000000515000000dbe538b756cd2d0f4b752d9e01000000 \
    00000000000000000000000001000000000000010800000000000000070000004200550049004c0054004900 \
    4e00000001000000010100000000000520000000010000000000000000000000040000000104000000000005 \
    15000000010000000200000003000000040000003c00020004000000010000000e000e004000020000000000 \
    05000000100010004400020001000000040000001c001c00480002000200000008000000200020004c000200 \
    ffffffff07000000000000000700000073006d00620075007300650072000000080000000000000008000000 \
    450076006500720079006f006e0065000e000000000000000e000000410064006d0069006e00690073007400 \
    7200610074006f007200730010000000000000001000000053002d0031002d0035002d00320031002d003100 \
    2d0032002d0033002d0034000300000007010000";

fn asked(ends: &mut (Client, End), opnum: u16, stub: &[u8]) -> Result<Vec<u8>, RpcError> {
    call(ends, opnum, stub, &fixture(), usize::MAX)
}

fn opened(ends: &mut (Client, End), desired: u32) -> (ContextHandle, Status) {
    let stub = OpenPolicy::encode(AccessMask(desired), r"\\frevo");
    parse_handle_reply(&asked(ends, OPEN_POLICY2, &stub).unwrap()).unwrap()
}

/// A recorded request with the handle replaced by one of ours.
fn with_handle(request: &str, handle: &ContextHandle) -> Vec<u8> {
    let mut stub = hex(request);
    stub[..20].copy_from_slice(&handle.0);
    stub
}

#[test]
fn lookups_of_rpcclient_are_answered_as_smbd_answers_them() {
    let mut ends = bound(&INTERFACE, &fixture());
    let reply = asked(&mut ends, OPEN_POLICY, &hex(OPEN_REQUEST)).unwrap();
    let (policy, status) = parse_handle_reply(&reply).unwrap();
    assert_eq!(status, Status::SUCCESS);
    let ours = asked(&mut ends, LOOKUP_NAMES, &with_handle(NAMES_REQUEST, &policy)).unwrap();
    assert_eq!(without_referents(&ours), without_referents(&hex(NAMES_REPLY)));
    let ours = asked(&mut ends, LOOKUP_SIDS, &with_handle(SIDS_REQUEST, &policy)).unwrap();
    let ours = LookupReply::<TranslatedName>::parse(&ours, SidsForm::Sids, 4).unwrap();
    let theirs = LookupReply::<TranslatedName>::parse(&hex(SIDS_REPLY), SidsForm::Sids, 4).unwrap();
    // For an unknown SID smbd invents a domain, so only the first three entries are compared. This
    // server follows MS-LSAT 3.1.4.9: the name is the SID in text form.
    assert_eq!(ours.domains, theirs.domains[..3]);
    assert_eq!(ours.entries[..3], theirs.entries[..3]);
    let name = "S-1-5-21-1-2-3-4".to_string();
    let unknown = TranslatedName { kind: SidNameUse::UNKNOWN, name, domain: None };
    assert_eq!(ours.entries[3], unknown);
    assert_eq!((ours.mapped, ours.status), (3, Status::SOME_NOT_MAPPED));
    let again = theirs.encode(SidsForm::Sids);
    assert_eq!(without_referents(&again), without_referents(&hex(SIDS_REPLY)));
    let ours = asked(&mut ends, GET_USER_NAME, &hex(USER_REQUEST)).unwrap();
    assert_eq!(UserNameReply::parse(&ours), UserNameReply::parse(&hex(USER_REPLY)));
    let (policy, _) = opened(&mut ends, 1);
    let stub = [&policy.0[..], &[3, 0]].concat();
    let ours = asked(&mut ends, QUERY_INFORMATION_POLICY, &stub).unwrap();
    assert_eq!(without_referents(&ours), without_referents(&hex(PRIMARY_REPLY)));
}

#[test]
fn our_client_is_told_by_our_server() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 0x801);
    let unknown = machine().with_rid(0xBEEF).unwrap();
    let sids = [machine(), Sid::EVERYONE, unknown];
    let reply = asked(&mut ends, LOOKUP_SIDS2, &LookupSids::encode(&policy, &sids)).unwrap();
    let reply = LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 3).unwrap();
    let told: Vec<_> = reply.entries.iter().map(|it| (&*it.name, it.kind, it.domain)).collect();
    let expected = [
        ("", SidNameUse::DOMAIN, Some(0)),
        ("Everyone", SidNameUse::WELL_KNOWN_GROUP, Some(1)),
        ("0000BEEF", SidNameUse::UNKNOWN, Some(0)),
    ];
    assert_eq!(told, expected);
    let names = ["REFERENCE\\smbuser", "REFERENCE", "nobody", "REFERENCE\\nobody"];
    let reply = asked(&mut ends, LOOKUP_NAMES3, &LookupNames::encode(&policy, &names)).unwrap();
    let reply = LookupReply::<TranslatedSid>::parse(&reply, NamesForm::Names3, 4).unwrap();
    let told: Vec<_> = reply.entries.iter().map(|it| (it.sid, it.domain)).collect();
    let user = machine().with_rid(1001);
    assert_eq!(told, [(user, Some(0)), (Some(machine()), Some(0)), (None, None), (None, Some(0))]);
    assert_eq!((reply.mapped, reply.status), (2, Status::SOME_NOT_MAPPED));
    let none = LookupSids::encode(&policy, &[unknown]);
    let reply = asked(&mut ends, LOOKUP_SIDS2, &none).unwrap();
    let reply = LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 1).unwrap();
    assert_eq!((reply.status, reply.domains.len()), (Status::NONE_MAPPED, 1));
    let again = reply.encode(SidsForm::Sids2);
    assert_eq!(LookupReply::<TranslatedName>::parse(&again, SidsForm::Sids2, 1), Ok(reply));
}

#[test]
fn handles_are_good_until_closed_and_for_what_they_were_opened() {
    let mut ends = bound(&INTERFACE, &fixture());
    // POLICY_GET_PRIVATE_INFORMATION (4) is granted only to users who may change the policy, so
    // this user is refused.
    assert_eq!(opened(&mut ends, 4), (ContextHandle::NULL, Status::ACCESS_DENIED));
    let (policy, _) = opened(&mut ends, 1);
    let lookup = LookupSids::encode(&policy, &[Sid::EVERYONE]);
    let reply = asked(&mut ends, LOOKUP_SIDS2, &lookup).unwrap();
    let reply = LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 1).unwrap();
    assert_eq!((reply.status, reply.entries.len()), (Status::ACCESS_DENIED, 0));
    let closed = asked(&mut ends, CLOSE, &encode_handle(&policy)).unwrap();
    assert_eq!(parse_handle_reply(&closed), Ok((ContextHandle::NULL, Status::SUCCESS)));
    let mismatch = Err(RpcError::Fault(FaultStatus::CONTEXT_MISMATCH));
    for (opnum, stub) in [(CLOSE, encode_handle(&policy)), (LOOKUP_SIDS2, lookup)] {
        assert_eq!(asked(&mut ends, opnum, &stub), mismatch, "{opnum}");
    }
    // A handle is valid only in its own pipe, so that of another pipe is refused.
    let (theirs, _) = opened(&mut bound(&INTERFACE, &fixture()), 1);
    assert_eq!(asked(&mut ends, CLOSE, &encode_handle(&theirs)), mismatch);
    for _ in 0..MAX_HANDLES {
        assert_eq!(opened(&mut ends, 1).1, Status::SUCCESS);
    }
    assert_eq!(opened(&mut ends, 1), (ContextHandle::NULL, Status::INSUFFICIENT_RESOURCES));
}

#[test]
fn what_a_server_in_no_domain_does_not_do() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 0x801);
    for (opnum, form) in [(LOOKUP_SIDS3, true), (LOOKUP_NAMES4, false)] {
        let reply = asked(&mut ends, opnum, &[]).unwrap();
        let status = match form {
            true => {
                LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 0).unwrap().status
            }
            false => {
                LookupReply::<TranslatedSid>::parse(&reply, NamesForm::Names3, 0).unwrap().status
            }
        };
        assert_eq!(status, Status::INVALID_SERVER_STATE);
    }
    let many = vec![Sid::EVERYONE; MAX_LOOKUPS + 1];
    let reply = asked(&mut ends, LOOKUP_SIDS2, &LookupSids::encode(&policy, &many)).unwrap();
    let reply = LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 0).unwrap();
    assert_eq!(reply.status, Status::INVALID_PARAMETER);
    let mut elsewhere = LookupSids::encode(&policy, &[Sid::EVERYONE]);
    // LookupLevel is set to 2 (LsapLookupPDC), which is only for domain controllers.
    let at = elsewhere.len() - 16;
    elsewhere[at] = 2;
    let reply = asked(&mut ends, LOOKUP_SIDS2, &elsewhere).unwrap();
    let reply = LookupReply::<TranslatedName>::parse(&reply, SidsForm::Sids2, 1).unwrap();
    assert_eq!(reply.status, Status::INVALID_PARAMETER);
    assert_eq!(asked(&mut ends, 99, &[]), Err(RpcError::Fault(FaultStatus::OP_RNG_ERROR)));
    // A malformed call is answered with a fault and closes the pipe.
    let short = asked(&mut ends, LOOKUP_SIDS2, &policy.0);
    assert_eq!(short, Err(RpcError::Fault(FaultStatus::NDR)));
    assert!(ends.1.is_closed());
}

/// Tests the call that Windows 11's Security tab makes first, MS-LSAD 3.1.4.4.9.
#[test]
fn the_policy_is_opened_with_revisions() {
    let mut ends = bound(&INTERFACE, &fixture());
    let mut ask = |desired: u32, version| {
        let stub = OpenPolicy3::encode(AccessMask(desired), version, r"\\frevo");
        OpenPolicy3::parse_reply(&asked(&mut ends, OPEN_POLICY3, &stub).unwrap()).unwrap()
    };
    let (policy, status) = ask(0x800, 1);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(ask(0x800, 2), (ContextHandle::NULL, Status::NOT_SUPPORTED));
    assert_eq!(ask(0x2, 1), (ContextHandle::NULL, Status::ACCESS_DENIED));
    let answer = asked(&mut ends, LOOKUP_SIDS2, &LookupSids::encode(&policy, &[Sid::EVERYONE]));
    let reply = LookupReply::<TranslatedName>::parse(&answer.unwrap(), SidsForm::Sids2, 1).unwrap();
    assert_eq!(reply.status, Status::SUCCESS);
    // The version of the revision information is set to 2, but InVersion is 1, so the call is
    // malformed.
    let mut stub = OpenPolicy3::encode(AccessMask(0x800), 1, r"\\frevo");
    let at = stub.len() - 12;
    stub[at] = 2;
    assert_eq!(asked(&mut ends, OPEN_POLICY3, &stub), Err(RpcError::Fault(FaultStatus::NDR)));
}

proptest! {
    #[test]
    fn any_stub_is_answered_or_faulted(opnum in prop_oneof![0u16..80, Just(OPEN_POLICY3)], stub in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut ends = bound(&INTERFACE, &fixture());
        let (policy, _) = opened(&mut ends, 0x801);
        let _ = asked(&mut ends, opnum, &[&policy.0[..], &stub].concat());
    }

    #[test]
    fn replies_come_back(names in prop::collection::vec("[a-zäß€😀]{0,20}", 1..20), rid in any::<u32>()) {
        let sid = machine().with_rid(rid);
        let domains: Vec<Domain> =
            names.iter().map(|name: &String| Domain { name: name.clone(), sid }).collect();
        let entries: Vec<TranslatedName> = names.iter().enumerate().map(|(n, name)| {
            TranslatedName { kind: SidNameUse::USER, name: name.clone(), domain: Some(n) }
        }).collect();
        let reply = LookupReply { domains, entries, mapped: 7, status: Status::SUCCESS };
        let parsed = LookupReply::<TranslatedName>::parse(&reply.encode(SidsForm::Sids2), SidsForm::Sids2, 20);
        prop_assert_eq!(parsed, Ok(reply));
    }
}

/// MS-LSAT 3.1.4.10: what comes in TranslatedNames or TranslatedSids is ignored. Some clients send
/// an empty array in place of none.
#[test]
fn what_was_translated_is_ignored_on_input() {
    let policy = ContextHandle([7; 20]);
    let sids = LookupSids::encode(&policy, &[Sid::EVERYONE]);
    let names = LookupNames::encode(&policy, &["a"]);
    // The three lists of translated SIDs or names: an empty one, and two with one entry. Each has a
    // count, a pointer and the size of the array.
    let empty = [[0; 4], 1_u32.to_le_bytes(), [0; 4]].concat();
    let mut name = [[1, 0, 0, 0], 1_u32.to_le_bytes(), [1, 0, 0, 0]].concat();
    name.extend([5, 0, 0, 0, 4, 0, 4, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    name.extend([2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'x', 0, b'y', 0]);
    let mut sid = [[1, 0, 0, 0], 1_u32.to_le_bytes(), [1, 0, 0, 0]].concat();
    sid.extend([5, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    sid.extend([0; 12]);
    let with = |stub: &[u8], translated: &[u8]| {
        // `translated` takes the place of the list in the stub: the 8 bytes before LookupLevel,
        // MappedCount, LookupOptions and ClientRevision.
        let at = stub.len() - 16 - 8;
        [&stub[..at], translated, &stub[at + 8..]].concat()
    };
    for translated in [&empty, &name] {
        let stub = with(&sids, translated);
        assert_eq!(
            LookupSids::parse(&stub, SidsForm::Sids2),
            LookupSids::parse(&sids, SidsForm::Sids2)
        );
    }
    for translated in [&empty, &sid] {
        let stub = with(&names, translated);
        assert_eq!(
            LookupNames::parse(&stub, NamesForm::Names3),
            LookupNames::parse(&names, NamesForm::Names3)
        );
    }
    let mut long = with(&sids, &empty);
    let at = long.len() - 16 - 4;
    long[at] = 1;
    assert!(LookupSids::parse(&long, SidsForm::Sids2).is_err());
}

/// MS-LSAT 3.1.4.5: an isolated name is looked up here, then in the primary domain, unless the
/// client wants local accounts only.
#[test]
fn isolated_names_of_the_domain() {
    let services = fixture();
    let mut lsa = Lsarpc::default();
    let open = OpenPolicy::encode(AccessMask(0x0000_0800), "\\\\x");
    let reply = lsa.call(OPEN_POLICY2, &open, &services).unwrap();
    let policy = NdrReader::new(&reply).handle("").unwrap();
    for (options, name, is_found) in
        [(0u32, "u1", true), (0x8000_0000, "u1", false), (0, "u2", false), (0, "B\\u1", false)]
    {
        let mut stub = LookupNames::encode(&policy, &[name]);
        // LookupOptions and ClientRevision end the arguments.
        let at = stub.len() - 8;
        stub[at..at + 4].copy_from_slice(&options.to_le_bytes());
        let reply = lsa.call(LOOKUP_NAMES3, &stub, &services).unwrap();
        let reply = LookupReply::<TranslatedSid>::parse(&reply, NamesForm::Names3, 1).unwrap();
        let sid = reply.entries[0].sid.map(|sid| sid.to_string());
        assert_eq!(sid.as_deref(), is_found.then_some("S-1-5-21-6-6-6-1105"), "{name} {options:x}");
    }
}

/// The privileges of MS-LSAD 3.1.1.2.1, whole and in parts, by name and by number.
#[test]
fn privileges_have_names_and_numbers() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 0x801);
    let enumerated = |ends: &mut (Client, End), policy: &ContextHandle, from: u32, length: u32| {
        let stub = [&policy.0[..], &from.to_le_bytes(), &length.to_le_bytes()].concat();
        let reply = asked(ends, ENUMERATE_PRIVILEGES, &stub).unwrap();
        let mut r = NdrReader::new(&reply);
        let (next, count) = (r.u32("").unwrap(), r.u32("").unwrap());
        if !r.pointer("").unwrap() {
            return (next, Vec::new(), Status(r.u32("").unwrap()));
        }
        assert_eq!(r.u32("").unwrap(), count);
        let heads: Vec<_> = (0..count)
            .map(|_| {
                let head = r.unicode_head("").unwrap();
                (head, r.u32("").unwrap(), r.u32("").unwrap())
            })
            .collect();
        let all = heads.into_iter().map(|(head, low, high)| {
            assert_eq!(high, 0);
            (r.unicode(head, "").unwrap().decode().unwrap(), low)
        });
        let all: Vec<_> = all.collect();
        (next, all, Status(r.u32("").unwrap()))
    };
    let (next, all, status) = enumerated(&mut ends, &policy, 0, u32::MAX);
    assert_eq!((next, all.len(), status), (34, 34, Status::SUCCESS));
    let (mut from, mut parts) = (0, Vec::new());
    loop {
        let (next, part, status) = enumerated(&mut ends, &policy, from, 100);
        assert!(next > from && next == from + part.len() as u32);
        parts.extend(part);
        from = next;
        if status == Status::SUCCESS {
            break;
        }
        assert_eq!(status, Status::MORE_ENTRIES);
    }
    assert_eq!(parts, all);
    // The names have 22 and 29 letters; the entry that reaches the length is the last one.
    for (length, count) in [(0, 1), (60, 1), (61, 2), (134, 2), (135, 3)] {
        let (next, part, status) = enumerated(&mut ends, &policy, 0, length);
        assert_eq!((next, part.len(), status), (count, count as usize, Status::MORE_ENTRIES));
    }
    let past = enumerated(&mut ends, &policy, 34, 100);
    assert_eq!(past, (34, Vec::new(), Status::NO_MORE_ENTRIES));
    let named = |name: &str| {
        let mut w = NdrWriter::new();
        w.handle(&policy).unicode_head(name, 0).unicode(name, 0).u16(0x0407).u16(0x0409);
        w.into_stub()
    };
    for (name, luid) in &all {
        let value = asked(&mut ends, LOOKUP_PRIVILEGE_VALUE, &named(name)).unwrap();
        assert_eq!(value, [&luid.to_le_bytes()[..], &[0; 8]].concat());
        let stub = [&policy.0[..], &luid.to_le_bytes(), &[0; 4]].concat();
        let reply = asked(&mut ends, LOOKUP_PRIVILEGE_NAME, &stub).unwrap();
        let mut r = NdrReader::new(&reply);
        assert!(r.pointer("").unwrap());
        let head = r.unicode_head("").unwrap();
        assert_eq!(r.unicode(head, "").unwrap().decode().unwrap(), *name);
    }
    let shown =
        asked(&mut ends, LOOKUP_PRIVILEGE_DISPLAY_NAME, &named("sebackupprivilege")).unwrap();
    let mut r = NdrReader::new(&shown);
    assert!(r.pointer("").unwrap());
    let head = r.unicode_head("").unwrap();
    let text = r.unicode(head, "").unwrap().decode().unwrap();
    assert_eq!(text, "Back up files and directories");
    assert_eq!((r.u16("").unwrap(), r.u32("").unwrap()), (0x0409, 0));
    let unknown = asked(&mut ends, LOOKUP_PRIVILEGE_VALUE, &named("SeNothing")).unwrap();
    assert_eq!(unknown[8..], Status::NO_SUCH_PRIVILEGE.0.to_le_bytes());
    // The handle must be good for it.
    let (narrow, _) = opened(&mut ends, 0x800);
    assert_eq!(enumerated(&mut ends, &narrow, 0, 100).2, Status::ACCESS_DENIED);
}

/// MS-LSAD 3.1.4.7.7: a member knows no trusts.
#[test]
fn there_are_no_trusted_domains() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 1);
    let stub = [&policy.0[..], &[0; 4], &[255; 4]].concat();
    for opnum in [ENUMERATE_TRUSTED_DOMAINS, ENUMERATE_TRUSTED_DOMAINS_EX] {
        let reply = asked(&mut ends, opnum, &stub).unwrap();
        assert_eq!(reply[..12], [0; 12]);
        assert_eq!(reply[12..], Status::NO_MORE_ENTRIES.0.to_le_bytes());
    }
}

/// The enumeration has 16 bits, and lies where the other arms of the union lie: Samba and impacket take
/// no shorter reply.
#[test]
fn the_role_of_the_server_is_aligned_as_the_other_classes() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 1);
    let stub = [&policy.0[..], &[6, 0]].concat();
    let reply = asked(&mut ends, QUERY_INFORMATION_POLICY, &stub).unwrap();
    assert_eq!(reply[4..], [6, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
}

/// Returns the SIDs of LSAPR_ACCOUNT_ENUM_BUFFER.
fn sids(r: &mut NdrReader<'_>) -> Vec<Sid> {
    let count = r.u32("").unwrap();
    if !r.pointer("").unwrap() {
        assert_eq!(count, 0);
        return Vec::new();
    }
    assert_eq!(r.u32("").unwrap(), count);
    for _ in 0..count {
        assert!(r.pointer("").unwrap());
    }
    (0..count).map(|_| r.sid("").unwrap()).collect()
}

fn status(r: &mut NdrReader<'_>) -> Status {
    let status = Status(r.u32("").unwrap());
    assert_eq!(r.remaining(), 0);
    status
}

/// MS-LSAD 3.1.4.5.2: all accounts, or as many as the length has, with a context to go on.
#[test]
fn accounts_with_rights_are_enumerated() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 1);
    let mut told = |policy: &ContextHandle, from: u32, length: u32| {
        let mut w = NdrWriter::new();
        w.handle(policy).u32(from).u32(length);
        let reply = asked(&mut ends, ENUMERATE_ACCOUNTS, &w.into_stub()).unwrap();
        let mut r = NdrReader::new(&reply);
        (r.u32("").unwrap(), sids(&mut r), status(&mut r))
    };
    let both = Vec::from([Sid::ADMINISTRATORS, Sid::EVERYONE]);
    assert_eq!(told(&policy, 0, 0xFFFF), (2, both, Status::SUCCESS));
    assert_eq!(told(&policy, 0, 0), (1, [Sid::ADMINISTRATORS].into(), Status::MORE_ENTRIES));
    assert_eq!(told(&policy, 1, 0), (2, [Sid::EVERYONE].into(), Status::SUCCESS));
    assert_eq!(told(&policy, 2, 9), (2, Vec::new(), Status::NO_MORE_ENTRIES));
    let (lookups, _) = opened(&mut ends, 0x800);
    let mut w = NdrWriter::new();
    w.handle(&lookups).u32(0).u32(9);
    let reply = asked(&mut ends, ENUMERATE_ACCOUNTS, &w.into_stub()).unwrap();
    assert_eq!(reply.last_chunk(), Some(&Status::ACCESS_DENIED.0.to_le_bytes()));
}

/// MS-LSAD 3.1.4.5.9 and 3.1.4.5.10
#[test]
fn rights_of_accounts_and_accounts_of_rights() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, 1);
    let mut rights = |sid: Sid| {
        let stub = OfAccount { policy, sid }.encode();
        let reply = asked(&mut ends, ENUMERATE_ACCOUNT_RIGHTS, &stub).unwrap();
        let mut r = NdrReader::new(&reply);
        let count = r.u32("").unwrap();
        let mut names = Vec::new();
        if r.pointer("").unwrap() {
            assert_eq!(r.u32("").unwrap(), count);
            let heads: Vec<_> = (0..count).map(|_| r.unicode_head("").unwrap()).collect();
            names.extend(
                heads.into_iter().map(|head| r.unicode(head, "").unwrap().decode().unwrap()),
            );
        }
        (names, status(&mut r))
    };
    let (names, told) = rights(Sid::ADMINISTRATORS);
    assert_eq!(names, ["SeSecurityPrivilege", "SeTakeOwnershipPrivilege"]);
    assert_eq!(told, Status::SUCCESS);
    assert_eq!(rights(Sid::EVERYONE).0, ["SeChangeNotifyPrivilege"]);
    assert_eq!(rights(machine()), (Vec::new(), Status::OBJECT_NAME_NOT_FOUND));
    let mut with = |right: Option<&str>| {
        let mut w = NdrWriter::new();
        w.handle(&policy).pointer(right.is_some());
        if let Some(right) = right {
            w.unicode_head(right, 0).unicode(right, 0);
        }
        let reply = asked(&mut ends, ENUMERATE_ACCOUNTS_WITH_USER_RIGHT, &w.into_stub()).unwrap();
        let mut r = NdrReader::new(&reply);
        (sids(&mut r), status(&mut r))
    };
    assert_eq!(with(Some("setakeownershipprivilege")).0, [Sid::ADMINISTRATORS]);
    assert_eq!(with(Some("SeDebugPrivilege")), (Vec::new(), Status::NO_MORE_ENTRIES));
    assert_eq!(with(Some("SeNothing")), (Vec::new(), Status::NO_SUCH_PRIVILEGE));
    assert_eq!(with(None), (Vec::new(), Status::INVALID_PARAMETER));
}

/// MS-LSAD 3.1.4.5.3 and .4, and note 50 of 3.1.1.3: administrators alone see an account's privileges.
#[test]
fn an_account_shows_its_privileges_to_administrators() {
    let open = |ends: &mut (Client, End), services: &Fixture, sid: Sid, desired: u32| {
        let stub = OpenPolicy::encode(AccessMask(1), r"\\frevo");
        let reply = call(ends, OPEN_POLICY2, &stub, services, usize::MAX).unwrap();
        let (policy, _) = parse_handle_reply(&reply).unwrap();
        let mut stub = OfAccount { policy, sid }.encode();
        stub.extend_from_slice(&desired.to_le_bytes());
        let reply = call(ends, OPEN_ACCOUNT, &stub, services, usize::MAX).unwrap();
        parse_handle_reply(&reply).unwrap()
    };
    let maximal = AccessMask::MAXIMUM_ALLOWED.0;
    for manages in [false, true] {
        let services = Fixture { manages, ..fixture() };
        let mut ends = bound(&INTERFACE, &services);
        let (account, told) = open(&mut ends, &services, Sid::ADMINISTRATORS, maximal);
        assert_eq!(told, Status::SUCCESS);
        let ask = |ends: &mut (Client, End), opnum| {
            call(ends, opnum, &encode_handle(&account), &services, usize::MAX).unwrap()
        };
        let reply = ask(&mut ends, ENUMERATE_PRIVILEGES_ACCOUNT);
        if manages {
            // A pointer, the number three times with Control 0 last, and two LUIDs without attributes.
            let words: Vec<u32> =
                reply.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(words[1..], [2, 2, 0, 8, 0, 0, 9, 0, 0, 0]);
        } else {
            let denied = [[0; 4], Status::ACCESS_DENIED.0.to_le_bytes()].concat();
            assert_eq!(reply, denied);
        }
        for opnum in [ADD_PRIVILEGES_TO_ACCOUNT, REMOVE_PRIVILEGES_FROM_ACCOUNT] {
            assert_eq!(ask(&mut ends, opnum), Status::ACCESS_DENIED.0.to_le_bytes());
        }
        // A handle of an account is none of a policy.
        let mut w = NdrWriter::new();
        w.handle(&account).u32(0).u32(9);
        let reply =
            call(&mut ends, ENUMERATE_ACCOUNTS, &w.into_stub(), &services, usize::MAX).unwrap();
        assert_eq!(reply.last_chunk(), Some(&Status::INVALID_HANDLE.0.to_le_bytes()));
        assert_eq!(open(&mut ends, &services, machine(), maximal).1, Status::OBJECT_NAME_NOT_FOUND);
        for (desired, is_granted) in [(0x0002_0000, true), (1, manages), (0xF_000F, manages)] {
            let told = open(&mut ends, &services, Sid::EVERYONE, desired).1;
            let wanted = if is_granted { Status::SUCCESS } else { Status::ACCESS_DENIED };
            assert_eq!(told, wanted, "{desired:x}");
        }
        assert_eq!(open(&mut ends, &services, Sid::EVERYONE, 0x10).1, Status::ACCESS_DENIED);
    }
}

/// MS-LSAD 3.1.4.9.1, and calls that change accounts, for which nobody has the right.
#[test]
fn the_policy_shows_who_may_do_what_and_is_not_changed() {
    let mut ends = bound(&INTERFACE, &fixture());
    let (policy, _) = opened(&mut ends, AccessMask::MAXIMUM_ALLOWED.0);
    let mut descriptor = |parts: u32| {
        let mut w = NdrWriter::new();
        w.handle(&policy).u32(parts);
        let reply = asked(&mut ends, QUERY_SECURITY_OBJECT, &w.into_stub()).unwrap();
        let mut r = NdrReader::new(&reply);
        let descriptor = r.pointer("").unwrap().then(|| {
            let length = r.u32("").unwrap();
            assert!(r.pointer("").unwrap());
            SecurityDescriptor::parse(r.bytes(length, "").unwrap()).unwrap()
        });
        (descriptor, status(&mut r))
    };
    let (told, _) = descriptor(7);
    let told = told.unwrap();
    assert_eq!((told.owner, told.group), (Some(Sid::ADMINISTRATORS), Some(Sid::LOCAL_SYSTEM)));
    let aces = told.dacl.unwrap().aces;
    assert!(aces.iter().any(|ace| ace.sid() == Some(&Sid::EVERYONE)));
    assert!(descriptor(1).0.unwrap().dacl.is_none());
    assert_eq!(descriptor(8), (None, Status::ACCESS_DENIED));
    for (opnum, length) in
        [(CREATE_ACCOUNT, 24), (ADD_ACCOUNT_RIGHTS, 4), (REMOVE_ACCOUNT_RIGHTS, 4)]
    {
        let stub = OfAccount { policy, sid: machine() }.encode();
        let reply = asked(&mut ends, opnum, &stub).unwrap();
        assert_eq!(reply.len(), length);
        assert_eq!(reply.last_chunk(), Some(&Status::ACCESS_DENIED.0.to_le_bytes()));
    }
}
