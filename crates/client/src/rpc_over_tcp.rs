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

use frevo_auth::initiator::Step;
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
use crate::limits::{LOGON_ROUNDS, RPC_ANSWER, RPC_BIND, TICKET_WITHIN};
use crate::options::Options;

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
            let calls = Calls::protected(interface, level);
            let mut association = Association { stream, calls };
            association.log_on(initiator, &self.options).await?;
            Ok(association)
        })
        .await
    }

    /// Asks the endpoint mapper of a host for the port of an interface. Nothing protects the answer: a
    /// wrong port leads to nobody who can prove the server's name.
    async fn port(&self, at: IpAddr, interface: SyntaxId) -> Result<u16, Cause> {
        let stream = self.dial.dial_rpc(SocketAddr::new(at, MAPPER)).await?;
        let mut mapper = Association { stream, calls: Calls::new(SyntaxId::EPM) };
        mapper.send(&mapper.calls.bind()).await?;
        mapper.bound().await?;
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
    /// Binds, and logs on. The error ACCESS_DENIED is a host that refuses the user: neither it nor another
    /// one is asked again, as that could lock the account.
    async fn log_on(&mut self, mut initiator: Initiator, options: &Options) -> Result<(), Cause> {
        let ambient = &*options.ambient;
        let token = initiator.initial_token(&[], ambient.now().0)?;
        let mut pdu = self.calls.bind_with(&token);
        for round in 0..LOGON_ROUNDS {
            self.send(&pdu).await?;
            self.bound().await.map_err(|why| match why {
                // Only the answer to a challenge can be wrong.
                Cause::Transport(error) if round > 0 && error.kind() == Unsupported => {
                    Cause::Status(Status::ACCESS_DENIED)
                }
                why => why,
            })?;
            match initiator.step(&self.calls.token(), ambient.now().0)? {
                Step::Continue(token) => pdu = self.calls.go_on_with(&token),
                Step::Done(_) => {
                    let protection = initiator.protection(random(ambient)?);
                    return self.calls.establish(protection).map_err(cause);
                }
            }
        }
        Err(Cause::Protocol("its logon takes too many rounds"))
    }

    /// Waits for the answer to a bind. The error Unsupported is a host that refuses it: it does not have
    /// the interface, or refuses the user.
    async fn bound(&mut self) -> Result<(), Cause> {
        loop {
            let piece = self.receive().await?;
            match self.calls.handle_bind_reply(&piece) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(RpcError::Fault(_) | RpcError::Refused(_) | RpcError::NotAccepted) => {
                    return Err(io::Error::from(Unsupported).into());
                }
                Err(error) => return Err(cause(error)),
            }
        }
    }

    /// Makes a call that is answered soon, and returns the stub data of its answer.
    pub(crate) async fn ask(&mut self, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, Cause> {
        in_time(RPC_ANSWER, self.call(opnum, stub)).await
    }

    /// Makes a call and waits for its answer. After the end of this future without an answer, only
    /// [`Self::give_up`] makes further calls possible.
    pub(crate) async fn call(&mut self, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, Cause> {
        for fragment in self.calls.call(opnum, stub) {
            self.send(&fragment).await?;
        }
        loop {
            let piece = self.receive().await?;
            if let Some(answer) = self.calls.handle_bytes(&piece).map_err(cause)? {
                return Ok(answer);
            }
        }
    }

    /// Passes over the answer to the call that is under way.
    pub(crate) const fn give_up(&mut self) {
        self.calls.give_up();
    }

    async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_write_vectored(&[IoSlice::new(bytes)], false) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next bytes, which do not get lost if the future is dropped.
    async fn receive(&self) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; PIECE];
        loop {
            self.stream.readable().await?;
            match self.stream.try_read_vectored(&mut [IoSliceMut::new(&mut piece)]) {
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
