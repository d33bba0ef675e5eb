//! Runs one row against one server, for a profiler or to count system calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::proc;
use crate::rows::{Row, Unit};
use crate::server::Peer;
use crate::table::warmed;

/// Repeats the row and prints a line per second until `time` is over.
pub(crate) async fn profile(row: Row, peer: &Peer, share: &Path, time: Duration) -> Result<()> {
    let mut load = warmed(row, peer, share, Duration::from_millis(100)).await?;
    println!("{} pids: {}", peer.label, pids(peer.pid()));
    let deadline = Instant::now() + time;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        let round = load.round(peer, left.min(Duration::from_secs(1))).await?;
        let scale = if row.unit() == Unit::Bytes { 1e6 } else { 1.0 };
        println!(
            "{:.0} {}/s, server {:.0} % of a core, client {:.0} %",
            round.count as f64 / round.seconds / scale,
            if row.unit() == Unit::Bytes { "MB" } else { "ops" },
            round.server_cpu_seconds / round.seconds * 100.0,
            round.client_cpu_seconds / round.seconds * 100.0,
        );
    }
    Ok(())
}

fn pids(root: u32) -> String {
    proc::tree(root).iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Runs the row with `strace` counting on the server's whole tree, and prints the calls
/// of each kind for one operation (for the sequential rows, one request of 1 MiB).
pub(crate) async fn syscalls(row: Row, peer: &Peer, share: &Path, time: Duration) -> Result<()> {
    let mut load = warmed(row, peer, share, Duration::from_millis(100)).await?;
    let output = tempfile::NamedTempFile::new()?;
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-o"]).arg(output.path());
    for pid in proc::tree(peer.pid()) {
        strace.args(["-p", &pid.to_string()]);
    }
    let mut strace = strace.stderr(Stdio::null()).spawn().context("starting strace")?;
    // strace reports only on a terminal that it is attached, so the bench waits for half a second.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let round = load.round(peer, time).await;
    let pid = Pid::from_raw(i32::try_from(strace.id())?).context("the pid of strace")?;
    kill_process(pid, Signal::INT)?;
    strace.wait()?;
    let round = round?;
    let ops = match row.unit() {
        Unit::Bytes => round.count as f64 / crate::share::BLOCK_LEN as f64,
        _ => round.count as f64,
    };
    ensure!(ops > 0.0, "no operation ran");
    let calls = parse(&std::fs::read_to_string(output.path())?);
    println!("{}, {}: {ops:.0} operations under strace", peer.label, row.name());
    let mut sorted: Vec<_> = calls.into_iter().collect();
    sorted.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    println!("{:>10}  calls per operation, total", {
        let all: u64 = sorted.iter().map(|(_, n)| n).sum();
        format!("{:.3}", all as f64 / ops)
    });
    for (name, n) in sorted {
        println!("{:>10.3}  {name}", n as f64 / ops);
    }
    Ok(())
}

/// Returns the calls by name from the table of `strace -c`.
fn parse(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|l| {
            let fields: Vec<&str> = l.split_ascii_whitespace().collect();
            let name = *fields.last()?;
            fields.first()?.parse::<f64>().ok()?;
            Some((name.to_owned(), fields.get(3)?.parse().ok()?))
        })
        .filter(|(name, _)| name != "total")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_strace_is_read_with_and_without_errors() {
        let text = "% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.010000          10      1000           pread64
 40.00    0.005000           5       900         3 epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.015000           7      1900         3 total
";
        let calls = parse(text);
        assert_eq!(calls.get("pread64"), Some(&1000));
        assert_eq!(calls.get("epoll_wait"), Some(&900));
        assert_eq!(calls.len(), 2);
    }
}
