//! Server-side copy: FSCTL_SRV_REQUEST_RESUME_KEY, FSCTL_SRV_COPYCHUNK.

use std::time::Duration;

use frevo_server::Reload;
use frevo_server::internal::limits::{COPY_BYTES, COPY_CHUNK_BYTES, COPY_CHUNKS};
use frevo_server::rate_rules::RateRule;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{
    Chunk, CopyRequest, CopyResponse, ResumeKey, ResumeKeyResponse,
};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::fsctl::{DuplicateExtents, OffloadWriteReply};
use tokio::time::Instant;

use super::calls::*;
use super::leases::offload;
use crate::client::files::lock_draft;
use crate::client::world::{EXCLUSIVE, in_memory};
use crate::client::*;

const LIMITS: CopyResponse = CopyResponse {
    chunks_written: COPY_CHUNKS,
    chunk_bytes_written: COPY_CHUNK_BYTES,
    total_bytes_written: COPY_BYTES,
};

const NOTHING: CopyResponse =
    CopyResponse { chunks_written: 0, chunk_bytes_written: 0, total_bytes_written: 0 };

pub(super) fn chunk(source_offset: u64, target_offset: u64, length: u32) -> Chunk {
    Chunk { source_offset, target_offset, length }
}

fn input(source_key: ResumeKey, chunks: &[Chunk]) -> Vec<u8> {
    let mut bytes = Vec::new();
    CopyRequest { source_key, chunks: chunks.to_vec() }.encode(&mut Writer::new(&mut bytes));
    bytes
}

pub(super) async fn key(peer: &mut Peer, mount: &Mount, file: FileId) -> ResumeKey {
    let reply = ask(peer, mount, CtlCode::SRV_REQUEST_RESUME_KEY, file, &[], 32).await;
    let bytes = output(reply.ok());
    assert_eq!(bytes.len(), 32);
    ResumeKeyResponse::parse(&bytes).unwrap().resume_key
}

/// Source with 1 MiB of a pattern, and an empty target.
async fn files(world: &World, peer: &mut Peer, mount: &Mount) -> (FileId, FileId) {
    world.file("source", pattern());
    let source = peer.open_file(mount, &Want::existing("source")).await;
    let target = peer.open_file(mount, &Want::file("target")).await;
    (source, target)
}

fn pattern() -> Vec<u8> {
    (0..1_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub(super) async fn copy(
    peer: &mut Peer,
    mount: &Mount,
    target: FileId,
    key: ResumeKey,
    chunks: &[Chunk],
) -> (Status, Option<CopyResponse>) {
    let input = input(key, chunks);
    let reply = ask(peer, mount, CtlCode::SRV_COPYCHUNK, target, &input, 12).await;
    let told = frevo_wire::command::ioctl::Response::parse(&reply.message);
    (reply.status(), told.ok().and_then(|told| CopyResponse::parse(told.output).ok()))
}

fn done(chunks_written: u32, total_bytes_written: u32) -> (Status, Option<CopyResponse>) {
    let response = CopyResponse { chunks_written, chunk_bytes_written: 0, total_bytes_written };
    (Status::SUCCESS, Some(response))
}

#[test]
fn chunks_arrive_where_they_should() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let chunks = [chunk(0, 5000, 4096), chunk(100_000, 0, 5000), chunk(7, u64::MAX, 3)];
        assert_eq!(copy(&mut peer, &mount, target, key, &chunks).await, done(3, 9099));
        let all = pattern();
        let expected = [&all[100_000..105_000], &all[..4096], &all[7..10]].concat();
        assert_eq!(world.content("target"), expected);
        assert_eq!(copy(&mut peer, &mount, target, key, &[]).await, done(0, 0));
    });
}

#[test]
fn overlapping_ranges_of_one_file_come_out_as_of_two() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, _) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let chunks = [chunk(0, 1000, 100_000), chunk(300_000, 250_000, 100_000)];
        assert_eq!(copy(&mut peer, &mount, source, key, &chunks).await, done(2, 200_000));
        let mut expected = pattern();
        expected.copy_within(0..100_000, 1000);
        expected.copy_within(300_000..400_000, 250_000);
        assert!(world.content("source") == expected);
    });
}

