//! Files: reading and writing at offsets, many requests at once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use frevo_net::buffer::Buf;
use frevo_wire::command::create::CreateAction;
use frevo_wire::command::lock::{LockElement, LockFlags};
use frevo_wire::command::oplock_break::LeaseState;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::command::{flush, lock, query_info, read, set_info, write};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::{Command, Status};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::connection::{Call, Message, PAYLOAD_HEADROOM, Patience, Payload};
use crate::create::Opened;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{PAYLOAD_MAX, SHORT_WRITES};
use crate::metadata::Metadata;
use crate::open::{Open, carried_through};
use crate::open_options::OpenOptions;
use crate::session::breaks::LeaseHolder;
use crate::set_attributes::Basic;
use crate::share::{Replay, Share};

/// An open file. Cloning it gives the same Open; it is closed when the last
/// clone is dropped, or by [`Self::close`], which says whether that went well.
#[derive(Clone)]
pub struct File {
    pub(crate) open: Arc<Open>,
    pub(crate) opened: Opened,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({})", self.open.url)
    }
}

impl File {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// What the server says.
    pub async fn open(share: &Share, path: &str) -> Result<Self> {
        OpenOptions::new().read(true).open(share, path).await
    }

    /// Makes a file, or empties the one that is there, for writing.
    ///
    /// # Errors
    /// What the server says.
    pub async fn create(share: &Share, path: &str) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(share, path).await
    }

    /// The share that it is in.
    pub fn share(&self) -> &Share {
        &self.open.share
    }

    /// What a person calls it.
    pub fn url(&self) -> &str {
        &self.open.url
    }

    /// What was known of it when it was opened.
    pub fn metadata_at_open(&self) -> Metadata {
        Metadata::from(&self.opened).found_in(&self.open.share, false)
    }

    /// The largest READ and WRITE that are sent, bytes.
    pub(crate) async fn sizes(&self) -> Result<(u32, u32)> {
        let session = &self.open.share.inner.session;
        let live = session.inner.live().await.during("open", &self.open.url)?;
        let most = session.options().transfer.min(live.affordable()).clamp(4096, PAYLOAD_MAX);
        Ok((live.terms.max_read_size.min(most), live.terms.max_write_size.min(most)))
    }

    /// Reads up to `len` bytes at `offset` in one request; fewer at the end of
    /// the file, none behind it. The bytes are where the network put them.
    ///
    /// # Errors
    /// What the server says.
    pub async fn read_bytes(&self, offset: u64, len: u32) -> Result<Bytes> {
        self.check_payload("read", len)?;
        Ok(self.read_chunk(offset, len).await?.into_bytes())
    }

    fn check_payload(&self, operation: &'static str, len: u32) -> Result<()> {
        if len <= PAYLOAD_MAX {
            return Ok(());
        }
        let cause = Cause::Usage("no request carries more than 8 MiB");
        Err(Error::new(cause, operation, &*self.open.url))
    }

    pub(crate) async fn read_chunk(&self, offset: u64, len: u32) -> Result<Buf> {
        let also = [Status::END_OF_FILE, Status::BUFFER_OVERFLOW];
        let message = self
            .open
            .ask(Replay::Idempotent, "read", &also, |id| {
                let request = read::Request::new(id, offset, len);
                Ok(Call::new(Command::READ, |w| request.encode(w)).cost(len))
            })
            .await?;
        if message.header.status == Status::END_OF_FILE {
            return Ok(Buf::new());
        }
        let parsed = read::Response::parse(message.bytes()).during("read", &self.open.url)?;
        if parsed.data.len() > len as usize {
            let cause = Cause::Protocol("more data than was asked for");
            return Err(Error::new(cause, "read", &*self.open.url));
        }
        let range = parsed.data_range;
        Ok(message.into_range(range))
    }

    /// Reads at `offset` until `into` is full or the file ends; returns the
    /// count. Many requests are under way at once.
    ///
    /// # Errors
    /// What the server says.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let (most, _) = self.sizes().await?;
        let mut parts = FuturesUnordered::new();
        for (at, part) in into.chunks_mut(most as usize).enumerate() {
            let start = at * most as usize;
            parts.push(async move {
                Ok::<_, Error>((
                    start,
                    self.read_part(offset + start as u64, part).await?,
                    part.len(),
                ))
            });
        }
        // The end lies where the first part is not full.
        let mut end = usize::MAX;
        let mut total = 0;
        while let Some(part) = parts.next().await {
            let (start, count, wanted) = part?;
            total = total.max(start + count);
            if count < wanted {
                end = end.min(start + count);
            }
        }
        Ok(total.min(end))
    }

    async fn read_part(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let rest = into.get_mut(done..).unwrap_or_default();
            let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let chunk = self.read_chunk(offset + done as u64, len).await?;
            if chunk.is_empty() {
                break;
            }
            // No longer than was asked for: that was checked.
            if let Some(place) = rest.get_mut(..chunk.len()) {
                place.copy_from_slice(&chunk);
            }
            done += chunk.len();
        }
        Ok(done)
    }

    /// Writes all of `data` at `offset`. Many requests are under way at once.
    ///
    /// # Errors
    /// What the server says. What was written before is not taken back.
    pub async fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let (_, most) = self.sizes().await?;
        let parts: FuturesUnordered<_> = data
            .chunks(most as usize)
            .enumerate()
            .map(|(at, part)| self.write_chunk(offset + at as u64 * u64::from(most), part))
            .collect();
        parts.collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn write_chunk(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.write_with(offset, len, |payload| {
            payload.extend_from_slice(data);
            Ok(())
        })
        .await
    }

    /// Writes `len` bytes at `offset` that `fill` appends to the buffer from
    /// which they are sent. It is called again if they must be sent again.
    ///
    /// # Errors
    /// What the server says, or `fill`.
    pub async fn write_with(
        &self,
        offset: u64,
        len: u32,
        mut fill: impl FnMut(&mut Buf) -> std::io::Result<()> + Send,
    ) -> Result<()> {
        self.check_payload("write", len)?;
        let mut done = 0;
        for _ in 0..SHORT_WRITES {
            let rest = len - done;
            match self.write_rest(offset, len, done, &mut fill).await? {
                // A server that had room would have written something.
                0 if rest > 0 => {
                    return Err(Error::new(Status::DISK_FULL, "write", &*self.open.url));
                }
                count if count > rest => break,
                count => done += count,
            }
            if done == len {
                return Ok(());
            }
        }
        let cause = Cause::Protocol("another count of bytes written than can be");
        Err(Error::new(cause, "write", &*self.open.url))
    }

    /// Writes what is left when `done` bytes were: how much the server took.
    async fn write_rest(
        &self,
        offset: u64,
        len: u32,
        done: u32,
        fill: &mut (impl FnMut(&mut Buf) -> std::io::Result<()> + Send),
    ) -> Result<u32> {
        let mut tries = 0;
        let rest = len - done;
        let message = self
            .open
            .ask(Replay::Idempotent, "write", &[], |id| {
                tries += 1;
                let mut payload = Buf::with_headroom(PAYLOAD_HEADROOM, len as usize);
                fill(&mut payload).map_err(|error| Cause::Local(Arc::new(error)))?;
                if payload.len() != len as usize {
                    return Err(Cause::Usage("the data became shorter while it was sent"));
                }
                if done > 0 {
                    let mut tail = Buf::with_headroom(PAYLOAD_HEADROOM, rest as usize);
                    tail.extend_from_slice(payload.get(done as usize..).unwrap_or_default());
                    payload = tail;
                }
                let again = planted!(DoubleAppend) && tries > 1;
                let offset = if again { offset + u64::from(len) } else { offset };
                let request = write::Request::new(id, offset + u64::from(done), &[]);
                Ok(Call::new(Command::WRITE, |w| request.encode_fixed(rest, w))
                    .cost(rest)
                    .payload(Payload::Placed(payload)))
            })
            .await?;
        let response = write::Response::parse(message.bytes()).during("write", &self.open.url)?;
        Ok(response.count)
    }

    /// Puts what was written on stable storage.
    ///
    /// # Errors
    /// What the server says; then what was written may be lost.
    pub async fn sync(&self) -> Result<()> {
        self.open
            .ask(Replay::Idempotent, "flush", &[], |file_id| {
                let request = flush::Request { reserved1: 0, file_id };
                Ok(Call::new(Command::FLUSH, |w| request.encode(w)))
            })
            .await?;
        Ok(())
    }

    /// Its present metadata.
    ///
    /// # Errors
    /// What the server says.
    pub async fn metadata(&self) -> Result<Metadata> {
        crate::info::metadata(&self.open).await
    }

    /// Cuts or extends it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_len(&self, len: u64) -> Result<()> {
        let class = FileInfoClass::END_OF_FILE;
        self.set_info(class, "resize", len.to_le_bytes().to_vec()).await
    }

    /// Sets the time of the last write, and of the last access.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_times(
        &self,
        modified: Option<SystemTime>,
        accessed: Option<SystemTime>,
    ) -> Result<()> {
        let times = Basic { modified, accessed, ..Basic::default() };
        self.set_info(FileInfoClass::BASIC, "set the times of", times.encode()).await
    }

    pub(crate) async fn set_info(
        &self,
        class: FileInfoClass,
        operation: &'static str,
        data: Vec<u8>,
    ) -> Result<()> {
        crate::info::set(&self.open, class, operation, &data).await
    }

    /// Locks `len` bytes at `offset`, for writing if `exclusive`. With `wait`
    /// the call waits until whoever has them lets go. One that is given up (dropped) locks
    /// nothing: what the server granted meanwhile is unlocked.
    ///
    /// # Errors
    /// LOCK_NOT_GRANTED (`WouldBlock`) without `wait`, and what else the server
    /// says.
    pub async fn lock(&self, offset: u64, len: u64, exclusive: bool, wait: bool) -> Result<()> {
        let kind = if exclusive { LockFlags::EXCLUSIVE_LOCK } else { LockFlags::SHARED_LOCK };
        let flags = if wait { kind } else { kind | LockFlags::FAIL_IMMEDIATELY };
        let patience = Arc::new(Patience::default());
        let work = locked(Arc::clone(&self.open), (offset, len), flags, Arc::clone(&patience));
        let _waits = Waits(patience);
        carried_through("lock", &self.open.url, work).await?.keep();
        Ok(())
    }

    /// Unlocks what [`Self::lock`] locked: the same offset and length.
    ///
    /// # Errors
    /// RANGE_NOT_LOCKED when that is not locked.
    pub async fn unlock(&self, offset: u64, len: u64) -> Result<()> {
        let work = unlocked(Arc::clone(&self.open), (offset, len));
        carried_through("unlock", &self.open.url, work).await
    }

    /// Closes it and says whether that went well.
    ///
    /// # Errors
    /// What the server says.
    pub async fn close(self) -> Result<()> {
        self.open.close().await
    }

    /// Whether the server keeps the handle, with its locks and its lease, over its own
    /// end too, as it said when it was opened (MS-SMB2 3.3.1.10 Open.IsPersistent).
    pub fn is_persistent(&self) -> bool {
        self.open.is_persistent()
    }

    /// Whether opening it made it.
    pub fn was_created(&self) -> bool {
        self.opened.action == CreateAction::CREATED
    }

    /// `holder` is told when the lease breaks, before the server is answered.
    pub fn watch_lease(&self, holder: Weak<dyn LeaseHolder>) {
        self.open.lease().watch(holder);
    }

    /// What this client may cache of it now. Nothing while the session is lost:
    /// [`Self::confirm`] takes it up again.
    pub fn lease(&self) -> LeaseState {
        self.open.lease().grant().state
    }

    /// Takes the file up in the session that there is now, if that is another one
    /// than before: then its lease tells again what may be kept.
    ///
    /// # Errors
    /// As any request about the file.
    pub async fn confirm(&self) -> Result<()> {
        self.open.confirm("open").await
    }
}

