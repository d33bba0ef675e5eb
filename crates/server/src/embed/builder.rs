//! The parts of a server, and the change of them.

use std::fmt;
use std::io;
use std::sync::Arc;

use frevo_auth::kerberos::{Policy, ServiceKeys};
use frevo_net::cores::CoresConfig;
use frevo_store::Vfs;
use frevo_store::state::StateStore;

use super::{IntoListeners, Limits, Server, ShareEditor, UserList};
use crate::access::account_directory::AccountDirectory;
use crate::access::domain_logons::DomainLogons;
use crate::access::domain_names::DomainDirectory;
use crate::access::kerberos::KeySource;
use crate::audit::{self, Audit, EventSender, Events, Operations, ShareAudit};
use crate::base::ambient::{Ambient, Host};
use crate::base::host;
use crate::objects::cluster::StorageLost;
use crate::objects::server::SharedAccounts;
use crate::objects::settings::Settings;
use crate::shares::scope::ClusterNames;
use crate::shares::seat::Seat;
use crate::shares::share::{Share, Shares};

/// The parts of a server that is to be made. [`Server::builder`] returns one.
///
/// Without accounts nobody can log on; without shares there is nothing to connect to.
#[must_use]
pub struct ServerBuilder {
    pub(super) settings: Settings,
    shares: Vec<Share>,
    pub(super) accounts: SharedAccounts,
    pub(super) kerberos: Option<(Arc<ServiceKeys>, Policy)>,
    pub(super) limits: Limits,
    pub(super) ambient: Arc<dyn Ambient>,
    audit: Option<Audit>,
    events: Vec<EventSender>,
    pub(super) audited: Operations,
    pub(super) state_store: Option<Arc<dyn StateStore>>,
    pub(super) handover_store: Option<Arc<dyn StateStore>>,
    pub(super) share_editor: Option<Arc<dyn ShareEditor>>,
    pub(super) account_directory: Option<Arc<AccountDirectory>>,
    pub(super) domain_logons: Option<Arc<dyn DomainLogons>>,
    pub(super) domain_directory: Option<Arc<dyn DomainDirectory>>,
    pub(super) key_source: Option<Arc<dyn KeySource>>,
    pub(super) cores: CoresConfig,
    pub(super) seat: Option<Seat>,
    pub(super) cluster_names: Option<ClusterNames>,
    pub(super) storage_lost: Option<StorageLost>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        let begin = host::begin_thread;
        let name = String::from("frevo");
        Self {
            settings: Settings::default(),
            shares: Vec::new(),
            accounts: Arc::new(UserList::new()),
            kerberos: None,
            limits: Limits::default(),
            ambient: Arc::new(Host),
            audit: None,
            events: Vec::new(),
            audited: Operations::ACL,
            state_store: None,
            handover_store: None,
            share_editor: None,
            account_directory: None,
            domain_logons: None,
            domain_directory: None,
            key_source: None,
            cores: CoresConfig { begin, name, ..CoresConfig::default() },
            seat: None,
            cluster_names: None,
            storage_lost: None,
        }
    }
}

impl ServerBuilder {
    /// Adds a share that shows `vfs` to every user, for reading and writing.
    pub fn share(self, name: &str, vfs: Arc<dyn Vfs>) -> Self {
        self.shares([Share::disk(name, vfs)])
    }

    /// Adds shares, with access rules and options of their own.
    pub fn shares(mut self, shares: impl IntoIterator<Item = Share>) -> Self {
        self.shares.extend(shares);
        self
    }

    /// Sets the accounts that can log on.
    pub fn accounts(self, accounts: SharedAccounts) -> Self {
        Self { accounts, ..self }
    }

    /// Accepts Kerberos tickets that were encrypted with these keys, under these rules.
    pub fn kerberos(self, keys: ServiceKeys, policy: Policy) -> Self {
        Self { kerberos: Some((Arc::new(keys), policy)), ..self }
    }

    /// Sets the settings of the protocol: name, dialects, encryption, signing.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Sets the limits of memory, connections and accounts.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the number of core threads that [`Server::serve`] starts. 0, the default,
    /// means one for each processor that the process may use.
    pub fn cores(mut self, count: usize) -> Self {
        self.cores.count = count;
        self
    }

    /// Binds each core thread to a processor of its own.
    pub fn pin_cores(mut self, pin: bool) -> Self {
        self.cores.pin = pin;
        self
    }

    /// Writes events to an audit log.
    pub fn audit(self, audit: Audit) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// Chooses the operations on files that are events, on shares that do not say so
    /// themselves. The default is changes of access rights.
    pub fn audited(self, audited: Operations) -> Self {
        Self { audited, ..self }
    }

    /// Returns a stream of the server's events too, which holds `capacity` events that
    /// were not read yet.
    pub fn events(mut self, capacity: usize) -> (Self, Events) {
        let (sender, events) = audit::channel(capacity);
        self.events.push(sender);
        (self, events)
    }

    /// Keeps persistent handles in `store`, so that they outlive the process. MS-SMB2
    /// 3.3.5.9.12. Only shares that are `continuous` have persistent handles.
    pub fn state_store(self, store: Arc<dyn StateStore>) -> Self {
        Self { state_store: Some(store), ..self }
    }

    /// Leaves durable handles whose clients are away in `store` when the server stops, and takes
    /// up those that an earlier run has left there: clients do not notice a planned restart. It
    /// is another store than that of [`Self::state_store`].
    pub fn handover_store(self, store: Arc<dyn StateStore>) -> Self {
        Self { handover_store: Some(store), ..self }
    }

