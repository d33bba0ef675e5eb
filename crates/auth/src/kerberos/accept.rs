//! The acceptor's end of the AP exchange: RFC 4120 section 3.2, RFC 4121 and MS-KILE 3.4.5.

use super::asn1::{EncryptedData, Typed};
use super::gss::{self, Context, ContextChecksum, ContextFlags};
use super::keys::allowed_key;
use super::message::{
    ApOptions, ApRep, ApReq, Authenticator, EncApRepPart, EncTicketPart, KrbError, Moment,
    authorization_data,
};
use super::pac::{self, Pac};
use super::{
    DomainUser, EncryptionType, Fault, Key, KeyUsage, LogonInfo, PacPolicy, Principal, Replay,
    SealedTicket, Service, ServiceKey, TicketFlags, UserAccountControl,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use frevo_wire::codec::Malformed;
use frevo_wire::dtyp::FileTime;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes from a cryptographic random source, for one AP-REP only.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct AcceptorEntropy {
    /// The acceptor's subkey; its type needs the first 16 or 32 bytes.
    pub subkey: [u8; 32],
    /// The confounder of the AP-REP.
    pub confounder: [u8; 16],
    /// The first sequence number.
    pub sequence: [u8; 4],
}

impl fmt::Debug for AcceptorEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcceptorEntropy(..)")
    }
}

/// The connection that a token comes through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carrier {
    /// The hash of the channel bindings, where the connection has any.
    pub(crate) bindings: Option<[u8; 16]>,
    /// True for DCE RPC, whose clients may send three messages without frames (MS-KILE 3.4.5.1).
    pub(crate) is_dce: bool,
}

/// The proof that a client of DCE RPC owes after the AP-REP.
#[derive(Debug)]
pub(crate) struct Owed {
    session_key: Key,
    sequence: u32,
}

impl Owed {
    /// Checks the client's own AP-REP, MS-KILE 3.4.5.1. It repeats the number of this end's AP-REP,
    /// which is new. Its time is not compared: impacket sends the present one.
    pub(crate) fn check(&self, token: &[u8]) -> Result<(), Fault> {
        let part = ApRep::parse(token)?.open(&self.session_key)?;
        let part = EncApRepPart::parse(&part)?;
        if part.sequence == Some(self.sequence) { Ok(()) } else { Err(Fault::WrongProof) }
    }
}

/// An accepted AP-REQ.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The proof that the client has still to send, with DCE RPC.
    pub(crate) owed: Option<Owed>,
    /// The token for the client, an AP-REP; None if it does not want one.
    pub(crate) reply: Option<Vec<u8>>,
    pub(crate) user: DomainUser,
    /// The established context, which signs messages.
    pub(crate) context: Context,
}

/// A refused AP-REQ.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) fault: Fault,
    /// The client that the ticket names. None if the ticket could not be decrypted.
    pub(crate) client: Option<Principal>,
    /// A token that tells the client the reason. None for reasons that a client cannot act on.
    pub(crate) reply: Option<Vec<u8>>,
}

/// The result of the checks of a ticket and its authenticator.
struct Proven {
    client: Principal,
    expires: FileTime,
    pac: Option<LogonInfo>,
    session_key: Key,
    subkey: Option<Key>,
    is_mutual: bool,
    is_dce: bool,
    time: Moment,
    sequence: u32,
}

/// The time of a check.
#[derive(Clone, Copy)]
struct Now {
    moment: Moment,
    skew: i64,
}

