//! A client of RPC over TCP.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr};

use frevo_auth::initiator::Step;
use frevo_auth::{Credentials, Entropy, Initiator, Parts, Protection, Secret, Target, Zeroizing};
use frevo_net::transport::Stream;
use frevo_rpc::pdu::{Bind, ContextElement, Header, PduFlags, PduKind, Request, split_first};
use frevo_rpc::{AuthLevel, AuthType, SyntaxId};
use frevo_server::RpcPort;

use crate::client::*;

/// The end of a client.
pub(crate) struct RpcPeer {
    stream: Stream,
    input: Vec<u8>,
    pub(crate) kind: AuthType,
    pub(crate) level: AuthLevel,
    protection: Option<Protection>,
}

/// One context of an interface.
pub(crate) fn bind_of(interface: SyntaxId, id: u16) -> Bind {
    let context = ContextElement { id, interface, transfer: vec![SyntaxId::NDR] };
    Bind { max_xmit_frag: 4280, max_recv_frag: 4280, assoc_group_id: 0, contexts: vec![context] }
}

pub(crate) fn header(pdu: &[u8]) -> Header {
    split_first(pdu, u16::MAX).unwrap().unwrap().0
}

impl RpcPeer {
    pub(crate) fn connect(world: &World, port: RpcPort) -> Self {
        Self::connect_from(world, Ipv4Addr::LOCALHOST.into(), port).expect("admitted")
    }

    pub(crate) fn connect_from(world: &World, address: IpAddr, port: RpcPort) -> Option<Self> {
        let stream = world.connect_rpc(address, port)?;
        let (kind, level) = (AuthType::NTLM, AuthLevel::PRIVACY);
        Some(Self { stream, input: Vec::new(), kind, level, protection: None })
    }

    /// A connection to the endpoint mapper, bound without a logon.
    pub(crate) async fn mapper(world: &World) -> Self {
        let mut peer = Self::connect(world, RpcPort::Mapper);
        let ack = peer.ask(&bind_of(SyntaxId::EPM, 0).encode(PduKind::BIND, 1)).await;
        assert_eq!(header(&ack).kind, PduKind::BIND_ACK);
        peer
    }