    /// Lets administrators change shares over the network by `editor`. Without one nobody can.
    #[doc(hidden)]
    pub fn share_editor(self, editor: Arc<dyn ShareEditor>) -> Self {
        Self { share_editor: Some(editor), ..self }
    }

    /// Sets the directory that is asked for accounts before a logon is judged. The accounts of
    /// [`Self::accounts`] have to name it, by [`Accounts::asks_directory`](frevo_auth::Accounts::asks_directory),
    /// and to answer by what it has told.
    pub fn account_directory(self, directory: Arc<AccountDirectory>) -> Self {
        Self { account_directory: Some(directory), ..self }
    }

    /// Asks domain controllers about NTLM by `way`, for the users of [`Settings::passed_on`].
    pub fn domain_logons(self, way: Arc<dyn DomainLogons>) -> Self {
        Self { domain_logons: Some(way), ..self }
    }

    /// Asks `source` for newer keys when a ticket cannot be opened with those of [`Self::kerberos`].
    pub fn key_source(self, source: Arc<dyn KeySource>) -> Self {
        Self { key_source: Some(source), ..self }
    }

    /// Asks `directory` for the names and SIDs of users and groups of domains. Without one, names of
    /// domains in rules of shares are not resolved, and let nobody in.
    pub fn domain_directory(self, directory: Arc<dyn DomainDirectory>) -> Self {
        Self { domain_directory: Some(directory), ..self }
    }

    /// Sets the clock and the source of randomness: those of the host if this is not
    /// called.
    pub fn ambient(self, ambient: Arc<dyn Ambient>) -> Self {
        Self { ambient, ..self }
    }

    /// Makes the server one of a cluster, whose shares ([`Share::clustered`]) it serves until the limit of
    /// `seat` only, and takes and leaves when it is told.
    #[doc(hidden)]
    pub fn cluster(self, seat: Seat) -> Self {
        Self { seat: Some(seat), ..self }
    }

    /// Shows clients that use the name of the cluster its shares alone, and those that use the name of this
    /// node the other shares (MS-SRVS 3.1.6.8). Without these names all see all.
    #[doc(hidden)]
    pub fn cluster_names(self, names: ClusterNames) -> Self {
        Self { cluster_names: Some(names), ..self }
    }

    /// Has `act` called, with the name of the share, when the storage of a clustered share refuses this
    /// server or has gone: the share is not served any more. It is called for each of the shares that were
    /// started together with it, too, on any thread, and must be short.
    #[doc(hidden)]
    pub fn storage_lost(self, act: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self { storage_lost: Some(act), ..self }
    }

    /// Makes the server and takes up the persistent handles of the state store. It serves
    /// nobody yet.
    ///
    /// # Errors
    /// When the state store cannot be read.
    pub fn build(mut self) -> io::Result<Server> {
        let audit = match (self.audit.take(), std::mem::take(&mut self.events)) {
            (audit, events) if events.is_empty() => audit,
            (audit, events) => {
                let ambient = Arc::clone(&self.ambient);
                Some(audit.unwrap_or_else(|| Audit::without_log(ambient)).with_streams(events))
            }
        };
        let mut shares = std::mem::take(&mut self.shares);
        if let Some(audit) = &audit {
            for share in shares.iter_mut().filter(|share| share.audit.is_none()) {
                let operations = self.audited;
                share.audit = Some(ShareAudit { audit: audit.clone(), operations });
            }
        }
        Server::new(self, Shares::new(shares), audit)
    }

    /// Makes the server and serves the clients of `listeners` until the returned future is
    /// dropped. [`Self::build`] and [`Server::serve`] leave a handle to stop it by.
    ///
    /// # Errors
    /// Those of [`Self::build`] and [`Server::serve`].
    pub async fn serve(self, listeners: impl IntoListeners) -> io::Result<()> {
        self.build()?.serve(listeners).await
    }
}

/// A change of a running server. Parts that are not set stay.
///
/// New connections, tree connects and logons see the change. Open files stay open, but
/// sessions of accounts that are gone or disabled end.
#[derive(Default)]
#[must_use]
pub struct Reload {
    pub(super) settings: Option<Settings>,
    pub(super) shares: Option<Vec<Share>>,
    pub(super) accounts: Option<SharedAccounts>,
    pub(super) kerberos: Option<Option<(Arc<ServiceKeys>, Policy)>>,
    pub(super) limits: Option<Limits>,
}

impl Reload {
    /// Returns a change of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the settings of the protocol.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings: Some(settings), ..self }
    }

    /// Replaces all shares of the server.
    pub fn shares(self, shares: impl IntoIterator<Item = Share>) -> Self {
        Self { shares: Some(shares.into_iter().collect()), ..self }
    }

    /// Replaces the accounts that may log on.
    pub fn accounts(self, accounts: SharedAccounts) -> Self {
        Self { accounts: Some(accounts), ..self }
    }

    /// Replaces the keys for Kerberos tickets and their rules; None: no ticket is accepted from
    /// now on. Sessions stay until their tickets end.
    pub fn kerberos(self, kerberos: Option<(ServiceKeys, Policy)>) -> Self {
        let kerberos = kerberos.map(|(keys, policy)| (Arc::new(keys), policy));
        Self { kerberos: Some(kerberos), ..self }
    }

    /// Replaces the limits of memory and accounts. Those of connections, drain time, free
    /// buffers and descriptors stay as they were when the server started.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits: Some(limits), ..self }
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("settings", &self.settings)
            .field("shares", &self.shares)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload")
            .field("settings", &self.settings)
            .field("shares", &self.shares)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
