//! Logs on: from arguments to sessions and shares.

use std::cell::RefCell;
use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use frevo_client::{
    AppInstance, Cause, ChannelInfo, Cipher, Client, Compression, Credentials, Dialect, Encryption,
    NtHash, Options, Quic, Rdma, Referrals, Session, Share, Signing, SigningAlgorithm, SmbUrl,
};
use frevo_config::DialectName;

use futures_util::future::join_all;

use super::ancestry::{BothEnds, RemoteEnd};
use super::connection_options::{
    CipherName, CompressUse, Connection, DfsLinks, QuicUse, RdmaUse, SigningName,
};
use super::location::{Url, has_quic, is_same_server, server_key};
use super::{nodes, saved, spelling};
use crate::console::tell;
use crate::exit::{During, Exit, Failure};
use crate::passwords;

const fn cipher(name: CipherName) -> Cipher {
    match name {
        CipherName::Aes128Gcm => Cipher::Aes128Gcm,
        CipherName::Aes128Ccm => Cipher::Aes128Ccm,
        CipherName::Aes256Gcm => Cipher::Aes256Gcm,
        CipherName::Aes256Ccm => Cipher::Aes256Ccm,
    }
}

fn dialect(name: DialectName) -> Dialect {
    frevo_proto::Dialect::from(name).into()
}

const fn algorithm(name: SigningName) -> SigningAlgorithm {
    match name {
        SigningName::AesGmac => SigningAlgorithm::AesGmac,
        SigningName::AesCmac => SigningAlgorithm::AesCmac,
        SigningName::HmacSha256 => SigningAlgorithm::HmacSha256,
    }
}

const HASH_FORM: &str = "an NT hash has 32 digits from 0 to 9 and a to f";

/// The sessions and shares of this command, with the passwords given for them.
#[derive(Default)]
struct SessionCache {
    sessions: Vec<Session>,
    shares: Vec<Share>,
    /// Shares by the URLs that led there, and whether with the POSIX extensions.
    reached: Vec<(Url, bool, Share)>,
    /// Passwords that were given, so that none is asked for twice: by user and server.
    passwords: Vec<(String, frevo_auth::Zeroizing<String>)>,
    /// The instance of an application as which files are opened.
    app_instance: Option<AppInstance>,
    /// How long a lost server is waited for.
    patience: Duration,
    /// True if changes of the channels are reported.
    is_verbose: bool,
    /// True with `--rdma auto`.
    prefers_rdma: bool,
    /// True while the user knows that SMB Direct is not used.
    knows_of_tcp: bool,
}

thread_local! {
    /// Lives until the command ends.
    static SESSIONS: RefCell<SessionCache> = RefCell::default();
}

/// Held while a share is reached: of many files that are looked for at once, the first one logs on.
static REACHING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// `share` is logged off from at the end, however the command ends.
pub(crate) fn keep(share: &Share) {
    SESSIONS.with_borrow_mut(|kept| kept.shares.push(share.clone()));
}

/// Opens files as an instance of an application from now on.
pub(crate) fn open_as(instance: Option<AppInstance>) {
    SESSIONS.with_borrow_mut(|kept| kept.app_instance = instance);
}

/// The share that `url` is in, if it was reached before; what DFS leads to is looked for
/// each time.
fn reached(url: &Url, posix: bool) -> Option<Share> {
    SESSIONS.with_borrow(|kept| {
        let same = |other: &Url| {
            let is_over_same = other.over_quic == url.over_quic;
            other.is_in_share_of(url) && other.user == url.user && is_over_same
        };
        let mut all = kept.reached.iter();
        all.find(|(other, had, _)| *had == posix && same(other)).map(|(_, _, share)| share.clone())
    })
}

/// Commands of a test reach `url` by `share`.
#[cfg(test)]
pub(crate) fn reach_by(url: &Url, share: &Share) {
    SESSIONS.with_borrow_mut(|kept| {
        kept.shares.push(share.clone());
        kept.reached.push((url.clone(), false, share.clone()));
    });
}

