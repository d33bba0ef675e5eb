//! `snapshots` of a share: the place of existing ones, or a table for those that the server makes.

use std::fmt;

use frevo_posix::SnapshotFolders;
use frevo_snapshots::{FOLDER, PATTERN, Schedule};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::{Deserialize, Deserializer, de};

use super::values::{SnapshotPath, SnapshotProvider};

/// The snapshots that stay unless the table says otherwise.
const SCHEDULE: &str = "hourly keep 24, daily keep 30, weekly keep 12, monthly keep 24";

/// The snapshots of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Snapshots {
    /// Another program makes them in this place.
    Found(SnapshotPath),
    /// The server makes them.
    Kept(KeptSnapshots),
}

/// `[share.snapshots]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeptSnapshots {
    /// The way by which they are made.
    pub provider: SnapshotProvider,
    /// The times at which they are made, and those that stay.
    pub schedule: SnapshotSchedule,
    /// Their place, by what the server has found out about the folder.
    #[serde(skip)]
    pub place: Option<SnapshotFolders>,
    /// True if the share does without them where the folder can have none: `keep_deleted` asks for them.
    #[serde(skip)]
    pub is_optional: bool,
}

impl Default for KeptSnapshots {
    fn default() -> Self {
        Self {
            provider: SnapshotProvider::Auto,
            schedule: SnapshotSchedule(String::from(SCHEDULE)),
            place: None,
            is_optional: false,
        }
    }
}

/// The text of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSchedule(String);

impl SnapshotSchedule {
    /// Returns the schedule.
    pub fn schedule(&self) -> Option<Schedule> {
        // The text was checked when it was read.
        self.0.parse().ok()
    }
}

impl<'de> Deserialize<'de> for SnapshotSchedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<Schedule>().map(|_| Self(text)).map_err(de::Error::custom)
    }
}

/// A path, or the table.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Snapshots>, D::Error> {
    struct Visitor;

    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Option<Snapshots>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the path of snapshots, or a table such as { provider = \"auto\" }")
        }

        fn visit_str<E: de::Error>(self, path: &str) -> Result<Self::Value, E> {
            let path = SnapshotPath::deserialize(StrDeserializer::new(path))?;
            Ok(Some(Snapshots::Found(path)))
        }

        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            let table = KeptSnapshots::deserialize(MapAccessDeserializer::new(map))?;
            Ok(Some(Snapshots::Kept(table)))
        }
    }

    deserializer.deserialize_any(Visitor)
}

impl KeptSnapshots {
    /// Returns those that `keep_deleted` asks for.
    pub(super) fn for_days(days: u32) -> Self {
        let schedule = SnapshotSchedule(format!("hourly keep 24, daily keep {days}"));
        Self { schedule, is_optional: true, ..Self::default() }
    }

    /// Returns the place of the snapshots: in a folder of the share until it is found.
    pub fn folders(&self) -> Option<SnapshotFolders> {
        self.place.clone().or_else(|| format!("{FOLDER}/{PATTERN}").parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn faults(keys: &str) -> Vec<String> {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\n{keys}\n");
        let (_, faults) = Config::parse_lenient(&[&text]);
        faults.iter().map(ToString::to_string).collect()
    }

    fn kept(keys: &str) -> KeptSnapshots {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\n{keys}\n");
        Config::parse(&text).unwrap().shares[0].kept_snapshots().unwrap().clone()
    }

    #[test]
    fn snapshots_are_a_path_or_a_table() {
        let default = kept("snapshots = {}");
        assert_eq!(default, KeptSnapshots::default());
        assert_eq!(default.schedule.schedule().unwrap().to_string(), SCHEDULE);
        let table = kept("[share.snapshots]\nprovider = \"btrfs\"\nschedule = \"daily keep 3\"");
        assert_eq!(table.provider, SnapshotProvider::Btrfs);
        assert_eq!(table.schedule.schedule().unwrap().kept_at_most(), 3);
        let text = "[[share]]\nname = \"a\"\npath = \"/a\"\nsnapshots = \".snapshots/%N\"\n";
        let share = Config::parse(text).unwrap().shares.remove(0);
        assert!(share.kept_snapshots().is_none());
        assert_eq!(share.snapshot_folders(), ".snapshots/%N".parse().ok());
    }

    #[test]
    fn the_place_of_kept_snapshots_is_guarded_before_it_is_found() {
        let text = "[[share]]\nname = \"a\"\npath = \"/a\"\nsnapshots = {}\n";
        let share = Config::parse(text).unwrap().shares.remove(0);
        let folders = share.snapshot_folders().unwrap();
        assert_eq!(folders.folder(), std::path::Path::new(".frevo-snapshots"));
        assert_eq!(share.guarded.len(), 1);
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused() {
        for (keys, word) in [
            ("snapshots = 3", "the path of snapshots"),
            ("snapshots = { provider = \"xfs-reflink\" }", "\"lvm\", not"),
            ("snapshots = { schedule = \"often\" }", "hourly keep 24"),
            ("snapshots = { schedule = \"daily keep 0\" }", "from 1 to 1000"),
            ("snapshots = { keep = 3 }", "provider"),
            ("snapshots = \".snapshots\"", "exactly one part"),
        ] {
            let faults = faults(keys);
            assert!(faults.len() == 1 && faults[0].contains(word), "{keys}: {faults:?}");
        }
        let text = "[[share]]\nname = \"a\"\npath = \"/a/{user}\"\nsnapshots = {}\n";
        let (_, faults) = Config::parse_lenient(&[text]);
        assert!(faults[0].to_string().contains("{user}"), "{faults:?}");
    }
}
