//! The server's end of a logon.

mod ntlm;
mod passed_on;

use crate::account::Accounts;
use crate::hash::same;
use crate::kerberos::accept::{Accepted, Carrier, Owed, Refused, accept};
use crate::kerberos::gss::{self, Context, End};
use crate::kerberos::wrap::Wrap;
use crate::kerberos::{AcceptorEntropy, DomainUser, LogonInfo, Service};
use crate::limits::MAX_TOKEN_LEN;
use crate::ntlm::crypt::{Key, Mode};
use crate::ntlm::{Flags, Sealing, is_ntlm};
use crate::spnego::{
    self, KERBEROS, MS_KERBEROS, MechList, NTLM, NegState, NegTokenInit, NegTokenResp, Oid,
};
use crate::{Mechanism, Protection, Reason, Refusal, SessionKey};
use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use core::{fmt, mem};
use frevo_wire::codec::Malformed;
use frevo_wire::dtyp::FileTime;
use ntlm::{Challenged, Judge, Proven};
use passed_on::Passed;
pub use passed_on::{DomainLogon, DomainQuestion};

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
    /// False to accept Kerberos only.
    pub ntlm: bool,
    /// Names of the domains whose users are not judged here: [`Step::Ask`] passes their proofs on.
    /// The account store is not asked about them.
    pub passed_on: Vec<String>,
    /// True to accept anonymous clients (MS-NLMP 3.2.5.1.2). They prove nothing, and everybody
    /// knows their session key.
    pub anonymous: bool,
    /// The clients without an account that become guests.
    pub guests: Guests,
}

/// The clients without an account that a server takes for guests. They prove nothing, and have no
/// secret key. A client with a wrong password of an account is never one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Guests {
    /// None.
    #[default]
    Nobody,
    /// Anonymous clients, and those that call themselves "guest".
    Named,
    /// These, and each client whose name no account has, as Samba's `map to guest = bad user`. It tells
    /// everybody which accounts exist.
    Unknown,
}

impl Guests {
    /// The name by which a client asks to be a guest.
    const NAME: &str = "guest";

    /// True for a client that calls itself `user` and has no account.
    fn takes(self, user: &str, accounts: &dyn Accounts) -> bool {
        let is_wanted = match self {
            Self::Nobody => false,
            Self::Named => user.eq_ignore_ascii_case(Self::NAME),
            Self::Unknown => true,
        };
        // An account of the user's own name, whatever the domain before or behind it, is no guest's.
        let bare = user.rsplit('\\').next().unwrap_or(user);
        let bare = bare.split('@').next().unwrap_or(bare);
        let is_known = |name: &str| {
            accounts.account(name, "").is_some() || accounts.membership(name).is_some()
        };
        is_wanted && !is_known(user) && !is_known(bare)
    }
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
            ntlm: true,
            passed_on: Vec::new(),
            anonymous: false,
            guests: Guests::Nobody,
        }
    }
}

/// The identity of a client that has logged on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The account's name as the account store spells it; a domain user's as the domain spells it.
    /// Empty for an anonymous client and for a guest.
    pub user: String,
    /// The name by which a guest has called itself, which proves nothing; empty for an anonymous
    /// client. None for a client that is no guest.
    pub guest: Option<Box<str>>,
    /// The domain: with NTLM in the client's spelling, with Kerberos as the KDC has it.
    pub domain: String,
    /// The client's own name, which proves nothing; empty with Kerberos.
    pub workstation: String,
    /// The facts that a KDC tells about the user. None with NTLM.
    pub kerberos: Option<Arc<DomainUser>>,
    /// The facts that a domain controller tells about a user of NTLM. None with Kerberos, and for
    /// accounts of this server.
    pub by_domain: Option<Arc<LogonInfo>>,
}

impl Identity {
    /// Returns the mechanism by which the client has proved its identity.
    pub const fn mechanism(&self) -> Mechanism {
        if self.kerberos.is_some() { Mechanism::Kerberos } else { Mechanism::Ntlm }
    }
}

/// The result of a token.
#[derive(Debug)]
pub enum Step {
    /// Sends this token and expects another (STATUS_MORE_PROCESSING_REQUIRED).
    Continue(Vec<u8>),
    /// The logon is refused. The token tells the client the reason, and the client may try once
    /// more.
    Retry(Vec<u8>, Refusal),
    /// A domain controller has to judge the proof; [`Acceptor::answer`] goes on with its answer.
    Ask(Box<DomainQuestion>),
    /// The client has proved its identity.
    Done(Done),
}

