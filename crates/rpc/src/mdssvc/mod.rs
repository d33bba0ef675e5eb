//! Spotlight, the search of macOS, over the pipe `mdssvc`.
//!
//! No specification describes it. The layout of the calls and of the messages in them comes from the interface
//! that Samba publishes, from Netatalk's documentation of the same messages in AFP, and from the packets of
//! Samba 4.25's programs.
//!
//! [`Request`] and [`Reply`] are the calls. A call of `mdssvc_cmd` has a message of typed [`Value`]s, which names
//! a method. [`Spotlight`] is the state of one pipe: it says what each call finds, and which search is to be made
//! outside. [`parse_query`] reads the language of the queries. All of it is values.

mod attributes;
mod calls;
mod contexts;
mod methods;
mod pack;
mod query;
mod unpack;
mod value;

pub use attributes::Hit;
pub use calls::{Command, Reply, Request};
pub use contexts::{Page, Progress, Search, Searched, Spotlight, Volume, Volumes};
pub use pack::{TooLong, pack, pack_in};
pub use query::{NotParsed, parse_query};
pub use unpack::unpack;
pub use value::{Cnids, Order, Value};

use crate::SyntaxId;
use crate::interface::Interface;
use crate::security::AuthLevel;

/// The interface.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::MDSSVC,
    name: "Spotlight",
    pipes: &["mdssvc"],
    secondary_address: r"\PIPE\mdssvc",
    // macOS relies on the protection of SMB.
    least_level: AuthLevel::NONE,
    level_on_tcp: None,
};

/// mdssvc_open
pub const OPEN: u16 = 0;
/// mdssvc_unknown1, which tells the flags of the server.
pub const UNKNOWN_1: u16 = 1;
/// mdssvc_cmd
pub const COMMAND: u16 = 2;
/// mdssvc_close
pub const CLOSE: u16 = 3;

/// The flags that clients send back with each command.
pub const FLAGS: u32 = 0x6B00_0001;