#[test]
fn shares_of_one_session_may_be_copied_between() {
    in_world(async |world| {
        let (mut peer, data) = world.session("bob", &Offer::default()).await;
        world.file("source", pattern());
        let readonly = peer.mount(&data.logon, "readonly").await;
        let rights = AccessMask::READ_DATA;
        let source = peer.open_file(&readonly, &Want::existing("source").access(rights)).await;
        let key = key(&mut peer, &readonly, source).await;
        let target = peer.open_file(&data, &Want::file("target")).await;
        let chunks = [chunk(0, 0, 10_000)];
        assert_eq!(copy(&mut peer, &data, target, key, &chunks).await, done(1, 10_000));
        // The target is in a share that is read-only, so the copy is refused.
        let own = copy(&mut peer, &readonly, source, key, &chunks).await;
        assert_eq!(own.0, Status::ACCESS_DENIED);
    });
}

#[test]
fn limits_are_told_to_those_who_exceed_them() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let limits = (Status::INVALID_PARAMETER, Some(LIMITS));
        // Three limits are tested (number of chunks, bytes of a chunk, bytes of all chunks): n - 1
        // and n are accepted, n + 1 is refused.
        let many = |n: u32| vec![chunk(0, 0, 1); n as usize];
        for n in [COPY_CHUNKS - 1, COPY_CHUNKS] {
            assert_eq!(copy(&mut peer, &mount, target, key, &many(n)).await, done(n, n));
        }
        assert_eq!(copy(&mut peer, &mount, target, key, &many(COPY_CHUNKS + 1)).await, limits);
        for n in [COPY_CHUNK_BYTES - 1, COPY_CHUNK_BYTES] {
            let one = [chunk(0, 0, n)];
            assert_eq!(copy(&mut peer, &mount, target, key, &one).await, done(1, n));
        }
        let wide = [chunk(0, 0, COPY_CHUNK_BYTES + 1)];
        assert_eq!(copy(&mut peer, &mount, target, key, &wide).await, limits);
        let mut full = vec![chunk(0, 0, COPY_CHUNK_BYTES); 16];
        assert_eq!(copy(&mut peer, &mount, target, key, &full).await, done(16, COPY_BYTES));
        full.push(chunk(0, 0, 1));
        assert_eq!(copy(&mut peer, &mount, target, key, &full).await, limits);
        for bad in
            [chunk(0, 0, 0), chunk(0, 0, u32::MAX), chunk(0, 1 << 63, 1), chunk(0, u64::MAX - 1, 1)]
        {
            assert_eq!(copy(&mut peer, &mount, target, key, &[bad]).await, limits);
        }
        assert_eq!(world.content("target").len(), 1 << 20, "nothing of that was copied");
    });
}

#[test]
fn p13_counts_that_lie_are_answered_with_limits() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let code = CtlCode::SRV_COPYCHUNK;
        let whole = input(key, &[chunk(0, 0, 10), chunk(0, 10, 10)]);
        for count in [3_u32, 4, 0x8000_0000, u32::MAX] {
            let mut lie = whole.clone();
            lie[24..28].copy_from_slice(&count.to_le_bytes());
            let reply = ask(&mut peer, &mount, code, target, &lie, 12).await;
            let told = output(reply.expect(Status::INVALID_PARAMETER));
            assert_eq!(CopyResponse::parse(&told).unwrap(), LIMITS);
        }
        for cut in 0..whole.len() {
            let reply = ask(&mut peer, &mount, code, target, &whole[..cut], 12).await;
            reply.expect(Status::INVALID_PARAMETER);
        }
        for room in 0..12 {
            let reply = ask(&mut peer, &mount, code, target, &whole, room).await;
            reply.expect(Status::INVALID_PARAMETER);
        }
        for room in 0..32 {
            let code = CtlCode::SRV_REQUEST_RESUME_KEY;
            let reply = ask(&mut peer, &mount, code, source, &[], room).await;
            reply.expect(Status::INVALID_PARAMETER);
        }
        assert!(world.content("target").is_empty());
    });
}

#[test]
fn a_key_opens_nothing_but_its_own_file_in_its_own_session() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let good = key(&mut peer, &mount, source).await;
        let absent = Status::OBJECT_NAME_NOT_FOUND;
        let chunks = [chunk(0, 0, 1)];
        for bit in 0..good.len() {
            let mut bad = good;
            bad[bit] ^= 1;
            assert_eq!(copy(&mut peer, &mount, target, bad, &chunks).await.0, absent);
        }
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let his = bob.open_file(&bobs, &Want::file("his")).await;
        assert_eq!(copy(&mut bob, &bobs, his, good, &chunks).await.0, absent);
        peer.close(&mount, source).await;
        assert_eq!(copy(&mut peer, &mount, target, good, &chunks).await.0, absent);
        assert!(world.content("his").is_empty() && world.content("target").is_empty());
    });
}

