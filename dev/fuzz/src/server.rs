//! The whole server, played by the script client of its own tests.

#[path = "../../../crates/server/tests/client/mod.rs"]
pub(crate) mod client;

use client::settings;
use client::world::play;
use frevo_server::Settings;
use frevo_server::settings::Encryption;

/// The first byte says whether encryption is required; the rest is the script.
pub fn server(data: &[u8]) {
    let Some((first, script)) = data.split_first() else { return };
    let encryption = if first % 4 == 3 { Encryption::Required } else { Encryption::Offered };
    play(Settings { encryption, ..settings() }, script);
}
