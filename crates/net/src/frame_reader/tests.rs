use std::future::Future as _;
use std::io::{IoSlice, Write as _};

use proptest::prelude::*;

use super::*;
use crate::buffer::pool_stats;
use crate::transport::tests::{memory, tcp, write_all};

fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for body in bodies {
        all.extend((body.len() as u32).to_be_bytes());
        all.extend(body);
    }
    all
}

fn body(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

async fn all_frames(stream: &Stream) -> Vec<Vec<u8>> {
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next(stream).await.unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Tests that any cutting of the stream gives the same frames.
    #[test]
    fn frames_come_out_whole(
        lens in prop::collection::vec(
            prop_oneof![0..10_usize, 100..2000_usize, 15_000..60_000_usize], 0..12),
        cuts in prop::collection::vec(1..30_000_usize, 1..20),
        capacity in prop_oneof![1..10_usize, 1000..100_000_usize],
    ) {
        let bodies: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(n, &len)| body(len, n as u8)).collect();
        let wire = framed(&bodies);
        let got = runtime().block_on(async {
            let (client, server) = memory(capacity);
            let write = async move {
                let mut rest = &wire[..];
                for cut in cuts.iter().cycle() {
                    let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                    write_all(&client, piece).await;
                    tokio::task::yield_now().await;
                    rest = tail;
                    if rest.is_empty() { break }
                }
            };
            tokio::join!(write, all_frames(&server)).1
        });
        prop_assert_eq!(got, bodies);
    }

    /// Tests that no bytes make the reader panic or return more bytes than came in.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let limit = 64;
        let total = runtime().block_on(async {
            let (client, server) = memory(1000);
            write_all(&client, &bytes).await;
            drop(client);
            let mut reader = FrameReader::new(limit);
            let mut total = 0;
            while let Ok(Some(frame)) = reader.next(&server).await {
                assert!(frame.len() <= limit as usize);
                total += PREFIX_BYTES + frame.len();
            }
            total
        });
        prop_assert!(total <= bytes.len());
    }
}

#[tokio::test]
async fn large_and_small_frames_over_tcp() {
    let (client, server) = tcp().await;
    let bodies: Vec<Vec<u8>> =
        [1, 1 << 20, 0, 64, (8 << 20) + 112, 70_000, 16 << 10, (16 << 10) - 4, 5]
            .iter()
            .enumerate()
            .map(|(n, &len)| body(len, n as u8))
            .collect();
    let wire = framed(&bodies);
    let send = async move {
        write_all(&client, &wire).await;
        drop(client);
    };
    let ((), got) = tokio::join!(send, all_frames(&server));
    assert_eq!(got, bodies);
}

#[tokio::test]
async fn the_limit_at_n_minus_1_n_and_n_plus_1() {
    let limit = 1000;
    for len in [limit - 1, limit] {
        let (client, server) = memory(10_000);
        write_all(&client, &framed(&[body(len, 0)])).await;
        let frame = FrameReader::new(limit as u32).next(&server).await.unwrap().unwrap();
        assert_eq!(frame.len(), len);
    }
    let (client, server) = memory(10_000);
    write_all(&client, &framed(&[b"ok".to_vec(), body(limit + 1, 0)])).await;
    let mut reader = FrameReader::new(limit as u32);
    assert_eq!(&*reader.next(&server).await.unwrap().unwrap(), b"ok");
    for _ in 0..2 {
        let error = reader.next(&server).await.unwrap_err();
        assert!(matches!(error, ReceiveError::TooLong { len: 1001, limit: 1000 }), "{error}");
    }
}

#[tokio::test]
async fn too_long_a_frame_costs_no_memory() {
    let (client, server) = memory(100);
    write_all(&client, &[0, 0x80, 0, 0]).await;
    let before = pool_stats();
    let error = FrameReader::new(1 << 20).next(&server).await.unwrap_err();
    assert!(matches!(error, ReceiveError::TooLong { .. }));
    let after = pool_stats();
    assert_eq!((before.made, before.reused), (after.made, after.reused));
}

#[tokio::test]
async fn a_limit_may_rise_between_frames() {
    let (client, server) = memory(1000);
    let mut reader = FrameReader::new(10);
    write_all(&client, &framed(&[body(10, 0)])).await;
    reader.next(&server).await.unwrap().unwrap();
    reader.set_limit(20);
    write_all(&client, &framed(&[body(20, 0)])).await;
    assert_eq!(reader.next(&server).await.unwrap().unwrap().len(), 20);
}

