//! Sessions: a logged-on user on a server, over connections that may be lost and replaced.
//! MS-SMB2 3.2.1.3, 3.2.4.1.7, 3.2.7.1.

mod activity;
pub(crate) mod bound;
pub(crate) mod breaks;
mod channel;
mod channel_info;
mod channels;
mod connector;
pub(crate) mod lease;
mod logon;
mod names;
mod once;
mod operations;
mod password;
mod paths;
mod progress;
mod renewal;
pub(crate) mod shares;
mod spoken_dialect;

pub(crate) use channel::{Failure, Live};
pub use channel_info::ChannelInfo;

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::dtyp::Guid;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::account;
use crate::ambient::random;
use crate::connection::Unasked;
use crate::credentials::Credentials;
use crate::dial::{Dial, ServerName};
use crate::dialers::dialers;
use crate::error::{Cause, During, Result};
use crate::limits::{BACK_OFF_FIRST, BACK_OFF_MAX, BREAKS_WAITING, LOG_OFF_FOR, LOGON_AGAIN_AFTER};
use crate::options::Options;
use crate::types::{Cipher, Dialect, SigningAlgorithm};
use breaks::Leases;
use channels::Ways;
use connector::{Connector, is_final};
use logon::Logon;
use operations::Operations;
use progress::Progress;
use renewal::{Reauthenticate, Renewal};

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
        Self { options: Arc::new(options), dial, guid: Guid(guid), referrals: Arc::default() }
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
        self.log_on(server.into(), credentials, false).await
    }

    /// Logs on. With `was_proved` a guest's session is refused: another one of the user on this
    /// server had a proof.
    pub(crate) async fn log_on(
        &self,
        server: ServerName,
        credentials: Credentials,
        was_proved: bool,
    ) -> Result<Session> {
        let path = format!("smb://{server}");
        let (unasked, heard) = mpsc::channel(BREAKS_WAITING);
        let connector = Connector {
            options: Arc::clone(&self.options),
            dial: Arc::clone(&self.dial),
            guid: self.guid,
            server,
            credentials,
            unasked,
        };
        let inner = Arc::new(Inner {
            client: self.clone(),
            connector: Arc::new(connector),
            live: RwLock::new(None),
            recovering: tokio::sync::Mutex::new(()),
            vain: Mutex::new(None),
            generations: AtomicU64::new(0),
            was_proved: AtomicBool::new(was_proved),
            closed: AtomicBool::new(false),
            leases: Leases::default(),
            unreachable: watch::Sender::new(false),
        });
        let live = inner.establish(0).await.during("connect to", &path);
        let live = live.map_err(|error| error.of_user(inner.connector.credentials.user()))?;
        *inner.live.write() = Some(live);
        tokio::spawn(breaks::answer(Arc::downgrade(&inner), heard));
        Ok(Session { inner })
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
    generations: AtomicU64,
    /// True after a logon that was no guest's: who resets the connection cannot make it one's.
    was_proved: AtomicBool,
    closed: AtomicBool,
    pub(crate) leases: Leases,
    /// True after the session was lost and an attempt to recover it failed.
    unreachable: watch::Sender<bool>,
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
        let other = Client::with_dialer(options, Arc::clone(&client.dial));
        let was_proved = self.inner.was_proved.load(Ordering::Acquire);
        other.log_on(server.clone(), credentials.clone(), was_proved).await
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

    /// Returns the name of the user.
    pub fn user(&self) -> &str {
        self.inner.connector.credentials.user()
    }

    /// Sends an ECHO and waits for the answer: the time that it takes is the round-trip time.
    ///
    /// # Errors
    /// Fails if the server cannot be reached any more.
    pub async fn echo(&self) -> Result<()> {
        let path = format!("smb://{}", self.inner.connector.server);
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

    /// Logs off. Open files are closed. Takes at most 2 seconds.
    pub async fn log_off(self) {
        self.inner.closed.store(true, Ordering::Release);
        let live = self.inner.live.write().take();
        if let Some(live) = live {
            let _ = timeout(LOG_OFF_FOR, channel::log_off(&live)).await;
            live.abandon();
        }
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

    /// The way in which the server broke the protocol, if that ended the session
    /// `generation`.
    pub(crate) fn broken(&self, generation: u64) -> Option<Cause> {
        let live = self.live.read().clone().filter(|live| live.generation == generation)?;
        live.prune();
        live.broken.get().cloned()
    }

    /// Returns the session, after recovering it if needed.
    pub(crate) async fn live(&self) -> std::result::Result<Arc<Live>, Cause> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let since = Instant::now();
        let _turn = self.recovering.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        self.check_open()?;
        if let Some(why) = self.known_since(since) {
            return Err(why);
        }
        let previous = self.live.read().as_ref().map_or(0, |live| live.session_id);
        let recovered = self.recover(previous, since).await;
        let live = recovered.inspect_err(|why| {
            *self.vain.lock() = Some((Instant::now(), why.clone()));
        })?;
        tracing::debug!(server = %self.connector.server, "the session was recovered");
        if !self.is_kept(&live) {
            let _ = timeout(LOG_OFF_FOR, channel::log_off(&live)).await;
            live.abandon();
        }
        self.check_open()?;
        self.unreachable.send_replace(false);
        Ok(live)
    }

    /// Returns true after a logoff.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> std::result::Result<(), Cause> {
        if self.is_closed() { Err(Cause::Usage("the session is logged off")) } else { Ok(()) }
    }

    /// Makes `live` the session. Returns false if the session was logged off meanwhile.
    fn is_kept(&self, live: &Arc<Live>) -> bool {
        let mut now = self.live.write();
        // A logoff sets the flag `is_closed` before it removes the session, so after a logoff no
        // session is stored here.
        let is_kept = !self.is_closed();
        if is_kept {
            *now = Some(Arc::clone(live));
        }
        is_kept
    }

    /// The result of an attempt that another caller made since `since`, if it counts for this
    /// one too: a final error, or an error after the caller's patience has ended. A refused
    /// logon is not tried again soon: after a change of password that would lock the account.
    fn known_since(&self, since: Instant) -> Option<Cause> {
        let (at, why) = self.vain.lock().clone()?;
        let is_over =
            at >= since && (is_final(&why) || since.elapsed() + BACK_OFF_FIRST >= self.patience());
        let is_refused = at.elapsed() < LOGON_AGAIN_AFTER
            && matches!(why, Cause::Status(status) if account::is_of_logon(status));
        (is_over || is_refused).then_some(why)
    }

    /// The longest time for which operations wait for a lost server.
    pub(crate) fn patience(&self) -> Duration {
        self.client.options.recover_for
    }

    /// Returns when the server was lost and an attempt to reach it again has failed.
    pub(crate) async fn found_unreachable(&self) {
        // The wait cannot fail, because `self` owns the sender of this channel.
        let _ = self.unreachable.subscribe().wait_for(|is_so| *is_so).await;
    }

    /// Tries until an attempt succeeds or fails for good, or patience ends.
    async fn recover(
        &self,
        previous: u64,
        since: Instant,
    ) -> std::result::Result<Arc<Live>, Cause> {
        let until = since + self.patience();
        let mut pause = BACK_OFF_FIRST;
        loop {
            let why = match self.establish(previous).await {
                Ok(live) => return Ok(live),
                Err(why) if is_final(&why) => return Err(why),
                Err(why) => why,
            };
            self.unreachable.send_replace(true);
            if Instant::now() + pause >= until {
                return Err(why);
            }
            sleep(pause).await;
            self.check_open()?;
            pause = (pause * 2).min(BACK_OFF_MAX);
        }
    }

    /// Makes one attempt, with a time limit.
    async fn establish(&self, previous: u64) -> std::result::Result<Arc<Live>, Cause> {
        let limit = self.client.options.connect_timeout;
        // The logon is not part of the limit, because KDCs have time limits of their own.
        let logon = self.connector.logon().await?;
        let progress = Progress::default();
        let live = match timeout(limit, self.establish_once(logon, previous, &progress)).await {
            Ok(outcome) => outcome?,
            Err(_elapsed) => return Err(progress.silence(limit).into()),
        };
        let wanted = self.client.options.channels;
        if live.is_wide {
            let mut ways = Ways::new(wanted == 0);
            if wanted > 1 {
                // If no further channel can be added in time, the session works with one.
                let _ = timeout(limit, ways.fill(&self.connector, &live)).await;
            }
            live.keep(&self.connector, ways);
        }
        Ok(live)
    }

    async fn establish_once(
        &self,
        logon: Logon<'_>,
        previous: u64,
        progress: &Progress,
    ) -> std::result::Result<Arc<Live>, Cause> {
        let connection = match previous {
            0 => self.connector.connect_first(progress).await?,
            _ => self.connector.connect(progress).await?,
        };
        let agreed = connection.agreed().clone();
        let logged_on = logon.begin(connection, previous).await?;
        if logged_on.channel.signing.is_some() {
            self.was_proved.store(true, Ordering::Release);
        } else if self.was_proved.load(Ordering::Acquire) {
            return Err(Cause::Security(
                "the server logged the user on only as a guest, after a session with proof",
            ));
        }
        let is_wide = self.client.options.channels != 1
            && agreed.capabilities.contains(GlobalCapabilities::MULTI_CHANNEL)
            && logged_on.channel.signing.is_some()
            && agreed.terms.is_smb3();
        let by = Arc::clone(&self.connector) as Arc<dyn Reauthenticate>;
        let renewal = logged_on.ticket_end.map(|end| Renewal::new(by, end));
        let live = Arc::new(Live {
            generation: self.generations.fetch_add(1, Ordering::AcqRel) + 1,
            session_id: logged_on.session_id,
            security: logged_on.security,
            terms: agreed.terms,
            capabilities: agreed.capabilities,
            posix: agreed.posix,
            signing: logged_on.channel.signing.clone(),
            channels: RwLock::new(vec![Arc::new(logged_on.channel)]),
            sequence: AtomicU16::new(0),
            broken: OnceLock::new(),
            keepers: Mutex::new(Vec::new()),
            activity: Arc::default(),
            is_wide,
            operations: Operations::default(),
            renewal,
        });
        live.keep_fresh();
        Ok(live)
    }

    /// Returns the ClientGuid.
    pub(crate) const fn guid(&self) -> Guid {
        self.client.guid
    }
}
