//! Large things: a folder of a million names, 100,000 Opens and 100,000 locks of one client, a file of
//! 16 TiB, names of 64 KiB. An operation may cost at most 1.5 times as much as with a tenth of the
//! size, and none holds its core for more than 10 ms.
//!
//! The tests take minutes and are ignored; docs/benchmarks/large.md has their results and the
//! command. Client and server share a thread, so that a cost is that of both.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::time::Duration;

use client::files::{Mount, Want, lock_draft, rename_draft, set_draft, utf16};
use client::negotiate::Offer;
use client::peer::Peer;
use client::queries::{list_draft, query_draft};
use client::world::{World, in_memory, in_world};
use frevo_server::internal::state::Kind;
use frevo_wire::Status;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// An operation may cost this much more at ten times the size.
const GROWTH_MAX: f64 = 1.5;

/// Operations of each kind at each size.
const OPERATIONS: usize = 1_000;

/// Processor time of this process, the kernel's work for it included.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap())
}

/// Resident memory of this process in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1_024
}

/// The costs of the operations of each kind, by size.
#[derive(Default)]
struct Costs(Vec<(&'static str, usize, Duration)>);

impl Costs {
    /// Runs and counts `operations`, for what has `size` entries.
    async fn of(
        &mut self,
        what: &'static str,
        size: usize,
        operations: usize,
        work: impl Future<Output = ()>,
    ) {
        let began = processor_time();
        work.await;
        self.note(what, size, operations, processor_time() - began);
    }

    /// Counts `operations` that took so long together.
    fn note(&mut self, what: &'static str, size: usize, operations: usize, took: Duration) {
        let cost = took / u32::try_from(operations).unwrap();
        println!("| {what} | {size} | {:.1} |", cost.as_secs_f64() * 1e6);
        self.0.push((what, size, cost));
    }

    /// Compares the cost of each kind at the largest size with that at the smallest.
    fn check(&self) {
        let mut grown = Vec::new();
        for &(what, size, cost) in &self.0 {
            let Some(&(_, small, least)) = self.0.iter().find(|row| row.0 == what) else {
                continue;
            };
            if small == size {
                continue;
            }
            let growth = cost.as_secs_f64() / least.as_secs_f64();
            println!("{what}: {growth:.2} times as much with {size} as with {small}");
            if growth > GROWTH_MAX {
                grown.push(format!("{what}: {growth:.2}"));
            }
        }
        assert!(grown.is_empty(), "{grown:?}");
    }
}

/// Numbers that are spread over `0..of`, always the same.
fn spread(of: usize) -> impl Iterator<Item = usize> {
    (1..).map(move |n: usize| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as usize) % of)
}

async fn list(peer: &mut Peer, mount: &Mount, folder: &str) -> usize {
    let want = Want::existing(folder).access(AccessMask::READ_DATA);
    let folder = peer.open_file(mount, &want).await;
    let mut bytes = 0;
    loop {
        let none = QueryDirectoryFlags::EMPTY;
        let ask = list_draft(folder, FileInfoClass::ID_BOTH_DIRECTORY, none, "*");
        let reply = peer.on(mount, ask).await;
        if reply.status() == Status::NO_MORE_FILES {
            break;
        }
        reply.ok();
        bytes += reply.message.len();
    }
    peer.close(mount, folder).await;
    bytes
}

/// Makes a name in a folder, changes it and removes it.
async fn change_names(peer: &mut Peer, mount: &Mount, folder: &str, n: usize) {
    let access = AccessMask::READ_DATA | AccessMask::DELETE;
    let named = |name: &str| Want::existing(&format!("{folder}\\{name}-{n}")).access(access);
    let create = Want { disposition: CreateDisposition::CREATE, ..named("new") };
    let file = peer.open_file(mount, &create).await;
    let to = format!("{folder}\\renamed-{n}");
    peer.on(mount, rename_draft(FileInfoClass::RENAME, file, &to, false)).await.ok();
    peer.close(mount, file).await;
    let remove = named("renamed").options(CreateOptions::DELETE_ON_CLOSE);
    let file = peer.open_file(mount, &remove).await;
    peer.close(mount, file).await;
}

/// Names change while another session lists the folder, answer by answer, over and over.
async fn change_beside_listing(world: &World, costs: &mut Costs, folder: &str, size: usize) {
    const CHANGES_PER_ANSWER: usize = 4;
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let (mut other, others) = world.session("bob", &Offer::default()).await;
    let want = Want::existing(folder).access(AccessMask::READ_DATA);
    let listed = other.open_file(&others, &want).await;
    let mut flags = QueryDirectoryFlags::EMPTY;
    let (mut changing, mut answers) = (Duration::ZERO, 0);
    for n in 0..OPERATIONS {
        if n.is_multiple_of(CHANGES_PER_ANSWER) {
            let ask = list_draft(listed, FileInfoClass::ID_BOTH_DIRECTORY, flags, "*");
            let reply = other.on(&others, ask).await;
            flags = match reply.status() {
                Status::NO_MORE_FILES => QueryDirectoryFlags::RESTART_SCANS,
                _ => {
                    reply.ok();
                    answers += 1;
                    QueryDirectoryFlags::EMPTY
                }
            };
        }
        let began = processor_time();
        change_names(&mut peer, &mount, folder, n).await;
        changing += processor_time() - began;
    }
    assert!(answers >= OPERATIONS / CHANGES_PER_ANSWER / 2, "{answers}");
    costs.note("change beside a listing", size, OPERATIONS, changing);
    other.close(&others, listed).await;
}

async fn names(world: &World) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let mut costs = Costs::default();
    for size in [100_000, 1_000_000] {
        let folder = format!("folder-{size}");
        let path = world.path(&folder);
        std::fs::create_dir(&path).unwrap();
        for n in 0..size {
            std::fs::File::create(path.join(format!("File-{n:07}"))).unwrap();
        }
        let before = resident();
        let name = |n: usize| format!("{folder}\\File-{n:07}");
        let open = Want::existing("").access(AccessMask::READ_DATA | AccessMask::DELETE);
        let create = Want { disposition: CreateDisposition::CREATE, ..open.clone() };
        // To be sure that a name is new, the server lists the whole folder once, so this CREATE
        // takes long.
        let first = Want { name: utf16(&format!("{folder}\\first")), ..create.clone() };
        costs
            .of("first new name", size, size, async {
                let file = peer.open_file(&mount, &first).await;
                peer.close(&mount, file).await;
            })
            .await;
        costs
            .of("open, close", size, OPERATIONS, async {
                for n in spread(size).take(OPERATIONS) {
                    let want = Want { name: utf16(&name(n)), ..open.clone() };
                    let file = peer.open_file(&mount, &want).await;
                    peer.close(&mount, file).await;
                }
            })
            .await;
        // For so many names the cache has only a sketch (a set of hashes). A name in another case
        // needs a listing (on another thread) the first time, and is remembered then.
        let mut each = Costs::default();
        for what in ["first open in another case", "second open in another case"] {
            each.of(what, size, 3, async {
                for n in spread(size).take(3) {
                    let want = Want { name: utf16(&name(n).to_lowercase()), ..open.clone() };
                    let file = peer.open_file(&mount, &want).await;
                    peer.close(&mount, file).await;
                }
            })
            .await;
        }
        costs
            .of("create, rename, close, delete", size, OPERATIONS, async {
                for n in 0..OPERATIONS {
                    change_names(&mut peer, &mount, &folder, n).await;
                }
            })
            .await;
        costs
            .of("list an entry", size, size, async {
                let bytes = list(&mut peer, &mount, &folder).await;
                assert!(bytes > size * 100, "{bytes}");
            })
            .await;
        // This step loads the attributes of all files into memory, so it must come after the listing,
        // whose cost is measured without them.
        change_beside_listing(world, &mut costs, &folder, size).await;
        let grown = resident().saturating_sub(before);
        println!("{size} names: {grown} MiB more");
        assert!(grown < 128, "{grown} MiB for {size} names");
        assert_eq!(world.server.watchdog.held(), 0, "{size}: a poll held its core");
    }
    costs.check();
}

