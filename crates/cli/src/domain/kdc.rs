//! Exchanges with domain controllers.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use frevo_auth::kerberos::{EncryptionType, Key, KeyAnswer, KeyQuestion, Principal, ServiceKey};
use frevo_auth::limits::MAX_KEY_ANSWER_LEN;
use frevo_wire::dtyp::FileTime;

use super::dns;

/// The port of a KDC, RFC 4120 section 7.2.
const PORT: u16 = 88;
/// Time for a connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Most controllers that are asked.
const CONTROLLERS: usize = 4;

/// Where the names of the controllers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Join,
    Dns,
    Configuration,
}

/// The controllers of a realm, as `host:port`.
#[derive(Debug)]
pub(super) struct Controllers {
    pub(super) source: Source,
    pub(super) names: Vec<String>,
}

/// Finds the controllers of a realm: the one that was named at the join, or those of DNS, or those
/// of `/etc/krb5.conf`.
///
/// # Errors
/// The reason why there are none.
pub(super) fn find(realm: &str, named: Option<&str>) -> Result<Controllers, String> {
    if let Some(named) = named {
        return Ok(Controllers { source: Source::Join, names: vec![with_port(named)] });
    }
    let service = format!("_kerberos._tcp.{realm}");
    let found = dns::service(&service);
    let names: Vec<String> = found
        .iter()
        .flatten()
        .take(CONTROLLERS)
        .map(|host| format!("{}:{}", host.name, host.port))
        .collect();
    if !names.is_empty() {
        return Ok(Controllers { source: Source::Dns, names });
    }
    let text = std::fs::read_to_string("/etc/krb5.conf").unwrap_or_default();
    let names = configured(&text, realm);
    if !names.is_empty() {
        return Ok(Controllers { source: Source::Configuration, names });
    }
    Err(match found {
        Ok(_) => format!(
            "DNS has no records {service}; let this host use the name servers of the domain, or join \
             with --controller"
        ),
        Err(error) => format!("DNS does not answer: {error}; check /etc/resolv.conf"),
    })
}

fn with_port(name: &str) -> String {
    let has_port = name.rsplit_once(':').is_some_and(|(host, port)| {
        (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
    });
    match has_port {
        true => name.to_owned(),
        false if name.contains(':') && !name.starts_with('[') => format!("[{name}]:{PORT}"),
        false => format!("{name}:{PORT}"),
    }
}

/// The values of `kdc` of a realm in the text of a krb5.conf.
fn configured(text: &str, realm: &str) -> Vec<String> {
    let (mut is_realms, mut is_ours) = (false, false);
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            (is_realms, is_ours) = (line == "[realms]", false);
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_realms) else {
            is_ours &= line != "}";
            continue;
        };
        match (key.trim(), value.trim()) {
            (name, value) if value.starts_with('{') => is_ours = name == realm,
            ("kdc", value) if is_ours => found.push(with_port(value)),
            _ => {}
        }
    }
    found.truncate(CONTROLLERS);
    found
}

/// Questions about the keys of one account, to one controller.
pub(super) struct Asking<'a> {
    pub(super) controller: &'a str,
    pub(super) client: &'a Principal,
    pub(super) server: &'a Principal,
    pub(super) etypes: &'a [EncryptionType],
    pub(super) keys: &'a [ServiceKey],
}

impl Asking<'_> {
    /// Asks, and proves `key` where one is given.
    pub(super) fn ask(&self, key: Option<&Key>, now: FileTime) -> io::Result<KeyAnswer> {
        let mut random = [0; 20];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let (confounder, nonce) = random.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        let nonce = nonce.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let Self { client, server, etypes, .. } = *self;
        let question = KeyQuestion { client, server, etypes, nonce, now };
        let answer = exchange(self.controller, &question.encode(key.map(|key| (key, confounder))))?;
        KeyAnswer::parse(&answer, self.keys)
            .map_err(|malformed| io::Error::other(format!("malformed answer: {malformed}")))
    }
}

/// Sends a message over TCP and returns the answer, RFC 4120 section 7.2.2.
fn exchange(controller: &str, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut failed = io::Error::other("the name has no address");
    for address in controller.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return exchange_over(stream, message),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn exchange_over(mut stream: TcpStream, message: &[u8]) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > MAX_KEY_ANSWER_LEN {
        return Err(io::Error::other("the answer is too long"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_of_krb5_conf() {
        let text = "[libdefaults]\n kdc = no\n[realms]\n B = {\n  kdc = b\n }\n A.TEST = {\n  kdc = dc1\n  \
                    kdc=dc2:750\n  admin_server = x\n }\n kdc = no\n[other]\n A.TEST = {\n kdc = no\n }\n";
        assert_eq!(configured(text, "A.TEST"), ["dc1:88", "dc2:750"]);
        assert!(configured(text, "C").is_empty());
        for (name, whole) in [
            ("dc1", "dc1:88"),
            ("192.0.2.1", "192.0.2.1:88"),
            ("2001:db8::1", "[2001:db8::1]:88"),
            ("[2001:db8::1]:750", "[2001:db8::1]:750"),
        ] {
            assert_eq!(with_port(name), whole);
        }
    }

    #[test]
    fn an_answer_over_tcp() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = std::thread::spawn(move || {
            for answer in [&[0, 0, 0, 2, 7, 8][..], &[0, 1, 0, 0], &[0, 0]] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 7];
                stream.read_exact(&mut question).unwrap();
                assert_eq!(question, [0, 0, 0, 3, 1, 2, 3]);
                stream.write_all(answer).unwrap();
            }
        });
        assert_eq!(exchange(&address, &[1, 2, 3]).unwrap(), [7, 8]);
        assert!(exchange(&address, &[1, 2, 3]).unwrap_err().to_string().contains("too long"));
        assert!(exchange(&address, &[1, 2, 3]).is_err());
        serve.join().unwrap();
    }
}
