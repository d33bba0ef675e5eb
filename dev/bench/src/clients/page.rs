//! The comparisons as Markdown and as JSON, and their promises.

use std::fmt::Write;

use serde_json::{Value, json};

use super::usage::Usage;
use crate::report::{Spread, spread};

/// Most memory of Frevo's client in any errand, MiB.
const PEAK_MIB_MAX: f64 = 200.0;

/// The unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Files,
    Entries,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "MB/s",
            Self::Files => "files/s",
            Self::Entries => "entries/s",
        }
    }

    const fn scale(self) -> f64 {
        match self {
            Self::Bytes => 1e6,
            Self::Files | Self::Entries => 1.0,
        }
    }
}

/// The figures of one client program.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Contestant {
    pub(super) label: String,
    pub(super) rounds: Vec<Usage>,
    pub(super) error: Option<String>,
}

impl Contestant {
    pub(super) fn new(label: &str) -> Self {
        Self { label: label.to_owned(), rounds: Vec::new(), error: None }
    }

    fn median(&self, of: impl Fn(&Usage) -> f64) -> Option<Spread> {
        spread(self.rounds.iter().map(of).collect())
    }

    /// Returns the peak over all rounds, MiB.
    fn peak_mib(&self) -> f64 {
        self.rounds.iter().map(|r| r.peak_kib).max().unwrap_or(0) as f64 / 1024.0
    }
}

/// A required relation between two clients.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    subject: &'static str,
    base: &'static str,
    kind: Kind,
    /// The promised ratio; None if the ratio is only shown.
    bound: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rate,
    Cpu,
}

impl Promise {
    /// Requires `subject` to be at least `bound` times as fast as `base`.
    pub(super) const fn rate(subject: &'static str, base: &'static str, bound: f64) -> Self {
        Self { subject, base, kind: Kind::Rate, bound: Some(bound) }
    }

    /// Requires `subject` to take at most `bound` times the CPU seconds of `base`.
    pub(super) const fn cpu(subject: &'static str, base: &'static str, bound: f64) -> Self {
        Self { subject, base, kind: Kind::Cpu, bound: Some(bound) }
    }

    /// Shows the CPU seconds of both side by side, without a requirement.
    pub(super) const fn cpu_shown(subject: &'static str, base: &'static str) -> Self {
        Self { subject, base, kind: Kind::Cpu, bound: None }
    }

    fn is_kept(&self, ratio: f64) -> bool {
        let Some(bound) = self.bound else { return true };
        match self.kind {
            Kind::Rate => ratio >= bound,
            Kind::Cpu => ratio <= bound,
        }
    }

    fn words(&self) -> String {
        let (what, how) = match self.kind {
            Kind::Rate => ("rate", "at least"),
            Kind::Cpu => ("CPU seconds", "at most"),
        };
        let bound = self.bound.map_or_else(String::new, |bound| format!(": {how} {bound}"));
        format!("{what} of {} / {}{bound}", self.subject, self.base)
    }
}

/// One errand and the clients that run it.
pub(super) struct Comparison {
    pub(super) name: String,
    pub(super) title: String,
    /// The number of cores that client and server share.
    pub(super) cores: usize,
    pub(super) count: f64,
    pub(super) unit: Unit,
    pub(super) contestants: Vec<Contestant>,
    pub(super) promises: Vec<Promise>,
}

impl Comparison {
    fn of(&self, label: &str) -> Option<&Contestant> {
        self.contestants.iter().find(|c| c.label == label)
    }

    /// Returns the median over the rounds of the ratio between neighbours in time.
    fn ratio(&self, promise: &Promise) -> Option<f64> {
        let (base, subject) = (self.of(promise.base)?, self.of(promise.subject)?);
        let turns = base.rounds.iter().zip(&subject.rounds);
        let ratios = turns.map(|(b, s)| match promise.kind {
            Kind::Rate => b.seconds / s.seconds,
            Kind::Cpu => s.cpu_seconds / b.cpu_seconds,
        });
        Some(spread(ratios.filter(|r| r.is_finite()).collect())?.median)
    }

    /// Returns the upper bound of the ratio: the speed, relative to `base`, of a client that takes
    /// no time itself, with the server's work for `subject` on all cores.
    fn most(&self, promise: &Promise) -> Option<f64> {
        let (base, subject) = (self.of(promise.base)?, self.of(promise.subject)?);
        let turns = base.rounds.iter().zip(&subject.rounds);
        let all = turns.map(|(b, s)| b.seconds * self.cores as f64 / s.server_cpu_seconds);
        Some(spread(all.filter(|r| r.is_finite()).collect())?.median)
    }

