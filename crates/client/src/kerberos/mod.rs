//! Kerberos tickets for servers: from the user's credentials cache, a keytab or a password.

mod cache;
mod dns;
mod error;
mod files;
mod kcm;
mod kdc;
mod krb5_conf;
mod source;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use frevo_auth::kerberos::{ClientSecret, Keytab, Principal, ServiceTicket};
use frevo_auth::limits::MAX_KEYTAB_LEN;
use frevo_wire::dtyp::FileTime;
use zeroize::Zeroizing;

use crate::ambient::{Ambient, Host};
use cache::CacheName;
pub use error::KerberosError;
pub(crate) use error::Reason;
pub use kdc::{KdcSource, Kdcs};
use krb5_conf::Krb5Conf;
use source::{Origin, Source};

/// The future of a ticket.
pub type Getting<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<ServiceTicket>, KerberosError>> + Send + 'a>>;

/// Gives tickets for servers: the sources of this module, or a test's.
pub trait Tickets: Send + Sync + fmt::Debug {
    /// Returns a ticket for the server `host` that ends later than `after`.
    fn ticket<'a>(
        &'a self,
        ambient: &'a dyn Ambient,
        host: &'a str,
        after: FileTime,
    ) -> Getting<'a>;
}

/// A user who logs on by Kerberos, and the source of the user's tickets.
///
/// Cloning is cheap: clones share the tickets that they got. They are wiped from memory with the
/// last clone. Nothing is written to the user's credentials cache.
///
/// ```no_run
/// use frevo_client::{Client, Credentials, Kerberos};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // After `kinit`.
/// let credentials = Credentials::kerberos(Kerberos::from_cache()?);
/// let session = Client::default().connect("files.example.com", credentials).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Kerberos {
    tickets: Arc<dyn Tickets>,
    user: Arc<str>,
    realm: Arc<str>,
}

impl Kerberos {
    /// Returns the user of the credentials cache that `KRB5CCNAME` names, or krb5.conf, or of
    /// `/tmp/krb5cc_UID`. Caches of the types FILE, DIR and KCM are supported. The cache is read
    /// again for each ticket, so that the tickets of a new `kinit` are used.
    ///
    /// # Errors
    /// Fails if there is no cache, or it cannot be read.
    pub fn from_cache() -> Result<Self, KerberosError> {
        let cache = CacheName::find(&Krb5Conf::load())?;
        let client = cache.read()?.client;
        Ok(Self::with(&client.clone(), Origin::Cache(cache, client)))
    }

    /// Returns a user whose keys are in a keytab: `user`, as in `ann` or `ann@EXAMPLE.COM`, or the
    /// first user in the file. The file is read again for each new ticket-granting ticket.
    ///
    /// # Errors
    /// Fails if the file cannot be read, other users can read it, or it has no key of the user.
    pub fn from_keytab(path: impl AsRef<Path>, user: Option<&str>) -> Result<Self, KerberosError> {
        let (client, origin) = in_keytab(path.as_ref(), user)?;
        Ok(Self::with(&client, origin))
    }

    /// Returns a user whose keys are in these bytes of a keytab, with the KDC of the user's realm
    /// where the caller has named one.
    ///
    /// # Errors
    /// Fails if the bytes are no keytab, or have no key of the user.
    #[doc(hidden)]
    pub fn from_keytab_bytes(
        bytes: &[u8],
        user: &str,
        kdc: Option<(String, u16)>,
    ) -> Result<Self, KerberosError> {
        let damaged = |fault| Reason::Setting(format!("the keytab is damaged ({fault})"));
        let keytab = Keytab::parse(bytes).map_err(damaged)?;
        let client = client_of(user, &Krb5Conf::load())?;
        let keys = keytab.keys_of(&client);
        if keys.is_empty() {
            let text = format!("the keytab has no key of {client}; klist -k lists its users");
            return Err(Reason::Setting(text).into());
        }
        let realm = client.realm.clone();
        let source = Source::new(Origin::Secret(client.clone(), ClientSecret::Keys(keys)));
        let source = match kdc {
            Some(kdc) => source.with_kdc(&realm, kdc),
            None => source,
        };
        Ok(Self::of(&client, Arc::new(source)))
    }

