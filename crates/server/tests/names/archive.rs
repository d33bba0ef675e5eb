//! FILE_ATTRIBUTE_ARCHIVE, by which backups find what has changed: MS-FSA 2.1.4.17, 2.1.4.18, and
//! the operations that set it by themselves.

use std::sync::Arc;
use std::time::Duration;

use frevo_server::ambient::{Ambient as _, Host};
use frevo_server::internal::limits::ARCHIVE_KNOWN;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{BasicChange, OpenHow};
use frevo_store::{Name, Vfs};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{Chunk, CopyRequest, ResumeKeyResponse};
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::{
    DuplicateExtents, OffloadReadReply, OffloadReadRequest, OffloadToken, OffloadWriteRequest,
    TrimRange, TrimRequest, ZeroData,
};
use frevo_wire::fscc::query::FileBasicInformation;

use super::calls::*;
use crate::client::files::{rename_draft, set_info_draft};
use crate::client::world::{in_memory, over};
use crate::client::*;

const ARCHIVE: FileAttributes = FileAttributes::ARCHIVE;
/// Bytes of a cluster of the file system in memory, and of a page.
const CLUSTER: i64 = 4096;

fn bytes_of(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

async fn attributes(peer: &mut Peer, mount: &Mount, file: FileId) -> FileAttributes {
    let reply = peer.on(mount, query_draft(FileInfoClass::BASIC, file)).await;
    let output = query_info::Response::parse(&reply.ok().message).unwrap().output;
    FileBasicInformation::parse(output).unwrap().attributes
}

async fn set(peer: &mut Peer, mount: &Mount, file: FileId, attributes: FileAttributes) {
    let basic = [&[0; 32][..], &attributes.0.to_le_bytes(), &[0; 4]].concat();
    peer.on(mount, set_draft(FileInfoClass::BASIC, file, &basic)).await.ok();
}

/// A way in which a client changes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Write,
    EndOfFile,
    Allocation,
    SameAllocation,
    Attribute,
    Protection,
    Link,
    LinkGone,
    Rename,
    Zero,
    Trim,
    CopyChunk,
    Extents,
    Offload,
    NewStream,
    StreamWrite,
    StreamOverwritten,
    StreamRename,
    Overwritten,
    Superseded,
}

const WAYS: [Way; 20] = [
    Way::Write,
    Way::EndOfFile,
    Way::Allocation,
    Way::SameAllocation,
    Way::Attribute,
    Way::Protection,
    Way::Link,
    Way::LinkGone,
    Way::Rename,
    Way::Zero,
    Way::Trim,
    Way::CopyChunk,
    Way::Extents,
    Way::Offload,
    Way::NewStream,
    Way::StreamWrite,
    Way::StreamOverwritten,
    Way::StreamRename,
    Way::Overwritten,
    Way::Superseded,
];

/// A file with an Open, and a source of four clusters.
struct Bench<'a> {
    peer: &'a mut Peer,
    mount: &'a Mount,
    name: String,
    file: FileId,
    source: FileId,
}

