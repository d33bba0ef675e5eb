//! The status of a mount, which its own process answers without the server.

use std::fmt::Write;

use super::Volume;

/// The extended attribute of a mount's folder that holds its status, in lines `key value`. It is in no
/// list, and hides an attribute of the server with its name.
pub const STATUS_ATTRIBUTE: &str = "user.frevo.mount.status";

impl Volume {
    /// Returns the lines of the status.
    pub(super) fn status(&self) -> Vec<u8> {
        let mut text =
            format!("url {}\n", self.share.url(&self.nodes.root().path().unwrap_or_default()));
        if let Some(node) = self.share.node() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "address {}", node.address);
            if let Some(ip) = node.ip {
                let _ = writeln!(text, "ip {ip}");
            }
            let (since, pause) = (node.since.as_secs(), node.pause.as_millis());
            let _ = writeln!(text, "moves {}\nsince_seconds {since}\npause_ms {pause}", node.moves);
        }
        if let Some(witness) = self.share.witness() {
            if let Some(ip) = witness.address {
                let _ = writeln!(text, "witness {ip}");
            }
            let _ = writeln!(text, "witness_heeded {}", witness.heeded);
        }
        text.into_bytes()
    }
}