/// Judges a token with an AP-REQ in it.
pub(crate) fn accept(
    service: &Service,
    entropy: &AcceptorEntropy,
    token: &[u8],
    carrier: Carrier,
    now: FileTime,
) -> Result<Accepted, Refused> {
    let (seconds, nanoseconds) = now.to_unix();
    let moment = Moment { seconds, microseconds: nanoseconds / 1_000 };
    let now = Now { moment, skew: i64::from(service.policy.clock_skew) };
    let (mut client, mut server) = (None, None);
    let judge = Judge { service, carrier, now };
    let result = judge
        .read(token)
        .and_then(|request| {
            server = Some(request.ticket.server.clone());
            judge.check(&request, &mut client)
        })
        .map(|proven| proven.answered(entropy));
    result.map_err(|fault| {
        let reply = fault.code().zip(server).map(|(code, server)| {
            let data = (matches!(fault, Fault::Skew(_))).then_some(SKEW_RECOVERY);
            let error = KrbError { code, time: moment, client_realm: None, server, data };
            gss::framed(gss::KRB_ERROR, &error.encode())
        });
        Refused { fault, client, reply }
    })
}

/// KERB-ERROR-DATA with KERB_AP_ERR_TYPE_SKEW_RECOVERY, MS-KILE 2.2.2.
const SKEW_RECOVERY: &[u8] = &[0x30, 5, 0xa1, 3, 2, 1, 2];

struct Judge<'a> {
    service: &'a Service,
    carrier: Carrier,
    now: Now,
}

