//! Tokens of logons: SPNEGO (MS-SPNG), NTLM (MS-NLMP) and Kerberos (RFC 4120), found by their form.

use crate::limits::TOKEN_DEPTH;

/// The beginning of every message of NTLM, MS-NLMP 2.2.1.
const NTLMSSP: &[u8] = b"NTLMSSP\0";
/// AUTHENTICATE_MESSAGE, MS-NLMP 2.2.1.3.
const AUTHENTICATE: u8 = 3;
/// Fields of it whose payload is overwritten: LmChallengeResponse, NtChallengeResponse and
/// EncryptedRandomSessionKey.
const SECRET_FIELDS: [usize; 3] = [12, 20, 52];
/// The place of the MIC, which stands before the payload if there is one.
const MIC: core::ops::Range<usize> = 72..88;

/// Tag of AP-REQ and AP-REP, RFC 4120 5.5, and of a TGT's KRB-CRED.
const KERBEROS: [u8; 3] = [0x6E, 0x6F, 0x76];
/// Tag of a token of GSS-API, RFC 2743 3.1.
const GSS: u8 = 0x60;
/// Tag of OCTET STRING.
const OCTETS: u8 = 0x04;
/// Tag of OBJECT IDENTIFIER.
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The bit of a tag that says that elements are inside.
const CONSTRUCTED: u8 = 0x20;
/// Octet strings of Kerberos that are shorter hold no ciphertext.
const CIPHERTEXT_MIN: usize = 8;

/// Bytes of the longest mechListMIC. A longer octet string is a token of an unknown mechanism.
const CHECK_MAX: usize = 64;

/// Overwrites the secrets of a token. A token of unknown form is overwritten as a whole.
pub(super) fn blank(token: &mut [u8]) {
    blank_ntlm(token);
    if !token.starts_with(NTLMSSP) && !blank_elements(token, TOKEN_DEPTH) {
        token.fill(0);
    }
}

/// Overwrites the answers in each message of NTLM.
fn blank_ntlm(token: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = find(token.get(from..).unwrap_or(&[]), NTLMSSP) {
        let start = from.saturating_add(at);
        if let Some(message) = token.get_mut(start..) {
            blank_authenticate(message);
        }
        from = start.saturating_add(NTLMSSP.len());
    }
}

fn blank_authenticate(message: &mut [u8]) {
    if message.get(8) != Some(&AUTHENTICATE) {
        return;
    }
    let mut payload_at = usize::MAX;
    // The payload begins behind the fields, at the lowest of all their offsets.
    for field in (12..60).step_by(8) {
        if let Some((_, offset)) = field_of(message, field) {
            payload_at = payload_at.min(offset);
        }
    }
    for field in SECRET_FIELDS {
        let Some((len, offset)) = field_of(message, field) else { continue };
        let end = offset.saturating_add(len).min(message.len());
        if let Some(secret) = message.get_mut(offset..end) {
            secret.fill(0);
        }
    }
    if payload_at >= MIC.end
        && let Some(mic) = message.get_mut(MIC)
    {
        mic.fill(0);
    }
}

/// Returns length and offset of a field. None for an empty one.
fn field_of(message: &[u8], at: usize) -> Option<(usize, usize)> {
    let field = message.get(at..)?.first_chunk::<8>()?;
    let [low, high, _, _, a, b, c, d] = *field;
    let len = usize::from(u16::from_le_bytes([low, high]));
    let offset = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    (len > 0).then_some((len, offset))
}

/// Judges the content of a DER element: its tag, its content, and the depth that is left below it. Returns
/// false for a content that is to be overwritten as a whole.
type Judge = fn(u8, &mut [u8], usize) -> bool;

/// Goes through a list of DER elements, and overwrites the contents of which nothing is known. Returns false
/// if it is no such list.
fn each_element(mut bytes: &mut [u8], depth: usize, is_known: Judge) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    while !bytes.is_empty() {
        let Some(Element { tag, head, len }) = element(bytes) else { return false };
        let Some((one, rest)) = bytes.split_at_mut_checked(head.saturating_add(len)) else {
            return false;
        };
        bytes = rest;
        let content = one.get_mut(head..).unwrap_or(&mut []);
        if !is_known(tag, content, depth) {
            content.fill(0);
        }
    }
    true
}

/// Overwrites the ciphertexts of Kerberos in a list of DER elements. Returns false if it is none.
fn blank_elements(bytes: &mut [u8], depth: usize) -> bool {
    each_element(bytes, depth, |tag, content, depth| match tag {
        GSS => blank_gss(content, depth),
        tag if KERBEROS.contains(&tag) => blank_ciphertexts(content, depth),
        tag if tag & CONSTRUCTED != 0 => blank_elements(content, depth),
        // A token inside: of NTLM, which was looked at, or of another form.
        OCTETS if content.starts_with(NTLMSSP) => true,
        OCTETS if content.first().is_some_and(|tag| *tag == GSS || KERBEROS.contains(tag)) => {
            blank_elements(content, depth)
        }
        // A check of the mechanisms is short.
        OCTETS => content.len() <= CHECK_MAX,
        _ => true,
    })
}

/// A token of GSS-API: the mechanism, and its own token, which has a number before it in Kerberos.
fn blank_gss(content: &mut [u8], depth: usize) -> bool {
    let Some(Element { tag: OBJECT_IDENTIFIER, head, len }) = element(content) else {
        return false;
    };
    let Some((_, inner)) = content.split_at_mut_checked(head.saturating_add(len)) else {
        return false;
    };
    let skipped = match inner {
        [1..=3, 0, ..] => 2,
        _ => 0,
    };
    inner.get_mut(skipped..).is_some_and(|inner| blank_elements(inner, depth))
}

/// Overwrites all long octet strings: in these messages they are ciphertexts.
fn blank_ciphertexts(bytes: &mut [u8], depth: usize) -> bool {
    each_element(bytes, depth, |tag, content, depth| match tag {
        OCTETS => content.len() < CIPHERTEXT_MIN,
        tag if tag & CONSTRUCTED != 0 => blank_ciphertexts(content, depth),
        _ => true,
    })
}

/// The head of a DER element.
struct Element {
    tag: u8,
    /// Bytes of tag and length.
    head: usize,
    /// Bytes of the content.
    len: usize,
}

/// Reads tag and length of an element. None for a form that these tokens do not have.
fn element(bytes: &[u8]) -> Option<Element> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if tag & 0x1F == 0x1F {
        return None;
    }
    if first < 0x80 {
        return Some(Element { tag, head: 2, len: first.into() });
    }
    let count = usize::from(first & 0x7F);
    if count == 0 || count > 4 {
        return None;
    }
    let digits = rest.get(..count)?;
    let len = digits.iter().fold(0_usize, |len, digit| len << 8 | usize::from(*digit));
    Some(Element { tag, head: count.saturating_add(2), len })
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}
