use crate::shares::folders::testing::{NtAcls, PosixOptions};
use frevo_store::vfs::BasicChange;
use frevo_store::{FileTable, Sharing};
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::set_info::{InfoType, Request};
use frevo_wire::dtyp::SecurityInformation;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, FileAttributes, FileTime, SecurityDescriptor, Sid,
};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::ea::{Ea, EaWriter};
use frevo_wire::fscc::query::FileBasicInformation;
use frevo_wire::fscc::set::{FileRenameInformation, FileRenameInformationEx, RenameFlags};
use frevo_wire::fscc::{FileInfoClass, FsInfoClass, Pushed};

use super::super::query_info::testing::{Bench, file};
use super::file::row;
use super::{apply, guarded, sizes};
use crate::access::domain_names::DomainNames;
use crate::audit::Recorded;
use crate::command::ioctl;
use crate::command::ioctl::table::TABLE;
use crate::objects::open::{FileOpen, Open};

const ALL_RIGHTS: AccessMask = AccessMask::FILE_ALL;

fn set(open: &Open, files: &FileTable, class: FileInfoClass, bytes: &[u8]) -> Result<(), Status> {
    send(open, files, InfoType::FILE, class.0, 0, bytes)
}

fn send(
    open: &Open,
    files: &FileTable,
    info_type: InfoType,
    class: u8,
    additional_information: u32,
    buffer: &[u8],
) -> Result<(), Status> {
    let file_id = FileId::ALL_ONES;
    let request =
        Request { info_type, file_info_class: class, additional_information, file_id, buffer };
    apply(open, files, &DomainNames::default(), &request, None)
}

fn rename_to(name: &str, replace_if_exists: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    FileRenameInformation { replace_if_exists, root_directory: 0, name }
        .encode(&mut Writer::new(&mut bytes));
    bytes
}

fn rename_ex(name: &str, flags: RenameFlags) -> Vec<u8> {
    let mut bytes = Vec::new();
    FileRenameInformationEx { flags, root_directory: 0, name }.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Class, smallest buffer, right needed.
const SET: [(FileInfoClass, usize, AccessMask); 13] = [
    (FileInfoClass::BASIC, 40, AccessMask::WRITE_ATTRIBUTES),
    (FileInfoClass::RENAME, 24, AccessMask::DELETE),
    (FileInfoClass::LINK, 24, AccessMask::EMPTY),
    (FileInfoClass::DISPOSITION, 1, AccessMask::DELETE),
    (FileInfoClass::FULL_EA, 1, AccessMask::WRITE_EA),
    (FileInfoClass::ALLOCATION, 8, AccessMask::WRITE_DATA),
    (FileInfoClass::END_OF_FILE, 8, AccessMask::WRITE_DATA),
    (FileInfoClass::VALID_DATA_LENGTH, 8, AccessMask::WRITE_DATA),
    (FileInfoClass::SHORT_NAME, 8, AccessMask::DELETE),
    (FileInfoClass::DISPOSITION_EX, 4, AccessMask::DELETE),
    (FileInfoClass::RENAME_EX, 24, AccessMask::DELETE),
    (FileInfoClass::POSITION, 8, AccessMask::EMPTY),
    (FileInfoClass::MODE, 4, AccessMask::EMPTY),
];

fn modifies(class: FileInfoClass) -> bool {
    !matches!(class, FileInfoClass::POSITION | FileInfoClass::MODE)
}

#[test]
fn every_class_has_its_row_or_its_refusal() {
    for class in (0..=u8::MAX).map(FileInfoClass) {
        let known = SET.iter().find(|(known, ..)| *known == class);
        match (known, row(class)) {
            (Some((_, min, access)), Ok(row)) => {
                assert_eq!((row.min, row.access), (*min, *access), "{class}");
                assert_eq!(row.modifies, modifies(class), "{class}");
            }
            (None, Ok(_)) => assert_eq!(class, FileInfoClass::PIPE),
            (None, Err(Status::NOT_SUPPORTED)) => {
                assert!(matches!(class.0, 30 | 32 | 41..=43), "{class}");
            }
            (None, Err(status)) => assert_eq!(status, Status::INVALID_INFO_CLASS, "{class}"),
            (Some(_), Err(status)) => panic!("{class} is refused: {status}"),
        }
    }
}

/// A handle without the right, or on a read-only share, changes nothing.
#[test]
fn nothing_changes_without_right_or_in_a_read_only_share() {
    let option = PosixOptions { read_only: true, ..PosixOptions::default() };
    let cases = [
        (Bench::new(), AccessMask(!0), Status::ACCESS_DENIED),
        (Bench::with(true, PosixOptions::default()), AccessMask::EMPTY, Status::ACCESS_DENIED),
        (Bench::with(false, option), AccessMask::EMPTY, Status::MEDIA_WRITE_PROTECTED),
    ];
    for (bench, withheld, expected) in cases {
        bench.write("f", "content");
        let before = bench.path().join("f").metadata().unwrap();
        for (class, _, access) in SET {
            let granted = ALL_RIGHTS.without(access & withheld).without(AccessMask::WRITE_DATA);
            let granted = if withheld.is_empty() {
                granted | (access & AccessMask::WRITE_DATA)
            } else {
                granted
            };
            if access.is_empty() && !withheld.is_empty() || !modifies(class) {
                continue;
            }
            // The file is opened for reading only, but the Open gets all rights. So the server
            // allows the change and the host refuses it.
            let mut open = bench.open("f", granted.without(AccessMask::WRITE_DATA));
            open.granted_access = granted;
            let bytes = match class {
                FileInfoClass::RENAME | FileInfoClass::LINK => rename_to("g", true),
                FileInfoClass::RENAME_EX => rename_ex("g", RenameFlags::REPLACE_IF_EXISTS),
                _ => [1; 40].to_vec(),
            };
            assert_eq!(set(&open, &bench.files, class, &bytes), Err(expected), "{class}");
            assert!(!file(&open).cell.lock().is_delete_pending(), "{class}");
            assert!(!bench.exists("g"), "{class}");
            drop(open.close(&bench.files));
        }
        let after = bench.path().join("f").metadata().unwrap();
        assert_eq!(after.len(), 7);
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        assert_eq!(after.permissions(), before.permissions());
    }
}

#[test]
fn short_buffers_are_refused() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    for (class, min, _) in SET.into_iter().filter(|(class, ..)| *class != FileInfoClass::FULL_EA) {
        let status = set(&open, &bench.files, class, &vec![0; min - 1]);
        assert_eq!(status, Err(Status::INFO_LENGTH_MISMATCH), "{class}");
    }
}

