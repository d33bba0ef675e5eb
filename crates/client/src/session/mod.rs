//! Sessions: a logged-on user on a server, over connections that may be lost and replaced.
//! MS-SMB2 3.2.1.3, 3.2.4.1.7, 3.2.7.1.

mod activity;
pub(crate) mod bound;
pub(crate) mod breaks;
mod channel;
mod channel_info;
mod channels;
mod closed_notice;
pub(crate) mod cluster_shares;
mod coming_back;
mod connected;
mod connector;
mod family;
pub(crate) mod lease;
pub(crate) mod link;
mod logon;
mod names;
mod node;
mod offering;
mod once;
mod operations;
mod password;
mod paths;
mod previous;
mod progress;
mod recovery;
mod renewal;
mod search;
pub(crate) mod shadow_copies;
pub(crate) mod shares;
mod siblings;
mod spoken_dialect;
mod witnessed;

pub(crate) use channel::{Failure, Live};
pub use channel_info::ChannelInfo;
pub(crate) use connected::ConnectedShare;
pub use node::NodeInfo;
pub(crate) use search::Refused;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_wire::dtyp::Guid;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::ambient::random;
use crate::connection::{Offer, Unasked};
use crate::credentials::Credentials;
use crate::dial::{Dial, ServerName};
use crate::dialers::dialers;
use crate::error::{Cause, During, Result};
use crate::limits::{BREAKS_WAITING, LOG_OFF_FOR};
use crate::options::Options;
use crate::quic::Quic;
use crate::types::{Cipher, Dialect, SigningAlgorithm};
use crate::witness::Watcher;
use breaks::Leases;
use cluster_shares::ClusterShares;
use coming_back::ComingBack;
use connected::ConnectedShares;
use connector::Connector;
use family::Family;
use link::Link;
use node::NodeLog;
use offering::Offering;
use previous::Previous;
use search::Search;

/// An SMB client: its settings and its ClientGuid, which all of its sessions share.
///
/// Cloning is cheap: a clone is the same client.
#[derive(Clone, Debug)]
pub struct Client {
    options: Arc<Options>,
    dial: Arc<dyn Dial>,
    guid: Guid,
    /// The cache of DFS referrals.
    pub(crate) referrals: Arc<crate::dfs::cache::Referrals>,
    /// The shares of clusters that it has used.
    pub(crate) cluster_shares: Arc<ClusterShares>,
}

impl Default for Client {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Client {
    /// Returns a client with these settings.
    ///
    /// # Panics
    /// Panics if the system has no random numbers.
    pub fn new(options: Options) -> Self {
        let dial = dialers(&options);
        Self::with_dialer(options, dial)
    }

    /// Returns a client that makes its connections with `dial`.
    ///
    /// # Panics
    /// Panics if the system has no random numbers.
    #[doc(hidden)]
    #[allow(clippy::expect_used, reason = "without randomness there is no security at all")]
    pub fn with_dialer(options: Options, dial: Arc<dyn Dial>) -> Self {
        let guid = random(&*options.ambient).expect("the system has random numbers");
        Self {
            options: Arc::new(options),
            dial,
            guid: Guid(guid),
            referrals: Arc::default(),
            cluster_shares: Arc::default(),
        }
    }

    /// Returns the settings of the client.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Connects to `server` and logs on.
    ///
    /// # Errors
    /// Fails if the server cannot be reached, does not accept the credentials, or offers
    /// less protection than the options demand.
    pub async fn connect(
        &self,
        server: impl Into<ServerName>,
        credentials: Credentials,
    ) -> Result<Session> {
        self.log_on(server.into(), credentials, Beginning::default()).await
    }

    /// Logs on.
    pub(crate) async fn log_on(
        &self,
        server: ServerName,
        credentials: Credentials,
        beginning: Beginning,
    ) -> Result<Session> {
        let path = format!("{}{server}", self.options.scheme());
        let session = self.begin(server, credentials, beginning);
        let inner = &session.inner;
        let live = inner.establish(Previous::NONE).await.during("connect to", &path);
        let live = live.map_err(|error| error.of_user(inner.connector.credentials.user()))?;
        *inner.live.write() = Some(live);
        Ok(session)
    }

