//! Names of files in a share: MS-FSCC 2.1.5, MS-SMB2 2.2.13.

use alloc::string::String;
use core::fmt;
use core::hash::{Hash, Hasher};

use frevo_wire::Status;
use frevo_wire::fscc::upcase;

use crate::limits::{COMPONENT_UNITS, NAME_COMPONENTS, NAME_UNITS};
use crate::posix_name::stored_spelling;

/// A valid name relative to a share's root: components between backslashes, and possibly a stream.
/// The empty path is the root.
///
/// Characters that Windows reserves are stored as private characters in their place, whatever
/// client sent them (see [`posix_spelling`]): a file has one name. An exact lookup is no part of a
/// name's identity.
#[derive(Debug, Clone, Default)]
pub struct Name {
    path: String,
    stream: Option<String>,
    exact: bool,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.stream == other.stream
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
        self.stream.hash(state);
    }
}

/// The characters that a component may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// The characters of MS-FSCC 2.1.5.2.
    Windows,
    /// All characters but NUL and the slash, which separates components; lookups are exact (POSIX
    /// extensions). A backslash is part of a name.
    Posix,
}

impl Name {
    /// Returns the name of the share's root.
    pub const fn root() -> Self {
        Self { path: String::new(), stream: None, exact: false }
    }

    /// Checks a name that a client sent.
    ///
    /// # Errors
    /// The status to answer: INVALID_PARAMETER for a leading separator (MS-SMB2 2.2.13),
    /// OBJECT_PATH_SYNTAX_BAD for `.` and `..` with [`Rules::Posix`], OBJECT_NAME_INVALID for
    /// control and reserved characters.
    ///
    /// Windows: several separators count as one, those at the end as none. MS-FSCC 2.1.5 has no
    /// empty components. `.` and `..` are removed from the text before anything is looked up; a
    /// `..` above the root is OBJECT_PATH_SYNTAX_BAD, and a name that begins like `x\..\` is
    /// INVALID_PARAMETER (MS-SMB2 3.3.5.9 note 303).
    pub fn parse(text: &str, rules: Rules) -> Result<Self, Status> {
        let exact = rules == Rules::Posix;
        let separator = if exact { b'/' } else { b'\\' };
        if text.as_bytes().first() == Some(&separator) {
            return Err(Status::INVALID_PARAMETER);
        }
        if has_more_units(text, NAME_UNITS) {
            return Err(Status::OBJECT_NAME_INVALID);
        }
        let (path, stream) = match (rules, split_at_byte(text, b':')) {
            (Rules::Windows, (path, Some(stream))) => (path, parse_stream(path, stream)?),
            _ => (text, None),
        };
        let components = || parts(path, separator).filter(|component| !component.is_empty());
        // A component and its separator take at least two bytes, so a short path cannot exceed the
        // limit and is not counted.
        if path.len() / 2 >= NAME_COMPONENTS && components().nth(NAME_COMPONENTS).is_some() {
            return Err(Status::OBJECT_NAME_INVALID);
        }
        if rules == Rules::Windows && begins_with_a_return(path) {
            return Err(Status::INVALID_PARAMETER);
        }
        let mut stored = String::with_capacity(path.len());
        for component in components() {
            match (component, rules) {
                (".", Rules::Windows) => continue,
                ("..", Rules::Windows) => {
                    remove_last_component(&mut stored)?;
                    continue;
                }
                _ => check_component(component, rules)?,
            }
            if !stored.is_empty() {
                stored.push('\\');
            }
            match exact {
                true => stored.push_str(&stored_spelling(component)),
                false => stored.push_str(component),
            }
        }
        Ok(Self { path: stored, stream, exact })
    }

    /// Makes a name of a path that is known to be valid (stored names, tests).
    pub fn from_stored(path: String) -> Self {
        Self { path, stream: None, exact: false }
    }

