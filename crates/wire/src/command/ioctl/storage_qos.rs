//! FSCTL_STORAGE_QOS_CONTROL, MS-SQOS 2.2: a logical flow, its policy and its state.

use crate::codec::{Parsed, Reader, Writer};
use crate::dtyp::Guid;
use crate::{bit_set, open_enum};

/// STORAGE_QOS_INITIATOR_NAME_SIZE, bytes.
pub const INITIATOR_NAME_SIZE: u16 = 0x200;
/// The lowest offset that a name may have, MS-SQOS 3.2.5.1.2.
const NAMES_FROM: u16 = 104;

open_enum! {
    /// ProtocolVersion, MS-SQOS 1.7.
    QosDialect(u16) {
        /// Dialect 1.0.
        V1_0 = 0x0100,
        /// Dialect 1.1, which knows bandwidths.
        V1_1 = 0x0101,
    }
}

impl QosDialect {
    /// Parses the dialect of an input buffer, which may be longer or shorter than is known here.
    pub fn of(input: &[u8]) -> Parsed<Self> {
        Reader::new(input).u16("storage QoS ProtocolVersion").map(Self)
    }
}

bit_set! {
    /// Options of a request; the names are without STORAGE_QOS_CONTROL_FLAG_.
    QosOptions(u32) {
        /// The Open is to be of the logical flow, or of none.
        SET_LOGICAL_FLOW_ID = 0x0000_0001,
        /// The flow gets the policy of the request.
        SET_POLICY = 0x0000_0002,
        /// Both, unless the Open is of a flow.
        PROBE_POLICY = 0x0000_0004,
        /// The state is to be answered.
        GET_STATUS = 0x0000_0008,
        /// The counters are valid.
        UPDATE_COUNTERS = 0x0000_0010,
    }
}

open_enum! {
    /// The state of a logical flow, MS-SQOS 2.2.2.1.
    FlowStatus(u32) {
        /// StorageQoSStatusOk
        OK = 0x0000_0000,
        /// StorageQoSStatusInsufficientThroughput
        INSUFFICIENT_THROUGHPUT = 0x0000_0001,
        /// StorageQoSUnknownPolicyId
        UNKNOWN_POLICY_ID = 0x0000_0002,
        /// StorageQoSStatusConfigurationMismatch: a parameter of the policy is not supported.
        CONFIGURATION_MISMATCH = 0x0000_0004,
        /// StorageQoSStatusNotAvailable
        NOT_AVAILABLE = 0x0000_0005,
    }
}

/// The place of a name in a request, bytes from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamePlace {
    /// Offset of the name.
    pub offset: u16,
    /// Its length.
    pub length: u16,
}

impl NamePlace {
    fn parse(r: &mut Reader<'_>, what: &'static str) -> Parsed<Self> {
        Ok(Self { offset: r.u16(what)?, length: r.u16(what)? })
    }

    /// True if a request of `size` bytes may have its name there, MS-SQOS 3.2.5.1.2.
    pub fn is_within(self, size: usize) -> bool {
        let end = usize::from(self.offset).saturating_add(usize::from(self.length));
        self.length <= INITIATOR_NAME_SIZE
            && (self.length == 0 || self.offset >= NAMES_FROM)
            && end <= size
    }
}

