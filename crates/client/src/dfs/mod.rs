//! DFS: where a path really is, MS-DFSC 3.1.
//!
//! A share that says it is of a DFS namespace is asked with whole paths
//! (MS-SMB2 3.2.4.3). What it says it does not cover its server is asked a referral
//! for. The targets are tried in the server's order, the one that worked last first;
//! what was learned is kept for as long as the server says, within bounds. So every
//! operation on a [`Share`] crosses the links on its way, [`Client::reach`] those of
//! a path that is about to be used.
//!
//! The root of a domain's namespace is asked of whoever has the domain's name, which
//! in a domain's DNS are its controllers, or of [`Options::domain_controller`].
//!
//! [`Options::domain_controller`]: crate::Options::domain_controller

mod cache;
mod dfs_path;
mod failover;
mod referral;

use std::sync::{Arc, Weak};

use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::time::Instant;

use cache::Known;
pub(crate) use cache::Referrals;
use dfs_path::DfsPath;
pub(crate) use failover::Others;

use crate::credentials::Credentials;
use crate::dial::ServerName;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{REDIRECTS, TARGET_SESSIONS, TARGETS_TRIED};
use crate::options::Referrals as Policy;
use crate::session::{Client, Session};
use crate::share::Share;

const CONNECT: &str = "connect to";

/// A user's sessions with the servers of his namespaces, so that none is logged on
/// to twice.
pub(crate) struct Way {
    client: Client,
    credentials: Credentials,
    sessions: Mutex<Vec<Session>>,
    /// None of them has a way of its own: they would keep each other for ever.
    shares: Mutex<Vec<Share>>,
    /// Who makes connections, one at a time to each server.
    turns: Mutex<Vec<(ServerName, Weak<Turn>)>>,
    /// What was tried of no use.
    vain: Mutex<failover::Vain>,
}

type Turn = tokio::sync::Mutex<()>;

/// Where a path is as far as is known.
pub(crate) struct Located {
    pub(crate) share: Share,
    /// In that share, as the wire has it.
    pub(crate) path: String,
    /// It is a link itself, and not what lies behind one.
    pub(crate) is_link: bool,
    /// Where else it is.
    pub(crate) others: Option<Others>,
    went: Went,
    /// From where links were crossed to it.
    start: Option<Start>,
}

/// A place from which links lead on.
#[derive(Clone)]
struct Start {
    way: Arc<Way>,
    place: DfsPath,
    /// The share that it is in; none where its server is asked only when what is known of
    /// it does not do.
    share: Option<Share>,
}

/// What a search has cost.
#[derive(Debug, Clone, Copy, Default)]
struct Went {
    /// Links that were crossed.
    hops: usize,
    /// Targets that were tried.
    tries: usize,
}

/// When a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// At each share that is of a namespace.
    Always,
    /// When it has said that it does not cover the path.
    First,
    /// What is known has to do.
    Never,
}

/// What a server said of a place.
enum Asked {
    /// It is where it seems to be.
    Here(Share),
    /// It is elsewhere: targets, and what comes behind them.
    There(Known, String),
}

impl Client {
    /// The share and the path in it where `path` of `share` really is, links of
    /// DFS namespaces followed, on other servers too, which are logged on to with
    /// the same credentials ([`crate::Options::referrals`] says how far).
    ///
    /// When its server is lost and a link on the way has other targets, what is done by path
    /// in the share goes on at one of those; what is open does not.
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
        let path = crate::path::wire_path(path).during(CONNECT, &url)?;
        let way = Arc::new(Way::new(self.clone(), credentials.clone()));
        let place = DfsPath { server, share: share.into(), path };
        let found = way.resolve(place, None, Asks::Always, Went::default()).await?;
        let share = Share { reached: found.others.map(Arc::new), ..found.share };
        Ok((share, found.path.replace('\\', "/")))
    }
}

impl Share {
    /// Where `path` is as far as is known: here, or where links lead that were
    /// crossed before.
    pub(crate) async fn located(&self, path: String) -> Result<Located> {
        if let Some(way) = &self.way {
            let place = self.place(path.clone());
            let share = Some(self.clone());
            let found = way.resolve(place.clone(), share.clone(), Asks::Never, Went::default());
            let found = found.await?;
            if found.went.hops > 0 {
                return Ok(found.from(Start { way: Arc::clone(way), place, share }));
            }
        }
        let reached = self.reached.as_ref().zip(self.reached.as_ref().and_then(|r| r.start(&path)));
        if let Some((reached, start)) = &reached
            && !self.session().is_alive()
            && reached.is_left()
        {
            return start.resolve(Went::default()).await;
        }
        Ok(Located {
            share: self.clone(),
            path,
            is_link: false,
            others: reached.as_ref().map(|(reached, _)| (***reached).clone()),
            went: Went::default(),
            start: reached.map(|(_, start)| start),
        })
    }

