//! Server-side copy, MS-SMB2 3.3.5.15.5 and 3.3.5.15.6: the data never travels.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use frevo_net::file_io::{self, Gate};
use frevo_store::byte_range::Range;
use frevo_store::lease::Cause;
use frevo_store::{Fault, Node};
use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl::copychunk::{
    Chunk, CopyRequest, CopyResponse, ResumeKey, ResumeKeyResponse,
};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use rustix::io::Errno;

use super::call::{Answer, Call, Copying, output};
use super::copyfile;
use crate::base::limits::{COPY_BYTES, COPY_CHUNK_BYTES, COPY_CHUNKS, OFFLOAD_BYTES};
use crate::base::pools::closer;
use crate::command::request::Request;
use crate::objects::data;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::stable;
use crate::shares::impersonation;
use crate::shares::share::MAX_OFFSET;

/// Bytes of SRV_REQUEST_RESUME_KEY.
const RESUME_KEY_LEN: u32 = 32;
/// Bytes of SRV_COPYCHUNK_RESPONSE.
const RESPONSE_LEN: u32 = 12;
/// A TargetOffset that means the end of the target.
const AT_THE_END: u64 = u64::MAX;

/// FSCTL_SRV_REQUEST_RESUME_KEY: a name for an Open. It is the FileId, of
/// which half is random; it is of use in the same session only.
pub(super) fn resume_key(call: &Call<'_>) -> Answer {
    if call.max_output < RESUME_KEY_LEN {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let response = ResumeKeyResponse { resume_key: key_of(call.open()?.file_id) };
    Ok((output(|w| response.encode(w)), Status::SUCCESS))
}

fn key_of(id: FileId) -> ResumeKey {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&id.persistent.to_le_bytes());
    key[8..16].copy_from_slice(&id.volatile.to_le_bytes());
    key
}

/// The Open of this session that the key at the start of `input` names.
fn source(rq: &Request<'_>, input: &[u8]) -> Result<Arc<Open>, Status> {
    let key: ResumeKey = *input.first_chunk().ok_or(Status::INVALID_PARAMETER)?;
    let half = |at| {
        let half = key.get(at..).and_then(<[u8]>::first_chunk);
        half.map_or(0, |half| u64::from_le_bytes(*half))
    };
    let id = FileId { persistent: half(0), volatile: half(8) };
    let open = rq.session()?.open(id).map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?;
    if key_of(id) == key { Ok(open) } else { Err(Status::OBJECT_NAME_NOT_FOUND) }
}

/// The progress of a copy.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Progress {
    chunks: u32,
    /// Bytes of the chunk that failed.
    chunk_bytes: u32,
    bytes: u32,
    failure: Option<Status>,
}

impl Progress {
    const fn failed(failure: Status) -> Self {
        Self { chunks: 0, chunk_bytes: 0, bytes: 0, failure: Some(failure) }
    }

    /// The progress with that of the rest, which began in the chunk where this one failed.
    fn and(self, rest: Self) -> Self {
        let of_first = if rest.chunks == 0 { self.chunk_bytes } else { 0 };
        let chunk_bytes = match rest.failure {
            None => 0,
            Some(_) => of_first.saturating_add(rest.chunk_bytes),
        };
        Self {
            chunks: self.chunks.saturating_add(rest.chunks),
            chunk_bytes,
            bytes: self.bytes.saturating_add(rest.bytes),
            failure: rest.failure,
        }
    }

    /// MS-SMB2 3.3.5.15.6.1: a failure says how far it came.
    fn answer(self) -> Answer {
        let response = CopyResponse {
            chunks_written: self.chunks,
            chunk_bytes_written: self.chunk_bytes,
            total_bytes_written: self.bytes,
        };
        Ok((output(|w| response.encode(w)), self.failure.unwrap_or(Status::SUCCESS)))
    }
}

