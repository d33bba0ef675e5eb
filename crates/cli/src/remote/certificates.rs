//! The certificates of a command that goes over QUIC.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use frevo_client::{BadCertificate, Certificates, Identity, QuicTrust};

use super::connection_options::Connection;
use crate::exit::{Exit, Failure};
use crate::{bounded_input, secret_file};

/// The largest file of certificates, bytes.
const CERTIFICATES_BYTES: u64 = 4 << 20;

thread_local! {
    /// Standard input and pipes that were read: they cannot be read again for a second connection.
    static PIPES: RefCell<Vec<(PathBuf, Vec<u8>)>> = RefCell::default();
}

impl Connection {
    /// The servers that are trusted over QUIC.
    pub(super) fn quic_trust(&self) -> Result<QuicTrust, Failure> {
        if !self.quic_pin.is_empty() {
            return Ok(QuicTrust::Pinned(self.quic_pin.clone()));
        }
        let Some(file) = &self.quic_ca else { return Ok(QuicTrust::System) };
        let authorities = Certificates::from_pem(&read(file)?);
        authorities.map(QuicTrust::Authorities).map_err(|error| wrong_certificate(file, &error))
    }

    /// The certificate of this client.
    pub(super) fn quic_identity(&self) -> Result<Option<Identity>, Failure> {
        let (Some(file), Some(key)) = (&self.quic_certificate, &self.quic_key) else {
            return Ok(None);
        };
        let certificate = read(file)?;
        let key = secret_file::read_bytes(key)?.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no key {}", key.display()))
        })?;
        let identity = Identity::from_pem(&certificate, &key);
        identity.map(Some).map_err(|error| wrong_certificate(file, &error))
    }
}

/// Reads a file, and a pipe once for all connections of the command.
fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let is_it = |(pipe, _): &&(PathBuf, Vec<u8>)| pipe == file;
    let known = PIPES.with_borrow(|all| all.iter().find(is_it).map(|(_, bytes)| bytes.clone()));
    if let Some(bytes) = known {
        return Ok(bytes);
    }
    let bytes = bounded_input::read(file, CERTIFICATES_BYTES)?;
    if !file.is_file() {
        PIPES.with_borrow_mut(|all| all.push((file.to_owned(), bytes.clone())));
    }
    Ok(bytes)
}

fn wrong_certificate(file: &Path, error: &BadCertificate) -> Failure {
    Failure::new(Exit::Usage, format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_pipe_is_read_once_for_all_connections() {
        let (end, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"certificates").unwrap();
        drop(writer);
        let number = std::os::fd::AsRawFd::as_raw_fd(&end);
        let path = PathBuf::from(format!("/proc/self/fd/{number}"));
        for _ in 0..2 {
            assert_eq!(read(&path).unwrap(), b"certificates");
        }
    }
}
