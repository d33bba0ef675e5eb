use crate::shares::folders::testing::{NtAcls, PosixOptions};
use frevo_proto::Dialect;
use frevo_wire::Status;
use frevo_wire::command::query_info::{InfoType, QueryInfoFlags, Request};
use frevo_wire::dtyp::SecurityInformation;
use frevo_wire::dtyp::{AccessMask, FileAttributes, SdControl, SecurityDescriptor, Sid};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::ea::{EaEntries, EaNamesWriter};
use frevo_wire::fscc::query::{
    FileAllInformation, FileAttributeTagInformation, FileBasicInformation, FileIdInformation,
    FileNameInformation, FileNetworkOpenInformation, FileStandardInformation, StreamEntries,
};
use frevo_wire::fscc::volume::{
    FsAttributeInformation, FsAttributes, FsDeviceInformation, FsFullSizeInformation,
    FsSizeInformation, FsVolumeInformation,
};
use frevo_wire::fscc::{FileInfoClass, FsInfoClass, Pushed};

use super::testing::{Bench, file};
use super::{Output, answer};
use crate::objects::open::Open;
use crate::objects::refusal::Refusal;

const ALL_RIGHTS: AccessMask = AccessMask::FILE_ALL;
const PLENTY: u32 = 4096;

/// The answer to a query: status and data.
fn ask(open: &Open, dialect: Dialect, request: &Request<'_>) -> Result<(Status, Vec<u8>), Refusal> {
    let mut bytes = vec![0xAA; 64];
    let mut output = Output::begin(&mut bytes, request.output_buffer_length, 1 << 16);
    let settled = super::fs::Settled::in_a_test();
    answer(open, dialect, None, Some(&settled), request, &mut output)?;
    let status = output.finish();
    let data = bytes.split_off(72);
    assert_eq!(bytes[64..], frevo_wire::command::output_head(data.len() as u32));
    assert!(data.len() <= request.output_buffer_length as usize);
    Ok((status, data))
}

const fn request(info_type: InfoType, class: u8, length: u32) -> Request<'static> {
    Request {
        info_type,
        file_info_class: class,
        output_buffer_length: length,
        additional_information: 0,
        flags: QueryInfoFlags::EMPTY,
        file_id: FileId::ALL_ONES,
        input: &[],
    }
}

fn of_file(open: &Open, class: FileInfoClass, length: u32) -> Result<(Status, Vec<u8>), Refusal> {
    ask(open, Dialect::SMB_3_1_1, &request(InfoType::FILE, class.0, length))
}

fn of_volume(open: &Open, class: FsInfoClass, length: u32) -> Result<(Status, Vec<u8>), Refusal> {
    ask(open, Dialect::SMB_3_1_1, &request(InfoType::FILESYSTEM, class.0, length))
}

fn data(answered: Result<(Status, Vec<u8>), Refusal>) -> Vec<u8> {
    let (status, data) = answered.unwrap();
    assert_eq!(status, Status::SUCCESS);
    data
}

fn refused(answered: Result<(Status, Vec<u8>), Refusal>) -> Status {
    answered.unwrap_err().status().unwrap()
}

/// MS-FSCC 2.4, the table: class, smallest buffer, right needed.
const QUERIED: [(FileInfoClass, u32, AccessMask); 16] = [
    (FileInfoClass::BASIC, 40, AccessMask::READ_ATTRIBUTES),
    (FileInfoClass::STANDARD, 24, AccessMask::EMPTY),
    (FileInfoClass::INTERNAL, 8, AccessMask::EMPTY),
    (FileInfoClass::EA, 4, AccessMask::EMPTY),
    (FileInfoClass::ACCESS, 4, AccessMask::EMPTY),
    (FileInfoClass::POSITION, 8, AccessMask::EMPTY),
    (FileInfoClass::MODE, 4, AccessMask::EMPTY),
    (FileInfoClass::ALIGNMENT, 4, AccessMask::EMPTY),
    (FileInfoClass::ALL, 104, AccessMask::READ_ATTRIBUTES),
    (FileInfoClass::STREAM, 32, AccessMask::EMPTY),
    (FileInfoClass::COMPRESSION, 16, AccessMask::EMPTY),
    (FileInfoClass::NETWORK_OPEN, 56, AccessMask::READ_ATTRIBUTES),
    (FileInfoClass::ATTRIBUTE_TAG, 8, AccessMask::READ_ATTRIBUTES),
    (FileInfoClass::NORMALIZED_NAME, 8, AccessMask::EMPTY),
    (FileInfoClass::ID, 24, AccessMask::EMPTY),
    (FileInfoClass::ALTERNATE_NAME, 8, AccessMask::EMPTY),
];

