//! The dialer: a connection by SMB1, with a bridge before it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use frevo_client::ServerName;
use frevo_client::internal::{Dial, Dialing};
use frevo_net::transport::Stream;
use frevo_net::{memory, socket};
use frevo_smb1::message::PREFIX_LEN;
use frevo_smb1::netbios::{ANY_SERVER, Packet, SESSION_PORT, session_request};
use tokio::time::timeout;

use crate::bridge::Bridge;
use crate::limits::{ANSWER_WITHIN, BRIDGE_BYTES, DIAL_WITHIN};
use crate::logon::{Logon, Reached};
use crate::names;
use crate::stream::{read_exactly, write_all};

/// The port of SMB without NetBIOS.
const DIRECT_PORT: u16 = 445;

/// The name of this client in the session service.
const CALLING: &str = "FREVO";

/// Makes connections by SMB1, as one user.
#[derive(Debug)]
pub(crate) struct Smb1Dialer {
    logon: Arc<Logon>,
}

impl Smb1Dialer {
    pub(crate) fn new(logon: Logon) -> Self {
        Self { logon: Arc::new(logon) }
    }

    /// Connects to a server: at the port that the user named, else without NetBIOS, else with it.
    async fn reach(&self, server: &ServerName) -> io::Result<Reached> {
        let host = &server.host;
        if let Some(port) = server.port {
            return self.reach_port(host, port).await;
        }
        match self.reach_port(host, DIRECT_PORT).await {
            Err(error) if is_unreachable(&error) => {
                self.reach_port(host, SESSION_PORT).await.map_err(|_| error)
            }
            reached => reached,
        }
    }

    async fn reach_port(&self, host: &str, port: u16) -> io::Result<Reached> {
        let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
        let is_weak = self.logon.settings.weak_logon;
        for address in names::resolve(&*self.logon.ambient, host, port, is_weak).await? {
            match self.reach_address(host, address).await {
                Ok(reached) => return Ok(reached),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn reach_address(&self, host: &str, address: SocketAddr) -> io::Result<Reached> {
        let stream = connect(address).await?;
        if address.port() != SESSION_PORT {
            return self.logon.negotiate(stream).await;
        }
        let first = if host.parse::<IpAddr>().is_ok() { ANY_SERVER } else { host };
        let stream = match grant(stream, first).await {
            Ok(stream) => stream,
            // Some servers grant a session to their own name alone.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let name = names::name_of(&*self.logon.ambient, address.ip()).await;
                let name = name.map_err(|_| error)?;
                grant(connect(address).await?, &name).await?
            }
            Err(error) => return Err(error),
        };
        self.logon.negotiate(stream).await
    }
}

/// Returns true for an error that another port may not have.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::TimedOut | ErrorKind::ConnectionReset
    )
}

async fn connect(address: SocketAddr) -> io::Result<Stream> {
    match timeout(DIAL_WITHIN, socket::connect(address, None)).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(ErrorKind::TimedOut.into()),
    }
}

/// Asks for a session of the server with this name, RFC 1002 4.3.
async fn grant(stream: Stream, name: &str) -> io::Result<Stream> {
    let asking = async {
        write_all(&stream, &[&session_request(name, CALLING)]).await?;
        let mut prefix = [0; PREFIX_LEN];
        read_exactly(&stream, &mut prefix).await?;
        let packet = Packet::parse(prefix);
        match packet.map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))? {
            Packet::Positive => Ok(()),
            // Deviation: RFC 1002 4.3.5 leads to another address, to which no user wanted to log on.
            Packet::Negative | Packet::Retarget => {
                let text = format!("the server grants no session to the name {name}");
                Err(io::Error::new(ErrorKind::ConnectionRefused, text))
            }
            Packet::Message(_) | Packet::KeepAlive => Err(ErrorKind::InvalidData.into()),
        }
    };
    match timeout(ANSWER_WITHIN, asking).await {
        Ok(granted) => granted.map(|()| stream),
        Err(_elapsed) => Err(ErrorKind::TimedOut.into()),
    }
}

impl Dial for Smb1Dialer {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let reached = self.reach(server).await?;
            let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let addresses = [address(0), address(DIRECT_PORT)];
            let (near, far) = memory::pair(BRIDGE_BYTES, addresses);
            near.keep_memory();
            let (logon, host) = (Arc::clone(&self.logon), server.host.clone());
            tokio::spawn(Bridge::new(reached, logon, host, Stream::Memory(far)).serve());
            Ok(Stream::Memory(near))
        })
    }
}
