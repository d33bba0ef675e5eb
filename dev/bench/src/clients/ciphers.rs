//! The cost of sealing and signing on one or more cores, without a network.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use frevo_crypto::{
    Cipher, OpeningKey, SealingKey, Sender, SignatureNonce, SigningAlgorithm, SigningKey,
};
use frevo_proto::protection::transform::{HEADROOM, seal_frame, unseal_frame};
use frevo_wire::header::HEADER_LEN;
use rustix::time::{ClockId, clock_gettime};

use super::page::Figures;

/// Payload of a message, bytes; that of a large READ answer.
const PAYLOAD: usize = 1 << 20;

/// The ciphers by their names in `frevo get --cipher`.
pub(super) const CIPHERS: [(&str, Cipher); 2] =
    [("aes-128-gcm", Cipher::Aes128Gcm), ("aes-128-ccm", Cipher::Aes128Ccm)];

/// A protection of a message, applied and removed.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Seal and unseal.
    Seal(Cipher),
    /// Sign and verify.
    Sign(SigningAlgorithm),
}

const WORKS: [(&str, Work); 7] = [
    ("aes-128-gcm", Work::Seal(Cipher::Aes128Gcm)),
    ("aes-256-gcm", Work::Seal(Cipher::Aes256Gcm)),
    ("aes-128-ccm", Work::Seal(Cipher::Aes128Ccm)),
    ("aes-256-ccm", Work::Seal(Cipher::Aes256Ccm)),
    ("aes-gmac", Work::Sign(SigningAlgorithm::AesGmac)),
    ("aes-cmac", Work::Sign(SigningAlgorithm::AesCmac)),
    ("hmac-sha256", Work::Sign(SigningAlgorithm::HmacSha256)),
];

/// Measures each cipher without a network: throughput by the clock for each number of threads, and
/// core time, which other work on the machine does not disturb.
pub(super) fn figures(rounds: usize, threads: &[usize], time: Duration) -> Result<Vec<Figures>> {
    let (mut by_clock, mut by_core) = (Vec::new(), Vec::new());
    for (name, work) in WORKS {
        for &threads in threads {
            let rates: Result<Vec<Rate>> = (0..rounds).map(|_| rate(work, threads, time)).collect();
            let (clock, core) = rates?.into_iter().map(|rate| (rate.clock, rate.core)).unzip();
            by_clock.push((format!("{name}, {threads} threads"), clock));
            if threads == 1 {
                by_core.push((name.to_owned(), core));
            }
        }
    }
    let figures = |title: &str, rows| Figures { title: title.to_owned(), rows, least: None };
    Ok(vec![
        figures("seal and open, or sign and verify, 1 MiB in memory, MB/s", by_clock),
        figures("the same, MB for a second of one core", by_core),
    ])
}

/// The rates of a protection, MB per second.
struct Rate {
    clock: f64,
    core: f64,
}

fn rate(work: Work, workers: usize, time: Duration) -> Result<Rate> {
    let sealing = match work {
        Work::Seal(cipher) => Some(SealingKey::new(cipher, &[7; 32])),
        Work::Sign(_) => None,
    };
    let start = Instant::now();
    let done: Result<Vec<(u64, f64)>> = std::thread::scope(|scope| {
        let one = || {
            let begun = core_seconds();
            let bytes = match (work, &sealing) {
                (Work::Seal(cipher), Some(key)) => seal_and_open(cipher, key, start + time)?,
                (Work::Sign(algorithm), _) => sign_and_verify(algorithm, start + time)?,
                (Work::Seal(_), None) => 0,
            };
            Ok((bytes, core_seconds() - begun))
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|t| t.join().ok().context("a worker thread panicked")?).collect()
    });
    let done = done?;
    let bytes = done.iter().map(|(bytes, _)| *bytes).sum::<u64>() as f64 / 1e6;
    let core = done.iter().map(|(_, seconds)| *seconds).sum::<f64>();
    Ok(Rate { clock: bytes / start.elapsed().as_secs_f64(), core: bytes / core })
}

/// Returns the core time of this thread, seconds.
pub(super) fn core_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn sign_and_verify(algorithm: SigningAlgorithm, until: Instant) -> Result<u64> {
    let key = SigningKey::new(algorithm, &[7; 16]);
    let mut message = vec![0_u8; HEADER_LEN + PAYLOAD];
    let (mut done, mut message_id) = (0, 0);
    while Instant::now() < until {
        message_id += 1;
        let nonce = SignatureNonce { message_id, sender: Sender::Server, is_cancel: false };
        key.sign(&mut message, nonce).ok().context("signing failed")?;
        ensure!(key.verify(&mut message, nonce), "the signature is wrong");
        done += PAYLOAD as u64;
    }
    Ok(done)
}

fn seal_and_open(cipher: Cipher, sealing: &SealingKey, until: Instant) -> Result<u64> {
    let opening = OpeningKey::new(cipher, &[7; 32]);
    let mut frame = vec![0_u8; HEADROOM + HEADER_LEN + PAYLOAD];
    let mut done = 0;
    while Instant::now() < until {
        let header = frame
            .get_mut(HEADROOM..HEADROOM + HEADER_LEN)
            .context("the frame is too short for a header")?;
        header.fill(0);
        // MS-SMB2 2.2.1.2: the header begins with the ProtocolId (4 bytes) and the StructureSize
        // (64).
        header[..6].copy_from_slice(b"\xfeSMB\x40\0");
        seal_frame(&mut frame, sealing, 0).ok().context("sealing failed")?;
        let sealed = frame.get_mut(4..).context("the frame is empty")?;
        unseal_frame(sealed, Sender::Client, |_| Some(&opening))
            .ok()
            .context("unsealing failed")?;
        done += PAYLOAD as u64;
    }
    Ok(done)
}