/// True when the password for `url` is known without a question.
pub(crate) fn has_password(connection: &Connection, url: &Url) -> bool {
    connection.credentials.is_some()
        || connection.password_stdin
        || passwords::is_in_environment()
        || connection
            .user_of(url)
            .and_then(|user| saved::find(url, Some(&user)))
            .is_ok_and(|found| found.is_some())
}

/// A server that is lost, and how long the command tries to reach it again.
pub(crate) fn lost_server() -> Option<(String, Duration)> {
    SESSIONS.with_borrow(|kept| {
        let mut sessions = kept.shares.iter().map(Share::session).chain(&kept.sessions);
        let lost = sessions.rfind(|session| session.info().is_none())?;
        Some((lost.server().to_string(), kept.patience))
    })
}

/// The channels of all sessions, with `--verbose`.
pub(crate) fn channels() -> Option<Vec<ChannelInfo>> {
    SESSIONS.with_borrow(|kept| {
        let sessions = kept.shares.iter().map(Share::session).chain(&kept.sessions);
        let mut all: Vec<ChannelInfo> = sessions.flat_map(Session::channels).collect();
        all.sort_by_key(|channel| channel.number);
        // Several shares may use one session, whose channels are listed only once.
        all.dedup_by_key(|channel| channel.number);
        kept.is_verbose.then_some(all)
    })
}

/// The shares that the command uses, with `--verbose`.
pub(crate) fn shares() -> Option<Vec<Share>> {
    SESSIONS.with_borrow(|kept| kept.is_verbose.then(|| kept.shares.clone()))
}

/// Says it once if `--rdma auto` has led to TCP, or leads to SMB Direct again.
pub(crate) fn tell_of_tcp() {
    let text = SESSIONS.with_borrow_mut(|kept| {
        if !kept.prefers_rdma {
            return None;
        }
        let sessions = kept.shares.iter().map(Share::session).chain(&kept.sessions);
        // A session that is lost at the moment has no channels, so it tells nothing about RDMA.
        let ways: Vec<(&Session, bool)> = sessions
            .filter_map(|session| {
                let channels = session.channels();
                let is_direct = channels.iter().any(|channel| channel.rdma);
                (!channels.is_empty()).then_some((session, is_direct))
            })
            .collect();
        let by_tcp = ways.iter().find(|(_, is_direct)| !is_direct);
        match (by_tcp.or(ways.first()), kept.knows_of_tcp) {
            (Some((session, false)), false) => {
                let server = session.server().to_string();
                kept.knows_of_tcp = true;
                Some(format!("SMB Direct does not reach {server}; TCP is used instead"))
            }
            (Some((session, true)), true) => {
                let server = session.server().to_string();
                kept.knows_of_tcp = false;
                Some(format!("SMB Direct reaches {server} again"))
            }
            _ => None,
        }
    });
    if let Some(text) = text {
        tell(text);
    }
}

/// Logs off from all that a command has logged on to. Without a word a server keeps
/// durable handles for a client that may come back: ksmbd for minutes in which their files
/// cannot be removed.
pub(crate) async fn log_off() {
    let kept = SESSIONS.take();
    let shares = join_all(kept.shares.into_iter().map(Share::log_off));
    let sessions = join_all(kept.sessions.into_iter().map(Session::log_off));
    futures_util::future::join(shares, sessions).await;
}