/// MS-SMB2 3.3.5.15.6.2: a request that asks too much is told what is enough.
fn limits() -> Answer {
    let response = CopyResponse {
        chunks_written: COPY_CHUNKS,
        chunk_bytes_written: COPY_CHUNK_BYTES,
        total_bytes_written: COPY_BYTES,
    };
    Ok((output(|w| response.encode(w)), Status::INVALID_PARAMETER))
}

fn is_within_limits(chunks: &[Chunk]) -> bool {
    let fits = |chunk: &Chunk| {
        let is_negative = chunk.target_offset != AT_THE_END && chunk.target_offset > MAX_OFFSET;
        (1..=COPY_CHUNK_BYTES).contains(&chunk.length) && !is_negative
    };
    let total: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
    chunks.len() <= COPY_CHUNKS as usize
        && chunks.iter().all(fits)
        && total <= u64::from(COPY_BYTES)
}

/// The data that a request asks to copy: its chunks, or without any the file of a client that is macOS.
pub(super) fn asked(rq: &Request<'_>, input: &[u8]) -> Copying {
    let Ok(request) = CopyRequest::parse(input) else { return Copying::default() };
    let source = source(rq, input).ok();
    let is_apple = rq.open.as_ref().is_some_and(|to| to.file().is_ok_and(|target| target.apple));
    let bytes = if request.chunks.is_empty() && !is_apple {
        0
    } else if request.chunks.is_empty() {
        // The file system of a share with a pool is not asked on a core.
        let may_ask = |open: &&Arc<Open>| open.tree().share.pool().is_none();
        let file = source.as_ref().filter(may_ask).and_then(|open| open.file().ok());
        let size = file.and_then(|file| file.stat().ok());
        // A size that is not known costs a little, so that a copy waits for what the one before it owes.
        size.map_or(1, |stat| stat.end_of_file.clamp(1, OFFLOAD_BYTES))
    } else {
        let total: u64 = request.chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
        total.min(u64::from(COPY_BYTES))
    };
    Copying { read: bytes, write: bytes, source }
}

