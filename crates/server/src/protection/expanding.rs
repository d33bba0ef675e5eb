//! Compressed requests, which are expanded before their turn: MS-SMB2 3.3.5.2.1.2.
//!
//! On a connection that has negotiated compression a sealed frame is decrypted when it comes, to see if its
//! message is compressed. What the headers of a compressed message say is checked first; then its memory is
//! charged to the account; then it is expanded, here or by another thread. The frame that takes its place is
//! the one that the client would have sent without compression, and all that follows treats it so.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_crypto::Sender;
use frevo_net::buffer::{Buf, HEADROOM};
use frevo_proto::protection::{
    Algorithm, Check, Compression, Expandable, Expanding, Form, Incoming, Proof, Received, Work,
};

use super::checked::{Checked, LinedUp};
use super::circumstances::{Company, Keyring};
use super::replies::LOST;
use super::row;
use super::signing::check_of;
use crate::base::pools::crypto_threads::CryptoSite;
use crate::objects::channel::Channel;
use crate::objects::ledger::{Backlog, Expanded, Holder};
use crate::objects::refusal::Doom;
use crate::objects::server::ServerState;

/// The end of a request that waited for memory when its connection ended.
const ENDED: Doom = Doom::Late("a compressed request that waited for memory");

/// A compressed message where none may come: the frame is not looked at.
const TOO_EARLY: Doom = Doom::Rule("a compressed message before a user has logged on");

/// A frame whose compression was looked at.
pub(super) enum Looked {
    /// It is not compressed any more, or never was.
    Ready(LinedUp),
    /// It is being decrypted or expanded elsewhere, or waits for memory.
    Working(row::Work<Result<LinedUp, Doom>>),
    /// It ends the connection.
    Refused(Doom),
}

/// The means to expand the frames of a connection, also while its core does other work.
struct Expander {
    server: Arc<ServerState>,
    holder: Arc<Holder>,
    backlog: Arc<Backlog>,
    compression: Compression,
    max_payload: u32,
    company: Company,
}

/// Looks at a sealed frame that was decrypted together with others, with the key of `channel`.
pub(super) fn look_at_opened(
    keys: &Keyring<'_>,
    company: Company,
    compression: Compression,
    received: Received<Buf>,
    channel: Rc<Channel>,
) -> Looked {
    Expander::of(keys, company, compression).begin(received, Some(channel))
}

/// Looks at a frame of a connection with `compression`, and begins to expand it if it is compressed.
pub(super) fn look(
    keys: &Keyring<'_>,
    company: Company,
    compression: Compression,
    frame: Buf,
) -> Looked {
    let session_id = match Form::of(&frame) {
        Form::Compressed if !keys.may_check_ahead() => return Looked::Refused(TOO_EARLY),
        Form::Compressed => {
            let received = Received { frame, verdict: None };
            let expander = Expander::of(keys, company, compression);
            return expander.begin(received, keys.channels.first());
        }
        Form::Sealed(session_id) => session_id,
        Form::Message | Form::Unknown => return Looked::Ready(frame.into()),
    };
    // Without a channel, the frame is refused in its turn.
    let channel = keys.channel(session_id).filter(|_| keys.may_check_ahead());
    let check = channel.as_deref().and_then(|channel| check_of(channel, Proof::Seal));
    let (Some(channel), Some(check)) = (channel, check) else {
        return Looked::Ready(frame.into());
    };
    let expander = Expander::of(keys, company, compression);
    expander.unseal(Incoming::new([frame], check, Sender::Client), channel)
}

impl Expander {
    fn of(keys: &Keyring<'_>, company: Company, compression: Compression) -> Self {
        Self {
            server: Arc::clone(&keys.info.server),
            holder: keys.tabs.holder(),
            backlog: Arc::clone(&keys.info.backlog),
            compression,
            max_payload: keys.info.negotiated().map_or(0, |n| n.terms.max_payload()),
            company,
        }
    }

    /// The place elsewhere for work; None if it is done here.
    fn site_elsewhere(&self, bytes: usize, algorithm: Option<Algorithm>) -> Option<CryptoSite> {
        let threads = self.server.crypto_threads();
        let is_alone = || self.company.is_alone();
        let site = threads.site(&*self.server.ambient, bytes, || algorithm, is_alone);
        matches!(site, CryptoSite::Thread | CryptoSite::After(_)).then_some(site)
    }

