//! A share with very many persistent handles, whose node dies.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::handles;
use super::link::Link;
use super::log::Log;
use super::nodes::{Etcd, Site};
use super::options::{Arguments, GUID, PATIENCE, seconds};

/// The longest time from the ownership until the share is served.
const GOAL: Duration = Duration::from_secs(3);
const DEPTH: usize = 64;

/// Measures; returns a part of the page, and adds missed goals to `missed`.
pub(super) fn measure(
    args: &Arguments,
    site: &Site<'_>,
    missed: &mut Vec<String>,
) -> Result<String> {
    handles::make_files(site.folder, args.handles)?;
    let etcd = Etcd::start(&args.etcd, site.scratch)?;
    let first = site.node("first", &etcd)?;
    let mut link = Link::when_served(&first.target, GUID, PATIENCE)?;
    let opened = handles::open(&mut link, args.handles, DEPTH)?;
    let second = site.node("second", &etcd)?;
    let dies = Instant::now();
    drop(first);
    let mut link = Link::when_served(&second.target, GUID, PATIENCE)?;
    let served = dies.elapsed();
    let begun = Instant::now();
    handles::take_up(&mut link, &opened.ids, DEPTH)?;
    let taken_up = begun.elapsed();
    let log = Log::read(&site.log_of("second"))?;
    let taken = log.moment_of("this node owns share").context("no line about the ownership")?;
    let restored = format!("restored {} handles of share", args.handles);
    let restored = log.moment_of(&restored).context("no line about the handles")?;
    let after = restored.saturating_sub(taken);
    ensure!(after > Duration::ZERO, "the lines of the log are not in order");
    if after > GOAL {
        missed.push(format!("{} handles were restored in {} s", args.handles, seconds(after)));
    }
    Ok(format!(
        "## Very many handles of one share\n\n\
         `--parts restore`: a client opens {} persistent handles with leases, its node is killed, another one \
         takes the share over, and the client takes up each handle.\n\n\
         | | s |\n|---|---|\n\
         | from the ownership until all handles are there | {} |\n\
         | from the kill until the share is served, with the lease of 2 s and, without a fence, 2.2 s more | {} |\n\
         | all handles taken up by the client, {DEPTH} requests in flight | {} |\n\n",
        args.handles,
        seconds(after),
        seconds(served),
        seconds(taken_up),
    ))
}
