//! The three messages of DCE RPC, and the protection of calls after them.

use super::*;
use crate::{Parts, Protection};

/// Runs an exchange to its end. Returns both ends' protection.
fn exchange(acceptor: Acceptor, initiator: Initiator) -> (Protection, Protection) {
    let (mut acceptor, mut initiator) = (acceptor.with_dce_style(), initiator.with_dce_style());
    let first = initiator.initial_token(&[], NOW).unwrap();
    let step = acceptor.step(&first, NOW, &accounts());
    let Ok(AcceptorStep::Continue(answer)) = step else { panic!("{step:?}") };
    let step = initiator.step(&answer, NOW);
    let Ok(InitiatorStep::Continue(proof)) = step else { panic!("{step:?}") };
    let step = acceptor.step(&proof, NOW, &accounts());
    let Ok(AcceptorStep::Done(done)) = step else { panic!("{step:?}") };
    assert_eq!(done.identity.mechanism(), Mechanism::Kerberos);
    let step = initiator.step(&done.token, NOW);
    assert!(matches!(step, Ok(InitiatorStep::Done(_))), "{step:?}");
    (initiator.protection([1; 16]).unwrap(), done.protection([2; 16]).unwrap())
}

#[test]
fn three_messages_authenticate_and_protect() {
    let (mut client, mut server) = exchange(acceptor(service()), initiator(forge().issue()));
    for with_surroundings in [false, true] {
        let parts = Parts { body: 8..24, with_surroundings };
        for _ in 0..2 {
            let mut message = *b"the headthe body of it 1trailer.";
            let plain = message;
            let token = client.seal(&mut message, &parts).unwrap();
            assert_eq!(token.len(), client.token_len(true));
            assert!(server.unseal(&mut message, &parts, &token));
            assert_eq!(message, plain);
            let token = server.sign(&message, &parts).unwrap();
            assert!(client.verify(&message, &parts, &token));
        }
    }
    let parts = Parts { body: 8..24, with_surroundings: true };
    let mut message = *b"the headthe body of it 1trailer.";
    let token = client.seal(&mut message, &parts).unwrap();
    message[0] ^= 1;
    assert!(!server.unseal(&mut message, &parts, &token), "the header is signed");
}

/// RPC_C_AUTHN_GSS_KERBEROS: the three messages without SPNEGO around them.
#[test]
fn three_messages_need_no_spnego() {
    let bare = |initiator: Initiator| initiator.with_dce_style().without_spnego();
    let server = || acceptor(service()).with_dce_style().without_spnego();
    let (mut client, mut server_end) = (bare(initiator(forge().issue())), server());
    let first = client.initial_token(&[], NOW).unwrap();
    assert_eq!(first.first(), Some(&0x6E), "an AP-REQ");
    let step = server_end.step(&first, NOW, &accounts());
    let Ok(AcceptorStep::Continue(answer)) = step else { panic!("{step:?}") };
    assert_eq!(answer.first(), Some(&0x6F), "an AP-REP");
    let step = client.step(&answer, NOW);
    let Ok(InitiatorStep::Continue(proof)) = step else { panic!("{step:?}") };
    let step = server_end.step(&proof, NOW, &accounts());
    let Ok(AcceptorStep::Done(done)) = step else { panic!("{step:?}") };
    assert!(done.token.is_empty() && !done.has_mic);
    let (mut client, mut server_end) =
        (client.protection([1; 16]).unwrap(), done.protection([2; 16]).unwrap());
    let parts = Parts { body: 8..24, with_surroundings: true };
    let mut message = *b"the headthe body of it 1trailer.";
    let token = client.seal(&mut message, &parts).unwrap();
    assert!(server_end.unseal(&mut message, &parts, &token));
    let token = server_end.sign(&message, &parts).unwrap();
    assert!(client.verify(&message, &parts, &token));
    // A DCE-style exchange within SPNEGO is refused, and so is a changed proof.
    let mut other = initiator(forge().issue()).with_dce_style();
    let first = other.initial_token(&[], NOW).unwrap();
    let refusal = server().step(&first, NOW, &accounts()).unwrap_err();
    assert_eq!(refusal.reason, Reason::NoCommonMechanism);
    let (mut client, mut server_end) = (bare(initiator(forge().issue())), server());
    let first = client.initial_token(&[], NOW).unwrap();
    let Ok(AcceptorStep::Continue(answer)) = server_end.step(&first, NOW, &accounts()) else {
        panic!("refused")
    };
    let Ok(InitiatorStep::Continue(mut proof)) = client.step(&answer, NOW) else {
        panic!("no proof")
    };
    *proof.last_mut().unwrap() ^= 1;
    assert!(server_end.step(&proof, NOW, &accounts()).is_err());
}

/// SMB has no use for the form of DCE RPC.
#[test]
fn only_rpc_takes_three_messages() {
    let mut initiator = initiator(forge().issue()).with_dce_style();
    let first = initiator.initial_token(&[], NOW).unwrap();
    assert!(acceptor(service()).step(&first, NOW, &accounts()).is_err());
}

/// The third message repeats the number of the second one, under the ticket's key.
#[test]
fn the_third_message_is_a_proof() {
    let second = || {
        let mut acceptor = acceptor(service()).with_dce_style();
        let mut own = initiator(forge().issue()).with_dce_style();
        let first = own.initial_token(&[], NOW).unwrap();
        let step = acceptor.step(&first, NOW, &accounts());
        let Ok(AcceptorStep::Continue(answer)) = step else { panic!("{step:?}") };
        let step = own.step(&answer, NOW);
        let Ok(InitiatorStep::Continue(proof)) = step else { panic!("{step:?}") };
        (acceptor, proof)
    };
    let (mut acceptor, proof) = second();
    assert!(matches!(acceptor.step(&proof, NOW, &accounts()), Ok(AcceptorStep::Done(_))));
    for at in 0..proof.len() {
        let (mut acceptor, mut proof) = second();
        proof[at] ^= 1;
        let step = acceptor.step(&proof, NOW, &accounts());
        assert!(!matches!(&step, Ok(AcceptorStep::Done(_))), "{at}: {step:?}");
    }
    let (mut acceptor, _) = second();
    let empty = NegTokenResp::default().encode();
    assert!(acceptor.step(&empty, NOW, &accounts()).is_err());
}
