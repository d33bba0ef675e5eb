//! Reads configurations, and checks what their keys alone cannot tell.

use std::path::{Path, PathBuf};

use frevo_config::{
    Config, ConfinementChoice, DialectName, EncryptionChoice, EncryptionTypeName, NtAclsChoice,
    ShareSection, SigningChoice,
};

use crate::config_sources::Sources;
use crate::exit::Failure;
use crate::{keytab, state, trusted_file};
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;

/// Reads a configuration, with every fault told.
pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
    Sources::read(path)?.config()
}

/// A part of the configuration that this build of the program does not have.
pub(crate) fn unsupported(config: &Config) -> Option<String> {
    if config.server.rdma == Some(true) && !frevo_net::rdma::IS_BUILT {
        return Some(String::from(
            "rdma = true: this frevo was built without RDMA; build it with --features rdma, or \
             remove the key",
        ));
    }
    let has_traces = cfg!(feature = "traces");
    (config.traces.endpoint.is_some() && !has_traces).then(|| {
        String::from(
            "[traces] endpoint: this frevo was built without traces; build it with \
             --features traces, or remove the section",
        )
    })
}

/// Reasons for which RDMA cannot be used, or brings nothing.
fn rdma_warnings(config: &Config) -> Vec<String> {
    let server = &config.server;
    if server.rdma != Some(true) {
        return Vec::new();
    }
    let unavailable = frevo_net::rdma::is_here().err().map(|why| format!("rdma = true: {why}"));
    let is_protected = server.encryption.is_none_or(|choice| choice == EncryptionChoice::Required)
        || server.signing.is_none_or(|choice| choice == SigningChoice::Required);
    let slow = is_protected.then(|| {
        String::from(
            "rdma = true: data that is signed or encrypted is copied into messages; RDMA moves it \
             only with encryption = \"offered\" or \"off\" and signing = \"offered\"",
        )
    });
    unavailable.into_iter().chain(slow).collect()
}

