//! The server's end of a logon.

use crate::account::{Account, Accounts};
use crate::hash::same;
use crate::limits::MAX_TOKEN_LEN;
use crate::ntlm::crypt::{self, Key, Mode};
use crate::ntlm::message::{Authenticate, Challenge, Negotiate, NtResponse, NtlmV2};
use crate::ntlm::{AvFlags, AvId, Flags, Sealing, av_pair, is_ntlm};
use crate::spnego::{self, MechList, NTLM, NegState, NegTokenInit, NegTokenResp};
use crate::{NtHash, Reason, Refusal, target};
use alloc::{string::String, sync::Arc, vec::Vec};
use core::{fmt, mem};
use frevo_wire::codec::Malformed;

/// The server's names and requirements, shared by all its logons.
#[derive(Debug, Clone)]
pub struct AcceptorConfig {
    /// NetBIOS name of the server, upper case, at most 15 characters.
    pub server_name: String,
    /// NetBIOS name of the server's domain; a standalone server repeats its own name.
    pub domain: String,
    /// Fully qualified name of the server.
    pub dns_name: String,
    /// DNS name of the server's domain; empty without a domain.
    pub dns_domain: String,
    /// True to refuse a client that sends no MIC. An announced MIC is always checked, and the
    /// password protects the announcement, so a man in the middle cannot remove it; `true` adds the
    /// refusal of clients that never send one. It is off by default because Linux's cifs.ko sends
    /// none; smbclient and Windows do. With SMB 3.1.1 the pre-authentication hash covers these
    /// messages too.
    pub require_mic: bool,
    /// Names and addresses of this server for clients, besides `server_name` and `dns_name`. A
    /// client that names its target in MsvAvTargetName must name `cifs/` and one of these. `None`
    /// disables the check.
    pub allowed_targets: Option<Vec<String>>,
    /// True to refuse a client that does not name its target (cifs.ko does not). Needs
    /// `allowed_targets`.
    pub require_target_name: bool,
    /// True to accept anonymous clients (MS-NLMP 3.2.5.1.2). They prove nothing, and everybody
    /// knows their session key.
    pub anonymous: bool,
}

impl AcceptorConfig {
    /// Makes the configuration of a standalone server by this NetBIOS name, without target checks.
    pub fn standalone(server_name: &str) -> Self {
        Self {
            server_name: server_name.to_uppercase(),
            domain: server_name.to_uppercase(),
            dns_name: server_name.to_lowercase(),
            dns_domain: String::new(),
            require_mic: false,
            allowed_targets: None,
            require_target_name: false,
            anonymous: false,
        }
    }

    fn is_our_target(&self, spn: &str, listed: &[String]) -> bool {
        let own = [self.server_name.as_str(), self.dns_name.as_str()];
        target::is_ours(spn, own.into_iter().chain(listed.iter().map(String::as_str)))
    }

    /// Returns TargetInfo (MS-NLMP 3.2.5.1.1), without MsvAvFlags: a Windows client that finds an
    /// empty one computes its MIC over a changed message.
    fn target_info(&self, now: u64) -> Vec<u8> {
        let mut list = Vec::with_capacity(160);
        av_pair::put_text(&mut list, AvId::NB_DOMAIN_NAME, &self.domain);
        av_pair::put_text(&mut list, AvId::NB_COMPUTER_NAME, &self.server_name);
        av_pair::put_text(&mut list, AvId::DNS_DOMAIN_NAME, &self.dns_domain);
        av_pair::put_text(&mut list, AvId::DNS_COMPUTER_NAME, &self.dns_name);
        av_pair::put(&mut list, AvId::TIMESTAMP, &now.to_le_bytes());
        av_pair::put(&mut list, AvId::EOL, &[]);
        list
    }
}

/// The identity of a client that has logged on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The account's name in its own spelling; empty for an anonymous client.
    pub user: String,
    /// The domain in the client's spelling.
    pub domain: String,
    /// The client's own name, which proves nothing.
    pub workstation: String,
}

