//! The methods of mdssvc_cmd, and the messages that answer them.

use super::attributes::{Hit, NAMES};
use super::value::{Cnids, Value};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The result of a method that has failed.
pub(super) const FAILED: u64 = u64::MAX;

/// The result of fetchQueryResultsForContext while there may be more.
pub(super) const MORE: u64 = 35;

/// The numbers by which a client names a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueryKey {
    pub(super) first: u64,
    pub(super) second: u64,
}

impl QueryKey {
    /// The number that answers have.
    fn context(self) -> u32 {
        u32::try_from(self.second & 0xFFFF_FFFF).unwrap_or(0)
    }
}

/// The arguments of openQueryWithParams:forContext:.
#[derive(Debug, PartialEq)]
pub(super) struct OpenQuery<'a> {
    /// kMDQueryString
    pub(super) query: &'a str,
    /// kMDAttributeArray
    pub(super) attributes: Vec<&'a str>,
    /// kMDScopeArray; None for the whole share.
    pub(super) scopes: Option<Vec<&'a str>>,
    /// kMDQueryItemArray: the numbers of files that are told; None for all.
    pub(super) items: Option<&'a [u64]>,
}

/// A method with its arguments.
#[derive(Debug, PartialEq)]
pub(super) enum Method<'a> {
    FetchProperties,
    OpenQuery(Option<OpenQuery<'a>>),
    FetchResults,
    CloseQuery,
    FetchAttributeNames(Option<&'a Cnids>),
    /// The names are None for all attributes.
    FetchAttributes(Option<Vec<&'a str>>, Option<&'a Cnids>),
    StoreAttributes,
    /// A method that there is not.
    Unknown,
}

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(super) struct Called<'a> {
    pub(super) method: Method<'a>,
    pub(super) key: QueryKey,
}

impl<'a> Called<'a> {
    /// Reads a message; None for one that names no method.
    ///
    /// A message is an array of an array, which has the method and the two numbers of the query, and of the
    /// arguments of the method.
    pub(super) fn of(message: &'a [Value]) -> Option<Self> {
        let call = message.first()?.as_array()?;
        let head = call.first()?.as_array()?;
        let name = head.first()?.as_text()?;
        let number = |at: usize| head.get(at).and_then(Value::as_integer).unwrap_or(0);
        let key = QueryKey { first: number(1), second: number(2) };
        let second = call.get(1);
        let cnids = call.iter().find_map(Value::as_cnids);
        let method = match name {
            "fetchPropertiesForContext:" => Method::FetchProperties,
            "openQueryWithParams:forContext:" => Method::OpenQuery(second.and_then(open_query)),
            "fetchQueryResultsForContext:" => Method::FetchResults,
            "closeQueryForContext:" => Method::CloseQuery,
            "fetchAttributeNamesForOIDArray:context:" => Method::FetchAttributeNames(cnids),
            "fetchAttributes:forOIDArray:context:" => {
                Method::FetchAttributes(Some(second.and_then(Value::as_texts)?), cnids)
            }
            "fetchAllAttributes:forOIDArray:context:" => Method::FetchAttributes(None, cnids),
            "storeAttributes:forOIDArray:context:" => Method::StoreAttributes,
            _ => Method::Unknown,
        };
        Some(Self { method, key })
    }
}

fn open_query(params: &Value) -> Option<OpenQuery<'_>> {
    let texts = |key: &str| params.get(key).map(|value| value.as_texts().ok_or(()));
    Some(OpenQuery {
        query: params.get("kMDQueryString")?.as_text()?,
        attributes: texts("kMDAttributeArray").transpose().ok()?.unwrap_or_default(),
        scopes: texts("kMDScopeArray").transpose().ok()?,
        items: match params.get("kMDQueryItemArray") {
            None => None,
            Some(Value::Array(items)) => Some(&*items.first()?.as_cnids()?.ids),
            Some(items) => Some(&*items.as_cnids()?.ids),
        },
    })
}

