//! FSCTL_QUERY_FILE_REGIONS, GET_NTFS_VOLUME_DATA, GET_RETRIEVAL_POINTERS, READ_FILE_USN_DATA and
//! MARK_HANDLE.

use std::os::unix::fs::FileExt as _;

use frevo_server::internal::limits::EXTENTS_PER_ANSWER;
use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::fsctl::{FileRegion, FileRegionsHeader};
use frevo_wire::fscc::layout::{
    MarkHandle, NtfsVolumeData, ReadFileUsnData, RetrievalPointer, RetrievalPointersHeader,
    StartingVcn, UsnRecord, UsnReferences,
};
use frevo_wire::fscc::query::{FileIdInformation, FileInternalInformation};
use frevo_wire::fscc::volume::FsFullSizeInformation;
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};

use super::calls::*;
use crate::client::files::flush_draft;
use crate::client::*;

const REGIONS: CtlCode = CtlCode::QUERY_FILE_REGIONS;
const POINTERS: CtlCode = CtlCode::GET_RETRIEVAL_POINTERS;
const USN: CtlCode = CtlCode::READ_FILE_USN_DATA;
const MARK: CtlCode = CtlCode::MARK_HANDLE;

fn bytes(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

fn region(file_offset: i64, length: i64, usage: u32) -> Vec<u8> {
    bytes(|w| FileRegion { file_offset, length, usage }.encode(w))
}

async fn query(peer: &mut Peer, mount: &Mount, class: FileInfoClass, file: FileId) -> Vec<u8> {
    let reply = peer.on(mount, query_draft(class, file)).await;
    query_info::Response::parse(&reply.ok().message).unwrap().output.to_vec()
}

#[test]
fn a_file_is_one_region_of_valid_data() {
    in_world(async |world| {
        world.file("f", vec![1; 5000]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = |name| Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
        let file = peer.open_file(&mount, &want("f")).await;
        for (input, told) in [
            (vec![], (0, 5000, 1)),
            (region(0, i64::MAX, 1), (0, 5000, 1)),
            (region(100, 50, 1), (100, 50, 1)),
            (region(4999, 50, 3), (4999, 1, 3)),
        ] {
            let reply = ask(&mut peer, &mount, REGIONS, file, &input, 40).await;
            let out = output(reply.ok());
            let header = FileRegionsHeader::parse(&out).unwrap();
            assert_eq!((out.len(), header.total_regions, header.regions), (40, 1, 1));
            let one = FileRegion::parse(&out[16..]).unwrap();
            assert_eq!((one.file_offset, one.length, one.usage), told);
        }
        for at in [5000, 5001, 1 << 40] {
            let reply = ask(&mut peer, &mount, REGIONS, file, &region(at, 1, 1), 40).await;
            assert!(output(reply.ok()).is_empty(), "{at}");
        }
        let invalid = Status::INVALID_PARAMETER;
        for (input, room, status) in [
            (region(0, 0, 1), 40, invalid),
            (region(0, -1, 1), 40, invalid),
            (region(-1, 1, 1), 40, invalid),
            (region(1, i64::MAX, 1), 40, invalid),
            (region(0, 1, 0), 40, invalid),
            (region(0, 1, 2), 40, invalid),
            (region(0, 1, 5), 40, invalid),
            // The form of the input is looked at before the room for the output.
            (region(0, 0, 1), 0, invalid),
            (region(0, 1, 1), 39, Status::BUFFER_TOO_SMALL),
            (vec![], 39, Status::BUFFER_TOO_SMALL),
            (region(0, 1, 1)[..23].to_vec(), 40, Status::BUFFER_TOO_SMALL),
            (vec![0], 40, Status::BUFFER_TOO_SMALL),
        ] {
            let reply = ask(&mut peer, &mount, REGIONS, file, &input, room).await;
            assert_eq!(reply.status(), status, "{input:?} {room}");
        }
        // An empty file has a region without valid data. A stream has regions of its own.
        for (name, content, told) in
            [("e", &b""[..], (0, 0, 0)), ("f:s", &b"stream"[..], (0, 6, 1))]
        {
            let file = peer.open_file(&mount, &Want::file(name)).await;
            peer.write(&mount, file, 0, content).await;
            let reply = ask(&mut peer, &mount, REGIONS, file, &[], 4096).await;
            let one = FileRegion::parse(&output(reply.ok())[16..]).unwrap();
            assert_eq!((one.file_offset, one.length, one.usage), told, "{name}");
        }
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        ask(&mut peer, &mount, REGIONS, folder, &[], 4096).await.expect(invalid);
    });
}

#[test]
fn the_volume_is_told_as_by_its_other_questions() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let code = CtlCode::GET_NTFS_VOLUME_DATA;
        for want in [Want::file("f"), Want::directory("d"), Want::existing("")] {
            let file = peer.open_file(&mount, &want).await;
            ask(&mut peer, &mount, code, file, &[], 95).await.expect(Status::BUFFER_TOO_SMALL);
            let reply = ask(&mut peer, &mount, code, file, &[], 4096).await;
            let out = output(reply.ok());
            assert_eq!(out.len(), 96);
            let data = NtfsVolumeData::parse(&out).unwrap();
            let full = query_info_draft(file, InfoType::FILESYSTEM, FsInfoClass::FULL_SIZE.0, 0);
            let reply = peer.on(&mount, full).await;
            let full = query_info::Response::parse(&reply.ok().message).unwrap().output;
            let full = FsFullSizeInformation::parse(full).unwrap();
            let unit = full.sectors_per_allocation_unit * full.bytes_per_sector;
            assert_eq!((data.bytes_per_sector, data.bytes_per_cluster), (512, unit));
            assert_eq!(data.total_clusters, full.total_allocation_units);
            assert_eq!(data.number_sectors, data.total_clusters * u64::from(unit) / 512);
            assert!(data.free_clusters <= data.total_clusters && data.volume_serial_number != 0);
            peer.close(&mount, file).await;
        }
    });
}

