//! Paths as callers write them and as the wire has them.

use frevo_wire::Utf16;

use crate::error::Cause;

/// Turns `a/b`, `/a/b` or `a\b` into what a CREATE names: `a\b`, and nothing
/// for the share's root. `.` and `..` are refused: the server knows neither,
/// and what they mean is for the caller to say.
pub(crate) fn wire_path(path: &str) -> Result<String, Cause> {
    let parts: Vec<_> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(Cause::Usage("a path in a share has no . or .. in it"));
    }
    if path.contains('\0') {
        return Err(Cause::Usage("a name cannot contain a zero byte"));
    }
    let joined = parts.join("\\");
    if joined.len() > 32_000 {
        return Err(Cause::Usage("the path is too long"));
    }
    Ok(joined)
}

/// The path in UTF-16.
pub(crate) fn wire_name(path: &str) -> Utf16<'static> {
    Utf16::from_str(path)
}

/// Whether a name that the server sent can be a file's here: one component,
/// and none that leads anywhere else (CVE-2019-10218).
pub fn is_sound(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

/// The directory that a path lies in, and its last component.
pub fn split(path: &str) -> (&str, &str) {
    let path = path.trim_end_matches(['/', '\\']);
    path.rfind(['/', '\\']).map_or(("", path), |at| (&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

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
