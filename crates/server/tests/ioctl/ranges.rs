//! Holes: FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA, FSCTL_QUERY_ALLOCATED_RANGES.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::query_info;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::{AllocatedRange, ZeroData};
use frevo_wire::fscc::query::FileBasicInformation;

use super::calls::*;
use crate::client::files::{lock_draft, rename_draft};
use crate::client::world::EXCLUSIVE;
use crate::client::*;

const QUERY: CtlCode = CtlCode::QUERY_ALLOCATED_RANGES;
const ZERO: CtlCode = CtlCode::SET_ZERO_DATA;
const SPARSE: CtlCode = CtlCode::SET_SPARSE;

fn range(file_offset: i64, length: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    AllocatedRange { file_offset, length }.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn zeros(file_offset: i64, beyond_final_zero: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    ZeroData { file_offset, beyond_final_zero }.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn ranges(reply: &Reply) -> Vec<(i64, i64)> {
    let bytes = output(reply);
    let parse = |bytes: &[u8]| AllocatedRange::parse(bytes).unwrap();
    bytes.chunks(16).map(|r| (parse(r).file_offset, parse(r).length)).collect()
}

async fn attributes(peer: &mut Peer, mount: &Mount, file: FileId) -> FileAttributes {
    let reply = peer.on(mount, query_draft(FileInfoClass::BASIC, file)).await;
    let output = query_info::Response::parse(&reply.ok().message).unwrap().output;
    FileBasicInformation::parse(output).unwrap().attributes
}

async fn is_sparse(peer: &mut Peer, mount: &Mount, file: FileId) -> bool {
    attributes(peer, mount, file).await.contains(FileAttributes::SPARSE_FILE)
}

#[test]
fn what_is_hidden_by_its_name_is_seen_by_another() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let part = peer.open_file(&mount, &Want::file(".part")).await;
        assert!(attributes(&mut peer, &mount, part).await.contains(FileAttributes::HIDDEN));
        ask(&mut peer, &mount, SPARSE, part, &[], 0).await.ok();
        let rename = rename_draft(FileInfoClass::RENAME, part, "whole", false);
        peer.on(&mount, rename).await.ok();
        peer.close(&mount, part).await;
        let whole = peer.open_file(&mount, &Want::file("whole")).await;
        let seen = attributes(&mut peer, &mount, whole).await;
        assert!(seen.contains(FileAttributes::SPARSE_FILE));
        assert!(!seen.contains(FileAttributes::HIDDEN), "{seen:?}");
    });
}

#[test]
fn holes_are_seen_where_they_are() {
    in_world(async |world| {
        const PIECE: usize = 1 << 20;
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, &vec![1; 4 * PIECE]).await;
        let all = range(0, 1 << 40);
        let piece = PIECE as i64;
        let reply = ask(&mut peer, &mount, QUERY, file, &all, 4096).await;
        assert_eq!(ranges(reply.ok()), [(0, 4 * piece)]);
        ask(&mut peer, &mount, SPARSE, file, &[], 0).await.ok();
        assert!(is_sparse(&mut peer, &mount, file).await);
        for hole in [1, 3] {
            let hole = zeros(hole * piece, (hole + 1) * piece);
            ask(&mut peer, &mount, ZERO, file, &hole, 0).await.ok();
        }
        let reply = ask(&mut peer, &mount, QUERY, file, &all, 4096).await;
        assert_eq!(ranges(reply.ok()), [(0, piece), (2 * piece, piece)]);
        let part = range(10, 2 * piece);
        let reply = ask(&mut peer, &mount, QUERY, file, &part, 4096).await;
        assert_eq!(ranges(reply.ok()), [(10, piece - 10), (2 * piece, 10)]);
        // Only one range fits into the buffer, so the reply has this one and BUFFER_OVERFLOW. A
        // buffer that holds no range fails.
        let reply = ask(&mut peer, &mount, QUERY, file, &all, 31).await;
        assert_eq!(ranges(reply.expect(Status::BUFFER_OVERFLOW)), [(0, piece)]);
        ask(&mut peer, &mount, QUERY, file, &all, 15).await.expect(Status::BUFFER_TOO_SMALL);
        let empty = range(3 * piece, piece);
        assert!(ranges(ask(&mut peer, &mount, QUERY, file, &empty, 0).await.ok()).is_empty());
        let content = world.content("f");
        assert_eq!(content.len(), 4 * PIECE);
        assert!(content[PIECE..2 * PIECE].iter().all(|b| *b == 0));
        assert!(content[..PIECE].iter().chain(&content[2 * PIECE..3 * PIECE]).all(|b| *b == 1));
    });
}

