//! Encrypted answers, decrypted by the reading task or by other cores, and the speed of that
//! without a peer: all answers are there before the first is decrypted.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use frevo_crypto::{Cipher, OpeningKey, SealingKey};
use frevo_net::buffer::Buf;
use frevo_net::memory;
use frevo_proto::limits::CHECKED_TOGETHER;
use frevo_proto::protection::transform::{HEADROOM, seal_frame};
use frevo_proto::window::Taken;
use frevo_wire::{Command, Header, HeaderFlags, Route};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::reader::Begun;
use super::*;

const SESSION: u64 = 7;
const KEY: [u8; 32] = [7; 32];

/// A connection without a peer.
fn connection(cipher: Cipher) -> Arc<Connection> {
    opened_at(cipher, Pace::fast())
}

/// One that is slow enough for others to help, whatever this machine is.
fn slow(cipher: Cipher) -> Arc<Connection> {
    opened_at(cipher, Pace::known(Duration::from_secs(1)))
}

fn opened_at(cipher: Cipher, opening_pace: Pace) -> Arc<Connection> {
    let (unasked, _) = mpsc::channel(1);
    let (nobody, _) = memory::pair(1, ["127.0.0.1:445".parse().unwrap(); 2]);
    let connection = Connection::over(Stream::Memory(nobody), 512, unasked);
    let connection = Connection { opening_pace, ..connection };
    connection.open_with(SESSION, Arc::new(OpeningKey::new(cipher, &KEY)));
    Arc::new(connection)
}

/// Encrypted answers to READs; each is filled with its MessageId.
fn answers(cipher: Cipher, count: u64, len: usize) -> Vec<Buf> {
    let key = SealingKey::new(cipher, &KEY);
    let sealed = |message_id: u64| {
        let header = Header {
            credit_charge: 1,
            status: frevo_wire::Status::SUCCESS,
            command: Command::READ,
            credits: 1,
            flags: HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            message_id,
            route: Route::Sync { process_id: 0, tree_id: 1 },
            session_id: SESSION,
            signature: [0; 16],
        };
        let mut frame = vec![0; HEADROOM];
        frame.extend_from_slice(&header.to_bytes());
        frame.resize(HEADROOM + HEADER_LEN + len, message_id as u8);
        seal_frame(&mut frame, &key, SESSION).unwrap();
        Buf::copy_of(&frame[PREFIX_LEN..])
    };
    (0..count).map(sealed).collect()
}

/// Receives `answers`, as many at a time as `together` says, and waits until all have reached their
/// callers.
async fn take_in(connection: Arc<Connection>, mut answers: Vec<Buf>, together: usize) -> Duration {
    let asked: Vec<oneshot::Receiver<Message>> = (0..answers.len() as u64)
        .map(|message_id| {
            let taken = Taken { message_id, charge: 1, credit_request: 1 };
            connection.waiters.enter(taken, false, None).unwrap()
        })
        .collect();
    let start = Instant::now();
    let reading = tokio::spawn(async move {
        while !answers.is_empty() {
            // The test processes `together` answers at a time, as the reader does when several have
            // arrived.
            let row: Vec<Buf> = answers.drain(..together.min(answers.len())).collect();
            let mut row = row.into_iter();
            let first = row.next().unwrap();
            if let Begun::Here = connection.begin(first, row.collect(), Vec::new()).unwrap() {
                tokio::task::yield_now().await;
            }
        }
    });
    for (id, reply) in asked.into_iter().enumerate() {
        let message = reply.await.unwrap();
        assert_eq!(message.header.message_id, id as u64);
        assert_eq!(message.sealed, Some(SESSION));
        assert_eq!(message.bytes().last(), Some(&(id as u8)));
    }
    reading.await.unwrap();
    start.elapsed()
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn what_other_cores_open_reaches_who_asked() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Ccm] {
        for workers in [1, 3] {
            let connection = slow(cipher);
            let answers = answers(cipher, 24, 64 << 10);
            runtime(workers).block_on(take_in(connection, answers, 1));
        }
    }
}