/// FSCTL_SRV_COPYCHUNK and FSCTL_SRV_COPYCHUNK_WRITE.
pub(super) async fn handle(call: &Call<'_>) -> Answer {
    let from = source(call.rq, call.input)?;
    if call.max_output < RESPONSE_LEN {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let Ok(request) = CopyRequest::parse(call.input) else { return limits() };
    let to = call.open()?;
    let (OpenTarget::File(source), OpenTarget::File(target)) = (&from.target, &to.target) else {
        return limits();
    };
    if !is_within_limits(&request.chunks) {
        return limits();
    }
    // The table has already checked the rights on the target. The source needs the right to read or
    // to execute, as in Samba.
    from.require_any(AccessMask::READ_DATA | AccessMask::EXECUTE)?;
    if source.is_directory || target.is_directory {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    call.rq.contend(target, Cause::Write).await?;
    call.rq.still_served()?;
    if let Err(conflict) = check_locks(&from, source, to, target, &request.chunks) {
        return Progress::failed(conflict).answer();
    }
    let places = first_places(&request.chunks);
    let job = Job {
        max_size: target.max_size,
        chunks: request.chunks,
        may_overwrite: to.granted_access.contains(AccessMask::WRITE_DATA),
    };
    let mut progress = if target.apple && job.chunks.is_empty() {
        let copied = copyfile::copy(call, &from, source, to, target).await?;
        let bytes = u32::try_from(copied.bytes).unwrap_or(u32::MAX);
        Progress { bytes, failure: copied.failure, ..Progress::default() }
    } else {
        copy(call, job, source, target).await?
    };
    if progress.bytes != 0 {
        target.set_archive();
        to.brake_copied(target, source, places, progress.bytes.into());
    }
    if progress.bytes != 0
        && target.has_mode(CreateOptions::WRITE_THROUGH)
        && let Err(status) = stable::sync(target).await
    {
        progress.failure.get_or_insert(status);
    }
    if progress.bytes != 0 {
        target.report_written(&call.rq.server().files);
    }
    progress.answer()
}

/// The places of the first chunk in source and target: those of the whole file without chunks.
fn first_places(chunks: &[Chunk]) -> [u64; 2] {
    chunks.first().map_or([0, 0], |chunk| [chunk.source_offset, chunk.target_offset])
}

/// Both files are asked one after the other: they may be the same.
fn check_locks(
    from: &Open,
    source: &FileOpen,
    to: &Open,
    target: &FileOpen,
    chunks: &[Chunk],
) -> Result<(), Status> {
    let length = |chunk: &Chunk| u64::from(chunk.length);
    {
        let shared = source.cell.lock();
        let may = |c: &Chunk| {
            let range = Range { offset: c.source_offset, length: length(c) };
            range.check().is_ok_and(|range| shared.ranges.may_read(from.id(), range))
        };
        // A chunk beyond the largest offset is not checked for locks, because the copy itself
        // refuses it later.
        let beyond = |c: &Chunk| c.source_offset > MAX_OFFSET;
        if !chunks.iter().all(|c| beyond(c) || may(c)) {
            return Err(Status::FILE_LOCK_CONFLICT);
        }
    }
    // `end` is the end of the target after each chunk. A chunk that appends begins there.
    let mut end = target.stat()?.end_of_file;
    let mut ranges = chunks.iter().map(|c| {
        let offset = if c.target_offset == AT_THE_END { end } else { c.target_offset };
        end = end.max(offset.saturating_add(length(c)));
        Range { offset, length: length(c) }
    });
    let shared = target.cell.lock();
    let is_free =
        |range: Range| range.check().is_ok_and(|range| shared.ranges.may_write(to.id(), range));
    // A chunk beyond the largest file size is not checked for locks, because the copy refuses it,
    // after copying the chunks before it.
    let is_too_far = |range: &Range| range.offset.saturating_add(range.length) > target.max_size;
    if ranges.all(|range| is_too_far(&range) || is_free(range)) {
        Ok(())
    } else {
        Err(Status::FILE_LOCK_CONFLICT)
    }
}

/// The source, target and chunks of a copy.
#[derive(Clone)]
struct Job {
    chunks: Vec<Chunk>,
    /// FILE_WRITE_DATA was granted, not just FILE_APPEND_DATA.
    may_overwrite: bool,
    /// The most that the target may hold, bytes.
    max_size: u64,
}

/// Copies, and goes on behind a chunk that found no space once files that are being closed have given
/// theirs back.
async fn copy(
    call: &Call<'_>,
    job: Job,
    source: &FileOpen,
    target: &FileOpen,
) -> Result<Progress, Status> {
    let before = closer::ended();
    let progress = attempt(call, job.clone(), source, target).await?;
    call.rq.pace.note_moved(progress.bytes.into(), progress.bytes.into());
    if progress.failure != Some(Status::DISK_FULL) || !call.rq.has_freed(before).await {
        return Ok(progress);
    }
    call.rq.still_served()?;
    let rest = job.behind(&progress);
    let further = Box::pin(attempt(call, rest, source, target)).await?;
    call.rq.pace.note_moved(further.bytes.into(), further.bytes.into());
    Ok(progress.and(further))
}

/// Copies on another thread than the core's.
async fn attempt(
    call: &Call<'_>,
    job: Job,
    source: &FileOpen,
    target: &FileOpen,
) -> Result<Progress, Status> {
    let (Some(from), Some(into)) = (&source.fd, target.io()) else {
        let (from, into) = (Arc::clone(&source.node), Arc::clone(&target.node));
        return call.rq.beside_core(move || job.run(&Nodes { from: &*from, into: &*into })).await;
    };
    let from = Arc::clone(from);
    let node = Arc::clone(&target.node);
    // Copies in the page cache use a processor all the time.
    let permits =
        if file_io::stays() { None } else { Some(Box::pin(call.rq.call_permits()).await?) };
    node.takes_data().map_err(Fault::status)?;
    let gate = call.rq.tree()?.gate();
    let copied = into.run_blocking(move |into| {
        let _permits = permits;
        // The copy runs as the user, so that the written blocks count for the user's quota.
        let _acting = match impersonation::act_for(&*node) {
            Ok(acting) => acting,
            Err(status) => return Ok(Err(status)),
        };
        Ok(Ok(job.run(&Descriptors { from: from.as_fd(), into, gate })))
    });
    copied.await.map_err(|error| data::status(&error))?
}

/// The bytes that a copy has written, one chunk after the other, and its end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    /// The reason why there are no more.
    pub(super) failure: Option<Status>,
}

impl Copied {
    /// A copy of nothing.
    pub(super) const fn failed(failure: Status) -> Self {
        Self { bytes: 0, failure: Some(failure) }
    }
}

/// Copies `chunks` as far as that is possible. They have less than 4 GiB.
pub(super) async fn copy_counted(
    call: &Call<'_>,
    chunks: Vec<Chunk>,
    source: &FileOpen,
    target: &FileOpen,
) -> Copied {
    let job = Job { chunks, may_overwrite: true, max_size: target.max_size };
    match copy(call, job, source, target).await {
        Ok(Progress { bytes, failure, .. }) => Copied { bytes: bytes.into(), failure },
        Err(failure) => Copied::failed(failure),
    }
}

/// Copies all of `chunks` or says why not.
pub(super) async fn copy_all(
    call: &Call<'_>,
    chunks: Vec<Chunk>,
    source: &FileOpen,
    target: &FileOpen,
) -> Result<(), Status> {
    copy_counted(call, chunks, source, target).await.failure.map_or(Ok(()), Err)
}

/// Two files between which data is copied.
trait Pair {
    /// Ends of source and target.
    fn ends(&self) -> Result<(u64, u64), Status>;
    /// Copies a chunk whose target offset is a real one, and adds what it
    /// copied to `done`.
    fn copy(&self, chunk: &Chunk, done: &mut u32) -> Result<(), Status>;
}

impl Job {
    /// The chunks that are left, the first one without what was copied of it.
    fn behind(mut self, progress: &Progress) -> Self {
        let done = (progress.chunks as usize).min(self.chunks.len());
        drop(self.chunks.drain(..done));
        if let Some(first) = self.chunks.first_mut() {
            let copied = progress.chunk_bytes.min(first.length);
            first.source_offset = first.source_offset.saturating_add(copied.into());
            // A chunk that is appended continues at the new end of the target.
            first.target_offset = first.target_offset.saturating_add(copied.into());
            first.length -= copied;
        }
        self
    }

    fn run(&self, pair: &impl Pair) -> Progress {
        let mut progress = Progress::default();
        for chunk in &self.chunks {
            let mut done = 0;
            let outcome = self.step(pair, chunk, &mut done);
            progress.bytes = progress.bytes.saturating_add(done);
            if let Err(status) = outcome {
                progress.chunk_bytes = done;
                progress.failure = Some(status);
                return progress;
            }
            progress.chunks += 1;
        }
        progress
    }

    fn step(&self, pair: &impl Pair, chunk: &Chunk, done: &mut u32) -> Result<(), Status> {
        let (source_end, target_end) = pair.ends()?;
        let last = chunk.source_offset.checked_add(u64::from(chunk.length));
        if last.is_none_or(|last| last > source_end) {
            // Like Windows, refuses a chunk that reaches beyond the end of the source with
            // INVALID_VIEW_SIZE.
            return Err(Status::INVALID_VIEW_SIZE);
        }
        let at_the_end = chunk.target_offset == AT_THE_END;
        let target_offset = if at_the_end { target_end } else { chunk.target_offset };
        if !self.may_overwrite && target_offset < target_end {
            return Err(Status::ACCESS_DENIED);
        }
        let beyond = target_offset.checked_add(u64::from(chunk.length));
        if beyond.is_none_or(|beyond| beyond > self.max_size) {
            return Err(Status::INVALID_PARAMETER);
        }
        pair.copy(&Chunk { target_offset, ..*chunk }, done)
    }
}

/// Files of the host: the kernel copies, or shares the blocks.
struct Descriptors<'a> {
    from: BorrowedFd<'a>,
    into: BorrowedFd<'a>,
    /// The question before each change, for a share under a limit.
    gate: Option<Gate>,
}

