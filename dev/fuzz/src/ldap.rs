//! Answers of an LDAP directory, which a client trusts no more than a stranger's, and filters of a configuration.

use frevo_ldap::filter::{Filter, Values};
use frevo_ldap::limits::{GROUPS, MESSAGE_BYTES, NAME_BYTES};
use frevo_ldap::message::{Answer, Message, length};
use frevo_ldap::person::{Names, Person};

/// A filter with its values, or messages one after the other, as the first byte says.
pub fn ldap_answers(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    if kind % 4 == 0 {
        filter(data);
    } else {
        messages(data);
    }
}

fn filter(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (filter, user) = text.split_once('\n').unwrap_or((text, "ann"));
    match Filter::parse(filter) {
        Ok(filter) => {
            let values = Values { user: Some(user), dn: Some(user), gid: None };
            drop((filter.encode(&values), filter.encode(&Values::default())));
        }
        Err(fault) => drop(fault.to_string()),
    }
}

fn messages(mut data: &[u8]) {
    let (user, nt_hash, group) = ("uid".into(), "sambaNTPassword".into(), "cn".into());
    let names = Names { user, nt_hash, group };
    while let Ok(Some(whole)) = length(data) {
        assert!(whole <= MESSAGE_BYTES);
        let Some((message, rest)) = data.split_at_checked(whole) else { return };
        data = rest;
        match Message::parse(message) {
            Ok(Message { answer: Answer::Entry(entry), .. }) => {
                if let Ok(person) = Person::listed(&entry, &names, "dc=x") {
                    assert!(person.name.len() <= NAME_BYTES && person.groups.len() <= GROUPS);
                }
                drop(Person::of(&entry, &names, "ann", ""));
            }
            Ok(message) => drop(format!("{message:?}")),
            Err(fault) => drop(fault.to_string()),
        }
    }
}
