//! A process of its own that asks the host's name service.
//!
//! To answer, the C library loads modules that `/etc/nsswitch.conf` names, reads files that are
//! replaced whenever an account is added, and talks to services of the host. A server that is
//! confined to its shares can do none of that. So a process that is started first asks in its
//! place: it has no privileges, no secrets and no descriptors but one socket.
//!
//! Each question is one packet with a stream for its answer, so that a slow answer delays no other.
//! A keeper starts the process again when a module crashed it, and ends when the server does.

mod wire;

use std::ffi::c_int;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};

use crate::limits::{NAME_SERVICE_ANSWER_BYTES, NAME_SERVICE_QUESTION_BYTES, NAME_SERVICE_THREADS};
use crate::unix::{Said, UnixUser};
use wire::{Answer, Question};

/// Time after which an answer is abandoned; the server stops waiting much earlier.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that the processes get to end before [`finish`] goes on without them.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause before a crashed process is started again.
const AGAIN: Duration = Duration::from_secs(1);
/// Stack of a thread that asks: modules of the name service need little.
const STACK_BYTES: usize = 1 << 20;

/// The socket to the process, once it runs.
static HELPER: OnceLock<OwnedFd> = OnceLock::new();

/// Starts the process. From then on it gets every question.
///
/// `confine` runs first in the new process, and should remove all rights that asking does not need.
///
/// Must be called before this process has other threads: the new process gets a copy of this thread
/// alone.
///
/// # Errors
/// If no further process can be started.
pub fn start(confine: fn()) -> io::Result<()> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // SAFETY: no other thread runs, so nothing that the child uses (the allocator,
    // standard library locks) can be held by a thread that it does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            keep(theirs, confine)
        }
        _ => {
            // A second call leaves the first process in use.
            let _ = HELPER.set(ours);
            Ok(())
        }
    }
}

/// Ends the process and its keeper, and waits up to a second for their end, so that a
/// service manager finds nothing left of a server that has stopped. Questions fail from
/// here on. Does nothing where [`start`] was not called.
pub fn finish() {
    if let Some(helper) = HELPER.get() {
        let _ = has_ended(helper.as_fd(), FAREWELL);
    }
}