/// STORAGE_QOS_CONTROL_REQUEST, MS-SQOS 2.2.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// ProtocolVersion
    pub dialect: QosDialect,
    /// Options
    pub options: QosOptions,
    /// LogicalFlowID
    pub logical_flow: Guid,
    /// PolicyID; zeros for none.
    pub policy: Guid,
    /// InitiatorID
    pub initiator: Guid,
    /// Limit, in normalized operations a second; 0 for none.
    pub limit: u64,
    /// Reservation, in normalized operations a second.
    pub reservation: u64,
    /// The place of InitiatorName.
    pub initiator_name: NamePlace,
    /// The place of InitiatorNodeName.
    pub node_name: NamePlace,
    /// IoCountIncrement
    pub io_count: u64,
    /// NormalizedIoCountIncrement
    pub normalized_io_count: u64,
    /// LatencyIncrement, in units of 100 nanoseconds.
    pub latency: u64,
    /// LowerLatencyIncrement, in units of 100 nanoseconds.
    pub lower_latency: u64,
    /// BandwidthLimit, in kilobytes a second; 0 for none, and in dialect 1.0.
    pub bandwidth_limit: u64,
    /// KilobyteCountIncrement; 0 in dialect 1.0.
    pub kilobyte_count: u64,
    /// The bytes behind the fields, which have the names.
    pub names: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses the input buffer of the FSCTL. A dialect that is not known has the fields of 1.1.
    pub fn parse(input: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        let dialect = QosDialect(r.u16("storage QoS ProtocolVersion")?);
        r.skip(2, "storage QoS Reserved")?;
        let options = QosOptions(r.u32("storage QoS Options")?);
        let logical_flow = Guid(r.array("LogicalFlowID")?);
        let policy = Guid(r.array("PolicyID")?);
        let initiator = Guid(r.array("InitiatorID")?);
        let limit = r.u64("storage QoS Limit")?;
        let reservation = r.u64("storage QoS Reservation")?;
        let initiator_name = NamePlace::parse(r, "InitiatorName")?;
        let node_name = NamePlace::parse(r, "InitiatorNodeName")?;
        let io_count = r.u64("IoCountIncrement")?;
        let normalized_io_count = r.u64("NormalizedIoCountIncrement")?;
        let latency = r.u64("LatencyIncrement")?;
        let lower_latency = r.u64("LowerLatencyIncrement")?;
        let has_bandwidth = dialect != QosDialect::V1_0;
        let bandwidth_limit = if has_bandwidth { r.u64("BandwidthLimit")? } else { 0 };
        let kilobyte_count = if has_bandwidth { r.u64("KilobyteCountIncrement")? } else { 0 };
        Ok(Self {
            dialect,
            options,
            logical_flow,
            policy,
            initiator,
            limit,
            reservation,
            initiator_name,
            node_name,
            io_count,
            normalized_io_count,
            latency,
            lower_latency,
            bandwidth_limit,
            kilobyte_count,
            names: r.rest(),
        })
    }

    /// Appends the input buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.dialect.0).u16(0).u32(self.options.0);
        w.bytes(&self.logical_flow.0).bytes(&self.policy.0).bytes(&self.initiator.0);
        w.u64(self.limit).u64(self.reservation);
        for place in [self.initiator_name, self.node_name] {
            w.u16(place.offset).u16(place.length);
        }
        w.u64(self.io_count).u64(self.normalized_io_count);
        w.u64(self.latency).u64(self.lower_latency);
        if self.dialect != QosDialect::V1_0 {
            w.u64(self.bandwidth_limit).u64(self.kilobyte_count);
        }
        w.bytes(self.names);
    }
}

/// STORAGE_QOS_CONTROL_RESPONSE, MS-SQOS 2.2.2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// ProtocolVersion
    pub dialect: QosDialect,
    /// LogicalFlowID
    pub logical_flow: Guid,
    /// PolicyID
    pub policy: Guid,
    /// InitiatorID
    pub initiator: Guid,
    /// TimeToLive, milliseconds.
    pub time_to_live_ms: u32,
    /// Status
    pub status: FlowStatus,
    /// MaximumIoRate, in normalized operations a second; 0 for none.
    pub maximum_io_rate: u64,
    /// MinimumIoRate, in normalized operations a second.
    pub minimum_io_rate: u64,
    /// BaseIoSize, bytes.
    pub base_io_size: u32,
    /// MaximumBandwidth, in kilobytes a second; 0 for none, and in dialect 1.0.
    pub maximum_bandwidth: u64,
}

impl Response {
    /// Returns its length in a dialect, bytes.
    pub fn size(dialect: QosDialect) -> usize {
        if dialect == QosDialect::V1_0 { 88 } else { 96 }
    }

    /// Parses the output buffer of the FSCTL.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(output);
        let dialect = QosDialect(r.u16("storage QoS ProtocolVersion")?);
        r.skip(2, "storage QoS Reserved")?;
        r.skip(4, "storage QoS Options")?;
        let logical_flow = Guid(r.array("LogicalFlowID")?);
        let policy = Guid(r.array("PolicyID")?);
        let initiator = Guid(r.array("InitiatorID")?);
        let time_to_live_ms = r.u32("storage QoS TimeToLive")?;
        let status = FlowStatus(r.u32("storage QoS Status")?);
        let maximum_io_rate = r.u64("MaximumIoRate")?;
        let minimum_io_rate = r.u64("MinimumIoRate")?;
        let base_io_size = r.u32("BaseIoSize")?;
        r.skip(4, "storage QoS Reserved")?;
        let has_bandwidth = dialect != QosDialect::V1_0;
        let maximum_bandwidth = if has_bandwidth { r.u64("MaximumBandwidth")? } else { 0 };
        Ok(Self {
            dialect,
            logical_flow,
            policy,
            initiator,
            time_to_live_ms,
            status,
            maximum_io_rate,
            minimum_io_rate,
            base_io_size,
            maximum_bandwidth,
        })
    }

    /// Appends the output buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.dialect.0).u16(0).u32(0);
        w.bytes(&self.logical_flow.0).bytes(&self.policy.0).bytes(&self.initiator.0);
        w.u32(self.time_to_live_ms).u32(self.status.0);
        w.u64(self.maximum_io_rate).u64(self.minimum_io_rate);
        w.u32(self.base_io_size).u32(0);
        if self.dialect != QosDialect::V1_0 {
            w.u64(self.maximum_bandwidth);
        }
    }
}
