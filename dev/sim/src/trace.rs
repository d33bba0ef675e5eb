//! The trace: one line per event.

use std::fmt;
use std::hash::Hasher;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The events of a run.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    /// True to keep the lines; the digest is always computed.
    keeps: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    lines: Vec<String>,
    digest: Digest,
    violations: Vec<String>,
}

/// An FNV-1a hash.
#[derive(Debug)]
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

impl Trace {
    /// Returns an empty trace.
    pub fn new(start: Instant, keeps: bool) -> Self {
        Self { start, keeps, inner: Mutex::default() }
    }

    /// Returns when the run began.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// Records an event.
    pub fn event(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>12.6} {what}", self.start.elapsed().as_secs_f64());
        let mut inner = self.inner.lock();
        inner.digest.write(line.as_bytes());
        if self.keeps {
            inner.lines.push(line);
        }
    }

    /// Records a violation.
    pub fn violation(&self, what: fmt::Arguments<'_>) {
        self.event(format_args!("VIOLATION {what}"));
        self.inner.lock().violations.push(what.to_string());
    }

    /// Returns true after a violation.
    pub fn is_violated(&self) -> bool {
        !self.inner.lock().violations.is_empty()
    }

    /// Returns the lines, the digest and the violations.
    pub fn take(&self) -> (Vec<String>, u64, Vec<String>) {
        let inner = std::mem::take(&mut *self.inner.lock());
        (inner.lines, inner.digest.finish(), inner.violations)
    }
}

/// Records a formatted event.
#[macro_export]
macro_rules! event {
    ($trace:expr, $($what:tt)+) => { $trace.event(format_args!($($what)+)) };
}

/// Records a violation.
#[macro_export]
macro_rules! violation {
    ($trace:expr, $($what:tt)+) => { $trace.violation(format_args!($($what)+)) };
}