#[test]
fn a_buffer_is_too_small_cuts_the_name_or_holds_all() {
    let bench = Bench::new();
    bench.write("a file.txt", "hello");
    let open = bench.open("a file.txt", ALL_RIGHTS);
    for (class, min, _) in QUERIED {
        for length in [0, min - 1] {
            let status = refused(of_file(&open, class, length));
            assert_eq!(status, Status::INFO_LENGTH_MISMATCH, "{class} in {length}");
        }
        if class == FileInfoClass::ALTERNATE_NAME {
            // The file is named "a file.txt". A name with a space has no short name on this server,
            // so the class fails.
            assert_eq!(refused(of_file(&open, class, min)), Status::OBJECT_NAME_NOT_FOUND);
            continue;
        }
        let whole = data(of_file(&open, class, PLENTY));
        for length in min..=whole.len() as u32 {
            let (status, part) = of_file(&open, class, length).unwrap();
            let cut = (length as usize) < whole.len();
            assert_eq!(status == Status::BUFFER_OVERFLOW, cut, "{class} in {length}");
            assert!(whole.starts_with(&part), "{class} in {length}");
            assert!(part.len() + 1 >= length as usize, "{class} in {length}");
        }
    }
}

#[test]
fn rights_are_asked_for_as_the_table_says() {
    let bench = Bench::new();
    bench.write("f", "");
    let bare = bench.open("f", AccessMask::SYNCHRONIZE);
    for (class, _, right) in QUERIED {
        if right == AccessMask::EMPTY {
            data(of_file(&bare, class, PLENTY));
        } else {
            assert_eq!(refused(of_file(&bare, class, PLENTY)), Status::ACCESS_DENIED, "{class}");
            data(of_file(&bench.open("f", right), class, PLENTY));
        }
    }
    let eas = of_file(&bare, FileInfoClass::FULL_EA, PLENTY);
    assert_eq!(refused(eas), Status::ACCESS_DENIED);
}

#[test]
fn every_other_class_is_refused() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    let queried = |class| QUERIED.iter().any(|(known, ..)| known.0 == class);
    for class in (0..=u8::MAX).filter(|class| !queried(*class) && *class != 15) {
        let expected = match class {
            23..=25 => Status::INVALID_PARAMETER,
            9 | 26 | 29 | 32 | 33 | 44..=46 | 54 | 60 | 64 | 65 | 78..=81 => Status::NOT_SUPPORTED,
            41 | 43 | 47 | 49 | 51 | 53 => Status::NOT_SUPPORTED,
            52 => Status::INFO_LENGTH_MISMATCH,
            _ => Status::INVALID_INFO_CLASS,
        };
        let status = refused(of_file(&open, FileInfoClass(class), PLENTY));
        assert_eq!(status, expected, "class {class}");
    }
    let older = |dialect, class: FileInfoClass| {
        refused(ask(&open, dialect, &request(InfoType::FILE, class.0, PLENTY)))
    };
    let unsupported = Status::NOT_SUPPORTED;
    assert_eq!(older(Dialect::SMB_3_0_2, FileInfoClass::NORMALIZED_NAME), unsupported);
    assert_eq!(older(Dialect::SMB_2_1, FileInfoClass::ID), unsupported);
    let nothing = request(InfoType(9), 0, PLENTY);
    assert_eq!(refused(ask(&open, Dialect::SMB_3_1_1, &nothing)), Status::INVALID_PARAMETER);
}

