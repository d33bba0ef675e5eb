//! Converts smb.conf's lists of users and hosts to those of a share.

use std::net::Ipv4Addr;

use frevo_server::access_rules::Network;
use frevo_server::config::Who;

use super::smb_conf::list;

/// A key of `[[share]]`, and what Samba calls it.
type Table = &'static [(&'static str, &'static [&'static str])];

/// Converts one word of a list; the error is the reason why it has no equal.
type Words = fn(&str) -> Result<Vec<String>, String>;

/// Lists of users, and the key of `[[share]]` for each.
const NAMES: Table = &[
    ("allow", &["valid users"]),
    ("deny", &["invalid users"]),
    ("read_list", &["read list"]),
    ("write_list", &["write list"]),
];

/// Lists of hosts, and the key of `[[share]]` for each.
const HOSTS: Table = &[
    ("hosts_allow", &["hosts allow", "allow hosts"]),
    ("hosts_deny", &["hosts deny", "deny hosts"]),
];

/// True for a parameter that is one of these lists.
pub(super) fn is_rule(parameter: &str) -> bool {
    NAMES.iter().chain(HOSTS).any(|(_, names)| names.contains(&parameter))
}

/// The keys with their words, and the reasons why some words have no equal.
pub(super) fn convert<'a>(
    value: impl Fn(&[&str]) -> Option<&'a str>,
) -> (Vec<(&'static str, Vec<String>)>, Vec<String>) {
    let (mut keys, mut reasons) = (Vec::new(), Vec::new());
    let tables: [(Table, Words); 2] = [(NAMES, name), (HOSTS, host)];
    for (table, word_of) in tables {
        for (key, names) in table {
            let mut words = Vec::new();
            for word in value(names).map(list).unwrap_or_default() {
                match word_of(&word) {
                    Ok(said) => words.extend(said),
                    Err(why) => reasons.push(format!("{} = {word}: {why}", names[0])),
                }
            }
            // Whoever may connect from everywhere needs no list.
            let is_all = *key == "hosts_allow" && words.iter().any(|word| word == EVERYWHERE);
            if !words.is_empty() && !is_all {
                keys.push((*key, words));
            }
        }
    }
    (keys, reasons)
}

const EVERYWHERE: &str = "::/0";

/// A user, or a group of the host or of an account file.
fn name(word: &str) -> Result<Vec<String>, String> {
    if word.contains('%') {
        return Err(String::from("% substitutions are not supported"));
    }
    // `+` is a group of the host's, `&` one of NIS; both at once too.
    let bare = word.trim_start_matches(['@', '+', '&']);
    // A domain before the name; only ours is meant.
    let own = bare.rsplit(['\\', '/']).next().unwrap_or_default();
    let mark = if bare.len() < word.len() { "@" } else { "" };
    let who = format!("{mark}{own}").parse::<Who>()?;
    Ok(vec![who.as_str().to_owned()])
}

/// A host or network as hosts_access(5) writes them.
fn host(word: &str) -> Result<Vec<String>, String> {
    let upper = word.to_ascii_uppercase();
    match &*upper {
        "ALL" | "0.0.0.0/0" => return Ok(vec![String::from(EVERYWHERE)]),
        "EXCEPT" => return Err(String::from("`EXCEPT` is not supported; use `hosts_allow`")),
        "LOCAL" | "FAIL" => return Err(format!("`{upper}` is not supported; list the networks")),
        "LOCALHOST" => return Ok(vec![String::from("127.0.0.0/8"), String::from("::1")]),
        _ => {}
    }
    if word.starts_with('@') {
        return Err(String::from("netgroups are not supported"));
    }
    // `192.0.2.` is all that begins so.
    if let Some(begun) = word.strip_suffix('.') {
        let parts = begun.split('.').count();
        let whole = format!("{begun}{}", ".0".repeat(4_usize.saturating_sub(parts)));
        let network = format!("{whole}/{}", parts * 8);
        return check(&network).map_err(|_| String::from("it is not an IPv4 network"));
    }
    if let Some((address, mask)) = word.split_once('/')
        && let (Ok(address), Ok(mask)) = (address.parse::<Ipv4Addr>(), mask.parse::<Ipv4Addr>())
    {
        let mask = mask.to_bits();
        if mask.leading_ones() != mask.count_ones() {
            return Err(String::from("the network mask is not contiguous"));
        }
        let first = Ipv4Addr::from_bits(address.to_bits() & mask);
        return check(&format!("{first}/{}", mask.leading_ones()));
    }
    check(word).map_err(|_| String::from("host names are not supported; list the addresses"))
}

fn check(network: &str) -> Result<Vec<String>, String> {
    network.parse::<Network>().map(|_| vec![network.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::{host, name};

    #[test]
    fn hosts_as_samba_writes_them() {
        for (word, network) in [
            ("192.0.2.", "192.0.2.0/24"),
            ("10.", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.9/255.255.255.0", "192.0.2.0/24"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("all", "::/0"),
        ] {
            assert_eq!(host(word), Ok(vec![network.to_owned()]), "{word}");
        }
        for bad in ["EXCEPT", "@net", "host.example", "192.0.2.0/255.0.255.0", "1.2.3.4.5.", "."] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_as_samba_writes_them() {
        for (word, who) in
            [("ann", "ann"), ("DOM\\ann", "ann"), ("@staff", "@staff"), ("+&DOM\\it", "@it")]
        {
            assert_eq!(name(word), Ok(vec![who.to_owned()]), "{word}");
        }
        assert!(name("%S").is_err() && name("@").is_err());
    }
}
