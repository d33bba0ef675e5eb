//! Names of clusters, nodes and shares, checked.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::limits::{NAME_BYTES, SHARE_NAME_BYTES};

/// A name that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongName {
    /// It has no characters.
    Empty,
    /// It has more bytes than this.
    TooLong(usize),
    /// It has a character that is not allowed.
    Character(char),
}

impl fmt::Display for WrongName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the name is empty"),
            Self::TooLong(bytes) => write!(f, "the name has more than {bytes} bytes"),
            Self::Character(c) => write!(f, "the name may not have the character {c:?}"),
        }
    }
}

impl core::error::Error for WrongName {}

fn check(name: &str, bytes: usize, is_allowed: fn(char) -> bool) -> Result<(), WrongName> {
    if name.is_empty() {
        return Err(WrongName::Empty);
    }
    if name.len() > bytes {
        return Err(WrongName::TooLong(bytes));
    }
    name.chars().find(|&c| !is_allowed(c)).map_or(Ok(()), |c| Err(WrongName::Character(c)))
}

/// True for the characters of host names.
const fn is_plain(c: char) -> bool {
    matches!(c, 'a'..='z' | '0'..='9' | '-' | '_' | '.')
}

fn is_of_share(c: char) -> bool {
    !c.is_control()
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $bytes:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name.
            ///
            /// # Errors
            /// For a name that is empty, too long or has other characters.
            pub fn new(name: &str) -> Result<Self, WrongName> {
                check(name, $bytes, $allowed)?;
                Ok(Self(Arc::from(name)))
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of a cluster: lower-case letters, digits, `-`, `_` and `.`.
    ClusterName,
    NAME_BYTES,
    is_plain
);
name!(
    /// The name of a node: lower-case letters, digits, `-`, `_` and `.`.
    NodeName,
    NAME_BYTES,
    is_plain
);
name!(
    /// The name of a share in lower case, without control characters.
    ShareName,
    SHARE_NAME_BYTES,
    is_of_share
);

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends `text` with all bytes other than letters, digits, `-`, `_` and `.` as `%XX`.
pub(crate) fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            out.push(byte);
        } else {
            let digit = |four: u8| HEX.get(usize::from(four)).copied().unwrap_or(b'0');
            out.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// Returns the text of which [`escape`] makes `bytes`. None for bytes that it never makes, so that a
/// name has one spelling.
pub(crate) fn unescape(bytes: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            rest = after;
            let digits = core::str::from_utf8(digits).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    let text = String::from_utf8(out).ok()?;
    let mut again = Vec::with_capacity(bytes.len());
    escape(&text, &mut again);
    (again == bytes).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_bounded() {
        assert_eq!(NodeName::new(""), Err(WrongName::Empty));
        assert_eq!(NodeName::new("n/1"), Err(WrongName::Character('/')));
        assert_eq!(NodeName::new("N1"), Err(WrongName::Character('N')));
        assert!(NodeName::new(&"n".repeat(NAME_BYTES)).is_ok());
        assert_eq!(NodeName::new(&"n".repeat(NAME_BYTES + 1)), Err(WrongName::TooLong(NAME_BYTES)));
        assert!(ShareName::new("größe/100%").is_ok());
        assert_eq!(ShareName::new("a\n"), Err(WrongName::Character('\n')));
        assert!(ShareName::new(&"s".repeat(SHARE_NAME_BYTES)).is_ok());
        assert!(ShareName::new(&"s".repeat(SHARE_NAME_BYTES + 1)).is_err());
    }

    #[test]
    fn a_name_has_one_spelling() {
        assert_eq!(unescape(b"a%2Fb").as_deref(), Some("a/b"));
        assert_eq!(unescape(b"a%2fb"), None, "lower case");
        assert_eq!(unescape(b"%61"), None, "needs no escape");
        assert_eq!(unescape(b"a/b"), None);
        assert_eq!(unescape(b"a%2"), None);
        assert_eq!(unescape(b"a%+1"), None);
        assert_eq!(unescape(b"%FF"), None, "not UTF-8");
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in any::<String>()) {
            let mut bytes = Vec::new();
            escape(&text, &mut bytes);
            prop_assert!(bytes.iter().all(|b| b.is_ascii_graphic() && *b != b'/'));
            prop_assert_eq!(unescape(&bytes), Some(text));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
            if let Some(text) = unescape(&bytes) {
                let mut again = Vec::new();
                escape(&text, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
