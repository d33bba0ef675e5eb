//! The queries of URLs.

use frevo_server::StatusQuery;

use crate::limits::ROWS_MAX;

/// The status that the query of a URL asks for: `parts=sessions,opens&limit=10&user=ann`.
pub(crate) fn query_of(text: &str) -> Result<StatusQuery, String> {
    let mut query = StatusQuery::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "limit" => {
                let limit: usize =
                    value.parse().map_err(|_| format!("limit={value} is not a number"))?;
                query.limit = limit.min(ROWS_MAX);
            }
            "parts" => {
                let has = |part: &str| value.split(',').any(|one| one == part);
                (query.opens, query.locks, query.leases) =
                    (has("opens"), has("locks"), has("leases"));
            }
            "latencies" => query.latencies = value != "no",
            "user" => query.user = Some(decoded(value)?),
            "share" => query.share = Some(decoded(value)?),
            _ => return Err(format!("there is no parameter {key}")),
        }
    }
    Ok(query)
}

/// The sample after which the query of a URL asks: `since=17`; 0 for all.
pub(crate) fn since_of(text: &str) -> Result<u64, String> {
    match text.strip_prefix("since=") {
        Some(number) => number.parse().map_err(|_| format!("{text} is not the number of a sample")),
        None if text.is_empty() => Ok(0),
        None => Err(format!("there is no parameter {text}")),
    }
}

/// Decodes `%41` and `+` of a URL's query.
pub(crate) fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("\"{text}\" is not valid in a URL");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                u8::try_from(high << 4 | low).map_err(|_| wrong())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_bounded_and_decoded() {
        let query =
            query_of("limit=999999999&parts=opens,locks&user=a%20b%c3%a4&share=x+y").unwrap();
        assert_eq!(query.limit, ROWS_MAX);
        assert_eq!((query.opens, query.locks, query.leases), (true, true, false));
        assert_eq!(query.user.as_deref(), Some("a b\u{e4}"));
        assert_eq!(query.share.as_deref(), Some("x y"));
        for bad in ["limit=-1", "limit=x", "user=%", "user=%4", "user=%zz", "user=%ff", "what=1"] {
            assert!(query_of(bad).is_err(), "{bad}");
        }
        assert!(query_of("").unwrap().leases && query_of("").unwrap().latencies);
        assert!(!query_of("latencies=no").unwrap().latencies);
        assert_eq!((since_of(""), since_of("since=7")), (Ok(0), Ok(7)));
        assert!(since_of("since=").is_err() && since_of("limit=1").is_err());
    }
}
