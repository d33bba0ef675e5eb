//! `cp`: copies files within a server, between servers, or to and from this machine.

use std::path::Path;

use super::ancestry::{BothEnds, RemoteEnd};
use super::arguments::Cp;
use super::copy_plan::{CopyPlan, Selection};
use super::failures::Failures;
use super::get::download;
use super::location::{Location, Url, is_same_server};
use super::logon::failed;
use super::name_collisions::Case;
use super::overlap::Ends;
use super::put::{expected, upload};
use super::target::is_remote_directory;
use super::transfer::CopyOptions;
use super::wildcards;
use crate::console::tell;
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn cp(cp: &Cp) -> Done {
    let quiet = cp.connection.json || cp.dry_run;
    let selection = Selection {
        recursive: cp.recursive,
        dry_run: cp.dry_run,
        update: cp.update,
        links: cp.copying.links,
        filter: &cp.filter,
    };
    let mut from = Vec::with_capacity(cp.from.len());
    for place in &cp.from {
        from.push(cp.as_of.source(&cp.connection, place).await?);
    }
    match (sources(&from)?, &cp.to) {
        (Sources::Local(_), Location::Local(_)) => {
            let text = "neither the source nor the target is an smb:// URL; use the cp command of this machine";
            Err(Failure::new(Exit::Usage, text))
        }
        (Sources::Remote(urls), Location::Local(to)) => {
            download(&urls, Some(to), selection, &cp.connection, &cp.copying).await
        }
        (Sources::Local(paths), Location::Remote(to)) => {
            let options = CopyOptions::new(expected(&paths), quiet, &cp.copying).forced(cp.force);
            upload(&paths, to, selection, &cp.connection, options).await
        }
        (Sources::Remote(urls), Location::Remote(to)) => {
            let options = CopyOptions::new(Some(0), quiet, &cp.copying).forced(cp.force);
            let mut failures = Failures::default();
            let mut plan = CopyPlan::new(selection, Case::Same);
            let urls = wildcards::expand(&cp.connection, &urls).await?;
            let find = async |from: &Url| ends(cp, from, to, urls.len()).await;
            plan.add_all(&urls, find, &options, &mut failures).await?;
            plan.carry_out(&cp.connection, &options, failures).await
        }
    }
}

/// The sources of a command, all at one end.
enum Sources<'a> {
    Local(Vec<&'a Path>),
    Remote(Vec<Url>),
}

fn sources(from: &[Location]) -> Result<Sources<'_>, Failure> {
    let (mut paths, mut urls) = (Vec::new(), Vec::new());
    for place in from {
        match place {
            Location::Local(path) => paths.push(&**path),
            Location::Remote(url) => urls.push(url.clone()),
        }
    }
    match (paths.is_empty(), urls.is_empty()) {
        (_, true) => Ok(Sources::Local(paths)),
        (true, _) => Ok(Sources::Remote(urls)),
        _ => {
            let text = "cannot mix local paths and URLs as sources; use two commands";
            Err(Failure::new(Exit::Usage, text))
        }
    }
}

/// Source and target of a copy between shares.
async fn ends(cp: &Cp, from: &Url, to: &Url, count: usize) -> Result<Ends, Failure> {
    let connection = &cp.connection;
    let BothEnds { from, to } = connection.reach_both(from, to).await?;
    if !is_same_server(&from.url.server, &to.url.server) && !connection.json {
        tell("source and target are on two servers; the data goes through this machine");
    }
    // The source is looked up before the target directory is made, so that a missing source leaves
    // no empty directory behind.
    from.share.metadata(&from.url.path).await.map_err(failed)?;
    let into = is_remote_directory(&to.share, &to.url, count, cp.dry_run).await?;
    let name = frevo_client::path::split(&from.url.path).1;
    let path = if into { to.url.below(name) } else { to.url.path.clone() };
    let to = RemoteEnd { url: to.url.with_path(path), ..to };
    let shown = from.url.to_string();
    let ends = Ends::remote(BothEnds { from, to }).await;
    if ends.are_same() {
        let text = format!("{shown} would be copied onto itself");
        return Err(Failure::new(Exit::Usage, text).of("copy", shown));
    }
    Ok(ends)
}
