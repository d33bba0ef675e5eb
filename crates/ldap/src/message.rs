//! Messages: RFC 4511. Requests are encoded, answers parsed.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use frevo_auth::Zeroizing;
use frevo_auth::der::{self, Elements};
use frevo_wire::codec::{Malformed, Parsed};

use crate::limits::{ATTRIBUTES, DN_BYTES, MESSAGE_BYTES, TOLD_BYTES, VALUES};

const BOOLEAN: u8 = 0x01;
const SET: u8 = 0x31;
const BIND_REQUEST: u8 = der::application(0);
const BIND_RESPONSE: u8 = der::application(1);
/// `[APPLICATION 2]`, primitive: it has no value.
const UNBIND_REQUEST: u8 = 0x42;
const SEARCH_REQUEST: u8 = der::application(3);
const SEARCH_ENTRY: u8 = der::application(4);
const SEARCH_DONE: u8 = der::application(5);
const SEARCH_REFERENCE: u8 = der::application(19);
const EXTENDED_REQUEST: u8 = der::application(23);
const EXTENDED_RESPONSE: u8 = der::application(24);
/// `[0]`, primitive: the password of a simple bind, the name of an extended request.
const CONTEXT_0: u8 = 0x80;
const CONTROLS: u8 = der::context(0);

/// The name of StartTLS, RFC 4511 4.14.1.
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";
/// The name of the control for answers in pages, RFC 2696.
const PAGED_RESULTS: &[u8] = b"1.2.840.113556.1.4.319";

/// resultCode, RFC 4511 4.1.9 and appendix A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultCode(pub u32);

impl ResultCode {
    /// success
    pub const SUCCESS: Self = Self(0);
    /// timeLimitExceeded
    pub const TIME_LIMIT_EXCEEDED: Self = Self(3);
    /// sizeLimitExceeded
    pub const SIZE_LIMIT_EXCEEDED: Self = Self(4);
    /// strongerAuthRequired
    pub const STRONGER_AUTH_REQUIRED: Self = Self(8);
    /// referral
    pub const REFERRAL: Self = Self(10);
    /// adminLimitExceeded
    pub const ADMIN_LIMIT_EXCEEDED: Self = Self(11);
    /// confidentialityRequired
    pub const CONFIDENTIALITY_REQUIRED: Self = Self(13);
    /// noSuchObject
    pub const NO_SUCH_OBJECT: Self = Self(32);
    /// invalidDNSyntax
    pub const INVALID_DN_SYNTAX: Self = Self(34);
    /// inappropriateAuthentication
    pub const INAPPROPRIATE_AUTHENTICATION: Self = Self(48);
    /// invalidCredentials
    pub const INVALID_CREDENTIALS: Self = Self(49);
    /// insufficientAccessRights
    pub const INSUFFICIENT_ACCESS_RIGHTS: Self = Self(50);
    /// busy
    pub const BUSY: Self = Self(51);
    /// unavailable
    pub const UNAVAILABLE: Self = Self(52);
    /// unwillingToPerform
    pub const UNWILLING_TO_PERFORM: Self = Self(53);
}

impl fmt::Display for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match *self {
            Self::SUCCESS => "success",
            Self::TIME_LIMIT_EXCEEDED => "the time limit of the directory is exceeded",
            Self::SIZE_LIMIT_EXCEEDED => "the size limit of the directory is exceeded",
            Self::STRONGER_AUTH_REQUIRED | Self::CONFIDENTIALITY_REQUIRED => {
                "the directory demands TLS"
            }
            Self::REFERRAL => "the entries are at another server",
            Self::ADMIN_LIMIT_EXCEEDED => "a limit of the directory's administrator is exceeded",
            Self::NO_SUCH_OBJECT => "there is no such entry",
            Self::INVALID_DN_SYNTAX => "the name of the entry is not well-formed",
            Self::INAPPROPRIATE_AUTHENTICATION => "this entry has no password to bind with",
            Self::INVALID_CREDENTIALS => "the name or the password is wrong",
            Self::INSUFFICIENT_ACCESS_RIGHTS => "the directory does not allow it",
            Self::BUSY => "the directory is busy",
            Self::UNAVAILABLE => "the directory is not available",
            Self::UNWILLING_TO_PERFORM => "the directory is not willing to do it",
            Self(code) => return write!(f, "result code {code}"),
        };
        f.write_str(word)
    }
}

/// LDAPResult
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapResult {
    /// resultCode
    pub code: ResultCode,
    /// diagnosticMessage, without control characters and not longer than [`TOLD_BYTES`].
    pub diagnostic: String,
}

