//! Changes of the account file.

use std::path::{Path, PathBuf};

use frevo_admin::{Changed, Listed, NotManaged, NotRead, Reason, UserChange};
use frevo_auth::{AccountFile, Zeroizing};
use frevo_config::AccountName;

use super::{Files, commands, failed, outdated, unwritable};
use crate::account_changes::{change, set_password};
use crate::exit::{Done, Exit, Failure};
use crate::{accounts, passwords, secret_file, state, user};

/// The account file, before and after a change.
#[derive(Default)]
struct Texts {
    before: Zeroizing<String>,
    after: Zeroizing<String>,
}

impl Files {
    /// The account file, and the realm of its Kerberos keys.
    fn users(&self) -> Result<(PathBuf, String), NotManaged> {
        if !self.has_state {
            let why = "this server keeps no accounts: it was started without a configuration";
            return Err(NotManaged::new(Reason::ReadOnly, why));
        }
        let (_, config) = self.read()?;
        Ok((state::users_file_of(&config), accounts::realm(Some(&config))))
    }

    pub(super) fn list_users(&self) -> Result<Listed, NotManaged> {
        let (path, _) = self.users()?;
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
        let (path, realm) = self.users()?;
        let name: AccountName = wanted
            .name()
            .parse()
            .map_err(|why: String| NotManaged::new(Reason::Malformed, why).about("name"))?;
        if let UserChange::Add { password, .. } | UserChange::Password { password, .. } = wanted {
            passwords::check_new(password.text()).map_err(|why| {
                let why = format!("the password {}", why.trim_start_matches("it "));
                NotManaged::new(Reason::Malformed, why).about("password")
            })?;
        }
        if let Some(why) = unwritable(&path) {
            let command = commands::of_user(wanted, &self.place());
            return Err(NotManaged::new(Reason::ReadOnly, why).instead(command));
        }
        let mut texts = Texts::default();
        let mut refusal = None;
        let made = change(&path, false, |file| {
            texts.before = file.to_text();
            let done = if self.revision(&texts.before) == revision {
                apply(file, &name, wanted, &realm)
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

/// Makes a change in the accounts.
fn apply(
    file: &mut AccountFile,
    name: &AccountName,
    wanted: &UserChange,
    realm: &str,
) -> Result<(), NotManaged> {
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
            let added = file.add(accounts::entry(text, password.text(), realm));
            added.map_err(|why| malformed(format!("{name} cannot be added: {why}"), "name"))?;
            set_groups(file, groups)
        }
        _ if !is_there => {
            Err(NotManaged::new(Reason::Absent, format!("there is no user {name}")).about("name"))
        }
        UserChange::Password { password, .. } => {
            set_password(file, text, password.text(), realm);
            Ok(())
        }
        UserChange::Groups { groups, .. } => set_groups(file, groups),
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
            apply(&mut file, &name, &wanted, "BOX")
                .map_err(|not| (not.reason, not.field.unwrap_or_default()))
        };
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let add = json(r#"{"act":"add","name":"ann","password":"secret","groups":["staff"]}"#);
        assert_eq!(made(add.clone()), Ok(()));
        assert_eq!(made(add), Err((Reason::Refused, String::from("name"))));
        assert_eq!(made(json(r#"{"act":"disable","name":"Ann"}"#)), Ok(()));
        assert_eq!(made(json(r#"{"act":"password","name":"ANN","password":"new"}"#)), Ok(()));
        let groups = json(r#"{"act":"groups","name":"ann","groups":["a,b"]}"#);
        assert_eq!(made(groups), Err((Reason::Malformed, String::from("groups"))));
        assert_eq!(
            made(json(r#"{"act":"remove","name":"eve"}"#)),
            Err((Reason::Absent, String::from("name")))
        );
        let entry = file.find("ann").unwrap();
        assert!(!entry.is_enabled() && entry.groups == ["staff"]);
        assert_eq!(entry.kerberos, Some(accounts::kerberos_keys("ann", "new", "BOX")));
    }
}
