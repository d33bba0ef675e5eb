//! Searches in the indexes of shares.

use std::time::{Duration, Instant};

use frevo_server::Server;
use frevo_server::index::{Bounds, Cursor, FoundFile, Kind, Match, Query, SearchError, Text};
use hyper::StatusCode;
use serde::Serialize;

use crate::answers::{Answer, json, refusal};
use crate::limits::FOUND_MOST;
use crate::query::decoded;

/// Time of a search before its answer is sent; the client asks for the rest.
const FIND_TIME: Duration = Duration::from_secs(2);

/// A search, as the query of a URL has it.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    share: String,
    folder: String,
    query: Query,
    limit: usize,
    after: Option<Cursor>,
}

/// The answer to a search.
#[derive(Debug, Serialize)]
struct FoundFiles {
    found: Vec<FoundFile>,
    /// The number with which the search goes on. None: these were the last ones.
    after: Option<u32>,
    /// False if the index does not have all files yet, or has no room for all.
    complete: bool,
}

/// Answers a search: `share=photos&name=*.pdf`.
pub(crate) async fn answer(server: &Server, text: &str) -> Answer {
    let wanted = match wanted(text) {
        Ok(wanted) => wanted,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, &why),
    };
    let server = server.clone();
    // Files are looked at before they are told, which may wait for their disk.
    let found = tokio::task::spawn_blocking(move || carry_out(&server, &wanted)).await;
    match found {
        Ok(Ok(found)) => json(&found),
        Ok(Err(error @ SearchError::Query(_))) => {
            refusal(StatusCode::BAD_REQUEST, &error.to_string())
        }
        Ok(Err(error)) => refusal(StatusCode::NOT_FOUND, &error.to_string()),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn carry_out(server: &Server, wanted: &Wanted) -> Result<FoundFiles, SearchError> {
    let Wanted { share, folder, query, limit, after } = wanted;
    let until = Instant::now() + FIND_TIME;
    let (mut found, mut after) = (Vec::new(), *after);
    let complete = loop {
        let most = limit.saturating_sub(found.len());
        let page = server.search(share, folder, query, after, most)?;
        found.extend(page.found);
        after = page.after;
        if after.is_none() || found.len() >= *limit || Instant::now() >= until {
            break page.complete;
        }
    };
    Ok(FoundFiles { found, after: after.map(Cursor::number), complete })
}

/// Reads the query of a URL.
fn wanted(text: &str) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        share: String::new(),
        folder: String::new(),
        query: Query::All,
        limit: FOUND_MOST,
        after: None,
    };
    let mut all = Vec::new();
    let mut size = Bounds { from: None, to: None };
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let number = || value.parse().map_err(|_| format!("{key}={value} is not a number"));
        match key {
            "share" => wanted.share = decoded(value)?,
            "folder" => wanted.folder = decoded(value)?.replace('/', "\\"),
            "name" => {
                let (text, part) = (decoded(value)?, Match::Pattern);
                all.push(Query::Name(Text { text, part, fold_case: true, fold_marks: false }));
            }
            "type" => all.push(Query::Kind(match value {
                "f" => Kind::File,
                "d" => Kind::Folder,
                _ => return Err(format!("type={value} is neither f nor d")),
            })),
            "min_size" => size.from = Some(number()?),
            "max_size" => size.to = Some(number()?),
            "limit" => {
                let most = usize::try_from(number()?).unwrap_or(usize::MAX);
                wanted.limit = most.clamp(1, FOUND_MOST);
            }
            "after" => {
                let number = u32::try_from(number()?).map_err(|_| "after is too large")?;
                wanted.after = Some(Cursor::of_number(number));
            }
            _ => return Err(format!("there is no parameter {key}")),
        }
    }
    if size.from.is_some() || size.to.is_some() {
        all.push(Query::Size(size));
    }
    if !all.is_empty() {
        wanted.query = Query::And(all);
    }
    if wanted.share.is_empty() {
        return Err(String::from("the parameter share is missing"));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_read_and_bounded() {
        let all = wanted("share=a%20b&limit=999999999").unwrap();
        assert_eq!((&*all.share, &all.query, all.limit), ("a b", &Query::All, FOUND_MOST));
        let one =
            wanted("share=a&folder=b/c&name=*.pdf&type=f&max_size=7&after=9&limit=0").unwrap();
        assert_eq!((&*one.folder, one.limit, one.after), ("b\\c", 1, Some(Cursor::of_number(9))));
        let Query::And(all) = one.query else { panic!("one condition alone") };
        assert_eq!(
            all[1..],
            [Query::Kind(Kind::File), Query::Size(Bounds { from: None, to: Some(7) }),]
        );
        for bad in [
            "",
            "name=x",
            "share=a&type=l",
            "share=a&min_size=-1",
            "share=a&after=99999999999",
            "share=a&x=1",
        ] {
            assert!(wanted(bad).is_err(), "{bad}");
        }
    }
}
