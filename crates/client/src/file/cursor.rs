//! A file as a stream of bytes: tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
//!
//! A cursor reads ahead, further the longer there is no seek. It gathers writes into larger
//! requests, and sends them while it gathers the next.

use std::io;
use std::io::SeekFrom;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use crate::error::{Error, Result};
use crate::file::File;

/// Bytes of one READ ahead.
const READ_PIECE: u64 = 256 << 10;
/// Most READs ahead: 4 MiB together.
const AHEAD_MAX: usize = 16;
/// Bytes to gather before they are sent.
const WRITE_PIECE: usize = 1 << 20;
/// Most WRITEs under way.
const WRITES_MAX: usize = 8;

/// A position in a [`File`], from which it reads and writes: [`File::cursor`] returns one.
///
/// It implements [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`] of tokio, so that
/// `tokio::io::copy`, `BufReader::lines` and the like work on files of a share.
///
/// Written data is gathered: `flush().await` returns when the server has all of it, and
/// reports errors. Data that was not flushed is lost when the cursor is dropped.
/// [`File::sync_all`] puts data on stable storage.
pub struct Cursor {
    file: File,
    /// Offset of the next byte to read or write.
    position: u64,
    /// The known end of the file. No READ goes beyond: ksmbd of Linux 6.12 signs the answer
    /// wrongly.
    end: u64,
    /// Data that was read and not taken yet.
    piece: Bytes,
    /// The READs under way, each with the count of bytes asked for.
    ahead: FuturesOrdered<BoxFuture<'static, Result<(Bytes, u64)>>>,
    /// Offset of the next READ ahead.
    asked: u64,
    depth: usize,
    /// The request for the present length.
    length: Option<BoxFuture<'static, Result<u64>>>,
    gathered: Vec<u8>,
    writes: FuturesUnordered<BoxFuture<'static, Result<()>>>,
    seek: Option<SeekFrom>,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({} at {})", self.file.url(), self.position)
    }
}

impl File {
    /// Returns a cursor at the beginning of the file, or at its end if it was opened with
    /// [`OpenOptions::append`](crate::OpenOptions::append). Each cursor has its own position
    /// and buffers.
    ///
    /// ```
    /// # #[path = "../../tests/world/mod.rs"]
    /// # mod world;
    /// use frevo_client::{File, Share};
    /// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    ///
    /// async fn count_lines(share: &Share, path: &str) -> std::io::Result<usize> {
    ///     let mut lines = BufReader::new(share.open(path).await?.cursor()).lines();
    ///     let mut count = 0;
    ///     while lines.next_line().await?.is_some() {
    ///         count += 1;
    ///     }
    ///     Ok(count)
    /// }
    ///
    /// # fn main() {
    /// #     world::in_world(async |world| {
    /// #         let share = world.share().await;
    /// let mut poem = File::create(&share, "poem").await.unwrap().cursor();
    /// poem.write_all(b"one\ntwo\n").await.unwrap();
    /// poem.flush().await.unwrap();
    /// assert_eq!(count_lines(&share, "poem").await.unwrap(), 2);
    /// #     });
    /// # }
    /// ```
    pub fn cursor(&self) -> Cursor {
        let end = self.metadata_at_open().len();
        let position = if self.appends { end } else { 0 };
        Cursor {
            end,
            file: self.clone(),
            position,
            piece: Bytes::new(),
            ahead: FuturesOrdered::new(),
            asked: position,
            depth: 1,
            length: None,
            gathered: Vec::new(),
            writes: FuturesUnordered::new(),
            seek: None,
        }
    }
}

/// Reads `want` bytes at `at`, or fewer at the end of the file.
async fn read_piece(file: File, at: u64, want: u64) -> Result<Bytes> {
    let (most, _) = file.sizes().await?;
    let first = file.read_bytes(at, u32::try_from(want).unwrap_or(most).min(most)).await?;
    let got = first.len();
    // The conversion cannot fail, because `want` is at most READ_PIECE.
    let want = usize::try_from(want).unwrap_or(got);
    if got >= want || got == 0 {
        return Ok(first);
    }
    let mut whole = vec![0; want];
    let (before, rest) = whole.split_at_mut(got);
    before.copy_from_slice(&first);
    let more = file.read_at(rest, at + got as u64).await?;
    whole.truncate(got + more);
    Ok(whole.into())
}

impl Cursor {
    /// Returns the file that the cursor reads and writes.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Returns the offset of the next byte to read or write.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Drops the READs ahead.
    fn forget_ahead(&mut self) {
        self.piece = Bytes::new();
        self.ahead = FuturesOrdered::new();
        self.asked = self.position;
        self.depth = 1;
    }

