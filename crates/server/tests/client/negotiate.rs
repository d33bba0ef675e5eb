//! NEGOTIATE from the client's side.

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_proto::protection::Compression;
use frevo_proto::rdma_transform::RdmaTransforms;
use frevo_proto::{Dialect, Negotiated as Terms};
use frevo_wire::Command;
use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate::{self, GlobalCapabilities, SecurityMode};
use frevo_wire::dtyp::Guid;
use frevo_wire::negotiate_context::{self as context, HashAlgorithm, NegotiateContext};

use super::draft::{Draft, Reply, Via, pack};
use super::peer::Peer;

pub const ALL_DIALECTS: [Dialect; 5] = [
    Dialect::SMB_2_0_2,
    Dialect::SMB_2_1,
    Dialect::SMB_3_0,
    Dialect::SMB_3_0_2,
    Dialect::SMB_3_1_1,
];

/// The offer of a client.
#[derive(Clone, Debug)]
pub struct Offer {
    pub dialects: Vec<Dialect>,
    pub ciphers: Vec<u16>,
    pub signing: Vec<u16>,
    pub capabilities: GlobalCapabilities,
    pub security_mode: SecurityMode,
    /// The POSIX extensions are offered.
    pub posix: bool,
    /// RDMATransformIds, if there are any.
    pub rdma_transforms: Vec<u16>,
    /// Flags of SMB2_TRANSPORT_CAPABILITIES, if it is sent.
    pub transport: Option<u32>,
    /// CompressionAlgorithms, if there are any.
    pub compression: Vec<u16>,
    /// SMB2_COMPRESSION_CAPABILITIES_FLAG_CHAINED
    pub chained: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            dialects: ALL_DIALECTS.to_vec(),
            ciphers: vec![2, 1, 4, 3],
            signing: vec![2, 1, 0],
            capabilities: GlobalCapabilities(0x7F),
            security_mode: SecurityMode::SIGNING_ENABLED,
            posix: false,
            rdma_transforms: Vec::new(),
            transport: None,
            compression: Vec::new(),
            chained: false,
        }
    }
}

impl Offer {
    pub fn only(dialect: Dialect) -> Self {
        Self { dialects: vec![dialect], ..Self::default() }
    }

    pub fn draft(&self, guid: Guid) -> Draft {
        let mut contexts = Vec::new();
        if self.dialects.contains(&Dialect::SMB_3_1_1) {
            contexts.push(NegotiateContext::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt: &[0x5A; 32],
            });
            if !self.ciphers.is_empty() {
                let ciphers = self.ciphers.iter().map(|id| context::Cipher(*id)).collect();
                contexts.push(NegotiateContext::Encryption(ciphers));
            }
            if !self.compression.is_empty() {
                let ids = self.compression.iter().map(|id| context::CompressionAlgorithm(*id));
                contexts.push(NegotiateContext::Compression {
                    flags: context::CompressionCapabilityFlags(u32::from(self.chained)),
                    algorithms: ids.collect(),
                });
            }
            if let Some(flags) = self.transport {
                let flags = context::TransportCapabilityFlags(flags);
                contexts.push(NegotiateContext::Transport(flags));
            }
            if !self.rdma_transforms.is_empty() {
                let ids = self.rdma_transforms.iter().map(|id| context::RdmaTransformId(*id));
                contexts.push(NegotiateContext::RdmaTransform(ids.collect()));
            }
            if !self.signing.is_empty() {
                let ids = self.signing.iter().map(|id| context::SigningAlgorithm(*id)).collect();
                contexts.push(NegotiateContext::Signing(ids));
            }
            if self.posix {
                contexts.push(NegotiateContext::Posix(&context::POSIX_GUID));
            }
        }
        self.draft_with(guid, contexts)
    }

    pub fn draft_with(&self, guid: Guid, negotiate_contexts: Vec<NegotiateContext<'_>>) -> Draft {
        Draft::new(Command::NEGOTIATE).with(|w: &mut Writer<'_>| {
            negotiate::Request {
                security_mode: self.security_mode,
                capabilities: self.capabilities,
                client_guid: guid,
                dialects: self.dialects.clone(),
                negotiate_contexts,
            }
            .encode(w);
        })
    }
}

impl Peer {
    /// Negotiates, and takes over what came out when it was a success.
    pub async fn try_negotiate(&mut self, offer: &Offer) -> Reply {
        let mut draft = offer.draft(self.guid);
        self.stamp(&mut draft);
        let request = pack(&[draft], Via::Plain);
        self.send_frame(&request).await;
        let reply = self.reply().await;
        if reply.status() == frevo_wire::Status::SUCCESS {
            self.take_terms(offer, &request, &reply);
        }
        reply
    }
    pub async fn negotiate(&mut self, offer: &Offer) -> Terms {
        let reply = self.try_negotiate(offer).await;
        reply.ok();
        self.terms()
    }

    /// Computes what a NEGOTIATE response settles.
    pub fn take_terms(&mut self, offer: &Offer, request: &[u8], reply: &Reply) {
        let response = negotiate::Response::parse(&reply.message).unwrap();
        let dialect = response.dialect_revision;
        let common = offer.capabilities & response.capabilities;
        let mut cipher =
            common.contains(GlobalCapabilities::ENCRYPTION).then_some(Cipher::Aes128Ccm);
        let mut signing = Terms::default_signing_algorithm(dialect);
        let mut transform_ids = &Vec::new();
        let mut compression = None;
        for found in &response.negotiate_contexts {
            match found {
                NegotiateContext::Encryption(ids) => cipher = Cipher::from_id(ids[0].0),
                NegotiateContext::Signing(ids) => {
                    signing = SigningAlgorithm::from_id(ids[0].0).unwrap();
                }
                NegotiateContext::RdmaTransform(ids) => transform_ids = ids,
                NegotiateContext::Compression { flags, algorithms } => {
                    compression = Compression::common(*flags, algorithms);
                }
                _ => {}
            }
        }
        let transforms = RdmaTransforms::common(transform_ids, cipher, signing);
        if dialect == Dialect::SMB_3_1_1 {
            self.preauth.on_negotiate(&[request]);
            self.preauth.on_negotiate(&[&reply.message]);
        }
        self.terms = Some(Terms {
            dialect,
            cipher,
            signing_algorithm: signing,
            is_multi_credit: response.capabilities.contains(GlobalCapabilities::LARGE_MTU),
            max_transact_size: response.max_transact_size,
            max_read_size: response.max_read_size,
            max_write_size: response.max_write_size,
            rdma_transforms: transforms,
            compression,
        });
        self.server_capabilities = response.capabilities;
        self.server_guid = response.server_guid;
        self.server_mode = response.security_mode;
        self.hint = response.security_buffer.to_vec();
    }
}