/// X3: what was granted counts.
#[test]
fn x3_copying_needs_the_rights_of_reading_and_writing() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, _) = files(world, &mut peer, &mount).await;
        let good = key(&mut peer, &mount, source).await;
        let input = input(good, &[chunk(0, 0, 10)]);
        let try_as = async |peer: &mut Peer, code, rights| {
            let target = peer.open_file(&mount, &Want::file("target").access(rights)).await;
            let status = ask(peer, &mount, code, target, &input, 12).await.status();
            peer.close(&mount, target).await;
            status
        };
        let (read, write) = (AccessMask::READ_DATA, AccessMask::WRITE_DATA);
        let (append, look) = (AccessMask::APPEND_DATA, AccessMask::READ_ATTRIBUTES);
        let denied = Status::ACCESS_DENIED;
        let (plain, blind) = (CtlCode::SRV_COPYCHUNK, CtlCode::SRV_COPYCHUNK_WRITE);
        assert_eq!(try_as(&mut peer, plain, look).await, denied);
        assert_eq!(try_as(&mut peer, plain, read).await, denied);
        assert_eq!(try_as(&mut peer, plain, write).await, denied, "it must read its target too");
        assert_eq!(try_as(&mut peer, blind, read).await, denied);
        assert!(world.content("target").is_empty());
        assert_eq!(try_as(&mut peer, blind, append).await, Status::SUCCESS, "at the end");
        assert_eq!(try_as(&mut peer, blind, append).await, denied, "over what is there");
        assert_eq!(try_as(&mut peer, blind, write).await, Status::SUCCESS);
        assert_eq!(try_as(&mut peer, plain, read | write).await, Status::SUCCESS);
        let blind_source = Want::existing("source").access(look);
        let blind_source = peer.open_file(&mount, &blind_source).await;
        let key = key(&mut peer, &mount, blind_source).await;
        let target = peer.open_file(&mount, &Want::file("target")).await;
        let answer = copy(&mut peer, &mount, target, key, &[chunk(0, 0, 10)]).await;
        assert_eq!(answer.0, denied);
    });
}

#[test]
fn locks_of_others_stop_a_copy_before_it_begins() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let chunks = [chunk(0, 0, 1000), chunk(5000, 5000, 1000)];
        for name in ["source", "target"] {
            let other = peer.open_file(&mount, &Want::existing(name)).await;
            let lock = lock_draft(other, &[(5999, 1, EXCLUSIVE)]);
            peer.on(&mount, lock).await.ok();
            let answer = copy(&mut peer, &mount, target, key, &chunks).await;
            assert_eq!(answer, (Status::FILE_LOCK_CONFLICT, Some(NOTHING)));
            assert!(world.content("target").is_empty());
            peer.close(&mount, other).await;
        }
        assert_eq!(copy(&mut peer, &mount, target, key, &chunks).await, done(2, 2000));
    });
}

#[test]
fn what_the_source_does_not_have_is_not_copied() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let end = 1 << 20;
        for beyond in [end, end - 9, u64::MAX, 1 << 63, i64::MAX as u64] {
            let chunks = [chunk(0, 0, 100), chunk(beyond, 100, 10)];
            let answer = copy(&mut peer, &mount, target, key, &chunks).await;
            let told = CopyResponse {
                chunks_written: 1,
                chunk_bytes_written: 0,
                total_bytes_written: 100,
            };
            assert_eq!(answer, (Status::INVALID_VIEW_SIZE, Some(told)), "{beyond}");
        }
        assert_eq!(world.content("target"), pattern()[..100]);
        let exact = [chunk(end - 10, 0, 10)];
        assert_eq!(copy(&mut peer, &mount, target, key, &exact).await, done(1, 10));
    });
}

#[test]
fn directories_and_pipes_are_not_copied() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let chunks = [chunk(0, 0, 10)];
        let of_directory = key(&mut peer, &mount, directory).await;
        let of_source = key(&mut peer, &mount, source).await;
        let refused = Status::INVALID_DEVICE_REQUEST;
        assert_eq!(copy(&mut peer, &mount, target, of_directory, &chunks).await.0, refused);
        assert_eq!(copy(&mut peer, &mount, directory, of_source, &chunks).await.0, refused);
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        let mut of_pipe = [0; 24];
        of_pipe[..8].copy_from_slice(&pipe.persistent.to_le_bytes());
        of_pipe[8..16].copy_from_slice(&pipe.volatile.to_le_bytes());
        let answer = copy(&mut peer, &mount, target, of_pipe, &chunks).await;
        assert_eq!(answer, (Status::INVALID_PARAMETER, Some(LIMITS)));
        let answer = copy(&mut peer, &ipc, pipe, of_source, &chunks).await;
        assert_eq!(answer, (Status::INVALID_PARAMETER, Some(LIMITS)));
    });
}

