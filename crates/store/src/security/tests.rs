use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::dtyp::{
    AccessMask, Ace, AceBody, AceFlags, AceType, Acl, SdControl, SecurityDescriptor,
    SecurityInformation, Sid,
};
use proptest::prelude::*;

use super::host::{self, HostAcl, HostEntry, Owned, Whose};
use super::inherit::new_object;
use super::set::{Refused, is_canonical, merge};
use super::{Denied, Privileges, Token, check, maximal};

fn user(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
}

const GROUP: u32 = 9;

fn token(rid: u32) -> Token {
    Token::new(user(rid), user(513), Token::WELL_KNOWN, Privileges::EMPTY)
}

fn member(rid: u32) -> Token {
    let groups = Token::WELL_KNOWN.into_iter().chain([user(GROUP)]);
    Token::new(user(rid), user(513), groups, Privileges::EMPTY)
}

fn of(owner: Sid, aces: Vec<Ace>) -> SecurityDescriptor {
    SecurityDescriptor {
        control: SdControl::SELF_RELATIVE | SdControl::DACL_PRESENT,
        owner: Some(owner),
        group: Some(user(513)),
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    }
}

const READ: AccessMask = AccessMask::FILE_GENERIC_READ;
const NONE: AceFlags = AceFlags::EMPTY;

#[test]
fn no_list_protects_nothing_and_an_empty_one_everything() {
    let mut open = of(user(1), Vec::new());
    assert_eq!(maximal(&open, &token(2)), AccessMask::EMPTY);
    open.dacl = None;
    assert_eq!(maximal(&open, &token(2)), AccessMask::FILE_ALL);
    open.control = SdControl::SELF_RELATIVE;
    assert_eq!(check(&open, &token(2), AccessMask::FILE_ALL), Ok(AccessMask::FILE_ALL));
}

#[test]
fn owners_may_read_and_change_the_list_unless_it_says_what_they_may() {
    let implied = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    assert_eq!(maximal(&of(user(1), Vec::new()), &token(1)), implied);
    let rights = |ace| maximal(&of(user(1), vec![ace]), &token(1));
    let only = Ace::allow(NONE, AccessMask::READ_DATA, Sid::OWNER_RIGHTS);
    assert_eq!(rights(only), AccessMask::READ_DATA);
    let deny = Ace::deny(NONE, AccessMask::WRITE_DAC, Sid::OWNER_RIGHTS);
    assert_eq!(rights(deny), AccessMask::EMPTY);
    let later = Ace::allow(AceFlags::INHERIT_ONLY, AccessMask::READ_DATA, Sid::OWNER_RIGHTS);
    assert_eq!(rights(later), implied);
    // The entry OWNER RIGHTS is only for the owner, so it gives nothing to user 2.
    let only = Ace::allow(NONE, AccessMask::FILE_ALL, Sid::OWNER_RIGHTS);
    assert_eq!(maximal(&of(user(1), vec![only]), &token(2)), AccessMask::EMPTY);
}

#[test]
fn the_first_entry_that_speaks_of_a_right_decides() {
    let allow = Ace::allow(NONE, READ, user(GROUP));
    let deny = Ace::deny(NONE, AccessMask::READ_DATA, user(2));
    let first = of(user(1), vec![deny.clone(), allow.clone()]);
    assert!(check(&first, &member(2), AccessMask::READ_DATA).is_err());
    assert_eq!(maximal(&first, &member(2)), READ.without(AccessMask::READ_DATA));
    let last = of(user(1), vec![allow, deny]);
    assert_eq!(check(&last, &member(2), AccessMask::READ_DATA), Ok(AccessMask::READ_DATA));
    assert_eq!(maximal(&last, &member(2)), READ);
    assert_eq!(maximal(&last, &token(2)), AccessMask::EMPTY);
}

