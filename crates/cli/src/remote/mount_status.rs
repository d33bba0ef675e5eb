//! `mount --status`: the mounted shares of this machine, and the node of a cluster where each is.
//!
//! The process that serves a mount answers in an extended attribute of the mount's folder
//! ([`frevo_mount::STATUS_ATTRIBUTE`]), which it never asks the server for: so only users who may use
//! the mount see its status, and a lost server delays nothing.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use frevo_mount::STATUS_ATTRIBUTE;
use serde_json::json;

use super::{output, spelling};
use crate::bounded_input;
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;

/// Most bytes of the list of mounts, and of one status.
const MOUNTS_BYTES: u64 = 8 << 20;
const STATUS_BYTES: usize = 4096;
/// Longest time that a mount has to answer: the process of another user may never do so.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Prints the status of the mount on `folder`, or that of all mounts.
pub(super) fn tell(folder: Option<&Path>, as_json: bool) -> Done {
    let folders = match folder {
        Some(folder) => vec![folder.to_owned()],
        None => mounted()?,
    };
    if folders.is_empty() && !as_json {
        crate::console::tell("no share is mounted by frevo on this machine");
    }
    for mounted in &folders {
        let status = match status_of(mounted) {
            Ok(status) => status,
            Err(failure) if folder.is_some() => return Err(failure),
            // A mount of another user is passed over if it was not asked for.
            Err(failure) => {
                if failure.exit == Exit::Failed {
                    crate::console::tell(failure);
                }
                continue;
            }
        };
        let folder = mounted;
        output::line(if as_json { status.json(folder) } else { status.text(folder) });
    }
    output::unwritten()
}

/// The folders of all mounts of this program, from /proc/self/mountinfo: FUSE file systems of an SMB
/// URL. Mounts that root made have no subtype there.
fn mounted() -> Result<Vec<PathBuf>, Failure> {
    let path = Path::new("/proc/self/mountinfo");
    let text = bounded_input::read(path, MOUNTS_BYTES)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(folder_in).collect())
}

/// The folder in a line of mountinfo, proc_pid_mountinfo(5).
fn folder_in(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let folder = fields.nth(4)?;
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (fields.next()?, fields.next()?);
    let is_url = source.starts_with(b"smb://") || source.starts_with(b"smb+quic://");
    let is_frevo = matches!(kind, b"fuse" | b"fuse.frevo") && is_url;
    is_frevo.then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&unescaped(folder))))
}

/// A field of mountinfo, which has `\040` for a space.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// The status of a mount.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    url: String,
    address: String,
    /// The IP address of the connection; None while the server is lost.
    ip: Option<String>,
    moves: u64,
    since_seconds: u64,
    pause_ms: u64,
    /// The address of the node that watches the one in use; None if none does.
    witness: Option<String>,
    /// Count of its notifications that were heeded.
    heeded: u64,
}

/// Asks the process that serves the mount on a folder.
fn status_of(folder: &Path) -> Result<Status, Failure> {
    let failed = |exit, text: &str| Failure::new(exit, format!("{}: {text}", shown(folder)));
    let asked = folder.to_owned();
    let answer = within(ANSWER_WITHIN, move || {
        let mut value = vec![0; STATUS_BYTES];
        let count = rustix::fs::getxattr(&asked, STATUS_ATTRIBUTE, value.as_mut_slice())?;
        value.truncate(count);
        Ok(value)
    });
    let value = answer
        .ok_or_else(|| failed(Exit::Failed, "the process that serves it does not answer"))?
        .map_err(|error: rustix::io::Errno| match error {
            rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP => failed(
                Exit::NotFound,
                "it is not the folder of a mount of frevo; frevo mount --status lists them",
            ),
            error => failed(Exit::NotFound, &std::io::Error::from(error).to_string()),
        })?;
    Ok(Status::of(&String::from_utf8_lossy(&value)))
}

/// Returns the result of a call that may hang in the kernel; `None` if it takes longer than this. The
/// thread that hangs ends with the program.
fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (told, heard) = mpsc::channel();
    let call = move || {
        // Nobody hears a late answer.
        let _ = told.send(call());
    };
    std::thread::Builder::new().spawn(call).ok()?;
    heard.recv_timeout(limit).ok()
}

/// A folder for people. Another user may have named it.
fn shown(folder: &Path) -> String {
    spelling::in_text(&folder.display().to_string())
}

