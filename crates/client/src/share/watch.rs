//! Change notification on directories: MS-SMB2 3.2.4.16.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use frevo_wire::Command;
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::WireName;
use frevo_wire::fscc::notify::{NotifyAction, NotifyEntries};
use futures_util::stream::Stream;
use futures_util::task::AtomicWaker;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::Status;
use crate::connection::{Call, Message};
use crate::error::{Cause, During, Error, Result};
use crate::limits::{CANCELLED_MAX, CANCELLED_PAUSE};
use crate::open::Open;
use crate::open::create::Ask;
use crate::share::dir::listing_access;
use crate::share::{Replay, Share};

/// Most bytes of one answer.
const OUTPUT_MAX: u32 = 65_536;

/// A change in a watched directory. Paths are relative to that directory, with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A file was created or moved into the directory.
    Added(String),
    /// A file was removed or moved out of the directory.
    Removed(String),
    /// Data or attributes of a file changed.
    Modified(String),
    /// A file was renamed inside the directory.
    Renamed {
        /// The path before the change.
        from: String,
        /// The path after the change.
        to: String,
    },
    /// More changes happened than the server kept, or its answer was lost with a connection: list
    /// the directory.
    Missed,
}

/// The directories that a watch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecursiveMode {
    /// The directory and all directories below it.
    Recursive,
    /// The directory itself, without the directories below it.
    NonRecursive,
}

/// A watched directory: a stream of changes, returned by [`Share::watch`].
///
/// The server keeps the changes that happen between two calls, from the first one on. No
/// change is missed when a call is given up (its future dropped) and made again.
pub struct Watch {
    open: Arc<Open>,
    flags: ChangeNotifyFlags,
    /// The request under way. It survives a caller that gives up: only it gets the answer.
    asked: Option<Asked>,
    /// The Open that was asked last.
    known: Option<FileId>,
    /// True if changes were missed, which the caller does not know yet.
    has_missed: bool,
    /// Count of requests in a row that the server has given up soon.
    given_up: u32,
    /// Changes that the stream has not returned yet.
    ready: VecDeque<Change>,
    has_failed: bool,
}

/// A request under way. It is a task of its own: a caller that does not wait for it must not keep the share from
/// being connected again, which others wait for.
struct Asked {
    answer: JoinHandle<(Result<Message>, Option<FileId>)>,
    sent: Arc<Sent>,
    begun: Instant,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

/// The state of a request.
#[derive(Debug, Default)]
struct Sent {
    /// True after it was sent: from then on the server keeps the changes.
    is_sent: AtomicBool,
    /// True if it was sent to another Open than the request before it, which knows no earlier changes.
    is_to_another: AtomicBool,
    /// Wakes the caller, who looks at both.
    caller: AtomicWaker,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.open.url)
    }
}

impl Share {
    /// Watches a directory for changes, until the [`Watch`] is dropped.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    pub async fn watch(&self, path: &str, mode: RecursiveMode) -> Result<Watch> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        // A directory is opened again by its name after its session was lost, if it is the same one.
        ask.identity = true;
        let (open, _) = Open::new(self, path, ask, "watch").await?;
        let flags = match mode {
            RecursiveMode::Recursive => ChangeNotifyFlags::WATCH_TREE,
            RecursiveMode::NonRecursive => ChangeNotifyFlags::EMPTY,
        };
        Ok(Watch {
            open,
            flags,
            asked: None,
            known: None,
            has_missed: false,
            given_up: 0,
            ready: VecDeque::new(),
            has_failed: false,
        })
    }
}

