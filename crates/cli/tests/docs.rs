//! The documents say what the program does.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use frevo_config::{Config, keys};

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join(name)).unwrap()
}

#[test]
fn every_key_is_in_the_reference_and_no_other() {
    let text = document("configuration.md");
    for (section, keys) in keys() {
        if section == "the file" {
            continue;
        }
        let chapter = text.split(&format!("\n## `{section}`")).nth(1).expect(section);
        let chapter = chapter.split("\n## ").next().unwrap();
        let mut documented: Vec<&str> = chapter
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        documented.sort_unstable();
        keys.sort_unstable();
        assert_eq!(documented, keys, "{section}");
    }
}

#[test]
fn the_example_is_a_configuration() {
    let text = document("configuration.md");
    let example = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let config = Config::parse(example).unwrap();
    assert_eq!((config.shares.len(), config.users.len()), (2, 1));
}

/// The `--help` text of a command.
fn help(command: &[&str]) -> String {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_frevo"));
    let said = program.args(command).arg("--help").output().unwrap();
    assert!(said.status.success(), "{command:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// The commands that a help lists.
fn commands(help: &str) -> Vec<&str> {
    let listed =
        help.split("\nCommands:\n").nth(1).expect("commands").split("\n\n").next().unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

/// The long flags at the beginning of a help's lines.
fn flags(help: &str) -> Vec<&str> {
    let of_options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let flag = |line| words(line).find(|word| word.starts_with("--"));
    of_options.filter_map(flag).filter(|flag| !matches!(*flag, "--help" | "--version")).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|one: char| !one.is_ascii_alphanumeric() && one != '-')
}

#[test]
fn what_a_command_has_alone_is_not_below_the_heading_of_others() {
    let last = |help: &str| {
        let connection = help.split("\nConnection:\n").nth(1)?;
        Some(flags(connection).into_iter().map(String::from).collect::<Vec<_>>())
    };
    let common = last(&help(&["stat"])).unwrap();
    assert!(common.len() > 10 && common.iter().any(|flag| flag == "--patience"), "{common:?}");
    let frevo = help(&[]);
    let told = commands(&frevo).into_iter().filter_map(|name| Some((name, last(&help(&[name]))?)));
    let told: Vec<_> = told.collect();
    assert!(told.len() > 15, "{told:?}");
    for (name, flags) in told {
        assert_eq!(flags, common, "{name}");
        assert!(help(&[name]).contains("\nOptions:\n"), "{name}");
    }
}

#[test]
fn every_flag_is_in_the_documents() {
    let (frevo, user, domain) = (help(&[]), help(&["user"]), help(&["domain"]));
    let mut all: Vec<Vec<&str>> = commands(&frevo).into_iter().map(|name| vec![name]).collect();
    all.extend(commands(&user).into_iter().map(|name| vec!["user", name]));
    all.extend(commands(&domain).into_iter().map(|name| vec!["domain", name]));
    assert!(all.len() > 25, "{all:?}");
    let documents = [
        "accounts",
        "automation",
        "configuration",
        "user-guide",
        "client-guide",
        "domain",
        "capture",
    ]
    .map(|name| document(&format!("{name}.md")))
    .concat();
    let documented: HashSet<&str> = words(&documents).collect();
    let mut known = HashSet::new();
    for command in &all {
        assert!(help(command).contains("\nExit codes: 0 ok"), "{command:?}");
        for flag in flags(&help(command)) {
            assert!(documented.contains(flag), "{command:?} {flag}");
            known.insert(flag.to_owned());
        }
    }
    assert!(known.len() > 50, "{known:?}");
    // The guide must not list an option that the program does not have.
    let guide = document("client-guide.md");
    let options = guide.split("\n## Options\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let more: Vec<&str> = words(options)
        .filter(|word| word.starts_with("--") && word.ends_with(char::is_alphabetic))
        .filter(|word| *word != "--help" && !known.contains(*word))
        .collect();
    assert!(more.is_empty(), "{more:?}");
}
