//! `[ldap]`: a directory whose accounts log on beside those of the account file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use frevo_ldap::filter::{Filter, is_attribute};
use frevo_ldap::person::Names;
use serde::Deserialize;

use super::fault::Fault;
use super::limits::{LDAP_AWAY_SECONDS_MAX, LDAP_CACHE_SECONDS_MAX, LDAP_TIMEOUT_SECONDS_MAX};
use super::limits::{LDAP_SERVERS, LDAP_TEXT_BYTES};
use super::parsed;
use super::scan::endpoint;
use super::values::LdapSchemaChoice;

/// The port of LDAP, RFC 4513 3.1.1.
const PORT: u16 = 389;
/// The port of LDAP over TLS.
const TLS_PORT: u16 = 636;
/// Seconds for a connection, and for an answer.
const TIMEOUT_SECONDS: u32 = 5;
/// Seconds in which an answer counts without another question.
const CACHE_SECONDS: u32 = 300;
/// Age up to which an answer counts while the directory is away, seconds.
const AWAY_SECONDS: u32 = 3_600;

/// `[ldap]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LdapSection {
    /// The servers, in the order in which they are asked.
    #[serde(deserialize_with = "parsed::list")]
    pub urls: Vec<LdapUrl>,
    /// The entry below which accounts and groups are.
    pub base: Option<String>,
    /// The entry that asks; nobody when left out.
    pub bind_dn: Option<String>,
    /// The file with the password of that entry.
    pub password_file: Option<PathBuf>,
    /// The file with the certificates of the authorities that sign those of the servers.
    pub ca: Option<PathBuf>,
    /// False leaves out StartTLS at `ldap://`.
    pub starttls: Option<bool>,
    /// True allows connections over the network without TLS.
    pub cleartext: Option<bool>,
    /// The schema, from which the filters come that are left out.
    pub schema: Option<LdapSchemaChoice>,
    /// The entry below which accounts are, in place of `base`.
    pub user_base: Option<String>,
    /// The filter of an account, with `{user}`.
    pub user_filter: Option<String>,
    /// The entry below which groups are, in place of `base`.
    pub group_base: Option<String>,
    /// The filter of the groups of an account, with `{user}`, `{dn}` and `{gid}`.
    pub group_filter: Option<String>,
    /// The attribute with the name of an account.
    pub user_attribute: Option<String>,
    /// The attribute with the NT hash of the password.
    pub nt_hash_attribute: Option<String>,
    /// The attribute with the name of a group.
    pub group_attribute: Option<String>,
    /// Seconds to connect, and for an answer.
    pub timeout_seconds: Option<u32>,
    /// Seconds in which an answer counts without another question.
    pub cache_seconds: Option<u32>,
    /// Age up to which an answer counts while the directory is away, seconds.
    pub away_seconds: Option<u32>,
}

/// The place of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LdapUrl {
    /// Over TCP: `ldap://HOST[:PORT]` and `ldaps://HOST[:PORT]`.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// True for TLS from the first byte on.
        is_secure: bool,
    },
    /// A Unix socket: `ldapi:/run/slapd/ldapi`.
    Unix(PathBuf),
}

impl LdapUrl {
    /// True if the connection stays on this host.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => {
                let address = host.parse::<std::net::IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl FromStr for LdapUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            if let Some(rest) = text.strip_prefix("ldaps://") {
                let (host, port) = endpoint(rest.trim_end_matches('/'), TLS_PORT)?;
                return Some(Self::Tcp { host, port, is_secure: true });
            }
            if let Some(rest) = text.strip_prefix("ldap://") {
                let (host, port) = endpoint(rest.trim_end_matches('/'), PORT)?;
                return Some(Self::Tcp { host, port, is_secure: false });
            }
            let path = text.strip_prefix("ldapi:")?;
            // OpenLDAP writes slashes of the path as %2F behind two others.
            let path = path.strip_prefix("//").unwrap_or(path);
            let path = path.replace("%2F", "/").replace("%2f", "/");
            let is_path = path.starts_with('/') && path.len() < 108 && !path.contains(['\0', '%']);
            is_path.then(|| Self::Unix(PathBuf::from(path)))
        };
        parse().ok_or_else(|| {
            format!(
                "{text:?} is not a server of LDAP: write \"ldaps://HOST\", \"ldap://HOST\" or \
                 \"ldapi:/run/slapd/ldapi\", without a name of an entry"
            )
        })
    }
}

