//! FSCTL_STORAGE_QOS_CONTROL: MS-SQOS 3.2.5.1.

use frevo_wire::Status;
use frevo_wire::command::ioctl::storage_qos::{QosDialect, QosOptions, Request, Response};
use frevo_wire::dtyp::Guid;

use super::call::{Answer, Call, NO_OUTPUT, output};
use crate::base::limits::STORAGE_QOS_TTL;
use crate::objects::rates::{AskedPolicy, BASE_IO_SIZE, LogicalFlow};

/// Windows: the greatest limits and reservations (MS-SQOS note 8).
const RATE_MAX: u64 = 1_000_000_000;
/// The options that there are.
const ALL: QosOptions = QosOptions(0x1F);

/// Puts the Open into a logical flow, sets the flow's policy, and tells its state.
pub(super) fn control(call: &Call<'_>) -> Answer {
    let storage_qos = &call.rq.server().rates.storage_qos;
    if !storage_qos.is_on() {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    let dialect = QosDialect::of(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    if !matches!(dialect, QosDialect::V1_0 | QosDialect::V1_1) {
        return Err(Status::REVISION_MISMATCH.into());
    }
    let request = Request::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    if !request.options.intersects(ALL) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let open = call.open()?;
    let is_associated = open.logical_flow().is_some();
    let ignored = if is_associated { QosOptions::PROBE_POLICY } else { QosOptions::EMPTY };
    let options = request.options.without(ignored);
    associate(call, &request, options)?;
    let flow = || open.logical_flow().ok_or(Status::NOT_FOUND);
    if options.contains(QosOptions::SET_POLICY) {
        flow()?;
    }
    let sets = options.intersects(QosOptions::SET_POLICY | QosOptions::PROBE_POLICY);
    let asked = if sets { Some(asked(&request, call.input.len())?) } else { None };
    if options.contains(QosOptions::UPDATE_COUNTERS) {
        // The counters of a client decide nothing here.
        flow()?;
    }
    let answers = options.contains(QosOptions::GET_STATUS);
    // Deviation: MS-SQOS 3.2.5.1.4 counts 80 bytes, which its structure of 2.2.2.3 does not fit into. The size is
    // looked at before the policy is set: a request that fails sets none.
    if answers && (call.max_output as usize) < Response::size(dialect) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if let Some(asked) = asked {
        let flow = flow()?;
        storage_qos.set_policy(&flow, asked);
    }
    if !answers {
        return NO_OUTPUT;
    }
    let flow = flow()?;
    let response = status(call, dialect, &flow);
    Ok((output(|w| response.encode(w)), Status::SUCCESS))
}

/// MS-SQOS 3.2.5.1.1
fn associate(call: &Call<'_>, request: &Request<'_>, options: QosOptions) -> Result<(), Status> {
    let wanted = QosOptions::SET_LOGICAL_FLOW_ID | QosOptions::PROBE_POLICY;
    if !options.intersects(wanted) {
        return Ok(());
    }
    let open = call.open()?;
    if request.logical_flow == Guid::default() {
        if options.contains(QosOptions::PROBE_POLICY) {
            return Err(Status::INVALID_PARAMETER);
        }
        open.set_logical_flow(None);
        return Ok(());
    }
    let holder = call.rq.session()?.holder();
    let flow = call.rq.server().rates.storage_qos.flow(holder, request.logical_flow)?;
    open.set_logical_flow(Some(flow));
    Ok(())
}

/// MS-SQOS 3.2.5.1.2: the policy of a request of `size` bytes.
fn asked(request: &Request<'_>, size: usize) -> Result<AskedPolicy, Status> {
    let Request { limit, reservation, bandwidth_limit, .. } = *request;
    let are_named = [request.initiator_name, request.node_name].iter().all(|n| n.is_within(size));
    let is_small = [limit, reservation, bandwidth_limit].iter().all(|rate| *rate <= RATE_MAX);
    // Windows: a policy of the server and one of the client exclude each other (MS-SQOS note 8).
    let is_own = limit != 0 || reservation != 0 || bandwidth_limit != 0;
    let is_one = request.policy == Guid::default() || !is_own;
    let is_possible = limit == 0 || reservation <= limit;
    if !(are_named && is_small && is_one && is_possible) {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(AskedPolicy {
        policy: request.policy,
        initiator: request.initiator,
        limit,
        reservation,
        bandwidth: bandwidth_limit,
    })
}

/// MS-SQOS 3.2.5.1.4
fn status(call: &Call<'_>, dialect: QosDialect, flow: &LogicalFlow) -> Response {
    let asked = flow.asked();
    let assigned = call.rq.server().rates.storage_qos.assigned(flow);
    Response {
        dialect,
        logical_flow: flow.id,
        policy: asked.policy,
        initiator: asked.initiator,
        time_to_live_ms: u32::try_from(STORAGE_QOS_TTL.as_millis()).unwrap_or(u32::MAX),
        status: assigned.status,
        maximum_io_rate: assigned.io_rate,
        minimum_io_rate: 0,
        base_io_size: BASE_IO_SIZE,
        maximum_bandwidth: assigned.bandwidth,
    }
}
