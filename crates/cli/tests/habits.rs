//! Commands as users of coreutils, rsync and smbclient type them.

mod harness;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use harness::said;
use harness::world::{World, assert_same};

#[test]
fn several_are_copied_listed_moved_and_removed_by_one_command() {
    let world = World::new();
    for name in ["one", "two", "three"] {
        world.place.file(name, name, 0o644);
    }
    fs::create_dir_all(world.place.path("tree/sub")).unwrap();
    world.place.file("tree/sub/x", "x", 0o644);
    world.run(&["put", "-r", "one", "two", "tree", &world.url("")]).succeeds();
    assert_same(&world.place.path("tree"), &world.there("tree"));
    world.run(&["put", "one", "two", &world.url("nowhere")]).fails(2, &["not a directory"]);
    // Although `nothing` does not exist, the other files are copied.
    let some = world.run(&["put", "one", "nothing", "three", &world.url("new/")]);
    some.fails(6, &["nothing: No such file"]);
    assert_eq!(fs::read_to_string(world.there("new/three")).unwrap(), "three");
    let (one, two) = (world.url("one"), world.url("two"));
    world.run(&["get", &one, &two, "here"]).fails(2, &["not a directory"]);
    world.run(&["get", "-r", &one, &two, &world.url("tree"), "here/"]).succeeds();
    assert_eq!(fs::read_to_string(world.place.path("here/two")).unwrap(), "two");
    assert_same(&world.place.path("tree"), &world.place.path("here/tree"));
    world.run(&["cp", &one, &two, &world.url("new")]).succeeds();
    world.run(&["cp", &one, "tree", &world.url("new")]).fails(2, &["local paths"]);
    world.run(&["cp", &one, &two, "here"]).succeeds();
    let listed = world.run(&["ls", "-lh", &world.url("new"), &two]);
    assert!(listed.succeeds().contains("share/new:\n") && listed.out.contains("share/two:\n"));
    let told = world.run(&["stat", "--json", &one, &two]);
    for line in told.succeeds().lines() {
        let found: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(found["accessed"].as_str().unwrap().starts_with("20") && found["id"] != 0);
    }
    world.run(&["mv", &one, &two, &world.url("missing")]).fails(2, &["not a directory"]);
    world.run(&["mv", &one, &two, &world.url("tree")]).succeeds();
    assert!(world.there("tree/one").exists() && world.there("tree/two").exists());
    world
        .run(&["rm", &one, &world.url("tree/one"), &two])
        .fails(6, &["2 files failed; all others were removed"]);
    assert!(!world.there("tree/one").exists());
    assert!(world.run(&["ls", "--help"]).succeeds().contains("-h, --human"));
}

#[test]
fn a_dash_is_standard_input_and_output() {
    let world = World::new();
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    fs::write(world.place.path("data"), &data).unwrap();
    let put = |url: &str| {
        let mut command = world.command(&["put", "-", url]);
        command.stdin(fs::File::open(world.place.path("data")).unwrap());
        said(command.output().unwrap())
    };
    put(&world.url("stream")).succeeds();
    assert_eq!(fs::read(world.there("stream")).unwrap(), data);
    put(&world.url("")).fails(2, &["the name of the file"]);
    put(&world.url("no/such")).fails(6, &["share/no/such: a directory of the path"]);
    assert_eq!(fs::read_dir(world.there("")).unwrap().count(), 1, "no part is left");
    let got = world.command(&["get", &world.url("stream"), "-"]).output().unwrap();
    assert!(got.status.success() && got.stdout == data);
    let both = ["put", "--password-stdin", "-", &world.url("x")];
    world.run(&both).fails(2, &["--credentials"]);
}

#[test]
fn what_is_no_file_is_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt;
    let world = World::new();
    let data = vec![7; 300_000];
    fs::write(world.there("data"), &data).unwrap();
    let pipe = world.place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    world.run(&["get", &world.url("data"), "pipe"]).succeeds();
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap() == data);
    // Writing to /dev/full fails. This is reported, and the device is not replaced by a file.
    if fs::symlink_metadata("/dev/full").is_ok_and(|it| it.file_type().is_char_device()) {
        std::os::unix::fs::symlink("/dev/full", world.place.path("full")).unwrap();
        world.run(&["get", &world.url("data"), "full"]).fails(1, &["write", "No space left"]);
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    }
    // `get` follows the local link and writes its target.
    world.place.file("target", "old", 0o644);
    std::os::unix::fs::symlink("target", world.place.path("link")).unwrap();
    world.run(&["get", &world.url("data"), "link"]).succeeds();
    assert!(fs::read(world.place.path("target")).unwrap() == data);
    assert!(fs::symlink_metadata(world.place.path("link")).unwrap().is_symlink());
    let nothing = world.run(&["get", "--json", &world.url("absent")]);
    assert_eq!((nothing.code, &*nothing.out), (6, ""), "{nothing:?}");
}

