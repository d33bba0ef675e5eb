//! This host, and the lives of the file systems in its kernel.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{major, minor, stat};

use crate::fault::FenceFault;
use crate::limits::ENTRIES;
use crate::mounts::{Mount, read};

/// The name of this run of the kernel, the same in all containers of a machine (random(4)).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// Characters of such a name: a UUID.
const BOOT_CHARACTERS: usize = 36;

/// A run of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boot(pub(crate) String);

impl Boot {
    /// The run of this host's kernel.
    pub(crate) fn of_this_host() -> Result<Self, FenceFault> {
        let text = read(BOOT)?;
        Self::parse(text.trim_end())
            .ok_or_else(|| FenceFault(format!("{BOOT} does not name the run of the kernel")))
    }

    /// Reads the name of a run.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_good = |c: char| c.is_ascii_hexdigit() || c == '-';
        let is_name = text.len() == BOOT_CHARACTERS && text.chars().all(is_good);
        is_name.then(|| Self(text.to_owned()))
    }
}

/// The device of a file system, as `MAJOR:MINOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Device {
    type Err = FenceFault;

    fn from_str(text: &str) -> Result<Self, FenceFault> {
        let device = text.split_once(':').and_then(|(major, minor)| {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        device.ok_or_else(|| FenceFault(format!("{text} is no device")))
    }
}

/// The life of a file system in the memory of a kernel, from its mount until the last of its mounts has
/// gone: pages that were not written yet live as long.
///
/// The number of a mount does not tell lives apart: the kernel gives it again after an unmount, and each
/// namespace of mounts has its own. The folder of a file system in sysfs is made by the mount, and the number
/// of this folder is not given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) boot: Boot,
    pub(crate) device: Device,
    /// The type of the file system, such as `gfs2`.
    pub(crate) kind: String,
    /// The number of the folder in sysfs, or 0 if there is none: then only another run of the kernel is
    /// known to be another life.
    pub(crate) folder: u64,
}

impl Life {
    /// The present life of the file system in which `folder` is.
    pub(crate) fn of(folder: &Path, boot: &Boot) -> Result<Self, FenceFault> {
        let kind = Mount::of(folder)?.kind;
        let failed = |errno| FenceFault::of(folder.display(), std::io::Error::from(errno));
        let number = stat(folder).map_err(failed)?.st_dev;
        let device = Device { major: major(number), minor: minor(number) };
        let folder = Shown::default().number(&kind, device)?.unwrap_or_default();
        Ok(Self { boot: boot.clone(), device, kind, folder })
    }

    /// True if both may be one life: a folder that is not known tells nothing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_unknown = self.folder == 0 || other.folder == 0;
        let is_same_folder = is_unknown || self.folder == other.folder;
        self.boot == other.boot && self.device == other.device && is_same_folder
    }

    /// True unless it has ended for sure, in this run of the kernel or in one before.
    pub(crate) fn goes_on(&self, boot: &Boot) -> Result<bool, FenceFault> {
        self.goes_on_in(&Shown::default(), boot)
    }

    fn goes_on_in(&self, shown: &Shown, boot: &Boot) -> Result<bool, FenceFault> {
        if self.boot != *boot || self.folder == 0 {
            return Ok(self.boot == *boot);
        }
        Ok(shown.number(&self.kind, self.device)? == Some(self.folder))
    }

    /// The act after which a file system has another life.
    pub(crate) const fn renewal(&self) -> &'static str {
        match self.folder {
            0 => "start this machine anew",
            _ => {
                "stop frevo on this node, unmount the file system everywhere on this machine, mount it \
                 again, and start frevo"
            }
        }
    }
}

/// The folders in which a host shows its file systems on disks.
#[derive(Debug, Clone)]
struct Shown {
    file_systems: PathBuf,
    block: PathBuf,
}

impl Default for Shown {
    fn default() -> Self {
        let [file_systems, block] = ["/sys/fs", "/sys/dev/block"].map(PathBuf::from);
        Self { file_systems, block }
    }
}

