//! Conditions on a file.
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// A condition on a file, or a tree of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// All files.
    All,
    /// No file: a condition on something that the index does not know.
    Nothing,
    /// All of these are true.
    And(Vec<Self>),
    /// At least one of these is true.
    Or(Vec<Self>),
    /// This is not true.
    Not(Box<Self>),
    /// The last part of the path.
    Name(Text),
    /// Words in the file.
    Content(Text),
    /// The kind of file.
    Kind(Kind),
    /// The size in bytes.
    Size(Bounds<u64>),
    /// The time of the last change of the data, in seconds since 1970-01-01 00:00 UTC.
    Modified(Bounds<i64>),
    /// The time of creation, in the same unit.
    Created(Bounds<i64>),
}

/// A text that is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text, as it was typed.
    pub text: String,
    /// The part of the name, or of the content, that has to be the text.
    pub part: Match,
    /// Upper and lower case are the same.
    pub fold_case: bool,
    /// Letters with and without marks are the same: `a` finds `ä`.
    pub fold_marks: bool,
}

/// The part of a name or of a content that has to be a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The whole.
    Whole,
    /// Its beginning.
    Beginning,
    /// Its end.
    End,
    /// Any part.
    Within,
    /// The beginning of a word: after the beginning, a separator, or a change from lower to upper case.
    Word,
    /// The whole, where `*` in the text stands for any letters and `?` for one letter.
    Pattern,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A file with data.
    File,
}

/// Bounds of a value. Both are part of the range; `None` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The smallest value.
    pub from: Option<T>,
    /// The largest value.
    pub to: Option<T>,
}

impl<T: PartialOrd> Bounds<T> {
    /// Returns whether a value lies within the bounds.
    pub fn contain(&self, value: &T) -> bool {
        self.from.as_ref().is_none_or(|from| value >= from)
            && self.to.as_ref().is_none_or(|to| value <= to)
    }
}
