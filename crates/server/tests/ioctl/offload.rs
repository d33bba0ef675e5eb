//! Offloaded copies: FSCTL_OFFLOAD_READ and FSCTL_OFFLOAD_WRITE.

use std::sync::Arc;
use std::time::Duration;

use frevo_server::ambient::{Ambient as _, Host};
use frevo_server::internal::limits::{OFFLOAD_BYTES, OFFLOAD_TOKENS_PER_SESSION};
use frevo_store::Vfs;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::{
    OffloadReadReply, OffloadReadRequest, OffloadToken, OffloadWriteReply, OffloadWriteRequest,
};

use super::calls::*;
use crate::client::files::{lock_draft, set_draft};
use crate::client::world::{EXCLUSIVE, in_memory, over};
use crate::client::*;

const READ: CtlCode = CtlCode::OFFLOAD_READ;
const WRITE: CtlCode = CtlCode::OFFLOAD_WRITE;
const INVALID: Status = Status::INVALID_PARAMETER;

fn reads(file_offset: u64, copy_length: u64) -> OffloadReadRequest {
    let size = OffloadReadRequest::SIZE as u32;
    OffloadReadRequest { size, flags: 0, token_time_to_live_ms: 0, file_offset, copy_length }
}

fn writes(
    token: OffloadToken,
    file_offset: u64,
    copy_length: u64,
    transfer_offset: u64,
) -> OffloadWriteRequest {
    let size = OffloadWriteRequest::SIZE as u32;
    OffloadWriteRequest { size, flags: 0, file_offset, copy_length, transfer_offset, token }
}

async fn read(peer: &mut Peer, mount: &Mount, file: FileId, request: &OffloadReadRequest) -> Reply {
    let mut input = Vec::new();
    request.encode(&mut Writer::new(&mut input));
    ask(peer, mount, READ, file, &input, OffloadReadReply::SIZE as u32).await
}

async fn token(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    at: u64,
    len: u64,
) -> OffloadReadReply {
    let reply = read(peer, mount, file, &reads(at, len)).await;
    OffloadReadReply::parse(&output(reply.ok())).unwrap()
}

async fn write(
    peer: &mut Peer,
    mount: &Mount,
    file: FileId,
    request: &OffloadWriteRequest,
) -> Reply {
    let mut input = Vec::new();
    request.encode(&mut Writer::new(&mut input));
    ask(peer, mount, WRITE, file, &input, OffloadWriteReply::SIZE as u32).await
}

fn written(reply: &Reply) -> u64 {
    OffloadWriteReply::parse(&output(reply.ok())).unwrap().length_written
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 % 250) as u8 + 1).collect()
}

async fn pair(peer: &mut Peer, mount: &Mount) -> (FileId, FileId) {
    let source = peer.open_file(mount, &Want::file("source")).await;
    peer.write(mount, source, 0, &pattern(10_000)).await;
    let target = peer.open_file(mount, &Want::file("target")).await;
    peer.write(mount, target, 0, &[255; 20_480]).await;
    (source, target)
}

async fn copies(world: &World) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let (source, target) = pair(&mut peer, &mount).await;
    let all = token(&mut peer, &mount, source, 0, 1 << 30).await;
    // The file has 10,000 bytes, but the token covers whole sectors, so its length is 10,240. The
    // last sector is filled with zeros.
    assert_eq!((all.transfer_length, all.flags), (10_240, 1));
    let part = token(&mut peer, &mount, source, 512, 1024).await;
    assert_eq!((part.transfer_length, part.flags), (1024, 0));
    assert_ne!(all.token, part.token);
    // The source's handle is closed, but the token stays valid.
    peer.close(&mount, source).await;
    let reply = write(&mut peer, &mount, target, &writes(all.token, 512, 1 << 20, 0)).await;
    assert_eq!(written(&reply), 10_240);
    let mut expected = vec![255; 20_480];
    expected[512..10_512].copy_from_slice(&pattern(10_000));
    expected[10_512..10_752].fill(0);
    assert_eq!(peer.read(&mount, target, 0, 30_000).await, expected);
    let reply = write(&mut peer, &mount, target, &writes(part.token, 0, 4096, 512)).await;
    assert_eq!(written(&reply), 512);
    expected[..512].copy_from_slice(&pattern(10_000)[1024..1536]);
    assert_eq!(peer.read(&mount, target, 0, 30_000).await, expected);
    // The well-known token for zeros works without a source file.
    let mut bytes = [0; 512];
    bytes[..4].copy_from_slice(&OffloadToken::TYPE_ZERO_DATA.to_be_bytes());
    let zeros = OffloadToken { bytes };
    let reply = write(&mut peer, &mount, target, &writes(zeros, 19_968, 1 << 20, 0)).await;
    assert_eq!(written(&reply), 512);
    expected[19_968..].fill(0);
    assert_eq!(peer.read(&mount, target, 0, 30_000).await, expected);
}

#[test]
fn what_a_token_stands_for_is_copied() {
    in_world(copies);
    in_memory(copies);
}

