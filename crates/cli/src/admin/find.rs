//! `frevo find --index`: files in the index of a share.

use serde_json::{Value, json};

use super::arguments::ServerPlace;
use super::figures::{number, text};
use super::socket::ask;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};
use crate::remote::arguments::{Find, Kind};
use crate::remote::output::line;

/// Files that one question asks for.
const AT_ONCE: usize = 1_000;

pub(super) async fn run(find: &Find, index: &str) -> Done {
    let place = ServerPlace {
        socket: find.socket.clone(),
        config: find.config.clone(),
        json: find.connection.json,
    };
    let question = question(find, index)?;
    let mut after = None;
    let mut is_complete = true;
    loop {
        let from = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let answer = ask(&place, &format!("{question}{from}"), None).await?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(Failure::failed("the server's answer is not JSON"))?;
        is_complete &= answer["complete"] == true;
        for found in answer["found"].as_array().into_iter().flatten() {
            if !shown(found, place.json) {
                return Ok(());
            }
        }
        after = answer["after"].as_u64();
        if after.is_none() {
            break;
        }
    }
    if !is_complete {
        tell(
            "the index is not complete: files may be missing; `frevo status --json` tells how far it is",
        );
    }
    Ok(())
}

/// Shows a file. False once nobody reads the output.
fn shown(found: &Value, as_json: bool) -> bool {
    let path = text(found, "path").replace('\\', "/");
    if !as_json {
        return line(path);
    }
    line(json!({
        "path": path,
        "kind": found["kind"],
        "size": number(found, "size"),
        "modified": found["modified"],
        "created": found["created"],
        "id": number(found, "id"),
    }))
}

/// The path and the query of the request.
fn question(find: &Find, index: &str) -> Result<String, Failure> {
    let (share, folder) = index.split_once('/').unwrap_or((index, ""));
    if share.is_empty() || share == "smb:" {
        let why = "--index takes the name of a share of this machine's server, such as `photos` or `photos/2024`";
        return Err(Failure::new(Exit::Usage, String::from(why)));
    }
    let mut question = format!("/find?share={}&limit={AT_ONCE}", encoded(share));
    let mut add = |key: &str, value: String| {
        question.push('&');
        question.push_str(key);
        question.push('=');
        question.push_str(&value);
    };
    if !folder.is_empty() {
        add("folder", encoded(folder.trim_matches('/')));
    }
    if let Some(name) = &find.name {
        add("name", encoded(name));
    }
    match find.kind {
        Some(Kind::File) => add("type", String::from("f")),
        Some(Kind::Directory) => add("type", String::from("d")),
        Some(Kind::Link) => {
            let why = "the index does not tell links from files: --type is f or d with --index";
            return Err(Failure::new(Exit::Usage, String::from(why)));
        }
        None => {}
    }
    if let Some(least) = find.min_size {
        add("min_size", least.to_string());
    }
    if let Some(most) = find.max_size {
        add("max_size", most.to_string());
    }
    Ok(question)
}

/// A text as a URL has it.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_url_are_encoded() {
        assert_eq!(encoded("a b/Ä*&.-_"), "a%20b%2f%c3%84%2a%26.-_");
    }
}
