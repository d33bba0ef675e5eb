//! Keys of paths: folded components with a NUL between them, which no component contains. A folder's key
//! is before the keys of all that is in it, and these are before the key of its next neighbour.

use alloc::borrow::Cow;
use alloc::string::String;
use core::cmp::Ordering;

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

/// The key of a link's path, whose components follow single backslashes. It is made while it is compared, so
/// that a link keeps one text and not two. A path in ASCII takes no memory for it.
pub(crate) struct KeyOf<'a>(Cow<'a, str>);

impl<'a> KeyOf<'a> {
    pub(crate) fn new(path: &'a str) -> Self {
        Self(if path.is_ascii() { Cow::Borrowed(path) } else { Cow::Owned(fold_name(path)) })
    }

    fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.bytes().map(|byte| if byte == b'\\' { 0 } else { byte.to_ascii_lowercase() })
    }

    /// Compares it with a key. The order of keys is that of their bytes.
    pub(crate) fn cmp(&self, key: &str) -> Ordering {
        self.bytes().cmp(key.bytes())
    }

    /// Compares it with the key of another path.
    pub(crate) fn cmp_with(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }

    /// True if it is of something in the folder of the key `folder`.
    pub(crate) fn is_below(&self, folder: &str) -> bool {
        let mut bytes = self.bytes();
        folder.is_empty()
            || folder.bytes().all(|byte| bytes.next() == Some(byte)) && bytes.next() == Some(0)
    }
}

/// Returns the components of a path, without empty ones.
pub(crate) fn components(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('\\').filter(|component| !component.is_empty())
}
