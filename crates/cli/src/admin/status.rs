//! `frevo status` and `frevo opens`.

use frevo_snapshots::Second;
use serde_json::Value;

use super::arguments::{OpensArguments, Rows, ServerPlace, StatusArguments};
use super::figures::{bytes, float, number, protection, span, text};
use super::socket::ask;
use super::{brake, quotas, reload, snapshots};
use crate::console::print;
use crate::exit::{Done, Failure};
use crate::printable::printable;
use crate::text_table::{Align, Table};

/// Rows of each list for people, unless they want more.
const ROWS_SHOWN: usize = 50;

use Align::{Left, Right};

pub(super) async fn status(arguments: &StatusArguments) -> Done {
    let answer = fetch(&arguments.place, &arguments.rows, "opens,locks,leases").await?;
    let mut status = parsed(&answer)?;
    // A server of an older version does not know these requests, so an error only means that this part is not
    // shown.
    if let Ok(answer) = ask(&arguments.place, "/shares", None).await {
        add_health(&mut status["shares"], &parsed(&answer)?);
    }
    for part in ["configuration", "snapshots", "quotas"] {
        if let Ok(answer) = ask(&arguments.place, &format!("/{part}"), None).await {
            status[part] = parsed(&answer)?;
        }
    }
    if arguments.place.json {
        return print(format!("{status}\n").as_bytes());
    }
    print(shown(&status).as_bytes())
}

/// The text of a status.
fn shown(status: &Value) -> String {
    let mut out = headline(status);
    out.push_str(&refused(&status["configuration"]));
    section(&mut out, "sessions", &status["sessions"], sessions);
    let of_sessions = serde_json::json!({"rows": status["sessions"]["rows"]});
    section(&mut out, "channels", &of_sessions, channels);
    section(&mut out, "shares", &status["shares"], shares);
    out.push_str(&unhealthy(&status["shares"]));
    out.push_str(&of_guests(&status["shares"]));
    out.push_str(&brake::lines(&status["shares"]));
    out.push_str(&saved(&status["shares"]));
    out.push_str(&not_served(&status["configuration"]));
    let of = |part| status[part].clone();
    out.push_str(&snapshots::shown(
        &serde_json::from_value::<Vec<_>>(of("snapshots")).unwrap_or_default(),
    ));
    let owners = serde_json::from_value::<Vec<_>>(of("quotas")).unwrap_or_default();
    out.push_str(&quotas::shown(&owners, quotas::owner_name));
    section(&mut out, "open files", &status["opens"], open_files);
    section(&mut out, "locks", &status["locks"], locks);
    section(&mut out, "leases", &status["leases"], leases);
    section(&mut out, "RPC connections", &status["rpc_connections"], rpc_connections);
    section(&mut out, "clients of the witness", &status["witness"], witness);
    section(&mut out, "servers of namespaces", &status["targets"], targets);
    section(&mut out, "limits of rate", &status["rates"], rates);
    section(&mut out, "held back most", &most_held(&status["rates"]), held_most);
    section(&mut out, "sessions that wait for limits", &held(status), held_sessions);
    out
}

/// A line about a configuration that was refused. Empty without.
fn refused(configuration: &Value) -> String {
    let refused = &configuration["refused"];
    if refused.is_null() {
        return String::new();
    }
    let since = Second::new(number(refused, "since")).map(|since| since.to_string());
    format!(
        "the files of the configuration are refused since {}, and the configuration before is in force: {}\n",
        since.unwrap_or_default(),
        printable(&text(refused, "why"))
    )
}

/// A line for each share of the configuration that is not served.
fn not_served(configuration: &Value) -> String {
    let shares = configuration["not_served"].as_array().map_or(&[][..], Vec::as_slice);
    shares.iter().map(|share| format!("{}\n", reload::not_served(share))).collect()
}

