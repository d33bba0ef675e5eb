//! The sockets of the interface.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::tls::Tls;

/// The sockets that an interface listens on. They are opened before a process gives up rights.
#[derive(Debug, Default)]
pub struct Listening {
    pub(crate) unix: Option<(UnixListener, PathBuf)>,
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) tls: Option<Tls>,
}

/// Another server listens on the socket.
#[derive(Debug)]
pub struct Occupied(pub PathBuf);

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another server uses the admin socket {}", self.0.display())
    }
}

impl std::error::Error for Occupied {}

impl Listening {
    /// Listens on the Unix socket at `path` too, whose folder is made if it is not there. A
    /// socket that nobody listens on is replaced.
    ///
    /// # Errors
    /// When the socket cannot be made. `AddrInUse` with [`Occupied`] when another server uses it.
    pub fn unix(&mut self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        remove_abandoned(path)?;
        // With this umask the socket has mode 0600 from the beginning, so no other user can connect
        // before a chmod.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound?;
        listener.set_nonblocking(true)?;
        self.unix = Some((listener, path.to_owned()));
        Ok(())
    }

    /// Listens on TCP too, with TLS if there is a certificate.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn tcp(&mut self, address: SocketAddr, tls: Option<Tls>) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        (self.tcp, self.tls) = (Some(listener), tls);
        Ok(())
    }

    /// The path of the Unix socket.
    pub fn path(&self) -> Option<&Path> {
        self.unix.as_ref().map(|(_, path)| &**path)
    }

    /// The address on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.local_addr().ok()
    }
}

fn remove_abandoned(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        let what = format!("{} is there and is no socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, Occupied(path.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_private_and_replaced_only_without_a_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/admin.sock");
        let mut first = Listening::default();
        first.unix(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let folder_mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(folder_mode & 0o777, 0o700);
        let error = Listening::default().unix(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        Listening::default().unix(&path).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(Listening::default().unix(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
}
