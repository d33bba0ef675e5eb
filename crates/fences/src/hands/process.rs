//! The end of the process with rights.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::fence::Fence;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::set_up::{SetUp, UnitSetUp};
use super::slots::{self, Slots};
use super::wire::{self, Act, Answer, Packet, Request};
use crate::addresses::{Floating, FloatingAddress};
use crate::limits::{
    ADDRESS_INTERVAL, DIAL_PATIENCE, DIAL_TARGETS, FAULT_CHARACTERS, SETTLE_PAUSE, SETTLE_PAUSES,
};
use crate::{FenceFault, Fences, Kind};

/// Reads CLOCK_BOOTTIME.
pub type Clock = fn() -> Duration;

/// The process before its confinement: sockets that take rights are open.
#[derive(Debug)]
pub struct Process {
    shared: Arc<Shared>,
    /// None without addresses.
    floating: Option<Floating>,
    clock: Clock,
}

/// The parts that requests on threads use.
#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    set_up: SetUp,
    fences: Fences,
    slots: Mutex<Slots>,
}

impl Process {
    /// Opens what takes rights, and takes away the addresses of an earlier process.
    ///
    /// # Errors
    /// A sentence, which the server gets too.
    pub fn open(set_up: SetUp, socket: OwnedFd, clock: Clock) -> Result<Self, FenceFault> {
        match Self::parts(&set_up) {
            Ok((fences, floating)) => {
                let shared = Shared { socket, set_up, fences, slots: Mutex::default() };
                Ok(Self { shared: Arc::new(shared), floating, clock })
            }
            Err(fault) => {
                tell(&socket, 0, Err(fault.clone()), None);
                Err(fault)
            }
        }
    }

    fn parts(set_up: &SetUp) -> Result<(Fences, Option<Floating>), FenceFault> {
        let addresses: Vec<FloatingAddress> = set_up.addresses().cloned().collect();
        let floating = (!addresses.is_empty()).then(|| Floating::open(&addresses)).transpose()?;
        Ok((Fences::open(|kind| set_up.uses(kind), set_up.keys.as_ref())?, floating))
    }

    /// Sentences for the log, about files that were found at the start.
    pub fn warnings(&self) -> Vec<String> {
        self.shared.fences.warnings()
    }

    /// Serves the server until it ends. `tell` gets faults that no request is answered with.
    pub fn serve(mut self, mut tell: impl FnMut(FenceFault)) {
        self.shared.tell(0, Ok(String::new()), None);
        while let Some(packet) = self.next(&mut tell) {
            let Some(packet) = packet else { continue };
            // The server sends nothing else.
            let Some(request) = Request::parse(&packet.bytes) else { continue };
            self.handle(request, &mut tell);
        }
        self.settle(&mut tell);
        // The addresses go when `floating` is dropped.
    }

    /// Keeps the addresses for a moment after the end of the server: the kernel closes the server's sockets
    /// one after the other, and neither FIN nor RST would reach a client without the address.
    fn settle(&mut self, tell: &mut impl FnMut(FenceFault)) {
        let Some(floating) = &mut self.floating else { return };
        for _ in 0..SETTLE_PAUSES {
            floating.tick((self.clock)()).into_iter().for_each(&mut *tell);
            if !floating.reset_connections() {
                return;
            }
            std::thread::sleep(SETTLE_PAUSE);
        }
    }

    /// Waits for a request, and keeps the addresses meanwhile. None when the server has ended.
    fn next(&mut self, tell: &mut impl FnMut(FenceFault)) -> Option<Option<Packet>> {
        let interval = Timespec::try_from(ADDRESS_INTERVAL).ok();
        let interval = interval.filter(|_| self.floating.is_some());
        let mut waiting = [PollFd::new(&self.shared.socket, PollFlags::IN)];
        let ready = match poll(&mut waiting, interval.as_ref()) {
            Ok(count) => count > 0,
            Err(rustix::io::Errno::INTR) => false,
            Err(_) => return None,
        };
        if let Some(floating) = &mut self.floating {
            floating.tick((self.clock)()).into_iter().for_each(tell);
        }
        if !ready {
            return Some(None);
        }
        let packet = wire::receive(self.shared.socket.as_fd()).ok().flatten()?;
        Some(Some(packet))
    }

    fn handle(&mut self, request: Request, tell: &mut impl FnMut(FenceFault)) {
        let Request { id, act } = request;
        match act {
            Act::Until(limit) => {
                if let Some(floating) = &mut self.floating {
                    floating.serve_until(limit, (self.clock)()).into_iter().for_each(tell);
                }
            }
            Act::Raise(unit) => {
                let end =
                    self.addresses(&unit, |floating, address, now| floating.raise(address, now));
                self.shared.tell(id, end, None);
            }
            Act::Lower(unit) => {
                let end =
                    self.addresses(&unit, |floating, address, _| floating.lower(address.address));
                self.shared.tell(id, end, None);
            }
            act => self.on_thread(id, act),
        }
    }

