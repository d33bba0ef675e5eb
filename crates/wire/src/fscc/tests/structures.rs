use super::hex;
use crate::codec::Writer;
use crate::dtyp::{AccessMask, FileAttributes, FileTime, Guid, Sid};
use crate::fscc::fsctl::*;
use crate::fscc::notify::*;
use crate::fscc::posix::FsPosixInformation;
use crate::fscc::query::*;
use crate::fscc::quota::*;
use crate::fscc::reparse::*;
use crate::fscc::set::*;
use crate::fscc::volume::*;
use crate::fscc::{FileInfoClass, FsInfoClass, Pushed, ShortName, WireName};
use alloc::vec::Vec;
use proptest::prelude::*;

fn bytes(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

/// Sizes as MS-FSCC gives or draws them.
#[test]
fn sizes() {
    let sizes = [
        (FileBasicInformation::SIZE, 40),
        (FileStandardInformation::SIZE, 24),
        (FileInternalInformation::SIZE, 8),
        (FileEaInformation::SIZE, 4),
        (FileAccessInformation::SIZE, 4),
        (FilePositionInformation::SIZE, 8),
        (FileModeInformation::SIZE, 4),
        (FileAlignmentInformation::SIZE, 4),
        (FilePipeInformation::SIZE, 8),
        (FilePipeLocalInformation::SIZE, 40),
        (FilePipeRemoteInformation::SIZE, 12),
        (FileCompressionInformation::SIZE, 16),
        (FileNetworkOpenInformation::SIZE, 56),
        (FileAttributeTagInformation::SIZE, 8),
        (FileIdInformation::SIZE, 24),
        (FileDispositionInformation::SIZE, 1),
        (FileDispositionInformationEx::SIZE, 4),
        (FileAllocationInformation::SIZE, 8),
        (FileEndOfFileInformation::SIZE, 8),
        (FileValidDataLengthInformation::SIZE, 8),
        (FsSizeInformation::SIZE, 24),
        (FsFullSizeInformation::SIZE, 32),
        (FsDeviceInformation::SIZE, 8),
        (FsControlInformation::SIZE, 48),
        (FsObjectIdInformation::SIZE, 64),
        (FsSectorSizeInformation::SIZE, 28),
        (FsPosixInformation::SIZE, 56),
        (ZeroData::SIZE, 16),
        (AllocatedRange::SIZE, 16),
        (DuplicateExtents::SIZE, 40),
        (DuplicateExtentsEx::SIZE, DUPLICATE_EXTENTS_EX_SIZE as usize + 8),
        (IntegrityInformation::SIZE, 16),
        (SetIntegrityInformation::SIZE, 8),
        (ObjectIdBuffer::SIZE, 64),
        (OffloadToken::SIZE, 512),
        (OffloadReadRequest::SIZE, 32),
        (OffloadReadReply::SIZE, 528),
        (OffloadWriteRequest::SIZE, 544),
        (OffloadWriteReply::SIZE, 16),
        (FileRegion::SIZE, 24),
        (PipePeekHeader::SIZE, 16),
    ];
    for (index, (ours, theirs)) in sizes.into_iter().enumerate() {
        assert_eq!(ours, theirs, "structure {index}");
    }
}

const BASIC: FileBasicInformation = FileBasicInformation {
    creation_time: FileTime(1),
    last_access_time: FileTime(2),
    last_write_time: FileTime(u64::MAX),
    change_time: FileTime(4),
    attributes: FileAttributes::DIRECTORY,
};

fn all(name: &str) -> FileAllInformation<&str> {
    FileAllInformation {
        basic: BASIC,
        standard: FileStandardInformation {
            allocation_size: 8192,
            end_of_file: 5000,
            number_of_links: 2,
            delete_pending: true,
            directory: false,
        },
        internal: FileInternalInformation { index_number: 77 },
        ea: FileEaInformation { ea_size: 3 },
        access: FileAccessInformation { access: AccessMask::FILE_ALL },
        position: FilePositionInformation { current_byte_offset: -1 },
        mode: FileModeInformation { mode: FileMode::WRITE_THROUGH },
        alignment: FileAlignmentInformation { alignment_requirement: 7 },
        name,
    }
}

#[test]
fn all_information() {
    let out = bytes(|w| all(r"\dir\ä").encode(w));
    let expected = hex(
        "0100000000000000 0200000000000000 ffffffffffffffff 0400000000000000 10000000 00000000 \
         0020000000000000 8813000000000000 02000000 01 00 0000 4d00000000000000 03000000 ff011f00 \
         ffffffffffffffff 02000000 07000000 0c000000 5c006400690072005c00e400",
    );
    assert_eq!(out, expected);
    let read = FileAllInformation::parse(&out).unwrap();
    assert!(read.name.is(r"\dir\ä"));
    assert_eq!((read.basic, read.position), (BASIC, all("").position));
    // With STATUS_BUFFER_OVERFLOW the name may be cut off, so a shortened name is accepted. Without
    // all fixed fields the answer is refused.
    assert!(FileAllInformation::parse(&out[..105]).unwrap().name.is(r"\d"));
    assert!(FileAllInformation::parse(&out[..99]).is_err());
}

#[test]
fn fixed_structures_ask_for_all_their_bytes() {
    let out = bytes(|w| BASIC.encode(w));
    assert!(FileBasicInformation::parse(&out[..39]).is_err());
    assert_eq!(FileBasicInformation::parse(&out), Ok(BASIC));
    assert_eq!(FileBasicInformation::parse(&[&out[..], &[1]].concat()), Ok(BASIC));
}

#[test]
fn rename() {
    let rename = FileRenameInformation { replace_if_exists: true, root_directory: 0, name: "ab" };
    let out = bytes(|w| rename.encode(w));
    assert_eq!(out, hex("01 00000000000000 0000000000000000 04000000 61006200"));
    let out = bytes(|w| FileRenameInformation { name: "a", ..rename }.encode(w));
    assert_eq!(out.len(), 24, "padded to 24 bytes");
    let read = FileRenameInformation::parse(&out).unwrap();
    assert!(read.replace_if_exists && read.name.is("a"));
    let flags = RenameFlags::REPLACE_IF_EXISTS | RenameFlags::POSIX_SEMANTICS;
    let rename = FileRenameInformationEx { flags, root_directory: 5, name: r"d\new" };
    let out = bytes(|w| rename.encode(w));
    let read = FileRenameInformationEx::parse(&out).unwrap();
    assert_eq!((read.flags, read.root_directory), (flags, 5));
    assert!(read.name.is(r"d\new"));
    assert!(FileRenameInformationEx::parse(&out[..out.len() - 1]).is_err());
}

#[test]
fn streams() {
    let entries = [
        StreamEntry { name: "::$DATA", size: 10, allocation_size: 4096 },
        StreamEntry { name: ":s:$DATA", size: 2, allocation_size: 8 },
    ];
    let mut out = Vec::new();
    let mut writer = StreamWriter::new(&mut out, 80);
    assert_eq!(writer.push(&entries[0]), Pushed::Fits);
    assert_eq!(writer.push(&entries[1]), Pushed::Fits);
    assert_eq!(writer.push(&entries[1]), Pushed::Full);
    assert_eq!((out.len(), &out[..8]), (80, &hex("28000000 0e000000")[..]));
    let read: Vec<_> = StreamEntries::new(&out).collect::<Result<_, _>>().unwrap();
    assert_eq!(read.len(), 2);
    assert!(read[1].name.is(":s:$DATA") && read[1].allocation_size == 8);
}

#[test]
fn quotas() {
    let entry = QuotaEntry {
        change_time: FileTime(9),
        used: 1,
        threshold: -1,
        limit: -2,
        sid: Sid::ADMINISTRATORS,
    };
    let mut out = Vec::new();
    let mut writer = QuotaWriter::new(&mut out, 112);
    assert_eq!(writer.push(&entry), Pushed::Fits);
    assert_eq!(writer.push(&entry), Pushed::Fits);
    assert_eq!(writer.push(&entry), Pushed::Full);
    assert_eq!(QuotaEntries::new(&out).collect::<Result<Vec<_>, _>>().unwrap(), [entry; 2]);
    out[4] = 15;
    assert!(QuotaEntries::new(&out).next().unwrap().is_err(), "a SID longer than its length");
    let mut out = Vec::new();
    assert_eq!(QuotaSidsWriter::new(&mut out, 100).push(&Sid::EVERYONE), Pushed::Fits);
    assert_eq!(QuotaSids::new(&out).collect::<Result<Vec<_>, _>>().unwrap(), [Sid::EVERYONE]);
}

#[test]
fn notifications() {
    let mut out = Vec::new();
    let mut writer = NotifyWriter::new(&mut out, 100);
    let old = NotifyEntry { action: NotifyAction::RENAMED_OLD_NAME, name: "a" };
    let new = NotifyEntry { action: NotifyAction::RENAMED_NEW_NAME, name: r"d\b" };
    assert_eq!(writer.push(&old), Pushed::Fits);
    assert_eq!(writer.push(&new), Pushed::Fits);
    let expected = "10000000 04000000 02000000 6100 0000 00000000 05000000 06000000 64005c006200";
    assert_eq!(out, hex(expected));
    let read: Vec<_> = NotifyEntries::new(&out).collect::<Result<_, _>>().unwrap();
    assert_eq!(read[1].action, NotifyAction::RENAMED_NEW_NAME);
    assert!(read[1].name.is(r"d\b"));
}

#[test]
fn volumes() {
    let volume = FsVolumeInformation {
        creation_time: FileTime(1),
        serial_number: 0x1234_5678,
        supports_objects: true,
        label: "Vol",
    };
    let out = bytes(|w| volume.encode(w));
    assert_eq!(out, hex("0100000000000000 78563412 06000000 01 00 56006f006c00"));
    let read = FsVolumeInformation::parse(&out).unwrap();
    assert!(read.label.is("Vol") && read.supports_objects && read.serial_number == 0x1234_5678);
    let attributes = FsAttributeInformation {
        attributes: FsAttributes::NAMED_STREAMS | FsAttributes::UNICODE_ON_DISK,
        maximum_component_name_length: 255,
        file_system_name: "NTFS",
    };
    let out = bytes(|w| attributes.encode(w));
    assert_eq!(out, hex("04000400 ff000000 08000000 4e00540046005300"));
    let read = FsAttributeInformation::parse(&out).unwrap();
    assert!(read.file_system_name.is("NTFS") && read.attributes == attributes.attributes);
}

fn reparse(encode: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Vec<u8> {
    bytes(|w| encode(w).unwrap())
}

#[test]
fn symlinks_and_mount_points() {
    let link = Symlink { substitute_name: "\\??\\C:", print_name: "C:", relative: false };
    let out = reparse(|w| link.encode(w));
    let expected =
        "0c0000a0 1c00 0000 0000 0c00 0c00 0400 00000000 5c003f003f005c0043003a00 43003a00";
    assert_eq!(out, hex(expected));
    let buffer = ReparseBuffer::parse(&out).unwrap();
    let ReparseData::Symlink(read) = buffer.meaning().unwrap() else { panic!("{buffer:?}") };
    assert!(read.substitute_name.is("\\??\\C:") && read.print_name.is("C:") && !read.relative);
    for end in 0..out.len() {
        assert!(ReparseBuffer::parse(&out[..end]).is_err(), "cut at {end}");
    }
    assert!(ReparseBuffer::parse(&[&out[..], &[0]].concat()).is_err());
    for field in [8, 10, 12, 14] {
        let mut lie = out.clone();
        lie[field] = 0x3F;
        assert!(ReparseBuffer::parse(&lie).unwrap().meaning().is_err(), "field at {field}");
    }
    let out = reparse(|w| encode_mount_point(w, "\\??\\D:", "D:"));
    let ReparseData::MountPoint { substitute_name, print_name } =
        ReparseBuffer::parse(&out).unwrap().meaning().unwrap()
    else {
        panic!("not a mount point")
    };
    assert!(substitute_name.is("\\??\\D:") && print_name.is("D:"));
    let long = "a".repeat(MAX_REPARSE_BUFFER);
    let mut out = Vec::new();
    let too_long = Symlink { substitute_name: long.as_str(), print_name: "", relative: true };
    assert_eq!(too_long.encode(&mut Writer::new(&mut out)), None);
    assert!(out.is_empty());
}

#[test]
fn special_files() {
    let specials = [
        NfsSpecial::Symlink("../t"),
        NfsSpecial::Character { major: 1, minor: 3 },
        NfsSpecial::Block { major: 8, minor: 0 },
        NfsSpecial::Fifo,
        NfsSpecial::Socket,
    ];
    for special in specials {
        let out = reparse(|w| special.encode(w));
        let ReparseData::Nfs(read) = ReparseBuffer::parse(&out).unwrap().meaning().unwrap() else {
            panic!("{special:?}")
        };
        match (special, read) {
            (NfsSpecial::Symlink(target), NfsSpecial::Symlink(read)) => assert!(read.is(target)),
            (special, read) => {
                assert_eq!(alloc::format!("{special:?}"), alloc::format!("{read:?}"))
            }
        }
    }
    let device = reparse(|w| specials[1].encode(w));
    assert_eq!(device, hex("14000080 1000 0000 4348520000000000 01000000 03000000"));
    let link = reparse(|w| encode_lx_symlink(w, b"/etc"));
    assert_eq!(link, hex("1d0000a0 0800 0000 02000000 2f657463"));
    assert_eq!(ReparseBuffer::parse(&link).unwrap().meaning(), Ok(ReparseData::LxSymlink(b"/etc")));
    let guid = Some(Guid([7; 16]));
    let foreign = ReparseBuffer { tag: ReparseTag(0x0000_0042), guid, data: b"data" };
    let out = reparse(|w| foreign.encode(w));
    assert_eq!((out.len(), ReparseBuffer::parse(&out)), (28, Ok(foreign)));
}

#[test]
fn trims() {
    let ranges = [TrimRange { offset: 0, length: 4096 }, TrimRange { offset: 1 << 40, length: 1 }];
    let out = bytes(|w| TrimRequest::encode(w, 0, &ranges));
    let read = TrimRequest::parse(&out).unwrap();
    assert_eq!(read.ranges().collect::<Vec<_>>(), ranges);
    assert!(TrimRequest::parse(&out[..39]).is_err());
    assert!(TrimRequest::parse(&hex("00000000 00000000")).is_err(), "no range");
    assert!(TrimRequest::parse(&hex("00000000 ffffffff")).is_err());
    assert!(parse_set_sparse(&[]) && parse_set_sparse(&[1]) && !parse_set_sparse(&[0]));
}

/// Tests that classes for local use only are neither queried nor set. MS-FSCC 2.4 and 2.5.
#[test]
fn local_classes_are_refused() {
    for class in [9, 26, 27, 29, 33, 36, 44, 46, 50, 54].map(FileInfoClass) {
        assert!(!class.may_query() && !class.may_set() && !class.is_directory(), "{class}");
    }
    for class in [2, 9, 10].map(FsInfoClass) {
        assert!(!class.may_query() && !class.may_set(), "{class}");
    }
    assert!(FileInfoClass::BASIC.may_query() && FileInfoClass::BASIC.may_set());
    assert_eq!(alloc::format!("{}", FileInfoClass(200)), "FileInfoClass(0xc8)");
}

#[test]
fn short_names() {
    assert!(ShortName::new("LONGNA~1.TXT").is_some());
    assert!(ShortName::new("LONGNA~1.TEXT").is_none());
    assert!(ShortName::NONE.is_empty());
}

proptest! {
    #[test]
    fn parsers_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = FileAllInformation::parse(&bytes);
        let _ = FileNameInformation::parse(&bytes);
        let _ = FileRenameInformation::parse(&bytes);
        let _ = FileRenameInformationEx::parse(&bytes);
        let _ = FsVolumeInformation::parse(&bytes);
        let _ = FsAttributeInformation::parse(&bytes);
        let _ = TrimRequest::parse(&bytes);
        prop_assert!(StreamEntries::new(&bytes).count() <= 300);
        prop_assert!(QuotaEntries::new(&bytes).count() <= 300);
        prop_assert!(QuotaSids::new(&bytes).count() <= 300);
        prop_assert!(NotifyEntries::new(&bytes).count() <= 300);
    }

    #[test]
    fn reparse_data_never_panics(
        tag in prop::sample::select(&[0xA000_000Cu32, 0xA000_0003, 0x8000_0014, 0xA000_001D, 0x42][..]),
        data in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let buffer = ReparseBuffer { tag: ReparseTag(tag), guid: None, data: &data };
        let _ = buffer.meaning();
    }

    #[test]
    fn names_survive(name in ".*") {
        let out = bytes(|w| FileNameInformation { name: name.as_str() }.encode(w));
        let read = FileNameInformation::parse(&out).unwrap().name;
        prop_assert!(read.is(&name));
        prop_assert_eq!(read.decode().unwrap(), name);
    }

    #[test]
    fn lone_surrogates_are_malformed(unit in 0xD800u16..0xE000) {
        let bytes = unit.to_le_bytes();
        let name = WireName::new(&bytes).unwrap();
        prop_assert!(name.decode().is_err());
        prop_assert_eq!(name.to_string_lossy(), "\u{FFFD}");
    }
}