#[test]
fn privileges() {
    let closed = of(user(1), Vec::new());
    let system = AccessMask::ACCESS_SYSTEM_SECURITY;
    let refused = check(&closed, &token(1), system | AccessMask::READ_CONTROL);
    assert_eq!(refused, Err(Denied { lacks_privilege: true, missing: system }));
    let every = Privileges::SECURITY | Privileges::TAKE_OWNERSHIP;
    let powerful = Token::new(user(2), user(513), [], every);
    assert_eq!(check(&closed, &powerful, system), Ok(system));
    let taken = AccessMask::WRITE_OWNER;
    assert_eq!(check(&closed, &powerful, taken), Ok(taken));
    assert_eq!(maximal(&closed, &powerful), taken);
    assert!(check(&closed, &powerful, AccessMask::READ_CONTROL).is_err());
}

#[test]
fn unknown_conditions_deny_and_do_not_allow() {
    let callback = |kind| {
        let body = AceBody::Plain { mask: READ, sid: Sid::EVERYONE, data: b"artx".to_vec() };
        Ace { kind, flags: NONE, body }
    };
    let everyone = Ace::allow(NONE, READ, Sid::EVERYONE);
    let rights = |aces| maximal(&of(user(1), aces), &token(2));
    assert_eq!(rights(vec![callback(AceType::ACCESS_ALLOWED_CALLBACK)]), AccessMask::EMPTY);
    let denied = vec![callback(AceType::ACCESS_DENIED_CALLBACK), everyone];
    assert_eq!(rights(denied), AccessMask::EMPTY);
}

#[test]
fn a_child_inherits_what_is_for_its_kind() {
    let (oi, ci) = (AceFlags::OBJECT_INHERIT, AceFlags::CONTAINER_INHERIT);
    let (np, io) = (AceFlags::NO_PROPAGATE_INHERIT, AceFlags::INHERIT_ONLY);
    // Each row has the flags of three entries: the parent's, the one that a new file inherits, and
    // the one that a new directory inherits.
    let table = [
        (NONE, None, None),
        (np, None, None),
        (oi, Some(NONE), Some(oi | io)),
        (oi | io, Some(NONE), Some(oi | io)),
        (oi | np, Some(NONE), None),
        (ci, None, Some(ci)),
        (ci | io, None, Some(ci)),
        (ci | np, None, Some(NONE)),
        (oi | ci, Some(NONE), Some(oi | ci)),
        (oi | ci | io, Some(NONE), Some(oi | ci)),
        (oi | ci | np, Some(NONE), Some(NONE)),
        (oi | ci | np | io, Some(NONE), Some(NONE)),
    ];
    for (flags, file, directory) in table {
        for (is_directory, wanted) in [(false, file), (true, directory)] {
            let mut parent = of(user(1), vec![Ace::allow(flags, READ, user(7))]);
            for mark in [NONE, AceFlags::INHERITED] {
                if !mark.is_empty() {
                    parent.control |= SdControl::DACL_AUTO_INHERITED;
                }
                let made = new_object(&parent, None, &token(2), is_directory).unwrap();
                assert_eq!(made.owner, Some(user(2)));
                let aces = made.dacl.unwrap().aces;
                match wanted {
                    Some(wanted) => {
                        assert_eq!(aces, [Ace::allow(wanted | mark, READ, user(7))], "{flags:?}");
                    }
                    None => {
                        let full = |sid| Ace::allow(NONE, AccessMask::FILE_ALL, sid);
                        assert_eq!(aces, [full(user(2)), full(Sid::LOCAL_SYSTEM)], "{flags:?}");
                    }
                }
            }
        }
    }
}

/// The flags of an entry in a child, by its flags in the parent: in a file, in a directory; MS-DTYP
/// 2.5.3.4.4. OI 1, CI 2, NP 4; IO 8 does not affect the child.
const PASSED_ON: [(u8, Option<u8>, Option<u8>); 8] = [
    (0, None, None),
    (1, Some(0), Some(9)),
    (2, None, Some(2)),
    (3, Some(0), Some(3)),
    (4, None, None),
    (5, Some(0), None),
    (6, None, Some(0)),
    (7, Some(0), Some(0)),
];