#[test]
fn answers_that_are_decrypted_together_reach_who_asked() {
    for cipher in [Cipher::Aes128Ccm, Cipher::Aes256Ccm, Cipher::Aes256Gcm] {
        for (workers, is_slow) in [(1, false), (3, true)] {
            let connection = if is_slow { slow(cipher) } else { connection(cipher) };
            let answers = answers(cipher, 29, 64 << 10);
            runtime(workers).block_on(take_in(connection, answers, CHECKED_TOGETHER));
        }
    }
}

/// A forged answer ends the connection. Those before it are handed out, those behind it are not.
#[test]
fn a_forged_answer_in_a_row_is_found() {
    for forged in 0..5 {
        let connection = connection(Cipher::Aes128Ccm);
        let mut answers = answers(Cipher::Aes128Ccm, 5, 40 << 10);
        let last = answers[forged].len() - 1;
        answers[forged][last] ^= 1;
        runtime(1).block_on(async {
            let mut asked: Vec<oneshot::Receiver<Message>> = (0..5)
                .map(|message_id| {
                    let taken = Taken { message_id, charge: 1, credit_request: 1 };
                    connection.waiters.enter(taken, false, None).unwrap()
                })
                .collect();
            let mut row = answers.into_iter();
            let first = row.next().unwrap();
            let begun = connection.begin(first, row.collect(), Vec::new());
            assert!(matches!(begun, Err(Cause::Security(_))), "{forged}");
            for (at, reply) in asked.iter_mut().enumerate() {
                assert_eq!(reply.try_recv().is_ok(), at < forged, "{at} of {forged}");
            }
        });
    }
}

/// Frames are gathered from a stream only where it pays, and up to the limit.
#[test]
fn answers_that_have_arrived_are_gathered() {
    for cipher in [Cipher::Aes128Ccm, Cipher::Aes128Gcm] {
        let gains = OpeningKey::new(cipher, &KEY).gains_by_batches();
        let expected = if gains { CHECKED_TOGETHER - 1 } else { 0 };
        runtime(1).block_on(async {
            let (unasked, _) = mpsc::channel(1);
            let (peer, ours) = memory::pair(2 << 20, ["127.0.0.1:445".parse().unwrap(); 2]);
            let connection = Connection::over(Stream::Memory(ours), 512, unasked);
            connection.open_with(SESSION, Arc::new(OpeningKey::new(cipher, &KEY)));
            let peer = Stream::Memory(peer);
            for frame in answers(cipher, 12, 64 << 10) {
                let prefix = u32::try_from(frame.len()).unwrap().to_be_bytes();
                let whole = [&prefix[..], &frame].concat();
                let sent = peer.try_write_vectored(&[IoSlice::new(&whole)], false);
                assert_eq!(sent.unwrap(), whole.len());
            }
            let mut reader = frevo_net::frame_reader::FrameReader::new(1 << 20);
            let first = reader.next(&connection.stream).await.unwrap().unwrap();
            assert_eq!(connection.gather(&first, &mut reader).len(), expected, "{cipher:?}");
        });
    }
}

/// `cargo test --release -p frevo-client the_receive_path -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "it is for its output")]
fn how_fast_the_receive_path_is() {
    const COUNT: u64 = 192;
    for (name, cipher) in [
        ("aes-128-gcm", Cipher::Aes128Gcm),
        ("aes-128-ccm", Cipher::Aes128Ccm),
        ("aes-256-ccm", Cipher::Aes256Ccm),
    ] {
        for (workers, together) in [(1, 1), (2, 1), (1, 4), (2, 4), (1, 8)] {
            let runtime = runtime(workers);
            let mut rates: Vec<f64> = (0..9)
                .map(|_| {
                    let answers = answers(cipher, COUNT, 1 << 20);
                    let took = runtime.block_on(take_in(connection(cipher), answers, together));
                    (COUNT << 20) as f64 / 1e6 / took.as_secs_f64()
                })
                .collect();
            rates.sort_by(f64::total_cmp);
            let (least, median, most) = (rates[0], rates[4], rates[8]);
            println!(
                "{name}, {workers} workers, {together} at a time: {median:.0} ({least:.0}-{most:.0}) MB/s"
            );
        }
    }
}
