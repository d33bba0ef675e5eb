//! Admission of requests: by the socket that they come to, by a token, or by a session that a token
//! has begun.

use std::cell::RefCell;
use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, COOKIE, HeaderValue, ORIGIN, SET_COOKIE, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::access::{CSRF_FIELD, Caller, Remote, Rights, Token, Tokens, bearer, field};
use crate::answers::{Answer, json, refusal};
use crate::connection_slots::Peer;
use crate::guesses::Guesses;
use crate::limits::WRONG_TOKEN_DELAY;
use crate::manage::Secret;
use crate::sessions::{Current, Sessions, cookie_of, key_in, no_cookie};

/// The value of the CSRF field on the Unix socket, where any is right.
const LOCAL: &str = "local";

const NO_CSRF: &str =
    "this changes something, and lacks the x-frevo-csrf field that /session tells";

/// The ways in: tokens, and sessions that these have begun.
pub(crate) struct Doors {
    tokens: Tokens,
    sessions: RefCell<Sessions>,
    guesses: RefCell<Guesses>,
}

/// The body of `POST /session`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogonBody {
    token: Secret,
}

/// The permission of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) rights: Rights,
    /// None on the Unix socket.
    pub(crate) address: Option<IpAddr>,
}

impl Pass {
    /// The pass of the Unix socket.
    pub(crate) const LOCAL: Self = Self { rights: Rights::Manage, address: None };

    /// The word for the way by which an administrator came.
    pub(crate) const fn by(&self) -> &'static str {
        match (self.address, self.rights) {
            (None, _) => "admin socket",
            (Some(_), Rights::Manage) => "manage token",
            (Some(_), _) => "admin token",
        }
    }

    /// The way and the address.
    pub(crate) fn by_and_from(&self) -> String {
        match self.address {
            Some(address) => format!("{} from {address}", self.by()),
            None => self.by().to_owned(),
        }
    }

    /// The refusal of a request that needs more rights, if it does.
    pub(crate) fn refusal(&self, rights: Rights) -> Option<Answer> {
        if self.rights >= rights {
            return None;
        }
        let why = match rights {
            Rights::Manage => "this needs the token of manage_token_file",
            _ => "this token may look only; the one of manage_token_file may do this",
        };
        Some(refusal(StatusCode::FORBIDDEN, why))
    }
}

impl Doors {
    pub(crate) fn new(tokens: Tokens) -> Self {
        Self { tokens, sessions: RefCell::default(), guesses: RefCell::default() }
    }

    /// Admits a request, or refuses it.
    pub(crate) async fn admit(
        &self,
        method: &Method,
        headers: &HeaderMap,
        caller: Caller,
    ) -> Result<Pass, Answer> {
        let Caller::Remote(Remote { address, .. }) = caller else { return Ok(Pass::LOCAL) };
        let address_of = |rights| Pass { rights, address: Some(address) };
        if let Some(text) = field(headers, AUTHORIZATION.as_str()) {
            return self.judge(bearer(text), address).await.map(address_of);
        }
        let key = field(headers, COOKIE.as_str()).and_then(key_in);
        let session = key.and_then(|key| self.session(key, address));
        let session = session.ok_or_else(unauthorized)?;
        // A request that changes nothing needs no more: other sites cannot read its answer.
        let has_csrf = || {
            let text = field(headers, CSRF_FIELD).unwrap_or_default();
            Token::of(&session.csrf).is(text)
        };
        if method != Method::GET && !has_csrf() {
            return Err(refusal(StatusCode::FORBIDDEN, NO_CSRF));
        }
        Ok(address_of(session.rights))
    }