#[tokio::test]
async fn what_is_not_a_frame_is_refused() {
    let (client, server) = memory(100);
    write_all(&client, b"\x81\0\0\x44").await;
    let error = FrameReader::new(1000).next(&server).await.unwrap_err();
    assert!(matches!(error, ReceiveError::NotAFrame { first: 0x81 }));
}

/// RFC 1002 4.3: clients of port 139 begin with it, in one packet with the next frame or in pieces.
#[tokio::test]
async fn a_session_request_is_answered_once() {
    let request = [&[0x81, 0, 0, 68][..], &body(68, 1)].concat();
    let after = framed(&[body(10, 2)]);
    for cut in [1, 3, 4, 40, 72, 74, 86] {
        let (client, server) = memory(1000);
        let mut reader = FrameReader::new(1000);
        reader.accept_session_request();
        let wire = [&request[..], &after].concat();
        let (first, second) = wire.split_at(cut);
        write_all(&client, first).await;
        let frame = async {
            let frame = reader.next(&server).await.unwrap().unwrap();
            assert_eq!(&frame[..], body(10, 2), "{cut}");
        };
        let write = async {
            tokio::task::yield_now().await;
            write_all(&client, second).await;
        };
        tokio::join!(frame, write);
        let mut answer = [0; 8];
        let count = client.try_read_vectored(&mut [IoSliceMut::new(&mut answer)]).unwrap();
        assert_eq!(answer[..count], [0x82, 0, 0, 0], "{cut}");
        // A connection may begin with one session request. A second one is refused as an invalid
        // frame.
        write_all(&client, &request).await;
        let error = reader.next(&server).await.unwrap_err();
        assert!(matches!(error, ReceiveError::NotAFrame { first: 0x81 }));
    }
    for (wire, is_after_a_frame) in [(&b"\x81\0\x01\xFF"[..], false), (&request, true)] {
        let (client, server) = memory(1000);
        let mut reader = FrameReader::new(1000);
        reader.accept_session_request();
        if is_after_a_frame {
            write_all(&client, &after).await;
            reader.next(&server).await.unwrap().unwrap();
        }
        write_all(&client, wire).await;
        let error = reader.next(&server).await.unwrap_err();
        assert!(matches!(error, ReceiveError::NotAFrame { first: 0x81 }));
    }
}

