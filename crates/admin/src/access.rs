//! The right to use the interface.

use std::fmt;
use std::net::IpAddr;

use hyper::{HeaderMap, Version};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::limits::TOKEN_CHARS_MIN;

/// The secret that requests on TCP must have. Only its hash is kept.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// Makes the token of a text.
    ///
    /// # Errors
    /// When the text is too short to be a secret, or has characters that no header can have.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < TOKEN_CHARS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token needs at least {TOKEN_CHARS_MIN} letters, digits or signs, without blanks"
            ));
        }
        Ok(Self::of(text))
    }

    /// The token of a text that this program has made.
    pub(crate) fn of(text: &str) -> Self {
        Self(digest(text))
    }

    /// True if both are the token of one text.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// True for the text of the token. The time of the comparison tells nothing: hashes are
    /// compared, whole.
    pub(crate) fn is(&self, text: &str) -> bool {
        let pairs = self.0.iter().zip(digest(text));
        pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The tokens of an interface.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    /// The one that shows the server. Without `manage` it ends sessions too, and has snapshots made.
    pub look: Option<Token>,
    /// The one that changes users, shares and limits.
    pub manage: Option<Token>,
}

impl Tokens {
    /// The rights that a text gives; None for the wrong one. Both tokens are compared in any case.
    pub(crate) fn rights_of(&self, text: &str) -> Option<Rights> {
        let is = |token: &Option<Token>| token.as_ref().is_some_and(|token| token.is(text));
        match (is(&self.manage), is(&self.look)) {
            (true, _) => Some(Rights::Manage),
            (false, true) if self.manage.is_some() => Some(Rights::Look),
            (false, true) => Some(Rights::Act),
            (false, false) => None,
        }
    }
}

/// The rights of a request. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rights {
    /// To see the server.
    Look,
    /// To end sessions, have snapshots made and files read again.
    Act,
    /// To change users, shares and limits.
    Manage,
}

/// The other end of a connection, by the socket that it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The kernel vouches for it: root, or the user of the server.
    Local,
    /// On TCP, where each request must have a token, or a session that a token has begun.
    Remote(Remote),
}

/// A client on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) address: IpAddr,
    /// True with TLS.
    pub(crate) is_secure: bool,
}

/// A client on TCP, for tests.
#[cfg(test)]
pub(crate) const STRANGER: Caller = Caller::Remote(Remote {
    address: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    is_secure: false,
});

/// True for the users that may use the Unix socket.
pub(crate) fn may_connect(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// True for a request that a browser makes for a page of another site: the browser has the right
/// to connect, and the page has not. A page that has its own name resolve to this machine asks for
/// another host than localhost; on TCP the token keeps it out.
pub(crate) fn is_of_another_site(headers: &HeaderMap, caller: Caller) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text("host").unwrap_or_default();
    if caller == Caller::Local && !is_this_machine(host) {
        return true;
    }
    match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            origin.split_once("://").is_none_or(|(_, of)| !of.eq_ignore_ascii_case(host))
        }
        (None, None) => false,
    }
}

/// True for `localhost` and loopback addresses, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns the token of an Authorization field; empty where its scheme is another one. RFC 9110
/// 11.1: the name of the scheme has no case, and blanks follow it.
pub(crate) fn bearer(text: &str) -> &str {
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            token.trim_start_matches(' ')
        }
        _ => "",
    }
}

/// The fields that decide about a request. Each may come once: who reads the first one and who reads
/// the last one would see two requests.
const SINGLE_FIELDS: [&str; 6] =
    ["host", "authorization", "origin", "sec-fetch-site", "cookie", CSRF_FIELD];

/// The field that a request of a page has and that one of a form of another site cannot have.
pub(crate) const CSRF_FIELD: &str = "x-frevo-csrf";