#[test]
fn what_is_read_only_goes_when_it_is_forced() {
    use frevo_client::FileAttributes;
    let world = World::new();
    fs::write(world.there("kept"), "kept").unwrap();
    let attributes = Some(FileAttributes::READONLY);
    let read_only = frevo_client::SetMetadata::new().attributes(attributes);
    world.in_share(async |share| {
        share.set_metadata("kept", &read_only).await.unwrap();
    });
    world.run(&["rm", &world.url("kept")]).fails(1, &["read-only"]);
    assert!(world.there("kept").exists());
    fs::write(world.there("new"), "new").unwrap();
    let moved = [&*world.url("new"), &*world.url("kept")];
    world.run(&["mv", moved[0], moved[1]]).fails(1, &["kept", "read-only", "--force"]);
    assert_eq!(fs::read(world.there("kept")).unwrap(), b"kept");
    world.run(&["mv", "-f", "-n", moved[0], moved[1]]).fails(2, &["--no-replace"]);
    world.run(&["mv", "-f", moved[0], moved[1]]).succeeds();
    assert_eq!(fs::read(world.there("kept")).unwrap(), b"new");
    // mv refuses the file of a snapshot, and must not move the live file in its place.
    let past = world.url("@GMT-2024.02.29-12.00.00/kept");
    for line in [["mv", &*world.url("kept"), &*past], ["mv", &*past, &*world.url("back")]] {
        world.run(&line).fails(2, &["snapshot"]);
    }
    assert!(world.there("kept").exists());
    world.in_share(async |share| share.set_metadata("kept", &read_only).await.unwrap());
    world.run(&["rm", "-f", &world.url("kept")]).succeeds();
    assert!(!world.there("kept").exists());
}

#[test]
fn a_password_is_read_once() {
    let world = World::new();
    fs::write(world.there("a"), "a").unwrap();
    let with_password = |arguments: &[&str]| {
        let mut command = world.place.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret\n").unwrap();
        said(child.wait_with_output().unwrap())
    };
    with_password(&["mv", "--password-stdin", &world.url("a"), &world.url("b")]).succeeds();
    with_password(&["cat", "--password-stdin", &world.url("b"), &world.url("b")]).succeeds();
}

#[test]
fn names_that_smb_keeps_for_itself_go_there_and_back() {
    let world = World::new();
    let tree = world.place.folder("tree/a:b");
    for name in
        ["co:lon", "st*r", "wh?", "pi|pe", "<gt>", "\"", "back\\slash", "dot.", "sp ", "new\nline"]
    {
        fs::write(tree.join(name), name).unwrap();
    }
    // The client must not take the colon for a stream of `co`, nor the backslash for a folder
    // `back`.
    fs::create_dir(world.there("back")).unwrap();
    fs::write(world.there("co"), "mine").unwrap();
    world.run(&["put", "-r", "tree", &world.url("")]).succeeds();
    world.run(&["put", "tree/a:b/co:lon", "tree/a:b/back\\slash", &world.url("")]).succeeds();
    assert_eq!(fs::read_to_string(world.there("co")).unwrap(), "mine");
    assert_eq!(fs::read_dir(world.there("back")).unwrap().count(), 0);
    world.run(&["get", "-r", &world.url("tree"), "back"]).succeeds();
    assert_same(&world.place.path("tree"), &world.place.path("back"));
    world.run(&["sync", "tree", &world.url("synced")]).succeeds();
    assert_eq!(world.run(&["sync", "-n", "--delete", "tree", &world.url("synced")]).succeeds(), "");
    world.run(&["sync", &world.url("synced"), "again"]).succeeds();
    assert_same(&world.place.path("tree"), &world.place.path("again"));
    assert_eq!(world.run(&["sync", "-cn", &world.url("synced"), "again"]).succeeds(), "");
}

#[test]
fn one_name_that_cannot_go_does_not_keep_the_rest() {
    let world = World::new();
    let tree = world.place.folder("tree");
    fs::write(tree.join("good"), "good").unwrap();
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"bad\xff")), "bad").unwrap();
    let sent = world.run(&["put", "-r", "tree", &world.url("")]);
    sent.fails(1, &["not UTF-8"]);
    assert_eq!(fs::read_to_string(world.there("tree/good")).unwrap(), "good");
    // One name in the local folder cannot be copied, so the list of local files is incomplete. So
    // `sync --delete` must not delete anything on the server.
    fs::write(world.there("tree/old"), "old").unwrap();
    world.run(&["sync", "--delete", "tree", &world.url("tree")]).fails(1, &["nothing is deleted"]);
    assert!(world.there("tree/old").exists());
    fs::remove_file(tree.join(std::ffi::OsStr::from_bytes(b"bad\xff"))).unwrap();
    world.run(&["sync", "--delete", "tree", &world.url("tree")]).succeeds();
    assert!(!world.there("tree/old").exists());
}

