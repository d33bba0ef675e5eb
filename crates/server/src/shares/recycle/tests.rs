use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use frevo_store::name::Rules;
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{Existence, Fault, OpenHow, Opened, Replacement, Space, VfsResult, Volume};
use frevo_store::{FileKey, Node, Stat, Vfs};
use frevo_wire::dtyp::FileTime;

use super::expiry::Walk;
use super::*;
use crate::shares::folders::testing::{PosixOptions, PosixVfs};
use crate::shares::protection::LOOK;

/// A folder of the host, shared with a bin.
struct World {
    folder: tempfile::TempDir,
    base: Arc<dyn Vfs>,
    bin: Arc<RecycleBin>,
}

fn world(bin: RecycleBin, options: PosixOptions) -> World {
    let folder = tempfile::tempdir().unwrap();
    let options = PosixOptions { recycle: Some(bin.folder.clone()), ..options };
    let base: Arc<dyn Vfs> = Arc::new(PosixVfs::open_root(folder.path(), options).unwrap());
    World { folder, base, bin: Arc::new(bin) }
}

fn plain() -> World {
    world(RecycleBin::default(), PosixOptions::default())
}

fn name(text: &str) -> Name {
    Name::parse(text, Rules::Windows).unwrap()
}

impl World {
    fn of(&self, account: &str) -> Arc<dyn Vfs> {
        Arc::new(RecyclingVfs::new(Arc::clone(&self.base), Arc::clone(&self.bin), account, None))
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The content of each file below a folder, by path.
    fn files(&self, folder: &str) -> Vec<(String, String)> {
        fn walk(root: &Path, folder: &Path, into: &mut Vec<(String, String)>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, into);
                } else {
                    let text = std::fs::read_to_string(&path).unwrap();
                    into.push((path.strip_prefix(root).unwrap().display().to_string(), text));
                }
            }
        }
        let (mut files, root) = (Vec::new(), self.path(folder));
        walk(&root, &root, &mut files);
        files.sort();
        files
    }

    fn bin_of(&self, account: &str) -> Vec<(String, String)> {
        self.files(&format!(".recycle/{account}"))
    }
}

fn key(vfs: &dyn Vfs, text: &str) -> VfsResult<FileKey> {
    vfs.open(&name(text), &LOOK).map(|opened| opened.node.key())
}

fn delete(vfs: &dyn Vfs, text: &str) -> VfsResult<()> {
    vfs.remove(&name(text), key(vfs, text)?)
}

fn list(vfs: &dyn Vfs, text: &str) -> Vec<String> {
    let how = OpenHow { read: true, ..OpenHow::DIRECTORY };
    let mut listing = vfs.open(&name(text), &how).unwrap().node.directory().unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next_name().unwrap() {
        names.push(name.to_owned());
    }
    names.sort();
    names
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn a_deleted_file_keeps_its_path_and_can_be_moved_back() {
    let w = plain();
    w.write("docs/Letters/to bob.txt", "dear bob");
    let ann = w.of("Ann");
    delete(&*ann, "docs\\letters\\TO BOB.txt").unwrap();
    assert!(!w.path("docs/Letters/to bob.txt").exists() && w.path("docs/Letters").is_dir());
    let kept = w.bin_of("ann");
    assert_eq!(kept.len(), 1);
    assert!(kept[0].0.eq_ignore_ascii_case("docs/letters/to bob.txt") && kept[0].1 == "dear bob");
    assert_eq!((w.bin.counts.kept(), w.bin.counts.lost()), (1, 0));
    let back = name(".recycle\\ann\\docs\\letters\\to bob.txt");
    let key = ann.open(&back, &LOOK).unwrap().node.key();
    ann.rename(&back, key, &name("docs\\back.txt"), false).unwrap();
    assert_eq!(std::fs::read_to_string(w.path("docs/back.txt")).unwrap(), "dear bob");
    let mode = |path: &str| std::fs::metadata(w.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(".recycle"), mode(".recycle/ann")), (0o755, 0o700));
}

