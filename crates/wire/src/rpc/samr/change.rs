//! SamrUnicodeChangePasswordUser2, MS-SAMR 3.1.5.10.3.

use super::super::ndr::{NdrReader, NdrWriter};
use crate::Status;
use crate::codec::{Malformed, Parsed};
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

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
    pub fn encode(&self, server: &str) -> alloc::vec::Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(true).unicode_head(server, 0).unicode(server, 0);
        w.unicode_head(&self.user, 0).unicode(&self.user, 0);
        w.pointer(true).fixed(&*self.password);
        w.pointer(true).fixed(&self.proof);
        // LmPresent, and what it would tell of.
        w.u8(0).pointer(false).pointer(false);
        w.into_stub()
    }
}

impl fmt::Debug for ChangePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangePassword").field("user", &self.user).finish_non_exhaustive()
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
}
