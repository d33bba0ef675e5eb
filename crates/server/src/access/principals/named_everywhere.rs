//! Further names that are the same everywhere, MS-DTYP 2.4.2.4. They stand in access lists that come from
//! other servers; nobody here is a member of them.

use frevo_wire::dtyp::Sid;

use super::Use;

/// The names of `S-1-5-N`.
const OF_NT_AUTHORITY: [(u32, &str); 16] = [
    (1, "DIALUP"),
    (3, "BATCH"),
    (4, "INTERACTIVE"),
    (6, "SERVICE"),
    (8, "PROXY"),
    (9, "ENTERPRISE DOMAIN CONTROLLERS"),
    (10, "SELF"),
    (12, "RESTRICTED"),
    (13, "TERMINAL SERVER USER"),
    (14, "REMOTE INTERACTIVE LOGON"),
    (15, "This Organization"),
    (17, "IUSR"),
    (19, "LOCAL SERVICE"),
    (20, "NETWORK SERVICE"),
    (113, "Local account"),
    (114, "Local account and member of Administrators group"),
];

/// The names of `S-1-5-32-N`.
const OF_BUILTIN: [(u32, &str); 24] = [
    (547, "Power Users"),
    (548, "Account Operators"),
    (549, "Server Operators"),
    (550, "Print Operators"),
    (551, "Backup Operators"),
    (552, "Replicator"),
    (554, "Pre-Windows 2000 Compatible Access"),
    (555, "Remote Desktop Users"),
    (556, "Network Configuration Operators"),
    (557, "Incoming Forest Trust Builders"),
    (558, "Performance Monitor Users"),
    (559, "Performance Log Users"),
    (560, "Windows Authorization Access Group"),
    (561, "Terminal Server License Servers"),
    (562, "Distributed COM Users"),
    (568, "IIS_IUSRS"),
    (569, "Cryptographic Operators"),
    (573, "Event Log Readers"),
    (574, "Certificate Service DCOM Access"),
    (575, "RDS Remote Access Servers"),
    (576, "RDS Endpoint Servers"),
    (577, "RDS Management Servers"),
    (578, "Hyper-V Administrators"),
    (580, "Remote Management Users"),
];

/// The names without a domain: authority, number, name.
const OF_NONE: [(u64, u32, &str); 3] =
    [(2, 0, "LOCAL"), (3, 2, "CREATOR OWNER SERVER"), (3, 3, "CREATOR GROUP SERVER")];

/// A name of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) sid: Sid,
    pub(super) domain: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: Use,
}

fn all() -> impl Iterator<Item = Named> {
    let of =
        |sid: Option<Sid>, domain, name, kind| sid.map(|sid| Named { sid, domain, name, kind });
    let group = Use::WellKnownGroup;
    let nt_authority = OF_NT_AUTHORITY
        .into_iter()
        .filter_map(move |(number, name)| of(Sid::new(5, &[number]), "NT AUTHORITY", name, group));
    let builtin = OF_BUILTIN
        .into_iter()
        .filter_map(move |(rid, name)| of(Sid::BUILTIN.with_rid(rid), "BUILTIN", name, Use::Alias));
    let none = OF_NONE.into_iter().filter_map(move |(authority, number, name)| {
        of(Sid::new(authority, &[number]), "", name, group)
    });
    nt_authority.chain(builtin).chain(none)
}

/// Finds the name of a SID.
pub(super) fn by_sid(sid: &Sid) -> Option<Named> {
    all().find(|named| named.sid == *sid)
}

/// Finds a name, in `domain` or without one.
pub(super) fn by_name(domain: Option<&str>, name: &str) -> Option<Named> {
    let in_domain = |of: &str| domain.is_none_or(|domain| domain.eq_ignore_ascii_case(of));
    all().find(|named| in_domain(named.domain) && named.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_sid_and_back() {
        let mut seen = Vec::new();
        for named in all() {
            assert_eq!(by_sid(&named.sid), Some(named));
            assert_eq!(by_name(Some(named.domain), &named.name.to_lowercase()), Some(named));
            assert_eq!(by_name(None, named.name), Some(named));
            assert_eq!(by_name(Some("OTHER"), named.name), None);
            assert!(!seen.contains(&named.sid), "{}", named.name);
            seen.push(named.sid);
        }
        for (sid, name) in [
            ("S-1-5-32-551", "Backup Operators"),
            ("S-1-5-4", "INTERACTIVE"),
            ("S-1-3-2", "CREATOR OWNER SERVER"),
            ("S-1-2-0", "LOCAL"),
        ] {
            assert_eq!(by_sid(&sid.parse().unwrap()).unwrap().name, name);
        }
        assert_eq!(by_sid(&Sid::ADMINISTRATORS), None);
        assert_eq!(by_name(None, ""), None);
    }
}
