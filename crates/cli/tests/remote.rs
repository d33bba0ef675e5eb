//! The client's commands against the real server.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::relay::{Fate, Relay};
use harness::world::{World, assert_same};
use harness::{PATIENCE, Said, said, text};

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

/// A tree of `count` files, with empty ones, large ones and odd names.
fn tree(root: &Path, count: usize) {
    for at in 0..count {
        let folder = root.join(format!("d{}/e", at % 7));
        fs::create_dir_all(&folder).unwrap();
        let len = [0, 1, 4096, 65_536, 70_000, 300_000][at % 6];
        fs::write(folder.join(format!("file {at} ü")), bytes(len, at as u64)).unwrap();
    }
    fs::create_dir_all(root.join("empty")).unwrap();
}

#[test]
fn files_and_trees_go_there_and_back() {
    let world = World::new();
    let tree_here = world.place.folder("tree");
    tree(&tree_here, 60);
    world.run(&["put", "-r", "tree", &world.url("")]).succeeds();
    assert_same(&tree_here, &world.there("tree"));
    world.run(&["get", "-r", &world.url("tree"), "back"]).succeeds();
    assert_same(&tree_here, &world.place.path("back"));
    let modified = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let name = "d4/e/file 4 ü";
    let apart = modified(world.place.path("back").join(name))
        .duration_since(modified(tree_here.join(name)))
        .unwrap_or_default();
    assert!(apart < Duration::from_millis(1), "times are kept");
    world.run(&["cp", "-r", &world.url("tree"), &world.url("copy")]).succeeds();
    assert_same(&tree_here, &world.there("copy"));
    let cat = world.run(&["cat", &world.url("tree/d1/e/file 1 ü")]);
    assert_eq!(cat.succeeds().len(), 1);
}

#[test]
fn names_are_listed_found_moved_and_removed() {
    let world = World::new();
    world.run(&["mkdir", "-p", &world.url("a/b")]).succeeds();
    fs::write(world.there("a/b/photo.JPG"), bytes(5_000, 1)).unwrap();
    assert_eq!(world.run(&["ls", &world.url("a")]).succeeds(), "b/\n");
    let long = world.run(&["ls", "-lRH", &world.url("a")]);
    assert!(long.succeeds().contains("4.9k") && long.out.contains("b/photo.JPG"), "{long:?}");
    let json = world.run(&["ls", "--json", &world.url("a/b")]);
    let entry: serde_json::Value = serde_json::from_str(json.succeeds()).unwrap();
    assert_eq!((&entry["path"], &entry["size"]), (&"a/b/photo.JPG".into(), &5_000.into()));
    let found = world.run(&["find", &world.url(""), "--name", "*.jpg", "--min-size", "1k"]);
    assert!(found.succeeds().ends_with("/share/a/b/photo.JPG\n"), "{found:?}");
    assert!(world.run(&["tree", &world.url("")]).succeeds().contains("└── photo.JPG"));
    let other_case = world.url("a").replace("/share/", "/SHARE/");
    world.run(&["mv", &world.url("a/b/photo.JPG"), &other_case]).succeeds();
    assert!(world.there("a/photo.JPG").exists());
    assert!(world.run(&["stat", &world.url("a/photo.JPG")]).succeeds().contains("5000"));
    world.run(&["rm", &world.url("a")]).fails(2, &["-r"]);
    world.run(&["rm", "-r", &world.url("a")]).succeeds();
    assert!(!world.there("a").exists());
    let shares = world.run(&["shares", &format!("smb://ann@{}", world.address)]);
    assert!(shares.succeeds().starts_with("share"));
    assert!(world.run(&["acl", &world.url("")]).succeeds().starts_with("owner "));
}