fn basic(times: [u64; 4], attributes: FileAttributes) -> Vec<u8> {
    let mut bytes = Vec::new();
    FileBasicInformation {
        creation_time: FileTime(times[0]),
        last_access_time: FileTime(times[1]),
        last_write_time: FileTime(times[2]),
        change_time: FileTime(times[3]),
        attributes,
    }
    .encode(&mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn times_and_attributes_are_set() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    let send = |times, attributes| {
        set(&open, &bench.files, FileInfoClass::BASIC, &basic(times, attributes))
    };
    let (created, accessed, written) = (
        FileTime::from_unix(1_000, 0),
        FileTime::from_unix(2_000, 0),
        FileTime::from_unix(3_000, 0),
    );
    send([created.0, accessed.0, written.0, 0], FileAttributes::EMPTY).unwrap();
    let now = file(&open).stat().unwrap();
    assert_eq!((now.accessed, now.written), (accessed, written));
    // A time of -1 or -2 leaves the file's time unchanged, and lower values are invalid.
    send([u64::MAX, u64::MAX - 1, u64::MAX, u64::MAX - 1], FileAttributes::EMPTY).unwrap();
    assert_eq!(file(&open).stat().unwrap(), now);
    for field in 0..4 {
        let mut times = [0; 4];
        times[field] = u64::MAX - 2;
        assert_eq!(send(times, FileAttributes::EMPTY), Err(Status::INVALID_PARAMETER));
    }
    assert_eq!(send([0; 4], FileAttributes::DIRECTORY), Err(Status::INVALID_PARAMETER));
    if file(&open).vfs.volume().xattrs {
        assert_eq!(now.created, created);
        let some = FileAttributes::READONLY | FileAttributes::TEMPORARY;
        send([0; 4], some | FileAttributes::COMPRESSED).unwrap();
        assert_eq!(file(&open).stat().unwrap().attributes, some);
        send([0; 4], FileAttributes::NORMAL).unwrap();
        assert_eq!(file(&open).stat().unwrap().attributes, FileAttributes::NORMAL);
        assert_eq!(file(&open).stat().unwrap().created, created);
    }
    let root = bench.open("", ALL_RIGHTS);
    let send =
        |attributes| set(&root, &bench.files, FileInfoClass::BASIC, &basic([0; 4], attributes));
    assert_eq!(send(FileAttributes::TEMPORARY), Err(Status::INVALID_PARAMETER));
    send(FileAttributes::HIDDEN | FileAttributes::DIRECTORY).unwrap();
    assert!(!file(&root).stat().unwrap().attributes.contains(FileAttributes::HIDDEN));
}

#[test]
fn sizes_are_set() {
    let bench = Bench::new();
    bench.write("f", "0123456789");
    let open = bench.open("f", ALL_RIGHTS);
    let send = |open: &Open, class, size: i64| set(open, &bench.files, class, &size.to_le_bytes());
    send(&open, FileInfoClass::END_OF_FILE, 4).unwrap();
    assert_eq!(file(&open).stat().unwrap().end_of_file, 4);
    send(&open, FileInfoClass::END_OF_FILE, 6).unwrap();
    assert_eq!(std::fs::read(bench.path().join("f")).unwrap(), b"0123\0\0");
    send(&open, FileInfoClass::ALLOCATION, 1 << 20).unwrap();
    assert_eq!(file(&open).stat().unwrap().end_of_file, 6);
    // MS-FSA 2.1.5.15.1: the allocation size is rounded up to whole clusters, so 3 cuts nothing off
    // a file of 6 bytes, but cuts a longer file to one cluster.
    let cluster = file(&open).vfs.volume().cluster;
    send(&open, FileInfoClass::ALLOCATION, 3).unwrap();
    assert_eq!(file(&open).stat().unwrap().end_of_file, 6);
    send(&open, FileInfoClass::END_OF_FILE, i64::from(cluster) * 2).unwrap();
    send(&open, FileInfoClass::ALLOCATION, 3).unwrap();
    assert_eq!(file(&open).stat().unwrap().end_of_file, u64::from(cluster));
    send(&open, FileInfoClass::ALLOCATION, 0).unwrap();
    assert_eq!(file(&open).stat().unwrap().end_of_file, 0);
    let root = bench.open("", ALL_RIGHTS.without(AccessMask::WRITE_DATA));
    let mut root = root;
    root.granted_access = ALL_RIGHTS;
    for class in [FileInfoClass::END_OF_FILE, FileInfoClass::ALLOCATION] {
        assert_eq!(send(&open, class, -1), Err(Status::INVALID_PARAMETER));
        assert_eq!(send(&root, class, 1), Err(Status::INVALID_PARAMETER));
    }
    let length = send(&open, FileInfoClass::VALID_DATA_LENGTH, 1);
    assert_eq!(length, Err(Status::PRIVILEGE_NOT_HELD));
}

#[test]
fn a_disposition_marks_and_the_last_close_removes() {
    let bench = Bench::new();
    bench.write("f", "");
    bench.make_folder("d");
    bench.write("d/inside", "");
    let set = |open: &Open, class, bytes: &[u8]| set(open, &bench.files, class, bytes);
    let plain = FileInfoClass::DISPOSITION;
    let root = bench.open("", ALL_RIGHTS.without(AccessMask::WRITE_DATA));
    assert_eq!(set(&root, plain, &[1]), Err(Status::ACCESS_DENIED));
    let directory = bench.open("d", ALL_RIGHTS.without(AccessMask::WRITE_DATA));
    assert_eq!(set(&directory, plain, &[1]), Err(Status::DIRECTORY_NOT_EMPTY));
    std::fs::remove_file(bench.path().join("d/inside")).unwrap();
    set(&directory, plain, &[1]).unwrap();
    drop(directory.close(&bench.files));
    assert!(!bench.exists("d"));
    let (one, other) = (bench.open("f", ALL_RIGHTS), bench.open("f", ALL_RIGHTS));
    set(&one, plain, &[1]).unwrap();
    set(&one, plain, &[0]).unwrap();
    set(&other, plain, &[1]).unwrap();
    drop(one.close(&bench.files));
    assert!(bench.exists("f"));
    drop(other.close(&bench.files));
    assert!(!bench.exists("f"));
}

/// Tests that a close on a core that is made once only waits for a name that another thread has.
#[test]
fn a_deletion_that_nobody_makes_again_is_not_given_up() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    set(&open, &bench.files, FileInfoClass::DISPOSITION, &[1]).unwrap();
    let (folder_id, name) = (file(&open).folder_id(), file(&open).name());
    std::thread::scope(|scope| {
        let (locked, is_locked) = std::sync::mpsc::channel();
        let (files, name) = (&bench.files, &name);
        scope.spawn(move || {
            let _held = files.names.hold(folder_id, name);
            locked.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
        });
        is_locked.recv().unwrap();
        let (left, gave_up) = crate::base::host::short_patience(|| open.close(files));
        assert!(!gave_up && left.is_empty());
    });
    assert!(!bench.exists("f"));
}

