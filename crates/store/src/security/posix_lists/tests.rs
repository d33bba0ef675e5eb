use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, Sid};
use proptest::prelude::*;

use super::*;
use crate::security::inherit::new_object;
use crate::security::{Privileges, host, maximal};

const READ: AccessMask = AccessMask::FILE_GENERIC_READ;
const WRITE: AccessMask = AccessMask::FILE_GENERIC_WRITE;
const RUN: AccessMask = AccessMask::FILE_GENERIC_EXECUTE;
const ALL: AccessMask = AccessMask::FILE_ALL;
const HERE: AceFlags = AceFlags::EMPTY;
const BELOW: AceFlags = AceFlags(AceFlags::OBJECT_INHERIT.0 | AceFlags::CONTAINER_INHERIT.0);

/// The user who sets the lists.
const ANN: u32 = 1;
const BOB: u32 = 2;
const STAFF: u32 = 11;
/// The group of the object.
const GROUP: u32 = 10;

fn modify() -> AccessMask {
    READ | WRITE | RUN | AccessMask::DELETE
}

/// Users and groups of the host by number, SIDs below S-1-5-21 that no host knows.
fn identify(sid: &Sid) -> Identity {
    match (sid.authority(), sid.sub_authorities()) {
        (22, [1, uid]) => Identity::User(*uid),
        (22, [2, gid]) => Identity::Group(*gid),
        (1, _) | (5, [11]) => Identity::Everyone,
        (5, [18]) => Identity::Nobody,
        _ => Identity::Unknown,
    }
}

fn user(uid: u32) -> Sid {
    Sid::unix_user(uid)
}

fn group(gid: u32) -> Sid {
    Sid::unix_group(gid)
}

fn stranger() -> Sid {
    Sid::new(5, &[21, 7, 8, 9, 1_000]).unwrap()
}

fn token(uid: u32, groups: &[u32]) -> Token {
    let sids = Token::WELL_KNOWN.into_iter().chain(groups.iter().map(|gid| group(*gid)));
    let primary = groups.first().map_or(Sid::ANONYMOUS, |gid| group(*gid));
    Token::new(user(uid), primary, sids, Privileges::EMPTY)
}

fn of(owner: Sid, aces: Vec<Ace>) -> SecurityDescriptor {
    SecurityDescriptor {
        control: SdControl::SELF_RELATIVE | SdControl::DACL_PRESENT,
        owner: Some(owner),
        group: Some(group(GROUP)),
        dacl: Some(Acl::new(aces)),
        ..SecurityDescriptor::default()
    }
}

fn file_of(uid: u32, gid: u32, is_directory: bool) -> Protected<'static> {
    Protected { uid, gid, is_directory, keeps_group: false, user: None }
}

/// The lists of an object of Ann, who sets them, as getfacl has them.
fn lists(aces: Vec<Ace>, is_directory: bool) -> [alloc::string::String; 2] {
    let ann = token(ANN, &[GROUP]);
    let object = Protected { user: Some((ANN, &ann)), ..file_of(ANN, GROUP, is_directory) };
    let nearest = nearest(&of(user(ANN), aces), &object, &identify);
    [text(&nearest.lists.access, nearest.mode), text(&nearest.lists.default, 0)]
}

fn text(list: &[HostEntry], mode: u32) -> alloc::string::String {
    if list.is_empty() {
        return alloc::format!("{mode:o}");
    }
    let entry = |entry: &HostEntry| {
        let bits = entry.bits;
        match entry.whose {
            Whose::Owner => alloc::format!("u:{bits}"),
            Whose::User(uid) => alloc::format!("u{uid}:{bits}"),
            Whose::OwningGroup => alloc::format!("g:{bits}"),
            Whose::Group(gid) => alloc::format!("g{gid}:{bits}"),
            Whose::Mask => alloc::format!("m:{bits}"),
            Whose::Other => alloc::format!("o:{bits}"),
        }
    };
    list.iter().map(entry).collect::<Vec<_>>().join(" ")
}

