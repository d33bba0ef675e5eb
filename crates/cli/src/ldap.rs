//! The directory of `[ldap]`: its configuration with its secrets, as values that another process can get.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use frevo_auth::Zeroizing;
use frevo_config::{Config, LdapSection, LdapUrl};
use frevo_ldap::client::{Bind, Options, Server, ServerPlace, TlsUse, connector};
use frevo_ldap::filter::Filter;
use frevo_ldap::person::{Names, Person};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::passwords;

/// The files in which systems keep the certificates of authorities.
const SYSTEM_FILES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Bytes that are read of such a file.
const CERTIFICATES_BYTES: u64 = 4 << 20;

/// A directory with the secrets of its section.
#[derive(Debug)]
pub(crate) struct LdapSetup {
    servers: Vec<LdapUrl>,
    starts_tls: bool,
    bind_dn: Option<String>,
    password: Zeroizing<String>,
    /// The certificates of authorities in PEM. None where no server uses TLS.
    authorities: Option<String>,
    user_base: String,
    user_filter: String,
    group_base: String,
    group_filter: String,
    names: Names,
    timeout_seconds: u64,
}

impl LdapSetup {
    /// Reads the files of the section. None without one.
    pub(crate) fn read(config: &Config) -> Result<Option<Self>, Failure> {
        let section = &config.ldap;
        if !section.is_on() {
            return Ok(None);
        }
        let password = section.password_file.as_deref().map(passwords::from_file).transpose();
        let password = password.map_err(|failure| {
            Failure::new(failure.exit, format!("[ldap] password_file: {}", failure.message))
        })?;
        let authorities = section.uses_tls().then(|| authorities(section)).transpose()?;
        Ok(Some(Self {
            servers: section.urls.clone(),
            starts_tls: section.starts_tls(),
            bind_dn: section.bind_dn.clone(),
            password: password.unwrap_or_default(),
            authorities,
            user_base: section.user_base().to_owned(),
            user_filter: section.user_filter(),
            group_base: section.group_base().to_owned(),
            group_filter: section.group_filter(),
            names: section.names(),
            timeout_seconds: section.timeout_seconds().into(),
        }))
    }

    /// The ports and the folders of sockets to which the servers take connections.
    pub(crate) fn places(&self) -> (Vec<u16>, Vec<PathBuf>) {
        let (mut ports, mut folders) = (Vec::new(), Vec::new());
        for server in &self.servers {
            match server {
                LdapUrl::Tcp { port, .. } => ports.push(*port),
                LdapUrl::Unix(path) => folders.extend(path.parent().map(Path::to_owned)),
            }
        }
        (ports, folders)
    }

    /// Makes the options of a client.
    ///
    /// # Errors
    /// The reason why the section cannot be used.
    pub(crate) fn options(&self) -> Result<Options, String> {
        let tls = self.authorities.as_ref().map(|pem| connector(pem.as_bytes())).transpose();
        let tls = tls.map_err(|error| format!("ca: {error}"))?;
        let filter = |text: &str| Filter::parse(text).map_err(|fault| fault.to_string());
        let server = |url: &LdapUrl| match url {
            LdapUrl::Unix(path) => {
                Server { place: ServerPlace::Unix(path.clone()), tls: TlsUse::None }
            }
            LdapUrl::Tcp { host, port, is_secure } => {
                let tls = match (is_secure, self.starts_tls) {
                    (true, _) => TlsUse::FromStart,
                    (false, true) => TlsUse::StartTls,
                    (false, false) => TlsUse::None,
                };
                Server { place: ServerPlace::Tcp { host: host.clone(), port: *port }, tls }
            }
        };
        let password = || Zeroizing::new(self.password.as_bytes().to_vec());
        Ok(Options {
            servers: self.servers.iter().map(server).collect(),
            tls,
            bind: self.bind_dn.clone().map(|dn| Bind { dn, password: password() }),
            user_base: self.user_base.clone(),
            user_filter: filter(&self.user_filter)?,
            group_base: self.group_base.clone(),
            group_filter: filter(&self.group_filter)?,
            names: self.names.clone(),
            timeout: Duration::from_secs(self.timeout_seconds),
        })
    }

    /// The line by which another process gets the set-up.
    pub(crate) fn line(&self) -> Zeroizing<String> {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let object = json!({
            "servers": servers, "starts_tls": self.starts_tls, "bind_dn": self.bind_dn,
            "password": &**self.password, "authorities": self.authorities,
            "user_base": self.user_base, "user_filter": self.user_filter,
            "group_base": self.group_base, "group_filter": self.group_filter,
            "user": self.names.user, "nt_hash": self.names.nt_hash, "group": self.names.group,
            "timeout_seconds": self.timeout_seconds,
        });
        Zeroizing::new(object.to_string())
    }

    /// Reads such a line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| object.get(key)?.as_str().map(String::from);
        let servers = object.get("servers")?.as_array()?.iter();
        let servers: Option<Vec<_>> = servers.map(|url| url.as_str()?.parse().ok()).collect();
        Some(Self {
            servers: servers?,
            starts_tls: object.get("starts_tls")?.as_bool()?,
            bind_dn: text("bind_dn"),
            password: Zeroizing::new(text("password")?),
            authorities: text("authorities"),
            user_base: text("user_base")?,
            user_filter: text("user_filter")?,
            group_base: text("group_base")?,
            group_filter: text("group_filter")?,
            names: Names { user: text("user")?, nt_hash: text("nt_hash")?, group: text("group")? },
            timeout_seconds: object.get("timeout_seconds")?.as_u64()?,
        })
    }
}

