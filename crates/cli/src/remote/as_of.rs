//! `--as-of`: files as they were at a time, out of the newest snapshot that is not younger.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use clap::Args;
use frevo_client::Share;
use frevo_store::snapshot::Moment;

use super::connection_options::Connection;
use super::failures::in_order;
use super::filter::parse_when;
use super::location::{Location, Url, folder};
use super::logon::failed;
use super::output::time_to_the_second;
use super::spelling;
use crate::console::tell;
use crate::exit::{Exit, Failure};

/// The option of commands that read files of a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Snapshots")]
pub(crate) struct AsOf {
    /// Read the files as they were at a time, from the newest snapshot of that time
    /// or before: a date such as 2026-11-22 or 2026-11-22T10:00, an age such as 36h, or now
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    pub(crate) as_of: Option<SystemTime>,
}

impl AsOf {
    /// Returns `urls` in the snapshots of the time; as they are if none was asked for.
    pub(crate) async fn urls(
        &self,
        connection: &Connection,
        urls: &[Url],
    ) -> Result<Vec<Url>, Failure> {
        let mut found = Vec::with_capacity(urls.len());
        for url in urls {
            found.push(self.url(connection, url, false).await?);
        }
        Ok(found)
    }

    /// Returns `url` in the snapshot of the time. The server is asked with the POSIX extensions if
    /// `posix` is set.
    pub(crate) async fn url(
        &self,
        connection: &Connection,
        url: &Url,
        posix: bool,
    ) -> Result<Url, Failure> {
        match self.as_of {
            Some(when) => url_at(connection, url, when, posix).await,
            None => Ok(url.clone()),
        }
    }

    /// Returns the source of a copy, `place`, in the snapshot of the time.
    ///
    /// # Errors
    /// A time was asked for, and the source is on this machine.
    pub(crate) async fn source(
        &self,
        connection: &Connection,
        place: &Location,
    ) -> Result<Location, Failure> {
        match place {
            Location::Remote(url) => self.url(connection, url, false).await.map(Location::Remote),
            Location::Local(path) if self.as_of.is_some() => {
                let shown = path.display();
                let text = format!("{shown} is on this machine; --as-of is for files of a server");
                Err(Failure::new(Exit::Usage, text))
            }
            Location::Local(_) => Ok(place.clone()),
        }
    }
}

/// A snapshot of a time, and the others that are known.
struct Chosen {
    moment: Moment,
    all: Vec<Moment>,
}

/// Returns `url` in the newest snapshot of `when` or before.
pub(crate) async fn url_at(
    connection: &Connection,
    url: &Url,
    when: SystemTime,
    posix: bool,
) -> Result<Url, Failure> {
    let chosen = choose(connection, url, when, posix).await?;
    Ok(told(connection, url, chosen.moment))
}

/// Returns `url` in the newest snapshot of `when` or before that has it: it may have been removed since.
pub(crate) async fn url_last_at(
    connection: &Connection,
    url: &Url,
    when: SystemTime,
) -> Result<Url, Failure> {
    let chosen = match choose(connection, url, when, false).await {
        Err(failure) if failure.exit == Exit::NotFound => {
            return Err(with_bin(connection, url, failure).await);
        }
        chosen => chosen?,
    };
    let Chosen { moment, mut all } = chosen;
    if literal_part(&url.path) != url.path {
        return Ok(told(connection, url, moment));
    }
    all.retain(|other| *other <= moment);
    match having(connection, url, all, 1).await?.first() {
        Some(moment) => Ok(told(connection, url, *moment)),
        None => {
            let text = format!("no snapshot of {} or before has {url}", time_to_the_second(when));
            let failure = Failure::new(Exit::NotFound, text).of("find", url);
            Err(with_bin(connection, url, failure).await)
        }
    }
}

/// The folder of recycle bins, unless a server has another name for it.
const BIN: &str = ".recycle";

/// A failure to find a file in snapshots, with the recycle bin that may have it.
async fn with_bin(connection: &Connection, url: &Url, failure: Failure) -> Failure {
    let bin = url.at(BIN);
    let has_bin = async {
        let (share, place) = connection.reach(&bin).await.ok()?;
        share.metadata(&place.path).await.ok()
    };
    match has_bin.await {
        Some(_) => {
            let message = format!("{}; a file that was deleted may be in {bin}", failure.message);
            Failure { message, ..failure }
        }
        None => failure,
    }
}

/// Returns the snapshots that have a file or directory that is not there any more, the newest first.
pub(crate) async fn of_removed(connection: &Connection, url: &Url) -> Result<Vec<Moment>, Failure> {
    let (share, place) = connection.reach(url).await?;
    let mut path = folder(&place.path);
    let all = loop {
        match tokens(&share, path).await {
            Err(failure) if failure.exit == Exit::NotFound && !path.is_empty() => {
                path = folder(path);
            }
            all => break all?,
        }
    };
    having(connection, url, all, usize::MAX).await
}

