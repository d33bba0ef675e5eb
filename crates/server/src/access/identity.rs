//! Identities of users who are logged on.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use frevo_store::security::Token;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::eq_ignore_case;

use crate::access::host_users::OnHost;

/// The user who is logged on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Account name as stored.
    pub user: String,
    /// Domain that the client named.
    pub domain: String,
    /// Workstation that the client named.
    pub workstation: String,
    /// The token of access checks.
    pub token: Arc<Token>,
    /// Groups that shares' rules may name, in lower case.
    pub groups: Arc<[String]>,
    /// The user of the host, where a share needs one.
    pub host: OnHost,
    /// The group or the entry of `administrators` by which the user administers the server. None for
    /// other users.
    pub administers_by: Option<Arc<str>>,
    /// True for an account of this server: its sessions end when it is removed.
    pub is_local: bool,
    /// True for a guest: Session.IsGuest. It has no account, so it is nobody too.
    pub is_guest: bool,
}

/// The identity of a session, as it is now: authentication anew changes it for
/// everything that is open.
pub(crate) type SharedIdentity = Arc<ArcSwapOption<Identity>>;

impl Identity {
    /// Returns the identity of a client that has not logged on.
    pub fn nobody() -> Self {
        Self {
            user: String::new(),
            domain: String::new(),
            workstation: String::new(),
            token: Arc::new(Token::nobody()),
            groups: Arc::default(),
            host: OnHost::Unknown,
            administers_by: None,
            is_local: false,
            is_guest: false,
        }
    }

    /// The name that people are shown: a guest has none of its own.
    pub fn shown(&self) -> &str {
        if self.is_guest { "(guest)" } else { &self.user }
    }

    /// True when both are of one account.
    pub fn is_same_user(&self, other: &Self) -> bool {
        eq_ignore_case(&self.user, &other.user)
    }

    /// The SID of a user of a domain. None for an account of this server, and for nobody.
    pub fn domain_sid(&self) -> Option<&Sid> {
        (!self.is_local && !self.is_nobody()).then(|| self.token.user())
    }

    /// Session.IsAnonymous
    pub fn is_nobody(&self) -> bool {
        self.user.is_empty()
    }
}