/// MS-SMB2 3.3.5.15.6.1: what came before the chunk that failed is there and told of.
#[test]
fn a_copy_that_fails_says_how_far_it_came() {
    in_world(async |world| {
        const MOST: u64 = 1 << 20;
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        let logon = peer.log_on("ann").await;
        // In the share "late" a file can have at most 1 MiB, so some chunks can be copied and the
        // next one fails.
        let mount = peer.mount(&logon, "late").await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let partly = |status, chunks_written, total_bytes_written| {
            let chunk_bytes_written = 0;
            let told = CopyResponse { chunks_written, chunk_bytes_written, total_bytes_written };
            (status, Some(told))
        };
        for beyond in [MOST - 1, MOST, u64::MAX >> 1] {
            let chunks = [chunk(0, 0, 10), chunk(10, 10, 20), chunk(0, beyond, 2), chunk(0, 0, 1)];
            let answer = copy(&mut peer, &mount, target, key, &chunks).await;
            assert_eq!(answer, partly(Status::INVALID_PARAMETER, 2, 30), "{beyond:#x}");
        }
        let end = pattern().len() as u64;
        let chunks = [chunk(0, 0, 10), chunk(end - 1, 10, 2), chunk(0, 0, 1)];
        let answer = copy(&mut peer, &mount, target, key, &chunks).await;
        assert_eq!(answer, partly(Status::INVALID_VIEW_SIZE, 1, 10));
        assert!(world.content("target") == pattern()[..30]);
        // An offset of 2^63 is negative, so the whole request is refused before its first chunk is
        // copied.
        let chunks = [chunk(0, 0, 10), chunk(0, 1 << 63, 1)];
        let answer = copy(&mut peer, &mount, target, key, &chunks).await;
        assert_eq!(answer, (Status::INVALID_PARAMETER, Some(LIMITS)));
    });
}

/// Chunks that go to the end go one behind the other, and locks are looked at where
/// they will come to lie.
#[test]
fn what_is_appended_comes_one_behind_the_other() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let chunks = [chunk(0, u64::MAX, 100), chunk(100, u64::MAX, 100)];
        let other = peer.open_file(&mount, &Want::existing("target")).await;
        let lock = |first| lock_draft(other, &[(first, 1, EXCLUSIVE)]);
        peer.on(&mount, lock(150)).await.ok();
        let answer = copy(&mut peer, &mount, target, key, &chunks).await;
        assert_eq!(answer, (Status::FILE_LOCK_CONFLICT, Some(NOTHING)));
        peer.close(&mount, other).await;
        assert_eq!(copy(&mut peer, &mount, target, key, &chunks).await, done(2, 200));
        assert!(world.content("target") == pattern()[..200]);
    });
}

/// A copy on the server passes the limits of its share like the READs and WRITEs that it stands for.
#[test]
fn copies_keep_limits_of_rate() {
    let rates = vec![RateRule {
        write: Some(1 << 20),
        burst: Duration::from_millis(10),
        ..RateRule::new("writes")
    }];
    in_frozen_world(Settings { rates, ..settings() }, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = files(world, &mut peer, &mount).await;
        let key = key(&mut peer, &mount, source).await;
        let began = Instant::now();
        for _ in 0..10 {
            let copied = copy(&mut peer, &mount, target, key, &[chunk(0, 0, 1 << 20)]).await;
            assert_eq!(copied, done(1, 1 << 20));
        }
        // The first one passes at once.
        let took = began.elapsed().as_secs_f64();
        assert!((took - 9.0).abs() <= 9.0 * 0.03, "{took}");
        // A copy that moves nothing, or little, pays for no more, also if its answer tells how far it came.
        let began = Instant::now();
        for _ in 0..20 {
            let beyond = chunk(1 << 20, 0, 1 << 20);
            let (status, _) = copy(&mut peer, &mount, target, key, &[beyond]).await;
            assert_ne!(status, Status::SUCCESS);
            let chunks = [chunk(0, 0, 1_000), beyond];
            let (status, _) = copy(&mut peer, &mount, target, key, &chunks).await;
            assert_ne!(status, Status::SUCCESS);
        }
        let took = began.elapsed().as_secs_f64();
        // One of them is asked for while the other is still paid for.
        assert!(took < 2.0, "{took}");
    });
}

