//! The table as Markdown and as JSON, and its promises.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::rows::{Round, Row, Unit};
use crate::table::{Outcome, RowResult};

/// Most KiB for an idle authenticated connection of Frevo.
const IDLE_KIB_MAX: f64 = 48.0;

/// The rows and the text around them.
pub(crate) struct Report {
    /// The base of the comparison: the first column.
    pub(crate) base: String,
    /// The measured server: the second column, if there is one.
    pub(crate) subject: Option<String>,
    /// The least ratio of every row; None for each row's own target.
    pub(crate) least_ratio: Option<f64>,
    pub(crate) machine: Vec<String>,
    pub(crate) setting: Vec<String>,
    pub(crate) rows: Vec<RowResult>,
}

/// Median, minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

pub(crate) fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let half = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[half]
    } else {
        f64::midpoint(values[half - 1], values[half])
    };
    Some(Spread { median, min, max })
}

impl Outcome {
    fn rate(&self) -> Option<Spread> {
        if let Some(memory) = &self.memory {
            return spread(vec![memory.pss_kib()]);
        }
        spread(self.rounds.iter().map(|r| r.count as f64 / r.seconds).collect())
    }

    fn total(&self, of: impl Fn(&Round) -> f64) -> f64 {
        self.rounds.iter().map(of).sum()
    }

    /// Returns the server's CPU seconds for a GB, or for 1000 operations or entries.
    fn cpu(&self, unit: Unit) -> Option<f64> {
        let count = self.total(|r| r.count as f64);
        let per = if unit == Unit::Bytes { 1e9 } else { 1e3 };
        (count > 0.0).then(|| self.total(|r| r.server_cpu_seconds) * per / count)
    }

    /// Returns the cores that the client used while this server was measured.
    fn client_busy(&self) -> Option<f64> {
        let seconds = self.total(|r| r.seconds);
        (seconds > 0.0).then(|| self.total(|r| r.client_cpu_seconds) / seconds)
    }
}

impl RowResult {
    fn outcome(&self, label: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|o| o.label == label)
    }

    /// Returns subject over base, where more is better; `None` if one of them has no number.
    ///
    /// It is the median over the rounds of the ratio between neighbours in time, which share other
    /// load on the machine.
    fn ratio(&self, base: &str, subject: &str) -> Option<f64> {
        let (base, subject) = (self.outcome(base)?, self.outcome(subject)?);
        if self.row.unit() == Unit::KibPerConnection {
            let (b, s) = (base.rate()?.median, subject.rate()?.median);
            return (s > 0.0).then(|| b / s);
        }
        let turns = base.rounds.iter().zip(&subject.rounds);
        let ratios = turns
            .map(|(b, s)| (s.count as f64 / s.seconds) / (b.count as f64 / b.seconds))
            .filter(|r| r.is_finite());
        Some(spread(ratios.collect())?.median)
    }
}

impl RowResult {
    /// Returns the subject's CPU time over the base's for equal work; less is better.
    fn cpu_ratio(&self, base: &str, subject: &str) -> Option<f64> {
        let unit = self.row.unit();
        let (base, subject) = (self.outcome(base)?.cpu(unit)?, self.outcome(subject)?.cpu(unit)?);
        (base > 0.0).then(|| subject / base)
    }
}

impl Report {
    /// Returns the subject's broken promises as text.
    pub(crate) fn missed(&self) -> Vec<String> {
        let Some(subject) = &self.subject else {
            return vec!["nothing was compared".to_owned()];
        };
        let mut missed = Vec::new();
        for result in &self.rows {
            let name = result.row.name();
            for outcome in &result.outcomes {
                if let Some(e) = &outcome.error {
                    missed.push(format!("{name}: {}: {e}", outcome.label));
                }
            }
            let target = self.least_ratio.unwrap_or_else(|| result.row.target());
            match result.ratio(&self.base, subject) {
                Some(r) if r >= target => {}
                Some(r) => missed.push(format!("{name}: {r:.2} times {}, not {target}", self.base)),
                None => missed.push(format!("{name}: no number")),
            }
            if result.row == Row::Memory
                && let Some(kib) = result.outcome(subject).and_then(Outcome::rate)
                && kib.median > IDLE_KIB_MAX
            {
                missed.push(format!("{name}: {:.0} KiB, more than {IDLE_KIB_MAX}", kib.median));
            }
        }
        missed
    }