#[test]
fn names_that_collide_get_numbers() {
    let w = plain();
    let ann = w.of("ann");
    for text in ["one", "two", "three"] {
        w.write("a.txt", text);
        delete(&*ann, "a.txt").unwrap();
    }
    let expected = [("a (2).txt", "two"), ("a (3).txt", "three"), ("a.txt", "one")];
    assert_eq!(w.bin_of("ann"), pairs(&expected));
    // Without `versions`, the bin has only the newest file of each name, and a file never replaces
    // a folder.
    let w = world(RecycleBin { versions: false, ..RecycleBin::default() }, PosixOptions::default());
    let ann = w.of("ann");
    for text in ["one", "two"] {
        w.write("a", text);
        delete(&*ann, "a").unwrap();
    }
    std::fs::remove_file(w.path(".recycle/ann/a")).unwrap();
    w.write("a/b", "inside");
    delete(&*ann, "a\\b").unwrap();
    std::fs::remove_dir(w.path("a")).unwrap();
    w.write("a", "file");
    delete(&*ann, "a").unwrap();
    assert_eq!(w.bin_of("ann"), pairs(&[("a (2)", "file"), ("a/b", "inside")]));
}

#[test]
fn a_file_of_the_bin_in_the_way_does_not_keep_a_file_from_it() {
    let w = plain();
    let ann = w.of("ann");
    w.write("a", "file");
    delete(&*ann, "a").unwrap();
    w.write("a/b", "inside");
    delete(&*ann, "a\\b").unwrap();
    assert_eq!(w.bin_of("ann"), pairs(&[("a", "file"), ("b", "inside")]));
}

#[test]
fn only_files_with_content_that_are_wanted_go_to_the_bin() {
    let exclude = ["*.tmp", "cache"].map(|pattern| Pattern::new(pattern, true)).into();
    let bin = RecycleBin { exclude, max_file_size: Some(5), ..RecycleBin::default() };
    let w = world(bin, PosixOptions::default());
    for (path, text) in [
        ("a.TMP", "x"),
        ("Cache/deep/b", "x"),
        ("large", "123456"),
        ("empty", ""),
        ("fits", "12345"),
    ] {
        w.write(path, text);
    }
    symlink("fits", w.path("link")).unwrap();
    std::fs::create_dir(w.path("folder")).unwrap();
    let ann = w.of("ann");
    for gone in ["a.tmp", "cache\\deep\\b", "large", "empty", "link", "folder", "fits"] {
        delete(&*ann, gone).unwrap_or_else(|fault| panic!("{gone}: {fault}"));
    }
    assert_eq!(w.bin_of("ann"), pairs(&[("fits", "12345")]));
    assert_eq!(w.files("."), pairs(&[(".recycle/ann/fits", "12345")]));
}

#[test]
fn a_stream_is_removed_and_goes_with_its_file() {
    let w = plain();
    w.write("a", "data");
    let ann = w.of("ann");
    let make = |text: &str| {
        let how = OpenHow { existence: Existence::Either, write: true, ..OpenHow::LOOK };
        let opened = ann.open(&name(text), &how).unwrap();
        opened.node.write_at(0, text.as_bytes()).unwrap();
        opened.node.key()
    };
    let one = make("a:one");
    make("a:two");
    ann.remove(&name("a:one"), one).unwrap();
    delete(&*ann, "a").unwrap();
    let kept = ann.open(&name(".recycle\\ann\\a"), &LOOK).unwrap();
    let streams = kept.node.streams().unwrap();
    assert_eq!(streams.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["two"]);
}

#[test]
fn one_of_two_names_goes_and_the_other_stays() {
    let w = plain();
    w.write("a", "data");
    std::fs::hard_link(w.path("a"), w.path("b")).unwrap();
    let ann = w.of("ann");
    let first = key(&*ann, "a").unwrap();
    ann.remove(&name("a"), first).unwrap();
    assert_eq!(key(&*ann, "b"), Ok(first));
    assert_eq!(w.bin_of("ann"), pairs(&[("a", "data")]));
    // The first link of the file is already in the bin. Removing the second link must put it into
    // the bin as well.
    ann.remove(&name("b"), first).unwrap();
    assert_eq!(w.bin_of("ann"), pairs(&[("a", "data"), ("b", "data")]));
}

#[test]
fn another_object_of_the_name_stays() {
    let w = plain();
    w.write("a", "old");
    w.write("c", "other");
    let ann = w.of("ann");
    let old = key(&*ann, "a").unwrap();
    std::fs::rename(w.path("c"), w.path("a")).unwrap();
    assert_eq!(ann.remove(&name("a"), old), Err(Fault::Stale));
    assert_eq!(w.files("."), pairs(&[("a", "other")]));
}

