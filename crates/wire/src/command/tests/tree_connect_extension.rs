//! The request extension of TREE_CONNECT, MS-SMB2 2.2.9.1.

use super::message;
use crate::command::tree_connect::{
    Request, TreeConnectContext, TreeConnectContextType, TreeConnectFlags,
};
use crate::limits::MAX_TREE_CONNECT_CONTEXTS;
use crate::utf16::Utf16;
use std::vec;
use std::vec::Vec;

fn extended(contexts: Vec<TreeConnectContext<'_>>) -> Request<'_> {
    Request {
        flags: TreeConnectFlags::EXTENSION_PRESENT,
        path: Utf16::from_str(r"\\server\share"),
        contexts: Ok(contexts),
    }
}

#[test]
fn survives() {
    for count in [0, 1, 2, 16] {
        let context = TreeConnectContext {
            kind: TreeConnectContextType::REMOTED_IDENTITY,
            data: &[1, 2, 3, 4, 5],
        };
        let request = extended(vec![context; count]);
        let bytes = message(|w| request.encode(w));
        assert_eq!(Request::parse(&bytes), Ok(request));
    }
}

#[test]
fn faults_of_the_extension_are_returned_separately() {
    let context =
        TreeConnectContext { kind: TreeConnectContextType::REMOTED_IDENTITY, data: &[7; 9] };
    let bytes = message(|w| extended(vec![context]).encode(w));
    // Each case changes one byte: in TreeConnectContextOffset (offset 72), in
    // TreeConnectContextCount (76), or in the first context's DataLength (122).
    for (at, value) in [(72, 0), (72, 23), (72, 0xF0), (76, 2), (76, 17), (77, 0xFF), (122, 10)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let request = Request::parse(&bytes).unwrap();
        assert!(request.contexts.is_err(), "{at} {value}");
        assert_eq!(request.path.to_string().unwrap(), r"\\server\share");
        // The flag says that there is no extension, so its bytes are ignored.
        bytes[66] = 0;
        assert_eq!(Request::parse(&bytes).unwrap().contexts, Ok(vec![]));
    }
}

#[test]
fn count_limit() {
    for (count, good) in [
        (MAX_TREE_CONNECT_CONTEXTS - 1, true),
        (MAX_TREE_CONNECT_CONTEXTS, true),
        (MAX_TREE_CONNECT_CONTEXTS + 1, false),
    ] {
        let context =
            TreeConnectContext { kind: TreeConnectContextType::REMOTED_IDENTITY, data: &[] };
        let bytes = message(|w| extended(vec![context; count]).encode(w));
        assert_eq!(Request::parse(&bytes).unwrap().contexts.is_ok(), good, "{count}");
    }
}
