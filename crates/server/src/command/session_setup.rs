//! SESSION_SETUP: MS-SMB2 3.3.5.5. New sessions, bindings of further channels,
//! and authentication anew.

use std::sync::Arc;

use frevo_auth::{Acceptor, AcceptorConfig, Done, Step};
use frevo_crypto::{Sender, SigningAlgorithm};
use frevo_proto::Dialect;
use frevo_proto::preauth::SessionPreauth;
use frevo_store::security::Token;
use frevo_wire::command::negotiate::{GlobalCapabilities as Capabilities, SecurityMode};
use frevo_wire::command::session_setup::{self, SessionFlags, SessionSetupFlags};
use frevo_wire::dtyp::Guid;
use frevo_wire::{HeaderFlags, Status};
use tokio::time::Instant;

use crate::audit::told;
use crate::connection::Channel;
use crate::host_users::OnHost;
use crate::ledger::{Holder, Kind, Name};
use crate::limits::{
    SESSION_BYTES, SESSIONS_BEFORE_AUTHENTICATION, SESSIONS_PER_CONNECTION, TAKE_OVER_PATIENCE,
    THROTTLE_TOLD,
};
use crate::refusal::{Outcome, Refusal};
use crate::request::Request;
use crate::response::Response;
use crate::session::{Identity, Security, Session, State};
use crate::settings::{Encryption, Signing};
use crate::throttle::{Attempt, shortened};

/// What an exchange of tokens is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// 3.3.5.5.1
    New,
    /// 3.3.5.5.2: the keys stay, the pre-authentication hash is not touched.
    Renew,
    /// One more channel of an existing session.
    Bind,
}

/// An exchange of tokens under way on one connection.
#[derive(Debug)]
pub struct Authentication {
    acceptor: Acceptor,
    preauth: SessionPreauth,
    purpose: Purpose,
    session: Arc<Session>,
}

impl Authentication {
    /// Takes in our response, which another round will follow.
    pub fn on_response(&mut self, status: Status, message: &[u8]) {
        if self.purpose != Purpose::Renew {
            self.preauth.on_response(status, &[message]);
        }
    }
}

/// Takes one token of an authentication.
pub async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = session_setup::Request::parse(rq.message)?;
    check_encryption(rq)?;
    let mut authentication = find(rq, &request, out)?;
    let session = Arc::clone(&authentication.session);
    out.set_session_id(session.id);
    if authentication.purpose != Purpose::Renew && rq.dialect() == Dialect::SMB_3_1_1 {
        authentication.preauth.on_request(&[rq.message]);
    }
    let accounts = rq.server().accounts();
    let now = rq.server().ambient.now().0;
    let step = authentication.acceptor.step(request.security_buffer, now, &*accounts);
    match step {
        Ok(Step::Continue(token)) => {
            respond(out, SessionFlags::EMPTY, &token);
            rq.connection.authentications.borrow_mut().insert(session.id, authentication);
            Ok(Status::MORE_PROCESSING_REQUIRED)
        }
        Ok(Step::Done(done)) => match admit(rq, &done.identity.user).await {
            // The connection ended meanwhile and has given back what it held:
            // nothing must come to be on it any more.
            _ if rq.connection.is_doomed() => {
                // Other channels of an older session go on as they are.
                if authentication.purpose == Purpose::New {
                    abandon(rq, &session, Purpose::New);
                }
                Err(Status::USER_SESSION_DELETED.into())
            }
            Some(host) => {
                let finished = finish(rq, &request, &authentication, (&done, host), out)
                    .inspect_err(|_| abandon(rq, &session, Purpose::New))?;
                if finished == Status::SUCCESS && authentication.purpose == Purpose::New {
                    take_over(rq, request.previous_session_id, &session).await;
                }
                Ok(finished)
            }
            None => {
                abandon(rq, &session, authentication.purpose);
                Err(Status::LOGON_FAILURE.into())
            }
        },
        Err(refusal) => {
            rq.tell(|left_out| {
                tracing::warn!(target: "frevo::session", peer = %rq.connection.peer,
                    user = %shortened(&refusal.user), reason = %refusal.reason, left_out,
                    "logon refused");
            });
            told::logon_refused(rq, &refusal);
            // MS-NLMP has no name before AUTHENTICATE_MESSAGE. From then on every
            // refusal counts, whatever it is for.
            if !refusal.account.is_empty() {
                heed(rq, &refusal.account, false).await;
            }
            abandon(rq, &session, authentication.purpose);
            Err(refusal.status().into())
        }
    }
}

