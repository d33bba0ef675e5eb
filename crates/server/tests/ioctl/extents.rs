//! Extents that files share: FSCTL_DUPLICATE_EXTENTS_TO_FILE and _EX,
//! FSCTL_FILE_LEVEL_TRIM, integrity information. In memory, which can.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::{
    CHECKSUM_TYPE_CRC64, CHECKSUM_TYPE_NONE, CHECKSUM_TYPE_UNCHANGED, DUPLICATE_EXTENTS_EX_SIZE,
    DuplicateExtents, DuplicateExtentsEx, DuplicateExtentsFlags, IntegrityFlags,
    IntegrityInformation, SetIntegrityInformation, TrimRange, TrimReply, TrimRequest,
};

use super::calls::*;
use crate::client::files::lock_draft;
use crate::client::world::{EXCLUSIVE, in_memory};
use crate::client::*;

const PLAIN: CtlCode = CtlCode::DUPLICATE_EXTENTS_TO_FILE;
const EXTENDED: CtlCode = CtlCode::DUPLICATE_EXTENTS_TO_FILE_EX;
const TRIM: CtlCode = CtlCode::FILE_LEVEL_TRIM;
const SPARSE: CtlCode = CtlCode::SET_SPARSE;
/// Bytes of a cluster of the file system in memory.
const CLUSTER: i64 = 4096;

fn bytes_of(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

fn plain(source: FileId, from: i64, to: i64, byte_count: i64) -> Vec<u8> {
    let request = DuplicateExtents {
        source_file_id: source,
        source_file_offset: from,
        target_file_offset: to,
        byte_count,
    };
    bytes_of(|w| request.encode(w))
}

fn extended(source: FileId, from: i64, to: i64, byte_count: i64, size: u64) -> Vec<u8> {
    let request = DuplicateExtentsEx {
        structure_size: size,
        source_file_id: source,
        source_file_offset: from,
        target_file_offset: to,
        byte_count,
        flags: DuplicateExtentsFlags::SOURCE_ATOMIC,
    };
    bytes_of(|w| request.encode(w))
}

/// Four clusters of ones with a tail, four of twos.
async fn pair(peer: &mut Peer, mount: &Mount) -> (FileId, FileId) {
    let source = peer.open_file(mount, &Want::file("source")).await;
    peer.write(mount, source, 0, &[1; 4 * CLUSTER as usize + 10]).await;
    let target = peer.open_file(mount, &Want::file("target")).await;
    peer.write(mount, target, 0, &[2; 4 * CLUSTER as usize]).await;
    (source, target)
}

async fn first_of_each(peer: &mut Peer, mount: &Mount, file: FileId) -> Vec<u8> {
    let all = peer.read(mount, file, 0, 1 << 16).await;
    all.chunks(CLUSTER as usize).map(|cluster| cluster[0]).collect()
}

#[test]
fn a_range_of_one_file_shows_in_another() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let input = plain(source, 0, CLUSTER, CLUSTER);
        ask(&mut peer, &mount, PLAIN, target, &input, 0).await.ok();
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [2, 1, 2, 2]);
        let size = DUPLICATE_EXTENTS_EX_SIZE;
        let input = extended(source, CLUSTER, 3 * CLUSTER, CLUSTER, size);
        ask(&mut peer, &mount, EXTENDED, target, &input, 0).await.ok();
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [2, 1, 2, 1]);
        // Linux clients clone whole files, whose last cluster is incomplete. They first set the
        // target's end, because a clone does not move it.
        let end = (4 * CLUSTER + 10).to_le_bytes();
        let set = set_draft(FileInfoClass::END_OF_FILE, target, &end);
        peer.on(&mount, set).await.ok();
        let all = plain(source, 0, 0, 4 * CLUSTER + 10);
        ask(&mut peer, &mount, PLAIN, target, &all, 0).await.ok();
        let copied = peer.read(&mount, target, 0, 1 << 16).await;
        assert_eq!(copied, [1; 4 * CLUSTER as usize + 10]);
        // After the clone, a write to the source must not change the target.
        peer.write(&mount, source, 0, &[5]).await;
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [1; 5]);
        let short = peer.open_file(&mount, &Want::file("short")).await;
        peer.write(&mount, short, 0, &[3; CLUSTER as usize + 7]).await;
        let beyond = plain(source, CLUSTER, 0, 3 * CLUSTER);
        ask(&mut peer, &mount, PLAIN, short, &beyond, 0).await.ok();
        let kept = peer.read(&mount, short, 0, 1 << 16).await;
        assert_eq!(kept, [1; CLUSTER as usize + 7]);
        let behind = plain(source, 0, 4 * CLUSTER, CLUSTER);
        ask(&mut peer, &mount, PLAIN, short, &behind, 0).await.ok();
        assert_eq!(peer.read(&mount, short, 0, 1 << 16).await, kept);
        // A clone of length 0 succeeds and changes nothing.
        ask(&mut peer, &mount, PLAIN, target, &plain(source, 0, 0, 0), 0).await.ok();
        // Source and target may be the same file if the ranges do not overlap.
        let within = plain(source, 0, 2 * CLUSTER, CLUSTER);
        ask(&mut peer, &mount, PLAIN, source, &within, 0).await.ok();
        assert_eq!(first_of_each(&mut peer, &mount, source).await, [5, 1, 5, 1, 1]);
    });
}