/// The extents of a file from a cluster on.
fn pointers(out: &[u8]) -> (i64, Vec<(i64, i64)>) {
    let header = RetrievalPointersHeader::parse(out).unwrap();
    let extents = out[16..].chunks(16).map(|one| RetrievalPointer::parse(one).unwrap());
    let extents: Vec<_> = extents.map(|one| (one.next_vcn, one.lcn)).collect();
    assert_eq!(extents.len(), header.extent_count as usize);
    (header.starting_vcn, extents)
}

/// tmpfs does not tell the places of data.
fn tells_places(world: &World) -> bool {
    let file_system = rustix::fs::statfs(world.dir.path()).unwrap();
    file_system.f_type as u64 != 0x0102_1994
}

#[test]
fn clusters_are_told_in_pieces() {
    in_world(async |world| {
        let pieces = EXTENTS_PER_ANSWER as u64 / 2 + 10;
        let host = std::fs::File::create(world.path("f")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::existing("f").access(AccessMask::FILE_GENERIC_READ);
        let file = peer.open_file(&mount, &want).await;
        let asked = |vcn: i64| bytes(|w| StartingVcn { starting_vcn: vcn }.encode(w));
        // An empty file has no cluster.
        ask(&mut peer, &mount, POINTERS, file, &asked(0), 64).await.expect(Status::END_OF_FILE);
        // Data in each second cluster.
        for piece in 0..pieces {
            host.write_at(b"x", piece * 8192 + 4096).unwrap();
        }
        host.sync_all().unwrap();
        for (input, room, status) in [
            (asked(0)[..7].to_vec(), 64, Status::INVALID_PARAMETER),
            (vec![], 64, Status::INVALID_PARAMETER),
            (asked(-1), 64, Status::INVALID_PARAMETER),
            (asked(0), 31, Status::BUFFER_TOO_SMALL),
            (asked(-1), 31, Status::BUFFER_TOO_SMALL),
            (asked(i64::MAX), 64, Status::END_OF_FILE),
        ] {
            let reply = ask(&mut peer, &mount, POINTERS, file, &input, room).await;
            assert_eq!(reply.status(), status, "{input:?} {room}");
        }
        if !tells_places(world) {
            let absent = Status::INVALID_DEVICE_REQUEST;
            ask(&mut peer, &mount, POINTERS, file, &asked(0), 64).await.expect(absent);
            return;
        }
        let reply = ask(&mut peer, &mount, POINTERS, file, &asked(0), 16 + 16 * 4).await;
        let (start, first) = pointers(&output(reply.expect(Status::BUFFER_OVERFLOW)));
        assert_eq!((start, first.len()), (0, 4));
        for (at, (next, lcn)) in first.iter().enumerate() {
            assert_eq!((*next, *lcn == -1), (at as i64 + 1, at % 2 == 0), "{first:?}");
        }
        // The answer begins with the extent that the cluster is in.
        let reply = ask(&mut peer, &mount, POINTERS, file, &asked(3), 16 + 16 * 2).await;
        let (start, second) = pointers(&output(reply.expect(Status::BUFFER_OVERFLOW)));
        assert_eq!((start, second[0]), (3, first[3]));
        // No answer has more extents than the limit, whatever room there is.
        let draft = ioctl_draft(POINTERS, file, &asked(0), 131_072).charge(2);
        let reply = peer.on(&mount, draft).await;
        let (_, most) = pointers(&output(reply.expect(Status::BUFFER_OVERFLOW)));
        assert_eq!(most.len(), EXTENTS_PER_ANSWER);
        assert_eq!(most[..4], first[..]);
        let from = most.last().unwrap().0;
        let reply = ask(&mut peer, &mount, POINTERS, file, &asked(from), 65_536).await;
        let (start, rest) = pointers(&output(reply.ok()));
        let last = rest.last().unwrap();
        assert_eq!((start, last.0), (from, 2 * pieces as i64));
        // The hole at the end is an extent, too, and the only one from within it on.
        let end = 2 * pieces as i64 + 3;
        host.set_len(end as u64 * 4096).unwrap();
        for from in [last.0, end - 1] {
            let reply = ask(&mut peer, &mount, POINTERS, file, &asked(from), 64).await;
            assert_eq!(pointers(&output(reply.ok())), (from, vec![(end, -1)]));
        }
        ask(&mut peer, &mount, POINTERS, file, &asked(end), 64).await.expect(Status::END_OF_FILE);
        // The data of a stream lies in attributes.
        let stream = peer.open_file(&mount, &Want::file("f:s")).await;
        peer.write(&mount, stream, 0, b"stream").await;
        peer.on(&mount, flush_draft(stream)).await.ok();
        ask(&mut peer, &mount, POINTERS, stream, &asked(0), 64).await.expect(Status::END_OF_FILE);
    });
}

#[test]
fn no_file_has_a_record_in_a_journal() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let versions = |min_major_version, max_major_version| {
            bytes(|w| ReadFileUsnData { min_major_version, max_major_version }.encode(w))
        };
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        let parent = query(&mut peer, &mount, FileInfoClass::INTERNAL, folder).await;
        let parent = FileInternalInformation::parse(&parent).unwrap().index_number;
        let wide_parent = query(&mut peer, &mount, FileInfoClass::ID, folder).await;
        let wide_parent = FileIdInformation::parse(&wide_parent).unwrap().file_id;
        for (path, name, is_directory) in [
            ("d\\name é", "name é", false),
            ("d\\name é:s", "name é", false),
            ("d\\in", "in", true),
        ] {
            let want = if is_directory { Want::directory(path) } else { Want::file(path) };
            let file = peer.open_file(&mount, &want).await;
            let id = query(&mut peer, &mount, FileInfoClass::INTERNAL, file).await;
            let id = FileInternalInformation::parse(&id).unwrap().index_number;
            let wide = query(&mut peer, &mount, FileInfoClass::ID, file).await;
            let wide = FileIdInformation::parse(&wide).unwrap().file_id;
            let attributes = if is_directory { 0x10 } else { 0x20 };
            let attributes = frevo_wire::dtyp::FileAttributes(attributes);
            let narrow = UsnReferences::V2(id, parent);
            for (input, references) in [
                (vec![], narrow),
                (vec![3, 0, 3], narrow),
                (versions(2, 2), narrow),
                (versions(0, 2), narrow),
                (versions(2, 3), UsnReferences::V3(wide, wide_parent)),
                (versions(3, 9), UsnReferences::V3(wide, wide_parent)),
            ] {
                let record = UsnRecord { references, usn: 0, attributes, name };
                let expected = bytes(|w| record.encode(w));
                let reply = ask(&mut peer, &mount, USN, file, &input, 4096).await;
                assert_eq!(output(reply.ok()), expected, "{path} {input:?}");
                let exact = u32::try_from(expected.len()).unwrap();
                ask(&mut peer, &mount, USN, file, &input, exact).await.ok();
                let short = ask(&mut peer, &mount, USN, file, &input, exact - 1).await;
                short.expect(Status::BUFFER_TOO_SMALL);
            }
            for (min, max) in [(3, 2), (4, 4), (4, 9), (0, 1), (1, 1)] {
                let reply = ask(&mut peer, &mount, USN, file, &versions(min, max), 4096).await;
                assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{min} {max}");
            }
            peer.close(&mount, file).await;
        }
        // Another program gives the name to another file: the record is still the open file's.
        let file = peer.open_file(&mount, &Want::file("d\\moved")).await;
        let id = query(&mut peer, &mount, FileInfoClass::INTERNAL, file).await;
        let id = FileInternalInformation::parse(&id).unwrap().index_number;
        std::fs::rename(world.path("d/moved"), world.path("d/away")).unwrap();
        world.file("d/moved", b"another one");
        let reply = ask(&mut peer, &mount, USN, file, &[], 4096).await;
        let attributes = frevo_wire::dtyp::FileAttributes(0x20);
        let references = UsnReferences::V2(id, parent);
        let record = UsnRecord { references, usn: 0, attributes, name: "moved" };
        assert_eq!(output(reply.ok()), bytes(|w| record.encode(w)));
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let reply = ask(&mut peer, &mount, USN, root, &[], 4096).await;
        assert_eq!(output(reply.ok())[60..], [b'.', 0, 0, 0]);
    });
}

