//! Conversion between names on the medium and names that clients see.
//!
//! The medium holds any bytes except NUL and slash; clients see UTF-16 without the characters that
//! Windows reserves. The mapping is one to one: each client name leads back to its own bytes, and
//! no other spelling leads there.
//!
//! * Reserved characters, control characters, a backslash, a trailing space or period: U+F001 to
//!   U+F029 ([`reserved`]).
//! * Bytes that are not UTF-8, and characters that this mapping itself uses: each byte as U+EF80 to
//!   U+EFFF.
//!
//! A file system of Windows holds the names that Windows has: the private characters above are stored
//! as they come, since programs read them there as other machines wrote them, and the reserved ones
//! are refused or unreadable. Those that another program made there all the same are shown as bytes:
//! U+EF01 to U+EF7F.

use std::borrow::Cow;

use frevo_store::name::parts;
use frevo_store::{Fault, Name, vfs::VfsResult};
use frevo_wire::fscc::reserved;

use crate::limits::COMPONENT_BYTES;
use crate::options::is_side;

/// Offset of the private characters for raw bytes.
const RAW_BASE: u32 = 0xEF00;

/// The spelling of names on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Any bytes: reserved characters stand there for the private ones of clients.
    Bytes,
    /// As on Windows.
    Windows,
}

impl Spelling {
    /// Returns the private character that clients see for a reserved one.
    fn private(self, c: char) -> Option<char> {
        match self {
            Self::Bytes => reserved::private(c),
            Self::Windows => reserved::private(c).and_then(|_| raw(c)),
        }
    }

    /// Returns the private character that clients see for a last character that Windows drops.
    fn private_at_end(self, c: char) -> Option<char> {
        match self {
            Self::Bytes => reserved::private_at_end(c),
            Self::Windows => reserved::private_at_end(c).and_then(|_| raw(c)),
        }
    }

    /// Returns the character on the medium for one of clients that stands for no byte.
    fn plain(self, c: char) -> char {
        match self {
            Self::Bytes => reserved::plain(c).or_else(|| reserved::plain_at_end(c)).unwrap_or(c),
            Self::Windows => c,
        }
    }

    /// True for private characters that the mapping makes.
    fn is_private(self, c: char) -> bool {
        match self {
            Self::Bytes => matches!(
                c,
                '\u{F001}'..='\u{F01F}' | '\u{F020}'..='\u{F029}' | '\u{EF80}'..='\u{EFFF}'
            ),
            Self::Windows => matches!(c, '\u{EF01}'..='\u{EFFF}'),
        }
    }

    /// True for private characters that stand for one byte.
    fn is_raw(self, c: char) -> bool {
        match self {
            Self::Bytes => matches!(c, '\u{EF80}'..='\u{EFFF}'),
            Self::Windows => self.is_private(c),
        }
    }

    /// True if the mapping leaves a component unchanged in both directions.
    fn is_plain(self, component: &str) -> bool {
        let is_mapped = |c: char| reserved::private(c).is_some() || self.is_private(c);
        !component.ends_with([' ', '.']) && !component.chars().any(is_mapped)
    }

