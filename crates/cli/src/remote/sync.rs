//! `sync`: one directory made like another.

mod endpoint;
mod plan;

use frevo_client::Share;

use self::endpoint::{Endpoint, Look};
use self::plan::{Entry, Listed, Plan};
use super::arguments::Sync;
use super::copy::{
    Failures, NOTHING_COPIED, each, folder, into_itself, make_directories, planned, report,
    tell_left_out,
};
use super::fetch::local_name;
use super::local_directories::LocalDirectories;
use super::location::{Location, join};
use super::overlap::{self, Line};
use super::parallel_sessions::ParallelSessions;
use super::transfer;
use super::transfer::{CopyOptions, is_small};
use super::walk::Kind;
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn sync(sync: &Sync) -> Done {
    let Ends { from, to, from_line, to_line } = ends(sync).await?;
    let mut failures = Failures::default();
    let filter = &sync.filter;
    // What is there but not meant is not gone.
    let meant = |name: &str, kind: Kind, modified| {
        let passes = filter.passes(name, kind == Kind::Directory, modified);
        Look::As(if passes { kind } else { Kind::Other })
    };
    let source = from.list(false, &to_line, meant, |error| failures.note(error)).await?;
    let unlisted = failures.count();
    let others = source.iter().filter(|(name, entry)| {
        entry.kind == Kind::Other && filter.is_all() && !name.ends_with(transfer::PART)
    });
    tell_left_out(&others.map(|(name, _)| name.clone()).collect::<Vec<_>>());
    let seen = |name: &str, kind: Kind, _| match kind {
        Kind::Other => Look::Away,
        kind if filter.names(name, kind == Kind::Directory) => Look::As(kind),
        _ => Look::Away,
    };
    let target = to.list(true, &from_line, seen, Err).await?;
    apart(sync, (&from, &from_line, &source), (&to, &to_line, &target)).await?;
    if sync.delete && source.is_empty() && !target.is_empty() && unlisted == 0 {
        // More often a disk that is not mounted than what is meant.
        let text = "the source is empty, so --delete would remove everything in the target; if you want that, use frevo rm";
        return Err(Failure::new(Exit::Failed, text));
    }
    let mut plan = plan::plan(sync, (&from, &to), &source, &target, &mut failures).await?;
    if sync.delete && unlisted > 0 {
        // What could not be listed is not gone.
        crate::tell("a part of the source cannot be read, so nothing is deleted");
        plan.removals.clear();
    }
    if !filter.is_all() {
        // One by one, the deepest first: what is not meant stays, with what it is in.
        plan.removals.sort_by(|(a, _), (b, _)| b.cmp(a));
    }
    if sync.dry_run {
        tell(sync, &plan);
        return failures.end("synchronised");
    }
    to.make().await?;
    for (name, entry) in &plan.removals {
        let removed = to.remove(name, entry, !filter.is_all(), &mut failures).await;
        failures.note_done(removed)?;
    }
    match &to {
        Endpoint::Remote(share, path) => {
            let names = plan.directories.iter().map(String::as_str).collect();
            make_directories(share, path, names, &mut failures).await?;
        }
        Endpoint::Local(root) => {
            let mut folders = LocalDirectories::default();
            for name in &plan.directories {
                let made = folders.make(&root.join(local_name(name)));
                let made = made.map_err(Failure::failed(format!("cannot create {name}")));
                failures.note_done(made)?;
            }
            plan.files.retain(|(_, there, _)| folders.can_have(&root.join(local_name(there))));
        }
    }
    let dressed = plan.dressings.iter().map(|(name, _, attributes)| to.dress(name, *attributes));
    each(dressed, &mut failures).await?;
    let how = carry_out(sync, &from, &to, &plan, &mut failures).await?;
    let idle = if plan.is_empty() { "already up to date" } else { NOTHING_COPIED };
    report(&sync.connection, &how.progress, &failures, idle);
    failures.end("synchronised")
}

/// A file to be copied, by its names at both ends.
type Copied = (String, String, Entry);

/// Copies the files.
async fn carry_out(
    sync: &Sync,
    from: &Endpoint,
    to: &Endpoint,
    plan: &Plan,
    failures: &mut Failures,
) -> Result<CopyOptions, Failure> {
    let lengths = plan.files.iter().map(|(_, _, entry)| entry.len);
    let total = lengths.fold(0, u64::saturating_add);
    let how = CopyOptions::new(Some(total), sync.connection.json, &sync.copying).forced(true);
    let shown = &how;
    let lanes = match (from, to) {
        (Endpoint::Local(_), Endpoint::Remote(share, _))
        | (Endpoint::Remote(share, _), Endpoint::Local(_)) => {
            Some(ParallelSessions::new(share, &sync.connection))
        }
        // Copies on the server have to be in one session.
        _ => None,
    };
    match lanes {
        Some(lanes) => {
            let copy = async |share: &Share, (name, there, entry): &Copied| {
                copy((&from.over(share), name), (&to.over(share), there), entry, shown).await
            };
            let small = |(_, _, entry): &Copied| is_small(entry.len);
            let files = plan.files.iter();
            lanes.each(files, small, |(name, ..)| folder(name), copy, failures).await?;
        }
        None => {
            let copies = plan.files.iter().map(|(name, there, entry)| async move {
                copy((from, name), (to, there), entry, shown).await
            });
            each(copies, failures).await?;
        }
    }
    Ok(how)
}

