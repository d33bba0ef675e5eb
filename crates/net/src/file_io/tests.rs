use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use super::*;
use crate::permits::Permits;

const ROADS: [RoadChoice; 4] = [
    RoadChoice { inline: true, ring: true },
    RoadChoice { inline: false, ring: true },
    RoadChoice { inline: true, ring: false },
    RoadChoice { inline: false, ring: false },
];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// Makes a file on the disk of the build, because temporary files may be in memory.
fn disk_file(bytes: &[u8]) -> (File, std::fs::File) {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    (File::new(Arc::new(file.try_clone().unwrap())).unwrap(), file)
}

fn memory_file(bytes: &[u8]) -> (File, std::fs::File) {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = std::fs::File::from(fd);
    file.write_all_at(bytes, 0).unwrap();
    (File::new(Arc::new(file.try_clone().unwrap())).unwrap(), file)
}

/// Removes the file's pages from the cache, if the kernel does so.
fn evict(file: &std::fs::File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Returns true if one of 50 probes of evicted data is a miss. The kernel starts to read the data at a
/// miss, and a quick disk sometimes delivers it before the kernel looks again: the probe is then a
/// hit that has not waited.
fn misses_once_evicted(raw: &std::fs::File, mut probe: impl FnMut() -> bool) -> bool {
    (0..50).any(|_| {
        evict(raw);
        !probe()
    })
}

/// Returns a pipe's reading end in place of a file: a read from it waits as long as the test wants.
fn stalling_file() -> (File, OwnedWriter) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mount = Arc::clone(&disk_file(b"").0.mount);
    let file = File { fd: Arc::new(read), mount, caching: Caching::Kept, gate: None };
    (file, OwnedWriter(write))
}

struct OwnedWriter(std::os::fd::OwnedFd);

/// Tests that no road writes once the gate says no, though the write began before.
#[tokio::test]
async fn no_road_writes_behind_a_closed_gate() {
    use std::sync::atomic::{AtomicU32, Ordering};

    for make in [disk_file, memory_file] {
        for choice in ROADS {
            choose_roads(choice);
            let (file, raw) = make(b"");
            let open = Arc::new(AtomicU32::new(u32::MAX));
            let asked = Arc::clone(&open);
            let left = move |left: u32| left.checked_sub(1);
            let is_open =
                move || asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
            let file = file.gated(Some(Arc::new(is_open)));
            file.write(0, b"before").await.unwrap();
            open.store(0, Ordering::Relaxed);
            let refused = file.write(0, b"behind").await.unwrap_err();
            assert!(is_gate_closed(&refused), "{choice:?}: {refused}");
            let cut = file.run_blocking(|fd| Ok(rustix::fs::ftruncate(fd, 0)?)).await;
            assert!(is_gate_closed(&cut.unwrap_err()), "{choice:?}");
            let mut content = [0; 6];
            raw.read_exact_at(&mut content, 0).unwrap();
            assert_eq!(&content, b"before", "{choice:?}");
        }
    }
    choose_roads(RoadChoice::default());
}

#[tokio::test]
async fn every_road_reads_the_same() {
    let data = pattern(3_000_000);
    for make in [disk_file, memory_file] {
        for choice in ROADS {
            choose_roads(choice);
            let (file, raw) = make(&data);
            for (offset, len) in [
                (0, 0),
                (0, 1),
                (4095, 2),
                (1, 65_536),
                (2_999_999, 10),
                (3_000_000, 10),
                (u64::MAX, 10),
                (i64::MAX as u64, 10),
                (1_000_000, 8 << 20),
            ] {
                evict(&raw);
                let at = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                let expected = &data[at..(at + len).min(data.len())];
                for _cold_then_warm in 0..2 {
                    let mut buf = Buf::copy_of(b"head");
                    buf.reserve(len);
                    let buf = file.read(offset, buf, len).await.unwrap();
                    assert_eq!(&buf[..4], b"head");
                    assert!(&buf[4..] == expected, "{choice:?} {offset} {len}");
                }
            }
        }
    }
}

