//! Encrypted answers, decrypted by the reading task or by other cores, and the speed of that
//! without a peer: all answers are there before the first is decrypted.

use std::sync::Arc;
use std::time::Duration;

use frevo_crypto::{Cipher, OpeningKey, SealingKey};
use frevo_net::buffer::Buf;
use frevo_net::memory;
use frevo_proto::transform::{HEADROOM, seal_frame};
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
    let (unasked, _) = mpsc::channel(1);
    let (nobody, _) = memory::pair(1, ["127.0.0.1:445".parse().unwrap(); 2]);
    let connection = Connection::over(Stream::Memory(nobody), 512, unasked);
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
        Buf::copy_of(&frame[frevo_proto::frame::PREFIX_LEN..])
    };
    (0..count).map(sealed).collect()
}

/// Receives `answers` one after the other, and waits until all have reached their callers.
async fn take_in(connection: Arc<Connection>, answers: Vec<Buf>) -> Duration {
    let asked: Vec<oneshot::Receiver<Message>> = (0..answers.len() as u64)
        .map(|message_id| {
            let taken = Taken { message_id, charge: 1, credit_request: 1 };
            connection.waiters.enter(taken, false, None).unwrap()
        })
        .collect();
    let start = Instant::now();
    let reading = tokio::spawn(async move {
        for frame in answers {
            // As the reader does.
            if let Begun::Here = connection.begin(frame).unwrap() {
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
            let connection = connection(cipher);
            // Slow enough for others, whatever this machine is.
            connection.opening_speed.is_told(Duration::from_secs(1));
            let answers = answers(cipher, 24, 64 << 10);
            runtime(workers).block_on(take_in(connection, answers));
        }
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
        for workers in [1, 2] {
            let runtime = runtime(workers);
            let mut rates: Vec<f64> = (0..9)
                .map(|_| {
                    let answers = answers(cipher, COUNT, 1 << 20);
                    let took = runtime.block_on(take_in(connection(cipher), answers));
                    (COUNT << 20) as f64 / 1e6 / took.as_secs_f64()
                })
                .collect();
            rates.sort_by(f64::total_cmp);
            let (least, median, most) = (rates[0], rates[4], rates[8]);
            println!("{name}, {workers} workers: {median:.0} ({least:.0}-{most:.0}) MB/s");
        }
    }
}
