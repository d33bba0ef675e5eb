//! Reads `/proc`: figures of a process tree and of the machine.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Clock ticks per second of `/proc/<pid>/stat` (USER_HZ, fixed by Linux's ABI).
const USER_HZ: f64 = 100.0;

struct Stat {
    parent: u32,
    /// User and system time of the process, in ticks.
    own_ticks: u64,
    /// The same of its reaped children.
    children_ticks: u64,
    threads: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name is in parentheses and may hold any byte, so count from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let rest = text.get(text.rfind(')')? + 1..)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok());
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own_ticks: number(11)? + number(12)?,
        children_ticks: number(13)? + number(14)?,
        threads: number(17)?,
    })
}

/// CPU seconds of a process and of its reaped children. A tick has 10 ms, which is too much for each
/// of a thousand processes that have little to do, so a process with one thread is asked for its
/// nanoseconds. For several threads there is no such sum: those that have ended are missing.
fn process_seconds(pid: u32) -> Option<f64> {
    let of = stat(pid)?;
    let nanoseconds = || {
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let own = match nanoseconds().filter(|_| of.threads == 1) {
        Some(nanoseconds) => nanoseconds as f64 / 1e9,
        None => of.own_ticks as f64 / USER_HZ,
    };
    Some(own + of.children_ticks as f64 / USER_HZ)
}

/// Returns `root` and every living descendant.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok())
            && let Some(s) = stat(pid)
        {
            children.entry(s.parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.get(pid).into_iter().flatten().copied().collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// Returns the CPU seconds of the tree under `root` so far. A reaped child's time is in its
/// parent's, so that the time of ended processes is counted.
pub(crate) fn cpu_seconds(root: u32) -> f64 {
    tree(root).into_iter().filter_map(process_seconds).sum()
}

/// Returns the CPU seconds of the living threads of the tree under `root` so far, by nanoseconds.
pub(crate) fn thread_seconds(root: u32) -> f64 {
    let of_thread = |folder: fs::DirEntry| {
        let text = fs::read_to_string(folder.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let threads =
        tree(root).into_iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let nanoseconds: u64 = threads.flatten().flatten().filter_map(of_thread).sum();
    nanoseconds as f64 / 1e9
}

/// Returns the CPU seconds of this process so far.
pub(crate) fn own_cpu_seconds() -> f64 {
    process_seconds(std::process::id()).unwrap_or(0.0)
}

/// Returns the CPU seconds that the whole machine has been busy so far, stolen time included.
pub(crate) fn machine_cpu_seconds() -> f64 {
    busy_ticks(&first_line("/proc/stat")) as f64 / USER_HZ
}

/// Returns the busy ticks: user, nice, system, irq, softirq and steal; user includes guest time.
fn busy_ticks(line: &str) -> u64 {
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
    ticks.iter().enumerate().filter(|(n, _)| !matches!(n, 3 | 4)).map(|(_, t)| t).sum()
}

/// Resident memory of a process tree, in KiB.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub(crate) struct Resident {
    /// Resident memory, KiB; shared pages count in each process.
    pub(crate) rss_kib: u64,
    /// Resident memory with shared pages divided among their users, KiB: the real use of memory.
    pub(crate) pss_kib: u64,
    /// Number of processes counted.
    pub(crate) processes: u64,
}

pub(crate) fn resident(root: u32) -> Resident {
    let mut sum = Resident::default();
    for pid in tree(root) {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
        let kib = |key: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(key))
                .and_then(|v| v.split_ascii_whitespace().next())
                .and_then(|v| v.parse::<u64>().ok())
                .unwrap_or(0)
        };
        sum.rss_kib += kib("Rss:");
        sum.pss_kib += kib("Pss:");
        sum.processes += 1;
    }
    sum
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Describes the machine without names and paths: processor, kernel, memory, file system of `dir`.
pub(crate) fn machine(dir: &Path) -> Vec<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map_or("unknown processor", |l| l.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_kib: u64 = fs::read_to_string("/proc/meminfo")
        .unwrap_or_default()
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|l| l.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let kernel: String = first_line("/proc/sys/kernel/osrelease")
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    vec![
        format!("{model}, {cores} cores, {} GiB", memory_kib >> 20),
        format!("Linux {kernel}, share on {}, loopback TCP", file_system(dir)),
    ]
}

/// Returns the type of the file system that holds `dir`.
pub(crate) fn file_system(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    fs::read_to_string("/proc/self/mounts")
        .unwrap_or_default()
        .lines()
        .filter_map(|l| {
            let mut f = l.split_ascii_whitespace().skip(1);
            Some((f.next()?.to_owned(), f.next()?.to_owned()))
        })
        .filter(|(mount, _)| dir.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind)
}

/// Returns the one-minute load average.
pub(crate) fn load() -> f64 {
    first_line("/proc/loadavg").split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let s =
            parse_stat("42 (a) b (c)) S 7 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1").unwrap();
        assert_eq!((s.parent, s.own_ticks, s.children_ticks, s.threads), (7, 30, 70, 1));
    }

    /// It computes for a small part of a tick at the most.
    #[test]
    fn a_process_with_little_to_do_costs_something() {
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let seconds = process_seconds(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seconds > 0.0 && (seconds * USER_HZ).fract() > 0.0, "{seconds}");
    }

    #[test]
    fn waiting_is_not_being_busy() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 2000 8 16 32 64 128"), 63);
    }

    #[test]
    fn a_child_is_in_the_tree_and_costs_memory() {
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        let before = tree(std::process::id());
        assert!(before.contains(&child.id()) && before.contains(&std::process::id()));
        assert!(resident(child.id()).rss_kib > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!tree(std::process::id()).contains(&child.id()));
    }
}
