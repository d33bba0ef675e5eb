//! The search for the node of a cluster that serves a share.
//!
//! The nodes of a cluster have one name and an address each, and a share is served at one of them: the
//! others refuse its TREE_CONNECT (BAD_NETWORK_NAME, SERVER_UNAVAILABLE: MS-SMB2 3.3.5.7), or end the
//! connection. A search goes on in rounds: in each of them every address is tried once, the one where
//! the share was last before the others. A pause follows a round in which a node has refused.

use std::net::IpAddr;
use std::time::Duration;

use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::Status;
use crate::dial::ServerName;
use crate::limits::{
    ADDRESS_DIAL, ADDRESSES_MAX, FIND_SHARE_PAUSE_FIRST, FIND_SHARE_PAUSE_MAX, RECONNECT_ANSWER,
    RECONNECT_ANSWER_DOUBLINGS, SILENT_DIAL, SILENT_PAUSE,
};

/// The addresses of a session's server, and the state of a search among them.
#[derive(Debug)]
pub(crate) struct Search(Mutex<State>);

/// The servers at the addresses, as far as they have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Servers {
    /// One server.
    One,
    /// Nodes of a cluster, or servers one after the other.
    Cluster,
    /// Nodes of a cluster, which have a share of the session that outlives its node.
    Continuous,
}

impl Servers {
    /// Notes that they have shown to be `these` at least.
    fn show(&mut self, these: Self) {
        *self = (*self).max(these);
    }
}

#[derive(Debug)]
struct State {
    candidates: Vec<Candidate>,
    /// The address where the share was found last.
    preferred: Option<ServerName>,
    /// The address whose node has fallen silent. It is tried after the others.
    silent: Option<Silent>,
    servers: Servers,
    /// Connections in a row on which nobody has answered.
    unanswered: u32,
    /// Time before which no further round begins, and the pause after that round.
    next: Instant,
    pause: Duration,
}

/// The address of a node that has fallen silent.
#[derive(Debug)]
struct Silent {
    address: ServerName,
    /// Attempts there since then, while other nodes were about to serve its share.
    attempts: u32,
    /// Time of the next one.
    next: Instant,
}

/// An address, with the outcome of this round's attempt.
#[derive(Debug, Clone)]
struct Candidate {
    address: ServerName,
    outcome: Outcome,
    /// The ServerGuid of the node that answered there last.
    server: Option<Guid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Untried,
    /// No node has negotiated.
    Failed,
    /// A node has negotiated, and the logon failed.
    NotLoggedOn,
    /// The node refuses the share, or has ended the connection instead.
    Refused(Refused),
    /// The search ended before, at this address or at another one.
    Over,
}

/// The refusal of a share by a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The status; `None` if the node has ended the connection instead of an answer.
    pub(crate) status: Option<Status>,
    /// True if the share is about to be somewhere: it outlives its node, or was in use in a cluster.
    pub(crate) is_awaited: bool,
}

/// The reason why no address is left in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exhausted {
    /// A later round may find the share.
    ForNow,
    /// All addresses are those of one server, which refuses the share with this status.
    ForGood(Status),
}

impl Search {
    /// A search that has not begun, which tries `preferred` first.
    pub(super) fn new(preferred: Option<ServerName>) -> Self {
        Self(Mutex::new(State {
            candidates: Vec::new(),
            preferred,
            silent: None,
            servers: Servers::One,
            unanswered: 0,
            next: Instant::now(),
            pause: FIND_SHARE_PAUSE_FIRST,
        }))
    }

    /// Returns the addresses that were not tried in this round, in the order in which they are tried.
    pub(super) fn untried(&self) -> Vec<ServerName> {
        let state = self.0.lock();
        let untried = state.candidates.iter().filter(|one| one.outcome == Outcome::Untried);
        untried.map(|one| one.address.clone()).collect()
    }

