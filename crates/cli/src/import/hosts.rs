//! Converts `hosts allow` and `hosts deny` to networks.
//!
//! Samba's lists have exceptions (`ALL EXCEPT 192.0.2.0/24`). Frevo's have none, so the sets of
//! addresses are computed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::words::list;

/// Networks that a converted list has at most.
const NETWORKS_MAX: usize = 256;
/// Bits of an IPv6 address before an IPv4 one in it begins.
const MAPPED: u32 = 96;

/// Addresses that begin alike. IPv4 is `::ffff:0:0/96`, as in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    first: u128,
    length: u32,
}

const EVERYWHERE: Prefix = Prefix { first: 0, length: 0 };

impl Prefix {
    fn new(address: IpAddr, length: u32) -> Self {
        let (bits, length) = match address {
            IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), length + MAPPED),
            IpAddr::V6(address) => (address.to_bits(), length),
        };
        let host = u128::MAX.checked_shr(length).unwrap_or(0);
        Self { first: bits & !host, length }
    }

    const fn contains(self, other: Self) -> bool {
        self.length <= other.length && (self.first ^ other.first).leading_zeros() >= self.length
    }

    /// Both halves of a network that has more than one address.
    fn halves(self) -> [Self; 2] {
        let length = self.length + 1;
        let upper = 1_u128.checked_shl(128 - length).unwrap_or(0);
        [Self { first: self.first, length }, Self { first: self.first | upper, length }]
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = Ipv6Addr::from_bits(self.first);
        match address.to_ipv4_mapped().filter(|_| self.length >= MAPPED) {
            Some(v4) => write!(f, "{v4}/{}", self.length - MAPPED),
            None => write!(f, "{address}/{}", self.length),
        }
    }
}

/// The addresses of `from` that `taken` does not have.
fn subtract(from: &[Prefix], taken: &[Prefix]) -> Vec<Prefix> {
    let mut left = Vec::new();
    let mut open: Vec<Prefix> = from.iter().rev().copied().collect();
    while let Some(network) = open.pop() {
        if taken.iter().any(|taken| taken.contains(network)) {
            continue;
        }
        if taken.iter().any(|taken| network.contains(*taken)) {
            let [lower, upper] = network.halves();
            open.extend([upper, lower]);
        } else {
            left.push(network);
        }
    }
    left
}

/// The addresses that are in both.
fn intersect(a: &[Prefix], b: &[Prefix]) -> Vec<Prefix> {
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b)));
    let mut both: Vec<Prefix> = Vec::new();
    for (a, b) in pairs {
        let inner = if a.contains(b) { b } else { a };
        if (a.contains(b) || b.contains(a)) && !both.contains(&inner) {
            both.push(inner);
        }
    }
    both
}

/// A list and its exceptions.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    listed: Vec<Prefix>,
    except: Vec<Prefix>,
}

impl List {
    fn parse(value: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut excepts = 0;
        for word in list(value) {
            if word.eq_ignore_ascii_case("EXCEPT") {
                excepts += 1;
            } else if excepts == 0 {
                parsed.listed.extend(networks(&word)?);
            } else {
                parsed.except.extend(networks(&word)?);
            }
        }
        if excepts > 1 {
            return Err(String::from("more than one EXCEPT is not supported"));
        }
        Ok(parsed)
    }

    fn is_everywhere(&self) -> bool {
        self.listed.contains(&EVERYWHERE)
    }
}

/// The rules for addresses of a share, as `[[share]]` has them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Hosts {
    pub(super) allow: Vec<Prefix>,
    pub(super) deny: Vec<Prefix>,
}

