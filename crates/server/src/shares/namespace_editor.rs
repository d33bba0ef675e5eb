//! The reasons why a namespace is not changed as an administrator asks over the network (MS-DFSNM). The
//! change itself is a value of `frevo_rpc`.

use std::fmt;

/// The reason why the namespaces were not changed. The text is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotChanged {
    /// The configuration does not permit it.
    Forbidden(String),
    /// There is no such namespace or link.
    Absent(String),
    /// The link has no such target.
    NoTarget(String),
    /// There is such a namespace, link or target.
    Exists(String),
    /// A root needs a share that does not exist.
    NoShare(String),
    /// The server does not support the change.
    Unsupported(String),
    /// A name or a value is not valid.
    Bad(String),
    /// The change could not be stored or applied; nothing was changed.
    Failed(String),
    /// The cluster that keeps the namespaces did not take the change now. Another attempt can succeed.
    Retry(String),
}

impl NotChanged {
    /// The refusal of a server on which nobody may change namespaces over the network.
    pub fn forbidden() -> Self {
        Self::Forbidden(String::from(
            "this server does not allow changes of namespaces over the network",
        ))
    }
}

impl fmt::Display for NotChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(why)
            | Self::Absent(why)
            | Self::NoTarget(why)
            | Self::Exists(why)
            | Self::NoShare(why)
            | Self::Unsupported(why)
            | Self::Bad(why)
            | Self::Failed(why)
            | Self::Retry(why) => f.write_str(why),
        }
    }
}
