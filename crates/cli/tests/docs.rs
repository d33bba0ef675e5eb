//! The documents say what the program does.

use std::fs;
use std::path::Path;

use frevo_server::config::{Config, keys};

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

#[test]
fn every_flag_of_serve_is_in_the_documents() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_frevo"))
        .args(["serve", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let documents = document("configuration.md") + &document("user-guide.md");
    let flags: Vec<&str> = help
        .split_whitespace()
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(|word| word.trim_end_matches([',', '.']))
        .collect();
    assert!(flags.len() > 10, "{help}");
    for flag in flags {
        let is_everywhere = matches!(flag, "--help" | "--version");
        assert!(is_everywhere || documents.contains(flag), "{flag}");
    }
}
