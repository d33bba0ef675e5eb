//! Attributes and creation times of copies.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use frevo_client::{FileAttributes, SetMetadata};
use harness::world::World;

const R: u32 = FileAttributes::READONLY.bits();
const H: u32 = FileAttributes::HIDDEN.bits();
const S: u32 = FileAttributes::SYSTEM.bits();
const A: u32 = FileAttributes::ARCHIVE.bits();

fn told(world: &World, path: &str) -> serde_json::Value {
    serde_json::from_str(world.run(&["stat", "--json", &world.url(path)]).succeeds()).unwrap()
}

fn attributes(world: &World, path: &str) -> u32 {
    let all = told(world, path)["attributes"].as_u64().unwrap();
    u32::try_from(all).unwrap() & (R | H | S | A)
}

fn dress(world: &World, path: &str, attributes: u32, created: Option<SystemTime>) {
    let attributes = Some(FileAttributes::from_bits(attributes));
    let basic = SetMetadata::new().created(created).attributes(attributes);
    world.in_share(async |share| share.set_metadata(path, &basic).await.unwrap());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn make(path: &Path, data: &[u8], mode: u32) {
    let _ = fs::remove_file(path);
    fs::write(path, data).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Small files go another way than large ones.
const SIZES: [usize; 2] = [100, 200_000];

#[test]
fn copies_on_servers_are_dressed_as_their_sources() {
    let (world, other) = (World::new(), World::new());
    let created = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for size in SIZES {
        for name in ["hidden", "read-only", "plain", "bare"] {
            fs::write(world.there(name), vec![7; size]).unwrap();
        }
        dress(&world, "hidden", H | S | A, Some(created));
        dress(&world, "read-only", R | H, Some(created));
        dress(&world, "plain", A, Some(created));
        dress(&world, "bare", 0, None);
        for to in [&world, &other] {
            for name in ["hidden", "read-only", "plain", "bare"] {
                let copy = format!("copy of {name}");
                world.run(&["cp", &world.url(name), &to.url(&copy)]).succeeds();
                assert_eq!(attributes(to, &copy), attributes(&world, name), "{name}");
                let times = ["created", "modified"];
                for time in times.iter().filter(|_| name != "bare") {
                    assert_eq!(told(to, &copy)[time], told(&world, name)[time], "{name}");
                }
            }
            world
                .run(&["cp", "--attributes", "none", &world.url("hidden"), &to.url("not")])
                .succeeds();
            assert_eq!(attributes(to, "not"), A);
            assert_ne!(told(to, "not")["created"], told(&world, "hidden")["created"]);
            world.run(&["rm", "-f", &to.url("copy of read-only")]).succeeds();
        }
        world.run(&["rm", "-f", &world.url("read-only")]).succeeds();
    }
}

#[test]
fn a_read_only_file_is_one_there_and_here() {
    let world = World::new();
    for size in SIZES {
        make(&world.place.path("file"), &vec![1; size], 0o444);
        world.run(&["put", "file", &world.url("file")]).succeeds();
        assert_eq!(attributes(&world, "file"), R | A);
        world.run(&["get", &world.url("file"), "back"]).succeeds();
        assert_eq!(mode(&world.place.path("back")), 0o444);
        // A local file can be replaced if its folder is writable. On the server READONLY protects
        // the file itself, so `put` fails without --force.
        make(&world.place.path("file"), &vec![2; size], 0o644);
        world.run(&["put", "file", &world.url("file")]).fails(1, &["read-only", "--force"]);
        assert_eq!(fs::read(world.there("file")).unwrap(), vec![1; size]);
        world.run(&["put", "--force", "file", &world.url("file")]).succeeds();
        assert_eq!(fs::read(world.there("file")).unwrap(), vec![2; size]);
        assert_eq!(attributes(&world, "file"), A, "no more");
        world.run(&["get", &world.url("file"), "back"]).succeeds();
        assert_eq!(mode(&world.place.path("back")), 0o644);
        make(&world.place.path("file"), &vec![1; size], 0o444);
        world.run(&["put", "--attributes", "none", "file", &world.url("bare")]).succeeds();
        assert_eq!(attributes(&world, "bare"), A);
        fs::remove_file(world.there("file")).unwrap();
        fs::remove_file(world.place.path("back")).unwrap();
    }
}

#[test]
fn what_is_hidden_or_private_stays_so() {
    let world = World::new();
    for size in SIZES {
        fs::write(world.there("file"), b"old").unwrap();
        dress(&world, "file", H | S | A, None);
        make(&world.place.path("file"), &vec![1; size], 0o644);
        world.run(&["put", "file", &world.url("file")]).succeeds();
        assert_eq!(fs::read(world.there("file")).unwrap(), vec![1; size]);
        assert_eq!(attributes(&world, "file"), H | S | A);
        for kept in [0o600, 0o755] {
            make(&world.place.path("mine"), b"old", kept);
            world.run(&["get", &world.url("file"), "mine"]).succeeds();
            assert_eq!(fs::read(world.place.path("mine")).unwrap(), vec![1; size]);
            assert_eq!(mode(&world.place.path("mine")), kept);
        }
        world.run(&["rm", &world.url("file")]).succeeds();
    }
}

#[test]
fn what_linux_has_no_place_for_goes_there_and_back_when_it_is_asked_for() {
    let (world, other) = (World::new(), World::new());
    let created = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for size in SIZES {
        fs::write(world.there("file"), vec![3; size]).unwrap();
        dress(&world, "file", H | R, Some(created));
        let got = world.run(&["get", "--attributes", "xattr", &world.url("file"), "here"]);
        if got.err.contains("not supported") {
            return;
        }
        got.succeeds();
        other
            .run(&[
                "put",
                "--attributes",
                "xattr",
                harness::text(&world.place.path("here")),
                &other.url("file"),
            ])
            .succeeds();
        assert_eq!(attributes(&other, "file"), H | R);
        assert_eq!(told(&other, "file")["created"], told(&world, "file")["created"]);
        for world in [&world, &other] {
            world.run(&["rm", "-f", &world.url("file")]).succeeds();
        }
        fs::remove_file(world.place.path("here")).unwrap();
    }
}

#[test]
fn what_is_replaced_keeps_its_access_list() {
    let world = World::new();
    for size in SIZES {
        make(&world.place.path("file"), &vec![1; size], 0o644);
        fs::write(world.there("file"), b"old").unwrap();
        let url = world.url("file");
        world
            .run(&["acl", &url, "--set", "allow:ann:full", "--set", "allow:S-1-1-0:read"])
            .succeeds();
        let list = world.run(&["acl", &url]).succeeds().to_owned();
        world.run(&["put", "file", &url]).succeeds();
        assert_eq!(fs::read(world.there("file")).unwrap(), vec![1; size]);
        assert_eq!(world.run(&["acl", &url]).succeeds(), list);
        // Replacing a file creates a new one, but the user still needs the right to write to the
        // old file.
        world.run(&["acl", &url, "--add", "deny:S-1-1-0:w"]).succeeds();
        make(&world.place.path("file"), &vec![2; size], 0o644);
        world.run(&["put", "file", &url]).fails(1, &["permission denied"]);
        assert_eq!(fs::read(world.there("file")).unwrap(), vec![1; size]);
        fs::remove_file(world.there("file")).unwrap();
    }
}

#[test]
fn a_limit_on_the_rate_is_kept() {
    let world = World::new();
    make(&world.place.path("file"), &vec![1; 1 << 20], 0o644);
    make(&world.place.path("small"), &vec![1; 60_000], 0o644);
    make(&world.place.path("other"), &vec![1; 60_000], 0o644);
    let timed = |arguments: &[&str]| {
        let start = std::time::Instant::now();
        world.run(arguments).succeeds();
        start.elapsed().as_secs_f64()
    };
    let url = world.url("file");
    assert!(timed(&["put", "--bwlimit", "500k", "file", "small", "other", &world.url("")]) > 1.8);
    assert!(timed(&["get", "--bwlimit", "500k", &url, "back"]) > 1.5);
    assert_eq!(fs::read(world.place.path("back")).unwrap(), vec![1; 1 << 20]);
    assert!(timed(&["get", "--bwlimit", "500k", &url, "-"]) > 1.5);
    world.run(&["get", "--bwlimit", "0", &url, "back"]).fails(2, &["the rate must be more than 0"]);
}

/// Folders get the times of their sources when their content is whole, also from a run that goes on
/// after an interrupted one.
#[test]
fn folders_keep_their_times() {
    let (world, other) = (World::new(), World::new());
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("a/b/empty")).unwrap();
    for name in ["top", "a/one", "a/b/two"] {
        fs::write(here.join(name), name).unwrap();
    }
    let folders = ["a/b/empty", "a/b", "a", ""];
    let time = |number: u64| SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + number, 700);
    let set = |root: &Path, step: u64| {
        for (number, name) in (1..).zip(folders) {
            let folder = fs::File::open(root.join(name)).unwrap();
            folder.set_modified(time(number * step)).unwrap();
        }
    };
    let have = |root: &Path, step: u64| {
        for (number, name) in (1..).zip(folders) {
            let found = fs::metadata(root.join(name)).unwrap().modified().unwrap();
            assert_eq!(found, time(number * step), "{}/{name}", root.display());
        }
    };
    set(&here, 10);
    world.run(&["put", "-r", "here", &world.url("put")]).succeeds();
    have(&world.there("put"), 10);
    world.run(&["cp", "-r", &world.url("put"), &world.url("copy")]).succeeds();
    have(&world.there("copy"), 10);
    let away = world.run(&["cp", "-r", &world.url("put"), &other.url("copy")]);
    away.succeeds();
    have(&other.there("copy"), 10);
    world.run(&["get", "-r", &world.url("put"), "back"]).succeeds();
    have(&world.place.path("back"), 10);
    world.run(&["sync", "here", &world.url("sync")]).succeeds();
    have(&world.there("sync"), 10);
    assert_eq!(world.run(&["sync", "-n", "here", &world.url("sync")]).succeeds(), "");
    // First only times have changed. Later a file in the folder changes, and the folder must keep
    // its time.
    set(&here, 20);
    world.run(&["sync", "here", &world.url("sync")]).succeeds();
    have(&world.there("sync"), 20);
    fs::write(here.join("a/b/two"), "longer").unwrap();
    fs::remove_file(here.join("a/one")).unwrap();
    set(&here, 20);
    world.run(&["sync", "--delete", "here", &world.url("sync")]).succeeds();
    have(&world.there("sync"), 20);
    assert!(!world.there("sync/a/one").exists());
    world.run(&["sync", "--delete", &world.url("sync"), "back"]).succeeds();
    have(&world.place.path("back"), 20);
    // The folders get wrong times, as an interrupted run leaves them; the next run must correct
    // them.
    set(&world.there("sync"), 1);
    world.run(&["put", "-r", "here/a", &world.url("sync/")]).succeeds();
    world.run(&["sync", "here", &world.url("sync")]).succeeds();
    have(&world.there("sync"), 20);
}

