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
        // The DOS pattern `*.` becomes `<`: names without an extension.
        ("<", "readme", true),
        ("<", "readme.txt", false),
        ("<.txt", "a.b.txt", true),
        ("<.txt", "a.txt.b", false),
        ("<\"*", "plain", true),
        ("<\"*", "a.b.c", true),
        ("<.b", "a.b.c", false),
        // The DOS pattern `????.*` becomes question marks of this kind.
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
    // A character outside the basic plane has two code units.
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

/// The rules as a recursion, slow and plain.
fn oracle(expression: &[char], name: &[char]) -> bool {
    let Some((element, rest)) = expression.split_first() else { return name.is_empty() };
    let head = name.first().copied();
    let tail = name.get(1..).unwrap_or(&[]);
    match element {
        '*' => oracle(rest, name) || (head.is_some() && oracle(expression, tail)),
        '<' => {
            let may_read = head.is_some_and(|c| c != '.' || tail.contains(&'.'));
            oracle(rest, name) || (may_read && oracle(expression, tail))
        }
        '>' if head.is_none() || head == Some('.') => oracle(rest, name),
        '"' if head.is_none() => oracle(rest, name),
        '"' => head == Some('.') && oracle(rest, tail),
        '?' | '>' => head.is_some() && oracle(rest, tail),
        literal => head == Some(*literal) && oracle(rest, tail),
    }
}

proptest! {
    #[test]
    fn agrees_with_the_recursion(expression in "[ab.*?<>\"]{1,8}", name in "[ab.]{1,10}") {
        let chars = |s: &str| s.chars().collect::<alloc::vec::Vec<_>>();
        let expected = expression == "*.*" || oracle(&chars(&expression), &chars(&name));
        prop_assert_eq!(matches(&expression, &name), expected);
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
