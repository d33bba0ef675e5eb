//! The events that the objects cause: operations on files, and limits that clients meet.

use std::net::SocketAddr;
use std::time::Duration;

use frevo_auth::Refusal;
use frevo_auth::kerberos::SealedTicket;
use frevo_net::quic::{Decision, Verdict};
use frevo_store::{Name, security::Token};
use frevo_wire::Status;
use frevo_wire::command::create::CreateAction;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, SecurityInformation, Sid};

use crate::access::domain_names::DomainNames;
use crate::audit::{Audit, Event, Kind, Operations};
use crate::base::host;
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::objects::open::{FileOpen, Open};
use crate::objects::server::ServerState;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::RunAs;

/// A client that met a limit.
pub fn limit(server: &ServerState, peer: SocketAddr, reason: &str) {
    server.audit.emit_limited(peer.ip(), || {
        Event::new(Kind::Limit)
            .status(Status::INSUFFICIENT_RESOURCES)
            .peer(peer)
            .with("reason", reason)
    });
}

/// A certificate by which a client was let in over QUIC, or kept out.
pub fn certificate(server: &ServerState, peer: SocketAddr, decision: &Decision) {
    let is_allowed = decision.verdict == Verdict::Allowed;
    let event = || {
        let status = if is_allowed { Status::SUCCESS } else { Status::ACCESS_DENIED };
        let event = Event::new(Kind::Certificate)
            .status(status)
            .peer(peer)
            .with("certificate", decision.certificate.to_string())
            .with("subject", cut(&decision.name, AUDIT_VALUE_BYTES));
        if is_allowed { event } else { event.with("reason", decision.to_string()) }
    };
    // Clients without a right certificate are not to fill the log.
    match is_allowed {
        true => server.audit.emit(event),
        false => server.audit.emit_limited(peer.ip(), event),
    }
}

/// A logon that was refused; `user` and `domain` are the client's claim.
pub(crate) fn logon_refused(server: &ServerState, peer: SocketAddr, refusal: &Refusal) {
    server.activity.count_failed_logon();
    server.audit.emit_limited(peer.ip(), || {
        let event = Event::new(Kind::Logon)
            .status(refusal.status())
            .peer(peer)
            .with("user", cut(&refusal.user, AUDIT_VALUE_BYTES))
            .with("domain", cut(&refusal.domain, AUDIT_VALUE_BYTES))
            .with("reason", refusal.reason.to_string());
        match refusal.ticket() {
            Some(ticket) => with_ticket(event, ticket),
            None => event,
        }
    });
}

/// The event with the part of a ticket that is in the clear. The user's name is not.
fn with_ticket(event: Event, ticket: &SealedTicket) -> Event {
    let event = event
        .with("service", cut(&ticket.server.to_string(), AUDIT_VALUE_BYTES))
        .with("etype", ticket.etype().to_string());
    match ticket.kvno {
        Some(kvno) => event.with("kvno", u64::from(kvno)),
        None => event,
    }
}

/// An answer to a logon that waits for `wait`; with `refused` it is a failure whatever
/// came out.
pub(crate) fn throttled(
    server: &ServerState,
    peer: SocketAddr,
    user: &str,
    wait: Duration,
    refused: bool,
) {
    server.audit.emit_limited(peer.ip(), || {
        let status = if refused { Status::LOGON_FAILURE } else { Status::SUCCESS };
        Event::new(Kind::Throttle)
            .status(status)
            .peer(peer)
            .with("user", cut(user, AUDIT_VALUE_BYTES))
            .with("milliseconds", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    });
}

/// A path as the log has it: with slashes, from the share's root on.
pub(crate) fn path_of(path: &str) -> String {
    path.replace('\\', "/")
}

/// Rights as the specification writes them.
pub(crate) fn access(mask: AccessMask) -> String {
    format!("{:#010x}", mask.0)
}

impl TreeConnect {
    /// Records an operation on files, if the share wants it.
    pub fn record(&self, operation: Operations, event: impl FnOnce() -> Event) {
        if let Some(audit) = &self.share.audit
            && audit.operations.intersects(operation)
        {
            let event = event();
            let by_kernel = event.outcome() == Status::ACCESS_DENIED
                && matches!(self.share.run_as, RunAs::User)
                && host::denials::is_noted();
            let event = if by_kernel { event.with("refused_by", "kernel") } else { event };
            audit.audit.emit(self.signed(event));
        }
    }

    /// Records the use of a privilege, whatever the share wants.
    pub fn record_privilege(&self, privilege: &str, path: &Name) {
        self.record_privilege_as(privilege, path, Status::SUCCESS);
    }

    /// Records an attempt to use a privilege, with its status.
    pub fn record_privilege_as(&self, privilege: &str, path: &Name, status: Status) {
        if let Some(audit) = &self.share.audit {
            let event = Event::new(Kind::Privilege).status(status).with("privilege", privilege);
            let identity = self.identity();
            let ground = identity.as_ref().and_then(|identity| identity.administers_by.as_deref());
            let event = event.administering(ground);
            audit.audit.emit(self.signed(event).with("path", path_of(&path.to_string())));
        }
    }

    /// Records an event, whatever operations the share wants.
    pub(crate) fn record_always(&self, event: impl FnOnce() -> Event) {
        if let Some(audit) = &self.share.audit {
            audit.audit.emit(self.signed(event()));
        }
    }

    /// The audit log with the event of a virus in a file, whatever the share wants. None without a log.
    pub(crate) fn virus_event(&self, path: &Name) -> Option<(Audit, Event)> {
        let audit = self.share.audit.as_ref()?;
        let event = self.signed(Event::new(Kind::Virus)).with("path", path_of(&path.to_string()));
        Some((audit.audit.clone(), event))
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
pub(crate) fn opened(tree: &TreeConnect, open: &Open, action: CreateAction) {
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

/// A change of a file's data that was refused.
pub(crate) fn write_refused(open: &Open, status: Status) {
    let Ok(file) = open.file() else { return };
    open.tree().record(Operations::WRITE, || {
        Event::new(Kind::Write).status(status).with("path", path_of(&file.name().to_string()))
    });
}

/// A removal that was refused.
pub(crate) fn removal_refused(open: &Open, status: Status) {
    let Ok(file) = open.file() else { return };
    open.tree().record(Operations::DELETE, || {
        Event::new(Kind::Delete)
            .status(status)
            .with("path", path_of(&file.name().to_string()))
            .with("directory", file.is_directory)
    });
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
pub(crate) fn renamed(open: &Open, from: &Name, to: &Name, outcome: Result<(), Status>) {
    open.tree().record(Operations::RENAME, || {
        Event::new(Kind::Rename)
            .status(outcome.err().unwrap_or(Status::SUCCESS))
            .with("path", path_of(&from.to_string()))
            .with("to", path_of(&to.to_string()))
    });
}

/// A hard link, or an attempt.
pub(crate) fn linked(open: &Open, from: &Name, to: &Name, outcome: Result<(), Status>) {
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
pub(crate) fn gave(open: &Open, owner: &Sid, token: &Token) {
    if !token.contains(owner)
        && let Ok(file) = open.file()
    {
        open.tree().record_privilege("SeRestorePrivilege", &file.name());
    }
}
