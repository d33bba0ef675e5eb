//! Mounts and unmounts a share.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Weak};

use frevo_client::Share;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::io::Errno as Code;
use rustix::mount::UnmountFlags;
use tokio::runtime::Handle as Runtime;
use tokio::sync::oneshot;

use crate::bridge::Bridge;
use crate::limits;
use crate::poll_inline::Works;
use crate::settings::Settings;
use crate::volume::Volume;

/// The reason why a share was not mounted.
#[derive(Debug)]
pub enum MountError {
    /// An error of the server, of the share or of the path in it.
    Server(frevo_client::Error),
    /// The path in the share is not a directory.
    NotADirectory(String),
    /// The local folder, and why it cannot be used.
    Folder(PathBuf, &'static str),
    /// /dev/fuse does not exist.
    NoDevice,
    /// This user may not open /dev/fuse.
    DeviceClosed,
    /// fusermount3 is not installed; without root the mount needs it.
    NoHelper,
    /// /etc/fuse.conf does not permit `allow_other`, which fusermount3 requires.
    OthersNotAllowed,
    /// An error of the kernel or of fusermount3.
    Refused(io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::NotADirectory(url) => write!(f, "{url} is not a directory"),
            Self::Folder(path, what) => write!(f, "{} {what}", path.display()),
            Self::NoDevice => f.write_str(
                "there is no /dev/fuse: load the kernel's module (modprobe fuse), or give the \
                 container the device (docker run --device /dev/fuse --cap-add SYS_ADMIN)",
            ),
            Self::DeviceClosed => f.write_str(
                "you may not open /dev/fuse: as root, run chmod 666 /dev/fuse, its usual mode",
            ),
            Self::NoHelper => f.write_str(
                "mounting without root needs fusermount3: install it (apt install fuse3, dnf \
                 install fuse3), or run as root",
            ),
            Self::OthersNotAllowed => f.write_str(
                "--allow-other without root needs the line user_allow_other in /etc/fuse.conf",
            ),
            Self::Refused(error) => write!(f, "the kernel refused the mount: {error}"),
        }
    }
}

impl std::error::Error for MountError {}

/// A mounted share. Dropping it leaves the share mounted.
#[derive(Debug)]
pub struct Mounted {
    folder: PathBuf,
    volume: Arc<Volume>,
    ended: oneshot::Receiver<io::Result<()>>,
    /// The result of the FUSE session after its end, and the bytes lost before.
    over: Option<(io::Result<()>, u64)>,
}

/// The result of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// The share is unmounted.
    Done,
    /// The mount is in use: a program has an open file or its working directory there. All written
    /// data is on the server or reported as lost.
    Busy,
}

/// The type of FUSE file systems, as statfs(2) gives it.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Checks the folder for a mount.
///
/// # Errors
/// The folder does not exist, is not a directory, is mounted on already, or is not empty: a mount
/// would hide its files.
pub fn check_folder(folder: &Path) -> Result<(), MountError> {
    let wrong = |what| Err(MountError::Folder(folder.to_owned(), what));
    let found = match std::fs::metadata(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return wrong("does not exist: make it first (mkdir)");
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            return wrong(
                "is the mount of a program that has ended: run fusermount3 -u on it first",
            );
        }
        Err(_) => return wrong("cannot be accessed: permission denied"),
    };
    if !found.is_dir() {
        return wrong("is not a directory");
    }
    if is_mounted(folder) {
        return wrong(
            "is the folder of a mount already: unmount that first (fusermount3 -u, as root umount), \
             or name another folder",
        );
    }
    match std::fs::read_dir(folder).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => wrong("is not empty, and the mount would hide its files: name an empty folder"),
        Err(_) => wrong("cannot be read: permission denied"),
    }
}

/// True when a share is mounted on the folder: it has another device than the folder it is in, of a
/// FUSE file system.
fn is_mounted(folder: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let Ok(whole) = folder.canonicalize() else { return false };
    let fuse = rustix::fs::statfs(&whole).is_ok_and(|found| found.f_type == FUSE_MAGIC);
    fuse && whole.parent().and_then(device) != device(&whole)
}

/// Checks that this machine can mount, before the server is asked.
fn check_machine() -> Result<(), MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoDevice);
    }
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return Err(MountError::DeviceClosed);
    }
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !has_helper() {
        return Err(MountError::NoHelper);
    }
    Ok(())
}

fn has_helper() -> bool {
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Mounts `path` of `share` on `folder`.
///
/// # Errors
/// See [`MountError`].
pub async fn mount(
    share: Share,
    path: &str,
    folder: &Path,
    settings: Settings,
) -> Result<Mounted, MountError> {
    check_folder(folder)?;
    check_machine()?;
    if settings.posix {
        share.use_posix().await.map_err(MountError::Server)?;
    }
    let asked = std::time::Instant::now();
    let found = share.lookup(path).await.map_err(MountError::Server)?;
    if !found.is_dir() {
        return Err(MountError::NotADirectory(share.url(path)));
    }
    let config = config(&share, path, &settings);
    let volume = Volume::new(share, path.trim_matches('/'), settings);
    volume.nodes.root().set_metadata(found, asked);
    let bridge = Bridge { volume: Arc::clone(&volume), works: Works::on(Runtime::current()) };
    let place = folder.to_owned();
    let folder = folder.canonicalize().unwrap_or_else(|_| place.clone());
    let session = tokio::task::spawn_blocking(move || Session::new(bridge, &place, &config)).await;
    let session = session.map_err(|_| MountError::Refused(io::ErrorKind::Interrupted.into()))?;
    let session = session.map_err(refused)?;
    let (tell, ended) = oneshot::channel();
    let _ = volume.notifier.set(session.notifier());
    let started = session.spawn().map_err(MountError::Refused)?;
    tokio::spawn(tidy(Arc::downgrade(&volume)));
    std::thread::Builder::new()
        .name(String::from("frevo-mount"))
        .spawn(move || {
            // The send fails if the receiver is gone, which needs no action.
            let _ = tell.send(started.join());
        })
        .map_err(MountError::Refused)?;
    Ok(Mounted { folder, volume, ended, over: None })
}

/// Runs the maintenance of a volume until the mount ends.
async fn tidy(volume: Weak<Volume>) {
    let mut heard = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(limits::MAINTENANCE_INTERVAL).await;
        let Some(volume) = volume.upgrade() else { return };
        volume.tidy().await;
        if heard.elapsed() >= limits::ECHO_INTERVAL {
            heard = tokio::time::Instant::now();
            volume.listen();
        }
    }
}

