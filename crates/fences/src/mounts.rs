//! The mount below a folder, from `/proc/self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use crate::fault::FenceFault;
use crate::limits::TEXT_BYTES;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The number of the mount. A later mount can have it again.
    id: u64,
    pub(crate) point: PathBuf,
    /// The type of the file system, such as `nfs4`.
    pub(crate) kind: String,
    /// The options of the file system, such as `rw,vers=4.2,addr=192.0.2.1`.
    pub(crate) options: String,
}

impl Mount {
    /// Returns the mount in which `folder` is.
    pub(crate) fn of(folder: &Path) -> Result<Self, FenceFault> {
        let list = read("/proc/self/mountinfo")?;
        // The kernel follows links and hidden mounts as it does for the server.
        let flags = AtFlags::STATX_DONT_SYNC;
        let found = statx(CWD, folder, flags, StatxFlags::MNT_ID)
            .map_err(|errno| refused(folder, errno))?;
        let has_number = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
        let mount = match has_number {
            true => list.lines().filter_map(parse).find(|mount| mount.id == found.stx_mnt_id),
            // Linux before 5.8.
            false => find(&list, folder),
        };
        mount.ok_or_else(|| FenceFault(format!("{} is in no mount", folder.display())))
    }

    /// Returns the value of an option.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.split(',').filter_map(|option| option.split_once('='));
        options.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// The fault of a call on a folder. A client of CephFS that is refused answers ESHUTDOWN to each call.
fn refused(folder: &Path, errno: Errno) -> FenceFault {
    let name = folder.display();
    match errno {
        Errno::SHUTDOWN => FenceFault(format!(
            "CephFS refuses the client of {name}, which was fenced; {}",
            FenceFault::MOUNT_AGAIN
        )),
        errno => FenceFault::of(name, std::io::Error::from(errno)),
    }
}

/// Reads a text of the kernel.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, FenceFault> {
    let path = path.as_ref();
    let failed = |error| FenceFault::of(path.display(), error);
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(TEXT_BYTES).read_to_end(&mut text))
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The mount with the longest mount point above `folder`, and the last of those at one point.
fn find(list: &str, folder: &Path) -> Option<Mount> {
    let mounts = list.lines().filter_map(parse);
    let above = mounts.filter(|mount| folder.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.as_os_str().len())
}

/// `36 35 98:0 /root /point options [fields] - type source options`
fn parse(line: &str) -> Option<Mount> {
    let (first, second) = line.split_once(" - ")?;
    let mut first = first.split(' ');
    let id = first.next()?.parse().ok()?;
    let point = PathBuf::from(unescape(first.nth(3)?));
    let mut second = second.split(' ');
    let kind = second.next()?.to_owned();
    let options = second.nth(1)?.to_owned();
    Some(Mount { id, point, kind, options })
}

/// Blanks and backslashes are three octal digits after a backslash.
fn unescape(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *byte == b'\\');
        let value =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(*byte));
        rest = if value.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:37 / /srv/a\\040b rw shared:2 - nfs4 nas:/x rw,vers=4.2,clientaddr=192.0.2.7,addr=192.0.2.1
41 22 0:38 / /srv/a rw,nosuid - fuse bindfs rw,user_id=0
42 41 0:39 / /srv/a rw,nosuid - fuse.ceph-fuse ceph-fuse rw,user_id=0
nonsense
";

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let of = |folder: &str| find(LIST, Path::new(folder)).unwrap();
        assert_eq!((of("/srv/a/b").id, of("/srv/ab").id), (42, 22));
        let nfs = of("/srv/a b/folder");
        assert_eq!((nfs.id, nfs.kind.as_str()), (40, "nfs4"));
        assert_eq!(nfs.option("addr"), Some("192.0.2.1"));
        assert_eq!(nfs.option("clientaddr"), Some("192.0.2.7"));
        assert_eq!(nfs.option("rw"), None);
    }

    #[test]
    fn links_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        let of = |folder: &Path| Mount::of(folder).unwrap();
        assert_eq!(of(&link), of(Path::new("/proc")));
        assert_eq!(of(&link).kind, "proc");
        assert_ne!(of(root.path()).kind, "proc");
        assert!(Mount::of(&root.path().join("absent")).is_err());
    }

    #[test]
    fn a_refused_client_is_told() {
        let text = refused(Path::new("/srv/a"), Errno::SHUTDOWN).to_string();
        assert!(text.starts_with("CephFS refuses the client of /srv/a, "), "{text}");
        assert!(text.ends_with("mount it again, and start frevo"), "{text}");
        let text = refused(Path::new("/srv/a"), Errno::NOENT).to_string();
        assert_eq!(text, "/srv/a: No such file or directory (os error 2)");
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape("a\\040\\134b\\9"), "a \\b\\9");
    }
}
