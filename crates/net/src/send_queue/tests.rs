use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::buffer::Buf;
use crate::file_io::FileFd;
use crate::limits::{SEND_STEP_BYTES, TURN_SLICE};
use crate::transport::tests::{memory, read_exactly, tcp};
use crate::watchdog;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

fn file_of(bytes: &[u8]) -> FileFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

fn prefixed(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// Pushes the frames, and compares the bytes that arrive.
async fn sent(pair: (Stream, Stream), frames: Vec<OutFrame>, expected: usize) -> Vec<u8> {
    let (server, client) = pair;
    let queue = SendQueue::default();
    for frame in frames {
        queue.push(frame);
    }
    assert_eq!(queue.queued_bytes(), expected);
    let (flushed, got) = tokio::join!(queue.flush(&server), read_exactly(&client, expected));
    flushed.unwrap();
    assert!(queue.is_empty());
    assert_eq!((queue.queued_bytes(), queue.queued_frames()), (0, 0));
    assert_eq!(queue.sent_bytes(), expected as u64);
    got
}

#[tokio::test]
async fn frames_of_all_kinds_leave_in_order() {
    for tail in [0, 1, 32_767, 32_768, 65_536, 524_287, 524_288, (1 << 20) + 1, 8 << 20] {
        for which in 0..2 {
            let pair = if which == 0 { tcp().await } else { memory(30_000) };
            let data = pattern(tail + 77);
            let file = file_of(&data);
            let frames = vec![
                OutFrame::new(Buf::copy_of(b"first")),
                OutFrame::with_tail(
                    Buf::copy_of(b"head"),
                    Segment::File { file, offset: 77, len: tail },
                ),
                OutFrame::with_tail(Buf::new(), bytes::Bytes::from_static(b"shared")),
                OutFrame::new(Buf::copy_of(b"last")),
            ];
            let expected = [
                prefixed(&[b"first"]),
                prefixed(&[b"head", &data[77..]]),
                prefixed(&[b"shared"]),
                prefixed(&[b"last"]),
            ]
            .concat();
            let got = sent(pair, frames, expected.len()).await;
            assert!(got == expected, "tail {tail}, transport {which}");
        }
    }
}

#[tokio::test]
async fn a_file_cut_short_ends_in_zeros() {
    for (there, promised) in [
        (10, 100),
        (0, 65_536),
        (70_001, 300_000),
        (600_000, 600_001),
        (0, 1 << 20),
        (700_123, 3 << 20),
    ] {
        for which in 0..2 {
            let pair = if which == 0 { tcp().await } else { memory(30_000) };
            let data = pattern(there);
            let file = file_of(&data);
            let frames = vec![
                OutFrame::with_tail(
                    Buf::copy_of(b"head"),
                    Segment::File { file, offset: 0, len: promised },
                ),
                OutFrame::new(Buf::copy_of(b"next")),
            ];
            let zeros = vec![0; promised - there];
            let expected = [prefixed(&[b"head", &data, &zeros]), prefixed(&[b"next"])].concat();
            let got = sent(pair, frames, expected.len()).await;
            assert!(got == expected, "{there} of {promised}, transport {which}");
        }
    }
}

#[tokio::test]
async fn many_frames_beyond_the_vector_limit() {
    let frames: Vec<OutFrame> =
        (0..1000_u32).map(|n| OutFrame::new(Buf::copy_of(&n.to_le_bytes()))).collect();
    let expected: Vec<u8> = (0..1000_u32).flat_map(|n| prefixed(&[&n.to_le_bytes()])).collect();
    assert_eq!(sent(tcp().await, frames, expected.len()).await, expected);
}

#[tokio::test]
async fn a_dropped_flush_goes_on_where_it_was() {
    let (server, client) = memory(1000);
    let queue = SendQueue::default();
    let data = pattern(50_000);
    let file = file_of(&data);
    queue.push(OutFrame::with_tail(
        Buf::copy_of(b"head"),
        Segment::File { file, offset: 0, len: data.len() },
    ));
    let expected = prefixed(&[b"head", &data]);
    let mut got = Vec::new();
    while got.len() < expected.len() {
        // The flush is polled once and then dropped, as by a caller that gives up. No byte may get
        // lost.
        tokio::select! {
            biased;
            _ = queue.flush(&server) => {}
            () = tokio::task::yield_now() => {}
        }
        let there = 1000.min(expected.len() - got.len());
        got.extend(read_exactly(&client, there).await);
    }
    assert!(got == expected);
}

#[tokio::test]
async fn fullness_by_bytes_and_frames_at_n_minus_1_n_and_n_plus_1() {
    let limits = SendLimits { bytes: 100, ..SendLimits::default() };
    for (len, full) in [(95, false), (96, true), (97, true)] {
        let queue = SendQueue::new(limits);
        queue.push(OutFrame::new(Buf::copy_of(&pattern(len))));
        assert_eq!(queue.is_full(), full, "{len}");
    }
    let limits = SendLimits { frames: 3, ..SendLimits::default() };
    for (count, full) in [(2, false), (3, true), (4, true)] {
        let queue = SendQueue::new(limits);
        for _ in 0..count {
            queue.push(OutFrame::new(Buf::copy_of(b"x")));
        }
        assert_eq!(queue.is_full(), full, "{count}");
    }
}

#[tokio::test]
async fn room_comes_when_the_peer_reads() {
    let (server, client) = memory(10);
    let queue = SendQueue::new(SendLimits { bytes: 20, ..SendLimits::default() });
    queue.push(OutFrame::new(Buf::copy_of(&[1; 40])));
    let reader = async {
        assert!(queue.is_full());
        read_exactly(&client, 44).await;
    };
    let (flushed, ()) = tokio::join!(queue.flush(&server), reader);
    flushed.unwrap();
    assert!(!queue.is_full());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_given_up() {
    let (server, _client) = memory(10);
    let queue = SendQueue::default();
    queue.push(OutFrame::new(Buf::copy_of(&[1; 40])));
    let began = Instant::now();
    let error = queue.run(&server).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed(), SEND_STALL_TIMEOUT);
    assert!(queue.is_closed() && queue.is_empty());
    queue.push(OutFrame::new(Buf::copy_of(b"late")));
    assert!(queue.is_empty(), "nothing is kept for a connection that is gone");
}

/// Flushes as a connection does whose peer sends something every `pause`: the flush is dropped and
/// a small reply pushed. Returns the time after which it failed.
async fn flush_beside_requests(
    queue: &SendQueue,
    stream: &Stream,
    pause: Duration,
    at_most: Duration,
) -> Option<Duration> {
    let began = Instant::now();
    while began.elapsed() < at_most {
        match tokio::time::timeout(pause, queue.flush(stream)).await {
            Ok(Err(error)) => {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                return Some(began.elapsed());
            }
            Ok(Ok(())) => tokio::time::sleep(pause).await,
            Err(_elapsed) => {}
        }
        queue.push(OutFrame::new(Buf::copy_of(b"echo")));
    }
    None
}

/// R3: tests that only the bytes that a peer takes count, not those that it sends.
#[tokio::test(start_paused = true)]
async fn r3_a_peer_that_takes_nothing_and_goes_on_asking_is_given_up() {
    let (server, _client) = memory(1_000);
    let queue = SendQueue::default();
    queue.push(OutFrame::new(Buf::copy_of(&pattern(100_000))));
    let pause = Duration::from_secs(5);
    let took = flush_beside_requests(&queue, &server, pause, SEND_STALL_TIMEOUT * 5).await;
    assert!(took.unwrap() <= SEND_STALL_TIMEOUT + pause, "{took:?}");
    assert!(queue.is_closed() && queue.is_empty());
}

/// R3: tests n - 1, n and n + 1 bytes in each period.
#[tokio::test(start_paused = true)]
async fn r3_a_peer_has_to_take_so_much_in_each_period() {
    let period = SendLimits::default().stall;
    let needed = period.as_secs() as usize * SEND_RATE_MIN as usize;
    for (count, is_enough) in [(needed - 1, false), (needed, true), (needed + 1, true)] {
        let (server, client) = memory(1_000_000);
        let queue = SendQueue::default();
        queue.push(OutFrame::new(Buf::copy_of(&pattern(8 << 20))));
        let reader = async {
            tokio::time::sleep(period / 2).await;
            for _ in 0..4 {
                read_exactly(&client, count).await;
                tokio::time::sleep(period).await;
            }
        };
        let pause = Duration::from_secs(5);
        let sending = flush_beside_requests(&queue, &server, pause, period * 4);
        let (took, ()) = tokio::join!(sending, async {
            let _ = tokio::time::timeout(period * 4, reader).await;
        });
        assert_eq!(took.is_none(), is_enough, "{count}: {took:?}");
    }
}

/// R3: tests a real socket, whose kernel buffers take a part at once.
#[tokio::test]
async fn r3_a_real_socket_that_takes_nothing_is_given_up() {
    let stall = Duration::from_secs(1);
    for rate in [0, 64 << 10, 1 << 20] {
        let (server, client) = narrow_tcp().await;
        let limits = SendLimits { stall, rate_min: 256 << 10, ..SendLimits::default() };
        let queue = SendQueue::new(limits);
        queue.push(OutFrame::new(Buf::copy_of(&pattern(15 << 20))));
        let reader = async {
            let beat = Duration::from_millis(10);
            let mut buffer = vec![0; rate / 100];
            loop {
                tokio::time::sleep(beat).await;
                if rate > 0 {
                    drop(client.try_read_vectored(&mut [io::IoSliceMut::new(&mut buffer)]));
                }
            }
        };
        let sending = flush_beside_requests(&queue, &server, Duration::from_millis(100), stall * 6);
        let took = tokio::select! { took = sending => took, () = reader => None };
        assert_eq!(took.is_none(), rate > 256 << 10, "{rate} bytes a second: {took:?}");
    }
}

#[tokio::test]
async fn run_sends_what_is_pushed_until_closed() {
    let (server, client) = tcp().await;
    let queue = SendQueue::default();
    let driver = async {
        for n in 0..10_u8 {
            queue.push(OutFrame::new(Buf::copy_of(&[n])));
            assert_eq!(read_exactly(&client, 5).await, [0, 0, 0, 1, n]);
        }
        queue.push(OutFrame::new(Buf::copy_of(b"bye")));
        queue.close();
        read_exactly(&client, 7).await
    };
    let (ran, last) = tokio::join!(queue.run(&server), driver);
    ran.unwrap();
    assert_eq!(&last[4..], b"bye");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_ends_the_connection() {
    for len in [100, 70_000, 1 << 20] {
        let (server, _client) = tcp().await;
        let file = File::open("/").unwrap();
        let queue = SendQueue::default();
        queue.push(OutFrame::with_tail(
            Buf::copy_of(b"head"),
            Segment::File { file: Arc::new(file), offset: 0, len },
        ));
        assert!(queue.flush(&server).await.is_err());
        assert!(queue.is_closed() && queue.is_empty());
    }
}

#[tokio::test]
async fn a_reset_peer_fails_the_queue() {
    let (server, client) = memory(10);
    client.abort();
    let queue = SendQueue::default();
    queue.push(OutFrame::new(Buf::copy_of(b"x")));
    let error = queue.flush(&server).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Makes a connection with a tiny send buffer, so that every write is partial.
async fn narrow_tcp() -> (Stream, Stream) {
    let (server, client) = tcp().await;
    let socket = server.socket().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(socket, 4096).unwrap();
    (server, client)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[derive(Clone, Debug)]
enum Piece {
    Buf(usize),
    Bytes(usize),
    /// Promised bytes, and bytes that the file has.
    File(usize, usize),
}

fn piece() -> impl Strategy<Value = Piece> {
    let len = prop_oneof![0..200_usize, 0..5000_usize];
    prop_oneof![
        len.clone().prop_map(Piece::Buf),
        len.prop_map(Piece::Bytes),
        (0..40_000_usize, 0..40_000_usize).prop_map(|(p, t)| Piece::File(p, t)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Tests that all kinds of segments, ways, buffer sizes and dropped flushes give the same
    /// bytes.
    #[test]
    fn all_frames_arrive_as_promised(
        frames in prop::collection::vec(prop::collection::vec(piece(), 0..4), 1..6),
        roads in (0..3_usize, 0..3_usize),
        over_tcp: bool,
        capacity in 1..5000_usize,
    ) {
        let from = [0, 10_000, usize::MAX];
        let limits = SendLimits {
            sendfile_from: from[roads.0],
            splice_from: from[roads.1],
            ..SendLimits::default()
        };
        let queue = SendQueue::new(limits);
        let mut expected = Vec::new();
        for pieces in &frames {
            let mut frame = OutFrame::default();
            let mut body = Vec::new();
            for piece in pieces {
                match *piece {
                    Piece::Buf(len) => {
                        body.extend(pattern(len));
                        frame.push(Buf::copy_of(&pattern(len)));
                    }
                    Piece::Bytes(len) => {
                        body.extend(pattern(len));
                        frame.push(bytes::Bytes::from(pattern(len)));
                    }
                    Piece::File(len, there) => {
                        let mut bytes = pattern(there);
                        let file = file_of(&bytes);
                        bytes.resize(len, 0);
                        body.extend(bytes);
                        frame.push(Segment::File { file, offset: 0, len });
                    }
                }
            }
            queue.push(frame);
            expected.extend(prefixed(&[&body]));
        }
        prop_assert_eq!(queue.queued_bytes(), expected.len());
        let got = runtime().block_on(async {
            let (server, client) =
                if over_tcp { narrow_tcp().await } else { memory(capacity) };
            let send = async {
                while !queue.is_empty() {
                    tokio::select! {
                        biased;
                        sent = queue.flush(&server) => sent.unwrap(),
                        () = tokio::task::yield_now() => {}
                    }
                    tokio::task::yield_now().await;
                }
            };
            tokio::join!(send, read_exactly(&client, expected.len())).1
        });
        prop_assert!(got == expected);
        prop_assert_eq!(queue.queued_frames(), 0);
        prop_assert_eq!(queue.sent_bytes(), expected.len() as u64);
    }
}

#[tokio::test]
async fn large_tails_squeeze_through_a_narrow_way() {
    for (sendfile_from, splice_from) in [(0, usize::MAX), (0, 0)] {
        let limits = SendLimits { sendfile_from, splice_from, ..SendLimits::default() };
        let queue = SendQueue::new(limits);
        let data = pattern(3_000_001);
        let file = file_of(&data);
        queue.push(OutFrame::with_tail(
            Buf::copy_of(b"head"),
            Segment::File { file, offset: 3, len: data.len() },
        ));
        let (server, client) = narrow_tcp().await;
        let expected = prefixed(&[b"head", &data[3..], &[0; 3]]);
        let (sent, got) = tokio::join!(queue.flush(&server), read_exactly(&client, expected.len()));
        sent.unwrap();
        assert!(got == expected);
    }
}

/// Tests a frame longer than a step, in memory and in a file, on a core that several accounts use and on
/// one that a single account has.
#[tokio::test]
async fn a_shared_core_sends_in_steps() {
    let data = pattern(3 * SEND_STEP_BYTES);
    for (in_file, is_shared) in [(false, false), (false, true), (true, true)] {
        let (server, client) = memory(4 * SEND_STEP_BYTES);
        let queue = SendQueue::default();
        queue.push(if in_file {
            let (file, len) = (file_of(&data), data.len());
            OutFrame::with_tail(Buf::new(), Segment::File { file, offset: 0, len })
        } else {
            OutFrame::new(Buf::copy_of(&data))
        });
        let expected = prefixed(&[&data]);
        watchdog::measured(|| {
            if is_shared {
                watchdog::share_core();
            }
            std::thread::sleep(TURN_SLICE);
            assert_eq!(queue.try_flush(&server).unwrap(), !is_shared);
        });
        let sent = queue.sent_bytes();
        let in_one = if is_shared { SEND_STEP_BYTES } else { expected.len() };
        assert!((1..=in_one as u64).contains(&sent) && (is_shared || queue.is_empty()), "{sent}");
        let (flushed, got) =
            tokio::join!(queue.flush(&server), read_exactly(&client, expected.len()));
        flushed.unwrap();
        assert!(got == expected, "in a file: {in_file}");
    }
}
