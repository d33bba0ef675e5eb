//! The users who administer a server over the network, in a sentence.

use frevo_auth::AccountFile;
use frevo_config::{Config, Who};

use crate::keytab::Keys;

/// The group of the account file whose members administer the server.
const GROUP: &str = "Administrators";
/// Names that a sentence shows.
const SHOWN: usize = 12;

/// Returns the names of the domains that a server has joined: the realms of the machine accounts in
/// its keytab, or the first domain of winbind.
pub(crate) fn joined(config: &Config, keys: Option<&Keys>) -> Vec<String> {
    if config.kerberos.realms.is_some() {
        return Vec::new();
    }
    let machines = keys.map_or(&[][..], |keys| &*keys.machines);
    let mut joined: Vec<String> = machines.iter().map(|machine| machine.realm.clone()).collect();
    if joined.is_empty() {
        let domains = config.server.winbind_domains.iter().flat_map(|domains| domains.get_ref());
        joined.extend(domains.take(1).cloned());
    }
    joined
}

/// Returns the sentence. `joined` are the names of the joined domains.
pub(crate) fn sentence(config: &Config, file: &AccountFile, joined: &[String]) -> String {
    let is_in = |groups: &[String]| groups.iter().any(|group| group.eq_ignore_ascii_case(GROUP));
    let members = file.entries().filter(|entry| is_in(&entry.groups));
    let mut all: Vec<String> = members.map(|entry| entry.name.clone()).collect();
    all.extend(config.server.administrators().iter().map(Who::to_string));
    if config.server.domain_admins != Some(false) {
        all.extend(joined.iter().map(|domain| format!("Domain Admins of {domain}")));
    }
    all.dedup();
    if all.is_empty() {
        return format!(
            "Nobody administers the server over the network; add an account to the group {GROUP}, or \
             name users in `administrators` of [server]."
        );
    }
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let listed = all.join(", ");
    match more {
        0 => format!("Administrators over the network: {listed}."),
        more => format!("Administrators over the network: {listed} and {more} more."),
    }
}

#[cfg(test)]
mod tests {
    use frevo_auth::NtHash;
    use frevo_auth::smbpasswd::Entry;

    use super::*;

    #[test]
    fn the_sentence_names_all_kinds() {
        let mut file = AccountFile::default();
        for name in ["ann", "bob"] {
            file.add(Entry::new(name, u32::MAX, NtHash::from_password("x"), 0)).unwrap();
        }
        file.set_groups("ann", &["administrators".into()]).unwrap();
        let of = |text: &str| Config::parse(text).unwrap();
        let domain = "[server]\nwinbind_domains = [\"A\", \"a.test\"]\n";
        let config = of(&format!("{domain}administrators = ['bob', '@A\\Storage']"));
        let joined = joined(&config, None);
        assert_eq!(joined, ["A"]);
        assert_eq!(
            sentence(&config, &file, &joined),
            "Administrators over the network: ann, bob, @A\\Storage, Domain Admins of A."
        );
        let config = of(&format!("{domain}domain_admins = false"));
        assert_eq!(sentence(&config, &file, &joined), "Administrators over the network: ann.");
        let nobody = sentence(&config, &AccountFile::default(), &joined);
        assert!(nobody.starts_with("Nobody administers"), "{nobody}");
        let realms = of("[kerberos]\nkeytab = \"/k\"\nrealms = [\"A.TEST\"]");
        assert!(super::joined(&realms, None).is_empty());
    }
}
