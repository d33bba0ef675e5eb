//! Directory listings: as few round trips as the server's replies allow. MS-SMB2 3.2.4.17.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::oplock_break::LeaseState as WireLeaseState;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::{Command, Utf16};
use futures_util::future::BoxFuture;
use futures_util::stream::Stream;

use crate::Status;
use crate::connection::{Call, Message};
use crate::create::Ask;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{
    EMPTY_LISTINGS, ENTRIES_MAX, LISTING_BYTES, LISTING_NAMES, LISTINGS, REPEATED_LISTINGS,
};
use crate::listings::{Budget, UNDER_WAY};
use crate::metadata::{FileType, Metadata};
use crate::open::{Haste, Open};
use crate::path::{is_sound, name_from_posix};
use crate::posix_metadata::PosixMetadata;
use crate::session::lease::Lease;
use crate::share::{Replay, Share};

/// The class that listings ask for: names, times, sizes, attributes, ids and reparse tags;
/// of a POSIX Open modes and owners too.
const fn class(posix: bool) -> FileInfoClass {
    if posix { FileInfoClass::POSIX } else { FileInfoClass::ID_BOTH_DIRECTORY }
}
/// IO_REPARSE_TAG_DFS and IO_REPARSE_TAG_DFSR, MS-FSCC 2.1.2.1.
const DFS: u32 = 0x8000_000A;
const DFSR: u32 = 0x8000_0012;

/// A directory with more than [`ENTRIES_MAX`] entries.
const TOO_MANY: &str = "the directory has more entries than this program lists (8,388,608); \
    list a part of it with a pattern";

/// More than [`LISTED_BYTES_MAX`](crate::limits::LISTED_BYTES_MAX) bytes.
const TOO_LARGE: &str = "the names take more memory than this program uses for them (1 GiB); list \
    a part of the tree";

/// A name that comes twice, which no directory has.
const TWICE: &str = "its directory listing names a file twice";

/// Bytes beside each name of a listing: of the table that finds repeated names.
const NAME_BYTES: usize = 16;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    name: String,
    metadata: Metadata,
}

impl DirEntry {
    /// Returns the name: one component, never `.` or `..`.
    pub fn file_name(&self) -> &str {
        &self.name
    }

    /// Returns the metadata as the listing has it, without a further request.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the type of the file.
    pub const fn file_type(&self) -> FileType {
        self.metadata.file_type()
    }

    /// Returns the bytes that the entry takes in memory while it is listed.
    pub(crate) const fn weight(&self) -> usize {
        size_of::<Self>() + self.name.len() + NAME_BYTES
    }

    /// Replaces the metadata by what was found out since.
    #[doc(hidden)]
    pub const fn learn(&mut self, metadata: Metadata) {
        self.metadata = metadata;
    }
}

/// The entries of a directory, as a stream: [`Share::read_dir`] returns it.
///
/// Entries come in the server's order. When a connection is lost, the directory is opened and
/// listed again, and names that were already returned are skipped. Either call [`Self::next_entry`]
/// or use it as a [`Stream`]. No entry is missed when a call is given up (its future dropped) and
/// made again.
pub struct ReadDir {
    open: Arc<Open>,
    pattern: String,
    is_first: bool,
    /// The state for listing again after a lost answer. `None` if the caller does that, or if too
    /// many names have been returned.
    restart: Option<Restart>,
    /// The names of this listing.
    names: Names,
    /// Replies in a row without a new name.
    empty_replies: usize,
    /// Entries that may still come before the limit.
    left: usize,
    /// Most entries that one listing returns.
    most: usize,
    is_complete: bool,
    ready: VecDeque<DirEntry>,
    /// The request under way. It survives a caller that gives up: the server's position in
    /// the directory has moved on.
    asked: Option<BoxFuture<'static, Reply>>,
}

/// The names that a listing has brought so far, as hashes that the server cannot foresee.
struct Names {
    hashes: HashSet<u64>,
    hasher: RandomState,
    /// Names that are remembered at most.
    most: usize,
    /// True if a repeated name ends the listing; else it is skipped.
    ends: bool,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            hashes: HashSet::new(),
            hasher: RandomState::new(),
            most: LISTING_NAMES,
            ends: false,
        }
    }
}