#[tokio::test]
async fn every_road_writes_the_same() {
    for make in [disk_file, memory_file] {
        for choice in ROADS {
            choose_roads(choice);
            let (file, raw) = make(b"");
            let data = pattern(2_500_000);
            file.write(0, &data).await.unwrap();
            file.write(2_499_990, &[7; 20]).await.unwrap();
            file.write(5, b"").await.unwrap();
            file.write(100, &data[100..1_500_000]).await.unwrap();
            file.sync(true, &SyncFailure::default()).await.unwrap();
            file.sync(false, &SyncFailure::default()).await.unwrap();
            let mut expected = data;
            expected.truncate(2_499_990);
            expected.extend([7; 20]);
            let mut got = vec![0; expected.len()];
            raw.read_exact_at(&mut got, 0).unwrap();
            assert!(got == expected, "{choice:?}");
            assert_eq!(raw.metadata().unwrap().len(), expected.len() as u64);
        }
    }
}

/// Tests that data which is not to be kept leaves no pages behind, and takes none away.
#[tokio::test]
async fn data_that_is_not_kept_leaves_the_cache() {
    const LEN: usize = 4 << 20;
    let data = pattern(LEN);
    for choice in ROADS {
        choose_roads(choice);
        let (kept, raw) = disk_file(&data);
        let file = kept.clone().caching(Caching::NotKept);
        evict(&raw);
        for offset in (0..LEN).step_by(1 << 20) {
            let buf = file.read(offset as u64, Buf::with_capacity(1 << 20), 1 << 20).await.unwrap();
            assert!(buf[..] == data[offset..offset + (1 << 20)], "{choice:?}");
        }
        if file.cache_flag() == 0 {
            eprintln!("skipped: this kernel or file system has no RWF_DONTCACHE");
            return;
        }
        let pages = (LEN / rustix::param::page_size()) as u64;
        let cached = || sys::cached_pages(kept.fd.as_fd(), 0, LEN as u64).unwrap();
        // After the last read, read-ahead may have added some pages to the cache, so a quarter of
        // the pages is allowed.
        assert!(cached() <= pages / 4, "{choice:?}: {} pages after reads", cached());
        // The flag is only for writes that extend the file, so a write to existing blocks gets
        // none.
        assert_eq!(file.write_flag(0), 0);
        raw.set_len(0).unwrap();
        assert_ne!(file.write_flag(0), 0);
        // The kernel keeps a page that another task uses when the write ends, so the write is tried
        // up to ten times.
        let mut left = pages;
        for _ in 0..10 {
            raw.set_len(0).unwrap();
            file.write(0, &data).await.unwrap();
            raw.sync_all().unwrap();
            left = cached();
            if left <= pages / 4 {
                break;
            }
        }
        assert!(left <= pages / 4, "{choice:?}: {left} pages after a write");
        // Pages that another reader (`kept`) has cached must stay in the cache.
        kept.read(0, Buf::with_capacity(LEN), LEN).await.unwrap();
        let before = cached();
        assert!(before >= pages * 3 / 4, "{choice:?}: {before} pages");
        file.read(0, Buf::with_capacity(LEN), LEN).await.unwrap();
        assert!(cached() >= before, "{choice:?}: a read took pages away");
    }
}

#[tokio::test]
async fn errors_are_told_on_every_road() {
    for choice in ROADS {
        choose_roads(choice);
        let named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let read_only = std::fs::File::open(named.path()).unwrap();
        let file = File::new(Arc::new(read_only)).unwrap();
        let error = file.write(0, b"x").await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{choice:?}");
        for offset in [i64::MAX as u64, u64::MAX] {
            let error = file.write(offset, b"x").await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        }
        let write_only = std::fs::File::options().write(true).open(named.path()).unwrap();
        write_only.set_len(10).unwrap();
        let file = File::new(Arc::new(write_only)).unwrap();
        let error = file.read(0, Buf::new(), 5).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{choice:?}");
    }
}

#[tokio::test]
async fn what_is_not_a_regular_file_is_refused() {
    for path in ["/", "/dev/null"] {
        let file = std::fs::File::open(path).unwrap();
        assert!(File::new(Arc::new(file)).is_err());
    }
}

