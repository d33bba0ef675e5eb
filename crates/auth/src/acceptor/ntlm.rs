//! The server's end of NTLM: MS-NLMP 3.2.5.1.2.

use super::passed_on::DomainLogon;
use super::{AcceptorConfig, Claim, Guests, Identity};
use crate::account::{Account, Accounts};
use crate::hash::same;
use crate::kerberos::LogonInfo;
use crate::ntlm::crypt::{self, Key, Mode};
use crate::ntlm::message::{Authenticate, Challenge, Negotiate, NtResponse, NtlmV2};
use crate::ntlm::{AvFlags, AvId, Flags, av_pair};
use crate::{AccountFault, NtHash, Reason, Refusal, target};
use alloc::{string::String, sync::Arc, vec::Vec};
use core::mem;
use frevo_wire::codec::Malformed;
use frevo_wire::dtyp::FileTime;

impl AcceptorConfig {
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

/// A challenge that has been sent.
#[derive(Debug)]
pub(super) struct Challenged {
    server_challenge: [u8; 8],
    negotiate: Vec<u8>,
    /// CHALLENGE_MESSAGE
    pub(super) message: Vec<u8>,
    flags: Flags,
}

/// A client that has proved its password.
pub(super) struct Proven {
    pub(super) identity: Identity,
    pub(super) exported: Key,
    pub(super) flags: Flags,
    pub(super) has_mic: bool,
}

/// The demands on an AUTHENTICATE_MESSAGE.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) config: &'a AcceptorConfig,
    pub(super) channel_bindings: Option<[u8; 16]>,
}

impl Challenged {
    /// Answers a NEGOTIATE_MESSAGE.
    pub(super) fn new(
        config: &AcceptorConfig,
        server_challenge: [u8; 8],
        negotiate: &[u8],
        now: u64,
    ) -> Result<Self, Refusal> {
        let offered = Negotiate::parse(negotiate)?.flags;
        // MS-NLMP 2.2.2.5: a client without both flags leaves the encoding of its names open, so it
        // is refused.
        if !offered.intersects(Flags::UNICODE | Flags::OEM) {
            return Err(Reason::TooWeak("neither Unicode nor OEM names").into());
        }
        let flags = offered.chosen_by_server();
        let target_info = config.target_info(now);
        let message = Challenge {
            flags,
            server_challenge,
            target_name: config.server_name.clone(),
            target_info: &target_info,
        };
        let message = message.encode();
        Ok(Self { server_challenge, negotiate: negotiate.to_vec(), message, flags })
    }

    /// Returns ServerChallenge.
    pub(super) const fn server_challenge(&self) -> [u8; 8] {
        self.server_challenge
    }

    /// Returns SessionBaseKey, and whether NTProofStr is right. The work is equal for an account
    /// that does not exist.
    fn prove(
        &self,
        message: &Authenticate<'_>,
        response: &NtlmV2<'_>,
        found: Option<&Account>,
    ) -> (Key, bool) {
        // Deviation: MS-NLMP 3.2.5.1.2 suggests to refuse a TimeStamp that differs from the
        // server's by more than 36 hours. The server does not compare it, because each challenge is
        // new and used once, so an old response cannot be repeated, and devices without a clock can
        // log on.
        let zero_hash = NtHash::from_bytes([0; 16]);
        let hash = found.map_or(&zero_hash, |account| &account.nt_hash);
        // MS-NLMP 3.2.5.1.2: some clients send a domain but compute the response without it, so the
        // server compares the response with and without the domain.
        let [as_sent, without] = [message.domain.as_str(), ""].map(|domain| {
            let key = crypt::response_key(hash, &message.user, domain);
            let proof = crypt::proof(&key, &self.server_challenge, response.temp);
            (crypt::session_base_key(&key, &proof), same(&proof, &response.proof))
        });
        if as_sent.1 { as_sent } else { without }
    }
}

impl Proven {
    /// Returns the mechListMIC of one end.
    pub(super) fn mic(&self, mode: Mode, list: &[u8]) -> Option<[u8; 16]> {
        crypt::first_signature(self.flags, &self.exported, mode, list)
    }
}

