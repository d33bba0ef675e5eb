use super::hex;
use crate::dtyp::{FileAttributes, FileTime, Sid};
use crate::fscc::directory::fixed_size;
use crate::fscc::posix::PosixAttributes;
use crate::fscc::{
    DirectoryEntries, DirectoryEntry, DirectoryWriter, FileInfoClass, Pushed, ShortName, WireName,
};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const CLASSES: [u8; 12] = [1, 2, 3, 12, 37, 38, 60, 78, 79, 80, 81, 100];

fn entry(name: &str) -> DirectoryEntry<&str> {
    DirectoryEntry {
        name,
        short_name: ShortName::new("README~1.TXT").unwrap(),
        file_index: 7,
        creation_time: FileTime(0x0101_0101_0101_0101),
        last_access_time: FileTime(2),
        last_write_time: FileTime(3),
        change_time: FileTime(4),
        end_of_file: 5,
        allocation_size: 4096,
        attributes: FileAttributes::ARCHIVE,
        ea_size: 6,
        reparse_tag: 0,
        file_id: 0x1122_3344_5566_7788,
        file_id_128: [9; 16],
        posix: None,
        reserved2: 0,
    }
}

fn write(
    class: FileInfoClass,
    entries: &[DirectoryEntry<&str>],
    max_len: usize,
) -> (Vec<u8>, usize) {
    let mut out = vec![0xEE; 3];
    let mut writer = DirectoryWriter::new(&mut out, class, max_len).unwrap();
    let fit = entries.iter().take_while(|entry| writer.push(entry) == Pushed::Fits).count();
    assert!(writer.len() <= max_len);
    assert_eq!(writer.is_empty(), fit == 0);
    (out.split_off(3), fit)
}

/// FieldOffset of FileName in each structure of MS-FSCC 2.4.
#[test]
fn names_begin_where_the_structures_say() {
    let offsets = [
        (1, 64),
        (2, 68),
        (3, 94),
        (12, 12),
        (37, 104),
        (38, 80),
        (60, 88),
        (78, 80),
        (79, 106),
        (80, 96),
        (81, 122),
    ];
    for (class, offset) in offsets {
        assert_eq!(fixed_size(FileInfoClass(class)), Some(offset), "class {class}");
        let (bytes, _) = write(FileInfoClass(class), &[entry("ab")], 1000);
        assert_eq!(bytes[offset..], [b'a', 0, b'b', 0], "class {class}");
    }
    assert_eq!(fixed_size(FileInfoClass::BASIC), None);
    assert!(DirectoryWriter::new(&mut Vec::new(), FileInfoClass::BASIC, 100).is_none());
}

