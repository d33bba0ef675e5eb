//! Two machines against each other under virtual time.

use super::super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

const START: Duration = Duration::from_secs(1_000_000);
const LATENCY: Duration = Duration::from_micros(50);

/// A message on the wire, and its time of arrival.
struct Packet {
    at: Duration,
    bytes: Vec<u8>,
    invalidated: Option<u32>,
}

/// One side, with its owner: it posts what the machine wants.
struct Side {
    machine: Machine,
    max_credits: u16,
    to_send: VecDeque<(Vec<u8>, Option<u32>)>,
    current: Option<Vec<u8>>,
    partial: Vec<u8>,
    received: Vec<(Vec<u8>, Option<u32>)>,
    inbox: VecDeque<Packet>,
    sent: usize,
    /// It has lost its adapter: it takes and gives nothing.
    is_gone: bool,
}

impl Side {
    fn new(machine: Machine, max_credits: u16, to_send: Vec<(Vec<u8>, Option<u32>)>) -> Self {
        Self {
            machine,
            max_credits,
            to_send: to_send.into(),
            current: None,
            partial: Vec::new(),
            received: Vec::new(),
            inbox: VecDeque::new(),
            sent: 0,
            is_gone: false,
        }
    }

    fn post(&mut self) {
        self.machine.posted(self.machine.receives_wanted());
        assert!(self.machine.receives_posted() <= self.max_credits + 1, "receives are bounded");
    }

    /// Sends all that may be sent now.
    fn pump(&mut self, peer: &mut Self, now: Duration) {
        loop {
            self.post();
            if self.machine.may_begin()
                && let Some((message, token)) = self.to_send.pop_front()
            {
                let len = u32::try_from(message.len()).unwrap();
                self.machine.begin(len, token).unwrap();
                self.current = Some(message);
                // To use its last send credit, this side must grant one, and may have to post a
                // receive for it.
                self.post();
            }
            let Some(sending) = self.machine.next_send(now) else { return };
            let mut bytes = sending.header().to_vec();
            if let Some(message) = &self.current {
                let data = sending.data.start as usize..sending.data.end as usize;
                bytes.extend_from_slice(&message[data]);
            }
            if sending.ends_message {
                self.current = None;
            }
            self.sent += 1;
            if peer.is_gone {
                continue;
            }
            assert!(bytes.len() <= 512.max(peer.machine.parameters().max_receive_size as usize));
            let packet = Packet { at: now + LATENCY, bytes, invalidated: sending.invalidate };
            peer.inbox.push_back(packet);
            // A message that arrives without a posted receive would be dropped by an RDMA adapter.
            let posted = usize::from(peer.machine.receives_posted()).max(1);
            assert!(peer.inbox.len() <= posted, "more is on its way than was granted");
        }
    }

    fn take(&mut self, packet: &Packet, now: Duration) -> Result<(), Disconnect> {
        let received = self.machine.on_message(&packet.bytes, packet.invalidated, now)?;
        if let Received::Data(fragment) = received {
            assert_eq!(fragment.is_first, self.partial.is_empty());
            self.partial.extend_from_slice(&packet.bytes[fragment.data]);
            if fragment.remaining == 0 {
                self.received.push((core::mem::take(&mut self.partial), fragment.invalidated));
            }
        }
        Ok(())
    }
}

/// Both sides and the time.
struct World {
    sides: [Side; 2],
    now: Duration,
}

impl World {
    fn pump(&mut self) {
        let [a, b] = &mut self.sides;
        if !a.is_gone {
            a.pump(b, self.now);
        }
        if !b.is_gone {
            b.pump(a, self.now);
        }
    }

    /// The time of the next arrival or timer.
    fn next_time(&self) -> Option<Duration> {
        let of = |side: &Side| {
            let arrival = side.inbox.front().map(|packet| packet.at);
            (!side.is_gone).then(|| arrival.unwrap_or(Duration::MAX).min(side.machine.deadline()))
        };
        self.sides.iter().filter_map(of).min()
    }

    /// Goes on to the next event; false at the end of time.
    fn step(&mut self, end: Duration) -> Result<bool, Disconnect> {
        self.pump();
        let Some(next) = self.next_time().filter(|&time| time <= end) else { return Ok(false) };
        self.now = next.max(self.now);
        let now = self.now;
        for side in self.sides.iter_mut().filter(|side| !side.is_gone) {
            if side.inbox.front().is_some_and(|packet| packet.at <= now)
                && let Some(packet) = side.inbox.pop_front()
            {
                side.take(&packet, now)?;
            }
            side.machine.on_time(now)?;
        }
        Ok(true)
    }
}

fn messages(lengths: &[u32], seed: u32) -> Vec<(Vec<u8>, Option<u32>)> {
    let one = |(at, &len): (usize, &u32)| {
        let fill = |n: u32| u8::try_from((n ^ seed) % 251).unwrap();
        let token = (len % 3 == 0).then_some(len ^ seed);
        ((0..len).map(|n| fill(n + at as u32)).collect(), token)
    };
    lengths.iter().enumerate().map(one).collect()
}

