//! Names of namespaces, links and targets as calls give them.

use crate::WinError;
use alloc::format;
use alloc::string::{String, ToString};
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::fscc::name::utf16_units;

/// Longest component of a path, in UTF-16 units.
const COMPONENT_UNITS: usize = 255;
/// Characters that no component has, besides control characters (MS-FSCC 2.1.5.2).
const ILLEGAL: &str = "/:*?\"<>|";

/// The path of a root or of a link, MS-DFSNM 2.2.1.5 and 2.2.1.6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPath {
    /// The name by which the caller calls the server, or the name of a domain.
    pub server: String,
    /// DFSName; empty in the name of a server alone.
    pub namespace: String,
    /// LinkPath, without backslashes at its ends; empty for the root.
    pub link: String,
}

impl EntryPath {
    /// Parses `\\server\namespace\link`. MS-DFSNM 3.1.4.2.3: fewer backslashes may come first.
    ///
    /// # Errors
    /// INVALID_NAME for a name that no link can have.
    pub fn parse(text: &str) -> Result<Self, WinError> {
        let bare = text.strip_prefix('\\').unwrap_or(text);
        let bare = bare.strip_prefix('\\').unwrap_or(bare);
        let bare = bare.strip_suffix('\\').unwrap_or(bare);
        let mut parts = bare.splitn(3, '\\');
        let mut next = || parts.next().unwrap_or_default().to_string();
        let path = Self { server: next(), namespace: next(), link: next() };
        let is_gap = (path.server.is_empty() && !path.namespace.is_empty())
            || (path.namespace.is_empty() && !path.link.is_empty());
        let names = [&path.server, &path.namespace].into_iter().filter(|name| !name.is_empty());
        let is_legal = names.map(String::as_str).chain(path.components()).all(is_component);
        if is_gap || !is_legal { Err(WinError::INVALID_NAME) } else { Ok(path) }
    }

    /// Returns a path that names a namespace.
    ///
    /// # Errors
    /// INVALID_PARAMETER for the name of a server alone, INVALID_NAME as [`Self::parse`].
    pub(crate) fn of_entry(text: &str) -> Result<Self, WinError> {
        let path = Self::parse(text)?;
        let is_whole = !path.server.is_empty() && !path.namespace.is_empty();
        if is_whole { Ok(path) } else { Err(WinError::INVALID_PARAMETER) }
    }

    /// True for the root of the namespace.
    pub const fn is_root(&self) -> bool {
        self.link.is_empty()
    }

    /// The components of the path of the link.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        let count = if self.link.is_empty() { 0 } else { usize::MAX };
        self.link.split('\\').take(count)
    }
}

/// True for a name that a component of a path can have.
fn is_component(name: &str) -> bool {
    let is_legal = |c: char| !c.is_control() && !ILLEGAL.contains(c);
    !name.is_empty()
        && !matches!(name, "." | "..")
        && name.chars().all(is_legal)
        && utf16_units(name) <= COMPONENT_UNITS
}

/// A target of a link: ServerName and ShareName.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetName {
    /// The host, without backslashes before it.
    pub server: String,
    /// The share, and a path in it if there is one, without backslashes at their ends.
    pub share: String,
}

impl TargetName {
    /// Returns the target of these arguments; None where both are null pointers.
    ///
    /// # Errors
    /// INVALID_PARAMETER where one is a null pointer, or for names that no target can have.
    pub(crate) fn of(server: Option<&str>, share: Option<&str>) -> Result<Option<Self>, WinError> {
        // MS-DFSNM 3.1.4.1.4: one of the two alone is refused.
        let (Some(server), Some(share)) = (server, share) else {
            let is_none = server.is_none() && share.is_none();
            return if is_none { Ok(None) } else { Err(WinError::INVALID_PARAMETER) };
        };
        let server = server.trim_start_matches('\\');
        let share = share.strip_prefix('\\').unwrap_or(share);
        let share = share.strip_suffix('\\').unwrap_or(share);
        // An address of IPv6 has colons.
        let is_host = is_component(&server.replace(':', ".")) && !server.contains('\\');
        if !is_host || !share.split('\\').all(is_component) {
            return Err(WinError::INVALID_PARAMETER);
        }
        Ok(Some(Self { server: server.to_string(), share: share.to_string() }))
    }

    /// Parses `\\server\share`, with a path in the share if there is one.
    ///
    /// # Errors
    /// INVALID_PARAMETER for a path that no target can have.
    pub fn parse(unc: &str) -> Result<Self, WinError> {
        let bare = unc.strip_prefix(r"\\").ok_or(WinError::INVALID_PARAMETER)?;
        let (server, share) = bare.split_once('\\').ok_or(WinError::INVALID_PARAMETER)?;
        if share.starts_with('\\') {
            return Err(WinError::INVALID_PARAMETER);
        }
        Self::of(Some(server), Some(share))?.ok_or(WinError::INVALID_PARAMETER)
    }

    /// True for the same target. MS-DFSNM 3.1.4: host names are compared without case, as text.
    pub fn is(&self, server: &str, share: &str) -> bool {
        eq_ignore_case(&self.server, server) && eq_ignore_case(&self.share, share)
    }

    /// The target as a path: `\\server\share`.
    pub fn unc(&self) -> String {
        format!(r"\\{}\{}", self.server, self.share)
    }
}
