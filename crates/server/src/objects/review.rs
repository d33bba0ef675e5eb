//! The end of what a changed configuration no longer allows: sessions of accounts that were removed,
//! disabled or got another password, and tree connects that the rules of their share refuse now, or
//! allow less than when they were made.

use std::sync::Arc;

use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::eq_ignore_case;
use serde::Serialize;

use crate::access::access_rules::{Caller, Verdict};
use crate::access::administrators::Decided;
use crate::audit::{Event, Kind};
use crate::base::panics;
use crate::objects::server::{ServerState, SharedAccounts};
use crate::objects::session::{Identity, Session, State};
use crate::objects::settings::Settings;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::{Share, Shares};

/// The reason for which a reload ends a session.
const ACCOUNT_CHANGED: &str =
    "the account was removed or disabled, has ended or got another password";

/// The number of objects that a reload ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reviewed {
    /// Sessions.
    pub sessions: usize,
    /// Tree connects that ended without their session.
    pub tree_connects: usize,
}

impl ServerState {
    /// Takes a new configuration. New connections, tree connects and logons see it; sessions and
    /// tree connects that it no longer allows end, all others go on.
    pub fn reload(
        self: &Arc<Self>,
        settings: Settings,
        shares: &Shares,
        accounts: SharedAccounts,
    ) -> Reviewed {
        let before = self.replace(settings, shares, accounts);
        self.review_sessions(&before)
    }

    /// Reviews the open sessions whenever the SIDs of names in rules have changed: those that a reload
    /// has asked for come after it, and a controller may have been away. Never ends.
    pub async fn follow_names(self: Arc<Self>) {
        loop {
            self.domain_names.changed().await;
            let accounts = self.accounts();
            let Reviewed { tree_connects, .. } = self.review_sessions(&accounts);
            if tree_connects > 0 {
                tracing::info!(target: "frevo::tree", tree_connects,
                    "tree connects ended, for names in the rules have other SIDs now");
            }
        }
    }

    /// Reviews the sessions of an account about which its directory has told something new. With
    /// `has_ended` the account is gone, or has another password.
    pub(crate) fn review_account(self: &Arc<Self>, name: &str, has_ended: bool) {
        let accounts = self.accounts();
        let _turn = self.review_turn.lock();
        for session in self.sessions() {
            let Some(identity) = session.identity() else { continue };
            if !identity.is_local || !eq_ignore_case(&identity.user, name) {
                continue;
            }
            if has_ended || !self.may_stay(&identity, &accounts) {
                panics::contained(|| self.dismiss_session(&session, ACCOUNT_CHANGED));
                continue;
            }
            let identity = self.renew(&session, identity);
            self.review_trees(&session, &identity);
        }
        self.rates.pick_again();
    }

    /// Ends what the present configuration does not allow. `before` are the accounts of the one
    /// before. Users whose groups changed have the new ones from now on.
    fn review_sessions(self: &Arc<Self>, before: &SharedAccounts) -> Reviewed {
        let _turn = self.review_turn.lock();
        let mut reviewed = Reviewed::default();
        for session in self.sessions() {
            let Some(identity) = session.identity() else { continue };
            if identity.is_local && !self.may_stay(&identity, before) {
                panics::contained(|| self.dismiss_session(&session, ACCOUNT_CHANGED));
                reviewed.sessions += 1;
                continue;
            }
            let identity = self.renew(&session, identity);
            reviewed.tree_connects += self.review_trees(&session, &identity);
        }
        self.rates.pick_again();
        reviewed
    }

    /// True for an account that exists, is enabled, has not ended and has the password that it had.
    /// Hours of the week count for logons alone.
    pub(crate) fn may_stay(&self, identity: &Identity, before: &SharedAccounts) -> bool {
        let (accounts, name) = (self.accounts(), &*identity.user);
        let now = self.unix_seconds();
        accounts.membership(name).is_some_and(|known| !known.rules.is_over(now))
            && accounts.password_hash(name) == before.password_hash(name)
    }

    /// Returns the time in seconds from 1970.
    pub(crate) fn unix_seconds(&self) -> u64 {
        u64::try_from(self.ambient.now().to_unix().0).unwrap_or(0)
    }

