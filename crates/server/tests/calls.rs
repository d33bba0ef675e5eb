//! How many system calls on files an operation takes: as many as [`MOST`] says, and no
//! more. What each is for stands in docs/benchmarks/calls.md.
//!
//! The operations are done by this program run again under strace, by a client and a
//! server in one thread over a connection in memory, so that the count is the same each
//! time. Where there is no strace the test says so.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::collections::BTreeMap;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;
use std::time::Duration;

use client::draft::{Via, pack};
use client::files::{Mount, PREVIOUS, Want, close_draft, data, read_draft, rename_draft};
use client::negotiate::Offer;
use client::peer::Peer;
use client::queries::{list_draft, query_draft};
use client::world::{Users, World, in_own_world, in_world, in_world_with, serving, settings};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::Share;
use frevo_server::ambient::Host;
use frevo_server::settings::{Settings, Signing};
use frevo_server::share::Compress;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::command::read::{FLAGS_AT, ReadFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::{HeaderFlags, Status};

/// Entries of the directory that is listed.
const LISTED: usize = 1_000;

/// The most system calls of each operation, and the most before Linux 6.13, where times of change do
/// not tell all changes apart. The listing is counted with all of its entries.
const MOST: [(&str, usize, usize); 13] = [
    ("create-write-close", 9, 10),
    ("create-write-close in the root", 9, 10),
    ("open-read-close", 8, 8),
    ("open-read-close again", 5, 5),
    ("create-delete", 14, 19),
    ("create-delete in the root", 13, 19),
    ("make and remove a directory", 15, 19),
    ("stat", 4, 5),
    ("stat in one compound", 3, 4),
    ("stat of nothing", 3, 4),
    ("rename", 13, 15),
    ("list", 1_015, 1_016),
    ("ten writes", 17, 18),
];

/// True from Linux 6.13 on.
fn has_exact_times() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6_u32, 13_u32)
}

/// After this time what is read of a file may be remembered.
const SETTLED: Duration = Duration::from_millis(60);

/// Calls of an operation that are printed when one takes more.
const SHOWN: usize = 40;

/// The system calls that files are used by.
const OF_FILES: [&str; 44] = [
    "open",
    "openat",
    "openat2",
    "close",
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "lseek",
    "stat",
    "lstat",
    "fstat",
    "newfstatat",
    "statx",
    "statfs",
    "fstatfs",
    "access",
    "faccessat",
    "faccessat2",
    "getdents64",
    "fcntl",
    "flock",
    "ioctl",
    "readlink",
    "readlinkat",
    "mkdirat",
    "unlinkat",
    "renameat2",
    "linkat",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "utimensat",
    "fchmod",
    "fchmodat",
    "dup",
    "inotify_add_watch",
];

fn is_of_files(call: &str) -> bool {
    // Older versions of strace print getxattrat (464) and listxattrat (465) as numbers.
    let at = matches!(call, "syscall_0x1d0" | "syscall_0x1d1");
    at || OF_FILES.contains(&call) || call.contains("xattr")
}

/// Where the marks in the trace point, which is nowhere.
const MARK: &str = "/frevo-calls/";

fn mark(what: &str) {
    assert!(std::fs::symlink_metadata(format!("{MARK}{what}")).is_err());
}

async fn closed(peer: &mut Peer, mount: &Mount, want: &Want) {
    let file = peer.open_file(mount, want).await;
    peer.close(mount, file).await;
}

fn new(name: &str) -> Want {
    Want::file(name).disposition(CreateDisposition::CREATE)
}

async fn create_write_close(peer: &mut Peer, mount: &Mount, name: &str) {
    let file = peer.open_file(mount, &new(name)).await;
    peer.write(mount, file, 0, &[7; 4096]).await;
    peer.close(mount, file).await;
}

async fn open_read_close(peer: &mut Peer, mount: &Mount, name: &str) {
    let want = Want::existing(name).access(AccessMask::FILE_GENERIC_READ);
    let file = peer.open_file(mount, &want).await;
    assert_eq!(peer.read(mount, file, 0, 4096).await.len(), 4096);
    peer.close(mount, file).await;
}

async fn create_delete(peer: &mut Peer, mount: &Mount, name: &str, options: CreateOptions) {
    closed(peer, mount, &new(name).options(options)).await;
    let options = CreateOptions(options.0 | CreateOptions::DELETE_ON_CLOSE.0);
    closed(peer, mount, &Want::existing(name).access(AccessMask::DELETE).options(options)).await;
}

