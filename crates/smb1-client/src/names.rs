//! NetBIOS names: a server that DNS does not know, and the name by which a server grants a session.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use frevo_client::internal::Ambient;
use frevo_smb1::netbios::{NAME_PORT, addresses, name_query, server_name, status_query};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use crate::limits::{DATAGRAM_BYTES_MAX, NAME_WITHIN};

/// Longest NetBIOS name, bytes.
const NAME_BYTES: usize = 15;

/// Returns the addresses of a host: those that the system knows, else those that answer to its name.
/// A name that only such an answer resolves is refused with `is_weak`: anyone can answer, and would get
/// the password.
pub(crate) async fn resolve(
    ambient: &dyn Ambient,
    host: &str,
    port: u16,
    is_weak: bool,
) -> io::Result<Vec<SocketAddr>> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(found.collect()),
        // A resolver that fails for a while does not say that the name is unknown.
        Err(error)
            if is_weak
                || host.len() > NAME_BYTES
                || host.contains('.')
                || error.to_string().contains("Temporary") =>
        {
            Err(error)
        }
        Err(error) => {
            let found = ask_everyone(ambient, host).await.unwrap_or_default();
            if found.is_empty() {
                return Err(error);
            }
            tracing::warn!(%host, addresses = ?found, "DNS does not know the host; this one answers to its name");
            Ok(found.into_iter().map(|ip| SocketAddr::new(IpAddr::V4(ip), port)).collect())
        }
    }
}

/// Asks all hosts of the network for the addresses of a name.
async fn ask_everyone(ambient: &dyn Ambient, host: &str) -> io::Result<Vec<Ipv4Addr>> {
    let id = number(ambient)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.set_broadcast(true)?;
    let to = SocketAddr::from((Ipv4Addr::BROADCAST, NAME_PORT));
    ask(&socket, to, &name_query(id, host), |packet, _| addresses(packet, id).ok()).await
}

/// Returns the name of the file server at an address.
pub(crate) async fn name_of(ambient: &dyn Ambient, address: IpAddr) -> io::Result<String> {
    let id = number(ambient)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    let to = SocketAddr::new(address, NAME_PORT);
    let read = |packet: &[u8], from: SocketAddr| {
        if from.ip() == address { server_name(packet, id).ok()? } else { None }
    };
    ask(&socket, to, &status_query(id), read).await
}

fn number(ambient: &dyn Ambient) -> io::Result<u16> {
    let mut bytes = [0; 2];
    if !ambient.random(&mut bytes) {
        return Err(io::Error::other("the system provides no random numbers"));
    }
    Ok(u16::from_ne_bytes(bytes))
}

/// Sends a question, and returns the first answer to it.
async fn ask<T>(
    socket: &UdpSocket,
    to: SocketAddr,
    question: &[u8],
    read: impl Fn(&[u8], SocketAddr) -> Option<T>,
) -> io::Result<T> {
    socket.send_to(question, to).await?;
    let until = Instant::now() + NAME_WITHIN;
    let mut packet = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = timeout_at(until, socket.recv_from(&mut packet)).await;
        let (count, from) = received.map_err(|_| io::Error::from(ErrorKind::TimedOut))??;
        if let Some(found) = read(packet.get(..count).unwrap_or_default(), from) {
            return Ok(found);
        }
    }
}
