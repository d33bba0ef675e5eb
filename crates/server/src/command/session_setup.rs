//! SESSION_SETUP: MS-SMB2 3.3.5.5. New sessions, bindings of further channels,
//! and authentication anew.

mod binding;
mod guests;

use std::sync::Arc;

use frevo_auth::kerberos::AcceptorEntropy;
use frevo_auth::{Acceptor, AcceptorConfig, Done, Reason, Step};
use frevo_crypto::Sender;
use frevo_proto::Dialect;
use frevo_wire::Status;
use frevo_wire::command::negotiate::{GlobalCapabilities as Capabilities, SecurityMode};
use frevo_wire::command::session_setup::{self, SessionFlags, SessionSetupFlags};
use frevo_wire::dtyp::Guid;
use tokio::time::Instant;

use crate::access::domain_users;
use crate::access::host_users::OnHost;
use crate::access::principals::SharedAccounts;
use crate::access::throttle::{Attempt, shortened};
use crate::base::limits::{
    EXCHANGE_BYTES, SESSION_BYTES, SESSIONS_BEFORE_AUTHENTICATION, SESSIONS_PER_CONNECTION,
    TAKE_OVER_PATIENCE, THROTTLE_TOLD,
};
use crate::base::protection_names::{cipher_name, dialect_name, signing_name};
use crate::command::audited;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::connection::{Authentication, Connection, Purpose};
use crate::objects::channel::Channel;
use crate::objects::ledger::{Holder, Kind, Name};
use crate::objects::refusal::{Outcome, Refusal};
use crate::objects::session::{Identity, Security, Session};
use crate::objects::settings::{Encryption, Signing};
use crate::objects::{directory, logon};

/// Takes one token of an authentication.
pub(crate) async fn handle(
    rq: &Request<'_>,
    connection: &Connection,
    out: &mut Response,
) -> Outcome {
    let request = session_setup::Request::parse(rq.message)?;
    check_encryption(rq)?;
    let mut authentication = find(rq, connection, &request, out)?;
    let session = Arc::clone(&authentication.session);
    out.set_session_id(session.id);
    if authentication.purpose != Purpose::Renew && rq.dialect() == Dialect::SMB_3_1_1 {
        authentication.preauth.on_request(&[rq.message]);
    }
    let acceptor = &mut authentication.acceptor;
    let accounts = rq.server().accounts();
    let step = judged(rq, connection, acceptor, request.security_buffer, &accounts).await;
    match step {
        // The acceptor has asked the domain once and has got the answer, so a second question is a
        // bug.
        Ok(Step::Ask(_)) => Err(Status::INTERNAL_ERROR.into()),
        Ok(Step::Continue(token)) => {
            respond(out, SessionFlags::EMPTY, &token);
            connection.members.authentications.borrow_mut().insert(session.id, authentication);
            Ok(Status::MORE_PROCESSING_REQUIRED)
        }
        Ok(Step::Retry(token, refusal)) => {
            refused(rq, &refusal);
            respond(out, SessionFlags::EMPTY, &token);
            connection.members.authentications.borrow_mut().insert(session.id, authentication);
            Ok(Status::MORE_PROCESSING_REQUIRED)
        }
        Ok(Step::Done(mut done)) => match admit(rq, connection, &mut done).await {
            // The connection has ended meanwhile and has released its sessions, so it must not get
            // a new one.
            _ if connection.is_doomed() => {
                // Only a new session is removed; an older one may still have other channels.
                if authentication.purpose == Purpose::New {
                    abandon(rq, connection, &session, Purpose::New);
                }
                Err(Status::USER_SESSION_DELETED.into())
            }
            Ok(host) => {
                // The account that has logged on is charged from here on.
                drop(authentication.charge.take());
                let client = Authenticated { done: &done, host, accounts: &accounts };
                let finished = finish(rq, connection, &request, &authentication, client, out)
                    .inspect_err(|_| abandon(rq, connection, &session, Purpose::New))?;
                if finished == Status::SUCCESS && authentication.purpose == Purpose::New {
                    take_over(rq, connection, request.previous_session_id, &session).await;
                }
                Ok(finished)
            }
            Err(status) => {
                abandon(rq, connection, &session, authentication.purpose);
                Err(status.into())
            }
        },
        Err(refusal) => {
            refused(rq, &refusal);
            // The user name is known only from the AUTHENTICATE_MESSAGE on (MS-NLMP). If it is
            // known, the refusal counts as a failed logon. Where the throttle lets nothing count,
            // the status tells nothing of the controller's verdict on the password.
            let counts = refusal.account.is_empty() || guessed(rq, connection, &refusal).await;
            abandon(rq, connection, &session, authentication.purpose);
            Err(if counts { refusal.status() } else { Status::LOGON_FAILURE }.into())
        }
    }
}