#[test]
#[ignore = "takes minutes: docs/benchmarks/large.md"]
fn a_folder_of_a_million_names() {
    in_world(names);
}

/// Allows as many descriptors as root may have; false if that is too few.
fn allow_descriptors(needed: u64) -> bool {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(needed, |most| most.max(needed));
    let wanted = Rlimit { current: Some(needed), maximum: Some(most) };
    now.current.is_none_or(|now| now >= needed) || setrlimit(Resource::Nofile, wanted).is_ok()
}

async fn opens(world: &World) {
    const MOST: usize = 100_000;
    world.server.ledger.set_most(Kind::Open, Some(2 * MOST), None);
    let others = world.server.ledger.count(Kind::Open);
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    for n in 0..1_000 {
        let file = peer.open_file(&mount, &Want::file(&format!("file-{n}"))).await;
        peer.write(&mount, file, 0, b"x").await;
        peer.close(&mount, file).await;
    }
    let second = peer.log_on("ann").await;
    let mounts = [mount, peer.mount(&second, "data").await];
    let want = |n: usize| {
        let access = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES;
        Want::existing(&format!("file-{}", n % 1_000)).access(access)
    };
    let mut costs = Costs::default();
    let mut open: Vec<(usize, FileId)> = Vec::new();
    for size in [MOST / 10, MOST] {
        while open.len() < size {
            let of = open.len() % 2;
            open.push((of, peer.open_file(&mounts[of], &want(open.len())).await));
        }
        assert_eq!(world.server.ledger.count(Kind::Open), size + others);
        costs
            .of("open, close", size, OPERATIONS, async {
                for n in 0..OPERATIONS {
                    let file = peer.open_file(&mounts[n % 2], &want(n)).await;
                    peer.close(&mounts[n % 2], file).await;
                }
            })
            .await;
        costs
            .of("QUERY_INFO, READ", size, OPERATIONS, async {
                for n in spread(size).take(OPERATIONS) {
                    let (of, file) = open[n];
                    let query = query_draft(FileInfoClass::NETWORK_OPEN, file);
                    peer.on(&mounts[of], query).await.ok();
                    assert_eq!(peer.read(&mounts[of], file, 0, 1).await, b"x");
                }
            })
            .await;
        println!("{size} Opens: {} MiB resident", resident());
        assert_eq!(world.server.watchdog.held(), 0, "{size}: a poll held its core");
    }
    costs.check();
    // The Opens are not closed one by one, because the end of the connection closes them.
}

