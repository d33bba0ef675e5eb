//! The data of READ and WRITE that moves by RDMA: MS-SMB2 3.2.4.6, 3.2.4.7, 3.2.5.11, 3.2.5.12.
//!
//! The client lends the server memory for one request. The server's key counts until the answer,
//! which may invalidate it, or until the connection ends: then the memory is taken back before
//! anybody else uses it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_crypto::{DataNonce, Sender};
use frevo_net::buffer::Buf;
use frevo_net::rdma::{Endpoint, Lending};
use frevo_net::transport::Transport;
use frevo_proto::Dialect;
use frevo_proto::limits::SMBD_FRAGMENTED_SIZE;
use frevo_proto::protection::Protection;
use frevo_proto::rdma_transform::{DataProof, Unprotected};
use frevo_wire::codec::Writer;
use frevo_wire::command::read::{self, Channel};
use frevo_wire::command::write;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::rdma_transform::{RdmaTransform, RdmaTransformType};
use frevo_wire::smbd::BufferDescriptor;

use super::crypto_offload::measured;
use super::loan::Loan;
use super::reader::Invalidated;
use super::{Call, Connection, Guard, Movable, Payload, Proof};
use crate::error::Cause;
use crate::limits::RDMA_MESSAGE_OVERHEAD;

impl Connection {
    /// Returns the transport.
    pub(crate) const fn transport(&self) -> Transport {
        self.stream.transport()
    }

    /// Returns the keys of lent memory that the server has invalidated with `count` frames from
    /// `first` on; the first of the connection is 0.
    pub(super) fn invalidated_with(&self, first: u64, count: usize) -> Invalidated {
        let Some(endpoint) = self.stream.rdma() else { return Vec::new() };
        (first..).take(count).map(|frame| endpoint.invalidated_with(frame)).collect()
    }

    /// Lends a buffer through a window where the device has them and the dialect lets the server
    /// invalidate its key: MS-SMB2 2.2.19, 2.2.21. Other keys the server cannot invalidate.
    async fn lend_buffer(
        &self,
        endpoint: &Arc<Endpoint>,
        buf: Buf,
        lending: Lending,
    ) -> Result<(frevo_net::rdma::Loan, Channel), Cause> {
        let dialect = self.agreed().terms.dialect;
        let lent = match dialect {
            Dialect::SMB_3_0_2 | Dialect::SMB_3_1_1 => endpoint.lend_window(buf, lending).await,
            _ => endpoint.lend(buf, lending).await,
        };
        let lent = lent.map_err(refused)?;
        let is_window = lent.is_window();
        Ok((lent, if is_window { Channel::RDMA_V1_INVALIDATE } else { Channel::RDMA_V1 }))
    }

    /// Returns the largest payload of one READ or WRITE, at most `most` bytes. Over SMB Direct it is
    /// that of one transfer, or of one message if data with this protection cannot move by itself.
    pub(crate) fn most_moved(&self, most: u32, protection: Protection) -> u32 {
        match self.stream.rdma() {
            Some(endpoint) if self.moved_as(protection).is_ok() => {
                most.min(endpoint.transfer_max())
            }
            _ => self.most_in_message(most),
        }
    }

    /// Returns the largest payload of one message, at most `most` bytes.
    pub(crate) fn most_in_message(&self, most: u32) -> u32 {
        self.stream.rdma().map_or(most, |endpoint| most.min(message_payload(endpoint)))
    }

    /// Returns the transform with which data of such messages moves by RDMA. A message whose data
    /// would be unprotected outside has it inside.
    // Deviation: in MS-SMB2 3.2.4.6 and 3.2.4.7 a session that signs or encrypts does not move its
    // data by RDMA. This client does, with the transforms that MS-SMB2 defines for such data.
    fn moved_as(&self, protection: Protection) -> Result<Option<RdmaTransformType>, Unprotected> {
        self.agreed().terms.rdma_transforms.needed(protection)
    }

    /// Lends the server the memory for the data of a READ or WRITE, if it is to move by RDMA.
    pub(crate) async fn lend(
        &self,
        call: &mut Call<'_>,
        guard: Guard<'_>,
        proof: Proof,
    ) -> Result<(), Cause> {
        match self.stream.rdma() {
            // The future is boxed, so that requests over TCP need no memory for its state.
            Some(endpoint) => Box::pin(self.lend_over(endpoint, call, guard, proof)).await,
            None => Ok(()),
        }
    }

