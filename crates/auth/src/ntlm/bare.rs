//! NTLMv2 responses without NTLM messages (MS-NLMP 3.3.2), for SMB1 without extended security: its server
//! sends a challenge alone.

use super::crypt::{self, Key};
use super::{AvId, av_pair};
use crate::{Credentials, NtHash, Secret};
use alloc::vec::Vec;

/// The responses to a challenge, and the key that both ends have then.
pub struct Responses {
    /// LmChallengeResponse of NTLMv2.
    pub lm: [u8; 24],
    /// NtChallengeResponse of NTLMv2.
    pub nt: Vec<u8>,
    /// SessionBaseKey
    pub session_key: Key,
}

impl core::fmt::Debug for Responses {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Responses(..)")
    }
}

/// Returns the responses of a user to a server's challenge. `client_challenge` are random bytes that no
/// other logon has, and `now` is the time as FILETIME ticks.
pub fn responses(
    credentials: &Credentials,
    server_challenge: &[u8; 8],
    client_challenge: &[u8; 8],
    now: u64,
) -> Responses {
    let Credentials { user, domain, secret } = credentials;
    let key = match secret {
        Secret::Password(password) => {
            crypt::response_key(&NtHash::from_password(password), user, domain)
        }
        Secret::NtHash(hash) => crypt::response_key(hash, user, domain),
    };
    let mut temp = Vec::with_capacity(64);
    temp.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
    temp.extend_from_slice(&now.to_le_bytes());
    temp.extend_from_slice(client_challenge);
    temp.extend_from_slice(&[0; 4]);
    if !domain.is_empty() {
        av_pair::put_text(&mut temp, AvId::NB_DOMAIN_NAME, domain);
    }
    av_pair::put(&mut temp, AvId::EOL, &[]);
    temp.extend_from_slice(&[0; 4]);
    let proof = crypt::proof(&key, server_challenge, &temp);
    Responses {
        lm: crypt::lm_v2(&key, server_challenge, client_challenge),
        nt: [&proof[..], &temp].concat(),
        session_key: crypt::session_base_key(&key, &proof),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use zeroize::Zeroizing;

    /// The user, challenges and LMv2 response of MS-NLMP 4.2.4; the NTLMv2 response has other names.
    #[test]
    fn the_responses_of_the_specification() {
        let credentials = Credentials {
            user: "User".into(),
            domain: "Domain".into(),
            secret: Secret::Password(Zeroizing::new(String::from("Password"))),
        };
        let challenge = [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];
        let found = responses(&credentials, &challenge, &[0xAA; 8], 0);
        let lm: [u8; 24] = [
            0x86, 0xC3, 0x50, 0x97, 0xAC, 0x9C, 0xEC, 0x10, 0x25, 0x54, 0x76, 0x4A, 0x57, 0xCC,
            0xCC, 0x19, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA,
        ];
        assert_eq!(found.lm, lm);
        let key = crypt::response_key(&NtHash::from_password("Password"), "User", "Domain");
        let (proof, temp) = found.nt.split_first_chunk::<16>().unwrap();
        assert_eq!(*proof, crypt::proof(&key, &challenge, temp));
        assert_eq!(*found.session_key, *crypt::session_base_key(&key, proof));
        assert_eq!(temp[28..44], *b"\x02\0\x0c\0D\0o\0m\0a\0i\0n\0");
    }
}