impl Shown {
    /// The number of the folder of the file system on a device.
    fn number(&self, kind: &str, device: Device) -> Result<Option<u64>, FenceFault> {
        let Some(folder) = self.folder(kind, device)? else { return Ok(None) };
        let there = found(&folder, std::fs::metadata(&folder))?;
        Ok(there.filter(std::fs::Metadata::is_dir).map(|there| there.ino()))
    }

    /// The folder of the file system on a device: `/sys/fs/ocfs2/sdb1`. That of GFS2 has the name of the
    /// cluster's lock table, and a file with the device's numbers (fs/gfs2/sys.c).
    fn folder(&self, kind: &str, device: Device) -> Result<Option<PathBuf>, FenceFault> {
        let all = self.file_systems.join(kind);
        let numbers = device.to_string();
        if kind == "gfs2" {
            let Some(entries) = found(&all, std::fs::read_dir(&all))? else { return Ok(None) };
            for entry in entries.take(ENTRIES) {
                let folder = entry.map_err(|error| FenceFault::of(all.display(), error))?.path();
                let id = folder.join("id");
                // The folder of another one may go between the two looks.
                let text = found(&id, std::fs::read_to_string(&id))?;
                if text.is_some_and(|text| text.trim_end() == numbers) {
                    return Ok(Some(folder));
                }
            }
            return Ok(None);
        }
        let link = self.block.join(numbers);
        let shown = found(&link, link.canonicalize())?;
        Ok(shown.and_then(|shown| Some(all.join(shown.file_name()?))))
    }
}

