//! The removals of `sync --delete`: many at the same time.

use futures_util::stream::{self, StreamExt};

use super::super::endpoint::{Endpoint, Entry};
use super::super::failures::{AT_ONCE, Failures, each, each_with_failures};
use super::super::local_names::local_in;
use super::super::transfer;
use super::super::walk::Kind;
use crate::exit::Done;

/// Removes entries of the target. With `bare` directories go only if they are empty, the deepest
/// first; else each goes with its content, and none of `all` is below another one.
pub(super) async fn remove(
    to: &Endpoint,
    all: &[(String, Entry)],
    bare: bool,
    failures: &mut Failures,
) -> Done {
    let (directories, files): (Vec<_>, Vec<_>) =
        all.iter().partition(|(_, entry)| entry.kind == Kind::Directory);
    each(files.iter().map(|(name, entry)| to.remove_file(name, entry)), failures).await?;
    if !bare {
        let trees = directories.iter().map(async |(name, _)| {
            let mut failures = Failures::default();
            (to.remove_tree(name, &mut failures).await, failures)
        });
        return each_with_failures(trees, failures).await;
    }
    let depth = |name: &str| name.matches('/').count();
    let mut names: Vec<&str> = directories.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_by_key(|name| std::cmp::Reverse(depth(name)));
    for level in names.chunk_by(|a, b| depth(a) == depth(b)) {
        each(level.iter().map(|name| to.remove_if_empty(name)), failures).await?;
    }
    Ok(())
}

/// Removes abandoned partial copies. What another program has open stays.
pub(super) async fn remove_stale(to: &Endpoint, names: &[(String, Entry)]) {
    let is_free = |name: &str| match to {
        Endpoint::Local(root) => transfer::is_free(&local_in(root, name)),
        // On a server, a partial copy in use needs no check, because its share mode forbids its
        // removal while it is being written.
        Endpoint::Remote(..) => true,
    };
    let removals = names.iter().map(async |(name, entry)| {
        if is_free(name) {
            let _ = to.remove_file(name, entry).await;
        }
    });
    stream::iter(removals).buffer_unordered(AT_ONCE).for_each(async |()| {}).await;
}
