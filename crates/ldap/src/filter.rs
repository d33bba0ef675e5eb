//! Filters of searches: RFC 4515, with places for the name, the entry and the group of an account.
//!
//! A filter of a configuration is read once. The values of an account are put into the parsed filter, never
//! into its text, so that no name can change its meaning.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use frevo_auth::der;

use crate::limits::{FILTER_BYTES, FILTER_DEPTH};

const AND: u8 = der::context(0);
const OR: u8 = der::context(1);
const NOT: u8 = der::context(2);
const EQUALITY: u8 = der::context(3);
const SUBSTRINGS: u8 = der::context(4);
const GREATER_OR_EQUAL: u8 = der::context(5);
const LESS_OR_EQUAL: u8 = der::context(6);
const PRESENT: u8 = 0x87;
const APPROXIMATE: u8 = der::context(8);

/// The values that stand for the places of a filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Values<'a> {
    /// The value of `{user}`: the name of an account. None for every account: an attribute that is compared
    /// with it has to be there.
    pub user: Option<&'a str>,
    /// The value of `{dn}`: the name of the account's entry. None before it is found.
    pub dn: Option<&'a str>,
    /// The value of `{gid}`: the number of the account's first group. None for an account without one.
    pub gid: Option<&'a str>,
}

/// A filter with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Node);

/// The reason why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterFault(&'static str);

impl fmt::Display for FilterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for FilterFault {}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// An attribute is compared: equality, order or likeness, by the tag.
    Compared {
        tag: u8,
        attribute: String,
        value: Vec<Part>,
    },
    Present(String),
    /// The parts between stars; the first and the last one may be empty.
    Like {
        attribute: String,
        pieces: Vec<Vec<Part>>,
    },
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    User,
    Dn,
    Gid,
}

/// The places, as they are written.
static PLACES: [(&str, Part); 3] =
    [("{user}", Part::User), ("{dn}", Part::Dn), ("{gid}", Part::Gid)];

impl Filter {
    /// Reads a filter such as `(&(objectClass=posixAccount)(uid={user}))`.
    ///
    /// # Errors
    /// The reason why the text is none.
    pub fn parse(text: &str) -> Result<Self, FilterFault> {
        if text.len() > FILTER_BYTES {
            return Err(FilterFault("it is too long"));
        }
        let mut rest = text.trim();
        let node = node(&mut rest, FILTER_DEPTH)?;
        if rest.is_empty() { Ok(Self(node)) } else { Err(FilterFault("something follows it")) }
    }

    /// True if the filter has a place for the name of an account.
    pub fn asks_for_user(&self) -> bool {
        self.0.has(&Part::User)
    }

    /// Encodes the filter with these values. A comparison with a value that is missing holds for no entry, so
    /// it is left out; None if nothing is left.
    pub fn encode(&self, values: &Values<'_>) -> Option<Vec<u8>> {
        self.0.encode(values)
    }
}

impl Node {
    fn has(&self, place: &Part) -> bool {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().any(|node| node.has(place)),
            Self::Not(node) => node.has(place),
            Self::Compared { value, .. } => value.contains(place),
            Self::Present(_) => false,
            Self::Like { pieces, .. } => pieces.iter().any(|piece| piece.contains(place)),
        }
    }

    fn encode(&self, values: &Values<'_>) -> Option<Vec<u8>> {
        match self {
            Self::All(nodes) => {
                let nodes: Option<Vec<_>> = nodes.iter().map(|node| node.encode(values)).collect();
                Some(der::element(AND, &nodes?.concat()))
            }
            Self::Any(nodes) => {
                let nodes: Vec<_> = nodes.iter().filter_map(|node| node.encode(values)).collect();
                (!nodes.is_empty()).then(|| der::element(OR, &nodes.concat()))
            }
            Self::Not(node) => Some(der::element(NOT, &node.encode(values)?)),
            Self::Compared { attribute, value, .. } if is_open(value, values) => {
                Some(der::element(PRESENT, attribute.as_bytes()))
            }
            Self::Compared { tag, attribute, value } => {
                let mut pair = der::element(der::OCTET_STRING, attribute.as_bytes());
                der::put(&mut pair, der::OCTET_STRING, &filled(value, values)?);
                Some(der::element(*tag, &pair))
            }
            Self::Like { attribute, pieces } if pieces.iter().any(|one| is_open(one, values)) => {
                Some(der::element(PRESENT, attribute.as_bytes()))
            }
            Self::Present(attribute) => Some(der::element(PRESENT, attribute.as_bytes())),
            Self::Like { attribute, pieces } => {
                let mut parts = Vec::new();
                let last = pieces.len().saturating_sub(1);
                for (at, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.is_empty())
                {
                    // RFC 4511 4.5.1: initial [0], any [1], final [2].
                    let tag = match at {
                        0 => 0x80,
                        at if at == last => 0x82,
                        _ => 0x81,
                    };
                    der::put(&mut parts, tag, &filled(piece, values)?);
                }
                let mut pair = der::element(der::OCTET_STRING, attribute.as_bytes());
                der::put(&mut pair, der::SEQUENCE, &parts);
                Some(der::element(SUBSTRINGS, &pair))
            }
        }
    }
}

