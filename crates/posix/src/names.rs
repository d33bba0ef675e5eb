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

use std::borrow::Cow;

use frevo_store::{Fault, Name, vfs::VfsResult};
use frevo_wire::fscc::reserved;

use crate::limits::COMPONENT_BYTES;
use crate::options::is_side;

/// Offset of the private characters for raw bytes 0x80..=0xFF.
const RAW_BASE: u32 = 0xEF00;

/// A path relative to the share's root in the form of system calls: components between slashes and
/// a NUL at the end.
#[derive(Debug, Clone)]
pub(crate) struct DiskPath {
    bytes: Vec<u8>,
}

impl DiskPath {
    /// Converts a name; the root becomes ".".
    pub(crate) fn of(name: &Name, posix: bool) -> VfsResult<Self> {
        let mut bytes = Vec::with_capacity(name.path().len() + 8);
        for component in name.components() {
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            push_component(&mut bytes, component, posix)?;
        }
        Ok(Self { bytes })
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

fn push_component(out: &mut Vec<u8>, component: &str, posix: bool) -> VfsResult<()> {
    let start = out.len();
    if is_plain_bytes(component.as_bytes()) || is_plain(component) {
        out.extend_from_slice(component.as_bytes());
    } else {
        unmap(component, out);
        let again = map(&out[start..]);
        // Only names of POSIX clients hold reserved characters at all.
        let literal = posix || component.chars().any(|c| reserved::private(c).is_some());
        let canonical = if literal { canonical(component) } else { Cow::Borrowed(component) };
        if again != canonical {
            // Another spelling of a name, which has one spelling only.
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

/// True if the mapping leaves a component unchanged in both directions.
fn is_plain(component: &str) -> bool {
    !component.ends_with([' ', '.']) && !component.chars().any(is_mapping_char)
}

/// True for characters that the mapping replaces or makes.
fn is_mapping_char(c: char) -> bool {
    reserved::private(c).is_some() || is_private(c)
}

/// True for private characters that the mapping makes.
fn is_private(c: char) -> bool {
    matches!(c, '\u{F001}'..='\u{F01F}' | '\u{F020}'..='\u{F029}' | '\u{EF80}'..='\u{EFFF}')
}

/// Converts a component from the clients' form to bytes.
fn unmap(component: &str, out: &mut Vec<u8>) {
    for c in component.chars() {
        let code = u32::from(c);
        match c {
            '\u{EF80}'..='\u{EFFF}' => out.push((code - RAW_BASE) as u8),
            _ => {
                let c = reserved::plain(c).or_else(|| reserved::plain_at_end(c)).unwrap_or(c);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

/// Returns the mapped spelling of a name that a POSIX client may send unmapped.
fn canonical(component: &str) -> Cow<'_, str> {
    let mut out = String::with_capacity(component.len() + 4);
    out.extend(component.chars().map(|c| reserved::private(c).unwrap_or(c)));
    trail(&mut out);
    Cow::Owned(out)
}

/// Returns the clients' name of a path on the medium.
pub(crate) fn client_name(path: &[u8]) -> Name {
    let mut name = String::with_capacity(path.len());
    for component in path.split(|&b| b == b'/') {
        if !name.is_empty() {
            name.push('\\');
        }
        name.push_str(&map(component));
    }
    Name::from_stored(name)
}

/// Converts bytes on the medium to the clients' form.
pub(crate) fn map(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = core::str::from_utf8(bytes)
        && (is_plain_bytes(bytes) || is_plain(text))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_private(c) {
                push_raw(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out);
            } else {
                out.push(reserved::private(c).unwrap_or(c));
            }
        }
        push_raw(chunk.invalid(), &mut out);
    }
    trail(&mut out);
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

/// Like [`is_plain`], for printable ASCII, which nearly all names are.
fn is_plain_bytes(bytes: &[u8]) -> bool {
    // Without a jump for each byte.
    bytes.iter().fold(true, |plain, &b| plain & PLAIN[usize::from(b)])
        && !matches!(bytes.last(), Some(b' ' | b'.'))
}

fn push_raw(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().filter_map(|&b| char::from_u32(RAW_BASE + u32::from(b))));
}

fn trail(out: &mut String) {
    if let Some(mapped) = out.chars().next_back().and_then(reserved::private_at_end) {
        out.pop();
        out.push(mapped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(client: &str) -> VfsResult<Vec<u8>> {
        let mut out = Vec::new();
        push_component(&mut out, client, false).map(|()| out)
    }

    fn shown(disk: &[u8]) -> String {
        map(disk).into_owned()
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
            assert_eq!(shown(bytes), client, "{bytes:?}");
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
                assert_eq!(shown(bytes), client);
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
            push_component(&mut out, client, true).map(|()| out)
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

    #[test]
    fn a_component_holds_255_bytes() {
        for (n, ok) in [(254, true), (255, true), (256, false)] {
            let made = disk(&"x".repeat(n));
            assert_eq!(made.is_ok(), ok, "{n}");
        }
        assert!(disk(&format!("{}x", "é".repeat(127))).is_ok());
        assert_eq!(disk(&"é".repeat(128)), Err(Fault::NameTooLong));
        let raw = vec![0xff; 255];
        assert_eq!(shown(&raw).encode_utf16().count(), 255);
        assert_eq!(disk(&shown(&raw)).as_deref(), Ok(&raw[..]));
    }

    #[test]
    fn paths_join_with_slashes() {
        let path = |text: &str| DiskPath::of(&Name::from_stored(text.into()), false);
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
                let client = shown(&bytes);
                assert_eq!(disk(&client).as_deref(), Ok(&bytes[..]));
                let bad = |c: char| c < ' ' || matches!(c, '"' | '*' | '/' | ':' | '<' | '>' | '?' | '|' | '\\');
                assert!(!client.contains(bad), "{client:?}");
            }
        }

        #[test]
        // Only POSIX clients send reserved characters, which mean the same file then.
        fn no_two_client_names_meet(a in "[a-b. \u{EF80}-\u{EFFF}\u{F001}-\u{F030}é]{1,6}", b in "[a-b. \u{EF80}-\u{EFFF}\u{F001}-\u{F030}é]{1,6}") {
            if let (Ok(x), Ok(y)) = (disk(&a), disk(&b)) {
                assert_eq!(x == y, a == b);
            }
        }
    }
}