/// Judges a token. A domain controller is asked about a proof that it has to judge.
async fn judged(
    rq: &Request<'_>,
    connection: &Connection,
    acceptor: &mut Acceptor,
    token: &[u8],
    accounts: &SharedAccounts,
) -> Result<Step, frevo_auth::Refusal> {
    let address = rq.connection.peer.ip();
    if let Some(asking) = directory::before_proof(rq.server(), acceptor, token, accounts, address) {
        tokio::select! {
            biased;
            () = connection.ended() => return Err(directory::gone()),
            asked = asking => asked?,
        }
    }
    let now = rq.server().ambient.now().0;
    let mut step = acceptor.step(token, now, &**accounts)?;
    if let Step::Retry(_, refusal) = &step
        && refusal.needs_other_keys()
    {
        let refusal = refusal.clone();
        let again = logon::with_other_keys(rq.server(), acceptor, token, step, accounts);
        step = tokio::select! {
            biased;
            () = connection.ended() => return Err(refusal),
            again = Box::pin(again) => again?,
        };
    }
    let Step::Ask(question) = step else { return Ok(step) };
    let answer = tokio::select! {
        biased;
        () = connection.ended() => {
            Err(Reason::DomainSilent(String::from("the client has gone")))
        }
        answer = rq.server().domain_logons.ask(question) => answer,
    };
    acceptor.answer(answer)
}

/// Reports a refused logon.
fn refused(rq: &Request<'_>, refusal: &frevo_auth::Refusal) {
    let settings = rq.server().settings();
    let takes_tickets = rq.server().kerberos.service().is_some() && settings.realms.is_empty();
    let hint = domain_users::hint(refusal, takes_tickets, &settings.server_name);
    let ticket = refusal.ticket();
    rq.tell(|left_out| {
        let etype = ticket.map(|ticket| ticket.etype().to_string());
        tracing::warn!(target: "frevo::session", peer = %rq.connection.peer,
            user = %shortened(&refusal.user), reason = %refusal.reason, hint,
            service = ticket.map(|ticket| display(&ticket.server)), etype,
            kvno = ticket.and_then(|ticket| ticket.kvno), left_out, "logon refused");
    });
    audited::logon_refused(rq, refusal);
}

/// Looks up the host's user of an account that has logged on, and gives a user of a KDC the name of
/// its account.
///
/// # Errors
/// The status of a logon that the throttle or the account refuses, and of one when the SIDs of the
/// host's user count and the host does not answer: access lists that deny something to these SIDs
/// would have no effect.
async fn admit(
    rq: &Request<'_>,
    connection: &Connection,
    done: &mut Done,
) -> Result<OnHost, Status> {
    if let Some(asking) = directory::before_naming(rq.server(), done, rq.connection.peer.ip())
        && let Err(refusal) = asking.await
    {
        refused(rq, &refusal);
        return Err(refusal.status());
    }
    if let Err(refusal) = logon::name_user(rq.server(), done) {
        refused(rq, &refusal);
        return Err(refusal.status());
    }
    let user = &*done.identity.user;
    // Only a password can be guessed. An anonymous logon must not be remembered as a success, and
    // an attacker's wrong passwords must not lock out the owner's Kerberos tickets.
    let may_be_guess = !user.is_empty() && done.identity.kerberos.is_none();
    if may_be_guess && !heed(rq, connection, user, true).await {
        return Err(Status::LOGON_FAILURE);
    }
    let host = match logon::mapped(rq.server(), done) {
        Some(host) => host,
        None => rq.server().host_user(user).await,
    };
    let is_refused = rq.server().settings().has_host_sids && !user.is_empty() && !host.is_known();
    if is_refused {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::session", peer = %rq.connection.peer,
                user = %shortened(user), left_out,
                "logon refused: the host's name service does not tell the groups of this user, \
                 which access lists may name");
        });
    }
    if is_refused { Err(Status::LOGON_FAILURE) } else { Ok(host) }
}

