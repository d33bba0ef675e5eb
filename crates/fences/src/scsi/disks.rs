//! The disks below a file system, by sysfs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, stat};

use crate::fault::FenceFault;
use crate::limits::{DISKS, ENTRIES};

/// The disk below a file system, which several paths may lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    /// Its name, the same at all nodes: `/dev/disk/by-id/wwn-0x5000c500a0b1c2d3`.
    pub(super) name: String,
    /// The devices of its paths: `/dev/sda`.
    pub(super) paths: Vec<PathBuf>,
}

/// The folders in which a host shows its disks.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) block: PathBuf,
    pub(super) by_id: PathBuf,
    pub(super) dev: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        let [block, by_id, dev] = ["/sys/dev/block", "/dev/disk/by-id", "/dev"].map(PathBuf::from);
        Self { block, by_id, dev }
    }
}

/// Returns the disk below the file system in which `folder` is.
pub(super) fn below(folder: &Path) -> Result<Disk, FenceFault> {
    let failed = |errno| FenceFault::of(folder.display(), std::io::Error::from(errno));
    let device = stat(folder).map_err(failed)?.st_dev;
    Host::default().disk(major(device), minor(device)).map_err(|why| {
        FenceFault(format!("`fence = \"scsi-pr\"` cannot be used for {}: {why}", folder.display()))
    })
}

impl Host {
    fn disk(&self, major: u32, minor: u32) -> Result<Disk, FenceFault> {
        let device = self.block.join(format!("{major}:{minor}"));
        let Ok(device) = device.canonicalize() else {
            return Err(FenceFault("it is on no disk".into()));
        };
        let mut disks = BTreeSet::new();
        leaves(&device, &mut disks)?;
        let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
        for disk in &disks {
            let files = [disk.join("device/wwid"), disk.join("wwid")];
            let name = files.iter().find_map(|file| std::fs::read(file).ok());
            names.insert(name.ok_or_else(|| FenceFault("its disk has no name (wwid)".into()))?);
        }
        if names.len() != 1 {
            return Err(FenceFault("it is on several disks".into()));
        }
        let paths = disks.iter().filter_map(|disk| Some(self.dev.join(disk.file_name()?)));
        let paths: Vec<PathBuf> = paths.collect();
        let name = self.name(&paths)?;
        Ok(Disk { name, paths })
    }

    /// The name of a disk that its own bytes give, the first one of several.
    fn name(&self, paths: &[PathBuf]) -> Result<String, FenceFault> {
        let is_path = |link: &Path| {
            let target = link.canonicalize();
            target
                .is_ok_and(|target| paths.iter().any(|path| path.file_name() == target.file_name()))
        };
        let entries = std::fs::read_dir(&self.by_id);
        let links = entries.into_iter().flatten().take(ENTRIES).flatten().map(|entry| entry.path());
        let named = links.filter(|link| {
            let name = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("wwn-") && !name.contains("-part") && is_path(link)
        });
        let mut names: Vec<String> =
            named.filter_map(|link| link.to_str().map(String::from)).collect();
        names.sort_unstable();
        names.into_iter().next().ok_or_else(|| {
            FenceFault(format!("its disk has no name wwn-* in {}", self.by_id.display()))
        })
    }
}

/// Finds the disks below a device: of a partition its disk, of a mapped device those that it stands on.
fn leaves(device: &Path, found: &mut BTreeSet<PathBuf>) -> Result<(), FenceFault> {
    let device = match device.join("partition").exists() {
        true => device.parent().unwrap_or(device),
        false => device,
    };
    let slaves = std::fs::read_dir(device.join("slaves"));
    let slaves: Vec<PathBuf> =
        slaves.into_iter().flatten().take(DISKS).flatten().map(|entry| entry.path()).collect();
    if slaves.is_empty() {
        found.insert(device.to_owned());
    }
    for slave in slaves {
        // A device stands on others a few times at most: the kernel refuses circles.
        let slave = slave.canonicalize().map_err(|error| FenceFault::of(slave.display(), error))?;
        leaves(&slave, found)?;
    }
    if found.len() > DISKS {
        return Err(FenceFault(format!("it is on more than {DISKS} disks")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A host with /dev/sda1, and a mapped device 252:0 over two paths to one disk, sdb and sdc.
    fn host(root: &Path) -> Host {
        for folder in ["sda/sda1", "sda/device", "sdb/device", "sdc/device", "dm-0/slaves", "vda"] {
            std::fs::create_dir_all(root.join("devices").join(folder)).unwrap();
        }
        for folder in ["block", "by-id", "dev"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        let devices = root.join("devices");
        std::fs::write(devices.join("sda/sda1/partition"), "1\n").unwrap();
        for (disk, name) in [("sda", "naa.1"), ("sdb", "naa.2"), ("sdc", "naa.2")] {
            std::fs::write(devices.join(disk).join("device/wwid"), name).unwrap();
            std::fs::write(root.join("dev").join(disk), "").unwrap();
        }
        for disk in ["sdb", "sdc"] {
            symlink(devices.join(disk), devices.join("dm-0/slaves").join(disk)).unwrap();
        }
        for (number, device) in [("8:1", "sda/sda1"), ("252:0", "dm-0"), ("254:0", "vda")] {
            symlink(devices.join(device), root.join("block").join(number)).unwrap();
        }
        for (name, disk) in [("wwn-0x1", "sda"), ("scsi-1", "sda"), ("wwn-0x2", "sdc")] {
            symlink(root.join("dev").join(disk), root.join("by-id").join(name)).unwrap();
        }
        let [block, by_id, dev] = ["block", "by-id", "dev"].map(|folder| root.join(folder));
        Host { block, by_id, dev }
    }

    #[test]
    fn disks_are_found_below_partitions_and_mapped_devices() {
        let root = tempfile::tempdir().unwrap();
        let host = host(root.path());
        let sda = host.disk(8, 1).unwrap();
        assert!(sda.name.ends_with("/by-id/wwn-0x1"), "{sda:?}");
        assert_eq!(sda.paths, [host.dev.join("sda")]);
        let mapped = host.disk(252, 0).unwrap();
        assert!(mapped.name.ends_with("/by-id/wwn-0x2"), "{mapped:?}");
        assert_eq!(mapped.paths, [host.dev.join("sdb"), host.dev.join("sdc")]);
        for (major, minor, why) in [(254, 0, "no name (wwid)"), (0, 51, "on no disk")] {
            let fault = host.disk(major, minor).unwrap_err().to_string();
            assert!(fault.contains(why), "{fault}");
        }
        std::fs::write(root.path().join("devices/sdc/device/wwid"), "naa.3").unwrap();
        assert_eq!(host.disk(252, 0).unwrap_err().to_string(), "it is on several disks");
    }

    #[test]
    fn a_file_system_without_a_disk_is_told() {
        let fault = below(Path::new("/proc")).unwrap_err().to_string();
        assert!(fault.contains("cannot be used for /proc: it is on no disk"), "{fault}");
    }
}
