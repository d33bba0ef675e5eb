//! Paths: as callers write them, with `/`, and as requests have them, with `\\`.

use frevo_wire::Utf16;

use crate::error::Cause;

/// Converts `a/b`, `/a/b` or `a\b` to the form of a CREATE: `a\b`, and the empty path for
/// the share's root. `.` and `..` are refused: servers do not know them.
pub(crate) fn wire_path(path: &str) -> Result<String, Cause> {
    let parts: Vec<_> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(Cause::Usage("a path in a share cannot contain . or .."));
    }
    if path.contains('\0') {
        return Err(Cause::Usage("a file name cannot contain a zero byte"));
    }
    let joined = parts.join("\\");
    if joined.len() > 32_000 {
        return Err(Cause::Usage("the path is longer than 32,000 bytes"));
    }
    Ok(joined)
}

/// Converts a path of [`wire_path`] to the form that a server with the POSIX extensions takes: a
/// slash separates, and a backslash is part of a name, which callers write as U+F026.
pub(crate) fn posix_path(path: &str) -> String {
    let posix = |c| match c {
        '\\' => '/',
        '\u{F026}' => '\\',
        other => other,
    };
    path.chars().map(posix).collect()
}

/// Returns the name of a listing of the POSIX extensions as callers see it.
pub(crate) fn name_from_posix(name: String) -> String {
    if name.contains('\\') { name.replace('\\', "\u{F026}") } else { name }
}

/// Converts a path to UTF-16.
pub(crate) fn wire_name(path: &str) -> Utf16<'static> {
    Utf16::from_str(path)
}

/// Returns true if a name that the server sent is a file name: one component that leads to
/// no other directory (CVE-2019-10218).
pub fn is_sound(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

/// Splits a path into its directory and its last component.
pub fn split(path: &str) -> (&str, &str) {
    let path = path.trim_end_matches(['/', '\\']);
    path.rfind(['/', '\\']).map_or(("", path), |at| (&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_names_have_backslashes() {
        assert_eq!(posix_path("a\\b\u{F026}c"), "a/b\\c");
        assert_eq!(name_from_posix("b\\c".to_owned()), "b\u{F026}c");
        assert!(is_sound(&name_from_posix("\\".to_owned())));
    }

    #[test]
    fn paths_of_either_slash() {
        assert_eq!(wire_path("/a//b/c/").unwrap(), "a\\b\\c");
        assert_eq!(wire_path("a\\b").unwrap(), "a\\b");
        assert_eq!(wire_path("/").unwrap(), "");
        assert!(wire_path("a/../b").is_err());
        assert!(wire_path("a\0b").is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_are_unsound() {
        for name in ["", ".", "..", "a/b", "a\\b", "../x", "\0"] {
            assert!(!is_sound(name), "{name:?}");
        }
        assert!(is_sound("..a") && is_sound("a b"));
    }

    #[test]
    fn parents() {
        assert_eq!(split("a/b/c"), ("a/b", "c"));
        assert_eq!(split("c/"), ("", "c"));
        assert_eq!(split(""), ("", ""));
    }
}
