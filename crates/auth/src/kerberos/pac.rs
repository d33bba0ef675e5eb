//! The privilege attribute certificate of a ticket: MS-PAC.
//!
//! No part of it is used before the server's signature has been checked. The KDC's signatures can
//! be checked by KDCs only.

mod logon_info;
mod upn;

use super::message::authorization_data;
use super::{Fault, Key, KeyUsage, Principal};
use crate::hash::same;
use crate::limits::MAX_PAC_BUFFER_COUNT;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use frevo_wire::codec::{Malformed, Parsed, Reader};
use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::{WireName, fold_name};

pub use logon_info::{LogonInfo, UserAccountControl};

/// AD-IF-RELEVANT and AD-WIN2K-PAC, RFC 4120 section 7.5.4.
pub(super) const AD_IF_RELEVANT: i32 = 1;
const AD_WIN2K_PAC: i32 = 128;

frevo_wire::open_enum! {
    /// ulType of a PAC_INFO_BUFFER, MS-PAC 2.4.
    BufferType(u32) {
        /// KERB_VALIDATION_INFO: the facts about the user.
        LOGON_INFO = 1,
        /// The signature by the key of the server.
        SERVER_CHECKSUM = 6,
        /// The signature by the key of the KDC.
        KDC_CHECKSUM = 7,
        /// Client name and ticket information
        CLIENT_INFO = 10,
        /// UPN and DNS information
        UPN_DNS_INFO = 12,
    }
}

/// Returns the PAC of a ticket's authorization data: the first one, in an AD-IF-RELEVANT element.
pub(super) fn find(data: &[u8]) -> Parsed<Option<Vec<u8>>> {
    for (kind, contents) in authorization_data(data)? {
        if kind != AD_IF_RELEVANT {
            continue;
        }
        let inner = authorization_data(contents)?;
        if let Some((_, pac)) = inner.into_iter().find(|(kind, _)| *kind == AD_WIN2K_PAC) {
            return Ok(Some(pac.to_vec()));
        }
    }
    Ok(None)
}

/// A PAC whose layout is right: PACTYPE, MS-PAC 2.3.
#[derive(Debug)]
pub(super) struct Pac<'a> {
    bytes: &'a [u8],
    buffers: Vec<(BufferType, Range<usize>)>,
}