/// Names in `allow` of a share that no account has.
pub(crate) fn unknown_users(config: &Config, known: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    for share in &config.shares {
        // Users of a domain have no account here.
        let is_account = |who: &&frevo_config::Who| who.group().is_none() && who.domain().is_none();
        for user in share.allow.iter().filter(is_account) {
            let name = share.name.get_ref();
            if user.as_str().parse::<Sid>().is_ok() {
                warnings.push(format!("share {name}: write the SID {user} as \"@{user}\""));
            } else if !config.ldap.is_on() && !known.contains(&fold_name(user.as_str())) {
                let near = frevo_config::nearest(user.as_str(), known.iter().map(|k| &**k));
                let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
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
    secrets.extend(config.ldap.password_file.clone().map(|file| ("the password of [ldap]", file)));
    if let Some(keytab) = keytab::path(config) {
        secrets.push(("the keytab", keytab.to_owned()));
    }
    if config.quic.is_on() {
        let [certificate, key] = quic_files(config);
        secrets.extend([("the certificate", certificate), ("the key for QUIC", key)]);
        let authorities = config.quic.client_ca.clone();
        secrets.extend(authorities.map(|file| ("the authorities of clients", file)));
    }
    for scan in config.shares.iter().filter_map(|share| share.scan.as_ref()) {
        let folder = scan.quarantine.clone();
        secrets.extend(folder.map(|folder| ("the quarantine", folder)));
    }
    let admin = &config.admin;
    let tokens = [&admin.token_file, &admin.manage_token_file, &admin.key];
    let named = ["the token file", "the managing token's file", "the key of [admin]"];
    let tokens = named.into_iter().zip(tokens);
    secrets.extend(tokens.filter_map(|(what, file)| Some((what, file.clone()?))));
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
    files.extend(config.passwords.common.clone());
    files.extend(keytab::path(config).map(Path::to_owned));
    files.extend(config.ldap.password_file.clone());
    files.extend(config.ldap.ca.clone());
    if config.quic.is_on() {
        files.extend(quic_files(config));
        files.extend(config.quic.client_ca.clone());
    }
    if has_state || config.server.users_file.is_some() {
        files.push(state::users_file_of(config));
    }
    let state_dir = has_state.then(|| state::dir_of(config));
    trusted_file::faults_of(state_dir.as_deref(), &files)
}

/// The files with the certificate for QUIC and its key; those of the state directory if none are named.
pub(crate) fn quic_files(config: &Config) -> [PathBuf; 2] {
    let own = |name: &str| state::dir_of(config).join(name);
    let section = &config.quic;
    let certificate = section.certificate.clone().unwrap_or_else(|| own("quic.crt"));
    [certificate, section.key.clone().unwrap_or_else(|| own("quic.key"))]
}

/// The path without links, as far as it exists.
pub(crate) fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors()
        .find_map(|there| {
            let rest = path.strip_prefix(there).ok()?;
            let there = there.canonicalize().ok()?;
            // Joining an empty rest would add a slash, which would make the path of a file look
            // like that of a folder.
            Some(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
        })
        .unwrap_or_else(|| path.clone())
}

/// The folder of a `users_file` outside of the state directory, if the server can be permitted to
/// replace the file there when a user changes the password: only root or the server's user can
/// change the folder, and it holds nothing else. Otherwise a sentence that says so.
pub(crate) fn folder_of_accounts(config: &Config) -> Option<Result<PathBuf, String>> {
    let path = config.server.users_file.as_ref()?;
    let (file, folder) = (real(path), real(path.parent()?));
    if file.starts_with(real(&state::dir_of(config))) {
        return None;
    }
    let name = file.file_name()?.to_os_string();
    // While accounts are written, the folder also contains a lock file and a replacement. Their
    // names begin with that of the account file, so the folder is still the file's own.
    let is_of_it = |other: std::fs::DirEntry| {
        other.file_name().as_encoded_bytes().starts_with(name.as_encoded_bytes())
    };
    let is_own = std::fs::read_dir(&folder).ok()?.flatten().all(is_of_it)
        && file.parent() == Some(&*folder)
        && trusted_file::directory(&folder, &file).is_none();
    Some(if is_own {
        Ok(folder)
    } else {
        Err(format!(
            "users cannot change their passwords (frevo passwd): the confined server may not replace \
             users_file {} in a folder that holds other files too; leave users_file out, or give it a \
             folder of its own, which only root can change",
            path.display()
        ))
    })
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
    warnings.extend(rdma_warnings(config));
    let types = config.kerberos.encryption_types.iter().flat_map(|types| types.get_ref());
    if types.into_iter().any(|name| *name == EncryptionTypeName::Rc4) {
        warnings.push(String::from(
            "encryption_types allows rc4-hmac: whoever can ask the KDC for a ticket can guess the \
             server's password with it; give the server's account AES keys, then remove rc4-hmac",
        ));
    }
    let cannot_keep = |share: &&ShareSection| {
        keeps_lists(share) && !frevo_posix::may_write_security_attributes(&share.shared_folder())
    };
    warnings.extend(config.shares.iter().filter(cannot_keep).map(|share| {
        format!(
            "share {}: access lists are kept in user.NTACL, because Frevo may not write \
             security.NTACL there (that takes CAP_SYS_ADMIN on the host, under systemd \
             frevo-access-lists.conf); lists in security.NTACL are obeyed, but clients cannot change \
             them, and Samba would not obey those in user.NTACL",
            share.name.get_ref()
        )
    }));
    let roots = server.share_roots.iter().filter_map(|root| trusted_file::directory_itself(root));
    warnings.extend(roots.map(|why| {
        format!(
            "share_roots: {why}; otherwise these users could put another folder in the place of one \
             that an administrator shares over the network"
        )
    }));
    let is_confined = server.confinement != Some(ConfinementChoice::Off);
    warnings.extend(folder_of_accounts(config).filter(|_| is_confined).and_then(Result::err));
    if config.quic.certificate.is_some() && config.quic.enabled.is_none() && !config.quic.is_on() {
        let text =
            "[quic] names a certificate and is off; write listen = [\":443\"], or enabled = false";
        warnings.push(text.to_owned());
    }
    warnings
}

/// True for a share whose clients may store access lists.
fn keeps_lists(share: &ShareSection) -> bool {
    let is_written = !share.read_only || !share.write_list.is_empty();
    is_written && !matches!(share.nt_acls, Some(NtAclsChoice::Posix | NtAclsChoice::Off))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start warns of names that no account has, and of a SID that was written as one.
    #[test]
    fn names_that_no_account_has() {
        let config = Config::parse(
            "[[share]]\nname = \"a\"\npath = \"/a\"\nallow = [\"ann\", \"an\", \"S-1-5-21-1-2-3-1108\", \
             \"@S-1-5-21-1-2-3-1109\", 'EXAMPLE\\eve', '@EXAMPLE\\staff']\n",
        );
        assert_eq!(
            unknown_users(&config.unwrap(), &[String::from("ann")]),
            [
                "share a allows an, but there is no account an; did you mean ann?",
                "share a: write the SID S-1-5-21-1-2-3-1108 as \"@S-1-5-21-1-2-3-1108\"",
            ]
        );
    }

    #[test]
    fn an_account_file_has_a_folder_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        assert_eq!(folder_of_accounts(&config), None);
        let at = |name: &str| place.path().join(name);
        config.server.state_dir = Some(at("state"));
        for folder in ["state", "own", "shared"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        for file in ["own/users", "own/users.lock", "shared/users", "shared/frevo.toml"] {
            std::fs::write(at(file), "").unwrap();
        }
        config.server.users_file = Some(at("state/users"));
        assert_eq!(folder_of_accounts(&config), None, "writable anyway");
        config.server.users_file = Some(at("own/users"));
        assert_eq!(folder_of_accounts(&config), Some(Ok(real(&at("own")))));
        assert!(warnings(&config).is_empty());
        config.server.users_file = Some(at("shared/users"));
        let why = folder_of_accounts(&config).unwrap().unwrap_err();
        assert!(why.contains("shared/users") && warnings(&config) == [why]);
    }

    #[test]
    fn a_certificate_without_quic_is_noticed() {
        let mut config = Config::default();
        config.quic.certificate = Some("/c".into());
        assert!(warnings(&config).iter().any(|text| text.contains("is off")));
        config.quic.enabled = Some(false);
        assert!(warnings(&config).is_empty());
    }
}
