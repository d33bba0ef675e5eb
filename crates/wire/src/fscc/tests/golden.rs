//! Bytes recorded from Samba 4.17: answers of its server and requests of its client. Each is parsed
//! and, if the layout leaves no choice, encoded to the original bytes.

use super::hex;
use crate::codec::Writer;
use crate::dtyp::{FileAttributes, FileTime, SecurityDescriptor, Sid};
use crate::fscc::ea::{Ea, EaEntries, EaWriter};
use crate::fscc::query::{
    FileAllInformation, FileNameInformation, StreamEntries, StreamEntry, StreamWriter,
};
use crate::fscc::set::FileRenameInformation;
use crate::fscc::volume::{FsSizeInformation, FsVolumeInformation};
use crate::fscc::{DirectoryEntries, DirectoryEntry, DirectoryWriter, FileInfoClass, Pushed};
use alloc::string::String;
use alloc::vec::Vec;

/// A listing at level 37.
const DIRECTORY: &str = "7000000000000000fddfbd41027add01fddfbd41027add01ce8ad341027add01ce8ad341027add010000 \
    000000000000000000000000000010000000020000000000000000000000000000000000000000000000 \
    000000000000000000000000d2619800000000002e000000000000007000000000000000bd43bd41027a \
    dd01bd43bd41027add017ef8cd41027add017ef8cd41027add0100000000000000000000000000000000 \
    10000000040000000000000000000000000000000000000000000000000000000000000000000000c261 \
    9800000000002e002e00000000007000000000000000bd3cd341027add01bd3cd341027add01bd3cd341 \
    027add01bd3cd341027add01000000000000000000000000000000001000000006000000000000000000 \
    000000000000000000000000000000000000000000000000000081629800000000006400690072000000 \
    9000000000000000ce8ad341027add01ce8ad341027add01ce8ad341027add01ce8ad341027add010200 \
    000000000000001000000000000080000000240000000000000000000000000000000000000000000000 \
    000000000000000000000000836298000000000067007200f600df006500200075006e00640020006c00 \
    e4006e00670065002e006d006400000000007000000000000000bd3cd341027add01bd3cd341027add01 \
    ce8ad341027add01ce8ad341027add010600000000000000001000000000000080000000080000000000 \
    00000000000000000000000000000000000000000000000000000000000082629800000000006c006900 \
    6e006b000000000000000000bd3cd341027add01bd3cd341027add01ce8ad341027add01ce8ad341027a \
    dd0106000000000000000010000000000000800000001200000000000000000000000000000000000000 \
    000000000000000000000000000000008262980000000000680065006c006c006f002e00740078007400";

/// FileAllInformation.
const ALL: &str = "bd3cd341027add01bd3cd341027add01ce8ad341027add01ce8ad341027add0180000000000000000010 \
    000000000000060000000000000001000000000000008262980000000000000000008000000000000000 \
    000000008000000000000000140000005c00680065006c006c006f002e00740078007400";

/// FileAlternateNameInformation.
const ALTERNATE_NAME: &str = "12000000680065006c006c006f002e00740078007400";

/// FileStreamInformation.
const STREAMS: &str =
    "000000000e000000060000000000000000100000000000003a003a0024004400410054004100";

/// FileFsSizeInformation.
const FS_SIZE: &str = "748ebf0f00000000300a0d04000000000200000000020000";

/// FileFsVolumeInformation.
const FS_VOLUME: &str = "ce8ad341027add013d3c6f630a000000000073006800610072006500";

/// A security descriptor.
const SECURITY: &str = "010004901400000030000000000000004000000001050000000000051500000061a0eeba02bb1118361f \
    30c5e8030000010200000000001602000000000000000200580003000000000024009f01120001050000 \
    000000051500000061a0eeba02bb1118361f30c5e8030000000018008900120001020000000000160200 \
    0000000000000000140089001200010100000000000100000000";

/// FileRenameInformation, as smbclient sets it.
const RENAME: &str =
    "0000000000000000000000000000000016000000720065006e0061006d00650064002e00740078007400";

/// FileFullEaInformation, set and queried alike.
const FULL_EA: &str = "0000000000080300757365722e666f6f00626172";

fn written(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Writer::new(&mut out));
    out
}