#[test]
fn zeroing_never_moves_the_end() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, &[1; 10_000]).await;
        for (first, beyond) in [(9_000, i64::MAX), (20_000, 30_000), (5, 5), (1, 2)] {
            ask(&mut peer, &mount, ZERO, file, &zeros(first, beyond), 0).await.ok();
        }
        let mut expected = vec![1; 10_000];
        expected[9_000..].fill(0);
        expected[1] = 0;
        assert_eq!(world.content("f"), expected);
    });
}

/// P13: every number that makes no sense.
#[test]
fn p13_ranges_that_make_no_sense_are_invalid() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"content").await;
        let invalid = Status::INVALID_PARAMETER;
        for (first, length) in
            [(-1, 1), (0, -1), (i64::MIN, 1), (i64::MAX, 1), (1, i64::MAX), (-1, -1)]
        {
            ask(&mut peer, &mount, QUERY, file, &range(first, length), 4096).await.expect(invalid);
        }
        ask(&mut peer, &mount, QUERY, file, &range(0, i64::MAX), 4096).await.ok();
        for (first, beyond) in [(-1, 1), (0, -1), (i64::MIN, 0), (2, 1), (i64::MAX, i64::MIN)] {
            ask(&mut peer, &mount, ZERO, file, &zeros(first, beyond), 0).await.expect(invalid);
        }
        for cut in 0..16 {
            let (query, zero) = (range(0, 1), zeros(0, 1));
            ask(&mut peer, &mount, QUERY, file, &query[..cut], 4096).await.expect(invalid);
            ask(&mut peer, &mount, ZERO, file, &zero[..cut], 4096).await.expect(invalid);
        }
        assert_eq!(world.content("f"), b"content");
    });
}

#[test]
fn sparse_is_said_with_a_byte_or_without() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let created = Want { attributes: FileAttributes::SPARSE_FILE, ..Want::file("f") };
        let file = peer.open_file(&mount, &created).await;
        assert!(!is_sparse(&mut peer, &mount, file).await, "CREATE does not make it so");
        for (input, expected) in
            [(&[][..], true), (&[0], false), (&[7, 0, 0], true), (&[0, 1], false)]
        {
            ask(&mut peer, &mount, SPARSE, file, input, 0).await.ok();
            assert_eq!(is_sparse(&mut peer, &mount, file).await, expected);
        }
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        for (code, input) in [(SPARSE, Vec::new()), (ZERO, zeros(0, 1)), (QUERY, range(0, 1))] {
            ask(&mut peer, &mount, code, directory, &input, 4096)
                .await
                .expect(Status::INVALID_PARAMETER);
        }
    });
}

#[test]
fn locks_of_others_stop_zeroing() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"content").await;
        let other = peer.open_file(&mount, &Want::file("f")).await;
        peer.on(&mount, lock_draft(other, &[(3, 1, EXCLUSIVE)])).await.ok();
        let conflict = Status::FILE_LOCK_CONFLICT;
        ask(&mut peer, &mount, ZERO, file, &zeros(0, 100), 0).await.expect(conflict);
        assert_eq!(world.content("f"), b"content");
        ask(&mut peer, &mount, ZERO, file, &zeros(0, 3), 0).await.ok();
        assert_eq!(world.content("f"), b"\0\0\0tent");
    });
}

#[test]
fn an_open_that_may_only_look_changes_nothing() {
    in_world(async |world| {
        world.file("f", "content");
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let looks = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES;
        let file = peer.open_file(&mount, &Want::existing("f").access(looks)).await;
        for (code, input) in [(SPARSE, Vec::new()), (ZERO, zeros(0, 100))] {
            ask(&mut peer, &mount, code, file, &input, 0).await.expect(Status::ACCESS_DENIED);
        }
        assert!(!is_sparse(&mut peer, &mount, file).await);
        assert_eq!(world.content("f"), b"content");
        let blind = AccessMask::WRITE_DATA;
        let file = peer.open_file(&mount, &Want::existing("f").access(blind)).await;
        ask(&mut peer, &mount, QUERY, file, &range(0, 1), 16).await.expect(Status::ACCESS_DENIED);
    });
}
