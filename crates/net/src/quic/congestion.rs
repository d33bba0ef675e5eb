//! The congestion control: Cubic (RFC 9438), which takes few losses for those of a bad link.
//!
//! Cubic takes each loss for a full queue and sends less. Over the air a few packets are lost although no queue is
//! full: with 10 ms and a loss of 0.1 % Cubic has 5 % of 1 Gbit/s. So losses are forgiven up to a part of what
//! arrives, the threshold of BBR (draft-ietf-ccwg-bbr, BBR.LossThresh). A queue that is full loses more.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};

use crate::limits::{QUIC_FORGIVEN_PER_MILLE, QUIC_LOCAL_WINDOW};

/// Packets whose loss is forgiven before anything has arrived, and after a pause.
const FIRST: u64 = 8;

/// Makes the controllers of connections.
#[derive(Debug)]
pub(super) struct Forgiving(Arc<CubicConfig>);

impl Forgiving {
    /// Makes one for connections with this machine, or with others. The first window with this machine has room
    /// for several long datagrams: data waits for an acknowledgment while a search for their length fills it.
    pub(super) fn new(is_local: bool) -> Self {
        let mut cubic = CubicConfig::default();
        if is_local {
            cubic.initial_window(QUIC_LOCAL_WINDOW);
        }
        Self(Arc::new(cubic))
    }
}

impl ControllerFactory for Forgiving {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = Arc::clone(&self.0).build(now, mtu);
        let mtu = u64::from(mtu);
        Box::new(Forgive { cubic, mtu, forgiven: FIRST * mtu })
    }
}

/// Cubic, which hears of losses only beyond those that are forgiven.
struct Forgive {
    cubic: Box<dyn Controller>,
    mtu: u64,
    /// Bytes whose loss is forgiven.
    forgiven: u64,
}

impl Forgive {
    /// Counts bytes that have arrived. At most what two windows earn is forgiven at once.
    fn earn(&mut self, bytes: u64) {
        let most = self.cubic.window() * 2 * QUIC_FORGIVEN_PER_MILLE / 1_000;
        // Parts of a byte are of packets that are smaller than any with data.
        let earned = self.forgiven + bytes * QUIC_FORGIVEN_PER_MILLE / 1_000;
        self.forgiven = earned.min(most.max(FIRST * self.mtu));
    }
}

impl Controller for Forgive {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.earn(bytes);
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        // Nothing is lost where a router marks packets because its queue is filling.
        let is_marked = lost_bytes == 0;
        if !is_persistent_congestion
            && !is_marked
            && let Some(left) = self.forgiven.checked_sub(lost_bytes)
        {
            self.forgiven = left;
            return;
        }
        self.forgiven = 0;
        self.cubic.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = u64::from(mtu);
        self.cubic.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        let Self { cubic, mtu, forgiven } = self;
        Box::new(Self { cubic: cubic.clone_box(), mtu: *mtu, forgiven: *forgiven })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MTU: u64 = 1_200;

    /// Counts what it hears of.
    #[derive(Clone, Default)]
    struct Heard(Arc<AtomicU64>);

    impl Controller for Heard {
        fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn on_mtu_update(&mut self, _: u16) {}

        fn window(&self) -> u64 {
            1_000 * MTU
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(self.clone())
        }

        fn initial_window(&self) -> u64 {
            10 * MTU
        }

        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    /// Returns the events that Cubic hears of where each `every`th of many packets is lost.
    fn heard(every: u64) -> u64 {
        let heard = Heard::default();
        let cubic = Box::new(heard.clone());
        let mut it = Forgive { cubic, mtu: MTU, forgiven: FIRST * MTU };
        for packet in 1..100_000 {
            if packet % every == 0 {
                it.on_congestion_event(Instant::now(), Instant::now(), false, MTU);
            } else {
                it.earn(MTU);
            }
        }
        heard.0.load(Ordering::Relaxed)
    }

    #[test]
    fn few_losses_are_forgiven() {
        assert_eq!((heard(1_000), heard(100), heard(52)), (0, 0, 0));
        assert!(heard(40) > 100 && heard(2) > 10_000);
    }

    #[test]
    fn a_full_queue_is_no_bad_link() {
        let count = |is_persistent, lost| {
            let heard = Heard::default();
            let mut it = Forgive { cubic: Box::new(heard.clone()), mtu: MTU, forgiven: 0 };
            (0..100_000).for_each(|_| it.earn(MTU));
            it.on_congestion_event(Instant::now(), Instant::now(), is_persistent, lost);
            heard.0.load(Ordering::Relaxed)
        };
        assert_eq!(count(false, 40 * MTU), 0, "two windows have earned them");
        assert_eq!(count(false, 41 * MTU), 1);
        assert_eq!(count(true, MTU), 1);
        assert_eq!(count(false, 0), 1, "a router has marked packets");
    }
}
