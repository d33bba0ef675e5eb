//! NEGOTIATE: MS-SMB2 3.2.4.2.2.2 and 3.2.5.2.

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_net::transport::Facts;
use frevo_proto::protection::Compression;
use frevo_proto::rdma_transform::RdmaTransforms;
use frevo_proto::{Dialect, Negotiated};
use frevo_wire::command::negotiate::{self, GlobalCapabilities, SecurityMode};
use frevo_wire::dtyp::Guid;
use frevo_wire::negotiate_context::{
    self as context, HashAlgorithm, NegotiateContext, RdmaTransformId, TransportCapabilityFlags,
};
use frevo_wire::{Command, Utf16};

use super::{Call, Connection, Guard};
use crate::Status;
use crate::ambient::random;
use crate::error::Cause;
use crate::options::{Compression as Wanted, Encryption, Options};

/// The results of NEGOTIATE.
#[derive(Debug, Clone)]
pub(crate) struct Agreed {
    /// The dialect, the algorithms and the largest sizes.
    pub(crate) terms: Negotiated,
    /// The capabilities that the server has.
    pub(crate) capabilities: GlobalCapabilities,
    /// The server's ServerGuid.
    pub(crate) server_guid: Guid,
    /// The server's SecurityMode.
    pub(crate) security_mode: SecurityMode,
    /// The offer of the session.
    pub(crate) offer: Offer,
    /// The dialects that were offered, for VALIDATE_NEGOTIATE_INFO.
    pub(crate) offered: Vec<Dialect>,
    /// True if both sides have the POSIX extensions.
    pub(crate) posix: bool,
    /// Connection.AcceptTransportSecurity: the transport encrypts, and SMB does not.
    pub(crate) accepts_transport_security: bool,
    /// The server's first SPNEGO token.
    pub(crate) hint: Vec<u8>,
}

/// The capabilities of this client.
pub(crate) const CAPABILITIES: GlobalCapabilities = GlobalCapabilities(
    GlobalCapabilities::DFS.0
        | GlobalCapabilities::LEASING.0
        | GlobalCapabilities::LARGE_MTU.0
        | GlobalCapabilities::MULTI_CHANNEL.0
        | GlobalCapabilities::PERSISTENT_HANDLES.0
        | GlobalCapabilities::DIRECTORY_LEASING.0
        | GlobalCapabilities::ENCRYPTION.0
        | GlobalCapabilities::NOTIFICATIONS.0,
);

impl Agreed {
    /// The state before NEGOTIATE.
    pub(super) const NOTHING: Self = Self {
        terms: Negotiated {
            dialect: Dialect::SMB_2_0_2,
            cipher: None,
            signing_algorithm: SigningAlgorithm::HmacSha256,
            is_multi_credit: false,
            max_transact_size: 65_536,
            max_read_size: 65_536,
            max_write_size: 65_536,
            rdma_transforms: RdmaTransforms { encryption: false, signing: false },
            compression: None,
        },
        capabilities: GlobalCapabilities::EMPTY,
        server_guid: Guid([0; 16]),
        security_mode: SecurityMode::EMPTY,
        offer: Offer { client_guid: Guid([0; 16]), only: None },
        offered: Vec::new(),
        posix: false,
        accepts_transport_security: false,
        hint: Vec::new(),
    };

    /// Connection.SupportsNotifications, MS-SMB2 3.2.5.2.
    pub(super) fn supports_notifications(&self) -> bool {
        self.terms.is_3_1_1() && self.capabilities.contains(GlobalCapabilities::NOTIFICATIONS)
    }
}

/// The parts of a NEGOTIATE that a session decides on: all of its connections have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Connection.ClientGuid.
    pub(crate) client_guid: Guid,
    /// SpecifiedDialects of MS-SMB2 3.2.4.2, which the server of a cluster has named. None for the
    /// dialects of the options.
    pub(crate) only: Option<Dialect>,
}

impl Offer {
    /// Returns the dialects that are offered, the oldest first.
    fn dialects(&self, options: &Options) -> Vec<Dialect> {
        let within = options.dialects().into_iter();
        within.filter(|dialect| self.only.is_none_or(|only| only == *dialect)).collect()
    }
}

/// The parts of an offer that depend on the transport.
#[derive(Debug, Clone, Copy, Default)]
struct TransportOffer {
    /// The transforms of data that moves beside the messages; None on a transport without.
    rdma_transforms: Option<RdmaTransforms>,
    /// SMB2_ACCEPT_TRANSPORT_LEVEL_SECURITY is offered.
    transport_security: bool,
    /// Compression is offered.
    compression: bool,
}

