//! `sync`: makes a directory equal to another one.

mod compare;
mod contents;
mod removals;
mod reserved_names;

use std::collections::HashSet;

use self::compare::Differences;
use super::arguments::Sync;
use super::copy_plan::{CopyPlan, NOTHING_COPIED, Parts, Selection, Source, into_itself};
use super::endpoint::{Endpoint, Listed, Treatment};
use super::failures::{Failures, each};
use super::links;
use super::location::Location;
use super::name_collisions::Case;
use super::overlap::Ends;
use super::report::{planned, planned_total, report, tell_skipped};
use super::spelling;
use super::transfer::{self, CopyOptions};
use super::walk::Kind;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn sync(sync: &Sync) -> Done {
    let ends = ends(sync).await?;
    let mut failures = Failures::default();
    let source = list_source(sync, &ends, &mut failures).await?;
    let unlisted = failures.count();
    let target = list_target(sync, &ends).await?;
    check_apart(sync, &ends, &source, &target).await?;
    if sync.delete && source.is_empty() && !target.is_empty() && unlisted == 0 {
        // An empty source is usually a disk that is not mounted, so --delete does not empty the
        // target.
        let text = "the source is empty, so --delete would remove everything in the target; if \
                    you want that, use frevo rm";
        return Err(Failure::new(Exit::Failed, text));
    }
    let mut found = compare::compare(sync, &ends, &source, &target, &mut failures).await?;
    if sync.delete && unlisted > 0 {
        // Directories of the source that cannot be read may contain the files that only the target
        // seems to have.
        tell("a part of the source cannot be read, so nothing is deleted");
        found.removals.clear();
    }
    if !sync.filter.is_all() {
        // The deepest entries are removed first. With a filter, a directory is not removed as a
        // whole, because filtered entries in it stay.
        found.removals.sort_by(|(a, _), (b, _)| b.cmp(a));
    }
    if sync.dry_run {
        show(sync, &found);
        return failures.end("synchronised");
    }
    carry_out(sync, &ends, found, failures).await
}

/// Lists the source. Entries that the filter does not pass are listed as [`Kind::Other`]: they
/// exist, so the target's are not removed.
async fn list_source(sync: &Sync, ends: &Ends, failures: &mut Failures) -> Result<Listed, Failure> {
    let filter = &sync.filter;
    let treatment = |name: &str, kind: Kind, modified| {
        let passes = filter.passes(name, kind == Kind::Directory, modified);
        Treatment::As(if passes { kind } else { Kind::Other })
    };
    let is_kin = |found: &_| ends.to_ancestry.may_have(found);
    let source = ends.from.list(false, is_kin, treatment, |error| failures.note(error)).await?;
    let others = source.iter().filter(|(name, entry)| {
        let is_copied = entry.is_link && sync.copying.links;
        entry.kind == Kind::Other && filter.is_all() && !transfer::is_part(name) && !is_copied
    });
    let others: Vec<String> = others.map(|(name, _)| spelling::shown(name)).collect();
    tell_skipped("links and special files", &others);
    Ok(source)
}

/// Lists the target, without the entries that the filter does not pass.
async fn list_target(sync: &Sync, ends: &Ends) -> Result<Listed, Failure> {
    let treatment = |name: &str, kind: Kind, _| match kind {
        Kind::Other if !sync.copying.links => Treatment::Ignored,
        kind if sync.filter.names(name, kind == Kind::Directory) => Treatment::As(kind),
        _ => Treatment::Ignored,
    };
    let is_kin = |found: &_| ends.from_ancestry.may_have(found);
    ends.to.list(true, is_kin, treatment, Err).await
}

