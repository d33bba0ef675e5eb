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
        // The fields are sessopens, sessvcs, opensearch and sizreqbuf.
        w.u32(self.opens.clamp(1, 16_384)).u32(1).u32(2_048).u32(BUFFER_BYTES);
        // initworkitems, maxworkitems and rawworkitems are limits of SMB 1, so they get values at
        // the ends of their allowed ranges.
        w.u32(512).u32(65_535).u32(1);
        // The fields are irpstacksize, maxrawbuflen, sessusers and sessconns.
        w.u32(11).u32(BUFFER_BYTES);
        w.u32(self.users.clamp(1, 2_048)).u32(self.tree_connects.clamp(1, 2_048));
        // The fields are maxpagedmemoryusage and maxnonpagedmemoryusage.
        w.u32(NO_BOUND).u32(NO_BOUND);
        // The fields are enablesoftcompat, enableforcedlogoff (1: sessions end when the logon
        // expires), timesource, acceptdownlevelapis and lmannounce.
        w.u32(0).u32(1).u32(0).u32(0).u32(0);
    }

    /// Writes the fields that SERVER_INFO_503 has besides, up to the text of the domain.
    pub(super) fn encode_rest(&self, w: &mut NdrWriter) {
        // The fields are domain, maxcopyreadlen and maxcopywritelen.
        w.pointer(true).u32(0).u32(0);
        // minkeepsearch, maxkeepsearch, minkeepcomplsearch and maxkeepcomplsearch are times of SMB
        // 1 in seconds.
        w.u32(5).u32(10).u32(1).u32(2);
        // The fields are threadcountadd and numblockthreads (unused), scavtimeout, minrcvqueue and
        // minfreeworkitems.
        w.u32(0).u32(0).u32(30).u32(0).u32(0);
        // The fields are xactmemsize, threadpriority and maxmpxct.
        w.u32(0x0100_0000).u32(0).u32(self.requests.clamp(1, 65_535));
        // The fields are oplockbreakwait and oplockbreakresponsewait.
        let seconds = self.break_seconds.clamp(10, 180);
        w.u32(seconds).u32(seconds);
        // The fields are enableoplocks, enableoplockforceclose, enablefcbopens, enableraw and
        // enablesharednetdrives.
        w.u32(1).u32(0).u32(0).u32(0).u32(0);
        // The fields are minfreeconnections and maxfreeconnections.
        w.u32(2).u32(2);
    }
}
