//! SESSION_SETUP_ANDX, LOGOFF_ANDX and ECHO: MS-CIFS 2.2.4.53, 2.2.4.54, 2.2.4.39, MS-SMB 2.2.4.6.

use alloc::vec::Vec;

use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed};

use crate::charset::{Charset, Strings, Unmappable};
use crate::header::Command;
use crate::logon::Proof;
use crate::message::{Request, Response, and_x, words};
use crate::negotiate::{Capabilities, Negotiated};

/// MaxBufferSize of this client.
const BUFFER_BYTES: u16 = 0xFFFF;

/// NativeOS and NativeLanMan.
const NATIVE: &str = "Frevo";

/// Capabilities that this client uses if the server has them.
const USED: Capabilities = Capabilities(
    Capabilities::UNICODE.0
        | Capabilities::LARGE_FILES.0
        | Capabilities::NT_SMBS.0
        | Capabilities::STATUS32.0
        | Capabilities::NT_FIND.0
        | Capabilities::LARGE_READX.0
        | Capabilities::LARGE_WRITEX.0
        | Capabilities::EXTENDED_SECURITY.0,
);

bit_set! {
    /// Action of the response.
    SetupAction(u16) {
        /// The user is logged on as a guest.
        GUEST = 0x0001,
        /// The LM session key signs.
        USE_LANMAN_KEY = 0x0002,
    }
}

/// Returns a request with a token of SPNEGO.
///
/// # Errors
/// None; the signature is that of all requests with strings.
pub fn with_token(
    terms: &Negotiated,
    charset: Charset,
    token: &[u8],
) -> Result<Request<'static>, Unmappable> {
    let mut bytes = Strings::new(charset);
    bytes.raw(token).text(NATIVE)?.text(NATIVE)?;
    let words = and_x(|w| {
        w.u16(BUFFER_BYTES).u16(terms.max_mpx).u16(0).u32(terms.session_key);
        w.u16(u16::try_from(token.len()).unwrap_or(u16::MAX)).u32(0);
        w.u32((terms.capabilities & USED).0);
    });
    Ok(Request::new(Command::SESSION_SETUP_ANDX, words, bytes.bytes))
}

/// Returns a request with a proof of the password, or the password itself.
///
/// # Errors
/// If the code page lacks a character of the names.
pub fn with_proof(
    terms: &Negotiated,
    charset: Charset,
    proof: &Proof,
    names: [&str; 2],
) -> Result<Request<'static>, Unmappable> {
    let [user, domain] = names;
    let mut bytes = Strings::new(charset);
    bytes.raw(&proof.oem).raw(&proof.unicode);
    bytes.text(user)?.text(domain)?.text(NATIVE)?.text(NATIVE)?;
    let words = and_x(|w| {
        w.u16(BUFFER_BYTES).u16(terms.max_mpx).u16(0).u32(terms.session_key);
        w.u16(u16::try_from(proof.oem.len()).unwrap_or(u16::MAX));
        w.u16(u16::try_from(proof.unicode.len()).unwrap_or(u16::MAX)).u32(0);
        let used = (terms.capabilities & USED).without(Capabilities::EXTENDED_SECURITY);
        w.u32(used.0);
    });
    Ok(Request::new(Command::SESSION_SETUP_ANDX, words, bytes.bytes))
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetUp {
    /// Action
    pub action: SetupAction,
    /// The token of SPNEGO; empty without extended security.
    pub token: Vec<u8>,
}

impl SetUp {
    /// Parses the response.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(response: &Response<'_>, is_extended: bool) -> Parsed<Self> {
        let least = if is_extended { 4 } else { 3 };
        let r = &mut response.and_x(least, "SESSION_SETUP_ANDX WordCount")?;
        let action = SetupAction(r.u16("Action")?);
        if !is_extended {
            return Ok(Self { action, token: Vec::new() });
        }
        let length = usize::from(r.u16("SecurityBlobLength")?);
        let token = response.bytes().get(..length).ok_or(Malformed::new("SecurityBlob"))?;
        Ok(Self { action, token: token.to_vec() })
    }
}

/// Returns the request that ends the session.
pub fn logoff() -> Request<'static> {
    Request::new(Command::LOGOFF_ANDX, and_x(|_| {}), Vec::new())
}

/// Returns a request that asks for one answer without meaning.
pub fn echo() -> Request<'static> {
    let words = words(|w| {
        w.u16(1);
    });
    Request::new(Command::ECHO, words, Vec::new())
}