/// A folder with names that the share hides stays, and the client is told so.
#[test]
fn a_folder_with_hidden_names_is_not_empty() {
    let veto = vec![String::from("*.key")];
    let bench = Bench::with(false, PosixOptions { veto, ..PosixOptions::default() });
    for (name, hidden) in [("full", true), ("empty", false)] {
        bench.make_folder(name);
        if hidden {
            bench.write(&format!("{name}/a.key"), "secret");
        }
        let open = bench.open(name, ALL_RIGHTS);
        let mut listing = file(&open).node.directory().unwrap();
        assert!(listing.next_name().unwrap().is_none(), "{name}");
        for (class, bytes) in
            [(FileInfoClass::DISPOSITION, &[1][..]), (FileInfoClass::DISPOSITION_EX, &[1, 0, 0, 0])]
        {
            let expected = if hidden { Err(Status::DIRECTORY_NOT_EMPTY) } else { Ok(()) };
            assert_eq!(set(&open, &bench.files, class, bytes), expected, "{name}");
        }
        drop(open.close(&bench.files));
        assert_eq!(bench.exists(name), hidden, "{name}");
    }
}

/// A write of another Open that comes between the look at the times and their restoration keeps its
/// time, whichever of the two ends first.
#[test]
fn a_write_beside_a_restoration_keeps_its_time() {
    for restores_first in [true, false] {
        let bench = Bench::new();
        bench.write("f", "old");
        let (one, other) = (bench.open("f", ALL_RIGHTS), bench.open("f", ALL_RIGHTS));
        let (one, other) = (file(&one), file(&other));
        let old = FileTime(0x01d0_0000_0000_0000);
        let change = BasicChange { written: Some(old), ..BasicChange::default() };
        one.node.set_basic(&change).unwrap();
        let (kept, writing) = (one.keep_written(), other.keep_times_of_write());
        other.node.write_at(0, b"new").unwrap();
        if restores_first {
            drop(kept);
            assert_eq!(other.node.stat().unwrap().written, old, "the write is not known yet");
            other.times_moved();
            drop(writing);
        } else {
            other.times_moved();
            drop(writing);
            drop(kept);
        }
        assert!(other.node.stat().unwrap().written > old, "{restores_first}");
    }
}

