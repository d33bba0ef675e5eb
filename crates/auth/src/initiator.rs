//! The client's end of a logon.

use crate::hash::same;
use crate::ntlm::crypt::{self, Key, Mode};
use crate::ntlm::message::{self, AuthenticateParts, Challenge, Negotiate};
use crate::ntlm::{AvFlags, AvId, AvPairs, Flags, av_pair};
use crate::spnego::{MechList, NTLM, NegState, NegTokenInit, NegTokenResp};
use crate::{NtHash, Reason, Refusal};
use alloc::{string::String, vec::Vec};
use core::{fmt, mem};
use frevo_wire::codec::Malformed;
use zeroize::Zeroizing;

/// The secret of a logon. Neither form can be printed.
#[derive(Clone)]
pub enum Secret {
    /// The password.
    Password(Zeroizing<String>),
    /// The password's hash.
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
    /// The user's name.
    pub user: String,
    /// The user's domain; may be empty.
    pub domain: String,
    /// The user's secret.
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
    Done(Key),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Continue(token) => write!(f, "Continue({} bytes)", token.len()),
            Self::Done(_) => f.write_str("Done(..)"),
        }
    }
}

/// The client's side of one logon: NTLM in SPNEGO.
#[derive(Debug)]
pub struct Initiator {
    credentials: Credentials,
    target: Target,
    entropy: Entropy,
    mechanisms: MechList,
    /// True if the server must send mechListMIC.
    needs_mic: bool,
    state: State,
}

enum State {
    Fresh,
    AwaitsChallenge { negotiate: Vec<u8> },
    AwaitsEnd { flags: Flags, exported: Key },
    Ended,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh => "Fresh",
            Self::AwaitsChallenge { .. } => "AwaitsChallenge",
            Self::AwaitsEnd { .. } => "AwaitsEnd",
            Self::Ended => "Ended",
        })
    }
}

/// Flags that a server must agree to: without them NTLM protects too little.
const LEAST: Flags =
    Flags(Flags::UNICODE.0 | Flags::EXTENDED_SESSIONSECURITY.0 | Flags::TARGET_INFO.0);

impl Initiator {
    /// Begins a logon of `credentials` at `target`.
    pub fn new(credentials: Credentials, target: Target, entropy: Entropy) -> Self {
        let mechanisms = MechList::of(&[NTLM]);
        Self { credentials, target, entropy, mechanisms, needs_mic: false, state: State::Fresh }
    }

    /// Offers `mechanisms`, among which the server must find NTLM.
    #[cfg(test)]
    pub(crate) fn offering(mut self, mechanisms: &[crate::spnego::Oid]) -> Self {
        self.mechanisms = MechList::of(mechanisms);
        self.needs_mic = self.mechanisms.position(NTLM) != Some(0);
        self
    }

    /// Returns the first token. `hint` is the security buffer of the NEGOTIATE response, which may
    /// be empty.
    ///
    /// # Errors
    /// If the hint is malformed or the server does not offer NTLM.
    pub fn initial_token(&mut self, hint: &[u8]) -> Result<Vec<u8>, Refusal> {
        if !matches!(mem::replace(&mut self.state, State::Ended), State::Fresh) {
            return Err(Reason::OutOfTurn.into());
        }
        if !hint.is_empty() && NegTokenInit::parse(hint)?.mechanisms.position(NTLM).is_none() {
            return Err(Reason::NoCommonMechanism.into());
        }
        let negotiate = Negotiate { flags: Flags::SUPPORTED }.encode();
        let init = NegTokenInit {
            mechanisms: self.mechanisms.clone(),
            token: (!self.needs_mic).then_some(&*negotiate),
            mic: None,
        };
        let token = init.encode();
        self.state = State::AwaitsChallenge { negotiate };
        Ok(token)
    }

