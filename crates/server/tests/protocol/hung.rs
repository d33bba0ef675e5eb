//! A share on a file system of the kernel that stops answering: FUSE, with a process
//! of the test behind it. What no file system in memory shows is shown here: which
//! system calls of the core ask it anything.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::internal::limits::{BLOCKING_REQUESTS, BLOCKING_THREADS};
use frevo_server::internal::state::Shares;
use frevo_server::share::Share;
use frevo_store::Vfs;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, WriteFlags,
};
use parking_lot::{Condvar, Mutex};
use tokio::time::timeout;

use crate::client::draft::pack;
use crate::client::files::{close_draft, file_id, flush_draft, read_draft, set_draft, write_draft};
use crate::client::peer::async_id;
use crate::client::*;

/// Bytes of the one file there is.
const SIZE: usize = 1 << 20;

/// A switch that holds all answers up.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct State {
    is_shut: bool,
    is_over: bool,
    /// Somebody had to be saved: the core itself hung.
    was_forced: bool,
}

impl Gate {
    fn shut(&self, shut: bool) {
        self.state.lock().is_shut = shut;
        self.turn.notify_all();
    }

    fn pass(&self) {
        self.turn.wait_while(&mut self.state.lock(), |state| state.is_shut);
    }

    /// Opens it when the test takes too long, since a core that hangs tells nobody.
    fn watch(self: &Arc<Self>) -> std::thread::JoinHandle<()> {
        let gate = Arc::clone(self);
        std::thread::spawn(move || {
            let mut state = gate.state.lock();
            let until = std::time::Instant::now() + Duration::from_secs(40);
            while !state.is_over {
                if gate.turn.wait_until(&mut state, until).timed_out() {
                    (state.is_shut, state.was_forced) = (false, true);
                    gate.turn.notify_all();
                    return;
                }
            }
        })
    }
}

/// A folder with the file `f`.
struct Slow(Arc<Gate>);

const FILE: INodeNo = INodeNo(2);
/// Nothing that the kernel is told is good for longer than the answer.
const NEVER: Duration = Duration::ZERO;

