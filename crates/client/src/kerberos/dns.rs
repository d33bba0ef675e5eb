//! SRV records of DNS (RFC 2782), by which a domain names its KDCs. What they say needs no proof: a
//! reply of a false KDC is refused.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use frevo_wire::codec::{Malformed, Parsed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::files;
use crate::ambient::Ambient;
use crate::limits::{DNS_ANSWER, DNS_BYTES, DNS_SERVERS, KDCS_MAX, KRB5_CONF_BYTES};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const SRV: u16 = 33;
const INTERNET: u16 = 1;
/// QR and RCODE of the flags (RFC 1035 section 4.1.1), and TC of their first byte.
const RESPONSE: u16 = 0x8000;
const RCODE: u16 = 0xf;
const NAME_ERROR: u16 = 3;
const TRUNCATED: u8 = 2;
/// Most labels and pointers of a name.
const NAME_STEPS: usize = 128;

/// Returns hosts and ports of a service, in the order in which they are to be tried.
pub(super) async fn services(ambient: &dyn Ambient, name: &str) -> Option<Vec<(String, u16)>> {
    let mut id = [0; 2];
    if !ambient.random(&mut id) {
        return None;
    }
    let question = question(id, name)?;
    for server in servers() {
        match timeout(DNS_ANSWER, exchange(server, &question)).await {
            // If a name server does not answer or fails, the next one is asked.
            Ok(Ok(answer)) => match parse(&answer) {
                Ok(found) => return Some(found),
                Err(error) => tracing::debug!(%server, %error, "no answer of DNS"),
            },
            Ok(Err(error)) => tracing::debug!(%server, %error, "no answer of DNS"),
            Err(_elapsed) => tracing::debug!(%server, "DNS is silent"),
        }
    }
    None
}

/// The name servers of this machine.
fn servers() -> Vec<SocketAddr> {
    let text = files::read(Path::new(RESOLV_CONF), KRB5_CONF_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = words.next() == Some("nameserver");
        words.next().filter(|_| is_one)?.parse::<IpAddr>().ok()
    };
    let found = text.lines().filter_map(address).take(DNS_SERVERS);
    found.map(|address| SocketAddr::new(address, 53)).collect()
}

async fn exchange(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; DNS_BYTES];
    loop {
        let length = socket.recv(&mut answer).await?;
        // The answer to an earlier question may arrive late; its id differs, so it is skipped.
        if answer.get(..2) == question.get(..2) {
            answer.truncate(length);
            break;
        }
    }
    if answer.get(2).is_some_and(|flags| flags & TRUNCATED != 0) {
        return over_tcp(server, question).await;
    }
    Ok(answer)
}

/// Asks again for an answer that is too long for UDP, as that of a domain with many controllers is
/// (RFC 1035 section 4.2.2).
async fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    // The length field has 16 bits, so the answer has at most 64 KiB.
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    if answer.get(..2) != question.get(..2) {
        return Err(io::Error::other("an answer to another question"));
    }
    Ok(answer)
}

