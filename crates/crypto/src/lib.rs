//! Signing, sealing and key derivation for SMB 3.x, in place, on slices.