/// Locks are waited for until this is dropped.
struct Waits(Arc<Patience>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A lock that nobody knows of yet: dropping it unlocks.
struct PendingLock {
    open: Option<Arc<Open>>,
    range: (u64, u64),
}

impl PendingLock {
    fn keep(mut self) {
        self.open = None;
    }
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(unlocked(open, self.range));
    }
}

async fn locked(
    open: Arc<Open>,
    range: (u64, u64),
    flags: LockFlags,
    patience: Arc<Patience>,
) -> Result<PendingLock> {
    lock_call(&open, range, flags, "lock", Some(patience)).await?;
    open.locks.fetch_add(1, Ordering::AcqRel);
    Ok(PendingLock { open: Some(open), range })
}

async fn unlocked(open: Arc<Open>, range: (u64, u64)) -> Result<()> {
    lock_call(&open, range, LockFlags::UNLOCK, "unlock", None).await?;
    open.locks.fetch_sub(1, Ordering::AcqRel);
    Ok(())
}

/// A lock that is lost on its way is sent again with its sequence, by which
/// a server that keeps the Open knows it (MS-SMB2 3.3.5.14).
async fn lock_call(
    open: &Open,
    (offset, length): (u64, u64),
    flags: LockFlags,
    operation: &'static str,
    patience: Option<Arc<Patience>>,
) -> Result<()> {
    let sequence = open.sequences.take();
    let lock_sequence = sequence.as_ref().map(|s| s.sequence).unwrap_or_default();
    let waits = !flags.intersects(LockFlags::FAIL_IMMEDIATELY | LockFlags::UNLOCK);
    let mut was_sent = false;
    let call = |file_id: FileId| {
        if !was_sent && patience.as_ref().is_some_and(|patience| patience.has_ended()) {
            return Err(Cause::Usage("nobody waits for it any more"));
        }
        was_sent = true;
        let locks = vec![LockElement { offset, length, flags }];
        let request = lock::Request { lock_sequence, file_id, locks };
        let call = Call::new(Command::LOCK, |w| request.encode(w));
        Ok(Call { waits, patience: patience.clone().filter(|_| waits), ..call })
    };
    let replay = if sequence.is_some() { Replay::Idempotent } else { Replay::Never };
    open.ask(replay, operation, &[], call).await?;
    Ok(())
}

/// A QUERY_INFO request.
pub(crate) fn query(
    kind: InfoType,
    class: u8,
    additional: u32,
    file_id: FileId,
    input: &[u8],
    max: u32,
) -> Call<'static> {
    let request = query_info::Request {
        info_type: kind,
        file_info_class: class,
        output_buffer_length: max,
        additional_information: additional,
        flags: query_info::QueryInfoFlags::EMPTY,
        file_id,
        input,
    };
    Call::new(Command::QUERY_INFO, |w| request.encode(w)).cost(max)
}

/// A SET_INFO request.
pub(crate) fn set(
    kind: InfoType,
    class: u8,
    additional: u32,
    file_id: FileId,
    buffer: &[u8],
) -> Call<'static> {
    let request = set_info::Request {
        info_type: kind,
        file_info_class: class,
        additional_information: additional,
        file_id,
        buffer,
    };
    let cost = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    Call::new(Command::SET_INFO, |w| request.encode(w)).cost(cost)
}

/// The output of a QUERY_INFO response.
pub(crate) fn output(message: &Message) -> std::result::Result<&[u8], Cause> {
    Ok(query_info::Response::parse(message.bytes())?.output)
}
