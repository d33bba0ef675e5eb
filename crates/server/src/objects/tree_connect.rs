//! Tree connects: MS-SMB2 3.3.1.9.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_net::file_io::Gate;
use frevo_store::order::model::step;
use frevo_store::security::Token;
use frevo_store::state::Epoch;
use frevo_wire::dtyp::AccessMask;
use parking_lot::Mutex;

use crate::access::identity::{Identity, SharedIdentity};
use crate::audit::Source;
use crate::base::under_way::UnderWay;
use crate::objects::ledger::Charge;
use crate::objects::rates::Picked;
use crate::objects::refusal::{ANOTHER_SERVES, Doom, ENDS_WITH_OTHERS};
use crate::shares::brake::Braked;
use crate::shares::life::Change;
use crate::shares::share::{Share, Use};

/// One use of a share by a session. Immutable but for its end.
#[derive(Debug)]
pub struct TreeConnect {
    /// TreeConnect.TreeId
    pub id: u32,
    /// TreeConnect.Share
    pub share: Arc<Share>,
    /// TreeConnect.MaximalAccess
    pub maximal_access: AccessMask,
    /// The identity of its user.
    identity: SharedIdentity,
    /// The client is macOS: it has asked what macOS asks.
    pub apple: AtomicBool,
    /// The client and this server have agreed on READ_DIR_ATTR.
    pub apple_entries: AtomicBool,
    disconnected: AtomicBool,
    /// Its part of Share.CurrentUses, until it ends.
    share_use: Mutex<Option<Use>>,
    /// None for one that was restored or is a test's.
    charge: Option<Charge>,
    /// The session, and the connection that connected it.
    source: Option<Source>,
    /// Its operations, on all channels.
    pub under_way: Arc<UnderWay>,
    /// The limits of rate for its requests.
    pub(crate) rates: Picked,
    /// Its user as the brake of the share has it. None without a brake, or for one that is not looked at.
    pub(crate) braked: Option<Arc<Braked>>,
    /// The epoch of the share when it was connected.
    epoch: Epoch,
}

impl TreeConnect {
    /// A new use of `share`, by nobody yet.
    pub fn new(id: u32, share: Arc<Share>, maximal_access: AccessMask) -> Self {
        let identity = SharedIdentity::default();
        let [apple, apple_entries, disconnected] = [const { AtomicBool::new(false) }; 3];
        // The end of a connection removes the tree connect before its requests have ended, and another
        // server must not have the share before that.
        let whole = share.clustered.then(|| Arc::clone(share.life.requests()));
        let under_way = Arc::new(UnderWay::within(whole));
        let epoch = share.life.epoch();
        Self {
            id,
            share,
            maximal_access,
            identity,
            apple,
            apple_entries,
            disconnected,
            share_use: Mutex::new(None),
            charge: None,
            source: None,
            under_way,
            rates: Picked::default(),
            braked: None,
            epoch,
        }
    }

    /// The epoch of the share when it was connected.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// True while requests that have begun may change files and be answered: this server has owned
    /// the share since it was connected.
    pub fn is_served(&self) -> bool {
        self.share.life.serves_since(self.epoch)
    }

    /// Returns the question if files of the share may be changed in this use of it, for a share under a
    /// limit.
    pub fn gate(&self) -> Option<Gate> {
        self.share.life.gate(self.epoch)
    }

    /// Counts the end of a use of a share of a cluster, which another server must not have before that.
    pub(crate) fn begin_change(&self) -> Option<Change> {
        self.share.clustered.then(|| self.share.life.begin_change())
    }

    /// True while requests may begin.
    pub fn takes_requests(&self) -> bool {
        self.share.life.takes_new_since(self.epoch)
    }

    /// The end of requests that do not begin any more, or are not answered. None of them has a response.
    ///
    /// MS-SMB2 3.2.5.1.8: a response, STATUS_CANCELLED too, ends the request at the client, which gives up
    /// the lock that it waits for. 3.2.7.1: a client whose connection ends takes its persistent Opens up
    /// again, and repeats what was not answered.
    pub(crate) fn end_of_requests(&self) -> Doom {
        // At a limit that is moved a moment later the share stays here, and nobody else ends the connection.
        let is_given_away = self.share.life.is_given_away_since(self.epoch);
        if is_given_away { ENDS_WITH_OTHERS } else { ANOTHER_SERVES }
    }

    /// Charges the tree connect to a holder.
    pub fn charged(mut self, charge: Charge) -> Self {
        self.charge = Some(charge);
        self
    }

    /// Counts as a use of its share until it ends.
    pub fn counted(self, share_use: Use) -> Self {
        *self.share_use.lock() = Some(share_use);
        self
    }

    /// Sets the user of the tree connect: that of a session.
    pub fn used_by(mut self, identity: SharedIdentity) -> Self {
        self.identity = identity;
        self
    }

    /// Sets its user as the brake of the share has it.
    pub(crate) fn braked(mut self, braked: Option<Arc<Braked>>) -> Self {
        self.braked = braked;
        self
    }

    /// Sets the session and the connection that connected it.
    pub const fn connected_from(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }

    /// The session, and the connection that connected it.
    pub const fn source(&self) -> Option<Source> {
        self.source
    }

    /// The account that uses it.
    pub fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.load_full()
    }

    /// The token of access checks now; a session without an account has the rights of
    /// everyone.
    pub fn token(&self) -> Arc<Token> {
        match &*self.identity.load() {
            Some(identity) => Arc::clone(&identity.token),
            None => Arc::new(Token::nobody()),
        }
    }

    /// The token of the user whose rights decide on what is listed, on a share that hides what cannot
    /// be read.
    pub fn viewer(&self) -> Option<Arc<Token>> {
        self.share.hide_unreadable.then(|| self.token())
    }

    /// Marks the end. True for the one caller that ended it: of two
    /// parallel disconnects exactly one succeeds.
    pub fn disconnect(&self) -> bool {
        drop(self.share_use.lock().take());
        step();
        !self.disconnected.swap(true, Ordering::AcqRel)
    }

    /// True once it has ended.
    pub fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }
}