    /// Returns a session that has not logged on yet.
    fn begin(&self, server: ServerName, credentials: Credentials, beginning: Beginning) -> Session {
        let (unasked, heard) = mpsc::channel(BREAKS_WAITING);
        let Beginning { was_proved, preferred, family, leases, offering, answered } = beginning;
        let of_client = Offer { client_guid: self.guid, only: None };
        let connector = Connector {
            options: Arc::clone(&self.options),
            dial: Arc::clone(&self.dial),
            offering: offering.unwrap_or_else(|| Offering::new(of_client)),
            server,
            credentials,
            unasked,
            search: Search::new(preferred),
            answered,
        };
        let inner = Arc::new(Inner {
            client: self.clone(),
            connector: Arc::new(connector),
            live: RwLock::new(None),
            recovering: tokio::sync::Mutex::new(()),
            vain: Mutex::new(None),
            was_proved: AtomicBool::new(was_proved),
            closed: AtomicBool::new(false),
            family,
            leases,
            shares: Mutex::default(),
            nodes: NodeLog::default(),
            watcher: Watcher::default(),
            link: Link::default(),
            coming_back: Mutex::default(),
            unreachable: watch::Sender::new(false),
            is_replaceable: AtomicBool::new(false),
        });
        inner.family.join(&inner);
        tokio::spawn(breaks::answer(Arc::downgrade(&inner), heard));
        Session { inner }
    }
}

/// The knowledge with which a session begins.
#[derive(Default)]
pub(crate) struct Beginning {
    /// True if a guest's session is refused: another session of the user had a proof.
    pub(crate) was_proved: bool,
    /// The address that is tried first.
    preferred: Option<ServerName>,
    /// The sessions that it belongs to, and their leases.
    family: Arc<Family<Inner>>,
    leases: Arc<Leases>,
    /// Its offer to servers; None for that of the client.
    offering: Option<Offering>,
    /// Becomes true when the server has answered a NEGOTIATE.
    answered: Arc<AtomicBool>,
}

impl Beginning {
    /// A session of its own, by which `answered` becomes true when the server has answered a NEGOTIATE.
    pub(crate) fn told(answered: Arc<AtomicBool>) -> Self {
        Self { answered, ..Self::default() }
    }
}

/// A logged-on user on a server.
///
/// Cloning is cheap and gives the same session. It ends when the last clone, share and file of
/// it is dropped, or by [`Self::log_off`].
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

/// The state that all clones of a session share.
pub(crate) struct Inner {
    pub(crate) client: Client,
    connector: Arc<Connector>,
    live: RwLock<Option<Arc<Live>>>,
    recovering: tokio::sync::Mutex<()>,
    /// The end of the last failed recovery: time and cause.
    vain: Mutex<Option<(Instant, Cause)>>,
    /// True after a logon that was no guest's: who resets the connection cannot make it one's.
    was_proved: AtomicBool,
    closed: AtomicBool,
    /// The sessions with other nodes that this one belongs to, and the leases of all of them: a lease
    /// stays with its file when the share moves.
    family: Arc<Family<Self>>,
    pub(crate) leases: Arc<Leases>,
    /// The connected shares of files. Those that move together to another node take the session along.
    shares: Mutex<ConnectedShares>,
    nodes: NodeLog,
    /// The witness of the node in use.
    pub(crate) watcher: Watcher,
    /// The measured rate of the way to the server.
    pub(crate) link: Link,
    /// Its returns after the server has told of its end.
    coming_back: Mutex<ComingBack>,
    /// True after the session was lost and an attempt to recover it failed.
    unreachable: watch::Sender<bool>,
    /// True if it is with the server of a DFS target whose link has others.
    is_replaceable: AtomicBool,
}

/// The protection and the limits of a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The dialect that was negotiated.
    pub dialect: Dialect,
    /// The cipher that was negotiated; `None` if the session cannot encrypt.
    pub cipher: Option<Cipher>,
    /// The algorithm that signs messages.
    pub signing: SigningAlgorithm,
    /// True if every message is encrypted.
    pub encrypted: bool,
    /// True if every message that is not encrypted is signed.
    pub signed: bool,
    /// True after a logon by Kerberos, false after one by NTLM.
    pub kerberos: bool,
    /// Count of connections in use, at least 1.
    pub channels: usize,
    /// Largest READ that the server accepts, bytes.
    pub max_read: u32,
    /// Largest WRITE that the server accepts, bytes.
    pub max_write: u32,
}

