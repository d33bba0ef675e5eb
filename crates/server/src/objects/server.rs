//! The state that all connections share: MS-SMB2 3.3.1.5.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use arc_swap::{ArcSwap, Guard};
use frevo_net::transport::{InterfaceKind, Listening};
use frevo_store::FileTable;
use frevo_store::order::{Ordered, rank};
use frevo_store::security::Token;
use frevo_wire::Status;
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::access::account_directory::AccountDirectory;
use crate::access::administrators::{Administrators, Candidate, Decided, KnownBy};
use crate::access::domain_logons::DomainLogonSlot;
use crate::access::domain_names::DomainNames;
use crate::access::host_ids::HostIds;
use crate::access::host_users::{HostUsers, OnHost};
use crate::access::kerberos::KerberosSlot;
use crate::access::principals::Principals;
pub use crate::access::principals::SharedAccounts;
use crate::access::rate_rules::RateRule;
use crate::access::throttle::LogonThrottle;
use crate::audit::{self, Event, Kind};
use crate::base::ambient::Ambient;
use crate::base::descriptors::Descriptors;
use crate::base::host::HostUser;
use crate::base::limits::{CLOSED_ON_CORE, SESSIONS};
use crate::base::lines::Lines;
use crate::base::panics::{self, Steps};
use crate::base::pools::blocking_pool::{self, BlockingPool};
use crate::base::pools::crypto_threads::CryptoThreads;
use crate::base::pools::permits::IsAlone;
use crate::base::surplus::return_surplus;
use crate::base::watchdog::{Watchdog, Whose};
use crate::objects::activity;
use crate::objects::admission::Ticket;
use crate::objects::captures::Captures;
use crate::objects::client::ClientTable;
use crate::objects::cluster::{Cluster, LateOpen};
use crate::objects::durable::{Durables, Survival};
use crate::objects::farewell::Parting;
use crate::objects::ledger::Ledger;
use crate::objects::open::{Deletion, Open};
use crate::objects::rates::Rates;
use crate::objects::rpc_connections::RpcConnections;
use crate::objects::session::{Identity, Session};
use crate::objects::settings::Settings;
use crate::objects::shadow_copies::ShadowCopies;
use crate::objects::witness::Witness;
use crate::shares::exposed::Exposed;
use crate::shares::index::ShareIndex;
use crate::shares::life::Change;
use crate::shares::share::{Share, Shares, Uses};
use crate::shares::share_editor::ShareEditor;
use crate::shares::target_servers::TargetServers;

