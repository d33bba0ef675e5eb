//! The SMB 3.1.1 server: MS-SMB2 3.3.
