//! Partial copies on servers that this command has begun: what is left of them at its end is
//! named, since only this command knows them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use frevo_client::{Error, Share};

use super::super::location::Url;

/// URLs of the partial copies that are on servers.
static LEFT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Partial copies that are named at the end.
const NAMED: usize = 5;

/// A partial copy on a server.
pub(super) struct Part {
    url: String,
    /// As the library's errors name it.
    plain: String,
}

impl Part {
    /// The partial copy `part` in `share`, which is created now or was begun before.
    pub(super) fn begun(share: &Share, part: &str) -> Self {
        let url = Url::in_share(share, part).to_string();
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).insert(url.clone());
        Self { url, plain: share.url(part) }
    }

    /// Notes that the partial copy was removed, or has its final name.
    pub(super) fn is_gone(&self) {
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.url);
    }

    /// For [`Result::map_err`]: gives an error of the partial copy the URL of the final file.
    pub(super) fn as_target(&self, share: &Share, path: &str) -> impl FnOnce(Error) -> Error {
        let url = share.url(path);
        move |error| {
            if error.path() == self.plain {
                return Error::new(error.cause().clone(), error.operation(), url);
            }
            error
        }
    }
}

/// A note about the partial copies that are left on servers. None if there are none.
pub(crate) fn note() -> Option<String> {
    let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let named: Vec<String> = left.iter().take(NAMED).map(|url| format!("'{url}'")).collect();
    let more = match left.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" (and {more} more beside them)"),
    };
    let (what, it) = if left.len() == 1 {
        ("an incomplete copy is", "it")
    } else {
        ("incomplete copies are", "them")
    };
    let urls = named.join(" ");
    (!left.is_empty()).then(|| {
        format!(
            "{what} left on the server; the same command continues {it}. To remove {it}: \
             frevo rm {urls}{more}"
        )
    })
}
