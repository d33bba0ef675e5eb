//! The server's part of the watchdog: names the request that held a core, and
//! counts how often one did.
//!
//! `frevo_net::watchdog` measures. Here a slow poll gets the command, the share,
//! the user and the file that it worked for. A release logs polls from
//! [`SLOW_POLL`] on. Where `frevo_net::watchdog::held_limit` is set, a poll that
//! used more processor time is an error, and tests fail by [`Watchdog::held`].

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frevo_net::watchdog::{self, Histogram, PollTime, Polls};
use frevo_wire::Command;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limits::{CULPRIT_FROM, REFUSAL_LOG_INTERVAL, SLOW_POLL};

/// Long polls of all cores.
#[derive(Debug, Default)]
pub struct Watchdog {
    held: AtomicU64,
    lines: Mutex<Lines>,
    cores: OnceLock<Vec<Arc<Histogram>>>,
}

/// Returns the address of the client that this thread works for now, if it is a core that serves
/// a connection or a thread that carries a request out: for filters of log lines.
pub fn client_served() -> Option<IpAddr> {
    client().map(|address| address.to_canonical())
}

/// The client that this thread works for now.
pub(crate) fn client() -> Option<IpAddr> {
    CLIENT.get()
}

/// Does work for a client that another thread works for.
pub(crate) fn for_client<T>(client: Option<IpAddr>, work: impl FnOnce() -> T) -> T {
    /// Also after a panic the thread works for another client.
    struct Back(Option<IpAddr>);
    impl Drop for Back {
        fn drop(&mut self) {
            CLIENT.set(self.0);
        }
    }
    let _back = Back(CLIENT.replace(client));
    work()
}

/// Lines of the log about long polls: one a second.
#[derive(Debug, Default)]
struct Lines {
    last: Option<Instant>,
    left_out: u64,
}

/// The request that took the largest part of a poll.
#[derive(Debug)]
pub(crate) struct Culprit {
    /// Time of the poll.
    pub(crate) took: Duration,
    /// Command of the request.
    pub(crate) command: Command,
    /// Name of its share; empty for none.
    pub(crate) share: String,
    /// Account of its session; empty for none.
    pub(crate) user: String,
    /// SessionId of its header.
    pub(crate) session: u64,
    /// Name of its file; empty for none.
    pub(crate) file: String,
}

/// Notes a part of the present poll that took `took`, with what `culprit` says of it, unless a longer
/// part is known.
pub(crate) fn note(took: Duration, culprit: impl FnOnce() -> Culprit) {
    if took < CULPRIT_FROM {
        return;
    }
    let is_worse = |known: &Option<Culprit>| known.as_ref().is_none_or(|k| k.took < took);
    if CULPRIT.with_borrow(is_worse) {
        // The earlier culprit is dropped here, when the RefCell is no longer borrowed, because its
        // drop may run other code.
        drop(CULPRIT.replace(Some(culprit())));
    }
}

// The culprit belongs to a thread, because a request sets it during a poll of its task, and the
// same thread reads it at the end of the poll.
thread_local! {
    static CULPRIT: RefCell<Option<Culprit>> = const { RefCell::new(None) };
    /// The command of the last request that the present poll worked on.
    static LAST: Cell<Option<Command>> = const { Cell::new(None) };
    /// The client that the present poll works for.
    static CLIENT: Cell<Option<IpAddr>> = const { Cell::new(None) };
}

/// Notes that the present poll works on a request.
pub(crate) fn works_on(command: Command) {
    LAST.set(Some(command));
}

impl Watchdog {
    /// Polls that used more processor time than `watchdog::held_limit` allows.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The polls of all cores by duration, once the server runs on cores.
    pub fn polls(&self) -> Polls {
        let cores = self.cores.get().map_or(&[][..], Vec::as_slice);
        cores.iter().map(|core| core.polls()).fold(Polls::default(), Polls::and)
    }

    /// Returns the number of cores, once the server runs on cores.
    pub(crate) fn cores(&self) -> Option<usize> {
        self.cores.get().map(Vec::len)
    }

    /// True once the server runs on cores.
    pub(crate) fn is_running(&self) -> bool {
        self.cores.get().is_some()
    }

    /// The cores that the server runs on.
    pub(crate) fn runs_on(&self, cores: Vec<Arc<Histogram>>) {
        // `set` cannot fail, because a server starts only once, so `cores` is still empty.
        let _ = self.cores.set(cores);
    }

    /// Makes one poll of a task, and reports one that was long.
    pub(crate) fn poll<T>(&self, whose: Whose, poll: impl FnOnce() -> T) -> T {
        self.poll_for(whose, String::new, poll)
    }

    /// Like [`Self::poll`]. The report names `accounts` if no request explains the time.
    pub(crate) fn poll_for<T>(
        &self,
        whose: Whose,
        accounts: impl FnOnce() -> String,
        poll: impl FnOnce() -> T,
    ) -> T {
        LAST.set(None);
        let client = match whose {
            Whose::Peer(peer) => Some(peer.ip()),
            Whose::Task(_) => None,
        };
        let (polled, held) = for_client(client, || watchdog::measured(poll));
        let is_held = held.is_too_long();
        if is_held || held.wall >= CULPRIT_FROM {
            let culprit = CULPRIT.take();
            if is_held || held.wall >= SLOW_POLL {
                self.report(whose, held, is_held, culprit.as_ref(), accounts);
            }
        }
        polled
    }

