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
        // sessopens, sessvcs, opensearch, sizreqbuf.
        w.u32(self.opens.clamp(1, 16_384)).u32(1).u32(2_048).u32(BUFFER_BYTES);
        // initworkitems, maxworkitems, rawworkitems: limits of SMB 1, set to the ends of their
        // ranges.
        w.u32(512).u32(65_535).u32(1);
        // irpstacksize, maxrawbuflen, sessusers, sessconns.
        w.u32(11).u32(BUFFER_BYTES);
        w.u32(self.users.clamp(1, 2_048)).u32(self.tree_connects.clamp(1, 2_048));
        // maxpagedmemoryusage, maxnonpagedmemoryusage.
        w.u32(NO_BOUND).u32(NO_BOUND);
        // enablesoftcompat, enableforcedlogoff, timesource, acceptdownlevelapis, lmannounce: a
        // session ends when its credentials end.
        w.u32(0).u32(1).u32(0).u32(0).u32(0);
    }

    /// Writes the fields that SERVER_INFO_503 has besides, up to the text of the domain.
    pub(super) fn encode_rest(&self, w: &mut NdrWriter) {
        // domain, maxcopyreadlen, maxcopywritelen.
        w.pointer(true).u32(0).u32(0);
        // minkeepsearch, maxkeepsearch, minkeepcomplsearch, maxkeepcomplsearch: seconds, of SMB 1.
        w.u32(5).u32(10).u32(1).u32(2);
        // threadcountadd and numblockthreads are unused; scavtimeout, minrcvqueue,
        // minfreeworkitems.
        w.u32(0).u32(0).u32(30).u32(0).u32(0);
        // xactmemsize, threadpriority, maxmpxct.
        w.u32(0x0100_0000).u32(0).u32(self.requests.clamp(1, 65_535));
        // oplockbreakwait, oplockbreakresponsewait.
        let seconds = self.break_seconds.clamp(10, 180);
        w.u32(seconds).u32(seconds);
        // enableoplocks, enableoplockforceclose, enablefcbopens, enableraw,
        // enablesharednetdrives.
        w.u32(1).u32(0).u32(0).u32(0).u32(0);
        // minfreeconnections, maxfreeconnections.
        w.u32(2).u32(2);
    }
}
