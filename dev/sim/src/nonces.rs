//! Nonces of sealed messages: no session may use one twice with its key.

use std::collections::HashSet;

/// Bytes of a frame up to the end of its transform header: length, header.
const SEALED: usize = 4 + 52;

/// The nonces that were seen, by line, session and direction.
#[derive(Debug, Default)]
pub struct Nonces(HashSet<(usize, u64, usize, [u8; 16])>);

impl Nonces {
    /// Records a nonce; returns false if it was seen before.
    pub fn is_new(&mut self, line: usize, session: u64, direction: usize, nonce: [u8; 16]) -> bool {
        self.0.insert((line, session, direction, nonce))
    }

    /// Forgets the nonces of lines whose server has ended: the next one may number its sessions
    /// alike.
    pub fn forget(&mut self, which: impl Fn(usize) -> bool) {
        self.0.retain(|(line, ..)| !which(*line));
    }
}

/// The frames of one direction of a connection, of which only the beginnings are kept.
#[derive(Debug, Default)]
pub struct Frames {
    head: Vec<u8>,
    /// Bytes of the present frame that are still to come, behind the head.
    rest: usize,
    /// True after a SESSION_SETUP that succeeded: the connection is a channel of a session.
    pub has_logged_on: bool,
}

impl Frames {
    /// Takes the next bytes; calls `sealed` with the SessionId and the nonce of each sealed frame.
    pub fn take(&mut self, mut bytes: &[u8], mut sealed: impl FnMut(u64, [u8; 16])) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let count = self.rest.min(bytes.len());
                self.rest -= count;
                bytes = &bytes[count..];
                continue;
            }
            let wanted = self.wanted() - self.head.len();
            let count = wanted.min(bytes.len());
            self.head.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.head.len() == self.wanted() {
                if let Some((session, nonce)) = self.seal() {
                    sealed(session, nonce);
                }
                self.has_logged_on |= self.is_logon();
                self.rest = self.len() + 4 - self.head.len();
                self.head.clear();
            }
        }
    }

    /// Bytes after the four of the length.
    fn len(&self) -> usize {
        let bytes = self.head.first_chunk().map_or([0; 4], |bytes| *bytes);
        u32::from_be_bytes(bytes) as usize
    }

    /// Length of the head that has to be complete.
    fn wanted(&self) -> usize {
        if self.head.len() < 4 { 4 } else { SEALED.min(self.len() + 4) }
    }

    /// MS-SMB2 2.2.1.2: returns true for a SESSION_SETUP response with STATUS_SUCCESS, which is not
    /// sealed.
    fn is_logon(&self) -> bool {
        let Some(header) = self.head.get(4..SEALED) else { return false };
        header.starts_with(b"\xFESMB") && header[8..12] == [0; 4] && header[12..14] == [1, 0]
    }

    /// MS-SMB2 2.2.41: SessionId and nonce of a sealed frame.
    fn seal(&self) -> Option<(u64, [u8; 16])> {
        let header = self.head.get(4..SEALED).filter(|header| header.starts_with(b"\xFDSMB"))?;
        let nonce = header.get(20..36)?.first_chunk()?;
        let session = header.get(44..52)?.first_chunk()?;
        Some((u64::from_le_bytes(*session), *nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(session: u64, nonce: u8, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len + 4];
        frame[..4].copy_from_slice(&(len as u32).to_be_bytes());
        frame[4..8].copy_from_slice(b"\xFDSMB");
        frame[24..40].fill(nonce);
        frame[48..56].copy_from_slice(&session.to_le_bytes());
        frame
    }

    #[test]
    fn every_sealed_frame_is_seen_however_it_is_split() {
        let mut plain = vec![0; 20];
        plain[3] = 16;
        let all = [frame(1, 7, 52), plain, frame(2, 8, 300), vec![0; 4], frame(1, 7, 90)].concat();
        for part in [1, 3, 50, 1000] {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for bytes in all.chunks(part) {
                frames.take(bytes, |session, nonce| found.push((session, nonce[0])));
            }
            assert_eq!(found, [(1, 7), (2, 8), (1, 7)], "{part}");
        }
    }

    #[test]
    fn a_connection_is_a_channel_after_its_logon_and_not_before() {
        let plain = |status: u8, command: u8| {
            let mut frame = vec![0; 4 + 64 + 9];
            frame[3] = 64 + 9;
            frame[4..8].copy_from_slice(b"\xFESMB");
            (frame[12], frame[16]) = (status, command);
            frame
        };
        let mut frames = Frames::default();
        // A logon ends neither with the answer to NEGOTIATE (0) nor with MORE_PROCESSING_REQUIRED.
        for frame in [plain(0, 0), plain(0x16, 1)] {
            frames.take(&frame, |_, _| {});
            assert!(!frames.has_logged_on);
        }
        frames.take(&plain(0, 1), |_, _| {});
        assert!(frames.has_logged_on);
    }

    #[test]
    fn a_nonce_is_new_once() {
        let mut nonces = Nonces::default();
        assert!(nonces.is_new(0, 1, 0, [1; 16]) && nonces.is_new(0, 1, 1, [1; 16]));
        assert!(!nonces.is_new(0, 1, 0, [1; 16]));
        nonces.forget(|line| line == 0);
        assert!(nonces.is_new(0, 1, 0, [1; 16]));
    }
}
