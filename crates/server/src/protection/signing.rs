//! Keys of replies: MS-SMB2 3.1.4.1 and 3.1.4.3.

use std::rc::Rc;
use std::sync::Arc;

use frevo_crypto::{SealingKey, SigningKey};
use frevo_proto::protection::{Check, Guard, Proof, Signature, Signatures};

use crate::objects::channel::Channel;
use crate::objects::refusal::Doom;
use crate::objects::session::Session;

/// The protection of a frame, with keys that live at least as long as the call.
pub(super) type KeyedGuard<'a> = Guard<&'a Arc<SigningKey>, &'a Arc<SealingKey>>;

/// The protection of a reply, by the owners of the keys.
#[derive(Clone, Copy)]
pub(crate) enum ReplyGuard<'a> {
    /// It is neither signed nor encrypted.
    None,
    /// Each message is signed by its signer, if it has one.
    Signed(&'a [Part]),
    /// It is encrypted with the key of this channel's session.
    Sealed(&'a Channel),
}

impl<'a> ReplyGuard<'a> {
    /// The guard of a frame of `len` bytes, with its keys.
    ///
    /// # Errors
    /// The session has no key.
    pub(super) fn keyed(self, len: usize) -> Result<KeyedGuard<'a>, Doom> {
        match self {
            Self::None => Ok(Guard::None),
            Self::Signed(parts) => {
                let mut all = Signatures::with_capacity(parts.len());
                all.extend(signatures(parts, len));
                Ok(if all.is_empty() { Guard::None } else { Guard::Signed(all) })
            }
            // MS-SMB2 3.1.4.3
            Self::Sealed(channel) => {
                let key = channel.sealing_key();
                let key = key.ok_or(Doom::Rule("the session has no key for sealing"))?;
                Ok(Guard::Sealed { key, session_id: channel.session.id })
            }
        }
    }
}

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

/// The messages of a frame of `len` bytes that are signed.
pub(super) fn signatures(
    parts: &[Part],
    len: usize,
) -> impl Iterator<Item = Signature<&Arc<SigningKey>>> {
    parts.iter().enumerate().filter_map(move |(at, part)| {
        let end = parts.get(at + 1).map_or(len, |next| next.start);
        let key = part.signer.as_ref().and_then(Signer::key)?;
        Some(Signature { range: part.start..end, key })
    })
}

/// The check of a frame that proves its sender so, with the key of `channel`; none if there is no key.
pub(super) fn check_of(channel: &Channel, proof: Proof) -> Option<Check> {
    Some(match proof {
        Proof::Signature => Check::Signature(Arc::clone(channel.signing_key()?)),
        Proof::Seal => {
            let key = Arc::clone(channel.opening_key()?);
            Check::Seal { key, session_id: channel.session.id }
        }
    })
}