#[test]
fn every_combination_of_inheritance_flags() {
    let audit = 0x40;
    for (flags, to_file, to_directory) in PASSED_ON {
        for (inherit_only, audited, automatic) in
            (0..8).map(|n| (n & 1 != 0, n & 2 != 0, n & 4 != 0))
        {
            let audit_flags = if audited { audit } else { 0 };
            let mark = if automatic { 0x10 } else { 0 };
            let flags = flags | if inherit_only { 8 } else { 0 } | audit_flags;
            let given = [user(7), Sid::CREATOR_OWNER, Sid::CREATOR_GROUP];
            let mut parent = of(
                user(1),
                given.iter().map(|sid| Ace::allow(AceFlags(flags), READ, *sid)).collect(),
            );
            if automatic {
                parent.control |= SdControl::DACL_AUTO_INHERITED;
            }
            for (is_directory, passed) in [(false, to_file), (true, to_directory)] {
                let made = new_object(&parent, None, &token(2), is_directory).unwrap();
                let ace =
                    |flags: u8, sid| Ace::allow(AceFlags(flags | audit_flags | mark), READ, sid);
                let mut expected = Vec::new();
                for (sid, heir) in given.iter().zip([user(7), user(2), user(513)]) {
                    match passed {
                        None => {}
                        // 9 means inherit-only. The entry has no effect on this object, so its SID
                        // is not replaced by the creator's.
                        Some(9) => expected.push(ace(9, *sid)),
                        Some(0) => expected.push(ace(0, heir)),
                        Some(on) if *sid == heir => expected.push(ace(on, heir)),
                        Some(on) => expected.extend([ace(0, heir), ace(on | 8, *sid)]),
                    }
                }
                let aces = made.dacl.unwrap().aces;
                let inherits = passed.is_some();
                if inherits {
                    assert_eq!(aces, expected, "{flags:#x} {is_directory}");
                } else {
                    // No entry is inherited, so the list is the creator's default one
                    // (SecurityContext.DefaultDACL).
                    assert_eq!(aces[0], Ace::allow(NONE, AccessMask::FILE_ALL, user(2)));
                }
                let is_marked = made.control.contains(SdControl::DACL_AUTO_INHERITED);
                assert_eq!(is_marked, automatic && inherits, "{flags:#x} {is_directory}");
                // The request's DACL gets no inherited entries, because it is protected or does not
                // ask for them.
                for control in [
                    SdControl::DACL_PROTECTED | SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED,
                    SdControl::DACL_PROTECTED,
                    SdControl::EMPTY,
                ] {
                    let mut own = of(user(2), vec![Ace::allow(NONE, READ, user(5))]);
                    own.control |= control;
                    let made = new_object(&parent, Some(&own), &token(2), is_directory).unwrap();
                    assert_eq!(made.dacl, own.dacl, "{flags:#x} {control:?}");
                    let protected = SdControl::DACL_PROTECTED;
                    assert_eq!(made.control & protected, own.control & protected);
                }
            }
        }
    }
}

#[test]
fn creators_become_the_owner_and_stay_creators_for_the_next() {
    let both = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let parent = of(
        user(1),
        vec![
            Ace::allow(both | AceFlags::INHERIT_ONLY, AccessMask::GENERIC_ALL, Sid::CREATOR_OWNER),
            Ace::allow(both | AceFlags::INHERIT_ONLY, READ, Sid::CREATOR_GROUP),
        ],
    );
    let file = new_object(&parent, None, &token(2), false).unwrap();
    assert_eq!(
        file.dacl.unwrap().aces,
        [Ace::allow(NONE, AccessMask::FILE_ALL, user(2)), Ace::allow(NONE, READ, user(513))]
    );
    let directory = new_object(&parent, None, &token(2), true).unwrap();
    let later = both | AceFlags::INHERIT_ONLY;
    assert_eq!(
        directory.dacl.unwrap().aces,
        [
            Ace::allow(NONE, AccessMask::FILE_ALL, user(2)),
            Ace::allow(later, AccessMask::FILE_ALL, Sid::CREATOR_OWNER),
            Ace::allow(NONE, READ, user(513)),
            Ace::allow(later, READ, Sid::CREATOR_GROUP),
        ]
    );
}

