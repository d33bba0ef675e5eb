//! `scan` of a share: its files are scanned for viruses.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use super::limits::{SCAN_SECONDS_MAX, SCANS_AT_ONCE_MAX};
use super::values::{FoundChoice, ScanTime, Size, UnscannedChoice};

/// The port of clamd over TCP, where the address names none.
const CLAMD_PORT: u16 = 3310;
/// The port of ICAP, RFC 3507 4.2.
const ICAP_PORT: u16 = 1344;

/// `[share.scan]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanSection {
    /// The service that scans.
    pub service: ScanService,
    /// The moments at which files are scanned.
    #[serde(default = "always")]
    pub when: Vec<ScanTime>,
    /// The fate of a file with a virus.
    #[serde(default = "deny")]
    pub found: FoundChoice,
    /// The folder for `found = "quarantine"`.
    #[serde(default)]
    pub quarantine: Option<PathBuf>,
    /// The end of the new name for `found = "rename"`.
    #[serde(default = "suffix")]
    pub suffix: String,
    /// Larger files are not scanned.
    #[serde(default = "max_size")]
    pub max_size: Size,
    /// Seconds for one scan.
    #[serde(default = "timeout")]
    pub timeout_seconds: u32,
    /// The fate of an open of a file that cannot be scanned.
    #[serde(default = "refuse")]
    pub unscanned: UnscannedChoice,
    /// Scans at one time.
    #[serde(default = "at_once")]
    pub at_once: u32,
    /// Patterns of paths that are not scanned.
    #[serde(default)]
    pub exclude: Vec<String>,
}

fn always() -> Vec<ScanTime> {
    vec![ScanTime::Open, ScanTime::Close]
}

const fn deny() -> FoundChoice {
    FoundChoice::Deny
}

fn suffix() -> String {
    String::from(".infected")
}

const fn max_size() -> Size {
    Size(100 << 20)
}

const fn timeout() -> u32 {
    30
}

const fn refuse() -> UnscannedChoice {
    UnscannedChoice::Deny
}

const fn at_once() -> u32 {
    4
}

/// The address of a service that scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanService {
    /// clamd at a Unix socket: `clamd:/run/clamav/clamd.ctl`.
    ClamdSocket(PathBuf),
    /// clamd over TCP: `clamd://host:3310`.
    Clamd {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A service of ICAP: `icap://host:1344/service`.
    Icap {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The path of the service, without its first slash.
        service: String,
    },
}

/// A host with its port. None for a text that is none.
pub(super) fn endpoint(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = if port.is_empty() { usual } else { port.parse().ok().filter(|port| *port != 0)? };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let is_host = (1..=253).contains(&host.len()) && host.chars().all(is_plain);
    is_host.then(|| (host.to_owned(), port))
}

impl FromStr for ScanService {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            if let Some(rest) = text.strip_prefix("clamd://") {
                let (host, port) = endpoint(rest.trim_end_matches('/'), CLAMD_PORT)?;
                return Some(Self::Clamd { host, port });
            }
            if let Some(path) = text.strip_prefix("clamd:") {
                let is_path = path.starts_with('/') && path.len() < 108 && !path.contains('\0');
                return is_path.then(|| Self::ClamdSocket(PathBuf::from(path)));
            }
            let (rest, service) = text.strip_prefix("icap://")?.split_once('/')?;
            let (host, port) = endpoint(rest, ICAP_PORT)?;
            // The path is a part of the request's first line.
            let is_path = service.bytes().all(|byte| byte.is_ascii_graphic());
            let is_service = is_path && (1..=255).contains(&service.len());
            is_service.then(|| Self::Icap { host, port, service: service.to_owned() })
        };
        parse().ok_or_else(|| {
            format!(
                "{text:?} is not a service that scans: write \"clamd:/run/clamav/clamd.ctl\", \
                 \"clamd://HOST:3310\" or \"icap://HOST:1344/SERVICE\""
            )
        })
    }
}

impl fmt::Display for ScanService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |host: &str| {
            if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
        };
        match self {
            Self::ClamdSocket(path) => write!(f, "clamd:{}", path.display()),
            Self::Clamd { host, port } => write!(f, "clamd://{}:{port}", shown(host)),
            Self::Icap { host, port, service } => {
                write!(f, "icap://{}:{port}/{service}", shown(host))
            }
        }
    }
}

impl<'de> Deserialize<'de> for ScanService {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl ScanSection {
    /// True if files are scanned at this moment.
    pub fn scans_at(&self, time: ScanTime) -> bool {
        self.when.contains(&time)
    }