async fn stat(peer: &mut Peer, mount: &Mount, name: &str) {
    let want = Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
    let file = peer.open_file(mount, &want).await;
    let query = query_draft(FileInfoClass::NETWORK_OPEN, file);
    peer.on(mount, query).await.ok();
    peer.close(mount, file).await;
}

async fn stat_in_one_compound(peer: &mut Peer, mount: &Mount, name: &str) {
    let want = Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
    let related = |draft| mount.put(draft).flags(HeaderFlags::RELATED_OPERATIONS);
    let drafts = vec![
        mount.put(want.draft()),
        related(query_draft(FileInfoClass::BASIC, PREVIOUS)),
        related(query_draft(FileInfoClass::STANDARD, PREVIOUS)),
        related(query_draft(FileInfoClass::NETWORK_OPEN, PREVIOUS)),
        related(close_draft(PREVIOUS)),
    ];
    for reply in peer.ask_all(drafts, mount.via()).await {
        reply.ok();
    }
}

async fn stat_of_nothing(peer: &mut Peer, mount: &Mount, name: &str) {
    let want = Want::existing(name).access(AccessMask::READ_ATTRIBUTES);
    peer.create(mount, &want).await.expect(Status::OBJECT_NAME_NOT_FOUND);
}

async fn rename(peer: &mut Peer, mount: &Mount, from: &str, to: &str) {
    let want = Want::existing(from).access(AccessMask::DELETE | AccessMask::READ_ATTRIBUTES);
    let file = peer.open_file(mount, &want).await;
    let draft = rename_draft(FileInfoClass::RENAME, file, to, false);
    peer.on(mount, draft).await.ok();
    peer.close(mount, file).await;
}

async fn list(peer: &mut Peer, mount: &Mount, name: &str) {
    let want = Want::existing(name).access(AccessMask::READ_DATA);
    let directory: FileId = peer.open_file(mount, &want).await;
    loop {
        let ask = list_draft(
            directory,
            FileInfoClass::ID_BOTH_DIRECTORY,
            QueryDirectoryFlags::EMPTY,
            "*",
        );
        let reply = peer.on(mount, ask).await;
        if reply.status() == Status::NO_MORE_FILES {
            break;
        }
        reply.ok();
    }
    peer.close(mount, directory).await;
}

/// The attribute ARCHIVE is set: nothing is asked or stored for a write.
async fn ten_writes(peer: &mut Peer, mount: &Mount, name: &str) {
    let file = peer.open_file(mount, &Want::existing(name)).await;
    for at in 0..10 {
        peer.write(mount, file, at * 512, &[7; 512]).await;
    }
    peer.close(mount, file).await;
}

/// Each twice: what is learned once and kept is no part of an operation.
async fn all(world: &World) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let (peer, mount) = (&mut peer, &mount);
    std::fs::create_dir(world.path("dir")).unwrap();
    std::fs::create_dir(world.path("listed")).unwrap();
    for n in 0..LISTED {
        world.file(&format!("listed/file-{n:04}"), b"");
    }
    let file = CreateOptions::NON_DIRECTORY_FILE;
    let directory = CreateOptions::DIRECTORY_FILE;
    for round in 0..2 {
        let name = |what: &str| format!("dir\\{what}-{round}");
        mark("create-write-close");
        create_write_close(peer, mount, &name("made")).await;
        mark("create-write-close in the root");
        create_write_close(peer, mount, &format!("made-{round}")).await;
        mark("pause");
        std::thread::sleep(SETTLED);
        mark("open-read-close");
        open_read_close(peer, mount, &name("made")).await;
        mark("open-read-close again");
        open_read_close(peer, mount, &name("made")).await;
        mark("create-delete");
        create_delete(peer, mount, &name("gone"), file).await;
        mark("create-delete in the root");
        create_delete(peer, mount, &format!("gone-{round}"), file).await;
        mark("make and remove a directory");
        create_delete(peer, mount, &name("folder"), directory).await;
        mark("stat");
        stat(peer, mount, &name("made")).await;
        mark("stat in one compound");
        stat_in_one_compound(peer, mount, &name("made")).await;
        mark("stat of nothing");
        stat_of_nothing(peer, mount, &name("nothing")).await;
        mark("rename");
        rename(peer, mount, &name("made"), &name("renamed")).await;
        mark("list");
        list(peer, mount, "listed").await;
        mark("ten writes");
        ten_writes(peer, mount, &name("renamed")).await;
        mark("end");
    }
}

