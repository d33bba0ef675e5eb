//! Rates and latencies between two looks at a server.

use std::collections::HashMap;

use serde_json::Value;

use super::arguments::Order;
use super::figures::{float, number, protection, text};

/// The first bucket of a histogram ends here, microseconds; each further one at twice that.
const FIRST_BUCKET_US: u64 = 16;

/// A cause of slowness, with the part of the time that it took: 1 is all of the time.
pub(super) type Cause = (&'static str, f64);

/// Activity between two looks, of a session or of the server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) operations: f64,
    pub(super) received: f64,
    pub(super) sent: f64,
    /// Latencies of half and of 99 % of the operations, microseconds. None without operations.
    pub(super) median: Option<f64>,
    pub(super) p99: Option<f64>,
    /// Causes by their part, the largest first.
    pub(super) causes: Vec<Cause>,
}

/// A session with its rates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) user: String,
    pub(super) address: String,
    pub(super) client: String,
    pub(super) protection: String,
    pub(super) channels: usize,
    pub(super) opens: u64,
    pub(super) rates: Rates,
    /// The name of the limit of rate that a request of it waits for. Empty: none.
    pub(super) limited_by: String,
}

impl Row {
    /// The causes of its waiting, with the limit that holds it back: `limits 80 % (backups)`.
    pub(super) fn why(&self) -> String {
        let why = self.rates.why();
        match &*self.limited_by {
            "" => why,
            name if why.is_empty() => format!("limits ({name})"),
            name => format!("{why} ({name})"),
        }
    }
}

fn counts(activity: &Value) -> Vec<u64> {
    let mut sum = Vec::new();
    for class in activity["classes"].as_array().into_iter().flatten() {
        for (at, count) in class["buckets"].as_array().into_iter().flatten().enumerate() {
            if sum.len() <= at {
                sum.push(0);
            }
            sum[at] += count.as_u64().unwrap_or(0);
        }
    }
    sum
}

/// The latency that the part `of` of the operations keeps, in microseconds.
fn percentile(counts: &[u64], of: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let wanted = float(all) * of;
    let (mut below, mut start) = (0.0, 0.0);
    for (at, count) in counts.iter().enumerate() {
        let end = float(FIRST_BUCKET_US << at.min(40));
        if *count > 0 && below + float(*count) >= wanted {
            return Some(start + (end - start) * (wanted - below) / float(*count));
        }
        below += float(*count);
        start = end;
    }
    None
}

impl Rates {
    /// The rates over `seconds`. `before` is null for a session that is new.
    pub(super) fn between(before: &Value, now: &Value, seconds: f64) -> Self {
        let grown = |field| float(number(now, field).saturating_sub(number(before, field)));
        let seconds = seconds.max(0.001);
        let old = counts(before);
        let latencies: Vec<u64> = counts(now)
            .iter()
            .enumerate()
            .map(|(at, count)| count.saturating_sub(old.get(at).copied().unwrap_or(0)))
            .collect();
        let part = |name, field| (name, grown(field) / 1e6 / seconds);
        let mut causes = vec![
            part("disk", "waited_medium_us"),
            part("others", "waited_others_us"),
            part("limits", "waited_limits_us"),
            part("credits", "without_credits_us"),
            part("network", "unsent_us"),
            part("server", "busy_us"),
        ];
        causes.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        Self {
            operations: grown("operations") / seconds,
            received: grown("received") / seconds,
            sent: grown("sent") / seconds,
            median: percentile(&latencies, 0.5),
            p99: percentile(&latencies, 0.99),
            causes,
        }
    }

    /// The time that requests or the client waited, work on the core left out.
    fn waiting(&self) -> f64 {
        self.causes.iter().filter(|(name, _)| *name != "server").map(|(_, part)| part).sum()
    }

    /// The two largest causes, where they count: `disk 80 %, credits 10 %`.
    pub(super) fn why(&self) -> String {
        let large = self.causes.iter().filter(|(_, part)| *part >= 0.05).take(2);
        large
            .map(|(name, part)| format!("{name} {:.0} %", part * 100.0))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// A limit of rate, and those whom it holds back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) limit: String,
    /// The users, sessions or addresses with limits of their own, those first of which something waits.
    pub(super) held: Vec<HeldOne>,
}

/// A user, a session or an address that a limit of rate holds back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeldOne {
    pub(super) who: String,
    /// `operations`, `read` or `write`.
    pub(super) by: String,
    /// Requests that wait now.
    pub(super) waiting: u64,
    /// Requests whose wait has ended since the look before.
    pub(super) held: u64,
}

impl HeldOne {
    /// The words for people: `ann (write, 12 wait)`.
    fn words(&self) -> String {
        let Self { who, by, waiting, held } = self;
        match waiting {
            0 => format!("{who} ({by}, {held} waited)"),
            1 => format!("{who} ({by}, 1 waits)"),
            _ => format!("{who} ({by}, {waiting} wait)"),
        }
    }
}

impl Holding {
    /// A line for people: `fair holds back ann (write, 12 wait), bob (read, 1 waits)`.
    pub(super) fn line(&self) -> String {
        let held: Vec<String> = self.held.iter().map(HeldOne::words).collect();
        format!("{} holds back {}", self.limit, held.join(", "))
    }
}