    /// Converts a component from the clients' form to bytes.
    fn unmap(self, component: &str, out: &mut Vec<u8>) {
        for c in component.chars() {
            if self.is_raw(c) {
                out.push((u32::from(c) - RAW_BASE) as u8);
            } else {
                out.extend_from_slice(self.plain(c).encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }

    /// Returns the mapped spelling of a name that a POSIX client may send unmapped.
    fn canonical(self, component: &str) -> Cow<'_, str> {
        let mut out = String::with_capacity(component.len() + 4);
        out.extend(component.chars().map(|c| self.private(c).unwrap_or(c)));
        self.trail(&mut out);
        Cow::Owned(out)
    }

    fn trail(self, out: &mut String) {
        if let Some(mapped) = out.chars().next_back().and_then(|c| self.private_at_end(c)) {
            out.pop();
            out.push(mapped);
        }
    }
}

/// Returns the private character for a byte of ASCII.
fn raw(c: char) -> Option<char> {
    char::from_u32(RAW_BASE + u32::from(c))
}

/// A path relative to the share's root in the form of system calls: components between slashes and
/// a NUL at the end.
#[derive(Debug, Clone)]
pub(crate) struct DiskPath {
    bytes: Vec<u8>,
}

impl DiskPath {
    /// Converts a name; the root becomes ".".
    pub(crate) fn of(name: &Name, posix: bool, spelling: Spelling) -> VfsResult<Self> {
        let mut bytes = Vec::with_capacity(name.path().len() + 8);
        for component in parts(name.path(), b'\\').filter(|component| !component.is_empty()) {
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            push_component(&mut bytes, component, posix, spelling)?;
        }
        Ok(Self { bytes })
    }

    /// Makes the path of stored names.
    pub(crate) fn of_components(components: &[Vec<u8>]) -> Self {
        Self { bytes: components.join(&b'/') }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        if self.bytes.is_empty() { b"." } else { &self.bytes }
    }

    /// Returns the parent's components and the last one.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        match self.bytes.iter().rposition(|&b| b == b'/') {
            Some(at) => (&self.bytes[..at], &self.bytes[at + 1..]),
            None => (&[], &self.bytes),
        }
    }
}

fn push_component(
    out: &mut Vec<u8>,
    component: &str,
    posix: bool,
    spelling: Spelling,
) -> VfsResult<()> {
    let start = out.len();
    if is_plain_bytes(component.as_bytes()) || spelling.is_plain(component) {
        out.extend_from_slice(component.as_bytes());
    } else {
        spelling.unmap(component, out);
        let again = map(&out[start..], spelling);
        // A POSIX client sends reserved characters as they are, so a name with private-use
        // characters is taken literally.
        let literal = posix || component.chars().any(|c| reserved::private(c).is_some());
        let canonical =
            if literal { spelling.canonical(component) } else { Cow::Borrowed(component) };
        if again != canonical {
            // Each file may be known by one spelling only, and this is not the canonical spelling
            // of the name, so the name is refused.
            return Err(Fault::NameInvalid);
        }
    }
    let made = &out[start..];
    if made.is_empty()
        || made == b"."
        || made == b".."
        || is_side(made)
        || made.iter().any(|b| matches!(b, 0 | b'/'))
    {
        return Err(Fault::NameInvalid);
    }
    if made.len() > COMPONENT_BYTES {
        return Err(Fault::NameTooLong);
    }
    Ok(())
}

/// Returns the clients' name of a path on the medium.
pub(crate) fn client_name(path: &[u8], spelling: Spelling) -> Name {
    let mut name = String::with_capacity(path.len());
    for component in path.split(|&b| b == b'/') {
        if !name.is_empty() {
            name.push('\\');
        }
        name.push_str(&map(component, spelling));
    }
    Name::from_stored(name)
}

/// Converts bytes on the medium to the clients' form.
pub(crate) fn map(bytes: &[u8], spelling: Spelling) -> Cow<'_, str> {
    if let Ok(text) = core::str::from_utf8(bytes)
        && (is_plain_bytes(bytes) || spelling.is_plain(text))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if spelling.is_private(c) {
                push_raw(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out);
            } else {
                out.push(spelling.private(c).unwrap_or(c));
            }
        }
        push_raw(chunk.invalid(), &mut out);
    }
    spelling.trail(&mut out);
    Cow::Owned(out)
}

/// True for each byte of printable ASCII that the mapping leaves unchanged.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b' ';
    while byte < 0x7f {
        plain[byte as usize] =
            !matches!(byte, b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|');
        byte += 1;
    }
    plain
};

/// Like [`Spelling::is_plain`], for printable ASCII, which nearly all names are.
fn is_plain_bytes(bytes: &[u8]) -> bool {
    // `&` instead of `&&` checks all bytes without a branch for each.
    bytes.iter().fold(true, |plain, &b| plain & PLAIN[usize::from(b)])
        && !matches!(bytes.last(), Some(b' ' | b'.'))
}