impl fmt::Display for LdapResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if !self.diagnostic.is_empty() {
            write!(f, " ({})", self.diagnostic)?;
        }
        Ok(())
    }
}

/// SearchResultEntry
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// objectName
    pub dn: String,
    /// Its attributes, each with its values.
    pub attributes: Vec<Attribute>,
}

/// The values are secret, so they are not printed.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// PartialAttribute
#[derive(Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The name without options.
    pub name: String,
    /// Its values. One may be the hash of a password.
    pub values: Vec<Zeroizing<Vec<u8>>>,
}

impl Entry {
    /// The values of an attribute, whose name is without case.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let named = self.attributes.iter().filter(move |one| one.name.eq_ignore_ascii_case(name));
        named.flat_map(|one| one.values.iter().map(|value| value.as_slice()))
    }

    /// The values of an attribute that are text.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values(name).filter_map(|value| core::str::from_utf8(value).ok())
    }

    /// The first value of an attribute that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts(name).next()
    }
}

/// protocolOp of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// BindResponse
    Bound(LdapResult),
    /// SearchResultEntry
    Entry(Entry),
    /// SearchResultReference: entries at another server.
    Reference,
    /// SearchResultDone, with the cookie of the next page. The cookie is empty behind the last page, and
    /// None where the server makes no pages.
    Done(LdapResult, Option<Vec<u8>>),
    /// ExtendedResponse
    Extended(LdapResult),
}

/// LDAPMessage of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// messageID; 0 for a message that answers no request.
    pub id: u32,
    /// protocolOp
    pub answer: Answer,
}

/// The scope of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// baseObject: the entry alone.
    Base = 0,
    /// wholeSubtree
    Subtree = 2,
}

/// SearchRequest
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// baseObject
    pub base: &'a str,
    /// scope
    pub scope: Scope,
    /// sizeLimit; 0 for none.
    pub size_limit: u32,
    /// timeLimit in seconds.
    pub time_limit: u32,
    /// filter, encoded.
    pub filter: &'a [u8],
    /// attributes
    pub attributes: &'a [&'a str],
    /// The page that is asked for. None for all at once.
    pub page: Option<Page<'a>>,
}

/// A page of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Entries of the page.
    pub size: u32,
    /// The cookie of the page before; empty for the first one.
    pub cookie: &'a [u8],
}

/// Encodes a BindRequest with a password. The buffers are erased.
pub fn bind(id: u32, dn: &str, password: &[u8]) -> Zeroizing<Vec<u8>> {
    // The buffers have their final size at once: growing would leave copies of the password.
    let room = dn.len().saturating_add(password.len()).saturating_add(64);
    let mut op = Zeroizing::new(Vec::with_capacity(room));
    op.extend_from_slice(&der::integer_element(3));
    der::put(&mut op, der::OCTET_STRING, dn.as_bytes());
    der::put(&mut op, CONTEXT_0, password);
    let mut inner = Zeroizing::new(Vec::with_capacity(room.saturating_add(64)));
    inner.extend_from_slice(&der::integer_element(id.into()));
    der::put(&mut inner, BIND_REQUEST, &op);
    let mut message = Zeroizing::new(Vec::with_capacity(room.saturating_add(128)));
    der::put(&mut message, der::SEQUENCE, &inner);
    message
}

/// Encodes an UnbindRequest, which ends a connection.
pub fn unbind(id: u32) -> Vec<u8> {
    message(id, &der::element(UNBIND_REQUEST, &[]), &[])
}

/// Encodes the ExtendedRequest StartTLS.
pub fn start_tls(id: u32) -> Vec<u8> {
    message(id, &der::element(EXTENDED_REQUEST, &der::element(CONTEXT_0, START_TLS)), &[])
}

/// Encodes a SearchRequest.
pub fn search(id: u32, search: &Search<'_>) -> Vec<u8> {
    let mut op = der::element(der::OCTET_STRING, search.base.as_bytes());
    der::put(&mut op, der::ENUMERATED, &[search.scope as u8]);
    // RFC 4511 4.5.1.3: neverDerefAliases (0).
    der::put(&mut op, der::ENUMERATED, &[0]);
    op.extend_from_slice(&der::integer_element(search.size_limit.into()));
    op.extend_from_slice(&der::integer_element(search.time_limit.into()));
    der::put(&mut op, BOOLEAN, &[0]);
    op.extend_from_slice(search.filter);
    let mut names = Vec::new();
    for name in search.attributes {
        der::put(&mut names, der::OCTET_STRING, name.as_bytes());
    }
    der::put(&mut op, der::SEQUENCE, &names);
    let controls = search.page.map(|page| {
        let mut value = der::integer_element(page.size.into());
        der::put(&mut value, der::OCTET_STRING, page.cookie);
        let mut control = der::element(der::OCTET_STRING, PAGED_RESULTS);
        der::put(&mut control, der::OCTET_STRING, &der::element(der::SEQUENCE, &value));
        der::element(CONTROLS, &der::element(der::SEQUENCE, &control))
    });
    message(id, &der::element(SEARCH_REQUEST, &op), &controls.unwrap_or_default())
}

