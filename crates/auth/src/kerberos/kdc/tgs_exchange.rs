//! The TGS exchange: a ticket for a service, in the realm of the user or of another one. RFC 4120
//! section 3.3 and RFC 6806.

use super::messages::{
    Body, EncReplyPart, KdcOptions, KdcReply, PaData, PaType, Reply, TGS_REP, TGS_REQ, request,
};
use super::{Ask, KdcEntropy, KdcFault, KdcStep, refused, ticket};
use crate::kerberos::asn1::{EncryptedData, Typed};
use crate::kerberos::message::{ApOptions, ApReq, Authenticator, ErrorCode, Moment};
use crate::kerberos::{EncryptionType, Key, KeyUsage, Principal, ServiceTicket};
use crate::limits::MAX_KDC_REFERRALS;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::dtyp::FileTime;
use zeroize::Zeroizing;

/// The way from a ticket-granting ticket to a ticket for a service, over the KDCs of all realms
/// between the user's and the service's.
#[derive(Debug)]
pub struct TgsExchange {
    /// The ticket-granting ticket for the realm that is asked.
    granting: ServiceTicket,
    /// The service; its realm is empty if the KDCs have to find it.
    server: Principal,
    etypes: Vec<EncryptionType>,
    /// The realms that were asked, this one last.
    realms: Vec<String>,
    sent: Option<Sent>,
}

#[derive(Debug)]
struct Sent {
    nonce: u32,
    subkey: Key,
    wanted: Principal,
}