/// Returns at most `most` of the snapshots that have `url`, the newest first.
async fn having(
    connection: &Connection,
    url: &Url,
    mut all: Vec<Moment>,
    most: usize,
) -> Result<Vec<Moment>, Failure> {
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    let mut found = Vec::new();
    let looks = all.iter().map(async |moment| (*moment, has(connection, url, *moment).await));
    let take = async |(moment, has): (Moment, Result<bool, Failure>)| {
        match has {
            Ok(true) => found.push(moment),
            Ok(false) => {}
            Err(failure) => return ControlFlow::Break(Err(failure)),
        }
        if found.len() == most { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
    };
    in_order(looks, take).await?;
    Ok(found)
}

/// Returns true if the snapshot has the file or directory.
async fn has(connection: &Connection, url: &Url, moment: Moment) -> Result<bool, Failure> {
    let (share, place) = connection.reach(&url.in_snapshot(moment)).await?;
    match share.metadata(&place.path).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Returns `url` in a snapshot, and tells which.
fn told(connection: &Connection, url: &Url, moment: Moment) -> Url {
    if !connection.json {
        let shown = time_to_the_second(system_time(moment));
        tell(format_args!("{url}: as it was in the snapshot {moment} ({shown})"));
    }
    url.in_snapshot(moment)
}

/// Finds the newest snapshot of `when` or before.
async fn choose(
    connection: &Connection,
    url: &Url,
    when: SystemTime,
    posix: bool,
) -> Result<Chosen, Failure> {
    if let Some(token) = url.snapshot() {
        let text = format!("{url} names the snapshot {token} already; leave --as-of out");
        return Err(Failure::new(Exit::Usage, text));
    }
    let path = literal_part(&url.path);
    let (share, place) = connection.reach_with(&url.at(path), posix).await?;
    let mut all = match tokens(&share, "").await {
        Err(failure) if place.path.is_empty() => return Err(failure),
        // A user may be allowed to read a folder and not the share's root.
        all => all.unwrap_or_default(),
    };
    // The share's own list serves first, so that all files of a command are those of one moment. Some
    // servers have lists of single folders only.
    let mut chosen = newest(&all, when);
    let mut path = &*place.path;
    while chosen.is_none() && !path.is_empty() {
        match tokens(&share, path).await {
            Ok(more) => {
                chosen = newest(&more, when);
                all.extend(more);
                break;
            }
            // A file that was removed since: the list of the folder that it was in.
            Err(failure) if failure.exit == Exit::NotFound => path = folder(path),
            Err(failure) => return Err(failure),
        }
    }
    match chosen {
        Some(moment) => Ok(Chosen { moment, all }),
        None => Err(none(url, when, &all)),
    }
}

/// The path up to its first name with wildcards.
fn literal_part(path: &str) -> &str {
    let mut end = path.len();
    let mut from = 0;
    for name in path.split('/') {
        if spelling::has_wildcards(name) {
            end = from;
            break;
        }
        from += name.len() + 1;
    }
    path.get(..end).unwrap_or_default().trim_end_matches('/')
}

async fn tokens(share: &Share, path: &str) -> Result<Vec<Moment>, Failure> {
    let found = share.snapshots(path).await.map_err(failed)?;
    Ok(found.iter().filter_map(|token| Moment::of_token(token)).collect())
}

fn newest(all: &[Moment], when: SystemTime) -> Option<Moment> {
    all.iter().copied().filter(|moment| system_time(*moment) <= when).max()
}

fn none(url: &Url, when: SystemTime, all: &[Moment]) -> Failure {
    let text = match all.iter().min() {
        None => format!("{url} has no snapshots on the server"),
        Some(oldest) => format!(
            "{url} has no snapshot of {} or before; the oldest one is {oldest} ({})",
            time_to_the_second(when),
            time_to_the_second(system_time(*oldest))
        ),
    };
    Failure::new(Exit::NotFound, text).of("find", url)
}

/// Converts the time of a snapshot.
pub(crate) fn system_time(moment: Moment) -> SystemTime {
    let (seconds, _) = moment.time().to_unix();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let found = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    found.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Moment {
        Moment::of_token(&format!("@GMT-{text}")).unwrap()
    }

    #[test]
    fn the_newest_that_is_not_younger() {
        let all = ["2026.01.03-00.00.00", "2026.01.01-00.00.00", "2026.01.02-00.00.00"].map(moment);
        let at = |text| newest(&all, parse_when(text).unwrap());
        assert_eq!(at("2026-01-02T00:00:00Z"), Some(moment("2026.01.02-00.00.00")));
        assert_eq!(at("2026-01-02T23:59:59Z"), Some(moment("2026.01.02-00.00.00")));
        assert_eq!(at("2027-01-01T00:00:00Z"), Some(moment("2026.01.03-00.00.00")));
        assert_eq!(at("2025-12-31T23:59:59Z"), None);
        let early = moment("1950.01.01-00.00.00");
        assert_eq!(newest(&[early], SystemTime::UNIX_EPOCH), Some(early));
    }

    #[test]
    fn the_folders_above_the_first_wildcard() {
        for (path, literal) in
            [("a/b/c", "a/b/c"), ("a/*/c", "a"), ("*", ""), ("a/b*", "a"), ("", ""), ("a?/b", "")]
        {
            assert_eq!(literal_part(path), literal, "{path}");
        }
    }
}
