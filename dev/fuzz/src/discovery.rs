//! Messages of the local network's strangers: WS-Discovery. The library for multicast DNS has a
//! fuzz target of its own, whose checks of packet counts do not hold: it cannot be used here.

use frevo_discovery::fuzz_api::{wsd_datagram, wsd_request};
use quick_xml::Reader;
use quick_xml::events::Event;

/// The longest answer: the names of the server are short.
const ANSWER: usize = 4_096;

/// A message of WS-Discovery: a datagram, or a request over HTTP when the first byte is odd.
pub fn wsd(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let answer = if kind % 2 == 0 {
        wsd_datagram(data)
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(wsd_request(data))
    };
    if let Some(answer) = answer {
        well_formed(&answer);
    }
}

/// Checks that nothing of the request became an element of the answer.
fn well_formed(answer: &str) {
    assert!(answer.len() <= ANSWER, "{} bytes", answer.len());
    let (mut reader, mut depth) = (Reader::from_str(answer), 0_usize);
    loop {
        match reader.read_event().expect("an answer of XML") {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.checked_sub(1).expect("an element that began"),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "{answer}");
}
