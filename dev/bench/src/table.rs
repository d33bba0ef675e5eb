//! Runs the rows side by side.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::memory::{self, Memory};
use crate::rows::{Load, Round, Row};
use crate::server::{self, Kind, Peer};
use crate::wire::Frames;

/// Warm-up before a round, as a part of the round.
const WARM_UP: f64 = 0.3;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    pub(crate) connections: usize,
}

/// The results of a server in a row.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(crate) struct Outcome {
    pub(crate) label: String,
    pub(crate) rounds: Vec<Round>,
    pub(crate) memory: Option<Memory>,
    pub(crate) wire: Option<String>,
    pub(crate) frames: Option<Frames>,
    pub(crate) error: Option<String>,
}

impl Outcome {
    fn of(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }
}

/// One row of the table; the outcome labelled as limit is the bare data path.
pub(crate) struct RowResult {
    pub(crate) row: Row,
    pub(crate) outcomes: Vec<Outcome>,
}

/// The servers of a run and the path of their files.
pub(crate) struct Bench<'a> {
    pub(crate) peers: Vec<Peer>,
    pub(crate) scratch: &'a Path,
}

impl Bench<'_> {
    /// Runs interleaved rounds: every server in turn; the order reverses each time.
    pub(crate) async fn row(&self, row: Row, pace: Pace) -> Result<RowResult> {
        if row == Row::Memory {
            return self.memory(pace).await;
        }
        let mut outcomes: Vec<Outcome> =
            self.peers.iter().map(|peer| Outcome::of(&peer.label)).collect();
        for n in 0..pace.rounds {
            let mut order: Vec<_> = self.peers.iter().zip(&mut outcomes).collect();
            if n % 2 == 1 {
                order.reverse();
            }
            for (peer, outcome) in order {
                if outcome.error.is_none()
                    && let Err(e) = self.round(row, peer, pace.round, outcome).await
                {
                    outcome.error = Some(format!("{e:#}"));
                }
            }
        }
        Ok(RowResult { row, outcomes })
    }

    /// Runs a round on a connection of its own: the speed of a connection depends on its buffers
    /// and its server process, and must not decide all rounds.
    async fn round(
        &self,
        row: Row,
        peer: &Peer,
        time: Duration,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut load = warmed(row, peer, &peer.share, time.mul_f64(WARM_UP)).await?;
        outcome.rounds.push(load.round(peer, time).await?);
        if let Some((wire, frames)) = load.wire() {
            outcome.wire = Some(wire);
            outcome.frames = Some(outcome.frames.unwrap_or_default().and(frames));
        }
        load.finish().await
    }

    /// Measures memory on servers of its own, whose heaps no other row has grown.
    async fn memory(&self, pace: Pace) -> Result<RowResult> {
        let mut outcomes = Vec::new();
        for peer in self.peers.iter().filter(|p| p.kind != Kind::Limit) {
            let mut outcome = Outcome::of(&peer.label);
            match self.fresh_memory(peer, pace).await {
                Ok(memory) => {
                    outcome.wire = Some(memory.wire.clone());
                    outcome.memory = Some(memory);
                }
                Err(e) => outcome.error = Some(format!("{e:#}")),
            }
            outcomes.push(outcome);
        }
        Ok(RowResult { row: Row::Memory, outcomes })
    }

    /// Measures a server like `peer` that shares an empty folder.
    async fn fresh_memory(&self, peer: &Peer, pace: Pace) -> Result<Memory> {
        let label = format!("{}-fresh", peer.label);
        let folder = self.scratch.join(&label);
        std::fs::create_dir(&folder)?;
        let fresh = server::start(peer.kind, &label, &folder, self.scratch, &peer.programs)?;
        memory::measure(&fresh, pace.connections).await
    }
}

/// Sets `row` up on `peer` and runs it for `time` without counting.
pub(crate) async fn warmed(row: Row, peer: &Peer, share: &Path, time: Duration) -> Result<Load> {
    let mut load = Load::open(row, peer, share).await?;
    load.round(peer, time).await?;
    Ok(load)
}
