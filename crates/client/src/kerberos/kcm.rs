//! Credentials caches of the type KCM, which a daemon of the host keeps: sssd-kcm, or Heimdal's kcm.
//!
//! The protocol is Heimdal's, version 2.0. Each message goes after its length: a request is version
//! and operation with parameters, a reply two codes (that of the transport and that of the operation)
//! with values. Names end with a zero byte; principals and credentials are those of a file of
//! version 4, so the values are put together as such a file.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use frevo_auth::limits::{MAX_CCACHE_LEN, MAX_CCACHE_TICKETS};
use zeroize::Zeroizing;

use super::error::{KerberosError, Reason};
use crate::limits::KCM_ANSWER;

/// The socket where krb5.conf names none.
pub(super) const SOCKET: &str = "/var/run/.heim_org.h5l.kcm-socket";

const VERSION: [u8; 2] = [2, 0];
const GET_PRINCIPAL: u16 = 8;
const GET_CRED_UUID_LIST: u16 = 9;
const GET_CRED_BY_UUID: u16 = 10;
const GET_DEFAULT_CACHE: u16 = 20;
const GET_KDC_OFFSET: u16 = 22;
/// Bytes of the number of a credential.
const UUID: usize = 16;

/// Reads the cache `name` of the daemon, or the one in use where it is empty, as a file of version 4.
pub(super) fn read(socket: &Path, name: &str) -> Result<Zeroizing<Vec<u8>>, KerberosError> {
    let shown = socket.display();
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Reason::NoTicket(format!(
            "the daemon that keeps the ticket cache does not run ({shown}); start sssd-kcm, or set \
             KRB5CCNAME=FILE:PATH and run kinit"
        )),
        _ => Reason::Setting(format!("cannot connect to the ticket cache {shown}: {error}")),
    })?;
    let mut daemon = Daemon { stream, until: Instant::now() + KCM_ANSWER };
    match daemon.file(name) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => {
            let text = format!("there is no Kerberos ticket (KCM:{name}); run kinit");
            Err(Reason::NoTicket(text).into())
        }
        Err(error) => {
            Err(Reason::Setting(format!("cannot read the ticket cache {shown}: {error}")).into())
        }
    }
}

struct Daemon {
    stream: UnixStream,
    /// The end of all exchanges together.
    until: Instant,
}

impl Daemon {
    /// The cache as a file. None where there is none.
    fn file(&mut self, name: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let name = match name {
            "" => match self.ask(GET_DEFAULT_CACHE, &[])? {
                Some(default) => default.strip_suffix(&[0]).unwrap_or(&default).to_vec(),
                None => return Ok(None),
            },
            name => name.as_bytes().to_vec(),
        };
        let name = [&name[..], &[0]].concat();
        let Some(principal) = self.ask(GET_PRINCIPAL, &name)? else { return Ok(None) };
        // A KCM daemon that does not know this operation returns an error. Then the clock offset is
        // 0.
        let offset = self.ask(GET_KDC_OFFSET, &name)?.filter(|offset| offset.len() == 4);
        let offset = offset.unwrap_or_else(|| Zeroizing::new(vec![0; 4]));
        // The header of a credential cache: version 5.4, header length, and the field with the
        // clock offset.
        let mut file = Zeroizing::new(vec![5, 4, 0, 12, 0, 1, 0, 8]);
        file.extend_from_slice(&offset);
        file.extend([0; 4]);
        file.extend_from_slice(&principal);
        let list = self.ask(GET_CRED_UUID_LIST, &name)?.unwrap_or_default();
        if list.len() > UUID * MAX_CCACHE_TICKETS {
            return Err(ErrorKind::FileTooLarge.into());
        }
        for uuid in list.chunks_exact(UUID) {
            // The daemon has removed this credential since it returned the list.
            let asked = [&name[..], uuid].concat();
            let Some(credential) = self.ask(GET_CRED_BY_UUID, &asked)? else { continue };
            if file.len() + credential.len() > MAX_CCACHE_LEN {
                return Err(ErrorKind::FileTooLarge.into());
            }
            file.extend_from_slice(&credential);
        }
        Ok(Some(file))
    }

    /// Carries out an operation. None when the daemon refuses it: it does so for what there is not.
    fn ask(&mut self, operation: u16, what: &[u8]) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        let request = [&VERSION[..], &operation.to_be_bytes(), what].concat();
        let length = u32::try_from(request.len()).map_err(|_| ErrorKind::InvalidInput)?;
        let whole = [&length.to_be_bytes()[..], &request].concat();
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write_all(&whole)?;
        let mut word = [0; 4];
        self.fill(&mut word)?;
        let length = usize::try_from(u32::from_be_bytes(word)).unwrap_or(usize::MAX);
        self.fill(&mut word)?;
        if u32::from_be_bytes(word) != 0 {
            return Ok(None);
        }
        let Some(length) = length.checked_sub(4) else { return Err(ErrorKind::InvalidData.into()) };
        if length > MAX_CCACHE_LEN {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.fill(&mut word)?;
        let mut values = Zeroizing::new(vec![0; length]);
        self.fill(&mut values)?;
        Ok((u32::from_be_bytes(word) == 0).then_some(values))
    }