/// The text of a field; None also for one that is no text.
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The reason why the header fields of a request are refused with 400, if they are. RFC 9112 3.2: a
/// request of HTTP/1.1 has one Host field, which can be read.
pub(crate) fn fault_of(headers: &HeaderMap, version: Version) -> Option<String> {
    for name in SINGLE_FIELDS {
        if headers.get_all(name).iter().count() > 1 {
            return Some(format!("the request has more than one {name} field"));
        }
    }
    match headers.get("host") {
        Some(host) if host.to_str().is_err() => Some(String::from("the Host field is malformed")),
        None if version >= Version::HTTP_11 => Some(String::from("the request has no Host field")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_kept_out() {
        let foreign = |pairs: &[(&'static str, &str)], caller| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            is_of_another_site(&headers, caller)
        };
        for host in
            ["localhost", "localhost:9445", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]"]
        {
            assert!(!foreign(&[("host", host)], Caller::Local), "{host}");
        }
        for host in ["", "box.example:80", "localhost.example", "192.0.2.1", "127.0.0.1.example"] {
            assert!(foreign(&[("host", host)], Caller::Local), "{host}");
            assert!(!foreign(&[("host", host)], STRANGER), "{host}");
        }
        for caller in [Caller::Local, STRANGER] {
            let host = ("host", "localhost:9445");
            assert!(!foreign(&[host, ("origin", "http://localhost:9445")], caller));
            assert!(foreign(&[host, ("origin", "http://localhost:8000")], caller));
            assert!(foreign(&[host, ("origin", "null")], caller));
            for (site, is_foreign) in
                [("same-origin", false), ("none", false), ("same-site", true), ("cross-site", true)]
            {
                assert_eq!(
                    foreign(&[host, ("sec-fetch-site", site)], caller),
                    is_foreign,
                    "{site}"
                );
            }
        }
    }

    #[test]
    fn fields_that_decide_come_once() {
        let fault = |pairs: &[(&'static str, &[u8])], version| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, hyper::header::HeaderValue::from_bytes(value).unwrap());
            }
            fault_of(&headers, version).is_some()
        };
        let host = ("host", &b"localhost"[..]);
        assert!(!fault(&[host], Version::HTTP_11));
        assert!(fault(&[], Version::HTTP_11) && !fault(&[], Version::HTTP_10));
        assert!(fault(&[("host", b"caf\xe9")], Version::HTTP_11));
        for name in SINGLE_FIELDS {
            let twice = [host, (name, b"localhost"), (name, b"localhost")];
            assert!(fault(&twice, Version::HTTP_11), "{name}");
        }
        assert!(!fault(&[host, ("accept", b"a"), ("accept", b"b")], Version::HTTP_11));
    }

    #[test]
    fn tokens_give_different_rights() {
        let token = |text: &str| Some(Token::new(text).unwrap());
        let (look, manage) = ("correct-horse-battery", "staple-staple-staple");
        let both = Tokens { look: token(look), manage: token(manage) };
        assert_eq!(both.rights_of(look), Some(Rights::Look));
        assert_eq!(both.rights_of(manage), Some(Rights::Manage));
        // Without a managing token the other one can do what it always could, and no more.
        let one = Tokens { look: token(look), manage: None };
        assert_eq!(one.rights_of(look), Some(Rights::Act));
        for tokens in [&both, &one, &Tokens::default()] {
            assert_eq!(tokens.rights_of(""), None);
            assert_eq!(tokens.rights_of("staple-staple-stapl"), None);
        }
        assert!(Rights::Look < Rights::Act && Rights::Act < Rights::Manage);
    }

    #[test]
    fn a_token_is_itself_alone_and_never_shown() {
        let token = Token::new(" correct-horse-battery\n").unwrap();
        assert!(token.is("correct-horse-battery"));
        for wrong in ["", "correct-horse-batterz", "correct-horse-battery ", "c"] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        for bad in
            ["", "short", "has a blank in its middle", "b\u{e4}ttery-b\u{e4}ttery-b\u{e4}ttery"]
        {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
    }
}
