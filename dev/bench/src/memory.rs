//! Resident memory of an idle authenticated connection.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::client::{Client, Protection};
use crate::proc::{self, Resident};
use crate::server::Peer;

/// Connections being made at a time.
const CONNECTING: usize = 8;
/// Between the last tree connect and the reading.
const SETTLE: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Memory {
    pub(crate) connections: u64,
    pub(crate) before: Resident,
    pub(crate) after: Resident,
    pub(crate) wire: String,
}

impl Memory {
    fn per_connection(&self, before: u64, after: u64) -> f64 {
        (after as f64 - before as f64) / self.connections.max(1) as f64
    }

    /// Growth of what the machine really spends, KiB a connection.
    pub(crate) fn pss_kib(&self) -> f64 {
        self.per_connection(self.before.pss_kib, self.after.pss_kib)
    }

    /// Growth of the processes' resident pages, KiB a connection.
    pub(crate) fn rss_kib(&self) -> f64 {
        self.per_connection(self.before.rss_kib, self.after.rss_kib)
    }
}

/// Holds `count` connections (negotiated, logged on, tree connected) on a server that
/// has served one before, and sees what it grew by.
pub(crate) async fn measure(peer: &Peer, count: usize) -> Result<Memory> {
    let warm = Client::connect(&peer.target, Protection::Signed).await?;
    let wire = warm.description().to_owned();
    warm.logoff().await?;
    tokio::time::sleep(SETTLE).await;
    let before = proc::resident(peer.pid());
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let mut batch = JoinSet::new();
        for _ in 0..CONNECTING.min(count - held.len()) {
            let target = peer.target.clone();
            batch.spawn(async move { Client::connect(&target, Protection::Signed).await });
        }
        while let Some(client) = batch.join_next().await {
            held.push(client?.with_context(|| format!("connection {}", held.len()))?);
        }
    }
    tokio::time::sleep(SETTLE).await;
    let after = proc::resident(peer.pid());
    Ok(Memory { connections: held.len() as u64, before, after, wire })
}
