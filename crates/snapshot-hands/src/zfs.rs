//! Snapshots of a dataset of ZFS.

use frevo_snapshots::Second;

use crate::fault::SnapshotFault;
use crate::program::Program;

/// The snapshots of a dataset.
#[derive(Debug)]
pub(crate) struct Zfs {
    program: Program,
    dataset: String,
}

impl Zfs {
    pub(crate) fn open(dataset: &str) -> Result<Self, SnapshotFault> {
        Self::by(Program::find("zfs", "zfsutils-linux")?, dataset)
    }

    fn by(program: Program, dataset: &str) -> Result<Self, SnapshotFault> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/ ".contains(c);
        if dataset.is_empty() || dataset.starts_with('-') || !dataset.chars().all(is_plain) {
            return Err(SnapshotFault(format!("{dataset:?} is no name of a dataset")));
        }
        Ok(Self { program, dataset: dataset.to_owned() })
    }

    fn snapshot(&self, at: Second) -> String {
        format!("{}@{}", self.dataset, at.to_name())
    }

    pub(crate) fn list(&self) -> Result<Vec<Second>, SnapshotFault> {
        let words = ["list", "-H", "-t", "snapshot", "-d", "1", "-o", "name", &self.dataset];
        let said = self.program.run(&words)?;
        let of_dataset = |line: &str| {
            let (dataset, name) = line.split_once('@')?;
            Second::of_name(name).filter(|_| dataset == self.dataset)
        };
        Ok(said.lines().filter_map(of_dataset).collect())
    }

    pub(crate) fn create(&self, at: Second) -> Result<(), SnapshotFault> {
        self.program.run(&["snapshot", &self.snapshot(at)]).map(drop)
    }

    pub(crate) fn remove(&self, at: Second) -> Result<(), SnapshotFault> {
        self.program.run(&["destroy", &self.snapshot(at)]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::Recorder;

    #[test]
    fn only_own_snapshots_of_the_dataset_are_named() {
        let recorder = Recorder::new(
            "tank/my photos@frevo-2026.11.30-02.00.00\ntank/my photos@autosnap_1\n\
             tank/my photos@frevo-2026.11.30\ntank/my photos/a@frevo-2026.11.30-01.00.00\n",
        );
        let zfs = Zfs::by(recorder.program(), "tank/my photos").unwrap();
        let at = Second::of_name("frevo-2026.11.30-02.00.00").unwrap();
        assert_eq!(zfs.list().unwrap(), [at]);
        zfs.create(at).unwrap();
        zfs.remove(at).unwrap();
        assert_eq!(
            recorder.calls(),
            [
                "list|-H|-t|snapshot|-d|1|-o|name|tank/my photos|",
                "snapshot|tank/my photos@frevo-2026.11.30-02.00.00|",
                "destroy|tank/my photos@frevo-2026.11.30-02.00.00|",
            ]
        );
        for wrong in ["", "-r", "a@b", "a\nb", "a,b", "a%b"] {
            assert!(Zfs::by(recorder.program(), wrong).is_err(), "{wrong}");
        }
    }
}
