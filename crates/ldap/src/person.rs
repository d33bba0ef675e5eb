//! The facts of an entry about an account: the schemas of Samba (`sambaSamAccount`) and of RFC 2307.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use frevo_auth::account_rules::check_workstations;
use frevo_auth::{AccountRules, LogonHours, NtHash};
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::eq_ignore_case;

use crate::limits::{GROUPS, NAME_BYTES};
use crate::message::Entry;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// The time that means "never" in attributes of Samba, in seconds from 1970, and all that are later.
const NEVER: u64 = 0x7FFF_FFFF;
/// The value of `pwdAccountLockedTime` of an account that its administrator has locked.
const LOCKED_FOR_EVER: &str = "000001010000Z";

/// The names of the attributes that differ between directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The attribute with the account's name: `uid`.
    pub user: String,
    /// The attribute with the NT hash of its password: `sambaNTPassword`.
    pub nt_hash: String,
    /// The attribute with the name of a group: `cn`.
    pub group: String,
}

impl Names {
    /// Returns the attributes that a search for an account asks for.
    pub fn asked(&self) -> Vec<&str> {
        let mut names = Vec::from([&*self.user, &*self.nt_hash]);
        names.extend([
            "sambaSID",
            "sambaAcctFlags",
            "sambaKickoffTime",
            "sambaPwdLastSet",
            "sambaPwdMustChange",
            "sambaLogonHours",
            "sambaUserWorkstations",
            "shadowExpire",
            "pwdAccountLockedTime",
            "gidNumber",
            "memberOf",
        ]);
        names
    }
}

/// An account of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name, as the directory spells it.
    pub name: String,
    /// The name of its entry.
    pub dn: String,
    /// The hash of its password. None if the directory has or shows none.
    pub nt_hash: Option<NtHash>,
    /// sambaSID
    pub sid: Option<Sid>,
    /// The rules for its logons.
    pub rules: AccountRules,
    /// gidNumber
    pub gid: Option<u32>,
    /// Names of its groups.
    pub groups: Vec<String>,
}

/// The reason why an entry is no account that may log on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonFault {
    /// The entry does not have the name that was asked for.
    OtherName,
    /// It is the account of a machine or of a domain.
    Machine,
    /// This attribute cannot be read. Rules that are not understood let nobody in.
    Malformed(&'static str),
}

impl fmt::Display for PersonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherName => f.write_str("its name is not the one that was asked for"),
            Self::Machine => f.write_str("it is the account of a computer or of a domain"),
            Self::Malformed(attribute) => write!(f, "its attribute {attribute} cannot be read"),
        }
    }
}

impl core::error::Error for PersonFault {}

impl Person {
    /// Reads the entry of the account `asked`. Groups that `memberOf` names count if they are below
    /// `group_base`.
    ///
    /// # Errors
    /// The reason why the entry is no such account.
    pub fn of(
        entry: &Entry,
        names: &Names,
        asked: &str,
        group_base: &str,
    ) -> Result<Self, PersonFault> {
        let name = entry.texts(&names.user).find(|name| eq_ignore_case(name, asked));
        let name = name.filter(|name| name.len() <= NAME_BYTES).ok_or(PersonFault::OtherName)?;
        Self::read(entry, names, name, group_base)
    }

    /// Reads the entry of a listing, by its first name.
    ///
    /// # Errors
    /// The reason why the entry is no account.
    pub fn listed(entry: &Entry, names: &Names, group_base: &str) -> Result<Self, PersonFault> {
        let name = entry.text(&names.user).filter(|name| name.len() <= NAME_BYTES);
        Self::read(entry, names, name.ok_or(PersonFault::OtherName)?, group_base)
    }

    fn read(
        entry: &Entry,
        names: &Names,
        name: &str,
        group_base: &str,
    ) -> Result<Self, PersonFault> {
        let of_groups = entry.texts("memberOf").filter(|dn| is_below(dn, group_base));
        let mut person = Self {
            name: String::from(name),
            dn: entry.dn.clone(),
            nt_hash: hash(entry.text(&names.nt_hash))?,
            sid: entry.text("sambaSID").and_then(|sid| sid.parse().ok()),
            rules: rules(entry)?,
            gid: entry.text("gidNumber").and_then(|gid| gid.parse().ok()),
            groups: Vec::new(),
        };
        of_groups
            .filter_map(|dn| first_name(dn, &names.group))
            .for_each(|one| person.add_group(one));
        Ok(person)
    }