fn message(id: u32, op: &[u8], controls: &[u8]) -> Vec<u8> {
    let id = der::integer_element(id.into());
    der::element(der::SEQUENCE, &[id.as_slice(), op, controls].concat())
}

/// Returns the length of the message that `bytes` begin with. None if too few bytes have come to tell.
///
/// # Errors
/// Bytes that begin no message, and a message that is longer than [`MESSAGE_BYTES`].
pub fn length(bytes: &[u8]) -> Parsed<Option<usize>> {
    let fault = Malformed::new("LDAPMessage");
    let Some((&tag, after)) = bytes.split_first() else { return Ok(None) };
    if tag != der::SEQUENCE {
        return Err(fault);
    }
    let Some((&first, after)) = after.split_first() else { return Ok(None) };
    let (octets, length) = match usize::from(first) {
        short if short < 0x80 => (0, short),
        long => {
            let count = long & 0x7f;
            if count == 0 || count > 4 {
                return Err(fault);
            }
            let Some(octets) = after.get(..count) else { return Ok(None) };
            let length = octets.iter().fold(0u32, |n, &octet| (n << 8) | u32::from(octet));
            (count, usize::try_from(length).map_err(|_| fault)?)
        }
    };
    let whole = length.saturating_add(octets).saturating_add(2);
    if whole > MESSAGE_BYTES {
        Err(Malformed::new("LDAPMessage: too long"))
    } else {
        Ok(Some(whole))
    }
}

impl Message {
    /// Parses a whole message of a server.
    ///
    /// # Errors
    /// Bytes that are none, and one that has more attributes or values than the limits allow.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        if bytes.len() > MESSAGE_BYTES {
            return Err(Malformed::new("LDAPMessage: too long"));
        }
        let mut all = Elements::new(der::only(bytes, der::SEQUENCE, "LDAPMessage")?);
        let id = der::integer(all.expect(der::INTEGER, "messageID")?, "messageID")?;
        let id = u32::try_from(id).map_err(|_| Malformed::new("messageID"))?;
        let op = all.next("protocolOp")?;
        let controls = all.optional(CONTROLS, "controls")?;
        all.end("LDAPMessage")?;
        let answer = match op.tag {
            BIND_RESPONSE => Answer::Bound(result(op.value)?),
            SEARCH_ENTRY => Answer::Entry(entry(op.value)?),
            SEARCH_REFERENCE => Answer::Reference,
            SEARCH_DONE => {
                let cookie = controls.map(next_page).transpose()?.flatten();
                Answer::Done(result(op.value)?, cookie)
            }
            EXTENDED_RESPONSE => Answer::Extended(result(op.value)?),
            _ => return Err(Malformed::new("protocolOp")),
        };
        Ok(Self { id, answer })
    }
}

/// Reads the LDAPResult that an answer begins with. What follows it, such as a referral, is passed over.
fn result(value: &[u8]) -> Parsed<LdapResult> {
    let mut parts = Elements::new(value);
    let code = der::integer(parts.expect(der::ENUMERATED, "resultCode")?, "resultCode")?;
    let code = u32::try_from(code).map_err(|_| Malformed::new("resultCode"))?;
    parts.expect(der::OCTET_STRING, "matchedDN")?;
    let diagnostic = parts.expect(der::OCTET_STRING, "diagnosticMessage")?;
    Ok(LdapResult { code: ResultCode(code), diagnostic: told(diagnostic) })
}

/// A text of a server for people: without control characters, and short.
pub fn told(bytes: &[u8]) -> String {
    let bytes = bytes.get(..TOLD_BYTES).unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    String::from(text.chars().map(shown).collect::<String>().trim())
}

