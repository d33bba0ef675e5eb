//! Row X2 of the catalogue of faults: the right that each request needs, tried
//! with all but that one and with that one alone. MS-SMB2 3.3.5.20 and 3.3.5.21,
//! MS-FSA 2.1.5.1 to 2.1.5.17.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use frevo_server::internal::protocol::{On, TABLE};
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::command::query_info::{self, QueryInfoFlags};
use frevo_wire::command::set_info::InfoType;
use frevo_wire::command::{change_notify, change_notify::ChangeNotifyFlags};
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};
use frevo_wire::fscc::FileInfoClass;

use client::files::{
    close_draft, file_id, flush_draft, lock_draft, read_draft, set_info_draft, utf16, write_draft,
};
use client::*;

const ALL: AccessMask = AccessMask::FILE_ALL;
const NONE: AccessMask = AccessMask::EMPTY;
/// Access that every Open may have without a right on anything.
const LEAST: AccessMask = AccessMask::SYNCHRONIZE;

/// A request: its name, true for one of a directory, the rights that it needs, and its
/// message.
type Case<'a> = (&'a str, bool, Needs, &'a dyn Fn(FileId) -> Draft);

/// The rights that a request needs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Needs {
    /// Every one of them.
    all: AccessMask,
    /// One at least, unless empty.
    any: AccessMask,
}

const fn all(all: AccessMask) -> Needs {
    Needs { all, any: NONE }
}

const fn any(any: AccessMask) -> Needs {
    Needs { all: NONE, any }
}

const NOTHING: Needs = all(NONE);

fn bits(mask: AccessMask) -> impl Iterator<Item = AccessMask> {
    (0..32).map(|bit| AccessMask(1 << bit)).filter(move |bit| mask.contains(*bit))
}

/// Grants that just do, and grants that lack one thing.
fn grants(needs: Needs) -> (Vec<AccessMask>, Vec<AccessMask>) {
    let enough = if needs.any.is_empty() {
        vec![needs.all | LEAST]
    } else {
        bits(needs.any).map(|one| needs.all | one | LEAST).collect()
    };
    let mut short: Vec<_> = bits(needs.all).map(|one| ALL.without(one)).collect();
    if !needs.any.is_empty() {
        short.push(ALL.without(needs.any));
    }
    (enough, short)
}

/// Sends what `draft` makes on an Open of a new file with each grant.
async fn tried(
    (world, peer, mount): (&World, &mut Peer, &Mount),
    is_directory: bool,
    granted: AccessMask,
    draft: &dyn Fn(FileId) -> Draft,
) -> Status {
    if is_directory {
        std::fs::create_dir(world.path("it")).unwrap();
        world.file("it/child", "");
    } else {
        world.file("it", vec![7; 8192]);
    }
    let want = Want::existing("it").access(granted);
    let file = peer.open_file(mount, &want).await;
    let reply = peer.on(mount, draft(file)).await;
    peer.on(mount, close_draft(file)).await;
    let path = world.path("it");
    let _ = if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    reply.status()
}

/// ACCESS_DENIED with all but one of the rights, and not with them alone.
async fn check(
    at: (&World, &mut Peer, &Mount),
    what: &str,
    is_directory: bool,
    needs: Needs,
    draft: &dyn Fn(FileId) -> Draft,
) {
    let (world, peer, mount) = at;
    let (enough, short) = grants(needs);
    for granted in enough {
        let said = tried((world, peer, mount), is_directory, granted, draft).await;
        assert_ne!(said, Status::ACCESS_DENIED, "{what} with {granted:?}");
    }
    for granted in short {
        let said = tried((world, peer, mount), is_directory, granted, draft).await;
        assert_eq!(said, Status::ACCESS_DENIED, "{what} with {granted:?}");
    }
}

fn query(info_type: InfoType, class: u8, parts: u32, file: FileId) -> Draft {
    Draft::new(Command::QUERY_INFO).with(|w| {
        query_info::Request {
            info_type,
            file_info_class: class,
            output_buffer_length: 4096,
            additional_information: parts,
            flags: QueryInfoFlags::RESTART_SCAN,
            file_id: file,
            input: &[],
        }
        .encode(w);
    })
}

