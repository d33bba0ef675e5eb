//! The client's end of a logon.

mod ntlm;

use crate::hash::same;
use crate::kerberos::gss::{Context, End};
use crate::kerberos::initiate::{self, Answer, Form, Sent};
use crate::kerberos::wrap::Wrap;
use crate::kerberos::{ErrorCode, Fault, InitiatorEntropy, ServiceTicket};
use crate::ntlm::Sealing;
use crate::ntlm::crypt::{Key, Mode};
use crate::spnego::{
    KERBEROS, MS_KERBEROS, MechList, NTLM, NegState, NegTokenInit, NegTokenResp, Oid,
};
use crate::{Mechanism, NtHash, Protection, Reason, Refusal, SessionKey};
use alloc::{string::String, sync::Arc, vec::Vec};
use core::{fmt, mem};
use frevo_wire::codec::Malformed;
use frevo_wire::dtyp::FileTime;
use ntlm::{Ntlm, Reply};
use zeroize::Zeroizing;

/// The secret of a logon. Neither form can be printed.
#[derive(Clone)]
pub enum Secret {
    /// The password, in the clear.
    Password(Zeroizing<String>),
    /// The NT hash of the password.
    NtHash(NtHash),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password(..)",
            Self::NtHash(_) => "NtHash(..)",
        })
    }
}

/// The user of a logon.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The user's name, without the domain.
    pub user: String,
    /// The user's domain; may be empty.
    pub domain: String,
    /// The password or its hash.
    pub secret: Secret,
}

/// The server that the client wants to reach.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// Service principal name: `cifs/` and the server's name as the user gave it. The password
    /// protects it on the way to the server, so that nobody can use the logon elsewhere. Empty if
    /// unknown.
    pub spn: String,
    /// Hash of the channel bindings of a TLS or QUIC connection
    /// ([`crate::target::channel_bindings_hash`]).
    pub channel_bindings: Option<[u8; 16]>,
    /// The client's own name; may be empty.
    pub workstation: String,
}

/// Bytes from a cryptographic random source, for one logon only.
#[derive(Clone)]
pub struct Entropy {
    /// ChallengeFromClient.
    pub client_challenge: [u8; 8],
    /// ExportedSessionKey, if the server lets the client choose it.
    pub session_key: Key,
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

/// The result of a token.
pub enum Step {
    /// Sends this token and expects another.
    Continue(Vec<u8>),
    /// The server accepts, and nothing contradicts that it knows the password. The proof is the
    /// signature of its response under this key (Session.SessionKey of MS-SMB2).
    Done(SessionKey),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Continue(token) => write!(f, "Continue({} bytes)", token.len()),
            Self::Done(_) => f.write_str("Done(..)"),
        }
    }
}

/// The client's side of one logon: Kerberos or NTLM in SPNEGO, or Kerberos alone.
///
/// With both, Kerberos comes first. NTLM is used only if the server chooses it, in a way that both
/// ends prove to each other by mechListMIC, or if it offers nothing else.
#[derive(Debug)]
pub struct Initiator {
    ntlm: Option<Ntlm>,
    kerberos: Option<Kerberos>,
    target: Target,
    mechanisms: MechList,
    /// True if the server must send mechListMIC.
    needs_mic: bool,
    /// True for DCE RPC.
    is_dce: bool,
    /// True for Kerberos without SPNEGO.
    is_bare: bool,
    proved_by: Option<Mechanism>,
    /// True if both ends have sent a mechListMIC.
    has_mic: bool,
    state: State,
}

#[derive(Debug)]
struct Kerberos {
    ticket: Arc<ServiceTicket>,
    entropy: InitiatorEntropy,
}

enum State {
    Fresh,
    /// An AP-REQ is sent; true if it is the second one.
    AwaitsProof(Sent, bool),
    AwaitsChallenge(Vec<u8>),
    /// The server's last token has not come yet.
    AwaitsEnd(Established),
    Done(Established),
    Ended,
}

