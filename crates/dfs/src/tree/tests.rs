use super::*;
use crate::{Namespace, Root, Target};
use alloc::format;
use alloc::vec;
use proptest::prelude::*;

fn link(path: &str) -> Link {
    Link::new(path, vec![Target::new("\\\\one\\data").unwrap()]).unwrap()
}

fn namespace(paths: &[&str]) -> Namespace {
    let links = paths.iter().map(|path| link(path)).collect();
    Namespace::new("files", Root::Own).with_links(links).unwrap()
}

fn listed(namespace: &Namespace, folder: &str) -> Vec<String> {
    let (mut all, mut behind) = (Vec::new(), None);
    while let Some(step) = namespace.step(folder, behind.as_deref()) {
        let mark = if step.link.is_some() { "" } else { "/" };
        all.push(format!("{}{mark}", step.name));
        behind = Some(String::from(step.name));
    }
    all
}

#[test]
fn paths_lead_to_links_and_folders() {
    let files = namespace(&["Dir\\Über\\x", "dir\\b", "top", "dir!\\y"]);
    let at = |path| match files.resolve(path) {
        Resolution::Folder => String::from("folder"),
        Resolution::Link { link, consumed } => format!("{} {consumed}", link.path()),
        Resolution::Nothing => String::from("nothing"),
    };
    for (path, found) in [
        ("", "folder"),
        ("DIR", "folder"),
        ("dir\\ÜBER", "folder"),
        ("dir\\über\\X", "Dir\\Über\\x 3"),
        ("dir\\über\\X\\below\\it", "Dir\\Über\\x 3"),
        ("TOP", "top 1"),
        ("top\\a", "top 1"),
        ("to", "nothing"),
        ("topp", "nothing"),
        ("dir\\b2", "nothing"),
        ("dir\\a\\b", "nothing"),
        ("dir\\über\\y", "nothing"),
    ] {
        assert_eq!(at(path), found, "{path}");
    }
    for (path, written) in [
        ("", Some("")),
        ("DIR\\ÜBER\\X", Some("Dir\\Über\\x")),
        ("dir\\über", Some("Dir\\Über")),
        ("TOP", Some("top")),
        ("top\\a", None),
        ("dir\\a", None),
    ] {
        assert_eq!(files.spelled(path), written, "{path}");
    }
    assert_eq!(listed(&files, ""), ["dir/", "dir!/", "top"]);
    assert_eq!(listed(&files, "dir"), ["b", "Über/"]);
    assert_eq!(listed(&files, "DIR\\über"), ["x"]);
    assert_eq!(listed(&files, "top"), [""; 0]);
    assert_eq!(listed(&files, "no"), [""; 0]);
}

#[test]
fn no_link_is_inside_of_another() {
    let of = |paths: &[&str]| {
        let links = paths.iter().map(|path| link(path)).collect();
        Namespace::new("files", Root::Own).with_links(links).map(drop)
    };
    let inside =
        |link: &str, outer: &str| Err(BadLink::Inside { link: link.into(), outer: outer.into() });
    assert_eq!(of(&["a\\b", "a\\c", "a!"]), Ok(()));
    assert_eq!(of(&["a", "A"]), Err(BadLink::Twice("A".into())));
    assert_eq!(of(&["a\\b", "a!", "A"]), inside("a\\b", "A"));
    assert_eq!(of(&["x", "a\\b\\c\\d", "a\\b"]), inside("a\\b\\c\\d", "a\\b"));
    let mut files = namespace(&["a\\b\\c", "a\\x", "k"]);
    let before = files.clone();
    for (path, outer) in [("a\\b\\c\\d", "a\\b\\c"), ("K\\l", "k")] {
        let bad = files.insert(link(path));
        assert_eq!(bad, inside(path, outer));
    }
    assert_eq!(files.insert(link("a\\b")), inside("a\\b\\c", "a\\b"));
    assert_eq!(files.insert(link("A\\X")), Err(BadLink::Twice("A\\X".into())));
    assert_eq!(files, before);
    assert_eq!(files.insert(link("a\\b\\d")), Ok(()));
    assert_eq!(listed(&files, "a\\b"), ["c", "d"]);
    assert_eq!(files.remove("a\\B\\C").unwrap().path(), "a\\b\\c");
    assert_eq!((files.remove("a"), files.remove("a\\b\\c")), (None, None));
    let mut other = link("K");
    other.comment = "new".into();
    assert_eq!(&*files.replace(other).unwrap().unwrap().comment, "");
    assert_eq!(&*files.link("k").unwrap().comment, "new");
    assert_eq!(files.replace(link("none")), Ok(None));
    other = link("k");
    other.comment = "é".repeat(257).into();
    assert_eq!(files.replace(other.clone()), Err(BadLink::Comment("k".into())));
    other.comment = "é".repeat(256).into();
    assert!(files.replace(other).unwrap().is_some());
}

