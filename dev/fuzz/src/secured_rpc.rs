//! Signed and sealed calls: a request that was changed on its way reaches no interface.

use std::sync::Arc;

use frevo_auth::acceptor::Step as Accepted;
use frevo_auth::initiator::Step as Initiated;
use frevo_auth::{
    Acceptor, AcceptorConfig, Account, AccountRules, Accounts, Credentials, Entropy, Initiator,
    NtHash, Parts, Protection, Secret, Target, Zeroizing,
};
use frevo_rpc::pdu::{Bind, ContextElement, PduFlags, PduKind, Request};
use frevo_rpc::{
    AuthLevel, AuthType, Call, Calls, Endpoint, Outcome, SyntaxId, Terms, Verdict, samr,
};

use crate::choices::Choices;

const NOW: u64 = 1 << 57;
const CONTEXT: u32 = 9;

struct Ann;

impl Accounts for Ann {
    fn account(&self, user: &str, _: &str) -> Option<Account> {
        let (name, nt_hash) = (String::from(user), NtHash::from_password("secret"));
        Some(Account { name, nt_hash, rules: AccountRules::default() })
    }
}

/// An interface that takes the calls which it expects, and no other.
struct Expecting(Vec<(u16, Vec<u8>)>);

impl Calls for Expecting {
    fn begin(&mut self, call: &Call) -> Outcome {
        // The verification trailer is removed from the stub, so the stub is only the beginning of
        // what was sent.
        let is_it =
            |(opnum, stub): &(u16, Vec<u8>)| *opnum == call.opnum && stub.starts_with(&call.stub);
        assert!(self.0.iter().any(is_it), "a call that the client has not made");
        Outcome::Ended(Ok(call.stub.clone()))
    }

    fn cancel(&mut self, _: u32) {}
}

struct Client {
    level: AuthLevel,
    signs_header: bool,
    initiator: Initiator,
}

impl Client {
    fn new(level: AuthLevel, signs_header: bool) -> Self {
        let secret = Secret::Password(Zeroizing::new(String::from("secret")));
        let credentials = Credentials { user: "ann".into(), domain: String::new(), secret };
        let session_key = Zeroizing::new([5; 16]);
        let entropy = Entropy { client_challenge: [1; 8], session_key };
        let initiator = Initiator::new(credentials, Target::default(), entropy);
        Self { level, signs_header, initiator }
    }

    /// Appends padding and sec_trailer, and the lengths of a PDU with a token of this length.
    fn trailer(&self, pdu: &mut Vec<u8>, token: usize) {
        let padding = pdu.len().next_multiple_of(4) - pdu.len();
        pdu.resize(pdu.len() + padding, 0);
        pdu.extend([AuthType::NEGOTIATE.0, self.level.0, padding as u8, 0]);
        pdu.extend(CONTEXT.to_le_bytes());
        let length = (pdu.len() + token) as u16;
        pdu[8..10].copy_from_slice(&length.to_le_bytes());
        pdu[10..12].copy_from_slice(&(token as u16).to_le_bytes());
    }

    fn carrying(&self, kind: PduKind, token: &[u8]) -> Vec<u8> {
        let transfer = vec![SyntaxId::NDR];
        let context = ContextElement { id: 0, interface: SyntaxId::SAMR, transfer };
        let (max_xmit_frag, max_recv_frag, assoc_group_id) = (4280, 4280, 0);
        let contexts = vec![context];
        let bind = Bind { max_xmit_frag, max_recv_frag, assoc_group_id, contexts };
        let mut pdu = bind.encode(kind, 1);
        if self.signs_header {
            pdu[3] |= PduFlags::PENDING_CANCEL.0;
        }
        self.trailer(&mut pdu, token.len());
        pdu.extend(token);
        pdu
    }

    fn request(&self, protection: &mut Protection, call: &(u16, Vec<u8>)) -> Vec<u8> {
        let request = Request { alloc_hint: 0, context_id: 0, opnum: call.0, stub: &call.1 };
        let mut pdu = request.encode(PduFlags::WHOLE, 2);
        let is_sealed = self.level == AuthLevel::PRIVACY;
        self.trailer(&mut pdu, protection.token_len(is_sealed));
        let parts = Parts { body: 24..pdu.len() - 8, with_surroundings: self.signs_header };
        let token = match is_sealed {
            true => protection.seal(&mut pdu, &parts),
            false => protection.sign(&pdu, &parts),
        };
        pdu.extend(token.expect("a body in the PDU"));
        pdu
    }
}

/// Sends a token and returns the answer to it.
fn exchange(endpoint: &mut Endpoint, acceptor: &mut Acceptor, pdu: &[u8]) -> Vec<u8> {
    endpoint.write(pdu, &mut Expecting(Vec::new())).expect("an open end");
    let token = endpoint.token().expect("a token");
    let verdict = match acceptor.step(&token.token, NOW, &Ann).expect("a right proof") {
        Accepted::Continue(answer) => Verdict::Continue(answer),
        Accepted::Done(done) => {
            let protection = done.protection([2; 16]).expect("both have agreed");
            Verdict::Done(done.token, Some(Box::new(protection)))
        }
        other => panic!("{other:?}"),
    };
    endpoint.judge(verdict);
    let answer = endpoint.read(usize::MAX).expect("an answer").data;
    let token = usize::from(u16::from_le_bytes([answer[10], answer[11]]));
    answer[answer.len() - token..].to_vec()
}

/// The first byte chooses the protection; then come calls, and changes of some of them.
pub fn rpc_secured(data: &[u8]) {
    let mut choices = Choices::new(data);
    let kind = choices.u8();
    let level = if kind & 1 == 0 { AuthLevel::INTEGRITY } else { AuthLevel::PRIVACY };
    let mut client = Client::new(level, kind & 2 != 0);
    let mut endpoint = Endpoint::new(Terms::of_pipe(&samr::INTERFACE, 7));
    let mut acceptor = Acceptor::new(Arc::new(AcceptorConfig::standalone("box")), [3; 8]);
    let first = client.initiator.initial_token(&[], NOW).expect("a first token");
    let bind = client.carrying(PduKind::BIND, &first);
    let answer = exchange(&mut endpoint, &mut acceptor, &bind);
    let Ok(Initiated::Continue(last)) = client.initiator.step(&answer, NOW) else {
        panic!("no proof");
    };
    let alter = client.carrying(PduKind::ALTER_CONTEXT, &last);
    let answer = exchange(&mut endpoint, &mut acceptor, &alter);
    client.initiator.step(&answer, NOW).expect("the end of the logon");
    let mut protection = client.initiator.protection([1; 16]).expect("both have agreed");
    let mut expecting = Expecting(Vec::new());
    while !choices.is_over() && !endpoint.is_closed() {
        let call = (u16::from(choices.u8()), choices.blob().to_vec());
        let mut pdu = client.request(&mut protection, &call);
        let original = pdu.clone();
        let change = choices.u8();
        if change != 0 {
            let at = usize::from(choices.u16()) % pdu.len();
            pdu[at] ^= change;
        }
        // NTLM protects the whole PDU, so a changed PDU must not lead to any call.
        expecting.0 = if pdu == original { vec![call] } else { Vec::new() };
        let _ = endpoint.write(&pdu, &mut expecting);
        while endpoint.read(usize::MAX).is_some() {}
    }
}
