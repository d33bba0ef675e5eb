//! A limit on the processor time of a server, so that the server is the slower side whatever client
//! asks it. It needs root and the `cpu` controller of cgroups, version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::proc;

/// The time in which the quota is spent, microseconds. Longer ones add latency to single requests.
const PERIOD_US: u64 = 10_000;
/// Attempts to remove the group, and the time between two: its processes need time to end.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// A control group of one server; dropped after the server has ended.
pub(crate) struct Quota {
    group: PathBuf,
}

impl Quota {
    /// Limits the processes under `root`, and those that they start later, to `percent` of a core.
    pub(crate) fn of(root: u32, percent: u32) -> Result<Self> {
        let quota_us = u64::from(percent) * PERIOD_US / 100;
        let name = format!("frevo-bench-{}-{root}", std::process::id());
        let group = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            let group = make(Path::new("/sys/fs/cgroup"), &name)?;
            set(&group.group, "cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
            group
        } else if Path::new("/sys/fs/cgroup/cpu/cgroup.procs").exists() {
            let group = make(Path::new("/sys/fs/cgroup/cpu"), &name)?;
            set(&group.group, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
            set(&group.group, "cpu.cfs_quota_us", &quota_us.to_string())?;
            group
        } else {
            bail!("no cpu controller below /sys/fs/cgroup: run without --server-cpu");
        };
        // A process may start another while they are moved.
        for _ in 0..2 {
            for pid in proc::tree(root) {
                let moved = set(&group.group, "cgroup.procs", &pid.to_string());
                // A process that has ended since need not be moved.
                if Path::new("/proc").join(pid.to_string()).exists() {
                    moved?;
                }
            }
        }
        Ok(group)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        eprintln!("cannot remove {}: processes are left in it", self.group.display());
    }
}

fn make(parent: &Path, name: &str) -> Result<Quota> {
    let group = parent.join(name);
    fs::create_dir(&group).with_context(|| format!("making {}", group.display()))?;
    Ok(Quota { group })
}

fn set(group: &Path, file: &str, value: &str) -> Result<()> {
    let path = group.join(file);
    fs::write(&path, value).with_context(|| format!("writing {value} to {}", path.display()))
}