/// True for a value with the name of an account, where every account is meant.
fn is_open(value: &[Part], values: &Values<'_>) -> bool {
    values.user.is_none() && value.contains(&Part::User)
}

fn filled(value: &[Part], values: &Values<'_>) -> Option<Vec<u8>> {
    let mut filled = Vec::new();
    for part in value {
        filled.extend_from_slice(match part {
            Part::Bytes(bytes) => bytes,
            Part::User => values.user?.as_bytes(),
            Part::Dn => values.dn?.as_bytes(),
            Part::Gid => values.gid?.as_bytes(),
        });
    }
    Some(filled)
}

fn node(rest: &mut &str, depth: usize) -> Result<Node, FilterFault> {
    let depth = depth.checked_sub(1).ok_or(FilterFault("it is nested too deeply"))?;
    let inner = rest.strip_prefix('(').ok_or(FilterFault("it must begin with ("))?;
    *rest = inner;
    let node = match inner.chars().next() {
        Some('&') => Node::All(nodes(rest, depth)?),
        Some('|') => Node::Any(nodes(rest, depth)?),
        Some('!') => {
            *rest = inner.get(1..).unwrap_or_default();
            Node::Not(Box::new(node(rest, depth)?))
        }
        _ => {
            let end = inner.find(')').ok_or(FilterFault("a ) is missing"))?;
            let (item, after) = inner.split_at(end);
            *rest = after;
            compared(item)?
        }
    };
    *rest = rest.strip_prefix(')').ok_or(FilterFault("a ) is missing"))?;
    Ok(node)
}

/// Reads the filters behind `&` or `|`.
fn nodes(rest: &mut &str, depth: usize) -> Result<Vec<Node>, FilterFault> {
    *rest = rest.get(1..).unwrap_or_default();
    let mut nodes = Vec::new();
    while rest.starts_with('(') {
        nodes.push(node(rest, depth)?);
    }
    if nodes.is_empty() {
        return Err(FilterFault("& and | need a filter behind them"));
    }
    Ok(nodes)
}

fn compared(item: &str) -> Result<Node, FilterFault> {
    let (name, value) = item.split_once('=').ok_or(FilterFault("a comparison has no ="))?;
    let (tag, name) = match name.strip_suffix(['>', '<', '~', ':']) {
        Some(bare) if name.ends_with('>') => (GREATER_OR_EQUAL, bare),
        Some(bare) if name.ends_with('<') => (LESS_OR_EQUAL, bare),
        Some(bare) if name.ends_with('~') => (APPROXIMATE, bare),
        Some(_) => return Err(FilterFault("rules of matching (:=) are not supported")),
        None => (EQUALITY, name),
    };
    if !is_attribute(name) {
        return Err(FilterFault("the name of an attribute has letters, digits, - and ; only"));
    }
    let attribute = String::from(name);
    if value == "*" && tag == EQUALITY {
        return Ok(Node::Present(attribute));
    }
    if !value.contains('*') {
        return Ok(Node::Compared { tag, attribute, value: parts(value)? });
    }
    if tag != EQUALITY {
        return Err(FilterFault("a star stands behind = only"));
    }
    let pieces = value.split('*').map(parts).collect::<Result<Vec<_>, _>>()?;
    let mut between = pieces.iter().skip(1).rev().skip(1);
    if between.any(Vec::is_empty) || pieces.iter().all(Vec::is_empty) {
        return Err(FilterFault("two stars stand side by side"));
    }
    Ok(Node::Like { attribute, pieces })
}