impl TransportOffer {
    /// Returns the offer over a transport with these facts.
    fn over(facts: &Facts, options: &Options) -> Self {
        Self {
            rdma_transforms: facts.moves_data.then_some(RdmaTransforms::ALL),
            // MS-SMB2 3.2.4.2.2.2: only a transport that encrypts by itself has the context.
            transport_security: facts.is_secure && options.transport_security,
            // As on Windows, nothing is compressed over RDMA.
            compression: !facts.moves_data && options.compression != Wanted::Off,
        }
    }
}

/// The SecurityMode of a client with these options.
pub(crate) const fn security_mode(options: &Options) -> SecurityMode {
    if options.require_signing {
        SecurityMode(SecurityMode::SIGNING_ENABLED.0 | SecurityMode::SIGNING_REQUIRED.0)
    } else {
        SecurityMode::SIGNING_ENABLED
    }
}

impl Connection {
    /// Negotiates with the server that the caller named `net_name`.
    pub(super) async fn negotiate(
        &self,
        options: &Options,
        offer: Offer,
        net_name: &str,
    ) -> Result<(), Cause> {
        let dialects = offer.dialects(options);
        if dialects.is_empty() {
            return Err(Cause::Usage("the oldest dialect is newer than the newest one"));
        }
        let salt: [u8; 32] = random(&*options.ambient)?;
        let by_transport = TransportOffer::over(&self.transport().facts(), options);
        let request = negotiate::Request {
            security_mode: security_mode(options),
            capabilities: CAPABILITIES,
            client_guid: offer.client_guid,
            dialects: dialects.clone(),
            negotiate_contexts: contexts(options, &dialects, by_transport, &salt, net_name),
        };
        let call = Call::new(Command::NEGOTIATE, |w| request.encode(w));
        let (sent, request) = self.send(call, Guard::None).await.map_err(|_| self.reason())?;
        let reply = sent.await.map_err(|_| self.reason())?;
        if reply.status() != Status::SUCCESS {
            return Err(reply.status().into());
        }
        let response = negotiate::Response::parse(reply.bytes())?;
        let agreed = Agreed { offer, ..judge(options, dialects, by_transport, &response)? };
        if agreed.terms.is_3_1_1() {
            let mut preauth = self.preauth.lock();
            preauth.on_negotiate(&[&request]);
            preauth.on_negotiate(&[reply.bytes()]);
        }
        let _ = self.agreed.set(agreed);
        Ok(())
    }

    /// The cause of the end, for a caller that waited.
    pub(crate) fn reason(&self) -> Cause {
        let lost = || std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
        self.why().cloned().unwrap_or_else(lost)
    }
}

fn contexts<'a>(
    options: &Options,
    dialects: &[Dialect],
    offer: TransportOffer,
    salt: &'a [u8],
    net_name: &str,
) -> Vec<NegotiateContext<'a>> {
    if !dialects.contains(&Dialect::SMB_3_1_1) {
        return Vec::new();
    }
    let ciphers = options.ciphers.iter().map(|cipher| context::Cipher(cipher.wire().id()));
    let signing = options.signing.iter().map(|one| context::SigningAlgorithm(one.wire().id()));
    let mut contexts = vec![NegotiateContext::PreauthIntegrity {
        hash_algorithms: vec![HashAlgorithm::SHA_512],
        salt,
    }];
    if !options.ciphers.is_empty() {
        contexts.push(NegotiateContext::Encryption(ciphers.collect()));
    }
    if offer.compression {
        contexts.push(options.ambient.compression().context());
    }
    if offer.transport_security {
        let flags = TransportCapabilityFlags::ACCEPT_TRANSPORT_LEVEL_SECURITY;
        contexts.push(NegotiateContext::Transport(flags));
    }
    if let Some(transforms) = offer.rdma_transforms {
        contexts.push(NegotiateContext::RdmaTransform(transforms.ids()));
    }
    // MS-SMB2 3.2.4.2.2.2: the name of the server, as the caller gave it, without the port.
    contexts.push(NegotiateContext::Netname(Utf16::from_str(net_name)));
    if !options.signing.is_empty() {
        contexts.push(NegotiateContext::Signing(signing.collect()));
    }
    if options.posix {
        contexts.push(NegotiateContext::Posix(&context::POSIX_GUID));
    }
    contexts
}

