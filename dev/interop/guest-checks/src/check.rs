//! The form of a check.

use std::path::Path;

/// The result of a check; the error is the text for the table.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A name without spaces, and the function that checks in a directory.
pub(crate) type Check = (&'static str, fn(&Path) -> Outcome);

/// Fails the check with a formatted reason unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($reason:tt)+) => {
        if !$holds {
            return Err(format!($($reason)+).into());
        }
    };
}
pub(crate) use ensure;
