//! Copies one file: to a partial copy (`*.frevo-part`), which is renamed when it is complete
//! and continued after an interruption.

mod between;
mod download;
pub(crate) mod parts;
mod replace;
mod stale;
mod upload;

use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use frevo_client::{Cause, Error, File, Metadata, Share, Status};

use super::bandwidth::Limit;
use super::connection_options::Copying;
use super::dos_attributes::AttributePolicy;
use super::failures::is_full;
use super::progress::Progress;

pub(crate) use between::across;
pub(crate) use download::{down, down_into};
pub(crate) use stale::{is_free, is_stale};
pub(crate) use upload::{up, up_from_input};

/// Files up to this many bytes go in one round trip and are not resumed.
const SMALL: u64 = 65_536;

/// Pieces that are written at once where they were read from another server: 16 MiB.
const WRITES_AT_ONCE: usize = 16;

/// True when a file of `len` bytes is sent in one round trip: it can be sent again on another
/// connection.
pub(crate) const fn is_small(len: u64) -> bool {
    len <= SMALL
}

/// The options and the progress of a command that copies files.
#[derive(Debug)]
pub(crate) struct CopyOptions {
    pub(crate) progress: Progress,
    pub(crate) carry: AttributePolicy,
    /// Read-only files on the server are replaced too.
    pub(crate) force: bool,
    /// Named streams are copied between servers, too.
    with_streams: bool,
    limit: Option<Limit>,
    /// The last small file replaced another.
    replaces: AtomicBool,
    /// The directories in which old partial copies were looked for.
    cleaned: Mutex<HashSet<String>>,
}

impl CopyOptions {
    /// The options of a command that copies `total` bytes, if the number is known. `quiet` shows
    /// no progress: for JSON output and dry runs.
    pub(crate) fn new(total: Option<u64>, quiet: bool, copying: &Copying) -> Self {
        Self {
            progress: Progress::new(total, quiet),
            carry: copying.attributes,
            force: false,
            with_streams: false,
            limit: copying.bwlimit.map(Limit::new),
            replaces: AtomicBool::new(false),
            cleaned: Mutex::default(),
        }
    }

    /// These options, replacing read-only files or not.
    pub(crate) fn forced(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// These options, with the named streams of files that are copied on a server or between two.
    pub(crate) fn with_streams(self) -> Self {
        Self { with_streams: true, ..self }
    }

    /// Waits until the bandwidth limit permits `bytes` more.
    async fn take(&self, bytes: u64) {
        if let Some(limit) = &self.limit {
            limit.take(bytes).await;
        }
    }

    /// True when the next small file probably replaces another.
    fn replaces(&self) -> bool {
        self.replaces.load(Ordering::Relaxed)
    }

    /// Notes whether a small file replaced another.
    fn expect_replacing(&self, was_there: bool) {
        self.replaces.store(was_there, Ordering::Relaxed);
    }

    /// Bytes, of `len` remaining ones, to send in one piece.
    fn piece(&self, len: u64) -> u64 {
        self.limit.as_ref().map_or(len, |limit| limit.piece().min(len))
    }
}

/// Ends the name of a file that is not whole.
const PART: &str = ".frevo-part";

/// The digits before [`PART`].
const PART_DIGITS: usize = 16;

/// True for the name of a partial copy, or for a path that ends in one.
pub(crate) fn is_part(path: &str) -> bool {
    let name = frevo_client::path::split(path).1;
    let name = name.strip_prefix('.').unwrap_or(name);
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.strip_suffix(PART)
        .is_some_and(|digits| digits.len() == PART_DIGITS && digits.bytes().all(is_digit))
}

/// The name under which a file is begun. It tells which version of which source it is of,
/// so that another one, or one that has changed, starts from the beginning.
pub(crate) fn part_name(name: &str, version: &[&[u8]]) -> String {
    // FNV-1a mixes the name and the version; any hash would do.
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let lengths = version.iter().map(|part| part.len().to_le_bytes());
    let all = name.bytes().chain(lengths.flatten());
    for byte in all.chain(version.iter().flat_map(|part| part.iter().copied())) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    }
    format!("{hash:016x}{PART}")
}

/// The name of a part of what `share` has at `path`. That a file was made or changed at
/// another time tells versions apart whose length and time of writing are the same.
fn part_of(name: &str, share: &Share, path: &str, found: &Metadata) -> String {
    let ticks = |time: SystemTime| frevo_client::internal::file_time(time).0.to_le_bytes();
    let times = [found.created(), found.modified(), found.changed()].map(ticks);
    let [created, modified, changed] = &times;
    let url = share.url(path);
    part_name(name, &[url.as_bytes(), &found.len().to_le_bytes(), created, modified, changed])
}

/// Bytes at the end of a partial copy that are compared with its source.
const COMPARED: u64 = 65_536;

/// The certainty that a source is the one that it was, because its partial copy has the name for its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The server keeps several times, fine ones.
    Certain,
    /// The server tells one time for all: it has no others, and this one may be two seconds coarse.
    Doubtful,
    /// The server tells no times.
    Unknown,
}

impl Version {
    fn of(found: &Metadata) -> Self {
        let times = [found.created(), found.modified(), found.changed()];
        Self::by_times(times.map(|time| frevo_client::internal::file_time(time).0))
    }

    fn by_times([created, modified, changed]: [u64; 3]) -> Self {
        match modified {
            0 if created == 0 && changed == 0 => Self::Unknown,
            _ if created == modified && modified == changed => Self::Doubtful,
            _ => Self::Certain,
        }
    }
}

