//! Account files on disk.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, KerberosKeys, NtHash};
use frevo_config::{Config, ServerName};
use frevo_crypto::{KERBEROS_ITERATIONS, kerberos_aes128, kerberos_aes256};

use crate::exit::{Exit, Failure};
use crate::secret_file;

/// The uid in entries of users that need not exist in Unix: Samba's "nobody
/// knows".
const NO_UID: u32 = u32::MAX;

/// Reads the account file at `path`; one that is not there is empty.
pub(crate) fn read(path: &Path) -> Result<AccountFile, Failure> {
    let Some(text) = secret_file::read(path)? else { return Ok(AccountFile::default()) };
    AccountFile::parse(&text).map_err(|fault| {
        Failure::new(Exit::Config, format!("{}:{}: {}", path.display(), fault.line, fault.what))
    })
}

/// An enabled account with this password.
pub(crate) fn entry(name: &str, password: &str, realm: &str) -> Entry {
    entry_of_run(name, password).with_kerberos(kerberos_keys(name, password, realm))
}

/// An enabled account of this run, whose password is kept elsewhere and is never derived from.
pub(crate) fn entry_of_run(name: &str, password: &str) -> Entry {
    Entry::new(name, NO_UID, NtHash::from_password(password), now())
}

/// The Kerberos keys of a password, which cannot be made later of its hash. The salt is the realm
/// and the name (RFC 4120 section 4, MS-KILE 3.1.1.2).
pub(crate) fn kerberos_keys(name: &str, password: &str, realm: &str) -> KerberosKeys {
    let salt = format!("{realm}{name}");
    KerberosKeys {
        iterations: KERBEROS_ITERATIONS.get(),
        aes256: *kerberos_aes256(password, salt.as_bytes(), KERBEROS_ITERATIONS),
        aes128: *kerberos_aes128(password, salt.as_bytes(), KERBEROS_ITERATIONS),
        salt,
    }
}

/// The realm of the accounts: the server's name, which the host has where the configuration has
/// none, in capital letters.
pub(crate) fn realm(config: Option<&Config>) -> String {
    let configured = config.and_then(|config| config.server.name.as_ref());
    configured.map_or_else(host_name, ServerName::clone).as_str().to_uppercase()
}

/// The server's name where the configuration has none.
pub(crate) fn host_name() -> ServerName {
    ServerName::of_host(&rustix::system::uname().nodename().to_string_lossy())
}

/// An account without a password here: it is given elsewhere. It keeps the account's SID.
pub(crate) fn entry_without_password(name: &str) -> Entry {
    let mut entry = entry_of_run(name, "");
    entry.nt_hash = None;
    entry.flags = String::from("NU");
    entry
}

/// Seconds from 1970, as account files count them.
pub(crate) fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