/// A change of data by a control code, or of its length, keeps its time as a write does; the other
/// operations move no LastWriteTime.
#[test]
fn a_change_of_data_beside_a_restoration_keeps_its_time() {
    let request = |class: FileInfoClass| Request {
        info_type: InfoType::FILE,
        file_info_class: class.0,
        additional_information: 0,
        file_id: FileId::ALL_ONES,
        buffer: &[],
    };
    let moves = |changes_data: bool, guard: &dyn Fn(&FileOpen, &dyn Fn())| {
        let bench = Bench::new();
        bench.write("f", "old");
        let (one, other) = (bench.open("f", ALL_RIGHTS), bench.open("f", ALL_RIGHTS));
        let (one, other) = (file(&one), file(&other));
        let old = FileTime(0x01d0_0000_0000_0000);
        let change = BasicChange { written: Some(old), ..BasicChange::default() };
        one.node.set_basic(&change).unwrap();
        let kept = std::cell::Cell::new(Some(one.keep_written()));
        guard(other, &|| {
            if changes_data {
                other.node.write_at(0, b"new").unwrap();
            }
            // The kept times, from before the change, are restored when `kept` is dropped.
            drop(kept.take());
            if changes_data {
                other.times_moved();
            }
        });
        other.node.stat().unwrap().written > old
    };
    for row in TABLE.iter().filter(|row| row.changes) {
        let is_data = row.recorded == Recorded::Data;
        let guard = |file: &FileOpen, work: &dyn Fn()| {
            let kept = ioctl::guarded(row, file);
            work();
            drop(kept);
        };
        assert_eq!(moves(is_data, &guard), is_data, "{:?}", row.code);
    }
    for class in [FileInfoClass::END_OF_FILE, FileInfoClass::FULL_EA] {
        let is_data = class == FileInfoClass::END_OF_FILE;
        let guard = |file: &FileOpen, work: &dyn Fn()| {
            let kept = guarded(&request(class), file);
            work();
            drop(kept);
        };
        assert_eq!(moves(is_data, &guard), is_data, "{class:?}");
    }
    // An allocation that cuts the file moves its time, others do not.
    for cuts in [true, false] {
        let guard = |file: &FileOpen, work: &dyn Fn()| {
            let allocate = || {
                work();
                Ok(())
            };
            sizes::keep_times(file, cuts, allocate).unwrap();
        };
        assert_eq!(moves(cuts, &guard), cuts, "allocation that cuts: {cuts}");
    }
    // A change that was refused must not move the file's times.
    let refused = |file: &FileOpen, work: &dyn Fn()| {
        let mut kept = file.keep_times_of_write();
        work();
        kept.was_refused();
    };
    assert!(!moves(false, &refused));
}

