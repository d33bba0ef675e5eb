//! Times of copied directories. They are set after the content, which changes them.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use frevo_client::internal::file_time;
use frevo_client::{Cause, Error, SetMetadata};
use futures_util::stream::{self, StreamExt};

use super::endpoint::{Endpoint, path_in};
use super::failures::AT_ONCE;
use super::local_names::local_in;
use super::long_path::reach;
use crate::console::tell;

/// The time that a directory of the target is to get.
#[derive(Debug)]
pub(crate) struct DirectoryTime {
    /// The path below the target, empty for the target itself.
    pub(crate) name: String,
    modified: SystemTime,
}

impl DirectoryTime {
    pub(crate) fn new(name: impl Into<String>, modified: SystemTime) -> Self {
        Self { name: name.into(), modified }
    }

    async fn set(&self, to: &Endpoint) -> frevo_client::Result<()> {
        match to {
            Endpoint::Local(root) => set_local(&local_in(root, &self.name), self.modified),
            Endpoint::Remote(share, root) => {
                let times = SetMetadata::new().modified(self.modified);
                share.set_metadata(&path_in(root, &self.name), &times).await
            }
        }
    }

    /// False where there is nothing to set: the source's server keeps no time, or the directory is
    /// the root of a share.
    fn is_of_use(&self, to: &Endpoint) -> bool {
        let is_share =
            matches!(to, Endpoint::Remote(_, root) if path_in(root, &self.name).is_empty());
        file_time(self.modified).0 != 0 && !is_share
    }
}

fn set_local(path: &Path, modified: SystemTime) -> frevo_client::Result<()> {
    // NOFOLLOW: if another program has put a link in place of the directory, the link's target is
    // not changed.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::DIRECTORY;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let opened = reach(path).and_then(|path| options.open(path));
    opened.and_then(|directory| directory.set_modified(modified)).map_err(|error| {
        Error::new(Cause::Local(Arc::new(error)), "set the time of", path.display().to_string())
    })
}

/// Sets the times of directories. The copy is whole without them, so that a server that refuses is
/// only told of.
pub(crate) async fn set_all(to: &Endpoint, all: &[DirectoryTime]) {
    let useful = all.iter().filter(|time| time.is_of_use(to));
    let set = stream::iter(useful.map(|time| time.set(to))).buffered(AT_ONCE);
    let failed: Vec<Error> = set.filter_map(async |set| set.err()).collect().await;
    if let Some((first, rest)) = failed.split_first() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(" (and those of {more} more directories)"),
        };
        let text = super::logon::failed(first.clone());
        tell(format_args!("times of directories were not kept: {text}{more}"));
    }
}
