//! Locations: `smb://user@host:port/share/path`, or a local path.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_client::{ParseUrlError, ServerName, Share, SmbUrl};
use frevo_store::snapshot::Moment;

use super::spelling;
use frevo_wire::fscc::fold_name;

/// A server, share or file of a server: the client's URL, with the path as the wire spells it, but
/// perhaps with wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    place: SmbUrl,
    /// The token of the snapshot that the file is looked for in; None for the present.
    snapshot: Option<String>,
}

impl Deref for Url {
    type Target = SmbUrl;

    fn deref(&self) -> &SmbUrl {
        &self.place
    }
}

/// A file or directory on a server or on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// `smb://...` or `//host/share/...`
    Remote(Url),
    /// A path of this machine.
    Local(PathBuf),
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if SmbUrl::is_url(text) || is_smb1(text) {
            text.parse().map(Self::Remote)
        } else {
            Ok(Self::Local(text.into()))
        }
    }
}

/// True once a URL was `smb+quic://`.
static HAS_QUIC: AtomicBool = AtomicBool::new(false);

/// True if one of the command's URLs is `smb+quic://`.
pub(super) fn has_quic() -> bool {
    HAS_QUIC.load(Ordering::Relaxed)
}

/// True for a URL of a server that speaks only SMB1.
#[cfg(feature = "smb1")]
fn is_smb1(text: &str) -> bool {
    super::smb1::servers::without_scheme(text).is_some()
}

/// True for a URL of a server that speaks only SMB1, which this build does not reach.
#[cfg(not(feature = "smb1"))]
fn is_smb1(text: &str) -> bool {
    text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("smb1://"))
}

impl FromStr for Url {
    type Err = String;

    #[cfg(feature = "smb1")]
    fn from_str(text: &str) -> Result<Self, String> {
        let by_smb1 = super::smb1::servers::without_scheme(text);
        let found = Self::read(by_smb1.as_deref().unwrap_or(text))?;
        super::smb1::servers::note(server_key(&found.server), by_smb1.is_some())?;
        Ok(found)
    }

    #[cfg(not(feature = "smb1"))]
    fn from_str(text: &str) -> Result<Self, String> {
        if is_smb1(text) {
            return Err(String::from(
                "this program has no SMB1; the program of the package frevo-legacy has it (docs/smb1.md)",
            ));
        }
        Self::read(text)
    }
}

impl Url {
    fn read(text: &str) -> Result<Self, String> {
        let spelled = spelling::with_stand_ins(text);
        let mut found: SmbUrl = spelled.parse().map_err(|error| match error {
            ParseUrlError::Password => String::from(
                "do not write the password into the URL, where other users can see it; use \
                     --credentials or FREVO_PASSWORD, or type it when asked",
            ),
            other => other.to_string(),
        })?;
        let (snapshot, path) = taken_out(&found.path);
        if taken_out(&path).0.is_some() {
            return Err(format!("{text}: it names two snapshots; a file is in one"));
        }
        found.path = spelling::path_to_wire(&path).map_err(|why| format!("{text}: {why}"))?;
        HAS_QUIC.fetch_or(found.over_quic, Ordering::Relaxed);
        Ok(Self { place: found, snapshot })
    }

    /// The URL of `path` in `share`, with its user.
    pub(crate) fn in_share(share: &Share, path: impl Into<String>) -> Self {
        let session = share.session();
        let mut url = SmbUrl::new(session.server().clone(), share.name(), path);
        url.user = Some(session.user().into());
        url.over_quic = session.requires_quic();
        Self { place: url, snapshot: share.snapshot().map(str::to_owned) }
    }

