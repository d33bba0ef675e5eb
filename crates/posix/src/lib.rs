//! The Linux file system as a Vfs.
