//! Names with characters that SMB reserves, through every command; wildcards.

mod harness;

use std::fs;
use std::os::unix::ffi::OsStrExt;

use harness::world::{World, assert_same};

/// A name in a URL, with the characters of wildcards and separators escaped.
fn escaped(name: &str) -> String {
    let mut text = name.replace('%', "%25");
    for (one, escape) in [('*', "%2A"), ('?', "%3F"), ('\\', "%5C"), ('\n', "%0A")] {
        text = text.replace(one, escape);
    }
    text
}

const ODD: [&str; 10] = [
    "a:b.txt",
    "what?",
    "a*b",
    "back\\slash",
    "<>|\"",
    "end.",
    "end ",
    "100%",
    "new\nline",
    "a::b",
];

#[test]
fn names_come_back_from_every_command() {
    let world = World::new();
    let here = world.place.folder("here");
    for name in ODD {
        fs::write(here.join(name), name).unwrap();
    }
    world.run(&["put", "-r", "here", &world.url("there")]).succeeds();
    let listed = world.run(&["ls", &world.url("there")]);
    for name in ODD {
        assert!(listed.succeeds().contains(&format!("{name}\n")), "{name}: {listed:?}");
    }
    let found = world.run(&["find", &world.url("there"), "--type", "f"]);
    let urls: Vec<&str> = found.succeeds().lines().collect();
    assert_eq!(urls.len(), ODD.len(), "{found:?}");
    for url in urls {
        let content = world.run(&["cat", url]);
        assert!(ODD.contains(&content.succeeds()), "{url}: {content:?}");
        assert!(world.run(&["du", url]).succeeds().ends_with(&format!("{url}\n")));
        assert!(world.run(&["attrib", url]).succeeds().ends_with(&format!("{url}\n")));
        assert!(world.run(&["stat", url]).succeeds().starts_with(&format!("{url}\n")));
    }
    for name in ODD {
        let url = world.url(&format!("there/{}", escaped(name)));
        assert_eq!(world.run(&["cat", &url]).succeeds(), name);
        let json = world.run(&["ls", "--json", &url]);
        let entry: serde_json::Value = serde_json::from_str(json.succeeds()).unwrap();
        assert_eq!(entry["path"], format!("there/{name}"));
        let copy = world.url(&format!("copy {}", escaped(name)));
        world.run(&["cp", &url, &copy]).succeeds();
        let moved = world.url(&format!("moved {}", escaped(name)));
        world.run(&["mv", &copy, &moved]).succeeds();
        world.run(&["get", &moved]).succeeds();
        assert_eq!(fs::read(world.place.path(&format!("moved {name}"))).unwrap(), name.as_bytes());
        world.run(&["rm", &moved]).succeeds();
    }
    world.run(&["get", "-r", &world.url("there"), "back"]).succeeds();
    assert_same(&here, &world.place.path("back"));
    world.run(&["sync", "--delete", "here", &world.url("there")]).succeeds();
    assert_eq!(world.run(&["sync", "-n", "here", &world.url("there")]).succeeds(), "");
    world.run(&["mkdir", "-p", &world.url("dir:1./what%3F")]).succeeds();
    assert_eq!(world.run(&["ls", &world.url("dir:1.")]).succeeds(), "what?/\n");
    world.run(&["rm", "-r", &world.url("dir:1."), &world.url("there")]).succeeds();
    assert_eq!(fs::read_dir(world.there("")).unwrap().count(), 0);
}

#[test]
fn messages_and_streams_have_the_names_that_were_given() {
    let world = World::new();
    world.run(&["cat", &world.url("no:such.txt")]).fails(6, &["/share/no:such.txt"]);
    world.place.file("file", "data", 0o644);
    world.place.file("more", "stream", 0o644);
    world.run(&["put", "file", &world.url("f")]).succeeds();
    world.run(&["put", "more", &world.url("f/:meta")]).succeeds();
    assert_eq!(world.run(&["cat", &world.url("f/:meta")]).succeeds(), "stream");
    assert_eq!(world.run(&["cat", &world.url("f")]).succeeds(), "data");
    world.run(&["cat", &world.url("f:meta")]).fails(6, &["/share/f:meta"]);
}

#[test]
fn names_that_are_one_on_the_server_are_told() {
    let world = World::new();
    let here = world.place.folder("here");
    fs::write(here.join("a:b"), "1").unwrap();
    fs::write(here.join("a\u{f022}b"), "2").unwrap();
    fs::write(here.join("c"), "3").unwrap();
    let put = world.run(&["put", "-r", "here", &world.url("there")]);
    put.fails(1, &["the same as", "rename one"]);
    assert_eq!(fs::read_dir(world.there("there")).unwrap().count(), 2);
    // The name has a private-use character, which users cannot type, but `find` prints it so that
    // `cat` accepts it.
    fs::write(world.there("x\u{f029}y"), "odd").unwrap();
    fs::write(world.there("x.y"), "plain").unwrap();
    let found = world.run(&["find", &world.url(""), "--name", "x*"]);
    let mut content: Vec<String> =
        found.succeeds().lines().map(|url| world.run(&["cat", url]).out).collect();
    content.sort();
    assert_eq!(content, ["odd", "plain"]);
    let bad = here.join(std::ffi::OsStr::from_bytes(b"\xff"));
    fs::write(bad, "").unwrap();
    world.run(&["put", "-r", "here", &world.url("there")]).fails(1, &["2 files failed"]);
}

