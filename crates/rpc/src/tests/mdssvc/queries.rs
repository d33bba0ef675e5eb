//! The language of queries.

use crate::limits::{MAX_SPOTLIGHT_CONDITIONS, MAX_SPOTLIGHT_QUERY, MAX_SPOTLIGHT_QUERY_DEPTH};
use crate::mdssvc::parse_query;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use frevo_index::{Bounds, Kind, Match, Query, Text};
use proptest::prelude::*;

/// 2026-11-30 20:38:00 UTC, a Monday.
const NOW: i64 = 1_796_071_080;
const MIDNIGHT: i64 = 1_795_996_800;
const DAY: i64 = 86_400;

fn parsed(text: &str) -> Query {
    parse_query(text, NOW).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A text with the modifiers of its letters.
fn text(text: &str, part: Match, modifiers: &str) -> Text {
    let has = |letter| modifiers.contains(letter);
    Text { text: text.to_string(), part, fold_case: has('c'), fold_marks: has('d') }
}

fn name(of: &str, part: Match, modifiers: &str) -> Query {
    Query::Name(text(of, part, modifiers))
}

fn between(from: Option<i64>, to: Option<i64>) -> Bounds<i64> {
    Bounds { from, to }
}

#[test]
fn names_have_wildcards_and_modifiers() {
    let rows = [
        ("kMDItemFSName == \"plan\"", name("plan", Match::Whole, "")),
        ("kMDItemFSName==\"plan*\"cd", name("plan", Match::Beginning, "cd")),
        ("kMDItemDisplayName = '*plan'c", name("plan", Match::End, "c")),
        ("kMDItemDisplayName == [cd] \"*plan*\"", name("plan", Match::Within, "cd")),
        ("_kMDItemFileName=\"plan*\"cdw", name("plan", Match::Word, "cd")),
        ("kMDItemFSName==\"plan\"w", name("plan", Match::Word, "")),
        ("kMDItemFSName==\"*plan*\"w", name("plan", Match::Within, "")),
        ("kMDItemFSName==\"a \\\"b\\\" \\* c\"", name("a \"b\" * c", Match::Whole, "")),
        ("kMDItemFSName==\"Übung*\"d", name("Übung", Match::Beginning, "d")),
        ("kMDItemFSName == 2026", name("2026", Match::Whole, "")),
        ("kMDItemFSName == \"*\"", Query::All),
        ("kMDItemFSName == \"a*b?c\"", name("a*b?c", Match::Pattern, "")),
        ("kMDItemFSName == \"a*b*\"c", name("a*b*", Match::Pattern, "c")),
        ("kMDItemFSName == \"a?\"", name("a?", Match::Pattern, "")),
    ];
    for (query, expected) in rows {
        assert_eq!(parsed(query), expected, "{query}");
    }
}

#[test]
fn any_attribute_is_the_name_or_the_content() {
    let both = |of: &str, modifiers: &str| {
        Query::Or(vec![
            name(of, Match::Word, modifiers),
            Query::Content(text(of, Match::Word, modifiers)),
        ])
    };
    assert_eq!(parsed("*==\"x*\"cdw"), both("x", "cd"));
    assert_eq!(parsed("** = \"x*\"cdw"), both("x", "cd"));
    assert_eq!(parsed("(* == \"x*\"cdw)"), both("x", "cd"));
    assert_eq!(
        parsed("kMDItemTextContent == \"x y*\"cd"),
        Query::Content(text("x y", Match::Word, "cd"))
    );
}

#[test]
fn conditions_are_joined() {
    let [a, b, c] = ["a", "b", "c"].map(|of| name(of, Match::Whole, ""));
    let query = |signs: &str| {
        let of = |letter: char| match letter {
            'a'..='c' => format!("kMDItemFSName==\"{letter}\""),
            sign => sign.to_string(),
        };
        parsed(&signs.chars().map(of).collect::<String>())
    };
    let (or, and) = (Query::Or, Query::And);
    let not = |query: &Query| Query::Not(Box::new(query.clone()));
    assert_eq!(query("a && b"), and(vec![a.clone(), b.clone()]));
    assert_eq!(query("a||b||c"), or(vec![a.clone(), b.clone(), c.clone()]));
    // && binds more tightly than ||.
    let pair = and(vec![b.clone(), c.clone()]);
    assert_eq!(query("a || b && c"), or(vec![a.clone(), pair]));
    let pair = or(vec![a.clone(), b]);
    assert_eq!(query("((a || b)) && !c"), and(vec![pair.clone(), not(&c)]));
    assert_eq!(query("!(a || b)"), not(&pair));
    assert_eq!(parsed("kMDItemFSName != \"a\""), not(&a));
    assert_eq!((parsed("false"), parsed("TRUE")), (Query::Nothing, Query::All));
}

#[test]
fn attributes_that_nobody_knows_are_equal_to_nothing() {
    for unknown in [
        "kMDItemAlbum == \"x\"",
        "kMDItemPixelHeight > 100",
        "kMDItemFSName > \"x\"",
        "kMDItemFSSize == \"x\"",
        "kMDItemFSContentChangeDate == \"x\"",
        "* > 5",
        "_kMDItemGroupId == 8",
        "kMDItemContentType == \"org.example.odd\"",
    ] {
        assert_eq!(parsed(unknown), Query::Nothing, "{unknown}");
    }
    // Finder leaves out files of the system so.
    assert_eq!(parsed("kMDItemSupportFileType != \"MDSystemFile\""), Query::All);
}

#[test]
fn sizes_have_bounds() {
    let size = |from: Option<u64>, to: Option<u64>| Query::Size(Bounds { from, to });
    let rows = [
        ("kMDItemFSSize == 10", size(Some(10), Some(10))),
        ("kMDItemFSSize < 10", size(None, Some(9))),
        ("kMDItemLogicalSize <= 10", size(None, Some(10))),
        ("kMDItemFSSize > 10", size(Some(11), None)),
        ("kMDItemFSSize >= 10", size(Some(10), None)),
        ("kMDItemFSSize > 10.5", size(Some(11), None)),
        ("kMDItemFSSize >= 10.5", size(Some(11), None)),
        ("kMDItemFSSize < 10.5", size(None, Some(10))),
        ("kMDItemFSSize < 10.0", size(None, Some(9))),
        ("kMDItemFSSize >= -1", size(Some(0), None)),
        ("kMDItemFSSize < 0", Query::Nothing),
        ("kMDItemFSSize == 10.5", Query::Nothing),
        ("kMDItemFSSize < 99999999999999999999", size(None, Some((1 << 63) - 2))),
        (
            "InRange(kMDItemFSSize, 5, 10)",
            Query::And(vec![size(Some(5), None), size(None, Some(10))]),
        ),
    ];
    for (query, expected) in rows {
        assert_eq!(parsed(query), expected, "{query}");
    }
}

#[test]
fn times_are_named() {
    let from = |time: &str| match parsed(&format!("kMDItemFSContentChangeDate >= {time}")) {
        Query::Modified(Bounds { from: Some(from), to: None }) => from,
        other => panic!("{time}: {other:?}"),
    };
    let november = MIDNIGHT - 29 * DAY;
    let rows = [
        ("$time.now", NOW),
        ("$time.now(-3600)", NOW - 3_600),
        ("$time.today", MIDNIGHT),
        ("$time.today(-7)", MIDNIGHT - 7 * DAY),
        ("$time.today(+1)", MIDNIGHT + DAY),
        ("$time.yesterday", MIDNIGHT - DAY),
        ("$time.tomorrow", MIDNIGHT + DAY),
        ("$time.this_week", MIDNIGHT),
        ("$time.this_week(-1)", MIDNIGHT - 7 * DAY),
        ("$time.this_month", november),
        ("$time.this_month(-1)", november - 31 * DAY),
        ("$time.this_year", 1_767_225_600),
        ("$time.this_year(-2)", 1_704_067_200),
        ("$time.iso(2001-01-01T00:00:00Z)", 978_307_200),
        ("$time.iso(2000-02-29T23:59:59Z)", 951_868_799),
        ("$time.iso(\"2014-05-01T12:00:00+02:00\")", 1_398_938_400),
        ("$time.iso(2014-05-01T12:00:00-0230)", 1_398_954_600),
        ("$time.iso(2014-05-01 10:00:00.25)", 1_398_938_400),
        ("$time.iso(2014-05-01)", 1_398_902_400),
        ("0", 978_307_200),
        ("420631200.5", 1_398_938_401),
    ];
    for (time, expected) in rows {
        assert_eq!(from(time), expected, "{time}");
    }
}

#[test]
fn dates_have_bounds() {
    let rows = [
        (
            "kMDItemFSContentChangeDate == $time.today",
            Query::Modified(between(Some(MIDNIGHT), Some(MIDNIGHT + DAY - 1))),
        ),
        ("kMDItemFSCreationDate < $time.today", Query::Created(between(None, Some(MIDNIGHT - 1)))),
        ("kMDItemContentCreationDate > $time.now(-1)", Query::Created(between(Some(NOW), None))),
        (
            "InRange(kMDItemLastUsedDate,$time.today(-1),$time.today(+1))",
            Query::And(vec![
                Query::Modified(between(Some(MIDNIGHT - DAY), None)),
                Query::Modified(between(None, Some(MIDNIGHT + DAY))),
            ]),
        ),
    ];
    for (query, expected) in rows {
        assert_eq!(parsed(query), expected, "{query}");
    }
}

#[test]
fn types_are_kinds_or_extensions() {
    assert_eq!(parsed("kMDItemContentType == \"public.folder\""), Query::Kind(Kind::Folder));
    assert_eq!(parsed("kMDItemContentTypeTree = \"public.data\""), Query::Kind(Kind::File));
    assert_eq!(parsed("_kMDItemGroupId = 9"), Query::Kind(Kind::Folder));
    let pdf = name(".pdf", Match::End, "c");
    let pdf = Query::And(vec![Query::Kind(Kind::File), pdf]);
    assert_eq!(parsed("kMDItemContentType == \"com.adobe.pdf\""), pdf);
    assert_eq!(parsed("_kMDItemGroupId = 11"), pdf);
    let Query::And(image) = parsed("kMDItemContentTypeTree == \"public.image\"") else { panic!() };
    let [Query::Kind(Kind::File), Query::Or(names)] = &image[..] else { panic!("{image:?}") };
    assert!(names.contains(&name(".jpg", Match::End, "c")));
    assert!(!names.contains(&name(".mp3", Match::End, "c")));
    let all = parsed("kMDItemContentTypeTree == \"public.content\"");
    assert!(format!("{all:?}").contains(".docx"));
}

#[test]
fn queries_that_are_not_understood_say_where() {
    let rows = [
        ("", 0, "an attribute is missing"),
        ("kMDItemFSName", 13, "a comparison is missing"),
        ("kMDItemFSName ==", 16, "a value is missing"),
        ("kMDItemFSName == \"x", 18, "a quote is open"),
        ("kMDItemFSName == \"x\\", 18, "a quote is open"),
        ("(kMDItemFSName == \"x\"", 21, "a parenthesis is open"),
        ("kMDItemFSName == \"x\")", 20, "an operator is missing"),
        ("kMDItemFSName == \"x\" kMDItemFSName == \"y\"", 21, "an operator is missing"),
        ("kMDItemFSName == \"x\" &&", 23, "an attribute is missing"),
        ("kMDItemFSName == [c \"x\"", 20, "a bracket is open"),
        ("kMDItemFSSize > $time.never", 27, "no such time"),
        ("kMDItemFSSize > $time.iso(2014-13-01)", 37, "no such time"),
        ("kMDItemFSSize > $time.today(x)", 30, "no such time"),
        ("InRange(kMDItemFSSize, 5)", 24, "a comma is missing"),
    ];
    for (query, at, why) in rows {
        let error = parse_query(query, NOW).unwrap_err();
        assert_eq!((error.at, error.why), (at, why), "{query}");
    }
}

#[test]
fn queries_have_limits() {
    let one = "kMDItemFSName == \"x\"";
    let deep = |depth: usize| ["(".repeat(depth), one.into(), ")".repeat(depth)].concat();
    assert!(parse_query(&deep(MAX_SPOTLIGHT_QUERY_DEPTH - 1), NOW).is_ok());
    assert_eq!(parse_query(&deep(MAX_SPOTLIGHT_QUERY_DEPTH), NOW).unwrap_err().why, "too deep");
    let not = |depth: usize| ["!".repeat(depth), one.into()].concat();
    assert!(parse_query(&not(MAX_SPOTLIGHT_QUERY_DEPTH - 1), NOW).is_ok());
    assert_eq!(parse_query(&not(100_000), NOW).unwrap_err().why, "too long");
    let many = |count: usize| vec![one; count].join("||");
    assert!(parse_query(&many(MAX_SPOTLIGHT_CONDITIONS - 1), NOW).is_ok());
    let error = parse_query(&many(MAX_SPOTLIGHT_CONDITIONS), NOW).unwrap_err();
    assert_eq!(error.why, "too many conditions");
    let long = format!("kMDItemFSName == \"{}\"", "x".repeat(MAX_SPOTLIGHT_QUERY));
    assert_eq!(parse_query(&long, NOW).unwrap_err().why, "too long");
}

/// Returns the query's words.
fn size(query: &Query) -> usize {
    match query {
        Query::And(all) | Query::Or(all) => 1 + all.iter().map(size).sum::<usize>(),
        Query::Not(query) => 1 + size(query),
        _ => 1,
    }
}

fn words() -> impl Strategy<Value = Vec<String>> {
    const WORDS: &[&str] = &[
        "(",
        ")",
        "!",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        ">=",
        "=",
        "*",
        "kMDItemFSName",
        "kMDItemFSSize",
        "kMDItemFSContentChangeDate",
        "kMDItemContentTypeTree",
        "_kMDItemGroupId",
        "\"x*\"cdw",
        "'y'",
        "\"public.image\"",
        "5",
        "-1.5",
        "$time.today(-1)",
        "$time.now",
        "$time.iso(2026-11-30T00:00:00Z)",
        "$time.this_year(99999999)",
        "InRange(",
        ",",
        "[cd]",
        "true",
        "\\",
        "\"",
        "ü",
    ];
    proptest::collection::vec(proptest::sample::select(WORDS), 0..40)
        .prop_map(|words| words.into_iter().map(String::from).collect())
}

proptest! {
    #[test]
    fn any_words_are_a_query_or_an_error(words in words(), now: i64) {
        match parse_query(&words.join(" "), now) {
            Ok(query) => prop_assert!(size(&query) <= MAX_SPOTLIGHT_CONDITIONS),
            Err(error) => prop_assert!(error.at <= words.join(" ").len()),
        }
    }

    #[test]
    fn any_text_is_a_query_or_an_error(text in "\\PC{0,60}") {
        let _ = parse_query(&text, NOW);
    }

    /// A text is found as a user has typed it, whatever characters it has.
    #[test]
    fn quoted_texts_come_back(of in "[^*?\\\\\"]{1,20}") {
        prop_assert_eq!(
            parsed(&format!("kMDItemFSName==\"{of}\"c")),
            name(&of, Match::Whole, "c")
        );
    }

    #[test]
    fn years_begin_in_january(year in 1_i64..9_999) {
        let start = format!("kMDItemFSCreationDate == $time.iso({year:04}-01-01)");
        let Query::Created(Bounds { from: Some(at), .. }) = parsed(&start) else { panic!() };
        let of_year = |now| parse_query("kMDItemFSCreationDate == $time.this_year", now).unwrap();
        let Query::Created(this) = of_year(at) else { panic!() };
        prop_assert_eq!(this.from, Some(at));
        let Query::Created(before) = of_year(at - 1) else { panic!() };
        prop_assert_eq!(before.to, Some(at - 1));
    }
}
