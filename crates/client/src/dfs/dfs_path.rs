//! Paths of DFS namespaces and of their targets.

use frevo_wire::fscc::fold_name;

use crate::dial::ServerName;

/// A path in a share of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DfsPath {
    pub(super) server: ServerName,
    pub(super) share: String,
    /// The path in the share, with `\`.
    pub(super) path: String,
}

impl DfsPath {
    /// Reads the target of a referral: `\server\share\path`. A server with an unusual port keeps
    /// it. `None` if the target is not valid.
    pub(super) fn of_target(target: &str, from: &ServerName) -> Option<Self> {
        let mut parts = target.split('\\').filter(|part| !part.is_empty());
        let (host, share) = (parts.next()?, parts.next()?);
        let path: Vec<_> = parts.collect();
        let odd = |c: char| c.is_control() || "/:\"*?<>|@".contains(c);
        if host.contains(odd)
            || share.contains(odd)
            || path.iter().any(|p| matches!(*p, "." | ".."))
        {
            return None;
        }
        let same = host.eq_ignore_ascii_case(&from.host);
        let server = ServerName { host: host.into(), port: from.port.filter(|_| same) };
        Some(Self { server, share: share.into(), path: path.join("\\") })
    }

    /// Returns the UNC path with one backslash before it, as in MS-DFSC 2.2.1.
    pub(super) fn unc(&self) -> String {
        let slash = if self.path.is_empty() { "" } else { "\\" };
        format!("\\{}\\{}{slash}{}", self.server.host, self.share, self.path)
    }

    /// Returns the URL with the scheme of the transport that is used.
    pub(super) fn url(&self, scheme: &str) -> String {
        let slash = if self.path.is_empty() { "" } else { "/" };
        let path = self.path.replace('\\', "/");
        format!("{scheme}{}/{}{slash}{path}", self.server, self.share)
    }

    pub(super) fn below(&self, rest: &str) -> Self {
        let slash = if self.path.is_empty() || rest.is_empty() { "" } else { "\\" };
        Self { path: format!("{}{slash}{rest}", self.path), ..self.clone() }
    }
}

/// Returns the part of `path` behind `prefix`, which is in lower case. `None` if `prefix` is
/// not a prefix of whole components.
pub(super) fn behind<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let mut parts = path.split('\\').filter(|part| !part.is_empty());
    for wanted in prefix.split('\\').filter(|part| !part.is_empty()) {
        if fold_name(parts.next()?) != wanted {
            return None;
        }
    }
    // The result is the path from its next component on, or empty if there is none.
    Some(parts.next().map_or("", |next| {
        let at = next.as_ptr() as usize - path.as_ptr() as usize;
        path.get(at..).unwrap_or_default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_can_be() {
        let from = ServerName::new("files").at_port(4450);
        let place = |unc| DfsPath::of_target(unc, &from);
        let found = place("\\Files\\data\\a\\b").unwrap();
        assert_eq!((found.server.port, &*found.path), (Some(4450), "a\\b"));
        for scheme in ["smb://", "smb+quic://"] {
            assert_eq!(found.url(scheme), format!("{scheme}Files:4450/data/a/b"));
        }
        assert_eq!(place("\\\\two\\data").unwrap().server.port, None);
        for odd in ["", "\\", "\\only", "\\a/b\\c", "\\a\\c\\..\\d", "\\a@b\\c", "\\a\u{1b}\\c"] {
            assert_eq!(place(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn whole_components_are_covered() {
        assert_eq!(behind("\\Files\\dfs\\Link\\x\\y", "\\files\\dfs\\link"), Some("x\\y"));
        assert_eq!(behind("\\files\\dfs\\link", "\\files\\dfs\\link"), Some(""));
        assert_eq!(behind("\\files\\dfs\\linked", "\\files\\dfs\\link"), None);
        assert_eq!(behind("\\files\\dfs", "\\files\\dfs\\link"), None);
    }
}