#[test]
fn errors_name_what_was_asked_for() {
    let world = World::new();
    fs::write(world.place.path("big"), vec![1; 100_000]).unwrap();
    let put = world.run(&["put", "big", &world.url("no/such/dir")]);
    put.fails(6, &["share/no/such/dir: a directory of the path"]);
    assert!(!put.err.contains(".frevo-part"), "{put:?}");
    world.run(&["ls", "smb://ann@127.0.0.1:1/x"]).fails(5, &["is the server running"]);
    // A web server instead of an SMB server answers at this address.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("smb://ann@{}/x", listener.local_addr().unwrap());
    let web = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let _ = std::io::Write::write_all(&mut peer, b"HTTP/1.0 400 Bad Request\r\n\r\n");
        let _ = std::io::Read::read(&mut peer, &mut [0; 1000]);
    });
    world.run(&["ls", "--patience", "1", &url]).fails(5, &["does not speak SMB"]);
    web.join().unwrap();
    // -U replaces the user in the URL. A path that `find` prints works in the next command,
    // although it has a percent sign.
    world.run(&["ls", "-U", "bob", &world.url("")]).fails(4, &["user name or password"]);
    fs::write(world.there("100%"), "all").unwrap();
    let found = world.run(&["find", &world.url(""), "--name", "100*"]);
    assert_eq!(world.run(&["cat", found.succeeds().trim()]).succeeds(), "all");
    let mode =
        |mode| fs::set_permissions(world.place.path("big"), fs::Permissions::from_mode(mode));
    mode(0o600).unwrap();
    world.run(&["put", "big", &world.url("folder/")]).succeeds();
    assert!(Path::new(&world.there("folder/big")).is_file());
}

#[test]
fn holes_are_neither_sent_nor_stored() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const LEN: u64 = 3 << 30;
    let world = World::new();
    let source = world.place.path("disk");
    let file = fs::File::create_new(&source).unwrap();
    file.set_len(LEN).unwrap();
    let island: Vec<u8> = (0..200_000_u32).map(|n| (n % 249) as u8 + 1).collect();
    let islands = [5 << 20, 1 << 30, (2 << 30) + 77];
    for at in islands {
        file.write_all_at(&island, at).unwrap();
    }
    let took = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    if took(&source) > 64 << 20 {
        // The file system has no holes, so the rest of the test is skipped.
        return;
    }
    let same = |path: &Path| {
        let copy = fs::File::open(path).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), LEN);
        assert!(took(path) < 64 << 20, "{} bytes of room", took(path));
        let mut found = vec![0; island.len() + 2];
        for at in islands {
            copy.read_exact_at(&mut found, at - 1).unwrap();
            assert_eq!(found[1..=island.len()], island);
            assert_eq!([found[0], found[island.len() + 1]], [0, 0]);
        }
    };
    let told = world.run(&["put", "--json", "disk", &world.url("disk")]);
    assert!(told.succeeds().contains(&format!("\"bytes\":{LEN}")), "{}", told.out);
    same(&world.there("disk"));
    let told = world.run(&["get", "--json", &world.url("disk"), "back"]);
    assert!(told.succeeds().contains(&format!("\"bytes\":{LEN}")), "{}", told.out);
    same(&world.place.path("back"));
    // A copy by the server keeps the holes, and so does a copy through this machine to another
    // server.
    world.run(&["cp", &world.url("disk"), &world.url("copy")]).succeeds();
    same(&world.there("copy"));
    let other = World::new();
    world.run(&["cp", &world.url("disk"), &other.url("disk")]).succeeds();
    same(&other.there("disk"));
    // The file `empty` is one hole, without any data.
    fs::File::create_new(world.place.path("empty")).unwrap().set_len(1 << 20).unwrap();
    world.run(&["put", "empty", &world.url("empty")]).succeeds();
    world.run(&["get", &world.url("empty"), "empty-back"]).succeeds();
    assert_same(&world.place.path("empty"), &world.place.path("empty-back"));
}