#[test]
fn failures_have_their_codes_and_sentences() {
    let world = World::new();
    world.run(&["ls", &world.url("nothing")]).fails(6, &["no such file"]);
    world.run(&["get", &world.url("")]).fails(2, &["-r"]);
    let wrong =
        said(world.command(&["ls", &world.url("")]).env("FREVO_PASSWORD", "x").output().unwrap());
    wrong.fails(4, &["user name or password"]);
    let none = said(world.place.command(&["ls", &world.url("")]).output().unwrap());
    none.fails(4, &["FREVO_PASSWORD", "--credentials"]);
    world.run(&["ls", "smb://ann@127.0.0.1:1/x"]).fails(5, &["refused"]);
    world.run(&["ls", "smb://ann:secret@127.0.0.1/x"]).fails(2, &["--credentials"]);
    let file = world.place.file("mine", "username=ann\npassword=secret\n", 0o644);
    world.run(&["ls", "-A", text(&file), &world.url("")]).fails(4, &["chmod 600"]);
    let file = world.place.file("mine", "username=ann\npassword=secret\n", 0o600);
    let listed = world.place.run(&["ls", "-A", text(&file), &world.url("")]);
    listed.succeeds();
}

#[test]
fn throughput_is_expected_and_measured() {
    let world = World::new();
    let table = world.run(&["expect"]);
    for figure in ["9.27", "7.65", "4.5", "81.57", "54.23", "23.17", "366.85", "136.92", "39.04"] {
        assert!(table.succeeds().contains(&format!(" {figure} MB/s")), "{figure} in {table:?}");
    }
    let plot = world.place.path("plot.svg");
    let measured =
        world.run(&["expect", "--json", "--measure", &world.url(""), "--plot", text(&plot)]);
    let found: serde_json::Value = serde_json::from_str(measured.succeeds()).unwrap();
    assert!(found["latency_seconds"].as_f64().unwrap() > 0.0);
    assert!(found["one_by_one"][2]["measured"].as_f64().unwrap() > 0.0);
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg"));
    assert_eq!(fs::read_dir(world.there("")).unwrap().count(), 0, "the file is removed");
}

#[test]
fn a_directory_is_made_like_another() {
    let world = World::new();
    let here = world.place.folder("here");
    tree(&here, 30);
    world.run(&["sync", "here", &world.url("there")]).succeeds();
    assert_same(&here, &world.there("there"));
    assert_eq!(world.run(&["sync", "-n", "here", &world.url("there")]).succeeds(), "");
    // Size and time of this file are the same in both places, but its content differs, which only
    // --checksum notices.
    let odd = world.there("there/d4/e/file 4 ü");
    let modified = fs::metadata(&odd).unwrap().modified().unwrap();
    fs::write(&odd, bytes(70_000, 99)).unwrap();
    fs::File::options().write(true).open(&odd).unwrap().set_modified(modified).unwrap();
    assert_eq!(world.run(&["sync", "-n", "here", &world.url("there")]).succeeds(), "");
    world.run(&["sync", "--checksum", "here", &world.url("there")]).succeeds();
    fs::write(world.there("there/extra"), "x").unwrap();
    fs::create_dir_all(world.there("there/more/deep")).unwrap();
    fs::remove_file(here.join("d0/e/file 0 ü")).unwrap();
    world.run(&["sync", "here", &world.url("there")]).succeeds();
    assert!(world.there("there/extra").exists(), "nothing is deleted unasked");
    world.run(&["sync", "--delete", "here", &world.url("there")]).succeeds();
    assert_same(&here, &world.there("there"));
    world.run(&["sync", &world.url("there"), "back"]).succeeds();
    assert_same(&here, &world.place.path("back"));
    world.run(&["sync", &world.url("there"), &world.url("third")]).succeeds();
    assert_same(&here, &world.there("third"));
}

/// The server is killed and restarted while `arguments` run: the program
/// waits, goes on, and succeeds.
fn through_a_restart(world: &mut World, arguments: &[&str], begun: impl Fn(&World) -> bool) {
    let mut child = world.command(arguments).spawn().unwrap();
    let started = Instant::now();
    while !begun(world) && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < PATIENCE, "it does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    world.kill();
    std::thread::sleep(Duration::from_millis(300));
    world.start();
    said(child.wait_with_output().unwrap()).succeeds();
}