impl Bench<'_> {
    async fn set(&mut self, class: FileInfoClass, bytes: &[u8]) {
        self.peer.on(self.mount, set_draft(class, self.file, bytes)).await.ok();
    }

    async fn ask(&mut self, code: CtlCode, file: FileId, input: &[u8], room: u32) -> Reply {
        let reply = ask(self.peer, self.mount, code, file, input, room).await;
        reply.ok();
        reply
    }

    async fn made(&mut self, name: &str, disposition: CreateDisposition) -> FileId {
        let want = Want::file(name).disposition(disposition);
        self.peer.open_file(self.mount, &want).await
    }

    async fn change(&mut self, way: Way) {
        let (name, file) = (self.name.clone(), self.file);
        match way {
            Way::Write => self.peer.write(self.mount, file, 0, b"x").await,
            Way::EndOfFile => self.set(FileInfoClass::END_OF_FILE, &9_000_u64.to_le_bytes()).await,
            Way::Allocation => self.set(FileInfoClass::ALLOCATION, &4_096_u64.to_le_bytes()).await,
            Way::SameAllocation => {
                self.set(FileInfoClass::ALLOCATION, &16_384_u64.to_le_bytes()).await;
            }
            Way::Attribute => {
                let ea = [&[0, 0, 0, 0, 0, 1, 1, 0][..], b"e\0v"].concat();
                self.set(FileInfoClass::FULL_EA, &ea).await;
            }
            Way::Protection => self.protect().await,
            Way::Link => {
                let draft = rename_draft(FileInfoClass::LINK, file, &format!("{name}-link"), false);
                self.peer.on(self.mount, draft).await.ok();
            }
            Way::LinkGone => {
                let link = format!("{name}-link");
                let link = self.peer.open_file(self.mount, &Want::existing(&link)).await;
                self.peer.on(self.mount, files::delete_draft(link)).await.ok();
                self.peer.close(self.mount, link).await;
            }
            Way::Rename => {
                let to = format!("{name}-renamed");
                let draft = rename_draft(FileInfoClass::RENAME, file, &to, false);
                self.peer.on(self.mount, draft).await.ok();
            }
            Way::Zero => {
                let zeros = ZeroData { file_offset: 0, beyond_final_zero: 100 };
                let input = bytes_of(|w| zeros.encode(w));
                self.ask(CtlCode::SET_ZERO_DATA, file, &input, 0).await;
            }
            Way::Trim => {
                let range = TrimRange { offset: 0, length: CLUSTER as u64 };
                let input = bytes_of(|w| TrimRequest::encode(w, 0, &[range]));
                self.ask(CtlCode::FILE_LEVEL_TRIM, file, &input, 0).await;
            }
            Way::CopyChunk => self.copy_chunk().await,
            Way::Extents => {
                let request = DuplicateExtents {
                    source_file_id: self.source,
                    source_file_offset: 0,
                    target_file_offset: 0,
                    byte_count: CLUSTER,
                };
                let input = bytes_of(|w| request.encode(w));
                self.ask(CtlCode::DUPLICATE_EXTENTS_TO_FILE, file, &input, 0).await;
            }
            Way::Offload => self.offload().await,
            Way::NewStream | Way::StreamOverwritten => {
                let kind = match way {
                    Way::NewStream => CreateDisposition::CREATE,
                    _ => CreateDisposition::OVERWRITE,
                };
                let stream = self.made(&format!("{name}:s"), kind).await;
                self.peer.close(self.mount, stream).await;
            }
            Way::StreamWrite => {
                let stream = self.made(&format!("{name}:s"), CreateDisposition::OPEN).await;
                self.peer.write(self.mount, stream, 0, b"x").await;
                self.peer.close(self.mount, stream).await;
            }
            Way::StreamRename => {
                let stream = self.made(&format!("{name}:s"), CreateDisposition::OPEN).await;
                let draft = rename_draft(FileInfoClass::RENAME, stream, ":t", false);
                self.peer.on(self.mount, draft).await.ok();
                self.peer.close(self.mount, stream).await;
            }
            Way::Overwritten => {
                let other = self.made(&name, CreateDisposition::OVERWRITE).await;
                self.peer.close(self.mount, other).await;
            }
            Way::Superseded => {
                let other = self.made(&name, CreateDisposition::SUPERSEDE).await;
                self.peer.close(self.mount, other).await;
            }
        }
    }

    /// Sets the list that the file has.
    async fn protect(&mut self) {
        let draft = files_query(self.file);
        let reply = self.peer.on(self.mount, draft).await;
        let list = query_info::Response::parse(&reply.ok().message).unwrap().output.to_vec();
        let draft = set_info_draft(self.file, InfoType::SECURITY, 0, DACL, &list);
        self.peer.on(self.mount, draft).await.ok();
    }

    async fn copy_chunk(&mut self) {
        let key = self.ask(CtlCode::SRV_REQUEST_RESUME_KEY, self.source, &[], 32).await;
        let source_key = ResumeKeyResponse::parse(&output(&key)).unwrap().resume_key;
        let chunk = Chunk { source_offset: 0, target_offset: 0, length: 10 };
        let request = CopyRequest { source_key, chunks: vec![chunk] };
        let input = bytes_of(|w| request.encode(w));
        self.ask(CtlCode::SRV_COPYCHUNK, self.file, &input, 12).await;
    }

    async fn offload(&mut self) {
        let size = OffloadReadRequest::SIZE as u32;
        let length = CLUSTER as u64;
        let request = OffloadReadRequest {
            size,
            flags: 0,
            token_time_to_live_ms: 0,
            file_offset: 0,
            copy_length: length,
        };
        let input = bytes_of(|w| request.encode(w));
        let room = OffloadReadReply::SIZE as u32;
        let reply = self.ask(CtlCode::OFFLOAD_READ, self.source, &input, room).await;
        let token: OffloadToken = OffloadReadReply::parse(&output(&reply)).unwrap().token;
        let request = OffloadWriteRequest {
            size: OffloadWriteRequest::SIZE as u32,
            flags: 0,
            file_offset: 0,
            copy_length: length,
            transfer_offset: 0,
            token,
        };
        let input = bytes_of(|w| request.encode(w));
        self.ask(CtlCode::OFFLOAD_WRITE, self.file, &input, 16).await;
    }
}

