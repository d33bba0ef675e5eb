//! A machine whose power is cut: a guest kernel (User Mode Linux) that runs the server on a
//! forgetful disk.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::forgetful::{Disk, Flushes};
use crate::machine::{Address, PASSWORD, USER, configuration};
use crate::nbd;
use crate::random::Random;

/// Where the guest finds its disk; the script `guest` knows it, too.
const DISK_ADDRESS: (&str, u16) = ("198.18.0.1", 10_809);
/// mkfs.xfs refuses less than 300 MiB.
const DISK_BYTES: usize = 320 << 20;
/// How long a boot may take, with mkfs or the replay of a journal.
const BOOT: Duration = Duration::from_secs(120);

/// The file system of the guest's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The disk's sector, which is written as a whole or not at all. XFS does not recover a block of
    /// metadata of which some sectors are newer than its journal, and it takes the sector for its
    /// unit of writing; on a disk with sectors of 4 KiB no such block exists.
    const fn sector(self) -> usize {
        match self {
            Self::Ext4 => 512,
            Self::Xfs => 4096,
        }
    }
}

/// A guest and its disk.
#[derive(Debug)]
pub(crate) struct Guest {
    program: PathBuf,
    kernel: Option<PathBuf>,
    dir: PathBuf,
    fs: FileSystem,
    disk: Arc<Disk>,
    running: Option<Child>,
}

impl Guest {
    pub(crate) const ADDRESS: Address = Address { host: "198.18.0.2", port: 445 };

    /// Prepares `dir` and an empty disk for `program`. To be called inside `with-netns`.
    pub(crate) fn new(
        program: &Path,
        kernel: Option<PathBuf>,
        dir: &Path,
        fs: FileSystem,
        flushes: Flushes,
    ) -> Result<Self> {
        let program = program.canonicalize().with_context(|| format!("{}", program.display()))?;
        let mounted = Path::new("/mnt/srv");
        let address = Self::ADDRESS;
        let listen = format!("{}:{}", address.host, address.port);
        std::fs::write(dir.join("frevo.toml"), configuration(&listen, mounted))?;
        let state = mounted.join("state");
        let add = format!(
            "echo {PASSWORD} | {program:?} user --state-dir {state:?} add {USER} --password-stdin\n"
        );
        std::fs::write(dir.join("user.sh"), add)?;
        std::fs::write(dir.join("fresh"), "")?;
        let disk = Arc::new(Disk::new(DISK_BYTES, fs.sector(), flushes));
        let listener = TcpListener::bind(DISK_ADDRESS)
            .context("there is no address for the disk; run this inside dev/interop/with-netns")?;
        nbd::serve(listener, Arc::clone(&disk));
        Ok(Self { program, kernel, dir: dir.into(), fs, disk, running: None })
    }

    /// Returns the copy of the files that was made by the last boot.
    pub(crate) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// Boots it, and waits until the file system is mounted, its files are copied, and the server is
    /// ready.
    pub(crate) fn start(&mut self) -> Result<()> {
        for name in ["ready", "failed", "group"] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        let log = File::options().create(true).append(true).open(self.dir.join("log"))?;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut boot = Command::new(here.join("../interop/linux-client"));
        boot.args(["-M", "-t", "86400", "-P"]).arg(self.dir.join("group"));
        if let Some(kernel) = &self.kernel {
            boot.arg("-k").arg(kernel);
        }
        boot.arg("--").arg(here.join("guest")).arg(&self.dir).arg(self.fs.name());
        boot.arg(self.disk.len().to_string()).arg(self.fs.sector().to_string()).arg(&self.program);
        boot.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = boot.spawn().context("dev/interop/linux-client")?;
        let until = Instant::now() + BOOT;
        while !self.dir.join("ready").exists() {
            if let Ok(why) = std::fs::read_to_string(self.dir.join("failed")) {
                self.running = Some(child);
                bail!("the guest has no server: {why}");
            }
            let ended = child.try_wait()?;
            if ended.is_some() || Instant::now() > until {
                self.running = Some(child);
                bail!("the guest did not come up; see {}", self.dir.join("log").display());
            }
            sleep(Duration::from_millis(10));
        }
        self.running = Some(child);
        Ok(())
    }

    /// Cuts the power of the disk and of the guest.
    pub(crate) fn cut(&mut self, random: &mut Random) -> Result<String> {
        ensure!(!self.dir.join("failed").exists(), "the server ended by itself");
        let cut = self.disk.cut(random);
        self.kill()?;
        Ok(format!(
            "power cut: of the unflushed writes {} lost, {} torn, {} kept",
            cut.lost, cut.torn, cut.kept
        ))
    }

    /// Kills the guest's process group, which ends `linux-client` as well.
    fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.running.take() else { return Ok(()) };
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        let group = std::fs::read_to_string(self.dir.join("group"))?;
        Command::new("kill").arg("-KILL").arg("--").arg(format!("-{}", group.trim())).status()?;
        child.wait()?;
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The error was reported before, or the guest has ended already, so the result is ignored.
        let _ = self.kill();
    }
}