fn world(credits: [u16; 4], sizes: [u32; 4], lengths: [&[u32]; 2]) -> World {
    let settings =
        |receive_credit_max, send_credit_target, max_send_size, max_receive_size| Settings {
            receive_credit_max,
            send_credit_target,
            max_send_size,
            max_receive_size,
            ..Settings::default()
        };
    let client = settings(credits[0], credits[1], sizes[0], sizes[1]);
    let server = settings(credits[2], credits[3], sizes[2], sizes[3]);
    let client = Machine::active(client, START);
    let server = Machine::passive(server, START);
    let mut sides = [
        Side::new(client, credits[0], messages(lengths[0], 1)),
        Side::new(server, credits[2], messages(lengths[1], 2)),
    ];
    // Each side posts its first receive before the connection exists.
    sides.iter_mut().for_each(Side::post);
    World { sides, now: START }
}

fn arrived(world: &World, lengths: [&[u32]; 2]) -> bool {
    let [client, server] = &world.sides;
    // The length of the lists is compared first, because comparing the contents at each step would
    // be slow.
    server.received.len() == lengths[0].len()
        && client.received.len() == lengths[1].len()
        && server.received == messages(lengths[0], 1)
        && client.received == messages(lengths[1], 2)
}

fn lengths() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![1_u32..3_000, 1_u32..40_000], 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the credits and sizes: every message arrives once, in order and with its token, and
    /// no message meets a side without a posted receive.
    #[test]
    fn all_messages_arrive(
        credits in prop::array::uniform4(1_u16..40),
        sizes in prop::array::uniform4(100_u32..3_000),
        one in lengths(),
        other in lengths(),
    ) {
        let mut world = world(credits, sizes, [&one, &other]);
        let end = START + Duration::from_secs(60);
        let mut steps = 0_u32;
        while !arrived(&world, [&one, &other]) {
            let went_on = world.step(end);
            prop_assert_eq!(went_on, Ok(true));
            steps += 1;
            prop_assert!(steps < 200_000, "no end");
        }
    }

    /// Once all has arrived the sides are silent, but for keep-alives.
    #[test]
    fn an_idle_connection_is_silent_and_stays(
        credits in prop::array::uniform4(2_u16..300),
        one in lengths(),
        other in lengths(),
    ) {
        let sizes = [1364, 8192, 1364, 8192];
        let mut world = world(credits, sizes, [&one, &other]);
        while world.step(START + Duration::from_secs(60)).unwrap() {}
        prop_assert!(arrived(&world, [&one, &other]));
        let sent = |world: &World| world.sides.iter().map(|side| side.sent).sum::<usize>();
        let before = sent(&world);
        while world.step(START + Duration::from_secs(60 + 3_600)).unwrap() {}
        // In two minutes at most six messages are sent, because each side sends a keepalive
        // request, a response and a grant of credits.
        prop_assert!(sent(&world) - before <= 30 * 6, "{} messages", sent(&world) - before);
    }

    /// A side whose peer is gone without a word knows it in time, wherever it happens; before that,
    /// nothing but whole messages has arrived.
    #[test]
    fn a_lost_peer_is_noticed(
        credits in prop::array::uniform4(2_u16..300),
        one in lengths(),
        other in lengths(),
        lost_at in 0_u32..400,
        gone in 0..2_usize,
    ) {
        let mut world = world(credits, [1364, 8192, 1364, 8192], [&one, &other]);
        for _ in 0..lost_at {
            if !world.step(START + Duration::from_secs(200)).unwrap() {
                break;
            }
        }
        world.sides[gone].is_gone = true;
        let lost = world.now;
        let seen = loop {
            match world.step(Duration::MAX) {
                Ok(true) => {}
                Ok(false) => unreachable!("the living side has a timer"),
                Err(why) => break why,
            }
        };
        let is_timeout = matches!(
            seen,
            Disconnect::Silent | Disconnect::NegotiationTimeout | Disconnect::Stalled
        );
        prop_assert!(is_timeout, "{seen}");
        prop_assert!(world.now - lost <= Duration::from_secs(126));
        for (side, sent) in world.sides.iter().zip([&other, &one]) {
            let all = messages(sent, if core::ptr::eq(sent, &other) { 2 } else { 1 });
            prop_assert!(all.starts_with(&side.received));
        }
    }

    /// Hostile bytes: no panic, no state that contradicts itself, no unbounded receives.
    #[test]
    fn hostile_messages_end_the_connection_or_are_taken(
        script in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 1..40),
        negotiates: bool,
    ) {
        let mut machine = Machine::passive(Settings::default(), START);
        machine.posted(machine.receives_wanted());
        if negotiates {
            let mut client = Machine::active(Settings::default(), START);
            let request = client.next_send(START).unwrap();
            machine.on_message(request.header(), None, START).unwrap();
        }
        for message in script {
            machine.posted(machine.receives_wanted());
            prop_assert!(machine.receives_posted() <= 256);
            while let Some(sending) = machine.next_send(START) {
                prop_assert!(!sending.header().is_empty());
            }
            match machine.on_message(&message, None, START) {
                Ok(Received::Data(fragment)) => {
                    prop_assert!(fragment.data.end <= message.len());
                    let total = fragment.data.len() + fragment.remaining as usize;
                    prop_assert!(!fragment.data.is_empty() && total <= 1_048_576);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
}
