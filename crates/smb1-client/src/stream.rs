//! Whole messages over a stream.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use frevo_net::transport::Stream;

/// Fills `bytes`.
pub(crate) async fn read_exactly(stream: &Stream, bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.try_read_vectored(&mut [IoSliceMut::new(rest)]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all `parts`, one after the other.
pub(crate) async fn write_all(stream: &Stream, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match stream.try_write_vectored(rest, false) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
