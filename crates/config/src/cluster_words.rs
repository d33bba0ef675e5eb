//! Names, members of etcd and addresses of a cluster.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// The longest name of a cluster, a node or a group, in bytes.
const NAME_BYTES: usize = 64;
/// The longest name of an interface: IFNAMSIZ of linux/if.h, without its zero.
const INTERFACE_BYTES: usize = 15;

/// The name of a cluster, a node or a group: lower-case letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterWord(pub String);

impl FromStr for ClusterWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_' | '.');
        if !(1..=NAME_BYTES).contains(&text.len()) || !text.chars().all(is_plain) {
            return Err(format!(
                "{text:?} must have 1 to {NAME_BYTES} lower-case letters, digits, -, _ and ."
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ClusterWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The place of a member of etcd: `https://HOST[:PORT]`, or `http://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdUrl(pub String);

impl EtcdUrl {
    /// True for `https`.
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// True for an address of this host, where nobody else reads what is sent.
    pub fn is_local(&self) -> bool {
        let host = self.host();
        let is_loopback = |address: IpAddr| address.is_loopback();
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
    }

    /// The host, without the brackets of IPv6.
    fn host(&self) -> &str {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let place = rest.strip_suffix('/').unwrap_or(rest);
        match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) if port.is_empty() || port.starts_with(':') => host,
            _ => place.split_once(':').map_or(place, |(host, _)| host),
        }
    }
}

impl FromStr for EtcdUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_place = |rest: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
            !rest.is_empty() && rest.chars().all(is_plain)
        };
        if !rest.is_some_and(|rest| is_place(rest.strip_suffix('/').unwrap_or(rest))) {
            return Err(format!("{text:?} is not a member of etcd; write https://HOST:2379"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for EtcdUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// An address that moves, with its network and its interface: `192.0.2.20/24%eth0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAddress {
    /// The address.
    pub address: IpAddr,
    /// The bits of its network.
    pub prefix: u8,
    /// The interface. None: the one with an address of the network.
    pub interface: Option<String>,
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)?;
        self.interface.iter().try_for_each(|name| write!(f, "%{name}"))
    }
}

impl FromStr for ClusterAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (place, interface) = match text.split_once('%') {
                Some((place, name)) => (place, Some(name)),
                None => (text, None),
            };
            let (address, prefix) = place.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            let is_own =
                address.is_loopback() || address.is_multicast() || address.is_unspecified();
            let is_name = |name: &str| {
                let is_plain = |c: char| c != '/' && !c.is_whitespace() && !c.is_control();
                (1..=INTERFACE_BYTES).contains(&name.len()) && name.chars().all(is_plain)
            };
            let is_right = (1..=most).contains(&prefix) && !is_own && interface.is_none_or(is_name);
            is_right.then(|| Self { address, prefix, interface: interface.map(str::to_owned) })
        };
        parse().ok_or_else(|| {
            format!(
                "{text:?} is not an address with its network, as 192.0.2.20/24 or \
                 192.0.2.20/24%eth0"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_local_by_its_whole_name() {
        let is_local = |text: &str| text.parse::<EtcdUrl>().unwrap().is_local();
        for local in
            ["127.0.0.1:2379", "127.9.0.1", "[::1]:2379", "[::1]/", "localhost", "LOCALHOST:1/"]
        {
            assert!(is_local(&format!("http://{local}")), "{local}");
        }
        for other in [
            "localhost.example.com:2379",
            "localhost-a",
            "127.example.com",
            "127.0.0.1.example.com",
            "[::1].example.com",
            "[::2]:2379",
            "192.0.2.1",
        ] {
            assert!(!is_local(&format!("http://{other}")), "{other}");
        }
    }
}