/// The result of a successful logon.
pub struct Done {
    /// The last token; empty if none is to be sent.
    pub token: Vec<u8>,
    /// The client's user, and facts about it.
    pub identity: Identity,
    /// The whole key of the authentication, of which the first 16 bytes are Session.SessionKey of
    /// MS-SMB2: ExportedSessionKey of NTLM, the subkey of Kerberos.
    pub session_key: SessionKey,
    /// True if a MIC protected the exchange.
    pub has_mic: bool,
    agreed: Agreed,
}

/// The agreed keys and flags.
enum Agreed {
    Ntlm {
        flags: Flags,
        exported: Key,
        /// True if both ends have sent a mechListMIC.
        has_mic: bool,
    },
    Kerberos(Context),
}

impl Done {
    /// Returns the server's side of NTLM's message sealing. None unless both sides agreed on it.
    pub fn sealing(&self) -> Option<Sealing> {
        let Agreed::Ntlm { flags, exported, .. } = &self.agreed else { return None };
        Sealing::new(*flags, exported, Mode::Server).filter(Sealing::can_seal)
    }

    /// Returns the server's side of the protection of messages. `seed` are random bytes that no
    /// other logon has. None unless both sides agreed on it.
    pub fn protection(&self, seed: [u8; 16]) -> Option<Protection> {
        match &self.agreed {
            Agreed::Ntlm { flags, exported, has_mic } => {
                let sealing = Sealing::new(*flags, exported, Mode::Server)?;
                Some(Protection::ntlm(if *has_mic { sealing.after_mic() } else { sealing }))
            }
            Agreed::Kerberos(context) => {
                let wrap = Wrap::new(context.clone(), End::Acceptor, seed)?;
                Some(Protection::kerberos(if self.has_mic { wrap.after_mic() } else { wrap }))
            }
        }
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

/// The user that a client wants to log on as by a password, in its spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The user.
    pub user: String,
    /// The domain.
    pub domain: String,
}

/// The server's side of one logon.
///
/// It is good for one exchange: a refusal ends it, so a challenge is never answered twice. It
/// accepts NTLM and Kerberos, bare and in SPNEGO; the client's first token decides.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<AcceptorConfig>,
    server_challenge: [u8; 8],
    kerberos: Option<Kerberos>,
    channel_bindings: Option<[u8; 16]>,
    /// True for DCE RPC.
    is_dce: bool,
    /// True to refuse SPNEGO.
    is_bare: bool,
    state: State,
}

#[derive(Debug)]
struct Kerberos {
    service: Arc<Service>,
    entropy: AcceptorEntropy,
    /// False once a client has been told why it was refused.
    may_retry: bool,
    /// True if the refused AP-REQ came in the first token of the exchange.
    was_first: bool,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each logon under way, which is soon over")]
enum State {
    AwaitsFirst,
    /// SPNEGO has chosen a mechanism; its first message has not come yet.
    AwaitsToken(Envelope),
    /// A challenge of NTLM is sent.
    AwaitsAuthenticate(Option<Envelope>, Challenged),
    /// A domain controller is being asked.
    AwaitsAnswer(Passed),
    /// Kerberos has authenticated the client, whose mechListMIC has not come yet.
    AwaitsMic(Envelope, Accepted),
    /// Kerberos has authenticated a client of DCE RPC, whose own AP-REP has not come yet.
    AwaitsProof(Option<Envelope>, Accepted, Owed),
    Ended,
}

/// The SPNEGO exchange around the messages of a mechanism.
#[derive(Debug)]
struct Envelope {
    mechanisms: MechList,
    chosen: Oid,
    /// True if the chosen mechanism is not the client's first choice. The client's mechListMIC must
    /// then prove that nobody removed a better one from the list.
    needs_mic: bool,
    /// True if the client has been told the chosen mechanism.
    has_answered: bool,
}

impl Envelope {
    fn mechanism(&self) -> Mechanism {
        if self.chosen == NTLM { Mechanism::Ntlm } else { Mechanism::Kerberos }
    }