#[test]
fn a_file_deleted_in_the_bin_is_gone() {
    let w = plain();
    w.write("docs/a", "data");
    let ann = w.of("ann");
    delete(&*ann, "docs\\a").unwrap();
    delete(&*ann, ".recycle\\ann\\docs\\a").unwrap();
    delete(&*ann, ".recycle\\ann\\docs").unwrap();
    delete(&*ann, ".recycle\\ann").unwrap();
    assert!(w.path(".recycle").is_dir() && w.files(".recycle").is_empty());
    // The bin's folder was removed, so deleting a file creates it again.
    w.write("b", "data");
    delete(&*ann, "b").unwrap();
    assert_eq!(w.bin_of("ann"), pairs(&[("b", "data")]));
    let mode = std::fs::metadata(w.path(".recycle/ann")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// Every way by which a client names a file.
fn cannot_reach(vfs: &dyn Vfs, text: &str, rules: Rules) {
    let name = Name::parse(text, rules).unwrap();
    let other = Name::parse("other", rules).unwrap();
    let own = vfs.open(&other, &LOOK).unwrap();
    let make =
        |existence| vfs.open(&name, &OpenHow { existence, write: true, ..OpenHow::LOOK }).map(drop);
    let refused = |result: VfsResult<()>| {
        let known = [Fault::AccessDenied, Fault::NotFound, Fault::PathNotFound, Fault::Symlink];
        assert!(result.is_err_and(|fault| known.contains(&fault)), "{text}: {result:?}");
    };
    refused(vfs.open(&name, &OpenHow::LOOK).map(drop));
    refused(make(Existence::Either));
    refused(make(Existence::MustNotExist));
    refused(vfs.stat(&name).map(drop));
    refused(vfs.rename(&other, own.node.key(), &name, true).map(drop));
    refused(vfs.link(&*own.node, &name, true));
    if let Ok(parent) = vfs.open_parent(&name) {
        let parent = frevo_store::vfs::Parent { node: &*parent.node, name: &parent.name };
        refused(vfs.open_in(parent, &name, &OpenHow::LOOK).map(drop));
    }
}

#[test]
fn nobody_reaches_the_bin_of_another() {
    let options =
        PosixOptions { short_names: true, follow_symlinks_inside: true, ..PosixOptions::default() };
    let w = world(RecycleBin::default(), options);
    w.write("secret long name.txt", "bob's");
    w.write("other", "x");
    let (ann, bob) = (w.of("ann"), w.of("bob with a long name"));
    let secret = key(&*bob, "secret long name.txt").unwrap();
    bob.remove(&name("secret long name.txt"), secret).unwrap();
    w.write("mine", "ann's");
    delete(&*ann, "mine").unwrap();
    symlink(".recycle", w.path("link")).unwrap();
    symlink(".recycle/bob with a long name", w.path("direct")).unwrap();
    let bin = ".recycle\\bob with a long name";
    for path in [bin.to_owned(), format!("{bin}\\secret long name.txt"), format!("{bin}\\new")] {
        cannot_reach(&*ann, &path, Rules::Windows);
        cannot_reach(&*ann, &path.to_uppercase(), Rules::Windows);
        cannot_reach(&*ann, &path.replace('\\', "/"), Rules::Posix);
    }
    for path in ["link\\bob with a long name\\new", "direct\\secret long name.txt", "direct\\new"] {
        cannot_reach(&*ann, path, Rules::Windows);
    }
    // The folders of the bin cannot be reached by their short names either.
    let short = |text: &str| {
        let name = name(text);
        frevo_store::short_name::short_name(name.last()).unwrap()
    };
    let (top, folder) = (short(".recycle"), short(bin));
    for path in [format!("{top}\\{folder}\\new"), format!(".recycle\\{folder}\\new")] {
        assert!(w.base.open_parent(&name(&path)).is_ok(), "{path}");
        cannot_reach(&*ann, &path, Rules::Windows);
    }
    assert_eq!(list(&*ann, ".recycle"), ["ann"]);
    assert_eq!(list(&*bob, ".RECYCLE"), ["bob with a long name"]);
    assert!(key(&*ann, ".recycle\\ann\\mine").is_ok());
    assert_eq!(w.files(bin.replace('\\', "/").as_str()).len(), 1);
}

#[test]
fn the_folders_of_the_bin_stay_where_they_are() {
    let w = plain();
    w.write("a", "data");
    let ann = w.of("ann");
    // Clients must not create the bin's folder themselves, even in another case.
    let how = OpenHow { existence: Existence::MustNotExist, ..OpenHow::DIRECTORY };
    assert_eq!(ann.open(&name(".Recycle"), &how).map(drop), Err(Fault::AccessDenied));
    delete(&*ann, "a").unwrap();
    w.write("a", "data");
    for folder in [".recycle", ".recycle\\ann"] {
        let opened = ann.open(&name(folder), &OpenHow::DIRECTORY).unwrap();
        let moved = ann.rename(&name(folder), opened.node.key(), &name("away"), false);
        assert_eq!(moved, Err(Fault::AccessDenied), "{folder}");
        let by = ann.replace(&name(folder), &*opened.node, &Replacement::Symlink("/etc"));
        assert_eq!(by, Err(Fault::AccessDenied));
        let onto = ann.rename(&name("a"), key(&*ann, "a").unwrap(), &name(folder), true);
        assert_eq!(onto, Err(Fault::AccessDenied));
    }
    assert!(delete(&*ann, ".recycle").is_err());
    let top = ann.open(&name(".recycle"), &OpenHow::DIRECTORY).unwrap();
    assert!(top.node.set_security(&frevo_store::vfs::SecurityChange::default()).is_err());
    assert!(!top.node.host_access().owner);
}

/// Whoever can write to the share's folder on the host cannot turn the bin elsewhere.
#[test]
fn a_link_in_place_of_the_bin_is_not_followed() {
    for inside in [true, false] {
        let options = PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() };
        let w = world(RecycleBin::default(), options);
        w.write("a", "data");
        std::fs::create_dir_all(w.path("elsewhere/ann")).unwrap();
        if inside {
            std::fs::create_dir(w.path(".recycle")).unwrap();
            symlink("../elsewhere", w.path(".recycle/ann")).unwrap();
        } else {
            symlink("elsewhere", w.path(".recycle")).unwrap();
        }
        assert!(delete(&*w.of("ann"), "a").is_err());
        assert!(w.files("elsewhere").is_empty());
        assert_eq!(std::fs::read_to_string(w.path("a")).unwrap(), "data");
    }
}

#[test]
fn a_full_disk_frees_space_by_deleting() {
    let memory = Arc::new(frevo_store::memory::MemoryVfs::new(
        frevo_store::memory::MemoryOptions::default(),
        Arc::new(|| FileTime(0)),
    ));
    let bin = Arc::new(RecycleBin::default());
    let ann = RecyclingVfs::new(Arc::clone(&memory) as _, Arc::clone(&bin), "ann", None);
    let make = |text: &str| {
        let how = OpenHow { existence: Existence::Either, write: true, ..OpenHow::LOOK };
        let opened = ann.open(&name(text), &how).unwrap();
        opened.node.write_at(0, b"data").unwrap();
        opened.node.key()
    };
    let (a, b) = (make("a"), make("b"));
    ann.remove(&name("a"), a).unwrap();
    memory.faults().fail_next(frevo_store::memory::Operation::Rename, Fault::DiskFull);
    ann.remove(&name("b"), b).unwrap();
    assert_eq!((bin.counts.kept(), bin.counts.lost()), (1, 1));
    assert_eq!(key(&ann, "b"), Err(Fault::NotFound));
}

fn later(hours: u64) -> FileTime {
    let now = crate::base::ambient::Ambient::now(&crate::base::ambient::Host);
    FileTime(now.0 + hours * 36_000_000_000)
}

#[test]
fn old_files_and_empty_folders_go() {
    let keep = Some(Duration::from_secs(48 * 3_600));
    let w = world(RecycleBin { keep, ..RecycleBin::default() }, PosixOptions::default());
    let (ann, bob) = (w.of("ann"), w.of("bob"));
    for path in ["docs/deep/a", "docs/b", "c"] {
        w.write(path, "data");
        delete(&*ann, &path.replace('/', "\\")).unwrap();
    }
    w.write("d", "data");
    delete(&*bob, "d").unwrap();
    w.write("stays", "data");
    let expire = |hours| Walk::new(&*w.base, later(hours), &mut || true).expire(&w.bin);
    assert_eq!(expire(47).files, 0);
    assert_eq!(w.bin_of("ann").len(), 3);
    let removed = expire(49);
    assert_eq!((removed.files, removed.bytes), (4, 16));
    assert!(w.path(".recycle/ann").is_dir() && !w.path(".recycle/ann/docs").exists());
    assert_eq!(w.files("."), pairs(&[("stays", "data")]));
}

#[test]
fn a_large_bin_loses_its_oldest_files() {
    let w =
        world(RecycleBin { max_size: Some(10), ..RecycleBin::default() }, PosixOptions::default());
    let (ann, bob) = (w.of("ann"), w.of("bob"));
    for (user, path) in [(&ann, "a"), (&ann, "b"), (&ann, "c"), (&bob, "d")] {
        w.write(path, "1234");
        delete(&**user, path).unwrap();
    }
    let expire = || Walk::new(&*w.base, later(0), &mut || true).expire(&w.bin);
    // Each user's bin has its own limit: ann's bin has 12 bytes and loses a file, bob's has 4 bytes
    // and loses none.
    assert_eq!(expire().files, 1);
    assert_eq!((w.bin_of("ann").len(), w.bin_of("bob").len()), (2, 1));
    assert_eq!(expire().files, 0);
}

#[test]
fn a_link_in_the_bin_is_removed_and_not_followed() {
    let keep = Some(Duration::from_secs(3_600));
    let options = PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() };
    let w = world(RecycleBin { keep, ..RecycleBin::default() }, options);
    w.write("precious/file", "data");
    w.write(".recycle/ann/old", "data");
    symlink("../../precious", w.path(".recycle/ann/way")).unwrap();
    symlink("../precious", w.path(".recycle/eve")).unwrap();
    let inode = std::fs::metadata(w.path("precious/file")).unwrap().ino();
    Walk::new(&*w.base, later(1_000), &mut || true).expire(&w.bin);
    assert_eq!(std::fs::metadata(w.path("precious/file")).unwrap().ino(), inode);
    assert!(w.path(".recycle/ann/way").symlink_metadata().is_err());
    assert!(w.bin_of("ann").is_empty());
}

