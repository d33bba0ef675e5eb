//! Directories: listing in as few round trips as the server's replies allow.

use std::collections::VecDeque;
use std::sync::Arc;

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::oplock_break::LeaseState;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::{Command, Status, Utf16};

use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, try_unfold};

use crate::connection::{Call, Message};
use crate::create::Ask;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{EMPTY_LISTINGS, ENTRIES_MAX, LISTING_BYTES};
use crate::listings::Budget;
use crate::metadata::Metadata;
use crate::open::Open;
use crate::path::is_sound;
use crate::posix::Posix;
use crate::session::lease::Lease;
use crate::share::{Replay, Share};

/// The class asked for: names, times, sizes, attributes, ids, reparse tags; of a POSIX
/// Open modes and owners too.
const fn class(posix: bool) -> FileInfoClass {
    if posix { FileInfoClass::POSIX } else { FileInfoClass::ID_BOTH_DIRECTORY }
}
/// IO_REPARSE_TAG_DFS and IO_REPARSE_TAG_DFSR, MS-FSCC 2.1.2.1.
const DFS: u32 = 0x8000_000A;
const DFSR: u32 = 0x8000_0012;

/// A directory with more than [`ENTRIES_MAX`] entries.
pub(crate) const TOO_MANY: &str = "a listing without end: the directory has more than 8,388,608 \
    entries; list a part of it by a pattern";

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    name: String,
    metadata: Metadata,
}

impl DirEntry {
    /// Its name: one component, never `.` or `..`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// More was found out since.
    pub const fn learn(&mut self, metadata: Metadata) {
        self.metadata = metadata;
    }

    /// What the listing tells of it.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// A directory being listed.
pub struct Dir {
    open: Arc<Open>,
    pattern: String,
    fresh: bool,
    /// Replies in a row that named nothing.
    empty: usize,
    /// Entries that may still come.
    left: usize,
    ended: bool,
    ready: VecDeque<DirEntry>,
    /// The question under way: whoever asks next, if who asked does not wait any more,
    /// gets its answer. The server has gone on by then.
    asked: Option<BoxFuture<'static, Result<Message>>>,
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir({})", self.open.url)
    }
}

impl Dir {
    pub(crate) async fn new(share: &Share, path: &str, ask: Option<Ask>) -> Result<Self> {
        let mut ask = ask.unwrap_or_else(|| Ask::existing(listing_access()));
        ask.options |= CreateOptions::DIRECTORY_FILE;
        let (open, _) = Open::new(share, path, ask, "list").await?;
        Ok(Self::of(open))
    }

    /// One that goes through what `open` has open.
    fn of(open: Arc<Open>) -> Self {
        Self {
            open,
            pattern: String::from("*"),
            fresh: true,
            empty: 0,
            left: ENTRIES_MAX,
            ended: false,
            ready: VecDeque::new(),
            asked: None,
        }
    }

    /// Only names that fit `pattern` (`*` and `?`), matched by the server.
    #[must_use]
    pub fn matching(self, pattern: &str) -> Self {
        Self { pattern: pattern.into(), ..self }
    }

