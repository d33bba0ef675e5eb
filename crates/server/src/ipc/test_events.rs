//! An interface for tests whose calls wait for an event. It is only in builds with the feature
//! `test-hooks`, and works only in a server that was started with `--test-hooks`.

use std::sync::LazyLock;

use frevo_rpc::{AuthLevel, FaultStatus, Interface, SyntaxId};
use frevo_wire::dtyp::Guid;
use frevo_wire::ndr::{NdrReader, NdrWriter};
use tokio::sync::broadcast;

use super::waits::Started;

/// The interface.
pub(super) static INTERFACE: Interface = Interface {
    syntax: SyntaxId { uuid: Guid(*b"frevo test event"), version: 1 },
    name: "test events",
    pipes: &["frevo_test"],
    secondary_address: "\\PIPE\\frevo_test",
    least_level: AuthLevel::NONE,
    level_on_tcp: Some(AuthLevel::INTEGRITY),
};

/// Waits for the event of a number, and returns the number.
const AWAIT: u16 = 0;
/// Raises the event of a number.
const RAISE: u16 = 1;

/// Events of all servers of the process that calls may miss.
const EVENTS_KEPT: usize = 1024;

static RAISED: LazyLock<broadcast::Sender<u32>> =
    LazyLock::new(|| broadcast::channel(EVENTS_KEPT).0);

/// The state of the interface on one association: none.
#[derive(Debug)]
pub(super) struct TestEvents;

impl TestEvents {
    /// Starts a call.
    #[allow(clippy::unused_self, reason = "the interfaces are called alike")]
    pub(super) fn call(&self, opnum: u16, stub: &[u8]) -> Started {
        let Ok(number) = NdrReader::new(stub).u32("the number of a test event") else {
            return Started::Ended(Err(FaultStatus::NDR));
        };
        let mut w = NdrWriter::new();
        w.u32(number);
        let answer = w.into_stub();
        match opnum {
            AWAIT => {
                let mut raised = RAISED.subscribe();
                Started::Waits(Box::pin(async move {
                    while raised.recv().await != Ok(number) {}
                    Ok(answer)
                }))
            }
            RAISE => {
                // Sending fails if no call waits for any event.
                let _ = RAISED.send(number);
                Started::Ended(Ok(answer))
            }
            _ => Started::Ended(Err(FaultStatus::OP_RNG_ERROR)),
        }
    }
}
