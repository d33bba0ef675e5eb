//! A process of its own that asks the host in the server's place.
//!
//! To tell users and groups, the C library loads modules that `/etc/nsswitch.conf` names, reads files
//! that are replaced whenever an account is added, and talks to services of the host. A server that
//! is confined to its shares can do none of that. So a process that is started first asks in its
//! place: it has no privileges, no secrets and no descriptors but its channels. It also connects
//! sockets to the daemons of the log ([`log_socket`]), since a confined process makes none.
//!
//! There is a channel for each thread that asks, so that a slow answer delays no other. A keeper
//! starts the process again when a module crashed it, and ends when the server does.

mod channel;
mod wire;

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::shutdown;

use crate::limits::{NAME_SERVICE_QUESTION_BYTES, NAME_SERVICE_THREADS};
use crate::unix::{Said, UnixUser};
use channel::{Channel, Channels};
use wire::{Answer, LogDaemon, Question};

/// Time that the processes get to end before [`finish`] goes on without them.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause before a crashed process is started again.
const AGAIN: Duration = Duration::from_secs(1);
/// Stack of a thread that asks: modules of the name service need little.
const STACK_BYTES: usize = 1 << 20;

/// The channels to the process, once it runs.
static HELPER: OnceLock<Channels> = OnceLock::new();

/// Functions that remove all rights that the processes do not need.
#[derive(Debug, Clone, Copy)]
pub struct Confine {
    /// Runs first in the process that starts the asking one, and holds for that one too.
    pub keeper: fn(),
    /// Runs first in the process that asks.
    pub asker: fn(),
}

/// Starts the process. From then on it gets every question.
///
/// Must be called before this process has other threads: the new process gets a copy of this thread
/// alone.
///
/// # Errors
/// If no further process can be started.
pub fn start(confine: Confine) -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..NAME_SERVICE_THREADS).map(|_| Channel::pair()).collect();
    let (ours, theirs): (Vec<Channel>, Vec<OwnedFd>) = pairs?.into_iter().unzip();
    // SAFETY: this process has one thread, so no lock that the child uses (the allocator's, the
    // standard library's) can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            keep(&theirs, confine)
        }
        _ => {
            // If a helper was stored before, it stays in use.
            let _ = HELPER.set(Channels::new(ours));
            Ok(())
        }
    }
}

/// Ends the process and its keeper, and waits up to a second for their end, so that a
/// service manager finds nothing left of a server that has stopped. Questions fail from
/// here on. Does nothing where [`start`] was not called.
pub fn finish() {
    if let Some(channels) = HELPER.get() {
        let free = channels.drain();
        for channel in &free {
            // If the shutdown fails, the helper notices the hangup of the socket when this process
            // ends.
            let _ = shutdown(channel, rustix::net::Shutdown::Write);
        }
        if let Some(channel) = free.first() {
            let _ = has_ended(channel.as_fd(), FAREWELL);
        }
    }
}

