//! The data of READ and WRITE that moves by RDMA: MS-SMB2 3.3.5.12, 3.3.5.13.
//!
//! Handlers may run on any thread, but only the connection's core reaches its endpoint. So the data
//! of a WRITE is fetched before its handler runs, and that of a READ is put into the client's memory
//! when its handler has ended.

use std::io;
use std::sync::Arc;

use frevo_crypto::{DataNonce, Sender};
use frevo_net::buffer::Buf;
use frevo_net::rdma::{Endpoint, RemoteBuffer};
use frevo_proto::rdma_transform::DataProof;
use frevo_wire::command::read::{self, Channel as Way, ReadResponseFlags};
use frevo_wire::command::write;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::rdma_transform::{RdmaTransform, RdmaTransformType};
use frevo_wire::smbd::BufferDescriptor;
use frevo_wire::{Command, Status};

use super::Connection;
use super::direct::Direct;
use crate::base::limits::REPLY_OVERHEAD;
use crate::command::client_memory::{self, DataTransform};
use crate::command::request::Request;
use crate::command::response::{RemoteData, Response};
use crate::objects::channel::Channel;
use crate::objects::refusal::{Doom, Outcome, Refusal};
use crate::protection::report_altered;

impl Connection {
    /// Sets the endpoint of a connection of SMB Direct.
    pub(super) fn over(mut self, endpoint: Option<&Arc<Endpoint>>) -> Self {
        self.rdma = endpoint.map(|endpoint| Box::new(Direct::new(endpoint)));
        self.charge_memory();
        self
    }

    /// Gives a client that has logged on more credits of SMB Direct, and charges its account with
    /// the registered memory.
    pub(super) fn trust(&self) {
        let Some(direct) = self.rdma.as_ref().filter(|_| self.members.is_authenticated()) else {
            return;
        };
        let is_first = !direct.is_trusted.replace(true);
        self.charge_memory();
        if is_first {
            direct.endpoint.trust();
        }
    }

    /// Has registered memory count for the holder of the connection's buffers.
    fn charge_memory(&self) {
        let Some(direct) = &self.rdma else { return };
        let holder = self.tabs.holder();
        if !Arc::ptr_eq(&*direct.registers_for.borrow(), &holder.registered) {
            direct.endpoint.belong_to(&holder.registered);
            *direct.registers_for.borrow_mut() = Arc::clone(&holder.registered);
        }
    }

    /// Bytes that are registered for RDMA.
    pub(super) fn registered_bytes(&self) -> usize {
        self.endpoint().map_or(0, |endpoint| endpoint.held_bytes())
    }