impl Judge<'_> {
    /// True if each field of a message has a form that is not refused: only then may a secret be
    /// used, and a domain controller be asked.
    pub(super) fn takes_form_of(
        &self,
        message: &Authenticate<'_>,
        challenged: &Challenged,
    ) -> bool {
        sent_key(challenged.flags & message.flags, message.session_key).is_ok()
            && matches!(Form::of(message), Ok(Ok(form)) if self.check_demands(&form).is_ok())
    }

    /// Returns the user of a message whose proof will be judged by an account.
    pub(super) fn claim(&self, token: &[u8], challenged: &Challenged) -> Option<Claim> {
        let message = Authenticate::parse(token).ok()?;
        let passed_on = &self.config.passed_on;
        let is_passed_on = passed_on.iter().any(|own| own.eq_ignore_ascii_case(&message.domain));
        let is_judged = !message.user.is_empty()
            && !message.is_anonymous()
            && !is_passed_on
            && self.takes_form_of(&message, challenged);
        is_judged.then(|| Claim { user: message.user.clone(), domain: message.domain.clone() })
    }

    /// Checks the last message at `now`, in FILETIME ticks. `finish` is called for every well-formed
    /// message, also for one that is refused, so that its checks take the same time.
    pub(super) fn judge<T>(
        self,
        token: &[u8],
        challenged: &Challenged,
        accounts: &dyn Accounts,
        now: u64,
        finish: impl FnOnce(Proven) -> Result<T, Reason>,
    ) -> Result<T, Refusal> {
        let (user, domain) = Authenticate::claim(token);
        let found = accounts.account(&user, &domain);
        let account = String::from(found.as_ref().map_or(&*user, |account| &*account.name));
        if found.is_none() && self.config.guests.takes(&user, accounts) {
            return self
                .admit_guest(token, challenged, finish)
                .map_err(|reason| refusal(reason, user, domain, account));
        }
        let prove = |message: &Authenticate<'_>, response: &NtlmV2<'_>| {
            Proof::of_account(challenged, message, response, found, now)
        };
        self.check(token, challenged, prove, finish)
            .map_err(|reason| refusal(reason, user, domain, account))
    }

    /// Like [`Self::judge`], with the answer of a domain controller in place of the account.
    pub(super) fn judge_answer<T>(
        self,
        token: &[u8],
        challenged: &Challenged,
        answer: Result<DomainLogon, Reason>,
        account: String,
        finish: impl FnOnce(Proven) -> Result<T, Reason>,
    ) -> Result<T, Refusal> {
        let (user, domain) = Authenticate::claim(token);
        let prove = |_: &Authenticate<'_>, _: &NtlmV2<'_>| Proof::of_domain(answer);
        self.check(token, challenged, prove, finish)
            .map_err(|reason| refusal(reason, user, domain, account))
    }

    /// Judges an AUTHENTICATE_MESSAGE, MS-NLMP 3.2.5.1.2. The form of every field is checked before
    /// any secret is used: a refusal for the form tells nothing about the password.
    fn check<T>(
        &self,
        token: &[u8],
        challenged: &Challenged,
        prove: impl FnOnce(&Authenticate<'_>, &NtlmV2<'_>) -> Proof,
        finish: impl FnOnce(Proven) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let malformed = |fault: Malformed| Reason::Malformed(fault.what);
        let message = Authenticate::parse(token).map_err(malformed)?;
        let flags = challenged.flags & message.flags;
        if message.is_anonymous() {
            return finish(self.nobody(&message, flags)?);
        }
        let sent_key = sent_key(flags, message.session_key)?;
        let keys = KeyExchange { flags, sent_key };
        let form = Form::of(&message).map_err(malformed)??;
        self.check_demands(&form)?;
        let mut proof = prove(&message, form.response);
        let rules = mem::replace(&mut proof.rules, Ok(()));
        let (proven, verdict) = self.verify(&message, &form, keys, challenged, proof);
        let done = finish(proven);
        let done = verdict.and(done)?;
        // The rules for the account count last of all: only who has proved everything learns of them.
        rules.map_err(Reason::Rule)?;
        Ok(done)
    }

    /// Judges an AUTHENTICATE_MESSAGE of a guest: each field must have the form that it has to have of
    /// others, but proves nothing.
    fn admit_guest<T>(
        &self,
        token: &[u8],
        challenged: &Challenged,
        finish: impl FnOnce(Proven) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let malformed = |fault: Malformed| Reason::Malformed(fault.what);
        let message = Authenticate::parse(token).map_err(malformed)?;
        let flags = challenged.flags & message.flags;
        if !message.is_anonymous() {
            sent_key(flags, message.session_key)?;
            match Form::of(&message).map_err(malformed)? {
                Ok(form) => self.check_demands(&form)?,
                // As smbclient without a password: no proof is needed, and a MIC only if it is demanded.
                Err(Reason::NoResponse) if !self.config.require_mic => {}
                Err(reason) => return Err(reason),
            }
        }
        finish(self.nobody(&message, flags)?)
    }

    /// Makes every check of the response, and returns the first failure. All checks are made
    /// whatever the first one gives: neither the answer nor the time tells a right password from a
    /// wrong one.
    fn verify(
        &self,
        message: &Authenticate<'_>,
        form: &Form<'_>,
        keys: KeyExchange,
        challenged: &Challenged,
        proof: Proof,
    ) -> (Proven, Result<(), Reason>) {
        let KeyExchange { flags, sent_key } = keys;
        let Proof { base, password, name, by_domain, rules: _ } = proof;
        let exported = exported_key(&base, sent_key);
        let has_mic = form.mic.is_some();
        let mic = match &form.mic {
            Some((sent, cleared)) => {
                let (negotiate, challenge) = (&challenged.negotiate, &challenged.message);
                let expected = crypt::mic(&exported, negotiate, challenge, cleared);
                if same(sent, &expected) { Ok(()) } else { Err(Reason::WrongMic) }
            }
            None => Ok(()),
        };
        let identity = Identity {
            user: name,
            guest: None,
            domain: message.domain.clone(),
            workstation: message.workstation.clone(),
            kerberos: None,
            by_domain,
        };
        let proven = Proven { identity, exported, flags, has_mic };
        (proven, password.and(mic))
    }

    /// Returns the keys of an anonymous client or of a guest, MS-NLMP 3.2.5.1.2: SessionBaseKey is Z(16).
    fn nobody(&self, message: &Authenticate<'_>, flags: Flags) -> Result<Proven, Reason> {
        let is_guest = self.config.guests != Guests::Nobody;
        if !(self.config.anonymous || is_guest) || self.channel_bindings.is_some() {
            return Err(Reason::Anonymous);
        }
        let identity = Identity {
            user: String::new(),
            guest: is_guest.then(|| message.user.as_str().into()),
            domain: message.domain.clone(),
            workstation: message.workstation.clone(),
            kerberos: None,
            by_domain: None,
        };
        let exported = exported_key(&Key::default(), sent_key(flags, message.session_key)?);
        Ok(Proven { identity, exported, flags, has_mic: false })
    }

    /// Checks the demands of this end that no password meets: they come before the proof, so that
    /// the refusal is the same for each password, and is no guess.
    fn check_demands(&self, form: &Form<'_>) -> Result<(), Reason> {
        if form.mic.is_none() && self.config.require_mic {
            return Err(Reason::MissingMic);
        }
        self.check_target(form.target.as_deref())?;
        if self.channel_bindings.is_some() && form.bindings != self.channel_bindings {
            return Err(Reason::WrongChannelBindings);
        }
        Ok(())
    }

    fn check_target(&self, target: Option<&str>) -> Result<(), Reason> {
        let Some(listed) = &self.config.allowed_targets else { return Ok(()) };
        match target {
            Some(spn) if self.config.is_our_target(spn, listed) => Ok(()),
            Some(spn) => Err(Reason::WrongTarget(String::from(spn))),
            None if self.config.require_target_name => Err(Reason::MissingTarget),
            None => Ok(()),
        }
    }
}

