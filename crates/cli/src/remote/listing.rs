//! `ls`, `tree`, `find`, `stat`.

use frevo_client::{DirEntry, Metadata, Share};
use frevo_wire::fscc::Pattern;
use futures_util::stream::{self, StreamExt as _};

use super::arguments::{Find, Kind, Ls};
use super::colors::Colors;
use super::connection_options::Connection;
use super::failures::{AT_ONCE, Failures, in_order};
use super::location::{Url, join};
use super::logon::failed;
use super::output::{
    attributes, colored_line, full_time, human, kind, line, object, show_utc, time,
};
use super::walk;
use super::{spelling, wildcards};
use crate::exit::{Done, Failure};
use crate::plural::counted;
use crate::printable::printable;

pub(crate) async fn ls(ls: &Ls) -> Done {
    if ls.utc {
        show_utc();
    }
    let colors = Colors::new(ls.color);
    let mut failures = Failures::default();
    let urls = ls.as_of.urls(&ls.connection, &ls.urls).await?;
    let urls = wildcards::expand(&ls.connection, &urls).await?;
    for (at, url) in urls.iter().enumerate() {
        if urls.len() > 1 && !ls.connection.json {
            if at > 0 {
                line("");
            }
            line(format_args!("{url}:"));
        }
        failures.note_done(list(ls, &colors, url).await)?;
    }
    failures.end("listed")
}

async fn list(ls: &Ls, colors: &Colors, asked: &Url) -> Done {
    let (share, url) = &ls.connection.reach(asked).await?;
    if ls.recursive {
        let (mut found, mut failures) = (Vec::new(), Failures::default());
        let see = |name: &str, metadata: &Metadata| found.push((name.to_owned(), *metadata));
        let note = |error| failures.note(error);
        let _kept = walk::remote_but(share, &url.path, see, note).await.map_err(failed)?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        show_all(ls, colors, &Listed { share, asked, real: url }, found).await?;
        return failures.end("listed");
    }
    let entries = match share.list_dir(&url.path).await {
        // If the URL names a file, the output is this one file.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let metadata = share.metadata(&url.path).await.map_err(failed)?;
            let (directory, name) = frevo_client::path::split(&asked.path);
            show(ls, colors, directory, name, &metadata, &[]);
            return Ok(());
        }
        entries => sorted(entries.map_err(failed)?),
    };
    let found = entries.iter().map(|entry| (entry.file_name().to_owned(), *entry.metadata()));
    show_all(ls, colors, &Listed { share, asked, real: url }, found.collect()).await
}

/// A directory that is listed.
struct Listed<'a> {
    share: &'a Share,
    /// The URL that was given.
    asked: &'a Url,
    /// The URL in the share.
    real: &'a Url,
}

/// Shows entries in their order; with `-l` also where DFS links lead, which asks the server for each link.
async fn show_all(
    ls: &Ls,
    colors: &Colors,
    listed: &Listed<'_>,
    found: Vec<(String, Metadata)>,
) -> Done {
    let entries = found.into_iter().map(async |(name, metadata)| {
        let targets = match ls.long && metadata.is_junction() {
            true => listed.share.link_targets(&join(&listed.real.path, &name)).await?,
            false => Vec::new(),
        };
        Ok((name, metadata, targets))
    });
    let mut entries = std::pin::pin!(stream::iter(entries).buffered(AT_ONCE));
    while let Some(entry) = entries.next().await {
        let (name, metadata, targets) = entry.map_err(failed)?;
        if !show(ls, colors, &listed.asked.path, &name, &metadata, &targets) {
            break;
        }
    }
    Ok(())
}

fn sorted(mut entries: Vec<DirEntry>) -> Vec<DirEntry> {
    entries.sort_by(|a, b| a.file_name().cmp(b.file_name()));
    entries
}

/// Shows an entry; `targets` are those of a DFS link. False when the reader of the output is gone.
fn show(
    ls: &Ls,
    colors: &Colors,
    directory: &str,
    name: &str,
    metadata: &Metadata,
    targets: &[String],
) -> bool {
    if ls.connection.json {
        let mut object = object(&join(directory, name), metadata);
        if !targets.is_empty() {
            object["targets"] = targets.into();
        }
        return line(object);
    }
    let name = spelling::shown(name);
    let name = colors.paint(&name, metadata);
    let slash = if walk::kind(metadata) == walk::Kind::Directory { "/" } else { "" };
    if !ls.long {
        return colored_line(format_args!("{name}{slash}"));
    }
    let size = if ls.human { human(metadata.len()) } else { metadata.len().to_string() };
    let (letters, modified) = (attributes(metadata.attributes()), time(metadata.modified()));
    let arrow = if targets.is_empty() { "" } else { " -> " };
    let leads = format!("{arrow}{}", printable(&targets.join(", ")));
    colored_line(format_args!("{letters} {size:>12} {modified} {name}{slash}{leads}"))
}

/// A file or directory by its path below the listed directory.
type TreeEntry = (String, Metadata);

