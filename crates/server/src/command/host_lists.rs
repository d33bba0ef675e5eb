//! The host's POSIX lists of files on shares with `run_as = "user"`: there the kernel decides too, so
//! an access list of a client must be on the disk in its terms.

use std::collections::HashMap;
use std::sync::Arc;

use frevo_store::security::Token;
use frevo_store::security::host::SET_GROUP_ID;
use frevo_store::security::posix_lists::{self, Identity, Nearest, Protected};
use frevo_store::vfs::Kind;
use frevo_store::{Node, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::{Ace, Acl, SecurityDescriptor, Sid};

use crate::access::host_ids::{Answer, Asked, could_have_number};
use crate::access::throttle::shortened;
use crate::command::request::Request;
use crate::objects::server::ServerState;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::impersonation;
use crate::shares::share::RunAs;

/// The users and groups of the host that the SIDs of access lists in a request stand for.
pub(in crate::command) struct Identities<'a> {
    rq: &'a Request<'a>,
    known: HashMap<Sid, Identity>,
    /// SIDs about which nobody has answered.
    unanswered: Vec<Sid>,
    has_waited: bool,
}

/// True for a share whose access lists the kernel must know.
pub(in crate::command) fn are_needed(tree: &TreeConnect) -> bool {
    matches!(tree.share.run_as, RunAs::User)
}

/// Looks up the SIDs of access lists, on a thread that may wait where some are not known.
///
/// # Errors
/// CANCELLED when the client cancels or has gone, USER_SESSION_DELETED without a session. Where the
/// host does not answer [`Identities::nearest`] says so.
pub(in crate::command) async fn identities<'a>(
    rq: &'a Request<'a>,
    lists: &[&SecurityDescriptor],
) -> Result<Identities<'a>, Status> {
    let server = rq.server();
    let has_domain_users = server.has_domain_users();
    let mut found = HashMap::new();
    let mut unknown = Vec::new();
    for sid in lists.iter().flat_map(|list| sids(list)) {
        if found.contains_key(sid) {
            continue;
        }
        let known = server.host_ids.known(sid, has_domain_users);
        found.insert(*sid, known.unwrap_or(Identity::Unknown));
        if known.is_none() {
            unknown.push(*sid);
        }
    }
    let mut unanswered = Vec::new();
    let has_waited = !unknown.is_empty();
    if has_waited {
        let (asked, sids) = (Arc::clone(server), unknown.clone());
        match rq.naming(move || ask(&asked, &sids)).await {
            Ok(answers) => {
                let open = answers.iter().filter(|answer| !answer.is_told());
                unanswered.extend(open.map(|answer| answer.sid));
                found.extend(answers.into_iter().map(|answer| (answer.sid, answer.identity)));
            }
            Err(Status::IO_TIMEOUT) => unanswered = unknown,
            Err(status) => return Err(status),
        }
    }
    Ok(Identities { rq, known: found, unanswered, has_waited })
}

fn ask(server: &ServerState, sids: &[Sid]) -> Vec<Answer> {
    // The generation is read before the configuration, so that answers from an older configuration
    // are not cached.
    let generation = server.host_ids.generation();
    let map = Arc::clone(&server.settings().id_map);
    server.with_principals(|known| {
        let (names, ambient) = (&server.domain_names, &*server.ambient);
        let has_domain_users = server.has_domain_users();
        let principals = *known;
        let asked = Asked { map: &map, names, principals, ambient, has_domain_users };
        server.host_ids.ask(sids, generation, &asked)
    })
}

fn sids(list: &SecurityDescriptor) -> impl Iterator<Item = &Sid> {
    let aces = list.dacl.iter().flat_map(|dacl| &dacl.aces);
    aces.filter_map(|ace| ace.sid()).chain(&list.owner)
}

