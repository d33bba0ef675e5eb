//! `recycle` of a share: `true`, or a table.

use std::fmt;

use frevo_wire::fscc::Pattern;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use super::limits::RECYCLE_DAYS_MAX;
use super::share::ShareSection;
use super::values::Size;

/// Days that files stay in the bin unless the table says otherwise.
const KEEP_DAYS: u32 = 30;

/// The folder of the bins unless the table names another.
const FOLDER: &str = ".recycle";

/// `[share.recycle]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecycleSection {
    /// The folder of the bins of all users.
    pub folder: BinFolder,
    /// Days after which a file is removed; 0 for never.
    pub keep_days: u32,
    /// Bytes that the bin of each user may hold.
    pub max_size: Option<Size>,
    /// Size from which on a file is deleted for good.
    pub max_file_size: Option<Size>,
    /// Names of files and folders that are deleted for good.
    pub exclude: Vec<String>,
    /// Files whose name is taken in the bin get a number.
    pub versions: bool,
    /// True for `recycle = false`, which is no bin, also beside `keep_deleted`.
    #[serde(skip)]
    pub(super) is_off: bool,
}

impl Default for RecycleSection {
    fn default() -> Self {
        Self {
            folder: BinFolder(String::from(FOLDER)),
            keep_days: KEEP_DAYS,
            max_size: None,
            max_file_size: None,
            exclude: Vec::new(),
            versions: true,
            is_off: false,
        }
    }
}

/// The name of a folder in the root of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinFolder(pub(super) String);

impl BinFolder {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for BinFolder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if is_folder_name(&text) {
            return Ok(Self(text));
        }
        let what = format!(
            "{text:?} is not a folder for a recycle bin: it must be one name without slashes, of \
             letters, digits and the characters . - _ $ @ # and blank, such as \".recycle\""
        );
        Err(de::Error::custom(what))
    }
}

/// True for one component that has one spelling on every file system.
fn is_folder_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ". -_$@#".contains(c);
    (1..=64).contains(&text.len())
        && text.chars().all(is_plain)
        && text.trim() == text
        && !text.ends_with('.')
        && !text.eq_ignore_ascii_case(".frevo-streams")
}

/// A switch, or the table.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RecycleSection>, D::Error> {
    struct Visitor;

    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Option<RecycleSection>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true, false or a table such as { keep_days = 30 }")
        }

        fn visit_bool<E: de::Error>(self, on: bool) -> Result<Self::Value, E> {
            Ok(Some(RecycleSection { is_off: !on, ..RecycleSection::default() }))
        }

        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            RecycleSection::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }

    deserializer.deserialize_any(Visitor)
}

impl ShareSection {
    /// The reason for which the share cannot have its recycle bin.
    pub(super) fn recycle_fault(&self) -> Option<String> {
        let recycle = self.recycle.as_ref()?;
        let folder = &recycle.folder.0;
        if self.time_machine {
            let why = "recycle, or keep_deleted, and time_machine cannot be used together: macOS frees space by \
                       deleting parts of its backups all the time";
            return Some(String::from(why));
        }
        if recycle.keep_days > RECYCLE_DAYS_MAX {
            return Some(format!("keep_days must be at most {RECYCLE_DAYS_MAX}; 0 means for ever"));
        }
        let vetoes = |pattern: &&String| Pattern::new(pattern, true).matches(folder);
        if let Some(pattern) = self.veto.iter().find(vetoes) {
            let why = format!(
                "the pattern {pattern:?} of veto matches the folder {folder} of recycle, or of keep_deleted, \
                 so that nobody could reach the recycle bin"
            );
            return Some(why);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn faults(keys: &str) -> Vec<String> {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\n{keys}\n");
        let (_, faults) = Config::parse_lenient(&[&text]);
        faults.iter().map(ToString::to_string).collect()
    }

    fn bin(keys: &str) -> Option<super::RecycleSection> {
        let text = format!("[[share]]\nname = \"a\"\npath = \"/a\"\n{keys}\n");
        Config::parse(&text).unwrap().shares[0].recycle.clone()
    }

    #[test]
    fn a_bin_is_a_switch_or_a_table() {
        assert_eq!(bin("recycle = false"), None);
        let default = bin("recycle = true").unwrap();
        assert_eq!((default.keep_days, default.folder.0.as_str()), (30, ".recycle"));
        let table = bin("[share.recycle]\nkeep_days = 0\nmax_size = \"1G\"\nexclude = [\"*.tmp\"]");
        let table = table.unwrap();
        assert!(table.versions && table.keep_days == 0 && table.max_size.is_some());
        assert!(
            faults("recycle = 3")[0].contains("true, false or a table"),
            "{:?}",
            faults("recycle = 3")
        );
        assert!(faults("recycle = { keep = 3 }")[0].contains("keep_days"));
    }

    #[test]
    fn a_bin_that_makes_no_sense_is_refused() {
        for (keys, word) in [
            ("recycle = true\ntime_machine = true", "time_machine"),
            ("recycle = true\nveto = [\".re*\"]", "veto"),
            ("recycle = { keep_days = 40000 }", "keep_days"),
            ("recycle = { folder = \"a/b\" }", "slashes"),
            ("recycle = { folder = \"..\" }", "one name"),
            ("recycle = { folder = \".frevo-streams\" }", "one name"),
        ] {
            let faults = faults(keys);
            assert!(faults.len() == 1 && faults[0].contains(word), "{keys}: {faults:?}");
        }
        assert!(faults("recycle = true\nveto = [\"*.tmp\"]").is_empty());
    }
}
