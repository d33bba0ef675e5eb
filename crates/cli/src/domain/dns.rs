//! SRV records of DNS, RFC 1035 and RFC 2782: the hosts of a service.
//!
//! The C library's resolver knows addresses only, so the name servers of `/etc/resolv.conf` are
//! asked here. Nothing is decided by an answer: whoever answers at such a host must know the keys.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Time for an answer of one name server.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest answer, bytes.
const ANSWER_BYTES: usize = 65_535;
/// Most hosts of a service.
const HOSTS: usize = 32;
/// Most name servers that are asked.
const SERVERS: usize = 3;
/// Most jumps within a compressed name.
const JUMPS: usize = 16;
const SRV: u16 = 33;
const INTERNET: u16 = 1;

/// A host of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
    priority: u16,
}

/// Returns the hosts of a service such as `_kerberos._tcp.example.com`, the preferred first.
///
/// # Errors
/// When no name server answers. A name without records is no error.
pub(super) fn service(name: &str) -> io::Result<Vec<Host>> {
    let configuration = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut failed = io::Error::other("/etc/resolv.conf names no name server");
    for server in name_servers(&configuration) {
        match ask(SocketAddr::new(server, 53), name) {
            Ok(hosts) => return Ok(hosts),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn name_servers(configuration: &str) -> Vec<IpAddr> {
    let lines = configuration.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    });
    lines.take(SERVERS).collect()
}

fn ask(server: SocketAddr, name: &str) -> io::Result<Vec<Host>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    let question = question(id, name).ok_or_else(|| io::Error::other("not a name"))?;
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(local)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(server)?;
    socket.send(&question)?;
    let mut answer = vec![0; ANSWER_BYTES];
    let length = socket.recv(&mut answer)?;
    let answer = answer.get(..length).unwrap_or_default();
    let is_truncated = answer.get(2).is_some_and(|flags| flags & 2 != 0);
    if is_truncated {
        return hosts(&over_tcp(server, &question)?, id);
    }
    hosts(answer, id)
}

fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], question].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn question(id: [u8; 2], name: &str) -> Option<Vec<u8>> {
    // One question, recursion desired.
    let mut out = [&id[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        out.push(length);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out.extend(SRV.to_be_bytes());
    out.extend(INTERNET.to_be_bytes());
    (out.len() < 300).then_some(out)
}

/// Reads an answer to the question `id`.
fn hosts(answer: &[u8], id: [u8; 2]) -> io::Result<Vec<Host>> {
    let malformed = || io::Error::other("the name server's answer is malformed");
    let mut reader = Reader { bytes: answer, at: 0 };
    let [id_read, flags, questions, answers, _, _] = reader.numbers().ok_or_else(malformed)?;
    if id_read != u16::from_be_bytes(id) || flags & 0x8000 == 0 {
        return Err(malformed());
    }
    // NXDOMAIN: there are none.
    match flags & 0xF {
        0 => {}
        3 => return Ok(Vec::new()),
        code => return Err(io::Error::other(format!("the name server fails with code {code}"))),
    }
    let mut read = || -> Option<Vec<Host>> {
        for _ in 0..questions {
            reader.name()?;
            reader.take(4)?;
        }
        let mut hosts = Vec::new();
        for _ in 0..answers {
            reader.name()?;
            let [kind, class, _, _, length] = reader.numbers()?;
            let end = reader.at.checked_add(length.into())?;
            if (kind, class) == (SRV, INTERNET) && hosts.len() < HOSTS {
                let [priority, _weight, port] = reader.numbers()?;
                let name = reader.name()?;
                // The root as a target: the service is decidedly not there.
                if !name.is_empty() {
                    hosts.push(Host { name, port, priority });
                }
            }
            reader.at = end;
        }
        Some(hosts)
    };
    let mut hosts = read().ok_or_else(malformed)?;
    hosts.sort_by_key(|host| host.priority);
    Ok(hosts)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u16; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        }
        Some(numbers)
    }

    /// Reads a name, which may go on at an earlier place.
    fn name(&mut self) -> Option<String> {
        let mut labels: Vec<String> = Vec::new();
        let mut after = None;
        let mut jumps = 0;
        loop {
            let length = self.take(1)?.first().copied()?;
            match length >> 6 {
                0 if length == 0 => break,
                0 => labels.push(String::from_utf8_lossy(self.take(length.into())?).into_owned()),
                3 => {
                    let low = self.take(1)?.first().copied()?;
                    after = after.or(Some(self.at));
                    jumps += 1;
                    if jumps > JUMPS {
                        return None;
                    }
                    self.at = (usize::from(length & 0x3F) << 8) | usize::from(low);
                }
                _ => return None,
            }
            if labels.len() > 128 {
                return None;
            }
        }
        self.at = after.unwrap_or(self.at);
        Some(labels.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with two records, the second of which has a compressed target.
    fn answer() -> Vec<u8> {
        let asked = question([7, 8], "_kerberos._tcp.a.test").unwrap();
        let mut out = [&[7, 8, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0], &asked[12..]].concat();
        let record = |priority: u8, target: &[u8]| {
            let length = 6 + target.len() as u8;
            let head = [0xC0, 12, 0, 33, 0, 1, 0, 0, 0, 9, 0, length, 0, priority, 0, 0, 0, 88];
            [&head[..], target].concat()
        };
        out.extend(record(2, b"\x03dc2\x01b\x04test\x00"));
        // `a.test` begins behind the header, `_kerberos` and `_tcp`.
        out.extend(record(1, b"\x03dc1\xC0\x1B"));
        out
    }

    #[test]
    fn hosts_come_in_the_order_of_their_priority() {
        let found = hosts(&answer(), [7, 8]).unwrap();
        let names: Vec<(&str, u16)> = found.iter().map(|host| (&*host.name, host.port)).collect();
        assert_eq!(names, [("dc1.a.test", 88), ("dc2.b.test", 88)]);
        assert!(hosts(&answer(), [7, 9]).is_err(), "an answer to another question");
        let mut none = answer();
        none[3] |= 3;
        assert!(hosts(&none, [7, 8]).unwrap().is_empty());
        none[3] = 0x82;
        assert!(hosts(&none, [7, 8]).unwrap_err().to_string().contains("code 2"));
    }

    #[test]
    fn odd_answers_are_no_panic() {
        let whole = answer();
        for end in 0..whole.len() {
            assert!(hosts(&whole[..end], [7, 8]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x3F, 0xC0, 0xFF] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = hosts(&changed, [7, 8]);
            }
        }
        // A name that leads to itself.
        let mut circle = whole;
        circle[12] = 0xC0;
        circle[13] = 12;
        assert!(hosts(&circle, [7, 8]).is_err());
    }

    #[test]
    fn names_and_name_servers() {
        for bad in ["", "a..b", &"x".repeat(64), &"a.".repeat(200)] {
            assert!(question([0, 0], bad).is_none(), "{bad}");
        }
        let text =
            "search a\nnameserver 192.0.2.1\n#nameserver 1\nnameserver ::1 # x\nnameserver x\n";
        let found: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1", "::1"]);
        assert_eq!(name_servers(&"nameserver ::1\n".repeat(SERVERS + 1)).len(), SERVERS);
    }
}