/// Reads the certificates of the authorities that are trusted: those of `ca`, or of the system.
fn authorities(section: &LdapSection) -> Result<String, Failure> {
    let usual = || SYSTEM_FILES.iter().map(PathBuf::from).find(|file| file.exists());
    let Some(file) = section.ca.clone().or_else(usual) else {
        let text = "[ldap]: this system has no certificates of authorities (package \
                    ca-certificates); name a file with those of the directory in `ca`";
        return Err(Failure::new(Exit::Config, text));
    };
    let shown = file.display();
    let mut pem = String::new();
    let read = std::fs::File::open(&file)
        .and_then(|file| file.take(CERTIFICATES_BYTES).read_to_string(&mut pem));
    read.map_err(Failure::failed(format!("[ldap] ca: cannot read {shown}")))?;
    connector(pem.as_bytes())
        .map_err(|error| Failure::new(Exit::Config, format!("[ldap] ca: {shown}: {error}")))?;
    Ok(pem)
}

/// The result of a look at a directory, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    /// The sentence.
    pub(crate) text: String,
    /// The weight of the sentence.
    pub(crate) kind: LookedKind,
}

/// The weight of a sentence about a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookedKind {
    /// Accounts of the directory log on.
    Fine,
    /// They cannot now: it may be another time.
    Warning,
    /// The server does not start.
    Fault,
}

/// Most accounts that a check reads.
const CHECKED: usize = 200;

/// Asks the directory of a configuration for some of its accounts. None without a directory.
pub(crate) fn look(config: &Config) -> Option<Looked> {
    let warning =
        |text: String| Looked { text: format!("[ldap]: {text}"), kind: LookedKind::Warning };
    let setup = match LdapSetup::read(config) {
        Ok(setup) => setup?,
        Err(failure) => {
            return Some(Looked { text: failure.message, kind: LookedKind::Fault });
        }
    };
    let listing =
        match ask_once(&setup, |mut directory| async move { directory.list(CHECKED).await }) {
            Ok(listing) => listing,
            Err(why) => return Some(warning(why)),
        };
    let attribute = config.ldap.names().nt_hash;
    let all = listing.people.len();
    let with_hash = listing.people.iter().filter(|person| person.nt_hash.is_some()).count();
    let more = if listing.is_cut { "at least " } else { "" };
    Some(match (all, with_hash) {
        (0, _) if listing.others > 0 => warning(format!(
            "{}: {} entries fit user_filter, but none is an account of a person that can be read",
            listing.server, listing.others
        )),
        (0, _) => warning(format!(
            "{}: no account is found below {} by {}; does bind_dn have the right to read it?",
            listing.server,
            config.ldap.user_base(),
            config.ldap.user_filter()
        )),
        (_, 0) => warning(format!(
            "{}: {more}{all} accounts are found, but {attribute} of none can be read; let bind_dn \
             read it, or have users log on by Kerberos",
            listing.server
        )),
        _ => Looked {
            text: format!(
                "accounts of {}: {more}{all}, {with_hash} of them with a password here",
                listing.server
            ),
            kind: LookedKind::Fine,
        },
    })
}

/// Asks a directory once, without a process of its own.
pub(crate) fn ask_once<T, F>(
    setup: &LdapSetup,
    ask: impl FnOnce(frevo_ldap::client::Directory) -> F,
) -> Result<T, String>
where
    F: Future<Output = Result<T, frevo_ldap::client::Fault>>,
{
    let options = setup.options()?;
    let servers: Vec<String> = options.servers.iter().map(ToString::to_string).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no event loop: {error}"))?;
    let answer = runtime.block_on(ask(frevo_ldap::client::Directory::new(options)));
    // A thread of the runtime may wait for DNS much longer than the answer may take.
    runtime.shutdown_background();
    answer.map_err(|fault| format!("{}: {fault}", servers.join(", ")))
}

/// The state of an account in a word or two.
pub(crate) fn state_of(person: &Person) -> &'static str {
    match person {
        person if person.rules.is_disabled => "disabled",
        person if person.nt_hash.is_none() => "no password",
        _ => "enabled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let text = "[ldap]\nurls = [\"ldapi:/run/l\", \"ldap://127.0.0.1:3890\"]\nstarttls = false\n\
                    base = \"dc=x\"\n";
        let config = Config::parse(text).unwrap();
        let setup = LdapSetup::read(&config).unwrap().unwrap();
        let bound = LdapSetup {
            bind_dn: Some("cn=a\nb".into()),
            password: Zeroizing::new("p\"\n".into()),
            ..setup
        };
        let line = bound.line();
        assert!(!line.contains('\n'));
        let read = LdapSetup::parse(&line).unwrap();
        assert_eq!(read.line(), line);
        assert_eq!(read.places(), (vec![3890], vec![PathBuf::from("/run")]));
        let options = read.options().unwrap();
        assert_eq!(*options.bind.unwrap().password, *b"p\"\n");
        assert_eq!(options.servers[1].tls, TlsUse::None);
        assert!(LdapSetup::parse("{}").is_none());
        assert!(LdapSetup::read(&Config::default()).unwrap().is_none());
    }

    #[test]
    fn a_directory_that_is_not_there_is_told() {
        let text = "[ldap]\nurls = [\"ldapi:/nowhere/ldapi\"]\nbase = \"dc=x\"\n";
        let looked = look(&Config::parse(text).unwrap()).unwrap();
        assert_eq!(looked.kind, LookedKind::Warning);
        assert!(looked.text.starts_with("[ldap]: ldapi:/nowhere/ldapi: it is not reached"));
        assert!(look(&Config::default()).is_none());
    }
}
