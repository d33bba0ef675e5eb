//! Directory listings: as few round trips as the server's replies allow. MS-SMB2 3.2.4.17.
//!
//! The CREATE and two QUERY_DIRECTORY requests leave together: the second one finds the end of most
//! directories, and a listing costs one round trip for each MiB of entries.

mod leased;
mod requests;

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;
use futures_util::future::BoxFuture;
use futures_util::stream::Stream;

use crate::Status;
use crate::connection::Message;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{EMPTY_LISTINGS, ENTRIES_MAX, LISTING_NAMES, LISTINGS, REPEATED_LISTINGS};
use crate::listings::{Budget, UNDER_WAY};
use crate::metadata::{FileType, Metadata};
use crate::open::create::Ask;
use crate::open::{Followers, Open};
use crate::share::Share;
use crate::share::compound::RELATED;
pub use leased::LeasedDir;
use requests::{calls, is_answer, listing_bytes, read, request};

/// The class that listings ask for: names, times, sizes, attributes, ids and reparse tags;
/// of a POSIX Open modes and owners too.
const fn class(posix: bool) -> FileInfoClass {
    if posix { FileInfoClass::POSIX } else { FileInfoClass::ID_BOTH_DIRECTORY }
}
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
    /// The names of a listing that is kept as a whole.
    fn of_all() -> Self {
        Self { most: usize::MAX, ends: true, ..Self::default() }
    }

    /// Returns true if the name has not come before.
    fn is_new(&mut self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        if self.hashes.len() >= self.most {
            return !self.hashes.contains(&hash);
        }
        self.hashes.insert(hash)
    }
}

/// Replies of one round trip, and the Open that they came through.
type Reply = Result<(Arc<Open>, Vec<Message>)>;

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
        Ok(self.open_dir(path, links, None).await?.0)
    }

    /// Requests for the first entries that leave with the CREATE of a directory; None while the
    /// session is lost.
    fn first_requests(&self) -> Option<Followers> {
        let live = self.session().inner.current()?;
        let most = listing_bytes(&live);
        let class = class(self.is_posix());
        Some(Box::new(move || calls(RELATED, class, "*", true, most)))
    }

    async fn open_dir(
        &self,
        path: &str,
        links: Links,
        followers: Option<Followers>,
    ) -> Result<(ReadDir, Vec<Message>)> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        if links == Links::Refused {
            ask.options |= CreateOptions::OPEN_REPARSE_POINT;
            ask.is_of_name = true;
        }
        let opened = Open::with_followers(self, path, ask, "list", followers).await?;
        let (open, opened, first) = opened;
        if links == Links::Refused && opened.attributes.contains(FileAttributes::REPARSE_POINT) {
            return Err(Error::new(Status::NOT_A_DIRECTORY, "list", self.url(path)));
        }
        Ok((ReadDir::of(open), first))
    }

    /// Returns all entries of a directory, at most `most`.
    ///
    /// # Errors
    /// Fails with [`Cause::Limit`] if there are more, and as [`Self::list_dir`] does.
    #[doc(hidden)]
    pub async fn list_dir_of(&self, path: &str, most: usize) -> Result<Vec<DirEntry>> {
        let (entries, first) = self.open_dir(path, Links::Followed, self.first_requests()).await?;
        let entries = ReadDir { restart: Some(Restart::new(self, path)), ..entries };
        let entries = entries.max_entries(most).begun_by(&first, class(self.is_posix()))?;
        entries.collect_all().await
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
            match self.list_at_once(path, links, room).await {
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
        self.list_at_once(path, links, room).await
    }

    /// Lists a directory, whose first entries come in the round trip that opens it.
    async fn list_at_once(
        &self,
        path: &str,
        links: Links,
        room: Room,
    ) -> Result<Option<Vec<DirEntry>>> {
        let (entries, first) = self.open_dir(path, links, self.first_requests()).await?;
        let entries = ReadDir { names: Names::of_all(), ..entries };
        entries.begun_by(&first, class(self.is_posix()))?.all_in(&UNDER_WAY, room).await
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
            let due = self.restart.as_mut().filter(|again| again.is_due).map(|again| {
                again.is_due = false;
                (again.share.clone(), again.path.clone())
            });
            Box::pin(async move {
                let open = match due {
                    Some((share, path)) => share.read_dir_with(&path, Links::Followed).await?.open,
                    None => open,
                };
                let messages = request(Arc::clone(&open), class, pattern, is_first).await?;
                Ok((open, messages))
            })
        });
        let answer = ready!(asked.as_mut().poll(cx));
        self.asked = None;
        Poll::Ready(match answer {
            Ok((open, messages)) => {
                self.open = open;
                self.take_all(&messages, class)
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

    /// Begins with answers that came with that of the CREATE, to requests for `class`.
    fn begun_by(mut self, first: &[Message], class: FileInfoClass) -> Result<Self> {
        let is_of_class = class == self::class(self.open.is_posix());
        // If the answer is a refusal, it is dropped. The listing then sends its first request
        // again, alone, and handles the refusal there.
        if is_of_class && first.first().is_some_and(is_answer) {
            self.take_all(first, class)?;
        }
        Ok(self)
    }

    /// Takes the answers to requests that left together: the first one decides, and further ones
    /// that failed are asked again.
    fn take_all(&mut self, messages: &[Message], class: FileInfoClass) -> Result<()> {
        for message in messages.iter().take_while(|message| is_answer(message)) {
            self.take(message, class)?;
            if self.is_complete {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &Message, class: FileInfoClass) -> Result<()> {
        self.is_first = false;
        if message.status() != Status::SUCCESS {
            self.is_complete = true;
            return Ok(());
        }
        let error = |cause| Err(Error::new(cause, "list", &*self.open.url));
        let mut entries = VecDeque::new();
        read(message, class, &self.open.share, &mut entries).during("list", &self.open.url)?;
        let Some(left) = self.left.checked_sub(entries.len()) else {
            return error(Cause::Limit(TOO_MANY));
        };
        self.left = left;
        let (count, names) = (entries.len(), &mut self.names);
        entries.retain(|entry| names.is_new(entry.file_name()));
        if self.names.ends && entries.len() < count {
            return error(Cause::Protocol(TWICE));
        }
        self.empty_replies = if entries.is_empty() { self.empty_replies + 1 } else { 0 };
        if self.empty_replies > EMPTY_LISTINGS {
            return error(Cause::Protocol("its directory listing repeats replies without names"));
        }
        if let Some(again) = &mut self.restart {
            let is_again = again.is_again;
            entries.retain(|entry| again.is_new(entry.file_name()) || !is_again);
            if again.is_full() && !is_again {
                self.restart = None;
            }
        }
        self.ready.append(&mut entries);
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

/// The rights that listing needs.
pub(crate) const fn listing_access() -> AccessMask {
    AccessMask(AccessMask::READ_DATA.0 | AccessMask::READ_ATTRIBUTES.0 | AccessMask::SYNCHRONIZE.0)
}