    /// Gives a session the present groups of its user, and the rights of an administrator or of
    /// another user.
    pub(crate) fn renew(&self, session: &Session, identity: Arc<Identity>) -> Arc<Identity> {
        let Decided { token, ground } = self.decide_again(&identity);
        let groups = match identity.is_local {
            true => self.groups(&identity.user, identity.host.user()),
            false => Arc::clone(&identity.groups),
        };
        let own = Identity::clone(&identity);
        let renewed = Identity { token, groups, administers_by: ground, ..own };
        if renewed == *identity {
            return identity;
        }
        session.renew_identity(renewed.clone());
        Arc::new(renewed)
    }

    /// Ends the tree connects of a session that allow more than the present rules do. Returns their
    /// number.
    fn review_trees(self: &Arc<Self>, session: &Arc<Session>, identity: &Identity) -> usize {
        let is_live = matches!(session.state(), State::Valid | State::Expired);
        if !is_live || (identity.is_nobody() && !identity.is_guest) {
            return 0;
        }
        let mut ended = 0;
        for tree in session.trees() {
            let Some(why) = self.excess(&tree, identity) else { continue };
            if panics::contained(|| self.end_tree(session, &tree)) == Some(true) {
                ended += 1;
                self.tell_end(&tree, identity, why);
            }
        }
        ended
    }

    /// The reason why a tree connect must end. None for one that may go on, also for one of a share
    /// that is not served any more: its users go on with it until they disconnect, but for snapshots.
    pub(crate) fn excess(&self, tree: &TreeConnect, identity: &Identity) -> Option<&'static str> {
        let shares = self.shares();
        let Some(share) = shares.find_for(&tree.share.name, &identity.user) else {
            let gone =
                "the snapshot is not served any more, for its share is gone or has another folder";
            return tree.share.is_exposed.then_some(gone);
        };
        let address = tree.source()?.peer.ip();
        let of_guests = share.as_guests_have_it(address);
        let share = match (&of_guests, identity.is_guest && !tree.share.is_pipes()) {
            (Some(of_guests), true) => of_guests,
            (None, true) => return Some("guests may not use the share any more"),
            (_, false) => share,
        };
        let domain_sids = self.domain_names.sids();
        let caller = Caller {
            user: &identity.user,
            groups: &identity.groups,
            groups_are_known: identity.host.is_known(),
            token: &identity.token,
            domain_sids: &domain_sids,
            address,
        };
        let read_only = match share.rules.judge(&caller, share.read_only) {
            Verdict::Refused(why) => return Some(why),
            Verdict::Reads => true,
            Verdict::Writes => false,
        };
        let allowed = Share { read_only, ..Share::clone(share) }.maximal_access()
            & share.rules.granted(&caller);
        if tree.maximal_access & allowed != tree.maximal_access {
            return Some("the share allows the user less than before");
        }
        let is_stricter = (share.encrypt && !tree.share.encrypt)
            || (share.hide_unreadable && !tree.share.hide_unreadable)
            || share.scanning.as_deref() != tree.share.scanning.as_deref()
            || share.write_once.as_deref() != tree.share.write_once.as_deref()
            || share.brake.as_deref() != tree.share.brake.as_deref()
            || !share.run_as.is_same(&tree.share.run_as);
        is_stricter.then_some("the share is used in another way than before")
    }

    /// Ends a tree connect as TREE_DISCONNECT does. False when somebody else ended it before.
    pub(crate) fn end_tree(self: &Arc<Self>, session: &Session, tree: &TreeConnect) -> bool {
        if session.remove_tree(tree, |open| self.close_open(open)).is_err() {
            return false;
        }
        tree.under_way.end();
        tree.under_way.give_up();
        self.start_scavenger();
        true
    }

    fn tell_end(&self, tree: &TreeConnect, identity: &Identity, why: &'static str) {
        tracing::info!(target: "frevo::tree", user = %identity.user, share = %tree.share.name,
            "tree connect ended, for the configuration has changed: {why}");
        self.audit.emit(|| {
            let event = Event::new(Kind::Disconnect).by(tree.identity());
            let event = match tree.source() {
                Some(source) => event.from(source),
                None => event,
            };
            event.with("share", &*tree.share.name).with("reason", why)
        });
    }
}

/// True if an Open with these rights may go on through a tree connect, whose share may allow less
/// than the one that it was opened through.
pub(crate) fn is_within(granted: AccessMask, tree: &TreeConnect) -> bool {
    (granted & AccessMask::FILE_ALL).without(tree.maximal_access).is_empty()
}
