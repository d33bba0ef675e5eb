//! Compounds: CREATE and the requests about what it opened, in one round trip.
//! MS-SMB2 3.2.4.1.4.

use frevo_wire::Command;
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::oplock_break::LeaseKey;
use frevo_wire::create_context::CreateContext;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::file_id::FileId;

use crate::Status;
use crate::connection::{Call, Message};
use crate::dfs::Located;
use crate::error::{Cause, During, Error, Result};
use crate::metadata::Metadata;
use crate::open::create::{Ask, Opened};
use crate::open::{lease_context, oplock_of, parent_context};
use crate::path::wire_path;
use crate::session::Failure;
use crate::share::{Attempts, CHANGES, Replay, Share, good};

/// The FileId of the CREATE that the compound begins with.
pub(crate) const RELATED: FileId = FileId::ALL_ONES;

/// The answers to a compound.
pub(crate) struct Answers {
    pub(crate) messages: Vec<Message>,
    /// The share that answered.
    pub(crate) share: Share,
    /// The path in that share, with `\`.
    pub(crate) path: String,
    is_link: bool,
}

impl Answers {
    /// Completes `metadata` that was found there.
    pub(crate) fn found(&self, metadata: Metadata) -> Metadata {
        self.share.found(metadata, self.is_link)
    }

    /// The answer to the CREATE.
    pub(crate) fn opened(&self, operation: &'static str, url: &str) -> Result<Opened> {
        let first = self.messages.first().ok_or_else(|| missing(operation, url.into()))?;
        Opened::parse(first).during(operation, url)
    }
}

/// A CLOSE of what the compound opened.
pub(crate) fn close_call() -> Call<'static> {
    close_with(CloseFlags::EMPTY)
}

/// A CLOSE with flags.
pub(crate) fn close_with(flags: CloseFlags) -> Call<'static> {
    let request = close::Request { flags, file_id: RELATED };
    Call::new(Command::CLOSE, |w| request.encode(w))
}

/// Opens a name itself, not the target of a link, with `access` and the right to read
/// attributes.
pub(crate) fn look_at(access: AccessMask) -> Ask {
    let mut ask = Ask::existing(access | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
    ask.options |= CreateOptions::OPEN_REPARSE_POINT;
    ask
}

/// A compound that was answered with fewer responses than requests.
pub(crate) fn missing(operation: &'static str, url: String) -> Error {
    Error::new(Cause::Protocol("it did not answer every request"), operation, url)
}

/// The name that a compound is about, on the server where it was found.
#[derive(Clone, Copy)]
struct Target<'a> {
    /// The path in the share, with `\`.
    path: &'a str,
    /// The lease on the directory that the compound changes.
    directory: Option<LeaseKey>,
}

impl Share {
    /// Sends one request about the name `path` itself, opened with `access`, in one round trip.
    /// `also` are statuses of it that are no errors.
    pub(crate) async fn ask_of_name<'p>(
        &self,
        operation: &'static str,
        path: &str,
        access: AccessMask,
        also: &[Status],
        request: impl Fn() -> Call<'p>,
    ) -> Result<Message> {
        let mut ask = Ask::existing(access | AccessMask::SYNCHRONIZE);
        ask.options |= CreateOptions::OPEN_REPARSE_POINT;
        let calls = || vec![request(), close_call()];
        // MS-SMB2 3.3.5.2.10: a late copy of a change could undo a later change, so a change is not
        // repeated.
        let is_change = CHANGES.contains(&operation);
        let replay = if is_change { Replay::Settled } else { Replay::Idempotent };
        let answers = self.chain(operation, path, replay, &ask, also, calls).await?;
        let answer = answers.messages.into_iter().nth(1);
        answer.ok_or_else(|| missing(operation, self.url(path)))
    }

    /// Sends a CREATE and the requests after it as one compound, on whatever server the
    /// path lies. The first error is the operation's; `also` are statuses of the requests
    /// after the CREATE that are no errors. With [`Replay::Once`] `also` is empty, and so may be
    /// the answers.
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
        let ask = &self.at_its_time(ask.clone(), operation).during(operation, &url)?;
        let mut at = self.located(path).await?;
        loop {
            at.check(ask, operation, &url)?;
            let attempts = at.share.attempts(replay, operation, &url).or_at(at.others.as_ref());
            let target = Target { path: &at.path, directory: self.directory };
            match at.share.chain_here(attempts, target, &at.adapt(ask), also, &calls).await {
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
        Target { path, directory }: Target<'_>,
        ask: &Ask,
        also: &[Status],
        calls: &impl Fn() -> Vec<Call<'p>>,
    ) -> Result<Vec<Message>> {
        loop {
            let (live, bound) = attempts.next().await?;
            let posix = self.is_posix_in(&live);
            let name = self.named(path, bound, posix);
            let lease = match (&ask.shared, directory) {
                (Some(own), _) if !ask.lease.is_empty() => lease_context(&live, own, ask.lease),
                (_, Some(key)) => {
                    let ambient = &*self.session().options().ambient;
                    parent_context(&live, key, ambient).during("open", path)?
                }
                _ => None,
            };
            let make = |contexts: &[CreateContext<'_>]| {
                let contexts: Vec<_> = contexts.iter().chain(&lease).copied().collect();
                let mut all = vec![ask.call(&live, &name, oplock_of(&contexts), &contexts, posix)];
                all.extend(calls());
                if let Some(first) = all.first_mut() {
                    first.tree_id = bound.tree_id;
                }
                all
            };
            let outcome = match live.channel() {
                _ if attempts.is_numbered() && live.is_wide => {
                    let make = |id| make(&[CreateContext::Operation(id)]);
                    live.numbered_chain(bound, attempts.is_once(), make).await
                }
                Some(channel) => live.chain(&channel, make(&[]), bound.seal).await,
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
}