#[test]
fn texts_of_links_are_checked() {
    let targets = || vec![Target::new("\\\\one\\data").unwrap()];
    let is_good = |path: &str| Link::new(path, targets()).is_ok();
    for good in ["a", "a\\b", "\\a\\b\\", "é ü", "a.b", &"x".repeat(255)] {
        assert!(is_good(good), "{good}");
    }
    for bad in [
        "",
        "\\",
        "a\\\\b",
        "a/b",
        "a:b",
        "..",
        ".",
        "a\\..\\b",
        "a ",
        "a.",
        "a\tb",
        "a*",
        &"x".repeat(256),
    ] {
        assert!(!is_good(bad), "{bad:?}");
    }
    let deep = |count: usize| vec!["d"; count].join("\\");
    assert!(is_good(&deep(64)) && !is_good(&deep(65)));
    for good in ["\\\\one\\data", "\\one\\data", "\\\\192.0.2.1\\d$\\a\\b", "\\\\a.example\\b c\\"]
    {
        assert!(Target::new(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "one\\data",
        "\\\\one",
        "\\\\one\\",
        "\\\\\\one\\data",
        "\\\\one\\\\a",
        "//one/data",
        "\\\\one\\a\\..\\b",
        "\\\\o ne\\a",
        "\\\\u@one\\a",
        "\\\\one\\a*",
    ] {
        assert!(Target::new(bad).is_err(), "{bad:?}");
    }
    let target = Target::new("\\\\One\\Data\\a\\b").unwrap();
    assert_eq!((target.server(), target.share(), target.folder()), ("One", "Data", "a\\b"));
    assert_eq!(
        (target.path(), &*format!("{target}")),
        ("\\One\\Data\\a\\b", "\\\\One\\Data\\a\\b")
    );
    assert_eq!(Target::new("\\one\\data").unwrap().folder(), "");
    let many = |count: usize| {
        let target = |at: usize| Target::new(&format!("\\\\one\\share{at}")).unwrap();
        Link::new("a", (0..count).map(target).collect()).is_ok()
    };
    assert!(!many(0) && many(64) && !many(65));
    let twice = [targets(), vec![Target::new("\\ONE\\DATA").unwrap()]].concat();
    assert!(matches!(Link::new("a", twice), Err(BadLink::TargetTwice(_))));
    let mut ranked = link("a");
    ranked.targets_mut()[0].rank = 32;
    let namespace = Namespace::new("files", Root::Own).with_links(vec![ranked]);
    assert_eq!(namespace, Err(BadLink::Rank(32)));
}

proptest! {
    /// The sorted list finds and lists exactly what a plain search of all paths does.
    #[test]
    fn a_tree_is_like_a_list_of_paths(
        paths in proptest::collection::vec("[abA!é]{1,2}(\\\\[abB!é]{1,2}){0,3}", 1..20),
        asked in "[abA!]{1,2}(\\\\[abA!é]{1,2}){0,4}",
    ) {
        let mut files = Namespace::new("files", Root::Own);
        let mut kept: Vec<String> = Vec::new();
        let folded = |path: &str| frevo_wire::fscc::fold_name(path);
        let is_in = |inner: &str, outer: &str| {
            inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('\\'))
        };
        for path in &paths {
            let new = folded(path);
            let clashes = kept.iter().any(|old| is_in(old, &new) || is_in(&new, old));
            prop_assert_eq!(files.insert(link(path)).is_err(), clashes, "{}", path);
            if !clashes {
                kept.push(new);
            }
        }
        let at_once = Namespace::new("files", Root::Own)
            .with_links(files.links().cloned().collect());
        prop_assert_eq!(at_once.as_ref(), Ok(&files));
        let wanted = folded(&asked);
        let expected = kept.iter().find(|old| is_in(&wanted, old));
        match files.resolve(&asked) {
            Resolution::Link { link, consumed } => {
                prop_assert_eq!(Some(&folded(link.path())), expected);
                prop_assert_eq!(consumed, link.path().split('\\').count());
            }
            Resolution::Folder => prop_assert!(kept.iter().any(|old| is_in(old, &wanted))),
            Resolution::Nothing => prop_assert!(
                expected.is_none() && !kept.iter().any(|old| is_in(old, &wanted))
            ),
        }
        for folder in ["", "a", "b", "A\\b"] {
            let prefix = if folder.is_empty() { String::new() } else { format!("{}\\", folded(folder)) };
            let rest = kept.iter().filter_map(|path| path.strip_prefix(&*prefix));
            let mut names: Vec<_> = rest.filter_map(|rest| rest.split('\\').next()).collect();
            names.sort_unstable();
            names.dedup();
            let found = listed(&files, folder);
            let found: Vec<_> = found.iter().map(|name| folded(name.trim_end_matches('/'))).collect();
            prop_assert_eq!(found, names);
        }
    }
}