const DACL: u32 = 4;

fn files_query(file: FileId) -> Draft {
    query_info_draft(file, InfoType::SECURITY, 0, DACL)
}

/// Each way sets the attribute on a file without it, after a backup has cleared it by another Open,
/// and leaves the other attributes alone.
async fn walk(world: &World, ways: &[Way]) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let source = peer.open_file(&mount, &Want::file("source")).await;
    peer.write(&mount, source, 0, &[7; 4 * CLUSTER as usize]).await;
    for way in ways {
        let name = format!("{way:?}");
        let file = peer.open_file(&mount, &Want::file(&name)).await;
        assert_eq!(attributes(&mut peer, &mount, file).await, ARCHIVE, "made");
        peer.write(&mount, file, 0, &[1; 4 * CLUSTER as usize]).await;
        let (peer, mount) = (&mut peer, &mount);
        let mut bench = Bench { peer, mount, name: name.clone(), file, source };
        // Some changes (`Way`) begin with a hard link or a stream, which is made first.
        match way {
            Way::LinkGone => bench.change(Way::Link).await,
            Way::StreamWrite | Way::StreamOverwritten | Way::StreamRename => {
                bench.change(Way::NewStream).await;
            }
            _ => {}
        }
        let backup = bench.made(&name, CreateDisposition::OPEN).await;
        set(bench.peer, bench.mount, backup, FileAttributes::NOT_CONTENT_INDEXED).await;
        bench.change(*way).await;
        let seen = attributes(bench.peer, bench.mount, backup).await;
        assert!(seen.contains(ARCHIVE), "{way:?}: {seen:?}");
        let empties = matches!(way, Way::Overwritten | Way::Superseded);
        // MS-FSA 2.1.5.1.2: overwriting a file clears NOT_CONTENT_INDEXED, all other changes keep
        // it.
        assert_eq!(seen.contains(FileAttributes::NOT_CONTENT_INDEXED), !empties, "{way:?}");
        for id in [backup, file] {
            bench.peer.close(bench.mount, id).await;
        }
    }
}

#[test]
fn every_change_of_a_file_marks_it_for_the_next_backup() {
    in_memory(async |world| walk(world, &WAYS).await);
}

/// The same on the host's file system, without the ways that it does not have everywhere.
#[test]
fn the_host_keeps_the_mark_as_samba_does() {
    let ways: Vec<Way> =
        WAYS.into_iter().filter(|way| !matches!(way, Way::Extents | Way::Trim)).collect();
    in_world(async |world| {
        walk(world, &ways).await;
        // user.DOSATTRIB (version 5) stores the attributes in the four bytes at 12, so ARCHIVE
        // (0x20) is there.
        let mut value = [0; 64];
        let path = world.path("Write");
        rustix::fs::getxattr(&path, "user.DOSATTRIB", &mut value).unwrap();
        assert_eq!(value[12] & 0x20, 0x20);
    });
}

