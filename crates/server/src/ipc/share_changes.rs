//! Changes of shares over MS-SRVS.

use frevo_rpc::WinError;
use frevo_rpc::srvsvc::{Attempt, ShareInfo, ShareSettings};
use frevo_store::security::Token;
use frevo_wire::Status;
use frevo_wire::dtyp::Sid;

use super::services::Caller;
use crate::access::domain_names::is_of_domain;
use crate::access::share_access::{AccessList, UNIX};
use crate::audit::{Event, Kind};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::{Quoted, cut};
use crate::shares::share_editor::{NotEdited, ShareEdit};

/// Returns the limit of tree connects for max_uses. None for all ones and for zero.
fn limit(max_uses: u32) -> Option<usize> {
    usize::try_from(max_uses).ok().filter(|_| !matches!(max_uses, 0 | u32::MAX))
}

impl Caller<'_> {
    /// MS-SRVS 3.1.4.7.
    pub(super) fn add(&self, share: &ShareInfo) -> Result<(), WinError> {
        let edit = ShareEdit::Add {
            name: share.name.clone(),
            path: share.path.clone(),
            comment: share.remark.clone(),
            max_connections: limit(share.max_uses),
            access: None,
        };
        self.edit(edit, share.security_descriptor.as_deref())
    }

    /// MS-SRVS 3.1.4.11.
    pub(super) fn set(&self, name: &str, settings: &ShareSettings) -> Result<(), WinError> {
        let edit = ShareEdit::Set {
            name: name.to_owned(),
            comment: settings.remark.clone(),
            max_connections: settings.max_uses.map(limit),
            access: None,
        };
        self.edit(edit, settings.security_descriptor.as_deref())
    }

    /// MS-SRVS 3.1.4.12.
    pub(super) fn remove(&self, name: &str) -> Result<(), WinError> {
        self.edit(ShareEdit::Remove { name: name.to_owned() }, None)
    }

    /// Sets the access list that a security descriptor asks for.
    fn set_access(&self, edit: &mut ShareEdit, descriptor: &[u8]) -> Result<(), NotEdited> {
        let machine = self.server.machine_sid();
        let is_member = !self.server.domain_names.sids().joined().is_empty();
        // Only SIDs that a user's token may contain are accepted. An entry for any other SID, for
        // instance to deny all local accounts, would have no effect.
        let knows = |sid: &Sid| {
            let domain = sid.split_rid().map(|(domain, _)| domain);
            sid.authority() == UNIX
                || Token::WELL_KNOWN.contains(sid)
                || domain.is_some_and(|domain| domain == machine || domain == Sid::BUILTIN)
                || (is_member && is_of_domain(sid))
        };
        let list = AccessList::of_descriptor(descriptor, knows)?;
        match edit {
            ShareEdit::Add { access, .. } => *access = list,
            ShareEdit::Set { access, .. } => *access = Some(list),
            ShareEdit::Remove { .. } => {}
        }
        Ok(())
    }

    fn edit(&self, mut edit: ShareEdit, descriptor: Option<&[u8]>) -> Result<(), WinError> {
        let told = edit.clone();
        let set = descriptor.map_or(Ok(()), |bytes| self.set_access(&mut edit, bytes));
        let done = set.and_then(|()| match self.server.share_editor.get() {
            Some(editor) => editor.edit(self.user, edit),
            None => Err(NotEdited::Forbidden(String::from(
                "this server does not allow changes of shares over the network",
            ))),
        });
        self.tell(&told, done.as_ref().err());
        done.map_err(|why| match why {
            NotEdited::Forbidden(_) => WinError::ACCESS_DENIED,
            NotEdited::Exists => WinError::DUPLICATE_SHARE,
            NotEdited::Absent => WinError::NET_NAME_NOT_FOUND,
            NotEdited::BadName(_) => WinError::INVALID_NAME,
            NotEdited::NoFolder(_) => WinError::UNKNOWN_DEV_DIR,
            NotEdited::BadAccess(_) => WinError::INVALID_PARAMETER,
            NotEdited::Unsupported(_) => WinError::NOT_SUPPORTED,
            NotEdited::Failed(_) => WinError::INTERNAL_ERROR,
        })
    }

    /// Writes a change, or its refusal, into the log and the audit log.
    fn tell(&self, edit: &ShareEdit, why: Option<&NotEdited>) {
        let (share, change, user) = (Quoted(edit.name()), edit.verb(), self.user);
        match why {
            None => tracing::info!(target: "frevo::tree", %share, change, user,
                "an administrator changed a share over the network"),
            Some(why) => tracing::warn!(target: "frevo::tree", %share, change, user, %why,
                "a share was not changed as an administrator asked over the network"),
        }
        self.server.audit.emit(|| {
            let event = Event::new(Kind::Share)
                .with("share", cut(edit.name(), AUDIT_VALUE_BYTES))
                .with("by", user)
                .with("peer", self.address.to_string())
                .with("change", change);
            let event = event.administering(self.identity.administers_by.as_deref());
            let event = match edit {
                ShareEdit::Add { path, .. } => event.with("path", cut(path, AUDIT_VALUE_BYTES)),
                _ => event,
            };
            match why {
                None => event,
                Some(why) => event.status(Status::ACCESS_DENIED).with("reason", why.to_string()),
            }
        });
    }

    /// Writes an attempt of a caller who is no administrator into the audit log.
    pub(super) fn tell_refused(&self, attempt: Attempt<'_>) {
        self.server.audit.emit_limited(self.address, || {
            let short = |name: &str| cut(name, AUDIT_VALUE_BYTES).to_owned();
            let share = |name, change| {
                Event::new(Kind::Share).with("share", short(name)).with("change", change)
            };
            let kick = |target: String| {
                let none = ["sessions", "connects", "opens", "rpc"];
                let event = Event::new(Kind::Kick).with("target", short(&target));
                none.into_iter().fold(event, |event, count| event.with(count, 0_u64))
            };
            let event = match attempt {
                Attempt::AddShare(name) => share(name, "add"),
                Attempt::SetShare(name) => share(name, "set"),
                Attempt::RemoveShare(name) => share(name, "remove"),
                Attempt::CloseFile(id) => kick(format!("open {id}")),
                Attempt::EndSessions { client, user } => {
                    let (client, user) = (client.unwrap_or("*"), user.unwrap_or("*"));
                    kick(format!("sessions of user {user} on client {client}"))
                }
            };
            event
                .status(Status::ACCESS_DENIED)
                .with("by", short(self.user))
                .with("peer", self.address.to_string())
                .with("reason", "the caller is not a member of Administrators")
        });
    }
}
