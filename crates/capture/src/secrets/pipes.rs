//! Remote procedure calls in pipes: MS-RPCE 2.2.2.

use super::token;

/// A pipe, by what its calls can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pipe {
    /// No call of it carries a password.
    Harmless,
    /// The accounts, MS-SAMR.
    Accounts,
    /// The policy, MS-LSAD.
    Policy,
    /// Any other.
    Other,
}

/// Pipes none of whose calls carry a password.
const HARMLESS: [&str; 7] =
    ["srvsvc", "wkssvc", "netdfs", "fssagentrpc", "mdssvc", "browser", "epmapper"];

/// Other pipes of servers, some of whose calls carry passwords or answers of logons.
const OTHERS: [&str; 8] = [
    "netlogon",
    "svcctl",
    "winreg",
    "atsvc",
    "spoolss",
    "drsuapi",
    "protected_storage",
    "backupkey",
];

/// Calls of MS-SAMR 3.1.5 that carry a password or its hash: SamrSetInformationUser,
/// SamrChangePasswordUser, SamrOemChangePasswordUser2, SamrUnicodeChangePasswordUser2,
/// SamrSetInformationUser2, Samba's third form, SamrSetDSRMPassword, SamrValidatePassword,
/// SamrUnicodeChangePasswordUser4.
const OF_ACCOUNTS: [u16; 9] = [37, 38, 54, 55, 58, 63, 66, 67, 73];

/// Calls of MS-LSAD 3.1.4 that carry a secret: those that set secrets, private data and the keys of trusted
/// domains.
const OF_POLICY: [u16; 10] = [27, 29, 42, 49, 51, 59, 129, 130, 138, 140];

/// A request, MS-RPCE and C706 12.6.4.9.
const REQUEST: u8 = 0;
/// Kinds of PDUs whose verifier is a token of a logon: bind, bind_ack, alter_context, its answer, auth3.
const LOGON: [u8; 5] = [11, 12, 14, 15, 16];
/// Bytes of the head of every PDU.
const HEAD: usize = 16;
/// Bytes of data that are looked at as calls: more is the data of a file.
const CALLS_BYTES: usize = 64 << 10;
/// Bytes of the head of a request.
const REQUEST_HEAD: usize = 24;

impl Pipe {
    /// Returns the pipe of a name. None for a name that is none of a known pipe, as that of a file.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.trim_start_matches('\\');
        let is_prefixed = name.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("pipe\\"));
        let name = if is_prefixed { name.get(5..).unwrap_or("") } else { name };
        let is_in = |names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other));
        match name {
            _ if is_in(&HARMLESS) => Some(Self::Harmless),
            _ if is_in(&["samr"]) => Some(Self::Accounts),
            _ if is_in(&["lsarpc", "lsass"]) => Some(Self::Policy),
            _ if is_in(&OTHERS) => Some(Self::Other),
            _ => None,
        }
    }
}

/// A PDU in the data of a message.
struct Pdu {
    kind: u8,
    /// Bytes of the PDU.
    len: usize,
    /// Bytes of the verifier at its end.
    auth_len: usize,
    /// The number of the call, in a request.
    opnum: u16,
}

/// Reads the head of a PDU. None for data that is none.
fn pdu(data: &[u8]) -> Option<Pdu> {
    let head = data.first_chunk::<HEAD>()?;
    let [5, 0 | 1, kind, _, order, _, 0, 0, ..] = *head else { return None };
    let is_little_endian = order & 0x10 != 0;
    let u16_at = |at: usize| {
        let field = data.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let field = field.unwrap_or_default();
        if is_little_endian { u16::from_le_bytes(field) } else { u16::from_be_bytes(field) }
    };
    let len = usize::from(u16_at(8));
    if len < HEAD {
        return None;
    }
    Some(Pdu { kind, len, auth_len: u16_at(10).into(), opnum: u16_at(22) })
}

/// Overwrites secrets in data that is written to a pipe. Data for a file of which nothing is known is
/// overwritten if it has the form of a call: it may be that of a pipe that was opened before the capture began.
pub(super) fn blank(pipe: Option<Pipe>, data: &mut [u8]) {
    let mut rest = data;
    while !rest.is_empty() {
        let Some(Pdu { kind, len, auth_len, opnum }) = pdu(rest) else {
            // The rest of a call whose beginning was in another message.
            if pipe.is_some_and(|pipe| pipe != Pipe::Harmless) {
                rest.fill(0);
            }
            return;
        };
        let (one, behind) = rest.split_at_mut(len.min(rest.len()));
        let has_secret = match pipe {
            Some(Pipe::Harmless) => false,
            // On Windows both are one endpoint, so that either interface can be behind either name.
            Some(Pipe::Accounts | Pipe::Policy) => {
                OF_ACCOUNTS.contains(&opnum) || OF_POLICY.contains(&opnum)
            }
            Some(Pipe::Other) | None => true,
        };
        if kind == REQUEST && has_secret {
            // The verifier is at the end of a call, which may be in another message.
            let verifier = if one.len() < len { 0 } else { auth_len };
            let end = one.len().saturating_sub(verifier);
            if let Some(stub) = one.get_mut(REQUEST_HEAD..end) {
                stub.fill(0);
            }
        }
        blank_verifier(&Pdu { kind, len, auth_len, opnum }, one);
        rest = behind;
    }
}

/// Overwrites the token of a logon in data that is read from a pipe.
pub(super) fn blank_logon(data: &mut [u8]) {
    if let Some(head) = pdu(data) {
        let end = head.len.min(data.len());
        if let Some(one) = data.get_mut(..end) {
            blank_verifier(&head, one);
        }
    }
}

/// Returns true for data that is nothing but whole calls. Such data is kept whole, and its secrets are overwritten.
pub(crate) fn is_calls(data: &[u8]) -> bool {
    let mut rest = data;
    while let Some(head) = pdu(rest).filter(|_| data.len() <= CALLS_BYTES) {
        let Some(behind) = rest.get(head.len..) else { return false };
        if behind.is_empty() {
            return true;
        }
        rest = behind;
    }
    false
}

/// Overwrites the token of a logon. `bytes` are those of the PDU that are there.
fn blank_verifier(pdu: &Pdu, bytes: &mut [u8]) {
    if !LOGON.contains(&pdu.kind) || pdu.auth_len == 0 {
        return;
    }
    let start = pdu.len.saturating_sub(pdu.auth_len);
    let is_whole = bytes.len() == pdu.len;
    match bytes.get_mut(start..) {
        Some(verifier) if is_whole => token::blank(verifier),
        Some(part) => part.fill(0),
        None => {}
    }
}
