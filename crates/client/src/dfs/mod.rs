//! DFS: finding the server of a path. MS-DFSC 3.1.
//!
//! Requests to a share of a DFS namespace have whole paths (MS-SMB2 3.2.4.3). When the server
//! does not cover a path, it is asked for a referral. The targets are tried in the server's
//! order, the one that worked last first. Referrals are cached for the time that the server
//! names, within bounds. Every operation on a [`Share`] follows the links of its path;
//! [`Client::resolve`] follows them once for a path that is about to be used.
//!
//! The root of a domain's namespace is asked of the hosts with the domain's name, which the
//! domain's DNS resolves to its controllers, or of [`Options::domain_controller`].
//!
//! [`Options::domain_controller`]: crate::Options::domain_controller

mod attempts;
pub(crate) mod cache;
mod dfs_path;
mod failover;
mod link_targets;
mod referral;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_wire::command::oplock_break::LeaseState;
use frevo_wire::fscc::{eq_ignore_case, fold_name};
use parking_lot::Mutex;
use tokio::time::Instant;

use attempts::{Candidate, Turns, UsableTarget, first_usable};
use cache::Known;
use dfs_path::DfsPath;
pub(crate) use failover::Others;

use crate::Status;
use crate::credentials::Credentials;
use crate::dial::ServerName;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{REDIRECTS, TARGET_SESSIONS, TARGETS_TRIED};
use crate::open::create::Ask;
use crate::options::{Options, Referrals as Policy};
use crate::quic::Quic;
use crate::session::{Beginning, Client, Session};
use crate::share::Share;
use crate::url::SmbUrl;

const CONNECT: &str = "connect to";

/// The sessions of a user with the servers of DFS namespaces: one for each server.
pub(crate) struct Way {
    client: Client,
    credentials: Credentials,
    sessions: Mutex<Vec<Session>>,
    /// Shares without a way of their own, which would keep this one alive for ever.
    shares: Mutex<Vec<Share>>,
    /// Turns at connecting: one attempt at a time for each server.
    turns: Turns,
    /// Servers that could not be reached.
    vain: Mutex<failover::Vain>,
}

/// The place of a path, as far as it is known.
pub(crate) struct Located {
    pub(crate) share: Share,
    /// The path in that share, with `\`.
    pub(crate) path: String,
    /// True if the path is a link itself.
    pub(crate) is_link: bool,
    /// The other targets of the last link.
    pub(crate) others: Option<Others>,
    went: Went,
    /// The place from which links were followed to it.
    start: Option<Start>,
}

/// A place from which links lead on.
#[derive(Clone)]
struct Start {
    way: Arc<Way>,
    place: DfsPath,
    /// The share that it is in; `None` if the server is asked only when the cache does not
    /// suffice.
    share: Option<Share>,
}

/// The cost of a search.
#[derive(Debug, Clone, Copy, Default)]
struct Went {
    /// Count of links that were followed.
    hops: usize,
    /// Count of targets that were tried.
    tries: usize,
}

/// The occasions on which a server is asked for a referral.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// At each share of a namespace.
    Always,
    /// Once, after the server refused a path that it does not cover.
    First,
    /// Never: only the cache is used.
    Never,
}

/// The answer of a server about a place.
enum Asked {
    /// The place is on this share.
    Here(Share),
    /// The place is elsewhere: the targets, and the rest of the path.
    There(Known, String),
}

impl Client {
    /// Connects to the server of `url`, and returns the share and the path in it. Links of DFS
    /// namespaces are followed, also to other servers, where the client logs on with the same
    /// credentials ([`Options::referrals`](crate::Options::referrals) limits this). The user
    /// of the URL is ignored.
    ///
    /// When the server is lost and a link has other targets, operations by path go on at one
    /// of these; open files do not.
    ///
    /// # Errors
    /// Fails as [`Self::connect`] and [`Session::share`] do for the last target that was
    /// tried, and if the namespace leads in a circle.
    pub async fn resolve(
        &self,
        url: &SmbUrl,
        credentials: &Credentials,
    ) -> Result<(Share, String)> {
        if url.over_quic && self.options().quic != Quic::Required {
            // TCP would send over the network what the URL wants to be sent over QUIC.
            let options = Options { quic: Quic::Required, ..self.options().clone() };
            return Box::pin(Self::new(options).resolve(url, credentials)).await;
        }
        let SmbUrl { server, share, path, .. } = url.clone();
        let url = format!("{}{server}/{share}", self.options().scheme());
        let path = crate::path::wire_path(&path).during(CONNECT, &url)?;
        let way = Arc::new(Way::new(self.clone(), credentials.clone()));
        let place = DfsPath { server, share, path };
        let found = way.resolve(place, None, Asks::Always, Went::default()).await?;
        let share = Share { reached: found.others.map(Arc::new), ..found.share };
        Ok((share, found.path.replace('\\', "/")))
    }
}

impl Share {
    /// Returns the place of `path` without asking a server: in this share, or behind links in the
    /// cache.
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

