//! A file as a stream of bytes: tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
//!
//! Reads are asked for ahead, the more the longer they go on without a seek; writes are
//! gathered and go out while the next ones are gathered.

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

/// Bytes of a piece that is asked for ahead.
const READ_PIECE: u64 = 256 << 10;
/// Pieces asked for ahead at most: 4 MiB.
const AHEAD_MAX: usize = 16;
/// Bytes that are gathered before they are sent.
const WRITE_PIECE: usize = 1 << 20;
/// Pieces under way to the server at most.
const WRITES_MAX: usize = 8;

/// A place in a [`File`], to read and write from on: it implements [`AsyncRead`],
/// [`AsyncWrite`] and [`AsyncSeek`], so that `tokio::io::copy`, `BufReader::lines` and the
/// like work on files of a share. [`File::cursor`] makes one.
///
/// What is written is gathered: [`AsyncWrite::poll_flush`] (`flush().await`) returns when the
/// server has all of it, and says what went wrong; what was not flushed when the cursor is
/// dropped is lost. On stable storage it is after [`File::sync`].
pub struct Cursor {
    file: File,
    /// Of the next byte that the caller reads or writes.
    position: u64,
    /// As far as is known: no READ goes beyond, which ksmbd of Linux 6.12 signs wrongly.
    end: u64,
    /// Came, and was not taken.
    piece: Bytes,
    /// Each with how many bytes were asked for.
    ahead: FuturesOrdered<BoxFuture<'static, Result<(Bytes, u64)>>>,
    /// Where what is not asked for yet begins.
    asked: u64,
    depth: usize,
    /// How long the file is now, while that is asked.
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
    /// The file as a stream of bytes from its beginning: see [`Cursor`]. Several cursors
    /// of one file do not know of each other.
    ///
    /// ```
    /// # #[path = "../tests/world/mod.rs"]
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
        Cursor {
            end: self.metadata_at_open().len(),
            file: self.clone(),
            position: 0,
            piece: Bytes::new(),
            ahead: FuturesOrdered::new(),
            asked: 0,
            depth: 1,
            length: None,
            gathered: Vec::new(),
            writes: FuturesUnordered::new(),
            seek: None,
        }
    }
}

/// All of `want` bytes at `at`, or what there is of them.
async fn read_piece(file: File, at: u64, want: u64) -> Result<Bytes> {
    let (most, _) = file.sizes().await?;
    let first = file.read_bytes(at, u32::try_from(want).unwrap_or(most).min(most)).await?;
    let got = first.len();
    // At most READ_PIECE.
    let want = usize::try_from(want).unwrap_or(got);
    if got >= want || got == 0 {
        return Ok(first);
    }
    let mut whole = vec![0; want];
    let (before, rest) = whole.split_at_mut(got);
    before.copy_from_slice(&first);
    let more = file.read_at(at + got as u64, rest).await?;
    whole.truncate(got + more);
    Ok(whole.into())
}

impl Cursor {
    /// The file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Where the next byte is read or written.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// What was asked for ahead is of no use any more.
    fn forget_ahead(&mut self) {
        self.piece = Bytes::new();
        self.ahead = FuturesOrdered::new();
        self.asked = self.position;
        self.depth = 1;
    }

    /// The present length, which the server is asked for.
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

    /// Has a piece to take from, empty at the end of the file.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.piece.is_empty() {
            if self.ahead.is_empty() && self.asked >= self.end {
                // Somebody may have appended to it.
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
                // It has become shorter: what was asked for ahead begins too far.
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

    /// What was gathered goes on its way.
    fn send_gathered(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let data = std::mem::take(&mut self.gathered);
        let (file, at) = (self.file.clone(), self.position - data.len() as u64);
        self.writes.push(Box::pin(async move { file.write_at(at, &data).await }));
    }

    /// Until fewer than `most` are under way.
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

    /// Where a seek leads, if it is one that can be.
    fn sought(from: u64, by: i64) -> io::Result<u64> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "a seek before the beginning");
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
        // What was written before is read.
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
        // It may be what was read ahead that changes.
        this.forget_ahead();
        if this.gathered.len() >= WRITE_PIECE {
            this.send_gathered();
            // They are sent when they are polled; whoever fails tells the next call.
            if let Poll::Ready(done) = this.poll_writes(cx, WRITES_MAX) {
                io(done)?;
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx).map(io)
    }

    /// The same as a flush: the file is closed when its last clone is dropped, or by
    /// [`File::close`].
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
        // The end is behind all that was written.
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