/// Source and target, each with its ancestry.
struct Ends {
    from: Endpoint,
    to: Endpoint,
    from_line: Line,
    to_line: Line,
}

async fn ends(sync: &Sync) -> Result<Ends, Failure> {
    let connection = &sync.connection;
    let (mut from_line, mut to_line) = (Line::default(), Line::default());
    let (from, to) = match (&sync.from, &sync.to) {
        (Location::Local(from), Location::Remote(to)) => {
            let (share, to) = connection.reach(to).await?;
            from_line = Line::of_local(from);
            (Endpoint::Local(from.clone()), Endpoint::Remote(share, to.path))
        }
        (Location::Remote(from), Location::Local(to)) => {
            let (share, from) = connection.reach(from).await?;
            (Endpoint::Remote(share, from.path), Endpoint::Local(to.clone()))
        }
        (Location::Remote(from), Location::Remote(to)) => {
            let ((source, from), (target, to)) = connection.reach_both(from, to).await?;
            (from_line, to_line) = overlap::lines((&source, &from.path), (&target, &to.path)).await;
            if to.is_inside(&from) || to_line.is_inside(&from_line) {
                return Err(into_itself(&from));
            }
            if sync.delete && (from.is_inside(&to) || from_line.is_inside(&to_line)) {
                let text = format!("--delete would remove the source {from}, which is inside {to}");
                return Err(Failure::new(Exit::Usage, text));
            }
            (Endpoint::Remote(source, from.path), Endpoint::Remote(target, to.path))
        }
        (Location::Local(_), Location::Local(_)) => {
            let text = "neither the source nor the target is an smb:// URL; use rsync";
            return Err(Failure::new(Exit::Usage, text));
        }
    };
    Ok(Ends { from, to, from_line, to_line })
}

/// An end as it was found: with what it is in, and what is in it.
type EndInspection<'a> = (&'a Endpoint, &'a Line, &'a Listed);

/// Fails when source and target overlap, as they can in two shares of one directory.
async fn apart(sync: &Sync, from: EndInspection<'_>, to: EndInspection<'_>) -> Done {
    if let Some(found) = found_in(from, to.1).await {
        let text =
            format!("the source would be copied into itself: the target is inside it, in {found}");
        return Err(Failure::new(Exit::Usage, text));
    }
    if sync.delete
        && let Some(found) = found_in(to, from.1).await
    {
        let text = format!("--delete would remove the source: it is inside the target, in {found}");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

/// The URL of the other end inside this one, if it is there.
async fn found_in((end, _, all): EndInspection<'_>, line: &Line) -> Option<String> {
    let Endpoint::Remote(share, path) = end else { return None };
    let names = all.iter().filter(|(_, entry)| entry.is_kin).map(|(name, _)| name);
    let found = line.found(share, path, names).await?;
    Some(share.url(&join(path, found)))
}

fn tell(sync: &Sync, plan: &Plan) {
    let removals = plan.removals.iter().map(|(name, _)| ("remove", name));
    let directories = plan.directories.iter().map(|name| ("make", name));
    let dressings = plan.dressings.iter().map(|(name, ..)| ("set", name));
    let files = plan.files.iter().map(|(name, ..)| ("copy", name));
    for (what, name) in removals.chain(directories).chain(dressings).chain(files) {
        if !planned(sync.connection.json, what, name) {
            break;
        }
    }
}

async fn copy(
    (from, name): (&Endpoint, &str),
    (to, there): (&Endpoint, &str),
    entry: &Entry,
    how: &CopyOptions,
) -> frevo_client::Result<()> {
    match (from, to) {
        (Endpoint::Local(from), Endpoint::Remote(share, path)) => {
            transfer::up(share, &from.join(local_name(name)), &join(path, there), how).await
        }
        (Endpoint::Remote(share, path), Endpoint::Local(to)) => {
            let to = to.join(local_name(there));
            transfer::down(share, &join(path, name), &to, entry.len, how).await
        }
        (Endpoint::Remote(source, from), Endpoint::Remote(target, to)) => {
            transfer::across(source, &join(from, name), target, &join(to, there), how).await
        }
        (Endpoint::Local(_), Endpoint::Local(_)) => Ok(()),
    }
}