/// The result of a token.
#[derive(Debug)]
pub enum Step {
    /// Sends this token and expects another (STATUS_MORE_PROCESSING_REQUIRED).
    Continue(Vec<u8>),
    /// The client has proved its identity.
    Done(Done),
}

/// A successful logon.
pub struct Done {
    /// The last token; empty if none is to be sent.
    pub token: Vec<u8>,
    /// The client's identity.
    pub identity: Identity,
    /// ExportedSessionKey, which MS-SMB2 calls Session.SessionKey.
    pub session_key: Key,
    /// True if a MIC protected the exchange.
    pub has_mic: bool,
    /// The agreed flags.
    flags: Flags,
}

impl Done {
    /// Returns the server's end of the sealing of further messages, if the ends have agreed on it.
    pub fn sealing(&self) -> Option<Sealing> {
        Sealing::new(self.flags, &self.session_key, Mode::Server)
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done")
            .field("identity", &self.identity)
            .field("has_mic", &self.has_mic)
            .finish_non_exhaustive()
    }
}

/// The server's side of one logon.
///
/// It is good for one exchange: any refusal ends it, so a challenge is never answered twice. It
/// accepts bare NTLM and NTLM in SPNEGO; the client's first token decides.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<AcceptorConfig>,
    server_challenge: [u8; 8],
    channel_bindings: Option<[u8; 16]>,
    state: State,
}

#[derive(Debug)]
enum State {
    AwaitsFirst,
    /// SPNEGO has chosen NTLM; its first message has not come yet.
    AwaitsNegotiate(Envelope),
    AwaitsAuthenticate(Challenged),
    Ended,
}

/// The SPNEGO exchange around the NTLM messages.
#[derive(Debug)]
struct Envelope {
    mechanisms: MechList,
    /// NTLM was not the client's first choice. Somebody may have removed better ones from the list,
    /// so mechListMIC must prove that nobody did.
    needs_mic: bool,
    /// True if the client has been told the chosen mechanism.
    has_answered: bool,
}

#[derive(Debug)]
struct Challenged {
    envelope: Option<Envelope>,
    negotiate: Vec<u8>,
    challenge: Vec<u8>,
    flags: Flags,
}

struct Proven {
    identity: Identity,
    exported: Key,
    flags: Flags,
    has_mic: bool,
}

impl Acceptor {
    /// Begins an exchange with `server_challenge`: eight bytes from a cryptographic random source,
    /// never used before.
    pub const fn new(config: Arc<AcceptorConfig>, server_challenge: [u8; 8]) -> Self {
        Self { config, server_challenge, channel_bindings: None, state: State::AwaitsFirst }
    }

    /// Makes the client prove that it is the other end of this TLS or QUIC connection (MS-NLMP
    /// 3.2.5.1.2). [`target::channel_bindings_hash`] computes `hash`.
    #[must_use]
    pub const fn with_channel_bindings(mut self, hash: [u8; 16]) -> Self {
        self.channel_bindings = Some(hash);
        self
    }

    /// Returns the token for the NEGOTIATE response: NegTokenInit2 that offers NTLM.
    pub fn initial_token() -> Vec<u8> {
        spnego::server_hint(&MechList::of(&[NTLM]))
    }

    /// Handles the client's next token. `now` is the time as FILETIME ticks.
    ///
    /// # Errors
    /// A [`Refusal`] ends the exchange; later tokens are refused.
    pub fn step(
        &mut self,
        token: &[u8],
        now: u64,
        accounts: &dyn Accounts,
    ) -> Result<Step, Refusal> {
        let state = mem::replace(&mut self.state, State::Ended);
        if token.len() > MAX_TOKEN_LEN {
            return Err(Malformed::new("token: too long").into());
        }
        match state {
            State::AwaitsFirst if is_ntlm(token) => self.challenge(token, None, now),
            State::AwaitsFirst => self.on_init(token, now),
            State::AwaitsNegotiate(envelope) => {
                let message = NegTokenResp::parse(token)?;
                let negotiate = message.token.ok_or(Malformed::new("responseToken: missing"))?;
                self.challenge(negotiate, Some(envelope), now)
            }
            State::AwaitsAuthenticate(challenged) if challenged.envelope.is_some() => {
                let message = NegTokenResp::parse(token)?;
                let last = message.token.ok_or(Malformed::new("responseToken: missing"))?;
                self.on_authenticate(last, message.mic, &challenged, accounts)
            }
            State::AwaitsAuthenticate(challenged) => {
                self.on_authenticate(token, None, &challenged, accounts)
            }
            State::Ended => Err(Reason::OutOfTurn.into()),
        }
    }

