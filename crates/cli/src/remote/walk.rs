//! Trees of a share and of this machine, many directories at once.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use frevo_client::internal::{ListingCharge, file_time};
use frevo_client::{Cause, DirEntry, Error, FileAttributes, FileType, Metadata, Share};
use frevo_mount::names::{Spelling, to_wire};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::local_names::local_in;
use super::location::join;
use super::long_path::reach;
use super::progress::Count;
use crate::exit::{Exit, Failure};

/// Directories that are listed at once.
const LISTED_AT_ONCE: usize = 32;
/// Directories within each other: names of four letters in a path of this machine.
const DEPTH_MAX: usize = 1_000;
/// Files and directories of one tree: all are kept in memory.
const ENTRIES_MAX: usize = 10_000_000;
/// Bytes that a command keeps of each file, beside its path.
const ENTRY_BYTES: usize = 200;

/// Files after which the count on the terminal is updated.
const SHOWN_EACH: usize = 64;

/// Links of DFS namespaces within each other.
const LINKS_MAX: usize = 16;

/// A directory that is to be listed.
struct Waiting {
    /// Relative to where the walk began.
    below: String,
    /// True for a link of a DFS namespace.
    is_junction: bool,
    /// The links on the way to it.
    trail: Option<Rc<Trail>>,
    /// The directory itself and those above it.
    above: Option<Rc<Above>>,
}

/// A directory with those above it, up to the share. A link on the server's disk may lead to one of
/// them, and looks like a directory.
struct Above {
    itself: Metadata,
    above: Option<Rc<Self>>,
}

impl Above {
    /// The directory `path` of a share, as far as the server shows it and those above it.
    async fn of(share: &Share, path: &str) -> Option<Rc<Self>> {
        let path = path.trim_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let paths = (!path.is_empty()).then_some("").into_iter();
        let paths = paths.chain(ends.filter_map(|end| path.get(..end)));
        let found = join_all(paths.map(|path| share.lookup(path))).await;
        found.into_iter().flatten().fold(None, Self::below)
    }

    fn below(above: Option<Rc<Self>>, itself: Metadata) -> Option<Rc<Self>> {
        Some(Rc::new(Self { itself, above }))
    }

    /// The directory among this one and those above it that an entry below is, if it is one.
    fn found(this: Option<&Rc<Self>>, entry: &Metadata) -> Option<Rc<Self>> {
        let mut all = std::iter::successors(this, |above| above.above.as_ref());
        all.find(|above| is_one(&above.itself, entry)).map(Rc::clone)
    }
}

/// True when two directories of a listing are one. Numbers are unique on one disk, and several disks
/// may be in a share; the times of creation differ there.
fn is_one(one: &Metadata, other: &Metadata) -> bool {
    let key = |found: &Metadata| (found.file_id(), found.created());
    let times = |found: &Metadata| (found.modified_ticks(), found.changed());
    let has_created = file_time(one.created()).0 != 0;
    one.file_id() != 0 && key(one) == key(other) && (has_created || times(one) == times(other))
}

/// The error for a link that leads to a parent directory.
#[derive(Debug)]
struct LeadsUp {
    /// True when it is the root of the share: perhaps it was found behind a link that leads out of the
    /// share.
    is_share: bool,
}

impl std::fmt::Display for LeadsUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is a link to a directory above it, and was skipped")
    }
}

impl std::error::Error for LeadsUp {}

/// True for the error of a directory that is the root of the share: what lies beside it may be
/// outside of the share, and not meant.
pub(crate) fn leads_to_share(error: &Error) -> bool {
    let Cause::Local(why) = error.cause() else { return false };
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref::<LeadsUp>());
    inner.is_some_and(|found| found.is_share)
}

/// The DFS links that were crossed on the way to a directory.
struct Trail {
    /// The real URL of the directory with the last link.
    from: String,
    before: Option<Rc<Self>>,
    length: usize,
}