#[test]
fn a_descriptor_of_the_request_is_stored() {
    let parent = of(user(1), vec![Ace::allow(AceFlags::OBJECT_INHERIT, READ, user(7))]);
    let mut given = of(user(2), vec![Ace::allow(NONE, AccessMask::GENERIC_READ, user(2))]);
    given.control |= SdControl::DACL_PROTECTED;
    let made = new_object(&parent, Some(&given), &token(2), false).unwrap();
    assert_eq!(made.dacl.unwrap().aces, [Ace::allow(NONE, READ, user(2))]);
    assert!(made.control.contains(SdControl::DACL_PROTECTED));
    // The request's DACL asks for inheritance, so the parent's entries are added to its own.
    given.control = SdControl::DACL_PRESENT | SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED;
    let made = new_object(&parent, Some(&given), &token(2), false).unwrap();
    assert_eq!(made.dacl.unwrap().aces.len(), 2);
    given.owner = Some(user(3));
    assert_eq!(new_object(&parent, Some(&given), &token(2), false), Err(Refused::Owner));
    let restore = Token::new(user(2), user(513), [], Privileges::RESTORE);
    assert!(new_object(&parent, Some(&given), &restore, false).is_ok());
}

/// Tests which owners a user may set. MS-FSA 2.1.5.17.
#[test]
fn an_object_is_given_to_oneself_to_ones_groups_and_with_a_privilege_to_anybody() {
    let plain = member(2);
    let restore = Token::new(user(2), user(513), [], Privileges::RESTORE);
    let taker = Token::new(user(2), user(513), [], Privileges::TAKE_OWNERSHIP);
    let cases = [
        (user(2), [true, true, true]),
        (user(GROUP), [true, true, false]),
        (user(513), [true, true, true]),
        (Sid::EVERYONE, [true, true, false]),
        (user(3), [false, true, false]),
        (Sid::ADMINISTRATORS, [false, true, false]),
        (Sid::OWNER_RIGHTS, [false, true, false]),
    ];
    let old = of(user(2), Vec::new());
    for (owner, may) in cases {
        let new = SecurityDescriptor { owner: Some(owner), ..old.clone() };
        for (token, may) in [&plain, &restore, &taker].into_iter().zip(may) {
            let given = merge(&old, &new, SecurityInformation::OWNER, token).map(|new| new.owner);
            let made = new_object(&old, Some(&new), token, false).map(|new| new.owner);
            let expected = if may { Ok(Some(owner)) } else { Err(Refused::Owner) };
            assert_eq!((given, made), (expected, expected), "{owner} {token:?}");
        }
    }
}

#[test]
fn only_the_named_parts_are_set() {
    let old = of(user(1), vec![Ace::allow(NONE, READ, user(1))]);
    let mut new = of(user(2), vec![Ace::allow(NONE, AccessMask::GENERIC_ALL, user(2))]);
    new.control |= SdControl::DACL_AUTO_INHERITED;
    let set = |parts, token: &Token| merge(&old, &new, parts, token);
    let dacl = set(SecurityInformation::DACL, &token(1)).unwrap();
    assert_eq!((dacl.owner, dacl.group), (old.owner, old.group));
    let full = Ace::allow(NONE, AccessMask::FILE_ALL, user(2));
    assert_eq!(dacl.dacl.clone().unwrap().aces, [full]);
    // The new descriptor does not ask for inheritance, so AUTO_INHERITED is cleared.
    assert!(!dacl.control.contains(SdControl::DACL_AUTO_INHERITED));
    assert_eq!(set(SecurityInformation::OWNER, &token(1)), Err(Refused::Owner));
    let taken = set(SecurityInformation::OWNER, &token(2)).unwrap();
    assert_eq!((taken.owner, taken.dacl), (Some(user(2)), old.dacl.clone()));
    new.control |= SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED;
    let merged = merge(&old, &new, SecurityInformation::DACL, &token(1)).unwrap();
    assert!(merged.control.contains(SdControl::DACL_AUTO_INHERITED));
    let asked = SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED;
    assert!(!merged.control.contains(asked));
    new.owner = None;
    assert_eq!(merge(&old, &new, SecurityInformation::OWNER, &token(1)), Err(Refused::Owner));
}