/// MS-FSCC 2.3.44: a copy that a full disk ends succeeds with the length that was written; where
/// nothing was, it fails.
#[test]
fn a_full_disk_ends_a_copy_with_its_length() {
    const MIB: u64 = 1 << 20;
    let clock = Arc::new(|| Host.now());
    let disk = Arc::new(MemoryVfs::new(MemoryOptions::default(), clock));
    let vfs: Arc<dyn Vfs> = Arc::<MemoryVfs>::clone(&disk);
    over(&vfs, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let source = peer.open_file(&mount, &Want::file("source")).await;
        for at in 0..48 {
            peer.write(&mount, source, at << 16, &[at as u8 + 1; 1 << 16]).await;
        }
        let made = token(&mut peer, &mount, source, 0, 3 * MIB).await;
        assert_eq!(made.transfer_length, 3 * MIB);
        let target = peer.open_file(&mount, &Want::file("target")).await;
        let end = (3 * MIB).to_le_bytes();
        peer.on(&mount, set_draft(FileInfoClass::END_OF_FILE, target, &end)).await.ok();
        disk.faults().set_capacity(4 * MIB + MIB / 2);
        let reply = write(&mut peer, &mount, target, &writes(made.token, 0, 3 * MIB, 0)).await;
        assert_eq!(written(&reply), MIB);
        let copied = peer.read(&mount, target, MIB - 1, 1).await;
        assert_eq!(copied, [16]);
        let rest = writes(made.token, 2 * MIB, MIB, 2 * MIB);
        write(&mut peer, &mount, target, &rest).await.expect(Status::DISK_FULL);
        disk.faults().set_capacity(u64::MAX);
        let rest = writes(made.token, MIB, 2 * MIB, MIB);
        assert_eq!(written(&write(&mut peer, &mount, target, &rest).await), 2 * MIB);
        assert_eq!(peer.read(&mount, target, 3 * MIB - 1, 1).await, [48]);
    });
}

#[test]
fn a_token_is_good_for_what_it_was_made_of() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let made = token(&mut peer, &mount, source, 0, 4096).await.token;
        let bad = Status::INVALID_TOKEN;
        let mut other = made;
        other.bytes[511] ^= 1;
        write(&mut peer, &mount, target, &writes(other, 0, 512, 0)).await.expect(bad);
        // The token belongs to one session, so even another session of the same user cannot use it.
        let (mut second, theirs) = world.session("ann", &Offer::default()).await;
        let file = second.open_file(&theirs, &Want::file("target")).await;
        write(&mut second, &theirs, file, &writes(made, 0, 512, 0)).await.expect(bad);
        write(&mut peer, &mount, target, &writes(made, 0, 512, 0)).await.ok();
        // The source was written to, so the token is no longer valid.
        peer.write(&mount, source, 9_000, b"x").await;
        write(&mut peer, &mount, target, &writes(made, 512, 512, 0)).await.expect(bad);
        // The token has a time to live of 50 ms, after which it is no longer valid.
        let request = OffloadReadRequest { token_time_to_live_ms: 50, ..reads(0, 512) };
        let short = read(&mut peer, &mount, source, &request).await;
        let short = OffloadReadReply::parse(&output(short.ok())).unwrap().token;
        write(&mut peer, &mount, target, &writes(short, 512, 512, 0)).await.ok();
        tokio::time::sleep(Duration::from_millis(60)).await;
        write(&mut peer, &mount, target, &writes(short, 512, 512, 0)).await.expect(bad);
        // A session has a limited number of tokens, so one more makes the oldest one invalid.
        let first = token(&mut peer, &mount, source, 0, 512).await.token;
        let mut last = first;
        for _ in 0..OFFLOAD_TOKENS_PER_SESSION {
            last = token(&mut peer, &mount, source, 0, 512).await.token;
        }
        write(&mut peer, &mount, target, &writes(first, 0, 512, 0)).await.expect(bad);
        write(&mut peer, &mount, target, &writes(last, 0, 512, 0)).await.ok();
        // A token of another tree connect can be used, but becomes invalid when that tree connect
        // ends.
        let again = peer.mount(&mount.logon, "data").await;
        let same = peer.open_file(&again, &Want::existing("source")).await;
        let by = token(&mut peer, &again, same, 0, 512).await.token;
        write(&mut peer, &mount, target, &writes(by, 0, 512, 0)).await.ok();
        peer.on(
            &again,
            Draft::new(Command::TREE_DISCONNECT).with(|w| {
                frevo_wire::command::tree_disconnect::Request.encode(w);
            }),
        )
        .await
        .ok();
        write(&mut peer, &mount, target, &writes(by, 0, 512, 0)).await.expect(bad);
    });
}