impl Status {
    /// Reads the lines `key value`. Unknown keys are those of another version.
    fn of(text: &str) -> Self {
        let mut status = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            let number = || value.parse().unwrap_or_default();
            match key {
                "url" => status.url = value.to_owned(),
                "address" => status.address = value.to_owned(),
                "ip" => status.ip = Some(value.to_owned()),
                "moves" => status.moves = number(),
                "since_seconds" => status.since_seconds = number(),
                "pause_ms" => status.pause_ms = number(),
                "witness" => status.witness = Some(value.to_owned()),
                "witness_heeded" => status.heeded = number(),
                _ => {}
            }
        }
        status
    }

    fn text(&self, folder: &Path) -> String {
        // The process of another user may have written all of it.
        let (url, folder) = (spelling::in_text(&self.url), shown(folder));
        let address = spelling::in_text(&self.address);
        let place = match self.ip.as_deref().map(spelling::in_text) {
            Some(ip) if ip != address => format!("at {address} ({ip})"),
            Some(_) => format!("at {address}"),
            None => format!("lost, last at {address}"),
        };
        let moves = match self.moves {
            0 => String::new(),
            count => format!(
                "; {}, the last one {} s ago after a pause of {}.{:03} s",
                counted(count, "move"),
                self.since_seconds,
                self.pause_ms / 1000,
                self.pause_ms % 1000,
            ),
        };
        let witness = self.witness.as_deref().map(spelling::in_text);
        let witness = witness.map_or_else(String::new, |ip| format!("; watched by {ip}"));
        format!("{url} on {folder}: {place}{moves}{witness}")
    }

    fn json(&self, folder: &Path) -> String {
        json!({
            "folder": folder.display().to_string(),
            "url": self.url,
            "address": self.address,
            "ip": self.ip,
            "moves": self.moves,
            "since_seconds": self.since_seconds,
            "pause_ms": self.pause_ms,
            "witness": self.witness,
            "witness_heeded": self.heeded,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_this_program_are_found() {
        let line = |kind: &str, folder: &str| {
            format!("36 35 98:0 / {folder} rw,noatime shared:1 - {kind} smb://box/a rw")
        };
        let folder = |line: String| folder_in(line.as_bytes());
        assert_eq!(folder(line("fuse.frevo", "/mnt/a\\040b")), Some("/mnt/a b".into()));
        assert_eq!(folder(line("fuse", "/mnt")), Some("/mnt".into()));
        assert_eq!(folder(line("fuse.sshfs", "/mnt")), None);
        assert_eq!(folder_in(b""), None);
        assert_eq!(unescaped(b"a\\134\\04"), b"a\\\\04");
    }

    #[test]
    fn a_status_is_a_sentence_and_an_object() {
        let text = "url smb://cluster/data\naddress 192.0.2.2\nip 192.0.2.2\nmoves 2\n\
                    since_seconds 60\npause_ms 1250\nlater 1\n";
        let status = Status::of(text);
        assert_eq!(
            status.text(Path::new("/mnt")),
            "smb://cluster/data on /mnt: at 192.0.2.2; 2 moves, the last one 60 s ago after a pause \
             of 1.250 s"
        );
        assert!(status.json(Path::new("/mnt")).contains("\"moves\":2"));
        let watched = Status::of(&format!("{text}witness 192.0.2.3\nwitness_heeded 2\n"));
        assert!(watched.text(Path::new("/mnt")).ends_with("1.250 s; watched by 192.0.2.3"));
        assert!(watched.json(Path::new("/mnt")).contains("\"witness_heeded\":2"));
        let lost = Status::of("url smb://box/a\naddress box\nmoves 0\n");
        assert_eq!(lost.text(Path::new("/mnt")), "smb://box/a on /mnt: lost, last at box");
    }

    #[test]
    fn the_status_of_another_user_does_not_move_the_cursor() {
        let status = Status::of("url smb://b\u{1b}[2J/a\naddress b\u{1b}c\nip \u{7}\n");
        let text = status.text(Path::new("/mnt/\u{1b}]0;\n"));
        assert!(text.contains("lost") || text.contains(" at "), "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(!status.json(Path::new("/mnt/\u{1b}")).contains(char::is_control));
    }

    #[test]
    fn a_mount_that_hangs_delays_nothing() {
        let (kept, hung) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || hung.recv()), None);
        drop(kept);
        assert_eq!(within(ANSWER_WITHIN, || 7), Some(7));
    }
}
