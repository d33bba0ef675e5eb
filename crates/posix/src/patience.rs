//! How long a call may take on the thread that makes it.
//!
//! A core serves many clients; a thread beside it serves one. What would read a
//! directory of a million names gives up where [`short`] says that somebody waits,
//! and is made again beside the core.

use std::cell::Cell;

use rustix::io::Errno;

thread_local! {
    static IS_SHORT: Cell<bool> = const { Cell::new(false) };
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
}

/// Ends the short patience, a panic included.
struct Ending(bool);

impl Drop for Ending {
    fn drop(&mut self) {
        IS_SHORT.set(self.0);
    }
}

/// Makes calls that must not take long. True when one of them gave up; it failed
/// then, whatever its fault says, and has changed nothing.
pub fn short<T>(calls: impl FnOnce() -> T) -> (T, bool) {
    let ending = Ending(IS_SHORT.replace(true));
    GAVE_UP.set(false);
    let made = calls();
    drop(ending);
    (made, GAVE_UP.replace(false))
}

/// True where calls must not take long.
pub(crate) fn is_short() -> bool {
    IS_SHORT.get()
}

/// The error of a call that gave up.
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
        assert_eq!(short(give_up), (Errno::AGAIN, true));
        assert_eq!(short(|| ()), ((), false), "each says so of its own calls");
        assert!(std::panic::catch_unwind(|| short(|| panic!("planted"))).is_err());
        assert!(!is_short());
    }
}