/// MS-SMB2 3.2.5.2: the server must choose among the offers.
fn judge(
    options: &Options,
    offered: Vec<Dialect>,
    offer: TransportOffer,
    response: &negotiate::Response<'_>,
) -> Result<Agreed, Cause> {
    let dialect = response.dialect_revision;
    // Some servers choose an older dialect than the client offered; the error then names this
    // dialect.
    let is_older = offered.first().is_some_and(|oldest| dialect.0 < oldest.0);
    if is_older && matches!(dialect, Dialect::SMB_2_0_2 | Dialect::SMB_2_1) {
        return Err(Cause::TooOld(Some(dialect.into())));
    }
    if !offered.contains(&dialect) {
        return Err(Cause::Security(
            "the server chose a dialect that was not offered; someone may tamper with the connection",
        ));
    }
    let common = response.capabilities & CAPABILITIES;
    let mut rdma_transforms = RdmaTransforms::default();
    let mut compression = None;
    let (cipher, signing_algorithm) = if dialect == Dialect::SMB_3_1_1 {
        let contexts = &response.negotiate_contexts;
        let (cipher, signing) = algorithms(options, contexts)?;
        rdma_transforms = common_transforms(offer.rdma_transforms, contexts, cipher, signing)?;
        compression = common_compression(offer.compression, contexts)?;
        (cipher, signing)
    } else {
        // MS-SMB2 3.2.5.2: in SMB 3.0 and 3.0.2 AES-128-CCM is the only cipher.
        let can = common.contains(GlobalCapabilities::ENCRYPTION)
            && options.ciphers.iter().any(|one| one.wire() == Cipher::Aes128Ccm);
        (can.then_some(Cipher::Aes128Ccm), Negotiated::default_signing_algorithm(dialect))
    };
    let accepts_transport_security = offer.transport_security
        && dialect == Dialect::SMB_3_1_1
        && response.negotiate_contexts.iter().any(is_acceptance);
    if options.encryption == Encryption::Required && cipher.is_none() && !accepts_transport_security
    {
        return Err(Cause::Security(
            "encryption is required, but the server supports none of the ciphers offered",
        ));
    }
    let is_multi_credit =
        dialect != Dialect::SMB_2_0_2 && common.contains(GlobalCapabilities::LARGE_MTU);
    let size = |size| usable(size, is_multi_credit);
    Ok(Agreed {
        terms: Negotiated {
            dialect,
            cipher,
            signing_algorithm,
            is_multi_credit,
            max_transact_size: size(response.max_transact_size)?,
            max_read_size: size(response.max_read_size)?,
            max_write_size: size(response.max_write_size)?,
            rdma_transforms,
            compression,
        },
        posix: options.posix
            && dialect == Dialect::SMB_3_1_1
            && response.negotiate_contexts.iter().any(NegotiateContext::is_posix),
        accepts_transport_security,
        capabilities: response.capabilities,
        server_guid: response.server_guid,
        security_mode: response.security_mode,
        offer: Agreed::NOTHING.offer,
        offered,
        hint: response.security_buffer.to_vec(),
    })
}

/// Returns the part of one of the server's sizes that is used.
const fn usable(size: u32, is_multi_credit: bool) -> Result<u32, Cause> {
    match (size, is_multi_credit) {
        (0..65_536, _) => Err(Cause::Protocol("its largest request is below 64 KiB")),
        (size, true) => Ok(size),
        (_, false) => Ok(65_536),
    }
}

