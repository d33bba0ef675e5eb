//! The JSON output of the client's commands: results and failures, one object per line.

mod harness;

use std::fs;

use harness::world::World;
use harness::{Said, said, text};
use serde_json::Value;

/// Each line is an object.
fn objects(text: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    all.inspect(|one| assert!(one.is_object(), "{one}")).collect()
}

/// The failures, and that nothing else is said.
fn failures(said: &Said) -> Vec<Value> {
    assert!(said.out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{said:?}");
    objects(&said.err).into_iter().filter(|one| one.get("note").is_none()).collect()
}

#[test]
fn every_failure_is_an_object() {
    let world = World::new();
    fs::write(world.there("file"), "x").unwrap();
    fs::create_dir(world.there("folder")).unwrap();
    world.place.file("here", "x", 0o644);
    let (absent, file, folder) = (world.url("absent"), world.url("file"), world.url("folder"));
    let no_share = world.url("").replace("/share/", "/nothing/");
    let no_server = "smb://ann@127.0.0.1:1/x";
    let both = "--json";
    let cases: &[(&[&str], i32, &str)] = &[
        (&["ls", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["tree", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["find", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["stat", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["cat", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["cat", both, &folder], 1, "FILE_IS_A_DIRECTORY"),
        (&["get", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["put", both, "here", &world.url("no/such")], 6, "OBJECT_PATH_NOT_FOUND"),
        (&["put", both, "here", &world.url("file/")], 1, "NOT_A_DIRECTORY"),
        (&["cp", both, &absent, &file], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["mv", both, &absent, &file], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["rm", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["mkdir", both, &folder], 1, "OBJECT_NAME_COLLISION"),
        (&["sync", both, &absent, "local"], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["watch", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["acl", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["snapshots", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["attrib", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["attrib", both, "+r", &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["df", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["du", both, &absent], 6, "OBJECT_NAME_NOT_FOUND"),
        (&["ls", both, &no_share], 6, "BAD_NETWORK_NAME"),
    ];
    for (arguments, code, status) in cases {
        let said = world.run(arguments);
        assert_eq!(said.code, *code, "{arguments:?} {said:?}");
        let failed = failures(&said);
        let [failed] = &*failed else { panic!("{arguments:?} {said:?}") };
        assert_eq!(failed["exit"], *code, "{arguments:?}");
        assert!(failed["status"].as_str().unwrap().contains(status), "{arguments:?} {failed}");
        assert!(failed["code"].as_u64().unwrap() >= 0xC000_0000, "{arguments:?}");
        assert!(!failed["operation"].as_str().unwrap().is_empty(), "{arguments:?}");
        assert!(failed["path"].as_str().unwrap().contains("smb://"), "{arguments:?}");
        assert!(failed["message"].as_str().unwrap().len() > 10, "{arguments:?}");
    }
    // These errors occur before any server has answered.
    let cases: &[(&[&str], i32)] = &[
        (&["shares", both, no_server], 5),
        (&["ls", both, no_server], 5),
        (&["put", both, "nothing here", &file], 6),
        (&["put", both, ".", &file], 2),
        (&["get", both, &folder], 2),
        (&["rm", both, &folder], 2),
        (&["rm", both, &world.url("")], 2),
        (&["mv", both, &file, &no_share], 2),
        (&["mv", both, &file, &world.url("no/")], 2),
        (&["ls", both, "--no-such"], 2),
        (&["ls", both, "http://x"], 2),
        (&["sync", both, "a", "b"], 2),
        (&["mount", both, &file, "nowhere"], 6),
    ];
    for (arguments, code) in cases {
        let said = world.run(arguments);
        assert_eq!(said.code, *code, "{arguments:?} {said:?}");
        let failed = failures(&said);
        let [failed] = &*failed else { panic!("{arguments:?} {said:?}") };
        assert_eq!((&failed["exit"], &failed["status"]), (&Value::from(*code), &Value::Null));
        for member in ["message", "operation", "path", "status", "code", "exit"] {
            assert!(failed.get(member).is_some(), "{member} in {failed}");
        }
    }
    let wrong = world.command(&["ls", both, &file]).env("FREVO_PASSWORD", "x").output().unwrap();
    assert_eq!(failures(&said(wrong))[0]["exit"], 4);
    // With several paths each of the two failures is reported, and a summary at the end.
    let several = world.run(&["stat", both, &absent, &file, &absent]);
    assert_eq!(failures(&several).len(), 3, "{several:?}");
    assert_eq!(objects(&several.out).len(), 1);
}

#[test]
fn every_result_is_an_object() {
    let world = World::new();
    let here = world.place.folder("here");
    fs::create_dir_all(here.join("sub")).unwrap();
    fs::write(here.join("sub/x"), "x").unwrap();
    std::os::unix::fs::symlink("x", here.join("link")).unwrap();
    let (url, server) = (world.url("tree"), format!("smb://ann@{}", world.address));
    let (file, copy, moved) = (world.url("tree/here/sub/x"), world.url("copy"), world.url("moved"));
    let all: &[(&[&str], usize)] = &[
        (&["mkdir", &url], 0),
        (&["put", "-rn", "here", &url], 3),
        (&["put", "-r", "here", &url], 1),
        (&["ls", &url], 1),
        (&["ls", "-lR", &url], 3),
        (&["tree", &url], 3),
        (&["find", &url], 3),
        (&["stat", &url, &file], 2),
        (&["get", "-rn", &url, "there"], 1),
        (&["get", "-r", &url, "there"], 1),
        (&["cp", &file, &copy], 1),
        (&["mv", &copy, &moved], 0),
        (&["sync", "-n", &url, "synced"], 3),
        (&["sync", &url, "synced"], 1),
        (&["shares", &server], 1),
        (&["acl", &file], 2),
        (&["snapshots", &url], 0),
        (&["attrib", "-R", &url], 4),
        (&["attrib", "+h", &file], 0),
        (&["df", &url], 1),
        (&["du", &url], 3),
        (&["rm", "-rn", &url], 4),
        (&["rm", "-r", &url], 0),
    ];
    for (arguments, count) in all {
        let (verb, rest) = arguments.split_first().unwrap();
        let said = world.run(&[&[*verb, "--json"], rest].concat());
        let found = objects(said.succeeds());
        if *verb == "acl" {
            assert!(found.len() >= *count, "{said:?}");
        } else {
            assert_eq!(found.len(), *count, "{arguments:?} {said:?}");
        }
        // With `--json` notes are printed as objects, too.
        let notes = objects(&said.err);
        assert!(notes.iter().all(|note| note.get("note").is_some()), "{said:?}");
        assert_eq!(notes.len(), usize::from(matches!(*verb, "put" | "snapshots")), "{said:?}");
    }
}

#[test]
fn attributes_are_shown_and_set() {
    let world = World::new();
    fs::create_dir_all(world.there("tree/sub")).unwrap();
    for name in ["x", "sub/y"] {
        fs::write(world.there(&format!("tree/{name}")), "x").unwrap();
    }
    let (tree, x) = (world.url("tree"), world.url("tree/x"));
    let letters =
        |url: &str| world.run(&["attrib", url]).succeeds().split(' ').next().unwrap().to_owned();
    world.run(&["attrib", "+r", "+h", &x]).succeeds();
    assert_eq!(&letters(&x)[2..5], "rh-");
    world.run(&["attrib", "-r", "-h", "+s", &x]).succeeds();
    assert_eq!(&letters(&x)[2..5], "--s");
    world.run(&["attrib", "-e", "-sa", &x]).succeeds();
    world.run(&["attrib", "-x", &x]).fails(2, &["-x"]);
    assert_eq!(letters(&x), "-------");
    world.run(&["attrib", "+i", &x]).succeeds();
    assert_eq!(letters(&x), "------i");
    world.run(&["attrib", "-i", &x]).succeeds();
    world.run(&["attrib", "+h", "--recursive", &tree]).succeeds();
    assert_eq!(letters(&tree), "d--h---");
    let shown = world.run(&["attrib", "-R", &tree]);
    assert_eq!(shown.succeeds().lines().filter(|line| line[3..].starts_with('h')).count(), 4);
    assert!(shown.out.contains("share/tree/sub/y\n"), "{shown:?}");
    world
        .run(&[
            "attrib",
            "--modified",
            "2001-09-09T01:46:40Z",
            "--created",
            "2000-01-01T00:00Z",
            &x,
        ])
        .succeeds();
    let told = world.run(&["stat", "--json", &x]);
    let told: Value = serde_json::from_str(told.succeeds()).unwrap();
    assert_eq!(told["modified"], "2001-09-09T01:46:40Z");
    assert_eq!(told["created"], "2000-01-01T00:00:00Z");
    assert_eq!(letters(&x), "---h---", "a time alone changes no attribute");
    world.run(&["attrib", "+q", &x]).fails(2, &["flags are"]);
    world.run(&["attrib", "+r"]).fails(2, &["no file is named"]);
    world.run(&["attrib", "--modified", "soon", &x]).fails(2, &["not a date"]);
}

#[test]
fn room_and_sizes_are_told() {
    let world = World::new();
    fs::create_dir_all(world.there("tree/a/b")).unwrap();
    for (name, size) in [("tree/x", 10_usize), ("tree/a/y", 2_000), ("tree/a/b/z", 30_000)] {
        fs::write(world.there(name), vec![1; size]).unwrap();
    }
    let url = world.url("tree");
    let sizes = |more: &[&str]| {
        let said = world.run(&[&["du", "--json"], more, &[&*url]].concat());
        let all = objects(said.succeeds()).into_iter();
        all.map(|one| (one["path"].as_str().unwrap().to_owned(), one["size"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let expected = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
        all.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
    };
    assert_eq!(sizes(&[]), expected(&[("tree/a", 32_000), ("tree/a/b", 30_000), ("tree", 32_010)]));
    assert_eq!(sizes(&["--depth", "1"]), expected(&[("tree/a", 32_000), ("tree", 32_010)]));
    assert_eq!(sizes(&["-s"]), expected(&[("tree", 32_010)]));
    let shown = world.run(&["du", "-sh", &url, &world.url("tree/x")]);
    assert!(shown.succeeds().contains(" 31k smb://") && shown.out.contains(" 10 smb://"));
    let room = world.run(&["df", "--json", &url]);
    let room: Value = serde_json::from_str(room.succeeds()).unwrap();
    let number = |name: &str| room[name].as_u64().unwrap();
    assert!(number("size") > 0 && number("available") <= number("free"));
    assert_eq!(number("used") + number("free"), number("size"));
    let shown = world.run(&["df", &url, &world.url("")]);
    assert_eq!(shown.succeeds().lines().count(), 3);
    assert!(shown.out.contains('%') && text(&world.there("")).len() > 1, "{shown:?}");
}