/// MS-SMB2 3.3.5.20.1 and MS-FSA 2.1.5.12.
fn queried(class: FileInfoClass) -> Needs {
    match class {
        FileInfoClass::BASIC
        | FileInfoClass::ALL
        | FileInfoClass::NETWORK_OPEN
        | FileInfoClass::ATTRIBUTE_TAG
        | FileInfoClass::PIPE
        | FileInfoClass::PIPE_LOCAL
        | FileInfoClass::PIPE_REMOTE => all(AccessMask::READ_ATTRIBUTES),
        FileInfoClass::FULL_EA => all(AccessMask::READ_EA),
        _ => NOTHING,
    }
}

/// Classes that are told whatever was granted: MS-FSA 2.1.5.12 has no right for
/// them.
const FREE: [FileInfoClass; 13] = [
    FileInfoClass::STANDARD,
    FileInfoClass::INTERNAL,
    FileInfoClass::EA,
    FileInfoClass::ACCESS,
    FileInfoClass::POSITION,
    FileInfoClass::MODE,
    FileInfoClass::ALIGNMENT,
    FileInfoClass::ALTERNATE_NAME,
    FileInfoClass::STREAM,
    FileInfoClass::COMPRESSION,
    FileInfoClass::NORMALIZED_NAME,
    FileInfoClass::ID,
    FileInfoClass::HARD_LINK,
];

#[test]
fn x2_what_each_class_of_a_file_needs_to_be_told() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for class in 0..=u8::MAX {
            let needs = queried(FileInfoClass(class));
            let draft = |file| query(InfoType::FILE, class, 0, file);
            let at = (world, &mut peer, &mount);
            check(at, &format!("query {class}"), false, needs, &draft).await;
            let said = tried((world, &mut peer, &mount), false, LEAST, &draft).await;
            if said == Status::SUCCESS {
                assert!(FREE.contains(&FileInfoClass(class)), "class {class} needs no right?");
            }
        }
    });
}

/// Information about the volume needs no right on a file.
#[test]
fn x2_what_each_class_of_a_volume_needs() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for class in 0..=u8::MAX {
            let draft = |file| query(InfoType::FILESYSTEM, class, 0, file);
            let at = (world, &mut peer, &mount);
            check(at, &format!("query {class}"), false, NOTHING, &draft).await;
            let draft = |file| set_info_draft(file, InfoType::FILESYSTEM, class, 0, &[0; 64]);
            let said = tried((world, &mut peer, &mount), false, ALL, &draft).await;
            assert_ne!(said, Status::SUCCESS, "set {class}");
            // The classes 6 (FileFsControlInformation) and 8 (FileFsObjectIdInformation) need
            // WRITE_DATA; the others need no right.
            let needs = if matches!(class, 6 | 8) { all(AccessMask::WRITE_DATA) } else { NOTHING };
            let at = (world, &mut peer, &mount);
            check(at, &format!("set {class}"), false, needs, &draft).await;
        }
    });
}