/// Tells the processes that no question follows; true when all of them have closed their
/// end within `patience`.
fn has_ended(helper: BorrowedFd<'_>, patience: Duration) -> bool {
    // Where it fails, the end of this process will tell them.
    let _ = shutdown(helper, rustix::net::Shutdown::Write);
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        // No event is asked for: a hangup is told anyway, when the last end is closed.
        let mut polled = [PollFd::from_borrowed_fd(helper, PollFlags::empty())];
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

pub(crate) fn user(name: &str) -> Said<UnixUser> {
    match ask(&Question::User(name.to_owned()))? {
        Answer::User(user) => Ok(Some(user)),
        answer => answer.nobody(),
    }
}

pub(crate) fn user_name(uid: u32) -> Said<String> {
    text(ask(&Question::UserName(uid))?)
}

pub(crate) fn group_name(gid: u32) -> Said<String> {
    text(ask(&Question::GroupName(gid))?)
}

pub(crate) fn group_id(name: &str) -> Said<u32> {
    match ask(&Question::GroupId(name.to_owned()))? {
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
fn ask(question: &Question) -> Result<Answer, Errno> {
    let helper = HELPER.get().ok_or(Errno::NOSYS)?;
    ask_at(helper.as_fd(), question)
}

fn ask_at(helper: BorrowedFd<'_>, question: &Question) -> Result<Answer, Errno> {
    let lost = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let (ours, theirs) = UnixStream::pair().map_err(lost)?;
    ours.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    let packet = question.encode();
    if packet.len() > NAME_SERVICE_QUESTION_BYTES {
        // No name is that long.
        return Ok(Answer::Nobody);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [theirs.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(helper, &[io::IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
    drop(theirs);
    let mut answer = Vec::new();
    let limit = u64::try_from(NAME_SERVICE_ANSWER_BYTES).unwrap_or(u64::MAX);
    (&ours).take(limit).read_to_end(&mut answer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => lost(error),
    })?;
    // Nothing at all: the process ended while it was asking.
    Answer::decode(&answer).ok_or(Errno::PIPE)
}

/// The keeper: starts the process that asks, and starts it again after a crash.
fn keep(socket: OwnedFd, confine: fn()) -> ! {
    alone(&socket);
    confine();
    loop {
        // SAFETY: the keeper has one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            answer_all(&Arc::new(socket));
            exit(0);
        }
        if child < 0 {
            std::thread::sleep(AGAIN);
            continue;
        }
        let mut status: c_int = 0;
        // SAFETY: `status` is a place for the child's status; the child is ours.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child && libc::WIFEXITED(status) {
            exit(0);
        }
        std::thread::sleep(AGAIN);
    }
}

/// Ends the process without the exit handlers of the server.
fn exit(code: c_int) -> ! {
    // SAFETY: it ends the process and touches nothing of it.
    unsafe { libc::_exit(code) }
}

/// Leaves the server's terminal and closes all of its descriptors but the socket.
fn alone(socket: &OwnedFd) {
    // Cannot fail: a child is no leader of a group.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"frevo-names");
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // On failure they stay the server's.
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let kept = socket.as_raw_fd();
    for (first, last) in [(3, kept - 1), (kept + 1, c_int::MAX)] {
        if first <= last {
            // SAFETY: this process uses no descriptor of the server but the one that
            // is left out; owners of the others are never dropped here.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Answers questions until the server has ended.
fn answer_all(socket: &Arc<OwnedFd>) {
    let threads: Vec<_> = (0..NAME_SERVICE_THREADS)
        .filter_map(|_| {
            let socket = Arc::clone(socket);
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn(move || while answer_one(socket.as_fd()) {}).ok()
        })
        .collect();
    if threads.is_empty() {
        while answer_one(socket.as_fd()) {}
    }
    // The first thread that sees the server's end; others may hang in a module.
    if let Some(first) = threads.into_iter().next() {
        let _ = first.join();
    }
}

/// Answers one question; false if the server has ended.
fn answer_one(socket: BorrowedFd<'_>) -> bool {
    let mut packet = vec![0; NAME_SERVICE_QUESTION_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [io::IoSliceMut::new(&mut packet)];
    let received = match recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) if received.bytes > 0 => received.bytes,
        Err(Errno::INTR) => return true,
        _ => return false,
    };
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let (Some(stream), Some(question)) =
        (passed, packet.get(..received).and_then(Question::decode))
    else {
        return true;
    };
    let mut stream = UnixStream::from(stream);
    let answer = match question {
        Question::User(name) => Answer::of(crate::unix::direct::user(&name), Answer::User),
        Question::UserName(uid) => Answer::of(crate::unix::direct::user_name(uid), Answer::Text),
        Question::GroupName(gid) => Answer::of(crate::unix::direct::group_name(gid), Answer::Text),
        Question::GroupId(name) => Answer::of(crate::unix::direct::group_id(&name), Answer::Id),
    };
    // A server that no longer waits has closed the stream.
    let _ = stream.write_all(&answer.encode());
    let _ = stream.shutdown(Shutdown::Both);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs both ends in one process: threads of the helper answer this one.
    fn helper() -> OwnedFd {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        std::thread::spawn(move || while answer_one(theirs.as_fd()) {});
        ours
    }

    #[test]
    fn the_helper_says_what_the_host_says() {
        let helper = helper();
        let ask = |question| ask_at(helper.as_fd(), &question);
        let root = crate::unix::direct::user("root").unwrap().unwrap();
        assert_eq!(ask(Question::User("root".into())), Ok(Answer::User(root)));
        assert_eq!(ask(Question::User("no such user here".into())), Ok(Answer::Nobody));
        assert_eq!(ask(Question::UserName(0)), Ok(Answer::Text("root".into())));
        assert_eq!(ask(Question::GroupName(0)), Ok(Answer::Text("root".into())));
        assert_eq!(ask(Question::GroupId("root".into())), Ok(Answer::Id(0)));
        assert_eq!(
            ask(Question::User("x".repeat(NAME_SERVICE_QUESTION_BYTES))),
            Ok(Answer::Nobody)
        );
    }

    /// Tests that the end of the helper is awaited, but not forever: a module may hang.
    #[test]
    fn the_end_of_the_helper_is_waited_for() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        // The keeper has a copy, and closes it after the process that asks.
        let (asks, keeps) = (theirs.try_clone().unwrap(), theirs);
        let (asked, ended) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
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
        assert!(ask_at(ours.as_fd(), &Question::UserName(0)).is_err());
    }

    /// Tests that a helper that has ended is an error, not the answer "nobody".
    #[test]
    fn a_helper_that_is_gone_says_nothing() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        drop(theirs);
        assert!(ask_at(ours.as_fd(), &Question::UserName(0)).is_err());
        // The helper ends in the middle of a question.
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let ends = std::thread::spawn(move || {
            let mut packet = [0; 64];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [io::IoSliceMut::new(&mut packet)];
            recvmsg(&theirs, &mut slices, &mut ancillary, RecvFlags::empty()).unwrap();
        });
        assert_eq!(ask_at(ours.as_fd(), &Question::UserName(0)), Err(Errno::PIPE));
        ends.join().unwrap();
    }
}
