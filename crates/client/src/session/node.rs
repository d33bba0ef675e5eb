//! The node of a cluster where a session is: for its user, and for logs.

use std::net::IpAddr;
use std::time::Duration;

use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::dial::ServerName;

/// The node that serves a share, or the server that is on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The address at which the node is reached; the server's name where that has one address.
    pub address: ServerName,
    /// The IP address of the connection; `None` while the session is lost, and if the connection does
    /// not know it.
    pub ip: Option<IpAddr>,
    /// Count of moves of the share: to another node, or to another address.
    pub moves: u64,
    /// Time since the share was found there.
    pub since: Duration,
    /// Time between the loss of the connection before the last move and the end of that move; zero
    /// without a move.
    pub pause: Duration,
}

/// The node where a session was last, and the moves before.
#[derive(Debug, Default)]
pub(super) struct NodeLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    at: Option<At>,
    /// Time at which the loss of the session was noticed; `None` while it works.
    lost: Option<Instant>,
    moves: u64,
    pause: Duration,
}

#[derive(Debug)]
struct At {
    address: ServerName,
    server: Guid,
    since: Instant,
}

impl NodeLog {
    /// Notes that the session is lost.
    pub(super) fn note_lost(&self) {
        self.0.lock().lost.get_or_insert_with(Instant::now);
    }

    /// Notes that a share was found at an address. Returns the earlier address and the pause, if this
    /// is a move.
    pub(super) fn note_found(
        &self,
        address: &ServerName,
        server: Guid,
    ) -> Option<(ServerName, Duration)> {
        let mut state = self.0.lock();
        let lost = state.lost.take();
        let is_there = |at: &At| at.address == *address && at.server == server;
        if state.at.as_ref().is_some_and(is_there) {
            return None;
        }
        let at = At { address: address.clone(), server, since: Instant::now() };
        let before = state.at.replace(at)?;
        state.moves += 1;
        state.pause = lost.map_or(Duration::ZERO, |since| since.elapsed());
        Some((before.address, state.pause))
    }

    /// Returns the node, to which there is a connection with `ip`.
    pub(super) fn info(&self, ip: Option<IpAddr>) -> Option<NodeInfo> {
        let state = self.0.lock();
        let at = state.at.as_ref()?;
        Some(NodeInfo {
            address: at.address.clone(),
            ip,
            moves: state.moves,
            since: at.since.elapsed(),
            pause: state.pause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moves_are_counted_with_their_pause() {
        let (log, [one, two]) = (NodeLog::default(), ["one", "two"].map(ServerName::new));
        let guid = |number| Guid([number; 16]);
        assert_eq!(log.note_found(&one, guid(1)), None);
        log.note_lost();
        assert_eq!(log.note_found(&one, guid(1)), None, "it came back");
        log.note_lost();
        tokio::time::advance(Duration::from_secs(2)).await;
        log.note_lost();
        let moved = Some((one.clone(), Duration::from_secs(2)));
        assert_eq!(log.note_found(&two, guid(2)), moved);
        // The address has moved to another machine.
        log.note_lost();
        assert_eq!(log.note_found(&two, guid(1)), Some((two.clone(), Duration::ZERO)));
        assert_eq!(log.0.lock().moves, 2);
    }
}
