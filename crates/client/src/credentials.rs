//! Who logs on. Nothing here prints a secret, and none is taken from a command
//! line, where every user of the machine could read it.

use std::io;
use std::path::Path;

pub use frevo_auth::{NtHash, Secret};
use zeroize::Zeroizing;

/// A user with his secret.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// Its domain; may be empty.
    pub domain: String,
    /// Its secret.
    pub secret: Secret,
}

impl Credentials {
    /// A user with a password. `DOMAIN\user` and `user@domain` are split.
    pub fn password(user: &str, password: impl Into<String>) -> Self {
        Self::with(user, Secret::Password(Zeroizing::new(password.into())))
    }

    /// A user with the NT hash of the password.
    pub fn nt_hash(user: &str, hash: NtHash) -> Self {
        Self::with(user, Secret::NtHash(hash))
    }

    /// A user with either.
    pub fn with(user: &str, secret: Secret) -> Self {
        let (domain, user) = split(user);
        Self { user: user.into(), domain: domain.into(), secret }
    }

    /// Reads a file of the form that mount.cifs uses: lines `username=`,
    /// `password=`, `domain=`; others are ignored.
    ///
    /// # Errors
    /// When the file cannot be read, names no user, or others may read it.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            let text = format!(
                "{} can be read by others: chmod 600 it, since it holds a password",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        Self::parse(&text).ok_or_else(|| {
            let text = format!("{} has no line username=NAME", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |names: &[&str]| {
            text.lines().find_map(|line| {
                let (name, value) = line.trim_start().split_once('=')?;
                names.contains(&name.trim()).then_some(value.trim_end_matches('\r'))
            })
        };
        let user = value(&["username", "user"])?.trim();
        let mut found = Self::password(user, value(&["password", "pass"]).unwrap_or_default());
        if let Some(domain) = value(&["domain", "dom", "workgroup"]) {
            found.domain = domain.trim().into();
        }
        Some(found)
    }
}

/// Domain and user of `DOMAIN\user`. A name with `@` is the domain's business
/// (a user principal name) and stays whole.
fn split(user: &str) -> (&str, &str) {
    user.split_once(['\\', ';']).unwrap_or(("", user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_mount_cifs_are_read() {
        let found = Credentials::parse("username=ann\r\npassword=a=b c\r\ndomain=CORP\n").unwrap();
        assert_eq!((&*found.user, &*found.domain), ("ann", "CORP"));
        let Secret::Password(password) = found.secret else { panic!("a password") };
        assert_eq!(&**password, "a=b c");
        assert!(Credentials::parse("password=x").is_none());
        assert!(!format!("{:?}", Credentials::password("a", "geheim")).contains("geheim"));
    }

    #[test]
    fn domains_are_split_off() {
        let found = Credentials::password("CORP\\ann", "x");
        assert_eq!((&*found.user, &*found.domain), ("ann", "CORP"));
        let found = Credentials::password("ann@corp.example", "x");
        assert_eq!((&*found.user, &*found.domain), ("ann@corp.example", ""));
    }
}