impl Names {
    /// Returns true if the name has not come before.
    fn is_new(&mut self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        if self.hashes.len() >= self.most {
            return !self.hashes.contains(&hash);
        }
        self.hashes.insert(hash)
    }
}

/// A reply, and the Open that it came through.
type Reply = Result<(Arc<Open>, Message)>;

/// A listing that begins again. It does so through another Open: a late request for the first one
/// would move its position.
struct Restart {
    share: Share,
    path: String,
    /// Hashes of the names that have been returned.
    came: HashSet<u64>,
    hasher: RandomState,
    /// True after the first loss.
    is_again: bool,
    /// Number of losses since the last new name.
    vain: u32,
    is_due: bool,
}

impl Restart {
    fn new(share: &Share, path: &str) -> Self {
        Self {
            share: share.clone(),
            path: path.into(),
            came: HashSet::new(),
            hasher: RandomState::new(),
            is_again: false,
            vain: 0,
            is_due: false,
        }
    }

    /// Returns true if the name has not been returned before.
    fn is_new(&mut self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        if self.is_full() {
            return !self.came.contains(&hash);
        }
        let is_new = self.came.insert(hash);
        self.vain = if is_new { 0 } else { self.vain };
        is_new
    }

    fn is_full(&self) -> bool {
        self.came.len() >= LISTING_NAMES
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadDir({})", self.open.url)
    }
}

impl Share {
    /// Lists a directory as a stream; the share's root is the empty path.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    pub async fn read_dir(&self, path: &str) -> Result<ReadDir> {
        let entries = self.read_dir_with(path, Links::Followed).await?;
        Ok(ReadDir { restart: Some(Restart::new(self, path)), ..entries })
    }

    async fn read_dir_with(&self, path: &str, links: Links) -> Result<ReadDir> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        if links == Links::Refused {
            ask.options |= CreateOptions::OPEN_REPARSE_POINT;
            ask.is_of_name = true;
        }
        let (open, opened) = Open::new(self, path, ask, "list").await?;
        if links == Links::Refused && opened.attributes.contains(FileAttributes::REPARSE_POINT) {
            return Err(Error::new(Status::NOT_A_DIRECTORY, "list", self.url(path)));
        }
        Ok(ReadDir::of(open))
    }

    /// Returns all entries of a directory. When the connection is lost, the listing begins
    /// again. Directories that are listed at the same time may take 1 GiB of memory
    /// together; beyond that one listing waits for the others.
    ///
    /// # Errors
    /// Fails if the directory cannot be listed, has more than 8,388,608 entries or takes more
    /// memory ([`Cause::Limit`]), and if the server names a file twice, also when it is asked again
    /// ([`Cause::Protocol`]).
    pub async fn list_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        self.list_dir_with(path, Links::Followed).await
    }

    /// Returns all entries of a directory, which is not reached through a link of its name:
    /// another program may have put one in its place.
    ///
    /// # Errors
    /// Fails with NOT_A_DIRECTORY for a symbolic link, with [`Cause::Usage`] for a link of a DFS
    /// namespace, and as [`Self::list_dir`] does.
    pub(crate) async fn list_dir_itself(&self, path: &str) -> Result<Vec<DirEntry>> {
        self.list_dir_with(path, Links::Refused).await
    }

    async fn list_dir_with(&self, path: &str, links: Links) -> Result<Vec<DirEntry>> {
        if let Some(entries) = self.listed(path, links, Room::Now).await? {
            return Ok(entries);
        }
        let _turn = UNDER_WAY.turn().await;
        let listed = self.listed(path, links, Room::Wait).await?;
        listed.ok_or_else(|| Error::new(Cause::Limit(TOO_LARGE), "list", self.url(path)))
    }

    /// Returns all entries; `None` if there is no room for them.
    async fn listed(&self, path: &str, links: Links, room: Room) -> Result<Option<Vec<DirEntry>>> {
        let mut repeated = 0;
        for _ in 1..LISTINGS {
            match self.read_dir_with(path, links).await?.all_in(&UNDER_WAY, room).await {
                Err(error) if matches!(error.cause(), Cause::Unknown | Cause::HandleLost) => {}
                Err(error)
                    if matches!(error.cause(), Cause::Protocol(TWICE))
                        && repeated < REPEATED_LISTINGS =>
                {
                    repeated += 1;
                }
                listed => return listed,
            }
        }
        self.read_dir_with(path, links).await?.all_in(&UNDER_WAY, room).await
    }
}