/// Removes, sets attributes, creates and copies.
async fn carry_out(
    sync: &Sync,
    ends: &Ends,
    mut found: Differences,
    mut failures: Failures,
) -> Done {
    let is_equal = found.is_empty();
    let links = std::mem::take(&mut found.links);
    found.links =
        links::prepare(&ends.from, &ends.to, links, &mut found.removals, &mut failures).await?;
    removals::remove(&ends.to, &found.removals, !sync.filter.is_all(), &mut failures).await?;
    removals::remove_stale(&ends.to, &found.stale).await;
    let set = found.attributes.iter();
    let set = set.map(|(name, _, attributes)| ends.to.set_attributes(name, *attributes));
    each(set, &mut failures).await?;
    let total = found.files.iter().map(|file| file.len).fold(0, u64::saturating_add);
    let options = CopyOptions::new(Some(total), sync.connection.json, &sync.copying).forced(true);
    options.progress.expect_files(found.files.len() as u64);
    let selection = Selection {
        recursive: true,
        dry_run: false,
        update: false,
        links: sync.copying.links,
        filter: &sync.filter,
    };
    let mut plan = CopyPlan::new(selection, Case::Differs);
    let Differences { directories, files, links, times, .. } = found;
    plan.add_compared(Source::compared(ends, Parts { directories, files, links, times }));
    plan.run(&sync.connection, &options, &mut failures).await?;
    let idle = if is_equal { "already up to date" } else { NOTHING_COPIED };
    report(sync.connection.json, &options.progress, &failures, idle);
    failures.end("synchronised")
}

async fn ends(sync: &Sync) -> Result<Ends, Failure> {
    let connection = &sync.connection;
    let from = sync.as_of.source(connection, &sync.from).await?;
    let ends = match (&from, &sync.to) {
        (Location::Local(from), Location::Remote(to)) => {
            let (share, to) = connection.reach(to).await?;
            Ends::new(Endpoint::Local(from.clone()), Endpoint::Remote(share, to.into_path()))
        }
        (Location::Remote(from), Location::Local(to)) => {
            let (share, from) = connection.reach(from).await?;
            Ends::new(Endpoint::Remote(share, from.into_path()), Endpoint::Local(to.clone()))
        }
        (Location::Remote(from), Location::Remote(to)) => {
            Ends::remote(connection.reach_both(from, to).await?).await
        }
        (Location::Local(_), Location::Local(_)) => {
            let text = "neither the source nor the target is an smb:// URL; use rsync";
            return Err(Failure::new(Exit::Usage, text));
        }
    };
    if ends.target_is_inside() {
        return Err(into_itself(&ends.from.url("")));
    }
    if sync.delete && ends.source_is_inside() {
        let (from, to) = (ends.from.url(""), ends.to.url(""));
        let text = format!("--delete would remove the source {from}, which is inside {to}");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(ends)
}

/// Fails when a listing shows that source and target overlap, as they can in two shares of one
/// directory.
async fn check_apart(sync: &Sync, ends: &Ends, source: &Listed, target: &Listed) -> Done {
    if let Some(found) = ends.target_in(source).await {
        let text =
            format!("the source would be copied into itself: the target is inside it, in {found}");
        return Err(Failure::new(Exit::Usage, text));
    }
    if sync.delete
        && let Some(found) = ends.source_in(target).await
    {
        let text = format!("--delete would remove the source: it is inside the target, in {found}");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

/// Prints the differences, for a dry run.
fn show(sync: &Sync, found: &Differences) {
    let removals = found.removals.iter().chain(&found.stale).map(|(name, _)| ("remove", name));
    let directories = found.directories.iter().map(|name| ("make", name));
    let attributes = found.attributes.iter().map(|(name, ..)| ("set", name));
    let files = found.files.iter().map(|file| ("copy", &file.from));
    let links = found.new_links.iter().map(|name| ("link", name));
    let files = files.chain(links);
    let made: HashSet<&String> = found.directories.iter().collect();
    let times = found.times.iter().map(|time| &time.name).filter(|name| !made.contains(name));
    let times = times.map(|name| ("set", name));
    let mut others = 0;
    for (what, name) in removals.chain(directories).chain(attributes).chain(files).chain(times) {
        // The empty name means the target directory itself, which is not printed.
        if !name.is_empty() && !planned(sync.connection.json, what, &spelling::shown(name)) {
            return;
        }
        others += u64::from(what != "copy");
    }
    let bytes = found.files.iter().map(|file| file.len).fold(0, u64::saturating_add);
    planned_total(found.files.len() as u64, bytes, others);
}
