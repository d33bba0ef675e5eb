//! RPC over TCP, ncacn_ip_tcp: MS-RPCE 2.1.1.1.
//!
//! The endpoint mapper of a host tells the port of an interface. The calls there are signed or sealed by
//! a logon of their own, by the mechanism that has proved the server of the session: nobody learns more
//! from it than from that logon.

use std::io::ErrorKind::Unsupported;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use frevo_auth::kerberos::InitiatorEntropy;
use frevo_auth::{Entropy, Initiator, Target};
use frevo_net::transport::Stream;
use frevo_rpc::client::RpcError;
use frevo_rpc::epm::{self, Address, EptMap, MapReply, Tower};
use frevo_rpc::{AuthLevel, Client as Calls, SyntaxId};
use frevo_wire::dtyp::FileTime;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::Status;
use crate::ambient::random;
use crate::credentials::Credentials;
use crate::dial::Dial;
use crate::error::Cause;
use crate::limits::{RPC_ANSWER, RPC_BIND, TICKET_WITHIN};
use crate::options::Options;
use crate::rpc_logon::{self, Carrier, NotBound};

/// The port of the endpoint mapper, MS-RPCE 2.1.1.1.
const MAPPER: u16 = 135;
/// Endpoints of one interface that the mapper is asked for.
const ENDPOINTS: u32 = 8;
/// Bytes that are read at once.
const PIECE: usize = 4096;

/// The logon that the calls of an association are protected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// True for Kerberos alone, false for NTLM alone: as the session has it.
    pub(crate) by_kerberos: bool,
    /// True if calls are sealed, false if they are signed.
    pub(crate) is_sealed: bool,
}

/// A user who calls interfaces of the hosts of a server.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) options: Arc<Options>,
    pub(crate) dial: Arc<dyn Dial>,
    /// The name of the server, which all of its hosts can prove.
    pub(crate) host: String,
    pub(crate) credentials: Credentials,
}

impl Caller {
    /// Finds an interface at a host, and binds to it.
    pub(crate) async fn bind(
        &self,
        at: IpAddr,
        interface: SyntaxId,
        demand: Demand,
    ) -> Result<Association, Cause> {
        // The time limit is not one of KDCs, which have limits of their own.
        let initiator = self.initiator(demand).await?;
        in_time(RPC_BIND, async {
            let port = self.port(at, interface).await?;
            let level = match demand.is_sealed {
                true => AuthLevel::PRIVACY,
                false => AuthLevel::INTEGRITY,
            };
            let stream = self.dial.dial_rpc(SocketAddr::new(at, port)).await?;
            let mut calls = Calls::protected(interface, level);
            let ambient = &*self.options.ambient;
            let bound = rpc_logon::log_on(&stream, &mut calls, initiator, ambient).await;
            bound.map_err(not_bound)?;
            Ok(Association { stream, calls })
        })
        .await
    }

    /// Asks the endpoint mapper of a host for the port of an interface. Nothing protects the answer: a
    /// wrong port leads to nobody who can prove the server's name.
    async fn port(&self, at: IpAddr, interface: SyntaxId) -> Result<u16, Cause> {
        let stream = self.dial.dial_rpc(SocketAddr::new(at, MAPPER)).await?;
        let mut calls = Calls::new(SyntaxId::EPM);
        let bind = calls.bind();
        rpc_logon::bind(&stream, &mut calls, &bind).await.map_err(not_bound)?;
        let mut mapper = Association { stream, calls };
        let address = Address::Tcp { port: 0, host: [0; 4] };
        let asked = Tower { interface, transfer: SyntaxId::NDR, address };
        let answer = mapper.call(epm::MAP, &EptMap::new(asked, ENDPOINTS).encode()).await?;
        let found = MapReply::parse(&answer)?.towers.into_iter().find_map(|tower| {
            // MS-RPCE 3.1.3.5.3: the address of the host is ignored.
            match tower.address {
                Address::Tcp { port, .. } if port != 0 && tower.interface == interface => {
                    Some(port)
                }
                _ => None,
            }
        });
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound).into())
    }

    /// Returns the logon of the user by the mechanism that is demanded, and by no other.
    pub(crate) async fn initiator(&self, demand: Demand) -> Result<Initiator, Cause> {
        let ambient = &*self.options.ambient;
        let target = Target {
            // MS-SWN note 11: the name is that of the cluster.
            spn: format!("cifs/{}", self.host),
            channel_bindings: None,
            workstation: self.options.workstation.clone(),
        };
        if !demand.by_kerberos {
            let user = self.credentials.to_auth();
            let user = user.ok_or(Cause::Usage("there is no password for a logon by NTLM"))?;
            let session_key = Zeroizing::new(random(ambient)?);
            let entropy = Entropy { client_challenge: random(ambient)?, session_key };
            return Ok(Initiator::new(user, target, entropy));
        }
        let tickets = self.credentials.tickets();
        let tickets = tickets.ok_or(Cause::Usage("there is no source of Kerberos tickets"))?;
        let ticket = tickets.ticket(ambient, &self.host, FileTime::ZERO);
        let late = |_| Cause::from(io::Error::from(io::ErrorKind::TimedOut));
        let ticket = timeout(TICKET_WITHIN, ticket).await.map_err(late)??;
        let entropy = InitiatorEntropy {
            subkey: random(ambient)?,
            confounders: [random(ambient)?, random(ambient)?],
            sequence: random(ambient)?,
        };
        Ok(Initiator::with_ticket(ticket, target, entropy).with_dce_style())
    }
}