#[test]
fn a_handle_is_marked_by_the_text() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mark = |handle_info, copy_number| {
            bytes(|w| MarkHandle { copy_number, volume_handle: 0, handle_info }.encode(w))
        };
        let cached = peer.open_file(&mount, &Want::file("f")).await;
        let direct = CreateOptions::NO_INTERMEDIATE_BUFFERING;
        let unbuffered = peer.open_file(&mount, &Want::existing("f").options(direct)).await;
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        let (small, invalid) = (Status::BUFFER_TOO_SMALL, Status::INVALID_PARAMETER);
        for (file, input, status) in [
            (unbuffered, mark(0x100, 0), Status::SUCCESS),
            (unbuffered, mark(0x80, 0), Status::NOT_REDUNDANT_STORAGE),
            (unbuffered, mark(0x80, 1), invalid),
            (unbuffered, mark(0x100, 1), invalid),
            (unbuffered, mark(0x180, 0), invalid),
            (unbuffered, mark(0, 0), invalid),
            (unbuffered, mark(1, 0), invalid),
            (unbuffered, mark(0x100, 0)[..23].to_vec(), small),
            (cached, mark(0x100, 0), invalid),
            (cached, mark(0x80, 0), invalid),
            (cached, vec![], small),
            (folder, mark(0x100, 0), Status::DIRECTORY_NOT_SUPPORTED),
            (folder, vec![0; 23], small),
        ] {
            let reply = ask(&mut peer, &mount, MARK, file, &input, 0).await;
            assert_eq!(reply.status(), status, "{input:?}");
        }
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        for code in [MARK, REGIONS, POINTERS, USN, CtlCode::GET_NTFS_VOLUME_DATA] {
            let reply = ask(&mut peer, &ipc, code, pipe, &[0; 64], 4096).await;
            assert_eq!(reply.status(), Status::INVALID_DEVICE_REQUEST, "{code:?}");
        }
    });
}
