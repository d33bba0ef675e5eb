//! `frevo top`: the sessions of a server, live.

use std::io::{IsTerminal, Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::arguments::{Order, TopArguments};
use super::figures::{bytes, number, span, text};
use super::rates::{Holding, Rates, Row, holding, rows};
use super::socket::ask;
use super::status::parsed;
use super::terminal::{Screen, Size};
use crate::console::print;
use crate::exit::Done;
use crate::printable::printable;
use crate::text_table::{Align, Table};

/// Limits of which the users, sessions or addresses are shown that they hold back.
const LIMITS_SHOWN: usize = 3;

/// The width of the output where there is no terminal.
const PLAIN_WIDTH: usize = 120;

/// The keys that choose the order.
const KEYS: [(char, &str, Order); 5] = [
    ('o', "operations", Order::Operations),
    ('b', "bytes", Order::Bytes),
    ('l', "latency", Order::Latency),
    ('w', "waiting", Order::Waiting),
    ('u', "user", Order::User),
];

/// The status before, which rates are counted from.
struct Earlier {
    /// Null before the first one.
    status: Value,
    /// The seconds since then.
    seconds: f64,
}

pub(super) async fn run(arguments: &TopArguments) -> Done {
    let interval = Duration::from_secs_f64(arguments.interval.clamp(0.1, 3600.0));
    let is_live = std::io::stdout().is_terminal() && !arguments.place.json;
    let screen = if is_live { Some(Screen::enter()?) } else { None };
    let mut keys = keys(is_live && std::io::stdin().is_terminal());
    let mut order = arguments.sort.unwrap_or_default();
    let (mut latest, mut at) = look(arguments).await?;
    let mut old = Earlier { status: Value::Null, seconds: 1.0 };
    let mut left = arguments.count;
    while left != Some(0) {
        if let Some(screen) = &screen {
            draw(screen, &old, &latest, order)?;
        }
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return Ok(()),
            Some(key) = keys.recv() => {
                if matches!(key, 'q' | 'Q' | '\u{1b}') {
                    return Ok(());
                }
                let chosen = KEYS.iter().find(|(of, _, _)| *of == key);
                order = chosen.map_or(order, |(_, _, order)| *order);
                continue;
            }
            () = sleep_until((at + interval).into()) => {}
        }
        let now = look(arguments).await?;
        let seconds = now.1.duration_since(at).as_secs_f64();
        old = Earlier { status: std::mem::replace(&mut latest, now.0), seconds };
        at = now.1;
        left = left.map(|left| left - 1);
        if arguments.place.json {
            print_json(&old, &latest, order)?;
        } else if screen.is_none() {
            let lines =
                lines(&old, &latest, order, Size { width: PLAIN_WIDTH, height: usize::MAX });
            print(format!("{}\n\n", lines.join("\n")).as_bytes())?;
        }
    }
    Ok(())
}

async fn look(arguments: &TopArguments) -> Result<(Value, Instant), crate::exit::Failure> {
    let answer = ask(&arguments.place, "/status?parts=none", None).await?;
    Ok((parsed(&answer)?, Instant::now()))
}

/// The keys that are pressed; none without a terminal.
fn keys(has_terminal: bool) -> mpsc::Receiver<char> {
    let (pressed, keys) = mpsc::channel(8);
    if has_terminal {
        // The thread blocks in read(2) and cannot be stopped, so it runs until the process ends.
        std::thread::spawn(move || {
            let mut keys = [0; 16];
            while let Ok(count @ 1..) = std::io::stdin().read(&mut keys) {
                for key in keys.iter().take(count) {
                    if pressed.blocking_send(char::from(*key)).is_err() {
                        return;
                    }
                }
            }
        });
    } else {
        // If this sender were dropped, the channel would be closed, and receiving from it would
        // never wait.
        std::mem::forget(pressed);
    }
    keys
}

fn draw(screen: &Screen, old: &Earlier, now: &Value, order: Order) -> Done {
    let size = screen.size();
    screen.show(&styled(&lines(old, now, order, size), size.width))
}

/// The lines with the attributes of a terminal, which any background carries: the facts bold, the
/// keys faint, the heads of the table inverse.
fn styled(lines: &[String], width: usize) -> Vec<String> {
    let style = |(at, line): (usize, &String)| match at {
        0 => format!("\x1b[1m{line}\x1b[m"),
        2 => format!("\x1b[2m{line}\x1b[m"),
        3.. if line.starts_with("USER ") => format!("\x1b[7m{line:width$}\x1b[m"),
        _ => line.clone(),
    };
    lines.iter().enumerate().map(style).collect()
}

