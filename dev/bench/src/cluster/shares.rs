//! Very many shares on three nodes, of which one dies.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use frevo_wire::Status;

use super::link::Link;
use super::nodes::{Etcd, Site};
use super::options::{Arguments, GUID, PATIENCE, seconds};

/// The longest time until all shares are served again.
const GOAL: Duration = Duration::from_secs(6);

/// Measures; returns a part of the page, and adds missed goals to `missed`.
pub(super) fn measure(
    args: &Arguments,
    site: &Site<'_>,
    missed: &mut Vec<String>,
) -> Result<String> {
    // The first one is each node's own.
    let shares = site.shares.get(1..).unwrap_or_default();
    let etcd = Etcd::start(&args.etcd, site.scratch)?;
    let mut nodes = Vec::new();
    for label in ["a", "b", "c"] {
        nodes.push(site.node(label, &etcd)?);
    }
    let end = Instant::now() + PATIENCE;
    let mut links = Vec::new();
    for node in &nodes {
        links.push(Link::when_served(&node.target, GUID, PATIENCE)?);
    }
    let owners = loop {
        let owners = owners(&mut links, shares)?;
        if owners.iter().all(Option::is_some) {
            break owners;
        }
        ensure!(Instant::now() < end, "not all shares are served");
        std::thread::sleep(Duration::from_millis(50));
    };
    let lost: Vec<String> = shares
        .iter()
        .zip(&owners)
        .filter(|(_, owner)| **owner == Some(0))
        .map(|(share, _)| share.clone())
        .collect();
    ensure!(!lost.is_empty(), "the first node has no shares");
    links.remove(0);
    let dies = Instant::now();
    drop(nodes.remove(0));
    let mut times = Vec::new();
    let mut left = lost.clone();
    while !left.is_empty() {
        let found = self::owners(&mut links, &left)?;
        let now = dies.elapsed();
        let mut found = found.into_iter();
        left.retain(|_| found.next().flatten().is_none());
        times.resize(lost.len() - left.len(), now);
        ensure!(now < PATIENCE, "{} shares are not served again", left.len());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (first, last) = (times.first().copied(), times.last().copied());
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    if last > GOAL {
        missed.push(format!("{} shares are served again after {} s", lost.len(), seconds(last)));
    }
    Ok(format!(
        "## Very many shares\n\n\
         `--parts shares`: {} shares on three nodes without a fence. A node with {} of them is killed; \
         clients of the other two ask for each until it is served.\n\n\
         | served again | s after the kill |\n|---|---|\n| the first | {} |\n| the last | {} |\n\n",
        shares.len(),
        lost.len(),
        seconds(first),
        seconds(last),
    ))
}

/// The number of the link whose server has each share.
fn owners(links: &mut [Link], shares: &[String]) -> Result<Vec<Option<usize>>> {
    let mut owners = Vec::with_capacity(shares.len());
    for share in shares {
        let mut owner = None;
        for (nth, link) in links.iter_mut().enumerate() {
            if link.connect_to(share)? == Status::SUCCESS {
                owner = Some(nth);
                break;
            }
        }
        owners.push(owner);
    }
    Ok(owners)
}
