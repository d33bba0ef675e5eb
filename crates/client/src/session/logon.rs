//! SESSION_SETUP: MS-SMB2 3.2.4.2.3 and 3.2.5.3.

use std::sync::Arc;

use frevo_auth::initiator::Step;
use frevo_auth::{Entropy, Initiator, Target};
use frevo_crypto::{Sender, SessionKeys, SigningKey};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::{self, SessionFlags, SessionSetupFlags};
use frevo_wire::{Command, HeaderFlags};
use zeroize::Zeroizing;

use super::channel::{Channel, Security};
use crate::Status;
use crate::ambient::random;
use crate::connection::{Call, Claim, Connection, Guard, Message};
use crate::credentials::Credentials;
use crate::error::Cause;
use crate::limits::LOGON_ROUNDS;
use crate::options::{Encryption, Options, Signing};

/// The parameters of a logon.
pub(super) struct Logon<'a> {
    pub(super) options: &'a Options,
    pub(super) credentials: &'a Credentials,
    /// The server's name, as the user wrote it.
    pub(super) host: &'a str,
}

/// A logon that has succeeded.
pub(super) struct LoggedOn {
    pub(super) session_id: u64,
    pub(super) security: Security,
    pub(super) channel: Channel,
}

/// The result of the last round.
struct Final {
    session_id: u64,
    flags: SessionFlags,
    keys: Option<SessionKeys>,
    reply: Message,
}

impl Logon<'_> {
    /// Makes a new session on `connection` in place of `previous`, which the server then ends.
    pub(super) async fn begin(&self, connection: Claim, previous: u64) -> Result<LoggedOn, Cause> {
        let mut end = self.rounds(&connection, 0, previous, None).await?;
        let terms = connection.agreed().terms;
        let is_guest = end.flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
        if is_guest && !self.options.allow_guest {
            return Err(Cause::Security(
                "the server logged the user on only as a guest, without any protection; check the user name",
            ));
        }
        let (security, signing) = match (&end.keys, is_guest) {
            (Some(keys), false) => {
                let signing = terms.signing_key(keys);
                prove(&mut end.reply, &signing)?;
                let sealing = keys.sealing_key(Sender::Client).map(Arc::new);
                let required = self.options.encryption == Encryption::Required;
                let asked = end.flags.contains(SessionFlags::ENCRYPT_DATA);
                if (required || asked) && sealing.is_none() {
                    return Err(Cause::Security(
                        "encryption is required, but the server supports none of the ciphers offered",
                    ));
                }
                let must_sign = self.options.require_signing
                    || self.options.sign == Signing::Always
                    || connection.agreed().security_mode.contains(SecurityMode::SIGNING_REQUIRED);
                let security = Security {
                    seal: required || asked,
                    sign: must_sign,
                    opening: keys.opening_key(Sender::Client).map(Arc::new),
                    #[cfg(feature = "plant")]
                    twin: keys.sealing_key(Sender::Client),
                    sealing,
                };
                (security, Some(signing))
            }
            (None, false) => {
                return Err(Cause::Security(
                    "the server ended the logon without a proof that it knows the password",
                ));
            }
            _ if self.options.encryption == Encryption::Required => {
                return Err(Cause::Security(
                    "encryption is required, but a guest's session cannot be encrypted",
                ));
            }
            _ => (Security::default(), None),
        };
        if let Some(opening) = &security.opening {
            connection.open_with(end.session_id, Arc::clone(opening));
        }
        let channel = Channel { connection: connection.keep(), signing: signing.map(Arc::new) };
        Ok(LoggedOn { session_id: end.session_id, security, channel })
    }

    /// Binds the session to a further connection, MS-SMB2 3.2.4.2.3
    /// with SMB2_SESSION_FLAG_BINDING. `main` is the session's own signing key.
    pub(super) async fn bind(
        &self,
        connection: Claim,
        session_id: u64,
        main: &SigningKey,
        security: &Security,
    ) -> Result<Channel, Cause> {
        let mut end = self.rounds(&connection, session_id, 0, Some(main)).await?;
        let keys =
            end.keys.as_ref().ok_or(Cause::Protocol("it bound a connection without keys"))?;
        let signing = connection.agreed().terms.signing_key(keys);
        prove(&mut end.reply, &signing)?;
        if let Some(opening) = &security.opening {
            connection.open_with(session_id, Arc::clone(opening));
        }
        Ok(Channel { connection: connection.keep(), signing: Some(Arc::new(signing)) })
    }

    async fn rounds(
        &self,
        connection: &Connection,
        session_id: u64,
        previous: u64,
        binding: Option<&SigningKey>,
    ) -> Result<Final, Cause> {
        let mut initiator = self.initiator()?;
        let mut token =
            initiator.initial_token(&connection.agreed().hint, self.options.ambient.now().0)?;
        let mut preauth = connection.preauth().session_setup();
        let mut session_id = session_id;
        let mut key = None;
        for _ in 0..LOGON_ROUNDS {
            let (request, reply) =
                self.round(connection, &token, session_id, previous, binding).await?;
            preauth.on_request(&[&request]);
            let status = reply.status();
            preauth.on_response(reply.header.status, &[reply.bytes()]);
            if !matches!(status, Status::SUCCESS | Status::MORE_PROCESSING_REQUIRED) {
                return Err(status.into());
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
                return Ok(Final { session_id, flags, keys, reply });
            }
        }
        Err(Cause::Protocol("its logon takes too many rounds"))
    }

    async fn round(
        &self,
        connection: &Connection,
        token: &[u8],
        session_id: u64,
        previous: u64,
        binding: Option<&SigningKey>,
    ) -> Result<(Vec<u8>, Message), Cause> {
        let mut flags = SessionSetupFlags::EMPTY;
        if binding.is_some() {
            flags |= SessionSetupFlags::BINDING;
        }
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
        let guard = binding.map_or(Guard::None, Guard::Signed);
        let lost = |_| connection.reason();
        let (sent, request) = connection.send(call, guard).await.map_err(lost)?;
        Ok((request, sent.await.map_err(lost)?))
    }

    fn initiator(&self) -> Result<Initiator, Cause> {
        let client_challenge = random(&*self.options.ambient)?;
        let session_key = Zeroizing::new(random(&*self.options.ambient)?);
        let credentials = self.credentials.to_auth();
        let target = Target {
            spn: format!("cifs/{}", self.host),
            channel_bindings: None,
            workstation: self.options.workstation.clone(),
        };
        Ok(Initiator::new(credentials, target, Entropy { client_challenge, session_key }))
    }
}

/// MS-SMB2 3.2.5.3.1: the signature of the last response proves that the server
/// knows the session key, and so the password.
fn prove(reply: &mut Message, key: &SigningKey) -> Result<(), Cause> {
    if reply.sealed.is_some() || reply.is_signed_with(key) {
        return Ok(());
    }
    Err(Cause::Security(
        "the server does not prove that it knows the password; it may be an impostor",
    ))
}