impl Judge<'_> {
    /// Reads the form of a token, before any key is used.
    fn read<'t>(&self, token: &'t [u8]) -> Result<ApReq<'t>, Fault> {
        let message = if self.carrier.is_dce && gss::is_frameless(token) {
            token
        } else {
            let (token_id, message) = gss::unframed(token)?;
            if token_id != gss::AP_REQ {
                return Err(Fault::Malformed("Kerberos token: no AP-REQ"));
            }
            message
        };
        let request = ApReq::parse(message)?;
        if request.options.contains(ApOptions::USE_SESSION_KEY) {
            return Err(Fault::UserToUser);
        }
        Ok(request)
    }

    fn check(&self, request: &ApReq<'_>, named: &mut Option<Principal>) -> Result<Proven, Fault> {
        let policy = &self.service.policy;
        let refused_type = |number| {
            let ticket = Box::new(SealedTicket::of(&request.ticket));
            Fault::EncryptionType { ticket, number }
        };
        let number = request.ticket.sealed.etype;
        let etype = EncryptionType::from_number(number)
            .filter(|etype| policy.etypes.contains(etype))
            .ok_or_else(|| refused_type(number))?;
        let (known, part) = self.service.keys.open(&request.ticket, etype)?;
        let ticket = EncTicketPart::parse(&part)?;
        *named = Some(ticket.client.clone());
        let session_key = allowed_key(ticket.key.number, ticket.key.bytes, &policy.etypes)?
            .ok_or_else(|| refused_type(ticket.key.number))?;
        let authenticator = session_key
            .decrypt(KeyUsage::AP_REQ_AUTHENTICATOR, request.authenticator.cipher)
            .filter(|_| request.authenticator.etype == session_key.etype().number())
            .ok_or(Fault::WrongAuthenticator)?;
        let authenticator = Authenticator::parse(&authenticator)?;
        let subkey = match authenticator.subkey {
            None => None,
            Some(key) => Some(
                allowed_key(key.number, key.bytes, &policy.etypes)?
                    .ok_or_else(|| refused_type(key.number))?,
            ),
        };
        let flags = self.context_flags(request, &authenticator)?;
        if authenticator.client != ticket.client {
            return Err(Fault::OtherClient);
        }
        self.check_mandatory(ticket.authorization_data)?;
        self.check_mandatory(authenticator.authorization_data)?;
        let end = self.check_times(&ticket, authenticator.time)?;
        let pac = self.check_pac(&ticket, known)?;
        let expires = self.check_kick_off(end, pac.as_ref())?;
        // The request is recorded in the replay cache last, so that the cache contains only valid
        // requests.
        let until = authenticator.time.seconds.saturating_add(self.now.skew);
        let replay = Replay::new(request.authenticator.cipher, &ticket.client, until);
        self.service.replays.record(replay, self.now.moment.seconds)?;
        Ok(Proven {
            client: ticket.client,
            expires,
            pac,
            session_key,
            subkey,
            is_mutual: flags.contains(ContextFlags::MUTUAL),
            is_dce: flags.contains(ContextFlags::DCE_STYLE),
            time: authenticator.time,
            sequence: authenticator.sequence.unwrap_or_default(),
        })
    }

    /// Returns the context flags that the client asks for, and checks the channel bindings. A
    /// client without the GSS-API's checksum states the flags in the options of its AP-REQ (MS-KILE
    /// 3.4.5).
    fn context_flags(
        &self,
        request: &ApReq<'_>,
        authenticator: &Authenticator<'_>,
    ) -> Result<ContextFlags, Fault> {
        let wanted = match authenticator.checksum {
            None if request.options.contains(ApOptions::MUTUAL_REQUIRED) => {
                ContextChecksum { bindings: [0; 16], flags: ContextFlags::MUTUAL }
            }
            None => ContextChecksum { bindings: [0; 16], flags: ContextFlags::EMPTY },
            Some(Typed { number: gss::CHECKSUM_TYPE, bytes }) => ContextChecksum::parse(bytes)?,
            Some(other) => return Err(Fault::ChecksumType(other.number)),
        };
        let is_dce = wanted.flags.contains(ContextFlags::DCE_STYLE);
        // MS-KILE 3.4.5.1: DCE style has three messages. The second one is the server's proof
        // (AP-REP), so the client must ask for mutual authentication.
        if is_dce && !(self.carrier.is_dce && wanted.flags.contains(ContextFlags::MUTUAL)) {
            return Err(Fault::DceStyle);
        }
        match self.carrier.bindings {
            Some(bindings) if bindings != wanted.bindings => Err(Fault::ChannelBindings),
            _ => Ok(wanted.flags),
        }
    }

    /// Checks the times of ticket and authenticator, RFC 4120 section 3.2.3. Returns the end of the
    /// ticket; for a ticket that ended within the clock skew, the end of that skew.
    fn check_times(&self, ticket: &EncTicketPart<'_>, client: Moment) -> Result<FileTime, Fault> {
        let Now { moment, skew } = self.now;
        let now = moment.seconds;
        if ticket.flags.contains(TicketFlags::INVALID) {
            return Err(Fault::NotYetValid(0));
        }
        let begins = ticket.start_time.unwrap_or(ticket.auth_time).saturating_sub(now);
        if begins > skew {
            return Err(Fault::NotYetValid(begins));
        }
        let ended = now.saturating_sub(ticket.end_time);
        if ended > skew {
            return Err(Fault::Expired(ended));
        }
        let ahead = client.seconds.saturating_sub(now);
        if ahead.saturating_abs() > skew {
            return Err(Fault::Skew(ahead));
        }
        let end = if ended < 0 { ticket.end_time } else { ticket.end_time.saturating_add(skew) };
        Ok(FileTime::from_unix(end, 0))
    }

    /// Returns the end of the session: that of the ticket, or the earlier time at which the domain
    /// controller wants the user disconnected (KickOffTime of MS-PAC 2.5).
    fn check_kick_off(&self, end: FileTime, pac: Option<&LogonInfo>) -> Result<FileTime, Fault> {
        let Some(kick_off) = pac.and_then(|pac| pac.kick_off) else { return Ok(end) };
        let over = self.now.moment.seconds.saturating_sub(kick_off.to_unix().0);
        if over >= 0 { Err(Fault::Expired(over)) } else { Ok(end.min(kick_off)) }
    }

    /// Refuses authorization data that a service must understand (RFC 4120 section 5.2.6): all but
    /// AD-IF-RELEVANT.
    ///
    /// Windows: unknown data never refuses a client (MS-KILE 3.1.5.5), so neither does it for the
    /// users of a domain.
    fn check_mandatory(&self, data: Option<&[u8]>) -> Result<(), Fault> {
        let Some(data) = data.filter(|_| self.service.policy.pac != PacPolicy::Required) else {
            return Ok(());
        };
        let kinds = authorization_data(data)?.into_iter().map(|(kind, _)| kind);
        match kinds.into_iter().find(|kind| *kind != pac::AD_IF_RELEVANT) {
            Some(kind) => Err(Fault::MandatoryData(kind)),
            None => Ok(()),
        }
    }

    /// Checks the PAC: MS-KILE 3.4.5.3.
    fn check_pac(
        &self,
        ticket: &EncTicketPart<'_>,
        known: &ServiceKey,
    ) -> Result<Option<LogonInfo>, Fault> {
        let policy = self.service.policy.pac;
        let found = match (policy, ticket.authorization_data) {
            (PacPolicy::Ignored, _) | (_, None) => None,
            (_, Some(data)) => pac::find(data)?,
        };
        let info = match found {
            None => None,
            Some(bytes) => {
                let pac = Pac::parse(&bytes)?;
                pac.verify(&known.key)?;
                pac.check_client(&ticket.client, ticket.auth_time)?;
                pac.logon_info()?
            }
        };
        match &info {
            None if policy == PacPolicy::Required => Err(Fault::MissingPac),
            // MS-KILE 3.1.5.4: a KDC that sends logon information has checked the transited realms.
            // Without this information, the ticket's flag must say so.
            None if ticket.has_transited
                && ticket.client.realm != known.principal.realm
                && !ticket.flags.contains(TicketFlags::TRANSITED_POLICY_CHECKED) =>
            {
                Err(Fault::Transited)
            }
            Some(info) if info.user_account_control.contains(UserAccountControl::DISABLED) => {
                Err(Fault::Disabled)
            }
            _ => Ok(info),
        }
    }
}

