//! READ, WRITE, and the pipes of IPC$. A request of the client is divided into those that the server takes,
//! which are all under way at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_net::buffer::Buf;
use frevo_smb1::data;
use frevo_smb1::negotiate::Capabilities;
use frevo_smb1::transaction::transact_pipe;
use frevo_smb1::tree::Service;
use frevo_wire::Status;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::read::{self, ReadResponseFlags, response_head};
use frevo_wire::command::write;
use frevo_wire::file_id::FileId;
use futures_util::future::try_join_all;

use super::reply::{Good, Piece};
use super::server::{Failed, Open, Server, named};
use crate::limits::READS_OF_A_PART;

/// A part of a request of the client.
#[derive(Debug, Clone, Copy)]
struct Part {
    offset: u64,
    length: u32,
}

/// Divides `length` bytes from `offset` into parts of at most `most`.
fn parts(offset: u64, length: u32, most: u32) -> impl Iterator<Item = Part> {
    let most = most.max(1);
    (0..length.div_ceil(most)).map(move |at| {
        let begun = at.saturating_mul(most);
        Part {
            offset: offset.saturating_add(begun.into()),
            length: most.min(length.saturating_sub(begun)),
        }
    })
}

/// Refuses bytes that a server without CAP_LARGE_FILES would look for, or write, at the beginning of the
/// file: it ignores the high half of an offset (MS-CIFS 2.2.4.43.1).
fn check_reach(server: &Server, offset: u64, length: u32) -> Result<(), Failed> {
    let is_far = offset.saturating_add(length.into()) > u64::from(u32::MAX);
    if is_far && !server.has(Capabilities::LARGE_FILES) {
        return Err(Failed::Status(Status::FILE_TOO_LARGE));
    }
    Ok(())
}

/// Bytes of a pipe that are read at once.
const PIPE_BYTES: u32 = 4_280;