    /// The fault of values that cannot be used.
    pub(super) fn fault(&self) -> Option<String> {
        if self.when.is_empty() {
            return Some(String::from("scan: `when` must name \"open\", \"close\" or both"));
        }
        if !(1..=SCAN_SECONDS_MAX).contains(&self.timeout_seconds) {
            return Some(format!("scan: timeout_seconds must be 1 to {SCAN_SECONDS_MAX}"));
        }
        if !(1..=SCANS_AT_ONCE_MAX).contains(&self.at_once) {
            return Some(format!("scan: at_once must be 1 to {SCANS_AT_ONCE_MAX}"));
        }
        if self.max_size.0 == 0 {
            return Some(String::from("scan: max_size must be more than 0"));
        }
        let is_suffix = (1..=32).contains(&self.suffix.len())
            && self.suffix.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
            && !self.suffix.ends_with('.');
        if !is_suffix {
            let what =
                "scan: suffix must be 1 to 32 letters, digits and . - _, such as \".infected\"";
            return Some(String::from(what));
        }
        match (&self.quarantine, self.found) {
            (None, FoundChoice::Quarantine) => {
                Some(String::from("scan: found = \"quarantine\" needs the folder `quarantine`"))
            }
            (Some(folder), FoundChoice::Quarantine) if !folder.is_absolute() => {
                Some(format!("scan: the folder {} is not absolute", folder.display()))
            }
            (Some(_), FoundChoice::Deny | FoundChoice::Rename) => {
                Some(String::from("scan: `quarantine` needs found = \"quarantine\""))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn services_have_addresses() {
        for (text, shown) in [
            ("clamd:/run/clamav/clamd.ctl", "clamd:/run/clamav/clamd.ctl"),
            ("clamd://scanner", "clamd://scanner:3310"),
            ("clamd://[2001:db8::1]:99", "clamd://[2001:db8::1]:99"),
            ("icap://10.0.0.1/srv_clamav", "icap://10.0.0.1:1344/srv_clamav"),
            ("icap://scanner:11344/avscan?x=1", "icap://scanner:11344/avscan?x=1"),
        ] {
            let service: ScanService = text.parse().unwrap();
            assert_eq!(service.to_string(), shown);
            assert_eq!(shown.parse::<ScanService>().unwrap(), service);
        }
        for text in [
            "",
            "clamd:",
            "clamd:clamd.ctl",
            "clamd://",
            "clamd://a:0",
            "clamd://a b",
            "icap://a",
            "icap://a/",
            "icap://a/b c",
            "icap://a/b\r\nX: y",
            "icap://[fe80]/a",
            "http://a/b",
        ] {
            text.parse::<ScanService>().unwrap_err();
        }
    }

    fn faults(scan: &str, keys: &str, more: &str) -> Vec<String> {
        let text = format!(
            "[[share]]\nname = \"a\"\npath = \"/srv/a\"\n\
             scan = {{ service = \"clamd:/run/c.ctl\", {scan} }}\n{keys}\n{more}\n"
        );
        let faults = Config::parse(&text).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(faults("found = \"rename\"", "", ""), [] as [&str; 0]);
        for (scan, part) in [
            ("when = []", "`when`"),
            ("timeout_seconds = 0", "timeout_seconds"),
            ("at_once = 0", "at_once"),
            ("at_once = 1000", "at_once"),
            ("max_size = 0", "max_size"),
            ("suffix = \"/x\"", "suffix"),
            ("found = \"quarantine\"", "needs the folder"),
            ("quarantine = \"/q\"", "needs found"),
            ("found = \"quarantine\", quarantine = \"q\"", "not absolute"),
            ("found = \"quarantine\", quarantine = \"/srv/a/q\"", "share a"),
        ] {
            let found = faults(scan, "", "");
            assert!(found.len() == 1 && found[0].contains(part), "{scan}: {found:?}");
        }
        let other = "[[share]]\nname = \"b\"\npath = \"/srv/b\"\n";
        let quarantine = "found = \"quarantine\", quarantine = \"/srv/b/q\"";
        assert!(faults(quarantine, "", other)[0].contains("share b"));
        for keys in ["read_only = true", "worm = { after = \"1 day\" }"] {
            assert!(
                faults("found = \"rename\"", keys, "")[0].contains("found = \"deny\""),
                "{keys}"
            );
            assert_eq!(faults("found = \"deny\"", keys, ""), [] as [&str; 0]);
        }
    }
}
