//! Queue pairs in memory, in place of a device's.
//!
//! The two ends of a connection are two [`Port`]s behind the lock of a [`Cable`]. Whatever an end
//! posts becomes a packet, which the cable delivers at once, or somebody else delivers later.

mod link;
mod port;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::quota::Bound;
pub(super) use link::MemoryLink;
pub(super) use port::{Content, Port};

/// Violations that are kept.
const VIOLATIONS_MAX: usize = 64;

/// The parts that all connections of a fabric share.
pub(super) struct Common {
    pub(super) bound: Arc<Bound>,
    /// The next key: none is given twice.
    next_key: AtomicU32,
    pub(super) violations: Mutex<Vec<String>>,
}

impl Common {
    pub(super) fn new(registered_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bound: Bound::new(registered_max),
            next_key: AtomicU32::new(0x1001),
            violations: Mutex::default(),
        })
    }

    fn violated(&self, what: String) {
        let mut violations = self.violations.lock();
        if violations.len() < VIOLATIONS_MAX {
            violations.push(what);
        }
    }
}

/// A connection: its two ends, and what travels between them.
pub(super) struct Cable {
    common: Arc<Common>,
    pub(super) ports: Mutex<[Port; 2]>,
    /// True if packets arrive at once.
    is_direct: bool,
    /// Told of packets to carry, for each end that sends them.
    pub(super) waiting: [Notify; 2],
}

impl Cable {
    pub(super) fn new(common: &Arc<Common>, is_direct: bool) -> Arc<Self> {
        Arc::new(Self {
            common: Arc::clone(common),
            ports: Mutex::new([Port::new(), Port::new()]),
            is_direct,
            waiting: [Notify::new(), Notify::new()],
        })
    }

    /// Looks at an end, and has what it sends carried afterwards.
    pub(super) fn at<T>(&self, end: usize, look: impl FnOnce(&mut Port) -> T) -> T {
        let mut ports = self.ports.lock();
        let found = look(&mut ports[end]);
        self.carry(&mut ports);
        found
    }

    pub(super) fn carry(&self, ports: &mut [Port; 2]) {
        if !self.is_direct {
            for (port, waiting) in ports.iter().zip(&self.waiting) {
                if port.has_packets() {
                    waiting.notify_one();
                }
            }
            return;
        }
        while let Some((from, packet)) =
            (0..2).find_map(|from| ports[from].next_packet().map(|packet| (from, packet)))
        {
            self.arrive(&mut ports[1 - from], packet);
        }
    }

    pub(super) fn arrive(&self, port: &mut Port, packet: Content) {
        if let Err(why) = port.arrive(packet) {
            self.common.violated(why);
        }
    }
}
