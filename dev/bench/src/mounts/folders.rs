//! Mounting a folder in each of the ways that are compared.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::work;
use crate::proc;
use crate::server::{self, Peer};

/// Most time for a mount or an unmount.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program that provides the folder.
pub(super) enum Mounter<'a> {
    /// No program: the share's own folder.
    Itself,
    /// A FUSE file system that passes all on to the folder.
    Bindfs,
    /// The mount of smbnetfs, which uses libsmbclient.
    Smbnetfs(&'a Peer),
    Frevo(&'a Peer),
}

impl Mounter<'_> {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Itself => "the folder itself".to_owned(),
            Self::Bindfs => "bindfs".to_owned(),
            Self::Smbnetfs(peer) => format!("smbnetfs on {}", peer.kind.name()),
            Self::Frevo(peer) => format!("frevo mount on {}", peer.kind.name()),
        }
    }
}

/// The programs and paths for mounting.
pub(super) struct MountPaths<'a> {
    pub(super) scratch: &'a Path,
    pub(super) share: &'a Path,
    pub(super) program: &'a Path,
    pub(super) more: &'a [String],
}

/// A mounted test folder; unmounted when dropped.
pub(super) struct Mounted {
    pub(super) folder: PathBuf,
    point: Option<PathBuf>,
    child: Option<Child>,
}

impl Mounted {
    /// Returns the CPU seconds of the mount program.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.child.as_ref().map_or(0.0, |child| proc::cpu_seconds(child.id()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(point) = &self.point else { return };
        let end = Instant::now() + PATIENCE;
        while is_mounted(point) && Instant::now() < end {
            let _ = Command::new("umount").arg(point).stderr(Stdio::null()).status();
            std::thread::sleep(Duration::from_millis(20));
        }
        let Some(child) = &mut self.child else { return };
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn is_mounted(point: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    point.parent().is_some_and(|parent| device(point) != device(parent))
}

impl MountPaths<'_> {
    pub(super) fn mount(&self, mounter: &Mounter<'_>) -> Result<Mounted> {
        if matches!(mounter, Mounter::Itself) {
            let folder = self.share.to_owned();
            return Ok(Mounted { folder, point: None, child: None });
        }
        let point = self.scratch.join("mounted");
        fs::create_dir_all(&point)?;
        let (command, below) = match mounter {
            Mounter::Itself | Mounter::Bindfs => (self.bindfs(&point), PathBuf::new()),
            Mounter::Smbnetfs(peer) => self.smbnetfs(peer, &point)?,
            Mounter::Frevo(peer) => (self.frevo(peer, &point), PathBuf::new()),
        };
        self.start(command, point, &below)
    }

    fn start(&self, mut command: Command, point: PathBuf, below: &Path) -> Result<Mounted> {
        let said = self.scratch.join("mount-said");
        let out = fs::File::create(&said)?;
        let child = command
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .context("starting the mount program")?;
        let mut mounted =
            Mounted { folder: point.join(below), point: Some(point), child: Some(child) };
        let end = Instant::now() + PATIENCE;
        while !mounted.folder.join(work::TREE).is_dir() {
            let ended = mounted.child.as_mut().is_some_and(|c| !matches!(c.try_wait(), Ok(None)));
            if ended || Instant::now() > end {
                bail!("not mounted: {}", fs::read_to_string(&said).unwrap_or_default().trim());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(mounted)
    }

    fn bindfs(&self, point: &Path) -> Command {
        let mut command = server::command(Path::new("bindfs"));
        command.arg("-f").arg(self.share).arg(point);
        command
    }

    fn frevo(&self, peer: &Peer, point: &Path) -> Command {
        let target = &peer.target;
        let mut command = server::command(self.program);
        command
            .args(["mount", "--foreground"])
            .args(self.more)
            .arg(format!("smb://{}@{}/share", target.user, target.addr))
            .arg(point)
            .env("FREVO_PASSWORD", &target.password);
        command
    }

    /// Mounts with smbnetfs, which knows no ports, and takes servers from files below HOME.
    fn smbnetfs(&self, peer: &Peer, point: &Path) -> Result<(Command, PathBuf)> {
        let target = &peer.target;
        let host = target.addr.strip_suffix(":445").context("smbnetfs supports only port 445")?;
        let home = self.scratch.join("smbnetfs-home");
        let files = home.join(".smb");
        fs::create_dir_all(&files)?;
        for (name, text) in [
            ("smbnetfs.conf", "include \"smbnetfs.auth\"\ninclude \"smbnetfs.host\"\n".to_owned()),
            (
                "smbnetfs.auth",
                format!("auth \"{host}\" \"{}\" \"{}\"\n", target.user, target.password),
            ),
            ("smbnetfs.host", format!("host \"{host}\" visible=true\n")),
            ("smb.conf", "[global]\nclient min protocol = SMB3_11\n".to_owned()),
        ] {
            fs::write(files.join(name), text)?;
            fs::set_permissions(files.join(name), fs::Permissions::from_mode(0o600))?;
        }
        let mut command = server::command(Path::new("smbnetfs"));
        command.arg("-f").arg(point).env("HOME", &home);
        Ok((command, PathBuf::from(host).join("share")))
    }
}

/// Removes the test files from the share.
pub(super) fn clear(share: &Path) -> Result<()> {
    let new = share.join(work::NEW);
    fs::remove_dir_all(&new)?;
    fs::create_dir(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o777))?;
    ensure!(new.is_dir(), "the mount has no test folder");
    Ok(())
}