/// The treatment of a link that has the name of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    /// Its target is listed.
    Followed,
    /// It is an error.
    Refused,
}

/// The reaction of a listing that finds no room in the budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Gives up at once.
    Now,
    /// Waits until other listings give room back.
    Wait,
}

impl ReadDir {
    /// A listing through `open`.
    fn of(open: Arc<Open>) -> Self {
        Self {
            open,
            pattern: String::from("*"),
            is_first: true,
            restart: None,
            names: Names::default(),
            empty_replies: 0,
            left: ENTRIES_MAX,
            most: ENTRIES_MAX,
            is_complete: false,
            ready: VecDeque::new(),
            asked: None,
        }
    }

    /// Lists only names that match `pattern`: `*` stands for any characters, `?` for one.
    /// The server compares.
    #[must_use]
    pub fn matching(self, pattern: &str) -> Self {
        Self { pattern: pattern.into(), ..self }
    }

    /// Ends the listing with [`Cause::Limit`] after `most` entries; the default and the
    /// highest value is 8,388,608.
    #[must_use]
    pub fn max_entries(self, most: usize) -> Self {
        let most = most.min(self.left);
        Self { left: most, most, ..self }
    }

    /// Returns the next entry, `None` at the end.
    ///
    /// # Errors
    /// Fails if the server does. After 262,144 names, or with connections that are lost again and
    /// again, the call fails with [`Cause::Unknown`] or [`Cause::HandleLost`] when a connection
    /// is lost: the server's position in the directory is lost too.
    pub async fn next_entry(&mut self) -> Result<Option<DirEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    /// Returns all entries that are left.
    ///
    /// # Errors
    /// Fails as [`Self::next_entry`] does.
    pub async fn collect_all(mut self) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next_entry().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Returns all entries within the room of `budget`; `None` if it does not suffice.
    async fn all_in(mut self, budget: &Budget, room: Room) -> Result<Option<Vec<DirEntry>>> {
        let (mut held, mut entries) = (budget.begin(), Vec::new());
        (self.names.most, self.names.ends) = (usize::MAX, true);
        loop {
            let count = self.ready.iter().map(DirEntry::weight).sum();
            let has_room = held.add(count) || room == Room::Wait && held.wait(count).await;
            if !has_room {
                return Ok(None);
            }
            entries.extend(self.ready.drain(..));
            if self.is_complete {
                return Ok(Some(entries));
            }
            poll_fn(|cx| self.poll_more(cx)).await?;
        }
    }

    fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<DirEntry>>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(entry)));
            }
            if self.is_complete {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_more(cx))?;
        }
    }

    /// Takes one reply in.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let class = class(self.open.is_posix());
        let asked = self.asked.get_or_insert_with(|| {
            let (open, pattern, is_first) =
                (Arc::clone(&self.open), self.pattern.clone(), self.is_first);
            let anew = self.restart.as_mut().filter(|again| again.is_due).map(|again| {
                again.is_due = false;
                (again.share.clone(), again.path.clone())
            });
            Box::pin(async move {
                let open = match anew {
                    Some((share, path)) => share.read_dir_with(&path, Links::Followed).await?.open,
                    None => open,
                };
                let message = request(Arc::clone(&open), class, pattern, is_first).await?;
                Ok((open, message))
            })
        });
        let answer = ready!(asked.as_mut().poll(cx));
        self.asked = None;
        Poll::Ready(match answer {
            Ok((open, message)) => {
                self.open = open;
                self.take(&message, class)
            }
            Err(error) if self.begins_again(&error) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Starts the listing again if the error is that of a lost answer, and [`Restart`] allows it.
    fn begins_again(&mut self, error: &Error) -> bool {
        let is_lost = matches!(error.cause(), Cause::Unknown | Cause::HandleLost);
        let again = self.restart.as_mut();
        let Some(again) = again.filter(|one| is_lost && one.vain < LISTINGS && !one.is_full())
        else {
            return false;
        };
        again.vain += 1;
        (again.is_again, again.is_due) = (true, true);
        (self.is_first, self.left, self.empty_replies) = (true, self.most, 0);
        self.names.hashes.clear();
        true
    }

    fn take(&mut self, message: &Message, class: FileInfoClass) -> Result<()> {
        self.is_first = false;
        if message.status() != Status::SUCCESS {
            self.is_complete = true;
            return Ok(());
        }
        let error = |cause| Err(Error::new(cause, "list", &*self.open.url));
        read(message, class, &self.open.share, &mut self.ready).during("list", &self.open.url)?;
        let Some(left) = self.left.checked_sub(self.ready.len()) else {
            return error(Cause::Limit(TOO_MANY));
        };
        self.left = left;
        let (count, names) = (self.ready.len(), &mut self.names);
        self.ready.retain(|entry| names.is_new(entry.file_name()));
        if self.names.ends && self.ready.len() < count {
            return error(Cause::Protocol(TWICE));
        }
        self.empty_replies = if self.ready.is_empty() { self.empty_replies + 1 } else { 0 };
        if self.empty_replies > EMPTY_LISTINGS {
            return error(Cause::Protocol("its directory listing repeats replies without names"));
        }
        if let Some(again) = &mut self.restart {
            let is_again = again.is_again;
            self.ready.retain(|entry| again.is_new(entry.file_name()) || !is_again);
            if again.is_full() && !is_again {
                self.restart = None;
            }
        }
        Ok(())
    }
}

impl Stream for ReadDir {
    type Item = Result<DirEntry>;

    /// Returns the next entry. The stream ends after an error.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.poll_next_entry(cx));
        if next.is_err() {
            self.is_complete = true;
            self.ready.clear();
        }
        Poll::Ready(next.transpose())
    }
}

/// A directory that stays open, to be listed from its beginning any number of times.
///
/// A listing may be cached for as long as the lease allows reading
/// (MS-SMB2 2.2.13.2.10 on a directory).
pub struct KeptDir {
    open: Arc<Open>,
    /// Held by the one listing: the server keeps one position for the Open. True if a late
    /// request may move it.
    listing: tokio::sync::Mutex<bool>,
    path: String,
}

impl std::fmt::Debug for KeptDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptDir({})", self.open.url)
    }
}

impl Share {
    /// Opens a directory for several listings, and asks for a read and handle lease on it.
    /// A server without directory leases grants none.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    #[doc(hidden)]
    pub async fn keep_dir(&self, path: &str, lease: &Arc<Lease>) -> Result<KeptDir> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        ask.lease = WireLeaseState::READ | WireLeaseState::HANDLE;
        ask.shared = Some(Arc::clone(lease));
        let (open, _) = Open::new(self, path, ask, "list").await?;
        Ok(KeptDir { open, listing: tokio::sync::Mutex::default(), path: path.into() })
    }
}

impl KeptDir {
    /// Returns all entries.
    ///
    /// # Errors
    /// Fails with [`Cause::Limit`] if there are more than `most`, with
    /// [`Cause::HandleLost`] after the session was lost, and if the server fails.
    pub async fn list(&self, most: usize) -> Result<Vec<DirEntry>> {
        let mut is_doubtful = self.listing.lock().await;
        if !*is_doubtful {
            match ReadDir::of(Arc::clone(&self.open)).max_entries(most).collect_all().await {
                Err(error) if matches!(error.cause(), Cause::Unknown) => *is_doubtful = true,
                listed => return listed,
            }
        }
        self.open.share.read_dir(&self.path).await?.max_entries(most).collect_all().await
    }