    /// Encodes an answer. Only the first one has supportedMech (RFC 4178 4.2.2), in the client's
    /// spelling (MS-SPNG 3.2.5).
    fn answer(&mut self, state: NegState, token: Option<&[u8]>, mic: Option<&[u8]>) -> Vec<u8> {
        let mechanism = (!mem::replace(&mut self.has_answered, true)).then_some(self.chosen);
        NegTokenResp { state: Some(state), mechanism, token, mic }.encode()
    }
}

/// The last message of a client of NTLM.
#[derive(Clone, Copy)]
struct Client<'a> {
    /// AUTHENTICATE_MESSAGE
    token: &'a [u8],
    mech_list_mic: Option<&'a [u8]>,
    /// The time as FILETIME ticks.
    now: u64,
}

impl Acceptor {
    /// Begins an exchange with `server_challenge`: eight bytes from a cryptographic random source,
    /// never used before.
    pub const fn new(config: Arc<AcceptorConfig>, server_challenge: [u8; 8]) -> Self {
        let state = State::AwaitsFirst;
        let (kerberos, channel_bindings) = (None, None);
        let (is_dce, is_bare) = (false, false);
        Self { config, server_challenge, kerberos, channel_bindings, is_dce, is_bare, state }
    }

    /// Accepts Kerberos too.
    #[must_use]
    pub fn with_kerberos(mut self, service: Arc<Service>, entropy: AcceptorEntropy) -> Self {
        self.kerberos = Some(Kerberos { service, entropy, may_retry: true, was_first: true });
        self
    }

    /// Returns the keys and rules for tickets that the exchange has.
    pub fn service(&self) -> Option<&Arc<Service>> {
        self.kerberos.as_ref().map(|kerberos| &kerberos.service)
    }

    /// Takes other keys after [`Step::Retry`], in place of the client's second attempt: the next
    /// token that is handled is the refused one.
    pub fn take_keys(&mut self, service: Arc<Service>) {
        let Some(kerberos) = &mut self.kerberos else { return };
        (kerberos.service, kerberos.may_retry) = (service, true);
        if kerberos.was_first && matches!(self.state, State::AwaitsToken(_)) {
            self.state = State::AwaitsFirst;
        }
    }

    /// Makes the client prove that it is the other end of this TLS or QUIC connection (MS-NLMP
    /// 3.2.5.1.2, RFC 4121 4.1.1.2). [`crate::target::channel_bindings_hash`] computes `hash`.
    #[must_use]
    pub const fn with_channel_bindings(mut self, hash: [u8; 16]) -> Self {
        self.channel_bindings = Some(hash);
        self
    }

    /// Accepts the three messages of DCE RPC with Kerberos, MS-KILE 3.4.5.1.
    #[must_use]
    pub const fn with_dce_style(mut self) -> Self {
        self.is_dce = true;
        self
    }

    /// Refuses SPNEGO: the messages of a mechanism come as they are, since the peers have agreed on the
    /// mechanism in another way.
    #[must_use]
    pub const fn without_spnego(mut self) -> Self {
        self.is_bare = true;
        self
    }