    fn on_init(&mut self, token: &[u8], now: u64) -> Result<Step, Refusal> {
        let init = NegTokenInit::parse(token)?;
        let position = init.mechanisms.position(NTLM).ok_or(Reason::NoCommonMechanism)?;
        let needs_mic = position != 0;
        let mut envelope = Envelope { mechanisms: init.mechanisms, needs_mic, has_answered: false };
        // The first token belongs to the client's preferred mechanism (RFC 4178 4.2.1).
        match init.token {
            Some(negotiate) if !needs_mic => self.challenge(negotiate, Some(envelope), now),
            _ => {
                let state =
                    if needs_mic { NegState::REQUEST_MIC } else { NegState::ACCEPT_INCOMPLETE };
                envelope.has_answered = true;
                self.state = State::AwaitsNegotiate(envelope);
                let answer = NegTokenResp {
                    state: Some(state),
                    mechanism: Some(NTLM),
                    ..NegTokenResp::default()
                };
                Ok(Step::Continue(answer.encode()))
            }
        }
    }

    fn challenge(
        &mut self,
        negotiate: &[u8],
        mut envelope: Option<Envelope>,
        now: u64,
    ) -> Result<Step, Refusal> {
        let offered = Negotiate::parse(negotiate)?.flags;
        if !offered.contains(Flags::UNICODE) {
            return Err(Reason::TooWeak("no Unicode").into());
        }
        let flags = offered.chosen_by_server();
        let target_info = self.config.target_info(now);
        let message = Challenge {
            flags,
            server_challenge: self.server_challenge,
            target_name: self.config.server_name.clone(),
            target_info: &target_info,
        };
        let challenge = message.encode();
        let token = match &mut envelope {
            None => challenge.clone(),
            Some(envelope) => {
                // Only the first answer has supportedMech (RFC 4178 4.2.2).
                let mechanism = (!mem::replace(&mut envelope.has_answered, true)).then_some(NTLM);
                let state = Some(NegState::ACCEPT_INCOMPLETE);
                NegTokenResp { state, mechanism, token: Some(&challenge), mic: None }.encode()
            }
        };
        let negotiate = negotiate.to_vec();
        self.state =
            State::AwaitsAuthenticate(Challenged { envelope, negotiate, challenge, flags });
        Ok(Step::Continue(token))
    }

    fn on_authenticate(
        &self,
        token: &[u8],
        mech_list_mic: Option<&[u8]>,
        challenged: &Challenged,
        accounts: &dyn Accounts,
    ) -> Result<Step, Refusal> {
        let (user, domain) = Authenticate::claim(token);
        let found = accounts.account(&user, &domain);
        let account = String::from(found.as_ref().map_or(&*user, |account| &*account.name));
        let named = |reason| Refusal { reason, user, domain, account };
        match self.judge(token, mech_list_mic, challenged, found) {
            Ok(done) => Ok(Step::Done(done)),
            Err(reason) => Err(named(reason)),
        }
    }

    /// Judges an AUTHENTICATE_MESSAGE, MS-NLMP 3.2.5.1.2. The form of every field is checked before
    /// any secret is used: a refusal for the form tells nothing about the password.
    fn judge(
        &self,
        token: &[u8],
        mech_list_mic: Option<&[u8]>,
        challenged: &Challenged,
        found: Option<Account>,
    ) -> Result<Done, Reason> {
        let malformed = |fault: Malformed| Reason::Malformed(fault.what);
        let message = Authenticate::parse(token).map_err(malformed)?;
        let flags = challenged.flags & message.flags;
        if message.is_anonymous() {
            let proven = self.nobody(&message, flags)?;
            return finished(proven, challenged, mech_list_mic);
        }
        let sent_key = sent_key(flags, message.session_key)?;
        let form = Form::of(&message).map_err(malformed)??;
        let (proven, verdict) = self.verify(&message, form, (flags, sent_key), challenged, found);
        let done = finished(proven, challenged, mech_list_mic);
        verdict.and(done)
    }

