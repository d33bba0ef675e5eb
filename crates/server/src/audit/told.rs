//! The events that handlers cause.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::Done;
use frevo_store::{Name, security::Token};
use frevo_wire::Status;
use frevo_wire::command::create::{self, CreateAction};
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, SecurityInformation, Sid};

use super::{Event, Kind, Operations, Source};
use crate::access::domain_names::DomainNames;
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::command::request::Request;
use crate::objects::open::{FileOpen, Open};
use crate::objects::refusal::Outcome;
use crate::objects::server::ServerState;
use crate::objects::session::Identity;
use crate::objects::tree_connect::TreeConnect;

impl Request<'_> {
    /// Where the request comes from.
    pub fn source(&self) -> Source {
        let session = self.session.as_ref().map_or(self.header.session_id, |session| session.id);
        Source { session, peer: self.connection.peer }
    }
}

/// A logon that succeeded.
pub fn logged_on(rq: &Request<'_>, session: u64, done: &Done, purpose: &'static str, sealed: bool) {
    let Some(audit) = rq.server().audit.get() else { return };
    let identity = rq.server().session(session).and_then(|session| session.identity());
    let event = Event::new(Kind::Logon)
        .from(Source { session, peer: rq.connection.peer })
        .by(identity)
        .with("workstation", cut(&done.identity.workstation, AUDIT_VALUE_BYTES))
        .with("purpose", purpose)
        .with("mechanism", format!("{:?}", done.identity.mechanism()))
        .with("dialect", format!("{:?}", rq.dialect()))
        .with("sealed", sealed)
        .with("mic", done.has_mic);
    audit.emit(event);
}

/// A logon that was refused; `user` and `domain` are the client's claim.
pub fn logon_refused(rq: &Request<'_>, refusal: &frevo_auth::Refusal) {
    rq.server().activity.count_failed_logon();
    let peer = rq.connection.peer;
    rq.server().audit.emit_limited(peer.ip(), || {
        Event::new(Kind::Logon)
            .status(refusal.status())
            .peer(peer)
            .with("user", cut(&refusal.user, AUDIT_VALUE_BYTES))
            .with("domain", cut(&refusal.domain, AUDIT_VALUE_BYTES))
            .with("reason", refusal.reason.to_string())
    });
}

/// A change of the user's own password, or the refusal of one.
pub fn password_changed(rq: &Request<'_>, identity: &Identity, status: Status) {
    let source = rq.source();
    rq.server().audit.emit_limited(source.peer.ip(), || {
        Event::new(Kind::Password).status(status).from(source).by(Some(Arc::new(identity.clone())))
    });
}

