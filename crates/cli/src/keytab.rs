//! The keytab of `[kerberos]`: the keys of this server.

use std::fmt;
use std::path::{Path, PathBuf};

use frevo_auth::Zeroizing;
use frevo_auth::kerberos::{Keytab, Policy, Principal, ServiceKey, ServiceKeys};
use frevo_config::Config;

use crate::exit::{Exit, Failure};
use crate::secret_file;

/// Names of services that a line shows.
const NAMES_SHOWN: usize = 4;

/// The keys of the server and the rules for tickets. Shown, they are the names of the services.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) keys: ServiceKeys,
    pub(crate) policy: Policy,
    /// The machine accounts, one for each realm.
    pub(crate) machines: Vec<Principal>,
}

/// Returns the path of the keytab that a configuration names.
pub(crate) fn path(config: &Config) -> Option<&Path> {
    config.kerberos.keytab.as_ref().map(|path: &toml::Spanned<PathBuf>| path.get_ref().as_path())
}

/// Reads the bytes of the keytab of a configuration. None without one.
pub(crate) fn bytes(config: &Config) -> Result<Option<Zeroizing<Vec<u8>>>, Failure> {
    let Some(path) = path(config) else { return Ok(None) };
    let bytes = secret_file::read_bytes(path)?.ok_or_else(|| {
        let shown = path.display();
        Failure::new(
            Exit::NotFound,
            format!("there is no keytab {shown}; the user guide tells how to make one (Kerberos)"),
        )
    })?;
    Ok(Some(bytes))
}

/// Reads the keytab of a configuration. None without one.
pub(crate) fn read(config: &Config) -> Result<Option<Keys>, Failure> {
    let (Some(path), Some(bytes)) = (path(config), bytes(config)?) else { return Ok(None) };
    let policy = config.kerberos.policy();
    let shown = path.display();
    let fault = |what: String| Failure::new(Exit::Config, format!("the keytab {shown} {what}"));
    let keytab = Keytab::parse(&bytes)
        .map_err(|malformed| fault(format!("is damaged: {malformed}; export it again")))?;
    let unusable = what_it_has(&keytab, &policy);
    // `ServiceKeys` keeps only one name for each key, so the names of machine accounts are
    // collected before it is made.
    let machines = machine_accounts(keytab.entries.iter().map(|entry| &entry.key.principal));
    let keys = ServiceKeys::new(keytab.into_keys());
    let keys = keys.ok_or_else(|| fault(String::from("has too many keys")))?;
    match unusable {
        Some(has) => Err(fault(has)),
        None => Ok(Some(Keys { keys, policy, machines })),
    }
}

/// Tells what is in a keytab without a key of an allowed encryption type. None for a keytab with
/// one.
fn what_it_has(keytab: &Keytab, policy: &Policy) -> Option<String> {
    let types = keytab.entries.iter().map(|entry| entry.key.key.etype());
    if types.clone().any(|etype| policy.etypes.contains(&etype)) {
        return None;
    }
    let mut names: Vec<String> = types.map(|etype| etype.to_string()).collect();
    names.extend(keytab.unknown_types.iter().map(|number| format!("type {number}")));
    names.sort_unstable();
    names.dedup();
    Some(match names.join(", ") {
        names if names.is_empty() => String::from("has no keys; export it again"),
        names => format!(
            "has no key of an encryption type that encryption_types allows, only {names}; let the \
             account of this server have AES keys, and export the keytab again"
        ),
    })
}

/// Returns the first machine account of each realm.
fn machine_accounts<'a>(principals: impl Iterator<Item = &'a Principal>) -> Vec<Principal> {
    let mut found: Vec<Principal> = Vec::new();
    for principal in principals {
        let is_machine = matches!(&*principal.components, [name] if name.ends_with('$'));
        if is_machine && !found.iter().any(|known| known.realm == principal.realm) {
            found.push(principal.clone());
        }
    }
    found
}