/// The sessions that a limit of rate holds back now.
fn held(status: &Value) -> Value {
    let rows = status["sessions"]["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let held: Vec<&Value> = rows.iter().filter(|row| row["limited_by"].is_string()).collect();
    serde_json::json!({ "rows": held })
}

fn held_sessions(rows: &[Value]) -> Table {
    let mut table =
        Table::new(&[("HELD SESSION", Left), ("USER", Left), ("ADDRESS", Left), ("LIMIT", Left)]);
    for row in rows {
        table.row(&["id", "user", "address", "limited_by"].map(|key| text(row, key)));
    }
    table
}

/// Limits of rate, and what they hold back.
fn rates(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("LIMIT", Left),
        ("READ", Right),
        ("WRITE", Right),
        ("OPERATIONS", Right),
        ("EACH", Left),
        ("WAITING", Right),
        ("HELD", Right),
        ("FOR", Right),
    ]);
    for row in rows {
        let rate =
            |key| row[key].as_u64().map_or_else(String::new, |n| format!("{}/s", bytes(float(n))));
        let operations = row["operations"].as_u64().map_or_else(String::new, |n| format!("{n}/s"));
        // The limits of each user: `user (3)` with three of them.
        let each = row["each"].as_str();
        let each =
            each.map_or_else(String::new, |one| format!("{one} ({})", number(row, "buckets")));
        table.row(&[
            text(row, "name"),
            rate("read"),
            rate("write"),
            operations,
            each,
            number(row, "waiting").to_string(),
            number(row, "held").to_string(),
            format!("{} s", number(row, "held_us") / 1_000_000),
        ]);
    }
    table
}

/// The users, sessions and addresses that limits of rate hold back most.
fn most_held(rates: &Value) -> Value {
    let rows = |of: &Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let mut held = Vec::new();
    for rate in rows(rates, "rows") {
        for mut one in rows(&rate, "most_held") {
            one["limit"] = rate["name"].clone();
            held.push(one);
        }
    }
    serde_json::json!({ "rows": held })
}

fn held_most(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("HELD BACK", Left),
        ("LIMIT", Left),
        ("BY", Left),
        ("WAITING", Right),
        ("HELD", Right),
        ("FOR", Right),
    ]);
    for row in rows {
        let waited = format!("{} s", number(row, "held_us") / 1_000_000);
        let [waiting, held] = ["waiting", "held"].map(|key| number(row, key).to_string());
        table.row(&[text(row, "who"), text(row, "limit"), text(row, "by"), waiting, held, waited]);
    }
    table
}

/// Adds the state of its folder to each share.
fn add_health(shares: &mut Value, health: &Value) {
    let rows = shares["rows"].as_array_mut();
    for row in rows.into_iter().flatten() {
        let looks = health["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let look = looks.iter().find(|look| look["name"] == row["name"]);
        row["health"] = look.cloned().unwrap_or_default();
    }
}

/// A line for each share whose folder cannot be used.
fn unhealthy(shares: &Value) -> String {
    let rows = shares["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = String::new();
    for row in rows {
        let health = &row["health"];
        if matches!(health["state"].as_str(), Some("failed" | "no_answer")) {
            let (name, why) = (text(row, "name"), text(health, "reason"));
            lines.push_str(&format!("share {}: {}\n", printable(&name), printable(&why)));
        }
    }
    lines
}

/// A line for each share whose data was sent compressed.
fn saved(shares: &Value) -> String {
    let rows = shares["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let line = |row: &Value| {
        let (name, saved) = (printable(&text(row, "name")), number(row, "saved"));
        format!("share {name}: compression has saved {}\n", bytes(float(saved)))
    };
    rows.iter().filter(|row| number(row, "saved") > 0).map(line).collect()
}

/// A line for each share that lets guests in.
fn of_guests(shares: &Value) -> String {
    let rows = shares["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let line = |row: &Value| {
        let rights = row["guests"].as_str()?;
        Some(format!("share {}: guests may {}\n", printable(&text(row, "name")), printable(rights)))
    };
    rows.iter().filter_map(line).collect()
}

pub(super) async fn opens(arguments: &OpensArguments) -> Done {
    let answer = fetch(&arguments.place, &arguments.rows, "opens").await?;
    let status = parsed(&answer)?;
    let opens = &status["opens"];
    if arguments.place.json {
        return print(format!("{opens}\n").as_bytes());
    }
    let mut out = String::new();
    section(&mut out, "open files", opens, open_files);
    if out.is_empty() {
        out.push_str("no files are open\n");
    }
    print(out.trim_start_matches('\n').as_bytes())
}

/// Gets the parts of a status, as the server sends them.
async fn fetch(place: &ServerPlace, rows: &Rows, parts: &str) -> Result<Vec<u8>, Failure> {
    let mut path = format!("/status?parts={parts}");
    let limit = rows.limit.or((!place.json).then_some(ROWS_SHOWN));
    if let Some(limit) = limit {
        path.push_str(&format!("&limit={limit}"));
    }
    for (key, value) in [("user", &rows.user), ("share", &rows.share)] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", encoded(value)));
        }
    }
    ask(place, &path, None).await
}