    /// Makes every check of the response, and returns the first failure. All checks are made
    /// whatever the first one gives: neither the answer nor the time tells a right password from a
    /// wrong one.
    fn verify(
        &self,
        message: &Authenticate<'_>,
        form: Form<'_>,
        (flags, sent_key): (Flags, Option<[u8; 16]>),
        challenged: &Challenged,
        found: Option<Account>,
    ) -> (Proven, Result<(), Reason>) {
        let (base, is_right) = self.prove(message, form.response, found.as_ref());
        let exported = exported_key(&base, sent_key);
        let password = match &found {
            None => Err(Reason::UnknownUser),
            Some(_) if !is_right => Err(Reason::WrongPassword),
            Some(account) if !account.is_enabled => Err(Reason::Disabled),
            Some(_) => Ok(()),
        };
        let has_mic = form.mic.is_some();
        let mic = match &form.mic {
            Some((sent, cleared)) => {
                let (negotiate, challenge) = (&challenged.negotiate, &challenged.challenge);
                let expected = crypt::mic(&exported, negotiate, challenge, cleared);
                if same(sent, &expected) { Ok(()) } else { Err(Reason::WrongMic) }
            }
            None if self.config.require_mic => Err(Reason::MissingMic),
            None => Ok(()),
        };
        let target = self.check_target(form.target);
        let bindings = if self.channel_bindings.is_some() && form.bindings != self.channel_bindings
        {
            Err(Reason::WrongChannelBindings)
        } else {
            Ok(())
        };
        let identity = Identity {
            user: found.map_or_else(String::new, |account| account.name),
            domain: message.domain.clone(),
            workstation: message.workstation.clone(),
        };
        let proven = Proven { identity, exported, flags, has_mic };
        (proven, password.and(mic).and(target).and(bindings))
    }

    /// Returns the keys of an anonymous client, MS-NLMP 3.2.5.1.2: SessionBaseKey is Z(16).
    fn nobody(&self, message: &Authenticate<'_>, flags: Flags) -> Result<Proven, Reason> {
        if !self.config.anonymous || self.channel_bindings.is_some() {
            return Err(Reason::Anonymous);
        }
        let identity = Identity {
            user: String::new(),
            domain: message.domain.clone(),
            workstation: message.workstation.clone(),
        };
        let exported = exported_key(&Key::default(), sent_key(flags, message.session_key)?);
        Ok(Proven { identity, exported, flags, has_mic: false })
    }

    /// Returns SessionBaseKey, and whether NTProofStr is right. The work is equal for an account
    /// that does not exist.
    fn prove(
        &self,
        message: &Authenticate<'_>,
        response: &NtlmV2<'_>,
        found: Option<&Account>,
    ) -> (Key, bool) {
        // Deviation: the client's TimeStamp is not compared with the server's clock, as MS-NLMP
        // 3.2.5.1.2 suggests with a tolerance of 36 hours. The challenge is fresh and answered
        // once, so no response is old, and devices without a clock can log on.
        let nobody = NtHash::from_bytes([0; 16]);
        let hash = found.map_or(&nobody, |account| &account.nt_hash);
        // MS-NLMP 3.2.5.1.2: some clients send a domain but compute the response without it.
        let [as_sent, without] = [message.domain.as_str(), ""].map(|domain| {
            let key = crypt::response_key(hash, &message.user, domain);
            let proof = crypt::proof(&key, &self.server_challenge, response.temp);
            (crypt::session_base_key(&key, &proof), same(&proof, &response.proof))
        });
        if as_sent.1 { as_sent } else { without }
    }