    pub(crate) fn markdown(&self) -> String {
        let mut out = String::from("# Side by side\n\n");
        for line in self.machine.iter().chain(&self.setting) {
            let _ = writeln!(out, "- {line}");
        }
        let _ = writeln!(out, "- other work took {:.0} % of a core in the rounds", self.others());
        let columns: Vec<&str> =
            [Some(self.base.as_str()), self.subject.as_deref()].into_iter().flatten().collect();
        let mut head = vec!["row".to_owned(), "unit".to_owned()];
        head.extend(columns.iter().map(|c| format!("{c} (min-max)")));
        if let Some(subject) = &self.subject {
            head.push(format!("{subject}/{}", self.base));
            head.push(format!("CPU {subject}/{}", self.base));
        }
        head.push("limit (min-max)".to_owned());
        head.extend(columns.iter().map(|c| format!("{c} of limit")));
        head.extend(columns.iter().map(|c| format!("{c} CPU s")));
        head.push("limit CPU s".to_owned());
        head.extend(columns.iter().map(|c| format!("client's core, {c}")));
        let _ = writeln!(out, "\n| {} |", head.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(head.len()));
        for result in &self.rows {
            let _ = writeln!(out, "| {} |", self.cells(result, &columns).join(" | "));
        }
        out.push_str(LEGEND);
        self.wire(&mut out);
        out
    }

    /// Returns the core time of other work over all rounds, percent of a core.
    fn others(&self) -> f64 {
        let outcomes = || self.rows.iter().flat_map(|r| &r.outcomes);
        let seconds: f64 = outcomes().map(|o| o.total(|r| r.seconds)).sum();
        let others: f64 = outcomes().map(|o| o.total(|r| r.others_cpu_seconds)).sum();
        if seconds > 0.0 { others / seconds * 100.0 } else { 0.0 }
    }

    fn cells(&self, result: &RowResult, columns: &[&str]) -> Vec<String> {
        let unit = result.row.unit();
        let of = |label: &str| result.outcome(label);
        let dash = || "–".to_owned();
        let rate = |label: &str| match of(label) {
            Some(Outcome { error: Some(_), .. }) => "failed".to_owned(),
            o => o.and_then(Outcome::rate).map_or_else(dash, |s| show(s, unit)),
        };
        let limit = of("limit").and_then(Outcome::rate).map(|s| s.median);
        let mut cells = vec![result.row.title(), unit_name(unit).to_owned()];
        cells.extend(columns.iter().map(|c| rate(c)));
        if let Some(subject) = &self.subject {
            let ratio = result.ratio(&self.base, subject);
            cells.push(ratio.map_or_else(dash, |r| format!("**{r:.2}**")));
            let cpu = result.cpu_ratio(&self.base, subject);
            cells.push(cpu.map_or_else(dash, |r| format!("{r:.2}")));
        }
        cells.push(rate("limit"));
        for c in columns {
            let share = of(c).and_then(Outcome::rate).zip(limit).map(|(s, l)| s.median / l);
            cells.push(share.map_or_else(dash, |s| format!("{:.0} %", s * 100.0)));
        }
        for c in columns.iter().chain(&["limit"]) {
            let cpu = of(c).and_then(|o| o.cpu(unit));
            cells.push(cpu.map_or_else(dash, |s| format!("{s:.4}")));
        }
        for c in columns {
            let busy = of(c).and_then(Outcome::client_busy);
            cells.push(busy.map_or_else(dash, |b| format!("{:.0} %", b * 100.0)));
        }
        cells
    }

    /// Writes what each measured connection negotiated, and the kinds of its frames.
    fn wire(&self, out: &mut String) {
        out.push_str("\n## On the wire\n\n| row | server | negotiated | frames plain / signed / sealed |\n|---|---|---|---|\n");
        for result in &self.rows {
            for outcome in result.outcomes.iter().filter(|o| o.label != "limit") {
                let frames = outcome.frames.map_or_else(
                    || "–".to_owned(),
                    |f| format!("{} / {} / {}", f.plain, f.signed, f.sealed),
                );
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {frames} |",
                    result.row.name(),
                    outcome.label,
                    outcome.wire.as_deref().or(outcome.error.as_deref()).unwrap_or("–"),
                );
            }
        }
        for result in &self.rows {
            for outcome in &result.outcomes {
                if let Some(m) = &outcome.memory {
                    let _ = writeln!(
                        out,
                        "\n{}: {} connections, {} processes, resident {} → {} KiB (shared pages divided: {} → {} KiB); \
                         {:.1} KiB a connection counting shared pages in each process.",
                        outcome.label,
                        m.connections,
                        m.after.processes,
                        m.before.rss_kib,
                        m.after.rss_kib,
                        m.before.pss_kib,
                        m.after.pss_kib,
                        m.rss_kib()
                    );
                }
                if let Some(e) = &outcome.error {
                    let _ =
                        writeln!(out, "\n{} failed at {}: {e}", outcome.label, result.row.name());
                }
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|result| {
                let outcomes: Vec<Value> = result
                    .outcomes
                    .iter()
                    .map(|o| {
                        json!({
                            "label": o.label,
                            "median": o.rate().map(|s| s.median),
                            "min": o.rate().map(|s| s.min),
                            "max": o.rate().map(|s| s.max),
                            "server_cpu_seconds": o.cpu(result.row.unit()),
                            "client_busy": o.client_busy(),
                            "wire": o.wire,
                            "frames": o.frames,
                            "rounds": o.rounds,
                            "memory": o.memory,
                            "error": o.error,
                        })
                    })
                    .collect();
                json!({
                    "row": result.row.name(),
                    "unit": unit_name(result.row.unit()),
                    "cpu_ratio": self.subject.as_ref().and_then(|s| result.cpu_ratio(&self.base, s)),
                    "ratio": self.subject.as_ref().and_then(|s| result.ratio(&self.base, s)),
                    "target": self.least_ratio.unwrap_or_else(|| result.row.target()),
                    "outcomes": outcomes,
                })
            })
            .collect();
        json!({ "machine": self.machine, "setting": self.setting, "rows": rows })
    }
}