impl Server {
    pub(super) async fn read(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = read::Request::parse(message)?;
        let open = self.open(named(request.file_id, related))?;
        if open.is_directory {
            return Err(Failed::Status(Status::INVALID_DEVICE_REQUEST));
        }
        let is_pipe = open.tree.service == Service::Pipe;
        if let Some(pipe) = &open.pipe {
            let most = usize::try_from(request.length).unwrap_or(usize::MAX);
            let (data, status) = pipe.read(most)?;
            let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let head = response_head(count, 0, ReadResponseFlags::EMPTY);
            return Ok(Good::of(|w| _ = w.bytes(&head).bytes(&data)).with_status(status));
        }
        let most = if is_pipe { PIPE_BYTES } else { self.reached.read_bytes(open.tree.large) };
        let length = if is_pipe { request.length.min(most) } else { request.length };
        check_reach(self, request.offset, length)?;
        let known = open.len.load(Ordering::Relaxed);
        // Servers may answer END_OF_FILE behind the end, so nothing is asked there but by the first part.
        let asked = parts(request.offset, length, most)
            .enumerate()
            .take_while(|(at, part)| *at == 0 || is_pipe || part.offset < known);
        let all = asked.map(|(_, part)| self.read_part(&open, part));
        let mut pieces = Vec::new();
        let mut count = 0usize;
        for (at, found) in try_join_all(all).await?.into_iter().enumerate() {
            let got: usize = found.iter().map(Piece::len).sum();
            count = count.saturating_add(got);
            pieces.extend(found);
            // Bytes behind a part that ends early are behind the end of the file.
            let whole = parts(request.offset, length, most).nth(at).map_or(0, |part| part.length);
            if u32::try_from(got).unwrap_or(u32::MAX) < whole {
                break;
            }
        }
        if count == 0 && length > 0 {
            let status = if is_pipe { Status::PIPE_EMPTY } else { Status::END_OF_FILE };
            return Err(Failed::Status(status));
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let head = response_head(count, 0, ReadResponseFlags::EMPTY);
        let good = Good::of(|w| {
            w.bytes(&head);
        });
        Ok(good.with_data(pieces))
    }

    /// Reads a part, with a few requests if the server answers with less than it was asked for. It is
    /// shorter at the end of the file.
    async fn read_part(&self, open: &Open, part: Part) -> Result<Vec<Piece>, Failed> {
        let mut pieces = Vec::new();
        let mut got = 0u32;
        for _ in 0..READS_OF_A_PART {
            let left = part.length.saturating_sub(got);
            let offset = part.offset.saturating_add(got.into());
            let request = data::read(open.fid()?, offset, left);
            let also = Status::BUFFER_OVERFLOW;
            let answer = match self.ask_also(open.tree.number, &request, also).await {
                Ok(answer) => answer,
                // MS-CIFS 2.2.4.42.2: servers but those of Windows say so.
                Err(Failed::Status(Status::END_OF_FILE)) => break,
                Err(why) => return Err(why),
            };
            let range = data::read_range(&answer.response()?, left)?;
            let count = u32::try_from(range.len()).unwrap_or(u32::MAX);
            got = got.saturating_add(count);
            if count > 0 {
                pieces.push(Piece::of(answer, range));
            }
            let end = part.offset.saturating_add(got.into());
            let is_at_end = end >= open.len.load(Ordering::Relaxed);
            if count == 0 || got >= part.length || is_at_end {
                break;
            }
        }
        Ok(pieces)
    }

    /// Answers a WRITE, whose message is in `frame`.
    pub(super) async fn write(
        &self,
        frame: &Arc<Buf>,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = write::Request::parse(message)?;
        let open = self.open(named(request.file_id, related))?;
        let most = self.reached.write_bytes(open.tree.large);
        let length = u32::try_from(request.data.len()).unwrap_or(u32::MAX);
        if let Some(pipe) = &open.pipe {
            pipe.write(request.data)?;
            return Ok(Good::of(|w| write::Response { count: length }.encode(w)));
        }
        check_reach(self, request.offset, length)?;
        let all = parts(0, length, most).map(|part| {
            let from = usize::try_from(part.offset).unwrap_or(usize::MAX);
            let part_len = usize::try_from(part.length).unwrap_or(usize::MAX);
            let bytes = request.data.get(from..from.saturating_add(part_len)).unwrap_or_default();
            self.write_part(&open, frame, request.offset.saturating_add(part.offset), bytes)
        });
        let mut count = 0u32;
        for (part, written) in parts(0, length, most).zip(try_join_all(all).await?) {
            count = count.saturating_add(written);
            if written < part.length {
                break;
            }
        }
        open.note_len(request.offset.saturating_add(count.into()));
        Ok(Good::of(|w| write::Response { count }.encode(w)))
    }

    /// Writes a part, with as many requests as the server wants. Returns the count of bytes that were
    /// written: fewer if the server takes no more.
    async fn write_part(
        &self,
        open: &Open,
        frame: &Arc<Buf>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Failed> {
        let mut rest = bytes;
        let mut done = 0u32;
        while !rest.is_empty() {
            let at = offset.saturating_add(done.into());
            let request = data::write(open.fid()?, at, rest);
            let answer = self.ask_from(frame, open.tree.number, &request).await?;
            let sent = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let count = data::written(&answer.response()?, sent)?;
            if count == 0 {
                break;
            }
            done = done.saturating_add(count);
            rest = rest.get(usize::try_from(count).unwrap_or(usize::MAX)..).unwrap_or_default();
        }
        Ok(done)
    }

    /// Writes to a pipe and reads its answer: the only control code that SMB1 needs here.
    pub(super) async fn ioctl(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = ioctl::Request::parse(message)?;
        if request.ctl_code != CtlCode::PIPE_TRANSCEIVE {
            return Err(Failed::Status(Status::INVALID_DEVICE_REQUEST));
        }
        let file_id = named(request.file_id, related);
        let open = self.open(file_id)?;
        let answered = |output: &[u8], status| {
            let response =
                ioctl::Response { ctl_code: request.ctl_code, file_id, input: &[], output };
            Good::of(|w| response.encode(w)).with_status(status)
        };
        if let Some(pipe) = &open.pipe {
            pipe.write(request.input)?;
            let most = usize::try_from(request.max_output_response).unwrap_or(usize::MAX);
            let (output, status) = pipe.read(most)?;
            return Ok(answered(&output, status));
        }
        let most = u16::try_from(request.max_output_response).unwrap_or(u16::MAX);
        let transact = transact_pipe(self.charset(), open.fid()?, request.input, most)?;
        let also = Status::BUFFER_OVERFLOW;
        let answer = self.ask_also(open.tree.number, &transact, also).await?;
        Ok(answered(&answer.results().data, answer.status()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_divided_without_holes() {
        for (length, most, count) in [(10, 4, 3), (8, 4, 2), (3, 4, 1), (0, 4, 0), (5, 0, 5)] {
            let all: Vec<Part> = parts(7, length, most).collect();
            assert_eq!(all.len(), count, "{length} by {most}");
            let mut at = 7;
            for part in all {
                assert_eq!(part.offset, at);
                at += u64::from(part.length);
            }
            assert_eq!(at, 7 + u64::from(length));
        }
    }
}