/// The error of the other end of a copy, if the copy failed there; else `error`.
pub(crate) fn innermost(error: &frevo_client::Error) -> &frevo_client::Error {
    let inner = match error.cause() {
        Cause::Local(local) => local.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    inner.unwrap_or(error)
}

/// For [`Result::map_err`]: with the exit code that the error means.
#[allow(clippy::needless_pass_by_value, reason = "map_err gives it by value")]
pub(crate) fn failed(error: frevo_client::Error) -> Failure {
    let error = innermost(&error);
    let exit = match error.cause() {
        Cause::Security(_) => Exit::Auth,
        Cause::Kerberos(why) if why.is_unreachable() => Exit::Connect,
        _ if error.is_logon_refused() => Exit::Auth,
        Cause::Transport(_) | Cause::NotSmb | Cause::TooOld(_) | Cause::ClusterDialect(_) => {
            Exit::Connect
        }
        Cause::Usage(_) => Exit::Usage,
        _ if error.is_not_found() => Exit::NotFound,
        _ => Exit::Failed,
    };
    let (operation, path) = (error.operation(), shown_path(error.path()));
    let text = error.to_string();
    // The text begins with the operation and the path as the library knows it; the path that the
    // user has typed replaces it.
    let begun = format!("{operation} {}", error.path());
    let message = match text.strip_prefix(&*begun) {
        Some(why) if !error.path().is_empty() => {
            format!("{operation} {path}{}", spelling::in_text(why))
        }
        _ => spelling::in_text(&text),
    };
    let message = format!("{message}{}", advice(error));
    let during = During { operation, path, status: error.status() };
    Failure { exit, message, during: Some(Box::new(during)) }
}

/// The path of an error as a command takes it: a URL with the user that was logged on there, and with
/// escapes.
fn shown_path(path: &str) -> String {
    let found = SESSIONS.with_borrow(|kept| {
        let mut shares = kept.shares.iter();
        shares.find_map(|share| {
            let rest = path.strip_prefix(&share.url(""))?;
            let is_whole = rest.is_empty() || rest.starts_with('/');
            is_whole.then(|| Url::in_share(share, rest.trim_start_matches('/')).to_string())
        })
    });
    found.unwrap_or_else(|| spelling::in_text(path))
}

/// The failure to reach `url`, which names it also where a link of a namespace led to another server.
fn of_link(url: &Url, error: frevo_client::Error) -> Failure {
    let own = url.server.to_string();
    let is_at = |scheme: &str| {
        let rest = innermost(&error).path().strip_prefix(scheme)?;
        Some(rest.split('/').next() != Some(&*own))
    };
    let is_elsewhere = is_at("smb://").or_else(|| is_at("smb+quic://")).unwrap_or(false);
    let is_unreachable = matches!(innermost(&error).cause(), Cause::Transport(_));
    let failure = failed(error);
    if !(is_elsewhere && is_unreachable) {
        return failure;
    }
    Failure {
        message: format!("{url} leads over a DFS link there: {}", failure.message),
        ..failure
    }
}

/// The option that accepts a dialect, and its price.
fn accepting(oldest: Dialect) -> String {
    let words = DialectName::WORDS.iter().filter_map(|word| word.parse().ok());
    let word = words.into_iter().find(|name| dialect(*name) == oldest);
    let word = word.map_or("2.0.2", DialectName::as_str);
    let price = if oldest < Dialect::Smb300 { ", without encryption" } else { "" };
    format!("--min-dialect {word} accepts it{price}")
}

/// Advice to append to an error's message.
fn advice(error: &frevo_client::Error) -> String {
    use frevo_client::Status;
    use std::io::ErrorKind;
    let text = match error.cause() {
        Cause::TooOld(Some(spoken)) => {
            return format!("; if the server is that old, {}", accepting(*spoken));
        }
        Cause::ClusterDialect(named) => return format!(": {}", accepting(*named)),
        Cause::Security(why) if why.contains("only as a guest, without") => {
            "; --guest accepts that, with nothing signed or encrypted"
        }
        Cause::Transport(why) => match why.kind() {
            ErrorKind::ConnectionRefused => "; is the server running on this port?",
            // The text of a server that was reached says what to check.
            ErrorKind::TimedOut if why.get_ref().is_some() => "",
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                "; check the network and the firewalls"
            }
            _ if why.to_string().contains("failed to lookup") => "; check the name of the host",
            _ => "",
        },
        _ if error.status() == Some(Status::OBJECT_NAME_INVALID) => "; choose another name",
        _ if error.status() == Some(Status::ACCESS_DENIED)
            && error.path().starts_with("smb+quic://")
            && error.path().contains("/IPC$/") =>
        {
            "; servers refuse pipes over QUIC, unless they are told to allow them; name the share"
        }
        _ => "",
    };
    text.to_owned()
}