#[test]
fn files_have_the_nearest_list() {
    let allow = |mask, sid| Ace::allow(HERE, mask, sid);
    let deny = |mask, sid| Ace::deny(HERE, mask, sid);
    let own = || allow(ALL, user(ANN));
    for (aces, list) in [
        (vec![own()], "700"),
        (vec![own(), allow(READ, Sid::EVERYONE)], "744"),
        (vec![own(), allow(READ, group(GROUP))], "740"),
        (vec![own(), allow(READ, user(BOB))], "u:7 u2:4 g:0 m:4 o:0"),
        (vec![own(), allow(modify(), group(STAFF))], "u:7 g:0 g11:7 m:7 o:0"),
        (
            vec![own(), allow(RUN, user(BOB)), allow(READ, group(STAFF))],
            "u:7 u2:1 g:0 g11:4 m:5 o:0",
        ),
        // Write takes both rights.
        (vec![own(), allow(AccessMask::WRITE_DATA, user(BOB))], "u:7 u2:0 g:0 m:0 o:0"),
        (vec![own(), allow(AccessMask::APPEND_DATA, user(BOB))], "u:7 u2:0 g:0 m:0 o:0"),
        (vec![allow(READ, user(ANN))], "400"),
        (vec![allow(READ, Sid::OWNER_RIGHTS)], "400"),
        (vec![allow(AccessMask::GENERIC_READ, user(ANN))], "400"),
        // Nobody on the host is the system, and an entry for creators is for new objects.
        (vec![own(), allow(ALL, Sid::LOCAL_SYSTEM), allow(ALL, Sid::CREATOR_OWNER)], "700"),
        (vec![own(), Ace::allow(BELOW | AceFlags::INHERIT_ONLY, ALL, user(BOB))], "700"),
        // The entry that comes first counts.
        (vec![deny(WRITE, user(BOB)), own(), allow(ALL, Sid::EVERYONE)], "u:7 u2:5 g:7 m:7 o:7"),
        (vec![own(), allow(ALL, Sid::EVERYONE), deny(WRITE, user(BOB))], "u:7 u2:7 g:7 m:7 o:7"),
        // Bob may be of the staff, and so may members of the group; Ann is not.
        (
            vec![deny(WRITE, group(STAFF)), own(), allow(ALL, user(BOB)), allow(ALL, group(GROUP))],
            "u:7 u2:5 g:5 g11:0 m:5 o:0",
        ),
        (vec![deny(WRITE, stranger()), own(), allow(ALL, Sid::EVERYONE)], "755"),
        (vec![own(), allow(ALL, stranger())], "700"),
        (vec![], "0"),
    ] {
        assert_eq!(lists(aces.clone(), false)[0], list, "{aces:?}");
    }
}