impl TgsExchange {
    /// Begins the exchange for `server` with a ticket-granting ticket. `etypes` are the encryption
    /// types that are allowed for session keys, the best first.
    ///
    /// # Errors
    /// If `granting` has expired, or is no ticket-granting ticket.
    pub fn begin(
        granting: ServiceTicket,
        server: Principal,
        etypes: &[EncryptionType],
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> Result<(Self, Ask), KdcFault> {
        let realm = granted_realm(&granting.server).ok_or(KdcFault::OutOfTurn)?.into();
        if granting.end_time.0 <= now.0 {
            return Err(KdcFault::TicketExpired(Box::new(granting.client)));
        }
        let etypes = etypes.to_vec();
        let mut exchange = Self { granting, server, etypes, realms: [realm].into(), sent: None };
        let ask = exchange.ask(entropy, now);
        Ok((exchange, ask))
    }

    /// Handles the KDC's reply to the last [`Ask`].
    ///
    /// # Errors
    /// A [`KdcFault`] ends the exchange.
    pub fn on_reply(
        &mut self,
        reply: &[u8],
        entropy: &KdcEntropy,
        now: FileTime,
    ) -> Result<KdcStep, KdcFault> {
        let sent = self.sent.take().ok_or(KdcFault::OutOfTurn)?;
        let granted = match Reply::parse(reply, TGS_REP)? {
            Reply::Ticket(reply) => self.accept(&reply, &sent)?,
            Reply::Error(error) => {
                let is_trust = sent.wanted.is_ticket_granting();
                let realm = self.realm();
                return Err(match error.code {
                    ErrorCode::SERVER_UNKNOWN if is_trust => {
                        KdcFault::NoTrust { realm: realm.into(), target: self.server.realm.clone() }
                    }
                    _ => refused(&error, &self.granting.client, &sent.wanted, realm, now),
                });
            }
        };
        if !granted.server.is_ticket_granting() {
            return Ok(KdcStep::Done(Box::new(granted)));
        }
        // RFC 6806 section 8: the ticket is for the KDC of another realm, which the client asks
        // next, unless it was asked before.
        let next: String = granted_realm(&granted.server).unwrap_or_default().into();
        if self.realms.contains(&next) || self.realms.len() > MAX_KDC_REFERRALS {
            return Err(KdcFault::TooManyReferrals(Box::new(self.server.clone())));
        }
        self.realms.push(next);
        self.granting = granted;
        Ok(KdcStep::Ask(self.ask(entropy, now)))
    }

    /// Returns the realm that is asked.
    fn realm(&self) -> &str {
        self.realms.last().map_or("", String::as_str)
    }

    /// Makes a TGS-REQ.
    fn ask(&mut self, entropy: &KdcEntropy, now: FileTime) -> Ask {
        let realm = String::from(self.realm());
        let is_elsewhere = !self.server.realm.is_empty() && self.server.realm != realm;
        let wanted = if is_elsewhere {
            Principal::ticket_granting(&self.server.realm, &realm)
        } else {
            Principal { realm: realm.clone(), ..self.server.clone() }
        };
        let nonce = entropy.nonce();
        let body = Body {
            options: KdcOptions::CANONICALIZE,
            client: None,
            realm: &realm,
            server: &wanted,
            till: self.granting.end_time.to_unix().0,
            nonce,
            etypes: &self.etypes,
        };
        let body = body.encode();
        let (proof, subkey) = self.proof(&body, entropy, now);
        let padata = [PaData { kind: PaType::TGS_REQ, value: &proof }];
        let message = request(TGS_REQ, &padata, &body);
        self.sent = Some(Sent { nonce, subkey, wanted });
        Ask { realm, message }
    }

    /// Makes the AP-REQ that proves the ticket-granting ticket and protects `body`.
    fn proof(&self, body: &[u8], entropy: &KdcEntropy, now: FileTime) -> (Vec<u8>, Key) {
        let key = &self.granting.session_key;
        let etype = key.etype();
        let subkey = entropy.subkey.get(..etype.key_len()).unwrap_or_default();
        let subkey = Key::new(etype, subkey).unwrap_or_else(|| key.clone());
        let (seconds, nanoseconds) = now.to_unix();
        let checksum = key.checksum(KeyUsage::TGS_REQ_CHECKSUM, body);
        let authenticator = Authenticator {
            client: self.granting.client.clone(),
            checksum: Some(Typed { number: etype.checksum_type(), bytes: &checksum }),
            time: Moment { seconds, microseconds: nanoseconds / 1_000 },
            subkey: Some(Typed { number: etype.number(), bytes: subkey.expose() }),
            sequence: None,
            authorization_data: None,
        };
        let authenticator = Zeroizing::new(authenticator.encode());
        let usage = KeyUsage::TGS_REQ_AUTHENTICATOR;
        let cipher = key.encrypt(usage, &entropy.confounder, &authenticator);
        let sealed = EncryptedData { etype: etype.number(), kvno: None, cipher: &cipher };
        (ApReq::encode(ApOptions::EMPTY, &self.granting.ticket, &sealed), subkey)
    }

    /// Checks a ticket: RFC 4120 section 3.3.4.
    fn accept(&self, reply: &KdcReply<'_>, sent: &Sent) -> Result<ServiceTicket, KdcFault> {
        let not_authentic = || KdcFault::NotAuthentic { realm: self.realm().into() };
        let (sealed, session) = (&reply.sealed, &self.granting.session_key);
        // Some KDCs encrypt the reply with the session key instead of the subkey, so both keys are
        // tried.
        let part = (sent.subkey.decrypt(KeyUsage::TGS_REP_SUBKEY, sealed.cipher))
            .or_else(|| session.decrypt(KeyUsage::TGS_REP_SESSION_KEY, sealed.cipher))
            .filter(|_| sealed.etype == session.etype().number())
            .ok_or_else(not_authentic)?;
        let part = EncReplyPart::parse(&part)?;
        // RFC 6806 section 8: the client asks with CANONICALIZE, so the KDC may also return a
        // ticket-granting ticket of another realm (a referral).
        let is_wanted = is_same(&part.server, &sent.wanted) || part.server.is_ticket_granting();
        let is_ours = part.nonce == sent.nonce
            && reply.client == self.granting.client
            && part.server.realm.eq_ignore_ascii_case(self.realm())
            && reply.server == part.server
            && is_wanted;
        if !is_ours {
            return Err(not_authentic());
        }
        ticket(reply, &part, &self.etypes)
    }
}

/// Returns the realm that a ticket-granting ticket is for.
fn granted_realm(server: &Principal) -> Option<&str> {
    match server.components.as_slice() {
        [service, realm] if service == "krbtgt" => Some(realm),
        _ => None,
    }
}

/// True if both have one name, without regard to case, as a directory of Windows has names of
/// services.
fn is_same(one: &Principal, other: &Principal) -> bool {
    one.components.len() == other.components.len()
        && (one.components.iter().zip(&other.components)).all(|(a, b)| a.eq_ignore_ascii_case(b))
}
