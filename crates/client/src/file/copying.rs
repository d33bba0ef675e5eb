//! Copies that the server makes: offload (ODX), shared extents, COPYCHUNK.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{Chunk, CopyRequest, CopyResponse, ResumeKeyResponse};
use frevo_wire::fscc::fsctl::{
    DuplicateExtents, OffloadReadReply, OffloadReadRequest, OffloadWriteReply, OffloadWriteRequest,
};

use crate::Status;
use crate::connection::Message;
use crate::error::{Cause, During, Error, Result};
use crate::file::File;
use crate::limits::ATTEMPTS;
use crate::open::fsctl::{CANNOT, control, output, signed};

/// Most bytes of one clone or offload.
const PART: u64 = 256 << 20;
/// Offsets and lengths of offloads are multiples of this, bytes.
const SECTOR: u64 = 4096;
/// The limits of Windows and Samba for one COPYCHUNK; a server may name lower ones.
const CHUNKS: Limits = Limits { chunks: 16, chunk: 1 << 20, total: 16 << 20 };

/// The statuses after which COPYCHUNK goes on otherwise, or is not there.
const UNCOPIED: [Status; 6] = [
    Status::INVALID_PARAMETER,
    Status::OBJECT_NAME_NOT_FOUND,
    CANNOT[0],
    CANNOT[1],
    CANNOT[2],
    CANNOT[3],
];

#[derive(Clone, Copy)]
struct Limits {
    chunks: u32,
    chunk: u32,
    total: u32,
}

/// The way in which a server copied, in the order in which the ways are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyMethod {
    /// The storage copied (offloaded data transfer, ODX).
    Offloaded,
    /// The files share their extents on disk; perhaps a part of the data was offloaded.
    Cloned,
    /// The server read and wrote the data.
    OnServer,
}

impl File {
    /// Copies `len` bytes from offset `from` of this file to offset `to` of `target`, which is
    /// on the same server, without sending them through this machine. Returns `None` if the
    /// server cannot copy: then the caller has to read and write. Between two sessions only
    /// the storage can copy (ODX), if both accept its tokens.
    ///
    /// # Errors
    /// Fails if the server begins to copy and then fails: a part of the data may have been
    /// copied.
    pub async fn copy_range_to(
        &self,
        target: &Self,
        from: u64,
        to: u64,
        len: u64,
    ) -> Result<Option<CopyMethod>> {
        // These checks keep later sums from overflowing.
        for end in [from.saturating_add(len), to.saturating_add(len)] {
            signed(end)?;
        }
        let mut copying = Copying { source: self, target, from, to, len, done: 0, was: None };
        let how = copying.by_server().await?;
        if how.is_none() {
            copying.give_back().await?;
        }
        Ok(how)
    }
}

/// A copy under way on the server.
struct Copying<'a> {
    source: &'a File,
    target: &'a File,
    from: u64,
    to: u64,
    len: u64,
    /// Bytes that are copied, from the beginning on.
    done: u64,
    /// The target's length before it was extended to the end of the copy.
    was: Option<u64>,
}