    /// Judges a token. A wrong one is answered late, and none is judged after too many wrong ones.
    async fn judge(&self, text: &str, address: IpAddr) -> Result<Rights, Answer> {
        let network = Peer::at(address);
        if !self.guesses.borrow_mut().may_try(network, Instant::now()) {
            let why = "too many wrong tokens came from your network; wait a minute";
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, why));
        }
        if let Some(rights) = self.tokens.rights_of(text) {
            return Ok(rights);
        }
        self.guesses.borrow_mut().note(network, Instant::now());
        sleep(WRONG_TOKEN_DELAY).await;
        Err(unauthorized())
    }

    /// Begins a session. Returns its pass with the answer.
    pub(crate) async fn log_on(
        &self,
        body: &LogonBody,
        headers: &HeaderMap,
        caller: Caller,
    ) -> Result<(Pass, Answer), Answer> {
        let Caller::Remote(Remote { address, is_secure }) = caller else {
            return Ok((Pass::LOCAL, self.tell(headers, Pass::LOCAL)));
        };
        let rights = self.judge(body.token.text().trim(), address).await?;
        let begun = self.sessions.borrow_mut().begin(rights, Peer::at(address), Instant::now());
        let begun = begun.map_err(|why| refusal(StatusCode::SERVICE_UNAVAILABLE, &why))?;
        // A proxy with TLS speaks plain HTTP with this server; the page's origin tells of it.
        let origin = field(headers, ORIGIN.as_str()).unwrap_or_default();
        let cookie = cookie_of(&begun.key, is_secure || origin.starts_with("https://"));
        let answer = json(&json!({ "rights": rights, "csrf": begun.csrf }));
        Ok((Pass { rights, address: Some(address) }, with_cookie(answer, &cookie)))
    }

    /// Tells the rights of a request, and the CSRF token of its session.
    pub(crate) fn tell(&self, headers: &HeaderMap, pass: Pass) -> Answer {
        let key = field(headers, COOKIE.as_str()).and_then(key_in);
        let csrf = match pass.address {
            None => Some(String::from(LOCAL)),
            Some(address) => key.and_then(|key| self.session(key, address)).map(|one| one.csrf),
        };
        json(&json!({ "rights": pass.rights, "csrf": csrf, "local": pass.address.is_none() }))
    }

    /// The session of a cookie from an address.
    fn session(&self, key: &str, address: IpAddr) -> Option<Current> {
        self.sessions.borrow_mut().find(key, Peer::at(address), Instant::now())
    }

    /// Ends the session of a request.
    pub(crate) fn log_off(&self, headers: &HeaderMap) -> Answer {
        if let Some(key) = field(headers, COOKIE.as_str()).and_then(key_in) {
            self.sessions.borrow_mut().end(key);
        }
        with_cookie(json(&json!({ "ended": true })), &no_cookie())
    }
}

/// The refusal of a change on the Unix socket that a form of another page could have sent, if it is one.
pub(crate) fn csrf_refusal(headers: &HeaderMap, pass: Pass) -> Option<Answer> {
    let is_missing = pass.address.is_none() && field(headers, CSRF_FIELD).is_none();
    is_missing.then(|| refusal(StatusCode::FORBIDDEN, NO_CSRF))
}

fn with_cookie(mut answer: Answer, cookie: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().insert(SET_COOKIE, value);
    }
    answer
}

