//! Every change leaves a line: a walk over the commands, the classes of SET_INFO and the control
//! codes.

use frevo_server::audit::Recorded;
use frevo_server::internal::protocol;
use frevo_server::internal::protocol::TABLE;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::copychunk::{Chunk, CopyRequest, ResumeKeyResponse};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::dtyp::FileTime;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FsInfoClass;
use frevo_wire::fscc::fsctl::{TrimRange, TrimRequest, ZeroData};
use frevo_wire::fscc::query::FileBasicInformation;

use super::client::files::{set_draft, write_draft};
use super::client::{Mount, Peer};
use super::*;

fn encoded(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

fn basic(written: u64, attributes: u32) -> Vec<u8> {
    let information = FileBasicInformation {
        creation_time: FileTime::ZERO,
        last_access_time: FileTime::ZERO,
        last_write_time: FileTime(written),
        change_time: FileTime::ZERO,
        attributes: frevo_wire::dtyp::FileAttributes(attributes),
    };
    encoded(|w| information.encode(w))
}

/// FILE_FULL_EA_INFORMATION of one extended attribute.
fn ea() -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 1, 1, 0][..], b"A\0x"].concat()
}

/// REPARSE_DATA_BUFFER of a symbolic link to `f`.
fn link() -> Vec<u8> {
    let name: Vec<u8> = "f".encode_utf16().flat_map(u16::to_le_bytes).collect();
    encoded(|w| {
        w.u32(0xA000_000C).u16(16).u16(0).u16(0).u16(2).u16(2).u16(2).u32(1);
        w.bytes(&name).bytes(&name);
    })
}

/// The input with which a control code changes a file; `key` is the resume key of another one.
fn input(code: CtlCode, key: [u8; 24]) -> Vec<u8> {
    let zeros = |length: usize| vec![0; length];
    match code {
        CtlCode::SRV_COPYCHUNK | CtlCode::SRV_COPYCHUNK_WRITE => {
            let chunks = vec![Chunk { source_offset: 0, target_offset: 0, length: 4 }];
            encoded(|w| CopyRequest { source_key: key, chunks }.encode(w))
        }
        CtlCode::SET_OBJECT_ID => vec![7; 64],
        CtlCode::SET_OBJECT_ID_EXTENDED => vec![7; 48],
        CtlCode::DELETE_OBJECT_ID | CtlCode::CREATE_OR_GET_OBJECT_ID => Vec::new(),
        CtlCode::SET_REPARSE_POINT => link(),
        CtlCode::DELETE_REPARSE_POINT => vec![0x0C, 0, 0, 0xA0, 0, 0, 0, 0],
        CtlCode::SET_COMPRESSION => vec![2, 0],
        CtlCode::SET_INTEGRITY_INFORMATION => zeros(8),
        CtlCode::SET_SPARSE => vec![1],
        CtlCode::SET_ZERO_DATA => {
            encoded(|w| ZeroData { file_offset: 0, beyond_final_zero: 2 }.encode(w))
        }
        CtlCode::FILE_LEVEL_TRIM => {
            encoded(|w| TrimRequest::encode(w, 0, &[TrimRange { offset: 0, length: 4 }]))
        }
        // These requests fail, because the offload token is invalid, and this file system may not
        // be able to share extents.
        CtlCode::OFFLOAD_WRITE => zeros(544),
        CtlCode::DUPLICATE_EXTENTS_TO_FILE => zeros(40),
        CtlCode::DUPLICATE_EXTENTS_TO_FILE_EX => zeros(48),
        // These codes are known and not supported.
        CtlCode::LMR_SET_LINK_TRACKING_INFORMATION
        | CtlCode::SET_INTEGRITY_INFORMATION_EX
        | CtlCode::WRITE_USN_CLOSE_RECORD
        | CtlCode::RECALL_FILE
        | CtlCode::REFS_STREAM_SNAPSHOT_MANAGEMENT
        | CtlCode::SET_DEFECT_MANAGEMENT
        | CtlCode::SET_ENCRYPTION
        | CtlCode::SET_ZERO_ON_DEALLOCATION
        | CtlCode::SIS_COPYFILE
        | CtlCode::SVHDX_SYNC_TUNNEL_REQUEST
        | CtlCode::SVHDX_ASYNC_TUNNEL_REQUEST => zeros(16),
        code => panic!("{code:?} changes something and is not in this test"),
    }
}

async fn made(ann: &mut Peer, hers: &Mount, name: &str) -> FileId {
    let file = ann.open_file(hers, &Want::file(name)).await;
    ann.write(hers, file, 0, b"some data").await;
    ann.close(hers, file).await;
    ann.open_file(hers, &Want::existing(name)).await
}