#[test]
fn read_only_files_are_kept_unless_that_is_ignored() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    if !file(&open).vfs.volume().xattrs {
        return;
    }
    let set = |open: &Open, class, bytes: &[u8]| set(open, &bench.files, class, bytes);
    let extended = FileInfoClass::DISPOSITION_EX;
    set(&open, FileInfoClass::BASIC, &basic([0; 4], FileAttributes::READONLY)).unwrap();
    assert_eq!(set(&open, FileInfoClass::DISPOSITION, &[1]), Err(Status::CANNOT_DELETE));
    assert_eq!(set(&open, extended, &[1, 0, 0, 0]), Err(Status::CANNOT_DELETE));
    let weak = bench.open("f", AccessMask::DELETE);
    assert_eq!(set(&weak, extended, &[0x11, 0, 0, 0]), Err(Status::CANNOT_DELETE));
    // The handle was opened without DELETE_ON_CLOSE, so the flag ON_CLOSE (0x08) is not supported;
    // nor is the undefined flag 0x20.
    for flags in [0x09, 0x21] {
        assert_eq!(set(&open, extended, &[flags, 0, 0, 0]), Err(Status::NOT_SUPPORTED));
    }
    set(&open, extended, &[0x11, 0, 0, 0]).unwrap();
    assert!(file(&open).cell.lock().is_delete_pending());
    set(&open, extended, &[0; 4]).unwrap();
    assert!(!file(&open).cell.lock().is_delete_pending());
}

#[test]
fn renames_follow_the_rules() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.write(name, name);
    }
    bench.make_folder("d");
    let open = bench.open("a", ALL_RIGHTS);
    let to = |name: &str, replace| {
        set(&open, &bench.files, FileInfoClass::RENAME, &rename_to(name, replace))
    };
    assert_eq!(to("b", false), Err(Status::OBJECT_NAME_COLLISION));
    assert_eq!(to("d", true), Err(Status::ACCESS_DENIED));
    assert_eq!(to("\\b", true), Err(Status::INVALID_PARAMETER));
    assert_eq!(to("", true), Err(Status::INVALID_PARAMETER));
    assert_eq!(to("x*", true), Err(Status::OBJECT_NAME_INVALID));
    assert_eq!(to("d\\..\\x", true), Err(Status::INVALID_PARAMETER));
    assert_eq!(to("..", true), Err(Status::OBJECT_PATH_SYNTAX_BAD));
    assert_eq!(to("none\\y\\..\\x", true), Err(Status::OBJECT_PATH_NOT_FOUND));
    assert_eq!(to("x\\", true), Err(Status::OBJECT_NAME_INVALID), "the link has no name");
    assert_eq!(to(":stream", true), Err(Status::NOT_SUPPORTED));
    assert_eq!(to("none\\x", true), Err(Status::OBJECT_PATH_NOT_FOUND));
    to("a", false).unwrap();
    let other = bench.open("b", AccessMask::READ_ATTRIBUTES);
    assert_eq!(to("b", true), Err(Status::ACCESS_DENIED), "somebody has it open");
    drop(other.close(&bench.files));
    to("b", true).unwrap();
    assert_eq!(std::fs::read(bench.path().join("b")).unwrap(), b"a");
    assert!(!bench.exists("a"));
    to("B", false).unwrap();
    assert!(bench.exists("B") && !bench.exists("b"), "only the case changes");
    to("D\\moved", false).unwrap();
    assert!(bench.exists("d/moved"));
    assert_eq!(file(&open).name().last(), "moved");
    file(&open).cell.lock().set_delete_pending(open.id(), true);
    assert_eq!(to("e", false), Err(Status::ACCESS_DENIED));
    let root = bench.open("", ALL_RIGHTS.without(AccessMask::WRITE_DATA));
    let root = set(&root, &bench.files, FileInfoClass::RENAME, &rename_to("e", false));
    assert_eq!(root, Err(Status::ACCESS_DENIED));
}

