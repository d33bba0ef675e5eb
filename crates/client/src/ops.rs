//! What is done to names: make, remove, rename, look up.

use std::time::SystemTime;

use frevo_wire::codec::Writer;
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::{CreateDisposition, CreateOptions, OplockLevel};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::command::{read, write};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::FileRenameInformation;
use frevo_wire::{Command, Header, Status};

use crate::connection::{Call, Message, Payload};
use crate::create::{Ask, Opened};
use crate::dfs::Located;
use crate::dir::TOO_MANY;
use crate::dir::{Dir, DirEntry};
use crate::error::{Cause, During, Error, Result};
use crate::file::File;
use crate::limits::LISTINGS;
use crate::listings::UNDER_WAY;
use crate::metadata::{Metadata, file_time};
use crate::open_options::OpenOptions;
use crate::path::wire_path;
use crate::session::Failure;
use crate::set_attributes::Basic;
use crate::share::{Attempts, Replay, Share, good};
use crate::small_file_times::{Order, Shown};
use crate::undo::Made;

/// What a compound was answered, and where.
pub(crate) struct Answers {
    pub(crate) messages: Vec<Message>,
    pub(crate) share: Share,
    /// As the wire has it.
    pub(crate) path: String,
    is_link: bool,
}

impl Answers {
    /// `metadata` that was found there.
    pub(crate) fn of_there(&self, metadata: Metadata) -> Metadata {
        metadata.found_in(&self.share, self.is_link)
    }
}

/// Files up to this long are read and written in one round trip.
const SMALL: u32 = 65_536;

impl Share {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// What the server says.
    pub async fn open(&self, path: &str) -> Result<File> {
        File::open(self, path).await
    }

    /// Lists a directory; the share's root is the empty path.
    ///
    /// # Errors
    /// What the server says.
    pub async fn list(&self, path: &str) -> Result<Dir> {
        Dir::new(self, path, None).await
    }