/// True when all processes have closed their end within `patience`.
fn has_ended(channel: BorrowedFd<'_>, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        // No event is requested, because poll(2) always reports POLLHUP once the last copy of the
        // peer's end is closed.
        let mut polled = [PollFd::from_borrowed_fd(channel, PollFlags::empty())];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// True once the process runs.
pub(crate) fn is_running() -> bool {
    HELPER.get().is_some()
}

/// Returns a socket that is connected to the daemon of the log at `path`: `/dev/log` or the socket of
/// systemd's journal.
///
/// # Errors
/// The error of the connection. `PermissionDenied` for another path once the process runs.
pub fn log_socket(path: &Path) -> io::Result<UnixDatagram> {
    if !is_running() {
        return connected(path);
    }
    let daemon = LogDaemon::at(path).ok_or(io::ErrorKind::PermissionDenied)?;
    match ask(&Question::LogSocket(daemon))? {
        (_, Some(socket)) => Ok(socket.into()),
        (Answer::Failed(errno), None) => Err(errno.into()),
        _ => Err(Errno::IO.into()),
    }
}

fn connected(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

pub(crate) fn user(name: &str) -> Said<UnixUser> {
    match ask(&Question::User(name.to_owned()))?.0 {
        Answer::User(user) => Ok(Some(user)),
        answer => answer.nobody(),
    }
}

pub(crate) fn user_name(uid: u32) -> Said<String> {
    text(ask(&Question::UserName(uid))?.0)
}

pub(crate) fn group_name(gid: u32) -> Said<String> {
    text(ask(&Question::GroupName(gid))?.0)
}

pub(crate) fn group_id(name: &str) -> Said<u32> {
    match ask(&Question::GroupId(name.to_owned()))?.0 {
        Answer::Id(id) => Ok(Some(id)),
        answer => answer.nobody(),
    }
}

fn text(answer: Answer) -> Said<String> {
    match answer {
        Answer::Text(text) => Ok(Some(text)),
        answer => answer.nobody(),
    }
}

/// Sends a question and waits for its answer.
fn ask(question: &Question) -> Result<(Answer, Option<OwnedFd>), Errno> {
    if question.encode().len() > NAME_SERVICE_QUESTION_BYTES {
        // The question is too long to be sent, and no user or group has such a long name.
        return Ok((Answer::Nobody, None));
    }
    HELPER.get().ok_or(Errno::NOSYS)?.ask(question)
}

/// The keeper: starts the process that asks, and starts it again after a crash.
fn keep(channels: &[OwnedFd], confine: Confine) -> ! {
    alone(channels);
    (confine.keeper)();
    loop {
        // SAFETY: this process (the keeper) has only one thread, so no lock can be held by a thread
        // that the child lacks.
        let child = unsafe { libc::fork() };
        if child == 0 {
            (confine.asker)();
            answer_all(channels);
            exit(0);
        }
        if child < 0 {
            std::thread::sleep(AGAIN);
            continue;
        }
        let mut status: c_int = 0;
        // SAFETY: `status` may be written, and `child` is a child of this process.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child && libc::WIFEXITED(status) {
            exit(0);
        }
        // The helper has crashed and does not answer its questions, so this process, its keeper,
        // reports the crash to the server.
        channels.iter().for_each(|channel| channel::tell_crash(channel.as_fd()));
        std::thread::sleep(AGAIN);
    }
}

/// Ends the process without the exit handlers of the server.
fn exit(code: c_int) -> ! {
    // SAFETY: _exit ends the process and touches none of its memory.
    unsafe { libc::_exit(code) }
}

/// Leaves the server's terminal and closes all of its descriptors but the channels.
fn alone(channels: &[OwnedFd]) {
    // setsid fails only for the leader of a process group, which a forked child is not.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"frevo-names");
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // If a call fails, the helper keeps this standard stream of the server.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let mut needed: Vec<c_int> = channels.iter().map(OwnedFd::as_raw_fd).collect();
    needed.sort_unstable();
    needed.push(c_int::MAX);
    let mut first = 3;
    for next in needed {
        if first < next {
            // SAFETY: the process uses no descriptor of the server except those left out here, and
            // owners of the closed descriptors are never dropped.
            unsafe { libc::syscall(libc::SYS_close_range, first, next - 1, 0) };
        }
        first = next.saturating_add(1);
    }
}

/// Answers questions until the server has ended.
fn answer_all(channels: &[OwnedFd]) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = channels
            .iter()
            .filter_map(|channel| {
                let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
                builder.spawn_scoped(scope, move || while answer_one(channel.as_fd()) {}).ok()
            })
            .collect();
        // The first thread ends with the server. Other threads may hang in a module of the name
        // service, so only the first one is joined here.
        match threads.into_iter().next() {
            Some(first) => drop(first.join()),
            None => {
                if let Some(channel) = channels.first() {
                    while answer_one(channel.as_fd()) {}
                }
            }
        }
        exit(0);
    });
}