/// A limit of a share that is passed at once by a mebibyte, and then not for sixteen seconds.
fn slow(share: &str, is_for_reads: bool) -> RateRule {
    let limit = |is_meant: bool| is_meant.then_some(64 << 10);
    RateRule {
        shares: vec![share.to_owned()],
        read: limit(is_for_reads),
        write: limit(!is_for_reads),
        burst: Duration::from_millis(10),
        ..RateRule::new(share)
    }
}

/// A copy between two shares counts as read in the one, and as written in the other.
#[test]
fn copies_keep_the_limits_of_both_shares() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        world.file("source", pattern());
        let readonly = peer.mount(&data.logon, "readonly").await;
        let rights = AccessMask::READ_DATA;
        let source = peer.open_file(&readonly, &Want::existing("source").access(rights)).await;
        let key = key(&mut peer, &readonly, source).await;
        let target = peer.open_file(&data, &Want::file("target")).await;
        for (share, is_for_reads, seconds) in
            [("readonly", true, 32.0), ("data", false, 32.0), ("data", true, 0.0)]
        {
            let rates = vec![slow(share, is_for_reads)];
            world.embedded.reload(Reload::new().settings(Settings { rates, ..settings() }));
            let began = Instant::now();
            for _ in 0..3 {
                let copied = copy(&mut peer, &data, target, key, &[chunk(0, 0, 1 << 20)]).await;
                assert_eq!(copied, done(1, 1 << 20));
            }
            let took = began.elapsed().as_secs_f64();
            assert!((took - seconds).abs() <= 1.0, "{share} {is_for_reads}: {took}");
        }
    });
}

/// An offloaded copy between two shares waits for the limits of both.
#[test]
fn offloaded_copies_keep_the_limits_of_both_shares() {
    in_world(async |world| {
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        world.file("source", pattern());
        world.file("target", vec![0; 1 << 20]);
        let readonly = peer.mount(&data.logon, "readonly").await;
        let rights = AccessMask::READ_DATA;
        let source = peer.open_file(&readonly, &Want::existing("source").access(rights)).await;
        let target = peer.open_file(&data, &Want::existing("target")).await;
        let write = offload(&mut peer, &readonly, source, 1 << 20).await;
        let room = OffloadWriteReply::SIZE as u32;
        for (share, is_for_reads) in [("readonly", true), ("data", false)] {
            let rates = vec![slow(share, is_for_reads)];
            world.embedded.reload(Reload::new().settings(Settings { rates, ..settings() }));
            let copied = ask(&mut peer, &data, CtlCode::OFFLOAD_WRITE, target, &write, room).await;
            copied.ok();
            let draft = ioctl_draft(CtlCode::OFFLOAD_WRITE, target, &write, room);
            let id = peer.send(vec![data.put(draft)], data.via()).await[0];
            peer.interim().await;
            let [rate] = &world.embedded.rate_status()[..] else { panic!("one limit") };
            assert_eq!((&*rate.name, rate.waiting), (share, 1));
            world.embedded.reload(Reload::new().settings(settings()));
            peer.final_reply(id).await.ok();
        }
    });
}

/// Shared extents move no data: a request for them is one operation.
#[test]
fn shared_extents_count_as_an_operation() {
    in_memory(async |world| {
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let source = peer.open_file(&data, &Want::file("source")).await;
        let target = peer.open_file(&data, &Want::file("target")).await;
        for file in [source, target] {
            peer.write(&data, file, 0, &pattern()).await;
        }
        let (source_file_offset, target_file_offset, byte_count) = (0, 0, 1 << 20);
        let shared = DuplicateExtents {
            source_file_id: source,
            source_file_offset,
            target_file_offset,
            byte_count,
        };
        let mut input = Vec::new();
        shared.encode(&mut Writer::new(&mut input));
        let code = CtlCode::DUPLICATE_EXTENTS_TO_FILE;
        let rates = vec![slow("data", false)];
        world.embedded.reload(Reload::new().settings(Settings { rates, ..settings() }));
        for _ in 0..3 {
            ask(&mut peer, &data, code, target, &input, 0).await.ok();
        }
        let held = world.embedded.rate_status()[0].held;
        let operations = RateRule { operations: Some(1), ..slow("data", true) };
        let rates = vec![operations];
        world.embedded.reload(Reload::new().settings(Settings { rates, ..settings() }));
        for _ in 0..3 {
            ask(&mut peer, &data, code, target, &input, 0).await.ok();
        }
        assert!(held == 0 && world.embedded.rate_status()[0].held > 0);
    });
}