    /// All entries of a directory. When the connection is lost on the way the
    /// listing begins anew. Where directories that are listed at the same time have more
    /// than [`ENTRIES_UNDER_WAY`](crate::limits::ENTRIES_UNDER_WAY) entries together, one
    /// waits for the others.
    ///
    /// # Errors
    /// What the server says.
    pub async fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        if let Some(entries) = self.listed(path, false).await? {
            return Ok(entries);
        }
        let _turn = UNDER_WAY.turn().await;
        let listed = self.listed(path, true).await?;
        listed.ok_or_else(|| Error::new(Cause::Protocol(TOO_MANY), "list", self.url(path)))
    }

    /// All entries; none when there is no room for them, for which it waits if `waits`.
    async fn listed(&self, path: &str, waits: bool) -> Result<Option<Vec<DirEntry>>> {
        for _ in 1..LISTINGS {
            match self.list(path).await?.all_in(&UNDER_WAY, waits).await {
                Err(error) if matches!(error.cause(), Cause::Unknown | Cause::HandleLost) => {}
                listed => return listed,
            }
        }
        self.list(path).await?.all_in(&UNDER_WAY, waits).await
    }

    /// What `path` is. A symbolic link is not followed.
    ///
    /// # Errors
    /// What the server says.
    pub async fn metadata(&self, path: &str) -> Result<Metadata> {
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.options |= CreateOptions::OPEN_REPARSE_POINT;
        let close = close_call(CloseFlags::EMPTY);
        let answers =
            self.chain("stat", path, Replay::Idempotent, &ask, &[], || vec![close()]).await?;
        let [opened, ..] = &*answers.messages else { return Err(self.broken("stat", path)) };
        let opened = Opened::parse(opened).during("stat", &self.url(path))?;
        Ok(answers.of_there(Metadata::from(&opened)))
    }

    /// Makes a directory, which must not exist.
    ///
    /// # Errors
    /// What the server says.
    pub async fn create_dir(&self, path: &str) -> Result<()> {
        self.create_dir_with(path, 0o755).await
    }

    /// The same with permission bits, of which those without POSIX extensions know
    /// nothing.
    ///
    /// # Errors
    /// What the server says.
    pub async fn create_dir_with(&self, path: &str, mode: u32) -> Result<()> {
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.disposition = CreateDisposition::CREATE;
        ask.options |= CreateOptions::DIRECTORY_FILE;
        ask.mode = mode;
        let close = close_call(CloseFlags::EMPTY);
        self.chain("make directory", path, Replay::Never, &ask, &[], || vec![close()]).await?;
        Ok(())
    }

    /// Makes a directory and those on the way to it that do not exist.
    ///
    /// # Errors
    /// What the server says.
    pub async fn create_dir_all(&self, path: &str) -> Result<()> {
        let whole = wire_path(path).during("make directory", &self.url(path))?;
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.disposition = CreateDisposition::OPEN_IF;
        ask.options |= CreateOptions::DIRECTORY_FILE;
        let ends = whole.match_indices('\\').map(|(at, _)| at).chain([whole.len()]);
        for end in ends.filter(|end| *end > 0) {
            let part = &whole[..end];
            let close = close_call(CloseFlags::EMPTY);
            self.chain("make directory", part, Replay::Idempotent, &ask, &[], || vec![close()])
                .await?;
        }
        Ok(())
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// What the server says.
    pub async fn remove_file(&self, path: &str) -> Result<()> {
        self.remove(path, CreateOptions::NON_DIRECTORY_FILE).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// What the server says.
    pub async fn remove_dir(&self, path: &str) -> Result<()> {
        self.remove(path, CreateOptions::DIRECTORY_FILE).await
    }

    async fn remove(&self, path: &str, kind: CreateOptions) -> Result<()> {
        let mut ask = Ask::existing(
            AccessMask::DELETE | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE,
        );
        ask.options |= kind | CreateOptions::OPEN_REPARSE_POINT;
        ask.is_of_name = true;
        let calls = || {
            let disposition = crate::file::set(
                InfoType::FILE,
                FileInfoClass::DISPOSITION.0,
                0,
                FileId::ALL_ONES,
                &[1],
            );
            vec![disposition, close_call(CloseFlags::EMPTY)()]
        };
        // The answer to the second try would be that it is not there.
        self.chain("remove", path, Replay::Never, &ask, &[], calls).await?;
        Ok(())
    }

    /// Renames `from` to `to`, in the same share. What is at `to` is replaced
    /// if `replace` is set.
    ///
    /// # Errors
    /// What the server says.
    pub async fn rename(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        self.relink("rename", FileInfoClass::RENAME, AccessMask::DELETE, from, to, replace).await
    }

    /// Makes `to` another name of the file `from`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn hard_link(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        let access = AccessMask::WRITE_ATTRIBUTES;
        self.relink("link", FileInfoClass::LINK, access, from, to, replace).await
    }

    async fn relink(
        &self,
        operation: &'static str,
        class: FileInfoClass,
        access: AccessMask,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<()> {
        let (share, from, target) = self.together(operation, from, to).await?;
        let mut data = Vec::new();
        FileRenameInformation { replace_if_exists: replace, root_directory: 0, name: &*target }
            .encode(&mut Writer::new(&mut data));
        let mut ask = Ask::existing(access | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.options |= CreateOptions::OPEN_REPARSE_POINT;
        ask.is_of_name = true;
        let calls = || {
            let set = crate::file::set(InfoType::FILE, class.0, 0, FileId::ALL_ONES, &data);
            vec![set, close_call(CloseFlags::EMPTY)()]
        };
        share.chain(operation, &from, Replay::Never, &ask, &[], calls).await?;
        Ok(())
    }

    /// The one share in which both names are, and the names in it: links may lead
    /// to others on the way to them.
    ///
    /// # Errors
    /// NOT_SAME_DEVICE when they are in two.
    pub(crate) async fn together(
        &self,
        operation: &'static str,
        from: &str,
        to: &str,
    ) -> Result<(Self, String, String)> {
        let names = [from, to].map(|name| wire_path(name).during(operation, &self.url(name)));
        let [from, to] = names;
        let (from, to) = (from?, to?);
        if self.way.is_none() && self.reached.is_none() {
            return Ok((self.clone(), from, to));
        }
        let (source, from) = self.directory_of(&from).await?;
        let (target, to) = self.directory_of(&to).await?;
        let is_same = source.session().is_same(target.session())
            && source.name().eq_ignore_ascii_case(target.name());
        if is_same {
            // Both names are those that they have there.
            return Ok((Self { reached: None, ..source }, from, to));
        }
        Err(Error::new(Status::NOT_SAME_DEVICE, operation, source.url(&from.replace('\\', "/"))))
    }

    /// The share in which the directory of `path` is, and the path there.
    async fn directory_of(&self, path: &str) -> Result<(Self, String)> {
        let (directory, name) = crate::path::split(path);
        let ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        let close = close_call(CloseFlags::EMPTY);
        let answers =
            self.chain("stat", directory, Replay::Idempotent, &ask, &[], || vec![close()]).await?;
        let slash = if answers.path.is_empty() { "" } else { "\\" };
        Ok((answers.share, format!("{}{slash}{name}", answers.path)))
    }

    /// Reads a whole file: a small one in one round trip.
    ///
    /// # Errors
    /// What the server says.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>> {
        if let Some((whole, _)) = self.read_small(path).await? {
            return Ok(whole);
        }
        let file = self.open(path).await?;
        // What the server says of the length is not believed before it is here.
        let mut whole = Vec::new();
        let sink = |_: u64, piece: frevo_net::buffer::Buf| {
            whole.extend_from_slice(&piece);
            std::future::ready(Ok(()))
        };
        file.fetch(0, file.metadata_at_open().len(), sink).await?;
        Ok(whole)
    }

    /// Reads a file of up to 64 KiB in one round trip, and what it was when it was opened.
    /// Nothing of one that is larger, whatever it was before.
    ///
    /// # Errors
    /// What the server says.
    pub async fn read_small(&self, path: &str) -> Result<Option<(Vec<u8>, Metadata)>> {
        let mut ask = Ask::existing(AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES);
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        let calls = || {
            let request = read::Request::new(FileId::ALL_ONES, 0, SMALL);
            let read = Call::new(Command::READ, |w| request.encode(w)).cost(SMALL);
            vec![read, close_call(CloseFlags::EMPTY)()]
        };
        let also = [Status::END_OF_FILE];
        let answers = self.chain("read", path, Replay::Idempotent, &ask, &also, calls).await?;
        let [opened, data, ..] = &*answers.messages else {
            return Err(self.broken("read", path));
        };
        let url = self.url(path);
        let opened = Opened::parse(opened).during("read", &url)?;
        if data.header.status == Status::END_OF_FILE {
            return Ok(Some((Vec::new(), answers.of_there(Metadata::from(&opened)))));
        }
        let first = read::Response::parse(data.bytes()).during("read", &url)?.data;
        let is_whole = opened.end_of_file <= first.len() as u64 || first.len() < SMALL as usize;
        Ok(is_whole.then(|| (first.to_vec(), answers.of_there(Metadata::from(&opened)))))
    }

    /// Writes a whole file, made or replaced: a small one in one round trip.
    ///
    /// # Errors
    /// What the server says.
    pub async fn write(&self, path: &str, data: &[u8]) -> Result<()> {
        self.write_whole(path, data, None, Purpose::Content).await
    }

    /// The same for a copy, with the time of its last write set to `modified`. When there is
    /// no room for all of it, what this call made is removed: half a file would be taken for
    /// a whole one. What was there before stays, with what could be written of it, and so does
    /// what somebody else wrote to meanwhile or has open.
    ///
    /// # Errors
    /// What the server says.
    pub async fn write_dated(
        &self,
        path: &str,
        data: &[u8],
        modified: Option<SystemTime>,
    ) -> Result<()> {
        self.write_whole(path, data, modified, Purpose::Copy).await
    }

    /// The same for a copy of which nothing may be there yet: what is there stays.
    ///
    /// # Errors
    /// OBJECT_NAME_COLLISION when something is there (also when the answer to a first
    /// request was lost, and it is that one's), and what else the server says.
    pub async fn write_new(
        &self,
        path: &str,
        data: &[u8],
        modified: Option<SystemTime>,
    ) -> Result<()> {
        self.write_whole(path, data, modified, Purpose::NewCopy).await
    }

    async fn write_whole(
        &self,
        path: &str,
        data: &[u8],
        modified: Option<SystemTime>,
        purpose: Purpose,
    ) -> Result<()> {
        let is_copy = purpose != Purpose::Content;
        let small = u32::try_from(data.len()).ok().filter(|len| *len <= SMALL);
        let Some(len) = small else {
            return self.write_in_steps(path, data, modified, purpose, None).await;
        };
        let mut ask = Ask::existing(
            AccessMask::WRITE_DATA
                | AccessMask::READ_ATTRIBUTES
                | AccessMask::WRITE_ATTRIBUTES
                | AccessMask::SYNCHRONIZE,
        );
        ask.disposition = match purpose {
            Purpose::NewCopy => CreateDisposition::CREATE,
            _ => CreateDisposition::OVERWRITE_IF,
        };
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        ask.identity = is_copy;
        // Links may lead to servers of which nothing is known.
        let order = if self.way.is_some() { Order::Last } else { self.inner.dates.order() };
        let wanted = modified.filter(|_| order == Order::Unknown && !data.is_empty());
        let flags = if wanted.is_some() { CloseFlags::POSTQUERY_ATTRIB } else { CloseFlags::EMPTY };
        let calls = || {
            let request = write::Request::new(FileId::ALL_ONES, 0, &[]);
            let call = Call::new(Command::WRITE, |w| request.encode_fixed(len, w)).cost(len);
            let write = (!data.is_empty()).then(|| call.payload(Payload::Copied(data)));
            let date = modified.map(date_call);
            let both = if order == Order::Last { [write, date] } else { [date, write] };
            both.into_iter().flatten().chain([close_call(flags)()]).collect()
        };
        let answers = self.chain("write", path, Replay::Idempotent, &ask, &NO_ROOM, calls).await?;
        match written(&answers.messages, len).during("write", &self.url(path))? {
            Written::All => {}
            // One after the other it is told why, or the rest is taken. It is made by now.
            Written::Less => {
                let purpose = if is_copy { Purpose::Copy } else { purpose };
                let made = made(&answers.messages);
                return self.write_in_steps(path, data, modified, purpose, made).await;
            }
            Written::NoRoom(status) => {
                if let Some(made) = made(&answers.messages).filter(|_| is_copy) {
                    let _ = self.remove_made(path, &made, data).await;
                }
                return Err(Error::new(status, "write", self.url(path)));
            }
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let closed = answers.messages.last().ok_or_else(|| self.broken("write", path))?;
        let closed = close::Response::parse(closed.bytes()).during("write", &self.url(path))?;
        match self.inner.dates.learn(file_time(wanted), &closed) {
            Shown::Dated => Ok(()),
            Shown::Undated => self.date(path, wanted).await,
        }
    }

    /// Writes a whole file in a round trip for each step, which may have been `made` before.
    async fn write_in_steps(
        &self,
        path: &str,
        data: &[u8],
        modified: Option<SystemTime>,
        purpose: Purpose,
        made: Option<Made>,
    ) -> Result<()> {
        let options = match purpose {
            Purpose::NewCopy => OpenOptions::new().write(true).create_new(true),
            _ => OpenOptions::new().write(true).create(true).truncate(true),
        };
        let file = options.open(self, path).await?;
        let steps = async {
            file.write_at(0, data).await?;
            if modified.is_some() {
                file.set_times(modified, None).await?;
            }
            file.clone().close().await
        };
        let done = steps.await;
        if let Err(error) = &done
            && error.status().is_some_and(|status| NO_ROOM.contains(&status))
        {
            let made = made.filter(|made| made.is(&file.opened)).or_else(|| Made::by(&file.opened));
            let _ = file.close().await;
            if let Some(made) = made.filter(|_| purpose != Purpose::Content) {
                let _ = self.remove_made(path, &made, data).await;
            }
        }
        done
    }

    /// Sets the time of the last write of what exists.
    async fn date(&self, path: &str, modified: SystemTime) -> Result<()> {
        let mut ask = Ask::existing(
            AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::SYNCHRONIZE,
        );
        ask.options |= CreateOptions::NON_DIRECTORY_FILE;
        let calls = || vec![date_call(modified), close_call(CloseFlags::EMPTY)()];
        self.chain("set the times of", path, Replay::Idempotent, &ask, &[], calls).await?;
        Ok(())
    }

    /// CREATE and what follows it, as one compound, wherever links lead. The first
    /// error is the operation's; `also` are statuses of what follows that are none.
    pub(crate) async fn chain<'p>(
        &self,
        operation: &'static str,
        path: &str,
        replay: Replay,
        ask: &Ask,
        also: &[Status],
        calls: impl Fn() -> Vec<Call<'p>>,
    ) -> Result<Answers> {
        let url = self.url(path);
        let path = wire_path(path).during(operation, &url)?;
        let mut at = self.located(path).await?;
        loop {
            ask.check(&at, operation, &url)?;
            let attempts = at.share.attempts(replay, operation, &url).or_at(at.others.as_ref());
            match at.share.chain_here(attempts, &at.path, ask, also, &calls).await {
                Ok(messages) => {
                    let Located { share, path, is_link, .. } = at;
                    return Ok(Answers { messages, share, path, is_link });
                }
                Err(refusal) => at = at.beyond(refusal).await?,
            }
        }
    }

    async fn chain_here<'p>(
        &self,
        mut attempts: Attempts<'_>,
        path: &str,
        ask: &Ask,
        also: &[Status],
        calls: &impl Fn() -> Vec<Call<'p>>,
    ) -> Result<Vec<Message>> {
        loop {
            let (live, bound) = attempts.next().await?;
            let (name, posix) = (self.named(path, bound), self.is_posix_in(&live));
            let mut all = vec![ask.call(&name, OplockLevel::NONE, &[], posix)];
            all.extend(calls());
            if let Some(first) = all.first_mut() {
                first.tree_id = bound.tree_id;
            }
            let outcome = match live.channel() {
                Some(channel) => live.chain(&channel, all, bound.seal).await,
                None => Err(Failure::Unsent),
            };
            let outcome = outcome.and_then(|answers| {
                let also = |at| if at == 0 { &[] } else { also };
                let answers = answers.into_iter().enumerate();
                answers.map(|(at, answer)| good(answer, also(at))).collect()
            });
            if let Some(end) = attempts.judge(outcome, bound) {
                return end;
            }
        }
    }

    pub(crate) fn broken(&self, operation: &'static str, path: &str) -> Error {
        Error::new(Cause::Protocol("an answer is missing"), operation, self.url(path))
    }
}

