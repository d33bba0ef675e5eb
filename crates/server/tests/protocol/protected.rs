//! A client all of whose messages are signed, or sealed, with one algorithm.

use frevo_crypto::{Cipher, SigningAlgorithm};

use crate::client::draft::pack;
use crate::client::files::write_draft;
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

/// WRITEs to one file, one behind the other: all bytes of number `n` are `n + 1`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writes {
    pub(crate) count: usize,
    /// Bytes of each.
    pub(crate) len: usize,
}

impl Writes {
    fn data(self, at: usize) -> Vec<u8> {
        vec![u8::try_from(at + 1).unwrap(); self.len]
    }

    /// True if number `at` is in the file.
    pub(crate) fn is_in(self, content: &[u8], at: usize) -> bool {
        content.get(at * self.len..(at + 1) * self.len).is_some_and(|data| data == self.data(at))
    }

    /// Expects that the file contains those for which `is_expected` is true, and removes it.
    pub(crate) fn expect(self, world: &World, is_expected: impl Fn(usize) -> bool) {
        let content = world.content("data");
        for at in 0..self.count {
            assert_eq!(self.is_in(&content, at), is_expected(at), "{at} of {self:?}");
        }
        std::fs::remove_file(world.path("data")).unwrap();
    }
}

/// Makes a frame malformed: StructureSize of the SMB2 header, or Flags of the transform header, is
/// wrong.
pub(crate) fn malform(frame: &mut [u8], by: By) {
    match by {
        By::Sign(_) => frame[4] ^= 1,
        By::Seal(_) => frame[42] = 2,
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
        Self::open_with(world, by, &by.offer()).await
    }

    /// Opens it over a connection with these terms.
    pub(crate) async fn open_with(world: &World, by: By, offer: &Offer) -> Self {
        let (mut peer, mount) = world.session("ann", offer).await;
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

    /// Returns a WRITE, number `at` of these.
    pub(crate) fn write(&self, writes: Writes, at: usize) -> Draft {
        write_draft(self.file, (at * writes.len) as u64, &writes.data(at))
    }

    /// Returns the WRITEs as frames.
    pub(crate) fn frames_of(&mut self, writes: Writes) -> Vec<Vec<u8>> {
        let frame = |at| {
            let draft = self.write(writes, at);
            self.frame(draft)
        };
        (0..writes.count).map(frame).collect()
    }

    /// Expects that all WRITEs but number `wrong` are carried out, and that one is refused for its
    /// signature: MS-SMB2 3.3.5.2.4.
    pub(crate) async fn expect_refused(mut self, world: &World, writes: Writes, wrong: usize) {
        let mut expected = vec![Status::SUCCESS; writes.count];
        expected[wrong] = Status::ACCESS_DENIED;
        assert_eq!(self.statuses(writes.count).await, expected, "{wrong} of {:?}", self.by);
        self.peer.close(&self.mount, self.file).await;
        writes.expect(world, |at| at != wrong);
    }

    /// Expects that the connection ends at WRITE number `end`: those before it are carried out, and
    /// none behind it.
    pub(crate) async fn expect_end_at(mut self, world: &World, writes: Writes, end: usize) {
        let statuses = self.statuses(writes.count).await;
        assert!(statuses.len() <= end, "{end} of {:?}: {statuses:?}", self.by);
        assert!(statuses.iter().all(|status| *status == Status::SUCCESS), "{statuses:?}");
        self.peer.expect_disconnect().await;
        writes.expect(world, |at| at < end);
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