#[test]
fn a_file_is_told_of_as_it_is() {
    let bench = Bench::new();
    bench.write("f", "hello");
    std::fs::hard_link(bench.path().join("f"), bench.path().join("g")).unwrap();
    let open = bench.open("f", ALL_RIGHTS);
    let stat = file(&open).stat().unwrap();
    let all = data(of_file(&open, FileInfoClass::ALL, PLENTY));
    let all = FileAllInformation::parse(&all).unwrap();
    assert_eq!(all.basic.last_write_time, stat.written);
    assert_eq!(all.standard.end_of_file, 5);
    assert_eq!(all.standard.number_of_links, 2);
    assert_eq!(all.internal.index_number, stat.key.inode);
    assert_eq!(all.access.access, ALL_RIGHTS);
    assert!(all.name.is("\\f"));
    file(&open).cell.lock().set_delete_pending(open.id(), true);
    let standard = data(of_file(&open, FileInfoClass::STANDARD, PLENTY));
    let standard = FileStandardInformation::parse(&standard).unwrap();
    assert!(standard.delete_pending);
    assert_eq!(standard.number_of_links, 1);
    let network = data(of_file(&open, FileInfoClass::NETWORK_OPEN, PLENTY));
    let network = FileNetworkOpenInformation::parse(&network).unwrap();
    assert_eq!((network.end_of_file, network.change_time), (5, stat.changed));
    let streams = data(of_file(&open, FileInfoClass::STREAM, PLENTY));
    let streams: Vec<_> = StreamEntries::new(&streams).map(Result::unwrap).collect();
    assert_eq!(streams.len(), 1);
    assert!(streams[0].name.is("::$DATA") && streams[0].size == 5);
    let id = data(of_file(&open, FileInfoClass::ID, PLENTY));
    let id = FileIdInformation::parse(&id).unwrap();
    assert_eq!(id.file_id[..8], stat.key.inode.to_le_bytes());
}

#[test]
fn names_that_are_8_3_are_their_own_alternates() {
    let bench = Bench::new();
    for (name, is) in [
        ("File.txt", true),
        ("12345678.abc", true),
        ("noext", true),
        ("$~{}.-_", true),
        ("123456789", false),
        ("a.four", false),
        ("a.b.c", false),
        (".dot", false),
        ("a b", false),
        ("a+b", false),
        ("gr\u{f6}\u{df}e", false),
    ] {
        bench.write(name, "");
        let answered =
            of_file(&bench.open(name, ALL_RIGHTS), FileInfoClass::ALTERNATE_NAME, PLENTY);
        if is {
            let answered = data(answered);
            assert!(FileNameInformation::parse(&answered).unwrap().name.is(name), "{name}");
        } else {
            assert_eq!(refused(answered), Status::OBJECT_NAME_NOT_FOUND, "{name}");
        }
    }
}

