//! Reading and writing at offsets, many requests at once: MS-SMB2 3.2.4.6 and 3.2.4.7.

use std::sync::Arc;

use bytes::Bytes;
use frevo_net::buffer::Buf;
use frevo_wire::Command;
use frevo_wire::command::{read, write};
use frevo_wire::file_id::FileId;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::Status;
use crate::connection::{Call, Compressible, Movable, PAYLOAD_HEADROOM, Payload};
use crate::error::{Cause, During, Error, Result};
use crate::file::File;
use crate::limits::{PAYLOAD_MAX, SHORT_WRITES};
use crate::share::Replay;

impl File {
    /// Reads into `buf` from `offset` on until `buf` is full or the file ends, and returns
    /// the count of bytes. Many requests are under way at once.
    ///
    /// # Errors
    /// Fails if the file was not opened for reading, or the server fails.
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let (most, _) = self.sizes().await?;
        let mut parts = FuturesUnordered::new();
        for (at, part) in buf.chunks_mut(most as usize).enumerate() {
            let start = at * most as usize;
            parts.push(async move {
                let count = self.read_part(offset + start as u64, part).await?;
                Ok::<_, Error>((start, count, part.len()))
            });
        }
        // `end` is where the first short part ends, which is the end of the file.
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

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// Fails with [`Status::END_OF_FILE`] (`UnexpectedEof`) if the file ends before, and as
    /// [`Self::read_at`] does.
    pub async fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.read_at(buf, offset).await? < buf.len() {
            return Err(Error::new(Status::END_OF_FILE, "read", &*self.open.url));
        }
        Ok(())
    }

    /// Reads up to `len` bytes at `offset` in one request, without copying them: fewer at
    /// the end of the file, none behind it. `len` is at most 8 MiB.
    ///
    /// # Errors
    /// Fails as [`Self::read_at`] does.
    pub async fn read_bytes(&self, offset: u64, len: u32) -> Result<Bytes> {
        self.check_payload("read", len)?;
        Ok(self.read_chunk(offset, len).await?.into_bytes())
    }

    fn check_payload(&self, operation: &'static str, len: u32) -> Result<()> {
        if len <= PAYLOAD_MAX {
            return Ok(());
        }
        let cause = Cause::Usage("one request can carry at most 8 MiB");
        Err(Error::new(cause, operation, &*self.open.url))
    }

    /// Sends one READ and returns its data, empty at the end of the file.
    pub(crate) async fn read_chunk(&self, offset: u64, len: u32) -> Result<Buf> {
        let also = [Status::END_OF_FILE, Status::BUFFER_OVERFLOW];
        let is_compressed = self.open.share.compresses();
        let measured = if is_compressed { None } else { self.open.share.measured() };
        let mut message = self
            .open
            .ask(Replay::Idempotent, "read", &also, |id| {
                let request = read::Request::new(id, offset, len);
                let call = Call::new(Command::READ, |w| request.encode(w)).cost(len);
                let compressible = match is_compressed {
                    true => Compressible::Answer,
                    false => Compressible::No,
                };
                Ok(call.movable(Movable::Read(request)).compressible(compressible))
            })
            .await?;
        if let Some(measured) = measured {
            measured.end(message.bytes().len());
        }
        if message.status() == Status::END_OF_FILE {
            return Ok(Buf::new());
        }
        let loan = message.take_loan();
        let parsed = read::Response::parse(message.bytes()).during("read", &self.open.url)?;
        let is_transformed = parsed.flags.contains(read::ReadResponseFlags::RDMA_TRANSFORM);
        // MS-SMB2 3.2.5.11: if RDMA has moved the data, the response contains no data, or only the
        // description of its protection.
        let moved = loan.filter(|_| parsed.data.is_empty() || is_transformed);
        let is_long = moved.is_none() && parsed.data.len() > len as usize;
        if is_long || parsed.data_remaining > len {
            let cause = Cause::Protocol("it sent more data than was asked for");
            return Err(Error::new(cause, "read", &*self.open.url));
        }
        if let Some(loan) = moved {
            return loan.data(&parsed).await.during("read", &self.open.url);
        }
        let range = parsed.data_range;
        Ok(message.into_range(range))
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
            // `rest` always has this range, because `read_chunk` never returns more than `len`
            // bytes.
            if let Some(place) = rest.get_mut(..chunk.len()) {
                place.copy_from_slice(&chunk);
            }
            done += chunk.len();
        }
        Ok(done)
    }

    /// Writes all of `buf` at `offset`, and returns its length. Many requests are under way
    /// at once.
    ///
    /// # Errors
    /// Fails as [`Self::write_all_at`] does.
    pub async fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_all_at(buf, offset).await?;
        Ok(buf.len())
    }

    /// Writes all of `buf` at `offset`. Many requests are under way at once.
    ///
    /// # Errors
    /// Fails if the file was not opened for writing, or there is no space. A part of `buf`
    /// may have been written then.
    pub async fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let (_, most) = self.sizes().await?;
        let write = |at: u64, part| async move {
            let len = u32::try_from(<[u8]>::len(part)).unwrap_or(u32::MAX);
            let fill = |payload: &mut Buf| {
                payload.extend_from_slice(part);
                Ok(())
            };
            self.write_with(at, len, fill).await
        };
        if buf.len() <= most as usize {
            return if buf.is_empty() { Ok(()) } else { write(offset, buf).await };
        }
        let parts: FuturesUnordered<_> = buf
            .chunks(most as usize)
            .enumerate()
            .map(|(at, part)| write(offset + at as u64 * u64::from(most), part))
            .collect();
        parts.collect::<Vec<_>>().await.into_iter().collect()
    }

    /// Writes `len` bytes at `offset` that `fill` appends to the buffer from which they are
    /// sent: the one way in which this client writes to an open file. `fill` is called again
    /// if the data must be sent again.
    ///
    /// # Errors
    /// Fails as [`Self::write_all_at`] does, or with the error of `fill`.
    #[doc(hidden)]
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
                // A server with free space writes at least one byte, so 0 means a full disk.
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
        let cause = Cause::Protocol("it reported an impossible count of bytes written");
        Err(Error::new(cause, "write", &*self.open.url))
    }

    /// Sends one WRITE of the bytes after the first `done`, and returns the count that the
    /// server took.
    async fn write_rest(
        &self,
        offset: u64,
        len: u32,
        done: u32,
        fill: &mut (impl FnMut(&mut Buf) -> std::io::Result<()> + Send),
    ) -> Result<u32> {
        let mut tries = 0;
        let rest = len - done;
        let is_wanted = self.open.share.compresses();
        let measured = if is_wanted { None } else { self.open.share.measured() };
        let call = |id: FileId| {
            tries += 1;
            let mut payload = Buf::with_headroom(PAYLOAD_HEADROOM, len as usize);
            fill(&mut payload).map_err(|error| Cause::Local(Arc::new(error)))?;
            if payload.len() != len as usize {
                return Err(Cause::Usage("the source became shorter while it was sent"));
            }
            if done > 0 {
                let mut tail = Buf::with_headroom(PAYLOAD_HEADROOM, rest as usize);
                tail.extend_from_slice(payload.get(done as usize..).unwrap_or_default());
                payload = tail;
            }
            let thrift = if is_wanted { self.open.compresses(&payload) } else { None };
            let again = planted!(DoubleAppend) && tries > 1;
            let offset = if again { offset + u64::from(len) } else { offset };
            let request = write::Request::new(id, offset + u64::from(done), &[]);
            Ok(Call::new(Command::WRITE, |w| request.encode_fixed(rest, w))
                .cost(rest)
                .payload(Payload::Placed(payload))
                .movable(Movable::Write(request))
                .compressible(thrift.map_or(Compressible::No, Compressible::Payload)))
        };
        let message = self.open.ask(Replay::Idempotent, "write", &[], call).await?;
        if let Some(measured) = measured {
            measured.end(rest as usize);
        }
        let response = write::Response::parse(message.bytes()).during("write", &self.open.url)?;
        Ok(response.count)
    }
}
