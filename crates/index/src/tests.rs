//! The index against a plain list of paths.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::fold::{fold_all, is_mark};

/// All files by path.
type Model = BTreeMap<String, Facts>;

/// A change of the files. Folders and files are numbers, which the list at that time has.
#[derive(Clone, Debug)]
enum Change {
    Put {
        folder: usize,
        name: String,
        is_folder: bool,
        id: u64,
    },
    Remove(usize),
    Rename {
        from: usize,
        folder: usize,
        name: String,
    },
    /// A listing of a folder in which some files have gone.
    List {
        folder: usize,
        keep: u8,
    },
    Tidy(usize),
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[abAB]{1,3}",
        2 => "(Bericht|bericht|Ärger|A\u{308}rger|straße|STRASSE)( 2|_x|Neu)?(\\.pdf|\\.PDF|\\.txt)?",
        1 => "[a-z]{60}",
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let number = any::<usize>;
    prop_oneof![
        8 => (number(), name(), any::<bool>(), 1..9_u64)
            .prop_map(|(folder, name, is_folder, id)| Change::Put { folder, name, is_folder, id }),
        2 => number().prop_map(Change::Remove),
        3 => (number(), number(), name()).prop_map(|(from, folder, name)| Change::Rename { from, folder, name }),
        1 => (number(), any::<u8>()).prop_map(|(folder, keep)| Change::List { folder, keep }),
        1 => (0..5_usize).prop_map(Change::Tidy),
    ]
}

fn facts(id: u64, is_folder: bool) -> Facts {
    let seconds = i64::try_from(id).unwrap();
    let kind = if is_folder { Kind::Folder } else { Kind::File };
    let size = if is_folder { 0 } else { id * 100 };
    Facts { id, kind, size, modified: seconds, created: -seconds }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}\\{name}") }
}

fn is_below(path: &str, folder: &str) -> bool {
    path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('\\'))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('\\').map_or("", |(folder, _)| folder)
}

fn pick(model: &Model, number: usize, only_folders: bool) -> Option<String> {
    let is_wanted = |facts: &Facts| !only_folders || facts.kind == Kind::Folder;
    let wanted: Vec<_> = model.iter().filter(|(_, facts)| is_wanted(facts)).collect();
    let root = usize::from(only_folders);
    match number % (wanted.len() + root).max(1) {
        0 if only_folders => Some(String::new()),
        at => wanted.get(at - root).map(|(path, _)| (*path).clone()),
    }
}

fn remove(model: &mut Model, path: &str) {
    model.retain(|known, _| !is_below(known, path));
}

/// Makes a change in both.
fn apply(index: &mut Index, model: &mut Model, change: &Change) {
    match change {
        Change::Put { folder, name, is_folder, id } => {
            let folder = pick(model, *folder, true).unwrap();
            let (facts, path) = (facts(*id, *is_folder), join(&folder, name));
            let slot = index.find(&folder).unwrap();
            let put = index.put(slot, name, &facts).unwrap();
            if model.get(&path).is_some_and(|known| known.kind != facts.kind) {
                remove(model, &path);
            }
            model.insert(path.clone(), facts);
            assert_eq!(index.path(put), Some(path));
        }
        Change::Remove(number) => {
            let Some(path) = pick(model, *number, false) else { return };
            let slot = index.find(&path).unwrap();
            index.remove(slot);
            remove(model, &path);
        }
        Change::Rename { from, folder, name } => {
            let Some(from) = pick(model, *from, false) else { return };
            let folder = pick(model, *folder, true).unwrap();
            let to = join(&folder, name);
            let [slot, into] = [&from, &folder].map(|path| index.find(path).unwrap());
            // A folder that contains the new place is not replaced by a part of itself.
            if is_below(&folder, &from) {
                assert_eq!(index.rename(slot, into, name), Err(Refused::NoFolder));
                return;
            }
            if is_below(&from, &to) && from != to {
                return;
            }
            index.rename(slot, into, name).unwrap();
            if from != to {
                remove(model, &to);
                let moved: Vec<_> = model.extract_if(.., |path, _| is_below(path, &from)).collect();
                model.extend(
                    moved
                        .into_iter()
                        .map(|(path, facts)| (format!("{to}{}", &path[from.len()..]), facts)),
                );
            }
        }
        Change::List { folder, keep } => {
            let folder = pick(model, *folder, true).unwrap();
            let here: Vec<_> =
                model.keys().filter(|path| parent(path) == folder).cloned().collect();
            for (at, path) in here.iter().enumerate() {
                if keep >> (at % 8) & 1 == 1 {
                    index.set_listed(index.find(path).unwrap());
                } else {
                    remove(model, path);
                }
            }
            index.end_listing(index.find(&folder).unwrap());
        }
        Change::Tidy(budget) => {
            index.tidy(*budget);
        }
    }
}

