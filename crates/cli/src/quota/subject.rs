//! Users and groups by their names or numbers.

use frevo_posix::quota::host::Subject;
use frevo_posix::{group_id, group_name, user, user_name};

use crate::exit::{Exit, Failure};

/// Returns the number of a user or a group that is named, or given by a number.
///
/// # Errors
/// Fails if the host has none, or cannot tell.
pub(super) fn number(subject: Subject, name: &str) -> Result<u32, Failure> {
    let (kind, found) = match subject {
        Subject::User => ("user", user(name).map(|user| user.map(|user| user.uid))),
        Subject::Group => ("group", group_id(name)),
        Subject::Project => ("project", Ok(None)),
    };
    let cannot_tell = || Failure::failed(format!("the host cannot tell of the {kind} {name}"));
    match (found.map_err(cannot_tell())?, name.parse()) {
        (Some(number), _) | (None, Ok(number)) => Ok(number),
        (None, Err(_)) => {
            let text = format!("the host has no {kind} {name}; getent lists those that it has");
            Err(Failure::new(Exit::NotFound, text))
        }
    }
}

/// Returns the name of a number, or the number itself if the host has no name for it.
pub(super) fn name(subject: Subject, number: u32) -> String {
    let found = match subject {
        Subject::User => user_name(number),
        Subject::Group => group_name(number),
        Subject::Project => Ok(None),
    };
    found.ok().flatten().unwrap_or_else(|| number.to_string())
}