    /// Returns the token for the NEGOTIATE response: NegTokenInit2 that offers the mechanisms.
    pub fn initial_token(kerberos: bool, ntlm: bool) -> Vec<u8> {
        let offered: &[Oid] = match (kerberos, ntlm) {
            (true, true) => &[MS_KERBEROS, KERBEROS, NTLM],
            (true, false) => &[MS_KERBEROS, KERBEROS],
            (false, _) => &[NTLM],
        };
        spnego::server_hint(&MechList::of(offered))
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
            State::AwaitsFirst
                if gss::is_kerberos(token) || (self.is_dce && gss::is_frameless(token)) =>
            {
                self.on_ap_req(token, None, None, now)
            }
            State::AwaitsFirst if self.is_bare => Err(Reason::NoCommonMechanism.into()),
            State::AwaitsFirst => self.on_init(token, now),
            State::AwaitsToken(envelope) => {
                let message = NegTokenResp::parse(token)?;
                let first = message.token.ok_or(Malformed::new("responseToken: missing"))?;
                self.on_first(first, envelope, message.mic, now)
            }
            State::AwaitsAuthenticate(Some(envelope), challenged) => {
                let message = NegTokenResp::parse(token)?;
                let last = message.token.ok_or(Malformed::new("responseToken: missing"))?;
                let client = Client { token: last, mech_list_mic: message.mic, now };
                self.on_authenticate(client, Some(envelope), challenged, accounts)
            }
            State::AwaitsAuthenticate(None, challenged) => {
                let client = Client { token, mech_list_mic: None, now };
                self.on_authenticate(client, None, challenged, accounts)
            }
            State::AwaitsMic(envelope, accepted) => {
                let mic = NegTokenResp::parse(token)?.mic;
                Ok(Step::Done(proven_list(&envelope, accepted, mic)?))
            }
            State::AwaitsProof(envelope, accepted, owed) => {
                proven_by_reply(token, envelope, accepted, &owed).map(Step::Done)
            }
            State::AwaitsAnswer(_) | State::Ended => Err(Reason::OutOfTurn.into()),
        }
    }

    /// Returns the user whose account the next token will be judged by, so that it can be asked for before
    /// [`Self::step`]. None for a token that needs none, or that is refused for its form whatever the
    /// account, and for users of domains whose proofs are passed on.
    pub fn claim(&self, token: &[u8]) -> Option<Claim> {
        let State::AwaitsAuthenticate(envelope, challenged) = &self.state else { return None };
        if token.len() > MAX_TOKEN_LEN {
            return None;
        }
        let token = match envelope {
            Some(_) => NegTokenResp::parse(token).ok()?.token?,
            None => token,
        };
        self.judge().claim(token, challenged)
    }

    /// Goes on with the answer to the question of [`Step::Ask`].
    ///
    /// # Errors
    /// A [`Refusal`] ends the exchange.
    pub fn answer(&mut self, answer: Result<DomainLogon, Reason>) -> Result<Step, Refusal> {
        let State::AwaitsAnswer(passed) = mem::replace(&mut self.state, State::Ended) else {
            return Err(Reason::OutOfTurn.into());
        };
        let Passed { envelope, mech_list_mic, token, challenged, account } = passed;
        let finish = |proven| by_ntlm(proven, envelope, mech_list_mic.as_deref());
        self.judge().judge_answer(&token, &challenged, answer, account, finish).map(Step::Done)
    }

    fn judge(&self) -> Judge<'_> {
        Judge { config: &self.config, channel_bindings: self.channel_bindings }
    }

    fn on_init(&mut self, token: &[u8], now: u64) -> Result<Step, Refusal> {
        let init = NegTokenInit::parse(token)?;
        let (position, chosen) = self.choose(&init.mechanisms).ok_or_else(|| {
            let has_ntlm = init.mechanisms.position(NTLM).is_some();
            if has_ntlm { Reason::NtlmOff } else { Reason::NoCommonMechanism }
        })?;
        let needs_mic = position != 0;
        let mechanisms = init.mechanisms;
        let mut envelope = Envelope { mechanisms, chosen, needs_mic, has_answered: false };
        // RFC 4178 4.2.1: the first token belongs to the first mechanism of the client's list.
        match init.token {
            Some(first) if !needs_mic => self.on_first(first, envelope, init.mic, now),
            // RFC 4178 5: the first token was not used, so there is no key yet and a MIC without a
            // token is wrong. A MIC with the token of a mechanism that was not chosen is ignored
            // (4.2.1).
            None if init.mic.is_some() => Err(Reason::WrongMechListMic.into()),
            _ => {
                let state =
                    if needs_mic { NegState::REQUEST_MIC } else { NegState::ACCEPT_INCOMPLETE };
                let answer = envelope.answer(state, None, None);
                self.state = State::AwaitsToken(envelope);
                Ok(Step::Continue(answer))
            }
        }
    }

    /// Returns the client's first mechanism that is accepted here, and its place in the list.
    fn choose(&self, offered: &MechList) -> Option<(usize, Oid)> {
        let accepted = [
            (MS_KERBEROS, self.kerberos.is_some()),
            (KERBEROS, self.kerberos.is_some()),
            (NTLM, self.config.ntlm),
        ];
        let accepted = accepted.into_iter().filter(|(_, is_accepted)| *is_accepted);
        accepted.filter_map(|(oid, _)| Some((offered.position(oid)?, oid))).min()
    }

    /// Handles the first token of the chosen mechanism.
    fn on_first(
        &mut self,
        token: &[u8],
        envelope: Envelope,
        mic: Option<&[u8]>,
        now: u64,
    ) -> Result<Step, Refusal> {
        match envelope.mechanism() {
            // With NTLM the first token comes before there is a key, so a MIC that comes with it
            // cannot be right.
            Mechanism::Ntlm if mic.is_some() => Err(Reason::WrongMechListMic.into()),
            Mechanism::Ntlm => self.challenge(token, Some(envelope), now),
            Mechanism::Kerberos => self.on_ap_req(token, Some(envelope), mic, now),
        }
    }

    fn challenge(
        &mut self,
        negotiate: &[u8],
        mut envelope: Option<Envelope>,
        now: u64,
    ) -> Result<Step, Refusal> {
        if !self.config.ntlm {
            return Err(Reason::NtlmOff.into());
        }
        let challenged = Challenged::new(&self.config, self.server_challenge, negotiate, now)?;
        let message = &challenged.message;
        let token = match &mut envelope {
            None => message.clone(),
            Some(envelope) => envelope.answer(NegState::ACCEPT_INCOMPLETE, Some(message), None),
        };
        self.state = State::AwaitsAuthenticate(envelope, challenged);
        Ok(Step::Continue(token))
    }

    fn on_authenticate(
        &mut self,
        client: Client<'_>,
        envelope: Option<Envelope>,
        challenged: Challenged,
        accounts: &dyn Accounts,
    ) -> Result<Step, Refusal> {
        let Client { token, mech_list_mic, now } = client;
        let passed = passed_on::question(token, &challenged, &self.judge(), accounts);
        if let Some((question, account)) = passed {
            let (token, mech_list_mic) = (token.to_vec(), mech_list_mic.map(Vec::from));
            let passed = Passed { envelope, mech_list_mic, token, challenged, account };
            self.state = State::AwaitsAnswer(passed);
            return Ok(Step::Ask(Box::new(question)));
        }
        let finish = |proven| by_ntlm(proven, envelope, mech_list_mic);
        self.judge().judge(token, &challenged, accounts, now, finish).map(Step::Done)
    }

    fn on_ap_req(
        &mut self,
        token: &[u8],
        envelope: Option<Envelope>,
        mic: Option<&[u8]>,
        now: u64,
    ) -> Result<Step, Refusal> {
        let kerberos = self.kerberos.as_mut().ok_or(Reason::NoCommonMechanism)?;
        let carrier = Carrier { bindings: self.channel_bindings, is_dce: self.is_dce };
        let judged = accept(&kerberos.service, &kerberos.entropy, token, carrier, FileTime(now));
        let mut accepted = match judged {
            Ok(accepted) => accepted,
            Err(refused) => return self.refuse(refused, envelope),
        };
        if let Some(owed) = accepted.owed.take() {
            let (state, token) = asks_for_proof(envelope, accepted, owed);
            self.state = state;
            return Ok(Step::Continue(token));
        }
        match envelope {
            Some(mut envelope) if envelope.needs_mic && mic.is_none() => {
                // RFC 4178 5: the server's (acceptor's) context is established first, so the server
                // sends its mechListMIC first.
                let own = accepted.context.mic(End::Acceptor, envelope.mechanisms.as_bytes());
                let reply = accepted.reply.take();
                let token =
                    envelope.answer(NegState::ACCEPT_INCOMPLETE, reply.as_deref(), Some(&own));
                self.state = State::AwaitsMic(envelope, accepted);
                Ok(Step::Continue(token))
            }
            envelope => {
                let sign = |end, list: &[u8]| Some(accepted.context.mic(end, list));
                let token = closing(envelope, accepted.reply.as_deref(), mic, sign)?;
                Ok(Step::Done(by_kerberos(accepted, token, mic.is_some())))
            }
        }
    }

    /// Refuses an AP-REQ. After the first refusal the client may send one more, if it was told the
    /// reason.
    fn refuse(&mut self, refused: Refused, envelope: Option<Envelope>) -> Result<Step, Refusal> {
        let mut refusal = Refusal::new(Reason::Kerberos(refused.fault));
        if let Some(client) = refused.client {
            refusal.user = client.components.join("/");
            refusal.domain = client.realm;
        }
        let was_first = envelope.as_ref().is_none_or(|envelope| !envelope.has_answered);
        let may_retry = self.kerberos.as_mut().is_some_and(|own| {
            own.was_first = was_first;
            mem::take(&mut own.may_retry)
        });
        let Some(error) = refused.reply.filter(|_| may_retry) else { return Err(refusal) };
        let token = match envelope {
            None => {
                self.state = State::AwaitsFirst;
                error
            }
            Some(mut envelope) => {
                let token = envelope.answer(NegState::ACCEPT_INCOMPLETE, Some(&error), None);
                self.state = State::AwaitsToken(envelope);
                token
            }
        };
        Ok(Step::Retry(token, refusal))
    }
}