    /// The token of the snapshot that the URL leads into.
    pub(crate) fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_deref()
    }

    /// The URL of the same file in a snapshot.
    pub(crate) fn in_snapshot(&self, moment: Moment) -> Self {
        Self { place: self.place.clone(), snapshot: Some(moment.to_string()) }
    }

    /// The URL of the same file in the present.
    pub(crate) fn of_the_present(&self) -> Self {
        Self { place: self.place.clone(), snapshot: None }
    }

    /// `share` at the time of the snapshot that the URL leads into.
    pub(crate) fn at_its_time(&self, share: Share) -> Share {
        let found = self.snapshot.as_deref().and_then(|token| share.in_snapshot(token));
        found.unwrap_or(share)
    }

    /// The URL of another path in this share.
    pub(crate) fn at(&self, path: impl Into<String>) -> Self {
        let mut url = self.with_path(path);
        url.place.ends_in_slash = false;
        url
    }

    /// The URL of another path in this share, which means a directory if this one does.
    pub(crate) fn with_path(&self, path: impl Into<String>) -> Self {
        let mut url = self.clone();
        url.place.path = path.into();
        url
    }

    /// The path in the share.
    pub(crate) fn into_path(self) -> String {
        self.place.path
    }

    /// The URL of `path` in `share`, which this one leads to.
    pub(crate) fn led_to(&self, share: &Share, path: impl Into<String>) -> Self {
        let mut url = self.with_path(path);
        url.place.server = share.session().server().clone();
        url.place.share = share.name().into();
        url
    }

    /// The URL with asterisks and question marks as parts of names.
    pub(crate) fn at_name(&self) -> Self {
        self.with_path(spelling::literal(&self.path))
    }

    /// The path of `name` below this one.
    pub(crate) fn below(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// The scheme by which the server is reached.
    fn scheme(&self) -> &'static str {
        #[cfg(feature = "smb1")]
        if super::smb1::servers::is_written_so(&server_key(&self.server)) {
            return super::smb1::servers::SCHEME;
        }
        if self.place.over_quic { "smb+quic://" } else { "smb://" }
    }

    /// True when both URLs name the same file, ignoring case.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        self.is_in_share_of(other)
            && self.snapshot == other.snapshot
            && self.names() == other.names()
    }

    /// True when the URL is below `tree` by its names, ignoring case.
    pub(crate) fn is_inside(&self, tree: &Self) -> bool {
        let (path, tree_path) = (self.names(), tree.names());
        self.is_in_share_of(tree)
            && self.snapshot == tree.snapshot
            && path.len() > tree_path.len()
            && path.starts_with(&tree_path)
    }

    /// True when both URLs name the same share, ignoring case.
    pub(crate) fn is_in_share_of(&self, other: &Self) -> bool {
        is_same_server(&self.server, &other.server)
            && fold_name(&self.share) == fold_name(&other.share)
    }

    /// The names that its path is made of.
    fn names(&self) -> Vec<String> {
        let names = self.path.split('/').filter(|name| !name.is_empty());
        names.map(str::to_lowercase).collect()
    }
}

/// Returns the spelling of a server by which it is compared: `box`, `BOX` and `box:445` have the same.
pub(crate) fn server_key(server: &ServerName) -> String {
    let named = ServerName::new(server.host.to_lowercase());
    named.at_port(server.tcp_port()).to_string()
}

/// True when both names mean the same server at the same port of TCP, however they are spelled.
pub(crate) fn is_same_server(one: &ServerName, other: &ServerName) -> bool {
    server_key(one) == server_key(other)
}

/// The first component of a path that is the token of a snapshot, and the path without it.
fn taken_out(path: &str) -> (Option<String>, String) {
    let is_token = |part: &&str| Moment::of_token(part).is_some();
    let parts: Vec<&str> = path.split(['/', '\\']).collect();
    let Some(at) = parts.iter().position(is_token) else { return (None, path.to_owned()) };
    let (before, after) = parts.split_at(at);
    let token = after.first().map(|token| token.to_ascii_uppercase());
    let rest: Vec<&str> = before.iter().chain(after.iter().skip(1)).copied().collect();
    (token, rest.join("/"))
}

/// True when no two of `urls` are one place, and none is below another, by their names and ignoring
/// case.
pub(crate) fn are_apart(urls: &[Url]) -> bool {
    let place = |url: &Url| {
        let mut place = vec![server_key(&url.server), url.share.to_lowercase()];
        place.extend(url.names());
        place
    };
    let mut places: Vec<Vec<String>> = urls.iter().map(place).collect();
    places.sort_unstable();
    // After sorting, a location inside of another one follows it directly, so it is enough to
    // compare neighbours.
    places.windows(2).all(|pair| !matches!(pair, [above, below] if below.starts_with(above)))
}