/// The state that all connections of one server share. A process may have several.
pub struct ServerState {
    settings: ArcSwap<Settings>,
    shares: ArcSwap<Shares>,
    accounts: ArcSwap<SharedAccounts>,
    /// The keys and rules for Kerberos tickets.
    pub(crate) kerberos: KerberosSlot,
    /// The directory that is asked for accounts, if there is one.
    pub(crate) account_directory: OnceLock<Arc<AccountDirectory>>,
    /// NTLM for users of a domain.
    pub(crate) domain_logons: DomainLogonSlot,
    /// Users and groups of domains by name and by SID.
    pub(crate) domain_names: DomainNames,
    /// Time, random bytes and facts of the host.
    pub ambient: Arc<dyn Ambient>,
    /// Table of the files that are open.
    pub files: FileTable,
    /// Opens that outlive their connection.
    pub durables: Arc<Durables>,
    /// The server's part in a cluster.
    pub cluster: Cluster,
    /// GlobalClientTable
    pub clients: ClientTable,
    /// Users of the host.
    pub host_users: HostUsers,
    /// Users and groups of the host that SIDs in access lists stand for.
    pub(crate) host_ids: HostIds,
    /// Delays answers after failed logons.
    pub throttle: LogonThrottle,
    /// Accounting of what clients make the server keep.
    pub ledger: Ledger,
    /// Log lines about clients.
    pub lines: Lines,
    /// Descriptors of the process.
    pub descriptors: Descriptors,
    /// The audit log, if there is one.
    pub audit: audit::Slot,
    /// The sessions of guests.
    pub(crate) guests: Arc<Uses>,
    /// The connections on which nobody has logged on yet.
    pub admission: crate::objects::admission::Admission,
    /// Threads for requests that are long work, whatever their share.
    pub blocking_pool: BlockingPool,
    /// Threads that protect and check large messages; see [`Self::crypto_threads`].
    crypto: OnceLock<Arc<CryptoThreads>>,
    /// Polls that held a core for long.
    pub watchdog: Arc<Watchdog>,
    /// Activity of all channels.
    pub(crate) activity: Arc<activity::Registry>,
    /// Connections of remote procedure calls over TCP.
    pub(crate) rpc_connections: RpcConnections,
    /// Servers that links of namespaces lead to.
    pub(crate) target_servers: TargetServers,
    /// Limits of rate.
    pub(crate) rates: Rates,
    /// The capture of messages, if there is one.
    pub(crate) captures: Captures,
    /// The indexes of shares whose threads run.
    indexes: Mutex<Vec<Arc<ShareIndex>>>,
    /// Registrations of clients that use other nodes of the cluster.
    pub(crate) witness: Arc<Witness>,
    /// Bytes by which compression has made requests shorter.
    pub(crate) saved_by_clients: AtomicU64,
    sessions: Ordered<HashMap<u64, Arc<Session>>, { rank::CLIENT }>,
    /// The turn of a review of the sessions: two at once could leave a session with what the earlier
    /// one has found.
    pub(super) review_turn: Mutex<()>,
    next_open: AtomicU64,
    next_connection: AtomicU64,
    /// Changes shares for administrators, if shares can be changed over the network.
    pub(crate) share_editor: OnceLock<Arc<dyn ShareEditor>>,
    /// The shares that serve snapshots.
    exposed: Mutex<Vec<Exposed>>,
    /// Shadow copies over the network, if the server makes snapshots.
    pub(crate) shadow_copies: OnceLock<ShadowCopies>,
    /// When it started, for srvsvc and status.
    pub started: FileTime,
    /// The same moment, from which the times of breaks are counted.
    pub(crate) began: Instant,
    /// The addresses of its listeners, once it serves them.
    pub listening: OnceLock<Vec<Listening>>,
    /// The port of RPC over TCP, once it is served.
    pub(crate) rpc_port: OnceLock<u16>,
}

/// Returns how many processors the process may use.
fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns the memory that the host's file systems keep for the server.
#[cfg(feature = "posix")]
fn host_cache() -> crate::objects::ledger::Cache {
    crate::objects::ledger::Cache {
        bytes: crate::base::host::remembered_bytes,
        forget: crate::base::host::forget_remembered,
        watched: crate::base::host::watched_bytes,
    }
}

impl ServerState {
    /// True if it listens for RDMA.
    pub fn listens_for_rdma(&self) -> bool {
        let mut listening = self.listening.get().into_iter().flatten();
        listening.any(|listener| listener.interface == InterfaceKind::Rdma)
    }