    async fn lend_over(
        &self,
        endpoint: &Arc<Endpoint>,
        call: &mut Call<'_>,
        guard: Guard<'_>,
        proof: Proof,
    ) -> Result<(), Cause> {
        let len = call.cost;
        let is_moved = self.moved_as(guard.protection()).is_ok()
            && (self.rdma_from..=endpoint.transfer_max()).contains(&len)
            && self.agreed().terms.is_smb3();
        match std::mem::take(&mut call.movable) {
            Movable::Read(request) if is_moved => {
                self.lend_for_read(endpoint, call, request, proof).await
            }
            Movable::Write(request) if is_moved => {
                self.lend_for_write(endpoint, call, request, guard).await
            }
            _ if len > message_payload(endpoint) => Err(Cause::Usage(
                "one message of SMB Direct cannot carry so much; use smaller blocks",
            )),
            _ => Ok(()),
        }
    }

    async fn lend_for_read(
        &self,
        endpoint: &Arc<Endpoint>,
        call: &mut Call<'_>,
        request: read::Request<'static>,
        proof: Proof,
    ) -> Result<(), Cause> {
        let len = request.length;
        let buf = Buf::with_capacity(len as usize);
        let lending = Lending::PeerWrites(len as usize);
        let (lent, channel) = self.lend_buffer(endpoint, buf, lending).await?;
        let channel_info = &descriptor(&lent);
        let request = read::Request { channel, remaining_bytes: len, channel_info, ..request };
        call.message.truncate(HEADER_LEN);
        request.encode(&mut Writer::from(&mut call.message, 0));
        call.loan = Some(Loan { lent, proof });
        self.carried.received.fetch_add(len.into(), Ordering::Relaxed);
        Ok(())
    }

    async fn lend_for_write(
        &self,
        endpoint: &Arc<Endpoint>,
        call: &mut Call<'_>,
        request: write::Request<'static>,
        guard: Guard<'_>,
    ) -> Result<(), Cause> {
        let mut data = match std::mem::replace(&mut call.payload, Payload::None) {
            Payload::Placed(data) => data,
            other => {
                call.payload = other;
                return Ok(());
            }
        };
        let transform = self.protect_data(&mut data, guard)?;
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let (lent, memory) = self.lend_buffer(endpoint, data, Lending::PeerReads).await?;
        let (channel, channel_info) = write_channel(transform.as_ref(), memory, &descriptor(&lent));
        let request = write::Request {
            channel,
            remaining_bytes: len,
            channel_info: &channel_info,
            ..request
        };
        call.message.truncate(HEADER_LEN);
        request.encode(&mut Writer::from(&mut call.message, 0));
        call.loan = Some(Loan { lent, proof: Proof::None });
        self.carried.sent.fetch_add(len.into(), Ordering::Relaxed);
        Ok(())
    }

    /// Protects the data of a WRITE like its message, before the server can read it.
    fn protect_data(&self, data: &mut Buf, guard: Guard<'_>) -> Result<Option<DataProof>, Cause> {
        match guard {
            Guard::None => Ok(None),
            Guard::Sealed(key) => {
                let sealed =
                    measured(&self.sealing_pace, data.len(), || DataProof::encrypt(data, key));
                // If the nonces of the key are used up, the session must be set up again, as it
                // must be when a message cannot be encrypted for this reason.
                let exhausted =
                    |_| Cause::Transport(Arc::new(io::ErrorKind::ConnectionReset.into()));
                sealed.map(Some).map_err(exhausted)
            }
            Guard::Signed(key) => {
                let number = self.signed_data.fetch_add(1, Ordering::Relaxed);
                let signed = DataProof::sign(data, key, DataNonce::new(number, Sender::Client));
                let none = Cause::Security("the session's algorithm cannot sign data for RDMA");
                signed.map(Some).ok_or(none)
            }
        }
    }
}

/// The channel and its information for a WRITE whose data is in memory of such a channel: MS-SMB2
/// 3.2.4.7.
fn write_channel(
    transform: Option<&DataProof>,
    channel: Channel,
    descriptors: &[u8],
) -> (Channel, Vec<u8>) {
    let Some(proof) = transform else { return (channel, descriptors.to_vec()) };
    let mut info = Vec::new();
    let transform = RdmaTransform { channel, transforms: vec![proof.transform()], descriptors };
    transform.encode(&mut Writer::new(&mut info));
    (Channel::RDMA_TRANSFORM, info)
}

/// The largest payload of one message in either direction.
fn message_payload(endpoint: &Endpoint) -> u32 {
    endpoint.message_max().min(SMBD_FRAGMENTED_SIZE).saturating_sub(RDMA_MESSAGE_OVERHEAD)
}

fn descriptor(lent: &frevo_net::rdma::Loan) -> [u8; 16] {
    let remote = lent.remote();
    BufferDescriptor { offset: remote.address, token: remote.key, length: remote.length }.to_bytes()
}

/// The cause of memory that could not be lent.
fn refused(error: io::Error) -> Cause {
    if error.kind() == io::ErrorKind::OutOfMemory {
        let text = "too little memory may be pinned for RDMA; raise `ulimit -l`";
        return Cause::Local(Arc::new(io::Error::new(io::ErrorKind::OutOfMemory, text)));
    }
    Cause::Transport(Arc::new(error))
}
