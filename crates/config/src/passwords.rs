//! `[passwords]`: the rules for new passwords.

use std::path::PathBuf;

use frevo_auth::limits::MAX_FORMER_PASSWORD_COUNT;
use serde::Deserialize;

use super::fault::Fault;
use super::limits::PASSWORD_LENGTH_MAX;
use super::worm::LongTime;

/// `[passwords]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PasswordsSection {
    /// The fewest characters of a new password.
    pub min_length: Option<usize>,
    /// The time after which a password is too old.
    pub max_age: Option<LongTime>,
    /// The number of former passwords that may not be used again, the present one aside.
    pub history: Option<usize>,
    /// True to refuse passwords that hold the account's name.
    pub refuse_name: Option<bool>,
    /// True to refuse common passwords.
    pub refuse_common: Option<bool>,
    /// A file with more common passwords, one a line.
    pub common: Option<PathBuf>,
}

impl PasswordsSection {
    /// Values that cannot be used, and keys that contradict each other.
    pub(super) fn faults(&self) -> Option<Fault> {
        let fault = |what: String, hint: &str| Some(Fault::new(what).hint(hint));
        if self.min_length.is_some_and(|length| !(1..=PASSWORD_LENGTH_MAX).contains(&length)) {
            let what = format!("[passwords] min_length must be 1 to {PASSWORD_LENGTH_MAX}");
            return fault(what, "12 is a good length");
        }
        if self.history.is_some_and(|history| history > MAX_FORMER_PASSWORD_COUNT) {
            let what = format!("[passwords] history must be 0 to {MAX_FORMER_PASSWORD_COUNT}");
            return fault(what, "0 keeps no former password");
        }
        if self.refuse_common == Some(false) && self.common.is_some() {
            let what = String::from("[passwords] has refuse_common = false and common");
            return fault(what, "remove one of the two keys");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn rules_for_passwords_are_bounded() {
        for (keys, is_right) in [
            (
                "min_length = 12\nmax_age = \"90 days\"\nhistory = 24\ncommon = \"/etc/common\"",
                true,
            ),
            ("min_length = 128", true),
            ("min_length = 129", false),
            ("min_length = 0", false),
            ("history = 25", false),
            ("max_age = \"soon\"", false),
            ("refuse_common = false\ncommon = \"/etc/common\"", false),
        ] {
            let text = format!("[passwords]\n{keys}\n");
            assert_eq!(Config::parse(&text).is_ok(), is_right, "{keys}");
        }
    }
}
