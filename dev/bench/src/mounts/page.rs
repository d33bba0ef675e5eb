//! The results, as Markdown and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::folders::Mounter;
use super::work::{Done, Work};
use crate::report::spread;

/// One piece of work and its results for each mounter.
pub(super) struct Row {
    pub(super) work: Work,
    cells: Vec<Cell>,
}

/// The results of one mounter.
#[derive(Default, serde::Serialize)]
struct Cell {
    rounds: Vec<Done>,
    /// CPU seconds of the mount program, one value per round.
    cpu_seconds: Vec<f64>,
    error: Option<String>,
}

impl Row {
    pub(super) fn new(work: Work, mounters: &[Mounter<'_>]) -> Self {
        Self { work, cells: mounters.iter().map(|_| Cell::default()).collect() }
    }

    pub(super) fn done(&mut self, who: usize, done: Done, cpu_seconds: f64) {
        if let Some(cell) = self.cells.get_mut(who) {
            cell.rounds.push(done);
            cell.cpu_seconds.push(cpu_seconds);
        }
    }

    pub(super) fn failed(&mut self, who: usize, error: &anyhow::Error) {
        if let Some(cell) = self.cells.get_mut(who) {
            cell.error = Some(format!("{error:#}"));
        }
    }
}

impl Cell {
    fn markdown(&self) -> String {
        if let Some(error) = &self.error {
            let error: String = error.chars().take(60).collect();
            return format!("failed: {}", error.replace(['|', '\n'], " "));
        }
        let rate = spread(self.rounds.iter().map(|done| done.count / done.seconds).collect());
        let cpu = spread(self.cpu_seconds.clone());
        match (rate, cpu) {
            (Some(rate), Some(cpu)) if cpu.max > 0.0 => {
                format!(
                    "**{:.0}** ({:.0}-{:.0}); {:.2} s",
                    rate.median, rate.min, rate.max, cpu.median
                )
            }
            (Some(rate), _) => format!("**{:.0}** ({:.0}-{:.0})", rate.median, rate.min, rate.max),
            _ => "-".to_owned(),
        }
    }
}

/// All results of a run.
pub(super) struct Page {
    pub(super) machine: Vec<String>,
    pub(super) setting: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<Row>,
}

impl Page {
    pub(super) fn markdown(&self) -> String {
        let mut out = String::from("# The mount\n\n");
        for line in self.machine.iter().chain(&self.setting) {
            let _ = writeln!(out, "- {line}");
        }
        let _ = writeln!(out, "\n| work | unit | {} |", self.names.join(" | "));
        let _ = writeln!(out, "|---|---|{}", "---|".repeat(self.names.len()));
        for row in &self.rows {
            let cells: Vec<String> = row.cells.iter().map(Cell::markdown).collect();
            let (name, unit) = (row.work.name(), row.work.unit().name());
            let _ = writeln!(out, "| {name} | {unit} | {} |", cells.join(" | "));
        }
        let _ = writeln!(
            out,
            "\nMedian (least-most) of the rounds; CPU seconds of the program that mounts.\n"
        );
        for row in &self.rows {
            let _ = writeln!(out, "- **{}**: {}", row.work.name(), row.work.title());
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let cells: Vec<Value> = self
                    .names
                    .iter()
                    .zip(&row.cells)
                    .map(|(name, cell)| json!({ "who": name, "measured": cell }))
                    .collect();
                json!({ "name": row.work.name(), "title": row.work.title(), "unit": row.work.unit().name(), "cells": cells })
            })
            .collect();
        json!({ "machine": self.machine, "setting": self.setting, "rows": rows })
    }
}