impl<'a> Identities<'a> {
    /// True if others may have changed something meanwhile.
    pub(in crate::command) const fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns the host's lists nearest to a descriptor that a file gets. The user's own rights are
    /// those of its token.
    ///
    /// # Errors
    /// IO_TIMEOUT while nobody answers about a SID of the list: rights that it has would be left out,
    /// and rights that it is denied would be taken from all.
    pub(in crate::command) fn nearest(
        &self,
        node: &dyn Node,
        stat: &Stat,
        descriptor: &SecurityDescriptor,
        token: &Token,
    ) -> Result<Nearest, Status> {
        let is_open = |sid: &Sid| self.unanswered.contains(sid) && sid != token.user();
        if sids(descriptor).any(is_open) {
            return Err(Status::IO_TIMEOUT);
        }
        let uid = impersonation::actor_of(node).map(|actor| actor.uid());
        let object = Protected {
            uid: stat.uid,
            gid: stat.gid,
            is_directory: stat.kind == Kind::Directory,
            keeps_group: stat.kind == Kind::Directory && stat.mode & SET_GROUP_ID != 0,
            user: uid.map(|uid| (uid, token)),
        };
        Ok(posix_lists::nearest(descriptor, &object, &|sid| match uid {
            Some(uid) if sid == token.user() => Identity::User(uid),
            _ => self.known.get(sid).copied().unwrap_or(Identity::Unknown),
        }))
    }

    /// Checks that the host can give the rights that a client gives: not those of a user or group
    /// without a number. Entries that were there `before`, and those for groups that are built in, are
    /// taken. So are entries for a SID that nobody has, which have no effect: a copied file may have them of users who are gone.
    ///
    /// # Errors
    /// NONE_MAPPED, after a line in the log.
    pub(in crate::command) fn check(
        &self,
        path: &str,
        nearest: &Nearest,
        given: Option<&Acl>,
        before: Option<&Acl>,
    ) -> Result<(), Status> {
        let is_in = |list: Option<&Acl>, sid: &Sid| {
            list.is_some_and(|list| list.aces.iter().any(|ace| ace.sid() == Some(sid)))
        };
        let is_new = |sid: &&Sid| is_in(given, sid) && !is_in(before, sid);
        let mut unknown = nearest.unknown.iter().filter(|sid| could_have_number(sid));
        if let Some(sid) = unknown.find(is_new) {
            self.tell(path, &sid.to_string(), "access list refused", NO_NUMBER);
            return Err(Status::NONE_MAPPED);
        }
        let aces = given.iter().flat_map(|list| &list.aces);
        let mut nobodies = aces.filter_map(Ace::sid).filter(|sid| self.is_nobody(sid));
        if let Some(sid) = nobodies.find(is_new) {
            self.tell(path, &sid.to_string(), "entry of an access list without effect", NOBODY);
        }
        Ok(())
    }

    /// True for a SID that could be that of a user or group, and is nobody's.
    fn is_nobody(&self, sid: &Sid) -> bool {
        could_have_number(sid) && self.known.get(sid) == Some(&Identity::Nobody)
    }

    /// Writes a line about a list with a SID about which nobody has answered.
    pub(in crate::command) fn tell_no_answer(&self, path: &str) {
        let sid = self.unanswered.first().map_or_else(String::new, Sid::to_string);
        self.tell(path, &sid, "access list refused", NO_ANSWER);
    }

    /// Writes a line about a file system on which rights of others have no effect.
    pub(in crate::command) fn tell_no_lists(&self, path: &str) {
        self.tell(path, "", "access list refused", NO_LISTS);
    }

    fn tell(&self, path: &str, sid: &str, event: &str, why: &str) {
        let Ok(tree) = self.rq.tree() else { return };
        self.rq.tell(|left_out| {
            let user = tree.identity();
            tracing::warn!(target: "frevo::access", peer = %self.rq.connection.peer, left_out,
                user = %user.as_ref().map_or("", |user| &*user.user), share = %tree.share.name,
                path = shortened(path), sid, "{event}: {why}");
        });
    }
}

const NO_NUMBER: &str = "the share has `run_as = \"user\"`, and this host has no number for this user or \
    group, so its rights would have no effect; give its domain a range in [[idmap]], add the user to the \
    host, or set `run_as = \"server\"`";

const NOBODY: &str = "the share has `run_as = \"user\"`, and no user or group has this SID, so its entry \
    gives and denies nothing; if users of its domain are to log on here, name the domain in \
    winbind_domains or [[idmap]]";

const NO_ANSWER: &str = "the share has `run_as = \"user\"`, and neither a controller nor the name service of \
    the host says who this user or group is, so its rights would be lost; try again when they answer";

const NO_LISTS: &str = "the share has `run_as = \"user\"`, and its file system has no POSIX access lists, \
    so rights of other users and groups would have no effect; use a file system that has them, or set \
    `run_as = \"server\"`";
