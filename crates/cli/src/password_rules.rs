//! The rules for new passwords: `[passwords]` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use frevo_auth::NtHash;
use frevo_auth::smbpasswd::Entry;
use frevo_config::{Config, LongTime};
use frevo_wire::fscc::fold_name;

use crate::{passwords, trusted_file};

/// Common words that passwords are made of, one a line, in lower case.
const COMMON: &str = include_str!("common_passwords.txt");

/// Rows of keys and of signs along which common passwords run.
const RUNS: [&str; 7] = [
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "qwertyuiop",
    "qwertzuiop",
    "azertyuiop",
    "asdfghjkl",
    "zxcvbnm",
];

/// Most bytes of a file of common passwords.
const COMMON_BYTES_MAX: u64 = 64 << 20;

/// Letters of a name from which on a password may not hold it.
const NAME_LETTERS: usize = 3;

/// Digits below which a password of digits alone is common: a date, a number of a telephone.
const DIGITS: usize = 12;

/// The rules for new passwords; the default has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct PasswordRules {
    min_length: usize,
    max_age: Option<Duration>,
    history: usize,
    refuse_name: bool,
    refuse_common: bool,
    common: Option<PathBuf>,
}

impl PasswordRules {
    /// The rules of a configuration; none without one.
    pub(crate) fn of(config: Option<&Config>) -> Self {
        let Some(section) = config.map(|config| &config.passwords) else { return Self::default() };
        Self {
            min_length: section.min_length.unwrap_or(0),
            max_age: section.max_age.map(LongTime::duration),
            history: section.history.unwrap_or(0),
            refuse_name: section.refuse_name == Some(true),
            refuse_common: section.refuse_common == Some(true) || section.common.is_some(),
            common: section.common.clone(),
        }
    }

    /// The number of former passwords that are kept.
    pub(crate) const fn history(&self) -> usize {
        self.history
    }

    /// Returns the moment from which on the password of an account is too old, in seconds from 1970.
    pub(crate) fn end(&self, entry: &Entry) -> Option<u64> {
        let set = entry.last_change.filter(|time| *time != 0 && !entry.password_never_ends())?;
        Some(u64::from(set).saturating_add(self.max_age?.as_secs()))
    }

    /// Checks a new password of the account `name`; `entry` is the account, if it is there.
    ///
    /// # Errors
    /// The reason why it cannot be used, which begins with "it".
    pub(crate) fn check(
        &self,
        name: &str,
        password: &str,
        entry: Option<&Entry>,
    ) -> Result<(), String> {
        passwords::check_new(password)?;
        if password.chars().count() < self.min_length {
            return Err(format!("it is shorter than {} characters", self.min_length));
        }
        let folded = fold_name(name);
        let has_name = || fold_name(password).contains(&folded);
        if self.refuse_name && folded.chars().count() >= NAME_LETTERS && has_name() {
            return Err(String::from("it holds the name of the account"));
        }
        let had = || {
            let hash = NtHash::from_password(password);
            entry.is_some_and(|entry| entry.had_password(&hash, self.history))
        };
        if self.history > 0 && had() {
            return Err(String::from("it was used before"));
        }
        if self.refuse_common && (is_common(password) || self.is_listed(password)?) {
            return Err(String::from("it is a common one, which others guess first"));
        }
        Ok(())
    }

    /// True for a password that a line of the file has, in any case.
    fn is_listed(&self, password: &str) -> Result<bool, String> {
        let Some(path) = &self.common else { return Ok(false) };
        let text = trusted_file::read(path, COMMON_BYTES_MAX).map_err(|refusal| {
            let why = match refusal {
                trusted_file::Refusal::Unreadable(error) => error.to_string(),
                trusted_file::Refusal::OthersWrite(why) => why,
            };
            format!("it cannot be compared with {}: {why}", path.display())
        })?;
        let password = password.to_lowercase();
        Ok(text.lines().any(|line| line.trim_end_matches('\r').to_lowercase() == password))
    }
}

/// True for a password that is a common word, with digits and signs around it or in place of letters, a
/// run along a row of keys, a sign again and again, or a short number.
fn is_common(password: &str) -> bool {
    let lower = password.to_lowercase();
    let letters: Vec<char> = lower.chars().collect();
    let is_repeated = letters.windows(2).all(|pair| pair[0] == pair[1]);
    let is_number = letters.len() < DIGITS && letters.iter().all(char::is_ascii_digit);
    let backwards: String = letters.iter().rev().collect();
    let is_run = RUNS.iter().any(|run| run.contains(&lower) || run.contains(&backwards));
    is_repeated || is_number || is_run || is_word(&lower)
}

