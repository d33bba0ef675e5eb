//! The counts as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::profile_file::Costs;
use crate::rows::Row;

/// The counts of one row on one program.
pub(crate) struct Column {
    pub(crate) label: String,
    pub(crate) operations: f64,
    pub(crate) costs: Costs,
}

impl Column {
    fn total(&self) -> f64 {
        self.costs.total as f64 / self.operations
    }
}

/// The page: a table of totals, then the details of each row.
pub(crate) struct Page {
    lines: usize,
    machine: Vec<String>,
    programs: Vec<String>,
    totals: String,
    details: String,
}

impl Page {
    pub(crate) fn new(lines: usize, machine: Vec<String>) -> Self {
        Self { lines, machine, programs: vec![], totals: String::new(), details: String::new() }
    }

    pub(crate) fn program(&mut self, label: &str, version: &str) {
        self.programs.push(format!("{label}: {version}"));
    }

    pub(crate) fn row(&mut self, row: Row, columns: &[Column]) {
        let Some(last) = columns.last() else { return };
        let _ = write!(self.totals, "| {} |", row.title());
        for column in columns {
            let _ = write!(self.totals, " {:.0} |", column.total());
        }
        let ratio = match columns.first() {
            Some(first) if columns.len() > 1 => format!("{:.3}", last.total() / first.total()),
            _ => "–".to_owned(),
        };
        let allocations: Vec<String> =
            columns.iter().map(|c| decimal(c.costs.allocations() as f64 / c.operations)).collect();
        let allocations = allocations.join(" → ");
        let _ = writeln!(self.totals, " {ratio} | {allocations} | {:.0} |", last.operations);
        let _ = writeln!(self.details, "\n## {}\n", row.title());
        self.detail("crate", columns, |c| c.costs.crates());
        self.detail("source file", columns, |c| c.costs.files.clone());
        self.detail("function", columns, |c| c.costs.functions.clone());
        self.detail("calls of", columns, |c| c.costs.calls.clone());
    }

    /// A table of the places with the greatest counts, with the change where there are two programs.
    fn detail(
        &mut self,
        what: &str,
        columns: &[Column],
        of: impl Fn(&Column) -> BTreeMap<String, u64>,
    ) {
        let counts: Vec<BTreeMap<String, f64>> = columns
            .iter()
            .map(|c| of(c).into_iter().map(|(k, n)| (k, n as f64 / c.operations)).collect())
            .collect();
        let places: BTreeSet<&String> = counts.iter().flat_map(BTreeMap::keys).collect();
        let mut rows: Vec<(&str, Vec<f64>)> = places
            .into_iter()
            .map(|place| {
                let each = counts.iter().map(|c| c.get(place).copied().unwrap_or(0.0));
                (place.as_str(), each.collect())
            })
            .collect();
        rows.sort_by(|(_, a), (_, b)| weight(b).total_cmp(&weight(a)));
        let labels: Vec<&str> = columns.iter().map(|c| c.label.as_str()).collect();
        let _ = writeln!(self.details, "| {what} | {} | change |", labels.join(" | "));
        let _ = writeln!(self.details, "|---|{}---|", "---|".repeat(columns.len()));
        for (place, each) in rows.into_iter().take(self.lines) {
            let numbers: Vec<String> = each.iter().map(|n| decimal(*n)).collect();
            let change = match (each.first(), each.last()) {
                (Some(first), Some(last)) if each.len() > 1 => format!("{:+.0}", last - first),
                _ => "–".to_owned(),
            };
            let place = place.replace('|', "\\|");
            let _ = writeln!(self.details, "| `{place}` | {} | {change} |", numbers.join(" | "));
        }
        self.details.push('\n');
    }

    pub(crate) fn markdown(&self) -> String {
        let mut page = String::from("# Instructions of the server for an operation\n\n");
        for line in self.machine.iter().chain(&self.programs) {
            let _ = writeln!(page, "- {line}");
        }
        let labels: Vec<&str> = self.programs.iter().filter_map(|p| p.split(':').next()).collect();
        let _ = writeln!(
            page,
            "\n| row | {} | after/before | allocations | operations |",
            labels.join(" | ")
        );
        let _ = writeln!(page, "|---|{}---|---|---|", "---|".repeat(labels.len()));
        page.push_str(&self.totals);
        page.push_str(&self.details);
        page
    }
}

/// The greatest count comes first; where two programs differ much, that counts as well.
fn weight(each: &[f64]) -> f64 {
    let most = each.iter().copied().fold(0.0, f64::max);
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    most + 2.0 * (most - least)
}

fn decimal(n: f64) -> String {
    if n < 10.0 { format!("{n:.1}") } else { format!("{n:.0}") }
}