#[test]
fn labels_are_set_beside_the_audit_entries() {
    let plain = |kind, sid| {
        let body = AceBody::Plain { mask: AccessMask(1), sid, data: Vec::new() };
        Ace { kind, flags: NONE, body }
    };
    let audit = plain(AceType::SYSTEM_AUDIT, Sid::EVERYONE);
    let label = |level| plain(AceType::SYSTEM_MANDATORY_LABEL, Sid::new(16, &[level]).unwrap());
    let mut old = of(user(1), Vec::new());
    old.sacl = Some(Acl::new(vec![label(4096), audit.clone()]));
    let mut new = of(user(1), Vec::new());
    new.sacl = Some(Acl::new(vec![label(8192)]));
    let merged = merge(&old, &new, SecurityInformation::LABEL, &token(1)).unwrap();
    assert_eq!(merged.sacl.unwrap().aces, [audit, label(8192)]);
}

#[test]
fn canonical_order() {
    let (allow, deny) = (Ace::allow(NONE, READ, user(1)), Ace::deny(NONE, READ, user(1)));
    let inherited = Ace::deny(AceFlags::INHERITED, READ, user(1));
    let ordered = vec![deny.clone(), allow.clone(), inherited.clone()];
    assert!(is_canonical(&Acl::new(ordered)));
    assert!(!is_canonical(&Acl::new(vec![allow.clone(), deny])));
    assert!(!is_canonical(&Acl::new(vec![inherited, allow])));
}

#[test]
fn a_posix_list_shows_with_its_mask_and_its_defaults() {
    let entry = |whose, bits| HostEntry { whose, bits };
    let acl = HostAcl {
        access: vec![
            entry(Whose::Owner, 7),
            entry(Whose::User(1001), 6),
            entry(Whose::OwningGroup, 7),
            entry(Whose::Group(2002), 5),
            entry(Whose::Mask, 4),
            entry(Whose::Other, 0),
        ],
        default: vec![entry(Whose::Owner, 7), entry(Whose::Other, 4)],
    };
    let (owner, group) = (Sid::unix_user(1000), Sid::unix_group(1000));
    let owned = Owned { mode: 0o740, owner, group, is_directory: true, uid: 1000 };
    let flags = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT | AceFlags::INHERIT_ONLY;
    assert_eq!(
        host::descriptor(&owned, &acl).dacl.unwrap().aces,
        [
            Ace::allow(NONE, AccessMask::FILE_ALL, owner),
            Ace::allow(NONE, READ, Sid::unix_user(1001)),
            Ace::allow(NONE, READ, group),
            Ace::allow(NONE, READ, Sid::unix_group(2002)),
            Ace::allow(flags, AccessMask::FILE_ALL, Sid::CREATOR_OWNER),
            Ace::allow(flags, READ, Sid::EVERYONE),
        ]
    );
}

/// Whatever the bits are, the owner keeps what it may do on the host, also when the list that it sees is
/// stored: WRITE_OWNER is implied by no list.
#[test]
fn the_list_shows_what_the_host_leaves_to_the_owner() {
    let owner = user(1);
    for bits in 0..8_u32 {
        let owned = Owned {
            mode: bits << 6 | 0o44,
            owner,
            group: Sid::unix_group(2),
            is_directory: false,
            uid: 1,
        };
        let shown = host::descriptor(&owned, &HostAcl::default());
        let asked = AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER | AccessMask::WRITE_ATTRIBUTES;
        assert!(check(&shown, &token(1), asked).is_ok(), "{bits}");
        assert!(check(&shown, &token(2), AccessMask::WRITE_OWNER).is_err(), "{bits}");
        let data = AccessMask::WRITE_DATA;
        assert_eq!(check(&shown, &token(1), data).is_ok(), bits & 2 != 0, "{bits}");
    }
}

/// One entry of a simple list: (allows, subject, bits, for children only).
type Simple = (bool, usize, u32, bool);

const WHOM: usize = 4;

/// 0 the user, 1 a group of the user, 2 another user, 3 everyone.
fn whom(index: usize) -> Sid {
    match index {
        0 => user(1),
        1 => user(GROUP),
        2 => user(2),
        _ => Sid::EVERYONE,
    }
}

/// A simple model: for each bit, the first entry that names the user and the bit decides.
fn model(list: &[Simple], bit: u32, owns: bool) -> bool {
    let implied = (AccessMask::READ_CONTROL | AccessMask::WRITE_DAC).0;
    if owns && implied & bit != 0 {
        return true;
    }
    list.iter()
        .find(|(_, whom, bits, later)| !later && *whom != 2 && bits & bit != 0)
        .is_some_and(|(allows, ..)| *allows)
}

