//! `ls`, `tree`, `find`, `stat`.

use std::rc::Rc;

use frevo_client::{DirEntry, Metadata, Share};
use frevo_wire::fscc::Pattern;

use super::arguments::{Find, Kind, Ls};
use super::colors::Colors;
use super::connection_options::Connection;
use super::failures::Failures;
use super::location::{Url, join};
use super::logon::failed;
use super::output::{
    attributes, colored_line, full_time, human, kind, line, object, show_utc, time,
};
use super::walk::{self, Trail};
use super::{spelling, wildcards};
use crate::exit::Done;
use crate::plural::counted;

pub(crate) async fn ls(ls: &Ls) -> Done {
    if ls.utc {
        show_utc();
    }
    let colors = Colors::new(ls.color);
    let mut failures = Failures::default();
    let urls = wildcards::expand(&ls.connection, &ls.urls).await?;
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
        walk::remote_but(share, &url.path, see, note).await.map_err(failed)?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.iter().all(|(name, metadata)| show(ls, colors, &asked.path, name, metadata));
        return failures.end("listed");
    }
    let entries = match share.list_dir(&url.path).await {
        // A file is listed as itself.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let metadata = share.metadata(&url.path).await.map_err(failed)?;
            let (directory, name) = frevo_client::path::split(&asked.path);
            show(ls, colors, directory, name, &metadata);
            return Ok(());
        }
        entries => sorted(entries.map_err(failed)?),
    };
    entries.iter().all(|entry| show(ls, colors, &asked.path, entry.file_name(), entry.metadata()));
    Ok(())
}

fn sorted(mut entries: Vec<DirEntry>) -> Vec<DirEntry> {
    entries.sort_by(|a, b| a.file_name().cmp(b.file_name()));
    entries
}

/// False when the reader of the output is gone.
fn show(ls: &Ls, colors: &Colors, directory: &str, name: &str, metadata: &Metadata) -> bool {
    if ls.connection.json {
        return line(object(&join(directory, name), metadata));
    }
    let name = spelling::shown(name);
    let name = colors.paint(&name, metadata);
    let slash = if walk::kind(metadata) == walk::Kind::Directory { "/" } else { "" };
    if !ls.long {
        return colored_line(format_args!("{name}{slash}"));
    }
    let size = if ls.human { human(metadata.len()) } else { metadata.len().to_string() };
    let (letters, modified) = (attributes(metadata.attributes()), time(metadata.modified()));
    colored_line(format_args!("{letters} {size:>12} {modified} {name}{slash}"))
}

pub(crate) async fn tree(connection: &Connection, url: &Url, depth: Option<usize>) -> Done {
    let (share, url) = &connection.reach(url).await?;
    if !connection.json {
        line(url);
    }
    let mut drawn = Drawn::default();
    let depth = depth.unwrap_or(usize::MAX);
    branch(share, connection, &url.path, "", depth, &mut drawn, None).await?;
    if !connection.json {
        let directories = match drawn.directories {
            1 => String::from("1 directory"),
            count => format!("{count} directories"),
        };
        line(format_args!("{directories}, {}", counted(drawn.files, "file")));
    }
    drawn.failures.end("shown")
}

/// Counts of what `tree` has shown so far.
#[derive(Default)]
struct Drawn {
    directories: u64,
    files: u64,
    failures: Failures,
}

/// Draws one directory. Boxed, since it calls itself.
fn branch<'a>(
    share: &'a Share,
    connection: &'a Connection,
    path: &'a str,
    indent: &'a str,
    depth: usize,
    drawn: &'a mut Drawn,
    trail: Option<Rc<Trail>>,
) -> std::pin::Pin<Box<dyn Future<Output = Done> + 'a>> {
    Box::pin(async move {
        if depth == 0 {
            return Ok(());
        }
        let entries = match share.list_dir(path).await {
            // What is beside it is shown.
            Err(error) if !indent.is_empty() => return drawn.failures.note(error).map_err(failed),
            entries => sorted(entries.map_err(failed)?),
        };
        let last = entries.len().saturating_sub(1);
        for (at, entry) in entries.iter().enumerate() {
            let below = join(path, entry.file_name());
            let (corner, bar) =
                if at == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let shown = if connection.json {
                line(object(&below, entry.metadata()))
            } else {
                line(format_args!("{indent}{corner}{}", spelling::shown(entry.file_name())))
            };
            if !shown {
                return Ok(());
            }
            if walk::kind(entry.metadata()) == walk::Kind::Directory {
                drawn.directories += 1;
                let indent = format!("{indent}{bar}");
                let mut trail = trail.clone();
                if entry.metadata().is_junction() && depth > 1 {
                    trail = walk::cross(share, &below, trail).await.map_err(failed)?;
                }
                branch(share, connection, &below, &indent, depth - 1, drawn, trail).await?;
            } else {
                drawn.files += 1;
            }
        }
        Ok(())
    })
}

pub(crate) async fn find(find: &Find) -> Done {
    let (share, url) = &find.connection.reach(&find.url).await?;
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
        let path = find.url.below(name);
        if find.connection.json {
            line(object(&path, metadata));
        } else {
            line(find.url.at(path));
        }
    };
    let mut failures = Failures::default();
    let note = |error| failures.note(error);
    walk::remote_but(share, &url.path, see, note).await.map_err(failed)?;
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
    for url in &wildcards::expand(connection, urls).await? {
        failures.note_done(stat_one(connection, url).await)?;
    }
    failures.end("shown")
}

async fn stat_one(connection: &Connection, url: &Url) -> Done {
    let (share, url) = &connection.reach(url).await?;
    let metadata = share.metadata(&url.path).await.map_err(failed)?;
    if connection.json {
        line(object(&url.path, &metadata));
        return Ok(());
    }
    line(url);
    line(format_args!("  kind      {}", kind(&metadata)));
    let (bytes, size) = (metadata.len().to_string(), human(metadata.len()));
    let size = if size == bytes { size } else { format!("{bytes} ({size})") };
    line(format_args!("  size      {size}"));
    line(format_args!("  on disk   {}", human(metadata.allocation())));
    line(format_args!("  flags     {}", attributes(metadata.attributes())));
    line(format_args!("  created   {}", full_time(metadata.created())));
    line(format_args!("  modified  {}", full_time(metadata.modified())));
    line(format_args!("  changed   {}", full_time(metadata.changed())));
    Ok(())
}
