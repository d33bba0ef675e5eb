//! The table of the load as Markdown.

use std::fmt::Write as _;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::engine::Measured;
use super::plot::{self, Line};
use super::shape::Shape;
use crate::report::spread;

/// Requests below this size are counted, larger ones measured in bytes.
const COUNTED_BELOW: usize = 65_536;
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// The rounds of one server in one row.
#[derive(Default)]
pub(super) struct Outcome {
    rates: Vec<f64>,
    units: f64,
    server_cpu_seconds: f64,
    client_cpu_seconds: f64,
    seconds: f64,
    latency: Option<Histogram<u64>>,
    worst: Vec<f64>,
    is_counted: bool,
}

impl Outcome {
    pub(super) fn add(&mut self, measured: &Measured) -> Result<()> {
        let Measured { requests, bytes, seconds, .. } = *measured;
        self.is_counted = bytes / requests < COUNTED_BELOW as u64;
        // The unit is a thousand requests if requests are counted, and one GB otherwise.
        let units = if self.is_counted { requests as f64 / 1e3 } else { bytes as f64 / 1e9 };
        self.rates.push(units / seconds);
        self.units += units;
        self.server_cpu_seconds += measured.server_cpu_seconds;
        self.client_cpu_seconds += measured.client_cpu_seconds;
        self.seconds += seconds;
        self.worst.push(measured.worst_of_median);
        match &mut self.latency {
            Some(all) => all.add(&measured.latency)?,
            None => self.latency = Some(measured.latency.clone()),
        }
        Ok(())
    }

    /// True if the row was measured on this server.
    fn is_measured(&self) -> bool {
        !self.rates.is_empty()
    }

    /// CPU seconds of the server for a GB or for 1000 requests.
    fn cpu(&self) -> f64 {
        self.server_cpu_seconds / self.units
    }

    fn percentiles(&self) -> String {
        let micros =
            |p| self.latency.as_ref().map_or(0.0, |l| l.value_at_percentile(p) as f64 / 1e3);
        PERCENTILES.map(|p| format!("{:.0}", micros(p))).join(" / ")
    }
}

pub(super) struct Page {
    labels: Vec<String>,
    setting: Vec<String>,
    rates: String,
    details: String,
    lines: Vec<Line>,
}

impl Page {
    pub(super) fn new(labels: Vec<String>, setting: Vec<String>) -> Self {
        let (rates, details) = (String::new(), String::new());
        Self { labels, setting, rates, details, lines: Vec::new() }
    }

    pub(super) fn row(&mut self, row: &Shape, outcomes: &[Outcome]) {
        let name = row.name();
        let _ = write!(self.rates, "| {name} |");
        for outcome in outcomes {
            let unit = if outcome.is_counted { "k/s" } else { "GB/s" };
            let rate = format!("{:.2} {unit}", median(&outcome.rates));
            let _ = write!(self.rates, " {} |", if outcome.is_measured() { &rate } else { "–" });
        }
        for outcome in outcomes {
            let cpu = format!("{:.4}", outcome.cpu());
            let _ = write!(self.rates, " {} |", if outcome.is_measured() { &cpu } else { "–" });
        }
        let mut parts = Vec::new();
        if let Some((last, others)) = outcomes.split_last() {
            for other in others {
                let part = other.is_measured().then(|| last.cpu() / other.cpu());
                let text = part.map_or("–".to_owned(), |part| format!("**{part:.2}**"));
                let _ = write!(self.rates, " {text} |");
                parts.push(part);
            }
        }
        self.rates.push('\n');
        self.detail(&name, outcomes);
        self.lines.push(Line { name, parts });
    }

    fn detail(&mut self, name: &str, outcomes: &[Outcome]) {
        let measured = self.labels.iter().zip(outcomes).filter(|(_, o)| o.is_measured());
        for (label, outcome) in measured {
            let _ = writeln!(
                self.details,
                "| {name} | {label} | {} | {:.0} % | {:.0} % | {:.2} | {:.2} |",
                outcome.percentiles(),
                outcome.server_cpu_seconds / outcome.seconds * 100.0,
                outcome.client_cpu_seconds / outcome.seconds * 100.0,
                outcome.client_cpu_seconds / outcome.server_cpu_seconds,
                median(&outcome.worst),
            );
        }
    }

    /// Returns the picture of the last server beside the others.
    pub(super) fn picture(&self) -> String {
        let (last, others) = self.labels.split_last().map_or(("", &[][..]), |(l, o)| (l, o));
        plot::picture(last, others, &self.lines)
    }

    pub(super) fn markdown(&self) -> String {
        let mut page = String::from("# The server as the bottleneck\n\n");
        for line in &self.setting {
            let _ = writeln!(page, "- {line}");
        }
        let cpu = self.labels.iter().map(|label| format!("{label} CPU s"));
        let mut heads: Vec<String> = self.labels.iter().cloned().chain(cpu).collect();
        if let Some((last, others)) = self.labels.split_last() {
            heads.extend(others.iter().map(|other| format!("CPU {last}/{other}")));
        }
        let _ = writeln!(page, "\n| row | {} |", heads.join(" | "));
        let _ = writeln!(page, "|---|{}", "---|".repeat(heads.len()));
        page.push_str(&self.rates);
        page.push_str(
            "\n*CPU s* is the server's, of its whole process tree, for a GB, or for 1000 requests or \
             entries. Rates are medians.\n\n\
             | row | server | latency 50 / 99 / 99.9 %, µs | server's core | client's core | \
             client's CPU of server's | worst connection of the median |\n\
             |---|---|---|---|---|---|---|\n",
        );
        page.push_str(&self.details);
        page
    }
}

fn median(values: &[f64]) -> f64 {
    spread(values.to_vec()).map_or(0.0, |s| s.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(micros: u64) -> Measured {
        let mut latency = Histogram::new(2).unwrap();
        latency.record(micros * 1000).unwrap();
        Measured {
            requests: 1000,
            bytes: 1000 * 4096,
            seconds: 0.5,
            server_cpu_seconds: 0.25,
            client_cpu_seconds: 0.125,
            latency,
            worst_of_median: 0.9,
        }
    }

    #[test]
    fn rounds_are_added_up_with_their_latencies() {
        let mut outcome = Outcome::default();
        outcome.add(&measured(100)).unwrap();
        outcome.add(&measured(50_000)).unwrap();
        assert!((outcome.cpu() - 0.25).abs() < 1e-9, "{}", outcome.cpu());
        let text = outcome.percentiles();
        let parts: Vec<f64> = text.split(" / ").map(|p| p.parse().unwrap()).collect();
        assert!((99.0..=102.0).contains(&parts[0]), "{text}");
        assert!((49_000.0..=51_000.0).contains(&parts[2]), "{text}");
    }
}
