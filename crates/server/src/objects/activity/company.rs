//! The accounts that have asked for something lately: an account that is alone may use all of the machine.
//!
//! Nothing is noted at a request. When an account wants more than its part, the times of the channels'
//! latest requests are looked at, and the answer is remembered for [`ALONE_KNOWN`]. Of channels that have
//! ended the latest two accounts are kept, so that newcomers who come and go count too.

use std::sync::Arc;
use std::time::Duration;

use frevo_net::watchdog::Moment;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use crate::base::limits::{ALONE_AFTER, ALONE_KNOWN};
use crate::objects::ledger::{Holder, Name};

/// The accounts that have been active lately, as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Company {
    answer: Mutex<Option<Answer>>,
    ended: Mutex<Ended>,
}

/// Active accounts, at a time.
#[derive(Debug)]
struct Answer {
    at: Moment,
    active: Active,
}

/// Active accounts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Active {
    /// None.
    #[default]
    Nobody,
    /// This one.
    One(Name),
    /// Two, or more.
    Several,
}

/// The account whose channel has ended last, and before it the last one of another account.
#[derive(Debug, Default)]
struct Ended {
    last: Option<Seen>,
    before: Option<Seen>,
}

/// An account, and the time of its latest request.
#[derive(Debug)]
struct Seen {
    account: Name,
    at: Moment,
}

impl Company {
    /// True if no account but that of `user` has been active lately. `look` tells of the channels that
    /// there are, if the answer is not known already.
    pub(super) fn is_alone(&self, user: &str, now: Moment, look: impl FnOnce(&mut Active)) -> bool {
        let mut answer = self.answer.lock();
        let known = answer.take().filter(|answer| now.since(answer.at) < ALONE_KNOWN);
        let known = known.unwrap_or_else(|| {
            let mut active = self.ended.lock().active(now);
            if active != Active::Several {
                look(&mut active);
            }
            Answer { at: now, active }
        });
        let is_alone = known.active.is_at_most(user);
        *answer = Some(known);
        is_alone
    }

    /// Notes that a channel of `account` has ended, which has been idle for so long.
    pub(super) fn note_end(&self, account: &Arc<Holder>, idle: Duration, now: Moment) {
        if idle < ALONE_AFTER {
            self.ended.lock().note(account.name(), now);
        }
    }
}

impl Active {
    /// Adds an account that has been idle for so long. Returns false if no further one matters.
    pub(super) fn goes_on(&mut self, account: &Arc<Holder>, idle: Duration) -> bool {
        if idle < ALONE_AFTER {
            self.add(account.name());
        }
        *self != Self::Several
    }

    fn add(&mut self, account: &Name) {
        match self {
            Self::Nobody => *self = Self::One(account.clone()),
            Self::One(known) if known != account => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }

    /// True if nobody else than `user` is active.
    fn is_at_most(&self, user: &str) -> bool {
        match self {
            Self::Nobody => true,
            Self::One(Name::Account(account)) => *account == fold_name(user),
            Self::One(Name::Network(_)) | Self::Several => false,
        }
    }
}

impl Ended {
    fn note(&mut self, account: &Name, at: Moment) {
        match &mut self.last {
            Some(last) if last.account == *account => last.at = at,
            last => {
                let seen = Seen { account: account.clone(), at };
                self.before = last.replace(seen);
            }
        }
    }

    /// The accounts of these whose time is not long ago.
    fn active(&self, now: Moment) -> Active {
        let mut active = Active::default();
        for seen in [&self.last, &self.before].into_iter().flatten() {
            if now.since(seen.at) < ALONE_AFTER {
                active.add(&seen.account);
            }
        }
        active
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ledger::Ledger;

    const NOW: Duration = Duration::ZERO;

    /// Looks at channels that have been idle for so long.
    fn is_alone(company: &Company, user: &str, now: Moment, channels: &[(&str, Duration)]) -> bool {
        let ledger = Ledger::default();
        company.is_alone(user, now, |active| {
            let _ =
                channels.iter().all(|(user, idle)| active.goes_on(&ledger.account(user), *idle));
        })
    }

    /// Tests that an account is alone after others have asked for nothing for a while, and what is
    /// remembered in between.
    #[test]
    fn an_account_is_alone_when_others_are_idle() {
        let (company, began) = (Company::default(), Moment::now());
        let just = ALONE_AFTER - Duration::from_millis(1);
        assert!(is_alone(&company, "ann", began, &[("ann", NOW), ("Ann", NOW)]));
        // The answer stays for a short time, and another account's question gets the right one.
        assert!(is_alone(&company, "ann", began.after(ALONE_KNOWN / 2), &[("bob", NOW)]));
        assert!(!is_alone(&company, "bob", began.after(ALONE_KNOWN / 2), &[]));
        let later = began.after(ALONE_KNOWN);
        assert!(!is_alone(&company, "ANN", later, &[("ann", NOW), ("bob", just)]));
        assert!(!is_alone(&company, "bob", later, &[]));
        let last = later.after(ALONE_KNOWN);
        let channels = [("bob", ALONE_AFTER), ("carol", ALONE_AFTER), ("ann", NOW)];
        assert!(is_alone(&company, "ANN", last, &channels));
    }

    /// Tests that accounts whose channels have ended count for a while.
    #[test]
    fn those_who_have_gone_count_for_a_while() {
        let (company, ledger, began) = (Company::default(), Ledger::default(), Moment::now());
        let [ann, bob] = ["ann", "bob"].map(|user| ledger.account(user));
        let ask = |user, now| is_alone(&company, user, now, &[("ann", NOW)]);
        company.note_end(&bob, ALONE_AFTER, began);
        assert!(ask("ann", began), "it was idle before");
        let gone = began.after(ALONE_KNOWN);
        company.note_end(&bob, NOW, gone);
        // When channels of the account itself end, other accounts are still known as active.
        company.note_end(&ann, NOW, gone);
        company.note_end(&ann, NOW, gone);
        assert!(!ask("ann", gone));
        assert!(!ask("ann", gone.after(ALONE_AFTER - ALONE_KNOWN)));
        assert!(ask("ann", gone.after(ALONE_AFTER)));
    }
}
