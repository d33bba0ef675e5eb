//! `shares`, `watch`, `snapshots`.

use frevo_client::{Change, RecursiveMode};
use frevo_store::snapshot::Moment;
use serde_json::json;

use super::as_of::{of_removed, system_time};
use super::connection_options::Connection;
use super::location::Url;
use super::logon::failed;
use super::output::{exact_time, line, time};
use super::spelling;
use crate::console::tell;
use crate::exit::{Done, Exit};

pub(crate) async fn shares(connection: &Connection, url: &Url, all: bool) -> Done {
    let session = connection.log_on(url).await?;
    let mut shares = session.shares().await.map_err(failed)?;
    shares.sort_by(|a, b| a.name.cmp(&b.name));
    for share in shares.iter().filter(|share| all || (share.is_disk && !share.is_special)) {
        let shown = if connection.json {
            line(json!({ "name": share.name, "comment": share.comment, "disk": share.is_disk }))
        } else {
            line(format_args!("{:<24} {}", share.name, share.comment).to_string().trim_end())
        };
        if !shown {
            break;
        }
    }
    Ok(())
}

pub(crate) async fn watch(connection: &Connection, url: &Url, recursive: bool) -> Done {
    let (share, url) = &connection.reach(url).await?;
    let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
    let mut watch = share.watch(&url.path, mode).await.map_err(failed)?;
    loop {
        for change in watch.next_changes().await.map_err(failed)? {
            let (what, from, name) = match &change {
                Change::Added(name) => ("added", None, &**name),
                Change::Removed(name) => ("removed", None, &**name),
                Change::Modified(name) => ("modified", None, &**name),
                Change::Renamed { from, to } => ("renamed", Some(from), &**to),
                Change::Missed => ("missed", None, ""),
                _ => continue,
            };
            let from = from.map(|from| spelling::shown(from));
            let name = spelling::shown(name);
            let shown = match (connection.json, &from) {
                (true, _) => line(json!({ "change": what, "from": from, "path": name })),
                (false, Some(from)) => line(format_args!("{what:<9}{from} -> {name}")),
                (false, None) => line(format_args!("{what:<9}{name}")),
            };
            if !shown {
                return Ok(());
            }
        }
    }
}

pub(crate) async fn snapshots(connection: &Connection, url: &Url) -> Done {
    let (share, place) = &connection.reach(url).await?;
    let found = match share.snapshots(&place.path).await.map_err(failed) {
        Err(failure) if failure.exit == Exit::NotFound && !place.path.is_empty() => {
            let found = of_removed(connection, url).await?;
            if found.is_empty() {
                return Err(failure);
            }
            tell(format_args!("{url} is not there any more; these snapshots have it"));
            found.iter().map(ToString::to_string).collect()
        }
        found => found?,
    };
    if found.is_empty() {
        tell(format_args!("{url} has no snapshots on the server"));
    }
    for token in found {
        let taken = Moment::of_token(&token).map(system_time);
        let shown = if connection.json {
            line(json!({ "token": token, "time": taken.map(exact_time) }))
        } else {
            let taken = taken.map_or_else(String::new, time);
            line(format_args!("{token}  {taken}").to_string().trim_end())
        };
        if !shown {
            break;
        }
    }
    Ok(())
}