#[test]
fn directories_pass_the_nearest_list_on() {
    let allow = |mask, sid| Ace::allow(BELOW, mask, sid);
    let only = |mask, sid| Ace::allow(BELOW | AceFlags::INHERIT_ONLY, mask, sid);
    let own = || allow(ALL, user(ANN));
    let creator = || only(ALL, Sid::CREATOR_OWNER);
    for (aces, here, below) in [
        (vec![Ace::allow(HERE, ALL, user(ANN))], "700", "0"),
        (
            vec![own(), allow(modify(), group(STAFF))],
            "u:7 g:0 g11:7 m:7 o:0",
            "u:7 u1:7 g:0 g11:7 m:7 o:0",
        ),
        (vec![creator(), allow(READ, Sid::EVERYONE)], "444", "u:7 g:4 o:4"),
        (
            vec![own(), creator(), only(READ, Sid::CREATOR_GROUP), allow(READ | RUN, user(BOB))],
            "u:7 u2:5 g:0 m:5 o:0",
            "u:7 u1:7 u2:5 g:4 m:7 o:0",
        ),
        // An object that a member of the staff makes belongs to that member, who may only read it.
        (
            vec![own(), Ace::allow(HERE, ALL, group(STAFF)), only(READ, group(STAFF))],
            "u:7 g:0 g11:7 m:7 o:0",
            "u:4 u1:7 g:0 g11:4 m:7 o:0",
        ),
        // A right for files or for directories alone is no right for both.
        (
            vec![own(), Ace::allow(AceFlags::OBJECT_INHERIT, ALL, user(BOB))],
            "u:7 u2:7 g:0 m:7 o:0",
            "u:0 u1:7 u2:0 g:0 m:7 o:0",
        ),
        // A right that ends with the first level is none for the levels below.
        (
            vec![own(), Ace::allow(BELOW | AceFlags::NO_PROPAGATE_INHERIT, ALL, group(STAFF))],
            "u:7 g:0 g11:7 m:7 o:0",
            "u:0 u1:7 g:0 m:7 o:0",
        ),
        // Bob cannot create objects here, so the owner of a new object has all rights.
        (
            vec![
                Ace::deny(BELOW | AceFlags::NO_PROPAGATE_INHERIT, WRITE, user(BOB)),
                own(),
                allow(ALL, Sid::EVERYONE),
            ],
            "u:7 u2:5 g:7 m:7 o:7",
            "u:7 u1:7 u2:5 g:7 m:7 o:7",
        ),
        // Write would include the removal of entries.
        (
            vec![
                Ace::deny(HERE, AccessMask::DELETE_CHILD, user(BOB)),
                Ace::allow(HERE, modify(), Sid::EVERYONE),
            ],
            "u:7 u2:5 g:7 m:7 o:7",
            "0",
        ),
    ] {
        assert_eq!(lists(aces.clone(), true), [here, below], "{aces:?}");
    }
}

#[test]
fn without_a_list_everybody_has_all() {
    let object = file_of(ANN, GROUP, true);
    let open = SecurityDescriptor { dacl: None, ..of(user(ANN), Vec::new()) };
    let nearest = nearest(&open, &object, &identify);
    assert_eq!(nearest, Nearest { mode: 0o777, ..Nearest::default() });
}

/// The owner whose groups are not known has the rights of the entries for the owner and everyone.
#[test]
fn unknown_sids_and_owners() {
    let aces = vec![
        Ace::deny(HERE, WRITE, group(STAFF)),
        Ace::allow(HERE, ALL, group(GROUP)),
        Ace::allow(HERE, READ | WRITE, user(ANN)),
        Ace::allow(HERE, READ, stranger()),
        Ace::allow(BELOW | AceFlags::INHERIT_ONLY, READ, stranger()),
        Ace::deny(HERE, RUN, Sid::ADMINISTRATORS),
    ];
    let object = file_of(ANN, GROUP, false);
    let nearest = nearest(&of(user(ANN), aces), &object, &identify);
    assert_eq!(nearest.unknown, [stranger()]);
    assert_eq!(text(&nearest.lists.access, 0), "u:4 g:5 g11:0 m:5 o:0");
    // Without lists nobody of the group or of the others has more than the staff or the group.
    assert_eq!(nearest.mode, 0o450);
    assert!(nearest.lists.names_others());
}

/// A domain's number whose kind nobody knows is both a user's and a group's.
#[test]
fn numbers_of_either_kind() {
    let either = |sid: &Sid| match identify(sid) {
        Identity::Unknown => Identity::Either(5),
        known => known,
    };
    let object = file_of(ANN, GROUP, false);
    let list = |aces| text(&nearest(&of(user(ANN), aces), &object, &either).lists.access, 0);
    let own = || Ace::allow(HERE, ALL, user(ANN));
    assert_eq!(list(vec![own(), Ace::allow(HERE, READ, stranger())]), "u:7 u5:4 g:0 g5:4 m:4 o:0");
    let denied = vec![Ace::deny(HERE, WRITE, stranger()), own()];
    assert_eq!(list(denied), "u:5 u5:0 g:0 g5:0 m:0 o:0");
}