#[test]
fn id_both_directory_bytes() {
    let (bytes, _) = write(FileInfoClass::ID_BOTH_DIRECTORY, &[entry("a"), entry("b")], 1000);
    let one = "07000000 0101010101010101 0200000000000000 0300000000000000 0400000000000000 \
        0500000000000000 0010000000000000 20000000 02000000 06000000 18 00 \
        52004500410044004d0045007e0031002e00540058005400 0000 8877665544332211";
    let expected = [
        hex("70000000"),
        hex(one),
        hex("6100 000000000000"),
        hex("00000000"),
        hex(one),
        hex("6200"),
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn older_classes_carry_the_reparse_tag_for_the_ea_size() {
    for class in CLASSES.into_iter().filter(|class| ![1, 12, 100].contains(class)) {
        let link = DirectoryEntry {
            attributes: FileAttributes::REPARSE_POINT,
            reparse_tag: 0xA000_000C,
            ..entry("l")
        };
        let (bytes, _) = write(FileInfoClass(class), &[link], 1000);
        let read =
            DirectoryEntries::new(&bytes, FileInfoClass(class)).unwrap().next().unwrap().unwrap();
        assert_eq!(read.reparse_tag, 0xA000_000C, "class {class}");
        assert_eq!(read.ea_size, if class < 60 { 0 } else { 6 }, "class {class}");
    }
}

/// The padding that a following entry would need is not counted.
#[test]
fn room_at_n_minus_one_n_and_n_plus_one() {
    for class in CLASSES.map(FileInfoClass) {
        let (whole, _) = write(class, &[entry("odd"), entry("name!")], 10_000);
        for (room, fit) in [(whole.len() - 1, 1), (whole.len(), 2), (whole.len() + 1, 2)] {
            assert_eq!(
                write(class, &[entry("odd"), entry("name!"), entry("third")], room).1,
                fit,
                "{class}"
            );
        }
        assert_eq!(write(class, &[entry("odd")], 0), (Vec::new(), 0));
    }
}

#[test]
fn lying_lists_end_in_an_error() {
    let class = FileInfoClass::DIRECTORY;
    let (bytes, _) = write(class, &[entry("first"), entry("second")], 1000);
    for next in [
        1u32,
        4,
        63,
        0xFFFF_FFF8,
        bytes.len() as u32 - 1,
        bytes.len() as u32,
        bytes.len() as u32 + 8,
    ] {
        let mut lie = bytes.clone();
        lie[..4].copy_from_slice(&next.to_le_bytes());
        let read: Vec<_> = DirectoryEntries::new(&lie, class).unwrap().collect();
        assert!(read.len() <= 2 && read.last().unwrap().is_err(), "next {next}");
    }
    let mut lie = bytes;
    lie[60..64].copy_from_slice(&0xFFFF_FFFEu32.to_le_bytes());
    assert!(DirectoryEntries::new(&lie, class).unwrap().next().unwrap().is_err());
    assert_eq!(DirectoryEntries::new(&[], class).unwrap().count(), 0);
}

fn any_entry() -> impl Strategy<Value = (String, DirectoryEntry<&'static str>, [u32; 4])> {
    let numbers = any::<([u64; 7], [u32; 4], [u8; 16], [u32; 4])>();
    (".{1,40}", "[A-Z]{0,8}", numbers).prop_map(|(name, short, (wide, narrow, id, posix))| {
        let entry = DirectoryEntry {
            name: "",
            short_name: ShortName::new(&short).unwrap(),
            file_index: narrow[0],
            creation_time: FileTime(wide[0]),
            last_access_time: FileTime(wide[1]),
            last_write_time: FileTime(wide[2]),
            change_time: FileTime(wide[3]),
            end_of_file: wide[4],
            allocation_size: wide[5],
            attributes: FileAttributes(narrow[1]),
            ea_size: narrow[2],
            reparse_tag: narrow[3],
            file_id: wide[6],
            file_id_128: id,
            posix: None,
            reserved2: 0,
        };
        (name, entry, posix)
    })
}

/// Returns the fields of an entry that `class` contains.
fn expected<'a>(
    class: u8,
    sent: &DirectoryEntry<&str>,
    name: WireName<'a>,
) -> DirectoryEntry<WireName<'a>> {
    let named = DirectoryEntry { name, file_index: sent.file_index, ..DirectoryEntry::default() };
    let common = DirectoryEntry {
        creation_time: sent.creation_time,
        last_access_time: sent.last_access_time,
        last_write_time: sent.last_write_time,
        change_time: sent.change_time,
        end_of_file: sent.end_of_file,
        allocation_size: sent.allocation_size,
        attributes: sent.attributes,
        ..named
    };
    let is_reparse = sent.attributes.contains(FileAttributes::REPARSE_POINT);
    let (ea_size, tag) = if is_reparse { (0, sent.reparse_tag) } else { (sent.ea_size, 0) };
    let short_name =
        if matches!(class, 3 | 37 | 79 | 81) { sent.short_name } else { ShortName::NONE };
    let file_id = if matches!(class, 37 | 38 | 78..=81 | 100) { sent.file_id } else { 0 };
    let file_id_128 = if matches!(class, 60 | 80 | 81) { sent.file_id_128 } else { [0; 16] };
    let rest = DirectoryEntry { short_name, file_id, file_id_128, ..common };
    match class {
        12 => named,
        1 => common,
        2 | 3 | 37 | 38 => DirectoryEntry { ea_size, reparse_tag: tag, ..rest },
        100 => DirectoryEntry { reparse_tag: sent.reparse_tag, ..rest },
        _ => DirectoryEntry { ea_size: sent.ea_size, reparse_tag: sent.reparse_tag, ..rest },
    }
}

proptest! {
    #[test]
    fn entries_survive(class in prop::sample::select(&CLASSES[..]), sent in prop::collection::vec(any_entry(), 1..5)) {
        let sent: Vec<_> = sent.iter().map(|(name, entry, [device, links, mode, uid])| {
            let posix = PosixAttributes { device: *device, links: *links, mode: *mode, owner: Sid::unix_user(*uid),
                group: Sid::unix_group(*uid), ..PosixAttributes::default() };
            DirectoryEntry { name: name.as_str(), posix: Some(posix), ..*entry }
        }).collect();
        let (bytes, fit) = write(FileInfoClass(class), &sent, usize::MAX);
        prop_assert_eq!(fit, sent.len());
        let read: Vec<_> = DirectoryEntries::new(&bytes, FileInfoClass(class)).unwrap().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(read.len(), sent.len());
        for (read, sent) in read.iter().zip(&sent) {
            prop_assert_eq!(read.name.decode().unwrap(), sent.name);
            let mut plain = *read;
            let posix = plain.posix.take();
            prop_assert_eq!(plain, expected(class, sent, read.name));
            if let Some(posix) = posix {
                let sent = sent.posix.unwrap();
                prop_assert_eq!((posix.device, posix.links, posix.mode), (sent.device, sent.links, sent.mode));
                prop_assert_eq!((posix.owner, posix.group), (sent.owner, sent.group));
            }
        }
    }

    #[test]
    fn reading_never_panics_and_ends(class in prop::sample::select(&CLASSES[..]), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(DirectoryEntries::new(&bytes, FileInfoClass(class)).unwrap().count() <= 400);
    }
}