fn entry(value: &[u8]) -> Parsed<Entry> {
    let mut parts = Elements::new(value);
    let dn = parts.expect(der::OCTET_STRING, "objectName")?;
    let dn = core::str::from_utf8(dn).ok().filter(|dn| dn.len() <= DN_BYTES);
    let dn = String::from(dn.ok_or(Malformed::new("objectName"))?);
    let mut list = Elements::new(parts.expect(der::SEQUENCE, "attributes")?);
    let mut attributes = Vec::new();
    while !list.is_empty() {
        if attributes.len() >= ATTRIBUTES {
            return Err(Malformed::new("attributes: too many"));
        }
        let mut pair = Elements::new(list.expect(der::SEQUENCE, "PartialAttribute")?);
        let name = pair.expect(der::OCTET_STRING, "type")?;
        let name = core::str::from_utf8(name).map_err(|_| Malformed::new("type"))?;
        // RFC 4512 2.5: options follow the name.
        let name = String::from(name.split(';').next().unwrap_or_default());
        let mut set = Elements::new(pair.expect(SET, "vals")?);
        let mut values = Vec::new();
        while !set.is_empty() {
            if values.len() >= VALUES {
                return Err(Malformed::new("vals: too many"));
            }
            values.push(Zeroizing::new(set.expect(der::OCTET_STRING, "value")?.to_vec()));
        }
        attributes.push(Attribute { name, values });
    }
    Ok(Entry { dn, attributes })
}