#[test]
fn a_directory_is_told_of_as_it_is() {
    let bench = Bench::new();
    bench.make_folder("D");
    bench.make_folder("D/sub");
    let open = bench.open("d", ALL_RIGHTS);
    let standard = data(of_file(&open, FileInfoClass::STANDARD, PLENTY));
    let standard = FileStandardInformation::parse(&standard).unwrap();
    assert!(standard.directory && standard.end_of_file == 0);
    assert_eq!(standard.number_of_links, 1, "subdirectories are no links");
    let basic = data(of_file(&open, FileInfoClass::BASIC, PLENTY));
    let basic = FileBasicInformation::parse(&basic).unwrap();
    assert!(basic.attributes.contains(FileAttributes::DIRECTORY));
    assert!(data(of_file(&open, FileInfoClass::STREAM, PLENTY)).is_empty());
    let tag = data(of_file(&open, FileInfoClass::ATTRIBUTE_TAG, PLENTY));
    assert_eq!(FileAttributeTagInformation::parse(&tag).unwrap().reparse_tag.0, 0);
    let sub = bench.open("d\\SUB", ALL_RIGHTS);
    let name = data(of_file(&sub, FileInfoClass::NORMALIZED_NAME, PLENTY));
    let name = FileNameInformation::parse(&name).unwrap();
    assert!(name.name.is("D\\sub"), "the case on the medium, not {:?}", name.name);
    let root = data(of_file(&bench.open("", ALL_RIGHTS), FileInfoClass::NORMALIZED_NAME, PLENTY));
    assert!(FileNameInformation::parse(&root).unwrap().name.is_empty());
}

type EaList = Vec<(String, Vec<u8>)>;

fn eas(open: &Open, request: &Request<'_>) -> Result<(Status, EaList), Refusal> {
    let (status, data) = ask(open, Dialect::SMB_3_1_1, request)?;
    let entries = EaEntries::new(&data).map(|entry| {
        let entry = entry.unwrap();
        (String::from_utf8(entry.name.to_vec()).unwrap(), entry.value.to_vec())
    });
    Ok((status, entries.collect()))
}

#[test]
fn extended_attributes_are_scanned_named_and_indexed() {
    let bench = Bench::new();
    bench.write("f", "");
    let open = bench.open("f", ALL_RIGHTS);
    if !file(&open).vfs.volume().xattrs {
        return;
    }
    let mut rq = request(InfoType::FILE, FileInfoClass::FULL_EA.0, PLENTY);
    let status = |answered: Result<_, Refusal>| answered.err().unwrap().status().unwrap();
    assert_eq!(status(eas(&open, &rq)), Status::NO_EAS_ON_FILE);
    for (name, value) in [("one", "1"), ("two", "22"), ("three", "333")] {
        file(&open).node.set_ea(name, value.as_bytes()).unwrap();
    }
    let (said, all) = eas(&open, &rq).unwrap();
    assert_eq!((said, all.len()), (Status::SUCCESS, 3));
    assert_eq!(status(eas(&open, &rq)), Status::NO_MORE_EAS, "the scan goes on");
    rq.flags = QueryInfoFlags::RESTART_SCAN | QueryInfoFlags::RETURN_SINGLE_ENTRY;
    assert_eq!(eas(&open, &rq).unwrap().1, all[..1]);
    rq.flags = QueryInfoFlags::RETURN_SINGLE_ENTRY;
    assert_eq!(eas(&open, &rq).unwrap().1, all[1..2]);
    rq.flags = QueryInfoFlags::INDEX_SPECIFIED;
    rq.additional_information = 3;
    assert_eq!(eas(&open, &rq).unwrap().1, all[2..]);
    for index in [0, 4] {
        rq.additional_information = index;
        assert_eq!(status(eas(&open, &rq)), Status::NONEXISTENT_EA_ENTRY);
    }
    rq.flags = QueryInfoFlags::RESTART_SCAN;
    rq.output_buffer_length = 30;
    let (said, part) = eas(&open, &rq).unwrap();
    assert_eq!((said, part.len()), (Status::BUFFER_OVERFLOW, 2), "whole entries only");
    rq.output_buffer_length = 8;
    let Err(Refusal::Data(Status::BUFFER_TOO_SMALL, size)) = eas(&open, &rq) else { panic!() };
    assert_eq!(size, (9 + all[0].0.len() as u32 + all[0].1.len() as u32).to_le_bytes());
    let mut list = Vec::new();
    let mut names = EaNamesWriter::new(&mut list, 4096);
    for name in [&b"TWO"[..], b"none"] {
        assert_eq!(names.push(name), Pushed::Fits);
    }
    rq = Request { input: &list, ..request(InfoType::FILE, 15, PLENTY) };
    let named = eas(&open, &rq).unwrap().1;
    assert_eq!(named, [("two".into(), b"22".to_vec()), ("none".into(), vec![])]);
    rq.input = &list[..7];
    assert_eq!(status(eas(&open, &rq)), Status::EA_LIST_INCONSISTENT);
}

