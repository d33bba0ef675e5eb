//! The bind of an RPC association, and its logon: through a pipe as over TCP.

use frevo_auth::initiator::Step;
use frevo_auth::{Initiator, Refusal};
use frevo_rpc::Client as Calls;
use frevo_rpc::client::RpcError;

use crate::ambient::{Ambient, random};
use crate::error::Cause;
use crate::limits::LOGON_ROUNDS;

/// The way of PDUs to a server, and of its answers back.
pub(crate) trait Carrier {
    type Error;

    /// Sends a PDU, and returns the first bytes of its answer.
    async fn exchange(&self, pdu: &[u8]) -> Result<Vec<u8>, Self::Error>;

    /// Returns further bytes of the answer.
    async fn more(&self) -> Result<Vec<u8>, Self::Error>;
}

/// The reason why an association is not bound.
pub(crate) enum NotBound<E> {
    /// The carrier has failed.
    Carrier(E),
    /// The server does not bind: it does not have the interface, or its answer is no good.
    Bind(RpcError),
    /// The server refuses the user. Neither it nor another one is to be asked again, which could lock the account.
    Denied,
    /// The logon has failed on this side.
    Logon(Cause),
}

/// Sends a bind, or a further token of the logon, and takes the whole answer.
pub(crate) async fn bind<C: Carrier>(
    carrier: &C,
    calls: &mut Calls,
    pdu: &[u8],
) -> Result<(), NotBound<C::Error>> {
    let mut answer = carrier.exchange(pdu).await.map_err(NotBound::Carrier)?;
    while !calls.handle_bind_reply(&answer).map_err(NotBound::Bind)? {
        answer = carrier.more().await.map_err(NotBound::Carrier)?;
    }
    Ok(())
}

/// Binds, and logs on. The calls are protected from then on.
pub(crate) async fn log_on<C: Carrier>(
    carrier: &C,
    calls: &mut Calls,
    mut initiator: Initiator,
    ambient: &dyn Ambient,
) -> Result<(), NotBound<C::Error>> {
    let failed = |refusal: Refusal| NotBound::Logon(refusal.into());
    let token = initiator.initial_token(&[], ambient.now().0).map_err(failed)?;
    let mut pdu = calls.bind_with(&token);
    for round in 0..LOGON_ROUNDS {
        bind(carrier, calls, &pdu).await.map_err(|why| match why {
            // Only the answer to a challenge can be wrong.
            NotBound::Bind(RpcError::Fault(_) | RpcError::Refused(_) | RpcError::NotAccepted)
                if round > 0 =>
            {
                NotBound::Denied
            }
            why => why,
        })?;
        match initiator.step(&calls.token(), ambient.now().0).map_err(failed)? {
            Step::Continue(token) => pdu = calls.go_on_with(&token),
            Step::Done(_) => {
                let confounder = random(ambient).map_err(NotBound::Logon)?;
                let protection = initiator.protection(confounder);
                return calls.establish(protection).map_err(NotBound::Bind);
            }
        }
    }
    Err(NotBound::Logon(Cause::Protocol("its logon takes too many rounds")))
}