    /// True if lookups respect case: a name of the POSIX extensions.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the components between backslashes, without the stream.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the components in order; none for the root.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.path.split('\\').filter(|c| !c.is_empty())
    }

    /// Returns the alternate data stream; None for the unnamed stream.
    pub fn stream(&self) -> Option<&str> {
        self.stream.as_deref()
    }

    /// Returns the number for [`FileKey::stream`](crate::FileKey::stream): 0 for the file's own
    /// data, else a hash that is equal for names that differ in case only. Two streams of one file
    /// with equal hashes share their share modes and locks: more is refused then, nothing more is
    /// allowed.
    pub fn stream_id(&self) -> u64 {
        self.stream().map_or(0, stream_id)
    }

    /// Returns this file's name with another stream, or without a stream.
    #[must_use]
    pub fn with_stream(&self, stream: Option<&str>) -> Self {
        Self { path: self.path.clone(), stream: stream.map(String::from), exact: self.exact }
    }

    /// True for the share's root without a stream.
    pub const fn is_root(&self) -> bool {
        self.path.is_empty() && self.stream.is_none()
    }

    /// Returns the last component; empty for the root.
    pub fn last(&self) -> &str {
        self.last_separator()
            .and_then(|at| self.path.get(at.saturating_add(1)..))
            .unwrap_or(&self.path)
    }

    /// Returns the place of the last separator.
    fn last_separator(&self) -> Option<usize> {
        self.path.bytes().rposition(|byte| byte == b'\\')
    }

    /// Returns the name of the containing directory; the root contains itself.
    pub fn parent(&self) -> Self {
        let parent = self.last_separator().and_then(|at| self.path.get(..at)).unwrap_or_default();
        Self { path: String::from(parent), stream: None, exact: self.exact }
    }

    /// Returns the name of `component` in this directory.
    pub fn child(&self, component: &str) -> Self {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push('\\');
        }
        path.push_str(component);
        Self { path, stream: None, exact: self.exact }
    }

    /// Returns this name with exact lookups.
    #[must_use]
    pub fn into_exact(self) -> Self {
        Self { exact: true, ..self }
    }

    /// Returns the new name of a file below the directory `from`, which is now called `to`; None if
    /// it is not below `from`.
    pub fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        if from.is_root() || !self.is_below(from) {
            return None;
        }
        let rest = self.path.get(from.path.len()..)?;
        let mut path = to.path.clone();
        path.push_str(rest);
        Some(Self { path, ..self.clone() })
    }

    /// True if this name lies below `directory`.
    pub fn is_below(&self, directory: &Self) -> bool {
        if directory.path.is_empty() {
            return !self.path.is_empty();
        }
        self.path.strip_prefix(directory.path.as_str()).is_some_and(|rest| rest.starts_with('\\'))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        self.stream.as_ref().map_or(Ok(()), |s| write!(f, ":{s}"))
    }
}

/// Returns the text before the first `separator`, which is ASCII, and the text behind it if it is there.
fn split_at_byte(text: &str, separator: u8) -> (&str, Option<&str>) {
    let found = text.bytes().position(|byte| byte == separator);
    let halves = found.and_then(|at| Some((text.get(..at)?, text.get(at.saturating_add(1)..)?)));
    halves.map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// Returns the parts of `text` between separators, which are ASCII, like [`str::split`]. That looks for
/// separators in a way that is fast for long texts; names are short.
pub fn parts(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let (part, behind) = split_at_byte(rest?, separator);
        rest = behind;
        Some(part)
    })
}

/// Returns the FNV-1a hash of the upper case, mixed, and never 0.
fn stream_id(stream: &str) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for c in stream.chars().map(upcase) {
        for byte in u32::from(c).to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
    hash = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash.max(1)
}

/// True for a character that no component contains, MS-FSCC 2.1.5.2. All of these are ASCII, so the
/// bytes of a component tell.
const fn is_reserved(byte: u8, rules: Rules) -> bool {
    match rules {
        Rules::Windows => {
            byte < b' ' || matches!(byte, b'"' | b'*' | b'/' | b':' | b'<' | b'>' | b'?' | b'|')
        }
        Rules::Posix => matches!(byte, b'\0' | b'/'),
    }
}

/// True if the text has more than `most` code units of UTF-16.
fn has_more_units(text: &str, most: usize) -> bool {
    // A character has no more units in UTF-16 than bytes in UTF-8, so a text that is short in bytes
    // need not be counted.
    text.len() > most && text.encode_utf16().take(most.saturating_add(1)).count() > most
}

/// True for a path that begins in the form `subfolder\..\`.
fn begins_with_a_return(path: &str) -> bool {
    let mut parts = parts(path, b'\\').filter(|part| !part.is_empty());
    let begins = !matches!(parts.next(), None | Some("." | "..")) && parts.next() == Some("..");
    begins && (parts.next().is_some() || path.ends_with('\\'))
}