/// A list that was made by hand, shown to a client and set by it, stays as it is.
#[test]
fn lists_of_the_host_come_back() {
    for bits in [
        [7, 5, 4, 7, 7, 0],
        // In these lists some users have fewer rights than everyone else.
        [7, 0, 5, 5, 5, 5],
        [7, 0, 0, 4, 4, 5],
        [6, 7, 4, 0, 7, 4],
        [7, 4, 7, 0, 7, 7],
        [7, 0, 7, 4, 7, 0],
    ] {
        comes_back(&HostAcl { access: by_hand(bits), default: Vec::new() }, false);
        let access = by_hand([7, 5, 5, 5, 5, 5]);
        comes_back(&HostAcl { access, default: by_hand(bits) }, true);
    }
    comes_back(&HostAcl { access: by_hand([7, 2, 0, 1, 3, 7]), default: Vec::new() }, false);
    let same = [7, 0, 7, 5, 7, 5];
    comes_back(&HostAcl { access: by_hand(same), default: by_hand(same) }, true);
    let owner = HostEntry { whose: Whose::User(ANN), bits: 0 };
    let access = by_hand([7, 5, 5, 5, 5, 5]).into_iter().chain([owner]).collect();
    let acl = HostAcl { access, default: Vec::new() };
    let shown = host::descriptor(&owned(0o775, false), &acl);
    assert!(covers(&shown, &token(ANN, &[GROUP]), &[7]), "the entry for owners decides: {shown:?}");
}

fn by_hand(bits: [u8; 6]) -> Vec<HostEntry> {
    let [owner, bob, own, staff, mask, other] = bits;
    [
        (Whose::Owner, owner),
        (Whose::User(BOB), bob),
        (Whose::OwningGroup, own),
        (Whose::Group(STAFF), staff),
        (Whose::Mask, mask),
        (Whose::Other, other),
    ]
    .map(|(whose, bits)| HostEntry { whose, bits })
    .to_vec()
}

fn owned(mode: u32, is_directory: bool) -> host::Owned {
    host::Owned { mode, owner: user(ANN), group: group(GROUP), is_directory, uid: ANN }
}

fn comes_back(acl: &HostAcl, is_directory: bool) {
    let ann = token(ANN, &[GROUP]);
    let object = Protected { user: Some((ANN, &ann)), ..file_of(ANN, GROUP, is_directory) };
    let shown = host::descriptor(&owned(0o770, is_directory), acl);
    let back = nearest(&shown, &object, &identify).lists;
    assert_eq!(text(&back.access, 0), text(&acl.access, 0), "{shown:?}");
    assert_eq!(text(&back.default, 0), text(&acl.default, 0), "{shown:?}");
}

/// A directory that gives its group to new objects is shown so, and their group has no more than the
/// list gives its members.
#[test]
fn new_objects_of_the_directorys_group() {
    let ann = token(ANN, &[GROUP]);
    let object =
        Protected { keeps_group: true, user: Some((ANN, &ann)), ..file_of(ANN, GROUP, true) };
    let list = |aces| text(&nearest(&of(user(ANN), aces), &object, &identify).lists.default, 0);
    let only = |mask, sid| Ace::allow(BELOW | AceFlags::INHERIT_ONLY, mask, sid);
    let owner = || only(ALL, Sid::CREATOR_OWNER);
    assert_eq!(list(vec![owner(), only(ALL, Sid::CREATOR_GROUP)]), "u:7 g:0 o:0");
    assert_eq!(list(vec![owner(), only(READ, group(GROUP))]), "u:7 g:4 o:0");
    // The creators' group is not that of the objects: its members have the rights of others there.
    let denied = Ace::deny(AceFlags::OBJECT_INHERIT, READ, Sid::CREATOR_GROUP);
    assert_eq!(list(vec![owner(), denied, only(ALL, Sid::EVERYONE)]), "u:3 g:3 o:3");
    // The user whose token is known may be in the group of another creator.
    let denied = Ace::deny(AceFlags::CONTAINER_INHERIT, READ, Sid::CREATOR_GROUP);
    let named = Ace::deny(AceFlags::OBJECT_INHERIT, RUN, user(ANN));
    let all = only(ALL, Sid::EVERYONE);
    assert_eq!(list(vec![denied, named, all]), "u:2 u1:2 g:3 m:3 o:3");
    let acl = HostAcl { access: Vec::new(), default: by_hand([7, 7, 6, 4, 7, 0]) };
    let shown = host::descriptor(&owned(0o2700, true), &acl);
    assert_eq!(list(shown.dacl.unwrap().aces), text(&acl.default, 0));
}