impl Copying<'_> {
    /// Tries one way after the other, each from where the last one ended.
    async fn by_server(&mut self) -> Result<Option<CopyMethod>> {
        // An offloaded copy is tried first, because a server that can share extents shares them for
        // an offloaded copy, too.
        self.offload().await?;
        if self.done == self.len {
            return Ok(Some(CopyMethod::Offloaded));
        }
        // The offloaded copy has copied nothing, or all but the last bytes that do not fill a
        // sector. If source and target are in different sessions, the server can neither clone nor
        // copy the rest, so the caller reads and writes the range itself.
        if !self.is_in_one_session() {
            return Ok(None);
        }
        self.clone_extents().await?;
        if self.done == self.len {
            return Ok(Some(CopyMethod::Cloned));
        }
        Ok(self.chunks().await?.then_some(CopyMethod::OnServer))
    }

    /// Returns true if the server knows both files in one session. A share that moves to another node
    /// may leave the session.
    fn is_in_one_session(&self) -> bool {
        self.source.share().session().is_same(self.target.share().session())
    }

    /// Extends the target: extents and offloaded data cannot go behind its end.
    async fn reach(&mut self) -> Result<()> {
        if self.was.is_some() {
            return Ok(());
        }
        let was = self.target.metadata().await?.len();
        if was < self.to + self.len {
            self.target.set_len(self.to + self.len).await?;
        }
        self.was = Some(was);
        Ok(())
    }

    /// Restores the length of the target.
    async fn give_back(&self) -> Result<()> {
        match self.was {
            Some(was) if was < self.to + self.len => self.target.set_len(was).await,
            _ => Ok(()),
        }
    }

    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE, up to the first part that the file system's alignment
    /// does not allow.
    async fn clone_extents(&mut self) -> Result<()> {
        let refused = &self.target.share().inner.refusals.clones;
        if refused.stands() {
            return Ok(());
        }
        self.reach().await?;
        while self.done < self.len {
            let count = (self.len - self.done).min(PART);
            let mut input = Vec::new();
            // The request needs the source's FileId in the present session, so a lost source is
            // reconnected first.
            self.source.confirm().await?;
            if !self.is_in_one_session() {
                break;
            }
            DuplicateExtents {
                source_file_id: self.source.open.file_id(),
                source_file_offset: signed(self.from + self.done)?,
                target_file_offset: signed(self.to + self.done)?,
                byte_count: signed(count)?,
            }
            .encode(&mut Writer::new(&mut input));
            let code = CtlCode::DUPLICATE_EXTENTS_TO_FILE;
            let Err(error) = control(&self.target.open, "clone to", code, &input, 0, &[]).await
            else {
                self.done += count;
                continue;
            };
            match error.status() {
                // These statuses say that the file system can never clone, so this is remembered.
                // NOT_SUPPORTED concerns only these two files (MS-FSCC 2.3.8).
                Some(Status::INVALID_DEVICE_REQUEST | Status::NOT_IMPLEMENTED) => refused.note(),
                // Other statuses concern only these two files or the alignment of the range, so
                // they are not remembered.
                Some(_) => {}
                None => return Err(error),
            }
            break;
        }
        Ok(())
    }

    /// Offload read and write, MS-FSCC 2.3.41 to 2.3.44, of whole sectors.
    async fn offload(&mut self) -> Result<()> {
        let ends = [self.source, self.target];
        if ends.iter().any(|file| file.share().inner.refusals.offloads.stands()) {
            return Ok(());
        }
        while self.len - self.done >= SECTOR {
            let count = (self.len - self.done).min(PART) & !(SECTOR - 1);
            match self.offload_part(count).await {
                Ok(0) => break,
                Ok(written) => {
                    self.done += written.min(count);
                    if planted!(SkippedSector) {
                        self.done = (self.done + SECTOR).min(self.len);
                    }
                }
                Err(error) if error.status().is_some() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn offload_part(&mut self, len: u64) -> Result<u64> {
        let (source, target) = (self.source, self.target);
        let mut input = Vec::new();
        OffloadReadRequest {
            size: 32,
            flags: 0,
            token_time_to_live_ms: 0,
            file_offset: self.from + self.done,
            copy_length: len,
        }
        .encode(&mut Writer::new(&mut input));
        let code = CtlCode::OFFLOAD_READ;
        let message = offloaded(source, "copy", code, &input, 528).await?;
        let read = output(&message)
            .and_then(|output| Ok(OffloadReadReply::parse(output)?))
            .during("copy", source.url())?;
        self.reach().await?;
        let mut input = Vec::new();
        OffloadWriteRequest {
            size: 544,
            flags: 0,
            file_offset: self.to + self.done,
            copy_length: read.transfer_length.min(len),
            transfer_offset: 0,
            token: read.token,
        }
        .encode(&mut Writer::new(&mut input));
        let code = CtlCode::OFFLOAD_WRITE;
        let message = offloaded(target, "copy to", code, &input, 16).await?;
        let reply = output(&message)
            .and_then(|output| Ok(OffloadWriteReply::parse(output)?))
            .during("copy to", target.url())?;
        Ok(reply.length_written)
    }

    /// The key of FSCTL_SRV_REQUEST_RESUME_KEY, and the session that it belongs to, or an earlier one;
    /// `None` if the server does not have this FSCTL.
    async fn key(&self) -> Result<Option<([u8; 24], u64)>> {
        let code = CtlCode::SRV_REQUEST_RESUME_KEY;
        let source = &self.source.open;
        // The session may be lost again before the key is used.
        let generation = source.generation();
        let message = control(source, "copy", code, &[], 32, &CANNOT).await?;
        if message.status() != Status::SUCCESS {
            return Ok(None);
        }
        let key = output(&message)
            .and_then(|output| Ok(ResumeKeyResponse::parse(output)?))
            .during("copy", self.source.url())?
            .resume_key;
        Ok(Some((key, generation)))
    }

    /// Copies by COPYCHUNK, MS-SMB2 3.2.4.20.2 and 3.2.5.14.3. Returns false if the server does
    /// not have it, and if the files are not in one session any more.
    async fn chunks(&mut self) -> Result<bool> {
        let target = self.target;
        let Some((mut source_key, mut keyed)) = self.key().await? else { return Ok(false) };
        let mut limits = CHUNKS;
        let mut lowered = false;
        let mut keys_left = ATTEMPTS;
        let begun = self.done;
        while self.done < self.len {
            // In another session a key means nothing.
            if !self.is_in_one_session() {
                return Ok(false);
            }
            let chunks = chunks(limits, self.from, self.to, self.done, self.len);
            let request = CopyRequest { source_key, chunks };
            let asked = request.chunks.iter().map(|chunk| u64::from(chunk.length)).sum::<u64>();
            let mut input = Vec::new();
            request.encode(&mut Writer::new(&mut input));
            // SRV_COPYCHUNK_WRITE needs no right to read the target, which SRV_COPYCHUNK would
            // need.
            let code = CtlCode::SRV_COPYCHUNK_WRITE;
            let message = control(&target.open, "copy to", code, &input, 12, &UNCOPIED).await?;
            let status = message.status();
            // MS-SMB2 3.3.5.15.6: the resume key is unknown, perhaps because its session has ended.
            // So a new key is requested.
            if status == Status::OBJECT_NAME_NOT_FOUND
                && target.open.generation() != keyed
                && keys_left > 0
            {
                keys_left -= 1;
                let Some(again) = self.key().await? else { return Ok(false) };
                (source_key, keyed) = again;
                continue;
            }
            if CANNOT.contains(&status) && self.done == begun {
                return Ok(false);
            }
            let reply = output(&message).and_then(|output| Ok(CopyResponse::parse(output)?));
            let failed = |cause: Cause| Err(Error::new(cause, "copy to", target.url()));
            match (status, reply) {
                (Status::SUCCESS, Ok(reply))
                    if (1..=asked).contains(&u64::from(reply.total_bytes_written)) =>
                {
                    self.done += u64::from(reply.total_bytes_written);
                }
                // The server refused the request and returned its limits, which apply to all
                // further requests.
                (Status::INVALID_PARAMETER, Ok(said)) if !lowered && said.chunks_written > 0 => {
                    lowered = true;
                    limits = Limits {
                        chunks: said.chunks_written.min(256),
                        chunk: said.chunk_bytes_written.max(4096),
                        total: said.total_bytes_written.max(4096),
                    };
                }
                (Status::SUCCESS, _) => {
                    return failed(Cause::Protocol(
                        "it copied nothing, or more than it was asked for",
                    ));
                }
                (status, _) => return failed(status.into()),
            }
        }
        Ok(true)
    }
}

/// Sends one half of an offload, and remembers a file system without offload.
async fn offloaded(
    file: &File,
    operation: &'static str,
    code: CtlCode,
    input: &[u8],
    room: u32,
) -> Result<Message> {
    let done = control(&file.open, operation, code, input, room, &[]).await;
    // MS-FSCC 2.3.42 and 2.3.44: these statuses mean that the volume cannot offload.
    if let Err(error) = &done
        && error.status().is_some_and(|status| CANNOT.contains(&status))
    {
        file.share().inner.refusals.offloads.note();
    }
    done
}

/// The next chunks of a copy; `done` of `len` bytes are copied.
fn chunks(limits: Limits, from: u64, to: u64, done: u64, len: u64) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut at = done;
    let mut left = u64::from(limits.total);
    for _ in 0..limits.chunks {
        let count = (len - at).min(u64::from(limits.chunk)).min(left);
        let Ok(length) = u32::try_from(count) else { break };
        if length == 0 {
            break;
        }
        chunks.push(Chunk { source_offset: from + at, target_offset: to + at, length });
        at += count;
        left -= count;
    }
    chunks
}