#[test]
#[ignore = "what the test below traces"]
fn operations() {
    in_world(all);
}

/// Bytes of the READs that may go from the file to the socket.
const LONE: u32 = 256 << 10;

/// One of four READs that go from the file to the socket together.
const QUARTER: u32 = 64 << 10;

/// Sends unsigned READs of `lengths` together, and checks the answers.
async fn read_together(peer: &mut Peer, mount: &Mount, file: FileId, lengths: &[u32]) {
    let (mut frames, mut ids) = (Vec::new(), Vec::new());
    for &length in lengths {
        let mut draft = mount.put(read_draft(file, 0, length));
        peer.stamp(&mut draft);
        ids.push(draft.header.message_id);
        let message = pack(&[draft], Via::Plain);
        frames.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frames.extend(message);
    }
    peer.send_bytes(&frames).await;
    for (reply, &length) in peer.collect(&ids).await.iter().zip(lengths) {
        reply.ok();
        assert!(data(reply).iter().all(|byte| *byte == 7));
        assert_eq!(data(reply).len(), length as usize);
    }
}

async fn large_reads(world: &World) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    world.file("large", vec![7; 1 << 20]);
    let want = Want::existing("large").access(AccessMask::FILE_GENERIC_READ);
    let file = peer.open_file(&mount, &want).await;
    let reads: [(&str, &[u32]); 9] = [
        ("one below", &[LONE - 1]),
        ("one", &[LONE]),
        ("one above", &[LONE + 1]),
        ("two above", &[LONE + 1, QUARTER]),
        ("four", &[QUARTER; 4]),
        ("one after four", &[LONE]),
        ("many", &[QUARTER; 9]),
        ("one after many", &[QUARTER]),
        ("end", &[]),
    ];
    for (what, lengths) in reads {
        mark(what);
        read_together(&mut peer, &mount, file, lengths).await;
    }
}

#[test]
#[ignore = "what the test below traces"]
fn reads() {
    in_world_with(Settings { signing: Signing::Offered, ..settings() }, large_reads);
}

/// Over a connection in memory the send queue reads what it would send by sendfile, with pread64; the
/// handler reads with preadv2.
#[test]
fn reads_of_little_are_not_copied() {
    let faults = |found: &Calls| {
        let count = |what: &str, call: &str| {
            found[what].iter().filter(|line| line.starts_with(call)).count()
        };
        let mut faults = Vec::new();
        for (what, direct, copied) in [
            ("one below", 1, 0),
            ("one", 1, 0),
            ("one above", 0, 1),
            ("two above", 1, 1),
            ("four", 4, 0),
            ("one after four", 1, 0),
            ("one after many", 0, 1),
        ] {
            if (count(what, "pread64("), count(what, "preadv2(")) != (direct, copied) {
                faults.push(format!("{what}: {:#?}", found[what]));
            }
        }
        if count("many", "preadv2(") == 0 {
            faults.push(format!("many: {:#?}", found["many"]));
        }
        faults
    };
    // On a slow machine the core thread may send some replies before it has received all requests.
    let Some(faults) = fewest_faults("reads", faults) else { return };
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// READs of data that does not shrink, which ask for compressed answers.
async fn noise_that_asks(world: &World) {
    let offer = Offer { compression: vec![2, 4], chained: true, ..Offer::default() };
    let (mut peer, mount) = world.session("ann", &offer).await;
    let mut state = 88_172_645_463_325_252u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    });
    let noise: Vec<u8> = noise.take(LONE as usize).collect();
    world.file("noise", &noise);
    let want = Want::existing("noise").access(AccessMask::FILE_GENERIC_READ);
    let file = peer.open_file(&mount, &want).await;
    for what in ["tried", "left out", "tried again", "left out again", "the second of them"] {
        mark(what);
        let asks = read_draft(file, 0, LONE).patch(FLAGS_AT, &[ReadFlags::REQUEST_COMPRESSED.0]);
        let mut draft = mount.put(asks);
        peer.stamp(&mut draft);
        let id = draft.header.message_id;
        peer.send_frame(&pack(&[draft], Via::Plain)).await;
        assert!(data(&peer.final_reply(id).await) == noise);
    }
    mark("end");
}