    /// A server that serves `shares` to `accounts`.
    pub fn new(
        settings: Settings,
        shares: Shares,
        accounts: SharedAccounts,
        ambient: Arc<dyn Ambient>,
    ) -> Arc<Self> {
        let (started, activity) = (ambient.now(), Arc::<activity::Registry>::default());
        let known = Arc::clone(&activity);
        let is_alone: IsAlone = Arc::new(move |user| known.is_alone(user));
        let server = Arc::new(Self {
            rates: Rates::new(&settings.rates, &settings.storage_policies),
            captures: Captures::default(),
            indexes: Mutex::default(),
            settings: ArcSwap::from_pointee(settings),
            shares: ArcSwap::from_pointee(shares),
            accounts: ArcSwap::from_pointee(accounts),
            kerberos: KerberosSlot::default(),
            account_directory: OnceLock::new(),
            domain_logons: DomainLogonSlot::default(),
            domain_names: DomainNames::default(),
            ambient,
            files: FileTable::default(),
            durables: Arc::default(),
            cluster: Cluster::default(),
            clients: ClientTable::default(),
            host_users: HostUsers::default(),
            host_ids: HostIds::default(),
            throttle: LogonThrottle::default(),
            ledger: Ledger::default(),
            lines: Lines::default(),
            descriptors: Descriptors::default(),
            audit: audit::Slot::default(),
            guests: Arc::default(),
            admission: crate::objects::admission::Admission::default(),
            blocking_pool: BlockingPool::for_long_work(processors(), &is_alone),
            crypto: OnceLock::new(),
            review_turn: Mutex::default(),
            watchdog: Arc::default(),
            activity,
            rpc_connections: RpcConnections::default(),
            target_servers: TargetServers::default(),
            witness: Arc::default(),
            saved_by_clients: AtomicU64::default(),
            sessions: Ordered::default(),
            next_open: AtomicU64::new(started.0),
            next_connection: AtomicU64::new(1),
            share_editor: OnceLock::new(),
            exposed: Mutex::default(),
            shadow_copies: OnceLock::new(),
            started,
            began: Instant::now(),
            listening: OnceLock::new(),
            rpc_port: OnceLock::new(),
        });
        #[cfg(feature = "posix")]
        server.ledger.set_cache(host_cache());
        server.want_names(&server.settings(), &server.shares());
        if server.shares().sorted().iter().any(|share| share.runs_as_others()) {
            server.host_users.act_lazily();
        }
        server.tell_breaks();
        server
    }

    /// Has the breaks of leases told.
    fn tell_breaks(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.files.leases.teller.set(move |cell, breaks| {
            if let Some(server) = weak.upgrade() {
                server.announce_breaks(cell, breaks);
            }
        });
    }

    /// Threads that sign, verify, seal and unseal large messages: beside as many cores as the server
    /// runs on, or as the process may use.
    pub(crate) fn crypto_threads(&self) -> &Arc<CryptoThreads> {
        self.crypto.get_or_init(|| {
            let cores = self.watchdog.cores();
            let cores = cores.unwrap_or_else(processors);
            Arc::new(CryptoThreads::new(cores))
        })
    }

    /// Messages that were given to other threads.
    pub fn messages_elsewhere(&self) -> u64 {
        self.crypto.get().map_or(0, |threads| threads.carried_out())
    }

    /// Settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Shares as they are now.
    pub fn shares(&self) -> Guard<Arc<Shares>> {
        self.shares.load()
    }

    /// Accounts as they are now.
    pub fn accounts(&self) -> SharedAccounts {
        SharedAccounts::clone(&self.accounts.load())
    }

    /// Takes a new configuration and returns the accounts of the one before.
    pub(crate) fn replace(
        &self,
        settings: Settings,
        shares: &Shares,
        accounts: SharedAccounts,
    ) -> Arc<SharedAccounts> {
        self.want_names(&settings, shares);
        self.rates.set(&settings.rates, &settings.storage_policies);
        self.settings.store(Arc::new(settings));
        {
            let exposed = self.exposed.lock();
            let shares = shares.exposing(&exposed, &self.shares());
            self.shares.store(Arc::new(shares));
        }
        self.start_indexes();
        let before = self.accounts.swap(Arc::new(accounts));
        self.host_ids.forget();
        before
    }

    /// Starts the indexes of the shares, ends those of shares that have none any more, and has them hear of
    /// changes.
    pub(crate) fn start_indexes(&self) {
        let shares = self.shares.load_full();
        let indexes = shares.all().filter(|share| !share.is_exposed);
        let indexes: Vec<_> = indexes.filter_map(|share| share.index.clone()).collect();
        let listeners = shares.all().filter_map(|share| share.index_listener(&shares)).collect();
        let before = std::mem::replace(&mut *self.indexes.lock(), indexes.clone());
        for index in before {
            if !indexes.iter().any(|stays| Arc::ptr_eq(stays, &index)) {
                index.stop();
            }
        }
        self.files.watches.set_listeners(listeners);
        shares.all().for_each(|share| share.start_index());
    }

