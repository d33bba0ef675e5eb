//! Cuts files in steps: a file may have an extent for each block, and to free them takes seconds.

use std::time::Instant;

use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, Node, Stat};

use crate::base::host;
use crate::base::limits::{CUT_BYTES, CUT_TIME};

/// The end of [`shorten`].
#[derive(Debug)]
pub(crate) struct Shortened {
    /// Data has gone, also where a later step failed.
    pub(crate) has_cut: bool,
    pub(crate) ended: VfsResult<()>,
}

/// True for a file whose cut to `end` takes longer than a core has.
pub(crate) fn is_long(node: &dyn Node, end: u64) -> bool {
    node.stat_without_eas().is_ok_and(|stat| is_long_cut(&stat, end))
}

/// True if the cut may free more than a core can. All of the allocation counts, however little is cut,
/// and if the end stays: a cut also frees what is reserved behind the end, and a file with holes does
/// not tell how much of its allocation that is.
const fn is_long_cut(stat: &Stat, end: u64) -> bool {
    end <= stat.end_of_file && host::is_long_to_free(stat.allocation)
}

/// Cuts a file until its remaining cut to `end` takes no longer than a core has. Others of the account
/// have their turn between the steps. The order among other changes of the file is that of the last
/// step: the request is not answered before it. What others were granted to cache between the steps
/// is broken before the last one, by the caller.
///
/// Fails on a core, where it is refused before anything is cut, and with the fault of a step.
///
/// `goes_on` is asked before each step. The fault is NotServed where it says no.
pub(crate) async fn shorten(node: &dyn Node, end: u64, goes_on: impl Fn() -> bool) -> Shortened {
    let mut has_cut = false;
    let ended = cut(node, end, goes_on, &mut has_cut).await;
    Shortened { has_cut, ended }
}

async fn cut(
    node: &dyn Node,
    end: u64,
    goes_on: impl Fn() -> bool,
    has_cut: &mut bool,
) -> VfsResult<()> {
    let mut step = CUT_BYTES;
    loop {
        let stat = node.stat_without_eas()?;
        if !is_long_cut(&stat, end) {
            return Ok(());
        }
        if host::gives_up_freeing(stat.allocation) {
            return Err(Fault::Leased);
        }
        if stat.end_of_file == end {
            // Only space behind the end is left. The last cut frees it in one call.
            return Ok(());
        }
        if !goes_on() {
            return Err(Fault::NotServed);
        }
        let began = Instant::now();
        node.set_end_of_file(stat.end_of_file.saturating_sub(step).max(end))?;
        *has_cut = true;
        step = next_step(step, began.elapsed() < CUT_TIME);
        tokio::task::yield_now().await;
    }
}

/// Returns the bytes of the next step: twice as many after a short one, half as many after a long one.
const fn next_step(step: u64, was_short: bool) -> u64 {
    let next = if was_short { step.saturating_mul(2) } else { step / 2 };
    if next < CUT_BYTES { CUT_BYTES } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_long_as_their_time() {
        assert_eq!(next_step(CUT_BYTES, true), 2 * CUT_BYTES);
        assert_eq!(next_step(4 * CUT_BYTES, false), 2 * CUT_BYTES);
        assert_eq!(next_step(CUT_BYTES, false), CUT_BYTES);
        assert_eq!(next_step(u64::MAX, true), u64::MAX);
    }
}