/// A connection that is bound to one interface. Dropping it ends the connection, and with it all that the
/// host keeps for it.
pub(crate) struct Association {
    stream: Stream,
    calls: Calls,
}

impl Association {
    /// Makes a call that is answered soon, and returns the stub data of its answer.
    pub(crate) async fn ask(&mut self, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, Cause> {
        in_time(RPC_ANSWER, self.call(opnum, stub)).await
    }

    /// Makes a call and waits for its answer. After the end of this future without an answer, only
    /// [`Self::give_up`] makes further calls possible.
    pub(crate) async fn call(&mut self, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, Cause> {
        for fragment in self.calls.call(opnum, stub) {
            send(&self.stream, &fragment).await?;
        }
        loop {
            let piece = receive(&self.stream).await?;
            if let Some(answer) = self.calls.handle_bytes(&piece).map_err(cause)? {
                return Ok(answer);
            }
        }
    }

    /// Passes over the answer to the call that is under way.
    pub(crate) const fn give_up(&mut self) {
        self.calls.give_up();
    }
}

impl Carrier for Stream {
    type Error = io::Error;

    async fn exchange(&self, pdu: &[u8]) -> io::Result<Vec<u8>> {
        send(self, pdu).await?;
        receive(self).await
    }

    async fn more(&self) -> io::Result<Vec<u8>> {
        receive(self).await
    }
}

async fn send(stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write_vectored(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.writable().await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the next bytes, which do not get lost if the future is dropped.
async fn receive(stream: &Stream) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE];
    loop {
        stream.readable().await?;
        match stream.try_read_vectored(&mut [IoSliceMut::new(&mut piece)]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                piece.truncate(count);
                return Ok(piece);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The cause for callers. The error ACCESS_DENIED is a host that refuses the user, the error Unsupported one that
/// refuses to bind: it does not have the interface, or refuses the user before it has asked for a proof.
fn not_bound(why: NotBound<io::Error>) -> Cause {
    match why {
        NotBound::Carrier(error) => error.into(),
        NotBound::Bind(RpcError::Fault(_) | RpcError::Refused(_) | RpcError::NotAccepted) => {
            io::Error::from(Unsupported).into()
        }
        NotBound::Bind(error) => cause(error),
        NotBound::Denied => Cause::Status(Status::ACCESS_DENIED),
        NotBound::Logon(cause) => cause,
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Cause>>,
) -> Result<T, Cause> {
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
    timeout(limit, work).await.unwrap_or_else(late)
}

fn cause(error: RpcError) -> Cause {
    tracing::debug!(%error, "RPC over TCP failed");
    match error {
        RpcError::Unprotected => {
            Cause::Security("an RPC answer is not protected as it should be; it may be forged")
        }
        RpcError::Fault(_) | RpcError::Refused(_) | RpcError::NotAccepted => {
            io::Error::other(error.to_string()).into()
        }
        RpcError::Malformed(_) | RpcError::TooLarge => {
            Cause::Protocol("its RPC answer is not valid")
        }
    }
}