/// There is no room for what is written.
const NO_ROOM: [Status; 2] = [Status::DISK_FULL, Status::QUOTA_EXCEEDED];

/// What a whole file is written for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is its writer's, also when there is no room for all of it.
    Content,
    /// Without room for all of it nothing is left of it.
    Copy,
    /// The same, and nothing is there yet.
    NewCopy,
}

/// What became of what was to be written.
enum Written {
    All,
    Less,
    NoRoom(Status),
}

/// The file that a compound made.
fn made(messages: &[Message]) -> Option<Made> {
    Made::by(&Opened::parse(messages.first()?).ok()?)
}

fn written(messages: &[Message], len: u32) -> std::result::Result<Written, Cause> {
    for message in messages {
        let Header { status, command, .. } = message.header;
        if NO_ROOM.contains(&status) {
            return Ok(Written::NoRoom(status));
        }
        // MS-SMB2 2.2.22: a server may write less, as smbd does where that is all the room.
        if command == Command::WRITE && write::Response::parse(message.bytes())?.count < len {
            return Ok(Written::Less);
        }
    }
    Ok(Written::All)
}

fn date_call(modified: SystemTime) -> Call<'static> {
    let times = Basic { modified: Some(modified), ..Basic::default() }.encode();
    crate::file::set(InfoType::FILE, FileInfoClass::BASIC.0, 0, FileId::ALL_ONES, &times)
}

pub(crate) fn close_call(flags: CloseFlags) -> impl Fn() -> Call<'static> {
    move || {
        let request = close::Request { flags, file_id: FileId::ALL_ONES };
        Call::new(Command::CLOSE, |w| request.encode(w))
    }
}
