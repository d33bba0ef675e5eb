//! The comparisons between clients, and the promises about them.

use super::Protection::{self, Default, Sealed, Signed, Unsigned};
use super::files::{DIRECTORIES, LISTED_FILES, MANY_FILES};
use super::page::Promise;
use super::{Errand, LATENCY, Runner, ciphers};
use crate::server::Kind;

/// A comparison to run.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) errand: Errand,
    pub(super) server: Kind,
    /// True for the longer [distance](super::LATENCY) to the server.
    pub(super) is_far: bool,
    /// Most rounds; a large difference needs only a few.
    pub(super) rounds: usize,
    pub(super) runners: Vec<(String, Runner)>,
    pub(super) promises: Vec<Promise>,
}

/// The ending of a title for transfers to `--local`.
const LOCAL: &str = ", to the local disk";

/// Rounds with the longer distance, where a run of smbclient takes 17 s.
const FAR_ROUNDS: usize = 2;

/// Returns the description of the longer distance.
pub(super) fn farther() -> String {
    format!(", {} us more of round trip", LATENCY.as_micros())
}

fn frevo(protection: Protection) -> Runner {
    Runner::Frevo(protection, Vec::new(), Vec::new())
}

/// Returns all comparisons, on a machine with so many cores, with or without `--local`.
pub(super) fn plans(cores: usize, has_local: bool) -> Vec<Plan> {
    let mut plans = stream_plans(has_local);
    plans.extend(plain_plans(has_local));
    plans.extend(sealed_plans());
    plans.extend(many_file_plans());
    plans.extend(listing_plans());
    plans.extend(cipher_plans(cores));
    plans
}

