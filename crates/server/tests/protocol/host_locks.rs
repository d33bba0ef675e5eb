//! `posix_locks`: byte-range locks of clients and of other programs.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::time::Duration;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::internal::limits::HOST_LOCKS_PER_OPEN;
use frevo_store::Vfs;
use frevo_wire::command::lock::LockFlags;
use tempfile::TempDir;

use crate::client::files::lock_draft;
use crate::client::peer::async_id;
use crate::client::world::{EXCLUSIVE, over};
use crate::client::*;

const SHARED: LockFlags = LockFlags(LockFlags::SHARED_LOCK.0 | LockFlags::FAIL_IMMEDIATELY.0);
const UNLOCK: LockFlags = LockFlags::UNLOCK;

fn share(posix_locks: bool) -> (TempDir, Arc<dyn Vfs>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), [0; 100]).unwrap();
    let options = PosixOptions { posix_locks, ..PosixOptions::default() };
    let vfs = PosixVfs::open_root(dir.path(), options).unwrap();
    (dir, Arc::new(vfs))
}

/// True when another program can lock a range: "ex" or "sh".
fn can_lock(dir: &Path, kind: &str, first: u64, length: u64) -> bool {
    let script = format!(
        "import fcntl\nf = open('f', 'r+b')\n\
         fcntl.lockf(f, fcntl.LOCK_{} | fcntl.LOCK_NB, {length}, {first})",
        kind.to_uppercase()
    );
    let mut program = Program::new("python3");
    program.args(["-c", &script]).current_dir(dir).stderr(Stdio::null());
    program.status().unwrap().success()
}

/// Another program that has a range locked for as long as it lives.
struct Holder(Child);

impl Holder {
    fn new(dir: &Path, first: u64, length: u64) -> Self {
        let script = format!(
            "import fcntl, time\nf = open('f', 'r+b')\n\
             fcntl.lockf(f, fcntl.LOCK_EX, {length}, {first})\n\
             print('locked', flush=True)\ntime.sleep(60)"
        );
        let mut program = Program::new("python3");
        program.args(["-c", &script]).current_dir(dir).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The kernel looks at all locks of a file for each one that is set: many of them held the core.
#[test]
fn r6_an_open_shows_so_many_locks() {
    let (dir, vfs) = share(true);
    let dir = dir.path();
    over(&vfs, async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let file = one.open_file(&mine, &Want::existing("f")).await;
        let ranges = |range: std::ops::Range<usize>| range.map(|at| (at as u64 * 2, 1, SHARED));
        let most: Vec<_> = ranges(0..HOST_LOCKS_PER_OPEN).collect();
        one.on(&mine, lock_draft(file, &most)).await.ok();
        let more = [(5, 1, SHARED)];
        let refused = one.on(&mine, lock_draft(file, &more)).await;
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        assert!(can_lock(dir, "ex", 5, 1), "nothing of it stays");
        assert!(!can_lock(dir, "ex", 2, 1));
        // The first Open has as many locks as it may have on the host. The limit is that of an
        // Open, so another Open can still lock.
        let other = one.open_file(&mine, &Want::existing("f")).await;
        one.on(&mine, lock_draft(other, &more)).await.ok();
        let all: Vec<_> = most.iter().map(|(at, ..)| (*at, 1, UNLOCK)).collect();
        one.on(&mine, lock_draft(file, &all)).await.ok();
        assert!(can_lock(dir, "ex", 6, 90));
        // Many small locks and a large one overlap. Removing the large lock leaves the small ranges
        // locked and frees the pieces between them.
        one.on(&mine, lock_draft(file, most.get(1..).unwrap())).await.ok();
        one.on(&mine, lock_draft(file, &[(0, 2_000, SHARED)])).await.ok();
        one.on(&mine, lock_draft(file, &[(0, 2_000, UNLOCK)])).await.ok();
        assert!(can_lock(dir, "ex", 7, 1) && !can_lock(dir, "ex", 6, 1));
    });
}

#[test]
fn other_programs_see_what_clients_lock() {
    let (dir, vfs) = share(true);
    let dir = dir.path();
    over(&vfs, async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let file = one.open_file(&mine, &Want::existing("f")).await;
        one.on(&mine, lock_draft(file, &[(10, 10, EXCLUSIVE)])).await.ok();
        assert!(!can_lock(dir, "ex", 15, 1) && !can_lock(dir, "sh", 15, 1));
        assert!(can_lock(dir, "ex", 20, 10) && can_lock(dir, "ex", 0, 10));
        // Two locks of one Open overlap. When one of them is released, the other one's range stays
        // locked on the host.
        one.on(&mine, lock_draft(file, &[(5, 10, SHARED)])).await.ok();
        one.on(&mine, lock_draft(file, &[(10, 10, UNLOCK)])).await.ok();
        assert!(can_lock(dir, "ex", 15, 5), "only the shared one is left");
        assert!(can_lock(dir, "sh", 5, 10) && !can_lock(dir, "ex", 14, 1));
        one.on(&mine, lock_draft(file, &[(5, 10, UNLOCK)])).await.ok();
        assert!(can_lock(dir, "ex", 0, 100));
        // Another client's lock makes this request fail, so its first lock must not stay on the
        // host either.
        let (mut two, theirs) = world.session("bob", &Offer::default()).await;
        let other = two.open_file(&theirs, &Want::existing("f")).await;
        one.on(&mine, lock_draft(file, &[(0, 10, EXCLUSIVE)])).await.ok();
        let both = [(50, 10, EXCLUSIVE), (5, 1, EXCLUSIVE)];
        two.on(&theirs, lock_draft(other, &both)).await.expect(Status::LOCK_NOT_GRANTED);
        assert!(can_lock(dir, "ex", 50, 10) && !can_lock(dir, "ex", 5, 1));
        // The first lock reaches far beyond the file. The last one is beyond the range of the
        // host's locks, so it exists only in the server.
        let far = [(1 << 20, 1 << 62, EXCLUSIVE), (u64::MAX, 1, EXCLUSIVE)];
        two.on(&theirs, lock_draft(other, &far)).await.ok();
        assert!(!can_lock(dir, "ex", 1 << 40, 1));
        two.close(&theirs, other).await;
        one.close(&mine, file).await;
        assert!(can_lock(dir, "ex", 0, 0));
    });
}