    /// Adds a group, unless it is there.
    pub fn add_group(&mut self, name: String) {
        let is_name = (1..=NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        let is_there = self.groups.iter().any(|group| eq_ignore_case(group, &name));
        if is_name && !is_there && self.groups.len() < GROUPS {
            self.groups.push(name);
        }
    }
}

/// Reads an NT hash. That of the empty password is none, since an account without a password does not log on.
fn hash(text: Option<&str>) -> Result<Option<NtHash>, PersonFault> {
    let Some(text) = text.map(str::trim) else { return Ok(None) };
    // smbpasswd(5) and Samba's tools write X in place of digits for an account without a hash.
    if text.is_empty() || text.bytes().all(|byte| byte.eq_ignore_ascii_case(&b'x')) {
        return Ok(None);
    }
    if text.len() == 32 && text.starts_with("NO PASSWORD") {
        return Ok(None);
    }
    let hash = NtHash::from_hex(text).ok_or(PersonFault::Malformed("of the NT hash"))?;
    Ok(Some(hash).filter(|hash| *hash != NtHash::from_password("")))
}

fn rules(entry: &Entry) -> Result<AccountRules, PersonFault> {
    let number = |name: &'static str| {
        let text = entry.text(name).map(str::trim);
        let number = text.map(|text| text.parse::<i64>().map_err(|_| PersonFault::Malformed(name)));
        number.transpose()
    };
    let time = |name: &'static str| -> Result<Option<u64>, PersonFault> {
        let seconds = number(name)?.and_then(|number| u64::try_from(number).ok());
        Ok(seconds.filter(|seconds| (1..NEVER).contains(seconds)))
    };
    let flags = flags(entry.text("sambaAcctFlags"))?;
    let never_ends = flags.contains('X');
    // shadow(5): -1 is for no end.
    let shadow = number("shadowExpire")?.and_then(|days| u64::try_from(days).ok());
    let shadow = shadow.map(|days| days.saturating_mul(DAY));
    let hours = entry.text("sambaLogonHours").map(str::trim).filter(|text| !text.is_empty());
    let hours = hours.map(|text| {
        LogonHours::from_hex(text, false).ok_or(PersonFault::Malformed("sambaLogonHours"))
    });
    let listed = entry.text("sambaUserWorkstations").unwrap_or_default();
    let workstations: Vec<String> = listed
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(String::from)
        .collect();
    check_workstations(&workstations)
        .map_err(|_| PersonFault::Malformed("sambaUserWorkstations"))?;
    let is_locked = entry.text("pwdAccountLockedTime") == Some(LOCKED_FOR_EVER);
    Ok(AccountRules {
        is_disabled: is_locked || flags.contains(['D', 'L']),
        expires: [time("sambaKickoffTime")?, shadow].into_iter().flatten().min(),
        must_change: !never_ends && number("sambaPwdLastSet")? == Some(0),
        password_ends: time("sambaPwdMustChange")?.filter(|_| !never_ends),
        hours: hours.transpose()?.filter(|hours| !hours.is_always()),
        workstations,
    })
}

/// Reads `[UX         ]`. An entry without flags has none.
fn flags(text: Option<&str>) -> Result<&str, PersonFault> {
    let Some(text) = text.map(str::trim) else { return Ok("") };
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inner = inner.ok_or(PersonFault::Malformed("sambaAcctFlags"))?;
    if inner.contains(['W', 'S', 'I']) { Err(PersonFault::Machine) } else { Ok(inner) }
}

/// True if an entry is below another one. Blanks at commas and case do not count.
fn is_below(dn: &str, base: &str) -> bool {
    let plain = |dn: &str| {
        let parts: Vec<String> = dn.split(',').map(|part| part.trim().to_lowercase()).collect();
        parts.join(",")
    };
    let (dn, base) = (plain(dn), plain(base));
    // A comma behind a backslash is part of a name.
    let is_end = |above: &str| above.ends_with(',') && !above.ends_with("\\,");
    base.is_empty() || dn.strip_suffix(&*base).is_some_and(is_end)
}

