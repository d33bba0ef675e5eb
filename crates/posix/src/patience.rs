//! A limit on the time of a call on its thread.
//!
//! A core serves many clients, another thread only one. A call that would read a directory of a
//! million names gives up within [`short`], and is made again on another thread.

use std::cell::Cell;

use rustix::io::Errno;

use crate::limits::STEPS_ON_CORE;

thread_local! {
    static IS_SHORT: Cell<bool> = const { Cell::new(false) };
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
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
