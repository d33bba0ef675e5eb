//! The server's end.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use frevo_snapshots::{Act, Answer, Done, Request, Second};

use crate::fault::SnapshotFault;
use crate::limits::{ACT_PATIENCE, START_PATIENCE};
use crate::process::Process;
use crate::set_up::SetUp;
use crate::socket;

/// A process that was started and has found the places of its shares.
#[derive(Debug)]
pub struct Started {
    socket: OwnedFd,
}

impl Started {
    /// Starts this program again as `frevo snapshot-hands`, before the server is confined: later it can start
    /// none. `log` are its options `--log` and `--log-level`. Returns when the process is ready.
    ///
    /// # Errors
    /// The process does not start.
    pub fn begin(set_up: &SetUp, log: &[String]) -> io::Result<Self> {
        let text = set_up.to_text().ok_or_else(|| io::Error::other("a folder is not UTF-8"))?;
        let (socket, theirs) = socket::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("frevo-snapshot-hands").arg("snapshot-hands").args(log).env_clear();
        // In a process group of its own the process gets no Ctrl-C; it ends with the socket.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::from(theirs));
        let mut child = command.spawn()?;
        drop(command);
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(text.as_bytes())?;
        }
        Self::when_ready(socket)
    }

    /// Waits for the first answer at the end of a socket.
    fn when_ready(socket: OwnedFd) -> io::Result<Self> {
        if !socket::has_message(socket.as_fd(), START_PATIENCE)? {
            return Err(io::Error::other("the process that makes snapshots does not answer"));
        }
        let answer = socket::receive(socket.as_fd())?.and_then(|message| Answer::parse(&message));
        match answer {
            Some(Answer { end: Ok(_), .. }) => Ok(Self { socket }),
            _ => Err(io::Error::other("the process that makes snapshots has ended")),
        }
    }

    /// Returns the server's hands.
    pub fn hands(self) -> Hands {
        Hands { socket: self.socket, last: 0 }
    }
}

/// The hands of a server. Each call waits for its end, so they belong to a thread of their own. A share is
/// named by its place in the set-up.
#[derive(Debug)]
pub struct Hands {
    socket: OwnedFd,
    /// The number of the last request.
    last: u32,
}

const ENDED: &str = "the process that makes snapshots has ended; restart frevo";

/// The fault of a message that the process did not take, or did not answer.
fn failed(error: io::Error) -> SnapshotFault {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SnapshotFault(ENDED.into()),
        _ => SnapshotFault::of("the process that makes snapshots", error),
    }
}

impl Hands {
    /// Returns hands whose process is a thread of this one, with its rights.
    ///
    /// # Errors
    /// There is no thread.
    pub fn within(set_up: SetUp) -> io::Result<Self> {
        let (socket, theirs) = socket::pair()?;
        let thread = std::thread::Builder::new();
        // The thread ends with the socket of these hands.
        thread.spawn(move || Process::open(&set_up, theirs).serve())?;
        Ok(Started::when_ready(socket)?.hands())
    }

    /// Returns the server's own snapshots of a share, the newest first: [`LISTED`] at most.
    ///
    /// [`LISTED`]: frevo_snapshots::limits::LISTED
    ///
    /// # Errors
    /// A sentence.
    pub fn list(&mut self, share: usize) -> Result<Vec<Second>, SnapshotFault> {
        self.listed(share, Act::List)
    }

    /// Mounts some snapshots of a share that clients find by mounts alone and that are not mounted. Returns those
    /// that are left.
    ///
    /// # Errors
    /// A sentence about the first one that cannot be mounted.
    pub fn mount(&mut self, share: usize) -> Result<Vec<Second>, SnapshotFault> {
        self.listed(share, Act::Mount)
    }

    fn listed(&mut self, share: usize, act: Act) -> Result<Vec<Second>, SnapshotFault> {
        match self.ask(share, act, ACT_PATIENCE)? {
            Done::Listed(list) => Ok(list),
            Done::Changed => {
                Err(SnapshotFault("the process that makes snapshots sent no list".into()))
            }
        }
    }