/// Returns the value of the first part of the name of an entry, if it is of this attribute: RFC 4514 2.4.
fn first_name(dn: &str, attribute: &str) -> Option<String> {
    let (name, rest) = dn.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case(attribute) || rest.starts_with('#') {
        return None;
    }
    let mut bytes = Vec::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            ',' | '+' | ';' => break,
            '\\' => {
                let pair = chars.as_str().get(..2).filter(|pair| !pair.starts_with('+'));
                match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
                    Some(byte) => {
                        bytes.push(byte);
                        chars.nth(1)?;
                    }
                    None => bytes.extend_from_slice(chars.next()?.to_string().as_bytes()),
                }
            }
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    Some(String::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Attribute;
    use frevo_auth::Zeroizing;
    use proptest::prelude::*;

    const HASH: &str = "A4F49C406510BDCAB6824EE7C30FD852";

    fn names() -> Names {
        Names { user: "uid".into(), nt_hash: "sambaNTPassword".into(), group: "cn".into() }
    }

    fn entry(attributes: &[(&str, &[&str])]) -> Entry {
        let attribute = |(name, values): &(&str, &[&str])| Attribute {
            name: (*name).into(),
            values: values.iter().map(|v| Zeroizing::new(v.as_bytes().to_vec())).collect(),
        };
        Entry { dn: "uid=ann,dc=x".into(), attributes: attributes.iter().map(attribute).collect() }
    }

    fn person(attributes: &[(&str, &[&str])]) -> Result<Person, PersonFault> {
        let all = [&[("uid", &["other", "Ann"][..])], attributes].concat();
        Person::of(&entry(&all), &names(), "ann", "ou=groups,dc=x")
    }

    #[test]
    fn an_account_of_samba() {
        let found = person(&[
            ("sambaNTPassword", &[HASH]),
            ("sambaSID", &["S-1-5-21-1-2-3-3000"]),
            ("sambaAcctFlags", &["[U          ]"]),
            ("sambaKickoffTime", &["2147483647"]),
            ("sambaPwdLastSet", &["1700000000"]),
            ("sambaLogonHours", &["FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]),
            ("gidNumber", &["100"]),
            ("memberOf", &["cn=Sales\\2c West,ou=groups,dc=x", "cn=admins,ou=system,dc=x"]),
        ]);
        let found = found.unwrap();
        assert_eq!(found.name, "Ann");
        assert_eq!(found.nt_hash, NtHash::from_hex(HASH));
        assert_eq!(found.sid.unwrap().to_string(), "S-1-5-21-1-2-3-3000");
        assert_eq!((found.rules, found.gid), (AccountRules::default(), Some(100)));
        assert_eq!(found.groups, ["Sales, West"]);
        // No attribute of Samba, as lldap has accounts.
        let bare = person(&[]).unwrap();
        assert_eq!((bare.nt_hash, bare.rules), (None, AccountRules::default()));
    }

    #[test]
    fn each_rule_is_read() {
        let rules = |name: &'static str, value: &str| person(&[(name, &[value])]).unwrap().rules;
        assert!(rules("sambaAcctFlags", "[DU         ]").is_disabled);
        assert!(rules("sambaAcctFlags", "[UL]").is_disabled);
        assert!(rules("pwdAccountLockedTime", "000001010000Z").is_disabled);
        assert!(!rules("pwdAccountLockedTime", "20260101000000Z").is_disabled);
        assert_eq!(rules("sambaKickoffTime", "1700000000").expires, Some(1_700_000_000));
        assert_eq!(rules("shadowExpire", "1").expires, Some(DAY));
        assert_eq!(rules("shadowExpire", "-1").expires, None);
        assert!(rules("sambaPwdLastSet", "0").must_change);
        assert_eq!(rules("sambaPwdMustChange", "1700000000").password_ends, Some(1_700_000_000));
        assert_eq!(rules("sambaPwdMustChange", "0").password_ends, None);
        assert_eq!(rules("sambaUserWorkstations", "DESK, lap").workstations, ["DESK", "lap"]);
        assert!(rules("sambaLogonHours", &"0".repeat(42)).hours.is_some());
        let kept = person(&[("sambaAcctFlags", &["[UX]"]), ("sambaPwdLastSet", &["0"])]).unwrap();
        assert!(!kept.rules.must_change);
    }

    /// A rule that cannot be read lets nobody in.
    #[test]
    fn what_is_not_understood_is_refused() {
        for (name, value) in [
            ("sambaNTPassword", "A4F4"),
            ("sambaAcctFlags", "U"),
            ("sambaKickoffTime", "soon"),
            ("shadowExpire", "x"),
            ("sambaPwdLastSet", ""),
            ("sambaLogonHours", "FF"),
            ("sambaUserWorkstations", "a b"),
        ] {
            let fault = person(&[(name, &[value])]).unwrap_err();
            assert!(matches!(fault, PersonFault::Malformed(_)), "{name}: {fault}");
        }
        for flags in ["[W          ]", "[S]", "[I]"] {
            assert_eq!(person(&[("sambaAcctFlags", &[flags])]), Err(PersonFault::Machine));
        }
        let other = entry(&[("uid", &["bob"])]);
        let found = Person::of(&other, &names(), "ann", "");
        assert_eq!(found, Err(PersonFault::OtherName));
        for none in ["", "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX", "NO PASSWORDXXXXXXXXXXXXXXXXXXXXX"] {
            assert_eq!(person(&[("sambaNTPassword", &[none])]).unwrap().nt_hash, None);
        }
        let empty = NtHash::from_password("").to_hex();
        assert_eq!(person(&[("sambaNTPassword", &[&*empty])]).unwrap().nt_hash, None);
    }

    #[test]
    fn groups_have_an_end() {
        let dns: Vec<String> =
            (0..=GROUPS).map(|n| alloc::format!("cn=g{n},ou=groups,dc=x")).collect();
        let dns: Vec<&str> = dns.iter().map(|dn| &**dn).collect();
        assert_eq!(person(&[("memberOf", &dns)]).unwrap().groups.len(), GROUPS);
        let twice = ["cn=A,ou=groups,dc=x", "CN=a, OU=Groups, DC=x"];
        assert_eq!(person(&[("memberOf", &twice)]).unwrap().groups, ["A"]);
    }

    #[test]
    fn names_of_entries() {
        for (dn, name) in [
            ("cn=staff,dc=x", Some("staff")),
            ("CN = staff+uid=1,dc=x", Some("staff")),
            ("cn=a\\,b\\\\c\\2B,dc=x", Some("a,b\\c+")),
            ("cn=Lu\\C4\\8Di\\C4\\87", Some("Lučić")),
            ("cn=#0403616263,dc=x", None),
            ("ou=staff,dc=x", None),
            ("staff", None),
            ("cn=a\\", None),
        ] {
            assert_eq!(first_name(dn, "cn").as_deref(), name, "{dn}");
        }
        for (dn, base, below) in [
            ("cn=a,ou=g,dc=x", "ou=g,dc=x", true),
            ("cn=a, OU=G, dc=X", "ou=g,dc=x", true),
            ("ou=g,dc=x", "ou=g,dc=x", false),
            ("cn=xou=g,dc=x", "ou=g,dc=x", false),
            ("cn=a,dc=x", "ou=g,dc=x", false),
            ("cn=a,dc=x", "", true),
            ("cn=a,cn=x\\,ou=g,dc=x", "ou=g,dc=x", false),
        ] {
            assert_eq!(is_below(dn, base), below, "{dn} below {base}");
        }
    }

    proptest! {
        #[test]
        fn no_value_panics(value in "\\PC{0,60}", at in 0usize..12) {
            let names = names();
            let name = names.asked()[at];
            drop(Person::listed(&entry(&[(name, &[&value])]), &names, "dc=x"));
            drop(person(&[(name, &[&*value; 2])]));
            drop(first_name(&value, "cn"));
        }
    }
}
