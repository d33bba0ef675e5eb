//! A hostile server, or an attacker on the network: the client ends with an
//! error, in time, and never with wrong data or unprotected.
#![allow(missing_docs, reason = "tests")]

use crate::evil::between;
use crate::world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use between::Between;
use frevo_client::internal::Dial;
use frevo_client::{Cause, Client, Credentials, Encryption, Options, Result, ServerName, Session};
use world::{World, in_world};

/// The change to the server's frames; the number counts the frames of all
/// connections.
type Tamper = dyn Fn(usize, Vec<u8>) -> Vec<Vec<u8>> + Send + Sync;

fn client(world: &World, options: Options, tamper: Arc<Tamper>) -> (Client, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let server = Arc::clone(&world.wire) as Arc<dyn Dial>;
    let count = Arc::clone(&seen);
    let back = Arc::new(move |frame| tamper(count.fetch_add(1, Ordering::SeqCst), frame));
    let between = Between { server, there: Arc::new(|frame| vec![frame]), back };
    let options = options.recover_for(Duration::from_millis(200));
    (Client::with_dialer(options, Arc::new(between)), seen)
}

async fn log_on(client: &Client) -> Result<Session> {
    client.connect(ServerName::new("frevo"), Credentials::new("ann", "secret")).await
}

/// Reads a file whose content is known, through whatever is in the way.
async fn read(client: &Client) -> Result<Vec<u8>> {
    log_on(client).await?.share("data").await?.read("known").await
}

const KNOWN: &[u8] = b"what was written, and nothing else";

/// Every byte of every answer matters: with one bit of it changed the client
/// fails, or did not need it, and what it reads is never another content.
#[test]
fn a_changed_bit_never_changes_what_is_read() {
    in_world(async |world| {
        std::fs::write(world.path("known"), KNOWN).unwrap();
        for encryption in [Encryption::AsServerAsks, Encryption::Required] {
            let options = Options::new().encryption(encryption);
            let honest: Arc<Tamper> = Arc::new(|_, frame| vec![frame]);
            let (one, seen) = client(world, options.clone(), honest);
            assert_eq!(read(&one).await.unwrap(), KNOWN);
            let frames = seen.load(Ordering::SeqCst);
            assert!(frames > 4, "{frames}");
            let mut failed = 0;
            for target in 0..frames {
                for place in [0_usize, 4, 9, 13, 17, 24, 41, 60, 64, 70, 77, 83, 90, 112, 130] {
                    let tamper: Arc<Tamper> = Arc::new(move |at, mut frame| {
                        if at == target && place < frame.len() {
                            frame[place] ^= 0x10;
                        }
                        vec![frame]
                    });
                    let (one, _) = client(world, options.clone(), tamper);
                    let read = tokio::time::timeout(Duration::from_secs(20), read(&one)).await;
                    match read.expect("it ends") {
                        // The client has detected the change, has reconnected and has read the
                        // right data.
                        Ok(data) => assert_eq!(data, KNOWN, "frame {target}, byte {place}"),
                        Err(_) => failed += 1,
                    }
                }
            }
            assert!(failed > frames, "changes are noticed: {failed}");
        }
    });
}

/// Answers in plain where they should be sealed, given twice, to nobody, or
/// endless: none of it is taken.
#[test]
fn what_the_server_would_not_send_is_refused() {
    in_world(async |world| {
        std::fs::write(world.path("known"), KNOWN).unwrap();
        let cases: [(&str, Arc<Tamper>); 4] = [
            ("twice", Arc::new(|_, frame| vec![frame.clone(), frame])),
            ("noise", Arc::new(|at, frame| vec![if at == 0 { vec![0xA5; 200] } else { frame }])),
            ("nothing", Arc::new(|at, frame| vec![if at == 3 { Vec::new() } else { frame }])),
            (
                "another client's answer",
                Arc::new(|at, mut frame| {
                    if at == 4 && frame.starts_with(&[0xFE]) {
                        frame[24..32].copy_from_slice(&77_u64.to_le_bytes());
                    }
                    vec![frame]
                }),
            ),
        ];
        for (name, tamper) in cases {
            let (one, _) = client(world, Options::default(), tamper);
            let read = tokio::time::timeout(Duration::from_secs(20), read(&one)).await;
            match read.expect(name) {
                Ok(data) => assert_eq!(data, KNOWN, "{name}"),
                Err(error) => assert!(
                    matches!(
                        error.cause(),
                        Cause::Protocol(_)
                            | Cause::NotSmb
                            | Cause::TooOld(_)
                            | Cause::Security(_)
                            | Cause::Transport(_)
                            | Cause::Logon(_)
                            | Cause::Unknown
                    ),
                    "{name}: {error}"
                ),
            }
        }
    });
}

/// MS-SMB2 3.2.5.2: a dialect or a cipher that was taken out of the offer on the
/// way is found out by the pre-authentication hash, at the latest.
#[test]
fn protection_is_not_bargained_away() {
    in_world(async |world| {
        // Changes the dialect in the NEGOTIATE response from 3.1.1 to 3.0.2.
        let lower: Arc<Tamper> = Arc::new(|at, mut frame| {
            if at == 0 {
                frame[68..70].copy_from_slice(&0x0302_u16.to_le_bytes());
            }
            vec![frame]
        });
        let (one, _) = client(world, Options::default(), lower);
        let refused = read(&one).await.unwrap_err();
        assert!(matches!(refused.cause(), Cause::Security(_) | Cause::Protocol(_)), "{refused}");
    });
}