/// Removes the last component of a path, for a `..` that follows it. OBJECT_PATH_SYNTAX_BAD above the
/// root.
fn remove_last_component(path: &mut String) -> Result<(), Status> {
    if path.is_empty() {
        // Windows refuses a `..` above the root, although MS-FSCC 2.1.5.1 takes it for the root.
        return Err(Status::OBJECT_PATH_SYNTAX_BAD);
    }
    path.truncate(path.rfind('\\').unwrap_or(0));
    Ok(())
}

fn check_component(component: &str, rules: Rules) -> Result<(), Status> {
    match component {
        "." | ".." => return Err(Status::OBJECT_PATH_SYNTAX_BAD),
        _ => {}
    }
    if component.bytes().any(|byte| is_reserved(byte, rules)) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if has_more_units(component, COMPONENT_UNITS) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    Ok(())
}

/// Parses `name:stream:type` behind its first colon. `::$DATA` is the unnamed stream.
fn parse_stream(path: &str, rest: &str) -> Result<Option<String>, Status> {
    let (stream, kind) = rest.split_once(':').unwrap_or((rest, "$DATA"));
    if matches!(path.rsplit('\\').next(), Some("." | "..")) {
        // MS-FSCC 2.1.5: "." and ".." cannot have a stream, only a file name can.
        return Err(Status::OBJECT_NAME_INVALID);
    }
    // MS-FSCC 2.1.5.3: unlike a file name, a stream name may have control characters.
    if stream.chars().any(|c| matches!(c, '\0' | '/' | '\\' | ':')) || kind.contains('\\') {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if stream.is_empty() && !rest.contains(':') {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if kind.eq_ignore_ascii_case("$INDEX_ALLOCATION") {
        // MS-FSCC 2.1.5.3: $INDEX_ALLOCATION without a stream name, or with $I30, means the
        // directory itself.
        let is_index = stream.is_empty() || stream.eq_ignore_ascii_case("$I30");
        return match is_index {
            true if path.is_empty() => Err(Status::OBJECT_NAME_INVALID),
            true => Ok(None),
            // MS-FSA 2.1.5.1 phase 7: a stream of another name cannot have the type
            // $INDEX_ALLOCATION.
            false => Err(Status::INVALID_PARAMETER),
        };
    }
    if !kind.eq_ignore_ascii_case("$DATA") {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if stream.encode_utf16().take(COMPONENT_UNITS.saturating_add(1)).count() > COMPONENT_UNITS {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    Ok((!stream.is_empty()).then(|| String::from(stream)))
}

/// The identity of a shared folder: a name below one folder means nothing below another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FolderId(pub usize);

/// A name with the folder that it is relative to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The folder that the name is relative to.
    pub folder_id: FolderId,
    /// The name in it.
    pub name: Name,
}

impl Link {
    pub(crate) fn is(&self, folder_id: FolderId, name: &Name) -> bool {
        self.folder_id == folder_id && self.name == *name
    }

    pub(crate) fn is_below(&self, folder_id: FolderId, directory: &Name) -> bool {
        self.folder_id == folder_id && self.name.is_below(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Name, Status> {
        Name::parse(text, Rules::Windows)
    }

    #[test]
    fn names_split_into_components_and_streams() {
        let name = parse("a\\b c\\d:s:$DATA").unwrap();
        assert_eq!(name.components().collect::<std::vec::Vec<_>>(), ["a", "b c", "d"]);
        assert_eq!(name.stream(), Some("s"));
        assert_eq!(parse("x::$DATA").unwrap(), parse("x").unwrap());
        assert!(parse("").unwrap().is_root());
        assert_eq!(parse("a\\b").unwrap().parent(), parse("a").unwrap());
        assert_eq!(parse("a").unwrap().child("b"), parse("a\\b").unwrap());
        assert!(parse("a\\b").unwrap().is_below(&parse("a").unwrap()));
        assert!(!parse("aa\\b").unwrap().is_below(&parse("a").unwrap()));
    }

    #[test]
    fn parts_are_those_of_a_split() {
        for text in ["", "a", "\\", "a\\", "\\a", "a\\\\b", "é\\ж\\c", "a/b\\:"] {
            assert!(parts(text, b'\\').eq(text.split('\\')), "{text}");
            let split = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
            assert_eq!(split_at_byte(text, b':'), split, "{text}");
        }
    }

    #[test]
    fn stream_names_are_compared_without_case() {
        let id = |text: &str| parse(text).unwrap().stream_id();
        assert_eq!(id("a"), 0);
        assert_eq!(id("a::$DATA"), 0);
        assert_eq!(id("a:one"), id("b:ONE:$data"));
        assert_eq!(id("a:é"), id("a:É"));
        assert_ne!(id("a:one"), id("a:two"));
        // Records of durable Opens contain this id of a stream, so its computation must not change.
        assert_eq!(id("a:Zone.Identifier"), 0x872F_B356_0C0C_DF88);
        assert_eq!(parse("a").unwrap().with_stream(Some("s")), parse("a:s").unwrap());
        assert_eq!(parse("a:s").unwrap().with_stream(None), parse("a").unwrap());
    }

    #[test]
    fn bad_names_get_their_status() {
        for (text, status) in [
            ("\\a", Status::INVALID_PARAMETER),
            ("..", Status::OBJECT_PATH_SYNTAX_BAD),
            ("..\\a", Status::OBJECT_PATH_SYNTAX_BAD),
            (".\\..", Status::OBJECT_PATH_SYNTAX_BAD),
            ("a\\b\\..\\..\\..\\c", Status::OBJECT_PATH_SYNTAX_BAD),
            ("a\\..\\b", Status::INVALID_PARAMETER),
            ("a\\\\..\\b", Status::INVALID_PARAMETER),
            ("a\\..\\", Status::INVALID_PARAMETER),
            ("a*\\b\\..\\..\\c", Status::OBJECT_NAME_INVALID),
            ("a\\..:s", Status::OBJECT_NAME_INVALID),
            (".:s", Status::OBJECT_NAME_INVALID),
            ("a:x:$INDEX_ALLOCATION", Status::INVALID_PARAMETER),
            (":$I30:$INDEX_ALLOCATION", Status::OBJECT_NAME_INVALID),
            ("a/b", Status::OBJECT_NAME_INVALID),
            ("a*", Status::OBJECT_NAME_INVALID),
            ("a\u{1}", Status::OBJECT_NAME_INVALID),
            ("a:", Status::OBJECT_NAME_INVALID),
            ("a:s:$BAD", Status::OBJECT_NAME_INVALID),
            ("a\0", Status::OBJECT_NAME_INVALID),
        ] {
            assert_eq!(parse(text), Err(status), "{text:?}");
        }
    }

    /// MS-SMB2 3.3.5.9 note 303, MS-FSCC 2.1.5.1.
    #[test]
    fn dot_directories_are_removed_by_the_letter() {
        for (text, same) in [
            (".", ""),
            ("a\\..", ""),
            (".\\a", "a"),
            (".\\a\\..\\b", "b"),
            ("a\\.\\b", "a\\b"),
            ("a\\b\\..\\c", "a\\c"),
            ("a\\b\\..\\..\\c", "c"),
            ("a\\b\\\\..\\.\\c:s", "a\\c:s"),
            ("a\\b\\.", "a\\b"),
        ] {
            assert_eq!(parse(text), parse(same), "{text}");
        }
        for text in ["a/../b", "..", ".", "a/."] {
            let refused = Name::parse(text, Rules::Posix);
            assert_eq!(refused, Err(Status::OBJECT_PATH_SYNTAX_BAD), "{text}");
        }
        // For POSIX clients, a name of three periods, or one with a backslash, is an ordinary name.
        for text in ["...", "a\\..b", "a\\.b"] {
            assert_eq!(parse(text).unwrap().path(), text);
        }
    }

    /// smbprotocol, go-smb2 and jcifs send such names.
    #[test]
    fn separators_in_a_row_count_as_one() {
        for (text, same) in [("a\\\\b", "a\\b"), ("a\\\\\\b\\\\", "a\\b"), ("a\\", "a")] {
            assert_eq!(parse(text), parse(same), "{text}");
            let slashed = |text: &str| Name::parse(&text.replace('\\', "/"), Rules::Posix);
            assert_eq!(slashed(text), slashed(same), "{text}");
        }
        assert_eq!(parse("a\\\\b:s"), parse("a\\b:s"));
        assert_eq!(parse("\\\\a"), Err(Status::INVALID_PARAMETER));
    }

    #[test]
    fn a_component_holds_255_units() {
        assert!(parse(&"x".repeat(254)).is_ok());
        assert!(parse(&"x".repeat(255)).is_ok());
        assert_eq!(parse(&"x".repeat(256)), Err(Status::OBJECT_NAME_INVALID));
        assert!(parse(&"\u{1F600}".repeat(127)).is_ok());
        assert_eq!(parse(&"\u{1F600}".repeat(128)), Err(Status::OBJECT_NAME_INVALID));
    }
}
