//! Credits of both directions: MS-SMBD 3.1.5.9.

use super::Disconnect;

/// Connection.SendCredits: messages that the peer has room for.
#[derive(Debug, Default)]
pub(super) struct SendCredits(u16);

impl SendCredits {
    pub(super) fn available(&self) -> u16 {
        self.0
    }

    /// True if one credit is left, which is kept for a message that grants credits.
    pub(super) fn is_last(&self) -> bool {
        self.0 == 1
    }

    /// A peer that grants more than a counter holds has granted enough.
    pub(super) fn add(&mut self, granted: u16) {
        self.0 = self.0.saturating_add(granted);
    }

    pub(super) fn take(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}

/// Receives that are posted for the peer's messages, and the credits for them.
#[derive(Debug)]
pub(super) struct ReceiveCredits {
    /// Connection.ReceiveCreditMax
    max: u16,
    /// Connection.ReceiveCreditTarget
    target: u16,
    /// Connection.ReceiveCredits: the posted receives.
    posted: u16,
    /// Those of them that the peer does not know of yet.
    ungranted: u16,
    /// The receive for the negotiation message was posted; it is no credit.
    first_posted: bool,
}

impl ReceiveCredits {
    pub(super) fn new(max: u16) -> Self {
        Self { max: max.max(1), target: 0, posted: 0, ungranted: 0, first_posted: false }
    }

    pub(super) fn set_max(&mut self, max: u16) {
        self.max = max.max(1);
    }

    pub(super) fn set_target(&mut self, target: u16) {
        self.target = target;
    }

    /// The number of credits that the peer should hold.
    fn goal(&self) -> u16 {
        self.target.min(self.max).max(1)
    }

    pub(super) fn wanted_first(&self) -> u16 {
        u16::from(!self.first_posted)
    }

    /// Receives to post now. With `must_grant` one more than the goal is posted, if none is left to
    /// grant: the last send credit can be used only with a grant.
    pub(super) fn wanted(&self, must_grant: bool) -> u16 {
        let missing = self.goal().saturating_sub(self.posted);
        if missing == 0 && must_grant && self.ungranted == 0 { 1 } else { missing }
    }

    pub(super) fn posted(&mut self, count: u16, is_established: bool) {
        if is_established {
            self.posted = self.posted.saturating_add(count);
            self.ungranted = self.ungranted.saturating_add(count);
        } else {
            self.first_posted = true;
        }
    }

    pub(super) fn posted_count(&self) -> u16 {
        self.posted
    }

    /// Counts a received message.
    ///
    /// # Errors
    /// The peer had no credit for it.
    pub(super) fn received(&mut self) -> Result<(), Disconnect> {
        if self.posted == self.ungranted {
            return Err(Disconnect::Credits);
        }
        self.posted = self.posted.saturating_sub(1);
        Ok(())
    }

    pub(super) fn ungranted(&self) -> u16 {
        self.ungranted
    }

    /// Notes that the peer has been told of all posted receives.
    pub(super) fn grant(&mut self) {
        self.ungranted = 0;
    }

    /// True if the peer should get credits by a message of their own: it holds fewer than half.
    ///
    /// Deviation: MS-SMBD 3.1.5.8 answers each message with the credit that it took, and the peer
    /// would answer that one. With half of the credits left a peer waits for none.
    pub(super) fn must_grant(&self) -> bool {
        let held = self.posted.saturating_sub(self.ungranted);
        self.ungranted > 0 && held < self.goal().div_ceil(2)
    }
}