/// An answer to a logon that waits for `wait`; with `refused` it is a failure whatever
/// came out.
pub fn throttled(rq: &Request<'_>, user: &str, wait: Duration, refused: bool) {
    let peer = rq.connection.peer;
    rq.server().audit.emit_limited(peer.ip(), || {
        let status = if refused { Status::LOGON_FAILURE } else { Status::SUCCESS };
        Event::new(Kind::Throttle)
            .status(status)
            .peer(peer)
            .with("user", cut(user, AUDIT_VALUE_BYTES))
            .with("milliseconds", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    });
}

/// A session that was not connected to the share `name`.
pub fn connect_refused(rq: &Request<'_>, name: &str, status: Status, reason: &str) {
    let peer = rq.connection.peer;
    rq.server().audit.emit_limited(peer.ip(), || {
        let identity = rq.session.as_ref().and_then(|session| session.identity());
        Event::new(Kind::Connect)
            .status(status)
            .from(rq.source())
            .by(identity)
            .with("share", cut(name, AUDIT_VALUE_BYTES))
            .with("reason", reason)
    });
}

/// A client that met a limit.
pub fn limit(server: &ServerState, peer: SocketAddr, reason: &str) {
    server.audit.emit_limited(peer.ip(), || {
        Event::new(Kind::Limit)
            .status(Status::INSUFFICIENT_RESOURCES)
            .peer(peer)
            .with("reason", reason)
    });
}

/// Passes an outcome on, and records a CREATE that was refused and a limit that was met.
/// Only a failure costs more than a comparison.
pub fn outcome(rq: &Request<'_>, outcome: Outcome) -> Outcome {
    if let Err(refusal) = &outcome
        && let Some(status) = refusal.status()
        && rq.server().audit.get().is_some()
    {
        match status {
            Status::INSUFFICIENT_RESOURCES | Status::TOO_MANY_OPENED_FILES => {
                limit(rq.server(), rq.connection.peer, &format!("{:?}", rq.header.command));
            }
            Status::ACCESS_DENIED
            | Status::PRIVILEGE_NOT_HELD
            | Status::CANNOT_DELETE
            | Status::MEDIA_WRITE_PROTECTED => open_refused(rq, status),
            _ => {}
        }
    }
    outcome
}

fn open_refused(rq: &Request<'_>, status: Status) {
    if rq.header.command != frevo_wire::Command::CREATE {
        return;
    }
    let (Ok(tree), Ok(request)) = (rq.tree(), create::Request::parse(rq.message)) else { return };
    tree.record(Operations::OPEN, || {
        let name = request.name.to_string().unwrap_or_default();
        let event = Event::new(Kind::Open)
            .status(status)
            .with("path", path_of(&name))
            .with("access", access(request.desired_access));
        let is_read_only = tree.share.read_only && status == Status::ACCESS_DENIED;
        if is_read_only {
            event.with("reason", "the share is read-only for this user")
        } else {
            event
        }
    });
}

/// A path as the log has it: with slashes, from the share's root on.
fn path_of(path: &str) -> String {
    path.replace('\\', "/")
}

/// Rights as the specification writes them.
fn access(mask: AccessMask) -> String {
    format!("{:#010x}", mask.0)
}

impl TreeConnect {
    /// Records an operation on files, if the share wants it.
    pub fn record(&self, operation: Operations, event: impl FnOnce() -> Event) {
        if let Some(audit) = &self.share.audit
            && audit.operations.intersects(operation)
        {
            audit.audit.emit(self.signed(event()));
        }
    }

    /// Records the use of a privilege, whatever the share wants.
    pub fn record_privilege(&self, privilege: &str, path: &Name) {
        if let Some(audit) = &self.share.audit {
            let event = Event::new(Kind::Privilege).with("privilege", privilege);
            audit.audit.emit(self.signed(event).with("path", path_of(&path.to_string())));
        }
    }

    fn signed(&self, event: Event) -> Event {
        let event = match self.source() {
            Some(source) => event.from(source),
            None => event,
        };
        event.by(self.identity()).with("share", &*self.share.name)
    }
}

/// Records a CREATE that succeeded.
pub fn opened(tree: &TreeConnect, open: &Open, action: CreateAction) {
    if tree.share.audit.is_none() {
        return;
    }
    let Ok(file) = open.file() else { return };
    let granted = open.granted_access;
    if granted.contains(AccessMask::ACCESS_SYSTEM_SECURITY) {
        tree.record_privilege("SeSecurityPrivilege", &file.name());
    }
    let (operation, kind, action) = match action {
        CreateAction::OPENED => (Operations::OPEN, Kind::Open, None),
        CreateAction::CREATED => (Operations::CREATE, Kind::Create, Some("created")),
        CreateAction::SUPERSEDED | CreateAction::OVERWRITTEN => {
            let both = Operations::CREATE | Operations::WRITE;
            (both, Kind::Create, Some("overwritten"))
        }
        _ => return,
    };
    tree.record(operation, || {
        let event = Event::new(kind)
            .with("path", path_of(&file.name().to_string()))
            .with("directory", file.is_directory);
        match action {
            Some(action) => event.with("action", action),
            None => event.with("access", access(granted)),
        }
    });
}

impl Open {
    /// Records the close of a handle through which the file's data was changed.
    pub(crate) fn record_written(&self, file: &FileOpen) {
        self.tree().record(Operations::WRITE, || {
            Event::new(Kind::Write).with("path", path_of(&file.name().to_string()))
        });
    }

    /// Records the removal of a name when a handle closed.
    pub(crate) fn record_removed(&self, name: &Name, is_directory: bool) {
        self.tree().record(Operations::DELETE, || {
            Event::new(Kind::Delete)
                .with("path", path_of(&name.to_string()))
                .with("directory", is_directory)
        });
    }
}

/// Something beside the data that was changed, or was not.
pub(crate) fn attributes(open: &Open, parts: &str, outcome: Result<(), Status>) {
    let Ok(file) = open.file() else { return };
    open.tree().record(Operations::ATTRIBUTES, || {
        Event::new(Kind::Attributes)
            .status(outcome.err().unwrap_or(Status::SUCCESS))
            .with("path", path_of(&file.name().to_string()))
            .with("parts", parts)
    });
}

/// The file that had the name which another file got by a rename or a link.
pub(crate) fn replaced(open: &Open, name: &Name, is_directory: bool) {
    open.record_removed(name, is_directory);
}

/// A rename, or an attempt.
pub fn renamed(open: &Open, from: &Name, to: &Name, outcome: Result<(), Status>) {
    open.tree().record(Operations::RENAME, || {
        Event::new(Kind::Rename)
            .status(outcome.err().unwrap_or(Status::SUCCESS))
            .with("path", path_of(&from.to_string()))
            .with("to", path_of(&to.to_string()))
    });
}

/// A hard link, or an attempt.
pub fn linked(open: &Open, from: &Name, to: &Name, outcome: Result<(), Status>) {
    open.tree().record(Operations::CREATE, || {
        Event::new(Kind::Create)
            .status(outcome.err().unwrap_or(Status::SUCCESS))
            .with("path", path_of(&to.to_string()))
            .with("directory", false)
            .with("action", "linked")
            .with("to", path_of(&from.to_string()))
    });
}

/// A descriptor that was set, or was not.
pub(crate) fn protected(
    open: &Open,
    asked: SecurityInformation,
    bytes: &[u8],
    names: &DomainNames,
    outcome: Result<(), Status>,
) {
    open.tree().record(Operations::ACL, || {
        let parts = [
            (SecurityInformation::OWNER, "owner"),
            (SecurityInformation::GROUP, "group"),
            (SecurityInformation::DACL, "dacl"),
            (SecurityInformation::SACL, "sacl"),
        ];
        let parts = parts.iter().filter(|(part, _)| asked.contains(*part));
        let parts: Vec<&str> = parts.map(|(_, name)| *name).collect();
        let event = Event::new(Kind::Acl)
            .status(outcome.err().unwrap_or(Status::SUCCESS))
            .with(
                "path",
                open.file()
                    .map_or_else(|_| String::new(), |file| path_of(&file.name().to_string())),
            )
            .with("parts", parts.join(","));
        let owner = SecurityDescriptor::parse(bytes).ok().and_then(|new| new.owner);
        match owner.filter(|_| asked.contains(SecurityInformation::OWNER)) {
            Some(owner) => {
                let event = event.with("owner", owner.to_string());
                match names.known(&owner) {
                    Some(known) => event.with("owner_name", known.to_string()),
                    None => event,
                }
            }
            None => event,
        }
    });
}

/// An owner that was given with SeRestorePrivilege.
pub fn gave(open: &Open, owner: &Sid, token: &Token) {
    if !token.contains(owner)
        && let Ok(file) = open.file()
    {
        open.tree().record_privilege("SeRestorePrivilege", &file.name());
    }
}
