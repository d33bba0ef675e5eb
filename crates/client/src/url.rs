//! Places on servers: `smb://user@host:port/share/path`.

use std::fmt;
use std::str::FromStr;

use crate::dial::ServerName;

/// A server, a share, and a path in it.
///
/// Its text form is `smb://USER@HOST:PORT/SHARE/PATH`, or `smb+quic://...` for SMB over QUIC, with `%20` and the like for bytes
/// that a URL cannot have, or a UNC path, `\\HOST\SHARE\PATH` or `//HOST/SHARE/PATH`.
///
/// ```
/// use frevo_client::SmbUrl;
///
/// let url: SmbUrl = "smb://ann@files.example/photos/2024/a%20b.jpg".parse()?;
/// assert_eq!(url.user.as_deref(), Some("ann"));
/// assert_eq!((&*url.share, &*url.path), ("photos", "2024/a b.jpg"));
/// # Ok::<(), frevo_client::ParseUrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SmbUrl {
    /// The user, if the URL names one; `DOMAIN;user` names a domain too.
    pub user: Option<String>,
    /// True if the server is to be reached over QUIC:
    /// [`Quic::Required`](crate::Quic::Required) of the client's options.
    pub over_quic: bool,
    /// The host of the server, and its port if the URL names one.
    pub server: ServerName,
    /// The name of the share; empty if the URL names only a server.
    pub share: String,
    /// The path in the share, with `/` between its names and none around it; empty for the
    /// share's root.
    pub path: String,
    /// True if the text ended in `/`, which means a directory.
    pub ends_in_slash: bool,
}

/// The error of text that is not the URL of a place on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseUrlError {
    /// The text is neither a `smb://` URL nor a UNC path.
    NotSmb(String),
    /// The URL contains a password, which other users of the machine could see.
    Password,
    /// The URL names no server.
    NoServer,
    /// An IPv6 address has no closing bracket.
    UnclosedBracket,
    /// The port is not a number from 0 to 65535.
    Port(String),
    /// A percent sign is not followed by two hexadecimal digits.
    Escape(String),
    /// The unescaped bytes are not UTF-8.
    NotUtf8(String),
}

impl fmt::Display for ParseUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSmb(text) => {
                write!(f, "`{text}` is not a server address; write smb://USER@HOST/SHARE/PATH")
            }
            Self::Password => f.write_str(
                "a password in a URL can be seen by other users; leave it out of the URL",
            ),
            Self::NoServer => f.write_str("no server is named; write HOST or HOST:PORT"),
            Self::UnclosedBracket => f.write_str("an IPv6 address must end with ]"),
            Self::Port(port) => write!(f, "`{port}` is not a port; write a number up to 65535"),
            Self::Escape(text) => write!(f, "`{text}`: write %25 for a percent sign"),
            Self::NotUtf8(text) => write!(f, "`{text}` is not UTF-8"),
        }
    }
}

impl std::error::Error for ParseUrlError {}

impl SmbUrl {
    /// Returns the URL of `path` in a share.
    pub fn new(
        server: impl Into<ServerName>,
        share: impl Into<String>,
        path: impl Into<String>,
    ) -> Self {
        Self {
            user: None,
            over_quic: false,
            server: server.into(),
            share: share.into(),
            path: path.into(),
            ends_in_slash: false,
        }
    }

    /// Returns true if `text` has the form of a URL or a UNC path, also a wrong one: not a
    /// local path.
    pub fn is_url(text: &str) -> bool {
        scheme(text).is_some() || text.starts_with("//") || text.starts_with("\\\\")
    }
}

/// The scheme of SMB.
pub(crate) const OVER_ANY: &str = "smb://";

/// The scheme of SMB over QUIC.
pub(crate) const OVER_QUIC: &str = "smb+quic://";

/// The scheme that a text begins with.
fn scheme(text: &str) -> Option<&'static str> {
    let begins = |scheme: &&str| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    [OVER_ANY, OVER_QUIC].into_iter().find(begins)
}