/// The host's check, acl(5): the first class that fits decides.
fn host_bits(list: &[HostEntry], owner: u32, gid: u32, uid: u32, groups: &[u32]) -> Vec<u8> {
    let find = |whose| list.iter().find(|entry| entry.whose == whose).map(|entry| entry.bits);
    let mask = find(Whose::Mask).unwrap_or(7);
    if uid == owner {
        return vec![find(Whose::Owner).unwrap()];
    }
    if let Some(bits) = find(Whose::User(uid)) {
        return vec![bits & mask];
    }
    let is_in = |gid: &u32| groups.contains(gid);
    let of_groups = list.iter().filter_map(|entry| match entry.whose {
        Whose::OwningGroup if is_in(&gid) => Some(entry.bits & mask),
        Whose::Group(gid) if is_in(&gid) => Some(entry.bits & mask),
        _ => None,
    });
    let of_groups: Vec<u8> = of_groups.collect();
    if of_groups.is_empty() { vec![find(Whose::Other).unwrap()] } else { of_groups }
}

/// True if the list gives all that the bits of any of `granted` do.
fn covers(descriptor: &SecurityDescriptor, token: &Token, granted: &[u8]) -> bool {
    let rights = maximal(descriptor, token);
    let has = |bit: u8, right: AccessMask| {
        granted.iter().all(|bits| bits & bit == 0) || rights.contains(right)
    };
    has(4, AccessMask::READ_DATA)
        && has(2, AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)
        && has(1, AccessMask::EXECUTE)
}

fn list_of(nearest: &Nearest) -> Vec<HostEntry> {
    if nearest.lists.access.is_empty() {
        of_mode(nearest.mode)
    } else {
        nearest.lists.access.clone()
    }
}

fn of_mode(mode: u32) -> Vec<HostEntry> {
    let bits = |shift: u32| (mode >> shift & 7) as u8;
    [(Whose::Owner, 6), (Whose::OwningGroup, 3), (Whose::Other, 0)]
        .map(|(whose, shift)| HostEntry { whose, bits: bits(shift) })
        .to_vec()
}

fn any_ace() -> impl Strategy<Value = Ace> {
    let sids = [
        user(1),
        user(2),
        user(3),
        group(10),
        group(11),
        group(12),
        Sid::EVERYONE,
        Sid::AUTHENTICATED_USERS,
        Sid::CREATOR_OWNER,
        Sid::CREATOR_GROUP,
        Sid::OWNER_RIGHTS,
        Sid::LOCAL_SYSTEM,
        stranger(),
    ];
    let masks = [
        ALL,
        READ,
        WRITE,
        RUN,
        READ | RUN,
        modify(),
        AccessMask::WRITE_DATA,
        AccessMask::APPEND_DATA,
        AccessMask::DELETE_CHILD,
        AccessMask::GENERIC_ALL,
    ];
    let flags = [
        AceFlags::EMPTY,
        AceFlags::OBJECT_INHERIT,
        AceFlags::CONTAINER_INHERIT,
        BELOW,
        BELOW | AceFlags::INHERIT_ONLY,
        BELOW | AceFlags::NO_PROPAGATE_INHERIT,
        AceFlags::CONTAINER_INHERIT | AceFlags::NO_PROPAGATE_INHERIT,
    ];
    let pick = |of: usize| 0..of;
    (pick(sids.len()), pick(masks.len()), pick(flags.len()), any::<bool>()).prop_map(
        move |(sid, mask, flag, allows)| {
            let make = if allows { Ace::allow } else { Ace::deny };
            make(flags[flag], masks[mask], sids[sid])
        },
    )
}

