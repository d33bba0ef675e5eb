//! One probe of a server: a connection over TCP, and a NEGOTIATE that it has to answer. MS-SMB2 3.2.4.2.2.2.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use frevo_config::limits::PROBED_ADDRESSES;
use frevo_proto::frame::FrameLength;
use frevo_proto::limits::FRAME_BEFORE_AUTHENTICATION;
use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate::{self, Dialect, GlobalCapabilities, SecurityMode};
use frevo_wire::dtyp::Guid;
use frevo_wire::header::{Header, HeaderFlags, Route};
use frevo_wire::negotiate_context::{Cipher, HashAlgorithm, NegotiateContext};
use frevo_wire::{Command, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Time for a server to accept the connection and to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The dialects that are offered: all.
const DIALECTS: [Dialect; 5] = [
    Dialect::SMB_2_0_2,
    Dialect::SMB_2_1,
    Dialect::SMB_3_0,
    Dialect::SMB_3_0_2,
    Dialect::SMB_3_1_1,
];

/// Probes the addresses of a server side by side. One that answers is enough.
///
/// # Errors
/// The reason of one of the addresses, if none answers.
pub(super) async fn probe(addresses: &[IpAddr], port: u16) -> Result<(), String> {
    let mut tries = JoinSet::new();
    for address in addresses.iter().take(PROBED_ADDRESSES) {
        let address = SocketAddr::new(*address, port);
        tries.spawn(async move {
            match tokio::time::timeout(PATIENCE, ask(address)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(format!("{}: {error}", address.ip())),
                Err(_) => Err(format!("{}: no answer", address.ip())),
            }
        });
    }
    let mut why = String::from("no address");
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => why = reason,
            Err(_) => {}
        }
    }
    Err(why)
}

/// Connects, sends NEGOTIATE and judges the answer. The connection ends then: nobody logs on.
async fn ask(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = request().ok_or_else(|| io::Error::other("no random bytes"))?;
    let length = FrameLength::prefix(request.len());
    let prefix = length.ok_or_else(|| io::Error::other("a long request"))?;
    stream.write_all(&[&prefix[..], &request].concat()).await?;
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).await?;
    let odd = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let length = FrameLength::parse(prefix, FRAME_BEFORE_AUTHENTICATION)
        .map_err(|_| odd(String::from("its answer is no message of SMB")))?;
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    judge(&message).map_err(odd)
}

/// A NEGOTIATE. None without random bytes.
fn request() -> Option<Vec<u8>> {
    let (mut guid, mut salt) = ([0; 16], [0; 32]);
    getrandom::fill(&mut guid).ok()?;
    getrandom::fill(&mut salt).ok()?;
    let header = Header {
        credit_charge: 0,
        status: Status(0),
        command: Command::NEGOTIATE,
        credits: 1,
        flags: HeaderFlags::EMPTY,
        next_command: 0,
        message_id: 0,
        route: Route::Sync { process_id: 0, tree_id: 0 },
        session_id: 0,
        signature: [0; 16],
    };
    let body = negotiate::Request {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: GlobalCapabilities::ENCRYPTION,
        client_guid: Guid(guid),
        dialects: DIALECTS.to_vec(),
        negotiate_contexts: vec![
            NegotiateContext::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &salt,
            },
            NegotiateContext::Encryption(vec![Cipher::AES_128_GCM, Cipher::AES_128_CCM]),
        ],
    };
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    header.encode(&mut w);
    body.encode(&mut w);
    Some(bytes)
}

/// Judges an answer: a server that serves agrees on a dialect.
fn judge(message: &[u8]) -> Result<(), String> {
    let no_smb = |_| String::from("its answer is no message of SMB");
    let header = Header::parse(message).map_err(no_smb)?;
    if !header.is_response() || header.command != Command::NEGOTIATE || header.message_id != 0 {
        return Err(String::from("its answer is no answer to NEGOTIATE"));
    }
    if header.status != Status::SUCCESS {
        return Err(format!("it answers NEGOTIATE with {}", header.status));
    }
    let response = negotiate::Response::parse(message).map_err(no_smb)?;
    if DIALECTS.contains(&response.dialect_revision) {
        Ok(())
    } else {
        Err(String::from("it has chosen a dialect that was not offered"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(change: impl FnOnce(&mut Header), dialect: Dialect) -> Vec<u8> {
        let mut header = Header::parse(&request().unwrap()).unwrap();
        header.flags = HeaderFlags::SERVER_TO_REDIR;
        change(&mut header);
        let body = negotiate::Response {
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialect_revision: dialect,
            server_guid: Guid::default(),
            capabilities: GlobalCapabilities::EMPTY,
            max_transact_size: 65_536,
            max_read_size: 65_536,
            max_write_size: 65_536,
            system_time: frevo_wire::dtyp::FileTime(0),
            server_start_time: frevo_wire::dtyp::FileTime(0),
            security_buffer: &[],
            negotiate_contexts: Vec::new(),
        };
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        header.encode(&mut w);
        body.encode(&mut w);
        bytes
    }

    #[test]
    fn an_answer_has_to_agree_on_a_dialect() {
        let parsed = negotiate::Request::parse(&request().unwrap()).unwrap().dialects;
        assert_eq!(parsed, DIALECTS);
        assert_eq!(judge(&answer(|_| {}, Dialect::SMB_3_0)), Ok(()));
        let refused = answer(|header| header.status = Status::NOT_SUPPORTED, Dialect::SMB_3_0);
        let requested = answer(|header| header.flags = HeaderFlags::EMPTY, Dialect::SMB_3_0);
        let other = answer(|header| header.command = Command::ECHO, Dialect::SMB_3_0);
        let wildcard = answer(|_| {}, Dialect::WILDCARD);
        let good = answer(|_| {}, Dialect::SMB_3_0);
        for bad in [&refused[..], &requested, &other, &wildcard, &good[..70], b"HTTP/1.1 400", b""]
        {
            assert!(judge(bad).is_err(), "{bad:?}");
        }
    }

    /// A server that accepts and says nothing, or hangs up, does not answer.
    #[tokio::test]
    async fn a_port_alone_is_no_server() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let listener = tokio::net::TcpListener::bind((local, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hang_up = tokio::spawn(async move { drop(listener.accept().await) });
        assert!(probe(&[local], port).await.unwrap_err().starts_with("127.0.0.1: "));
        hang_up.await.unwrap();
        assert!(probe(&[local], port).await.unwrap_err().contains("refused"));
        assert_eq!(probe(&[], port).await, Err(String::from("no address")));
    }
}
