//! The ends of Unix accounts, as PAM's pam_unix judges them by /etc/shadow.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bounded_input;
use crate::exit::Failure;
use crate::{accounts, import};

/// The file with the ends of accounts.
const SHADOW: &str = "/etc/shadow";
/// The largest file that is read, bytes.
const BYTES_MAX: u64 = 64 << 20;
const SECONDS_OF_A_DAY: i64 = 86_400;

/// Accounts of the host, by name.
#[derive(Debug)]
pub(crate) enum UnixAccounts {
    /// Their ends.
    Known(BTreeMap<String, Ends>),
    /// PAM may refuse any of them.
    Unknown,
}

/// The times of an account, in days from 1970. None for those that do not count.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The day of the last change of the password; 0 for one that must be changed now.
    changed: Option<i64>,
    /// Days that a password is valid.
    valid: Option<i64>,
    /// The day on which the account ends.
    account: Option<i64>,
}

impl UnixAccounts {
    /// The accounts that the Samba of this host asks PAM about; none where it asks for nothing.
    ///
    /// # Errors
    /// If the smb.conf or the ends of accounts cannot be read.
    pub(crate) fn of_samba() -> Result<Self, Failure> {
        if !import::obeys_pam()? {
            return Ok(Self::Known(BTreeMap::new()));
        }
        let path = Path::new(SHADOW);
        let text = bounded_input::text(bounded_input::read(path, BYTES_MAX)?, path)?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let account = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let days = |at: usize| fields.get(at)?.parse::<i64>().ok().filter(|days| *days >= 0);
            let name = fields.first().filter(|name| !name.is_empty())?;
            let ends = Ends { changed: days(2), valid: days(4), account: days(7) };
            Some(((*name).to_owned(), ends))
        };
        Self::Known(text.lines().filter_map(account).collect())
    }

    /// The reason why PAM refuses the account, or will.
    pub(crate) fn refusal(&self, name: &str) -> Option<String> {
        self.refusal_on(name, i64::from(accounts::now()) / SECONDS_OF_A_DAY)
    }

    fn refusal_on(&self, name: &str, today: i64) -> Option<String> {
        let ends = match self {
            Self::Known(accounts) => accounts.get(name)?,
            Self::Unknown => return Some(String::from("the end of its Unix account is not known")),
        };
        if let Some(day) = ends.account {
            return Some(format!("its Unix account ends on {}", shown(day)));
        }
        let changed = ends.changed?;
        if changed == 0 {
            return Some(String::from("its Unix password must be changed at the next logon"));
        }
        let last = changed.saturating_add(ends.valid?);
        (last < today).then(|| format!("its Unix password ended on {}", shown(last)))
    }
}

fn shown(day: i64) -> String {
    let second = day.saturating_mul(SECONDS_OF_A_DAY);
    let date = jiff::Timestamp::from_second(second).map(|time| time.strftime("%F").to_string());
    date.unwrap_or_else(|_| format!("day {day} from 1970"))
}

/// Turns a failure to read the ends of accounts into a line for the report.
pub(crate) fn told(failure: &Failure) -> String {
    format!(
        "{failure}: accounts whose Unix accounts have ended, which this host's Samba may refuse (obey \
         pam restrictions), are not found, so that all accounts are imported as disabled; mend that, \
         and run this as root, with --replace"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_end_as_pam_says() {
        let accounts = UnixAccounts::parse(
            "plain:!:20000:0:99999:7:::\nended:x:20000:0:99999:7::20400:\n\
             future:x:20000::99999:7::30000:\nmust:x:0:0:99999:7:::\nold:x:20000:0:90:7:::\n\
             fresh:x:20580:0:90:7:::\nnone:*:::::::\nshort:x\n",
        );
        let refusal = |name: &str| accounts.refusal_on(name, 20_600);
        for name in ["plain", "fresh", "none", "short", "unknown"] {
            assert_eq!(refusal(name), None, "{name}");
        }
        for (name, why) in [
            ("ended", "its Unix account ends on 2025-11-08"),
            ("future", "its Unix account ends on 2052-02-20"),
            ("must", "its Unix password must be changed at the next logon"),
            ("old", "its Unix password ended on 2025-01-02"),
        ] {
            assert_eq!(refusal(name).as_deref(), Some(why), "{name}");
        }
        assert!(UnixAccounts::Unknown.refusal("plain").is_some());
    }
}