#[test]
fn a_restart_in_the_middle_is_a_pause() {
    let mut world = World::new();
    let data = bytes(200_000_000, 7);
    fs::write(world.place.path("large"), &data).unwrap();
    let url = world.url("");
    let part = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|e| Some((e.file_name(), e.metadata().ok()?.len())))
            .any(|(name, len)| name.to_string_lossy().ends_with(".frevo-part") && len > 5_000_000)
    };
    through_a_restart(&mut world, &["put", "large", &url], |world| part(world.there("")));
    assert!(fs::read(world.there("large")).unwrap() == data, "put");
    let back = world.place.folder("back");
    let url = world.url("large");
    through_a_restart(&mut world, &["get", &url, "back"], |world| part(world.place.path("back")));
    assert!(fs::read(back.join("large")).unwrap() == data, "get");
    let here = world.place.folder("here");
    tree(&here, 400);
    let url = world.url("synced");
    let some = |world: &World| world.there("synced/d3/e").exists();
    through_a_restart(&mut world, &["sync", "here", &url], some);
    assert_same(&here, &world.there("synced"));
}

#[test]
fn what_was_interrupted_is_gone_on_with() {
    let world = World::new();
    let data = bytes(150_000_000, 3);
    fs::write(world.place.path("large"), &data).unwrap();
    let mut child = world.command(&["put", "large", &world.url("")]).spawn().unwrap();
    let started = Instant::now();
    let part = || {
        let entries = fs::read_dir(world.there("")).unwrap().flatten();
        entries.map(|e| e.path()).find(|path| text(path).ends_with(".frevo-part"))
    };
    while part().is_none_or(|path| fs::metadata(path).map_or(0, |m| m.len()) < 1_000_000) {
        assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let interrupted = said(child.wait_with_output().unwrap());
    if interrupted.code != 0 {
        assert_eq!(interrupted.code, 130, "{interrupted:?}");
        assert!(part().is_some() && !world.there("large").exists(), "no half file");
    }
    world.run(&["put", "large", &world.url("")]).succeeds();
    assert!(fs::read(world.there("large")).unwrap() == data);
    assert!(part().is_none());
}

#[test]
fn a_copy_between_two_that_was_cut_is_gone_on_with() {
    let (world, other) = (World::new(), World::new());
    let mut data = bytes(150_000_000, 9);
    fs::write(world.there("large"), &data).unwrap();
    let relay = Relay::new(&other.address, |nth| match nth {
        0 => Fate::CutAfter(100 << 20),
        _ => Fate::Refused,
    });
    let there = format!("smb://ann@{}/share/", relay.address);
    let cut = world.run(&["cp", "--patience", "1", &world.url("large"), &there]);
    assert_eq!(cut.code, 5, "{cut:?}");
    let parts = || {
        let entries = fs::read_dir(other.there("")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| text(path).ends_with(".frevo-part")).collect::<Vec<_>>()
    };
    assert!(!other.there("large").exists() && parts().len() == 1, "{:?}", parts());
    // The first byte of the partial copy is changed, and the result must contain the changed byte,
    // because data in the partial copy is not sent again.
    data[0] ^= 1;
    let part = fs::File::options().write(true).open(&parts()[0]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&part, &data[..1], 0).unwrap();
    drop(part);
    world.run(&["cp", &world.url("large"), &other.url("")]).succeeds();
    assert!(fs::read(other.there("large")).unwrap() == data);
    assert!(parts().is_empty());
}

/// Names come from the server (lsarpc), entries go there and are in force.
#[test]
fn access_lists_are_shown_with_names_and_changed() {
    let world = World::new();
    fs::write(world.there("file"), b"x").unwrap();
    fs::create_dir(world.there("folder")).unwrap();
    let (file, folder) = (world.url("file"), world.url("folder"));
    let acl = |more: &[&str]| world.run(&[&["acl", &*file], more].concat());
    let shown = acl(&[]).succeeds().to_owned();
    assert!(shown.starts_with("owner "), "{shown}");
    acl(&["--add", "allow:ann:change", "--add", "deny:S-1-1-0:0x00000002"]).succeeds();
    let shown = acl(&[]).succeeds().to_owned();
    assert!(shown.contains("\\ann:change"), "{shown}");
    let entries: Vec<&str> = shown.lines().skip(2).collect();
    assert!(entries[0].starts_with("deny:"), "what is denied comes first: {shown}");
    assert!(entries[0].contains("Everyone"), "{shown}");
    // The list denies everyone to write to the file, but `cp` only reads it, so it succeeds.
    let refused = world.run(&["cp", &world.url("file"), &world.url("copy")]);
    refused.succeeds();
    let numeric = acl(&["--numeric"]).succeeds().to_owned();
    assert!(numeric.contains("deny:S-1-1-0:0x00000002"), "{numeric}");
    acl(&["--remove", "S-1-1-0"]).succeeds();
    let shown = acl(&[]).succeeds().to_owned();
    assert!(!shown.contains("Everyone"), "{shown}");
    acl(&["--remove", "S-1-1-0"]).fails(6, &["no such entry"]);
    acl(&["--add", "allow:nobody-of-that-name:read"]).fails(6, &["knows no user or group"]);
    acl(&["--add", "allow:ann:sing"]).fails(2, &["rights are full, change, read, write"]);
    acl(&["--set", "allow:ann:full", "--set", "allow:S-1-1-0:read"]).succeeds();
    let shown = acl(&[]).succeeds().to_owned();
    let own: Vec<&str> = shown.lines().skip(2).filter(|e| !e.contains("inherited")).collect();
    assert_eq!(own.len(), 2, "{shown}");
    world.run(&["acl", &folder, "--set", "allow:ann:full"]).succeeds();
    let shown = world.run(&["acl", &folder]).succeeds().to_owned();
    assert!(shown.contains("\\ann:full:oi,ci"), "directories pass it on: {shown}");
    let lines = acl(&["--json"]).succeeds().to_owned();
    assert!(lines.contains("\"name\":") && lines.contains("\"owner_name\":"), "{lines}");
}

#[test]
fn no_tree_is_copied_into_itself_or_removed_with_its_copy() {
    let world = World::new();
    fs::create_dir_all(world.there("t/inside/deep")).unwrap();
    fs::write(world.there("t/inside/file"), b"x").unwrap();
    let before = || world.run(&["find", &world.url("")]).succeeds().to_owned();
    let was = before();
    let (tree, inside) = (world.url("t"), world.url("T/Inside"));
    world.run(&["cp", "-r", &tree, &inside]).fails(2, &["into itself"]);
    world.run(&["cp", "-r", &tree, &world.url("t/new")]).fails(2, &["into itself"]);
    world.run(&["sync", &tree, &inside]).fails(2, &["into itself"]);
    world.run(&["sync", &world.url(""), &tree]).fails(2, &["into itself"]);
    world.run(&["sync", "--delete", &inside, &tree]).fails(2, &["--delete would remove"]);
    assert_eq!(before(), was, "nothing was done");
    // A copy next to the tree is allowed, and so is a sync from a folder of the tree to the tree
    // itself, because the sync removes nothing.
    world.run(&["cp", "-r", &tree, &world.url("tt")]).succeeds();
    assert_same(&world.there("t"), &world.there("tt"));
    world.run(&["sync", &inside, &tree]).succeeds();
    assert!(world.there("t/file").exists() && world.there("t/deep").is_dir());
    assert!(world.there("t/inside/file").exists());
}

#[test]
fn one_server_under_two_names_is_one() {
    let mut world = World::with(&["--name", "below=share"]);
    fs::create_dir_all(world.there("t/inside/deep")).unwrap();
    world.kill();
    world.more = vec![String::from("--name"), String::from("below=share/t/inside")];
    world.start();
    fs::write(world.there("t/inside/file"), b"x").unwrap();
    fs::write(world.there("t/other"), b"y").unwrap();
    let before = || world.run(&["find", &world.url("")]).succeeds().to_owned();
    let was = before();
    let port = world.address.rsplit(':').next().unwrap();
    let named = |path: &str| format!("smb://ann@localhost:{port}/{path}");
    let (tree, inside) = (world.url("t"), named("share/t/inside"));
    for into in [named("share/t/new"), named("share/T/Inside"), named("below/deep/new")] {
        world.run(&["cp", "-r", &tree, &into]).fails(2, &["into itself"]);
        world.run(&["sync", &tree, &into]).fails(2, &["into itself"]);
    }
    world.run(&["cp", &world.url("t/other"), &named("share/t")]).fails(2, &["onto itself"]);
    world.run(&["cp", "-r", &inside, &world.url("t")]).fails(2, &["onto itself"]);
    for from in [&inside, &named("below"), &named("below/deep")] {
        world.run(&["sync", "--delete", from, &tree]).fails(2, &["--delete would remove"]);
    }
    // `below/deep` is a folder of the tree under the name of another share, so both commands are
    // refused.
    let below = world.url("").replace("/share/", "/below/deep");
    world.run(&["sync", "--delete", &below, &tree]).fails(2, &["--delete would remove"]);
    world.run(&["cp", "-r", &tree, &below]).fails(2, &["into itself"]);
    assert_eq!(before(), was, "nothing was done");
    // Under another name of the server, too, a copy next to the tree is allowed, and so is a sync
    // from a folder of the tree to the tree itself.
    world.run(&["cp", "-r", &tree, &named("share/tt")]).succeeds();
    assert_same(&world.there("t"), &world.there("tt"));
    world.run(&["sync", &named("below"), &tree]).succeeds();
    assert!(world.there("t/file").exists() && world.there("t/deep").is_dir());
}

/// Makes a file of holes, with `data` at `at`.
fn sparse(world: &World, name: &str, len: u64, at: u64, data: &[u8]) {
    use frevo_client::{Client, Credentials, OpenOptions, ServerName};
    let (host, port) = world.address.split_once(':').unwrap();
    let server = ServerName::new(host).at_port(port.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let user = Credentials::new("ann", "secret");
        let session = Client::default().connect(server, user).await.unwrap();
        let share = session.share("share").await.unwrap();
        let file = OpenOptions::new().write(true).create(true).open(&share, name).await.unwrap();
        file.set_sparse().await.unwrap();
        file.set_len(len).await.unwrap();
        file.write_all_at(data, at).await.unwrap();
        file.close().await.unwrap();
        share.log_off().await;
    });
}