#[test]
fn a_root_directory_or_an_overlong_name_is_no_rename() {
    let bench = Bench::new();
    bench.write("a", "");
    let open = bench.open("a", ALL_RIGHTS);
    let mut relative = rename_to("name", false);
    relative[8] = 1;
    let mut long = rename_to("name", false);
    long[16] = 10;
    let mut odd = rename_to("name", false);
    odd[16] = 7;
    for bytes in [relative, long, odd] {
        for class in [FileInfoClass::RENAME, FileInfoClass::LINK, FileInfoClass::RENAME_EX] {
            let status = set(&open, &bench.files, class, &bytes);
            assert_eq!(status, Err(Status::INVALID_PARAMETER));
        }
    }
}

#[test]
fn posix_renames_replace_what_is_open() {
    let bench = Bench::new();
    bench.write("a", "a");
    bench.write("b", "b");
    let (open, other) = (bench.open("a", ALL_RIGHTS), bench.open("b", AccessMask::READ_DATA));
    let rename = |flags| set(&open, &bench.files, FileInfoClass::RENAME_EX, &rename_ex("b", flags));
    assert_eq!(rename(RenameFlags::POSIX_SEMANTICS), Err(Status::OBJECT_NAME_COLLISION));
    assert_eq!(rename(RenameFlags::REPLACE_IF_EXISTS), Err(Status::ACCESS_DENIED));
    assert_eq!(rename(RenameFlags(0x200)), Err(Status::INVALID_PARAMETER));
    rename(RenameFlags::REPLACE_IF_EXISTS | RenameFlags::POSIX_SEMANTICS).unwrap();
    let mut kept = [0; 1];
    file(&other).node.read_at(0, &mut kept).unwrap();
    assert_eq!(&kept, b"b");
    assert_eq!(std::fs::read(bench.path().join("b")).unwrap(), b"a");
}

#[test]
fn open_files_below_and_handles_of_the_parent_stop_renames() {
    let bench = Bench::new();
    bench.make_folder("d");
    bench.make_folder("e");
    bench.write("d/f", "");
    let access = ALL_RIGHTS.without(AccessMask::WRITE_DATA);
    let directory = bench.open("d", access);
    let inside = bench.open("d\\f", ALL_RIGHTS);
    let rename = |open: &Open, to: &str| {
        set(open, &bench.files, FileInfoClass::RENAME, &rename_to(to, false))
    };
    assert_eq!(rename(&directory, "x"), Err(Status::ACCESS_DENIED));
    // Adding a name conflicts with an Open of the directory that has the right DELETE, so the
    // rename fails until that Open closes.
    assert_eq!(rename(&inside, "d\\g"), Err(Status::SHARING_VIOLATION));
    drop(directory.close(&bench.files));
    rename(&inside, "d\\g").unwrap();
    let sharing = Sharing { write: false, ..Sharing::ALL };
    let jealous = bench.open_sharing("e", AccessMask::READ_DATA, sharing).unwrap();
    assert_eq!(rename(&inside, "e\\g"), Err(Status::SHARING_VIOLATION));
    drop(jealous.close(&bench.files));
    rename(&inside, "e\\g").unwrap();
    drop(inside.close(&bench.files));
    let directory = bench.open("d", access);
    rename(&directory, "e\\x").unwrap();
    assert!(bench.exists("e/x"));
}