    fn markdown(&self, out: &mut String) {
        let unit = self.unit;
        let _ = writeln!(out, "\n### {}: {}\n", self.name, self.title);
        let _ = writeln!(
            out,
            "| who | {} (min-max) | client CPU s (min-max) | server CPU s | client's peak MiB |\n|---|---|---|---|---|",
            unit.name()
        );
        for one in &self.contestants {
            if let Some(error) = &one.error {
                let _ = writeln!(out, "| {} | failed: {error} | | | |", one.label);
                continue;
            }
            let rate = one.median(|r| self.count / r.seconds / unit.scale());
            let cpu = one.median(|r| r.cpu_seconds);
            let server = one.median(|r| r.server_cpu_seconds);
            let (Some(rate), Some(cpu), Some(server)) = (rate, cpu, server) else { continue };
            let _ = writeln!(
                out,
                "| {} | {:.0} ({:.0}-{:.0}) | {:.3} ({:.3}-{:.3}) | {:.2} | {:.0} |",
                one.label,
                rate.median,
                rate.min,
                rate.max,
                cpu.median,
                cpu.min,
                cpu.max,
                server.median,
                one.peak_mib()
            );
        }
        for promise in &self.promises {
            let found = self.ratio(promise);
            let verdict = match found {
                Some(ratio) if promise.bound.is_none() => format!("**{ratio:.2}**"),
                Some(ratio) if promise.is_kept(ratio) => format!("**{ratio:.2}**, holds"),
                Some(ratio) => format!("**{ratio:.2}**, missed"),
                None => "no number".to_owned(),
            };
            let _ = writeln!(out, "\n- {}: {verdict}", promise.words());
            if let (Unit::Files, Kind::Rate, Some(most)) = (unit, promise.kind, self.most(promise))
            {
                let _ = writeln!(
                    out,
                    "  (a client that takes no time would reach {most:.2}: the server's CPU seconds \
                     on {} cores)",
                    self.cores
                );
            }
        }
    }

    fn missed(&self, missed: &mut Vec<String>) {
        for one in &self.contestants {
            if let Some(error) = &one.error {
                missed.push(format!("{}: {}: {error}", self.name, one.label));
            }
            if is_ours(&one.label) && one.peak_mib() > PEAK_MIB_MAX {
                missed.push(format!("{}: {}: {:.0} MiB", self.name, one.label, one.peak_mib()));
            }
        }
        for promise in &self.promises {
            let ratio = self.ratio(promise);
            if !ratio.is_some_and(|ratio| promise.is_kept(ratio)) {
                let ratio = ratio.map_or_else(|| "no number".to_owned(), |r| format!("{r:.2}"));
                missed.push(format!("{}: {}: {ratio}", self.name, promise.words()));
            }
        }
    }
}

/// Returns true for Frevo's client, which has the promises.
fn is_ours(label: &str) -> bool {
    !label.starts_with("smbclient") && !label.starts_with("TCP")
}

/// Figures that are not runs of programs.
pub(super) struct Figures {
    pub(super) title: String,
    pub(super) rows: Vec<(String, Vec<f64>)>,
    /// The least ratio of the second to the first.
    pub(super) least: Option<f64>,
}

impl Figures {
    /// Returns the ratio of the second to the first, turn by turn.
    fn ratio(&self) -> Option<f64> {
        let [(_, first), (_, second), ..] = &*self.rows else { return None };
        Some(spread(first.iter().zip(second).map(|(a, b)| b / a).collect())?.median)
    }

    pub(super) fn markdown(&self, out: &mut String) {
        let _ = writeln!(out, "\n### {}\n\n| figure | median (min-max) |\n|---|---|", self.title);
        for (label, values) in &self.rows {
            let Some(s) = spread(values.clone()) else { continue };
            let _ = writeln!(out, "| {label} | {:.0} ({:.0}-{:.0}) |", s.median, s.min, s.max);
        }
        if let (Some(ratio), Some(least)) = (self.ratio(), self.least) {
            let verdict = if ratio >= least { "holds" } else { "missed" };
            let _ = writeln!(
                out,
                "\n- the second / the first: at least {least}: **{ratio:.2}**, {verdict}"
            );
        } else if let (Some(ratio), [_, _]) = (self.ratio(), &*self.rows) {
            let _ = writeln!(out, "\n- second / first: {ratio:.2}");
        }
    }
}

/// All figures and promises of a comparison.
pub(super) struct Page {
    pub(super) machine: Vec<String>,
    pub(super) setting: Vec<String>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) figures: Vec<Figures>,
}

