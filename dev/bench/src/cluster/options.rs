//! Options, and figures for people.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::Common;

/// The GUID of the client.
pub(super) const GUID: [u8; 16] = *b"frevo-bench-0042";
/// The longest time until a share is served.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// `frevo-bench cluster`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Parts: creates, transfers, restore, shares.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Creates, Part::Transfers, Part::Restore, Part::Shares])]
    pub(super) parts: Vec<Part>,
    /// The program etcd.
    #[arg(long, default_value = "etcd")]
    pub(super) etcd: PathBuf,
    /// Rounds of the creates.
    #[arg(long, default_value_t = 6)]
    pub(super) rounds: usize,
    /// Creates of a round, one at a time.
    #[arg(long, default_value_t = 200)]
    pub(super) single: usize,
    /// Creates of a round with many in flight.
    #[arg(long, default_value_t = 4_000)]
    pub(super) creates: usize,
    /// Handles of the share whose node dies.
    #[arg(long, default_value_t = 10_000)]
    pub(super) handles: usize,
    /// Shares of the three nodes.
    #[arg(long, default_value_t = 100)]
    pub(super) shares: usize,
    /// Pairs of rounds of each kind of transfer.
    #[arg(long, default_value_t = 24)]
    pub(super) pairs: usize,
    /// Length of a round of transfers in milliseconds.
    #[arg(long, default_value_t = 400)]
    pub(super) round_ms: u64,
    /// Parts of the names of transfers, as of the rows of `table`.
    #[arg(long, default_value = "read,write")]
    pub(super) rows: String,
    /// Write the page here.
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// Exit with 1 if a goal is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    Creates,
    Transfers,
    Restore,
    Shares,
}

/// The value in the middle.
pub(super) fn middle(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The value at a part of a hundred of sorted ones.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

pub(super) fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

pub(super) fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}