const LEGEND: &str = "
Rates are medians of the rounds; the ratio is the median over pairs of neighbouring rounds. *CPU s* is the server's (its whole process tree's) for a GB,
or for 1000 operations or entries. *client's core* is the load of the client: near or above
100 % the client limits the rate, and the CPU columns show the difference between the servers.
*limit* is the bare data path: the same copies, file-system calls and round trips over
loopback TCP by a blocking client and server, without SMB and without cryptography. An idle
connection is negotiated, logged on and tree connected; its cost is the growth of the server's
proportional set size.
";

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "MB/s",
        Unit::Ops => "1/s",
        Unit::Entries => "entries/s",
        Unit::KibPerConnection => "KiB each",
    }
}

fn show(s: Spread, unit: Unit) -> String {
    let scale = if unit == Unit::Bytes { 1e6 } else { 1.0 };
    if unit == Unit::KibPerConnection {
        return format!("{:.1}", s.median);
    }
    format!("{:.0} ({:.0}-{:.0})", s.median / scale, s.min / scale, s.max / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(label: &str, counts: &[u64]) -> Outcome {
        let rounds = counts
            .iter()
            .map(|&count| Round {
                count,
                seconds: 1.0,
                server_cpu_seconds: 0.5,
                client_cpu_seconds: 0.25,
                others_cpu_seconds: 0.1,
            })
            .collect();
        Outcome { label: label.to_owned(), rounds, ..Outcome::default() }
    }

    fn report(row: Row, smbd: &[u64], frevo: &[u64]) -> Report {
        Report {
            base: "smbd".to_owned(),
            subject: Some("Frevo".to_owned()),
            least_ratio: None,
            machine: vec![],
            setting: vec![],
            rows: vec![RowResult {
                row,
                outcomes: vec![
                    outcome("smbd", smbd),
                    outcome("Frevo", frevo),
                    outcome("limit", &[4000]),
                ],
            }],
        }
    }

    #[test]
    fn medians_do_not_follow_an_outlier() {
        let s = spread(vec![3.0, 900.0, 1.0]).unwrap();
        assert_eq!((s.median, s.min, s.max), (3.0, 1.0, 900.0));
        assert_eq!(spread(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(spread(vec![]), None);
    }

    #[test]
    fn a_ratio_is_taken_between_neighbours() {
        // After the first turn the machine ran at half its speed, but within each turn the ratio is
        // 3, so the result is 3.
        let r = report(Row::Stat, &[2000, 1000, 1000], &[6000, 3000, 3000]);
        assert_eq!(r.rows[0].ratio("smbd", "Frevo"), Some(3.0));
    }

    #[test]
    fn a_promise_is_missed_by_a_slow_row_a_failed_row_and_no_row() {
        assert!(report(Row::Stat, &[1000], &[3000]).missed().is_empty());
        assert_eq!(report(Row::Stat, &[1000], &[2900]).missed().len(), 1);
        assert_eq!(report(Row::Stat, &[1000], &[]).missed().len(), 1);
        let mut met = report(Row::Stat, &[1000], &[970]);
        met.least_ratio = Some(0.97);
        assert!(met.missed().is_empty());
        met.rows[0].outcomes[1].rounds[0].count = 960;
        assert_eq!(met.missed().len(), 1);
        let mut failed = report(Row::Stat, &[1000], &[9000]);
        failed.rows[0].outcomes[1].error = Some("broke".to_owned());
        assert_eq!(failed.missed().len(), 1);
    }

    #[test]
    fn the_table_has_a_cell_for_every_heading() {
        let text = report(Row::Stat, &[1000, 1200, 1100], &[3000, 3600, 3300]).markdown();
        let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().to_owned();
        assert_eq!(line("| row").matches('|').count(), line("| stat").matches('|').count());
        assert!(line("| stat").contains("1100 (1000-1200) | 3300 (3000-3600) | **3.00**"));
    }
}
