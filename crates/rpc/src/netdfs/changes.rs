//! Changes of namespaces as administrators ask for them, checked as far as the arguments go.

use super::info::{DfsInfo, Priority, PriorityClass, Properties, StorageState, VolumeState};
use super::requests::{AddLink, MoveLink, RemoveLink, RootTarget, SetInfo};
use super::{EntryPath, TargetName};
use crate::WinError;
use alloc::string::String;

/// A change of the namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Adds a link, or a target to a link that is there.
    AddLink {
        /// The path of the link.
        path: EntryPath,
        /// The target.
        target: TargetName,
        /// The comment of a new link; empty for none.
        comment: String,
        /// True if a link that is there is refused.
        must_be_new: bool,
    },
    /// Removes a link, or one of its targets, and with the last target the link.
    RemoveLink {
        /// The path of the link.
        path: EntryPath,
        /// The target; None for the link with all of them.
        target: Option<TargetName>,
    },
    /// Changes settings of a root, a link or a target.
    Set {
        /// The path of the root or the link.
        path: EntryPath,
        /// The target; None for the root or the link.
        target: Option<TargetName>,
        /// The new settings.
        settings: Settings,
    },
    /// Moves a link, or all links below a folder.
    Move {
        /// The path of the link or of the folder.
        from: EntryPath,
        /// The new path.
        to: EntryPath,
        /// True if a link of the new path is replaced.
        replaces: bool,
    },
    /// Makes a share the root of a namespace.
    AddRoot {
        /// The name of the share, which becomes that of the namespace.
        namespace: String,
        /// The comment; empty for none.
        comment: String,
    },
    /// Removes a namespace with its links. The share stays.
    RemoveRoot {
        /// The name of the namespace.
        namespace: String,
    },
}

/// The state that a link or a target gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChange {
    /// It is in referrals.
    Online,
    /// It is not in referrals.
    Offline,
}

/// Settings that change. A field that is None keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The comment; empty for none.
    pub comment: Option<String>,
    /// The state of the link or the target.
    pub state: Option<StateChange>,
    /// Seconds for which clients keep a referral.
    pub ttl: Option<u32>,
    /// True if clients go back to a better target.
    pub failback: Option<bool>,
    /// The priority of the target.
    pub priority: Option<Priority>,
}

impl Change {
    /// The name of the namespace.
    pub fn namespace(&self) -> &str {
        match self {
            Self::AddLink { path, .. } | Self::RemoveLink { path, .. } | Self::Set { path, .. } => {
                &path.namespace
            }
            Self::Move { from, .. } => &from.namespace,
            Self::AddRoot { namespace, .. } | Self::RemoveRoot { namespace } => namespace,
        }
    }

    /// The path of the link; empty for a change of the root.
    pub fn link(&self) -> &str {
        match self {
            Self::AddLink { path, .. } | Self::RemoveLink { path, .. } | Self::Set { path, .. } => {
                &path.link
            }
            Self::Move { from, .. } => &from.link,
            Self::AddRoot { .. } | Self::RemoveRoot { .. } => "",
        }
    }

    /// The name by which the caller calls the server or the domain; None for a call that has none.
    pub(super) fn server(&self) -> Option<&str> {
        match self {
            Self::AddLink { path, .. }
            | Self::RemoveLink { path, .. }
            | Self::Set { path, .. }
            | Self::Move { from: path, .. } => Some(&path.server),
            Self::AddRoot { .. } | Self::RemoveRoot { .. } => None,
        }
    }

    /// MS-DFSNM 3.1.4.1.3 and 3.1.4.2.1.
    pub(super) fn of_add(request: &AddLink) -> Result<Self, WinError> {
        if request.flags & !(AddLink::ADD_VOLUME | AddLink::RESTORE_VOLUME) != 0 {
            return Err(WinError::INVALID_PARAMETER);
        }
        let path = link_of(&request.path)?;
        let target = TargetName::of(Some(&request.server), request.share.as_deref())?;
        Ok(Self::AddLink {
            path,
            target: target.ok_or(WinError::INVALID_PARAMETER)?,
            comment: request.comment.clone().unwrap_or_default(),
            must_be_new: request.flags & AddLink::ADD_VOLUME != 0,
        })
    }

    /// MS-DFSNM 3.1.4.1.4 and 3.1.4.2.2.
    pub(super) fn of_remove(request: &RemoveLink) -> Result<Self, WinError> {
        let path = link_of(&request.path)?;
        let target = TargetName::of(request.server.as_deref(), request.share.as_deref())?;
        Ok(Self::RemoveLink { path, target })
    }

