//! SAM: facts about accounts, the callers that get them, and facts that it must not tell.

use super::call;
use super::*;
use crate::FaultStatus;
use crate::client::RpcError;
use crate::handles::{encode_handle, parse_handle_reply};
use crate::limits::{MAX_HANDLES, MAX_LOOKUPS};
use crate::samr::*;
use alloc::string::String;
use frevo_wire::Status;
use frevo_wire::dtyp::SecurityDescriptor;
use frevo_wire::ndr::ContextHandle;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use proptest::prelude::*;

/// MAXIMUM_ALLOWED
const MAXIMUM: u32 = 0x0200_0000;

type Ends = (Client, End);

fn asked(ends: &mut Ends, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, RpcError> {
    call(ends, opnum, stub, &fixture(), usize::MAX)
}

fn on(handle: &ContextHandle, write: impl FnOnce(&mut NdrWriter)) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.handle(handle);
    write(&mut w);
    w.into_stub()
}

fn connect5(desired: u32, version: u32) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.unique_string(Some("\\\\frevo")).u32(desired).u32(version).u32(version).u32(3).u32(0);
    w.into_stub()
}

/// Opens the server with SamrConnect5.
fn server(ends: &mut Ends) -> ContextHandle {
    let reply = asked(ends, CONNECT5, &connect5(MAXIMUM, 1)).unwrap();
    let (head, rest) = reply.split_at(16);
    assert_eq!(head, [1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let (handle, status) = parse_handle_reply(rest).unwrap();
    assert_eq!(status, Status::SUCCESS);
    handle
}

fn open(ends: &mut Ends, opnum: u16, stub: &[u8]) -> (ContextHandle, Status) {
    parse_handle_reply(&asked(ends, opnum, stub).unwrap()).unwrap()
}

fn open_domain(ends: &mut Ends, sid: Sid, desired: u32) -> (ContextHandle, Status) {
    let server = server(ends);
    let stub = on(&server, |w| {
        w.u32(desired).sid(&sid);
    });
    open(ends, OPEN_DOMAIN, &stub)
}

fn domain(ends: &mut Ends, sid: Sid) -> ContextHandle {
    let (handle, status) = open_domain(ends, sid, MAXIMUM);
    assert_eq!(status, Status::SUCCESS);
    handle
}

fn numbers(handle: &ContextHandle, numbers: &[u32]) -> Vec<u8> {
    on(handle, |w| {
        for number in numbers {
            w.u32(*number);
        }
    })
}

fn account(ends: &mut Ends, opnum: u16, domain: &ContextHandle, rid: u32) -> ContextHandle {
    let (handle, status) = open(ends, opnum, &numbers(domain, &[MAXIMUM, rid]));
    assert_eq!(status, Status::SUCCESS, "{opnum} {rid}");
    handle
}

fn class(handle: &ContextHandle, class: u16) -> Vec<u8> {
    on(handle, |w| {
        w.u16(class);
    })
}

/// The position at which the next call continues, the entries, and the status.
type Enumerated = (u32, Vec<(u32, String)>, Status);

fn enumeration(stub: &[u8]) -> Enumerated {
    let mut r = NdrReader::new(stub);
    let context = r.u32("context").unwrap();
    let mut entries = Vec::new();
    if r.pointer("buffer").unwrap() {
        let count = r.u32("entries").unwrap();
        if r.pointer("entries").unwrap() {
            let count = r.array(count, 12, "entries").unwrap();
            let heads: Vec<_> = (0..count)
                .map(|_| (r.u32("rid").unwrap(), r.unicode_head("name").unwrap()))
                .collect();
            for (rid, head) in heads {
                entries.push((rid, r.unicode(head, "name").unwrap().decode().unwrap()));
            }
        }
    }
    let count = r.u32("count").unwrap();
    assert_eq!(usize::try_from(count), Ok(entries.len()));
    (context, entries, Status(r.u32("status").unwrap()))
}

fn status(stub: &[u8]) -> Status {
    Status(u32::from_le_bytes(*stub.last_chunk().unwrap()))
}

#[test]
fn all_the_ways_to_connect() {
    let mut ends = bound(&INTERFACE, &fixture());
    let mut w = NdrWriter::new();
    w.unique_string(Some("\\\\frevo")).u32(0x30);
    assert_eq!(open(&mut ends, CONNECT2, &w.into_stub()).1, Status::SUCCESS);
    let mut w = NdrWriter::new();
    w.unique_string(None).u32(2).u32(0x30);
    assert_eq!(open(&mut ends, CONNECT4, &w.into_stub()).1, Status::SUCCESS);
    let mut w = NdrWriter::new();
    w.pointer(true).u16(0x5C).u32(0x30);
    assert_eq!(open(&mut ends, CONNECT, &w.into_stub()).1, Status::SUCCESS);
    server(&mut ends);
    for (stub, expected) in [
        // SAM_SERVER_CREATE_DOMAIN (8) and GENERIC_ALL are refused to all users.
        (connect5(8, 1), Status::ACCESS_DENIED),
        (connect5(0x1000_0000, 1), Status::ACCESS_DENIED),
        (connect5(MAXIMUM, 2), Status::NOT_SUPPORTED),
    ] {
        let reply = asked(&mut ends, CONNECT5, &stub).unwrap();
        assert_eq!(parse_handle_reply(&reply[16..]), Ok((ContextHandle::NULL, expected)));
    }
}

#[test]
fn domains_and_who_is_in_them() {
    let mut ends = bound(&INTERFACE, &fixture());
    let server = server(&mut ends);
    let reply = asked(&mut ends, ENUMERATE_DOMAINS, &numbers(&server, &[0, 4096])).unwrap();
    let (_, entries, _) = enumeration(&reply);
    assert_eq!(entries, [(0, "REFERENCE".into()), (0, "Builtin".into())]);
    for (name, expected) in [
        ("reference", Ok(machine())),
        ("BUILTIN", Ok(Sid::BUILTIN)),
        ("elsewhere", Err(Status::NO_SUCH_DOMAIN)),
    ] {
        let stub = on(&server, |w| {
            w.unicode_head(name, 0).unicode(name, 0);
        });
        let reply = asked(&mut ends, LOOKUP_DOMAIN, &stub).unwrap();
        assert_eq!(reply, encode_sid(expected), "{name}");
    }
    let unknown = "S-1-5-21-1-2-3".parse().unwrap();
    assert_eq!(open_domain(&mut ends, unknown, MAXIMUM).1, Status::NO_SUCH_DOMAIN);
    // DOMAIN_CREATE_USER (0x10) is refused to all users.
    assert_eq!(open_domain(&mut ends, machine(), 0x10).1, Status::ACCESS_DENIED);
    let ours = domain(&mut ends, machine());
    let list = |ends: &mut Ends, opnum, parts: &[u32], of| {
        enumeration(&asked(ends, opnum, &numbers(of, parts)).unwrap())
    };
    let users = [(1000, "root".into()), (1001, "smbuser".into()), (1002, "smbuser2".into())];
    let (_, all, said) = list(&mut ends, ENUMERATE_USERS, &[0, 0, u32::MAX], &ours);
    assert_eq!((&all[..], said), (&users[..], Status::SUCCESS));
    // A filter of 1 (USER_ACCOUNT_DISABLED) lists only disabled accounts.
    let (_, all, _) = list(&mut ends, ENUMERATE_USERS, &[0, 1, u32::MAX], &ours);
    assert_eq!(all, users[2..]);
    // With a size of 0, each call returns one account, until the list ends.
    let mut context = 0;
    for (at, user) in users.iter().enumerate() {
        let (next, told, said) = list(&mut ends, ENUMERATE_USERS, &[context, 0, 0], &ours);
        assert_eq!(told, core::slice::from_ref(user));
        let last = at + 1 == users.len();
        assert_eq!(said, if last { Status::SUCCESS } else { Status::MORE_ENTRIES });
        context = next;
    }
    for context in [context, 7, u32::MAX] {
        let (next, told, said) = list(&mut ends, ENUMERATE_USERS, &[context, 0, 4096], &ours);
        assert_eq!((next, told.len(), said), (context, 0, Status::SUCCESS));
    }
    let (_, groups, _) = list(&mut ends, ENUMERATE_GROUPS, &[0, 4096], &ours);
    assert_eq!(groups, [(513, "None".into())]);
    let builtin = domain(&mut ends, Sid::BUILTIN);
    let (_, aliases, _) = list(&mut ends, ENUMERATE_ALIASES, &[0, 4096], &builtin);
    assert_eq!(aliases, [(544, "Administrators".into())]);
}

/// TotalAvailable, TotalReturned, the accounts with Index, Rid, bits and name, and
/// the status.
type Displayed = (u32, u32, Vec<(u32, u32, u32, String)>, Status);

fn display(stub: &[u8]) -> Displayed {
    const WHAT: &str = "display";
    let mut r = NdrReader::new(stub);
    let (available, returned) = (r.u32(WHAT).unwrap(), r.u32(WHAT).unwrap());
    let class = r.u16(WHAT).unwrap();
    let count = r.u32(WHAT).unwrap();
    let mut shown = Vec::new();
    if r.pointer(WHAT).unwrap() {
        let count = r.array(count, 8, WHAT).unwrap();
        let empty = if class == 1 { 2 } else { 1 };
        let mut heads = Vec::new();
        for _ in 0..count {
            let numbers = [0; 3].map(|_| r.u32(WHAT).unwrap());
            let name = r.unicode_head(WHAT).unwrap();
            let rest: Vec<_> = (0..empty).map(|_| r.unicode_head(WHAT).unwrap()).collect();
            heads.push((numbers, name, rest));
        }
        for ([index, rid, bits], head, rest) in heads {
            let name = r.unicode(head, WHAT).unwrap().decode().unwrap();
            for head in rest {
                assert_eq!(r.unicode(head, WHAT).unwrap().decode().unwrap(), "");
            }
            shown.push((index, rid, bits, name));
        }
    }
    (available, returned, shown, Status(r.u32("status").unwrap()))
}

fn query_display(on_domain: &ContextHandle, class: u16, rest: [u32; 3]) -> Vec<u8> {
    on(on_domain, |w| {
        w.u16(class);
        for number in rest {
            w.u32(number);
        }
    })
}

#[test]
fn accounts_are_shown_by_name() {
    let mut ends = bound(&INTERFACE, &fixture());
    let ours = domain(&mut ends, machine());
    // The columns are index, RID, flags and name. The flags 0x210 mean a normal account whose
    // password does not expire; 1 means disabled.
    let all = [
        (1, 1000, 0x210, "root".into()),
        (2, 1001, 0x210, "smbuser".into()),
        (3, 1002, 0x211, "smbuser2".into()),
    ];
    let whole = [0, 1000, u32::MAX];
    let bytes = 3 * 36 + 2 * (4 + 7 + 8);
    for opnum in [QUERY_DISPLAY_INFORMATION, QUERY_DISPLAY_INFORMATION2, QUERY_DISPLAY_INFORMATION3]
    {
        let reply = asked(&mut ends, opnum, &query_display(&ours, 1, whole)).unwrap();
        assert_eq!(display(&reply), (bytes, bytes, all.to_vec(), Status::SUCCESS));
    }
    let mut ask = |class, rest| {
        let stub = query_display(&ours, class, rest);
        asked(&mut ends, QUERY_DISPLAY_INFORMATION, &stub)
    };
    // Each pair limits the entries and the bytes of a reply, so that each call returns only one
    // account.
    for rest in [[1, u32::MAX], [u32::MAX, 36 + 16], [0, u32::MAX], [1000, 0]] {
        for (at, account) in (0..).zip(&all) {
            let (_, _, told, said) = display(&ask(1, [at, rest[0], rest[1]]).unwrap());
            assert_eq!(told, core::slice::from_ref(account), "{rest:?}");
            assert_eq!(said, if at == 2 { Status::SUCCESS } else { Status::MORE_ENTRIES });
        }
    }
    for index in [3, 4, u32::MAX] {
        let told = display(&ask(1, [index, 1000, 4096]).unwrap());
        assert_eq!(told, (bytes, 0, Vec::new(), Status::SUCCESS));
    }
    assert_eq!(display(&ask(2, whole).unwrap()), (0, 0, Vec::new(), Status::SUCCESS));
    let (_, _, groups, _) = display(&ask(3, whole).unwrap());
    assert_eq!(groups, [(1, 513, 7, "None".into())]);
    // In OEM classes an entry has one byte for each character, and no full name.
    let oem = ask(4, whole).unwrap();
    assert_eq!(oem[..12], [0, 0, 0, 0, 55, 0, 0, 0, 4, 0, 0, 0]);
    let text = |text: &[u8]| oem.windows(text.len()).any(|window| window == text);
    assert!(text(b"root") && text(b"smbuser2"));
    // The reply's union has no such class, so the call is malformed.
    for class in [0, 6, u16::MAX] {
        let mut ends = bound(&INTERFACE, &fixture());
        let ours = domain(&mut ends, machine());
        let faulted =
            asked(&mut ends, QUERY_DISPLAY_INFORMATION, &query_display(&ours, class, whole));
        assert_eq!(faulted, Err(RpcError::Fault(FaultStatus::NDR)), "{class}");
    }
}

#[test]
fn a_prefix_leads_to_an_account() {
    let mut ends = bound(&INTERFACE, &fixture());
    let ours = domain(&mut ends, machine());
    let absent = Err(Status::NO_MORE_ENTRIES);
    for opnum in [GET_DISPLAY_ENUMERATION_INDEX, GET_DISPLAY_ENUMERATION_INDEX2] {
        for (class, prefix, expected) in [
            (1, "", Ok(0)),
            (1, "ROO", Ok(0)),
            (1, "s", Ok(1)),
            (1, "smbuser", Ok(1)),
            (1, "SMBUSER2", Ok(2)),
            (1, "smbuser3", Ok(1)),
            (1, "x", absent),
            (2, "root", absent),
            (3, "none", Ok(0)),
            (4, "root", Err(Status::INVALID_INFO_CLASS)),
            (0, "root", Err(Status::INVALID_INFO_CLASS)),
        ] {
            let stub = on(&ours, |w| {
                w.u16(class).unicode_head(prefix, 0).unicode(prefix, 0);
            });
            let reply = asked(&mut ends, opnum, &stub).unwrap();
            assert_eq!(reply, DisplayIndex::encode_reply(expected), "{class} {prefix}");
        }
    }
}

/// An array of SIDs, as GetAliasMembership takes it.
fn sids_on(handle: &ContextHandle, sids: &[Sid]) -> Vec<u8> {
    let count = u32::try_from(sids.len()).unwrap();
    on(handle, |w| {
        w.u32(count).pointer(true).u32(count);
        for _ in sids {
            w.pointer(true);
        }
        for sid in sids {
            w.sid(sid);
        }
    })
}

/// Every call that tells of more accounts than it is asked for, on a domain and on a
/// group and an alias there: MS-SAMR 3.1.2.2.
fn lists(
    ours: &ContextHandle,
    group: &ContextHandle,
    alias: &ContextHandle,
) -> Vec<(u16, Vec<u8>)> {
    let index = on(ours, |w| {
        w.u16(1).unicode_head("s", 0).unicode("s", 0);
    });
    let display = query_display(ours, 1, [0, 1000, u32::MAX]);
    vec![
        (ENUMERATE_USERS, numbers(ours, &[0, 0, 4096])),
        (ENUMERATE_GROUPS, numbers(ours, &[0, 4096])),
        (ENUMERATE_ALIASES, numbers(ours, &[0, 4096])),
        (QUERY_DISPLAY_INFORMATION, display.clone()),
        (QUERY_DISPLAY_INFORMATION2, display.clone()),
        (QUERY_DISPLAY_INFORMATION3, display),
        (GET_DISPLAY_ENUMERATION_INDEX, index.clone()),
        (GET_DISPLAY_ENUMERATION_INDEX2, index),
        (GET_MEMBERS_IN_GROUP, encode_handle(group)),
        (GET_MEMBERS_IN_ALIAS, encode_handle(alias)),
    ]
}

#[test]
fn x8_accounts_are_listed_for_administrators_alone() {
    let hiding = |is_administrator| Fixture { is_administrator, hides_accounts: true, ..fixture() };
    let user = hiding(false);
    let mut ends = bound(&INTERFACE, &fixture());
    // The handles were opened before the setting forbade listing accounts, but must obey it as
    // well.
    let before = domain(&mut ends, machine());
    let builtin_before = domain(&mut ends, Sid::BUILTIN);
    let group = account(&mut ends, OPEN_GROUP, &before, 513);
    let alias = account(&mut ends, OPEN_ALIAS, &builtin_before, 544);
    for (opnum, stub) in lists(&before, &group, &alias) {
        let reply = call(&mut ends, opnum, &stub, &user, usize::MAX).unwrap();
        assert_eq!(status(&reply), Status::ACCESS_DENIED, "{opnum}");
        for may in [hiding(true), Fixture { is_administrator: false, ..fixture() }] {
            let reply = call(&mut ends, opnum, &stub, &may, usize::MAX).unwrap();
            assert_eq!(status(&reply), Status::SUCCESS, "{opnum}");
        }
    }
    let server = server(&mut ends);
    let mut open = |opnum, stub: &[u8]| {
        parse_handle_reply(&call(&mut ends, opnum, stub, &user, usize::MAX).unwrap()).unwrap()
    };
    let on_domain = |desired, sid| {
        on(&server, |w| {
            w.u32(desired).sid(&sid);
        })
    };
    // After the change, DOMAIN_LIST_ACCOUNTS, GROUP_LIST_MEMBERS and ALIAS_LIST_MEMBERS are refused
    // to this user.
    assert_eq!(open(OPEN_DOMAIN, &on_domain(0x100, machine())).1, Status::ACCESS_DENIED);
    assert_eq!(open(OPEN_GROUP, &numbers(&before, &[0x10, 513])).1, Status::ACCESS_DENIED);
    assert_eq!(open(OPEN_ALIAS, &numbers(&builtin_before, &[4, 544])).1, Status::ACCESS_DENIED);
    // GENERIC_READ and MAXIMUM_ALLOWED grant the remaining rights that this user may have.
    let mut most = |opnum, stub: &[u8]| {
        let (handle, said) = open(opnum, stub);
        assert_eq!(said, Status::SUCCESS, "{opnum}");
        handle
    };
    most(OPEN_DOMAIN, &on_domain(0x8000_0000, machine()));
    let ours = most(OPEN_DOMAIN, &on_domain(MAXIMUM, machine()));
    let builtin = most(OPEN_DOMAIN, &on_domain(MAXIMUM, Sid::BUILTIN));
    let group = most(OPEN_GROUP, &numbers(&ours, &[MAXIMUM, 513]));
    let alias = most(OPEN_ALIAS, &numbers(&builtin, &[MAXIMUM, 544]));
    let own = most(OPEN_USER, &numbers(&ours, &[MAXIMUM, 1001]));
    let rid = |rid| machine().with_rid(rid).unwrap();
    for (opnum, stub) in lists(&ours, &group, &alias).into_iter().chain([
        // These calls ask for the memberships of other accounts, which are refused to a plain user.
        (GET_ALIAS_MEMBERSHIP, sids_on(&builtin, &[rid(1000)])),
        (GET_ALIAS_MEMBERSHIP, sids_on(&builtin, &[rid(1001), rid(1002)])),
        (GET_ALIAS_MEMBERSHIP, sids_on(&builtin, &[rid(4711)])),
    ]) {
        let reply = call(&mut ends, opnum, &stub, &user, usize::MAX).unwrap();
        assert_eq!(status(&reply), Status::ACCESS_DENIED, "{opnum}");
        let reply = call(&mut ends, opnum, &stub, &hiding(true), usize::MAX).unwrap();
        let by_handle = opnum != GET_ALIAS_MEMBERSHIP;
        assert_eq!(status(&reply) == Status::ACCESS_DENIED, by_handle, "{opnum}");
    }
    // A user may still look up single names and RIDs, and read the data of its own account.
    for (opnum, stub) in [
        (LOOKUP_IDS, numbers(&ours, &[1, 1000, 0, 1, 1000])),
        (QUERY_INFORMATION_USER, class(&own, 21)),
        (GET_GROUPS_FOR_USER, encode_handle(&own)),
        (GET_ALIAS_MEMBERSHIP, sids_on(&builtin, &[rid(1001), rid(513), Sid::EVERYONE])),
        (QUERY_INFORMATION_ALIAS, class(&alias, 1)),
    ] {
        let reply = call(&mut ends, opnum, &stub, &user, usize::MAX).unwrap();
        assert_eq!(status(&reply), Status::SUCCESS, "{opnum}");
    }
    // The security descriptor shows that only Administrators have DOMAIN_LIST_ACCOUNTS.
    let reply = call(&mut ends, QUERY_SECURITY_OBJECT, &numbers(&ours, &[4]), &user, usize::MAX);
    let reply = reply.unwrap();
    let mut r = NdrReader::new(&reply);
    assert!(r.pointer("descriptor").unwrap());
    let length = r.u32("length").unwrap();
    assert!(r.pointer("bytes").unwrap());
    let descriptor = SecurityDescriptor::parse(r.bytes(length, "bytes").unwrap()).unwrap();
    let aces = descriptor.dacl.unwrap().aces;
    let granted: Vec<_> =
        aces.iter().map(|ace| (*ace.sid().unwrap(), ace.mask().unwrap().0)).collect();
    let wanted = [(Sid::AUTHENTICATED_USERS, 0x0002_0285), (Sid::ADMINISTRATORS, 0x0002_0385)];
    assert_eq!(granted, wanted);
}

#[test]
fn names_and_numbers_lead_to_each_other() {
    let mut ends = bound(&INTERFACE, &fixture());
    let ours = domain(&mut ends, machine());
    let names = |names: &[&str]| {
        let count = u32::try_from(names.len()).unwrap();
        on(&ours, |w| {
            w.u32(count).u32(1000).u32(0).u32(count);
            for name in names {
                w.unicode_head(name, 0);
            }
            for name in names {
                w.unicode(name, 0);
            }
        })
    };
    let reply = asked(&mut ends, LOOKUP_NAMES, &names(&["ROOT", "nobody", "None"])).unwrap();
    let found = [Some((1000, SidNameUse::USER)), None, Some((513, SidNameUse::GROUP))];
    assert_eq!(reply, encode_rids(&found, Status::SOME_NOT_MAPPED));
    let reply = asked(&mut ends, LOOKUP_NAMES, &names(&["nobody"])).unwrap();
    assert_eq!(status(&reply), Status::NONE_MAPPED);
    let ids = |count: u32, rids: &[u32]| {
        on(&ours, |w| {
            w.u32(count).u32(1000.max(count)).u32(0).u32(count);
            for rid in rids {
                w.u32(*rid);
            }
        })
    };
    let reply = asked(&mut ends, LOOKUP_IDS, &ids(2, &[1001, 5])).unwrap();
    let found = [Some(("smbuser".into(), SidNameUse::USER)), None];
    assert_eq!(reply, encode_names(&found, Status::SOME_NOT_MAPPED));
    let most = vec![1001; MAX_LOOKUPS];
    let reply = asked(&mut ends, LOOKUP_IDS, &ids(1000, &most)).unwrap();
    assert_eq!(status(&reply), Status::SUCCESS);
    for (opnum, stub) in [
        // The calls are malformed, because a count differs from its list or exceeds its limit, or a
        // field is missing.
        (LOOKUP_IDS, ids(3, &[1, 2])),
        (LOOKUP_IDS, ids(u32::MAX, &[1, 2])),
        (LOOKUP_IDS, ids(1001, &vec![1; 1001])),
        (LOOKUP_NAMES, ids(1000, &[1, 2, 3])),
        (GET_ALIAS_MEMBERSHIP, numbers(&ours, &[0x4000_0000, 1, 0x4000_0000])),
        (ENUMERATE_USERS, numbers(&ours, &[0, 0])),
    ] {
        let mut ends = bound(&INTERFACE, &fixture());
        assert_eq!(asked(&mut ends, opnum, &stub), Err(RpcError::Fault(FaultStatus::NDR)));
        assert!(ends.1.is_closed());
    }
}

#[test]
fn accounts_tell_of_themselves() {
    let mut ends = bound(&INTERFACE, &fixture());
    let ours = domain(&mut ends, machine());
    let user = account(&mut ends, OPEN_USER, &ours, 1002);
    let reply = asked(&mut ends, QUERY_INFORMATION_USER, &class(&user, 21)).unwrap();
    let facts = UserFacts { name: "smbuser2", rid: 1002, primary_group: 513, control: 0x211 };
    assert_eq!(reply, encode_user(UserInformation::ALL, &facts).unwrap());
    for class_number in 0..30 {
        let told = encode_user(UserInformation(class_number), &facts);
        let stub = class(&user, u16::try_from(class_number).unwrap());
        let reply = asked(&mut ends, QUERY_INFORMATION_USER2, &stub).unwrap();
        match told {
            Some(told) => assert_eq!(reply, told),
            None => assert_eq!((reply.len(), status(&reply)), (8, Status::INVALID_INFO_CLASS)),
        }
    }
    let reply = asked(&mut ends, GET_GROUPS_FOR_USER, &encode_handle(&user)).unwrap();
    assert_eq!(reply, encode_groups(Ok(&[513])));
    let group = account(&mut ends, OPEN_GROUP, &ours, 513);
    let reply = asked(&mut ends, GET_MEMBERS_IN_GROUP, &encode_handle(&group)).unwrap();
    assert_eq!(reply, encode_members(Ok(&[1000, 1002, 1001])));
    let reply = asked(&mut ends, QUERY_INFORMATION_GROUP, &class(&group, 1)).unwrap();
    assert_eq!(Some(reply), encode_group(GroupInformation::GENERAL, "None", 3));
    let builtin = domain(&mut ends, Sid::BUILTIN);
    let alias = account(&mut ends, OPEN_ALIAS, &builtin, 544);
    let reply = asked(&mut ends, GET_MEMBERS_IN_ALIAS, &encode_handle(&alias)).unwrap();
    let root = machine().with_rid(1000).unwrap();
    assert_eq!(reply, encode_sids(&[root], Status::SUCCESS));
    let reply = asked(&mut ends, QUERY_INFORMATION_ALIAS, &class(&alias, 1)).unwrap();
    assert_eq!(Some(reply), encode_alias(AliasInformation::GENERAL, "Administrators", 1));
    for (sids, rids) in [(&[root, Sid::EVERYONE][..], &[544][..]), (&[Sid::EVERYONE], &[])] {
        let stub = sids_on(&builtin, sids);
        let reply = asked(&mut ends, GET_ALIAS_MEMBERSHIP, &stub).unwrap();
        assert_eq!(reply, encode_numbers(rids, Status::SUCCESS));
    }
    let reply = asked(&mut ends, QUERY_INFORMATION_DOMAIN2, &class(&ours, 2)).unwrap();
    let facts = DomainFacts { name: "REFERENCE", counts: [3, 1, 0] };
    assert_eq!(Some(reply), encode_domain(DomainInformation::GENERAL, &facts));
    let reply = asked(&mut ends, RID_TO_SID, &numbers(&user, &[7])).unwrap();
    assert_eq!(reply, encode_sid(Ok(machine().with_rid(7).unwrap())));
    let reply = asked(&mut ends, QUERY_SECURITY_OBJECT, &numbers(&user, &[4])).unwrap();
    let mut r = NdrReader::new(&reply);
    assert!(r.pointer("descriptor").unwrap());
    let length = r.u32("length").unwrap();
    assert!(r.pointer("bytes").unwrap());
    let descriptor = SecurityDescriptor::parse(r.bytes(length, "bytes").unwrap()).unwrap();
    assert_eq!(descriptor.owner, None);
    assert_eq!(descriptor.dacl.unwrap().aces[0].sid(), Some(&Sid::AUTHENTICATED_USERS));
    let reply = asked(&mut ends, QUERY_SECURITY_OBJECT, &numbers(&user, &[8])).unwrap();
    assert_eq!(status(&reply), Status::ACCESS_DENIED);
}

#[test]
fn handles_are_good_for_what_they_are_and_were_opened_for() {
    let mut ends = bound(&INTERFACE, &fixture());
    let ours = domain(&mut ends, machine());
    for (opnum, rid, absent) in [
        (OPEN_USER, 513, Status::NO_SUCH_USER),
        (OPEN_GROUP, 1000, Status::NO_SUCH_GROUP),
        (OPEN_ALIAS, 544, Status::NO_SUCH_ALIAS),
    ] {
        let stub = numbers(&ours, &[MAXIMUM, rid]);
        assert_eq!(open(&mut ends, opnum, &stub), (ContextHandle::NULL, absent));
    }
    // The rights USER_FORCE_PASSWORD_CHANGE (0x80) and USER_CHANGE_PASSWORD (0x40) are refused.
    for right in [0x80, 0x40] {
        let said = open(&mut ends, OPEN_USER, &numbers(&ours, &[right, 1000])).1;
        assert_eq!(said, Status::ACCESS_DENIED);
    }
    let user = account(&mut ends, OPEN_USER, &ours, 1000);
    for (opnum, stub) in [
        (ENUMERATE_USERS, numbers(&user, &[0, 0, 4096])),
        (QUERY_INFORMATION_GROUP, class(&user, 1)),
        (QUERY_INFORMATION_USER, class(&ours, 21)),
        (GET_MEMBERS_IN_ALIAS, encode_handle(&user)),
    ] {
        let reply = asked(&mut ends, opnum, &stub).unwrap();
        assert_eq!(status(&reply), Status::OBJECT_TYPE_MISMATCH, "{opnum}");
    }
    // The handle has only DOMAIN_READ_PASSWORD_PARAMETERS, which is not enough for these calls.
    let (weak, said) = open_domain(&mut ends, machine(), 1);
    assert_eq!(said, Status::SUCCESS);
    for (opnum, stub) in [
        (ENUMERATE_USERS, numbers(&weak, &[0, 0, 4096])),
        (OPEN_USER, numbers(&weak, &[MAXIMUM, 1000])),
        (LOOKUP_IDS, numbers(&weak, &[1, 1000, 0, 1, 1000])),
        (GET_ALIAS_MEMBERSHIP, numbers(&weak, &[0, 0])),
        (QUERY_DISPLAY_INFORMATION, query_display(&weak, 1, [0, 1, 1])),
        (QUERY_INFORMATION_DOMAIN, class(&weak, 2)),
        (QUERY_SECURITY_OBJECT, numbers(&weak, &[4])),
    ] {
        assert_eq!(status(&asked(&mut ends, opnum, &stub).unwrap()), Status::ACCESS_DENIED);
    }
    let closed = asked(&mut ends, CLOSE_HANDLE, &encode_handle(&user)).unwrap();
    assert_eq!(parse_handle_reply(&closed), Ok((ContextHandle::NULL, Status::SUCCESS)));
    let mismatch = Err(RpcError::Fault(FaultStatus::CONTEXT_MISMATCH));
    for (opnum, stub) in [
        (CLOSE_HANDLE, encode_handle(&user)),
        (QUERY_INFORMATION_USER, class(&user, 21)),
        (QUERY_SECURITY_OBJECT, numbers(&user, &[4])),
    ] {
        assert_eq!(asked(&mut ends, opnum, &stub), mismatch);
    }
    for _ in 0..MAX_HANDLES {
        let stub = numbers(&ours, &[MAXIMUM, 1000]);
        let (_, said) = open(&mut ends, OPEN_USER, &stub);
        if said == Status::INSUFFICIENT_RESOURCES {
            return;
        }
    }
    panic!("there is no limit");
}

/// Programs ask for the rules before they set a password. There are none.
#[test]
fn the_rules_for_passwords() {
    let mut ends = bound(&INTERFACE, &fixture());
    let none = [0; 12];
    assert_eq!(asked(&mut ends, GET_DOMAIN_PASSWORD_INFORMATION, &[0; 4]).unwrap(), none);
    let on_domain = domain(&mut ends, machine());
    let user = account(&mut ends, OPEN_USER, &on_domain, 1001);
    let asked_of = |ends: &mut Ends, handle: &ContextHandle| {
        asked(ends, GET_USER_DOMAIN_PASSWORD_INFORMATION, &numbers(handle, &[]))
    };
    assert_eq!(asked_of(&mut ends, &user).unwrap(), none);
    assert_ne!(asked_of(&mut ends, &on_domain).ok(), Some(none.to_vec()));
}

/// Tests that calls which change accounts do not exist, but one for the caller's password.
#[test]
fn nothing_can_be_changed() {
    let mut ends = bound(&INTERFACE, &fixture());
    // These operations set descriptors and passwords, create and delete groups and users, or change
    // members. The server has none of them.
    for opnum in [2, 9, 10, 12, 14, 21, 22, 23, 24, 29, 30, 31, 35, 37, 38, 50, 54, 58, 63, 66] {
        let faulted = asked(&mut ends, opnum, &[0; 64]);
        assert_eq!(faulted, Err(RpcError::Fault(FaultStatus::OP_RNG_ERROR)), "{opnum}");
    }
}

/// Random stubs seldom are well-formed changes; this one is.
#[test]
fn a_change_of_a_password_is_answered_by_the_server() {
    let mut ends = bound(&INTERFACE, &fixture());
    let stub = ChangePasswordAes {
        user: "ann".into(),
        auth_data: [1; 64],
        salt: [2; 16],
        cipher: vec![3; 528],
        iterations: 10_000,
    };
    let answer = asked(&mut ends, CHANGE_PASSWORD4, &stub.encode(r"\\frevo")).unwrap();
    assert_eq!(answer, Status::ACCESS_DENIED.0.to_le_bytes());
}

proptest! {
    #[test]
    fn any_stub_is_answered_or_faulted(
        opnum in 0u16..80,
        kind in 0usize..5,
        stub in prop::collection::vec(any::<u8>(), 0..200),
        words in prop::collection::vec(0u32..4, 0..30),
    ) {
        let mut ends = bound(&INTERFACE, &fixture());
        let ours = domain(&mut ends, machine());
        let handles = [
            server(&mut ends),
            ours,
            account(&mut ends, OPEN_USER, &ours, 1000),
            account(&mut ends, OPEN_GROUP, &ours, 513),
            ContextHandle::NULL,
        ];
        let handle = &handles[kind].0[..];
        // The fuzzed arguments are small numbers, which pass more checks than random bytes; then
        // random bytes follow.
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let _ = asked(&mut ends, opnum, &[handle, &words].concat());
        if !ends.1.is_closed() {
            let _ = asked(&mut ends, opnum, &[handle, &stub].concat());
        }
    }
}
