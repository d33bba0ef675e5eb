//! Changes of users, shares and limits, as a page asks for them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

/// The part of a program that changes its files, and puts the changes in force. All calls may block.
pub trait Managing: Send + Sync {
    /// Returns what the files have of a kind.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&self, kind: Kind) -> Result<Listed, NotManaged>;

    /// Changes a user, if the accounts are still those of a revision.
    ///
    /// # Errors
    /// When nothing was changed.
    fn change_user(&self, revision: &str, change: UserChange) -> Result<Changed, NotManaged>;

    /// Changes a section of the configuration, if it is still that of a revision.
    ///
    /// # Errors
    /// When nothing was changed.
    fn change_section(
        &self,
        kind: Kind,
        revision: &str,
        change: SectionChange,
    ) -> Result<Changed, NotManaged>;
}

/// The kinds of things that are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Accounts of the account file.
    User,
    /// Sections `[[share]]`.
    Share,
    /// Sections `[[rate]]`.
    Rate,
}

impl Kind {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Share => "share",
            Self::Rate => "rate",
        }
    }
}

/// The things of a kind, as the files have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The text that a change must have: it is another one when the files have changed.
    pub revision: String,
    /// The file that new ones are put into.
    pub file: String,
    /// The reason why the server cannot change the files. None if it can.
    pub read_only: Option<String>,
    /// The things.
    pub rows: Vec<Value>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A change of a user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum UserChange {
    /// A new account.
    Add {
        /// Its name.
        name: String,
        /// Its password.
        password: Secret,
        /// Its groups.
        #[serde(default)]
        groups: Vec<String>,
    },
    /// Another password.
    Password {
        /// The account.
        name: String,
        /// The password.
        password: Secret,
    },
    /// Other groups, in place of those before.
    Groups {
        /// The account.
        name: String,
        /// The groups.
        groups: Vec<String>,
    },
    /// Other rules for its logons, in the words of `frevo user set`.
    Rules {
        /// The account.
        name: String,
        /// The last day, a moment, or `never`.
        expires: String,
        /// True if the password must be changed before the next logon.
        must_change: bool,
        /// The hours of the week, or `always`.
        hours: String,
        /// The computers; none for all.
        workstations: Vec<String>,
    },
    /// The account may log on.
    Enable {
        /// The account.
        name: String,
    },
    /// The account may not log on; its sessions end.
    Disable {
        /// The account.
        name: String,
    },
    /// The account goes; its sessions end.
    Remove {
        /// The account.
        name: String,
    },
}

impl UserChange {
    /// Returns the name of the account.
    pub fn name(&self) -> &str {
        let (Self::Add { name, .. }
        | Self::Password { name, .. }
        | Self::Groups { name, .. }
        | Self::Rules { name, .. }
        | Self::Enable { name }
        | Self::Disable { name }
        | Self::Remove { name }) = self;
        name
    }

    /// Returns what the audit log tells of the change besides the name; no secret is in it.
    pub(crate) fn keys(&self) -> Option<Value> {
        match self {
            Self::Add { groups, .. } | Self::Groups { groups, .. } => {
                Some(json!({ "groups": groups }))
            }
            Self::Rules { expires, must_change, hours, workstations, .. } => Some(json!({
                "expires": expires, "must_change": must_change, "hours": hours,
                "workstations": workstations,
            })),
            _ => None,
        }
    }

    /// Returns the word of the audit log.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add-user",
            Self::Password { .. } => "set-password",
            Self::Groups { .. } => "set-groups",
            Self::Rules { .. } => "set-rules",
            Self::Enable { .. } => "enable-user",
            Self::Disable { .. } => "disable-user",
            Self::Remove { .. } => "remove-user",
        }
    }
}

/// A change of a section. Keys have the values of TOML; null removes a key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum SectionChange {
    /// A new section.
    Add {
        /// Its name.
        name: String,
        /// Its other keys.
        keys: Map<String, Value>,
    },
    /// Other values of keys; the others stay.
    Set {
        /// The section.
        name: String,
        /// The keys.
        keys: Map<String, Value>,
    },
    /// The section goes.
    Remove {
        /// The section.
        name: String,
    },
}

impl SectionChange {
    /// Returns the name of the section.
    pub fn name(&self) -> &str {
        let (Self::Add { name, .. } | Self::Set { name, .. } | Self::Remove { name }) = self;
        name
    }

    /// Returns the keys that change.
    pub fn keys(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Add { keys, .. } | Self::Set { keys, .. } => Some(keys),
            Self::Remove { .. } => None,
        }
    }

    /// Returns the word of the audit log.
    pub(crate) const fn word(&self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Add { .. }, Kind::Rate) => "add-rate",
            (Self::Set { .. }, Kind::Rate) => "set-rate",
            (Self::Remove { .. }, Kind::Rate) => "remove-rate",
            (Self::Add { .. }, _) => "add-share",
            (Self::Set { .. }, _) => "set-share",
            (Self::Remove { .. }, _) => "remove-share",
        }
    }
}

/// A change that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// Things that `frevo check` warns of since the change.
    pub warnings: Vec<String>,
    /// Sessions that have ended by it.
    pub sessions: u64,
}

/// The reason why nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotManaged {
    /// The kind of reason.
    pub reason: Reason,
    /// A sentence for people.
    pub why: String,
    /// The field of the form that it is about, if it is about one.
    pub field: Option<String>,
    /// The command that makes the change in the server's place.
    pub command: Option<String>,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The form has a fault.
    Malformed,
    /// There is nothing of this name.
    Absent,
    /// The files have changed since they were shown.
    Outdated,
    /// The change would leave a fault, or could not be put in force.
    Refused,
    /// The server may not write the file.
    ReadOnly,
    /// Something failed.
    Failed,
}

impl NotManaged {
    /// A reason with its sentence.
    pub fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into(), field: None, command: None }
    }

    /// The reason, about a field of the form.
    #[must_use]
    pub fn about(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// The reason, with the command that makes the change.
    #[must_use]
    pub fn instead(self, command: String) -> Self {
        Self { command: Some(command), ..self }
    }
}
