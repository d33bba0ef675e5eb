//! FSCTLs that write break the caches of their target, as WRITE does.

use std::time::Duration;

use frevo_wire::codec::Writer;
use frevo_wire::command::create::OplockLevel;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{Chunk, CopyRequest, ResumeKeyResponse};
use frevo_wire::command::oplock_break::Notification;
use frevo_wire::fscc::fsctl::{
    DUPLICATE_EXTENTS_EX_SIZE, DuplicateExtents, DuplicateExtentsEx, DuplicateExtentsFlags,
    OffloadReadReply, OffloadReadRequest, OffloadWriteReply, OffloadWriteRequest, TrimRange,
    TrimRequest, ZeroData,
};

use super::calls::*;
use crate::client::world::in_memory;
use crate::client::*;

fn bytes_of(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

async fn copy_chunk(peer: &mut Peer, mount: &Mount, source: FileId) -> Vec<u8> {
    let reply = ask(peer, mount, CtlCode::SRV_REQUEST_RESUME_KEY, source, &[], 32).await;
    let source_key = ResumeKeyResponse::parse(&output(reply.ok())).unwrap().resume_key;
    let chunks = vec![Chunk { source_offset: 0, target_offset: 0, length: 4096 }];
    bytes_of(|w| CopyRequest { source_key, chunks }.encode(w))
}

/// A request that writes so much of a source to the beginning of its target.
pub async fn offload(peer: &mut Peer, mount: &Mount, source: FileId, copy_length: u64) -> Vec<u8> {
    let size = OffloadReadRequest::SIZE as u32;
    let (token_time_to_live_ms, file_offset) = (0, 0);
    let read =
        OffloadReadRequest { size, flags: 0, token_time_to_live_ms, file_offset, copy_length };
    let input = bytes_of(|w| read.encode(w));
    let room = OffloadReadReply::SIZE as u32;
    let reply = ask(peer, mount, CtlCode::OFFLOAD_READ, source, &input, room).await;
    let token = OffloadReadReply::parse(&output(reply.ok())).unwrap().token;
    let size = OffloadWriteRequest::SIZE as u32;
    let write =
        OffloadWriteRequest { size, flags: 0, file_offset, copy_length, transfer_offset: 0, token };
    bytes_of(|w| write.encode(w))
}

fn duplicate(source_file_id: FileId) -> Vec<u8> {
    let (source_file_offset, target_file_offset, byte_count) = (0, 0, 4096);
    let request =
        DuplicateExtents { source_file_id, source_file_offset, target_file_offset, byte_count };
    bytes_of(|w| request.encode(w))
}

fn duplicate_ex(source_file_id: FileId) -> Vec<u8> {
    let request = DuplicateExtentsEx {
        structure_size: DUPLICATE_EXTENTS_EX_SIZE,
        source_file_id,
        source_file_offset: 0,
        target_file_offset: 0,
        byte_count: 4096,
        flags: DuplicateExtentsFlags::SOURCE_ATOMIC,
    };
    bytes_of(|w| request.encode(w))
}

fn trim() -> Vec<u8> {
    let ranges = [TrimRange { offset: 0, length: 4096 }];
    bytes_of(|w| TrimRequest::encode(w, 0, &ranges))
}

fn zero() -> Vec<u8> {
    bytes_of(|w| ZeroData { file_offset: 0, beyond_final_zero: 4096 }.encode(w))
}

#[test]
fn what_fsctls_write_is_cached_by_nobody_else() {
    in_memory(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut holder, theirs) = world.session("bob", &Offer::default()).await;
        let source = peer.open_file(&mount, &Want::file("source")).await;
        peer.write(&mount, source, 0, &[1; 8192]).await;
        let target = peer.open_file(&mount, &Want::file("target")).await;
        peer.write(&mount, target, 0, &[2; 8192]).await;
        let copy_chunk = copy_chunk(&mut peer, &mount, source).await;
        let offload = offload(&mut peer, &mount, source, 4096).await;
        let room = OffloadWriteReply::SIZE as u32;
        for (code, input, room) in [
            (CtlCode::SRV_COPYCHUNK, copy_chunk.clone(), 12),
            (CtlCode::SRV_COPYCHUNK_WRITE, copy_chunk, 12),
            (CtlCode::OFFLOAD_WRITE, offload, room),
            (CtlCode::DUPLICATE_EXTENTS_TO_FILE, duplicate(source), 0),
            (CtlCode::DUPLICATE_EXTENTS_TO_FILE_EX, duplicate_ex(source), 0),
            (CtlCode::FILE_LEVEL_TRIM, trim(), 0),
            (CtlCode::SET_ZERO_DATA, zero(), 0),
        ] {
            let want = Want::existing("target").draft().patch(64 + 3, &[OplockLevel::II.0]);
            let reply = holder.on(&theirs, want).await;
            let held = files::file_id(reply.ok());
            ask(&mut peer, &mount, code, target, &input, room).await.ok();
            let told = holder.reply().await;
            assert_eq!(told.header.command, Command::OPLOCK_BREAK, "{code:?}");
            let Notification::Oplock(told) = Notification::parse(&told.message).unwrap() else {
                panic!("a lease");
            };
            assert_eq!((told.oplock_level, told.file_id), (OplockLevel::NONE, held), "{code:?}");
            // The other client has the source open with an oplock of level II. The oplock does not
            // break, because the source is only read.
            let want = Want::existing("source").draft().patch(64 + 3, &[OplockLevel::II.0]);
            let beside = files::file_id(holder.on(&theirs, want).await.ok());
            ask(&mut peer, &mount, code, target, &input, room).await.ok();
            holder.expect_silence(Duration::from_millis(20)).await;
            holder.close(&theirs, beside).await;
            holder.close(&theirs, held).await;
        }
    });
}
