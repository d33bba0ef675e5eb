//! The places that `[audit]` names.

use std::io;
use std::path::Path;

use frevo_config::AuditSection;
use frevo_server::audit::{File, Journal, Sink, Syslog};

/// Tells what would keep the file from being written, and makes nothing.
///
/// # Errors
/// The fault, for people.
pub(crate) fn check(section: &AuditSection) -> Result<(), String> {
    let Some(path) = &section.file else { return Ok(()) };
    let path = path.get_ref();
    File::check(path).map_err(|error| cannot_append(path, &error))
}

/// The places that lines are written to.
///
/// # Errors
/// When the file cannot be opened, for people.
pub(crate) fn sinks(section: &AuditSection) -> Result<Vec<Box<dyn Sink>>, String> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(path) = &section.file {
        let path = path.get_ref();
        let file = File::open(path).map_err(|error| cannot_append(path, &error))?;
        sinks.push(Box::new(file));
    }
    if section.journald {
        sinks.push(Box::new(Journal::default()));
    }
    if section.syslog {
        sinks.push(Box::new(Syslog::default()));
    }
    Ok(sinks)
}

fn cannot_append(path: &Path, error: &io::Error) -> String {
    format!("audit: cannot append to {}: {error}; name another file or mend it", path.display())
}
