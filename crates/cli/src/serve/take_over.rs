//! `frevo serve --replace PID`: takes the place of a running server.
//!
//! The new process takes the listening sockets out of the old one before it asks it to stop, so
//! that clients that connect meanwhile wait and are not refused. The kernel allows that to
//! privileged users alone (pidfd_getfd(2)), and asks nothing of the old process, which is confined
//! and could start no other program.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketAddrAny, sockopt};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal,
};

use crate::exit::{Done, Exit, Failure};

/// Time beyond its drain time that the old server has to close its files.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server that is replaced, and its listening sockets.
pub(super) struct Replaced {
    process: OwnedFd,
    pid: u32,
    sockets: Vec<OwnedFd>,
}

impl Replaced {
    /// Takes the listening sockets of the server with the number `pid`, which serves on.
    pub(super) fn begin(pid: u32) -> Result<Self, Failure> {
        let failed = |why: String| {
            Failure::new(
                Exit::Failed,
                format!("cannot replace the server with the PID {pid}: {why}"),
            )
        };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| failed(String::from("that is no PID")))?;
        let process = pidfd_open(number, PidfdFlags::empty())
            .map_err(|error| failed(io::Error::from(error).to_string()))?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if !name.starts_with("frevo") {
            return Err(failed(format!("that process is not frevo, but {}", name.trim_end())));
        }
        let sockets = listening(&process, pid).map_err(|error| {
            failed(match error.kind() {
                io::ErrorKind::PermissionDenied => String::from(
                    "only root may take the sockets of another process (CAP_SYS_PTRACE)",
                ),
                _ => error.to_string(),
            })
        })?;
        if sockets.is_empty() {
            return Err(failed(String::from("it has no listening socket")));
        }
        Ok(Self { process, pid, sockets })
    }

    /// Takes the sockets out.
    pub(super) fn sockets(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.sockets)
    }

    /// Stops the old server and waits for its end. It finishes the requests under way within
    /// `drain`.
    pub(super) fn end(self, drain: Duration) -> Done {
        let Self { process, pid, .. } = &self;
        let failed = |error: rustix::io::Errno| {
            let error = io::Error::from(error);
            let text = format!("cannot stop the server with the PID {pid}: {error}");
            Failure::new(Exit::Failed, text)
        };
        // The first SIGTERM lets the old server finish its work, the second one ends it at once,
        // and SIGKILL kills it.
        for (signal, patience) in
            [(Signal::TERM, drain + PATIENCE), (Signal::TERM, PATIENCE), (Signal::KILL, PATIENCE)]
        {
            match pidfd_send_signal(process, signal) {
                Err(rustix::io::Errno::SRCH) => return Ok(()),
                outcome => outcome.map_err(failed)?,
            }
            if has_ended(process, patience).map_err(failed)? {
                return Ok(());
            }
            tracing::warn!(target: "frevo::server", pid, "the old server has not stopped yet; frevo sends it another signal");
        }
        Err(Failure::new(
            Exit::Failed,
            format!("the old server (PID {pid}) does not stop, not even after SIGKILL"),
        ))
    }
}

/// A descriptor of a process is readable once the process has ended.
fn has_ended(process: &OwnedFd, patience: Duration) -> rustix::io::Result<bool> {
    let until = std::time::Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(ready) => return Ok(ready > 0),
        }
    }
}

/// Copies of the listening TCP sockets of a process.
fn listening(process: &OwnedFd, pid: u32) -> io::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        // The link cannot be read if the descriptor was closed meanwhile. Then the descriptor is
        // skipped.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let (true, Some(number)) = (target.to_string_lossy().starts_with("socket:"), number) else {
            continue;
        };
        let socket = match pidfd_getfd(process, number, PidfdGetfdFlags::empty()) {
            Ok(socket) => socket,
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        if is_listening(&socket) {
            sockets.push(socket);
        }
    }
    Ok(sockets)
}

fn is_listening(socket: &OwnedFd) -> bool {
    let is_tcp = || {
        rustix::net::getsockname(socket)
            .is_ok_and(|address: SocketAddrAny| std::net::SocketAddr::try_from(address).is_ok())
    };
    sockopt::socket_acceptconn(socket).unwrap_or(false) && is_tcp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_is_replaced() {
        let refused = |pid| Replaced::begin(pid).err().unwrap().to_string();
        assert!(refused(0).contains("that is no PID"), "{}", refused(0));
        assert!(refused(u32::MAX).contains("that is no PID"));
        let absent = refused(0x7FFF_FFFE);
        assert!(absent.contains("cannot replace the server with the PID 2147483646"), "{absent}");
        assert!(refused(1).contains("that process is not"), "{}", refused(1));
    }
}
