//! NEGOTIATE: MS-SMB2 3.3.5.3, 3.3.5.4.

use frevo_auth::Acceptor;
use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_net::buffer::Buf;
use frevo_proto::protection::Compression;
use frevo_proto::rdma_transform::RdmaTransforms;
use frevo_proto::{Dialect, Negotiated as Terms};
use frevo_wire::codec::Writer;
use frevo_wire::command::negotiate::{self, GlobalCapabilities as Capabilities, SecurityMode};
use frevo_wire::dtyp::FileTime;
use frevo_wire::negotiate_context::{
    self as context, NegotiateContext, NegotiateContextType, TransportCapabilityFlags,
};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};

use crate::base::limits::MAX_IO_SINGLE_CREDIT;
use crate::base::rates::Pace;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::connection::Connection;
use crate::objects::cancellation::Cancellation;
use crate::objects::connection_info::{ConnectionInfo, Negotiated};
use crate::objects::data::MemoryWait;
use crate::objects::refusal::{Doom, Outcome};
use crate::objects::settings::{Encryption, Settings, Signing};
use crate::shares::posix;

/// Bytes of salt in our pre-authentication context.
const SALT: usize = 32;

/// Settles dialect, algorithms and sizes.
pub(crate) fn handle(rq: &Request<'_>, connection: &Connection, out: &mut Response) -> Outcome {
    let settings = &rq.connection.settings;
    let request = negotiate::Request::parse(rq.message)
        .inspect_err(|_| tell_refused(rq, Status::INVALID_PARAMETER))?;
    if request.dialects.is_empty() {
        tell_refused(rq, Status::INVALID_PARAMETER);
        return Err(Status::INVALID_PARAMETER.into());
    }
    let least = least_dialect(rq.connection);
    let Some(dialect) = choose_dialect(least, settings.max_dialect, &request.dialects) else {
        tell_too_old(rq, &request.dialects);
        return Err(Status::NOT_SUPPORTED.into());
    };
    // The server's RDMA counts for TCP connections as well, because a client uses the terms of its
    // first connection for all its connections to this server.
    let has_rdma = rq.connection.moves_data() || rq.server().listens_for_rdma();
    let transport = Capable {
        rdma: has_rdma,
        security: is_secure(rq.connection),
        compression: rq.server().shares().compress && !rq.connection.moves_data(),
    };
    let chosen = Chosen::from(settings, transport, dialect, &request)
        .inspect_err(|status| tell_refused(rq, *status))?;
    let negotiated = settle(rq.connection, dialect, &request, &chosen);
    let mut salt = [0; SALT];
    rq.server().ambient.random(&mut salt);
    let contexts = if dialect == Dialect::SMB_3_1_1 { chosen.contexts(&salt) } else { Vec::new() };
    respond(rq, &negotiated, contexts, &mut out.writer());
    if dialect == Dialect::SMB_3_1_1 {
        connection.preauth.borrow_mut().on_negotiate(&[rq.message]);
    }
    rq.connection.settle(negotiated);
    Ok(Status::SUCCESS)
}

/// The capabilities of the server that depend on transports.
#[derive(Clone, Copy)]
struct Capable {
    /// IsRDMATransformSupported
    rdma: bool,
    /// IsTransportCapabilitiesSupported, DisableEncryptionOverSecureTransport, and a transport that
    /// encrypts by itself.
    security: bool,
    /// IsCompressionSupported. As on Windows, nothing is compressed over RDMA.
    compression: bool,
}

/// True if the server leaves encryption to the transport of this connection. Over another transport
/// it ignores SMB2_TRANSPORT_CAPABILITIES.
fn is_secure(connection: &ConnectionInfo) -> bool {
    connection.settings.transport_security && connection.transport.facts().is_secure
}

/// The least dialect of a connection. MS-SMB2 2.1: only 3.1.1 is spoken over QUIC.
fn least_dialect(connection: &ConnectionInfo) -> Dialect {
    match connection.transport.facts().is_newest_only {
        true => Dialect::SMB_3_1_1,
        false => connection.settings.min_dialect,
    }
}

