//! No data is lost, whatever goes wrong.

mod harness;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use harness::relay::{Fate, Relay};
use harness::world::{World, assert_same};
use harness::{PATIENCE, said, text};

fn interrupted(world: &World, arguments: &[&str], begun: impl Fn() -> bool) {
    let mut child = world.command(arguments).spawn().unwrap();
    let started = Instant::now();
    while !begun() {
        assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(said(child.wait_with_output().unwrap()).code, 130);
}

fn parts(folder: &std::path::Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| text(path).ends_with(".frevo-part")).collect()
}

/// Files of the same name, length and time, as those of reproducible builds are.
#[test]
fn a_part_of_another_file_is_not_gone_on_with() {
    let world = World::new();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    for (at, folder) in ["one", "two"].iter().enumerate() {
        for folder in [world.place.folder(folder), world.place.folder(&format!("share/{folder}"))] {
            fs::write(folder.join("x"), vec![at as u8; 80 << 20]).unwrap();
            fs::File::options()
                .write(true)
                .open(folder.join("x"))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
    }
    let back = world.place.folder("back");
    let get = |from: &str| world.url(&format!("{from}/x"));
    interrupted(&world, &["get", "--bwlimit", "40M", &get("one"), "back"], || {
        parts(&back).iter().any(|part| fs::metadata(part).unwrap().len() > 4 << 20)
    });
    world.run(&["get", &get("two"), "back"]).succeeds();
    assert!(fs::read(back.join("x")).unwrap() == vec![1; 80 << 20], "get");
    interrupted(&world, &["put", "--bwlimit", "40M", "one/x", &world.url("")], || {
        parts(&world.there("")).iter().any(|part| fs::metadata(part).unwrap().len() > 4 << 20)
    });
    world.run(&["put", "two/x", &world.url("")]).succeeds();
    assert!(fs::read(world.there("x")).unwrap() == vec![1; 80 << 20], "put");
    assert_eq!(parts(&world.there("")).len(), 1, "that of the other may be gone on with");
}

#[test]
fn a_source_that_changes_leaves_what_was_there() {
    let world = World::new();
    let (here, there) = (world.place.path("file"), world.there("file"));
    fs::write(&here, vec![1; 4 << 20]).unwrap();
    fs::write(&there, b"the old one").unwrap();
    let change = |path: &std::path::Path, data: &[u8], at: u64| {
        fs::File::options().write(true).open(path).unwrap().write_all_at(data, at).unwrap();
    };
    let while_it_goes = |arguments: &[&str], folder: &std::path::Path, change: &dyn Fn()| {
        let mut child = world.command(arguments).spawn().unwrap();
        let started = Instant::now();
        while parts(folder).is_empty() {
            assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        }
        change();
        said(child.wait_with_output().unwrap())
    };
    let put = ["put", "--bwlimit", "2M", "file", &world.url("file")];
    while_it_goes(&put, &world.there(""), &|| change(&here, b"x", 7))
        .fails(1, &["changed while it was read"]);
    assert_eq!(fs::read(&there).unwrap(), b"the old one");
    while_it_goes(&put, &world.there(""), &|| {
        fs::File::options().write(true).open(&here).unwrap().set_len(100_000).unwrap();
    })
    .fails(1, &["changed while it was read"]);
    assert_eq!(fs::read(&there).unwrap(), b"the old one");
    assert!(parts(&world.there("")).is_empty(), "of a version that is no more");
    // A log file that grows meanwhile is copied up to the length that it had at the beginning.
    fs::write(&here, vec![3; 4 << 20]).unwrap();
    while_it_goes(&put, &world.there(""), &|| change(&here, b"more", 4 << 20)).succeeds();
    assert!(fs::read(&there).unwrap() == vec![3; 4 << 20]);
    let back = world.place.folder("back");
    fs::write(back.join("file"), b"the old one").unwrap();
    let get = ["get", "--bwlimit", "2M", &world.url("file"), "back"];
    while_it_goes(&get, &back, &|| change(&there, b"x", 7))
        .fails(1, &["changed while it was read"]);
    assert_eq!(fs::read(back.join("file")).unwrap(), b"the old one");
    assert!(parts(&back).is_empty());
}

/// As on a server whose folder is here too, or on a mount of the share.
#[test]
fn a_file_that_is_fetched_onto_itself_is_whole() {
    let world = World::new();
    for size in [100, 200_000] {
        fs::write(world.there("file"), vec![1; size]).unwrap();
        world.run(&["get", &world.url("file"), "share"]).succeeds();
        assert!(fs::read(world.there("file")).unwrap() == vec![1; size]);
        world.run(&["put", "share/file", &world.url("")]).succeeds();
        assert!(fs::read(world.there("file")).unwrap() == vec![1; size]);
        assert!(parts(&world.there("")).is_empty());
    }
}

#[test]
fn a_file_is_no_directory_and_the_other_way_round() {
    let world = World::new();
    for size in [100, 200_000] {
        fs::write(world.place.path("x"), vec![1; size]).unwrap();
        fs::create_dir_all(world.there("folder/x/kept")).unwrap();
        let put = world.run(&["put", "x", &world.url("folder")]);
        put.fails(1, &["it is a directory"]);
        assert!(world.there("folder/x/kept").is_dir() && parts(&world.there("folder")).is_empty());
        fs::write(world.there("x"), vec![1; size]).unwrap();
        fs::create_dir_all(world.place.path("here/x/kept")).unwrap();
        let got = world.run(&["get", &world.url("x"), "here"]);
        got.fails(1, &["here/x", "irectory"]);
        assert!(world.place.path("here/x/kept").is_dir());
        assert!(parts(&world.place.path("here")).is_empty());
    }
}

/// The connection is cut between two requests of one copy: what was there is there.
#[test]
fn what_is_to_be_replaced_is_there_until_the_other_is() {
    let world = World::new();
    let old = vec![1; 50_000];
    fs::write(world.place.path("file"), vec![2; 60_000]).unwrap();
    for most in (2_000..66_000).step_by(4_000) {
        fs::write(world.there("file"), &old).unwrap();
        let relay = Relay::new(&world.address, move |nth| match nth {
            0 => Fate::CutAfter(most),
            _ => Fate::Refused,
        });
        let url = format!("smb://ann@{}/share/file", relay.address);
        let done = world.run(&["put", "--patience", "1", "file", &url]);
        let there = fs::read(world.there("file")).unwrap();
        let whole = there == vec![2; 60_000];
        assert!(there == old || whole, "cut after {most}: {} bytes", there.len());
        assert!(done.code != 0 || whole, "{done:?}");
    }
}

/// The server makes a change, and its answer is lost: the command finds that out, and is no failure.
#[test]
fn changes_of_names_whose_answers_are_lost_are_found_done() {
    type IsDone = fn(&World) -> bool;
    let renamed: IsDone = |world| {
        !world.there("old").exists() && fs::read(world.there("new")).is_ok_and(|it| it == b"data")
    };
    let commands: [(&[&str], &[&str], IsDone); 4] = [
        (&["mv"], &["old", "new"], renamed),
        (&["mv", "--no-replace"], &["old", "new"], renamed),
        (&["mkdir"], &["folder"], |world| world.there("folder").is_dir()),
        (&["rm"], &["old"], |world| !world.there("old").exists()),
    ];
    let world = World::new();
    for (command, names, is_done) in commands {
        for most in (300..).step_by(100) {
            let _ = fs::remove_dir(world.there("folder"));
            let _ = fs::remove_file(world.there("new"));
            fs::write(world.there("old"), "data").unwrap();
            let relay = Relay::new(&world.address, move |nth| match nth {
                0 => Fate::UnansweredAfter(most),
                _ => Fate::Carried,
            });
            let urls = names.iter().map(|name| format!("smb://ann@{}/share/{name}", relay.address));
            let urls: Vec<String> = urls.collect();
            let options = ["--channels", "1", "--patience", "5"].into_iter();
            let options = options.chain(urls.iter().map(String::as_str));
            let arguments: Vec<&str> = command.iter().copied().chain(options).collect();
            let said = world.run(&arguments);
            assert_eq!(said.code == 0, is_done(&world), "{command:?}, cut after {most}: {said:?}");
            if relay.made() == 1 && said.code == 0 {
                break;
            }
        }
    }
}

/// The connection is cut while a link takes the place of a directory and of another link: the next
/// run ends the work, and nothing is left under another name.
#[test]
fn a_link_that_was_interrupted_is_made_by_the_next_run() {
    use std::os::unix::fs::symlink;
    let world = World::new();
    for end in ["here", "share/there"] {
        fs::create_dir_all(world.place.path(end).join("sub")).unwrap();
        fs::write(world.place.path(end).join("sub/file"), "data").unwrap();
    }
    for link in ["folder", "link"] {
        symlink("sub", world.place.path("here").join(link)).unwrap();
    }
    let (folder, link) = (world.there("there/folder"), world.there("there/link"));
    let sync = ["sync", "--links", "--delete", "--patience", "1", "here"];
    let (mut was_cut_between, mut is_done) = (false, false);
    for most in (1_500..).step_by(400) {
        for name in [&folder, &link] {
            let _ = fs::remove_file(name);
        }
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("old"), "old").unwrap();
        symlink("sub/file", &link).unwrap();
        let relay = Relay::new(&world.address, move |nth| match nth {
            0 => Fate::CutAfter(most),
            _ => Fate::Refused,
        });
        let url = format!("smb://ann@{}/share/there", relay.address);
        is_done = world.run(&[&sync[..], &[&url]].concat()).code == 0;
        assert!(link.is_symlink(), "cut after {most}: there is always one of both links");
        was_cut_between |= !parts(&world.there("there")).is_empty();
        world.run(&[&sync[..], &[&world.url("there")]].concat()).succeeds();
        for name in [&folder, &link] {
            assert_eq!(fs::read_link(name).unwrap(), std::path::Path::new("sub"), "{most}");
        }
        let left = parts(&world.there("there"));
        assert!(left.is_empty(), "cut after {most}: {left:?}");
        if is_done {
            break;
        }
    }
    assert!(was_cut_between && is_done);
}

