//! Snapshots of a thin volume of LVM, each mounted read-only in a folder of the server's.

use std::path::{Path, PathBuf};

use frevo_snapshots::Second;

use crate::fault::SnapshotFault;
use crate::limits::MOUNTED_AT_ONCE;
use crate::mounts::Mount;
use crate::place::Volume;
use crate::program::Program;

/// The programs that act on volumes and mounts.
#[derive(Debug)]
struct Programs {
    lvs: Program,
    lvcreate: Program,
    lvremove: Program,
    mount: Program,
    umount: Program,
}

/// The snapshots of a thin volume.
#[derive(Debug)]
pub(crate) struct Lvm {
    programs: Programs,
    volume: Volume,
    /// The options of a mount, which keep the file system from writing to the snapshot.
    options: &'static str,
    /// The folder of the mounts.
    mounts: PathBuf,
}

/// Options of mounts by types of file systems: a snapshot of a volume in use has a whole file system,
/// because LVM stops it meanwhile, but its log may look as if it were in use.
const OPTIONS: [(&str, &str); 2] = [
    ("ext4", "ro,nosuid,nodev,noexec,noload"),
    ("xfs", "ro,nosuid,nodev,noexec,norecovery,nouuid"),
];

/// Returns the options of a mount of this type of file system. None if snapshots of it were not tried.
pub(crate) fn options(kind: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(known, _)| *known == kind).map(|(_, options)| *options)
}

impl Lvm {
    /// Finds the programs. The server asks for the mounts of the snapshots that there are.
    pub(crate) fn open(volume: &Volume, mounts: &Path) -> Result<Self, SnapshotFault> {
        let lvm = |name| Program::find(name, "lvm2");
        let programs = Programs {
            lvs: lvm("lvs")?,
            lvcreate: lvm("lvcreate")?,
            lvremove: lvm("lvremove")?,
            mount: Program::find("mount", "mount")?,
            umount: Program::find("umount", "mount")?,
        };
        Self::by(programs, volume, mounts)
    }

    /// Mounts some of the snapshots that are not mounted, the newest first. One that cannot be keeps no other one of
    /// them. Returns those that are left.
    pub(crate) fn mount_some(&self) -> Result<Vec<Second>, SnapshotFault> {
        let mut missing = Vec::new();
        for at in self.list()? {
            if !Mount::is_at(&self.point(at))? {
                missing.push(at);
            }
        }
        missing.sort_unstable_by(|a, b| b.cmp(a));
        let rest = missing.split_off(missing.len().min(MOUNTED_AT_ONCE));
        let mounted = missing.into_iter().map(|at| self.mount(at));
        mounted.fold(Ok(()), Result::and).map(|()| rest)
    }