#[tokio::test]
async fn hits_stay_on_the_core_and_misses_leave_it() {
    let (file, raw) = disk_file(&pattern(1 << 20));
    let mut buf = Buf::new();
    if file.mount().medium() != Medium::Disk || matches!(file.try_read(0, &mut buf, 1), Ok(false)) {
        return; // The build does not lie on a disk that can tell hits from misses.
    }
    assert!(file.try_read(0, &mut buf, 1 << 20).unwrap());
    assert!(file.is_cached(0, 1 << 20));
    assert_eq!(file.mount().report().reads_nowait, Learned::Yes);
    evict(&raw);
    assert!(!file.is_cached(0, 1 << 20));
    assert!(misses_once_evicted(&raw, || {
        file.try_read(500_000, &mut Buf::new(), 100).unwrap()
    }));
    let got = file.read(500_000, Buf::new(), 100).await.unwrap();
    assert_eq!(&*got, &pattern(1 << 20)[500_000..500_100]);
    assert!(file.is_cached(500_000, 100));
}

#[tokio::test]
async fn probing_finds_what_cachestat_finds() {
    let (file, raw) = disk_file(&pattern(1 << 20));
    if !file.mount().may_read_nowait() || !file.try_read(0, &mut Buf::new(), 1).unwrap() {
        return; // As in the test above: the disk cannot tell hits from misses.
    }
    assert!(file.probe_cached(0, (1 << 20) - 1));
    assert!(misses_once_evicted(&raw, || file.probe_cached(0, (1 << 20) - 1)));
}

#[tokio::test]
async fn the_road_says_its_reason() {
    let (road_taken, reason) = road();
    assert_eq!(road_taken == IoRoad::Ring, reason == "io_uring works", "{reason}");
    choose_roads(RoadChoice { inline: true, ring: false });
    assert_eq!(road(), (IoRoad::Threads, "io_uring is switched off".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn where_tasks_move_threads_are_used() {
    let moved = tokio::spawn(async { road() }).await.unwrap();
    assert_eq!(moved.0, IoRoad::Threads);
}

/// Tests that memory of a dropped read has no other owner until the kernel has finished writing to
/// it.
#[tokio::test]
async fn a_dropped_read_keeps_its_buffer_until_the_kernel_is_done() {
    choose_roads(RoadChoice { inline: false, ring: true });
    if road().0 != IoRoad::Ring {
        return;
    }
    crate::buffer::trim_pool();
    let (file, writer) = stalling_file();
    // Nothing is written to the pipe, so the read waits for ever.
    let waiting = {
        let permit = file.mount.ring_ops.take().await;
        let fd = Arc::clone(&file.fd);
        let mut buf = Buf::with_capacity(64 << 10);
        buf.reserve(64 << 10);
        async move { ring::read(&fd, u64::MAX, buf, 64 << 10, 0, permit).await }
    };
    tokio::time::timeout(Duration::from_millis(30), waiting).await.unwrap_err();
    assert_eq!(ring::slots_in_use(), 1, "the slot outlives the future");
    // The kernel may still write to the block of the waiting read, so new buffers must not get this
    // block.
    let mut others: Vec<Buf> = (0..4)
        .map(|_| {
            let mut other = Buf::with_capacity(64 << 10);
            other.resize(64 << 10, 0x55);
            other
        })
        .collect();
    rustix::io::write(&writer.0, &[0xaa; 1000]).unwrap();
    while ring::slots_in_use() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(others.iter().all(|other| other.iter().all(|&byte| byte == 0x55)));
    others.clear();
    // The pool has five blocks again: the four of `others` and the one of the dropped read.
    assert_eq!(crate::buffer::pool_stats().retained_bytes, 5 * ((64 << 10) + 4096));
}

#[test]
fn a_dying_thread_leaks_rather_than_frees() {
    let began = Instant::now();
    let done = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            if road().0 != IoRoad::Ring {
                return None;
            }
            let (file, writer) = stalling_file();
            let permit = file.mount.ring_ops.take().await;
            let buf = Buf::with_capacity(4096);
            let read = ring::read(&file.fd, u64::MAX, buf, 4096, 0, permit);
            tokio::time::timeout(Duration::from_millis(10), read).await.unwrap_err();
            Some(writer)
        })
    });
    // The thread has ended in time, although its read never completes.
    let writer = done.join().unwrap();
    assert!(began.elapsed() < crate::limits::RING_FAREWELL * 5);
    drop(writer);
}