impl Pair for Descriptors<'_> {
    fn ends(&self) -> Result<(u64, u64), Status> {
        let end = |fd| rustix::fs::fstat(fd).map(|stat| u64::try_from(stat.st_size).unwrap_or(0));
        Ok((end(self.from).map_err(status)?, end(self.into).map_err(status)?))
    }

    fn copy(&self, chunk: &Chunk, done: &mut u32) -> Result<(), Status> {
        while *done < chunk.length {
            self.check_gate()?;
            let mut read_at = chunk.source_offset + u64::from(*done);
            let mut write_at = chunk.target_offset + u64::from(*done);
            let left = (chunk.length - *done) as usize;
            let copied = rustix::fs::copy_file_range(
                self.from,
                Some(&mut read_at),
                self.into,
                Some(&mut write_at),
                left,
            );
            match copied {
                // copy_file_range copied nothing, because the source was truncated, or the file
                // system returns 0 although it has data. The data is read and written instead.
                Ok(0) => return self.copy_through(chunk, done),
                Ok(count) => *done += count as u32,
                Err(Errno::INTR) => {}
                // copy_file_range cannot copy here (overlapping ranges, different file systems or
                // no support), so the data is read and written.
                Err(Errno::INVAL | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return self.copy_through(chunk, done);
                }
                Err(errno) => return Err(status(errno)),
            }
        }
        Ok(())
    }
}