/// Returns the errands with one large file, `--local` included, each with the name of its plan.
fn transfers(has_local: bool, names: [&'static str; 3]) -> Vec<(Errand, &'static str)> {
    let [get, local, put] = names;
    let mut transfers = vec![(Errand::Get, get), (Errand::Put, put)];
    if has_local {
        transfers.insert(1, (Errand::GetLocal, local));
    }
    transfers
}

/// A large file between Frevo's client and server, and over a bare TCP stream.
fn stream_plans(has_local: bool) -> Vec<Plan> {
    let plan = |(errand, name): (Errand, _)| Plan {
        name,
        title: format!(
            "{} a large file, Frevo's server and a bare TCP stream{}",
            errand.name(),
            if errand == Errand::GetLocal { LOCAL } else { "" }
        ),
        errand,
        server: Kind::Frevo,
        is_far: false,
        rounds: usize::MAX,
        runners: vec![
            ("TCP stream".into(), Runner::Stream),
            ("frevo, unsigned".into(), frevo(Unsigned)),
            ("frevo, signed".into(), frevo(Default)),
        ],
        promises: vec![Promise::rate("frevo, unsigned", "TCP stream", 0.9)],
    };
    let names = ["get-stream", "get-stream-local", "put-stream"];
    transfers(has_local, names).into_iter().map(plan).collect()
}

/// A large file from and to smbd, with smbclient and with Frevo's client.
fn plain_plans(has_local: bool) -> Vec<Plan> {
    let plan = |(errand, name): (Errand, _)| {
        let cpu = |ours, theirs| match errand {
            // With files in memory, both clients spend most of their time on writing them, so the
            // CPU seconds are only shown and no ratio is required.
            Errand::Get if has_local => Promise::cpu_shown(ours, theirs),
            _ => Promise::cpu(ours, theirs, 0.7),
        };
        let to = if errand == Errand::GetLocal { LOCAL } else { "" };
        Plan {
            name,
            title: format!("{} a large file, smbd{to}", errand.name()),
            errand,
            server: Kind::Smbd,
            is_far: false,
            rounds: usize::MAX,
            runners: plain_runners(),
            promises: vec![
                Promise::rate("frevo, unsigned", "smbclient, unsigned", 1.0),
                cpu("frevo, unsigned", "smbclient, unsigned"),
                Promise::rate("frevo, signed", "smbclient, signed", 1.0),
                cpu("frevo, signed", "smbclient, signed"),
            ],
        }
    };
    let names = ["get-plain", "get-plain-local", "put-plain"];
    transfers(has_local, names).into_iter().map(plan).collect()
}

/// smbclient and Frevo's client, unsigned and signed.
fn plain_runners() -> Vec<(String, Runner)> {
    vec![
        ("smbclient, unsigned".into(), Runner::Smbclient(Unsigned)),
        ("frevo, unsigned".into(), frevo(Unsigned)),
        ("smbclient, signed".into(), Runner::Smbclient(Signed)),
        ("frevo, signed".into(), frevo(Default)),
    ]
}

/// A large file from and to smbd, sealed.
fn sealed_plans() -> Vec<Plan> {
    let plan = |(errand, name): (Errand, _)| Plan {
        name,
        title: format!("{} a large file sealed, smbd", errand.name()),
        errand,
        server: Kind::Smbd,
        is_far: false,
        rounds: usize::MAX,
        runners: vec![
            ("smbclient, sealed".into(), Runner::Smbclient(Sealed)),
            ("frevo, sealed".into(), frevo(Sealed)),
        ],
        promises: vec![Promise::rate("frevo, sealed", "smbclient, sealed", 1.2)],
    };
    transfers(false, ["get-sealed", "", "put-sealed"]).into_iter().map(plan).collect()
}

/// Returns an errand with many files; `least` is the promised ratio to smbclient, if there is one.
fn many(
    errand: Errand,
    name: &'static str,
    title: String,
    server: Kind,
    is_far: bool,
    least: Option<f64>,
) -> Plan {
    let promises = |least| {
        [
            Promise::rate("frevo, unsigned", "smbclient, unsigned", least),
            Promise::rate("frevo, signed", "smbclient, signed", least),
        ]
    };
    Plan {
        name,
        title,
        errand,
        server,
        is_far,
        rounds: if is_far { FAR_ROUNDS } else { usize::MAX },
        runners: plain_runners(),
        promises: least.into_iter().flat_map(promises).collect(),
    }
}

/// Many small files in directories.
fn many_file_plans() -> Vec<Plan> {
    // smbd creates files so slowly that it limits every client, so there are rows against Frevo's
    // server, too.
    [
        (Errand::GetMany, "get-many", Kind::Smbd, false),
        (Errand::PutMany, "put-many", Kind::Smbd, false),
        (Errand::GetMany, "get-many-far", Kind::Smbd, true),
        (Errand::PutMany, "put-many-far", Kind::Smbd, true),
        (Errand::GetMany, "get-many-frevo", Kind::Frevo, false),
        (Errand::PutMany, "put-many-frevo", Kind::Frevo, false),
    ]
    .into_iter()
    .map(|(errand, name, server, is_far)| {
        let title = format!(
            "{} {MANY_FILES} files of 4 KiB in {DIRECTORIES} directories, {}{}",
            &errand.name()[..3],
            if server == Kind::Smbd { "smbd" } else { "Frevo's server" },
            if is_far { farther() } else { String::new() },
        );
        many(errand, name, title, server, is_far, Some(3.0))
    })
    .collect()
}

/// One directory with many entries.
fn listing_plans() -> Vec<Plan> {
    let put = format!("put {MANY_FILES} files of 4 KiB in one directory, smbd");
    let list = format!("list {LISTED_FILES} entries, smbd");
    vec![
        // smbd reads the whole directory for each new name, which limits both clients, so this row
        // requires nothing.
        many(Errand::PutFlat, "put-flat", put, Kind::Smbd, false, None),
        many(Errand::List, "list", list, Kind::Smbd, false, Some(1.0)),
    ]
}

/// A large file sealed with each cipher, with one crypto worker and with one per core.
fn cipher_plans(cores: usize) -> Vec<Plan> {
    let runner = |cipher: &str, workers: usize| {
        let arguments = vec!["--cipher".into(), cipher.into()];
        let environment = vec![("FREVO_CRYPTO_THREADS".into(), workers.to_string())];
        let name = format!("{cipher}, {workers} workers");
        (name, Runner::Frevo(Sealed, arguments, environment))
    };
    let runners = || {
        let ciphers = ciphers::CIPHERS.iter();
        ciphers.flat_map(|(cipher, _)| [1, cores].map(|workers| runner(cipher, workers))).collect()
    };
    let plan = |(errand, name): (Errand, _)| Plan {
        name,
        title: format!(
            "{} a large file sealed, Frevo's server, by crypto workers of the client",
            errand.name()
        ),
        errand,
        server: Kind::Frevo,
        is_far: false,
        rounds: usize::MAX,
        runners: runners(),
        promises: Vec::new(),
    };
    transfers(false, ["get-cipher", "", "put-cipher"]).into_iter().map(plan).collect()
}