/// Asks for changes. Returns the Open that was asked too. If the answer is lost, the error is
/// [`Cause::Unknown`]: the server tells of each change once (MS-SMB2 3.3.4.4), and the next answer may
/// be long in coming.
async fn request(
    open: Arc<Open>,
    flags: ChangeNotifyFlags,
    mut known: Option<FileId>,
    sent: Arc<Sent>,
) -> (Result<Message>, Option<FileId>) {
    let completion_filter = CompletionFilter::FILE_NAME
        | CompletionFilter::DIR_NAME
        | CompletionFilter::ATTRIBUTES
        | CompletionFilter::SIZE
        | CompletionFilter::LAST_WRITE
        | CompletionFilter::CREATION
        | CompletionFilter::EA
        | CompletionFilter::SECURITY;
    let also = [Status::NOTIFY_ENUM_DIR, Status::NOTIFY_CLEANUP, Status::CANCELLED];
    let answer = open.ask(Replay::Never, "watch", &also, |file_id| {
        if known.replace(file_id).is_some_and(|earlier| earlier != file_id) {
            sent.is_to_another.store(true, Ordering::Release);
        }
        sent.is_sent.store(true, Ordering::Release);
        let output_buffer_length = OUTPUT_MAX;
        let request =
            change_notify::Request { flags, output_buffer_length, file_id, completion_filter };
        let call = Call::new(Command::CHANGE_NOTIFY, |w| request.encode(w)).cost(OUTPUT_MAX);
        Ok(Call { waits: true, ..call })
    });
    (answer.await, known)
}

