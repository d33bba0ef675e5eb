//! SESSION_SETUP: MS-SMB2 3.2.4.2.3 and 3.2.5.3.

use std::sync::Arc;

use frevo_auth::initiator::Step;
use frevo_auth::kerberos::{InitiatorEntropy, ServiceTicket};
use frevo_auth::{Entropy, Initiator, Mechanism, Target};
use frevo_crypto::{Sender, SessionKeys, SigningKey};
use frevo_proto::protection::Protection;
use frevo_proto::protection::receive_policy::{self, Demand};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::{self, SessionFlags, SessionSetupFlags};
use frevo_wire::dtyp::FileTime;
use frevo_wire::{Command, HeaderFlags};
use zeroize::Zeroizing;

use super::channel::{Channel, Live, Security};
use crate::Status;
use crate::account;
use crate::ambient::random;
use crate::connection::{Call, Claim, Connection, Guard, Message};
use crate::error::Cause;
use crate::kerberos::{KerberosError, Reason};
use crate::limits::LOGON_ROUNDS;
use crate::options::{Encryption, Options, Signing};

/// The parameters of a logon.
pub(super) struct Logon<'a> {
    pub(super) options: &'a Options,
    /// The server's name, as the user wrote it.
    pub(super) host: &'a str,
    /// The ticket for a logon by Kerberos.
    pub(super) ticket: Option<Arc<ServiceTicket>>,
    /// The user of a logon by NTLM; `None` if it is not allowed.
    pub(super) ntlm: Option<frevo_auth::Credentials>,
}

/// A logon that has succeeded.
pub(super) struct LoggedOn {
    pub(super) session_id: u64,
    pub(super) security: Security,
    pub(super) channel: Channel,
    /// The end of the ticket; `None` after a logon by NTLM.
    pub(super) ticket_end: Option<FileTime>,
}

/// The session that a logon is for.
#[derive(Clone, Copy)]
enum Purpose<'a> {
    /// A new session in place of this one.
    New(u64),
    /// This session on a further connection; its signing key signs the request.
    Bind(u64, &'a Arc<SigningKey>),
    /// This session, on a channel of it.
    Renew(&'a Live, &'a Channel),
}

/// The result of the last round.
struct Final {
    session_id: u64,
    flags: SessionFlags,
    keys: Option<SessionKeys>,
    reply: Message,
    mechanism: Option<Mechanism>,
}