impl Trail {
    /// The trail `before`, longer by the link from the directory `from` to `to`. None when the
    /// link leads back to a directory of the trail, or the trail is too long.
    fn crossed(before: Option<Rc<Self>>, from: String, to: &str) -> Option<Rc<Self>> {
        let length = before.as_ref().map_or(0, |before| before.length) + 1;
        let trail = Rc::new(Self { from, before, length });
        let mut links = std::iter::successors(Some(&trail), |trail| trail.before.as_ref());
        (length <= LINKS_MAX && !links.any(|link| is_within(&link.from, to))).then_some(trail)
    }
}

/// True when the directory `url` is `of` or below it.
fn is_within(url: &str, of: &str) -> bool {
    let (url, of) = (url.to_lowercase(), of.to_lowercase());
    url.strip_prefix(&*of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The kind of a directory entry, for a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file with data.
    File,
    /// A directory, which holds entries.
    Directory,
    /// A link or special file, which is not copied.
    Other,
}

impl Kind {
    /// The kind in a word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Other => "link",
        }
    }
}

/// Bit of tags: another name is meant in its place (MS-FSCC 2.1.2.1, N).
const SURROGATE: u32 = 0x2000_0000;
/// Special files of Windows' NFS server and of its Subsystem for Linux: NFS, AF_UNIX,
/// LX_FIFO, LX_CHR, LX_BLK.
const SPECIAL: [u32; 5] = [0x8000_0014, 0x8000_0023, 0x8000_0024, 0x8000_0025, 0x8000_0026];

/// The kind of a file of a server. Windows keeps deduplicated, compressed and archived data
/// as reparse points that are no name surrogates; reading them gives the data, so they are
/// files.
pub(crate) fn kind(metadata: &Metadata) -> Kind {
    match metadata.file_type() {
        FileType::File => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Reparse(tag) if tag == 0 || tag & SURROGATE != 0 || SPECIAL.contains(&tag) => {
            Kind::Other
        }
        FileType::Reparse(_) if metadata.attributes().contains(FileAttributes::DIRECTORY) => {
            Kind::Directory
        }
        _ => Kind::File,
    }
}

/// Lists `path` and all below it. `see` gets the path of each entry relative to
/// `path`, directories before what is in them; symbolic links are not followed, links
/// of DFS namespaces are. `failed` gets the error of each directory below that cannot be listed, or
/// that is one above it under another name, and decides whether the walk goes on. Returns the room
/// that the entries take of the budget of all listings, for as long as the caller keeps them.
pub(crate) async fn remote_but(
    share: &Share,
    path: &str,
    mut see: impl FnMut(&str, &Metadata),
    failed: impl FnMut(Error) -> frevo_client::Result<()>,
) -> frevo_client::Result<ListingCharge> {
    let all = |name: &str, metadata: &Metadata| {
        see(name, metadata);
        true
    };
    remote_into(share, path, all, failed).await
}

