//! Sessions: a user on a server, for as long as the program wants it. The
//! connections beneath come and go (MS-SMB2 3.2.1.3, 3.2.4.1.7, 3.2.7.1).

pub(crate) mod breaks;
mod channel;
pub(crate) mod lease;
mod logon;

pub(crate) use channel::{Failure, Live};

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::dtyp::Guid;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::account;
use crate::ambient::random;
use crate::connection::{Claim, Connection, Unasked};
use crate::credentials::Credentials;
use crate::dial::{Dial, ServerName, Tcp};
use crate::error::{Cause, During, Result};
use crate::limits::{
    BACK_OFF_FIRST, BACK_OFF_MAX, BREAKS_WAITING, CHANNELS_MAX, LOG_OFF_FOR, LOGON_AGAIN_AFTER,
};
use crate::options::Options;
use crate::share::Share;
use breaks::Leases;
use logon::Logon;

/// A client: who asks (its ClientGuid) and how. All of its sessions share both.
#[derive(Clone, Debug)]
pub struct Client {
    options: Arc<Options>,
    dial: Arc<dyn Dial>,
    guid: Guid,
    /// What was learned of DFS namespaces.
    pub(crate) referrals: Arc<crate::dfs::Referrals>,
}

impl Default for Client {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Client {
    /// A client that speaks TCP.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn new(options: Options) -> Self {
        Self::over(options, Arc::new(Tcp))
    }

    /// A client that reaches servers through `dial`.
    ///
    /// # Panics
    /// When the system has no random numbers.
    #[allow(clippy::expect_used, reason = "without randomness there is no security at all")]
    pub fn over(options: Options, dial: Arc<dyn Dial>) -> Self {
        let guid = random(&*options.ambient).expect("the system has random numbers");
        Self { options: Arc::new(options), dial, guid: Guid(guid), referrals: Arc::default() }
    }

    /// The same client with a ClientGuid of the caller's: a program that takes
    /// up what another run of it left open needs its own again.
    #[must_use]
    pub fn with_guid(self, guid: Guid) -> Self {
        Self { guid, ..self }
    }

    /// Its settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Logs on to `server`.
    ///
    /// # Errors
    /// When the server cannot be reached, does not accept the credentials, or
    /// offers less protection than the options demand.
    pub async fn log_on(&self, server: ServerName, credentials: Credentials) -> Result<Session> {
        let path = format!("smb://{server}");
        let (unasked, heard) = mpsc::channel(BREAKS_WAITING);
        let inner = Arc::new(Inner {
            client: self.clone(),
            server,
            credentials,
            live: RwLock::new(None),
            recovering: tokio::sync::Mutex::new(()),
            vain: Mutex::new(None),
            generations: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            unasked,
            leases: Leases::default(),
            unreachable: watch::Sender::new(false),
        });
        let live = inner.establish(0).await.during("connect to", &path);
        let live = live.map_err(|error| error.of_user(&inner.credentials.user))?;
        *inner.live.write() = Some(live);
        tokio::spawn(breaks::answer(Arc::downgrade(&inner), heard));
        Ok(Session { inner })
    }
}

/// A user on a server. Cloning it is cheap and gives the same session; it ends
/// when the last clone, share and file of it is dropped, or by [`Self::log_off`].
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

/// What the clones share.
pub(crate) struct Inner {
    pub(crate) client: Client,
    server: ServerName,
    credentials: Credentials,
    live: RwLock<Option<Arc<Live>>>,
    recovering: tokio::sync::Mutex<()>,
    /// How the last recovery that failed ended, and when.
    vain: Mutex<Option<(Instant, Cause)>>,
    generations: AtomicU64,
    closed: AtomicBool,
    unasked: mpsc::Sender<Unasked>,
    pub(crate) leases: Leases,
    /// It was lost, and tried in vain since.
    unreachable: watch::Sender<bool>,
}

/// Facts about a session's protection and limits, for people.
#[derive(Debug, Clone)]
pub struct SessionFacts {
    /// The dialect.
    pub dialect: frevo_proto::Dialect,
    /// The cipher that was agreed on.
    pub cipher: Option<frevo_crypto::Cipher>,
    /// The signing algorithm.
    pub signing: frevo_crypto::SigningAlgorithm,
    /// Whether all is sealed.
    pub encrypted: bool,
    /// Whether what is not sealed is signed.
    pub signed: bool,
    /// Connections in use.
    pub channels: usize,
    /// Largest READ, bytes.
    pub max_read: u32,
    /// Largest WRITE, bytes.
    pub max_write: u32,
}