#[test]
fn links_are_made() {
    let bench = Bench::new();
    bench.write("a", "a");
    bench.write("b", "b");
    bench.make_folder("d");
    let link = |open: &Open, to: &str, replace| {
        set(open, &bench.files, FileInfoClass::LINK, &rename_to(to, replace))
    };
    let open = bench.open("a", AccessMask::READ_ATTRIBUTES);
    link(&open, "d\\l", false).unwrap();
    assert_eq!(file(&open).stat().unwrap().links, 2);
    assert_eq!(link(&open, "b", false), Err(Status::OBJECT_NAME_COLLISION));
    assert_eq!(link(&open, "d", true), Err(Status::ACCESS_DENIED));
    link(&open, "b", true).unwrap();
    assert_eq!(std::fs::read(bench.path().join("b")).unwrap(), b"a");
    let directory = bench.open("d", AccessMask::READ_ATTRIBUTES);
    assert_eq!(link(&directory, "x", false), Err(Status::FILE_IS_A_DIRECTORY));
}

#[test]
fn position_and_mode_belong_to_the_handle() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", AccessMask::SYNCHRONIZE);
    let set = |class, bytes: &[u8]| set(&open, &bench.files, class, bytes);
    let position = FileInfoClass::POSITION;
    set(position, &5u64.to_le_bytes()).unwrap();
    assert_eq!(set(position, &(-1i64).to_le_bytes()), Err(Status::INVALID_PARAMETER));
    let mode = FileInfoClass::MODE;
    set(mode, &6u32.to_le_bytes()).unwrap();
    for bad in [8u32, 0x1000, 0x10, 0x30] {
        assert_eq!(set(mode, &bad.to_le_bytes()), Err(Status::INVALID_PARAMETER));
    }
    file(&open).mode.store(0x2A, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(set(position, &5u64.to_le_bytes()), Err(Status::INVALID_PARAMETER));
    assert_eq!(set(mode, &0u32.to_le_bytes()), Err(Status::INVALID_PARAMETER));
    set(mode, &0x10u32.to_le_bytes()).unwrap();
    let now = file(&open).mode.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(now, 0x1A, "unbuffered handles write through");
    assert_eq!(set(FileInfoClass::PIPE, &[0; 8]), Err(Status::ACCESS_DENIED));
}

#[test]
fn extended_attributes_are_set_all_or_none() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    if !file(&open).vfs.volume().xattrs {
        return;
    }
    let list = |entries: &[(&str, &[u8])]| {
        let mut bytes = Vec::new();
        let mut writer = EaWriter::new(&mut bytes, usize::MAX);
        for (name, value) in entries {
            let ea = Ea { need: false, name: name.as_bytes(), value };
            assert_eq!(writer.push(&ea), Pushed::Fits);
        }
        bytes
    };
    let send = |bytes: &[u8]| set(&open, &bench.files, FileInfoClass::FULL_EA, bytes);
    let now = || {
        let mut all = file(&open).node.eas().unwrap();
        all.sort();
        all
    };
    send(&list(&[("one", b"1"), ("two", b"2")])).unwrap();
    send(&list(&[("TWO", b""), ("three", b"3")])).unwrap();
    let expected = [("one".into(), b"1".to_vec()), ("three".into(), b"3".to_vec())];
    assert_eq!(now(), expected);
    let denied = send(&list(&[("four", b"4"), ("ONE", b"x"), ("DOSATTRIB", b"x")]));
    assert_eq!(denied, Err(Status::ACCESS_DENIED));
    assert_eq!(now(), expected, "what was done is undone");
    let large = vec![0; 65_000];
    assert_eq!(send(&list(&[("big", &large), ("more", &large)])), Err(Status::EA_TOO_LARGE));
    assert_eq!(send(&list(&[("bad:name", b"1")])), Err(Status::INVALID_EA_NAME));
    assert_eq!(send(&list(&[("x", b"1")])[..9]), Err(Status::EA_LIST_INCONSISTENT));
    assert_eq!(now(), expected);
}