#[tokio::test]
async fn an_end_inside_a_frame_is_told_from_an_orderly_one() {
    for cut in [1, 3, 4, 7] {
        let (client, server) = memory(100);
        write_all(&client, &framed(&[body(8, 0)])[..cut]).await;
        drop(client);
        let error = FrameReader::new(100).next(&server).await.unwrap_err();
        assert!(matches!(error, ReceiveError::Truncated), "{cut}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_begun_frame_must_progress() {
    for cut in [1, 4, 7] {
        let (client, server) = memory(100);
        write_all(&client, &framed(&[body(8, 0)])[..cut]).await;
        let began = Instant::now();
        let error = FrameReader::new(100).next(&server).await.unwrap_err();
        assert!(matches!(error, ReceiveError::Stalled), "{error}");
        assert_eq!(began.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn silence_between_frames_is_no_stall() {
    let (client, server) = memory(100);
    let late = async {
        sleep(Duration::from_secs(3600)).await;
        write_all(&client, &framed(&[body(8, 0)])).await;
    };
    let mut reader = FrameReader::new(100);
    let (frame, ()) = tokio::join!(reader.next(&server), late);
    assert_eq!(frame.unwrap().unwrap().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn one_byte_every_nine_seconds_is_a_stall_in_the_end() {
    let (client, server) = memory(100);
    write_all(&client, &(100 * FRAME_RATE_MIN).to_be_bytes()).await;
    let drip = async {
        loop {
            sleep(Duration::from_secs(9)).await;
            write_all(&client, &[1]).await;
        }
    };
    let began = Instant::now();
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    tokio::select! {
        outcome = reader.next(&server) => {
            assert!(matches!(outcome, Err(ReceiveError::Stalled)));
        }
        () = drip => {}
    }
    // Sending the bytes takes 100 s, and then the frame may wait 10 s without progress, so the
    // limit ends the wait after about 110 s.
    assert!((108..=112).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_loses_nothing_and_does_not_restart_the_clock() {
    let (client, server) = memory(10_000);
    let wire = framed(&[body(5000, 3)]);
    let mut reader = FrameReader::new(10_000);
    let mut got = None;
    for piece in wire.chunks(700) {
        write_all(&client, piece).await;
        let patience = Duration::from_millis(100);
        if let Ok(frame) = tokio::time::timeout(patience, reader.next(&server)).await {
            got = frame.unwrap();
        }
    }
    assert_eq!(got.unwrap().to_vec(), body(5000, 3));
    write_all(&client, &wire[..9]).await;
    let began = Instant::now();
    loop {
        let patience = Duration::from_secs(1);
        if let Ok(end) = tokio::time::timeout(patience, reader.next(&server)).await {
            assert!(matches!(end, Err(ReceiveError::Stalled)));
            break;
        }
    }
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn a_reader_moves_with_what_it_holds() {
    let (client, server) = memory(100);
    let wire = framed(&[b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    write_all(&client, &wire[..17]).await;
    let mut reader = FrameReader::new(100);
    assert_eq!(&*reader.next(&server).await.unwrap().unwrap(), b"one");
    let (client, server) = (client.detach().unwrap(), server.detach().unwrap());
    let there = std::thread::spawn(move || {
        runtime().block_on(async {
            let (client, server) = (client.attach().unwrap(), server.attach().unwrap());
            assert_eq!(reader.try_next().as_deref(), Some(&b"two"[..]));
            assert!(reader.try_next().is_none() && reader.is_inside_frame());
            write_all(&client, &wire[17..]).await;
            reader.next(&server).await.unwrap().unwrap().to_vec()
        })
    });
    assert_eq!(there.join().unwrap(), b"three");
}

#[tokio::test]
async fn pipelined_small_frames_cost_one_call() {
    let (client, server) = tcp().await;
    write_all(&client, &framed(&vec![body(100, 1); 100])).await;
    sleep(Duration::from_millis(20)).await;
    let mut reader = FrameReader::new(1000);
    reader.next(&server).await.unwrap();
    let mut at_hand = 0;
    while reader.try_next().is_some() {
        at_hand += 1;
    }
    assert_eq!(at_hand, 99);
}

#[tokio::test]
async fn an_idle_connection_holds_no_memory() {
    assert!(size_of::<FrameReader>() <= 256, "{}", size_of::<FrameReader>());
    let (client, server) = memory(100_000);
    let mut reader = FrameReader::new(100_000);
    crate::buffer::trim_pool();
    write_all(&client, &framed(&vec![body(300, 1); 50])).await;
    for _ in 0..50 {
        drop(reader.next(&server).await.unwrap().unwrap());
    }
    // All blocks are back in the pool, and the queue has freed its memory.
    let stats = pool_stats();
    assert_eq!(stats.retained_bytes, 50 * 768);
    assert_eq!(reader.ready.capacity(), 0);
}

#[tokio::test]
async fn what_has_arrived_is_gathered_up_to_the_limits() {
    let (client, server) = memory(1 << 20);
    let bodies: Vec<Vec<u8>> = (0..9).map(|n| body(40_000, n)).collect();
    write_all(&client, &framed(&bodies)).await;
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let mut got = vec![reader.next(&server).await.unwrap().unwrap().to_vec()];
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| false);
    assert!(!reader.has_more(), "no memory");
    reader.gather(&server, Enough { frames: 3, bytes: usize::MAX }, |_, _| true);
    assert_eq!(reader.ready_frames().count(), 3);
    reader.gather(&server, Enough { frames: 8, bytes: 3 * 40_000 }, |_, _| true);
    assert_eq!(reader.ready_frames().count(), 3, "they have as many bytes already");
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| true);
    assert_eq!(reader.ready_frames().count(), 8, "it does not wait for more");
    let ready: Vec<Vec<u8>> = reader.ready_frames().map(|frame| frame.to_vec()).collect();
    while let Some(frame) = reader.try_next() {
        got.push(frame.to_vec());
    }
    assert_eq!(got, bodies);
    assert_eq!(ready, bodies[1..]);
}

/// Tests that frames above the allowed length wait behind their prefix without memory, and that those
/// before them come out.
#[tokio::test(start_paused = true)]
async fn long_frames_wait_without_memory() {
    let (client, server) = memory(1 << 20);
    let lens = [100, 0, 4_096, 4_097, 7, 0, 50_000, 1];
    let bodies: Vec<Vec<u8>> = lens.iter().map(|len| body(*len, 3)).collect();
    write_all(&client, &framed(&bodies)).await;
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let soon = Duration::from_secs(100);
    for body in &bodies[..3] {
        let frame = reader.next_if(&server, |_, _| Allowed::UpTo(4_096)).await.unwrap().unwrap();
        assert_eq!((&frame.to_vec(), reader.held_bytes()), (body, 0));
    }
    let waits = reader.next_if(&server, |_, has_begun| {
        assert!(!has_begun, "nothing is there for it yet");
        Allowed::UpTo(4_096)
    });
    assert!(tokio::time::timeout(soon, waits).await.is_err(), "it waits as long as need be");
    assert!(reader.is_inside_frame());
    assert_eq!(reader.held_bytes(), 0);
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| Allowed::UpTo(4_096));
    assert!(!reader.has_more());
    let frame = reader.next_if(&server, |_, _| Allowed::UpTo(4_097)).await.unwrap().unwrap();
    assert_eq!((frame.to_vec(), reader.held_bytes()), (bodies[3].clone(), 0));
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| Allowed::UpTo(7));
    assert_eq!(reader.ready_frames().count(), 2);
    for body in &bodies[4..] {
        assert_eq!(&reader.next(&server).await.unwrap().unwrap().to_vec(), body);
    }
}

/// A long frame that has begun while there was memory is received to its end when there is none, and
/// nothing behind it.
#[tokio::test(start_paused = true)]
async fn a_begun_frame_is_received_to_its_end() {
    let (client, server) = memory(1 << 20);
    let bodies = [body(50_000, 3), body(8_000, 4)];
    let bytes = framed(&bodies);
    write_all(&client, &bytes[..1_000]).await;
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| Allowed::All);
    assert!(reader.is_inside_frame());
    write_all(&client, &bytes[1_000..]).await;
    let frame = reader.next_if(&server, |_, _| Allowed::UpTo(100)).await.unwrap().unwrap();
    assert_eq!((&frame.to_vec(), reader.held_bytes()), (&bodies[0], 0));
    let waits = reader.next_if(&server, |_, _| Allowed::UpTo(7_999));
    assert!(tokio::time::timeout(Duration::from_secs(100), waits).await.is_err());
    assert_eq!(reader.held_bytes(), 0);
    assert_eq!(&reader.next(&server).await.unwrap().unwrap().to_vec(), &bodies[1]);
}

/// The runtime learns of bytes when it asks the kernel, which it does between two polls.
#[tokio::test]
async fn bytes_that_the_runtime_has_not_heard_of_are_gathered() {
    let (client, server) = tcp().await;
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    write_all(&client, &framed(&[body(100, 0)])).await;
    reader.next(&server).await.unwrap().unwrap();
    let more = framed(&[body(100, 1)]);
    assert_eq!(client.try_write_vectored(&[IoSlice::new(&more)], false).unwrap(), more.len());
    while server.unread_bytes() == 0 {
        std::thread::yield_now();
    }
    reader.gather(&server, Enough { frames: 1, bytes: usize::MAX }, |_, _| true);
    assert_eq!(reader.try_next().unwrap().to_vec(), body(100, 1));
    assert_eq!(server.unread_bytes(), 0);
}

/// The frames before a fault or an end come first, and then the same error as without gathering.
#[tokio::test]
async fn what_ends_a_gathering_is_told_after_its_frames() {
    for (rest, is_fault) in [(&b"\x01\0\0\x01"[..], true), (b"\0\0\0\x08half", false)] {
        let (client, server) = memory(1000);
        write_all(&client, &framed(&[body(8, 0), body(8, 1)])).await;
        write_all(&client, rest).await;
        drop(client);
        let mut reader = FrameReader::new(100);
        reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| true);
        for n in 0..2 {
            assert_eq!(reader.next(&server).await.unwrap().unwrap().to_vec(), body(8, n));
        }
        for _ in 0..2 {
            reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| true);
            let error = reader.next(&server).await.unwrap_err();
            assert_eq!(matches!(error, ReceiveError::NotAFrame { .. }), is_fault, "{error}");
            assert_eq!(matches!(error, ReceiveError::Truncated), !is_fault, "{error}");
        }
    }
}

/// A reset connection reports its failure once: it must not look like an orderly end afterwards.
#[tokio::test]
async fn a_failure_while_gathering_is_kept() {
    let (client, server) = tcp().await;
    write_all(&client, &framed(&[body(8, 0)])).await;
    sleep(Duration::from_millis(20)).await;
    let mut reader = FrameReader::new(100);
    reader.next(&server).await.unwrap().unwrap();
    // The client's socket is closed with unread bytes, which resets the connection.
    write_all(&server, b"x").await;
    sleep(Duration::from_millis(20)).await;
    drop(client);
    sleep(Duration::from_millis(20)).await;
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| true);
    reader.gather(&server, Enough { frames: 8, bytes: usize::MAX }, |_, _| true);
    let error = reader.next(&server).await.unwrap_err();
    assert!(matches!(error, ReceiveError::Io(_)), "{error}");
}

/// A runtime in real time, as sockets need it.
fn real_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

const WAKE_BYTES: usize = FRAME_WAKE_BYTES as usize;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// A connection whose client is blocking.
async fn accepted() -> (std::net::TcpStream, Stream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    (client, listener.accept().await.unwrap().0.into())
}

/// The number of times that the reader of a frame of 2 MiB was polled, whose pieces came one by one.
async fn polls_of_a_large_frame() -> usize {
    let (mut client, server) = accepted().await;
    let body = body(2 << 20, 3);
    let wire = framed(std::slice::from_ref(&body));
    let writer = std::thread::spawn(move || {
        for piece in wire.chunks(16 << 10) {
            client.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
        client
    });
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let mut polls = 0;
    let frame = {
        let mut next = std::pin::pin!(reader.next(&server));
        let counted = std::future::poll_fn(|cx| {
            polls += 1;
            next.as_mut().poll(cx)
        });
        tokio::time::timeout(LONG, counted).await.unwrap().unwrap().unwrap()
    };
    assert!(*frame == *body);
    drop(writer.join());
    polls
}

#[test]
fn keep_alives_are_skipped_if_they_are_accepted() {
    let frames = [body(100, 1), body(0, 2), body(70_000, 3)];
    let mut wire = vec![KEEP_ALIVE, 0, 0, 0];
    for frame in &frames {
        wire.extend(framed(std::slice::from_ref(frame)));
        wire.extend([KEEP_ALIVE, 0, 0, 0, KEEP_ALIVE, 0, 0, 0]);
    }
    real_time().block_on(async {
        for accepts in [true, false] {
            let (mut client, server) = accepted().await;
            let wire = wire.clone();
            let writer = std::thread::spawn(move || client.write_all(&wire));
            let mut reader = FrameReader::new(FRAME_BYTES_MAX);
            if !accepts {
                let refused = reader.next(&server).await;
                assert!(matches!(refused, Err(ReceiveError::NotAFrame { first: KEEP_ALIVE })));
                continue;
            }
            reader.accept_keep_alives();
            for frame in &frames {
                assert!(*reader.next(&server).await.unwrap().unwrap() == **frame);
            }
            writer.join().unwrap().unwrap();
            assert!(reader.next(&server).await.unwrap().is_none());
        }
    });
}

#[test]
fn a_large_frame_wakes_its_reader_seldom() {
    // On a busy machine parts of a frame may be delayed, which causes more polls. So the best of
    // ten runs counts.
    let fewest = (0..10).map(|_| real_time().block_on(polls_of_a_large_frame())).min();
    let expected = (2 << 20) / WAKE_BYTES + 6;
    assert!(fewest <= Some(expected), "{fewest:?}, not {expected}");
}

#[test]
fn what_comes_of_a_slow_frame_is_received() {
    real_time().block_on(async {
        let (client, server) = tcp().await;
        let bodies = [body(WAKE_BYTES, 1), body(10, 2)];
        let wire = framed(&bodies);
        let mut reader = FrameReader::new(FRAME_BYTES_MAX);
        let (first, rest) = wire.split_at(WAKE_BYTES / 2);
        let begun = Instant::now();
        let receive = async {
            while reader.received_bytes() < first.len() as u64 {
                let pause = FRAME_WAKE_PATIENCE / 2;
                assert!(tokio::time::timeout(pause, reader.next(&server)).await.is_err());
                assert!(begun.elapsed() < LONG, "{}", reader.received_bytes());
            }
        };
        tokio::join!(write_all(&client, first), receive);
        // The receive times out in the middle of the frame, but the bytes that have arrived must be
        // kept.
        let (second, third) = rest.split_at(rest.len() / 2);
        let wait = tokio::time::timeout(FRAME_WAKE_PATIENCE, reader.next(&server));
        let (none, ()) = tokio::join!(wait, write_all(&client, second));
        assert!(none.is_err());
        let next = tokio::time::timeout(LONG, reader.next(&server));
        let (frame, ()) = tokio::join!(next, write_all(&client, third));
        assert!(*frame.unwrap().unwrap().unwrap() == *bodies[0]);
        let frame = tokio::time::timeout(LONG, reader.next(&server)).await;
        assert!(*frame.unwrap().unwrap().unwrap() == *bodies[1]);
    });
}

/// A pause of the reader is no stall of the peer, which has sent something in it, though too little to
/// be told of.
#[test]
fn what_came_in_a_pause_of_the_reader_is_no_stall() {
    real_time().block_on(async {
        let (client, server) = tcp().await;
        let wire = framed(&[body(2 * WAKE_BYTES, 1)]);
        let (first, rest) = wire.split_at(WAKE_BYTES / 2);
        let (second, rest) = rest.split_at(WAKE_BYTES / 4);
        let mut reader = FrameReader::new(FRAME_BYTES_MAX);
        reader.progress_timeout = FRAME_WAKE_PATIENCE * 2;
        write_all(&client, first).await;
        let pause = FRAME_WAKE_PATIENCE / 2;
        assert!(tokio::time::timeout(pause, reader.next(&server)).await.is_err());
        write_all(&client, second).await;
        sleep(reader.progress_timeout * 2).await;
        let next = tokio::time::timeout(pause, reader.next(&server)).await;
        assert!(next.is_err(), "{:?}", next.map(|end| end.map(drop)));
        assert_eq!(reader.received_bytes(), (first.len() + second.len()) as u64);
        let next = tokio::time::timeout(LONG, reader.next(&server));
        let (frame, ()) = tokio::join!(next, write_all(&client, rest));
        assert_eq!(frame.unwrap().unwrap().unwrap().len(), 2 * WAKE_BYTES);
    });
}

/// Where memory is scarce, the kernel makes no room.
#[test]
fn room_is_made_if_it_is_allowed() {
    real_time().block_on(async {
        for may in [false, true] {
            let (client, server) = tcp().await;
            let mut reader = FrameReader::new(FRAME_BYTES_MAX);
            reader.allow_room(may);
            let wire = framed(&[body(2 * WAKE_BYTES, 1)]);
            write_all(&client, &wire[..1000]).await;
            let pause = FRAME_WAKE_PATIENCE / 2;
            assert!(tokio::time::timeout(pause, reader.next(&server)).await.is_err());
            assert_eq!(reader.low_water_mark > 1, may);
        }
    });
}

/// At n - 1, n and n + 1 bytes, with a small frame and then the end behind each.
#[test]
fn frames_around_the_low_water_mark_come_out_whole() {
    real_time().block_on(async {
        let next = async |reader: &mut FrameReader, stream: &Stream| {
            tokio::time::timeout(LONG, reader.next(stream)).await.unwrap()
        };
        for n in [WAKE_BYTES, 2 * WAKE_BYTES, WAKE_BYTES + (16 << 10)] {
            for len in [n - PREFIX_BYTES, n - 1, n, n + 1] {
                let (client, server) = tcp().await;
                let mut reader = FrameReader::new(FRAME_BYTES_MAX);
                let bodies = [body(len, 1), body(1, 2)];
                for body in &bodies {
                    let wire = framed(std::slice::from_ref(body));
                    let write = async {
                        for piece in wire.chunks(100_000) {
                            write_all(&client, piece).await;
                            tokio::task::yield_now().await;
                        }
                    };
                    let (frame, ()) = tokio::join!(next(&mut reader, &server), write);
                    assert!(*frame.unwrap().unwrap() == **body, "{len}");
                }
                let part = framed(&bodies);
                let write = async {
                    write_all(&client, &part[..len / 2]).await;
                    drop(client);
                };
                let (end, ()) = tokio::join!(next(&mut reader, &server), write);
                assert!(matches!(end, Err(ReceiveError::Truncated)), "{len}: {end:?}");
            }
        }
    });
}
