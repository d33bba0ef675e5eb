use super::*;

const TEXT: &str = "# all\n[[namespace]]\nname = \"Files\"\nttl = 60\n\n[[namespace.link]]\npath = 'a\\b'\n\
    targets = ['\\\\one\\x']\n\n[[namespace.link]]\npath = \"c\"\ntargets = ['\\\\two\\y']\n\n\
    [[namespace]]\nname = \"more\"\n";

fn none() -> Entries {
    Entries::default()
}

fn pairs(entries: &Entries) -> Vec<(String, Vec<u8>)> {
    let pair = |(key, entry): (&String, &Entry)| (key.clone(), entry.text.clone().into_bytes());
    entries.0.iter().map(pair).collect()
}

#[test]
fn a_text_comes_back_from_its_entries() {
    let entries = Entries::of_text(TEXT).unwrap();
    assert_eq!(entries.0.len(), 4);
    let text = entries.text();
    let config = Config::parse(&text).unwrap();
    assert_eq!(config.namespaces.len(), 2);
    let files = config.namespaces.iter().find(|one| one.ttl == Some(60)).unwrap();
    assert_eq!(files.links.len(), 2);
    assert_eq!(Entries::of_text(&text).unwrap(), entries);
    assert_eq!(Entries::of_etcd(pairs(&entries), &none()).unwrap(), (entries.clone(), 0));
    assert_eq!(entries.checked_text(), (text, Vec::new()));
    // Names are compared without case.
    let other = Entries::of_text(&TEXT.replace("Files", "FILES").replace("'a", "'A")).unwrap();
    assert!(other.0.keys().eq(entries.0.keys()));
    assert!(Entries::of_text("").unwrap().is_empty());
    for wrong in ["no toml [", "namespace = 5", "[[namespace]]\nname = \"a\"\nlink = 5"] {
        assert!(Entries::of_text(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_change_is_that_of_one_entry() {
    let before = Entries::of_text(TEXT).unwrap();
    assert!(before.changes_to(&before).is_empty());
    let after = Entries::of_text(&TEXT.replace("two", "three")).unwrap();
    let changes = before.changes_to(&after);
    let [EntryChange::Put(_, text)] = &*changes else { panic!("{changes:?}") };
    assert!(text.starts_with("[[namespace.link]]\npath = \"c\"\n") && text.contains("three"));
    let none = Entries::default();
    assert_eq!((before.changes_to(&none).len(), none.changes_to(&before).len()), (4, 4));
}

fn change_of(link: &str) -> NamespaceChange {
    let path = frevo_server::EntryPath::parse(&format!(r"\\box\files\{link}")).unwrap();
    NamespaceChange::RemoveLink { path, target: None }
}

#[test]
fn a_change_is_made_to_its_part() {
    let link =
        |path: &str| format!("[[namespace.link]]\npath = '{path}'\ntargets = ['\\\\one\\x']\n");
    let head = "[[namespace]]\nname = \"Files\"\n";
    let files = ["a\\b", "a\\c", "ab"].map(link).concat();
    let other = format!("[[namespace]]\nname = \"more\"\n{}", link("a\\b"));
    let all = Entries::of_text(&format!("{head}{files}{other}")).unwrap();
    let of = |text: &str| Entries::of_text(&format!("{head}{text}")).unwrap();
    assert_eq!(all.touched_by(&change_of("A\\b")), of(&link("a\\b")));
    assert_eq!(all.touched_by(&change_of("a\\b\\d")), of(&link("a\\b")));
    assert_eq!(all.touched_by(&change_of("a")), of(&(link("a\\b") + &link("a\\c"))));
    assert_eq!(all.touched_by(&change_of("d")), of(""));
    let part = all.touched_by(&change_of("a"));
    let after = all.with(&part, &of(&(link("a\\b") + &link("a\\d"))));
    let files = ["a\\b", "a\\d", "ab"].map(link).concat();
    assert_eq!(after, Entries::of_text(&format!("{head}{files}{other}")).unwrap());
    // A root that goes takes all of its links along.
    assert_eq!(all.with(&of(""), &none()), Entries::of_text(&other).unwrap());
    assert_eq!((all.roots(), all.links(), all.bytes()), (2, 4, all.text().len()));
}

#[test]
fn faults_are_looked_for_in_what_has_changed() {
    let good = Entries::of_text(TEXT).unwrap();
    for (from, to) in [
        ("two", "three"),
        ("\\\\two\\y", "nowhere"),
        ("\"c\"", "\"a\""),
        ("\"c\"", "'a\\b\\c'"),
        ("ttl = 60", "newer = true"),
        ("name = \"more\"", "name = \"SYSVOL\""),
    ] {
        let changed = Entries::of_text(&TEXT.replace(from, to)).unwrap();
        assert_eq!(changed.checked_text_since(&good), changed.checked_text(), "{from} {to}");
    }
    // Without a fault nothing but the change is looked at.
    let bad = Entries::of_text(&TEXT.replace("\\\\one\\x", "nowhere")).unwrap();
    let changed = Entries::of_text(&TEXT.replace("\\\\one\\x", "nowhere").replace("two", "three"));
    let changed = changed.unwrap();
    assert_eq!(changed.checked_text_since(&bad), (changed.text(), Vec::new()));
}

/// Known entries are taken as they are, and everything else is parsed.
#[test]
fn known_entries_are_not_parsed_again() {
    let good = Entries::of_text(TEXT).unwrap();
    let mut forged = good.clone();
    for entry in Arc::make_mut(&mut forged.0).values_mut() {
        entry.text = String::from("no toml [");
    }
    assert_eq!(Entries::of_etcd(pairs(&forged), &forged).unwrap(), (forged.clone(), 0));
    assert_eq!(Entries::of_etcd(pairs(&forged), &good).unwrap().1, 4);
}

#[test]
fn values_of_somebody_else_are_left_out() {
    let good = Entries::of_text(TEXT).unwrap();
    let all = pairs(&good);
    let link = all.iter().position(|(key, _)| !key.ends_with('/')).unwrap();
    for forged in [
        "[[share]]\nname = \"root\"\npath = \"/\"\n",
        "[[namespace]]\nname = \"Files\"\n[[share]]\nname = \"root\"\npath = \"/\"\n",
        "[[namespace.link]]\npath = \"other\"\ntargets = ['\\\\one\\x']\n",
        "[[namespace.link]]\n[[namespace.link]]\n",
        "no toml [",
        "",
    ] {
        let mut pairs = all.clone();
        pairs[link].1 = forged.as_bytes().to_vec();
        let (taken, left_out) = Entries::of_etcd(pairs, &none()).unwrap();
        assert_eq!((taken.0.len(), left_out), (3, 1), "{forged}");
    }
    // A header that no node writes, which may be only once in a text.
    let mut explicit = all.clone();
    for (_, value) in explicit.iter_mut().filter(|(key, _)| !key.ends_with('/')) {
        *value = [b"[namespace] # all\n", &value[..]].concat();
    }
    let (taken, left_out) = Entries::of_etcd(explicit, &none()).unwrap();
    assert_eq!((&taken, left_out), (&good, 0));
    assert!(Config::parse(&taken.text()).is_ok());
    let mut no_text = all.clone();
    no_text[link].1 = vec![0xFF];
    assert_eq!(Entries::of_etcd(no_text, &none()).unwrap().1, 1);
    // The links of a root that is left out.
    let without: Vec<_> =
        all.iter().filter(|(key, _)| *key != root_key_of("files")).cloned().collect();
    let (taken, left_out) = Entries::of_etcd(without, &none()).unwrap();
    assert_eq!((taken.0.len(), left_out), (1, 2));
}

fn root_key_of(name: &str) -> String {
    format!("{}/", digest(name))
}

#[test]
fn a_fault_does_not_stop_the_others() {
    let bad_link = TEXT.replace("\\\\two\\y", "nowhere");
    let (text, faults) = Entries::of_text(&bad_link).unwrap().checked_text();
    let config = Config::parse(&text).unwrap();
    let links: usize = config.namespaces.iter().map(|one| one.links.len()).sum();
    assert_eq!((config.namespaces.len(), links, faults.len()), (2, 1, 1));
    let later = TEXT.replace("ttl = 60", "newer = true");
    let (text, faults) = Entries::of_text(&later).unwrap().checked_text();
    assert_eq!((Config::parse(&text).unwrap().namespaces.len(), faults.len()), (1, 1));
    // Two links, of which one is below the other.
    let (text, faults) = Entries::of_text(&TEXT.replace("\"c\"", "\"a\"")).unwrap().checked_text();
    assert_eq!((Config::parse(&text).unwrap().namespaces.len(), faults.len()), (1, 1));
}

#[test]
fn entries_are_bounded() {
    let comment = |len: usize| {
        let text = format!("[[namespace]]\nname = \"a\"\n#{}\n", "c".repeat(len));
        let end = vec![(root_key_of("a"), text.into_bytes())];
        Entries::of_etcd(end, &none()).unwrap().1
    };
    let room = NAMESPACE_ENTRY_BYTES - "[[namespace]]\nname = \"a\"\n#\n".len();
    assert_eq!([comment(room - 1), comment(room), comment(room + 1)], [0, 0, 1]);
    let long = format!("[[namespace]]\nname = \"a\"\nx = \"{}\"\n", "c".repeat(room));
    assert!(Entries::of_text(&long).unwrap_err().contains("32768 bytes"));
    let many = |count: usize| (0..count).map(|at| (format!("x/{at}"), Vec::new()));
    assert_eq!(Entries::of_etcd(many(ENTRIES_MAX), &none()).unwrap().1, ENTRIES_MAX);
    assert!(Entries::of_etcd(many(ENTRIES_MAX + 1), &none()).is_err());
    let large = (0..300).map(|at| (format!("x/{at}"), vec![b' '; NAMESPACE_ENTRY_BYTES]));
    assert!(Entries::of_etcd(large, &none()).unwrap_err().contains("bytes"));
}
