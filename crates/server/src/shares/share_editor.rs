//! Changes of shares that administrators ask for over the network: NetrShareAdd, NetrShareSetInfo
//! and NetrShareDel of MS-SRVS.

use std::fmt;

use frevo_rpc::netdfs::Change;

use crate::access::share_access::{AccessList, NotAccepted};
use crate::shares::namespace_editor::NotChanged;

/// A change of the shares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShareEdit {
    /// Adds a share.
    Add {
        /// Name of the share.
        name: String,
        /// The folder, as the client wrote it: `/srv/x`, or `C:\\srv\\x` for the same.
        path: String,
        /// The comment; empty for none.
        comment: String,
        /// Tree connects at one time; None for no limit.
        max_connections: Option<usize>,
        /// The access list; None for all rights of everybody.
        access: Option<AccessList>,
    },
    /// Changes a share. A field that is None keeps its value.
    Set {
        /// Name of the share.
        name: String,
        /// The new comment; empty for none.
        comment: Option<String>,
        /// Tree connects at one time; Some(None) for no limit.
        max_connections: Option<Option<usize>>,
        /// The access list; Some(None) for all rights of everybody.
        access: Option<Option<AccessList>>,
    },
    /// Removes a share. Its folder stays.
    Remove {
        /// Name of the share.
        name: String,
    },
}

impl ShareEdit {
    /// The verb for the change, for logs.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Set { .. } => "set",
            Self::Remove { .. } => "remove",
        }
    }

    /// The name of the share.
    pub fn name(&self) -> &str {
        match self {
            Self::Add { name, .. } | Self::Set { name, .. } | Self::Remove { name } => name,
        }
    }
}

/// The reason why shares were not changed. The text is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotEdited {
    /// The configuration does not permit it.
    Forbidden(String),
    /// A share of this name exists.
    Exists,
    /// No share has this name.
    Absent,
    /// The name of the share is not valid.
    BadName(String),
    /// There is no such folder.
    NoFolder(String),
    /// The access list is malformed.
    BadAccess(String),
    /// The access list has an entry that this server would not enforce.
    Unsupported(String),
    /// The change could not be stored or applied; nothing was changed.
    Failed(String),
}

impl From<NotAccepted> for NotEdited {
    fn from(why: NotAccepted) -> Self {
        match why {
            NotAccepted::Malformed(why) => Self::BadAccess(why.to_owned()),
            NotAccepted::Unsupported(why) => Self::Unsupported(why.to_owned()),
        }
    }
}

impl fmt::Display for NotEdited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists => f.write_str("there is a share of this name"),
            Self::Absent => f.write_str("there is no share of this name"),
            Self::Forbidden(why)
            | Self::BadName(why)
            | Self::NoFolder(why)
            | Self::BadAccess(why)
            | Self::Unsupported(why)
            | Self::Failed(why) => f.write_str(why),
        }
    }
}

/// Changes the shares of a server for its administrators.
pub trait ShareEditor: Send + Sync + fmt::Debug {
    /// Stores and applies a change that the administrator `by` asks for. The call may block: it
    /// runs on no core.
    ///
    /// # Errors
    /// When nothing was changed.
    fn edit(&self, by: &str, edit: ShareEdit) -> Result<(), NotEdited>;

    /// Stores and applies a change of the namespaces, as [`Self::edit`] does.
    ///
    /// # Errors
    /// When nothing was changed.
    fn change_namespace(&self, _by: &str, _change: Change) -> Result<(), NotChanged> {
        Err(NotChanged::forbidden())
    }
}
