//! One event of the audit log.

use std::net::SocketAddr;
use std::sync::Arc;

use frevo_wire::Status;

use crate::access::identity::Identity;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kind of an event: the field `event` of a line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds of events.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The name in the log.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// The server begins to serve.
    Start = "start",
    /// The server stops.
    Stop = "stop",
    /// The configuration was read again.
    Reload = "reload",
    /// A client's certificate let it in over QUIC, or kept it out.
    Certificate = "certificate",
    /// A logon succeeded or was refused.
    Logon = "logon",
    /// A user changes the password.
    Password = "password",
    /// The answer to a logon waits, because others failed before.
    Throttle = "throttle",
    /// The end of a session.
    Logoff = "logoff",
    /// A session connects to a share.
    Connect = "connect",
    /// A session leaves a share.
    Disconnect = "disconnect",
    /// A client broke a rule of the protocol.
    Violation = "violation",
    /// A client met a limit.
    Limit = "limit",
    /// An administrator ended sessions or closed files.
    Kick = "kick",
    /// The brake of a share took hold of a client, or an administrator let go of it.
    Brake = "brake",
    /// An administrator began or ended a capture of messages.
    Capture = "capture",
    /// An administrator moves shares of a cluster, or a share has another owner.
    Cluster = "cluster",
    /// A snapshot of a share was made or removed.
    Snapshot = "snapshot",
    /// An administrator changes the shares over the network.
    Share = "share",
    /// A browser logged on to the admin interface, or changed users, shares or limits.
    Manage = "manage",
    /// A privilege was used.
    Privilege = "privilege",
    /// A virus was found in a file.
    Virus = "virus",
    /// A file was opened.
    Open = "open",
    /// A file, a folder or a hard link was made.
    Create = "create",
    /// Data was changed.
    Write = "write",
    /// A file was renamed.
    Rename = "rename",
    /// A name was removed.
    Delete = "delete",
    /// Owner, group, access list or mode were changed.
    Acl = "acl",
    /// Times, attributes, extended attributes, a reparse point or an object ID were changed.
    Attributes = "attributes",
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string of JSON.
    Text(String),
    /// A number of JSON.
    Number(u64),
    /// A boolean of JSON.
    Flag(bool),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// The session and the connection that an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Session.SessionId
    pub session: u64,
    /// The client's end of the connection.
    pub peer: SocketAddr,
}

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    pub(super) kind: Kind,
    /// SUCCESS, or what the client was told.
    pub(super) status: Status,
    pub(super) peer: Option<SocketAddr>,
    pub(super) session: Option<u64>,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) details: Vec<(&'static str, Value)>,
}

impl Event {
    /// Returns the kind of the event.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns SUCCESS, or the status that the client was told.
    pub const fn outcome(&self) -> Status {
        self.status
    }

    /// Returns the client's address, if the event has one.
    pub const fn client(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the number of the session, if the event has one.
    pub const fn session_id(&self) -> Option<u64> {
        self.session
    }

    /// Returns the account that was logged on, if the event has one.
    pub fn user(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| &*identity.user)
    }

    /// Returns the further fields that `docs/audit.md` lists for the kind.
    pub fn details(&self) -> &[(&'static str, Value)] {
        &self.details
    }

    /// A success without details.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            status: Status::SUCCESS,
            peer: None,
            session: None,
            identity: None,
            details: Vec::new(),
        }
    }

    /// The event with the status that the client was told.
    pub fn status(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// The event as one of a client that has not logged on.
    pub fn peer(self, peer: SocketAddr) -> Self {
        Self { peer: Some(peer), ..self }
    }

    /// The event as one of a session.
    pub fn session(self, id: u64) -> Self {
        Self { session: Some(id), ..self }
    }

    /// Returns the event with the session and the address that it came from.
    pub fn from(self, source: Source) -> Self {
        Self { peer: Some(source.peer), session: Some(source.session), ..self }
    }

    /// The event as one of an account.
    pub fn by(self, identity: Option<Arc<Identity>>) -> Self {
        Self { identity, ..self }
    }

    /// The event with the group or the entry by which its user administers the server, if one does.
    pub(crate) fn administering(self, ground: Option<&str>) -> Self {
        match ground {
            Some(ground) => self.with("administers_by", ground),
            None => self,
        }
    }

    /// The event with one more field.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.details.push((name, value.into()));
        self
    }

    /// Bytes that it keeps while it is queued.
    pub(super) fn weight(&self) -> usize {
        let text = |value: &Value| match value {
            Value::Text(text) => text.capacity(),
            Value::Number(_) | Value::Flag(_) => 0,
        };
        let fields: usize = self.details.iter().map(|(_, value)| text(value)).sum();
        let room = self.details.capacity() * size_of::<(&'static str, Value)>();
        size_of::<Self>() + room + fields
    }
}
