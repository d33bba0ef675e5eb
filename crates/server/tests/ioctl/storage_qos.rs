//! Storage quality of service, MS-SQOS: the examples of its section 4, and the rules of 3.2.5.1.

use std::time::Duration;

use frevo_server::internal::state::Kind;
use frevo_server::rate_rules::StoragePolicy;
use frevo_server::{Reload, StatusQuery};
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::storage_qos::{
    FlowStatus, NamePlace, QosDialect, QosOptions, Request, Response,
};
use frevo_wire::dtyp::Guid;
use tokio::time::Instant;

use super::calls::*;
use crate::client::files::read_draft;
use crate::client::*;

/// LogicalFlowID, PolicyID and InitiatorID of the examples.
const FLOW: Guid = Guid(*b"\xE4\x32\x3A\xB1\xAD\xE2\xB2\x5D\xA4\xF8\x5C\xD3\xBE\x9D\x69\x6E");
const POLICY: Guid = Guid(*b"\x4E\xF2\xB4\x04\xE9\xB3\x94\x45\xAD\xAA\xE3\x27\x52\x8D\xE5\x4B");
const INITIATOR: Guid = Guid(*b"\xC6\x4D\x9E\x1B\xC0\xF8\x9F\x41\x87\x85\x80\x65\xBC\xFF\x72\x84");

/// A request without anything.
const REQUEST: Request<'_> = Request {
    dialect: QosDialect::V1_1,
    options: QosOptions::EMPTY,
    logical_flow: Guid([0; 16]),
    policy: Guid([0; 16]),
    initiator: Guid([0; 16]),
    limit: 0,
    reservation: 0,
    initiator_name: NamePlace { offset: 0, length: 0 },
    node_name: NamePlace { offset: 0, length: 0 },
    io_count: 0,
    normalized_io_count: 0,
    latency: 0,
    lower_latency: 0,
    bandwidth_limit: 0,
    kilobyte_count: 0,
    names: &[],
};

