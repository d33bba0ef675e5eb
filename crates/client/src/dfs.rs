//! DFS: where a path really is, MS-DFSC 3.1.
//!
//! Before a path in a share that says it is of a DFS namespace is used, its
//! server is asked for a referral. The targets are tried in the server's order,
//! the one that worked last first; what was learned is kept for as long as the
//! server says, within bounds. Domain-based namespaces need a domain controller
//! to be asked and are reached by the name of a root server only.

use std::time::Duration;

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::dfs::{REFERRAL_LEVEL, ReferralRequest, ReferralResponse};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Status};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::Call;
use crate::credentials::Credentials;
use crate::dial::ServerName;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{REDIRECTS, REFERRAL_FOR, REFERRALS_KEPT, TARGETS_TRIED};
use crate::session::{Client, Session};
use crate::share::{Replay, Share, fsctl};

/// Room for a referral, whose offsets have 16 bits.
const ROOM: u32 = 65_536;

/// Part of a namespace.
#[derive(Debug, Clone)]
struct Known {
    /// `\server\share\path` in lower case.
    prefix: String,
    /// Where that server listens.
    port: u16,
    targets: Vec<Place>,
    /// The one that worked.
    hint: usize,
    until: Instant,
}

/// The referral cache of a client, MS-DFSC 3.1.1.
#[derive(Debug, Default)]
pub(crate) struct Referrals(Mutex<Vec<Known>>);

impl Referrals {
    /// The longest part that covers `place`, and what of its path lies behind.
    fn find(&self, place: &Place) -> Option<(Known, String)> {
        let now = Instant::now();
        let mut known = self.0.lock();
        known.retain(|known| known.until > now);
        let path = place.unc();
        let covers = |known: &&Known| {
            known.port == place.server.port && behind(&path, &known.prefix).is_some()
        };
        let found = known.iter().filter(covers).max_by_key(|known| known.prefix.len())?;
        let rest = behind(&path, &found.prefix)?.to_owned();
        Some((found.clone(), rest))
    }

    fn keep(&self, new: Known) {
        let mut known = self.0.lock();
        known.retain(|known| (&known.prefix, known.port) != (&new.prefix, new.port));
        if known.len() >= REFERRALS_KEPT {
            known.remove(0);
        }
        known.push(new);
    }

    fn worked(&self, part: &Known, hint: usize) {
        let mut known = self.0.lock();
        let is_it = |one: &&mut Known| (&one.prefix, one.port) == (&part.prefix, part.port);
        if let Some(known) = known.iter_mut().find(is_it) {
            known.hint = hint;
        }
    }
}

/// What of `path` lies behind `prefix`, when that covers whole components of it.
fn behind<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let mut parts = path.split('\\').filter(|part| !part.is_empty());
    for wanted in prefix.split('\\').filter(|part| !part.is_empty()) {
        if parts.next()?.to_lowercase() != wanted {
            return None;
        }
    }
    // Where the next component begins.
    Some(parts.next().map_or("", |next| {
        let at = next.as_ptr() as usize - path.as_ptr() as usize;
        path.get(at..).unwrap_or_default()
    }))
}

/// A path in a share of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    server: ServerName,
    share: String,
    /// With `\`.
    path: String,
}

impl Place {
    /// The target of a referral: `\server\share\path`. A server that is known by
    /// another port than the usual one keeps it.
    fn of_target(target: &str, from: &ServerName) -> Option<Self> {
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
        let port = if same { from.port } else { ServerName::PORT };
        let server = ServerName::new(host).at_port(port);
        Some(Self { server, share: share.into(), path: path.join("\\") })
    }

    fn unc(&self) -> String {
        let slash = if self.path.is_empty() { "" } else { "\\" };
        format!("\\{}\\{}{slash}{}", self.server.host, self.share, self.path)
    }