/// Like [`remote_but`]; directories for which `see` returns false are not listed.
pub(crate) async fn remote_into(
    share: &Share,
    path: &str,
    mut see: impl FnMut(&str, &Metadata) -> bool,
    mut failed: impl FnMut(Error) -> frevo_client::Result<()>,
) -> frevo_client::Result<ListingCharge> {
    let above = Above::of(share, path).await;
    let start = Waiting { below: String::new(), is_junction: false, trail: None, above };
    let mut waiting = VecDeque::from([start]);
    let mut under_way = FuturesUnordered::new();
    let (mut seen, mut kept) = (0_usize, ListingCharge::default());
    let mut count = Count::new("listed");
    loop {
        while under_way.len() < LISTED_AT_ONCE {
            let Some(next) = waiting.pop_front() else { break };
            under_way.push(async move {
                let listed = list(share, path, &next).await;
                (next.below, next.above, listed)
            });
        }
        let Some((below, above, listed)) = under_way.next().await else { return Ok(kept) };
        let (entries, trail) = match listed {
            Ok(listed) => listed,
            Err(error) if below.is_empty() => return Err(error),
            Err(error) => {
                failed(error)?;
                continue;
            }
        };
        for entry in entries {
            let name = join(&below, entry.file_name());
            seen += 1;
            if seen.is_multiple_of(SHOWN_EACH) {
                count.show(seen, None);
            }
            let has_room = kept.add(2 * name.len() + ENTRY_BYTES);
            if seen > ENTRIES_MAX || !has_room || name.matches('/').count() > DEPTH_MAX {
                let cause = refusal("too many files, or directories too deep for one command");
                return Err(Error::new(cause, "list", share.url(path)));
            }
            let metadata = *entry.metadata();
            let is_directory = kind(&metadata) == Kind::Directory;
            if is_directory && let Some(found) = Above::found(above.as_ref(), &metadata) {
                let why = LeadsUp { is_share: found.above.is_none() };
                let cause = Cause::Local(Arc::new(std::io::Error::other(why)));
                failed(Error::new(cause, "list", share.url(&join(path, &name))))?;
                continue;
            }
            if see(&name, &metadata) && is_directory {
                let (is_junction, trail) = (metadata.is_junction(), trail.clone());
                let above = Above::below(above.clone(), metadata);
                waiting.push_back(Waiting { below: name, is_junction, trail, above });
            }
        }
    }
}

/// The cause of an error of this program's own.
fn refusal(why: &'static str) -> Cause {
    Cause::Local(Arc::new(std::io::Error::other(why)))
}

/// The entries of a directory below `path`, and the links on the way to them.
async fn list(
    share: &Share,
    path: &str,
    directory: &Waiting,
) -> frevo_client::Result<(Vec<DirEntry>, Option<Rc<Trail>>)> {
    let place = match &*directory.below {
        "" => path.to_owned(),
        below => join(path, below),
    };
    let before = directory.trail.clone();
    let trail = if directory.is_junction { cross(share, &place, before).await? } else { before };
    Ok((share.list_dir(&place).await?, trail))
}

/// The trail `before`, longer by the DFS link `place`.
async fn cross(
    share: &Share,
    place: &str,
    before: Option<Rc<Trail>>,
) -> frevo_client::Result<Option<Rc<Trail>>> {
    // The metadata query makes the client follow the link; after that `real_url` knows its target.
    share.metadata(place).await?;
    let from = share.real_url(frevo_client::path::split(place).0).await?;
    let to = share.real_url(place).await?;
    let trail = Trail::crossed(before, from, &to);
    if trail.is_none() {
        let cause = refusal("it is a DFS link that leads back to a directory above it");
        return Err(Error::new(cause, "list", share.url(place)));
    }
    Ok(trail)
}

/// A local file as far as copying is concerned.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    /// Relative to where the walk began, with `/`, as a share spells it.
    pub(crate) name: String,
    /// The path on this machine, as the system spells it.
    pub(crate) path: PathBuf,
    /// File, directory or other.
    pub(crate) kind: Kind,
    /// True for a symbolic link.
    pub(crate) is_link: bool,
    /// True when no mode bit lets anybody write it.
    pub(crate) is_read_only: bool,
    /// Length in bytes, 0 for anything but a file.
    pub(crate) len: u64,
    /// Time of the last write.
    pub(crate) modified: SystemTime,
    /// Time of the last change, also of its times.
    pub(crate) changed: SystemTime,
}

/// For [`Result::map_err`]: the failure to read the local `path`.
pub(crate) fn local_failed(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let shown = path.display().to_string();
    move |error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let exit = if is_missing { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("{shown}: {error}")).of("read", shown)
    }
}

