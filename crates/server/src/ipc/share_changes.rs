//! Changes of shares over MS-SRVS.

use frevo_wire::Status;
use frevo_wire::rpc::WinError;
use frevo_wire::rpc::srvsvc::{ShareInfo, ShareSettings};

use super::services::Caller;
use crate::audit::{Event, Kind};
use crate::embed::{NotEdited, ShareEdit};
use crate::limits::AUDIT_VALUE_BYTES;
use crate::quoted::{Quoted, cut};

/// The limit of tree connects that max_uses stands for: all ones, and zero, are none.
fn limit(max_uses: u32) -> Option<usize> {
    usize::try_from(max_uses).ok().filter(|_| !matches!(max_uses, 0 | u32::MAX))
}

impl Caller<'_> {
    /// MS-SRVS 3.1.4.7.
    pub(super) fn add(&self, share: &ShareInfo) -> Result<(), WinError> {
        self.edit(ShareEdit::Add {
            name: share.name.clone(),
            path: share.path.clone(),
            comment: share.remark.clone(),
            max_connections: limit(share.max_uses),
        })
    }

    /// MS-SRVS 3.1.4.11.
    pub(super) fn set(&self, name: &str, settings: &ShareSettings) -> Result<(), WinError> {
        self.edit(ShareEdit::Set {
            name: name.to_owned(),
            comment: settings.remark.clone(),
            max_connections: settings.max_uses.map(limit),
        })
    }

    /// MS-SRVS 3.1.4.12.
    pub(super) fn remove(&self, name: &str) -> Result<(), WinError> {
        self.edit(ShareEdit::Remove { name: name.to_owned() })
    }

    fn edit(&self, edit: ShareEdit) -> Result<(), WinError> {
        let told = edit.clone();
        let done = match self.server.share_editor.get() {
            Some(editor) => editor.edit(self.user, edit),
            None => Err(NotEdited::Forbidden(String::from(
                "this server does not let shares be changed over the network",
            ))),
        };
        self.tell(&told, done.as_ref().err());
        done.map_err(|why| match why {
            NotEdited::Forbidden(_) => WinError::ACCESS_DENIED,
            NotEdited::Exists => WinError::DUPLICATE_SHARE,
            NotEdited::Absent => WinError::NET_NAME_NOT_FOUND,
            NotEdited::BadName(_) => WinError::INVALID_NAME,
            NotEdited::NoFolder(_) => WinError::UNKNOWN_DEV_DIR,
            NotEdited::Failed(_) => WinError::INTERNAL_ERROR,
        })
    }

    /// Writes a change, or the refusal of one, into the log and the audit log.
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
}