/// The result of a look at a place of the kernel. None if there is no such place.
fn found<T>(place: &Path, looked: std::io::Result<T>) -> Result<Option<T>, FenceFault> {
    match looked {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FenceFault::of(place.display(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn a_run_of_the_kernel_has_a_name() {
        let boot = Boot::of_this_host().unwrap();
        assert_eq!(Boot::of_this_host(), Ok(boot.clone()));
        assert_eq!(Boot::parse(&boot.0), Some(boot));
        for wrong in ["", "119afa99", "119afa99 d96f-4299-a6f5-3f50e2b0fb57"] {
            assert_eq!(Boot::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn file_systems_have_folders() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for folder in
            ["fs/ocfs2/sdb1", "fs/gfs2/nas:one", "fs/gfs2/nas:two", "devices/sdb1", "block"]
        {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        std::fs::write(path("fs/gfs2/nas:one/id"), "8:1\n").unwrap();
        std::fs::write(path("fs/gfs2/nas:two/id"), "8:17\n").unwrap();
        symlink(path("devices/sdb1"), path("block/8:17")).unwrap();
        let shown = Shown { file_systems: path("fs"), block: path("block") };
        let folder =
            |kind: &str, device: &str| shown.folder(kind, device.parse().unwrap()).unwrap();
        let number = |kind: &str, device: &str| shown.number(kind, device.parse().unwrap());
        assert_eq!(folder("ocfs2", "8:17"), Some(path("fs/ocfs2/sdb1")));
        assert_eq!(folder("gfs2", "8:17"), Some(path("fs/gfs2/nas:two")));
        assert_eq!(folder("gfs2", "8:2"), None);
        assert_eq!(number("xfs", "8:17"), Ok(None));
        assert_eq!(number("ocfs2", "8:18"), Ok(None));
        let first = number("ocfs2", "8:17").unwrap().unwrap();
        let boot = Boot("119afa99-d96f-4299-a6f5-3f50e2b0fb57".into());
        let other = Boot("119afa99-d96f-4299-a6f5-000000000000".into());
        let device = "8:17".parse().unwrap();
        let life = Life { boot: boot.clone(), device, kind: "ocfs2".into(), folder: first };
        let goes_on = |life: &Life, boot: &Boot| life.goes_on_in(&shown, boot);
        assert_eq!((goes_on(&life, &boot), goes_on(&life, &other)), (Ok(true), Ok(false)));
        let later = Life { folder: first.wrapping_add(1), ..life.clone() };
        assert_eq!(goes_on(&later, &boot), Ok(false));
        let unknown = Life { folder: 0, ..life };
        assert_eq!((goes_on(&unknown, &boot), goes_on(&unknown, &other)), (Ok(true), Ok(false)));
        // A place that cannot be looked at is not one that is absent.
        std::fs::write(path("fs/gfs2/nas:two/id"), [0xFF]).unwrap();
        assert!(number("gfs2", "8:17").is_err());
    }

    #[test]
    fn a_folder_that_is_not_known_is_no_other_life() {
        let boot = Boot("119afa99-d96f-4299-a6f5-3f50e2b0fb57".into());
        let other = Boot("119afa99-d96f-4299-a6f5-000000000000".into());
        let device = Device { major: 8, minor: 17 };
        let life = Life { boot, device, kind: "ocfs2".into(), folder: 7 };
        let folder = |folder| Life { folder, ..life.clone() };
        assert!(life.is_same(&folder(7)) && life.is_same(&folder(0)));
        assert!(folder(0).is_same(&folder(0)) && folder(0).is_same(&life));
        assert!(!life.is_same(&folder(8)));
        assert!(!life.is_same(&Life { device: Device { major: 8, minor: 18 }, ..life.clone() }));
        assert!(!folder(0).is_same(&Life { boot: other, ..folder(0) }));
        for wrong in ["", "8", "8:", "a:1", "8:1:1"] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_system_without_a_folder_lives_as_long_as_the_kernel() {
        let boot = Boot::of_this_host().unwrap();
        let life = Life::of(Path::new("/proc"), &boot).unwrap();
        assert_eq!((&life.boot, life.kind.as_str(), life.folder), (&boot, "proc", 0));
        assert_eq!(life.renewal(), "start this machine anew");
        let other = Life { folder: 7, ..life };
        assert!(other.renewal().contains("unmount the file system"));
    }

    fn run(line: &str) -> String {
        let mut words = line.split(' ');
        let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// A real disk: the kernel gives the number of a mount again, and never that of the folder.
    #[test]
    fn a_mount_begins_a_new_life() {
        const NAME: &str = "host::tests::a_mount_begins_a_new_life";
        if std::env::var_os("FREVO_INSIDE").is_some() {
            return ["ext4", "xfs"].into_iter().for_each(lives);
        }
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: this test needs root and loop devices");
            return;
        }
        // Mounts of its own, which go with the process.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--"]);
        command.arg(std::env::current_exe().unwrap()).args(["--exact", NAME, "--nocapture"]);
        let output = command.env("FREVO_INSIDE", "1").output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        eprintln!("{text}");
    }

    fn lives(kind: &str) {
        if Command::new(format!("mkfs.{kind}")).output().is_err() {
            eprintln!("skipped: no mkfs.{kind}");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let [image, one, other] = ["image", "one", "other"].map(|name| root.path().join(name));
        std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        run(&format!("mkfs.{kind} -q {}", image.display()));
        let disk = run(&format!("losetup --find --show {}", image.display()));
        let (one_name, boot) = (one.display(), Boot::of_this_host().unwrap());
        let life = || Life::of(&one, &boot).unwrap();
        run(&format!("mount -t {kind} {disk} {one_name}"));
        let first = life();
        assert_ne!(first.folder, 0);
        // Another mount keeps the file system in memory.
        run(&format!("mount --bind {one_name} {}", other.display()));
        run(&format!("umount {one_name}"));
        run(&format!("mount -t {kind} {disk} {one_name}"));
        assert_eq!(life(), first);
        run(&format!("umount {one_name}"));
        run(&format!("umount {}", other.display()));
        run(&format!("mount -t {kind} {disk} {one_name}"));
        assert_ne!(life(), first);
        run(&format!("umount {one_name}"));
        run(&format!("losetup --detach {disk}"));
    }
}
