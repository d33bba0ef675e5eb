//! The service witness protocol: arguments and replies, and the table of registrations under any order of
//! calls and changes of the cluster.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_rpc::WinError;
use frevo_rpc::limits::{MAX_WITNESS_QUEUED, WITNESS_UNUSED};
use frevo_rpc::witness::{
    Asked, ClusterNode, ClusterState, ClusterUnit, HandleReply, InterfaceListReply, Interfaces,
    Key, NotifyReply, Register, RegisterEx, RegisterFlags, Registering, Registrations, StatusReply,
    Version,
};

use crate::choices::Choices;
use crate::settles;

/// Steps of one input: more find nothing new.
const STEPS: usize = 200;

/// Stub data of the kind that the first byte names, or steps of clients and of the cluster.
pub fn witness(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 7 {
        0 => settles(data, |bytes| Register::parse(bytes).map(|call| call.encode())),
        1 => settles(data, |bytes| RegisterEx::parse(bytes).map(|call| call.encode())),
        2 => settles(data, |bytes| HandleReply::parse(bytes).map(|reply| reply.encode())),
        3 => settles(data, |bytes| StatusReply::parse(bytes).map(|reply| reply.encode())),
        4 => settles(data, |bytes| InterfaceListReply::parse(bytes).map(|reply| reply.encode())),
        5 => settles(data, |bytes| NotifyReply::parse(bytes).map(|reply| reply.encode())),
        _ => steps(&mut Choices::new(data)),
    }
}

fn name(prefix: &str, number: u8) -> String {
    format!("{prefix}{}", number % 4)
}

fn address(number: u8) -> IpAddr {
    [192, 0, 2, number % 6].into()
}

/// A cluster of up to four nodes and up to three units.
fn cluster(choices: &mut Choices<'_>) -> ClusterState {
    let nodes = (0..choices.u8() % 5).map(|number| ClusterNode {
        name: name("n", number),
        addresses: (0..choices.u8() % 3).map(|_| address(choices.u8())).collect(),
        is_leaving: choices.u8() % 4 == 0,
    });
    let nodes = nodes.collect();
    let units = (0..choices.u8() % 4).map(|number| ClusterUnit {
        name: name("u", number),
        shares: vec![Arc::from(name("s", number))],
        owner: (choices.u8() % 3 > 0).then(|| name("n", choices.u8())),
        addresses: (0..choices.u8() % 2).map(|_| address(choices.u8())).collect(),
    });
    let units = units.collect();
    ClusterState { name: "nas".to_owned(), node: "n0".to_owned(), nodes, units }
}

fn register(choices: &mut Choices<'_>) -> RegisterEx {
    let version = if choices.u8() % 8 == 0 { Version(choices.u32()) } else { Version::V2 };
    let ip = match choices.u8() % 8 {
        0 => choices.text(),
        number => address(number).to_string(),
    };
    RegisterEx {
        version,
        net_name: (choices.u8() % 8 > 0).then(|| "NAS".to_owned()),
        share_name: (choices.u8() % 2 > 0).then(|| name("S", choices.u8())),
        ip_address: Some(ip),
        client_name: Some(choices.text()),
        flags: RegisterFlags(u32::from(choices.u8())),
        keep_alive_seconds: u32::from(choices.u8()),
    }
}

/// The table with the calls that wait.
struct Table {
    registrations: Registrations<()>,
    now: Duration,
    /// Keys of all registrations so far, and whether a call of theirs waits.
    keys: Vec<(Key, bool)>,
}

impl Table {
    fn register(&mut self, choices: &mut Choices<'_>) {
        let key = Key([u8::try_from(self.keys.len() + 1).unwrap_or(u8::MAX); 16]);
        let judged = match choices.u8() % 4 {
            0 => {
                let RegisterEx { net_name, ip_address, client_name, .. } = register(choices);
                let version = Version::V1;
                let call = Register { version, net_name, ip_address, client_name };
                self.registrations.judge(call.into())
            }
            _ => self.registrations.judge(register(choices).into()),
        };
        let Ok(registration) = judged else { return };
        let place = Registering { key, association: 1, now: self.now };
        if self.registrations.insert(place, registration, ()).is_ok() {
            self.keys.push((key, false));
        }
    }

    /// Asks for news, once the call has begun.
    fn ask(&mut self, at: usize) {
        let Some((key, waits)) = self.keys.get_mut(at) else { return };
        if !*waits {
            match self.registrations.begin_notify(*key, 1, self.now) {
                Ok(()) => *waits = true,
                Err(status) => {
                    assert_eq!(status, WinError::NOT_FOUND);
                    return;
                }
            }
        }
        if let Asked::Answer(reply) = self.registrations.ask(*key, self.now) {
            *waits = false;
            assert_eq!(reply.notification.is_some(), reply.status == WinError::SUCCESS);
            assert_eq!(NotifyReply::parse(&reply.encode()), Ok(reply));
        }
    }
}

fn steps(choices: &mut Choices<'_>) {
    let (registrations, now, keys) = (Registrations::default(), Duration::ZERO, Vec::new());
    let mut table = Table { registrations, now, keys };
    for _ in 0..STEPS {
        if choices.is_over() {
            break;
        }
        let step = choices.u8();
        let at = usize::from(step / 8) % table.keys.len().max(1);
        match step % 8 {
            0 | 1 => table.registrations.set_cluster(&cluster(choices), |()| ()),
            2 => table.register(choices),
            3 | 4 => table.ask(at),
            5 => {
                if let Some((key, waits)) = table.keys.get_mut(at) {
                    if std::mem::take(waits) {
                        table.registrations.end_notify(*key, table.now);
                    } else {
                        _ = table.registrations.remove(*key, u64::from(choices.u8() % 2));
                    }
                }
            }
            6 => {
                table.now += Duration::from_secs(u64::from(choices.u8()));
                table.registrations.expire(table.now);
            }
            _ => {
                let (client, node) = (choices.text(), name("n", choices.u8()));
                _ = table.registrations.move_client(&client, &node, |()| ());
            }
        }
        if let Interfaces::Answer(reply) = table.registrations.interfaces() {
            assert_eq!(InterfaceListReply::parse(&reply.encode()), Ok(reply));
        }
        let most = 2 * MAX_WITNESS_QUEUED + 2;
        assert!(table.registrations.all().all(|known| known.queued <= most), "a queue is bounded");
    }
    for (key, waits) in table.keys {
        if waits {
            table.registrations.end_notify(key, table.now);
        }
    }
    table.registrations.expire(table.now + 2 * WITNESS_UNUSED);
    assert!(table.registrations.is_empty(), "what nobody uses ends");
}