fn attributes(ino: INodeNo) -> FileAttr {
    let is_file = ino == FILE;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    FileAttr {
        ino,
        size: if is_file { SIZE as u64 } else { 0 },
        blocks: 8,
        atime: then,
        mtime: then,
        ctime: then,
        crtime: then,
        kind: if is_file { FileType::RegularFile } else { FileType::Directory },
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Slow {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.pass();
        if name == "f" {
            reply.entry(&NEVER, &attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.0.pass();
        reply.attr(&NEVER, &attributes(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.0.pass();
        reply.attr(&NEVER, &attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.0.pass();
        reply.opened(FileHandle(1), fuser::FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.pass();
        let left = SIZE.saturating_sub(usize::try_from(offset).unwrap());
        reply.data(&vec![b'x'; left.min(size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.0.pass();
        reply.written(u32::try_from(data.len()).unwrap());
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.pass();
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.0.pass();
        if offset == 0 {
            let _ = reply.add(FILE, 1, FileType::RegularFile, "f");
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.0.pass();
        reply.statfs(1000, 500, 500, 10, 5, 4096, 255, 4096);
    }
}

/// The file system, mounted, and who opens its gate in time.
struct Mounted {
    gate: Arc<Gate>,
    watcher: Option<std::thread::JoinHandle<()>>,
    session: Option<BackgroundSession>,
    place: tempfile::TempDir,
}

impl Mounted {
    /// None where nobody may mount.
    fn new() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let gate = Arc::new(Gate::default());
        let mounted = Session::new(Slow(Arc::clone(&gate)), place.path(), &Config::default());
        let session = match mounted.and_then(Session::spawn) {
            Ok(session) => session,
            Err(error) => {
                println!("left out: no FUSE here: {error}");
                return None;
            }
        };
        let watcher = Some(gate.watch());
        Some(Self { gate, watcher, session: Some(session), place })
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    /// Adds the share `away` of it, as `off_core` does of what lies on FUSE.
    fn share(&self, world: &World) {
        let vfs: Arc<dyn Vfs> =
            Arc::new(PosixVfs::open_root(self.path(), PosixOptions::default()).unwrap());
        let away = Share::disk("away", vfs).off_core();
        let present = world.server.shares().sorted().into_iter();
        let present = present.filter(|share| share.name() != "IPC$");
        let present = present.map(|share| Share::clone(&share)).collect::<Vec<_>>();
        let settings = Settings::clone(&world.server.settings());
        let shares = Shares::new(present.into_iter().chain([away]));
        world.server.reload(settings, &shares, world.server.accounts());
    }

    /// Checks that nothing but the share hung.
    fn end(mut self) {
        self.gate.state.lock().is_over = true;
        self.gate.turn.notify_all();
        self.watcher.take().map(std::thread::JoinHandle::join);
        let was_forced = self.gate.state.lock().was_forced;
        drop(self.session.take());
        assert!(!was_forced, "the core itself hung");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.gate.shut(false);
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), what).await.expect("stalled by another share")
}

/// Ordinary work on other shares.
async fn works(peer: &mut Peer, mount: &Mount) {
    let file = peer.open_file(mount, &Want::file("everyday")).await;
    peer.write(mount, file, 0, b"as always").await;
    assert_eq!(peer.read(mount, file, 0, 100).await, b"as always");
    peer.on(mount, flush_draft(file)).await.ok();
    peer.close(mount, file).await;
}

/// Sends it, and is told that it takes long.
async fn hangs(peer: &mut Peer, away: &Mount, draft: Draft) -> (u64, u64) {
    let id = peer.send(vec![away.put(draft)], away.via()).await[0];
    let interim = soon(peer.interim()).await;
    assert_eq!(interim.header.message_id, id);
    (id, async_id(&interim))
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Each command on a file that is open, and on names: all are announced as slow, and
/// in between everybody else goes on, on the same connection too.
#[test]
fn whatever_is_asked_of_it_the_core_goes_on() {
    let Some(mounted) = Mounted::new() else { return };
    in_world(async |world| {
        mounted.share(world);
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let away = peer.mount(&data.logon, "away").await;
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let all = AccessMask::FILE_ALL;
        let file = peer.open_file(&away, &Want::existing("f").access(all)).await;
        let appends = AccessMask::APPEND_DATA | AccessMask::READ_ATTRIBUTES;
        let appender = peer.open_file(&away, &Want::existing("f").access(appends)).await;
        let mut frozen = vec![0; 40];
        frozen[16..24].copy_from_slice(&(-1_i64).to_le_bytes());
        let keeper = peer.open_file(&away, &Want::existing("f").access(all)).await;
        peer.on(&away, set_draft(FileInfoClass::BASIC, keeper, &frozen)).await.ok();

        for draft in [
            read_draft(file, 0, 100),
            read_draft(file, 0, SIZE as u32),
            write_draft(file, 0, b"data"),
            write_draft(appender, SIZE as u64, b"more"),
            write_draft(keeper, 0, b"data"),
            flush_draft(file),
            query_draft(FileInfoClass::STANDARD, file),
            set_draft(FileInfoClass::END_OF_FILE, file, &[0; 8]),
            Want::existing("f").draft(),
            Want::existing("absent").draft(),
        ] {
            let command = draft.header.command;
            mounted.gate.shut(true);
            let (id, _) = hangs(&mut peer, &away, draft).await;
            soon(works(&mut other, &theirs)).await;
            soon(works(&mut peer, &data)).await;
            mounted.gate.shut(false);
            let reply = soon(peer.final_reply(id)).await;
            let is_absent = reply.status() == Status::OBJECT_NAME_NOT_FOUND;
            assert!(
                reply.status() == Status::SUCCESS || is_absent,
                "{command:?} {:?}",
                reply.status()
            );
            if command == Command::CREATE && !is_absent {
                peer.close(&away, file_id(&reply)).await;
            }
        }
        for open in [file, appender, keeper] {
            peer.close(&away, open).await;
        }
    });
    mounted.end();
}

/// A flood of what hangs: it takes no more threads than there may be, others go on,
/// what has not begun is cancelled, and all of it is answered in the end.
#[test]
fn a_flood_of_what_hangs_is_bounded() {
    let Some(mounted) = Mounted::new() else { return };
    in_world(async |world| {
        mounted.share(world);
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let away = peer.mount(&data.logon, "away").await;
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let file = peer.open_file(&away, &Want::existing("f")).await;
        let before = threads();
        mounted.gate.shut(true);
        let mut asked = Vec::new();
        let reads = (0..200).map(|_| read_draft(file, 0, 4096));
        let names = (0..2 * BLOCKING_REQUESTS).map(|_| Want::existing("f").draft());
        for draft in reads.chain(names).collect::<Vec<_>>() {
            asked.extend(peer.send(vec![away.put(draft)], away.via()).await);
        }
        let last = asked.pop().unwrap();
        let mut its_async_id = 0;
        for _ in 0..=asked.len() {
            let interim = soon(peer.interim()).await;
            if interim.header.message_id == last {
                its_async_id = async_id(&interim);
            }
        }
        soon(works(&mut other, &theirs)).await;
        soon(works(&mut peer, &data)).await;
        let more = threads() - before.min(threads());
        let most = BLOCKING_THREADS + frevo_net::limits::BLOCKING_CALLS_PER_MOUNT_MAX + 16;
        assert!(more <= most, "{more} threads");
        // This request waits for a place in the blocking pool, so it can be cancelled at once,
        // although the requests in the pool hang.
        let cancel = Peer::cancel(last, Some(its_async_id), away.logon.id);
        peer.send_frame(&pack(&[cancel], away.via())).await;
        soon(peer.final_reply(last)).await.expect(Status::CANCELLED);
        mounted.gate.shut(false);
        for reply in soon(peer.collect(&asked)).await {
            if reply.ok().header.command == Command::READ {
                assert_eq!(files::data(&reply), [b'x'; 4096]);
            } else {
                peer.close(&away, file_id(&reply)).await;
            }
        }
        peer.close(&away, file).await;
    });
    mounted.end();
}

/// CLOSE and LOGOFF of what hangs wait for it and for nothing else; a client that is
/// gone leaves nothing behind.
#[test]
fn closing_what_hangs_holds_up_nobody() {
    let Some(mounted) = Mounted::new() else { return };
    in_world(async |world| {
        mounted.share(world);
        // Each test world has an innocent client, which has these files open. They are not counted.
        let innocent = world.server.files.len();
        let (mut peer, data) = world.session("ann", &Offer::default()).await;
        let away = peer.mount(&data.logon, "away").await;
        let (mut other, theirs) = world.session("bob", &Offer::default()).await;
        let open = peer.open_file(&away, &Want::existing("f")).await;
        let second = peer.log_on("ann").await;
        let again = peer.mount(&second, "away").await;
        let kept = peer.open_file(&again, &Want::existing("f")).await;
        mounted.gate.shut(true);
        let mut asked = vec![hangs(&mut peer, &away, read_draft(open, 0, 4096)).await.0];
        asked.push(hangs(&mut peer, &again, read_draft(kept, 0, 4096)).await.0);
        asked.extend(peer.send(vec![away.put(close_draft(open))], away.via()).await);
        let logoff = again.put(Draft::empty(Command::LOGOFF));
        asked.extend(peer.send(vec![logoff], again.via()).await);
        soon(works(&mut other, &theirs)).await;
        mounted.gate.shut(false);
        for reply in soon(peer.collect(&asked)).await {
            // A READ that hung until the server gave it up is answered with CANCELLED.
            let is_read = reply.header.command == Command::READ;
            let is_given_up = is_read && reply.status() == Status::CANCELLED;
            assert!(is_given_up || reply.status() == Status::SUCCESS, "{reply:?}");
        }
        soon(works(&mut peer, &data)).await;
        // The client disconnects while its request hangs. Other clients must still be served.
        let left = peer.open_file(&away, &Want::existing("f")).await;
        mounted.gate.shut(true);
        hangs(&mut peer, &away, read_draft(left, 0, 4096)).await;
        drop(peer);
        soon(works(&mut other, &theirs)).await;
        mounted.gate.shut(false);
        soon(async {
            while world.server.files.len() != innocent {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    });
    mounted.end();
}
