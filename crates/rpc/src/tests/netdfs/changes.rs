//! Changes of namespaces: who may make them, and how their arguments are judged.

use super::{LINK, Office, ROOT, path, status_of, text};
use crate::WinError;
use crate::netdfs::*;
use alloc::string::{String, ToString};

#[test]
fn a_link_is_added_and_removed_by_both_calls() {
    let office = Office::new(&["files"], 1);
    let (server, share) = ("host".to_string(), text(r"\data\sub\"));
    let path_of_link = r"\\box\files\new".to_string();
    let target = TargetName { server: "host".to_string(), share: r"data\sub".to_string() };
    for opnum in [ADD, ADD2] {
        let has_root_list = opnum == ADD2;
        let request = AddLink {
            path: path_of_link.clone(),
            server: server.clone(),
            share: share.clone(),
            comment: text("größe"),
            flags: AddLink::ADD_VOLUME | AddLink::RESTORE_VOLUME,
            has_root_list,
        };
        assert_eq!(AddLink::parse(opnum, &request.encode(opnum)), Ok(request.clone()));
        let (status, change) = status_of(&office, opnum, &request.encode(opnum));
        assert_eq!(status, WinError::SUCCESS);
        let added = Change::AddLink {
            path: path("new"),
            target: target.clone(),
            comment: "größe".to_string(),
            must_be_new: true,
        };
        assert_eq!(change, Some(added));
        for (flags, share, path) in [
            (4, share.clone(), &path_of_link),
            (0, None, &path_of_link),
            (0, text("a/b"), &path_of_link),
            (0, share.clone(), &r"\\box\files".to_string()),
        ] {
            let wrong = AddLink { flags, share, path: path.clone(), ..request.clone() };
            let status = status_of(&office, opnum, &wrong.encode(opnum));
            assert_eq!(status, (WinError::INVALID_PARAMETER, None));
        }
        let of_domain = AddLink { path: r"\\CORP.example\files\x".to_string(), ..request };
        let status = status_of(&office, opnum, &of_domain.encode(opnum));
        assert_eq!(status, (WinError::NOT_SUPPORTED, None));
    }
    for opnum in [REMOVE, REMOVE2] {
        let remove = |server: Option<&str>, share: Option<&str>| {
            let request = RemoveLink {
                path: path_of_link.clone(),
                server: server.map(String::from),
                share: share.map(String::from),
                has_root_list: opnum == REMOVE2,
            };
            assert_eq!(RemoveLink::parse(opnum, &request.encode(opnum)), Ok(request.clone()));
            status_of(&office, opnum, &request.encode(opnum))
        };
        let removed = |target| Some(Change::RemoveLink { path: path("new"), target });
        assert_eq!(remove(None, None), (WinError::SUCCESS, removed(None)));
        let one = remove(Some(r"\\host"), Some(r"data\sub"));
        assert_eq!(one, (WinError::SUCCESS, removed(Some(target.clone()))));
        assert_eq!(remove(Some("host"), None), (WinError::INVALID_PARAMETER, None));
        assert_eq!(remove(None, Some("data")), (WinError::INVALID_PARAMETER, None));
    }
    let failing = Office { failure: Some(WinError::FILE_EXISTS), ..Office::new(&["files"], 1) };
    let request = AddLink {
        path: path_of_link,
        server,
        share,
        comment: None,
        flags: 0,
        has_root_list: false,
    };
    assert_eq!(status_of(&failing, ADD, &request.encode(ADD)).0, WinError::FILE_EXISTS);
}

/// Sets settings of `path` at a level, of a target if `is_target`.
fn set(office: &Office, path: &str, is_target: bool, level: u32, info: &DfsInfo) -> WinError {
    for opnum in [SET_INFO2, SET_INFO] {
        let request = SetInfo {
            path: path.to_string(),
            server: is_target.then(|| "host".to_string()),
            share: is_target.then(|| "data".to_string()),
            level,
            info: Some(info.clone()),
            has_root_list: opnum == SET_INFO2,
        };
        let (status, change) = status_of(office, opnum, &request.encode(opnum));
        office.changes.borrow_mut().extend(change);
        if opnum == SET_INFO {
            return status;
        }
        office.changes.borrow_mut().clear();
    }
    unreachable!()
}

fn settings_of(office: &Office) -> Settings {
    match office.changes.borrow_mut().pop() {
        Some(Change::Set { settings, .. }) => settings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn states_are_set_where_they_are_valid() {
    let office = Office::new(&["files"], 1);
    let state = |path, is_target, state| {
        set(&office, path, is_target, 101, &DfsInfo { state, ..DfsInfo::default() })
    };
    let set_to = |state| Settings { state, ..Settings::default() };
    for (value, expected) in
        [(1, StateChange::Online), (3, StateChange::Offline), (4, StateChange::Online)]
    {
        assert_eq!(state(LINK, false, value), WinError::SUCCESS);
        assert_eq!(settings_of(&office), set_to(Some(expected)));
    }
    for value in [0, 2, 0x10, 0x20, 0x40, 0x101] {
        assert_eq!(state(LINK, false, value), WinError::INVALID_PARAMETER, "{value}");
    }
    for value in [1, 0x10, 0x40] {
        assert_eq!(state(ROOT, false, value), WinError::SUCCESS);
        assert_eq!(settings_of(&office), set_to(None));
    }
    assert_eq!(state(ROOT, false, 0x20), WinError::NOT_SUPPORTED);
    for value in [0, 2, 3, 4] {
        assert_eq!(state(ROOT, false, value), WinError::INVALID_PARAMETER, "{value}");
    }
    for (value, expected) in [(1, StateChange::Offline), (2, StateChange::Online)] {
        assert_eq!(state(LINK, true, value), WinError::SUCCESS);
        assert_eq!(settings_of(&office), set_to(Some(expected)));
    }
    for value in [0, 3, 4] {
        assert_eq!(state(LINK, true, value), WinError::INVALID_PARAMETER, "{value}");
    }
}

#[test]
fn comments_times_and_priorities_are_set() {
    let office = Office::new(&["files"], 1);
    let comment = DfsInfo { comment: text("new"), ..DfsInfo::default() };
    assert_eq!(set(&office, LINK, false, 100, &comment), WinError::SUCCESS);
    assert_eq!(settings_of(&office).comment, text("new"));
    assert_eq!(set(&office, ROOT, false, 100, &DfsInfo::default()), WinError::SUCCESS);
    assert_eq!(settings_of(&office).comment, text(""));
    let timeout = DfsInfo { timeout: 60, ..DfsInfo::default() };
    // The names of a target are ignored.
    for is_target in [false, true] {
        assert_eq!(set(&office, LINK, is_target, 102, &timeout), WinError::SUCCESS);
        let change = office.changes.borrow_mut().pop();
        let settings = Settings { ttl: Some(60), ..Settings::default() };
        let expected = Change::Set { path: path(r"dept\link0"), target: None, settings };
        assert_eq!(change, Some(expected));
    }
    let priority = |class, rank| {
        let priority = Priority { class: PriorityClass(class), rank };
        DfsInfo { state: 1, priority, ..DfsInfo::default() }
    };
    assert_eq!(set(&office, LINK, true, 104, &priority(4, 31)), WinError::SUCCESS);
    assert_eq!(settings_of(&office).priority, Some(priority(4, 31).priority));
    assert_eq!(set(&office, LINK, true, 106, &priority(0, 0)), WinError::SUCCESS);
    let settings = settings_of(&office);
    assert_eq!((settings.state, settings.ttl), (Some(StateChange::Offline), None));
    for (class, rank) in [(5, 0), (u32::MAX, 0), (0, 32)] {
        let status = set(&office, LINK, true, 104, &priority(class, rank));
        assert_eq!(status, WinError::INVALID_PARAMETER, "{class} {rank}");
    }
    // Levels of a target without one, and levels of an entry with one.
    for (level, is_target) in [(104, false), (106, false), (100, true), (103, true), (105, true)] {
        let status = set(&office, LINK, is_target, level, &priority(0, 0));
        assert_eq!(status, WinError::INVALID_PARAMETER, "{level}");
    }
    for level in [0, 1, 3, 50, 99, 108] {
        let status = set(&office, LINK, false, level, &comment);
        assert_eq!(status, WinError::INVALID_PARAMETER, "{level}");
    }
}

#[test]
fn properties_and_descriptors_are_set_where_they_are_supported() {
    let office = Office::new(&["files"], 1);
    let flags = |mask: u32, flags: u32| DfsInfo {
        property_mask: Properties(mask),
        properties: Properties(flags),
        ..DfsInfo::default()
    };
    for (mask, bits, expected) in
        [(8, 8, Some(true)), (8, 0, Some(false)), (0, 8, None), (1, 0, None)]
    {
        assert_eq!(set(&office, LINK, false, 103, &flags(mask, bits)), WinError::SUCCESS);
        assert_eq!(settings_of(&office).failback, expected);
    }
    for (path, mask, bits, status) in [
        (LINK, 1, 1, WinError::NOT_SUPPORTED),
        (LINK, 2, 0, WinError::NOT_SUPPORTED),
        (LINK, 4, 0, WinError::INVALID_PARAMETER),
        (LINK, 0x10, 0, WinError::NOT_SUPPORTED),
        (LINK, 0x20, 0, WinError::INVALID_PARAMETER),
        (LINK, 0x40, 0, WinError::INVALID_PARAMETER),
        (ROOT, 4, 0, WinError::SUCCESS),
        (ROOT, 4, 4, WinError::NOT_SUPPORTED),
        (ROOT, 0x20, 0x20, WinError::NOT_SUPPORTED),
        (ROOT, 0x20, 0, WinError::SUCCESS),
    ] {
        assert_eq!(set(&office, path, false, 103, &flags(mask, bits)), status, "{mask:x} {bits:x}");
    }
    let all = DfsInfo { comment: text("c"), state: 3, timeout: 9, ..flags(8, 8) };
    for level in [105, 107] {
        assert_eq!(set(&office, LINK, false, level, &all), WinError::SUCCESS);
        let expected = Settings {
            comment: text("c"),
            state: Some(StateChange::Offline),
            ttl: Some(9),
            failback: Some(true),
            priority: None,
        };
        assert_eq!(settings_of(&office), expected);
    }
    let with = |state, bytes: &[u8]| DfsInfo {
        state,
        security_descriptor: Some(bytes.to_vec()),
        ..DfsInfo::default()
    };
    assert_eq!(set(&office, LINK, false, 107, &with(0, &[1, 2])), WinError::NOT_SUPPORTED);
    assert_eq!(set(&office, LINK, false, 105, &with(1, &[])), WinError::INVALID_PARAMETER);
    assert_eq!(set(&office, LINK, false, 150, &with(0, &[1])), WinError::NOT_SUPPORTED);
    assert_eq!(set(&office, LINK, false, 150, &DfsInfo::default()), WinError::SUCCESS);
    assert_eq!(set(&office, ROOT, false, 150, &DfsInfo::default()), WinError::NOT_SUPPORTED);
}

#[test]
fn links_move_within_a_namespace() {
    let office = Office::new(&["files", "other"], 1);
    let go = |from: &str, to: &str, flags| {
        let request = MoveLink { from: from.to_string(), to: to.to_string(), flags };
        assert_eq!(MoveLink::parse(&request.encode()), Ok(request.clone()));
        status_of(&office, MOVE, &request.encode())
    };
    let moved = Change::Move { from: path("a"), to: path(r"b\c"), replaces: true };
    assert_eq!(go(r"\\box\files\a", r"\\box\files\b\c", 1), (WinError::SUCCESS, Some(moved)));
    for (from, to, flags, status) in [
        (r"\\box\files\a", r"\\box\files\b", 2, WinError::INVALID_PARAMETER),
        (r"\\box\files\a", r"\\box\other\a", 0, WinError::NOT_SUPPORTED),
        (r"\\box\files", r"\\box\files\a", 0, WinError::NOT_SUPPORTED),
        (r"\\box\files\a", r"\\box\files", 0, WinError::NOT_SUPPORTED),
        (r"\\box\files\a", r"\\box\files\b:", 0, WinError::INVALID_NAME),
        (r"\\corp.example\f\a", r"\\corp.example\f\b", 0, WinError::NOT_SUPPORTED),
    ] {
        assert_eq!(go(from, to, flags), (status, None), "{from} {to}");
    }
}

#[test]
fn shares_become_roots_and_cease_to_be() {
    let office = Office::new(&[], 0);
    let named = |comment: Option<&str>| AddStdRoot {
        share: "files".to_string(),
        comment: comment.map(String::from),
    };
    let added = |comment: &str| Change::AddRoot {
        namespace: "files".to_string(),
        comment: comment.to_string(),
    };
    let removed = Change::RemoveRoot { namespace: "files".to_string() };
    let add = named(Some("mine")).encode("box");
    assert_eq!(AddStdRoot::parse(ADD_STD_ROOT, &add), Ok(named(Some("mine"))));
    let done = status_of(&office, ADD_STD_ROOT, &add);
    assert_eq!(done, (WinError::SUCCESS, Some(added("mine"))));
    let done = status_of(&office, REMOVE_STD_ROOT, &named(None).encode("box"));
    assert_eq!(done, (WinError::SUCCESS, Some(removed.clone())));
    let nested = AddStdRoot { share: r"files\a".to_string(), comment: text("") };
    let done = status_of(&office, ADD_STD_ROOT, &nested.encode("box"));
    assert_eq!(done, (WinError::INVALID_PARAMETER, None));

    let root = RootTarget {
        path: text(r"\\box\files"),
        target: None,
        major_version: 1,
        comment: None,
        is_new: true,
        flags: 7,
    };
    assert_eq!(RootTarget::parse_add(&root.encode_add()), Ok(root.clone()));
    let done = status_of(&office, ADD_ROOT_TARGET, &root.encode_add());
    assert_eq!(done, (WinError::SUCCESS, Some(added(""))));
    let target = text(r"\\box\files");
    for (wrong, status) in [
        (RootTarget { path: None, ..root.clone() }, WinError::INVALID_PARAMETER),
        (RootTarget { target, ..root.clone() }, WinError::NOT_SUPPORTED),
        (RootTarget { major_version: 2, ..root.clone() }, WinError::INVALID_PARAMETER),
        (RootTarget { is_new: false, ..root.clone() }, WinError::INVALID_PARAMETER),
        (RootTarget { path: text(r"\\box\f\l"), ..root.clone() }, WinError::INVALID_PARAMETER),
    ] {
        let done = status_of(&office, ADD_ROOT_TARGET, &wrong.encode_add());
        assert_eq!(done, (status, None), "{wrong:?}");
    }
    let done = status_of(&office, REMOVE_ROOT_TARGET, &root.encode_remove());
    assert_eq!(done, (WinError::INVALID_PARAMETER, None));
    let plain = RootTarget { flags: 0, ..root.clone() };
    let done = status_of(&office, REMOVE_ROOT_TARGET, &plain.encode_remove());
    assert_eq!(done, (WinError::SUCCESS, Some(removed)));

    let taken = Office { failure: Some(WinError::FILE_EXISTS), ..Office::new(&[], 0) };
    assert_eq!(status_of(&taken, ADD_STD_ROOT, &add).0, WinError::FILE_EXISTS);
    let status = status_of(&taken, ADD_ROOT_TARGET, &root.encode_add()).0;
    assert_eq!(status, WinError::ALREADY_EXISTS);
}

#[test]
fn nobody_but_administrators_changes_anything() {
    let office = Office { manages: false, ..Office::new(&["files"], 1) };
    let add = AddLink {
        path: r"\\box\files\x".to_string(),
        server: "a".to_string(),
        share: text("b"),
        comment: None,
        flags: 0,
        has_root_list: false,
    };
    let remove =
        RemoveLink { path: LINK.to_string(), server: None, share: None, has_root_list: false };
    let go = MoveLink { from: LINK.to_string(), to: LINK.to_string(), flags: 0 };
    let info = Some(DfsInfo { comment: text("c"), ..DfsInfo::default() });
    let set = SetInfo {
        path: LINK.to_string(),
        server: None,
        share: None,
        level: 100,
        info,
        has_root_list: false,
    };
    let root = AddStdRoot { share: "s".to_string(), comment: text("") };
    let target =
        RootTarget { path: text(ROOT), major_version: 1, is_new: true, ..Default::default() };
    let gone = AddStdRoot { comment: None, ..root.clone() };
    let calls = [
        (ADD, add.encode(ADD)),
        (ADD2, add.encode(ADD2)),
        (REMOVE, remove.encode(REMOVE)),
        (REMOVE2, remove.encode(REMOVE2)),
        (SET_INFO, set.encode(SET_INFO)),
        (SET_INFO2, set.encode(SET_INFO2)),
        (MOVE, go.encode()),
        (ADD_STD_ROOT, root.encode("box")),
        (REMOVE_STD_ROOT, gone.encode("box")),
        (ADD_ROOT_TARGET, target.encode_add()),
        (REMOVE_ROOT_TARGET, target.encode_remove()),
    ];
    for (opnum, stub) in &calls {
        assert_eq!(status_of(&office, *opnum, stub), (WinError::ACCESS_DENIED, None), "{opnum}");
        assert!(office.refused.borrow_mut().pop().is_some(), "{opnum}");
    }
    // A change that nobody could make is refused as well, without a word about its arguments.
    let wrong = AddLink { flags: 99, ..add };
    assert_eq!(status_of(&office, ADD, &wrong.encode(ADD)), (WinError::ACCESS_DENIED, None));
    assert!(office.refused.borrow().is_empty());
}