#[test]
fn directory() {
    let bytes = hex(DIRECTORY);
    let class = FileInfoClass::ID_BOTH_DIRECTORY;
    let read: Vec<_> =
        DirectoryEntries::new(&bytes, class).unwrap().collect::<Result<_, _>>().unwrap();
    let names: Vec<_> = read.iter().map(|entry| entry.name.decode().unwrap()).collect();
    assert_eq!(names, [".", "..", "dir", "größe und länge.md", "link", "hello.txt"]);
    assert!(read[2].attributes.contains(FileAttributes::DIRECTORY) && read[5].end_of_file == 6);
    assert_eq!(read[4].file_id, read[5].file_id, "a link that the server followed");
    let mut out = Vec::new();
    let mut writer = DirectoryWriter::new(&mut out, class, bytes.len()).unwrap();
    for (entry, name) in read.iter().zip(&names) {
        let entry = DirectoryEntry {
            name: name.as_str(),
            short_name: entry.short_name,
            file_index: entry.file_index,
            creation_time: entry.creation_time,
            last_access_time: entry.last_access_time,
            last_write_time: entry.last_write_time,
            change_time: entry.change_time,
            end_of_file: entry.end_of_file,
            allocation_size: entry.allocation_size,
            attributes: entry.attributes,
            ea_size: entry.ea_size,
            reparse_tag: entry.reparse_tag,
            file_id: entry.file_id,
            file_id_128: entry.file_id_128,
            posix: None,
            reserved2: 0,
        };
        assert_eq!(writer.push(&entry), Pushed::Fits);
    }
    assert_eq!(out, bytes);
}

#[test]
fn queries() {
    let bytes = hex(ALL);
    let all = FileAllInformation::parse(&bytes).unwrap();
    assert!(
        all.name.is(r"\hello.txt")
            && all.standard.end_of_file == 6
            && all.standard.number_of_links == 1
    );
    let name = all.name.decode().unwrap();
    let again = FileAllInformation {
        basic: all.basic,
        standard: all.standard,
        internal: all.internal,
        ea: all.ea,
        access: all.access,
        position: all.position,
        mode: all.mode,
        alignment: all.alignment,
        name: name.as_str(),
    };
    assert_eq!(written(|w| again.encode(w)), bytes);
    let bytes = hex(ALTERNATE_NAME);
    assert!(FileNameInformation::parse(&bytes).unwrap().name.is("hello.txt"));
    assert_eq!(written(|w| FileNameInformation { name: "hello.txt" }.encode(w)), bytes);
    let bytes = hex(STREAMS);
    let streams: Vec<_> = StreamEntries::new(&bytes).collect::<Result<_, _>>().unwrap();
    assert!(streams.len() == 1 && streams[0].name.is("::$DATA") && streams[0].size == 6);
    let mut out = Vec::new();
    let stream =
        StreamEntry { name: "::$DATA", size: 6, allocation_size: streams[0].allocation_size };
    assert_eq!(StreamWriter::new(&mut out, 38).push(&stream), Pushed::Fits);
    assert_eq!(out, bytes);
}

#[test]
fn file_systems() {
    let bytes = hex(FS_SIZE);
    let size = FsSizeInformation::parse(&bytes).unwrap();
    assert_eq!((size.sectors_per_allocation_unit, size.bytes_per_sector), (2, 512));
    assert_eq!(written(|w| size.encode(w)), bytes);
    let bytes = hex(FS_VOLUME);
    let volume = FsVolumeInformation::parse(&bytes).unwrap();
    assert!(volume.label.is("share") && volume.serial_number == 0x636F_3C3D);
    let again = FsVolumeInformation {
        creation_time: FileTime(volume.creation_time.0),
        serial_number: volume.serial_number,
        supports_objects: volume.supports_objects,
        label: "share",
    };
    assert_eq!(written(|w| again.encode(w)), bytes);
}

#[test]
fn security() {
    let descriptor = SecurityDescriptor::parse(&hex(SECURITY)).unwrap();
    let owner: Sid = "S-1-5-21-3136200801-403815170-3308265270-1000".parse().unwrap();
    assert_eq!((descriptor.owner, descriptor.group), (Some(owner), Some(Sid::unix_group(0))));
    let dacl = descriptor.dacl.as_ref().unwrap();
    let sids: Vec<_> = dacl.aces.iter().map(|ace| *ace.sid().unwrap()).collect();
    assert_eq!(sids, [owner, Sid::unix_group(0), Sid::EVERYONE]);
    let mut out = Vec::new();
    descriptor.encode(&mut out).unwrap();
    assert_eq!(SecurityDescriptor::parse(&out).unwrap(), descriptor);
    assert_eq!(out.len(), hex(SECURITY).len());
}

#[test]
fn sets() {
    let bytes = hex(RENAME);
    let rename = FileRenameInformation::parse(&bytes).unwrap();
    assert!(rename.name.is("renamed.txt") && !rename.replace_if_exists);
    let name: String = rename.name.decode().unwrap();
    let again =
        FileRenameInformation { replace_if_exists: false, root_directory: 0, name: name.as_str() };
    assert_eq!(written(|w| again.encode(w)), bytes);
    let bytes = hex(FULL_EA);
    let ea = Ea { need: false, name: b"user.foo", value: b"bar" };
    assert_eq!(EaEntries::new(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), [ea]);
    let mut out = Vec::new();
    assert_eq!(EaWriter::new(&mut out, 100).push(&ea), Pushed::Fits);
    assert_eq!(out, bytes);
}
