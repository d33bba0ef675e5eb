//! The data of READ and WRITE that moves by RDMA: MS-SMB2 3.3.5.12, 3.3.5.13.
//!
//! Handlers may run on any thread, but only the connection's core reaches its endpoint. So the data
//! of a WRITE is fetched before its handler runs, and that of a READ is put into the client's memory
//! when its handler has ended.

use std::io;
use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::rdma::{Endpoint, RemoteBuffer};
use frevo_wire::command::write;
use frevo_wire::smbd::BufferDescriptor;
use frevo_wire::{Command, Status};

use super::Connection;
use crate::command::client_memory;
use crate::limits::REPLY_OVERHEAD;
use crate::refusal::{Doom, Outcome, Refusal};
use crate::request::Request;
use crate::response::RemoteData;

impl Connection {
    /// Sets the endpoint of a connection of SMB Direct.
    pub(super) fn over(mut self, endpoint: Option<&Arc<Endpoint>>) -> Self {
        self.rdma = endpoint.map(Arc::clone);
        self.charge_memory();
        self
    }

    /// Gives a client that has logged on more credits of SMB Direct, and charges its account with
    /// the registered memory.
    pub(super) fn trust(&self) {
        if self.rdma.is_some() && self.is_authenticated() {
            let is_first = !self.is_trusted.replace(true);
            self.charge_memory();
            if let Some(endpoint) = self.rdma.as_ref().filter(|_| is_first) {
                endpoint.trust();
            }
        }
    }

    /// Has registered memory count for the holder of the connection's buffers.
    fn charge_memory(&self) {
        let holder = self.tabs.holder();
        if let Some(endpoint) = &self.rdma
            && !Arc::ptr_eq(&*self.registers_for.borrow(), &holder.registered)
        {
            endpoint.belong_to(&holder.registered);
            *self.registers_for.borrow_mut() = Arc::clone(&holder.registered);
        }
    }

    /// Bytes that are registered for RDMA.
    pub(super) fn registered_bytes(&self) -> usize {
        self.rdma.as_ref().map_or(0, |endpoint| endpoint.held_bytes())
    }

    /// The largest payload of a response: all of it is one message of SMB Direct, whose length the
    /// client has bounded.
    pub(super) fn payload_max(&self, max: usize) -> usize {
        let Some(endpoint) = &self.rdma else { return max };
        max.min((endpoint.message_max() as usize).saturating_sub(REPLY_OVERHEAD))
    }

    /// Fetches the data of a WRITE from the client's memory. None where there is none to fetch, or
    /// the handler will refuse the request.
    pub(super) async fn fetch(&self, rq: &Request<'_>) -> Result<Option<Buf>, Refusal> {
        let Some(endpoint) = &self.rdma else { return Ok(None) };
        if rq.header.command != Command::WRITE {
            return Ok(None);
        }
        let Ok(request) = write::Request::parse(rq.message) else { return Ok(None) };
        let Ok(Some(memory)) = client_memory::of_write(rq, &request) else { return Ok(None) };
        let length = request.remaining_bytes;
        if length > endpoint.transfer_max() || rq.check_charge(length).is_err() {
            return Ok(None);
        }
        let remote = remote(&memory.buffers);
        let fetched = endpoint.read_from_peer(length as usize, &remote).await;
        tracing::trace!(target: "frevo::rdma", peer = %self.info.peer, length, "fetched by RDMA");
        fetched.map(Some).map_err(|error| refusal(&error))
    }

    /// Puts the data of a READ into the client's memory. The response, which is sent later, arrives
    /// behind it.
    pub(super) async fn deliver(&self, data: RemoteData, outcome: Outcome) -> Outcome {
        let status = outcome?;
        let endpoint = self.rdma.as_ref().ok_or(Status::INTERNAL_ERROR)?;
        let length = data.bytes.len();
        tracing::trace!(target: "frevo::rdma", peer = %self.info.peer, length, "delivered by RDMA");
        let delivered = endpoint.write_to_peer(data.bytes, &remote(&data.buffers)).await;
        delivered.map(|()| status).map_err(|error| refusal(&error))
    }
}

fn remote(buffers: &[BufferDescriptor]) -> Vec<RemoteBuffer> {
    let remote = |buffer: &BufferDescriptor| RemoteBuffer {
        address: buffer.offset,
        key: buffer.token,
        length: buffer.length,
    };
    buffers.iter().map(remote).collect()
}

/// The answer to a transfer that failed. After a failure of the device the connection is lost.
fn refusal(error: &io::Error) -> Refusal {
    let is_short = error.kind() == io::ErrorKind::OutOfMemory
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOMEM);
    if is_short {
        return Status::INSUFFICIENT_RESOURCES.into();
    }
    Refusal::Disconnect(Doom::Late("an RDMA transfer failed"))
}
