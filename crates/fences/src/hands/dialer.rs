//! Connections of etcd's client by the process with rights.

use frevo_etcd::client::{Dialer, Dialing, Endpoint};

use super::server_end::Hands;

/// Makes the connections of a client whose endpoints are those of the set-up, in its order.
#[derive(Debug, Clone)]
pub struct HandsDialer(pub Hands);

impl Dialer for HandsDialer {
    fn dial<'a>(&'a self, at: usize, _: &'a Endpoint) -> Dialing<'a> {
        Box::pin(self.0.dial(at))
    }
}
