//! The client's end of NTLM: MS-NLMP 3.1.5.1.2.

use super::{Credentials, Entropy, Secret, Target};
use crate::ntlm::crypt::{self, Key, Mode};
use crate::ntlm::message::{self, AuthenticateParts, Challenge, Negotiate};
use crate::ntlm::{AvFlags, AvId, AvPairs, Flags, av_pair};
use crate::{NtHash, Reason, Refusal};
use alloc::vec::Vec;
use frevo_wire::codec::Malformed;

/// Flags that a server must agree to: without them NTLM protects too little.
const LEAST: Flags =
    Flags(Flags::UNICODE.0 | Flags::EXTENDED_SESSIONSECURITY.0 | Flags::TARGET_INFO.0);

/// The user and the random bytes of a logon by NTLM.
#[derive(Debug)]
pub(super) struct Ntlm {
    pub(super) credentials: Credentials,
    pub(super) entropy: Entropy,
}

impl Ntlm {
    /// Returns the NEGOTIATE_MESSAGE.
    pub(super) fn negotiate() -> Vec<u8> {
        Negotiate { flags: Flags::SUPPORTED }.encode()
    }

    /// Makes the AUTHENTICATE_MESSAGE, MS-NLMP 3.1.5.1.2.
    pub(super) fn authenticate(
        &self,
        target: &Target,
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
        let temp = self.temp(target, &theirs, timestamp.unwrap_or(now), has_mic)?;
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
            workstation: &target.workstation,
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
    fn temp(
        &self,
        target: &Target,
        theirs: &AvPairs<'_>,
        time: u64,
        has_mic: bool,
    ) -> Result<Vec<u8>, Malformed> {
        let mut temp = Vec::with_capacity(256);
        temp.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
        temp.extend_from_slice(&time.to_le_bytes());
        temp.extend_from_slice(&self.entropy.client_challenge);
        temp.extend_from_slice(&[0; 4]);
        // The client sets these three AV pairs itself, so it does not copy them from the server's
        // list.
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
        let bindings = target.channel_bindings.unwrap_or_default();
        av_pair::put(&mut temp, AvId::CHANNEL_BINDINGS, &bindings);
        av_pair::put_text(&mut temp, AvId::TARGET_NAME, &target.spn);
        av_pair::put(&mut temp, AvId::EOL, &[]);
        temp.extend_from_slice(&[0; 4]);
        Ok(temp)
    }
}

/// An AUTHENTICATE_MESSAGE with the keys that both sides use from then on.
pub(super) struct Reply {
    pub(super) message: Vec<u8>,
    pub(super) flags: Flags,
    pub(super) exported: Key,
    pub(super) has_mic: bool,
}

impl Reply {
    /// Returns the mechListMIC of one end.
    pub(super) fn mic(&self, mode: Mode, list: &[u8]) -> Option<[u8; 16]> {
        crypt::first_signature(self.flags, &self.exported, mode, list)
    }
}