    /// Runs one of the server's own tasks, measured.
    pub(crate) async fn task<F: Future>(self: Arc<Self>, name: &'static str, task: F) {
        let mut task = pin!(task);
        poll_fn(|cx| self.poll(Whose::Task(name), || task.as_mut().poll(cx))).await;
    }

    fn report(
        &self,
        whose: Whose,
        held: PollTime,
        is_held: bool,
        culprit: Option<&Culprit>,
        accounts: impl FnOnce() -> String,
    ) {
        if is_held {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        let Some(left_out) = self.lines.lock().next() else { return };
        let took = held.wall.as_millis();
        let cause: &dyn fmt::Display = match culprit {
            // A request is named as the cause only if it took at least half of the time.
            Some(culprit) if culprit.took * 2 >= held.wall => culprit,
            _ => &Unexplained { last: LAST.get(), accounts: accounts() },
        };
        if is_held {
            let processor = held.cpu.unwrap_or_default().as_millis();
            tracing::error!(target: "frevo::watchdog", %whose, "held a core for {took} ms \
                ({processor} ms of processor time): {cause}; {left_out} more lines like this were \
                left out; this is a bug in Frevo, please report it");
        } else {
            tracing::warn!(target: "frevo::watchdog", %whose, "other clients waited {took} ms for \
                {cause}; {left_out} more lines like this were left out; if the disk is slow, set \
                off_core = true for the share");
        }
    }
}

impl Lines {
    /// None while it is too early for another line; else how many were left out.
    fn next(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < REFUSAL_LOG_INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The task that a poll belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    /// The connection of this client.
    Peer(SocketAddr),
    /// One of the server's own.
    Task(&'static str),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => peer.fmt(f),
            Self::Task(name) => f.write_str(name),
        }
    }
}

/// The cause of a poll whose time no request explains.
struct Unexplained {
    /// The command of the last request, whose end may be the cause.
    last: Option<Command>,
    /// The accounts of the connection, separated by commas.
    accounts: String,
}

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no single request")?;
        if let Some(last) = self.last {
            write!(f, ", the last was {last}")?;
        }
        if !self.accounts.is_empty() {
            write!(f, ", user {:?}", self.accounts)?;
        }
        Ok(())
    }
}

impl fmt::Display for Culprit {
    /// Names are quoted, so that none of them can look like a part of the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ms", self.command, self.took.as_millis())?;
        for (key, value) in [("share", &self.share), ("user", &self.user), ("file", &self.file)] {
            if !value.is_empty() {
                write!(f, ", {key} {value:?}")?;
            }
        }
        write!(f, ", session {:#x}", self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::pools::blocking_pool::BlockingPool;

    /// Lines of a request that runs beside its core are lines about its client too.
    #[test]
    fn a_blocking_thread_works_for_the_client_of_its_request() {
        let peer: SocketAddr = "[::ffff:192.0.2.7]:50000".parse().unwrap();
        let (watchdog, pool) = (Watchdog::default(), BlockingPool::default());
        let (tell, told) = std::sync::mpsc::channel();
        let again = tell.clone();
        watchdog.poll(Whose::Peer(peer), || {
            assert_eq!(client_served(), Some("192.0.2.7".parse().unwrap()));
            pool.run(move || tell.send(client_served()).unwrap()).unwrap();
        });
        assert_eq!(client_served(), None);
        let patience = Duration::from_secs(60);
        assert_eq!(told.recv_timeout(patience), Ok(Some("192.0.2.7".parse().unwrap())));
        pool.run(move || again.send(client_served()).unwrap()).unwrap();
        assert_eq!(told.recv_timeout(patience), Ok(None));
    }

    /// A poll that no request explains is reported with its last request and its accounts.
    #[test]
    fn the_rest_of_a_poll_has_a_name_too() {
        let told =
            |last, accounts: &str| Unexplained { last, accounts: accounts.to_owned() }.to_string();
        assert_eq!(told(None, ""), "no single request");
        let all = r#"no single request, the last was CLOSE, user "ann""#;
        assert_eq!(told(Some(Command::CLOSE), "ann"), all);
        let peer: SocketAddr = "192.0.2.7:50000".parse().unwrap();
        let (watchdog, mut asked) = (Watchdog::default(), 0);
        watchdog.poll(Whose::Peer(peer), || works_on(Command::CLOSE));
        assert_eq!(LAST.get(), Some(Command::CLOSE));
        let mut accounts = || {
            asked += 1;
            String::from("ann")
        };
        watchdog.poll_for(Whose::Peer(peer), &mut accounts, || assert_eq!(LAST.get(), None));
        watchdog.poll_for(Whose::Peer(peer), accounts, || std::thread::sleep(SLOW_POLL));
        assert_eq!(asked, 1, "only a long poll asks for its accounts");
    }

    #[test]
    fn lines_are_one_a_second_and_names_are_quoted() {
        let mut lines = Lines::default();
        assert_eq!([lines.next(), lines.next(), lines.next()], [Some(0), None, None]);
        lines.last = None;
        assert_eq!(lines.next(), Some(2));
        let culprit = Culprit {
            took: Duration::from_millis(150),
            command: Command::SET_INFO,
            share: String::from("data"),
            user: String::from("ann"),
            session: 0x10,
            file: String::from("a\n\", user \"bob"),
        };
        let said = culprit.to_string();
        let file = r#"file "a\n\", user \"bob""#;
        assert!(said.contains(file) && !said.contains('\n'), "{said}");
    }
}