    /// Changes all addresses of a unit; the last fault is the answer.
    fn addresses(
        &mut self,
        unit: &str,
        change: impl Fn(&mut Floating, &FloatingAddress, Duration) -> Result<(), FenceFault>,
    ) -> Result<String, FenceFault> {
        let now = (self.clock)();
        let addresses = &self.shared.unit(unit)?.addresses;
        let Some(floating) = &mut self.floating else { return Ok(String::new()) };
        let mut end = Ok(String::new());
        for address in addresses {
            if let Err(fault) = change(floating, address, now) {
                end = Err(fault);
            }
        }
        end
    }

    /// Storage and networks may be silent for long, so these acts hold up nothing else.
    fn on_thread(&self, id: u64, act: Act) {
        let shared = Arc::clone(&self.shared);
        let begun = shared.slots.lock().begin(&act, (self.clock)());
        if let Err(fault) = begun {
            return shared.tell(id, Err(fault), None);
        }
        let same = act.clone();
        let thread = std::thread::Builder::new().spawn(move || shared.act(id, &act));
        if let Err(error) = thread {
            self.shared.slots.lock().end(&same);
            self.shared.tell(id, Err(FenceFault::of("a thread", error)), None);
        }
    }
}

impl Shared {
    fn unit(&self, name: &str) -> Result<&UnitSetUp, FenceFault> {
        let unknown = || FenceFault(format!("{name} is none of the configured shares and groups"));
        self.set_up.unit(name).ok_or_else(unknown)
    }

    fn act(&self, id: u64, act: &Act) {
        let mut passed = None;
        let end = match act {
            Act::Dial(at) => self.dial(*at).map(|socket| {
                passed = Some(OwnedFd::from(socket));
                String::new()
            }),
            Act::Look(unit) => {
                let found = self.look(unit);
                self.slots.lock().note(unit, found.as_ref().ok());
                found.map(|fence| fence.to_text())
            }
            Act::Fence(fence) => self.fence(fence).map(|()| String::new()),
            Act::Raise(_) | Act::Lower(_) | Act::Until(_) => return,
        };
        // The server may ask again as soon as it has the answer.
        self.slots.lock().end(act);
        self.tell(id, end, passed.as_ref());
    }

    fn tell(&self, id: u64, end: Result<String, FenceFault>, passed: Option<&OwnedFd>) {
        tell(&self.socket, id, end, passed);
    }

    fn dial(&self, at: usize) -> Result<TcpStream, FenceFault> {
        let Some(endpoint) = self.set_up.endpoints.get(at) else {
            return Err(FenceFault("there is no such endpoint".into()));
        };
        let failed = |error: io::Error| FenceFault::of(endpoint, error);
        let targets: Vec<SocketAddr> = endpoint.to_socket_addrs().map_err(failed)?.collect();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for target in targets.iter().take(DIAL_TARGETS) {
            match TcpStream::connect_timeout(target, DIAL_PATIENCE) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// The identity at the storage of a unit, which is that of each of its folders.
    fn look(&self, unit: &str) -> Result<Fence, FenceFault> {
        let unit = self.unit(unit)?;
        let mut found = None;
        for folder in &unit.folders {
            let fence = self.fences.identity(folder, unit.kind)?;
            if found.as_ref().is_some_and(|found| *found != fence) {
                return Err(FenceFault(format!(
                    "the shares of {} are on several file systems, of which {} is one; put those of \
                     each file system into a group of its own",
                    unit.name,
                    folder.display()
                )));
            }
            found = Some(fence);
        }
        let found = found.unwrap_or_default();
        self.fences.check(&found)?;
        Ok(found)
    }

    /// Fences an identity at the storage of a unit with that kind of fence.
    fn fence(&self, text: &str) -> Result<(), FenceFault> {
        let fence = slots::identity(text)?;
        let kind = Kind::of(&fence);
        let units = self.set_up.units.iter().filter(|unit| unit.kind == kind);
        let mut end = Err(FenceFault(format!("no share of this node has `fence = \"{kind}\"`")));
        // Disks are found by folders. For the other kinds each folder would be the same try again.
        let tries = if kind == Kind::ScsiPr { usize::MAX } else { 1 };
        for folder in units.flat_map(|unit| &unit.folders).take(tries) {
            end = self.fences.fence(folder, &fence);
            if end.is_ok() {
                break;
            }
        }
        end
    }
}

fn tell(socket: &OwnedFd, id: u64, end: Result<String, FenceFault>, passed: Option<&OwnedFd>) {
    // A fault names folders, and those of etcd's identities; a longer text would not arrive.
    let clipped = |fault: FenceFault| fault.0.chars().take(FAULT_CHARACTERS).collect();
    let answer = Answer { id, end: end.map_err(clipped) };
    // If the server has ended, the next receive says so.
    let _ = wire::send(socket.as_fd(), &answer.to_text(), passed);
}

#[cfg(test)]
mod tests;