/// The secrets that both sides share after they have authenticated each other.
enum Established {
    Ntlm(Reply),
    Kerberos(Context),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "Fresh",
            Self::AwaitsProof(..) => "AwaitsProof",
            Self::AwaitsChallenge(_) => "AwaitsChallenge",
            Self::AwaitsEnd(_) => "AwaitsEnd",
            Self::Done(_) => "Done",
            Self::Ended => "Ended",
        })
    }
}

impl Established {
    fn mic(&self, end: End, list: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ntlm(reply) => {
                let mode = if end == End::Initiator { Mode::Client } else { Mode::Server };
                reply.mic(mode, list).map(Vec::from)
            }
            Self::Kerberos(context) => Some(context.mic(end, list)),
        }
    }

    fn session_key(&self) -> SessionKey {
        SessionKey::new(match self {
            Self::Ntlm(reply) => reply.exported.to_vec(),
            Self::Kerberos(context) => context.key.expose().to_vec(),
        })
    }
}

impl Initiator {
    /// Begins a logon of `credentials` at `target` by NTLM.
    pub fn new(credentials: Credentials, target: Target, entropy: Entropy) -> Self {
        Self::offer(Some(Ntlm { credentials, entropy }), None, target)
    }

    /// Begins a logon with a ticket for `target`, by Kerberos only.
    pub fn with_ticket(
        ticket: Arc<ServiceTicket>,
        target: Target,
        entropy: InitiatorEntropy,
    ) -> Self {
        Self::offer(None, Some(Kerberos { ticket, entropy }), target)
    }

    /// Allows NTLM too, where the server does not want Kerberos.
    #[must_use]
    pub fn or_ntlm(self, credentials: Credentials, entropy: Entropy) -> Self {
        Self::offer(Some(Ntlm { credentials, entropy }), self.kerberos, self.target)
    }

    fn offer(ntlm: Option<Ntlm>, kerberos: Option<Kerberos>, target: Target) -> Self {
        let mut offered: Vec<Oid> = Vec::with_capacity(3);
        if kerberos.is_some() {
            offered.extend([MS_KERBEROS, KERBEROS]);
        }
        if ntlm.is_some() {
            offered.push(NTLM);
        }
        let mechanisms = MechList::of(&offered);
        let state = State::Fresh;
        Self {
            ntlm,
            kerberos,
            target,
            mechanisms,
            needs_mic: false,
            is_dce: false,
            is_bare: false,
            proved_by: None,
            has_mic: false,
            state,
        }
    }

    /// Logs on to DCE RPC, where Kerberos has three messages (MS-KILE 3.4.5.1).
    #[must_use]
    pub const fn with_dce_style(mut self) -> Self {
        self.is_dce = true;
        self
    }

    /// Sends the messages of Kerberos as they are, since the server knows the mechanism already. After
    /// the three messages of DCE RPC the server has nothing more to say: the last
    /// [`Step::Continue`] is the end of the logon.
    #[must_use]
    pub const fn without_spnego(mut self) -> Self {
        self.is_bare = true;
        self
    }

    /// Offers `mechanisms`, from which the server must choose that of this client.
    #[cfg(test)]
    pub(crate) fn offering(mut self, mechanisms: &[Oid]) -> Self {
        self.mechanisms = MechList::of(mechanisms);
        let own = if self.kerberos.is_some() { KERBEROS } else { NTLM };
        self.needs_mic = self.mechanisms.position(own) != Some(0);
        self
    }

    /// Returns the mechanism that authenticated both sides; None before the end of the logon.
    pub const fn mechanism(&self) -> Option<Mechanism> {
        self.proved_by
    }

