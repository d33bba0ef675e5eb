//! NegotiateFlags (MS-NLMP 2.2.2.5).

frevo_wire::bit_set! {
    /// NegotiateFlags, MS-NLMP 2.2.2.5.
    Flags(u32) {
        /// Names are UTF-16LE.
        UNICODE = 0x0000_0001,
        /// Names are in the client's code page.
        OEM = 0x0000_0002,
        /// The client asks for TargetName.
        REQUEST_TARGET = 0x0000_0004,
        /// Asks for signing keys.
        SIGN = 0x0000_0010,
        /// Asks for sealing keys.
        SEAL = 0x0000_0020,
        /// Connectionless NTLM.
        DATAGRAM = 0x0000_0040,
        /// LAN Manager session key.
        LM_KEY = 0x0000_0080,
        /// NTLM is used; always set.
        NTLM = 0x0000_0200,
        /// The client wants to be anonymous.
        ANONYMOUS = 0x0000_0800,
        /// NEGOTIATE_MESSAGE has a domain name.
        OEM_DOMAIN_SUPPLIED = 0x0000_1000,
        /// NEGOTIATE_MESSAGE has a workstation name.
        OEM_WORKSTATION_SUPPLIED = 0x0000_2000,
        /// A session key exists even without signing.
        ALWAYS_SIGN = 0x0000_8000,
        /// TargetName is a domain.
        TARGET_TYPE_DOMAIN = 0x0001_0000,
        /// TargetName is a server.
        TARGET_TYPE_SERVER = 0x0002_0000,
        /// Session security of version 2: MD5 keys and HMAC-MD5 signatures.
        EXTENDED_SESSIONSECURITY = 0x0008_0000,
        /// Asks for an identify level token.
        IDENTIFY = 0x0010_0000,
        /// Session key from the LM hash.
        REQUEST_NON_NT_SESSION_KEY = 0x0040_0000,
        /// CHALLENGE_MESSAGE has TargetInfo.
        TARGET_INFO = 0x0080_0000,
        /// The Version field is filled in.
        VERSION = 0x0200_0000,
        /// 128-bit sealing keys.
        KEY_128 = 0x2000_0000,
        /// The client chooses the session key and sends it under RC4.
        KEY_EXCH = 0x4000_0000,
        /// 56-bit sealing keys.
        KEY_56 = 0x8000_0000,
    }
}

impl Flags {
    /// The flags that this implementation supports.
    pub const SUPPORTED: Self = Self(
        Self::UNICODE.0
            | Self::REQUEST_TARGET.0
            | Self::SIGN.0
            | Self::SEAL.0
            | Self::NTLM.0
            | Self::ALWAYS_SIGN.0
            | Self::EXTENDED_SESSIONSECURITY.0
            | Self::TARGET_INFO.0
            | Self::VERSION.0
            | Self::KEY_128.0
            | Self::KEY_EXCH.0
            | Self::KEY_56.0,
    );

    /// Returns the flags of a CHALLENGE_MESSAGE to a client that offers `self` (MS-NLMP 3.2.5.1.1).
    pub(crate) fn chosen_by_server(self) -> Self {
        let oem = if self.contains(Self::UNICODE) { Self::EMPTY } else { self & Self::OEM };
        (self & Self::SUPPORTED)
            | oem
            | Self::REQUEST_TARGET
            | Self::NTLM
            | Self::ALWAYS_SIGN
            | Self::TARGET_INFO
            | Self::TARGET_TYPE_SERVER
    }
}
