//! `mv`, `mkdir`.

use std::io::{Error as IoError, ErrorKind};
use std::sync::Arc;

use frevo_client::{Cause, Error, FileAttributes, Metadata, Share, Status};

use super::connection_options::Connection;
use super::failures::{Failures, each_with_failures};
use super::location::{Url, are_apart};
use super::logon::failed;
use super::lost_answers;
use super::name_collisions::{Case, TakenNames};
use super::walk::Kind;
use super::{dfs_links, wildcards};
use crate::exit::{Done, Exit, Failure};

/// The files that `mv` replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaces {
    Nothing,
    /// All but read-only ones.
    Writable,
    All,
}

pub(crate) async fn mv(
    connection: &Connection,
    from: &[Url],
    to: &Url,
    replaces: Replaces,
) -> Done {
    if let Some(past) = from.iter().chain([to]).find(|one| one.snapshot().is_some()) {
        let text = format!("{past}: a snapshot cannot be changed; use cp");
        return Err(Failure::new(Exit::Usage, text).of("rename", past));
    }
    let mut failures = Failures::default();
    let mut taken = TakenNames::new(Case::Same);
    let from = wildcards::expand(connection, from).await?;
    // If two sources have the same name, the second one would replace the first in the target, so
    // it is refused.
    let name = |one: &Url| frevo_client::path::split(&one.path).1.to_owned();
    let taken: Vec<_> =
        from.iter().map(|one| (one, taken.take(&name(one), Kind::File, one))).collect();
    let several = from.len() > 1;
    let all = taken.into_iter().map(async |(one, taken)| match taken {
        Ok(()) => (mv_one(connection, one, to, replaces, several).await, Failures::default()),
        refused => (refused, Failures::default()),
    });
    if are_apart(&from) {
        each_with_failures(all, &mut failures).await?;
    } else {
        for one in all {
            failures.note_done(one.await.0)?;
        }
    }
    failures.end("moved")
}

async fn mv_one(
    connection: &Connection,
    from: &Url,
    to: &Url,
    replaces: Replaces,
    several: bool,
) -> Done {
    if !from.is_in_share_of(to) {
        let text = "mv works within one share; use cp, then rm";
        return Err(Failure::new(Exit::Usage, text).of("rename", from));
    }
    let (share, found) = &connection.reach(from).await?;
    dfs_links::refuse(connection, from, found, "mv").await?;
    let (from, (_, to)) = (found, &connection.reach(to).await?);
    if !from.is_in_share_of(to) {
        let text =
            format!("{from} and {to} are on different shares, behind DFS links; use cp, then rm");
        return Err(Failure::new(Exit::Usage, text));
    }
    // If the target is a directory, the sources are moved into it under their own names; several
    // sources need one.
    let (target, itself) = tokio::join!(share.metadata(&to.path), share.lookup(&from.path));
    let into = target.is_ok_and(|metadata| metadata.is_dir());
    if !into && !to.path.is_empty() && (several || to.ends_in_slash) {
        let text = format!("{to} is not a directory");
        return Err(Failure::new(Exit::Usage, text).of("rename", to));
    }
    let target = if into || to.path.is_empty() {
        to.below(frevo_client::path::split(&from.path).1)
    } else {
        to.path.clone()
    };
    if is_inside(&from.path, &target) {
        let text = format!("{from} cannot be moved into itself");
        return Err(Failure::new(Exit::Usage, text).of("rename", from));
    }
    let names = [from.path.as_str(), target.as_str()];
    let renamed = rename(share, names, itself.ok().as_ref(), replaces).await;
    renamed.map_err(|error| {
        // These errors concern the new name, so the message names the target and not the source.
        let of_target = [
            Status::OBJECT_NAME_INVALID,
            Status::OBJECT_NAME_COLLISION,
            Status::OBJECT_PATH_NOT_FOUND,
        ];
        match error.status() {
            Some(status) if of_target.contains(&status) => {
                failed(Error::new(status, "rename to", share.url(&target)))
            }
            _ => failed(error),
        }
    })
}

async fn rename(
    share: &Share,
    [from, target]: [&str; 2],
    itself: Option<&Metadata>,
    replaces: Replaces,
) -> frevo_client::Result<()> {
    let names = [from, target];
    if replaces == Replaces::Nothing {
        let rename = || share.rename_if_not_exists(from, target);
        return lost_answers::renamed(share, names, itself, rename).await;
    }
    let renamed = lost_answers::renamed(share, names, itself, || share.rename(from, target));
    let error = match renamed.await {
        Err(error) if error.status() == Some(Status::ACCESS_DENIED) => error,
        renamed => return renamed,
    };
    // The rename may have failed because the target is read-only. Then the message says so.
    if replaces == Replaces::Writable {
        let found = share.metadata(target).await;
        let is_so = found.is_ok_and(|found| {
            !found.is_dir() && found.attributes().contains(FileAttributes::READONLY)
        });
        if !is_so {
            return Err(error);
        }
        let why = IoError::new(ErrorKind::PermissionDenied, "it is read-only; --force replaces it");
        return Err(Error::new(Cause::Local(Arc::new(why)), "replace", share.url(target)));
    }
    let rename = || share.rename_over_read_only(from, target);
    match lost_answers::renamed(share, names, itself, rename).await {
        Err(again) if again.is_not_found() => Err(error),
        renamed => renamed,
    }
}

/// True for a path below a directory.
fn is_inside(directory: &str, path: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| !directory.is_empty() && rest.starts_with('/'))
}

pub(crate) async fn mkdir(connection: &Connection, urls: &[Url], parents: bool) -> Done {
    let mut failures = Failures::default();
    for url in urls {
        let (share, url) = &connection.reach(url).await?;
        let made = if parents {
            share.create_dir_all(&url.path).await
        } else {
            lost_answers::made(share, &url.path).await
        };
        failures.note_done(made.map_err(failed))?;
    }
    failures.end("created")
}
