//! A server for the kernel's network block device: the transmission phase of the NBD protocol.
//! There is no negotiation: the guest tells its kernel the size and the flags (`attach-disk`).
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::forgetful::{Dead, Disk, Period};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const REQUEST_BYTES: usize = 28;
/// The longest request; the kernel's are far shorter.
const LENGTH_MAX: usize = 32 << 20;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const FUA: u16 = 1;

const EINVAL: u32 = 22;

/// Serves `disk` to everyone who connects. Without power a connection stays, and is not answered:
/// an error would reach clients in the moment that the guest still has.
pub(crate) fn serve(listener: TcpListener, disk: Arc<Disk>) {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (disk, period) = (Arc::clone(&disk), disk.period());
            // The guest may be cut off at any time, so errors of its connection are ignored.
            thread::spawn(move || drop(connection(&stream, &disk, period)));
        }
    });
}

struct Request {
    flags: u16,
    kind: u16,
    cookie: [u8; 8],
    offset: u64,
    length: usize,
}

fn connection(stream: &TcpStream, disk: &Disk, period: Period) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = io::BufReader::with_capacity(256 << 10, stream);
    loop {
        let request = request(&mut stream)?;
        if request.kind == DISCONNECT {
            return Ok(());
        }
        // In NBD the data follows a WRITE request even if the write will be refused, so it must be
        // read.
        let mut data = vec![0; if request.kind == WRITE { request.length } else { 0 }];
        stream.read_exact(&mut data)?;
        let (error, data) = match answer(&request, data, disk, period) {
            Ok(answer) => answer,
            Err(Dead) => return io::copy(&mut stream, &mut io::sink()).map(drop),
        };
        let mut reply = Vec::with_capacity(16 + data.len());
        reply.extend(REPLY_MAGIC.to_be_bytes());
        reply.extend(error.to_be_bytes());
        reply.extend(request.cookie);
        reply.extend(data);
        (&**stream.get_ref()).write_all(&reply)?;
    }
}

fn request(stream: &mut impl Read) -> io::Result<Request> {
    let mut bytes = [0; REQUEST_BYTES];
    stream.read_exact(&mut bytes)?;
    let number = |from: usize, to: usize| {
        bytes[from..to].iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let length = number(24, 28) as usize;
    if number(0, 4) != u64::from(REQUEST_MAGIC) || length > LENGTH_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut cookie = [0; 8];
    cookie.copy_from_slice(&bytes[8..16]);
    Ok(Request {
        flags: number(4, 6) as u16,
        kind: number(6, 8) as u16,
        cookie,
        offset: number(16, 24),
        length,
    })
}

/// Carries a request out; returns the error number and the data of the reply.
fn answer(
    request: &Request,
    data: Vec<u8>,
    disk: &Disk,
    period: Period,
) -> Result<(u32, Vec<u8>), Dead> {
    let at = usize::try_from(request.offset).unwrap_or(usize::MAX);
    let is_inside = at.checked_add(request.length).is_some_and(|end| end <= disk.len());
    match request.kind {
        READ if is_inside => {
            let mut data = vec![0; request.length];
            disk.read(period, at, &mut data)?;
            Ok((0, data))
        }
        WRITE if is_inside => {
            disk.write(period, at, data, request.flags & FUA != 0)?;
            Ok((0, Vec::new()))
        }
        FLUSH => {
            disk.flush(period)?;
            Ok((0, Vec::new()))
        }
        _ => Ok((EINVAL, Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forgetful::Flushes;
    use crate::random::Random;

    fn ask(stream: &mut TcpStream, kind: u16, flags: u16, at: u64, data: &[u8], length: u32) {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(at.to_le_bytes());
        bytes.extend(at.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        stream.write_all(&bytes).unwrap();
    }

    fn reply(stream: &mut TcpStream, at: u64, length: usize) -> (u32, Vec<u8>) {
        let mut bytes = [0; 16];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], REPLY_MAGIC.to_be_bytes());
        assert_eq!(bytes[8..], at.to_le_bytes(), "the cookie");
        let error = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let mut data = vec![0; length];
        stream.read_exact(&mut data).unwrap();
        (error, data)
    }

    #[test]
    fn requests_are_answered_until_the_power_is_cut() {
        let disk = Arc::new(Disk::new(1 << 16, 512, Flushes::Honoured));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, Arc::clone(&disk));
        let mut stream = TcpStream::connect(address).unwrap();
        ask(&mut stream, WRITE, 0, 1024, &[5; 512], 512);
        assert_eq!(reply(&mut stream, 1024, 0).0, 0);
        ask(&mut stream, FLUSH, 0, 0, &[], 0);
        assert_eq!(reply(&mut stream, 0, 0).0, 0);
        ask(&mut stream, READ, 0, 512, &[], 1024);
        let (error, data) = reply(&mut stream, 512, 1024);
        assert_eq!((error, data[511], data[512]), (0, 0, 5));
        for (kind, at, data) in [(WRITE, (1 << 16) - 256, vec![1; 512]), (READ, u64::MAX, vec![])] {
            ask(&mut stream, kind, 0, at, &data, 512);
            assert_eq!(reply(&mut stream, at, 0).0, EINVAL, "outside the disk");
        }
        ask(&mut stream, 9, 0, 0, &[], 512);
        assert_eq!(reply(&mut stream, 0, 0).0, EINVAL, "an unknown request");
        disk.cut(&mut Random::new(1, 0));
        ask(&mut stream, READ, 0, 0, &[], 512);
        stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        let silence = stream.read(&mut [0; 16]).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    }
}