fn all(index: &Index, query: &Query, scope: &str, budget: usize) -> Vec<String> {
    let search = Search::new(query).unwrap();
    let scope = index.find(scope).unwrap();
    let mut after = Some(Cursor::START);
    let mut paths = Vec::new();
    while let Some(cursor) = after {
        after = index.search(&search, scope, cursor, budget, |slot| {
            paths.push(index.path(slot).unwrap());
            assert!(index.meets(&search, slot));
            paths.len() % 3 != 0
        });
    }
    paths.sort();
    paths
}

fn text(text: &str, part: Match) -> Query {
    Query::Name(Text { text: text.to_string(), part, fold_case: true, fold_marks: true })
}

fn folded(text: &str) -> String {
    let mut out = String::new();
    fold_all(text, &mut out);
    out
}

fn check(index: &mut Index, model: &Model) {
    for (path, facts) in model {
        let slot = index.find(path).unwrap_or_else(|| panic!("{path} is lost"));
        assert_eq!((index.facts(slot), index.path(slot).as_ref()), (Some(*facts), Some(path)));
    }
    let last = |path: &str| folded(path.rsplit('\\').next().unwrap());
    type Judge<'a> = Box<dyn Fn(&str, &Facts) -> bool + 'a>;
    let queries: [(Query, Judge<'_>); 6] = [
        (Query::All, Box::new(|_, _| true)),
        (text("A", Match::Within), Box::new(|path, _| last(path).contains('a'))),
        (text("ärger", Match::Beginning), Box::new(|path, _| last(path).starts_with("arger"))),
        (
            text("*e*.PDF", Match::Pattern),
            Box::new(|path, _| {
                last(path).strip_suffix(".pdf").is_some_and(|rest| rest.contains('e'))
            }),
        ),
        (
            Query::And(Vec::from([
                Query::Not(Box::new(Query::Kind(Kind::Folder))),
                Query::Size(Bounds { from: Some(300), to: None }),
                Query::Created(Bounds { from: Some(-6), to: None }),
            ])),
            Box::new(|_, facts| facts.kind == Kind::File && (3..=6).contains(&facts.id)),
        ),
        (
            Query::Or(Vec::from([
                text(".txt", Match::End),
                Query::Modified(Bounds { from: None, to: Some(2) }),
            ])),
            Box::new(|path, facts| last(path).ends_with(".txt") || facts.id <= 2),
        ),
    ];
    let scope = pick(model, model.len() / 2, true).unwrap();
    for (query, judge) in &queries {
        for scope in ["", &scope] {
            let is_in = |path: &str| scope.is_empty() || (is_below(path, scope) && path != scope);
            let wanted = model.iter().filter(|(path, facts)| is_in(path) && judge(path, facts));
            let wanted: Vec<_> = wanted.map(|(path, _)| path.clone()).collect();
            for budget in [1, 7, 100_000] {
                assert_eq!(all(index, query, scope, budget), wanted, "{query:?} in {scope:?}");
            }
        }
    }
    while index.tidy(3) {}
    assert_eq!(index.len(), model.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_index_has_what_a_list_has(changes in proptest::collection::vec(change(), 0..60)) {
        let (mut index, mut model) = (Index::default(), Model::new());
        for change in &changes {
            apply(&mut index, &mut model, change);
        }
        check(&mut index, &model);
    }

    #[test]
    fn a_name_is_found_by_all_its_parts(
        name in "[a-zA-ZäÖßéИй가한\u{308}\u{301}_. -]{1,12}",
        from in 0..12_usize, len in 0..12_usize,
        case in any::<bool>(), marks in any::<bool>(),
    ) {
        let part: String = name.chars().skip(from).take(len).collect();
        // A part that is cut from its marks is another text.
        let next = name.chars().nth(from + len);
        prop_assume!(next.is_none_or(|next| !is_mark(next)));
        prop_assume!(part.chars().next().is_none_or(|first| !is_mark(first)));
        let mut index = Index::default();
        let slot = index.put(Slot::ROOT, &name, &facts(1, false)).unwrap();
        let found = |part| {
            let text = Text { text: name.clone(), part, fold_case: case, fold_marks: marks };
            index.meets(&Search::new(&Query::Name(text)).unwrap(), slot)
        };
        prop_assert!([Match::Whole, Match::Beginning, Match::End, Match::Word].map(found).iter().all(|one| *one));
        let text = Text { text: part, part: Match::Within, fold_case: case, fold_marks: marks };
        prop_assert!(index.meets(&Search::new(&Query::Name(text)).unwrap(), slot));
    }
}

/// Many files in chunks of their own: places are used again, and names are moved together.
#[test]
fn places_and_names_are_used_again() {
    let mut index = Index::default();
    let fill = |index: &mut Index, round: u64| {
        for number in 0..3_000_u64 {
            index
                .put(Slot::ROOT, &format!("Datei {number} {round}"), &facts(number + 1, false))
                .unwrap();
        }
    };
    fill(&mut index, 0);
    let bytes = index.bytes();
    for round in 1..6 {
        for number in 0..3_000 {
            let slot = index.find(&format!("Datei {number} {}", round - 1)).unwrap();
            index.rename(slot, Slot::ROOT, &format!("Datei {number} {round}")).unwrap();
        }
    }
    assert_eq!(all(&index, &text("7 5", Match::End), "", 1_000).len(), 300);
    assert!(index.bytes() < bytes * 3 / 2, "{} {bytes}", index.bytes());
    for number in 0..3_000 {
        index.remove(index.find(&format!("Datei {number} 5")).unwrap());
    }
    assert_eq!((index.len(), all(&index, &Query::All, "", 1_000).len()), (0, 0));
    assert!(index.bytes() < bytes / 8, "{} {bytes}", index.bytes());
    fill(&mut index, 7);
    assert_eq!(index.len(), 3_000);
    assert!(index.bytes() < bytes * 5 / 4, "{} {bytes}", index.bytes());
}

/// A budget is time: texts that are compared letter by letter use it up soon.
#[test]
fn a_long_query_goes_on_after_few_files() {
    let mut index = Index::default();
    for number in 0..3_000_u64 {
        index.put(Slot::ROOT, &format!("Datei {number}"), &facts(number + 1, false)).unwrap();
    }
    let told = |query: &Query| {
        let (search, mut told) = (Search::new(query).unwrap(), 0);
        index.search(&search, Slot::ROOT, Cursor::START, 16_384, |_| {
            told += 1;
            true
        });
        told
    };
    let pattern = || text("?*", Match::Pattern);
    assert_eq!(told(&text("datei", Match::Within)), 3_000);
    assert!((100..1_000).contains(&told(&pattern())));
    assert!((1..5).contains(&told(&Query::And((0..200).map(|_| pattern()).collect()))));
}

/// docs/limits.md: at most 150 bytes for each file, whose names have some 24 characters.
#[test]
fn a_file_takes_at_most_150_bytes() {
    let mut index = Index::default();
    let mut folder = Slot::ROOT;
    let count = 40_000;
    for number in 0..count {
        if number % 20 == 0 {
            folder = index
                .put(Slot::ROOT, &format!("Ordner {number}"), &facts(number + 1, true))
                .unwrap();
        }
        let name = format!("Bericht {number} Entwurf.docx");
        index.put(folder, &name, &facts(number + 1, false)).unwrap();
    }
    let each = index.bytes() / index.len();
    assert!(each <= 150, "{each} bytes for each file");
}

#[test]
fn an_index_has_a_limit() {
    for more in 0..2 {
        let mut index = Index::new(Room { entries: 10, bytes: 1 << 20 });
        for number in 0..9 + more {
            index.put(Slot::ROOT, &format!("{number}"), &facts(1, false)).unwrap();
        }
        let last = index.put(Slot::ROOT, "last", &facts(1, false));
        assert_eq!(last.err(), (more == 1).then_some(Refused::Full));
        // Known files stay true.
        let known = index.put(Slot::ROOT, "3", &facts(7, false)).unwrap();
        assert_eq!(index.facts(known), Some(facts(7, false)));
    }
    let mut index = Index::new(Room { entries: 10_000, bytes: 100_000 });
    let refused = (0..10_000)
        .find_map(|number| index.put(Slot::ROOT, &format!("{number}"), &facts(1, false)).err());
    assert_eq!(refused, Some(Refused::Full));
    assert!(index.bytes() < 200_000);
}

#[test]
fn queries_have_limits() {
    let mut deep = Query::All;
    for depth in 0..40 {
        assert_eq!(
            Search::new(&deep).err(),
            (depth >= 32).then_some(BadQuery::TooComplex),
            "{depth}"
        );
        deep = Query::Not(Box::new(deep));
    }
    let wide = |count| Query::Or((0..count).map(|_| Query::All).collect());
    assert!(Search::new(&wide(255)).is_ok());
    assert_eq!(Search::new(&wide(256)).err(), Some(BadQuery::TooComplex));
    let long = |bytes| Search::new(&text(&"x".repeat(bytes), Match::Whole)).err();
    assert_eq!([long(1_024), long(1_025)], [None, Some(BadQuery::TextTooLong)]);
}

#[test]
fn a_removed_folder_is_not_found_before_it_is_freed() {
    let mut index = Index::default();
    let folder = index.put(Slot::ROOT, "a", &facts(1, true)).unwrap();
    let file = index.put(folder, "b", &facts(2, false)).unwrap();
    index.remove(folder);
    assert_eq!(index.path(file), None);
    assert!(all(&index, &Query::All, "", 10).is_empty());
    let again = index.put(Slot::ROOT, "b", &facts(2, false)).unwrap();
    assert!(!index.tidy(10));
    assert_eq!((index.len(), index.path(again).as_deref()), (1, Some("b")));
}