/// Makes the refusal of a message. It names the account only if another password could have changed
/// it: failures are counted by this name.
fn refusal(reason: Reason, user: String, domain: String, account: String) -> Refusal {
    let account = if reason.is_of_proof() { account } else { String::new() };
    Refusal { reason, user, domain, account }
}

/// The agreed flags, and the session key that the client sent, encrypted, if it sent one.
#[derive(Clone, Copy)]
struct KeyExchange {
    flags: Flags,
    sent_key: Option<[u8; 16]>,
}

/// The judgement of a response.
struct Proof {
    /// SessionBaseKey
    base: Key,
    password: Result<(), Reason>,
    /// The verdict of the rules for the account.
    rules: Result<(), AccountFault>,
    /// The name as it is stored; empty for an unknown user.
    name: String,
    /// The facts of a domain controller.
    by_domain: Option<Arc<LogonInfo>>,
}

impl Proof {
    fn of_account(
        challenged: &Challenged,
        message: &Authenticate<'_>,
        response: &NtlmV2<'_>,
        found: Option<Account>,
        now: u64,
    ) -> Self {
        let (base, is_right) = challenged.prove(message, response, found.as_ref());
        let password = match &found {
            None => Err(Reason::UnknownUser),
            Some(_) if !is_right => Err(Reason::WrongPassword),
            Some(_) => Ok(()),
        };
        let (seconds, _) = FileTime(now).to_unix();
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let judge = |account: &Account| account.rules.check(seconds, &message.workstation);
        let rules = found.as_ref().map_or(Ok(()), judge);
        let name = found.map_or_else(String::new, |account| account.name);
        Self { base, password, rules, name, by_domain: None }
    }

    fn of_domain(answer: Result<DomainLogon, Reason>) -> Self {
        let none = |reason| Self {
            base: Key::default(),
            password: Err(reason),
            rules: Ok(()),
            name: String::new(),
            by_domain: None,
        };
        let logon = match answer {
            Ok(logon) => logon,
            Err(reason) => return none(reason),
        };
        let Ok(base) = <[u8; 16]>::try_from(logon.session_key.as_slice()) else {
            // The password was checked. This counts as a guess, like every other outcome of a
            // check.
            let why = "its answer has a session key of another length";
            return none(Reason::DomainRefused(String::from(why)));
        };
        Self {
            base: Key::new(base),
            password: Ok(()),
            rules: Ok(()),
            name: logon.user.user_name.clone(),
            by_domain: Some(logon.user),
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
        // A target name that the client itself flags as untrusted proves nothing, so it is not
        // compared.
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
        // Without SIGN or SEAL an empty key is allowed even with KEY_EXCH, because MS-NLMP then
        // sends none; some clients send one anyway.
        Err(_) if sent.is_empty() && !flags.intersects(Flags::SIGN | Flags::SEAL) => Ok(None),
        Err(_) => Err(Reason::Malformed("EncryptedRandomSessionKey")),
    }
}

/// Returns ExportedSessionKey (MS-NLMP 3.2.5.1.2).
fn exported_key(base: &Key, sent: Option<[u8; 16]>) -> Key {
    sent.map_or_else(|| base.clone(), |sent| crypt::rc4_key(base, &sent))
}
