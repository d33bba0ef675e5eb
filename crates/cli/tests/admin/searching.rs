//! `frevo find --index`: files in the index of a share.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::harness::{PATIENCE, Said, Sandbox, Serving, free_port, text};

/// A server of two shares, one of which has an index.
struct Library {
    place: Sandbox,
    folder: PathBuf,
    address: String,
    server: Option<Serving>,
}

impl Library {
    fn new() -> Self {
        let place = Sandbox::new();
        let (folder, other) = (place.folder("data"), place.folder("other"));
        let (state, port) = (place.path("state"), free_port());
        fs::create_dir_all(folder.join("Berichte/2024")).unwrap();
        fs::write(folder.join("Berichte/2024/Prüfung.PDF"), [0; 300]).unwrap();
        fs::write(folder.join("Berichte/notes.txt"), "1").unwrap();
        let config = format!(
            "[server]\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = {state:?}\ndiscovery = \"off\"\n\
             [[share]]\nname = \"data\"\npath = {folder:?}\nindex = true\n\
             [[share]]\nname = \"other\"\npath = {other:?}\n"
        );
        place.file("frevo.toml", &config, 0o600);
        let address = format!("127.0.0.1:{port}");
        let mut library = Self { place, folder, address, server: None };
        let added = library.place.run_with_input(
            &["user", "add", "ann", "--password-stdin", "-c", text(&library.config())],
            "secret\n",
        );
        added.succeeds();
        library.server = Some(library.place.serve(&["-c", text(&library.config())]));
        library
    }

    fn config(&self) -> PathBuf {
        self.place.path("frevo.toml")
    }

    fn find(&self, arguments: &[&str]) -> Said {
        self.place
            .run(&[&["find", "--config", text(&self.config()), "--index"], arguments].concat())
    }

    /// Waits until a search finds these files.
    fn finds(&self, arguments: &[&str], wanted: &[&str]) {
        let (began, wanted) = (Instant::now(), BTreeSet::from_iter(wanted.iter().copied()));
        loop {
            let said = self.find(arguments);
            let found: BTreeSet<_> = said.succeeds().lines().collect();
            if found == wanted {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{arguments:?}: {found:?}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("FREVO_PASSWORD", "secret");
        command
    }

    fn url(&self, path: &str) -> String {
        format!("smb://ann@{}/data/{path}", self.address)
    }
}

#[test]
fn an_administrator_finds_files_as_they_change() {
    let library = Library::new();
    let all = ["Berichte", "Berichte/2024", "Berichte/2024/Prüfung.PDF", "Berichte/notes.txt"];
    library.finds(&["data"], &all);
    library.finds(&["data", "--name", "pru\u{308}fung.*"], &all[2..3]);
    library.finds(&["data", "--type", "d"], &all[..2]);
    library.finds(&["data/Berichte/2024", "--min-size", "300"], &all[2..3]);
    library.finds(&["data", "--min-size", "301"], &[]);

    // Changes by a client and by another program.
    let run = |arguments: &[&str]| {
        let done = library.client(arguments).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["mkdir", &library.url("neu")]);
    run(&["mv", &library.url("Berichte/2024"), &library.url("neu/alt")]);
    library.finds(&["data", "--name", "*.pdf"], &["neu/alt/Prüfung.PDF"]);
    run(&["rm", &library.url("Berichte/notes.txt")]);
    library.finds(&["data/Berichte"], &[]);
    let said = library.place.run(&["status", "--json", "--config", text(&library.config())]);
    let status: Value = serde_json::from_str(said.succeeds()).unwrap();
    // The kernel may not tell of changes, as in some sandboxes.
    let shares = status["shares"]["rows"].as_array().unwrap();
    let data = shares.iter().find(|share| share["name"] == "data").unwrap();
    if data["index"]["watched"] == true {
        fs::write(library.folder.join("neu/host.pdf"), "12345").unwrap();
        library.finds(&["data", "--name", "HOST*", "--max-size", "5"], &["neu/host.pdf"]);
    }

    let said = library.find(&["data", "--name", "*.PDF", "--min-size", "6", "--json"]);
    let found: Value = serde_json::from_str(said.succeeds()).unwrap();
    assert_eq!(
        (&found["path"], &found["kind"], &found["size"]),
        (&"neu/alt/Prüfung.PDF".into(), &"file".into(), &300.into())
    );
    library.find(&["other"]).fails(6, &["no share of this name with an index"]);
    library.find(&["data/none"]).fails(6, &["no such folder"]);
    library.find(&["data", "--type", "l"]).fails(2, &["--type is f or d"]);
    let status = library.place.run(&["status", "--config", text(&library.config())]);
    assert!(status.succeeds().contains("indexed"), "{status:?}");
}