    /// Makes the snapshot of a second. It has all that was written before the call, and is on the disk when
    /// the call returns.
    ///
    /// # Errors
    /// A sentence. The snapshot may be there if the storage took too long.
    pub fn create(&mut self, share: usize, at: Second) -> Result<(), SnapshotFault> {
        self.ask(share, Act::Create(at), ACT_PATIENCE).map(drop)
    }

    /// Removes the snapshot of a second. One that is not there is no fault.
    ///
    /// # Errors
    /// A sentence.
    pub fn remove(&mut self, share: usize, at: Second) -> Result<(), SnapshotFault> {
        self.ask(share, Act::Remove(at), ACT_PATIENCE).map(drop)
    }

    fn ask(&mut self, share: usize, act: Act, patience: Duration) -> Result<Done, SnapshotFault> {
        self.last = self.last.wrapping_add(1).max(1);
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        let request = Request { id: self.last, share, act };
        socket::send(self.socket.as_fd(), &request.to_bytes()).map_err(failed)?;
        let until = Instant::now() + patience;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if !socket::has_message(self.socket.as_fd(), rest).map_err(failed)? {
                return Err(SnapshotFault("the storage does not answer in time".into()));
            }
            let message = socket::receive(self.socket.as_fd()).map_err(failed)?;
            let message = message.ok_or_else(|| SnapshotFault(ENDED.into()))?;
            let answer = Answer::parse(&message);
            let answer = answer.ok_or_else(|| {
                SnapshotFault("the process that makes snapshots sent no answer".into())
            })?;
            // The answer to a request that was given up comes late.
            if answer.id == self.last {
                return answer.end.map_err(SnapshotFault);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Kind;
    use crate::set_up::ShareSetUp;

    fn why<T: std::fmt::Debug>(end: Result<T, SnapshotFault>) -> String {
        end.unwrap_err().to_string()
    }

    #[test]
    fn a_share_without_a_place_has_a_fault() {
        let share = ShareSetUp { folder: "/proc".into(), kind: Kind::Btrfs };
        let mut hands = Hands::within(SetUp { shares: vec![share], mounts: "/x".into() }).unwrap();
        let at = Second::new(1).unwrap();
        assert!(why(hands.list(0)).contains("not on btrfs"));
        assert!(why(hands.create(0, at)).contains("not on btrfs"));
        assert!(why(hands.remove(0, at)).contains("not on btrfs"));
        assert!(why(hands.mount(0)).contains("not on btrfs"));
        assert_eq!(why(hands.list(1)), "there is no such share");
        assert_eq!(why(hands.list(usize::MAX)), "there is no such share");
    }

    #[test]
    fn late_answers_and_the_end_of_the_process_are_noticed() {
        let (socket, theirs) = socket::pair().unwrap();
        let mut hands = Hands { socket, last: 0 };
        let late = hands.ask(0, Act::List, Duration::ZERO);
        assert_eq!(why(late), "the storage does not answer in time");
        let listed = |at| Ok(Done::Listed(vec![Second::new(at).unwrap()]));
        for (id, at) in [(1, 7), (2, 8)] {
            socket::send(theirs.as_fd(), &Answer { id, end: listed(at) }.to_bytes()).unwrap();
        }
        assert_eq!(hands.list(0).unwrap(), [Second::new(8).unwrap()]);
        socket::send(theirs.as_fd(), b"what").unwrap();
        assert_eq!(why(hands.list(0)), "the process that makes snapshots sent no answer");
        drop(theirs);
        assert_eq!(why(hands.list(0)), ENDED);
        assert_eq!(why(hands.list(0)), ENDED);
    }

    /// A socket whose other end goes with a message that nobody has read says so otherwise.
    #[test]
    fn a_process_that_ends_before_it_reads_a_request_is_noticed() {
        let (socket, theirs) = socket::pair().unwrap();
        let mut hands = Hands { socket, last: 0 };
        let ends = std::thread::spawn(move || {
            assert!(socket::has_message(theirs.as_fd(), Duration::from_secs(60)).unwrap());
        });
        assert_eq!(why(hands.list(0)), ENDED);
        ends.join().unwrap();
    }
}
