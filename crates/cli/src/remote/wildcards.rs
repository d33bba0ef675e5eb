//! Wildcards in the paths of URLs: `*` and `?`, as a shell expands them for local paths.

use std::ops::ControlFlow;

use frevo_wire::fscc::Pattern;

use super::connection_options::Connection;
use super::failures::in_order;
use super::location::{Url, join};
use super::logon::failed;
use super::spelling;
use super::walk::{self, Kind};
use crate::exit::{Exit, Failure};

/// Replaces each URL with wildcards by those of the files that match it, in the order of their
/// names; other URLs stay.
///
/// # Errors
/// No file matches a URL, or a directory cannot be listed.
pub(crate) async fn expand(connection: &Connection, urls: &[Url]) -> Result<Vec<Url>, Failure> {
    let mut found = Vec::new();
    for url in urls {
        if !spelling::has_wildcards(&url.path) {
            found.push(url.clone());
            continue;
        }
        let before = found.len();
        let paths = matching(connection, url).await?;
        found.extend(paths.into_iter().map(|path| url.with_path(path)));
        if found.len() == before {
            let text = format!("no file matches {url}");
            return Err(Failure::new(Exit::NotFound, text).of("find", url));
        }
    }
    Ok(found)
}

/// The paths that match the path of `url`, name by name.
async fn matching(connection: &Connection, url: &Url) -> Result<Vec<String>, Failure> {
    let names: Vec<&str> = url.path.split('/').collect();
    let mut paths = vec![String::new()];
    for (at, name) in names.iter().enumerate() {
        if !spelling::has_wildcards(name) {
            paths = paths.into_iter().map(|path| join(&path, name)).collect();
            continue;
        }
        let is_last = at + 1 == names.len();
        let is_first = !names.iter().take(at).any(|name| spelling::has_wildcards(name));
        let mut next = Vec::new();
        let with_files = is_last && !url.ends_in_slash;
        let all = paths.iter().map(async |path| {
            let found = entries(connection, url, path, name, with_files).await?;
            Ok(found.iter().map(|name| join(path, name)).collect::<Vec<_>>())
        });
        let take = async |found: Result<Vec<String>, Failure>| match found {
            // No file matches in this directory, but the path may match below another one, so the
            // expansion continues.
            Err(failure) if !is_first && failure.exit == Exit::NotFound => {
                ControlFlow::Continue(())
            }
            Err(failure) => ControlFlow::Break(Err(failure)),
            Ok(found) => {
                next.extend(found);
                ControlFlow::Continue(())
            }
        };
        in_order(all, take).await?;
        paths = next;
    }
    if names.last().is_some_and(|name| !spelling::has_wildcards(name)) {
        return existing(connection, url, paths).await;
    }
    Ok(paths)
}

/// The names in the directory `path` that match `pattern`; only those of directories unless
/// `with_files` is set. As in a shell, a name that begins with a period needs a pattern that does.
/// If a file has the pattern itself as its name, only this name is returned.
async fn entries(
    connection: &Connection,
    url: &Url,
    path: &str,
    pattern: &str,
    with_files: bool,
) -> Result<Vec<String>, Failure> {
    let (share, place) = connection.reach(&url.at(path)).await?;
    let entries = share.list_dir(&place.path).await.map_err(failed)?;
    let literal = spelling::literal(pattern);
    let shows_hidden = pattern.starts_with('.');
    let matcher = Pattern::new(pattern, true);
    let mut names = Vec::new();
    for entry in &entries {
        let name = entry.file_name();
        let fits = with_files || walk::kind(entry.metadata()) == Kind::Directory;
        if fits && name == literal {
            return Ok(vec![literal]);
        }
        if fits && matcher.matches(name) && (shows_hidden || !name.starts_with('.')) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Those of `paths` that exist.
async fn existing(
    connection: &Connection,
    url: &Url,
    paths: Vec<String>,
) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let all = paths.into_iter().map(async |path| {
        let (share, place) = connection.reach(&url.at(&*path)).await?;
        match share.metadata(&place.path).await {
            Err(error) if error.is_not_found() => Ok(None),
            done => done.map(|_| Some(path)).map_err(failed),
        }
    });
    let take = async |one: Result<Option<String>, Failure>| match one {
        Ok(one) => {
            found.extend(one);
            ControlFlow::Continue(())
        }
        Err(failure) => ControlFlow::Break(Err(failure)),
    };
    in_order(all, take).await?;
    Ok(found)
}
