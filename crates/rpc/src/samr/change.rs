//! SamrUnicodeChangePasswordUser2 and SamrUnicodeChangePasswordUser4, MS-SAMR 3.1.5.10.3 and
//! 3.1.5.10.4.

use super::super::limits::MAX_SEALED_PASSWORD;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use frevo_wire::Status;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// Bytes of SAMPR_ENCRYPTED_USER_PASSWORD, MS-SAMR 2.2.6.21.
const PASSWORD: usize = 516;

/// The arguments of the call. Those about LAN Manager's hashes are left out.
#[derive(Clone, PartialEq, Eq)]
pub struct ChangePassword {
    /// UserName
    pub user: String,
    /// NewPasswordEncryptedWithOldNt
    pub password: Box<[u8; PASSWORD]>,
    /// OldNtOwfPasswordEncryptedWithNewNt
    pub proof: [u8; 16],
}

impl ChangePassword {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SamrUnicodeChangePasswordUser2";
        let mut r = NdrReader::new(stub);
        if r.pointer(WHAT)? {
            let head = r.unicode_head(WHAT)?;
            r.unicode(head, WHAT)?;
        }
        let head = r.unicode_head(WHAT)?;
        let user = r.unicode(head, WHAT)?.decode()?;
        if !r.pointer(WHAT)? {
            return Err(Malformed::new(WHAT));
        }
        let password = Box::new(r.fixed(WHAT)?);
        if !r.pointer(WHAT)? {
            return Err(Malformed::new(WHAT));
        }
        Ok(Self { user, password, proof: r.fixed(WHAT)? })
    }

    /// The status in the stub data of an answer.
    pub fn parse_reply(stub: &[u8]) -> Parsed<Status> {
        NdrReader::new(stub).u32("SamrUnicodeChangePasswordUser2").map(Status)
    }

    /// The stub data of a call to `server`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(true).unicode_head(server, 0).unicode(server, 0);
        w.unicode_head(&self.user, 0).unicode(&self.user, 0);
        w.pointer(true).fixed(&*self.password);
        w.pointer(true).fixed(&self.proof);
        // LmPresent is 0, so the LM password and its proof are null.
        w.u8(0).pointer(false).pointer(false);
        w.into_stub()
    }
}

impl fmt::Debug for ChangePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangePassword").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The arguments of SamrUnicodeChangePasswordUser4.
#[derive(Clone, PartialEq, Eq)]
pub struct ChangePasswordAes {
    /// UserName
    pub user: String,
    /// EncryptedPassword.AuthData
    pub auth_data: [u8; 64],
    /// EncryptedPassword.Salt
    pub salt: [u8; 16],
    /// EncryptedPassword.Cipher
    pub cipher: Vec<u8>,
    /// EncryptedPassword.PBKDF2Iterations
    pub iterations: u64,
}

impl ChangePasswordAes {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "SamrUnicodeChangePasswordUser4";
        let mut r = NdrReader::new(stub);
        if r.pointer(WHAT)? {
            let head = r.unicode_head(WHAT)?;
            r.unicode(head, WHAT)?;
        }
        let head = r.unicode_head(WHAT)?;
        let user = r.unicode(head, WHAT)?.decode()?;
        // The structure has an eight-byte member (PBKDF2Iterations), so it is aligned to eight
        // bytes.
        r.align(8)?;
        let (auth_data, salt) = (r.fixed(WHAT)?, r.fixed(WHAT)?);
        let length = r.u32(WHAT)?;
        if !r.pointer(WHAT)? || length > MAX_SEALED_PASSWORD {
            return Err(Malformed::new(WHAT));
        }
        let iterations = r.u64(WHAT)?;
        let cipher = r.bytes(length, WHAT)?.to_vec();
        Ok(Self { user, auth_data, salt, cipher, iterations })
    }

    /// The stub data of a call to `server`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(true).unicode_head(server, 0).unicode(server, 0);
        w.unicode_head(&self.user, 0).unicode(&self.user, 0);
        w.align(8).fixed(&self.auth_data).fixed(&self.salt);
        w.u32(u32::try_from(self.cipher.len()).unwrap_or(u32::MAX)).pointer(true);
        w.align(8).fixed(&self.iterations.to_le_bytes()).bytes(&self.cipher);
        w.into_stub()
    }
}

impl fmt::Debug for ChangePasswordAes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangePasswordAes").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A call that changes a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordChange {
    /// SamrUnicodeChangePasswordUser2
    User2(ChangePassword),
    /// SamrUnicodeChangePasswordUser4
    User4(ChangePasswordAes),
}

impl PasswordChange {
    /// True for the numbers of these calls.
    pub const fn is_opnum(opnum: u16) -> bool {
        matches!(opnum, super::CHANGE_PASSWORD2 | super::CHANGE_PASSWORD4)
    }

    /// Parses the stub data of a call.
    pub fn parse(opnum: u16, stub: &[u8]) -> Parsed<Self> {
        if opnum == super::CHANGE_PASSWORD4 {
            ChangePasswordAes::parse(stub).map(Self::User4)
        } else {
            ChangePassword::parse(stub).map(Self::User2)
        }
    }

    /// UserName
    pub fn user(&self) -> &str {
        match self {
            Self::User2(change) => &change.user,
            Self::User4(change) => &change.user,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_comes_back() {
        for user in ["ann", "bj\u{f6}rn", "a"] {
            let call = ChangePassword {
                user: user.into(),
                password: Box::new([7; PASSWORD]),
                proof: *b"0123456789abcdef",
            };
            let stub = call.encode("\\\\box");
            assert_eq!(ChangePassword::parse(&stub).unwrap(), call);
            for len in (0..stub.len() - 12).rev() {
                assert!(ChangePassword::parse(&stub[..len]).is_err(), "{len} bytes");
            }
        }
    }

    #[test]
    fn a_sealed_call_comes_back() {
        for (user, length) in [("ann", 528), ("bj\u{f6}rn", 0), ("a", MAX_SEALED_PASSWORD)] {
            let call = ChangePasswordAes {
                user: user.into(),
                auth_data: [1; 64],
                salt: [2; 16],
                cipher: alloc::vec![3; usize::try_from(length).unwrap()],
                iterations: 0x0102_0304_0506_0708,
            };
            let stub = call.encode("\\\\box");
            assert_eq!(ChangePasswordAes::parse(&stub).unwrap(), call);
            for len in (0..stub.len()).rev() {
                assert!(ChangePasswordAes::parse(&stub[..len]).is_err(), "{len} bytes");
            }
        }
        let length = usize::try_from(MAX_SEALED_PASSWORD).unwrap() + 1;
        let (auth_data, salt) = ([1; 64], [2; 16]);
        let cipher = alloc::vec![3; length];
        let long = ChangePasswordAes { user: "a".into(), auth_data, salt, cipher, iterations: 1 };
        assert!(ChangePasswordAes::parse(&long.encode("")).is_err());
    }
}