proptest! {
    #[test]
    fn the_check_agrees_with_the_model(
        list in proptest::collection::vec(
            (any::<bool>(), 0..WHOM, any::<u32>().prop_map(|m| m & AccessMask::FILE_ALL.0),
             proptest::bool::weighted(0.2)), 0..8),
        owns in any::<bool>(),
        desired in any::<u32>().prop_map(|m| m & AccessMask::FILE_ALL.0),
    ) {
        let aces = list.iter().map(|&(allows, index, bits, later)| {
            let flags = if later { AceFlags::INHERIT_ONLY } else { NONE };
            let make = if allows { Ace::allow } else { Ace::deny };
            make(flags, AccessMask(bits), whom(index))
        });
        let descriptor = of(if owns { user(1) } else { user(3) }, aces.collect());
        let bits = (0..32).map(|n| 1u32 << n).filter(|bit| AccessMask::FILE_ALL.0 & bit != 0);
        let all = bits.filter(|bit| model(&list, *bit, owns)).sum::<u32>();
        prop_assert_eq!(maximal(&descriptor, &member(1)), AccessMask(all));
        let granted = check(&descriptor, &member(1), AccessMask(desired));
        if desired & !all == 0 {
            prop_assert_eq!(granted, Ok(AccessMask(desired)));
        } else {
            let missing = AccessMask(desired & !all);
            prop_assert_eq!(granted, Err(Denied { lacks_privilege: false, missing }));
        }
        let most = AccessMask(desired) | AccessMask::MAXIMUM_ALLOWED;
        prop_assert_eq!(check(&descriptor, &member(1), most).is_ok(), desired & !all == 0);
    }

    /// Tests that a mode survives conversion to a descriptor and back where POSIX and Windows
    /// agree: nobody has fewer rights than everyone.
    #[test]
    fn modes_go_there_and_back(owner in 0u32..8, group in 0u32..8, other in 0u32..8, dir in any::<bool>()) {
        let mode = (owner | group | other) << 6 | (group | other) << 3 | other;
        let (owner, group) = (Sid::unix_user(1), Sid::unix_group(2));
        let owned = Owned { mode, owner, group, is_directory: dir, uid: 1 };
        let descriptor = host::descriptor(&owned, &HostAcl::default());
        prop_assert_eq!(host::mode(&descriptor), mode);
    }

    /// Tests that inheritance adds no entry that the parent does not have for children, and no
    /// right that no entry names.
    #[test]
    fn inheritance_invents_nothing(
        list in proptest::collection::vec((any::<bool>(), 0..WHOM, any::<u32>(), 0u8..16), 0..8),
        is_directory in any::<bool>(),
    ) {
        let aces: Vec<Ace> = list.iter().map(|&(allows, index, bits, flags)| {
            let make = if allows { Ace::allow } else { Ace::deny };
            make(AceFlags(flags), AccessMask(bits & AccessMask::FILE_ALL.0), whom(index))
        }).collect();
        let kind = if is_directory { AceFlags::CONTAINER_INHERIT } else { AceFlags::OBJECT_INHERIT };
        let effective: Vec<_> = aces.iter().filter(|ace| ace.flags.contains(kind))
            .map(|ace| (ace.kind, ace.mask(), ace.sid().copied())).collect();
        let made = new_object(&of(user(1), aces), None, &token(8), is_directory).unwrap();
        let got: Vec<_> = made.dacl.unwrap().aces.iter()
            .filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY))
            .map(|ace| (ace.kind, ace.mask(), ace.sid().copied())).collect();
        let inherits = list.iter().any(|(.., flags)| {
            let flags = AceFlags(*flags);
            flags.contains(kind) || (is_directory && flags.contains(AceFlags::OBJECT_INHERIT)
                && !flags.contains(AceFlags::NO_PROPAGATE_INHERIT))
        });
        if inherits {
            prop_assert_eq!(got, effective);
        } else {
            prop_assert_eq!(got.len(), 2);
        }
    }
}
