//! What is compared with what, and what is promised of it.

use super::files::{DIRECTORIES, LISTED_FILES, MANY_FILES};
use super::page::Promise;
use super::{Errand, LATENCY, Protection, Runner, ciphers};
use crate::server::Kind;

/// One comparison before it is run.
pub(super) struct Plan {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) errand: Errand,
    pub(super) server: Kind,
    /// The way to the server is [longer](super::LATENCY).
    pub(super) is_far: bool,
    /// Rounds at most: where what is compared differs so much that few will do.
    pub(super) rounds: usize,
    pub(super) runners: Vec<(String, Runner)>,
    pub(super) promises: Vec<Promise>,
}

/// Said of what goes to `--local`.
const LOCAL: &str = ", to the local disk";

/// A run of smbclient's from far away takes 17 s.
const FAR_ROUNDS: usize = 2;

/// How much farther.
pub(super) fn farther() -> String {
    format!(", {} us more of round trip", LATENCY.as_micros())
}

fn frevo(protection: Protection) -> Runner {
    Runner::Frevo(protection, Vec::new(), Vec::new())
}

/// All of them.
pub(super) fn plans(cores: usize, has_local: bool) -> Vec<Plan> {
    use Protection::{Default, Sealed, Signed, Unsigned};
    let mut plans = Vec::new();
    let mut streams = vec![(Errand::Get, "get-stream"), (Errand::Put, "put-stream")];
    if has_local {
        streams.insert(1, (Errand::GetLocal, "get-stream-local"));
    }
    for (errand, name) in streams {
        let to = if errand == Errand::GetLocal { LOCAL } else { "" };
        plans.push(Plan {
            name,
            title: format!(
                "{} a large file, Frevo's server and a bare TCP stream{to}",
                errand.name()
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
        });
    }
    let mut plain = vec![(Errand::Get, "get-plain"), (Errand::Put, "put-plain")];
    if has_local {
        plain.insert(1, (Errand::GetLocal, "get-plain-local"));
    }
    for (errand, name) in plain {
        let to = if errand == Errand::GetLocal { LOCAL } else { "" };
        let cpu = |ours, theirs| match errand {
            // What writing takes is most of what both take where that is memory.
            Errand::Get if has_local => Promise::cpu_shown(ours, theirs),
            _ => Promise::cpu(ours, theirs, 0.7),
        };
        plans.push(Plan {
            name,
            title: format!("{} a large file, smbd{to}", errand.name()),
            errand,
            server: Kind::Smbd,
            is_far: false,
            rounds: usize::MAX,
            runners: vec![
                ("smbclient, unsigned".into(), Runner::Smbclient(Unsigned)),
                ("frevo, unsigned".into(), frevo(Unsigned)),
                ("smbclient, signed".into(), Runner::Smbclient(Signed)),
                ("frevo, signed".into(), frevo(Default)),
            ],
            promises: vec![
                Promise::rate("frevo, unsigned", "smbclient, unsigned", 1.0),
                cpu("frevo, unsigned", "smbclient, unsigned"),
                Promise::rate("frevo, signed", "smbclient, signed", 1.0),
                cpu("frevo, signed", "smbclient, signed"),
            ],
        });
    }
    for (errand, name) in [(Errand::Get, "get-sealed"), (Errand::Put, "put-sealed")] {
        plans.push(Plan {
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
        });
    }
    let many = |errand, name, title: String, server, is_far, least: Option<f64>| Plan {
        name,
        title,
        errand,
        server,
        is_far,
        rounds: if is_far { FAR_ROUNDS } else { usize::MAX },
        runners: vec![
            ("smbclient, unsigned".into(), Runner::Smbclient(Unsigned)),
            ("frevo, unsigned".into(), frevo(Unsigned)),
            ("smbclient, signed".into(), Runner::Smbclient(Signed)),
            ("frevo, signed".into(), frevo(Default)),
        ],
        promises: least
            .into_iter()
            .flat_map(|least| {
                [
                    Promise::rate("frevo, unsigned", "smbclient, unsigned", least),
                    Promise::rate("frevo, signed", "smbclient, signed", least),
                ]
            })
            .collect(),
    };
    // Against Frevo too: how fast smbd makes files bounds what any client can do with it.
    for (errand, name, server, is_far) in [
        (Errand::GetMany, "get-many", Kind::Smbd, false),
        (Errand::PutMany, "put-many", Kind::Smbd, false),
        (Errand::GetMany, "get-many-far", Kind::Smbd, true),
        (Errand::PutMany, "put-many-far", Kind::Smbd, true),
        (Errand::GetMany, "get-many-frevo", Kind::Frevo, false),
        (Errand::PutMany, "put-many-frevo", Kind::Frevo, false),
    ] {
        let title = format!(
            "{} {MANY_FILES} files of 4 KiB in {DIRECTORIES} directories, {}{}",
            &errand.name()[..3],
            if server == Kind::Smbd { "smbd" } else { "Frevo's server" },
            if is_far { farther() } else { String::new() },
        );
        plans.push(many(errand, name, title, server, is_far, Some(3.0)));
    }
    // No promise: smbd goes through the whole directory to see that a name is new.
    plans.push(many(
        Errand::PutFlat,
        "put-flat",
        format!("put {MANY_FILES} files of 4 KiB in one directory, smbd"),
        Kind::Smbd,
        false,
        None,
    ));
    plans.push(many(
        Errand::List,
        "list",
        format!("list {LISTED_FILES} entries, smbd"),
        Kind::Smbd,
        false,
        Some(1.0),
    ));
    for (errand, name) in [(Errand::Get, "get-cipher"), (Errand::Put, "put-cipher")] {
        let mut runners = Vec::new();
        for (cipher, _) in ciphers::CIPHERS {
            for workers in [1, cores] {
                runners.push((
                    format!("{cipher}, {workers} workers"),
                    Runner::Frevo(
                        Sealed,
                        vec!["--cipher".into(), cipher.into()],
                        vec![("FREVO_CRYPTO_THREADS".into(), workers.to_string())],
                    ),
                ));
            }
        }
        plans.push(Plan {
            name,
            title: format!(
                "{} a large file sealed, Frevo's server, by crypto workers of the client",
                errand.name()
            ),
            errand,
            server: Kind::Frevo,
            is_far: false,
            rounds: usize::MAX,
            runners,
            promises: Vec::new(),
        });
    }
    plans
}