    /// Returns a user with a password: `user` as in `ann`, `ann@EXAMPLE.COM` or `example.com\ann`.
    /// Without a realm it is that of krb5.conf (`default_realm`).
    ///
    /// # Errors
    /// Fails if no realm is known, or the name is no user's.
    pub fn with_password(user: &str, password: impl Into<String>) -> Result<Self, KerberosError> {
        let client = client_of(user, &Krb5Conf::load())?;
        let secret = ClientSecret::Password(Zeroizing::new(password.into()));
        Ok(Self::with(&client.clone(), Origin::Secret(client, secret)))
    }

    fn with(client: &Principal, origin: Origin) -> Self {
        Self::of(client, Arc::new(Source::new(origin)))
    }

    /// Returns a user whose tickets come from `tickets`.
    #[doc(hidden)]
    pub fn of(client: &Principal, tickets: Arc<dyn Tickets>) -> Self {
        let user = client.components.join("/");
        Self { tickets, user: user.into(), realm: (&*client.realm).into() }
    }

    /// Returns the user's name without the realm.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the realm of the user.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// Returns true if the user's credentials cache has a ticket that is valid now.
    #[doc(hidden)]
    pub fn has_ticket(&self) -> bool {
        CacheName::find(&Krb5Conf::load()).and_then(|name| name.read()).is_ok_and(|cache| {
            cache.tickets.iter().any(|ticket| ticket.is_valid_for(0, Host.now()))
        })
    }

    /// Checks that the tickets are those of a named user.
    ///
    /// # Errors
    /// Fails if they are another user's.
    #[doc(hidden)]
    pub fn check_is_of(&self, named: Option<&str>) -> Result<(), KerberosError> {
        let Some(named) = named else { return Ok(()) };
        let (domain, name) = named.split_once(['\\', ';']).unwrap_or(("", named));
        let (name, realm) = name.split_once('@').unwrap_or((name, ""));
        let realm = if domain.contains('.') { domain } else { realm };
        let is_it = name.eq_ignore_ascii_case(&self.user)
            && (realm.is_empty() || realm.eq_ignore_ascii_case(&self.realm));
        if is_it {
            return Ok(());
        }
        Err(Reason::NoTicket(format!(
            "the ticket cache is that of {}@{}, not of {}; run kinit, or use --keytab",
            self.user,
            self.realm,
            named.escape_debug()
        ))
        .into())
    }

    /// Gets a ticket for the server `host`, and keeps it for the logon.
    ///
    /// # Errors
    /// Fails if there is no ticket, with the reason.
    pub async fn prepare(&self, host: &str) -> Result<(), KerberosError> {
        self.ticket(&Host, host, FileTime::ZERO).await.map(drop)
    }

    /// Returns a ticket for `host` that ends later than `after`.
    pub(crate) async fn ticket(
        &self,
        ambient: &dyn Ambient,
        host: &str,
        after: FileTime,
    ) -> Result<Arc<ServiceTicket>, KerberosError> {
        let host = service_host(host)?;
        self.tickets.ticket(ambient, &host, after).await
    }
}

/// Returns the host in a service principal name: names are used as they are given, and not replaced
/// by what DNS says.
fn service_host(host: &str) -> Result<String, KerberosError> {
    let host = host.trim_end_matches('.').to_lowercase();
    let address = host.split('%').next().unwrap_or_default();
    if host.is_empty() || address.parse::<IpAddr>().is_ok() {
        return Err(Reason::Address(format!(
            "Kerberos needs the server's name, and {host} is an address; write its full DNS name"
        ))
        .into());
    }
    Ok(host)
}

/// Reads the name of a user.
fn client_of(user: &str, conf: &Krb5Conf) -> Result<Principal, KerberosError> {
    let (domain, name) = user.split_once(['\\', ';']).unwrap_or(("", user));
    let unknown = || {
        let text =
            "no Kerberos realm is known; write USER@REALM, or set default_realm in krb5.conf";
        Reason::Setting(text.into())
    };
    // A domain name without a dot is a NetBIOS name and no realm, so the default realm is used.
    let default = match domain {
        domain if domain.contains('.') => realm_of(domain, conf),
        _ => conf.default_realm.clone().unwrap_or_default(),
    };
    if default.is_empty() && !name.contains('@') {
        return Err(unknown().into());
    }
    let placeholder = if default.is_empty() { "-" } else { &default };
    let client = Principal::parse(name, placeholder);
    let mut client = client.ok_or_else(|| {
        Reason::Setting(format!("`{}` is not the name of a user", name.escape_debug()))
    })?;
    client.realm = realm_of(&client.realm, conf);
    Ok(client)
}

