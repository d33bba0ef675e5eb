//! Names by which clients call accounts that are called otherwise here.

use std::collections::BTreeMap;
use std::fmt;

use frevo_auth::{Account, Accounts, Membership, NotChanged, NtHash};

use crate::base::limits::{USER_MAP_BYTES, USER_MAP_NAMES};
use frevo_wire::fscc::fold_name;

/// Accounts by what clients call them, in lower case: `ann smith`,
/// `corp\asmith`, `ann@example.com`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserMap(BTreeMap<String, String>);

/// A line of a map that says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMapFault {
    /// Which, from 1; 0 for the whole.
    pub line: usize,
    /// The description of the fault.
    pub what: String,
}

impl fmt::Display for UserMapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for UserMapFault {}

impl UserMap {
    /// Reads a file as Samba's `username map` has it: on each line an account, `=`,
    /// and the names that stand for it, in quotation marks where they have blanks.
    /// `!` before a line and comments after `#` and `;` are as there.
    ///
    /// # Errors
    /// A line without `=`, and those that are about more than names: `*` and groups.
    pub fn parse(text: &str) -> Result<Self, UserMapFault> {
        let mut map = Self::default();
        if text.len() > USER_MAP_BYTES {
            let what = format!("the map is longer than {USER_MAP_BYTES} bytes");
            return Err(UserMapFault { line: 0, what });
        }
        for (index, line) in text.lines().enumerate() {
            let fault = |what: &str| UserMapFault { line: index + 1, what: what.to_owned() };
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let (account, names) = line
                .split_once('=')
                .ok_or_else(|| fault("it has no = between account and names"))?;
            let account = account.trim().trim_start_matches('!').trim();
            if account.is_empty() {
                return Err(fault("it names no account"));
            }
            for name in words(names).ok_or_else(|| fault("a quotation mark is not closed"))? {
                if name == "*" {
                    return Err(fault("* would let everybody in as one account; list the names"));
                }
                if name.starts_with(['@', '+', '&']) {
                    return Err(fault("groups cannot be mapped; list the names"));
                }
                map.add(&name, account).map_err(|what| fault(&what))?;
            }
        }
        Ok(map)
    }

    /// Has `name` stand for `account`. What was said first counts, as with Samba.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add(&mut self, name: &str, account: &str) -> Result<(), String> {
        if self.0.len() >= USER_MAP_NAMES {
            return Err(format!("there are more than {USER_MAP_NAMES} names"));
        }
        self.0.entry(fold_name(name)).or_insert_with(|| account.to_owned());
        Ok(())
    }

    /// Takes in what `other` says of further names.
    ///
    /// # Errors
    /// When there are too many.
    pub fn extend(&mut self, other: Self) -> Result<(), String> {
        other.0.into_iter().try_for_each(|(name, account)| self.add(&name, &account))
    }

    /// The account that a client's name stands for; the name itself without an entry.
    pub fn account<'a>(&'a self, user: &'a str, domain: &str) -> &'a str {
        let user_key = fold_name(user);
        let full = format!("{}\\{user_key}", fold_name(domain));
        self.0.get(&full).or_else(|| self.0.get(&user_key)).map_or(user, String::as_str)
    }
}

/// Words parted by blanks and commas; none when quotation marks do not match.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if !quoted && (c.is_whitespace() || c == ',') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    (!quoted).then_some(words)
}

/// Accounts by the names that a map gives them. Behind the logon there are only
/// the accounts' own.
#[derive(Debug, Clone)]
pub struct Mapped<A> {
    accounts: A,
    map: UserMap,
}

impl<A> Mapped<A> {
    /// `accounts`, also by the names in `map`.
    pub const fn new(accounts: A, map: UserMap) -> Self {
        Self { accounts, map }
    }
}

impl<A: Accounts> Accounts for Mapped<A> {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        self.accounts.account(self.map.account(user, domain), domain)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        self.accounts.membership(user)
    }

    fn memberships(&self, limit: usize) -> Vec<Membership> {
        self.accounts.memberships(limit)
    }

    fn password_hash(&self, name: &str) -> Option<NtHash> {
        self.accounts.password_hash(name)
    }

    fn asks_directory(&self, user: &str, domain: &str) -> Option<String> {
        self.accounts.asks_directory(self.map.account(user, domain), domain)
    }

    fn directory_of(&self, name: &str) -> Option<&'static str> {
        self.accounts.directory_of(name)
    }

    fn change_password(&self, user: &str, old: &NtHash, new: &str) -> Result<(), NotChanged> {
        self.accounts.change_password(user, old, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_as_samba_has_it() {
        let map = UserMap::parse(
            "# comment\n!ann = asmith \"Ann Smith\", CORP\\Ann\n; other\n\nbob=robert\nbob = asmith\n",
        )
        .unwrap();
        for (user, domain, account) in [
            ("ASmith", "", "ann"),
            ("ann smith", "ANY", "ann"),
            ("ann", "corp", "ann"),
            ("robert", "", "bob"),
            ("carl", "", "carl"),
            ("Bob", "corp", "Bob"),
        ] {
            assert_eq!(map.account(user, domain), account, "{domain}\\{user}");
        }
        for (bad, line) in [("x", 1), ("a = b\n= c", 2), ("a = \"b", 1), ("a = *", 1), ("a=@b", 1)]
        {
            assert_eq!(UserMap::parse(bad).unwrap_err().line, line, "{bad}");
        }
    }

    #[test]
    fn a_map_is_bounded() {
        let mut map = UserMap::default();
        for number in 0..USER_MAP_NAMES {
            map.add(&number.to_string(), "ann").unwrap();
        }
        assert!(map.add("one more", "ann").is_err());
        assert!(UserMap::parse(&"#".repeat(USER_MAP_BYTES)).is_ok());
        assert!(UserMap::parse(&"#".repeat(USER_MAP_BYTES + 1)).is_err());
    }
}
