//! The steps of a connection that is being made, for the message when it is not made.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;

use super::connector::is_final;
use crate::dial::ServerName;
use crate::error::Cause;

/// The steps of an attempt in order: each begins when the one before has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The transport is being connected.
    Dialing,
    /// The transport is connected: the server has to answer a NEGOTIATE.
    Reached,
    /// The server has answered a NEGOTIATE: it has to answer SESSION_SETUPs.
    Negotiated,
    /// The user is being logged on there.
    LoggingOn,
}

/// The attempts at the addresses of a server.
#[derive(Debug, Default)]
pub(super) struct Progress {
    ways: Mutex<Vec<Way>>,
    /// The address of the server where the user is being logged on.
    address: Mutex<Option<ServerName>>,
}

/// The attempt at one address.
#[derive(Debug)]
struct Way {
    /// The address, as the search knows it: the server's name if that has one address.
    address: ServerName,
    /// The address that is dialled.
    at: ServerName,
    step: Step,
    why: Option<Cause>,
}

/// An attempt that has failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// The address that was dialled; `None` if it is of no interest any more.
    pub(super) at: Option<ServerName>,
    /// The step at which it failed.
    pub(super) step: Step,
    pub(super) why: Cause,
}

impl Failed {
    /// Returns the failure that tells more: that of the address that got furthest, as another one may
    /// be no address of the server at all. Of two that got equally far, one that may pass.
    pub(super) fn better(before: Option<Self>, other: Self) -> Self {
        match before {
            Some(before) if before.step > other.step => before,
            Some(before) if before.step == other.step && !is_final(&before.why) => before,
            _ => other,
        }
    }
}

impl Progress {
    /// Notes that an attempt at an address begins, which is dialled as `at`.
    pub(super) fn begin(&self, address: &ServerName, at: &ServerName) {
        let (address, at) = (address.clone(), at.clone());
        self.ways.lock().push(Way { address, at, step: Step::Dialing, why: None });
    }

    /// Notes that the attempt at `at` has come to a step.
    pub(super) fn note(&self, at: &ServerName, step: Step) {
        self.change(at, |way| way.step = way.step.max(step));
    }

    /// Notes that the attempt at `at` has failed.
    pub(super) fn note_failed(&self, at: &ServerName, why: &Cause) {
        self.change(at, |way| way.why = Some(why.clone()));
    }

    fn change(&self, at: &ServerName, change: impl FnOnce(&mut Way)) {
        if let Some(way) = self.ways.lock().iter_mut().find(|way| way.at == *at) {
            change(way);
        }
    }

    /// Notes the address of the server where the user is being logged on.
    pub(super) fn note_address(&self, address: &ServerName) {
        *self.address.lock() = Some(address.clone());
    }

    /// Returns the address of the server where the user is being logged on.
    pub(super) fn address(&self) -> Option<ServerName> {
        self.address.lock().clone()
    }

    /// Returns the addresses whose attempts have not ended, as the search knows them.
    pub(super) fn under_way(&self) -> Vec<ServerName> {
        let ways = self.ways.lock();
        ways.iter().filter(|way| way.why.is_none()).map(|way| way.address.clone()).collect()
    }

    /// Returns the failed attempt that got furthest.
    pub(super) fn furthest(&self) -> Option<Failed> {
        let ways = self.ways.lock();
        let failed = ways.iter().filter_map(|way| {
            let (at, why) = (Some(way.at.clone()), way.why.clone()?);
            Some(Failed { at, step: way.step, why })
        });
        failed.fold(None, |before, other| Some(Failed::better(before, other)))
    }

    /// Returns true if an attempt has failed at an address where a server was reached.
    pub(super) fn has_failed_at_server(&self) -> bool {
        self.furthest().is_some_and(|failed| failed.step > Step::Dialing)
    }

    /// Returns the furthest step of all attempts.
    pub(super) fn step(&self) -> Step {
        if self.address.lock().is_some() {
            return Step::LoggingOn;
        }
        self.ways.lock().iter().map(|way| way.step).max().unwrap_or(Step::Dialing)
    }

