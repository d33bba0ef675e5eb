//! The way to the KDCs of a realm: TCP only, which every KDC speaks and no long reply needs to be
//! asked for twice.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use frevo_auth::kerberos::kdc::Ask;
use frevo_auth::limits::MAX_KDC_MESSAGE_LEN;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::dns;
use super::error::{KerberosError, Reason};
use super::krb5_conf::Krb5Conf;
use crate::ambient::{Ambient, Host};
use crate::limits::{KDC_ANSWER, KDC_CONNECT, KDCS_MAX, PASSWORD_CHANGE_ANSWER};

/// The port of KDCs.
const PORT: u16 = 88;

/// Brings a message to a KDC of its realm and returns the reply. KDCs are tried one after the other.
pub(super) async fn ask(
    conf: &Krb5Conf,
    ambient: &dyn Ambient,
    ask: &Ask,
) -> Result<Vec<u8>, KerberosError> {
    let realm = ask.realm.escape_debug();
    let kdcs = find(conf, ambient, &ask.realm).await.hosts;
    if kdcs.is_empty() {
        return Err(Reason::Unreachable(format!(
            "no KDC of the realm {realm} is known; name it in krb5.conf ([realms] {realm} = {{ kdc = \
             HOST }})"
        ))
        .into());
    }
    let mut last = String::new();
    for (host, port) in &kdcs {
        match exchange(host, *port, &ask.message).await {
            Ok(reply) => return Ok(reply),
            Err(error) => last = format!("{}:{port}: {error}", host.escape_debug()),
        }
    }
    let text =
        format!("no KDC of the realm {realm} answers ({last}); check the network and krb5.conf");
    Err(Reason::Unreachable(text).into())
}

/// The place that names the KDCs of a realm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KdcSource {
    /// krb5.conf.
    Configuration,
    /// DNS, which may have no records.
    Dns,
    /// None: no name server answers.
    DnsSilent,
}

/// The KDCs of a realm, the preferred first. Those of a domain are its controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kdcs {
    /// The place that names them.
    pub source: KdcSource,
    /// Hosts and ports.
    pub hosts: Vec<(String, u16)>,
}

impl Kdcs {
    /// Finds the KDCs of a realm, as a client of Kerberos does.
    pub async fn of(realm: &str) -> Self {
        find(&Krb5Conf::load(), &Host, realm).await
    }

    /// Reads a KDC as krb5.conf and a command line name it: `HOST` or `HOST:PORT`. `None` for a name
    /// that is no host.
    pub fn named(text: &str) -> Option<(String, u16)> {
        parse(text)
    }

    /// Sends a message to one KDC over TCP and returns its reply.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn exchange(host: &str, port: u16, message: &[u8]) -> io::Result<Vec<u8>> {
        exchange(host, port, message).await
    }

    /// Like [`Self::exchange`], for the change of a password: the message is made for this machine's address
    /// on the connection, and the KDC has more time.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn change_password(
        host: &str,
        port: u16,
        message: impl FnOnce(IpAddr) -> Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        let stream = connect(host, port).await?;
        let address = stream.local_addr()?.ip();
        send(stream, &message(address), PASSWORD_CHANGE_ANSWER).await
    }
}

/// Returns the KDCs of a realm: those of krb5.conf, else those of DNS.
async fn find(conf: &Krb5Conf, ambient: &dyn Ambient, realm: &str) -> Kdcs {
    let named: Vec<_> = conf.kdcs(realm).filter_map(parse).take(KDCS_MAX).collect();
    if !named.is_empty() || conf.dns_lookup_kdc == Some(false) {
        return Kdcs { source: KdcSource::Configuration, hosts: named };
    }
    match dns::services(ambient, &format!("_kerberos._tcp.{realm}")).await {
        Some(hosts) => Kdcs { source: KdcSource::Dns, hosts },
        None => Kdcs { source: KdcSource::DnsSilent, hosts: Vec::new() },
    }
}

/// Reads `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`, each perhaps after `tcp/`. `None` for a KDC that is
/// reached in another way.
fn parse(text: &str) -> Option<(String, u16)> {
    let text = text.split_whitespace().next()?;
    let text = match text.split_once('/') {
        None => text,
        Some(("tcp", host)) => host,
        Some(_) => return None,
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        // A text with more than one colon is an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// RFC 4120 section 7.2.2: each message goes after its length.
async fn exchange(host: &str, port: u16, message: &[u8]) -> io::Result<Vec<u8>> {
    send(connect(host, port).await?, message, KDC_ANSWER).await
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    timeout(KDC_CONNECT, TcpStream::connect((host, port))).await.map_err(late)?
}

fn late(_: Elapsed) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

async fn send(mut stream: TcpStream, message: &[u8], limit: Duration) -> io::Result<Vec<u8>> {
    let answer = async {
        let length = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        stream.write_all(&[&length.to_be_bytes()[..], message].concat()).await?;
        let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
        if length > MAX_KDC_MESSAGE_LEN {
            return Err(io::Error::other("the reply is too long"));
        }
        let mut reply = vec![0; length];
        stream.read_exact(&mut reply).await?;
        Ok(reply)
    };
    timeout(limit, answer).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reply_over_tcp() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kdc = (String::from("127.0.0.1"), listener.local_addr().unwrap().port());
        let serve = tokio::spawn(async move {
            for reply in [&[0, 0, 0, 2, 7, 8][..], &[0x10, 0, 0, 0], &[0, 0]] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut question = [0; 7];
                stream.read_exact(&mut question).await.unwrap();
                assert_eq!(question, [0, 0, 0, 3, 1, 2, 3]);
                stream.write_all(reply).await.unwrap();
            }
        });
        assert_eq!(Kdcs::exchange(&kdc.0, kdc.1, &[1, 2, 3]).await.unwrap(), [7, 8]);
        let long = Kdcs::exchange(&kdc.0, kdc.1, &[1, 2, 3]).await.unwrap_err();
        assert!(long.to_string().contains("too long"), "{long}");
        let short = Kdcs::change_password(&kdc.0, kdc.1, |address| {
            assert_eq!(address.to_string(), "127.0.0.1");
            vec![1, 2, 3]
        });
        assert!(short.await.is_err());
        serve.await.unwrap();
    }

    #[test]
    fn names_of_kdcs() {
        for (text, kdc) in [
            ("a.test", Some(("a.test", 88))),
            ("a.test:89", Some(("a.test", 89))),
            ("tcp/a.test:89", Some(("a.test", 89))),
            ("[fe80::1]:90", Some(("fe80::1", 90))),
            ("[fe80::1]", Some(("fe80::1", 88))),
            ("fe80::1", Some(("fe80::1", 88))),
            ("https://proxy/KdcProxy", None),
            ("udp/a.test", None),
            ("a.test:x", None),
            ("", None),
            (":88", None),
        ] {
            let found = parse(text);
            assert_eq!(found.as_ref().map(|(host, port)| (&**host, *port)), kdc, "{text}");
        }
    }
}