/// Makes the token with the AP-REP, and the state in which the client's own is awaited.
fn asks_for_proof(
    mut envelope: Option<Envelope>,
    mut accepted: Accepted,
    owed: Owed,
) -> (State, Vec<u8>) {
    let reply = accepted.reply.take().unwrap_or_default();
    let token = match &mut envelope {
        None => reply,
        Some(envelope) => envelope.answer(NegState::ACCEPT_INCOMPLETE, Some(&reply), None),
    };
    (State::AwaitsProof(envelope, accepted, owed), token)
}

/// Checks the client's AP-REP, and its mechListMIC where there is one.
fn proven_by_reply(
    token: &[u8],
    envelope: Option<Envelope>,
    accepted: Accepted,
    owed: &Owed,
) -> Result<Done, Refusal> {
    let message = envelope.as_ref().map(|_| NegTokenResp::parse(token)).transpose()?;
    let (proof, mic) = match &message {
        None => (token, None),
        Some(message) => {
            (message.token.ok_or(Malformed::new("responseToken: missing"))?, message.mic)
        }
    };
    owed.check(proof).map_err(Reason::Kerberos)?;
    let sign = |end, list: &[u8]| Some(accepted.context.mic(end, list));
    let token = closing(envelope, None, mic, sign)?;
    Ok(by_kerberos(accepted, token, mic.is_some()))
}

