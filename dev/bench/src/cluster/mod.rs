//! `frevo-bench cluster`: records of persistent handles in etcd beside the embedded store, a share with
//! very many handles, very many shares, and the cost of reads and writes.

mod bare;
mod creates;
mod handles;
mod link;
mod log;
mod nodes;
mod options;
mod restore;
mod shares;
mod transfers;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{proc, server, share};
use nodes::Site;
use options::Part;

pub(crate) use options::Arguments;

/// Measures; returns the missed goals.
pub(crate) fn run(args: &Arguments) -> Result<Vec<String>> {
    let scratch = args.common.scratch()?;
    let mut page = String::from("# A cluster on one machine\n\n");
    for line in proc::machine(scratch.path()) {
        writeln!(page, "- {line}")?;
    }
    writeln!(
        page,
        "- {}; {}, one member\n- load of the machine before: {}\n",
        server::version(&args.common.frevo),
        server::version(&args.etcd),
        proc::load()
    )?;
    let mut missed = Vec::new();
    for part in &args.parts {
        let part = part_of(args, *part, scratch.path(), &mut missed);
        page.push_str(&part?);
    }
    match &args.out {
        Some(out) => fs::write(out, page.trim_end().to_owned() + "\n")
            .with_context(|| format!("writing {}", out.display()))?,
        None => println!("{page}"),
    }
    Ok(missed)
}

fn part_of(
    args: &Arguments,
    part: Part,
    scratch: &Path,
    missed: &mut Vec<String>,
) -> Result<String> {
    let scratch = &scratch.join(format!("{part:?}").to_lowercase());
    fs::create_dir(scratch)?;
    let folder = &share::prepare(scratch, false)?;
    let count = if part == Part::Shares { args.shares } else { 0 };
    // The client library connects to a share of this name.
    let mut shares = vec!["share".to_owned()];
    shares.extend((1..=count).map(|nth| format!("share-{nth:03}")));
    let programs = &args.common.programs();
    let site = Site { programs, scratch, folder, shares: &shares };
    match part {
        Part::Creates => creates::measure(args, &site, missed),
        Part::Restore => restore::measure(args, &site, missed),
        Part::Shares => shares::measure(args, &site, missed),
        Part::Transfers => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(transfers::measure(args, &site, missed))
        }
    }
}