/// Waits as long as the throttle says; false when the outcome does not count. The wait
/// ends with the connection.
async fn heed(rq: &Request<'_>, connection: &Connection, account: &str, success: bool) -> bool {
    let client = rq.connection.negotiated().map_or_else(|_| Guid::default(), |n| n.client_guid);
    let attempt = Attempt { address: rq.connection.peer.ip(), client, account, success };
    let asked = Instant::now();
    tokio::select! {
        biased;
        () = connection.ended() => false,
        counts = rq.server().throttle.heed(attempt) => {
            let wait = asked.elapsed();
            if !counts || wait >= THROTTLE_TOLD {
                audited::throttled(rq, account, wait, !counts);
            }
            counts
        }
    }
}

/// Counts a wrong password; false when it does not count. The account's directory may have a new one.
async fn guessed(rq: &Request<'_>, connection: &Connection, refusal: &frevo_auth::Refusal) -> bool {
    let counts = heed(rq, connection, &refusal.account, false).await;
    if counts {
        rq.server().doubt(&refusal.account);
    }
    counts
}

/// A failed exchange takes its session with it, but a failed binding leaves the
/// session that others use untouched.
fn abandon(rq: &Request<'_>, connection: &Connection, session: &Session, purpose: Purpose) {
    connection.members.authentications.borrow_mut().remove(session.id);
    if purpose != Purpose::Bind {
        connection.members.remove_channel(session.id);
        rq.server().close_session(session, "a logon in it failed");
    }
}