    fn below(&self, rest: &str) -> Self {
        let slash = if self.path.is_empty() || rest.is_empty() { "" } else { "\\" };
        Self { path: format!("{}{slash}{rest}", self.path), ..self.clone() }
    }

    fn is_same_share(&self, other: &Self) -> bool {
        self.server.host.eq_ignore_ascii_case(&other.server.host)
            && self.share.eq_ignore_ascii_case(&other.share)
    }
}

/// Sessions made on the way, so that no server is logged on to twice.
struct Way<'a> {
    client: &'a Client,
    credentials: &'a Credentials,
    sessions: Vec<Session>,
    /// Targets that may still be tried.
    tries: usize,
}

impl Way<'_> {
    async fn session(&mut self, server: &ServerName) -> Result<Session> {
        if let Some(session) = self.sessions.iter().find(|one| one.server() == server) {
            return Ok(session.clone());
        }
        let session = self.client.log_on(server.clone(), self.credentials.clone()).await?;
        self.sessions.push(session.clone());
        Ok(session)
    }
}

impl Client {
    /// The share and the path in it where `path` of `share` really is, links of
    /// DFS namespaces followed, on other servers too, which are logged on to with
    /// the same credentials.
    ///
    /// # Errors
    /// As [`Self::log_on`] and [`Session::share`], of the last target that was
    /// tried; a namespace that leads in a circle.
    pub async fn reach(
        &self,
        server: ServerName,
        credentials: &Credentials,
        share: &str,
        path: &str,
    ) -> Result<(Share, String)> {
        let url = format!("smb://{server}/{share}");
        let mut way = Way { client: self, credentials, sessions: Vec::new(), tries: TARGETS_TRIED };
        let mut place = Place {
            server,
            share: share.into(),
            path: crate::path::wire_path(path).during("connect to", &url)?,
        };
        let mut hops = 0;
        loop {
            let (known, rest) = match self.referrals.find(&place) {
                Some(found) => found,
                None => match self.ask(&mut way, &place).await? {
                    Asked::Here(share) => return Ok((share, place.path.replace('\\', "/"))),
                    Asked::There(known, rest) => (known, rest),
                },
            };
            hops += 1;
            if hops > REDIRECTS {
                let cause = Cause::Protocol("a DFS namespace that leads in a circle");
                return Err(Error::new(cause, "connect to", url));
            }
            match self.choose(&mut way, &known, &rest).await? {
                // A root target, or a plain share: that is the end of it.
                (target, Some(share)) => return Ok((share, target.path.replace('\\', "/"))),
                (target, None) => place = target,
            }
        }
    }

    /// Asks the server of `place` for a referral, if it is in a namespace.
    async fn ask(&self, way: &mut Way<'_>, place: &Place) -> Result<Asked> {
        let session = way.session(&place.server).await?;
        let share = session.share(&place.share).await;
        let refused = match &share {
            Ok(share) if !share.is_dfs() || place.path.is_empty() => {
                return Ok(Asked::Here(share.clone()));
            }
            Ok(_) => None,
            // A namespace whose root is elsewhere.
            Err(error) => match error.status() {
                Some(Status::BAD_NETWORK_NAME | Status::PATH_NOT_COVERED) => Some(error.clone()),
                _ => return share.map(Asked::Here),
            },
        };
        let response = match referral(&session, &place.unc()).await {
            Ok(response) if !response.referrals.is_empty() => response,
            // MS-DFSC 3.1.5.4.3: it is no link; an error is told when it is used.
            Ok(_) => return refused.map_or_else(|| share.map(Asked::Here), Err),
            Err(error) if error.status().is_some() => {
                return refused.map_or_else(|| share.map(Asked::Here), Err);
            }
            Err(error) => return Err(error),
        };
        let Some((known, rest)) = understood(&response, place, session.is_proved()) else {
            let cause = Cause::Protocol("a DFS referral that names no target");
            return Err(Error::new(cause, "resolve", session_url(&session)));
        };
        // The root refers to itself.
        if let (Ok(share), [target, ..]) = (&share, &*known.targets)
            && target.is_same_share(place)
            && target.path.is_empty()
        {
            return Ok(Asked::Here(share.clone()));
        }
        self.referrals.keep(known.clone());
        Ok(Asked::There(known, rest))
    }