    fn check_target(&self, target: Option<String>) -> Result<(), Reason> {
        let Some(listed) = &self.config.allowed_targets else { return Ok(()) };
        match target {
            Some(spn) if self.config.is_our_target(&spn, listed) => Ok(()),
            Some(spn) => Err(Reason::WrongTarget(spn)),
            None if self.config.require_target_name => Err(Reason::MissingTarget),
            None => Ok(()),
        }
    }
}

/// The fields of a well-formed response.
struct Form<'a> {
    response: &'a NtlmV2<'a>,
    /// The MIC, and the message with zeros in its place.
    mic: Option<([u8; 16], Vec<u8>)>,
    target: Option<String>,
    bindings: Option<[u8; 16]>,
}

impl<'a> Form<'a> {
    /// Reads all fields that are checked later. The outer error means a malformed message, the
    /// inner one a response of an unsupported version.
    fn of(message: &'a Authenticate<'a>) -> Result<Result<Self, Reason>, Malformed> {
        let response = match &message.nt_response {
            NtResponse::V2(response) => response,
            NtResponse::Absent if message.lm_response.iter().all(|&b| b == 0) => {
                return Ok(Err(Reason::NoResponse));
            }
            NtResponse::Absent | NtResponse::V1 => return Ok(Err(Reason::NtlmV1)),
        };
        let av_flags = response.av_pairs.flags()?;
        let bindings = response.av_pairs.channel_bindings()?;
        let target = response.av_pairs.target_name()?;
        // A name that the client itself does not trust counts as missing.
        let target = target.filter(|_| !av_flags.contains(AvFlags::UNTRUSTED_TARGET));
        let mic = av_flags.contains(AvFlags::MIC).then(|| message.mic()).transpose()?;
        Ok(Ok(Self { response, mic, target, bindings }))
    }
}

/// Returns EncryptedRandomSessionKey if the flags ask for one (MS-NLMP 3.2.5.1.2).
fn sent_key(flags: Flags, sent: &[u8]) -> Result<Option<[u8; 16]>, Reason> {
    if !flags.contains(Flags::KEY_EXCH) {
        return Ok(None);
    }
    match <[u8; 16]>::try_from(sent) {
        Ok(sent) => Ok(Some(sent)),
        // Without SIGN or SEAL the specification sends no key; some clients do.
        Err(_) if sent.is_empty() && !flags.intersects(Flags::SIGN | Flags::SEAL) => Ok(None),
        Err(_) => Err(Reason::Malformed("EncryptedRandomSessionKey")),
    }
}

/// Returns ExportedSessionKey (MS-NLMP 3.2.5.1.2).
fn exported_key(base: &Key, sent: Option<[u8; 16]>) -> Key {
    sent.map_or_else(|| base.clone(), |sent| crypt::rc4_key(base, &sent))
}

/// Returns the logon, with the last token if SPNEGO was used.
fn finished(
    proven: Proven,
    challenged: &Challenged,
    mech_list_mic: Option<&[u8]>,
) -> Result<Done, Reason> {
    let token = match &challenged.envelope {
        None => Vec::new(),
        Some(envelope) => closing(envelope, mech_list_mic, &proven)?,
    };
    let Proven { identity, exported, has_mic, flags } = proven;
    Ok(Done { token, identity, session_key: exported, has_mic, flags })
}

/// Checks the client's mechListMIC and makes the last token (RFC 4178 5).
fn closing(
    envelope: &Envelope,
    mech_list_mic: Option<&[u8]>,
    proven: &Proven,
) -> Result<Vec<u8>, Reason> {
    let list = envelope.mechanisms.as_bytes();
    let sign = |mode| crypt::first_signature(proven.flags, &proven.exported, mode, list);
    let ours = match mech_list_mic {
        None if envelope.needs_mic => return Err(Reason::MissingMechListMic),
        None => None,
        Some(theirs) => {
            if !sign(Mode::Client).is_some_and(|expected| same(theirs, &expected)) {
                return Err(Reason::WrongMechListMic);
            }
            sign(Mode::Server)
        }
    };
    let mic = ours.as_ref().map(<[u8; 16]>::as_slice);
    let state = Some(NegState::ACCEPT_COMPLETED);
    Ok(NegTokenResp { state, mic, ..NegTokenResp::default() }.encode())
}
