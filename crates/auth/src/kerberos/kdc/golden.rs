//! Exchanges with real KDCs, recorded with known random bytes: the requests are made again byte for
//! byte, and the replies are accepted again.
//!
//! A record is the time as FILETIME in 8 bytes, then each request and each reply after its length in
//! 4 bytes, all big-endian.

use super::*;
use crate::kerberos::ClientSecret;
use std::net::TcpStream;
use zeroize::Zeroizing;

/// MIT krb5 1.20, user smbuser and service cifs/files.frevo.test; and Samba 4.17 as a domain
/// controller, whose user is named by its alias.
const MIT: &[u8] = include_bytes!("../fixtures/mit.kdc");
const SAMBA: &[u8] = include_bytes!("../fixtures/samba.kdc");

fn entropy(turn: u8) -> KdcEntropy {
    KdcEntropy { nonce: [turn; 4], subkey: [turn.wrapping_add(1); 32], confounder: [turn; 16] }
}

/// Gets a ticket-granting ticket and a service's; `ask` brings a message to a KDC.
fn run(
    client: Principal,
    now: FileTime,
    mut ask: impl FnMut(&[u8]) -> Vec<u8>,
) -> Result<[ServiceTicket; 2], KdcFault> {
    let etypes = [
        EncryptionType::Aes256Sha2,
        EncryptionType::Aes128Sha2,
        EncryptionType::Aes256Sha1,
        EncryptionType::Aes128Sha1,
    ];
    let secret = ClientSecret::Password(Zeroizing::new("Passw0rd".into()));
    let (mut exchange, mut next) = AsExchange::begin(client, secret, &etypes, &entropy(1), now);
    let mut turn = 1;
    let granting = loop {
        turn += 1;
        match exchange.on_reply(&ask(&next.message), &entropy(turn), now)? {
            KdcStep::Ask(more) => next = more,
            KdcStep::Done(ticket) => break *ticket,
        }
    };
    let server = Principal::service("cifs", "files.frevo.test", "");
    let (mut exchange, mut next) =
        TgsExchange::begin(granting.clone(), server, &etypes, &entropy(turn), now)?;
    loop {
        turn += 1;
        match exchange.on_reply(&ask(&next.message), &entropy(turn), now)? {
            KdcStep::Ask(more) => next = more,
            KdcStep::Done(ticket) => return Ok([granting, *ticket]),
        }
    }
}

fn replay(record: &[u8], client: Principal) -> [ServiceTicket; 2] {
    let (now, mut rest) = record.split_first_chunk().unwrap();
    let now = FileTime(u64::from_be_bytes(*now));
    let mut take = || {
        let (length, after) = rest.split_first_chunk().unwrap();
        let (message, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        rest = after;
        message
    };
    let found = run(client, now, |request| {
        assert!(take() == request, "another request");
        take().to_vec()
    });
    let found = found.unwrap();
    assert!(rest.is_empty());
    found
}

#[test]
fn mit() {
    let [granting, ticket] = replay(MIT, Principal::user("smbuser", "FREVO.TEST"));
    assert_eq!(granting.client, Principal::user("smbuser", "FREVO.TEST"));
    assert_eq!(ticket.client, granting.client);
    assert_eq!(ticket.server, Principal::service("cifs", "files.frevo.test", "FREVO.TEST"));
    assert_eq!(ticket.session_key.etype(), EncryptionType::Aes256Sha1);
    assert_eq!(ticket.end_time, granting.end_time);
    assert!(granting.flags.contains(TicketFlags::INITIAL | TicketFlags::PRE_AUTHENT));
}

#[test]
fn samba() {
    let alias = Principal::enterprise("smbuser@frevo.test", "FREVO.TEST");
    let [granting, ticket] = replay(SAMBA, alias);
    assert_eq!(granting.client, Principal::user("smbuser", "FREVO.TEST"));
    assert_eq!(ticket.client, granting.client);
    assert_eq!(ticket.server, Principal::service("cifs", "files.frevo.test", "FREVO.TEST"));
    assert_eq!(ticket.session_key.etype(), EncryptionType::Aes256Sha1);
}

/// Records an exchange: `FREVO_KDC=ADDRESS:88 FREVO_KDC_USER=NAME FREVO_KDC_RECORD=FILE`.
#[test]
#[ignore = "needs a KDC"]
fn record() {
    use std::io::{Read, Write};
    let set = |name| std::env::var(name).unwrap();
    let (address, user) = (set("FREVO_KDC"), set("FREVO_KDC_USER"));
    let client = match user.contains('@') {
        true => Principal::enterprise(&user, "FREVO.TEST"),
        false => Principal::user(&user, "FREVO.TEST"),
    };
    #[allow(clippy::disallowed_methods, reason = "a recording is made now")]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = FileTime::from_unix(since.as_secs().try_into().unwrap(), 0);
    let mut record = now.0.to_be_bytes().to_vec();
    let found = run(client, now, |request| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let mut put = |message: &[u8]| {
            record.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            record.extend(message);
        };
        put(request);
        stream.write_all(&u32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(request).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut reply = std::vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut reply).unwrap();
        put(&reply);
        reply
    });
    found.unwrap();
    std::fs::write(set("FREVO_KDC_RECORD"), record).unwrap();
}
