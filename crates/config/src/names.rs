//! Names of shares, servers and accounts.

use std::fmt;
use std::str::FromStr;

use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use serde::{Deserialize, Deserializer, de};

use super::limits::DOMAIN_NAME_BYTES;

/// Longest share name in characters, MS-FSCC 2.1.6.
const SHARE_NAME_LEN_MAX: usize = 80;

/// Longest server name in characters: NetBIOS names are 16 bytes, the last of
/// which is a suffix.
const SERVER_NAME_LEN_MAX: usize = 15;

/// Longest account name in UTF-16 units.
const ACCOUNT_NAME_UNITS_MAX: usize = frevo_auth::limits::MAX_NAME_UNITS;

/// Characters that MS-FSCC 2.1.6 excludes from share names.
const NOT_IN_SHARE_NAMES: &[char] =
    &['"', '/', '\\', '[', ']', ':', '|', '<', '>', '+', '=', ';', ',', '*', '?'];

/// Characters that SAM excludes from account names; `:` also ends a name in an account file.
const NOT_IN_ACCOUNT_NAMES: &[char] = NOT_IN_SHARE_NAMES;

/// Names that mean something to clients, or did.
const RESERVED_SHARE_NAMES: &[&str] = &["IPC$", "ADMIN$", "PRINT$", "PIPE", "MAILSLOT"];

macro_rules! name {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// Returns the name as it is written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

name! {
    /// A share's name. Clients compare it without case.
    ShareName
}

impl ShareName {
    /// A name that is allowed and looks like `text`.
    pub fn like(text: &str) -> Option<Self> {
        let fixed: String = text
            .chars()
            .map(|c| if NOT_IN_SHARE_NAMES.contains(&c) || c.is_control() { '_' } else { c })
            .take(SHARE_NAME_LEN_MAX)
            .collect();
        fixed.trim().parse().ok()
    }

    /// The name of what has none.
    pub fn fallback() -> Self {
        Self(String::from("share"))
    }

    /// True when clients take both for the same share.
    pub fn is_same(&self, other: &Self) -> bool {
        fold_name(&self.0) == fold_name(&other.0)
    }
}

impl FromStr for ShareName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(String::from("a share needs a name"));
        }
        if text.chars().count() > SHARE_NAME_LEN_MAX {
            return Err(format!(
                "the share name \"{:.20}...\" is longer than {SHARE_NAME_LEN_MAX} characters",
                text
            ));
        }
        if let Some(bad) = text.chars().find(|c| NOT_IN_SHARE_NAMES.contains(c) || c.is_control()) {
            return Err(format!(
                "the share name {text:?} contains {bad:?}, which is not allowed in share names"
            ));
        }
        if text.trim() != text || text.ends_with('.') {
            return Err(format!(
                "the share name {text:?} must not begin or end with a blank, or end with a period"
            ));
        }
        if RESERVED_SHARE_NAMES.iter().any(|name| name.eq_ignore_ascii_case(text)) {
            return Err(format!("the share name {text:?} is reserved; choose another"));
        }
        Ok(Self(text.to_owned()))
    }
}

name! {
    /// The server's NetBIOS name, upper case.
    ServerName
}

impl ServerName {
    /// The name that goes with a host name: its first label, as far as allowed.
    pub fn of_host(host: &str) -> Self {
        let label = host.split('.').next().unwrap_or_default();
        let fixed: String =
            label.chars().filter(|c| is_in_server_name(*c)).take(SERVER_NAME_LEN_MAX).collect();
        if fixed.is_empty() {
            Self(String::from("FREVO"))
        } else {
            Self(fixed.to_ascii_uppercase())
        }
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = !text.is_empty() && text.chars().all(is_in_server_name);
        if !allowed || text.len() > SERVER_NAME_LEN_MAX {
            return Err(format!(
                "the server name {text:?} must have 1 to {SERVER_NAME_LEN_MAX} letters, digits, - or _"
            ));
        }
        Ok(Self(text.to_ascii_uppercase()))
    }
}

const fn is_in_server_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

name! {
    /// A user's name. Compared without case.
    AccountName
}

impl FromStr for AccountName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() != text || text.is_empty() {
            return Err(format!(
                "the user name {text:?} must not be empty, and not begin or end with a blank"
            ));
        }
        if text.encode_utf16().count() > ACCOUNT_NAME_UNITS_MAX {
            return Err(format!(
                "the user name is longer than {ACCOUNT_NAME_UNITS_MAX} characters"
            ));
        }
        let bad = text.chars().find(|c| NOT_IN_ACCOUNT_NAMES.contains(c) || c.is_control());
        if let Some(bad) = bad {
            return Err(format!(
                "the user name {text:?} contains {bad:?}, which is not allowed in user names"
            ));
        }
        if text.starts_with('#') {
            return Err(format!("the user name {text:?} must not begin with #"));
        }
        Ok(Self(text.to_owned()))
    }
}

