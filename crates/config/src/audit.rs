//! `[audit]`: the places that the audit log is written to.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::fault::Fault;
use crate::audit;

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

    /// Tells what would keep the file from being written, and makes nothing.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn check(&self) -> Result<(), String> {
        let Some(path) = &self.file else { return Ok(()) };
        let path = path.get_ref();
        audit::File::check(path).map_err(|error| cannot_append(path, &error))
    }

    /// The places that lines are written to.
    ///
    /// # Errors
    /// When the file cannot be opened, for people.
    pub fn sinks(&self) -> Result<Vec<Box<dyn audit::Sink>>, String> {
        let mut sinks: Vec<Box<dyn audit::Sink>> = Vec::new();
        if let Some(path) = &self.file {
            let path = path.get_ref();
            let file = audit::File::open(path).map_err(|error| cannot_append(path, &error))?;
            sinks.push(Box::new(file));
        }
        if self.journald {
            sinks.push(Box::new(audit::Journal::default()));
        }
        if self.syslog {
            sinks.push(Box::new(audit::Syslog::default()));
        }
        Ok(sinks)
    }
}

fn cannot_append(path: &Path, error: &io::Error) -> String {
    format!("audit: cannot append to {}: {error}; name another file or mend it", path.display())
}