    /// The URL of `path` behind the links that were crossed to it.
    ///
    /// # Errors
    /// A path that cannot be; a target that cannot be reached any more.
    pub async fn real_url(&self, path: &str) -> Result<String> {
        let path = crate::path::wire_path(path).during("resolve", &self.url(path))?;
        let found = self.located(path).await?;
        Ok(found.share.place(found.path).url())
    }

    fn place(&self, path: String) -> DfsPath {
        DfsPath { server: self.session().server().clone(), share: self.name().into(), path }
    }
}

impl Located {
    /// Goes on after `refusal` of the server: MS-SMB2 3.2.5.5, MS-DFSC 3.1.5.1.
    ///
    /// # Errors
    /// The refusal, if there is nothing to go on to; what went wrong on the way.
    pub(crate) async fn beyond(self, refusal: Error) -> Result<Self> {
        let uncovered = refusal.status() == Some(Status::PATH_NOT_COVERED);
        match (refusal.cause(), self.share.way.clone(), &self.start) {
            (_, Some(way), _) if uncovered => {
                let place = self.share.place(self.path.clone());
                let share = Some(self.share.clone());
                let found = way.resolve(place, share, Asks::First, self.went).await?;
                if found.went.hops == self.went.hops {
                    return Err(refusal);
                }
                let is_link = found.is_link || self.is_link;
                let start = self.start.unwrap_or_else(|| {
                    let place = self.share.place(self.path);
                    Start { way, place, share: Some(self.share) }
                });
                Ok(Self { is_link, ..found }.from(start))
            }
            // MS-DFSC 3.1.5.2: the next target, when this one is not there any more.
            (Cause::Transport(_), _, Some(start)) => {
                let found = start.resolve(self.went).await?;
                if found.share.session().is_same(self.share.session()) {
                    return Err(refusal);
                }
                Ok(found)
            }
            _ => Err(refusal),
        }
    }

    /// Links were crossed to it from there.
    fn from(mut self, start: Start) -> Self {
        self.start = Some(start);
        self.salted()
    }

    /// Behind a link: the ids of files there are another volume's.
    fn salted(mut self) -> Self {
        let place = self.share.place(String::new());
        // FNV-1a: any mixing will do.
        self.share.salt =
            place.unc().to_lowercase().bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
            });
        self
    }
}

impl Start {
    /// Where links lead from here now.
    async fn resolve(&self, went: Went) -> Result<Located> {
        let asks = if self.share.is_some() { Asks::Never } else { Asks::First };
        let found = self.way.resolve(self.place.clone(), self.share.clone(), asks, went).await?;
        Ok(found.from(self.clone()))
    }
}

impl Way {
    fn new(client: Client, credentials: Credentials) -> Self {
        Self {
            client,
            credentials,
            sessions: Mutex::default(),
            shares: Mutex::default(),
            turns: Mutex::default(),
            vain: Mutex::default(),
        }
    }

    /// From a share of `session`, if links may be followed.
    pub(crate) fn from(session: &Session) -> Option<Arc<Self>> {
        let way = Self::new(session.client().clone(), session.credentials().clone());
        if way.policy() == Policy::Never {
            return None;
        }
        way.sessions.lock().push(session.clone());
        Some(Arc::new(way))
    }