impl Hosts {
    /// The rules that mean the same as Samba's two lists.
    ///
    /// # Errors
    /// The option without an equal, and the reason.
    pub(super) fn convert(
        allow: Option<&str>,
        deny: Option<&str>,
    ) -> Result<Self, (&'static str, String)> {
        let parse = |name: &'static str, value: Option<&str>| {
            let value = value.filter(|value| !value.trim().is_empty());
            value.map(List::parse).transpose().map_err(|why| (name, why))
        };
        let (allow, deny) = (parse("hosts allow", allow)?, parse("hosts deny", deny)?);
        let hosts = match (allow, deny) {
            (None, None) => Self::default(),
            (Some(allow), None) if allow.is_everywhere() => Self::all_but(allow.except),
            (Some(allow), None) => Self::only(subtract(&allow.listed, &allow.except)),
            (None, Some(deny)) => Self { allow: deny.except, deny: deny.listed },
            (Some(allow), Some(deny)) if allow.is_everywhere() => {
                let both = intersect(&allow.except, &deny.listed);
                let exceptions = if both.is_empty() { Vec::new() } else { deny.except };
                Self { allow: exceptions, deny: both }
            }
            (Some(allow), Some(deny)) => {
                let mut let_in = subtract(&allow.listed, &allow.except);
                let_in.extend(deny.except);
                Self { allow: let_in, deny: deny.listed }
            }
        };
        if hosts.allow.len().max(hosts.deny.len()) > NETWORKS_MAX {
            return Err(("hosts allow", format!("they are more than {NETWORKS_MAX} networks")));
        }
        // A list of allowed hosts already excludes all other hosts, so the denial of everything is
        // not needed.
        if hosts.deny.contains(&EVERYWHERE) && !hosts.allow.is_empty() {
            return Ok(Self::only(hosts.allow));
        }
        Ok(hosts)
    }

    const fn all_but(deny: Vec<Prefix>) -> Self {
        Self { allow: Vec::new(), deny }
    }

    /// Only these addresses; an empty list lets nobody in.
    fn only(allow: Vec<Prefix>) -> Self {
        if allow.is_empty() {
            Self::all_but(vec![EVERYWHERE])
        } else {
            Self { allow, deny: vec![] }
        }
    }

    /// The rules under which both `self` and `other` let an address in; None when they cannot be
    /// put so.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let nothing = Self::default();
        if self == other || *other == nothing {
            return Some(self.clone());
        }
        if *self == nothing {
            return Some(other.clone());
        }
        match (
            self.allow.is_empty(),
            self.deny.is_empty(),
            other.allow.is_empty(),
            other.deny.is_empty(),
        ) {
            (false, true, false, true) => Some(Self::only(intersect(&self.allow, &other.allow))),
            (true, false, true, false) => {
                Some(Self::all_but(self.deny.iter().chain(&other.deny).copied().collect()))
            }
            (false, true, true, false) => Some(Self::only(subtract(&self.allow, &other.deny))),
            (true, false, false, true) => Some(Self::only(subtract(&other.allow, &self.deny))),
            (false, true, false, false) => Some(Self::only(other.let_in_of(&self.allow))),
            (false, false, false, true) => Some(Self::only(self.let_in_of(&other.allow))),
            _ => None,
        }
        .filter(|hosts| hosts.allow.len().max(hosts.deny.len()) <= NETWORKS_MAX)
    }

    /// The addresses of `from` that these rules let in, which have both lists.
    fn let_in_of(&self, from: &[Prefix]) -> Vec<Prefix> {
        let mut let_in = intersect(from, &self.allow);
        let not_denied = subtract(from, &self.deny);
        let_in.extend(subtract(&not_denied, &let_in.clone()));
        let_in
    }

    /// The keys of `[[share]]` with their networks; none for an empty list.
    pub(super) fn keys(&self) -> Vec<(&'static str, Vec<String>)> {
        [("hosts_allow", &self.allow), ("hosts_deny", &self.deny)]
            .into_iter()
            .filter(|(_, networks)| !networks.is_empty())
            .map(|(key, networks)| (key, networks.iter().map(ToString::to_string).collect()))
            .collect()
    }
}

/// The networks of a word as hosts_access(5) writes it.
fn networks(word: &str) -> Result<Vec<Prefix>, String> {
    let upper = word.to_ascii_uppercase();
    match &*upper {
        "ALL" => return Ok(vec![EVERYWHERE]),
        "LOCAL" | "FAIL" => return Err(format!("{upper} is not supported; list the networks")),
        "LOCALHOST" => return Ok(vec![parse("127.0.0.0/8")?, parse("::1")?]),
        _ => {}
    }
    if word.starts_with('@') {
        return Err(format!("{word}: netgroups are not supported; list the addresses"));
    }
    // In smb.conf the text `192.0.2.` means all addresses that begin with it, here the network
    // 192.0.2.0/24.
    if let Some(begun) = word.strip_suffix('.') {
        let parts = begun.split('.').count();
        let whole = format!("{begun}{}", ".0".repeat(4_usize.saturating_sub(parts)));
        let network = parse(&format!("{whole}/{}", parts * 8));
        return network.map(|network| vec![network]).map_err(|_| name(word));
    }
    parse(word).map(|network| vec![network])
}