/// Returns the realm of a domain's name: realms are written in capitals, unless krb5.conf has this
/// one in another way.
fn realm_of(name: &str, conf: &Krb5Conf) -> String {
    let is_known = conf.kdcs(name).next().is_some() || conf.default_realm.as_deref() == Some(name);
    let has_capitals = name.chars().any(char::is_uppercase);
    if is_known || has_capitals { name.into() } else { name.to_uppercase() }
}

/// Returns the user of a keytab, or the first one in it.
fn in_keytab(path: &Path, user: Option<&str>) -> Result<(Principal, Origin), KerberosError> {
    // The path is made absolute, because a mount in the background changes its working directory.
    let path = std::path::absolute(path);
    let path = &path.map_err(|error| Reason::Setting(format!("no keytab is named: {error}")))?;
    let keytab = read_keytab(path)?;
    let client = match user {
        Some(user) => client_of(user, &Krb5Conf::load())?,
        None => {
            let mut names = keytab.entries.iter().map(|entry| &entry.key.principal);
            let of_user = names.clone().find(|name| name.components.len() == 1);
            of_user.or_else(|| names.next()).cloned().ok_or_else(|| {
                Reason::Setting(format!("the keytab {} has no keys", path.display()))
            })?
        }
    };
    if keytab.keys_of(&client).is_empty() {
        let shown = path.display();
        let text = format!("the keytab {shown} has no key of {client}; klist -k lists its users");
        return Err(Reason::Setting(text).into());
    }
    Ok((client.clone(), Origin::Keytab(path.into(), client)))
}

fn read_keytab(path: &Path) -> Result<Keytab, KerberosError> {
    use std::os::unix::fs::PermissionsExt;
    let shown = path.display();
    let failed = |error| Reason::Setting(format!("cannot read the keytab {shown}: {error}"));
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(Reason::Setting(format!(
            "the keytab {shown} can be read by other users; run chmod 600 on it"
        ))
        .into());
    }
    let bytes = Zeroizing::new(files::read(path, MAX_KEYTAB_LEN).map_err(failed)?);
    let damaged = |fault| Reason::Setting(format!("the keytab {shown} is damaged ({fault})"));
    Ok(Keytab::parse(&bytes).map_err(damaged)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_a_name_and_no_address() {
        for (host, name) in [("Files.Example.COM.", "files.example.com"), ("box", "box")] {
            assert_eq!(service_host(host).unwrap(), name);
        }
        for host in ["192.0.2.1", "2001:db8::1", "fe80::1%eth0", ""] {
            let text = service_host(host).unwrap_err().to_string();
            assert!(text.contains("write its full DNS name"), "{text}");
        }
    }

    #[test]
    fn names_of_users() {
        let none = Krb5Conf::default();
        let conf = Krb5Conf { default_realm: Some("A.TEST".into()), ..Krb5Conf::default() };
        let lower = Krb5Conf { default_realm: Some("low.test".into()), ..Krb5Conf::default() };
        for (conf, name, principal) in [
            (&conf, "ann", "ann@A.TEST"),
            (&conf, "CORP\\ann", "ann@A.TEST"),
            (&conf, "b.test\\ann", "ann@B.TEST"),
            (&none, "ann@B.TEST", "ann@B.TEST"),
            (&none, "ann@b.test", "ann@B.TEST"),
            (&lower, "ann@low.test", "ann@low.test"),
            (&lower, "ann", "ann@low.test"),
        ] {
            assert_eq!(client_of(name, conf).unwrap().to_string(), principal, "{name}");
        }
        let text = client_of("ann", &none).unwrap_err().to_string();
        assert!(text.contains("write USER@REALM"), "{text}");
        assert!(client_of("", &conf).is_err() && client_of("a@b@c", &conf).is_err());
    }
}
