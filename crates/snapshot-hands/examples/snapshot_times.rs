//! Measures how long it takes to make, list and remove snapshots beside programs that write, and how long
//! these wait: `snapshot_times FOLDER [ROUNDS [WRITERS]]`, with a subvolume of btrfs. The program btrfs(8) makes one
//! in turn with this one, for comparison.
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
    let (mut creations, mut peers, mut waits) = (Vec::new(), Vec::new(), Vec::new());
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
            let begun = Instant::now();
            hands.create(0, seconds(round)).unwrap();
            creations.push(begun.elapsed());
            std::thread::sleep(Duration::from_millis(20));
            peers.push(timed(|| btrfs(&["snapshot", "-r"], &[folder, &peer])));
            btrfs(&["delete"], &[&peer]);
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Release);
        waits = writing.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    });
    shown("create", &mut creations);
    shown("create by btrfs(8)", &mut peers);
    shown("write of 64 KiB", &mut waits);
    let mut lists: Vec<_> = (0..20).map(|_| timed(|| drop(hands.list(0).unwrap()))).collect();
    shown(&format!("list of {}", hands.list(0).unwrap().len()), &mut lists);
    let mut removals: Vec<_> =
        (0..rounds).map(|round| timed(|| hands.remove(0, seconds(round)).unwrap())).collect();
    shown("remove", &mut removals);
}

/// Writes until it is over. Returns the time of each write.
fn write(folder: &Path, number: u64, is_over: &AtomicBool) -> Vec<Duration> {
    let path = folder.join(format!("writer{number}"));
    let mut file = std::fs::File::create(&path).unwrap();
    let (data, mut times) = (vec![7; WRITE], Vec::new());
    while !is_over.load(Ordering::Acquire) {
        for _ in 0..SYNC {
            times.push(timed(|| file.write_all(&data).unwrap()));
        }
        file.sync_data().unwrap();
        file.rewind().unwrap();
    }
    std::fs::remove_file(path).unwrap();
    times
}

/// Runs the program of btrfs.
fn btrfs(verb: &[&str], paths: &[&Path]) {
    let mut command = std::process::Command::new("btrfs");
    assert!(command.args(["-q", "subvolume"]).args(verb).args(paths).status().unwrap().success());
}

fn timed(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn shown(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| {
        times.get((times.len() * part / 1000).min(times.len().saturating_sub(1))).copied()
    };
    println!(
        "{what}: median {:?}, 99th percentile {:?}, longest {:?}",
        at(500).unwrap_or_default(),
        at(990).unwrap_or_default(),
        at(1000).unwrap_or_default()
    );
}