fn bytes(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

/// MS-SQOS 4.2: an Open is associated, and its flow gets a policy.
#[test]
fn the_requests_of_the_examples_are_read_and_written() {
    let head = |options: u8| [&[1, 1, 0, 0, options, 0, 0, 0][..], &FLOW.0].concat();
    let associate = [head(1), vec![0; 104]].concat();
    let set_flow =
        Request { options: QosOptions::SET_LOGICAL_FLOW_ID, logical_flow: FLOW, ..REQUEST };
    assert_eq!(Request::parse(&associate), Ok(set_flow));
    assert_eq!(bytes(|w| set_flow.encode(w)), associate);
    assert!(Request::parse(&associate[..127]).is_err());

    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let names = [utf16("TEST-VM"), utf16("HYPERV-TEST.ntdev.corp.microsoft.com")].concat();
    let places = [0x68, 0, 0x0E, 0, 0x76, 0, 0x48, 0];
    let fields = [&POLICY.0[..], &INITIATOR.0, &[0; 16], &places, &[0; 48]].concat();
    let set_policy = [head(2), fields, names.clone()].concat();
    let parsed = Request::parse(&set_policy).unwrap();
    let wanted = Request {
        options: QosOptions::SET_POLICY,
        logical_flow: FLOW,
        policy: POLICY,
        initiator: INITIATOR,
        initiator_name: NamePlace { offset: 104, length: 14 },
        node_name: NamePlace { offset: 118, length: 72 },
        names: &names,
        ..REQUEST
    };
    assert_eq!(parsed, wanted);
    assert_eq!(bytes(|w| parsed.encode(w)), set_policy);
    assert!(parsed.initiator_name.is_within(set_policy.len()));
    // Dialect 1.0 ends before the bandwidth.
    let old = [&[0, 1][..], &associate[2..112]].concat();
    assert_eq!(Request::parse(&old), Ok(Request { dialect: QosDialect::V1_0, ..set_flow }));
}

/// MS-SQOS 4.3. The example has the bandwidth before the base size; 2.2.2.3, and the protocol's test suite, have it
/// behind.
#[test]
fn the_status_of_the_example_is_read_and_written() {
    let counted = [399_u64, 399, 38_223_584, 38_223_584].map(u64::to_le_bytes).concat();
    let fields = [&POLICY.0[..], &INITIATOR.0, &[0; 24], &counted, &[0; 16]].concat();
    let probe = [&[1, 1, 0, 0, 0x1C, 0, 0, 0][..], &FLOW.0, &fields].concat();
    let options = QosOptions::PROBE_POLICY | QosOptions::GET_STATUS | QosOptions::UPDATE_COUNTERS;
    let wanted = Request {
        options,
        logical_flow: FLOW,
        policy: POLICY,
        initiator: INITIATOR,
        io_count: 399,
        normalized_io_count: 399,
        latency: 38_223_584,
        lower_latency: 38_223_584,
        ..REQUEST
    };
    assert_eq!(Request::parse(&probe), Ok(wanted));
    let rates = [100_u64, 0].map(u64::to_le_bytes).concat();
    let status = [&[0x8D, 0x0F, 0, 0, 0, 0, 0, 0][..], &rates].concat();
    let ends = [&[0, 0x20, 0, 0, 0, 0, 0, 0][..], &200_u64.to_le_bytes()].concat();
    let ids = [FLOW.0, POLICY.0, INITIATOR.0].concat();
    let response = [&[1, 1, 0, 0, 0, 0, 0, 0][..], &ids, &status, &ends].concat();
    let parsed = Response::parse(&response).unwrap();
    assert_eq!((parsed.time_to_live_ms, parsed.status), (3_981, FlowStatus::OK));
    assert_eq!((parsed.maximum_io_rate, parsed.minimum_io_rate), (100, 0));
    assert_eq!((parsed.base_io_size, parsed.maximum_bandwidth), (8_192, 200));
    assert_eq!(bytes(|w| parsed.encode(w)), response);
    let old = Response { dialect: QosDialect::V1_0, maximum_bandwidth: 0, ..parsed };
    assert_eq!(Response::parse(&bytes(|w| old.encode(w))), Ok(old));
    assert_eq!(bytes(|w| old.encode(w)).len(), 88);
}

fn policy(iops: Option<u64>, bandwidth: Option<u64>) -> StoragePolicy {
    StoragePolicy { name: String::from("silver"), id: POLICY, iops, bandwidth }
}

fn with(policies: Vec<StoragePolicy>) -> Settings {
    Settings { storage_policies: policies, ..settings() }
}

async fn control(peer: &mut Peer, mount: &Mount, file: FileId, request: &Request<'_>) -> Reply {
    let input = bytes(|w| request.encode(w));
    ask(peer, mount, CtlCode::STORAGE_QOS_CONTROL, file, &input, 96).await
}

async fn status(peer: &mut Peer, mount: &Mount, file: FileId) -> Response {
    let request = Request { options: QosOptions::GET_STATUS, ..REQUEST };
    Response::parse(&output(control(peer, mount, file, &request).await.ok())).unwrap()
}

#[test]
fn without_policies_there_is_no_storage_qos() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let probe = Request { options: QosOptions::GET_STATUS, ..REQUEST };
        let refused = control(&mut peer, &mount, file, &probe).await;
        refused.expect(Status::INVALID_DEVICE_REQUEST);
    });
}

/// MS-SQOS 3.2.5.1 and its notes 7 and 8, in their order.
#[test]
fn requests_are_refused_as_the_specification_says() {
    in_world_with(with(vec![policy(Some(100), Some(200 << 10))]), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let (set_flow, set, probe) =
            (QosOptions::SET_LOGICAL_FLOW_ID, QosOptions::SET_POLICY, QosOptions::PROBE_POLICY);
        let (get, update) = (QosOptions::GET_STATUS, QosOptions::UPDATE_COUNTERS);
        let asked = |options: QosOptions| Request { options, ..REQUEST };
        let named = |options: QosOptions| Request { logical_flow: FLOW, ..asked(options) };
        let place = |offset, length| NamePlace { offset, length };
        let most = 1_000_000_000;
        let invalid = Status::INVALID_PARAMETER;
        for (request, wanted) in [
            (Request { dialect: QosDialect(0x0102), ..named(set_flow) }, Status::REVISION_MISMATCH),
            (asked(QosOptions::EMPTY), invalid),
            (asked(QosOptions(0x20)), invalid),
            (asked(probe), invalid),
            (named(set), Status::NOT_FOUND),
            (named(update), Status::NOT_FOUND),
            (named(get), Status::NOT_FOUND),
            (named(set_flow), Status::SUCCESS),
            (Request { initiator_name: place(104, 0x202), ..asked(set) }, invalid),
            (Request { initiator_name: place(103, 2), ..asked(set) }, invalid),
            (Request { node_name: place(104, 26), ..asked(set) }, invalid),
            (Request { node_name: place(104, 24), ..asked(set) }, Status::SUCCESS),
            (Request { limit: most + 1, ..asked(set) }, invalid),
            (Request { reservation: most + 1, ..asked(set) }, invalid),
            (Request { bandwidth_limit: most + 1, ..asked(set) }, invalid),
            (Request { limit: 5, reservation: 6, ..asked(set) }, invalid),
            (Request { limit: 5, policy: POLICY, ..asked(set) }, invalid),
            (Request { bandwidth_limit: 5, policy: POLICY, ..asked(set) }, invalid),
            (Request { reservation: 5, policy: POLICY, ..asked(set) }, invalid),
            (Request { limit: most, reservation: most, ..asked(set) }, Status::SUCCESS),
            // The Open is of a flow, so that nothing is probed.
            (Request { limit: most + 1, ..asked(probe) }, Status::SUCCESS),
            (asked(set_flow), Status::SUCCESS),
            (asked(get), Status::NOT_FOUND),
        ] {
            let reply = control(&mut peer, &mount, file, &request).await;
            assert_eq!(reply.status(), wanted, "{request:?}");
        }
        control(&mut peer, &mount, file, &named(probe)).await.ok();
        let input = bytes(|w| asked(get).encode(w));
        let code = CtlCode::STORAGE_QOS_CONTROL;
        ask(&mut peer, &mount, code, file, &input[..100], 96).await.expect(invalid);
    });
}

