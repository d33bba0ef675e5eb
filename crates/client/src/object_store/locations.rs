//! Locations of objects and paths in the share; metadata and errors of objects.

use std::io::ErrorKind;

use ::object_store::path::Path;
use ::object_store::{Error as StoreError, ObjectMeta, Result};

use crate::error::Error;
use crate::metadata::Metadata;
use crate::share::Share;

/// The name of this store in errors.
const STORE: &str = "SMB";
/// The begin of the names of files that are being written.
pub(super) const PART: &str = "frevo-put~";
/// The begin of the names of lock files.
pub(super) const LOCK: &str = "frevo-lock~";

/// Characters that SMB names cannot have, and those sent in their place: the mapping of cifs.ko
/// (`mapposix`) and macOS.
const MAPPED: [(char, char); 8] = [
    ('"', '\u{F020}'),
    ('*', '\u{F021}'),
    (':', '\u{F022}'),
    ('<', '\u{F023}'),
    ('>', '\u{F024}'),
    ('?', '\u{F025}'),
    ('\\', '\u{F026}'),
    ('|', '\u{F027}'),
];
/// Characters that names cannot end in.
const MAPPED_AT_END: [(char, char); 2] = [(' ', '\u{F028}'), ('.', '\u{F029}')];

/// Returns the path of an object in the share.
///
/// # Errors
/// Fails for the root, for names that the store uses itself, and for names that contain a
/// character that stands for another one.
pub(super) fn share_path(share: &Share, location: &Path) -> Result<String> {
    let path = directory_path(share, location)?;
    let name = crate::path::split(&path).1;
    if name.is_empty() || is_internal(name) {
        let why = if name.is_empty() { "it is empty" } else { "the store uses such names itself" };
        return Err(invalid(location, why));
    }
    Ok(path)
}

/// Returns the path of a prefix in the share: empty for the root.
pub(super) fn directory_path(share: &Share, location: &Path) -> Result<String> {
    if share.is_posix() {
        return Ok(location.as_ref().to_owned());
    }
    let names: Vec<_> = location.parts().map(|part| mapped(part.as_ref())).collect();
    let names: Option<Vec<_>> = names.into_iter().collect();
    let why = "a name contains a character from U+F020 to U+F029, which stands for another one";
    names.map(|names| names.join("/")).ok_or_else(|| invalid(location, why))
}

/// The name as it is sent; `None` for one that could not be told from another name.
fn mapped(name: &str) -> Option<String> {
    if name.contains(|c| matches!(c, '\u{F020}'..='\u{F029}')) {
        return None;
    }
    let replace = |table: &[(char, char)], c: char| {
        table.iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| *to)
    };
    let mut sent: String = name.chars().map(|c| replace(&MAPPED, c)).collect();
    if let Some(last) = sent.pop() {
        sent.push(replace(&MAPPED_AT_END, last));
    }
    Some(sent)
}

/// The location of a path in the share.
pub(super) fn location(share: &Share, path: &str) -> Result<Path> {
    let back = |c: char| {
        let table = MAPPED.iter().chain(&MAPPED_AT_END);
        table.clone().find(|(_, sent)| *sent == c).map_or(c, |(from, _)| *from)
    };
    let text = if share.is_posix() { path.to_owned() } else { path.chars().map(back).collect() };
    Ok(Path::parse(text)?)
}

/// Returns true for the name of a file that the store made for itself.
pub(super) fn is_internal(name: &str) -> bool {
    let is_digits = |digits: &str, count: usize| {
        digits.len() == count && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    name.strip_prefix(PART).is_some_and(|digits| is_digits(digits, 32))
        || name.strip_prefix(LOCK).is_some_and(|digits| is_digits(digits, 16))
}

/// The metadata of an object.
pub(super) fn object_meta(location: Path, metadata: &Metadata) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: metadata.modified().into(),
        size: metadata.len(),
        e_tag: Some(e_tag(metadata)),
        version: None,
    }
}

/// The ETag of a file: two versions of an object differ in one of the three numbers.
pub(super) fn e_tag(metadata: &Metadata) -> String {
    format!("{:x}-{:x}-{:x}", metadata.file_id(), metadata.modified_ticks().0, metadata.len())
}

fn invalid(location: &Path, why: &'static str) -> StoreError {
    generic(format!("`{location}` cannot be the location of an object: {why}"))
}

/// An error of this store.
pub(super) fn generic(
    source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> StoreError {
    StoreError::Generic { store: STORE, source: source.into() }
}

/// The store's error for a failed operation on an existing object. A directory is no object.
pub(super) fn failure(error: Error, location: &Path) -> StoreError {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
            StoreError::NotFound { path: location.to_string(), source: error.into() }
        }
        _ => write_failure(error, location),
    }
}

/// The store's error for a failed operation that makes an object.
pub(super) fn write_failure(error: Error, location: &Path) -> StoreError {
    let path = location.to_string();
    if error.is_logon_refused() {
        return StoreError::Unauthenticated { path, source: error.into() };
    }
    match error.kind() {
        ErrorKind::NotFound => StoreError::NotFound { path, source: error.into() },
        ErrorKind::AlreadyExists => StoreError::AlreadyExists { path, source: error.into() },
        ErrorKind::PermissionDenied => StoreError::PermissionDenied { path, source: error.into() },
        ErrorKind::Unsupported => StoreError::NotSupported { source: error.into() },
        _ => generic(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_smb_cannot_have_are_mapped() {
        assert_eq!(mapped("a:b?").as_deref(), Some("a\u{F022}b\u{F025}"));
        assert_eq!(mapped("a. .").as_deref(), Some("a. \u{F029}"));
        assert_eq!(mapped("a b.c").as_deref(), Some("a b.c"));
        assert_eq!(mapped("a\u{F022}b"), None);
    }

    #[test]
    fn only_names_of_the_store_itself_are_internal() {
        let digits = "0123456789abcdef";
        assert!(is_internal(&format!("{LOCK}{digits}")));
        assert!(is_internal(&format!("{PART}{digits}{digits}")));
        assert!(!is_internal(&format!("{PART}{digits}")) && !is_internal("frevo-put~x"));
    }
}