/// As above with `put`, which lists no target: a link to a folder takes the place of one to a file.
#[test]
fn the_part_of_a_link_goes_with_the_next_put() {
    use std::os::unix::fs::symlink;
    let world = World::new();
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("sub")).unwrap();
    fs::write(here.join("sub/file"), "data").unwrap();
    symlink("sub", here.join("link")).unwrap();
    fs::create_dir(world.there("there")).unwrap();
    let put = ["put", "-r", "--links", "--patience", "1", "here"];
    world.run(&[&put[..], &[&world.url("there")]].concat()).succeeds();
    let (place, link) = (world.there("there/here"), world.there("there/here/link"));
    let (mut was_cut_between, mut is_done) = (false, false);
    for most in (1_500..).step_by(200) {
        let _ = fs::remove_file(&link);
        symlink("sub/file", &link).unwrap();
        let relay = Relay::new(&world.address, move |nth| match nth {
            0 => Fate::CutAfter(most),
            _ => Fate::Refused,
        });
        let url = format!("smb://ann@{}/share/there", relay.address);
        is_done = world.run(&[&put[..], &[&url]].concat()).code == 0;
        was_cut_between |= !parts(&place).is_empty();
        world.run(&[&put[..], &[&world.url("there")]].concat()).succeeds();
        assert_eq!(fs::read_link(&link).unwrap(), std::path::Path::new("sub"), "{most}");
        let left = parts(&place);
        assert!(left.is_empty(), "cut after {most}: {left:?}");
        if is_done {
            break;
        }
    }
    assert!(was_cut_between && is_done);
}

