//! Answers to requests for referrals: MS-DFSC 3.2.5.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::Status;
use frevo_wire::command::ioctl::dfs::{Referral, ReferralHeaderFlags as Flags, ReferralResponse};
use frevo_wire::fscc::eq_ignore_case;

use crate::key::components;
use crate::limits::LINK_TTL_S;
use crate::link::{Link, State, Target};
use crate::namespace::Namespace;
use crate::namespaces::Namespaces;
use crate::ordering::{Asker, Placed, ordered};
use crate::tree::Resolution;

/// A path of a request, with the place where each component ends.
struct Asked<'a> {
    path: &'a str,
    /// Component, and the offset in `path` behind it.
    parts: Vec<(&'a str, usize)>,
}

impl<'a> Asked<'a> {
    /// Reads `\server\namespace\folder`. One separator at the end is accepted, and a second one at the
    /// beginning, which some clients send (MS-DFSC 2.2.1 has exactly one).
    fn read(path: &'a str) -> Result<Self, Status> {
        let malformed = Status::INVALID_PARAMETER;
        let bare = path.trim_start_matches('\\');
        let mut at = path.len().saturating_sub(bare.len());
        if at > 2 {
            return Err(malformed);
        }
        let bare = bare.strip_suffix('\\').unwrap_or(bare);
        let mut parts = Vec::new();
        for part in bare.split('\\') {
            // MS-DFSC 2.2.1.3: a component has at least one character, and no NUL.
            if part.is_empty() || part.contains('\0') {
                return Err(malformed);
            }
            let end = at.saturating_add(part.len());
            parts.push((part, end));
            at = end.saturating_add(1);
        }
        Ok(Self { path, parts })
    }

    /// Returns the path as far as its first `count` components, as the client wrote it.
    fn prefix(&self, count: usize) -> &'a str {
        let end = self.parts.get(count.wrapping_sub(1)).map_or(0, |(_, end)| *end);
        self.path.get(..end).unwrap_or_default()
    }
}

impl Namespaces {
    /// Answers a request for a referral for `path`, `\server\namespace\folder`. The name of the server
    /// is not looked at: it is any by which the client has reached this server.
    ///
    /// # Errors
    /// - INVALID_PARAMETER for a path that asks for domains or for controllers of one, and for a
    ///   malformed path.
    /// - NOT_FOUND for SYSVOL and NETLOGON, and for a namespace that is not here.
    /// - DFS_UNAVAILABLE for a namespace or link that is offline, or whose targets are.
    pub fn referrals(&self, path: &str, asker: &Asker<'_>) -> Result<ReferralResponse, Status> {
        self.answer(path, None, asker)
    }

    /// As [`Self::referrals`], for a `path` that is `link`, or leads through it: the share of the namespace has
    /// that link, and the namespace none at a beginning of the path.
    ///
    /// # Errors
    /// As [`Self::referrals`].
    pub fn referrals_of(
        &self,
        path: &str,
        link: &Link,
        asker: &Asker<'_>,
    ) -> Result<ReferralResponse, Status> {
        self.answer(path, Some(link), asker)
    }

    fn answer(
        &self,
        path: &str,
        of_share: Option<&Link>,
        asker: &Asker<'_>,
    ) -> Result<ReferralResponse, Status> {
        // MS-DFSC 3.2.5.2: a server that is no controller fails a request for domains, whose path is
        // empty, and 3.2.5.3 one for controllers, which has one component.
        let asked = Asked::read(path)?;
        let [(server, _), (name, _), rest @ ..] = &*asked.parts else {
            return Err(Status::INVALID_PARAMETER);
        };
        let Some(namespace) = self.find(name) else {
            // MS-DFSC 3.2.5.4: a server that is no controller fails a request for SYSVOL. 3.2.5.5 has
            // the same status for a stand-alone namespace that is not here.
            return Err(Status::NOT_FOUND);
        };
        if namespace.state == State::Offline {
            return Err(Status::DFS_UNAVAILABLE);
        }
        let found = match namespace.tree_resolve(rest.iter().map(|(part, _)| *part)) {
            Resolution::Link { link, consumed } => Some((link, consumed)),
            Resolution::Folder | Resolution::Nothing => {
                of_share.map(|link| (link, components(link.path()).count()))
            }
        };
        match found {
            Some((link, consumed)) => {
                let prefix = asked.prefix(consumed.saturating_add(2));
                self.of_link(namespace, link, server, prefix, asker)
            }
            // MS-DFSC 3.2.5.5: a root referral, when no link is a prefix of the path.
            None => {
                let target = format!("\\{server}\\{}", namespace.name());
                Ok(of_root(namespace, target, asked.prefix(2)))
            }
        }
    }

    /// A link referral, for the part `prefix` of the path.
    fn of_link(
        &self,
        namespace: &Namespace,
        link: &Link,
        server: &str,
        prefix: &str,
        asker: &Asker<'_>,
    ) -> Result<ReferralResponse, Status> {
        if !link.is_online() {
            return Err(Status::DFS_UNAVAILABLE);
        }
        let ordering = link.ordering.unwrap_or(namespace.ordering);
        // MS-DFSC 3.1.5.4.5: an interlink has the bit ReferralServers and not StorageServers. A link to
        // another namespace of this server is one whatever the configuration says.
        let is_own = |target: &Target| {
            eq_ignore_case(target.server(), server) && self.find(target.share()).is_some()
        };
        let is_interlink = link.is_interlink || link.targets().iter().all(is_own);
        let mut flags = if is_interlink { Flags::REFERRAL_SERVERS } else { Flags::STORAGE_SERVERS };
        // MS-DFSC 3.2.5.5: for a link, failback is enabled by the link itself or by its root.
        if link.failback || namespace.failback {
            flags |= Flags::TARGET_FAILBACK;
        }
        let ttl_s = link.ttl_s.unwrap_or(LINK_TTL_S);
        let referral = |placed: Placed<'_>| Referral {
            // MS-DFSC 3.2.5.5: ServerType is 1 for root targets only. Those of an interlink are targets
            // of a link.
            is_root: false,
            time_to_live_s: ttl_s,
            path: prefix.to_owned(),
            target: placed.target.path().to_owned(),
            begins_set: placed.begins_set,
        };
        let referrals =
            ordered(link.targets(), ordering, asker).into_iter().map(referral).collect();
        Ok(ReferralResponse { path_consumed: consumed(prefix)?, flags, referrals })
    }
}

/// A root referral. The root's only target is this server, by the name that the client has used: it
/// leads there for certain.
fn of_root(namespace: &Namespace, target: String, prefix: &str) -> ReferralResponse {
    let mut flags = Flags::REFERRAL_SERVERS | Flags::STORAGE_SERVERS;
    if namespace.failback {
        flags |= Flags::TARGET_FAILBACK;
    }
    let referral = Referral {
        is_root: true,
        time_to_live_s: namespace.root_ttl_s(),
        path: prefix.to_owned(),
        target,
        begins_set: true,
    };
    let path_consumed = consumed(prefix).unwrap_or_default();
    ReferralResponse { path_consumed, flags, referrals: vec![referral] }
}

/// PathConsumed: bytes in UTF-16.
fn consumed(prefix: &str) -> Result<u16, Status> {
    let units = prefix.encode_utf16().count();
    u16::try_from(units.saturating_mul(2)).map_err(|_| Status::INVALID_PARAMETER)
}

#[cfg(test)]
mod tests;
