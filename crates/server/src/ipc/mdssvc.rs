//! Spotlight for one caller: the indexes of shares, searched with the rights of the caller.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use frevo_index::{Cursor, Query};
use frevo_rpc::Call;
use frevo_rpc::mdssvc::{Hit, Page, Progress, Search, Searched, Spotlight, Volume, Volumes};
use frevo_store::Name;
use frevo_store::name::Rules as NameRules;
use parking_lot::Mutex;

use super::peer::Peer;
use super::waits::Started;
use crate::access::access_rules::{self, Verdict};
use crate::base::limits::SPOTLIGHT_SEARCH;
use crate::objects::server::ServerState;
use crate::objects::session::Identity;
use crate::shares::index::SearchError;
use crate::shares::share::Share;

type State = Spotlight<String, Cursor>;

/// The interface on one association.
#[derive(Debug, Default)]
pub(super) struct SpotlightCalls(Arc<Mutex<State>>);

impl SpotlightCalls {
    /// Starts a call. A search is made on a thread that may wait.
    pub(super) fn start(&self, call: &Call, searcher: Searcher) -> Started {
        let begun = self.0.lock().begin(call.opnum, &call.stub, &searcher);
        let search = match begun {
            Progress::Ended(answer) => return Started::Ended(answer),
            Progress::Search(search) => search,
        };
        let Search { share, scope, query, after, most, searched } = search;
        let waiting = Waiting { state: Arc::clone(&self.0), searched: Some(searched) };
        let peer = Peer::over_tcp(Arc::clone(&searcher.server), searcher.peer, searcher.peer);
        let user = searcher.identity.user.clone();
        let scope = scope.replace('/', "\\");
        let job = Job { searcher, share, scope, query, after, most };
        Started::Waits(Box::pin(async move {
            let page = peer.beside_core(&user, move || job.run()).await.ok().flatten();
            waiting.end(page)
        }))
    }

    /// Bytes that its state takes.
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().bytes()
    }
}

/// A call whose search is made. If the call is cancelled, its query is told so.
struct Waiting {
    state: Arc<Mutex<State>>,
    searched: Option<Searched>,
}

impl Waiting {
    fn end(mut self, page: Option<Page<Cursor>>) -> frevo_rpc::Answer {
        match self.searched.take() {
            Some(searched) => self.state.lock().complete(&searched, page),
            None => Err(frevo_rpc::FaultStatus::CANCEL),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(searched) = self.searched.take() {
            // Nobody waits for this answer.
            let _ = self.state.lock().complete(&searched, None);
        }
    }
}

/// The user who searches.
pub(super) struct Searcher {
    pub(super) server: Arc<ServerState>,
    pub(super) identity: Arc<Identity>,
    /// Address and port of the client.
    pub(super) peer: SocketAddr,
    /// True if the carrier encrypts.
    pub(super) is_sealed: bool,
}

impl Searcher {
    /// Returns a share as the user has it; None for one that the user may not connect to.
    ///
    /// A share that is not there is judged too, so that the time of the answer does not tell which shares there are.
    fn share(&self, name: &str) -> Option<Arc<Share>> {
        let (shares, identity) = (self.server.shares(), &self.identity);
        if identity.is_nobody() {
            return None;
        }
        let found = shares.find_for(name, &identity.user);
        let rules = found.map_or(shares.rules_of_none(), |share| &share.rules);
        let read_only = found.is_some_and(|share| share.read_only);
        let verdict = black_box(self.as_caller(|caller| rules.judge(caller, read_only)));
        let share = Arc::clone(found?);
        let is_refused = matches!(verdict, Verdict::Refused(_));
        let mut brakes = shares.all().filter_map(|share| share.brake.as_ref());
        let is_braked = self.as_caller(|caller| brakes.any(|brake| brake.refuses(caller)));
        // The names in a share that demands encryption need it as well.
        let is_in_clear = share.encrypt && !self.is_sealed;
        if is_refused || is_braked || is_in_clear || !share.life.takes_new() || share.is_pipes() {
            return None;
        }
        let share = share.for_account(&identity.user)?;
        let (users, epoch) = (&self.server.host_users, share.life.epoch());
        share.acting_for(&identity.user, identity.host.user(), users, epoch)
    }

    /// Asks about the user as rules and brakes have it.
    fn as_caller<T>(&self, ask: impl FnOnce(&access_rules::Caller<'_>) -> T) -> T {
        let domain_sids = self.server.domain_names.sids();
        let caller = access_rules::Caller {
            user: &self.identity.user,
            groups: &self.identity.groups,
            groups_are_known: self.identity.host.is_known(),
            token: &self.identity.token,
            domain_sids: &domain_sids,
            address: self.peer.ip(),
        };
        ask(&caller)
    }
}

/// A search that is to be made.
struct Job {
    searcher: Searcher,
    share: String,
    scope: String,
    query: Arc<Query>,
    after: Option<Cursor>,
    most: usize,
}

impl Job {
    /// Searches until something is found, for a while. None if the user may no longer search the share.
    fn run(self) -> Option<Page<Cursor>> {
        let nothing = Page { found: Vec::new(), after: None };
        let share = self.searcher.share(&self.share).filter(|share| share.spotlight)?;
        let index = share.searcher(&self.searcher.identity.token)?;
        let Ok(scope) = Name::parse(&self.scope, NameRules::Windows) else { return Some(nothing) };
        let (began, mut after) = (Instant::now(), self.after);
        loop {
            match index.search(&scope, &self.query, after, self.most) {
                Ok(page) => {
                    let is_over = page.after.is_none() || began.elapsed() >= SPOTLIGHT_SEARCH;
                    if is_over || !page.found.is_empty() {
                        let found = page.found.into_iter().map(|file| Hit {
                            id: file.id,
                            path: file.path.replace('\\', "/"),
                            kind: file.kind,
                            size: file.size,
                            modified: file.modified,
                            created: file.created,
                        });
                        return Some(Page { found: found.collect(), after: page.after });
                    }
                    after = page.after;
                }
                // Nobody learns of a folder that the user may not know of.
                Err(SearchError::NoFolder) => return Some(nothing),
                Err(SearchError::Query(_) | SearchError::NoIndex) => return None,
            }
        }
    }
}

impl Volumes for Searcher {
    type Share = String;
    type Cursor = Cursor;

    fn find(&self, name: &str) -> Option<Volume<String>> {
        let share = self.share(name).filter(|share| share.spotlight)?;
        share.searcher(&self.identity.token)?;
        let mut uuid = self.server.settings().server_guid.0;
        for (byte, letter) in uuid.iter_mut().zip(share.name.bytes()) {
            *byte ^= letter;
        }
        let volume = share.name_for(&self.identity.user);
        Some(Volume { share: name.to_owned(), name: volume, uuid })
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.server.ambient.random(&mut bytes);
        bytes
    }

    fn now(&self) -> i64 {
        self.server.ambient.now().to_unix().0
    }
}
