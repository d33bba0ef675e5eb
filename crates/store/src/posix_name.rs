//! Spelling of names for POSIX clients.
//!
//! A stored name has private characters in place of those that Windows reserves
//! ([`frevo_wire::fscc::reserved`]). A client of the POSIX extensions writes and reads
//! the characters themselves, the backslash too: its separator is the slash.

use alloc::borrow::Cow;
use alloc::string::String;

use frevo_wire::fscc::reserved;

/// Returns a stored component as clients of the POSIX extensions see it.
pub fn posix_spelling(component: &str) -> Cow<'_, str> {
    let is_private = |c: char| matches!(c, '\u{F001}'..='\u{F029}');
    if !component.contains(is_private) {
        return Cow::Borrowed(component);
    }
    let mut text: String = component.chars().map(plain).collect();
    replace_last(&mut text, reserved::plain_at_end);
    Cow::Owned(text)
}

/// Returns the stored component for one that a client of the POSIX extensions wrote.
pub(crate) fn stored_spelling(component: &str) -> String {
    let mut text: String = component.chars().map(private).collect();
    replace_last(&mut text, reserved::private_at_end);
    text
}

fn replace_last(text: &mut String, with: impl Fn(char) -> Option<char>) {
    if let Some(other) = text.chars().next_back().and_then(with) {
        text.pop();
        text.push(other);
    }
}

fn private(c: char) -> char {
    reserved::private(c).unwrap_or(c)
}

fn plain(c: char) -> char {
    reserved::plain(c).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Name, Rules};
    use frevo_wire::Status;
    use std::vec::Vec;

    #[test]
    fn both_spellings_lead_to_each_other() {
        for (posix, stored) in [
            ("a:b", "a\u{F022}b"),
            ("\"*:<>?|", "\u{F020}\u{F021}\u{F022}\u{F023}\u{F024}\u{F025}\u{F027}"),
            ("end.", "end\u{F029}"),
            ("end..", "end.\u{F029}"),
            ("end ", "end\u{F028}"),
            ("a. b", "a. b"),
            (" \\ ", " \u{F026}\u{F028}"),
            ("\u{1}\u{1F}", "\u{F001}\u{F01F}"),
            ("plain", "plain"),
        ] {
            assert_eq!(stored_spelling(posix), stored);
            assert_eq!(posix_spelling(stored), posix);
        }
    }

    #[test]
    fn posix_names_are_stored_as_windows_sees_them() {
        let parse = |text: &str| Name::parse(text, Rules::Posix);
        let name = parse("d/a:b*\\c.").unwrap();
        let components: Vec<_> = name.components().collect();
        assert_eq!(components, ["d", "a\u{F022}b\u{F021}\u{F026}c\u{F029}"]);
        assert_eq!(name.stream(), None);
        assert!(name.is_exact() && name.parent().is_exact() && name.child("x").is_exact());
        assert_eq!(name.parent(), Name::parse("d", Rules::Windows).unwrap());
        assert_eq!(parse("\\a").unwrap().last(), "\u{F026}a");
        assert!(parse("").unwrap().is_root());
        for (text, status) in [
            ("/a", Status::INVALID_PARAMETER),
            ("a/../b", Status::OBJECT_PATH_SYNTAX_BAD),
            ("a\0", Status::OBJECT_NAME_INVALID),
        ] {
            assert_eq!(parse(text), Err(status), "{text:?}");
        }
        assert!(parse("a/...").is_ok());
    }
}