    /// Returns the URL of `path` behind the DFS links that were followed to it.
    ///
    /// # Errors
    /// Fails if the path is not valid, or a target cannot be reached any more.
    #[doc(hidden)]
    pub async fn real_url(&self, path: &str) -> Result<String> {
        let path = crate::path::wire_path(path).during("resolve", &self.url(path))?;
        let found = self.located(path).await?;
        let scheme = found.share.session().options().scheme();
        Ok(found.share.place(found.path).url(scheme))
    }

    fn place(&self, path: String) -> DfsPath {
        DfsPath { server: self.session().server().clone(), share: self.name().into(), path }
    }
}

impl Located {
    /// Refuses a request that would change a DFS link itself.
    pub(crate) fn check(&self, ask: &Ask, operation: &'static str, url: &str) -> Result<()> {
        if ask.is_of_name && self.is_link {
            let cause = Cause::Usage(
                "this is a link of a DFS namespace, which only the server's administrator can change",
            );
            return Err(Error::new(cause, operation, url));
        }
        Ok(())
    }

    /// Adapts a request to the session there: a lease belongs to one session.
    pub(crate) fn adapt(&self, ask: &Ask) -> Ask {
        let is_ours = ask.shared.as_ref().is_none_or(|lease| lease.is_of(self.share.session()));
        let lease = if is_ours { ask.lease } else { LeaseState::EMPTY };
        Ask { shared: ask.shared.clone().filter(|_| is_ours), lease, ..ask.clone() }
    }

    /// Returns the next place after a server's `refusal`: MS-SMB2 3.2.5.5, MS-DFSC 3.1.5.1.
    ///
    /// # Errors
    /// Fails with the refusal if there is no further place, or with the error of the search.
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
            // MS-DFSC 3.1.5.2: the target was lost, so the path is resolved again, which tries the
            // next target.
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

    /// Sets the place from which links were followed.
    fn from(mut self, start: Start) -> Self {
        self.start = Some(start);
        self.salted()
    }

    /// Mixes the share's name into the numbers of files: behind a link they are another
    /// volume's.
    fn salted(mut self) -> Self {
        let place = self.share.place(String::new());
        // FNV-1a makes the salt for the file ids from the share's name; any hash would do.
        self.share.salt =
            fold_name(&place.unc()).bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
            });
        self
    }
}

