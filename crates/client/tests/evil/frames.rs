//! Frames as they go over a stream, for tests that make their own.
#![allow(unreachable_pub, missing_docs, reason = "tests")]

use std::io::{self, IoSlice};

use frevo_net::transport::Stream;

/// A message behind its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(message);
    frame
}

/// Sends all of it.
pub async fn put(to: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write_vectored(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
