//! `docs/threats.md` says which tests prove what: they are there, and the rows of the
//! faults that this folder is named after are all there too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Names of all functions that are tests.
fn tests(root: &Path) -> BTreeSet<String> {
    let mut files = Vec::new();
    for part in ["crates", "dev"] {
        rust_files(&root.join(part), &mut files);
    }
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if is_test
                && let Some((_, rest)) = line.split_once("fn ")
                && let Some((name, _)) = rest.split_once(['(', '<'])
            {
                names.insert(name.to_owned());
                is_test = false;
            }
        }
    }
    names
}

#[test]
fn the_threats_have_the_tests_that_are_said_to_prove_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let tests = tests(root);
    assert!(tests.len() > 1_000, "only {} tests", tests.len());
    let page = std::fs::read_to_string(root.join("docs/threats.md")).unwrap();
    let mut rows = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, id, attacked, proofs, _] = cells[..] else { panic!("{line}") };
        assert!(!attacked.is_empty(), "{line}");
        assert!(rows.insert(id.to_owned()), "{id} comes twice");
        let named: Vec<&str> = proofs.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{id} has no test");
        for name in named {
            let is_there = match name.strip_suffix('*') {
                Some(start) => tests.iter().any(|test| test.starts_with(start)),
                None => tests.contains(name),
            };
            assert!(is_there, "{id}: there is no test {name}");
        }
    }
    for (letter, count) in
        [('A', 8), ('F', 6), ('I', 7), ('L', 7), ('P', 15), ('R', 6), ('S', 3), ('X', 8)]
    {
        for number in 1..=count {
            assert!(rows.contains(&format!("{letter}{number}")), "{letter}{number} is missing");
        }
    }
}

/// Each row of `docs/specification-changes.md` has tests, which exist.
#[test]
fn changes_of_the_specification_have_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let tests = tests(root);
    let page = std::fs::read_to_string(root.join("docs/specification-changes.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let proofs = row.trim_end_matches('|').rsplit(" | ").next().unwrap();
        let mut named = proofs.split('`').skip(1).step_by(2).peekable();
        assert!(named.peek().is_some(), "{row}: no test");
        for name in named {
            assert!(tests.contains(name), "{row}: there is no test {name}");
        }
    }
}

/// Public constants of a crate's `limits.rs`, and of the files in its folder.
fn limits(file: &Path) -> BTreeSet<String> {
    let mut files = vec![file.to_owned()];
    let folder = file.with_extension("");
    if folder.is_dir() {
        rust_files(&folder, &mut files);
    }
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let names_of = |text: String| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.strip_prefix("pub const "));
        names.filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned()).collect()
    };
    texts.flat_map(names_of).collect()
}

/// `docs/limits.md` and `docs/limits-clients.md` have a line for each limit, and no other, with tests that
/// exist.
#[test]
fn limits_are_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let tests = tests(root);
    let page = |name: &str| std::fs::read_to_string(root.join("docs").join(name)).unwrap();
    let page = page("limits.md") + &page("limits-clients.md");
    let mut crates: BTreeMap<String, PathBuf> = BTreeMap::new();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let files = ["src/limits.rs", "src/base/limits.rs"].map(|file| path.join(file));
        if let Some(file) = files.into_iter().find(|file| file.exists()) {
            crates.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), file);
        }
    }
    assert!(crates.len() > 8, "{crates:?}");
    let mut faults = Vec::new();
    for (name, file) in &crates {
        let section = page.split("\n## ").find_map(|part| part.strip_prefix(&format!("{name}\n")));
        let section = section.unwrap_or_else(|| panic!("docs/limits.md has no section {name}"));
        let mut known = limits(file);
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let limit = cells[0].trim_start_matches("| ").trim_matches('`');
            if !known.remove(limit) {
                faults.push(format!("{name}: there is no limit {limit}, or it has two lines"));
            }
            let proofs = cells.last().unwrap().trim_end_matches('|').trim();
            for test in proofs.split('`').skip(1).step_by(2) {
                if !tests.contains(test) {
                    faults.push(format!("{name}: {limit}: there is no test {test}"));
                }
            }
        }
        faults.extend(known.iter().map(|limit| format!("{name}: {limit} has no line")));
    }
    assert!(faults.is_empty(), "docs/limits.md:\n{}", faults.join("\n"));
}

/// `docs/time-budgets.md` says of each call of a file system where it is made, once.
#[test]
fn each_call_of_a_file_system_has_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let page = std::fs::read_to_string(root.join("docs/time-budgets.md")).unwrap();
    let (_, rest) = page.split_once("## Calls of a file system").unwrap();
    let (table, _) = rest.split_once("\n## ").unwrap();
    let mut told = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let calls = row.split(" | ").next().unwrap();
        for call in calls.split('`').skip(1).step_by(2) {
            assert!(told.insert(call.to_owned()), "{call} has two rows");
        }
    }
    let mut calls = BTreeSet::new();
    for (name, file) in
        [("Vfs", "vfs.rs"), ("Node", "vfs/node.rs"), ("Directory", "vfs/directory.rs")]
    {
        let text = std::fs::read_to_string(root.join("crates/store/src").join(file)).unwrap();
        let (_, rest) = text.split_once(&format!("pub trait {name}:")).unwrap();
        let (body, _) = rest.split_once("\n}\n").unwrap();
        let methods = body.lines().filter_map(|line| line.strip_prefix("    fn "));
        calls.extend(methods.map(|line| format!("{name}::{}", line.split_once('(').unwrap().0)));
    }
    assert!(calls.len() > 60, "{calls:?}");
    assert_eq!(told, calls);
}

/// `docs/attacks.md` has a row for each fault of the first attack, with tests and checks that exist.
#[test]
fn the_faults_of_the_first_attack_have_tests_and_checks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let tests = tests(root);
    let page = std::fs::read_to_string(root.join("docs/attacks.md")).unwrap();
    let checks: String = ["peers", "peers/attacks", "harness/peers"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join("dev/interop").join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "py"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let (_, section) = page.split_once("## The eighteen faults of the first attack").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut faults = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| ") && line.contains(": ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [fault, _, proofs, check] = cells[..] else { panic!("{row}") };
        let number: u32 =
            fault.trim_start_matches("| ").split(':').next().unwrap().parse().unwrap();
        faults.push(number);
        let named: Vec<&str> = proofs.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "fault {number} has no test");
        for name in named {
            assert!(tests.contains(name), "fault {number}: there is no test {name}");
        }
        let check = check.trim_end_matches('|').trim();
        for one in check.split(", ").filter(|_| !check.starts_with("none: ")) {
            let name = one.split_once('/').map_or(one, |(_, name)| name);
            let is_there = checks.contains(&format!("\"{name}\""));
            assert!(is_there, "fault {number}: there is no check {one}");
        }
    }
    assert_eq!(faults, (1..=18).collect::<Vec<_>>());
}