    /// The endpoint of a connection of SMB Direct.
    fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        self.rdma.as_ref().map(|direct| &direct.endpoint)
    }

    /// The largest payload of a response: all of it is one message of SMB Direct, whose length the
    /// client has bounded.
    pub(super) fn payload_max(&self, max: usize) -> usize {
        let Some(endpoint) = self.endpoint() else { return max };
        max.min((endpoint.message_max() as usize).saturating_sub(REPLY_OVERHEAD))
    }

    /// Fetches the data of a WRITE from the client's memory, and checks its protection. None where
    /// there is none to fetch, or the handler will refuse the request.
    pub(super) async fn fetch(
        &self,
        rq: &Request<'_>,
        channel: Option<&Channel>,
        out: &mut Response,
    ) -> Result<Option<Buf>, Refusal> {
        let Some(endpoint) = self.endpoint() else { return Ok(None) };
        if rq.header.command != Command::WRITE {
            return Ok(None);
        }
        let Ok(request) = write::Request::parse(rq.message) else { return Ok(None) };
        let Ok(Some(memory)) = client_memory::of_write(rq, &request) else { return Ok(None) };
        let length = request.remaining_bytes;
        if length > endpoint.transfer_max() || rq.check_charge(length).is_err() {
            return Ok(None);
        }
        out.set_invalidates(memory.invalidates);
        let remote = remote(&memory.buffers);
        let fetched = endpoint.read_from_peer(length as usize, &remote).await;
        let transform = memory.transform.name();
        tracing::trace!(target: "frevo::rdma", peer = %self.info.peer, length, transform,
            "fetched by RDMA");
        let mut data = fetched.map_err(|error| refusal(&error))?;
        if let DataTransform::Received(proof) = memory.transform
            && !channel.is_some_and(|channel| is_proved(&mut data, &proof, channel))
        {
            let status = client_memory::mismatch(proof.kind());
            let reason = "data that came by RDMA does not match its signature";
            report_altered(&self.info, &rq.header, status, reason);
            return Err(status.into());
        }
        Ok(Some(data))
    }

    /// Puts the data of a READ into the client's memory, protected like its message. The response,
    /// which is sent later, arrives behind it.
    pub(super) async fn deliver(
        &self,
        rq: &Request<'_>,
        data: Box<RemoteData>,
        channel: Option<&Channel>,
        outcome: Outcome,
        out: &mut Response,
    ) -> Outcome {
        let status = outcome?;
        let endpoint = self.endpoint().ok_or(Status::INTERNAL_ERROR)?;
        let RemoteData { mut bytes, buffers, transform } = *data;
        let length = bytes.len();
        if let DataTransform::Wanted(kind) = transform {
            let channel = channel.ok_or(Status::INTERNAL_ERROR)?;
            let proof = proved(&mut bytes, kind, rq.header.message_id, channel)?;
            describe(&proof, length, out);
        }
        let transform = transform.name();
        tracing::trace!(target: "frevo::rdma", peer = %self.info.peer, length, transform,
            "delivered by RDMA");
        #[cfg(feature = "plant")]
        if planted!(KeyAfterReply) {
            write_late(Arc::clone(endpoint), Buf::copy_of(&bytes), remote(&buffers));
        }
        let delivered = endpoint.write_to_peer(bytes, &remote(&buffers)).await;
        delivered.map(|()| status).map_err(|error| refusal(&error))
    }
}

/// True if the client has protected the data, which is then in the clear: MS-SMB2 3.3.5.13.
fn is_proved(data: &mut Buf, proof: &DataProof, channel: &Channel) -> bool {
    if proof.kind() == RdmaTransformType::ENCRYPTION {
        let key = channel.session.security().and_then(|security| security.opening_key.as_ref());
        return key.is_some_and(|key| proof.decrypt(data, key).is_ok());
    }
    channel.signing_key().is_some_and(|key| proof.is_of(data, key))
}

/// Protects data that goes to the client: MS-SMB2 3.3.5.12.
fn proved(
    data: &mut Buf,
    kind: RdmaTransformType,
    message_id: u64,
    channel: &Channel,
) -> Result<DataProof, Refusal> {
    if kind == RdmaTransformType::ENCRYPTION {
        let key = channel.session.security().and_then(|security| security.sealing_key.as_ref());
        let key = key.ok_or(Status::INTERNAL_ERROR)?;
        let exhausted = Doom::Rule("the session's sealing key has reached its limit of messages");
        return DataProof::encrypt(data, key).map_err(|_| Refusal::Disconnect(exhausted));
    }
    // The nonce has the MessageId of the response, so no other data is signed with the same key and
    // nonce.
    let nonce = DataNonce::new(message_id, Sender::Server);
    let signed = channel.signing_key().and_then(|key| DataProof::sign(data, key, nonce));
    Ok(signed.ok_or(Status::INTERNAL_ERROR)?)
}

/// A planted fault: writes to the client's memory when the answer has been sent.
#[cfg(feature = "plant")]
fn write_late(endpoint: Arc<Endpoint>, bytes: Buf, to: Vec<RemoteBuffer>) {
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        drop(endpoint.write_to_peer(bytes, &to).await);
    });
}

/// Writes the body of a READ response whose data is transformed.
fn describe(proof: &DataProof, length: usize, out: &mut Response) {
    let mut bytes = Vec::new();
    let transform =
        RdmaTransform { channel: Way::NONE, transforms: vec![proof.transform()], descriptors: &[] };
    transform.encode(&mut frevo_wire::codec::Writer::new(&mut bytes));
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let flags = ReadResponseFlags::RDMA_TRANSFORM;
    let body = out.bytes_mut();
    body.truncate(HEADER_LEN);
    body.extend(read::response_head(count(bytes.len()), count(length), flags));
    body.extend(bytes);
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
