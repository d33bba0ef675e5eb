use crate::fscc::wildcard::{Pattern, has_wildcard};
use alloc::string::String;
use proptest::prelude::*;

fn matches(expression: &str, name: &str) -> bool {
    Pattern::new(expression, true).matches(name)
}

#[test]
fn ms_fsa_2_1_4_4() {
    for (expression, name, expected) in [
        ("*", "anything", true),
        ("*.*", "no_dot", true),
        ("*.txt", "ReadMe.TXT", true),
        ("*.txt", "readme.txt.bak", false),
        ("?.c", "a.c", true),
        ("?.c", "ab.c", false),
        ("a?c", "a.c", true),
        ("f*o*o", "foo", true),
        ("f*o*o", "fo", false),
        // The DOS pattern `*.` is sent as `<`. It matches names without an extension.
        ("<", "readme", true),
        ("<", "readme.txt", false),
        ("<.txt", "a.b.txt", true),
        ("<.txt", "a.txt.b", false),
        ("<\"*", "plain", true),
        ("<\"*", "a.b.c", true),
        ("<.b", "a.b.c", false),
        // `<` may also match up to the last period of the name, but not beyond it.
        ("<txt", "a.txt", true),
        ("<txt", "a.b.txt", true),
        ("<txt", "txt", true),
        ("<t", "a.txt", false),
        ("<", "readme.", true),
        ("<<", "a.txt", true),
        ("a.<", "a.txt", true),
        // The DOS pattern `????` is sent as `>>>>`. It matches names of up to four characters.
        (">>>>.txt", "ab.txt", true),
        (">>>>.txt", "abcde.txt", false),
        (">>>", "a", true),
        (">>>", "abcd", false),
        ("a>.c", "a.c", true),
        ("a\"", "a", true),
        ("a\"", "a.", true),
        ("a\"", "ab", false),
        ("a\"b", "a.b", true),
        ("abc", "ABC", true),
        ("", "", true),
        ("*", "", false),
        ("", "a", false),
        ("grün*", "GRÜNE.txt", true),
        ("*.TXT", "grüne.txt", true),
        ("abc*", "ABCD", true),
        ("abc*", "ABC", true),
        ("abc*", "AB", false),
        ("*abc", "AB", false),
        ("abc*", "abcß", true),
    ] {
        assert_eq!(matches(expression, name), expected, "{expression:?} against {name:?}");
    }
    assert!(!Pattern::new("*.TXT", false).matches("a.txt"));
    // An emoji has two UTF-16 units, so a pattern needs two question marks for it.
    assert!(!matches("?", "\u{1F600}") && matches("??", "\u{1F600}"));
}

#[test]
fn no_expression_explodes() {
    let expression: String = core::iter::repeat_n("*a", 400).collect();
    let pattern = Pattern::new(&expression, true);
    assert!(!pattern.matches(&"a".repeat(255)));
    let pattern = Pattern::new(&"<>".repeat(159), true);
    assert!(pattern.matches(&"a".repeat(255)));
    assert!(Pattern::new(&"*".repeat(30_000), true).matches("x"));
}

#[test]
fn lengths_around_the_inline_states() {
    for len in [318, 319, 320, 321, 640] {
        let expression = alloc::format!("?{}*", "a".repeat(len - 2));
        assert!(Pattern::new(&expression, true).matches(&"A".repeat(len)), "{len}");
        assert!(!Pattern::new(&expression, true).matches(&"A".repeat(len - 2)), "{len}");
    }
}

/// The rules of MS-FSA 2.1.4.4 as a recursion, slow and plain.
fn oracle(expression: &[char], name: &[char]) -> bool {
    let Some((element, rest)) = expression.split_first() else { return name.is_empty() };
    let head = name.first().copied();
    let tail = name.get(1..).unwrap_or(&[]);
    match element {
        '*' => oracle(rest, name) || (head.is_some() && oracle(expression, tail)),
        '<' => {
            let is_final_period = head == Some('.') && !tail.contains(&'.');
            let follows = if is_final_period { rest } else { expression };
            oracle(rest, name) || (head.is_some() && oracle(follows, tail))
        }
        '>' if head.is_none() || head == Some('.') => {
            let end_of_set = rest.iter().position(|c| *c != '>').unwrap_or(rest.len());
            oracle(&rest[end_of_set..], name)
        }
        '"' if head.is_none() => oracle(rest, name),
        '"' => head == Some('.') && oracle(rest, tail),
        '?' | '>' => head.is_some() && oracle(rest, tail),
        literal => head == Some(*literal) && oracle(rest, tail),
    }
}

fn agrees(expression: &str, name: &str) -> bool {
    let chars = |s: &str| s.chars().collect::<alloc::vec::Vec<_>>();
    let expected = expression == "*.*" || oracle(&chars(expression), &chars(name));
    matches(expression, name) == expected
}

/// Tests a million pairs of short expressions and names, in which each wildcard meets each other one.
#[test]
fn a_million_pairs_agree_with_the_rules() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..1_000_000 {
        let mut text = |letters: &[u8], longest: usize| -> String {
            (0..=next(longest)).map(|_| char::from(letters[next(letters.len())])).collect()
        };
        let (expression, name) = (text(b"ab.*?<>\"", 6), text(b"ab.", 7));
        assert!(agrees(&expression, &name), "{expression:?} against {name:?}");
    }
}

proptest! {
    #[test]
    fn agrees_with_the_recursion(expression in "[ab.*?<>\"]{1,8}", name in "[ab.]{1,10}") {
        prop_assert!(agrees(&expression, &name));
        if !has_wildcard(&expression) {
            let pattern = Pattern::new(&expression, true);
            prop_assert_eq!(pattern.literal(), Some(expression.as_str()));
        }
    }

    #[test]
    fn never_panics(expression in ".{0,400}", name in ".{0,300}") {
        let _ = matches(&expression, &name);
    }
}
