//! The splitting of a byte stream into frames.

use std::io::IoSlice;
use std::net::SocketAddr;

use frevo_net::limits::FRAME_BYTES_MAX;
use frevo_net::transport::Stream;
use frevo_net::{FrameReader, memory};

use crate::choices::Choices;

/// Bytes that the transport holds.
const PIPE: usize = 1 << 16;

/// Reads frames: the first byte selects the limit, each further one the size of the next part. The
/// result must equal that of a second, simple reader.
pub fn frame_reader(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = [0, 1, 256, 66_000, 1 << 20, FRAME_BYTES_MAX, u32::MAX];
    let limit = limits[usize::from(choices.u8()) % limits.len()];
    let mut pieces = Vec::new();
    while !choices.is_over() {
        let length = usize::from(choices.u8());
        // Lengths above 0x80 are multiplied, so that a long input has long frames.
        let length = if length >= 0x80 { (length - 0x80) << 9 } else { length };
        pieces.push(choices.take(length));
    }
    let bytes = pieces.concat();
    let (expected, fault) = plainly(&bytes, limit.min(FRAME_BYTES_MAX));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let here = SocketAddr::from(([127, 0, 0, 1], 445));
        let (ours, theirs) = memory::pair(PIPE, [here, here]);
        let (ours, theirs) = (Stream::Memory(ours), Stream::Memory(theirs));
        let mut reader = FrameReader::new(limit);
        let writes = async {
            for piece in pieces {
                if !write(&ours, piece).await {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(ours);
        };
        let reads = async {
            for frame in expected {
                let read = reader.next(&theirs).await.expect("a frame").expect("no end yet");
                assert_eq!(&read[..], frame, "a frame as it was sent");
            }
            match reader.next(&theirs).await {
                Ok(None) => assert!(!fault, "an orderly end"),
                Ok(Some(frame)) => panic!("{} bytes that nobody sent", frame.len()),
                Err(_) => assert!(fault, "the bytes are in order"),
            }
            // The peer may still be writing, but the reader stops here. Dropping its end makes the
            // writes fail.
            drop(theirs);
        };
        tokio::join!(writes, reads);
    });
}

async fn write(stream: &Stream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match stream.try_write_vectored(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if stream.writable().await.is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// The frames in `bytes`, and whether what follows them is none.
fn plainly(mut bytes: &[u8], limit: u32) -> (Vec<&[u8]>, bool) {
    let mut frames = Vec::new();
    while let Some((prefix, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*prefix);
        if prefix[0] != 0 || length > limit || rest.len() < length as usize {
            return (frames, true);
        }
        let (frame, rest) = rest.split_at(length as usize);
        frames.push(frame);
        bytes = rest;
    }
    (frames, !bytes.is_empty())
}