    /// Ends with an error after `most` entries, if that is less than
    /// [`ENTRIES_MAX`].
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { left: most.min(self.left), ..self }
    }

    /// The next entry, in the server's order. None is missed when a call is given up
    /// (dropped) and made again.
    ///
    /// # Errors
    /// What the server says. After a lost connection the listing goes on in a
    /// new handle only from its beginning; that is reported, not guessed.
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            if self.ended {
                return Ok(None);
            }
            self.more().await?;
        }
    }

    /// The entries as a stream, which ends after an error.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn into_stream(self) -> impl Stream<Item = Result<DirEntry>> + Send + Unpin {
        Box::pin(try_unfold(self, async |mut dir| Ok(dir.next().await?.map(|entry| (entry, dir)))))
    }

    /// All entries.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn all(mut self) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// All entries within the room of `budget`; none when there is too little, for which
    /// it waits if `waits`.
    pub(crate) async fn all_in(
        mut self,
        budget: &Budget,
        waits: bool,
    ) -> Result<Option<Vec<DirEntry>>> {
        let (mut held, mut entries) = (budget.begin(), Vec::new());
        loop {
            let count = self.ready.len();
            let has_room = held.add(count) || waits && held.wait(count).await;
            if !has_room {
                return Ok(None);
            }
            entries.extend(self.ready.drain(..));
            if self.ended {
                return Ok(Some(entries));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<()> {
        let session = &self.open.share.inner.session;
        let live = session.inner.live().await.during("list", &self.open.url)?;
        let most = LISTING_BYTES.min(live.terms.max_transact_size).min(live.affordable());
        let also = [Status::NO_MORE_FILES, Status::NO_SUCH_FILE];
        let flags = if self.fresh {
            QueryDirectoryFlags::RESTART_SCANS
        } else {
            QueryDirectoryFlags::EMPTY
        };
        // Where a scan stands is known to the server alone.
        let replay = if self.fresh { Replay::Idempotent } else { Replay::Never };
        let class = class(self.open.is_posix());
        let asked = self.asked.get_or_insert_with(|| {
            let (open, pattern) = (Arc::clone(&self.open), self.pattern.clone());
            Box::pin(async move {
                let ask = |id| Ok(call(id, class, flags, &pattern, most));
                open.ask(replay, "list", &also, ask).await
            })
        });
        let message = asked.await;
        self.asked = None;
        let message = message?;
        self.fresh = false;
        if message.header.status != Status::SUCCESS {
            self.ended = true;
            return Ok(());
        }
        read(&message, class, &self.open.share, &mut self.ready).during("list", &self.open.url)?;
        let Some(left) = self.left.checked_sub(self.ready.len()) else {
            let cause = Cause::Protocol(TOO_MANY);
            return Err(Error::new(cause, "list", &*self.open.url));
        };
        self.left = left;
        self.empty = if self.ready.is_empty() { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_LISTINGS {
            let cause = Cause::Protocol("a listing without end and without names");
            return Err(Error::new(cause, "list", &*self.open.url));
        }
        Ok(())
    }
}

/// A directory that is kept open, and listed from its beginning as often as one likes.
///
/// What was listed may be kept for as long as its lease allows reading
/// (MS-SMB2 2.2.13.2.10 on a directory).
pub struct KeptDir {
    open: Arc<Open>,
    /// The server knows one place in it.
    listing: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for KeptDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptDir({})", self.open.url)
    }
}

impl Share {
    /// Opens a directory to be kept, and asks for `lease` to read what is in it and to
    /// keep it open. A server that has no leases on directories grants nothing.
    ///
    /// # Errors
    /// What the server says.
    pub async fn keep_dir(&self, path: &str, lease: &Arc<Lease>) -> Result<KeptDir> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        ask.lease = LeaseState::READ | LeaseState::HANDLE;
        ask.shared = Some(Arc::clone(lease));
        let (open, _) = Open::new(self, path, ask, "list").await?;
        Ok(KeptDir { open, listing: tokio::sync::Mutex::default() })
    }
}

impl KeptDir {
    /// All that is in it. More than `most` entries are an error.
    ///
    /// # Errors
    /// What the server says; HANDLE_LOST after the session was.
    pub async fn list(&self, most: usize) -> Result<Vec<DirEntry>> {
        let _turn = self.listing.lock().await;
        Dir::of(Arc::clone(&self.open)).at_most(most).all().await
    }

    /// Closes it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn close(&self) -> Result<()> {
        self.open.close().await
    }
}

/// Rights for listing.
pub(crate) const fn listing_access() -> AccessMask {
    AccessMask(AccessMask::READ_DATA.0 | AccessMask::READ_ATTRIBUTES.0 | AccessMask::SYNCHRONIZE.0)
}

pub(crate) fn call(
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

/// Appends the entries of a reply about a directory of `share`. A name that would
/// lead out of the directory is the server's attack, and ends the listing.
pub(crate) fn read(
    message: &Message,
    class: FileInfoClass,
    share: &Share,
    into: &mut VecDeque<DirEntry>,
) -> std::result::Result<(), Cause> {
    let output = query_directory::Response::parse(message.bytes())?.output;
    let entries = DirectoryEntries::new(output, class).ok_or(Cause::Protocol("entries"))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.name.decode().unwrap_or_else(|_| entry.name.to_string_lossy());
        if name == "." || name == ".." {
            continue;
        }
        if !is_sound(&name) {
            return Err(Cause::Protocol("a name that is none"));
        }
        // What links of a namespace lead to are directories (MS-FSCC 2.1.2.1).
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
            posix: entry.posix.as_ref().map(Posix::of),
            is_junction: false,
            special: None,
        };
        let metadata = metadata.found_in(share, is_junction);
        if planted!(MissedName) && into.len() == 2 {
            continue;
        }
        into.push_back(DirEntry { name, metadata });
    }
    Ok(())
}