/// True for the name of an attribute, or its number: RFC 4512 2.5.
pub fn is_attribute(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-;.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Reads a value: `\2a` is the byte 2a.
fn parts(text: &str) -> Result<Vec<Part>, FilterFault> {
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((word, part)) = PLACES.iter().find(|(word, _)| rest.starts_with(word)) {
            if !bytes.is_empty() {
                parts.push(Part::Bytes(core::mem::take(&mut bytes)));
            }
            parts.push(part.clone());
            rest = rest.get(word.len()..).unwrap_or_default();
            continue;
        }
        let after = rest.get(first.len_utf8()..).unwrap_or_default();
        match first {
            '\\' => {
                let digits = after.get(..2).filter(|digits| !digits.starts_with('+'));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.ok_or(FilterFault("\\ needs two hexadecimal digits behind it"))?);
                rest = after.get(2..).unwrap_or_default();
            }
            '(' | '\0' => return Err(FilterFault("( in a value is written \\28")),
            '{' => return Err(FilterFault("the places are {user}, {dn} and {gid}")),
            _ => {
                bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
        }
    }
    if !bytes.is_empty() {
        parts.push(Part::Bytes(bytes));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString as _;
    use proptest::prelude::*;

    const ANN: Values<'_> = Values { user: Some("ann"), dn: Some("uid=ann,dc=x"), gid: None };

    fn encoded(text: &str, values: &Values<'_>) -> Option<Vec<u8>> {
        Filter::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}")).encode(values)
    }

    #[test]
    fn the_forms_of_the_rfc() {
        assert_eq!(encoded("(uid={user})", &ANN).unwrap(), b"\xa3\x0a\x04\x03uid\x04\x03ann");
        assert_eq!(encoded("(uid=*)", &ANN).unwrap(), b"\x87\x03uid");
        assert_eq!(
            encoded("(&(a=1)(!(b>=2)))", &ANN).unwrap(),
            b"\xa0\x12\xa3\x06\x04\x01a\x04\x011\xa2\x08\xa5\x06\x04\x01b\x04\x012"
        );
        assert_eq!(
            encoded("(cn=a*b*c)", &ANN).unwrap(),
            b"\xa4\x0f\x04\x02cn\x30\x09\x80\x01a\x81\x01b\x82\x01c"
        );
        assert_eq!(encoded("(cn=*b)", &ANN).unwrap(), b"\xa4\x09\x04\x02cn\x30\x03\x82\x01b");
        assert_eq!(encoded("(cn=b*)", &ANN).unwrap(), b"\xa4\x09\x04\x02cn\x30\x03\x80\x01b");
        // RFC 4515 4: examples with escapes.
        let escaped = encoded("(o=R Us \\28all\\29)", &ANN).unwrap();
        assert_eq!(escaped, b"\xa3\x0f\x04\x01o\x04\x0aR Us (all)");
        let escaped = encoded("(sn=Lu\\c4\\8di\\c4\\87)", &ANN).unwrap();
        assert!(escaped.ends_with("Lučić".as_bytes()));
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for (text, why) in [
            ("", "begin with ("),
            ("uid=ann", "begin with ("),
            ("(uid=ann", ") is missing"),
            ("(uid=ann))", "follows"),
            ("(&)", "need a filter"),
            ("(uid)", "no ="),
            ("(=x)", "attribute"),
            ("(u id=x)", "attribute"),
            ("(cn:dn:=x)", "not supported"),
            ("(cn=a**b)", "side by side"),
            ("(cn=**)", "side by side"),
            ("(cn>=a*)", "star"),
            ("(cn=\\2)", "hexadecimal"),
            ("(cn=\\zz)", "hexadecimal"),
            ("(cn={name})", "places"),
        ] {
            let fault = Filter::parse(text).unwrap_err().to_string();
            assert!(fault.contains(why), "{text}: {fault}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(FILTER_DEPTH), ")".repeat(FILTER_DEPTH));
        assert_eq!(Filter::parse(&deep).unwrap_err().0, "it is nested too deeply");
        let fits =
            format!("{}(a=b){}", "(!".repeat(FILTER_DEPTH - 1), ")".repeat(FILTER_DEPTH - 1));
        assert!(Filter::parse(&fits).is_ok());
        let long = |bytes: usize| format!("(a={})", "x".repeat(bytes - 4));
        assert!(Filter::parse(&long(FILTER_BYTES)).is_ok());
        assert!(Filter::parse(&long(FILTER_BYTES + 1)).is_err());
    }

    #[test]
    fn a_value_that_is_missing_holds_for_nobody() {
        let one = "(|(&(objectClass=posixGroup)(gidNumber={gid}))(member={dn}))";
        assert_eq!(encoded(one, &ANN).unwrap(), encoded("(|(member={dn}))", &ANN).unwrap());
        assert_eq!(encoded("(gidNumber={gid})", &ANN), None);
        assert_eq!(encoded("(!(gidNumber={gid}))", &ANN), None);
        assert_eq!(encoded("(uid={user})", &Values::default()).unwrap(), b"\x87\x03uid");
        assert_eq!(encoded("(uid=*{user})", &Values::default()).unwrap(), b"\x87\x03uid");
        assert!(Filter::parse("(&(a=b)(uid=x{user}y))").unwrap().asks_for_user());
        assert!(!Filter::parse(one).unwrap().asks_for_user());
    }

    proptest! {
        /// A name is one value, whatever it is.
        #[test]
        fn no_name_changes_a_filter(user in "\\PC{0,40}") {
            let values = Values { user: Some(&user), ..Values::default() };
            let encoded = encoded("(&(objectClass=person)(uid={user}))", &values).unwrap();
            let mut inner = der::Elements::new(der::only(&encoded, AND, "and").unwrap());
            let other = inner.expect(EQUALITY, "objectClass").unwrap();
            prop_assert_eq!(other, &b"\x04\x0bobjectClass\x04\x06person"[..]);
            let mut pair = der::Elements::new(inner.expect(EQUALITY, "uid").unwrap());
            prop_assert_eq!(pair.expect(der::OCTET_STRING, "uid").unwrap(), b"uid");
            prop_assert_eq!(pair.expect(der::OCTET_STRING, "value").unwrap(), user.as_bytes());
            prop_assert!(pair.is_empty() && inner.is_empty());
        }

        #[test]
        fn no_text_panics(text in "[()&|!=*\\\\{}a-z>~:<]{0,60}") {
            if let Ok(filter) = Filter::parse(&text) {
                drop(filter.encode(&ANN));
            }
        }
    }
}
