//! How fast a file can be read: one request after the other, and many at once.
//!
//! The first form is of a founding talk of SMB on Linux ("expected throughput"):
//! each request waits for the latency, the network's time and the server's time.
//! With many under way only the slowest of the three counts, if the credits
//! cover what is under way meanwhile.

/// Bytes that one credit stands for.
const CREDIT: f64 = 65_536.0;

/// A path to a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Route {
    /// Its name for people.
    pub(crate) name: String,
    /// Seconds from a request to the first byte of its answer.
    pub(crate) latency: f64,
    /// Bytes a second of the network.
    pub(crate) network: f64,
    /// Bytes a second of the server.
    pub(crate) server: f64,
}

/// The bottleneck of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The round-trip time: the next request waits for the answer.
    Latency,
    /// The bandwidth of the network.
    Network,
    /// The throughput of the server.
    Server,
    /// Too few credits for the latency.
    Credits,
}

impl Limit {
    /// The name in JSON output.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Network => "network",
            Self::Server => "server",
            Self::Credits => "credits",
        }
    }

    /// The bottleneck with advice.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Latency => "latency; send more requests at a time",
            Self::Network => "the network's bandwidth; try more channels or a faster link",
            Self::Server => "the server's storage or processor",
            Self::Credits => "credits; the server grants too few for this latency",
        }
    }
}

impl Route {
    /// The three network paths of the talk.
    pub(crate) fn of_the_talk() -> [Self; 3] {
        let route = |name: &str, network, milliseconds: f64| Self {
            name: name.into(),
            latency: milliseconds / 1e3,
            network,
            server: 5e9,
        };
        [route("100 MBit", 10e6, 0.5), route("GigE", 100e6, 0.135), route("10GigE", 1e9, 0.1)]
    }

    /// Bytes a second with one request of `buffer` bytes at a time, and what
    /// takes the largest part of its time.
    pub(crate) fn one_by_one(&self, buffer: f64) -> (f64, Limit) {
        let network = buffer / self.network;
        let server = buffer / self.server;
        let limit = if self.latency >= network && self.latency >= server {
            Limit::Latency
        } else if network >= server {
            Limit::Network
        } else {
            Limit::Server
        };
        (buffer / (self.latency + network + server), limit)
    }

    /// Bytes a second with as many requests under way as `credits` pay for.
    pub(crate) fn pipelined(&self, credits: u32) -> (f64, Limit) {
        let window = f64::from(credits) * CREDIT / self.latency.max(1e-9);
        let least = self.network.min(self.server).min(window);
        let limit = if least == window {
            Limit::Credits
        } else if least == self.network {
            Limit::Network
        } else {
            Limit::Server
        };
        (least, limit)
    }

    /// Credits that cover the bandwidth-delay product.
    pub(crate) fn credits_needed(&self) -> u32 {
        let product = self.network.min(self.server) * self.latency / CREDIT;
        // The cast turns a float that is too large into u32::MAX.
        product.ceil().max(1.0) as u32
    }
}

/// Millions of bytes a second, with two digits and no zeros at their end.
pub(crate) fn megabytes(rate: f64) -> String {
    let text = format!("{:.2}", rate / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the table on the slide of the talk, to the last digit.
    #[test]
    fn the_table_of_the_talk() {
        let table: Vec<Vec<String>> = Route::of_the_talk()
            .iter()
            .map(|route| {
                let buffers = [65_536.0, 16_384.0, 4_096.0];
                buffers.iter().map(|buffer| megabytes(route.one_by_one(*buffer).0)).collect()
            })
            .collect();
        assert_eq!(table[0], ["9.27", "7.65", "4.5"]);
        assert_eq!(table[1], ["81.57", "54.23", "23.17"]);
        assert_eq!(table[2], ["366.85", "136.92", "39.04"]);
    }

    #[test]
    fn what_limits() {
        let [slow, _, fast] = Route::of_the_talk();
        assert_eq!(fast.one_by_one(4_096.0).1, Limit::Latency);
        assert_eq!(slow.one_by_one(65_536.0).1, Limit::Network);
        // With one credit only one request is in flight, so pipelining is no faster than sending
        // one request at a time.
        assert_eq!(fast.pipelined(1), (655_360_000.0, Limit::Credits));
        assert_eq!(fast.pipelined(512), (1e9, Limit::Network));
        assert_eq!(fast.credits_needed(), 2);
        let far = Route { latency: 0.1, ..fast };
        assert_eq!(far.credits_needed(), 1_526);
        assert_eq!(far.pipelined(512).1, Limit::Credits);
    }
}