impl Proven {
    /// Makes the AP-REP and the context. MS-KILE 3.1.1.2: the subkey of the AP-REP is the session
    /// key of the application; with RC4 it is the client's own subkey.
    fn answered(self, entropy: &AcceptorEntropy) -> Accepted {
        let sequence = u32::from_be_bytes(entropy.sequence) & 0x3fff_ffff;
        let base = self.subkey.as_ref().unwrap_or(&self.session_key);
        let own = entropy.subkey.get(..base.etype().key_len()).unwrap_or_default();
        let own = Key::new(base.etype(), own)
            .filter(|key| self.is_mutual && key.etype() != EncryptionType::Rc4Hmac);
        let is_acceptor_subkey = own.is_some();
        let sent = own.as_ref().or(self.subkey.as_ref());
        let reply = self.is_mutual.then(|| {
            let subkey =
                sent.map(|key| Typed { number: key.etype().number(), bytes: key.expose() });
            let part = EncApRepPart { time: self.time, subkey, sequence: Some(sequence) };
            let part = zeroize::Zeroizing::new(part.encode());
            let cipher = self.session_key.encrypt(KeyUsage::AP_REP, &entropy.confounder, &part);
            let etype = self.session_key.etype().number();
            let sealed = EncryptedData { etype, kvno: None, cipher: &cipher };
            let message = ApRep(sealed).encode();
            if self.is_dce { message } else { gss::framed(gss::AP_REP, &message) }
        });
        let key = own.unwrap_or_else(|| base.clone());
        // Without an AP-REP the server sends no sequence number of its own, so both directions
        // begin with the client's.
        let acceptor = if self.is_mutual { sequence } else { self.sequence };
        let context = Context { key, is_acceptor_subkey, sequence: [self.sequence, acceptor] };
        let owed = self.is_dce.then(|| Owed { session_key: self.session_key.clone(), sequence });
        let user = DomainUser { principal: self.client, expires: self.expires, pac: self.pac };
        Accepted { owed, reply, user, context }
    }
}

impl From<Malformed> for Refused {
    fn from(fault: Malformed) -> Self {
        Self { fault: fault.into(), client: None, reply: None }
    }
}
