//! The domains of names in an smb.conf: whose account a name without one is, and whose one with.

use super::smb_conf::Section;

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
    pub(super) fn of(global: &Section) -> Self {
        let named = |name| global.value(name).map(str::trim).filter(|value| !value.is_empty());
        let role = role(global);
        let workgroup = named("workgroup").unwrap_or("WORKGROUP").to_owned();
        let realm = named("realm").map(str::to_owned);
        let mut own: Vec<String> = named("netbios name").into_iter().map(str::to_owned).collect();
        if role == Role::Controller {
            own.push(workgroup.clone());
            own.extend(realm.clone());
        }
        own.iter_mut().for_each(|name| *name = name.to_lowercase());
        let separator = named("winbind separator").and_then(|text| text.chars().next());
        Self { role, own, workgroup, realm, separator: separator.unwrap_or('\\') }
    }

    /// True for a member of a domain.
    pub(super) fn is_member(&self) -> bool {
        self.role == Role::Member
    }

    /// Splits a name into its domain, which is empty for a name without one, and the rest.
    pub(super) fn split<'a>(&self, name: &'a str) -> (&'a str, &'a str) {
        name.split_once(['\\', self.separator]).unwrap_or(("", name))
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
