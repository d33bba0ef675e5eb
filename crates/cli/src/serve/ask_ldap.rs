//! The process that asks the directory of `[ldap]` for the server: `frevo ask-ldap`.
//!
//! The first line of standard input is the set-up, with the password of the bind. Each further line is a
//! question, and a line of standard output its answer. The process alone has the password, and it alone reads
//! bytes of the directory.

use std::io::{self, BufRead, Write as _};

use frevo_auth::{AccountRules, LogonHours, NtHash, Zeroizing};
use frevo_ldap::client::{Directory, Fault};
use frevo_ldap::person::Person;
use frevo_server::account_directory::DirectoryAccount;
use serde_json::{Value, json};

use super::confine::helpers;
use crate::exit::{Done, Failure};
use crate::ldap::LdapSetup;

/// Longest line, bytes: a set-up with the certificates of a system.
const LINE_BYTES: u64 = 16 << 20;

/// A question about the account of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) id: u64,
    pub(super) user: String,
}

impl Question {
    pub(super) fn object(&self) -> Value {
        json!({ "id": self.id, "user": self.user })
    }

    fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let user = object.get("user")?.as_str()?.to_owned();
        Some(Self { id: object.get("id")?.as_u64()?, user })
    }
}

/// The word of the directory on a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Account(Box<DirectoryAccount>),
    /// No account.
    Nobody,
    /// An entry that is no account that may log on, for this reason.
    Unusable(String),
    /// The reason why there is no answer.
    Silent(String),
}

impl Verdict {
    fn of(answer: Result<Option<Person>, Fault>) -> Self {
        match answer {
            Ok(Some(person)) => Self::Account(Box::new(account(person))),
            Ok(None) => Self::Nobody,
            Err(fault @ (Fault::Ambiguous | Fault::Groups | Fault::Person(_))) => {
                Self::Unusable(fault.to_string())
            }
            Err(fault) => Self::Silent(fault.to_string()),
        }
    }
}

/// The answer to the question with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) verdict: Verdict,
}

impl Answer {
    /// The line of the answer. It may hold the hash of a password.
    pub(super) fn line(&self) -> Zeroizing<String> {
        let id = self.id;
        let line = |object: Value| Zeroizing::new(object.to_string());
        let account = match &self.verdict {
            Verdict::Silent(why) => return line(json!({ "id": id, "silent": why })),
            Verdict::Unusable(why) => return line(json!({ "id": id, "unusable": why })),
            Verdict::Nobody => return line(json!({ "id": id, "none": true })),
            Verdict::Account(account) => account,
        };
        let rules = &account.rules;
        let hash = account.nt_hash.as_ref().map(NtHash::to_hex);
        let object = json!({
            "id": id,
            "name": account.name,
            "nt_hash": hash.as_ref().map(|hash| hash.as_str()),
            "sid": account.sid.map(|sid| sid.to_string()),
            "groups": account.groups,
            "is_disabled": rules.is_disabled,
            "expires": rules.expires,
            "must_change": rules.must_change,
            "password_ends": rules.password_ends,
            "hours": rules.hours.as_ref().map(LogonHours::to_hex),
            "workstations": rules.workstations,
        });
        line(object)
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let id = object.get("id")?.as_u64()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        if let Some(why) = text("silent") {
            return Some(Self { id, verdict: Verdict::Silent(why.to_owned()) });
        }
        if let Some(why) = text("unusable") {
            return Some(Self { id, verdict: Verdict::Unusable(why.to_owned()) });
        }
        if object.get("none").is_some() {
            return Some(Self { id, verdict: Verdict::Nobody });
        }
        let truth = |key: &str| object.get(key)?.as_bool();
        let number = |key: &str| object.get(key).and_then(Value::as_u64);
        let list = |key: &str| -> Option<Vec<String>> {
            let list = object.get(key)?.as_array()?.iter();
            list.map(|one| one.as_str().map(String::from)).collect()
        };
        // A rule or a hash that cannot be read makes the answer none.
        let hours = text("hours").map(|hours| LogonHours::from_hex(hours, false));
        let nt_hash = text("nt_hash").map(NtHash::from_hex);
        let account = DirectoryAccount {
            name: text("name")?.to_owned(),
            nt_hash: if let Some(hash) = nt_hash { Some(hash?) } else { None },
            sid: text("sid").and_then(|sid| sid.parse().ok()),
            groups: list("groups")?,
            rules: AccountRules {
                is_disabled: truth("is_disabled")?,
                expires: number("expires"),
                must_change: truth("must_change")?,
                password_ends: number("password_ends"),
                hours: if let Some(hours) = hours { Some(hours?) } else { None },
                workstations: list("workstations")?,
            },
        };
        Some(Self { id, verdict: Verdict::Account(Box::new(account)) })
    }
}