#[test]
fn clients_see_what_other_programs_lock() {
    let (dir, vfs) = share(true);
    let dir = dir.path();
    over(&vfs, async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let file = one.open_file(&mine, &Want::existing("f")).await;
        let holder = Holder::new(dir, 10, 10);
        for range in [(15, 1), (0, 11), (19, 100)] {
            let locks = [(range.0, range.1, EXCLUSIVE)];
            one.on(&mine, lock_draft(file, &locks)).await.expect(Status::LOCK_NOT_GRANTED);
            let locks = [(range.0, range.1, SHARED)];
            one.on(&mine, lock_draft(file, &locks)).await.expect(Status::LOCK_NOT_GRANTED);
        }
        // Another program holds a part of the range, so the LOCK is refused as a whole. Its first
        // lock must not stay.
        let both = [(50, 10, EXCLUSIVE), (15, 1, EXCLUSIVE)];
        one.on(&mine, lock_draft(file, &both)).await.expect(Status::LOCK_NOT_GRANTED);
        assert!(can_lock(dir, "ex", 20, 80));
        one.on(&mine, lock_draft(file, &[(0, 10, EXCLUSIVE)])).await.ok();
        // A LOCK waits for the lock of another program. It can be cancelled, or is granted when
        // that program ends.
        let waits = [(15, 1, LockFlags::EXCLUSIVE_LOCK)];
        let start = async |peer: &mut Peer| {
            peer.send(vec![mine.put(lock_draft(file, &waits))], mine.via()).await.remove(0)
        };
        let waiting = start(&mut one).await;
        let interim = one.interim().await;
        let cancel = Peer::cancel(waiting, Some(async_id(&interim)), mine.logon.id);
        one.send_frame(&draft::pack(&[cancel], mine.via())).await;
        one.final_reply(waiting).await.expect(Status::CANCELLED);
        let waiting = start(&mut one).await;
        one.interim().await;
        one.expect_silence(Duration::from_millis(50)).await;
        drop(holder);
        one.final_reply(waiting).await.ok();
        assert!(!can_lock(dir, "ex", 15, 1) && can_lock(dir, "ex", 16, 4));
        one.close(&mine, file).await;
        assert!(can_lock(dir, "ex", 0, 100));
    });
}

#[test]
fn nothing_is_shown_unless_it_is_asked_for() {
    let (dir, vfs) = share(false);
    over(&vfs, async |world| {
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let file = one.open_file(&mine, &Want::existing("f")).await;
        let _holder = Holder::new(dir.path(), 50, 10);
        one.on(&mine, lock_draft(file, &[(0, 60, EXCLUSIVE)])).await.ok();
        assert!(can_lock(dir.path(), "ex", 0, 50));
    });
}