/// MS-FSA 2.1.5.10.4 and 2.1.5.10.5, MS-SMB2 3.3.5.15.17.
#[test]
fn what_cannot_be_shared_has_its_status() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let invalid = Status::INVALID_PARAMETER;
        let unsupported = Status::NOT_SUPPORTED;
        let id = source;
        for (from, to, count, status) in [
            (1, 0, CLUSTER, invalid),
            (0, 1, CLUSTER, invalid),
            (0, 0, CLUSTER - 1, invalid),
            (-CLUSTER, 0, CLUSTER, invalid),
            (0, -CLUSTER, CLUSTER, invalid),
            (0, 0, -CLUSTER, invalid),
            (i64::MAX & !4095, 0, CLUSTER, invalid),
            (0, i64::MAX & !4095, CLUSTER, invalid),
            (4 * CLUSTER, 0, CLUSTER, unsupported),
            (0, 0, 8 * CLUSTER, unsupported),
        ] {
            let input = plain(id, from, to, count);
            ask(&mut peer, &mount, PLAIN, target, &input, 0).await.expect(status);
            let input = extended(id, from, to, count, DUPLICATE_EXTENTS_EX_SIZE);
            ask(&mut peer, &mount, EXTENDED, target, &input, 0).await.expect(status);
        }
        let whole = plain(source, 0, 0, CLUSTER);
        for cut in 0..whole.len() {
            ask(&mut peer, &mount, PLAIN, target, &whole[..cut], 0).await.expect(invalid);
        }
        let odd = extended(source, 0, 0, CLUSTER, 0x2F);
        ask(&mut peer, &mount, EXTENDED, target, &odd, 0).await.expect(unsupported);
        let overlaps = plain(source, 0, CLUSTER, 2 * CLUSTER);
        ask(&mut peer, &mount, PLAIN, source, &overlaps, 0).await.expect(unsupported);
        let nobody = FileId { persistent: 1, volatile: 2 };
        let input = plain(nobody, 0, 0, CLUSTER);
        ask(&mut peer, &mount, PLAIN, target, &input, 0).await.expect(Status::INVALID_HANDLE);
        // A directory has no data, so it can be neither source nor target.
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let input = plain(directory, 0, 0, CLUSTER);
        ask(&mut peer, &mount, PLAIN, target, &input, 0).await.expect(invalid);
        ask(&mut peer, &mount, PLAIN, directory, &whole, 0).await.expect(unsupported);
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [2; 4]);
        // A sparse source needs a sparse target, so the clone is refused until the target is
        // sparse.
        ask(&mut peer, &mount, SPARSE, source, &[], 0).await.ok();
        ask(&mut peer, &mount, PLAIN, target, &whole, 0).await.expect(unsupported);
        ask(&mut peer, &mount, SPARSE, target, &[], 0).await.ok();
        ask(&mut peer, &mount, PLAIN, target, &whole, 0).await.ok();
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [1, 2, 2, 2]);
    });
}

