//! NEGOTIATE and SESSION_SETUP: how a user logs on at a server.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use frevo_auth::initiator::Step;
use frevo_auth::{Credentials, Entropy, Initiator, Target, Zeroizing};
use frevo_client::internal::Ambient;
use frevo_net::transport::Stream;
use frevo_smb1::info::LargeIo;
use frevo_smb1::limits::{LARGE_READ_BYTES, LARGE_WRITE_BYTES, SAMBA_WRITE_BYTES, UNIX_IO_BYTES};
use frevo_smb1::logon::{NoProof, Proof};
use frevo_smb1::negotiate::{self, Capabilities, Negotiated, Security, SecurityMode};
use frevo_smb1::session::{self, SetUp, SetupAction};
use frevo_smb1::{Charset, CodePage, Signer, Terms};
use frevo_wire::Status;
use tokio::time::timeout;

use crate::connection::{Answer, Connection, Gone};
use crate::limits::{ANSWER_WITHIN, LOGON_ROUNDS};

/// The messages that are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SigningWish {
    /// All, if the server can.
    #[default]
    WhenOffered,
    /// All, if the server requires it.
    WhenRequired,
    /// All; a server that signs none is refused.
    Required,
}

/// The choices of a user for a server that speaks only SMB1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// True logs on by NTLMv1, or with the password in plain text where the server wants that.
    pub weak_logon: bool,
    /// True sends the LM response, too, with a weak logon.
    pub lm: bool,
    /// True accepts a logon that the server turns into a guest's.
    pub guest: bool,
    /// The messages that are signed.
    pub signing: SigningWish,
    /// The code page of a server without Unicode.
    pub code_page: CodePage,
}

/// A user with the choices for a logon.
pub(crate) struct Logon {
    pub(crate) credentials: Credentials,
    pub(crate) settings: Settings,
    pub(crate) ambient: Arc<dyn Ambient>,
}

impl fmt::Debug for Logon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logon").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A connection whose server has told its terms.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) connection: Connection,
    pub(crate) negotiated: Negotiated,
}

/// Bytes of a READ's answer, or of a WRITE, besides the data.
const IO_OVERHEAD: u32 = 64;

impl Reached {
    /// Returns true if the server has a capability.
    pub(crate) fn has(&self, capability: Capabilities) -> bool {
        self.negotiated.capabilities.contains(capability)
    }

    fn fits_buffer(&self) -> u32 {
        let most = self.negotiated.max_buffer.saturating_sub(IO_OVERHEAD).min(0xFFFF);
        // A power of two, which leaves no small rest of the client's requests.
        1 << most.max(1).ilog2()
    }

    /// Returns the most bytes of one READ. `large` are the requests that the server agreed on.
    pub(crate) fn read_bytes(&self, large: LargeIo) -> u32 {
        match () {
            () if large.reads && !self.connection.is_signing() => UNIX_IO_BYTES,
            // Samba answers signed READs of up to 128 KiB.
            () if large.reads => LARGE_READ_BYTES,
            // MS-SMB 2.2.4.5.2.1: with signatures, the server's buffer is the limit.
            () if self.has(Capabilities::LARGE_READX) && !self.connection.is_signing() => {
                LARGE_READ_BYTES
            }
            () => self.fits_buffer(),
        }
    }

    /// Returns the most bytes of one WRITE. `large` are the requests that the server agreed on.
    pub(crate) fn write_bytes(&self, large: LargeIo) -> u32 {
        match () {
            () if large.writes && !self.connection.is_signing() => UNIX_IO_BYTES,
            // Large READs alone: this is Samba with its Unix extensions.
            () if large.reads && !self.connection.is_signing() => SAMBA_WRITE_BYTES,
            () if self.has(Capabilities::LARGE_WRITEX) && !self.connection.is_signing() => {
                LARGE_WRITE_BYTES
            }
            () => self.fits_buffer(),
        }
    }
}

/// The reason why a user is not logged on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotLoggedOn {
    /// The server's status, or the one that says the same.
    Status(Status),
    /// The connection has ended.
    Gone,
}