#[test]
fn a_volume_is_told_of_as_it_is() {
    let bench = Bench::new();
    let open = bench.open("", ALL_RIGHTS);
    let volume = data(of_volume(&open, FsInfoClass::VOLUME, PLENTY));
    assert!(FsVolumeInformation::parse(&volume).unwrap().label.is("data"));
    let size = data(of_volume(&open, FsInfoClass::SIZE, PLENTY));
    let size = FsSizeInformation::parse(&size).unwrap();
    let full = data(of_volume(&open, FsInfoClass::FULL_SIZE, PLENTY));
    let full = FsFullSizeInformation::parse(&full).unwrap();
    let space = file(&open).vfs.space().unwrap();
    assert_eq!(size.sectors_per_allocation_unit * size.bytes_per_sector, space.unit);
    assert_eq!(
        (size.total_allocation_units, full.total_allocation_units),
        (space.total, space.total)
    );
    let attributes = data(of_volume(&open, FsInfoClass::ATTRIBUTE, PLENTY));
    let attributes = FsAttributeInformation::parse(&attributes).unwrap();
    assert!(attributes.file_system_name.is("NTFS"));
    // The volume must announce exactly the attributes that work. `always` are the attributes of
    // every share.
    let volume = file(&open).vfs.volume();
    let always = FsAttributes::CASE_PRESERVED_NAMES
        | FsAttributes::UNICODE_ON_DISK
        | FsAttributes::SUPPORTS_SPARSE_FILES
        | FsAttributes::SUPPORTS_REPARSE_POINTS
        | FsAttributes::SUPPORTS_OBJECT_IDS
        | FsAttributes::NAMED_STREAMS
        | FsAttributes::SUPPORTS_HARD_LINKS
        | FsAttributes::SUPPORTS_EXTENDED_ATTRIBUTES
        | FsAttributes::SUPPORTS_POSIX_UNLINK_RENAME
        | FsAttributes::PERSISTENT_ACLS;
    let sometimes = [
        (volume.posix_names, FsAttributes::CASE_SENSITIVE_SEARCH),
        (volume.shares_extents, FsAttributes::SUPPORTS_BLOCK_REFCOUNTING),
        (volume.compresses, FsAttributes::FILE_COMPRESSION),
    ];
    let expected = sometimes.iter().filter(|(holds, _)| *holds);
    let expected = expected.fold(always, |all, (_, attribute)| all | *attribute);
    assert_eq!(attributes.attributes, expected);
    assert!(file(&open).node.object_id().unwrap().is_none(), "there can be one");
    // PERSISTENT_ACLS must not be announced if access lists are not stored (Off), or only as a mode
    // (Posix).
    for nt_acls in [NtAcls::Posix, NtAcls::Off] {
        let bench = Bench::with(false, PosixOptions { nt_acls, ..PosixOptions::default() });
        let attributes =
            data(of_volume(&bench.open("", ALL_RIGHTS), FsInfoClass::ATTRIBUTE, PLENTY));
        let attributes = FsAttributeInformation::parse(&attributes).unwrap().attributes;
        assert_eq!(attributes, expected.without(FsAttributes::PERSISTENT_ACLS));
    }
    let read_only = PosixOptions { read_only: true, ..PosixOptions::default() };
    for bench in [Bench::with(true, PosixOptions::default()), Bench::with(false, read_only)] {
        let open = bench.open("", AccessMask::FILE_GENERIC_READ);
        let attributes = data(of_volume(&open, FsInfoClass::ATTRIBUTE, PLENTY));
        let attributes = FsAttributeInformation::parse(&attributes).unwrap().attributes;
        assert!(attributes.contains(FsAttributes::READ_ONLY_VOLUME));
        let device = data(of_volume(&open, FsInfoClass::DEVICE, PLENTY));
        assert_eq!(FsDeviceInformation::parse(&device).unwrap().characteristics.0, 0x22);
    }
}