pub(super) fn parsed(answer: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(answer).map_err(Failure::failed("the server's answer makes no sense"))
}

/// Text as a part of a URL's query.
fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(
            |byte| {
                if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

fn headline(status: &Value) -> String {
    let server = &status["server"];
    let up = number(server, "now").saturating_sub(number(server, "started"));
    let activity = &server["activity"];
    let flow = |field| bytes(float(number(activity, field)));
    let mut line = format!(
        "{}: frevo {}, up {}; {}, {}; {} received, {} sent",
        printable(&text(server, "name")),
        text(server, "version"),
        span(up),
        counted(number(server, "sessions"), "session"),
        counted(number(server, "opens"), "open file"),
        flow("received"),
        flow("sent"),
    );
    let waiting = number(server, "waiting_opens");
    if waiting > 0 {
        line.push_str(&format!("; {} for a lost client", counted(waiting, "file waits")));
    }
    line.push('\n');
    line
}

/// Adds a table of `list`, if it has rows.
fn section(out: &mut String, name: &str, list: &Value, make: fn(&[Value]) -> Table) {
    let rows = list["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let table = make(rows);
    if table.is_empty() {
        return;
    }
    out.push('\n');
    for line in table.lines() {
        out.push_str(&line);
        out.push('\n');
    }
    let more = number(list, "more");
    if more > 0 {
        out.push_str(&format!("{more} more {name}; --limit N shows more\n"));
    }
}

fn sessions(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("SESSION", Left),
        ("USER", Left),
        ("ADDRESS", Left),
        ("CLIENT", Left),
        ("DIALECT", Left),
        ("PROTECTION", Left),
        ("CHANNELS", Right),
        ("CREDITS", Right),
        ("OPEN", Right),
        ("OPERATIONS", Right),
        ("IN", Right),
        ("OUT", Right),
        ("IDLE", Right),
    ]);
    for row in rows {
        let activity = &row["activity"];
        let channels = row["channels"].as_array().map_or(&[][..], Vec::as_slice);
        let credits: u64 = channels.iter().map(|channel| number(channel, "credits")).sum();
        table.row(&[
            text(row, "id"),
            if row["guest"] == true { String::from("(guest)") } else { text(row, "user") },
            text(row, "address"),
            text(row, "client"),
            text(row, "dialect"),
            protection(row),
            channels.len().to_string(),
            credits.to_string(),
            number(row, "opens").to_string(),
            number(activity, "operations").to_string(),
            bytes(float(number(activity, "received"))),
            bytes(float(number(activity, "sent"))),
            span(number(row, "idle_ms") / 1000),
        ]);
    }
    table
}

/// Connections of remote procedure calls over TCP.
fn rpc_connections(rows: &[Value]) -> Table {
    let columns = [("RPC", Left), ("USER", Left), ("ADDRESS", Left), ("TO", Left)];
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(&["id", "user", "address", "server_address"].map(|field| text(row, field)));
    }
    table
}