/// An account as the server knows it.
fn account(person: Person) -> DirectoryAccount {
    let Person { name, nt_hash, sid, groups, rules, .. } = person;
    DirectoryAccount { name, nt_hash, sid, groups, rules }
}

/// Answers questions until the server has ended.
pub(crate) fn run() -> Done {
    // The name of the thread only helps in process lists, so an error is ignored.
    let _ = rustix::thread::set_name(c"frevo-ldap");
    let mut stdin = io::stdin().lock();
    let Some(setup) = line(&mut stdin).and_then(|line| LdapSetup::parse(&line)) else {
        return Ok(());
    };
    let (ports, folders) = setup.places();
    helpers::confine_ldap(&ports, &folders);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    let mut directory = setup.options().map(Directory::new);
    drop(setup);
    while let Some(line) = line(&mut stdin) {
        let Some(question) = Question::parse(&line) else { return Ok(()) };
        let verdict = match &mut directory {
            Ok(directory) => Verdict::of(runtime.block_on(directory.look_up(&question.user))),
            Err(why) => Verdict::Silent(why.clone()),
        };
        let mut line = Answer { id: question.id, verdict }.line();
        line.push('\n');
        let mut stdout = io::stdout().lock();
        if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn line(input: &mut impl BufRead) -> Option<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    let length = io::Read::take(input, LINE_BYTES).read_line(&mut line).ok()?;
    (length > 0).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let question = Question { id: 7, user: "a\nb\"".into() };
        let text = question.object().to_string();
        assert!(!text.contains('\n'));
        assert_eq!(Question::parse(&text), Some(question));
        let rules = AccountRules {
            is_disabled: true,
            expires: Some(5),
            must_change: true,
            password_ends: Some(6),
            hours: LogonHours::from_hex(&"0F".repeat(21), false),
            workstations: vec!["DESK".into()],
        };
        let full = DirectoryAccount {
            name: "Ann\n".into(),
            nt_hash: Some(NtHash::from_password("x")),
            sid: "S-1-5-21-1-2-3-1108".parse().ok(),
            groups: vec!["Sales, West".into()],
            rules,
        };
        let bare = DirectoryAccount {
            name: "ann".into(),
            nt_hash: None,
            sid: None,
            groups: Vec::new(),
            rules: AccountRules::default(),
        };
        for verdict in [
            Verdict::Account(Box::new(full)),
            Verdict::Account(Box::new(bare)),
            Verdict::Nobody,
            Verdict::Unusable("two\nof them".into()),
            Verdict::Silent("it is\naway".into()),
        ] {
            let answer = Answer { id: 3, verdict };
            let line = answer.line();
            assert!(!line.contains('\n'));
            assert_eq!(Answer::parse(&line), Some(answer));
        }
        for bad in ["", "{}", "{\"id\":1}", "{\"id\":1,\"name\":\"a\"}"] {
            assert_eq!(Answer::parse(bad), None, "{bad}");
        }
    }
}
