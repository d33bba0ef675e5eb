//! `frevo kick`.

use serde_json::{Value, json};

use super::arguments::KickArguments;
use super::figures::{number, text};
use super::socket::ask;
use crate::console::print;
use crate::exit::{Done, Failure};
use crate::printable::printable;

/// The kinds that can stand before a name, with a colon.
const KINDS: [&str; 5] = ["user", "session", "open", "share", "rpc"];

pub(super) async fn run(arguments: &KickArguments) -> Done {
    let (kind, name) = match arguments.target.split_once(':') {
        Some((kind, name)) if KINDS.contains(&kind) => (kind, name),
        _ => ("any", &*arguments.target),
    };
    let body = json!({ "kind": kind, "name": name }).to_string();
    let answer = ask(&arguments.place, "/kick", Some(&body)).await?;
    if arguments.place.json {
        return print(&[&answer[..], b"\n"].concat());
    }
    let kicked: Value = serde_json::from_slice(&answer)
        .map_err(Failure::failed("the server's answer makes no sense"))?;
    let counts = [
        ("sessions", "session"),
        ("connects", "use of the share"),
        ("opens", "open file"),
        ("rpc_connections", "RPC connection"),
    ];
    let ended = counts.iter().filter_map(|(field, name)| {
        let count = number(&kicked, field);
        let many = if *name == "use of the share" { "uses of the share" } else { "" };
        match count {
            0 => None,
            1 => Some(format!("1 {name}")),
            _ if many.is_empty() => Some(format!("{count} {name}s")),
            _ => Some(format!("{count} {many}")),
        }
    });
    let ended: Vec<String> = ended.collect();
    let line = format!("{}: ended {}\n", text(&kicked, "target"), ended.join(", "));
    print(printable(line.trim_end()).as_bytes())?;
    print(b"\n")
}
