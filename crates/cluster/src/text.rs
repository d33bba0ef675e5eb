//! Values as lines of text: a kind with a version, then fields.
//!
//! ```text
//! frevo-node 1
//! address=192.0.2.1:445
//! weight=10
//! ```
//!
//! `etcdctl get` shows them as they are. A value may come from a node that is broken or of another
//! version: it is checked like the bytes of a peer. Fields of unknown names are ignored, so that a later
//! version can add some; a value that older nodes must not read gets a larger version.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::limits::VALUE_BYTES;
use crate::names::{escape, unescape};

/// The version of all values that are written, and the largest that is read.
pub const VERSION: u32 = 1;

/// The reason why a value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAValue {
    /// It has more than [`VALUE_BYTES`] bytes.
    TooLong,
    /// It is no text of such lines.
    Malformed,
    /// It is of another kind.
    OtherKind,
    /// It is of this later version.
    Newer(u32),
    /// This field is missing.
    Missing(&'static str),
    /// This field stands more often than allowed.
    Repeated(&'static str),
    /// This field has a value that is not allowed.
    Wrong(&'static str),
}

impl fmt::Display for NotAValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the value is too long"),
            Self::Malformed => f.write_str("the value is not one of Frevo's"),
            Self::OtherKind => f.write_str("the value is of another kind"),
            Self::Newer(version) => {
                write!(f, "the value is of version {version}: a newer Frevo has written it")
            }
            Self::Missing(field) => write!(f, "the value has no {field}"),
            Self::Repeated(field) => write!(f, "the value has too many fields {field}"),
            Self::Wrong(field) => write!(f, "the value has a wrong {field}"),
        }
    }
}

impl core::error::Error for NotAValue {}

/// Writes a value.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(kind: &str) -> Self {
        Self { bytes: alloc::format!("frevo-{kind} {VERSION}\n").into_bytes() }
    }

    /// Adds a field whose value needs no escapes.
    pub(crate) fn plain(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        self.bytes.extend_from_slice(alloc::format!("{name}={value}\n").as_bytes());
        self
    }

    /// Adds a field with any text.
    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b'=');
        escape(value, &mut self.bytes);
        self.bytes.push(b'\n');
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A field of a value.
#[derive(Debug, Clone, Copy)]
struct Field<'a> {
    name: &'a str,
    value: &'a str,
}

/// The fields of a value.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    fields: Vec<Field<'a>>,
}

impl<'a> Fields<'a> {
    /// Reads the lines of a value of this kind.
    pub(crate) fn read(kind: &str, bytes: &'a [u8]) -> Result<Self, NotAValue> {
        if bytes.len() > VALUE_BYTES {
            return Err(NotAValue::TooLong);
        }
        let text = core::str::from_utf8(bytes).map_err(|_| NotAValue::Malformed)?;
        let text = text.strip_suffix('\n').ok_or(NotAValue::Malformed)?;
        let mut lines = text.split('\n');
        let head = lines.next().ok_or(NotAValue::Malformed)?;
        let head = head.strip_prefix("frevo-").ok_or(NotAValue::Malformed)?;
        let (found, version) = head.split_once(' ').ok_or(NotAValue::Malformed)?;
        if found != kind {
            return Err(NotAValue::OtherKind);
        }
        match version.parse() {
            Ok(0) | Err(_) => return Err(NotAValue::Malformed),
            Ok(version) if version > VERSION => return Err(NotAValue::Newer(version)),
            Ok(_) => {}
        }
        let field = |line: &'a str| {
            let (name, value) = line.split_once('=').ok_or(NotAValue::Malformed)?;
            Ok(Field { name, value })
        };
        Ok(Self { fields: lines.map(field).collect::<Result<_, _>>()? })
    }

    fn of(&self, name: &'static str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |field| field.name == name).map(|field| field.value)
    }

    /// The value of a field that may be absent.
    pub(crate) fn optional(&self, name: &'static str) -> Result<Option<&'a str>, NotAValue> {
        let mut values = self.of(name);
        let first = values.next();
        if values.next().is_some() { Err(NotAValue::Repeated(name)) } else { Ok(first) }
    }

    /// The text of a field that may be absent.
    pub(crate) fn optional_text(&self, name: &'static str) -> Result<Option<String>, NotAValue> {
        let value = self.optional(name)?;
        value.map(|text| unescape(text.as_bytes()).ok_or(NotAValue::Wrong(name))).transpose()
    }

    /// The text of a field.
    pub(crate) fn text(&self, name: &'static str) -> Result<String, NotAValue> {
        self.optional_text(name)?.ok_or(NotAValue::Missing(name))
    }

    /// The value of a field without escapes.
    pub(crate) fn parsed<T: FromStr>(&self, name: &'static str) -> Result<T, NotAValue> {
        let value = self.optional(name)?.ok_or(NotAValue::Missing(name))?;
        value.parse().map_err(|_| NotAValue::Wrong(name))
    }

    /// The value of a field that is `yes` or `no`.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, NotAValue> {
        match self.optional(name)? {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(_) => Err(NotAValue::Wrong(name)),
            None => Err(NotAValue::Missing(name)),
        }
    }

    /// All values of a field that may stand `limit` times.
    pub(crate) fn all(&self, name: &'static str, limit: usize) -> Result<Vec<&'a str>, NotAValue> {
        let values: Vec<_> = self.of(name).take(limit.saturating_add(1)).collect();
        if values.len() > limit { Err(NotAValue::Repeated(name)) } else { Ok(values) }
    }
}

/// The word of a flag.
pub(crate) const fn word(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}