/// MS-SQOS 3.2.5.1.4: a response that does not fit is refused, and nothing was changed.
#[test]
fn a_request_whose_answer_does_not_fit_sets_no_policy() {
    in_world_with(with(vec![policy(Some(100), None)]), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let own =
            Request { options: QosOptions::PROBE_POLICY, logical_flow: FLOW, limit: 7, ..REQUEST };
        control(&mut peer, &mount, file, &own).await.ok();
        let options = QosOptions::SET_POLICY | QosOptions::GET_STATUS;
        let set = Request { options, policy: POLICY, ..REQUEST };
        let code = CtlCode::STORAGE_QOS_CONTROL;
        for (dialect, size) in [(QosDialect::V1_0, 88), (QosDialect::V1_1, 96)] {
            let input = bytes(|w| Request { dialect, ..set }.encode(w));
            for room in [0, 79, 80, size - 1] {
                let short = ask(&mut peer, &mount, code, file, &input, room).await;
                short.expect(Status::INVALID_PARAMETER);
                assert_eq!(status(&mut peer, &mount, file).await.maximum_io_rate, 7, "{room}");
            }
            let told = output(ask(&mut peer, &mount, code, file, &input, size).await.ok());
            assert_eq!(Response::parse(&told).map(|told| told.maximum_io_rate), Ok(100));
            let own = Request { options: QosOptions::SET_POLICY, limit: 7, ..REQUEST };
            control(&mut peer, &mount, file, &own).await.ok();
        }
    });
}

#[test]
fn the_status_tells_limits_and_what_is_not_supported() {
    in_world_with(with(vec![policy(Some(100), Some(200 << 10))]), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let probe = Request {
            options: QosOptions::PROBE_POLICY,
            logical_flow: FLOW,
            policy: POLICY,
            initiator: INITIATOR,
            ..REQUEST
        };
        control(&mut peer, &mount, file, &probe).await.ok();
        let told = status(&mut peer, &mount, file).await;
        assert_eq!((told.logical_flow, told.policy, told.initiator), (FLOW, POLICY, INITIATOR));
        assert_eq!((told.maximum_io_rate, told.maximum_bandwidth), (100, 200));
        assert_eq!((told.minimum_io_rate, told.base_io_size), (0, 8_192));
        assert!(told.time_to_live_ms > 0 && told.status == FlowStatus::OK);
        // A reload changes the limits of the flow, or takes its policy away.
        world.embedded.reload(Reload::new().settings(with(vec![policy(Some(7), None)])));
        let told = status(&mut peer, &mount, file).await;
        assert_eq!((told.maximum_io_rate, told.maximum_bandwidth), (7, 0));
        let other = StoragePolicy { id: FLOW, ..policy(Some(7), None) };
        world.embedded.reload(Reload::new().settings(with(vec![other])));
        let told = status(&mut peer, &mount, file).await;
        assert_eq!((told.maximum_io_rate, told.status), (0, FlowStatus::UNKNOWN_POLICY_ID));
        let set = QosOptions::SET_POLICY;
        let own = Request { options: set, limit: 50, reservation: 20, ..REQUEST };
        control(&mut peer, &mount, file, &own).await.ok();
        let told = status(&mut peer, &mount, file).await;
        assert_eq!((told.maximum_io_rate, told.status), (50, FlowStatus::CONFIGURATION_MISMATCH));
        // Another Open of the account joins the flow; one of another account has its own.
        let second = peer.open_file(&mount, &Want::file("g")).await;
        let join =
            Request { options: QosOptions::SET_LOGICAL_FLOW_ID, logical_flow: FLOW, ..REQUEST };
        control(&mut peer, &mount, second, &join).await.ok();
        assert_eq!(status(&mut peer, &mount, second).await.maximum_io_rate, 50);
        let (mut bob, bobs) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&bobs, &Want::file("f")).await;
        control(&mut bob, &bobs, file, &join).await.ok();
        assert_eq!(status(&mut bob, &bobs, file).await.maximum_io_rate, 0);
        assert_eq!(world.server.ledger.count(Kind::LogicalFlow), 2);
    });
}