impl FromStr for SmbUrl {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseUrlError> {
        if !Self::is_url(text) {
            return Err(ParseUrlError::NotSmb(text.into()));
        }
        // A UNC path is taken literally, but a URL may contain percent escapes.
        let scheme = scheme(text);
        let is_unc = scheme.is_none();
        let rest = text.get(scheme.map_or(2, str::len)..).unwrap_or_default();
        let rest = if is_unc { rest.replace('\\', "/") } else { with_slashes(rest) };
        let (authority, path) = rest.split_once('/').unwrap_or((&rest, ""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => return Err(ParseUrlError::Password),
            Some((user, host)) => (Some(unescape(user)?), host),
            None => (None, authority),
        };
        let server = host.parse()?;
        let path = if is_unc { path.to_owned() } else { unescape(path)? };
        let path = path.trim_start_matches('/');
        let (share, path) = path.split_once('/').unwrap_or((path, ""));
        let ends_in_slash = path.ends_with('/');
        let path = path.trim_matches('/').to_owned();
        let (share, over_quic) = (share.to_owned(), scheme == Some(OVER_QUIC));
        Ok(Self { user, over_quic, server, share, path, ends_in_slash })
    }
}

impl fmt::Display for SmbUrl {
    /// Writes the URL without the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.over_quic { OVER_QUIC } else { OVER_ANY };
        write!(f, "{scheme}{}/{}", self.server, self.share)?;
        if !self.path.is_empty() {
            write!(f, "/{}", self.path.replace('%', "%25"))?;
        }
        Ok(())
    }
}

/// A URL behind its scheme, in which a backslash separates names as a slash does: no name on a server
/// has one. The user may have one: `DOMAIN\user@`.
fn with_slashes(rest: &str) -> String {
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, place) = rest.split_at(authority.rfind('@').unwrap_or(0));
    format!("{user}{}", place.replace('\\', "/"))
}

/// Replaces `%41` and the like by the bytes they stand for.
fn unescape(text: &str) -> Result<String, ParseUrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.first_chunk::<2>().and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| ParseUrlError::Escape(text.into()))?);
        rest = rest.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_err(|_| ParseUrlError::NotUtf8(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> SmbUrl {
        text.parse().unwrap()
    }

    #[test]
    fn urls_and_unc_paths_are_read() {
        let found = url("smb://ann@box:4450/photos/a%20b/c/");
        assert_eq!(found.user.as_deref(), Some("ann"));
        assert_eq!(found.server, ServerName::new("box").at_port(4450));
        assert_eq!((&*found.share, &*found.path), ("photos", "a b/c"));
        assert!(found.ends_in_slash && !url("smb://box/s/a").ends_in_slash);
        let found = url("//box/photos/100%/x");
        assert_eq!((&*found.share, &*found.path), ("photos", "100%/x"));
        assert_eq!(url("\\\\box\\photos\\x").path, "x");
        let found = url("smb://[2001:db8::1]:99/s");
        assert_eq!((&*found.server.host, found.server.port), ("2001:db8::1", Some(99)));
        assert_eq!(found.to_string(), "smb://[2001:db8::1]:99/s");
        // A port in the URL is used for every transport. Without one, each transport has a port of
        // its own.
        let (named, usual) = (url("smb://box:445/s").server, url("smb://box/s").server);
        assert_eq!((named.port, named.tcp_port()), (Some(445), 445));
        assert_eq!((usual.port, usual.tcp_port()), (None, 445));
        assert_eq!(url("SMB://box").share, "");
        for text in ["smb://box//s/x", "smb://box\\s\\x", "smb://A\\ann@box/s\\x", "//box//s/x"] {
            assert_eq!((&*url(text).share, &*url(text).path), ("s", "x"), "{text}");
        }
        assert_eq!(url("smb://A\\ann@box/s").user.as_deref(), Some("A\\ann"));
        assert_eq!(url(&url("//box/s/100%/x y").to_string()).path, "100%/x y");
        let found = url("smb+QUIC://ann@box:4433/s/x");
        assert_eq!(found.to_string(), "smb+quic://box:4433/s/x");
        assert!(found.over_quic && !url("smb://box/s").over_quic && SmbUrl::is_url("smb+quic://"));
    }

    #[test]
    fn a_wrong_url_is_told_why() {
        use ParseUrlError as Wrong;
        for (text, wrong) in [
            ("http://x/", Wrong::NotSmb("http://x/".into())),
            ("smb:///share", Wrong::NoServer),
            ("smb://box:port/x", Wrong::Port("port".into())),
            ("smb://box/%zz", Wrong::Escape("%zz".into())),
            ("smb://box/%ff", Wrong::NotUtf8("%ff".into())),
            ("smb://[::1/x", Wrong::UnclosedBracket),
            ("smb://ann:secret@box/x", Wrong::Password),
            ("x", Wrong::NotSmb("x".into())),
        ] {
            assert_eq!(text.parse::<SmbUrl>(), Err(wrong.clone()), "{text}");
            assert!(!wrong.to_string().contains("secret"));
        }
        assert_eq!("dc:99".parse(), Ok(ServerName::new("dc").at_port(99)));
        assert!("smb://dc".parse::<ServerName>().is_err() && "".parse::<ServerName>().is_err());
    }
}