impl Connection {
    /// Logs on to the server of `url`.
    pub(crate) async fn log_on(&self, url: &Url) -> Result<Session, Failure> {
        let credentials = self.credentials(url).await?;
        let client = self.client(url, self.options(url, false)?, &credentials)?;
        let session = client.connect(url.server.clone(), credentials).await.map_err(failed)?;
        SESSIONS.with_borrow_mut(|kept| kept.sessions.push(session.clone()));
        self.tell_of_guest(&session);
        tell_of_tcp();
        Ok(session)
    }

    /// The client that reaches the server of `url` with these options.
    #[cfg(feature = "smb1")]
    fn client(
        &self,
        url: &Url,
        options: Options,
        credentials: &Credentials,
    ) -> Result<Client, Failure> {
        if self.is_over_smb1(url) {
            return self.smb1_client(url, options, credentials);
        }
        Ok(Client::new(options))
    }

    /// The client that reaches servers with these options.
    #[cfg(not(feature = "smb1"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature smb1")]
    fn client(&self, _: &Url, options: Options, _: &Credentials) -> Result<Client, Failure> {
        Ok(Client::new(options))
    }

    fn options(&self, url: &Url, posix: bool) -> Result<Options, Failure> {
        let needs_quic = url.over_quic || self.quic == QuicUse::Required;
        if needs_quic && self.rdma == RdmaUse::Required {
            let text = "--rdma required never uses QUIC; leave one of them out";
            return Err(Failure::new(Exit::Usage, text));
        }
        self.check_quic_is_used(url)?;
        let addresses = nodes::of_server(&self.address, &url.server)?;
        let default = Options::default();
        let app_instance = SESSIONS.with_borrow_mut(|kept| {
            kept.patience = Duration::from_secs(self.patience);
            kept.is_verbose = self.verbose;
            kept.prefers_rdma = self.rdma == RdmaUse::Auto;
            kept.app_instance
        });
        let ciphers: Vec<_> = self.cipher.iter().map(|name| cipher(*name)).collect();
        let signing: Vec<_> = self.signing.iter().map(|name| algorithm(*name)).collect();
        let options = Options::new()
            .addresses(addresses)
            .app_instance(app_instance)
            .newest(self.max_dialect.map_or(default.newest, dialect))
            .oldest(self.min_dialect.map_or(default.oldest, dialect))
            .ciphers(if ciphers.is_empty() { default.ciphers } else { ciphers })
            .signing(if signing.is_empty() { default.signing } else { signing })
            .encryption(if self.encrypt { Encryption::Required } else { Encryption::AsServerAsks })
            .allow_guest(self.guest)
            .require_signing(!self.sign_when_asked)
            .sign(if self.sign_when_asked { Signing::WhenAsked } else { Signing::Always })
            .channels(self.channels)
            .rdma(match self.rdma {
                RdmaUse::Auto => Rdma::Auto,
                RdmaUse::Required => Rdma::Required,
                RdmaUse::Off => Rdma::Off,
            })
            .quic(match self.quic {
                _ if needs_quic => Quic::Required,
                QuicUse::Required => Quic::Required,
                QuicUse::Auto => Quic::Auto,
                QuicUse::Off => Quic::Off,
            })
            .quic_trust(self.quic_trust()?)
            .quic_identity(self.quic_identity()?)
            .compression(match self.compress {
                CompressUse::Auto => Compression::Auto,
                CompressUse::On => Compression::On,
                CompressUse::Off => Compression::Off,
            })
            .posix(posix)
            .recover_for(Duration::from_secs(self.patience))
            .witness(!self.no_witness)
            .capture(super::capture::of(self)?)
            .referrals(match self.dfs {
                DfsLinks::Anywhere => Referrals::Anywhere,
                DfsLinks::SameHost => Referrals::SameHost,
                DfsLinks::Never => Referrals::Never,
            })
            .domain_controller(self.dc.clone());
        Ok(options)
    }