/// Ends an exchange whose client had to send mechListMIC.
fn proven_list(
    envelope: &Envelope,
    accepted: Accepted,
    mic: Option<&[u8]>,
) -> Result<Done, Reason> {
    let mic = mic.ok_or(Reason::MissingMechListMic)?;
    if !accepted.context.verify(End::Initiator, envelope.mechanisms.as_bytes(), mic) {
        return Err(Reason::WrongMechListMic);
    }
    let state = Some(NegState::ACCEPT_COMPLETED);
    let token = NegTokenResp { state, ..NegTokenResp::default() }.encode();
    Ok(by_kerberos(accepted, token, true))
}

fn by_ntlm(
    proven: Proven,
    envelope: Option<Envelope>,
    mech_list_mic: Option<&[u8]>,
) -> Result<Done, Reason> {
    // A guest and the server have no key in common, so neither end can check a mechListMIC.
    let (envelope, mech_list_mic) = match proven.identity.guest {
        Some(_) => (envelope.map(|one| Envelope { needs_mic: false, ..one }), None),
        None => (envelope, mech_list_mic),
    };
    let sign = |mode, list: &[u8]| proven.mic(mode, list).map(Vec::from);
    let token = closing(envelope, None, mech_list_mic, |end, list| match end {
        End::Initiator => sign(Mode::Client, list),
        End::Acceptor => sign(Mode::Server, list),
    })?;
    Ok(Done {
        token,
        identity: proven.identity,
        session_key: SessionKey::new(proven.exported.to_vec()),
        has_mic: proven.has_mic,
        agreed: Agreed::Ntlm {
            flags: proven.flags,
            exported: proven.exported,
            has_mic: mech_list_mic.is_some(),
        },
    })
}

fn by_kerberos(accepted: Accepted, token: Vec<u8>, has_mic: bool) -> Done {
    let Accepted { user, context, .. } = accepted;
    let (name, domain) = match &user.pac {
        Some(pac) => (pac.user_name.clone(), pac.domain.clone()),
        None => (user.principal.components.join("/"), user.principal.realm.clone()),
    };
    let identity = Identity {
        user: name,
        guest: None,
        domain,
        workstation: String::new(),
        kerberos: Some(Arc::new(user)),
        by_domain: None,
    };
    let session_key = SessionKey::new(context.key.expose().to_vec());
    Done { token, identity, session_key, has_mic, agreed: Agreed::Kerberos(context) }
}

/// Checks the client's mechListMIC and makes the last token (RFC 4178 5) around `reply`.
fn closing(
    envelope: Option<Envelope>,
    reply: Option<&[u8]>,
    mech_list_mic: Option<&[u8]>,
    sign: impl Fn(End, &[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, Reason> {
    let Some(mut envelope) = envelope else { return Ok(reply.unwrap_or_default().to_vec()) };
    let list = envelope.mechanisms.as_bytes();
    let ours = match mech_list_mic {
        None if envelope.needs_mic => return Err(Reason::MissingMechListMic),
        None => None,
        Some(theirs) => {
            if !sign(End::Initiator, list).is_some_and(|expected| same(theirs, &expected)) {
                return Err(Reason::WrongMechListMic);
            }
            sign(End::Acceptor, list)
        }
    };
    Ok(envelope.answer(NegState::ACCEPT_COMPLETED, reply, ours.as_deref()))
}