    /// Those that there are.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        self.sessions.lock().clone()
    }

    fn policy(&self) -> Policy {
        self.client.options().referrals
    }

    /// Follows links from `place`, which is in `share` if that is given.
    async fn resolve(
        self: &Arc<Self>,
        mut place: DfsPath,
        mut share: Option<Share>,
        mut asks: Asks,
        mut went: Went,
    ) -> Result<Located> {
        let url = place.url();
        let mut is_link = false;
        let mut others = None;
        loop {
            let found = self.client.referrals.find(&place);
            let (known, rest) = match (found, asks, &share) {
                (Some(found), ..) if self.policy() != Policy::Never => found,
                (_, Asks::Never, Some(share)) => {
                    let (share, path) = (self.on(share), place.path);
                    return Ok(Located { share, path, is_link, others, went, start: None });
                }
                _ => match self.ask(&place, went.hops).await? {
                    Asked::Here(share) => {
                        let (share, path) = (self.on(&share), place.path);
                        return Ok(Located { share, path, is_link, others, went, start: None });
                    }
                    Asked::There(known, rest) => (known, rest),
                },
            };
            went.hops += 1;
            if went.hops > REDIRECTS {
                let cause = Cause::Protocol("a DFS namespace that leads in a circle");
                return Err(Error::new(cause, CONNECT, url));
            }
            is_link |= rest.is_empty() && !known.is_of_root();
            let at;
            (place, share, at) = self.choose(&known, &rest, &mut went.tries).await?;
            others = Others::of(self, &known, at);
            asks = match (asks, &share) {
                // The next operation tells.
                (Asks::First, Some(_)) => Asks::Never,
                (asks, _) => asks,
            };
            if let (Asks::Always, Some(there)) = (asks, &share)
                && !there.is_dfs()
            {
                let (share, path) = (self.on(there), place.path);
                return Ok(Located { share, path, is_link, others, went, start: None });
            }
        }
    }

    /// The share, from which this way goes on.
    fn on(self: &Arc<Self>, share: &Share) -> Share {
        let way = (share.is_dfs() && self.policy() != Policy::Never).then(|| Arc::clone(self));
        Share { way, ..share.clone() }
    }

    /// Asks the server of `place` for a referral, if it is in a namespace.
    async fn ask(&self, place: &DfsPath, hops: usize) -> Result<Asked> {
        if self.policy() == Policy::Never {
            let session = self.session(&place.server).await?;
            return self.share(&session, &place.share).await.map(Asked::Here);
        }
        if let Some(asked) = self.ask_controllers(place, hops).await? {
            return Ok(asked);
        }
        let session = self.session(&place.server).await?;
        let share = self.share(&session, &place.share).await;
        let (asked, refused) = match &share {
            Ok(share) if !share.is_dfs() || place.path.is_empty() => {
                return Ok(Asked::Here(share.clone()));
            }
            Ok(_) => (place.clone(), None),
            // A namespace whose root is elsewhere: that is what is asked for.
            Err(error) => match error.status() {
                Some(Status::BAD_NETWORK_NAME | Status::PATH_NOT_COVERED) => {
                    (DfsPath { path: String::new(), ..place.clone() }, Some(error.clone()))
                }
                _ => return share.map(Asked::Here),
            },
        };
        let response = match referral::targets(&self.ipc(&session).await?, &asked.unc()).await {
            Ok(response) if !response.referrals.is_empty() => response,
            // MS-DFSC 3.1.5.4.3: it is no link; an error is told when it is used.
            Ok(_) => return refused.map_or_else(|| share.map(Asked::Here), Err),
            Err(error) if error.status().is_some() => {
                return refused.map_or_else(|| share.map(Asked::Here), Err);
            }
            Err(error) => return Err(error),
        };
        let allowed = |target: &DfsPath| self.may_go(&session, &place.server, target);
        let Some((known, rest)) = Known::understood(&response, &asked, allowed) else {
            let cause = Cause::Protocol("a DFS referral that names no target which may be used");
            return Err(Error::new(cause, "resolve", place.url()));
        };
        // Whoever has the root's share is a target of it, whatever it is called there.
        if let Ok(share) = &share
            && known.is_of_root()
        {
            return Ok(Asked::Here(share.clone()));
        }
        let rest = if refused.is_some() { place.path.clone() } else { rest };
        Ok(Asked::There(self.client.referrals.keep(known), rest))
    }

    /// Whether a referral of `session` may lead from `from` to `target`. One that is
    /// not proved to be the server's could be anybody's, and leads to no other host.
    fn may_go(&self, session: &Session, from: &ServerName, target: &DfsPath) -> bool {
        let is_same = target.server.host.eq_ignore_ascii_case(&from.host);
        is_same || (session.is_proved() && self.policy() == Policy::Anywhere)
    }

    /// The root of a domain's namespace, by the controllers that
    /// [`crate::Options::domain_controller`] knows: MS-DFSC 3.1.4.1, steps 5 and 6.
    /// Nothing when there is none or `place` is of no domain that it knows.
    async fn ask_controllers(&self, place: &DfsPath, hops: usize) -> Result<Option<Asked>> {
        let Some(first) = self.client.options().domain_controller.clone() else { return Ok(None) };
        if hops > 0 || first.host.eq_ignore_ascii_case(&place.server.host) {
            return Ok(None);
        }
        let session = self.session(&first).await?;
        let domain = &*place.server.host;
        let found = match referral::controllers(&self.ipc(&session).await?, domain).await {
            Err(error) if error.status().is_some() => return Ok(None),
            found => found?,
        };
        let root = DfsPath { path: String::new(), ..place.clone() };
        let status = Cause::Status(Status::OBJECT_PATH_NOT_FOUND);
        let mut last = Error::new(status, "resolve", place.url());
        for name in found.into_iter().take(TARGETS_TRIED) {
            let same = name.eq_ignore_ascii_case(&first.host);
            let server = if same { first.clone() } else { ServerName::new(name) };
            let there = DfsPath { server, ..root.clone() };
            if !self.may_go(&session, &first, &there) {
                continue;
            }
            let asked = async {
                let controller = self.session(&there.server).await?;
                let response =
                    referral::targets(&self.ipc(&controller).await?, &root.unc()).await?;
                let allowed = |target: &DfsPath| self.may_go(&controller, &there.server, target);
                Ok(Known::understood(&response, &root, allowed))
            };
            match asked.await {
                Ok(Some((known, _))) => {
                    let known = self.client.referrals.keep(known);
                    return Ok(Some(Asked::There(known, place.path.clone())));
                }
                Ok(None) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The first target that can be used, and its number: MS-DFSC 3.1.5.2. Without its
    /// share when its server has to be asked first.
    async fn choose(
        &self,
        known: &Known,
        rest: &str,
        tries: &mut usize,
    ) -> Result<(DfsPath, Option<Share>, usize)> {
        let mut last = None;
        for (at, target) in known.tried() {
            let target = target.below(rest);
            if *tries >= TARGETS_TRIED {
                break;
            }
            *tries += 1;
            let connected = match self.session(&target.server).await {
                Ok(session) => self.share(&session, &target.share).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(share) => {
                    self.client.referrals.worked(known, at);
                    return Ok((target, Some(share), at));
                }
                Err(error) => {
                    tracing::debug!(%error, "a DFS target is passed over");
                    // It may be the root of a further namespace.
                    if error.status() == Some(Status::PATH_NOT_COVERED) {
                        return Ok((target, None, at));
                    }
                    last = Some(error);
                }
            }
        }
        let none = || Error::new(Cause::Status(Status::OBJECT_PATH_NOT_FOUND), CONNECT, "");
        Err(last.unwrap_or_else(none))
    }

    /// A session with `server`, one attempt at it if there is none that lives: there
    /// may be other targets.
    async fn session(&self, server: &ServerName) -> Result<Session> {
        let present = || {
            let sessions = self.sessions.lock();
            sessions.iter().find(|one| one.server() == server && one.is_alive()).cloned()
        };
        if let Some(session) = present() {
            return Ok(session);
        }
        let since = Instant::now();
        let turn = self.turn(server);
        let _turn = turn.lock().await;
        if let Some(session) = present() {
            return Ok(session);
        }
        // Who waited for another's attempt wanted to know the same.
        if let Some(error) = self.vain.lock().known_since(server, since) {
            return Err(error);
        }
        let logged_on = self.client.log_on(server.clone(), self.credentials.clone()).await;
        let session = logged_on.inspect_err(|error| self.vain.lock().note(server, error))?;
        let mut sessions = self.sessions.lock();
        sessions.retain(|one| one.server() != server);
        if sessions.len() >= TARGET_SESSIONS {
            sessions.remove(0);
        }
        sessions.push(session.clone());
        drop(sessions);
        let is_kept = |share: &Share| share.session().is_alive();
        self.shares.lock().retain(is_kept);
        Ok(session)
    }

    /// Whose turn it is to connect to `server`. Nobody waits for another one.
    fn turn(&self, server: &ServerName) -> Arc<Turn> {
        let mut turns = self.turns.lock();
        turns.retain(|(_, turn)| turn.strong_count() > 0);
        let found = turns.iter().find(|(of, _)| of == server);
        if let Some(turn) = found.and_then(|(_, turn)| turn.upgrade()) {
            return turn;
        }
        let turn = Arc::default();
        turns.push((server.clone(), Arc::downgrade(&turn)));
        turn
    }

    /// Where `session`'s server is asked for referrals.
    async fn ipc(&self, session: &Session) -> Result<Share> {
        self.share(session, "IPC$").await
    }

    /// The share `name` of `session`, without a way of its own.
    async fn share(&self, session: &Session, name: &str) -> Result<Share> {
        let is_it = |share: &&Share| {
            share.session().is_same(session) && share.name().eq_ignore_ascii_case(name)
        };
        if let Some(share) = self.shares.lock().iter().find(is_it) {
            return Ok(share.clone());
        }
        let share = Share::connect(session.clone(), name).await?;
        let mut shares = self.shares.lock();
        if shares.len() >= TARGET_SESSIONS {
            shares.remove(0);
        }
        shares.push(share.clone());
        Ok(share)
    }
}
