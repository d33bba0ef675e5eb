//! The fuzz targets: one function for each, so that any program can replay an input.
//!
//! Parsers must not only never panic: a value that is parsed, encoded and parsed again must stay
//! equal. `judge` checks the limits on time and memory for every input.

mod allocation;
mod arena;
mod auth;
mod captures;
mod certificates;
mod choices;
mod cluster;
mod codec;
mod compressed_data;
mod compression;
mod discovery;
mod dfs_requests;
mod disk;
mod etcd;
mod judge;
mod kdc_replies;
mod kerberos;
mod ldap;
mod lists;
mod names;
mod ndr;
#[path = "../../../crates/cli/src/printable.rs"]
mod printable;
mod records;
mod requests;
mod responses;
mod rpc;
mod sealed;
mod secured_rpc;
mod server;
mod shadow_copies;
mod smb1;
mod smbd;
mod spotlight;
mod stateful;
mod stream;
mod structures;
mod texts;
mod tickets;
mod tokens;
mod transforms;
mod witness;

pub use auth::{acceptor, initiator};
pub use captures::captures;
pub use certificates::certificates;
pub use cluster::cluster_values;
pub use codec::codec;
pub use compressed_data::compressed_data;
pub use compression::compression;
pub use dfs_requests::dfs_requests;
pub use discovery::wsd;
pub use disk::{afp_info, disk};
pub use etcd::etcd_answers;
pub use judge::{PARSER, SERVER, judge};
pub use kdc_replies::kdc_replies;
pub use kerberos::kerberos_files;
pub use ldap::ldap_answers;
pub use libfuzzer_sys;
pub use lists::{directory_replies, ea_lists, lists};
pub use names::names;
pub use ndr::ndr;
pub use records::store_records;
pub use requests::{create_contexts, negotiate_contexts, requests};
pub use responses::{referrals, responses};
pub use rpc::rpc_endpoint;
pub use sealed::sealed_stream;
pub use secured_rpc::rpc_secured;
pub use server::server;
pub use shadow_copies::shadow_copies;
pub use smb1::smb1;
pub use smbd::smbd;
pub use spotlight::spotlight;
pub use stateful::stateful;
pub use stream::frame_reader;
pub use structures::{security_descriptors, set_structures};
pub use texts::{account_files, frevo_toml, smb_conf};
pub use tickets::tickets;
pub use tokens::tokens;
pub use transforms::transforms;
pub use witness::witness;

use frevo_wire::codec::{Parsed, Writer};
use frevo_wire::header::HEADER_LEN;

/// A body behind 64 bytes, as encoders count.
fn message(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    encode(&mut Writer::from(&mut bytes, 0));
    bytes
}

/// Checks that `reencode` maps its own output to itself.
fn settles(bytes: &[u8], reencode: impl Fn(&[u8]) -> Parsed<Vec<u8>>) {
    if let Ok(once) = reencode(bytes) {
        assert_eq!(reencode(&once).as_ref(), Ok(&once), "once more");
    }
}

/// Takes a length in one byte and that many bytes.
fn chunk<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first()?;
    let length = usize::from(*length).min(rest.len());
    let (chunk, rest) = rest.split_at(length);
    *data = rest;
    Some(chunk)
}
