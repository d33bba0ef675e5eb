//! Credentials: a user and a secret. Nothing here prints a secret, and none is taken from
//! a command line, where every user of the machine could read it.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::kerberos::{Kerberos, KerberosError, Reason};

/// A user name and a domain, with a password or its NT hash, with Kerberos tickets, or with both.
///
/// The secret is wiped from memory when the last copy is dropped, and never printed.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    domain: String,
    /// For a logon by NTLM.
    secret: Option<frevo_auth::Secret>,
    kerberos: Option<Kerberos>,
}

/// The NT hash of a password: MD4 over its UTF-16LE form (MS-NLMP 3.3.1).
///
/// It is as secret as the password: whoever has it can log on.
#[derive(Clone)]
pub struct NtHash(frevo_auth::NtHash);

impl NtHash {
    /// Returns the hash with these 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(frevo_auth::NtHash::from_bytes(bytes))
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(..)")
    }
}

/// The error of text that is not an NT hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseNtHashError;

impl fmt::Display for ParseNtHashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an NT hash has 32 digits from 0 to 9 and a to f")
    }
}

impl std::error::Error for ParseNtHashError {}

impl FromStr for NtHash {
    type Err = ParseNtHashError;

    /// Reads 32 hexadecimal digits.
    fn from_str(digits: &str) -> Result<Self, ParseNtHashError> {
        frevo_auth::NtHash::from_hex(digits).map(Self).ok_or(ParseNtHashError)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("domain", &self.domain)
            .field("kerberos", &self.kerberos.is_some())
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Returns the credentials of a user with a password. `DOMAIN\user` and `DOMAIN;user`
    /// name a domain; `user@domain` (a user principal name) stays whole.
    pub fn new(user: &str, password: impl Into<String>) -> Self {
        Self::with(user, frevo_auth::Secret::Password(Zeroizing::new(password.into())))
    }

    /// Returns the credentials of a user with the NT hash of the password. `user` is read
    /// as by [`Self::new`].
    pub fn with_nt_hash(user: &str, hash: NtHash) -> Self {
        Self::with(user, frevo_auth::Secret::NtHash(hash.0))
    }

    fn with(user: &str, secret: frevo_auth::Secret) -> Self {
        let (domain, user) = split(user);
        Self { user: user.into(), domain: domain.into(), secret: Some(secret), kerberos: None }
    }

    /// Returns the credentials of a user who logs on by Kerberos and never by NTLM.
    pub fn kerberos(kerberos: Kerberos) -> Self {
        let (user, domain) = (kerberos.user().into(), kerberos.realm().into());
        Self { user, domain, secret: None, kerberos: Some(kerberos) }
    }

    /// Returns the same credentials, with a logon by Kerberos where there is a ticket for the server
    /// and the server accepts it. Else NTLM is used, and a warning is logged: whoever keeps KDCs from
    /// answering can bring that about.
    #[must_use]
    pub fn prefer_kerberos(self, kerberos: Kerberos) -> Self {
        Self { kerberos: Some(kerberos), ..self }
    }

    /// Returns the same credentials in `domain`.
    #[must_use]
    pub fn in_domain(self, domain: impl Into<String>) -> Self {
        Self { domain: domain.into(), ..self }
    }

    /// Returns the user's name, without the domain.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the domain; empty if none was named.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the user who gets Kerberos tickets with the password of these credentials. The domain
    /// is the realm if it is the DNS name of one.
    ///
    /// # Errors
    /// Fails if there is no password, or no realm is known.
    pub fn to_kerberos(&self) -> Result<Kerberos, KerberosError> {
        let Some(frevo_auth::Secret::Password(password)) = &self.secret else {
            let text = "Kerberos needs the password itself, not its NT hash; or run kinit";
            return Err(Reason::Setting(text.into()).into());
        };
        let user = match &*self.domain {
            "" => self.user.clone(),
            domain => format!("{domain}\\{}", self.user),
        };
        Kerberos::with_password(&user, password.as_str())
    }

    /// Returns the source of tickets.
    pub(crate) const fn tickets(&self) -> Option<&Kerberos> {
        self.kerberos.as_ref()
    }

    /// The form that a logon by NTLM takes; `None` if there is no secret for it.
    #[doc(hidden)]
    pub fn to_auth(&self) -> Option<frevo_auth::Credentials> {
        Some(frevo_auth::Credentials {
            user: self.user.clone(),
            domain: self.domain.clone(),
            secret: self.secret.clone()?,
        })
    }

    /// Reads a credentials file of mount.cifs: lines `username=`, `password=` and
    /// `domain=`; other lines are ignored.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has no `username=`, or may be read by other users.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let path = path.as_ref();
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            let text = format!(
                "{} can be read by other users; run chmod 600 on it, since it holds a password",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        Self::parse(&text).ok_or_else(|| {
            let text = format!("{} has no line username=NAME; add one", path.display());
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
        let mut found = Self::new(user, value(&["password", "pass"]).unwrap_or_default());
        if let Some(domain) = value(&["domain", "dom", "workgroup"]) {
            found.domain = domain.trim().into();
        }
        Some(found)
    }
}

/// Domain and user of `DOMAIN\user`. A user principal name, with `@`, stays whole.
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
        let Some(frevo_auth::Secret::Password(password)) = found.secret else {
            panic!("a password")
        };
        assert_eq!(&**password, "a=b c");
        assert!(Credentials::parse("password=x").is_none());
        assert!(!format!("{:?}", Credentials::new("a", "geheim")).contains("geheim"));
    }

    #[test]
    fn domains_are_split_off() {
        let found = Credentials::new("CORP\\ann", "x");
        assert_eq!((&*found.user, &*found.domain), ("ann", "CORP"));
        let found = Credentials::new("ann@corp.example", "x");
        assert_eq!((&*found.user, &*found.domain), ("ann@corp.example", ""));
    }
}