impl Descriptors<'_> {
    /// Fails when files of the share may not be changed any more.
    fn check_gate(&self) -> Result<(), Status> {
        let is_open = self.gate.as_ref().is_none_or(|is_open| is_open());
        if is_open { Ok(()) } else { Err(Status::SERVER_UNAVAILABLE) }
    }

    /// Copies the rest of a chunk through memory, all of it at once: so
    /// overlapping ranges come out as if there were two files.
    fn copy_through(&self, chunk: &Chunk, done: &mut u32) -> Result<(), Status> {
        let skip = u64::from(*done);
        let mut buffer = vec![0; (chunk.length - *done) as usize];
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = chunk.source_offset + skip + filled as u64;
            match rustix::io::pread(self.from, rest, at) {
                Ok(0) => return Err(Status::INVALID_VIEW_SIZE),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(status(errno)),
            }
        }
        let mut written = 0;
        while let Some(rest) = buffer.get(written..).filter(|rest| !rest.is_empty()) {
            self.check_gate()?;
            let at = chunk.target_offset + skip + written as u64;
            match rustix::io::pwrite(self.into, rest, at) {
                Ok(0) => return Err(Status::UNEXPECTED_IO_ERROR),
                Ok(count) => {
                    written += count;
                    *done += count as u32;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(status(errno)),
            }
        }
        Ok(())
    }
}

fn status(errno: Errno) -> Status {
    data::status(&io::Error::from(errno))
}

/// A source and a target that have no descriptors.
struct Nodes<'a> {
    from: &'a dyn Node,
    into: &'a dyn Node,
}

impl Pair for Nodes<'_> {
    fn ends(&self) -> Result<(u64, u64), Status> {
        let end = |node: &dyn Node| node.stat().map(|stat| stat.end_of_file);
        Ok((end(self.from).map_err(Fault::status)?, end(self.into).map_err(Fault::status)?))
    }

    fn copy(&self, chunk: &Chunk, done: &mut u32) -> Result<(), Status> {
        let mut buffer = vec![0; chunk.length as usize];
        let count = self.from.read_at(chunk.source_offset, &mut buffer).map_err(Fault::status)?;
        if count < buffer.len() {
            return Err(Status::INVALID_VIEW_SIZE);
        }
        self.into.write_at(chunk.target_offset, &buffer).map_err(Fault::status)?;
        *done = chunk.length;
        Ok(())
    }
}