    /// Handles the server's next token. `now` is the time as FILETIME ticks.
    ///
    /// # Errors
    /// A [`Refusal`] ends the logon: the server rejects it, is too weak, or its token is malformed
    /// or wrongly signed.
    pub fn step(&mut self, token: &[u8], now: u64) -> Result<Step, Refusal> {
        match mem::replace(&mut self.state, State::Ended) {
            State::Fresh | State::Ended => Err(Reason::OutOfTurn.into()),
            State::AwaitsChallenge { negotiate } => self.on_challenge(token, negotiate, now),
            State::AwaitsEnd { flags, exported } => self.on_end(token, flags, exported),
        }
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
            // The server chose NTLM without having received a message of it.
            if answer.mechanism.is_none() {
                return Err(Reason::OutOfTurn.into());
            }
            let next = NegTokenResp { token: Some(&negotiate), ..NegTokenResp::default() };
            let token = next.encode();
            self.state = State::AwaitsChallenge { negotiate };
            return Ok(Step::Continue(token));
        };
        let reply = self.authenticate(&negotiate, challenge, now)?;
        let list = self.mechanisms.as_bytes();
        let mic = crypt::first_signature(reply.flags, &reply.exported, Mode::Client, list);
        let next = NegTokenResp {
            token: Some(&reply.message),
            // Windows wants mechListMIC from a client whose NTLM message has a MIC (MS-SPNG note
            // <8>); without a MIC it is sent only if necessary.
            mic: mic.as_ref().map(<[u8; 16]>::as_slice).filter(|_| reply.has_mic || self.needs_mic),
            ..NegTokenResp::default()
        };
        let token = next.encode();
        self.state = State::AwaitsEnd { flags: reply.flags, exported: reply.exported };
        Ok(Step::Continue(token))
    }

    /// Makes the AUTHENTICATE_MESSAGE, MS-NLMP 3.1.5.1.2.
    fn authenticate(
        &self,
        negotiate: &[u8],
        challenge_bytes: &[u8],
        now: u64,
    ) -> Result<Reply, Refusal> {
        let challenge = Challenge::parse(challenge_bytes)?;
        if !challenge.flags.contains(LEAST) {
            return Err(
                Reason::TooWeak("no extended session security or target information").into()
            );
        }
        let flags = challenge.flags & Flags::SUPPORTED;
        let theirs = AvPairs::parse(challenge.target_info)?;
        let timestamp = theirs.timestamp()?;
        let has_mic = timestamp.is_some();

        let Credentials { user, domain, secret } = &self.credentials;
        let key = match secret {
            Secret::Password(password) => {
                crypt::response_key(&NtHash::from_password(password), user, domain)
            }
            Secret::NtHash(hash) => crypt::response_key(hash, user, domain),
        };
        let temp = self.temp(&theirs, timestamp.unwrap_or(now), has_mic)?;
        let proof = crypt::proof(&key, &challenge.server_challenge, &temp);
        let nt_response = [&proof[..], &temp].concat();
        let client_challenge = &self.entropy.client_challenge;
        let lm_response = if has_mic {
            [0; 24]
        } else {
            crypt::lm_v2(&key, &challenge.server_challenge, client_challenge)
        };
        let base = crypt::session_base_key(&key, &proof);
        let (exported, session_key) = if flags.contains(Flags::KEY_EXCH) {
            let exported = self.entropy.session_key.clone();
            let sent = crypt::rc4_key(&base, &exported);
            (exported, sent.to_vec())
        } else {
            (base, Vec::new())
        };
        let parts = AuthenticateParts {
            flags,
            lm_response: &lm_response,
            nt_response: &nt_response,
            domain,
            user,
            workstation: &self.target.workstation,
            session_key: &session_key,
        };
        let mut bytes = parts.encode();
        if has_mic {
            let mic = crypt::mic(&exported, negotiate, challenge_bytes, &bytes);
            message::set_mic(&mut bytes, &mic);
        }
        Ok(Reply { message: bytes, flags, exported, has_mic })
    }

    /// Returns `temp` of MS-NLMP 3.3.2, with the AV_PAIRs of both sides.
    fn temp(&self, theirs: &AvPairs<'_>, time: u64, has_mic: bool) -> Result<Vec<u8>, Malformed> {
        let mut temp = Vec::with_capacity(256);
        temp.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
        temp.extend_from_slice(&time.to_le_bytes());
        temp.extend_from_slice(&self.entropy.client_challenge);
        temp.extend_from_slice(&[0; 4]);
        // The client sets these three, whatever the server sent.
        let ours = [AvId::FLAGS, AvId::CHANNEL_BINDINGS, AvId::TARGET_NAME];
        for (id, value) in theirs.iter().filter(|(id, _)| !ours.contains(id)) {
            av_pair::put(&mut temp, id, value);
        }
        let mut flags = theirs.flags()? & AvFlags::CONSTRAINED;
        if has_mic {
            flags |= AvFlags::MIC;
        }
        if !flags.is_empty() {
            av_pair::put(&mut temp, AvId::FLAGS, &flags.0.to_le_bytes());
        }
        let bindings = self.target.channel_bindings.unwrap_or_default();
        av_pair::put(&mut temp, AvId::CHANNEL_BINDINGS, &bindings);
        av_pair::put_text(&mut temp, AvId::TARGET_NAME, &self.target.spn);
        av_pair::put(&mut temp, AvId::EOL, &[]);
        temp.extend_from_slice(&[0; 4]);
        Ok(temp)
    }

    fn on_end(&self, token: &[u8], flags: Flags, exported: Key) -> Result<Step, Refusal> {
        // A server that has nothing to add may leave the token out, unless it must send
        // mechListMIC.
        let answer =
            if token.is_empty() { NegTokenResp::default() } else { NegTokenResp::parse(token)? };
        match answer.state {
            None | Some(NegState::ACCEPT_COMPLETED) => {}
            Some(NegState::REJECT) => return Err(Reason::Rejected.into()),
            Some(_) => return Err(Reason::OutOfTurn.into()),
        }
        match answer.mic {
            None if self.needs_mic => return Err(Reason::MissingMechListMic.into()),
            None => {}
            Some(theirs) => {
                let list = self.mechanisms.as_bytes();
                let expected = crypt::first_signature(flags, &exported, Mode::Server, list);
                if !expected.is_some_and(|expected| same(theirs, &expected)) {
                    return Err(Reason::WrongMechListMic.into());
                }
            }
        }
        Ok(Step::Done(exported))
    }
}

struct Reply {
    message: Vec<u8>,
    flags: Flags,
    exported: Key,
    has_mic: bool,
}