/// A text of at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect()
}

fn latency(micros: Option<f64>) -> String {
    match micros {
        None => String::from("-"),
        Some(micros) if micros < 1_000.0 => format!("{micros:.0} µs"),
        Some(micros) if micros < 10_000.0 => format!("{:.1} ms", micros / 1e3),
        Some(micros) if micros < 1e6 => format!("{:.0} ms", micros / 1e3),
        Some(micros) => format!("{:.1} s", micros / 1e6),
    }
}

/// The lines of one picture, of at most `width` columns and `height` lines.
fn lines(before: &Earlier, now: &Value, order: Order, size: Size) -> Vec<String> {
    let Earlier { status: before, seconds } = before;
    let Size { width, height } = size;
    let server = &now["server"];
    let is_first = before.is_null();
    let rates =
        |seconds: f64| Rates::between(&before["server"]["activity"], &server["activity"], seconds);
    let all = if is_first { Rates::default() } else { rates(*seconds) };
    let up = number(server, "now").saturating_sub(number(server, "started"));
    let mut lines = vec![
        format!(
            "{}  up {}  sessions {}  open files {}  failed logons {}",
            printable(&text(server, "name")),
            span(up),
            number(server, "sessions"),
            number(server, "opens"),
            number(server, "failed_logons"),
        ),
        format!(
            "{:.0} op/s  in {}/s  out {}/s  50 % {}  99 % {}  {}",
            all.operations,
            bytes(all.received),
            bytes(all.sent),
            latency(all.median),
            latency(all.p99),
            all.why(),
        ),
    ];
    let chosen = KEYS.iter().find(|(_, _, of)| *of == order).map_or("", |(_, name, _)| name);
    let keys = KEYS.map(|(key, name, _)| format!("{key} {name}")).join("  ");
    lines.push(match width {
        ..90 => format!("by {chosen}; o b l w u: another order, q: quit"),
        _ => format!("by {chosen}; keys: {keys}  q quit"),
    });
    if !is_first {
        let held = holding(before, now);
        lines.extend(held.iter().take(LIMITS_SHOWN).map(|one| printable(&one.line())));
    }
    lines.push(String::new());
    let rows = if is_first { Vec::new() } else { rows(before, now, *seconds, order) };
    if is_first {
        lines.push(String::from("measuring ..."));
    } else if rows.is_empty() {
        lines.push(String::from("no sessions"));
    } else {
        let room = height.saturating_sub(lines.len() + 1);
        let left_out = rows.len().saturating_sub(room);
        let shown = if left_out > 0 { room.saturating_sub(1) } else { rows.len() };
        lines.extend(table(&rows[..shown.min(rows.len())], width));
        if left_out > 0 {
            lines.push(format!("{} more sessions", rows.len() - shown));
        }
    }
    lines.iter().map(|line| line.chars().take(width).collect()).take(height).collect()
}

type Cell = fn(&Row) -> String;

/// The columns, each with the least width of a terminal that shows it.
const COLUMNS: [(&str, Align, usize, Cell); 13] = [
    ("USER", Align::Left, 0, |row| row.user.clone()),
    ("SESSION", Align::Left, 100, |row| row.id.clone()),
    ("ADDRESS", Align::Left, 70, |row| row.address.clone()),
    ("CLIENT", Align::Left, 130, |row| row.client.clone()),
    ("PROTECTION", Align::Left, 150, |row| row.protection.clone()),
    ("CH", Align::Right, 110, |row| row.channels.to_string()),
    ("OPEN", Align::Right, 110, |row| row.opens.to_string()),
    ("OP/S", Align::Right, 0, |row| format!("{:.0}", row.rates.operations)),
    ("IN/S", Align::Right, 0, |row| bytes(row.rates.received)),
    ("OUT/S", Align::Right, 0, |row| bytes(row.rates.sent)),
    ("50 %", Align::Right, 90, |row| latency(row.rates.median)),
    ("99 %", Align::Right, 0, |row| latency(row.rates.p99)),
    ("WAITS FOR", Align::Left, 0, |row| row.why()),
];

