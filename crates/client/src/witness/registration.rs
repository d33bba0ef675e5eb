//! One registration at a witness: MS-SWN 3.2.4.

use std::net::IpAddr;
use std::sync::Weak;
use std::time::Duration;

use frevo_rpc::handles::encode_handle;
use frevo_rpc::witness::{
    ASYNC_NOTIFY, GET_INTERFACE_LIST, HandleReply, InterfaceInfo, InterfaceListReply, Notification,
    NotifyReply, REGISTER, REGISTER_EX, Register, RegisterEx, RegisterFlags, UN_REGISTER, Version,
};
use frevo_rpc::{SyntaxId, WinError};
use frevo_wire::ndr::ContextHandle;
use tokio::time::timeout;

use super::patience::{is_for_good, is_of_user};
use super::told::{Names, witnesses};
use super::{NodeInUse, Watched};
use crate::error::Cause;
use crate::limits::{WITNESS_END, WITNESS_KEEP_ALIVE, WITNESS_TRIES};
use crate::rpc_over_tcp::{Association, Caller};

/// A session that is registered at a witness. Dropping it ends the connection, and with it the
/// registration (MS-SWN 3.1.6.5).
pub(super) struct Registration {
    association: Association,
    handle: ContextHandle,
    /// The address of the witness.
    pub(super) by: IpAddr,
    /// The names of the node in use.
    pub(super) names: Names,
}

impl Registration {
    /// Asks the node in use for the interfaces of the cluster, and registers at another node: MS-SWN
    /// 3.2.4.1.
    ///
    /// No witness is at an address that the user has ruled out for `session`. `turn` tells which witness is tried first. Attempts that follow each other go on with the others.
    pub(super) async fn make(
        caller: &Caller,
        place: &NodeInUse,
        session: &Weak<dyn Watched>,
        turn: &mut usize,
    ) -> Result<Self, Cause> {
        let interfaces = interfaces(caller, place).await?;
        let may_be_at = |ip| session.upgrade().is_some_and(|session| session.may_be_at(ip));
        let mut found = witnesses(&interfaces, place, may_be_at);
        let has_more = found.len() > WITNESS_TRIES;
        let first = turn.checked_rem(found.len()).unwrap_or(0);
        found.rotate_left(first);
        *turn = first.wrapping_add(WITNESS_TRIES);
        let names = Names::of(&caller.host, place, &interfaces);
        let mut why = None;
        for by in found.into_iter().take(WITNESS_TRIES) {
            let version = interfaces.iter().find(|one| one.addresses().any(|ip| ip == by));
            let version = version.map_or(Version::V2, |one| one.version);
            match register(caller, place, by, version).await {
                Ok((association, handle)) => {
                    return Ok(Self { association, handle, by, names });
                }
                Err(error) if is_of_user(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!(witness = %by, why = %error, "no registration at this witness");
                    // One witness that is none says nothing about the others.
                    if why.as_ref().is_none_or(is_for_good) {
                        why = Some(error);
                    }
                }
            }
        }
        Err(match why {
            None => Cause::Protocol("it names no other node that is a witness"),
            Some(why) if has_more && is_for_good(&why) => {
                Cause::Protocol("the nodes that were tried are no witnesses")
            }
            Some(why) => why,
        })
    }

    /// Waits for a notification: MS-SWN 3.2.4.2. `None` if there was none for a while.
    pub(super) async fn news(&mut self) -> Result<Option<Notification>, Cause> {
        let stub = encode_handle(&self.handle);
        // MS-SWN 3.2.2: the time limit is the client's own. A witness of version 2 answers before.
        let limit = WITNESS_KEEP_ALIVE + WITNESS_KEEP_ALIVE / 2;
        let late = |_| Cause::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let call = self.association.call(ASYNC_NOTIFY, &stub);
        let answer = timeout(limit, call).await.map_err(late)??;
        let reply = NotifyReply::parse(&answer)?;
        match reply.status {
            WinError::SUCCESS => Ok(reply.notification),
            WinError::TIMEOUT => Ok(None),
            status => Err(refused("wait for notifications", status)),
        }
    }

    /// Ends the registration: MS-SWN 3.2.4.3. A witness that does not answer hears the end of the
    /// connection.
    pub(super) async fn end(mut self) {
        self.association.give_up();
        let stub = encode_handle(&self.handle);
        let _ = timeout(WITNESS_END, self.association.call(UN_REGISTER, &stub)).await;
    }
}

/// Asks the node in use for the interfaces of the cluster.
async fn interfaces(caller: &Caller, place: &NodeInUse) -> Result<Vec<InterfaceInfo>, Cause> {
    let mut node = caller.bind(place.ip, SyntaxId::WITNESS, place.demand).await?;
    let answer = node.ask(GET_INTERFACE_LIST, &[]).await?;
    let reply = InterfaceListReply::parse(&answer)?;
    match reply.status {
        WinError::SUCCESS => Ok(reply.interfaces),
        status => Err(refused("list the interfaces", status)),
    }
}

/// Registers at a witness of this version.
async fn register(
    caller: &Caller,
    place: &NodeInUse,
    by: IpAddr,
    version: Version,
) -> Result<(Association, ContextHandle), Cause> {
    let mut witness = caller.bind(by, SyntaxId::WITNESS, place.demand).await?;
    let some = |text: &str| Some(String::from(text));
    let (net_name, ip_address) = (some(&caller.host), some(&place.ip.to_string()));
    let client_name = some(&caller.options.workstation);
    if version != Version::V1 {
        let stub = RegisterEx {
            version: Version::V2,
            net_name: net_name.clone(),
            share_name: place.share.clone(),
            ip_address: ip_address.clone(),
            client_name: client_name.clone(),
            flags: RegisterFlags::IP_NOTIFICATION,
            keep_alive_seconds: seconds(WITNESS_KEEP_ALIVE),
        };
        let reply = HandleReply::parse(&witness.ask(REGISTER_EX, &stub.encode()).await?)?;
        match reply.status {
            WinError::SUCCESS => return Ok((witness, reply.handle)),
            // MS-SWN 3.1.4.5: the witness has version 1, whatever it told before.
            WinError::REVISION_MISMATCH => {}
            status => return Err(refused("register", status)),
        }
    }
    let stub = Register { version: Version::V1, net_name, ip_address, client_name };
    let reply = HandleReply::parse(&witness.ask(REGISTER, &stub.encode()).await?)?;
    match reply.status {
        WinError::SUCCESS => Ok((witness, reply.handle)),
        status => Err(refused("register", status)),
    }
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn refused(call: &'static str, status: WinError) -> Cause {
    tracing::debug!(call, %status, "the witness refuses a call");
    std::io::Error::other(format!("the witness refuses to {call}: {status}")).into()
}
