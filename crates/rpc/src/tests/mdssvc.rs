//! Spotlight: bytes of Samba's programs, the queries, and the state of a pipe.

mod machine;
mod messages;
mod queries;
mod samba;

use super::hex;
use crate::mdssvc::{Command, INTERFACE, Reply, Request};
use crate::{FaultStatus, SyntaxId};
use alloc::string::ToString;
use alloc::vec::Vec;
use frevo_wire::ndr::ContextHandle;
use proptest::prelude::*;

fn handle(byte: u8) -> ContextHandle {
    let mut handle = ContextHandle([byte; 20]);
    handle.0[..4].fill(0);
    handle
}

#[test]
fn the_interface_has_the_uuid_that_samba_publishes() {
    assert_eq!(SyntaxId::MDSSVC.uuid.0[..], hex("fb855d88 54c7 6240 a0e7 6872ce0064f4"));
    assert_eq!((SyntaxId::MDSSVC.version, INTERFACE.pipes), (2, &["mdssvc"][..]));
}

/// The stub data of smbd's replies to mdsearch, with the value of the pointer that Frevo has.
#[test]
fn replies_have_the_bytes_of_smbd() {
    let open = "00000000 00000000 01000000 01040000 00000000 07000000 2f73706f746c00 00 \
                00000000 8e26fa88aee5ae49ab33dd67b0f321db";
    let mut handle = ContextHandle::NULL;
    handle.0[4..].copy_from_slice(&hex("8e26fa88aee5ae49ab33dd67b0f321db"));
    let command = ["00000000 38000000 38000000 00000200 38000000 00000000 38000000", samba::DONE];
    let command = [&*command.concat(), "00000000"].concat();
    let rows = [
        (Reply::Open { echoed: [0, 0, 1], share_path: "/spotl".into(), handle }, open.into()),
        (Reply::Unknown1 { flags: 0x6B00_0001 }, "00000000 0100006b 00000000".into()),
        (Reply::Command { fragment: 0, message: hex(samba::DONE) }, command),
        (
            Reply::Command { fragment: 0, message: Vec::new() },
            "00000000 00000000 00000000 00000000 00000000".into(),
        ),
        (Reply::Close { handle }, "00000000 8e26fa88aee5ae49ab33dd67b0f321db 00000000".to_string()),
    ];
    for (opnum, (reply, bytes)) in [0, 1, 2, 2, 3].into_iter().zip(rows) {
        assert_eq!(reply.encode(), hex(&bytes), "{reply:?}");
        assert_eq!(Reply::parse(opnum, &hex(&bytes)), Ok(reply));
    }
}

/// A path that is longer than the interface says, and a message of another length than it says.
#[test]
fn odd_arguments_are_refused() {
    let open = |length: usize| Request::Open {
        echoed: [1, 2, 3],
        mount_path: "m".repeat(length),
        share: "s".into(),
    };
    assert!(Request::parse(0, &open(1024).encode()).is_ok());
    assert_eq!(Request::parse(0, &open(1025).encode()), Err(FaultStatus::NDR));
    assert_eq!(Request::parse(4, &[]), Err(FaultStatus::OP_RNG_ERROR));
    let command = Command {
        handle: handle(1),
        next_fragment: 0,
        message: [7; 8].to_vec(),
        max_fragment: 65_536,
    };
    let stub = Request::Command(command).encode();
    // The bytes that length, size, the maximum count and the count are at.
    for (at, value) in [(40, 9), (44, 7), (52, 9), (56, 1), (60, 7)] {
        let mut lie = stub.clone();
        lie[at] = value;
        assert_eq!(Request::parse(2, &lie), Err(FaultStatus::NDR), "{at}");
    }
}

fn requests() -> impl Strategy<Value = Request> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    (0..4_u16, any::<[u32; 3]>(), "[^\0]{0,20}", any::<u8>(), bytes).prop_map(
        |(opnum, echoed, text, byte, message)| match opnum {
            0 => Request::Open { echoed, mount_path: text.clone(), share: text },
            1 => Request::Unknown1 { handle: handle(byte) },
            2 => Request::Command(Command {
                handle: handle(byte),
                next_fragment: echoed[0],
                message,
                max_fragment: echoed[1],
            }),
            _ => Request::Close { handle: handle(byte) },
        },
    )
}

proptest! {
    #[test]
    fn calls_come_back(request in requests()) {
        prop_assert_eq!(Request::parse(request.opnum(), &request.encode()), Ok(request));
    }

    #[test]
    fn any_stub_data_is_a_call_or_a_fault(opnum in 0..5_u16, stub in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(request) = Request::parse(opnum, &stub) {
            prop_assert_eq!(request.opnum(), opnum);
        }
        let _ = Reply::parse(opnum, &stub);
    }
}
