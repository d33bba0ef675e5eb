//! Names of users and services: a realm and the components of a name (RFC 4120 section 6.2).

use crate::limits::{MAX_PRINCIPAL_COMPONENTS, MAX_PRINCIPAL_LEN};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

frevo_wire::open_enum! {
    /// name-type, RFC 4120 section 6.2 and MS-KILE 3.1.5.7.
    NameType(i32) {
        /// NT-UNKNOWN
        UNKNOWN = 0,
        /// NT-PRINCIPAL, a user.
        PRINCIPAL = 1,
        /// NT-SRV-INST, a service and its instance, `krbtgt/REALM`.
        SRV_INST = 2,
        /// NT-SRV-HST, a service and its host, `cifs/host`.
        SRV_HST = 3,
        /// NT-ENTERPRISE, a name that the KDC looks up, `user@dns.domain`.
        ENTERPRISE = 10,
    }
}

/// The name of a user or of a service. Names are equal by realm and components; the name type is
/// a hint (RFC 4120 section 6.2).
#[derive(Debug, Clone)]
pub struct Principal {
    /// The hint of the kind of name.
    pub name_type: NameType,
    /// The components, `["cifs", "files.example.com"]`.
    pub components: Vec<String>,
    /// The realm; empty where a protocol sends it elsewhere.
    pub realm: String,
}

impl Principal {
    /// Makes the name of a user.
    pub fn user(name: &str, realm: &str) -> Self {
        Self {
            name_type: NameType::PRINCIPAL,
            components: [name.into()].into(),
            realm: realm.into(),
        }
    }

    /// Makes the name that a KDC looks up in its realm, such as an e-mail address.
    pub fn enterprise(name: &str, realm: &str) -> Self {
        Self { name_type: NameType::ENTERPRISE, ..Self::user(name, realm) }
    }

    /// Makes the name of a service on a host.
    pub fn service(service: &str, host: &str, realm: &str) -> Self {
        let components = [service.into(), host.into()].into();
        Self { name_type: NameType::SRV_HST, components, realm: realm.into() }
    }

    /// Makes the name of the ticket-granting service of `of`, in the realm whose KDC gives the
    /// ticket.
    pub fn ticket_granting(of: &str, realm: &str) -> Self {
        let components = ["krbtgt".into(), of.into()].into();
        Self { name_type: NameType::SRV_INST, components, realm: realm.into() }
    }

    /// True for the name of a ticket-granting service.
    pub fn is_ticket_granting(&self) -> bool {
        matches!(self.components.as_slice(), [service, _] if service == "krbtgt")
    }

    /// Parses `component/component@REALM`, in which a backslash makes the next character an
    /// ordinary one, as MIT's programs write it. A name without a realm gets `default_realm`. None
    /// for an empty component, two realms, or a name over the limits.
    pub fn parse(text: &str, default_realm: &str) -> Option<Self> {
        if text.len() > MAX_PRINCIPAL_LEN {
            return None;
        }
        let mut components = alloc::vec![String::new()];
        let mut realm: Option<String> = None;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let literal = match character {
                '\\' => match characters.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'b' => '\u{8}',
                    '0' => '\0',
                    other => other,
                },
                '@' if realm.is_some() => return None,
                '@' => {
                    realm = Some(String::new());
                    continue;
                }
                '/' if realm.is_none() => {
                    components.push(String::new());
                    continue;
                }
                other => other,
            };
            realm.as_mut().or(components.last_mut())?.push(literal);
        }
        let realm = realm.unwrap_or_else(|| default_realm.into());
        let is_good = !realm.is_empty()
            && components.len() <= MAX_PRINCIPAL_COMPONENTS
            && components.iter().all(|component| !component.is_empty());
        let name_type = if components.len() == 2 { NameType::SRV_HST } else { NameType::PRINCIPAL };
        is_good.then_some(Self { name_type, components, realm })
    }

    /// Returns the salt of the principal's keys where no KDC tells another: the realm and the
    /// components (RFC 4120 section 4).
    pub fn default_salt(&self) -> String {
        let mut salt = self.realm.clone();
        salt.extend(self.components.iter().map(String::as_str));
        salt
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.components == other.components && self.realm == other.realm
    }
}

impl Eq for Principal {}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, component) in self.components.iter().enumerate() {
            if at > 0 {
                f.write_char('/')?;
            }
            escaped(component, true, f)?;
        }
        if self.realm.is_empty() {
            return Ok(());
        }
        f.write_char('@')?;
        escaped(&self.realm, false, f)
    }
}

/// Writes a part of a name, with a backslash before each character that has a meaning; other
/// control characters are written as Rust escapes, so that a name forges no line of a log.
fn escaped(part: &str, is_component: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for character in part.chars() {
        match character {
            '\\' | '@' => write!(f, "\\{character}")?,
            '/' if is_component => f.write_str("\\/")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\u{8}' => f.write_str("\\b")?,
            '\0' => f.write_str("\\0")?,
            other if other.is_control() => write!(f, "{}", other.escape_unicode())?,
            other => f.write_char(other)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn names_as_krb5_writes_them() {
        let parsed = Principal::parse("cifs/files.frevo.test@FREVO.TEST", "").unwrap();
        assert_eq!(parsed, Principal::service("cifs", "files.frevo.test", "FREVO.TEST"));
        assert_eq!(parsed.to_string(), "cifs/files.frevo.test@FREVO.TEST");
        let odd = Principal::parse("ho\\@st/a\\/b@FREVO.TEST", "").unwrap();
        assert_eq!(odd.components, ["ho@st", "a/b"]);
        assert_eq!(odd.to_string(), "ho\\@st/a\\/b@FREVO.TEST");
        assert_eq!(Principal::parse("ann", "R").unwrap(), Principal::user("ann", "R"));
        assert_eq!(Principal::user("ann", "").to_string(), "ann");
        assert_eq!(Principal::service("cifs", "h", "R").default_salt(), "Rcifsh");
        for bad in ["", "@R", "a@", "a//b@R", "a@R@S", "a\\", "ann"] {
            assert_eq!(Principal::parse(bad, ""), None, "{bad}");
        }
        let long = "x".repeat(MAX_PRINCIPAL_LEN);
        assert!(Principal::parse(&long, "R").is_some());
        assert!(Principal::parse(&(long + "x"), "R").is_none());
        let many = alloc::vec!["a"; MAX_PRINCIPAL_COMPONENTS].join("/");
        assert!(Principal::parse(&many, "R").is_some());
        assert!(Principal::parse(&(many + "/a"), "R").is_none());
    }

    #[test]
    fn a_name_forges_no_line() {
        let name = Principal::user("a\nb\u{1b}c", "R");
        assert_eq!(name.to_string(), "a\\nb\\u{1b}c@R");
    }

    proptest! {
        #[test]
        fn a_name_is_parsed_as_it_was_written(
            components in prop::collection::vec("[a-z$@/\\\\\n ]{1,9}", 1..4),
            realm in "[A-Z.@/\\\\]{1,9}",
        ) {
            let name = Principal { name_type: NameType::PRINCIPAL, components, realm };
            prop_assert_eq!(Principal::parse(&name.to_string(), ""), Some(name));
        }

        #[test]
        fn no_text_is_too_odd(text in ".{0,64}") {
            let _ = Principal::parse(&text, "R");
        }
    }
}
