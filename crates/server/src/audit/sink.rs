//! Where lines go: a file, the journal, syslog.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::base::host;
use crate::base::limits::AUDIT_SEND;

/// Somewhere that lines are written to.
pub trait Sink: Send {
    /// Its name, for people.
    fn name(&self) -> &str;

    /// Writes whole lines.
    ///
    /// # Errors
    /// When not all of them were written.
    fn write(&mut self, lines: &str) -> io::Result<()>;

    /// Opens anew what has a name, for those who move it away.
    ///
    /// # Errors
    /// When that fails; it goes on with what it had.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that lines are appended to, readable for its owner alone.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    shown: String,
    file: std::fs::File,
    /// The last line was written in part: the next one begins on a line of its own.
    is_torn: bool,
}

impl File {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// When that fails, also because a symbolic link has the name.
    pub fn open(path: &Path) -> io::Result<Self> {
        let shown = path.display().to_string();
        Ok(Self { path: path.to_owned(), shown, file: open(path)?, is_torn: false })
    }

    /// Tells what would keep the file from being opened or made, and makes nothing.
    ///
    /// # Errors
    /// When it could not be opened, or its folder is not there.
    pub fn check(path: &Path) -> io::Result<()> {
        match regular(path, OpenOptions::new().append(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path.parent().map_or(Ok(()), |folder| folder.read_dir().map(drop))
            }
            opened => opened.map(drop),
        }
    }
}

/// Opens or makes the file, and takes the rights of all but its owner.
fn open(path: &Path) -> io::Result<std::fs::File> {
    let file = regular(path, OpenOptions::new().create(true).append(true).mode(0o600))?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(|error| {
            let mode = mode & 0o7777;
            let why = format!("its mode {mode:04o} cannot be changed to 0600: {error}");
            io::Error::new(error.kind(), why)
        })?;
    }
    Ok(file)
}

/// Opens a regular file. A FIFO must not make the server wait for who reads it.
fn regular(path: &Path, options: &mut OpenOptions) -> io::Result<std::fs::File> {
    use rustix::fs::OFlags;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

impl Sink for File {
    fn name(&self) -> &str {
        &self.shown
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        self.file.write_all(lines.as_bytes()).inspect_err(|_| self.is_torn = true)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        self.is_torn = false;
        Ok(())
    }
}

/// A datagram socket of the host, connected when there is something to write.
#[derive(Debug)]
struct Datagrams {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

impl Datagrams {
    fn to(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), socket: None }
    }

    /// Sends one message. A daemon that does not keep up makes the writer wait, and
    /// nobody else, and not for ever.
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            match socket.send(message) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
                sent => return sent.map(drop),
            }
            // The send failed, maybe because the daemon was restarted, so the socket connects
            // again.
        }
        self.socket = None;
        let socket = host::log_socket(&self.path)?;
        socket.set_write_timeout(Some(AUDIT_SEND))?;
        self.socket.insert(socket).send(message).map(drop)
    }
}

/// systemd's journal, by its own protocol.
#[derive(Debug)]
pub struct Journal(Datagrams);

impl Default for Journal {
    fn default() -> Self {
        Self(Datagrams::to("/run/systemd/journal/socket"))
    }
}

impl Sink for Journal {
    fn name(&self) -> &str {
        "the journal"
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        lines.lines().try_for_each(|line| {
            let entry = format!("MESSAGE={line}\nPRIORITY=6\nSYSLOG_IDENTIFIER=frevo-audit\n");
            self.0.send(entry.as_bytes())
        })
    }
}

/// syslog, with facility authpriv and severity informational.
#[derive(Debug)]
pub struct Syslog(Datagrams);

impl Default for Syslog {
    fn default() -> Self {
        Self(Datagrams::to("/dev/log"))
    }
}

/// Facility 10, severity 6: RFC 5424 6.2.1.
const AUTHPRIV_INFO: u8 = 10 * 8 + 6;

impl Sink for Syslog {
    fn name(&self) -> &str {
        "syslog"
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        lines.lines().try_for_each(|line| {
            let message = format!("<{AUTHPRIV_INFO}>frevo-audit: {line}");
            self.0.send(message.as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_daemon_that_starts_anew_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut sink = Syslog(Datagrams::to(&path));
        assert!(sink.write("nobody listens\n").is_err());
        for line in ["first", "second"] {
            let daemon = UnixDatagram::bind(&path).unwrap();
            sink.write(&format!("{line}\n")).unwrap();
            let mut bytes = [0; 64];
            let count = daemon.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..count], *format!("<86>frevo-audit: {line}").as_bytes());
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_daemon_that_reads_nothing_is_not_waited_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let _daemon = UnixDatagram::bind(&path).unwrap();
        let mut sink = Journal(Datagrams::to(&path));
        let began = Instant::now();
        let error = (0..100_000).find_map(|_| sink.write("line\n").err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(began.elapsed() >= AUDIT_SEND && began.elapsed() < AUDIT_SEND * 10);
    }
}
