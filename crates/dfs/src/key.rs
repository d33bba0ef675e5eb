//! Keys of paths: folded components with a NUL between them, which no component contains. A folder's key
//! is before the keys of all that is in it, and these are before the key of its next neighbour.

use alloc::string::String;

use frevo_wire::fscc::fold_name;

/// Between the components of a key.
pub(crate) const SEPARATOR: char = '\0';
/// Sorts behind every key below a folder.
pub(crate) const BEHIND: char = '\u{1}';

/// Returns the key of a path of these components.
pub(crate) fn key<'a>(components: impl Iterator<Item = &'a str>) -> String {
    let mut key = String::new();
    for component in components {
        extend(&mut key, component);
    }
    key
}

/// Adds a component to a key.
pub(crate) fn extend(key: &mut String, component: &str) {
    if !key.is_empty() {
        key.push(SEPARATOR);
    }
    key.push_str(&fold_name(component));
}

/// True if `key` is of something in the folder of the key `folder`.
pub(crate) fn is_below(key: &str, folder: &str) -> bool {
    folder.is_empty() || key.strip_prefix(folder).is_some_and(|rest| rest.starts_with(SEPARATOR))
}

/// Returns the components of a path, without empty ones.
pub(crate) fn components(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('\\').filter(|component| !component.is_empty())
}