#[test]
fn volume_classes_have_their_smallest_buffers_and_refusals() {
    let bench = Bench::new();
    let open = bench.open("", AccessMask::SYNCHRONIZE);
    for (class, min) in [(1, 24), (3, 24), (4, 8), (5, 16), (6, 48), (7, 32), (8, 64), (11, 28)] {
        let class = FsInfoClass(class);
        let short = of_volume(&open, class, min - 1);
        assert_eq!(refused(short), Status::INFO_LENGTH_MISMATCH, "{class}");
        let whole = data(of_volume(&open, class, PLENTY));
        for length in min..=whole.len() as u32 {
            let (status, part) = of_volume(&open, class, length).unwrap();
            assert_eq!(status == Status::BUFFER_OVERFLOW, part.len() < whole.len());
            assert_eq!(part, whole[..length as usize], "{class}");
        }
    }
    for class in (0..=u8::MAX).filter(|c| !matches!(c, 1 | 3..=8 | 11)) {
        let unsupported = matches!(class, 2 | 9 | 10);
        let expected = if unsupported { Status::NOT_SUPPORTED } else { Status::INVALID_INFO_CLASS };
        assert_eq!(refused(of_volume(&open, FsInfoClass(class), PLENTY)), expected, "{class}");
    }
}

#[test]
fn a_descriptor_says_owner_group_and_mode() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let bench = Bench::new();
    bench.write("f", "");
    let path = bench.path().join("f");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o740)).unwrap();
    let open = bench.open("f", AccessMask::READ_CONTROL);
    let mut rq = request(InfoType::SECURITY, 0, PLENTY);
    let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
    rq.additional_information = parts.0;
    let whole = data(ask(&open, Dialect::SMB_3_1_1, &rq));
    let descriptor = SecurityDescriptor::parse(&whole).unwrap();
    let host = path.metadata().unwrap();
    assert_eq!(descriptor.owner, Some(Sid::unix_user(host.uid())));
    assert_eq!(descriptor.group, Some(Sid::unix_group(host.gid())));
    let aces = descriptor.dacl.unwrap().aces;
    let said: Vec<_> = aces.iter().map(|a| (*a.sid().unwrap(), a.mask().unwrap())).collect();
    let expected = [
        (Sid::unix_user(host.uid()), AccessMask::FILE_ALL),
        (Sid::unix_group(host.gid()), AccessMask::FILE_GENERIC_READ),
    ];
    assert_eq!(said, expected);
    for length in [0, whole.len() as u32 - 1] {
        rq.output_buffer_length = length;
        let Err(Refusal::Data(Status::BUFFER_TOO_SMALL, size)) = ask(&open, Dialect::SMB_2_1, &rq)
        else {
            panic!("{length}")
        };
        assert_eq!(size, (whole.len() as u32).to_le_bytes());
    }
    rq.output_buffer_length = PLENTY;
    rq.additional_information = SecurityInformation::OWNER.0;
    let owner = SecurityDescriptor::parse(&data(ask(&open, Dialect::SMB_3_1_1, &rq))).unwrap();
    assert!(owner.group.is_none() && owner.dacl.is_none());
    assert!(!owner.control.contains(SdControl::DACL_PRESENT));
    let blind = bench.open("f", AccessMask::READ_ATTRIBUTES);
    assert_eq!(refused(ask(&blind, Dialect::SMB_3_1_1, &rq)), Status::ACCESS_DENIED);
    rq.additional_information = SecurityInformation::SACL.0;
    assert_eq!(refused(ask(&open, Dialect::SMB_3_1_1, &rq)), Status::ACCESS_DENIED);
}