/// The network of an address and a prefix or a mask, as `192.0.2.0/24`.
///
/// # Errors
/// The reason why the word is no network.
pub(super) fn network(word: &str) -> Result<String, String> {
    parse(word).map(|network| network.to_string())
}

/// An address, a prefix, or an address and a mask.
fn parse(word: &str) -> Result<Prefix, String> {
    let (address, mask) = word.split_once('/').map_or((word, None), |(a, mask)| (a, Some(mask)));
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(address).parse().map_err(|_| name(word))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match mask {
        None => most,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) => {
            let length = digits.parse::<u32>().ok().filter(|length| *length <= most);
            length.ok_or_else(|| format!("{word}: the prefix is longer than {most}"))?
        }
        Some(mask) => {
            let mask: Ipv4Addr =
                mask.parse().map_err(|_| format!("{word}: unknown network mask"))?;
            let mask = mask.to_bits();
            if !address.is_ipv4() || mask.leading_ones() != mask.count_ones() {
                return Err(format!("{word}: the network mask is not contiguous"));
            }
            mask.leading_ones()
        }
    };
    Ok(Prefix::new(address, length))
}

fn name(word: &str) -> String {
    format!("{word}: names of hosts are not supported; list the addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(allow: &str, deny: &str) -> String {
        let hosts = Hosts::convert(Some(allow), Some(deny)).unwrap();
        let keys = hosts.keys();
        let keys = keys.iter().map(|(key, networks)| format!("{key} {}", networks.join(" ")));
        keys.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn hosts_as_samba_writes_them() {
        for (word, network) in [
            ("192.0.2.", "192.0.2.0/24"),
            ("10.", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.9/24", "192.0.2.0/24"),
            ("192.0.2.9/255.255.255.0", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.9/0.0.0.0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("[2001:db8::]/32", "2001:db8::/32"),
            ("all", "::/0"),
        ] {
            let found: Vec<String> =
                networks(word).unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(found, [network], "{word}");
        }
        for bad in [
            "@net",
            "host.example",
            "192.0.2.0/255.0.255.0",
            "1.2.3.4.5.",
            ".",
            "LOCAL",
            "FAIL",
            "192.0.2.0/33",
            "192.0.2.0/",
            "2001:db8::/255.0.0.0",
            ".example.com",
            "192.0.2",
        ] {
            assert!(networks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_with_exceptions_mean_the_same() {
        for (allow, deny, keys) in [
            ("", "", ""),
            ("192.0.2. 127.", "", "hosts_allow 192.0.2.0/24 127.0.0.0/8"),
            ("ALL", "", ""),
            ("", "ALL", "hosts_deny ::/0"),
            // In `hosts deny`, ALL EXCEPT a network means that only the hosts of this network are
            // admitted.
            ("", "ALL EXCEPT 192.0.2.0/24", "hosts_allow 192.0.2.0/24"),
            ("", "192.0.2. EXCEPT 192.0.2.7", "hosts_allow 192.0.2.7/32; hosts_deny 192.0.2.0/24"),
            ("ALL EXCEPT 192.0.2.7", "", "hosts_deny 192.0.2.7/32"),
            ("192.0.2.0/30 EXCEPT 192.0.2.1", "", "hosts_allow 192.0.2.0/32 192.0.2.2/31"),
            ("192.0.2. EXCEPT ALL", "", "hosts_deny ::/0"),
            ("192.0.2.7", "ALL", "hosts_allow 192.0.2.7/32"),
            (
                "192.0.2.7",
                "10. EXCEPT 10.1.",
                "hosts_allow 192.0.2.7/32 10.1.0.0/16; hosts_deny 10.0.0.0/8",
            ),
            ("ALL EXCEPT 10.", "192.0.2.", ""),
            (
                "ALL EXCEPT 10.",
                "10.1. EXCEPT 10.1.1.1",
                "hosts_allow 10.1.1.1/32; hosts_deny 10.1.0.0/16",
            ),
        ] {
            assert_eq!(converted(allow, deny), keys, "allow {allow}, deny {deny}");
        }
        assert!(Hosts::convert(Some("ALL EXCEPT 10. EXCEPT 10.1."), None).is_err());
        assert!(Hosts::convert(None, Some("ALL EXCEPT pc.example")).is_err());
        // Each excluded IPv6 address splits the network into up to 128 smaller ones; three excluded
        // addresses make too many.
        assert!(
            Hosts::convert(Some("2001::/16 EXCEPT 2001::1 2001:8::1 2001:9::1"), None).is_err()
        );
    }

    /// Each rule is compared with Samba's meaning, address by address.
    #[test]
    fn conversions_agree_with_the_lists_on_all_addresses() {
        let words = [
            "",
            "ALL",
            "10.0.0.0/30",
            "10.0.0.1",
            "10.0.0.0/29 EXCEPT 10.0.0.1",
            "ALL EXCEPT 10.0.0.0/30",
            "10.0.0.4/30 EXCEPT 10.0.0.0/29",
        ];
        let is_in = |list: &List, at: Prefix| {
            let any = |networks: &[Prefix]| networks.iter().any(|n| n.contains(at));
            any(&list.listed) && !any(&list.except)
        };
        for (allow, deny) in words.iter().flat_map(|a| words.iter().map(move |d| (*a, *d))) {
            let lists = (List::parse(allow).unwrap(), List::parse(deny).unwrap());
            let hosts = Hosts::convert(Some(allow), Some(deny)).unwrap();
            for last in 0..10 {
                let at = Prefix::new(IpAddr::from([10, 0, 0, last]), 32);
                let samba = match (allow.is_empty(), deny.is_empty()) {
                    (true, true) => true,
                    (false, true) => is_in(&lists.0, at),
                    (true, false) => !is_in(&lists.1, at),
                    (false, false) => is_in(&lists.0, at) || !is_in(&lists.1, at),
                };
                let listed = |networks: &[Prefix]| networks.iter().any(|n| n.contains(at));
                let frevo = if hosts.deny.is_empty() {
                    hosts.allow.is_empty() || listed(&hosts.allow)
                } else {
                    listed(&hosts.allow) || !listed(&hosts.deny)
                };
                assert_eq!(frevo, samba, "allow {allow}, deny {deny}, 10.0.0.{last}");
            }
        }
    }

    #[test]
    fn rules_of_the_server_and_of_a_share_both_hold() {
        let hosts = |allow: &str, deny: &str| Hosts::convert(Some(allow), Some(deny)).unwrap();
        let near = hosts("10.0.0.0/8", "");
        assert_eq!(near.and(&hosts("10.1. 192.0.2.", "")), Some(hosts("10.1.", "")));
        assert_eq!(near.and(&hosts("192.0.2.", "")), Some(hosts("", "ALL")));
        assert_eq!(near.and(&hosts("", "")), Some(near.clone()));
        assert_eq!(hosts("", "10.").and(&hosts("", "11.")), Some(hosts("", "10. 11.")));
        assert_eq!(
            hosts("10.0.0.0/31", "").and(&hosts("", "10.0.0.1")),
            Some(hosts("10.0.0.0", ""))
        );
        let both = hosts("10.1.", "10.0.0.0/9");
        let joined = "10.1. 10.128.0.0/9";
        assert_eq!(near.and(&both), Some(hosts(joined, "")));
        assert_eq!(both.and(&near), Some(hosts(joined, "")));
        // A common smb.conf: [global] allows a network (`near`), and a share allows one host and
        // denies all others.
        let one = hosts("10.1.1.1", "0.0.0.0/0");
        assert_eq!(near.and(&one), Some(hosts("10.1.1.1", "")));
        assert_eq!(hosts("192.0.2.", "").and(&one), Some(hosts("", "ALL")));
        assert_eq!(both.and(&hosts("11.", "10. 12.")), None);
    }
}
