//! Accounts, as far as this crate knows them: somebody for whom a thread works.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An account's use of all cores.
#[derive(Debug, Default)]
pub struct Account {
    /// Nanoseconds on all cores.
    pub(crate) used: AtomicU64,
}

/// An account as one thread refers to it: a poll takes a reference without a change that other threads
/// see.
pub(crate) type OfThread = Rc<Arc<Account>>;

thread_local! {
    /// The account for which the thread works.
    static CURRENT: Cell<Option<OfThread>> = const { Cell::new(None) };
}

/// Returns the account for which this thread works now. None for a task that works for no account.
#[must_use]
pub fn current() -> Option<Arc<Account>> {
    CURRENT.with(|current| {
        let account = current.take();
        let found = account.as_deref().cloned();
        current.set(account);
        found
    })
}

/// The work of this thread for an account, until it is dropped.
pub(crate) struct Working(Option<OfThread>);

/// Notes that this thread works for `account` until the result is dropped.
pub(crate) fn work_for(account: Option<OfThread>) -> Working {
    Working(CURRENT.replace(account))
}

impl Drop for Working {
    fn drop(&mut self) {
        // When a thread ends, `CURRENT` may be dropped before this value. Then there is nothing to
        // reset.
        let _ = CURRENT.try_with(|current| current.set(self.0.take()));
    }
}

/// Does work in the name of an account on a thread that is no core.
pub fn for_account<T>(account: Option<Arc<Account>>, work: impl FnOnce() -> T) -> T {
    let _working = work_for(account.map(Rc::new));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_works_for_one_account_after_the_other() {
        let (ann, bob) = (Arc::<Account>::default(), Arc::<Account>::default());
        let is = |account: &Arc<Account>| current().is_some_and(|it| Arc::ptr_eq(&it, account));
        assert!(current().is_none());
        for_account(Some(Arc::clone(&ann)), || {
            assert!(is(&ann));
            for_account(Some(Arc::clone(&bob)), || assert!(is(&bob)));
            for_account(None, || assert!(current().is_none()));
            assert!(is(&ann));
        });
        let panicked = std::panic::catch_unwind(|| {
            for_account(Some(Arc::clone(&bob)), || panic!("planted"));
        });
        assert!(panicked.is_err() && current().is_none(), "also after a panic");
        assert_eq!((Arc::strong_count(&ann), Arc::strong_count(&bob)), (1, 1));
    }
}