/// The events about `path`, with their parts.
fn about<'a>(lines: &'a [Value], path: &str) -> Vec<(&'a str, &'a str)> {
    let lines = lines.iter().filter(|line| line["path"] == path);
    let word = |value: &'a Value| value.as_str().unwrap_or("");
    lines.map(|line| (word(&line["event"]), word(&line["parts"]))).collect()
}

/// A file, a class, the bytes that are set, and the event with its parts.
type Case = (&'static str, FileInfoClass, Vec<u8>, (&'static str, &'static str));

#[test]
fn each_class_of_set_info_leaves_a_line() {
    let cases: [Case; 6] = [
        ("times", FileInfoClass::BASIC, basic(133_000_000_000_000_000, 0), ("attributes", "times")),
        ("flags", FileInfoClass::BASIC, basic(0, 2), ("attributes", "attributes")),
        ("eas", FileInfoClass::FULL_EA, ea(), ("attributes", "eas")),
        ("space", FileInfoClass::ALLOCATION, 0_u64.to_le_bytes().to_vec(), ("write", "")),
        ("end", FileInfoClass::END_OF_FILE, 3_u64.to_le_bytes().to_vec(), ("write", "")),
        ("gone", FileInfoClass::DISPOSITION, vec![1], ("delete", "")),
    ];
    let lines = scene(ALL.without(Operations::OPEN), async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        for (name, class, bytes, _) in &cases {
            let file = made(&mut ann, &hers, name).await;
            ann.on(&hers, set_draft(*class, file, bytes)).await.ok();
            ann.close(&hers, file).await;
        }
        // The request has only zeros, which leave times and attributes unchanged, so it is not
        // recorded.
        let file = made(&mut ann, &hers, "nothing").await;
        ann.on(&hers, set_draft(FileInfoClass::BASIC, file, &basic(0, 0))).await.ok();
        ann.close(&hers, file).await;
        // The new name belongs to another file, which is deleted. This is recorded as an event of
        // its own.
        for (class, name, old) in
            [(FileInfoClass::RENAME, "moved", "old"), (FileInfoClass::LINK, "linked", "older")]
        {
            let there = made(&mut ann, &hers, old).await;
            ann.close(&hers, there).await;
            let file = made(&mut ann, &hers, name).await;
            ann.on(&hers, rename_draft(class, file, old, true)).await.ok();
            ann.close(&hers, file).await;
        }
    });
    let made = [("create", ""), ("write", "")];
    for (name, _, _, event) in &cases {
        assert_eq!(about(&lines, name), [made[0], made[1], *event], "{name}");
    }
    assert_eq!(about(&lines, "nothing"), made);
    assert_eq!(about(&lines, "moved"), [made[0], made[1], ("rename", "")]);
    assert_eq!(about(&lines, "old"), [made[0], made[1], ("delete", "")]);
    let older = about(&lines, "older");
    assert_eq!(older[..2], made);
    let rest: BTreeSet<_> = older[2..].iter().copied().collect();
    assert_eq!(rest, BTreeSet::from([("delete", ""), ("create", "")]), "{older:?}");
}

#[test]
fn each_control_code_that_changes_a_file_leaves_a_line() {
    let kept = Mutex::new(Vec::new());
    let changing = || TABLE.iter().filter(|row| row.recorded != Recorded::Nothing);
    let lines = scene(ALL.without(Operations::OPEN), async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let source = made(&mut ann, &hers, "source").await;
        let request = ioctl::Request::fsctl(CtlCode::SRV_REQUEST_RESUME_KEY, source, &[], 4_096);
        let reply = ann.on(&hers, Draft::new(Command::IOCTL).with(|w| request.encode(w))).await;
        let response = ioctl::Response::parse(&reply.message).unwrap();
        let key = ResumeKeyResponse::parse(response.output).unwrap().resume_key;
        for row in changing() {
            let name = format!("f{:x}", row.code.0);
            let file = made(&mut ann, &hers, &name).await;
            let bytes = input(row.code, key);
            let request = ioctl::Request::fsctl(row.code, file, &bytes, 4_096);
            let draft = Draft::new(Command::IOCTL).with(|w| request.encode(w));
            let status = ann.on(&hers, draft).await.status();
            ann.close(&hers, file).await;
            kept.lock().push((name, row.code, row.recorded, status));
        }
    });
    let made = [("create", ""), ("write", "")];
    let mut succeeded = 0;
    for (name, code, recorded, status) in kept.into_inner() {
        let found = about(&lines, &name);
        assert_eq!(found[..2], made, "{code:?}");
        let expected: &[(&str, &str)] = match recorded {
            // A failed attempt to change attributes is recorded as well.
            Recorded::Attributes(parts) => &[("attributes", parts)],
            // The trimmed range has no whole cluster, so nothing is written and no event recorded.
            Recorded::Data if code == CtlCode::FILE_LEVEL_TRIM && status == Status::SUCCESS => &[],
            Recorded::Data => &[("write", "")],
            _ => &[],
        };
        assert_eq!(&found[2..], expected, "{code:?} {status:?}");
        succeeded += usize::from(status == Status::SUCCESS);
    }
    assert!(succeeded >= 6, "only {succeeded} control codes did anything");
}