#[test]
#[ignore = "takes minutes: docs/benchmarks/large.md"]
fn a_hundred_thousand_opens() {
    if allow_descriptors(120_000) {
        return in_world(opens);
    }
    println!("files in memory, because this user may not have 120,000 descriptors");
    in_memory(opens);
}

async fn locks(world: &World) {
    const MOST: usize = 100_000;
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    world.file("f", vec![1; 4 * MOST]);
    // An Open may have 65,536 locks, so two Opens are needed for the locks of this test.
    let mut files = [FileId::ALL_ONES; 2];
    for file in &mut files {
        *file = peer.open_file(&mount, &Want::existing("f")).await;
    }
    let exclusive = LockFlags::EXCLUSIVE_LOCK | LockFlags::FAIL_IMMEDIATELY;
    let of = |n: usize| files[n % 2];
    let range = |n: usize, flags| [(2 * n as u64, 1, flags)];
    let mut costs = Costs::default();
    let mut held = 0;
    for size in [MOST / 10, MOST] {
        while held < size {
            peer.on(&mount, lock_draft(of(held), &range(held, exclusive))).await.ok();
            held += 1;
        }
        costs
            .of("lock, unlock", size, OPERATIONS, async {
                for n in size..size + OPERATIONS {
                    peer.on(&mount, lock_draft(of(n), &range(n, exclusive))).await.ok();
                    peer.on(&mount, lock_draft(of(n), &range(n, LockFlags::UNLOCK))).await.ok();
                }
            })
            .await;
        costs
            .of("conflict, READ between", size, OPERATIONS, async {
                for n in spread(size - 1).take(OPERATIONS) {
                    let other = of(n + 1);
                    let reply = peer.on(&mount, lock_draft(other, &range(n, exclusive))).await;
                    reply.expect(Status::LOCK_NOT_GRANTED);
                    assert_eq!(peer.read(&mount, other, 2 * n as u64 + 1, 1).await, [1]);
                }
            })
            .await;
        println!("{size} locks: {} MiB resident", resident());
        assert_eq!(world.server.watchdog.held(), 0, "{size}: a poll held its core");
    }
    costs.check();
    for file in files {
        peer.close(&mount, file).await;
    }
}