/// MS-SQOS 4.1: what is shorter than a normalized operation is one.
#[test]
fn reads_at_the_end_of_a_file_are_operations_of_a_flow() {
    in_frozen_world(with(vec![policy(Some(64), None)]), async |world| {
        world.file("small", vec![7; 100]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::existing("small")).await;
        let probe = Request {
            options: QosOptions::PROBE_POLICY,
            logical_flow: FLOW,
            policy: POLICY,
            ..REQUEST
        };
        control(&mut peer, &mount, file, &probe).await.ok();
        let began = Instant::now();
        for _ in 0..192 {
            peer.read(&mount, file, 0, 8_192).await;
        }
        let took = began.elapsed().as_secs_f64();
        assert!((took - 2.9).abs() <= 0.2, "{took}");
    });
}

/// A flow keeps its limits over all its Opens; operations count by 8 KiB.
#[test]
fn a_flow_keeps_its_limits() {
    in_frozen_world(with(vec![policy(Some(64), None)]), async |world| {
        world.file("f", vec![7; 1 << 20]);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut files = Vec::new();
        for _ in 0..2 {
            let file = peer.open_file(&mount, &Want::existing("f")).await;
            let probe = Request {
                options: QosOptions::PROBE_POLICY,
                logical_flow: FLOW,
                policy: POLICY,
                ..REQUEST
            };
            control(&mut peer, &mount, file, &probe).await.ok();
            files.push(file);
        }
        let free = peer.open_file(&mount, &Want::existing("f")).await;
        let near = |began: Instant, seconds: f64| {
            let took = began.elapsed().as_secs_f64();
            assert!((took - seconds).abs() <= 0.2, "{took} and {seconds}");
        };
        // 40 READs of 64 KiB, and a WRITE of 512 KiB, are 384 operations.
        let began = Instant::now();
        for at in 0..40 {
            peer.read(&mount, files[at % 2], 0, 64 << 10).await;
        }
        peer.write(&mount, files[0], 0, &[1; 512 << 10]).await;
        near(began, 5.0);
        let began = Instant::now();
        for _ in 0..40 {
            peer.read(&mount, free, 0, 64 << 10).await;
        }
        near(began, 0.0);
        // A bandwidth of the client: a kilobyte is 1,024 bytes.
        let set = QosOptions::SET_POLICY;
        let own = Request { options: set, bandwidth_limit: 512, ..REQUEST };
        control(&mut peer, &mount, files[0], &own).await.ok();
        let began = Instant::now();
        for _ in 0..40 {
            peer.read(&mount, files[1], 0, 64 << 10).await;
        }
        near(began, 4.8);
        // Those that waited are counted.
        let metrics = world.embedded.metrics();
        assert_eq!((metrics.logical_flows, metrics.flows_waiting), (1, 0));
        assert!(metrics.flows_held > 40 && metrics.flows_held_us > 8_000_000, "{metrics:?}");
        // One that waits goes on when its flow has no limit any more.
        peer.read(&mount, files[1], 0, 1 << 20).await;
        let began = Instant::now();
        let read = read_draft(files[1], 0, 1 << 20);
        let id = peer.send(vec![mount.put(read)], mount.via()).await[0];
        tokio::time::sleep(Duration::from_millis(50)).await;
        let shown = world.embedded.status(&StatusQuery::default());
        let rate = shown.rates.rows.last().unwrap();
        assert_eq!((&*rate.name, rate.each, rate.waiting), ("storage QoS", Some("flow"), 1));
        let held = &shown.sessions.rows.iter().find(|row| row.limited_by.is_some());
        assert_eq!(held.and_then(|row| row.limited_by.as_deref()), Some("storage QoS"));
        let open = Request { options: set, ..REQUEST };
        control(&mut peer, &mount, files[0], &open).await.ok();
        peer.final_reply(id).await.ok();
        near(began, 0.0);
    });
}