fn push_raw(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().filter_map(|&b| char::from_u32(RAW_BASE + u32::from(b))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(client: &str) -> VfsResult<Vec<u8>> {
        let mut out = Vec::new();
        push_component(&mut out, client, false, Spelling::Bytes).map(|()| out)
    }

    fn client_form(disk: &[u8]) -> String {
        map(disk, Spelling::Bytes).into_owned()
    }

    fn on_windows(client: &str, posix: bool) -> VfsResult<Vec<u8>> {
        let mut out = Vec::new();
        push_component(&mut out, client, posix, Spelling::Windows).map(|()| out)
    }

    fn shown_by_windows(disk: &[u8]) -> String {
        map(disk, Spelling::Windows).into_owned()
    }

    #[test]
    fn a_file_system_of_windows_keeps_private_characters() {
        for name in
            ["a\u{F022}b", "q\u{F025}.txt", "sp\u{F028}", "dot\u{F029}", "\u{F001}", "x\u{F026}y"]
        {
            assert_eq!(on_windows(name, false).as_deref(), Ok(name.as_bytes()));
            assert_eq!(shown_by_windows(name.as_bytes()), name);
        }
        // Other programs have given these names to the host's files. Clients see private-use
        // characters instead of the characters that they cannot use.
        for (bytes, client) in [
            (&b"a:b?"[..], "a\u{EF3A}b\u{EF3F}"),
            (b"end ", "end\u{EF20}"),
            (b"end..", "end.\u{EF2E}"),
            (b"\x01", "\u{EF01}"),
            (b"caf\xe9", "caf\u{EFE9}"),
            ("\u{EF3A}".as_bytes(), "\u{EFEE}\u{EFBC}\u{EFBA}"),
        ] {
            assert_eq!(shown_by_windows(bytes), client, "{bytes:?}");
            assert_eq!(on_windows(client, false).as_deref(), Ok(bytes), "{client:?}");
        }
        for client in ["a\u{EF41}", "\u{EF2E}", "a\u{EF2F}b", "end.", "caf\u{EFC3}\u{EFA9}"] {
            assert_eq!(on_windows(client, false), Err(Fault::NameInvalid), "{client:?}");
        }
        assert_eq!(on_windows("a:b.", true).as_deref(), Ok(&b"a:b."[..]));
        assert_eq!(on_windows("..", true), Err(Fault::NameInvalid));
    }

    #[test]
    fn reserved_characters_have_private_ones() {
        for (bytes, client) in [
            (&b"a:b"[..], "a\u{F022}b"),
            (b"\"*:<>?\\|", "\u{F020}\u{F021}\u{F022}\u{F023}\u{F024}\u{F025}\u{F026}\u{F027}"),
            (b"end ", "end\u{F028}"),
            (b"end.", "end\u{F029}"),
            (b"end..", "end.\u{F029}"),
            (b" a.b", " a.b"),
            (b"\x01\x1f", "\u{F001}\u{F01F}"),
            (b"plain.txt", "plain.txt"),
            ("grün".as_bytes(), "grün"),
            (b"caf\xe9", "caf\u{EFE9}"),
            (b"\xff\xfe", "\u{EFFF}\u{EFFE}"),
            ("\u{F022}".as_bytes(), "\u{EFEF}\u{EF80}\u{EFA2}"),
            ("\u{EFE9}".as_bytes(), "\u{EFEE}\u{EFBF}\u{EFA9}"),
        ] {
            assert_eq!(client_form(bytes), client, "{bytes:?}");
            assert_eq!(disk(client).as_deref(), Ok(bytes), "{client:?}");
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for client in [
            "end.",
            "end ",
            "a\u{F029}b",
            "a\u{F028}b",
            "\u{F029}",
            ".\u{F029}",
            "caf\u{EFC3}\u{EFA9}",
            "\u{EFEF}\u{EF80}\u{EFA3}x\u{EFE9}\u{EFEF}\u{EF80}",
        ] {
            let made = disk(client);
            if let Ok(bytes) = &made {
                assert_eq!(client_form(bytes), client);
            } else {
                assert_eq!(made, Err(Fault::NameInvalid), "{client:?}");
            }
        }
        assert_eq!(disk("end."), Err(Fault::NameInvalid));
        assert_eq!(disk("caf\u{EFC3}\u{EFA9}"), Err(Fault::NameInvalid));
        assert_eq!(disk("\u{F029}"), Err(Fault::NameInvalid));
        assert_eq!(disk(".\u{F029}"), Err(Fault::NameInvalid));
        assert_eq!(disk("a\0"), Err(Fault::NameInvalid));
    }

    #[test]
    fn posix_clients_may_spell_plainly() {
        let disk = |client: &str| {
            let mut out = Vec::new();
            push_component(&mut out, client, true, Spelling::Bytes).map(|()| out)
        };
        assert_eq!(disk("a:b.").as_deref(), Ok(&b"a:b."[..]));
        assert_eq!(disk("b.").as_deref(), Ok(&b"b."[..]));
        assert_eq!(disk("a\u{F022}b").as_deref(), Ok(&b"a:b"[..]));
        assert_eq!(disk("."), Err(Fault::NameInvalid));
        assert_eq!(disk(".."), Err(Fault::NameInvalid));
        assert_eq!(disk("caf\u{EFC3}\u{EFA9}"), Err(Fault::NameInvalid));
    }

    /// Tests that a name opened by a POSIX client is renamed and removed also without its flag.
    #[test]
    fn reserved_characters_tell_a_posix_name() {
        assert_eq!(disk("a:b").as_deref(), Ok(&b"a:b"[..]));
        assert_eq!(disk("a\u{F022}b").as_deref(), Ok(&b"a:b"[..]));
    }

    /// The client's name has 255 units at most; the file system refuses what is too long for it.
    #[test]
    fn a_component_holds_three_bytes_for_each_unit() {
        for (n, ok) in [(764, true), (765, true), (766, false)] {
            let made = disk(&"x".repeat(n));
            assert_eq!(made.is_ok(), ok, "{n}");
        }
        assert!(disk(&"名".repeat(255)).is_ok());
        assert_eq!(disk(&"名".repeat(256)), Err(Fault::NameTooLong));
        let raw = vec![0xff; 255];
        assert_eq!(client_form(&raw).encode_utf16().count(), 255);
        assert_eq!(disk(&client_form(&raw)).as_deref(), Ok(&raw[..]));
    }

    #[test]
    fn paths_join_with_slashes() {
        let path =
            |text: &str| DiskPath::of(&Name::from_stored(text.into()), false, Spelling::Bytes);
        assert_eq!(path("a\\b c\\d").unwrap().as_bytes(), b"a/b c/d");
        assert_eq!(path("a\\b\\c").unwrap().split(), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(path("a").unwrap().split(), (&b""[..], &b"a"[..]));
        assert!(path("").unwrap().is_root());
        assert_eq!(path("").unwrap().as_bytes(), b".");
        assert_eq!(path("a\\\u{F029}").unwrap_err(), Fault::NameInvalid);
    }

    proptest::proptest! {
        #[test]
        fn every_disk_name_comes_back(bytes in proptest::collection::vec(1u8.., 1..60)) {
            let bytes: Vec<u8> = bytes.into_iter().filter(|&b| b != b'/').collect();
            let special = matches!(bytes.as_slice(), b"" | b"." | b"..");
            if !special {
                let client = client_form(&bytes);
                assert_eq!(disk(&client).as_deref(), Ok(&bytes[..]));
                let other = shown_by_windows(&bytes);
                assert_eq!(on_windows(&other, false).as_deref(), Ok(&bytes[..]));
                let bad = |c: char| c < ' ' || matches!(c, '"' | '*' | '/' | ':' | '<' | '>' | '?' | '|' | '\\');
                assert!(!client.contains(bad) && !other.contains(bad), "{client:?} {other:?}");
            }
        }

        #[test]
        // If two different names of clients led to one disk name, one file would replace the other.
        // So each name must have a disk name of its own.
        fn no_two_client_names_meet(a in "[a-b. \u{EF80}-\u{EFFF}\u{F001}-\u{F030}é]{1,6}", b in "[a-b. \u{EF80}-\u{EFFF}\u{F001}-\u{F030}é]{1,6}") {
            if let (Ok(x), Ok(y)) = (disk(&a), disk(&b)) {
                assert_eq!(x == y, a == b);
            }
            if let (Ok(x), Ok(y)) = (on_windows(&a, false), on_windows(&b, false)) {
                assert_eq!(x == y, a == b);
            }
        }
    }
}