/// As `rsync -l` with `--safe-links`: links that lead out of the tree would lead anywhere elsewhere.
#[test]
fn links_are_copied_if_they_stay_in_the_tree() {
    use std::os::unix::fs::symlink;

    let world = World::new();
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("a/b")).unwrap();
    fs::write(here.join("a/file"), "x").unwrap();
    let safe =
        [("to-file", "a/file"), ("a/b/up", "../file"), ("to-dir", "a/b"), ("dangling", "no")];
    let others = [("out", "../secret"), ("absolute", "/etc/passwd"), ("a/far", "../../x")];
    for (name, target) in safe.iter().chain(&others) {
        symlink(target, here.join(name)).unwrap();
    }
    let without = world.run(&["put", "-r", "here", &world.url("without")]);
    assert!(without.err.contains("skipped links"), "{without:?}");
    assert!(!world.run(&["find", &world.url("without")]).succeeds().contains("to-file"));
    let have = |root: &Path| {
        for (name, target) in safe {
            assert_eq!(fs::read_link(root.join(name)).unwrap(), Path::new(target), "{name}");
        }
        for (name, _) in others {
            assert!(root.join(name).symlink_metadata().is_err(), "{name}");
        }
    };
    for (line, back) in [
        (&["put", "-r", "--links", "here", &world.url("put")][..], "put"),
        (&["sync", "-l", "here", &world.url("sync")], "sync"),
        (&["cp", "-r", "-l", &world.url("put"), &world.url("cp")], "cp"),
    ] {
        let done = world.run(line);
        done.succeeds();
        let told = done.err.contains("links that lead out of the copied directory");
        assert_eq!(told, back != "cp", "{done:?}");
        world.run(&["get", "-r", "-l", &world.url(back), back]).succeeds();
        have(&world.place.path(back));
        // The links exist already and have the same targets, so they are not made again.
        world.run(line).succeeds();
    }
    let dry = world.run(&["sync", "-n", "-l", "here", &world.url("sync")]);
    assert!(!dry.succeeds().contains("to-file"), "{dry:?}");
    // Locally, a link becomes a file, a file becomes a link, and a third link is removed. --delete
    // must remove the third link from the copy, too.
    fs::remove_file(here.join("to-file")).unwrap();
    fs::write(here.join("to-file"), "a file").unwrap();
    fs::remove_file(here.join("dangling")).unwrap();
    fs::remove_file(here.join("a/file")).unwrap();
    symlink("b", here.join("a/file")).unwrap();
    world.run(&["sync", "-l", "--delete", "here", &world.url("sync")]).succeeds();
    world.run(&["sync", "-l", "--delete", &world.url("sync"), "sync"]).succeeds();
    let back = world.place.path("sync");
    assert_eq!(fs::read_to_string(back.join("to-file")).unwrap(), "a file");
    assert!(back.join("dangling").symlink_metadata().is_err());
    assert_eq!(fs::read_link(back.join("a/file")).unwrap(), Path::new("b"));
    // One link gets a new target. Two directories of the copy must become links, of which `over`
    // leads out of the tree.
    fs::remove_file(here.join("a/file")).unwrap();
    symlink("b/more", here.join("a/file")).unwrap();
    for (name, target) in [("in", "a"), ("over", "../secret")] {
        fs::create_dir_all(world.there("sync").join(name).join("below")).unwrap();
        fs::write(world.there("sync").join(name).join("below/file"), "old").unwrap();
        symlink(target, here.join(name)).unwrap();
    }
    let done = world.run(&["sync", "-l", "--delete", "here", &world.url("sync")]);
    done.succeeds();
    assert!(done.err.contains("links that lead out"), "{done:?}");
    assert!(world.there("sync/over/below/file").exists(), "there is no link in its place");
    world.run(&["sync", "-l", "--delete", &world.url("sync"), "sync"]).succeeds();
    assert_eq!(fs::read_link(back.join("a/file")).unwrap(), Path::new("b/more"));
    assert_eq!(fs::read_link(back.join("in")).unwrap(), Path::new("a"));
    let parts = world.run(&["find", &world.url("sync"), "--name", "*.frevo-part"]);
    assert_eq!(parts.succeeds(), "");
}

#[test]
fn a_link_takes_no_place_before_it_is_made() {
    use std::os::unix::fs::symlink;

    let world = World::new();
    let here = world.place.folder("here");
    symlink("a", here.join("l")).unwrap();
    fs::create_dir_all(world.there("there/here")).unwrap();
    fs::write(world.there("there/here/l"), "old").unwrap();
    dress(&world, "there/here/l", R, None);
    let put = |more: &str| world.run(&["put", "-r", "-l", more, "here", &world.url("there")]);
    put("--attributes=keep").fails(1, &["read-only", "--force"]);
    assert_eq!(fs::read(world.there("there/here/l")).unwrap(), b"old");
    put("--force").succeeds();
    let found = world.run(&["find", &world.url("there"), "--type", "l"]);
    assert!(found.succeeds().contains("here/l"), "{found:?}");
}