    /// Refuses to connect to a server whose certificate nobody looks at, although the options say
    /// which one it must have.
    fn check_quic_is_used(&self, url: &Url) -> Result<(), Failure> {
        let has_options =
            !self.quic_pin.is_empty() || self.quic_ca.is_some() || self.quic_certificate.is_some();
        if !has_options || self.quic != QuicUse::Off || url.over_quic || has_quic() {
            return Ok(());
        }
        let text = format!(
            "--quic-pin, --quic-ca and --quic-certificate count over QUIC alone, and {url} goes over \
             TCP; write smb+quic:// in its place, or add --quic required"
        );
        Err(Failure::new(Exit::Usage, text))
    }

    /// Reaches the share of `url` as another client than before: with a ClientGuid and connections
    /// of its own. Its handles end with its session.
    pub(crate) async fn reach_alone(&self, url: &Url) -> Result<(Share, Url), Failure> {
        if url.share.is_empty() {
            return self.share(url).await.map(|share| (share, url.clone()));
        }
        let credentials = self.credentials(url).await?;
        let options = self.options(url, false)?.durable(false);
        let client = self.client(url, options, &credentials)?;
        let (share, found) = self.resolved(&client, &credentials, &url.at_name()).await?;
        Ok((url.at_its_time(share), found))
    }

    /// The share behind `url` and the URL in it.
    async fn resolved(
        &self,
        client: &Client,
        credentials: &Credentials,
        url: &Url,
    ) -> Result<(Share, Url), Failure> {
        let place = SmbUrl::new(url.server.clone(), &url.share, &url.path);
        let found = client.resolve(&place, credentials).await;
        let (share, path) = found.map_err(|error| of_link(url, error))?;
        keep(&share);
        self.tell_of_guest(share.session());
        tell_of_tcp();
        let url = url.led_to(&share, path);
        Ok((share, url))
    }

    /// The share of `url`.
    pub(crate) async fn share(&self, url: &Url) -> Result<Share, Failure> {
        if url.share.is_empty() {
            let text = format!("{url} has no share name; `frevo shares {url}` lists the shares");
            return Err(Failure::new(Exit::Usage, text).of("connect to", url));
        }
        let share = self.log_on(url).await?.share(&url.share).await.map_err(failed)?;
        keep(&share);
        Ok(share)
    }

    /// The share of `url` and the URL in it: another one, perhaps of another
    /// server, where a DFS namespace leads there.
    pub(crate) async fn reach(&self, url: &Url) -> Result<(Share, Url), Failure> {
        self.reach_with(url, false).await
    }

    /// Reaches the share of `url`, offering the POSIX extensions if `posix` is set.
    pub(crate) async fn reach_with(&self, url: &Url, posix: bool) -> Result<(Share, Url), Failure> {
        if url.share.is_empty() {
            return self.share(url).await.map(|share| (share, url.clone()));
        }
        let url = &url.at_name();
        if let Some(share) = reached(url, posix) {
            return Ok((url.at_its_time(share), url.clone()));
        }
        let _turn = REACHING.lock().await;
        if let Some(share) = reached(url, posix) {
            return Ok((url.at_its_time(share), url.clone()));
        }
        let credentials = self.credentials(url).await?;
        let client = self.client(url, self.options(url, posix)?, &credentials)?;
        let (share, found) = self.resolved(&client, &credentials, url).await?;
        if !share.is_dfs() && found.path == url.path {
            let one = (url.clone(), posix, share.clone());
            SESSIONS.with_borrow_mut(|kept| kept.reached.push(one));
        }
        Ok((url.at_its_time(share), found))
    }