#[test]
fn copies_on_the_server_and_between_two() {
    use std::os::unix::fs::MetadataExt;
    let (world, other) = (World::new(), World::new());
    let data = bytes(9_000_001, 5);
    fs::write(world.there("whole"), &data).unwrap();
    let json = |said: Said| serde_json::from_str::<serde_json::Value>(said.succeeds()).unwrap();
    let copied = json(world.run(&["cp", "--json", &world.url("whole"), &world.url("copy")]));
    assert_eq!(
        (&copied["bytes"], &copied["bytes_by_server"]),
        (&9_000_001.into(), &9_000_001.into())
    );
    assert!(fs::read(world.there("copy")).unwrap() == data);
    // The source has holes, which must be holes in the copy, too.
    sparse(&world, "sparse", 300 << 20, 100 << 20, &data);
    world.run(&["cp", &world.url("sparse"), &world.url("sparse copy")]).succeeds();
    let found = fs::metadata(world.there("sparse copy")).unwrap();
    assert_eq!(found.len(), 300 << 20);
    assert!(found.blocks() * 512 < 64 << 20, "{} blocks", found.blocks());
    let there = fs::read(world.there("sparse copy")).unwrap();
    assert!(there[100 << 20..][..data.len()] == data);
    assert!(there[..100 << 20].iter().all(|byte| *byte == 0));
    // A copy between two servers passes through this machine, which a note tells the user.
    let said = world.run(&["cp", &world.url("whole"), &other.url("from the other")]);
    said.succeeds();
    assert!(said.err.contains("two servers"), "{said:?}");
    assert!(fs::read(other.there("from the other")).unwrap() == data);
    let copied = json(world.run(&["cp", "--json", &world.url("whole"), &other.url("again")]));
    assert_eq!(copied["bytes_by_server"], 0);
    assert!(fs::read_dir(other.there("")).unwrap().count() == 2, "no parts are left");
}