/// Lists a local directory with all its content, directories before their entries; directories
/// for which `passes` returns false are not listed. Names are spelled as on the wire. `failed`
/// gets the error of each name that is not UTF-8 and of each directory that cannot be read, and
/// decides whether the walk goes on.
pub(crate) fn local(
    root: &Path,
    mut passes: impl FnMut(&LocalFile) -> bool,
    mut failed: impl FnMut(Error) -> frevo_client::Result<()>,
) -> frevo_client::Result<Vec<LocalFile>> {
    let error = |path: &Path, error: std::io::Error| {
        Error::new(Cause::Local(Arc::new(error)), "read", path.display().to_string())
    };
    let mut found = Vec::new();
    let mut waiting = vec![(root.to_owned(), String::new())];
    while let Some((directory, below)) = waiting.pop() {
        let entries = match reach(&directory).and_then(std::fs::read_dir) {
            Err(why) if below.is_empty() => return Err(error(&directory, why)),
            Err(why) => {
                failed(error(&directory, why))?;
                continue;
            }
            Ok(entries) => entries,
        };
        for entry in entries {
            let file = entry.map_err(|why| error(&directory, why)).and_then(|entry| {
                let path = directory.join(entry.file_name());
                local_file(&entry, path.clone(), &below).map_err(|why| error(&path, why))
            });
            let file = file.and_then(|file| check_apart(&file, &directory).map(|()| file));
            match file {
                Ok(file) if !passes(&file) => {}
                Ok(file) => {
                    if file.kind == Kind::Directory {
                        waiting.push((file.path.clone(), file.name.clone()));
                    }
                    found.push(file);
                }
                Err(error) => failed(error)?,
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The error of a name in `directory` that the wire spells like the name of another file. Paths of the
/// wire lead to that file ([`local_in`]), whichever of them is listed first.
fn check_apart(file: &LocalFile, directory: &Path) -> frevo_client::Result<()> {
    // Only a name with such a private-use character can have a second spelling.
    if !file.name.contains(|one| ('\u{f001}'..='\u{f029}').contains(&one)) {
        return Ok(());
    }
    let other = local_in(directory, frevo_client::path::split(&file.name).1);
    if other == file.path {
        return Ok(());
    }
    let why = format!(
        "its name is the same as that of {} on the server, where private characters stand for \
         those that SMB reserves; rename one of them",
        other.display()
    );
    let why = std::io::Error::new(std::io::ErrorKind::AlreadyExists, why);
    Err(Error::new(Cause::Local(Arc::new(why)), "copy", file.path.display().to_string()))
}

/// The time of the last change of a local file, also of its times.
pub(crate) fn changed(found: &std::fs::Metadata) -> SystemTime {
    let since = u64::try_from(found.ctime()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(since)
}

fn local_file(entry: &std::fs::DirEntry, path: PathBuf, below: &str) -> std::io::Result<LocalFile> {
    let metadata = entry.metadata()?;
    let kind = match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => Kind::Directory,
        (_, true) => Kind::File,
        _ => Kind::Other,
    };
    let name = to_wire(&entry.file_name(), Spelling::Mapped).ok_or_else(|| {
        let why = "the name is not UTF-8, which SMB requires; rename it";
        std::io::Error::new(std::io::ErrorKind::InvalidData, why)
    })?;
    Ok(LocalFile {
        name: join(below, &name),
        path,
        kind,
        is_link: metadata.is_symlink(),
        is_read_only: metadata.permissions().readonly(),
        len: if kind == Kind::File { metadata.len() } else { 0 },
        modified: metadata.modified()?,
        changed: changed(&metadata),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_windows_keeps_elsewhere_is_a_file_and_a_link_is_none() {
        let of = |tag: u32, more: FileAttributes| {
            let attributes = FileAttributes::REPARSE_POINT | more;
            kind(&Metadata::default().with_attributes(attributes).with_reparse_tag(tag))
        };
        // These are the tags of deduplicated, archived and compressed files and of cloud folders,
        // which are copied like others.
        for tag in [0x8000_0013, 0xC000_0004, 0x8000_0017, 0x9000_001A] {
            assert_eq!(of(tag, FileAttributes::from_bits(0)), Kind::File);
            assert_eq!(of(tag, FileAttributes::DIRECTORY), Kind::Directory);
        }
        // The tags of links, mount points and special files count as `Other`, and so does a missing
        // tag (0).
        for tag in [0xA000_000C, 0xA000_0003, 0xA000_001D, 0x8000_0014, 0x8000_0024, 0] {
            assert_eq!(of(tag, FileAttributes::from_bits(0)), Kind::Other);
            assert_eq!(of(tag, FileAttributes::DIRECTORY), Kind::Other);
        }
    }

    /// Of two names with one spelling on the wire, the one that a path of the wire leads to is listed, in
    /// whatever order the folder has them.
    #[test]
    fn of_two_names_with_one_spelling_the_reachable_one_is_listed() {
        let name = |at: u8, middle: &str| format!("{}{middle}b", char::from(b'a' + at));
        let dir = tempfile::tempdir().unwrap();
        for at in 0..20 {
            std::fs::write(dir.path().join(name(at, "\u{f022}")), "private").unwrap();
            std::fs::write(dir.path().join(name(at, ":")), "plain").unwrap();
        }
        std::fs::write(dir.path().join("z\u{f022}"), "alone").unwrap();
        let mut refused = Vec::new();
        let found = local(
            dir.path(),
            |_| true,
            |error| {
                refused.push(error.path().to_owned());
                Ok(())
            },
        );
        let found: Vec<_> =
            found.unwrap().into_iter().map(|file| (file.name, file.path, file.len)).collect();
        assert_eq!((found.len(), refused.len()), (21, 20));
        for (wire, path, len) in &found {
            assert_eq!(*path, local_in(dir.path(), wire));
            assert_eq!(*len, if wire.starts_with('z') { 5 } else { "plain".len() as u64 });
        }
        assert!(refused.iter().all(|path| path.contains('\u{f022}')), "{refused:?}");
    }

    #[test]
    fn a_directory_is_known_by_its_number() {
        let of = |id: u64| Metadata::default().with_file_id(id);
        let chain = [1, 2, 3].into_iter().map(of).fold(None, Above::below);
        let found = |id| Above::found(chain.as_ref(), &of(id)).map(|found| found.itself.file_id());
        assert_eq!((found(1), found(3), found(4)), (Some(1), Some(3), None));
        assert!(Above::found(None, &of(1)).is_none(), "nothing is above");
        // The server reports no file numbers (0), so a directory above cannot be recognised.
        assert!(Above::found(Above::below(None, of(0)).as_ref(), &of(0)).is_none());
    }

    #[test]
    fn links_that_lead_back_are_seen() {
        let crossed = |before: &Option<Rc<Trail>>, from: &str, to: &str| {
            Trail::crossed(before.clone(), from.to_owned(), to)
        };
        let first = crossed(&None, "smb://a/dfs/x", "smb://b/data");
        assert!(first.is_some());
        assert!(crossed(&None, "smb://a/dfs/x", "smb://a/dfs/y").is_some(), "beside it");
        assert!(crossed(&None, "smb://a/dfs/x", "smb://a/dfs/x/y").is_some(), "below it");
        for back in ["smb://a/dfs", "smb://A/Dfs/x"] {
            assert!(crossed(&None, "smb://a/dfs/x", back).is_none(), "{back}");
            assert!(crossed(&first, "smb://b/data/z", back).is_none(), "{back} by way of b");
        }
        assert!(crossed(&first, "smb://b/data/z", "smb://b/dat").is_some());
        let mut far = None;
        for at in 0..LINKS_MAX {
            far = crossed(&far, &format!("smb://h{at}/s"), &format!("smb://h{}/s", at + 1));
            assert!(far.is_some());
        }
        assert!(crossed(&far, "smb://end/s", "smb://more/s").is_none());
    }
}
