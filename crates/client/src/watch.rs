//! Watching a directory: MS-SMB2 3.2.4.16.

use std::sync::Arc;

use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::fscc::notify::{NotifyAction, NotifyEntries};
use frevo_wire::{Command, Status};

use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, try_unfold};

use crate::connection::{Call, Message};
use crate::create::Ask;
use crate::dir::listing_access;
use crate::error::{During, Result};
use crate::open::Open;
use crate::share::{Replay, Share};

/// Bytes that one answer may have.
const ROOM: u32 = 65_536;

/// What happened to a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is new, or was moved here.
    Added(String),
    /// It is gone, or was moved away.
    Removed(String),
    /// Its data or attributes changed.
    Modified(String),
    /// It was renamed.
    Renamed {
        /// As it was.
        from: String,
        /// As it is.
        to: String,
    },
    /// More happened than the server kept: look for yourself.
    Missed,
}

/// A directory being watched.
pub struct Watch {
    open: Arc<Open>,
    flags: ChangeNotifyFlags,
    filter: CompletionFilter,
    /// The question under way: what it is answered is kept by nobody else, if who asked
    /// does not wait any more.
    asked: Option<BoxFuture<'static, Result<Message>>>,
}

impl Share {
    /// Watches a directory, with all below it if `recursive`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn watch(&self, path: &str, recursive: bool) -> Result<Watch> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        let (open, _) = Open::new(self, path, ask, "watch").await?;
        let flags =
            if recursive { ChangeNotifyFlags::WATCH_TREE } else { ChangeNotifyFlags::EMPTY };
        let filter = CompletionFilter::FILE_NAME
            | CompletionFilter::DIR_NAME
            | CompletionFilter::ATTRIBUTES
            | CompletionFilter::SIZE
            | CompletionFilter::LAST_WRITE
            | CompletionFilter::CREATION
            | CompletionFilter::EA
            | CompletionFilter::SECURITY;
        Ok(Watch { open, flags, filter, asked: None })
    }
}

async fn next_changes(
    open: Arc<Open>,
    flags: ChangeNotifyFlags,
    completion_filter: CompletionFilter,
) -> Result<Message> {
    let also = [Status::NOTIFY_ENUM_DIR, Status::NOTIFY_CLEANUP];
    open.ask(Replay::Idempotent, "watch", &also, |file_id| {
        let output_buffer_length = ROOM;
        let request =
            change_notify::Request { flags, output_buffer_length, file_id, completion_filter };
        let call = Call::new(Command::CHANGE_NOTIFY, |w| request.encode(w)).cost(ROOM);
        Ok(Call { waits: true, ..call })
    })
    .await
}

impl Watch {
    /// Waits for the next changes. What happens between two calls, from the first one on, is
    /// kept by the server, and nothing is missed when a call is given up (dropped) and made again.
    /// Names are relative to the directory, with `/`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn next(&mut self) -> Result<Vec<Change>> {
        let Self { open, flags, filter, asked } = self;
        let pending =
            asked.get_or_insert_with(|| Box::pin(next_changes(Arc::clone(open), *flags, *filter)));
        let message = pending.await;
        *asked = None;
        let message = message?;
        if message.header.status != Status::SUCCESS {
            return Ok(vec![Change::Missed]);
        }
        let response = change_notify::Response::parse(message.bytes());
        let output = response.during("watch", &open.url)?.output;
        let mut changes = Vec::new();
        let mut old = None;
        for entry in NotifyEntries::new(output) {
            let entry = entry.during("watch", &open.url)?;
            let name = entry.name.to_string_lossy().replace('\\', "/");
            match entry.action {
                NotifyAction::ADDED => changes.push(Change::Added(name)),
                NotifyAction::REMOVED => changes.push(Change::Removed(name)),
                NotifyAction::RENAMED_OLD_NAME => old = Some(name),
                NotifyAction::RENAMED_NEW_NAME => changes.push(match old.take() {
                    Some(from) => Change::Renamed { from, to: name },
                    None => Change::Added(name),
                }),
                _ => changes.push(Change::Modified(name)),
            }
        }
        changes.extend(old.map(Change::Removed));
        if changes.is_empty() {
            changes.push(Change::Missed);
        }
        Ok(changes)
    }

    /// The changes as a stream without end but an error.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn into_stream(self) -> impl Stream<Item = Result<Change>> + Send + Unpin {
        let begin = (self, Vec::new().into_iter());
        Box::pin(try_unfold(begin, async |(mut watch, mut ready)| {
            loop {
                if let Some(change) = ready.next() {
                    return Ok(Some((change, (watch, ready))));
                }
                ready = watch.next().await?.into_iter();
            }
        }))
    }
}
