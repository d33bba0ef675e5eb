//! A namespace of DFS over two servers, as the program's own commands walk it.
#![allow(clippy::disallowed_methods, reason = "tests")]

mod harness;

use std::fs;

use harness::world::{World, assert_same};
use harness::{PATIENCE, Said, Serving, text};

/// A server `two` of one folder, and a server `one` of a namespace that leads there.
struct Two {
    world: World,
    one: Serving,
}

impl Two {
    fn new(namespaces: &str) -> Self {
        let world = World::new();
        fs::create_dir_all(world.there("dir/deep")).unwrap();
        for (name, content) in [("a", "first"), ("dir/b", "second"), ("dir/deep/c", "third")] {
            fs::write(world.there(name), content).unwrap();
        }
        let own = world.place.folder("own");
        fs::write(own.join("mine"), "own").unwrap();
        fs::create_dir_all(own.join("both")).unwrap();
        fs::write(own.join("both/file"), "beside").unwrap();
        Self::configure(&world, namespaces);
        let add = ["user", "add", "ann", "--password-stdin", "--config", "frevo.toml"];
        world.place.run_with_input(&add, "secret").succeeds();
        let log = world.place.path("log");
        let mut command = world.place.command(&["serve", "-c", "frevo.toml"]);
        // The servers of targets are probed at the port of `two`.
        let (_, port) = world.address.rsplit_once(':').unwrap();
        command.env("FREVO_TEST_TARGET_PORT", port);
        command.stderr(fs::File::create(&log).unwrap());
        let mut one = Serving::start(command);
        let log = fs::read_to_string(log).unwrap();
        let line = log.lines().find(|line| line.contains("listening")).unwrap();
        let address = line.split("address=").nth(1).unwrap();
        address.split(' ').next().unwrap().clone_into(&mut one.address);
        Self { world, one }
    }

