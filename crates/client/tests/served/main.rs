//! The client against a real server in the same process.
#![allow(missing_docs, reason = "tests")]

#[path = "../evil/mod.rs"]
mod evil;
#[path = "../relay/mod.rs"]
mod relay;
#[path = "../world/mod.rs"]
mod world;

mod channels;
mod compression;
mod cursor;
mod examples;
mod features;
mod files;
mod kerberos;
mod man_in_the_middle;
mod names_once;
mod overtaken;
mod quic;
mod secure_transport;
mod tokio_like;