    /// Closes the directory.
    ///
    /// # Errors
    /// Fails if the server does.
    pub async fn close(&self) -> Result<()> {
        self.open.close(Haste::AtOnce).await
    }
}

/// The rights that listing needs.
pub(crate) const fn listing_access() -> AccessMask {
    AccessMask(AccessMask::READ_DATA.0 | AccessMask::READ_ATTRIBUTES.0 | AccessMask::SYNCHRONIZE.0)
}

/// Sends one QUERY_DIRECTORY and returns its answer.
async fn request(
    open: Arc<Open>,
    class: FileInfoClass,
    pattern: String,
    is_first: bool,
) -> Result<Message> {
    let session = &open.share.inner.session;
    let live = session.inner.live().await.during("list", &open.url)?;
    let most = LISTING_BYTES.min(live.terms.max_transact_size).min(live.affordable_in_message());
    let also = [Status::NO_MORE_FILES, Status::NO_SUCH_FILE];
    let flags =
        if is_first { QueryDirectoryFlags::RESTART_SCANS } else { QueryDirectoryFlags::EMPTY };
    // Only the server knows the position of a scan that has begun, and one over another channel may
    // move it later (MS-SMB2 3.3.5.2.10 refuses late changes, not late listings).
    let replay = if is_first && !live.is_wide { Replay::Idempotent } else { Replay::Never };
    open.ask(replay, "list", &also, |id| Ok(call(id, class, flags, &pattern, most))).await
}

fn call(
    file_id: FileId,
    class: FileInfoClass,
    flags: QueryDirectoryFlags,
    pattern: &str,
    most: u32,
) -> Call<'static> {
    let request = query_directory::Request {
        file_information_class: class.0,
        flags,
        file_index: 0,
        file_id,
        output_buffer_length: most,
        file_name: Utf16::from_str(pattern),
    };
    Call::new(Command::QUERY_DIRECTORY, |w| request.encode(w)).cost(most)
}

/// Appends the entries of a reply about a directory of `share`. A name that leads out of
/// the directory is an attack by the server (CVE-2019-10218) and ends the listing.
fn read(
    message: &Message,
    class: FileInfoClass,
    share: &Share,
    into: &mut VecDeque<DirEntry>,
) -> std::result::Result<(), Cause> {
    let output = query_directory::Response::parse(message.bytes())?.output;
    let entries = DirectoryEntries::new(output, class)
        .ok_or(Cause::Protocol("it answered a listing with another class of information"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.name.decode().unwrap_or_else(|_| entry.name.to_string_lossy());
        if name == "." || name == ".." {
            continue;
        }
        let name = if entry.posix.is_some() { name_from_posix(name) } else { name };
        if !is_sound(&name) {
            return Err(Cause::Protocol("a directory contains a name that is not a file name"));
        }
        // The targets of a namespace's links are directories (MS-FSCC 2.1.2.1).
        let is_junction = share.way.is_some()
            && entry.attributes.contains(FileAttributes::REPARSE_POINT)
            && matches!(entry.reparse_tag, DFS | DFSR);
        let mut attributes = entry.attributes;
        if is_junction {
            attributes.0 &= !FileAttributes::REPARSE_POINT.0;
            attributes |= FileAttributes::DIRECTORY;
        }
        let metadata = Metadata {
            len: entry.end_of_file,
            allocation: entry.allocation_size,
            attributes,
            created: entry.creation_time,
            accessed: entry.last_access_time,
            written: entry.last_write_time,
            changed: entry.change_time,
            reparse_tag: entry.reparse_tag,
            file_id: entry.file_id,
            links: entry.posix.map_or(0, |posix| posix.links),
            posix: entry.posix.as_ref().map(PosixMetadata::of),
            is_junction: false,
            special: None,
        };
        let metadata = share.found(metadata, is_junction);
        if planted!(MissedName) && into.len() == 2 {
            continue;
        }
        into.push_back(DirEntry { name, metadata });
    }
    Ok(())
}
