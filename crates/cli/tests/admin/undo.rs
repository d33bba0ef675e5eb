//! `frevo undo` by the journal that a server has written.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::{PATIENCE, Sandbox, Serving, text};

/// A share with a brake, a recycle bin and a snapshot, and the server of it.
struct Office {
    place: Sandbox,
    server: Serving,
}

const FILES: [&str; 4] = ["a", "b", "papers/c", "d"];

impl Office {
    fn new() -> Self {
        let place = Sandbox::new();
        for folder in ["", "/.snap/@GMT-2020.01.01-00.00.00"] {
            place.folder(&format!("office{folder}/papers"));
            for file in FILES {
                fs::write(place.path(&format!("office{folder}/{file}")), "before").unwrap();
            }
        }
        let config = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = {:?}\n\
             [[share]]\nname = \"office\"\npath = {:?}\nrecycle = true\nbrake = {{}}\n\
             snapshots = \".snap/@GMT-%Y.%m.%d-%H.%M.%S\"\n",
            place.folder("state"),
            place.path("office"),
        );
        place.file("frevo.toml", &config, 0o644);
        let add = ["user", "--config", "frevo.toml", "add", "ann", "--password-stdin"];
        place.run_with_input(&add, "secret\n").succeeds();
        let mut command = place.command(&["serve", "--config", "frevo.toml"]);
        command.stderr(fs::File::create(place.path("said")).unwrap());
        let mut server = Serving::start(command);
        let said = fs::read_to_string(place.path("said")).unwrap();
        let address = said.split("listening address=").nth(1).unwrap();
        server.address = address.split(' ').next().unwrap().to_owned();
        Self { place, server }
    }

    fn client(&self, arguments: &[&str]) {
        let mut command = self.place.command(arguments);
        let done = command.env("FREVO_PASSWORD", "secret").output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {done:?}");
    }

    fn url(&self, path: &str) -> String {
        format!("smb://ann@{}/office/{path}", self.server.address)
    }

    /// The sessions of the journal, once it has this many lines.
    fn sessions(&self, lines: usize) -> BTreeSet<String> {
        let journal = self.place.path("state/brake/office.jsonl");
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            if text.ends_with('\n') && text.lines().count() >= lines {
                let line = |line| serde_json::from_str::<Value>(line).unwrap();
                let session = |line| line_of(&line, "session");
                return text.lines().map(line).map(session).collect();
            }
            assert!(began.elapsed() < PATIENCE, "{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn content(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.place.path("office").join(path)).ok()
    }
}

fn line_of(line: &Value, name: &str) -> String {
    line[name].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_files_of_an_attack_come_back_by_the_servers_journal() {
    let office = Office::new();
    let encrypted = office.place.file("x", "encrypted", 0o644);
    office.client(&["put", text(&encrypted), &office.url("a")]);
    office.client(&["rm", &office.url("b")]);
    office.client(&["mv", &office.url("papers/c"), &office.url("papers/c.locked")]);
    office.client(&["put", text(&encrypted), &office.url("papers/new")]);
    // The first copy makes a file and renames it, in place of another one. The last one makes its file at once.
    let sessions = office.sessions(6);
    assert_eq!(sessions.len(), 4);
    let mut arguments = vec!["undo", "--config", "frevo.toml", "--json"];
    sessions.iter().for_each(|session| arguments.extend(["--session", session]));

    let listed = office.place.run(&[&arguments[..], &["--list"]].concat());
    let lines: Vec<Value> =
        listed.succeeds().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["share"], &lines[0]["user"]), (&"office".into(), &"ann".into()));
    let told: BTreeSet<(String, String)> =
        lines[1..].iter().map(|line| (line_of(line, "path"), line_of(line, "outcome"))).collect();
    for (path, outcome) in
        [("a", "done"), ("b", "done"), ("papers/c", "done"), ("papers/new", "new")]
    {
        assert!(told.contains(&(path.into(), outcome.into())), "{path} {outcome}: {told:?}");
    }
    assert_eq!(office.content("a").as_deref(), Some("encrypted"), "a list changes nothing");
    assert_eq!(office.content("b"), None);

    let undone = office.place.run(&arguments);
    assert_eq!(undone.succeeds().lines().count(), lines.len());
    for file in FILES {
        assert_eq!(office.content(file).as_deref(), Some("before"), "{file}");
    }
    assert_eq!(office.content("papers/c.locked"), None);
    assert_eq!(office.content("papers/new").as_deref(), Some("encrypted"));
    assert_eq!(office.content("a.before-undo").as_deref(), Some("encrypted"));
}