/// MS-SMB2 3.3.5.21.1 and MS-FSA 2.1.5.15, with something to set.
fn changed(class: FileInfoClass) -> (Needs, Vec<u8>) {
    let named = |name: &str| {
        let name = utf16(name);
        let mut bytes = vec![0; 16];
        bytes.extend_from_slice(&u32::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(&name);
        bytes.resize(bytes.len().max(24), 0);
        bytes
    };
    let needs = match class {
        FileInfoClass::BASIC | FileInfoClass::PIPE => all(AccessMask::WRITE_ATTRIBUTES),
        FileInfoClass::RENAME
        | FileInfoClass::RENAME_EX
        | FileInfoClass::DISPOSITION
        | FileInfoClass::DISPOSITION_EX
        | FileInfoClass::SHORT_NAME => all(AccessMask::DELETE),
        FileInfoClass::ALLOCATION
        | FileInfoClass::END_OF_FILE
        | FileInfoClass::VALID_DATA_LENGTH => all(AccessMask::WRITE_DATA),
        FileInfoClass::FULL_EA => all(AccessMask::WRITE_EA),
        _ => NOTHING,
    };
    let bytes = match class {
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX => named("other"),
        FileInfoClass::LINK => named("another"),
        FileInfoClass::FULL_EA => b"\0\0\0\0\0\x01\x01\0E\0x".to_vec(),
        FileInfoClass::DISPOSITION => vec![1],
        FileInfoClass::DISPOSITION_EX => vec![1, 0, 0, 0],
        FileInfoClass::MODE => vec![0; 4],
        FileInfoClass::ALLOCATION
        | FileInfoClass::END_OF_FILE
        | FileInfoClass::VALID_DATA_LENGTH
        | FileInfoClass::POSITION => vec![0; 8],
        _ => vec![0; 40],
    };
    (needs, bytes)
}

/// Classes that can be set on a handle without any right: what they change is
/// the handle's own, or a name in a directory that has rights of its own.
const SET_FREELY: [FileInfoClass; 3] =
    [FileInfoClass::POSITION, FileInfoClass::MODE, FileInfoClass::LINK];

#[test]
fn x2_what_each_class_of_a_file_needs_to_be_set() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let gone = || {
            for name in ["other", "another"] {
                let _ = std::fs::remove_file(world.path(name));
            }
        };
        for class in 0..=u8::MAX {
            let (needs, bytes) = changed(FileInfoClass(class));
            let draft = |file| {
                gone();
                set_info_draft(file, InfoType::FILE, class, 0, &bytes)
            };
            let at = (world, &mut peer, &mount);
            check(at, &format!("set {class}"), false, needs, &draft).await;
            let said = tried((world, &mut peer, &mount), false, LEAST, &draft).await;
            if said == Status::SUCCESS {
                assert!(
                    SET_FREELY.contains(&FileInfoClass(class)),
                    "class {class} needs no right?"
                );
            }
            let rights = needs.all | LEAST;
            let said = tried((world, &mut peer, &mount), false, rights, &draft).await;
            let has_effect = !needs.all.is_empty()
                && !matches!(
                    FileInfoClass(class),
                    FileInfoClass::PIPE
                        | FileInfoClass::SHORT_NAME
                        | FileInfoClass::VALID_DATA_LENGTH
                );
            if has_effect {
                assert_eq!(said, Status::SUCCESS, "set {class} with {rights:?}");
            }
        }
    });
}

/// MS-FSA 2.1.5.14 and 2.1.5.17.
#[test]
fn x2_what_each_part_of_a_descriptor_needs() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let system = all(AccessMask::ACCESS_SYSTEM_SECURITY);
        let reading = all(AccessMask::READ_CONTROL);
        let (dacl, owner) = (all(AccessMask::WRITE_DAC), all(AccessMask::WRITE_OWNER));
        let mut descriptor = Vec::new();
        SecurityDescriptor {
            control: SdControl::DACL_PRESENT,
            owner: Some(Sid::EVERYONE),
            group: Some(Sid::EVERYONE),
            dacl: Some(Acl::new(vec![Ace::allow(AceFlags::EMPTY, ALL, Sid::EVERYONE)])),
            ..SecurityDescriptor::default()
        }
        .encode(&mut descriptor)
        .unwrap();
        for (part, to_query, to_set) in [
            (SecurityInformation::OWNER, reading, owner),
            (SecurityInformation::GROUP, reading, owner),
            (SecurityInformation::DACL, reading, dacl),
            (SecurityInformation::LABEL, reading, owner),
            (SecurityInformation::ATTRIBUTE, reading, dacl),
            (SecurityInformation::SACL, system, system),
            (SecurityInformation::SCOPE, system, system),
            (SecurityInformation::BACKUP, system, system),
        ] {
            for (what, needs) in [("query", to_query), ("set", to_set)] {
                let draft = |file| match what {
                    "query" => query(InfoType::SECURITY, 0, part.0, file),
                    _ => set_info_draft(file, InfoType::SECURITY, 0, part.0, &descriptor),
                };
                let said = tried((world, &mut peer, &mount), false, ALL.without(needs.all), &draft);
                assert_eq!(said.await, Status::ACCESS_DENIED, "{what} {part:?}");
                // ACCESS_SYSTEM_SECURITY needs a privilege that ann does not have, so it cannot be
                // tested here.
                if needs != system {
                    let at = (world, &mut peer, &mount);
                    check(at, &format!("{what} {part:?}"), false, needs, &draft).await;
                }
            }
        }
    });
}

