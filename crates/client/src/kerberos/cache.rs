//! The credentials cache of the user: FILE, DIR and KCM, as `kinit` makes them.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use frevo_auth::kerberos::{CredentialsCache, ccache};
use frevo_auth::limits::MAX_CCACHE_LEN;

use super::error::{KerberosError, Reason};
use super::krb5_conf::Krb5Conf;
use super::{files, kcm};

/// The place of a credentials cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CacheName {
    /// A file.
    File(PathBuf),
    /// A directory of caches, whose file `primary` names the one in use.
    Dir(PathBuf),
    /// A cache that a daemon keeps: its socket, and the name, empty for the one in use.
    Kcm(PathBuf, String),
}

impl CacheName {
    /// Returns the cache of `KRB5CCNAME`, of krb5.conf, or `/tmp/krb5cc_UID`.
    pub(super) fn find(conf: &Krb5Conf) -> Result<Self, KerberosError> {
        let named = std::env::var("KRB5CCNAME").ok().filter(|name| !name.is_empty());
        match named.as_ref().or(conf.default_ccache_name.as_ref()) {
            Some(name) => Self::parse(name, conf),
            None => Self::parse("FILE:/tmp/krb5cc_%{uid}", conf),
        }
    }

    fn parse(name: &str, conf: &Krb5Conf) -> Result<Self, KerberosError> {
        let name = expanded(name);
        let (kind, path) = match name.split_once(':') {
            Some((kind, path)) if !kind.contains('/') => (kind, path),
            _ => ("FILE", &*name),
        };
        // The path is made absolute, because a mount in the background changes its working
        // directory.
        let whole = |path: &str| std::path::absolute(path).unwrap_or_else(|_| path.into());
        match (kind, path.strip_prefix(':')) {
            ("FILE", _) => Ok(Self::File(whole(path))),
            ("DIR", Some(file)) => Ok(Self::File(whole(file))),
            ("DIR", None) => Ok(Self::Dir(whole(path))),
            ("KCM", _) => {
                let socket = conf.kcm_socket.as_deref().unwrap_or(kcm::SOCKET);
                Ok(Self::Kcm(socket.into(), path.into()))
            }
            _ => Err(Reason::NoTicket(format!(
                "ticket caches of type {} are not supported; set KRB5CCNAME=FILE:/tmp/krb5cc_{} and \
                 run kinit",
                kind.escape_debug(),
                uid()
            ))
            .into()),
        }
    }

    /// Reads the cache. A daemon may be slow, so a thread that may wait asks it.
    pub(super) async fn read_beside(&self) -> Result<CredentialsCache, KerberosError> {
        if !matches!(self, Self::Kcm(..)) {
            return self.read();
        }
        let cache = self.clone();
        let read = tokio::task::spawn_blocking(move || cache.read());
        read.await.unwrap_or_else(|ended| Err(Reason::Setting(ended.to_string()).into()))
    }

    /// Reads the cache.
    pub(super) fn read(&self) -> Result<CredentialsCache, KerberosError> {
        let path = match self {
            Self::Kcm(socket, name) => return parse(&kcm::read(socket, name)?, &socket.display()),
            Self::File(path) => path.clone(),
            Self::Dir(dir) => {
                let primary = read(&dir.join("primary"))?;
                let primary = String::from_utf8_lossy(&primary);
                let name = ccache::primary(&primary).ok_or_else(|| {
                    let file = dir.join("primary");
                    Reason::Setting(format!("{} names no ticket cache; run kinit", file.display()))
                })?;
                dir.join(name)
            }
        };
        parse(&read(&path)?, &path.display())
    }
}

fn parse(bytes: &[u8], shown: &dyn fmt::Display) -> Result<CredentialsCache, KerberosError> {
    CredentialsCache::parse(bytes).map_err(|fault| {
        Reason::Setting(format!("the ticket cache {shown} is damaged ({fault}); run kinit")).into()
    })
}

fn read(path: &Path) -> Result<Vec<u8>, KerberosError> {
    files::read(path, MAX_CCACHE_LEN).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            ErrorKind::NotFound => {
                Reason::NoTicket(format!("there is no Kerberos ticket ({shown}); run kinit"))
            }
            _ => Reason::Setting(format!("cannot read the ticket cache {shown}: {error}")),
        }
        .into()
    })
}

/// Replaces the parameters of krb5.conf(5) that have a value here.
fn expanded(name: &str) -> String {
    let uid = uid().to_string();
    let username = std::env::var("USER").unwrap_or_default();
    name.replace("%{uid}", &uid)
        .replace("%{euid}", &uid)
        .replace("%{USERID}", &uid)
        .replace("%{username}", &username)
        .replace("%{TEMP}", "/tmp")
        .replace("%{null}", "")
}

/// Returns the effective user of this process.
pub(super) fn uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_caches() {
        let uid = uid();
        let conf = Krb5Conf::default();
        for (name, cache) in [
            ("KCM:".to_owned(), CacheName::Kcm(kcm::SOCKET.into(), String::new())),
            ("KCM:1000:7".into(), CacheName::Kcm(kcm::SOCKET.into(), "1000:7".into())),
            ("FILE:/tmp/x".into(), CacheName::File("/tmp/x".into())),
            ("/tmp/x".into(), CacheName::File("/tmp/x".into())),
            ("/tmp/a:b".into(), CacheName::File("/tmp/a:b".into())),
            ("DIR:/run/x".into(), CacheName::Dir("/run/x".into())),
            ("DIR::/run/x/tkt".into(), CacheName::File("/run/x/tkt".into())),
            (
                "FILE:/tmp/krb5cc_%{uid}".into(),
                CacheName::File(format!("/tmp/krb5cc_{uid}").into()),
            ),
        ] {
            assert_eq!(CacheName::parse(&name, &conf).unwrap(), cache, "{name}");
        }
        for name in ["KEYRING:persistent:0", "MEMORY:x", "API:x"] {
            let text = CacheName::parse(name, &conf).unwrap_err().to_string();
            assert!(text.contains("are not supported; set KRB5CCNAME=FILE:"), "{text}");
        }
    }

    #[test]
    fn a_directory_has_a_primary_cache() {
        let dir = tempfile::tempdir().unwrap();
        let cache = CacheName::Dir(dir.path().into());
        assert!(cache.read().unwrap_err().to_string().contains("run kinit"));
        std::fs::write(dir.path().join("primary"), "../x\n").unwrap();
        assert!(cache.read().unwrap_err().to_string().contains("names no ticket cache"));
        std::fs::write(dir.path().join("primary"), "tktx\n").unwrap();
        assert!(cache.read().unwrap_err().to_string().contains("there is no Kerberos ticket"));
        std::fs::write(dir.path().join("tktx"), "x").unwrap();
        assert!(cache.read().unwrap_err().to_string().contains("damaged"));
    }
}
