//! A client all of whose messages are signed, or sealed, with one algorithm.

use frevo_crypto::{Cipher, SigningAlgorithm};

use crate::client::draft::pack;
use crate::client::*;

/// An algorithm of the connection, and the way to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum By {
    Sign(SigningAlgorithm),
    Seal(Cipher),
}

impl By {
    pub(crate) fn offer(self) -> Offer {
        match self {
            Self::Sign(algorithm) => Offer { signing: vec![algorithm.id()], ..Offer::default() },
            Self::Seal(cipher) => Offer { ciphers: vec![cipher.id()], ..Offer::default() },
        }
    }

    pub(crate) fn via<'a>(self, mount: &'a Mount) -> Via<'a> {
        match self {
            Self::Sign(_) => Via::Signed(&mount.logon),
            Self::Seal(_) => Via::Sealed(&mount.logon),
        }
    }
}

/// A client with an open file.
pub(crate) struct Protected {
    pub(crate) peer: Peer,
    pub(crate) mount: Mount,
    pub(crate) file: FileId,
    by: By,
}

impl Protected {
    pub(crate) async fn open(world: &World, by: By) -> Self {
        let (mut peer, mount) = world.session("ann", &by.offer()).await;
        let file = peer.open_file(&mount, &Want::file("data")).await;
        Self { peer, mount, file, by }
    }

    /// Returns a request as a frame, numbered and protected.
    pub(crate) fn frame(&mut self, draft: Draft) -> Vec<u8> {
        let mut draft = self.mount.put(draft);
        self.peer.stamp(&mut draft);
        self.packed(&[draft])
    }

    /// Returns numbered requests as one frame, protected.
    pub(crate) fn packed(&self, drafts: &[Draft]) -> Vec<u8> {
        pack(drafts, self.by.via(&self.mount))
    }

    /// The statuses of the next replies in their order; fewer if the connection ends.
    pub(crate) async fn statuses(&mut self, count: usize) -> Vec<Status> {
        let mut statuses = Vec::new();
        while statuses.len() < count {
            let Some(replies) = self.peer.replies().await else { break };
            statuses.extend(replies.iter().map(Reply::status));
        }
        statuses
    }
}
