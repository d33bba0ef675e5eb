//! Whole files: a small one is read or written in one round trip.

use std::time::SystemTime;

use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::command::{read, write};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::{Command, Header};

use crate::Status;
use crate::connection::{Call, Message, Payload};
use crate::error::{Cause, During, Error, Result};
use crate::file::options::OpenOptions;
use crate::metadata::{Metadata, file_time};
use crate::open::create::{Ask, Opened};
use crate::open::info::set_call;
use crate::share::compound::{Answers, RELATED, close_call, close_with, missing};
use crate::share::set_attributes::SetMetadata;
use crate::share::small_file_times::{Order, Shown};
use crate::share::undo::Made;
use crate::share::{Replay, Share};

/// Longest file that is read or written in one round trip, bytes.
const SMALL: u32 = 65_536;

/// The statuses of a full disk.
const NO_SPACE: [Status; 2] = [Status::DISK_FULL, Status::QUOTA_EXCEEDED];

/// The purpose of writing a whole file: it decides what stays when there is no space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The file's content: the part that has space stays.
    Content,
    /// A copy: a file that this call created is removed.
    Copy,
    /// As [`Self::Copy`], of a file that must not exist yet.
    NewCopy,
}

/// A whole file to be written.
#[derive(Clone, Copy)]
struct Whole<'a> {
    path: &'a str,
    data: &'a [u8],
    modified: Option<SystemTime>,
    purpose: Purpose,
}

/// The outcome of a WRITE.
enum Written {
    All,
    Less,
    NoSpace(Status),
}

