//! The domains of names in an smb.conf: whose account a name without one is, and whose one with.

use super::smb_conf::Section;
use super::words::list;

/// The most characters of a NetBIOS name.
const NETBIOS_NAME: usize = 15;

/// The role of the Samba server, as far as it decides what names mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// All accounts are the server's own.
    Standalone,
    /// A name may be one of the domain.
    Member,
    /// The accounts of the domain are the server's own.
    Controller,
}

/// How Samba takes names in lists of users.
#[derive(Debug, Clone)]
pub(super) struct NameRules {
    role: Role,
    /// Domains that the server's own accounts are in, in lower case.
    own: Vec<String>,
    /// Further names of the server, in lower case. Samba may take them for its own.
    aliases: Vec<String>,
    /// True if the server's own name is known.
    has_name: bool,
    /// The short name of the domain, or the workgroup.
    pub(super) workgroup: String,
    /// The realm, if there is one.
    pub(super) realm: Option<String>,
    /// The character between domain and user, which may be used beside the backslash.
    pub(super) separator: char,
}

/// The owner of a name with a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The server itself.
    Server,
    /// A domain whose users may log on.
    Domain,
    /// A domain of which Samba knows nobody.
    Nobody,
}

impl NameRules {
    /// The rules of an smb.conf. `host_name` is the name of its host, if that is known.
    pub(super) fn of(global: &Section, host_name: Option<&str>) -> Self {
        let named = |name| global.value(name).map(str::trim).filter(|value| !value.is_empty());
        let role = role(global);
        let workgroup = named("workgroup").unwrap_or("WORKGROUP").to_owned();
        let realm = named("realm").map(str::to_owned);
        // Without `netbios name` Samba's own name is the name of the host.
        let name = named("netbios name")
            .map_or_else(|| host_name.map(netbios_name), |name| Some(name.to_owned()));
        let has_name = name.is_some();
        let mut own: Vec<String> = name.into_iter().collect();
        if role == Role::Controller {
            own.push(workgroup.clone());
            own.extend(realm.clone());
        }
        own.iter_mut().for_each(|name| *name = name.to_lowercase());
        let aliases = named("netbios aliases").map(list).unwrap_or_default();
        let aliases = aliases.iter().map(|name| name.to_lowercase()).collect();
        let separator = named("winbind separator").and_then(|text| text.chars().next());
        let separator = separator.unwrap_or('\\');
        Self { role, own, aliases, has_name, workgroup, realm, separator }
    }

    /// True for a member of a domain.
    pub(super) fn is_member(&self) -> bool {
        self.role == Role::Member
    }

    /// Splits a name into its domain, which is empty for a name without one, and the rest.
    pub(super) fn split<'a>(&self, name: &'a str) -> (&'a str, &'a str) {
        name.split_once(['\\', self.separator]).unwrap_or(("", name))
    }

    /// True for a domain of a member's names that may be the server's own, for all that is known.
    pub(super) fn may_be_own(&self, domain: &str) -> bool {
        let is_domain = |name: &str| name.eq_ignore_ascii_case(domain);
        let is_of_domain =
            is_domain(&self.workgroup) || self.realm.as_deref().is_some_and(is_domain);
        self.aliases.contains(&domain.to_lowercase()) || !self.has_name && !is_of_domain
    }

    /// The owner of the names of a domain.
    pub(super) fn owner_of(&self, domain: &str) -> Owner {
        let domain = domain.to_lowercase();
        if matches!(&*domain, "unix user" | "unix group") || self.own.contains(&domain) {
            Owner::Server
        } else if self.is_member() {
            Owner::Domain
        } else {
            Owner::Nobody
        }
    }
}

/// The name that Samba makes of a host's: the first label, cut to the length of NetBIOS names.
fn netbios_name(host: &str) -> String {
    host.split('.').next().unwrap_or_default().chars().take(NETBIOS_NAME).collect()
}

fn role(global: &Section) -> Role {
    let value = |name| global.value(name).unwrap_or_default().trim().to_ascii_lowercase();
    let role = value("server role");
    if role.contains("controller") || matches!(&*role, "dc" | "pdc" | "bdc") {
        Role::Controller
    } else if role.starts_with("member") || matches!(&*value("security"), "ads" | "domain") {
        Role::Member
    } else if global.truth("domain logons") == Some(true) {
        Role::Controller
    } else {
        Role::Standalone
    }
}
