use std::os::fd::AsRawFd as _;

use super::*;
use crate::limits::RESERVED_ON_CORE;
use frevo_store::vfs::KindWanted;
use frevo_wire::dtyp::FileAttributes;

fn how(existence: Existence) -> OpenHow {
    OpenHow {
        existence,
        kind: KindWanted::Any,
        read: true,
        write: true,
        open_link: false,
        attributes: FileAttributes::ARCHIVE | FileAttributes::HIDDEN,
        mode: None,
        case_sensitive: false,
    }
}

fn name(text: &str) -> Name {
    Name::from_stored(text.into())
}

/// Tests that listings are equal with and without getxattrat(2).
#[test]
fn older_kernels_list_the_same() {
    let host = tempfile::tempdir().unwrap();
    let options = PosixOptions { list_ea_sizes: true, ..PosixOptions::default() };
    let mut vfs = PosixVfs::open_root(host.path(), options).unwrap();
    let made = vfs.open(&name("file"), &how(Existence::MustNotExist)).unwrap();
    made.node.set_ea("Color", b"red").unwrap();
    std::os::unix::fs::symlink("file", host.path().join("link")).unwrap();
    std::fs::create_dir(host.path().join("dir")).unwrap();
    drop(made);
    let list = |vfs: &PosixVfs| {
        let root = OpenHow { write: false, ..how(Existence::MustExist) };
        let mut listing = vfs.open(&Name::root(), &root).unwrap().node.directory().unwrap();
        let mut found = Vec::new();
        while let Some(entry) = listing.next_name().unwrap() {
            let entry = entry.to_owned();
            let mut stat = listing.entry_stat().unwrap().unwrap();
            // Looking up a link may change the access time of its target, so this time is not
            // compared.
            stat.accessed = stat.created;
            found.push((entry, stat));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let now = list(&vfs);
    let file = now.iter().find(|(entry, _)| entry == "file").unwrap().1;
    assert_eq!(file.attributes, FileAttributes::ARCHIVE | FileAttributes::HIDDEN);
    assert_eq!(file.ea_size, 4 + 5 + 5 + 3);
    Arc::get_mut(&mut vfs.share).unwrap().entry_xattrs = false;
    assert_eq!(list(&vfs), now);
}

/// Tests that a created file keeps its directory open until the first sync only.
#[test]
fn the_first_sync_covers_the_directory() {
    let host = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let directory = OpenHow { kind: KindWanted::Directory, ..how(Existence::MustNotExist) };
    vfs.open(&name("dir"), &directory).unwrap();
    let is_pending = |opened: &Opened| {
        let node: &dyn Any = &*opened.node;
        node.downcast_ref::<PosixNode>().unwrap().is_entry_pending()
    };
    let made = vfs.open(&name("DIR\\new"), &how(Existence::Either)).unwrap();
    assert!(made.created && is_pending(&made));
    made.node.write_at(0, b"x").unwrap();
    made.node.sync().unwrap();
    assert!(!is_pending(&made));
    made.node.sync().unwrap();
    let again = vfs.open(&name("dir\\new"), &how(Existence::Either)).unwrap();
    assert!(!again.created && !is_pending(&again));
}

/// Tests that an open closes all other descriptors, however it ends.
#[test]
fn no_descriptor_is_left_behind() {
    let host = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(host.path().join("a/b")).unwrap();
    std::fs::write(host.path().join("a/b/file"), "").unwrap();
    std::os::unix::fs::symlink("/", host.path().join("a/out")).unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let round = |i: u32| {
        for text in ["A\\B\\FILE", "a\\b\\none", "a\\out\\etc", "A\\OUT", "no\\x", "a\\b\\file\\x"]
        {
            let _ = vfs.open(&name(text), &how(Existence::MustExist));
            let _ = vfs.open(&name(text), &how(Existence::MustNotExist));
            let _ = vfs.stat(&name(text));
        }
        let new = name(&format!("A\\new{i}"));
        let key = vfs.open(&new, &how(Existence::MustNotExist)).unwrap().node.key();
        let other = name(&format!("a\\B\\moved{i}"));
        vfs.rename(&new, key, &other, false).unwrap();
        vfs.remove(&other, key).unwrap();
    };
    round(0);
    // The kernel hands out the lowest free descriptor. Other tests open files, too, so only a
    // growth over many rounds counts as a leak.
    let next = || std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let before = next();
    for i in 1..300 {
        round(i);
    }
    assert!(next() < before + 100, "descriptors are lost");
}

/// Tests that a directory goes back when what it replaced cannot be removed.
#[test]
fn a_replacement_in_steps_is_undone() {
    let host = tempfile::tempdir().unwrap();
    let folder = std::fs::File::open(host.path()).unwrap();
    let at = |name: &'static [u8]| (folder.as_fd(), name);
    let names = || {
        let entries = std::fs::read_dir(host.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for name in ["from", "to"] {
        std::fs::create_dir(host.path().join(name)).unwrap();
    }
    std::fs::write(host.path().join("to/kept"), "").unwrap();
    // `to` is a directory with a file, which unlinkat(2) without AT_REMOVEDIR cannot remove. So the
    // replacement must be undone.
    replace_in_steps(at(b"from"), at(b"to")).unwrap_err();
    assert_eq!(names(), ["from", "to"]);
    assert!(host.path().join("to/kept").exists());
    std::fs::remove_dir_all(host.path().join("to")).unwrap();
    std::fs::write(host.path().join("to"), "").unwrap();
    replace_in_steps(at(b"from"), at(b"to")).unwrap();
    assert_eq!(names(), ["to"]);
}

/// Tests that a core looks through no large directory, and that another thread does.
#[test]
fn a_core_looks_through_no_large_directory() {
    let host = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let large = host.path().join("large");
    std::fs::create_dir(&large).unwrap();
    (0..4_000).for_each(|at| std::fs::write(large.join(format!("{at:040}")), "").unwrap());
    assert!(std::fs::metadata(&large).unwrap().len() > DIRECTORY_ON_CORE);
    let read = OpenHow { read: true, ..OpenHow::DIRECTORY };
    let opened = vfs.open(&name("large"), &read).unwrap();
    let (node, key) = (&opened.node, opened.node.key());
    let calls: [&dyn Fn() -> VfsResult<bool>; 4] = [
        &|| node.has_entries(),
        &|| Ok(node.directory()?.next_name()?.is_some()),
        &|| vfs.remove(&name("large"), key).map(|()| true),
        &|| vfs.open(&name("large\\No"), &OpenHow::LOOK).map(|_| true),
    ];
    let expected = [Ok(true), Ok(true), Err(Fault::NotEmpty), Err(Fault::NotFound)];
    for (at, (call, expected)) in calls.into_iter().zip(expected).enumerate() {
        assert_eq!(patience::short(call), (Err(Fault::Leased), true), "{at} on a core");
        assert_eq!(call(), expected, "{at} on a thread");
    }
    let begun = patience::short(|| node.directory()).0;
    let mut listing = begun.unwrap();
    for turn in 0..2 {
        let on_core = patience::short(|| listing.next_name().is_ok());
        assert_eq!(on_core, (false, true), "turn {turn}");
        let count = std::iter::from_fn(|| listing.next_name().unwrap().map(|_| ())).count();
        assert_eq!(count, 4_000, "nothing was lost");
        listing.rewind().unwrap();
    }
}

/// Tests that the removal of a last name tells how much is freed with the last descriptor.
#[test]
fn a_removal_tells_the_bytes_that_it_frees() {
    const BYTES: usize = 1 << 20;
    let host = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    std::fs::write(host.path().join("a"), vec![b'x'; BYTES]).unwrap();
    std::fs::hard_link(host.path().join("a"), host.path().join("b")).unwrap();
    std::fs::write(host.path().join("c"), "").unwrap();
    std::fs::write(host.path().join("d"), "").unwrap();
    let beside = vfs.open(&name("d").with_stream(Some("s")), &how(Existence::Either)).unwrap();
    beside.node.write_at(0, &vec![b'x'; BYTES]).unwrap();
    let freed = |text: &str| {
        let key = vfs.stat(&name(text)).unwrap().key;
        let (removed, freed) = patience::freeing(|| vfs.remove(&name(text), key));
        removed.unwrap();
        freed
    };
    assert_eq!(freed("a"), 0, "b is left");
    assert!(freed("b") >= BYTES as u64);
    assert!(freed("c") < BYTES as u64);
    assert!(freed("d") >= BYTES as u64, "the stream is open and keeps its blocks");
}

/// Tests that a core moves no data of a stream that lies beside its file, and that a thread does.
#[test]
fn a_core_moves_no_data_beside_a_file() {
    let host = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let made = vfs.open(&name("file").with_stream(Some("s")), &how(Existence::Either)).unwrap();
    let node = &made.node;
    assert_eq!(patience::short(|| node.write_at(0, b"small")), (Ok(()), false));
    let large = vec![b'x'; 100 << 10];
    let given_up = (Err(Fault::Leased), true);
    assert_eq!(patience::short(|| node.write_at(0, &large)), given_up);
    let mut into = [0; 8];
    assert_eq!(patience::short(|| node.read_at(0, &mut into)), (Ok(5), false));
    node.write_at(0, &large).unwrap();
    assert_eq!(patience::short(|| node.write_at(0, b"y")), given_up);
    assert_eq!(patience::short(|| node.read_at(0, &mut into).map(|_| ())), given_up);
    assert_eq!(node.read_at(0, &mut into), Ok(8));
    assert_eq!(into, *b"xxxxxxxx", "nothing was changed");
    assert_eq!(
        patience::short(|| node.stat().map(|stat| stat.end_of_file)),
        (Ok(100 << 10), false)
    );
}

/// Tests that a snapshot needs no inotify, whose end takes long, and that names in another case are
/// found all the same, also new ones.
#[test]
fn a_snapshot_is_not_watched() {
    let host = tempfile::tempdir().unwrap();
    let snapshots = Some(".snap/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap());
    let options = PosixOptions { snapshots, ..PosixOptions::default() };
    let token = "@GMT-2024.02.29-12.00.00";
    let folder = host.path().join(".snap").join(token);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("One"), "").unwrap();
    let vfs = PosixVfs::open_root(host.path(), options).unwrap();
    let then = vfs.snapshot(Moment::of_token(token).unwrap(), &Arc::default()).unwrap();
    let any: &dyn Any = &*then;
    assert!(!any.downcast_ref::<PosixVfs>().unwrap().share.names.has_watches());
    assert!(vfs.share.names.has_watches());
    for _ in 0..3 {
        assert_eq!(then.stat(&name("ONE")).map(|_| ()), Ok(()));
        assert_eq!(then.stat(&name("TWO")).map(|_| ()), Err(Fault::NotFound));
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    std::fs::write(folder.join("Two"), "").unwrap();
    assert_eq!(then.stat(&name("TWO")).map(|_| ()), Ok(()));
    // It stays open for its next user, and is the same object then.
    let address = Arc::as_ptr(&then).addr();
    let weak = Arc::downgrade(&then);
    drop(then);
    assert!(weak.upgrade().is_some());
    let again = vfs.snapshot(Moment::of_token(token).unwrap(), &Arc::default()).unwrap();
    assert_eq!(Arc::as_ptr(&again).addr(), address);
}

/// Tests n and n + 1 bytes that are reserved, and that a core changes nothing when it gives up.
#[test]
fn a_core_reserves_little() {
    let host = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let made = vfs.open(&name("file"), &how(Existence::MustNotExist)).unwrap();
    let reserve = |bytes| patience::short(|| made.node.set_allocation(bytes));
    let allocated = || made.node.stat().unwrap().allocation;
    assert_eq!(reserve(RESERVED_ON_CORE + 1), (Err(Fault::Leased), true));
    assert_eq!(allocated(), 0);
    assert_eq!(reserve(RESERVED_ON_CORE), (Ok(()), false));
}