/// Writes a log line about a client that offers no dialect of the server's.
fn tell_too_old(rq: &Request<'_>, offered: &[Dialect]) {
    rq.tell(|left_out| {
        let best = offered.iter().copied().filter(|d| *d != Dialect::WILDCARD).max();
        let newest = best.map_or_else(|| String::from("unknown dialects"), spelled);
        let facts = rq.connection.transport.facts();
        if facts.is_newest_only {
            tracing::warn!(target: "frevo::connection", peer = %rq.connection.peer, left_out,
                "refused: the client speaks only {newest}, and over {} is SMB 3.1.1 alone", facts.name);
            return;
        }
        let least = spelled(rq.connection.settings.min_dialect);
        tracing::warn!(target: "frevo::connection", peer = %rq.connection.peer, left_out,
            "refused: the client speaks only {newest}, min_dialect is {least}; update the client or \
             lower min_dialect");
    });
}

/// Writes a log line about a NEGOTIATE that breaks a rule of MS-SMB2 3.3.5.4.
fn tell_refused(rq: &Request<'_>, status: Status) {
    rq.tell(|left_out| {
        tracing::warn!(target: "frevo::connection", peer = %rq.connection.peer, %status, left_out,
            "refused: the client's NEGOTIATE is malformed or has no hash algorithm in common; \
             update the client");
    });
}

/// A dialect as people write it: `SMB 2.1`.
fn spelled(dialect: Dialect) -> String {
    dialect.to_string().replacen('_', " ", 1).replace('_', ".")
}

/// MS-SMB2 3.3.5.4: the greatest dialect that both speak.
fn choose_dialect(least: Dialect, newest: Dialect, offered: &[Dialect]) -> Option<Dialect> {
    let ours = [
        Dialect::SMB_2_0_2,
        Dialect::SMB_2_1,
        Dialect::SMB_3_0,
        Dialect::SMB_3_0_2,
        Dialect::SMB_3_1_1,
    ];
    ours.into_iter().filter(|d| *d >= least && *d <= newest).rfind(|d| offered.contains(d))
}

/// The choices that the contexts of a 3.1.1 request lead to.
struct Chosen {
    encryption: Option<Option<Cipher>>,
    signing: Option<SigningAlgorithm>,
    /// The transforms in common, if the client knows of them.
    rdma_transforms: Option<RdmaTransforms>,
    /// The answer to SMB2_TRANSPORT_CAPABILITIES, if it was processed.
    transport: Option<TransportCapabilityFlags>,
    posix: bool,
    /// The algorithms in common, if the client compresses.
    compression: Option<Compression>,
    /// The context of the answer, if compression was processed.
    compression_context: Option<NegotiateContext<'static>>,
}

impl Chosen {
    const NOTHING: Self = Self {
        encryption: None,
        signing: None,
        rdma_transforms: None,
        transport: None,
        posix: false,
        compression: None,
        compression_context: None,
    };

