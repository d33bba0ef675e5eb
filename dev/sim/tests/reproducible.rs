//! One seed, one trace; and seeds that found something once.

use frevo_sim::{Kind, Run};

#[test]
fn two_runs_of_one_seed_are_the_same() {
    are_the_same(Kind::Servers, 1..=12, "");
}

/// The first seeds whose servers listen for QUIC.
#[test]
fn two_runs_with_quic_are_the_same() {
    are_the_same(Kind::Servers, [13, 42, 45], "of QUIC");
}

#[test]
fn two_runs_of_a_cluster_are_the_same() {
    are_the_same(Kind::Cluster, 1..=6, "");
}

#[test]
fn two_runs_of_a_rolling_upgrade_are_the_same() {
    are_the_same(Kind::DialectRace, 1..=3, "");
}

/// Compares two runs of each seed, which have a line that contains `part`.
fn are_the_same(kind: Kind, seeds: impl IntoIterator<Item = u64>, part: &str) {
    for seed in seeds {
        // Each run has a thread of its own, so that the random keys of its hash maps differ from
        // those of the other run.
        let run = move || Run { seed, trace: true, kind }.run();
        let [first, second] =
            [std::thread::spawn(run), std::thread::spawn(run)].map(|thread| thread.join().unwrap());
        let differs = first.lines.iter().zip(&second.lines).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.lines.len(), second.lines.len(), "seed {seed}");
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert!(first.lines.len() > 50, "seed {seed} does nothing");
        assert!(first.lines.iter().any(|line| line.contains(part)), "seed {seed}: no {part}");
        assert!(first.violations.is_empty(), "seed {seed}: {:?}", first.violations);
    }
}

/// Seeds that found something once, each with the fault. A change of the code changes what a seed
/// does, so a unit test of the fault stands beside its mend.
const REGRESSIONS: [(u64, &str); 5] = [
    (
        15_664_228,
        "the judge took a lock that was lost on its way for held, beside a persistent one",
    ),
    (15_688_687, "the judge took a lock that was lost on its way for held"),
    (
        30_396_972,
        "the judge took a write that was repeated for done once, since its channel was half-open before",
    ),
    (
        709,
        "a WRITE whose data was not fetched by RDMA was outstanding for ever, and its repetition refused",
    ),
    (31_000_973, "the judge took a connection that was being bound for a channel that lived"),
];

/// The same of clusters.
const CLUSTERS: [(u64, &str); 2] = [
    (3_646, "a WRITE that met the limit was outstanding for ever, and its repetition refused"),
    (20_772, "a share granted a lock of another one with the same files, whose storage was lost"),
];

/// The same of rolling upgrades.
const UPGRADES: [(u64, &str); 2] = [
    (
        183,
        "a node set the addresses of a unit after its drain had failed, and another one had the unit",
    ),
    (539, "a node that was stopped in a drain set the addresses of a unit when it went on"),
];

#[test]
fn seeds_that_found_something_find_nothing() {
    let kinds = [
        (Kind::Servers, &REGRESSIONS[..]),
        (Kind::Cluster, &CLUSTERS[..]),
        (Kind::DialectRace, &UPGRADES[..]),
    ];
    for (kind, seeds) in kinds {
        for &(seed, fault) in seeds {
            let violations = Run { seed, trace: false, kind }.run().violations;
            assert!(violations.is_empty(), "seed {seed} ({fault}): {violations:?}");
        }
    }
}