impl Start {
    /// Follows the links from here again.
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
            turns: Turns::default(),
            vain: Mutex::default(),
        }
    }

    /// Begins at a share of `session`, if links may be followed.
    pub(crate) fn from(session: &Session) -> Option<Arc<Self>> {
        let way = Self::new(session.client().clone(), session.credentials().clone());
        if way.policy() == Policy::Never {
            return None;
        }
        way.sessions.lock().push(session.clone());
        Some(Arc::new(way))
    }

    /// Returns the sessions with the servers of the namespace.
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
        let url = place.url(self.client.options().scheme());
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
                let cause = Cause::Protocol("its DFS namespace leads in a circle");
                return Err(Error::new(cause, CONNECT, url));
            }
            is_link |= rest.is_empty() && !known.is_of_root();
            let at;
            (place, share, at) = self.choose(&known, &rest, &mut went.tries).await?;
            others = Others::of(self, &known, at);
            asks = match (asks, &share) {
                // One operation may ask for one referral only, so it must not ask again.
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

    /// Returns the share, whose links are followed with these sessions.
    fn on(self: &Arc<Self>, share: &Share) -> Share {
        let way = (share.is_dfs() && self.policy() != Policy::Never).then(|| Arc::clone(self));
        Share { way, ..share.clone() }
    }

    /// Asks the server of `place` for a referral, if the place is in a namespace.
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
            // The server has no such share, or the share's root is a link. So the client asks for a
            // referral of the root.
            Err(error) => match error.status() {
                Some(Status::BAD_NETWORK_NAME | Status::PATH_NOT_COVERED) => {
                    (DfsPath { path: String::new(), ..place.clone() }, Some(error.clone()))
                }
                _ => return share.map(Asked::Here),
            },
        };
        let response = match self.ipc(&session).await?.dfs_targets(&asked.unc()).await {
            Ok(response) if !response.referrals.is_empty() => response,
            // MS-DFSC 3.1.5.4.3: there is no referral, so the path is no link. If the path is
            // wrong, its use will report the error.
            Ok(_) => return refused.map_or_else(|| share.map(Asked::Here), Err),
            Err(error) if error.status().is_some() => {
                return refused.map_or_else(|| share.map(Asked::Here), Err);
            }
            Err(error) => return Err(error),
        };
        let allowed = |target: &DfsPath| self.may_go(&session, &place.server, target);
        let Some((known, rest)) = Known::understood(&response, &asked, allowed) else {
            let is_understood = Known::understood(&response, &asked, |_| true).is_some();
            let cause = match is_understood {
                true if self.policy() == Policy::Anywhere => Cause::Security(
                    "it leads over a DFS link to another server, and the referral is not signed",
                ),
                true => Cause::Usage(
                    "it leads over a DFS link to another server, and such links are not to be followed",
                ),
                false => Cause::Protocol("its DFS referral names no target that may be used"),
            };
            let url = place.url(self.client.options().scheme());
            return Err(Error::new(cause, "resolve", url));
        };
        // The root's referral may call this server by another name. As this server has the share,
        // it is one of the root's targets, so no other target is needed.
        if let Ok(share) = &share
            && known.is_of_root()
        {
            return Ok(Asked::Here(share.clone()));
        }
        let rest = if refused.is_some() { place.path.clone() } else { rest };
        Ok(Asked::There(self.client.referrals.keep(known), rest))
    }

    /// Returns true if a referral of `session` may lead from `from` to `target`. A referral
    /// without a signature may be forged, and leads to no other host.
    fn may_go(&self, session: &Session, from: &ServerName, target: &DfsPath) -> bool {
        let is_same = target.server.host.eq_ignore_ascii_case(&from.host);
        is_same || (session.is_proved() && self.policy() == Policy::Anywhere)
    }

    /// Asks the controllers that `Options::domain_controller` knows for the root of a domain's
    /// namespace: MS-DFSC 3.1.4.1, steps 5 and 6. `None` without such a controller, and for a
    /// domain that it does not know.
    async fn ask_controllers(&self, place: &DfsPath, hops: usize) -> Result<Option<Asked>> {
        let Some(first) = self.client.options().domain_controller.clone() else { return Ok(None) };
        if hops > 0 || first.host.eq_ignore_ascii_case(&place.server.host) {
            return Ok(None);
        }
        let session = self.session(&first).await?;
        let domain = &*place.server.host;
        let found = match self.ipc(&session).await?.dfs_controllers(domain).await {
            Err(error) if error.status().is_some() => return Ok(None),
            found => found?,
        };
        let root = DfsPath { path: String::new(), ..place.clone() };
        let status = Cause::Status(Status::OBJECT_PATH_NOT_FOUND);
        let url = place.url(self.client.options().scheme());
        let mut last = Error::new(status, "resolve", url);
        for name in found.into_iter().take(TARGETS_TRIED) {
            let same = name.eq_ignore_ascii_case(&first.host);
            let server = if same { first.clone() } else { ServerName::new(name) };
            let there = DfsPath { server, ..root.clone() };
            if !self.may_go(&session, &first, &there) {
                continue;
            }
            let asked = async {
                let controller = self.session(&there.server).await?;
                let response = self.ipc(&controller).await?.dfs_targets(&root.unc()).await?;
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

    /// Returns the first target that can be used, with its index: MS-DFSC 3.1.5.2. The share is
    /// `None` if its server has to be asked for a referral first.
    async fn choose(
        &self,
        known: &Known,
        rest: &str,
        tries: &mut usize,
    ) -> Result<(DfsPath, Option<Share>, usize)> {
        let left = TARGETS_TRIED.saturating_sub(*tries);
        let candidate =
            |(at, target): (usize, &DfsPath)| Candidate { at, target: target.below(rest) };
        let candidates = known.tried().map(candidate).take(left).collect();
        let mut last = None;
        let failed = |_: &ServerName, error| last = Some(error);
        let connect = |target: DfsPath| {
            *tries += 1;
            async move { self.connected(&target).await }
        };
        let Some(UsableTarget { at, target, share }) =
            first_usable(&self.turns, candidates, connect, failed).await
        else {
            let none = || Error::new(Cause::Status(Status::OBJECT_PATH_NOT_FOUND), CONNECT, "");
            return Err(last.unwrap_or_else(none));
        };
        if let Some(share) = &share {
            self.client.referrals.worked(known, at);
            if known.targets.len() > 1 {
                share.session().inner.be_replaceable();
            }
        }
        Ok((target, share, at))
    }

    /// Returns the share of a target.
    async fn connected(&self, target: &DfsPath) -> Result<Share> {
        let session = self.session(&target.server).await?;
        self.share(&session, &target.share).await
    }

    /// Returns a session with `server`. Without a live one it makes a single attempt: there may be
    /// other targets.
    async fn session(&self, server: &ServerName) -> Result<Session> {
        let present = || {
            let sessions = self.sessions.lock();
            sessions.iter().find(|one| one.server() == server && one.is_alive()).cloned()
        };
        if let Some(session) = present() {
            return Ok(session);
        }
        let since = Instant::now();
        let turn = self.turns.at(server);
        let _turn = turn.lock.lock().await;
        if let Some(session) = present() {
            return Ok(session);
        }
        // Another caller has tried this server while this call waited for its turn. So the error of
        // that attempt is returned.
        if let Some(error) = self.vain.lock().known_since(server, since) {
            return Err(error);
        }
        turn.answered.store(false, Ordering::Relaxed);
        let beginning = Beginning::told(Arc::clone(&turn.answered));
        let logged_on =
            self.client.log_on(server.clone(), self.credentials.clone(), beginning).await;
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

    /// Returns the share through which a server is asked for referrals.
    async fn ipc(&self, session: &Session) -> Result<Share> {
        self.share(session, "IPC$").await
    }

    /// Returns the share `name` of `session`, without following its links.
    async fn share(&self, session: &Session, name: &str) -> Result<Share> {
        let is_it = |share: &&Share| share.began_in(session) && eq_ignore_case(share.name(), name);
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
