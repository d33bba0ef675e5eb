//! The listeners of a server over all transports.
//!
//! Each transport has its place in two steps, before and after the process is confined. Before, sockets
//! are made, because a confined process makes none (ARCHITECTURE.md, decision 7). After, devices are
//! opened whose driver takes calls only with the credentials with which they were opened: confinement
//! changes those.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use frevo_net::transport::Listener;

use super::listen::ListeningSockets;
use super::plan::Plan;
use super::quic::Quic;
use super::rdma;
use crate::arguments::Serve;
use crate::exit::{Done, Failure};

/// The listeners of all transports, of which some are not open yet.
pub(super) struct Listeners {
    /// The TCP sockets.
    pub(super) sockets: ListeningSockets,
    /// The address that clients are most likely to reach: to find it takes a socket.
    pub(super) address: SocketAddr,
    /// The listeners of QUIC.
    pub(super) quic: Quic,
}

impl Listeners {
    /// Makes what a confined process cannot make: sockets, of which those of an earlier server,
    /// `replaced`, are used where their address is wanted, and code that has to be loaded.
    pub(super) fn prepare(plan: &Plan, replaced: Vec<OwnedFd>) -> Result<Self, Failure> {
        let sockets = ListeningSockets::open(&plan.config.server.listen, replaced)?;
        rdma::prepare(plan)?;
        let address = sockets.best_address();
        Ok(Self { sockets, address, quic: Quic::default() })
    }

    /// Listens for QUIC, once no earlier server does.
    pub(super) fn prepare_quic(&mut self, plan: &Plan) -> Done {
        self.quic = Quic::open(plan)?;
        Ok(())
    }

    /// Opens the devices, after the process was confined, and returns all listeners.
    pub(super) fn open(
        &mut self,
        plan: &Plan,
        arguments: &Serve,
    ) -> Result<Vec<Listener>, Failure> {
        let tcp = std::mem::take(&mut self.sockets.listeners);
        let mut all: Vec<Listener> = tcp.into_iter().map(Listener::from).collect();
        all.extend(rdma::listen(plan, arguments, &self.sockets.addresses)?.map(Listener::from));
        all.extend(std::mem::take(&mut self.quic.listeners).into_iter().map(Listener::from));
        Ok(all)
    }
}