#[test]
fn sharing_needs_rights_and_the_session() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let input = plain(source, 0, 0, CLUSTER);
        let reader = Want::existing("target").access(AccessMask::FILE_GENERIC_READ);
        let reader = peer.open_file(&mount, &reader).await;
        let denied = Status::ACCESS_DENIED;
        ask(&mut peer, &mount, PLAIN, reader, &input, 0).await.expect(denied);
        let blind = Want::existing("source").access(AccessMask::WRITE_DATA);
        let blind = peer.open_file(&mount, &blind).await;
        let from_blind = plain(blind, 0, 0, CLUSTER);
        let invalid = Status::INVALID_PARAMETER;
        ask(&mut peer, &mount, PLAIN, target, &from_blind, 0).await.expect(invalid);
        // The handle of the source belongs to another session, so it counts as invalid.
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let file = other.open_file(&theirs, &Want::file("target")).await;
        let handle = Status::INVALID_HANDLE;
        ask(&mut other, &theirs, PLAIN, file, &input, 0).await.expect(handle);
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [2; 4]);
        // MS-FSA 2.1.5.10.4, notes 91 and 92: a clone ignores byte-range locks on source and
        // target.
        for name in ["source", "target"] {
            let file = other.open_file(&theirs, &Want::existing(name)).await;
            other.on(&theirs, lock_draft(file, &[(10, 1, EXCLUSIVE)])).await.ok();
            ask(&mut peer, &mount, PLAIN, target, &input, 0).await.ok();
            other.close(&theirs, file).await;
        }
    });
}

/// A volume names the features that it lacks.
#[test]
fn a_volume_without_shared_extents_refuses() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let root = frevo_posix::PosixVfs::open_root(world.dir.path(), Default::default()).unwrap();
        if frevo_store::Vfs::volume(&root).shares_extents {
            println!("left out: temporary files lie where extents are shared");
            return;
        }
        let refused = Status::INVALID_DEVICE_REQUEST;
        let input = plain(file, 0, 0, CLUSTER);
        ask(&mut peer, &mount, PLAIN, file, &input, 0).await.expect(refused);
        let get = CtlCode::GET_INTEGRITY_INFORMATION;
        ask(&mut peer, &mount, get, file, &[], 64).await.expect(refused);
        let set = CtlCode::SET_INTEGRITY_INFORMATION;
        ask(&mut peer, &mount, set, file, &[0; 8], 0).await.expect(refused);
    });
}