impl From<Gone> for NotLoggedOn {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

fn broken(what: impl fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server broke the protocol: {what}"))
}

impl Logon {
    /// Negotiates over `stream`.
    ///
    /// # Errors
    /// If the server does not speak SMB1, or wants the password in plain text against the user's wish.
    pub(crate) async fn negotiate(&self, stream: Stream) -> io::Result<Reached> {
        // MS-CIFS 3.1.5.2: tokens of SPNEGO are never weak.
        let connection = Connection::new(stream, !self.settings.weak_logon);
        let request = negotiate::request();
        let answer = match timeout(ANSWER_WITHIN, connection.call(0, &request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(Gone)) => {
                let text = "the server does not speak SMB1: it ended the connection";
                return Err(io::Error::new(ErrorKind::ConnectionReset, text));
            }
            Err(_elapsed) => {
                let text = "the server does not answer a request in SMB1";
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
        };
        let response = answer.response().map_err(broken)?;
        let negotiated = Negotiated::parse(&response).map_err(broken)?;
        if negotiated.security == Security::PlainText && !self.settings.weak_logon {
            let text = "the server wants the password in plain text, which everyone on the network could \
                        read; --weak-logon sends it";
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        let terms = Terms::of(&negotiated, self.settings.code_page);
        connection.negotiated(terms, self.signs(negotiated.security_mode));
        Ok(Reached { connection, negotiated })
    }

    /// Returns true if messages are to be signed with a server of this mode.
    fn signs(&self, mode: SecurityMode) -> bool {
        let is_offered = mode.contains(SecurityMode::SECURITY_SIGNATURES_ENABLED)
            && self.settings.signing == SigningWish::WhenOffered;
        is_offered
            || self.settings.signing == SigningWish::Required
            || mode.contains(SecurityMode::SECURITY_SIGNATURES_REQUIRED)
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], NotLoggedOn> {
        let mut bytes = [0; N];
        if self.ambient.random(&mut bytes) {
            return Ok(bytes);
        }
        Err(NotLoggedOn::Status(Status::INSUFFICIENT_RESOURCES))
    }

    /// Logs on. Returns the password for shares that have one.
    ///
    /// # Errors
    /// If the server refuses, or proves less than it should.
    pub(crate) async fn log_on(
        &self,
        reached: &Reached,
        host: &str,
    ) -> Result<Zeroizing<Vec<u8>>, NotLoggedOn> {
        let terms = &reached.negotiated;
        let charset = reached.connection.terms().charset;
        match &terms.security {
            Security::Extended(hint) => {
                self.with_tokens(reached, host, hint).await?;
                Ok(Zeroizing::default())
            }
            Security::Challenge(_) | Security::PlainText => {
                let proof = self.proof(terms, charset)?;
                let is_user_level = terms.security_mode.contains(SecurityMode::USER_SECURITY);
                self.with_proof(reached, charset, &proof).await?;
                Ok(Zeroizing::new(if is_user_level {
                    Vec::new()
                } else {
                    proof.for_share().to_vec()
                }))
            }
        }
    }

    fn proof(&self, terms: &Negotiated, charset: Charset) -> Result<Proof, NotLoggedOn> {
        let Security::Challenge(challenge) = &terms.security else {
            return Proof::plain_text(&self.credentials, charset).map_err(no_proof);
        };
        if !self.settings.weak_logon {
            let random = self.random()?;
            let now = self.ambient.now().0;
            return Ok(Proof::v2(&self.credentials, challenge, &random, now));
        }
        let lm = self.settings.lm.then_some(charset);
        Proof::v1(&self.credentials, challenge, lm).map_err(no_proof)
    }

    /// Logs on with tokens of SPNEGO, MS-SMB 3.2.4.2.4.
    async fn with_tokens(
        &self,
        reached: &Reached,
        host: &str,
        hint: &[u8],
    ) -> Result<(), NotLoggedOn> {
        let Reached { connection, negotiated } = reached;
        let charset = connection.terms().charset;
        let target = Target { spn: format!("cifs/{host}"), ..Target::default() };
        let session_key = Zeroizing::new(self.random()?);
        let entropy = Entropy { client_challenge: self.random()?, session_key };
        let mut initiator = Initiator::new(self.credentials.clone(), target, entropy);
        let now = || self.ambient.now().0;
        let mut token = initiator.initial_token(hint, now()).map_err(refused)?;
        let mut key = None;
        for _ in 0..LOGON_ROUNDS {
            let request = session::with_token(negotiated, charset, &token).map_err(|_| WRONG)?;
            let answer = connection.call(0, &request).await?;
            let is_last = match answer.status() {
                Status::SUCCESS => true,
                // MS-CIFS 2.2.2.4: a server without statuses of NT has one code for both.
                Status::MORE_PROCESSING_REQUIRED | Status::BUFFER_OVERFLOW => false,
                status => return Err(NotLoggedOn::Status(status)),
            };
            let response = answer.response().map_err(|_| WRONG)?;
            let set_up = SetUp::parse(&response, true).map_err(|_| WRONG)?;
            connection.note_user(&answer).map_err(|_| WRONG)?;
            if key.is_none() {
                match initiator.step(&set_up.token, now()).map_err(refused)? {
                    Step::Continue(next) => token = next,
                    Step::Done(done) => key = Some(done),
                }
            }
            if is_last {
                let key = key.as_ref().and_then(|key| key.first_chunk::<16>()).ok_or(WRONG)?;
                return self.end(reached, &answer, set_up.action, Some(Signer::new(key, &[])));
            }
        }
        Err(WRONG)
    }

    /// Logs on with one request, MS-CIFS 3.2.4.2.4.
    async fn with_proof(
        &self,
        reached: &Reached,
        charset: Charset,
        proof: &Proof,
    ) -> Result<(), NotLoggedOn> {
        let Reached { connection, negotiated } = reached;
        let names = [&*self.credentials.user, &*self.credentials.domain];
        let request = session::with_proof(negotiated, charset, proof, names);
        let request = request.map_err(|_| NotLoggedOn::Status(Status::NO_SUCH_USER))?;
        let answer = connection.call(0, &request).await?;
        if answer.status() != Status::SUCCESS {
            return Err(NotLoggedOn::Status(answer.status()));
        }
        let response = answer.response().map_err(|_| WRONG)?;
        let set_up = SetUp::parse(&response, false).map_err(|_| WRONG)?;
        connection.note_user(&answer).map_err(|_| WRONG)?;
        self.end(reached, &answer, set_up.action, proof.signer().cloned())
    }

    /// Ends a logon that the server accepts.
    fn end(
        &self,
        reached: &Reached,
        answer: &Answer,
        action: SetupAction,
        signer: Option<Signer>,
    ) -> Result<(), NotLoggedOn> {
        let mode = reached.negotiated.security_mode;
        if action.contains(SetupAction::GUEST) {
            let is_required = self.settings.signing == SigningWish::Required
                || mode.contains(SecurityMode::SECURITY_SIGNATURES_REQUIRED);
            if self.settings.guest && !is_required {
                return Ok(());
            }
            tracing::warn!("the server logged the user on only as a guest; --guest accepts that");
            return Err(NotLoggedOn::Status(Status::LOGON_FAILURE));
        }
        if !self.signs(mode) {
            tracing::warn!("messages are not signed: someone on the network can change them");
            return Ok(());
        }
        let Some(signer) = signer else {
            tracing::warn!("a logon in plain text gives no key, and messages must be signed");
            return Err(NotLoggedOn::Status(Status::ACCESS_DENIED));
        };
        reached.connection.sign_after(answer, signer).map_err(|_| {
            tracing::warn!("the server offers signatures, and its answer has no right one");
            NotLoggedOn::Status(Status::ACCESS_DENIED)
        })
    }
}

/// A logon that breaks the protocol.
const WRONG: NotLoggedOn = NotLoggedOn::Status(Status::INVALID_NETWORK_RESPONSE);

#[allow(clippy::needless_pass_by_value, reason = "map_err gives it by value")]
fn refused(refusal: frevo_auth::Refusal) -> NotLoggedOn {
    tracing::warn!(%refusal, "the logon has failed");
    NotLoggedOn::Status(Status::LOGON_FAILURE)
}

fn no_proof(why: NoProof) -> NotLoggedOn {
    match why {
        NoProof::NeedsPassword => {
            tracing::warn!("this server needs the password itself; its NT hash is not enough");
        }
        NoProof::Unmappable(why) => tracing::warn!(%why, "the password cannot be sent"),
    }
    NotLoggedOn::Status(Status::WRONG_PASSWORD)
}