impl Keys {
    /// Returns a sentence about a server that is not called like its machine account. Clients that
    /// use NTLM, and accounts written `NAME\user`, need that name.
    pub(crate) fn other_name(&self, server: &str) -> Option<String> {
        let name =
            |account: &Principal| account.components.concat().trim_end_matches('$').to_owned();
        let names: Vec<String> = self.machines.iter().map(name).collect();
        if names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case(server)) {
            return None;
        }
        Some(format!(
            "the server is called {server}, and its machine account in the keytab {name}; write name = \
             {name:?} in [server]",
            name = names[0],
        ))
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<String> = Vec::new();
        for ServiceKey { principal, .. } in self.keys.iter() {
            let name = principal.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = names.len().saturating_sub(NAMES_SHOWN);
        names.truncate(NAMES_SHOWN);
        f.write_str(&names.join(", "))?;
        if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use frevo_auth::kerberos::{EncryptionType, Key};

    use super::*;

    /// The entries of a keytab for `cifs/NAME@A.TEST`, with a key of this encryption type each.
    fn keytab(entries: &[(&str, u16, usize)]) -> Vec<u8> {
        let mut file = vec![5, 2];
        for (host, etype, len) in entries {
            let mut record = vec![0, 2];
            for text in ["A.TEST", "cifs", host] {
                record.extend((text.len() as u16).to_be_bytes());
                record.extend(text.bytes());
            }
            record.extend([0, 0, 0, 3, 0, 0, 0, 0, 1]);
            record.extend(etype.to_be_bytes());
            record.extend((*len as u16).to_be_bytes());
            // Each principal gets a different key, made from its host's name.
            record.extend(host.bytes().cycle().take(*len));
            file.extend((record.len() as u32).to_be_bytes());
            file.extend(record);
        }
        file
    }

    fn of(path: &Path, keys: &str) -> Result<Option<Keys>, Failure> {
        let text = format!("[kerberos]\nkeytab = {:?}\n{keys}", path.display().to_string());
        read(&Config::parse(&text).unwrap())
    }

    #[test]
    fn the_services_of_a_keytab() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keytab");
        let write = |entries: &[(&str, u16, usize)]| {
            secret_file::replace(&path, "").unwrap();
            fs::write(&path, keytab(entries)).unwrap();
        };
        write(&[("box", 18, 32), ("box", 17, 16), ("box.a.test", 18, 32)]);
        let read = of(&path, "clock_skew = 60").unwrap().unwrap();
        assert_eq!(read.to_string(), "cifs/box@A.TEST, cifs/box.a.test@A.TEST");
        assert_eq!(read.policy.clock_skew, 60);
        write(&["a", "b", "c", "d", "e", "f"].map(|host| (host, 18, 32)));
        let many = of(&path, "").unwrap().unwrap().to_string();
        assert!(many.ends_with("cifs/d@A.TEST and 2 more"), "{many}");
        assert!(super::read(&Config::default()).unwrap().is_none());
    }

    #[test]
    fn the_server_is_called_like_its_machine_account() {
        let key = |principal: Principal| {
            let key = Key::new(EncryptionType::Aes256Sha1, &[1; 32]).unwrap();
            ServiceKey { principal, kvno: 1, key }
        };
        let of = |principals: Vec<Principal>| Keys {
            machines: machine_accounts(principals.iter()),
            keys: ServiceKeys::new(principals.into_iter().map(key).collect()).unwrap(),
            policy: Policy::default(),
        };
        let keys = of(vec![
            Principal::service("cifs", "nas.a.test", "A.TEST"),
            Principal::user("NAS$", "A.TEST"),
            Principal::user("NAS2$", "A.TEST"),
            Principal::user("STORE$", "B.TEST"),
        ]);
        let accounts: Vec<String> = keys.machines.iter().map(ToString::to_string).collect();
        assert_eq!(accounts, ["NAS$@A.TEST", "STORE$@B.TEST"]);
        assert_eq!((keys.other_name("nas"), keys.other_name("STORE")), (None, None));
        let warning = keys.other_name("BOX").unwrap();
        assert!(warning.contains("name = \"NAS\" in [server]"), "{warning}");
        assert_eq!(of(vec![Principal::service("cifs", "nas", "A.TEST")]).other_name("BOX"), None);
    }

    #[test]
    fn each_fault_of_a_keytab_tells_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keytab");
        let failure = |keys: &str| of(&path, keys).unwrap_err();
        assert_eq!(failure("").exit, Exit::NotFound);
        secret_file::replace(&path, "").unwrap();
        let whole = keytab(&[("box", 18, 32)]);
        for (bytes, what) in [
            (&whole[..whole.len() - 1], "is damaged: "),
            (b"[kerberos]", "is damaged: "),
            (&[5, 2], "has no keys"),
            (&keytab(&[("box", 23, 16), ("box", 3, 8)]), "only rc4-hmac, type 3; let"),
        ] {
            fs::write(&path, bytes).unwrap();
            let failure = failure("");
            assert!(failure.to_string().contains(what), "{failure}");
            assert_eq!(failure.exit, Exit::Config);
        }
        assert!(of(&path, "encryption_types = [\"rc4-hmac\"]").unwrap().is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let open = failure("");
        assert_eq!((open.exit, open.to_string().contains("chmod 600")), (Exit::Auth, true));
    }
}
