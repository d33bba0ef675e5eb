//! Which files of a tree are meant.

mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use harness::world::World;

fn fill(folder: &Path) {
    for name in ["a.jpg", "a.tmp", "keep.tmp", "cache/x", "sub/b.JPG", "sub/b.tmp", "sub/cache/y"] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().map(Result::unwrap) {
            if entry.path().is_dir() {
                waiting.push(entry.path());
            } else {
                let path = entry.path();
                found.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn what_is_excluded_is_not_copied_by_any_command() {
    let world = World::new();
    let here = world.place.folder("here");
    fill(&here);
    fill(&world.there("source"));
    let filter = ["--exclude", "*.tmp", "--exclude", "cache/", "--include", "keep.*"];
    let wanted: BTreeSet<String> = ["a.jpg", "keep.tmp", "sub/b.JPG"].map(String::from).into();
    let run = |verb: &[&str], from: &str, to: &str| {
        world.run(&[verb, &filter, &[from, to]].concat()).succeeds().to_owned()
    };
    let source = world.url("source");
    for verb in [&["put", "-r"][..], &["sync"]] {
        let to = world.url(verb[0]);
        let dry = run(&[verb, &["-n"]].concat(), "here", &to);
        assert_eq!(dry.matches("copy").count(), 3, "{dry}");
        assert!(!world.there(verb[0]).exists());
        run(verb, "here", &to);
        assert_eq!(files(&world.there(verb[0])), wanted, "{verb:?}");
    }
    for verb in [&["get", "-r"][..], &["sync"], &["cp", "-r"]] {
        let to = format!("back-{}", verb[0]);
        let dry = run(&[verb, &["-n"]].concat(), &source, &to);
        assert_eq!(dry.matches("copy").count(), 3, "{dry}");
        assert!(!world.place.path(&to).exists());
        run(verb, &source, &to);
        assert_eq!(files(&world.place.path(&to)), wanted, "{verb:?}");
    }
    for verb in [&["cp", "-r"][..], &["sync"]] {
        let to = format!("copy-{}", verb[0]);
        run(&[verb, &["-n"]].concat(), &source, &world.url(&to));
        assert!(!world.there(&to).exists());
        run(verb, &source, &world.url(&to));
        assert_eq!(files(&world.there(&to)), wanted, "{verb:?}");
    }
    let file = world.url("source/a.jpg");
    for arguments in [["cp", "-n", &*file, &*world.url("new/")], ["get", "-n", &*file, "new/"]] {
        assert_eq!(world.run(&arguments).succeeds().matches("copy").count(), 1);
        assert!(!world.there("new").exists() && !world.place.path("new").exists());
    }
    let only = world.run(&["get", "-rn", "--json", "--include", "*.jpg", &source, "only"]);
    assert_eq!(only.succeeds().lines().count(), 2, "{only:?}");
    for line in only.out.lines() {
        let found: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(found["action"], "copy");
    }
}

#[test]
fn what_is_excluded_is_not_deleted() {
    let world = World::new();
    let here = world.place.folder("here");
    fill(&here);
    fill(&world.there("there"));
    for name in ["gone/x.jpg", "gone/x.tmp", "gone too/y.jpg", "old.jpg", "old.tmp"] {
        let path = world.there(&format!("there/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let sync = ["sync", "--delete", "--exclude", "*.tmp", "here", &world.url("there")];
    world.run(&sync).succeeds();
    let left = files(&world.there("there"));
    for kept in ["gone/x.tmp", "old.tmp", "a.tmp"] {
        assert!(left.contains(kept), "{left:?}");
    }
    for gone in ["gone/x.jpg", "gone too/y.jpg", "old.jpg"] {
        assert!(!left.contains(gone), "{left:?}");
    }
    assert!(!world.there("there/gone too").exists());
    // a.jpg is too old to be copied, but exists in the source, so --delete must not remove it from
    // the target.
    let old = SystemTime::now() - Duration::from_secs(10 * 86_400);
    fs::File::options().write(true).open(here.join("a.jpg")).unwrap().set_modified(old).unwrap();
    fs::write(world.there("there/a.jpg"), b"another").unwrap();
    world.run(&["sync", "--delete", "--newer-than", "7d", "here", &world.url("there")]).succeeds();
    assert_eq!(fs::read(world.there("there/a.jpg")).unwrap(), b"another");
    world.run(&["sync", "--older-than", "7d", "here", &world.url("there")]).succeeds();
    assert_eq!(fs::read(world.there("there/a.jpg")).unwrap(), b"a.jpg");
}

#[test]
fn what_is_newer_there_stays_when_it_is_asked_for() {
    let world = World::new();
    let here = world.place.folder("here");
    fs::write(here.join("x"), b"old").unwrap();
    fs::create_dir(world.there("there")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    fs::write(world.there("there/x"), b"newer").unwrap();
    world.run(&["sync", "--update", "here", &world.url("there")]).succeeds();
    assert_eq!(fs::read(world.there("there/x")).unwrap(), b"newer");
    world.run(&["sync", "here", &world.url("there")]).succeeds();
    assert_eq!(fs::read(world.there("there/x")).unwrap(), b"old");
}

#[test]
fn sync_makes_attributes_the_same_too() {
    use frevo_client::FileAttributes;
    use frevo_client::SetMetadata;
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let here = world.place.folder("here");
    fs::write(here.join("x"), b"x").unwrap();
    let there = world.url("there");
    let sync = |from: &str, to: &str| {
        world.run(&["sync", from, to]).succeeds();
        assert_eq!(world.run(&["sync", "-n", from, to]).succeeds(), "");
    };
    let mode =
        |mode| fs::set_permissions(here.join("x"), fs::Permissions::from_mode(mode)).unwrap();
    let told = |path: &str| {
        let told = world.run(&["stat", "--json", &world.url(path)]);
        let told: serde_json::Value = serde_json::from_str(told.succeeds()).unwrap();
        told["attributes"].as_u64().unwrap() & 7
    };
    sync("here", &there);
    mode(0o444);
    assert_eq!(world.run(&["sync", "-n", "here", &there]).succeeds(), "set    x\n");
    sync("here", &there);
    assert_eq!(told("there/x"), 1);
    let attributes = Some(FileAttributes::HIDDEN | FileAttributes::READONLY);
    let basic = SetMetadata::new().attributes(attributes);
    world.in_share(async |share| share.set_metadata("there/x", &basic).await.unwrap());
    sync(&there, &world.url("copy"));
    assert_eq!(told("copy/x"), 3);
    // Locally `x` is not read-only any more. A local file has no attribute "hidden", so the
    // server's file keeps it.
    mode(0o644);
    sync("here", &there);
    assert_eq!(told("there/x"), 2);
    sync(&there, &world.url("copy"));
    assert_eq!(told("copy/x"), 2);
    world.run(&["sync", &world.url("copy"), "back"]).succeeds();
    fs::set_permissions(world.place.path("back/x"), fs::Permissions::from_mode(0o444)).unwrap();
    sync(&world.url("copy"), "back");
    assert_eq!(
        fs::metadata(world.place.path("back/x")).unwrap().permissions().mode() & 0o777,
        0o644
    );
}
