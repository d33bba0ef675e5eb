//! `[[rate]]`: limits of bytes and operations a second, and weights.

use frevo_net::IpNetwork;
use frevo_wire::fscc::eq_ignore_case;
use serde::Deserialize;
use toml::Spanned;

use super::fault::Fault;
use super::limits::{
    RATE_BURST_MS_MAX, RATE_BURST_MS_MIN, RATE_BYTES_MIN, RATE_NAME_CHARACTERS, RATE_WEIGHT_MAX,
    RATES,
};
use super::names::Who;
use super::parsed;
use super::sections::has_key;
use super::values::{EachChoice, Size};

/// `[[rate]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSection {
    /// Its name, by which it is shown.
    pub name: Spanned<String>,
    /// The shares that it is for.
    #[serde(default)]
    pub shares: Vec<Spanned<String>>,
    /// The users and groups that it is for.
    #[serde(default)]
    pub users: Vec<Who>,
    /// The networks of clients that it is for.
    #[serde(default, deserialize_with = "parsed::list")]
    pub networks: Vec<IpNetwork>,
    /// Those who have the limits each on their own.
    pub each: Option<EachChoice>,
    /// Bytes that are read in a second.
    pub read: Option<Spanned<Size>>,
    /// Bytes that are written in a second.
    pub write: Option<Spanned<Size>>,
    /// Operations in a second.
    pub operations: Option<u64>,
    /// The time whose bytes and operations pass at once after a pause, milliseconds.
    pub burst_milliseconds: Option<u64>,
    /// The part of its sessions of limits that they share with others.
    pub weight: Option<u32>,
}

impl RateSection {
    /// Faults of all limits of rate; `shares` are the names of all shares.
    pub(super) fn faults(all: &[Self], shares: &[&str], text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let name = one.name.get_ref();
            let mut fault = |what: String| faults.push(Fault::at(text, &one.name.span(), what));
            if all.iter().take(index).any(|other| other.name.get_ref() == name) {
                fault(format!("a second limit of rate is called {name}"));
            }
            let length = name.chars().count();
            if length == 0 || length > RATE_NAME_CHARACTERS || name.contains(char::is_control) {
                fault(format!(
                    "the name of a limit of rate has 1 to {RATE_NAME_CHARACTERS} characters, none of \
                     them for control"
                ));
            }
            if index == RATES {
                fault(format!("there are more than {RATES} limits of rate"));
            }
            // A key with a fault is left out, and told already.
            let limits = ["read", "write", "operations"];
            let is_set = |keys: &[&str]| has_key(text, one.name.span().start, keys);
            if !is_set(&limits) && !is_set(&["weight"]) {
                fault(format!(
                    "the limit of rate {name} limits nothing: set read, write, operations or weight"
                ));
            }
            if !is_set(&limits) && one.each.is_some() {
                fault(format!("{name}: each needs read, write or operations"));
            }
            one.numbers().into_iter().for_each(&mut fault);
            faults.extend(one.faults_of_keys(shares, text));
        }
        faults
    }

    /// Numbers that are out of their range.
    fn numbers(&self) -> Vec<String> {
        let name = self.name.get_ref();
        let mut wrong = Vec::new();
        if self.operations == Some(0) {
            wrong.push(format!("{name}: operations must be at least 1"));
        }
        let burst = RATE_BURST_MS_MIN..=RATE_BURST_MS_MAX;
        if self.burst_milliseconds.is_some_and(|ms| !burst.contains(&ms)) {
            wrong.push(format!(
                "{name}: burst_milliseconds must be from {RATE_BURST_MS_MIN} to {RATE_BURST_MS_MAX}"
            ));
        }
        if self.weight.is_some_and(|weight| !(1..=RATE_WEIGHT_MAX).contains(&weight)) {
            wrong.push(format!("{name}: weight must be from 1 to {RATE_WEIGHT_MAX}"));
        }
        wrong
    }

    /// Rates that are too low, and shares that there are not.
    fn faults_of_keys(&self, shares: &[&str], text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (key, rate) in [("read", &self.read), ("write", &self.write)] {
            let Some(rate) = rate.as_ref().filter(|rate| rate.get_ref().0 < RATE_BYTES_MIN) else {
                continue;
            };
            let what = format!("{key} must be at least {} KiB a second", RATE_BYTES_MIN >> 10);
            let hint = "clients give up requests that take minutes";
            faults.push(Fault::at(text, &rate.span(), what).hint(hint));
        }
        for share in &self.shares {
            let wanted = share.get_ref();
            if !shares.iter().any(|known| eq_ignore_case(known, wanted)) {
                let what = format!("the limit of rate {}: no share {wanted}", self.name.get_ref());
                faults.push(Fault::at(text, &share.span(), what));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn faults(keys: &str) -> Vec<String> {
        let text =
            format!("[[share]]\nname = \"Data\"\npath = \"/d\"\n[[rate]]\nname = \"a\"\n{keys}\n");
        let faults = Config::parse(&text).map_or_else(|faults| faults, |_| Vec::new());
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn limits_of_rate_are_read() {
        let keys = "shares = [\"data\"]\nusers = [\"ann\", \"@staff\"]\n\
                    networks = [\"10.0.0.0/8\"]\nread = \"100M\"\noperations = 2000\nweight = 3";
        assert_eq!(faults(keys), [""; 0]);
        assert_eq!(faults("weight = 1000"), [""; 0]);
        for each in EachChoice::WORDS {
            assert_eq!(faults(&format!("write = \"1M\"\neach = \"{each}\"")), [""; 0]);
        }
        assert_eq!(faults("write = 65536\nburst_milliseconds = 10"), [""; 0]);
    }

    #[test]
    fn faults_of_limits_of_rate_are_told() {
        let second = "operations = 1\n[[rate]]\nname = \"a\"\noperations = 1";
        let many: Vec<_> =
            (0..RATES).map(|n| format!("[[rate]]\nname = \"{n}\"\noperations = 1\n")).collect();
        for (keys, what) in [
            ("", "line 5: the limit of rate a limits nothing"),
            ("operations = 0", "line 5: a: operations must be at least 1"),
            ("weight = 2\neach = \"user\"", "line 5: a: each needs read, write or operations"),
            ("operations = 1\neach = \"group\"", "line 7: `each` must be \"user\", \"session\" or"),
            ("weight = 0", "line 5: a: weight must be from 1 to 1000"),
            ("weight = 1001", "line 5: a: weight must be from 1 to 1000"),
            ("read = 65535", "line 6: read must be at least 64 KiB a second"),
            ("write = \"1K\"", "line 6: write must be at least 64 KiB a second"),
            ("operations = 1\nburst_milliseconds = 9", "line 5: a: burst_milliseconds must be"),
            ("operations = 1\nburst_milliseconds = 10001", "line 5: a: burst_milliseconds must be"),
            ("operations = 1\nshares = [\"dat\"]", "line 7: the limit of rate a: no share dat"),
            ("operations = 1\nread = \"fast\"", "line 7: \"fast\" is not a size"),
            ("operations = \"100\"", "line 6: `operations` must be a whole number"),
            ("write = \"fast\"\neach = \"user\"", "line 6: \"fast\" is not a size"),
            (second, "line 8: a second limit of rate is called a"),
            (&format!("operations = 1\n{}", many.concat()), "line 305: there are more than 100"),
        ] {
            let found = faults(keys);
            assert!(found.len() == 1 && found[0].starts_with(what), "{keys}: {found:?}");
        }
    }
}