impl Session {
    /// The share `name`.
    ///
    /// # Errors
    /// When there is none, or the user may not use it.
    pub async fn share(&self, name: &str) -> Result<Share> {
        Ok(Share::connect(self.clone(), name).await?.following())
    }

    /// Whether both are the same session: then the server can copy between
    /// their shares.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The same user on the same server as another client: under a ClientGuid of its
    /// own, over one connection of its own, which waits for a lost server no longer than
    /// `recover_for`. A server that serves a client in one process (smbd) or on one core
    /// (Frevo) then works for both at once. Leases are the client's: what one holds
    /// breaks when the other opens it.
    ///
    /// # Errors
    /// As [`Client::log_on`].
    ///
    /// # Panics
    /// As [`Client::over`].
    pub async fn beside(&self, recover_for: Duration) -> Result<Self> {
        let Inner { client, server, credentials, .. } = &*self.inner;
        let options = Options { channels: 1, recover_for, ..(*client.options).clone() };
        let other = Client::over(options, Arc::clone(&client.dial));
        other.log_on(server.clone(), credentials.clone()).await
    }

    /// The server that was named.
    pub fn server(&self) -> &ServerName {
        &self.inner.server
    }

    /// Who is logged on.
    pub fn user(&self) -> &str {
        &self.inner.credentials.user
    }

    /// Asks the server whether it is there: the time until this returns is the
    /// path's latency.
    ///
    /// # Errors
    /// When it cannot be reached any more.
    pub async fn echo(&self) -> Result<()> {
        let path = format!("smb://{}", self.inner.server);
        let live = self.inner.live().await.during("reach", &path)?;
        let channel = live.channel().ok_or(Cause::Unknown).during("reach", &path)?;
        let gone = |_| channel.connection.reason();
        channel.connection.echo().await.map_err(gone).during("reach", &path)
    }

    /// How it is protected now; nothing while it is being recovered.
    pub fn facts(&self) -> Option<SessionFacts> {
        let live = self.inner.current()?;
        let channels = live.channels.read().len();
        Some(SessionFacts {
            dialect: live.terms.dialect,
            cipher: live.terms.cipher,
            signing: live.terms.signing_algorithm,
            encrypted: live.security.seal,
            signed: live.security.sign,
            channels,
            max_read: live.terms.max_read_size,
            max_write: live.terms.max_write_size,
        })
    }

    /// Whether it can be used right now.
    pub(crate) fn is_alive(&self) -> bool {
        self.inner.current().is_some()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.inner.credentials
    }

    /// Whether what comes in it is proved to be the server's: a guest's has no keys.
    pub(crate) fn is_proved(&self) -> bool {
        let live = self.inner.current();
        live.and_then(|live| live.channel()).is_some_and(|channel| channel.signing.is_some())
    }

    /// Ends the session on the server. What was open is closed.
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
        f.debug_struct("Session").field("server", &self.inner.server).finish_non_exhaustive()
    }
}