    pub(crate) async fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stream.try_write_vectored(&[IoSlice::new(bytes)], false) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.stream.writable().await.unwrap();
                }
                Err(_) => return,
            }
        }
    }

    /// The next PDU; None at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Ok(Some((header, _, _))) = split_first(&self.input, u16::MAX) {
                let rest = self.input.split_off(usize::from(header.frag_length));
                return Some(std::mem::replace(&mut self.input, rest));
            }
            self.stream.readable().await.unwrap();
            let mut bytes = [0; 4096];
            match self.stream.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)]) {
                Ok(0) => return None,
                Ok(count) => self.input.extend(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    pub(crate) async fn ask(&mut self, pdu: &[u8]) -> Vec<u8> {
        self.send(pdu).await;
        self.next().await.expect("an answer")
    }

    /// Waits for the end of the connection; what comes before it.
    pub(crate) async fn end(&mut self) -> Vec<Vec<u8>> {
        let mut before = Vec::new();
        while let Some(pdu) = self.next().await {
            before.push(pdu);
        }
        before
    }

    /// Appends padding and sec_trailer, and the lengths of a PDU with a token of this length.
    fn trailer(&self, pdu: &mut Vec<u8>, token_len: usize) {
        let padding = pdu.len().next_multiple_of(4) - pdu.len();
        pdu.resize(pdu.len() + padding, 0);
        pdu.extend([self.kind.0, self.level.0, padding as u8, 0, 1, 0, 0, 0]);
        let length = (pdu.len() + token_len) as u16;
        pdu[8..10].copy_from_slice(&length.to_le_bytes());
        pdu[10..12].copy_from_slice(&(token_len as u16).to_le_bytes());
    }

    /// A PDU with a token.
    pub(crate) fn carrying(&self, kind: PduKind, interface: SyntaxId, token: &[u8]) -> Vec<u8> {
        let mut pdu = bind_of(interface, 0).encode(kind, 1);
        if kind == PduKind::AUTH3 {
            pdu.truncate(20);
        }
        pdu[3] |= PduFlags::PENDING_CANCEL.0;
        self.trailer(&mut pdu, token.len());
        pdu.extend(token);
        pdu
    }

    /// Authenticates in a bind and an auth3, which has no answer. The first calls tell how it ended.
    pub(crate) async fn log_on(&mut self, interface: SyntaxId, user: &str, password: &str) {
        let secret = Secret::Password(Zeroizing::new(password.to_owned()));
        let credentials = Credentials { user: user.to_owned(), domain: String::new(), secret };
        let entropy = Entropy { client_challenge: [7; 8], session_key: Zeroizing::new([0x33; 16]) };
        let mut initiator = Initiator::new(credentials, Target::default(), entropy);
        self.kind = AuthType::NEGOTIATE;
        let first = initiator.initial_token(&[], 1 << 57).unwrap();
        let bind = self.carrying(PduKind::BIND, interface, &first);
        let ack = self.ask(&bind).await;
        assert_eq!(header(&ack).kind, PduKind::BIND_ACK);
        let token = &ack[ack.len() - usize::from(header(&ack).auth_length)..];
        let Ok(Step::Continue(last)) = initiator.step(token, 1 << 57) else { panic!("no proof") };
        let proof = self.carrying(PduKind::ALTER_CONTEXT, interface, &last);
        self.send(&proof).await;
        let Some(answer) = self.next().await else { return };
        if header(&answer).kind == PduKind::ALTER_CONTEXT_RESP {
            let token = &answer[answer.len() - usize::from(header(&answer).auth_length)..];
            initiator.step(token, 1 << 57).unwrap();
            self.protection = initiator.protection([1; 16]);
        }
    }

    pub(crate) fn is_logged_on(&self) -> bool {
        self.protection.is_some()
    }

    /// A request as it is protected, or plain before a logon.
    pub(crate) fn request(&mut self, call_id: u32, opnum: u16, stub: &[u8]) -> Vec<u8> {
        self.fragment(PduFlags::WHOLE, call_id, opnum, stub)
    }

    pub(crate) fn fragment(
        &mut self,
        flags: PduFlags,
        call_id: u32,
        opnum: u16,
        stub: &[u8],
    ) -> Vec<u8> {
        let request = Request { alloc_hint: 0, context_id: 0, opnum, stub };
        let mut pdu = request.encode(flags, call_id);
        let Some(mut protection) = self.protection.take() else { return pdu };
        let is_sealed = self.level == AuthLevel::PRIVACY;
        self.trailer(&mut pdu, protection.token_len(is_sealed));
        let parts = Parts { body: 24..pdu.len() - 8, with_surroundings: true };
        let token = match is_sealed {
            true => protection.seal(&mut pdu, &parts),
            false => protection.sign(&pdu, &parts),
        };
        pdu.extend(token.unwrap());
        self.protection = Some(protection);
        pdu
    }

    /// The stub data of a response.
    pub(crate) fn opened(&mut self, mut pdu: Vec<u8>) -> Vec<u8> {
        assert_eq!(header(&pdu).kind, PduKind::RESPONSE, "{pdu:02x?}");
        let Some(protection) = &mut self.protection else { return pdu.split_off(24) };
        let token = pdu.split_off(pdu.len() - usize::from(header(&pdu).auth_length));
        let padding = usize::from(pdu[pdu.len() - 6]);
        let parts = Parts { body: 24..pdu.len() - 8, with_surroundings: true };
        let is_right = match self.level {
            AuthLevel::PRIVACY => protection.unseal(&mut pdu, &parts, &token),
            _ => protection.verify(&pdu, &parts, &token),
        };
        assert!(is_right);
        pdu[24..pdu.len() - 8 - padding].to_vec()
    }
}