#[test]
fn wildcards_name_files_of_the_server() {
    let world = World::new();
    for name in ["a1.jpg", "a2.JPG", "b.txt", ".hidden.jpg", "2024/x.jpg", "2025/y.jpg", "2025/z"] {
        let path = world.there(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let listed = world.run(&["cat", &world.url("*.jpg")]);
    assert_eq!(listed.succeeds(), "a1.jpga2.JPG");
    world.run(&["get", &world.url("20??/*.jpg"), "."]).succeeds();
    assert!(world.place.path("x.jpg").exists() && world.place.path("y.jpg").exists());
    assert_eq!(world.run(&["cat", &world.url("20*/z")]).succeeds(), "2025/z");
    world.run(&["ls", &world.url("*.png")]).fails(6, &["no file matches", "*.png"]);
    world.run(&["rm", "-f", &world.url("*.png")]).succeeds();
    // The file `a*` exists, so `a*` is not taken as a pattern. Only this file is removed.
    fs::write(world.there("a*"), "star").unwrap();
    world.run(&["rm", &world.url("a*")]).succeeds();
    assert!(world.there("a1.jpg").exists() && !world.there("a*").exists());
    world.run(&["cp", &world.url("a*"), &world.url("2025/")]).succeeds();
    world.run(&["rm", &world.url("a*")]).succeeds();
    assert!(!world.there("a1.jpg").exists() && world.there("2025/a1.jpg").exists());
    assert!(world.there(".hidden.jpg").exists());
}

/// The URL of an error, and a dry run's total, are of use to who reads them.
#[test]
fn errors_have_urls_that_a_command_takes() {
    let world = World::new();
    world.place.file("100% [x]", "text", 0o644);
    world.run(&["put", "100% [x]", &world.url("")]).succeeds();
    let absent = world.url("100%25 [y]");
    let said = world.run(&["cat", &absent]);
    said.fails(6, &[&absent]);
    let message = said.err.strip_prefix("frevo: open ").unwrap();
    let url = message.split(": no such").next().unwrap().replace("[y]", "[x]");
    assert_eq!(world.run(&["cat", &url]).succeeds(), "text");
    world.place.folder("tree/sub");
    world.place.file("tree/sub/one", "1", 0o644);
    world.place.file("tree/two", "22", 0o644);
    let dry = world.run(&["put", "-r", "-n", "tree", &world.url("")]);
    dry.succeeds();
    assert!(dry.err.contains("dry run: 2 files to copy, 3 B; 2 other changes"), "{dry:?}");
    let dry = world.run(&["sync", "-n", "--json", "tree", &world.url("other")]);
    assert_eq!(dry.succeeds().lines().count(), 3, "a folder and two files: {dry:?}");
}

/// A directory so deep below `root` that its path is longer than a system call takes.
fn deep(root: &std::path::Path, makes: bool) -> std::os::fd::OwnedFd {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, flags, Mode::empty()).unwrap();
    for _ in 0..DEPTH {
        if makes {
            mkdirat(&at, &*"n".repeat(NAME), Mode::RWXU).unwrap();
        }
        at = openat(&at, &*"n".repeat(NAME), flags, Mode::empty()).unwrap();
    }
    at
}

/// Names on the way to a file, and the bytes of each: 5,000 in all.
const DEPTH: usize = 25;
const NAME: usize = 200;

#[test]
fn local_paths_longer_than_a_system_call_takes_are_copied() {
    use rustix::fs::{Mode, OFlags, openat};
    use std::io::{Read, Write};
    let world = World::new();
    let here = world.place.folder("here");
    let open = |root: &std::path::Path, flags| {
        let made = openat(deep(root, false), "file", flags, Mode::RUSR | Mode::WUSR);
        fs::File::from(made.unwrap())
    };
    let content = |root: &std::path::Path| {
        let mut found = String::new();
        open(root, OFlags::RDONLY).read_to_string(&mut found).unwrap();
        found
    };
    let write = |text: &str| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        open(&here, flags).write_all(text.as_bytes()).unwrap();
    };
    drop(deep(&here, true));
    write("one");
    let large = "large".repeat(50_000);
    world.run(&["put", "-r", "here", &world.url("put")]).succeeds();
    assert_eq!(content(&world.there("put")), "one");
    world.run(&["get", "-r", &world.url("put"), "got"]).succeeds();
    assert_eq!(content(&world.place.path("got")), "one");
    write(&large);
    world.run(&["sync", "here", &world.url("put")]).succeeds();
    assert_eq!(content(&world.there("put")), large);
    world.run(&["sync", "--checksum", &world.url("put"), "got"]).succeeds();
    assert_eq!(content(&world.place.path("got")), large);
    // After the download the local and the remote tree are equal, so nothing is copied.
    let again = world.run(&["sync", "-n", &world.url("put"), "got"]);
    assert!(!again.succeeds().contains("copy"), "{again:?}");
    fs::remove_dir_all(&here).unwrap();
    fs::create_dir(&here).unwrap();
    fs::write(here.join("other"), "").unwrap();
    world.run(&["put", "here/other", &world.url("put/other")]).succeeds();
    world.run(&["rm", "-r", &world.url(&format!("put/{}", "n".repeat(NAME)))]).succeeds();
    world.run(&["sync", "--delete", &world.url("put"), "got"]).succeeds();
    let left: Vec<_> = fs::read_dir(world.place.path("got")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
