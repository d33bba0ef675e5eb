//! Changes of account files, as commands and the page of the admin interface make them.

use std::path::Path;

use frevo_auth::{AccountFile, NtHash};

use crate::exit::{Done, Failure};
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
    let is_changed = *file.to_text() != *before;
    if !is_changed || is_dry {
        return Ok(is_changed);
    }
    if is_new && file.header().machine.is_none() {
        file.set_machine(machine_sid::random()?, false);
    }
    secret_file::replace(path, &file.to_text())?;
    Ok(true)
}

/// Sets the password of an account that is there. Its Kerberos keys depend on the spelling of the name, so
/// the stored one is used.
pub(crate) fn set_password(file: &mut AccountFile, name: &str, password: &str, realm: &str) {
    let stored = file.find(name).map_or(name, |entry| &entry.name);
    let keys = accounts::kerberos_keys(stored, password, realm);
    file.set_password(name, NtHash::from_password(password), Some(keys), accounts::now());
}
