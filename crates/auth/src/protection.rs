//! Protection of the messages that follow a logon: GSS_WrapEx and GSS_GetMICEx with the order of
//! bytes of DCE RPC (MS-RPCE 3.3.1.5.2.2).

use crate::kerberos::wrap::Wrap;
use crate::ntlm::Sealing;
use crate::ntlm::sealing::SIGNATURE_LEN;
use alloc::vec::Vec;
use core::ops::Range;

/// One end of a logon whose messages are signed or sealed. The messages of each direction have
/// numbers: one that is lost, repeated or changed ends the use of this value.
#[derive(Debug)]
pub struct Protection(Mechanism);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each association")]
enum Mechanism {
    Ntlm(Sealing),
    Kerberos(Wrap),
}

/// The parts of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The part that sealing hides, and signing protects.
    pub body: Range<usize>,
    /// True if the bytes around the body are protected, too. NTLM signs them always.
    pub with_surroundings: bool,
}

impl Protection {
    pub(crate) const fn ntlm(sealing: Sealing) -> Self {
        Self(Mechanism::Ntlm(sealing))
    }

    pub(crate) const fn kerberos(wrap: Wrap) -> Self {
        Self(Mechanism::Kerberos(wrap))
    }

    /// True if messages can be sealed.
    pub const fn can_seal(&self) -> bool {
        match &self.0 {
            Mechanism::Ntlm(sealing) => sealing.can_seal(),
            Mechanism::Kerberos(_) => true,
        }
    }

    /// Returns the length of the token of a message that is sealed or signed only.
    pub const fn token_len(&self, is_sealed: bool) -> usize {
        match &self.0 {
            Mechanism::Ntlm(_) => SIGNATURE_LEN,
            Mechanism::Kerberos(wrap) => wrap.token_len(is_sealed),
        }
    }

    /// Returns the token of a message that stays in the clear. None for a body outside of it.
    pub fn sign(&mut self, message: &[u8], parts: &Parts) -> Option<Vec<u8>> {
        let body = message.get(parts.body.clone())?;
        Some(match &mut self.0 {
            Mechanism::Ntlm(sealing) => sealing.sign(message).to_vec(),
            Mechanism::Kerberos(wrap) if parts.with_surroundings => wrap.sign(message),
            Mechanism::Kerberos(wrap) => wrap.sign(body),
        })
    }

    /// True if `token` is that of the peer's next message.
    pub fn verify(&mut self, message: &[u8], parts: &Parts, token: &[u8]) -> bool {
        let Some(body) = message.get(parts.body.clone()) else { return false };
        match &mut self.0 {
            Mechanism::Ntlm(sealing) => sealing.verify(message, token),
            Mechanism::Kerberos(wrap) if parts.with_surroundings => wrap.verify(message, token),
            Mechanism::Kerberos(wrap) => wrap.verify(body, token),
        }
    }

    /// Encrypts the body of a message in place and returns the token. None for a body outside of
    /// it, and where the ends have not agreed on sealing.
    pub fn seal(&mut self, message: &mut [u8], parts: &Parts) -> Option<Vec<u8>> {
        let body = message.get_mut(parts.body.clone())?;
        let whole = 0..body.len();
        match &mut self.0 {
            Mechanism::Ntlm(sealing) if !sealing.can_seal() => None,
            Mechanism::Ntlm(sealing) => Some(sealing.seal(message, parts.body.clone()).to_vec()),
            Mechanism::Kerberos(wrap) if parts.with_surroundings => {
                wrap.seal(message, parts.body.clone())
            }
            Mechanism::Kerberos(wrap) => wrap.seal(body, whole),
        }
    }

    /// Decrypts the body of the peer's next message in place; false if anything that its token
    /// covers was changed.
    pub fn unseal(&mut self, message: &mut [u8], parts: &Parts, token: &[u8]) -> bool {
        let Some(body) = message.get_mut(parts.body.clone()) else { return false };
        let whole = 0..body.len();
        match &mut self.0 {
            Mechanism::Ntlm(sealing) if !sealing.can_seal() => false,
            Mechanism::Ntlm(sealing) => sealing.unseal(message, parts.body.clone(), token),
            Mechanism::Kerberos(wrap) if parts.with_surroundings => {
                wrap.unseal(message, parts.body.clone(), token)
            }
            Mechanism::Kerberos(wrap) => wrap.unseal(body, whole, token),
        }
    }
}