/// Returns the cookie of the control of RFC 2696. None if it is not among the controls.
fn next_page(controls: &[u8]) -> Parsed<Option<Vec<u8>>> {
    let mut controls = Elements::new(controls);
    while !controls.is_empty() {
        let mut control = Elements::new(controls.expect(der::SEQUENCE, "Control")?);
        let name = control.expect(der::OCTET_STRING, "controlType")?;
        control.optional(BOOLEAN, "criticality")?;
        let value = control.optional(der::OCTET_STRING, "controlValue")?;
        let (PAGED_RESULTS, Some(value)) = (name, value) else { continue };
        let what = "realSearchControlValue";
        let mut value = Elements::new(der::only(value, der::SEQUENCE, what)?);
        value.expect(der::INTEGER, what)?;
        return Ok(Some(value.expect(der::OCTET_STRING, what)?.to_vec()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;
    use alloc::vec;
    use proptest::prelude::*;

    /// An entry as a server sends it.
    fn encoded(id: u32, dn: &str, attributes: &[(&str, &[&str])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (name, values) in attributes {
            let mut set = Vec::new();
            values.iter().for_each(|v| der::put(&mut set, der::OCTET_STRING, v.as_bytes()));
            let mut pair = der::element(der::OCTET_STRING, name.as_bytes());
            der::put(&mut pair, SET, &set);
            der::put(&mut list, der::SEQUENCE, &pair);
        }
        let mut op = der::element(der::OCTET_STRING, dn.as_bytes());
        der::put(&mut op, der::SEQUENCE, &list);
        message(id, &der::element(SEARCH_ENTRY, &op), &[])
    }

    #[test]
    fn requests_of_the_rfc() {
        let bound = bind(1, "cn=a", b"pw");
        assert_eq!(*bound, b"\x30\x12\x02\x01\x01\x60\x0d\x02\x01\x03\x04\x04cn=a\x80\x02pw");
        assert_eq!(unbind(3), b"\x30\x05\x02\x01\x03\x42\x00");
        let begun = start_tls(1);
        assert_eq!(begun[..9], *b"\x30\x1d\x02\x01\x01\x77\x18\x80\x16");
        let filter = b"\x87\x03uid";
        let asked = Search {
            base: "dc=x",
            scope: Scope::Subtree,
            size_limit: 2,
            time_limit: 5,
            filter,
            attributes: &["uid"],
            page: None,
        };
        let bytes = search(2, &asked);
        assert_eq!(
            bytes,
            b"\x30\x26\x02\x01\x02\x63\x21\x04\x04dc=x\x0a\x01\x02\x0a\x01\x00\x02\x01\x02\x02\x01\
              \x05\x01\x01\x00\x87\x03uid\x30\x05\x04\x03uid"
        );
        let paged = Search { page: Some(Page { size: 500, cookie: b"c" }), ..asked };
        let bytes = search(2, &paged);
        assert!(bytes.ends_with(b"\x04\x09\x30\x07\x02\x02\x01\xf4\x04\x01c"), "{bytes:x?}");
        assert_eq!(length(&bytes), Ok(Some(bytes.len())));
    }

    #[test]
    fn answers_of_a_server() {
        // OpenLDAP writes long forms of lengths.
        let bytes = b"\x30\x84\x00\x00\x00\x10\x02\x01\x01\x61\x84\x00\x00\x00\x07\x0a\x01\x31\x04\
                      \x00\x04\x00";
        assert_eq!(length(bytes), Ok(Some(bytes.len())));
        let Message { id, answer: Answer::Bound(result) } = Message::parse(bytes).unwrap() else {
            panic!()
        };
        assert_eq!((id, result.code), (1, ResultCode::INVALID_CREDENTIALS));
        assert_eq!(result.to_string(), "the name or the password is wrong");
        let bytes = encoded(2, "uid=ann,dc=x", &[("uid", &["ann", "Ann"]), ("cn;lang-de", &["A"])]);
        let Answer::Entry(entry) = Message::parse(&bytes).unwrap().answer else { panic!() };
        assert_eq!(entry.texts("UID").collect::<Vec<_>>(), ["ann", "Ann"]);
        assert_eq!((entry.text("cn"), entry.text("sn")), (Some("A"), None));
        let control = der::element(
            CONTROLS,
            &der::element(
                der::SEQUENCE,
                &[
                    der::element(der::OCTET_STRING, PAGED_RESULTS),
                    der::element(der::OCTET_STRING, b"\x30\x08\x02\x01\x00\x04\x03abc"),
                ]
                .concat(),
            ),
        );
        let done =
            message(2, &der::element(SEARCH_DONE, b"\x0a\x01\x00\x04\x00\x04\x00"), &control);
        let Answer::Done(result, cookie) = Message::parse(&done).unwrap().answer else { panic!() };
        assert_eq!((result.code, cookie), (ResultCode::SUCCESS, Some(b"abc".to_vec())));
        let diagnostic = [b"no\nway ".to_vec(), vec![b'x'; 500]].concat();
        let mut refused = b"\x0a\x01\x35\x04\x00".to_vec();
        der::put(&mut refused, der::OCTET_STRING, &diagnostic);
        let extended = message(1, &der::element(EXTENDED_RESPONSE, &refused), &[]);
        let Answer::Extended(result) = Message::parse(&extended).unwrap().answer else { panic!() };
        assert!(result.diagnostic.starts_with("no way x"), "{result}");
        assert_eq!(result.diagnostic.len(), TOLD_BYTES);
    }

    #[test]
    fn limits_hold() {
        let of = |bytes: u32| [&[0x30, 0x84][..], &bytes.to_be_bytes()].concat();
        let most = u32::try_from(MESSAGE_BYTES - 6).unwrap();
        assert_eq!(length(&of(most)), Ok(Some(MESSAGE_BYTES)));
        assert!(length(&of(most + 1)).is_err());
        assert!(length(&of(u32::MAX)).is_err());
        for begins in [&[][..], &[0x30], &[0x30, 0x84, 0]] {
            assert_eq!(length(begins), Ok(None));
        }
        for wrong in [&[0x31][..], &[0x30, 0x80], &[0x30, 0x85]] {
            assert!(length(wrong).is_err());
        }
        let values = |count: usize| encoded(1, "x", &[("a", &vec!["v"; count])]);
        assert!(Message::parse(&values(VALUES)).is_ok());
        assert!(Message::parse(&values(VALUES + 1)).is_err());
        let attributes = |count: usize| encoded(1, "x", &vec![("a", &["v"][..]); count]);
        assert!(Message::parse(&attributes(ATTRIBUTES)).is_ok());
        assert!(Message::parse(&attributes(ATTRIBUTES + 1)).is_err());
        let named = |bytes: usize| encoded(1, &"x".repeat(bytes), &[]);
        assert!(Message::parse(&named(DN_BYTES)).is_ok());
        assert!(Message::parse(&named(DN_BYTES + 1)).is_err());
    }

    proptest! {
        /// Parts of a message, and messages with a byte that is another one.
        #[test]
        fn no_bytes_panic(at in 0usize..60, byte: u8, cut in 0usize..80) {
            let mut bytes = encoded(2, "uid=ann,dc=x", &[("uid", &["ann", "Ann"]), ("cn", &["A"])]);
            let at = at.min(bytes.len() - 1);
            bytes[at] = byte;
            bytes.truncate(cut);
            if let Ok(Some(whole)) = length(&bytes) {
                prop_assert!(whole <= MESSAGE_BYTES);
            }
            drop(Message::parse(&bytes));
        }

        #[test]
        fn noise_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            drop((length(&bytes), Message::parse(&bytes)));
        }
    }
}
