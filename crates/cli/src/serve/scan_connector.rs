//! Connections with services that scan for viruses, made by another process: `frevo connect-scanners`.
//!
//! The server is confined before it serves anybody, and connects to nobody. So this process starts earlier: the
//! server asks it for a connection with the one service that it was started for, and gets the socket. It reads
//! nothing of the service, and no file of a share.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use frevo_config::{Config, ConfinementChoice, ScanService as Configured};
use frevo_server::scanning::{Connect, ScanService, connect_by, connect_unix};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::confine::helpers;
use super::plan::Plan;
use crate::configured::scan_service;
use crate::exit::{Done, Failure};

/// Time for the process to make a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest packet, bytes: the number of a request, and the reason of a failure.
const PACKET_BYTES: usize = 512;
/// Most services, and processes.
const SERVICES: usize = 16;

/// The processes, as the server sees them.
#[derive(Debug)]
struct Connector {
    /// The services of the start.
    services: Vec<ScanService>,
    /// A process for each of them, so that none waits for the service of another.
    processes: Vec<Mutex<Process>>,
}

#[derive(Debug)]
struct Process {
    socket: OwnedFd,
    /// The number of the latest request.
    last: u32,
}

/// Returns the services of a configuration, each once.
fn services(config: &Config) -> Vec<Configured> {
    let mut services: Vec<Configured> = Vec::new();
    for scan in config.shares.iter().filter_map(|share| share.scan.as_ref()) {
        if !services.contains(&scan.service) && services.len() < SERVICES {
            services.push(scan.service.clone());
        }
    }
    services
}

/// Starts the process for a server that will be confined, if a share is scanned. Another server connects itself.
pub(super) fn start(plan: &Plan) -> Done {
    if plan.config.server.confinement == Some(ConfinementChoice::Off) {
        return Ok(());
    }
    let configured = services(&plan.config);
    let failure = Failure::failed("cannot start the process that connects with virus scanners");
    let process = |socket| Mutex::new(Process { socket, last: 0 });
    let processes = configured.iter().map(|service| spawn(service).map(process));
    let processes = processes.collect::<io::Result<Vec<_>>>().map_err(failure)?;
    let services = configured.iter().map(scan_service).collect();
    connect_by(Arc::new(Connector { services, processes }));
    Ok(())
}

/// Starts this program again as the process.
fn spawn(service: &Configured) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&ours, direction, Some(PATIENCE))?;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0("frevo-scanners").arg("connect-scanners").env_clear();
    command.arg(service.to_string());
    command.process_group(0).stdin(Stdio::from(theirs));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // The process ends by itself when its socket is closed, so the server does not wait for it.
    command.spawn()?;
    Ok(ours)
}

impl Connect for Connector {
    fn connect(&self, service: &ScanService) -> io::Result<OwnedFd> {
        let at = self.services.iter().position(|one| one == service);
        let Some(process) = at.and_then(|at| self.processes.get(at)) else {
            return Err(io::Error::other(
                "the configuration at the start did not name it; restart frevo",
            ));
        };
        let mut process = process.lock();
        process.last = process.last.wrapping_add(1);
        let id = process.last.to_ne_bytes();
        // The filter of a server's system calls has this call, and not sendmsg.
        rustix::net::send(&process.socket, &id, SendFlags::NOSIGNAL)?;
        loop {
            let Some(packet) = receive(process.socket.as_fd())? else {
                return Err(io::Error::other("the process that connects has ended; restart frevo"));
            };
            // An answer that comes too late is of another request.
            let Some(why) = packet.bytes.strip_prefix(&id) else { continue };
            return packet
                .passed
                .ok_or_else(|| io::Error::other(String::from_utf8_lossy(why).into_owned()));
        }
    }
}

/// A packet, and the descriptor with it.
struct Packet {
    bytes: Vec<u8>,
    passed: Option<OwnedFd>,
}

/// Receives a packet. None at the end of the socket.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
        _ => None,
    });
    Ok(Some(Packet { bytes, passed }))
}

/// The process: until the server has ended.
pub(crate) fn run(service: &Configured) -> Done {
    // The thread's name only helps in process lists.
    let _ = rustix::thread::set_name(c"frevo-scanners");
    helpers::confine_scanners(service);
    let stdin = io::stdin();
    while let Ok(Some(packet)) = receive(stdin.as_fd()) {
        let Ok(id) = <[u8; 4]>::try_from(&*packet.bytes) else { continue };
        let turn = usize::try_from(u32::from_ne_bytes(id)).unwrap_or_default();
        let made = connection(service, turn);
        if answer(stdin.as_fd(), id, &made).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends the answer to a request.
fn answer(socket: BorrowedFd<'_>, id: [u8; 4], made: &io::Result<OwnedFd>) -> io::Result<()> {
    let mut packet = id.to_vec();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed = match made {
        Ok(made) => [made.as_fd()],
        Err(error) => {
            let why = error.to_string();
            packet.extend(why.bytes().take(PACKET_BYTES - packet.len()));
            rustix::net::send(socket, &packet, SendFlags::NOSIGNAL)?;
            return Ok(());
        }
    };
    ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A socket that is connected, or connecting over TCP. `turn` chooses one of several addresses.
fn connection(service: &Configured, turn: usize) -> io::Result<OwnedFd> {
    match service {
        Configured::ClamdSocket(path) => Ok(connect_unix(path)?),
        Configured::Clamd { host, port } | Configured::Icap { host, port, .. } => {
            let all: Vec<SocketAddr> = (&**host, *port).to_socket_addrs()?.collect();
            let at = turn.checked_rem(all.len()).unwrap_or_default();
            let address = all.get(at).ok_or(io::ErrorKind::NotFound)?;
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            // The server waits for the connection as it waits for answers.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            match rustix::net::connect(&socket, address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(errno) => Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// The process in a thread, with one service.
    fn connector(service: Configured) -> Connector {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let services = vec![scan_service(&service)];
        std::thread::spawn(move || {
            while let Ok(Some(packet)) = receive(theirs.as_fd()) {
                let id = packet.bytes[..4].try_into().unwrap();
                // An answer to nobody comes first.
                answer(theirs.as_fd(), [0xEE; 4], &Err(io::ErrorKind::TimedOut.into())).unwrap();
                answer(theirs.as_fd(), id, &connection(&service, 0)).unwrap();
            }
        });
        Connector { services, processes: vec![Mutex::new(Process { socket: ours, last: 0 })] }
    }

    #[test]
    fn a_connection_is_passed_and_a_failure_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clamd.ctl");
        let connector = connector(Configured::ClamdSocket(path.clone()));
        let service = ScanService::ClamdSocket(path.clone());
        let why = connector.connect(&service).unwrap_err().to_string();
        assert!(why.contains("No such file"), "{why}");
        let listener = UnixListener::bind(&path).unwrap();
        let mut ours = UnixStream::from(connector.connect(&service).unwrap());
        let mut theirs = listener.accept().unwrap().0;
        theirs.write_all(b"hello").unwrap();
        let mut said = [0; 5];
        ours.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"hello");
        let other = ScanService::ClamdSocket(dir.path().join("other"));
        let why = connector.connect(&other).unwrap_err().to_string();
        assert!(why.contains("restart frevo"), "{why}");
    }
}
