//! `frevo brake`: clients that the brake of a share has hold of.

use serde_json::{Value, json};

use super::arguments::{BrakeAct, BrakeArguments, ServerPlace};
use super::figures::{number, text};
use super::socket::ask;
use crate::console::print;
use crate::exit::{Done, Failure};
use crate::printable::printable;

/// The kinds that can stand before a name, with a colon.
const KINDS: [&str; 3] = ["user", "session", "share"];

/// The path of the status without what is not needed.
const STATUS: &str = "/status?parts=&limit=100000&latencies=no";

pub(super) async fn run(arguments: &BrakeArguments) -> Done {
    match &arguments.act {
        Some(BrakeAct::Release { target, place }) => {
            // The options may stand before the command as well as after it.
            let is_named = place.socket.is_some() || place.config.is_some();
            let json = place.json || arguments.place.json;
            release(target, if is_named { place } else { &arguments.place }, json).await
        }
        None => list(&arguments.place).await,
    }
}

async fn list(place: &ServerPlace) -> Done {
    let status = parsed(&ask(place, STATUS, None).await?)?;
    let shares = &status["shares"];
    if place.json {
        let rows = rows(shares).filter(|row| row["brake"].is_object());
        let brakes: Vec<Value> =
            rows.map(|row| json!({ "share": row["name"], "brake": row["brake"] })).collect();
        return print(format!("{}\n", Value::from(brakes)).as_bytes());
    }
    if !rows(shares).any(|row| row["brake"].is_object()) {
        return print(b"No share has a brake; see [share.brake] of the configuration.\n");
    }
    let lines = lines(shares);
    print(if lines.is_empty() { b"No brake has hold of a client.\n" } else { lines.as_bytes() })
}

async fn release(target: &str, place: &ServerPlace, as_json: bool) -> Done {
    let (kind, name) = match target.split_once(':') {
        Some((kind, name)) if KINDS.contains(&kind) => (kind, name),
        _ => ("any", target),
    };
    let body = json!({ "kind": kind, "name": name }).to_string();
    let answer = ask(place, "/release", Some(&body)).await?;
    if as_json {
        return print(&[&answer[..], b"\n"].concat());
    }
    let released = parsed(&answer)?;
    let count = match number(&released, "released") {
        1 => String::from("1 client"),
        count => format!("{count} clients"),
    };
    let line = format!("{}: released {count}", text(&released, "target"));
    print(format!("{}\n", printable(&line)).as_bytes())
}

fn parsed(answer: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(answer).map_err(Failure::failed("the server's answer makes no sense"))
}

fn rows(shares: &Value) -> impl Iterator<Item = &Value> {
    shares["rows"].as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// A line for each client that a brake has hold of, or told of lately.
pub(super) fn lines(shares: &Value) -> String {
    let mut lines = String::new();
    for share in rows(shares) {
        let clients = share["brake"]["clients"].as_array().map_or(&[][..], Vec::as_slice);
        for client in clients {
            lines.push_str(&printable(&line(&text(share, "name"), client)));
            lines.push('\n');
        }
    }
    lines
}

fn line(share: &str, client: &Value) -> String {
    let count = number(client, "count");
    let changes = match client["pattern"].as_str() {
        Some("renames") => format!("{count} files got one new extension"),
        Some("deletions") => format!("{count} files were removed"),
        _ => format!("{count} files were overwritten or replaced with data that does not compress"),
    };
    let within = if number(client, "seconds") > 60 { "an hour" } else { "a minute" };
    let state = match client["action"].as_str() {
        Some("slow") => "slowed down",
        Some("hold") => "changes are refused; frevo brake release ends that",
        Some("cut") => "session ended, account refused",
        _ => "told only",
    };
    let (mut user, address) = (text(client, "user"), text(client, "address"));
    if user.is_empty() {
        // Guests have no names.
        user = String::from("(guest)");
    }
    let (session, ago) = (text(client, "session"), number(client, "ago"));
    format!(
        "share {share}: brake: {user} at {address}, session {session}: {changes} in {within}, {ago} s ago ({state})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_line() {
        let client = |action: &str, pattern: &str, seconds: u64| {
            json!({"user": "ann", "address": "192.0.2.7", "session": "0x2a", "action": action,
                "pattern": pattern, "count": 40, "seconds": seconds, "ago": 5})
        };
        let clients = [client("hold", "files", 60), client("alarm", "renames", 60)];
        let shares = json!({"rows": [
            {"name": "a", "brake": {"action": "hold", "alarms": 2, "clients": clients}},
            {"name": "b", "brake": null},
            {"name": "c"},
        ]});
        let text = lines(&shares);
        assert_eq!(
            text,
            "share a: brake: ann at 192.0.2.7, session 0x2a: 40 files were overwritten or replaced with data that \
             does not compress in a minute, 5 s ago (changes are refused; frevo brake release ends that)\n\
             share a: brake: ann at 192.0.2.7, session 0x2a: 40 files got one new extension in a minute, 5 s ago \
             (told only)\n"
        );
        assert_eq!(lines(&Value::Null), "");
        let slow = line("a", &client("slow", "files", 3_600));
        assert!(slow.contains("in an hour") && slow.ends_with("(slowed down)"), "{slow}");
    }
}