    /// Returns the first token. `hint` is the security buffer of the NEGOTIATE response, which may
    /// be empty. `now` is the time as FILETIME ticks.
    ///
    /// # Errors
    /// If the hint is malformed or the server offers nothing that this client may use.
    pub fn initial_token(&mut self, hint: &[u8], now: u64) -> Result<Vec<u8>, Refusal> {
        if !matches!(mem::replace(&mut self.state, State::Ended), State::Fresh) {
            return Err(Reason::OutOfTurn.into());
        }
        if !hint.is_empty() {
            let offered = NegTokenInit::parse(hint)?.mechanisms;
            let has = |oid| offered.position(oid).is_some();
            if self.kerberos.is_some() && !has(KERBEROS) && !has(MS_KERBEROS) {
                self.kerberos = None;
                self.mechanisms = MechList::of(&[NTLM]);
            }
            if self.kerberos.is_none() && (self.ntlm.is_none() || !has(NTLM)) {
                return Err(Reason::NoCommonMechanism.into());
            }
        }
        let first = match &self.kerberos {
            Some(own) => {
                let form = self.form(false);
                let (token, sent) =
                    initiate::request(&own.ticket, &own.entropy, form, FileTime(now));
                self.state = State::AwaitsProof(sent, false);
                token
            }
            None => {
                let negotiate = Ntlm::negotiate();
                self.state = State::AwaitsChallenge(negotiate.clone());
                negotiate
            }
        };
        if self.is_bare {
            return if self.kerberos.is_some() {
                Ok(first)
            } else {
                Err(Reason::NoCommonMechanism.into())
            };
        }
        let init = NegTokenInit {
            mechanisms: self.mechanisms.clone(),
            token: (!self.needs_mic).then_some(&*first),
            mic: None,
        };
        Ok(init.encode())
    }

