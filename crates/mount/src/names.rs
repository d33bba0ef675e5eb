//! Converts names between POSIX and SMB.
//!
//! Characters that SMB reserves (`: * ? " < > |`, the backslash, a space or a period at the end)
//! are sent as characters of the private use area ([`reserved`]), so that other clients can read
//! such a name. No mapped name can name a stream.

use std::ffi::OsStr;

use frevo_wire::fscc::reserved;

/// The spelling of names on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Reserved characters are mapped.
    Mapped,
    /// Names of the POSIX extensions: only the backslash is mapped.
    Exact,
}

/// Replaces a backslash within a name.
const BACKSLASH: char = '\u{f026}';

/// Converts one component for the wire; None if it is not Unicode or not a valid name.
pub fn to_wire(name: &OsStr, spelling: Spelling) -> Option<String> {
    let name = name.to_str()?;
    if name.is_empty() || name.contains(['/', '\0']) {
        return None;
    }
    if spelling == Spelling::Exact {
        return Some(name.replace('\\', "\u{f026}"));
    }
    let last = name.chars().count().checked_sub(1)?;
    let map = |(at, one): (usize, char)| {
        let at_end = if at == last { reserved::private_at_end(one) } else { None };
        at_end.or_else(|| reserved::private(one)).unwrap_or(one)
    };
    Some(name.chars().enumerate().map(map).collect())
}

/// Converts one component from the wire. A stand-in for a last space or period that is not at the
/// end stays, so that [`to_wire`] gives the name on the wire again.
pub fn from_wire(wire: &str, spelling: Spelling) -> String {
    if spelling == Spelling::Exact {
        return wire.replace(BACKSLASH, "\\");
    }
    let last = wire.chars().count().saturating_sub(1);
    let back = |(at, one): (usize, char)| {
        let at_end = if at == last { reserved::plain_at_end(one) } else { None };
        at_end.or_else(|| reserved::plain(one)).unwrap_or(one)
    };
    let name: String = wire.chars().enumerate().map(back).collect();
    // No file can be called `.` or `..`, so such a name keeps the server's spelling.
    if matches!(&*name, "." | "..") { wire.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["a", "a:b", "what?", "x.", "x ", "...", "\\", "é \u{1}\u{1f}.txt", "a<b>|\"*"]
        {
            let wire = to_wire(OsStr::new(name), Spelling::Mapped).unwrap();
            let exact = to_wire(OsStr::new(name), Spelling::Exact).unwrap();
            assert!(!exact.contains('\\') && from_wire(&exact, Spelling::Exact) == name);
            assert!(!wire.contains([':', '*', '?', '"', '<', '>', '|', '\\']), "{name:?}");
            assert!(!wire.ends_with(['.', ' ']), "{name:?}");
            assert_eq!(from_wire(&wire, Spelling::Mapped), name);
        }
        let to_wire = |name: &str| to_wire(OsStr::new(name), Spelling::Mapped);
        assert_eq!(to_wire("a. b").unwrap(), "a. b");
        // A mapped dot in the middle of a name is kept, because `a.b` is another file.
        for wire in ["a\u{f029}b", "\u{f028}b", "a\u{f022}\u{f028}\u{f029}"] {
            assert_eq!(to_wire(&from_wire(wire, Spelling::Mapped)).unwrap(), wire);
        }
        // These names would become `.` and `..`, so they are not mapped.
        for wire in ["\u{f029}", ".\u{f029}"] {
            assert_eq!(from_wire(wire, Spelling::Mapped), wire);
            assert_eq!(to_wire(wire).unwrap(), wire);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        for spelling in [Spelling::Mapped, Spelling::Exact] {
            assert_eq!(to_wire(OsStr::new(""), spelling), None);
            assert_eq!(to_wire(OsStr::new("a/b"), spelling), None);
            assert_eq!(to_wire(OsStr::from_bytes(b"\xff"), spelling), None);
        }
    }
}