/// A file that another client has open is not replaced. Two copies to one place that end at the same time
/// have it open for a moment only.
#[test]
fn a_copy_waits_for_a_target_that_is_open_for_a_moment() {
    let world = World::new();
    fs::write(world.there("target"), "old").unwrap();
    fs::write(world.place.path("large"), vec![7; 200_000]).unwrap();
    let is_whole = || {
        let lens = parts(&world.there("")).into_iter().map(fs::metadata);
        lens.flatten().any(|part| part.len() == 200_000)
    };
    for from in ["large", "-"] {
        let mut command = world.command(&["put", from, &world.url("target")]);
        command.stdin(fs::File::open(world.place.path("large")).unwrap());
        let put = world.in_share(async |share| {
            let file =
                frevo_client::OpenOptions::new().read(true).open(share, "target").await.unwrap();
            let mut put = command.spawn().unwrap();
            let began = Instant::now();
            while !is_whole() && put.try_wait().unwrap().is_none() {
                assert!(began.elapsed() < PATIENCE);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            file.close().await.unwrap();
            put
        });
        let put = said(put.wait_with_output().unwrap());
        put.succeeds();
        assert_eq!(fs::read(world.there("target")).unwrap(), vec![7; 200_000], "{from}");
        assert!(parts(&world.there("")).is_empty(), "{put:?}");
    }
}

/// Two directories of which the one's name begins with the other's, and files in them.
#[test]
fn all_that_is_to_be_deleted_is_and_nothing_else() {
    let world = World::new();
    let here = world.place.folder("here");
    fs::write(here.join("x"), b"a file now").unwrap();
    for name in ["x/in", "photos/1", "photos.old/2", "photos old/deep/3", "kept/by link"] {
        let path = world.there(&format!("there/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"old").unwrap();
    }
    fs::write(world.there("there/read-only"), b"old").unwrap();
    let read_only =
        frevo_client::SetMetadata::new().attributes(frevo_client::FileAttributes::READONLY);
    world.in_share(async |share| {
        share.set_metadata("there/read-only", &read_only).await.unwrap();
        share.set_metadata("there/photos/1", &read_only).await.unwrap();
    });
    // The link `kept` is skipped, but the source has it, so --delete does not remove `kept` from
    // the target.
    std::os::unix::fs::symlink("/nowhere", here.join("kept")).unwrap();
    let synced = world.run(&["sync", "--delete", "here", &world.url("there")]);
    assert!(synced.err.contains("skipped links and special files: kept"), "{synced:?}");
    synced.succeeds();
    let mut left: Vec<_> =
        fs::read_dir(world.there("there")).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kept", "x"]);
    assert_eq!(fs::read(world.there("there/x")).unwrap(), b"a file now");
    assert!(world.there("there/kept/by link").exists());
    // An empty source may be a disk that is not mounted, so --delete is refused.
    world.place.folder("empty");
    world.run(&["sync", "--delete", "empty", &world.url("there")]).fails(1, &["source is empty"]);
    assert!(world.there("there/x").exists());
    // A download with --delete removes local files in the same way.
    fs::create_dir_all(world.place.path("down/d.d")).unwrap();
    fs::create_dir_all(world.place.path("down/d/deep")).unwrap();
    fs::write(world.place.path("down/d/deep/x"), b"x").unwrap();
    world.run(&["sync", "--delete", &world.url("there"), "down"]).succeeds();
    assert!(!world.place.path("down/d").exists() && !world.place.path("down/d.d").exists());
}

#[test]
fn a_directory_that_cannot_be_read_is_not_gone() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("closed")).unwrap();
    fs::write(here.join("closed/x"), b"x").unwrap();
    world.run(&["sync", "here", &world.url("there")]).succeeds();
    fs::set_permissions(here.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(world.there("there/old"), b"old").unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
    let url = world.url("there");
    let mut command = world.place.unprivileged(&["sync", "--delete", text(&here), &url]);
    let synced = said(command.env("FREVO_PASSWORD", "secret").output().unwrap());
    fs::set_permissions(here.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    synced.fails(1, &["nothing is deleted"]);
    assert!(world.there("there/old").exists() && world.there("there/closed/x").exists());
}

#[test]
fn names_that_differ_in_case_alone_do_not_take_each_others_place() {
    let world = World::new();
    let here = world.place.folder("here");
    for name in ["Photo.jpg", "photo.JPG", "other"] {
        fs::write(here.join(name), name).unwrap();
    }
    for arguments in [["put", "-r"], ["sync", "--delete"]] {
        let (verb, more) = (arguments[0], arguments[1]);
        world.run(&[verb, more, "here", &world.url("there")]).fails(1, &["skipped", "photo.JPG"]);
        assert_eq!(fs::read_to_string(world.there("there/Photo.jpg")).unwrap(), "Photo.jpg");
        assert_eq!(fs::read_dir(world.there("there")).unwrap().count(), 2);
        fs::remove_dir_all(world.there("there")).unwrap();
    }
    // The server's `PHOTO.jpg` and a local `Photo.jpg` are the same file to SMB, so it is
    // overwritten and not removed.
    fs::remove_file(here.join("photo.JPG")).unwrap();
    fs::create_dir_all(world.there("there")).unwrap();
    fs::write(world.there("there/PHOTO.jpg"), b"old").unwrap();
    world.run(&["sync", "--delete", "here", &world.url("there")]).succeeds();
    assert_eq!(fs::read_to_string(world.there("there/PHOTO.jpg")).unwrap(), "Photo.jpg");
    let again = world.run(&["sync", "-n", "--delete", "here", &world.url("there")]);
    assert_eq!(again.succeeds(), "");
}

#[test]
fn two_sources_of_one_name_do_not_take_each_others_place() {
    let world = World::new();
    for folder in ["a", "b"] {
        for path in [world.place.folder(folder), world.place.folder(&format!("share/{folder}"))] {
            fs::write(path.join("x"), folder).unwrap();
        }
    }
    fs::create_dir(world.there("into")).unwrap();
    let (a, b, into) = (world.url("a/x"), world.url("b/x"), world.url("into"));
    let all: [&[&str]; 4] = [
        &["put", "a/x", "b/x", &into],
        &["cp", &a, &b, &into],
        &["mv", &a, &b, &into],
        &["get", &a, &b, "here/"],
    ];
    for arguments in all {
        fs::write(world.there("a/x"), "a").unwrap();
        world.run(arguments).fails(1, &["skipped"]);
        let got =
            if arguments[0] == "get" { world.place.path("here/x") } else { world.there("into/x") };
        assert_eq!(fs::read_to_string(got).unwrap(), "a", "{arguments:?}");
        assert_eq!(fs::read_to_string(world.there("b/x")).unwrap(), "b");
    }
}

/// As a mount of the share is, or the folder on the server itself.
#[test]
fn what_is_copied_is_not_deleted_by_another_name() {
    let world = World::new();
    fs::create_dir_all(world.there("all/2026/deep")).unwrap();
    fs::write(world.there("all/2026/deep/x"), b"x").unwrap();
    fs::write(world.there("all/y"), b"y").unwrap();
    world
        .run(&["sync", "--delete", "share/all/2026", &world.url("all")])
        .fails(2, &["--delete would remove the source"]);
    assert!(world.there("all/2026/deep/x").exists() && world.there("all/y").exists());
}

/// rm goes on past what it cannot remove, and says so.
#[test]
fn what_is_read_only_in_a_tree_goes_when_it_is_forced() {
    let world = World::new();
    fs::create_dir_all(world.there("tree/deep")).unwrap();
    for name in ["a", "deep/kept", "z"] {
        fs::write(world.there(&format!("tree/{name}")), b"x").unwrap();
    }
    let attributes = Some(frevo_client::FileAttributes::READONLY);
    let read_only = frevo_client::SetMetadata::new().attributes(attributes);
    // Explorer sets READONLY on directories, too, so this test sets it on a file and on its
    // directory.
    world.in_share(async |share| {
        share.set_metadata("tree/deep/kept", &read_only).await.unwrap();
        share.set_metadata("tree/deep", &read_only).await.unwrap();
    });
    let told = world.run(&["rm", "-rn", &world.url("tree")]);
    assert_eq!(told.succeeds().lines().count(), 5);
    assert!(told.out.ends_with("remove tree\n") && world.there("tree/a").exists(), "{told:?}");
    world.run(&["rm", "-r", &world.url("tree")]).fails(1, &["deep/kept", "read-only"]);
    assert!(!world.there("tree/a").exists() && !world.there("tree/z").exists());
    assert!(world.there("tree/deep/kept").exists());
    world.run(&["rm", "-rf", &world.url("tree")]).succeeds();
    assert!(!world.there("tree").exists());
}

/// As a program has its settings open.
#[test]
fn a_small_file_is_replaced_also_while_it_is_open() {
    use frevo_client::LeaseState;
    use frevo_client::OpenOptions;
    let world = World::new();
    fs::write(world.there("file"), b"old").unwrap();
    fs::write(world.place.path("file"), b"new one").unwrap();
    world.in_share(async |share| {
        let options = OpenOptions::new().read(true).lease(LeaseState::EMPTY);
        let file = options.open(share, "file").await.unwrap();
        world.run(&["put", "file", &world.url("file")]).succeeds();
        let mut found = [0; 7];
        assert_eq!(file.read_at(&mut found, 0).await.unwrap(), 7);
        assert_eq!(&found, b"new one");
        file.close().await.unwrap();
    });
    assert!(parts(&world.there("")).is_empty());
}

/// Whoever fills the share may know which links are in the folder here.
#[test]
fn nothing_is_written_through_a_link_below_the_target() {
    let world = World::new();
    world.place.folder("share/tree/d/deep");
    for name in ["tree/d/x", "tree/d/deep/x", "tree/y"] {
        fs::write(world.there(name), b"the server's").unwrap();
    }
    let elsewhere = world.place.folder("elsewhere");
    fs::write(elsewhere.join("x"), b"my own").unwrap();
    let tree = world.url("tree");
    let link = |folder: &std::path::Path| {
        std::os::unix::fs::symlink(&elsewhere, folder.join("d")).unwrap();
    };
    let untouched = || {
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
        assert_eq!(fs::read(elsewhere.join("x")).unwrap(), b"my own");
    };
    let (got, synced) = (world.place.folder("got/tree"), world.place.folder("synced"));
    link(&got);
    world
        .run(&["get", "-r", &tree, "got"])
        .fails(1, &["got/tree/d", "a link with this name exists"]);
    untouched();
    assert!(got.join("y").is_file(), "the rest is done");
    link(&synced);
    for more in [&["--update"], &["--delete"]] {
        let arguments = [&["sync"], &more[..], &[&*tree, "synced"]].concat();
        world.run(&arguments).fails(1, &["cannot create synced/d", "a link with this name exists"]);
        untouched();
    }
    assert!(synced.join("y").is_file());
    fs::remove_file(synced.join("d")).unwrap();
    fs::write(synced.join("d"), b"").unwrap();
    world
        .run(&["sync", &tree, "synced"])
        .fails(1, &["frevo: d is a directory in the source, but a "]);
    world.run(&["sync", "--delete", &tree, "synced"]).succeeds();
    assert_same(&world.there("tree"), &synced);
}

/// In a folder that others may write to.
#[test]
fn a_part_is_not_written_through_a_link() {
    let world = World::new();
    fs::write(world.there("x"), vec![1; 8 << 20]).unwrap();
    let back = world.place.folder("back");
    let get = ["get", "--bwlimit", "4M", &world.url("x"), "back"];
    interrupted(&world, &get, || !parts(&back).is_empty());
    let (part, victim) = (parts(&back).remove(0), world.place.file("victim", "mine", 0o600));
    fs::remove_file(&part).unwrap();
    std::os::unix::fs::symlink(&victim, &part).unwrap();
    world.run(&get).fails(1, &["back/x", "symbolic link"]);
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
    assert!(!back.join("x").exists());
}

/// The guess that a file replaces another, because the last one did, may be wrong.
#[test]
fn a_tree_is_put_over_one_that_has_half_of_it() {
    let world = World::new();
    let (here, there) = (world.place.folder("tree"), world.place.folder("share/tree"));
    for at in 0..300_usize {
        fs::write(here.join(at.to_string()), vec![b'n'; at]).unwrap();
        if at % 3 != 0 {
            fs::write(there.join(at.to_string()), "the old one, which is longer".repeat(at))
                .unwrap();
        }
    }
    world.run(&["put", "-r", "tree", &world.url("")]).succeeds();
    assert_same(&here, &there);
}

/// One of two connections is lost during a copy, which goes on over the other.
#[test]
fn channels_that_are_lost_and_what_each_has_carried_are_told() {
    let world = World::new();
    let relay = Relay::new(&world.address, |nth| match nth {
        1 => Fate::CutAfter(12 << 20),
        _ => Fate::Carried,
    });
    fs::write(world.place.path("f"), vec![7; 40 << 20]).unwrap();
    let url = format!("smb://ann@{}/share/", relay.address);
    let put = ["put", "--verbose", "--channels", "2", "--bwlimit", "20M", "f", &url];
    let said = world.run(&put);
    said.succeeds();
    assert!(fs::read(world.there("f")).unwrap() == vec![7; 40 << 20]);
    for wanted in ["to 127.0.0.1 is open", "to 127.0.0.1 is lost: ", "1 lost channel: "] {
        assert!(said.err.contains(wanted), "{wanted}: {}", said.err);
    }
    let sums = said.err.lines().filter(|line| line.contains("to 127.0.0.1: "));
    assert!(sums.clone().count() > 0, "{}", said.err);
    assert!(said.err.lines().all(|line| !line.contains(": 0 requests")), "{}", said.err);
}

/// Two commands that copy one file to one place do not write one part.
#[test]
fn one_command_at_a_time_writes_a_part() {
    let world = World::new();
    let content = vec![3; 3_000_000];
    fs::write(world.place.path("here"), &content).unwrap();
    fs::write(world.there("there"), &content).unwrap();
    let (here, there) = (world.url("here"), world.url("there"));
    let copy = &world.url("copy");
    let local = world.place.path("back");
    let lines: [(&[&str], PathBuf); 3] = [
        (&["put", "--bwlimit", "500k", "here", &here], world.there("here")),
        (&["get", "--bwlimit", "500k", &there, "back"], local),
        (&["sync", "--bwlimit", "500k", "folder", copy], world.there("copy/here")),
    ];
    world.place.folder("folder");
    fs::create_dir(world.there("copy")).unwrap();
    fs::copy(world.place.path("here"), world.place.path("folder/here")).unwrap();
    for (line, target) in lines {
        let folder = target.parent().unwrap();
        let mut first = world.command(line).spawn().unwrap();
        let begun = Instant::now();
        while parts(folder).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{line:?} does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        world.run(line).fails(1, &["another command copies the same file"]);
        assert!(!target.exists() && parts(folder).len() == 1, "{line:?}");
        assert!(first.wait().unwrap().success());
        assert_eq!(fs::read(&target).unwrap(), content);
        assert!(parts(folder).is_empty());
    }
}

/// Parts of interrupted commands are not copied, and go when they are old.
#[test]
fn parts_are_skipped_and_removed_when_they_are_old() {
    let world = World::new();
    let (old, new) = ("0123456789abcdef.frevo-part", "fedcba9876543210.frevo-part");
    let week = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    let leave = |folder: &std::path::Path, dot: &str| {
        fs::create_dir_all(folder).unwrap();
        for (name, age) in [(old, week), (new, SystemTime::now()), ("mine.frevo-part", week)] {
            let path = folder.join(format!("{dot}{name}"));
            fs::write(&path, name).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(age).unwrap();
        }
    };
    let left = |folder: &std::path::Path| {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with("frevo-part"));
        names.sort();
        names
    };
    leave(&world.there("from"), "");
    fs::write(world.there("from/large"), vec![5; 200_000]).unwrap();
    let mine = "mine.frevo-part";
    let from = &world.url("from");
    for (line, target) in [
        (&["get", "-r", from, "got"][..], world.place.path("got")),
        (&["cp", "-r", from, &world.url("copied")], world.there("copied")),
        (&["sync", from, "synced"], world.place.path("synced")),
    ] {
        world.run(line).succeeds();
        assert_eq!(left(&target), [mine], "{line:?}");
    }
    // `put` removes old parts (partial copies) in the folder of its target. Parts made within a
    // week must stay, even those with the old time of their source.
    fs::write(world.place.path("large"), vec![6; 200_000]).unwrap();
    let put = ["put", "large", &world.url("from/other")];
    world.run(&put).succeeds();
    assert_eq!(left(&world.there("from")), [old, new, mine]);
    if !cfg!(feature = "test-hooks") {
        return;
    }
    let after = |line: &[&str]| {
        let mut command = world.command(line);
        said(command.env("FREVO_TEST_STALE_SECONDS", "0").output().unwrap()).succeeds();
    };
    after(&["put", "large", &world.url("from/third")]);
    assert_eq!(left(&world.there("from")), [mine]);
    leave(&world.place.folder("here"), ".");
    after(&["get", &world.url("from/large"), "here/large"]);
    assert_eq!(left(&world.place.path("here")), [".mine.frevo-part"]);
    leave(&world.there("target"), "");
    after(&["sync", "got", &world.url("target")]);
    assert_eq!(left(&world.there("target")), [mine]);
}

/// A link of the server's disk that leads to a folder above it looks like a folder.
#[test]
fn a_folder_within_itself_is_told_once_and_not_entered() {
    let world = World::new();
    fs::create_dir_all(world.there("top/sub")).unwrap();
    fs::write(world.there("top/sub/file"), "x").unwrap();
    fs::create_dir(world.there("top/sub/up")).unwrap();
    let bound = Command::new("mount")
        .args(["--bind"])
        .arg(world.there("top"))
        .arg(world.there("top/sub/up"))
        .status();
    if !bound.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can bind a folder into itself");
        return;
    }
    let top = &world.url("top");
    let verbs: [&[&str]; 4] = [&["find"], &["ls", "-R"], &["du", "-s"], &["tree"]];
    let told: Vec<_> = verbs.iter().map(|verb| world.run(&[*verb, &[top]].concat())).collect();
    let got = world.run(&["get", "-r", top, "got"]);
    let removed = world.run(&["rm", "-r", top]);
    let unbound = Command::new("umount").arg(world.there("top/sub/up")).status();
    assert!(unbound.unwrap().success());
    for said in told.iter().chain([&got, &removed]) {
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(said.err.matches("a link to a directory above it").count(), 1, "{said:?}");
    }
    assert_eq!(fs::read_to_string(world.place.path("got/sub/file")).unwrap(), "x");
    assert!(!world.place.path("got/sub/up").exists());
    assert!(!world.there("top/sub/file").exists(), "all that can be removed is");
    assert!(world.there("top/sub").exists());
}
