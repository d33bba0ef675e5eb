//! The end of the process with rights.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_snapshots::{Act, Answer, Done, Request};

use crate::fault::SnapshotFault;
use crate::place::{Provider, SnapshotPlace};
use crate::set_up::SetUp;
use crate::socket;

/// The process before its confinement: the places of all shares are found.
#[derive(Debug)]
pub struct Process {
    socket: Arc<OwnedFd>,
    shares: Vec<Arc<Share>>,
}

/// A share for which the process acts.
#[derive(Debug)]
struct Share {
    /// The fault that there was at the start is the answer to each request.
    provider: Result<Provider, SnapshotFault>,
    /// An act is under way: storage that does not answer holds up its own share alone.
    is_busy: AtomicBool,
}

impl Share {
    fn act(&self, act: Act) -> Result<Done, SnapshotFault> {
        let provider = self.provider.as_ref().map_err(Clone::clone)?;
        match act {
            Act::List => provider.list().map(Done::Listed),
            Act::Mount => provider.mount().map(Done::Listed),
            Act::Create(at) => provider.create(at).map(|()| Done::Changed),
            Act::Remove(at) => provider.remove(at).map(|()| Done::Changed),
        }
    }
}

impl Process {
    /// Finds the places of the shares. A share without one has a fault for each request.
    pub fn open(set_up: &SetUp, socket: OwnedFd) -> Self {
        let shares = set_up.shares.iter().map(|share| {
            let place = SnapshotPlace::find(&share.folder, Some(share.kind), &set_up.mounts);
            let provider = place.and_then(|place| Provider::open(&place));
            Arc::new(Share { provider, is_busy: AtomicBool::new(false) })
        });
        Self { shares: shares.collect(), socket: Arc::new(socket) }
    }

    /// Serves the server until it ends.
    ///
    /// # Errors
    /// The socket fails.
    pub fn serve(self) -> io::Result<()> {
        tell(&self.socket, 0, Ok(Done::Changed));
        while let Some(message) = socket::receive(self.socket.as_fd())? {
            // The server sends nothing else.
            if let Some(request) = Request::parse(&message) {
                self.handle(request);
            }
        }
        Ok(())
    }

    fn handle(&self, Request { id, share, act }: Request) {
        let share = usize::try_from(share).ok().and_then(|at| self.shares.get(at));
        let Some(share) = share else {
            return tell(&self.socket, id, Err(SnapshotFault("there is no such share".into())));
        };
        if share.is_busy.swap(true, Ordering::AcqRel) {
            let why = "the storage has not ended what it was asked for before";
            return tell(&self.socket, id, Err(SnapshotFault(why.into())));
        }
        let (acting, socket) = (Arc::clone(share), Arc::clone(&self.socket));
        let thread = std::thread::Builder::new().spawn(move || {
            let end = acting.act(act);
            // The server may ask again as soon as it has the answer.
            acting.is_busy.store(false, Ordering::Release);
            tell(&socket, id, end);
        });
        if let Err(error) = thread {
            share.is_busy.store(false, Ordering::Release);
            tell(&self.socket, id, Err(SnapshotFault::of("a thread", error)));
        }
    }
}

fn tell(socket: &OwnedFd, id: u32, end: Result<Done, SnapshotFault>) {
    let answer = Answer { id, end: end.map_err(|fault| fault.0) };
    // If the server has ended, the next receive says so.
    let _ = socket::send(socket.as_fd(), &answer.to_bytes());
}