/// The bar of a download has the files that are done and the one that is copied now.
#[test]
fn the_bar_of_a_download_names_the_current_file() {
    let world = World::new();
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("sub")).unwrap();
    fs::write(here.join("first"), vec![b'x'; 1 << 20]).unwrap();
    fs::write(here.join("sub/second"), vec![b'x'; 5 << 20]).unwrap();
    world.run(&["put", "-r", "here", &world.url("")]).succeeds();
    // `script` provides a terminal, and the low bandwidth makes the progress bar appear between the
    // file names.
    let get = format!("stty cols 200; {} get -r --bwlimit 2M", env!("CARGO_BIN_EXE_frevo"));
    let get = format!("{get} {} back", world.url("here"));
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &*get, "/dev/null"]).current_dir(world.place.path("")).env_clear();
    command.env("HOME", world.place.path("")).env("PATH", "/usr/bin:/bin").env("TERM", "xterm");
    let told = said(command.env("FREVO_PASSWORD", "secret").stdin(Stdio::null()).output().unwrap());
    let shown = told.succeeds();
    let names = ["here/first", "here/sub/second"];
    assert!(names.iter().any(|name| shown.contains(name)), "{shown:?}");
    assert!(shown.contains("1 of 2 files, "), "{shown:?}");
    assert_same(&here, &world.place.path("back"));
}

/// Each failure is told once, in one sentence.
#[test]
fn strangers_are_told_what_to_do() {
    let world = World::new();
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("sub")).unwrap();
    fs::write(here.join("sub/x"), "x").unwrap();
    fs::write(here.join("y"), "y").unwrap();
    fs::write(world.place.path("plain"), "mine").unwrap();
    fs::write(world.there("file"), "kept").unwrap();
    world.run(&["put", "-r", "here", &world.url("")]).succeeds();
    let once = |arguments: &[&str], code: i32, words: &[&str]| {
        let said = world.run(arguments);
        said.fails(code, words);
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    };
    once(&["put", "-r", "here", &world.url("file")], 1, &["is a file"]);
    once(&["get", "-r", &world.url("here"), "plain"], 1, &["plain is a file"]);
    once(&["get", "-r", &world.url("here"), "/proc/no"], 1, &["cannot create /proc/no"]);
    let long = "n".repeat(300);
    once(
        &["mv", &world.url("file"), &world.url(&long)],
        1,
        &["rename to", &long, "choose another name"],
    );
    once(&["mv", &world.url("file"), &world.url("no/b")], 6, &["rename to", "no/b"]);
    once(&["mv", "-n", &world.url("file"), &world.url("here/y")], 1, &["here/y", "exists"]);
    once(&["mkdir", &world.url(&long)], 1, &["does not accept such a name"]);
    let odd = std::ffi::OsStr::from_bytes(b"bad\xff");
    fs::write(world.place.path("odd").with_file_name(odd), "x").unwrap();
    let mut command = world.command(&["put"]);
    let sent = said(command.arg(odd).arg(world.url("")).output().unwrap());
    sent.fails(1, &["not UTF-8", "rename it"]);
    assert_eq!(fs::read_to_string(world.place.path("plain")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(world.there("file")).unwrap(), "kept");
}

/// Without a writer a named pipe would be waited for without end.
#[test]
fn a_pipe_is_not_sent() {
    let world = World::new();
    let mkfifo = std::process::Command::new("mkfifo").arg(world.place.path("pipe")).status();
    assert!(mkfifo.unwrap().success());
    world.place.file("file", "data", 0o644);
    let url = world.url("");
    let told = world.run(&["put", "pipe", "file", &url]);
    told.fails(1, &["pipe is not a file but a pipe", "frevo put - URL < pipe"]);
    assert!(!world.there("pipe").exists());
    assert_eq!(fs::read(world.there("file")).unwrap(), b"data");
    // A pipe named directly is an error, but a pipe in a folder is only skipped.
    fs::create_dir(world.place.path("folder")).unwrap();
    fs::rename(world.place.path("pipe"), world.place.path("folder/pipe")).unwrap();
    let told = world.run(&["put", "-r", "folder", &url]);
    told.succeeds();
    assert!(told.err.contains("skipped links and special files: "), "{told:?}");
}

#[test]
fn a_read_only_share_is_told() {
    let world = World::with(&["--read-only"]);
    fs::write(world.there("old"), "old").unwrap();
    world.place.file("file", "data", 0o644);
    world.place.file("big", &"x".repeat(3 << 20), 0o644);
    let (new, old) = (world.url("new"), world.url("old"));
    for change in [
        &["put", "file", &*new][..],
        &["put", "big", &new],
        &["put", "file", &old],
        &["mkdir", &new],
        &["rm", &old],
        &["mv", &old, &new],
    ] {
        let told = world.run(change);
        told.fails(1, &["the share is read-only for this user (ACCESS_DENIED)"]);
    }
    assert_eq!(world.run(&["cat", &old]).succeeds(), "old");
}
