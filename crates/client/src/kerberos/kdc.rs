//! The way to the KDCs of a realm: TCP only, which every KDC speaks and no long reply needs to be
//! asked for twice.

use std::io;

use frevo_auth::kerberos::kdc::Ask;
use frevo_auth::limits::MAX_KDC_MESSAGE_LEN;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dns;
use super::error::{KerberosError, Reason};
use super::krb5_conf::Krb5Conf;
use crate::ambient::Ambient;
use crate::limits::{KDC_ANSWER, KDC_CONNECT, KDCS_MAX};

/// The port of KDCs.
const PORT: u16 = 88;

/// Brings a message to a KDC of its realm and returns the reply. KDCs are tried one after the other.
pub(super) async fn ask(
    conf: &Krb5Conf,
    ambient: &dyn Ambient,
    ask: &Ask,
) -> Result<Vec<u8>, KerberosError> {
    let realm = ask.realm.escape_debug();
    let kdcs = find(conf, ambient, &ask.realm).await;
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

/// Returns the KDCs of a realm: those of krb5.conf, else those of DNS.
async fn find(conf: &Krb5Conf, ambient: &dyn Ambient, realm: &str) -> Vec<(String, u16)> {
    let named: Vec<_> = conf.kdcs(realm).filter_map(parse).take(KDCS_MAX).collect();
    if !named.is_empty() || conf.dns_lookup_kdc == Some(false) {
        return named;
    }
    dns::services(ambient, &format!("_kerberos._tcp.{realm}")).await.unwrap_or_default()
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
        // More than one colon: an address of IPv6.
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
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let mut stream =
        timeout(KDC_CONNECT, TcpStream::connect((host, port))).await.map_err(late)??;
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
    timeout(KDC_ANSWER, answer).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

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