#[test]
fn a_ring_outlives_runtimes_on_its_thread() {
    choose_roads(RoadChoice { inline: false, ring: true });
    let (file, _raw) = disk_file(&pattern(100_000));
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let got = runtime.block_on(file.read(10, Buf::new(), 50_000)).unwrap();
        assert!(*got == pattern(100_000)[10..50_010]);
    }
}

#[tokio::test]
async fn more_operations_than_slots_all_complete() {
    choose_roads(RoadChoice { inline: false, ring: true });
    let data = pattern(1 << 20);
    let (file, _raw) = disk_file(&data);
    let count = crate::limits::RING_OPS_MAX as usize * 3;
    let reads = (0..count).map(|n| {
        let file = file.clone();
        async move { (n, file.read(n as u64 * 1000, Buf::new(), 500).await.unwrap()) }
    });
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let tasks: Vec<_> = reads.map(tokio::task::spawn_local).collect();
            for task in tasks {
                let (n, got) = task.await.unwrap();
                assert!(*got == data[n * 1000..n * 1000 + 500]);
            }
        })
        .await;
    assert_eq!(ring::slots_in_use(), 0);
}

#[tokio::test]
async fn a_stalled_mount_has_only_so_many_calls() {
    let (file, _raw) = disk_file(b"");
    let calls = crate::limits::BLOCKING_CALLS_PER_MOUNT_MAX;
    let mount = Permits::new(calls);
    let mut held = Vec::new();
    for _ in 0..calls {
        held.push(mount.take().await);
    }
    assert!(tokio::time::timeout(Duration::from_millis(5), mount.take()).await.is_err());
    drop(held.pop());
    assert!(tokio::time::timeout(Duration::from_secs(5), mount.take()).await.is_ok());
    let size = file.run_blocking(|fd| Ok(rustix::fs::fstat(fd)?.st_size)).await.unwrap();
    assert_eq!(size, 0);
}

/// A file of a mount of its own, whose calls do not compete with those of other tests.
fn alone_on_its_mount() -> File {
    let (File { fd, mount, caching, gate }, _raw) = disk_file(b"");
    let mount = Arc::new(Mount::like(&mount));
    File { fd, mount, caching, gate }
}

/// Tests with calls that take long, as on a slow disk, that a call of another account begins when one
/// of them has ended at the latest.
#[tokio::test(flavor = "current_thread")]
async fn a_slow_disk_serves_another_account_after_one_call() {
    let (file, local) = (alone_on_its_mount(), tokio::task::LocalSet::new());
    let [ann, bob] = [(); 2].map(|()| Arc::<crate::turns::Account>::default());
    let begun = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    // A call of ann ends when something is sent.
    let (ends, is_over) = std::sync::mpsc::channel::<()>();
    let is_over = Arc::new(std::sync::Mutex::new(is_over));
    let call = |account: &Arc<crate::turns::Account>, waits: bool| {
        let (file, account, begun) = (file.clone(), Arc::clone(account), Arc::clone(&begun));
        let is_over = Arc::clone(&is_over);
        let slow = move |_: BorrowedFd<'_>| {
            begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if waits {
                let _ = is_over.lock().unwrap().recv();
            }
            Ok(())
        };
        let mut work = Box::pin(async move { file.run_blocking(slow).await.unwrap() });
        tokio::task::spawn_local(std::future::poll_fn(move |cx| {
            crate::accounts::for_account(Some(Arc::clone(&account)), || work.as_mut().poll(cx))
        }))
    };
    local
        .run_until(async {
            let of_ann: Vec<_> = (0..500).map(|_| call(&ann, true)).collect();
            let places = crate::limits::BLOCKING_CALLS_PER_MOUNT_MAX;
            while begun.load(std::sync::atomic::Ordering::SeqCst) < places {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for round in 0..5 {
                // The first of these calls waits for a place, and later ones may have one at once.
                let mut of_bob = call(&bob, false);
                let at_once = tokio::time::timeout(Duration::from_millis(20), &mut of_bob).await;
                if at_once.is_err() {
                    ends.send(()).unwrap();
                    let served = tokio::time::timeout(Duration::from_secs(60), of_bob).await;
                    served.expect("served after one call").unwrap();
                }
                assert!(round > 0 || at_once.is_err(), "all places are taken");
            }
            of_ann.iter().for_each(tokio::task::JoinHandle::abort);
            drop(ends);
        })
        .await;
}