name! {
    /// A user, or with `@` before it a group: of the account file, or of the host. With `DOMAIN\`
    /// before the name it is of a domain.
    Who
}

impl Who {
    /// The name of the group, if it is one.
    pub fn group(&self) -> Option<&str> {
        self.0.strip_prefix('@')
    }

    /// Returns the domain of the name, if it has one.
    pub fn domain(&self) -> Option<&str> {
        let name = self.group().unwrap_or(&self.0);
        name.split_once('\\').map(|(domain, _)| domain)
    }
}

/// True for a short name or a DNS name of a domain.
pub(super) fn is_domain(name: &str) -> bool {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || b".-_".contains(&c);
    (1..=DOMAIN_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_part)
}

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `@` marks a group. The rest of the name is checked, because group names obey the same
        // rules as user names.
        let name = text.strip_prefix('@').unwrap_or(text);
        let (domain, name) = name.split_once('\\').map_or((None, name), |(d, n)| (Some(d), n));
        name.parse::<AccountName>()?;
        if let Some(domain) = domain.filter(|domain| !is_domain(domain)) {
            return Err(format!(
                "{domain:?} before \\ is not the name of a domain, such as EXAMPLE"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The SID of a machine: `S-1-5-21-A-B-C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineSid(pub Sid);

impl FromStr for MachineSid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sid: Option<Sid> = text.parse().ok();
        let is_machine =
            |sid: &Sid| sid.authority() == 5 && matches!(sid.sub_authorities(), [21, _, _, _]);
        sid.filter(is_machine).map(Self).ok_or_else(|| {
            format!("{text:?} is not the SID of a machine; write it as S-1-5-21-A-B-C")
        })
    }
}

impl fmt::Display for MachineSid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for MachineSid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_names_are_bounded() {
        for (n, ok) in [(79, true), (80, true), (81, false)] {
            assert_eq!("é".repeat(n).parse::<ShareName>().is_ok(), ok);
        }
        for bad in ["", " a", "a ", "a.", "a/b", "a\\b", "a:b", "a\tb", "ipc$", "Admin$", "pipe"] {
            assert!(bad.parse::<ShareName>().is_err(), "{bad:?}");
        }
        for good in ["photos", "My Photos", "Büro", "hidden$", "a.b", "a'b", "#1"] {
            assert_eq!(good.parse::<ShareName>().unwrap().as_str(), good);
        }
        assert_eq!(ShareName::like("a:b").unwrap().as_str(), "a_b");
        assert!(ShareName::like("").is_none());
        let (a, b): (ShareName, ShareName) = ("Büro".parse().unwrap(), "BÜRO".parse().unwrap());
        assert!(a.is_same(&b));
    }

    #[test]
    fn server_names_are_netbios_names() {
        for (n, ok) in [(14, true), (15, true), (16, false)] {
            assert_eq!("a".repeat(n).parse::<ServerName>().is_ok(), ok);
        }
        assert_eq!("box-1".parse::<ServerName>().unwrap().as_str(), "BOX-1");
        assert!("a.b".parse::<ServerName>().is_err());
        assert_eq!(ServerName::of_host("nas.example.com").as_str(), "NAS");
        assert_eq!(ServerName::of_host("a-very-long-host-name").as_str(), "A-VERY-LONG-HOS");
        assert_eq!(ServerName::of_host("").as_str(), "FREVO");
    }

    #[test]
    fn account_names_fit_an_account_file() {
        for (n, ok) in [(255, true), (256, true), (257, false)] {
            assert_eq!("a".repeat(n).parse::<AccountName>().is_ok(), ok);
        }
        for bad in ["", "a:b", "#a", " a", "DOM\\a", "a\n"] {
            assert!(bad.parse::<AccountName>().is_err(), "{bad:?}");
        }
        assert!("ann.müller".parse::<AccountName>().is_ok());
    }

    #[test]
    fn names_in_rules_may_have_a_domain() {
        for (name, domain) in [
            ("ann", None),
            ("@staff", None),
            ("EXAMPLE\\ann", Some("EXAMPLE")),
            ("@example.com\\Domain Users", Some("example.com")),
        ] {
            assert_eq!(name.parse::<Who>().unwrap().domain(), domain, "{name}");
        }
        for bad in ["", "@", "A\\", "@A\\", "\\ann", "@\\staff", "A\\b\\c", "A B\\ann", "A/B\\ann"]
        {
            assert!(bad.parse::<Who>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_sid_of_a_machine_has_three_numbers() {
        let sid = "S-1-5-21-3004859244-1309964605-2891807487";
        assert_eq!(sid.parse::<MachineSid>().unwrap().to_string(), sid);
        for bad in ["", "S-1-5-21-1-2", "S-1-5-21-1-2-3-1000", "S-1-5-32-1-2-3", "S-1-22-1-0"] {
            assert!(bad.parse::<MachineSid>().is_err(), "{bad}");
        }
    }
}
