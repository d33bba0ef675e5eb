//! `snapshots create` and `delete` of a share of another machine: shadow copies by MS-FSRVP.

use std::io::ErrorKind;

use serde_json::json;

use super::connection_options::Connection;
use super::location::Url;
use super::logon::failed;
use super::output::{exact_time, line, time};
use crate::exit::{Done, Exit, Failure};

/// The name of a share that serves a shadow copy, MS-FSRVP 3.1.4.6.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServedCopy {
    /// The share that the copy is of.
    share: String,
    /// The GUID of the copy.
    id: String,
}

impl ServedCopy {
    /// Reads `share@{GUID}`; the name of a hidden share ends in a dollar.
    fn of(name: &str) -> Option<Self> {
        let bare = name.strip_suffix('$').unwrap_or(name);
        let (share, id) = bare.strip_suffix('}')?.rsplit_once("@{")?;
        (!share.is_empty()).then(|| Self { share: share.into(), id: id.into() })
    }
}

/// Refuses a path below a share: copies are those of whole shares.
fn whole_share(url: &Url) -> Result<&str, Failure> {
    if url.share.is_empty() || !url.path.is_empty() || url.snapshot().is_some() {
        let text = format!("{url}: write the URL of a share, smb://HOST/SHARE");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(&url.share)
}

pub(super) async fn create(connection: &Connection, url: &Url) -> Done {
    let share = whole_share(url)?;
    let session = connection.log_on(url).await?;
    let made = session.create_shadow_copy(share).await.map_err(|error| {
        // A server that makes no snapshots of the share has none to be found.
        let makes_none = error.kind() == ErrorKind::Unsupported;
        let failure = failed(error);
        if makes_none { Failure { exit: Exit::NotFound, ..failure } } else { failure }
    });
    let copy = made.map_err(|failure| named("no shadow copy was made of", url, failure))?;
    if connection.json {
        line(json!({
            "share": copy.share, "set": copy.set, "copy": copy.id, "time": exact_time(copy.created),
        }));
    } else {
        line(format_args!("{}  {}  set {}", copy.share, time(copy.created), copy.set));
    }
    Ok(())
}

pub(super) async fn delete(connection: &Connection, url: &Url, set: &str) -> Done {
    let name = whole_share(url)?;
    let copy = ServedCopy::of(name).ok_or_else(|| {
        let text = format!("{url}: write the URL of the copy, smb://HOST/SHARE@{{GUID}}");
        Failure::new(Exit::Usage, text)
    })?;
    let session = connection.log_on(url).await?;
    let deleted = session.delete_shadow_copy(&copy.share, set, &copy.id).await.map_err(failed);
    deleted.map_err(|failure| named("the shadow copy was not deleted:", url, failure))
}

/// The failure with the URL that was typed: that of the client names the share that the copy is of.
fn named(what: &str, url: &Url, failure: Failure) -> Failure {
    Failure { message: format!("{what} {url}: {}", failure.message), ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_copy_has_a_name_of_its_form() {
        let id = "2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10";
        for (name, share) in [
            (format!("data@{{{id}}}"), "data"),
            (format!("a@b@{{{id}}}"), "a@b"),
            (format!("d$@{{{id}}}$"), "d$"),
        ] {
            assert_eq!(
                ServedCopy::of(&name),
                Some(ServedCopy { share: share.into(), id: id.into() })
            );
        }
        for wrong in ["data", "@{x}", "data@x", "data@{x", ""] {
            assert_eq!(ServedCopy::of(wrong), None, "{wrong}");
        }
    }
}