/// The directory of `name`, empty at the top.
pub(crate) fn folder(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `name` in the directory `path`.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// The name of a user with escapes for the characters that would end it.
fn escaped(name: &str) -> String {
    let mut text = name.replace('%', "%25");
    for (one, escape) in [('/', "%2F"), ('@', "%40"), (':', "%3A"), ('\\', "%5C")] {
        text = text.replace(one, escape);
    }
    text
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL is printed with escapes, so that other commands accept it.
        f.write_str(self.scheme())?;
        if let Some(user) = &self.user {
            write!(f, "{}@", escaped(user))?;
        }
        write!(f, "{}", self.server)?;
        if !self.share.is_empty() {
            write!(f, "/{}", self.share.replace('%', "%25"))?;
        }
        if let Some(token) = &self.snapshot {
            write!(f, "/{token}")?;
        }
        if !self.path.is_empty() {
            write!(f, "/{}", spelling::in_url(&self.path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn inside_is_below_by_whole_names() {
        let inside = |path: &str, tree: &str| {
            url(&format!("smb://box/s/{path}")).is_inside(&url(&format!("smb://ann@BOX/S/{tree}")))
        };
        assert!(inside("t/inside", "t") && inside("T/a/b", "t/A") && inside("x", ""));
        assert!(!inside("t", "t") && !inside("tt/x", "t") && !inside("a", "t/a"));
        for other in ["smb://box/other/t", "smb://elsewhere/s/t", "smb://box:446/s/t"] {
            assert!(!url("smb://box/s/t/x").is_inside(&url(other)), "{other}");
        }
        assert!(url("smb://box/s/a//b").is_same_place(&url("smb://ann@Box/S/A/b")));
        assert!(!url("smb://box/s/a").is_same_place(&url("smb://box/s/ab")));
        let over_quic = "smb+quic://ann@box:4433/s/a";
        assert_eq!(url(over_quic).to_string(), over_quic);
        assert!(url("smb://box:445/s/a/b").is_inside(&url("smb://Box/s/a")));
    }

    #[test]
    fn a_token_in_the_path_names_a_snapshot() {
        let token = "@GMT-2024.02.29-12.00.00";
        for text in [format!("{token}/a/b"), format!("a/{token}/b"), format!("a/b/{token}")] {
            let found = url(&format!("smb://ann@box/s/{text}"));
            assert_eq!((found.snapshot(), &*found.path), (Some(token), "a/b"), "{text}");
            assert_eq!(found.to_string(), format!("smb://ann@box/s/{token}/a/b"));
            assert_eq!(url(&found.to_string()), found);
            // The snapshot's file and the live file are different places, so `cp` can restore the
            // file.
            let live = url("smb://ann@box/s/a/b");
            assert!(!found.is_same_place(&live) && !found.is_inside(&url("smb://ann@box/s/a")));
            assert!(found.at("a").snapshot().is_some());
        }
        let root = url(&format!("smb://box/s/{token}"));
        assert_eq!((root.snapshot(), &*root.path), (Some(token), ""));
        assert_eq!(url("smb://box/s/@GMT-2024.02.30-12.00.00/a").snapshot(), None, "no day");
        let two = format!("smb://box/s/{token}/a/@gmt-2024.02.28-12.00.00/b").parse::<Url>();
        assert!(two.unwrap_err().contains("two snapshots"));
    }

    #[test]
    fn what_other_programs_write_is_understood() {
        for text in
            ["smb://box//s//a///b//", "smb://box/s\\a\\b", "smb://box\\s/a\\b\\", "//box//s/a//b"]
        {
            let found = url(text);
            assert_eq!((&*found.share, &*found.path), ("s", "a/b"), "{text}");
            assert_eq!(found.ends_in_slash, text.ends_with(['/', '\\']), "{text}");
        }
        let found = url("smb://LAB\\ann@box/s/a");
        assert_eq!(found.user.as_deref(), Some("LAB\\ann"));
        assert_eq!(url("smb://box/s/a%5Cb").path, "a\u{f026}b", "part of a name");
    }

    #[test]
    fn places_that_overlap_are_not_apart() {
        let apart = |paths: &[&str]| {
            let urls = paths.iter().map(|path| url(&format!("smb://box/s/{path}")));
            are_apart(&urls.collect::<Vec<_>>())
        };
        assert!(apart(&["a", "b", "a-b", "a b", "ab/c"]) && apart(&["a"]) && apart(&[]));
        assert!(!apart(&["x", "a/b/c", "A"]) && !apart(&["a", "a"]) && !apart(&["", "a"]));
        let two = |one, other| are_apart(&[url(one), url(other)]);
        assert!(!two("smb://box/s/d", "smb://BOX:445/s/d/x"));
        assert!(!two("smb://[::1]:445/s/d", "smb://[::1]/s/d"));
        assert!(two("smb://box/s/d", "smb://box:4450/s/d/x"));
    }

    #[test]
    fn a_server_with_the_usual_port_is_the_one_without() {
        let same =
            |one: &str, other: &str| is_same_server(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(same("box", "box:445") && same("Box:445", "box") && same("[::1]:445", "[::1]"));
        assert!(!same("box", "box:446") && !same("box", "other") && !same("[::1]", "[::2]"));
    }

    #[test]
    fn a_url_is_written_as_it_is_read() {
        for text in ["smb://[2001:db8::1]:99/s", "smb://LAB;ann%40home@box/s/x"] {
            assert_eq!(url(text).to_string(), text);
        }
        assert_eq!(url("smb://LAB;ann%40home@box/s/x").user.as_deref(), Some("LAB;ann@home"));
        assert_eq!(url(&url("//box/s/100%/x y").to_string()).path, "100%/x y");
    }

    #[test]
    fn what_is_no_url_says_why() {
        assert!("http://x/".parse::<Url>().unwrap_err().contains("smb://USER@HOST"));
        let password = "smb://ann:secret@box/x".parse::<Url>().unwrap_err();
        assert!(password.contains("--credentials") && !password.contains("secret"));
        assert_eq!("./a:b".parse(), Ok(Location::Local("./a:b".into())));
    }
}