    /// Returns the count of addresses.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().candidates.len()
    }

    /// Waits until a further round may begin.
    pub(crate) async fn rest(&self) {
        let next = self.next_round();
        if next > Instant::now() {
            sleep_until(next).await;
        }
    }

    /// Returns the time before which no further round begins.
    fn next_round(&self) -> Instant {
        self.0.lock().next
    }

    /// Begins a round with these addresses; without any, with those of the last one.
    pub(super) fn begin(&self, addresses: Vec<ServerName>) {
        let mut state = self.0.lock();
        let guid_of = |address: &ServerName| {
            state.candidates.iter().find(|one| one.address == *address).and_then(|one| one.server)
        };
        let candidate = |address: ServerName| {
            let server = guid_of(&address);
            Candidate { address, outcome: Outcome::Untried, server }
        };
        let candidates: Vec<_> = addresses.into_iter().take(ADDRESSES_MAX).map(candidate).collect();
        if !candidates.is_empty() {
            state.candidates = candidates;
        }
        state.candidates.iter_mut().for_each(|one| one.outcome = Outcome::Untried);
        let State { candidates, preferred, silent, .. } = &mut *state;
        let (silent, preferred) = (silent.as_ref().map(|one| &one.address), preferred.as_ref());
        let is = |it: Option<&ServerName>, one: &Candidate| it == Some(&one.address);
        candidates.sort_by_key(|one| (is(silent, one), !is(preferred, one)));
    }

    /// Begins a round after the one of `other`, in which the node at `address` has refused the share.
    pub(super) fn begin_after(&self, other: &Self, address: &ServerName, refused: Refused) {
        let (candidates, servers) = {
            let known = other.0.lock();
            let untried = |one: &Candidate| Candidate { outcome: Outcome::Untried, ..one.clone() };
            (known.candidates.iter().map(untried).collect(), known.servers)
        };
        {
            let mut state = self.0.lock();
            state.candidates = candidates;
            // The share that outlives its node is another session's.
            state.servers.show(servers.min(Servers::Cluster));
        }
        self.note_refused(address, refused);
    }

    /// Begins a round with the known addresses if the pause after the last one is over.
    pub(crate) fn begin_if_due(&self) {
        if self.0.lock().next <= Instant::now() {
            self.begin(Vec::new());
        }
    }

    /// Notes that a share of the session outlives its node.
    pub(super) fn note_continuous(&self) {
        self.0.lock().servers.show(Servers::Continuous);
    }

    /// Notes that the server is a node of a cluster.
    pub(super) fn note_cluster(&self) {
        self.0.lock().servers.show(Servers::Cluster);
    }

    /// Returns true if a node of a cluster was found at an address, or two servers one after the other.
    pub(crate) fn is_cluster(&self) -> bool {
        self.0.lock().servers >= Servers::Cluster
    }

    /// Returns true after a share was found in the session that outlives its node.
    pub(super) fn is_continuous(&self) -> bool {
        self.0.lock().servers == Servers::Continuous
    }

    /// Returns the time limit of the first answer on a connection, if it is shorter than that of the
    /// attempt.
    pub(super) fn answer_within(&self) -> Option<Duration> {
        let state = self.0.lock();
        let doublings = state.unanswered.min(RECONNECT_ANSWER_DOUBLINGS);
        (state.servers == Servers::Continuous).then(|| RECONNECT_ANSWER * 2_u32.pow(doublings))
    }

    /// Notes that nobody has answered on a connection.
    pub(super) fn note_unanswered(&self) {
        let mut state = self.0.lock();
        state.unanswered = state.unanswered.saturating_add(1);
    }

    /// Notes that no node negotiates at an address.
    pub(super) fn note_failed(&self, address: &ServerName) {
        self.0.lock().note(address, Outcome::Failed);
    }

    /// Notes that the node that has negotiated at an address does not log the user on.
    pub(super) fn note_not_logged_on(&self, address: &ServerName) {
        self.0.lock().note(address, Outcome::NotLoggedOn);
    }

    /// Notes the node that has negotiated at an address. Returns false if that node has refused the
    /// share in this round at another address.
    pub(super) fn note_reached(&self, address: &ServerName, server: Guid) -> bool {
        let mut state = self.0.lock();
        state.unanswered = 0;
        // MS-SMB2 2.2.4: a server that has no ServerGuid sends zeros, which name no server.
        let server = (server != Guid::default()).then_some(server);
        let refused = server.and_then(|server| {
            let of_it = |one: &&Candidate| one.server == Some(server) && one.address != *address;
            // A logon that failed may have failed by the way there, or at one node of a cluster whose
            // nodes share their ServerGuid.
            let mut outcomes = state.candidates.iter().filter(of_it).map(|one| one.outcome);
            outcomes.find(|outcome| matches!(outcome, Outcome::Refused(_)))
        });
        if let Some(one) = state.candidates.iter_mut().find(|one| one.address == *address) {
            let before = std::mem::replace(&mut one.server, server);
            // The address goes from one node to another.
            if before.zip(server).is_some_and(|(before, now)| before != now) {
                state.servers.show(Servers::Cluster);
            }
        }
        if let Some(refused) = refused {
            state.note(address, refused);
        }
        refused.is_none()
    }

    /// Notes that the node at an address refuses the share.
    pub(crate) fn note_refused(&self, address: &ServerName, refused: Refused) {
        self.0.lock().note(address, Outcome::Refused(refused));
    }

    /// Notes that the node at an address has fallen silent.
    pub(super) fn note_silent(&self, address: &ServerName) {
        let silent = &mut self.0.lock().silent;
        if silent.as_ref().is_none_or(|silent| silent.address != *address) {
            let next = Instant::now();
            *silent = Some(Silent { address: address.clone(), attempts: 0, next });
        }
    }

    /// Begins an attempt at an address. Returns its time limit if that of addresses is too long: the node there
    /// has fallen silent, and others are about to serve its share. The limit grows, for the node may come
    /// back far away.
    pub(super) fn begin_attempt(&self, address: &ServerName) -> Option<Duration> {
        let mut state = self.0.lock();
        let is_awaited = state.is_awaited_elsewhere();
        let silent = state.silent.as_mut().filter(|silent| silent.address == *address)?;
        if !is_awaited {
            return None;
        }
        let limit = (SILENT_DIAL * 2_u32.pow(silent.attempts.min(16))).min(ADDRESS_DIAL);
        silent.attempts = silent.attempts.saturating_add(1);
        silent.next = Instant::now() + limit + SILENT_PAUSE;
        Some(limit)
    }

    /// Tries an address first in the rounds to come.
    pub(super) fn prefer(&self, address: &ServerName) {
        self.0.lock().preferred = Some(address.clone());
    }

    /// Returns true for an address of the server.
    pub(crate) fn has_address(&self, host: &str) -> bool {
        self.0.lock().candidates.iter().any(|one| one.address.host == host)
    }

    /// Notes the addresses of the share's owner, which another node has named. They are tried next, unless
    /// they were tried in this round: nodes that name each other end the round as those do that refuse.
    pub(crate) fn note_owners(&self, owners: &[ServerName]) {
        let mut state = self.0.lock();
        let mut named = Vec::new();
        for owner in owners {
            // An address of the server may have a port of its own.
            let known = state.candidates.iter().position(|one| one.address.host == owner.host);
            if let Some(one) = known.and_then(|at| state.candidates.get_mut(at)) {
                if one.outcome == Outcome::Over {
                    one.outcome = Outcome::Untried;
                }
                named.push(one.address.clone());
            } else if state.candidates.len() < ADDRESSES_MAX {
                let (address, outcome) = (owner.clone(), Outcome::Untried);
                state.candidates.push(Candidate { address, outcome, server: None });
                named.push(owner.clone());
            }
        }
        if let Some(first) = named.first() {
            state.preferred = Some(first.clone());
            state.servers.show(Servers::Cluster);
        }
        state.candidates.sort_by_key(|one| !named.contains(&one.address));
    }

    /// Notes that the share is at an address. It is tried first from then on.
    pub(crate) fn note_found(&self, address: &ServerName) {
        let mut state = self.0.lock();
        // Pauses are those of one search: at an address that moves with the share each one would begin
        // with the last pause of the one before.
        state.pause = FIND_SHARE_PAUSE_FIRST;
        let is_known = state.preferred.as_ref() == Some(address);
        let is_rested = state.candidates.iter().all(|one| one.outcome == Outcome::Untried);
        if is_known && is_rested {
            return;
        }
        state.preferred = Some(address.clone());
        state.silent = None;
        state.next = Instant::now();
        // The refusals of this search say nothing to the next one, which begins a round. An address
        // where nobody listens is remembered until then.
        let ended = state.candidates.iter_mut().filter(|one| one.outcome != Outcome::Failed);
        ended.for_each(|one| one.outcome = Outcome::Over);
    }

    /// Returns true if a share that is refused at this address may be at another one, or at the same one
    /// soon. The refusal is not noted yet: the session may stay at the address for its other shares.
    pub(crate) fn may_go_on(&self, address: &ServerName, refused: Refused) -> bool {
        if refused.is_awaited {
            return true;
        }
        let mut candidates = self.0.lock().candidates.clone();
        if let Some(one) = candidates.iter_mut().find(|one| one.address == *address) {
            one.outcome = Outcome::Refused(refused);
        }
        candidates.len() > 1 && one_server(&candidates).is_none()
    }

    /// Returns the reason why no address is left in this round.
    pub(super) fn exhausted(&self) -> Exhausted {
        let state = self.0.lock();
        match one_server(&state.candidates) {
            Some(status) if !state.is_awaited_elsewhere() => Exhausted::ForGood(status),
            _ => Exhausted::ForNow,
        }
    }
}

