//! The compression that a connection has negotiated: MS-SMB2 2.2.3.1.3, 3.2.5.2 and 3.3.5.4.

use alloc::vec::Vec;

use frevo_wire::compression::CompressionAlgorithm;
use frevo_wire::negotiate_context::{CompressionCapabilityFlags, NegotiateContext};

use super::Codec;

/// The number of algorithms.
const ALGORITHMS: usize = 5;

/// Values from which on an algorithm in an answer is refused, MS-SMB2 3.2.5.2.
const ANSWERED_END: u16 = 32;

/// Connection.CompressionIds and Connection.SupportsChainedCompression of a connection that
/// compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// In the order of the peer; NONE behind the last one.
    ids: [CompressionAlgorithm; ALGORITHMS],
    is_chained: bool,
}

impl Compression {
    /// All algorithms, in the order in which a client prefers them, and chains.
    pub const ALL: Self = Self {
        ids: [
            CompressionAlgorithm::PATTERN_V1,
            CompressionAlgorithm::LZ4,
            CompressionAlgorithm::LZ77,
            CompressionAlgorithm::LZ77_HUFFMAN,
            CompressionAlgorithm::LZNT1,
        ],
        is_chained: true,
    };

    /// Returns the algorithms of a request that this server has too, in the order of the request:
    /// MS-SMB2 3.3.5.4. None if there are none.
    pub fn common(
        flags: CompressionCapabilityFlags,
        offered: &[CompressionAlgorithm],
    ) -> Option<Self> {
        let mut ids = [CompressionAlgorithm::NONE; ALGORITHMS];
        let mut count = 0usize;
        for id in offered {
            if Self::ALL.ids.contains(id)
                && !ids.contains(id)
                && let Some(place) = ids.get_mut(count)
            {
                *place = *id;
                count = count.saturating_add(1);
            }
        }
        let is_chained = flags.contains(CompressionCapabilityFlags::CHAINED);
        (count > 0).then_some(Self { ids, is_chained })
    }

    /// Returns the algorithms that a server has chosen among [all](Self::ALL); None if it compresses
    /// nothing.
    ///
    /// # Errors
    /// The rule of MS-SMB2 3.2.5.2 that the answer breaks.
    pub fn answered(
        flags: CompressionCapabilityFlags,
        chosen: &[CompressionAlgorithm],
    ) -> Result<Option<Self>, &'static str> {
        if chosen.is_empty() {
            return Err("it chose no compression algorithm, not even that of no compression");
        }
        if chosen.iter().any(|id| id.0 >= ANSWERED_END) {
            return Err("it chose an unknown compression algorithm");
        }
        let is_again = |(at, id)| chosen.iter().take(at).any(|earlier| earlier == id);
        if chosen.iter().enumerate().any(is_again) {
            return Err("it chose a compression algorithm twice");
        }
        if *chosen == [CompressionAlgorithm::NONE] {
            return Ok(None);
        }
        if chosen.iter().any(|id| !Self::ALL.ids.contains(id)) {
            return Err("it chose a compression algorithm that was not offered");
        }
        Ok(Self::common(flags, chosen))
    }

    /// Returns the context for NEGOTIATE that has these algorithms.
    pub fn context(&self) -> NegotiateContext<'static> {
        let flags = match self.is_chained {
            true => CompressionCapabilityFlags::CHAINED,
            false => CompressionCapabilityFlags::EMPTY,
        };
        NegotiateContext::Compression { flags, algorithms: self.ids().collect::<Vec<_>>() }
    }

    /// Returns the context of an answer that compresses nothing.
    pub fn none(flags: CompressionCapabilityFlags) -> NegotiateContext<'static> {
        let flags = flags & CompressionCapabilityFlags::CHAINED;
        NegotiateContext::Compression { flags, algorithms: [CompressionAlgorithm::NONE].to_vec() }
    }

    /// Connection.CompressionIds
    pub fn ids(&self) -> impl Iterator<Item = CompressionAlgorithm> {
        self.ids.into_iter().take_while(|id| *id != CompressionAlgorithm::NONE)
    }

    /// Connection.SupportsChainedCompression
    pub const fn is_chained(&self) -> bool {
        self.is_chained
    }

    /// True for an algorithm that was negotiated.
    pub fn has(&self, id: CompressionAlgorithm) -> bool {
        self.ids().any(|own| own == id)
    }

    /// Returns the codec for what is sent: the fastest one.
    pub fn codec(&self) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| self.has(codec.id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: CompressionAlgorithm = CompressionAlgorithm::NONE;
    const LZNT1: CompressionAlgorithm = CompressionAlgorithm::LZNT1;
    const LZ77: CompressionAlgorithm = CompressionAlgorithm::LZ77;
    const PATTERN: CompressionAlgorithm = CompressionAlgorithm::PATTERN_V1;
    const PLAIN: CompressionCapabilityFlags = CompressionCapabilityFlags::EMPTY;
    const CHAINED: CompressionCapabilityFlags = CompressionCapabilityFlags::CHAINED;

    #[test]
    fn a_server_takes_what_it_has_in_the_order_of_the_client() {
        let offered = [CompressionAlgorithm(77), LZ77, NONE, PATTERN, LZ77, LZNT1];
        let common = Compression::common(CHAINED, &offered).unwrap();
        assert_eq!(common.ids().collect::<Vec<_>>(), [LZ77, PATTERN, LZNT1]);
        assert!(common.is_chained() && common.has(PATTERN) && !common.has(NONE));
        assert!(!common.has(CompressionAlgorithm::LZ4));
        assert_eq!(common.codec(), Some(Codec::Lz77));
        let NegotiateContext::Compression { flags, algorithms } = common.context() else {
            panic!("another context");
        };
        assert_eq!((flags, &*algorithms), (CHAINED, &[LZ77, PATTERN, LZNT1][..]));
        assert!(!Compression::common(PLAIN, &[LZ77]).unwrap().is_chained());
        assert_eq!(Compression::common(CHAINED, &[PATTERN]).unwrap().codec(), None);
        for nothing in [&[][..], &[NONE], &[CompressionAlgorithm(6)]] {
            assert_eq!(Compression::common(CHAINED, nothing), None);
        }
    }

    #[test]
    fn a_client_believes_only_what_it_offered() {
        let answered = |chosen: &[CompressionAlgorithm]| Compression::answered(PLAIN, chosen);
        assert_eq!(answered(&[NONE]), Ok(None));
        let chosen = answered(&[LZNT1, LZ77]).unwrap().unwrap();
        assert_eq!(chosen.ids().collect::<Vec<_>>(), [LZNT1, LZ77]);
        for bad in [
            &[][..],
            &[LZ77, LZ77],
            &[NONE, LZ77],
            &[CompressionAlgorithm(6)],
            &[CompressionAlgorithm(32), LZ77],
        ] {
            assert!(answered(bad).is_err(), "{bad:?}");
        }
    }
}
