//! Replies of KDCs to the client.

use std::sync::OnceLock;

use frevo_auth::kerberos::kdc::forge::ForgedKdc;
use frevo_auth::kerberos::kdc::{AsExchange, KdcEntropy, KdcStep, TgsExchange};
use frevo_auth::kerberos::{ClientSecret, EncryptionType, Key, Principal, ServiceTicket};
use frevo_wire::dtyp::FileTime;

const NOW: u64 = 133_500_000_000_000_000;
const ETYPES: [EncryptionType; 1] = [EncryptionType::Aes128Sha1];

fn entropy(turn: u8) -> KdcEntropy {
    KdcEntropy { nonce: [turn; 4], subkey: [turn; 32], confounder: [turn; 16] }
}

fn kdc() -> ForgedKdc {
    ForgedKdc::new("A.TEST", EncryptionType::Aes128Sha1, FileTime(NOW))
}

fn begin_as() -> (AsExchange, Vec<u8>) {
    let salt = b"salt of A.TESTann";
    let key = Key::from_password(ETYPES[0], "secret", salt, None).expect("a key");
    let (client, secret) = (Principal::user("ann", "A.TEST"), ClientSecret::Keys(vec![key]));
    let (exchange, ask) = AsExchange::begin(client, secret, &ETYPES, &entropy(1), FileTime(NOW));
    (exchange, ask.message)
}

/// The replies of both exchanges that are not changed, and the tickets that they make.
struct Genuine {
    demand: Vec<u8>,
    granting: (Vec<u8>, ServiceTicket),
    service: (Vec<u8>, ServiceTicket),
}

fn begin_tgs(granting: &ServiceTicket) -> (TgsExchange, Vec<u8>) {
    let server = Principal::service("cifs", "files", "");
    let begun = TgsExchange::begin(granting.clone(), server, &ETYPES, &entropy(3), FileTime(NOW));
    let (exchange, ask) = begun.expect("a ticket-granting ticket");
    (exchange, ask.message)
}

fn ticket(step: KdcStep) -> ServiceTicket {
    let KdcStep::Done(ticket) = step else { panic!("no ticket") };
    *ticket
}

fn genuine() -> &'static Genuine {
    static GENUINE: OnceLock<Genuine> = OnceLock::new();
    GENUINE.get_or_init(|| {
        let (mut exchange, ask) = begin_as();
        let demand = kdc().answer(&ask);
        let next = exchange.on_reply(&demand, &entropy(2), FileTime(NOW)).expect("a demand");
        let KdcStep::Ask(next) = next else { panic!("no proof") };
        let reply = kdc().answer(&next.message);
        let step = exchange.on_reply(&reply, &entropy(4), FileTime(NOW)).expect("a ticket");
        let granting = (reply, ticket(step));
        let (mut exchange, ask) = begin_tgs(&granting.1);
        let reply = kdc().answer(&ask);
        let step = exchange.on_reply(&reply, &entropy(4), FileTime(NOW)).expect("a ticket");
        Genuine { demand, granting, service: (reply, ticket(step)) }
    })
}

/// By the first byte: a reply as it is, or changes of a genuine one, each of a place in two bytes and
/// the bits that change there.
pub fn kdc_replies(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let all = genuine();
    let changed = |reply: &[u8]| {
        let mut reply = reply.to_vec();
        for change in data.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
            if let Some(byte) = reply.get_mut(at) {
                *byte ^= change[2];
            }
        }
        reply
    };
    let (reply, of_service) = match kind % 5 {
        0 => (data.to_vec(), false),
        1 => (data.to_vec(), true),
        2 => (changed(&all.demand), false),
        3 => (changed(&all.granting.0), false),
        _ => (changed(&all.service.0), true),
    };
    let (step, right) = if of_service {
        let (mut exchange, _) = begin_tgs(&all.granting.1);
        (exchange.on_reply(&reply, &entropy(9), FileTime(NOW)), &all.service.1)
    } else {
        let (mut exchange, _) = begin_as();
        let mut step = exchange.on_reply(&all.demand, &entropy(2), FileTime(NOW));
        if kind % 5 == 2 {
            let (again, _) = begin_as();
            exchange = again;
        }
        if step.is_ok() {
            step = exchange.on_reply(&reply, &entropy(9), FileTime(NOW));
        }
        (step, &all.granting.1)
    };
    if let Ok(KdcStep::Done(ticket)) = step {
        assert_eq!((&ticket.client, &ticket.server), (&right.client, &right.server));
        assert_eq!(ticket.session_key, right.session_key);
        assert_eq!(ticket.end_time, right.end_time);
    }
}