/// Clients of other nodes of the cluster, which have registered with the witness of this one.
fn witness(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("CLIENT", Left),
        ("USER", Left),
        ("FROM", Left),
        ("USES", Left),
        ("SHARE", Left),
        ("NEWS", Left),
    ]);
    for row in rows {
        let news = match (number(row, "queued"), row["waiting"].as_bool()) {
            (0, Some(true)) => "waits".to_owned(),
            (queued, _) => format!("{queued} not fetched"),
        };
        table.row(&[
            text(row, "client"),
            text(row, "user"),
            text(row, "address"),
            text(row, "server_address"),
            text(row, "share"),
            news,
        ]);
    }
    table
}

/// Servers that links of namespaces lead to.
fn targets(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("TARGET SERVER", Left),
        ("STATE", Left),
        ("ADDRESSES", Left),
        ("REASON", Left),
    ]);
    for row in rows {
        let addresses = row["addresses"].as_array().map_or(&[][..], Vec::as_slice);
        let addresses: Vec<&str> = addresses.iter().filter_map(Value::as_str).collect();
        let state = text(row, "state").replace('_', " ");
        table.row(&[text(row, "server"), state, addresses.join(", "), text(row, "reason")]);
    }
    table
}

/// The channels of sessions that have several, with what each carried.
fn channels(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("SESSION", Left),
        ("CHANNEL FROM", Left),
        ("TO", Left),
        ("OPERATIONS", Right),
        ("IN", Right),
        ("OUT", Right),
    ]);
    for row in rows {
        let channels = row["channels"].as_array().map_or(&[][..], Vec::as_slice);
        for channel in channels.iter().filter(|_| channels.len() > 1) {
            table.row(&[
                text(row, "id"),
                text(channel, "address"),
                text(channel, "server_address"),
                number(channel, "operations").to_string(),
                bytes(float(number(channel, "received"))),
                bytes(float(number(channel, "sent"))),
            ]);
        }
    }
    table
}

fn shares(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("SHARE", Left),
        ("SESSIONS", Right),
        ("OPEN", Right),
        ("FREE", Right),
        ("OPTIONS", Left),
        ("COMMENT", Left),
    ]);
    for row in rows {
        let options = [
            ("read_only", "read-only"),
            ("write_once", "write once"),
            ("scanned", "scanned"),
            ("encrypt", "encrypted"),
            ("hidden", "hidden"),
        ];
        let options = options.iter().filter(|(field, _)| row[*field] == true);
        let options = options.map(|(_, name)| *name).chain(index_word(&row["index"]));
        let options: Vec<&str> = options.collect();
        table.row(&[
            text(row, "name"),
            number(row, "connections").to_string(),
            number(row, "opens").to_string(),
            row["health"]["available"].as_u64().map(float).map(bytes).unwrap_or_default(),
            options.join(", "),
            text(row, "comment"),
        ]);
    }
    table
}

/// The state of a share's index. None without one.
fn index_word(index: &Value) -> Option<&'static str> {
    let is = |field: &str| index[field] == true;
    match index {
        Value::Null => None,
        _ if is("full") => Some("index full"),
        _ if is("complete") => Some("indexed"),
        _ => Some("being indexed"),
    }
}

