//! Chained lists, in both directions, up to the length of the longest frame.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::{dfs, snapshots};
use frevo_wire::dtyp::{FileAttributes, FileTime, Sid};
use frevo_wire::fscc::ea::{Ea, EaEntries, EaNames, EaNamesWriter, EaWriter};
use frevo_wire::fscc::notify::{NotifyAction, NotifyEntries, NotifyEntry, NotifyWriter};
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::query::{StreamEntries, StreamEntry, StreamWriter};
use frevo_wire::fscc::quota::{QuotaEntries, QuotaEntry, QuotaSids, QuotaSidsWriter, QuotaWriter};
use frevo_wire::fscc::reparse::ReparseBuffer;
use frevo_wire::fscc::{
    DirectoryEntries, DirectoryEntry, DirectoryWriter, FileInfoClass, Pushed, ShortName, fsctl,
};

use crate::choices::Choices;
use crate::judge::grown;

/// Space for the encoded list: padding makes it longer than the input.
const ROOM: usize = 64 << 20;

/// Extended attributes as SET_INFO and CREATE bring them, and names as QUERY_INFO asks.
pub fn ea_lists(data: &[u8]) {
    let Some(list) = grown(data) else { return };
    let good = EaEntries::check(&list);
    let eas: Vec<Ea<'_>> = EaEntries::new(&list).map_while(Result::ok).collect();
    assert!(eas.len() <= list.len() / 8 + 1, "each entry takes its bytes");
    if let Ok(count) = good {
        assert_eq!(count, eas.len());
        let mut out = Vec::new();
        let mut writer = EaWriter::new(&mut out, ROOM);
        assert!(eas.iter().all(|ea| writer.push(ea) == Pushed::Fits));
        let again: Result<Vec<_>, _> = EaEntries::new(&out).collect();
        assert_eq!(again.as_ref(), Ok(&eas), "a list as it was written");
    }
    let names: Vec<&[u8]> = EaNames::new(&list).map_while(Result::ok).collect();
    if EaNames::new(&list).all(|name| name.is_ok()) {
        let mut out = Vec::new();
        let mut writer = EaNamesWriter::new(&mut out, ROOM);
        assert!(names.iter().all(|name| writer.push(name) == Pushed::Fits));
        let again: Result<Vec<_>, _> = EaNames::new(&out).collect();
        assert_eq!(again.as_ref(), Ok(&names), "names as they were written");
    }
}

/// By the first byte: a change notification, streams, quotas, SIDs, a reparse point,
/// ranges, snapshots, referrals.
pub fn lists(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let Some(list) = grown(data) else { return };
    match kind % 8 {
        0 => {
            let entries = NotifyEntries::new(&list).map_while(Result::ok);
            entries.for_each(|entry| drop(entry.name.decode()));
        }
        1 => {
            let entries = StreamEntries::new(&list).map_while(Result::ok);
            entries.for_each(|entry| drop(entry.name.decode()));
        }
        2 => {
            let entries: Vec<_> = QuotaEntries::new(&list).map_while(Result::ok).collect();
            let mut out = Vec::new();
            let mut writer = QuotaWriter::new(&mut out, ROOM);
            assert!(entries.iter().all(|entry| writer.push(entry) == Pushed::Fits));
            assert_eq!(QuotaEntries::new(&out).map_while(Result::ok).collect::<Vec<_>>(), entries);
        }
        3 => {
            let sids: Vec<_> = QuotaSids::new(&list).map_while(Result::ok).collect();
            let mut out = Vec::new();
            let mut writer = QuotaSidsWriter::new(&mut out, ROOM);
            assert!(sids.iter().all(|sid| writer.push(sid) == Pushed::Fits));
            assert_eq!(QuotaSids::new(&out).map_while(Result::ok).collect::<Vec<_>>(), sids);
        }
        4 => {
            if let Ok(buffer) = ReparseBuffer::parse(&list) {
                let _ = buffer.meaning();
                let mut out = Vec::new();
                if buffer.encode(&mut Writer::new(&mut out)).is_some() {
                    assert_eq!(ReparseBuffer::parse(&out), Ok(buffer));
                }
            }
        }
        5 => {
            if let Ok(trim) = fsctl::TrimRequest::parse(&list) {
                assert!(trim.ranges().count() <= list.len() / 16);
            }
        }
        6 => drop(snapshots::SnapshotArray::parse(&list)),
        _ => {
            let _ = dfs::ReferralResponse::parse(&list);
            let _ = dfs::ReferralRequest::parse(&list);
        }
    }
}