fn config(share: &Share, path: &str, settings: &Settings) -> Config {
    // Commas and backslashes are special to fusermount3, so they are replaced in the name of the
    // file system.
    let name = share.url(path).replace(['\\', ','], "_");
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::Subtype(String::from("frevo")),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ];
    if has_kernel_checks(settings, share.is_posix(), rustix::process::geteuid().as_raw()) {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if settings.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if settings.no_exec {
        config.mount_options.push(MountOption::NoExec);
    }
    config.acl = if settings.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(limits::THREADS);
    config
}

/// True if the kernel checks modes. It then asks for the attributes of a directory again after each
/// change in it, which costs a round trip. Only the user `euid` who mounts can use a mount without
/// `allow_other`, and the server checks each operation: the kernel has nothing to add, unless the
/// modes that were chosen for a server without POSIX extensions take rights from that user.
fn has_kernel_checks(settings: &Settings, is_posix: bool, euid: u32) -> bool {
    if settings.allow_other || is_posix {
        return settings.allow_other;
    }
    let owner_has_all = settings.file_mode & 0o600 == 0o600 && settings.dir_mode & 0o700 == 0o700;
    !(owner_has_all && settings.uid == euid)
}

fn refused(error: io::Error) -> MountError {
    let text = error.to_string();
    if text.contains("user_allow_other") {
        return MountError::OthersNotAllowed;
    }
    if error.kind() == io::ErrorKind::NotFound {
        return MountError::NoHelper;
    }
    MountError::Refused(error)
}

impl Mounted {
    /// Returns the mount point, as the kernel spells it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits until the share is unmounted, and all data is sent and all files are closed.
    ///
    /// # Errors
    /// The error that ended the FUSE session, if it was not an unmount; or data that did not reach
    /// the server.
    pub async fn ended(&mut self) -> io::Result<()> {
        if self.over.is_none() {
            let outcome = (&mut self.ended).await.unwrap_or(Ok(()));
            self.over = Some((outcome, self.volume.unsent_and_lost().1));
        }
        self.volume.settle().await;
        let (outcome, before) = self.over.take().unwrap_or((Ok(()), 0));
        outcome?;
        let lost = self.volume.not_saved(before);
        if lost > 0 {
            let what = format!("{lost} bytes that were written last did not get to the server");
            return Err(io::Error::other(what));
        }
        Ok(())
    }

    /// Returns true if the share is unmounted: [`Self::ended`], once called, then only waits for
    /// the server.
    pub const fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Returns the bytes that were written and are not on the server: those that are unsent, and those
    /// that were lost since the share was unmounted.
    pub fn not_saved(&self) -> u64 {
        let now = self.volume.unsent_and_lost().1;
        self.volume.not_saved(self.over.as_ref().map_or(now, |(_, before)| *before))
    }

    /// Unmounts the share; [`Self::ended`] returns when all data is on the server. While the mount
    /// is in use, this waits until the data is sent.
    ///
    /// # Errors
    /// The error of the kernel or of fusermount3.
    pub async fn unmount(&self) -> io::Result<Unmount> {
        let folder = self.folder.clone();
        let done = tokio::task::spawn_blocking(move || unmount(&folder)).await;
        let done = done.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
        if matches!(done, Ok(Unmount::Busy)) {
            self.volume.flush_all().await;
        }
        done
    }
}

/// Unmounts by the system call as root, otherwise with fusermount3.
fn unmount(folder: &Path) -> io::Result<Unmount> {
    match rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(Unmount::Done),
        Err(Code::BUSY) => return Ok(Unmount::Busy),
        // The folder is no mount point any more, because another program has unmounted it.
        Err(Code::INVAL | Code::NOENT) => return Ok(Unmount::Done),
        Err(Code::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let output =
        std::process::Command::new("fusermount3").arg("-u").arg("--").arg(folder).output()?;
    if output.status.success() {
        return Ok(Unmount::Done);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.to_lowercase().contains("busy") {
        return Ok(Unmount::Busy);
    }
    if said.contains("not found in") {
        return Ok(Unmount::Done);
    }
    Err(io::Error::other(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_checks_modes_where_the_server_does_not() {
        let mine = Settings::of(1000, 1000);
        assert!(!has_kernel_checks(&mine, false, 1000) && !has_kernel_checks(&mine, true, 1000));
        assert!(has_kernel_checks(&mine, false, 0), "the files belong to another user");
        let shared = Settings { allow_other: true, ..mine };
        assert!(has_kernel_checks(&shared, true, 1000) && has_kernel_checks(&shared, false, 1000));
        let files = Settings { file_mode: 0o444, ..mine };
        let directories = Settings { dir_mode: 0o555, ..mine };
        for chosen in [files, directories] {
            assert!(has_kernel_checks(&chosen, false, 1000));
            assert!(!has_kernel_checks(&chosen, true, 1000), "the server's modes count");
        }
    }
}