fn open_files(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("OPEN", Left),
        ("USER", Left),
        ("SHARE", Left),
        ("ACCESS", Left),
        ("SHARING", Left),
        ("CACHING", Left),
        ("LOCKS", Right),
        ("KEPT", Left),
        ("PATH", Left),
    ]);
    for row in rows {
        let path = text(row, "path");
        let path = if path.is_empty() { String::from("\\") } else { path };
        table.row(&[
            text(row, "id"),
            text(row, "user"),
            text(row, "share"),
            text(row, "access"),
            text(row, "sharing"),
            text(row, "caching"),
            number(row, "locks").to_string(),
            text(row, "durable"),
            if row["kind"] == "directory" && path != "\\" { format!("{path}\\") } else { path },
        ]);
    }
    table
}

fn locks(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("LOCK", Left),
        ("USER", Left),
        ("OFFSET", Right),
        ("LENGTH", Right),
        ("SHARE", Left),
        ("PATH", Left),
    ]);
    for row in rows {
        table.row(&[
            String::from(if row["exclusive"] == true { "exclusive" } else { "shared" }),
            text(row, "user"),
            number(row, "offset").to_string(),
            number(row, "length").to_string(),
            text(row, "share"),
            text(row, "path"),
        ]);
    }
    table
}

fn leases(rows: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("LEASE", Left),
        ("USER", Left),
        ("CACHING", Left),
        ("STATE", Left),
        ("OPEN", Right),
        ("SHARE", Left),
        ("PATH", Left),
    ]);
    for row in rows {
        let key = text(row, "key");
        table.row(&[
            if key.is_empty() { String::from("oplock") } else { key },
            text(row, "user"),
            text(row, "state"),
            String::from(if row["breaking"] == true { "breaking" } else { "held" }),
            number(row, "opens").to_string(),
            text(row, "share"),
            text(row, "path"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_health_of_shares_is_beside_them() {
        let mut shares = json!({"rows": [{"name": "a", "opens": 1}, {"name": "b"}, {"name": "c"}]});
        let health = json!({"rows": [
            {"name": "b", "state": "failed", "reason": "the folder was removed"},
            {"name": "a", "state": "ok", "available": 5_000_000},
        ]});
        add_health(&mut shares, &health);
        let lines = super::shares(shares["rows"].as_array().unwrap()).lines();
        assert!(lines[0].contains("FREE") && lines[1].contains("5.0 MB"), "{lines:?}");
        shares["rows"][0]["guests"] = json!("read");
        assert_eq!(of_guests(&shares), "share a: guests may read\n");
        assert_eq!(saved(&shares), "");
        shares["rows"][1]["saved"] = json!(2048);
        assert_eq!(saved(&shares), "share b: compression has saved 2.0 kB\n");
        assert_eq!(unhealthy(&shares), "share b: the folder was removed\n");
    }

    #[test]
    fn a_part_of_the_configuration_that_is_not_in_force_is_told() {
        let none = json!({"refused": null, "not_served": []});
        for quiet in [&Value::Null, &none] {
            assert_eq!((refused(quiet), not_served(quiet)), (String::new(), String::new()));
        }
        let state = json!({
            "refused": {"since": 951_827_696, "why": "f.toml:1: no such key"},
            "not_served": [{"share": "a", "reason": "it is away"}],
        });
        let line = refused(&state);
        assert!(
            line.contains("since 2000-02-29 12:34:56 UTC, and") && line.ends_with("key\n"),
            "{line}"
        );
        assert_eq!(not_served(&state), "the share a is not served: it is away\n");
    }

    #[test]
    fn only_sessions_with_several_channels_list_them() {
        let channel = |port: u16, received: u64| {
            json!({"address": format!("192.0.2.9:{port}"), "server_address": "192.0.2.1:445",
                   "operations": 7, "received": received, "sent": 0})
        };
        let rows = [
            json!({"id": "0x1", "channels": [channel(1, 5)]}),
            json!({"id": "0x2", "channels": [channel(2, 5), channel(3, 2_000_000)]}),
        ];
        let lines = channels(&rows).lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].contains("192.0.2.9:2") && lines[2].contains("192.0.2.9:3"), "{lines:?}");
        assert!(channels(&rows[..1]).is_empty());
    }
}