impl Inner {
    /// The session if it can be used right now.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().clone()?;
        live.prune();
        live.is_alive().then_some(live)
    }

    /// How the server broke the protocol in the session `generation`, if that is
    /// what ended it.
    pub(crate) fn broken(&self, generation: u64) -> Option<Cause> {
        let live = self.live.read().clone().filter(|live| live.generation == generation)?;
        live.prune();
        live.broken.get().cloned()
    }

    /// The session, recovered if need be: the caller waits meanwhile.
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
        tracing::debug!(server = %self.server, "the session was recovered");
        if !self.is_kept(&live) {
            let _ = timeout(LOG_OFF_FOR, channel::log_off(&live)).await;
            live.abandon();
        }
        self.check_open()?;
        self.unreachable.send_replace(false);
        Ok(live)
    }

    /// Whether it was logged off.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> std::result::Result<(), Cause> {
        if self.is_closed() { Err(Cause::Usage("the session was logged off")) } else { Ok(()) }
    }

    /// Makes `live` the session, unless that was logged off meanwhile.
    fn is_kept(&self, live: &Arc<Live>) -> bool {
        let mut now = self.live.write();
        // Whoever logs off says so before he looks for what there is.
        let is_kept = !self.is_closed();
        if is_kept {
            *now = Some(Arc::clone(live));
        }
        is_kept
    }

    /// What others found, for whom the server was tried while the caller, who waits since
    /// then, waited for his turn: what is final is so for him too, and nobody waits twice
    /// the time. A logon that was refused is not tried again at once: that would get an
    /// account locked whose password was changed.
    fn known_since(&self, since: Instant) -> Option<Cause> {
        let (at, why) = self.vain.lock().clone()?;
        let is_over =
            at >= since && (is_final(&why) || since.elapsed() + BACK_OFF_FIRST >= self.patience());
        let is_refused = at.elapsed() < LOGON_AGAIN_AFTER
            && matches!(why, Cause::Status(status) if account::is_of_logon(status));
        (is_over || is_refused).then_some(why)
    }

    fn patience(&self) -> Duration {
        self.client.options.recover_for
    }

    /// Returns when the server was lost, and an attempt to reach it again was in vain.
    pub(crate) async fn found_unreachable(&self) {
        // The sender is `self`.
        let _ = self.unreachable.subscribe().wait_for(|is_so| *is_so).await;
    }

    /// Tries until it works, it is clear that it never will, or patience ends.
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

    /// One attempt, with its time limit.
    async fn establish(&self, previous: u64) -> std::result::Result<Arc<Live>, Cause> {
        let limit = self.client.options.connect_timeout;
        let live = match timeout(limit, self.establish_once(previous)).await {
            Ok(outcome) => outcome?,
            Err(_elapsed) => return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        };
        let more = self.client.options.channels.min(CHANNELS_MAX).saturating_sub(1);
        let is_wide = live.capabilities.contains(GlobalCapabilities::MULTI_CHANNEL);
        if more > 0 && is_wide && live.terms.is_smb3() {
            // One connection is enough, where no other comes about.
            let _ = timeout(limit, self.widen(&live, more)).await;
        }
        Ok(live)
    }

    async fn establish_once(&self, previous: u64) -> std::result::Result<Arc<Live>, Cause> {
        let connection = self.connect().await?;
        let agreed = connection.agreed().clone();
        let logged_on = self.logon().begin(connection, previous).await?;
        Ok(Arc::new(Live {
            generation: self.generations.fetch_add(1, Ordering::AcqRel) + 1,
            session_id: logged_on.session_id,
            security: logged_on.security,
            terms: agreed.terms,
            capabilities: agreed.capabilities,
            posix: agreed.posix,
            channels: RwLock::new(vec![Arc::new(logged_on.channel)]),
            sequence: AtomicU16::new(0),
            broken: OnceLock::new(),
        }))
    }

    /// Binds up to `more` further channels. One that cannot be had is done
    /// without.
    async fn widen(&self, live: &Live, more: usize) {
        let Some(main) = live.channel() else { return };
        let Some(signing) = &main.signing else { return };
        for _ in 0..more {
            let bound = async {
                let connection = self.connect().await?;
                if connection.agreed().terms != live.terms {
                    return Err(Cause::Protocol("a channel with other terms"));
                }
                let logon = self.logon();
                logon.bind(connection, live.session_id, signing, &live.security).await
            };
            match bound.await {
                Ok(channel) => live.channels.write().push(Arc::new(channel)),
                Err(why) => {
                    tracing::debug!(%why, "no further channel");
                    return;
                }
            }
        }
    }

    async fn connect(&self) -> std::result::Result<Claim, Cause> {
        let stream = self.client.dial.dial(&self.server).await?;
        Connection::open(stream, &self.client.options, self.client.guid, self.unasked.clone()).await
    }

    fn logon(&self) -> Logon<'_> {
        Logon {
            options: &self.client.options,
            credentials: &self.credentials,
            host: &self.server.host,
        }
    }

    /// The ClientGuid.
    pub(crate) const fn guid(&self) -> Guid {
        self.client.guid
    }
}

/// Whether trying again is no use.
const fn is_final(why: &Cause) -> bool {
    match why {
        Cause::Transport(_) | Cause::Unknown => false,
        Cause::Status(status) => !account::is_passing(*status),
        _ => true,
    }
}
