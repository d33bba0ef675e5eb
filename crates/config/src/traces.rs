//! `[traces]`: the collector of OpenTelemetry to which spans are sent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// `[traces]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TracesSection {
    /// The collector; None sends nothing.
    pub endpoint: Option<Endpoint>,
    /// The fraction of the requests whose spans are sent, from 0 to 1. None: all.
    pub sample: Option<Fraction>,
}

/// The place of a collector: `http://HOST[:PORT][/PATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port of TCP.
    pub port: u16,
    /// The path, from its first slash on.
    pub path: String,
}

/// The port for OTLP over HTTP (opentelemetry.io, OTLP specification).
const PORT: u16 = 4318;
/// The path for traces, where the endpoint has none.
const PATH: &str = "/v1/traces";

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not the address of a collector, such as \
                 http://127.0.0.1:4318/v1/traces"
            )
        };
        if text.starts_with("https:") {
            return Err(format!(
                "{text:?}: traces are sent without TLS; use a collector on this machine, or a \
                 proxy that encrypts"
            ));
        }
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or_else(wrong)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
                (host, port)
            }
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
            None if port.is_empty() => PORT,
            None => return Err(wrong()),
        };
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '"' | '\\');
        if host.is_empty() || !text.chars().all(is_plain) {
            return Err(wrong());
        }
        let path = if matches!(path, "" | "/") { PATH } else { path };
        Ok(Self { host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        if host.contains(':') {
            write!(f, "http://[{host}]:{port}{path}")
        } else {
            write!(f, "http://{host}:{port}{path}")
        }
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A part of a whole, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fraction(pub f64);

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(de::Error::custom("it must be a number from 0.0 to 1.0"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_addresses() {
        for (text, whole) in [
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector", "http://collector:4318/v1/traces"),
            ("http://collector:80/", "http://collector:80/v1/traces"),
            ("http://[::1]:4318/x/y", "http://[::1]:4318/x/y"),
            ("http://[::1]", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), whole, "{text}");
        }
        for bad in [
            "",
            "collector:4318",
            "http://",
            "http://:4318",
            "http://a:0",
            "http://a:65536",
            "http://a:x",
            "http://[::1",
            "http://[a]:1",
            "http://[::1]x",
            "http://ann@a",
            "http://a/b c",
            "http://a/?x",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
        assert!("https://a".parse::<Endpoint>().unwrap_err().contains("without TLS"));
    }

    #[test]
    fn a_sample_is_a_part() {
        let read = |text: &str| toml::from_str::<TracesSection>(text);
        assert_eq!(read("sample = 0.25").unwrap().sample, Some(Fraction(0.25)));
        for bad in ["sample = 1.5", "sample = -0.1", "sample = nan", "sample = \"all\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