#[test]
fn a_walk_ends_when_the_server_stops() {
    let keep = Some(Duration::from_secs(3_600));
    let w = world(RecycleBin { keep, ..RecycleBin::default() }, PosixOptions::default());
    let files = crate::base::limits::RECYCLE_SLICE + 10;
    for file in 0..files {
        w.write(&format!(".recycle/ann/{file}"), "x");
    }
    let mut pauses = 0;
    let mut stop = || {
        pauses += 1;
        false
    };
    let removed = Walk::new(&*w.base, later(1_000), &mut stop).expire(&w.bin);
    assert_eq!((pauses, removed.files), (1, 0));
    assert_eq!(w.bin_of("ann").len(), files);
}

#[test]
fn changes_in_the_bin_of_another_are_recognised() {
    let bin = RecycleBin::default();
    let own = bin.folder_of("Ann");
    let hides = |text: &str| bin.hides(&name(text), &own);
    assert!(hides(".recycle\\bob") && hides(".RECYCLE\\bob\\a"));
    assert!(!hides(".recycle") && !hides(".recycle\\ANN\\a") && !hides("docs\\bob") && !hides("a"));
}

#[test]
fn a_deletion_far_below_leaves_the_core() {
    let world = plain();
    let ann = world.of("ann");
    for (depth, leaves) in [(10, false), (300, true)] {
        let path = format!("{}file", "a\\".repeat(depth));
        world.write(&path.replace('\\', "/"), "text");
        let (done, gave_up) = crate::base::host::short_patience(|| delete(&*ann, &path));
        assert_eq!((done.is_err(), gave_up), (leaves, leaves), "{depth}");
        if leaves {
            assert!(world.path(&path.replace('\\', "/")).exists(), "nothing was changed");
            delete(&*ann, &path).unwrap();
        }
        assert!(!world.path(&path.replace('\\', "/")).exists());
    }
    assert_eq!(world.bin_of("ann").len(), 2);
}

