//! Places to listen on: addresses, interfaces and networks.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use frevo_net::IpNetwork;
use serde::{Deserialize, Deserializer, de};

/// Where to listen: an address, an interface by name, or everywhere, each with
/// a port or without. `192.0.2.1`, `192.0.2.1:4450`, `[::1]:445`, `eth0`,
/// `eth0:4450`, `:4450`, `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The addresses to listen on.
    pub on: ListenOn,
    /// The port; none means the usual one.
    pub port: Option<u16>,
}

/// An address or an interface to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenOn {
    /// All addresses of the host.
    Everywhere,
    /// This address of the host.
    Address(IpAddr),
    /// The addresses of an interface.
    Interface(String),
    /// The addresses of this machine that are in a network.
    Network(IpNetwork),
}

impl Listen {
    /// Every address, the usual port.
    pub const EVERYWHERE: Self = Self { on: ListenOn::Everywhere, port: None };
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address or interface to listen on, such as 192.0.2.1, \
                 192.0.2.1:4450, [2001:db8::1]:4450, eth0, 192.0.2.0/24 or :4450"
            )
        };
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { on: ListenOn::Address(address), port: None });
        }
        if let Some(network) = text.contains('/').then(|| text.parse()).and_then(Result::ok) {
            return Ok(Self { on: ListenOn::Network(network), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| wrong())?))
            }
            _ => (text, None),
        };
        let on = match host {
            "" if port.is_none() => return Err(wrong()),
            "" | "*" => ListenOn::Everywhere,
            bracketed if bracketed.starts_with('[') => {
                let inner = bracketed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let inner = inner.ok_or_else(wrong)?;
                match inner.parse::<Ipv6Addr>() {
                    Ok(address) => ListenOn::Address(IpAddr::V6(address)),
                    Err(_) => ListenOn::Network(v6_network(inner).ok_or_else(wrong)?),
                }
            }
            name if is_interface_name(name) => ListenOn::Interface(name.to_owned()),
            network if network.contains('/') && !network.contains(':') => {
                ListenOn::Network(network.parse()?)
            }
            // An IPv6 address must be in brackets, because its last group could be taken for a
            // port.
            host => match host.parse::<IpAddr>().map_err(|_| wrong())? {
                address @ IpAddr::V4(_) => ListenOn::Address(address),
                IpAddr::V6(_) => return Err(wrong()),
            },
        };
        Ok(Self { on, port })
    }
}

/// A network of IPv6 addresses.
fn v6_network(text: &str) -> Option<IpNetwork> {
    text.parse().ok().filter(|_| text.contains(':') && text.contains('/'))
}

/// True for a name that Linux could give to an interface and that cannot be meant as an
/// address.
fn is_interface_name(name: &str) -> bool {
    /// IFNAMSIZ without its last byte.
    const LEN_MAX: usize = 15;
    name.len() <= LEN_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@'))
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.on, self.port) {
            (ListenOn::Everywhere, None) => f.write_str("*"),
            (ListenOn::Everywhere, Some(port)) => write!(f, ":{port}"),
            (ListenOn::Address(address), None) => write!(f, "{address}"),
            (ListenOn::Address(address), Some(port)) => {
                write!(f, "{}", std::net::SocketAddr::new(*address, port))
            }
            (ListenOn::Network(network), None) => write!(f, "{network}"),
            (ListenOn::Network(network), Some(port)) => match network.to_string() {
                v6 if v6.contains(':') => write!(f, "[{v6}]:{port}"),
                v4 => write!(f, "{v4}:{port}"),
            },
            (ListenOn::Interface(name), None) => f.write_str(name),
            (ListenOn::Interface(name), Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on() {
        let address = |address: &str| ListenOn::Address(address.parse().unwrap());
        let network = |network: &str| ListenOn::Network(network.parse().unwrap());
        let interface = |name: &str| ListenOn::Interface(name.to_owned());
        for (text, on, port) in [
            ("192.0.2.1", address("192.0.2.1"), None),
            ("192.0.2.1:4450", address("192.0.2.1"), Some(4450)),
            ("::1", address("::1"), None),
            ("2001:db8::445", address("2001:db8::445"), None),
            ("[::1]", address("::1"), None),
            ("[::1]:4450", address("::1"), Some(4450)),
            ("eth0", interface("eth0"), None),
            ("br-lan.7:445", interface("br-lan.7"), Some(445)),
            ("192.0.2.0/24", network("192.0.2.0/24"), None),
            ("192.0.2.0/24:4450", network("192.0.2.0/24"), Some(4450)),
            ("2001:db8::/32", network("2001:db8::/32"), None),
            ("[2001:db8::/32]:4450", network("2001:db8::/32"), Some(4450)),
            (":4450", ListenOn::Everywhere, Some(4450)),
            ("*:4450", ListenOn::Everywhere, Some(4450)),
            ("*", ListenOn::Everywhere, None),
        ] {
            let want = Listen { on, port };
            assert_eq!(text.parse(), Ok(want.clone()), "{text}");
            assert_eq!(want.to_string().parse(), Ok(want), "{text}");
        }
        for bad in [
            "",
            ":",
            ":x",
            "1.2.3",
            "1.2.3.4:",
            "1.2.3.4:65536",
            "[::1",
            "[1.2.3.4]",
            "no where",
            "a-name-that-is-too-long",
            "::1::445",
            "192.0.2.1/24",
            "192.0.2.0/33",
            "192.0.2.0/24:x",
            "[192.0.2.0/24]:445",
            "2001:db8::/32:445",
        ] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
    }
}