    fn from(
        settings: &Settings,
        transport: Capable,
        dialect: Dialect,
        request: &negotiate::Request<'_>,
    ) -> Result<Self, Status> {
        let mut chosen = Self::NOTHING;
        let mut transform_ids = None;
        if dialect != Dialect::SMB_3_1_1 {
            return Ok(chosen);
        }
        check_counts(&request.negotiate_contexts)?;
        chosen.posix = settings.posix && posix::is_offered(&request.negotiate_contexts)?;
        for context in &request.negotiate_contexts {
            match context {
                NegotiateContext::PreauthIntegrity { hash_algorithms, .. } => {
                    if hash_algorithms.is_empty() {
                        return Err(Status::INVALID_PARAMETER);
                    }
                    if !hash_algorithms.contains(&context::HashAlgorithm::SHA_512) {
                        return Err(Status::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
                    }
                }
                // An empty cipher list is invalid (MS-SMB2 2.2.3.1.2), but MS-SMB2 3.3.5.4 defines
                // no error for it. Clients with encryption off send it and cannot read an answer
                // with cipher 0, so it is ignored.
                NegotiateContext::Encryption(ciphers) if ciphers.is_empty() => {}
                NegotiateContext::Encryption(ciphers) if settings.encryption != Encryption::Off => {
                    let offered = |c: &&Cipher| ciphers.contains(&context::Cipher(c.id()));
                    chosen.encryption = Some(settings.ciphers.iter().find(offered).copied());
                }
                NegotiateContext::Signing(algorithms) => {
                    if algorithms.is_empty() {
                        return Err(Status::INVALID_PARAMETER);
                    }
                    let offered = |a: &&SigningAlgorithm| {
                        algorithms.contains(&context::SigningAlgorithm(a.id()))
                    };
                    let common = settings.signing_algorithms.iter().find(offered).copied();
                    chosen.signing = Some(common.unwrap_or(SigningAlgorithm::AesCmac));
                }
                // MS-SMB2 3.3.5.4: Connection.AcceptTransportSecurity.
                NegotiateContext::Transport(flags) if transport.security => {
                    let accepted = TransportCapabilityFlags::ACCEPT_TRANSPORT_LEVEL_SECURITY;
                    chosen.transport = Some(*flags & accepted);
                }
                NegotiateContext::RdmaTransform(ids) if transport.rdma => {
                    if ids.is_empty() {
                        return Err(Status::INVALID_PARAMETER);
                    }
                    transform_ids = Some(ids);
                }
                NegotiateContext::Compression { .. } if transport.compression => {
                    chosen.compress(context)?;
                }
                // Unknown contexts, and those of features that this server does not have, are
                // ignored.
                _ => {}
            }
        }
        let signing = chosen.signing.unwrap_or_else(|| Terms::default_signing_algorithm(dialect));
        chosen.rdma_transforms = transform_ids
            .map(|ids| RdmaTransforms::common(ids, chosen.encryption.flatten(), signing));
        Ok(chosen)
    }

    /// Chooses the algorithms in common with `context`, if that is of compression.
    fn compress(&mut self, context: &NegotiateContext<'_>) -> Result<(), Status> {
        let NegotiateContext::Compression { flags, algorithms } = context else { return Ok(()) };
        if algorithms.is_empty() {
            return Err(Status::INVALID_PARAMETER);
        }
        self.compression = Compression::common(*flags, algorithms);
        let none = || Compression::none(*flags);
        self.compression_context = Some(self.compression.map_or_else(none, |all| all.context()));
        Ok(())
    }

    /// The contexts of our response, in the order of their numbers.
    fn contexts<'a>(&self, salt: &'a [u8]) -> Vec<NegotiateContext<'a>> {
        let mut contexts = vec![NegotiateContext::PreauthIntegrity {
            hash_algorithms: vec![context::HashAlgorithm::SHA_512],
            salt,
        }];
        if let Some(cipher) = self.encryption {
            let id = cipher.map_or(context::Cipher::NONE, |c| context::Cipher(c.id()));
            contexts.push(NegotiateContext::Encryption(vec![id]));
        }
        contexts.extend(self.compression_context.clone());
        if let Some(flags) = self.transport {
            contexts.push(NegotiateContext::Transport(flags));
        }
        if let Some(transforms) = self.rdma_transforms {
            contexts.push(NegotiateContext::RdmaTransform(transforms.ids()));
        }
        if let Some(algorithm) = self.signing {
            let id = context::SigningAlgorithm(algorithm.id());
            contexts.push(NegotiateContext::Signing(vec![id]));
        }
        if self.posix {
            contexts.push(NegotiateContext::Posix(&context::POSIX_GUID));
        }
        contexts
    }
}