impl Asked {
    /// Begins a request, after a pause if the server has given up the one before.
    fn begin(
        open: &Arc<Open>,
        flags: ChangeNotifyFlags,
        known: Option<FileId>,
        was_given_up: bool,
    ) -> Self {
        let sent = Arc::new(Sent::default());
        let request = request(Arc::clone(open), flags, known, Arc::clone(&sent));
        let told = Arc::clone(&sent);
        let answer = tokio::spawn(async move {
            if was_given_up {
                sleep(CANCELLED_PAUSE).await;
            }
            let mut request = pin!(request);
            poll_fn(|cx| {
                let answer = request.as_mut().poll(cx);
                // It is on its way now, if it was sent.
                if told.is_sent.load(Ordering::Acquire) {
                    told.caller.wake();
                }
                answer
            })
            .await
        });
        Self { answer, sent, begun: Instant::now() }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Result<Message>, Option<FileId>)> {
        self.sent.caller.register(cx.waker());
        match Pin::new(&mut self.answer).poll(cx) {
            Poll::Ready(Ok(answer)) => Poll::Ready(answer),
            Poll::Ready(Err(failed)) if failed.is_panic() => resume_unwind(failed.into_panic()),
            // The runtime is shutting down, and ends this caller, too.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Watch {
    /// Waits for the next changes and returns them, at least one.
    ///
    /// # Errors
    /// Fails if the server does, or the connection is lost and not recovered in time.
    pub async fn next_changes(&mut self) -> Result<Vec<Change>> {
        if !self.ready.is_empty() {
            return Ok(self.ready.drain(..).collect());
        }
        poll_fn(|cx| self.poll_changes(cx)).await
    }

    fn is_tree(&self) -> bool {
        self.flags.contains(ChangeNotifyFlags::WATCH_TREE)
    }

    fn poll_changes(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Change>>> {
        loop {
            let (open, flags, known) = (&self.open, self.flags, self.known);
            let was_given_up = self.given_up > 0;
            let asked =
                self.asked.get_or_insert_with(|| Asked::begin(open, flags, known, was_given_up));
            let answer = asked.poll(cx);
            self.has_missed |= asked.sent.is_to_another.swap(false, Ordering::AcqRel);
            let is_sent = asked.sent.is_sent.load(Ordering::Acquire);
            let begun = asked.begun;
            let Poll::Ready((answer, known)) = answer else {
                // The caller will list the directory: the server has to know of the watch before.
                if is_sent && std::mem::take(&mut self.has_missed) {
                    return Poll::Ready(Ok(vec![Change::Missed]));
                }
                return Poll::Pending;
            };
            self.asked = None;
            self.known = known;
            let mut told = match answer {
                // MS-SMB2 3.3.4.17: the server closes the directory, or gives the request up, for example
                // to give its share away.
                Ok(message)
                    if matches!(message.status(), Status::NOTIFY_CLEANUP | Status::CANCELLED) =>
                {
                    self.has_missed = true;
                    // One that has waited tells nothing about the ones before it.
                    let is_soon = begun.elapsed() <= CANCELLED_PAUSE * CANCELLED_MAX;
                    self.given_up = if is_soon { self.given_up.saturating_add(1) } else { 1 };
                    if self.given_up > CANCELLED_MAX {
                        let error = Error::new(message.status(), "watch", &*self.open.url);
                        return Poll::Ready(Err(error));
                    }
                    continue;
                }
                Ok(message) => {
                    self.given_up = 0;
                    let rules =
                        NameRules { is_tree: self.is_tree(), is_posix: self.open.is_posix() };
                    changes(&message, rules, &self.open.url)?
                }
                Err(error) if matches!(error.cause(), Cause::Unknown) => {
                    self.has_missed = true;
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            if std::mem::take(&mut self.has_missed) && !told.contains(&Change::Missed) {
                told.insert(0, Change::Missed);
            }
            return Poll::Ready(Ok(told));
        }
    }
}

/// The names that an answer may have: MS-SMB2 3.2.5.16.
#[derive(Debug, Clone, Copy)]
struct NameRules {
    /// True if the request had SMB2_WATCH_TREE.
    is_tree: bool,
    /// True if the directory was opened by the POSIX extensions.
    is_posix: bool,
}

impl NameRules {
    /// True for the path of a file in the watched directory. The caller may make a path of a folder of its own
    /// of it.
    fn allow(self, name: WireName<'_>) -> bool {
        let units: Vec<u16> = name.units().collect();
        let is_separator = |unit: &u16| [u16::from(b'\\'), u16::from(b'/')].contains(unit);
        let mut parts = units.split(is_separator);
        let dot = u16::from(b'.');
        let is_inside =
            parts.clone().all(|part| !part.is_empty() && part != [dot] && part != [dot; 2]);
        let is_plain = !units.contains(&0);
        // Names have a double quote where both sides have the POSIX extensions.
        let is_name = self.is_posix || !units.contains(&u16::from(b'"'));
        is_inside && is_plain && is_name && (self.is_tree || parts.nth(1).is_none())
    }
}

/// The changes that an answer names. An answer that is malformed or too long is an error: MS-SMB2 3.2.5.16.
///
/// Deviation: a name that cannot be is a change that was missed, and no error. Programs on the host of a
/// server make files whose names clients cannot have, and one of them would end the watch of a folder.
fn changes(message: &Message, rules: NameRules, url: &str) -> Result<Vec<Change>> {
    if message.status() != Status::SUCCESS {
        return Ok(vec![Change::Missed]);
    }
    let output = change_notify::Response::parse(message.bytes()).during("watch", url)?.output;
    if output.len() > OUTPUT_MAX as usize {
        return Err(Cause::Protocol("it sent more changes than were asked for"))
            .during("watch", url);
    }
    let mut changes = Vec::new();
    let (mut old, mut has_missed) = (None, false);
    for entry in NotifyEntries::new(output) {
        let entry = entry.during("watch", url)?;
        if !rules.allow(entry.name) {
            has_missed = true;
            continue;
        }
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
    if has_missed || changes.is_empty() {
        changes.insert(0, Change::Missed);
    }
    Ok(changes)
}

impl Stream for Watch {
    type Item = Result<Change>;

    /// Waits for the next change. The stream ends only after an error.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(change)));
            }
            if self.has_failed {
                return Poll::Ready(None);
            }
            match ready!(self.poll_changes(cx)) {
                Ok(changes) => self.ready.extend(changes),
                Err(error) => {
                    self.has_failed = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}