/// Returns true if a partial copy is of this version of its source up to `end`, so that it is continued. In
/// doubt its last bytes, which `ours` returns by their offset and number, are compared.
async fn is_of_version<R: Future<Output = Option<Vec<u8>>>>(
    source: &File,
    found: &Metadata,
    end: u64,
    ours: impl FnOnce(u64, u32) -> R,
) -> frevo_client::Result<bool> {
    let from = end.saturating_sub(COMPARED);
    let count = u32::try_from(end - from).unwrap_or(u32::MAX);
    match Version::of(found) {
        Version::Certain => Ok(true),
        _ if count == 0 => Ok(true),
        Version::Unknown => Ok(false),
        Version::Doubtful => {
            let theirs = source.read_bytes(from, count).await?;
            Ok(ours(from, count).await.is_some_and(|ours| *ours == *theirs))
        }
    }
}

fn local_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.display().to_string();
    move |error| Error::new(Cause::Local(Arc::new(error)), operation, path.clone())
}

/// An error of this program's own, as an error of the local end.
fn refused(
    kind: ErrorKind,
    why: &'static str,
    operation: &'static str,
    path: impl Into<String>,
) -> Error {
    Error::new(Cause::Local(Arc::new(io::Error::new(kind, why))), operation, path)
}

/// Gives an error of the local end the local path and operation.
pub(crate) fn at_local(operation: &'static str, path: &Path) -> impl FnOnce(Error) -> Error {
    let path = path.display().to_string();
    move |error| match error.cause() {
        Cause::Local(_) => Error::new(error.cause().clone(), operation, path),
        _ => error,
    }
}

/// For [`Result::map_err`]: the error of opening the partial copy, which another command may have
/// open.
fn opened_as(share: &Share, path: &str) -> impl FnOnce(Error) -> Error {
    let url = share.url(path);
    move |error| match error.status() {
        Some(Status::SHARING_VIOLATION) => refused(ErrorKind::ResourceBusy, UNDER_WAY, "copy", url),
        _ => error.told_as("write", url),
    }
}

/// The reason why a partial copy is not continued.
const UNDER_WAY: &str =
    "another command copies the same file to the same place; wait until it has ended";

/// Gives an error of the partial copy the URL of the final file.
fn begun_as(share: &Share, path: &str) -> impl FnOnce(Error) -> Error {
    let url = share.url(path);
    move |error| error.told_as("write", url)
}

/// True when the next run may continue a partial copy. After a full disk the partial copy is
/// removed, to free its space; after a change of the source it is outdated.
fn may_go_on(error: &Error) -> bool {
    !is_full(error) && !is_unsteady(error)
}

/// The error of a copy whose source changed meanwhile.
#[derive(Debug)]
struct SourceChanged;

impl fmt::Display for SourceChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it changed while it was read; the target was not changed; try again")
    }
}

impl std::error::Error for SourceChanged {}

/// Checks that a source still has the length and time `before` after it was read. A source
/// that has only grown passes: the next run copies the rest.
fn steady(
    before: (u64, SystemTime),
    after: (u64, SystemTime),
    path: impl FnOnce() -> String,
) -> frevo_client::Result<()> {
    if before == after || after.0 > before.0 {
        return Ok(());
    }
    let why = io::Error::new(ErrorKind::InvalidData, SourceChanged);
    Err(Error::new(Cause::Local(Arc::new(why)), "copy", path()))
}

fn is_unsteady(error: &Error) -> bool {
    matches!(error.cause(), Cause::Local(why) if why.get_ref().is_some_and(|why| why.is::<SourceChanged>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_of_one_version_of_one_source() {
        let all = [
            part_name("x", &[b"a", b"bc"]),
            part_name("x", &[b"ab", b"c"]),
            part_name("y", &[b"a", b"bc"]),
            part_name("x", &[b"a", b"bd"]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(is_part(one) && !all[..at].contains(one), "{all:?}");
        }
        assert_eq!(part_name("x", &[b"a"]), part_name("x", &[b"a"]));
    }

    #[test]
    fn a_version_is_certain_if_the_server_keeps_more_than_one_time() {
        for (times, expected) in [
            ([0, 0, 0], Version::Unknown),
            ([7, 7, 7], Version::Doubtful),
            ([5, 7, 7], Version::Certain),
            ([0, 7, 0], Version::Certain),
            ([7, 0, 7], Version::Certain),
        ] {
            assert_eq!(Version::by_times(times), expected, "{times:?}");
        }
    }

    #[test]
    fn only_names_of_partial_copies_are_taken_for_them() {
        for name in ["0123456789abcdef.frevo-part", ".0123456789abcdef.frevo-part"] {
            assert!(is_part(name) && is_part(&format!("a/b/{name}")), "{name}");
        }
        for name in [
            ".frevo-part",
            "foo.frevo-part",
            "0123456789abcde.frevo-part",
            "0123456789ABCDEF.frevo-part",
            "0123456789abcdef.frevo-part.txt",
            "0123456789abcdef.frevo-part/x",
        ] {
            assert!(!is_part(name), "{name}");
        }
    }

    #[test]
    fn a_source_that_changes_is_seen() {
        let then = SystemTime::UNIX_EPOCH;
        let now = then + std::time::Duration::from_nanos(100);
        let judge = |after| steady((10, then), after, || String::from("x"));
        assert!(judge((10, then)).is_ok() && judge((11, now)).is_ok(), "appended to");
        for changed in [(10, now), (9, now), (9, then)] {
            assert!(!may_go_on(&judge(changed).unwrap_err()));
        }
    }
}