/// Returns the algorithms of the server's answer, each of which must have been offered.
fn common_compression(
    is_offered: bool,
    contexts: &[NegotiateContext<'_>],
) -> Result<Option<Compression>, Cause> {
    for context in contexts {
        let NegotiateContext::Compression { flags, algorithms } = context else { continue };
        if !is_offered {
            return Err(Cause::Protocol("it chose compression, which was not offered"));
        }
        return Compression::answered(*flags, algorithms).map_err(Cause::Protocol);
    }
    Ok(None)
}

/// Returns true for the context of a server that leaves encryption to the transport. MS-SMB2 3.2.5.2:
/// over a transport that does not encrypt by itself, the client ignores it.
const fn is_acceptance(context: &NegotiateContext<'_>) -> bool {
    let accepted = TransportCapabilityFlags::ACCEPT_TRANSPORT_LEVEL_SECURITY;
    matches!(context, NegotiateContext::Transport(flags) if flags.contains(accepted))
}

/// Reads the contexts of a 3.1.1 response: one hash, at most one cipher and one signing
/// algorithm, each among the offers.
fn algorithms(
    options: &Options,
    contexts: &[NegotiateContext<'_>],
) -> Result<(Option<Cipher>, SigningAlgorithm), Cause> {
    let mut hashes = 0;
    let mut kinds = Vec::new();
    let mut cipher = None;
    let mut signing = SigningAlgorithm::AesCmac;
    for context in contexts {
        // MS-SMB2 3.2.5.2: the response has at most one context of each kind.
        if !matches!(context, NegotiateContext::Unknown { .. }) {
            if kinds.contains(&context.kind()) {
                return Err(Cause::Protocol("it sent a negotiate context twice"));
            }
            kinds.push(context.kind());
        }
        match context {
            NegotiateContext::PreauthIntegrity { hash_algorithms, .. } => {
                hashes += 1;
                if **hash_algorithms != [HashAlgorithm::SHA_512] {
                    return Err(Cause::Protocol(
                        "it chose a pre-authentication hash that was not offered",
                    ));
                }
            }
            NegotiateContext::Encryption(ids) => {
                let [id] = **ids else {
                    return Err(Cause::Protocol("it chose more than one cipher"));
                };
                let found = Cipher::from_id(id.0)
                    .filter(|found| options.ciphers.iter().any(|one| one.wire() == *found));
                if found.is_none() && id.0 != 0 {
                    return Err(Cause::Security("the server chose a cipher that was not offered"));
                }
                cipher = found;
            }
            NegotiateContext::Signing(ids) => {
                let [id] = **ids else {
                    return Err(Cause::Protocol("it chose more than one signing algorithm"));
                };
                signing = SigningAlgorithm::from_id(id.0)
                    .filter(|found| options.signing.iter().any(|one| one.wire() == *found))
                    .ok_or(Cause::Security(
                        "the server chose a signing algorithm that was not offered",
                    ))?;
            }
            _ => {}
        }
    }
    if hashes != 1 {
        return Err(Cause::Protocol("it sent no pre-authentication hash, or several"));
    }
    Ok((cipher, signing))
}

/// Reads the server's choice of RDMA transforms, which must be among those `offered`: MS-SMB2
/// 3.2.5.2. A server that has none of them says NONE (3.3.5.4).
fn common_transforms(
    offered: Option<RdmaTransforms>,
    contexts: &[NegotiateContext<'_>],
    cipher: Option<Cipher>,
    signing: SigningAlgorithm,
) -> Result<RdmaTransforms, Cause> {
    let chosen = contexts.iter().find_map(|context| match context {
        NegotiateContext::RdmaTransform(ids) => Some(ids.as_slice()),
        _ => None,
    });
    let Some(ids) = chosen else { return Ok(RdmaTransforms::default()) };
    let offered = offered.map(RdmaTransforms::ids).unwrap_or_default();
    let is_none = !offered.is_empty() && ids == [RdmaTransformId::NONE];
    let is_among =
        !ids.is_empty() && ids.len() <= offered.len() && ids.iter().all(|id| offered.contains(id));
    if is_none || is_among {
        return Ok(RdmaTransforms::common(ids, cipher, signing));
    }
    Err(Cause::Protocol("it chose RDMA transforms that were not offered"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_among_the_offers() {
        use RdmaTransformId as Id;
        let with = |offered, ids: &[Id]| {
            let contexts = [NegotiateContext::RdmaTransform(ids.to_vec())];
            let (gcm, gmac) = (Some(Cipher::Aes128Gcm), SigningAlgorithm::AesGmac);
            common_transforms(offered, &contexts, gcm, gmac).ok()
        };
        let (all, none) = (Some(RdmaTransforms::ALL), RdmaTransforms::default());
        assert_eq!(with(all, &[Id::ENCRYPTION, Id::SIGNING]), all);
        assert_eq!(with(all, &[Id::SIGNING]), Some(RdmaTransforms { signing: true, ..none }));
        assert_eq!(with(all, &[Id::NONE]), Some(none));
        for wrong in [&[][..], &[Id(3)], &[Id::SIGNING, Id::NONE], &[Id::SIGNING; 3]] {
            assert_eq!(with(all, wrong), None, "{wrong:?}");
        }
        // Over TCP the client offers no RDMA transforms, so the server must not choose one.
        for wrong in [&[Id::NONE][..], &[Id::ENCRYPTION], &[]] {
            assert_eq!(with(None, wrong), None, "{wrong:?}");
        }
        let (gcm, gmac) = (Some(Cipher::Aes128Gcm), SigningAlgorithm::AesGmac);
        assert_eq!(common_transforms(all, &[], gcm, gmac).ok(), Some(none));
    }
}