impl Page {
    pub(super) fn markdown(&self) -> String {
        let mut out = String::from("# The client\n\n");
        for line in self.machine.iter().chain(&self.setting) {
            let _ = writeln!(out, "- {line}");
        }
        for comparison in &self.comparisons {
            comparison.markdown(&mut out);
        }
        for figures in &self.figures {
            figures.markdown(&mut out);
        }
        let _ = writeln!(
            out,
            "\nRates and CPU seconds are medians of the rounds, for a whole program from its start \
             and logon to its end; ratios are medians over neighbouring rounds. The server's CPU \
             seconds have a resolution of 0.01. Peak resident set of Frevo's client in any round: \
             {:.0} MiB, at most {PEAK_MIB_MAX:.0}.",
            self.peak_mib()
        );
        out
    }

    fn peak_mib(&self) -> f64 {
        let all = self.comparisons.iter().flat_map(|c| &c.contestants);
        all.filter(|c| is_ours(&c.label)).map(Contestant::peak_mib).fold(0.0, f64::max)
    }

    /// Returns the broken promises as text.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for comparison in &self.comparisons {
            comparison.missed(&mut missed);
        }
        for figures in &self.figures {
            if let Some(least) = figures.least
                && figures.ratio().is_none_or(|ratio| ratio < least)
            {
                missed.push(format!("{}: {:?}, not {least}", figures.title, figures.ratio()));
            }
        }
        missed
    }

    pub(super) fn json(&self) -> Value {
        let comparisons: Vec<Value> = self
            .comparisons
            .iter()
            .map(|c| {
                let promises: Vec<Value> = c
                    .promises
                    .iter()
                    .map(
                        |p| json!({ "promise": p.words(), "ratio": c.ratio(p), "most": c.most(p) }),
                    )
                    .collect();
                json!({
                    "name": c.name, "title": c.title, "count": c.count,
                    "contestants": c.contestants, "promises": promises,
                })
            })
            .collect();
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|f| json!({ "title": f.title, "rows": f.rows, "ratio": f.ratio() }))
            .collect();
        json!({
            "machine": self.machine, "setting": self.setting,
            "comparisons": comparisons, "figures": figures,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(seconds: f64, cpu_seconds: f64, peak_kib: u64) -> Usage {
        Usage { seconds, cpu_seconds, peak_kib, server_cpu_seconds: 0.0 }
    }

    fn page(frevo: Usage) -> Page {
        let contestant = |label: &str, one| Contestant {
            label: label.to_owned(),
            rounds: vec![one; 3],
            error: None,
        };
        let comparison = Comparison {
            name: "get".to_owned(),
            title: "get".to_owned(),
            cores: 2,
            count: 1e9,
            unit: Unit::Bytes,
            contestants: vec![
                contestant("smbclient", usage(1.0, 1.0, 900 << 10)),
                contestant("frevo", frevo),
            ],
            promises: vec![
                Promise::rate("frevo", "smbclient", 1.0),
                Promise::cpu("frevo", "smbclient", 0.7),
            ],
        };
        Page { machine: vec![], setting: vec![], comparisons: vec![comparison], figures: vec![] }
    }

    #[test]
    fn a_promise_is_missed_by_rate_by_cpu_by_memory_and_by_failing() {
        assert!(page(usage(0.5, 0.7, 9 << 10)).missed().is_empty());
        assert_eq!(page(usage(1.1, 0.7, 9 << 10)).missed().len(), 1);
        assert_eq!(page(usage(1.0, 0.8, 9 << 10)).missed().len(), 1);
        assert_eq!(page(usage(1.0, 0.7, 201 << 10)).missed().len(), 1);
        let mut failed = page(usage(0.5, 0.5, 1));
        failed.comparisons[0].contestants[1].error = Some("broke".to_owned());
        assert_eq!(failed.missed().len(), 1);
    }

    #[test]
    fn the_page_shows_rates_and_verdicts() {
        let text = page(usage(0.5, 0.8, 10 << 10)).markdown();
        assert!(text.contains("| frevo | 2000 (2000-2000) | 0.800 (0.800-0.800) | 0.00 | 10 |"));
        assert!(text.contains("**2.00**, holds") && text.contains("**0.80**, missed"));
    }

    #[test]
    fn figures_are_compared_turn_by_turn() {
        let rows = vec![("1".to_owned(), vec![1.0, 2.0]), ("32".to_owned(), vec![5.0, 10.0])];
        let mut figures = Figures { title: "depth".to_owned(), rows, least: Some(4.5) };
        assert_eq!(figures.ratio(), Some(5.0));
        let mut page = page(usage(0.5, 0.5, 1));
        figures.least = Some(6.0);
        page.figures.push(figures);
        assert_eq!(page.missed().len(), 1);
    }
}