impl State {
    fn note(&mut self, address: &ServerName, outcome: Outcome) {
        let was_over = self.is_over();
        if let Some(one) = self.candidates.iter_mut().find(|one| one.address == *address) {
            one.outcome = outcome;
        }
        self.pass_silent_over();
        let has_refused = |one: &Candidate| matches!(one.outcome, Outcome::Refused(_));
        // Several requests that meet one refusal make one pause.
        if !was_over && self.is_over() && self.candidates.iter().any(has_refused) {
            self.next = Instant::now() + self.pause;
            self.pause = (self.pause * 3 / 2).min(FIND_SHARE_PAUSE_MAX);
        }
    }

    /// True if a node has refused a share in this round that is about to be somewhere.
    fn is_awaited_elsewhere(&self) -> bool {
        let is_awaited = |one: &Candidate| {
            matches!(one.outcome, Outcome::Refused(Refused { is_awaited: true, .. }))
        };
        self.candidates.iter().any(is_awaited)
    }

    /// Ends a round in which the node that has fallen silent alone is left: the others are asked again sooner than
    /// it could be found silent once more. Now and then it has its turn, for it may come back.
    fn pass_silent_over(&mut self) {
        let is_awaited = self.is_awaited_elsewhere();
        let Some(silent) = self.silent.as_ref().filter(|one| one.next > Instant::now()) else {
            return;
        };
        let mut untried = self.candidates.iter_mut().filter(|one| one.outcome == Outcome::Untried);
        if let (Some(last), None) = (untried.next(), untried.next())
            && is_awaited
            && last.address == silent.address
        {
            last.outcome = Outcome::Failed;
        }
    }