impl fmt::Display for LdapUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "ldapi:{}", path.display()),
            Self::Tcp { host, port, is_secure } => {
                let scheme = if *is_secure { "ldaps" } else { "ldap" };
                match host.contains(':') {
                    true => write!(f, "{scheme}://[{host}]:{port}"),
                    false => write!(f, "{scheme}://{host}:{port}"),
                }
            }
        }
    }
}

impl LdapSection {
    /// True if a directory is asked.
    pub fn is_on(&self) -> bool {
        !self.urls.is_empty()
    }

    /// True if StartTLS comes first at `ldap://`.
    pub fn starts_tls(&self) -> bool {
        self.starttls != Some(false)
    }

    /// True if a server is asked over TLS.
    pub fn uses_tls(&self) -> bool {
        let uses = |url: &LdapUrl| match url {
            LdapUrl::Tcp { is_secure, .. } => *is_secure || self.starts_tls(),
            LdapUrl::Unix(_) => false,
        };
        self.urls.iter().any(uses)
    }

    /// The entry below which accounts are.
    pub fn user_base(&self) -> &str {
        self.user_base.as_deref().or(self.base.as_deref()).unwrap_or_default()
    }

    /// The entry below which groups are.
    pub fn group_base(&self) -> &str {
        self.group_base.as_deref().or(self.base.as_deref()).unwrap_or_default()
    }

    /// The names of attributes.
    pub fn names(&self) -> Names {
        let or = |name: &Option<String>, usual: &str| {
            name.clone().unwrap_or_else(|| String::from(usual))
        };
        Names {
            user: or(&self.user_attribute, "uid"),
            nt_hash: or(&self.nt_hash_attribute, "sambaNTPassword"),
            group: or(&self.group_attribute, "cn"),
        }
    }

    /// The filter of an account.
    pub fn user_filter(&self) -> String {
        let class = match self.schema.unwrap_or(LdapSchemaChoice::Samba) {
            LdapSchemaChoice::Samba => "sambaSamAccount",
            LdapSchemaChoice::Lldap => "person",
        };
        let usual = || format!("(&(objectClass={class})({}={{user}}))", self.names().user);
        self.user_filter.clone().unwrap_or_else(usual)
    }

    /// The filter of the groups of an account.
    pub fn group_filter(&self) -> String {
        let usual = match self.schema.unwrap_or(LdapSchemaChoice::Samba) {
            LdapSchemaChoice::Samba => {
                "(|(&(objectClass=posixGroup)(|(memberUid={user})(gidNumber={gid})))\
                 (&(objectClass=groupOfNames)(member={dn}))\
                 (&(objectClass=groupOfUniqueNames)(uniqueMember={dn})))"
            }
            LdapSchemaChoice::Lldap => "(&(objectClass=groupOfUniqueNames)(member={dn}))",
        };
        self.group_filter.clone().unwrap_or_else(|| String::from(usual))
    }

