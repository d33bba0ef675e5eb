//! The limits of the server that SERVER_INFO_502 and SERVER_INFO_503 tell: MS-SRVS 2.2.4.44 and
//! 2.2.4.45. The fields and their ranges are those of SERVER_INFO_599 (2.2.4.46).

use frevo_wire::ndr::NdrWriter;

/// Limits of the server. A limit beyond the range of its field is told as the end of the range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// Files that one session may have open.
    pub opens: u32,
    /// Sessions on one connection.
    pub users: u32,
    /// Tree connects of one session.
    pub tree_connects: u32,
    /// Requests of one connection that are not answered yet.
    pub requests: u32,
    /// Seconds that the break of an oplock may take.
    pub break_seconds: u32,
}

/// Bytes of a buffer: the largest that a field may tell. SMB 2 and 3 negotiate sizes of their own.
const BUFFER_BYTES: u32 = 65_535;
/// The end of a range of memory: as much as there is.
const NO_BOUND: u32 = u32::MAX;

impl ServerLimits {
    /// Writes the fields that SERVER_INFO_502 and SERVER_INFO_503 begin with.
    pub(super) fn encode_common(&self, w: &mut NdrWriter) {
        // Writes sessopens (the limit of Opens, within its range), sessvcs, opensearch and
        // sizreqbuf.
        w.u32(self.opens.clamp(1, 16_384)).u32(1).u32(2_048).u32(BUFFER_BYTES);
        // Writes initworkitems, maxworkitems and rawworkitems: limits of SMB 1, so they get values
        // at the ends of their allowed ranges.
        w.u32(512).u32(65_535).u32(1);
        // Writes irpstacksize and maxrawbuflen, then sessusers and sessconns from the server's
        // limits.
        w.u32(11).u32(BUFFER_BYTES);
        w.u32(self.users.clamp(1, 2_048)).u32(self.tree_connects.clamp(1, 2_048));
        // Writes maxpagedmemoryusage and maxnonpagedmemoryusage, which are not limited.
        w.u32(NO_BOUND).u32(NO_BOUND);
        // Writes enablesoftcompat, enableforcedlogoff (1: sessions end when the logon expires),
        // timesource, acceptdownlevelapis and lmannounce.
        w.u32(0).u32(1).u32(0).u32(0).u32(0);
    }

    /// Writes the fields that SERVER_INFO_503 has besides, up to the text of the domain.
    pub(super) fn encode_rest(&self, w: &mut NdrWriter) {
        // Writes the pointer to domain, and zeros for maxcopyreadlen and maxcopywritelen.
        w.pointer(true).u32(0).u32(0);
        // Writes minkeepsearch, maxkeepsearch, minkeepcomplsearch and maxkeepcomplsearch, which are
        // times of SMB 1 in seconds.
        w.u32(5).u32(10).u32(1).u32(2);
        // Writes threadcountadd and numblockthreads (unused), scavtimeout (30 s), minrcvqueue and
        // minfreeworkitems.
        w.u32(0).u32(0).u32(30).u32(0).u32(0);
        // Writes xactmemsize, threadpriority and maxmpxct, which is the server's limit of requests.
        w.u32(0x0100_0000).u32(0).u32(self.requests.clamp(1, 65_535));
        // Writes oplockbreakwait and oplockbreakresponsewait. In this server a single timeout
        // serves for both.
        let seconds = self.break_seconds.clamp(10, 180);
        w.u32(seconds).u32(seconds);
        // Writes enableoplocks (1), and zeros for enableoplockforceclose, enablefcbopens, enableraw
        // and enablesharednetdrives.
        w.u32(1).u32(0).u32(0).u32(0).u32(0);
        // Writes minfreeconnections and maxfreeconnections.
        w.u32(2).u32(2);
    }
}