/// MS-FSA 2.1.5.10: what each control code needs of its Open. A code that is not
/// here needs nothing and changes nothing.
fn controlled(code: CtlCode) -> Needs {
    const WRITE: AccessMask = AccessMask::WRITE_DATA;
    let any_write = any(WRITE | AccessMask::APPEND_DATA);
    match code {
        CtlCode::SRV_COPYCHUNK => Needs { all: AccessMask::READ_DATA, ..any_write },
        CtlCode::SRV_COPYCHUNK_WRITE => any_write,
        CtlCode::SET_REPARSE_POINT
        | CtlCode::DELETE_REPARSE_POINT
        | CtlCode::SET_OBJECT_ID
        | CtlCode::SET_OBJECT_ID_EXTENDED
        | CtlCode::DELETE_OBJECT_ID
        | CtlCode::SET_INTEGRITY_INFORMATION => any(WRITE | AccessMask::WRITE_ATTRIBUTES),
        CtlCode::SET_SPARSE => any(WRITE | AccessMask::WRITE_ATTRIBUTES | AccessMask::APPEND_DATA),
        CtlCode::DUPLICATE_EXTENTS_TO_FILE
        | CtlCode::DUPLICATE_EXTENTS_TO_FILE_EX
        | CtlCode::FILE_LEVEL_TRIM
        | CtlCode::SET_COMPRESSION
        | CtlCode::OFFLOAD_WRITE
        | CtlCode::SET_ZERO_DATA => all(WRITE),
        CtlCode::OFFLOAD_READ | CtlCode::QUERY_ALLOCATED_RANGES => all(AccessMask::READ_DATA),
        _ => NOTHING,
    }
}

#[test]
fn x2_what_each_control_code_needs() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for row in TABLE.iter().filter(|row| row.on != On::Nothing && row.on != On::Pipe) {
            let needs = controlled(row.code);
            assert!(needs != NOTHING || !row.changes, "{:?} changes a file", row.code);
            for input in [vec![], vec![0; 24], [0_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat()]
            {
                let draft = |file| {
                    let request = ioctl::Request::fsctl(row.code, file, &input, 4096);
                    Draft::new(Command::IOCTL).with(|w| request.encode(w))
                };
                let at = (world, &mut peer, &mount);
                check(at, &format!("{:?}", row.code), false, needs, &draft).await;
            }
        }
    });
}

#[test]
fn x2_what_the_other_commands_need() {
    const READ: AccessMask = AccessMask::READ_DATA;
    const WRITES: AccessMask = AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let reads = any(READ | AccessMask::EXECUTE);
        let locks = any(READ | AccessMask::EXECUTE | WRITES);
        let exclusive = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
        let list = |file: FileId| {
            list_draft(file, FileInfoClass::DIRECTORY, QueryDirectoryFlags::EMPTY, "*")
        };
        let cases: [Case<'_>; 5] = [
            ("READ", false, reads, &|file| read_draft(file, 0, 10)),
            ("WRITE", false, any(WRITES), &|file| write_draft(file, 8192, b"more")),
            ("FLUSH", false, any(WRITES), &flush_draft),
            ("LOCK", false, locks, &|file| lock_draft(file, &[(0, 1, exclusive)])),
            ("QUERY_DIRECTORY", true, all(READ), &list),
        ];
        for (what, is_directory, needs, draft) in cases {
            check((world, &mut peer, &mount), what, is_directory, needs, draft).await;
        }
        // Only the refusal is tested here, because with the right, CHANGE_NOTIFY would wait, which
        // other tests cover.
        let watch = |file: FileId| {
            Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                change_notify::Request {
                    flags: ChangeNotifyFlags::EMPTY,
                    output_buffer_length: 4096,
                    file_id: file,
                    completion_filter: change_notify::CompletionFilter::SIZE,
                }
                .encode(w);
            })
        };
        let said = tried((world, &mut peer, &mount), true, ALL.without(READ), &watch).await;
        assert_eq!(said, Status::ACCESS_DENIED);
    });
}

