//! `frevo bench`: its figures are there, and its files are not.

mod harness;

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use harness::world::World;
use harness::{PATIENCE, said, text};

/// All tests, in their order.
const TESTS: [&str; 10] = [
    "write",
    "read",
    "random-write",
    "random-read",
    "create",
    "stat",
    "list",
    "open-read",
    "mix",
    "delete",
];

fn is_empty(world: &World) -> bool {
    fs::read_dir(world.there("")).unwrap().next().is_none()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Names of files at a path of the run's directory.
fn made(world: &World, path: &str) -> usize {
    let runs = fs::read_dir(world.there("")).unwrap();
    let paths = runs.map(|run| run.unwrap().path().join(path));
    paths.filter_map(|path| fs::read_dir(path).ok()).map(Iterator::count).sum()
}

#[test]
fn every_test_has_figures_and_nothing_is_left() {
    let world = World::new();
    let url = world.url("");
    let run =
        world.run(&["bench", &url, "--json", "--time", "0.1", "--size", "2M", "--files", "10"]);
    let objects: Vec<serde_json::Value> =
        run.succeeds().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (head, results) = objects.split_first().unwrap();
    assert_eq!((&head["dialect"], &head["clients"]), (&"SMB 3.1.1".into(), &1.into()));
    let tests: Vec<_> = results.iter().map(|one| one["test"].as_str().unwrap()).collect();
    assert_eq!(tests, TESTS);
    for one in results {
        let figures = ["operations", "per_second", "seconds"].map(|name| one[name].as_f64());
        assert!(figures.iter().all(|figure| figure.unwrap() > 0.0), "{one}");
        let latency = ["p50", "p90", "p99", "p99.9", "max"];
        let latency = latency.map(|name| one["latency_ns"][name].as_u64().unwrap());
        assert!(latency[0] > 0 && latency.is_sorted(), "{one}");
    }
    let cpu: f64 = results.iter().map(|one| one["cpu_seconds"].as_f64().unwrap()).sum();
    assert!(cpu > 0.0);
    let by_name = |name: &str| results.iter().find(|one| one["test"] == name).unwrap();
    let operations = |name: &str| by_name(name)["operations"].as_u64().unwrap();
    // A busy machine may make fewer than the wanted 10 files in the given time, and remove fewer than those.
    let (files, removed) = (operations("create"), operations("delete"));
    assert!(files <= 10 && removed <= files, "{removed} of {files} removed");
    assert_eq!(by_name("list")["entries"].as_u64().unwrap(), files * operations("list"));
    assert_eq!(by_name("read")["bytes"].as_u64().unwrap(), operations("read") << 20);
    assert!(is_empty(&world));
}

#[test]
fn blocks_have_the_size_that_was_asked_for() {
    let world = World::new();
    let url = world.url("");
    for (block, bytes) in [("1k", 1024), ("12k", 12_288), ("2M", 2 << 20)] {
        let mut arguments = vec!["bench", &url, "--json", "--time", "0.1", "--size", "4M"];
        arguments.extend(["--only", "write,read", "--block", block]);
        let run = world.run(&arguments);
        let objects: Vec<serde_json::Value> =
            run.succeeds().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects[0]["request_size"], bytes);
        for one in &objects[1..] {
            let operations = one["operations"].as_u64().unwrap();
            assert_eq!(one["bytes"], operations * bytes, "{one}");
        }
        assert_eq!(objects.len(), 3);
    }
    for wrong in ["0", "256", "5000", "16M", "1x"] {
        world.run(&["bench", &url, "--block", wrong]).fails(2, &["--block"]);
    }
}

