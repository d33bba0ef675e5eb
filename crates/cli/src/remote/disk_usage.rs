//! `df` and `du`: the free space of shares and the size of directories.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use frevo_client::{Error, Metadata, Status};
use serde_json::json;

use super::arguments::Du;
use super::connection_options::Connection;
use super::failures::{Failures, in_order};
use super::location::{Url, join};
use super::logon::failed;
use super::output::{human, line};
use super::url_lines::print_each;
use super::walk::{self, Kind};
use super::{spelling, wildcards};
use crate::exit::{Done, Failure};

pub(crate) async fn df(connection: &Connection, urls: &[Url], exact: bool) -> Done {
    let mut failures = Failures::default();
    if !connection.json {
        line(format_args!("{:>8} {:>8} {:>8} {:>4}  share", "size", "used", "free", "use"));
    }
    let all = urls.iter().map(|url| df_one(connection, url, exact));
    let show = async |shown: Result<String, Failure>| match shown {
        Ok(text) if !line(&text) => ControlFlow::Break(Ok(())),
        shown => failures.goes_on(shown.map(drop)),
    };
    in_order(all, show).await?;
    failures.end("shown")
}

/// The line about the volume of one URL.
async fn df_one(connection: &Connection, asked: &Url, exact: bool) -> Result<String, Failure> {
    let (share, url) = &connection.reach(asked).await?;
    let room = share.disk_space(&url.path).await.map_err(|error| not_told(error, asked))?;
    let bytes = |units: u64| units.saturating_mul(room.unit);
    let (size, free, available) = (bytes(room.total), bytes(room.free), bytes(room.available));
    let used = size.saturating_sub(free);
    if connection.json {
        let object = json!({
            "url": asked.to_string(), "size": size, "used": used, "free": free,
            "available": available, "unit": room.unit,
        });
        return Ok(object.to_string());
    }
    let shown = |bytes: u64| if exact { bytes.to_string() } else { human(bytes) };
    // The percentage is calculated as by df(1): of the space that this user may use, rounded up.
    let whole = used.saturating_add(available).max(1);
    let percent = (u128::from(used) * 100).div_ceil(u128::from(whole));
    let (size, used, available) = (shown(size), shown(used), shown(available));
    Ok(format!("{size:>8} {used:>8} {available:>8} {percent:>3}%  {asked}"))
}

/// The failure of a question about space. A server need not have the answer.
fn not_told(error: Error, url: &Url) -> Failure {
    let is_unknown = error.status().is_some_and(|status| UNKNOWN_CLASS.contains(&status));
    let mut failure = failed(error);
    if is_unknown {
        failure.message = format!("{url}: the server does not tell the size of its file system");
    }
    failure
}

/// The statuses of servers that do not know a class of information.
const UNKNOWN_CLASS: [Status; 3] =
    [Status::NOT_SUPPORTED, Status::NOT_IMPLEMENTED, Status::INVALID_INFO_CLASS];

/// The content of a directory, with all directories below it.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    size: u64,
    allocated: u64,
    files: u64,
    directories: u64,
}

impl Sum {
    fn add(&mut self, metadata: &Metadata) {
        if walk::kind(metadata) == Kind::Directory {
            self.directories += 1;
        } else {
            self.size = self.size.saturating_add(metadata.len());
            self.allocated = self.allocated.saturating_add(metadata.allocation());
            self.files += 1;
        }
    }
}

pub(crate) async fn du(du: &Du) -> Done {
    let mut failures = Failures::default();
    let urls = du.as_of.urls(&du.connection, &du.urls).await?;
    let urls = wildcards::expand(&du.connection, &urls).await?;
    let count = async |url: &Url, failures: &mut Failures| du_one(du, url, failures).await;
    print_each(&urls, count, &mut failures).await?;
    failures.end("counted")
}

/// The lines about one URL.
async fn du_one(du: &Du, asked: &Url, failures: &mut Failures) -> Result<Vec<String>, Failure> {
    let (share, url) = &du.connection.reach(asked).await?;
    let metadata = share.metadata(&url.path).await.map_err(failed)?;
    let depth = if du.summarize { 0 } else { du.depth.unwrap_or(usize::MAX) };
    // Each directory down to the requested depth gets a sum in `sums`.
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let mut total = Sum::default();
    if walk::kind(&metadata) == Kind::Directory {
        let see = |name: &str, metadata: &Metadata| {
            total.add(metadata);
            let is_dir = walk::kind(metadata) == Kind::Directory;
            if is_dir && name.split('/').count() <= depth {
                sums.entry(name.to_owned()).or_default();
            }
            for (end, _) in name.match_indices('/').take(depth) {
                if let Some(sum) = name.get(..end).and_then(|above| sums.get_mut(above)) {
                    sum.add(metadata);
                }
            }
        };
        let _kept = walk::remote_but(share, &url.path, see, |error| failures.note(error))
            .await
            .map_err(failed)?;
    } else {
        total.add(&metadata);
    }
    let below = sums.iter().map(|(name, sum)| (join(&asked.path, name), *sum));
    let shown = below.chain([(asked.path.clone(), total)]).map(|(path, sum)| {
        let Sum { size, allocated, files, directories } = sum;
        if du.connection.json {
            let object = json!({
                "path": spelling::shown(&path), "size": size, "allocated": allocated, "files": files,
                "directories": directories,
            });
            return object.to_string();
        }
        let size = if du.human { human(size) } else { size.to_string() };
        format!("{size:>12} {}", asked.at(path))
    });
    Ok(shown.collect())
}