impl Session {
    /// Returns true if both are one session: then the server can copy between their shares.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Logs the same user on to the same server as another client: with a ClientGuid and a
    /// connections of its own, which waits for a lost server for at most `recover_for`. A server
    /// that serves each client in one process (smbd) or on one core (Frevo) then works for both
    /// at once. Leases belong to a client: a lease of one breaks when the other opens the file.
    ///
    /// # Errors
    /// Fails as [`Client::connect`] does.
    ///
    /// # Panics
    /// Panics if the system has no random numbers.
    #[doc(hidden)]
    pub async fn open_another(&self, recover_for: Duration) -> Result<Self> {
        let Inner { client, connector, .. } = &*self.inner;
        let Connector { server, credentials, .. } = &**connector;
        let options = Options { recover_for, ..(*client.options).clone() };
        let other = Client {
            cluster_shares: Arc::clone(&client.cluster_shares),
            ..Client::with_dialer(options, Arc::clone(&client.dial))
        };
        let beginning = Beginning {
            was_proved: self.inner.was_proved.load(Ordering::Acquire),
            preferred: self.inner.current().map(|live| live.address.clone()),
            // A cluster that has named an older dialect need not name it again.
            offering: Some(Offering::new(Offer {
                client_guid: other.guid,
                ..connector.offering.offer()
            })),
            ..Beginning::default()
        };
        other.log_on(server.clone(), credentials.clone(), beginning).await
    }

    /// Returns when all lease breaks count that came before this call. A break that a server sent
    /// before its answer to a request is applied after this, whatever the caller saw first.
    #[doc(hidden)]
    pub async fn breaks_counted(&self) {
        let (marker, counted) = oneshot::channel();
        if self.inner.connector.unasked.send(Unasked::Marker(marker)).await.is_ok() {
            let _ = counted.await;
        }
    }

    /// Returns the server, as the caller named it.
    pub fn server(&self) -> &ServerName {
        &self.inner.connector.server
    }

    /// Returns true if the session goes over QUIC only, as one of a URL `smb+quic://`.
    pub fn requires_quic(&self) -> bool {
        self.options().quic == Quic::Required
    }

    /// Returns the name of the user.
    pub fn user(&self) -> &str {
        self.inner.connector.credentials.user()
    }

    /// Sends an ECHO and waits for the answer: the time that it takes is the round-trip time.
    ///
    /// # Errors
    /// Fails if the server cannot be reached any more.
    pub async fn echo(&self) -> Result<()> {
        let path = format!("{}{}", self.options().scheme(), self.inner.connector.server);
        let live = self.inner.live().await.during("reach", &path)?;
        let channel = live.channel().ok_or(Cause::Unknown).during("reach", &path)?;
        let gone = |_| channel.connection.reason();
        channel.connection.echo().await.map_err(gone).during("reach", &path)
    }

    /// Returns the session's protection and limits; `None` while the session is lost and
    /// being recovered.
    pub fn info(&self) -> Option<SessionInfo> {
        let live = self.inner.current()?;
        let channels = live.channels.read().len();
        Some(SessionInfo {
            dialect: live.terms.dialect.into(),
            cipher: live.terms.cipher.map(Cipher::of_wire),
            signing: SigningAlgorithm::of_wire(live.terms.signing_algorithm),
            encrypted: live.security.seal || live.is_sealed_by_transport(),
            signed: live.security.sign && !live.is_sealed_by_transport(),
            kerberos: live.renewal.is_some(),
            channels,
            max_read: live.terms.max_read_size,
            max_write: live.terms.max_write_size,
        })
    }

    /// Returns true if requests can be sent now.
    pub(crate) fn is_alive(&self) -> bool {
        self.generation().is_some()
    }

    /// Returns the number of the present logon; `None` while the session is lost.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.inner.current().map(|live| live.generation)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.inner.connector.credentials
    }

    /// Returns true if the server's messages are authenticated: a guest's session has no keys.
    #[doc(hidden)]
    pub fn is_proved(&self) -> bool {
        let live = self.inner.current();
        live.and_then(|live| live.channel()).is_some_and(|channel| channel.signing.is_some())
    }

    /// Logs off, at other nodes of a cluster too, where shares of the session have moved to. Open files
    /// are closed. Takes at most 2 seconds.
    pub async fn log_off(self) {
        self.inner.closed.store(true, Ordering::Release);
        let members = self.inner.family.members();
        join_all(members.iter().map(|member| member.log_off())).await;
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.client.options
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("server", &self.inner.connector.server)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns the session if requests can be sent now.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().clone()?;
        live.prune();
        live.is_alive().then_some(live)
    }

    async fn log_off(&self) {
        self.closed.store(true, Ordering::Release);
        self.watcher.rest();
        let live = self.live.write().take();
        if let Some(live) = live {
            let _ = timeout(LOG_OFF_FOR, channel::log_off(&live)).await;
            live.abandon();
        }
    }

    /// The way in which the server broke the protocol, if that ended the session
    /// `generation`.
    pub(crate) fn broken(&self, generation: u64) -> Option<Cause> {
        let live = self.live.read().clone().filter(|live| live.generation == generation)?;
        live.prune();
        live.broken.get().cloned()
    }
}
