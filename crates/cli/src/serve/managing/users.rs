//! Changes of the account file.

use std::path::{Path, PathBuf};

use frevo_admin::{Changed, Listed, NotManaged, NotRead, Reason, UserChange};
use frevo_auth::smbpasswd::RulesChange;
use frevo_auth::{AccountFile, LogonHours, Zeroizing};
use frevo_config::AccountName;

use super::{Files, commands, failed, outdated, unwritable};
use crate::account_changes::{change, set_password};
use crate::exit::{Done, Exit, Failure};
use crate::password_rules::PasswordRules;
use crate::{account_rules, accounts, secret_file, state, user};

/// The account file, before and after a change.
#[derive(Default)]
struct Texts {
    before: Zeroizing<String>,
    after: Zeroizing<String>,
}

/// The account file, and what a change of it needs.
struct Users {
    path: PathBuf,
    /// The realm of the Kerberos keys.
    realm: String,
    /// The rules for new passwords.
    rules: PasswordRules,
}

impl Files {
    /// The account file, and what a change of it needs.
    fn users(&self) -> Result<Users, NotManaged> {
        if !self.has_state {
            let why = "this server keeps no accounts: it was started without a configuration";
            return Err(NotManaged::new(Reason::ReadOnly, why));
        }
        let (_, config) = self.read()?;
        Ok(Users {
            path: state::users_file_of(&config),
            realm: accounts::realm(Some(&config)),
            rules: PasswordRules::of(Some(&config)),
        })
    }

    pub(super) fn list_users(&self) -> Result<Listed, NotManaged> {
        let Users { path, .. } = self.users()?;
        let file = accounts::read(&path).map_err(failed)?;
        let rows = file.entries().map(|entry| user::facts(&file, entry)).collect();
        Ok(Listed {
            revision: self.revision(&file.to_text()),
            file: path.display().to_string(),
            read_only: unwritable(&path),
            rows,
        })
    }

    pub(super) fn change_account(
        &self,
        revision: &str,
        wanted: &UserChange,
    ) -> Result<Changed, NotManaged> {
        let users = self.users()?;
        let path = users.path.clone();
        let name: AccountName = wanted
            .name()
            .parse()
            .map_err(|why: String| NotManaged::new(Reason::Malformed, why).about("name"))?;
        if let Some(why) = unwritable(&path) {
            let command = commands::of_user(wanted, &self.place());
            return Err(NotManaged::new(Reason::ReadOnly, why).instead(command));
        }
        let mut texts = Texts::default();
        let mut refusal = None;
        let made = change(&path, false, |file| {
            texts.before = file.to_text();
            let done = if self.revision(&texts.before) == revision {
                apply(file, &name, wanted, &users)
            } else {
                Err(outdated())
            };
            texts.after = file.to_text();
            // The reason is more than a failure can tell.
            done.map_err(|not| {
                let text = not.why.clone();
                refusal = Some(not);
                Failure::new(Exit::Failed, text)
            })
        });
        if let Err(failure) = made {
            return Err(refusal.unwrap_or_else(|| failed(failure)));
        }
        match self.accounts.read_now(path.clone()) {
            Ok(reviewed) => {
                let sessions = u64::try_from(reviewed.sessions).unwrap_or(u64::MAX);
                Ok(Changed { sessions, ..Changed::default() })
            }
            Err(not) => {
                let why = match not {
                    NotRead::OtherFile => String::from("the server has other accounts now"),
                    NotRead::Failed(why) => why,
                };
                undo(&path, &texts).map_err(failed)?;
                Err(NotManaged::new(Reason::Refused, format!("the server refused it: {why}")))
            }
        }
    }
}

/// The refusal of a password for this reason, which begins with "it".
fn unusable(why: &str) -> NotManaged {
    let why = format!("the password {}", why.trim_start_matches("it "));
    NotManaged::new(Reason::Malformed, why).about("password")
}

