//! The requests that a large cluster makes to etcd: the machines of all nodes and the model of etcd,
//! without servers.
//!
//! docs/adr/0006 has the figures. A request takes [`ROUND`] whatever else is under way, so the times are
//! those of an etcd that is not overloaded; what it would have to carry out in a second is counted.

mod nodes;

use std::fmt::Write as _;
use std::time::Duration;

use nodes::{Cluster, Counted};

/// Time of a request and its answer.
const ROUND: Duration = Duration::from_millis(2);

/// The time for which a handle lives.
const HANDLE_LIVES: Duration = Duration::from_secs(3_600);

/// Changes of a handle's record in its life: it is made, changed twice, and removed.
const CHANGES: u64 = 4;

/// Time for which the ordinary work is counted.
const WORK: Duration = Duration::from_secs(60);

/// The size of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Nodes.
    pub nodes: usize,
    /// Shares.
    pub shares: usize,
    /// Persistent handles of all shares.
    pub handles: u64,
    /// Clients of all shares.
    pub clients: u64,
}

/// Runs a cluster of this size from its start to the return of all its clients. Returns rows of a table.
///
/// # Errors
/// If something does not end that must.
pub fn run(size: Size) -> Result<String, String> {
    let mut table = String::from("| What | Figures of the run |\n|---|---|\n");
    let mut row = |what: &str, figures: String| _ = writeln!(table, "| {what} | {figures} |");
    let mut cluster = Cluster::new(size);
    let time = cluster.until("all shares are served", Cluster::are_all_served)?;
    row("all nodes start at once", told(time, &cluster.counted()));
    let time = cluster.open_all(size.handles)?;
    row("all handles are opened, as fast as it goes", told(time, &cluster.counted()));
    let (keys, bytes) = cluster.size();
    row("keys", format!("{keys} with {:.0} MB", megabytes(bytes)));
    let of_control = cluster.control_size();
    let (keys, bytes) = of_control;
    row("of these, of nodes and owners", format!("{keys} with {:.1} MB", megabytes(bytes)));
    cluster.rest(WORK);
    row("a second without work", a_second(&cluster.counted(), WORK));
    let changes = size.handles * CHANGES * WORK.as_secs() / HANDLE_LIVES.as_secs();
    cluster.work(changes, WORK)?;
    row("a second of ordinary work", a_second(&cluster.counted(), WORK));
    cluster.kill_first();
    let time = cluster.until("the shares of a dead node are served", Cluster::are_all_served)?;
    let counted = cluster.counted();
    row("a node dies, until all its shares are served", told(time, &counted));
    let loaded = cluster.take_longest_load();
    row("of this, fencing, taking and loading take, from the end of its lease", seconds(loaded));
    row("handles that are loaded then", format!("{} in {} parts", counted.loaded, counted.parts));
    cluster.start_first();
    let time = cluster.until("the node is registered", Cluster::is_first_registered)?;
    row("the node starts again, until it is registered", told(time, &cluster.counted()));
    let time = cluster.return_all(size.handles)?;
    let counted = cluster.counted();
    let clients = size.clients;
    row(
        &format!("all {clients} clients come back at once, each handle changes"),
        told(time, &counted),
    );
    Ok(table)
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// Figures of something that took `time`.
fn told(time: Duration, counted: &Counted) -> String {
    format!(
        "{}: {} transactions, {} of them write {:.1} MB; watches tell {} changes with {:.1} MB; {:.1} MB are read",
        seconds(time),
        counted.transactions,
        counted.changes,
        megabytes(counted.written),
        counted.told,
        megabytes(counted.told_bytes),
        megabytes(counted.read),
    )
}

/// Figures of each second of a time.
fn a_second(counted: &Counted, time: Duration) -> String {
    let each = |count: u64| count as f64 / time.as_secs_f64();
    format!(
        "{:.0} keep-alives, {:.0} transactions that read, {:.0} that write {:.0} kB; watches tell {:.0} changes",
        each(counted.keep_alives),
        each(counted.transactions - counted.changes),
        each(counted.changes),
        each(counted.written as u64) / 1e3,
        each(counted.told),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_cluster_gives_all_figures() {
        let size = Size { nodes: 5, shares: 40, handles: 2_000, clients: 200 };
        let table = run(size).unwrap();
        assert_eq!(table.lines().count(), 13, "{table}");
        assert!(table.contains(" in 8 parts |"), "{table}");
        assert!(table.contains(" 10 keep-alives"), "{table}");
    }

    #[test]
    fn a_cluster_whose_nodes_cannot_register_says_so() {
        let size = Size { nodes: 2, shares: 2, handles: 2, clients: 1 };
        let mut cluster = Cluster::new(size);
        cluster.lose_majority();
        let end = cluster.until("all shares are served", Cluster::are_all_served);
        assert_eq!(end, Err(String::from("all shares are served: not within 600 s")));
    }
}