/// True for a common word, or a run along a row of keys, among digits and signs.
fn is_word(lower: &str) -> bool {
    let bare = lower.trim_matches(|sign: char| !sign.is_alphabetic());
    let plain: String = lower.chars().map(letter).collect();
    let plain = plain.trim_matches(|sign: char| !sign.is_alphabetic());
    // Digits at the end stand for themselves: `passw0rd1` is `password` and a digit.
    let inner =
        lower.trim_matches(|sign: char| sign.is_ascii_digit() || sign.is_ascii_punctuation());
    let inner: String = inner.chars().map(letter).collect();
    let is_listed = |word: &str| COMMON.lines().any(|line| line == word);
    let is_run = |word: &str| word.len() >= 4 && RUNS.iter().any(|run| run.contains(word));
    [bare, plain, inner.as_str()].into_iter().any(|word| is_listed(word) || is_run(word))
}

/// The letter that a digit or a sign stands for.
const fn letter(sign: char) -> char {
    match sign {
        '@' | '4' => 'a',
        '3' => 'e',
        '1' | '!' => 'i',
        '0' => 'o',
        '$' | '5' => 's',
        '7' => 't',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(keys: &str) -> PasswordRules {
        PasswordRules::of(Some(&Config::parse(&format!("[passwords]\n{keys}\n")).unwrap()))
    }

    #[test]
    fn common_passwords_are_found_in_disguise() {
        for common in [
            "password",
            "Password1",
            "P@ssw0rd!",
            "passw0rd2026",
            "Summer2026!",
            "12345678",
            "11111111",
            "aaaaaaaaaaaaaaaa",
            "qwertz",
            "qwerty123",
            "lkjhgfdsa",
            "01012000",
            "Welcome#1",
            "!dragon!",
            "$ecret",
            "asdf1234",
        ] {
            assert!(is_common(common), "{common}");
        }
        for rare in [
            "correct horse battery",
            "kitchen-lamp-42-river",
            "Xk7vqT2m",
            "dragonfly-attic",
            "passwordless way",
            "483920175563",
        ] {
            assert!(!is_common(rare), "{rare}");
        }
    }

    #[test]
    fn each_rule_refuses_with_its_reason() {
        let mut entry = Entry::new("ann", 7, NtHash::from_password("the one before"), 100);
        let refused = |rules: &PasswordRules, password: &str, entry: &Entry| {
            rules.check("ann", password, Some(entry)).err().unwrap_or_default()
        };
        let none = PasswordRules::of(None);
        assert_eq!(refused(&none, "x", &entry), "");
        assert_eq!(refused(&none, "", &entry), "it is empty");
        let long = rules("min_length = 5");
        assert_eq!(refused(&long, "äöüß", &entry), "it is shorter than 5 characters");
        assert_eq!(refused(&long, "äöüßx", &entry), "");
        let name = rules("refuse_name = true");
        assert_eq!(refused(&name, "my-ANN-likes", &entry), "it holds the name of the account");
        assert!(name.check("ab", "tabs in a lab", None).is_ok(), "too short a name to count");
        let before = rules("history = 1");
        assert_eq!(refused(&before, "the one before", &entry), "it was used before");
        entry.former = vec![entry.nt_hash.replace(NtHash::from_password("now")).unwrap()];
        assert_eq!(refused(&before, "the one before", &entry), "it was used before");
        assert_eq!(refused(&before, "another", &entry), "");
        let common = rules("refuse_common = true");
        assert!(refused(&common, "Password1", &entry).contains("common"));
    }

    #[test]
    fn a_file_has_more_common_passwords() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("common");
        std::fs::write(&path, "Zwetschgenkuchen\r\nfranzbrot\n").unwrap();
        let listed = rules(&format!("common = {path:?}"));
        for (password, is_right) in [
            ("zwetschgenkuchen", false),
            ("FRANZBROT", false),
            ("franzbrote", true),
            ("password", false),
        ] {
            assert_eq!(listed.check("ann", password, None).is_ok(), is_right, "{password}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(
            listed.check("ann", "franzbrote", None).unwrap_err().contains("cannot be compared")
        );
    }

    #[test]
    fn passwords_get_too_old() {
        let rules = rules("max_age = \"10 seconds\"");
        let mut entry = Entry::new("ann", 7, NtHash::from_password("x"), 100);
        assert_eq!(rules.end(&entry), Some(110));
        entry.flags = String::from("UX");
        assert_eq!(rules.end(&entry), None);
        // Nobody knows how old it is.
        let unknown = Entry::new("ann", 7, NtHash::from_password("x"), 0);
        assert_eq!(rules.end(&unknown), None);
        assert_eq!(
            PasswordRules::of(None).end(&Entry::new("a", 7, NtHash::from_password("x"), 1)),
            None
        );
    }
}
