//! Measures how long it takes to make, list and remove snapshots beside programs that write, and how long
//! these wait, with a snapshot being made and without: `snapshot_times FOLDER [ROUNDS [WRITERS]]`, with a subvolume of
//! btrfs. The program btrfs(8) makes one in turn with this one, for comparison.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for measuring")]

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frevo_snapshot_hands::{Hands, SetUp, ShareSetUp, SnapshotPlace};
use frevo_snapshots::Second;

/// Bytes of one write.
const WRITE: usize = 64 << 10;
/// Writes after which a writer has its file on the disk, and begins at its start again.
const SYNC: u32 = 64;

/// A call of a writer, or a snapshot that is made.
#[derive(Clone, Copy)]
struct Span {
    begun: Instant,
    took: Duration,
}

impl Span {
    fn of(act: impl FnOnce()) -> Self {
        let begun = Instant::now();
        act();
        Self { begun, took: begun.elapsed() }
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.begun < other.begun + other.took && other.begun < self.begun + self.took
    }
}

/// The calls of a writer.
#[derive(Default)]
struct Calls {
    writes: Vec<Span>,
    syncs: Vec<Span>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap();
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (rounds, writers) = (number(200), number(8));
    let folder = Path::new(&folder);
    let place = SnapshotPlace::find(folder, None, Path::new("/var/lib/frevo/snapshots")).unwrap();
    println!("{place}, {rounds} snapshots beside {writers} writers");
    let share = ShareSetUp { folder: folder.to_owned(), kind: place.kind() };
    let mut hands =
        Hands::within(SetUp { shares: vec![share], mounts: "/var/lib/frevo/snapshots".into() })
            .unwrap();
    let is_over = AtomicBool::new(false);
    let (mut creations, mut peers, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    let peer = folder.join("snapshot-of-btrfs");
    let seconds = |round: u64| Second::new(1_000_000_000 + round).unwrap();
    std::thread::scope(|threads| {
        let writing: Vec<_> = (0..writers)
            .map(|n| {
                threads.spawn({
                    let is_over = &is_over;
                    move || write(folder, n, is_over)
                })
            })
            .collect();
        for round in 0..rounds {
            creations.push(Span::of(|| hands.create(0, seconds(round)).unwrap()));
            std::thread::sleep(Duration::from_millis(20));
            peers.push(Span::of(|| btrfs(&["snapshot", "-r"], &[folder, &peer])));
            btrfs(&["delete"], &[&peer]);
            // A time of its own without snapshots.
            std::thread::sleep(Duration::from_millis(200));
        }
        is_over.store(true, Ordering::Release);
        calls = writing.into_iter().map(|thread| thread.join().unwrap()).collect();
    });
    shown("create", &creations);
    shown("create by btrfs(8)", &peers);
    let (writes, syncs): (Vec<_>, Vec<_>) =
        calls.into_iter().map(|calls| (calls.writes, calls.syncs)).unzip();
    for (what, spans) in [("write of 64 KiB", writes.concat()), ("fdatasync", syncs.concat())] {
        let is_beside = |span: &Span| creations.iter().any(|creation| span.is_beside(creation));
        let is_alone =
            |span: &Span| !is_beside(span) && !peers.iter().any(|peer| span.is_beside(peer));
        let chosen = |is: &dyn Fn(&Span) -> bool| -> Vec<Span> {
            spans.iter().copied().filter(is).collect()
        };
        shown(&format!("{what} beside a creation"), &chosen(&is_beside));
        shown(&format!("{what} without one"), &chosen(&is_alone));
    }
    let lists: Vec<_> = (0..20).map(|_| Span::of(|| drop(hands.list(0).unwrap()))).collect();
    shown(&format!("list of {}", hands.list(0).unwrap().len()), &lists);
    let removals: Vec<_> =
        (0..rounds).map(|round| Span::of(|| hands.remove(0, seconds(round)).unwrap())).collect();
    shown("remove", &removals);
}

/// Writes until it is over. Returns the calls.
fn write(folder: &Path, number: u64, is_over: &AtomicBool) -> Calls {
    let path = folder.join(format!("writer{number}"));
    let mut file = std::fs::File::create(&path).unwrap();
    let (data, mut calls) = (vec![7; WRITE], Calls::default());
    while !is_over.load(Ordering::Acquire) {
        for _ in 0..SYNC {
            calls.writes.push(Span::of(|| file.write_all(&data).unwrap()));
        }
        calls.syncs.push(Span::of(|| file.sync_data().unwrap()));
        file.rewind().unwrap();
    }
    std::fs::remove_file(path).unwrap();
    calls
}

/// Runs the program of btrfs.
fn btrfs(verb: &[&str], paths: &[&Path]) {
    let mut command = std::process::Command::new("btrfs");
    assert!(command.args(["-q", "subvolume"]).args(verb).args(paths).status().unwrap().success());
}

fn shown(what: &str, spans: &[Span]) {
    let mut times: Vec<Duration> = spans.iter().map(|span| span.took).collect();
    times.sort_unstable();
    let at = |part: usize| {
        times.get((times.len() * part / 1000).min(times.len().saturating_sub(1))).copied()
    };
    println!(
        "{what}, {} times: median {:?}, 99th percentile {:?}, longest {:?}",
        times.len(),
        at(500).unwrap_or_default(),
        at(990).unwrap_or_default(),
        at(1000).unwrap_or_default()
    );
}
