//! Compares `frevo mount` with smbnetfs (another FUSE client of SMB) on the same server, and with
//! the cost of FUSE and of the file system without SMB.

mod folders;
mod page;
mod work;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::common::Common;
use crate::proc;
use crate::server::{self, Kind};
use folders::{MountPaths, Mounter};
use page::{Page, Row};
use work::Work;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Rounds; each mounts anew and does all work.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Parts of the names of work to do, separated by commas.
    #[arg(long)]
    rows: Option<String>,
    /// Parts of the names of mounters to run, separated by commas.
    #[arg(long)]
    who: Option<String>,
    /// Write the Markdown here and the JSON beside it (.json).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Mebibytes of the large file.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// A further argument for `frevo mount` (repeatable).
    #[arg(long, allow_hyphen_values = true)]
    mount_arg: Vec<String>,
}

/// Returns true if one of the comma-separated parts is in `name`.
fn is_wanted(parts: Option<&str>, name: &str) -> bool {
    parts.is_none_or(|parts| parts.split(',').any(|part| name.contains(part.trim())))
}

/// Runs `frevo-bench mount`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let common = &arguments.common;
    let scratch = common.scratch()?;
    let share = scratch.path().join("share");
    std::fs::create_dir(&share)?;
    work::prepare(&share, arguments.mebibytes)?;
    let programs = common.programs();
    let frevo = server::start_on(
        server::well_known_port(),
        Kind::Frevo,
        "frevo",
        &share,
        scratch.path(),
        &programs,
    )?;
    let smbd = server::start(Kind::Smbd, "smbd", &share, scratch.path(), &programs)?;
    let places = MountPaths {
        scratch: scratch.path(),
        share: &share,
        program: &common.frevo,
        more: &arguments.mount_arg,
    };
    let mounters: Vec<Mounter<'_>> = [
        Mounter::Itself,
        Mounter::Bindfs,
        Mounter::Smbnetfs(&frevo),
        Mounter::Frevo(&frevo),
        Mounter::Frevo(&smbd),
    ]
    .into_iter()
    .filter(|one| is_wanted(arguments.who.as_deref(), &one.name()))
    .collect();
    let works: Vec<Work> = Work::ALL
        .into_iter()
        .filter(|work| is_wanted(arguments.rows.as_deref(), work.name()))
        .collect();
    ensure!(!works.is_empty() && !mounters.is_empty(), "no work or no mounter has such a name");
    let mut rows: Vec<Row> = works.iter().map(|work| Row::new(*work, &mounters)).collect();
    let load_before = proc::load();
    for round in 0..arguments.rounds {
        run_round(round, arguments, &places, &mounters, &mut rows)?;
    }
    let page = Page {
        machine: proc::machine(scratch.path()),
        setting: vec![
            server::version(&common.frevo),
            format!("smbd {}", server::version(&common.smbd)),
            format!(
                "{} rounds; {} MiB in the large file; load average {load_before:.1} before, {:.1} after",
                arguments.rounds,
                arguments.mebibytes,
                proc::load()
            ),
        ],
        names: mounters.iter().map(Mounter::name).collect(),
        rows,
    };
    let markdown = page.markdown();
    println!("{markdown}");
    if let Some(path) = &arguments.out {
        std::fs::write(path, &markdown)?;
        let json = serde_json::to_string_pretty(&page.json())?;
        std::fs::write(path.with_extension("json"), json + "\n")?;
    }
    Ok(())
}

/// Mounts with each mounter in turn and does all work; failures go to the rows.
fn run_round(
    round: usize,
    arguments: &Arguments,
    places: &MountPaths<'_>,
    mounters: &[Mounter<'_>],
    rows: &mut [Row],
) -> Result<()> {
    for turn in 0..mounters.len() {
        // Each round begins with another mounter, so that none of them profits from its place in
        // the order.
        let who = (turn + round) % mounters.len();
        eprintln!("round {round}, {}", mounters[who].name());
        let mounted = match places.mount(&mounters[who]) {
            Ok(mounted) => mounted,
            Err(error) => {
                rows.iter_mut().for_each(|row| row.failed(who, &error));
                continue;
            }
        };
        for row in &mut *rows {
            let before = mounted.cpu_seconds();
            match row.work.run(&mounted.folder, arguments.mebibytes) {
                Ok(done) => row.done(who, done, mounted.cpu_seconds() - before),
                Err(error) => row.failed(who, &error),
            }
        }
        folders::clear(places.share)?;
    }
    Ok(())
}