/// The columns that go first where long values leave no room for the figures, which are not cut.
const SPARED: [&str; 9] =
    ["PROTECTION", "CLIENT", "CH", "OPEN", "SESSION", "ADDRESS", "50 %", "IN/S", "OUT/S"];

/// The lines of the table. A narrow terminal has fewer columns.
fn table(rows: &[Row], width: usize) -> Vec<String> {
    let mut columns: Vec<_> =
        COLUMNS.into_iter().filter(|(_, _, least, _)| width >= *least).collect();
    for spared in SPARED {
        // The last column is text, which may be cut off, so only the other columns must fit.
        let figures = &columns[..columns.len() - 1];
        if table_of(rows, figures, width).iter().all(|line| line.chars().count() <= width) {
            break;
        }
        columns.retain(|(head, ..)| *head != spared);
    }
    table_of(rows, &columns, width)
}

fn table_of(
    rows: &[Row],
    columns: &[(&'static str, Align, usize, Cell)],
    width: usize,
) -> Vec<String> {
    let heads: Vec<_> = columns.iter().map(|(head, align, ..)| (*head, *align)).collect();
    let mut table = Table::new(&heads);
    // On a narrow terminal long names are cut, to leave room for the numbers.
    let most = (width / 4).max(8);
    for row in rows {
        let cells = columns.iter().map(|(head, _, _, cell)| match *head {
            "USER" | "ADDRESS" | "CLIENT" if width < 150 => cut(&cell(row), most),
            _ => cell(row),
        });
        table.cells(&cells.collect::<Vec<String>>());
    }
    table.lines()
}

/// A limit of rate with those whom it holds back.
fn held_back(Holding { limit, held }: &Holding) -> Value {
    let held: Vec<Value> = held
        .iter()
        .map(
            |one| json!({"who": one.who, "by": one.by, "waiting": one.waiting, "waited": one.held}),
        )
        .collect();
    json!({ "limit": limit, "holds_back": held })
}

fn print_json(before: &Earlier, now: &Value, order: Order) -> Done {
    let Earlier { status: before, seconds } = before;
    let of = |rates: &Rates| {
        let causes: serde_json::Map<String, Value> =
            rates.causes.iter().map(|(name, part)| ((*name).to_owned(), json!(part))).collect();
        json!({
            "operations_per_second": rates.operations,
            "received_per_second": rates.received,
            "sent_per_second": rates.sent,
            "median_us": rates.median,
            "p99_us": rates.p99,
            "waits": causes,
        })
    };
    let sessions: Vec<Value> = rows(before, now, *seconds, order)
        .iter()
        .map(|row| {
            json!({
                "session": row.id, "user": row.user, "address": row.address, "client": row.client,
                "rates": of(&row.rates),
            })
        })
        .collect();
    let all = Rates::between(&before["server"]["activity"], &now["server"]["activity"], *seconds);
    let limits: Vec<Value> = holding(before, now).iter().map(held_back).collect();
    let object =
        json!({ "seconds": seconds, "server": of(&all), "sessions": sessions, "limits": limits });
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{object}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(crate::exit::Failure::failed("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(sessions: usize, operations: u64) -> Value {
        let rows: Vec<Value> = (0..sessions)
            .map(|at| {
                json!({"id": format!("{at:#x}"), "user": format!("user{at}\u{1b}[2J"),
                    "address": "192.0.2.77", "client": "A-CLIENT-WITH-A-NAME", "channels": [{}],
                    "encryption": "AES-128-GCM", "opens": 7, "activity": {
                    "operations": operations * at as u64, "received": 5_000_000, "sent": 70,
                    "classes": [{"class": "read", "buckets": [operations]}]}})
            })
            .collect();
        json!({"server": {"name": "BOX", "started": 100, "now": 3700, "sessions": sessions},
            "sessions": {"rows": rows, "more": 0}})
    }

    #[test]
    fn a_long_name_leaves_room_for_the_figures() {
        let (before, mut now) = (status(1, 0), status(1, 100));
        now["sessions"]["rows"][0]["user"] = "a-name-".repeat(20).into();
        now["sessions"]["rows"][0]["address"] = "2001:db8:1234:5678:9abc:def0:1234:5678".into();
        let narrow = lines(
            &Earlier { status: before, seconds: 2.0 },
            &now,
            Order::User,
            Size { width: 80, height: 24 },
        );
        assert!(narrow[4].contains("WAITS FOR"), "{narrow:#?}");
        assert!(narrow[5].contains("a-name-a-name-a-nam\u{2026}"), "{narrow:#?}");
        assert_eq!(cut("caf\u{e9}", 4), "caf\u{e9}");
    }

    #[test]
    fn no_figure_is_cut() {
        let (before, mut now) = (status(3, 0), status(3, 123_456_789));
        for row in now["sessions"]["rows"].as_array_mut().unwrap() {
            row["user"] = "a-name-".repeat(20).into();
            row["client"] = "A-CLIENT-".repeat(20).into();
            row["id"] = "0xfedcba9876543210".into();
        }
        for width in [44, 60, 80, 100, 120, 140, 160, 240] {
            let lines = lines(
                &Earlier { status: before.clone(), seconds: 2.0 },
                &now,
                Order::Operations,
                Size { width, height: 24 },
            );
            assert!(lines[4].contains("99 %"), "{width}: {lines:#?}");
            let figures = lines[5].contains(" 123456789 ") && lines[5].contains("16 \u{b5}s");
            assert!(figures, "{width}: {lines:#?}");
        }
    }

    #[test]
    fn the_session_to_kick_is_shown() {
        let (before, now) = (status(3, 0), status(3, 100));
        let lines = lines(
            &Earlier { status: before, seconds: 2.0 },
            &now,
            Order::Operations,
            Size { width: 120, height: 24 },
        );
        assert!(lines[4].contains("SESSION") && lines[5].contains(" 0x2 "), "{lines:#?}");
    }

    #[test]
    fn limits_show_whom_they_hold_back() {
        let (before, mut now) = (status(3, 0), status(3, 100));
        let held = json!([{"who": "user1\u{1b}[2J", "by": "write", "waiting": 12, "held": 3}]);
        let rate = |at: usize| json!({"name": format!("fair{at}"), "most_held": held});
        now["rates"] = json!({"rows": (0..5).map(rate).collect::<Vec<_>>()});
        let size = Size { width: 120, height: 24 };
        let lines = lines(&Earlier { status: before, seconds: 2.0 }, &now, Order::User, size);
        assert!(lines[3].starts_with("fair0 holds back user1"), "{lines:#?}");
        assert!(
            lines[3].ends_with("(write, 12 wait)") && !lines[3].contains('\u{1b}'),
            "{lines:#?}"
        );
        assert!(lines[5].starts_with("fair2") && lines[6].is_empty(), "{lines:#?}");
        let shown = styled(&lines, 120);
        assert!(shown[7].starts_with("\u{1b}[7mUSER"), "{shown:#?}");
    }

    #[test]
    fn a_picture_fits_its_terminal() {
        let (before, now) = (status(40, 0), status(40, 100));
        for (width, height) in [(20, 5), (40, 10), (80, 24), (120, 50), (200, 60)] {
            let lines = lines(
                &Earlier { status: before.clone(), seconds: 2.0 },
                &now,
                Order::Operations,
                Size { width, height },
            );
            assert!(lines.len() <= height, "{height}: {lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            assert!(!lines.concat().contains('\u{1b}'));
        }
        let wide = lines(
            &Earlier { status: before.clone(), seconds: 2.0 },
            &now,
            Order::Operations,
            Size { width: 200, height: 60 },
        )
        .join("\n");
        assert!(wide.contains("AES-128-GCM") && wide.contains("A-CLIENT"), "{wide}");
        let narrow = lines(
            &Earlier { status: before, seconds: 2.0 },
            &now,
            Order::Operations,
            Size { width: 60, height: 24 },
        )
        .join("\n");
        assert!(narrow.contains("OP/S") && !narrow.contains("ADDRESS"), "{narrow}");
        assert!(narrow.contains("more sessions"), "{narrow}");
        let styled = styled(
            &lines(
                &Earlier { status: status(40, 0), seconds: 2.0 },
                &now,
                Order::User,
                Size { width: 80, height: 24 },
            ),
            80,
        );
        assert!(styled[4].starts_with("\u{1b}[7mUSER") && styled[4].ends_with(" \u{1b}[m"));
        let first = lines(
            &Earlier { status: Value::Null, seconds: 1.0 },
            &now,
            Order::Operations,
            Size { width: 80, height: 24 },
        )
        .join("\n");
        assert!(first.contains("measuring"), "{first}");
    }
}
