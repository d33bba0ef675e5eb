//! A limit on the time of a call on its thread.
//!
//! A core serves many clients, another thread only one. A call that would read a directory of a
//! million names gives up within [`short`], and is made again on another thread.

use std::cell::Cell;

use rustix::io::Errno;

use crate::limits::{FREED_ON_CORE, STEPS_ON_CORE};

thread_local! {
    static IS_SHORT: Cell<bool> = const { Cell::new(false) };
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
    /// Bytes noted by [`note_freed`] on this thread.
    static FREED: Cell<u64> = const { Cell::new(0) };
}

/// Ends the limit, also on a panic.
struct Ending(bool);

impl Drop for Ending {
    fn drop(&mut self) {
        IS_SHORT.set(self.0);
    }
}

/// Runs calls that must not take long. Returns true if one of them gave up: then it failed,
/// whatever its fault, and has changed nothing.
pub fn short<T>(calls: impl FnOnce() -> T) -> (T, bool) {
    let ending = Ending(IS_SHORT.replace(true));
    // The enclosing scope has a flag of its own, which is saved here and restored below.
    let before = GAVE_UP.replace(false);
    let made = calls();
    drop(ending);
    (made, GAVE_UP.replace(before))
}

/// Runs calls that take as long as they need, also within [`short`]: calls that nobody makes again.
pub fn long<T>(calls: impl FnOnce() -> T) -> T {
    let _ending = Ending(IS_SHORT.replace(false));
    calls()
}

/// True if calls must not take long.
pub(crate) fn is_short() -> bool {
    IS_SHORT.get()
}

/// Gives up a call that takes so many steps and has changed nothing, if calls must not take long.
/// Returns true if it gave up.
pub fn gives_up(steps: usize) -> bool {
    let gives_up = steps > STEPS_ON_CORE && is_short();
    if gives_up {
        GAVE_UP.set(true);
    }
    gives_up
}

/// True if freeing so many bytes of a file takes longer than a core has: the file may have an extent
/// for each block.
pub const fn is_long_to_free(bytes: u64) -> bool {
    bytes > FREED_ON_CORE
}

/// Gives up a call that frees so many bytes of a file and has changed nothing, if calls must not take
/// long. Returns true if it gave up.
pub fn gives_up_freeing(bytes: u64) -> bool {
    let gives_up = is_long_to_free(bytes) && is_short();
    if gives_up {
        GAVE_UP.set(true);
    }
    gives_up
}

/// Runs calls that may remove the last names of files. Returns the bytes of these files too, which the
/// kernel frees when the last descriptor of each is closed.
pub fn freeing<T>(calls: impl FnOnce() -> T) -> (T, u64) {
    let before = FREED.replace(0);
    let made = calls();
    (made, FREED.replace(before))
}

/// Notes that the last name of a file with so many bytes has been removed: for each
/// [`Vfs`](frevo_store::Vfs) whose files are closed slowly then.
pub fn note_freed(bytes: u64) {
    FREED.set(FREED.get().saturating_add(bytes));
}

/// True if a call within the present [`short`] gave up: what is to be done is done on another thread.
pub fn has_given_up() -> bool {
    IS_SHORT.get() && GAVE_UP.get()
}

/// Returns the error of a call that gives up.
pub(crate) fn give_up() -> Errno {
    GAVE_UP.set(true);
    Errno::AGAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_told_to_the_caller() {
        let freed = freeing(|| {
            note_freed(3);
            freeing(|| note_freed(5)).1
        });
        assert_eq!(freed, (5, 3));
        note_freed(7);
        assert_eq!(freeing(|| ()).1, 0);
    }

    /// Tests n and n + 1 bytes.
    #[test]
    fn a_core_frees_few_bytes() {
        let try_both = || (gives_up_freeing(FREED_ON_CORE), gives_up_freeing(FREED_ON_CORE + 1));
        assert_eq!(try_both(), (false, false), "calls may take long");
        assert_eq!(short(try_both), ((false, true), true));
        assert_eq!(short(|| gives_up_freeing(FREED_ON_CORE)), (false, false));
        assert_eq!(short(|| long(try_both)), ((false, false), false));
    }

    #[test]
    fn patience_is_short_only_within() {
        assert!(!is_short());
        assert_eq!(short(is_short), (true, false));
        let given_up = || (has_given_up(), give_up(), has_given_up());
        assert_eq!(short(given_up), ((false, Errno::AGAIN, true), true));
        assert!(!has_given_up());
        assert_eq!(short(give_up), (Errno::AGAIN, true));
        assert_eq!(short(|| ()), ((), false), "each says so of its own calls");
        let nested = short(|| (give_up(), short(|| ()), has_given_up()));
        assert_eq!(nested, ((Errno::AGAIN, ((), false), true), true));
        let long_within = short(|| (long(|| (is_short(), gives_up(usize::MAX))), is_short()));
        assert_eq!(long_within, (((false, false), true), false));
        assert!(short(|| long(|| short(is_short).0)).0);
        assert!(std::panic::catch_unwind(|| short(|| panic!("planted"))).is_err());
        assert!(!is_short());
    }
}