    /// Returns the error of a connection that was not made within `limit`.
    pub(super) fn overdue(&self, limit: Duration) -> Cause {
        let silent = {
            let ways = self.ways.lock();
            let silent = ways.iter().filter(|way| way.why.is_none());
            silent.map(|way| way.step).max().unwrap_or(Step::Dialing)
        };
        let failed = self.furthest().filter(|_| self.address().is_none());
        match failed {
            Some(Failed { step, why, .. }) if step > Step::Dialing && step >= silent => why,
            _ => silence(silent, limit).into(),
        }
    }

    /// Returns the error of the attempt at `at` that did not end within `limit`.
    pub(super) fn silence_at(&self, at: &ServerName, limit: Duration) -> io::Error {
        let ways = self.ways.lock();
        let way = ways.iter().find(|way| way.at == *at);
        silence(way.map_or(Step::Dialing, |way| way.step), limit)
    }
}

/// Returns the error of a server that has not answered at a step within `limit`.
fn silence(step: Step, limit: Duration) -> io::Error {
    let seconds = limit.as_secs_f32();
    let text = match step {
        // Nothing has answered: the operating system's own words.
        Step::Dialing => return io::ErrorKind::TimedOut.into(),
        Step::Reached => format!(
            "the server was reached, but did not answer the negotiation (NEGOTIATE) within \
             {seconds} s; check that it is an SMB server, and whether it hangs"
        ),
        Step::Negotiated | Step::LoggingOn => format!(
            "the server was reached and has negotiated, but did not answer the logon \
             (SESSION_SETUP) within {seconds} s; it may wait for its domain controller, or hang"
        ),
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(1_500);

    #[test]
    fn each_step_has_its_words() {
        let (progress, at) = (Progress::default(), ServerName::new("a"));
        progress.begin(&ServerName::new("name"), &at);
        assert!(progress.silence_at(&at, LIMIT).get_ref().is_none());
        progress.note(&at, Step::Reached);
        let text = progress.overdue(LIMIT).to_string();
        assert!(text.contains("NEGOTIATE") && text.contains("within 1.5 s"), "{text}");
        progress.note(&at, Step::Negotiated);
        let silence = progress.silence_at(&at, LIMIT);
        assert!(silence.to_string().contains("SESSION_SETUP"), "{silence}");
        assert_eq!(silence.kind(), io::ErrorKind::TimedOut);
        assert_eq!(progress.under_way(), [ServerName::new("name")]);
    }

    /// An address where nobody listens says nothing about the server at another one.
    #[test]
    fn the_address_that_got_furthest_tells_the_error() {
        let [a, b, c] = ["a", "b", "c"].map(ServerName::new);
        let refused = Cause::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        for order in [[&a, &b], [&b, &a]] {
            let progress = Progress::default();
            order.into_iter().chain([&c]).for_each(|address| progress.begin(address, address));
            progress.note_failed(&a, &refused);
            assert_eq!(progress.under_way().len(), 2);
            progress.note(&b, Step::Reached);
            progress.note_failed(&b, &Cause::NotSmb);
            let furthest = progress.furthest().unwrap();
            assert!(matches!(furthest.why, Cause::NotSmb), "{furthest:?}");
            assert_eq!(furthest.at.as_ref(), Some(&b));
            assert!(matches!(progress.overdue(LIMIT), Cause::NotSmb), "nobody answers at c");
            progress.note(&c, Step::Negotiated);
            assert!(progress.overdue(LIMIT).to_string().contains("SESSION_SETUP"));
        }
    }

    #[test]
    fn of_two_errors_one_that_may_pass_is_told() {
        let progress = Progress::default();
        let lost = Cause::from(io::Error::from(io::ErrorKind::ConnectionReset));
        for (host, why) in [("a", Cause::NotSmb), ("b", lost), ("c", Cause::NotSmb)] {
            let address = ServerName::new(host);
            progress.begin(&address, &address);
            progress.note(&address, Step::Reached);
            progress.note_failed(&address, &why);
        }
        assert_eq!(progress.furthest().unwrap().at, Some(ServerName::new("b")));
    }
}