/// The limits that hold users, sessions or addresses back on their own, or have since `before`.
pub(super) fn holding(before: &Value, now: &Value) -> Vec<Holding> {
    let rules = |status: &Value| status["rates"]["rows"].as_array().cloned().unwrap_or_default();
    let most = |rule: &Value| rule["most_held"].as_array().cloned().unwrap_or_default();
    let old = rules(before);
    let held_by = |rule: &Value| {
        let old = old.iter().find(|old| old["name"] == rule["name"]).map(most).unwrap_or_default();
        let one = |row: &Value| {
            let is_same = |old: &&Value| old["who"] == row["who"] && old["by"] == row["by"];
            // One that was not shown before has waited since an unknown time: what waits now counts alone.
            let earlier =
                old.iter().find(is_same).map_or(number(row, "held"), |old| number(old, "held"));
            let held = number(row, "held").saturating_sub(earlier);
            HeldOne {
                who: text(row, "who"),
                by: text(row, "by"),
                waiting: number(row, "waiting"),
                held,
            }
        };
        most(rule).iter().map(one).filter(|one| one.waiting > 0 || one.held > 0).collect::<Vec<_>>()
    };
    let holding = |rule: &Value| Holding { limit: text(rule, "name"), held: held_by(rule) };
    rules(now).iter().map(holding).filter(|holding| !holding.held.is_empty()).collect()
}

/// The sessions of `now` with their rates since `before`.
pub(super) fn rows(before: &Value, now: &Value, seconds: f64, order: Order) -> Vec<Row> {
    let sessions =
        |status: &Value| status["sessions"]["rows"].as_array().cloned().unwrap_or_default();
    let old: HashMap<String, Value> = sessions(before)
        .into_iter()
        .map(|row| (text(&row, "id"), row["activity"].clone()))
        .collect();
    let mut rows: Vec<Row> = sessions(now)
        .iter()
        .map(|row| Row {
            id: text(row, "id"),
            user: text(row, "user"),
            address: text(row, "address"),
            client: text(row, "client"),
            protection: protection(row),
            channels: row["channels"].as_array().map_or(0, Vec::len),
            opens: number(row, "opens"),
            limited_by: text(row, "limited_by"),
            rates: {
                let before = old.get(&text(row, "id")).unwrap_or(&Value::Null);
                Rates::between(before, &row["activity"], seconds)
            },
        })
        .collect();
    rows.sort_by(|a, b| {
        let key = |row: &Row| match order {
            Order::Operations => row.rates.operations,
            Order::Bytes => row.rates.received + row.rates.sent,
            Order::Latency => row.rates.p99.unwrap_or(0.0),
            Order::Waiting => row.rates.waiting(),
            Order::User => 0.0,
        };
        key(b).total_cmp(&key(a)).then_with(|| (&a.user, &a.id).cmp(&(&b.user, &b.id)))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn session(id: &str, user: &str, operations: u64, medium: u64, buckets: [u64; 4]) -> Value {
        json!({"id": id, "user": user, "channels": [{}], "opens": 3, "activity": {
            "operations": operations, "received": operations * 1000, "sent": 0,
            "waited_medium_us": medium, "busy_us": 1000,
            "classes": [{"class": "read", "buckets": buckets}]}})
    }

    #[test]
    fn rates_and_causes_are_of_the_time_between_two_looks() {
        let before = json!({"sessions": {"rows": [session("0x1", "ann", 100, 0, [100, 0, 0, 0])]}});
        let now = json!({"sessions": {"rows": [
            session("0x1", "ann", 300, 1_600_000, [200, 0, 98, 2]),
            session("0x2", "bob", 1000, 0, [1000, 0, 0, 0])]}});
        let shown = rows(&before, &now, 2.0, Order::Operations);
        assert_eq!([&*shown[0].user, &*shown[1].user], ["bob", "ann"]);
        let ann = &shown[1].rates;
        assert_eq!((ann.operations, ann.received), (100.0, 100_000.0));
        assert_eq!(ann.why(), "disk 80 %");
        // Of ann's 200 operations the first bucket has 100, so it ends at the median; 98 more take
        // up to 64 us, which is the 99th percentile.
        assert_eq!(ann.median, Some(16.0));
        assert!(ann.p99.is_some_and(|p99| (63.9..=64.1).contains(&p99)), "{ann:?}");
        assert_eq!(shown[1].why(), "disk 80 %");
        let held = |why: &str, limited_by: &str| {
            let causes = if why.is_empty() { vec![] } else { vec![("limits", 0.8)] };
            let rates = Rates { causes, ..Rates::default() };
            Row { rates, limited_by: limited_by.to_owned(), ..Row::default() }.why()
        };
        assert_eq!(held("limits", "backups"), "limits 80 % (backups)");
        assert_eq!(held("", "backups"), "limits (backups)");
        let by_waiting = rows(&before, &now, 2.0, Order::Waiting);
        assert_eq!(by_waiting[0].user, "ann");
        assert_eq!(rows(&before, &now, 2.0, Order::User)[0].user, "ann");
        assert_eq!(percentile(&[0, 0], 0.5), None);
    }

    #[test]
    fn those_who_are_held_back_are_told_by_their_limit() {
        let rate = |rows: Value| json!({"rates": {"rows": [{"name": "fair", "most_held": rows}]}});
        let one = |who: &str, by: &str, waiting: u64, held: u64| json!({"who": who, "by": by, "waiting": waiting, "held": held});
        let before = rate(json!([one("ann", "write", 0, 5), one("bob", "read", 0, 7)]));
        let now = rate(json!([
            one("ann", "write", 12, 9),
            one("carol", "operations", 1, 4),
            one("bob", "read", 0, 10),
            one("dave", "read", 0, 10),
        ]));
        let lines: Vec<String> = holding(&before, &now).iter().map(Holding::line).collect();
        let wanted = "fair holds back ann (write, 12 wait), carol (operations, 1 waits), bob (read, 3 waited)";
        assert_eq!(lines, [wanted]);
        assert_eq!(holding(&now, &before), []);
        assert_eq!(holding(&Value::Null, &Value::Null), []);
    }
}