    /// Seconds to connect, and for an answer.
    pub fn timeout_seconds(&self) -> u32 {
        self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS)
    }

    /// Seconds in which an answer counts without another question.
    pub fn cache_seconds(&self) -> u32 {
        self.cache_seconds.unwrap_or(CACHE_SECONDS)
    }

    /// Age up to which an answer counts while the directory is away, seconds.
    pub fn away_seconds(&self) -> u32 {
        self.away_seconds.unwrap_or(AWAY_SECONDS)
    }

    /// Keys that contradict each other, lack another one, or cannot be used.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut when = |holds: bool, what: &str, hint: &str| {
            if holds {
                faults.push(Fault::new(what.to_owned()).hint(hint));
            }
        };
        when(
            *self != Self::default() && !self.is_on(),
            "[ldap] has no urls",
            "list the servers: urls = [\"ldaps://HOST\"]",
        );
        when(
            self.urls.len() > LDAP_SERVERS,
            "[ldap] has more than 8 urls",
            "list those that are near",
        );
        when(
            self.is_on() && (self.user_base().is_empty() || self.group_base().is_empty()),
            "[ldap] has no base",
            "name the entry below which accounts are: base = \"dc=example,dc=org\"",
        );
        when(
            self.bind_dn.is_some() != self.password_file.is_some(),
            "[ldap] has only one of bind_dn and password_file",
            "name the entry that asks, and the file with its password",
        );
        let is_open = |url: &LdapUrl| matches!(url, LdapUrl::Tcp { is_secure: false, .. });
        let is_read = |url: &LdapUrl| is_open(url) && !url.is_local();
        when(
            !self.starts_tls() && self.cleartext != Some(true) && self.urls.iter().any(is_read),
            "[ldap] would send hashes of passwords over the network without TLS",
            "remove starttls = false, or write ldaps://",
        );
        faults.extend(self.fault_of_texts());
        faults.extend(self.fault_of_times());
        faults
    }

    fn fault_of_texts(&self) -> Option<Fault> {
        let fault = |what: String, hint: &str| Some(Fault::new(what).hint(hint));
        let texts = [&self.base, &self.bind_dn, &self.user_base, &self.group_base];
        let texts = texts.into_iter().flatten();
        if let Some(text) = texts.into_iter().find(|text| text.len() > LDAP_TEXT_BYTES) {
            let start: String = text.chars().take(20).collect();
            return fault(format!("[ldap]: the name {start}... is too long"), "shorten it");
        }
        let filters = [("user_filter", self.user_filter()), ("group_filter", self.group_filter())];
        for (key, text) in filters {
            match Filter::parse(&text) {
                Err(why) => {
                    let what = format!("{key} of [ldap] is no filter: {why}");
                    return fault(what, "write it as RFC 4515 has it: (&(a=b)(uid={user}))");
                }
                Ok(filter) if key == "user_filter" && !filter.asks_for_user() => {
                    let what = String::from("user_filter of [ldap] has no {user}");
                    return fault(what, "write {user} where the name of the account stands");
                }
                Ok(_) => {}
            }
        }
        let Names { user, nt_hash, group } = self.names();
        let wrong = [user, nt_hash, group].into_iter().find(|name| !is_attribute(name))?;
        fault(format!("[ldap]: {wrong:?} is not the name of an attribute"), "such as \"uid\"")
    }

    fn fault_of_times(&self) -> Option<Fault> {
        let times = [
            ("timeout_seconds", self.timeout_seconds(), 1, LDAP_TIMEOUT_SECONDS_MAX),
            ("cache_seconds", self.cache_seconds(), 1, LDAP_CACHE_SECONDS_MAX),
            ("away_seconds", self.away_seconds(), 0, LDAP_AWAY_SECONDS_MAX),
        ];
        let (key, _, least, most) =
            times.into_iter().find(|(_, time, least, most)| time < least || time > most)?;
        Some(Fault::new(format!("{key} of [ldap] must be {least} to {most}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn faults(keys: &str) -> Vec<String> {
        let read = Config::parse(&format!("[ldap]\n{keys}\n"));
        let faults = read.err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn servers_have_urls() {
        for (text, shown) in [
            ("ldap://dir.example.org", "ldap://dir.example.org:389"),
            ("ldaps://dir.example.org/", "ldaps://dir.example.org:636"),
            ("ldap://[2001:db8::1]:3890", "ldap://[2001:db8::1]:3890"),
            ("ldapi:/run/slapd/ldapi", "ldapi:/run/slapd/ldapi"),
            ("ldapi://%2Frun%2Fslapd%2fldapi", "ldapi:/run/slapd/ldapi"),
        ] {
            let url: LdapUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(shown.parse::<LdapUrl>().unwrap(), url);
        }
        for text in ["", "ldap://", "ldap://a:0", "ldap://a/dc=x", "ldapi://", "http://a", "ldap:a"]
        {
            text.parse::<LdapUrl>().unwrap_err();
        }
        for (text, is_local) in [
            ("ldap://127.0.0.1", true),
            ("ldap://localhost:3890", true),
            ("ldap://[::1]", true),
            ("ldapi:/x", true),
            ("ldap://127.0.0.1.example.org", false),
            ("ldap://10.0.0.1", false),
        ] {
            assert_eq!(text.parse::<LdapUrl>().unwrap().is_local(), is_local, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        const ON: &str = "urls = [\"ldap://dir\"]\nbase = \"dc=x\"\n";
        assert_eq!(faults(ON), [] as [&str; 0]);
        for (keys, part) in [
            ("base = \"dc=x\"".to_owned(), "no urls"),
            ("urls = [\"ldap://dir\"]".to_owned(), "no base"),
            (format!("{ON}bind_dn = \"cn=a\""), "only one of"),
            (format!("{ON}password_file = \"/p\""), "only one of"),
            (format!("{ON}starttls = false"), "without TLS"),
            (format!("{ON}user_filter = \"(uid=ann)\""), "no {user}"),
            (format!("{ON}user_filter = \"uid={{user}}\""), "user_filter of [ldap] is no filter"),
            (format!("{ON}group_filter = \"(cn=\""), "group_filter of [ldap] is no filter"),
            (format!("{ON}nt_hash_attribute = \"a b\""), "name of an attribute"),
            (format!("{ON}timeout_seconds = 0"), "timeout_seconds"),
            (format!("{ON}cache_seconds = 0"), "cache_seconds"),
            (format!("{ON}away_seconds = 10000000"), "away_seconds"),
            (format!("{ON}schema = \"ad\""), "\"samba\" or \"lldap\""),
        ] {
            let found = faults(&keys);
            assert!(found.len() == 1 && found[0].contains(part), "{keys}: {found:?}");
        }
        let wrong = faults("urls = [\"dir\"]\nbase = \"dc=x\"");
        assert!(wrong[0].contains("not a server"), "{wrong:?}");
        for fine in [
            "urls = [\"ldap://127.0.0.1\"]\nbase = \"dc=x\"\nstarttls = false",
            "urls = [\"ldap://dir\"]\nbase = \"dc=x\"\nstarttls = false\ncleartext = true",
            "urls = [\"ldaps://dir\"]\nbase = \"dc=x\"\nstarttls = false",
            "urls = [\"ldap://dir\"]\nuser_base = \"ou=a\"\ngroup_base = \"ou=b\"",
        ] {
            assert_eq!(faults(fine), [] as [&str; 0], "{fine}");
        }
    }

    #[test]
    fn filters_follow_the_schema() {
        let section = |keys: &str| {
            let on = "urls = [\"ldap://dir\"]\nbase = \"dc=x\"\n";
            Config::parse(&format!("[ldap]\n{on}{keys}")).unwrap().ldap
        };
        let samba = section("");
        assert_eq!(samba.user_filter(), "(&(objectClass=sambaSamAccount)(uid={user}))");
        assert!(samba.group_filter().contains("memberUid={user}") && samba.uses_tls());
        let lldap = section("schema = \"lldap\"\nuser_attribute = \"mail\"");
        assert_eq!(lldap.user_filter(), "(&(objectClass=person)(mail={user}))");
        assert_eq!(lldap.group_filter(), "(&(objectClass=groupOfUniqueNames)(member={dn}))");
        assert_eq!((samba.timeout_seconds(), samba.cache_seconds()), (5, 300));
    }
}
