//! The things that a check of a cluster finds.

/// One thing that a check found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// True when the cluster would not work with it.
    pub(crate) is_fault: bool,
    pub(crate) text: String,
}

pub(super) fn fault(text: impl Into<String>) -> Judged {
    Judged { is_fault: true, text: text.into() }
}

pub(super) fn warning(text: impl Into<String>) -> Judged {
    Judged { is_fault: false, text: text.into() }
}