#[tokio::test]
async fn a_panic_of_a_call_goes_on_where_it_is_waited_for() {
    let waiting = tokio::spawn(run_blocking(|| panic!("on purpose, in a test")));
    assert!(waiting.await.unwrap_err().is_panic());
}

#[tokio::test]
async fn try_write_copies_at_once_or_not_at_all() {
    choose_roads(RoadChoice::default());
    let (file, raw) = memory_file(b"");
    assert!(file.try_write(3, b"abc").unwrap().is_ok());
    let mut got = [9; 6];
    raw.read_exact_at(&mut got, 0).unwrap();
    assert_eq!(&got, b"\0\0\0abc");
    let long = vec![0; INLINE_WRITE_BYTES_MAX + 1];
    assert!(file.try_write(0, &long).is_none());
    assert!(file.try_write(0, &long[1..]).unwrap().is_ok());
    choose_roads(RoadChoice { inline: false, ring: false });
    assert!(file.try_write(0, b"x").is_none());
}

#[tokio::test]
async fn mounts_report_what_was_learned() {
    let (file, _raw) = memory_file(b"x");
    file.read(0, Buf::new(), 1).await.unwrap();
    let report = file.mount().report();
    assert_eq!((report.file_system.as_str(), report.medium), ("tmpfs", Medium::Memory));
    assert!(mounts().iter().any(|mount| mount.device == report.device));
}

/// Makes `io_uring_setup` fail on this thread only, as container runtimes do.
fn forbid_io_uring() {
    let statement =
        |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let filter = [
        // If the system call is not io_uring_setup, the jump (`jf`) skips the refusal.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: libc::SYS_io_uring_setup as u32,
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: all arguments are numbers.
    let private = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(private, 0);
    // SAFETY: the kernel copies the program during the call.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    assert_eq!(filtered, 0);
}

#[test]
fn where_the_kernel_forbids_rings_threads_take_their_place() {
    let data = pattern(300_000);
    let (file, raw) = disk_file(&data);
    evict(&raw);
    let there = std::thread::spawn(move || {
        forbid_io_uring();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (taken, reason) = road();
            assert_eq!(taken, IoRoad::Threads);
            assert!(reason.contains("seccomp"), "{reason}");
            let got = file.read(0, Buf::new(), 300_000).await.unwrap();
            choose_roads(RoadChoice { inline: false, ring: true });
            file.write(300_000, b"more").await.unwrap();
            file.sync(true, &SyncFailure::default()).await.unwrap();
            got.to_vec()
        })
    });
    assert!(there.join().unwrap() == data);
    assert_eq!(raw.metadata().unwrap().len(), 300_004);
}

/// A pipe cannot be synced. Its error is kept by each road, also when the wait for it was dropped.
#[tokio::test]
async fn a_failed_sync_is_told_even_if_nobody_waits() {
    for ring in [true, false] {
        choose_roads(RoadChoice { inline: true, ring });
        let (file, _writer) = stalling_file();
        let failure = SyncFailure::default();
        let error = file.sync(true, &failure).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(failure.get(), Some(&libc::EINVAL));
        let failure = SyncFailure::default();
        {
            let dropped = std::pin::pin!(file.sync(true, &failure));
            // The polled future may be ready at once if the thread has finished the sync already.
            let _ = polled_once(dropped).await;
        }
        let told = async {
            while failure.get().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), told).await.expect("it is told");
        assert_eq!(failure.get(), Some(&libc::EINVAL), "ring: {ring}");
    }
}

/// Polls a future once.
async fn polled_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match future.as_mut().poll(cx) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