/// A file of the host has no attribute, and gets it by its first change.
#[test]
fn files_of_the_host_are_marked_too() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in ["f", ".hidden"] {
            world.file(name, b"of the host");
            let file = peer.open_file(&mount, &Want::existing(name)).await;
            let before = attributes(&mut peer, &mount, file).await;
            assert!(!before.contains(ARCHIVE), "{before:?}");
            peer.write(&mount, file, 0, b"x").await;
            let now = attributes(&mut peer, &mount, file).await;
            assert_eq!(now, before.without(FileAttributes::NORMAL) | ARCHIVE);
            // A file with a leading dot in its name is hidden. Renamed to a name without a dot, it
            // is not hidden any more.
            let to = rename_draft(FileInfoClass::RENAME, file, &format!("shown{name}"), false);
            peer.on(&mount, to).await.ok();
            peer.close(&mount, file).await;
            let again = peer.open_file(&mount, &Want::existing(&format!("shown{name}"))).await;
            assert_eq!(attributes(&mut peer, &mount, again).await, ARCHIVE);
            peer.close(&mount, again).await;
        }
    });
}

/// A backup on the host clears the attribute while a client has the file open: the client's next
/// change sets it again.
#[test]
fn what_the_host_cleared_is_set_again() {
    let clock = Arc::new(|| Host.now());
    let host: Arc<dyn Vfs> = Arc::new(MemoryVfs::new(MemoryOptions::default(), clock));
    over(&host, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"first").await;
        let local = host.open(&Name::from_stored(String::from("f")), &OpenHow::LOOK).unwrap();
        let none = Some(FileAttributes::NORMAL);
        for way in ["write", "end of file"] {
            let cleared = BasicChange { attributes: none, ..BasicChange::default() };
            local.node.set_basic(&cleared).unwrap();
            assert!(!attributes(&mut peer, &mount, file).await.contains(ARCHIVE));
            tokio::time::sleep(ARCHIVE_KNOWN + Duration::from_millis(10)).await;
            if way == "write" {
                peer.write(&mount, file, 0, b"next").await;
            } else {
                let end = 3_u64.to_le_bytes();
                peer.on(&mount, set_draft(FileInfoClass::END_OF_FILE, file, &end)).await.ok();
            }
            assert!(attributes(&mut peer, &mount, file).await.contains(ARCHIVE), "{way}");
        }
    });
}

/// Requests that change no data, attributes or names leave it unset.
#[test]
fn what_changes_nothing_marks_nothing() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        peer.write(&mount, file, 0, b"data").await;
        set(&mut peer, &mount, file, FileAttributes::HIDDEN).await;
        peer.write(&mount, file, 2, b"").await;
        peer.read(&mount, file, 0, 4).await;
        let same = rename_draft(FileInfoClass::RENAME, file, "f", false);
        peer.on(&mount, same).await.ok();
        let times = [&7_000_000_000_u64.to_le_bytes()[..], &[0; 32]].concat();
        peer.on(&mount, set_draft(FileInfoClass::BASIC, file, &times)).await.ok();
        assert_eq!(attributes(&mut peer, &mount, file).await, FileAttributes::HIDDEN);
        // ARCHIVE is only for files, so a renamed folder does not get it.
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        let to = rename_draft(FileInfoClass::RENAME, folder, "e", false);
        peer.on(&mount, to).await.ok();
        assert_eq!(attributes(&mut peer, &mount, folder).await, FileAttributes::DIRECTORY);
        let access = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES;
        let want = Want::existing("f").access(access);
        let reader = peer.open_file(&mount, &want.options(CreateOptions::EMPTY)).await;
        assert_eq!(attributes(&mut peer, &mount, reader).await, FileAttributes::HIDDEN);
    });
}