fn posix(choices: &mut Choices<'_>) -> PosixAttributes {
    PosixAttributes {
        links: choices.u32(),
        mode: choices.u32(),
        owner: Sid::EVERYONE,
        group: Sid::BUILTIN,
        ..PosixAttributes::default()
    }
}

fn entry<'a>(name: &'a str, choices: &mut Choices<'_>) -> DirectoryEntry<&'a str> {
    DirectoryEntry {
        name,
        short_name: ShortName::new(name).unwrap_or_default(),
        file_index: choices.u32(),
        creation_time: FileTime(choices.u64()),
        last_write_time: FileTime(choices.u64()),
        end_of_file: choices.u64(),
        attributes: FileAttributes(choices.u32()),
        ea_size: choices.u32(),
        file_id: choices.u64(),
        file_id_128: choices.guid(),
        posix: (choices.u8() & 1 == 1).then(|| posix(choices)),
        ..DirectoryEntry::default()
    }
}

/// By the first byte: bytes as an evil server lists a directory with, or entries as a
/// server writes them and a client must find them. The second chooses the class.
pub fn directory_replies(data: &[u8]) {
    let [kind, class, data @ ..] = data else { return };
    let classes = [1, 2, 3, 12, 37, 38, 60, 63, 78, 79, 80, 81, 100, *class];
    let class = FileInfoClass(classes[usize::from(*class) % classes.len()]);
    match kind % 4 {
        0 | 1 => {
            let Some(list) = grown(data) else { return };
            let Some(entries) = DirectoryEntries::new(&list, class) else { return };
            entries.map_while(Result::ok).for_each(|entry| {
                let _ = entry.name.decode();
                let _ = entry.short_name.name().decode();
            });
        }
        2 => written_entries(class, data),
        _ => written_lists(data),
    }
}

fn written_entries(class: FileInfoClass, data: &[u8]) {
    let mut choices = Choices::new(data);
    let room = usize::from(choices.u16());
    let mut out = Vec::new();
    let mut names = Vec::new();
    let Some(mut writer) = DirectoryWriter::new(&mut out, class, room) else { return };
    while !choices.is_over() {
        let name = choices.text();
        if writer.push(&entry(&name, &mut choices)) == Pushed::Full {
            break;
        }
        names.push(name);
    }
    assert!(out.len() <= room, "a list within its room");
    let entries = DirectoryEntries::new(&out, class).expect("a class of entries");
    let read: Vec<String> =
        entries.map(|entry| entry.expect("what we write we read").name.to_string_lossy()).collect();
    assert_eq!(read, names, "the names in their order");
}

fn written_lists(data: &[u8]) {
    let mut choices = Choices::new(data);
    let room = usize::from(choices.u16());
    let (mut changes, mut streams, mut quotas) = (Vec::new(), Vec::new(), Vec::new());
    let mut names: [Vec<String>; 2] = Default::default();
    let mut change = NotifyWriter::new(&mut changes, room);
    let mut stream = StreamWriter::new(&mut streams, room);
    let mut quota = QuotaWriter::new(&mut quotas, room);
    while !choices.is_over() {
        let name = choices.text();
        let action = NotifyAction(choices.u32());
        if change.push(&NotifyEntry { action, name: &name }) == Pushed::Fits {
            names[0].push(name.clone());
        }
        let (size, allocation_size) = (choices.u64(), choices.u64());
        if stream.push(&StreamEntry { name: &name, size, allocation_size }) == Pushed::Fits {
            names[1].push(name);
        }
        let _ = quota.push(&QuotaEntry {
            change_time: FileTime(size),
            used: 1,
            threshold: -1,
            limit: -2,
            sid: Sid::EVERYONE,
        });
    }
    assert!(changes.len().max(streams.len()).max(quotas.len()) <= room);
    let read = NotifyEntries::new(&changes).map(|it| it.expect("ours").name.to_string_lossy());
    assert_eq!(read.collect::<Vec<_>>(), names[0]);
    let read = StreamEntries::new(&streams).map(|it| it.expect("ours").name.to_string_lossy());
    assert_eq!(read.collect::<Vec<_>>(), names[1]);
    assert!(QuotaEntries::new(&quotas).all(|entry| entry.is_ok()));
}
