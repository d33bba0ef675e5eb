//! Reads configurations, and checks what their keys alone cannot tell.

use std::path::{Path, PathBuf};

use frevo_server::config::{
    Config, DialectName, EncryptionChoice, NtAclsChoice, ShareSection, SigningChoice,
};

use crate::config_sources::Sources;
use crate::exit::Failure;
use crate::{state, trusted_file};

/// Reads a configuration, with every fault told.
pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
    Sources::read(path)?.config()
}

/// Names in `allow` of a share that no account has.
pub(crate) fn unknown_users(config: &Config, known: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    for share in &config.shares {
        for user in share.allow.iter().filter(|who| who.group().is_none()) {
            if !known.contains(&user.as_str().to_lowercase()) {
                let near = frevo_server::config::nearest(user.as_str(), known.iter().map(|k| &**k));
                let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                let name = share.name.get_ref();
                warnings.push(format!(
                    "share {name} allows {user}, but there is no account {user}{hint}"
                ));
            }
        }
    }
    warnings
}

/// Secrets that clients could read or replace, because they are in a shared
/// folder. The state directory counts only where one is kept.
pub(crate) fn secrets_in_shares(config: &Config, has_state: bool) -> Vec<String> {
    let mut secrets = Vec::new();
    if has_state {
        secrets.push(("the state directory", state::dir_of(config)));
    }
    if has_state || config.server.users_file.is_some() {
        secrets.push(("the account file", state::users_file_of(config)));
    }
    for user in &config.users {
        secrets.push(("the password file", user.password_file.clone()));
    }
    if let Some(file) = &config.audit.file {
        secrets.push(("the audit log", file.get_ref().clone()));
    }
    let mut faults = Vec::new();
    for share in &config.shares {
        let folder = real(&share.shared_folder());
        let within = |path: &PathBuf| real(path).starts_with(&folder);
        if let Some((what, path)) = secrets.iter().find(|(_, path)| within(path)) {
            faults.push(format!(
                "share {}: {what} {} is inside the shared folder, where clients could read and \
                 replace it; move it to another place",
                share.name.get_ref(),
                path.display()
            ));
        }
    }
    faults
}

/// The state directory and files beside the configuration that other users could
/// change or replace.
pub(crate) fn changeable_by_others(config: &Config, has_state: bool) -> Vec<String> {
    let mut files: Vec<_> = config.users.iter().map(|user| user.password_file.clone()).collect();
    files.extend(config.server.user_map_file.clone());
    if has_state || config.server.users_file.is_some() {
        files.push(state::users_file_of(config));
    }
    let state_dir = has_state.then(|| state::dir_of(config));
    trusted_file::faults_of(state_dir.as_deref(), &files)
}

/// The path without links, as far as it exists.
pub(crate) fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors()
        .find_map(|there| {
            let rest = path.strip_prefix(there).ok()?;
            let there = there.canonicalize().ok()?;
            // Joined to nothing, a path would end in a slash, as if it were a folder.
            Some(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
        })
        .unwrap_or_else(|| path.clone())
}

/// Settings that are weaker than necessary.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let server = &config.server;
    let mut warnings = Vec::new();
    if matches!(server.min_dialect, Some(DialectName::Smb202 | DialectName::Smb21)) {
        warnings.push(String::from(
            "min_dialect is below 3.0: clients with SMB 2 cannot encrypt, and someone on the \
             network could manipulate their negotiation",
        ));
    }
    if server.encryption == Some(EncryptionChoice::Off) {
        warnings
            .push(String::from("encryption = \"off\": anyone on the network can read the files"));
    }
    if server.signing == Some(SigningChoice::Offered) {
        warnings.push(String::from("signing = \"offered\": someone on the network could change unsigned messages unnoticed"));
    }
    let cannot_keep = |share: &&ShareSection| {
        keeps_lists(share) && !frevo_posix::may_write_security_attributes(&share.shared_folder())
    };
    warnings.extend(config.shares.iter().filter(cannot_keep).map(|share| {
        format!(
            "share {}: access lists are kept in user.NTACL, because Frevo may not write \
             security.NTACL there (that takes CAP_SYS_ADMIN on the host); lists in security.NTACL \
             are obeyed, but clients cannot change them",
            share.name.get_ref()
        )
    }));
    warnings
}

/// True for a share whose clients may store access lists.
fn keeps_lists(share: &ShareSection) -> bool {
    let is_written = !share.read_only || !share.write_list.is_empty();
    is_written && !matches!(share.nt_acls, Some(NtAclsChoice::Posix | NtAclsChoice::Off))
}