#[test]
fn several_clients_a_table_and_a_picture() {
    let world = World::new();
    fs::create_dir(world.there("d")).unwrap();
    fs::write(world.there("d/mine"), "mine").unwrap();
    let picture = world.place.path("picture.svg");
    let url = world.url("d");
    let arguments = [
        "bench",
        &url,
        "--only",
        "delete,stat,random-read,stat",
        "--clients",
        "3",
        "--depth",
        "2",
        "--time",
        "0.1",
        "--size",
        "3M",
        "--files",
        "6",
        "--plot",
        text(&picture),
    ];
    let run = world.run(&arguments);
    let lines: Vec<_> = run.succeeds().lines().collect();
    assert!(lines[0].contains("3 clients, 1 connection each, files of 1.0M"), "{lines:?}");
    assert!(lines[1].ends_with("p50       p90       p99     p99.9       max"), "{lines:?}");
    let begins = |line: &str, words: &[&str]| {
        assert_eq!(line.split_whitespace().next(), words.first().copied(), "{line}");
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    };
    begins(lines[2], &["random-read", "ops/s"]);
    begins(lines[3], &["stat", "ops/s"]);
    begins(lines[4], &["delete", "ops/s"]);
    assert_eq!(lines.len(), 5, "{lines:?}");
    let drawn = fs::read_to_string(&picture).unwrap();
    assert_eq!(drawn.matches("<polyline").count(), 3);
    // The picture exists already, so the command fails before it measures anything.
    let again = world.run(&arguments);
    again.fails(1, &["cannot create", "picture.svg"]);
    assert!(again.out.is_empty());
    assert_eq!(fs::read_to_string(&picture).unwrap(), drawn);
    let left: Vec<_> = fs::read_dir(world.there("d")).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert_eq!(fs::read(world.there("d/mine")).unwrap(), b"mine");
}

fn interrupt(child: &Child, signal: &str) {
    let sent = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn an_interrupted_run_removes_its_files() {
    let world = World::new();
    let url = world.url("");
    for (signal, test, file) in [
        ("-INT", "create", "client-0/files"),
        ("-TERM", "mix", "client-0/small"),
        ("-INT", "read", "client-0"),
    ] {
        let picture = world.place.path("interrupted.svg");
        let arguments = [
            "bench",
            &url,
            "--only",
            test,
            "--time",
            "600",
            "--files",
            "1000000",
            "--depth",
            "8",
            "--size",
            "64M",
            "--plot",
            text(&picture),
        ];
        let child = world.command(&arguments).spawn().unwrap();
        until("nothing is made", || made(&world, file) > 1);
        interrupt(&child, signal);
        let ended = said(child.wait_with_output().unwrap());
        ended.fails(130, &["interrupted"]);
        assert!(is_empty(&world), "{test}: {ended:?}");
        assert!(!picture.exists());
    }
}

#[test]
fn a_run_that_fails_leaves_nothing() {
    let world = World::new();
    let url = world.url("");
    world.run(&["bench", &world.url("none")]).fails(6, &["none"]);
    world.run(&["bench", &url, "--only", "reed"]).fails(2, &["reed", "random-read"]);
    world.run(&["bench", &url, "--clients", "0"]).fails(2, &["1..=64"]);
    world.run(&["bench", &url, "--size", "100000T"]).fails(1, &["free", "--size"]);
    let shares = format!("smb://ann@{}", world.address);
    world.run(&["bench", &shares]).fails(2, &["has no share name"]);
    assert!(is_empty(&world));
    let read_only = World::with(&["--read-only"]);
    read_only.run(&["bench", &read_only.url("")]).fails(1, &["frevo-bench-"]);
    assert!(is_empty(&read_only));
}

#[test]
fn a_lost_server_is_told_with_the_files_that_stay() {
    let mut world = World::new();
    let url = world.url("");
    let arguments =
        ["bench", &url, "--only", "stat", "--time", "600", "--files", "20", "--patience", "1"];
    let child = world.command(&arguments).spawn().unwrap();
    until("nothing is made", || made(&world, "client-0/files") == 20);
    world.kill();
    let ended = said(child.wait_with_output().unwrap());
    ended.fails(5, &["could not be removed", "run frevo rm -r smb://"]);
    let name = fs::read_dir(world.there("")).unwrap().next().unwrap().unwrap().file_name();
    assert!(ended.err.contains(name.to_str().unwrap()), "{}", ended.err);
}