impl Logon<'_> {
    /// Makes a new session on `connection` in place of `previous`, which the server then ends.
    pub(super) async fn begin(&self, connection: Claim, previous: u64) -> Result<LoggedOn, Cause> {
        let mut end = self.rounds(&connection, Purpose::New(previous)).await?;
        let agreed = connection.agreed();
        let (terms, transport_seals) = (agreed.terms, agreed.accepts_transport_security);
        let is_guest = end.flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
        if is_guest && !self.options.allow_guest {
            return Err(Cause::Security(
                "the server logged the user on only as a guest, without any protection; check the user name",
            ));
        }
        let (security, signing) = match (&end.keys, is_guest) {
            (Some(keys), false) => {
                let signing = Arc::new(terms.signing_key(keys));
                prove(&mut end.reply, &signing)?;
                let sealing = keys.sealing_key(Sender::Client).map(Arc::new);
                let required = self.options.encryption == Encryption::Required;
                let asked = end.flags.contains(SessionFlags::ENCRYPT_DATA);
                if (required || asked) && sealing.is_none() && !transport_seals {
                    return Err(Cause::Security(
                        "encryption is required, but the server supports none of the ciphers offered",
                    ));
                }
                let signing_required = self.options.require_signing
                    || agreed.security_mode.contains(SecurityMode::SIGNING_REQUIRED);
                let security = Security {
                    seal: required || asked,
                    sign: signing_required || self.options.sign == Signing::Always,
                    signing_required,
                    opening: keys.opening_key(Sender::Client).map(Arc::new),
                    #[cfg(feature = "plant")]
                    twin: keys.sealing_key(Sender::Client).map(Arc::new),
                    sealing,
                };
                (security, Some(signing))
            }
            (None, false) => {
                return Err(Cause::Security(
                    "the server ended the logon without a proof that it knows the password",
                ));
            }
            _ if self.options.encryption == Encryption::Required && !transport_seals => {
                return Err(Cause::Security(
                    "encryption is required, but a guest's session cannot be encrypted",
                ));
            }
            _ => (Security::default(), None),
        };
        if let Some(opening) = &security.opening {
            connection.open_with(end.session_id, Arc::clone(opening));
        }
        let channel = Channel { connection: connection.keep(), signing };
        let is_by_ticket = end.mechanism == Some(Mechanism::Kerberos);
        if self.ticket.is_some() && !is_by_ticket {
            let host = self.host;
            tracing::warn!(%host, "the server does not accept Kerberos; NTLM was used instead");
        }
        let ticket_end = self.ticket.as_ref().map(|ticket| ticket.end_time);
        let ticket_end = ticket_end.filter(|_| is_by_ticket);
        Ok(LoggedOn { session_id: end.session_id, security, channel, ticket_end })
    }

    /// Binds the session to a further connection, MS-SMB2 3.2.4.2.3
    /// with SMB2_SESSION_FLAG_BINDING. `main` is the session's own signing key.
    pub(super) async fn bind(
        &self,
        connection: Claim,
        session_id: u64,
        main: &Arc<SigningKey>,
        security: &Security,
    ) -> Result<Channel, Cause> {
        let mut end = self.rounds(&connection, Purpose::Bind(session_id, main)).await?;
        let keys =
            end.keys.as_ref().ok_or(Cause::Protocol("it bound a connection without keys"))?;
        let signing = Arc::new(connection.agreed().terms.signing_key(keys));
        prove(&mut end.reply, &signing)?;
        if let Some(opening) = &security.opening {
            connection.open_with(session_id, Arc::clone(opening));
        }
        Ok(Channel { connection: connection.keep(), signing: Some(signing) })
    }

    /// Authenticates the user of a session again, MS-SMB2 3.2.4.2.3.1. The session keeps its keys and
    /// its handles. Returns the end of the new ticket.
    pub(super) async fn renew(&self, live: &Live, channel: &Channel) -> Result<FileTime, Cause> {
        let Some(ticket) = &self.ticket else {
            return Err(Cause::Usage("a session by NTLM has no ticket to renew"));
        };
        let end = self.rounds(&channel.connection, Purpose::Renew(live, channel)).await?;
        if end.mechanism != Some(Mechanism::Kerberos) {
            return Err(Cause::Protocol("it wants another mechanism for a session of Kerberos"));
        }
        Ok(end.keys.map_or(FileTime::ZERO, |_| ticket.end_time))
    }

    async fn rounds(&self, connection: &Connection, purpose: Purpose<'_>) -> Result<Final, Cause> {
        let mut initiator = self.initiator()?;
        let hint = &connection.agreed().hint;
        let token = initiator.initial_token(hint, self.options.ambient.now().0);
        let mut token = token.map_err(|refusal| self.not_offered(refusal))?;
        let mut preauth = connection.preauth().session_setup();
        let mut session_id = match purpose {
            Purpose::New(_) => 0,
            Purpose::Bind(session_id, _) => session_id,
            Purpose::Renew(live, _) => live.session_id,
        };
        let mut key = None;
        for _ in 0..LOGON_ROUNDS {
            let (request, reply) = self.round(connection, &token, session_id, purpose).await?;
            preauth.on_request(&[&request]);
            let status = reply.status();
            preauth.on_response(reply.header.status, &[reply.bytes()]);
            if !matches!(status, Status::SUCCESS | Status::MORE_PROCESSING_REQUIRED) {
                return Err(self.refused(status));
            }
            session_id = reply.header.session_id;
            let response = session_setup::Response::parse(reply.bytes())?;
            let flags = response.session_flags;
            if key.is_none() {
                match initiator.step(response.security_buffer, self.options.ambient.now().0)? {
                    Step::Continue(next) => token = next,
                    Step::Done(done) => key = Some(done),
                }
            }
            if status == Status::SUCCESS {
                let terms = connection.agreed().terms;
                let keys = match &key {
                    Some(key) => Some(
                        terms
                            .session_keys(key, preauth.hash())
                            .map_err(|_| Cause::Security("the logon produced no session key"))?,
                    ),
                    None => None,
                };
                let mechanism = initiator.mechanism();
                return Ok(Final { session_id, flags, keys, reply, mechanism });
            }
        }
        Err(Cause::Protocol("its logon takes too many rounds"))
    }

    async fn round(
        &self,
        connection: &Connection,
        token: &[u8],
        session_id: u64,
        purpose: Purpose<'_>,
    ) -> Result<(Vec<u8>, Message), Cause> {
        let (flags, previous) = match purpose {
            Purpose::New(previous) => (SessionSetupFlags::EMPTY, previous),
            Purpose::Bind(..) => (SessionSetupFlags::BINDING, 0),
            Purpose::Renew(..) => (SessionSetupFlags::EMPTY, 0),
        };
        let request = session_setup::Request {
            flags,
            security_mode: crate::connection::security_mode(self.options),
            capabilities: GlobalCapabilities::DFS,
            previous_session_id: previous,
            security_buffer: token,
        };
        let mut call = Call::new(Command::SESSION_SETUP, |w| request.encode(w));
        call.session_id = session_id;
        call.flags = HeaderFlags::EMPTY;
        let guard = match purpose {
            Purpose::New(_) => Guard::None,
            Purpose::Bind(_, key) => Guard::Signed(key),
            Purpose::Renew(live, channel) => live.guard(channel, false, true)?,
        };
        let lost = |_| connection.reason();
        let (sent, request) = connection.send(call, guard).await.map_err(lost)?;
        let reply = sent.await.map_err(lost)?;
        match purpose {
            Purpose::Renew(live, channel) => Ok((request, live.proved(channel, reply)?)),
            _ => Ok((request, reply)),
        }
    }

    /// Returns the cause of a status with which the server refused the logon.
    fn refused(&self, status: Status) -> Cause {
        let is_of_account = account::is_of_logon(status) || status == Status::INVALID_PARAMETER;
        match &self.ticket {
            Some(ticket) if is_of_account => KerberosError::new(Reason::Server(format!(
                "the server does not accept the Kerberos ticket of {} for {} ({status}); its log says \
                 why. Perhaps its keytab is old, or it has no user of this name",
                ticket.client, ticket.server
            )))
            .into(),
            _ => status.into(),
        }
    }

    /// Returns the cause of a refusal before the first message.
    fn not_offered(&self, refusal: frevo_auth::Refusal) -> Cause {
        if self.ticket.is_some() && refusal.reason == frevo_auth::Reason::NoCommonMechanism {
            let text =
                "the server does not accept Kerberos; log on with a user name and a password";
            return KerberosError::new(Reason::Server(text.into())).into();
        }
        refusal.into()
    }

    fn initiator(&self) -> Result<Initiator, Cause> {
        let ambient = &*self.options.ambient;
        let target = Target {
            spn: format!("cifs/{}", self.host),
            channel_bindings: None,
            workstation: self.options.workstation.clone(),
        };
        let ntlm = match &self.ntlm {
            Some(credentials) => {
                let session_key = Zeroizing::new(random(ambient)?);
                let entropy = Entropy { client_challenge: random(ambient)?, session_key };
                Some((credentials.clone(), entropy))
            }
            None => None,
        };
        let Some(ticket) = &self.ticket else {
            let (credentials, entropy) =
                ntlm.ok_or(Cause::Usage("there are neither a password nor a Kerberos ticket"))?;
            return Ok(Initiator::new(credentials, target, entropy));
        };
        let entropy = InitiatorEntropy {
            subkey: random(ambient)?,
            confounders: [random(ambient)?, random(ambient)?],
            sequence: random(ambient)?,
        };
        let initiator = Initiator::with_ticket(Arc::clone(ticket), target, entropy);
        Ok(match ntlm {
            Some((credentials, entropy)) => initiator.or_ntlm(credentials, entropy),
            None => initiator,
        })
    }
}

/// MS-SMB2 3.2.5.3.1: the signature of the last response proves that the server
/// knows the session key, and so the password.
fn prove(reply: &mut Message, key: &SigningKey) -> Result<(), Cause> {
    let protection = reply.protection(reply.header.session_id);
    let answer =
        receive_policy::Answer { request: Protection::Signed, protection, has_signing_key: true };
    let is_proved = match answer.demand_of_logon(frevo_wire::Status::SUCCESS) {
        Demand::Nothing => true,
        Demand::Signature => reply.is_signed_with(key),
        Demand::Refusal(_) | Demand::Disconnect => false,
    };
    if is_proved {
        return Ok(());
    }
    Err(Cause::Security(
        "the server does not prove that it knows the password; it may be an impostor",
    ))
}
