//! The server's end.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::fence::Fence;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::set_up::SetUp;
use super::wire::{self, Act, Answer, Request};
use crate::limits::{ACT_PATIENCE, START_PATIENCE, WAITING};

/// A process that was started and has opened what it needs.
#[derive(Debug)]
pub struct Started {
    socket: OwnedFd,
}

impl Started {
    /// Starts this program again as `frevo hands`, before the server is confined: later it can start
    /// none. `log` are its options `--log` and `--log-level`. Returns when the process says that it can
    /// do what it may be asked for.
    ///
    /// # Errors
    /// A sentence: a right is missing, or an address is in use.
    pub fn begin(set_up: &SetUp, log: &[String]) -> io::Result<Self> {
        let text = set_up.to_text().ok_or_else(|| io::Error::other("a folder is not UTF-8"))?;
        let (socket, theirs) = wire::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("frevo-hands").arg("hands").args(log).env_clear();
        // In a process group of its own the process gets no Ctrl-C; it ends with the socket. Its faults
        // are the server's log lines.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::from(theirs));
        let mut child = command.spawn()?;
        drop(command);
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(text.as_bytes())?;
        }
        Self::when_ready(socket)
    }

    /// Waits for the first answer.
    fn when_ready(socket: OwnedFd) -> io::Result<Self> {
        let patience = Timespec::try_from(START_PATIENCE).map_err(io::Error::other)?;
        let mut waiting = [PollFd::new(&socket, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut waiting, Some(&patience)))? == 0 {
            return Err(io::Error::other("the process with rights does not answer"));
        }
        let answer = wire::receive(socket.as_fd())?.and_then(|packet| Answer::parse(&packet.bytes));
        match answer.map(|answer| answer.end) {
            Some(Ok(_)) => Ok(Self { socket }),
            Some(Err(why)) => Err(io::Error::other(why)),
            None => Err(io::Error::other("the process with rights has ended")),
        }
    }

    /// Attends to the answers, on a thread of its own. After the confinement: the thread has it too.
    /// `ended` is called there if the process ends while its hands are used: nobody fences, keeps
    /// addresses or connects with etcd any more.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn attend(self, ended: impl FnOnce() + Send + 'static) -> io::Result<Hands> {
        let shared = Arc::new(Shared { socket: self.socket, waiting: Mutex::default() });
        let attended = Arc::clone(&shared);
        std::thread::Builder::new().name("hands".into()).spawn(move || {
            if attended.attend() {
                ended();
            }
        })?;
        Ok(Hands { shared })
    }
}

/// The hands of a server. Errors are sentences for people.
#[derive(Debug, Clone)]
pub struct Hands {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    waiting: Mutex<Waiting>,
}

/// The requests that wait for their answers.
#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    each: HashMap<u64, oneshot::Sender<Reply>>,
    has_ended: bool,
    /// Nobody uses the process any more.
    is_left: bool,
}

/// An answer, and the descriptor with it.
#[derive(Debug)]
struct Reply {
    end: Result<String, String>,
    passed: Option<OwnedFd>,
}

/// Takes a request out of the table when its caller goes.
struct PendingRequest<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.shared.waiting.lock().each.remove(&self.id);
    }
}

impl Hands {
    /// Connects with the endpoint at a place of the set-up, within a runtime.
    ///
    /// # Errors
    /// The endpoint does not answer.
    pub async fn dial(&self, at: usize) -> io::Result<tokio::net::TcpStream> {
        let reply = self.ask(Act::Dial(at)).await.map_err(io::Error::other)?;
        reply.end.map_err(io::Error::other)?;
        let passed = reply.passed.ok_or_else(|| io::Error::other("no connection came"))?;
        let stream = TcpStream::from(passed);
        stream.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(stream)
    }

    /// Returns this node's identity at the storage of a unit.
    ///
    /// # Errors
    /// The storage cannot be used, or refuses this node.
    pub async fn look(&self, unit: &str) -> Result<Fence, String> {
        let text = self.ask(Act::Look(unit.to_owned())).await?.end?;
        Fence::from_text(&text).map_err(|fault| fault.to_string())
    }

    /// Has storage refuse an identity.
    ///
    /// # Errors
    /// The storage may refuse it or not.
    pub async fn fence(&self, fence: &Fence) -> Result<(), String> {
        self.ask(Act::Fence(fence.to_text())).await?.end.map(drop)
    }

    /// Sets the addresses of a unit on this machine, and announces them.
    ///
    /// # Errors
    /// An address is not there.
    pub async fn raise(&self, unit: &str) -> Result<(), String> {
        self.ask(Act::Raise(unit.to_owned())).await?.end.map(drop)
    }

    /// Takes the addresses of a unit off this machine.
    ///
    /// # Errors
    /// An address may be there for a few seconds.
    pub async fn lower(&self, unit: &str) -> Result<(), String> {
        self.ask(Act::Lower(unit.to_owned())).await?.end.map(drop)
    }

    /// Tells the limit of serving, a moment of CLOCK_BOOTTIME: afterwards the process takes all addresses
    /// off this machine, also if this server is stopped. They come back with a later limit.
    pub fn serve_until(&self, limit: Duration) {
        let request = Request { id: 0, act: Act::Until(limit) };
        // Without a reader there are no addresses either.
        let _ = wire::send(self.shared.socket.as_fd(), &request.to_text(), None);
    }

    async fn ask(&self, act: Act) -> Result<Reply, String> {
        const ENDED: &str = "the process with rights has ended; restart frevo";
        let (sender, receiver) = oneshot::channel();
        let pending = {
            let mut waiting = self.shared.waiting.lock();
            if waiting.has_ended {
                return Err(ENDED.into());
            }
            if waiting.each.len() >= WAITING {
                return Err("too many requests wait for the process with rights".into());
            }
            waiting.last = waiting.last.wrapping_add(1).max(1);
            let id = waiting.last;
            waiting.each.insert(id, sender);
            PendingRequest { shared: &self.shared, id }
        };
        let request = Request { id: pending.id, act };
        wire::send(self.shared.socket.as_fd(), &request.to_text(), None)
            .map_err(|error| format!("the process with rights: {error}"))?;
        let late = |_| String::from("storage or network do not answer in time");
        let reply = tokio::time::timeout(ACT_PATIENCE, receiver).await.map_err(late)?;
        reply.map_err(|_| ENDED.into())
    }
}

impl Shared {
    /// Passes the answers on, until the process ends. True if it ends while it is used.
    fn attend(&self) -> bool {
        while let Ok(Some(packet)) = wire::receive(self.socket.as_fd()) {
            let Some(Answer { id, end }) = Answer::parse(&packet.bytes) else { continue };
            let sender = self.waiting.lock().each.remove(&id);
            // A caller that has gone wants no answer; its connection is closed.
            let _ = sender.map(|sender| sender.send(Reply { end, passed: packet.passed }));
        }
        let mut waiting = self.waiting.lock();
        waiting.has_ended = true;
        waiting.each.clear();
        !waiting.is_left
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        // The thread and the server have the socket; with the last of the server's its use ends.
        if Arc::strong_count(&self.shared) <= 2 {
            self.shared.waiting.lock().is_left = true;
            let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests;
