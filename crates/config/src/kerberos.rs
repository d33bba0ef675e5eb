//! `[kerberos]`: the keytab of the server, and the rules for tickets.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use frevo_auth::kerberos::{EncryptionType, PacPolicy, Policy};
use frevo_auth::limits::MAX_PRINCIPAL_LEN;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::fault::Fault;
use super::limits;
use super::values::{EncryptionTypeName, PacChoice};

/// `[kerberos]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KerberosSection {
    /// The file with the server's keys. None: no tickets are accepted.
    pub keytab: Option<Spanned<PathBuf>>,
    /// Realms whose users are the accounts of the same names. None: users of a domain log on.
    pub realms: Option<Spanned<Vec<Realm>>>,
    /// The encryption types of tickets and session keys; AES when left out.
    pub encryption_types: Option<Spanned<Vec<EncryptionTypeName>>>,
    /// Seconds by which the clocks of client, KDC and server may differ.
    pub clock_skew: Option<Spanned<u32>>,
    /// The demands on the PACs of tickets.
    pub pac: Option<Spanned<PacChoice>>,
}

/// The name of a realm, in which upper and lower case differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realm(String);

impl Realm {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Realm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "/@\\:".contains(c);
        if text.is_empty() || text.contains(is_wrong) || text.len() > MAX_PRINCIPAL_LEN {
            return Err(format!("{text:?} is not a realm, such as EXAMPLE.COM"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Realm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl KerberosSection {
    /// The rules for tickets; defaults where the section says nothing.
    pub fn policy(&self) -> Policy {
        let defaults = Policy::default();
        let etypes = self.encryption_types.as_ref();
        Policy {
            etypes: etypes.map_or(defaults.etypes, |listed| {
                listed.get_ref().iter().map(|&name| EncryptionType::from(name)).collect()
            }),
            clock_skew: self.clock_skew.as_ref().map_or(defaults.clock_skew, |s| *s.get_ref()),
            pac: self.pac.as_ref().map_or(defaults.pac, |choice| (*choice.get_ref()).into()),
        }
    }

    /// The realms whose users are accounts of the server.
    pub fn account_realms(&self) -> Vec<String> {
        let listed = self.realms.iter().flat_map(|realms| realms.get_ref());
        listed.map(|realm| realm.as_str().to_owned()).collect()
    }

    /// The place of the first key of the section that is there.
    fn first_key(&self) -> Option<std::ops::Range<usize>> {
        let places = [
            self.realms.as_ref().map(Spanned::span),
            self.encryption_types.as_ref().map(Spanned::span),
            self.clock_skew.as_ref().map(Spanned::span),
            self.pac.as_ref().map(Spanned::span),
        ];
        places.into_iter().flatten().min_by_key(|span| span.start)
    }

    /// Values that cannot work, and keys that contradict each other. `ntlm` is the key of
    /// `[server]`.
    pub(super) fn faults(&self, ntlm: Option<&Spanned<bool>>, text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |span, what: String, hint: &str| {
            faults.push(Fault::at(text, &span, what).hint(hint));
        };
        if let Some(file) = self.keytab.as_ref().filter(|file| file.get_ref().is_relative()) {
            let what =
                format!("the path {} of the keytab is not absolute", file.get_ref().display());
            let has_type = file.get_ref().to_string_lossy().starts_with("FILE:");
            let hint = if has_type { "leave FILE: out" } else { "begin the path with /" };
            fault(file.span(), what, hint);
        }
        if let Some(span) = self.first_key().filter(|_| self.keytab.is_none()) {
            let what = "[kerberos] needs the key `keytab`";
            fault(span, what.to_owned(), "name the file with the keys of this server");
        }
        let is_empty = |what| format!("{what} is empty: nobody could log on by Kerberos");
        if let Some(realms) = self.realms.as_ref().filter(|list| list.get_ref().is_empty()) {
            fault(realms.span(), is_empty("realms"), "name a realm, or remove the key");
        }
        let types = self.encryption_types.as_ref();
        if let Some(types) = types.filter(|list| list.get_ref().is_empty()) {
            fault(types.span(), is_empty("encryption_types"), "remove the key to allow AES");
        }
        let range = 1..=limits::CLOCK_SKEW_SECONDS_MAX;
        if let Some(skew) = self.clock_skew.as_ref().filter(|s| !range.contains(s.get_ref())) {
            let most = limits::CLOCK_SKEW_SECONDS_MAX;
            let what = format!("clock_skew must be from 1 to {most} seconds");
            fault(skew.span(), what, "set the clocks of clients, KDC and server by NTP");
        }
        let loose = self.pac.as_ref().filter(|pac| *pac.get_ref() != PacChoice::Required);
        if let Some(pac) = loose.filter(|_| self.realms.is_none()) {
            let what = format!(
                "pac = \"{}\" needs `realms`: without a PAC nothing tells who a user is",
                pac.get_ref()
            );
            fault(pac.span(), what, "name the realms whose users are accounts of this server");
        }
        if let Some(ntlm) = ntlm.filter(|ntlm| !ntlm.get_ref() && self.keytab.is_none()) {
            let what = "ntlm = false, but [kerberos] has no keytab: nobody could log on";
            fault(ntlm.span(), what.to_owned(), "add the section [kerberos], or remove ntlm");
        }
        faults
    }
}

impl From<EncryptionTypeName> for EncryptionType {
    fn from(name: EncryptionTypeName) -> Self {
        match name {
            EncryptionTypeName::Aes256Sha2 => Self::Aes256Sha2,
            EncryptionTypeName::Aes128Sha2 => Self::Aes128Sha2,
            EncryptionTypeName::Aes256Sha1 => Self::Aes256Sha1,
            EncryptionTypeName::Aes128Sha1 => Self::Aes128Sha1,
            EncryptionTypeName::Rc4 => Self::Rc4Hmac,
        }
    }
}

impl From<PacChoice> for PacPolicy {
    fn from(choice: PacChoice) -> Self {
        match choice {
            PacChoice::Required => Self::Required,
            PacChoice::Checked => Self::Checked,
            PacChoice::Ignored => Self::Ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        Config::parse(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_has_its_line_and_what_to_do() {
        let keytab = "[kerberos]\nkeytab = \"/k\"\n";
        for (text, start, hint) in [
            ("[kerberos]\nkeytab = \"k\"\n", "line 2: the path k of the keytab", "with /"),
            ("[kerberos]\nkeytab = \"FILE:/k\"\n", "line 2: the path FILE:/k", "leave FILE: out"),
            (
                "[kerberos]\n\nrealms = [\"A\"]\n",
                "line 3: [kerberos] needs the key `keytab`",
                "name the file",
            ),
            (&format!("{keytab}realms = []"), "line 3: realms is empty", "name a realm"),
            (
                &format!("{keytab}realms = [\"A\", \"a b\"]"),
                "line 3: \"a b\" is not a realm",
                "EXAMPLE.COM",
            ),
            (&format!("{keytab}realms = [\"ann@A\"]"), "line 3: \"ann@A\" is not a realm", ""),
            (&format!("{keytab}realm = \"A\""), "line 3: unknown key `realm`", "`realms`"),
            (&format!("{keytab}encryption_types = []"), "line 3: encryption_types is empty", "AES"),
            (
                &format!("{keytab}encryption_types = [\"des-cbc-crc\"]"),
                "line 3: each value of `encryption_types` must be \"aes256-cts-hmac-sha384-192\"",
                "not \"des-cbc-crc\"",
            ),
            (&format!("{keytab}clock_skew = 0"), "line 3: clock_skew must be from 1", "NTP"),
            (&format!("{keytab}clock_skew = 901"), "line 3: clock_skew must be from 1 to 900", ""),
            (&format!("{keytab}pac = \"no\""), "line 3: `pac` must be \"required\", ", ""),
            (&format!("{keytab}pac = \"checked\""), "line 3: pac = \"checked\" needs `realms`", ""),
            (&format!("{keytab}pac = \"ignored\""), "line 3: pac = \"ignored\" needs", "accounts"),
            ("[server]\nntlm = false\n", "line 2: ntlm = false, but [kerberos] has", "add the"),
            ("[server]\nntlm = \"off\"\n", "line 2: `ntlm` must be true or false", ""),
        ] {
            let found = faults(text);
            let [fault] = &found[..] else { panic!("{found:?} for {text:?}") };
            assert!(fault.starts_with(start) && fault.contains(hint), "{fault:?} for {text:?}");
        }
        let all = "[server]\nntlm = false\n[kerberos]\nrealms = []\nclock_skew = 901\n";
        assert_eq!(faults(all).len(), 4, "{:?}", faults(all));
    }

    #[test]
    fn domains_of_winbind_are_names() {
        let of = |value: &str, more: &str| format!("[server]\nwinbind_domains = {value}\n{more}");
        let longest = "x".repeat(limits::DOMAIN_NAME_BYTES);
        let config = Config::parse(&of(&format!("[\"A\", \"a.test\", {longest:?}]"), "")).unwrap();
        let domains = config.server.winbind_domains.unwrap();
        assert_eq!(domains.get_ref()[..2], ["A", "a.test"]);
        let keytab = "[kerberos]\nkeytab = \"/k\"\n";
        for (text, start) in [
            (of("[\"\"]", ""), "line 2: \"\" is not the name of a domain"),
            (of("[\"A b\"]", ""), "line 2: \"A b\" is not"),
            (of(&format!("[\"{longest}x\"]"), ""), "line 2: \"x"),
            (
                of("[\"A\"]", &format!("ntlm = false\n{keytab}")),
                "line 2: winbind_domains is for NTLM",
            ),
            (
                of("[\"A\"]", &format!("{keytab}realms = [\"A\"]\n")),
                "line 2: winbind_domains makes",
            ),
        ] {
            let found = faults(&text);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
        }
    }

    #[test]
    fn the_rules_of_tickets() {
        let section = |keys: &str| {
            Config::parse(&format!("[kerberos]\nkeytab = \"/k\"\n{keys}")).unwrap().kerberos
        };
        assert_eq!(section("").policy(), Policy::default());
        assert!(section("").account_realms().is_empty());
        let set = section(
            "realms = [\"A.TEST\", \"B\"]\nencryption_types = [\"aes256-cts-hmac-sha1-96\", \
             \"rc4-hmac\"]\nclock_skew = 900\npac = \"checked\"\n",
        );
        assert_eq!(set.account_realms(), ["A.TEST", "B"]);
        let policy = set.policy();
        assert_eq!(policy.etypes, [EncryptionType::Aes256Sha1, EncryptionType::Rc4Hmac]);
        assert_eq!((policy.clock_skew, policy.pac), (900, PacPolicy::Checked));
    }

    #[test]
    fn encryption_types_have_the_names_of_krb5_conf() {
        assert_eq!(EncryptionTypeName::WORDS.len(), EncryptionType::ALL.len());
        for (word, etype) in EncryptionTypeName::WORDS.iter().zip(EncryptionType::ALL) {
            assert_eq!(*word, etype.name());
            assert_eq!(EncryptionType::from(word.parse::<EncryptionTypeName>().unwrap()), etype);
        }
    }
}