/// A user of the host: its number and its groups, of which the first is the primary one.
fn any_user() -> impl Strategy<Value = (u32, Vec<u32>)> {
    let further = proptest::collection::vec(10u32..14, 0..3);
    (1u32..5, 10u32..14, further).prop_map(|(uid, primary, mut groups)| {
        groups.insert(0, primary);
        groups.dedup();
        (uid, groups)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// Nobody is given more by the host than by the list, on an object itself.
    #[test]
    fn the_host_gives_no_more(
        aces in proptest::collection::vec(any_ace(), 0..7),
        owner in prop_oneof![(1u32..4).prop_map(user), (10u32..13).prop_map(group), Just(stranger())],
        on_disk in (1u32..4, 10u32..13),
        setter in any_user(),
        is_known in any::<bool>(),
        is_directory in any::<bool>(),
        who in any_user(),
    ) {
        let setter_token = token(setter.0, &setter.1);
        // A user has the groups that the token says.
        let who = if who.0 == setter.0 { setter.clone() } else { who };
        let (uid, gid) = on_disk;
        let user = is_known.then_some((setter.0, &setter_token));
        let object = Protected { user, ..file_of(uid, gid, is_directory) };
        let descriptor = of(owner, aces);
        let nearest = nearest(&descriptor, &object, &identify);
        let who_token = token(who.0, &who.1);
        let granted = host_bits(&list_of(&nearest), uid, gid, who.0, &who.1);
        prop_assert!(covers(&descriptor, &who_token, &granted), "{nearest:?}");
        let alone = host_bits(&of_mode(nearest.mode), uid, gid, who.0, &who.1);
        prop_assert!(covers(&descriptor, &who_token, &alone), "mode {nearest:?}");
    }

    /// Nor on what is made in a directory by whoever the host lets make it, at two depths.
    #[test]
    fn new_objects_give_no_more(
        aces in proptest::collection::vec(any_ace(), 1..7),
        on_disk in (1u32..4, 10u32..13),
        is_known in any::<bool>(),
        is_open in any::<bool>(),
        keeps_group in any::<bool>(),
        creators in [any_user(), any_user()],
        is_directory in any::<bool>(),
        who in any_user(),
    ) {
        let (uid, gid) = on_disk;
        let [first, mut second] = creators;
        if second.0 == first.0 { second = first.clone(); }
        let who = if who.0 == first.0 { first.clone() } else if who.0 == second.0 { second.clone() } else { who };
        let tokens = [token(first.0, &first.1), token(second.0, &second.1)];
        let known = is_known.then_some((first.0, &tokens[0]));
        let object = Protected { keeps_group, user: known, ..file_of(uid, gid, true) };
        let everybody = is_open.then(|| Ace::allow(HERE, ALL, Sid::EVERYONE));
        let descriptor = of(user(uid), aces.into_iter().chain(everybody).collect());
        let nearest = nearest(&descriptor, &object, &identify);
        let default = &nearest.lists.default;
        let makes = |list: &[HostEntry], uid, gid, who: &(u32, Vec<u32>)| {
            host_bits(list, uid, gid, who.0, &who.1).iter().any(|bits| bits & 2 != 0)
        };
        if default.is_empty() || !makes(&list_of(&nearest), uid, gid, &first) {
            return Ok(());
        }
        let group_of =
            |maker: &(u32, Vec<u32>)| if keeps_group { gid } else { maker.1[0] };
        let who_token = token(who.0, &who.1);
        let child = new_object(&descriptor, None, &tokens[0], is_directory).unwrap();
        let granted = host_bits(default, first.0, group_of(&first), who.0, &who.1);
        prop_assert!(covers(&child, &who_token, &granted), "child {nearest:?}");
        let folder = new_object(&descriptor, None, &tokens[0], true).unwrap();
        if makes(default, first.0, group_of(&first), &second) {
            let grandchild = new_object(&folder, None, &tokens[1], is_directory).unwrap();
            let granted = host_bits(default, second.0, group_of(&second), who.0, &who.1);
            prop_assert!(covers(&grandchild, &who_token, &granted), "grandchild {nearest:?}");
        }
    }
}