#[test]
#[ignore = "takes minutes: docs/benchmarks/large.md"]
fn a_hundred_thousand_locks() {
    in_world(locks);
}

/// As large as ext4 allows with blocks of 4 KiB, and as other file systems allow.
async fn sparse(world: &World) {
    const PAGE: u64 = 4_096;
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    let file = peer.open_file(&mount, &Want::file("sparse")).await;
    let end = (16 << 40) - PAGE;
    let set = set_draft(FileInfoClass::END_OF_FILE, file, &u64::to_le_bytes(end));
    peer.on(&mount, set).await.ok();
    peer.write(&mount, file, end - PAGE, &[7; PAGE as usize]).await;
    let read = peer.read(&mount, file, end - 2 * PAGE, 3 * PAGE as u32).await;
    assert_eq!(
        (read.len(), &read[..1], &read[PAGE as usize..]),
        (2 * PAGE as usize, &[0][..], &[7; PAGE as usize][..])
    );
    assert_eq!(peer.read(&mount, file, 8 << 40, 1).await, [0]);
    let stat = std::fs::metadata(world.path("sparse")).unwrap();
    assert_eq!(stat.len(), end);
    assert!(std::os::unix::fs::MetadataExt::blocks(&stat) < 2_048, "it has holes");
    // The first size exceeds the limit of SMB, and the second one may exceed that of this file
    // system.
    let set = |end: u64| set_draft(FileInfoClass::END_OF_FILE, file, &end.to_le_bytes());
    peer.on(&mount, set(u64::MAX)).await.expect(Status::INVALID_PARAMETER);
    let reply = peer.on(&mount, set(i64::MAX as u64)).await;
    println!("an end of 2^63 - 1: {:?}", reply.status());
    let expected =
        [Status::SUCCESS, Status::DISK_FULL, Status::INVALID_PARAMETER, Status::FILE_TOO_LARGE];
    assert!(expected.contains(&reply.status()), "{:?}", reply.status());
    let set = set(0);
    peer.on(&mount, set).await.ok();
    peer.close(&mount, file).await;
}

#[test]
#[ignore = "with the others: docs/benchmarks/large.md"]
fn a_file_of_sixteen_tebibytes() {
    in_world(sparse);
}

async fn paths(world: &World) {
    let (mut peer, mount) = world.session("ann", &Offer::default()).await;
    // The length of a name has two bytes, so a name has at most 65,534 bytes: 32,767 UTF-16 units.
    let units = 32_767;
    let deep = "a\\".repeat(units / 2) + "a";
    let long = "a".repeat(units);
    let folders = ("a".repeat(255) + "\\").repeat(127) + "a";
    let dots = "..\\".repeat(units / 3);
    for (what, name, expected) in [
        (
            "folders of one letter",
            &deep,
            &[Status::OBJECT_PATH_NOT_FOUND, Status::OBJECT_NAME_INVALID][..],
        ),
        ("one name", &long, &[Status::OBJECT_NAME_INVALID]),
        (
            "folders of 255 letters",
            &folders,
            &[Status::OBJECT_PATH_NOT_FOUND, Status::OBJECT_NAME_INVALID],
        ),
        ("folders above", &dots, &[Status::OBJECT_PATH_SYNTAX_BAD, Status::OBJECT_NAME_INVALID]),
    ] {
        for want in [Want::file(name), Want::existing(name), Want::directory(name)] {
            let began = processor_time();
            let status = peer.create(&mount, &want).await.status();
            let took = processor_time() - began;
            println!("{what}: {status:?} in {:.2} ms", took.as_secs_f64() * 1e3);
            assert!(expected.contains(&status), "{what}: {status:?}");
        }
    }
    assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 1, "the bystander's file alone");
    peer.expect_alive_in(&mount).await;
}

#[test]
#[ignore = "with the others: docs/benchmarks/large.md"]
fn names_of_64_kibibytes() {
    in_world(paths);
}