    /// Handles the server's next token. `now` is the time as FILETIME ticks.
    ///
    /// # Errors
    /// A [`Refusal`] ends the logon: the server rejects it, is too weak, or its token is malformed
    /// or wrongly signed.
    pub fn step(&mut self, token: &[u8], now: u64) -> Result<Step, Refusal> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Fresh | State::Done(_) | State::Ended => Err(Reason::OutOfTurn.into()),
            State::AwaitsProof(sent, is_second) if self.is_bare => {
                self.on_bare_proof(token, &sent, is_second)
            }
            State::AwaitsProof(sent, is_second) => self.on_proof(token, &sent, is_second, now),
            State::AwaitsChallenge(negotiate) => self.on_challenge(token, negotiate, now),
            State::AwaitsEnd(established) => self.on_end(token, established),
        }
    }

    /// Handles the answer to an AP-REQ.
    fn on_proof(
        &mut self,
        token: &[u8],
        sent: &Sent,
        is_second: bool,
        now: u64,
    ) -> Result<Step, Refusal> {
        let answer = NegTokenResp::parse(token)?;
        if answer.state == Some(NegState::REJECT) {
            return Err(Reason::Rejected.into());
        }
        match answer.mechanism {
            Some(oid) if oid == NTLM && self.ntlm.is_some() => {
                return self.switch_to_ntlm(&answer);
            }
            Some(oid) if oid != KERBEROS && oid != MS_KERBEROS => {
                return Err(Reason::NoCommonMechanism.into());
            }
            _ => {}
        }
        if answer.state == Some(NegState::REQUEST_MIC) {
            self.needs_mic = true;
        }
        let theirs = match answer.token {
            Some(theirs) => theirs,
            // The server chose Kerberos without having had a Kerberos token, so the client sends
            // its first request again.
            None if answer.mechanism.is_some() && !is_second => {
                return self.request_again(FileTime(now));
            }
            None => return Err(Malformed::new("responseToken: missing").into()),
        };
        match sent.answer(theirs).map_err(Reason::Kerberos)? {
            Answer::Proven(context) if sent.is_dce() => self.send_proof(sent, context),
            Answer::Proven(context) => {
                let established = Established::Kerberos(context);
                if answer.state == Some(NegState::ACCEPT_COMPLETED) {
                    self.check_mic(answer.mic, &established)?;
                    return Ok(self.done(established));
                }
                self.send_mic(answer.mic, established)
            }
            Answer::Skewed(_) if is_second => {
                Err(Reason::Kerberos(Fault::Peer(ErrorCode::SKEW.0)).into())
            }
            Answer::Skewed(time) => self.request_again(time),
        }
    }

    /// Handles the answer to an AP-REQ without SPNEGO.
    fn on_bare_proof(
        &mut self,
        token: &[u8],
        sent: &Sent,
        is_second: bool,
    ) -> Result<Step, Refusal> {
        match sent.answer(token).map_err(Reason::Kerberos)? {
            Answer::Proven(context) => {
                let proof = match (&self.kerberos, sent.is_dce()) {
                    (Some(own), true) => {
                        let [_, confounder] = &own.entropy.confounders;
                        Some(sent.proof(&context, confounder))
                    }
                    _ => None,
                };
                let done = self.done(Established::Kerberos(context));
                Ok(proof.map_or(done, Step::Continue))
            }
            Answer::Skewed(_) if is_second => {
                Err(Reason::Kerberos(Fault::Peer(ErrorCode::SKEW.0)).into())
            }
            Answer::Skewed(time) => self.request_again(time),
        }
    }

    /// Sends a second AP-REQ with the server's time, after the server reported that the clocks
    /// differ: MS-KILE 3.2.5.8.
    fn request_again(&mut self, time: FileTime) -> Result<Step, Refusal> {
        let own = self.kerberos.as_ref().ok_or(Reason::OutOfTurn)?;
        let form = self.form(true);
        let (token, sent) = initiate::request(&own.ticket, &own.entropy, form, time);
        self.state = State::AwaitsProof(sent, true);
        if self.is_bare {
            return Ok(Step::Continue(token));
        }
        Ok(Step::Continue(NegTokenResp { token: Some(&token), ..NegTokenResp::default() }.encode()))
    }

    const fn form(&self, is_second: bool) -> Form {
        Form { is_second, is_dce: self.is_dce, bindings: self.target.channel_bindings }
    }

    /// Sends the third message of DCE RPC, with mechListMIC.
    fn send_proof(&mut self, sent: &Sent, context: Context) -> Result<Step, Refusal> {
        let own = self.kerberos.as_ref().ok_or(Reason::OutOfTurn)?;
        let [_, confounder] = &own.entropy.confounders;
        let proof = sent.proof(&context, confounder);
        let established = Established::Kerberos(context);
        let mic = established.mic(End::Initiator, self.mechanisms.as_bytes());
        let message =
            NegTokenResp { token: Some(&proof), mic: mic.as_deref(), ..NegTokenResp::default() };
        let token = message.encode();
        // The token has a mechListMIC, so the server's last answer must have one, too.
        self.needs_mic = true;
        self.state = State::AwaitsEnd(established);
        Ok(Step::Continue(token))
    }

    /// Continues with NTLM, because the server declined Kerberos. mechListMIC must prove in the end
    /// that the server itself declined it.
    fn switch_to_ntlm(&mut self, answer: &NegTokenResp<'_>) -> Result<Step, Refusal> {
        if answer.token.is_some() {
            return Err(Reason::OutOfTurn.into());
        }
        self.needs_mic = true;
        self.send_negotiate(Ntlm::negotiate())
    }

    fn send_negotiate(&mut self, negotiate: Vec<u8>) -> Result<Step, Refusal> {
        let next = NegTokenResp { token: Some(&negotiate), ..NegTokenResp::default() };
        let token = next.encode();
        self.state = State::AwaitsChallenge(negotiate);
        Ok(Step::Continue(token))
    }

    /// Sends mechListMIC to a server that wants it after a logon by Kerberos.
    fn send_mic(
        &mut self,
        theirs: Option<&[u8]>,
        established: Established,
    ) -> Result<Step, Refusal> {
        self.needs_mic = theirs.is_none();
        if theirs.is_some() {
            self.check_mic(theirs, &established)?;
        }
        let own = established.mic(End::Initiator, self.mechanisms.as_bytes());
        let token = NegTokenResp { mic: own.as_deref(), ..NegTokenResp::default() }.encode();
        self.state = State::AwaitsEnd(established);
        Ok(Step::Continue(token))
    }

    fn on_challenge(
        &mut self,
        token: &[u8],
        negotiate: Vec<u8>,
        now: u64,
    ) -> Result<Step, Refusal> {
        let answer = NegTokenResp::parse(token)?;
        if answer.state == Some(NegState::REJECT) {
            return Err(Reason::Rejected.into());
        }
        if answer.mechanism.is_some_and(|oid| oid != NTLM) {
            return Err(Reason::NoCommonMechanism.into());
        }
        if answer.state == Some(NegState::REQUEST_MIC) {
            self.needs_mic = true;
        }
        let Some(challenge) = answer.token else {
            // An answer without a challenge must choose NTLM. The client then sends its
            // NEGOTIATE_MESSAGE.
            if answer.mechanism.is_none() {
                return Err(Reason::OutOfTurn.into());
            }
            return self.send_negotiate(negotiate);
        };
        let own = self.ntlm.as_ref().ok_or(Reason::OutOfTurn)?;
        let reply = own.authenticate(&self.target, &negotiate, challenge, now)?;
        let mic = reply.mic(Mode::Client, self.mechanisms.as_bytes());
        let next = NegTokenResp {
            token: Some(&reply.message),
            // Windows requires mechListMIC if the NTLM message has a MIC (MS-SPNG note <8>).
            // Otherwise it is sent only if the list must be protected.
            mic: mic.as_ref().map(<[u8; 16]>::as_slice).filter(|_| reply.has_mic || self.needs_mic),
            ..NegTokenResp::default()
        };
        let token = next.encode();
        self.state = State::AwaitsEnd(Established::Ntlm(reply));
        Ok(Step::Continue(token))
    }

    fn on_end(&mut self, token: &[u8], established: Established) -> Result<Step, Refusal> {
        // A server that need not send a mechListMIC may omit the last token, so an empty token
        // counts as a completed answer.
        let answer =
            if token.is_empty() { NegTokenResp::default() } else { NegTokenResp::parse(token)? };
        match answer.state {
            None | Some(NegState::ACCEPT_COMPLETED) => {}
            Some(NegState::REJECT) => return Err(Reason::Rejected.into()),
            Some(_) => return Err(Reason::OutOfTurn.into()),
        }
        self.check_mic(answer.mic, &established)?;
        Ok(self.done(established))
    }

    /// Checks the server's mechListMIC.
    fn check_mic(
        &mut self,
        theirs: Option<&[u8]>,
        established: &Established,
    ) -> Result<(), Reason> {
        self.has_mic |= theirs.is_some();
        match theirs {
            None if self.needs_mic => Err(Reason::MissingMechListMic),
            None => Ok(()),
            Some(theirs) => {
                let expected = established.mic(End::Acceptor, self.mechanisms.as_bytes());
                if expected.is_some_and(|expected| same(theirs, &expected)) {
                    Ok(())
                } else {
                    Err(Reason::WrongMechListMic)
                }
            }
        }
    }

    fn done(&mut self, established: Established) -> Step {
        self.proved_by = Some(match established {
            Established::Ntlm(_) => Mechanism::Ntlm,
            Established::Kerberos(_) => Mechanism::Kerberos,
        });
        let key = established.session_key();
        self.state = State::Done(established);
        Step::Done(key)
    }

    /// Returns the client's side of the protection of messages, after the end of the logon. `seed`
    /// are random bytes that no other logon has. None unless both sides agreed on it.
    pub fn protection(&self, seed: [u8; 16]) -> Option<Protection> {
        match &self.state {
            State::Done(Established::Ntlm(reply)) => {
                let sealing = Sealing::new(reply.flags, &reply.exported, Mode::Client)?;
                Some(Protection::ntlm(if self.has_mic { sealing.after_mic() } else { sealing }))
            }
            State::Done(Established::Kerberos(context)) => {
                let wrap = Wrap::new(context.clone(), End::Initiator, seed)?;
                Some(Protection::kerberos(if self.has_mic { wrap.after_mic() } else { wrap }))
            }
            _ => None,
        }
    }
}