async fn protect(peer: &mut Peer, mount: &Mount, name: &str, mask: AccessMask) {
    let want = Want::existing(name).access(AccessMask::WRITE_DAC);
    let file = peer.open_file(mount, &want).await;
    let mut bytes = Vec::new();
    SecurityDescriptor {
        control: SdControl::DACL_PRESENT,
        dacl: Some(Acl::new(vec![Ace::allow(AceFlags::EMPTY, mask, Sid::EVERYONE)])),
        ..SecurityDescriptor::default()
    }
    .encode(&mut bytes)
    .unwrap();
    let dacl = SecurityInformation::DACL.0;
    peer.on(mount, set_info_draft(file, InfoType::SECURITY, 0, dacl, &bytes)).await.ok();
    peer.close(mount, file).await;
}

async fn opens(peer: &mut Peer, mount: &Mount, want: &Want) -> Status {
    let reply = peer.create(mount, want).await;
    if reply.status() == Status::SUCCESS {
        peer.close(mount, file_id(&reply)).await;
    }
    reply.status()
}

/// Every bit of an access mask is granted by an entry that has it, and by no
/// other; MS-DTYP 2.5.3.2.
#[test]
fn x2_every_bit_of_a_mask_stands_for_itself() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let folder = ann.open_file(&hers, &Want::directory("d")).await;
        ann.close(&hers, folder).await;
        let file = ann.open_file(&hers, &Want::file("d\\f")).await;
        ann.close(&hers, file).await;
        // The directory's access list gives bob no rights on its entries, so the file's own list
        // decides.
        protect(&mut ann, &hers, "d", NONE).await;
        for granted in bits(ALL) {
            for (list, alone) in [(granted, true), (ALL.without(granted), false)] {
                protect(&mut ann, &hers, "d\\f", list).await;
                for asked in bits(ALL) {
                    let want = Want::existing("d\\f").access(asked);
                    let allowed = (asked == granted) == alone;
                    let expected = if allowed { Status::SUCCESS } else { Status::ACCESS_DENIED };
                    let said = opens(&mut bob, &his, &want).await;
                    assert_eq!(said, expected, "{asked:?} of {list:?}");
                }
            }
        }
    });
}

/// MS-FSA 2.1.5.1.2: what a disposition does to the file is a right on it.
#[test]
fn x2_what_each_disposition_needs() {
    const WRITE: AccessMask = AccessMask::WRITE_DATA;
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let folder = ann.open_file(&hers, &Want::directory("d")).await;
        ann.close(&hers, folder).await;
        protect(&mut ann, &hers, "d", NONE).await;
        let asked = AccessMask::READ_ATTRIBUTES;
        for (disposition, needs) in [
            (CreateDisposition::OPEN, NONE),
            (CreateDisposition::OPEN_IF, NONE),
            (CreateDisposition::OVERWRITE, WRITE),
            (CreateDisposition::OVERWRITE_IF, WRITE),
            (CreateDisposition::SUPERSEDE, WRITE | AccessMask::DELETE),
        ] {
            let want = Want::existing("d\\f").access(asked).disposition(disposition);
            let lists = bits(needs).map(|one| (ALL.without(one), Status::ACCESS_DENIED));
            for (list, expected) in lists.chain([(needs | asked, Status::SUCCESS)]) {
                world.file("d/f", "content");
                protect(&mut ann, &hers, "d\\f", list).await;
                let said = opens(&mut bob, &his, &want).await;
                assert_eq!(said, expected, "{disposition:?} of {list:?}");
                let kept = expected != Status::SUCCESS || needs.is_empty();
                assert_eq!(world.content("d/f") == b"content", kept, "{disposition:?} {list:?}");
                std::fs::remove_file(world.path("d/f")).unwrap();
            }
        }
    });
}