#[test]
fn a_descriptor_is_kept_or_refused_where_none_can_be() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    let now = |open: &Open| {
        let file = file(open);
        let (node, stat) = (&*file.node, file.stat().unwrap());
        crate::shares::protection::descriptor(node, &stat, &open.tree().token()).unwrap()
    };
    let dacl = Acl::new(vec![Ace::allow(AceFlags::EMPTY, AccessMask::GENERIC_READ, Sid::USERS)]);
    let new = SecurityDescriptor { dacl: Some(dacl), ..now(&open) };
    let mut bytes = Vec::new();
    new.encode(&mut bytes).unwrap();
    let parts = SecurityInformation::DACL.0;
    send(&open, &bench.files, InfoType::SECURITY, 0, parts, &bytes).unwrap();
    let kept = now(&open).dacl.unwrap();
    assert_eq!(kept.aces[0].mask(), Some(AccessMask::FILE_GENERIC_READ));
    // A chmod on the host replaces the access list that a client has set before.
    let path = bench.path().join("f");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert_ne!(now(&open).dacl.unwrap(), kept);

    let bench = Bench::with(false, PosixOptions { nt_acls: NtAcls::Off, ..Default::default() });
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    let old = now(&open);
    let send = |open: &Open, parts: SecurityInformation, descriptor: &SecurityDescriptor| {
        let mut bytes = Vec::new();
        descriptor.encode(&mut bytes).unwrap();
        send(open, &bench.files, InfoType::SECURITY, 0, parts.0, &bytes)
    };
    let (owner, dacl) = (SecurityInformation::OWNER, SecurityInformation::DACL);
    send(&open, owner | dacl, &old).unwrap();
    let other = SecurityDescriptor { owner: Some(Sid::ADMINISTRATORS), ..old.clone() };
    assert_eq!(send(&open, owner, &other), Err(Status::INVALID_OWNER));
    let other = SecurityDescriptor { owner: old.owner, dacl: new.dacl, ..old.clone() };
    assert_eq!(send(&open, dacl, &other), Err(Status::NOT_SUPPORTED));
    assert_eq!(send(&open, SecurityInformation::SACL, &old), Err(Status::ACCESS_DENIED));
    let weak = bench.open("f", AccessMask::WRITE_DAC);
    assert_eq!(send(&weak, owner, &old), Err(Status::ACCESS_DENIED));
    let junk = apply(
        &open,
        &bench.files,
        &DomainNames::default(),
        &Request {
            info_type: InfoType::SECURITY,
            file_info_class: 0,
            additional_information: dacl.0,
            file_id: FileId::ALL_ONES,
            buffer: &[7; 20],
        },
        None,
    );
    assert_eq!(junk, Err(Status::INVALID_SECURITY_DESCR));
}

#[test]
fn nothing_of_a_volume_is_set() {
    let bench = Bench::new();
    let open = bench.open("", AccessMask::READ_DATA);
    let try_class = |class: u8| send(&open, &bench.files, InfoType::FILESYSTEM, class, 0, &[0; 64]);
    for class in 0..=u8::MAX {
        let expected = match FsInfoClass(class) {
            FsInfoClass::CONTROL | FsInfoClass::OBJECT_ID => Status::ACCESS_DENIED,
            FsInfoClass::LABEL | FsInfoClass::DRIVER_PATH | FsInfoClass::VOLUME_FLAGS => {
                Status::NOT_SUPPORTED
            }
            _ => Status::INVALID_INFO_CLASS,
        };
        assert_eq!(try_class(class), Err(expected), "class {class}");
    }
    // MS-FSA 2.1.5.16.8: too short a buffer is reported before the missing support of object IDs.
    let open = bench.open("", AccessMask::WRITE_DATA);
    for (length, expected) in [(63, Status::INVALID_INFO_CLASS), (64, Status::INVALID_PARAMETER)] {
        let data = vec![0; length];
        let class = FsInfoClass::OBJECT_ID.0;
        let done = send(&open, &bench.files, InfoType::FILESYSTEM, class, 0, &data);
        assert_eq!(done, Err(expected), "{length} bytes");
    }
}

/// Each class that changes more than the handle, or is asked to, leaves a line in the audit log.
#[test]
fn what_changes_a_file_is_recorded() {
    for class in 0..=u8::MAX {
        let class = FileInfoClass(class);
        let Ok(row) = row(class) else { continue };
        assert_eq!(row.recorded != Recorded::Nothing, row.modifies, "{class:?}");
    }
}
