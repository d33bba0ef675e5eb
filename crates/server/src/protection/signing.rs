//! Keys of replies: MS-SMB2 3.1.4.1 and 3.1.4.3.

use std::rc::Rc;
use std::sync::Arc;

use frevo_crypto::{SealingKey, SigningKey};
use frevo_proto::protection::{Check, Guard, Proof, Signature, Signatures};

use crate::connection::Channel;
use crate::objects::refusal::Doom;
use crate::objects::session::Session;

/// The protection of a frame, with keys that live at least as long as the call.
pub(crate) type ReplyGuard<'a> = Guard<&'a Arc<SigningKey>, &'a Arc<SealingKey>>;

/// The owner of the key that signs a response.
pub(crate) enum Signer {
    /// Channel.SigningKey
    Channel(Rc<Channel>),
    /// Session.SigningKey: while a channel is being bound.
    Session(Arc<Session>),
}

impl Signer {
    fn key(&self) -> Option<&Arc<SigningKey>> {
        match self {
            Self::Channel(channel) => channel.signing_key(),
            Self::Session(session) => session.security().map(|s| &s.signing_key),
        }
    }
}

/// Where a response lies in the frame and who signs it.
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) signer: Option<Signer>,
}

/// The guard of a frame of `len` bytes whose messages have these signers.
pub(crate) fn signed(parts: &[Part], len: usize) -> ReplyGuard<'_> {
    let mut all = Signatures::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let end = parts.get(at + 1).map_or(len, |next| next.start);
        if let Some(key) = part.signer.as_ref().and_then(Signer::key) {
            all.push(Signature { range: part.start..end, key });
        }
    }
    if all.is_empty() { Guard::None } else { Guard::Signed(all) }
}

impl Channel {
    /// The check of a frame that proves its sender so; none if there is no key.
    pub(crate) fn check(&self, proof: Proof) -> Option<Check> {
        Some(match proof {
            Proof::Signature => Check::Signature(Arc::clone(self.signing_key()?)),
            Proof::Seal => {
                let key = Arc::clone(self.opening_key()?);
                Check::Seal { key, session_id: self.session.id }
            }
        })
    }

    /// The guard of a frame that is sealed: MS-SMB2 3.1.4.3.
    ///
    /// # Errors
    /// The session has no key.
    pub(crate) fn seal(&self) -> Result<ReplyGuard<'_>, Doom> {
        let key = self.sealing_key();
        let key = key.ok_or(Doom::Rule("the session has no key for sealing"))?;
        Ok(Guard::Sealed { key, session_id: self.session.id })
    }
}
