//! What sealing costs and how it spreads over cores, without a network.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use frevo_crypto::{Cipher, OpeningKey, SealingKey, Sender};
use frevo_proto::transform::{HEADROOM, seal_frame, unseal_frame};
use frevo_wire::header::HEADER_LEN;

/// Payload of a message, as of a READ answer.
const PAYLOAD: usize = 1 << 20;

/// By the names that `frevo get --cipher` has.
pub(super) const CIPHERS: [(&str, Cipher); 2] =
    [("aes-128-gcm", Cipher::Aes128Gcm), ("aes-128-ccm", Cipher::Aes128Ccm)];

/// Bytes a second that `workers` threads seal and open again.
pub(super) fn rate(cipher: Cipher, workers: usize, time: Duration) -> Result<f64> {
    let sealing = SealingKey::new(cipher, &[7; 32]);
    let start = Instant::now();
    let done: Result<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|_| scope.spawn(|| seal_and_open(cipher, &sealing, start + time)))
            .collect();
        threads.into_iter().map(|t| t.join().ok().context("a worker died")?).sum()
    });
    Ok(done? as f64 / start.elapsed().as_secs_f64())
}

fn seal_and_open(cipher: Cipher, sealing: &SealingKey, until: Instant) -> Result<u64> {
    let opening = OpeningKey::new(cipher, &[7; 32]);
    let mut frame = vec![0_u8; HEADROOM + HEADER_LEN + PAYLOAD];
    let mut done = 0;
    while Instant::now() < until {
        let header = frame.get_mut(HEADROOM..HEADROOM + HEADER_LEN).context("a header's place")?;
        header.fill(0);
        // ProtocolId and StructureSize, MS-SMB2 2.2.1.2.
        header[..6].copy_from_slice(b"\xfeSMB\x40\0");
        seal_frame(&mut frame, sealing, 0).ok().context("not sealed")?;
        let sealed = frame.get_mut(4..).context("a frame")?;
        unseal_frame(sealed, Sender::Client, false, |_| Some(&opening))
            .ok()
            .context("not opened")?;
        done += PAYLOAD as u64;
    }
    Ok(done)
}
