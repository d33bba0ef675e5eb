//! Account files on disk.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};

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
pub(crate) fn entry(name: &str, password: &str) -> Entry {
    Entry::new(name, NO_UID, NtHash::from_password(password), now())
}

/// Seconds from 1970, as account files count them.
pub(crate) fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