    fn configure(world: &World, namespaces: &str) {
        let (own, state) = (world.place.path("own"), world.place.folder("state-of-one"));
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\ndiscovery = \"off\"\nstate_dir = {state:?}\n\
             [[share]]\nname = \"own\"\npath = {own:?}\n{namespaces}"
        );
        world.place.file("frevo.toml", &text, 0o644);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.world.place.path("log")).unwrap()
    }

    #[cfg(feature = "test-hooks")]
    fn await_log(&self, line: &str) {
        let began = std::time::Instant::now();
        while !self.log().contains(line) {
            assert!(began.elapsed() < PATIENCE, "{line}: {}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    fn reload(&self, namespaces: &str) {
        let count = || self.log().matches("configuration reloaded").count();
        let before = count();
        Self::configure(&self.world, namespaces);
        self.one.signal("-HUP");
        let began = std::time::Instant::now();
        while count() == before {
            assert!(began.elapsed() < PATIENCE, "{}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Waits until the servers of targets are these.
    #[cfg(feature = "test-hooks")]
    fn await_targets(&self, expected: &[(String, String)]) {
        let began = std::time::Instant::now();
        while self.targets() != expected {
            assert!(began.elapsed() < PATIENCE, "{:?}: {}", self.targets(), self.log());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// The servers of targets as `frevo status` has them: names and states.
    #[cfg(feature = "test-hooks")]
    fn targets(&self) -> Vec<(String, String)> {
        let status = self.world.place.run(&["status", "-c", "frevo.toml", "--json"]);
        let status: serde_json::Value = serde_json::from_str(status.succeeds()).unwrap();
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
        let rows = status["targets"]["rows"].as_array().unwrap();
        rows.iter().map(|row| (text(row, "server"), text(row, "state"))).collect()
    }

    /// Runs a command of the client that knows both servers by their names.
    fn run(&self, arguments: &[&str]) -> Said {
        let one = format!("one={}", self.one.address);
        let two = format!("two={}", self.world.address);
        let (command, rest) = arguments.split_first().unwrap();
        let known = [*command, "--address", &one, "--address", &two];
        self.world.run(&[&known[..], rest].concat())
    }
}

fn link(path: &str, target: &str) -> String {
    format!("[[namespace.link]]\npath = '{path}'\ntargets = ['{target}']\n")
}

const FILES: &str = "[[namespace]]\nname = \"files\"\n";
const OWN: &str = "[[namespace]]\nname = \"own\"\n";

#[test]
fn a_namespace_is_walked_over_two_servers() {
    let all = [
        FILES,
        &link("teams\\red", "\\\\two\\share"),
        &link("teams\\deep\\er\\blue", "\\\\two\\share\\dir"),
        &link("own", "\\\\one\\own"),
        OWN,
        &link("both\\link", "\\\\two\\share\\dir\\deep"),
        &link("round", "\\\\one\\files\\own\\round"),
    ];
    let two = Two::new(&all.concat());
    let cat = |path: &str| two.run(&["cat", &format!("smb://ann@one/{path}")]);
    for (path, content) in [
        ("files/teams/red/a", "first"),
        ("FILES/Teams/RED/dir/deep/c", "third"),
        ("files/teams/deep/er/blue/b", "second"),
        ("files/own/mine", "own"),
        ("own/both/file", "beside"),
        ("own/both/link/c", "third"),
        ("files/own/both/link/c", "third"),
    ] {
        assert_eq!(cat(path).succeeds(), content, "{path}");
    }
    let listed = two.run(&["ls", "smb://ann@one/files/teams"]);
    assert!(listed.succeeds().contains("red") && listed.out.contains("deep"), "{}", listed.out);
    let fetched = two.world.place.path("fetched");
    two.run(&["get", "-r", "smb://ann@one/files/teams", text(&fetched)]).succeeds();
    assert_same(&fetched.join("red"), &two.world.there(""));
    assert_same(&fetched.join("deep/er/blue"), &two.world.there("dir"));
    // A file that is written through a link is on the other server.
    let new = two.world.place.file("new", "written", 0o644);
    two.run(&["put", text(&new), "smb://ann@one/files/teams/red/dir/new"]).succeeds();
    assert_eq!(fs::read_to_string(two.world.there("dir/new")).unwrap(), "written");
    // A root of its own takes no file, and a folder that is in the namespace only neither.
    assert_ne!(two.run(&["put", text(&new), "smb://ann@one/files/new"]).code, 0);
    assert_ne!(two.run(&["put", text(&new), "smb://ann@one/files/teams/new"]).code, 0);
    two.run(&["put", text(&new), "smb://ann@one/own/both/new"]).succeeds();
    let round = cat("own/round/x");
    assert!(round.err.contains("circle"), "{round:?}");
    assert_ne!(cat("files/none/x").code, 0);
    let said = two.one.stop();
    assert_eq!(said.code, 0, "{said:?}");
}

/// A link is not the folder that it leads to: what removes or moves it must not do so to that one.
#[test]
fn a_link_is_neither_emptied_nor_moved() {
    let links = [
        FILES,
        &link("teams\\red", "\\\\two\\share"),
        &link("teams\\blue", "\\\\two\\share\\dir"),
        &link("own", "\\\\one\\own"),
        OWN,
        &link("both\\link", "\\\\two\\share\\dir\\deep"),
    ];
    let two = Two::new(&links.concat());
    let (red, blue) = ("smb://ann@one/files/teams/red", "smb://ann@one/files/teams/blue");
    let interlink = "smb://ann@one/files/own/both/link";
    for arguments in [
        &["rm", "-r", red][..],
        &["rm", "-r", "--dry-run", red],
        &["rm", "-rf", blue],
        &["rm", "-r", "smb://ann@one/files/teams/*"],
        &["rm", "-r", interlink],
        &["rm", blue],
        &["mv", blue, "smb://ann@one/files/teams/red/moved"],
    ] {
        let said = two.run(arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        assert!(said.err.contains("is a DFS link to smb://"), "{arguments:?}: {said:?}");
    }
    for (name, content) in [("a", "first"), ("dir/b", "second"), ("dir/deep/c", "third")] {
        assert_eq!(fs::read_to_string(two.world.there(name)).unwrap(), content);
    }
    // Files behind a link can be removed and moved as ever.
    let moved = format!("{red}/dir/moved");
    two.run(&["mv", &format!("{red}/a"), &moved]).succeeds();
    two.run(&["rm", &moved]).succeeds();
    two.run(&["rm", "-r", &format!("{blue}/deep")]).succeeds();
    assert!(!two.world.there("dir/deep").exists() && !two.world.there("dir/moved").exists());
}

/// Files behind a link that the source lacks are those of another share: `sync --delete` leaves them alone, and so it
/// does a folder with a link in it.
#[test]
fn sync_removes_nothing_behind_a_link() {
    let links = [OWN, &link("both\\link", "\\\\two\\share"), &link("deep\\link", "\\\\two\\share")];
    let two = Two::new(&links.concat());
    let source = two.world.place.folder("source");
    fs::create_dir_all(source.join("both")).unwrap();
    fs::write(source.join("both/file"), "new one").unwrap();
    let own = two.world.place.path("own");
    fs::write(own.join("both/more"), "goes").unwrap();
    let (from, to) = (text(&source).to_owned(), "smb://ann@one/own");
    let both = format!("{from}/both");
    for arguments in [
        &["sync", "--delete", "--dry-run", &both, "smb://ann@one/own/both"][..],
        &["sync", "--delete", "--exclude", "nothing", &both, "smb://ann@one/own/both"],
        &["sync", "--delete", &both, "smb://ann@one/own/both"],
    ] {
        let said = two.run(arguments);
        said.succeeds();
        assert!(said.err.contains("skipped DFS links to other shares: both/link"), "{said:?}");
    }
    assert!(!own.join("both/more").exists());
    assert_eq!(fs::read_to_string(own.join("both/file")).unwrap(), "new one");
    // A link below a folder that only the target has keeps that folder, with an error.
    assert_ne!(two.run(&["sync", "--delete", &from, to]).code, 0);
    // A file of the source does not take a link's place.
    fs::write(source.join("both/link"), "in the way").unwrap();
    let said = two.run(&["sync", "--delete", &both, "smb://ann@one/own/both"]);
    assert!(said.code != 0 && said.err.contains("a DFS link in the target"), "{said:?}");
    for (name, content) in [("a", "first"), ("dir/b", "second"), ("dir/deep/c", "third")] {
        assert_eq!(fs::read_to_string(two.world.there(name)).unwrap(), content);
    }
}

/// A failure behind a link names the URL that was typed, and says that there is a link.
#[test]
fn a_link_that_leads_nowhere_is_told_with_the_url() {
    let two = Two::new(&[FILES, &link("away", "\\\\127.0.0.9\\share")].concat());
    let url = "smb://ann@one/files/away/a";
    let said = two.run(&["cat", url]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.err.contains(&format!("{url} leads over a DFS link there: ")), "{said:?}");
    assert!(said.err.contains("127.0.0.9"), "{said:?}");
    let said = two.run(&["cat", "--dfs", "same-host", url]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("such links are not to be followed"), "{said:?}");
}

#[test]
fn a_reload_changes_the_links() {
    let two = Two::new(&[FILES, &link("old", "\\\\two\\share")].concat());
    let cat = |path: &str| two.run(&["cat", &format!("smb://ann@one/{path}")]);
    assert_eq!(cat("files/old/a").succeeds(), "first");
    two.reload(&[FILES, &link("new", "\\\\two\\share\\dir")].concat());
    assert_eq!(cat("files/new/b").succeeds(), "second");
    assert_ne!(cat("files/old/a").code, 0);
    Two::configure(&two.world, &[FILES, &link("new", "two")].concat());
    let checked = two.world.place.run(&["check", "-c", text(&two.world.place.path("frevo.toml"))]);
    assert_ne!(checked.code, 0);
    let said = checked.out + &checked.err;
    assert!(said.contains("the target two is not \\\\server\\share"), "{said}");
}

/// The process that probes works beside a confined server: `two` answers, another address does not, and each
/// change is one line of the log.
#[test]
#[cfg(feature = "test-hooks")]
fn servers_that_fail_are_told() {
    const PROBED: &str = "[[namespace]]\nname = \"files\"\nprobe_seconds = 2\n";
    let with = |targets: &[&str]| {
        let links = targets.iter().enumerate().map(|(at, target)| link(&format!("l{at}"), target));
        std::iter::once(String::from(PROBED)).chain(links).collect::<String>()
    };
    let (good, bad) = (r"\\127.0.0.1\share", r"\\127.0.0.9\share");
    let mut two = Two::new(&with(&[good, good, bad]));
    two.await_log("a server of targets does not answer");
    let states = |states: [(&str, &str); 2]| {
        states.map(|(name, state)| (String::from(name), String::from(state)))
    };
    two.await_targets(&states([("127.0.0.1", "answers"), ("127.0.0.9", "fails")]));
    let log = two.log();
    assert_eq!(log.matches("a server of targets").count(), 1, "{log}");
    assert!(log.contains("127.0.0.9"), "{log}");
    // A server that goes and comes back.
    two.world.stop();
    two.await_targets(&states([("127.0.0.1", "fails"), ("127.0.0.9", "fails")]));
    two.world.start();
    two.await_log("a server of targets answers again");
    // A reload takes servers away, and keeps what is known of the others.
    two.reload(&with(&[good, r"\\127.0.0.9\other"]));
    assert_eq!(two.targets(), states([("127.0.0.1", "answers"), ("127.0.0.9", "fails")]));
    two.reload(&with(&[good]));
    assert_eq!(two.targets(), [(String::from("127.0.0.1"), String::from("answers"))]);
    let log = two.log();
    assert_eq!(log.matches("a server of targets").count(), 3, "{log}");
    assert_eq!(two.one.stop().code, 0);
}