    /// MS-DFSNM 3.1.4.1.5 and 3.1.4.2.4.
    pub(super) fn of_set(request: &SetInfo) -> Result<Self, WinError> {
        let path = EntryPath::of_entry(&request.path)?;
        let target = match request.level {
            // MS-DFSNM 3.1.4.1.5: the names are ignored.
            102 => None,
            _ => TargetName::of(request.server.as_deref(), request.share.as_deref())?,
        };
        // MS-DFSNM 3.1.4.1.5: other levels, and a level without its data, fail with this.
        let info = request.info.as_ref().ok_or(WinError::INVALID_PARAMETER)?;
        let settings = match (request.level, target.is_some()) {
            (100, false) => Settings { comment: comment_of(info), ..Settings::default() },
            (101, false) => Settings { state: volume_state(&path, info)?, ..Settings::default() },
            (101, true) => Settings { state: Some(storage_state(info)?), ..Settings::default() },
            (102, false) => Settings { ttl: Some(info.timeout), ..Settings::default() },
            (103, false) => Settings { failback: failback(&path, info)?, ..Settings::default() },
            (104, true) => Settings { priority: Some(priority(info)?), ..Settings::default() },
            (105 | 107, false) => whole(&path, info)?,
            (106, true) => Settings {
                state: Some(storage_state(info)?),
                priority: Some(priority(info)?),
                ..Settings::default()
            },
            (150, false) => no_descriptor(&path, info)?,
            _ => return Err(WinError::INVALID_PARAMETER),
        };
        Ok(Self::Set { path, target, settings })
    }

    /// MS-DFSNM 3.1.4.1.8.
    pub(super) fn of_move(request: &MoveLink) -> Result<Self, WinError> {
        if request.flags & !MoveLink::REPLACE_IF_EXISTS != 0 {
            return Err(WinError::INVALID_PARAMETER);
        }
        let (from, to) = (EntryPath::of_entry(&request.from)?, EntryPath::of_entry(&request.to)?);
        let is_one = frevo_wire::fscc::eq_ignore_case(&from.namespace, &to.namespace);
        if !is_one || from.is_root() || to.is_root() {
            return Err(WinError::NOT_SUPPORTED);
        }
        let replaces = request.flags & MoveLink::REPLACE_IF_EXISTS != 0;
        Ok(Self::Move { from, to, replaces })
    }

    /// MS-DFSNM 3.1.4.4.1.
    pub(super) fn of_std_root(share: &str, comment: String) -> Result<Self, WinError> {
        Ok(Self::AddRoot { namespace: root_name(share)?, comment })
    }

    /// MS-DFSNM 3.1.4.4.2.
    pub(super) fn of_removed_root(share: &str) -> Result<Self, WinError> {
        Ok(Self::RemoveRoot { namespace: root_name(share)? })
    }

    /// MS-DFSNM 3.1.4.1.9. A stand-alone root has no pTargetPath, the version 1 and no second target.
    pub(super) fn of_root_target(request: &RootTarget) -> Result<Self, WinError> {
        let namespace = stand_alone(request)?;
        if request.major_version != 1 || !request.is_new {
            return Err(WinError::INVALID_PARAMETER);
        }
        let comment = request.comment.clone().unwrap_or_default();
        Ok(Self::AddRoot { namespace, comment })
    }

    /// MS-DFSNM 3.1.4.1.10.
    pub(super) fn of_removed_root_target(request: &RootTarget) -> Result<Self, WinError> {
        let namespace = stand_alone(request)?;
        if request.flags != 0 {
            return Err(WinError::INVALID_PARAMETER);
        }
        Ok(Self::RemoveRoot { namespace })
    }
}

/// The path of a link.
fn link_of(text: &str) -> Result<EntryPath, WinError> {
    let path = EntryPath::of_entry(text)?;
    if path.is_root() { Err(WinError::INVALID_PARAMETER) } else { Ok(path) }
}

/// The name of a share that is a root.
fn root_name(share: &str) -> Result<String, WinError> {
    let path = EntryPath::of_entry(&alloc::format!(r"\\.server\{share}"))?;
    if path.is_root() { Ok(path.namespace) } else { Err(WinError::INVALID_PARAMETER) }
}

/// The name of the stand-alone namespace that a call means.
fn stand_alone(request: &RootTarget) -> Result<String, WinError> {
    // MS-DFSNM 3.1.4.1.9: a target path makes it a namespace of a domain.
    if request.target.is_some() {
        return Err(WinError::NOT_SUPPORTED);
    }
    let path = request.path.as_deref().ok_or(WinError::INVALID_PARAMETER)?;
    let path = EntryPath::of_entry(path)?;
    if path.is_root() { Ok(path.namespace) } else { Err(WinError::INVALID_PARAMETER) }
}