impl Share {
    /// Reads a whole file.
    ///
    /// # Errors
    /// Fails if `path` does not exist, is a directory, or may not be read.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>> {
        if let Some((whole, _)) = self.read_small(path).await? {
            return Ok(whole);
        }
        let file = self.open(path).await?;
        // The buffer grows with the data, because the server may report a wrong length.
        let mut whole = Vec::new();
        let sink = |_: u64, piece: frevo_net::buffer::Buf| {
            whole.extend_from_slice(&piece);
            std::future::ready(Ok(()))
        };
        file.fetch(0, file.metadata_at_open().len(), sink).await?;
        Ok(whole)
    }

    /// Reads a whole file of UTF-8 text.
    ///
    /// # Errors
    /// Fails with [`Cause::Local`] (`InvalidData`) if the file is not UTF-8, and as
    /// [`Self::read`] does.
    pub async fn read_to_string(&self, path: &str) -> Result<String> {
        String::from_utf8(self.read(path).await?).map_err(|_| {
            let why = std::io::Error::new(std::io::ErrorKind::InvalidData, "the file is not UTF-8");
            Error::new(Cause::Local(std::sync::Arc::new(why)), "read", self.url(path))
        })
    }

    /// Reads a file of up to 64 KiB and its metadata in one round trip; `None` of a larger
    /// one.
    ///
    /// # Errors
    /// Fails as [`Self::read`] does.
    #[doc(hidden)]
    pub async fn read_small(&self, path: &str) -> Result<Option<(Vec<u8>, Metadata)>> {
        self.read_small_with(path, false).await
    }

    /// As [`Self::read_small`]; if `identified`, the metadata has the file's number, if the
    /// server sends it.
    pub(crate) async fn read_small_with(
        &self,
        path: &str,
        identified: bool,
    ) -> Result<Option<(Vec<u8>, Metadata)>> {
        let mut ask = Ask::existing(AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES);
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        ask.identity = identified;
        ask.app_instance = self.session().options().app_instance;
        let calls = || {
            let request = read::Request::new(RELATED, 0, SMALL);
            let read = Call::new(Command::READ, |w| request.encode(w)).cost(SMALL);
            vec![read, close_call()]
        };
        let also = [Status::END_OF_FILE];
        let answers = self.chain("read", path, Replay::Idempotent, &ask, &also, calls).await?;
        let url = self.url(path);
        let [_, data, ..] = &*answers.messages else { return Err(missing("read", url)) };
        let opened = answers.opened("read", &url)?;
        let metadata = answers.found(Metadata::from(&opened));
        if data.status() == Status::END_OF_FILE {
            // A file with a length that has nothing to read is no empty file: it is read in steps.
            let is_empty = opened.end_of_file == 0;
            return Ok(is_empty.then(|| (Vec::new(), metadata)));
        }
        let first = read::Response::parse(data.bytes()).during("read", &url)?.data;
        let is_whole = opened.end_of_file <= first.len() as u64 || first.len() < SMALL as usize;
        Ok(is_whole.then(|| (first.to_vec(), metadata)))
    }

    /// Writes a whole file: creates it, or replaces its data.
    ///
    /// # Errors
    /// Fails if `path` is a directory or may not be written, and if there is no space: then
    /// a part of the data may have been written.
    pub async fn write(&self, path: &str, data: impl AsRef<[u8]>) -> Result<()> {
        let (data, purpose) = (data.as_ref(), Purpose::Content);
        self.write_whole(Whole { path, data, modified: None, purpose }).await
    }

    /// Writes a whole file as a copy, and sets the time of its last write. If there is no
    /// space, a file that this call created is removed: half a copy would be taken for a
    /// whole one. A file that existed stays, with the part that could be written, and so
    /// does one that another program has open or has written to.
    ///
    /// # Errors
    /// Fails as [`Self::write`] does.
    #[doc(hidden)]
    pub async fn write_dated(
        &self,
        path: &str,
        data: &[u8],
        modified: Option<SystemTime>,
    ) -> Result<()> {
        self.write_whole(Whole { path, data, modified, purpose: Purpose::Copy }).await
    }

    /// As [`Self::write_dated`], of a file that must not exist yet.
    ///
    /// # Errors
    /// Fails with OBJECT_NAME_COLLISION if the file exists, also when a first request whose
    /// answer was lost created it; and as [`Self::write`] does.
    #[doc(hidden)]
    pub async fn write_new(
        &self,
        path: &str,
        data: &[u8],
        modified: Option<SystemTime>,
    ) -> Result<()> {
        self.write_whole(Whole { path, data, modified, purpose: Purpose::NewCopy }).await
    }

    async fn write_whole(&self, whole: Whole<'_>) -> Result<()> {
        let Whole { path, data, purpose, .. } = whole;
        let Some(len) = u32::try_from(data.len()).ok().filter(|len| *len <= SMALL) else {
            return self.write_in_steps(whole, None).await;
        };
        // The path may lead through a link to another share, whose handling of times is unknown. So
        // the time is set last.
        let order = if self.way.is_some() { Order::Last } else { self.inner.dates.order() };
        let wanted = whole.modified.filter(|_| order == Order::Unknown && !data.is_empty());
        let answers = self.send_whole(&whole, len, order, wanted.is_some()).await?;
        match written(&answers.messages, len).during("write", &self.url(path))? {
            Written::All => {}
            // The compound wrote only a part. So separate requests write the rest or report the
            // reason. The file exists already.
            Written::Less => {
                let copied =
                    |purpose| if purpose == Purpose::Content { purpose } else { Purpose::Copy };
                let whole = Whole { purpose: copied(purpose), ..whole };
                return self.write_in_steps(whole, made(&answers.messages)).await;
            }
            Written::NoSpace(status) => {
                if let Some(made) = made(&answers.messages).filter(|_| purpose != Purpose::Content)
                {
                    let _ = self.remove_made(path, &made, data).await;
                }
                return Err(Error::new(status, "write", self.url(path)));
            }
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let closed = answers.messages.last().ok_or_else(|| missing("write", self.url(path)))?;
        let closed = close::Response::parse(closed.bytes()).during("write", &self.url(path))?;
        match self.inner.dates.learn(file_time(wanted), &closed) {
            Shown::Dated => Ok(()),
            Shown::Undated => self.set_date(path, wanted).await,
        }
    }

    /// Writes a small file in one compound: CREATE, WRITE and SET_INFO in the `order` that
    /// the share needs, and CLOSE, which tells the times if `asks_times`.
    async fn send_whole(
        &self,
        whole: &Whole<'_>,
        len: u32,
        order: Order,
        asks_times: bool,
    ) -> Result<Answers> {
        let mut ask = Ask::existing(
            AccessMask::WRITE_DATA
                | AccessMask::READ_ATTRIBUTES
                | AccessMask::WRITE_ATTRIBUTES
                | AccessMask::SYNCHRONIZE,
        );
        ask.disposition = match whole.purpose {
            Purpose::NewCopy => CreateDisposition::CREATE,
            Purpose::Content | Purpose::Copy => CreateDisposition::OVERWRITE_IF,
        };
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        ask.identity = whole.purpose != Purpose::Content;
        ask.app_instance = self.session().options().app_instance;
        let flags = if asks_times { CloseFlags::POSTQUERY_ATTRIB } else { CloseFlags::EMPTY };
        let calls = || {
            let request = write::Request::new(RELATED, 0, &[]);
            let call = Call::new(Command::WRITE, |w| request.encode_fixed(len, w)).cost(len);
            let write = (len > 0).then(|| call.payload(Payload::Copied(whole.data)));
            let date = whole.modified.map(date_call);
            let both = if order == Order::Last { [write, date] } else { [date, write] };
            both.into_iter().flatten().chain([close_with(flags)]).collect()
        };
        self.chain("write", whole.path, Replay::Settled, &ask, &NO_SPACE, calls).await
    }

    /// Writes a whole file with a round trip for each step. `made` is the file if an earlier
    /// compound created it.
    async fn write_in_steps(&self, whole: Whole<'_>, made: Option<Made>) -> Result<()> {
        let Whole { path, data, modified, purpose } = whole;
        let options = match purpose {
            Purpose::NewCopy => OpenOptions::new().write(true).create_new(true),
            Purpose::Content | Purpose::Copy => {
                OpenOptions::new().write(true).create(true).truncate(true)
            }
        };
        let file = options.open(self, path).await?;
        let steps = async {
            file.write_all_at(data, 0).await?;
            if let Some(modified) = modified {
                file.set_modified(modified).await?;
            }
            file.clone().close().await
        };
        let done = steps.await;
        if let Err(error) = &done
            && error.status().is_some_and(|status| NO_SPACE.contains(&status))
        {
            let made = made.filter(|made| made.is(&file.opened)).or_else(|| Made::by(&file.opened));
            let _ = file.close().await;
            if let Some(made) = made.filter(|_| purpose != Purpose::Content) {
                let _ = self.remove_made(path, &made, data).await;
            }
        }
        done
    }

    /// Sets the time of the last write of a file that exists.
    async fn set_date(&self, path: &str, modified: SystemTime) -> Result<()> {
        let mut ask = Ask::existing(
            AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::SYNCHRONIZE,
        );
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        let calls = || vec![date_call(modified), close_call()];
        self.chain("set the times of", path, Replay::Settled, &ask, &[], calls).await?;
        Ok(())
    }
}

/// The file that a compound created.
fn made(messages: &[Message]) -> Option<Made> {
    Made::by(&Opened::parse(messages.first()?).ok()?)
}

fn written(messages: &[Message], len: u32) -> std::result::Result<Written, Cause> {
    for message in messages {
        let Header { command, .. } = message.header;
        let status = message.status();
        if NO_SPACE.contains(&status) {
            return Ok(Written::NoSpace(status));
        }
        // MS-SMB2 2.2.22: the server may write less than was sent, as smbd does when the disk is
        // full.
        if command == Command::WRITE && write::Response::parse(message.bytes())?.count < len {
            return Ok(Written::Less);
        }
    }
    Ok(Written::All)
}

fn date_call(modified: SystemTime) -> Call<'static> {
    let times = SetMetadata::new().modified(modified).encode();
    set_call(InfoType::FILE, FileInfoClass::BASIC.0, 0, RELATED, &times)
}