    /// Decrypts a frame of `channel`, and expands its message if that is compressed.
    fn unseal(self, work: Incoming<Buf>, channel: Rc<Channel>) -> Looked {
        let threads = self.server.crypto_threads();
        let Some(site) = self.site_elsewhere(work.bytes(), work.algorithm()) else {
            return match threads.run_here(work).pop() {
                Some(received) => self.begin(received, Some(channel)),
                None => Looked::Refused(LOST),
            };
        };
        let done = threads.hand_over(site, work);
        Looked::Working(Box::pin(async move {
            let received = done.await?.pop()?;
            match self.begin(received, Some(channel)) {
                Looked::Ready(lined_up) => Some(Ok(lined_up)),
                Looked::Working(work) => work.await,
                Looked::Refused(why) => Some(Err(why)),
            }
        }))
    }

    /// Expands a frame, which is decrypted if it was sealed. `channel` is that of its session, or the one
    /// whose signature it may have.
    fn begin(self, received: Received<Buf>, channel: Option<Rc<Channel>>) -> Looked {
        // A frame that no key opens is refused in its turn.
        let is_sealed = matches!(Form::of(&received.frame), Form::Sealed(_));
        let is_open =
            !is_sealed || received.verdict.and_then(|verdict| verdict.seal()) == Some(true);
        let found = match self.compression.look(&received.frame, self.max_payload) {
            _ if !is_open => None,
            Ok(found) => found,
            Err(why) => return Looked::Refused(why.into()),
        };
        let Some(found) = found else { return Looked::Ready(lined_up(received, channel, None)) };
        let saved = found.frame_len().saturating_sub(received.frame.len());
        self.server.saved_by_clients.fetch_add(saved as u64, Ordering::Relaxed);
        let site = self.site_elsewhere(found.effort(), found.algorithm());
        // Those that came before have their memory first.
        let charged = match self.backlog.has_compressed() {
            true => None,
            false => self.holder.try_expand(found.frame_len()),
        };
        let check = || channel.as_deref().and_then(|channel| check_of(channel, Proof::Signature));
        let check = check().filter(|_| !is_sealed && site.is_some());
        match (charged, site) {
            (Some(charged), None) => match self.expand_here(received, found) {
                Ok(received) => Looked::Ready(lined_up(received, channel, Some(charged))),
                Err(why) => Looked::Refused(why),
            },
            (charged, site) => Looked::Working(Box::pin(async move {
                Some(
                    self.expand(received, found, site, charged, check)
                        .await
                        .map(|(received, charged)| lined_up(received, channel, Some(charged))),
                )
            })),
        }
    }

    fn expand_here(
        &self,
        received: Received<Buf>,
        found: Expandable,
    ) -> Result<Received<Buf>, Doom> {
        let work: Expanding<Buf> = Expanding::new(received, found, room, Sender::Client);
        Ok(self.server.crypto_threads().run_here(work)?)
    }

    /// Waits for memory, and has a frame expanded at `site`, or here.
    async fn expand(
        &self,
        received: Received<Buf>,
        found: Expandable,
        site: Option<CryptoSite>,
        charged: Option<Expanded>,
        check: Option<Check>,
    ) -> Result<(Received<Buf>, Expanded), Doom> {
        let charged = match charged {
            Some(charged) => charged,
            None => self.holder.expand(&self.backlog, found.frame_len()).await.ok_or(ENDED)?,
        };
        let Some(site) = site else { return Ok((self.expand_here(received, found)?, charged)) };
        let work = Expanding::new(received, found, room, Sender::Client).then(check);
        let done = self.server.crypto_threads().hand_over(site, work);
        Ok((done.await.ok_or(LOST)??, charged))
    }
}

/// Makes the memory for an expanded frame.
fn room(bytes: usize) -> Buf {
    Buf::zeroed(HEADROOM, bytes)
}

/// A frame with its result, which was found with the key of `channel`.
fn lined_up(
    received: Received<Buf>,
    channel: Option<Rc<Channel>>,
    charged: Option<Expanded>,
) -> LinedUp {
    let Received { mut frame, verdict } = received;
    if charged.is_some() && planted!(RequestCut) {
        clear_end(&mut frame);
    }
    let checked = channel.zip(verdict).map(|(channel, verdict)| Checked { channel, verdict });
    LinedUp { frame, checked, charged }
}

/// Clears the end of a long message: see `RequestCut`.
fn clear_end(frame: &mut [u8]) {
    if frame.len() > 2048
        && let Some(end) = frame.last_chunk_mut::<8>()
    {
        *end = [0; 8];
    }
}
