//! Limits of what strangers on the network can make this process do.

use std::time::Duration;

/// Largest datagram that is read, bytes. A probe of Windows has 700.
pub const DATAGRAM_BYTES: usize = 4_096;

/// Largest request for metadata over HTTP, head and body, bytes.
pub const REQUEST_BYTES: usize = 8_192;

/// Connections for metadata that are served at once.
pub const CONNECTIONS: usize = 8;

/// Time for a whole request for metadata.
pub const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Bytes of answers to datagrams in a second, to all hosts together.
pub const ANSWER_BYTES_PER_SECOND: u32 = 32_768;

/// Answers to datagrams of one host in a second.
pub const ANSWERS_PER_HOST: u32 = 8;

/// Hosts whose answers are counted. When more ask in one second, the others get no answer.
pub const HOSTS: usize = 256;

/// Answers that wait for their delay.
pub const PENDING_ANSWERS: usize = 64;

/// Messages that are remembered, since clients repeat them.
pub const REMEMBERED: usize = 64;

/// Elements of XML within each other.
pub const XML_DEPTH: usize = 16;

/// Elements, texts and comments of a message.
pub const XML_EVENTS: usize = 512;

/// Longest text that is taken from a message, bytes: message identifiers and addresses.
pub const TEXT_BYTES: usize = 256;

/// Longest delay of an answer to a probe, so that a network's answers do not come at once
/// (WS-Discovery 3.1.3, APP_MAX_DELAY).
pub const DELAY_MAX: Duration = Duration::from_millis(500);

/// Signals of a bus that are kept while a reply is awaited.
pub const BUS_SIGNALS: usize = 16;

/// Largest message of a bus that is read, header and body each, bytes.
pub const BUS_MESSAGE_BYTES: usize = 65_536;

/// Pause after a datagram that could not be received. An error that stays must not take a core.
pub const RECEIVE_PAUSE: Duration = Duration::from_millis(100);

/// Descriptors of this process that are searched for the sockets of the mDNS responder.
pub const DESCRIPTORS: i32 = 256;

/// Interval between looks at the interfaces of the machine.
pub const INTERFACE_CHECK: Duration = Duration::from_secs(10);