/// MS-FSA 2.1.5.10.20 and 2.1.5.10.21, MS-FSCC 2.3.42 and 2.3.44.
#[test]
fn numbers_and_files_that_make_no_sense() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let made = token(&mut peer, &mount, source, 0, 4096).await.token;
        for (at, length, status) in [
            (1, 512, INVALID),
            (0, 511, INVALID),
            (u64::MAX - 511, 1024, INVALID),
            (1 << 63, 512, INVALID),
            (10_240, 512, Status::END_OF_FILE),
        ] {
            read(&mut peer, &mount, source, &reads(at, length)).await.expect(status);
        }
        for (at, length, from, status) in [
            (1, 512, 0, INVALID),
            (0, 511, 0, INVALID),
            (0, 512, 1, INVALID),
            (u64::MAX - 511, 1024, 0, INVALID),
            (20_480, 512, 0, Status::END_OF_FILE),
            (0, 512, 4096, INVALID),
            (0, 512, u64::MAX - 511, INVALID),
        ] {
            write(&mut peer, &mount, target, &writes(made, at, length, from)).await.expect(status);
        }
        let mut size = reads(0, 512);
        size.size = 31;
        read(&mut peer, &mount, source, &size).await.expect(INVALID);
        let mut size = writes(made, 0, 512, 0);
        size.size = 543;
        write(&mut peer, &mount, target, &size).await.expect(INVALID);
        let small = Status::BUFFER_TOO_SMALL;
        ask(&mut peer, &mount, READ, source, &[0; 31], 528).await.expect(small);
        ask(&mut peer, &mount, READ, source, &[0; 32], 527).await.expect(small);
        ask(&mut peer, &mount, WRITE, target, &[0; 543], 16).await.expect(small);
        ask(&mut peer, &mount, WRITE, target, &[0; 544], 15).await.expect(small);
        read(&mut peer, &mount, source, &reads(0, 0)).await.ok();
        assert_eq!(written(&write(&mut peer, &mount, target, &writes(made, 0, 0, 0)).await), 0);
        // A directory, and a file of less than a sector, do not support offload.
        let directory = peer.open_file(&mount, &Want::directory("d")).await;
        let refused = Status::OFFLOAD_READ_FILE_NOT_SUPPORTED;
        read(&mut peer, &mount, directory, &reads(0, 512)).await.expect(refused);
        let tiny = peer.open_file(&mount, &Want::file("tiny")).await;
        peer.write(&mount, tiny, 0, &[1; 511]).await;
        read(&mut peer, &mount, tiny, &reads(0, 512)).await.expect(INVALID);
        ask(&mut peer, &mount, CtlCode::SET_SPARSE, source, &[], 0).await.ok();
        read(&mut peer, &mount, source, &reads(0, 512)).await.expect(refused);
        ask(&mut peer, &mount, CtlCode::SET_SPARSE, target, &[], 0).await.ok();
        let refused = Status::OFFLOAD_WRITE_FILE_NOT_SUPPORTED;
        write(&mut peer, &mount, target, &writes(made, 0, 512, 0)).await.expect(refused);
        assert_eq!(world.content("target"), [255; 20_480]);
    });
}

#[test]
fn rights_and_locks_hold_for_both_ends() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let made = token(&mut peer, &mount, source, 0, 4096).await.token;
        let denied = Status::ACCESS_DENIED;
        let blind = Want::existing("source").access(AccessMask::WRITE_DATA);
        let blind = peer.open_file(&mount, &blind).await;
        read(&mut peer, &mount, blind, &reads(0, 512)).await.expect(denied);
        let reader = Want::existing("target").access(AccessMask::FILE_GENERIC_READ);
        let reader = peer.open_file(&mount, &reader).await;
        write(&mut peer, &mount, reader, &writes(made, 0, 512, 0)).await.expect(denied);
        let conflict = Status::FILE_LOCK_CONFLICT;
        for name in ["source", "target"] {
            let other = peer.open_file(&mount, &Want::existing(name)).await;
            peer.on(&mount, lock_draft(other, &[(600, 1, EXCLUSIVE)])).await.ok();
            if name == "source" {
                read(&mut peer, &mount, source, &reads(512, 512)).await.expect(conflict);
                read(&mut peer, &mount, source, &reads(0, 512)).await.ok();
            } else {
                let request = writes(made, 512, 512, 0);
                write(&mut peer, &mount, target, &request).await.expect(conflict);
            }
            peer.close(&mount, other).await;
        }
        assert_eq!(world.content("target"), [255; 20_480]);
    });
}

/// At n - 1, n and n + 1: a token is for as much as it may be, and so much is written at a time.
#[test]
fn a_token_is_for_so_many_bytes() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (source, target) = pair(&mut peer, &mount).await;
        let end = (4 * OFFLOAD_BYTES).to_le_bytes();
        for file in [source, target] {
            peer.on(&mount, set_draft(FileInfoClass::END_OF_FILE, file, &end)).await.ok();
        }
        let mut bytes = [0; 512];
        bytes[..4].copy_from_slice(&OffloadToken::TYPE_ZERO_DATA.to_be_bytes());
        let zeros = OffloadToken { bytes };
        for asked in [OFFLOAD_BYTES - 512, OFFLOAD_BYTES, OFFLOAD_BYTES + 512] {
            let most = asked.min(OFFLOAD_BYTES);
            let given = token(&mut peer, &mount, source, 0, asked).await;
            assert_eq!(given.transfer_length, most);
            let reply = write(&mut peer, &mount, target, &writes(zeros, 0, asked, 0)).await;
            assert_eq!(written(&reply), most);
        }
    });
}