    /// Both ends of a copy: in one session where they are on one server, so that
    /// it can copy by itself.
    pub(crate) async fn reach_both(&self, from: &Url, to: &Url) -> Result<BothEnds, Failure> {
        let to = &to.at_name();
        let (share, url) = self.reach(from).await?;
        let from = RemoteEnd { share, url };
        let session = from.share.session();
        let same = is_same_server(session.server(), &to.server)
            && from.url.user == to.user
            && session.requires_quic() == to.over_quic
            && !to.share.is_empty();
        let end = |share: Share| RemoteEnd { share: to.at_its_time(share), url: to.clone() };
        let known = reached(to, false).filter(|known| known.session().is_same(session));
        if let Some(target) = known {
            return Ok(BothEnds { to: end(target), from });
        }
        if same {
            let target = session.share(&to.share).await.map_err(failed)?;
            if !target.is_dfs() || to.path.is_empty() {
                return Ok(BothEnds { to: end(target), from });
            }
        }
        let (share, url) = self.reach(to).await?;
        Ok(BothEnds { to: RemoteEnd { share, url }, from })
    }

    /// The credentials of a logon by Kerberos, or else by NTLM.
    async fn credentials(&self, url: &Url) -> Result<Credentials, Failure> {
        if self.guest && self.credentials.is_none() {
            return self.guest(url);
        }
        #[cfg(feature = "smb1")]
        if self.is_over_smb1(url) {
            return self.ntlm(url);
        }
        match self.tickets(url).await? {
            Some(credentials) => Ok(credentials),
            None => self.ntlm(url),
        }
    }

    /// Credentials for `--guest`: from options and the environment only; never saved ones, never a
    /// prompt.
    fn guest(&self, url: &Url) -> Result<Credentials, Failure> {
        let is_named = self.user.is_some() || url.user.is_some();
        let is_named = is_named || std::env::var_os("FREVO_USER").is_some();
        let user = if is_named { self.user_of(url)? } else { String::from("guest") };
        let is_given = self.password_stdin || passwords::is_in_environment();
        if !is_given {
            return Ok(Credentials::new(&user, ""));
        }
        Ok(Credentials::new(&user, self.password(&user, url)?.as_str()))
    }

    /// Says it when a session is a guest's.
    fn tell_of_guest(&self, session: &Session) {
        // The session before a bridge to SMB1 is always a guest's, whatever that of the server is.
        #[cfg(feature = "smb1")]
        if self.reaches_by_smb1(session.server()) {
            return;
        }
        if self.guest && session.info().is_some() && !session.is_proved() {
            let server = session.server();
            tell(format_args!(
                "{server} logged you on as a guest. Nothing is signed or encrypted; anyone on the network \
                 can read and change all data"
            ));
        }
    }

    /// The credentials of a logon by NTLM. May ask for the password.
    pub(super) fn ntlm(&self, url: &Url) -> Result<Credentials, Failure> {
        if let Some(path) = &self.credentials {
            return Credentials::from_file(path).map_err(|error| {
                // Errors of the operating system do not name the file, so its path is put before
                // the text.
                let bare = error.get_ref().is_none().then(|| format!("{}: ", path.display()));
                Failure::new(Exit::Auth, format!("{}{error}", bare.unwrap_or_default()))
            });
        }
        let user = self.user_of(url)?;
        if let Some(saved) = self.saved(url, &user)? {
            let hash: NtHash = saved.parse().map_err(|_| Failure::new(Exit::Auth, HASH_FORM))?;
            return Ok(Credentials::with_nt_hash(&user, hash));
        }
        let password = self.password(&user, url)?;
        if !self.nt_hash {
            return Ok(Credentials::new(&user, password.as_str()));
        }
        let hash: NtHash = password.parse().map_err(|_| Failure::new(Exit::Auth, HASH_FORM))?;
        Ok(Credentials::with_nt_hash(&user, hash))
    }