#[test]
#[ignore = "what the test below traces"]
fn noise() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = Arc::new(PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap());
    let share = Share::disk("data", vfs).compress(Compress::All);
    let settings = Settings { signing: Signing::Offered, ..settings() };
    let world = World::of(serving(settings, [share], Arc::new(Users), Arc::new(Host)), dir);
    in_own_world(false, &world, noise_that_asks);
}

/// Data that would not be compressed goes from the file to the socket also where the client asks for compressed
/// answers.
#[test]
fn reads_of_data_that_does_not_shrink_are_not_copied() {
    let faults = |found: &Calls| {
        let count = |what: &str, call: &str| {
            found[what].iter().filter(|line| line.starts_with(call)).count()
        };
        let mut faults = Vec::new();
        for (what, direct, copied) in [
            ("tried", 0, 1),
            ("left out", 1, 0),
            ("tried again", 0, 1),
            ("left out again", 1, 0),
            ("the second of them", 1, 0),
        ] {
            if (count(what, "pread64("), count(what, "preadv2(")) != (direct, copied) {
                faults.push(format!("{what}: {:#?}", found[what]));
            }
        }
        faults
    };
    let Some(faults) = fewest_faults("noise", faults) else { return };
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The calls on files after each mark.
type Calls = BTreeMap<String, Vec<String>>;

/// Traces the ignored test `name`, several times while there are faults: on a busy machine what is
/// remembered for a moment may be out of date when it is asked for. Returns the faults of the last time,
/// or None where nothing can be traced.
fn fewest_faults(name: &str, faults: impl Fn(&Calls) -> Vec<String>) -> Option<Vec<String>> {
    let mut last = Vec::new();
    for _ in 0..6 {
        last = faults(&traced(name)?);
        if last.is_empty() {
            break;
        }
    }
    Some(last)
}

/// The calls on files after each mark, of the last round.
fn parse(trace: &str) -> Calls {
    let mut found = Calls::new();
    let mut current = None;
    for line in trace.lines() {
        // A line of strace looks like: 1234 openat2(3, "dir/made-0", ...) = 4
        let text = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        if let Some((_, rest)) = text.split_once(MARK) {
            let what = rest.split('"').next().unwrap_or_default();
            found.insert(what.to_owned(), Vec::new());
            current = Some(what.to_owned());
            continue;
        }
        let call = text.split('(').next().unwrap_or_default();
        if let Some(calls) = current.as_ref().and_then(|what| found.get_mut(what))
            && is_of_files(call)
            // Before closing a descriptor, a debug build of the standard library calls
            // fcntl(F_GETFD), which is not counted.
            && !text.contains(", F_GETFD)")
            // A core that has yielded in a slow build wakes itself by this write to an eventfd,
            // which is not counted.
            && !text.contains(r#", "\1\0\0\0\0\0\0\0", 8)"#)
        {
            calls.push(text.to_owned());
        }
    }
    found.remove("end");
    found
}

/// The calls on files after each mark of the ignored test `name`. None where nothing can be traced.
fn traced(name: &str) -> Option<Calls> {
    let mut tried = Program::new("strace");
    tried.args(["-o", "/dev/null", "true"]).stderr(Stdio::null());
    if !tried.status().is_ok_and(|status| status.success()) {
        println!("skipped: there is no strace, or it may not trace");
        return None;
    }
    let trace = tempfile::NamedTempFile::new().unwrap();
    let traced = Program::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(trace.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name])
        .output()
        .unwrap();
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stdout));
    Some(parse(&std::fs::read_to_string(trace.path()).unwrap()))
}

#[test]
fn an_operation_takes_no_more_system_calls_than_it_did() {
    let is_exact = has_exact_times();
    let faults = |found: &Calls| {
        let mut more = Vec::new();
        for (what, exact, before) in MOST {
            let most = if is_exact { exact } else { before };
            let calls = &found[what];
            println!("{what}: {}", calls.len());
            for call in calls.iter().take(SHOWN) {
                println!("    {call}");
            }
            if calls.len() > most {
                more.push(format!("{what}: {} calls, not {most}", calls.len()));
            }
        }
        more
    };
    let Some(more) = fewest_faults("operations", faults) else { return };
    assert!(more.is_empty(), "{more:#?}");
}