fn unauthorized() -> Answer {
    let mut answer = refusal(StatusCode::UNAUTHORIZED, "this needs the token of the server");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::STRANGER;
    use crate::limits::WRONG_TOKENS;

    const LOOK: &str = "correct-horse-battery";
    const MANAGE: &str = "staple-staple-staple";

    fn doors() -> Doors {
        let token = |text| Some(Token::new(text).unwrap());
        Doors::new(Tokens { look: token(LOOK), manage: token(MANAGE) })
    }

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    }

    /// The rights that a request has, or the status of its refusal.
    async fn admitted(
        doors: &Doors,
        method: &Method,
        pairs: &[(&'static str, &str)],
    ) -> Result<Rights, u16> {
        let admitted = doors.admit(method, &fields(pairs), STRANGER).await;
        admitted.map(|pass| pass.rights).map_err(|answer| answer.status().as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_token_is_answered_late() {
        let doors = doors();
        for (expected, header, delay) in [
            (Ok(Rights::Look), Some("Bearer correct-horse-battery"), Duration::ZERO),
            (Ok(Rights::Manage), Some("bearer staple-staple-staple"), Duration::ZERO),
            (Ok(Rights::Look), Some("BEARER  correct-horse-battery"), Duration::ZERO),
            (Err(401), Some("Basic correct-horse-battery"), WRONG_TOKEN_DELAY),
            (Err(401), Some("Bearercorrect-horse-battery"), WRONG_TOKEN_DELAY),
            (Err(401), None, Duration::ZERO),
            (Err(401), Some("Bearer wrong"), WRONG_TOKEN_DELAY),
            (Err(401), Some("correct"), WRONG_TOKEN_DELAY),
        ] {
            let began = Instant::now();
            let pairs: Vec<_> =
                header.map(|header| ("authorization", header)).into_iter().collect();
            assert_eq!(admitted(&doors, &Method::GET, &pairs).await, expected, "{header:?}");
            assert_eq!(began.elapsed(), delay, "{header:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_wrong_tokens_even_the_right_one_waits() {
        let doors = doors();
        let get = Method::GET;
        let with = |text| doors.admit(&get, text, STRANGER);
        let (wrong, right) = (
            fields(&[("authorization", "Bearer wrong")]),
            fields(&[("authorization", "Bearer staple-staple-staple")]),
        );
        for _ in 0..WRONG_TOKENS {
            assert_eq!(with(&wrong).await.unwrap_err().status(), 401);
        }
        assert_eq!(with(&wrong).await.unwrap_err().status(), 429);
        assert_eq!(with(&right).await.unwrap_err().status(), 429);
        tokio::time::advance(crate::limits::WRONG_TOKENS_TIME).await;
        assert!(with(&right).await.is_ok());
    }

    /// Logs on, and returns the fields Cookie and CSRF of the session.
    async fn session(doors: &Doors, token: &str, origin: &str) -> (String, String, String) {
        let body = LogonBody { token: Secret::from(token.to_owned()) };
        let headers = fields(&[("origin", origin)]);
        let (pass, answer) = doors.log_on(&body, &headers, STRANGER).await.unwrap();
        assert_eq!(pass.address.map(|address| address.to_string()).unwrap(), "192.0.2.1");
        let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        let cookie = set.split(';').next().unwrap().to_owned();
        let key = key_in(&cookie).unwrap().to_owned();
        let csrf = doors.session(&key, [192, 0, 2, 1].into()).unwrap().csrf;
        (cookie, csrf, set)
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_changes_nothing_without_its_csrf_token() {
        let doors = doors();
        let (cookie, csrf, set) = session(&doors, MANAGE, "http://box:9445").await;
        assert!(!set.contains("Secure") && set.contains("HttpOnly"), "{set}");
        assert!(session(&doors, LOOK, "https://box").await.2.contains("; Secure"));
        let (other, _, _) = session(&doors, LOOK, "http://box").await;
        let cookie_alone = [("cookie", &*cookie)];
        assert_eq!(admitted(&doors, &Method::GET, &cookie_alone).await, Ok(Rights::Manage));
        for method in [Method::POST, Method::DELETE, Method::PUT, Method::HEAD] {
            assert_eq!(admitted(&doors, &method, &cookie_alone).await, Err(403));
            let wrong = [("cookie", &*cookie), (CSRF_FIELD, "local")];
            assert_eq!(admitted(&doors, &method, &wrong).await, Err(403));
            let of_another = [("cookie", &*other), (CSRF_FIELD, &*csrf)];
            assert_eq!(admitted(&doors, &method, &of_another).await, Err(403));
            let right = [("cookie", &*cookie), (CSRF_FIELD, &*csrf)];
            assert_eq!(admitted(&doors, &method, &right).await, Ok(Rights::Manage));
        }
        doors.log_off(&fields(&cookie_alone));
        assert_eq!(admitted(&doors, &Method::GET, &cookie_alone).await, Err(401));
        let body = LogonBody { token: Secret::from(String::from("wrong")) };
        let refused = doors.log_on(&body, &HeaderMap::new(), STRANGER).await;
        assert_eq!(refused.map(|_| ()).unwrap_err().status(), 401);
    }

    #[test]
    fn a_pass_says_who_came_from_where() {
        assert_eq!(Pass::LOCAL.by_and_from(), "admin socket");
        let pass = |rights| Pass { rights, address: Some([192, 0, 2, 7].into()) };
        assert_eq!(pass(Rights::Manage).by_and_from(), "manage token from 192.0.2.7");
        assert_eq!(pass(Rights::Act).by(), "admin token");
        assert_eq!(pass(Rights::Look).refusal(Rights::Act).unwrap().status(), 403);
        assert_eq!(pass(Rights::Act).refusal(Rights::Manage).unwrap().status(), 403);
        assert!(pass(Rights::Manage).refusal(Rights::Manage).is_none());
        assert!(csrf_refusal(&HeaderMap::new(), Pass::LOCAL).is_some());
        assert!(csrf_refusal(&fields(&[(CSRF_FIELD, "x")]), Pass::LOCAL).is_none());
    }
}