/// MS-SMB2 3.3.5.4: exactly one pre-authentication context, at most one of the
/// other kinds that say so.
fn check_counts(contexts: &[NegotiateContext<'_>]) -> Result<(), Status> {
    let count = |kind| contexts.iter().filter(|c| c.kind() == kind).count();
    if count(NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES) != 1 {
        return Err(Status::INVALID_PARAMETER);
    }
    let single = [
        NegotiateContextType::ENCRYPTION_CAPABILITIES,
        NegotiateContextType::COMPRESSION_CAPABILITIES,
        NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES,
        NegotiateContextType::SIGNING_CAPABILITIES,
    ];
    if single.into_iter().any(|kind| count(kind) > 1) {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(())
}

fn settle(
    connection: &ConnectionInfo,
    dialect: Dialect,
    request: &negotiate::Request<'_>,
    chosen: &Chosen,
) -> Negotiated {
    let settings = &connection.settings;
    let keeps_opens = connection.server.durables.store().is_some();
    // MS-SMB2 3.3.5.4: requests of several credits depend on the dialect and on the transport.
    let multi_credit =
        dialect != Dialect::SMB_2_0_2 && connection.transport.facts().has_multi_credit;
    let smb3 = dialect >= Dialect::SMB_3_0;
    let mut capabilities = of_dfs(connection);
    if multi_credit {
        capabilities |= Capabilities::LARGE_MTU;
    }
    if dialect != Dialect::SMB_2_0_2 {
        capabilities |= Capabilities::LEASING;
    }
    // MS-SMB2 3.3.5.4: the server announces directory leasing only to a client that also announces
    // it.
    if smb3 && request.capabilities.contains(Capabilities::DIRECTORY_LEASING) {
        capabilities |= Capabilities::DIRECTORY_LEASING;
    }
    if smb3 && keeps_opens && request.capabilities.contains(Capabilities::PERSISTENT_HANDLES) {
        capabilities |= Capabilities::PERSISTENT_HANDLES;
    }
    if smb3 && request.capabilities.contains(Capabilities::MULTI_CHANNEL) {
        capabilities |= Capabilities::MULTI_CHANNEL;
    }
    // MS-SMB2 3.3.5.4: notifications of the server are for clients of 3.1.1 that take them.
    if dialect == Dialect::SMB_3_1_1 && request.capabilities.contains(Capabilities::NOTIFICATIONS) {
        capabilities |= Capabilities::NOTIFICATIONS;
    }
    let mut cipher = chosen.encryption.flatten();
    // Before dialect 3.1.1, the ENCRYPTION capability means AES-128-CCM. In 3.1.1 a negotiate
    // context replaces it.
    let ccm = settings.encryption != Encryption::Off
        && settings.ciphers.contains(&Cipher::Aes128Ccm)
        && request.capabilities.contains(Capabilities::ENCRYPTION);
    if smb3 && dialect != Dialect::SMB_3_1_1 && ccm {
        capabilities |= Capabilities::ENCRYPTION;
        cipher = Some(Cipher::Aes128Ccm);
    }
    let max_io = if multi_credit { settings.max_io } else { MAX_IO_SINGLE_CREDIT };
    let max_transact = if multi_credit { settings.max_transact } else { MAX_IO_SINGLE_CREDIT };
    Negotiated {
        terms: Terms {
            dialect,
            cipher,
            signing_algorithm: chosen
                .signing
                .unwrap_or_else(|| Terms::default_signing_algorithm(dialect)),
            is_multi_credit: multi_credit,
            max_transact_size: max_transact,
            max_read_size: max_io,
            max_write_size: max_io,
            rdma_transforms: chosen.rdma_transforms.unwrap_or_default(),
            compression: chosen.compression,
        },
        client_guid: request.client_guid,
        client_dialects: request.dialects.clone(),
        client_capabilities: request.capabilities,
        client_security_mode: request.security_mode,
        server_capabilities: capabilities,
        server_security_mode: security_mode(settings),
        posix: chosen.posix,
        accepts_transport_security: chosen.transport.is_some_and(|flags| !flags.is_empty()),
    }
}

/// MS-SMB2 3.3.5.4: IsDfsCapable, for clients of every dialect.
fn of_dfs(connection: &ConnectionInfo) -> Capabilities {
    match connection.server.shares().namespaces.is_empty() {
        true => Capabilities::EMPTY,
        false => Capabilities::DFS,
    }
}

fn security_mode(settings: &Settings) -> SecurityMode {
    match settings.signing {
        Signing::Required => SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED,
        Signing::Offered => SecurityMode::SIGNING_ENABLED,
    }
}

fn respond(
    rq: &Request<'_>,
    negotiated: &Negotiated,
    contexts: Vec<NegotiateContext<'_>>,
    w: &mut Writer<'_>,
) {
    let terms = &negotiated.terms;
    negotiate::Response {
        security_mode: negotiated.server_security_mode,
        dialect_revision: terms.dialect,
        server_guid: rq.connection.settings.server_guid,
        capabilities: negotiated.server_capabilities,
        max_transact_size: terms.max_transact_size,
        max_read_size: terms.max_read_size,
        max_write_size: terms.max_write_size,
        system_time: rq.server().ambient.now(),
        server_start_time: FileTime::ZERO,
        security_buffer: &Acceptor::initial_token(
            rq.server().kerberos.service().is_some(),
            rq.connection.settings.ntlm,
        ),
        negotiate_contexts: contexts,
    }
    .encode(w);
}

/// SMB1's NEGOTIATE, MS-SMB2 3.3.5.3: a client that may speak SMB1 too asks
/// whether SMB2 is here. Nothing else of SMB1 is.
pub(crate) fn multi_protocol(connection: &Connection, frame: &Buf) -> Result<(), Doom> {
    /// SMB_COM_NEGOTIATE, MS-CIFS 2.2.4.52.
    const SMB_COM_NEGOTIATE: u8 = 0x72;
    if connection.info.is_negotiated() || connection.is_multi_protocol.get() {
        return Err(Doom::Rule("SMB1 after NEGOTIATE"));
    }
    if frame.get(4) != Some(&SMB_COM_NEGOTIATE) {
        return Err(Doom::Rule("SMB1"));
    }
    let dialects = smb1_dialects(frame).ok_or(Doom::Rule("malformed SMB1 NEGOTIATE"))?;
    let settings = &connection.info.settings;
    let least = least_dialect(&connection.info);
    let wildcard = dialects.clone().any(|d| d == b"SMB 2.???");
    let old = dialects.clone().any(|d| d == b"SMB 2.002") && least == Dialect::SMB_2_0_2;
    if wildcard && settings.max_dialect > Dialect::SMB_2_0_2 {
        connection.is_multi_protocol.set(true);
        answer_multi_protocol(connection, Dialect::WILDCARD);
        Ok(())
    } else if old {
        answer_multi_protocol(connection, Dialect::SMB_2_0_2);
        Ok(())
    } else {
        let is_smb2 = dialects.clone().any(|d| d == b"SMB 2.002");
        let least = spelled(least);
        connection.info.tell(|left_out| {
            let peer = connection.info.peer;
            if is_smb2 {
                tracing::warn!(target: "frevo::connection", %peer, left_out,
                    "refused: the client offers no dialect above SMB 2.0.2, min_dialect is \
                     {least}; let the client offer SMB 2.1 or later, or lower min_dialect");
            } else {
                tracing::warn!(target: "frevo::connection", %peer, left_out,
                    "refused: the client speaks SMB1 only, which this server does not have; \
                     update the client");
            }
        });
        Err(Doom::Told(if is_smb2 { "SMB 2.0.2 only" } else { "SMB1 only" }))
    }
}

/// The dialect strings after header (32), WordCount (0) and ByteCount.
fn smb1_dialects(frame: &[u8]) -> Option<impl Iterator<Item = &[u8]> + Clone> {
    if frame.get(32) != Some(&0) {
        return None;
    }
    let count = u16::from_le_bytes(*frame.get(33..35)?.first_chunk()?);
    let list = frame.get(35..35 + usize::from(count))?;
    Some(list.split(|b| *b == 0).filter_map(|d| d.strip_prefix(&[2])))
}

/// Answers with an SMB2 response whose header has nothing but the command.
fn answer_multi_protocol(connection: &Connection, dialect: Dialect) {
    let header = Header {
        credit_charge: 0,
        status: Status::SUCCESS,
        command: Command::NEGOTIATE,
        credits: 1,
        flags: HeaderFlags::EMPTY,
        next_command: 0,
        message_id: 0,
        route: Route::Sync { process_id: 0, tree_id: 0 },
        session_id: 0,
        signature: [0; 16],
    };
    let request = negotiate::Request {
        security_mode: SecurityMode::EMPTY,
        capabilities: Capabilities::EMPTY,
        client_guid: frevo_wire::dtyp::Guid::default(),
        dialects: vec![dialect],
        negotiate_contexts: Vec::new(),
    };
    let negotiated = settle(&connection.info, dialect, &request, &Chosen::NOTHING);
    let rq = Request {
        connection: &connection.info,
        owner: Some(connection),
        header,
        message: &[],
        whole: None,
        session: None,
        tree: None,
        open: None,
        encrypted: false,
        fetched: std::cell::Cell::default(),
        alone: true,
        compressible: false,
        shown: None,
        room: usize::MAX,
        memory_wait: MemoryWait::Dropped,
        cancellation: Cancellation::default(),
        busy: std::cell::Cell::default(),
        pace: Pace::default(),
    };
    let mut out = Response::reusing(Vec::new());
    respond(&rq, &negotiated, Vec::new(), &mut out.writer());
    if dialect == Dialect::SMB_2_0_2 {
        connection.info.settle(negotiated);
    }
    connection.send_alone(&header, out);
}
