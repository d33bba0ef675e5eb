//! SPNEGO and NTLMv2 for SMB, both roles: token in, token out.