    /// The first target that can be used: MS-DFSC 3.1.5.2. One that is not in a
    /// namespace itself comes with its share.
    async fn choose(
        &self,
        way: &mut Way<'_>,
        known: &Known,
        rest: &str,
    ) -> Result<(Place, Option<Share>)> {
        let mut last = None;
        let count = known.targets.len().min(TARGETS_TRIED);
        for at in 0..count {
            let at = (known.hint + at) % count.max(1);
            let Some(target) = known.targets.get(at) else { continue };
            let target = target.below(rest);
            let Some(left) = way.tries.checked_sub(1) else { break };
            way.tries = left;
            let connected = match way.session(&target.server).await {
                Ok(session) => session.share(&target.share).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(share) => {
                    self.referrals.worked(known, at);
                    let is_end = !share.is_dfs();
                    return Ok((target, is_end.then_some(share)));
                }
                Err(error) => {
                    tracing::debug!(%error, "a DFS target is passed over");
                    // It may be the root of a further namespace.
                    if error.status() == Some(Status::PATH_NOT_COVERED) {
                        return Ok((target, None));
                    }
                    last = Some(error);
                }
            }
        }
        let none = || Error::new(Cause::Status(Status::OBJECT_PATH_NOT_FOUND), "connect to", "");
        Err(last.unwrap_or_else(none))
    }
}

/// What a server said of a place.
enum Asked {
    /// It is where it seems to be.
    Here(Share),
    /// It is elsewhere: targets, and what comes behind them.
    There(Known, String),
}

fn session_url(session: &Session) -> String {
    format!("smb://{}", session.server())
}

/// MS-DFSC 3.1.4.2 over MS-SMB2 3.2.4.20.3.
async fn referral(session: &Session, path: &str) -> Result<ReferralResponse> {
    const OPERATION: &str = "resolve";
    let ipc = session.share("IPC$").await?;
    let mut input = Vec::new();
    ReferralRequest { max_level: REFERRAL_LEVEL, path: path.into() }
        .encode(&mut Writer::new(&mut input));
    let url = session_url(session);
    let mut attempts = ipc.attempts(Replay::Idempotent, OPERATION, &url);
    let message = loop {
        let (live, bound) = attempts.next().await?;
        let call = fsctl(CtlCode::DFS_GET_REFERRALS, FileId::ALL_ONES, &input, ROOM);
        debug_assert!(call.command == Command::IOCTL);
        // Where the credentials are used next hangs on it.
        let call = Call { tree_id: bound.tree_id, ..call.signed() };
        let outcome = live.ask(call, bound.seal, &[]).await;
        if let Some(end) = attempts.judge(outcome, bound) {
            break end?;
        }
    };
    let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
    ReferralResponse::parse(response.output).during(OPERATION, &url)
}