    /// The user to log on as: that of the options, of the URL, of FREVO_USER, the saved one, or
    /// that of USER.
    pub(crate) fn user_of(&self, url: &Url) -> Result<String, Failure> {
        let set = |name| std::env::var(name).ok().filter(|user: &String| !user.is_empty());
        let named = self.user.clone().or_else(|| url.user.clone()).or_else(|| set("FREVO_USER"));
        if let Some(user) = named {
            return Ok(user);
        }
        let saved = saved::find(url, None)?.map(|saved| saved.user);
        saved.or_else(|| set("USER")).ok_or_else(|| {
            Failure::new(Exit::Auth, "no user is named; write smb://USER@HOST or use --user")
        })
    }

    /// The saved NT hash of `user`, unless a password is given in another way.
    fn saved(
        &self,
        url: &Url,
        user: &str,
    ) -> Result<Option<frevo_auth::Zeroizing<String>>, Failure> {
        let is_given = self.password_stdin
            || self.nt_hash
            || passwords::is_in_environment()
            || self.kept_password(user, url).is_some();
        if is_given {
            return Ok(None);
        }
        saved::find(url, Some(user))?.map(|saved| saved.hash()).transpose()
    }

    /// The key under which a password is kept.
    fn place(&self, user: &str, url: &Url) -> String {
        // With --password-stdin one password is used for all servers, so its key does not name a
        // user and a server.
        if self.password_stdin {
            return String::new();
        }
        format!("{user}@{}", server_key(&url.server))
    }

    pub(super) fn kept_password(
        &self,
        user: &str,
        url: &Url,
    ) -> Option<frevo_auth::Zeroizing<String>> {
        let place = self.place(user, url);
        SESSIONS.with_borrow(|kept| {
            let mut all = kept.passwords.iter();
            all.find(|(other, _)| *other == place).map(|(_, password)| password.clone())
        })
    }

    /// Keeps a password, so that this command does not ask for it again.
    pub(crate) fn keep_password(
        &self,
        user: &str,
        url: &Url,
        password: frevo_auth::Zeroizing<String>,
    ) {
        let place = self.place(user, url);
        SESSIONS.with_borrow_mut(|kept| kept.passwords.push((place, password)));
    }

    fn password(&self, user: &str, url: &Url) -> Result<frevo_auth::Zeroizing<String>, Failure> {
        if let Some(password) = self.kept_password(user, url) {
            return Ok(password);
        }
        let password = self.ask_password(user, url)?;
        self.keep_password(user, url, password.clone());
        Ok(password)
    }

    /// The password that is given without a question: on standard input, or in the environment.
    pub(crate) fn given_password(
        &self,
        user: &str,
        url: &Url,
    ) -> Result<Option<frevo_auth::Zeroizing<String>>, Failure> {
        let is_given = self.password_stdin || passwords::is_in_environment();
        if is_given || !std::io::stdin().is_terminal() {
            return self.ask_password(user, url).map(Some);
        }
        Ok(None)
    }

    fn ask_password(
        &self,
        user: &str,
        url: &Url,
    ) -> Result<frevo_auth::Zeroizing<String>, Failure> {
        if self.password_stdin {
            let mut line = frevo_auth::Zeroizing::new(String::new());
            std::io::stdin()
                .lock()
                .read_line(&mut line)
                .map_err(Failure::failed("cannot read the password from standard input"))?;
            let end = line.trim_end_matches(['\n', '\r']).len();
            line.truncate(end);
            return Ok(line);
        }
        if let Some(password) = passwords::from_environment()? {
            return Ok(password);
        }
        if !std::io::stdin().is_terminal() {
            let text = "no password; set FREVO_PASSWORD, save it with frevo login, use --credentials or \
                        --password-stdin, or get a Kerberos ticket with kinit";
            return Err(Failure::new(Exit::Auth, text));
        }
        passwords::prompt(&format!("Password of {user} on {}: ", url.server))
    }
}
