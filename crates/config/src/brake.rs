//! `brake` of a share: clients that change files as ransomware does.

use serde::Deserialize;

use super::limits::{BRAKE_COUNT_MAX, BRAKE_DELETIONS_MAX, BRAKE_PATHS, BRAKE_SLOW_MAX};
use super::names::Who;
use super::worm::LongTime;

/// `[share.brake]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrakeSection {
    /// The action when the brake takes hold.
    pub action: BrakeChoice,
    /// Files overwritten or replaced with data that does not compress, in a minute.
    pub files_per_minute: u16,
    /// The same in an hour.
    pub files_per_hour: u16,
    /// Files that get one new extension, in a minute.
    pub renames_per_minute: u16,
    /// Files removed in a minute; none: removals alone say nothing.
    pub deletions_per_minute: Option<u32>,
    /// Changes a second of a client that is slowed down.
    pub slow_to: u32,
    /// Time for which a client is slowed down, or its account is refused; none: an hour.
    pub lasts: Option<LongTime>,
    /// Users and groups whose changes are not looked at.
    pub except: Vec<Who>,
    /// Folders and files whose changes are not looked at.
    pub except_paths: Vec<String>,
}

impl Default for BrakeSection {
    fn default() -> Self {
        Self {
            action: BrakeChoice::Alarm,
            files_per_minute: 40,
            files_per_hour: 200,
            renames_per_minute: 100,
            deletions_per_minute: None,
            slow_to: 1,
            lasts: None,
            except: Vec::new(),
            except_paths: Vec::new(),
        }
    }
}

/// The value of `action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BrakeChoice {
    /// It is told.
    Alarm,
    /// And changes are slowed down.
    Slow,
    /// And changes are refused until an administrator releases the client.
    Hold,
    /// And the session ends, and the account is refused for a time.
    Cut,
}

impl BrakeSection {
    /// Its fault, in a share for backups of macOS or another one.
    pub(super) fn fault(&self, time_machine: bool) -> Option<String> {
        if time_machine {
            let what = "brake and time_machine cannot be used together: encrypted backups of macOS look like \
                        ransomware";
            return Some(String::from(what));
        }
        let most = u32::from(BRAKE_COUNT_MAX);
        let counts = [
            ("files_per_minute", self.files_per_minute.into(), most),
            ("files_per_hour", self.files_per_hour.into(), most),
            ("renames_per_minute", self.renames_per_minute.into(), most),
            ("deletions_per_minute", self.deletions_per_minute.unwrap_or(1), BRAKE_DELETIONS_MAX),
            ("slow_to", self.slow_to, BRAKE_SLOW_MAX),
        ];
        if let Some((key, _, most)) = counts.iter().find(|(_, it, most)| !(1..=*most).contains(it))
        {
            return Some(format!("{key} of brake is 1 to {most}"));
        }
        if self.files_per_hour < self.files_per_minute {
            return Some(String::from("files_per_hour of brake is at least files_per_minute"));
        }
        if self.except_paths.len() > BRAKE_PATHS {
            return Some(format!("except_paths of brake has at most {BRAKE_PATHS} paths"));
        }
        let bad = self.except_paths.iter().find(|path| path.trim_matches('/').is_empty());
        bad.map(|_| String::from("a path in except_paths of brake is empty, or the whole share"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn share(keys: &str) -> Result<BrakeSection, String> {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/srv/a\"\n{keys}\n");
        match Config::parse(&text) {
            Ok(config) => Ok(config.shares[0].brake.clone().unwrap()),
            Err(faults) => Err(faults[0].what.clone()),
        }
    }

    #[test]
    fn an_empty_table_is_an_alarm() {
        assert_eq!(share("brake = {}"), Ok(BrakeSection::default()));
        assert_eq!(share("[share.brake]"), Ok(BrakeSection::default()));
        let held = share("brake = { action = \"hold\", except = [\"backup\", \"@it\"] }").unwrap();
        assert_eq!((held.action, held.except.len()), (BrakeChoice::Hold, 2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (keys, what) in [
            ("action = \"stop\"", "alarm"),
            ("files_per_minute = 0", "files_per_minute of brake is 1 to 500"),
            ("files_per_hour = 501", "files_per_hour of brake is 1 to 500"),
            ("files_per_hour = 39", "files_per_hour of brake is at least files_per_minute"),
            ("renames_per_minute = 501", "renames_per_minute of brake is 1 to 500"),
            ("deletions_per_minute = 0", "deletions_per_minute of brake is 1 to 1000000"),
            ("slow_to = 0", "slow_to of brake is 1 to 10000"),
            ("lasts = \"soon\"", "is not a time"),
            ("except_paths = [\"/\"]", "is empty"),
        ] {
            let told = share(&format!("[share.brake]\n{keys}")).unwrap_err();
            assert!(told.contains(what), "{told}");
        }
        let told = share("time_machine = true\nbrake = {}").unwrap_err();
        assert!(told.contains("cannot be used together"), "{told}");
    }
}
