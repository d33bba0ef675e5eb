//! The service witness protocol, MS-SWN, on one association.

use std::net::SocketAddr;
use std::sync::Arc;

use frevo_rpc::witness::{
    self, HandleReply, Interfaces, Key, NotifyReply, Register, RegisterEx, StatusReply, Wish,
};
use frevo_rpc::{Answer, Call, FaultStatus, WinError};
use frevo_wire::ndr::{ContextHandle, NdrReader};

use super::waits::Started;
use crate::objects::audited;
use crate::objects::server::ServerState;
use crate::objects::witness::{Client, Witness};

/// The caller of the interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registrant<'a> {
    pub(super) server: &'a Arc<ServerState>,
    pub(super) user: &'a str,
    /// Address and port.
    pub(super) peer: SocketAddr,
}

/// The state of the interface on one association: the registrations that end with it.
#[derive(Debug, Default)]
pub(super) struct OfAssociation(Option<Registrar>);

/// An association that has registered.
#[derive(Debug)]
struct Registrar {
    witness: Arc<Witness>,
    association: u64,
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.witness.leave(self.association);
    }
}

fn handle_of(stub: &[u8]) -> Result<Key, FaultStatus> {
    let handle = NdrReader::new(stub).handle("Witness context handle")?;
    Ok(Key::of(&handle))
}

impl OfAssociation {
    fn registrar(&mut self, caller: Registrant<'_>) -> &Registrar {
        self.0.get_or_insert_with(|| {
            let witness = Arc::clone(&caller.server.witness);
            let association = witness.new_association();
            Registrar { witness, association }
        })
    }

    fn register(&mut self, wish: Wish, caller: Registrant<'_>) -> Answer {
        let Registrar { witness, association } = self.registrar(caller);
        let client = Client {
            user: caller.user.to_owned(),
            address: caller.peer.ip(),
            since: caller.server.ambient.now(),
        };
        let holder = caller.server.ledger.account(caller.user);
        let mut random = [0; 16];
        caller.server.ambient.random(&mut random);
        let reply = match witness.register(*association, random, wish, client, &holder) {
            Ok(key) => HandleReply { handle: key.handle(), status: WinError::SUCCESS },
            Err(status) => {
                if status == WinError::NO_SYSTEM_RESOURCES {
                    audited::limit(caller.server, caller.peer, "registrations with the witness");
                }
                HandleReply { handle: ContextHandle::NULL, status }
            }
        };
        Ok(reply.encode())
    }

    /// The return value of the end of a registration.
    fn unregister(&self, key: Key) -> WinError {
        let Some(Registrar { witness, association }) = &self.0 else {
            return WinError::INVALID_PARAMETER;
        };
        witness.unregister(key, *association).err().unwrap_or(WinError::SUCCESS)
    }

    fn notify(&self, key: Key) -> Started {
        let begun = match &self.0 {
            Some(Registrar { witness, association }) => witness.notify(key, *association),
            None => Err(WinError::NOT_FOUND),
        };
        match begun {
            Ok(waiting) => {
                Started::Waits(Box::pin(async move { Ok(waiting.answer().await.encode()) }))
            }
            Err(status) => Started::Ended(Ok(NotifyReply { notification: None, status }.encode())),
        }
    }

    /// Starts a call.
    pub(super) fn begin(&mut self, call: &Call, caller: Registrant<'_>) -> Started {
        self.call(call, caller).unwrap_or_else(|fault| Started::Ended(Err(fault)))
    }

    fn call(&mut self, call: &Call, caller: Registrant<'_>) -> Result<Started, FaultStatus> {
        let stub = &*call.stub;
        let ended = match call.opnum {
            witness::GET_INTERFACE_LIST => return Ok(interfaces(caller)),
            witness::ASYNC_NOTIFY => return Ok(self.notify(handle_of(stub)?)),
            witness::REGISTER => self.register(Register::parse(stub)?.into(), caller),
            witness::REGISTER_EX => self.register(RegisterEx::parse(stub)?.into(), caller),
            witness::UN_REGISTER => {
                let status = self.unregister(handle_of(stub)?);
                Ok(StatusReply { status }.encode())
            }
            witness::UN_REGISTER_EX => {
                let key = handle_of(stub)?;
                let status = self.unregister(key);
                // MS-SWN 3.1.4.6: a registration that has ended leaves NULL.
                let is_ended = status == WinError::SUCCESS;
                let handle = if is_ended { ContextHandle::NULL } else { key.handle() };
                Ok(HandleReply { handle, status }.encode())
            }
            _ => Err(FaultStatus::OP_RNG_ERROR),
        };
        Ok(Started::Ended(ended))
    }
}

/// MS-SWN 3.1.4.1: the call waits while no node is up.
fn interfaces(caller: Registrant<'_>) -> Started {
    match caller.server.witness.interfaces_now() {
        Interfaces::Answer(reply) => Started::Ended(Ok(reply.encode())),
        Interfaces::Wait => {
            let witness = Arc::clone(&caller.server.witness);
            Started::Waits(Box::pin(async move { Ok(witness.interfaces().await.encode()) }))
        }
    }
}