pub(crate) async fn tree(connection: &Connection, url: &Url, depth: Option<usize>) -> Done {
    let (share, url) = &connection.reach(url).await?;
    if !connection.json {
        line(url);
    }
    let depth = depth.unwrap_or(usize::MAX);
    let (mut found, mut failures) = (Vec::new(), Failures::default());
    let _kept;
    if depth > 0 {
        let see = |name: &str, metadata: &Metadata| {
            found.push((name.to_owned(), *metadata));
            name.matches('/').count() + 1 < depth
        };
        // A directory that cannot be listed is noted as a failure and does not end the command.
        let note = |error| failures.note(error);
        _kept = walk::remote_into(share, &url.path, see, note).await.map_err(failed)?;
    }
    // The names are compared by components, so that a directory comes right before its content.
    found.sort_by(|(a, _), (b, _)| a.split('/').cmp(b.split('/')));
    if connection.json {
        found.iter().all(|(name, metadata)| line(object(&join(&url.path, name), metadata)));
        return failures.end("shown");
    }
    if draw(&found, "") {
        let is_directory =
            |(_, metadata): &&TreeEntry| walk::kind(metadata) == walk::Kind::Directory;
        let directories = found.iter().filter(is_directory).count();
        let files = found.len() - directories;
        let shown = match directories {
            1 => String::from("1 directory"),
            count => format!("{count} directories"),
        };
        line(format_args!("{shown}, {}", counted(files as u64, "file")));
    }
    failures.end("shown")
}

/// Draws the entries of one directory, each with those below it. False when the reader of the output
/// is gone.
fn draw(found: &[TreeEntry], indent: &str) -> bool {
    let mut rest = found;
    while let Some(((name, _), others)) = rest.split_first() {
        let is_below = |(other, _): &TreeEntry| {
            other.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('/'))
        };
        let count = others.iter().position(|one| !is_below(one)).unwrap_or(others.len());
        let (below, beside) = others.split_at(count);
        let (corner, bar) =
            if beside.is_empty() { ("└── ", "    ") } else { ("├── ", "│   ") };
        let leaf = spelling::shown(frevo_client::path::split(name).1);
        if !line(format_args!("{indent}{corner}{leaf}")) || !draw(below, &format!("{indent}{bar}"))
        {
            return false;
        }
        rest = beside;
    }
    true
}

pub(crate) async fn find(find: &Find) -> Done {
    let Some(url) = &find.url else { return Ok(()) };
    let asked = find.as_of.url(&find.connection, url, false).await?;
    let (share, url) = &find.connection.reach(&asked).await?;
    let pattern = find.name.as_deref().map(|name| Pattern::new(name, true));
    let fits = |name: &str, metadata: &Metadata| {
        let leaf = frevo_client::path::split(name).1;
        pattern.as_ref().is_none_or(|pattern| pattern.matches(leaf))
            && find.kind.is_none_or(|kind| is_of(metadata, kind))
            && find.min_size.is_none_or(|least| metadata.len() >= least)
            && find.max_size.is_none_or(|most| metadata.len() <= most)
    };
    let see = |name: &str, metadata: &Metadata| {
        if !fits(name, metadata) {
            return;
        }
        let path = asked.below(name);
        if find.connection.json {
            line(object(&path, metadata));
        } else {
            line(asked.at(path));
        }
    };
    let mut failures = Failures::default();
    let note = |error| failures.note(error);
    let _kept = walk::remote_but(share, &url.path, see, note).await.map_err(failed)?;
    failures.end("searched")
}

fn is_of(metadata: &Metadata, kind: Kind) -> bool {
    matches!(
        (walk::kind(metadata), kind),
        (walk::Kind::File, Kind::File)
            | (walk::Kind::Directory, Kind::Directory)
            | (walk::Kind::Other, Kind::Link)
    )
}

pub(crate) async fn stat(connection: &Connection, urls: &[Url], utc: bool) -> Done {
    if utc {
        show_utc();
    }
    let mut failures = Failures::default();
    let urls = wildcards::expand(connection, urls).await?;
    let all = urls.iter().map(async |url| {
        let (share, url) = connection.reach(url).await?;
        let metadata = share.metadata(&url.path).await.map_err(failed)?;
        Ok((url, metadata))
    });
    let show = async |found: Result<(Url, Metadata), Failure>| {
        let shown = found.map(|(url, metadata)| tell_stat(connection, &url, &metadata));
        failures.goes_on(shown)
    };
    in_order(all, show).await?;
    failures.end("shown")
}

fn tell_stat(connection: &Connection, url: &Url, metadata: &Metadata) {
    if connection.json {
        line(object(&url.path, metadata));
        return;
    }
    line(url);
    line(format_args!("  kind      {}", kind(metadata)));
    let (bytes, size) = (metadata.len().to_string(), human(metadata.len()));
    let size = if size == bytes { size } else { format!("{bytes} ({size})") };
    line(format_args!("  size      {size}"));
    line(format_args!("  on disk   {}", human(metadata.allocation())));
    line(format_args!("  flags     {}", attributes(metadata.attributes())));
    line(format_args!("  created   {}", full_time(metadata.created())));
    line(format_args!("  modified  {}", full_time(metadata.modified())));
    line(format_args!("  changed   {}", full_time(metadata.changed())));
}
