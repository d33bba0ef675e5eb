//! The calls of MS-DFSNM, from request to answer, and hostile requests.

mod changes;

use super::hex;
use crate::limits::MAX_NAMESPACE_BYTES;
use crate::netdfs::*;
use crate::{FaultStatus, SyntaxId, WinError};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::RefCell;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::ndr::NdrWriter;
use proptest::prelude::*;

const ROOT: &str = r"\\box\files";
const LINK: &str = r"\\box\files\dept\link0";

/// A server with namespaces, each a list of links, for one caller.
#[derive(Debug, Default)]
struct Office {
    namespaces: Vec<(&'static str, Vec<String>)>,
    manages: bool,
    changes: RefCell<Vec<Change>>,
    refused: RefCell<Vec<Change>>,
    /// The answer to changes, if they fail.
    failure: Option<WinError>,
    comment: String,
}

impl Office {
    fn new(names: &[&'static str], links: usize) -> Self {
        let links = |_| (0..links).map(|at| format!(r"dept\link{at}")).collect();
        let namespaces = names.iter().map(|name| (*name, links(name))).collect();
        Self { namespaces, manages: true, comment: "a link".to_string(), ..Self::default() }
    }

    fn links(&self, namespace: &str) -> Option<&[String]> {
        let mut all = self.namespaces.iter();
        let found = all.find(|(name, _)| eq_ignore_case(name, namespace));
        found.map(|(_, links)| &**links)
    }

    fn info(&self, namespace: &str, link: &str) -> DfsInfo {
        let storages = vec![storage("a"), storage("b")];
        let end = if link.is_empty() { "" } else { r"\" };
        DfsInfo {
            path: format!(r"\\BOX\{namespace}{end}{link}"),
            comment: Some(self.comment.clone()),
            state: if link.is_empty() { 0x101 } else { 1 },
            timeout: 300,
            guid: Guid([7; 16]),
            properties: Properties::TARGET_FAILBACK,
            storage_count: 2,
            storages,
            ..DfsInfo::default()
        }
    }
}

fn storage(server: &str) -> Storage {
    Storage {
        state: StorageState::ONLINE,
        server: server.to_string(),
        share: r"data\sub".to_string(),
        priority: Priority { class: PriorityClass::GLOBAL_HIGH, rank: 3 },
    }
}

impl NamespaceService for Office {
    fn host(&self) -> String {
        "BOX".to_string()
    }

    fn is_domain(&self, name: &str) -> bool {
        eq_ignore_case(name, "corp.example")
    }

    fn namespaces(&self) -> Vec<String> {
        self.namespaces.iter().map(|(name, _)| name.to_string()).collect()
    }

    fn entry(&self, path: &EntryPath) -> Option<DfsInfo> {
        let links = self.links(&path.namespace)?;
        let is_it = |link: &String| eq_ignore_case(link, &path.link);
        let is_there = path.is_root() || links.iter().any(is_it);
        is_there.then(|| self.info(&path.namespace, &path.link))
    }

    fn entries(&self, namespace: &str, from: usize, most: usize) -> Vec<DfsInfo> {
        let root = core::iter::once("");
        let links = self.links(namespace).unwrap_or_default().iter().map(String::as_str);
        let entries = root.chain(links).skip(from).take(most);
        entries.map(|link| self.info(namespace, link)).collect()
    }

    fn may_manage(&self) -> bool {
        self.manages
    }

    fn refused(&self, change: &Change) {
        self.refused.borrow_mut().push(change.clone());
    }

    fn change(&self, change: &Change) -> Result<(), WinError> {
        self.changes.borrow_mut().push(change.clone());
        self.failure.map_or(Ok(()), Err)
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_string())
}

fn path(link: &str) -> EntryPath {
    EntryPath::parse(&format!(r"\\box\files\{link}")).unwrap()
}

/// Makes a call whose answer is a status alone, and returns it with the change that was made.
fn status_of(office: &Office, opnum: u16, stub: &[u8]) -> (WinError, Option<Change>) {
    let has_list = [ADD2, REMOVE2, SET_INFO2, ADD_FT_ROOT, REMOVE_FT_ROOT].contains(&opnum);
    let answer = call(opnum, stub, office).unwrap();
    let status = parse_status(&answer, has_list).unwrap();
    (status, office.changes.borrow_mut().pop())
}

#[test]
fn the_interface_has_the_uuid_of_the_specification() {
    assert_eq!(SyntaxId::NETDFS.uuid.0[..], hex("e042c74f 104a cf11 8273 00aa004ae673"));
    assert_eq!(SyntaxId::NETDFS.version, 3);
}

#[test]
fn paths_name_roots_and_links() {
    let parse = |text: &str| {
        EntryPath::parse(text).map(|path| {
            let EntryPath { server, namespace, link } = path;
            [server, namespace, link]
        })
    };
    let of = |parts: [&str; 3]| Ok(parts.map(String::from));
    for root in [r"\\box\files", r"\box\files", r"box\files", r"\\box\files\"] {
        assert_eq!(parse(root), of(["box", "files", ""]), "{root}");
    }
    assert_eq!(parse(r"\\box\files\a\b"), of(["box", "files", r"a\b"]));
    assert_eq!(parse(r"\\box"), of(["box", "", ""]));
    assert_eq!(parse(""), of(["", "", ""]));
    for wrong in [
        r"\\box\\a",
        r"\\box\files\\a",
        r"\\box\files\a\..\b",
        r"\\box\files\.",
        r"\\box\..",
        r"\\box\files\a/b",
        r"\\box\files\a*",
        "\\\\box\\files\\a\u{1}",
        r"\\\box\files\a",
    ] {
        assert_eq!(parse(wrong), Err(WinError::INVALID_NAME), "{wrong}");
    }
    let long = |units: usize| parse(&format!(r"\\box\files\{}", "x".repeat(units)));
    assert!(long(255).is_ok());
    assert_eq!(long(256), Err(WinError::INVALID_NAME));
    assert_eq!(path(r"a\b").components().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(path("").components().count(), 0);
}

/// Keeps of an entry what a level has.
fn as_told(entry: &DfsInfo, level: u32) -> DfsInfo {
    let has = |levels: &[u32]| levels.contains(&level);
    let zero = DfsInfo::default();
    let from_4 = has(&[4, 5, 6, 8, 9]);
    let storages = match level {
        6 | 9 => entry.storages.clone(),
        3 | 4 => {
            let plain = |one: &Storage| Storage { priority: Priority::default(), ..one.clone() };
            entry.storages.iter().map(plain).collect()
        }
        _ => Vec::new(),
    };
    DfsInfo {
        path: if has(&[7, 50, 100, 150]) { String::new() } else { entry.path.clone() },
        comment: if has(&[1, 7, 50, 150]) { None } else { entry.comment.clone() },
        state: if has(&[1, 7, 50, 100, 150]) { 0 } else { entry.state },
        timeout: if from_4 { entry.timeout } else { 0 },
        guid: if from_4 { entry.guid } else { zero.guid },
        properties: if has(&[5, 6, 8, 9]) { entry.properties } else { zero.properties },
        storage_count: if has(&[1, 7, 50, 100, 150]) { 0 } else { entry.storage_count },
        storages,
        major_version: u32::from(level == 50),
        minor_version: if level == 50 { 2 } else { 0 },
        ..zero
    }
}

#[test]
fn get_info_has_the_members_of_its_level() {
    let office = Office::new(&["files"], 3);
    let ask = |path: &str, level| {
        let request = GetInfo { path: path.to_string(), server: None, share: None, level };
        assert_eq!(GetInfo::parse(&request.encode()), Ok(request.clone()));
        parse_info(&call(GET_INFO, &request.encode(), &office).unwrap(), level).unwrap()
    };
    for level in [1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 100] {
        let root = ask(r"\\box\FILES", level).unwrap();
        assert_eq!(root, as_told(&office.info("FILES", ""), level), "{level}");
    }
    for level in [1, 2, 3, 4, 5, 6, 8, 9, 100, 150] {
        let link = ask(r"\\box\files\dept\link1", level).unwrap();
        assert_eq!(link, as_told(&office.info("files", r"dept\link1"), level), "{level}");
    }
    for level in [0, 10, 101, 105, 200, 300] {
        assert_eq!(ask(r"\\box\files", level), Err(WinError::INVALID_PARAMETER), "{level}");
    }
    let of_link = |level| ask(r"\\box\files\dept\link1", level);
    // These are levels of a root, and that is one of a link.
    assert_eq!(of_link(7), Err(WinError::INVALID_PARAMETER));
    assert_eq!(of_link(50), Err(WinError::INVALID_PARAMETER));
    assert_eq!(ask(r"\\box\files", 150), Err(WinError::INVALID_PARAMETER));
    assert_eq!(ask(r"\\box\other", 1), Err(WinError::NOT_FOUND));
    assert_eq!(ask(r"\\box\files\dept", 1), Err(WinError::NOT_FOUND));
    assert_eq!(ask(r"\\box", 1), Err(WinError::INVALID_PARAMETER));
    assert_eq!(ask(r"\\box\files\..", 1), Err(WinError::INVALID_NAME));
    assert_eq!(ask(r"\\corp.example\files", 1), Err(WinError::NOT_SUPPORTED));
}

/// Tests places and alignment by bytes that were written by hand from C706 and MS-DFSNM 2.2.3.3.
#[test]
fn an_entry_has_its_bytes() {
    let info = DfsInfo {
        path: r"\\B\f\l".to_string(),
        comment: text("c"),
        state: 1,
        storage_count: 1,
        storages: vec![Storage {
            state: StorageState::ONLINE,
            server: "a".to_string(),
            share: "s".to_string(),
            priority: Priority::default(),
        }],
        ..DfsInfo::default()
    };
    let expected = hex("03000000 00000200 04000200 08000200 01000000 01000000 0c000200 \
         08000000 00000000 08000000 5c005c0042005c0066005c006c000000 \
         02000000 00000000 02000000 63000000 \
         01000000 02000000 10000200 14000200 \
         02000000 00000000 02000000 61000000 02000000 00000000 02000000 73000000 00000000");
    assert_eq!(encode_info(3, Ok(&info)), expected);
    // The 64-bit member of level 50 is aligned to eight bytes.
    let info = DfsInfo { major_version: 1, minor_version: 2, capabilities: 1, ..info };
    let expected = hex("32000000 00000200 01000000 02000000 0100000000000000 00000000");
    assert_eq!(encode_info(50, Ok(&info)), expected);
    assert_eq!(encode_info(50, Err(WinError::NOT_FOUND)), hex("32000000 00000000 90040000"));
    assert_eq!(encode_info(99, Err(WinError::INVALID_PARAMETER)), hex("63000000 57000000"));
    let add = AddLink {
        path: "p".to_string(),
        server: "s".to_string(),
        share: text("h"),
        comment: None,
        flags: 1,
        has_root_list: true,
    };
    let names = "02000000 00000000 02000000 70000000";
    let rest = "02000000 00000000 02000000 73000000 00000200 02000000 00000000 02000000 68000000 \
         00000000 01000000";
    assert_eq!(add.encode(ADD), hex(&format!("{names} {rest}")));
    let controller = "01000000 00000000 01000000 0000 0000";
    let list = "04000200 00000000";
    assert_eq!(add.encode(ADD2), hex(&format!("{names} {controller} {rest} {list}")));
}

/// Returns the stub data of a call that a stand-alone server does not support.
fn unsupported(opnum: u16) -> Vec<u8> {
    let mut w = NdrWriter::new();
    let (names, numbers) = match opnum {
        ADD_FT_ROOT => (6, 0),
        REMOVE_FT_ROOT => (4, 1),
        MANAGER_INITIALIZE => (1, 1),
        ADD_STD_ROOT_FORCED => (4, 0),
        SET_DC_ADDRESS => (2, 2),
        _ => (2, 0),
    };
    for _ in 0..names {
        w.string("name");
    }
    if opnum == ADD_FT_ROOT {
        w.u8(1).u32(0);
    }
    for _ in 0..numbers {
        w.u32(0);
    }
    if matches!(opnum, ADD_FT_ROOT | REMOVE_FT_ROOT) {
        // A list of one root, which a client need not send.
        w.pointer(true).pointer(true).u32(1).u32(1).pointer(true).string(r"\\a\b");
    }
    w.into_stub()
}

const UNSUPPORTED: [u16; 6] = [
    ADD_FT_ROOT,
    REMOVE_FT_ROOT,
    MANAGER_INITIALIZE,
    ADD_STD_ROOT_FORCED,
    SET_DC_ADDRESS,
    FLUSH_FT_TABLE,
];

#[test]
fn calls_of_domains_are_answered_as_a_stand_alone_server_must() {
    let office = Office::new(&["files"], 1);
    let guest = Office { manages: false, ..Office::new(&["files"], 1) };
    for opnum in UNSUPPORTED {
        let stub = unsupported(opnum);
        let expected = match opnum {
            SET_DC_ADDRESS => WinError::SUCCESS,
            _ => WinError::NOT_SUPPORTED,
        };
        assert_eq!(status_of(&office, opnum, &stub), (expected, None), "{opnum}");
        let expected = match opnum {
            FLUSH_FT_TABLE => WinError::NOT_SUPPORTED,
            _ => WinError::ACCESS_DENIED,
        };
        assert_eq!(status_of(&guest, opnum, &stub), (expected, None), "{opnum}");
    }
    let mut w = NdrWriter::new();
    w.string("box").unique_string(Some("dc")).u8(1).u32(7200);
    let answer = call(GET_DC_ADDRESS, &w.into_stub(), &office).unwrap();
    assert_eq!(answer, hex("00000200 01000000 00000000 01000000 00000000 201c0000 00000000"));
    assert_eq!(call(MANAGER_GET_VERSION, &[], &office).unwrap(), hex("06000000"));
    let version = |origin: u16| {
        let mut w = NdrWriter::new();
        w.u16(origin).unique_string(Some("box"));
        call(GET_SUPPORTED_NAMESPACE_VERSION, &w.into_stub(), &office).unwrap()
    };
    let zeros = "00000000 00000000 0000000000000000";
    assert_eq!(version(1), hex(&format!("{zeros} 01000000 02000000 0000000000000000 00000000")));
    assert_eq!(version(2), hex(&format!("{zeros} {zeros} 00000000")));
    assert_eq!(version(0), hex(&format!("{zeros} {zeros} 57000000")));
    for opnum in [7, 8, 9, 26, u16::MAX] {
        assert_eq!(call(opnum, &[], &office), Err(FaultStatus::OP_RNG_ERROR), "{opnum}");
    }
}

fn enumerate(office: &Office, request: &Enumeration) -> EnumerationReply {
    let (opnum, parsed) = match request.path {
        Some(_) => (ENUM_EX, Enumeration::parse_ex(&request.encode())),
        None => (ENUM, Enumeration::parse(&request.encode())),
    };
    assert_eq!(parsed.as_ref(), Ok(request));
    EnumerationReply::parse(&call(opnum, &request.encode(), office).unwrap()).unwrap()
}

fn all_of(path: Option<&str>, level: u32) -> Enumeration {
    let path = path.map(String::from);
    Enumeration { path, level, max_len: u32::MAX, has_info: true, resume: Some(0) }
}

#[test]
fn enumerations_have_the_root_first_and_go_on() {
    let office = Office::new(&["files"], 9);
    for level in [1, 2, 3, 4, 5, 6, 8, 9] {
        let reply = enumerate(&office, &all_of(Some(ROOT), level));
        assert_eq!((reply.status, reply.resume), (WinError::SUCCESS, Some(10)), "{level}");
        let entries = reply.entries.unwrap();
        let expected: Vec<_> =
            office.entries("files", 0, 99).iter().map(|one| as_told(one, level)).collect();
        assert_eq!(entries, expected, "{level}");
    }
    // Each of these has room for a structure of level 2, and one is told without room.
    for (max_len, count) in [(0, 1), (23, 1), (24, 1), (71, 2), (72, 3)] {
        let mut names = Vec::new();
        let mut resume = 0;
        loop {
            let request = Enumeration { max_len, resume: Some(resume), ..all_of(Some(ROOT), 2) };
            let reply = enumerate(&office, &request);
            if reply.status == WinError::NO_MORE_ITEMS {
                assert_eq!((reply.entries, reply.resume), (Some(vec![]), Some(resume)));
                break;
            }
            let entries = reply.entries.unwrap();
            assert!(entries.len() <= count && !entries.is_empty());
            names.extend(entries.into_iter().map(|entry| entry.path));
            resume = reply.resume.unwrap();
        }
        let expected: Vec<_> =
            office.entries("files", 0, 99).into_iter().map(|entry| entry.path).collect();
        assert_eq!(names, expected, "{max_len}");
    }
}

#[test]
fn enumerations_name_one_namespace() {
    let none = Office::new(&[], 0);
    let one = Office::new(&["files"], 1);
    let two = Office::new(&["files", "other"], 1);
    let status = |office, path, level| enumerate(office, &all_of(path, level)).status;
    for (office, path, level, expected) in [
        (&none, None, 1, WinError::NOT_FOUND),
        (&none, None, 300, WinError::NOT_FOUND),
        (&none, Some("box"), 300, WinError::NO_MORE_ITEMS),
        (&none, Some(ROOT), 1, WinError::NOT_FOUND),
        (&one, None, 1, WinError::SUCCESS),
        (&one, Some("box"), 1, WinError::SUCCESS),
        (&one, Some(r"\\box\FILES\a\b"), 1, WinError::SUCCESS),
        (&one, Some(r"\\box\none"), 1, WinError::NOT_FOUND),
        (&two, None, 1, WinError::DEVICE_NOT_AVAILABLE),
        (&two, None, 300, WinError::SUCCESS),
        (&two, Some(r"\\box"), 1, WinError::NOT_FOUND),
        (&two, Some(r"\\box\other"), 1, WinError::SUCCESS),
        (&one, Some(ROOT), 7, WinError::INVALID_PARAMETER),
        (&one, Some(ROOT), 100, WinError::INVALID_PARAMETER),
        (&one, Some("box"), 200, WinError::INVALID_PARAMETER),
        (&one, Some(r"\\corp.example\x"), 1, WinError::NOT_SUPPORTED),
    ] {
        assert_eq!(status(office, path, level), expected, "{path:?} {level}");
    }
    let roots = enumerate(&two, &all_of(Some(r"\\box"), 300)).entries.unwrap();
    let told: Vec<_> = roots.iter().map(|root| (root.state, &*root.path)).collect();
    assert_eq!(told, [(0x100, r"\\BOX\files"), (0x100, r"\\BOX\other")]);
    let without = Enumeration { has_info: false, resume: None, ..all_of(None, 1) };
    let reply = enumerate(&one, &without);
    let expected =
        EnumerationReply { entries: None, resume: None, status: WinError::INVALID_PARAMETER };
    assert_eq!(reply, expected);
}

/// Tests an enumeration that is longer than an answer may be.
#[test]
fn a_long_enumeration_comes_in_parts() {
    let office = Office { comment: "c".repeat(2_000), ..Office::new(&["files"], 2_000) };
    let (mut told, mut resume, mut parts) = (0, 0, 0);
    loop {
        let request = Enumeration { resume: Some(resume), ..all_of(None, 2) };
        let answer = call(ENUM, &request.encode(), &office).unwrap();
        assert!(answer.len() <= MAX_NAMESPACE_BYTES + 64);
        let reply = EnumerationReply::parse(&answer).unwrap();
        if reply.status == WinError::NO_MORE_ITEMS {
            break;
        }
        assert_eq!(reply.status, WinError::SUCCESS);
        told += reply.entries.unwrap().len();
        (resume, parts) = (reply.resume.unwrap(), parts + 1);
        assert_eq!(resume as usize, told);
    }
    assert_eq!((told, parts > 1), (2_001, true));
    let whole = Enumeration { resume: None, ..all_of(None, 2) };
    assert_eq!(enumerate(&office, &whole).status, WinError::MORE_DATA);
}

/// Returns a valid request of each call.
fn requests() -> Vec<(u16, Vec<u8>)> {
    let office_info = Office::new(&["files"], 1).info("files", "a");
    let add = AddLink {
        path: LINK.to_string(),
        server: "a".to_string(),
        share: text("b"),
        comment: text("c"),
        flags: 0,
        has_root_list: true,
    };
    let remove = RemoveLink {
        path: LINK.to_string(),
        server: text("a"),
        share: text("b"),
        has_root_list: true,
    };
    let get = GetInfo { path: LINK.to_string(), server: text("a"), share: text("b"), level: 3 };
    let mut all = vec![
        (ADD, add.encode(ADD)),
        (ADD2, add.encode(ADD2)),
        (REMOVE, remove.encode(REMOVE)),
        (REMOVE2, remove.encode(REMOVE2)),
        (GET_INFO, get.encode()),
        (ENUM, all_of(None, 3).encode()),
        (ENUM_EX, all_of(Some(ROOT), 3).encode()),
    ];
    for level in [1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 100, 101, 102, 103, 104, 105, 106, 107, 150] {
        let info = DfsInfo { security_descriptor: Some(vec![1; 5]), ..office_info.clone() };
        let set = SetInfo {
            path: LINK.to_string(),
            server: None,
            share: None,
            level,
            info: Some(info),
            has_root_list: true,
        };
        all.extend([(SET_INFO, set.encode(SET_INFO)), (SET_INFO2, set.encode(SET_INFO2))]);
    }
    all.extend(UNSUPPORTED.map(|opnum| (opnum, unsupported(opnum))));
    all
}

#[test]
fn a_request_that_ends_early_is_a_fault() {
    let office = Office::new(&["files"], 1);
    for (opnum, stub) in requests() {
        assert!(call(opnum, &stub, &office).is_ok(), "{opnum}");
        for length in 0..stub.len() {
            let cut = call(opnum, &stub[..length], &office);
            assert_eq!(cut, Err(FaultStatus::NDR), "{opnum}: {length} of {}", stub.len());
        }
    }
}

#[test]
fn counts_that_do_not_fit_are_faults() {
    let office = Office::new(&["files"], 1);
    // An enumeration with more entries than it has bytes, with none behind their pointer, and with two
    // levels.
    for tail in [
        "01000000 01000000 00000200 ffffffff 04000200 ffffffff",
        "01000000 01000000 00000200 01000000 00000000 00000000",
        "01000000 02000000 00000200 00000000 00000000 00000000",
        "03000000 03000000 00000200 01000000 04000200 01000000 08000200 00000000 00000000 ffffffff \
         0c000200 01000000 00000000 01000000 00000000 ffffffff",
    ] {
        let stub = hex(&format!("01000000 ffffffff 00000200 {tail}"));
        assert_eq!(call(ENUM, &stub, &office), Err(FaultStatus::NDR), "{tail}");
    }
    // A list of roots without its entries, and a descriptor that is too long.
    let mut w = NdrWriter::new();
    for _ in 0..4 {
        w.string("x");
    }
    w.u32(0).pointer(true).pointer(true).u32(u32::MAX).u32(u32::MAX);
    assert_eq!(call(REMOVE_FT_ROOT, &w.into_stub(), &office), Err(FaultStatus::NDR));
    for length in [0x1_0001_u32, u32::MAX] {
        let mut w = NdrWriter::new();
        w.string(LINK).u32(0).u32(0).u32(150).u32(150).pointer(true).u32(length).pointer(true);
        w.u32(length);
        assert_eq!(call(SET_INFO, &w.into_stub(), &office), Err(FaultStatus::NDR));
    }
}

proptest! {
    #[test]
    fn random_requests_never_panic(opnum in 0_u16..27, stub in prop::collection::vec(any::<u8>(), 0..256)) {
        let office = Office::new(&["files"], 3);
        let _ = call(opnum, &stub, &office);
        let _ = EnumerationReply::parse(&stub);
        let _ = parse_info(&stub, u32::from(opnum));
        let _ = parse_status(&stub, true);
    }

    /// One wrong byte in a valid request is found or harmless.
    #[test]
    fn a_wrong_byte_never_panics(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8) {
        let office = Office::new(&["files"], 3);
        let all = requests();
        let (opnum, mut stub) = all[which.index(all.len())].clone();
        let at = at.index(stub.len());
        stub[at] = byte;
        let _ = call(opnum, &stub, &office);
    }

    #[test]
    fn paths_never_panic(text in any::<String>()) {
        if let Ok(path) = EntryPath::parse(&text) {
            prop_assert!(path.components().all(|part| !part.is_empty() && part != ".."));
        }
    }
}