fn comment_of(info: &DfsInfo) -> Option<String> {
    Some(info.comment.clone().unwrap_or_default())
}

/// MS-DFSNM 2.2.4.1: the states that are valid for a root or a link. None for no change.
fn volume_state(path: &EntryPath, info: &DfsInfo) -> Result<Option<StateChange>, WinError> {
    match (VolumeState(info.state), path.is_root()) {
        // The namespace is always that of the file, so there is nothing to synchronise.
        (VolumeState::OK | VolumeState::RESYNCHRONIZE | VolumeState::FORCE_SYNC, true) => Ok(None),
        (VolumeState::OK | VolumeState::ONLINE, false) => Ok(Some(StateChange::Online)),
        (VolumeState::OFFLINE, false) => Ok(Some(StateChange::Offline)),
        // Only a root of a cluster of Windows has this state.
        (VolumeState::STANDBY, true) => Err(WinError::NOT_SUPPORTED),
        _ => Err(WinError::INVALID_PARAMETER),
    }
}

/// MS-DFSNM 2.2.4.6.
const fn storage_state(info: &DfsInfo) -> Result<StateChange, WinError> {
    match StorageState(info.state) {
        StorageState::OFFLINE => Ok(StateChange::Offline),
        StorageState::ONLINE => Ok(StateChange::Online),
        _ => Err(WinError::INVALID_PARAMETER),
    }
}

/// MS-DFSNM 2.2.2.7.
fn priority(info: &DfsInfo) -> Result<Priority, WinError> {
    let priority = info.priority;
    let is_valid =
        priority.class <= PriorityClass::GLOBAL_LOW && priority.rank <= Priority::LAST_RANK;
    if is_valid { Ok(priority) } else { Err(WinError::INVALID_PARAMETER) }
}

/// MS-DFSNM 2.2.4.3: the only property that can be set here is failback. None if the mask does not have it.
fn failback(path: &EntryPath, info: &DfsInfo) -> Result<Option<bool>, WinError> {
    let mask = info.property_mask;
    let known = Properties::INSITE_REFERRALS.0
        | Properties::ROOT_SCALABILITY.0
        | Properties::SITE_COSTING.0
        | Properties::TARGET_FAILBACK.0
        | Properties::CLUSTER_ENABLED.0
        | Properties::ABDE.0;
    let of_roots = Properties::SITE_COSTING.0 | Properties::ABDE.0;
    // MS-DFSNM 3.1.4.1.5: a property of roots is refused for a link.
    if mask.0 & !known != 0 || (!path.is_root() && mask.0 & of_roots != 0) {
        return Err(WinError::INVALID_PARAMETER);
    }
    // MS-DFSNM 2.2.4.3: this one is of roots of domains.
    let never = Properties::CLUSTER_ENABLED.0 | Properties::ROOT_SCALABILITY.0;
    let set = mask.0 & info.properties.0 & !Properties::TARGET_FAILBACK.0;
    if mask.0 & never != 0 || set != 0 {
        return Err(WinError::NOT_SUPPORTED);
    }
    let has = |bits: Properties| bits.contains(Properties::TARGET_FAILBACK);
    Ok(has(mask).then(|| has(info.properties)))
}

/// DFS_INFO_150: a link has no access list of its own, so only the absence of one can be set.
fn no_descriptor(path: &EntryPath, info: &DfsInfo) -> Result<Settings, WinError> {
    let has_one = info.security_descriptor.as_ref().is_some_and(|bytes| !bytes.is_empty());
    if path.is_root() || has_one { Err(WinError::NOT_SUPPORTED) } else { Ok(Settings::default()) }
}

/// DFS_INFO_105 and DFS_INFO_107, MS-DFSNM 2.2.4.5 and 2.2.4.7.
fn whole(path: &EntryPath, info: &DfsInfo) -> Result<Settings, WinError> {
    if info.security_descriptor.is_some() {
        return Err(WinError::NOT_SUPPORTED);
    }
    let state = match VolumeState(info.state) {
        VolumeState::UNCHANGED => None,
        VolumeState::OFFLINE | VolumeState::ONLINE => volume_state(path, info)?,
        _ => return Err(WinError::INVALID_PARAMETER),
    };
    Ok(Settings {
        comment: info.comment.clone(),
        state,
        ttl: Some(info.timeout),
        failback: failback(path, info)?,
        priority: None,
    })
}