#[test]
fn trimmed_pages_read_as_zeros() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let trim = |ranges: &[(u64, u64)]| {
            let range =
                |(offset, length): &(u64, u64)| TrimRange { offset: *offset, length: *length };
            let ranges: Vec<_> = ranges.iter().map(range).collect();
            bytes_of(|w| TrimRequest::encode(w, 0, &ranges))
        };
        // Only whole pages within a range are trimmed. MS-FSA 2.1.5.10.6 also counts a range after
        // the file's end as processed, so three ranges count.
        let input =
            trim(&[(1, 4095), (1, 8191), (0, 100), (1 << 40, 1 << 20), (3 * 4096, 1 << 30)]);
        let reply = ask(&mut peer, &mount, TRIM, target, &input, 4).await;
        let processed = TrimReply::parse(&output(reply.ok())).unwrap().ranges_processed;
        assert_eq!(processed, 3);
        assert_eq!(first_of_each(&mut peer, &mount, target).await, [2, 0, 2, 0]);
        let reply = ask(&mut peer, &mount, TRIM, target, &input, 0).await;
        assert!(output(reply.ok()).is_empty());
        let invalid = Status::INVALID_PARAMETER;
        for size in 1..4 {
            ask(&mut peer, &mount, TRIM, target, &input, size).await.expect(invalid);
        }
        for bytes in [vec![0; 8], [[0; 4], [255; 4]].concat(), input[..40].to_vec()] {
            ask(&mut peer, &mount, TRIM, target, &bytes, 4).await.expect(invalid);
        }
        let with_key = [&[1, 0, 0, 0], &input[4..]].concat();
        ask(&mut peer, &mount, TRIM, target, &with_key, 4).await.expect(invalid);
        let overflow = Status::INTEGER_OVERFLOW;
        for range in [(u64::MAX, 1), (4096, u64::MAX)] {
            ask(&mut peer, &mount, TRIM, target, &trim(&[range]), 4).await.expect(overflow);
        }
        let many = trim(&vec![(0, 4096); frevo_server::internal::limits::TRIM_RANGES + 1]);
        let many = ask(&mut peer, &mount, TRIM, source, &many, 4).await;
        many.expect(Status::INSUFFICIENT_RESOURCES);
        let other = peer.open_file(&mount, &Want::existing("source")).await;
        peer.on(&mount, lock_draft(other, &[(0, 1, EXCLUSIVE)])).await.ok();
        let locked = ask(&mut peer, &mount, TRIM, source, &trim(&[(0, 4096)]), 4).await;
        locked.expect(Status::FILE_LOCK_CONFLICT);
        // A lock after the file's end conflicts with a trim of that range.
        peer.on(&mount, lock_draft(other, &[(1 << 41, 1, EXCLUSIVE)])).await.ok();
        let behind = trim(&[(1 << 41, 1 << 20)]);
        let locked = ask(&mut peer, &mount, TRIM, source, &behind, 4).await;
        locked.expect(Status::FILE_LOCK_CONFLICT);
        let beyond = trim(&[(u64::MAX - 8191, u64::MAX)]);
        ask(&mut peer, &mount, TRIM, source, &beyond, 4).await.expect(overflow);
        peer.close(&mount, other).await;
        assert_eq!(first_of_each(&mut peer, &mount, source).await, [1; 5]);
    });
}

/// MS-FSA 2.1.5.10.10 and 2.1.5.10.33: there are no checksums, and none to be had.
#[test]
fn integrity_is_none() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (file, _) = pair(&mut peer, &mount).await;
        let get = CtlCode::GET_INTEGRITY_INFORMATION;
        let reply = ask(&mut peer, &mount, get, file, &[], 16).await;
        let information = IntegrityInformation::parse(&output(reply.ok())).unwrap();
        assert_eq!(information.checksum_algorithm, CHECKSUM_TYPE_NONE);
        assert_eq!(information.cluster_size, CLUSTER as u32);
        ask(&mut peer, &mount, get, file, &[], 15).await.expect(Status::INVALID_PARAMETER);
        let set = CtlCode::SET_INTEGRITY_INFORMATION;
        let off = IntegrityFlags::CHECKSUM_ENFORCEMENT_OFF;
        for (checksum_algorithm, flags, status) in [
            (CHECKSUM_TYPE_NONE, IntegrityFlags::EMPTY, Status::SUCCESS),
            (CHECKSUM_TYPE_UNCHANGED, IntegrityFlags::EMPTY, Status::SUCCESS),
            (CHECKSUM_TYPE_CRC64, IntegrityFlags::EMPTY, Status::NOT_SUPPORTED),
            (CHECKSUM_TYPE_NONE, off, Status::INVALID_PARAMETER),
            (CHECKSUM_TYPE_UNCHANGED, off, Status::INVALID_PARAMETER),
            (CHECKSUM_TYPE_NONE, IntegrityFlags(2), Status::INVALID_PARAMETER),
            (7, IntegrityFlags::EMPTY, Status::INVALID_PARAMETER),
        ] {
            let request = SetIntegrityInformation { checksum_algorithm, flags };
            let input = bytes_of(|w| request.encode(w));
            let reply = ask(&mut peer, &mount, set, file, &input, 0).await;
            assert_eq!(reply.status(), status, "{checksum_algorithm:#x} {flags:?}");
        }
    });
}