/// Makes the question for SRV records.
fn question(id: [u8; 2], name: &str) -> Option<Vec<u8>> {
    // The header holds the id, the flag "recursion desired" (RD) and the count of one question.
    let mut bytes = [&id[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(SRV.to_be_bytes());
    bytes.extend(INTERNET.to_be_bytes());
    (bytes.len() <= 271).then_some(bytes)
}

/// Reads an answer. A name that does not exist has no hosts.
fn parse(bytes: &[u8]) -> Parsed<Vec<(String, u16)>> {
    let mut reader = Reader { bytes, at: 2 };
    let flags = reader.u16()?;
    match flags & RCODE {
        _ if flags & RESPONSE == 0 => return Err(Reader::FAULT),
        0 => {}
        NAME_ERROR => return Ok(Vec::new()),
        _ => return Err(Reader::FAULT),
    }
    let (questions, answers) = (reader.u16()?, reader.u16()?);
    reader.at = 12;
    for _ in 0..questions {
        reader.name()?;
        reader.skip(4)?;
    }
    let mut found: Vec<(u16, u16, String, u16)> = Vec::new();
    for _ in 0..answers {
        reader.name()?;
        let (kind, class) = (reader.u16()?, reader.u16()?);
        reader.skip(4)?;
        let length = usize::from(reader.u16()?);
        let next = reader.at.saturating_add(length);
        if (kind, class) == (SRV, INTERNET) && found.len() < KDCS_MAX {
            let (priority, weight, port) = (reader.u16()?, reader.u16()?, reader.u16()?);
            let host = reader.name()?;
            // RFC 2782: the target "." means that the service does not exist.
            if !host.is_empty() {
                found.push((priority, u16::MAX - weight, host, port));
            }
        }
        reader.at = next;
    }
    found.sort_by_key(|(priority, weight, ..)| (*priority, *weight));
    Ok(found.into_iter().map(|(_, _, host, port)| (host, port)).collect())
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    const FAULT: Malformed = Malformed::new("answer of DNS");

    fn u8(&mut self) -> Parsed<u8> {
        let byte = self.bytes.get(self.at).copied().ok_or(Self::FAULT)?;
        self.at += 1;
        Ok(byte)
    }

    fn u16(&mut self) -> Parsed<u16> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn skip(&mut self, count: usize) -> Parsed<()> {
        self.at = self.at.checked_add(count).ok_or(Self::FAULT)?;
        Ok(())
    }

    /// Reads a name, which may go on at an earlier place (RFC 1035 section 4.1.4).
    fn name(&mut self) -> Parsed<String> {
        let mut name = String::new();
        let mut after = None;
        for _ in 0..NAME_STEPS {
            let length = self.u8()?;
            match length {
                0 => {
                    self.at = after.unwrap_or(self.at);
                    return Ok(name);
                }
                0xc0.. => {
                    let at = usize::from(u16::from_be_bytes([length & 0x3f, self.u8()?]));
                    after = after.or(Some(self.at));
                    self.at = at;
                }
                1..64 => {
                    let end = self.at + usize::from(length);
                    let label = self.bytes.get(self.at..end).ok_or(Self::FAULT)?;
                    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                    if !label.iter().all(is_host) || name.len() > 255 {
                        return Err(Self::FAULT);
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.push_str(&String::from_utf8_lossy(label));
                    self.at = end;
                }
                _ => return Err(Self::FAULT),
            }
        }
        Err(Self::FAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "_kerberos._tcp.FREVO.TEST";

    /// Makes the answer with these records, whose hosts end in the question's name.
    fn answer(records: &[(u16, u16, u16, &str)]) -> Vec<u8> {
        let mut bytes = question([7, 8], NAME).unwrap();
        bytes[2] |= 0x80;
        bytes[7] = records.len() as u8;
        for (priority, weight, port, host) in records {
            // In this answer the question's name is at offset 12, and its last two labels, at 27,
            // are used by pointers.
            bytes.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 3, 132]);
            let mut data =
                [priority.to_be_bytes(), weight.to_be_bytes(), port.to_be_bytes()].concat();
            if !host.is_empty() {
                data.push(host.len() as u8);
                data.extend(host.as_bytes());
                data.extend([0xc0, 27]);
            } else {
                data.push(0);
            }
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    #[test]
    fn records_in_their_order() {
        let bytes = answer(&[(10, 5, 88, "c"), (0, 1, 89, "b"), (0, 100, 88, "a"), (0, 0, 0, "")]);
        let found = parse(&bytes).unwrap();
        let hosts: Vec<_> = found.iter().map(|(host, port)| (&**host, *port)).collect();
        assert_eq!(hosts, [("a.FREVO.TEST", 88), ("b.FREVO.TEST", 89), ("c.FREVO.TEST", 88)]);
        assert_eq!(parse(&answer(&[])).unwrap(), []);
        let many = vec![(0, 0, 88, "a"); KDCS_MAX + 3];
        assert_eq!(parse(&answer(&many)).unwrap().len(), KDCS_MAX);
    }

    /// A server whose answer over UDP is truncated is asked over TCP, on the same port.
    #[tokio::test]
    async fn a_long_answer_comes_over_tcp() {
        let asked = question([7, 8], NAME).unwrap();
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(server).await.unwrap();
        let whole = answer(&[(0, 0, 88, "a"); 20]);
        let sent = whole.clone();
        let serving = tokio::spawn(async move {
            let mut room = [0; 512];
            let (length, client) = udp.recv_from(&mut room).await.unwrap();
            room[2] |= 0x80 | TRUNCATED;
            udp.send_to(&room[..length], client).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let length = usize::from(stream.read_u16().await.unwrap());
            stream.read_exact(&mut room[..length]).await.unwrap();
            stream.write_u16(u16::try_from(sent.len()).unwrap()).await.unwrap();
            stream.write_all(&sent).await.unwrap();
            room[..length].to_vec()
        });
        assert_eq!(exchange(server, &asked).await.unwrap(), whole);
        assert_eq!(serving.await.unwrap(), asked);
    }

    #[test]
    fn odd_answers_are_refused() {
        let good = answer(&[(10, 5, 88, "c"), (0, 1, 89, "b")]);
        for cut in 0..good.len() {
            // A prefix of the answer, or an answer with one changed byte, may be refused but must
            // not panic.
            let _ = parse(&good[..cut]);
            for byte in [0, 1, 0x3f, 0x40, 0xc0, 0xff] {
                let mut odd = good.clone();
                odd[cut] = byte;
                let _ = parse(&odd);
            }
        }
        // Response code 3 (no such name) means no hosts; a message without the response bit is
        // refused.
        let with = |at: usize, byte: u8| {
            let mut changed = good.clone();
            changed[at] = byte;
            parse(&changed)
        };
        assert_eq!(with(3, 3).unwrap(), []);
        assert!(with(3, 2).is_err() && with(3, 5).is_err() && with(2, 1).is_err());
        // The name is a compression pointer to itself, which must not loop.
        let mut circle = good;
        let at = circle.len() - 2;
        circle.splice(at.., [0xc0, at as u8]);
        assert!(parse(&circle).is_err());
        assert!(question([0; 2], "a..b").is_none());
        assert!(question([0; 2], &"a".repeat(64)).is_none());
        assert!(question([0; 2], &vec!["a".repeat(60); 5].join(".")).is_none());
    }
}
