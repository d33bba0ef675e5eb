//! Several messages at once: one direction at a time, on one core.

use anyhow::{Result, ensure};
use frevo_crypto::{
    Cipher, Nonce, OpeningKey, SealingKey, Sender, SignatureNonce, SigningAlgorithm, SigningKey,
    ToOpen, ToSeal,
};

use super::ciphers::core_seconds;
use super::page::Figures;

/// Lengths of messages: those of a WRITE of 64 KiB and of 1 MiB.
const LENGTHS: [(&str, usize); 2] = [("64 KiB", (64 << 10) + 112), ("1 MiB", (1 << 20) + 112)];
/// Messages at once.
const COUNTS: [usize; 5] = [1, 2, 4, 6, 8];
/// Core time of one figure, seconds.
const FIGURE: f64 = 0.02;

/// Bytes that were handled and the core time that it took, for both directions.
#[derive(Default)]
struct Taken {
    bytes: usize,
    there: f64,
    back: f64,
}

/// Measures CCM and CMAC for each number of messages.
pub(super) fn figures(rounds: usize) -> Result<Vec<Figures>> {
    let mut all = Vec::new();
    for (what, back, cipher) in [
        ("seal aes-128-ccm", "open aes-128-ccm", Some(Cipher::Aes128Ccm)),
        ("seal aes-256-ccm", "open aes-256-ccm", Some(Cipher::Aes256Ccm)),
        ("sign aes-cmac", "verify aes-cmac", None),
    ] {
        let (mut forth_rows, mut back_rows) = (Vec::new(), Vec::new());
        for (label, len) in LENGTHS {
            for count in COUNTS {
                let (mut forth_rates, mut back_rates) = (Vec::new(), Vec::new());
                for _ in 0..rounds {
                    let taken = match cipher {
                        Some(cipher) => seal_and_open(cipher, count, len)?,
                        None => sign_and_verify(count, len)?,
                    };
                    forth_rates.push(taken.bytes as f64 / 1e6 / taken.there);
                    back_rates.push(taken.bytes as f64 / 1e6 / taken.back);
                }
                forth_rows.push((format!("{count} of {label}"), forth_rates));
                back_rows.push((format!("{count} of {label}"), back_rates));
            }
        }
        for (title, rows) in [(what, forth_rows), (back, back_rows)] {
            let title = format!("{title}, messages at a time, MB for a second of one core");
            all.push(Figures { title, rows, least: None });
        }
    }
    Ok(all)
}

fn seal_and_open(cipher: Cipher, count: usize, len: usize) -> Result<Taken> {
    let (sealing, opening) = (SealingKey::new(cipher, &[7; 32]), OpeningKey::new(cipher, &[7; 32]));
    let mut messages = vec![vec![1_u8; len]; count];
    let aad = [5; 32];
    let mut taken = Taken::default();
    while taken.there + taken.back < FIGURE {
        let nonces: Vec<Nonce> =
            (0..count).map(|_| sealing.next_nonce()).collect::<Result<_, _>>()?;
        let fields: Vec<[u8; 16]> = nonces.iter().map(|nonce| *nonce.field()).collect();
        let begun = core_seconds();
        let to_seal = messages.iter_mut().zip(nonces);
        let to_seal = to_seal.map(|(in_out, nonce)| ToSeal { nonce, aad: &aad, in_out });
        let tags = sealing.seal_all(to_seal.collect());
        let sealed = core_seconds();
        let to_open = messages.iter_mut().zip(&fields).zip(&tags);
        let to_open =
            to_open.map(|((in_out, nonce), tag)| ToOpen { nonce, aad: &aad, in_out, tag });
        let opened = opening.open_all(to_open.collect());
        taken.back += core_seconds() - sealed;
        taken.there += sealed - begun;
        taken.bytes += count * len;
        ensure!(opened.iter().all(Result::is_ok), "a tag is wrong");
    }
    Ok(taken)
}

fn sign_and_verify(count: usize, len: usize) -> Result<Taken> {
    let key = SigningKey::new(SigningAlgorithm::AesCmac, &[7; 16]);
    let mut messages = vec![vec![1_u8; len]; count];
    let nonce = SignatureNonce { message_id: 1, sender: Sender::Server, is_cancel: false };
    let mut taken = Taken::default();
    while taken.there + taken.back < FIGURE {
        let mut all: Vec<(&mut [u8], SignatureNonce)> =
            messages.iter_mut().map(|message| (&mut **message, nonce)).collect();
        let begun = core_seconds();
        ensure!(key.sign_all(&mut all).is_ok(), "a message has no header");
        let signed = core_seconds();
        let verified = key.verify_all(&mut all);
        taken.back += core_seconds() - signed;
        taken.there += signed - begun;
        taken.bytes += count * len;
        ensure!(verified.iter().all(|is_right| *is_right), "a signature is wrong");
    }
    Ok(taken)
}