/// The answer that has a result alone.
pub(super) fn result(result: u64) -> Vec<Value> {
    vec![Value::Array(vec![Value::Integer(result)])]
}

/// The answer to fetchPropertiesForContext:, with the keys of Samba.
pub(super) fn properties(uuid: [u8; 16]) -> Vec<Value> {
    let texts = |texts: &[&str]| Value::Array(texts.iter().copied().map(Value::text).collect());
    let entries = [
        ("kMDSStoreHasPersistentUUID", Value::Bool(true)),
        ("kMDSStoreIsBackup", Value::Bool(false)),
        ("kMDSStoreUUID", Value::Uuid(uuid)),
        ("kMDSStoreSupportsVolFS", Value::Bool(true)),
        ("kMDSVolumeUUID", Value::Uuid(uuid)),
        ("kMDSDiskStoreSpindleNumber", Value::Integer(1)),
        ("kMDSDiskStorePolicy", Value::Integer(3)),
        (
            "kMDSStoreMetaScopes",
            texts(&[
                "kMDQueryScopeComputer",
                "kMDQueryScopeAllIndexed",
                "kMDQueryScopeComputerIndexed",
            ]),
        ),
        ("kMDSStoreDevice", Value::Integer(0x0100_0003)),
        ("kMDSStoreSupportsTCC", Value::Bool(true)),
        ("kMDSStorePathScopes", Value::Array(vec![Value::WideText("/".into())])),
    ];
    let entries = entries.into_iter().flat_map(|(key, value)| [Value::text(key), value]);
    vec![Value::Dictionary(entries.collect())]
}

/// The answer to fetchQueryResultsForContext:. `rows` are the attributes of each file.
pub(super) fn results(
    status: u64,
    key: QueryKey,
    ids: Vec<u64>,
    rows: Vec<Vec<Value>>,
) -> Vec<Value> {
    let cnids = Cnids { kind: Cnids::OF_RESULTS, context: key.context(), ids };
    // The attributes begin with nothing, in the place of their names.
    let nested = core::iter::once(Value::Nil).chain(rows.into_iter().map(Value::Array));
    let nested = if cnids.ids.is_empty() { vec![] } else { vec![Value::Array(nested.collect())] };
    vec![Value::Array(vec![Value::Integer(status), Value::Cnids(cnids), Value::FileMeta(nested)])]
}

/// The answer about attributes of the first file of `asked`, whose numbers it repeats.
fn of_file(asked: &Cnids, attributes: Vec<Value>) -> Vec<Value> {
    let Cnids { context, ids, .. } = asked;
    let ids = ids.iter().copied().take(1).collect();
    let cnids = Cnids { kind: Cnids::OF_ATTRIBUTES, context: *context, ids };
    vec![Value::Array(vec![
        Value::Integer(0),
        Value::Cnids(cnids),
        Value::FileMeta(vec![Value::Array(attributes)]),
    ])]
}

fn names() -> Value {
    Value::Array(NAMES.iter().copied().map(Value::text).collect())
}

/// The answer to fetchAttributeNamesForOIDArray:context:.
pub(super) fn attribute_names(asked: &Cnids) -> Vec<Value> {
    of_file(asked, vec![names()])
}

/// The answer to fetchAttributes:forOIDArray:context:, and to fetchAllAttributes if no names are `wanted`.
/// `found` is None for a file that no query of the pipe has told.
pub(super) fn attributes(
    asked: &Cnids,
    wanted: Option<&[&str]>,
    found: Option<&Hit>,
    root: &str,
) -> Vec<Value> {
    let Some(found) = found else { return of_file(asked, vec![Value::Nil, Value::Nil]) };
    let values = |names: &[&str]| {
        Value::Array(names.iter().map(|name| found.attribute(name, root)).collect())
    };
    let told = match wanted {
        Some(wanted) => vec![Value::Nil, values(wanted)],
        None => vec![names(), values(&NAMES)],
    };
    of_file(asked, told)
}

/// Owned copies of texts.
pub(super) fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).into()).collect()
}