/// The lines of refused attempts about `path`: event, parts, status.
fn refused_about<'a>(lines: &'a [Value], path: &str) -> Vec<[&'a str; 3]> {
    let word = |value: &'a Value| value.as_str().unwrap_or("");
    let lines = lines.iter().filter(|line| line["path"] == path && line["outcome"] == "refused");
    lines.map(|line| [&line["event"], &line["parts"], &line["status"]].map(word)).collect()
}

/// SET_INFO: the kind of information, its class, and the event and parts that its refusal leaves; none
/// where nothing but the handle would change, or nothing is known of the class.
fn refusals_of_set_info() -> Vec<(InfoType, u8, Option<[&'static str; 2]>)> {
    let file = |class: u8| match FileInfoClass(class) {
        FileInfoClass::BASIC => Some(["attributes", "times"]),
        FileInfoClass::FULL_EA => Some(["attributes", "eas"]),
        FileInfoClass::SHORT_NAME => Some(["attributes", "short_name"]),
        FileInfoClass::TRACKING => Some(["attributes", "link_tracking"]),
        FileInfoClass::QUOTA => Some(["privilege", ""]),
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX => Some(["rename", ""]),
        FileInfoClass::LINK => Some(["create", ""]),
        FileInfoClass::DISPOSITION | FileInfoClass::DISPOSITION_EX => Some(["delete", ""]),
        FileInfoClass::ALLOCATION
        | FileInfoClass::END_OF_FILE
        | FileInfoClass::VALID_DATA_LENGTH => Some(["write", ""]),
        _ => None,
    };
    let volume = |class: u8| match FsInfoClass(class) {
        FsInfoClass::LABEL => Some(["attributes", "volume_label"]),
        FsInfoClass::OBJECT_ID => Some(["attributes", "volume_object_id"]),
        FsInfoClass::VOLUME_FLAGS => Some(["attributes", "volume_flags"]),
        FsInfoClass::CONTROL => Some(["privilege", ""]),
        _ => None,
    };
    let files = (0..=u8::MAX).map(|class| (InfoType::FILE, class, file(class)));
    let volumes = (0..=u8::MAX).map(|class| (InfoType::FILESYSTEM, class, volume(class)));
    let others = [
        (InfoType::SECURITY, 0, Some(["acl", "dacl"])),
        (InfoType::QUOTA, 0, Some(["privilege", ""])),
    ];
    files.chain(volumes).chain(others).collect()
}

/// The bytes of a class that asks for something.
fn asked(kind: InfoType, class: u8) -> Vec<u8> {
    let name = |ex: bool| {
        let flag = u8::from(!ex);
        [&[flag, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[2, 0, 0, 0], b"n\0\0\0"].concat()
    };
    match (kind, FileInfoClass(class)) {
        (InfoType::FILE, FileInfoClass::BASIC) => basic(133_000_000_000_000_000, 0),
        (InfoType::FILE, FileInfoClass::FULL_EA) => ea(),
        (InfoType::FILE, FileInfoClass::RENAME_EX) => name(true),
        (InfoType::FILE, FileInfoClass::RENAME | FileInfoClass::LINK) => name(false),
        (InfoType::SECURITY, _) => bytes(&everyone(AccessMask::FILE_ALL)),
        _ => vec![0; 64],
    }
}

/// Each change that a handle without rights asks for, over all classes and control codes, leaves one
/// line of a refusal.
#[test]
fn each_refused_change_leaves_a_line() {
    let answers = Mutex::new(Vec::new());
    let denied = Mutex::new(Vec::new());
    let lines = scene(ALL, async |world| {
        // Bob has no privileges, so each of these changes must be refused and recorded.
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let reader = AccessMask::FILE_GENERIC_READ;
        for (kind, class, expected) in refusals_of_set_info() {
            let name = format!("s{:?}{class}", kind.0);
            let made = bob.open_file(&his, &Want::file(&name)).await;
            bob.close(&his, made).await;
            // A hard link needs no right on its file, so it is refused for another reason: its name
            // is in use.
            let is_link = kind == InfoType::FILE && FileInfoClass(class) == FileInfoClass::LINK;
            if is_link {
                world.file("n", "");
            }
            let file = bob.open_file(&his, &Want::existing(&name).access(reader)).await;
            let parts = SecurityInformation::DACL.0;
            let mut buffer = asked(kind, class);
            if is_link {
                buffer[0] = 0;
            }
            let draft = set_info_draft(file, kind, class, parts, &buffer);
            let status = bob.on(&his, draft).await.status();
            bob.close(&his, file).await;
            answers.lock().push((name, expected, status));
        }
        let file = made(&mut bob, &his, "written").await;
        bob.close(&his, file).await;
        let file = bob.open_file(&his, &Want::existing("written").access(reader)).await;
        bob.on(&his, write_draft(file, 0, b"x")).await.expect(Status::ACCESS_DENIED);
        bob.close(&his, file).await;
        // Making an object ID needs no right, so it is not refused.
        let is_refused = |code| code != CtlCode::CREATE_OR_GET_OBJECT_ID;
        let asked = TABLE.iter().filter(|row| row.recorded != Recorded::Nothing);
        for row in asked.filter(|row| is_refused(row.code)) {
            let name = format!("i{:x}", row.code.0);
            let there = made(&mut bob, &his, &name).await;
            bob.close(&his, there).await;
            let file = bob.open_file(&his, &Want::existing(&name).access(reader)).await;
            let bytes = input(row.code, [0; 24]);
            let request = ioctl::Request::fsctl(row.code, file, &bytes, 4_096);
            let draft = Draft::new(Command::IOCTL).with(|w| request.encode(w));
            let status = bob.on(&his, draft).await.status();
            let is_absent =
                matches!(status, Status::INVALID_DEVICE_REQUEST | Status::NOT_SUPPORTED);
            assert!(
                if row.changes { status == Status::ACCESS_DENIED } else { is_absent },
                "{name}"
            );
            bob.close(&his, file).await;
            denied.lock().push((name, row.recorded, status));
        }
    });
    for (name, expected, status) in answers.into_inner() {
        let path = if expected == Some(["create", ""]) { "n" } else { &*name };
        let told = status.to_string();
        let lines = refused_about(&lines, path);
        match expected {
            Some([event, parts]) => assert_eq!(lines, [[event, parts, &*told]], "{name}"),
            None => assert!(lines.is_empty(), "{name} {status}: {lines:?}"),
        }
        assert!(expected.is_none() || status != Status::SUCCESS, "{name}");
    }
    assert_eq!(refused_about(&lines, "written"), [["write", "", "ACCESS_DENIED"]]);
    for (name, recorded, status) in denied.into_inner() {
        let status = &*status.to_string();
        let expected = match recorded {
            Recorded::Attributes(parts) => ["attributes", parts, status],
            _ => ["write", "", status],
        };
        assert_eq!(refused_about(&lines, &name), [expected], "{name}");
    }
}

/// A command that changes something has an event; a new command needs a decision here.
#[test]
fn each_command_has_its_events() {
    let events = |command: Command| -> Option<&'static [Kind]> {
        Some(match command {
            Command::SESSION_SETUP => &[Kind::Logon],
            Command::LOGOFF => &[Kind::Logoff],
            Command::TREE_CONNECT => &[Kind::Connect],
            Command::TREE_DISCONNECT => &[Kind::Disconnect],
            Command::CREATE => &[Kind::Open, Kind::Create],
            // The close of a handle reports the writes through it, and the deletion of its file.
            Command::CLOSE => &[Kind::Write, Kind::Delete, Kind::Brake],
            // A WRITE to a file is recorded when its handle closes. A WRITE to a pipe may call a
            // function that sets passwords, changes shares or kicks clients.
            Command::WRITE => &[Kind::Write, Kind::Password, Kind::Share, Kind::Kick, Kind::Brake],
            // Tests in this file try all information classes and control codes, so SET_INFO and
            // IOCTL cause only these events.
            Command::SET_INFO => {
                &[Kind::Rename, Kind::Create, Kind::Delete, Kind::Acl, Kind::Attributes]
            }
            Command::IOCTL => &[Kind::Attributes, Kind::Write],
            // These commands change nothing that lasts, so they cause no events.
            Command::NEGOTIATE
            | Command::FLUSH
            | Command::READ
            | Command::LOCK
            | Command::CANCEL
            | Command::ECHO
            | Command::QUERY_DIRECTORY
            | Command::CHANGE_NOTIFY
            | Command::QUERY_INFO
            | Command::OPLOCK_BREAK => &[],
            _ => return None,
        })
    };
    for number in 0..=u16::MAX {
        let known = protocol::row(Command(number)).is_some();
        assert_eq!(known, events(Command(number)).is_some(), "command {number}");
    }
}