/// MS-SMB2 3.3.5.5: a client that cannot encrypt is told at once.
fn check_encryption(rq: &Request<'_>) -> Result<(), Status> {
    let negotiated = rq.connection.negotiated()?;
    let seals = negotiated.terms.is_smb3()
        && negotiated.terms.cipher.is_some()
        && (negotiated.terms.is_3_1_1()
            || negotiated.client_capabilities.contains(Capabilities::ENCRYPTION));
    let able = seals || negotiated.accepts_transport_security;
    if rq.connection.settings.encryption == Encryption::Required && !able {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::session", peer = %rq.connection.peer,
                dialect = dialect_name(negotiated.terms.dialect), left_out,
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
    connection: &Connection,
    request: &session_setup::Request<'_>,
    out: &mut Response,
) -> Result<Authentication, Refusal> {
    let binding = request.flags.contains(SessionSetupFlags::BINDING);
    if rq.header.session_id == 0 {
        // The account of the connection is charged for the session too, until the logon has
        // succeeded: else an account could take all places of its network by logons that it never
        // finishes.
        let account = connection.members.account();
        let charge = account.map(|account| account.charge(Kind::Session, EXCHANGE_BYTES));
        let charge = charge.transpose().map_err(|_| too_many(rq))?;
        let session = new_session(rq, connection)?;
        return Ok(Authentication { charge, ..begin(rq, connection, Purpose::New, session) });
    }
    if binding {
        let session = binding::check(rq, connection, out)?;
        if let Some(under_way) = take_under_way(rq, connection) {
            return Ok(under_way);
        }
        return begin_charged(rq, connection, Purpose::Bind, session);
    }
    let channel =
        connection.members.channel(rq.header.session_id).ok_or(Status::USER_SESSION_DELETED)?;
    // MS-SMB2 3.3.5.2.9: a session that encrypts refuses an unencrypted SESSION_SETUP, except one
    // that binds a channel.
    if channel.session.security().is_some_and(|security| security.encrypt_data)
        && !rq.is_sealed()
        && rq.connection.is_smb3()
    {
        return Err(Status::ACCESS_DENIED.into());
    }
    if let Some(under_way) = take_under_way(rq, connection) {
        return Ok(under_way);
    }
    if channel.session.security().is_none() {
        // The previous token of this logon is still being processed, so the client must not send
        // another one.
        return Err(Status::INVALID_PARAMETER.into());
    }
    begin_charged(rq, connection, Purpose::Renew, Arc::clone(&channel.session))
}

/// Begins an exchange for an existing session, and charges the session's owner for it: the client
/// decides how long the connection has to keep the exchange.
fn begin_charged(
    rq: &Request<'_>,
    connection: &Connection,
    purpose: Purpose,
    session: Arc<Session>,
) -> Result<Authentication, Refusal> {
    let begun = connection.members.authentications.borrow().count();
    if begun >= sessions_max(connection) {
        return Err(Status::INSUFFICIENT_RESOURCES.into());
    }
    let charge = session.holder().charge(Kind::Waiting, EXCHANGE_BYTES)?;
    Ok(Authentication { charge: Some(charge), ..begin(rq, connection, purpose, session) })
}

fn take_under_way(rq: &Request<'_>, connection: &Connection) -> Option<Authentication> {
    connection.members.authentications.borrow_mut().remove(rq.header.session_id)
}

/// Sessions that the connection may have, and exchanges that may be under way on it.
fn sessions_max(connection: &Connection) -> usize {
    if connection.members.is_authenticated() {
        SESSIONS_PER_CONNECTION
    } else {
        SESSIONS_BEFORE_AUTHENTICATION
    }
}

fn new_session(rq: &Request<'_>, connection: &Connection) -> Result<Arc<Session>, Status> {
    if connection.members.channel_count() >= sessions_max(connection) {
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    let negotiated = rq.connection.negotiated()?;
    let session = rq.server().add_session(|id| {
        let terms = &negotiated.terms;
        let network = rq.server().ledger.network(rq.connection.peer.ip());
        Session::new(id, negotiated.client_guid, terms.dialect, terms.cipher, network)
    })?;
    match session.holder().charge(Kind::Session, SESSION_BYTES) {
        Ok(charge) => session.charge(charge),
        Err(status) => {
            rq.server().close_session(&session, "there is no room for it");
            return Err(status);
        }
    }
    session.add_channel(rq.connection.id, rq.connection.handle.clone())?;
    connection.members.add_channel(Channel::new(&session, None, rq.connection));
    Ok(session)
}

fn begin(
    rq: &Request<'_>,
    connection: &Connection,
    purpose: Purpose,
    session: Arc<Session>,
) -> Authentication {
    let settings = &rq.connection.settings;
    let mut config = AcceptorConfig::standalone(&settings.server_name);
    config.require_mic = settings.require_mic;
    config.ntlm = settings.ntlm;
    config.passed_on.clone_from(&settings.passed_on);
    if let Some(domain) = settings.passed_on.first() {
        // A domain controller compares the domain and computer names in the message with the names
        // of the member, namely this server.
        config.domain = domain.to_uppercase();
    }
    // An anonymous logon gives no secret key, so it cannot encrypt a session or bind a channel.
    config.anonymous = settings.anonymous
        && match purpose {
            Purpose::New => settings.encryption != Encryption::Required,
            Purpose::Renew => true,
            Purpose::Bind => false,
        };
    if purpose == Purpose::New {
        config.guests = guests::of(rq);
    }
    if !settings.target_names.is_empty() {
        let address = rq.connection.local.ip().to_canonical().to_string();
        let names = settings.target_names.iter().cloned().chain([address]);
        config.allowed_targets = Some(names.collect());
    }
    Authentication {
        acceptor: acceptor(rq, config),
        preauth: connection.preauth.borrow().session_setup(),
        purpose,
        session,
        charge: None,
    }
}

/// An acceptor of NTLM, and of tickets where the server has keys for them.
fn acceptor(rq: &Request<'_>, config: AcceptorConfig) -> Acceptor {
    let ambient = &rq.server().ambient;
    let mut challenge = [0; 8];
    ambient.random(&mut challenge);
    let acceptor = Acceptor::new(Arc::new(config), challenge);
    let Some(service) = rq.server().kerberos.service() else { return acceptor };
    let mut entropy = AcceptorEntropy { subkey: [0; 32], confounder: [0; 16], sequence: [0; 4] };
    ambient.random(&mut entropy.subkey);
    ambient.random(&mut entropy.confounder);
    ambient.random(&mut entropy.sequence);
    acceptor.with_kerberos(service, entropy)
}

/// The client of an exchange that has authenticated it.
struct Authenticated<'a> {
    /// The result of the exchange.
    done: &'a Done,
    /// The user of the host that the account is.
    host: OnHost,
    /// The accounts that were asked.
    accounts: &'a SharedAccounts,
}

/// Has limits of rate picked again for a user who is in other groups than before.
fn pick_rates_again(rq: &Request<'_>, session: &Session, earlier: Option<&Identity>) {
    let later = session.identity_for_rates();
    let is_same = later.as_deref().zip(earlier).is_some_and(|(later, earlier)| {
        later.user == earlier.user
            && later.groups == earlier.groups
            && later.token == earlier.token
            && later.host == earlier.host
    });
    if !is_same {
        rq.server().rates.pick_again();
    }
}

/// Finishes an exchange that has authenticated the client.
fn finish(
    rq: &Request<'_>,
    connection: &Connection,
    request: &session_setup::Request<'_>,
    authentication: &Authentication,
    client: Authenticated<'_>,
    out: &mut Response,
) -> Outcome {
    let Authenticated { done, host, accounts } = client;
    let is_nobody = done.identity.user.is_empty();
    // A session that became anonymous keeps the host identity of its former user, because its Opens
    // go on using that identity.
    let before = authentication.session.identity().filter(|_| is_nobody);
    let host = before.map_or(host, |before| before.host.clone());
    let identity = logon::identity(rq.server(), done, host, accounts);
    let session = &authentication.session;
    let earlier = session.identity_for_rates();
    match authentication.purpose {
        Purpose::New => establish(rq, connection, request, authentication, done, identity)?,
        Purpose::Renew => {
            // A session that became anonymous may authenticate as its owner again, but not as
            // another user.
            if !identity.is_nobody() && !session.is_owned_by(&identity) {
                return Err(Status::ACCESS_DENIED.into());
            }
            session.set_expiration(domain_users::end(done.identity.kerberos.as_deref()));
            session.reestablish(identity);
        }
        Purpose::Bind => {
            if let Err(status) = binding::bind(rq, connection, authentication, done, &identity) {
                connection.members.authentications.borrow_mut().remove(session.id);
                return Ok(binding::refuse(out, status));
            }
        }
    }
    check_account(rq, session, accounts)?;
    // A reload or new SIDs of rules after the decision about the user have not seen this session.
    if let Some(identity) = session.identity() {
        rq.server().renew(session, identity);
    }
    if authentication.purpose == Purpose::Renew {
        pick_rates_again(rq, session, earlier.as_deref());
    }
    if !is_nobody || done.identity.guest.is_some() {
        connection.members.ticket.borrow_mut().take();
    }
    if let Some(user) = domain_users::facts(&done.identity) {
        rq.server().domain_names.learn(domain_users::principal(user));
    }
    let flags = match authentication.purpose {
        Purpose::New if is_nobody => {
            // MS-SMB2 3.3.5.5.3: an anonymous logon gives no secret key, nor does that of a guest, so
            // the response is not signed.
            out.leave_unsigned();
            match &done.identity.guest {
                Some(name) if !name.is_empty() => SessionFlags::IS_GUEST,
                _ => SessionFlags::IS_NULL,
            }
        }
        // MS-SMB2 2.2.3.1.5: where the transport encrypts, SMB does not, so the client is not told
        // to. Another connection of the session may be over another transport, so the session
        // remembers the demand.
        _ if rq.connection.accepts_transport_security() => SessionFlags::EMPTY,
        _ if session.security().is_some_and(|s| s.encrypt_data) => SessionFlags::ENCRYPT_DATA,
        _ => SessionFlags::EMPTY,
    };
    respond(out, flags, &done.token);
    log_logon(rq, authentication, done);
    Ok(Status::SUCCESS)
}

/// Refuses an account that changed while its logon waited. A reload looks at the sessions that have
/// an identity: this comes after it was set, so that none is left out.
fn check_account(
    rq: &Request<'_>,
    session: &Session,
    accounts: &SharedAccounts,
) -> Result<(), Status> {
    let Some(identity) = session.identity() else { return Ok(()) };
    if !identity.is_local || rq.server().may_stay(&identity, accounts) {
        return Ok(());
    }
    let refusal = frevo_auth::Refusal {
        user: identity.user.clone(),
        domain: identity.domain.clone(),
        ..frevo_auth::Refusal::new(Reason::NoAccount(String::from(
            "the account was changed while the logon waited",
        )))
    };
    refused(rq, &refusal);
    Err(Status::LOGON_FAILURE)
}

/// First success: keys and policy, MS-SMB2 3.3.5.5.3.
fn establish(
    rq: &Request<'_>,
    connection: &Connection,
    request: &session_setup::Request<'_>,
    authentication: &Authentication,
    done: &Done,
    identity: Identity,
) -> Result<(), Status> {
    let negotiated = rq.connection.negotiated()?;
    let (terms, settings) = (&negotiated.terms, &rq.connection.settings);
    let session = &authentication.session;
    let keys = terms
        .session_keys(&done.session_key, authentication.preauth.hash())
        .map_err(|_| Status::LOGON_FAILURE)?;
    let is_guest = identity.is_guest;
    // MS-SMB2 3.3.5.5.3: neither an anonymous session nor one of a guest has keys to encrypt with.
    let sealing_key = keys.sealing_key(Sender::Server).filter(|_| !is_guest).map(Arc::new);
    let is_sealable = sealing_key.is_some() || negotiated.accepts_transport_security;
    let encrypt_data = settings.encryption == Encryption::Required && is_sealable;
    let asked = negotiated.client_security_mode | request.security_mode;
    // Deviation: signing is never required of an anonymous session, because its client signs
    // nothing (MS-SMB2 3.2.5.3.1), and everyone knows its key.
    let signing_required = !encrypt_data
        && !identity.is_nobody()
        && (settings.signing == Signing::Required
            || asked.contains(SecurityMode::SIGNING_REQUIRED));
    // All anonymous users share one account, so an anonymous session is charged to its client's
    // network instead. Guests have one account that no user has: they neither take the places of their
    // network nor of an account.
    let ledger = &rq.server().ledger;
    let holder = if identity.is_guest {
        ledger.account(identity.shown())
    } else if identity.is_nobody() {
        ledger.network(rq.connection.peer.ip())
    } else {
        ledger.account(&identity.user)
    };
    if is_guest {
        session.be_guest(guests::place(rq)?);
    }
    if is_guest || !identity.is_nobody() {
        session.charge(holder.charge(Kind::Session, SESSION_BYTES).map_err(|_| too_many(rq))?);
    }
    charge_connection(rq, connection, &holder)?;
    // Nothing fails after this: the session leaves the table when it ends, if it was established.
    if terms.dialect != Dialect::SMB_2_0_2
        && rq.server().clients.enter(negotiated.client_guid, &identity.user, terms.dialect).is_err()
    {
        return Err(Status::USER_SESSION_DELETED);
    }
    connection.move_to(&holder);
    session.set_expiration(domain_users::end(done.identity.kerberos.as_deref()));
    session.establish(
        identity,
        Security {
            signing_key: Arc::new(terms.signing_key(&keys)),
            sealing_key,
            opening_key: keys.opening_key(Sender::Server).filter(|_| !is_guest).map(Arc::new),
            signing_required,
            encrypt_data,
            // MS-SMB2 3.3.5.5.3
            supports_notifications: negotiated.supports_notifications(),
            is_guest,
        },
        holder,
    );
    Ok(())
}

/// The account of the first logon on a connection has it from then on.
fn charge_connection(
    rq: &Request<'_>,
    connection: &Connection,
    holder: &Arc<Holder>,
) -> Result<(), Status> {
    if matches!(holder.name(), Name::Account(_)) && connection.members.account().is_none() {
        check_descriptors(rq, holder)?;
        connection
            .members
            .charges
            .borrow_mut()
            .push(holder.charge(Kind::Connection, 0).map_err(|_| too_many(rq))?);
    }
    Ok(())
}

/// Refuses a connection that would take the descriptors that others need.
fn check_descriptors(rq: &Request<'_>, holder: &Holder) -> Result<(), Status> {
    let (server, own) = (rq.server(), holder.count(Kind::Connection));
    if server.descriptors.admit_logon(own, server.ledger.with_descriptors()) {
        return Ok(());
    }
    rq.tell(|left_out| {
        tracing::warn!(target: "frevo::session", peer = %rq.connection.peer, left_out,
            account = %holder.name(), connections = own,
            "logon refused: too few descriptors are left for the account; close some of its \
             connections, or raise LimitNOFILE");
    });
    Err(Status::REQUEST_NOT_ACCEPTED)
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

/// Ends an earlier session of the user, MS-SMB2 3.3.5.5.3. Waits for its operations, so that
/// no old write comes after the next request of the client; not for ever, so that a request
/// that hangs does not keep the user out.
async fn take_over(rq: &Request<'_>, connection: &Connection, previous: u64, session: &Session) {
    if previous == 0 || previous == session.id {
        return;
    }
    let Some(old) = rq.server().session(previous) else { return };
    let same = match (old.identity(), session.identity()) {
        // Two anonymous sessions may belong to different persons, so they never count as sessions
        // of the same user.
        (Some(a), Some(b)) => a.is_same_user(&b) && !b.is_nobody(),
        _ => false,
    };
    if same {
        connection.members.remove_channel(previous);
        rq.server().close_session(&old, "the client logged on again in its place");
        let _ = tokio::time::timeout(TAKE_OVER_PATIENCE, old.under_way.drained()).await;
    }
}

fn respond(out: &mut Response, session_flags: SessionFlags, token: &[u8]) {
    session_setup::Response { session_flags, security_buffer: token }.encode(&mut out.writer());
}

fn log_logon(rq: &Request<'_>, authentication: &Authentication, done: &Done) {
    let Ok(negotiated) = rq.connection.negotiated() else { return };
    let session = &authentication.session;
    let purpose = match authentication.purpose {
        Purpose::New => "new",
        Purpose::Renew => "renew",
        Purpose::Bind => "bind",
    };
    let by_transport = negotiated.accepts_transport_security;
    let sealed = by_transport || session.security().is_some_and(|s| s.encrypt_data);
    // Sealed and anonymous sessions sign nothing, and others what their client signs, if they need not.
    let signing = match session.security() {
        Some(security) if security.signing_required && !by_transport => {
            signing_name(negotiated.terms.signing_algorithm)
        }
        _ if sealed || session.is_anonymous() => "none",
        _ => "optional",
    };
    rq.tell(|left_out| {
        tracing::info!(target: "frevo::session", peer = %rq.connection.peer,
            user = %done.identity.user, guest = done.identity.guest.as_deref().map(shortened),
            workstation = %shortened(&done.identity.workstation),
            purpose, dialect = dialect_name(negotiated.terms.dialect),
            mechanism = ?done.identity.mechanism(),
            source = rq.server().accounts().directory_of(&done.identity.user),
            cipher = negotiated.terms.cipher.map(cipher_name),
            signing, mic = done.has_mic, left_out, "logged on");
    });
    audited::logged_on(rq, session.id, done, purpose, sealed);
}