    /// Reads exactly so many bytes: a daemon that sends them one by one has no more time.
    fn fill(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => into = into.get_mut(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn left(&self) -> io::Result<std::time::Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use frevo_auth::kerberos::CredentialsCache;

    use super::*;

    /// A file of MIT's kinit and kvno: header, client, credentials.
    const FILE: &[u8] = include_bytes!("../../../auth/src/kerberos/fixtures/v4.ccache");

    /// Where the header ends, and the client's name behind it.
    fn parts() -> (usize, usize) {
        let number = |at: usize| u32::from_be_bytes(FILE[at..at + 4].try_into().unwrap()) as usize;
        let header = 4 + usize::from(u16::from_be_bytes(FILE[2..4].try_into().unwrap()));
        let mut at = header + 8;
        // Skips the realm and the components of the principal's name.
        for _ in 0..=number(header + 4) {
            at += 4 + number(at);
        }
        (header, at)
    }

    /// A daemon that answers as `answer` says; None refuses.
    fn daemon(
        answer: impl Fn(u16, &[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 8];
            while stream.read_exact(&mut head).is_ok() {
                assert_eq!(head[4..6], VERSION);
                let mut what =
                    vec![0; u32::from_be_bytes(head[..4].try_into().unwrap()) as usize - 4];
                stream.read_exact(&mut what).unwrap();
                let operation = u16::from_be_bytes([head[6], head[7]]);
                let (code, values) = match answer(operation, &what) {
                    Some(values) => (0u32, values),
                    None => (7, Vec::new()),
                };
                let length = (values.len() as u32 + 4).to_be_bytes();
                let reply = [&length[..], &[0; 4], &code.to_be_bytes(), &values].concat();
                if stream.write_all(&reply).is_err() {
                    return;
                }
            }
        });
        (dir, path)
    }

    #[test]
    fn the_cache_of_a_daemon_is_that_of_a_file() {
        let (header, client) = parts();
        for (name, wanted) in [("", &b"one\0"[..]), ("two", b"two\0")] {
            let (_dir, socket) = daemon(move |operation, what| match operation {
                GET_DEFAULT_CACHE => Some(b"one\0".to_vec()),
                GET_PRINCIPAL if what == wanted => Some(FILE[header..client].to_vec()),
                GET_KDC_OFFSET => Some(7i32.to_be_bytes().to_vec()),
                GET_CRED_UUID_LIST => Some([[1; UUID], [2; UUID]].concat()),
                // The daemon returns no second credential, as if it was just removed. For the first
                // one it returns the bytes of all credentials of the file.
                GET_CRED_BY_UUID if what.ends_with(&[1; UUID]) => Some(FILE[client..].to_vec()),
                _ => None,
            });
            let read = CredentialsCache::parse(&read(&socket, name).unwrap()).unwrap();
            let file = CredentialsCache::parse(FILE).unwrap();
            assert_eq!((read.client, read.clock_offset), (file.client, 7));
            assert!(!file.tickets.is_empty());
            assert_eq!(read.tickets.len(), file.tickets.len());
        }
    }

    #[test]
    fn a_daemon_without_a_cache_or_with_odd_replies() {
        let fails = |answer: fn(u16, &[u8]) -> Option<Vec<u8>>| {
            let (_dir, socket) = daemon(answer);
            read(&socket, "x").unwrap_err().to_string()
        };
        assert!(fails(|_, _| None).contains("no Kerberos ticket (KCM:x); run kinit"));
        let many = |operation, _: &[u8]| match operation {
            GET_CRED_UUID_LIST => Some(vec![0; UUID * (MAX_CCACHE_TICKETS + 1)]),
            _ => Some(vec![0; 4]),
        };
        assert!(fails(many).contains("cannot read the ticket cache"));
        assert!(fails(|_, _| Some(vec![0; MAX_CCACHE_LEN + 1])).contains("cannot read"));
        let dir = tempfile::tempdir().unwrap();
        let none = read(&dir.path().join("none"), "").unwrap_err().to_string();
        assert!(none.contains("start sssd-kcm"), "{none}");
    }

    #[test]
    fn a_daemon_that_hangs_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let begun = Instant::now();
        let text = read(&socket, "").unwrap_err().to_string();
        assert!(text.contains("timed out"), "{text}");
        assert!(begun.elapsed() >= KCM_ANSWER);
    }
}
