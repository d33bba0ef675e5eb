//! `[[storage_qos]]`: policies that clients name for the files of their virtual machines, MS-SQOS.

use std::str::FromStr;

use frevo_wire::dtyp::Guid;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use toml::Spanned;

use super::fault::Fault;
use super::limits::{RATE_BYTES_MIN, RATE_NAME_CHARACTERS, STORAGE_POLICIES, STORAGE_RATE_MAX};
use super::values::Size;

/// A PolicyID: `04b4f24e-b3e9-4594-adaa-e327528de54b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyId(pub Guid);

impl FromStr for PolicyId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no id of a policy, such as the GUIDs that uuidgen prints");
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        let is_hex = |c: char| c.is_ascii_hexdigit() || c == '-';
        if groups != [8, 4, 4, 4, 12] || !text.chars().all(is_hex) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(&text.replace('-', ""), 16).map_err(|_| wrong())?;
        let mut bytes = number.to_be_bytes();
        // MS-DTYP 2.3.4: the first three parts are little-endian.
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
        Ok(Self(Guid(bytes)))
    }
}

impl<'de> Deserialize<'de> for PolicyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// `[[storage_qos]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageQosSection {
    /// Its name, for people.
    pub name: Spanned<String>,
    /// The id by which clients name it.
    pub id: Spanned<PolicyId>,
    /// Normalized operations in a second, of 8 KiB each.
    pub iops: Option<u64>,
    /// Bytes in a second.
    pub bandwidth: Option<Spanned<Size>>,
}

impl StorageQosSection {
    /// Faults of all policies.
    pub(super) fn faults(all: &[Self], text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let (name, before) = (one.name.get_ref(), || all.iter().take(index));
            let mut fault = |what: String| faults.push(Fault::at(text, &one.name.span(), what));
            if before().any(|other| other.name.get_ref() == name) {
                fault(format!("a second policy of storage is called {name}"));
            }
            let length = name.chars().count();
            if length == 0 || length > RATE_NAME_CHARACTERS || name.contains(char::is_control) {
                fault(format!(
                    "the name of a policy of storage has 1 to {RATE_NAME_CHARACTERS} characters, none of \
                     them for control"
                ));
            }
            if index == STORAGE_POLICIES {
                fault(format!("there are more than {STORAGE_POLICIES} policies of storage"));
            }
            if one.iops.is_none() && one.bandwidth.is_none() {
                fault(format!("the policy {name} limits nothing: set iops or bandwidth"));
            }
            if one.iops.is_some_and(|iops| !(1..=STORAGE_RATE_MAX).contains(&iops)) {
                fault(format!("{name}: iops must be from 1 to {STORAGE_RATE_MAX}"));
            }
            let id = one.id.get_ref();
            if id.0 == Guid::default() || before().any(|other| other.id.get_ref() == id) {
                let what = format!("{name}: the id of a policy must be its own, and not zero");
                faults.push(Fault::at(text, &one.id.span(), what));
            }
            let bandwidth = one.bandwidth.as_ref();
            let range = RATE_BYTES_MIN..=STORAGE_RATE_MAX << 10;
            if let Some(size) = bandwidth.filter(|size| !range.contains(&size.get_ref().0)) {
                let least = RATE_BYTES_MIN >> 10;
                let what = format!(
                    "bandwidth must be from {least} KiB to {STORAGE_RATE_MAX} KiB a second"
                );
                faults.push(Fault::at(text, &size.span(), what));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const ID: &str = "04b4f24e-b3e9-4594-adaa-e327528de54b";

    #[test]
    fn policies_of_storage_are_read_and_their_faults_told() {
        let faults = |keys: &str| -> Vec<String> {
            let text = format!("[[storage_qos]]\nname = \"a\"\nid = \"{ID}\"\n{keys}\n");
            let faults = Config::parse(&text).map_or_else(|faults| faults, |_| Vec::new());
            faults.iter().map(ToString::to_string).collect()
        };
        assert_eq!(faults("iops = 100\nbandwidth = \"200K\""), [""; 0]);
        let second = format!("iops = 1\n[[storage_qos]]\nname = \"b\"\nid = \"{ID}\"\niops = 1");
        let many: String = (0..STORAGE_POLICIES)
            .map(|n| format!("[[storage_qos]]\nname = \"{n}\"\nid = \"{n:08}-b3e9-4594-adaa-e327528de54b\"\niops = 1\n"))
            .collect();
        for (keys, what) in [
            ("", "line 2: the policy a limits nothing"),
            ("iops = 0", "line 2: a: iops must be from 1 to 1000000000"),
            ("bandwidth = \"1K\"", "line 4: bandwidth must be from 64 KiB"),
            (&*second, "line 7: b: the id of a policy must be its own"),
            (&format!("iops = 1\n{many}"), "line 402: there are more than 100 policies"),
        ] {
            let found = faults(keys);
            assert!(found.len() == 1 && found[0].starts_with(what), "{keys}: {found:?}");
        }
        let id: PolicyId = ID.parse().unwrap();
        assert_eq!(id.0.to_string(), ID);
        assert!("04b4f24eb3e94594adaae327528de54b".parse::<PolicyId>().is_err());
    }
}
