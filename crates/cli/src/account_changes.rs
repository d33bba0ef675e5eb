//! Changes of account files, as commands and the page of the admin interface make them.

use std::path::Path;

use frevo_auth::limits::MAX_ACCOUNT_LINE_LEN;
use frevo_auth::{AccountFile, NtHash};

use crate::exit::{Done, Exit, Failure};
use crate::password_rules::PasswordRules;
use crate::{accounts, machine_sid, secret_file, state};

/// Reads the file, lets `edit` change it, and writes it back if it has changed; on a dry run nothing is
/// written. Returns true if it has changed.
pub(crate) fn change(
    path: &Path,
    is_dry: bool,
    edit: impl FnOnce(&mut AccountFile) -> Done,
) -> Result<bool, Failure> {
    if let Some(dir) = path.parent().filter(|_| !is_dry) {
        state::make_dir(dir)?;
    }
    let _lock = if is_dry { None } else { Some(secret_file::lock(path)?) };
    let mut file = accounts::read(path)?;
    let is_new = file.entries().next().is_none();
    let before = file.to_text();
    edit(&mut file)?;
    let after = file.to_text();
    check_lines(&after)?;
    let is_changed = *after != *before;
    if !is_changed || is_dry {
        return Ok(is_changed);
    }
    if is_new && file.header().machine.is_none() {
        file.set_machine(machine_sid::random()?, false);
    }
    secret_file::replace(path, &file.to_text())?;
    Ok(true)
}

/// Refuses a text that could not be read again.
pub(crate) fn check_lines(text: &str) -> Done {
    let long = text.lines().find(|line| line.len() > MAX_ACCOUNT_LINE_LEN);
    let Some(name) = long.and_then(|line| line.split(':').next()) else { return Ok(()) };
    let text = format!("{name} has too many groups and rules for a line of the account file");
    Err(Failure::new(Exit::Usage, text))
}

/// Sets the password of an account that is there, which the rules have to allow, and keeps as many former
/// ones as they say. Its Kerberos keys depend on the spelling of the name, so the stored one is used.
///
/// # Errors
/// The reason why the password cannot be used, which begins with "it".
pub(crate) fn set_password(
    file: &mut AccountFile,
    name: &str,
    password: &str,
    realm: &str,
    rules: &PasswordRules,
) -> Result<(), String> {
    let entry = file.find(name);
    let stored = entry.map_or(name, |entry| &entry.name);
    rules.check(stored, password, entry)?;
    let keys = accounts::kerberos_keys(stored, password, realm);
    file.keep_former_password(name, rules.history());
    file.set_password(name, NtHash::from_password(password), Some(keys), accounts::now());
    Ok(())
}