    /// Changes the shares that serve snapshots.
    pub(crate) fn change_exposed(&self, change: impl FnOnce(&mut Vec<Exposed>)) {
        let mut exposed = self.exposed.lock();
        change(&mut exposed);
        let before = self.shares.load_full();
        self.shares.store(Arc::new(before.exposing(&exposed, &before)));
    }

    /// SID of the machine, whose accounts have theirs below it.
    pub fn machine_sid(&self) -> Sid {
        self.settings.load().sid()
    }

    /// Looks at names and SIDs.
    pub fn with_principals<T>(&self, look: impl FnOnce(&Principals<'_>) -> T) -> T {
        let accounts = self.accounts();
        let settings = self.settings.load();
        let name = &settings.server_name;
        let host = self.ambient.names();
        look(&Principals { machine: self.machine_sid(), name, accounts: &accounts, host })
    }

    /// Looks at the members of groups, also of those from domains.
    pub fn with_members<T>(
        &self,
        look: impl FnOnce(&Administrators<'_>, &Principals<'_>) -> T,
    ) -> T {
        let settings = self.settings.load();
        let domains = self.domain_names.sids();
        let administrators = Administrators::new(&settings.administrators, &domains);
        self.with_principals(|known| look(&administrators, known))
    }

    /// Has the SIDs of names of domains in rules asked for.
    fn want_names(&self, settings: &Settings, shares: &Shares) {
        let administrators = settings.administrators.of_domains().map(String::from);
        let limited = settings.rates.iter().flat_map(|rule| rule.users.of_domains());
        let mut names = shares.names_of_domains();
        names.extend(administrators);
        names.extend(limited.map(String::from));
        self.domain_names.want(names);
    }

    /// True if users of domains log on to this server.
    pub(crate) fn has_domain_users(&self) -> bool {
        let takes_their_tickets =
            || self.kerberos.service().is_some() && self.settings.load().realms.is_empty();
        self.domain_names.has_directory() || takes_their_tickets()
    }

    /// Decides if a user administers the server. `token` is that of the user without the decision.
    pub(crate) fn decide(&self, user: &Candidate<'_>, token: &Token) -> Decided {
        let settings = self.settings.load();
        let domains = self.domain_names.sids();
        Administrators::new(&settings.administrators, &domains).decide(user, token)
    }

    /// Decides again for a user who is logged on, by the accounts and rules of now.
    pub(crate) fn decide_again(&self, identity: &Identity) -> Decided {
        let host = identity.host.user();
        if identity.is_nobody() {
            return Decided { token: Arc::clone(&identity.token), ground: None };
        }
        if identity.is_local {
            let groups = self.groups(&identity.user, host);
            let known_by = KnownBy::Accounts;
            let user = Candidate { user: &identity.user, groups: &groups, known_by };
            return self.decide(&user, &self.account_token(&identity.user, host));
        }
        let (user, groups) = (&*identity.user, &*identity.groups);
        self.decide(&Candidate { user, groups, known_by: KnownBy::Domain }, &identity.token)
    }

    /// The token of an account for access checks, without the decision if it administers the server.
    pub(crate) fn account_token(&self, user: &str, host: Option<&HostUser>) -> Token {
        let unix: Vec<Sid> = host.map_or_else(Vec::new, |host| {
            let groups = host.unix.groups.iter().map(|gid| Sid::unix_group(*gid));
            [Sid::unix_user(host.unix.uid)].into_iter().chain(groups).collect()
        });
        self.with_principals(|principals| principals.token(user, &unix))
    }

    /// The groups of a user, in lower case: of the account and of the host's user.
    pub fn groups(&self, user: &str, host: Option<&HostUser>) -> Arc<[String]> {
        let membership = self.accounts().membership(user);
        let groups = membership.map_or_else(Vec::new, |membership| membership.groups);
        let groups = groups.iter().map(|group| fold_name(group));
        groups.chain(host.into_iter().flat_map(|host| host.groups.iter().cloned())).collect()
    }

    /// The host's user of an account, where a share or the rules of administrators need it.
    pub async fn host_user(&self, user: &str) -> OnHost {
        let is_needed = {
            let settings = self.settings.load();
            let needs_groups = |rule: &RateRule| rule.users.has_groups();
            settings.has_host_sids
                || settings.administrators.need_groups()
                || settings.rates.iter().any(needs_groups)
        };
        if !is_needed && !self.shares().needs_host_users {
            return OnHost::Unknown;
        }
        self.host_users.look_up(&self.ambient, user).await
    }

    /// A new FileId. The persistent half is random, so that it cannot be
    /// guessed. The volatile half counts on from the time of the start, which a
    /// server that made less than ten million Opens each second has not reached
    /// when it starts again: no FileId ever comes twice.
    pub fn new_file_id(&self) -> FileId {
        let volatile = self.next_open.fetch_add(1, Ordering::Relaxed);
        let persistent = loop {
            let id = self.ambient.random_u64();
            if id != 0 && id != u64::MAX {
                break id;
            }
        };
        FileId { persistent, volatile }
    }

    /// A new FileId of an Open in `share`. Its halves are one number if the share is one of a cluster, unique
    /// over all servers that have the share in turn: the next owner gives an Open the FileId that it had.
    ///
    /// MS-SMB2 3.3.5.9.12 wants a generated value, unique in Session.OpenTable, and 2.2.14.1 one that can change
    /// with a reconnect. Linux's client repeats a FLUSH by the FileId that it had before.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when this server of a cluster has no number to give.
    pub(crate) fn new_file_id_in(&self, share: &Share) -> Result<FileId, Status> {
        let number = share.clustered.then(|| self.cluster.number()).flatten();
        let Some(number) = number.transpose()? else { return Ok(self.new_file_id()) };
        Ok(FileId { persistent: number, volatile: number })
    }

    /// A place among the unauthenticated for a new connection from `address`. None when
    /// no other connection can make room for it, or when connections like it have used up
    /// the memory kept for newcomers. Memory that accounts hold refuses nobody.
    pub fn admit(&self, address: IpAddr) -> Option<Ticket> {
        self.ledger.relieve();
        if !self.ledger.has_room_for_newcomers() {
            return None;
        }
        self.admission.enter(address)
    }

    /// A number for a new connection.
    pub fn new_connection_id(&self) -> u64 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a new session made by `make` from its new id into GlobalSessionTable: a random id, or in a
    /// cluster one that no other server gives.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when there are too many, or this server of a cluster has no number to give.
    pub fn add_session(&self, make: impl FnOnce(u64) -> Session) -> Result<Arc<Session>, Status> {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= SESSIONS {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        // A random id has only 32 bits, because some clients keep no more (smbtorture's session-id).
        // An id may be guessed, because the session's messages are signed.
        let id = match self.cluster.number() {
            Some(number) => number?,
            None => loop {
                let id = self.ambient.random_u64() & u64::from(u32::MAX);
                if id != 0 && id != u64::from(u32::MAX) && !sessions.contains_key(&id) {
                    break id;
                }
            },
        };
        let session = Arc::new(make(id));
        sessions.insert(id, Arc::clone(&session));
        Ok(session)
    }

    /// The session `id` on any connection.
    pub fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// Returns all sessions, valid or not.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }

    /// The number of sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Ends a session: its Opens close or wait for their client, its channels
    /// forget it. `why` is the reason, for the audit log. The client has asked for the end, or has
    /// gone.
    pub fn close_session(self: &Arc<Self>, session: &Session, why: &'static str) {
        self.part_with(session, Parting::Silent, why);
    }

    /// Like [`Self::close_session`], for a client that does not expect the end: it is told, if it takes
    /// notifications.
    pub fn dismiss_session(self: &Arc<Self>, session: &Session, why: &'static str) {
        self.part_with(session, Parting::Told, why);
    }

    /// [Ends](Self::dismiss_session) a session, one with many Opens on another thread.
    pub fn dismiss_apart(self: &Arc<Self>, session: &Arc<Session>, why: &'static str) {
        let is_small = session.work_to_end() <= CLOSED_ON_CORE || frevo_net::file_io::stays();
        let (server, ended) = (Arc::clone(self), Arc::clone(session));
        let end = move || server.dismiss_session(&ended, why);
        if is_small || self.blocking_pool.run_for_core(end).is_err() {
            self.dismiss_session(session, why);
        }
    }

    fn part_with(self: &Arc<Self>, session: &Session, parting: Parting, why: &'static str) {
        // A move that does not find the session any more waits for the close of its Opens.
        let trees = session.trees();
        let _changes: Vec<_> = trees.iter().filter_map(|tree| tree.begin_change()).collect();
        {
            let mut sessions = self.sessions.lock();
            sessions.remove(&session.id);
            return_surplus(&mut sessions);
        }
        let mut steps = Steps::default();
        steps.take(|| {
            if session.close(&self.clients, parting, |open| self.close_open(open))
                && let Some(identity) = session.identity()
            {
                tracing::info!(target: "frevo::session", user = %identity.user, why, "session ended");
                self.audit.emit(|| {
                    let event = Event::new(Kind::Logoff).session(session.id).by(Some(identity));
                    event.with("reason", why)
                });
            }
        });
        self.start_scavenger();
        steps.end();
    }

    /// Ends a session whose connections are gone. A session that takes as much work as to close
    /// `may_close` Opens is ended on this core, and its part is subtracted from `may_close`; a
    /// larger one is ended on another thread.
    pub fn end_session(self: &Arc<Self>, session: &Arc<Session>, may_close: &mut usize) {
        let left = may_close.checked_sub(session.work_to_end());
        let is_small = left.is_some() || frevo_net::file_io::stays();
        *may_close = left.unwrap_or(*may_close);
        let (server, ended) = (Arc::clone(self), Arc::clone(session));
        let why = "its last connection has ended";
        let end = move || server.close_session(&ended, why);
        if is_small || self.blocking_pool.run_for_core(end).is_err() {
            self.close_session(session, why);
        }
    }

    /// Closes an Open whose client is gone. Nobody waits for a file system that
    /// may never answer.
    ///
    /// An Open of a paused share is closed later: closing it can change its file.
    pub fn close_open(self: &Arc<Self>, open: &Arc<Open>) {
        self.close_within(open, None);
    }

    /// Closes an Open within `change`, if its close has begun already.
    fn close_within(self: &Arc<Self>, open: &Arc<Open>, change: Option<Change>) {
        let tree = open.tree();
        if tree.share.life.is_paused() {
            return self.cluster.close_later(open);
        }
        let change = Arc::new(change.unwrap_or_else(|| tree.share.life.begin_change()));
        let is_long = open.work_to_close() > CLOSED_ON_CORE && !frevo_net::file_io::stays();
        let pool = tree.share.pool().map(|pool| &**pool);
        let pool = pool.or(is_long.then_some(&self.blocking_pool));
        let pool = pool.filter(|_| !blocking_pool::is_here());
        let (server, closed) = (Arc::clone(self), Arc::clone(open));
        let held = Arc::clone(&change);
        let close = move || {
            let _held = held;
            server.close_here(&closed);
            closed.start_writeback();
        };
        if pool.is_none_or(|pool| pool.run_for_core(close).is_err()) {
            for deletion in open.close_briefly(&self.files) {
                drop(self.finish_within(open, deletion, Arc::clone(&change)));
            }
        }
    }

    /// Closes an Open on the calling thread, however long that takes; a core leaves a deletion that takes long
    /// to another thread. One that a pause keeps it from is made later.
    pub fn close_here(self: &Arc<Self>, open: &Arc<Open>) {
        if frevo_net::file_io::stays() {
            for deletion in open.close(&self.files) {
                self.put_off(open, deletion);
            }
        } else {
            for deletion in open.close_briefly(&self.files) {
                drop(self.finish_deletion(open, deletion));
            }
        }
    }

    /// Keeps a deletion for later that a pause of its share has left, or the loss of its storage. The
    /// record of its Open outlives a share that is lost, so that the next owner makes the deletion.
    fn put_off(&self, open: &Arc<Open>, deletion: Deletion) {
        let share = &open.tree().share;
        if deletion.has_lost_storage() && share.life.serves() {
            self.lose_storage(&share.life);
        }
        self.cluster.delete_later(open, deletion);
    }

    /// Closes an Open that a pause has kept from being closed.
    pub(super) fn close_late(self: &Arc<Self>, late: LateOpen) {
        match late {
            LateOpen { open, deletion: None, change } => self.close_within(&open, change),
            LateOpen { open, deletion: Some(deletion), change }
                if open.tree().share.life.serves() =>
            {
                let change = change.unwrap_or_else(|| open.tree().share.life.begin_change());
                drop(self.finish_within(&open, deletion, Arc::new(change)));
            }
            // The share was lost, so the file system is not asked.
            LateOpen { open, deletion: Some(deletion), change } => {
                self.finish_here(&open, deletion);
                drop(change);
            }
        }
    }

    fn finish_here(&self, open: &Arc<Open>, deletion: Deletion) {
        if let Some(left) = open.finish(&self.files, deletion) {
            self.put_off(open, left);
        }
    }

    /// Returns the accounts of a connection, for the log.
    pub(crate) fn accounts_at(&self, whose: Whose) -> String {
        let Whose::Peer(peer) = whose else { return String::new() };
        let channels = self.activity.channels().into_iter();
        let ids = channels.filter(|channel| channel.connection.peer == peer);
        let sessions = self.sessions.lock();
        let users = ids.filter_map(|channel| sessions.get(&channel.session)?.identity());
        let users: BTreeSet<String> = users.map(|identity| identity.user.clone()).collect();
        users.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Ends a deletion beside the core: its name is searched for in a large directory. The
    /// receiver learns of its end.
    pub(crate) fn finish_deletion(
        self: &Arc<Self>,
        open: &Arc<Open>,
        deletion: Deletion,
    ) -> oneshot::Receiver<()> {
        let change = Arc::new(open.tree().share.life.begin_change());
        self.finish_within(open, deletion, change)
    }

    /// Ends a deletion, which a move of its share waits for by `change`.
    fn finish_within(
        self: &Arc<Self>,
        open: &Arc<Open>,
        deletion: Deletion,
        change: Arc<Change>,
    ) -> oneshot::Receiver<()> {
        let (ended, end) = oneshot::channel();
        if frevo_net::file_io::stays() {
            self.finish_here(open, deletion);
            drop(change);
            return end;
        }
        let (server, closed) = (Arc::clone(self), Arc::clone(open));
        let held = Arc::clone(&change);
        let kept = Arc::new(Mutex::new(Some(deletion)));
        let taken = Arc::clone(&kept);
        let given = self.blocking_pool.run_for_core(move || {
            let _held = held;
            let deletion = taken.lock().take();
            if let Some(deletion) = deletion {
                server.finish_here(&closed, deletion);
            }
            // The send fails if no one waits for the deletion any more.
            let _ = ended.send(());
        });
        if given.is_err()
            && let Some(deletion) = kept.lock().take()
        {
            self.finish_here(open, deletion);
        }
        drop(change);
        end
    }

    /// Closes every Open that waits for its client: none will come any more, but
    /// for persistent ones, which the next run of the server has again.
    pub fn close_waiting(self: &Arc<Self>) {
        let goes = |open: &Open| !open.survival().is_some_and(Survival::is_persistent);
        for open in self.durables.give_up(goes) {
            panics::contained(|| self.close_open(&open));
        }
    }
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState")
            .field("sessions", &self.sessions.lock().len())
            .finish_non_exhaustive()
    }
}