    /// Asks the server for the present length.
    fn poll_length(&mut self, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        let file = &self.file;
        let asked = self.length.get_or_insert_with(|| {
            let file = file.clone();
            Box::pin(async move { Ok(file.metadata().await?.len()) })
        });
        let length = ready!(asked.as_mut().poll(cx));
        self.length = None;
        Poll::Ready(length)
    }

    /// Waits for data in `piece`; it stays empty at the end of the file.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.piece.is_empty() {
            if self.ahead.is_empty() && self.asked >= self.end {
                // Another client may have appended data, so the length is read again.
                self.end = ready!(self.poll_length(cx))?;
                if self.asked >= self.end {
                    return Poll::Ready(Ok(()));
                }
            }
            while self.ahead.len() < self.depth && self.asked < self.end {
                let want = READ_PIECE.min(self.end - self.asked);
                let read = read_piece(self.file.clone(), self.asked, want);
                self.ahead.push_back(Box::pin(async move { Ok((read.await?, want)) }));
                self.asked += want;
            }
            let came = ready!(self.ahead.poll_next_unpin(cx)).transpose();
            let (came, want) = match came {
                Ok(came) => came.unwrap_or_default(),
                Err(error) => {
                    self.forget_ahead();
                    return Poll::Ready(Err(error));
                }
            };
            self.depth = (self.depth * 2).min(AHEAD_MAX);
            if (came.len() as u64) < want {
                // The file has become shorter. The reads in progress have wrong offsets, so they
                // are dropped.
                self.ahead = FuturesOrdered::new();
                self.asked = self.position + came.len() as u64;
                self.end = self.asked;
            }
            self.piece = came;
            if self.piece.is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the gathered data.
    fn send_gathered(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let data = std::mem::take(&mut self.gathered);
        let (file, at) = (self.file.clone(), self.position - data.len() as u64);
        self.writes.push(Box::pin(async move { file.write_all_at(&data, at).await }));
    }

    /// Waits until fewer than `most` WRITEs are under way.
    fn poll_writes(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Result<()>> {
        loop {
            match self.writes.poll_next_unpin(cx) {
                Poll::Ready(Some(written)) => written?,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending if self.writes.len() < most => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.send_gathered();
        self.poll_writes(cx, 1)
    }

    /// Returns the offset of a seek.
    fn sought(from: u64, by: i64) -> io::Result<u64> {
        let wrong = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a seek to before the beginning of the file",
            )
        };
        from.checked_add_signed(by).ok_or_else(wrong)
    }
}

fn io<T>(done: Result<T>) -> io::Result<T> {
    done.map_err(|error: Error| error.into())
}

impl AsyncRead for Cursor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The gathered writes are sent first, so that this read returns their data.
        io(ready!(this.poll_written(cx)))?;
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        io(ready!(this.poll_piece(cx)))?;
        let count = this.piece.len().min(into.remaining());
        into.put_slice(this.piece.get(..count).unwrap_or_default());
        this.piece.advance(count);
        this.position += count as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Cursor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        io(ready!(this.poll_writes(cx, WRITES_MAX)))?;
        let count = data.len().min(WRITE_PIECE - this.gathered.len().min(WRITE_PIECE));
        this.gathered.extend_from_slice(data.get(..count).unwrap_or_default());
        this.position += count as u64;
        this.end = this.end.max(this.position);
        // The write may change data that was read ahead, so that data is dropped.
        this.forget_ahead();
        if this.gathered.len() >= WRITE_PIECE {
            this.send_gathered();
            // The writes progress only when they are polled; an error that comes later is returned
            // by the next call.
            if let Poll::Ready(done) = this.poll_writes(cx, WRITES_MAX) {
                io(done)?;
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx).map(io)
    }

    /// Flushes. The file is closed when its last clone is dropped, or by [`File::close`].
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for Cursor {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        if let SeekFrom::Current(by) = to {
            Self::sought(self.position, by)?;
        }
        self.seek = Some(to);
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = &mut *self;
        let Some(to) = this.seek else { return Poll::Ready(Ok(this.position)) };
        // The gathered writes are sent first, because they may extend the file, whose end
        // SeekFrom::End needs.
        io(ready!(this.poll_written(cx)))?;
        let position = match to {
            SeekFrom::Start(at) => Ok(at),
            SeekFrom::Current(by) => Self::sought(this.position, by),
            SeekFrom::End(by) => {
                this.end = io(ready!(this.poll_length(cx)))?;
                Self::sought(this.end, by)
            }
        };
        this.seek = None;
        let position = position?;
        if position != this.position {
            this.position = position;
            this.forget_ahead();
        }
        Poll::Ready(Ok(position))
    }
}