/// Looks up the host's user of an account that has logged on. None when the throttle refuses
/// the logon.
async fn admit(rq: &Request<'_>, user: &str) -> Option<OnHost> {
    if heed(rq, user, true).await { Some(rq.server().host_user(user).await) } else { None }
}

/// Waits as long as the throttle says; false when the outcome does not count. The wait
/// ends with the connection.
async fn heed(rq: &Request<'_>, account: &str, success: bool) -> bool {
    let connection = rq.connection;
    let client = connection.negotiated().map_or_else(|_| Guid::default(), |n| n.client_guid);
    let attempt = Attempt { address: connection.peer.ip(), client, account, success };
    let asked = Instant::now();
    tokio::select! {
        biased;
        () = connection.ended() => false,
        counts = rq.server().throttle.heed(attempt) => {
            let wait = asked.elapsed();
            if !counts || wait >= THROTTLE_TOLD {
                told::throttled(rq, account, wait, !counts);
            }
            counts
        }
    }
}

/// A failed exchange takes its session with it, but a failed binding leaves the
/// session that others use untouched.
fn abandon(rq: &Request<'_>, session: &Session, purpose: Purpose) {
    rq.connection.authentications.borrow_mut().remove(&session.id);
    if purpose != Purpose::Bind {
        rq.connection.remove_channel(session.id);
        rq.server().close_session(session);
    }
}

/// MS-SMB2 3.3.5.5: a client that cannot encrypt is told at once.
fn check_encryption(rq: &Request<'_>) -> Result<(), Status> {
    let negotiated = rq.connection.negotiated()?;
    let able = negotiated.terms.is_smb3()
        && negotiated.terms.cipher.is_some()
        && (negotiated.terms.is_3_1_1()
            || negotiated.client_capabilities.contains(Capabilities::ENCRYPTION));
    if rq.connection.settings.encryption == Encryption::Required && !able {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::session", peer = %rq.connection.peer,
                dialect = ?negotiated.terms.dialect, left_out,
                "refused: this server demands encryption and the client offers none; use an SMB 3 \
                 client (Linux: vers=3.1.1,seal), or set encryption = \"offered\"");
        });
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

