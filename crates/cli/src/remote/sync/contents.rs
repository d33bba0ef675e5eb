//! Contents of files that both ends of `sync --checksum` have: many are read at the same time.

use std::cell::RefCell;

use frevo_client::Share;

use super::super::arguments::Sync;
use super::super::endpoint::{Endpoint, Entry};
use super::super::failures::{Failures, each};
use super::super::location::folder;
use super::super::overlap::Ends;
use super::super::parallel_sessions::ParallelSessions;
use super::super::transfer::is_small;
use crate::exit::Failure;

/// A file that both ends have, with the same length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) name: &'a str,
    pub(super) entry: Entry,
    /// The name in the target, perhaps in another case.
    pub(super) name_there: &'a str,
    pub(super) old: Entry,
}

/// Compares the contents of all pairs, over the sessions that a copy uses. Returns true with each
/// pair whose contents are equal. A pair of which one file cannot be read is noted in `failures`
/// and left out.
///
/// # Errors
/// An error that all other files would meet too.
pub(super) async fn compare<'a>(
    sync: &Sync,
    ends: &Ends,
    pairs: Vec<Pair<'a>>,
    failures: &mut Failures,
) -> Result<Vec<(Pair<'a>, bool)>, Failure> {
    let equal: RefCell<Vec<Option<bool>>> = RefCell::new(vec![None; pairs.len()]);
    let read = async |over: Option<&Share>, at: usize, pair: &Pair<'_>| {
        let is_equal = is_equal(ends, over, pair).await?;
        if let Some(place) = equal.borrow_mut().get_mut(at) {
            *place = Some(is_equal);
        }
        Ok(())
    };
    match (&ends.from, &ends.to) {
        (Endpoint::Local(_), Endpoint::Remote(share, _))
        | (Endpoint::Remote(share, _), Endpoint::Local(_)) => {
            let sessions = ParallelSessions::new(share, &sync.connection);
            let work = async |share: &Share, (at, pair): (usize, &Pair<'_>)| {
                read(Some(share), at, pair).await
            };
            let is_small = |(_, pair): (usize, &Pair<'_>)| is_small(pair.entry.len);
            let folder = |(_, pair): (usize, &'_ Pair<'a>)| folder(pair.name);
            sessions.each(pairs.iter().enumerate(), is_small, folder, work, failures).await?;
        }
        _ => {
            each(pairs.iter().enumerate().map(|(at, pair)| read(None, at, pair)), failures).await?
        }
    }
    let all = pairs.into_iter().zip(equal.into_inner());
    Ok(all.filter_map(|(pair, is_equal)| is_equal.map(|is_equal| (pair, is_equal))).collect())
}

/// True when the contents of a pair are equal. Both ends are read at the same time.
async fn is_equal(
    ends: &Ends,
    over: Option<&Share>,
    pair: &Pair<'_>,
) -> frevo_client::Result<bool> {
    let here = ends.from.digest(over, pair.name, pair.entry.len);
    let there = ends.to.digest(over, pair.name_there, pair.old.len);
    let (here, there) = futures_util::future::try_join(here, there).await?;
    Ok(here == there)
}