/// What a referral for `place` means; nothing when it consumes what was not asked
/// for, or no target of it can be. One that is not `proved` to be the server's could
/// be anybody's, and leads to no other host.
fn understood(response: &ReferralResponse, place: &Place, proved: bool) -> Option<(Known, String)> {
    let asked: Vec<u16> = place.unc().encode_utf16().collect();
    let consumed = usize::from(response.path_consumed) / 2;
    let prefix = String::from_utf16(asked.get(..consumed)?).ok()?;
    let rest = String::from_utf16(asked.get(consumed..)?).ok()?;
    // Whole components, of the share at least.
    let is_whole = rest.is_empty() || rest.starts_with('\\') || prefix.ends_with('\\');
    let depth = prefix.split('\\').filter(|part| !part.is_empty()).count();
    if !is_whole || depth < 2 {
        return None;
    }
    let targets: Vec<_> = response
        .referrals
        .iter()
        .filter_map(|referral| Place::of_target(&referral.target, &place.server))
        .filter(|target| proved || target.server.host.eq_ignore_ascii_case(&place.server.host))
        .collect();
    if targets.is_empty() {
        return None;
    }
    let lives = response.referrals.iter().map(|referral| referral.time_to_live_s).min();
    let lives = Duration::from_secs(lives.unwrap_or_default().into()).min(REFERRAL_FOR);
    let prefix = prefix.trim_end_matches('\\').to_lowercase();
    let port = place.server.port;
    let known = Known { prefix, port, targets, hint: 0, until: Instant::now() + lives };
    Some((known, rest.trim_start_matches('\\').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::command::ioctl::dfs::{Referral, ReferralHeaderFlags};

    fn place(unc: &str) -> Place {
        Place::of_target(unc, &ServerName::new("files").at_port(4450)).unwrap()
    }

    fn response(consumed: u16, targets: &[&str]) -> ReferralResponse {
        let referral = |target: &&str| Referral {
            is_root: false,
            time_to_live_s: 60,
            path: String::new(),
            target: (*target).into(),
        };
        ReferralResponse {
            path_consumed: consumed * 2,
            flags: ReferralHeaderFlags::EMPTY,
            referrals: targets.iter().map(referral).collect(),
        }
    }

    #[test]
    fn targets_that_can_be() {
        let found = place("\\Files\\data\\a\\b");
        assert_eq!((found.server.port, &*found.path), (4450, "a\\b"));
        assert_eq!(place("\\\\two\\data").server.port, 445);
        let from = ServerName::new("x");
        for odd in ["", "\\", "\\only", "\\a/b\\c", "\\a\\c\\..\\d", "\\a@b\\c", "\\a\u{1b}\\c"] {
            assert_eq!(Place::of_target(odd, &from), None, "{odd:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn referrals_are_understood_and_kept_for_their_time() {
        let asked = place("\\files\\dfs\\Link\\é\\x");
        let (known, rest) = understood(&response(15, &["\\one\\data"]), &asked, true).unwrap();
        assert_eq!((&*known.prefix, &*rest), ("\\files\\dfs\\link", "é\\x"));
        // Half a component, less than a share, more than was asked.
        for consumed in [14, 12, 6, 0, 400] {
            assert!(understood(&response(consumed, &["\\one\\data"]), &asked, true).is_none());
        }
        assert!(understood(&response(15, &["nowhere", ""]), &asked, true).is_none());
        let both = response(15, &["\\one\\data", "\\FILES\\other"]);
        let (known_here, _) = understood(&both, &asked, false).unwrap();
        let targets: Vec<_> = known_here.targets.iter().map(Place::unc).collect();
        assert_eq!(targets, ["\\FILES\\other"], "not proved: nowhere else");
        assert!(understood(&response(15, &["\\one\\data"]), &asked, false).is_none());
        let all = Referrals::default();
        all.keep(known);
        let (found, rest) = all.find(&place("\\FILES\\DFS\\LINK\\y\\z")).unwrap();
        assert_eq!((found.targets.len(), &*rest), (1, "y\\z"));
        assert!(all.find(&place("\\files\\dfs\\linked")).is_none());
        assert!(all.find(&place("\\files\\dfs")).is_none());
        let mut elsewhere = place("\\files\\dfs\\link");
        elsewhere.server.port = 445;
        assert!(all.find(&elsewhere).is_none(), "another server of that host");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(all.find(&asked).is_none(), "its time is over");
        for at in 0..REFERRALS_KEPT * 2 {
            let (mut one, _) = understood(&response(15, &["\\one\\data"]), &asked, true).unwrap();
            one.prefix = format!("\\files\\dfs\\{at}");
            all.keep(one);
        }
        assert_eq!(all.0.lock().len(), REFERRALS_KEPT);
    }
}
