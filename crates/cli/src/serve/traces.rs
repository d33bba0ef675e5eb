//! OpenTelemetry: sends the spans of connections and requests to a collector, by OTLP over HTTP.
//!
//! Spans are put into a queue of bounded length ([`QUEUED_SPANS`]); a thread of the SDK sends them.
//! Those that find no place are dropped: no client ever waits for the collector.

use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use frevo_config::{Endpoint, TracesSection};
use frevo_server::Settings;
use opentelemetry::trace::{Link, SpanKind, TraceId, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SamplingDecision, SamplingResult,
    SdkTracerProvider, ShouldSample,
};

use super::send_traces::Sender;
use crate::exit::{Exit, Failure};
use crate::logging::Logging;

/// Spans that wait to be sent; further ones are dropped.
const QUEUED_SPANS: usize = 4096;
/// Spans that are sent together.
const SPANS_PER_MESSAGE: usize = 512;
/// The time from a span's end to its sending.
const DELAY: Duration = Duration::from_secs(1);
/// The time that the collector has to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The time that a stopping server waits for the collector.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// A collector, and the process that sends to it.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Endpoint,
    sender: Sender,
    sample: f64,
}

impl Collector {
    /// Looks the collector's name up and starts the process that sends to it. A confined server can do
    /// neither any more.
    pub(super) fn find(section: &TracesSection) -> Result<Option<Self>, Failure> {
        let Some(endpoint) = section.endpoint.clone() else { return Ok(None) };
        let failure = |why: String| {
            let text = format!("[traces] endpoint: cannot look up {}: {why}", endpoint.host);
            Failure::new(Exit::Failed, text)
        };
        let found = (&*endpoint.host, endpoint.port).to_socket_addrs();
        let address = found.map_err(|error| failure(error.to_string()))?.next();
        let address = address.ok_or_else(|| failure(String::from("it has no address")))?;
        let sample = section.sample.map_or(1.0, |sample| sample.0);
        let sender = Sender::start(address)
            .map_err(Failure::failed("cannot start the process that sends traces"))?;
        Ok(Some(Self { endpoint, sender, sample }))
    }

    /// Begins to send spans, from a thread that is confined as its parent is.
    pub(super) fn start(self, settings: &Settings, logging: &Logging) -> Result<Sending, Failure> {
        let shown = self.endpoint.to_string();
        let failure = |error: &dyn fmt::Display| {
            Failure::new(Exit::Failed, format!("cannot send traces to {shown}: {error}"))
        };
        let is_failing = AtomicBool::new(false);
        let client = Client { sender: self.sender, shown: shown.clone(), is_failing };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&shown)
            .with_timeout(PATIENCE)
            .with_http_client(client)
            .build()
            .map_err(|error| failure(&error))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUED_SPANS)
            .with_max_export_batch_size(SPANS_PER_MESSAGE)
            .with_scheduled_delay(DELAY)
            .build();
        let batches = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let resource = Resource::builder_empty().with_service_name("frevo").with_attributes([
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", settings.server_name.clone()),
        ]);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(batches)
            .with_resource(resource.build())
            .with_sampler(Sample(Sampler::TraceIdRatioBased(self.sample)))
            .build();
        logging.trace(provider.tracer("frevo"))?;
        tracing::info!(target: "frevo::traces", endpoint = %shown, sample = self.sample,
            "sending traces");
        Ok(Sending(provider))
    }
}

/// Spans are sent until this is dropped.
pub(super) struct Sending(SdkTracerProvider);

impl Drop for Sending {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_PATIENCE) {
            tracing::debug!(target: "frevo::traces", %error, "the latest spans were not sent");
        }
    }
}

/// Chooses the requests whose spans are sent. The spans of connections are always sent, because
/// requests have links to them.
#[derive(Debug, Clone)]
struct Sample(Sampler);

impl ShouldSample for Sample {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        if name == "connection" {
            return SamplingResult {
                decision: SamplingDecision::RecordAndSample,
                attributes: Vec::new(),
                trace_state: TraceState::default(),
            };
        }
        self.0.should_sample(parent, trace, name, kind, attributes, links)
    }
}

/// The HTTP client of the exporter.
#[derive(Debug)]
struct Client {
    sender: Sender,
    shown: String,
    /// True if the collector did not take the latest message: only the first failure is logged.
    is_failing: AtomicBool,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The SDK calls this method on a thread of its own, so it may block.
        let answered = self.sender.exchange(&request);
        let refusal = match &answered {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = self.is_failing.swap(refusal.is_some(), Ordering::Relaxed);
        match refusal {
            Some(error) if !was_failing => tracing::warn!(target: "frevo::traces",
                endpoint = %self.shown, error,
                "the collector does not take traces; they are lost until it does"),
            None if was_failing => tracing::info!(target: "frevo::traces", endpoint = %self.shown,
                "the collector takes traces again"),
            _ => {}
        }
        answered
    }
}