    fn by(programs: Programs, volume: &Volume, mounts: &Path) -> Result<Self, SnapshotFault> {
        let name = volume.name();
        let is_plain = |text: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
            !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
        };
        if !is_plain(&volume.group) || !is_plain(&volume.volume) {
            return Err(SnapshotFault(format!("{name:?} is no name of a volume")));
        }
        let kind = &volume.kind;
        let options = options(kind)
            .ok_or_else(|| SnapshotFault(format!("snapshots of {kind} on LVM were not tried")))?;
        let said = programs.lvs.run(&["--noheadings", "-o", "segtype", &name])?;
        if said.trim() != "thin" {
            return Err(SnapshotFault(format!(
                "{name} is no thin volume, of which alone snapshots are cheap; lvmthin(7) says how to make one"
            )));
        }
        let failed = |error| SnapshotFault::of(mounts.display(), error);
        std::fs::create_dir_all(mounts).map_err(failed)?;
        Ok(Self { programs, volume: volume.clone(), options, mounts: mounts.to_owned() })
    }

    /// The volume of a snapshot.
    fn snapshot(&self, at: Second) -> Volume {
        let volume = format!("{}-{}", self.volume.volume, at.to_name());
        Volume { volume, ..self.volume.clone() }
    }

    fn point(&self, at: Second) -> PathBuf {
        self.mounts.join(at.to_name())
    }

    pub(crate) fn list(&self) -> Result<Vec<Second>, SnapshotFault> {
        let words =
            ["--noheadings", "--separator", "|", "-o", "lv_name,origin", &self.volume.group];
        let said = self.programs.lvs.run(&words)?;
        let of_volume = |line: &str| {
            let (name, origin) = line.trim().split_once('|')?;
            let name = name.strip_prefix(&*self.volume.volume)?.strip_prefix('-')?;
            Second::of_name(name).filter(|_| origin == self.volume.volume)
        };
        Ok(said.lines().filter_map(of_volume).collect())
    }

    pub(crate) fn create(&self, at: Second) -> Result<(), SnapshotFault> {
        let (snapshot, origin) = (self.snapshot(at), self.volume.name());
        let flags =
            ["--quiet", "--snapshot", "--setactivationskip", "n", "--permission", "r", "--name"];
        let words = [&flags[..], &[&snapshot.volume, &origin]].concat();
        self.programs.lvcreate.run(&words)?;
        self.mount(at)
    }

    fn mount(&self, at: Second) -> Result<(), SnapshotFault> {
        let point = self.point(at);
        let failed = |error| SnapshotFault::of(point.display(), error);
        match std::fs::create_dir(&point) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        if Mount::is_at(&point)? {
            return Ok(());
        }
        let (device, kind) = (self.snapshot(at).device(), &self.volume.kind);
        let target = point.to_str().unwrap_or_default();
        let words = ["-t", kind, "-o", self.options, "--", &device, target];
        self.programs.mount.run(&words).map(drop)
    }

    pub(crate) fn remove(&self, at: Second) -> Result<(), SnapshotFault> {
        let point = self.point(at);
        if Mount::is_at(&point)? {
            self.programs.umount.run(&["--", point.to_str().unwrap_or_default()])?;
        }
        // The folder may have gone.
        let _ = std::fs::remove_dir(&point);
        self.programs.lvremove.run(&["--quiet", "--yes", &self.snapshot(at).name()]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::Recorder;

    fn lvm(recorder: &Recorder, mounts: &Path, group: &str) -> Result<Lvm, SnapshotFault> {
        let program = || recorder.program();
        let programs = Programs {
            lvs: program(),
            lvcreate: program(),
            lvremove: program(),
            mount: program(),
            umount: program(),
        };
        let volume = Volume { group: group.into(), volume: "da-ta".into(), kind: "xfs".into() };
        Lvm::by(programs, &volume, mounts)
    }

    #[test]
    fn only_own_snapshots_of_the_volume_are_named() {
        let place = tempfile::tempdir().unwrap();
        let (recorder, at) = (Recorder::new("  thin\n"), "frevo-2026.11.30-02.00.00");
        let lvm = lvm(&recorder, place.path(), "v-g").unwrap();
        recorder.say(
            "  da-ta|\n  da-ta-frevo-2026.11.30-02.00.00|da-ta\n  x-frevo-2026.11.30-02.00.00|x\n\
             da-ta-frevo-2026.11.30-03.00.00|x\n  da-ta-mine|da-ta\n",
        );
        let at = Second::of_name(at).unwrap();
        assert_eq!(lvm.list().unwrap(), [at]);
        lvm.create(at).unwrap();
        lvm.remove(at).unwrap();
        let point = place.path().join("frevo-2026.11.30-02.00.00");
        assert!(!point.exists());
        let mount = format!(
            "-t|xfs|-o|ro,nosuid,nodev,noexec,norecovery,nouuid|--|\
             /dev/mapper/v--g-da--ta--frevo--2026.11.30--02.00.00|{}|",
            point.display()
        );
        assert_eq!(
            recorder.calls(),
            [
                "--noheadings|-o|segtype|v-g/da-ta|",
                "--noheadings|--separator|||-o|lv_name,origin|v-g|",
                "--quiet|--snapshot|--setactivationskip|n|--permission|r|--name|\
                 da-ta-frevo-2026.11.30-02.00.00|v-g/da-ta|",
                &mount,
                "--quiet|--yes|v-g/da-ta-frevo-2026.11.30-02.00.00|",
            ]
        );
    }

    /// A fault at the start, such as a device that is not there yet, was there until the next start.
    #[test]
    fn a_mount_that_fails_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let recorder = Recorder::new("  thin\n");
        let lvm = lvm(&recorder, place.path(), "vg").unwrap();
        recorder.say(
            "da-ta-frevo-2026.11.30-02.00.00|da-ta\n  da-ta-frevo-2026.11.30-03.00.00|da-ta\n",
        );
        let failing = Lvm {
            programs: Programs {
                mount: Program::at(Path::new("/no such program")),
                ..lvm.programs
            },
            ..lvm
        };
        assert!(failing.mount_some().unwrap_err().to_string().contains("no such program"));
        let programs = Programs { mount: recorder.program(), ..failing.programs };
        let lvm = Lvm { programs, ..failing };
        assert!(lvm.mount_some().unwrap().is_empty());
        let mounts = || recorder.calls().iter().filter(|call| call.starts_with("-t|xfs|")).count();
        assert_eq!(mounts(), 2);
        let many = MOUNTED_AT_ONCE + 3;
        let line = |hour| format!("da-ta-frevo-2026.11.30-{hour:02}.00.00|da-ta\n");
        recorder.say(&(0..many).map(line).collect::<String>());
        let rest = lvm.mount_some().unwrap();
        assert_eq!((rest.len(), mounts()), (3, 2 + MOUNTED_AT_ONCE));
        assert_eq!(
            rest.last(),
            Second::of_name("frevo-2026.11.30-00.00.00").as_ref(),
            "the oldest"
        );
    }

    #[test]
    fn other_volumes_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let why =
            |said, group| lvm(&Recorder::new(said), place.path(), group).unwrap_err().to_string();
        assert!(why("  linear\n", "vg").contains("is no thin volume"));
        assert!(why("  thin\n", "-vg").contains("no name of a volume"));
        assert!(options("btrfs").is_none() && options("ext4").is_some());
    }
}
