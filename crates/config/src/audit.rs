//! `[audit]`: the places that the audit log is written to.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::fault::Fault;

/// `[audit]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSection {
    /// A file that lines are appended to.
    pub file: Option<Spanned<PathBuf>>,
    /// Lines go to the journal.
    pub journald: bool,
    /// Lines go to syslog.
    pub syslog: bool,
}

impl AuditSection {
    /// The fault of a path that is not absolute.
    pub(super) fn faults(&self, text: &str) -> Option<Fault> {
        let file = self.file.as_ref().filter(|file| file.get_ref().is_relative())?;
        let shown = file.get_ref().display();
        let what = format!("the path {shown} of the audit log is not absolute");
        Some(Fault::at(text, &file.span(), what).hint("begin the path with /"))
    }

    /// True when an audit log is kept.
    pub const fn is_kept(&self) -> bool {
        self.file.is_some() || self.journald || self.syslog
    }
}