/// The exchange that a request begins or goes on with.
fn find(
    rq: &Request<'_>,
    request: &session_setup::Request<'_>,
    out: &mut Response,
) -> Result<Authentication, Refusal> {
    let binding = request.flags.contains(SessionSetupFlags::BINDING);
    if rq.header.session_id == 0 {
        return Ok(begin(rq, Purpose::New, new_session(rq)?));
    }
    if binding {
        return find_binding(rq, out);
    }
    let channel =
        rq.connection.channel(rq.header.session_id).ok_or(Status::USER_SESSION_DELETED)?;
    // MS-SMB2 3.3.5.2.9: a session that encrypts takes nothing in the clear, but the
    // binding of a channel.
    if channel.session.security().is_some_and(|security| security.encrypt_data)
        && !rq.encrypted
        && rq.connection.is_smb3()
    {
        return Err(Status::ACCESS_DENIED.into());
    }
    if let Some(under_way) = take_under_way(rq) {
        return Ok(under_way);
    }
    if channel.session.security().is_none() {
        // Its exchange is being answered right now: one token at a time.
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(begin(rq, Purpose::Renew, Arc::clone(&channel.session)))
}

fn take_under_way(rq: &Request<'_>) -> Option<Authentication> {
    rq.connection.authentications.borrow_mut().remove(&rq.header.session_id)
}

fn new_session(rq: &Request<'_>) -> Result<Arc<Session>, Status> {
    let connection = rq.connection;
    let most = if connection.is_authenticated() {
        SESSIONS_PER_CONNECTION
    } else {
        SESSIONS_BEFORE_AUTHENTICATION
    };
    if connection.channel_count() >= most {
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    let negotiated = connection.negotiated()?;
    let session = rq.server().add_session(|id| {
        let terms = &negotiated.terms;
        let network = rq.server().ledger.network(connection.peer.ip());
        Session::new(id, negotiated.client_guid, terms.dialect, terms.cipher, network)
    })?;
    match session.holder().charge(Kind::Session, SESSION_BYTES) {
        Ok(charge) => session.charge(charge),
        Err(status) => {
            rq.server().close_session(&session);
            return Err(status);
        }
    }
    session.add_channel(connection.id, connection.handle.clone())?;
    connection.add_channel(Channel { session: Arc::clone(&session), signing_key: None });
    Ok(session)
}

fn begin(rq: &Request<'_>, purpose: Purpose, session: Arc<Session>) -> Authentication {
    let settings = &rq.connection.settings;
    let mut config = AcceptorConfig::standalone(&settings.server_name);
    config.require_mic = settings.require_mic;
    // The keys of a session are those of its first logon, which somebody made.
    config.anonymous = settings.anonymous && purpose == Purpose::Renew;
    if !settings.target_names.is_empty() {
        let address = rq.connection.local.ip().to_canonical().to_string();
        let names = settings.target_names.iter().cloned().chain([address]);
        config.allowed_targets = Some(names.collect());
    }
    let mut challenge = [0; 8];
    rq.server().ambient.random(&mut challenge);
    Authentication {
        acceptor: Acceptor::new(Arc::new(config), challenge),
        preauth: rq.connection.preauth.borrow().session_setup(),
        purpose,
        session,
    }
}

/// MS-SMB2 3.3.5.5: all checks come before any change, so that a failed attempt to bind to a
/// session leaves no trace on it.
fn find_binding(rq: &Request<'_>, out: &mut Response) -> Result<Authentication, Refusal> {
    let connection = rq.connection;
    let negotiated = connection.negotiated()?;
    let found = rq.server().session(rq.header.session_id);
    let is_proven = match found.as_ref().and_then(|session| Some((session, session.security()?))) {
        Some((session, security)) => {
            may_mix(security.signing_key.algorithm(), negotiated.terms.signing_algorithm)?;
            let mut message = rq.message.to_vec();
            let is_proven = rq.header.flags.contains(HeaderFlags::SIGNED)
                && frevo_proto::signature::verify(
                    &mut message,
                    &security.signing_key,
                    Sender::Client,
                );
            if is_proven {
                out.set_binding(Arc::clone(session));
            }
            is_proven
        }
        None => false,
    };
    if !connection.is_smb3() {
        return Err(Status::REQUEST_NOT_ACCEPTED.into());
    }
    let session = found.ok_or(Status::USER_SESSION_DELETED)?;
    if session.dialect != negotiated.terms.dialect || !rq.header.flags.contains(HeaderFlags::SIGNED)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    match session.state() {
        State::Valid => {}
        State::InProgress => return Err(Status::REQUEST_NOT_ACCEPTED.into()),
        State::Expired => return Err(Status::NETWORK_SESSION_EXPIRED.into()),
        State::Closed => return Err(Status::USER_SESSION_DELETED.into()),
    }
    if connection.channel(session.id).is_some() {
        return Err(Status::REQUEST_NOT_ACCEPTED.into());
    }
    if session.cipher != negotiated.terms.cipher {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if session.client_guid != negotiated.client_guid {
        return Err(Status::USER_SESSION_DELETED.into());
    }
    if !is_proven {
        return Err(Status::ACCESS_DENIED.into());
    }
    Ok(take_under_way(rq).unwrap_or_else(|| begin(rq, Purpose::Bind, session)))
}

/// Fails when a connection with one signing algorithm must not be bound to a session whose key
/// is for another.
///
/// Windows: where AES-GMAC is one of them they must be the same; before the
/// dialects are compared.
fn may_mix(session: SigningAlgorithm, connection: SigningAlgorithm) -> Result<(), Status> {
    match (session, connection) {
        _ if session == connection => Ok(()),
        (SigningAlgorithm::AesGmac, _) => Err(Status::REQUEST_OUT_OF_SEQUENCE),
        (_, SigningAlgorithm::AesGmac) => Err(Status::NOT_SUPPORTED),
        _ => Ok(()),
    }
}

/// The client is who it says.
fn finish(
    rq: &Request<'_>,
    request: &session_setup::Request<'_>,
    authentication: &Authentication,
    (done, host): (&Done, OnHost),
    out: &mut Response,
) -> Outcome {
    let is_nobody = done.identity.user.is_empty();
    // A session without an account goes on using its Opens as its earlier user of the host.
    let before = authentication.session.identity().filter(|_| is_nobody);
    let host = before.map_or(host, |before| before.host.clone());
    let identity = Identity {
        user: done.identity.user.clone(),
        domain: done.identity.domain.clone(),
        workstation: done.identity.workstation.clone(),
        token: match is_nobody {
            true => Arc::new(Token::nobody()),
            false => rq.server().token(&done.identity.user, host.user()),
        },
        groups: match is_nobody {
            true => Arc::default(),
            false => rq.server().groups(&done.identity.user, host.user()),
        },
        host,
        is_local: rq.server().accounts().membership(&done.identity.user).is_some(),
    };
    let session = &authentication.session;
    match authentication.purpose {
        Purpose::New => establish(rq, request, authentication, done, identity)?,
        Purpose::Renew => {
            // A session that has lost its account may authenticate as its owner again, and as
            // no other account.
            if !identity.is_nobody() && !session.is_owned_by(&identity) {
                return Err(Status::ACCESS_DENIED.into());
            }
            session.reestablish(identity);
        }
        Purpose::Bind => {
            if let Err(status) = bind(rq, authentication, done, &identity) {
                rq.connection.authentications.borrow_mut().remove(&session.id);
                return Ok(refuse_binding(out, status));
            }
        }
    }
    rq.connection.ticket.borrow_mut().take();
    let encrypt = session.security().is_some_and(|s| s.encrypt_data);
    let flags = if encrypt { SessionFlags::ENCRYPT_DATA } else { SessionFlags::EMPTY };
    respond(out, flags, &done.token);
    log_logon(rq, authentication, done);
    Ok(Status::SUCCESS)
}

/// First success: keys and policy, MS-SMB2 3.3.5.5.3.
fn establish(
    rq: &Request<'_>,
    request: &session_setup::Request<'_>,
    authentication: &Authentication,
    done: &Done,
    identity: Identity,
) -> Result<(), Status> {
    let negotiated = rq.connection.negotiated()?;
    let (terms, settings) = (&negotiated.terms, &rq.connection.settings);
    let session = &authentication.session;
    let keys = terms
        .session_keys(&*done.session_key, authentication.preauth.hash())
        .map_err(|_| Status::LOGON_FAILURE)?;
    if terms.dialect != Dialect::SMB_2_0_2
        && rq.server().clients.enter(negotiated.client_guid, &identity.user, terms.dialect).is_err()
    {
        return Err(Status::USER_SESSION_DELETED);
    }
    let sealing_key = keys.sealing_key(Sender::Server);
    let encrypt_data = settings.encryption == Encryption::Required && sealing_key.is_some();
    let asked = negotiated.client_security_mode | request.security_mode;
    let signing_required = !encrypt_data
        && (settings.signing == Signing::Required
            || asked.contains(SecurityMode::SIGNING_REQUIRED));
    // Nobody is no account: strangers on other networks are not charged for it.
    let ledger = &rq.server().ledger;
    let holder = if identity.is_nobody() {
        ledger.network(rq.connection.peer.ip())
    } else {
        ledger.account(&identity.user)
    };
    if !identity.is_nobody() {
        session.charge(holder.charge(Kind::Session, SESSION_BYTES).map_err(|_| too_many(rq))?);
    }
    charge_connection(rq, &holder)?;
    rq.connection.tabs.move_to(&holder);
    session.establish(
        identity,
        Security {
            signing_key: terms.signing_key(&keys),
            sealing_key,
            opening_key: keys.opening_key(Sender::Server),
            signing_required,
            encrypt_data,
        },
        holder,
    );
    Ok(())
}

fn bind(
    rq: &Request<'_>,
    authentication: &Authentication,
    done: &Done,
    identity: &Identity,
) -> Result<(), Status> {
    let session = &authentication.session;
    let owner = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    // MS-SMB2 3.3.5.5: nor to a session of nobody.
    if !owner.is_same_user(identity) || owner.is_nobody() {
        return Err(Status::NOT_SUPPORTED);
    }
    if session.state() != State::Valid {
        // It ended or expired since this exchange began.
        return Err(Status::USER_SESSION_DELETED);
    }
    if rq.connection.channel(session.id).is_some() {
        // Another exchange for the same channel was faster.
        return Err(Status::REQUEST_NOT_ACCEPTED);
    }
    let terms = &rq.connection.negotiated()?.terms;
    let keys = terms
        .session_keys(&*done.session_key, authentication.preauth.hash())
        .map_err(|_| Status::LOGON_FAILURE)?;
    charge_connection(rq, session.holder())?;
    session.add_channel(rq.connection.id, rq.connection.handle.clone())?;
    rq.connection.tabs.move_to(session.holder());
    let signing_key = Some(terms.signing_key(&keys));
    rq.connection.add_channel(Channel { session: Arc::clone(session), signing_key });
    Ok(())
}

/// The account of the first logon on a connection has it from then on.
fn charge_connection(rq: &Request<'_>, holder: &Arc<Holder>) -> Result<(), Status> {
    let mut charges = rq.connection.charges.borrow_mut();
    let is_account = matches!(holder.name(), Name::Account(_));
    if is_account
        && !charges.iter().any(|charge| matches!(charge.holder().name(), Name::Account(_)))
    {
        charges.push(holder.charge(Kind::Connection, 0).map_err(|_| too_many(rq))?);
    }
    Ok(())
}

/// No status of MS-SMB2 is for this; Windows' text for REQUEST_NOT_ACCEPTED says it.
fn too_many(rq: &Request<'_>) -> Status {
    rq.tell(|left_out| {
        tracing::warn!(target: "frevo::session", peer = %rq.connection.peer, left_out,
            "logon refused: the user has as many connections or sessions as \
             limits.connections_per_user and limits.sessions_per_user allow");
    });
    Status::REQUEST_NOT_ACCEPTED
}

/// A binding fails without harm to its session: the error is reported here, for
/// a handler's error would abandon the session.
fn refuse_binding(out: &mut Response, status: Status) -> Status {
    out.clear_body();
    out.writer().u16(9).u16(0).u32(0).u8(0);
    status
}

/// Ends an earlier session of the user, MS-SMB2 3.3.5.5.3. Waits for its operations, so that
/// no old write comes after the next request of the client; not for ever, so that a request
/// that hangs does not keep the user out.
async fn take_over(rq: &Request<'_>, previous: u64, session: &Session) {
    if previous == 0 || previous == session.id {
        return;
    }
    let Some(old) = rq.server().session(previous) else { return };
    let same = match (old.identity(), session.identity()) {
        (Some(a), Some(b)) => a.is_same_user(&b),
        _ => false,
    };
    if same {
        rq.connection.remove_channel(previous);
        rq.server().close_session(&old);
        let _ = tokio::time::timeout(TAKE_OVER_PATIENCE, old.under_way.drained()).await;
    }
}

fn respond(out: &mut Response, session_flags: SessionFlags, token: &[u8]) {
    session_setup::Response { session_flags, security_buffer: token }.encode(&mut out.writer());
}

fn log_logon(rq: &Request<'_>, authentication: &Authentication, done: &Done) {
    let Ok(negotiated) = rq.connection.negotiated() else { return };
    let session = &authentication.session;
    let sealed = session.security().is_some_and(|s| s.encrypt_data);
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::session", peer = %rq.connection.peer,
            user = %done.identity.user, workstation = %shortened(&done.identity.workstation),
            purpose = ?authentication.purpose, dialect = ?negotiated.terms.dialect,
            cipher = ?negotiated.terms.cipher, signing = ?negotiated.terms.signing_algorithm,
            sealed, mic = done.has_mic, left_out, "logged on");
    });
    let purpose = match authentication.purpose {
        Purpose::New => "new",
        Purpose::Renew => "renew",
        Purpose::Bind => "bind",
    };
    told::logged_on(rq, session.id, done, purpose, sealed);
}
