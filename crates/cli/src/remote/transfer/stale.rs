//! Removes abandoned partial copies.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use frevo_client::{Metadata, Share};
use futures_util::stream::{self, StreamExt};
use rustix::fs::{FlockOperation, flock};

use super::super::failures::AT_ONCE;
use super::super::location::join;
use super::super::long_path::reach;
use super::super::walk::changed;
use super::{CopyOptions, is_part};

/// The age of a partial copy that counts as given up.
const STALE_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most partial copies that are removed from one directory by one command.
const STALE_MAX: usize = 1_000;

/// True for a partial copy, by its path, that was not touched for a week. A whole one has the time of
/// its source until it is renamed: the other `times` tell when it was written.
pub(crate) fn is_stale(path: &str, times: &[SystemTime]) -> bool {
    let age = |time: &SystemTime| SystemTime::now().duration_since(*time);
    let given_up = stale_after();
    is_part(path) && times.iter().all(|time| age(time).is_ok_and(|age| age > given_up))
}

/// Tests cannot make a file that was created and changed a week ago, so they shorten the week.
fn stale_after() -> Duration {
    let hook = cfg!(feature = "test-hooks").then(|| std::env::var("FREVO_TEST_STALE_SECONDS"));
    let seconds = hook.and_then(Result::ok).and_then(|text| text.parse().ok());
    seconds.map_or(STALE_AFTER, Duration::from_secs)
}

/// The times by which a part on a server is judged.
fn times(found: &Metadata) -> [SystemTime; 3] {
    [found.modified(), found.changed(), found.created()]
}

/// True for a local part that no command writes: a link, or a file that can be locked.
pub(crate) fn is_free(part: &Path) -> bool {
    let Ok(part) = reach(part) else { return false };
    let Ok(found) = std::fs::symlink_metadata(&part) else { return false };
    let is_locked = || {
        std::fs::File::open(&part)
            .is_ok_and(|part| flock(&part, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    found.is_symlink() || (found.is_file() && is_locked())
}

impl CopyOptions {
    /// True once for each directory, by its path or URL.
    fn is_first_in(&self, directory: &str) -> bool {
        let mut all = self.cleaned.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(directory.to_owned())
    }
}

/// Removes old partial copies from the directory of a share in which the part `own` is begun or
/// continued, once for each directory. What cannot be listed or removed stays.
pub(super) async fn clean_remote(share: &Share, own: &str, how: &CopyOptions) {
    let (directory, own) = frevo_client::path::split(own);
    if !how.is_first_in(&share.url(directory)) {
        return;
    }
    let Ok(listing) = share.read_dir(directory).await else { return };
    let mut listing = listing.matching("*.frevo-part").max_entries(STALE_MAX);
    let mut stale = Vec::new();
    while let Ok(Some(entry)) = listing.next_entry().await {
        let name = entry.file_name();
        let is_file = entry.file_type().is_file();
        if is_file && name != own && is_stale(name, &times(entry.metadata())) {
            stale.push(join(directory, name));
        }
    }
    let removals = stale.iter().map(|path| share.remove_file(path));
    stream::iter(removals).buffer_unordered(AT_ONCE).for_each(async |_| {}).await;
}

/// Removes old partial copies from the local directory in which the part `own` is begun or continued,
/// once for each directory. What another command continues just now stays.
pub(super) fn clean_local(own: &Path, how: &CopyOptions) {
    let parent = own.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    if !how.is_first_in(&directory.to_string_lossy()) {
        return;
    }
    let Ok(directory) = reach(directory) else { return };
    let Ok(entries) = std::fs::read_dir(&directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_old = name.to_str().filter(|name| is_part(name)).is_some_and(|name| {
            let found = entry.metadata().ok().filter(std::fs::Metadata::is_file);
            let modified = found.as_ref().and_then(|found| found.modified().ok());
            let changed = found.as_ref().map(changed);
            modified.zip(changed).is_some_and(|(one, other)| is_stale(name, &[one, other]))
        });
        if is_old && own.file_name() != Some(name.as_os_str()) && is_free(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_part_with_the_old_time_of_its_source_is_not_stale() {
        let name = "a/0123456789abcdef.frevo-part";
        let now = SystemTime::now();
        let old = now - STALE_AFTER - Duration::from_secs(60);
        assert!(is_stale(name, &[old, old]));
        assert!(!is_stale(name, &[old, now]) && !is_stale(name, &[now, old]));
        assert!(!is_stale("a/file", &[old, old]));
    }

    #[test]
    fn a_part_that_is_written_is_not_free() {
        let place = tempfile::tempdir().unwrap();
        let part = place.path().join("part");
        assert!(!is_free(&part));
        let file = std::fs::File::create(&part).unwrap();
        assert!(is_free(&part));
        super::super::download::lock(&file).unwrap();
        assert!(!is_free(&part));
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&part, &link).unwrap();
        assert!(is_free(&link));
    }
}