/// Answers one question; false if the server has ended.
fn answer_one(channel: BorrowedFd<'_>) -> bool {
    let asked = match channel::question(channel) {
        Ok(Some(asked)) => asked,
        Ok(None) => return true,
        Err(_) => return false,
    };
    let mut socket = None;
    let answer = match &asked.question {
        Question::User(name) => Answer::of(crate::unix::direct::user(name), Answer::User),
        Question::UserName(uid) => Answer::of(crate::unix::direct::user_name(*uid), Answer::Text),
        Question::GroupName(gid) => Answer::of(crate::unix::direct::group_name(*gid), Answer::Text),
        Question::GroupId(name) => Answer::of(crate::unix::direct::group_id(name), Answer::Id),
        Question::LogSocket(daemon) => match connected(daemon.path()) {
            Ok(connected) => {
                socket = Some(connected);
                Answer::Nobody
            }
            Err(error) => Answer::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        },
    };
    // If the server has ended, sending fails, and the next read reports the end of the socket.
    let _ = channel::answer(channel, asked.id, &answer, socket.as_ref());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs both ends in one process: a thread of the helper answers this one.
    fn helper() -> Channels {
        let (ours, theirs) = Channel::pair().unwrap();
        std::thread::spawn(move || while answer_one(theirs.as_fd()) {});
        Channels::new(vec![ours])
    }

    #[test]
    fn the_helper_says_what_the_host_says() {
        let helper = helper();
        let ask = |question| helper.ask(&question).map(|(answer, _)| answer);
        let root = crate::unix::direct::user("root").unwrap().unwrap();
        assert_eq!(ask(Question::User("root".into())), Ok(Answer::User(root)));
        assert_eq!(ask(Question::User("no such user here".into())), Ok(Answer::Nobody));
        assert_eq!(ask(Question::UserName(0)), Ok(Answer::Text("root".into())));
        assert_eq!(ask(Question::GroupName(0)), Ok(Answer::Text("root".into())));
        assert_eq!(ask(Question::GroupId("root".into())), Ok(Answer::Id(0)));
    }

    /// Tests that the end of the helper is awaited, but not forever: a module may hang.
    #[test]
    fn the_end_of_the_helper_is_waited_for() {
        let (ours, theirs) = Channel::pair().unwrap();
        // The keeper (the parent of the asking process) also has a copy of the socket, and closes
        // it only after the asking process has ended.
        let (asks, keeps) = (theirs.try_clone().unwrap(), theirs);
        let (asked, ended) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        shutdown(&ours, rustix::net::Shutdown::Write).unwrap();
        let keeper = std::thread::spawn(move || {
            while answer_one(asks.as_fd()) {}
            drop(asks);
            asked.0.send(()).unwrap();
            ended.1.recv().unwrap();
            drop(keeps);
        });
        assert!(!has_ended(ours.as_fd(), Duration::from_millis(20)), "the keeper is still there");
        asked.1.recv().unwrap();
        ended.0.send(()).unwrap();
        assert!(has_ended(ours.as_fd(), Duration::from_secs(60)));
        keeper.join().unwrap();
        assert!(Channels::new(vec![ours]).ask(&Question::UserName(0)).is_err());
    }

    /// Tests that a helper that has ended is an error, not the answer "nobody".
    #[test]
    fn a_helper_that_has_ended_answers_nothing() {
        let (ours, theirs) = Channel::pair().unwrap();
        drop(theirs);
        assert!(Channels::new(vec![ours]).ask(&Question::UserName(0)).is_err());
        // The helper crashes while it has a question. The caller must get an error and not wait for
        // ever.
        let (ours, theirs) = Channel::pair().unwrap();
        let helper = Channels::new(vec![ours]);
        let ends = std::thread::spawn(move || {
            let asked = channel::question(theirs.as_fd()).unwrap().unwrap();
            assert_eq!(asked.question, Question::UserName(0));
            channel::tell_crash(theirs.as_fd());
            // A new helper answers only the next question, because neither the lost question nor a
            // late crash report may disturb it.
            channel::tell_crash(theirs.as_fd());
            while answer_one(theirs.as_fd()) {}
        });
        assert_eq!(helper.ask(&Question::UserName(0)).err(), Some(Errno::PIPE));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(helper.ask(&Question::UserName(0)).unwrap().0, Answer::Text("root".into()));
        drop(helper);
        ends.join().unwrap();
    }

    /// Tests that a process that makes no socket gets one to a daemon of the log, and to no other.
    #[test]
    fn sockets_of_the_log_are_passed() {
        let helper = helper();
        for daemon in [LogDaemon::Journal, LogDaemon::Syslog] {
            let (answer, socket) = helper.ask(&Question::LogSocket(daemon)).unwrap();
            match (connected(daemon.path()), socket) {
                (Ok(_), Some(socket)) => assert!(UnixDatagram::from(socket).peer_addr().is_ok()),
                (Err(error), None) => {
                    assert_eq!(answer, Answer::Failed(Errno::from_io_error(&error).unwrap()));
                }
                (there, socket) => panic!("{there:?} {socket:?}"),
            }
        }
        assert!(LogDaemon::at(Path::new("/run/chrony/chronyd.sock")).is_none());
    }
}
