//! The data of READ and WRITE that moves by RDMA: MS-SMB2 3.2.4.6, 3.2.4.7, 3.2.5.11, 3.2.5.12.
//!
//! The client lends the server memory for one request. The server's key counts until the answer, or
//! until the connection ends: then the memory is taken back before anybody else uses it.

#[cfg(feature = "rdma")]
use {
    super::loan::Loan,
    super::{Movable, Payload},
    frevo_net::buffer::Buf,
    frevo_net::rdma::{Endpoint, Lending},
    frevo_proto::limits::SMBD_FRAGMENTED_SIZE,
    frevo_wire::codec::Writer,
    frevo_wire::command::read::{self, Channel},
    frevo_wire::command::write,
    frevo_wire::header::HEADER_LEN,
    frevo_wire::smbd::BufferDescriptor,
    std::io,
    std::sync::Arc,
    std::sync::atomic::Ordering,
};

use super::{Call, Connection};
use crate::error::Cause;
#[cfg(feature = "rdma")]
use crate::limits::{RDMA_FROM, RDMA_MESSAGE_OVERHEAD};

#[cfg(not(feature = "rdma"))]
impl Connection {
    pub(crate) const fn is_rdma(&self) -> bool {
        false
    }

    pub(crate) const fn most_moved(&self, most: u32, _is_protected: bool) -> u32 {
        most
    }

    pub(crate) async fn lend(&self, _: &mut Call<'_>, _is_protected: bool) -> Result<(), Cause> {
        Ok(())
    }
}

#[cfg(feature = "rdma")]
impl Connection {
    /// Returns true for a connection of SMB Direct.
    pub(crate) const fn is_rdma(&self) -> bool {
        self.stream.is_rdma()
    }

    /// Returns the largest payload of one request, at most `most` bytes. Over SMB Direct it is that
    /// of one transfer, or of one message if messages are signed or encrypted.
    pub(crate) fn most_moved(&self, most: u32, is_protected: bool) -> u32 {
        match self.stream.rdma() {
            None => most,
            Some(endpoint) if is_protected => most.min(message_payload(endpoint)),
            Some(endpoint) => most.min(endpoint.transfer_max()),
        }
    }

    /// Lends the server the memory for the data of a READ or WRITE, if it is to move by RDMA. A
    /// message that is signed or encrypted has its data inside: it would be unprotected outside.
    pub(crate) async fn lend(&self, call: &mut Call<'_>, is_protected: bool) -> Result<(), Cause> {
        match self.stream.rdma() {
            // Boxed: requests over TCP need not hold its state.
            Some(endpoint) => Box::pin(self.lend_over(endpoint, call, is_protected)).await,
            None => Ok(()),
        }
    }

    async fn lend_over(
        &self,
        endpoint: &Arc<Endpoint>,
        call: &mut Call<'_>,
        is_protected: bool,
    ) -> Result<(), Cause> {
        let len = call.cost;
        let is_moved = !is_protected
            && (RDMA_FROM..=endpoint.transfer_max()).contains(&len)
            && self.agreed().terms.is_smb3();
        match std::mem::take(&mut call.movable) {
            Movable::Read(request) if is_moved => self.lend_for_read(endpoint, call, request).await,
            Movable::Write(request) if is_moved => {
                self.lend_for_write(endpoint, call, request).await
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
    ) -> Result<(), Cause> {
        let len = request.length;
        let buf = Buf::with_capacity(len as usize);
        let loan = endpoint.lend(buf, Lending::PeerWrites(len as usize)).await.map_err(refused)?;
        let channel_info = &descriptor(&loan);
        let (channel, remaining_bytes) = (Channel::RDMA_V1, len);
        let request = read::Request { channel, remaining_bytes, channel_info, ..request };
        call.message.truncate(HEADER_LEN);
        request.encode(&mut Writer::from(&mut call.message, 0));
        call.loan = Some(Loan(loan));
        self.carried.received.fetch_add(len.into(), Ordering::Relaxed);
        Ok(())
    }

    async fn lend_for_write(
        &self,
        endpoint: &Arc<Endpoint>,
        call: &mut Call<'_>,
        request: write::Request<'static>,
    ) -> Result<(), Cause> {
        let data = match std::mem::replace(&mut call.payload, Payload::None) {
            Payload::Placed(data) => data,
            other => {
                call.payload = other;
                return Ok(());
            }
        };
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let loan = endpoint.lend(data, Lending::PeerReads).await.map_err(refused)?;
        let channel_info = &descriptor(&loan);
        let (channel, remaining_bytes) = (Channel::RDMA_V1, len);
        let request = write::Request { channel, remaining_bytes, channel_info, ..request };
        call.message.truncate(HEADER_LEN);
        request.encode(&mut Writer::from(&mut call.message, 0));
        call.loan = Some(Loan(loan));
        self.carried.sent.fetch_add(len.into(), Ordering::Relaxed);
        Ok(())
    }
}

/// The largest payload of one message in either direction.
#[cfg(feature = "rdma")]
fn message_payload(endpoint: &Endpoint) -> u32 {
    endpoint.message_max().min(SMBD_FRAGMENTED_SIZE).saturating_sub(RDMA_MESSAGE_OVERHEAD)
}

#[cfg(feature = "rdma")]
fn descriptor(loan: &frevo_net::rdma::Loan) -> [u8; 16] {
    let remote = loan.remote();
    BufferDescriptor { offset: remote.address, token: remote.key, length: remote.length }.to_bytes()
}

/// The cause of memory that could not be lent.
#[cfg(feature = "rdma")]
fn refused(error: io::Error) -> Cause {
    if error.kind() == io::ErrorKind::OutOfMemory {
        let text = "too little memory may be pinned for RDMA; raise `ulimit -l`";
        return Cause::Local(Arc::new(io::Error::new(io::ErrorKind::OutOfMemory, text)));
    }
    Cause::Transport(Arc::new(error))
}