    fn is_over(&self) -> bool {
        self.candidates.iter().all(|one| one.outcome != Outcome::Untried)
    }
}

/// Returns the status with which one server has refused the share at each address.
fn one_server(candidates: &[Candidate]) -> Option<Status> {
    let refusal = |one: &Candidate| match one.outcome {
        Outcome::Refused(refused) => refused.status,
        Outcome::Untried | Outcome::Failed | Outcome::NotLoggedOn | Outcome::Over => None,
    };
    let refused = candidates.iter().find(|one| refusal(one).is_some())?;
    // A server that listens on IPv4 alone may have an IPv6 address in DNS, and the other way round.
    let is_nobodys = |one: &Candidate| {
        let families = family(&one.address).zip(family(&refused.address));
        one.outcome == Outcome::Failed
            && one.server.is_none()
            && families.is_some_and(|(one, other)| one != other)
    };
    let is_its = |one: &Candidate| one.server == refused.server || is_nobodys(one);
    let is_one = candidates.len() == 1 || refused.server.is_some() && candidates.iter().all(is_its);
    // A server that is about to serve its shares says so: SERVER_UNAVAILABLE passes.
    refusal(refused).filter(|status| is_one && *status != Status::SERVER_UNAVAILABLE)
}

/// True for an IPv6 address, false for one of IPv4; `None` for a name.
fn family(address: &ServerName) -> Option<bool> {
    let bare = address.host.split('%').next()?;
    bare.parse::<IpAddr>().ok().map(|ip| ip.is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SHARE: Refused = Refused { status: Some(Status::BAD_NETWORK_NAME), is_awaited: false };
    const NOT_YET: Refused = Refused { is_awaited: true, ..NO_SHARE };

    fn at(name: &str) -> ServerName {
        ServerName::new(name)
    }

    fn begun(names: &[&str]) -> Search {
        let search = Search::new(None);
        search.begin(names.iter().map(|name| at(name)).collect());
        search
    }

    fn guid(number: u8) -> Guid {
        Guid([number; 16])
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_is_tried_once_in_a_round() {
        let search = begun(&["a", "b", "c"]);
        assert!(search.note_reached(&at("a"), guid(1)));
        search.note_refused(&at("a"), NO_SHARE);
        search.note_failed(&at("b"));
        assert_eq!(search.untried(), [at("c")]);
        assert_eq!(search.next_round(), Instant::now(), "the round is not over");
        assert!(search.note_reached(&at("c"), guid(3)));
        search.note_refused(&at("c"), Refused { status: None, ..NO_SHARE });
        assert_eq!(search.untried(), []);
        assert_eq!(search.next_round(), Instant::now() + FIND_SHARE_PAUSE_FIRST);
        assert_eq!(search.exhausted(), Exhausted::ForNow);
        search.begin(Vec::new());
        assert_eq!(search.untried().len(), 3, "the known addresses");
        for name in ["a", "b", "c"] {
            search.note_refused(&at(name), NO_SHARE);
        }
        assert_eq!(search.next_round(), Instant::now() + FIND_SHARE_PAUSE_FIRST * 3 / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_to_a_limit_and_begin_again_when_the_share_is_found() {
        let search = begun(&["a", "b"]);
        for _ in 0..64 {
            search.begin(Vec::new());
            search.note_refused(&at("a"), NO_SHARE);
            search.note_refused(&at("b"), NO_SHARE);
        }
        assert_eq!(search.next_round(), Instant::now() + FIND_SHARE_PAUSE_MAX);
        search.note_found(&at("b"));
        assert_eq!((search.untried(), search.next_round()), (Vec::new(), Instant::now()));
        search.begin(Vec::new());
        assert_eq!(search.untried(), [at("b"), at("a")], "where it was last comes first");
        search.note_refused(&at("b"), NO_SHARE);
        search.note_refused(&at("a"), NO_SHARE);
        assert_eq!(search.next_round(), Instant::now() + FIND_SHARE_PAUSE_FIRST);
        search.note_silent(&at("b"));
        search.begin(Vec::new());
        assert_eq!(search.untried(), [at("a"), at("b")], "its node may hang");
    }

    /// Each move of an address with its share is a search of its own.
    #[tokio::test(start_paused = true)]
    async fn moves_of_one_address_do_not_prolong_the_pauses() {
        let search = begun(&["a"]);
        search.note_found(&at("a"));
        for _ in 0..8 {
            search.begin(Vec::new());
            search.note_refused(&at("a"), NOT_YET);
            assert_eq!(search.next_round(), Instant::now() + FIND_SHARE_PAUSE_FIRST);
            search.rest().await;
            search.begin(Vec::new());
            search.note_found(&at("a"));
        }
    }

    /// A server that is slow for a while is reached all the same.
    #[tokio::test(start_paused = true)]
    async fn the_time_for_an_answer_grows() {
        let search = begun(&["a"]);
        assert_eq!(search.answer_within(), None);
        search.note_found(&at("a"));
        search.note_continuous();
        let mut limits = Vec::new();
        for _ in 0..7 {
            limits.extend(search.answer_within().map(|limit| limit.as_secs()));
            search.note_unanswered();
        }
        assert_eq!(limits, [2, 4, 8, 16, 32, 32, 32]);
        assert!(search.note_reached(&at("a"), guid(1)));
        assert_eq!(search.answer_within(), Some(RECONNECT_ANSWER));
    }

    /// A witness tells of a dead node before another one has its share.
    #[tokio::test(start_paused = true)]
    async fn a_silent_node_takes_no_time_from_those_that_are_about_to_serve() {
        let search = begun(&["a", "b", "c"]);
        search.note_silent(&at("a"));
        // It has its turn first, for a witness may lie.
        for limit in [SILENT_DIAL, SILENT_DIAL * 2] {
            search.begin(Vec::new());
            assert_eq!(search.untried(), [at("b"), at("c"), at("a")]);
            assert_eq!(search.begin_attempt(&at("b")), None);
            search.note_refused(&at("b"), NOT_YET);
            search.note_refused(&at("c"), NOT_YET);
            assert_eq!(search.untried(), [at("a")]);
            assert_eq!(search.begin_attempt(&at("a")), Some(limit));
            tokio::time::advance(limit).await;
            search.note_failed(&at("a"));
            for round in 0..3 {
                search.rest().await;
                search.begin(Vec::new());
                search.note_refused(&at("b"), NOT_YET);
                assert_eq!(search.untried(), [at("c"), at("a")], "{round}");
                search.note_refused(&at("c"), NOT_YET);
                assert_eq!(search.untried(), [], "{round}");
            }
            search.note_silent(&at("a"));
            tokio::time::advance(SILENT_PAUSE).await;
        }
        // While nobody else is about to serve the share, it has its time.
        for refused in [false, true] {
            search.begin(Vec::new());
            search.note_failed(&at("b"));
            match refused {
                true => search.note_refused(&at("c"), NO_SHARE),
                false => search.note_failed(&at("c")),
            }
            assert_eq!(search.untried(), [at("a")], "{refused}");
            assert_eq!(search.begin_attempt(&at("a")), None, "{refused}");
            search.note_failed(&at("a"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_server_with_several_addresses_is_asked_once() {
        let search = begun(&["v6", "v4"]);
        assert!(search.note_reached(&at("v6"), guid(1)));
        assert!(search.may_go_on(&at("v6"), NO_SHARE), "they may be two nodes");
        search.note_refused(&at("v6"), NO_SHARE);
        assert!(!search.note_reached(&at("v4"), guid(1)), "it has refused a moment ago");
        assert_eq!(search.exhausted(), Exhausted::ForGood(Status::BAD_NETWORK_NAME));
        assert!(!search.may_go_on(&at("v4"), NO_SHARE));
        // A share that outlives its node is about to come to the same address.
        search.note_found(&at("v4"));
        search.begin(Vec::new());
        search.note_refused(&at("v4"), NOT_YET);
        assert!(!search.note_reached(&at("v6"), guid(1)));
        assert_eq!(search.exhausted(), Exhausted::ForNow);
        assert!(search.may_go_on(&at("v4"), NOT_YET));
        assert!(!search.may_go_on(&at("v4"), NO_SHARE), "another share of the session");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_logon_fails_is_tried_at_its_other_address() {
        let search = begun(&["v6", "v4", "other"]);
        assert!(search.note_reached(&at("v6"), guid(1)));
        search.note_not_logged_on(&at("v6"));
        assert!(
            search.note_reached(&at("v4"), guid(1)),
            "the way to the first address may have failed"
        );
        assert!(search.note_reached(&at("other"), guid(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_is_one_server() {
        let search = begun(&["a"]);
        assert!(!search.may_go_on(&at("a"), NO_SHARE));
        assert!(search.may_go_on(&at("a"), NOT_YET));
        search.note_refused(&at("a"), NO_SHARE);
        assert_eq!(search.exhausted(), Exhausted::ForGood(Status::BAD_NETWORK_NAME));
        let status = Some(Status::SERVER_UNAVAILABLE);
        search.note_refused(&at("a"), Refused { status, ..NO_SHARE });
        assert_eq!(search.exhausted(), Exhausted::ForNow, "its shares are being loaded");
    }

    /// As a server that listens on IPv4 alone, whose name has an IPv6 address.
    #[tokio::test(start_paused = true)]
    async fn an_address_of_the_other_family_where_nobody_listens_is_no_node() {
        for (failing, is_one) in [("2001:db8::1", true), ("fe80::1%7", true), ("192.0.2.2", false)]
        {
            let search = begun(&[failing, "192.0.2.1"]);
            search.note_failed(&at(failing));
            assert!(search.note_reached(&at("192.0.2.1"), guid(1)));
            let may_go_on = || search.may_go_on(&at("192.0.2.1"), NO_SHARE);
            assert_eq!(may_go_on(), !is_one, "{failing}");
            search.note_found(&at("192.0.2.1"));
            assert_eq!(may_go_on(), !is_one, "{failing}, after another share was found");
        }
        let search = begun(&["192.0.2.1", "2001:db8::1"]);
        assert!(search.note_reached(&at("192.0.2.1"), guid(1)));
        search.note_found(&at("192.0.2.1"));
        assert!(search.may_go_on(&at("192.0.2.1"), NO_SHARE), "nobody has tried the other one");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_another_server_has_taken_is_one_of_a_cluster() {
        let search = begun(&["a"]);
        for (guid, is_cluster) in [(guid(1), false), (guid(1), false), (guid(2), true)] {
            search.begin(vec![at("a")]);
            assert!(search.note_reached(&at("a"), guid));
            assert_eq!(search.is_cluster(), is_cluster, "{guid:?}");
        }
        let own = Search::new(None);
        own.begin_after(&search, &at("a"), NO_SHARE);
        assert!(own.is_cluster() && own.answer_within().is_none());
    }

    /// Two nodes each take the other one for the owner, until one of them learns better.
    #[tokio::test(start_paused = true)]
    async fn owners_that_nodes_name_are_tried_next_and_once_in_a_round() {
        let search = begun(&["a", "b", "c"]);
        search.note_owners(&[at("c"), at("new")]);
        search.note_refused(&at("a"), NOT_YET);
        assert_eq!(search.untried(), [at("c"), at("new"), at("b")]);
        search.note_owners(&[at("a")]);
        search.note_refused(&at("c"), NOT_YET);
        assert_eq!(search.untried(), [at("new"), at("b")], "a has refused it in this round");
        search.note_found(&at("b"));
        // Another node has it by now.
        search.note_owners(&[at("c")]);
        search.note_refused(&at("b"), NOT_YET);
        assert_eq!(search.untried(), [at("c")]);
        assert_eq!(search.next_round(), Instant::now(), "no pause before");
        let many: Vec<_> = (0..1_000).map(|at| ServerName::new(format!("n{at}"))).collect();
        search.note_owners(&many);
        assert_eq!(search.count(), ADDRESSES_MAX);
        search.note_owners(&[at("one more")]);
        assert!(!search.untried().contains(&at("one more")));
    }

    /// Servers without a ServerGuid all send zeros.
    #[tokio::test(start_paused = true)]
    async fn servers_without_a_guid_are_not_taken_for_one() {
        let search = begun(&["a", "b"]);
        assert!(search.note_reached(&at("a"), Guid::default()));
        search.note_refused(&at("a"), NO_SHARE);
        assert!(search.note_reached(&at("b"), Guid::default()));
        assert!(search.may_go_on(&at("b"), NO_SHARE));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_64_addresses_count() {
        let search = Search::new(None);
        search.begin((0..1_000).map(|at| ServerName::new(format!("node{at}"))).collect());
        assert_eq!((search.count(), search.untried().len()), (ADDRESSES_MAX, ADDRESSES_MAX));
    }
}
