//! The page of the large files.

use std::fmt::Write as _;

use super::{Outcome, Pass};
use crate::report::{Spread, spread};
use crate::server::Peer;

const LEGEND: &str = "
Rates and processor times are medians of the rounds, with the least and the greatest rate. *CPU s* is the time of the
server's process tree for a GB. *bare* makes the same copies and calls without SMB and without cryptography: a blocking
server with a buffer of 1 MiB; of the copy on the server, copy_file_range(2). *others* is the time of other work, in
cores.
";

/// The page, row by row.
pub(super) struct Page {
    labels: Vec<String>,
    text: String,
}

impl Page {
    pub(super) fn new(peers: &[Peer], setting: Vec<String>) -> Self {
        let labels: Vec<String> = peers.iter().map(|peer| peer.label.clone()).collect();
        let mut text = String::from("# Large files, once through\n\n");
        for line in setting {
            let _ = writeln!(text, "- {line}");
        }
        let mut head = vec!["row".to_owned()];
        head.extend(labels.iter().map(|label| format!("{label}, MB/s")));
        head.extend(labels.iter().map(|label| format!("{label}, CPU s")));
        head.extend(
            ["Frevo/bare CPU", "Frevo/smbd CPU", "Frevo/tuned CPU", "others"].map(String::from),
        );
        let _ = writeln!(text, "\n| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        Self { labels, text }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, name: &str, outcomes: &[Outcome]) {
        let of = |label: &str| outcomes.iter().find(|outcome| outcome.label == label);
        let cpu = |label: &str| of(label).and_then(Outcome::cpu_of_a_gb).map(|cpu| cpu.median);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let mut cells = vec![name.to_owned()];
        for label in &self.labels {
            let rate = of(label).and_then(Outcome::rate);
            cells.push(or_dash(rate.map(|Spread { median, min, max }| {
                format!("{:.0} ({:.0}-{:.0})", median / 1e6, min / 1e6, max / 1e6)
            })));
        }
        cells.extend(
            self.labels.iter().map(|label| or_dash(cpu(label).map(|cpu| format!("{cpu:.3}")))),
        );
        for other in ["bare", "smbd", "tuned"] {
            let ratio = cpu("Frevo").zip(cpu(other)).filter(|(_, other)| *other > 0.0);
            cells.push(or_dash(ratio.map(|(frevo, other)| format!("{:.2}", frevo / other))));
        }
        let all = || outcomes.iter().flat_map(|outcome| &outcome.passes);
        let seconds: f64 = all().map(|pass| pass.seconds).sum();
        let others: f64 = all().map(|pass| pass.others_cpu).sum();
        cells.push(or_dash((seconds > 0.0).then(|| format!("{:.1}", others / seconds))));
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    pub(super) fn text(self) -> String {
        self.text + LEGEND
    }
}

impl Outcome {
    fn rate(&self) -> Option<Spread> {
        spread(self.passes.iter().map(|pass| pass.bytes as f64 / pass.seconds).collect())
    }

    fn cpu_of_a_gb(&self) -> Option<Spread> {
        let of = |pass: &Pass| pass.server_cpu * 1e9 / pass.bytes as f64;
        spread(self.passes.iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_heading_has_a_cell_and_medians_are_compared() {
        let outcome = |label: &str, cpu: f64| Outcome {
            label: label.to_owned(),
            passes: [0.5, 1.0, 9.0]
                .map(|times| Pass {
                    bytes: 1_000_000_000,
                    seconds: times,
                    server_cpu: cpu * times,
                    others_cpu: 0.0,
                })
                .to_vec(),
        };
        let labels = ["bare", "smbd", "tuned", "Frevo"].map(String::from).to_vec();
        let mut page = Page { labels, text: String::new() };
        let all = [("bare", 0.2), ("smbd", 0.5), ("tuned", 0.4), ("Frevo", 0.3)];
        page.add("read", &all.map(|(label, cpu)| outcome(label, cpu)));
        let text = page.text();
        let row = text.lines().next().unwrap();
        assert!(
            row.contains(
                "| 1000 (111-2000) | 0.200 | 0.500 | 0.400 | 0.300 | 1.50 | 0.60 | 0.75 | 0.0 |"
            ),
            "{row}"
        );
    }
}
