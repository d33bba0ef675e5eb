//! Transports, buffer pool, file I/O roads. Knows no SMB word beyond framing.