impl<'a> Pac<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "PAC";
        let fault = Malformed::new(WHAT);
        let mut reader = Reader::new(bytes);
        let count = usize::try_from(reader.u32(WHAT)?).map_err(|_| fault)?;
        if count > MAX_PAC_BUFFER_COUNT || reader.u32("PAC version")? != 0 {
            return Err(fault);
        }
        let mut buffers = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = BufferType(reader.u32(WHAT)?);
            let length = usize::try_from(reader.u32(WHAT)?).map_err(|_| fault)?;
            let start = usize::try_from(reader.u64(WHAT)?).map_err(|_| fault)?;
            let end = start.checked_add(length).filter(|end| *end <= bytes.len());
            buffers.push((kind, start..end.ok_or(fault)?));
        }
        let header = reader.position();
        // MS-PAC 2.4: the buffers follow the array of headers and begin at multiples of eight
        // bytes.
        let is_placed =
            |range: &Range<usize>| range.start >= header && range.start.is_multiple_of(8);
        if !buffers.iter().all(|(_, range)| is_placed(range)) {
            return Err(fault);
        }
        Ok(Self { bytes, buffers })
    }

    /// Returns the place of the first buffer of a type; MS-PAC 2.4 says to ignore further ones.
    fn place(&self, kind: BufferType) -> Option<Range<usize>> {
        self.buffers.iter().find(|(known, _)| *known == kind).map(|(_, range)| range.clone())
    }

    fn buffer(&self, kind: BufferType) -> Option<&'a [u8]> {
        self.bytes.get(self.place(kind)?)
    }

    /// Checks the server's signature, MS-PAC 2.8.4: of all of the PAC, with zeros in place of both
    /// signatures, by the key that the ticket is encrypted with.
    pub(super) fn verify(&self, key: &Key) -> Result<(), Fault> {
        let (server, cleared) = self.cleared()?;
        // MS-PAC 2.8.4: the signature type must belong to the key. Old controllers use HMAC-MD5,
        // which belongs to RC4 only.
        if server.kind != key.etype().checksum_type() {
            return Err(Fault::PacSignatureType(server.kind));
        }
        let expected = self.bytes.get(server.place).unwrap_or_default();
        if !same(&key.checksum(KeyUsage::PAC, &cleared), expected) {
            return Err(Fault::PacAltered);
        }
        Ok(())
    }

    /// Returns the server's signature, and the PAC with zeros in place of both.
    fn cleared(&self) -> Result<(Signature, Vec<u8>), Fault> {
        let server = self.signature(BufferType::SERVER_CHECKSUM, "server signature")?;
        let kdc = self.signature(BufferType::KDC_CHECKSUM, "KDC signature")?;
        let mut cleared = self.bytes.to_vec();
        for place in [&server.place, &kdc.place] {
            cleared.get_mut(place.clone()).unwrap_or_default().fill(0);
        }
        Ok((server, cleared))
    }

    /// Returns the PAC with the signature of a key, wherever its signatures lie.
    #[cfg(any(test, feature = "forge"))]
    pub(super) fn signed(&self, key: &Key) -> Result<Vec<u8>, Fault> {
        let (server, cleared) = self.cleared()?;
        let signature = key.checksum(KeyUsage::PAC, &cleared);
        let mut signed = self.bytes.to_vec();
        let place = signed.get_mut(server.place).unwrap_or_default();
        place.iter_mut().zip(&signature).for_each(|(to, from)| *to = *from);
        Ok(signed)
    }

    /// Reads PAC_SIGNATURE_DATA, MS-PAC 2.8. A read-only controller adds its number.
    fn signature(&self, kind: BufferType, what: &'static str) -> Result<Signature, Fault> {
        let place = self.place(kind).ok_or(Fault::MissingPacPart(what))?;
        let bytes = self.bytes.get(place.clone()).unwrap_or_default();
        let number = Reader::new(bytes).u32(what)?.cast_signed();
        let length = signature_len(number).ok_or(Fault::PacSignatureType(number))?;
        let start = place.start.saturating_add(4);
        let end = start.saturating_add(length);
        match place.end.checked_sub(end) {
            Some(0 | 2) => Ok(Signature { kind: number, place: start..end }),
            _ => Err(Fault::Malformed(what)),
        }
    }

    /// Checks that the PAC is of the ticket's client and logon: PAC_CLIENT_INFO, MS-PAC 2.7.
    pub(super) fn check_client(&self, client: &Principal, auth_time: i64) -> Result<(), Fault> {
        const WHAT: &str = "client information";
        let info = self.buffer(BufferType::CLIENT_INFO).ok_or(Fault::MissingPacPart(WHAT))?;
        let mut reader = Reader::new(info);
        let time = FileTime(reader.u64(WHAT)?);
        let length = usize::from(reader.u16(WHAT)?);
        let name = WireName::new(reader.take(length, WHAT)?)?.decode()?;
        // MS-KILE 3.1.5.7: the client's name in the PAC must equal that in the ticket, without
        // regard to case.
        let expected = fold_name(&client.components.join("/"));
        let name = fold_name(&name);
        let with_realm = || alloc::format!("{expected}@{}", fold_name(&client.realm));
        let is_client = name == expected || name == with_realm();
        if !is_client || time != FileTime::from_unix(auth_time, 0) {
            return Err(Fault::PacOfAnother);
        }
        Ok(())
    }

    /// Reads what the PAC says about the user. None if it says nothing, as the PAC of a KDC that is
    /// no domain controller.
    pub(super) fn logon_info(&self) -> Result<Option<LogonInfo>, Fault> {
        let Some(info) = self.buffer(BufferType::LOGON_INFO) else { return Ok(None) };
        let mut info = LogonInfo::parse(info)?;
        if let Some(names) = self.buffer(BufferType::UPN_DNS_INFO) {
            let names = upn::Names::parse(names)?;
            (info.upn, info.dns_domain) = (some(names.upn), some(names.dns_domain));
        }
        Ok(Some(info))
    }
}

struct Signature {
    kind: i32,
    place: Range<usize>,
}

/// Returns the length of a signature: MS-PAC 2.8, and RFC 8009 as MIT's KDC has it.
const fn signature_len(kind: i32) -> Option<usize> {
    Some(match kind {
        15 | 16 => 12,
        -138 | 19 => 16,
        20 => 24,
        _ => return None,
    })
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pac_has_so_many_buffers() {
        for (count, fits) in [
            (0, true),
            (MAX_PAC_BUFFER_COUNT - 1, true),
            (MAX_PAC_BUFFER_COUNT, true),
            (MAX_PAC_BUFFER_COUNT + 1, false),
        ] {
            let end = 8 + 16 * count as u64;
            let mut pac = [count as u32, 0].map(u32::to_le_bytes).concat();
            for _ in 0..count {
                pac.extend([99_u32, 0].map(u32::to_le_bytes).concat());
                pac.extend(end.to_le_bytes());
            }
            assert_eq!(Pac::parse(&pac).is_ok(), fits, "{count}");
        }
    }

    #[test]
    fn buffers_lie_behind_the_array_on_boundaries_of_eight_bytes() {
        let of = |offset: u64, length: u32| {
            let mut pac = [1_u32, 0, 99, length].map(u32::to_le_bytes).concat();
            pac.extend(offset.to_le_bytes());
            pac.resize(64, 0);
            Pac::parse(&pac).is_ok()
        };
        assert!(of(24, 40) && of(64, 0) && of(32, 0));
        for (offset, length) in
            [(16, 0), (28, 4), (24, 41), (72, 0), (u64::MAX - 7, 8), (24, u32::MAX)]
        {
            assert!(!of(offset, length), "{offset} {length}");
        }
        assert!(Pac::parse(&[0, 0, 0, 0, 1, 0, 0, 0]).is_err());
    }
}
