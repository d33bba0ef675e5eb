//! A form of records that no release has: a build that knows it stands for the next version in tests of
//! upgrades. Without the feature `later-records` nothing of it is there.

use frevo_wire::codec::{Parsed, Reader, Writer};

use super::RecordForm;

/// The form that comes after the newest one of this version.
pub(super) const FORM: RecordForm = RecordForm(6);

/// The first bytes of a record in this form.
pub(super) const NUMBER: u32 = 0x3646_5046;

/// The field that the next version has and this one has not.
#[cfg(feature = "later-records")]
const FIELD: [u8; 8] = *b"upgraded";

#[cfg(all(feature = "later-records", not(test)))]
mod switch {
    use core::sync::atomic::{AtomicBool, Ordering};

    static IS_KNOWN: AtomicBool = AtomicBool::new(false);

    /// Returns true in a process that stands for the next version.
    pub(in crate::state) fn is_known() -> bool {
        IS_KNOWN.load(Ordering::Relaxed)
    }

    /// Has this process stand for the next version.
    pub fn be_the_next_version() {
        IS_KNOWN.store(true, Ordering::Relaxed);
    }
}

/// Tests stand for it one by one, each on its thread.
#[cfg(all(feature = "later-records", test))]
mod switch {
    use core::cell::Cell;

    std::thread_local! {
        static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
    }

    /// Returns true on a thread that stands for the next version.
    pub(in crate::state) fn is_known() -> bool {
        IS_KNOWN.get()
    }

    /// Has this thread stand for the next version.
    pub fn be_the_next_version() {
        IS_KNOWN.set(true);
    }

    /// Stands for the next version during `act`.
    pub(in crate::state) fn with<T>(act: impl FnOnce() -> T) -> T {
        be_the_next_version();
        let done = act();
        IS_KNOWN.set(false);
        done
    }
}

#[cfg(feature = "later-records")]
pub use switch::be_the_next_version;
#[cfg(feature = "later-records")]
pub(super) use switch::is_known;
#[cfg(all(test, feature = "later-records"))]
pub(super) use switch::with;

/// Returns true in a process that stands for the next version.
#[cfg(not(feature = "later-records"))]
pub(super) const fn is_known() -> bool {
    false
}

/// Writes the part of a record that earlier versions do not know.
#[cfg(feature = "later-records")]
pub(super) fn write(w: &mut Writer<'_>) {
    w.bytes(&FIELD);
}

/// Reads the part of a record that earlier versions do not know.
#[cfg(feature = "later-records")]
pub(super) fn read(r: &mut Reader<'_>) -> Parsed<()> {
    match r.array("field of a later version")? {
        FIELD => Ok(()),
        _ => Err(frevo_wire::codec::Malformed::new("field of a later version")),
    }
}

/// No record has such a part.
#[cfg(not(feature = "later-records"))]
pub(super) const fn write(_: &mut Writer<'_>) {}

/// No record has such a part.
#[cfg(not(feature = "later-records"))]
pub(super) const fn read(_: &mut Reader<'_>) -> Parsed<()> {
    Ok(())
}