/// Makes a change in the accounts.
fn apply(
    file: &mut AccountFile,
    name: &AccountName,
    wanted: &UserChange,
    users: &Users,
) -> Result<(), NotManaged> {
    let Users { realm, rules, .. } = users;
    let text = name.as_str();
    let is_there = file.find(text).is_some();
    let malformed = |why: String, field| NotManaged::new(Reason::Malformed, why).about(field);
    let set_groups = |file: &mut AccountFile, groups: &[String]| {
        let set = file.set_groups(text, groups).map(drop);
        set.map_err(|why| malformed(format!("the groups cannot be set: {why}"), "groups"))
    };
    match wanted {
        UserChange::Add { .. } if is_there => {
            let why = format!("there is a user {name} already");
            Err(NotManaged::new(Reason::Refused, why).about("name"))
        }
        UserChange::Add { password, groups, .. } => {
            rules.check(text, password.text(), None).map_err(|why| unusable(&why))?;
            let added = file.add(accounts::entry(text, password.text(), realm));
            added.map_err(|why| malformed(format!("{name} cannot be added: {why}"), "name"))?;
            set_groups(file, groups)
        }
        _ if !is_there => {
            Err(NotManaged::new(Reason::Absent, format!("there is no user {name}")).about("name"))
        }
        UserChange::Password { password, .. } => {
            set_password(file, text, password.text(), realm, rules).map_err(|why| unusable(&why))
        }
        UserChange::Groups { groups, .. } => set_groups(file, groups),
        UserChange::Rules { expires, must_change, hours, workstations, .. } => {
            let expires = account_rules::end(expires).map_err(|why| malformed(why, "expires"))?;
            let hours: LogonHours =
                hours.parse().map_err(|why| malformed(format!("the hours: {why}"), "hours"))?;
            let change = RulesChange {
                expires: Some(expires),
                must_change: Some(*must_change),
                hours: Some(Some(hours)),
                workstations: Some(workstations.clone()),
                password_never_ends: None,
            };
            let set = file.set_rules(text, &change).map(drop);
            set.map_err(|why| malformed(format!("the computers: {why}"), "workstations"))
        }
        UserChange::Enable { .. } | UserChange::Disable { .. } => {
            file.set_enabled(text, matches!(wanted, UserChange::Enable { .. }));
            Ok(())
        }
        UserChange::Remove { .. } => {
            file.remove(text);
            Ok(())
        }
    }
}

/// Takes a change back, unless somebody has changed the file since.
fn undo(path: &Path, texts: &Texts) -> Done {
    let _lock = secret_file::lock(path)?;
    if *accounts::read(path)?.to_text() == *texts.after {
        secret_file::replace(path, &texts.before)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_user_says_what_is_wrong_and_where() {
        let mut file = AccountFile::default();
        let mut made = |value: serde_json::Value| {
            let wanted: UserChange = serde_json::from_value(value).unwrap();
            let name = wanted.name().parse().unwrap();
            let rules = PasswordRules::default();
            let users = Users { path: PathBuf::new(), realm: String::from("BOX"), rules };
            apply(&mut file, &name, &wanted, &users)
                .map_err(|not| (not.reason, not.field.unwrap_or_default()))
        };
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let add = json(r#"{"act":"add","name":"ann","password":"secret","groups":["staff"]}"#);
        assert_eq!(made(add.clone()), Ok(()));
        assert_eq!(made(add), Err((Reason::Refused, String::from("name"))));
        let empty = json(r#"{"act":"password","name":"ann","password":""}"#);
        assert_eq!(made(empty), Err((Reason::Malformed, String::from("password"))));
        assert_eq!(made(json(r#"{"act":"disable","name":"Ann"}"#)), Ok(()));
        assert_eq!(made(json(r#"{"act":"password","name":"ANN","password":"new"}"#)), Ok(()));
        let groups = json(r#"{"act":"groups","name":"ann","groups":["a,b"]}"#);
        assert_eq!(made(groups), Err((Reason::Malformed, String::from("groups"))));
        let rules = |expires: &str, hours: &str, from: &str| {
            serde_json::json!({
                "act": "rules", "name": "ann", "expires": expires, "must_change": true,
                "hours": hours, "workstations": [from],
            })
        };
        assert_eq!(made(rules("never", "mon 07:00-19:00", "desk")), Ok(()));
        for (wrong, field) in [
            (rules("soon", "always", "desk"), "expires"),
            (rules("never", "7-19", "desk"), "hours"),
            (rules("never", "always", "a b"), "workstations"),
        ] {
            assert_eq!(made(wrong), Err((Reason::Malformed, String::from(field))));
        }
        assert_eq!(
            made(json(r#"{"act":"remove","name":"eve"}"#)),
            Err((Reason::Absent, String::from("name")))
        );
        let entry = file.find("ann").unwrap();
        assert!(!entry.is_enabled() && entry.groups == ["staff"]);
        assert!(entry.must_change && entry.workstations == ["desk"]);
        assert_eq!(entry.hours, Some("mon 07:00-19:00".parse().unwrap()));
        assert_eq!(entry.kerberos, Some(accounts::kerberos_keys("ann", "new", "BOX")));
    }
}