/// A share whose snapshot has everything under one name.
#[derive(Debug)]
struct Renaming {
    inner: Arc<dyn Vfs>,
    earlier: &'static str,
}

impl Vfs for Renaming {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.inner.open(name, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.inner.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.inner.rename(from, key, to, replace)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.inner.link(node, to, replace)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.inner.stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.inner.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.inner.volume()
    }

    fn name_in_snapshot(&self, _: Moment, _: &Name) -> VfsResult<Option<Name>> {
        Ok(Some(name(self.earlier)))
    }
}

#[test]
fn no_earlier_name_leads_into_the_bin_of_another() {
    let w = plain();
    let then = Moment::of_token("@GMT-2024.02.29-12.00.00").unwrap();
    for (earlier, is_found) in
        [("docs\\a", true), (".recycle\\ann\\a", true), (".recycle\\bob\\a", false)]
    {
        let base = Arc::new(Renaming { inner: Arc::clone(&w.base), earlier });
        let ann = RecyclingVfs::new(base, Arc::clone(&w.bin), "ann", None);
        let found = ann.name_in_snapshot(then, &name("a")).unwrap();
        assert_eq!(found.is_some(), is_found, "{earlier}");
        assert_eq!(ann.name_in_snapshot(then, &name(".recycle\\bob\\a")), Ok(None));
    }
}
